"""Schedules the bodies of loops and branches, and drops results that nobody reads.

A body is scheduled as a graph that reads and writes *ports*: buffers whose addresses are set for
each iteration. The new value of a carry (a loop variable) replaces the old one, in place where that
is safe. A stacked output has one row for each iteration. It has its own port, whose address
advances in each iteration. So every iteration runs the same kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.region import Choice, Loop, port
from kernelrt.schedule.fuse.fusion_cost import elements
from kernelrt.schedule.types import PortUse, RegionItem, root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.dtype import DType
    from kernelrt.schedule.fuse.fusion_groups import Group
    from kernelrt.schedule.kernels.canonical_form import Forms
    from kernelrt.schedule.types import Schedule

__all__ = ["RegionDraft", "Run", "fails", "run_of"]

#: The ports that a body writes, with their values (flattened).
Body = list[tuple[UOp, UOp]]


class Run(NamedTuple):
    """Slots and ports of one region. The slots of results come first, then those of operands.

    Attributes
    ----------
    bodies : tuple of list
        For each body, the ports that it writes, with their values.
    ports : tuple of PortUse
        Bindings of ports to slots.
    given : tuple of int or None
        For each result slot, the index of the node whose value the slot holds; None for a carry
        that no node reads.
    operands : tuple of int
        For each operand slot, the index of the operand.
    copies : tuple of (int, int)
        Slots that are copied before the first iteration, as in :class:`RegionItem`.
    count_slot, condition_slot, choice_slot : int
        As in :class:`RegionItem`.
    sizes : tuple of (int, DType)
        Number of elements and dtype of each result slot.
    """

    bodies: tuple[Body, ...]
    ports: tuple[PortUse, ...]
    given: tuple[int | None, ...]
    operands: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]
    count_slot: int
    condition_slot: int
    choice_slot: int
    sizes: tuple[tuple[int, DType], ...]


def run_of(nodes: Sequence[UOp]) -> Run:
    """Return the slots and ports of one region that computes all `nodes`.

    The nodes are REGIONs: results of one program (a loop or a choice) for the same operands.
    """
    program = nodes[0].arg.program
    if isinstance(program, Loop):
        return _loop(program, nodes)
    return _choice(program, nodes)


def _loop(loop: Loop, nodes: Sequence[UOp]) -> Run:
    wanted = {n.arg.carry: k for k, n in enumerate(nodes) if n.arg.carry >= 0}
    rows = [(k, n.arg.values[0]) for k, n in enumerate(nodes) if n.arg.carry < 0]
    used, alive = _alive(loop, set(wanted), [value for _, value in rows])
    sizes = [(loop.ports[c].arg.size, loop.ports[c].dtype) for c in alive]
    sizes += [(elements((loop.trip_count, *value.shape)), value.dtype) for _, value in rows]
    given = [*(wanted.get(c) for c in alive), *(k for k, _ in rows)]
    # A carry lives in the slot of its last value; its first value is copied there.
    first = len(sizes)
    operands = [k for k in range(len(loop.ports) - loop.numbered) if k in used or k in alive]
    slot_of = {operand: first + i for i, operand in enumerate(operands)}
    copies = [(i, slot_of[c]) for i, c in enumerate(alive)]
    uses = [PortUse(0, loop.ports[c], i) for i, c in enumerate(alive)]
    behind = len(loop.carries)
    for k in operands:
        if k < behind:
            continue
        p = loop.ports[k]
        moves = k < behind + loop.stacked
        uses.append(PortUse(0, p, slot_of[k], p.arg.size * p.dtype.itemsize if moves else 0))
    if loop.numbered and len(loop.ports) - 1 in used:
        uses.append(PortUse(0, loop.ports[-1], -1))
    commits: Body = [(loop.ports[c], _flat(loop.carries[c])) for c in alive]
    for i, (_, value) in enumerate(rows):
        size = elements(value.shape)
        out = port(len(loop.ports) + i, size, value.dtype)
        uses.append(PortUse(0, out, len(alive) + i, size * value.dtype.itemsize))
        commits.append((out, _flat(value)))
    count_slot = -1
    if loop.counted:
        count_slot = first + len(operands)
        operands.append(loop.n_operands - 1)
    return Run(
        (commits,), tuple(uses), tuple(given), tuple(operands), tuple(copies), count_slot,
        alive.index(0) if loop.conditional else -1, -1, tuple(sizes),
    )  # fmt: skip


def _alive(loop: Loop, wanted: set[int], rows: Sequence[UOp]) -> tuple[set[int], list[int]]:
    """Return the numbers of the ports to read, and of the carries to compute.

    The `wanted` carries and the stacked outputs `rows` depend on these only.
    """
    number = {p: k for k, p in enumerate(loop.ports)}
    todo = sorted(wanted | ({0} if loop.conditional else set()))
    alive, used = set(todo), set[int]()
    graphs = [*rows, *(loop.carries[c] for c in todo)]
    while graphs:
        found = {number[n] for n in toposort(graphs) if n in number}
        used |= found
        new = {k for k in found if k < len(loop.carries)} - alive
        alive |= new
        graphs = [loop.carries[c] for c in sorted(new)]
    return used, sorted(alive)


def _choice(choice: Choice, nodes: Sequence[UOp]) -> Run:
    bodies: list[Body] = []
    uses: list[PortUse] = []
    number = {p: k for k, p in enumerate(choice.ports)}
    found = {number[n] for n in toposort(v for node in nodes for v in node.arg.values)
             if n in number}  # fmt: skip
    first = len(nodes)
    operands = [0, *(k + 1 for k in sorted(found))]
    for body in range(choice.branches):
        commits: Body = []
        for i, k in enumerate(sorted(found)):
            uses.append(PortUse(body, choice.ports[k], first + 1 + i))
        for i, node in enumerate(nodes):
            value = node.arg.values[body]
            out = port(len(choice.ports) + i, elements(value.shape), value.dtype)
            uses.append(PortUse(body, out, i))
            commits.append((out, _flat(value)))
        bodies.append(commits)
    sizes = tuple((elements(n.shape), n.dtype) for n in nodes)
    return Run(
        tuple(bodies), tuple(uses), tuple(range(len(nodes))), tuple(operands), (), -1, -1, first,
        sizes,
    )  # fmt: skip


def _flat(value: UOp) -> UOp:
    shape = (elements(value.shape),)
    if value.shape == shape:
        return value
    return UOp(Op.RESHAPE, value.dtype, (value,), shape)


@dataclass(eq=False, slots=True)
class RegionDraft:
    """A region of a schedule whose order and buffers are not final yet.

    Attributes
    ----------
    group : Group
        Fusion group that the region was made from.
    run : Run
        Slots and ports of the region.
    buffers : list of UOp
        The BUFFER of each slot.
    bodies : tuple of Schedule
        Schedules of the bodies.
    trip_count : int
        Maximum number of iterations.
    reverse : bool
        Whether the loop runs from the last iteration to the first.
    renewed : set of UOp
        BUFFERs from which the region reads the new value of a commit.
    """

    group: Group
    run: Run
    buffers: list[UOp]
    bodies: tuple[Schedule, ...]
    trip_count: int
    reverse: bool
    renewed: set[UOp] = field(default_factory=set)

    @property
    def fails(self) -> bool:
        """Whether any item of the bodies may fail."""
        return any(map(fails, self.bodies))

    @property
    def reads(self) -> list[UOp]:
        """BUFFERs of the operands."""
        return list(dict.fromkeys(self.buffers[len(self.run.given) :]))

    @property
    def writes(self) -> list[UOp]:
        """BUFFERs of the results."""
        return self.buffers[: len(self.run.given)]

    def redirect(self, old: UOp, new: UOp) -> None:
        """Replace BUFFER `old` by `new` in all reads and writes."""
        if old in self.buffers[len(self.run.given) :]:
            self.renewed.add(new)
        self.buffers = [new if buffer is old else buffer for buffer in self.buffers]

    def finish(self, _forms: Forms) -> RegionItem:
        """Return the item of the schedule that runs the region."""
        run, written = self.run, len(self.run.given)
        renewed = tuple(
            k for k, b in enumerate(self.buffers) if k >= written and root(b) in self.renewed
        )
        return RegionItem(
            self.bodies, tuple(self.buffers), tuple(range(written)), run.ports, run.copies,
            self.trip_count, self.reverse, run.count_slot, run.condition_slot, run.choice_slot,
            self.fails, renewed, tuple(reversed(self.group.origins)),
        )  # fmt: skip


def fails(body: Schedule) -> bool:
    """Return whether any item of a schedule may fail."""
    return any(getattr(item, "may_fail", False) for item in body.items)
