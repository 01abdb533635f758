"""Gradients with respect to given tensors, without touching their ``grad``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from kernelrt.errors import DTypeError, GradientError, ShapeError
from kernelrt.tensor import state
from kernelrt.tensor.autograd.gradient import end_of, flow, seed_of, uninterrupted, wanted_of
from kernelrt.tensor.autograd.hooking import HookResults, handed_on
from kernelrt.tensor.autograd.tags import detach
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import UOp
    from kernelrt.tensor.autograd.tags import Leaf

__all__ = ["grad", "listed"]

_T = TypeVar("_T", bound="TensorBase")


@overload
def grad(
    output: TensorBase | Sequence[TensorBase], inputs: _T,
    gradient: TensorBase | Sequence[TensorBase | None] | None = None, *,
    create_graph: bool = False, retain_graph: bool | None = None,
    allow_unused: bool | None = None, materialize_grads: bool | None = None,
    grad_outputs: TensorBase | Sequence[TensorBase | None] | None = None,
) -> _T: ...
@overload
def grad(
    output: TensorBase | Sequence[TensorBase], inputs: Sequence[_T],
    gradient: TensorBase | Sequence[TensorBase | None] | None = None, *,
    create_graph: bool = False, retain_graph: bool | None = None,
    allow_unused: bool | None = None, materialize_grads: bool | None = None,
    grad_outputs: TensorBase | Sequence[TensorBase | None] | None = None,
) -> tuple[_T, ...]: ...
def grad(
    output: TensorBase | Sequence[TensorBase],
    inputs: TensorBase | Sequence[TensorBase],
    gradient: TensorBase | Sequence[TensorBase | None] | None = None,
    *,
    create_graph: bool = False,
    retain_graph: bool | None = None,  # noqa: ARG001 - graphs are kept as long as they are held
    allow_unused: bool | None = None,
    materialize_grads: bool | None = None,
    grad_outputs: TensorBase | Sequence[TensorBase | None] | None = None,
) -> Any:
    """Return the gradients of `output` with respect to `inputs`, without changing their ``grad``.

    Parameters
    ----------
    output : Tensor or sequence of Tensor
        Tensors to differentiate, of one element unless `gradient` is given. Gradients of several
        outputs are added.
    inputs : Tensor or sequence of Tensor
        Tensors created with ``requires_grad=True``, or results of operations on them.
    gradient : Tensor or sequence of Tensor or None, optional
        Gradient of each output. Default: ones.
    create_graph : bool
        Whether the gradients can be differentiated again.
    retain_graph : bool, optional
        Ignored; accepted for compatibility with PyTorch. A graph lives as long as one of its
        tensors.
    allow_unused : bool, optional
        Whether the gradient of an input that `output` does not depend on is None. By default such
        an input raises an error, because it is most often a mistake.
    materialize_grads : bool, optional
        Whether the gradient of an input that `output` does not depend on is zeros.
    grad_outputs : Tensor or sequence of Tensor or None, optional
        Alias of `gradient`, PyTorch's name.

    Returns
    -------
    Tensor or tuple of Tensor
        One gradient for each input, of its shape and dtype; a tuple if `inputs` is a sequence.

    Raises
    ------
    GradientError
        An input does not require a gradient, for example a frozen parameter. Or an input is a
        view, such as a ``reshape``, which graphs do not keep as a node: use a ``clone()`` of it,
        or call its ``retain_grad()`` right after it is created. Or `output` does not depend on an
        input, and neither `allow_unused` nor `materialize_grads` is true.
    DTypeError
        One of `output` and `inputs` is not a Tensor.
    ShapeError
        `gradient` does not fit `output`, or `inputs` is empty.

    Notes
    -----
    A graph holds equal values once. Results that were computed from the same tensors by the same
    operations are one node and get the gradient of all of them.

    Examples
    --------
    >>> x = krt.tensor([1.0, 2.0], requires_grad=True)
    >>> y = x * x
    >>> z = (y * y).sum()
    >>> krt.grad(z, y).tolist(), krt.grad(z, x).tolist()
    ([2.0, 8.0], [4.0, 32.0])
    """
    if allow_unused is False and materialize_grads:
        raise GradientError(
            "allow_unused: expected True or no value with materialize_grads=True, not False; "
            "leave one of the two out"
        )
    outputs = listed(output, "output")
    wanted = listed(inputs, "inputs")
    ends = [end_of(t, i) for i, t in enumerate(wanted)]
    if grad_outputs is not None:
        if gradient is not None:
            raise GradientError(
                "grad_outputs: grad_outputs is an alias of gradient; pass only one of the two"
            )
        gradient = grad_outputs
    seeds = _seeds(outputs, gradient)
    asked = wanted_of(wanted, ends)
    answers = HookResults(create_graph)

    def differentiate() -> dict[Leaf | UOp, TensorBase]:
        found = flow(seeds, "grad", asked, answers)
        if not found and not allow_unused and not materialize_grads:
            raise GradientError(
                "grad: the tensor does not depend on any tensor that requires a gradient; set "
                "requires_grad=True on a tensor it is computed from, and do not detach() in between"
            )
        for i, end in enumerate(ends):
            if end not in found and not allow_unused and not materialize_grads:
                raise GradientError(
                    f"inputs[{i}]: the output does not depend on this tensor; leave the tensor "
                    "out, or pass materialize_grads=True to get zeros, or allow_unused=True to get "
                    "None"
                )
        return {
            end: t._of(node if create_graph else detach(node))
            for t, end in zip(wanted, ends, strict=True) if (node := found.get(end)) is not None
        }  # fmt: skip

    with state.enable_grad() if create_graph else contextlib.nullcontext():
        flown = uninterrupted(outputs[0], differentiate, grad)
        found = dict(handed_on(flown.items(), create_graph=create_graph))
        none = allow_unused and not materialize_grads
        out = [
            (None if g is None else g) if (g := found.get(end)) is not None or none
            else t._of(detach(build.full(0, t.dtype, t.dims)))
            for t, end in zip(wanted, ends, strict=True)
        ]  # fmt: skip
    return tuple(out) if isinstance(inputs, tuple | list) else out[0]


def listed(given: object, name: str) -> list[TensorBase]:
    """Return one or several tensors as a checked list."""
    several = isinstance(given, tuple | list)
    listed: list[Any] = list(cast("Sequence[Any]", given)) if several else [given]
    for i, t in enumerate(listed):
        if not isinstance(t, TensorBase):
            place = f"{name}[{i}]" if several or name == "inputs" else name
            raise DTypeError(f"{place}: expected a Tensor, not {type(t).__name__}")
    if not listed:
        raise ShapeError(f"{name}: expected at least one Tensor, not an empty sequence")
    return listed


def _seeds(
    outputs: Sequence[TensorBase], gradient: TensorBase | Sequence[TensorBase | None] | None
) -> list[tuple[TensorBase, UOp]]:
    """Return each output with the gradient to start from."""
    given: Sequence[Any]
    given = gradient if isinstance(gradient, tuple | list) else [gradient] * len(outputs)
    if len(given) != len(outputs) or (
        gradient is not None and given is not gradient and len(outputs) > 1
    ):
        raise ShapeError(
            f"gradient: expected one tensor for each of the {len(outputs)} outputs, not "
            f"{len(given) if given is gradient else 1}"
        )
    return [(t, seed_of(t, g, "grad")) for t, g in zip(outputs, given, strict=True)]
