"""Layout assignment: the memory order of the axes of each stored value.

Outputs are row-major. Values that only kernels read may have any order. For example, the result of
a convolution of small images is stored with its channels innermost, so that vectors are full.
Values that are computed from it get the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import as_uop, dim_max, is_static
from kernelrt.schedule.fuse.fusion_cost import contraction_reuse, elements, product_of, strip
from kernelrt.schedule.fuse.index_maps import ZERO, groups_of_axes
from kernelrt.schedule.rewrite.axis_maps import innermost

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from kernelrt.schedule.fuse.index_maps import Index, Indexer, Order

__all__ = ["free_contractions", "is_row_major", "preferred_orders", "varying"]

#: Number of elements in a vector.
_VECTOR = 16
#: Minimum length of an axis that is moved innermost.
_SHORT = 8
#: Minimum work of a contraction whose order is changed.
_SMALL = 1 << 16


def is_row_major(node: UOp, order: Order) -> bool:
    """Return whether the memory order `order` of `node` is row-major, apart from axes of size 1."""
    real = [a for a in order if node.shape[a] != 1]
    return real == sorted(real)


def free_contractions(roots: Sequence[UOp]) -> list[UOp]:
    """Insert a copy after each contraction that is an output, so that it may have any order.

    The copy is row-major, so the contraction itself may be stored in another order, if this saves
    more than the copy costs. For example, the gradient of a convolution's filters has rows of only
    three elements, too few for a vector. If the contraction stays row-major, no copy is made.
    """
    seen = {strip(root) for root in roots}
    seen = {n for n in seen if contraction_reuse(n) > 0 and is_static(n.shape)}
    if not seen:
        return list(roots)
    done: dict[UOp, UOp] = {}
    for node in toposort(roots):
        src = tuple(done[s] for s in node.src)
        new = done[node] = node if src == node.src else node.replace(src=src)
        if node in seen:
            done[node] = UOp(Op.CONTIGUOUS, new.dtype, (new,))
            inherit(done[node], node)
    return [done[root] for root in roots]


def preferred_orders(
    nodes: Iterable[UOp], fixed: Container[UOp], indexer: Indexer
) -> dict[UOp, Order]:
    """Return the memory order of each node that should not be stored row-major.

    Parameters
    ----------
    nodes : iterable of UOp
        A graph, operands first.
    fixed : container of UOp
        Nodes that must be row-major.
    indexer : Indexer
        Index arithmetic.
    """
    orders: dict[UOp, Order] = {}
    order = list(nodes)
    shares = {n: _shares(n, indexer) for n in order if contraction_reuse(n) > 0}
    free = _followed(order, fixed) - _walked_by_channel(shares)
    for node in order:
        if node in fixed:
            continue
        found = _inherited(node, orders)
        if node in shares:
            found = _contraction(node, shares[node], node in free, found)
        if found is not None and not is_row_major(node, found):
            orders[node] = found
    return orders


def _followed(nodes: Sequence[UOp], fixed: Container[UOp]) -> set[UOp]:
    """Return the nodes that reductions read, directly or through nodes of any memory order."""
    followed: set[UOp] = set()
    for node in reversed(nodes):
        if node.op is Op.REDUCE_AXIS or (node in followed and node not in fixed):
            followed.update(node.src)
    return followed


def _walked_by_channel(shares: Mapping[UOp, _Shares]) -> set[UOp]:
    """Return the contractions whose results depthwise convolutions read.

    In a depthwise convolution, each axis of one operand is also an axis of the other. The
    convolution sums over windows of one channel, so it reads along the rows of this channel.
    """
    found: set[UOp] = set()
    for node, (left, right, common) in shares.items():
        if common and not (left and right):
            cone = toposort(node.src, stop=shares.__contains__)
            found.update(n for n in cone if n in shares)
    return found


class _Shares(NamedTuple):
    """Axes of a contraction's result, divided by which operands vary along them.

    Along `left` only the first operand varies, along `right` only the second, and along `common`
    both.
    """

    left: frozenset[int]
    right: frozenset[int]
    common: frozenset[int]


def _shares(node: UOp, indexer: Indexer) -> _Shares:
    dims = node.src[0].shape
    loops = tuple(
        ZERO if d == 1 else UOp(Op.RANGE, dt.int64, (as_uop(d),), a) for a, d in enumerate(dims)
    )
    product, index = _below(node.src[0], loops, product_of(node), indexer)
    left, right = (varying(operand, index, indexer) for operand in product.src)
    kept = [a for a in range(len(dims)) if a not in node.arg[1]]

    def axes(of: set[UOp]) -> frozenset[int]:
        return frozenset(k for k, a in enumerate(kept) if loops[a] in of)

    return _Shares(axes(left - right), axes(right - left), axes(left & right))


def _contraction(
    node: UOp, shares: _Shares, free: bool, inherited: Order | None
) -> Order | None:
    """Return the memory order of a contraction's result, or None for row-major.

    If rows are too short to fill vectors, the longest axis that belongs to only one operand becomes
    the innermost axis. Rows of at least one vector stay innermost, so that readers do not read
    across rows, unless the node is `free`. If the innermost axis of the order `inherited` from the
    operands belongs to both operands, this order is kept, so that vectors run along this axis.
    """
    rank = len(node.shape)
    if not rank:
        return None
    if inherited is not None and innermost(node, inherited) in shares.common:
        return inherited
    extents = [dim_max(d) for d in node.shape]
    last = max((k for k in range(rank) if extents[k] > 1), default=0)
    long = extents[last] >= _VECTOR
    if elements(node.src[0].shape) < _SMALL or (long and not free):
        return None
    # Pick the operand with fewer axes in the result. In a convolution, this is the filter with its
    # output channels; the image has batch, rows and columns. In a matrix product, both have one.
    share, other = sorted(shares[:2], key=len)
    least = _SHORT if long else max(_SHORT, 2 * extents[last])
    fit = [k for k in sorted(share) if extents[k] >= least]
    if not fit or len(share) == len(other):
        return None
    inner = max(fit, key=lambda k: extents[k])
    if long and _filled(extents[inner]) <= _filled(extents[last]):
        return None
    return (*(k for k in range(rank) if k != inner), inner)


def _filled(extent: int) -> float:
    """Return the fraction of vector lanes that are used along an axis of length `extent`."""
    return extent / (-(-extent // _VECTOR) * _VECTOR)


def varying(operand: UOp, index: Index, indexer: Indexer) -> set[UOp]:
    """Return the loops in `index` that change the element of `operand` at `index`."""
    _, index = _below(operand, index, None, indexer)
    return {loop for i in index for loop in indexer.ranges(i)}


def _below(node: UOp, index: Index, stop: UOp | None, indexer: Indexer) -> tuple[UOp, Index]:
    """Return the node below movement ops and casts (but not below `stop`), and its index."""
    while node is not stop and (node.op in MOVEMENT or node.op is Op.CAST):
        if node.op is not Op.CAST:
            index = indexer.step(node, index)[0]
        node = node.src[0]
    return node, index


_SAME_AXES = frozenset({Op.PAD, Op.SHRINK, Op.FLIP, Op.EXPAND, Op.CONTIGUOUS})


def _inherited(node: UOp, orders: dict[UOp, Order]) -> Order | None:
    """Return the memory order that `node` takes over from an operand; None for row-major."""
    known = next((s for s in node.src if s in orders), None)
    if known is None:
        return None
    order = orders[known]
    if node.op in ALU or node.op in _SAME_AXES:
        return order
    if node.op is Op.PERMUTE:
        return tuple(node.arg.index(a) for a in order)
    if node.op is Op.REDUCE_AXIS:
        kept = [a for a in range(len(order)) if a not in node.arg[1]]
        return tuple(kept.index(a) for a in order if a in kept)
    if node.op in (Op.IM2COL, Op.COL2IM):
        # The window taps go before the innermost axis, so that the innermost axis stays long.
        taps = tuple(range(len(order), len(node.shape)))
        return (*order[:-1], *taps, order[-1])
    if node.op is Op.RESHAPE:
        return _reshaped(known, order, node)
    return None


def _reshaped(source: UOp, order: Order, node: UOp) -> Order | None:
    """Return the memory order after a RESHAPE; None if it merges axes that are not adjacent."""
    axes_at: dict[int, list[int]] = {}
    for old, new in groups_of_axes(source.shape, node.shape):
        positions = [order.index(a) for a in old]
        if positions != list(range(positions[0], positions[0] + len(old))):
            return None
        axes_at[positions[0]] = new
    kept = [a for position in sorted(axes_at) for a in axes_at[position]]
    # Axes of size 1 may be anywhere.
    return (*(a for a in range(len(node.shape)) if a not in kept), *kept)
