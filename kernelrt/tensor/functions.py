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

__all__ = ["difference", "expm1", "floor_divide", "log1p", "power", "remainder", "rsqrt",
           "sigmoid", "softplus"]  # fmt: skip


def difference(a: UOp, b: UOp) -> UOp:
    """``a - b``."""
    if a.dtype.is_bool:
        raise DTypeError("sub: bools have no difference; use ^ or logical_not, or cast them")
    return a.alu(Op.SUB, b)


def floor_divide(a: UOp, b: UOp) -> UOp:
    """``a / b`` rounded down; 0 where an integer divisor is 0."""
    if a.dtype.is_float:
        return a.alu(Op.DIV, b).alu(Op.FLOOR)
    if a.dtype.is_bool:
        raise DTypeError("//: bools have no quotient; cast them to integers")
    return a.alu(Op.IDIV, b)


def remainder(a: UOp, b: UOp) -> UOp:
    """What :func:`floor_divide` leaves, with the sign of `b`."""
    if a.dtype.is_float:
        return a.alu(Op.SUB, floor_divide(a, b).alu(Op.MUL, b))
    if a.dtype.is_bool:
        raise DTypeError("%: bools have no remainder; cast them to integers")
    return a.alu(Op.MOD, b)


def power(a: UOp, b: UOp) -> UOp:
    """``a ** b``; a negative power of an integer is what an integer quotient would give."""
    if a.dtype.is_float:
        return a.alu(Op.POW, b)
    if a.dtype.is_bool:
        raise DTypeError("**: bools have no powers; cast them to integers")
    # Repeated squaring over the bits of the exponent. Of negative powers only those of 1 and -1
    # are not 0.
    exponent = b.alu(Op.ABS) if not b.dtype.is_unsigned else b
    one = build.full(1, a.dtype, a.shape)
    zero = build.zeros_like(a)
    value = build.const_value(b)
    bits = a.dtype.bits.bit_length() if value is None else max(1, int(value).bit_length())
    result, base = one, a
    for bit in range(bits):
        odd = exponent.alu(Op.SHR, build.full(bit, b.dtype, b.shape)).alu(Op.AND, one).ne(zero)
        result = build.where(odd, result.alu(Op.MUL, base), result)
        base = base.alu(Op.MUL, base)
    unit = a.alu(Op.MUL, a).eq(one)
    return build.where(b.alu(Op.LT, zero).alu(Op.AND, unit.alu(Op.NOT)), zero, result)


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
    return build.mul(g, build.add(node.src[0], 1))


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
