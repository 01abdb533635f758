"""Operand packing: copies panels of an operand in the order in which a contraction reads it.

For every few rows of the first operand, a contraction reads the second operand again, a few columns
at a time. If the rows of the second operand lie far apart in memory, the elements of a column
compete for the same cache sets. If its columns lie far apart, they have to be transposed each time.
One copy to *panels* avoids both. A panel is a LOCAL with as many columns as a vector has lanes, row
after row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.costs import costs_of
from kernelrt.device.spec import LINE, PAGE, WAY
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
from kernelrt.loops.tiles import extent, is_fixed
from kernelrt.native.tile_cost import vectors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = [
    "Contraction", "contraction", "free_number", "gains", "moved", "new_range", "pack",
    "reads_what_it_writes", "repeated", "start_of", "stored_along",
]  # fmt: skip

#: Width of the tiles of a product, in vectors: so many columns are read at a time.
VECTORS: Final = 4
#: The least rows of the other operand that a copy has to serve. Measured with products of 12 to
#: 4096 rows, 16 to 1024 columns and depths of 16 to 1024, packed and not.
ROWS: Final = 32


#: If rows of the operand are less than a page apart, a copy pays only above this number of rows:
#: below it, reading lines of the L2 cache again is faster. A copy of a matrix of 256 x 256 to
#: 512 x 512 takes 15 to 23% of the time of a product with 32 rows, some 6% with 128 rows, and 1 to
#: 2% with 512 rows (Zen 5).
MANY_ROWS: Final = 512
#: Two costs in units of a vector multiply-add, two of which run in a cycle. `FOLDED` is the cost to
#: add up the lanes of a result whose vectors go along the depth. `TRANSPOSED_ROW` is the cost to
#: transpose a row of a panel: 16 rows of 16 numbers are transposed in 63 cycles (Zen 5).
FOLDED: Final = 3.0
TRANSPOSED_ROW: Final = 8.0
#: The least results for which an operand with rows shorter than a vector is transposed: with fewer
#: the copy takes longer than it saves. Measured with 32 to 4096 rows and 2 to 12 columns.
LEAST_TRANSPOSED: Final = 128
#: Cycles to store a vector of a copy and read it again, times the height of a tile in rows.
#: Measured with products of bfloat16 and float16, of 32 to 4096 rows and up to 96 columns.
COPIED: Final = 16 * 8.0


class Contraction(NamedTuple):
    """A kernel whose one REDUCE is a sum of products.

    Attributes
    ----------
    reduce : UOp
        The sum.
    load, other : UOp
        The LOAD of the operand that varies with `columns`, and the LOAD of the other operand.
    value, factor : UOp
        The two factors of the product: `load` and `other` themselves, or elementwise functions of
        them.
    columns : UOp
        The RANGE along which results are stored contiguously.
    depth : tuple of UOp
        The RANGEs of the sum.
    rows : int
        Number of results that use each element of `load`.
    """

    reduce: UOp
    load: UOp
    other: UOp
    value: UOp
    factor: UOp
    columns: UOp
    depth: tuple[UOp, ...]
    rows: int

    def changes_pages(self, info: Analysis) -> bool:
        """Return whether neighbors along the depth lie in different pages of `load`'s memory."""
        step = info.stride(self.load, self.depth[-1])
        return step is not None and abs(step) * self.load.dtype.itemsize >= PAGE


def pack(sink: UOp, target: DeviceSpec) -> UOp:
    """Return `sink` with an operand packed, if it is a contraction and packing saves time."""
    info = Analysis(sink)
    found = contraction(info)
    if found is None:
        return sink
    if _is_narrow(info, found, target):
        return _transposed(sink, found)
    if not gains(info, found, target):
        return sink
    lanes = target.lanes(local_itemsize(found.value.dtype))
    panel = lanes * local_bytes(found.value.dtype, found.depth)
    if panel > min(LOCAL_BYTES, target.panel_bytes) or not _comes_out(info, found, lanes):
        return sink
    return _packed(sink, found, lanes)


def _comes_out(info: Analysis, found: Contraction, lanes: int) -> bool:
    """Return whether whole panels cover the columns; the last one may repeat some columns.

    Columns are repeated only if this takes fewer vector operations than vectors along the depth. If
    the columns are contiguous already, they are read in place instead.
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
    panels = depth * (1 + again / columns + TRANSPOSED_ROW / found.rows)
    return panels < lanes * (vectors + FOLDED)


def contraction(info: Analysis) -> Contraction | None:
    """Return the contraction that the kernel `info` computes, or None if it is something else."""
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
    # A panel is filled completely, including elements that nothing reads: no check may fail there.
    if any(u.op is Op.BOUND for u in toposort([operand])):
        return None
    others = info.deps[reduce] - info.deps[operand]
    factor = next((x for x in value.src if x is not operand), operand)
    rows = math.prod(extent(r) for r in others)
    return Contraction(reduce, reads[operand], reads[factor], operand, factor, columns, depth, rows)


def _read(info: Analysis, x: UOp) -> UOp | None:
    """Return the only LOAD that `x` is an elementwise function of, or None."""
    if x.op is Op.LOAD:
        return x if len(x.src) == 2 else None
    found = info.loads(x)
    alone = len(found) == 1 and len(found[0].src) == 2 and info.deps[x] == info.deps[found[0]]
    return found[0] if alone and not info.closing([x]) else None


def stored_along(info: Analysis, reduce: UOp) -> UOp | None:
    """Return the RANGE along which the first store writes results of `reduce` contiguously."""
    units = [r for r in info.deps[reduce] if info.stride(info.sink.src[0], r) == 1]
    return max(units, key=lambda r: (extent(r), -int(r.arg)), default=None)


def gains(info: Analysis, found: Contraction, target: DeviceSpec) -> bool:
    """Return whether packing saves time.

    It does if the operand must be transposed, takes long to compute, or leaves the L1 cache before
    it is read again.
    """
    across = info.stride(found.load, found.columns)
    steps = [info.stride(found.load, r) for r in found.depth]
    if not across or not all(steps) or found.rows < ROWS:
        return False
    if across != 1:
        return steps[-1] == 1
    if found.rows * _work(info, found, target) >= COPIED:
        return True
    itemsize = found.load.dtype.itemsize
    near = not found.changes_pages(info) and _operand_bytes(found) <= target.l2_bytes
    # If the other operand is not contiguous along the depth, it takes as many lines again.
    along = info.stride(found.other, found.depth[-1]) == 1
    if near and found.rows <= MANY_ROWS and (along or 2 * _operand_bytes(found) <= target.l2_bytes):
        return False
    width = min(extent(found.columns), VECTORS * target.lanes(local_itemsize(found.value.dtype)))
    lines = max(1, width * itemsize // LINE)
    walked = lines * most_elements(found.depth)
    # A cache set holds as many lines as there are ways.
    held = min(WAY // LINE, lines * _cache_sets(found, steps)) * (target.l1_bytes // WAY)
    return walked > 2 * held


def _operand_bytes(found: Contraction) -> int:
    return extent(found.columns) * most_elements(found.depth) * found.load.dtype.itemsize


def _work(info: Analysis, found: Contraction, target: DeviceSpec) -> float:
    """Return the cycles to compute a vector of the operand, which a panel saves for each row."""
    costs = costs_of(target)
    work = info.weight([found.value], costs) * costs.plain
    # Narrow floats are widened as they are loaded.
    return work + costs.vector(Op.CAST, dt.float32) * found.load.dtype.is_narrow


def _cache_sets(found: Contraction, steps: Sequence[int | None]) -> int:
    """Return in how many different cache sets the rows of the operand begin."""
    # One bit for each byte of a way. Each inner iteration doubles the steps taken along an axis.
    offsets = 1
    for r, step in zip(found.depth, steps, strict=True):
        stride, steps_taken = (step or 0) * found.load.dtype.itemsize, 1
        while steps_taken < extent(r):
            more = min(steps_taken, extent(r) - steps_taken)
            by = more * stride % WAY
            offsets |= (offsets << by | offsets >> WAY - by) & (1 << WAY) - 1
            steps_taken += more
    line = (1 << LINE) - 1
    return sum(bool(offsets >> at & line) for at in range(0, WAY, LINE))


def _packed(sink: UOp, found: Contraction, lanes: int) -> UOp:
    """Return `sink` with the operand in panels of `lanes` columns."""
    before, depth = found.columns, found.depth
    free = free_number(sink)
    # The loop over panels takes the place of the loop over columns.
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
    """Return the index of a block's first element; the last block is shifted to end at `size`."""
    start = block * width
    return start if size % width == 0 else start.alu(Op.MIN, size - width)


def repeated(info: Analysis) -> set[int]:
    """Return the slots of outputs that overlapping blocks (see :func:`start_of`) write twice."""
    return {
        int(s.src[0].arg[0])
        for s in info.sink.src
        if any(u.op is Op.MIN and u.src[0].op is Op.MUL for u in toposort([s.src[1]]))
    }


def reads_what_it_writes(info: Analysis) -> bool:
    """Return whether the kernel reads a buffer that it writes.

    A result that is computed twice could then differ the second time.
    """
    written = {s.src[0] for s in info.sink.src}
    return any(u.op is Op.LOAD and u.src[0] in written for u in info.nodes)


def _is_narrow(info: Analysis, found: Contraction, target: DeviceSpec) -> bool:
    """Return whether the operand has rows shorter than a vector, and a transposed copy saves time.

    It does if the other operand is contiguous along the depth, so that vectors run along the depth.
    Without a transposed copy, several loads would gather each vector of the operand.
    """
    lanes = target.lanes(local_itemsize(found.value.dtype))
    columns, last = extent(found.columns), found.depth[-1]
    steps = [info.stride(found.load, r) for r in found.depth]
    nbytes = columns * local_bytes(found.value.dtype, found.depth)
    return (
        1 < columns < lanes
        and found.rows * columns >= LEAST_TRANSPOSED
        and found.rows >= ROWS
        and extent(last) >= 2 * lanes
        and info.stride(found.load, found.columns) == 1
        and all(steps)
        and info.stride(found.other, last) == 1
        and nbytes <= min(LOCAL_BYTES, target.panel_bytes)
    )


def _transposed(sink: UOp, found: Contraction) -> UOp:
    """Return `sink` with the operand transposed to a LOCAL."""
    free = free_number(sink)
    sizes = map(extent, (found.columns, *found.depth))
    own = [new_range(size, free + k) for k, size in enumerate(sizes)]
    element = moved(found.value, dict(zip((found.columns, *found.depth), own, strict=True)))
    held = UOp(Op.LOCAL, element.dtype, (element, *own))
    turned = UOp(Op.LOAD, element.dtype, (held, flat_index((found.columns, *found.depth))))
    return substitute([sink], {found.value: turned})[0]


def moved(root: UOp, replacements: Mapping[UOp, UOp]) -> UOp:
    """Return `root` with `replacements` in place of RANGEs, and with simplified indices."""
    done: dict[UOp, UOp] = {}
    for u in toposort(substitute([root], replacements)):
        src = tuple(done[s] for s in u.src)
        if u.op in (Op.LOAD, Op.STORE):
            src = (src[0], simplify(src[1]), *src[2:])
        done[u] = last = u if src == u.src else u.replace(src=src)
    return last


def free_number(sink: UOp) -> int:
    """Return a number greater than that of every RANGE of `sink`."""
    return 1 + max(int(u.arg) for u in toposort([sink]) if u.op is Op.RANGE)


def new_range(size: int, number: int) -> UOp:
    """Return a new RANGE of `size` elements, with the given number."""
    return UOp(Op.RANGE, dt.int64, (const(size, dt.int64),), number)
