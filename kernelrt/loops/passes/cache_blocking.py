"""Cache blocking: sums stay in a local array while their operands go by in blocks.

A contraction that keeps its sums in registers alone walks its whole depth for each tile. Where that
has it read memory in steps from page to page, the sums of a block of results are kept in a LOCAL
instead, and all of them are added to for each part of the depth: a matrix that is multiplied by few
rows, or whose columns are added up, is read from one end to the other, and of two large ones such
parts are copied as stay in the cache. The additions to each sum follow each other in the order of
the depth, those of a long one in parts.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

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
from kernelrt.loops.passes.prefetch_streams import LINE, streams
from kernelrt.loops.tiles import extent, is_fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = ["around_rows", "block", "outside"]


class _Sizes(NamedTuple):
    """Rows and columns of a block, and how much of the depth is copied at a time."""

    rows: int
    columns: int
    part: int


#: Columns of a matrix that streams by, for whose sums there is an array: of 256, 512, 1024 and 2048
#: the best for 1, 8 and 16 rows times a matrix of 4096 x 4096 (`python -m bench.report products`),
#: fewer where the sums of all rows would take more than a quarter of the first cache.
STRIP: Final = (256, 1024)
#: Strips that there should be, so that cores can share them.
STRIPS: Final = 4
#: How much of a longer depth adds up before it is added to the rest: of a sum in two levels both
#: are short, so that it rounds less, and the second one takes no time that shows.
PARTS: Final = (32, 512)
#: Turns of the depth that a tile's loop is written out for.
UNROLLED: Final = 4
#: The most rows and columns of a block of results, and the most of the depth that is copied at a
#: time: the first for which there is memory. Half as many are the least. A block of 256 by 256
#: copies half as much as four of 128 by 128: transposed products of 1024 to 2048 take 6 to 8% less,
#: and 3 to 5% less with 128 by 256.
SIDES: Final = (
    _Sizes(256, 256, 128), _Sizes(128, 256, 128), _Sizes(128, 128, 128), _Sizes(64, 64, 64),
)  # fmt: skip
#: Of the large blocks, how many there should be along one side: one of them is divided among cores.
#: Four of 256 rows would take 5 % less for 1024, and leave more cores idle.
SHARED: Final = 6
#: Rows of a panel: several tiles of a product, and a line of the cache. And a tile, where there is
#: no memory for a panel of the whole depth; where there is, that is faster for 100 or 1000 rows.
PANEL: Final = (16, 4)
#: Panels of the whole depth that there has to be memory for. With one alone a tile is a vector wide
#: and up to 16 rows high, more lines than one place of the first cache holds. Of products 256 to
#: 4096 deep, with 32 to 512 rows, blocks take up to a quarter longer than panels where there is
#: memory for two; where there is not, panels take 1.3 to 2.7 times as long as blocks
#: (`python -m bench.report products`).
ABREAST: Final = 2
#: Ways of a second cache; processors have 4 to 20.
WAYS: Final = 16


def block(sink: UOp, target: DeviceSpec) -> UOp:
    """`sink` with its sums in a LOCAL, where it gains from that."""
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
    """The greatest part of `size` within `bounds` that is whole and a multiple of `step`."""
    least, most = bounds
    parts = (n for n in range(most // step * step, least - 1, -step) if size % n == 0)
    return next(parts, None)


def _first(size: int, steps: Sequence[int], bounds: tuple[int, int]) -> int | None:
    """The same of the first of `steps` that there is one for."""
    return next((n for step in steps if (n := _divisor(size, step, bounds))), None)


# A matrix that streams by -----------------------------------------------------------------------


def _columns(info: Analysis, sink: UOp, target: DeviceSpec) -> UOp:
    """The same for a sum, or whatever else is folded, down the columns of a matrix."""
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
    """Sums of whole rows' strips, to which each row of the matrix is added as it comes by."""
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
        turn = new_range(extent(last) // part, int(last.arg))
        step = new_range(part, next(free))
        short = [new_range(size, next(free)) for size in sizes]
        value = moved(reduce.src[0], {**at(short), last: turn * part + step})
        sums = UOp(Op.LOCAL, reduce.dtype, (reduce.replace(src=(value, step)), *short))
        one = UOp(Op.LOAD, reduce.dtype, (sums, flat_index((*own, inside))))
        fold = reduce.replace(src=(one, *before, turn))
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
        The RANGE that it is a part of.
    block, panel, inside : UOp
        The RANGEs that take its place where sums are computed: blocks, the panels of one, and the
        elements of a panel.
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
        """Elements of a block."""
        return extent(self.panel) * self.width

    def start(self) -> UOp:
        """The first element of the block."""
        return self.block * self.size


def _sizes(row: UOp, found: Contraction, target: DeviceSpec) -> _Sizes | None:
    """The largest block that there is memory for, in the second cache and on the stack."""
    widths = [local_itemsize(x.dtype) for x in (found.reduce, found.factor, found.value)]
    for most in SIDES:
        least = min(most.rows // 2, max(ROWS, extent(row)))
        high = _first(extent(row), PANEL[: 1 if _abreast(found, target) else 2], (least, most.rows))
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
    """Blocks of results, the parts of both operands that one needs copied to panels."""
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
    turn = new_range(extent(depth) // sizes.part, int(depth.arg))
    step = new_range(sizes.part, next(free))
    panels = {
        found.factor: _panels(found.factor, rows, (depth, turn, step), free),
        found.value: _panels(found.value, columns, (depth, turn, step), free),
    }
    [value] = substitute([reduce.src[0]], panels)
    fold = reduce.replace(src=(value, *found.depth[:-1], turn, step))
    own = (columns.panel, rows.panel, rows.inside, columns.inside)
    sums = UOp(Op.LOCAL, reduce.dtype, (fold, *own))
    # Row by row where they are stored.
    line, panel, column = (
        new_range(size, next(free)) for size in (rows.size, extent(columns.panel), lanes)
    )
    total = UOp(Op.LOAD, reduce.dtype, (sums, flat_index((panel, line, column))))
    [sink] = substitute([sink], {reduce: total})
    places = {
        rows.before: rows.start() + line,
        columns.before: columns.start() + panel * lanes + column,
    }
    return moved(sink, places)


def _row(info: Analysis, found: Contraction, target: DeviceSpec) -> UOp | None:
    """The RANGE of the other operand's rows, if results are better computed in blocks.

    That is where what is next to each other lies along it, and the lines that a walk of the depth
    meets drive each other out of the second cache, so that each has to be fetched again for the
    rows beside. And where panels are worth their copies, but there is no memory for those that a
    tile of several takes.
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
    beside = next((r for r in fixed if info.stride(x, r) == 1), None)
    way = target.l2_bytes // WAYS
    apart = math.gcd(abs(steps[-1]) * x.dtype.itemsize, way)
    if beside is not None and extent(depth) > WAYS * way // max(LINE, apart):
        return beside
    # Panels of a block serve its rows alone.
    many = [r for r in fixed if extent(r) >= ROWS]
    deep = many and _abreast(found, target) < ABREAST and gains(info, found, target)
    return max(many, key=extent) if deep else None


def _abreast(found: Contraction, target: DeviceSpec) -> int:
    """How many panels of the whole depth there is memory for."""
    lanes = target.lanes(local_itemsize(found.value.dtype))
    panel = lanes * local_bytes(found.value.dtype, found.depth)
    return LOCAL_BYTES // max(1, panel) if panel <= target.panel_bytes else 0


def _side(before: UOp, size: int, width: int, free: Iterator[int]) -> _Side:
    blocks = new_range(extent(before) // size, int(before.arg))
    panel, inside = (new_range(n, next(free)) for n in (size // width, width))
    return _Side(before, blocks, panel, inside, width)


def _panels(x: UOp, side: _Side, walked: tuple[UOp, UOp, UOp], free: Iterator[int]) -> UOp:
    """`x` from a copy of what one turn of the depth needs of it: panel by panel, row by row."""
    depth, turn, step = walked
    own = tuple(new_range(extent(r), next(free)) for r in (side.panel, step, side.inside))
    panel, line, inside = own
    places = {
        side.before: side.start() + panel * side.width + inside,
        depth: turn * extent(step) + line,
    }
    held = UOp(Op.LOCAL, x.dtype, (moved(x, places), *own))
    return UOp(Op.LOAD, x.dtype, (held, flat_index((side.panel, step, side.inside))))


def outside(info: Analysis, target: DeviceSpec) -> tuple[UOp, ...]:
    """RANGEs of REDUCEs that go around the loops of the arrays which their results fill.

    Those that an array which the sums read varies with, so that it is filled once for all of
    them; and all where the rows of a matrix stream from memory.
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
    """RANGEs around arrays that keep sums over rows which are computed for them, block by block."""
    found = []
    for array in info.locals:
        fold = array.src[0]
        if fold.op is Op.REDUCE and any(r in outside for r in fold.src[1:]):
            read = [x.src[0] for x in info.loads(fold.src[0]) if x.src[0].op is Op.LOCAL]
            if any(info.closing([held.src[0]]) for held in read):
                found.append(array)
    return info.deps_of(found)
