"""Axes whose size may change from call to call: one plan, one set of kernels for all sizes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kernelrt._replay import MISMATCH
from kernelrt.device.buffer import Buffer
from kernelrt.errors import DTypeError, ShapeError, VariableError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import prod
from kernelrt.jit.signature import Array, Spec
from kernelrt.runtime.sizes import evaluate
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.jit.tracing import Traced
    from kernelrt.runtime import ExecutionPlan

__all__ = ["Dynamic", "DynamicReplay", "check_dynamic", "generalize", "is_dynamic"]

#: Argument name -> axis -> the Variable that stands for its size.
Dynamic: TypeAlias = "Mapping[str, Mapping[int, UOp]]"

_FORM: Final = '{"x": {0: Variable("batch", 1, 256)}}'


def check_dynamic(dynamic: object) -> dict[str, dict[int, UOp]]:
    """Give `dynamic` as plain dicts.

    Raises
    ------
    DTypeError
        It is not of the form ``{"x": {0: Variable("batch", 1, 256)}}``.
    VariableError
        Two different Variables have one name.
    """
    if dynamic is None:
        return {}
    given: Any = dynamic
    try:
        out = {name: dict(axes.items()) for name, axes in given.items()}
    except AttributeError:
        raise DTypeError(
            f"dynamic: expected a mapping such as {_FORM}, not {dynamic!r}"
        ) from None
    named: dict[str, UOp] = {}
    for name, axes in out.items():
        for axis, variable in axes.items():
            fits = isinstance(variable, UOp) and variable.op is Op.VAR
            if not isinstance(name, str) or not isinstance(axis, int) or not fits:
                raise DTypeError(
                    f"dynamic[{name!r}]: expected axes and Variables as in {_FORM}, "
                    f"not {axis!r}: {variable!r}"
                )
            other = named.setdefault(variable.arg[0], variable)
            if other is not variable:
                raise VariableError(
                    f"dynamic: two Variables are called {variable.arg[0]!r}, with bounds "
                    f"{other.arg[1:]} and {variable.arg[1:]}; use one of them for both axes"
                )
    return out


def generalize(
    dynamic: Mapping[str, Mapping[int, UOp]], names: Sequence[str], specs: Sequence[Spec]
) -> tuple[Spec, ...]:
    """Put the Variables of `dynamic` in place of the sizes in `specs`.

    Raises
    ------
    ShapeError
        An argument lacks the axis, or one Variable would have two sizes.
    VariableError
        A size lies outside the bounds of its Variable.
    DTypeError
        A name in `dynamic` is that of no array.
    """
    out = list(specs)
    sizes: dict[str, tuple[int, str]] = {}
    for name, axes in dynamic.items():
        where = [i for i, leaf in enumerate(names) if leaf == name]
        spec = specs[where[0]] if where else None
        if not isinstance(spec, Array):
            raise DTypeError(
                f"dynamic: {name!r} is not the name of an array argument; the arguments are "
                f"{', '.join(names) or 'none'}"
            )
        shape = list(spec.shape)
        for axis, variable in axes.items():
            if not -len(shape) <= axis < len(shape):
                raise ShapeError(
                    f"{name}: dynamic names axis {axis}, but the argument has {len(shape)} axes"
                )
            size = shape[axis]
            assert isinstance(size, int)
            _check_size(name, axis, size, variable, sizes)
            shape[axis] = variable
        out[where[0]] = Array(spec.dtype, tuple(shape))
    return tuple(out)


def _check_size(
    name: str, axis: int, size: int, variable: UOp, sizes: dict[str, tuple[int, str]]
) -> None:
    label, least, most = variable.arg
    if not least <= size <= most:
        raise VariableError(
            f"{name}: axis {axis} has size {size}, outside [{least}, {most}] of Variable "
            f"{label!r}; pass fewer elements or widen the Variable"
        )
    known, first = sizes.setdefault(label, (size, name))
    if known != size:
        raise ShapeError(
            f"{name}: axis {axis} has size {size}, but {first} gave Variable {label!r} the size "
            f"{known}; both must agree"
        )


def is_dynamic(spec: Spec) -> bool:
    """Whether an axis of the argument has a Variable for its size."""
    return isinstance(spec, Array) and any(isinstance(d, UOp) for d in spec.shape)


class DynamicReplay:
    """Replays one plan at whatever sizes the arguments have.

    Parameters
    ----------
    plan : ExecutionPlan
        Made with Variables for sizes; its buffers hold the largest.
    traced : Traced
        Where arguments go and what the results are.
    specs : sequence of Spec
        What the arguments are.
    """

    def __init__(self, plan: ExecutionPlan, traced: Traced, specs: Sequence[Spec]) -> None:
        self._plan = plan
        self._traced = traced
        self._specs = tuple(specs)
        self._turn = threading.Lock()

    def __call__(self, *leaves: Any) -> Any:
        """Run once; MISMATCH where state has moved to other memory since the trace."""
        with self._turn:
            if any(tensor._address != address for tensor, address in self._traced.guards):
                return MISMATCH
            values = self.load(leaves)
            known = self._plan.variables
            self._plan.execute_with_vars({n: v for n, v in values.items() if n in known})
            results = [
                _result(buffer, node, values)
                for buffer, node in zip(
                    self._plan.output_buffers, self._traced.nodes, strict=True
                )
            ]
        build = self._traced.builder
        if build is not None:
            return build(*results)
        return results[0] if len(results) == 1 else tuple(results)

    def load(self, leaves: Sequence[Any]) -> dict[str, int]:
        """Copy the arguments in; give the values of the Variables."""
        from kernelrt.jit.binding import raw

        values: dict[str, int] = {}
        for spec, home, leaf in zip(self._specs, self._traced.homes, leaves, strict=True):
            if isinstance(spec, Array):
                for dim, size in zip(spec.shape, leaf.shape, strict=True):
                    if isinstance(dim, UOp):
                        values[dim.arg[0]] = size
            if home is not None:
                elements = raw(leaf)
                home.raw()[: elements.size] = elements
        return values


def _result(buffer: Buffer, node: UOp, values: Mapping[str, int]) -> Tensor:
    """A tensor of its own with the elements that this call has filled."""
    shape = tuple(evaluate(dim, values) for dim in node.shape)
    count = prod(shape)
    assert isinstance(count, int)
    own = Buffer(count, node.dtype)
    own.raw()[...] = buffer.raw()[:count]
    return Tensor._over(own, shape)
