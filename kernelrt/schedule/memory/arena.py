"""Arena planner: places intermediates in one block of memory."""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from kernelrt.device.allocator import ALIGNMENT
from kernelrt.schedule.types import Intermediate, root

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kernelrt.schedule.types import Item

__all__ = ["most_alive", "plan_arena", "touched"]

#: Maximum number of items whose dependencies get a transitive closure. It would take too much
#: memory for more items, so their bytes are reused only after direct dependencies.
_CLOSURE_LIMIT = 8192


#: Free bytes: start, stop, and a bit mask of the intermediates (by number) that may use them.
_Idle = tuple[int, int, int]
#: Adjacent free ranges with equal masks are merged once per this many intermediates.
_JOIN_EVERY = 64


def touched(items: Iterable[Item]) -> list[list[Intermediate]]:
    """Return the intermediates that each item reads or writes."""
    return [
        [b for b in dict.fromkeys(root(b).arg for b in (*item.ins, *item.outs))
         if isinstance(b, Intermediate)]
        for item in items
    ]  # fmt: skip


def plan_arena(
    uses: Sequence[Iterable[Intermediate]],
    deps: Sequence[Sequence[int]] | None,
    keep: Collection[Intermediate],
    *,
    reuse: bool = True,
) -> tuple[dict[Intermediate, int], int]:
    """Assign an arena offset to each intermediate.

    An intermediate may reuse the bytes of an older one on one condition: each item that uses it
    depends, directly or indirectly, on all items that use the older one. So items may run in any
    order that the dependencies allow, or at the same time.

    Parameters
    ----------
    uses : sequence of iterable of Intermediate
        Intermediates that each item reads or writes, in execution order.
    deps : sequence of sequence of int, or None
        For each item, the items that it waits for; None if items run one after the other.
    keep : collection of Intermediate
        Intermediates that are not in the arena, because they have their own storage.
    reuse : bool
        Whether several intermediates may share bytes.

    Returns
    -------
    offsets : dict of Intermediate to int
        Byte offsets in the arena.
    size : int
        Size of the arena in bytes.
    """
    users: dict[Intermediate, list[int]] = {}
    for number, holders in enumerate(uses):
        for holder in holders:
            if holder not in keep:
                users.setdefault(holder, []).append(number)
    offsets: dict[Intermediate, int] = {}
    sizes = {h: -(-max(h.nbytes, 1) // ALIGNMENT) * ALIGNMENT for h in users}
    ordered = sorted(users, key=lambda h: users[h][0])
    if not reuse:
        for holder, stop in zip(
            ordered, itertools.accumulate(sizes[h] for h in ordered), strict=True
        ):
            offsets[holder] = stop - sizes[holder]
        return offsets, sum(sizes.values())
    firsts = [users[h][0] for h in ordered]
    followers = [] if deps is None else _followers(_begin(ordered, users, deps), deps)
    # Bytes that no intermediate may use yet: the first one that may, then the fields of _Idle.
    busy: list[tuple[int, int, int, int]] = []
    idle: list[_Idle] = []
    total = 0
    for number, holder in enumerate(ordered):
        while busy and busy[0][0] <= number:
            insort(idle, heapq.heappop(busy)[1:])
        if number % _JOIN_EVERY == 0:
            idle = _joined(idle, number)
        start = offsets[holder] = _fit(sizes[holder], idle, 1 << number, total)
        stop = start + sizes[holder]
        _claim(idle, start, stop)
        total = max(total, stop)
        if deps is None:
            known = bisect_right(firsts, users[holder][-1])  # these begin before it is free
            after = ((1 << len(ordered)) - 1) >> known << known
        else:
            after = functools.reduce(operator.and_, (followers[n] for n in users[holder]))
        if after:
            heapq.heappush(busy, ((after & -after).bit_length() - 1, start, stop, after))
    return offsets, total


def _begin(
    ordered: Sequence[Intermediate],
    users: Mapping[Intermediate, Sequence[int]],
    deps: Sequence[Sequence[int]],
) -> list[list[int]]:
    """Return, for each intermediate, the users that wait for no other user of the intermediate.

    An intermediate has several such users if several items write a part of it each.
    """
    out: list[list[int]] = []
    for holder in ordered:
        known = set(users[holder])
        out.append([n for n in users[holder] if known.isdisjoint(deps[n])])
    return out


def _followers(begin: Sequence[Sequence[int]], deps: Sequence[Sequence[int]]) -> list[int]:
    """Return, for each item, a bit mask of the intermediates that are only used after it.

    All users of such an intermediate depend on the item.

    Parameters
    ----------
    begin : sequence of sequence of int
        First users of each intermediate; its other users wait for them.
    deps : sequence of sequence of int
        For each item, the items that it waits for.
    """
    begun = [0] * len(deps)
    # An intermediate with several first users has one bit for each, above all ordinary bits.
    several: list[tuple[int, int]] = []
    width = len(begin)
    for number, firsts in enumerate(begin):
        if len(firsts) > 1:
            several.append((1 << number, ((1 << len(firsts)) - 1) << width))
        for n, first in enumerate(firsts):
            begun[first] |= 1 << (number if len(firsts) == 1 else width + n)
        width += len(firsts) if len(firsts) > 1 else 0
    out = [0] * len(deps)
    small = len(deps) <= _CLOSURE_LIMIT
    for item in range(len(deps) - 1, -1, -1):
        bits = begun[item] | (out[item] if small else 0)
        for d in deps[item]:
            out[d] |= bits
    for item, bits in enumerate(out) if several else ():
        whole = sum(bit for bit, parts in several if bits & parts == parts)
        out[item] = bits & ((1 << len(begin)) - 1) | whole
    return out


def _joined(idle: Sequence[_Idle], number: int) -> list[_Idle]:
    """Merge adjacent free ranges that the same intermediates may use.

    Intermediates before `number` have their offsets already, so they do not count.
    """
    out: list[_Idle] = []
    for start, stop, after in idle:
        rest = after >> number << number
        if out and out[-1][1] == start and out[-1][2] == rest:
            out[-1] = (out[-1][0], stop, rest)
        else:
            out.append((start, stop, rest))
    return out


def _claim(idle: list[_Idle], start: int, stop: int) -> None:
    """Remove bytes `start` to `stop` from the free ranges `idle`; one range begins at `start`."""
    first = bisect_left(idle, (start,))
    last = bisect_left(idle, (stop,))
    rest: list[_Idle] = []
    if first < last and idle[last - 1][1] > stop:
        rest.append((stop, *idle[last - 1][1:]))
    idle[first:last] = rest


def _fit(size: int, idle: Sequence[_Idle], bit: int, end: int) -> int:
    """Return the offset of the tightest free gap for one intermediate.

    Parameters
    ----------
    size : int
        Bytes that the intermediate needs.
    idle : sequence of _Idle
        Free ranges, sorted.
    bit : int
        Bit of the intermediate in the masks of `idle`.
    end : int
        Size of the arena so far.
    """
    best: tuple[int, int] | None = None
    start = position = -1
    for begin, stop, after in idle:
        if not after & bit:
            continue
        if begin != position:
            if position - start >= size and (best is None or position - start < best[0]):
                best = (position - start, start)
            start = begin
        position = stop
    if position != end:
        if position - start >= size and (best is None or position - start < best[0]):
            best = (position - start, start)
        start = end
    # A gap at the end can grow with the arena, but a gap inside that is big enough is better.
    if best is not None and end - start >= size:
        return min(best, (end - start, start))[1]
    return start if best is None else best[1]


def most_alive(lives: Iterable[tuple[int, int, int]]) -> int:
    """Return the peak number of live bytes. Values are given as (first user, last user, bytes)."""
    change: dict[int, int] = {}
    for first, last, nbytes in lives:
        change[first] = change.get(first, 0) + nbytes
        change[last + 1] = change.get(last + 1, 0) - nbytes
    return max(itertools.accumulate(change[at] for at in sorted(change)), default=0)
