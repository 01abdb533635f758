"""Functions of each element with derivatives in closed form, which say more than their parts."""

from __future__ import annotations

import math
from typing import Final

from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.composite_ops import sigmoid
from kernelrt.tensor.nodes.float_parts import copysign

__all__ = ["erfinv", "hypot", "log_add", "logit", "sinc", "xlog1py", "xlogy"]

#: erfinv(x) / x as a polynomial in w = -log(1 - x**2) up to 6.25, then in its root: Chebyshev fits
#: to values of 40 digits, off by less than 3e-7. Highest powers first.
_CENTER: Final = (
    -4.613402191017829e-09, 1.212239895610075e-07, -9.829311254063413e-07, -1.3463490737975706e-06,
    6.120021748750709e-05, -0.00015789399805436494, -0.0023032058806764875, 0.011532843314001366,
    0.23201688080282482, 0.8862268244570428,
)  # fmt: skip
_TAIL: Final = (
    1.38550393971e-07, -5.96188128752e-06, 0.000110274760034, -0.00111583418956, 0.00622807758372,
    -0.0123134332881, -0.0788245809031, 0.727869062004, -2.80907731306, 6.15227989474,
    -6.487210735, 3.79979291265,
)  # fmt: skip
_CENTER_ENDS: Final = 6.25


def _number(value: float, x: UOp) -> UOp:
    return build.full(value, x.dtype, x.shape)


def _polynomial(x: UOp, terms: tuple[float, ...]) -> UOp:
    total = _number(terms[0], x)
    for c in terms[1:]:
        total = build.multiply_add(total, x, _number(c, x))
    return total


def hypot(a: UOp, b: UOp) -> UOp:
    """``sqrt(a**2 + b**2)``, also where squares would overflow or vanish."""
    left, right = a.alu(Op.ABS), b.alu(Op.ABS)
    most = left.alu(Op.MAX, right)
    power = 200 if a.dtype.bits == 32 else 1600
    great, small = 2.0 ** (power // 4), 2.0 ** (-power // 4)
    far = _number(great, a).alu(Op.LT, most)
    scale = build.where(far, small * small, _number(1, a))
    back = build.where(far, great * great, _number(1, a))
    near = most.alu(Op.LT, _number(small, a))
    scale = build.where(near, great * great, scale)
    back = build.where(near, small * small, back)
    left, right = left.alu(Op.MUL, scale), right.alu(Op.MUL, scale)
    root = build.multiply_add(left, left, right.alu(Op.MUL, right)).alu(Op.SQRT).alu(Op.MUL, back)
    endless = _number(math.inf, a)
    infinite = a.alu(Op.ABS).eq(endless).alu(Op.OR, b.alu(Op.ABS).eq(endless))
    return custom(build.where(infinite, math.inf, root), _hypot_rule, a, b)


def _hypot_rule(node: UOp, g: UOp, i: int) -> UOp:
    return build.mul(g, node.arg.inputs[i].alu(Op.DIV, node))


def log_add(a: UOp, b: UOp, *, base_2: bool = False) -> UOp:
    """The logarithm of the sum of the numbers whose logarithms are given, to base e or 2."""
    far = build.neg(_gap(a, b).alu(Op.ABS))
    power = far.alu(Op.EXP2 if base_2 else Op.EXP)
    more = power.alu(Op.LOG1P)
    if base_2:
        more = build.mul(more, 1 / math.log(2))
    return custom(a.alu(Op.MAX, b).alu(Op.ADD, more), _log_add_rule, a, b, arg=base_2)


def _gap(a: UOp, b: UOp) -> UOp:
    """``a - b``, and 0 also where infinities are equal."""
    return build.where(a.eq(b), 0, a.alu(Op.SUB, b))


def _log_add_rule(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.arg.inputs
    # Equal infinities must not be subtracted: the slope of what is not chosen is no number.
    same = a.eq(b).alu(Op.AND, a.alu(Op.ABS).eq(_number(math.inf, a)))
    gap = build.where(same, 0, a).alu(Op.SUB, build.where(same, 0, b))
    if node.arg.arg:
        gap = build.mul(gap, math.log(2))
    return build.mul(g, sigmoid(build.neg(gap) if i else gap))


def xlogy(a: UOp, b: UOp) -> UOp:
    """``a * log(b)``; 0 where `a` is, unless `b` is NaN."""
    value = build.where(_nothing(a, b), 0, a.alu(Op.MUL, b.alu(Op.LOG)))
    return custom(value, _xlogy_rule, a, b, arg=0)


def xlog1py(a: UOp, b: UOp) -> UOp:
    """``a * log(1 + b)``; 0 where `a` is, unless `b` is NaN."""
    value = build.where(_nothing(a, b), 0, a.alu(Op.MUL, b.alu(Op.LOG1P)))
    return custom(value, _xlogy_rule, a, b, arg=1)


def _nothing(a: UOp, b: UOp) -> UOp:
    return a.eq(build.zeros_like(a)).alu(Op.AND, b.eq(b))


def _xlogy_rule(node: UOp, g: UOp, i: int) -> UOp:
    (a, b), more = node.arg.inputs, node.arg.arg
    if i:
        return build.mul(g, a.alu(Op.DIV, build.add(b, more)))
    no_log = b.alu(Op.LE, _number(-more, b))
    none = a.eq(build.zeros_like(a)).alu(Op.AND, no_log)
    log = build.where(none, 1, b).alu(Op.LOG1P if more else Op.LOG)
    return build.where(none, 0, build.mul(g, log))


def logit(x: UOp, eps: float | None) -> UOp:
    """``log(x / (1 - x))``, of elements clamped to ``[eps, 1 - eps]`` where that is given."""
    held = x
    if eps is not None:
        held = x.alu(Op.MAX, _number(eps, x)).alu(Op.MIN, _number(1 - eps, x))
    value = held.alu(Op.DIV, _number(1, x).alu(Op.SUB, held)).alu(Op.LOG)
    return custom(value, _logit_rule, x, arg=eps)


def _logit_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,), eps = node.arg.inputs, node.arg.arg
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
    inside = _number(low, x).alu(Op.LE, x).alu(Op.AND, x.alu(Op.LE, _number(high, x)))
    chosen = build.where(inside, x, 0.5)
    slope = build.div(g, chosen.alu(Op.MUL, _number(1, x).alu(Op.SUB, chosen)))
    return build.where(inside, slope, math.nan if eps is None else 0)


def sinc(x: UOp) -> UOp:
    """``sin(pi * x) / (pi * x)``, and 1 at 0."""
    turned = build.mul(x, math.pi)
    nothing = turned.eq(build.zeros_like(x))
    value = turned.alu(Op.SIN).alu(Op.DIV, build.where(nothing, 1, turned))
    return custom(build.where(nothing, 1, value), _sinc_rule, x)


def _sinc_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    turned = build.mul(x, math.pi)
    # Near 0 the quotient loses its digits, the series does not.
    near = turned.alu(Op.ABS).alu(Op.LT, _number(1, x))
    held = build.where(near, turned, 0)
    series = tuple(
        (-1) ** n * 2 * n / math.factorial(2 * n + 1) for n in range(10, 0, -1)
    )
    close = held.alu(Op.MUL, _polynomial(held.alu(Op.MUL, held), series))
    away = build.where(near, 1, turned)
    far = away.alu(Op.COS).alu(Op.SUB, away.alu(Op.SIN).alu(Op.DIV, away)).alu(Op.DIV, away)
    return build.mul(g, build.mul(build.where(near, close, far), math.pi))


def erfinv(x: UOp) -> UOp:
    """The number whose error function is `x`; infinite at -1 and 1, NaN beyond.

    A fit, then one step of Halley's method, whose error is the cube of that of the fit.
    """
    size, one = x.alu(Op.ABS), _number(1, x)
    rest = one.alu(Op.SUB, size)
    w = build.neg(rest.alu(Op.MUL, one.alu(Op.ADD, size)).alu(Op.LOG))
    close = w.alu(Op.LT, _number(_CENTER_ENDS, x))
    near = _polynomial(build.where(close, w, 0), _CENTER)
    root = build.where(close, _CENTER_ENDS, w).alu(Op.SQRT)
    y = size.alu(Op.MUL, build.where(close, near, _polynomial(root, _TAIL)))
    upper = _number(0.5, x).alu(Op.LT, size)
    off = build.where(upper, rest.alu(Op.SUB, y.alu(Op.ERFC)), y.alu(Op.ERF).alu(Op.SUB, size))
    bell = y.alu(Op.MUL, y).alu(Op.EXP)
    step = build.mul(off.alu(Op.MUL, bell), math.sqrt(math.pi) / 2)
    y = y.alu(Op.SUB, step.alu(Op.DIV, build.multiply_add(y, step, one)))
    y = build.where(size.eq(one), math.inf, y)
    return custom(copysign(y, x), _erfinv_rule, x)


def _erfinv_rule(node: UOp, g: UOp, _i: int) -> UOp:
    slope = node.alu(Op.MUL, node).alu(Op.EXP)
    return build.mul(g, build.mul(slope, math.sqrt(math.pi) / 2))
