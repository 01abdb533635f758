"""Elementwise special functions, with derivatives in closed form."""

from __future__ import annotations

import math
from typing import Final

from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.composite_ops import sigmoid, sign
from kernelrt.tensor.nodes.float_parts import copysign

__all__ = [
    "bessel_i", "digamma", "erfinv", "hypot", "log_add", "logit", "polygamma", "sinc", "xlog1py",
    "xlogy",
]  # fmt: skip

#: erfinv(x) / x as a polynomial in w = -log(1 - x**2) up to 6.25, and in sqrt(w) beyond: Chebyshev
#: fits to values of 40 digits, with errors below 3e-7. Highest powers first.
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
    """Return ``sqrt(a**2 + b**2)``, also if the squares would overflow or underflow."""
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
    """Return ``log(exp(a) + exp(b))``, or the same to base 2."""
    far = build.neg(_gap(a, b).alu(Op.ABS))
    power = far.alu(Op.EXP2 if base_2 else Op.EXP)
    more = power.alu(Op.LOG1P)
    if base_2:
        more = build.mul(more, 1 / math.log(2))
    return custom(a.alu(Op.MAX, b).alu(Op.ADD, more), _log_add_rule, a, b, arg=base_2)


def _gap(a: UOp, b: UOp) -> UOp:
    """Return ``a - b``; 0 for equal infinities."""
    return build.where(a.eq(b), 0, a.alu(Op.SUB, b))


def _log_add_rule(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.arg.inputs
    # Equal infinities must not be subtracted, even in a branch not chosen: its derivative is NaN.
    same = a.eq(b).alu(Op.AND, a.alu(Op.ABS).eq(_number(math.inf, a)))
    gap = build.where(same, 0, a).alu(Op.SUB, build.where(same, 0, b))
    if node.arg.arg:
        gap = build.mul(gap, math.log(2))
    return build.mul(g, sigmoid(build.neg(gap) if i else gap))


def xlogy(a: UOp, b: UOp) -> UOp:
    """Return ``a * log(b)``; 0 where `a` is 0, unless `b` is NaN."""
    value = build.where(_nothing(a, b), 0, a.alu(Op.MUL, b.alu(Op.LOG)))
    return custom(value, _xlogy_rule, a, b, arg=0)


def xlog1py(a: UOp, b: UOp) -> UOp:
    """Return ``a * log(1 + b)``; 0 where `a` is 0, unless `b` is NaN."""
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
    """Return ``log(x / (1 - x))``; clamp `x` to ``[eps, 1 - eps]`` first if `eps` is given."""
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
    """Return ``sin(pi * x) / (pi * x)``; 1 at 0."""
    turned = build.mul(x, math.pi)
    nothing = turned.eq(build.zeros_like(x))
    value = turned.alu(Op.SIN).alu(Op.DIV, build.where(nothing, 1, turned))
    return custom(build.where(nothing, 1, value), _sinc_rule, x)


def _sinc_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    turned = build.mul(x, math.pi)
    # Near 0 the quotient loses digits; the series does not.
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
    """Return the inverse error function of `x`; infinite at -1 and 1, NaN beyond.

    The result is that of a polynomial fit, improved by one step of Halley's method, which cubes the
    relative error of the fit.
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


# ---- modified Bessel functions of the first kind, of orders 0 and 1
#
# exp(-|x|) * I(x) is a Chebyshev series in x up to 8; beyond, sqrt(x) times it is one in 1 / x. The
# coefficients were computed from values of 40 digits; those below the precision of a dtype are left
# out.

_NEAR_0: Final = (
    0.6767952744094761, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764,
    0.04930528423967071, -0.02373741480589947, 0.010546460394594998, -0.004324309995050576,
    0.0016394756169413357, -0.0005763755745385824, 0.00018850288509584165,
    -5.754195010082104e-05, 1.6448448070728896e-05, -4.4167383584587505e-06,
    1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08,
    -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10,
    9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13,
    7.676185498604936e-14, -1.1685332877993451e-14, 1.715391285555133e-15,
    -2.431279846547955e-16, 3.3307945188222384e-17, -4.4153416464793395e-18,
    5.669178006921496e-19,
)  # fmt: skip
_FAR_0: Final = (
    0.8044904110141088, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11,
    -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
    -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15,
    1.7725601330565263e-15, -3.425485619677219e-16, -2.8276239805165836e-16,
    3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18, -7.233180487874754e-18,
    9.921475412173699e-19,
)  # fmt: skip
_NEAR_1: Final = (
    0.25258718644363365, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499,
    0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532,
    0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05,
    -1.3273163656039436e-05, 3.4702513081376785e-06, -8.568720264695455e-07,
    2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09,
    -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13,
    -5.042185504727912e-14, 7.600684294735408e-15, -1.1055969477353862e-15,
    1.5536319577362005e-16, -2.111421214358166e-17, 2.7779141127610464e-18,
    -3.541581772542136e-19, 4.379302756655071e-20,
)  # fmt: skip
_FAR_1: Final = (
    0.7785762350182801, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17,
    -4.6503053684893586e-17, 4.414348323071708e-18, 7.517296310842105e-18,
    -9.314178867326884e-19,
)  # fmt: skip

_SERIES: Final = ((_NEAR_0, _FAR_0), (_NEAR_1, _FAR_1))
_NEAR_ENDS: Final = 8.0


def _chebyshev(t: UOp, terms: tuple[float, ...]) -> UOp:
    """Evaluate a Chebyshev series at `t` in [-1, 1] by Clenshaw's recurrence (DLMF 3.11.15)."""
    shown = 2.0**-56 if t.dtype.bits == 64 else 2.0**-28
    used = [c for c in terms if abs(c) > shown]
    twice = build.mul(t, 2)
    above, total = build.zeros_like(t), build.zeros_like(t)
    for c in reversed(used[1:]):
        above, total = total, build.multiply_add(twice, total, build.sub(_number(c, t), above))
    return build.multiply_add(t, total, build.sub(_number(used[0] / 2, t), above))


def bessel_i(x: UOp, order: int, *, scaled: bool) -> UOp:
    """Return the Bessel function I of `order` 0 or 1; with `scaled`, times ``exp(-|x|)``."""
    near_terms, far_terms = _SERIES[order]
    size = x.alu(Op.ABS)
    close = size.alu(Op.LE, _number(_NEAR_ENDS, x))
    held = build.where(close, size, 0)
    near = _chebyshev(build.sub(build.mul(held, 0.25), 1), near_terms)
    near = near.alu(Op.MUL, held) if order else near
    away = build.where(close, _NEAR_ENDS, size)
    inverse = build.full(16, x.dtype, x.shape).alu(Op.DIV, away)
    far = _chebyshev(build.sub(inverse, 1), far_terms).alu(Op.DIV, away.alu(Op.SQRT))
    value = build.where(close, near, far)
    if order:
        value = build.where(x.alu(Op.LT, build.zeros_like(x)), build.neg(value), value)
    if not scaled:
        # In two factors: the power may overflow although the product does not.
        power = build.mul(size, 0.5).alu(Op.EXP)
        value = value.alu(Op.MUL, power).alu(Op.MUL, power)
    if not order:
        # The series is off by some digits near 0, where 1, scaled 1 - |x|, is right to the last.
        tiny = size.alu(Op.LT, _number(2.0 ** -(x.dtype.digits // 2 + 2), x))
        one = _number(1, x)
        value = build.where(tiny, build.sub(one, size) if scaled else one, value)
    value = build.where(x.ne(x), x, value)
    return custom(value, _bessel_rule, x, arg=(order, scaled))


def _bessel_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return the gradient: I0' is I1, and I1' is I0 - I1 / x (DLMF 10.29.2)."""
    (x,), (order, scaled) = node.arg.inputs, node.arg.arg
    other = bessel_i(x, 1 - order, scaled=scaled)
    if order:
        nothing = x.eq(build.zeros_like(x))
        share = node.alu(Op.DIV, build.where(nothing, 1, x))
        other = build.where(nothing, 0.5, other.alu(Op.SUB, share))
    if scaled:
        other = other.alu(Op.SUB, sign(x).alu(Op.MUL, node))
    return build.mul(g, other)


# ---- derivatives of the logarithm of the gamma function

#: Least argument of the asymptotic series; the recurrence moves smaller arguments there.
_FAR: Final = 8
#: From here on the recurrence changes no digit; below it, its squares are finite.
_LAST: Final = 2.0**60
#: Bernoulli numbers of even index, from B_2 on, as fractions. Coefficients computed from them are
#: one quotient of integers, which is rounded once.
_BERNOULLI: Final = (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510),
)  # fmt: skip


def digamma(x: UOp) -> UOp:
    """Return the derivative of lgamma.

    Above 1/2 it is computed by the recurrence and the asymptotic series (DLMF 5.5.2 and 5.11.2),
    below 1/2 by reflection (DLMF 5.5.4). It is NaN at negative integers, -inf at 0.0 and inf at
    -0.0.
    """
    one = _number(1, x)
    low, y = _upper(x)
    value = _number(0, x)
    near = y.alu(Op.MIN, _number(_LAST, x))
    for k in range(0, _FAR, 2):  # two steps of 1 / (y + k) each
        first, second = build.add(near, k), build.add(near, k + 1)
        steps = first.alu(Op.ADD, second).alu(Op.DIV, first.alu(Op.MUL, second))
        value = value.alu(Op.SUB, steps)
    far = build.add(y, _FAR)
    inverse = one.alu(Op.DIV, far)
    terms = [-b / (2 * k * over) for k, (b, over) in enumerate(_BERNOULLI, 1)]
    square = inverse.alu(Op.MUL, inverse)
    series = _horner(square, terms).alu(Op.MUL, square)
    series = build.multiply_add(_number(-0.5, x), inverse, series)
    value = far.alu(Op.LOG).alu(Op.ADD, series.alu(Op.ADD, value))
    turned = value.alu(Op.SUB, build.mul(_cotangent(x), math.pi))
    pole = x.eq(x.alu(Op.ROUND)).alu(Op.AND, x.alu(Op.LT, _number(0, x)))
    turned = build.where(pole, math.nan, turned)
    turned = build.where(x.eq(_number(0, x)), _number(-1, x).alu(Op.DIV, x), turned)
    return custom(build.where(low, turned, value), _digamma_rule, x)


def _digamma_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.mul(g, polygamma(1, x))


def polygamma(n: int, x: UOp) -> UOp:
    """Return the derivative of order `n`, at least 1, of :func:`digamma`.

    Up to its sign, it is n! times a Hurwitz zeta function (DLMF 5.15.1), which is computed by
    Euler-Maclaurin summation (DLMF 25.11.28).
    """
    power = n + 1
    low, y = _upper(x)
    one = _number(1, x)
    count = _FAR + n
    inverse = one.alu(Op.DIV, build.add(y, count))
    factors = [1 / n]
    rising = power
    for k, (b, over) in enumerate(_BERNOULLI, 1):
        factors.append(b * rising / (over * math.factorial(2 * k)))
        rising *= (power + 2 * k - 1) * (power + 2 * k)
    square = inverse.alu(Op.MUL, inverse)
    even = _horner(square, factors)
    tail = build.multiply_add(_number(0.5, x), inverse, even)
    value = _whole_power(inverse, n).alu(Op.MUL, tail)
    for k in reversed(range(count)):  # adds the greatest term last
        value = value.alu(Op.ADD, one.alu(Op.DIV, _whole_power(build.add(y, k), power)))
    value = build.mul(value, float((-1) ** (n + 1) * math.factorial(n)))
    bend = build.mul(_derivative_of_cotangent(n, x), -(math.pi ** (n + 1)))
    turned = bend.alu(Op.ADD, value if n % 2 == 0 else value.alu(Op.NEG))
    return custom(build.where(low, turned, value), _polygamma_rule, x, arg=n)


def _polygamma_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.mul(g, polygamma(node.arg.arg + 1, x))


def _upper(x: UOp) -> tuple[UOp, UOp]:
    """Return whether `x` is below 1/2, and the greater of x and 1 - x."""
    low = x.alu(Op.LT, _number(0.5, x))
    return low, build.where(low, _number(1, x).alu(Op.SUB, x), x)


def _cotangent(x: UOp) -> UOp:
    """Return cot(pi x), from the exact distance to the nearest integer."""
    rest = x.alu(Op.SUB, x.alu(Op.ROUND))
    return _number(1, x).alu(Op.DIV, build.mul(rest, math.pi).alu(Op.TAN))


def _derivative_of_cotangent(n: int, x: UOp) -> UOp:
    """Return the `n`-th derivative of cot at pi x, a polynomial in cot: cot' = -(1 + cot**2)."""
    terms = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(terms)][1:]
        terms = [0] * (len(slope) + 2)
        for k, c in enumerate(slope):
            terms[k] -= c
            terms[k + 2] -= c
    return _horner(_cotangent(x), [float(c) for c in terms])


def _horner(x: UOp, terms: list[float]) -> UOp:
    total = _number(terms[-1], x)
    for c in reversed(terms[:-1]):
        total = build.multiply_add(total, x, _number(c, x))
    return total


def _whole_power(x: UOp, power: int) -> UOp:
    """Raise `x` to a positive integer power by repeated squaring."""
    result: UOp | None = None
    while power:
        if power & 1:
            result = x if result is None else result.alu(Op.MUL, x)
        power >>= 1
        x = x.alu(Op.MUL, x) if power else x
    assert result is not None
    return result
