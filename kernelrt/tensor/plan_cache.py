"""Plans of eager code by the structure of their graphs."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from kernelrt._eager import number_memory
from kernelrt._late import load
from kernelrt._recent import touch
from kernelrt._survey import survey, survey_open
from kernelrt._written import overlaps_of
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer, ids
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import origins
from kernelrt.tensor import build
from kernelrt.tensor.execute import LARGE_BYTES, filled, make_entry
from kernelrt.tensor.hints import note_compiled
from kernelrt.tensor.marks import strip

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.execute import Entry
    from kernelrt.tensor.size_families import SizeFamily

__all__ = ["ALIKE", "Found", "PlanCache", "plans"]

#: Graphs that differ only in numbers have plans of their own so often; then one plan reads the
#: numbers that differ from memory.
ALIKE: Final = 3
_INDEXING: Final = frozenset({Op.IOTA, Op.BOUND, Op.GATHER, Op.SCATTER})


@dataclass(slots=True, eq=False, repr=False)
class _Family:
    """Graphs that are equal up to their numbers.

    Attributes
    ----------
    numbers : list of UOp
        The numbers of the first graph.
    varied : set of int
        The positions of numbers that differ in a later graph.
    count : int
        The number of graphs.
    """

    numbers: list[UOp]
    varied: set[int] = field(default_factory=set)
    count: int = 0

    def meet(self, numbers: Sequence[UOp]) -> frozenset[int] | None:
        """Record a graph; return the positions that vary, once there are enough graphs."""
        self.varied.update(
            i for i, (a, b) in enumerate(zip(self.numbers, numbers, strict=True)) if a is not b
        )
        self.count += 1
        return self.settled()

    def settled(self) -> frozenset[int] | None:
        """The positions that vary, once there are enough graphs."""
        varied = frozenset(self.varied)  # interrupting code may meet others
        return varied if self.count > ALIKE else None


@dataclass(slots=True, eq=False, repr=False)
class Found:
    """An entry for some graphs, and the buffers to run it with.

    Attributes
    ----------
    entry : Entry
        Computes the graphs.
    buffers : list of UOp
        The BUFFER nodes that it is run with: those that the graphs read, and numbers.
    key : Hashable
        The key of a plan for these graphs alone.
    read : list of UOp
        The BUFFER nodes that the graphs read.
    """

    entry: Entry
    buffers: list[UOp]
    key: Hashable
    read: list[UOp]


@dataclass(slots=True, eq=False, repr=False)
class _Memory:
    """Memory of a plan: its intermediates, and large storages of users, by their identities."""

    plan: weakref.ref[ExecutionPlan]
    nbytes: int
    given: Mapping[int, int]
    resident: bool = True


class PlanCache:
    """Plans by the structure of their graphs, so that a loop is scheduled and compiled once.

    Two graphs have one structure if they are equal up to which buffers they read. Where graphs
    differ in numbers only, again and again, the later ones have one plan, too, that reads what
    varies from memory, and where they differ in sizes, one with Variables. The least recently used
    plans go first.

    Parameters
    ----------
    most_plans : int
        How many plans to keep.
    most_bytes : int
        The bytes of intermediates that plans may keep; the newest plan always keeps its own.
    most_given : int
        The bytes of user tensors that plans may keep alive; the newest plan keeps what it reads.
    """

    def __init__(
        self, most_plans: int = 1024, most_bytes: int = 512 << 20, most_given: int = 256 << 20
    ) -> None:
        self.most_plans = most_plans
        self.most_bytes = most_bytes
        self.most_given = most_given
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._families: OrderedDict[Hashable, _Family] = OrderedDict()
        self._size_families: OrderedDict[Hashable, SizeFamily] = OrderedDict()
        self._large: dict[int, _Memory] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget all plans."""
        self._entries.clear()
        self._families.clear()
        self._size_families.clear()
        self._large.clear()

    def forget_sizes(self) -> None:
        """Forget the plans that serve many sizes; the next two sizes get plans of their own.

        Sums and products of such a plan may differ from others in the last bits.
        """
        self._size_families.clear()
        for key, entry in list(self._entries.items()):
            if entry.sized is not None:
                self._entries.pop(key, None)

    def find(self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]]) -> Found:
        """Give how to compute the graphs, which may bear marks.

        The caller holds ``state.lock``.
        """
        roots = [*values, *(u for pair in commits for u in pair)]
        shape, read, numbers = survey(roots, loose=True)
        # A plan for writes orders its operations by how memory overlaps.
        overlaps = overlaps_of([storage for storage, _ in commits], read) if commits else ()
        alike = "alike", len(values), shape, overlaps
        key = (*alike, tuple(numbers))
        entry = self.get(key)
        if entry is None:
            shared = self._shared(alike, numbers, roots, values, commits, read)
            if shared is not None:
                return Found(shared[0], [*read, *shared[1]], key, read)
            entry, numbers = self.made(key, values, commits, read)
            return Found(entry, [*read, *numbers], key, read)
        return Found(entry, read, key, read)

    def again(self, node: UOp) -> tuple[Entry, list[UOp]] | None:
        """Give a known entry that computes `node` alone, and the BUFFER nodes to run it with."""
        shape, read, numbers = survey((node,), loose=True)
        alike = "alike", 1, shape, ()
        entry = self.get((*alike, tuple(numbers)))
        if entry is not None:
            return entry, read + entry.numbers if entry.numbers else read
        family = self._families.get(alike)
        varies = None if family is None else family.settled()
        if varies is None:
            return None
        entry = self.get((*alike, _fixed(numbers, varies)))
        if entry is None or family is None:
            return None
        touch(self._families, alike, family, 4 * self.most_plans)
        return entry, [*read, *[_number(numbers[i]) for i in sorted(varies)]]

    def _shared(
        self,
        alike: tuple[Hashable, ...],
        numbers: list[UOp],
        roots: list[UOp],
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        read: list[UOp],
    ) -> tuple[Entry, list[UOp]] | None:
        """A plan for all graphs that differ in the same numbers, and memory that holds these."""
        family = self._families.get(alike)
        if family is None:
            family = _Family(numbers)
        touch(self._families, alike, family, 4 * self.most_plans)
        varies = family.meet(numbers) if numbers else None
        if varies is None:
            return None
        varied = sorted(varies)
        key = (*alike, _fixed(numbers, varies))
        memory = [_number(numbers[i]) for i in varied]
        entry = self.get(key)
        if entry is None:
            if any(numbers[i].dtype.is_int for i in varied) and not _INDEXING.isdisjoint(
                node.op for node in toposort(roots)
            ):
                return None  # it may be a size, or bound an index
            lifted = {numbers[i]: build.reshape(m, ()) for i, m in zip(varied, memory, strict=True)}
            entry = self.make(key, values, commits, [*read, *memory], lifted=lifted)
        return entry, memory

    def made(
        self,
        key: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        read: Sequence[UOp],
        notes: tuple[int, ...] = (),
    ) -> tuple[Entry, list[UOp]]:
        """Return how to compute graphs that the cache does not know, and the numbers that it reads.

        Parameters
        ----------
        key : Hashable
            The key to keep the entry by.
        values, commits : sequence
            The graphs, which may bear marks.
        read : sequence of UOp
            The BUFFER nodes that they read.
        notes : tuple of int
            Data that the caller stores with the entry.
        """
        found = self._sized(key, values, commits, read, notes)
        return (self.make(key, values, commits, read, notes), []) if found is None else found

    def _sized(
        self,
        exact: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        read: Sequence[UOp],
        notes: tuple[int, ...] = (),
    ) -> tuple[Entry, list[UOp]] | None:
        """Find a plan for any size, and memory that holds the numbers that vary."""
        load("kernelrt.tensor.size_families")
        from kernelrt.tensor.size_families import SizedPlan, SizeFamily

        roots = [*values, *(new for _, new in commits)]
        storages = [storage for storage, _ in commits]
        skeleton, buffers, numbers, sizes, _ = survey_open([*roots, *storages])
        if skeleton.needs_strip:
            skeleton, buffers, numbers, sizes, _ = survey_open([*strip(roots), *storages])
        if not sizes or any(isinstance(size, UOp) for size in sizes):
            return None
        alike = "sized", len(values), skeleton
        family = self._size_families.get(alike)
        if family is None:
            family = SizeFamily()
        touch(self._size_families, alike, family, 4 * self.most_plans)
        known = cast("tuple[int, ...]", tuple(sizes))
        plan = None if family.plan is None else family.plan()
        named = None if plan is None else plan.values(known, numbers)
        if plan is None or named is None:
            form = family.record(known, tuple(numbers))
            if form is None:
                return None
            bare = [*strip(roots), *storages]
            _, buffers, numbers, _, sized = survey_open(bare)
            plan = SizedPlan.make(form, bare, len(values), buffers, numbers, sized)
            named = None if plan is None else plan.values(known, numbers)
            if plan is None or named is None:
                return None
            self.misses += 1
            family.plan = weakref.ref(plan)
        varied = plan.form.numbers
        memory = [_number(numbers[i]) for i in sorted(varied)]
        # An entry is for one order of the caller's buffers, and has the caller's notes.
        place = {node: i for i, node in enumerate(buffers)}
        order = tuple([place.get(node, -1) for node in read])
        own = tuple([None if i in varied else n for i, n in enumerate(numbers)])
        key = (*alike, known, own, order, notes)
        entry = self.get(key)
        if entry is None or entry.prepared is None or entry.prepared.plan is not plan.plan:
            entry = plan.entry(named, values, commits, buffers, [*read, *memory])
            _note_origins(entry, [*values, *(new for _, new in commits)])
            entry = replace(entry, notes=notes)
            self._keep(key, entry)
            # The exact key includes all numbers, so the entry can hold their memory.
            self._keep(exact, replace(entry, numbers=memory))
        return entry, memory

    def get(self, key: Hashable) -> Entry | None:
        """Give what is kept by a key."""
        entry = self._entries.get(key)
        if entry is not None:
            try:
                self._entries.move_to_end(key)
            except KeyError:  # interrupting code has dropped it
                self._entries[key] = entry
            self.hits += 1
            entry.uses.note()
            if entry.nbytes >= LARGE_BYTES or entry.given:
                self._note_memory(entry)
        return entry

    def make(
        self,
        key: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        buffers: Sequence[UOp],
        notes: tuple[int, ...] = (),
        lifted: Mapping[UOp, UOp] | None = None,
    ) -> Entry:
        """Make a plan for the graphs, which read no other than these buffers, and keep it.

        Its nodes that `lifted` names are read from there.
        """
        self.misses += 1
        if values or commits:
            note_compiled(values[0] if values else commits[0][1])
        entry = replace(make_entry(values, commits, buffers, lifted), notes=notes)
        _note_origins(entry, [*values, *(new for _, new in commits)])
        self._keep(key, entry)
        return entry

    def _keep(self, key: Hashable, entry: Entry) -> None:
        self._entries.pop(key, None)
        touch(self._entries, key, entry, self.most_plans)
        self._note_memory(entry)

    def _note_memory(self, entry: Entry) -> None:
        """Record a use of `entry`; take memory from the plans that were used longest ago.

        The intermediates of these are discarded. Plans that keep much memory of users alive are
        forgotten.
        """
        if entry.prepared is None or (entry.nbytes < LARGE_BYTES and not entry.given):
            return
        plan = cast("ExecutionPlan", entry.prepared.plan)
        self._large.pop(id(plan), None)
        self._large[id(plan)] = _Memory(weakref.ref(plan), entry.nbytes, entry.given)
        own, seen, total = entry.nbytes, {*entry.given}, sum(entry.given.values())
        for key, memory in reversed(list(self._large.items())):
            other = memory.plan()
            if other is plan:
                continue
            if other is None:
                self._large.pop(key, None)
                continue
            more = {storage: n for storage, n in memory.given.items() if storage not in seen}
            if more and total + sum(more.values()) > self.most_given:
                self._forget(key, other)
                continue
            seen |= more.keys()
            total += sum(more.values())
            own += memory.nbytes if memory.resident else 0
            if memory.resident and own > self.most_bytes and other.discard_arena():
                memory.resident = False
                own -= memory.nbytes

    def _forget(self, key: int, plan: ExecutionPlan) -> None:
        self._large.pop(key, None)
        for name, entry in list(self._entries.items()):
            if entry.prepared is not None and entry.prepared.plan is plan:
                self._entries.pop(name, None)


def _note_origins(entry: Entry, roots: Sequence[UOp]) -> None:
    order = toposort(roots)
    entry.uses.nodes = len(order)
    if any(node.op is Op.BOUND for node in order):
        entry.origins = origins(order)


def _fixed(numbers: Sequence[UOp], varies: frozenset[int]) -> tuple[UOp | None, ...]:
    """The numbers that do not vary, each at its position."""
    return tuple([None if i in varies else n for i, n in enumerate(numbers)])


def _number(node: UOp) -> UOp:
    """Memory that holds the number of a CONST node."""
    known = number_memory(node, registry.allocator("CPU"), Buffer, next(ids))
    return build.memory(filled(node.arg, 1, node.dtype)) if known is None else known


#: The plans of eager code.
plans = PlanCache()
