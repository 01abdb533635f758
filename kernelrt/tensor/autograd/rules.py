"""VJP rules: the derivative of each op.

``RULES[op](node, g, i)`` returns the gradient of operand `i` of `node`, given the gradient `g` of
the node's value. It returns None if no gradient flows to the operand. Where possible, rules read
the node's value instead of its operands, because the value is stored already.

Functions of several ops, such as softmax, have no op and so no rule here. Such a function puts a
rule of its own into a tag (``tags.custom``). The rule is beside the function, in tensor/nodes/ or
tensor/methods/.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelrt import dtype as dt
from kernelrt.errors import GradientError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.ffi import FfiResult
from kernelrt.tensor.autograd.product_rules import product
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.special import digamma

__all__ = ["FUNCTION_RULES", "RULES", "Rule", "unwindow"]

Rule = Callable[[UOp, UOp, int], UOp | None]


def _neg(_u: UOp, g: UOp, _i: int) -> UOp:
    return build.neg(g)


def _abs(u: UOp, g: UOp, _i: int) -> UOp:
    x = u.src[0]
    zero = build.zeros_like(x)
    negative = build.where(x.alu(Op.LT, zero), build.neg(g), zero)
    return build.where(zero.alu(Op.LT, x), g, negative)


def _sqrt(u: UOp, g: UOp, _i: int) -> UOp:
    return build.div(build.mul(g, 0.5), u)


def _cast(u: UOp, g: UOp, _i: int) -> UOp | None:
    return g.cast(u.src[0].dtype) if u.src[0].dtype.is_float else None


def _add(_u: UOp, g: UOp, _i: int) -> UOp:
    return g


def _sub(_u: UOp, g: UOp, i: int) -> UOp:
    return build.neg(g) if i else g


def _mul(u: UOp, g: UOp, i: int) -> UOp:
    return build.mul(g, u.src[1 - i])


def _div(u: UOp, g: UOp, i: int) -> UOp:
    if i == 0:
        return build.div(g, u.src[1])
    return build.neg(build.div(build.mul(g, u), u.src[1]))


def _pow(u: UOp, g: UOp, i: int) -> UOp:
    a, b = u.src
    zero = build.zeros_like(a)
    if i == 0:
        if build.const_value(b) == 0:
            return zero
        slope = build.mul(b, a.alu(Op.POW, build.sub(b, 1)))
        if build.const_value(b) is None:  # 0 * 0**-1 is 0, not NaN
            slope = build.where(b.eq(zero), zero, slope)
        return build.mul(g, slope)
    flat = a.eq(zero).alu(Op.AND, zero.alu(Op.LE, b))
    return build.mul(g, build.where(flat, zero, u.alu(Op.MUL, a.alu(Op.LOG))))


def _mod(u: UOp, g: UOp, i: int) -> UOp:
    return g if i == 0 else build.neg(build.mul(g, u.src[0].alu(Op.IDIV, u.src[1])))


def _flat(u: UOp, _g: UOp, i: int) -> UOp:
    """Return zeros: the derivative of a step function is zero where it exists."""
    return build.zeros_like(u.src[i])


def _extremum(u: UOp, g: UOp, i: int) -> UOp:
    a, b = u.src
    x, other = (b, a) if i else (a, b)
    behind = x.alu(Op.LT, other) if u.op is Op.MAX else other.alu(Op.LT, x)
    return build.where(behind, 0, build.where(a.eq(b), build.mul(g, 0.5), g))


def _where(u: UOp, g: UOp, i: int) -> UOp | None:
    condition, yes, no = u.src
    if i == 0:
        return None
    if _is_relu(condition, yes, no):
        condition = u.alu(Op.LE, condition.src[1])  # equivalent test that reads only the output
    return build.where(condition, g, 0) if i == 1 else build.where(condition, 0, g)


def _is_relu(condition: UOp, yes: UOp, no: UOp) -> bool:
    return (
        condition.op is Op.LE
        and condition.src[0] is no
        and build.const_value(yes) == 0
        and build.const_value(condition.src[1]) == 0
    )


def _fma(u: UOp, g: UOp, i: int) -> UOp:
    return g if i == 2 else build.mul(g, u.src[1 - i])


def _reshape(u: UOp, g: UOp, _i: int) -> UOp:
    return build.reshape(g, u.src[0].shape)


def _permute(u: UOp, g: UOp, _i: int) -> UOp:
    return build.permute(g, [u.arg.index(a) for a in range(len(u.arg))])


def _expand(u: UOp, g: UOp, _i: int) -> UOp:
    return build.sum_to(g, u.src[0].shape)


def _shrink(u: UOp, g: UOp, _i: int) -> UOp:
    shape = u.src[0].shape
    widths = [(lo, build.difference(d, hi)) for (lo, hi), d in zip(u.arg, shape, strict=True)]
    return build.pad(g, widths, alike=True)


def _pad(u: UOp, g: UOp, _i: int) -> UOp:
    shape = u.src[0].shape
    bounds = [(lo, build.total((lo, d))) for (lo, _), d in zip(u.arg, shape, strict=True)]
    return build.shrink(g, bounds, alike=True)


def _flip(u: UOp, g: UOp, _i: int) -> UOp:
    return build.flip(g, u.arg)


def unwindow(y: UOp, shape: build.Shape, windows: tuple[tuple[int, Dim, int, int], ...]) -> UOp:
    """Return the adjoint of IM2COL, as a gather; see docs/architecture/ir.md."""
    return UOp(Op.COL2IM, y.dtype, (y,), (shape, windows))


def _window(u: UOp, g: UOp, _i: int) -> UOp:
    shape = u.src[0].shape
    taps = range(len(shape), len(shape) + len(u.arg))
    return build.reduce(unwindow(g, shape, u.arg), Op.ADD, taps)


def _unwindow(u: UOp, g: UOp, _i: int) -> UOp:
    # y[j, k] went to [j * stride + k * dilation, k]. Windows over g have the tap axes twice; select
    # the elements whose two tap indices are equal.
    shape, windows = u.arg
    rank, n = len(shape), len(windows)
    seen = UOp(Op.IM2COL, g.dtype, (g,), windows)
    for k in range(n):
        first = build.iota_along(seen.shape, rank + k)
        second = build.iota_along(seen.shape, rank + n + k)
        seen = build.where(first.eq(second), seen, 0)
    return build.reduce(seen, Op.ADD, range(rank, rank + n))


def _reduce(u: UOp, g: UOp, _i: int) -> UOp:
    x = u.src[0]
    op, axes = u.arg
    shape = build.keep_axes(x.shape, axes)
    g = build.reshape(g, shape)
    if op is Op.ADD:
        return build.expand(g, x.shape)
    if op is Op.MUL:
        return product(x, g, axes)
    top = build.expand(build.reshape(u, shape), x.shape)
    hit = x.eq(top).alu(Op.OR, x.ne(x))
    count = build.reshape(build.reduce(hit.cast(x.dtype), Op.ADD, axes), shape)
    return build.where(hit, build.expand(build.div(g, count), x.shape), 0)


def _gather(u: UOp, g: UOp, i: int) -> UOp | None:
    if i:
        return None
    return build.scatter_add(build.zeros_like(u.src[0]), g, *u.src[1:])


def _scatter(u: UOp, g: UOp, i: int) -> UOp | None:
    base, values, *indices = u.src
    if i > 1:
        return None
    if u.arg is Op.ADD:
        return _at(g, indices) if i else g
    if u.arg is None:
        return _at(g, indices) if i else build.put(g, build.zeros_like(values), *indices)
    if u.arg is Op.MUL:
        return _scatter_product(u, g, i)
    # Several elements that equal the extremum share the gradient.
    found = _at(u, indices)
    ours, theirs = base.eq(u), values.eq(found)
    if u.dtype.is_float:
        ours = ours.alu(Op.OR, base.ne(base))
        theirs = theirs.alu(Op.OR, values.ne(values))
    count = build.scatter_add(ours.cast(g.dtype), theirs.cast(g.dtype), *indices)
    share = build.div(g, count.alu(Op.MAX, build.full(1, g.dtype, g.shape)))
    return build.where(theirs, _at(share, indices), 0) if i else build.where(ours, share, 0)


def _at(x: UOp, indices: list[UOp]) -> UOp:
    return UOp(Op.GATHER, x.dtype, (x, *indices))


def _scatter_product(u: UOp, g: UOp, i: int) -> UOp:
    """Return `g` times the product of all other factors; avoid division if a factor is zero."""
    base, values, *indices = u.src
    flat, at = base.eq(build.zeros_like(base)), values.eq(build.zeros_like(values))
    rest = build.scatter(Op.MUL, build.where(flat, 1, base), build.where(at, 1, values), *indices)
    zeros = build.scatter_add(flat.cast(dt.int64), at.cast(dt.int64), *indices)
    lone = build.where(zeros.eq(build.full(1, dt.int64, zeros.shape)), rest, 0)
    x, is_zero = (values, at) if i else (base, flat)
    if i:
        g, u, lone = (_at(n, indices) for n in (g, u, lone))
    others = build.where(is_zero, lone, build.div(u, build.where(is_zero, 1, x)))
    return build.mul(g, others)


def _cat(u: UOp, g: UOp, i: int) -> UOp:
    start = build.total(s.shape[u.arg] for s in u.src[:i])
    bounds: list[tuple[Dim, Dim]] = [(0, d) for d in g.shape]
    bounds[u.arg] = (start, build.total((start, u.src[i].shape[u.arg])))
    return build.shrink(g, bounds)


def _call(u: UOp, _g: UOp, _i: int) -> UOp | None:
    if isinstance(u.arg, FfiResult):
        raise GradientError(
            f"{u.arg.name}: the function passed to call has no derivative; pass one as vjp=, or "
            "detach() its operands"
        )
    raise GradientError(f"{u.arg.name}: this routine has no derivative; detach() its operands")


# ---- functions of one element
#
# A derivative that consists of several ops carries a rule of its own. So second derivatives
# neither overflow nor lose digits in these ops.

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
    # Computed in the accumulator dtype: a narrow dtype cannot represent the terms or their squares.
    slope = digamma(u.src[0].cast(u.dtype.accumulator))
    return build.mul(g, slope.cast(u.dtype))


def _powers(x: UOp, slope: UOp, power: int, factor: float) -> UOp:
    """Tag the derivative `slope` with its own derivative, ``factor * x * slope ** power``."""
    return custom(slope, _power_rule, x, arg=(power, factor))


def _power_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,), (power, factor) = node.arg.inputs, node.arg.arg
    bend = x.alu(Op.MUL, node)  # first, because this product neither overflows nor underflows
    for _ in range(power - 1):
        bend = bend.alu(Op.MUL, node)
    return build.mul(g, build.mul(bend, factor))


def _sides(x: UOp) -> tuple[UOp, UOp]:
    """Return 1 - x and 1 + x."""
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
    """Return ``x / (x**2 + y**2)`` for y, ``-y / (x**2 + y**2)`` for x, each times `g`.

    Large numbers are not squared. Both are 0 if x and y are 0.
    """
    y, x = u.src
    flat = y.alu(Op.ABS).alu(Op.LT, x.alu(Op.ABS))
    great, less = build.where(flat, x, y), build.where(flat, y, x)
    # Do not divide by 0: the derivative of the discarded branch would be NaN.
    nothing = great.eq(build.zeros_like(great))
    great = build.where(nothing, 1, great)
    t = less.alu(Op.DIV, great)
    whole = great.alu(Op.MUL, build.multiply_add(t, t, _one(t)))
    side = build.where(flat, t, 1) if i else build.where(flat, 1, t)
    slope = build.mul(g, build.where(nothing, 0, side.alu(Op.DIV, whole)))
    return build.neg(slope) if i else slope


FUNCTION_RULES: dict[Op, Callable[[UOp, UOp, int], UOp]] = {
    Op.EXP: _exp, Op.EXP2: _exp2, Op.EXPM1: _expm1, Op.LOG: _log, Op.LOG2: _log2,
    Op.LOG10: _log10, Op.LOG1P: _log1p, Op.SIN: _sin, Op.COS: _cos, Op.TAN: _tan, Op.ASIN: _asin,
    Op.ACOS: _acos, Op.ATAN: _atan, Op.ATAN2: _atan2, Op.SINH: _sinh, Op.COSH: _cosh,
    Op.TANH: _tanh, Op.ASINH: _asinh, Op.ACOSH: _acosh, Op.ATANH: _atanh, Op.ERF: _erf,
    Op.ERFC: _erfc, Op.LGAMMA: _lgamma,
}  # fmt: skip


RULES: dict[Op, Rule] = {
    Op.NEG: _neg,
    Op.ABS: _abs,
    Op.SQRT: _sqrt,
    **FUNCTION_RULES,
    Op.CAST: _cast,
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.DIV: _div,
    Op.POW: _pow,
    Op.IDIV: _flat,
    Op.MOD: _mod,
    Op.FLOOR: _flat,
    Op.CEIL: _flat,
    Op.TRUNC: _flat,
    Op.ROUND: _flat,
    Op.MAX: _extremum,
    Op.MIN: _extremum,
    Op.WHERE: _where,
    Op.FMA: _fma,
    Op.RESHAPE: _reshape,
    Op.PERMUTE: _permute,
    Op.EXPAND: _expand,
    Op.SHRINK: _shrink,
    Op.PAD: _pad,
    Op.FLIP: _flip,
    Op.IM2COL: _window,
    Op.COL2IM: _unwindow,
    Op.REDUCE_AXIS: _reduce,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.CAT: _cat,
    Op.CALL: _call,
    Op.CONTIGUOUS: _add,
    Op.DETACH: _add,
}
