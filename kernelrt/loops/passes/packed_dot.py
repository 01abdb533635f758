"""Packed dot products: sums of products of 8- or 16-bit numbers, several in a 32-bit word.

A dot-product instruction multiplies the bytes (or 16-bit halves) of two 32-bit words and adds up
the products of a word. This pass reads several elements as one word, if they are adjacent along the
depth (the summed axis). So a sum of products becomes a sum of DOTs over a shorter depth. An operand
that is contiguous along the depth is read as words in place. Any other operand is packed into
panels of words; each panel is used for many results.

The instruction for bfloat16 adds the second product of a pair first, then the first one, each by a
fused multiply-add in float32. It treats subnormal operands and results as 0.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.spec import PAGE
from kernelrt.ir.local import LOCAL_BYTES, flat_index
from kernelrt.ir.ops import Op, Parts
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.uop import UOp, const, toposort
from kernelrt.loops.analysis import Analysis, stride
from kernelrt.loops.passes import pack_operands
from kernelrt.loops.passes.cache_blocking import block
from kernelrt.loops.passes.pack_operands import (
    contraction,
    free_number,
    moved,
    new_range,
    reads_what_it_writes,
    start_of,
)  # fmt: skip
from kernelrt.loops.tiles import extent, is_fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.dtype import DType
    from kernelrt.loops.passes.pack_operands import Contraction

__all__ = ["in_words"]

#: The least number of rows of the other operand for which packing words pays, and the least number
#: for which it pays even if words could be read in place. Measured with products of 8 to 64 rows,
#: with 256 or 4096 columns and depth.
ROWS: Final = 12
MANY_ROWS: Final = 24
#: The highest bit of each byte of a word.
FLIP: Final = 0x80808080
#: -0.0 as bfloat16.
NEGATIVE_ZERO: Final = 0x8000
#: The least number of words in a sum for which panels pay.
LEAST: Final = 4
#: The most columns and rows of a block, whose words are in panels.
SIDES: Final = (64, 128)
#: The most columns of a block if there are at least `SHARED` such blocks for the cores to share.
#: The other operand is copied half as often: products of int8 of 1024 x 1024 take 5% less time.
WIDEST: Final = 128
SHARED: Final = 8
#: Number of columns whose computation takes as long as copying the other operand for a block.
AGAIN: Final = 4
#: Types that represent all bfloat16 numbers.
_HOLDING_BFLOAT16: Final = (dt.bfloat16, dt.float32)


def in_words(sink: UOp, target: DeviceSpec) -> UOp:
    """Return `sink` with its sum of products as a sum of DOTs, if `target` can do that."""
    info = Analysis(sink)
    found = contraction(info)
    product = None if found is None else _product(info, found, target)
    if found is None or product is None:
        return sink
    load, other = product.load.stored(), product.other.stored()
    if load is not None and other is not None and found.rows < MANY_ROWS:
        return _read_in_place(sink, found, product, load, other)
    if found.rows < ROWS or (_is_spread(info, found) and block(sink, target) is not sink):
        return sink
    return _in_panels(info, sink, found, product, target)


def _is_spread(info: Analysis, found: Contraction) -> bool:
    """Return whether few rows use a panel, and each row of the panel is on a page of its own.

    If so, and if the columns can be summed in place, panels save no time. Measurements show this,
    with 12 to 31 rows times matrices of 1024 x 1024 and 4096 x 4096, of 8 and 16 bits. The
    exception is a row of exactly a page: 4096 x 4096 of int8 takes 0.57 to 0.85 of the time with
    panels (AVX-512 with VNNI, Zen 5).
    """
    steps = (info.stride(found.load, r) or 0 for r in found.depth)
    far = max(map(abs, steps)) * found.load.dtype.itemsize > PAGE
    return far and found.rows < pack_operands.ROWS


class _Words(NamedTuple):
    """An operand of narrow numbers, read as words.

    Attributes
    ----------
    access : UOp
        The LOAD of one element.
    along : UOp
        The RANGE along which the elements of a word are adjacent.
    step : UOp
        The RANGE of the words.
    parts : int
        Number of elements in a word.
    nothing : int
        Bits of an element that pads the last word, past the end of the depth.
    """

    access: UOp
    along: UOp
    step: UOp
    parts: int
    nothing: int = 0

    @property
    def signed(self) -> bool:
        """Whether the element type is signed."""
        return self.access.dtype.min < 0

    @property
    def left(self) -> int:
        """Number of elements after the last full word; negative if padding fills the last word."""
        return extent(self.along) - extent(self.step) * self.parts

    def stored(self) -> UOp | None:
        """Return a LOAD of a whole word if its elements are contiguous in memory, else None."""
        param, index, *predicates = self.access.src
        size = param.dtype.bits * self.parts
        if predicates or param.op is not Op.PARAM or size != 32 or stride(index, self.along) != 1:
            return None
        if self.left < 0:
            return None
        words = UOp(Op.WORDS, dt.int32, (param,))
        return moved(UOp(Op.LOAD, dt.int32, (words, index)), {self.along: self.step * self.parts})

    def assembled(self) -> UOp:
        """Return a word assembled from single loads; elements past the end are padding."""
        predicated = self.left < 0

        def predicate(index: UOp) -> UOp | None:
            return index < extent(self.along) if predicated else None

        return self._of([self.step * self.parts + n for n in range(self.parts)], predicate)

    def last(self) -> UOp:
        """Return the word of the elements after the last full word."""
        first = extent(self.step) * self.parts
        return self._of([const(first + n, dt.int64) for n in range(self.left)], lambda _: None)

    def _of(self, indices: Sequence[UOp], predicate: Callable[[UOp], UOp | None]) -> UOp:
        """Return a word of the elements at `indices`, in terms of `along`.

        `predicate` returns the condition under which an index is not past the end, or None.
        """
        bits = 32 // self.parts
        total = const(0, dt.int32)
        for number, index in enumerate(indices):
            element = moved(self.access, {self.along: index})
            condition = predicate(index) if number else None
            if condition is not None:
                element = element.replace(src=(*element.src, condition))
            word = self._bits(element)
            if self.signed and number < self.parts - 1:
                word = word & ((1 << bits) - 1)
            if condition is not None and self.nothing:
                word = condition.where(word, const(self.nothing, dt.int32))
            total = total | word << bits * number if number else word
        for number in range(len(indices), self.parts) if self.nothing else ():
            total = total | const(self.nothing, dt.int32) << bits * number
        return total

    @staticmethod
    def _bits(element: UOp) -> UOp:
        """Return `element` as a word, sign- or zero-extended by its type."""
        if element.dtype.is_float:
            element = UOp(Op.BITCAST, dt.int16, (element,))
        return element.cast(dt.int32)

    def word(self) -> UOp:
        """Return a word, loaded whole if possible, else assembled."""
        return self.stored() or self.assembled()


class _Product(NamedTuple):
    """A contraction over words.

    Attributes
    ----------
    load, other : _Words
        The operands.
    depth : tuple of UOp
        The RANGEs of the sum over words.
    dtype : DType
        Type of the sum.
    parts : Parts
        How a DOT of words of `load` and `other`, flipped if need be, reads them.
    flips : bool
        Whether the highest bit of each byte of `other` is flipped, because the instruction does not
        take bytes of these signednesses. The flip changes the signedness, and adds or subtracts
        128. The sums are corrected by 128 times `load`.
    """

    load: _Words
    other: _Words
    depth: tuple[UOp, ...]
    dtype: DType
    parts: Parts
    flips: bool

    def dot(self, load: UOp, other: UOp) -> UOp:
        """Return the DOT of words of both operands, those of `other` flipped if need be."""
        return UOp(Op.DOT, self.dtype, (load, other), self.parts)

    def with_load_flipped(self) -> _Product:
        """Return the product with the bytes of `load` flipped, not those of `other`."""
        number, signed, other_signed = self.parts
        return self._replace(parts=Parts(number, not signed, not other_signed))


def _product(info: Analysis, found: Contraction, target: DeviceSpec) -> _Product | None:
    """Return the contraction over words, or None if the operands or the target do not allow it."""
    total = found.reduce.dtype
    load, other = (_narrow(x, total) for x in (found.value, found.factor))
    if total.bits > 32 or load is None or other is None:
        return None
    kinds = (dt.bfloat16,) if total.is_float else (load.dtype, other.dtype)
    parts = target.dot(*kinds)
    if parts is None:
        return None
    number = parts.number

    def fit(r: UOp) -> tuple[bool, int, int]:
        strides = [info.stride(x, r) for x in (load, other)]
        return extent(r) % number == 0, strides.count(1), extent(r)

    along = max(found.depth, key=fit)
    # With one RANGE of depth, a last word of the remainder is added outside the sum. With several,
    # each row is padded to whole words.
    words = extent(along) // number if len(found.depth) == 1 else -(-extent(along) // number)
    # Padding puts predicates on the operands only: LOADs and checks in their indices must not go
    # past the end.
    if words * number > extent(along) and any(_reads_along(info, x, along) for x in (load, other)):
        return None
    step = new_range(words, free_number(info.sink))
    # Sums start with -0.0. Adding 0.0 would change that to 0.0.
    nothing = NEGATIVE_ZERO if total.is_float else 0
    left, right = _Words(load, along, step, number, nothing), _Words(other, along, step, number)
    depth = (*(r for r in found.depth if r is not along), step)
    flips = number == 4 and parts.other_signed is not right.signed
    return _Product(left, right, depth, total if total.is_float else dt.int32, parts, flips)


def _narrow(x: UOp, total: DType) -> UOp | None:
    """Return the narrow LOAD that `x` is computed from by casts alone, or None.

    An integer LOAD equals `x` modulo ``2**bits``, where ``bits`` are those of `total`.
    """
    if total.is_float:
        return _bits_of_bfloat16(x)
    while x.op is Op.CAST:
        after, before = x.dtype, x.src[0].dtype
        if not after.is_int or not before.is_int:
            return None
        keeps = after.min <= before.min and before.max <= after.max
        if not keeps and after.bits < total.bits:
            return None
        x = x.src[0]
    return x if x.op is Op.LOAD and x.dtype.is_int and x.dtype.bits <= 16 else None


def _bits_of_bfloat16(x: UOp) -> UOp | None:
    """Return the 16-bit LOAD whose bits, as bfloat16, are the value of `x`, or None."""
    while x.op is Op.CAST and x.dtype in _HOLDING_BFLOAT16:
        x = x.src[0]
    if x.dtype is not dt.bfloat16:
        return None
    while x.op is Op.BITCAST:
        x = x.src[0]
    # Loading another float type converts it, which turns signaling NaNs into quiet ones.
    whole = x.dtype.is_int or x.dtype is dt.bfloat16
    return x if x.op is Op.LOAD and whole else None


def _reads_along(info: Analysis, access: UOp, along: UOp) -> bool:
    """Return whether the index of `access` contains a LOAD or check that varies with `along`."""
    own = toposort([access.src[1]])
    return any(u.op in (Op.LOAD, Op.BOUND) and along in info.deps[u] for u in own)


def _flipped(word: UOp) -> UOp:
    return word ^ const(FLIP, dt.int32)


def _sum(value: UOp, depth: Sequence[UOp]) -> UOp:
    return UOp(Op.REDUCE, value.dtype, (value, *depth), Op.ADD)


# Few rows ----------------------------------------------------------------------------------------


def _read_in_place(
    sink: UOp, found: Contraction, product: _Product, load: UOp, other: UOp
) -> UOp:
    """Return `sink` with the words of both operands read in place.

    Those of `load` are flipped if need be.
    """
    depth = product.depth
    left = product.load.left > 0
    last, last_other = (x.last() if left else None for x in (product.load, product.other))

    if not product.flips:
        total = _sum(product.dot(load, other), depth)
        if last is not None and last_other is not None:
            total = total + product.dot(last, last_other)
    else:
        # The correction is computed from the operand with fewer elements.
        product = product.with_load_flipped()
        free = free_number(sink) + 1
        own = [new_range(extent(r), free + k) for k, r in enumerate(depth)]
        far = moved(other, dict(zip(depth, own, strict=True)))
        flip = const(FLIP, dt.int32)
        total = _sum(product.dot(_flipped(load), other), depth)
        total = total - _sum(product.dot(flip, far), own)
        if last is not None and last_other is not None:
            total = total + product.dot(_flipped(last), last_other)
            total = total - product.dot(flip, last_other)
    return substitute([sink], {found.reduce: total.cast(found.reduce.dtype)})[0]


# Many rows ---------------------------------------------------------------------------------------


class _Sizes(NamedTuple):
    """Numbers of columns and rows of a block whose words are copied, and of columns of a panel."""

    columns: int
    rows: int
    width: int


def _sizes(
    row: UOp, found: Contraction, product: _Product, target: DeviceSpec, *, copied: bool
) -> _Sizes | None:
    """Return the largest block that fits half of the L2 cache and the stack; None if none does.

    The block's words of the other operand count only if they are `copied`, not read in place.
    """
    lanes, size = target.lanes(4), extent(found.columns)
    deep = math.prod(map(extent, product.depth)) + (product.load.left > 0)
    room = min(LOCAL_BYTES, target.l2_bytes // 2) // 4
    widths = [size] if size <= 2 * SIDES[0] and size % lanes else _widths(size, lanes)
    for columns in widths:
        most = min(SIDES[1], SIDES[0] * SIDES[1] // columns)
        for rows in _heights(extent(row), most) if copied else [0]:
            if (columns + rows) * deep + columns * product.flips <= room:
                return _Sizes(columns, rows, lanes if columns % lanes == 0 else columns)
    return None


def _heights(size: int, most: int) -> list[int]:
    """Return block heights, the largest first.

    A height is left out if a smaller one covers the `size` rows with as many blocks.
    """
    heights = range(min(most, size), max(1, min(ROWS, size)) - 1, -1)
    return [n for n in heights if -(-size // -(-size // n)) == n]


def _widths(size: int, lanes: int) -> list[int]:
    """Return block widths. Those with the least computation and copying come first."""

    def cost(width: int) -> tuple[int, int]:
        return -(-size // width) * (width + AGAIN), width

    most = WIDEST if size >= SHARED * WIDEST else SIDES[0]
    return sorted(range(lanes, max(most, lanes) + 1, lanes), key=cost)


def _in_panels(
    info: Analysis, sink: UOp, found: Contraction, product: _Product, target: DeviceSpec
) -> UOp:
    """Return `sink` with the words of a block of columns, and of rows, copied to panels."""
    deps = info.deps
    varying = deps[product.other.access] - deps[product.load.access]
    rows = sorted(  # a summed RANGE that this operand alone depends on is not a row
        (r for r in varying.difference(found.depth) if is_fixed(r)),
        key=lambda r: (extent(r), -int(r.arg)),
    )
    copied = product.flips or product.other.stored() is None
    if not rows or math.prod(map(extent, product.depth)) < LEAST:
        return sink
    # Copies are filled completely, including elements that nothing reads: no check may fail there.
    if copied and any(u.op is Op.BOUND for u in toposort([product.other.access])):
        return sink
    sizes = _sizes(rows[-1], found, product, target, copied=copied)
    if sizes is None:
        return sink
    ends = extent(found.columns) % sizes.columns, copied and extent(rows[-1]) % sizes.rows
    if any(ends) and reads_what_it_writes(info):
        return sink
    return _Panels(sink, found, product, rows[-1], sizes, copied=copied).write()


class _Panels:
    """Rewrites a contraction over words, so that it reads copies of its operands' words."""

    def __init__(
        self,
        sink: UOp,
        found: Contraction,
        product: _Product,
        row: UOp,
        sizes: _Sizes,
        *,
        copied: bool,
    ) -> None:
        self.sink, self.found, self.product = sink, found, product
        self.row, self.sizes, self.copied = row, sizes, copied
        self.free = itertools.count(free_number(sink) + 1)
        self.block = self._new(-(-extent(found.columns) // sizes.columns))
        self.rows = self._new(-(-extent(row) // sizes.rows)) if copied else None
        self.panel = self._new(sizes.columns // sizes.width)
        self.line = self._new(sizes.rows if copied else extent(row))
        self.column = self._new(sizes.width)

    def _new(self, size: int) -> UOp:
        return new_range(size, next(self.free))

    def _own(self, *ranges: UOp) -> tuple[UOp, ...]:
        """Return new RANGEs with the same extents as `ranges`."""
        return tuple(self._new(extent(r)) for r in ranges)

    def _column(self, panel: UOp, column: UOp) -> UOp:
        first = start_of(self.block, self.sizes.columns, extent(self.found.columns))
        return first + panel * self.sizes.width + column

    def _line(self, line: UOp) -> UOp:
        if self.rows is None:
            return line
        return start_of(self.rows, self.sizes.rows, extent(self.row)) + line

    def write(self) -> UOp:
        """Return the rewritten kernel."""
        product, depth = self.product, self.product.depth
        left = product.load.left > 0
        load, rows = self._packed(left=False), self._rows(left=False)
        total = _sum(product.dot(load, rows), depth)
        last = self._packed(left=True) if left else None
        if last is not None:
            total = total + product.dot(last, self._rows(left=True))
        if product.flips:
            total = total - self._more(load, last)
        total = total.cast(self.found.reduce.dtype)
        [sink] = substitute([self.sink], {self.found.reduce: total})
        replacements = {
            self.found.columns: self._column(self.panel, self.column),
            self.row: self._line(self.line),
        }
        return moved(moved(sink, replacements), self._outside())

    def _outside(self) -> dict[UOp, UOp]:
        """Return the RANGEs over blocks that replace the temporary ones, with their final numbers.

        They take the numbers of the former RANGEs of rows and columns, which must be replaced
        before. Blocks of columns are outermost, because to fill their panels takes longest. Blocks
        of rows, panels and the rest follow.
        """
        first, second = sorted((int(self.row.arg), int(self.found.columns.arg)))
        found = {self.block: new_range(extent(self.block), first)}
        if self.rows is not None:
            found[self.rows] = new_range(extent(self.rows), second)
        return found

    def _packed(self, *, left: bool) -> UOp:
        """Return a word of a column, read from the panels of a block.

        With `left`, return the word of the remaining elements of the depth.
        """
        load = self.product.load
        walked = (self.panel, *(() if left else self.product.depth), self.column)
        own = self._own(*walked)
        at = dict(zip(walked, own, strict=True))
        at[self.found.columns] = self._column(at.pop(self.panel), at.pop(self.column))
        copy = moved(load.last() if left else load.word(), at)
        return UOp(Op.LOAD, dt.int32, (UOp(Op.LOCAL, dt.int32, (copy, *own)), flat_index(walked)))

    def _rows(self, *, left: bool) -> UOp:
        """Return a word of the other operand, from the copy of a block of rows if there is one."""
        other, depth = self.product.other, () if left else self.product.depth
        word = other.last() if left else other.word()
        if not self.copied:
            return word
        # The copy runs along the contiguous RANGE, so that it uses whole vectors.
        along = stride(other.access.src[1], self.row) == 1
        walked = (*depth, self.line) if along else (self.line, *depth)
        own = self._own(*walked)
        at = dict(zip(walked, own, strict=True))
        line = at.pop(self.line)
        word = _flipped(word) if self.product.flips else word
        copy = moved(word, {self.row: self._line(line), **at})
        return UOp(Op.LOAD, dt.int32, (UOp(Op.LOCAL, dt.int32, (copy, *own)), flat_index(walked)))

    def _more(self, load: UOp, last: UOp | None) -> UOp:
        """Return what the flipped bits add to the results of a column, as a LOAD from an array.

        The array holds this correction for all columns of a block.
        """
        walked = (self.panel, self.column, *self.product.depth)
        panel, column, *deep = own = self._own(*walked)
        at = dict(zip(walked, own, strict=True))
        flip = const(FLIP, dt.int32)
        total = _sum(self.product.dot(moved(load, at), flip), deep)
        if last is not None:
            total = total + self.product.dot(moved(last, at), flip)
        local = UOp(Op.LOCAL, dt.int32, (total, panel, column))
        return UOp(Op.LOAD, dt.int32, (local, flat_index((self.panel, self.column))))
