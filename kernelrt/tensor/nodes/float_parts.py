"""Bit-level functions of numbers (signs, exponents, next floats), and common divisors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import format_size
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir import Dim

__all__ = ["bits_as", "common_divisor", "common_multiple", "copysign", "frexp", "neighbour",
           "signbit"]  # fmt: skip

_UNSIGNED: Final = {8: dt.uint8, 16: dt.uint16, 32: dt.uint32, 64: dt.uint64}
_WHOLE: Final = {16: dt.int16, 32: dt.int32, 64: dt.int64}
#: Bits of the fraction, and bias of the exponent.
_FRACTION: Final = {32: 23, 64: 52}
_BIAS: Final = {32: 127, 64: 1023}


def _bits(x: UOp) -> UOp:
    """Return the bits of floats as signed integers of the same width."""
    return UOp(Op.BITCAST, _WHOLE[x.dtype.bits], (x,))


def _number(value: float, x: UOp) -> UOp:
    return build.full(value, x.dtype, x.shape)


def copysign(a: UOp, b: UOp) -> UOp:
    """Return the magnitude of `a` with the sign of `b`, for float32 or float64."""
    size, sign = _bits(a), _bits(b)
    size = size.alu(Op.AND, _number(size.dtype.max, size))
    sign = sign.alu(Op.AND, _number(sign.dtype.min, sign))
    value = UOp(Op.BITCAST, a.dtype, (size.alu(Op.OR, sign),))
    return custom(value, _copysign_rule, a, b)


def _copysign_rule(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.arg.inputs
    if i:
        return build.zeros_like(b)
    nothing = a.eq(build.zeros_like(a))
    share = node.alu(Op.DIV, build.where(nothing, 1, a))
    return build.mul(g, custom(build.where(nothing, 0, share), _flat, a))


def _flat(node: UOp, _g: UOp, i: int) -> UOp:
    return build.zeros_like(node.arg.inputs[i])


def signbit(x: UOp) -> UOp:
    """Return whether the sign bit is set, also for -0.0 and NaN."""
    if x.dtype.is_float:
        x = _bits(x)
    if not x.dtype.is_signed:
        return build.full(False, dt.bool_, x.shape)
    return x.alu(Op.LT, build.zeros_like(x))


def frexp(x: UOp) -> tuple[UOp, UOp]:
    """Return a fraction with magnitude in [1/2, 1), and the int32 exponent of 2, of `x`.

    For zeros, infinities and NaN the fraction is the number itself and the exponent is 0.
    """
    bits, width = x.dtype.bits, _FRACTION[x.dtype.bits]
    size = x.alu(Op.ABS)
    least = _number(2.0 ** (1 - _BIAS[bits]), x)
    subnormal = size.alu(Op.LT, least)
    whole = _bits(build.where(subnormal, build.mul(x, 2.0 ** (width + 1)), x))
    top = (1 << (bits - 1 - width)) - 1
    exponent = whole.alu(Op.SHR, _number(width, whole)).alu(Op.AND, _number(top, whole))
    exponent = build.sub(exponent, _BIAS[bits] - 1)
    exponent = build.where(subnormal, build.sub(exponent, width + 1), exponent).cast(dt.int32)
    rest = whole.alu(Op.AND, _number(~(top << width), whole))
    half = rest.alu(Op.OR, _number((_BIAS[bits] - 1) << width, whole))
    fraction = UOp(Op.BITCAST, x.dtype, (half,))
    usual = build.zeros_like(x).alu(Op.LT, size).alu(Op.AND, size.alu(Op.LT, _number(math.inf, x)))
    exponent = build.where(usual, exponent, 0)
    fraction = custom(build.where(usual, fraction, x), _frexp_rule, x, parts=(exponent,))
    return fraction, exponent


def _frexp_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (exponent,) = node.arg.parts
    return build.div(g, exponent.cast(g.dtype).alu(Op.EXP2))


def neighbour(a: UOp, b: UOp) -> UOp:
    """Return the next number after `a` in the direction of `b`, for any floating dtype."""
    whole = _bits(a)
    zero, one = build.zeros_like(a), _number(1, whole)
    away = a.alu(Op.LT, b).eq(zero.alu(Op.LT, a))
    moved = build.where(away, whole.alu(Op.ADD, one), whole.alu(Op.SUB, one))
    least = build.where(b.alu(Op.LT, zero), whole.dtype.min + 1, one)
    moved = build.where(a.eq(zero), least, moved)
    value = build.where(a.eq(b), b, UOp(Op.BITCAST, a.dtype, (moved,)))
    unknown = a.ne(a).alu(Op.OR, b.ne(b))
    return custom(build.where(unknown, math.nan, value), _neighbour_rule, a, b)


def _neighbour_rule(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.arg.inputs
    return _flat(node, g, i) if i else build.where(a.eq(b), 0, g)


def bits_as(x: UOp, dtype: DType) -> UOp:
    """Return the bits of `x` as `dtype`; for another width, the size of the last axis changes."""
    if dtype.bits == x.dtype.bits:
        return UOp(Op.BITCAST, dtype, (x,))
    name = f"dtype: {x.dtype.name} read as {dtype.name}"
    if not x.shape:
        raise ShapeError(
            f"{name}: dtypes of different sizes need a tensor with at least one axis, not a "
            "scalar; use x.reshape(1)"
        )
    *lead, size = x.shape
    ours, theirs = _UNSIGNED[x.dtype.bits], _UNSIGNED[dtype.bits]
    whole = UOp(Op.BITCAST, ours, (x,)) if x.dtype is not ours else x
    if dtype.bits < x.dtype.bits:
        shape = (*x.shape, x.dtype.bits // dtype.bits)
        wide = build.expand(build.reshape(whole, (*x.shape, 1)), shape)
        parts = wide.alu(Op.SHR, _offsets(shape, dtype.bits, ours)).cast(theirs)
        line = build.reshape(parts, (*lead, build.volume(shape[-2:])))
    else:
        count = dtype.bits // x.dtype.bits
        if not isinstance(size, int) or size % count:
            raise ShapeError(
                f"{name}: expected a multiple of {count} elements along the last axis, not "
                f"{format_size(size)}"
            )
        shape = (*lead, size // count, count)
        parts = build.reshape(whole, shape).cast(theirs)
        line = build.reduce(
            parts.alu(Op.SHL, _offsets(shape, x.dtype.bits, theirs)), Op.ADD, (len(lead) + 1,)
        )
    return line if dtype is theirs else UOp(Op.BITCAST, dtype, (line,))


def _offsets(shape: tuple[Dim, ...], bits: int, dtype: DType) -> UOp:
    """Return the bit offset of each element along the last axis within the wide element."""
    return build.mul(build.iota_along(shape, len(shape) - 1), bits).cast(dtype)


def common_divisor(a: UOp, b: UOp) -> UOp:
    """Return the greatest common divisor of integers; ``gcd(0, 0)`` is 0.

    Euclid's algorithm with least absolute remainders, each at most half of the divisor. It always
    runs the maximum number of steps for the dtype; steps after a remainder of 0 change nothing
    (Knuth, The Art of Computer Programming 2, section 4.5.3).
    """
    unsigned = _UNSIGNED[a.dtype.bits]
    x, y = (u.alu(Op.ABS).cast(unsigned) if u.dtype.is_signed else u for u in (a, b))
    zero = build.zeros_like(x)
    for _ in range(math.ceil(a.dtype.bits / math.log2(1 + math.sqrt(2))) + 1):
        rest = x.alu(Op.MOD, y)  # 0 where y is 0
        rest = rest.alu(Op.MIN, y.alu(Op.SUB, rest))
        x = build.where(y.eq(zero), x, y)
        y = build.where(y.eq(zero), 0, rest)
    return x.cast(a.dtype)


def common_multiple(a: UOp, b: UOp) -> UOp:
    """Return the least common multiple of integers, wrapped to their dtype; 0 if one is 0."""
    value = a.alu(Op.IDIV, common_divisor(a, b)).alu(Op.MUL, b)
    return value.alu(Op.ABS) if a.dtype.is_signed else value
