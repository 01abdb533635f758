"""Verifier of the operations of any plan, by their memory accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from kernelrt.errors import SpecError
from kernelrt.schedule.memory.access_log import Ledger, Span, Storage, Unforced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelrt.device.byte_ranges import Region
    from kernelrt.schedule.memory.hazards import Access
    from kernelrt.schedule.types import Intermediate

__all__ = ["verify_steps"]

#: The storage of all that the arena holds.
_ARENA: Final = object()


def verify_steps(
    steps: Sequence[Access],
    deps: Sequence[Sequence[int]],
    places: Mapping[Intermediate, int],
    label: Callable[[int], str],
) -> None:
    """Check the order of steps and where the arena puts what they share.

    - Of two steps that touch the same bytes, one of them writing, the later waits for the earlier.
      This holds of bytes of the arena as well, whichever intermediates they are of.
    - What a step reads of an intermediate was written, and is what was written to it last.
    - What may fail comes before all that must be left as it was.

    A schedule says more of its items: see
    :func:`~kernelrt.schedule.memory.verify_schedule.verify_schedule`.

    Parameters
    ----------
    steps : sequence of Access
        In execution order.
    deps : sequence
        For each of them those that it waits for.
    places : mapping of Intermediate to int
        Offsets into the arena of what lies there.
    label : callable
        What errors call a step.

    Raises
    ------
    SpecError
        Naming the step and the rule that it breaks.
    """
    _Steps(steps, deps, places, label).run()


class _Steps:
    def __init__(
        self, steps: Sequence[Access], deps: Sequence[Sequence[int]],
        places: Mapping[Intermediate, int], label: Callable[[int], str],
    ) -> None:  # fmt: skip
        self._steps = steps
        self._places = places
        self._label = label
        for k, waits in enumerate(deps):
            if any(not 0 <= d < k for d in waits):
                self._fault(k, f"waits for {list(waits)}; steps wait for earlier ones")
        self._ledger = Ledger(deps)
        # What was written to intermediates, by their own bytes: others may lie there since.
        self._contents: dict[int, Storage] = {}

    def run(self) -> None:
        """Check everything."""
        failing = [k for k, step in enumerate(self._steps) if step.fails]
        for k, step in enumerate(self._steps):
            for later in self._ledger.order.missing(k, failing) if step.lasts else ():
                self._fault(
                    k, f"writes what a run that fails must leave as it was, without waiting for "
                    f"{self._label(later)} which may fail"
                )  # fmt: skip
            for region in step.reads:
                self._read(k, region)
            for region in step.writes:
                self._write(k, region)

    def _fault(self, k: int, reason: str) -> NoReturn:
        raise SpecError(f"plan: {self._label(k)} {reason}")

    def _check_forced(self, k: int, unforced: Unforced) -> None:
        if unforced is not None:
            earlier, does = unforced
            self._fault(k, f"does not wait for {self._label(earlier)} which {does} the same bytes")

    def _content(self, own: object) -> Storage:
        return self._contents.setdefault(id(own), Storage())

    def _offset(self, region: Region) -> int | None:
        """Where the arena has the storage of `region`, if it has."""
        return self._places.get(region.storage)

    def _spans(self, region: Region) -> list[Span]:
        offset = self._offset(region)
        if offset is None:
            return self._ledger.storage(region.storage).spans(region.start, region.stop)
        return self._ledger.storage(_ARENA).spans(offset + region.start, offset + region.stop)

    def _read(self, k: int, region: Region) -> None:
        self._check_forced(k, self._ledger.read(k, 0, self._spans(region)))
        if self._offset(region) is None:
            return
        for own in self._content(region.storage).spans(region.start, region.stop):
            if own.writer < 0:
                self._fault(
                    k, f"reads bytes {own.start} to {own.stop} of an intermediate that no step "
                    "wrote"
                )  # fmt: skip
            part = region.part(own.start - region.start, own.stop - own.start)
            for span in self._spans(part):
                if span.value is not region.storage:
                    self._fault(
                        k, f"reads an intermediate that {self._label(span.writer)} wrote over"
                    )

    def _write(self, k: int, region: Region) -> None:
        if region.nbytes <= 0:
            return
        offset = self._offset(region)
        new = Span(region.start, region.stop, k)
        storage = region.storage
        if offset is not None:
            self._content(storage).put(new)
            new = Span(offset + region.start, offset + region.stop, k, storage)
            storage = _ARENA
        for span in self._ledger.storage(storage).put(new):
            self._check_forced(k, self._ledger.replace(k, span))
