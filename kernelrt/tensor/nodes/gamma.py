"""The derivatives of the logarithm of the gamma function."""

from __future__ import annotations

import math
from typing import Final

from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build

__all__ = ["digamma", "polygamma"]

#: From so far on the asymptotic series hold; what is less is moved there by the recurrence.
_FAR: Final = 8
#: From so far on the recurrence changes no digit, and below its squares are finite.
_LAST: Final = 2.0**60
#: The Bernoulli numbers of even index, from B_2 on, as fractions. What is made of them is one
#: quotient of whole numbers, which is rounded once.
_BERNOULLI: Final = (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510),
)  # fmt: skip


def digamma(x: UOp) -> UOp:
    """The derivative of lgamma.

    Above 1/2 by the recurrence and the asymptotic series (DLMF 5.5.2 and 5.11.2), below by
    reflection (DLMF 5.5.4). NaN at the poles, of which 0 has two sides, told by its sign.
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
    """The derivative of order `n`, at least 1, of :func:`digamma`.

    n! times a Hurwitz zeta function, by Euler-Maclaurin summation (DLMF 5.15.1 and 25.11.28).
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
    for k in reversed(range(count)):  # the greatest last
        value = value.alu(Op.ADD, one.alu(Op.DIV, _whole_power(build.add(y, k), power)))
    value = build.mul(value, float((-1) ** (n + 1) * math.factorial(n)))
    bend = build.mul(_derivative_of_cotangent(n, x), -(math.pi ** (n + 1)))
    turned = bend.alu(Op.ADD, value if n % 2 == 0 else value.alu(Op.NEG))
    return custom(build.where(low, turned, value), _polygamma_rule, x, arg=n)


def _polygamma_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.mul(g, polygamma(node.arg.arg + 1, x))


def _number(value: float, x: UOp) -> UOp:
    return build.full(value, x.dtype, x.shape)


def _upper(x: UOp) -> tuple[UOp, UOp]:
    """Whether `x` is below 1/2, and the greater of x and 1 - x."""
    low = x.alu(Op.LT, _number(0.5, x))
    return low, build.where(low, _number(1, x).alu(Op.SUB, x), x)


def _cotangent(x: UOp) -> UOp:
    """cot(pi x), by the exact distance from the nearest whole number."""
    rest = x.alu(Op.SUB, x.alu(Op.ROUND))
    return _number(1, x).alu(Op.DIV, build.mul(rest, math.pi).alu(Op.TAN))


def _derivative_of_cotangent(n: int, x: UOp) -> UOp:
    """The `n`-th derivative of cot, at pi x: a polynomial in it, as cot' = -(1 + cot**2)."""
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
    """`x` to a positive integer, by repeated squaring."""
    result: UOp | None = None
    while power:
        if power & 1:
            result = x if result is None else result.alu(Op.MUL, x)
        power >>= 1
        x = x.alu(Op.MUL, x) if power else x
    assert result is not None
    return result
