"""Operand packing: copies panels of an operand into the order that a contraction reads.

A contraction walks one operand again for each few rows of the other: some columns of it, row by
row. Where its rows lie far apart these columns compete for the same places in the cache, and where
its columns do they would have to be transposed each time. A LOCAL that holds so many columns as a
vector has lanes, row after row, costs one copy for all of that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.costs import costs_of
from kernelrt.ir.local import (
    LOCAL_BYTES,
    flat_index,
    local_bytes,
    local_itemsize,
    most_elements,
)
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import UOp, const, toposort
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.passes.prefetch_streams import LINE, PAGE, WAY
from kernelrt.loops.tiles import extent, is_fixed
from kernelrt.native.tile_cost import vectors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = [
    "Contraction", "contraction", "free_number", "gains", "moved", "new_range", "pack",
    "reads_what_it_writes", "repeated", "start_of", "stored_along",
]  # fmt: skip

#: Vectors that tiles of a product are wide: so many columns are walked at a time.
VECTORS: Final = 4
#: Rows of the other operand that a copy has to serve. Measured with products of 12 to 4096 rows, 16
#: to 1024 columns and depths of 16 to 1024, packed and not.
ROWS: Final = 32


#: Rows from which on a copy costs less than walking lines of the second cache again, where rows of
#: the operand are less than a page apart. For 32 rows times 256 x 256 to 512 x 512 a copy takes 15
#: to 23% of the time, for 128 some 6%, for 512 one to two (Zen 5).
MANY_ROWS: Final = 512
#: What a result takes whose vectors go along the depth, to fold its lanes, and what turning a row
#: of a panel takes, in fused multiply-adds of vectors: two go in a cycle, and 16 rows of 16 are
#: turned in 63 cycles (Zen 5).
FOLDED: Final = 3.0
TURN: Final = 8.0
#: Results for which rows shorter than a vector are better turned to columns: with fewer the copy
#: takes longer than it spares. Measured with 32 to 4096 rows and 2 to 12 columns.
TURNED: Final = 128
#: Cycles, times the rows that a tile is high, of a vector in a copy: it is stored and read again.
#: Measured with products of bfloat16 and float16, of 32 to 4096 rows and up to 96 columns.
COPIED: Final = 16 * 8.0


class Contraction(NamedTuple):
    """A kernel of sums of products.

    Attributes
    ----------
    reduce : UOp
        The sum.
    load, other : UOp
        What the operand that varies with `columns` reads, and what the other one reads.
    value, factor : UOp
        These operands: the LOADs themselves, or elementwise functions of them.
    columns : UOp
        The RANGE along which results are stored in a row.
    depth : tuple of UOp
        The RANGEs of the sum.
    rows : int
        How many other results use each element of `load`.
    """

    reduce: UOp
    load: UOp
    other: UOp
    value: UOp
    factor: UOp
    columns: UOp
    depth: tuple[UOp, ...]
    rows: int


def pack(sink: UOp, target: DeviceSpec) -> UOp:
    """`sink` with an operand packed, where it is a contraction that gains from that."""
    info = Analysis(sink)
    found = contraction(info)
    if found is None:
        return sink
    if _is_narrow(info, found, target):
        return _turned(sink, found)
    if not gains(info, found, target):
        return sink
    lanes = target.lanes(local_itemsize(found.value.dtype))
    panel = lanes * local_bytes(found.value.dtype, found.depth)
    if panel > min(LOCAL_BYTES, target.panel_bytes) or not _comes_out(info, found, lanes):
        return sink
    return _packed(sink, found, lanes)


def _comes_out(info: Analysis, found: Contraction, lanes: int) -> bool:
    """Whether columns are whole panels, or the last one may repeat some.

    It may where that takes fewer sums of vectors than going along the depth. Columns that lie as
    they are wanted are as well read where they lie.
    """
    columns = extent(found.columns)
    again = -columns % lanes
    if not again:
        return True
    if columns < lanes or reads_what_it_writes(info):
        return False
    if info.stride(found.load, found.columns) == 1:
        return False
    depth, last = most_elements(found.depth), extent(found.depth[-1])
    vectors = depth // last * vectors_of(last, lanes)
    panels = depth * (1 + again / columns + TURN / found.rows)
    return panels < lanes * (vectors + FOLDED)


def contraction(info: Analysis) -> Contraction | None:
    """The sum of products that the kernel `info` is, if it is one."""
    if len(info.passes) != 1 or len(info.reduces) != 1 or any(s.arg for s in info.sink.src):
        return None
    [reduce] = info.reduces
    value, depth = reduce.src[0], reduce.src[1:]
    products = reduce.arg is Op.ADD and value.op is Op.MUL and not value.dtype.is_bool
    if not products or not all(map(is_fixed, depth)):
        return None
    reads = {x: read for x in value.src if (read := _read(info, x)) is not None}
    if len(reads) < len(set(value.src)):
        return None
    columns = stored_along(info, reduce)
    if columns is None or not is_fixed(columns):
        return None
    varying = [x for x in value.src if columns in info.deps[x]]
    if len(varying) != 1:
        return None
    [operand] = varying
    # A panel is filled whole, also where no one reads it: nothing in it may fail.
    if any(u.op is Op.BOUND for u in toposort([operand])):
        return None
    others = info.deps[reduce] - info.deps[operand]
    factor = next((x for x in value.src if x is not operand), operand)
    rows = math.prod(extent(r) for r in others)
    return Contraction(reduce, reads[operand], reads[factor], operand, factor, columns, depth, rows)


def _read(info: Analysis, x: UOp) -> UOp | None:
    """The one LOAD that `x` is an elementwise function of; None where it is none of one alone."""
    if x.op is Op.LOAD:
        return x if len(x.src) == 2 else None
    found = info.loads(x)
    alone = len(found) == 1 and len(found[0].src) == 2 and info.deps[x] == info.deps[found[0]]
    return found[0] if alone and not info.closing([x]) else None


def stored_along(info: Analysis, reduce: UOp) -> UOp | None:
    """The RANGE of `reduce`'s results along which the first store is contiguous."""
    units = [r for r in info.deps[reduce] if info.stride(info.sink.src[0], r) == 1]
    return max(units, key=lambda r: (extent(r), -int(r.arg)), default=None)


def gains(info: Analysis, found: Contraction, target: DeviceSpec) -> bool:
    """Whether what is read in place would not stay in the first cache, or is to be transposed."""
    across = info.stride(found.load, found.columns)
    steps = [info.stride(found.load, r) for r in found.depth]
    if not across or not all(steps) or found.rows < ROWS:
        return False
    if across != 1:
        return steps[-1] == 1
    if found.rows * _work(info, found, target) >= COPIED:
        return True
    itemsize = found.load.dtype.itemsize
    near = abs(steps[-1] or 0) * itemsize < PAGE and _operand_bytes(found) <= target.l2_bytes
    # Rows of the other operand that lie across the depth take as many lines again.
    along = info.stride(found.other, found.depth[-1]) == 1
    if near and found.rows <= MANY_ROWS and (along or 2 * _operand_bytes(found) <= target.l2_bytes):
        return False
    width = min(extent(found.columns), VECTORS * target.lanes(local_itemsize(found.value.dtype)))
    lines = max(1, width * itemsize // LINE)
    walked = lines * most_elements(found.depth)
    # A place of a way holds as many lines as there are ways.
    held = min(WAY // LINE, lines * _places(found, steps)) * (target.l1_bytes // WAY)
    return walked > 2 * held


def _operand_bytes(found: Contraction) -> int:
    return extent(found.columns) * most_elements(found.depth) * found.load.dtype.itemsize


def _work(info: Analysis, found: Contraction, target: DeviceSpec) -> float:
    """Cycles of what a panel spares each row: an operand's vector from what is stored."""
    costs = costs_of(target)
    work = info.weight([found.value], costs) * costs.plain
    # Narrow floats are widened as they are loaded.
    return work + costs.vector(Op.CAST, dt.float32) * found.load.dtype.is_narrow


def _places(found: Contraction, steps: Sequence[int | None]) -> int:
    """Places of a way at which the rows of the operand begin."""
    # A bit for each byte. Each turn of the inner loop doubles the steps along an axis.
    places = 1
    for r, step in zip(found.depth, steps, strict=True):
        stride, steps_taken = (step or 0) * found.load.dtype.itemsize, 1
        while steps_taken < extent(r):
            more = min(steps_taken, extent(r) - steps_taken)
            by = more * stride % WAY
            places |= (places << by | places >> WAY - by) & (1 << WAY) - 1
            steps_taken += more
    line = (1 << LINE) - 1
    return sum(bool(places >> at & line) for at in range(0, WAY, LINE))


def _packed(sink: UOp, found: Contraction, lanes: int) -> UOp:
    """`sink` with panels of `lanes` columns."""
    before, depth = found.columns, found.depth
    free = free_number(sink)
    # Panels are gone through where the columns were.
    panel = new_range(-(-extent(before) // lanes), int(before.arg))
    first = start_of(panel, lanes, extent(before))
    column, inside, *rows = (
        new_range(size, free + k) for k, size in enumerate((lanes, lanes, *map(extent, depth)))
    )
    own = dict(zip(depth, rows, strict=True))
    element = moved(found.value, {before: first + inside, **own})
    held = UOp(Op.LOCAL, element.dtype, (element, *rows, inside))
    packed = UOp(Op.LOAD, element.dtype, (held, flat_index((*depth, column))))
    [sink] = substitute([sink], {found.value: packed})
    return moved(sink, {before: first + column})


def start_of(block: UOp, width: int, size: int) -> UOp:
    """Where a block begins; the last one ends with the last element, and may repeat some."""
    start = block * width
    return start if size % width == 0 else start.alu(Op.MIN, size - width)


def repeated(info: Analysis) -> set[int]:
    """Slots of outputs to which some results are stored twice, as blocks begin by `start_of`."""
    return {
        int(s.src[0].arg[0])
        for s in info.sink.src
        if any(u.op is Op.MIN and u.src[0].op is Op.MUL for u in toposort([s.src[1]]))
    }


def reads_what_it_writes(info: Analysis) -> bool:
    """Whether results that are computed twice may differ."""
    written = {s.src[0] for s in info.sink.src}
    return any(u.op is Op.LOAD and u.src[0] in written for u in info.nodes)


def _is_narrow(info: Analysis, found: Contraction, target: DeviceSpec) -> bool:
    """Whether the operand's rows are shorter than a vector, and the other's lie along the depth.

    Vectors then go along the depth, and each of the first would be picked from several loads.
    """
    lanes = target.lanes(local_itemsize(found.value.dtype))
    columns, last = extent(found.columns), found.depth[-1]
    steps = [info.stride(found.load, r) for r in found.depth]
    nbytes = columns * local_bytes(found.value.dtype, found.depth)
    return (
        1 < columns < lanes
        and found.rows * columns >= TURNED
        and found.rows >= ROWS
        and extent(last) >= 2 * lanes
        and info.stride(found.load, found.columns) == 1
        and all(steps)
        and info.stride(found.other, last) == 1
        and nbytes <= min(LOCAL_BYTES, target.panel_bytes)
    )


def _turned(sink: UOp, found: Contraction) -> UOp:
    """`sink` with the operand's columns as rows."""
    free = free_number(sink)
    sizes = map(extent, (found.columns, *found.depth))
    own = [new_range(size, free + k) for k, size in enumerate(sizes)]
    element = moved(found.value, dict(zip((found.columns, *found.depth), own, strict=True)))
    held = UOp(Op.LOCAL, element.dtype, (element, *own))
    turned = UOp(Op.LOAD, element.dtype, (held, flat_index((found.columns, *found.depth))))
    return substitute([sink], {found.value: turned})[0]


def moved(root: UOp, places: Mapping[UOp, UOp]) -> UOp:
    """`root` with RANGEs put elsewhere, and its indices in their simplest form."""
    done: dict[UOp, UOp] = {}
    for u in toposort(substitute([root], places)):
        src = tuple(done[s] for s in u.src)
        if u.op in (Op.LOAD, Op.STORE):
            src = (src[0], simplify(src[1]), *src[2:])
        done[u] = last = u if src == u.src else u.replace(src=src)
    return last


def free_number(sink: UOp) -> int:
    """A number that no RANGE of `sink` has, nor any above it."""
    return 1 + max(int(u.arg) for u in toposort([sink]) if u.op is Op.RANGE)


def new_range(size: int, number: int) -> UOp:
    """The RANGE of `size` elements with this number."""
    return UOp(Op.RANGE, dt.int64, (const(size, dt.int64),), number)
