"""Computes vectors of 64-bit integers from their 32-bit halves.

An argmax orders elements by a value and its position. Both are the halves of one 64-bit key. The
direct way to compute keys is to widen both halves, to shift one, and to OR them. If two vectors of
32-bit lanes are interleaved, this gives the same keys, and an argmax takes two thirds of the time
(`python -m bench.report rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.backend.llvm.llvm_types import Value, vector
from kernelrt.ir.ops import Op
from kernelrt.loops.passes.prefetch_streams import is_plain
from kernelrt.loops.tiles import lanes_of, vector_range

if TYPE_CHECKING:
    from kernelrt.backend.llvm.emitter import Emitter
    from kernelrt.backend.llvm.llvm_types import Text
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Point

__all__ = ["halves", "interleave", "lower_half"]

_BITS: Final = 32


def halves(u: UOp) -> tuple[UOp, UOp] | None:
    """If `u` is a key of two halves, return the lower (as int64) and the upper one (32 bits)."""
    if u.op is not Op.OR or u.dtype is not dt.int64:
        return None
    for upper, lower in (u.src, u.src[::-1]):
        if upper.op is not Op.SHL or upper.src[0].op is not Op.CAST:
            continue
        by, high = upper.src[1], upper.src[0].src[0]
        whole = high.dtype in (dt.int32, dt.uint32) and by.op is Op.CONST and by.arg == _BITS
        if whole and lower.vmin >= 0 and lower.vmax < 1 << _BITS:
            return lower, high
    return None


def lower_half(emitter: Emitter, u: UOp, point: Point) -> Value:
    """Return the lower half of the int64 `u` at `point`."""
    text, memory = emitter.text, emitter.memory
    along, lanes = vector_range(point), lanes_of(point)
    step = None if along is None else memory.stride(u, along)
    if not step or not is_plain(u):
        whole = emitter.value(u, point)
        types = vector("i64", whole.lanes), vector("i32", whole.lanes)
        return Value(
            text.emit(f"trunc {types[0]} {whole.text} to {types[1]}"), whole.lanes, dt.int32
        )
    # The contribution of the loops is one number for all lanes and all vectors of the tile.
    total, constant = memory.index(u, point)
    numbers = (dt.wrapped(constant + step * lane, dt.int32) for lane in range(lanes))
    apart = f"<{', '.join(f'i32 {number}' for number in numbers)}>"
    if total is None:
        return Value(apart, lanes, dt.int32)
    base = Value(text.emit(f"trunc i64 {total.text} to i32"), 1, dt.int32)
    every = text.splat(base, lanes)
    return Value(
        text.emit(f"add {vector('i32', lanes)} {every.text}, {apart}"), lanes, dt.int32
    )


def interleave(text: Text, low: Value, high: Value) -> Value:
    """Return the vector of int64 with the given halves."""
    lanes = max(low.lanes, high.lanes)
    low, high = text.splat(low, lanes), text.splat(high, lanes)
    half, both = vector("i32", lanes), vector("i32", 2 * lanes)
    order = ", ".join(f"i32 {i}, i32 {lanes + i}" for i in range(lanes))
    joined = text.emit(
        f"shufflevector {half} {low.text}, {half} {high.text}, <{2 * lanes} x i32> <{order}>"
    )
    return Value(text.emit(f"bitcast {both} {joined} to {vector('i64', lanes)}"), lanes, dt.int64)
