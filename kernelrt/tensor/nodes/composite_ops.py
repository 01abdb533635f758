"""Elementwise functions that consist of several ops.

Functions with a derivative in closed form carry it as a tag, so that gradients do not go through
their parts.
"""

from __future__ import annotations

import sys
from typing import Final

from kernelrt.errors import DTypeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build

__all__ = [
    "at_least", "binary_loss", "clamped", "difference", "divergence", "floor_divide", "huber",
    "log_divergence", "logistic_loss", "power", "product", "quotient", "remainder",
    "reversed_quotient", "rsqrt", "settled", "sigmoid", "sign", "softplus", "step", "total",
    "truncated_remainder", "whole_power",
]  # fmt: skip


#: The greatest finite numbers of float32 and float64.
_GREATEST: Final = {32: (2 - 2.0**-23) * 2.0**127, 64: sys.float_info.max}


def settled(value: UOp, *inputs: UOp) -> UOp:
    """Return `value`, tagged as a function of `inputs` with a derivative of zero."""
    return custom(value, _no_slope, *inputs)


def _no_slope(node: UOp, _g: UOp, i: int) -> UOp:
    return build.zeros_like(node.arg.inputs[i])


def total(a: UOp, b: UOp) -> UOp:
    """Return ``a + b``; for bools, ``a | b``."""
    return a.alu(Op.OR if a.dtype.is_bool else Op.ADD, b)


def product(a: UOp, b: UOp) -> UOp:
    """Return ``a * b``; for bools, ``a & b``."""
    return a.alu(Op.AND if a.dtype.is_bool else Op.MUL, b)


def quotient(a: UOp, b: UOp) -> UOp:
    """Return ``a / b`` of floats."""
    return a.alu(Op.DIV, b)


def reversed_quotient(a: UOp, b: UOp) -> UOp:
    """Return ``b / a`` of floats."""
    return b.alu(Op.DIV, a)


def difference(a: UOp, b: UOp) -> UOp:
    """Return ``a - b``."""
    if a.dtype.is_bool:
        raise DTypeError("sub: bools have no difference; use ^ or logical_not, or cast them")
    return a.alu(Op.SUB, b)


def floor_divide(a: UOp, b: UOp) -> UOp:
    """Return the exact ``a / b`` rounded down; 0 where an integer divisor is 0."""
    if a.dtype.is_bool:
        raise DTypeError("//: bools have no quotient; cast them to integers")
    return a.alu(Op.IDIV, b)


def remainder(a: UOp, b: UOp) -> UOp:
    """Return the remainder of :func:`floor_divide`, with the sign of `b`."""
    if a.dtype.is_bool:
        raise DTypeError("%: bools have no remainder; cast them to integers")
    return a.alu(Op.MOD, b)


def power(a: UOp, b: UOp) -> UOp:
    """Return ``a ** b``; integers wrap around, and ``2 ** -1`` of integers is 0."""
    if a.dtype.is_float:
        return a.alu(Op.POW, b)
    if a.dtype.is_bool:
        raise DTypeError("**: bools have no powers; cast them to integers")
    value = build.const_value(b)
    if value is not None and value >= 0:
        return whole_power(a, int(value))
    # Repeated squaring over every bit that the exponent can have.
    one, zero = build.full(1, a.dtype, a.shape), build.zeros_like(a)
    result, base = one, a
    for bit in range(b.vmax.bit_length() if b.vmax > 0 else 0):
        odd = b.alu(Op.SHR, build.full(bit, b.dtype, b.shape)).alu(Op.AND, one).ne(zero)
        result = build.where(odd, result.alu(Op.MUL, base), result)
        base = base.alu(Op.MUL, base)
    if b.vmin >= 0:
        return result
    # Negative powers are 0, except those of 1 and -1.
    minus = build.neg(one)
    odd = b.alu(Op.AND, one).ne(zero)
    inverse = build.where(a.eq(minus), build.where(odd, minus, one), zero)
    inverse = build.where(a.eq(one), one, inverse)
    return build.where(b.alu(Op.LT, zero), inverse, result)


def whole_power(a: UOp, exponent: int) -> UOp:
    """Raise integers to a non-negative constant power by repeated squaring.

    Large exponents are reduced first. Modulo 2**bits, the powers of an odd number repeat with
    period 2**(bits - 2), and those of an even number are 0 from the exponent ``bits`` on.
    """
    bits = a.dtype.bits
    if exponent >= bits:
        exponent = bits + (exponent - bits) % (1 << (bits - 2))
    result, base = None, a
    while exponent:
        if exponent & 1:
            result = base if result is None else result.alu(Op.MUL, base)
        exponent >>= 1
        base = base.alu(Op.MUL, base) if exponent else base
    return build.full(1, a.dtype, a.shape) if result is None else result


def truncated_remainder(a: UOp, b: UOp) -> UOp:
    """Return the exact remainder of the truncated quotient, with the sign of `a`."""
    if a.dtype.is_bool:
        raise DTypeError("fmod: bools have no remainder; cast them to integers")
    if a.dtype.is_unsigned:
        return a.alu(Op.MOD, b)
    zero = build.zeros_like(a)
    if a.dtype.is_float:
        rest = a.alu(Op.ABS).alu(Op.MOD, b.alu(Op.ABS))
        # For a == 0 the product rest * a is a zero with the sign of `a`, or NaN if `rest` is.
        upper = build.where(zero.alu(Op.LT, a), rest, rest.alu(Op.MUL, a))
        signed = build.where(a.alu(Op.LT, zero), rest.alu(Op.NEG), upper)
        return custom(signed, _truncated_rule, a, b)
    # The floored remainder has the sign of the divisor.
    rest = a.alu(Op.MOD, b)
    other = rest.ne(zero).alu(Op.AND, rest.alu(Op.XOR, a).alu(Op.LT, zero))
    return build.where(other, rest.alu(Op.SUB, b), rest)


def _truncated_rule(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.arg.inputs
    return g if i == 0 else build.neg(build.mul(g, a.alu(Op.DIV, b).alu(Op.TRUNC)))


def sign(x: UOp) -> UOp:
    """Return -1, 0 or 1; 0 for NaN."""
    zero = build.zeros_like(x)
    if x.dtype.is_bool or x.dtype.is_unsigned:
        return x.ne(zero).cast(x.dtype)
    out = build.where(zero.alu(Op.LT, x), 1, build.where(x.alu(Op.LT, zero), -1, zero))
    return step(out, x) if x.dtype.is_float else out


def step(value: UOp, *inputs: UOp) -> UOp:
    """Return `value`, a step function of `inputs`, tagged with a derivative of zero."""
    return custom(value, _no_slope, *inputs)


def rsqrt(x: UOp) -> UOp:
    """Return ``1 / sqrt(x)``."""
    root = build.full(1, x.dtype, x.shape).alu(Op.DIV, x.alu(Op.SQRT))
    return custom(root, _rsqrt_rule, x)


def _rsqrt_rule(node: UOp, g: UOp, _i: int) -> UOp:
    return build.mul(build.mul(g, -0.5), node.alu(Op.MUL, node.alu(Op.MUL, node)))


def sigmoid(x: UOp) -> UOp:
    """Return ``1 / (1 + exp(-x))``; if exp overflows to infinity, the result is a correct 0."""
    one = build.full(1, x.dtype, x.shape)
    power = x.alu(Op.NEG).alu(Op.EXP)
    value = one.alu(Op.DIV, power.alu(Op.ADD, one))
    return custom(value, _sigmoid_rule, x, parts=(power,))


def _sigmoid_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # 1 - node is computed as power * node, which is accurate also if node is close to 1.
    (power,) = node.arg.parts
    most = build.full(_GREATEST[node.dtype.bits], node.dtype, node.shape)
    slope = node.alu(Op.MUL, node.alu(Op.MUL, power.alu(Op.MIN, most)))
    return build.mul(g, custom(slope, _bend_rule, *node.arg.inputs, parts=(node,)))


def _bend_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (share,) = node.arg.parts
    return build.mul(g, node.alu(Op.MUL, build.sub(_less(share), share)))


def _both_sides(x: UOp) -> tuple[UOp, UOp]:
    """Return ``sigmoid(x)`` and ``sigmoid(-x)``, from the same exponential as in softplus."""
    power = x.alu(Op.ABS).alu(Op.NEG).alu(Op.EXP)
    most = build.full(1, x.dtype, x.shape).alu(Op.DIV, build.add(power, 1))
    least = power.alu(Op.MUL, most)
    above = build.zeros_like(x).alu(Op.LE, x)
    return (
        custom(build.where(above, most, least), _side_rule, x, arg=False),
        custom(build.where(above, least, most), _side_rule, x, arg=True),
    )


def _side_rule(node: UOp, g: UOp, _i: int) -> UOp:
    one, other = _both_sides(node.arg.inputs[0])
    slope = build.mul(g, one.alu(Op.MUL, other))
    return build.neg(slope) if node.arg.arg else slope


def softplus(x: UOp) -> UOp:
    """Return ``log(1 + exp(x))`` without overflow."""
    zero = build.zeros_like(x)
    small = x.alu(Op.ABS).alu(Op.NEG).alu(Op.EXP).alu(Op.LOG1P)
    return custom(x.alu(Op.MAX, zero).alu(Op.ADD, small), _softplus_rule, x)


def _softplus_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.mul(g, sigmoid(x))


def clamped(x: UOp, low: UOp | None, high: UOp | None, *, closed: bool = True) -> UOp:
    """Return ``min(max(x, low), high)``; NaN in `x` or in a limit gives NaN.

    The derivative by `x` is 1 between the limits, and 0 outside and for NaN. `closed` says whether
    it is 1 at the limits themselves.
    """
    beyond = Op.LT if closed else Op.LE
    out = x
    if low is not None:
        out = build.where(_or_nan(out.alu(beyond, low), low), low, out)
    if high is not None:
        out = build.where(_or_nan(high.alu(beyond, out), high), high, out)
    if not x.dtype.is_float or out is x:
        return out
    limits = tuple(u for u in (low, high) if u is not None)
    return custom(out, _clamped_rule, x, *limits, arg=(low is not None, closed))


def _or_nan(condition: UOp, limit: UOp) -> UOp:
    """Return ``condition | isnan(limit)``."""
    value = build.const_value(limit)
    if not limit.dtype.is_float or (value is not None and value == value):
        return condition
    return condition.alu(Op.OR, limit.ne(limit))


def _clamped_rule(node: UOp, g: UOp, i: int) -> UOp:
    (x, *limits), (has_low, closed) = node.arg.inputs, node.arg.arg
    low = limits[0] if has_low else None
    high = limits[-1] if len(limits) > has_low else None
    if i == 0:
        within = Op.LE if closed else Op.LT
        sides = [low.alu(within, x)] if low is not None else []
        sides += [x.alu(within, high)] if high is not None else []
        return build.where(sides[0] if len(sides) == 1 else sides[0].alu(Op.AND, sides[1]), g, 0)
    if low is None or high is None:
        chosen = x.alu(Op.LT, low) if low is not None else limits[0].alu(Op.LT, x)
    elif i == 1:
        chosen = x.alu(Op.LT, low).alu(Op.AND, low.alu(Op.LE, high))
    else:
        chosen = high.alu(Op.LT, x).alu(Op.OR, high.alu(Op.LT, low))
    return build.where(chosen, g, 0)


def huber(x: UOp, edge: float, scale: float = 1) -> UOp:
    """Return the Huber loss over `scale`: ``x**2 / 2`` up to ``|x| = edge``, then linear."""
    size = x.alu(Op.ABS)
    near = build.mul(build.mul(x, 0.5), build.div(x, scale))
    far = build.mul(build.sub(size, edge / 2), edge / scale)
    inside = size.alu(Op.LT, build.full(edge, x.dtype, x.shape))
    return custom(build.where(inside, near, far), _huber_rule, x, arg=(edge, scale))


def _huber_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,), (edge, scale) = node.arg.inputs, node.arg.arg
    low, high = (build.full(v, x.dtype, x.shape) for v in (-edge, edge))
    slope = build.where(high.alu(Op.LE, x), edge / scale, build.div(x, scale))
    return build.mul(g, build.where(x.alu(Op.LE, low), -edge / scale, slope))


def logistic_loss(x: UOp, y: UOp, factor: UOp | None = None) -> UOp:
    """Return ``-factor * y * log(sigmoid(x)) - (1 - y) * log(sigmoid(-x))`` without overflow.

    A term with weight 0 is 0, even if its logarithm is infinite.
    """
    sure = build.where(build.zeros_like(x).alu(Op.LT, x), _less(y), _scaled(y, factor))
    flat = softplus(build.neg(x.alu(Op.ABS)))
    if factor is not None:
        flat = flat.alu(Op.MUL, build.add(_less(y), _scaled(y, factor)))
    out = _weighted(sure, x.alu(Op.ABS)).alu(Op.ADD, flat)
    return custom(out, _logistic_rule, x, y, *(() if factor is None else (factor,)))


def _less(y: UOp) -> UOp:
    return build.sub(build.full(1, y.dtype, y.shape), y)


def _scaled(y: UOp, factor: UOp | None) -> UOp:
    return y if factor is None else y.alu(Op.MUL, factor)


def _weighted(weight: UOp, x: UOp) -> UOp:
    """Return ``weight * x``; 0 where the weight is 0, even for infinities."""
    return build.where(weight.eq(build.zeros_like(weight)), 0, weight.alu(Op.MUL, x))


def _logistic_rule(node: UOp, g: UOp, i: int) -> UOp:
    x, y, *rest = node.arg.inputs
    factor = rest[0] if rest else None
    if i == 0:
        # Not sigmoid(x) - y: for large scores it cancels and loses all digits.
        likely, unlikely = _both_sides(x)
        share = build.mul(likely, _less(y))
        return build.mul(g, build.sub(share, build.mul(unlikely, _scaled(y, factor))))
    below = softplus(build.neg(x))
    if i == 2:
        return build.mul(g, _weighted(y, below))
    if factor is None:
        return build.neg(build.mul(g, x))
    return build.mul(g, build.sub(_weighted(factor, below), softplus(x)))


def binary_loss(x: UOp, y: UOp) -> UOp:
    """Return ``-y * log(x) - (1 - y) * log(1 - x)``, with logarithms clamped to -100."""
    likely, unlikely = _bounded(x.alu(Op.LOG)), _bounded(build.neg(x).alu(Op.LOG1P))
    out = build.neg(y.alu(Op.MUL, likely).alu(Op.ADD, _less(y).alu(Op.MUL, unlikely)))
    return custom(out, _binary_rule, x, y)


def _bounded(x: UOp) -> UOp:
    least = build.full(-100, x.dtype, x.shape)
    return build.where(x.alu(Op.LT, least), least, x)


def _binary_rule(node: UOp, g: UOp, i: int) -> UOp:
    x, y = node.arg.inputs
    if i == 0:
        # Near 0 and 1 the derivative is bounded too, as in PyTorch.
        width = x.alu(Op.MUL, _less(x)).alu(Op.MAX, build.full(1e-12, x.dtype, x.shape))
        return build.mul(g, build.sub(x, y).alu(Op.DIV, width))
    return build.mul(g, build.sub(_bounded(build.neg(x).alu(Op.LOG1P)), _bounded(x.alu(Op.LOG))))


def divergence(x: UOp, y: UOp) -> UOp:
    """Return ``y * (log(y) - x)``; 0 where `y` is 0, unless `x` is NaN."""
    out = y.alu(Op.MUL, y.alu(Op.LOG).alu(Op.SUB, x))
    return custom(build.where(_nothing(x, y), 0, out), _divergence_rule, x, y)


def _nothing(x: UOp, y: UOp) -> UOp:
    return y.eq(build.zeros_like(y)).alu(Op.AND, x.eq(x))


def log_divergence(x: UOp, y: UOp) -> UOp:
    """Return ``exp(y) * (y - x)``; 0 where ``exp(y)`` is 0, unless `x` is NaN."""
    chance = y.alu(Op.EXP)
    return chance.alu(Op.MUL, build.where(_nothing(x, chance), 0, y.alu(Op.SUB, x)))


def _divergence_rule(node: UOp, g: UOp, i: int) -> UOp:
    x, y = node.arg.inputs
    if i == 0:
        return build.neg(build.mul(g, y))
    slope = build.mul(g, build.add(build.sub(y.alu(Op.LOG), x), 1))
    return build.where(_nothing(x, y), 0, slope)


def at_least(x: UOp, least: float) -> UOp:
    """Return ``max(x, least)``; the gradient passes through everywhere."""
    return custom(x.alu(Op.MAX, build.full(least, x.dtype, x.shape)), _passed, x)


def _passed(_node: UOp, g: UOp, _i: int) -> UOp:
    return g
