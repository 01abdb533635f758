"""Plan cache of eager code, keyed by the structure of graphs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import origins
from kernelrt.native.evaluate import (
    ALIKE,
    LARGE_BYTES,
    LruTable,
    LruValue,
    NumberFamily,
    PlanTable,
    number_buffer,
)
from kernelrt.native.graph_key import size_free_key
from kernelrt.native.interpreter import Budget
from kernelrt.tensor.autograd.tags import strip
from kernelrt.tensor.eager.diagnostics import note_compiled
from kernelrt.tensor.eager.execute import make_entry
from kernelrt.tensor.nodes import build
from kernelrt.util.environment import switch
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from kernelrt.native.evaluate import Entry, Lookup
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.eager import interpret, size_families
    from kernelrt.tensor.eager.interpret import CachedProgram
    from kernelrt.tensor.eager.size_families import SizedPlan
else:
    interpret = Module("kernelrt.tensor.eager.interpret")
    size_families = Module("kernelrt.tensor.eager.size_families")

__all__ = ["ALIKE", "PlanCache", "SizeFamily", "plans"]

#: Number of failed forms after which each graph of a family gets a plan of its own.
MOST_TRIES: Final = 4
#: Maximum number of plans of a family; the newest are kept.
MOST_PLANS: Final = 4
#: Maximum number of sizes without a plan that a family remembers, and of sets of numbers of each.
MOST_SEEN: Final = 8
MOST_NUMBERS: Final = 4
_INDEXING: Final = frozenset({Op.IOTA, Op.BOUND, Op.GATHER, Op.SCATTER})


@dataclass(slots=True, eq=False)
class SizeFamily(LruValue):
    """Graphs that differ only in sizes and numbers.

    Attributes
    ----------
    seen : dict
        For the newest tuples of sizes that no plan fits: the numbers of their graphs.
    plans : list of weakref to SizedPlan
        Plans with Variables; entries of the plan cache keep them alive.
    failures : int
        Number of forms for which no plan could be made.
    budget : Budget
        Estimated cost of writing and running programs so far, and of compiling.
    """

    seen: dict[tuple[int, ...], list[tuple[UOp, ...]]] = field(default_factory=dict)
    plans: list[weakref.ref[SizedPlan]] = field(default_factory=list)
    failures: int = 0
    budget: Budget = field(default_factory=Budget)

    @property
    def is_compiled(self) -> bool:
        """Whether the budget for interpreting these graphs is spent."""
        return not self.budget.allows()

    def find(
        self, sizes: tuple[int, ...], numbers: Sequence[UOp]
    ) -> tuple[SizedPlan, dict[str, int]] | None:
        """Return the newest plan that fits a graph, and the values of its Variables, or None."""
        for ref in reversed(self.plans):
            plan = ref()
            named = None if plan is None else plan.values(sizes, numbers)
            if plan is not None and named is not None:
                return plan, named
        return None

    def note(self, sizes: tuple[int, ...], numbers: tuple[UOp, ...]) -> None:
        """Record the sizes and numbers of a graph, to make later plans from."""
        if self.failures >= MOST_TRIES:
            return
        met = self.seen.setdefault(sizes, [])
        if len(met) < MOST_NUMBERS and numbers not in met:
            met.append(numbers)
        for oldest in list(self.seen)[:-MOST_SEEN]:
            self.seen.pop(oldest, None)

    def fail(self) -> None:
        """Record that no plan could be made from a form."""
        self.failures += 1
        if self.failures >= MOST_TRIES:
            self.seen.clear()

    def keep(self, plan: SizedPlan) -> None:
        """Keep a plan."""
        alive = [ref for ref in self.plans if ref() is not None]
        self.plans = [*alive[-MOST_PLANS + 1 :], weakref.ref(plan)]


@dataclass(slots=True, eq=False, repr=False)
class _Memory:
    """Memory of a plan: its intermediates, and large user storages that it reads, by identity."""

    plan: weakref.ref[ExecutionPlan]
    nbytes: int
    given: Mapping[int, int]
    resident: bool = True


class _Structure(NamedTuple):
    """The size family of graphs, and their sizes, numbers and buffers."""

    alike: tuple[Hashable, ...]
    family: SizeFamily
    sizes: tuple[int, ...]
    numbers: tuple[UOp, ...]
    buffers: list[UOp]


def _are_static(sizes: Sequence[object]) -> bool:
    return set(map(type, sizes)) == {int}


class PlanCache(PlanTable):
    """Plans keyed by the structure of their graphs, so that a loop is compiled only once.

    Graphs have the same structure if they differ only in which buffers they read. If several graphs
    differ only in numbers, later ones share a plan that reads the varying numbers from memory. If
    they differ in sizes, later ones share a plan with Variables. The least recently used plans are
    dropped first.

    Parameters
    ----------
    most_plans : int
        Maximum number of plans.
    most_bytes : int
        Maximum bytes of intermediates that plans keep. The newest plan always keeps its own.
    most_given : int
        Maximum bytes of user tensors that plans keep alive. The newest plan keeps its own.
    """

    def __init__(
        self, most_plans: int = 1024, most_bytes: int = 512 << 20, most_given: int = 256 << 20
    ) -> None:
        super().__init__(most_plans)
        self.most_bytes = most_bytes
        self.most_given = most_given
        self.misses = 0
        #: Whether new graphs are interpreted first.
        self.interprets = switch("KERNELRT_INTERPRET") != "off"
        self._size_families: LruTable[SizeFamily] = LruTable(4 * most_plans)
        self._known: LruTable[CachedProgram] = LruTable(most_plans)
        self._large: dict[int, _Memory] = {}

    def clear(self) -> None:
        """Drop all plans."""
        self.entries.clear()
        self.families.clear()
        self._size_families.clear()
        self._known.clear()
        self._large.clear()

    def forget_sizes(self) -> None:
        """Drop plans with Variables and programs; the next two sizes get plans of their own.

        Sums and products of a plan with Variables may differ from those of other plans in the last
        bits.
        """
        self._size_families.clear()
        self._known.clear()
        for key, entry in self.entries.items():
            interpreted = entry.prepared is not None and entry.prepared.plan is None
            if entry.sized is not None or interpreted:
                self.entries.pop(key)

    def find(
        self, values: list[UOp], commits: list[tuple[UOp, UOp]]
    ) -> tuple[Entry, list[UOp]]:
        """Return an entry for the graphs, with or without tags, and the buffers to run it with.

        The caller holds ``state.lock``.
        """
        found = self.look_up(values, commits)
        entry = found.entry
        if entry is None:
            entry = self.complete(found, values, commits)
        return entry, found.buffers

    def complete(
        self, found: Lookup, values: list[UOp], commits: list[tuple[UOp, UOp]]
    ) -> Entry:
        """Make an entry for graphs that the look-up did not find."""
        found.buffers = found.read
        entry, structure = self._interpreted(
            found.alike, values, commits, found.read, found.numbers
        )
        if entry is not None:
            if found.numbers:
                self._meet(found)  # count it, so that the first plan knows which numbers vary
            found.buffers = found.read + found.numbers
            found.entry = entry
            return entry
        self.entries.pop(found.alike)  # the entry that has interpreted these graphs so far
        entry = self._shared(found, values, commits) if found.numbers else None
        if entry is None:
            entry, numbers = self._compiled(found.key, values, commits, found.read, (), structure)
            found.buffers = [*found.read, *numbers]
        found.entry = entry
        return entry

    def made(
        self,
        key: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        read: Sequence[UOp],
        notes: tuple[int, ...] = (),
    ) -> tuple[Entry, list[UOp]]:
        """Make an entry for graphs that the cache does not know; also return the numbers it reads.

        Parameters
        ----------
        key : Hashable
            Key of the new entry.
        values, commits : sequence
            Graphs, with or without tags.
        read : sequence of UOp
            BUFFER nodes that the graphs read.
        notes : tuple of int
            Data that the caller stores with the entry.
        """
        entry, structure = self._interpreted(key, values, commits, read, [])
        if entry is None:
            return self._compiled(key, values, commits, read, notes, structure)
        entry.notes = notes
        return entry, []

    def _interpreted(
        self,
        alike: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        read: Sequence[UOp],
        numbers: list[UOp],
    ) -> tuple[Entry | None, _Structure | None]:
        """Return an entry that interprets the graphs, and the structure of the graphs.

        The entry takes the numbers after the buffers. Its key is `alike`, unless numbers are
        sizes. The entry is None if the graphs should be compiled. The structure is None if it was
        not computed.
        """
        if not self.interprets:
            return None, None
        structure = None
        known, own = self._known.get(alike), alike
        if known is not None and known.fixed:
            own = alike, tuple([numbers[i] for i in known.fixed])
            known = self._known.get(own)
        if known is None:
            structure = self._structure(values, commits)
            if structure.family.is_compiled:
                return None, structure
            if _are_static(structure.sizes):
                structure.family.note(structure.sizes, structure.numbers)
            known = interpret.CachedProgram(values, commits, read, numbers, structure.family)
            self._known.put(alike, known)
            if known.fixed:
                own = alike, tuple([numbers[i] for i in known.fixed])
                self._known.put(own, known)
        entry = known.take_entry()
        if entry is not None and own is alike:
            self.entries.put(alike, entry)
        return entry, structure

    def _meet(self, found: Lookup) -> tuple[int, ...] | None:
        """Count a graph; after more than ALIKE graphs, return the positions of varying numbers."""
        family = self.families.get(found.alike)
        if family is None:
            family = NumberFamily(found.numbers)
            self.families.put(found.alike, family)
        return family.meet(found.numbers, ALIKE)

    def _shared(
        self, found: Lookup, values: list[UOp], commits: list[tuple[UOp, UOp]]
    ) -> Entry | None:
        """Return one entry for all graphs that differ in the same numbers, after several graphs."""
        numbers = found.numbers
        positions = self._meet(found)
        if not positions:
            return None
        key = found.key_but_for(positions)
        memory = found.in_memory(positions)
        entry = self.get(key)
        if entry is None:
            roots = [*values, *(new for _, new in commits)]
            if any(numbers[i].dtype.is_int for i in positions) and not _INDEXING.isdisjoint(
                node.op for node in toposort(roots)
            ):
                return None  # the number may be a size, or the bound of an index
            lifted = {numbers[i]: build.reshape(m, ())
                      for i, m in zip(positions, memory, strict=True)}  # fmt: skip
            entry = self.make(key, values, commits, [*found.read, *memory], lifted=lifted)
        found.buffers = [*found.read, *memory]
        return entry

    def _compiled(
        self,
        key: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        read: Sequence[UOp],
        notes: tuple[int, ...],
        structure: _Structure | None,
    ) -> tuple[Entry, list[UOp]]:
        if structure is None:
            structure = self._structure(values, commits)
        found = self._sized(key, values, commits, read, notes, structure)
        return (self.make(key, values, commits, read, notes), []) if found is None else found

    def _structure(
        self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]]
    ) -> _Structure:
        """Return the family of graphs that differ in sizes, and the sizes and numbers of these."""
        roots = [*values, *(new for _, new in commits)]
        storages = [storage for storage, _ in commits]
        key, buffers, numbers, sizes, _ = size_free_key([*roots, *storages])
        if key.needs_strip:
            key, buffers, numbers, sizes, _ = size_free_key([*strip(roots), *storages])
        alike = "sized", len(values), key
        family = self._size_families.get(alike)
        if family is None:
            family = SizeFamily()
            family.weigh(len(sizes))
            self._size_families.put(alike, family)
        known = cast("tuple[int, ...]", tuple(sizes))
        return _Structure(alike, family, known, tuple(numbers), buffers)

    def _sized(
        self,
        exact: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        read: Sequence[UOp],
        notes: tuple[int, ...],
        structure: _Structure,
    ) -> tuple[Entry, list[UOp]] | None:
        """Return an entry of a plan for any size, and memory with the varying numbers, or None."""
        alike, family, known, numbers, buffers = structure
        if not _are_static(known):
            return None
        found = family.find(known, numbers)
        if found is None:
            forms = size_families.forms_of(family, known, numbers)
            if not forms:
                return None
            storages = [storage for storage, _ in commits]
            bare = [*strip([*values, *(new for _, new in commits)]), *storages]
            _, buffers, own, _, sized = size_free_key(bare)
            for form in forms:
                made = size_families.SizedPlan.make(form, bare, len(values), buffers, own, sized)
                if made is not None:
                    family.keep(made)
                    numbers = tuple(own)
                    found = family.find(known, numbers)
                    break
            if found is None:
                family.fail()
                return None
            self.misses += 1
        plan, named = found
        varied = plan.form.numbers
        memory = [number_buffer(numbers[i]) for i in sorted(varied)]
        # An entry is for one order of the caller's buffers, and has the caller's notes.
        index = {node: i for i, node in enumerate(buffers)}
        order = tuple([index.get(node, -1) for node in read])
        fixed = tuple([None if i in varied else n for i, n in enumerate(numbers)])
        key = (*alike, known, fixed, order, notes)
        entry = self.get(key)
        if entry is None or entry.prepared is None or entry.prepared.plan is not plan.plan:
            entry = plan.entry(named, values, commits, buffers, [*read, *memory])
            entry.uses.nodes = plan.nodes
            entry.weigh(plan.nodes)
            if plan.checks:
                entry.origins = origins(toposort([*values, *(new for _, new in commits)]))
            entry.notes = notes
            self._keep(key, entry)
            # The exact key includes all numbers, so the entry can hold their memory.
            self._keep(exact, entry.with_numbers(memory))
        return entry, memory

    def make(
        self,
        key: Hashable,
        values: Sequence[UOp],
        commits: Sequence[tuple[UOp, UOp]],
        buffers: Sequence[UOp],
        notes: tuple[int, ...] = (),
        lifted: Mapping[UOp, UOp] | None = None,
    ) -> Entry:
        """Make a plan for graphs that read only these buffers, and keep it.

        `lifted` maps nodes to the nodes that are read in their place.
        """
        self.misses += 1
        began = perf_counter()
        entry = make_entry(values, commits, buffers, lifted)
        if entry.prepared is not None:
            note_compiled(values[0] if values else commits[0][1], perf_counter() - began)
        entry.notes = notes
        _note_origins(entry, [*values, *(new for _, new in commits)])
        self._keep(key, entry)
        return entry

    def _keep(self, key: Hashable, entry: Entry) -> None:
        self.entries.put(key, entry)
        self.note_memory(entry)

    def note_memory(self, entry: Entry) -> None:
        """Record a use of `entry`; free memory of the least recently used plans.

        Their intermediates are discarded. Plans that keep too much user memory alive are dropped.
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
        for name, entry in self.entries.items():
            if entry.prepared is not None and entry.prepared.plan is plan:
                self.entries.pop(name)


def _note_origins(entry: Entry, roots: Sequence[UOp]) -> None:
    order = toposort(roots)
    entry.uses.nodes = len(order)
    entry.weigh(len(order))
    if any(node.op is Op.BOUND for node in order):
        entry.origins = origins(order)


#: The plans of eager code.
plans = PlanCache()
