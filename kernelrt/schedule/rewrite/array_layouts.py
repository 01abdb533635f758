"""Layout assignment: the order of axes in which a stored value lies in memory.

What the caller sees is row-major. Values that only kernels see may lie as suits the kernels: the
product of a contraction over small images is stored with its channels innermost, so that vectors
are filled, and what is made of it follows.
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

#: Elements of a vector.
_VECTOR = 16
#: One that is shorter is not worth moving.
_SHORT = 8
#: Work below which a contraction is left as it is.
_SMALL = 1 << 16


def is_row_major(node: UOp, order: Order) -> bool:
    """Whether `order` puts the elements of `node` where row-major does."""
    real = [a for a in order if node.shape[a] != 1]
    return real == sorted(real)


def free_contractions(roots: Sequence[UOp]) -> list[UOp]:
    """Equal graphs in which a contraction that the caller sees is apart from what he sees.

    Seen is a copy, which is row-major. What it is a copy of may lie otherwise, where that is
    cheaper by more than the copy: the gradient of filters has rows of three. Where it is not,
    both are one.
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
    """For nodes that are better not stored row-major, the order they are stored in.

    Parameters
    ----------
    nodes : iterable of UOp
        A graph, operands first.
    fixed : container of UOp
        Nodes that are row-major whatever would suit them.
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
    """Nodes that a reduction reads, which can do so in any order, not only what is row-major."""
    followed: set[UOp] = set()
    for node in reversed(nodes):
        if node.op is Op.REDUCE_AXIS or (node in followed and node not in fixed):
            followed.update(node.src)
    return followed


def _walked_by_channel(shares: Mapping[UOp, _Shares]) -> set[UOp]:
    """Contractions whose results are read by some in which an operand has no axis of its own.

    Those sum over windows of one channel, and walk along its rows.
    """
    found: set[UOp] = set()
    for node, (left, right, common) in shares.items():
        if common and not (left and right):
            cone = toposort(node.src, stop=shares.__contains__)
            found.update(n for n in cone if n in shares)
    return found


class _Shares(NamedTuple):
    """Axes of a contraction's result: those that one operand alone has, and those of both."""

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
    """The longest axis of one operand innermost, where row-major would leave vectors empty.

    Where it would fill half of one, only if that is `free` of what would be read across then. Where
    an axis of both operands is innermost in an order that is `inherited`, vectors go along it.
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
    # The operand with the plainer share of the result: a weight's output channels, where the
    # image's share is batch, rows and columns. Of a matrix product neither is plainer.
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
    """The part of the lanes that an innermost axis of this length has elements for."""
    return extent / (-(-extent // _VECTOR) * _VECTOR)


def varying(operand: UOp, index: Index, indexer: Indexer) -> set[UOp]:
    """The loops of `index` that an operand's elements vary with."""
    _, index = _below(operand, index, None, indexer)
    return {loop for i in index for loop in indexer.ranges(i)}


def _below(node: UOp, index: Index, stop: UOp | None, indexer: Indexer) -> tuple[UOp, Index]:
    """What lies below movement ops and casts (but not below `stop`), and the index there."""
    while node is not stop and (node.op in MOVEMENT or node.op is Op.CAST):
        if node.op is not Op.CAST:
            index = indexer.step(node, index)[0]
        node = node.src[0]
    return node, index


_SAME_AXES = frozenset({Op.PAD, Op.SHRINK, Op.FLIP, Op.EXPAND, Op.CONTIGUOUS})


def _inherited(node: UOp, orders: dict[UOp, Order]) -> Order | None:
    """The order in which `node` lies when it follows its operands."""
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
    if node.op in (Op.WINDOW, Op.UNWINDOW):
        # The taps go before the innermost axis, which stays long.
        taps = tuple(range(len(order), len(node.shape)))
        return (*order[:-1], *taps, order[-1])
    if node.op is Op.RESHAPE:
        return _reshaped(known, order, node)
    return None


def _reshaped(source: UOp, order: Order, node: UOp) -> Order | None:
    """Axes that are split lie where the whole did; axes that are joined must lie side by side."""
    places: dict[int, list[int]] = {}
    for old, new in groups_of_axes(source.shape, node.shape):
        positions = [order.index(a) for a in old]
        if positions != list(range(positions[0], positions[0] + len(old))):
            return None
        places[positions[0]] = new
    placed = [a for position in sorted(places) for a in places[position]]
    # Axes of one element lie anywhere.
    return (*(a for a in range(len(node.shape)) if a not in placed), *placed)
