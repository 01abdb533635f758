"""Powers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.codegen.math_exp import exp_of_sum
from kernelrt.codegen.math_log import split
from kernelrt.codegen.math_parts import (
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
    power_of_two,
    product,
    sign_bit,
)
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import const

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["log_sum", "power"]

# log2(1 + f) / f for 1 + f in [sqrt(1/2), sqrt(2)], and 2**r for abs(r) <= 1/2, in float64 for
# float32 arguments: minimax of the relative error, 2**-33.2 and 2**-28.9.
_LOG2: Final = floats(
    "0x1.71547652efb67p+0 -0x1.7154767bb8f01p-1 0x1.ec709c0060a1fp-2 -0x1.715435dd7edcdp-2"
    " 0x1.277732e95b002p-2 -0x1.ec8d78c95501ep-3 0x1.a615ca7b05423p-3 -0x1.6eafd83440dafp-3"
    " 0x1.45a250b92b8fap-3 -0x1.4181c5bec5ed4p-3 0x1.3d2886b48bcdap-3 -0x1.61ab40beddbacp-4"
)
_EXP2: Final = floats(
    "0x1p+0 0x1.62e430af3d612p-1 0x1.ebfbdc3c3f611p-3 0x1.c6aee867b332dp-5 0x1.3b2d4c9e79fa1p-7"
    " 0x1.5f3e679580004p-10 0x1.41fc1a3de5e27p-13"
)
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
    """`x` to the power `y`, both float32 or float64 nodes.

    2**(y log2(abs(x))), with the logarithm to more bits than the format has, since y multiplies
    its error. Special cases are C's (and NumPy's): x**0 and 1**y are 1 also for NaN; a negative
    base needs an integer exponent, and keeps its sign if that is odd.
    """
    exponent = _constant(y)
    if exponent in _SHORT:
        return _short(x, exponent)
    magnitude = _magnitude_float32 if x.dtype is dt.float32 else _magnitude_float64
    whole = y.alu(Op.ROUND).eq(y)
    half = y * 0.5
    odd = whole & half.alu(Op.ROUND).ne(half)
    sign = odd.where(sign_bit(x), const(0, FORMATS[x.dtype].unsigned))
    out = from_bits(bits_of(magnitude(x.alu(Op.ABS), y)) ^ sign, x.dtype)
    imaginary = (x < 0.0) & ~whole & x.ne(-math.inf)
    out = imaginary.where(const(math.nan, x.dtype), out)
    return (x.eq(1.0) | y.eq(0.0)).where(const(1.0, x.dtype), out)


_SHORT: Final = frozenset({-1.0, 0.0, 0.5, 1.0, 2.0, 3.0})


def _constant(y: UOp) -> float | None:
    """The number that `y` is, perhaps in another type."""
    while y.op is Op.CAST and y.src[0].dtype.is_float:
        y = y.src[0]
    return float(y.arg) if y.op is Op.CONST else None


def _short(x: UOp, exponent: float | None) -> UOp:
    """Exponents for which a power is one or two roundings of arithmetic."""
    if exponent == 0.5:
        # pow gives +0 for -0 and +inf for -inf, where a root gives -0 and NaN.
        root = x.alu(Op.SQRT) + 0.0
        return x.eq(-math.inf).where(const(math.inf, x.dtype), root)
    if exponent == -1.0:
        return x.const_like(1.0) / x
    return {0.0: x.const_like(1.0), 1.0: x, 2.0: x * x}.get(exponent or 0.0, x * x * x)


def _magnitude_float32(a: UOp, y: UOp) -> UOp:
    """``a ** y`` for `a` not negative, by way of float64."""
    f, e = split(a)
    e = a.eq(0.0).where(const(-math.inf, dt.float32), (a < math.inf).where(e, a))
    f, e, y = (v.cast(dt.float64) for v in (f, e, _finite(y, 127)))
    exponent = y * fma(f, polynomial(f, _LOG2), e)
    # Beyond 2**200 float32 is infinite, below 2**-200 it is 0.
    exponent = at_least(at_most(exponent, 200.0), -200.0)
    form = FORMATS[dt.float64]
    rounder = form.rounder + form.bias
    shifted = exponent + rounder
    r = exponent - (shifted - rounder)
    return (polynomial(r, _EXP2) * power_of_two(shifted)).cast(dt.float32)


def _finite(y: UOp, exponent: int) -> UOp:
    """`y` kept below a number that no other factor can make small, so that 0 * inf is avoided."""
    return at_least(at_most(y, 2.0**exponent), -(2.0**exponent))


def _magnitude_float64(a: UOp, y: UOp) -> UOp:
    """``a ** y`` for `a` not negative."""
    high, low = log_sum(a)
    y = _finite(y, 80)
    scaled, error = exact_product(y, high)
    error = fma(y, low, error)
    edge = a.eq(0.0).where(const(-math.inf, dt.float64), a)
    scaled = (a.eq(0.0) | ~(a < math.inf)).where(y * edge, scaled)
    return exp_of_sum(scaled, at_least(at_most(error, 1.0), -1.0))


def log_sum(a: UOp) -> tuple[UOp, UOp]:
    """The natural logarithm of a positive finite number, as a sum of two to about 65 bits."""
    f, e = split(a)
    # s = f / (2 + f)
    whole, whole_low = ordered_sum(a.const_like(2.0), f)
    inverse = a.const_like(1.0) / whole
    s = product(f, inverse)
    rest = fma(negated(s), whole_low, fma(negated(s), whole, f))
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
