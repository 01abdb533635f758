"""Memory that is about to be written, and which lazy tensors and histories read it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from kernelrt._handle import exchange
from kernelrt.device.buffer import Buffer
from kernelrt.device.region import HOST, Region, RegionMap, taken_region
from kernelrt.ir import Op, UOp, toposort
from kernelrt.tensor import state
from kernelrt.tensor.marks import Stale, is_kept, lineage, mark
from kernelrt.tensor.rewriting import below, rewritten

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.tensor.base import TensorBase

__all__ = ["Written", "expire", "memory_of", "overlaps", "readers_of", "reads"]


#: Up to so many spans are scanned one by one.
FEW_SPANS: Final = 8


class Written:
    """Memory that is written, as half-open ranges of addresses."""

    __slots__ = ("_regions", "spans")

    def __init__(self, buffers: Iterable[Buffer], spans: Iterable[tuple[int, int]] = ()) -> None:
        self.spans = {(b.address, b.address + b.nbytes) for b in buffers if b.nbytes}.union(spans)
        self._regions: RegionMap[None] | None = None

    def overlaps(self, buffer: Buffer) -> bool:
        """Return whether any byte of `buffer` is written; it has none before it has memory."""
        if not buffer.nbytes or not buffer.allocated:
            return False
        first = buffer.address
        last = first + buffer.nbytes
        if len(self.spans) <= FEW_SPANS:
            return any(start < last and first < stop for start, stop in self.spans)
        if self._regions is None:
            regions: RegionMap[None] = RegionMap()
            for start, stop in self.spans:
                regions.add(Region(HOST, start, stop), None)
            self._regions = regions
        return bool(self._regions.meeting(Region(HOST, first, last)))


def memory_of(tensors: Sequence[TensorBase], more: Written | None = None) -> Written:
    """The memory of `tensors`, and `more`."""
    if more is not None and not tensors:
        return more
    buffers = (b for t in tensors if (b := t._memory) is not None)
    return Written(buffers, () if more is None else more.spans)


def overlaps(buffer: object, written: Written) -> bool:
    """Whether any byte of `buffer`, if it is one that has memory, is written."""
    return isinstance(buffer, Buffer) and written.overlaps(buffer)


def reads(root: UOp, written: Written, steady: set[UOp] | None = None) -> bool:
    """Whether the value or the history of `root` reads `written`; nodes in `steady` do not."""
    known = set() if steady is None else steady
    found = []
    for node in toposort([root], stop=known.__contains__):
        if _is_over(node, written):
            return True
        found.append(node)
    known.update(found)
    return False


def readers_of(
    tensors: Sequence[tuple[TensorBase, UOp]], written: Written
) -> list[TensorBase]:
    """Those of `tensors`, with their nodes, whose expressions read one of the buffers.

    What reads no memory that was ever written is remembered, so that a graph that grows from call
    to call, as a sum of losses does, is not walked again each time.
    """
    history, version = _ever_written(written)
    roots = [node for _, node in tensors]
    # What is known of a node is asked once: interrupting code may note another version there.
    steady: set[UOp] = set()

    def ends(node: UOp) -> bool:
        if node.cached_steady == version:
            steady.add(node)
            return True
        return is_kept(node)

    reads: dict[UOp, bool] = {}
    for node in toposort(roots, stop=ends):
        if node in steady:
            reads[node] = False
            continue
        source = _leaf_of(node.arg.storage) if is_kept(node) else node
        if source.op is Op.BUFFER:
            reads[node] = overlaps(source.arg, written)
            lasts = not _may_change(source.arg, history) and not (
                is_kept(node) and _history_may_change(node.src[0], history)
            )
        else:
            reads[node] = any(reads[s] for s in node.src)
            lasts = steady.issuperset(node.src)
        if lasts:
            steady.add(node)
            node.cached_steady = version
    return [t for t, root in tensors if reads[root]]


def _is_over(node: UOp, written: Written) -> bool:
    """Whether what the node reads, and none of what it is made of, is `written`."""
    source = _leaf_of(node.arg.storage) if is_kept(node) else node
    return source.op is Op.BUFFER and overlaps(source.arg, written)


def _leaf_of(storage: UOp) -> UOp:
    """The BUFFER below a storage node."""
    while storage.src:
        storage = storage.src[0]
    return storage


class _History:
    """All memory that was written while there were lazy tensors.

    Each state of it has a version. Interrupting code may let it grow at any time: regions come
    before the version that counts them, and spans are known only behind that.
    """

    most = 4096
    _versions = itertools.count(1)

    def __init__(self) -> None:
        self.regions: RegionMap[None] = RegionMap()
        self.known: set[tuple[int, int]] = set()
        self.version = next(self._versions)

    def note(self, spans: set[tuple[int, int]]) -> int:
        """Let it have `spans`, too; gives its version."""
        if spans <= self.known:
            return self.version
        for start, stop in spans - self.known:
            self.regions.add(Region(HOST, start, stop), None)
        self.version = version = next(self._versions)
        self.known.update(spans)
        return version


#: The only element.
_history = [_History()]


def _ever_written(written: Written) -> tuple[_History, int]:
    """Note that `written` is written; all that ever was, and its version."""
    history = _history[0]
    if len(history.known) > history.most and not written.spans <= history.known:
        _history[0] = history = _History()
    return history, history.note(written.spans)


def _may_change(buffer: object, history: _History) -> bool:
    region = taken_region(buffer) if isinstance(buffer, Buffer) else None
    # Memory that is yet to come may be memory that was written.
    return region is None or bool(history.regions.meeting(region))


def _history_may_change(root: UOp, history: _History) -> bool:
    return any(n.op is Op.BUFFER and _may_change(n.arg, history) for n in toposort([root]))


def expire(written: Written, lazy: Sequence[tuple[TensorBase, UOp]]) -> None:
    """Give up the histories that went over `written`, which changed.

    Those of tensors that have data, and those below the `lazy` ones, given with their nodes: what a
    lazy tensor is made of may have been computed, and its history gone over what is written.
    """
    for tensor in state.watched.members():
        node = tensor._uop
        if node is None or not tensor.is_realized:
            continue
        if not is_kept(node) or (
            _history_reads(node.src[0], written)
            and exchange(tensor, node, mark(node.arg.storage, Stale(node)))
        ):
            state.watched.discard(tensor)
    _expire_below(lazy, written)


def _expire_below(
    lazy: Sequence[tuple[TensorBase, UOp]], written: Written
) -> None:
    version = _history[0].version

    def ends(node: UOp) -> bool:
        return is_kept(node) or node.cached_steady == version

    for tensor, root in lazy:
        stale = {
            node: mark(node.arg.storage, Stale(node))
            for node in below([root], ends)
            if is_kept(node)
            and not (node.arg.shared and lineage(node) is False)
            and _history_reads(node.src[0], written)
        }
        if stale:
            exchange(tensor, root, rewritten([root], stale)[0])


def _history_reads(node: UOp, written: Written) -> bool:
    return any(_is_over(n, written) for n in toposort([node]))
