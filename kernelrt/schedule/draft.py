"""Items before their order and their buffers are settled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt.device.region import RegionMap
from kernelrt.errors import SpecError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import resolve
from kernelrt.schedule.axes import canonical_loops
from kernelrt.schedule.hazards import extent
from kernelrt.schedule.lower import STATUS
from kernelrt.schedule.types import CopyItem, KernelItem, Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.schedule.groups import Group
    from kernelrt.schedule.indexing import Indexer

__all__ = ["CopyDraft", "Draft", "KernelDraft"]


@dataclass(eq=False, slots=True)
class KernelDraft:
    """A kernel whose STOREs and LOADs name BUFFERs, not yet slots.

    Attributes
    ----------
    group : Group
        What it was lowered from.
    stores : list of UOp
        STOREs.
    loads : dict
        BUFFER -> the indices it is loaded at.
    fails : bool
        Whether an index is checked inside.
    """

    group: Group
    stores: list[UOp]
    loads: dict[UOp, set[UOp]] = field(default_factory=dict)
    fails: bool = False
    _renamed: dict[UOp, UOp] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in toposort(self.stores):
            if node.op is Op.LOAD:
                self.loads.setdefault(node.src[0], set()).add(node.src[1])
            self.fails |= node.op is Op.BOUND

    @property
    def reads(self) -> list[UOp]:
        """BUFFERs that are loaded, or added to."""
        added = [self.place(s) for s in self.stores if s.arg is Op.ADD]
        return list(dict.fromkeys([*self.loads, *added]))

    @property
    def writes(self) -> list[UOp]:
        """BUFFERs that are stored to."""
        return list(dict.fromkeys(map(self.place, self.stores)))

    def place(self, access: UOp) -> UOp:
        """The BUFFER that a STORE or LOAD goes to."""
        return self._renamed.get(access.src[0], access.src[0])

    def stores_to(self, buffer: UOp) -> list[UOp]:
        """The STOREs to `buffer`: one, or one for each operand of a CAT."""
        return [s for s in self.stores if self.place(s) is buffer]

    def redirect(self, old: UOp, new: UOp) -> None:
        """Read and write `new` where it was `old`."""
        self._renamed[old] = new
        if old in self.loads:
            self.loads.setdefault(new, set()).update(self.loads.pop(old))

    def finish(self, indexer: Indexer, keep: frozenset[UOp]) -> KernelItem:
        """The kernel with canonical loops and numbered slots.

        Parameters
        ----------
        indexer : Indexer
            Index arithmetic.
        keep : frozenset of UOp
            BUFFERs that the caller may put elsewhere, of which no parts are taken.
        """
        self._take_parts(keep)
        stores = canonical_loops(self.stores, self.group.loops, indexer)
        nodes = list(toposort(stores))
        slots = {b: k for k, b in enumerate(dict.fromkeys(map(self.place, stores)))}
        writes = tuple(range(len(slots)))
        loads = [n for n in nodes if n.op is Op.LOAD]
        for load in loads:
            slots.setdefault(self.place(load), len(slots))
        _check_apart(list(slots), len(writes))
        params = {
            access.src[0]: _param(self.place(access), slots) for access in (*stores, *loads)
        }
        params[STATUS] = STATUS.replace(arg=(len(slots), 1))
        checks = [n for n in nodes if n.op is Op.BOUND]
        numbers = {n: k for k, n in enumerate(checks)}
        return KernelItem(
            _sink(stores, nodes, params, numbers), tuple(slots), writes, self.fails,
            tuple(reversed(self.group.origins)),
            tuple(None if n.origin is None else resolve(n.origin) for n in checks),
        )  # fmt: skip

    def _take_parts(self, keep: frozenset[UOp]) -> None:
        """Read no more of a buffer than is looked at, as a buffer of its own.

        Kernels that differ in nothing but which part that is are then one kernel.
        """
        accesses: dict[UOp, list[UOp]] = {}
        for node in toposort(self.stores):
            if node.op is Op.LOAD:
                accesses.setdefault(self.place(node), []).append(node)
        written = set(self.writes)
        parts: dict[UOp, tuple[UOp, int]] = {}
        for buffer, loads in accesses.items():
            if buffer not in keep and buffer not in written:
                found = _part(buffer, loads)
                if found is not None:
                    parts.update(dict.fromkeys(loads, found))
        if not parts:
            return
        done: dict[UOp, UOp] = {}
        for node in toposort(self.stores):
            src = tuple(done[s] for s in node.src)
            if node in parts:
                part, first = parts[node]
                src = (part, src[1] - first, *src[2:])
            done[node] = node if src == node.src else node.replace(src=src)
        self.stores = [done[s] for s in self.stores]


def _part(buffer: UOp, loads: Sequence[UOp]) -> tuple[UOp, int] | None:
    """The part of `buffer` that `loads` read, and the index that it begins at."""
    # The least index, not the constant term: a flipped axis counts down.
    first = min(load.src[1].vmin for load in loads)
    span = max(load.src[1].vmax for load in loads) + 1 - first
    size = int(buffer.arg.size)
    if not 0 <= first < size or span >= size:
        return None
    span = min(span, size - first)
    return buffer.replace(arg=Part(buffer, first * buffer.dtype.itemsize, span)), first


def _param(buffer: UOp, slots: Mapping[UOp, int]) -> UOp:
    return UOp(Op.PARAM, buffer.dtype, (), (slots[buffer], int(buffer.arg.size)))


def _sink(
    stores: list[UOp], nodes: list[UOp], params: Mapping[UOp, UOp], numbers: Mapping[UOp, int]
) -> UOp:
    done = dict(params)
    for node in nodes:
        if node not in done:
            src = tuple(done[s] for s in node.src)
            arg = (numbers[node], node.arg[1]) if node.op is Op.BOUND else node.arg
            same = src == node.src and arg == node.arg
            done[node] = node if same else node.replace(src=src, arg=arg)
    return UOp(Op.SINK, stores[0].dtype, tuple(done[s] for s in stores))


def _check_apart(buffers: list[UOp], written: int) -> None:
    """A kernel may assume that what it writes is no other slot's memory."""
    places: RegionMap[int] = RegionMap()
    for k, buffer in enumerate(buffers):
        places.add(extent(buffer), k)
    for k in range(written):
        for j in places.meeting(extent(buffers[k])):
            if j != k:
                raise SpecError(
                    f"slots {k} (written) and {j} of one kernel overlap: {buffers[k].arg!r} and "
                    f"{buffers[j].arg!r}; the scheduler must not build such a kernel"
                )


@dataclass(eq=False, slots=True)
class CopyDraft:
    """A copy of all bytes of `src` to `dst`."""

    dst: UOp
    src: UOp
    fails: bool = False

    @property
    def reads(self) -> list[UOp]:
        """The BUFFER copied from."""
        return [self.src]

    @property
    def writes(self) -> list[UOp]:
        """The BUFFER copied to."""
        return [self.dst]

    def redirect(self, old: UOp, new: UOp) -> None:
        """Read and write `new` where it was `old`."""
        self.src = new if self.src is old else self.src
        self.dst = new if self.dst is old else self.dst

    def finish(self, _indexer: Indexer, _keep: frozenset[UOp]) -> CopyItem:
        """The copy as an item."""
        return CopyItem(self.dst, self.src, int(self.dst.arg.size) * self.dst.dtype.itemsize)


Draft = KernelDraft | CopyDraft
