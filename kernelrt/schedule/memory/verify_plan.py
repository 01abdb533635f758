"""Plan verifier: checks the operations of any plan by their memory accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from kernelrt.errors import SpecError
from kernelrt.schedule.memory.access_log import AccessLog, Span, Storage, Unforced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelrt.device.byte_ranges import ByteRange
    from kernelrt.schedule.memory.hazards import Access
    from kernelrt.schedule.types import Intermediate

__all__ = ["verify_steps"]

#: Key of the arena's storage in the access log.
_ARENA: Final = object()


def verify_steps(
    steps: Sequence[Access],
    deps: Sequence[Sequence[int]],
    arena_offsets: Mapping[Intermediate, int],
    label: Callable[[int], str],
) -> None:
    """Check the order of steps and the arena offsets of their intermediates.

    - If two steps touch the same bytes, and one of them writes, the later step waits for the
      earlier one. This includes arena bytes that several intermediates share.
    - If a step reads bytes of an intermediate, these were written, and not overwritten since.
    - Steps that may fail run before all writes to memory that a failing run must leave unchanged.

    :func:`~kernelrt.schedule.memory.verify_schedule.verify_schedule` checks more rules for the
    items of a schedule.

    Parameters
    ----------
    steps : sequence of Access
        Accesses of each step, in execution order.
    deps : sequence
        For each step, the steps that it waits for.
    arena_offsets : mapping of Intermediate to int
        Byte offset in the arena of each intermediate that the arena holds.
    label : callable
        Returns the name of a step for error messages.

    Raises
    ------
    SpecError
        A rule is broken. The message names the step and the rule.
    """
    _Steps(steps, deps, arena_offsets, label).run()


class _Steps:
    def __init__(
        self, steps: Sequence[Access], deps: Sequence[Sequence[int]],
        arena_offsets: Mapping[Intermediate, int], label: Callable[[int], str],
    ) -> None:  # fmt: skip
        self._steps = steps
        self._arena_offsets = arena_offsets
        self._label = label
        for k, waits in enumerate(deps):
            if any(not 0 <= d < k for d in waits):
                self._fault(k, f"depends on {list(waits)}; it may depend on earlier steps only")
        self._ledger = AccessLog(deps)
        # Writes by intermediate, since the arena's log shows only the last owner of a byte.
        self._contents: dict[int, Storage] = {}

    def run(self) -> None:
        """Check all rules."""
        failing = [k for k, step in enumerate(self._steps) if step.fails]
        for k, step in enumerate(self._steps):
            for later in self._ledger.order.missing(k, failing) if step.lasts else ():
                self._fault(
                    k, f"writes memory that a failing run must leave unchanged, without waiting "
                    f"for {self._label(later)}, which may fail"
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
            self._fault(k, f"does not wait for {self._label(earlier)}, which {does} the same bytes")

    def _content(self, own: object) -> Storage:
        return self._contents.setdefault(id(own), Storage())

    def _offset(self, region: ByteRange) -> int | None:
        """Return the arena offset of the storage of `region`; None if it is not in the arena."""
        return self._arena_offsets.get(region.storage)

    def _spans(self, region: ByteRange) -> list[Span]:
        offset = self._offset(region)
        if offset is None:
            return self._ledger.storage(region.storage).spans(region.start, region.stop)
        return self._ledger.storage(_ARENA).spans(offset + region.start, offset + region.stop)

    def _read(self, k: int, region: ByteRange) -> None:
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
                        k, f"reads an intermediate that {self._label(span.writer)} overwrote"
                    )

    def _write(self, k: int, region: ByteRange) -> None:
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
