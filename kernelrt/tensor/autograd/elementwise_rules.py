"""The derivatives of functions of one element.

Where a derivative is no function of its own it carries a rule, so that second derivatives neither
overflow nor lose their digits on the way through its parts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.gamma import digamma

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SLOPES"]


def _one(x: UOp) -> UOp:
    return build.full(1, x.dtype, x.shape)


def _exp(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, u)


def _exp2(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(build.mul(g, math.log(2)), u)


def _expm1(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, u.src[0].alu(Op.EXP))


def _log(u: UOp, g: UOp, _i: int) -> UOp:
    return build.div(g, u.src[0])


def _log2(u: UOp, g: UOp, _i: int) -> UOp:
    return build.div(build.mul(g, 1 / math.log(2)), u.src[0])


def _log10(u: UOp, g: UOp, _i: int) -> UOp:
    return build.div(build.mul(g, 1 / math.log(10)), u.src[0])


def _log1p(u: UOp, g: UOp, _i: int) -> UOp:
    return build.div(g, build.add(u.src[0], 1))


def _sin(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, u.src[0].alu(Op.COS))


def _cos(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(build.neg(g), u.src[0].alu(Op.SIN))


def _tan(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, build.multiply_add(u, u, _one(u)))


def _sinh(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, u.src[0].alu(Op.COSH))


def _cosh(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, u.src[0].alu(Op.SINH))


def _tanh(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, build.multiply_add(build.neg(u), u, _one(u)))


def _erf(u: UOp, g: UOp, _i: int) -> UOp:
    x = u.src[0]
    bell = x.alu(Op.MUL, x).alu(Op.NEG).alu(Op.EXP)
    return build.mul(build.mul(g, 2 / math.sqrt(math.pi)), bell)


def _erfc(u: UOp, g: UOp, i: int) -> UOp:
    return build.neg(_erf(u, g, i))


def _lgamma(u: UOp, g: UOp, _i: int) -> UOp:
    # In the type of sums: a narrow one holds neither its terms nor their squares.
    slope = digamma(u.src[0].cast(u.dtype.accumulator))
    return build.mul(g, slope.cast(u.dtype))


def _powers(x: UOp, slope: UOp, power: int, factor: float) -> UOp:
    """`slope` of `x`, whose own derivative is ``factor * x * slope ** power``."""
    return custom(slope, _power_rule, x, arg=(power, factor))


def _power_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,), (power, factor) = node.arg.inputs, node.arg.arg
    bend = x.alu(Op.MUL, node)  # first, since it is neither great nor small
    for _ in range(power - 1):
        bend = bend.alu(Op.MUL, node)
    return build.mul(g, build.mul(bend, factor))


def _sides(x: UOp) -> tuple[UOp, UOp]:
    """1 - x and 1 + x."""
    return _one(x).alu(Op.SUB, x), _one(x).alu(Op.ADD, x)


def _circle(x: UOp) -> UOp:
    below, above = _sides(x)
    return _powers(x, _one(x).alu(Op.DIV, below.alu(Op.MUL, above).alu(Op.SQRT)), 3, 1.0)


def _asin(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(g, _circle(u.src[0]))


def _acos(u: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(build.neg(g), _circle(u.src[0]))


def _atan(u: UOp, g: UOp, _i: int) -> UOp:
    x = u.src[0]
    slope = _one(x).alu(Op.DIV, build.multiply_add(x, x, _one(x)))
    return build.mul(g, _powers(x, slope, 2, -2.0))


def _asinh(u: UOp, g: UOp, _i: int) -> UOp:
    x, one = u.src[0], _one(u)
    size = x.alu(Op.ABS)
    far = one.alu(Op.LT, size)  # where the square might overflow
    t = build.where(far, one.alu(Op.DIV, build.where(far, size, one)), size)
    root = build.multiply_add(t, t, one).alu(Op.SQRT)
    return build.mul(g, _powers(x, build.where(far, t, one).alu(Op.DIV, root), 3, -1.0))


def _acosh(u: UOp, g: UOp, _i: int) -> UOp:
    x, one = u.src[0], _one(u)
    roots = x.alu(Op.SUB, one).alu(Op.SQRT).alu(Op.MUL, x.alu(Op.ADD, one).alu(Op.SQRT))
    return build.mul(g, _powers(x, one.alu(Op.DIV, roots), 3, -1.0))


def _atanh(u: UOp, g: UOp, _i: int) -> UOp:
    x = u.src[0]
    below, above = _sides(x)
    return build.mul(g, _powers(x, _one(x).alu(Op.DIV, below.alu(Op.MUL, above)), 2, 2.0))


def _atan2(u: UOp, g: UOp, i: int) -> UOp:
    """By y ``x / (x**2 + y**2)``, by x ``-y / (x**2 + y**2)``, without squares of great numbers.

    Both are 0 where x and y are.
    """
    y, x = u.src
    flat = y.alu(Op.ABS).alu(Op.LT, x.alu(Op.ABS))
    great, less = build.where(flat, x, y), build.where(flat, y, x)
    # 0 is not divided by: the derivative of what is not chosen would be no number.
    nothing = great.eq(build.zeros_like(great))
    great = build.where(nothing, 1, great)
    t = less.alu(Op.DIV, great)
    whole = great.alu(Op.MUL, build.multiply_add(t, t, _one(t)))
    side = build.where(flat, t, 1) if i else build.where(flat, 1, t)
    slope = build.mul(g, build.where(nothing, 0, side.alu(Op.DIV, whole)))
    return build.neg(slope) if i else slope


SLOPES: dict[Op, Callable[[UOp, UOp, int], UOp]] = {
    Op.EXP: _exp, Op.EXP2: _exp2, Op.EXPM1: _expm1, Op.LOG: _log, Op.LOG2: _log2,
    Op.LOG10: _log10, Op.LOG1P: _log1p, Op.SIN: _sin, Op.COS: _cos, Op.TAN: _tan, Op.ASIN: _asin,
    Op.ACOS: _acos, Op.ATAN: _atan, Op.ATAN2: _atan2, Op.SINH: _sinh, Op.COSH: _cosh,
    Op.TANH: _tanh, Op.ASINH: _asinh, Op.ACOSH: _acosh, Op.ATANH: _atanh, Op.ERF: _erf,
    Op.ERFC: _erfc, Op.LGAMMA: _lgamma,
}  # fmt: skip
