"""asin, acos, atan and atan2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import const
from kernelrt.loops.math.primitives import (
    FUSES,
    bits_of,
    floats,
    fma,
    from_bits,
    polynomial,
    sign_bit,
    with_sign_of,
)

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["acos", "asin", "atan", "atan2"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """Constants of the inverse functions in one format.

    Attributes
    ----------
    half_pi : tuple of float
        pi/2 as an unevaluated sum of two.
    atan : tuple of float
        Coefficients of (atan(t) - t) / t**3 in powers of t**2, for t <= 1.
    asin : tuple of float
        Coefficients of (asin(s) - s) / s**3 in powers of s**2, for s <= 1/2.
    """

    half_pi: tuple[float, float]
    atan: tuple[float, ...]
    asin: tuple[float, ...]


# Minimax of the relative error, coefficients rounded in turn.
_CONSTANTS: Final[dict[DType, _Constants]] = {
    dt.float32: _Constants(
        half_pi=(float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25")),
        # 2**-28.5
        atan=floats(
            "-0x1.55553ep-2 0x1.9991e4p-3 -0x1.2420a8p-3 0x1.c09006p-4 -0x1.581c42p-4"
            " 0x1.da8962p-5 -0x1.fe75f8p-6 0x1.65698ap-7 -0x1.d5ffacp-10"
        ),
        # 2**-27.6
        asin=floats("0x1.5555c8p-3 0x1.330204p-4 0x1.747bc0p-5 0x1.8c3db2p-6 0x1.595d20p-5"),
    ),
    dt.float64: _Constants(
        half_pi=(float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54")),
        atan=floats(
            "-0x1.5555555555526p-2 0x1.99999999955b2p-3 -0x1.249249237f4a0p-3 0x1.c71c717fcd2a2p-4"
            " -0x1.745d11aea718ap-4 0x1.3b1366a3f47ecp-4 -0x1.110e51c9af0a2p-4 0x1.e1bbb2886ef6fp-5"
            " -0x1.ae5ebf0df5bc1p-5 0x1.82dc2ba73d0f3p-5 -0x1.59a8586be1954p-5 0x1.2c390d155aaafp-5"
            " -0x1.ea21ee6cbad48p-6 0x1.68755cf50599bp-6 -0x1.c80917682580bp-7 0x1.d87a588703618p-8"
            " -0x1.7b17295c9db4dp-9 0x1.b5548ddc9da7ap-11 -0x1.407ede3f34157p-13"
            " 0x1.be2b61324f65ap-17"
        ),
        asin=floats(
            "0x1.5555555555391p-3 0x1.333333336e6b0p-4 0x1.6db6db4285beep-5 0x1.f1c72c35d06e5p-6"
            " 0x1.6e89f48416f51p-6 0x1.1c6bddf79e70fp-6 0x1.c6fe05c73682dp-7 0x1.8ec1550545a3ap-7"
            " 0x1.abdd08fb25576p-8 0x1.3febabcad288ep-6 -0x1.09c586a9e2130p-6 0x1.0568e40b45ee8p-5"
        ),
    ),
}


def atan(x: UOp) -> UOp:
    """Return the arc tangent of a float32 or float64 node.

    For a > 1, atan a = pi/2 - atan(1/a), so that one polynomial is enough.
    """
    a = x.alu(Op.ABS)
    one = x.const_like(1.0)
    far = one < a
    t = far.where(one, a) / far.where(a, one)
    first, second = _CONSTANTS[x.dtype].half_pi
    if FUSES.get():
        p = _atan(t)
        turned = p.const_like(first) - (p - second)
    else:
        z = t * t
        rest = z * t * polynomial(z, _CONSTANTS[x.dtype].atan)
        p = t + rest
        # For t near 1, where the result has the greatest error, the first difference is exact.
        turned = (t.const_like(first) - t) - (rest - second)
    return with_sign_of(far.where(turned, p), x)


def _atan(t: UOp) -> UOp:
    """Return the arc tangent of a node from 0 to 1."""
    z = t * t
    return fma(z * t, polynomial(z, _CONSTANTS[t.dtype].atan), t)


def atan2(y: UOp, x: UOp) -> UOp:
    """Return the angle of the point (x, y), both float32 or float64 nodes.

    It is a multiple of a quarter turn, plus or minus the angle within the octant. The signs of
    zeros count.
    """
    kind, (first, second) = x.dtype, _CONSTANTS[x.dtype].half_pi
    zero, one = const(0.0, kind), const(1.0, kind)
    across, up = x.alu(Op.ABS), y.alu(Op.ABS)
    flat = up < across
    least, most = flat.where(up, across), flat.where(across, up)
    t = least / most.eq(0.0).where(one, most)
    p = _atan((least.eq(math.inf) & most.eq(math.inf)).where(one, t))
    left = sign_bit(x).ne(0)
    straight = up <= across
    quarters = left.where(const(2 * first, kind), zero), left.where(const(2 * second, kind), zero)
    high = straight.where(quarters[0], const(first, kind))
    low = straight.where(quarters[1], const(second, kind))
    # Subtract the octant's angle from a half turn on the left, from a quarter turn on the right.
    signs = sign_bit(x) ^ straight.where(bits_of(zero), bits_of(const(-0.0, kind)))
    return with_sign_of(high + (low + from_bits(bits_of(p) ^ signs, kind)), y)


def asin(x: UOp) -> UOp:
    """Return the arc sine of a float32 or float64 node."""
    far, s, tail = _asin(x)
    first, second = _CONSTANTS[x.dtype].half_pi
    # Two steps, of which the first is exact unless the result is large.
    eighth = s.const_like(first / 2)
    turned = eighth + (fma(s, -2.0, eighth) + fma(tail, -2.0, second))
    return with_sign_of(far.where(turned, s + tail), x)


def acos(x: UOp) -> UOp:
    """Return the arc cosine of a float32 or float64 node."""
    far, s, tail = _asin(x)
    p = s + tail
    first, second = _CONSTANTS[x.dtype].half_pi
    double = p + p
    behind = fma(p, -2.0, 2 * first) + 2 * second
    near = p.const_like(first) - (from_bits(bits_of(p) | sign_bit(x), x.dtype) - second)
    return far.where((x < 0.0).where(behind, double), near)


def _asin(x: UOp) -> tuple[UOp, UOp, UOp]:
    """Return whether abs(x) > 1/2, s, and asin(s) - s.

    s is abs(x), or sqrt((1 - abs(x)) / 2) if abs(x) > 1/2. It is NaN if abs(x) > 1.
    """
    a = x.alu(Op.ABS)
    half = x.const_like(0.5)
    far = half < a
    rest = fma(a, -0.5, half)
    s = far.where(rest.alu(Op.SQRT), a)
    z = far.where(rest, a * a)
    return far, s, z * s * polynomial(z, _CONSTANTS[x.dtype].asin)
