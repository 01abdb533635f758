"""Places for intermediates in one block of memory."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import TYPE_CHECKING

from kernelrt.device.allocator import ALIGNMENT
from kernelrt.schedule.types import Intermediate, Part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kernelrt.schedule.types import Item


__all__ = ["most_alive", "plan_arena"]

#: Above this many items the closure of the order would take too much memory, and bytes are
#: reused only after an item's direct dependencies.
_CLOSURE_LIMIT = 8192


#: Bytes handed out: start, stop, and, as bits, the items that use them last.
_Block = tuple[int, int, int]


def plan_arena(
    items: Sequence[Item],
    deps: Sequence[Sequence[int]],
    keep: Collection[Intermediate],
    *,
    reuse: bool = True,
) -> tuple[dict[Intermediate, int], int]:
    """Byte offsets of the intermediates that `items` use, and the bytes needed in all.

    Bytes pass from one intermediate to another only when the dependencies alone make every
    item that touches the first run before the item that first writes the second. So items may
    run in any order, or at once, as far as the dependencies allow.

    Parameters
    ----------
    items : sequence of Item
        In execution order.
    deps : sequence of sequence of int
        For each item, the items it waits for.
    keep : collection of Intermediate
        Left out: they have storage of their own.
    reuse : bool
        Whether bytes may serve several intermediates.
    """
    users: dict[Intermediate, list[int]] = {}
    for number, item in enumerate(items):
        for holder in _touched(item, keep):
            users.setdefault(holder, []).append(number)
    before = _closure(deps) if reuse else []
    offsets: dict[Intermediate, int] = {}
    everyone = (1 << len(items)) - 1
    blocks: list[_Block] = []
    total = 0
    for holder in sorted(users, key=lambda h: users[h][0]):
        size = -(-max(holder.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        open_users = everyone ^ before[users[holder][0]] if reuse else 0
        start = _fit(size, blocks, open_users, total)
        offsets[holder] = start
        used = sum(1 << n for n in set(users[holder])) if reuse else 0
        _claim(blocks, (start, start + size, used))
        total = max(total, start + size)
    return offsets, total


def _touched(item: Item, keep: Collection[Intermediate]) -> list[Intermediate]:
    """Intermediates that `item` reads or writes, those in `keep` left out."""
    out: dict[Intermediate, None] = {}
    for buffer in (*item.ins, *item.outs):
        holder = buffer.arg.base.arg if isinstance(buffer.arg, Part) else buffer.arg
        if isinstance(holder, Intermediate) and holder not in keep:
            out[holder] = None
    return list(out)


def _closure(deps: Sequence[Sequence[int]]) -> list[int]:
    """For each item, the set of items that always run before it, as bits."""
    out: list[int] = []
    small = len(deps) <= _CLOSURE_LIMIT
    for before in deps:
        bits = 0
        for d in before:
            bits |= 1 << d
            if small:
                bits |= out[d]
        out.append(bits)
    return out


def _claim(blocks: list[_Block], new: _Block) -> None:
    """Put `new` among `blocks` (sorted), over those that it follows; the rest of them stays.

    Whoever comes after the users of `new` comes after theirs, so the covered part is forgotten.
    """
    start, stop, _ = new
    first = bisect_left(blocks, (start,))
    if first and blocks[first - 1][1] > start:
        first -= 1
    last = bisect_left(blocks, (stop,))
    kept = [new]
    if first < last:
        low, high = blocks[first], blocks[last - 1]
        if low[0] < start:
            kept.insert(0, (low[0], start, low[2]))
        if high[1] > stop:
            kept.append((stop, high[1], high[2]))
    blocks[first:last] = kept


def _fit(size: int, blocks: Sequence[_Block], open_users: int, end: int) -> int:
    """Offset of the tightest gap of at least `size` bytes between `blocks` (sorted) still in use.

    A block is in use while it has one of `open_users`; with no users at all it is for good.
    """
    best: tuple[int, int] | None = None
    position = 0
    for start, stop, users in blocks:
        if users and not users & open_users:
            continue
        gap = start - position
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, position)
        position = stop
    # Behind the last block the arena may grow; a gap inside it is better.
    if best is not None and end - position >= size:
        return min(best, (end - position, position))[1]
    return position if best is None else best[1]


def most_alive(lives: Iterable[tuple[int, int, int]]) -> int:
    """The most bytes that are alive at once, of what has a first user, a last one, and bytes."""
    change: dict[int, int] = {}
    for first, last, nbytes in lives:
        change[first] = change.get(first, 0) + nbytes
        change[last + 1] = change.get(last + 1, 0) - nbytes
    return max(itertools.accumulate(change[at] for at in sorted(change)), default=0)
