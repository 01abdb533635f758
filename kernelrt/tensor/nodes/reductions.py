"""Reductions that consist of several ops, with gradients in closed form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.reducers import empty_result
from kernelrt.ir.routine import Routine
from kernelrt.ir.shape import dim_max, same
from kernelrt.tensor.autograd.tags import custom, detach
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.composite_ops import sign
from kernelrt.tensor.nodes.special import log_add

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "cumulative_sum", "float_count", "fold", "guarded_root_rule", "kept", "log_softmax_rule",
    "log_sum", "log_total", "mean_of", "norm", "norm_rule", "normalize", "records",
    "softmax_rule", "var_rule",
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
    """Return the gradient of a softmax, whose tag has its axes as `arg`."""
    inner = build.expand(kept(build.mul(g, node), Op.ADD, node.arg.arg), node.shape)
    return build.mul(node, build.sub(g, inner))


def log_softmax_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return the gradient of a log-softmax, whose tag has its axes as `arg`."""
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


# ---- cumulative sums

#: Most elements that are summed as windows, which other operations fuse with. From 10 to 12
#: contiguous elements on, the routine is faster, alone and between sums (Zen 4, AVX-512).
_WINDOWED: Final = 8
#: Least elements in a row for which a matrix is summed row by row; other matrices are transposed.
#: Then the routine is faster for any number of rows.
_LEAST_ROW: Final = 16


def cumulative_sum(x: UOp, axis: int, *, reverse: bool = False) -> UOp:
    """Return the sums of the elements up to each along `axis`; with `reverse`, from each on.

    Sums of integers and bools are int64; the elements of other types must be float32 or float64.
    """
    kind = x.dtype if x.dtype.is_float else dt.int64
    n, inner = x.shape[axis], build.volume(x.shape[axis + 1 :])
    if build.has_zero(x.shape) or dim_max(n) == 1:
        return x.cast(kind)
    narrow = dim_max(inner) < _LEAST_ROW
    short = narrow and dim_max(n) <= _WINDOWED
    if short or (narrow and not same(inner, 1)):
        order = [*(a for a in range(len(x.shape)) if a != axis), axis]
        rows = build.permute(x.cast(kind) if short else x, order)
        sums = _window_sums(rows, reverse=reverse) if short else _row_sums(rows, 1, reverse=reverse)
        out = build.permute(sums, [order.index(a) for a in range(len(order))])
    else:
        out = _row_sums(x, len(x.shape) - axis, reverse=reverse)
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


def _row_sums(x: UOp, rank: int, *, reverse: bool) -> UOp:
    """Sum the rows of matrices; the last `rank` axes of `x` are those of a matrix."""
    *lead, n = x.shape[: len(x.shape) - rank + 1]
    inner = build.volume(x.shape[len(x.shape) - rank + 1 :])
    routine = Routine(f"cumsum_{x.dtype.name}", build.volume(tuple(lead)), (n, inner, int(reverse)))
    flat = build.reshape(x, (routine.rows, build.volume((n, inner))))
    return build.reshape(build.call(routine, flat), x.shape)


# ---- other prefix scans, along the last axis

#: Elements per block; a block is scanned by windows, and the block totals are scanned recursively.
_BLOCK = 64
#: Elements per block if each element of a window needs an exp, or a division for the gradient.
_DEAR_BLOCK = 16


def _padded(x: UOp, before: Dim, behind: Dim, value: float) -> UOp:
    """Pad the last axis of `x` with `value` before and after it."""
    *lead, _ = x.shape
    ends = [
        build.full(value, x.dtype, (*lead, n)) for n in (before, behind)
    ]
    parts = [part for part in (ends[0], x, ends[1]) if not build.has_zero(part.shape)]
    return build.cat(parts, len(lead))


def _in_rows(x: UOp, block: int, value: float) -> UOp:
    """Split the last axis into rows of `block` elements; fill the last row with `value`."""
    *lead, n = x.shape
    if isinstance(n, int):
        count = -(-n // block)
        return build.reshape(_behind(x, count * block - n, value), (*lead, count, block))
    wide = _behind(x, block - 1, value)
    return UOp(Op.IM2COL, x.dtype, (wide,), ((len(lead), block, block, 1),))


def _behind(x: UOp, n: int, value: float) -> UOp:
    """Append `n` times `value` to the last axis of `x`."""
    if value == 0:
        return build.pad(x, [*((0, 0) for _ in x.shape[1:]), (0, n)])
    return _padded(x, 0, n, value)


def _windows(x: UOp, n: Dim, nothing: float) -> UOp:
    """Return for each element the `n` elements that end with it, in a new last axis.

    Elements before the first are `nothing`.
    """
    rank = len(x.shape)
    padded = _padded(x, build.difference(n, 1), 0, nothing)
    return UOp(Op.IM2COL, x.dtype, (padded,), ((rank - 1, n, 1, 1),))


def _blocked(
    x: UOp,
    within: Callable[[UOp], UOp],
    join: Callable[[UOp, UOp], UOp],
    nothing: float,
    block: int,
) -> UOp:
    """Return a scan of any length, given the scan `within` for up to `block` elements."""
    *lead, n = x.shape
    if dim_max(n) <= block:
        return within(x) if dim_max(n) > 1 else x
    rows = _in_rows(x, block, nothing)
    count = rows.shape[-2]
    inner = within(rows)
    last = [(0, d) for d in (*lead, count)]
    ends = build.shrink(inner, [*last, (block - 1, block)])
    totals = _blocked(build.reshape(ends, (*lead, count)), within, join, nothing, block)
    before = build.shrink(_padded(totals, 1, 0, nothing), last)
    before = build.reshape(before, (*lead, count, 1))
    joined = join(build.expand(before, inner.shape), inner)
    whole = build.reshape(joined, (*lead, build.volume((count, block))))
    return build.shrink(whole, [*last[:-1], (0, n)])


def fold(x: UOp, op: Op) -> UOp:
    """Return the cumulative product, maximum or minimum; `op` is MUL, MAX or MIN."""
    nothing = empty_result(op, x.dtype)

    def within(part: UOp) -> UOp:
        n = part.shape[-1]
        return build.reduce(_windows(part, n, nothing), op, (len(part.shape),))

    return _blocked(x, within, lambda a, b: a.alu(op, b), nothing,
                    _DEAR_BLOCK if op is Op.MUL else _BLOCK)  # fmt: skip


def log_sum(x: UOp) -> UOp:
    """Return the logarithm of the cumulative sum of the exponentials."""

    def within(part: UOp) -> UOp:
        n = part.shape[-1]
        windows = _windows(part, n, -math.inf)
        top, rest = log_total(windows, (len(part.shape),), guard=True)
        return build.reshape(rest.alu(Op.ADD, top), part.shape)

    return _blocked(x, within, log_add, -math.inf, _DEAR_BLOCK)


def records(x: UOp, op: Op) -> UOp:
    """Return the indices of the cumulative maximum or minimum; of equal elements, the last.

    NaN counts as the maximum or minimum; after it only another NaN does.
    """
    best = fold(x, op)
    hit = x.eq(best)
    if x.dtype.is_float:
        hit = hit.alu(Op.OR, x.ne(x))
    place = build.iota_along(x.shape, len(x.shape) - 1)
    return fold(build.where(hit, place, build.full(0, dt.int64, x.shape)), Op.MAX)
