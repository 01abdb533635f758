"""exp, exp2, expm1 and tanh."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.loops.math.primitives import (
    FORMATS,
    FUSES,
    at_least,
    at_most,
    floats,
    fma,
    halves,
    in_halves,
    is_tiny,
    less_multiple,
    negated,
    ordered_sum,
    polynomial,
    power_of_two,
    upper_half,
    with_sign_of,
)

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["exp", "exp2", "exp_of_sum", "expm1", "expm1_parts", "steps", "tanh"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """Constants of the functions in one format.

    Attributes
    ----------
    log2e : float
        1 / ln 2.
    ln2 : tuple of float
        ln 2 as an unevaluated sum of two.
    lowest, highest : float
        exp and exp2 are 0 below `lowest`, and infinite above `highest`.
    exp : tuple of float
        Coefficients of e**r for abs(r) <= ln 2.
    exp2 : tuple of float
        Coefficients of 2**r for abs(r) <= 1.
    expm1_lowest, expm1_highest : float
        expm1 is -1 below `expm1_lowest`, and infinite above `expm1_highest`.
    expm1 : tuple of float
        Coefficients, from that of r**2 on, of e**r - 1 = r + ... for abs(r) <= ln 2 / 2.
    saturated : float
        Number from which on tanh is 1.
    twice_expm1 : tuple of float
        Coefficients, from that of r**2 on, of e**(2 r) - 1 = 2 r + ... for abs(r) <= ln 2 / 4.
    """

    log2e: float
    ln2: tuple[float, ...]
    lowest: float
    highest: float
    exp: tuple[float, ...]
    exp2: tuple[float, ...]
    expm1_lowest: float
    expm1_highest: float
    expm1: tuple[float, ...]
    saturated: float
    twice_expm1: tuple[float, ...]


# The polynomials are minimax fits of relative error (Remez exchange in 160-bit arithmetic); each
# coefficient was rounded to the format in turn, lowest power first, and the others fitted again.
_CONSTANTS: Final[dict[DType, _Constants]] = {
    dt.float32: _Constants(
        log2e=float.fromhex("0x1.715476p+0"),
        ln2=floats("0x1.62e430p-1 -0x1.05c610p-29"),
        lowest=-151.0,
        highest=129.0,
        # relative error 2**-26.0
        exp=floats(
            "0x1p+0 0x1p+0 0x1.00000cp-1 0x1.555514p-3 0x1.5549eep-5 0x1.1126e4p-7"
            " 0x1.71bf90p-10 0x1.9baa6cp-13"
        ),
        # relative error 2**-26.2
        exp2=floats(
            "0x1p+0 0x1.62e432p-1 0x1.ebfbf8p-3 0x1.c6af9cp-5 0x1.3b1ff0p-7 0x1.5dbec4p-10"
            " 0x1.481b04p-13 0x1.f487c0p-17"
        ),
        expm1_lowest=-18.0,
        expm1_highest=89.0,
        # relative error 2**-26.1
        expm1=floats("0x1.fffffep-2 0x1.5554b4p-3 0x1.5556f6p-5 0x1.12253ep-7 0x1.6b9722p-10"),
        saturated=10.0,
        # relative error 2**-26.1
        twice_expm1=floats("0x1.fffffep+0 0x1.5554b4p+0 0x1.5556f2p-1 0x1.122562p-2 0x1.6b9ccep-4"),
    ),
    dt.float64: _Constants(
        log2e=float.fromhex("0x1.71547652b82fep+0"),
        ln2=floats("0x1.62e42fefa39efp-1 0x1.abc9e3b39803fp-56"),
        lowest=-1076.0,
        highest=1025.0,
        # relative error 2**-55.8
        exp=floats(
            "0x1p+0 0x1p+0 0x1.ffffffffffff3p-2 0x1.555555555552ep-3 0x1.5555555556564p-5"
            " 0x1.11111111118e3p-7 0x1.6c16c16a32f24p-10 0x1.a01a01a375ddfp-13"
            " 0x1.a01a04f0d291fp-16 0x1.71de3499c8770p-19 0x1.27e216965e773p-22"
            " 0x1.ae6a1fc3ceecdp-26 0x1.215db64778b0dp-29 0x1.60318d6eac042p-33"
        ),
        exp2=floats(
            "0x1.0000000000000p+0 0x1.62e42fefa39efp-1 0x1.ebfbdff82c57cp-3 0x1.c6b08d704a131p-5"
            " 0x1.3b2ab6fba6595p-7 0x1.5d87fe789f051p-10 0x1.430912f616d6ep-13"
            " 0x1.ffcbfc6642a1fp-17 0x1.62c025bbf57d3p-20 0x1.b5253151451d3p-24"
            " 0x1.e4c9f3dc51edbp-28 0x1.e8d3a7491f854p-32 0x1.c7ca08c8d8355p-36"
            " 0x1.8013c37e1cf30p-40"
        ),
        expm1_lowest=-38.0,
        expm1_highest=710.0,
        expm1=floats(
            "0x1.0000000000000p-1 0x1.5555555555559p-3 0x1.5555555555559p-5 0x1.111111110f70cp-7"
            " 0x1.6c16c16c16897p-10 0x1.a01a01af9b665p-13 0x1.a01a019e14aaap-16"
            " 0x1.71ddf93b3da4ap-19 0x1.27e4f958fbff8p-22 0x1.af5d021f23c5ap-26"
            " 0x1.1f37d5e027b1bp-29"
        ),
        saturated=22.0,
        # relative error 2**-61.6
        twice_expm1=floats(
            "0x1p+1 0x1.5555555555559p+0 0x1.5555555555559p-1 0x1.111111110f71dp-2"
            " 0x1.6c16c16c16ea8p-4 0x1.a01a01af98ce8p-6 0x1.a01a019b62936p-8"
            " 0x1.71ddf933525e7p-10 0x1.27e4ffa5a2832p-12 0x1.af5d27d9363adp-15"
            " 0x1.1f2e2630297e7p-17"
        ),
    ),
}


def exp(x: UOp) -> UOp:
    """Return e**x for a float32 or float64 node.

    x = 2 m ln 2 + r with an integer m and abs(r) <= ln 2, so e**x = e**r * 2**m * 2**m. The result
    is scaled by 2**m twice. So it can have any exponent of the format, and can be subnormal or
    infinite. Because both factors are equal, one shift computes both; a second power of two would
    cost more than the wider range of r.
    """
    return exp_of_sum(x, None)


def exp2(x: UOp) -> UOp:
    """Return 2**x for a float32 or float64 node: x = 2 m + r, with r exact."""
    k, form = _CONSTANTS[x.dtype], FORMATS[x.dtype]
    x = at_least(at_most(x, k.highest), k.lowest)
    rounder = form.rounder + form.bias
    shifted = fma(x, 0.5, rounder)
    scale = power_of_two(shifted)
    return _power(fma(shifted - rounder, -2.0, x), k.exp2) * scale * scale


def exp_of_sum(high: UOp, low: UOp | None) -> UOp:
    """Return e**(high + low), where `low` is at most the rounding error of `high` if it matters."""
    k, form = _CONSTANTS[high.dtype], FORMATS[high.dtype]
    x = at_least(at_most(high, k.highest), k.lowest)
    rounder = form.rounder + form.bias
    shifted = fma(x, k.log2e / 2, rounder)
    m = shifted - rounder
    r = less_multiple(x, m, 2 * k.ln2[0])
    missing = -2 * k.ln2[1]
    r = fma(m, missing, r) if low is None else r + fma(m, missing, low)
    scale = power_of_two(shifted)
    return _power(r, k.exp) * scale * scale


def _power(r: UOp, c: tuple[float, ...]) -> UOp:
    """Return :func:`polynomial` of e**r or 2**r, with one large rounding error."""
    if FUSES.get():
        return polynomial(r, c)
    total = r * r * polynomial(r, c[2:])
    if c[1] == 1.0:
        return (r + total) + 1.0
    slope = upper_half(c[1], r.dtype)
    high, low = halves(r)
    return (high * slope + (fma(r, c[1] - slope, low * slope) + total)) + 1.0


def steps(x: UOp, bias: int, low: UOp | None = None) -> tuple[UOp, UOp, UOp, UOp]:
    """Split ``x + low`` = n ln 2 + r + rest, with an integer n and abs(r) at most about ln 2 / 2.

    Returns
    -------
    shifted, n, r, rest : UOp
        ``shifted`` holds n + `bias`; :func:`power_of_two` converts it to a scale. ``rest`` is below
        the last place of r, unless r is small compared with 1 - 2**n.
    """
    k, form = _CONSTANTS[x.dtype], FORMATS[x.dtype]
    rounder = form.rounder + form.bias + bias
    shifted = fma(x, k.log2e, rounder)
    n = shifted - rounder
    missing = n * -k.ln2[1] if low is None else fma(n, -k.ln2[1], low)
    r, rest = ordered_sum(less_multiple(x, n, k.ln2[0]), missing)
    return shifted, n, r, rest


def expm1(x: UOp) -> UOp:
    """Return e**x - 1 for a float32 or float64 node: p 2**n + (2**n - 1) with p = e**r - 1."""
    k = _CONSTANTS[x.dtype]
    scale, r, rest = expm1_parts(at_least(at_most(x, k.expm1_highest), k.expm1_lowest), None, -1)
    if FUSES.get():
        half = fma(scale, r + rest, scale - 0.5)
    else:
        half = fma(scale, r, scale - 0.5) + scale * rest
    return is_tiny(x).where(x, half + half)


def expm1_parts(high: UOp, low: UOp | None, bias: int) -> tuple[UOp, UOp, UOp]:
    """Return 2**(n + bias), r and p with e**(high + low) = 2**n (1 + r + p); r is exact near 0."""
    shifted, _, r, rest = steps(high, bias, low)
    return power_of_two(shifted), r, fma(r * r, polynomial(r, _CONSTANTS[high.dtype].expm1), rest)


def tanh(x: UOp) -> UOp:
    """Return the hyperbolic tangent of a float32 or float64 node.

    With h = (e**(-2 a) - 1) / 2, which is in (-1/2, 0], tanh a = -h / (1 + h). It is computed as
    h * (h / (1 + h)) - h, where the rounding error of the division matters little while h is
    small. h is q 2**(n - 1) + (2**(n - 1) - 1/2) with q from a polynomial without constant term,
    so nothing cancels near 0. From ln(3) / 2 on, where tanh a is 1/2, it is computed as
    1 - e**(-2 a) / (1 + h) instead, which keeps the digits of 1 - tanh a. The result has the sign
    of x, also for zeros.
    """
    k, form = _CONSTANTS[x.dtype], FORMATS[x.dtype]
    a = at_most(x.alu(Op.ABS), k.saturated)
    rounder = form.rounder + form.bias - 1
    shifted = fma(a, -2 * k.log2e, rounder)
    n = shifted - rounder
    # In one step, r is exact if n is -1 or -2. The rounding error of ln 2 matters in float64 only:
    # the float32 ln 2 happens to be correct to five more bits.
    r = less_multiple(negated(a), n, k.ln2[0] / 2)
    z = r * r
    p = in_halves(r, z, k.twice_expm1)
    q = fma(p, z, r + r) if x.dtype is dt.float32 else (r + r) + fma(n, -k.ln2[1], p * z)
    scale = power_of_two(shifted)
    h, power = fma(scale, q, scale - 0.5), fma(scale, q, scale)
    above_half = a >= math.log(3) / 2
    factor = above_half.where(a.const_like(-1.0), h)
    quotient = above_half.where(power + power, h) / (h + 1.0)
    if FUSES.get():
        return with_sign_of(fma(factor, quotient, negated(factor)), x)
    # The rounding error of h counts twice, about, where it matters.
    _, low = ordered_sum(scale - 0.5, scale * q)
    low = above_half.where(a.const_like(0.0), low + low)
    return with_sign_of((factor * quotient - low) - factor, x)
