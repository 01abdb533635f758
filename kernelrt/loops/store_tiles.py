"""Tiles for stores: vectorized along their contiguous RANGE or another, and transposed blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.device.spec import LINE
from kernelrt.ir.ops import ALU
from kernelrt.loops.tiles import WIDEST_STEP, Tile, extent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.tile_heuristic import Chooser

__all__ = [
    "cross_range", "shuffle_cycles", "tile_transposes", "value_cycles", "vectorize_invariant",
]  # fmt: skip

#: Cycles of an element that is loaded and inserted into its lane, or extracted and stored.
_SHUFFLE: Final = 3.0


def vectorize_invariant(chooser: Chooser, stores: Sequence[UOp], along: UOp | None) -> None:
    """Vectorize stores that do not vary with `along`, such as stores of zeros around an image."""
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


def tile_transposes(chooser: Chooser, stores: Iterable[UOp], along: UOp | None) -> None:
    """Tile a transposing copy: unroll the RANGE along which a strided load is contiguous.

    This changes a kernel only if its store is contiguous along `along`, and one of its loads is
    contiguous along another RANGE.
    """
    if along is None:
        return
    info, accesses = chooser.info, chooser.accesses
    for x in info.loads(*(s.src[2] for s in stores)):
        step = accesses.stride(x, along)
        if step in (0, 1, None) or len(x.src) > 2:
            continue
        for r in sorted(info.deps[x], key=lambda r: int(r.arg)):
            if r is not along and accesses.stride(x, r) == 1 and extent(r) >= 4:
                size = min(chooser.lanes, 1 << (extent(r).bit_length() - 1))
                lanes = min(chooser.lanes, extent(along))
                # Whole cache lines are stored: 1024 x 1024 takes 0.84 of the time (AVX2, Zen 4).
                line = max(1, LINE // (lanes * x.dtype.itemsize)) * lanes
                wide = line if line <= extent(along) else lanes
                block = {r: Tile(size, 1), along: Tile(wide, lanes)}
                # The remainders of a block that is innermost are written out in all other loops.
                before = chooser.order
                chooser.order = [q for q in before if q is not r] + [r]
                if chooser.is_short({**chooser.tiles, **block}):
                    chooser.tiles.update(block)
                else:
                    chooser.order = before
                return


def cross_range(chooser: Chooser, stores: Sequence[UOp], along: UOp | None) -> UOp | None:
    """Return a RANGE to vectorize if `along`, the stores' contiguous RANGE, is too short for that.

    Values are then computed in vectors along the returned RANGE, and elements are stored one by
    one. Examples are gradients of weights with few inputs, and probabilities of few classes.
    """
    info = chooser.info
    if info.locals or (along is not None and 2 * extent(along) > chooser.lanes):
        return None
    loads = [x for nest in chooser.nests for x in nest.loads]
    loads += info.loads(*(s.src[2] for s in stores))
    found = [
        r
        for r in chooser.order
        if r is not along
        and extent(r) >= chooser.lanes
        and all(r in info.deps_of(s.src) for s in stores)
        and any(_is_near(chooser, x, r) for x in loads)
    ]
    return max(found, key=extent, default=None)


def value_cycles(chooser: Chooser, stores: Sequence[UOp], along: UOp | None) -> float:
    """Return the cycles to compute the stored values in vectors along `along`, without sums."""
    info = chooser.info
    cycles = 0.0
    for u in info.order([s.src[2] for s in stores]):
        if u.op in ALU:
            times = float(math.prod(extent(r) for r in info.deps[u]))
            if along is not None and along in info.deps[u]:
                times /= min(chooser.lanes, extent(along))
            cycles += times * chooser.costs.vector(u.op, u.dtype)
    return cycles


def shuffle_cycles(chooser: Chooser, stores: Sequence[UOp], along: UOp) -> float:
    """Return the cycles to insert and extract elements that are not contiguous along `along`."""
    shuffled = 0
    for s in stores:
        reads = chooser.info.loads(s.src[2])
        strided = [x for x in reads if chooser.accesses.stride(x, along) != 0]
        strided = [x for x in strided if not _is_near(chooser, x, along)]
        strided += [s] if chooser.accesses.stride(s, along) != 1 else []
        shuffled += len(strided) * math.prod(extent(r) for r in chooser.info.deps_of(s.src))
    return _SHUFFLE * shuffled


def _is_near(chooser: Chooser, access: UOp, r: UOp) -> bool:
    """Return whether the lanes of `access` along `r` are loaded as one run."""
    step = chooser.accesses.stride(access, r)
    return step is not None and 1 <= abs(step) <= WIDEST_STEP
