"""Runs of programs for many values at once: what :mod:`.batching` makes of REGION nodes.

Of what is given to a run some has the new axis and some has not. What a loop carries has it where
its first value has, or where a turn gives it one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import VariableError
from kernelrt.ir import Op, UOp
from kernelrt.ir.region import Choice, Loop
from kernelrt.tensor import build, regions
from kernelrt.tensor.marks import below, detach, reads_of, rewritten
from kernelrt.tensor.regions import Slot, slot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.ir import Dim

__all__ = ["batched_run"]


def batched_run(
    nodes: Sequence[UOp], done: Mapping[UOp, UOp | None], count: Dim, alike: dict[UOp, UOp]
) -> dict[UOp, UOp | None]:
    """The values of a run along the new axis.

    Parameters
    ----------
    nodes : sequence of UOp
        REGION nodes of one program over the same operands.
    done : mapping
        For each operand its values along the axis; None where it has none.
    count : Dim
        The size of the axis.
    alike : dict
        Here come the values of nodes that are the same along the axis.

    Raises
    ------
    VariableError
        `count` is not fixed.
    """
    program, src = nodes[0].arg.program, nodes[0].src
    if all(done[s] is None for s in src):
        return dict.fromkeys(nodes)
    if not isinstance(count, int):
        raise VariableError(f"the number of values of a loop must be fixed, not {count}")
    if isinstance(program, Choice):
        return _chosen(program, nodes, done, count)
    mapped = _Mapped(program, nodes, done, count)
    values = mapped.values()
    alike.update(mapped.alike)
    return values


def _along(
    graphs: Sequence[UOp],
    ports: Sequence[UOp],
    given: Mapping[UOp, UOp],
    put: Mapping[UOp, UOp],
    count: Dim,
) -> list[UOp]:
    """Graphs of a program along the new axis, with `given` and `put` in the place of its ports.

    Ports are told by their numbers, so one of this program may equal one of a program around it,
    which what is given is made of: stand-ins keep them apart.
    """
    from kernelrt.tensor.batching import batched

    own = {p: slot(p.shape, p.dtype).place for p in ports}
    made = batched(
        rewritten(graphs, own), {own[p]: value for p, value in given.items()}, count
    )
    return rewritten(made, {own[p]: value for p, value in put.items()})


def _flat(node: UOp, count: int) -> UOp:
    size = build.volume(node.shape[1:])
    return build.reshape(node, (count, size))


def _chosen(
    program: Choice, nodes: Sequence[UOp], done: Mapping[UOp, UOp | None], count: int
) -> dict[UOp, UOp | None]:
    which, operands = nodes[0].src[0], nodes[0].src[1:]
    each = done[which]
    if each is not None:
        return _all_chosen(program, nodes, done, build.reshape(each, (count,)))
    since = regions.newest()
    slots: list[tuple[Slot, UOp]] = []
    put: dict[UOp, UOp] = {}
    given = {}
    for p, s in zip(program.ports, operands, strict=True):
        found = done[s]
        if found is None:
            put[p] = build.reshape(s, p.shape)
        else:
            stands = slot((count, *p.shape), p.dtype)
            slots.append((stands, _flat(found, count)))
            given[p] = stands.node
    branches = [
        _along([n.arg.values[b] for n in nodes], program.ports, given, put, count)
        for b in range(program.branches)
    ]
    return dict(zip(nodes, regions.choice(which, slots, branches, since=since), strict=True))


def _all_chosen(
    program: Choice, nodes: Sequence[UOp], done: Mapping[UOp, UOp | None], each: UOp
) -> dict[UOp, UOp | None]:
    """Where members take different branches: each is computed for all, and they keep their own."""
    operands = nodes[0].src[1:]
    (count,) = each.shape
    mapped: dict[UOp, UOp] = {}
    put: dict[UOp, UOp] = {}
    for p, s in zip(program.ports, operands, strict=True):
        found = done[s]
        if found is None:
            put[p] = build.reshape(s, p.shape)
        else:
            mapped[p] = build.reshape(found, (count, *p.shape))
    taken: list[UOp] = []
    for k in range(program.branches):
        here = _takes(each, k, program.branches)
        given = {p: _safe(found, here) for p, found in mapped.items()}
        any_ = build.reduce(here, Op.MAX, (0,)).cast(dt.int64)
        since = regions.newest()
        graphs = [n.arg.values[k] for n in nodes]
        values = _along(graphs, program.ports, given, put, count)
        if regions.may_fail(values, since):
            none = [build.full(0, v.dtype, v.shape) for v in values]
            values = regions.choice(any_, [], [none, values], since=since)
        before = taken or values
        taken = [_where(here, v, t) for v, t in zip(values, before, strict=True)]
    return dict(zip(nodes, taken, strict=True))


def _takes(each: UOp, k: int, branches: int) -> UOp:
    """Which members take branch `k`: the first also for lower numbers, the last for higher ones."""
    number = build.full(k, dt.int64, each.shape)
    if k == 0:
        return each.alu(Op.LE, number)
    return number.alu(Op.LE if k == branches - 1 else Op.EQ, each)


def _where(here: UOp, yes: UOp, no: UOp) -> UOp:
    """`yes` for the members that `here` holds for."""
    at = build.reshape(here, (*here.shape, *(1 for _ in yes.shape[1:])))
    return build.where(build.broadcast_to(at, yes.shape), yes, no)


def _safe(value: UOp, here: UOp) -> UOp:
    """`value`, of the first of the members that `here` holds for where it does not hold.

    What is computed of that and not kept fails no more than what is kept does, and has no infinite
    derivatives, of which nothing times would be NaN.
    """
    (count,) = here.shape
    end = build.full(count - 1 if isinstance(count, int) else count, dt.int64, here.shape)
    first = build.reduce(build.where(here, build.iota(count), end), Op.MIN, (0,))
    chosen = build.iota(count).alu(Op.EQ, build.broadcast_to(first, here.shape))
    zeros = build.full(0, value.dtype, value.shape)
    op = Op.MAX if value.dtype.is_bool else Op.ADD
    row = build.reduce(_where(chosen, value, zeros), op, (0,))
    return _where(here, value, detach(build.broadcast_to(row, value.shape)))


class _Mapped:
    def __init__(
        self, program: Loop, nodes: Sequence[UOp], done: Mapping[UOp, UOp | None], count: int
    ) -> None:
        self._loop, self._nodes, self._done, self._count = program, nodes, done, count
        self._src = nodes[0].src
        #: What is the same along the axis.
        self.alike: dict[UOp, UOp] = {}
        self._carried = len(program.carries)
        self._varies = self._find_varying()
        #: How many turns each member takes, where that differs and is known before.
        self._counts = self._done[self._src[-1]] if program.counted else None
        #: Whether members end in different turns.
        self._apart = self._counts is not None or (
            program.conditional and program.ports[0] in self._varies
        )

    def _find_varying(self) -> set[UOp]:
        """The ports that have the axis."""
        loop = self._loop
        known = zip(loop.ports, self._src, strict=False)
        varies = {p for p, s in known if self._done[s] is not None}
        if loop.counted and self._done[self._src[-1]] is not None:
            # Members end apart.
            return {*varies, *loop.ports[: len(loop.carries)]}
        while True:
            seen: set[UOp] = set()
            for node in below(loop.carries, loop.ports.__contains__):
                if node in varies or any(r in seen for r in reads_of(node)):
                    seen.add(node)
            # Where members end apart, what they carry stays as it is at the end of each.
            ends = loop.conditional and (loop.ports[0] in varies or loop.carries[0] in seen)
            new = {p for p, c in zip(loop.ports, loop.carries, strict=False) if c in seen or ends}
            if new <= varies:
                return varies
            varies |= new

    def values(self) -> dict[UOp, UOp | None]:
        """What the run gives, along the axis."""
        loop, count = self._loop, self._count
        since = regions.newest()
        given: dict[UOp, UOp] = {}
        put: dict[UOp, UOp] = {}
        carried = [self._slot(p) for p in loop.ports[: self._carried]]
        behind = self._carried + loop.stacked
        sliced = [self._slot(p) for p in loop.ports[self._carried : behind]]
        number = slot((1,), dt.int64) if loop.numbered or self._counts is not None else None
        if number is not None and loop.numbered:
            put[loop.ports[-1]] = number.place
        begins, goes = self._alive(carried, number)
        # What is computed for a member that has ended is computed of what it last went on from.
        held = [self._slot(p) for p in loop.ports[: self._carried]] if goes is not None else []
        used: list[UOp] = []
        for k, (p, s) in enumerate(zip(loop.ports, (*carried, *sliced), strict=False)):
            if p not in self._varies:
                put[p] = s.place
            elif goes is not None and k < self._carried:
                used.append(_where(goes, s.node, detach(held[k].node)))
                given[p] = used[-1]
            else:
                given[p] = s.node
        for k in range(behind, len(loop.ports) - loop.numbered):
            p, found = loop.ports[k], self._done[self._src[k]]
            if found is None:
                put[p] = build.reshape(self._src[k], p.shape)
            else:
                flat = _flat(found, count)
                given[p] = flat if begins is None else _safe(flat, begins)
        rows = [n for n in self._nodes if n.arg.carry < 0]
        graphs = [*loop.carries, *(n.arg.each for n in rows)]
        varied = set(self._with_axis(graphs))
        made = iter(_along([g for g in graphs if g in varied], loop.ports, given, put, count))
        plain = iter(rewritten([g for g in graphs if g not in varied], put))
        new = [next(made) if g in varied else next(plain) for g in graphs]
        turns = self._turns(carried, new[: self._carried], goes)
        if begins is not None:
            firsts = (_safe(self._first(k), begins) for k in range(self._carried))
            turns += zip(held, firsts, map(detach, used), strict=True)
        arrays = zip(loop.ports[self._carried : behind], self._src[self._carried :], strict=False)
        wholes = [self._whole(p, s) for p, s in arrays]
        operand = self._src[-1] if loop.counted else None
        if self._counts is not None:
            operand = build.reduce(build.reshape(self._counts, (count,)), Op.MAX, (0,))
        finals, stacks = regions.loop(
            turns, list(zip(sliced, wholes, strict=True)), new[self._carried :], loop.turns,
            since=since, number=number, count=operand, reverse=loop.reverse,
            conditional=loop.conditional, checkpoint=loop.checkpoint,
        )  # fmt: skip
        finals = finals[2:] if self._apart and self._counts is None else finals
        out: dict[UOp, UOp | None] = {}
        stack = iter(stacks)
        for node in self._nodes:
            k = node.arg.carry
            if k < 0:
                row = next(stack)
                own = node.arg.each in varied
                out[node] = _swapped(row) if own else self._spread(node, row)
            elif loop.ports[k] in self._varies:
                out[node] = build.reshape(finals[k], (count, *node.shape))
            else:
                out[node] = self._spread(node, build.reshape(finals[k], node.shape))
        return out

    def _spread(self, node: UOp, value: UOp) -> UOp:
        """The value of a node that is the same along the axis."""
        self.alike[node] = value
        return build.broadcast_to(value, (self._count, *value.shape))

    def _with_axis(self, graphs: Sequence[UOp]) -> list[UOp]:
        """Those of the graphs that have the axis."""
        seen: set[UOp] = set()
        for node in below(graphs, self._loop.ports.__contains__):
            if node in self._varies or any(r in seen for r in reads_of(node)):
                seen.add(node)
        lifted = {c for p, c in zip(self._loop.ports, self._loop.carries, strict=False)
                  if p in self._varies}  # fmt: skip
        return [g for g in graphs if g in seen or g in lifted]

    def _slot(self, p: UOp) -> Slot:
        return slot((self._count, *p.shape) if p in self._varies else p.shape, p.dtype)

    def _first(self, k: int) -> UOp:
        p, s = self._loop.ports[k], self._src[k]
        found = self._done[s]
        if p not in self._varies:
            return build.reshape(s, p.shape)
        if found is None:
            return build.broadcast_to(build.reshape(s, p.shape), (self._count, *p.shape))
        return _flat(found, self._count)

    def _whole(self, p: UOp, s: UOp) -> UOp:
        """What slices are of, turns first."""
        found = self._done[s]
        if found is None:
            return build.reshape(s, (self._loop.turns, *p.shape))
        shape = (self._count, self._loop.turns, *p.shape)
        return _swapped(build.reshape(found, shape))

    def _alive(self, slots: Sequence[Slot], number: Slot | None) -> tuple[UOp | None, UOp | None]:
        """Which members take a first turn, and which this one; None where they end together."""
        if not self._apart:
            return None, None
        if self._counts is None:
            return build.reshape(self._first(0), (self._count,)), build.reshape(
                slots[0].node, (self._count,)
            )
        assert number is not None
        counts = build.reshape(self._counts, (self._count,))
        zeros = build.full(0, dt.int64, counts.shape)
        turn = build.broadcast_to(number.node, counts.shape)
        return zeros.alu(Op.LT, counts), turn.alu(Op.LT, counts)

    def _turns(
        self, slots: Sequence[Slot], new: Sequence[UOp], goes: UOp | None
    ) -> list[tuple[Slot, UOp, UOp]]:
        """What is carried, with its first value and what a turn makes of it."""
        new = [build.reshape(n, s.shape) for n, s in zip(new, slots, strict=True)]
        firsts = [self._first(k) for k in range(self._carried)]
        if goes is None:
            return list(zip(slots, firsts, new, strict=True))
        kept = [_where(goes, n, s.node) for s, n in zip(slots, new, strict=True)]
        if self._counts is not None:
            return list(zip(slots, firsts, kept, strict=True))
        # A member that has ended does not go on.
        kept[0] = new[0].alu(Op.AND, slots[0].node)
        flag, turn = slot((), dt.bool_), slot((), dt.int64)
        some = [build.reduce(g, Op.MAX, range(len(g.shape))) for g in (firsts[0], kept[0])]
        return [
            (flag, some[0], some[1]),
            (turn, build.scalar(0, dt.int64), build.add(turn.node, 1)),
            *zip(slots, firsts, kept, strict=True),
        ]


def _swapped(node: UOp) -> UOp:
    """With the first two axes exchanged."""
    return build.permute(node, (1, 0, *range(2, len(node.shape))))
