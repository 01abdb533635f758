"""log, log2, log10 and log1p."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.uop import UOp, const
from kernelrt.loops.math.primitives import (
    FORMATS,
    FUSES,
    bits_of,
    exact_sum,
    floats,
    fma,
    from_bits,
    halves,
    in_halves,
    negated,
    polynomial,
    sign_bit,
    upper_half,
)

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["log", "log1p", "log2", "log10", "log_of_sum", "split"]


@dataclass(frozen=True, slots=True)
class _Base:
    """Constants of logarithms to one base in one format.

    Attributes
    ----------
    unit, two : tuple of float
        The logarithms of e and of 2 as unevaluated sums of two.
    series : tuple of float
        For float32: coefficients of (log(1 + f) - f unit[0]) / f**2, less f unit[1], for 1 + f in
        [sqrt(1/2), sqrt(2)].
    """

    unit: tuple[float, float]
    two: tuple[float, float]
    series: tuple[float, ...] = ()


def _pair(text: str) -> tuple[float, float]:
    high, low = floats(text)
    return high, low


# Series are minimax of the relative error of log(1 + f).
_NATURAL: Final[dict[DType, _Base]] = {
    # 2**-27.3, with the first coefficient fixed. The float32 ln 2 happens to be correct to five
    # bits more than float32 has.
    dt.float32: _Base(
        unit=(1.0, 0.0),
        two=(float.fromhex("0x1.62e430p-1"), 0.0),
        series=floats(
            "-0x1p-1 0x1.555554p-2 -0x1.000226p-2 0x1.99a01ap-3 -0x1.547282p-3 0x1.22d952p-3"
            " -0x1.0d82dep-3 0x1.055e5ep-3 -0x1.38c57ap-4"
        ),
    ),
    dt.float64: _Base(unit=(1.0, 0.0), two=_pair("0x1.62e42fefa39efp-1 0x1.abc9e3b39803fp-56")),
}
_BINARY: Final[dict[DType, _Base]] = {
    # 2**-27.7
    dt.float32: _Base(
        unit=_pair("0x1.715476p+0 0x1.4ae0c0p-26"),
        two=(1.0, 0.0),
        series=floats(
            "-0x1.715470p-1 0x1.ec7094p-2 -0x1.715afep-2 0x1.277f40p-2 -0x1.eaa244p-3"
            " 0x1.a2cb1ep-3 -0x1.87fa60p-3 0x1.7f1df8p-3 -0x1.c36cfap-4"
        ),
    ),
    dt.float64: _Base(unit=_pair("0x1.71547652b82fep+0 0x1.777d0ffda0d24p-56"), two=(1.0, 0.0)),
}
_DECIMAL: Final[dict[DType, _Base]] = {
    # 2**-27.7
    dt.float32: _Base(
        unit=_pair("0x1.bcb7b2p-2 -0x1.5b235ep-27"),
        two=_pair("0x1.344136p-2 -0x1.ec10c0p-27"),
        series=floats(
            "-0x1.bcb7aap-3 0x1.287a70p-3 -0x1.bcbf16p-4 0x1.63d05ep-4 -0x1.277422p-4"
            " 0x1.f862d6p-5 -0x1.d6e0b4p-5 0x1.cbe098p-5 -0x1.10ca20p-5"
        ),
    ),
    dt.float64: _Base(
        unit=_pair("0x1.bcb7b1526e50ep-2 0x1.95355baaafad3p-57"),
        two=_pair("0x1.34413509f79ffp-2 -0x1.9dc1da994fd21p-59"),
    ),
}
#: The bits of sqrt(1/2).
_ROOT_HALF: Final = {dt.float32: 0x3F3504F3, dt.float64: 0x3FE6A09E667F3BCD}
# 2 atanh(s) = 2 s + s**3 P(s**2) for abs(s) <= 3 - 2 sqrt(2): relative error 2**-59.4.
_ATANH: Final = floats(
    "0x1.5555555555592p-1 0x1.999999997ff38p-2 0x1.24924941ded6cp-2 0x1.c71c521694bf1p-3"
    " 0x1.74663c3fe97e3p-3 0x1.39a204dda59a5p-3 0x1.2f020db51b4e3p-3"
)


def split(x: UOp) -> tuple[UOp, UOp]:
    """Return f and e with `x` = 2**e (1 + f) and 1 + f in [sqrt(1/2), sqrt(2)).

    Both have the type of `x`, which must be positive and finite. Other numbers give arbitrary
    finite results.
    """
    form = FORMATS[x.dtype]
    subnormal = x < form.least_normal
    f, lifted, _ = _split(subnormal.where(x * 2.0**form.fraction, x))
    offset = _offset(x.dtype)
    lower = x.const_like(offset + form.fraction)
    return f, lifted - subnormal.where(lower, x.const_like(offset))


def _offset(dtype: DType) -> float:
    return 2.0 ** FORMATS[dtype].fraction + FORMATS[dtype].bias


def _split(x: UOp) -> tuple[UOp, UOp, UOp]:
    """Return f, e plus an offset, and 2**(1 - e), for a normal number `x`."""
    form = FORMATS[x.dtype]
    width, bias = form.fraction, form.bias
    # Shift the bits so that the exponent field steps at sqrt(1/2) instead of at 1.
    moved = bits_of(x) + ((bias << width) - _ROOT_HALF[x.dtype])
    fraction = moved & ((1 << width) - 1)
    f = from_bits(fraction + _ROOT_HALF[x.dtype], x.dtype) - 1.0
    # Assemble 2**fraction + e + bias from its bits: AVX2 lacks a conversion from 64-bit integers.
    lifted = from_bits((moved >> width) | ((bias + width) << width), x.dtype)
    exponent = moved & ~((1 << width) - 1)
    inverse = exponent.const_like((2 * bias + 1) << width) - exponent
    return f, lifted, from_bits(inverse, x.dtype)


def log(x: UOp) -> UOp:
    """Return the natural logarithm of a float32 or float64 node."""
    return _checked(x, _NATURAL[x.dtype])


def log2(x: UOp) -> UOp:
    """Return the logarithm to base 2 of a float32 or float64 node; exact for powers of two."""
    return _checked(x, _BINARY[x.dtype])


def log10(x: UOp) -> UOp:
    """Return the logarithm to base 10 of a float32 or float64 node."""
    return _checked(x, _DECIMAL[x.dtype])


def _checked(x: UOp, base: _Base) -> UOp:
    y = _of_parts(*split(x), None, base)
    below = x.eq(0.0).where(const(-math.inf, x.dtype), const(math.nan, x.dtype))
    y = (x > 0.0).where(y, below)
    return x.eq(math.inf).where(x, y)


def _of_parts(f: UOp, e: UOp, low: UOp | None, base: _Base) -> UOp:
    """Return log(2**e (1 + f + low)), where `low` is below the last place of 1 + f.

    With `low`, the base must be e. log x = e log 2 + log(1 + f). In float32, log(1 + f) is a
    polynomial. In float64, one division, s = f / (2 + f), halves the number of terms.
    """
    (unit, unit_low), (two, two_low) = base.unit, base.two
    # 1 / (1 + f) is about 1 - f.
    missing = None if low is None else fma(negated(f), low, low)
    if not FUSES.get():
        return _of_parts_without_fma(f, e, missing, base)
    if f.dtype is dt.float32:
        z = f * f
        series = fma(in_halves(f, z, base.series[1:]), f, base.series[0])
        if missing is not None:
            return fma(e, two, f + fma(z, series, missing))
        if unit == 1.0:
            return fma(e, two, fma(z, series, f))
        rest = fma(z, series, f * unit_low)
        rest = fma(e, two_low, rest) if two_low else rest
        return fma(e, two, fma(f, unit, rest))
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    top = fma(z, polynomial(z, _ATANH), half)
    if unit == 1.0:
        tail = e * two_low if missing is None else fma(e, two_low, missing)
        return fma(e, two, f - (half - fma(s, top, tail)))
    # The rest is less than a quarter of f.
    rest = fma(s, top, negated(half))
    tail = fma(f, unit_low, rest * unit)
    tail = fma(e, two_low, tail) if two_low else tail
    return fma(e, two, fma(f, unit, tail))


def _of_parts_without_fma(f: UOp, e: UOp, missing: UOp | None, base: _Base) -> UOp:
    """Return :func:`_of_parts`: large products are exact, of halves, and the others small."""
    (unit, unit_low), (two, two_low) = base.unit, base.two
    step, slope = upper_half(two, f.dtype), upper_half(unit, f.dtype)
    # log(1 + f) is f - half + small.
    if f.dtype is dt.float32:
        z = f * f
        half, small = z * -base.series[0], z * (f * in_halves(f, z, base.series[1:]))
    else:
        s = f / (f + 2.0)
        half = f * f * 0.5
        small = s * fma(s * s, polynomial(s * s, _ATANH), half)
    tail = e * (two - step + two_low) if two != 1.0 else None
    if unit == 1.0:
        for part in (missing, tail):
            small = small if part is None else small + part
        return fma(e, step, f - (half - small))
    curve = small - half
    if f.dtype is dt.float64:
        curve = curve * unit
    high, low = halves(f)
    rest = fma(f, unit - slope + unit_low, low * slope)
    rest = rest if tail is None else rest + tail
    return fma(e, step, high * slope + (curve + rest))


def log_of_sum(high: UOp, low: UOp, doubled: UOp | None = None) -> UOp:
    """Return the natural logarithm of ``high + low``, or of twice that where `doubled` is true.

    `high` is positive and normal, and `low` is at most some units in the last place of `high`.
    """
    f, lifted, inverse = _split(high)
    offset = high.const_like(_offset(high.dtype))
    if doubled is not None:
        offset = doubled.where(offset - 1.0, offset)
    return _of_parts(f, lifted - offset, low * inverse * 0.5, _NATURAL[high.dtype])


def log1p(x: UOp) -> UOp:
    """Return the natural logarithm of 1 + x for a float32 or float64 node."""
    total, rest = exact_sum(x.const_like(1.0), x)
    y = log_of_sum(total, rest)
    below = x.eq(-1.0).where(const(-math.inf, x.dtype), const(math.nan, x.dtype))
    y = (x > -1.0).where(from_bits(bits_of(y) | sign_bit(x), x.dtype), below)
    return x.eq(math.inf).where(x, y)
