"""What comes of the normal distribution: its tail, and the unit that weighs by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir import Op
from kernelrt.tensor import build
from kernelrt.tensor.marks import custom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.dtype import DType
    from kernelrt.ir import UOp

__all__ = ["gelu"]


@dataclass(frozen=True, slots=True)
class _Ratio:
    """The tail of the distribution over exp(-a**2 / 2), for `a` from 0 to `last`.

    Attributes
    ----------
    last : float
        From here on the tail is below the least number of the type.
    above, below : tuple of float
        Coefficients of the polynomials whose quotient it is, without that of the highest power of
        the first, which is 1. All are positive: nothing cancels.
    """

    last: float
    above: tuple[float, ...]
    below: tuple[float, ...]


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float.fromhex(word) for word in text.split())


_RATIOS: Final[dict[DType, _Ratio]] = {
    # Minimax of the relative error, rounded by search: 2**-26.3.
    dt.float32: _Ratio(
        14.6,
        _floats(
            "0x1.e4fc38p+6 0x1.a95448p+6 0x1.63c198p+5 0x1.3bb268p+3"
        ),
        _floats(
            "0x1.e4fc38p+7 0x1.962554p+8 0x1.23bfc4p+8 0x1.c7c1b2p+6 0x1.8bb130p+4"
            " 0x1.40d842p+1"
        ),
    ),
    # Interpolation in 400-bit arithmetic: relative error 2**-56.4, rounded 2**-54.6.
    dt.float64: _Ratio(
        38.8,
        _floats(
            "0x1.60e18844f9195p+21 0x1.1e049d216a769p+22 0x1.cc83ceec37603p+21"
            " 0x1.daf05a3d26e58p+20 0x1.57f023a0623dep+19 0x1.6b9f8a3a21555p+17"
            " 0x1.1ba8c950e220fp+15 0x1.42a2c019394d7p+12 0x1.00c883e627836p+9"
            " 0x1.03bbaf4ba8235p+5"
        ),
        _floats(
            "0x1.60e18844f9195p+22 0x1.aacc132edb0f4p+23 0x1.e29272ae4ca8bp+23"
            " 0x1.514c9fea9dfadp+23 0x1.4493d0c46788bp+22 0x1.c4a8da047e368p+20"
            " 0x1.d43626c0bf003p+18 0x1.6885f3b4e18e0p+16 0x1.96e83908e5915p+13"
            " 0x1.4274ed96d2147p+10 0x1.4586f7f03af9fp+6 0x1.40d931ff610ebp+1"
        ),
    ),
}
_DENSITY_AT_0: Final = 1 / math.sqrt(2 * math.pi)


def gelu(x: UOp) -> UOp:
    """`x` times the normal distribution function of `x`.

    Far below 0 that is a small number, which is computed as such: 1 + erf would cancel.
    """
    a = _size(x)
    tail = _bell(a).alu(Op.MUL, _ratio(a))
    value = build.multiply_add(a.alu(Op.NEG), tail, build.where(_negative(x), 0, x))
    return custom(value, _gelu_rule, x)


def _gelu_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    a = _size(x)
    # Of the negative argument; for the positive one the two sum up to 1.
    rest = build.multiply_add(a, _full(-_DENSITY_AT_0, a), _ratio(a))
    below = _bell(a).alu(Op.MUL, rest)
    slope = build.where(_negative(x), below, build.sub(_full(1, x), below))
    return build.mul(g, slope)


def _full(value: float, x: UOp) -> UOp:
    return build.full(value, x.dtype, x.shape)


def _negative(x: UOp) -> UOp:
    return x.alu(Op.LT, build.zeros_like(x))


def _size(x: UOp) -> UOp:
    """The magnitude of `x`, no greater than where the tail vanishes; NaN stays."""
    a, last = x.alu(Op.ABS), _full(_RATIOS[x.dtype].last, x)
    return build.where(last.alu(Op.LT, a), last, a)


def _bell(x: UOp) -> UOp:
    """``exp(-x**2 / 2)``; what the square rounds off would be multiplied by it."""
    half = build.mul(x, 0.5)
    square = half.alu(Op.MUL, x)
    low = build.multiply_add(half, x, square.alu(Op.NEG))
    power = square.alu(Op.NEG).alu(Op.EXP)
    return custom(build.multiply_add(power.alu(Op.NEG), low, power), _bell_rule, x)


def _bell_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.neg(build.mul(g, build.mul(x, node)))


def _ratio(a: UOp) -> UOp:
    """The tail beyond `a` over ``exp(-a**2 / 2)``."""
    known = _RATIOS[a.dtype]
    *rest, last = known.above
    above = _horner(build.add(a, last), a, rest)
    *rest, last = known.below
    return custom(above.alu(Op.DIV, _horner(_full(last, a), a, rest)), _ratio_rule, a)


def _horner(total: UOp, a: UOp, coefficients: Sequence[float]) -> UOp:
    for coefficient in reversed(coefficients):
        total = build.multiply_add(total, a, _full(coefficient, a))
    return total


def _ratio_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (a,) = node.arg.inputs
    return build.mul(g, build.sub(build.mul(a, node), _DENSITY_AT_0))
