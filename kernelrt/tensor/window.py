"""Parts of memory that are memory themselves, here or in PyTorch."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op
from kernelrt.tensor import build, state
from kernelrt.tensor.marks import Severed, is_kept, mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim, UOp

__all__ = ["VIEWING", "viewed", "viewed_by", "window"]

#: What PyTorch does without a copy, where it can; and memory itself.
VIEWING: Final = frozenset({Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.DETACH, Op.BUFFER})


def window(node: UOp, bounds: Sequence[tuple[Dim, Dim]]) -> UOp:
    """The part of `node` between `bounds`, half-open, of each axis.

    Where that is one run of a buffer's elements it is the buffer's view: a loop over the rows or
    batches of a tensor then makes graphs of one structure, and one plan serves all of them. What
    comes from a jitted function stays marked so. While a function is traced parts stay parts of the
    state that they are taken from.
    """
    part = build.shrink(node, bounds)
    if part is node or state.local.trace is not None:
        return part
    below, severed = node, None
    while below.op is Op.RESHAPE or (severed is None and below.op is Op.DETACH):
        if below.op is Op.DETACH:
            if not isinstance(below.arg, Severed):
                return part
            severed = below.arg
        below = below.src[0]
    if below.op is not Op.BUFFER or not isinstance(below.arg, Buffer) or not below.arg.allocated:
        return part
    run = _run(node.shape, bounds)
    buffer = below.arg
    if run is None or buffer.address % buffer.dtype.itemsize:
        return part
    start, size = run
    view = buffer.view(start * buffer.dtype.itemsize, size)
    found = build.reshape(build.memory(view), part.shape)
    return found if severed is None else mark(found, severed)


def _run(
    shape: Sequence[Dim], bounds: Sequence[tuple[Dim, Dim]]
) -> tuple[int, int] | None:
    """The first element and the number of a part whose elements follow one upon the other."""
    start, size, stride, whole = 0, 1, 1, True
    for d, (lo, hi) in zip(reversed(shape), reversed(bounds), strict=True):
        if not (isinstance(d, int) and isinstance(lo, int) and isinstance(hi, int)):
            return None
        count = hi - lo
        if count < 1 or (count > 1 and not whole):
            return None
        whole = whole and count == d
        start += lo * stride
        size *= count
        stride *= d
    return start, size


def viewed(node: UOp) -> list[UOp]:
    """The nodes whose elements PyTorch would let a tensor of this one share, the next first."""
    found: list[UOp] = []
    flat = -1  # how many there were when axes were joined or split
    while node.op in VIEWING and node.op is not Op.BUFFER:
        below = node.arg.storage if is_kept(node) else node.src[0]
        if node.op is Op.RESHAPE:
            if flat < 0 and _wide(node.shape) != _wide(below.shape):
                flat = len(found)
        elif flat >= 0 and (
            node.op is Op.PERMUTE
            or (node.op is Op.SHRINK and _run(below.shape, node.arg) is None)
        ):
            return found[:flat]  # which has to copy
        found.append(below)
        node = below
    return found


def viewed_by(node: UOp) -> weakref.ref[Buffer] | None:
    """The stored memory whose elements PyTorch would let a tensor of this node share."""
    base = next(iter(viewed(node)[-1:]), node)
    if base.op is not Op.BUFFER or not isinstance(base.arg, Buffer):
        return None
    if getattr(base.arg, "stands_in", False):
        return None
    return weakref.ref(base.arg.base or base.arg)


def _wide(shape: Sequence[Dim]) -> list[Dim]:
    return [d for d in shape if not (isinstance(d, int) and d == 1)]
