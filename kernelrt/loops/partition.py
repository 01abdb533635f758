"""Work partitioning: how a kernel is divided into chunks that may run in parallel."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelrt.loops.tiles import extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiling import Tiling

__all__ = ["MOST_CHUNKS", "split"]

#: Chunks that a kernel has at most; shapes alone decide how many, never the machine's cores.
MOST_CHUNKS = 64
#: Cycles of a chunk for each element that it computes again: at a cycle for one, an eighth of its
#: work.
MOST_AGAIN = 8
#: Chunks of the outermost loop that are enough, where an inner one has more: dividing that, each
#: chunk goes through all that the outer loop does, and reads it again.
ENOUGH = 8
#: Of fewer chunks than this there may be one more, where two cores are done sooner then: three
#: take them as long as four of the same size. A product of 784 x 128 x 128 takes 50 us so, and 65
#: with three (`python -m bench.report products`).
FEW = 8


def split(info: Analysis, tiling: Tiling, cycles: float, chunk: float) -> Tiling:
    """Divide a kernel of `cycles` into chunks of `chunk`, along the store range with most tiles."""
    if any(s.arg is not None for s in info.sink.src) or not tiling.order:
        return tiling
    wanted = min(MOST_CHUNKS, int(cycles / chunk))
    common = [r for r in tiling.order if all(r in info.deps[s.src[1]] for s in info.sink.src)]
    if wanted < 2 or not common:
        return tiling

    closers = {q: u for u in (*info.reduces, *info.locals) for q in u.src[1:]}

    def within(u: UOp) -> Iterator[frozenset[UOp]]:
        """What the REDUCEs and LOCALs vary with in whose loops `u` stands."""
        pending = [closers[q] for q in info.deps[u] if q in closers]
        while pending:
            outer = pending.pop()
            yield info.deps[outer]
            pending += [closers[q] for q in info.deps[outer] if q in closers]

    def tiles(r: UOp) -> int:
        return -(-extent(r) // tiling.tile(r).factor)

    def chunks(r: UOp) -> int:
        # A chunk computes again what stands outside of its loop.
        inside = set(tiling.order[tiling.order.index(r) :])
        again = [
            u for u in (*info.reduces, *info.locals)
            if not inside & info.deps[u] and not any(inside & around for around in within(u))
        ]
        filled = sum(math.prod(extent(q) for q in info.deps[u.src[0]]) for u in again)
        return min(tiles(r), int(cycles / (MOST_AGAIN * filled))) if filled else tiles(r)

    # Splitting the outermost loop keeps what the inner ones share in cache.
    outermost = tiling.order[0]
    enough = outermost in common and chunks(outermost) >= min(wanted, ENOUGH)
    r = outermost if enough else max(common, key=chunks)
    if chunks(r) < 2:
        return tiling
    share = _share(tiles(r), min(wanted, chunks(r))) * tiling.tile(r).factor
    return replace(tiling, chunked=r, share=share)


def _share(tiles: int, count: int) -> int:
    """Tiles of a chunk, where there are about `count`; of few, as many as two cores like best."""
    shares = [-(-tiles // count)]
    if count < FEW:
        shares.append(-(-tiles // (count + 1)))

    def longest(share: int) -> int:
        """Tiles of the core that has most of them."""
        chunks = -(-tiles // share)
        return (chunks + 1) // 2 * share

    return min(shares, key=lambda share: (longest(share), -share))
