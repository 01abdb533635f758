"""VJP rules of products over axes.

The first derivative divides the product of all elements by each element. In the second derivative,
sums of such quotients would lose all digits next to a much larger quotient. So it uses no
quotients: for each pair of elements, the product of all other elements is computed along a binary
tree. Further derivatives differentiate this tree.
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
    """Return the gradient of the factors of a product.

    Parameters
    ----------
    x : UOp
        Factors.
    g : UOp
        Gradient of the product, with size 1 along `axes`.
    axes : tuple of int
        Axes that the product multiplies along.

    Returns
    -------
    UOp
        For each element the product of all other elements, times `g`.
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
    """Replace zeros and NaNs by 1, infinities by their sign; also return the mask of infinities."""
    zero = build.zeros_like(x)
    infinite = x.alu(Op.ABS).eq(build.full(math.inf, x.dtype, x.shape))
    sign = build.where(x.alu(Op.LT, zero), -1, build.full(1, x.dtype, x.shape))
    none = x.eq(zero).alu(Op.OR, x.ne(x))
    return build.where(none, 1, build.where(infinite, sign, x)), infinite


def _elsewhere(special: UOp, axes: tuple[int, ...]) -> UOp:
    """Return a mask: whether another element along `axes` is special."""
    count = special.cast(dt.int64)
    total = build.reshape(build.reduce(count, Op.ADD, axes), build.keep_axes(count.shape, axes))
    return count.alu(Op.LT, build.expand(total, count.shape))


def _others_rule(node: UOp, g: UOp, _i: int) -> UOp:
    """Return for each j the sum over i of ``g[i]`` times the product without elements i and j.

    The differentiated function is the sum over i of ``g[i]`` times the product of the others. That
    is the derivative of the product of ``x + s * g`` by s at s = 0. Each node of the tree holds a
    product of elements, and the derivative of this product by s. The pass up the tree computes
    both. The pass down computes the derivatives of the root's second value by both.
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
        levels.append(_pair_products(*levels[-1], _unpaired(level, depth, count)))
    value, _ = levels.pop()
    by_value, by_slope = build.zeros_like(value), build.full(1, value.dtype, value.shape)
    for level, pairs in reversed(list(enumerate(levels))):
        outside = _less(2 << level, count)
        by_value, by_slope = _pair_derivatives(
            *pairs, by_value, by_slope, _unpaired(level, depth, count), outside
        )
    out = build.shrink(by_value, [(0, d) for d in rows]).cast(x.dtype)
    return build.permute(build.reshape(out, ordered), [order.index(a) for a in range(len(order))])


def _less(a: Dim, b: Dim) -> UOp:
    return build.scalar(a, dt.int64).alu(Op.LT, build.scalar(b, dt.int64))


def _unpaired(level: int, depth: int, count: Dim) -> UOp | None:
    """Return a mask of the pairs without a second element, for `count` leaves; None for no pair."""
    if same(count, 1 << depth):
        return None
    pairs = build.iota(1 << (depth - level - 1))
    second = build.add(build.mul(pairs, 2 << level), 1 << level)  # its first leaf
    return build.full(count, second.dtype, second.shape).alu(Op.LE, second)


def _pair_products(value: UOp, slope: UOp, alone: UOp | None) -> tuple[UOp, UOp]:
    """Return the products of pairs, and their derivatives."""
    (first, second), (tilt, other) = _halves(value), _halves(slope)
    joined = build.mul(first, second)
    slopes = build.add(build.mul(tilt, second), build.mul(first, other))
    return _stored(_or_single(alone, first, joined)), _stored(_or_single(alone, tilt, slopes))


def _pair_derivatives(
    value: UOp,
    slope: UOp,
    by_value: UOp,
    by_slope: UOp,
    alone: UOp | None,
    outside: UOp,
) -> tuple[UOp, UOp]:
    """Return derivatives by each element of a pair, given those by the pair's product and slope.

    If there are no leaves outside the pair (`outside`), nothing depends on its product: the
    derivative is 0 even next to infinities.
    """
    pairs = (*by_value.shape, 2)
    swapped, tilt = (build.flip(build.reshape(u, pairs), [len(pairs) - 1]) for u in (value, slope))
    by_value, by_slope = (
        build.expand(build.reshape(u, (*u.shape, 1)), pairs) for u in (by_value, by_slope)
    )
    if alone is not None:
        alone = build.expand(build.reshape(alone, (*alone.shape, 1)), (*alone.shape, 2))
    through = build.where(build.broadcast_to(outside, pairs), build.mul(by_value, swapped), 0)
    by_first = build.add(through, build.mul(by_slope, tilt))
    parts = (
        _or_single(alone, by_value, by_first),
        _or_single(alone, by_slope, build.mul(by_slope, swapped)),
    )
    first, second = (_stored(build.reshape(u, value.shape)) for u in parts)
    return first, second


def _halves(u: UOp) -> list[UOp]:
    """Return the first and second elements of the pairs along the last axis."""
    *rows, n = u.shape
    assert isinstance(n, int)
    pairs = build.reshape(u, (*rows, n // 2, 2))
    whole = [(0, d) for d in pairs.shape[:-1]]
    return [
        build.reshape(build.shrink(pairs, [*whole, (i, i + 1)]), (*rows, n // 2)) for i in (0, 1)
    ]


def _or_single(alone: UOp | None, single: UOp, pair: UOp) -> UOp:
    """Return `pair`, with `single` for pairs that have no second element."""
    if alone is None:
        return pair
    return build.where(build.broadcast_to(alone, pair.shape), single, pair)


def _stored(u: UOp) -> UOp:
    """Store a level of the tree, because the next levels use each element several times."""
    return UOp(Op.CONTIGUOUS, u.dtype, (u,))
