"""Kernels with one iteration space that belong together become one, with several stores.

The walk of :mod:`kernelrt.schedule.fusion` gives each stored value a kernel. Where one kernel
reads what another stores at the very element it is working on, the value need not travel
through memory: a weight's gradient, its moments and its new value are one pass.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from kernelrt.ir import UOp
from kernelrt.schedule.cost import MAX_KERNEL_NODES, elements
from kernelrt.schedule.fusion import Fusion
from kernelrt.schedule.groups import Group
from kernelrt.schedule.indexing import ZERO, Index, Indexer
from kernelrt.schedule.types import Decision

__all__ = ["merge_groups"]

#: A shared input of at least this many bytes does not stay in cache between two kernels.
SHARED_BYTES = 1 << 15


def merge_groups(fusion: Fusion, wanted: Container[UOp], indexer: Indexer) -> None:
    """Merge the groups of `fusion` in place.

    Parameters
    ----------
    fusion : Fusion
        What the walk decided.
    wanted : container of UOp
        Nodes that are stored even when no other kernel reads them.
    indexer : Indexer
        Index arithmetic.
    """
    merger = _Merger(fusion, wanted, indexer)
    merger.along_values()
    merger.over_shared_inputs()
    fusion.groups = merger.alive()


class _Merger:
    def __init__(self, fusion: Fusion, wanted: Container[UOp], indexer: Indexer) -> None:
        self._fusion = fusion
        self._wanted = wanted
        self._indexer = indexer
        self._groups: list[Group | None] = list(fusion.groups)
        self._number = {g: k for k, g in enumerate(fusion.groups)}
        count = len(fusion.groups)
        self._producers: list[set[int]] = [set() for _ in range(count)]
        self._consumers: list[set[int]] = [set() for _ in range(count)]
        for k, group in enumerate(fusion.groups):
            for source in _producers(group, fusion):
                self._producers[k].add(self._number[source])
                self._consumers[self._number[source]].add(k)
        # Consumers come first in the list, so walking it backwards sees producers first.
        self._ancestors = [0] * count
        for k in reversed(range(count)):
            for p in self._producers[k]:
                self._ancestors[k] |= self._ancestors[p] | 1 << p

    def alive(self) -> list[Group]:
        """The remaining groups, consumers first."""
        done: list[Group] = []
        waiting = {k: len(self._consumers[k]) for k, g in enumerate(self._groups) if g}
        ready = [k for k, n in waiting.items() if n == 0]
        while ready:
            k = ready.pop()
            group = self._groups[k]
            assert group is not None
            done.append(group)
            for p in sorted(self._producers[k]):
                waiting[p] -= 1
                if waiting[p] == 0:
                    ready.append(p)
        return done

    def along_values(self) -> None:
        """Merge producers into consumers that read them element by element."""
        for k in reversed(range(len(self._groups))):
            for c in sorted(self._consumers[k], reverse=True):
                if self._groups[k] is not None and self._pointwise(k, c):
                    self._merge(k, c, "a kernel reads it element by element")
                    break

    def over_shared_inputs(self) -> None:
        """Merge independent kernels that walk the same large input in the same order."""
        readers: dict[tuple[UOp, Index, Index], list[int]] = {}
        for k, group in enumerate(self._groups):
            if group is None or group.kind != "map":
                continue
            for node, indices in group.reads.items():
                if elements(node.shape) * node.dtype.itemsize >= SHARED_BYTES:
                    for index in indices:
                        readers.setdefault((node, index, _space(group)), []).append(k)
        for numbers in readers.values():
            first = numbers[0]
            for k in numbers[1:]:
                if k != first and self._independent(k, first):
                    self._merge(k, first, "a kernel walks the same input")

    # Conditions

    def _fits(self, a: Group, b: Group) -> bool:
        return (
            a.kind == b.kind == "map"
            and a.size + b.size <= MAX_KERNEL_NODES
            and len(a.contractions | b.contractions) <= 1
            and _space(a) == _space(b)
            and self._keeps_in_place(a, b)
            and self._keeps_in_place(b, a)
        )

    def _keeps_in_place(self, writer: Group, other: Group) -> bool:
        """Whether `writer` can still update state in place with `other` beside it."""
        if not writer.targets:
            return True
        if other.checks:
            return False
        here = self._indexer.flat(writer.natural, writer.shape)
        return all(
            index[0] is here for target in writer.targets for index in other.reads.get(target, ())
        )

    def _pointwise(self, k: int, c: int) -> bool:
        producer, consumer = self._groups[k], self._groups[c]
        if producer is None or consumer is None or not self._fits(producer, consumer):
            return False
        for root in producer.roots:
            here = self._indexer.reshape(producer.natural, producer.shape, root.shape)
            if any(index != here for index in consumer.reads.get(root, ())):
                return False
        return not any(x != k and self._ancestors[x] >> k & 1 for x in self._producers[c])

    def _independent(self, a: int, b: int) -> bool:
        first, second = self._groups[a], self._groups[b]
        return (
            first is not None
            and second is not None
            and not self._ancestors[a] >> b & 1
            and not self._ancestors[b] >> a & 1
            and self._fits(first, second)
        )

    # The merge

    def _merge(self, k: int, c: int, reason: str) -> None:
        """Group `c` takes in group `k`."""
        producer, consumer = self._groups[k], self._groups[c]
        assert producer is not None
        assert consumer is not None
        for root in producer.roots:
            self._fusion.decisions.append(Decision(root, "merge", reason))
        consumer.roots = [*producer.roots, *consumer.roots]
        consumer.targets |= producer.targets
        consumer.contractions |= producer.contractions
        consumer.size += producer.size
        consumer.checks |= producer.checks
        for node, indices in producer.reads.items():
            consumer.reads.setdefault(node, {}).update(indices)
        self._rewire(k, c)
        for root in producer.roots:
            consumer.reads.pop(root, None)
            self._fusion.home[root] = consumer
            if root not in self._wanted and not self._read_elsewhere(root, c):
                consumer.roots.remove(root)
                del self._fusion.home[root]

    def _read_elsewhere(self, root: UOp, c: int) -> bool:
        readers = (self._groups[x] for x in self._consumers[c])
        return any(g is not None and root in g.reads for g in readers)

    def _rewire(self, k: int, c: int) -> None:
        self._groups[k] = None
        for p in self._producers[k]:
            self._consumers[p].discard(k)
            self._consumers[p].add(c)
        for x in self._consumers[k]:
            self._producers[x].discard(k)
            if x != c:
                self._producers[x].add(c)
                self._consumers[c].add(x)
        self._producers[c] |= self._producers[k]
        self._consumers[k] = set()
        self._ancestors[c] |= self._ancestors[k]
        above = self._ancestors[c] | 1 << c
        mask = 1 << k | 1 << c
        for x, group in enumerate(self._groups):
            if group is not None and x != c and self._ancestors[x] & mask:
                self._ancestors[x] |= above


def _producers(group: Group, fusion: Fusion) -> Iterable[Group]:
    for node in group.reads:
        if node in fusion.home:
            yield fusion.home[node]
    if group.kind == "add":
        root = group.roots[0]
        yield from (g for g in fusion.groups if g.kind == "init" and g.roots[0] is root)


def _space(group: Group) -> Index:
    return tuple(i for i in group.natural if i is not ZERO)
