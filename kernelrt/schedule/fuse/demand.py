"""Uses of values in a kernel, as plain data: the operand, its index and its predicate.

Fusion passes indices from consumers to producers once, and records every use. Lowering generates
the kernel from this record. If an index is itself read from a tensor, the record has an ELEMENT
(node, index) for it. For example, in ``x[t[i]]`` the index of `x` is ELEMENT(t, i). Lowering
replaces the ELEMENT by its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.shape import as_uop
from kernelrt.schedule.fuse.index_maps import Index
from kernelrt.schedule.fuse.predicates import conjuncts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from kernelrt.schedule.fuse.index_maps import Indexer

__all__ = [
    "POINTWISE", "ArrayRead", "Key", "Use", "Value", "demand", "picks_in", "reduced", "weakened",
]  # fmt: skip

#: A tensor-level node and the index at which it is needed.
Key = tuple[UOp, Index]
#: Ops that compute each element from the same element of each operand.
POINTWISE = ALU | {Op.CONTIGUOUS}


class Use(NamedTuple):
    """Use of an operand by a value.

    Attributes
    ----------
    node : UOp
        The operand.
    at : Index
        Index at which the operand is read.
    predicate : UOp or None
        Predicate under which the operand is read. None stands for a predicate that is always true.
    condition : UOp or None
        Condition that selects this operand. For a movement op, it is that the element exists. For a
        CAT, it is that the index is before the end of this operand.
    """

    node: UOp
    at: Index
    predicate: UOp | None
    condition: UOp | None = None


class Value(NamedTuple):
    """Computation of a node at one index.

    Attributes
    ----------
    predicate : UOp or None
        Predicate that covers all uses of the value.
    uses : tuple of Use
        Uses of the operands. Empty for a :data:`POINTWISE` op: it uses all operands at the index
        and under the predicate of the value itself.
    loops : Index
        For a reduction, the RANGE of each reduced axis, or 0.
    """

    predicate: UOp | None
    uses: tuple[Use, ...] = ()
    loops: Index = ()


class ArrayRead(NamedTuple):
    """A value that is read from a local array of its kernel.

    Attributes
    ----------
    at : Index
        Index at which the value is computed into the array.
    loops : Index
        RANGEs over the array, row-major.
    element : Index
        Index of the element that is read from the array.
    """

    at: Index
    loops: Index
    element: Index


def demand(
    node: UOp, index: Index, predicate: UOp | None, loops: Index, indexer: Indexer
) -> Value:
    """Return the operands of `node` at `index`, with their indices and predicates.

    Parameters
    ----------
    node : UOp
        Node of the tensor stage; neither a BUFFER nor a :data:`POINTWISE` op.
    index : Index
        Index at which the node is needed.
    predicate : UOp or None
        Predicate that covers all uses of the node there.
    loops : Index
        For a reduction, the loop of each reduced axis, or 0.
    indexer : Indexer
        Index arithmetic.
    """
    op = node.op
    if op in MOVEMENT:
        inner, condition = indexer.step(node, index)
        there = indexer.both(predicate, condition)
        return Value(predicate, (Use(node.src[0], inner, there, condition),))
    if op is Op.BOUND:
        return Value(predicate, (Use(node.src[0], index, predicate),))
    if op is Op.REDUCE_AXIS:
        inner = reduced(node, index, loops)
        return Value(predicate, (Use(node.src[0], inner, predicate),), loops)
    if op is Op.GATHER:
        source, *picks = node.src
        there = indexer.both(predicate, _some_elements(node, index, indexer))
        return Value(predicate, (
            *(Use(pick, index, predicate) for pick in picks),
            Use(source, _picked(source, picks, index, indexer), there),
        ))  # fmt: skip
    if op is Op.CAT:
        return Value(predicate, _parts(node, index, predicate, indexer))
    return Value(predicate)


def reduced(node: UOp, index: Index, loops: Iterable[UOp]) -> Index:
    """Return the index of a reduction's operand, with `loops` along the reduced axes."""
    own, outer = iter(loops), iter(index)
    axes = node.arg[1]
    return tuple(next(own if a in axes else outer) for a in range(len(node.src[0].shape)))


def _parts(
    node: UOp, index: Index, predicate: UOp | None, indexer: Indexer
) -> tuple[Use, ...]:
    steps, ends = indexer.parts(node, index), indexer.ends(node, index)
    return tuple(
        Use(part, inner, indexer.both(predicate, own), end)
        for part, (inner, own), end in zip(node.src, steps, ends, strict=True)
    )


def _picked(source: UOp, picks: Sequence[UOp], index: Index, indexer: Indexer) -> Index:
    """Return the index of `source` that `picks` select; an ELEMENT is an index from data."""
    out: list[UOp] = []
    for pick, dim in zip(picks, source.shape, strict=True):
        position = indexer.position(pick, index)
        if position is None:
            element = UOp(Op.ELEMENT, dt.int64, index, pick)
            position = UOp(Op.BOUND, dt.int64, (element, as_uop(dim)))
        out.append(position)
    return tuple(out)


def _some_elements(node: UOp, index: Index, indexer: Indexer) -> UOp | None:
    """Return the condition that no axis of `node`, and no loop over it, is empty.

    Return None if this is certain. The condition is needed because a value may vary with fewer
    loops than the index at which it is read. Then it is computed before the other loops begin, even
    if these have no iterations.
    """
    sizes: dict[UOp, None] = {}
    for dim, position in zip(node.shape, index, strict=True):
        loops = sorted(indexer.ranges(position), key=lambda r: int(r.arg))
        if loops:
            sizes |= dict.fromkeys((as_uop(dim), *(r.src[0] for r in loops)))
    found: UOp | None = None
    for size in sizes:
        if size.vmin <= 0:
            found = indexer.both(found, indexer.positive(size))
    return found


def picks_in(roots: Iterable[UOp]) -> list[UOp]:
    """Return the BOUNDs of ELEMENTs (indices read from data) in `roots`, inner ones first."""
    return [n for n in toposort(roots) if n.op is Op.BOUND and n.src[0].op is Op.ELEMENT]


def weakened(predicate: UOp, without: AbstractSet[UOp], indexer: Indexer) -> UOp | None:
    """Return a condition that `predicate` implies and that does not contain `without`."""
    if without.isdisjoint(picks_in([predicate])):
        return predicate
    if predicate.op is Op.AND:
        out: UOp | None = None
        for part in conjuncts(predicate):
            out = indexer.both(out, weakened(part, without, indexer))
        return out
    if predicate.op is Op.OR:
        return indexer.either([weakened(s, without, indexer) for s in predicate.src])
    return None
