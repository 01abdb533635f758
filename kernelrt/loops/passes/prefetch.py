"""Software prefetch for stores, windows and following tiles.

The address of a prefetch is in an argument, and its index contains only loops that are open at the
prefetch. `prefetch_streams.py` prefetches the rows of a single loop.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.spec import LINE
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import const
from kernelrt.loops.analysis import CLOSING, stride
from kernelrt.loops.passes.prefetch_streams import LONGEST_STRIDE, is_beyond, is_plain
from kernelrt.loops.tiles import ONE, extent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiles import Tile

__all__ = [
    "MOST_LINES", "WORTH_A_LINE", "Tiled", "begin_of_share", "direct_loads", "is_known",
    "next_parts", "points_of", "read_after", "read_next", "tiled", "touched_late",
]  # fmt: skip

#: The least number of vectors of products for each prefetched line, so that prefetching costs
#: nothing.
_WORTH: Final = 64
#: The same limit for lines that stall without prefetch. A line takes as long to arrive from the
#: last-level cache as some twenty vectors of products take to compute. With this lower limit,
#: training steps of ResNet-8 take 3% less time (`python -m bench.report models`).
WORTH_A_LINE: Final = 16
#: The most lines that are prefetched in one place.
MOST_LINES: Final = 16


def direct_loads(info: Analysis, value: UOp) -> list[UOp]:
    """Return the LOADs of `value`; none for a REDUCE or LOCAL, whose LOADs are in its own loops."""
    return [] if value.op in CLOSING else list(info.loads(value))


def is_known(x: UOp) -> bool:
    """Return whether `x` reads an argument at an index of only loop indices and Variables."""
    return x.src[0].op is Op.PARAM and len(x.src) == 2 and is_plain(x.src[1])


def touched_late(
    info: Analysis, stores: Sequence[UOp], innermost: UOp, device: DeviceSpec
) -> tuple[UOp, ...]:
    """Return the LOADs and STOREs of `stores` to prefetch before their values are computed.

    They access buffers larger than the L1 cache, and other elements in each iteration of the loop
    over `innermost`.
    """
    found: dict[tuple[UOp, UOp], UOp] = {}
    values = [s.src[2] for s in stores if s.src[2] not in info.reduces]
    loads = info.loads(*values)
    for access in (*stores, *loads):
        param, index = access.src[:2]
        if param.op is not Op.PARAM or (access.op is Op.LOAD and len(access.src) > 2):
            continue
        deps = info.deps_of([index])
        large = param.arg[1] * param.dtype.itemsize > device.l1_bytes
        known = is_plain(index) and None not in {stride(index, r) for r in deps}
        if large and known and innermost in deps:
            found.setdefault((param, index), access)
    return tuple(found.values())


def read_next(
    info: Analysis,
    values: Sequence[UOp],
    opened: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """Return LOADs of elements that the sums of `values` first read in the next iteration.

    The next iteration is that of the innermost enclosing loop. For example, when the window of a
    convolution moves by one column, most of its elements were read before, so only the new column
    is prefetched. Each iteration of the outermost loop of the sums prefetches the returned LOADs.

    Parameters
    ----------
    info : Analysis
        The kernel.
    values : sequence of UOp
        Terms of the sums.
    opened : sequence of UOp
        RANGEs of the enclosing loops, outermost first.
    closed : sequence of UOp
        RANGEs of the sums, outermost first.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    device : DeviceSpec
        The target. Buffers that fit its L2 cache are not prefetched.
    """

    def trips(r: UOp) -> int:
        return -(-extent(r) // tiles.get(r, ONE).factor)

    around = [r for r in opened if trips(r) > 1]
    if not around or trips(closed[0]) < 2:
        return ()
    points = points_of(info, values, opened, tiles)
    inner = math.prod(extent(c) for c in closed[1:]) * tiles.get(closed[0], ONE).factor
    found = []
    for x in dict.fromkeys(x for value in values for x in direct_loads(info, value)):
        if not is_known(x) or not is_beyond(x, device):
            continue
        read = _first_read(info, x, around, closed, tiles)
        if read is None:
            continue
        lines = math.prod(
            tiles.get(r, ONE).factor
            for r in info.deps[x] & set(opened)
            if abs(stride(x.src[1], r) or 0) * x.dtype.itemsize >= LINE
        )
        if lines * _WORTH <= points * inner:
            found.append(read)
    return tuple(found)


def points_of(
    info: Analysis, values: Sequence[UOp], opened: Sequence[UOp], tiles: Mapping[UOp, Tile]
) -> int:
    """Return how many points a tile has over the loops `opened` with which `values` vary."""
    return math.prod(
        len(tiles.get(r, ONE).positions()) for r in info.deps_of(values) & set(opened)
    )


def _first_read(
    info: Analysis,
    x: UOp,
    around: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
) -> UOp | None:
    """Return the LOAD `x` at its index one iteration of the innermost loop later.

    Return None if `x` does not read a window that this loop moves.
    """
    first, last = closed[0], around[-1]
    deps = info.deps[x]
    steps = {r: stride(x.src[1], r) for r in deps}
    if not {first, last} <= deps or None in steps.values():
        return None
    moves = {abs(steps[r] or 0): steps[r] or 0 for r in around if r in deps}
    if abs(steps[first] or 0) in moves:
        return None
    replacements = {last: last + tiles.get(last, ONE).factor}
    for c in closed[1:]:
        if c not in deps:
            continue
        step = steps[c] or 0
        if abs(step) not in moves:
            return None
        forward = (step > 0) == (moves[abs(step)] > 0)
        replacements[c] = const(extent(c) - 1 if forward else 0, c.dtype)
    if len(replacements) == 1:
        return None
    [index] = substitute([x.src[1]], replacements)
    return x.replace(src=(x.src[0], simplify(index)))


def read_after(
    info: Analysis,
    values: Sequence[UOp],
    opened: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """Return LOADs of elements that the sums of `values` first read in the next tile.

    They are prefetched row by row, while the rows of this tile are read. For example, the gradient
    of a filter is a sum over images, and each tile reads other channels of the images, in runs too
    short for hardware prefetchers.

    Parameters
    ----------
    info : Analysis
        The kernel.
    values : sequence of UOp
        Terms of the sums.
    opened : sequence of UOp
        RANGEs of the enclosing loops, outermost first, within one chunk.
    closed : sequence of UOp
        RANGEs of the sums, outermost first. The last goes along a row. Each iteration of the last
        but one prefetches a row.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    device : DeviceSpec
        The target. Buffers that fit its L2 cache are not prefetched.
    """
    if len(closed) < 2 or tiles.get(closed[-2], ONE).factor > 1:
        return ()
    vectors = -(-extent(closed[-1]) // tiles.get(closed[-1], ONE).lanes)
    most = points_of(info, values, opened, tiles) * vectors // WORTH_A_LINE
    found: list[UOp] = []
    for x in dict.fromkeys(x for value in values for x in direct_loads(info, value)):
        if is_known(x) and is_beyond(x, device) and set(closed[-2:]) <= info.deps[x]:
            found += _row_after(info, x, opened, closed, tiles, min(most, MOST_LINES))
    return tuple(found)


def _row_after(
    info: Analysis,
    x: UOp,
    opened: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    most: int,
) -> list[UOp]:
    """Return LOADs of the cache lines that `x` reads in the next tile.

    They are the lines of one iteration of the loop over `closed[-2]`. The list is empty if there
    are more than `most`.
    """
    row, along = closed[-2:]
    steps = {r: stride(x.src[1], r) for r in info.deps[x]}
    if None in steps.values() or min(steps[row] or 0, steps[along] or 0) <= 0:
        return []
    far = {r: abs(step or 0) for r, step in steps.items()}
    around = [r for r in opened if extent(r) > tiles.get(r, ONE).factor]
    # The innermost loop whose tiles have rows of their own.
    last = next((r for r in reversed(around) if r in far and _is_far(r, far)), None)
    if last is None or far[last] <= far[row]:
        return []
    line = LINE // x.dtype.itemsize
    lines = -(-min(far[row], _reach(row, far)) // line)
    within = tiled(around[around.index(last) + 1 :], tiles)
    lines = -(-lines // math.prod(loop.trips for loop in within))
    begins = begin_of_share(within, lines * line)
    if begins is None:
        return []
    factor = tiles.get(last, ONE).factor
    if factor * lines > most:
        return []
    # With sliding windows, one tap prefetches each row.
    at = {r: const(0, r.dtype) for r in opened if far.get(r, 0) < far[last]}
    at[along] = const(0, along.dtype)
    found = []
    for offset, number in itertools.product(range(factor), range(lines)):
        [index] = substitute([x.src[1]], {**at, last: last + (factor + offset)})
        found.append(x.replace(src=(x.src[0], simplify(index + begins + number * line))))
    return found


def _reach(r: UOp, far: Mapping[UOp, int]) -> int:
    """Return the number of elements from the first to the last one of an iteration of loop `r`.

    Both are included.
    """
    return 1 + sum((extent(q) - 1) * far[q] for q in far if q is not r and far[q] <= far[r])


def _is_far(r: UOp, far: Mapping[UOp, int]) -> bool:
    """Return whether iterations of the loop over `r` read disjoint elements."""
    beyond = (far[q] for q in far if far[q] > far[r])
    return _reach(r, far) <= far[r] and all(far[r] * extent(r) <= step for step in beyond)


class Tiled(NamedTuple):
    """A loop over tiles: its RANGE, the elements of a tile, and the number of tiles."""

    range: UOp
    factor: int
    trips: int


def tiled(ranges: Sequence[UOp], tiles: Mapping[UOp, Tile]) -> list[Tiled]:
    """Return, for each of `ranges`, the loop over its tiles."""
    found = ((r, tiles.get(r, ONE).factor) for r in ranges)
    return [Tiled(r, factor, -(-extent(r) // factor)) for r, factor in found]


def begin_of_share(loops: Sequence[Tiled], share: int) -> UOp | None:
    """Return the offset at which the share of each iteration of `loops` begins, or None.

    Each iteration of the nested `loops` (outermost first) prefetches `share` elements. The result
    is None if `share` is not a multiple of a tile's size.
    """
    total: UOp | None = None
    for loop in reversed(loops):
        if share % loop.factor:
            return None
        term = loop.range * (share // loop.factor)
        total = term if total is None else total + term
        share *= loop.trips
    return const(0, dt.int64) if total is None else total


def next_parts(
    info: Analysis,
    fold: UOp,
    around: Sequence[UOp],
    own: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """Return LOADs that prefetch, in the tiles of one iteration, the part that the next one copies.

    If the rows of a matrix are pages apart, a copy of a part of it waits for each cache line. The
    products that are computed from the copy leave memory idle. So each tile of the products
    prefetches its share of the lines of the next part.

    Parameters
    ----------
    info : Analysis
        The kernel.
    fold : UOp
        A REDUCE that reads copies (LOCALs) and accumulates in an array.
    around : sequence of UOp
        The RANGEs of `fold` that go around the loops of the array. Each iteration of the last makes
        new copies.
    own : sequence of UOp
        The RANGEs of the array, outermost first.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    device : DeviceSpec
        The target. Buffers that fit its L2 cache are not prefetched.

    Returns
    -------
    tuple of UOp
        LOADs at indices that depend on the tile; empty if the tiles do not divide the lines evenly.
    """
    loops = tiled(own, tiles)
    several = [loop for loop in loops if loop.trips > 1]
    if not several or any(extent(r) % factor for r, factor, _ in loops):
        return ()
    inner = math.prod(extent(r) for r in fold.src[1:] if r not in around)
    vectors = inner * math.prod(len(tiles.get(r, ONE).positions()) for r in own)
    found: list[UOp] = []
    for held in dict.fromkeys(x.src[0] for x in info.loads(fold.src[0])):
        if held.op is not Op.LOCAL or around[-1] not in info.deps[held]:
            continue
        for x in direct_loads(info, held.src[0]):
            if is_known(x) and is_beyond(x, device):
                found += _shares(x, around[-1], held.src[1:], several)
    return tuple(found) if len(found) * WORTH_A_LINE <= vectors else ()


def _shares(
    x: UOp, iterated: UOp, own: Sequence[UOp], loops: Sequence[Tiled]
) -> list[UOp]:
    """Return LOADs of the lines that one tile prefetches for a copy that reads `x` over `own`.

    The copy is that of the next iteration of `iterated`. Of `loops`, the last goes along rows, the
    others from row to row.
    """
    steps = {r: stride(x.src[1], r) for r in (*own, iterated)}
    if None in steps.values():
        return []
    run, rows, row_stride = 1, 1, 0
    for r in sorted(own, key=lambda r: abs(steps[r] or 0)):
        step = steps[r] or 0
        if rows == 1 and step == run:
            run *= extent(r)
        elif rows == 1 or step == row_stride * rows:
            row_stride, rows = (step if rows == 1 else row_stride), rows * extent(r)
        else:
            return []
    line = LINE // x.dtype.itemsize
    *outer, inner = loops
    of_run, rest = divmod(run, line * inner.trips)
    of_rows, left = divmod(rows, math.prod(loop.trips for loop in outer))
    if rest or left or row_stride * x.dtype.itemsize < LONGEST_STRIDE:
        return []
    begins = begin_of_share([inner], of_run * line)
    row = begin_of_share(outer, of_rows * row_stride)
    if begins is None or row is None:
        return []
    replacements = {iterated: iterated + 1, **{r: const(0, r.dtype) for r in own}}
    [start] = substitute([x.src[1]], replacements)
    return [
        x.replace(src=(x.src[0], simplify(start + begins + row + (n * row_stride + number * line))))
        for n in range(of_rows)
        for number in range(of_run)
    ]
