"""Cache blocking: sums stay in a local array while blocks of their operands are read.

A contraction that keeps its sums in registers reads its whole depth (the summed axis) for each
tile. If its reads then jump from page to page, this pass keeps the sums of a block of results in a
LOCAL instead. Each part of the depth is added to all of these sums (output-stationary). So if a
matrix is multiplied by few rows, or if its columns are summed, it is read from start to end. If
both operands are large, parts of both are copied, so that they stay in the cache. Each sum adds its
terms in the order of the depth. A long sum first sums parts, and then adds the sums of the parts.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt.device.spec import TLB_PAGES
from kernelrt.ir.local import BLOCK_BYTES, LOCAL_BYTES, flat_index, local_bytes, local_itemsize
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.uop import UOp, toposort
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.passes.pack_operands import (
    ROWS,
    Contraction,
    contraction,
    free_number,
    gains,
    moved,
    new_range,
    stored_along,
)
from kernelrt.loops.passes.prefetch_streams import streams
from kernelrt.loops.tiles import extent, is_fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = ["around_rows", "block", "outside"]


class _Sizes(NamedTuple):
    """Rows and columns of a block, and the part of the depth that is copied at a time."""

    rows: int
    columns: int
    part: int


#: The least and most columns of a strip of a streamed matrix, whose sums are in one array. Of 256,
#: 512, 1024 and 2048 columns, 1024 are fastest for 1, 8 and 16 rows times a matrix of 4096 x 4096
#: (`python -m bench.report products`). A strip is narrower if the sums of all rows would take more
#: than a quarter of the L1 cache.
STRIP: Final = (256, 1024)
#: The least number of strips, so that cores can share them.
STRIPS: Final = 4
#: The least and most elements of a part of a long depth. Each part is summed before it is added to
#: the total: both levels of the sum are short, so that it rounds less. The second level takes no
#: measurable time.
PARTS: Final = (32, 512)
#: Unroll factor of the depth in a tile.
UNROLLED: Final = 4
#: The most rows and columns of a block of results, and the most depth that is copied at a time. The
#: first entry for which a block fits the memory is used; a block may have half of each number. A
#: block of 256 by 256 copies half as much as four blocks of 128 by 128: transposed products of 1024
#: to 2048 take 6 to 8% less time, and 3 to 5% less with 128 by 256.
SIDES: Final = (
    _Sizes(256, 256, 128), _Sizes(128, 256, 128), _Sizes(128, 128, 128), _Sizes(64, 64, 64),
)  # fmt: skip
#: The least number of large blocks along the side that has more of them, so that cores can share
#: them. For 1024 rows, four blocks of 256 rows would take 5% less time, but leave more cores idle.
SHARED: Final = 6
#: Rows of a panel. 16 rows are several tiles of a product, and a cache line. 4 rows are a single
#: tile; they are only tried if there is no memory for a panel of the whole depth, since such panels
#: are faster for 100 or 1000 rows.
PANEL: Final = (16, 4)
#: The least number of panels of the whole depth that must fit the memory, or blocks are used
#: instead. With a single panel, a tile is one vector wide and up to 16 rows high, so it reads more
#: lines than a set of the L1 cache holds. For products 256 to 4096 deep, with 32 to 512 rows,
#: blocks take up to a quarter longer than panels if there is memory for two panels. If there is
#: not, panels take 1.3 to 2.7 times as long as blocks (`python -m bench.report products`).
LEAST_PANELS: Final = 2
#: The number of rows from which on panels pay although each line of a panel is on a page of its own
#: and misses the TLB. With blocks, 32 rows times 4096 x 4096 take 0.72 of the time (AVX2), and 32
#: rows times 2048 x 4096 take 0.77 (AVX-512) or 0.92 of it (AVX2). 128 rows take 0.84 to 1.1 of it
#: (Zen 4).
FAR_ROWS: Final = 128


def block(sink: UOp, target: DeviceSpec) -> UOp:
    """Return the kernel `sink` with its sums in a LOCAL, if it gains from cache blocking."""
    info = Analysis(sink)
    found = contraction(info)
    if found is None:
        return _columns(info, sink, target)
    if found.factor is found.value:
        return sink
    if found.rows < ROWS:
        return _strips(info, sink, found.reduce, found.load, found.columns, target)
    return _blocks(info, sink, found, target)


def _divisor(size: int, step: int, bounds: tuple[int, int]) -> int | None:
    """Return the greatest divisor of `size` within `bounds` that is a multiple of `step`."""
    least, most = bounds
    parts = (n for n in range(most // step * step, least - 1, -step) if size % n == 0)
    return next(parts, None)


def _first(size: int, steps: Sequence[int], bounds: tuple[int, int]) -> int | None:
    """Return :func:`_divisor` for the first of `steps` for which there is one."""
    return next((n for step in steps if (n := _divisor(size, step, bounds))), None)


# A streamed matrix ------------------------------------------------------------------------------


def _columns(info: Analysis, sink: UOp, target: DeviceSpec) -> UOp:
    """Return `sink` in strips if it is a reduction over the columns of a streamed matrix."""
    if len(info.passes) != 1 or len(info.reduces) != 1 or any(s.arg for s in sink.src):
        return sink
    [reduce] = info.reduces
    loads = info.loads(reduce.src[0])
    plain = all(x.src[0].op is Op.PARAM and len(x.src) == 2 for x in loads)
    columns = stored_along(info, reduce)
    if columns is None or not plain or any(u.op is Op.BOUND for u in toposort(loads)):
        return sink
    ranges = (columns, *reduce.src[1:])
    load = next((x for x in loads if streams(x, columns, reduce.src[1:], target)), None)
    if load is None or not all(map(is_fixed, ranges)):
        return sink
    return _strips(info, sink, reduce, load, columns, target)


def _strips(
    info: Analysis, sink: UOp, reduce: UOp, load: UOp, columns: UOp, target: DeviceSpec
) -> UOp:
    """Return `sink` with the sums of a strip of columns in a LOCAL, to which each row is added.

    Return `sink` itself if the sizes do not fit.
    """
    depth = reduce.src[1:]
    rows = sorted(info.deps[reduce] - info.deps[load], key=lambda r: int(r.arg))
    lanes = target.lanes(local_itemsize(reduce.dtype))
    few = math.prod(map(extent, rows))
    held = target.l1_bytes // 4 // (local_itemsize(reduce.dtype) * few)
    most = min(STRIP[1], extent(columns) // STRIPS, max(STRIP[0], held))
    width = _divisor(extent(columns), lanes, (STRIP[0], most))
    if width is None or few >= ROWS or not all(map(is_fixed, rows)):
        return sink
    if not streams(load, columns, depth, target):
        return sink
    free = itertools.count(free_number(sink))
    strip = new_range(extent(columns) // width, int(columns.arg))
    sizes = (*map(extent, rows), width)
    *own, inside = (new_range(size, next(free)) for size in sizes)
    column = new_range(width, next(free))
    if local_bytes(reduce.dtype, (*own, inside)) > min(target.l1_bytes, LOCAL_BYTES):
        return sink

    def at(ranges: Sequence[UOp]) -> dict[UOp, UOp]:
        return {columns: strip * width + ranges[-1], **dict(zip(rows, ranges, strict=False))}

    long = extent(depth[-1]) > PARTS[1] and reduce.arg is Op.ADD and reduce.dtype.is_float
    part = _divisor(extent(depth[-1]), 1, PARTS) if long else None
    if part is None:
        fold = moved(reduce, at((*own, inside)))
    else:
        *before, last = depth
        outer = new_range(extent(last) // part, int(last.arg))
        step = new_range(part, next(free))
        short = [new_range(size, next(free)) for size in sizes]
        value = moved(reduce.src[0], {**at(short), last: outer * part + step})
        sums = UOp(Op.LOCAL, reduce.dtype, (reduce.replace(src=(value, step)), *short))
        one = UOp(Op.LOAD, reduce.dtype, (sums, flat_index((*own, inside))))
        fold = reduce.replace(src=(one, *before, outer))
    sums = UOp(Op.LOCAL, reduce.dtype, (fold, *own, inside))
    total = UOp(Op.LOAD, reduce.dtype, (sums, flat_index((*rows, column))))
    [sink] = substitute([sink], {reduce: total})
    return moved(sink, {columns: strip * width + column})


# Two large operands -----------------------------------------------------------------------------


class _Side(NamedTuple):
    """One side of a block of results.

    Attributes
    ----------
    before : UOp
        The RANGE that is split into blocks.
    block, panel, inside : UOp
        The RANGEs that replace `before` where sums are computed: one over blocks, one over the
        panels of a block, and one over the elements of a panel.
    width : int
        Elements of a panel.
    """

    before: UOp
    block: UOp
    panel: UOp
    inside: UOp
    width: int

    @property
    def size(self) -> int:
        """Number of elements of a block."""
        return extent(self.panel) * self.width

    def start(self) -> UOp:
        """Return the index of the first element of the block."""
        return self.block * self.size


def _sizes(row: UOp, found: Contraction, target: DeviceSpec) -> _Sizes | None:
    """Return the largest block that fits half of the L2 cache and the stack; None if none does."""
    widths = [local_itemsize(x.dtype) for x in (found.reduce, found.factor, found.value)]
    for most in SIDES:
        least = min(most.rows // 2, max(ROWS, extent(row)))
        high = _first(
            extent(row), PANEL[: 1 if _panels_fit(found, target) else 2], (least, most.rows)
        )
        lanes = target.lanes(widths[0])
        wide = _divisor(extent(found.columns), lanes, (most.columns // 2, most.columns))
        part = _first(extent(found.depth[-1]), (UNROLLED, 1), (most.part // 2, most.part))
        if high and wide and part:
            blocks = max(extent(row) // high, extent(found.columns) // wide)
            if blocks < SHARED and most in SIDES[:2]:
                continue
            nbytes = widths[0] * high * wide + widths[1] * high * part + widths[2] * wide * part
            if nbytes <= min(BLOCK_BYTES, target.l2_bytes // 2):
                return _Sizes(high, wide, part)
    return None


def _blocks(info: Analysis, sink: UOp, found: Contraction, target: DeviceSpec) -> UOp:
    """Return `sink` in blocks of results, with the operands of a block copied to panels."""
    reduce = found.reduce
    row = _row(info, found, target)
    sizes = None if row is None else _sizes(row, found, target)
    if row is None or sizes is None:
        return sink
    lanes = target.lanes(local_itemsize(reduce.dtype))
    free = itertools.count(free_number(sink))
    rows = _side(row, sizes.rows, math.gcd(sizes.rows, PANEL[0]), free)
    columns = _side(found.columns, sizes.columns, lanes, free)
    depth = found.depth[-1]
    outer = new_range(extent(depth) // sizes.part, int(depth.arg))
    step = new_range(sizes.part, next(free))
    panels = {
        found.factor: _panels(found.factor, rows, (depth, outer, step), free),
        found.value: _panels(found.value, columns, (depth, outer, step), free),
    }
    [value] = substitute([reduce.src[0]], panels)
    fold = reduce.replace(src=(value, *found.depth[:-1], outer, step))
    own = (columns.panel, rows.panel, rows.inside, columns.inside)
    sums = UOp(Op.LOCAL, reduce.dtype, (fold, *own))
    # The stores go row by row.
    line, panel, column = (
        new_range(size, next(free)) for size in (rows.size, extent(columns.panel), lanes)
    )
    total = UOp(Op.LOAD, reduce.dtype, (sums, flat_index((panel, line, column))))
    [sink] = substitute([sink], {reduce: total})
    replacements = {
        rows.before: rows.start() + line,
        columns.before: columns.start() + panel * lanes + column,
    }
    return moved(sink, replacements)


def _row(info: Analysis, found: Contraction, target: DeviceSpec) -> UOp | None:
    """Return the RANGE of the other operand's rows if blocks of results save time, else None.

    Blocks save time in three cases. First, memory is contiguous along the rows, and the lines read
    along the depth evict each other from the L2 cache, so that neighboring rows fetch them again.
    Second, packing saves time, but there is no memory for the panels of the whole depth that a tile
    needs. Third, packing saves time, but the panels are far apart in memory.
    """
    x, depth = found.other, found.depth[-1]
    if x.src[0].op is not Op.PARAM or any(u.op is Op.BOUND for u in toposort([x])):
        return None
    own = sorted(info.deps[x] - info.deps[found.load], key=lambda r: int(r.arg))
    inner = {info.stride(found.load, found.columns), info.stride(found.load, depth)}
    steps = [info.stride(x, r) for r in found.depth]
    if 1 not in inner or None in steps or not steps[-1]:
        return None
    fixed = [r for r in own if is_fixed(r)]
    contiguous = next((r for r in fixed if info.stride(x, r) == 1), None)
    if contiguous is not None and target.evicts(extent(depth), abs(steps[-1]) * x.dtype.itemsize):
        return contiguous
    # The panels of a block serve the rows of that block alone.
    many = [r for r in fixed if extent(r) >= ROWS]
    fit = _panels_fit(found, target) >= LEAST_PANELS and not _is_far(info, found)
    return max(many, key=extent) if many and not fit and gains(info, found, target) else None


def _is_far(info: Analysis, found: Contraction) -> bool:
    """Return whether few rows use a panel of the whole depth, and copying it misses the TLB."""
    long = extent(found.depth[-1]) >= TLB_PAGES
    return long and found.rows < FAR_ROWS and found.changes_pages(info)


def _panels_fit(found: Contraction, target: DeviceSpec) -> int:
    """Return how many panels of the whole depth fit in memory."""
    lanes = target.lanes(local_itemsize(found.value.dtype))
    panel = lanes * local_bytes(found.value.dtype, found.depth)
    return LOCAL_BYTES // max(1, panel) if panel <= target.panel_bytes else 0


def _side(before: UOp, size: int, width: int, free: Iterator[int]) -> _Side:
    blocks = new_range(extent(before) // size, int(before.arg))
    panel, inside = (new_range(n, next(free)) for n in (size // width, width))
    return _Side(before, blocks, panel, inside, width)


def _panels(x: UOp, side: _Side, walked: tuple[UOp, UOp, UOp], free: Iterator[int]) -> UOp:
    """Return `x` as a LOAD from a copy of one part of the depth, whose panels are contiguous."""
    depth, outer, step = walked
    own = tuple(new_range(extent(r), next(free)) for r in (side.panel, step, side.inside))
    panel, line, inside = own
    replacements = {
        side.before: side.start() + panel * side.width + inside,
        depth: outer * extent(step) + line,
    }
    held = UOp(Op.LOCAL, x.dtype, (moved(x, replacements), *own))
    return UOp(Op.LOAD, x.dtype, (held, flat_index((side.panel, step, side.inside))))


def outside(info: Analysis, target: DeviceSpec) -> tuple[UOp, ...]:
    """Return the RANGEs of REDUCEs that go around the loops of the local arrays that they fill.

    The sums may read another local array. Then the RANGEs up to the last one that this array varies
    with go around, so that each part of the array is filled once and used for all sums. If the sums
    read a matrix that streams from memory, all RANGEs of the sums go around.
    """
    found: list[UOp] = []
    for array in info.locals:
        fold = array.src[0]
        alone = [array, fold] == [
            u for node in (array, fold) for u in info.passes.get(node.src[1:], ())
        ]
        if fold.op is not Op.REDUCE or not alone or not all(map(is_fixed, array.src[1:])):
            continue
        loads = info.loads(fold.src[0])
        filled = info.deps_of(x.src[0] for x in loads if x.src[0].op is Op.LOCAL)
        if any(streams(x, array.src[-1], fold.src[1:], target) for x in loads):
            filled = frozenset(fold.src[1:])
        last = max((i for i, r in enumerate(fold.src[1:], 1) if r in filled), default=0)
        found += fold.src[1 : 1 + last]
    return tuple(found)


def around_rows(info: Analysis, outside: tuple[UOp, ...]) -> frozenset[UOp]:
    """Return the RANGEs around arrays that accumulate products of rows computed by the kernel."""
    found = []
    for array in info.locals:
        fold = array.src[0]
        if fold.op is Op.REDUCE and any(r in outside for r in fold.src[1:]):
            read = [x.src[0] for x in info.loads(fold.src[0]) if x.src[0].op is Op.LOCAL]
            if any(info.closing([held.src[0]]) for held in read):
                found.append(array)
    return info.deps_of(found)
