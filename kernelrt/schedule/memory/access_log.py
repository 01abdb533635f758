"""Access log: the items that read and wrote each byte, and the order that dependencies imply."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.schedule.types import Intermediate

__all__ = ["AccessLog", "Order", "Span", "Storage", "Unforced"]

#: Maximum number of items for which a bit mask of all predecessors is stored with each item.
_CLOSURE_LIMIT: Final = 8192
#: Readers of some bytes, as a linked list of (item, slot).
Readers = tuple[tuple[int, int], "Readers"] | None
#: An earlier item that no dependency puts first, and its access ("reads" or "writes"); or None.
Unforced = tuple[int, str] | None


class Span:
    """A range of bytes that the same items have accessed.

    Attributes
    ----------
    start, stop : int
        Byte range in its storage.
    writer : int
        The item that wrote the bytes last; -1 for none.
    value : Intermediate, int or None
        Content of the bytes: an Intermediate, or the number of the commit that wrote them.
    readers : tuple or None
        Items that have read the content since it was written.
    """

    __slots__ = ("readers", "start", "stop", "value", "writer")

    def __init__(
        self, start: int, stop: int, writer: int = -1, value: Intermediate | int | None = None,
        readers: Readers = None,
    ) -> None:  # fmt: skip
        self.start, self.stop = start, stop
        self.writer, self.value, self.readers = writer, value, readers


class Storage:
    """The bytes of one storage, as sorted spans."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: list[Span] = []

    def spans(self, start: int, stop: int) -> list[Span]:
        """Return the spans from `start` to `stop`. Spans that extend beyond are cut."""
        first, last = self._between(start, stop)
        return self._spans[first:last]

    def put(self, span: Span) -> list[Span]:
        """Put `span` in place of all spans in its range. Return the replaced spans."""
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
    """Partial order of the items that the dependencies imply."""

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
        """Return whether `late` always runs after `early`."""
        if self._before is not None:
            return bool(self._before[late] >> early & 1) and late != early
        return not self.missing(late, (early,))

    def missing(self, late: int, wanted: Iterable[int]) -> list[int]:
        """Return the items of `wanted` that do not always run before `late`."""
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


class AccessLog:
    """Log of the accesses of items, which checks that dependencies order conflicting accesses.

    Parameters
    ----------
    deps : sequence
        For each item, the items that it waits for.
    """

    def __init__(self, deps: Sequence[Sequence[int]]) -> None:
        self.order = Order(deps)
        self._storages: dict[int, Storage] = {}

    def storage(self, key: object) -> Storage:
        """Return the log of the storage that `key` identifies; `key` must stay alive."""
        return self._storages.setdefault(id(key), Storage())

    def read(self, item: int, slot: int, spans: Iterable[Span]) -> Unforced:
        """Log a read by `item`. Return an earlier write that `item` does not wait for, or None."""
        for span in spans:
            if span.writer >= 0 and not self.order.waits(item, span.writer):
                return span.writer, "writes"
            span.readers = (item, slot), span.readers
        return None

    def replace(self, item: int, old: Span) -> Unforced:
        """Return an earlier access to `old` that `item`, which writes there, does not wait for.

        Return None if there is none. Accesses by `item` itself do not count.
        """
        if old.writer not in (-1, item) and not self.order.waits(item, old.writer):
            return old.writer, "writes"
        readers = old.readers
        while readers is not None:
            (reader, _), readers = readers
            if reader != item and not self.order.waits(item, reader):
                return reader, "reads"
        return None
