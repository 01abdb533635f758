"""Loop scopes: insertion points of open loops, and memoized values.

A frame stands for one open loop; the outermost frame is the function's entry block. A value is
emitted into the frame of the innermost loop that it varies with, even while deeper loops are open.
The text of a deeper loop is appended to its parent's text only when that loop closes. So lines that
were added to the parent meanwhile run before the loop. In this way, loop-invariant code is hoisted
when it is emitted.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.backend.llvm.llvm_types import Text, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelrt.backend.llvm.addresses import LocalArray
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tiles import Position, Tile

__all__ = ["Frame", "Frames", "Segment"]


@dataclass(slots=True)
class Segment:
    """A part of a loop in which all iterations have the same tile.

    Attributes
    ----------
    start, stop : Value
        First and past-the-last value of the loop variable.
    tile : Tile
        Tile that one iteration covers.
    trips : int or None
        Number of iterations, or None if unknown. With 1, no loop is emitted.
    masked : Value or None
        If the segment is a partly filled last vector, the index at which the elements end.
    """

    start: Value
    stop: Value
    tile: Tile
    trips: int | None
    masked: Value | None = None


@dataclass(slots=True)
class Frame:
    """One open loop."""

    range: UOp | None
    block: str
    base: Value | None = None
    positions: tuple[Position, ...] = ((0, 1),)
    mask: Value | None = None
    #: Arrays that were filled here: for each LOCAL, one per tile position.
    arrays: dict[UOp, list[LocalArray]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    memo: dict[object, Value] = field(default_factory=dict)


class Frames:
    """The stack of open loops. It opens and closes loops."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.stack = [Frame(None, "entry")]
        self._write_to(self.stack[0])
        self._labels = 0

    @property
    def top(self) -> Frame:
        """The innermost open loop."""
        return self.stack[-1]

    def label(self, prefix: str) -> str:
        """Return a new name of a basic block, which begins with `prefix`."""
        self._labels += 1
        return f"{prefix}{self._labels}"

    def level(self, ranges: frozenset[UOp]) -> int:
        """Return the depth of the innermost open loop over one of `ranges`."""
        for depth in range(len(self.stack) - 1, 0, -1):
            if self.stack[depth].range in ranges:
                return depth
        return 0

    def frame_of(self, r: UOp) -> Frame | None:
        """Return the open loop over `r`, or None."""
        for frame in reversed(self.stack):
            if frame.range is r:
                return frame
        return None

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Emit into the frame at `depth`; deeper loops stay open but are hidden."""
        full = self.stack
        self.stack = full[: depth + 1]
        outer = self._write_to(self.stack[-1])
        try:
            yield
        finally:
            self.stack = full
            self.text.lines, self.text.known = outer

    def _write_to(self, frame: Frame) -> tuple[list[str], dict[object, Value]]:
        """Direct new instructions to `frame`. Return the lines and values in use before."""
        outer = self.text.lines, self.text.known
        self.text.lines, self.text.known = frame.lines, frame.memo
        return outer

    def branch_if(
        self, condition: Value, body: Callable[[], None], weights: str = ""
    ) -> tuple[str, str]:
        """Emit a branch around the code of `body`, which runs only if the scalar `condition` holds.

        Memoized values that `body` emits are forgotten, since code after the branch may run without
        them. `weights` is LLVM's metadata of branch weights.

        Returns
        -------
        tuple of str
            The last block before the branch, and the last block of `body`. The code that follows is
            reached from both.
        """
        frame, then, join = self.top, self.label("then"), self.label("join")
        before = frame.block
        frame.lines.append(f"  br i1 {condition.text}, label %{then}, label %{join}{weights}")
        frame.lines.append(f"{then}:")
        frame.block = then
        known = len(frame.memo)
        body()
        last = frame.block
        while len(frame.memo) > known:
            frame.memo.popitem()
        frame.lines.append(f"  br label %{join}")
        frame.lines.append(f"{join}:")
        frame.block = join
        return before, last

    def either(
        self, condition: Value, yes: Callable[[], None], no: Callable[[], None]
    ) -> tuple[str, str]:
        """Emit a branch: the code of `yes` runs if the scalar `condition` holds, else that of `no`.

        Memoized values of both are forgotten, as by :meth:`branch_if`. Return the last block of
        each.
        """
        frame, join = self.top, self.label("join")
        labels = self.label("then"), self.label("else")
        frame.lines.append(f"  br i1 {condition.text}, label %{labels[0]}, label %{labels[1]}")
        ends: list[str] = []
        for label, body in zip(labels, (yes, no), strict=True):
            frame.lines.append(f"{label}:")
            frame.block = label
            known = len(frame.memo)
            body()
            while len(frame.memo) > known:
                frame.memo.popitem()
            ends.append(frame.block)
            frame.lines.append(f"  br label %{join}")
        frame.lines.append(f"{join}:")
        frame.block = join
        return ends[0], ends[1]

    def run(
        self,
        r: UOp,
        segment: Segment,
        carried: list[Value],
        body: Callable[[list[Value]], list[Value]],
    ) -> list[Value]:
        """Emit one segment of the loop over `r`. Return the carried values after it.

        `body` emits an iteration: it takes the carried values at the start of the iteration, and
        returns those at its end.
        """
        if segment.trips == 1:
            return self._once(r, segment, carried, body)
        return self._loop(r, segment, carried, body)

    def _once(
        self,
        r: UOp,
        segment: Segment,
        carried: list[Value],
        body: Callable[[list[Value]], list[Value]],
    ) -> list[Value]:
        parent, label = self.top, self.label("once")
        # Use a block of its own: code hoisted into the parent may still change the parent's block.
        frame = Frame(r, label, segment.start, segment.tile.positions())
        out = self._body(frame, carried, body)
        parent.lines += [f"  br label %{label}", f"{label}:", *frame.lines]
        parent.block = frame.block
        return out

    def _body(
        self, frame: Frame, carried: list[Value], body: Callable[[list[Value]], list[Value]]
    ) -> list[Value]:
        self.stack.append(frame)
        outer = self._write_to(frame)
        try:
            return body(carried)
        finally:
            self.stack.pop()
            self.text.lines, self.text.known = outer

    def _loop(
        self,
        r: UOp,
        segment: Segment,
        carried: list[Value],
        body: Callable[[list[Value]], list[Value]],
    ) -> list[Value]:
        text, parent = self.text, self.top
        head, done = self.label("loop"), self.label("done")
        index = Value(text.name("i"), 1, dt.int64)
        frame = Frame(r, head, index, segment.tile.positions())
        phis = [Value(text.name("acc"), v.lanes, v.dtype) for v in carried]
        if segment.masked is not None:
            with_mask = Value(text.name("rest"), 1, dt.int64)
            frame.mask = self._mask(frame, with_mask, segment, index)
        out = self._body(frame, phis, body)
        following, more = text.name("i"), text.name("c")
        frame.lines.append(f"  {following} = add nsw i64 {index.text}, {segment.tile.factor}")
        frame.lines.append(f"  {more} = icmp slt i64 {following}, {segment.stop.text}")
        frame.lines.append(f"  br i1 {more}, label %{head}, label %{done}")
        before = parent.block
        if segment.trips is None:
            some = text.name("c")
            parent.lines.append(
                f"  {some} = icmp slt i64 {segment.start.text}, {segment.stop.text}"
            )
            parent.lines.append(f"  br i1 {some}, label %{head}, label %{done}")
        else:
            parent.lines.append(f"  br label %{head}")
        parent.lines.append(f"{head}:")
        parent.lines.append(
            f"  {index.text} = phi i64 [ {segment.start.text}, %{before} ], "
            f"[ {following}, %{frame.block} ]"
        )
        for phi, first, last in zip(phis, carried, out, strict=True):
            parent.lines.append(
                f"  {phi.text} = phi {text.type_of(phi)} [ {first.text}, %{before} ], "
                f"[ {last.text}, %{frame.block} ]"
            )
        parent.lines.extend(frame.lines)
        parent.lines.append(f"{done}:")
        parent.block = done
        return self._after(segment, carried, out, before, frame.block)

    def _after(
        self, segment: Segment, first: list[Value], last: list[Value], before: str, latch: str
    ) -> list[Value]:
        """Return the carried values after a loop that may have no iterations."""
        if segment.trips is not None:
            return last
        merged = []
        for a, b in zip(first, last, strict=True):
            name = self.text.name("acc")
            self.top.lines.append(
                f"  {name} = phi {self.text.type_of(a)} [ {a.text}, %{before} ], "
                f"[ {b.text}, %{latch} ]"
            )
            merged.append(Value(name, a.lanes, a.dtype))
        return merged

    def _mask(self, frame: Frame, rest: Value, segment: Segment, index: Value) -> Value:
        """Return the mask of those lanes of the last vector that hold elements."""
        lanes = segment.tile.lanes
        frame.lines.append(f"  {rest.text} = sub i64 {segment.stop.text}, {index.text}")
        outer = self._write_to(frame)
        try:
            wide = self.text.splat(rest, lanes)
            numbers = ", ".join(f"i64 {i}" for i in range(lanes))
            mask = self.text.emit(f"icmp slt <{lanes} x i64> <{numbers}>, {wide.text}")
        finally:
            self.text.lines, self.text.known = outer
        return Value(mask, lanes, dt.bool_)
