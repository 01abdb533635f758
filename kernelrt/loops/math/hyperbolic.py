"""sinh, cosh and the inverse hyperbolic functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import const
from kernelrt.loops.math.exp import steps
from kernelrt.loops.math.log import log_of_sum
from kernelrt.loops.math.primitives import (
    FORMATS,
    FUSES,
    at_least,
    at_most,
    exact_sum,
    floats,
    fma,
    is_tiny,
    negated,
    ordered_sum,
    polynomial,
    power_of_two,
    residue,
    with_sign_of,
)

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["acosh", "asinh", "atanh", "cosh", "sinh"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """Constants of sinh and cosh in one format.

    Attributes
    ----------
    highest : float
        Number from which on both are infinite.
    sinh, cosh : tuple of float
        sinh r = r + r**3 P(r**2), cosh r = 1 + r**2 P(r**2) for abs(r) <= ln 2 / 2.
    """

    highest: float
    sinh: tuple[float, ...]
    cosh: tuple[float, ...]


# Minimax of the relative error of sinh, the absolute one of cosh.
_CONSTANTS: Final[dict[DType, _Constants]] = {
    dt.float32: _Constants(
        highest=89.5,
        # 2**-26.2
        sinh=floats("0x1.5554b0p-3 0x1.122796p-7"),
        # 2**-33.2
        cosh=floats("0x1p-1 0x1.5554e6p-5 0x1.6d4f0ep-10"),
    ),
    dt.float64: _Constants(
        highest=710.6,
        sinh=floats(
            "0x1.5555555555559p-3 0x1.111111110f623p-7 0x1.a01a01b0259a1p-13 0x1.71ddf79c7edc6p-19"
            " 0x1.af601f504228bp-26"
        ),
        cosh=floats(
            "0x1.0000000000000p-1 0x1.5555555555558p-5 0x1.6c16c16c14ffap-10 0x1.a01a01ad810ddp-16"
            " 0x1.27e4cc08dbd0dp-22 0x1.1f8bef8de85d9p-29"
        ),
    ),
}


def sinh(x: UOp) -> UOp:
    """Return the hyperbolic sine of a float32 or float64 node.

    With x = n ln 2 + r, c = cosh r - 1 and s = sinh r, sinh x = d + (d c + u s), where d and u are
    half the difference and half the sum of 2**n and 2**-n. Nothing cancels near 0.
    """
    up, down, c, r, rest = _parts(x)
    difference = up - down
    if FUSES.get():
        half = difference + fma(up + down, r + rest, difference * c)
    else:
        small = fma(up + down, rest, difference * c)
        half = difference + fma(up, r, fma(down, r, small))
    return is_tiny(x).where(x, with_sign_of(half + half, x))


def cosh(x: UOp) -> UOp:
    """Return the hyperbolic cosine of a float32 or float64 node; see :func:`sinh`."""
    up, down, c, r, rest = _parts(x)
    half = up + (down + fma(up - down, r + rest, (up + down) * c))
    return half + half


def _parts(x: UOp) -> tuple[UOp, UOp, UOp, UOp, UOp]:
    """Return 2**(n - 2), 2**(-n - 2), cosh r - 1, r, and sinh r - r."""
    k, form = _CONSTANTS[x.dtype], FORMATS[x.dtype]
    shifted, n, r, low = steps(at_most(x.alu(Op.ABS), k.highest), -2)
    up = power_of_two(shifted)
    # Limit the exponent to where the scale becomes 0.
    lowest = form.rounder
    down = power_of_two(at_least(n.const_like(lowest + form.bias - 2) - n, lowest))
    z = r * r
    c = z * polynomial(z, k.cosh)
    return up, down, c, r, fma(z * r, polynomial(z, k.sinh), low)


def asinh(x: UOp) -> UOp:
    """Return the inverse hyperbolic sine of a float32 or float64 node.

    It is log(1 + (a + a**2 / (1 + sqrt(1 + a**2)))), or log(2 a) for large a.
    """
    a = x.alu(Op.ABS)
    square = a * a
    root = (square + 1.0).alu(Op.SQRT)
    y = _log1p_or_double(a, *ordered_sum(a, square / (root + 1.0)))
    return with_sign_of(a.eq(math.inf).where(a, y), x)


def acosh(x: UOp) -> UOp:
    """Return the inverse hyperbolic cosine of a float32 or float64 node.

    With t = x - 1, it is log(1 + (t + sqrt(t (t + 2)))), or log(2 x) for large x.
    """
    t = x - 1.0
    root = fma(t, t, t + t).alu(Op.SQRT)
    y = _log1p_or_double(x, *exact_sum(root, t))
    y = (x < 1.0).where(const(math.nan, x.dtype), y)
    return x.eq(math.inf).where(x, y)


def _log1p_or_double(a: UOp, high: UOp, low: UOp) -> UOp:
    """Return log(1 + high + low), or log(2 a) for large `a`."""
    great = a >= 2.0 ** (FORMATS[a.dtype].fraction // 2 + 3)
    total, error = exact_sum(a.const_like(1.0), high)
    return log_of_sum(
        great.where(a, total), great.where(a.const_like(0.0), error + low), doubled=great
    )


def atanh(x: UOp) -> UOp:
    """Return the inverse hyperbolic tangent of a float32 or float64 node.

    It is log(1 + u) / 2 with u = 2 a / (1 - a). The rounding errors of the difference and the
    quotient are compensated. They matter for small a, where 1 - a is about 1.
    """
    a = x.alu(Op.ABS)
    one = a.const_like(1.0)
    rest, rest_low = ordered_sum(one, negated(a))
    u = (a + a) / rest
    u_low = fma(negated(u), rest_low, residue(a + a, u, rest))
    total, error = exact_sum(one, u)
    y = log_of_sum(total, error + fma(u_low, a, u_low)) * 0.5
    beyond = a.eq(1.0).where(const(math.inf, x.dtype), const(math.nan, x.dtype))
    return with_sign_of((a < 1.0).where(y, beyond), x)
