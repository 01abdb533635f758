"""Which values get a buffer, decided by counted work and bytes.

The graph is walked once, consumers first. By the time a node is visited it is known in which
kernels and at which indices its value is wanted, so how often it would be computed if it were
inlined there can be counted, and compared with what a buffer costs. A node that gets a buffer
starts a kernel of its own; merging kernels with one iteration space comes after
(:mod:`kernelrt.schedule.merge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.shape import as_uop
from kernelrt.schedule.cost import (
    BYTE_COST,
    FREE,
    LAUNCH_COST,
    MAX_KERNEL_NODES,
    OPERAND_WORK,
    PARALLEL_WORK,
    TILE_REUSE,
    contraction_reuse,
    elements,
    work_of,
)
from kernelrt.schedule.groups import Group
from kernelrt.schedule.indexing import Index, Indexer
from kernelrt.schedule.types import Decision

__all__ = ["Fusion", "fuse"]

#: Ops that have a buffer by their nature.
_STORED = frozenset({Op.CONTIGUOUS, Op.SCATTER_ADD})
#: Reductions to this many elements or fewer cannot keep several cores busy.
_FEW = 16


@dataclass(slots=True)
class Fusion:
    """What the walk decided.

    Attributes
    ----------
    groups : list of Group
        Kernels, consumers before producers.
    home : dict
        Stored node -> the group whose end it is complete at.
    decisions : list of Decision
        For the user who asks why.
    """

    groups: list[Group] = field(default_factory=list)
    home: dict[UOp, Group] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)


def fuse(
    wanted: Sequence[UOp], committed: Mapping[UOp, Sequence[UOp]], indexer: Indexer
) -> Fusion:
    """Decide for every node below `wanted` whether it gets a buffer.

    Parameters
    ----------
    wanted : sequence of UOp
        Nodes that must have one (without reshapes on top).
    committed : mapping
        Those of them that are written to lasting state -> the BUFFERs there.
    indexer : Indexer
        Index arithmetic.
    """
    return _Walk(wanted, committed, indexer).run()


class _Walk:
    def __init__(
        self, wanted: Sequence[UOp], committed: Mapping[UOp, Sequence[UOp]], indexer: Indexer
    ) -> None:
        self._indexer = indexer
        self._order = list(toposort(wanted))
        self._committed = committed
        self._forced = set(wanted) | {n for n in self._order if n.op in _STORED}
        self._work = work_of(self._order, self._forced)
        self._accesses: dict[UOp, dict[tuple[Group, Index], None]] = {}
        self._fusion = Fusion()

    def run(self) -> Fusion:
        for node in reversed(self._order):
            accesses = self._accesses.pop(node, {})
            if not accesses and node not in self._forced:
                continue
            if not elements(node.shape):
                continue
            if node.op is Op.BUFFER:
                for group, index in accesses:
                    group.read(node, index)
            elif self._gets_buffer(node, accesses):
                for group, index in accesses:
                    group.read(node, index)
                self._start(node)
            else:
                for group, index in accesses:
                    self._descend(node, group, index)
        return self._fusion

    # The decision

    def _gets_buffer(self, node: UOp, accesses: Iterable[tuple[Group, Index]]) -> bool:
        if node in self._forced:
            why = "SCATTER_ADD" if node.op is Op.SCATTER_ADD else "asked for"
            self._note(node, "global", why)
            return True
        if node.op in FREE or self._work[node] == 0:
            return False
        if any(group.size >= MAX_KERNEL_NODES for group, _ in accesses):
            self._note(node, "global", "the kernel that reads it is full")
            return True
        refusal = self._refusal(node, accesses)
        if refusal is not None:
            self._note(node, "global", refusal)
            return True
        return self._cheaper_stored(node, accesses)

    def _refusal(self, node: UOp, accesses: Iterable[tuple[Group, Index]]) -> str | None:
        """A reason for a buffer that no count outweighs."""
        if node.op is Op.BOUND and any(group.targets for group, _ in accesses):
            return "a failing check must come before a commit"
        if node.op is not Op.REDUCE_AXIS:
            return None
        count = elements(node.shape)
        if contraction_reuse(node):
            if any(group.inside_reduction(index) for group, index in accesses):
                return "a contraction inside another reduction's loop"
            if any(group.contractions - {(node, index)} for group, index in accesses):
                return "one contraction a kernel"
        elif count <= _FEW and self._work[node] * count >= PARALLEL_WORK:
            for group, index in accesses:
                if group.hoisted(index) and not group.inside_reduction(index):
                    return "a long reduction to few elements, used by many"
        return None

    def _cheaper_stored(self, node: UOp, accesses: Iterable[tuple[Group, Index]]) -> bool:
        """Compare repeated work with the traffic of a buffer."""
        work = self._work[node]
        count = elements(node.shape)
        total = 0.0
        for group, index in accesses:
            times = group.evaluations(index)
            if work <= OPERAND_WORK and group.inside_contraction(index):
                times = max(min(times, count), times / TILE_REUSE)
            total += times
        if total <= count:
            return False
        repeated = (total - count) * work
        stored = 2 * BYTE_COST * node.dtype.itemsize * count + LAUNCH_COST
        stored += BYTE_COST * node.dtype.itemsize * min(total, 2 * count)
        choice = "global" if repeated > stored else "inline"
        self._note(
            node, choice,
            f"{total:.3g} evaluations of {count} elements: {repeated:.3g} to repeat, "
            f"{stored:.3g} to store",
        )  # fmt: skip
        return repeated > stored

    def _note(self, node: UOp, choice: str, reason: str) -> None:
        self._fusion.decisions.append(Decision(node, choice, reason))

    # The walk

    def _start(self, node: UOp) -> None:
        """A kernel, or two for SCATTER_ADD, that computes `node` into its buffer."""
        kinds = ("add", "init") if node.op is Op.SCATTER_ADD else ("map",)
        for kind in kinds:
            shape = node.src[1].shape if kind == "add" else node.shape
            targets = dict.fromkeys(self._committed.get(node, ()))
            group = Group(shape, kind, [node], targets)
            if elements(shape) == 0:
                continue
            self._fusion.groups.append(group)
            self._fusion.home.setdefault(node, group)
            if kind == "map":
                self._descend(node, group, group.natural)
            else:
                for operand in node.src[1:] if kind == "add" else node.src[:1]:
                    self._access(operand, group, group.natural)

    def _access(self, node: UOp, group: Group, index: Index) -> None:
        self._accesses.setdefault(node, {})[group, index] = None

    def _descend(self, node: UOp, group: Group, index: Index) -> None:
        """Pass the wish for `node` at `index` on to its operands."""
        op = node.op
        if op not in FREE:
            group.size += 1
        if op in ALU or op is Op.CONTIGUOUS:
            for s in node.src:
                self._access(s, group, index)
        elif op is Op.BOUND:
            group.checks = True
            self._access(node.src[0], group, index)
        elif op in MOVEMENT:
            self._access(node.src[0], group, self._indexer.step(node, index)[0])
        elif op is Op.REDUCE_AXIS:
            self._descend_reduction(node, group, index)
        elif op is Op.GATHER:
            for s in node.src[1:]:
                self._access(s, group, index)
            self._access(node.src[0], group, self._opaque(node, group, index))
        elif op is Op.CAT:
            for s, shifted in zip(node.src, self._indexer.parts(node, index), strict=True):
                self._access(s, group, shifted[0])

    def _descend_reduction(self, node: UOp, group: Group, index: Index) -> None:
        axes = node.arg[1]
        source = node.src[0]
        contraction = contraction_reuse(node) > 0
        if contraction:
            group.contractions.add((node, index))
        own = iter(group.enter(index, [source.shape[a] for a in axes], contraction))
        outer = iter(index)
        inner = tuple(
            next(own) if axis in axes else next(outer) for axis in range(len(source.shape))
        )
        self._access(source, group, inner)

    def _opaque(self, node: UOp, group: Group, index: Index) -> Index:
        """Stand-ins for indices that are read from data: unknown, varying with `index`."""
        varying = tuple(sorted(group.ranges(index), key=lambda r: int(r.arg)))
        return tuple(
            UOp(
                Op.BOUND, dt.int64,
                (UOp(Op.LOAD, dt.int64, varying, (tensor, index)), as_uop(dim)),
            )
            for tensor, dim in zip(node.src[1:], node.src[0].shape, strict=True)
        )  # fmt: skip
