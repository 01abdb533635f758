"""Batching rules of loops and branches; see :mod:`.batching_rules`.

Some operands of a loop or branch have the new batch axis, others do not. A carry of a loop has the
batch axis if its first value has it, or if an iteration computes it from a value that has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import VariableError
from kernelrt.ir import Op, UOp
from kernelrt.ir.region import Choice, Loop
from kernelrt.native.node import count_asked
from kernelrt.tensor.autograd.dependence import varying
from kernelrt.tensor.autograd.tags import detach, rewritten
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing import region_graphs
from kernelrt.tensor.tracing.region_graphs import Slot, slot
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.tracing import batching_rules
else:
    batching_rules = Module("kernelrt.tensor.tracing.batching_rules")

__all__ = ["BatchedValue", "batched_run"]


@dataclass(frozen=True, slots=True)
class BatchedValue:
    """The batched form of a node.

    Attributes
    ----------
    value : UOp
        Values along the new first axis, or a value that all batch elements share.
    batched : bool
        Whether `value` has the batch axis.
    """

    value: UOp
    batched: bool

    def lifted(self, count: Dim) -> UOp:
        """Return the values along the batch axis; broadcast a shared value."""
        if self.batched:
            return self.value
        return build.broadcast_to(self.value, (count, *self.value.shape))


def batched_run(
    nodes: Sequence[UOp], operands: Sequence[BatchedValue], count: Dim
) -> dict[UOp, BatchedValue]:
    """Batch the results of a loop or branch with at least one batched operand.

    Parameters
    ----------
    nodes : sequence of UOp
        REGION nodes of one program over the same operands.
    operands : sequence of BatchedValue
        Batched forms of the operands.
    count : Dim
        Size of the batch axis.

    Raises
    ------
    VariableError
        `count` is not fixed.
    """
    program = nodes[0].arg.program
    if not isinstance(count, int):
        raise VariableError(
            f"vmap: a loop needs a fixed number of batch elements, not {count}; leave the batch "
            "axis out of jit(dynamic=...)"
        )
    if isinstance(program, Loop):
        return _BatchedLoop(program, nodes, operands, count).values()
    if operands[0].batched:
        return _selected_branches(program, nodes, operands, count)
    return _batched_branch(program, nodes, operands, count)


def _along(
    graphs: Sequence[UOp],
    ports: Sequence[UOp],
    given: Mapping[UOp, UOp],
    put: Mapping[UOp, UOp],
    count: Dim,
) -> list[BatchedValue]:
    """Batch graphs of a body whose ports are replaced by the values in `given` and `put`.

    Values in `given` have the batch axis, values in `put` do not.

    Ports are identified by number, so a port of this body may equal a port of an enclosing body
    that the replacements read. Placeholders keep them apart.
    """
    own = {p: slot(p.shape, p.dtype).memory for p in ports}
    new = {own[p]: value for p, value in given.items()}
    made = batching_rules.along(rewritten(graphs, own), new, count)
    values = rewritten([m.value for m in made], {own[p]: value for p, value in put.items()})
    return [BatchedValue(value, m.batched) for value, m in zip(values, made, strict=True)]


def _flat(node: UOp, count: int) -> UOp:
    size = build.volume(node.shape[1:])
    return build.reshape(node, (count, size))


def _batched_branch(
    program: Choice, nodes: Sequence[UOp], operands: Sequence[BatchedValue], count: int
) -> dict[UOp, BatchedValue]:
    since = count_asked()
    slots: list[tuple[Slot, UOp]] = []
    put: dict[UOp, UOp] = {}
    given = {}
    for p, s in zip(program.ports, operands[1:], strict=True):
        if s.batched:
            stands = slot((count, *p.shape), p.dtype)
            slots.append((stands, _flat(s.value, count)))
            given[p] = stands.node
        else:
            put[p] = build.reshape(s.value, p.shape)
    branches = [
        _along([n.arg.values[b] for n in nodes], program.ports, given, put, count)
        for b in range(program.branches)
    ]
    batched = [any(v.batched for v in values) for values in zip(*branches, strict=True)]
    graphs = [
        [v.lifted(count) if a else v.value for v, a in zip(values, batched, strict=True)]
        for values in branches
    ]
    found = region_graphs.choice(operands[0].value, slots, graphs, since=since)
    return dict(zip(nodes, map(BatchedValue, found, batched), strict=True))


def _selected_branches(
    program: Choice, nodes: Sequence[UOp], operands: Sequence[BatchedValue], count: int
) -> dict[UOp, BatchedValue]:
    """Batch a branch whose index differs between batch elements.

    Each branch is computed for all batch elements, and each element selects its result. Results
    that are the same in all branches need no selection.
    """
    each = build.reshape(operands[0].value, (count,))
    mapped: dict[UOp, UOp] = {}
    put: dict[UOp, UOp] = {}
    for p, s in zip(program.ports, operands[1:], strict=True):
        if s.batched:
            mapped[p] = build.reshape(s.value, (count, *p.shape))
        else:
            put[p] = build.reshape(s.value, p.shape)
    common = [n for n in nodes if all(v is n.arg.values[0] for v in n.arg.values)]
    values = _along([n.arg.values[0] for n in common], program.ports, mapped, put, count)
    made = dict(zip(common, values, strict=True))
    nodes = [n for n in nodes if n not in made]
    taken: list[UOp] = []
    for k in range(program.branches) if nodes else ():
        here = _takes_branch(each, k, program.branches)
        given = {p: _safe(found, here) for p, found in mapped.items()}
        any_ = build.reduce(here, Op.MAX, (0,)).cast(dt.int64)
        since = count_asked()
        graphs = [n.arg.values[k] for n in nodes]
        new = [v.lifted(count) for v in _along(graphs, program.ports, given, put, count)]
        if region_graphs.may_fail(new, since):
            none = [build.full(0, v.dtype, v.shape) for v in new]
            new = region_graphs.choice(any_, [], [none, new], since=since)
        before = taken or new
        taken = [_where(here, v, t) for v, t in zip(new, before, strict=True)]
    return made | dict(zip(nodes, [BatchedValue(t, True) for t in taken], strict=True))


def _takes_branch(each: UOp, k: int, branches: int) -> UOp:
    """Return the mask of batch elements that take branch `k`; indices are clamped to the range."""
    number = build.full(k, dt.int64, each.shape)
    if k == 0:
        return each.alu(Op.LE, number)
    return number.alu(Op.LE if k == branches - 1 else Op.EQ, each)


def _where(here: UOp, yes: UOp, no: UOp) -> UOp:
    """Return `yes` for the batch elements where `here` is true, else `no`."""
    at = build.reshape(here, (*here.shape, *(1 for _ in yes.shape[1:])))
    return build.where(build.broadcast_to(at, yes.shape), yes, no)


def _safe(value: UOp, here: UOp) -> UOp:
    """Return `value`, with elements where `here` is false replaced by the first where it is true.

    Discarded results computed from the replacement fail only if kept results fail, too. They also
    have no infinite derivatives, which would give NaN when multiplied by 0.
    """
    (count,) = here.shape
    end = build.full(count - 1 if isinstance(count, int) else count, dt.int64, here.shape)
    first = build.reduce(build.where(here, build.iota(count), end), Op.MIN, (0,))
    chosen = build.iota(count).alu(Op.EQ, build.broadcast_to(first, here.shape))
    zeros = build.full(0, value.dtype, value.shape)
    op = Op.MAX if value.dtype.is_bool else Op.ADD
    row = build.reduce(_where(chosen, value, zeros), op, (0,))
    return _where(here, value, detach(build.broadcast_to(row, value.shape)))


class _BatchedLoop:
    def __init__(
        self, program: Loop, nodes: Sequence[UOp], operands: Sequence[BatchedValue], count: int
    ) -> None:
        self._loop, self._nodes, self._operands, self._count = program, nodes, operands, count
        self._carried = len(program.carries)
        #: The ports that have the batch axis.
        varies = varying(program, [s.batched for s in operands])
        self._varies = {program.ports[k] for k in varies}
        #: Number of iterations of each batch element, if these differ and are known in advance.
        counted = program.counted and operands[-1].batched
        self._counts = operands[-1].value if counted else None
        #: Whether batch elements end after different numbers of iterations.
        self._diverges = self._counts is not None or (
            program.conditional and program.ports[0] in self._varies
        )

    def values(self) -> dict[UOp, BatchedValue]:
        """Return the batched results of the loop."""
        loop, count = self._loop, self._count
        since = count_asked()
        given: dict[UOp, UOp] = {}
        put: dict[UOp, UOp] = {}
        carried = [self._slot(p) for p in loop.ports[: self._carried]]
        behind = self._carried + loop.stacked
        sliced = [self._slot(p) for p in loop.ports[self._carried : behind]]
        number = slot((1,), dt.int64) if loop.numbered or self._counts is not None else None
        if number is not None and loop.numbered:
            put[loop.ports[-1]] = number.memory
        begins, goes = self._running(carried, number)
        # A batch element that has ended computes with the inputs of its last iteration.
        held = [self._slot(p) for p in loop.ports[: self._carried]] if goes is not None else []
        used: list[UOp] = []
        for k, (p, s) in enumerate(zip(loop.ports, (*carried, *sliced), strict=False)):
            if p not in self._varies:
                put[p] = s.memory
            elif goes is not None and k < self._carried:
                used.append(_where(goes, s.node, detach(held[k].node)))
                given[p] = used[-1]
            else:
                given[p] = s.node
        for k in range(behind, len(loop.ports) - loop.numbered):
            p, found = loop.ports[k], self._operands[k]
            if found.batched:
                flat = _flat(found.value, count)
                given[p] = flat if begins is None else _safe(flat, begins)
            else:
                put[p] = build.reshape(found.value, p.shape)
        rows = [n for n in self._nodes if n.arg.carry < 0]
        graphs = [*loop.carries, *(n.arg.each for n in rows)]
        made = _along(graphs, loop.ports, given, put, count)
        new = [
            m.lifted(count) if p in self._varies else m.value
            for p, m in zip(loop.ports, made[: self._carried], strict=False)
        ]
        made_by_row = dict(zip(rows, made[self._carried :], strict=True))
        carries = self._batched_carries(carried, new, goes)
        if begins is not None:
            firsts = (_safe(self._first(k), begins) for k in range(self._carried))
            carries += zip(held, firsts, map(detach, used), strict=True)
        wholes = [self._whole(k) for k in range(self._carried, behind)]
        operand = self._operands[-1].value if loop.counted else None
        if self._counts is not None:
            operand = build.reduce(build.reshape(self._counts, (count,)), Op.MAX, (0,))
        made_rows = [m.value for m in made_by_row.values()]
        finals, stacks = region_graphs.loop(
            carries, list(zip(sliced, wholes, strict=True)), made_rows, loop.trip_count,
            since=since, number=number, count=operand, reverse=loop.reverse,
            conditional=loop.conditional, checkpoint=loop.checkpoint,
        )  # fmt: skip
        finals = finals[2:] if self._diverges and self._counts is None else finals
        out: dict[UOp, BatchedValue] = {}
        for node, row in zip(rows, stacks, strict=True):
            own = made_by_row[node].batched
            out[node] = BatchedValue(_swapped(row) if own else row, own)
        for node in self._nodes:
            if (k := node.arg.carry) >= 0:
                own = loop.ports[k] in self._varies
                shape = (count, *node.shape) if own else node.shape
                out[node] = BatchedValue(build.reshape(finals[k], shape), own)
        return out

    def _slot(self, p: UOp) -> Slot:
        return slot((self._count, *p.shape) if p in self._varies else p.shape, p.dtype)

    def _first(self, k: int) -> UOp:
        p, found = self._loop.ports[k], self._operands[k]
        if found.batched:
            return _flat(found.value, self._count)
        one = build.reshape(found.value, p.shape)
        return BatchedValue(one, False).lifted(self._count) if p in self._varies else one

    def _whole(self, k: int) -> UOp:
        """Return the array that the loop slices, with the iterations along the first axis."""
        found, shape = self._operands[k], (self._loop.trip_count, *self._loop.ports[k].shape)
        if not found.batched:
            return build.reshape(found.value, shape)
        return _swapped(build.reshape(found.value, (self._count, *shape)))

    def _running(self, slots: Sequence[Slot], number: Slot | None) -> tuple[UOp | None, UOp | None]:
        """Return masks of the batch elements that run at all, and that run in this iteration.

        Return None twice if all batch elements end together.
        """
        if not self._diverges:
            return None, None
        if self._counts is None:
            return build.reshape(self._first(0), (self._count,)), build.reshape(
                slots[0].node, (self._count,)
            )
        assert number is not None
        counts = build.reshape(self._counts, (self._count,))
        zeros = build.full(0, dt.int64, counts.shape)
        iteration = build.broadcast_to(number.node, counts.shape)
        return zeros.alu(Op.LT, counts), iteration.alu(Op.LT, counts)

    def _batched_carries(
        self, slots: Sequence[Slot], new: Sequence[UOp], goes: UOp | None
    ) -> list[tuple[Slot, UOp, UOp]]:
        """Return each carry: its slot, its first value and its value after an iteration."""
        new = [build.reshape(n, s.shape) for n, s in zip(new, slots, strict=True)]
        firsts = [self._first(k) for k in range(self._carried)]
        if goes is None:
            return list(zip(slots, firsts, new, strict=True))
        kept = [_where(goes, n, s.node) for s, n in zip(slots, new, strict=True)]
        if self._counts is not None:
            return list(zip(slots, firsts, kept, strict=True))
        # A batch element that has ended must not start again.
        kept[0] = new[0].alu(Op.AND, slots[0].node)
        flag, iteration = slot((), dt.bool_), slot((), dt.int64)
        some = [build.reduce(g, Op.MAX, range(len(g.shape))) for g in (firsts[0], kept[0])]
        return [
            (flag, some[0], some[1]),
            (iteration, build.scalar(0, dt.int64), build.add(iteration.node, 1)),
            *zip(slots, firsts, kept, strict=True),
        ]


def _swapped(node: UOp) -> UOp:
    """Swap the first two axes."""
    return build.permute(node, (1, 0, *range(2, len(node.shape))))
