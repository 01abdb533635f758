"""How a kernel is divided into chunks, which may run side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelrt.codegen.tiles import extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.codegen.analysis import Analysis
    from kernelrt.codegen.tiling import Tiling
    from kernelrt.ir.uop import UOp

__all__ = ["MOST_CHUNKS", "split"]

#: Chunks that a kernel has at most; shapes alone decide how many, never the machine's cores.
MOST_CHUNKS = 64
#: Cycles of a chunk for each element that it computes again: at a cycle for one, an eighth of its
#: work.
MOST_AGAIN = 8
#: Fewer chunks than this are an even number: three take two cores as long as four.
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
    enough = outermost in common and chunks(outermost) >= min(wanted, 16)
    r = outermost if enough else max(common, key=chunks)
    if chunks(r) < 2:
        return tiling
    count = min(wanted, chunks(r))
    if count % 2 and count < FEW:
        count = min(count + 1, tiles(r))
    share = -(-tiles(r) // count) * tiling.tile(r).factor
    return replace(tiling, chunked=r, share=share)
