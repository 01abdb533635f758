"""Tileability analysis: whether a reduction can use vectors and tiles where it is fused."""

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

#: Of float32, in the shortest vectors that a kernel is not slowed down by to a fraction.
_LANES: Final = 8

#: The kernels that want a value, where, and under which condition.
Accesses = Mapping[tuple[Group, Index], "UOp | None"]


def untiled(node: UOp, accesses: Accesses, orders: Mapping[UOp, Order]) -> str | None:
    """Why a contraction would not keep a tile of itself in registers, where it is wanted.

    It then loads both operands for each product, and lanes do not run along its result.
    """
    if all(_fills(node, group, index, orders) for group, index in accesses):
        return None
    if any(group.inside_reduction(index) for group, index in accesses):
        return "a contraction inside another reduction's loop"
    if any(group.contractions - {(node, index)} for group, index in accesses):
        return "a second contraction in one kernel"
    if any(g.evaluations(index) < elements(g.shape) for g, index in accesses):
        return "a contraction under more loops than its own"
    if not all(runs_along(node, group, index, orders) for group, index in accesses):
        return "a contraction along another axis than its kernel"
    return None


def across(node: UOp, accesses: Accesses, orders: Mapping[UOp, Order]) -> str | None:
    """Why the terms of a sum would be loaded one by one, where it is wanted.

    Neighbours in memory are terms of other sums, and vectors go along yet another loop.
    """
    axis = _side_by_side(node, orders) if node.op is Op.REDUCE_AXIS else None
    if axis is None:
        return None
    if not all(_stays(i[axis], group) for group, i in accesses):
        return None
    return "a sum across the rows of what its kernel walks in another way"


def _fills(node: UOp, group: Group, index: Index, orders: Mapping[UOp, Order]) -> bool:
    """Whether a contraction fills rows of an array, side by side in memory, for another one.

    In a kernel of its own it packs its operands, which other passes over rows do not outweigh.
    """
    axis = innermost(node, None)
    if axis is None or node in orders or not group.fills(index):
        return False
    if not group.contractions - {(node, index)}:
        return False
    terms = linear(index[axis])[0]
    return any(terms.get(r) == 1 for r in group.filling)


def runs_along(node: UOp, group: Group, index: Index, orders: Mapping[UOp, Order]) -> bool:
    """Whether neighbours in the stores of `group` are neighbours in a contraction, and enough."""
    order = orders.get(node)
    axis = innermost(node, order)
    if axis is None or not group.loops:
        return True
    # An axis that others split in two, as gradients of pools do, leaves lanes empty.
    if dim_max(group.loops[-1].src[0]) < min(_LANES, dim_max(node.shape[axis])):
        return False
    if order is None and group.order == tuple(range(len(group.shape))):
        return True
    return linear(index[axis])[0].get(group.loops[-1]) == 1


def _stays(i: UOp, group: Group) -> bool:
    """Whether an index that the loops of `group` walk is the same for neighbours in its stores."""
    if not group.loops or not group.ranges((i,)):
        return False
    *_, last = group.loops
    first, second = (
        simplify(substitute([i], {r: const(int(r is last) * n, r.dtype) for r in group.loops})[0])
        for n in (0, 1)
    )
    return first is second and dim_max(last.src[0]) > 1


def made_of(node: UOp) -> list[UOp]:
    """The contractions that `node` is made of, element by element; none with other reductions."""
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
    """Bytes of operands of a contraction that vary along its results and do not lie along them.

    In a kernel of its own it turns them in panels. Where it fills rows of an array it has none,
    and reads a copy.
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
    """Whether the contraction whose results a kernel stores is to turn a matrix."""
    own = (node for node, index in group.contractions if not group.fills(index))
    return any(turned(node, orders) for node in own)


def lying_along(node: UOp, orders: Mapping[UOp, Order]) -> int | None:
    """The axis of what moves a value about along which neighbours in memory are neighbours."""
    return lying(node, range(len(node.shape)), orders)[0]


def _side_by_side(node: UOp, orders: Mapping[UOp, Order]) -> int | None:
    """The axis of a reduction's results along which what it reads lies side by side.

    None where it closes over that axis itself, or where it is not plain to see.
    """
    return lying(node.src[0], _results(node), orders)[0]


def _results(node: UOp) -> list[int | None]:
    """Of each axis that a reduction goes over, the axis of its results that it becomes."""
    kept = [a for a in range(len(node.src[0].shape)) if a not in node.arg[1]]
    return [kept.index(a) if a in kept else None for a in range(len(node.src[0].shape))]
