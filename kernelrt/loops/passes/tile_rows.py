"""Row tiling of fused contractions: computes blocks of rows instead of single rows.

Some kernels compute an operand of a contraction themselves, row by row. For example, attention
fills a row of weights for each row of its results. Such a kernel reads all of the other operand for
the few rows of a register tile. With this pass, local arrays hold a block of rows, so the other
operand is read once for a block. The kernel computes its operand for one part of the depth (the
summed axis) at a time, and the results accumulate in an array. If several loops read a row, as in a
softmax, the whole row is kept.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt.ir.local import ROWS_BYTES, RowBlock, flat_index, local_itemsize, row_blocks
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import UOp, toposort
from kernelrt.loops.access_patterns import Accesses
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.passes.fuse_loops import merge_passes
from kernelrt.loops.passes.masked_tiles import needed
from kernelrt.loops.passes.pack_operands import free_number, moved, new_range, stored_along
from kernelrt.loops.tiles import extent, is_fixed

if TYPE_CHECKING:
    from kernelrt.device.spec import DeviceSpec

__all__ = ["block_rows"]

#: The fraction of the L2 cache that arrays may take. Half and three quarters were measured with the
#: gradient of attention of length 4096 (`bench.rows.attention`).
HELD: Final = (3, 4)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A kernel with a contraction over rows that the kernel itself computes.

    Attributes
    ----------
    info : Analysis
        The kernel.
    fold : UOp
        The contraction.
    load : UOp
        The LOAD of the computed operand.
    other : UOp
        The other factor of the contraction's terms.
    row, columns : UOp
        The RANGEs over the rows of the results, and over their columns.
    arrays : tuple of UOp
        The other LOCALs, operands first. Each holds a row.
    totals : tuple of UOp
        REDUCEs over whole rows, operands first.
    """

    info: Analysis
    fold: UOp
    load: UOp
    other: UOp
    row: UOp
    columns: UOp
    arrays: tuple[UOp, ...]
    totals: tuple[UOp, ...]

    @property
    def operand(self) -> UOp:
        """The LOCAL of the computed operand."""
        return self.load.src[0]

    @property
    def depth(self) -> int:
        """Number of elements of a row."""
        return extent(self.fold.src[1])


def block_rows(sink: UOp, target: DeviceSpec) -> UOp:
    """Return `sink` with the rows that it computes and contracts in blocks, if that is faster."""
    found = _rows(Analysis(sink))
    sizes = [] if found is None else _sizes(found, target)
    for each in sizes:
        assert found is not None
        written = merge_passes(_Blocks(found, each).write())
        # The smallest block may exceed the L2 cache, as each row is read a few times only.
        most = ROWS_BYTES if each is sizes[-1] else target.l2_bytes * HELD[0] // HELD[1]
        if Accesses(Analysis(written)).local_bytes({}) <= most:
            return written
    return sink


def _rows(info: Analysis) -> _Rows | None:
    """Return the parts of the kernel `info` if only its contraction reads the computed rows."""
    plain = all(u.op is not Op.BOUND and (u.op is not Op.LOAD or len(u.src) == 2)
                for u in info.nodes)  # fmt: skip
    if not info.locals or not plain or not all(map(is_fixed, info.ranges)):
        return None
    folds = [u for s in info.sink.src for u in info.closing(s.src[1:]) if _is_contraction(u)]
    if len(folds) != 1 or any(s.arg for s in info.sink.src):
        return None
    [fold] = folds
    load = next(x for x in fold.src[0].src if _is_row(x, fold.src[1]))
    other = next((x for x in fold.src[0].src if x is not load), load)
    [store] = (s for s in info.sink.src if fold in info.closing(s.src[1:]))
    columns = stored_along(Analysis(UOp(Op.SINK, store.dtype, (store,))), fold)
    alone = other.op is Op.LOAD and other.src[0].op is Op.PARAM and columns is not None
    users = [u for u in info.nodes if u.op is Op.LOAD and u.src[0] is load.src[0]]
    if not alone or columns not in info.deps[other] or users != [load]:
        return None
    rows = sorted(info.deps[load.src[0]] - info.deps[other], key=lambda r: int(r.arg))
    if not rows or columns in info.deps[load.src[0]]:
        return None
    assert columns is not None
    filled = {r for u in info.locals for r in u.src[1:]}
    arrays = tuple(u for u in info.locals if u is not load.src[0])
    totals = tuple(
        u for u in info.reduces
        if u is not fold and rows[-1] in info.deps[u] and filled.isdisjoint(info.deps[u])
    )  # fmt: skip
    out = _Rows(info, fold, load, other, rows[-1], columns, arrays, totals)
    return out if _is_plain(out) else None


def _is_contraction(u: UOp) -> bool:
    """Return whether `u` is a sum of products with a factor that is read in order from an array."""
    products = u.op is Op.REDUCE and u.arg is Op.ADD and u.src[0].op is Op.MUL
    return products and len(u.src) == 2 and sum(_is_row(x, u.src[1]) for x in u.src[0].src) == 1


def _is_row(x: UOp, at: UOp) -> bool:
    """Return whether `x` is the LOAD of an array element whose index is the RANGE `at`."""
    return x.op is Op.LOAD and x.src[0].op is Op.LOCAL and x.src[1] is at


def _is_plain(found: _Rows) -> bool:
    """Return whether all arrays have the length of a row, and only loops over a row read them."""
    info, depth = found.info, found.depth
    closed = {u.src[1]: u for u in (*found.totals, *info.locals) if len(u.src) == 2}
    for u in (*found.arrays, found.operand):
        if len(u.src) != 2 or extent(u.src[1]) != depth or found.row not in info.deps[u]:
            return False
    for u in found.totals:
        if len(u.src) != 2 or extent(u.src[1]) != depth:
            return False
    stored = [s for s in info.sink.src if found.fold not in info.closing(s.src[1:])]
    if any(found.columns in info.deps[s] for s in stored):
        return False
    reads = [u for u in info.nodes if u.op is Op.LOAD and u.src[0].op is Op.LOCAL]
    return all(x is found.load or x.src[1] in closed for x in reads)


def _sizes(found: _Rows, target: DeviceSpec) -> list[RowBlock]:
    """Return block sizes that divide the rows and the depth evenly, the largest first."""
    lanes = target.lanes(local_itemsize(found.operand.dtype))
    few = target.few_registers
    return row_blocks(extent(found.row), found.depth, lanes, few_registers=few)


class _Blocks:
    """Rewrites the kernel `found` in blocks of rows."""

    def __init__(self, found: _Rows, sizes: RowBlock) -> None:
        self.found = found
        self.sizes = sizes
        self.free = itertools.count(free_number(found.info.sink))
        self.strip = new_range(extent(found.row) // sizes.rows, int(found.row.arg))
        #: LOCAL or REDUCE of a row -> the array that holds it for all rows of a block.
        self.made: dict[UOp, UOp] = {}

    def write(self) -> UOp:
        """Return the rewritten kernel."""
        found = self.found
        order = {u: k for k, u in enumerate(found.info.nodes)}
        for u in sorted((*found.arrays, *found.totals), key=order.__getitem__):
            self.made[u] = self._array(u) if u.op is Op.LOCAL else self._totals(u)
        sums = self._sums()
        [line] = self._new(self.sizes.rows)
        chosen = {found.fold: self._load(sums, line, found.columns)}
        chosen |= {u: self._load(self.made[u], line) for u in found.totals}
        [sink] = substitute([found.info.sink], chosen)
        return moved(sink, {found.row: self._row(line)})

    def _new(self, *extents: int) -> tuple[UOp, ...]:
        return tuple(new_range(n, next(self.free)) for n in extents)

    def _row(self, line: UOp) -> UOp:
        return self.strip * self.sizes.rows + line

    def _load(self, array: UOp, *at: UOp) -> UOp:
        """Return the element of `array` at the indices `at`, one for each of its RANGEs."""
        indices = dict(zip(array.src[1:], at, strict=True))
        [index] = substitute([flat_index(array.src[1:])], indices)
        return UOp(Op.LOAD, array.dtype, (array, simplify(index)))

    def _at(self, value: UOp, own: UOp, index: UOp, line: UOp) -> UOp:
        """Return `value`, the element of a row at index `own`, for index `index` of row `line`."""
        reads = {
            x: self._load(self.made[x.src[0]], index, line)
            for x in toposort([value])
            if x.op is Op.LOAD and x.src[0] in self.made and x.src[1] is own
        }
        reads |= {u: self._load(self.made[u], line) for u in self.found.totals if u in self.made}
        [value] = substitute([value], {**reads, **self._copies(value, own, line)})
        return moved(value, {own: index, self.found.row: self._row(line)})

    def _copies(self, value: UOp, own: UOp, line: UOp) -> dict[UOp, UOp]:
        """Return replacements for LOADs of rows in sums of `value`.

        They read copies in which the rows are the innermost axis.
        """
        info, copies, row = self.found.info, {}, self.found.row
        sums = [u for u in toposort([value]) if u.op is Op.REDUCE and own in info.deps[u]]
        for u in sums:
            for x in info.loads(u.src[0]):
                if row not in info.deps[x] or own in info.deps[x]:
                    continue
                *steps, lane = self._new(*map(extent, u.src[1:]), self.sizes.rows)
                replacements = {row: self._row(lane), **dict(zip(u.src[1:], steps, strict=True))}
                held = UOp(Op.LOCAL, x.dtype, (moved(x, replacements), *steps, lane))
                copies[x] = self._load(held, *u.src[1:], line)
        return copies

    def _array(self, array: UOp) -> UOp:
        """Return a LOCAL that holds what `array` holds for one row, for all rows of a block."""
        own = self._new(self.found.depth, self.sizes.rows)
        element = self._at(array.src[0], array.src[1], *own)
        return UOp(Op.LOCAL, array.dtype, (element, *own))

    def _totals(self, reduce: UOp) -> UOp:
        """Return a LOCAL with the results of `reduce` for all rows of a block."""
        step, line = self._new(self.found.depth, self.sizes.rows)
        value = self._at(reduce.src[0], reduce.src[1], step, line)
        return UOp(Op.LOCAL, reduce.dtype, (reduce.replace(src=(value, step)), line))

    def _sums(self) -> UOp:
        """Return the LOCAL that accumulates the results of a block over parts of the depth."""
        found, sizes = self.found, self.sizes
        outer, step, line = self._new(found.depth // sizes.part, sizes.part, sizes.rows)
        own = found.operand.src[1]
        element = self._at(found.operand.src[0], own, outer * sizes.part + step, line)
        part = UOp(Op.LOCAL, element.dtype, (element, step, line))
        inlined = self._inlined(outer * sizes.part + step, line)
        predicate = needed(inlined, (step, line), line, self.free)
        inner, row, column = self._new(sizes.part, sizes.rows, extent(found.columns))
        weight = self._load(part, inner, row)
        if predicate is not None:
            weight = weight.replace(src=(*weight.src, predicate))
        replacements = {found.fold.src[1]: outer * sizes.part + inner, found.columns: column}
        factor = moved(found.other, replacements)
        [value] = substitute([found.fold.src[0]], {found.load: weight, found.other: factor})
        fold = found.fold.replace(src=(value, outer, inner))
        return UOp(Op.LOCAL, fold.dtype, (fold, row, column))

    def _inlined(self, index: UOp, line: UOp) -> UOp:
        """Return the element of the computed operand with arrays inlined, to expose its masks."""
        own, made = self.found.operand.src[1], set(self.made.values())
        totals = {u: self._load(self.made[u], line) for u in self.found.totals}
        [element] = substitute([self.found.operand.src[0]], totals)
        while reads := [
            x for x in toposort([element], stop=lambda n: n.op is Op.LOCAL)
            if x.op is Op.LOAD and x.src[0].op is Op.LOCAL and x.src[0] not in made
        ]:  # fmt: skip
            chosen = {x: moved(x.src[0].src[0], {x.src[0].src[1]: own}) for x in reads}
            [element] = substitute([element], chosen)
        return moved(element, {own: index, self.found.row: self._row(line)})
