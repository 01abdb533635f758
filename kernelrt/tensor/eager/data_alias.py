"""Tensors returned by ``x.data``: they alias the memory of x, their owner.

Writes to one tensor are visible in the other. A trace identifies state by its tensor, so in a
trace both reads and writes of ``x.data`` are redirected to the owner.
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
    """Return the owner if `tensor` is the ``data`` of a tensor, also indirectly; else `tensor`."""
    whose: TensorBase = getattr(tensor, "_whose", tensor)
    return whose


def data_of(tensor: TensorBase) -> TensorBase:
    """Return the ``data`` of `tensor`; compute it first, unless a function is being traced."""
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
    """Set ``tensor.data``; existing ``data`` tensors keep the old value and are separated.

    In a trace only ``data`` tensors that were taken in the trace are separated; others alias the
    memory of `tensor`.

    Raises
    ------
    GradientError
        `tensor` is a result of operations that gradients flow through.
    JitError
        `tensor` is itself the ``data`` of another tensor, taken outside the trace.
    DTypeError, ShapeError
        The value is not a tensor, or cannot be assigned.
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
            _separate(list(_handles_of(owner).values()), owner)
        else:
            _separate([tensor], owner)
            if hasattr(tensor, "_whose"):
                raise JitError(
                    "data: the tensor is the .data of another tensor, taken outside the traced "
                    "function, and the assignment would separate the two; assign outside the "
                    "function"
                )
        tensor._assign(new)


def _handles_of(owner: TensorBase) -> WeakValueDictionary[int, TensorBase]:
    """Return the live ``data`` tensors of `owner`, by identity."""
    found: WeakValueDictionary[int, TensorBase] | None = getattr(owner, "_handles", None)
    if found is None:
        found = owner._handles = WeakValueDictionary()
    return found


def _separate(handles: Iterable[TensorBase], owner: TensorBase) -> None:
    """Separate ``data`` tensors from `owner`, with their current value, where that is possible.

    They continue to alias each other.
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
    """Return the node of the ``data`` of `owner` in the active trace."""
    node = detach(owner.uop)
    leaf = tensor._leaf
    return node if leaf is None or not state.local.grad else mark(node, leaf)


def writable(tensor: TensorBase, owner: TensorBase) -> TensorBase:
    """Return the tensor that a write to `tensor`, the ``data`` of `owner`, goes to.

    Raises
    ------
    GradientError
        The owner is a result of operations that gradients flow through.
    ShapeError
        The owner has no memory to share, because its shape has Variables.
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
    """Raise GradientError if a new value of `tensor` would contradict its recorded history."""
    if tensor._lineage is True and tensor._leaf is None:
        raise GradientError(
            "data: the tensor was computed with gradients recorded, and a write to its data would "
            "make them wrong; write to a copy, as in y.detach().clone(), or make a new tensor, as "
            "in y = y * 3"
        )
