"""Tiles of stores that the vectors of most elements leave out, and of copies that transpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.codegen.tiles import Tile, extent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.codegen.choosing import Chooser
    from kernelrt.ir.uop import UOp

__all__ = ["beside", "transposing"]


def beside(chooser: Chooser, stores: Sequence[UOp], along: UOp | None) -> None:
    """Vectors for stores that do not vary with `along`, as of the zeros around an image."""
    if along is None:
        return
    info = chooser.info
    for s in stores:
        deps = info.deps_of(s.src)
        r = chooser.store_vector([s])
        if r is None or along in deps or any(r in nest.ranges for nest in chooser.nests):
            continue
        if any(r in info.deps_of(x.src) for x in stores if x is not s):
            continue
        tile = next(chooser.store_tiles([s], r))
        if chooser.is_short({**chooser.tiles, r: tile}):
            chooser.tiles[r] = tile


def transposing(chooser: Chooser, stores: Iterable[UOp], along: UOp | None) -> None:
    """A strided load beside a contiguous store: unroll the range it is contiguous along."""
    if along is None:
        return
    info, accesses = chooser.info, chooser.accesses
    for s in stores:
        for x in info.loads(s.src[2]):
            step = accesses.stride(x, along)
            if step in (0, 1, None) or len(x.src) > 2:
                continue
            for r in sorted(info.deps[x], key=lambda r: int(r.arg)):
                if r is not along and accesses.stride(x, r) == 1 and extent(r) >= 4:
                    size = min(chooser.lanes, 1 << (extent(r).bit_length() - 1))
                    wide = min(chooser.lanes, extent(along))
                    block = {r: Tile(size, 1), along: Tile(wide, wide)}
                    if chooser.is_short({**chooser.tiles, **block}):
                        chooser.tiles.update(block)
                        chooser.order = [q for q in chooser.order if q is not r] + [r]
                    return
