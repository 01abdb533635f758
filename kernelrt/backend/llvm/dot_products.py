"""Dot-product instructions over the parts of 32-bit words.

A DOT multiplies the parts of two words, and adds the products modulo 2**32. Its `Parts` say what
the parts of a word are. A DOT of floats multiplies the two bfloat16 halves of the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt.backend.llvm.llvm_types import Value, register_type, vector
from kernelrt.errors import CompileError
from kernelrt.ir.ops import Op, Parts
from kernelrt.ir.reducers import start

if TYPE_CHECKING:
    from kernelrt.backend.llvm.llvm_types import Text
    from kernelrt.device.spec import DeviceSpec
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["dot"]

#: Instruction of arm64 for bytes of the first and of the second operand that are signed or not.
_BY_SIGN: Final = {(True, True): "sdot", (False, False): "udot", (False, True): "usdot"}

#: Name of the instruction of x86-64 for halves, by the number of words in a register.
_PAIRS: Final = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}


def dot(
    b: Text, target: DeviceSpec, u: UOp, operands: list[Value], total: Value | None = None
) -> Value:
    """Emit the DOT `u` of `operands`, added to `total` if `target` adds products (0 by default).

    Raises
    ------
    CompileError
        The target has no instruction for the parts of `u`.
    """
    parts: Parts = u.arg
    if not target.has_dot(parts, u.dtype):
        raise CompileError(
            f"{target.cpu} has no dot-product instruction for {parts} with sums of {u.dtype.name}; "
            "DeviceSpec.dot returns the parts that it multiplies; this is a bug in kernelrt, "
            "please report it"
        )
    if parts.signed and not parts.other_signed:  # instructions have the unsigned bytes first
        operands, parts = operands[::-1], Parts(parts.number, False, True)
    values, lanes = b.align(operands)
    if target.adds_products(u.op, u.dtype):
        values.append(total or b.constant(start(Op.ADD, u.dtype), u.dtype, lanes))
    most = max(4, target.vector_bits // 32)
    runs = [range(i, min(i + most, lanes)) for i in range(0, lanes, most)]
    if len(runs) == 1:
        return _dot(b, target, u.dtype, parts, values)
    out = [
        _dot(b, target, u.dtype, parts, [b.shuffle(v, None, list(run)) for v in values])
        for run in runs
    ]
    return b.pack([b.lane(part, i) for part in out for i in range(part.lanes)])


def _dot(b: Text, target: DeviceSpec, dtype: DType, parts: Parts, values: list[Value]) -> Value:
    """Emit a DOT with at most as many lanes as a register has.

    `values` holds the words of both operands and, if there is one, the total.
    """
    lanes = values[0].lanes
    width = max(4, 1 << (lanes - 1).bit_length())
    words, halves = vector("i32", width), vector("i16", 2 * width)
    x, y, *totals = (_padded(b, v, width) for v in values)
    floats = vector("float", width)
    sums = [(floats if dtype.is_float else words, total) for total in totals]
    if dtype.is_float:
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * width}"
        text = b.call(name, floats, *sums, (words, x), (words, y))
    elif target.is_arm64:
        word = _BY_SIGN[parts.signed, parts.other_signed]
        bytes_ = vector("i8", 4 * width)
        left, right = (b.emit(f"bitcast {words} {v} to {bytes_}") for v in (x, y))
        name = f"llvm.aarch64.neon.{word}.v{width}i32.v{4 * width}i8"
        text = b.call(name, words, *sums, (bytes_, left), (bytes_, right))
    elif parts.number == 4:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * width}"
        text = b.call(name, words, *sums, (words, x), (words, y))
    else:
        left, right = (b.emit(f"bitcast {words} {v} to {halves}") for v in (x, y))
        text = b.call(f"llvm.x86.{_PAIRS[width]}", words, (halves, left), (halves, right))
        # LLVM makes one instruction of both if the processor adds products.
        for total in totals:
            text = b.emit(f"add {words} {total}, {text}")
    out = Value(text, width, dtype)
    return out if width == lanes else b.shuffle(out, None, list(range(lanes)))


def _padded(b: Text, value: Value, width: int) -> str:
    """Extend `value` to `width` lanes."""
    if value.lanes == width:
        return value.text
    if value.lanes == 1:
        scalar = register_type(value.dtype)
        wide = vector(scalar, width)
        return b.emit(f"insertelement {wide} zeroinitializer, {scalar} {value.text}, i64 0")
    return b.shuffle(value, None, [i if i < value.lanes else -1 for i in range(width)]).text
