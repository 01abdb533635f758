"""Schedule verifier.

The verifier visits the items once, in order. For each byte it logs the last write, and the reads
since then. It logs intermediates at their arena addresses, so the log describes memory as it is at
run time. Every byte that is read must hold the expected value, and every access must wait for the
earlier accesses that conflict with it. So the verifier finds a missing dependency even if the items
happen to be listed in a correct order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from kernelrt.device.allocator import ALIGNMENT
from kernelrt.device.byte_ranges import ByteRangeMap
from kernelrt.errors import SpecError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import summary
from kernelrt.ir.shape import dim_max
from kernelrt.schedule.kernels.region_bodies import fails
from kernelrt.schedule.memory.access_log import AccessLog, Span
from kernelrt.schedule.memory.hazards import Extents
from kernelrt.schedule.memory.inplace import reads_beside
from kernelrt.schedule.types import (
    CopyItem,
    Intermediate,
    KernelItem,
    Part,
    RegionItem,
    is_lasting,
    root,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.dtype import DType
    from kernelrt.schedule.memory.access_log import Storage, Unforced
    from kernelrt.schedule.types import Schedule

__all__ = ["verify_schedule"]

#: Key of the arena's storage in the access log.
_ARENA: Final = object()


def verify_schedule(
    made: Schedule, targets: Sequence[UOp], where: Extents | None = None
) -> None:
    """Check a schedule.

    - An item reads data from before the run, or data that was written by an item for which it
      waits.
    - Items that read the old content of a commit target run before the commit. Items that read the
      new content run after it.
    - An intermediate is read only after all of it is written, and not by an item that writes it.
    - If two items touch the same bytes, and one of them writes, the later item waits for the
      earlier one. This includes arena bytes that several intermediates share.
    - A kernel may read memory that it writes, but only the element that it is about to write.
    - Each commit writes its target once. Where targets overlap, the last commit wins. No other
      memory that outlives the plan is written.
    - Items that may fail run before all writes to memory that outlives the plan.
    - Every buffer is as large as its accesses need.

    Parameters
    ----------
    made : Schedule
        Schedule to check.
    targets : sequence of UOp
        The BUFFER that each commit writes, in the caller's order.
    where : Extents, optional
        Known byte ranges.

    Raises
    ------
    SpecError
        A rule is broken. The message names the item, the memory and the rule.
    """
    _Verifier(made, targets, Extents() if where is None else where).run()


# Slots of a kernel


@dataclass(frozen=True, slots=True)
class _Slots:
    """Slots of a kernel AST and their accesses.

    Attributes
    ----------
    params : tuple of (DType, int)
        Dtype and number of elements of each slot, without the status word.
    stored, loaded : frozenset of int
        Slots that are written, and slots that are read.
    fails : bool
        Whether the AST checks an index.
    fault : str or None
        Error message if elements cannot be computed in any order.
    """

    params: tuple[tuple[DType, int], ...]
    stored: frozenset[int]
    loaded: frozenset[int]
    fails: bool
    fault: str | None


def _slots_of(ast: UOp) -> _Slots:
    if ast.src[0].op is Op.CALL:
        return _slots_of_call(ast.src[0])
    nodes = list(toposort([ast]))
    loads: dict[UOp, list[UOp]] = {}
    for node in nodes:
        if node.op is Op.LOAD and node.src[0].op is Op.PARAM:
            loads.setdefault(node.src[0], []).append(node)
    status = {n.src[2] for n in nodes if n.op is Op.BOUND}
    stores: dict[UOp, list[UOp]] = {}
    for store in ast.src:
        stores.setdefault(store.src[0], []).append(store)
    updated = {s.src[0] for s in ast.src if s.arg is not None}
    params = [n for n in nodes if n.op is Op.PARAM and n not in status]
    params.sort(key=lambda p: int(p.arg[0]))
    faults = [
        f"slot {p.arg[0]}: {reason}"
        for p in params
        if (reason := reads_beside(ast.src, loads.get(p, ()), stores.get(p, ()))) is not None
    ]
    if [p.arg[0] for p in params] != list(range(len(params))):
        faults.append("its slots are not numbered 0, 1, 2, ... without gaps")
    return _Slots(
        tuple((p.dtype, p.arg[1]) for p in params),
        frozenset(p.arg[0] for p in stores),
        frozenset(p.arg[0] for p in (*loads, *updated)),
        bool(status),
        faults[0] if faults else None,
    )


def _slots_of_call(call: UOp) -> _Slots:
    params = call.src[:-1] if call.arg.takes_status else call.src
    n = call.arg.n_results
    return _Slots(
        tuple((p.dtype, p.arg[1]) for p in params),
        frozenset(range(n)), frozenset(range(n, len(params))), bool(call.arg.failure), None,
    )  # fmt: skip


# Memory of a buffer


@dataclass(frozen=True, slots=True)
class _Location:
    """Bytes of a BUFFER in the access log.

    Attributes
    ----------
    storage : Storage
        Log of the storage that holds the buffer.
    start, stop : int
        Byte range in the storage.
    own : Intermediate or None
        The intermediate that owns the bytes, if any.
    still : bool
        Whether the bytes outlive the plan and no commit changes any of them.
    """

    storage: Storage
    start: int
    stop: int
    own: Intermediate | None
    still: bool


# The checks


class _Verifier:
    def __init__(self, made: Schedule, targets: Sequence[UOp], where: Extents) -> None:
        self._where = where
        self._made = made
        self._items = made.items
        self._targets: dict[UOp, list[int]] = {}
        self._changing: ByteRangeMap[None] = ByteRangeMap()
        for number, target in enumerate(targets):
            self._targets.setdefault(target, []).append(number)
            self._changing.add(where[target], None)
        self._written: dict[UOp, int] = {}
        self._locations: dict[UOp, _Location] = {}
        self._slots: dict[UOp, _Slots] = {}
        self._failing = [
            k for k, item in enumerate(made.items)
            if not isinstance(item, CopyItem) and item.may_fail
        ]  # fmt: skip

    def run(self) -> None:
        """Check all rules."""
        self._check_deps()
        self._check_arena()
        self._ledger = AccessLog(self._made.deps)
        for k, item in enumerate(self._items):
            if isinstance(item, CopyItem):
                self._copy(k, item)
            elif isinstance(item, RegionItem):
                self._region(k, item)
            else:
                self._kernel(k, item)
        for target, numbers in self._targets.items():
            if self._written.get(target, 0) < len(numbers):
                raise SpecError(
                    f"schedule: {_name(target)} is the target of {len(numbers)} commits, but items "
                    f"perform only {self._written.get(target, 0)} of them"
                )
        for output in self._made.outputs:
            self._check_output(output)

    def _fault(self, k: int, reason: str) -> NoReturn:
        raise SpecError(f"schedule: {self._label(k)}: {reason}")

    def _check_forced(self, k: int, what: str, unforced: Unforced) -> None:
        if unforced is not None:
            earlier, does = unforced
            self._fault(
                k, f"{what} but does not wait for {self._label(earlier)}, which {does} it"
            )  # fmt: skip

    def _label(self, k: int) -> str:
        item = self._items[k]
        if isinstance(item, CopyItem):
            return f"item {k} (copy to {_name(item.dst)})"
        what = summary(item.origins) or "kernel"
        return f"item {k} ({what})"

    def _check_deps(self) -> None:
        if len(self._made.deps) != len(self._items):
            raise SpecError(
                f"schedule: {len(self._items)} items have {len(self._made.deps)} lists of "
                "dependencies; expected one list for each item"
            )
        for k, waits in enumerate(self._made.deps):
            for d in waits:
                if not 0 <= d < k:
                    self._fault(k, f"depends on item {d}; it may depend on earlier items only")

    def _check_arena(self) -> None:
        size = self._made.arena_size
        for holder, offset in self._made.arena_offsets.items():
            if offset < 0 or offset % ALIGNMENT or offset + holder.nbytes > size:
                raise SpecError(
                    f"schedule: an intermediate of {holder.nbytes} bytes has offset {offset} in an "
                    f"arena of {size} bytes; it must lie inside, aligned to {ALIGNMENT} bytes"
                )

    def _check_output(self, output: UOp) -> None:
        location = self._location(output)
        if location.own is not None and location.own in self._made.arena_offsets:
            raise SpecError(
                f"schedule: the output {_name(output)} lies in the arena; an output needs its "
                "own storage"
            )
        for span in location.storage.spans(location.start, location.stop):
            if location.own is None and span.writer >= 0:
                raise SpecError(
                    f"schedule: {self._label(span.writer)} writes the output {_name(output)}, "
                    "which is stored data that no item may change"
                )
            if location.own is not None and span.writer < 0:
                raise SpecError(f"schedule: no item writes all of the output {_name(output)}")

    # Items

    def _copy(self, k: int, item: CopyItem) -> None:
        most = dim_max(item.nbytes)
        for buffer in (item.src, item.dst):
            room = self._where[buffer].nbytes
            if not 0 <= most <= room:
                self._fault(k, f"copies {item.nbytes} bytes, but {_name(buffer)} has {room}")
        self._read(k, 1, item.src, renewed=item.renewed, nbytes=most)
        self._write(k, 0, item.dst, nbytes=most)

    def _kernel(self, k: int, item: KernelItem) -> None:
        slots = self._slots.get(item.ast)
        if slots is None:
            slots = self._slots[item.ast] = _slots_of(item.ast)
        self._check_slots(k, item, slots)
        for slot in slots.loaded:
            self._read(k, slot, item.buffers[slot], renewed=slot in item.renewed)
        for slot in item.writes:
            self._write(k, slot, item.buffers[slot])

    def _region(self, k: int, item: RegionItem) -> None:
        """Check that a region's ports lie inside its buffers, and that it writes all outputs."""
        if item.may_fail != any(map(fails, item.bodies)):
            self._fault(k, f"may_fail is {item.may_fail}, but its bodies imply the opposite")
        trip_count = item.trip_count
        for use in item.ports:
            if use.slot < 0:
                continue
            buffer = item.buffers[use.slot]
            last = use.stride * (trip_count - 1) + use.port.arg.size * use.port.dtype.itemsize
            if use.port.dtype is not buffer.dtype or last > self._where[buffer].nbytes:
                self._fault(
                    k, f"a port of {use.port.arg.size} {use.port.dtype.name} ends at byte {last} "
                    f"of slot {use.slot}, but that slot holds {_name(buffer)}"
                )  # fmt: skip
        for to, source in item.copies:
            if self._where[item.buffers[to]].nbytes != self._where[item.buffers[source]].nbytes:
                self._fault(k, f"copies slot {source} to slot {to}, but their sizes differ")
        written = {use.slot for use in item.ports if use.slot in item.writes}
        if written != set(item.writes):
            self._fault(
                k, f"its ports write slots {sorted(written)}, but `writes` is {list(item.writes)}"
            )  # fmt: skip
        for slot in range(len(item.buffers)):
            if slot not in item.writes:
                self._read(k, slot, item.buffers[slot], renewed=slot in item.renewed)
        for slot in item.writes:
            self._write(k, slot, item.buffers[slot])

    def _check_slots(self, k: int, item: KernelItem, slots: _Slots) -> None:
        if slots.fault is not None:
            self._fault(k, slots.fault)
        if slots.fails != item.may_fail:
            self._fault(k, f"may_fail is {item.may_fail}, but its AST implies {slots.fails}")
        if len(slots.stored) != len(item.writes) or not slots.stored.issuperset(item.writes):
            self._fault(
                k, f"its AST writes slots {sorted(slots.stored)}, but `writes` is "
                f"{list(item.writes)}"
            )  # fmt: skip
        if len(slots.params) != len(item.buffers):
            self._fault(
                k, f"its AST takes {len(slots.params)} buffers, but it has {len(item.buffers)}"
            )  # fmt: skip
        for slot, ((dtype, size), buffer) in enumerate(
            zip(slots.params, item.buffers, strict=True)
        ):
            if buffer.dtype is not dtype or buffer.arg.size < size:
                self._fault(
                    k, f"slot {slot} takes {size} {dtype.name}, but holds {_name(buffer)}"
                )
        for slot in item.renewed:
            if slot in slots.stored or isinstance(root(item.buffers[slot]).arg, Intermediate):
                self._fault(
                    k, f"slot {slot} is in `renewed`, but this kernel writes it, or it is an "
                    "intermediate; only slots that read a commit's target may be in `renewed`"
                )  # fmt: skip

    # Accesses

    def _location(self, buffer: UOp) -> _Location:
        found = self._locations.get(buffer)
        if found is None:
            found = self._locations[buffer] = self._find_location(buffer)
        return found

    def _find_location(self, buffer: UOp) -> _Location:
        region, whole = self._where[buffer], root(buffer)
        if whole is not buffer and not self._where[whole].covers(region):
            raise SpecError(
                f"schedule: {_name(buffer)} exceeds its base: bytes {buffer.arg.offset} to "
                f"{buffer.arg.offset + region.nbytes} of {self._where[whole].nbytes}"
            )
        own = whole.arg if isinstance(whole.arg, Intermediate) else None
        storage, offset = region.storage, 0
        if own is not None and own in self._made.arena_offsets:
            storage, offset = _ARENA, self._made.arena_offsets[own]
        bytes_of = self._ledger.storage(storage)
        still = own is None and not self._changing.meeting(region)
        return _Location(bytes_of, offset + region.start, offset + region.stop, own, still)

    def _read(
        self, k: int, slot: int, buffer: UOp, *, renewed: bool, nbytes: int | None = None
    ) -> None:
        location = self._location(buffer)
        if location.still and not renewed:
            return
        stop = location.stop if nbytes is None else location.start + nbytes
        spans = location.storage.spans(location.start, stop)
        for span in spans:
            writer = span.writer
            if location.own is not None and span.value is not location.own:
                self._fault(
                    k, f"reads {_name(buffer)}, but some bytes are missing: "
                    + ("never written" if writer < 0 else f"{self._label(writer)} overwrote them")
                )  # fmt: skip
            if location.own is None and renewed and writer < 0:
                self._fault(k, f"reads the new content of {_name(buffer)} before the commit")
            if location.own is None and not renewed and writer >= 0:
                self._fault(
                    k, f"reads the old content of {_name(buffer)}, which {self._label(writer)} "
                    "has replaced"
                )  # fmt: skip
        self._check_forced(k, f"reads {_name(buffer)}", self._ledger.read(k, slot, spans))

    def _write(self, k: int, slot: int, buffer: UOp, nbytes: int | None = None) -> None:
        location = self._location(buffer)
        stop = location.stop if nbytes is None else location.start + nbytes
        value: Intermediate | int | None = location.own
        if location.own is None:
            value = self._commit(k, buffer, stop - location.start)
        if location.start == stop:
            return
        for span in location.storage.put(Span(location.start, stop, k, value)):
            self._check_overwritten(k, slot, buffer, span)
            if isinstance(value, int) and isinstance(span.value, int) and span.value > value:
                self._fault(
                    k, f"commits to {_name(buffer)} after {self._label(span.writer)}, whose commit "
                    "of the same bytes must come last"
                )  # fmt: skip

    def _check_overwritten(self, k: int, slot: int, buffer: UOp, span: Span) -> None:
        if span.writer == k:
            self._fault(k, f"writes bytes of {_name(buffer)} through two slots")
        self._check_forced(k, f"writes bytes of {_name(buffer)}", self._ledger.replace(k, span))
        readers = span.readers
        while readers is not None:
            (reader, through), readers = readers
            if reader == k:
                if through != slot and isinstance(self._items[k], KernelItem):
                    self._fault(
                        k, f"writes bytes of {_name(buffer)} that it reads through slot {through}"
                    )
            elif span.value is not None and span.value is root(buffer).arg:
                self._fault(
                    k, f"writes {_name(buffer)}, which {self._label(reader)} has already read"
                )

    def _commit(self, k: int, buffer: UOp, nbytes: int) -> int:
        """Return the number of the commit that item `k` performs when it writes `buffer`."""
        numbers = self._targets.get(buffer, [])
        done = self._written.get(buffer, 0)
        if done >= len(numbers):
            self._fault(
                k, f"writes {_name(buffer)}, which outlives the plan, but "
                + ("all commits to it are done" if numbers else "no commit changes it")
            )  # fmt: skip
        room = self._where[buffer].nbytes
        if nbytes != room:
            self._fault(
                k, f"commits {nbytes} of the {room} bytes of {_name(buffer)}; expected all bytes"
            )  # fmt: skip
        failing = self._failing if is_lasting(buffer) else ()
        for other in self._ledger.order.missing(k, failing):
            self._fault(
                k, f"commits to {_name(buffer)} without waiting for {self._label(other)}, which "
                "may fail"
            )  # fmt: skip
        self._written[buffer] = done + 1
        return numbers[done]


def _name(buffer: UOp) -> str:
    whole = root(buffer)
    what = f"{whole.arg.size} {whole.dtype.name}"
    if isinstance(whole.arg, Intermediate):
        name = f"an intermediate of {what}"
    else:
        name = f"state or an argument of {what} ({whole.arg!r})"
    return f"a part of {name}" if isinstance(buffer.arg, Part) else name
