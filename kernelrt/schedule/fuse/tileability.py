"""Tileability analysis: whether a fused reduction can use vectors and register tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kernelrt.ir import Op, UOp
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.shape import dim_max
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import const
from kernelrt.schedule.fuse.fusion_cost import contraction_reuse, distinct, elements, product_of
from kernelrt.schedule.fuse.fusion_groups import Group
from kernelrt.schedule.fuse.index_maps import Index, Order
from kernelrt.schedule.rewrite.axis_maps import axes_below, innermost, lying

__all__ = [
    "Accesses", "across", "lying_along", "made_of", "runs_along", "turned", "untiled",
    "wants_panels",
]  # fmt: skip

#: Minimum vector length, in float32 lanes, that does not slow a kernel down severely.
_LANES: Final = 8

#: The kernels and indices that use a value, with the condition of each use.
Accesses = Mapping[tuple[Group, Index], "UOp | None"]


def untiled(node: UOp, accesses: Accesses, orders: Mapping[UOp, Order]) -> str | None:
    """Return why a contraction that is fused into its users could not use a register tile.

    Return None if it could. Without a register tile, a contraction loads both operands for each
    product, and its vectors do not run along its results.
    """
    if all(_fills(node, group, index, orders) for group, index in accesses):
        return None
    if any(group.inside_reduction(index) for group, index in accesses):
        return "a contraction inside another reduction's loop"
    if any(group.contractions - {(node, index)} for group, index in accesses):
        return "a second contraction in one kernel"
    if any(g.evaluations(index) < elements(g.shape) for g, index in accesses):
        return "a contraction whose kernel loops over more elements than it has"
    if not all(runs_along(node, group, index, orders) for group, index in accesses):
        return "a contraction whose kernel's vectors run along another axis"
    return None


def across(node: UOp, accesses: Accesses, orders: Mapping[UOp, Order]) -> str | None:
    """Return why the terms of a fused sum would be loaded one by one; None if they would not.

    This happens if neighbors in memory are terms of different sums, while vectors run along another
    axis.
    """
    axis = _side_by_side(node, orders) if node.op is Op.REDUCE_AXIS else None
    if axis is None:
        return None
    if not all(_stays(i[axis], group) for group, i in accesses):
        return None
    return "a sum across rows, in a kernel that traverses another axis"


def _fills(node: UOp, group: Group, index: Index, orders: Mapping[UOp, Order]) -> bool:
    """Return whether a contraction fills contiguous rows of an array for another contraction.

    Such a contraction is tiled as well, so its own kernel would have one advantage only: it packs
    the operands.
    """
    axis = innermost(node, None)
    if axis is None or node in orders or not group.fills(index):
        return False
    if not group.contractions - {(node, index)}:
        return False
    terms = linear(index[axis])[0]
    return any(terms.get(r) == 1 for r in group.filling)


def runs_along(node: UOp, group: Group, index: Index, orders: Mapping[UOp, Order]) -> bool:
    """Return whether vectors in the stores of `group` run along a contraction's contiguous axis.

    Two conditions must hold. Neighboring stored elements are neighbors along this axis of the
    contraction's results. And they fill a vector.
    """
    order = orders.get(node)
    axis = innermost(node, order)
    if axis is None or not group.loops:
        return True
    # An axis that other nodes split in two, as gradients of pools do, leaves lanes empty.
    if dim_max(group.loops[-1].src[0]) < min(_LANES, dim_max(node.shape[axis])):
        return False
    if order is None and group.order == tuple(range(len(group.shape))):
        return True
    return linear(index[axis])[0].get(group.loops[-1]) == 1


def _stays(i: UOp, group: Group) -> bool:
    """Return whether the index `i` is the same for neighboring stored elements of `group`."""
    if not group.loops or not group.ranges((i,)):
        return False
    *_, last = group.loops
    first, second = (
        simplify(substitute([i], {r: const(int(r is last) * n, r.dtype) for r in group.loops})[0])
        for n in (0, 1)
    )
    return first is second and dim_max(last.src[0]) > 1


def made_of(node: UOp) -> list[UOp]:
    """Return the contractions that `node` combines element by element.

    The list is empty if `node` also combines other reductions.
    """
    found, stack, seen = [], [node], {node}
    while stack:
        x = stack.pop()
        if contraction_reuse(x):
            found.append(x)
        elif x.op is Op.REDUCE_AXIS:
            return []
        elif x.op in ALU or x.op in MOVEMENT:
            stack += (s for s in x.src if s not in seen)
            seen.update(x.src)
    return found


def turned(contraction: UOp, orders: Mapping[UOp, Order]) -> int:
    """Return the bytes of a contraction's operands that are not contiguous along its results.

    Operands that do not vary along the contiguous axis of the results do not count. If the
    contraction has its own kernel, the kernel packs the other operands into panels. If it fills
    rows of a local array, nothing is packed, and it reads copies of these operands instead.
    """
    nbytes = 0
    along = innermost(contraction, orders.get(contraction))
    product, became, x = product_of(contraction), _results(contraction), contraction.src[0]
    while x is not product:
        became, x = axes_below(x, became), x.src[0]
    for operand in product.src:
        last, varying = lying(operand, became, orders)
        if along in varying and last != along:
            nbytes += distinct(operand) * operand.dtype.itemsize
    return nbytes


def wants_panels(group: Group, orders: Mapping[UOp, Order]) -> bool:
    """Return whether a contraction of `group` that fills no array has an operand to transpose."""
    own = (node for node, index in group.contractions if not group.fills(index))
    return any(turned(node, orders) for node in own)


def lying_along(node: UOp, orders: Mapping[UOp, Order]) -> int | None:
    """Return the axis of a chain of movement ops that is contiguous in memory, or None."""
    return lying(node, range(len(node.shape)), orders)[0]


def _side_by_side(node: UOp, orders: Mapping[UOp, Order]) -> int | None:
    """Return the axis of a reduction's results along which the operand is contiguous.

    Return None if the operand's contiguous axis is reduced or unknown.
    """
    return lying(node.src[0], _results(node), orders)[0]


def _results(node: UOp) -> list[int | None]:
    """Return, for each axis of a reduction's operand, the axis of its result, or None."""
    kept = [a for a in range(len(node.src[0].shape)) if a not in node.arg[1]]
    return [kept.index(a) if a in kept else None for a in range(len(node.src[0].shape))]
