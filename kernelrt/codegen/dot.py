"""Dot products of the parts of 32-bit words: which a target has, and how one is written.

A DOT of 2 multiplies the signed 16-bit halves of two words, one of 4 the bytes of two words, those
of the first unsigned and those of the second signed; the products are added, all modulo 2**32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.codegen.alu import alu
from kernelrt.codegen.llvm import Value, vector
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.codegen.llvm import Text
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp

__all__ = ["dot", "has_dot"]

_PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def has_dot(target: DeviceSpec, parts: int) -> bool:
    """Whether `target` has an instruction for the products of so many parts of each word."""
    if not target.triple.startswith("x86_64"):
        return False
    if parts == 2:
        return True
    wide = target.has("avx512vnni") and target.has("avx512vl")
    return wide or (target.has("avxvnni") and target.vector_bits <= 256)


def dot(
    b: Text, target: DeviceSpec, u: UOp, operands: list[Value], total: Value | None = None
) -> Value:
    """Write the DOT `u` of `operands`, added to `total` where one is given."""
    (x, y), lanes = b.align(operands)
    if total is None:
        total = b.constant(0, dt.int32, lanes)
    width = max(4, 1 << (lanes - 1).bit_length())
    x, y, sums = (_padded(b, v, width) for v in (x, y, total))
    if u.arg == 4:
        words = vector("i32", width)
        name = f"llvm.x86.avx512.vpdpbusd.{32 * width}"
        text = b.call(name, words, *((words, v.text) for v in (sums, x, y)))
        return _first(b, Value(text, width, dt.int32), lanes)
    # LLVM joins the two where the processor does both at once.
    halves, words = vector("i16", 2 * width), vector("i32", width)
    left, right = (b.emit(f"bitcast {words} {v.text} to {halves}") for v in (x, y))
    text = b.call(f"llvm.x86.{_PAIRS[width]}", words, (halves, left), (halves, right))
    product = _first(b, Value(text, width, dt.int32), lanes)
    return alu(b, Op.ADD, dt.int32, [product, total])


def _padded(b: Text, value: Value, width: int) -> Value:
    """`value` with lanes after its own, to the width of a register."""
    if value.lanes == width:
        return value
    if value.lanes == 1:
        wide = vector("i32", width)
        text = b.emit(f"insertelement {wide} zeroinitializer, i32 {value.text}, i64 0")
        return Value(text, width, value.dtype)
    return b.shuffle(value, None, [i if i < value.lanes else -1 for i in range(width)])


def _first(b: Text, value: Value, lanes: int) -> Value:
    return value if value.lanes == lanes else b.shuffle(value, None, list(range(lanes)))
