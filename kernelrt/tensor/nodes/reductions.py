"""Reductions that consist of several ops, with gradients in closed form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.routine import Routine
from kernelrt.ir.shape import dim_max, same
from kernelrt.tensor.autograd.tags import custom, detach
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.composite_ops import sign

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "cumulative_extremes", "cumulative_log_sum", "cumulative_product", "cumulative_sum",
    "float_count", "guarded_root_rule", "kept", "log_softmax_rule", "log_total", "mean_of", "norm",
    "norm_rule", "normalize", "softmax_rule", "var_rule",
]  # fmt: skip


def kept(x: UOp, op: Op, axes: tuple[int, ...]) -> UOp:
    """Reduce `x` over `axes`, which stay with size 1."""
    return build.reshape(build.reduce(x, op, axes), build.keep_axes(x.shape, axes))


def float_count(x: UOp, axes: tuple[int, ...], less: float = 0) -> UOp:
    """Return the number of elements of `x` along `axes`, minus `less`, but at least 0."""
    count = build.sub(build.scalar(build.volume(x.shape, axes), x.dtype), less)
    value = build.const_value(count)
    if value is None:
        return count.alu(Op.MAX, build.zeros_like(count)) if less > 0 else count
    return count if value >= 0 else build.zeros_like(count)


def mean_of(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Return the mean of `x` over `axes`, which stay with size 1."""
    total = kept(x, Op.ADD, axes)
    count = build.broadcast_to(float_count(x, axes), total.shape)
    return build.div(total, count) if build.const_value(count) != 0 else total.alu(Op.DIV, count)


def norm(x: UOp, p: float, axes: tuple[int, ...]) -> UOp:
    """Return the `p`-norm of `x` over `axes`, which stay with size 1; `p` is finite."""
    size = x.alu(Op.ABS)
    if p == 0:
        return kept(x.ne(build.zeros_like(x)).cast(x.dtype), Op.ADD, axes)
    if p == 1:
        return kept(size, Op.ADD, axes)
    if p == 2:
        return kept(x.alu(Op.MUL, x), Op.ADD, axes).alu(Op.SQRT)
    total = kept(size.alu(Op.POW, build.full(p, x.dtype, x.shape)), Op.ADD, axes)
    return total.alu(Op.POW, build.full(1 / p, x.dtype, total.shape))


def norm_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return the gradient of :func:`norm`."""
    (x,), (p, alone) = node.arg.inputs, node.arg.arg
    g, norm = (build.expand(u, x.shape) for u in (g, node))
    if p == 0:
        return build.zeros_like(x)
    if p == 1:
        return build.mul(g, sign(x))
    if alone:
        return build.mul(g, build.where(x.ne(x), x, sign(x)))
    if p == 2:
        slope = build.mul(x, g.alu(Op.DIV, norm))
        # NaN, not 0, where g is infinite, as after the root of a norm.
        return build.where(norm.eq(build.zeros_like(norm)), build.mul(g, 0), slope)
    # (|x| / norm)**(p - 1): the quotient cannot overflow for p above 1.
    share = x.alu(Op.ABS).alu(Op.DIV, norm).alu(Op.POW, build.full(p - 1, x.dtype, x.shape))
    slope = build.mul(g, build.mul(sign(x), share))
    return _unless_zero(norm, _unless_zero(x, slope) if p < 1 else slope)


def _unless_zero(x: UOp, value: UOp) -> UOp:
    return build.where(x.eq(build.zeros_like(x)), 0, value)


def guarded_root_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return the gradient of a square root, 0 where the root is 0."""
    # No division by 0, even in the branch not chosen: its derivative would be NaN.
    root = build.where(node.eq(build.zeros_like(node)), 1, node)
    return _unless_zero(node, build.div(build.mul(g, 0.5), root))


def log_total(x: UOp, axes: tuple[int, ...], *, guard: bool = False) -> tuple[UOp, UOp]:
    """Return the maximum over `axes` and ``log(sum(exp(x - maximum)))``; axes stay with size 1.

    The two are returned separately because their sum would lose digits of the logarithm if the
    maximum is large. With `guard`, an infinite maximum is replaced by 0.
    """
    top = kept(detach(x), Op.MAX, axes)
    if guard:
        infinite = top.alu(Op.ABS).eq(build.full(math.inf, x.dtype, top.shape))
        top = build.where(infinite, 0, top)
    powers = x.alu(Op.SUB, build.expand(top, x.shape)).alu(Op.EXP)
    total = kept(powers, Op.ADD, axes).alu(Op.LOG)
    return top, custom(total, _log_total_rule, x, parts=(top,))


def _log_total_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (x,), (top,) = node.arg.inputs, node.arg.parts
    below = x.alu(Op.SUB, build.expand(top, x.shape))
    share = below.alu(Op.SUB, build.expand(node, x.shape)).alu(Op.EXP)
    return build.mul(build.expand(g, x.shape), share)


def softmax_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return the gradient of a softmax; the `arg` of the tag on `node` is the axes."""
    inner = build.expand(kept(build.mul(g, node), Op.ADD, node.arg.arg), node.shape)
    return build.mul(node, build.sub(g, inner))


def log_softmax_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return the gradient of a log-softmax; the `arg` of the tag on `node` is the axes."""
    total = build.expand(kept(g, Op.ADD, node.arg.arg), node.shape)
    return build.sub(g, build.mul(node.alu(Op.EXP), total))


def var_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return the gradient of a variance node; `parts` of its tag are mean, shift and count."""
    (x,), (mean, shift, count) = node.arg.inputs, node.arg.parts
    share = build.div(build.mul(g, 2), build.broadcast_to(count, g.shape))
    deviation = x.alu(Op.SUB, build.expand(mean, x.shape))
    deviation = deviation.alu(Op.SUB, build.expand(shift, x.shape))
    return build.mul(build.expand(share, x.shape), deviation)


def normalize(x: UOp, axes: tuple[int, ...], eps: float) -> tuple[UOp, UOp, UOp]:
    """Return ``(x - mean) / std`` over `axes`, the mean and the variance.

    The variance divides by the count. In mean and variance, `axes` stay with size 1.
    """
    mean = mean_of(x, axes)
    deviation = x.alu(Op.SUB, build.expand(mean, x.shape))
    variance = mean_of(deviation.alu(Op.MUL, deviation), axes)
    root = build.add(variance, eps).alu(Op.SQRT)
    scale = build.full(1, x.dtype, root.shape).alu(Op.DIV, root)
    out = deviation.alu(Op.MUL, build.expand(scale, x.shape))
    return custom(out, _normalize_rule, x, parts=(scale,), arg=axes), mean, variance


def _normalize_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (scale,), axes = node.arg.parts, node.arg.arg
    mean = build.expand(mean_of(g, axes), node.shape)
    slope = build.expand(mean_of(build.mul(g, node), axes), node.shape)
    inner = build.sub(build.sub(g, mean), build.mul(node, slope))
    return build.mul(build.expand(scale, node.shape), inner)


# ---- cumulative operations

#: Most elements that are summed as windows, which other operations fuse with. From 10 to 12
#: contiguous elements on, the routine is faster, alone and between sums (Zen 4, AVX-512).
_WINDOWED: Final = 8
#: Least elements in a row for which routines go along rows; other matrices are transposed. Then
#: routines are faster for any number of rows.
_LEAST_ROW: Final = 16


def cumulative_sum(x: UOp, axis: int, *, reverse: bool = False) -> UOp:
    """Return the sums of the elements up to each along `axis`; with `reverse`, from each on.

    Sums of integers and bools are int64; the elements of other types must be float32 or float64.
    """
    kind = x.dtype if x.dtype.is_float else dt.int64
    if _is_trivial(x, axis):
        return x.cast(kind)
    inner = build.volume(x.shape[axis + 1 :])
    few = dim_max(inner) < _LEAST_ROW and dim_max(x.shape[axis]) <= _WINDOWED
    # The order of sums in a window depends on the kernel, so float64 would show it.
    if few and kind is not dt.float64:
        wide = dt.float64 if kind.is_float else kind
        rows, back = _last(axis, x.cast(wide))
        out = back(_window_sums(*rows, reverse=reverse)).cast(kind)
    else:
        out = _along(axis, "cumsum", x, options=(int(reverse),))
    return custom(out, _cumulative_sum_rule, x, arg=(axis, reverse)) if kind.is_float else out


def _cumulative_sum_rule(node: UOp, g: UOp, _i: int) -> UOp:
    axis, reverse = node.arg.arg
    return cumulative_sum(g, axis, reverse=not reverse)


def _window_sums(x: UOp, *, reverse: bool) -> UOp:
    n, axis = x.shape[-1], len(x.shape) - 1
    beyond: tuple[Dim, Dim] = (0, build.difference(n, 1))
    ends = beyond if reverse else beyond[::-1]
    padded = build.pad(x, [*((0, 0) for _ in range(axis)), ends])
    windows = UOp(Op.IM2COL, x.dtype, (padded,), ((axis, n, 1, 1),))
    return build.reduce(windows, Op.ADD, (axis + 1,))


def _is_trivial(x: UOp, axis: int) -> bool:
    """Return whether `x` has no two elements along `axis`."""
    return build.has_zero(x.shape) or dim_max(x.shape[axis]) == 1


def _last(axis: int, *operands: UOp) -> tuple[list[UOp], Callable[[UOp], UOp]]:
    """Move `axis` to the end; the function moves it back."""
    axes = range(len(operands[0].shape))
    order = [*(a for a in axes if a != axis), axis]
    back = [order.index(a) for a in axes]
    return [build.permute(x, order) for x in operands], lambda out: build.permute(out, back)


def _along(axis: int, name: str, *operands: UOp, options: tuple[int, ...] = ()) -> UOp:
    """Call a cumulative routine along `axis` of operands with one shape and dtype."""
    shape, kind = operands[0].shape, operands[0].dtype
    n, inner = shape[axis], build.volume(shape[axis + 1 :])
    if dim_max(inner) < _LEAST_ROW and not same(inner, 1):
        rows, back = _last(axis, *operands)
        return back(_along(len(shape) - 1, name, *rows, options=options))
    count = build.volume(shape[:axis])
    routine = Routine(f"{name}_{kind.name}", count, (n, inner, *options))
    flat = (count, build.volume((n, inner)))
    return build.reshape(build.call(routine, *(build.reshape(x, flat) for x in operands)), shape)


def _before(x: UOp, axis: int, first: float) -> UOp:
    """Return for each element the one before it along `axis`; `first` for the first."""
    padded = build.pad(x, [(int(a == axis), 0) for a in range(len(x.shape))])
    shifted = build.shrink(padded, [(0, d) for d in x.shape])
    if first == 0:
        return shifted
    is_first = build.iota_along(x.shape, axis).eq(build.full(0, dt.int64, x.shape))
    return build.where(is_first, first, shifted)


def _after(x: UOp, axis: int) -> UOp:
    """Return for each element the one after it along `axis`; 0 for the last."""
    return build.flip(_before(build.flip(x, [axis]), axis, 0), [axis])


def _recurrence(a: UOp, b: UOp, axis: int, *, reverse: bool = False) -> UOp:
    """Return y with ``y[i] = a[i] * y[i - 1] + b[i]`` along `axis`; both are float32 or float64.

    With `reverse`, ``y[i] = a[i + 1] * y[i + 1] + b[i]``, the derivative by `b` in reverse mode.
    """
    out = _along(axis, "recurrence", a, b, options=(int(reverse),))
    return custom(out, _recurrence_rule, a, b, arg=(axis, reverse))


def _recurrence_rule(node: UOp, g: UOp, i: int) -> UOp:
    (a, _), (axis, reverse) = node.arg.inputs, node.arg.arg
    adjoint = _recurrence(a, g, axis, reverse=not reverse)
    if i == 1:
        return adjoint
    forward, backward = (adjoint, node) if reverse else (node, adjoint)
    return build.mul(backward, _before(forward, axis, 0))


def cumulative_product(x: UOp, axis: int) -> UOp:
    """Return the products of the elements up to each along `axis`: int64, float32 or float64."""
    if _is_trivial(x, axis):
        return x
    out = _along(axis, "cumprod", x)
    return custom(out, _cumulative_product_rule, x, arg=axis) if x.dtype.is_float else out


def _cumulative_product_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # Element k is a factor of element i >= k, beside the product before k and those after k up to
    # i. The sum over i is a recurrence, without a division, which zeros would prevent. The routine
    # computes both in float64: products may leave the range of float32 and come back.
    (x,), axis = node.arg.inputs, node.arg.arg
    return custom(_along(axis, "slopes", x, g), _slopes_rule, x, g, arg=axis)


def _slopes_rule(node: UOp, g: UOp, i: int) -> UOp:
    (x, weights), axis = node.arg.inputs, node.arg.arg
    wide, weights, g = (u.cast(dt.float64) for u in (x, weights, g))
    before = _before(cumulative_product(wide, axis), axis, 1)
    along = _recurrence(wide, build.mul(g, before), axis)  # the adjoint of the recurrence
    if i == 1:
        return along.cast(x.dtype)
    back = _recurrence(wide, weights, axis, reverse=True)
    later = _recurrence(wide, _after(build.mul(g, back), axis), axis, reverse=True)
    parts = build.mul(back, _before(along, axis, 0)), build.mul(before, later)
    return build.add(*parts).cast(x.dtype)


def cumulative_extremes(x: UOp, op: Op, axis: int) -> tuple[UOp, UOp]:
    """Return the maxima or minima of the elements up to each along `axis`, and their indices.

    The index of equal elements is that of the last. NaN counts as the maximum or minimum; after it
    only another NaN does. No element is a narrow float.
    """
    places = build.full(0, dt.int64, x.shape)
    if _is_trivial(x, axis):
        return x, places
    name = "cummax" if op is Op.MAX else "cummin"
    places = _along(axis, f"arg{name}", detach(x))
    out = _along(axis, name, x)
    return custom(out, _cumulative_extremes_rule, x, parts=(places,), arg=axis), places


def _cumulative_extremes_rule(node: UOp, g: UOp, _i: int) -> UOp:
    # A record gets the sum of the gradients up to the next record.
    (places,), axis = node.arg.parts, node.arg.arg
    is_record = places.eq(build.iota_along(g.shape, axis))
    follows = build.where(is_record, build.zeros_like(g), 1)
    return build.where(is_record, _recurrence(follows, g, axis, reverse=True), 0)


def cumulative_log_sum(x: UOp, axis: int) -> UOp:
    """Return the logarithms of the cumulative sums of the exponentials of float32 or float64."""
    if _is_trivial(x, axis):
        return x
    # The sums are those of exp(x - level). The level rises rarely, so the factors are mostly 1, and
    # the errors of the others do not add up.
    level = _along(axis, "level", detach(x))
    infinite = level.alu(Op.ABS).eq(build.full(math.inf, x.dtype, x.shape))
    level = build.where(infinite, 0, level)
    rise = build.sub(_before(level, axis, 0), level).alu(Op.MIN, build.zeros_like(x))
    sums = _recurrence(rise.alu(Op.EXP), x.alu(Op.SUB, level).alu(Op.EXP), axis)
    return level.alu(Op.ADD, sums.alu(Op.LOG))
