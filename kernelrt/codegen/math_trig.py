"""sin and cos, for arguments of any size.

x = n pi/2 + r with abs(r) about pi/4 at most; n chooses between two polynomials in r and the sign.
What is hard is r where x is large or close to a multiple of pi/2: the quotient x * 2/pi must be
known to many more bits than x has. Only its remainder by 4 matters, so bits of 2/pi that turn x
by whole circles are left out, chosen lane by lane. Everything is computed once for both sin and
cos of one x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.codegen.math_parts import (
    FORMATS,
    bits_of,
    exact_product,
    exact_sum,
    floats,
    fma,
    from_bits,
    negated,
    ordered_sum,
    polynomial,
    sign_bit,
)
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp, const

if TYPE_CHECKING:
    from kernelrt.dtype import DType

__all__ = ["cos", "sin"]

# 2/pi for float32 arguments from 2**exponent on, each as a sum of two float64. A float32 of that
# size is a multiple of 2**shift, shift at most exponent - 23: whatever adds a multiple of 4 to
# 2**shift * 2/pi is left out. Exponents and shifts (27, 54 and 79) were searched such that the
# second numbers are small; they move a quotient by at most 0.045.
_QUARTERS_FLOAT32: Final = (
    (0, "0x1.45f306dc9c883p-1 -0x1.6b01ec5417056p-55"),
    (50, "-0x1.1b1bbead603d9p-28 0x1.5f47d4d377037p-82"),
    (77, "0x1.4a7f09d5f47d5p-54 -0x1.6447e493ad4cep-109"),
    (103, "-0x1.505c1596447e5p-81 0x1.b14acc9e21c82p-135"),
)

# sin r = r + r**3 P(r**2) and cos r = 1 - r**2 / 2 + r**4 P(r**2): minimax of the relative error.
_SIN: Final[dict[DType, tuple[float, ...]]] = {
    # abs(r) <= 0.8555, which is pi/4 and the 0.045 from above: 2**-27.0
    dt.float32: floats("-0x1.55553ap-3 0x1.110322p-7 -0x1.97f87ep-13"),
    # abs(r) <= pi/4: 2**-57.8
    dt.float64: floats(
        "-0x1.5555555555548p-3 0x1.111111110f730p-7 -0x1.a01a019bea0acp-13 0x1.71de3556cd063p-19"
        " -0x1.ae5e4d838239dp-26 0x1.5d8c23922ad69p-33"
    ),
}
_COS: Final[dict[DType, tuple[float, ...]]] = {
    # 2**-31.6
    dt.float32: floats("0x1.555542p-5 -0x1.6c07a6p-10 0x1.98b6cep-16"),
    # 2**-63.9
    dt.float64: floats(
        "0x1.555555555554bp-5 -0x1.6c16c16c1500dp-10 0x1.a01a019c8dd2ap-16 -0x1.27e4f7f05165ep-22"
        " 0x1.1ee9daccdf465p-29 -0x1.8fa5ed6c9f6e7p-37"
    ),
}
_HALF_PI: Final = floats("0x1.921fb54442d18p+0 0x1.1a62633145c07p-54")


def sin(x: UOp) -> UOp:
    """The sine of a float32 or float64 node."""
    quadrant, along, across = _turned(x)
    odd = (quadrant & 1).ne(0)
    return _signed(odd.where(across, along), quadrant, sign_bit(x))


def cos(x: UOp) -> UOp:
    """The cosine of a float32 or float64 node."""
    quadrant, along, across = _turned(x)
    odd = (quadrant & 1).ne(0)
    return _signed(odd.where(along, across), quadrant + 1, None)


def _turned(x: UOp) -> tuple[UOp, UOp, UOp]:
    """N of abs(x) = n pi/2 + r as an integer (mod 4 at least), sin r and cos r."""
    if x.dtype is dt.float32:
        quadrant, r = _reduced_float32(x.alu(Op.ABS))
        z = r * r
        along = fma(z * r, polynomial(z, _SIN[x.dtype]), r)
        return quadrant, along, polynomial(z, (1.0, -0.5, *_COS[x.dtype]))
    quadrant, r, low = _reduced_float64(x.alu(Op.ABS))
    z = r * r
    half = z * 0.5
    along = r + fma(z * r, polynomial(z, _SIN[x.dtype]), fma(negated(half), low, low))
    whole = x.const_like(1.0) - half
    rest = (x.const_like(1.0) - whole) - half
    fine = fma(z * z, polynomial(z, _COS[x.dtype]), fma(negated(r), low, rest))
    return quadrant, along, whole + fine


def _signed(value: UOp, quadrant: UOp, sign: UOp | None) -> UOp:
    """`value`, negated in the second half of the circle and where `sign` is set."""
    half = (quadrant << (value.dtype.bits - 2)) & (1 << (value.dtype.bits - 1))
    return from_bits(bits_of(value) ^ (half if sign is None else half ^ sign), value.dtype)


def _reduced_float32(a: UOp) -> tuple[UOp, UOp]:
    """N mod 4 and r for `a`, which is not negative, by way of float64.

    ``a * first - n`` is exact in FMA or rounded far below what float32 sees.
    """
    wide = a.cast(dt.float64)
    first, second = (const(c, dt.float64) for c in floats(_QUARTERS_FLOAT32[0][1]))
    for exponent, row in _QUARTERS_FLOAT32[1:]:
        beyond = wide >= 2.0**exponent
        high, low = floats(row)
        first = beyond.where(const(high, dt.float64), first)
        second = beyond.where(const(low, dt.float64), second)
    rounder = FORMATS[dt.float64].rounder
    shifted = fma(wide, first, rounder)
    y = fma(wide, second, fma(wide, first, negated(shifted - rounder)))
    return bits_of(shifted).cast(dt.uint32), (y * _HALF_PI[0]).cast(dt.float32)


# float64 ------------------------------------------------------------------------------------------

# The fraction of 2/pi to 1168 bits, which serves every float64.
_TWO_OVER_PI: Final = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e00649"
    "2eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8b"
    "bdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5"
    "f17b3d0739f78a5292ea6bfb5fb11f8d5d085603",
    16,
)
_BITS: Final = 1168
#: Bits of 2/pi in one constant: a product with a float64 is the exact sum of two.
_CHUNK: Final = 53
#: Constants in use at a time; what they lack moves a quotient by less than 2**-104.
_CHUNKS: Final = 4
#: From 2**(54 + 53 k) on, products with the first k constants are multiples of 4.
_FIRST: Final = 54
_STEPS: Final = (16, 8, 4, 2, 1)


def _chunk(place: int) -> float:
    """Bits of 2/pi from `place` times 53 on, as a fraction."""
    bits = _TWO_OVER_PI >> (_BITS - _CHUNK * (place + 1)) & ((1 << _CHUNK) - 1)
    return math.ldexp(bits, -_CHUNK)


def _aligned(a: UOp) -> tuple[UOp, list[UOp]]:
    """`a` scaled to be below 2**107, and the constants that then matter.

    Selection by binary digits: each step shifts the row of constants and scales `a` to match.
    """
    row = [const(_chunk(k), dt.float64) for k in range(_BITS // _CHUNK)]
    for step in _STEPS:
        beyond = a >= 2.0 ** (_FIRST + _CHUNK * step)
        a = beyond.where(a * 2.0 ** (-_CHUNK * step), a)
        kept = row[: step + _CHUNKS - 1]
        row = [
            beyond.where(row[k + step], c) if k + step < len(row) else c for k, c in enumerate(kept)
        ]
    return a, row


def _reduced_float64(a: UOp) -> tuple[UOp, UOp, UOp]:
    """N mod 4 and r as a sum of two, for `a`, which is not negative."""
    scaled, chunks = _aligned(a)
    products = []
    for place, chunk in enumerate(chunks):
        products.append(exact_product(scaled * 2.0 ** (-_CHUNK * place), chunk))
    (h0, l0), (h1, l1), (h2, l2), (h3, _) = products
    total, low = _modulo4(h0), l2 + h3
    for part in (_modulo4(l0), _modulo4(h1), l1, h2):
        total, error = exact_sum(total, part)
        low = low + error
    rounder = FORMATS[dt.float64].rounder
    shifted = total + rounder
    y, y_low = ordered_sum(total - (shifted - rounder), low)
    r, r_low = exact_product(y, _HALF_PI[0])
    r_low = fma(y_low, _HALF_PI[0], fma(y, _HALF_PI[1], r_low))
    # Below pi/4 the argument itself is exact, however small.
    turned = a > _HALF_PI[0] / 2
    return bits_of(shifted), turned.where(r, a), turned.where(r_low, a.const_like(0.0))


def _modulo4(x: UOp) -> UOp:
    return fma((x * 0.25).alu(Op.ROUND), -4.0, x)
