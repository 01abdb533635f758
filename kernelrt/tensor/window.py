"""Parts of memory that are memory themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op
from kernelrt.tensor import build, state
from kernelrt.tensor.marks import Severed, mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim, UOp

__all__ = ["window"]


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
