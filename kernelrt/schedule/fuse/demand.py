"""Uses of values in a kernel, each with its index and predicate, as plain data.

Fusion pushes indices from consumers to producers, once, and writes down what it meets; lowering
emits what is written. An index that is read from data stands in the record as the ELEMENT of the
tensor-level node that it is read from, at the index where it is read: that is all there is to know
of it before the kernel is emitted, and its value is put in its place then.
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

__all__ = ["POINTWISE", "Held", "Key", "Use", "Value", "demand", "picks_in", "reduced", "weakened"]

#: A tensor-level node and where it is wanted.
Key = tuple[UOp, Index]
#: Ops of which an element is made from the same element of each operand.
POINTWISE = ALU | {Op.CONTIGUOUS}


class Use(NamedTuple):
    """An operand as one value needs it.

    Attributes
    ----------
    node : UOp
        The operand.
    at : Index
        Where it is read.
    gate : UOp or None
        The condition under which this use touches it; None is always true.
    condition : UOp or None
        By what the value is chosen from its operands: that the element exists, for a movement op;
        that the index lies before the end of this part, for a CAT.
    """

    node: UOp
    at: Index
    gate: UOp | None
    condition: UOp | None = None


class Value(NamedTuple):
    """A node as it is computed at one index.

    Attributes
    ----------
    gate : UOp or None
        What covers the conditions of all its uses.
    uses : tuple of Use
        Its operands; none are listed of a :data:`POINTWISE` op, which wants them all at the index
        and under the condition of the value itself.
    loops : Index
        For a reduction, the RANGE of each reduced axis, or 0.
    """

    gate: UOp | None
    uses: tuple[Use, ...] = ()
    loops: Index = ()


class Held(NamedTuple):
    """A value that is read from an array which its kernel keeps.

    Attributes
    ----------
    at : Index
        The index that the array holds it at.
    loops : Index
        RANGEs of the array's elements, row-major.
    place : Index
        Which of them is read.
    """

    at: Index
    loops: Index
    place: Index


def demand(
    node: UOp, index: Index, gate: UOp | None, loops: Index, indexer: Indexer
) -> Value:
    """How `node` at `index` is computed: which operands it needs, and where.

    Parameters
    ----------
    node : UOp
        Of the tensor stage; neither a BUFFER nor of a :data:`POINTWISE` op.
    index : Index
        Where it is wanted.
    gate : UOp or None
        What covers the conditions under which it is wanted.
    loops : Index
        For a reduction, the loop of each reduced axis, or 0.
    indexer : Indexer
        Index arithmetic.
    """
    op = node.op
    if op in MOVEMENT:
        inner, condition = indexer.step(node, index)
        there = indexer.both(gate, condition)
        return Value(gate, (Use(node.src[0], inner, there, condition),))
    if op is Op.BOUND:
        return Value(gate, (Use(node.src[0], index, gate),))
    if op is Op.REDUCE_AXIS:
        inner = reduced(node, index, loops)
        return Value(gate, (Use(node.src[0], inner, gate),), loops)
    if op is Op.GATHER:
        source, *picks = node.src
        there = indexer.both(gate, _some_elements(node, index, indexer))
        return Value(gate, (
            *(Use(pick, index, gate) for pick in picks),
            Use(source, _picked(source, picks, index, indexer), there),
        ))  # fmt: skip
    if op is Op.CAT:
        return Value(gate, _parts(node, index, gate, indexer))
    return Value(gate)


def reduced(node: UOp, index: Index, loops: Iterable[UOp]) -> Index:
    """The index of a reduction's operand: `loops` along the axes that are reduced."""
    own, outer = iter(loops), iter(index)
    axes = node.arg[1]
    return tuple(next(own if a in axes else outer) for a in range(len(node.src[0].shape)))


def _parts(
    node: UOp, index: Index, gate: UOp | None, indexer: Indexer
) -> tuple[Use, ...]:
    steps, ends = indexer.parts(node, index), indexer.ends(node, index)
    return tuple(
        Use(part, inner, indexer.both(gate, own), end)
        for part, (inner, own), end in zip(node.src, steps, ends, strict=True)
    )


def _picked(source: UOp, picks: Sequence[UOp], index: Index, indexer: Indexer) -> Index:
    """The index that `picks` give: of one that is read from data no more than where it lies."""
    out: list[UOp] = []
    for pick, dim in zip(picks, source.shape, strict=True):
        place = indexer.position(pick, index)
        if place is None:
            element = UOp(Op.ELEMENT, dt.int64, index, pick)
            place = UOp(Op.BOUND, dt.int64, (element, as_uop(dim)))
        out.append(place)
    return tuple(out)


def _some_elements(node: UOp, index: Index, indexer: Indexer) -> UOp | None:
    """That no loop that walks `node` is empty, nor an axis, where that is not certain.

    What is read may vary with fewer loops than the index it is read at, and so be computed before
    a loop, also of no elements.
    """
    sizes: dict[UOp, None] = {}
    for dim, place in zip(node.shape, index, strict=True):
        loops = sorted(indexer.ranges(place), key=lambda r: int(r.arg))
        if loops:
            sizes |= dict.fromkeys((as_uop(dim), *(r.src[0] for r in loops)))
    found: UOp | None = None
    for size in sizes:
        if size.vmin <= 0:
            found = indexer.both(found, indexer.positive(size))
    return found


def picks_in(roots: Iterable[UOp]) -> list[UOp]:
    """What stands in expressions for indices read from data, what is inside others first."""
    return [n for n in toposort(roots) if n.op is Op.BOUND and n.src[0].op is Op.ELEMENT]


def weakened(gate: UOp, without: AbstractSet[UOp], indexer: Indexer) -> UOp | None:
    """A condition that holds wherever `gate` does and says nothing of the indices `without`."""
    if without.isdisjoint(picks_in([gate])):
        return gate
    if gate.op is Op.AND:
        out: UOp | None = None
        for part in conjuncts(gate):
            out = indexer.both(out, weakened(part, without, indexer))
        return out
    if gate.op is Op.OR:
        return indexer.either([weakened(s, without, indexer) for s in gate.src])
    return None
