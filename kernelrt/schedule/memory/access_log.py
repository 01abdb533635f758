"""Access log: who read and wrote which bytes, and the order that dependencies imply."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.schedule.types import Intermediate

__all__ = ["Ledger", "Order", "Span", "Storage", "Unforced"]

#: Up to this many items it is written down for each which ones come before it, as bits.
_CLOSURE_LIMIT: Final = 8192
#: Who has read some bytes: item and slot, and the rest.
Readers = tuple[tuple[int, int], "Readers"] | None
#: An earlier item that one does not always run after, and what that does there; None: it does.
Unforced = tuple[int, str] | None


class Span:
    """Bytes that the same items have touched.

    Attributes
    ----------
    start, stop : int
        Where they lie in their storage.
    writer : int
        Who wrote them last; -1: nobody.
    value : Intermediate, int or None
        What they hold: an Intermediate, or the number of the commit that put it there.
    readers : tuple or None
        Who has read that.
    """

    __slots__ = ("readers", "start", "stop", "value", "writer")

    def __init__(
        self, start: int, stop: int, writer: int = -1, value: Intermediate | int | None = None,
        readers: Readers = None,
    ) -> None:  # fmt: skip
        self.start, self.stop = start, stop
        self.writer, self.value, self.readers = writer, value, readers


class Storage:
    """The bytes of one storage, as spans in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: list[Span] = []

    def spans(self, start: int, stop: int) -> list[Span]:
        """The spans between `start` and `stop`; all of them lie between."""
        first, last = self._between(start, stop)
        return self._spans[first:last]

    def put(self, span: Span) -> list[Span]:
        """Let one span take the place of all that lie where it does; give those."""
        first, last = self._between(span.start, span.stop)
        old = self._spans[first:last]
        if last - first > 1:
            self._starts[first:last] = [span.start]
        self._spans[first:last] = [span]
        return old

    def _between(self, start: int, stop: int) -> tuple[int, int]:
        spans, starts = self._spans, self._starts
        first = bisect_left(starts, start)
        if first < len(spans) and starts[first] == start and spans[first].stop == stop:
            return first, first + 1
        self._cut(start)
        self._cut(stop)
        first = at = bisect_left(starts, start)
        position = start
        while position < stop:
            following = spans[at].start if at < len(spans) else stop
            if following > position:
                spans.insert(at, Span(position, min(following, stop)))
                starts.insert(at, position)
            position = spans[at].stop
            at += 1
        return first, at

    def _cut(self, position: int) -> None:
        at = bisect_left(self._starts, position)
        if at and self._spans[at - 1].stop > position:
            left = self._spans[at - 1]
            right = Span(position, left.stop, left.writer, left.value, left.readers)
            left.stop = position
            self._starts.insert(at, position)
            self._spans.insert(at, right)


class Order:
    """What the dependencies put before what."""

    def __init__(self, deps: Sequence[Sequence[int]]) -> None:
        self._deps = deps
        self._before: list[int] | None = [] if len(deps) <= _CLOSURE_LIMIT else None
        if self._before is not None:
            for number, waits in enumerate(deps):
                bits = 1 << number
                for d in waits:
                    bits |= self._before[d]
                self._before.append(bits)

    def waits(self, late: int, early: int) -> bool:
        """Whether `late` always runs after `early`."""
        if self._before is not None:
            return bool(self._before[late] >> early & 1) and late != early
        return not self.missing(late, (early,))

    def missing(self, late: int, wanted: Iterable[int]) -> list[int]:
        """Those of `wanted` that `late` does not always run after."""
        if self._before is not None:
            return [w for w in wanted if not self.waits(late, w)]
        rest = set(wanted).difference(self._deps[late])
        first = min(rest, default=late)
        seen: set[int] = set()
        stack = list(self._deps[late]) if rest else []
        while stack and rest:
            number = stack.pop()
            rest.discard(number)
            new = [d for d in self._deps[number] if d >= first and d not in seen]
            seen.update(new)
            stack += new
        return sorted(rest)


class Ledger:
    """Accesses of items, in the order of the list, which dependencies must force.

    Parameters
    ----------
    deps : sequence
        For each item those that it waits for.
    """

    def __init__(self, deps: Sequence[Sequence[int]]) -> None:
        self.order = Order(deps)
        self._storages: dict[int, Storage] = {}

    def storage(self, key: object) -> Storage:
        """The bytes of the storage that is `key`, which must stay alive."""
        return self._storages.setdefault(id(key), Storage())

    def read(self, item: int, slot: int, spans: Iterable[Span]) -> Unforced:
        """Note that `item` reads what lies there."""
        for span in spans:
            if span.writer >= 0 and not self.order.waits(item, span.writer):
                return span.writer, "writes"
            span.readers = (item, slot), span.readers
        return None

    def replace(self, item: int, old: Span) -> Unforced:
        """Look at what `item` writes over; accesses of its own do not count."""
        if old.writer not in (-1, item) and not self.order.waits(item, old.writer):
            return old.writer, "writes"
        readers = old.readers
        while readers is not None:
            (reader, _), readers = readers
            if reader != item and not self.order.waits(item, reader):
                return reader, "reads"
        return None
