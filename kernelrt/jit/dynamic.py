"""Axes whose size may change from call to call: one plan, one set of kernels for all sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kernelrt.errors import DTypeError, ShapeError, VariableError
from kernelrt.ir import Op, UOp
from kernelrt.ir.size import Size, plain
from kernelrt.jit.binding import make_replay
from kernelrt.jit.signature import Array, Spec, Static

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kernelrt._replay import Replay
    from kernelrt._specs import Structure
    from kernelrt.jit.binding import Way
    from kernelrt.jit.tracing import Traced
    from kernelrt.runtime import ExecutionPlan

__all__ = ["Dynamic", "SizedReplays", "check_dynamic", "generalize"]

#: Argument name -> axis -> the Variable that stands for its size.
Dynamic: TypeAlias = "Mapping[str, Mapping[int, UOp | Size]]"

MOST_SIZES: Final = 1024
"""How many combinations of sizes a plan remembers before it starts anew."""
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
        out = {
            name: {axis: plain(v) for axis, v in axes.items()} for name, axes in given.items()
        }
    except AttributeError:
        raise DTypeError(f"dynamic: expected a mapping such as {_FORM}, not {dynamic!r}") from None
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
    dynamic: Mapping[str, Mapping[int, UOp]], names: Sequence[str], specs: Sequence[Spec],
    absent: Collection[str] = (),
) -> tuple[Spec, ...]:  # fmt: skip
    """Put the Variables of `dynamic` in place of the sizes in `specs`.

    Arguments that are None, and those that are `absent` because they have a default, have no sizes.

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
        if name in absent or spec == Static(None):
            continue
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


class SizedReplays:
    """The replays of one plan, one for each combination of sizes that arguments had.

    Parameters
    ----------
    plan : ExecutionPlan
        Made with Variables for sizes; its buffers hold the largest.
    traced : Traced
        Where arguments go and what the results are.
    specs : sequence of Spec
        What the arguments are, with Variables in their shapes.
    structure : Structure or None
        How they are nested, if they are.
    way : Way
        What has to happen before a run.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        traced: Traced,
        specs: Sequence[Spec],
        structure: Structure | None,
        way: Way,
    ) -> None:
        self._plan = plan
        self._traced = traced
        self._specs = tuple(specs)
        self._structure = structure
        self._way = way
        self._made: dict[tuple[Spec, ...], Replay] = {}

    def replay(self, actual: tuple[Spec, ...]) -> Replay:
        """What runs the plan for arguments that are `actual`."""
        found = self._made.get(actual)
        if found is None:
            found = make_replay(
                self._plan,
                self._traced,
                actual,
                self.values(actual),
                structure=self._structure,
                way=self._way,
            )
            if len(self._made) >= MOST_SIZES:
                self._made.clear()
            self._made[actual] = found
        return found

    def values(self, actual: Sequence[Spec]) -> dict[str, int]:
        """The values that arguments which are `actual` give to the Variables."""
        values: dict[str, int] = {}
        for spec, given in zip(self._specs, actual, strict=True):
            if isinstance(spec, Array) and isinstance(given, Array):
                for dim, size in zip(spec.shape, given.shape, strict=True):
                    if isinstance(dim, UOp) and isinstance(size, int):
                        values[dim.arg[0]] = size
        return values
