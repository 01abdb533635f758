"""The power function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.constants import short_power
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import const
from kernelrt.loops.math.exp import exp_of_sum
from kernelrt.loops.math.log import split
from kernelrt.loops.math.primitives import (
    FORMATS,
    at_least,
    at_most,
    bits_of,
    exact_product,
    exact_sum,
    floats,
    fma,
    from_bits,
    negated,
    ordered_sum,
    polynomial,
    product,
    rarely,
    residue,
    sign_bit,
)

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["log_sum", "power"]

# float32. log2((1 + s) / (1 - s)) = s (c + q(s**2)), where c is an unevaluated sum of two and q is
# a polynomial without constant term: minimax of the relative error for abs(s) <= 0.0865, 2**-37.4.
# And 2**r for abs(r) <= 1/2, 2**-28.3.
_LOG2: Final = floats("0x1.715476p+1 0x1.4ae0c0p-25")
_LOG2_TAIL: Final = floats("0x1.ec709ep-1 0x1.277508p-1 0x1.aa357ep-2")
_EXP2: Final = floats(
    "0x1p+0 0x1.62e430p-1 0x1.ebfbdcp-3 0x1.c6af78p-5 0x1.3b2db8p-7 0x1.5f0a3ap-10 0x1.419388p-13"
)
#: sqrt(2) rounded, and its logarithm to base 2 less 1/2.
_ROOT: Final = floats("0x1.6a09e6p+0 -0x1.a82ebcp-26")
#: 2**(1/4), and the bits of its inverse.
_FOURTH_ROOT: Final = float.fromhex("0x1.306fe0p+0")
_LEAST: Final = 0x3F5744FD
# atanh(s) = s + s**3 (1/3 + z Q(z)) with z = s**2, abs(s) <= 3 - 2 sqrt(2): relative error
# 2**-73.4.
_ATANH: Final = floats(
    "0x1.9999999999996p-3 0x1.2492492492f51p-3 0x1.c71c71c595e9bp-4 0x1.745d182a049dfp-4"
    " 0x1.3b136482b4366p-4 0x1.11207d102561dp-4 0x1.de3ac79a74a87p-5 0x1.eadf3ec7e3bd2p-5"
)
_THIRD: Final = floats("0x1.5555555555555p-2 0x1.5555555555555p-56")
# ln 2; multiples of the first part by an exponent are exact.
_LN2: Final = floats("0x1.62e42fefa38p-1 0x1.ef35793c7673p-45")


def power(x: UOp, y: UOp) -> UOp:
    """Return `x` to the power `y`, both float32 or float64 nodes.

    The result is 2**(y log2(abs(x))). The logarithm has more bits than the format, because y
    multiplies its error. Special cases are those of C and NumPy: x**0 and 1**y are 1, also for NaN.
    A negative base needs an integer exponent; the result is negative if the exponent is odd.
    """
    exponent = _constant(y)
    short = None if exponent is None else _short(x, exponent)
    if short is not None:
        return short
    magnitude = _magnitude_float32 if x.dtype is dt.float32 else _magnitude_float64
    out = magnitude(x.alu(Op.ABS), y)
    below = (x < 0.0) & x.ne(-math.inf)
    nan = const(math.nan, x.dtype)
    if _is_fraction(y):
        return below.where(nan, out)
    whole = y.alu(Op.ROUND).eq(y)
    half = y * 0.5
    odd = whole & half.alu(Op.ROUND).ne(half)
    sign = odd.where(sign_bit(x), const(0, FORMATS[x.dtype].unsigned))
    out = from_bits(bits_of(out) ^ sign, x.dtype)
    out = (below & ~whole).where(nan, out)
    return (x.eq(1.0) | y.eq(0.0)).where(const(1.0, x.dtype), out)


def _is_fraction(y: UOp) -> bool:
    """Return whether `y` is a constant that is not an integer."""
    return y.op is Op.CONST and math.isfinite(y.arg) and not float(y.arg).is_integer()


def _constant(y: UOp) -> float | None:
    """Return the value of `y` if it is a constant, or casts of one; else None."""
    while y.op is Op.CAST and y.src[0].dtype.is_float:
        y = y.src[0]
    return float(y.arg) if y.op is Op.CONST else None


def _short(x: UOp, exponent: float) -> UOp | None:
    """Return the power if a few products, a quotient or a root compute it, else None."""
    if exponent == 0.5:
        # pow gives +0 for -0 and +inf for -inf, where a root gives -0 and NaN.
        root = x.alu(Op.SQRT) + 0.0
        return x.eq(-math.inf).where(const(math.inf, x.dtype), root)
    return short_power(x, exponent, x.const_like(1.0))


def _magnitude_float32(a: UOp, y: UOp) -> UOp:
    """Return ``a ** y`` for ``a >= 0``."""
    form = FORMATS[dt.float32]
    least, top = (1 << form.fraction), ((2 * form.bias + 1) << form.fraction)
    special = bits_of(a) - least >= top - least
    return rarely(special, _of_normal(a, y), _of_special, a, y)


def _of_special(a: UOp, y: UOp) -> UOp:
    """Return ``a ** y`` for ``a >= 0``, where `a` may be 0, subnormal, infinite or NaN."""
    form = FORMATS[dt.float32]
    subnormal = a < form.least_normal
    small = _of_normal(a * 2.0**form.fraction, y, -float(form.fraction))
    out = subnormal.where(small, _of_normal(a, y))
    # 0 and infinity give 0 or infinity, depending on the sign of y.
    edge = y * a.eq(0.0).where(const(-math.inf, dt.float32), a)
    away = (edge < 0.0).where(const(0.0, dt.float32), edge)
    return (a.eq(0.0) | ~(a < math.inf)).where(away, out)


def _of_normal(a: UOp, y: UOp, lower: float = 0.0) -> UOp:
    """Return ``(2**lower a) ** y`` for `a` positive and normal."""
    high, low = _log2_sum(a, lower)
    y = _finite(y, 32)
    exponent, error = exact_product(y, high)
    error = at_least(at_most(fma(y, low, error), 1.0), -1.0)
    # From 2**129 on float32 is infinite, below 2**-151 it is 0.
    exponent = at_least(at_most(exponent, 129.0), -151.0)
    form = FORMATS[dt.float32]
    # Twice the bias, for the exponents of two scales: together they reach every exponent.
    rounder = form.rounder + 2 * form.bias
    shifted = (exponent + error) + rounder
    r = (exponent - (shifted - rounder)) + error
    whole = bits_of(shifted)
    half = whole >> 1
    out = polynomial(r, _EXP2)
    for n in (half, whole - half):
        out = out * from_bits(n << form.fraction, dt.float32)
    return out


def _log2_sum(a: UOp, lower: float) -> tuple[UOp, UOp]:
    """Return log2(a) + `lower` of a positive normal float32 as a sum of two, to about 2**-31 of it.

    a = 2**e d m, with d either 1 or sqrt(2), and m between 2**(-1/4) and 2**(1/4). Then
    s = (m - 1) / (m + 1) is so small that single precision is enough for all but the linear term.
    """
    form = FORMATS[dt.float32]
    width, bias = form.fraction, form.bias
    moved = bits_of(a) + ((bias << width) - _LEAST)
    lifted = from_bits((moved >> width) | ((bias + width) << width), dt.float32)
    x = from_bits((moved & ((1 << width) - 1)) + _LEAST, dt.float32)
    upper = x >= _FOURTH_ROOT
    zero, one = x.const_like(0.0), x.const_like(1.0)
    d = upper.where(x.const_like(_ROOT[0]), one)
    e = (lifted - (2.0**width + bias - lower)) + upper.where(x.const_like(0.5), zero)
    # s = (x - d) / (x + d): the difference is exact, the sum is not.
    difference = x - d
    total, total_low = ordered_sum(d, x)
    inverse = one / total
    s = product(difference, inverse)
    rest = fma(negated(s), total_low, residue(difference, s, total))
    z = s * s
    main, main_low = exact_product(s, _LOG2[0])
    factor = fma(z, polynomial(z, _LOG2_TAIL), _LOG2[1])
    # The rounding error of s also affects its cube.
    s_low = rest * inverse
    s_low = fma(s_low, z, s_low)
    low = fma(s_low, _LOG2[0], fma(s, factor, main_low))
    high, high_low = ordered_sum(e, main)
    return high, (high_low + upper.where(x.const_like(_ROOT[1]), zero)) + low


def _finite(y: UOp, exponent: int) -> UOp:
    """Return `y` clamped to +-2**exponent, to avoid 0 * inf. Results stay 0 or infinite there."""
    return at_least(at_most(y, 2.0**exponent), -(2.0**exponent))


def _magnitude_float64(a: UOp, y: UOp) -> UOp:
    """Return ``a ** y`` for ``a >= 0``."""
    high, low = log_sum(a)
    y = _finite(y, 80)
    scaled, error = exact_product(y, high)
    error = fma(y, low, error)
    edge = a.eq(0.0).where(const(-math.inf, dt.float64), a)
    scaled = (a.eq(0.0) | ~(a < math.inf)).where(y * edge, scaled)
    return exp_of_sum(scaled, at_least(at_most(error, 1.0), -1.0))


def log_sum(a: UOp) -> tuple[UOp, UOp]:
    """Return the natural logarithm of a positive finite number as a sum of two (about 65 bits)."""
    f, e = split(a)
    # s = f / (2 + f)
    whole, whole_low = ordered_sum(a.const_like(2.0), f)
    inverse = a.const_like(1.0) / whole
    s = product(f, inverse)
    rest = fma(negated(s), whole_low, residue(f, s, whole))
    s_low = rest * inverse
    # s**3 (1/3 + z Q(z))
    z, z_low = exact_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    cube, cube_low = exact_product(s, z)
    cube_low = fma(s, z_low, fma(s_low, z, cube_low))
    factor, factor_low = ordered_sum(
        a.const_like(_THIRD[0]), fma(z, polynomial(z, _ATANH), _THIRD[1])
    )
    tail, tail_low = exact_product(cube, factor)
    tail_low = fma(cube, factor_low, fma(cube_low, factor, tail_low))
    total, total_low = ordered_sum(s, tail)
    total_low = total_low + (tail_low + s_low)
    # e ln 2 + 2 atanh(s)
    high, high_low = exact_sum(e * _LN2[0], total + total)
    return ordered_sum(high, fma(e, _LN2[1], fma(total_low, 2.0, high_low)))
