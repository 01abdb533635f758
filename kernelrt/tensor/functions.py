"""Elementwise functions of nodes that are made of several ops.

Those with a derivative in closed form carry it as a mark, so that gradients do not go through
their parts.
"""

from __future__ import annotations

import math

from kernelrt.errors import DTypeError
from kernelrt.ir import Op, UOp
from kernelrt.tensor import build
from kernelrt.tensor.marks import custom

__all__ = ["difference", "expm1", "floor_divide", "log1p", "power", "product", "quotient",
           "remainder", "reversed_quotient", "rsqrt", "sigmoid", "sign", "softplus", "step",
           "total", "truncated_remainder", "whole_power"]  # fmt: skip


def total(a: UOp, b: UOp) -> UOp:
    """``a + b``; the or of bools."""
    return a.alu(Op.OR if a.dtype.is_bool else Op.ADD, b)


def product(a: UOp, b: UOp) -> UOp:
    """``a * b``; the and of bools."""
    return a.alu(Op.AND if a.dtype.is_bool else Op.MUL, b)


def quotient(a: UOp, b: UOp) -> UOp:
    """``a / b`` of floats."""
    return a.alu(Op.DIV, b)


def reversed_quotient(a: UOp, b: UOp) -> UOp:
    """``b / a`` of floats."""
    return b.alu(Op.DIV, a)


def difference(a: UOp, b: UOp) -> UOp:
    """``a - b``."""
    if a.dtype.is_bool:
        raise DTypeError("sub: bools have no difference; use ^ or logical_not, or cast them")
    return a.alu(Op.SUB, b)


def floor_divide(a: UOp, b: UOp) -> UOp:
    """The exact ``a / b`` rounded down; 0 where an integer divisor is 0."""
    if a.dtype.is_bool:
        raise DTypeError("//: bools have no quotient; cast them to integers")
    return a.alu(Op.IDIV, b)


def remainder(a: UOp, b: UOp) -> UOp:
    """What :func:`floor_divide` leaves, with the sign of `b`."""
    if a.dtype.is_bool:
        raise DTypeError("%: bools have no remainder; cast them to integers")
    return a.alu(Op.MOD, b)


def power(a: UOp, b: UOp) -> UOp:
    """``a ** b``; integers wrap, and a negative power of one is what a quotient would give."""
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
    # Of negative powers only those of 1 and -1 are not 0.
    minus = build.neg(one)
    odd = b.alu(Op.AND, one).ne(zero)
    inverse = build.where(a.eq(minus), build.where(odd, minus, one), zero)
    inverse = build.where(a.eq(one), one, inverse)
    return build.where(b.alu(Op.LT, zero), inverse, result)


def whole_power(a: UOp, exponent: int) -> UOp:
    """Integers to the power of one number that is not negative, by repeated squaring.

    The powers of an odd number modulo 2**bits repeat after 2**(bits - 2) of them, and those of an
    even number are 0 from ``bits`` on, so that no greater exponent is needed.
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
    """What the quotient rounded towards zero leaves, with the sign of `a`; exact."""
    if a.dtype.is_bool:
        raise DTypeError("fmod: bools have no remainder; cast them to integers")
    if a.dtype.is_unsigned:
        return a.alu(Op.MOD, b)
    zero = build.zeros_like(a)
    if a.dtype.is_float:
        rest = a.alu(Op.ABS).alu(Op.MOD, b.alu(Op.ABS))
        signed = build.where(a.alu(Op.LT, zero), rest.alu(Op.NEG), rest)
        return custom(signed, _truncated_rule, a, b)
    # The floored remainder has the sign of the divisor.
    rest = a.alu(Op.MOD, b)
    other = rest.ne(zero).alu(Op.AND, rest.alu(Op.XOR, a).alu(Op.LT, zero))
    return build.where(other, rest.alu(Op.SUB, b), rest)


def _truncated_rule(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.arg.inputs
    return g if i == 0 else build.neg(build.mul(g, a.alu(Op.DIV, b).alu(Op.TRUNC)))


def sign(x: UOp) -> UOp:
    """-1, 0 or 1; 0 for NaN."""
    zero = build.zeros_like(x)
    if x.dtype.is_bool or x.dtype.is_unsigned:
        return x.ne(zero).cast(x.dtype)
    out = build.where(zero.alu(Op.LT, x), 1, build.where(x.alu(Op.LT, zero), -1, zero))
    return step(out, x) if x.dtype.is_float else out


def step(value: UOp, *inputs: UOp) -> UOp:
    """A value that changes in steps only: its derivative by `inputs` is zero."""
    return custom(value, _no_slope, *inputs)


def _no_slope(node: UOp, _g: UOp, i: int) -> UOp:
    return build.zeros_like(node.arg.inputs[i])


def rsqrt(x: UOp) -> UOp:
    """``1 / sqrt(x)``."""
    root = build.full(1, x.dtype, x.shape).alu(Op.DIV, x.alu(Op.SQRT))
    return custom(root, _rsqrt_rule, x)


def _rsqrt_rule(node: UOp, g: UOp, _i: int) -> UOp:
    u = node.src[0]
    return build.mul(build.mul(g, -0.5), u.alu(Op.MUL, u.alu(Op.MUL, u)))


def log1p(x: UOp) -> UOp:
    """``log(1 + x)``: the rounding error of ``1 + x`` is divided out again."""
    one = build.full(1, x.dtype, x.shape)
    u = one.alu(Op.ADD, x)
    corrected = u.alu(Op.LOG).alu(Op.MUL, x.alu(Op.DIV, u.alu(Op.SUB, one)))
    plain = u.eq(one).alu(Op.OR, u.eq(build.full(math.inf, x.dtype, x.shape)))
    return custom(build.where(plain, x, corrected), _log1p_rule, x)


def _log1p_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.div(g, build.add(x, 1))


def expm1(x: UOp) -> UOp:
    """``exp(x) - 1``: the rounding error of ``exp(x)`` is divided out again."""
    one = build.full(1, x.dtype, x.shape)
    u = x.alu(Op.EXP)
    less = u.alu(Op.SUB, one)
    corrected = less.alu(Op.MUL, x.alu(Op.DIV, u.alu(Op.LOG)))
    extreme = less.eq(build.neg(one)).alu(Op.OR, u.eq(build.full(math.inf, x.dtype, x.shape)))
    out = build.where(u.eq(one), x, build.where(extreme, less, corrected))
    return custom(out, _expm1_rule, x)


def _expm1_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.mul(g, x.alu(Op.EXP))


def sigmoid(x: UOp) -> UOp:
    """``1 / (1 + exp(-x))``: exp may overflow to infinity, whose reciprocal is the right 0."""
    one = build.full(1, x.dtype, x.shape)
    value = one.alu(Op.DIV, x.alu(Op.NEG).alu(Op.EXP).alu(Op.ADD, one))
    return custom(value, _sigmoid_rule, x)


def _sigmoid_rule(node: UOp, g: UOp, _i: int) -> UOp:
    u = node.src[0]
    return build.mul(g, u.alu(Op.MUL, build.sub(build.full(1, u.dtype, u.shape), u)))


def softplus(x: UOp) -> UOp:
    """``log(1 + exp(x))`` without overflow."""
    zero = build.zeros_like(x)
    small = log1p(x.alu(Op.ABS).alu(Op.NEG).alu(Op.EXP))
    return custom(x.alu(Op.MAX, zero).alu(Op.ADD, small), _softplus_rule, x)


def _softplus_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,) = node.arg.inputs
    return build.mul(g, sigmoid(x))
