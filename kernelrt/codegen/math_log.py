"""log."""

from __future__ import annotations

import math
from typing import Final

from kernelrt import dtype as dt
from kernelrt.codegen.math_parts import (
    FORMATS,
    bits_of,
    floats,
    fma,
    from_bits,
    in_halves,
    polynomial,
)
from kernelrt.ir.uop import UOp, const

__all__ = ["log", "split"]

_LN2: Final = {
    dt.float32: floats("0x1.62e430p-1"),
    dt.float64: floats("0x1.62e42fefa39efp-1 0x1.abc9e3b39803fp-56"),
}
#: The representation of sqrt(1/2).
_ROOT_HALF: Final = {dt.float32: 0x3F3504F3, dt.float64: 0x3FE6A09E667F3BCD}
# (log(1 + f) - f) / f**2 for 1 + f in [sqrt(1/2), sqrt(2)]: minimax of the relative error of
# log(1 + f), 2**-27.3, with the first coefficient fixed.
_LOG1P: Final = floats(
    "-0x1p-1 0x1.555554p-2 -0x1.000226p-2 0x1.99a01ap-3 -0x1.547282p-3 0x1.22d952p-3"
    " -0x1.0d82dep-3 0x1.055e5ep-3 -0x1.38c57ap-4"
)
# 2 atanh(s) = 2 s + s**3 P(s**2) for abs(s) <= 3 - 2 sqrt(2): relative error 2**-59.4.
_ATANH: Final = floats(
    "0x1.5555555555592p-1 0x1.999999997ff38p-2 0x1.24924941ded6cp-2 0x1.c71c521694bf1p-3"
    " 0x1.74663c3fe97e3p-3 0x1.39a204dda59a5p-3 0x1.2f020db51b4e3p-3"
)


def split(x: UOp) -> tuple[UOp, UOp]:
    """`x` = 2**e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)): f and e, of the type of `x`.

    For `x` positive and finite; anything else gives some finite numbers.
    """
    form = FORMATS[x.dtype]
    width, bias = form.fraction, form.bias
    subnormal = x < form.least_normal
    bits = bits_of(subnormal.where(x * 2.0**width, x))
    # Moved so that the exponent field steps at sqrt(1/2) instead of at 1.
    moved = bits + ((bias << width) - _ROOT_HALF[x.dtype])
    f = from_bits((moved & ((1 << width) - 1)) + _ROOT_HALF[x.dtype], x.dtype) - 1.0
    # 2**fraction + e + bias is put together from its bits: no conversion from integers, which
    # AVX2 lacks for 64 bits.
    high = (bias + width) << width
    lifted = from_bits((moved >> width) | high, x.dtype)
    offset = 2.0**width + bias
    return f, lifted - subnormal.where(x.const_like(offset + width), x.const_like(offset))


def log(x: UOp) -> UOp:
    """The natural logarithm of a float32 or float64 node.

    log x = e ln 2 + log(1 + f). In float32 log(1 + f) is a polynomial; in float64 one division,
    s = f / (2 + f), halves the number of terms.
    """
    f, e = split(x)
    ln2 = _LN2[x.dtype]
    if x.dtype is dt.float32:
        z = f * f
        series = fma(in_halves(f, z, _LOG1P[1:]), f, _LOG1P[0])
        y = fma(e, ln2[0], fma(z, series, f))
    else:
        s = f / (f + 2.0)
        z = s * s
        half = f * f * 0.5
        tail = fma(s, fma(z, polynomial(z, _ATANH), half), e * ln2[1])
        y = fma(e, ln2[0], f - (half - tail))
    below = x.eq(0.0).where(const(-math.inf, x.dtype), const(math.nan, x.dtype))
    y = (x > 0.0).where(y, below)
    return x.eq(math.inf).where(x, y)
