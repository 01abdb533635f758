"""Counted work of tensor-level nodes: the numbers that fusion decides by.

The unit is one lane of one vector instruction, so that what is vectorized costs its flops.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.ops import ALU, INSTRUCTIONS, MOVEMENT
from kernelrt.ir.shape import dim_max

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

__all__ = [
    "BYTE_COST",
    "FREE",
    "LAUNCH_COST",
    "MOST_WRITTEN",
    "PARALLEL_WORK",
    "ROW_BYTE_COST",
    "SCALAR_COST",
    "SHARED_BYTES",
    "SHORT_LOOP",
    "WORK_LIMIT",
    "byte_cost",
    "contraction_reuse",
    "elements",
    "product_of",
    "strip",
    "work_of",
    "worth_storing",
    "written",
]

#: Work that a byte to or from a buffer is worth, by the size of the buffer: in the first cache,
#: in the second, beyond.
BYTE_COST = ((32 << 10, 0.4), (1 << 20, 0.8), (1 << 62, 1.5))
#: The same within one kernel, where a buffer would tear the kernel apart and its rows leave the
#: cache in between.
ROW_BYTE_COST = 1.5
#: Work that one more kernel is worth: its call, loop set-up and tail.
LAUNCH_COST = 500.0
#: What is computed once for a whole kernel is computed on scalars, lane by lane.
SCALAR_COST = 8.0
#: Work from which a reduction to few elements is a kernel of its own, so that the kernel that
#: uses it can be split over cores without repeating it.
PARALLEL_WORK = 32768.0
#: A shared input of at least this many bytes does not stay in the first cache between kernels.
SHARED_BYTES = 32 << 10
#: A value is stored beside another that takes this many of its elements each, or exactly one.
SHORT_LOOP = 8
#: Instructions of one evaluation of all values of a kernel; past it the compiler's time grows
#: faster than the saved traffic.
MOST_WRITTEN = 2400
#: Instructions that a value counts for at least: its own, its operands' addresses and loads.
_LEAST_WRITTEN = 4
_WRITTEN = {op: max(_LEAST_WRITTEN, count) for op, count in INSTRUCTIONS.items()}
#: Where estimates saturate.
WORK_LIMIT = 1e12

_FLOPS = {
    Op.FMA: 2.0, Op.DIV: 4.0, Op.SQRT: 6.0, Op.EXP: 12.0, Op.LOG: 14.0, Op.SIN: 16.0, Op.COS: 16.0,
    Op.TANH: 18.0, Op.ERF: 20.0, Op.POW: 36.0, Op.IDIV: 20.0, Op.MOD: 20.0, Op.BOUND: 2.0,
    # Gates and data-dependent addresses break up vector loads.
    Op.PAD: 6.0, Op.UNWINDOW: 8.0, Op.CAT: 4.0, Op.GATHER: 4.0, Op.FLIP: 1.0,
}  # fmt: skip

#: Ops that only change which element is meant; nothing is gained by storing what they give.
FREE = (MOVEMENT - {Op.PAD, Op.UNWINDOW}) | {Op.CONST, Op.VAR, Op.BUFFER, Op.IOTA}


_INDEX_TYPES = (dt.int64, dt.int32, dt.bool_)


def elements(shape: tuple[Dim, ...]) -> int:
    """Elements of a shape at the largest values of its Variables."""
    for dim in shape:
        if type(dim) is not int:
            return math.prod(map(dim_max, shape))
    return math.prod(cast("tuple[int, ...]", shape))


def byte_cost(nbytes: int) -> float:
    """Work that each byte to or from a buffer of `nbytes` is worth."""
    return next(cost for limit, cost in BYTE_COST if nbytes <= limit)


def strip(node: UOp) -> UOp:
    """`node` without the reshapes on top of it: the same elements in the same order."""
    while node.op is Op.RESHAPE:
        node = node.src[0]
    return node


def work_of(order: Sequence[UOp], stored: Iterable[UOp]) -> dict[UOp, float]:
    """Work to compute one element of each node from stored values.

    What is dear and has several consumers will get a buffer whatever its consumers do, so for
    them it counts as a read. What has one consumer counts in full: the consumer is where its
    value would best be stored.

    Parameters
    ----------
    order : sequence of UOp
        Nodes, operands first.
    stored : iterable of UOp
        Nodes that are sure to have a buffer: reading them costs 1.
    """
    read = set(stored)
    consumers: dict[UOp, int] = {}
    for node in order:
        for s in dict.fromkeys(node.src):
            consumers[s] = consumers.get(s, 0) + 1
    work: dict[UOp, float] = {}
    indices: set[UOp] = set()
    for node in order:
        if _is_index(node, indices):
            # Folded into loop counters and addresses.
            indices.add(node)
            work[node] = 0.0
            continue
        total = _own(node) + sum(1.0 if s in read else work[s] for s in node.src)
        if node.op is Op.EXPAND:
            # What does not vary along a loop is moved out of it.
            total *= elements(node.src[0].shape) / max(1, elements(node.shape))
        elif node.op is Op.REDUCE_AXIS:
            total *= elements(tuple(node.src[0].shape[axis] for axis in node.arg[1]))
        work[node] = min(total, WORK_LIMIT)
        if consumers.get(node, 0) > 1 and total > worth_storing(node):
            read.add(node)
    return work


def _is_index(node: UOp, indices: Container[UOp]) -> bool:
    """Whether `node` is arithmetic on positions alone."""
    if node.op in (Op.IOTA, Op.VAR, Op.CONST):
        return not node.dtype.is_float
    known = node.op in ALU or node.op in MOVEMENT
    return known and node.dtype in _INDEX_TYPES and all(s in indices for s in node.src)


def worth_storing(node: UOp) -> float:
    """Work per element from which storing beats repeating once."""
    return 3 * ROW_BYTE_COST * node.dtype.itemsize


def written(node: UOp) -> int:
    """Instructions of one evaluation of `node`, its operands left out."""
    return _WRITTEN.get(node.op, _LEAST_WRITTEN)


def _own(node: UOp) -> float:
    if node.op is Op.BUFFER:
        return 1.0
    if node.op in _FLOPS:
        return _FLOPS[node.op]
    return 1.0 if node.op in ALU or node.op is Op.REDUCE_AXIS else 0.0


def contraction_reuse(node: UOp) -> float:
    """How often a contraction uses each operand, for the operand used least; else 0.

    A contraction is a sum over products of two operands both of which are used more than once:
    a matrix product or a convolution. A matrix times a vector is an ordinary reduction.
    """
    if node.op is not Op.REDUCE_AXIS or node.arg[0] is not Op.ADD:
        return 0.0
    product = product_of(node)
    if product.op is not Op.MUL:
        return 0.0
    total = elements(product.shape)
    reuse = min(total / max(1, _distinct(s)) for s in product.src)
    return reuse if reuse > 1 else 0.0


def product_of(node: UOp) -> UOp:
    """What a sum adds up, below casts and reshapes."""
    product = node.src[0]
    while product.op in (Op.CAST, Op.RESHAPE, Op.PERMUTE):
        product = product.src[0]
    return product


def _distinct(node: UOp) -> int:
    """Elements that a chain of movement ops and casts really holds."""
    least = elements(node.shape)
    while node.op in MOVEMENT or node.op is Op.CAST:
        node = node.src[0]
        least = min(least, elements(node.shape))
    return least
