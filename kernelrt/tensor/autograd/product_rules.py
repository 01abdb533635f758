"""VJP rules of products over axes.

The first divides the product of all elements by each. In the second, the quotients' sums would
lose all digits beside one that is much larger, so products without two elements are multiplied
out: along a tree of pairs, which any further derivative follows as it stands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import as_dim, as_uop, dim_max, same
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from kernelrt.ir import Dim

__all__ = ["product"]


def product(x: UOp, g: UOp, axes: tuple[int, ...]) -> UOp:
    """The gradient of a product.

    Parameters
    ----------
    x : UOp
        The factors.
    g : UOp
        The gradient of the product, with axes of size 1 for `axes`.
    axes : tuple of int
        The axes that are multiplied along.

    Returns
    -------
    UOp
        For each element the product of the others, times `g`.
    """
    zero = build.zeros_like(x)
    filled, infinite = _filled(x)
    total = build.reduce(filled, Op.MUL, axes)
    shape = build.keep_axes(x.shape, axes)
    others = build.expand(build.reshape(total, shape), x.shape).alu(Op.DIV, filled)
    others = build.where(_elsewhere(x.eq(zero), axes), 0, others)
    endless = build.full(math.inf, x.dtype, x.shape)
    endless = build.where(others.alu(Op.LT, zero), -math.inf, endless)
    endless = build.where(others.eq(zero), math.nan, endless)
    others = build.where(_elsewhere(infinite, axes), endless, others)
    others = build.where(_elsewhere(x.ne(x), axes), math.nan, others)
    others = custom(others, _others_rule, x, arg=axes)
    return build.mul(build.expand(g, x.shape), others)


def _filled(x: UOp) -> tuple[UOp, UOp]:
    """`x` with 1 for what cannot be divided by, the sign for infinities; which are infinite."""
    zero = build.zeros_like(x)
    infinite = x.alu(Op.ABS).eq(build.full(math.inf, x.dtype, x.shape))
    sign = build.where(x.alu(Op.LT, zero), -1, build.full(1, x.dtype, x.shape))
    none = x.eq(zero).alu(Op.OR, x.ne(x))
    return build.where(none, 1, build.where(infinite, sign, x)), infinite


def _elsewhere(special: UOp, axes: tuple[int, ...]) -> UOp:
    """Whether another element along `axes` is special."""
    count = special.cast(dt.int64)
    total = build.reshape(build.reduce(count, Op.ADD, axes), build.keep_axes(count.shape, axes))
    return count.alu(Op.LT, build.expand(total, count.shape))


def _others_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Sums of products without two elements, each with the gradient of the other one of the two.

    What is differentiated is the sum over i of ``g[i]`` times the product of the others, and that
    is the slope of the product of ``x + s * g`` at s = 0. Up the tree go products with their
    slopes, down the derivatives of the slope at the root by both.
    """
    (x,), axes = node.arg.inputs, node.arg.arg
    if build.has_zero(x.shape):
        return build.zeros_like(x)
    kept = [a for a in range(len(x.shape)) if a not in axes]
    order = [*kept, *axes]
    ordered = tuple(x.shape[a] for a in order)
    count = build.volume(ordered[len(kept) :])
    rows = (*ordered[: len(kept)], count)
    depth = max(dim_max(count) - 1, 0).bit_length()
    missing = as_dim(as_uop(1 << depth) - as_uop(count))
    widths = [*[(0, 0)] * len(kept), (0, missing)]

    def leaves(u: UOp) -> UOp:
        u = build.reshape(build.permute(u, order), rows).cast(x.dtype.accumulator)
        return build.pad(u, widths)

    levels = [(leaves(x), leaves(g))]
    for level in range(depth):
        levels.append(_joined(*levels[-1], _alone(level, depth, count)))
    value, _ = levels.pop()
    by_value, by_slope = build.zeros_like(value), build.full(1, value.dtype, value.shape)
    for level, pairs in reversed(list(enumerate(levels))):
        outside = _less(2 << level, count)
        by_value, by_slope = _split(
            *pairs, by_value, by_slope, _alone(level, depth, count), outside
        )
    out = build.shrink(by_value, [(0, d) for d in rows]).cast(x.dtype)
    return build.permute(build.reshape(out, ordered), [order.index(a) for a in range(len(order))])


def _less(a: Dim, b: Dim) -> UOp:
    return build.scalar(a, dt.int64).alu(Op.LT, build.scalar(b, dt.int64))


def _alone(level: int, depth: int, count: Dim) -> UOp | None:
    """Which pairs have no second one, as there are but `count` leaves; None if all have."""
    if same(count, 1 << depth):
        return None
    pairs = build.iota(1 << (depth - level - 1))
    second = build.add(build.mul(pairs, 2 << level), 1 << level)  # its first leaf
    return build.full(count, second.dtype, second.shape).alu(Op.LE, second)


def _joined(value: UOp, slope: UOp, alone: UOp | None) -> tuple[UOp, UOp]:
    """Products of pairs, and their slopes."""
    (first, second), (tilt, other) = _halves(value), _halves(slope)
    joined = build.mul(first, second)
    slopes = build.add(build.mul(tilt, second), build.mul(first, other))
    return _stored(_but(alone, first, joined)), _stored(_but(alone, tilt, slopes))


def _split(
    value: UOp,
    slope: UOp,
    by_value: UOp,
    by_slope: UOp,
    alone: UOp | None,
    outside: UOp,
) -> tuple[UOp, UOp]:
    """Derivatives by each of a pair, given those by their product and by its slope.

    Without leaves `outside` of the pair nothing depends on its product: 0, even beside infinities.
    """
    pairs = (*by_value.shape, 2)
    beside, tilt = (build.flip(build.reshape(u, pairs), [len(pairs) - 1]) for u in (value, slope))
    by_value, by_slope = (
        build.expand(build.reshape(u, (*u.shape, 1)), pairs) for u in (by_value, by_slope)
    )
    if alone is not None:
        alone = build.expand(build.reshape(alone, (*alone.shape, 1)), (*alone.shape, 2))
    through = build.where(build.broadcast_to(outside, pairs), build.mul(by_value, beside), 0)
    by_first = build.add(through, build.mul(by_slope, tilt))
    parts = _but(alone, by_value, by_first), _but(alone, by_slope, build.mul(by_slope, beside))
    first, second = (_stored(build.reshape(u, value.shape)) for u in parts)
    return first, second


def _halves(u: UOp) -> list[UOp]:
    """The first and the second of each pair along the last axis."""
    *rows, n = u.shape
    assert isinstance(n, int)
    pairs = build.reshape(u, (*rows, n // 2, 2))
    whole = [(0, d) for d in pairs.shape[:-1]]
    return [
        build.reshape(build.shrink(pairs, [*whole, (i, i + 1)]), (*rows, n // 2)) for i in (0, 1)
    ]


def _but(alone: UOp | None, single: UOp, pair: UOp) -> UOp:
    """What holds of pairs, but `single` where there is no second one."""
    if alone is None:
        return pair
    return build.where(build.broadcast_to(alone, pair.shape), single, pair)


def _stored(u: UOp) -> UOp:
    """A level is stored, as the next ones use each of its elements several times."""
    return UOp(Op.CONTIGUOUS, u.dtype, (u,))
