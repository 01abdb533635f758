"""Commits: writes to state that outlives the plan, in place if that is safe.

At first, every commit is a copy that runs after all other items. This is always correct. If
possible, the commit is then merged into the kernel that computes the value: the kernel writes the
target itself, and the copy is dropped. This requires three things:

- The kernel cannot fail, and no kernel that can fail has to run after it. (A run that raises must
  leave all state unchanged.)
- The kernel reads the target only at the element that it is about to write.
- The kernel can run after every other reader of the old value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.ir import Dim, Op, UOp
from kernelrt.schedule.kernels.region_bodies import RegionDraft
from kernelrt.schedule.kernels.unscheduled import CopyDraft, KernelDraft, UnscheduledItem
from kernelrt.schedule.memory.hazards import Access, AccessMap, dependencies, reached
from kernelrt.schedule.memory.inplace import reads_beside
from kernelrt.schedule.types import is_lasting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.device.byte_ranges import ByteRange
    from kernelrt.schedule.memory.hazards import Extents

__all__ = ["Commit", "Graph", "settle"]


@dataclass(frozen=True, slots=True)
class Commit:
    """A write of the value in `source` to `target`.

    Attributes
    ----------
    target : UOp
        BUFFER whose content is replaced.
    source : UOp
        BUFFER that holds the new value.
    nbytes : Dim
        Size of the value in bytes. It depends on Variables if the value's shape does.
    """

    target: UOp
    source: UOp
    nbytes: Dim


class Graph:
    """Drafts and their order.

    Attributes
    ----------
    drafts : list of UnscheduledItem or None
        Drafts, each after the drafts that it reads; None for a draft that was removed.
    after : list of set of int
        For each draft, the drafts that must run later.
    """

    def __init__(self, drafts: Sequence[UnscheduledItem], waits: Sequence[Sequence[int]]) -> None:
        self.drafts: list[UnscheduledItem | None] = list(drafts)
        self.after: list[set[int]] = [set() for _ in drafts]
        for n, before in enumerate(waits):
            for earlier in before:
                self.after[earlier].add(n)

    def reaches(self, start: int, goals: Iterable[int]) -> bool:
        """Return whether any of `goals` must run after `start`."""
        return not set(goals).isdisjoint(reached([start], self.after))

    def remove(self, n: int) -> None:
        """Remove a draft that nothing has to run after."""
        self.drafts[n] = None
        self.after[n] = set()
        for successors in self.after:
            successors.discard(n)


def settle(
    drafts: Sequence[UnscheduledItem], commits: Sequence[Commit], outputs: set[UOp], where: Extents
) -> Graph:
    """Add the commits to the drafts, in place where that is safe.

    Parameters
    ----------
    drafts : sequence of UnscheduledItem
        Drafts that compute all values, operands first; none writes a commit target.
    commits : sequence of Commit
        Commits in the caller's order.
    outputs : set of UOp
        BUFFERs that the caller keeps. A commit target cannot replace such a BUFFER.
    where : Extents
        Known byte ranges.

    Returns
    -------
    Graph
        All drafts and the order that they must keep.
    """
    return _Settling(drafts, commits, outputs, where).run()


class _Settling:
    def __init__(
        self, drafts: Sequence[UnscheduledItem], commits: Sequence[Commit], outputs: set[UOp],
        where: Extents,
    ) -> None:  # fmt: skip
        self._commits = commits
        self._outputs = outputs
        self._count = len(drafts)
        copies = [CopyDraft(c.target, c.source, c.nbytes) for c in commits]
        self._where = where
        steps = [
            Access(self._regions(d.reads), self._regions(d.writes), d.fails) for d in drafts
        ]
        steps += [
            Access([where[c.source]], [where[c.target]], lasts=is_lasting(c.target))
            for c in commits
        ]
        self._waits = dependencies(steps)
        self._graph = Graph([*drafts, *copies], self._waits)
        self._touches = AccessMap()
        for n, step in enumerate(steps[: len(drafts)]):
            self._touches.add(n, step.reads, step.writes)
        # Commits, by number, as writers of their targets.
        self._targets = AccessMap()
        for k, commit in enumerate(commits):
            self._targets.add(k, (), (self._where[commit.target],))
        self._redirected: dict[UOp, UOp] = {}

    def run(self) -> Graph:
        for k, commit in enumerate(self._commits):
            self._merge(k, commit)
        return self._graph

    def _regions(self, buffers: Iterable[UOp]) -> list[ByteRange]:
        return [self._where[b] for b in buffers]

    def _readers(self, buffer: UOp) -> list[int]:
        return self._touches.readers(self._where[buffer])

    def _writers(self, buffer: UOp) -> list[int]:
        return self._touches.writers(self._where[buffer])

    def _meet(self, a: UOp, b: UOp) -> bool:
        return self._where[a].meets(self._where[b])

    def _committing(self, target: UOp) -> list[int]:
        """Return the numbers of the commits that write at least one byte of `target`."""
        return self._targets.writers(self._where[target])

    def _draft(self, n: int) -> UnscheduledItem:
        draft = self._graph.drafts[n]
        assert draft is not None
        return draft

    # Merging a commit into the kernel that computes its value

    def _merge(self, k: int, commit: Commit) -> None:
        writers = self._writers(commit.source)
        alone = self._committing(commit.target) == [k]
        if not writers or not alone or commit.source.dtype is not commit.target.dtype:
            return
        if any(self._graph.drafts[n] is None for n in writers):
            return  # another commit of the same value has redirected the kernels
        if len(writers) > 1 and self._writes_cat(writers[0]):
            return  # the kernel of one part of a CAT may read elements that another one writes
        writer = writers[-1]
        base = writers[0] if len(writers) > 1 else None
        if not self._reads_only_where_it_writes(writer, base, commit):
            return
        # The copy waits for readers of the old value and for everything that may fail.
        others = set(self._waits[self._count + k]) - {writer, base}
        if self._graph.reaches(writer, others):
            return
        draft = self._draft(writer)
        if isinstance(draft, RegionDraft):
            return  # a region's results are complete only after its last iteration
        if commit.source in self._outputs or commit.source in self._redirected:
            if not isinstance(draft, KernelDraft) or base is not None:
                return
            for also in draft.stores_to(self._redirected.get(commit.source, commit.source)):
                draft.stores.append(also.replace(src=(commit.target, *also.src[1:])))
        else:
            self._redirect(commit)
        if base is not None:
            for n in [n for n, after in enumerate(self._graph.after) if base in after]:
                self._graph.after[n].discard(base)
                self._graph.after[n].add(writer)
            self._graph.after[base].clear()
            self._graph.remove(base)
        for n in others:
            self._graph.after[n].add(writer)
        self._graph.remove(self._count + k)

    def _writes_cat(self, writer: int) -> bool:
        draft = self._draft(writer)
        return isinstance(draft, KernelDraft) and draft.group.kind == "cat"

    def _redirect(self, commit: Commit) -> None:
        for n in {*self._readers(commit.source), *self._writers(commit.source)}:
            draft = self._graph.drafts[n]
            if draft is not None:
                draft.redirect(commit.source, commit.target)
        for j, other in enumerate(self._commits):
            copy = self._graph.drafts[self._count + j]
            if copy is not None and other.source is commit.source:
                copy.redirect(commit.source, commit.target)
        self._redirected[commit.source] = commit.target

    def _reads_only_where_it_writes(self, writer: int, base: int | None, commit: Commit) -> bool:
        draft = self._draft(writer)
        if not isinstance(draft, KernelDraft):
            # A draft that fails must not have written memory that outlives the plan.
            return not draft.fails and not any(self._meet(b, commit.target) for b in draft.reads)
        if base is not None:
            return self._adds_to_target(draft, base, commit)
        if any(b is not commit.target and self._meet(b, commit.target) for b in draft.loads):
            return False
        if commit.target not in draft.loads:
            return True
        stores = draft.stores_to(self._redirected.get(commit.source, commit.source))
        return reads_beside(draft.stores, draft.loads_of(commit.target), stores) is None

    def _adds_to_target(self, draft: KernelDraft, base: int, commit: Commit) -> bool:
        """Return whether a scatter's base is the commit's target, so only updates are needed."""
        if any(self._meet(buffer, commit.target) for buffer in draft.loads):
            return False
        # An update at an invalid index becomes zero, which only a sum ignores. A value stored at
        # an invalid index matters only if the memory outlives the run.
        seen = draft.fails and is_lasting(commit.target)
        if any(s.arg is not Op.ADD and (seen or s.arg is not None) for s in draft.stores):
            return False
        start = self._draft(base)
        if not isinstance(start, KernelDraft) or commit.source in self._redirected:
            return False
        (store,) = start.stores
        value = store.src[2]
        return (
            value.op is Op.LOAD
            and value.src[0] is commit.target
            and value.src[1:] == (store.src[1],)
            and self._where[commit.target].nbytes == self._where[commit.source].nbytes
        )
