"""Building blocks of the approximations: formats, constants and exact steps.

All are sequences of simple ops without branches, so that LLVM turns each node into one vector
instruction. They rely on these conventions:

- FMA rounds once, MUL followed by ADD twice: LLVM only fuses FMA nodes.
- On targets without a fused multiply-add instruction there is no FMA: :func:`fma` rounds twice,
  and steps that depend on the single rounding use products of halves, which are exact.
- Additions are never reassociated: adding and subtracting a large number rounds to an integer.
- Comparisons with NaN are false; the order of the operands of each WHERE is chosen so that NaN
  takes the branch that keeps it.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.dtype import DType

__all__ = [
    "FORMATS",
    "FUSES",
    "Format",
    "at_least",
    "at_most",
    "bits_of",
    "either_polynomial",
    "exact_product",
    "exact_sum",
    "floats",
    "fma",
    "from_bits",
    "halves",
    "in_halves",
    "is_tiny",
    "less_multiple",
    "negated",
    "ordered_sum",
    "polynomial",
    "power_of_two",
    "product",
    "rarely",
    "residue",
    "sign_bit",
    "upper_half",
    "with_sign_of",
]


@dataclass(frozen=True, slots=True)
class Format:
    """Layout of an IEEE binary format.

    Attributes
    ----------
    dtype : DType
        The floating type.
    unsigned, signed : DType
        Integer types of its width.
    fraction : int
        Number of stored bits of the significand.
    bias : int
        Exponent bias.
    """

    dtype: DType
    unsigned: DType
    signed: DType
    fraction: int
    bias: int

    @property
    def rounder(self) -> float:
        """Constant that rounds to an integer when added. The low bits of the sum hold it."""
        return 1.5 * 2.0**self.fraction

    @property
    def least_normal(self) -> float:
        """The smallest positive normal number."""
        return 2.0 ** (1 - self.bias)


FORMATS: Final = {
    dt.float32: Format(dt.float32, dt.uint32, dt.int32, 23, 127),
    dt.float64: Format(dt.float64, dt.uint64, dt.int64, 52, 1023),
}


def floats(text: str) -> tuple[float, ...]:
    """Parse hexadecimal floats separated by blanks. They represent the constants exactly."""
    return tuple(float.fromhex(word) for word in text.split())


#: Whether the target has a fused multiply-add instruction. ``decompositions.py`` sets it.
FUSES: Final[ContextVar[bool]] = ContextVar("FUSES", default=True)


def fma(a: UOp, b: UOp | float, c: UOp | float) -> UOp:
    """Return ``a * b + c``, with one rounding if the target has an instruction for it."""
    return a.alu(Op.FMA, b, c) if FUSES.get() else a * b + c


def is_tiny(x: UOp) -> UOp:
    """Return whether `x` is so small that ``1 + x`` rounds to 1; zeros keep their signs."""
    return x.alu(Op.ABS) < 2.0 ** -(FORMATS[x.dtype].fraction + 2)


def negated(x: UOp) -> UOp:
    """Return ``-x``. Inside an FMA it costs nothing."""
    return UOp(Op.NEG, x.dtype, (x,))


def polynomial(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """Return ``c[0] + c[1] x + ...``, by Horner's rule in FMA."""
    total = x.const_like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


def either_polynomial(
    choice: UOp, x: UOp, yes: tuple[float, ...], no: tuple[float, ...]
) -> UOp:
    """Return the polynomial with coefficients `yes` where `choice` is true, else with `no`.

    This takes less time than a second polynomial, because processors have more execution units for
    selects than for multiplications.
    """

    def chosen(k: int) -> UOp:
        both = (c[k] if k < len(c) else 0.0 for c in (yes, no))
        return choice.where(*(x.const_like(c) for c in both))

    degree = max(len(yes), len(no)) - 1
    total = chosen(degree)
    for k in reversed(range(degree)):
        total = fma(total, x, chosen(k))
    return total


def in_halves(x: UOp, square: UOp, coefficients: tuple[float, ...]) -> UOp:
    """Return :func:`polynomial` as the sum of its even and odd powers, with half the latency.

    This saves time if `square`, which is ``x * x``, is needed in any case.
    """
    odd = polynomial(square, coefficients[1::2])
    return fma(odd, x, polynomial(square, coefficients[0::2]))


def product(a: UOp, b: UOp | float) -> UOp:
    """Return ``a * b``, rounded."""
    return a * b


def at_most(x: UOp, limit: float) -> UOp:
    """Return the minimum of `x` and `limit`; NaN stays NaN. On x86 it is one instruction."""
    top = x.const_like(limit)
    return (top < x).where(top, x)


def at_least(x: UOp, limit: float) -> UOp:
    """Return the maximum of `x` and `limit`; NaN stays NaN."""
    bottom = x.const_like(limit)
    return (x < bottom).where(bottom, x)


def bits_of(x: UOp, dtype: DType | None = None) -> UOp:
    """Return the bits of a float as an integer of the same width, by default an unsigned one."""
    return UOp(Op.BITCAST, dtype or FORMATS[x.dtype].unsigned, (x,))


def from_bits(bits: UOp, dtype: DType) -> UOp:
    """Return the float with these bits."""
    return UOp(Op.BITCAST, dtype, (bits,))


def power_of_two(rounded: UOp) -> UOp:
    """Return 2**n, where `rounded` is ``rounder + bias + n`` and n is a normal exponent."""
    shift = FORMATS[rounded.dtype].fraction
    return from_bits(bits_of(rounded) << shift, rounded.dtype)


def sign_bit(x: UOp) -> UOp:
    """Return the bits of `x` with all but the sign bit cleared."""
    return bits_of(x) & (1 << (x.dtype.bits - 1))


def with_sign_of(magnitude: UOp, like: UOp) -> UOp:
    """Return `magnitude`, which is not negative, with the sign of `like`."""
    return from_bits(bits_of(magnitude) | sign_bit(like), like.dtype)


def rarely(condition: UOp, usual: UOp, rare: Callable[..., UOp], *inputs: UOp) -> UOp:
    """Return ``rare(*inputs)`` where `condition` is true, else `usual`, with a branch (cold path).

    The rare value is only computed for vectors in which `condition` is true for some lane. Its cost
    does not matter as long as nearly all vectors skip it.
    """
    leaves = (UOp(Op.VAR, s.dtype, (), (k, 0, 0)) for k, s in enumerate(inputs))
    return UOp(Op.COLD, usual.dtype, (condition, usual, *inputs), rare(*leaves))


# Double-word arithmetic: numbers as unevaluated sums of two -------------------------------------


def exact_product(a: UOp, b: UOp | float) -> tuple[UOp, UOp]:
    """Return ``a * b`` and its rounding error."""
    rounded = product(a, b)
    if FUSES.get():
        return rounded, fma(a, b, negated(rounded))
    high, low = halves(a)
    other, other_low = halves(b if isinstance(b, UOp) else a.const_like(b))
    rest = (high * other - rounded) + high * other_low + low * other
    return rounded, rest + low * other_low


def upper_half(number: float, dtype: DType) -> float:
    """Return the upper half of a constant; see :func:`halves`."""
    significand, exponent = math.frexp(number)
    kept = (FORMATS[dtype].fraction + 1) // 2
    return math.ldexp(round(math.ldexp(significand, kept)), exponent - kept)


def halves(x: UOp) -> tuple[UOp, UOp]:
    """Return two numbers whose sum is `x`. The products of such halves are exact."""
    if x.op is Op.CONST:
        high = upper_half(x.arg, x.dtype)
        return x.const_like(high), x.const_like(x.arg - high)
    dropped = FORMATS[x.dtype].fraction // 2 + 1
    whole = (1 << x.dtype.bits) - (1 << dropped)
    upper = (bits_of(x) + (1 << (dropped - 1))) & whole
    head = from_bits(upper, x.dtype)
    return head, x - head


def residue(c: UOp, a: UOp, b: UOp) -> UOp:
    """Return ``c - a * b`` with one rounding, where the product is close to `c`."""
    if FUSES.get():
        return fma(negated(a), b, c)
    rounded, error = exact_product(a, b)
    return (c - rounded) - error


def less_multiple(x: UOp, n: UOp, c: float) -> UOp:
    """Return ``x - n * c`` with one rounding, where the product is close to `x`.

    `n` is an integer of at most 12 bits in float32, and 26 in float64.
    """
    if FUSES.get():
        return fma(n, -c, x)
    high, low = halves(x.const_like(c))
    return (x - n * high) - n * low


def exact_sum(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Return ``a + b`` and its rounding error, for any order of magnitude (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def ordered_sum(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Return ``a + b`` and its rounding error, if `a` has the greater exponent or is 0 (Dekker)."""
    total = a + b
    return total, b - (total - a)
