"""Rows that a contraction walks, in blocks: computed a part at a time for many results at once.

A kernel that fills a row of an array for each row of its results, as attention does with its
weights, walks both operands from end to end for the few rows of a register tile. Here an array
holds a block of these rows, and of them as much as one part of the depth needs; the operand that
they are sums of lies in panels beside it, and the results wait in an array until all parts have
been added. So an operand is fetched once for a block of rows, at any length.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt.codegen.analysis import Analysis
from kernelrt.codegen.masking import needed
from kernelrt.codegen.packing import free_number, moved, new_range, stored_along
from kernelrt.codegen.tiles import extent, is_fixed
from kernelrt.ir.local import LOCAL_BYTES, flat_index, local_itemsize
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.device.spec import DeviceSpec

__all__ = ["block_rows"]

#: Rows of a block, and elements of each that one part has: the first for which there is memory.
ROWS: Final = (64, 32, 16)
PARTS: Final = (256, 128, 64)


class _Rows(NamedTuple):
    """A kernel that contracts rows which it computes.

    Attributes
    ----------
    reduce : UOp
        The contraction.
    array : UOp
        The LOCAL that holds a row.
    load : UOp
        The LOAD of its elements.
    row, columns : UOp
        The RANGEs of the results: along the rows, and along those of the other operand.
    panels : tuple of UOp
        What sums that make an element read at a place of it, for any row.
    """

    reduce: UOp
    array: UOp
    load: UOp
    row: UOp
    columns: UOp
    panels: tuple[UOp, ...]


class _Sizes(NamedTuple):
    """Rows of a block, and how much of the depth one part is."""

    rows: int
    part: int


def block_rows(sink: UOp, target: DeviceSpec) -> UOp:
    """`sink` with the rows that it contracts computed in blocks, where it gains from that."""
    found = _rows(Analysis(sink))
    sizes = None if found is None else _sizes(found, target)
    if found is None or sizes is None:
        return sink
    return _blocks(sink, found, sizes, target.lanes(local_itemsize(found.array.dtype)))


def _rows(info: Analysis) -> _Rows | None:
    """What the kernel `info` is, if it contracts rows that it needs in no other way."""
    if len(info.locals) != 1 or len(info.sink.src) != 1 or info.sink.src[0].arg:
        return None
    [array] = info.locals
    if any(u.op is Op.BOUND for u in info.nodes) or not all(map(is_fixed, info.ranges)):
        return None
    readers = [u for u in info.nodes if u.op is Op.LOAD and u.src[0] is array]
    if len(readers) != 1 or len(array.src) != 2:
        return None
    [load] = readers
    outer = [u for u in info.reduces if load in toposort([u])]
    if len(outer) != 1:
        return None
    [reduce] = outer
    product = reduce.src[0]
    if reduce.arg is not Op.ADD or product.op is not Op.MUL or len(reduce.src) != 2:
        return None
    depth = reduce.src[1]
    if load not in product.src or load.src[1:] != (depth,):
        return None
    other = product.src[1 - product.src.index(load)]
    columns = stored_along(info, reduce)
    if other.op is not Op.LOAD or other.src[0].op is not Op.PARAM or columns is None:
        return None
    if columns not in info.deps[other] or columns in info.deps[array]:
        return None
    rows = sorted(info.deps[array] - info.deps[other], key=lambda r: int(r.arg))
    if not rows:
        return None
    own = array.src[1]
    inner = [u for u in info.reduces if u is not reduce]
    panels = dict.fromkeys(
        x for u in inner for x in info.loads(u.src[0])
        if own in info.deps[x] and rows[-1] not in info.deps[x]
    )  # fmt: skip
    return _Rows(reduce, array, load, rows[-1], columns, tuple(panels))


def _divisor(size: int, most: int, step: int) -> int | None:
    return next((n for n in range(most, step - 1, -step) if size % n == 0), None)


def _sizes(found: _Rows, target: DeviceSpec) -> _Sizes | None:
    """The largest block that there is memory for, in the second cache and on the stack."""
    lanes = target.lanes(local_itemsize(found.array.dtype))
    width = local_itemsize(found.array.dtype)
    for part in PARTS:
        for rows in ROWS:
            depths = [
                math.prod(extent(r) for r in _walked(found, x)) * x.dtype.itemsize
                for x in found.panels
            ]
            nbytes = rows * (part + extent(found.columns)) * width + part * sum(depths)
            fits = nbytes <= min(LOCAL_BYTES, target.l2_bytes // 2)
            whole = extent(found.row) % rows == 0 and extent(found.array.src[1]) % part == 0
            if fits and whole and part % lanes == 0:
                return _Sizes(rows, part)
    return None


def _walked(found: _Rows, x: UOp) -> list[UOp]:
    """The RANGEs of the sums that an element is made of, as `x` walks them."""
    inside = toposort([found.array.src[0]])
    closed = {r for u in inside if u.op is Op.REDUCE for r in u.src[1:]}
    return [r for r in toposort([x]) if r in closed]


def _blocks(sink: UOp, found: _Rows, sizes: _Sizes, lanes: int) -> UOp:
    free = itertools.count(free_number(sink))
    reduce, array, columns = found.reduce, found.array, found.columns
    depth, own = reduce.src[1], array.src[1]

    def new(*extents: int) -> tuple[UOp, ...]:
        return tuple(new_range(n, next(free)) for n in extents)

    strip = new_range(extent(found.row) // sizes.rows, int(found.row.arg))
    turn = new_range(extent(depth) // sizes.part, next(free))
    across = sizes.part // lanes
    panel, line, inside = new(across, sizes.rows, lanes)

    def at(panel: UOp, inside: UOp) -> UOp:
        return turn * sizes.part + panel * lanes + inside

    copies = {}
    for x in found.panels:
        closed = _walked(found, x)
        block, *steps, lane = new(across, *map(extent, closed), lanes)
        places = {own: at(block, lane), **dict(zip(closed, steps, strict=True))}
        held = UOp(Op.LOCAL, x.dtype, (moved(x, places), block, *steps, lane))
        copies[x] = UOp(Op.LOAD, x.dtype, (held, flat_index((panel, *closed, inside))))
    element = substitute([array.src[0]], copies)[0]
    element = moved(element, {own: at(panel, inside), found.row: strip * sizes.rows + line})
    rows = UOp(Op.LOCAL, array.dtype, (element, panel, line, inside))
    # The sums of a block, and of these one part after the other.
    row, column = new(sizes.rows, extent(columns))
    walked = new(across, lanes)
    place = flat_index((walked[0], row, walked[1]))
    # `place` has to be the element of the panel: its extents are those of `rows`.
    gate = needed(element, (panel, line, inside), line, free)
    weight = UOp(Op.LOAD, array.dtype, (rows, place) if gate is None else (rows, place, gate))
    other = next(x for x in reduce.src[0].src if x is not found.load)
    factor = moved(other, {depth: at(*walked), columns: column})
    [value] = substitute([reduce.src[0]], {found.load: weight, other: factor})
    fold = reduce.replace(src=(value, turn, *walked))
    sums = UOp(Op.LOCAL, reduce.dtype, (fold, row, column))
    stored = new_range(sizes.rows, next(free))
    total = UOp(Op.LOAD, reduce.dtype, (sums, flat_index((stored, columns))))
    [sink] = substitute([sink], {reduce: total})
    return moved(sink, {found.row: strip * sizes.rows + stored})
