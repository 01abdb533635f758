"""Range reduction of angles of any size: the remainder by a quarter of the circle.

x = n pi/2 + r with abs(r) at most about pi/4. If x is large or close to a multiple of pi/2, r needs
the quotient x * 2/pi to many more bits than x has. Only the quotient modulo 4 matters, so the
product leaves out the bits of 2/pi that contribute whole circles. The bits to use are selected for
each lane.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import const
from kernelrt.loops.math.primitives import (
    FORMATS,
    FUSES,
    bits_of,
    exact_product,
    exact_sum,
    floats,
    fma,
    negated,
    ordered_sum,
)

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["quarters"]

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

_HALF_PI: Final = floats("0x1.921fb54442d18p+0 0x1.1a62633145c07p-54")


def quarters(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Return an integer equal to n modulo 4, r, and the rounding error of r, for ``a >= 0``."""
    return _reduced_float32(a) if a.dtype is dt.float32 else _reduced_float64(a)


def _reduced_float32(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Return :func:`quarters` of a float32, computed in float64.

    ``a * first - n`` is exact in FMA, or rounded far below the precision of float32. Without FMA
    the error of the product may move it beyond 1/2, so it is rounded again.
    """
    wide = a.cast(dt.float64)
    first, second = (const(c, dt.float64) for c in floats(_QUARTERS_FLOAT32[0][1]))
    for exponent, row in _QUARTERS_FLOAT32[1:]:
        beyond = wide >= 2.0**exponent
        high, low = floats(row)
        first = beyond.where(const(high, dt.float64), first)
        second = beyond.where(const(low, dt.float64), second)
    rounder = FORMATS[dt.float64].rounder
    if FUSES.get():
        shifted = fma(wide, first, rounder)
        y = fma(wide, second, fma(wide, first, negated(shifted - rounder)))
        n = bits_of(shifted).cast(dt.uint32)
    else:
        quotient, error = exact_product(wide, first)
        shifted = quotient + rounder
        y = (quotient - (shifted - rounder)) + error
        again = y + rounder
        y = (y - (again - rounder)) + wide * second
        n = (bits_of(shifted) + bits_of(again)).cast(dt.uint32)
    rest = y * _HALF_PI[0]
    near = rest.cast(dt.float32)
    return n, near, (rest - near.cast(dt.float64)).cast(dt.float32)


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
#: Constants in use at a time. The bits after them change a quotient by less than 2**-104.
_CHUNKS: Final = 4
#: From 2**(54 + 53 k) on, products with the first k constants are multiples of 4.
_FIRST: Final = 54
_STEPS: Final = (16, 8, 4, 2, 1)


def _chunk(place: int) -> float:
    """Return 53 bits of 2/pi, from bit ``53 * place`` on, as a fraction."""
    bits = _TWO_OVER_PI >> (_BITS - _CHUNK * (place + 1)) & ((1 << _CHUNK) - 1)
    return math.ldexp(bits, -_CHUNK)


def _aligned(a: UOp) -> tuple[UOp, list[UOp]]:
    """Return `a` scaled below 2**107, and the constants to multiply it with.

    The method is a binary search. Each step shifts the list of constants, and scales `a`
    accordingly.
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
    """Return n modulo 4, and r as an unevaluated sum of two, for ``a >= 0``."""
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
