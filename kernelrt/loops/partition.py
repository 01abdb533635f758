"""Work partitioning: divides a kernel into chunks that may run in parallel."""

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

#: The most chunks of a kernel. Their number depends on shapes alone, never on the machine's cores.
MOST_CHUNKS = 64
#: The least cycles of a chunk for each element that it recomputes. If an element takes one cycle,
#: recomputation is an eighth of the work.
MOST_AGAIN = 8
#: With this many chunks of the outermost loop, that loop is split even if an inner loop has more.
#: Each chunk of an inner loop runs the whole outer loop and reads its data again.
ENOUGH = 8
#: With fewer chunks than this, one more chunk is tried, if two cores then finish sooner: three
#: chunks take two cores as long as four chunks of the same size. A product of 784 x 128 x 128 takes
#: 50 us with four chunks, and 65 us with three (`python -m bench.report products`).
FEW = 8


def split(info: Analysis, tiling: Tiling, cycles: float, chunk: float) -> Tiling:
    """Return `tiling` with chunks of about `chunk` cycles, for a kernel of `cycles` cycles.

    The outermost RANGE of the stores is split if this gives enough chunks. Otherwise the RANGE is
    split that gives the most chunks.
    """
    if any(s.arg is not None for s in info.sink.src) or not tiling.order:
        return tiling
    wanted = min(MOST_CHUNKS, int(cycles / chunk))
    common = [r for r in tiling.order if all(r in info.deps[s.src[1]] for s in info.sink.src)]
    if wanted < 2 or not common:
        return tiling

    closers = {q: u for u in (*info.reduces, *info.locals) for q in u.src[1:]}

    def within(u: UOp) -> Iterator[frozenset[UOp]]:
        """Yield, for each REDUCE and LOCAL whose loops contain `u`, the RANGEs it varies with."""
        pending = [closers[q] for q in info.deps[u] if q in closers]
        while pending:
            outer = pending.pop()
            yield info.deps[outer]
            pending += [closers[q] for q in info.deps[outer] if q in closers]

    def tiles(r: UOp) -> int:
        return -(-extent(r) // tiling.tile(r).factor)

    def chunks(r: UOp) -> int:
        # Each chunk recomputes the REDUCEs and LOCALs outside of its loop.
        inside = set(tiling.order[tiling.order.index(r) :])
        again = [
            u for u in (*info.reduces, *info.locals)
            if not inside & info.deps[u] and not any(inside & around for around in within(u))
        ]
        filled = sum(math.prod(extent(q) for q in info.deps[u.src[0]]) for u in again)
        return min(tiles(r), int(cycles / (MOST_AGAIN * filled))) if filled else tiles(r)

    # Splitting the outermost loop keeps data that the inner loops share in the cache.
    outermost = tiling.order[0]
    enough = outermost in common and chunks(outermost) >= min(wanted, ENOUGH)
    r = outermost if enough else max(common, key=chunks)
    if chunks(r) < 2:
        return tiling
    share = _share(tiles(r), min(wanted, chunks(r))) * tiling.tile(r).factor
    return replace(tiling, chunked=r, share=share)


def _share(tiles: int, count: int) -> int:
    """Return how many of `tiles` tiles a chunk gets, for about `count` chunks.

    If there are few chunks, the result may give one more chunk, if two cores then finish sooner.
    """
    shares = [-(-tiles // count)]
    if count < FEW:
        shares.append(-(-tiles // (count + 1)))

    def longest(share: int) -> int:
        """Return how many tiles the busier of two cores computes."""
        chunks = -(-tiles // share)
        return (chunks + 1) // 2 * share

    return min(shares, key=lambda share: (longest(share), -share))
