"""Tensors that are the ``data`` of another one: reads and writes go to the owner's memory.

Such a tensor lies over the memory of its owner, so each finds what was written to the other. A
trace knows state by the tensor it belongs to: there both reads and writes go to the owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from kernelrt.device.buffer import Buffer
from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.tensor import state, views
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.autograd.tags import detach, mark
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.ir import UOp
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    realize = Module("kernelrt.tensor.eager.realize")

__all__ = ["check_no_history", "data_of", "owner_of", "read", "set_data", "writable"]


def owner_of(tensor: TensorBase) -> TensorBase:
    """The tensor whose ``data`` `tensor` is, directly or not; itself if it is none."""
    whose: TensorBase = getattr(tensor, "_whose", tensor)
    return whose


def data_of(tensor: TensorBase) -> TensorBase:
    """The ``data`` of `tensor`, which is computed for that unless a function is traced."""
    if tensor._link is not None:
        return tensor.detach()  # type: ignore[attr-defined, no-any-return]
    if state.local.trace is not None or not is_static(tensor.dims):
        made = tensor._of(detach(tensor.uop))
    else:
        tensor._enter()
        if not tensor.is_realized:
            realize.materialize([tensor])
        gradient_state.move_out(tensor)
        buffer, shape = tensor._buffer, tensor._shape
        assert buffer is not None
        assert shape is not None
        made = tensor._over(buffer, shape)
    made._whose = owner = owner_of(tensor)
    _handles_of(owner)[id(made)] = made
    return made


def set_data(tensor: TensorBase, value: TensorBase) -> None:
    """Give `tensor` a new value, which is not that of the ``data`` taken of it before.

    In a trace only the ``data`` that were taken there stay what they are: others lie in memory.

    Raises
    ------
    GradientError
        It is a result of operations that gradients flow through.
    JitError
        It is itself the ``data`` of a tensor, and from outside of the trace.
    DTypeError, ShapeError
        The value is no tensor, or none that can be assigned.
    """
    if not isinstance(value, ArrayHandle):
        raise DTypeError(
            f"data: expected a Tensor, not {type(value).__name__}; write x.assign(value)"
        )
    check_no_history(tensor)
    views.unlink(tensor)
    owner = owner_of(tensor)
    if owner_of(value) is owner:
        return  # the same memory
    with state.no_grad():
        new = value.detach()._fitted(tensor)  # type: ignore[attr-defined]
        if owner is tensor:
            _part(list(_handles_of(owner).values()), owner)
        else:
            _part([tensor], owner)
            if hasattr(tensor, "_whose"):
                raise JitError(
                    "data: the tensor is the .data of another tensor, taken outside the traced "
                    "function, and the assignment would separate the two; assign outside the "
                    "function"
                )
        tensor._assign(new)


def _handles_of(owner: TensorBase) -> WeakValueDictionary[int, TensorBase]:
    """The living ``data`` of `owner`, by identity."""
    found: WeakValueDictionary[int, TensorBase] | None = getattr(owner, "_handles", None)
    if found is None:
        found = owner._handles = WeakValueDictionary()
    return found


def _part(handles: Iterable[TensorBase], owner: TensorBase) -> None:
    """Let those of `handles` that can go on with the value that they have, apart from `owner`.

    They stay the same tensor among themselves.
    """
    trace = state.local.trace
    parted = [h for h in handles if h._born is trace]
    if not parted:
        return
    head = parted[0]
    if trace is not None:
        head._uop = head.uop
    elif head.is_realized:
        head._realized()  # type: ignore[attr-defined]
        before = head._buffer
        assert before is not None
        copy = Buffer(before.size, before.dtype)
        copy.content()[...] = before.content()
        for handle in parted:
            handle._move(copy)
    for handle in parted:
        _handles_of(owner).pop(id(handle), None)
        if handle is head:
            del handle._whose
        else:
            handle._whose = head
            _handles_of(head)[id(handle)] = handle


def read(tensor: TensorBase, owner: TensorBase) -> UOp:
    """What the ``data`` of `owner` is in the trace that is active."""
    node = detach(owner.uop)
    leaf = tensor._leaf
    return node if leaf is None or not state.local.grad else mark(node, leaf)


def writable(tensor: TensorBase, owner: TensorBase) -> TensorBase:
    """What has to be written for a write to `tensor`, the ``data`` of `owner`.

    Raises
    ------
    GradientError
        The owner is a result of operations that gradients flow through.
    ShapeError
        The owner has no memory that could be shared, as its shape has Variables.
    """
    check_no_history(owner)
    if state.local.trace is not None:
        return owner
    if tensor._memory is None:
        raise ShapeError(
            f"data: a tensor of shape {format_shape(owner.dims)} has no memory before its "
            "Variables have values, so a write to its data would be lost; write to the tensor "
            "itself, in 'with kernelrt.no_grad():'"
        )
    return tensor


def check_no_history(tensor: TensorBase) -> None:
    """Raise GradientError where another value would stand above the history of `tensor`."""
    if tensor._lineage is True and tensor._leaf is None:
        raise GradientError(
            "data: the tensor is the result of operations that gradients flow through, and its "
            "recorded history would not include a write to its data; write to a copy, as in "
            "y.detach().clone(), or make a new tensor, as in y = y * 3"
        )
