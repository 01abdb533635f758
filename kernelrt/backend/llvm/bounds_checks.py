"""Bounds checks of indices at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.backend.llvm.instructions import alu
from kernelrt.backend.llvm.llvm_types import Value
from kernelrt.ir.ops import Op
from kernelrt.ir.status import LARGEST, LEAST, MOST_CHECKS, NUMBER_BITS

if TYPE_CHECKING:
    from kernelrt.backend.llvm.emitter import Emitter
    from kernelrt.backend.llvm.llvm_types import Text
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Point

__all__ = ["bound"]


def bound(
    emitter: Emitter, u: UOp, index: Value, value: Value, point: Point) -> Value:
    """Emit a bounds check. Return `value` where `index` is in range, and 0 elsewhere.

    If an index is out of range, a code is stored in the status word.
    """
    text = emitter.text
    size = alu(text, Op.CAST, index.dtype, [emitter.value(u.src[1], point)])
    index, size = text.align([index, size])[0]
    inside = Value(
        text.emit(f"icmp ult {text.type_of(index)} {index.text}, {size.text}"),
        index.lanes,
        dt.bool_,
    )
    outside = alu(text, Op.NOT, dt.bool_, [inside])
    # Scalar code clamps lanes past the end to the last row, but their vector sums are 0.
    mask = emitter.mask_of(point) if outside.lanes > 1 else emitter.exists(point)
    if mask is not None:
        outside = alu(text, Op.AND, dt.bool_, [outside, mask])
    failed = outside
    if outside.lanes > 1:
        any_lane = text.call(
            f"llvm.vector.reduce.or.v{outside.lanes}i1",
            "i1",
            (f"<{outside.lanes} x i1>", outside.text),
        )
        failed = Value(any_lane, 1, dt.bool_)
    emitter.frames.branch_if(failed, lambda: _report(emitter, u, index, outside))
    zero = text.constant(0, value.dtype, value.lanes)
    return alu(text, Op.WHERE, value.dtype, text.align([inside, value, zero])[0])


def _report(emitter: Emitter, u: UOp, index: Value, outside: Value) -> None:
    """Store a code to the status word: the number of the failed check, and the wrong index."""
    text = emitter.text
    status = emitter.memory.pointer(u.src[2]).text
    number = index
    if index.lanes > 1:
        lane = _first(text, outside)
        at = text.emit(f"extractelement {text.type_of(index)} {index.text}, i64 {lane}")
        number = Value(at, 1, index.dtype)
    least, largest = (text.constant(v, dt.int64) for v in (LEAST, LARGEST))
    number = alu(text, Op.MAX, dt.int64, [number, least])
    number = alu(text, Op.MIN, dt.int64, [number, largest])
    shifted = text.emit(f"shl i64 {number.text}, {NUMBER_BITS}")
    code = text.emit(f"or i64 {shifted}, {min(u.arg[0] + 1, MOST_CHECKS)}")
    # The store is atomic, since chunks may run at the same time. Any of their reports may win.
    text.lines.append(f"  store atomic i64 {code}, ptr {status} monotonic, align 8")


def _first(text: Text, mask: Value) -> str:
    """Return the number of the first lane of `mask` that is true."""
    lanes = mask.lanes
    bits = text.emit(f"bitcast <{lanes} x i1> {mask.text} to i{lanes}")
    count = text.call(
        f"llvm.cttz.i{lanes}", f"i{lanes}", (f"i{lanes}", bits), ("i1", "true")
    )
    return text.emit(f"zext i{lanes} {count} to i64") if lanes < 64 else count
