"""sin, cos and tan, for arguments of any size.

x = n pi/2 + r with abs(r) at most about pi/4; n selects one of two polynomials in r, and the sign.
For angles of usual size, r is x minus n times each part of pi/2. Only vectors with a larger angle
take the slow path of angle_reduction.py. Several functions of one x share the reduction and the
polynomials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.loops.math.angle_reduction import quarters
from kernelrt.loops.math.primitives import (
    FORMATS,
    FUSES,
    bits_of,
    exact_product,
    floats,
    fma,
    from_bits,
    less_multiple,
    negated,
    ordered_sum,
    polynomial,
    rarely,
    sign_bit,
)

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = ["cos", "near_sin", "sin", "tan"]


@dataclass(frozen=True, slots=True)
class _Constants:
    """Constants of the three functions in one format.

    Attributes
    ----------
    limit : float
        Arguments below this number are reduced by subtracting n times the parts of pi/2.
    half_pi : tuple of float
        pi/2 as an unevaluated sum of three.
    sin, cos, tan : tuple of float
        sin r = r + r**3 P(r**2), cos r = 1 - r**2 / 2 + r**4 P(r**2), tan r = r + r**3 P(r**2).
    """

    limit: float
    half_pi: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    tan: tuple[float, ...]


# Minimax of the relative error, coefficients rounded in turn.
_CONSTANTS: Final[dict[DType, _Constants]] = {
    dt.float32: _Constants(
        limit=2.0**17,
        half_pi=floats("0x1.921fb6p+0 -0x1.777a5cp-25 -0x1.ee59dap-50"),
        # abs(r) <= 0.8555, the bound of the slow path: 2**-27.0
        sin=floats("-0x1.55553ap-3 0x1.110322p-7 -0x1.97f87ep-13"),
        # 2**-31.6
        cos=floats("0x1.555542p-5 -0x1.6c07a6p-10 0x1.98b6cep-16"),
        # 2**-27.1
        tan=floats(
            "0x1.555584p-2 0x1.110492p-3 0x1.bc5786p-5 0x1.4e6a92p-6 0x1.a81180p-7"
            " -0x1.3b0ee6p-9 0x1.6a342ep-8"
        ),
    ),
    dt.float64: _Constants(
        limit=2.0**30,
        half_pi=floats("0x1.921fb54442d18p+0 0x1.1a62633145c07p-54 -0x1.f1976b7ed8fbcp-110"),
        # abs(r) <= pi/4: 2**-57.8
        sin=floats(
            "-0x1.5555555555548p-3 0x1.111111110f730p-7 -0x1.a01a019bea0acp-13"
            " 0x1.71de3556cd063p-19 -0x1.ae5e4d838239dp-26 0x1.5d8c23922ad69p-33"
        ),
        # 2**-63.9
        cos=floats(
            "0x1.555555555554bp-5 -0x1.6c16c16c1500dp-10 0x1.a01a019c8dd2ap-16"
            " -0x1.27e4f7f05165ep-22 0x1.1ee9daccdf465p-29 -0x1.8fa5ed6c9f6e7p-37"
        ),
        tan=floats(
            "0x1.55555555554f2p-2 0x1.11111111182c6p-3 0x1.ba1ba1b46c20fp-5 0x1.664f49a84d8cfp-6"
            " 0x1.226e125d7c44ap-7 0x1.d6d9336002cf4p-9 0x1.7d5b5f93b65cdp-10 0x1.37fa7ba10b075p-11"
            " 0x1.d2711a7124345p-13 0x1.1e29073cd41bep-13 -0x1.b8fc2aef09faep-16"
            " 0x1.76ce2d3cffccdp-14 -0x1.780a1ac2581b9p-15 0x1.5dd4482bb036fp-16"
        ),
    ),
}


def sin(x: UOp) -> UOp:
    """Return the sine of a float32 or float64 node."""
    return _at_any_size(x, _sin)


def cos(x: UOp) -> UOp:
    """Return the cosine of a float32 or float64 node."""
    return _at_any_size(x, _cos)


def tan(x: UOp) -> UOp:
    """Return the tangent of a float32 or float64 node."""
    return _at_any_size(x, _tan, fine=True)


def near_sin(x: UOp) -> UOp:
    """Return the sine of a small number that is not negative, without the slow path."""
    return _sin(x, *_subtracted(x))


#: Function of x, n modulo 4 for abs(x), r, and the rounding error of r.
_Turned = Callable[["UOp", "UOp", "UOp", "UOp"], "UOp"]


def _at_any_size(x: UOp, function: _Turned, *, fine: bool = False) -> UOp:
    a, limit = x.alu(Op.ABS), _CONSTANTS[x.dtype].limit
    return rarely(
        a >= (limit if FUSES.get() else min(limit, _LIMIT_WITHOUT_FMA)),
        function(x, *_subtracted(a, fine=fine)),
        lambda y: function(y, *quarters(y.alu(Op.ABS))),
        x,
    )


def _subtracted(a: UOp, *, fine: bool = False) -> tuple[UOp, UOp, UOp]:
    """Return n as an integer, r, and the rounding error of r, for `a` below the limit.

    ``a - n * first`` is exact: it is small, and a multiple of the last place of both. In float32, r
    may be off by half a unit in the last place, unless `fine`: tan would double that error.
    """
    first, second, third = _CONSTANTS[a.dtype].half_pi
    rounder = FORMATS[a.dtype].rounder
    shifted = fma(a, _TWO_OVER_PI[a.dtype], rounder)
    n = shifted - rounder
    if a.dtype is dt.float32 and not FUSES.get():
        return bits_of(shifted), *_wide_difference(a, n, fine=fine)
    r = less_multiple(a, n, first)
    if a.dtype is dt.float32 and not fine:
        return bits_of(shifted), fma(n, -second, r), n * -third
    moved, moved_low = exact_product(n, second)
    high = r - moved
    low = ((r - high) - moved) - moved_low
    return bits_of(shifted), high, fma(n, -third, low)


def _wide_difference(a: UOp, n: UOp, *, fine: bool) -> tuple[UOp, UOp]:
    """Return ``a - n pi/2`` in float32, computed in float64, and, if `fine`, its rounding error."""
    wide, whole = a.cast(dt.float64), n.cast(dt.float64)
    first, second = _SHORT_HALF_PI
    r = (wide - whole * first) - whole * second
    near = r.cast(dt.float32)
    # Adding -0.0 changes nothing.
    low = (r - near.cast(dt.float64)).cast(dt.float32) if fine else near.const_like(-0.0)
    return near, low


#: Multiples of half of the bits of pi/2 are exact up to this argument.
_LIMIT_WITHOUT_FMA: Final = 2.0**26
#: pi/2 as an unevaluated sum of two: multiples of the first by integers up to 2**17 are exact.
_SHORT_HALF_PI: Final = floats("0x1.921fb5444p+0 0x1.68c234c4c6629p-39")

_TWO_OVER_PI: Final = {
    dt.float32: float.fromhex("0x1.45f306p-1"),
    dt.float64: float.fromhex("0x1.45f306dc9c883p-1"),
}


def _sin(x: UOp, quadrant: UOp, r: UOp, low: UOp) -> UOp:
    along, across = _along(r, low), _across(r, low)
    return _signed(_is_odd(quadrant).where(across, along), quadrant, sign_bit(x))


def _cos(_x: UOp, quadrant: UOp, r: UOp, low: UOp) -> UOp:
    along, across = _along(r, low), _across(r, low)
    return _signed(_is_odd(quadrant).where(along, across), quadrant + 1, None)


def _tan(x: UOp, quadrant: UOp, r: UOp, low: UOp) -> UOp:
    """Return tan r in even quarters, -1 / tan r in odd ones.

    tan r is a sum. Its rounding error is subtracted from the inverse, as if the inverse were about
    1. If it is not, tan r is small, and the error is negligible compared with the inverse. Without
    FMA more errors add up, so the actual inverse is used.
    """
    z = r * r
    p = polynomial(z, _CONSTANTS[r.dtype].tan)
    even, lost = ordered_sum(r, fma(z * r, p, fma(low, z, low)))
    inverse = r.const_like(1.0) / even
    odd = inverse - (lost if FUSES.get() else lost * inverse * inverse)
    turned = sign_bit(x) ^ (quadrant << (x.dtype.bits - 1))
    return from_bits(bits_of(_is_odd(quadrant).where(odd, even)) ^ turned, x.dtype)


def _along(r: UOp, low: UOp) -> UOp:
    """Return the sine of ``r + low``."""
    z = r * r
    p = polynomial(z, _CONSTANTS[r.dtype].sin)
    if r.dtype is dt.float32:
        return r + fma(z * r, p, low)
    return r + fma(z * r, p, fma(negated(z * 0.5), low, low))


def _across(r: UOp, low: UOp) -> UOp:
    """Return the cosine of ``r + low``."""
    z = r * r
    p = _CONSTANTS[r.dtype].cos
    if r.dtype is dt.float32:
        return polynomial(z, (1.0, -0.5, *p))
    half = z * 0.5
    whole = r.const_like(1.0) - half
    rest = (r.const_like(1.0) - whole) - half
    return whole + fma(z * z, polynomial(z, p), fma(negated(r), low, rest))


def _is_odd(quadrant: UOp) -> UOp:
    return (quadrant & 1).ne(0)


def _signed(value: UOp, quadrant: UOp, sign: UOp | None) -> UOp:
    """Return `value`, negated in the second half of the circle and where `sign` is set."""
    half = (quadrant << (value.dtype.bits - 2)) & (1 << (value.dtype.bits - 1))
    return from_bits(bits_of(value) ^ (half if sign is None else half ^ sign), value.dtype)
