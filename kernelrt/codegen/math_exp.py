"""exp and tanh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.codegen.math_parts import (
    FORMATS,
    at_least,
    at_most,
    floats,
    fma,
    in_halves,
    negated,
    polynomial,
    power_of_two,
    with_sign_of,
)
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["exp", "exp_of_sum", "tanh"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """What exp and tanh need in one format.

    Attributes
    ----------
    log2e : float
        1 / ln 2.
    ln2 : tuple of float
        ln 2 as an unevaluated sum of two.
    lowest, highest : float
        exp is 0 below, infinite above.
    exp : tuple of float
        Coefficients of e**r for abs(r) <= ln 2.
    saturated : float
        tanh is 1 from here on.
    half_expm1 : tuple of float
        Coefficients, from that of r**2 on, of (e**(2 r) - 1) / 2 = r + ... for
        abs(r) <= ln 2 / 4.
    """

    log2e: float
    ln2: tuple[float, ...]
    lowest: float
    highest: float
    exp: tuple[float, ...]
    saturated: float
    half_expm1: tuple[float, ...]


# The polynomials are minimax fits of relative error (Remez exchange in 160-bit arithmetic); each
# coefficient was rounded to the format in turn, lowest power first, and the others fitted again.
_CONSTANTS: Final[dict[DType, _Constants]] = {
    dt.float32: _Constants(
        log2e=float.fromhex("0x1.715476p+0"),
        ln2=floats("0x1.62e430p-1 -0x1.05c610p-29"),
        lowest=-105.0,
        highest=90.0,
        # relative error 2**-26.0
        exp=floats(
            "0x1p+0 0x1p+0 0x1.00000cp-1 0x1.555514p-3 0x1.5549eep-5 0x1.1126e4p-7"
            " 0x1.71bf90p-10 0x1.9baa6cp-13"
        ),
        saturated=10.0,
        # relative error 2**-26.1
        half_expm1=floats("0x1.fffffep-1 0x1.5554b4p-1 0x1.5556f2p-2 0x1.122562p-3 0x1.6b9ccep-5"),
    ),
    dt.float64: _Constants(
        log2e=float.fromhex("0x1.71547652b82fep+0"),
        ln2=floats("0x1.62e42fefa39efp-1 0x1.abc9e3b39803fp-56"),
        lowest=-748.0,
        highest=712.0,
        # relative error 2**-55.8
        exp=floats(
            "0x1p+0 0x1p+0 0x1.ffffffffffff3p-2 0x1.555555555552ep-3 0x1.5555555556564p-5"
            " 0x1.11111111118e3p-7 0x1.6c16c16a32f24p-10 0x1.a01a01a375ddfp-13"
            " 0x1.a01a04f0d291fp-16 0x1.71de3499c8770p-19 0x1.27e216965e773p-22"
            " 0x1.ae6a1fc3ceecdp-26 0x1.215db64778b0dp-29 0x1.60318d6eac042p-33"
        ),
        saturated=22.0,
        # relative error 2**-61.6
        half_expm1=floats(
            "0x1p+0 0x1.5555555555559p-1 0x1.5555555555559p-2 0x1.111111110f71dp-3"
            " 0x1.6c16c16c16ea8p-5 0x1.a01a01af98ce8p-7 0x1.a01a019b62936p-9"
            " 0x1.71ddf933525e7p-11 0x1.27e4ffa5a2832p-13 0x1.af5d27d9363adp-16"
            " 0x1.1f2e2630297e7p-18"
        ),
    ),
}


def exp(x: UOp) -> UOp:
    """e**x for a float32 or float64 node.

    x = 2 m ln 2 + r with an integer m and abs(r) <= ln 2, so e**x = e**r * 2**m * 2**m. Scaling
    in two steps reaches every exponent of the format, subnormal and infinite results included,
    with one shift: rounding to even multiples costs less than a second power of two would.
    """
    return exp_of_sum(x, None)


def exp_of_sum(high: UOp, low: UOp | None) -> UOp:
    """e**(high + low), where `low` is at most the rounding error of `high` where that matters."""
    k, form = _CONSTANTS[high.dtype], FORMATS[high.dtype]
    x = at_least(at_most(high, k.highest), k.lowest)
    rounder = form.rounder + form.bias
    shifted = fma(x, k.log2e / 2, rounder)
    m = shifted - rounder
    r = fma(m, -2 * k.ln2[0], x)
    missing = -2 * k.ln2[1]
    r = fma(m, missing, r) if low is None else r + fma(m, missing, low)
    scale = power_of_two(shifted)
    return polynomial(r, k.exp) * scale * scale


def tanh(x: UOp) -> UOp:
    """The hyperbolic tangent of a float32 or float64 node.

    With h = (e**(-2 a) - 1) / 2, which lies in (-1/2, 0], tanh a = -h / (1 + h). It is computed
    as h * (h / (1 + h)) - h, where what the division rounds off weighs little as long as h is
    small. e**(-2 a) - 1 is q 2**n + (2**n - 1) with q from a polynomial without constant term,
    so nothing cancels near 0. The sign is that of x throughout, also for zeros.
    """
    k, form = _CONSTANTS[x.dtype], FORMATS[x.dtype]
    a = at_most(x.alu(Op.ABS), k.saturated)
    rounder = form.rounder + form.bias
    shifted = fma(a, -2 * k.log2e, rounder)
    n = shifted - rounder
    # In one step r is exact where n is -1 or -2. What ln 2 lacks matters in float64 only: float32
    # happens to hold ln 2 to five more bits.
    r = fma(n, -k.ln2[0] / 2, negated(a))
    z = r * r
    p = in_halves(r, z, k.half_expm1)
    q = fma(p, z, r) if x.dtype is dt.float32 else r + fma(n, -k.ln2[1] / 2, p * z)
    scale = power_of_two(shifted)
    h = fma(scale, q, fma(scale, 0.5, -0.5))
    return with_sign_of(fma(h, h / (h + 1.0), negated(h)), x)
