"""Blocked statistics: computes sums over rows from sums over blocks of the rows.

If the sum over a block is known for one shift `m`, it can be computed for any other shift `c`:

    sum(exp(u - c))   = exp(m - c) * sum(exp(u - m))
    sum(u - c)        = sum(u - m) + n * (m - c)
    sum((u - c) ** 2) = sum((u - m) ** 2) + (m - c) * (2 * sum(u - m) + n * (m - c))

for the `n` elements of the block. `m` is the block's own maximum or mean. Milakov and Gimelshein
(2018, arXiv:1805.02867) use the first formula to normalize a softmax online. Chan, Golub and
LeVeque (The American Statistician 37, 1983) use the last one to combine variances.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kernelrt.ir import Op, UOp, const
from kernelrt.ir.constants import full
from kernelrt.ir.origin import inherit
from kernelrt.schedule.fuse.fusion_cost import elements

if TYPE_CHECKING:
    from kernelrt.ir import Dim

__all__ = ["Shifted", "Walk", "combined", "expanded", "reshaped", "whole"]


class Walk(NamedTuple):
    """A way to cut the rows of a value into blocks.

    Attributes
    ----------
    axes : tuple of int
        Axes of a row.
    axis : int
        Axis that is cut. Later axes are inside blocks, earlier ones are outside.
    length : int
        Number of elements of `axis` in a block.
    """

    axes: tuple[int, ...]
    axis: int
    length: int


class Shifted(NamedTuple):
    """The terms of a sum, which are ``exp(u - c)``, ``u - c`` or ``(u - c) ** 2``.

    Attributes
    ----------
    op : Op
        EXP for ``exp(u - c)``, SUB for ``u - c``, and MUL for ``(u - c) ** 2``.
    row : UOp
        The value `u`.
    shift : UOp
        The shift `c`, with size 1 along the axes of the sum.
    """

    op: Op
    row: UOp
    shift: UOp


class _Piece(NamedTuple):
    """Blocks of equal length.

    Attributes
    ----------
    value : UOp
        Elements of all blocks.
    within : tuple of int
        Axes of a block.
    blocks : tuple of int
        Axes that number the blocks of a row.
    """

    value: UOp
    within: tuple[int, ...]
    blocks: tuple[int, ...]

    @property
    def kept(self) -> tuple[Dim, ...]:
        """The shape of an array with one number for each block."""
        return tuple(1 if a in self.within else d for a, d in enumerate(self.value.shape))

    def sum_of(self, x: UOp, reducer: Op, *, stored: bool) -> UOp:
        """Reduce `x` to one number for each block. If `stored` is true, the numbers are stored."""
        out = UOp(Op.REDUCE_AXIS, x.dtype, (x,), (reducer, self.within))
        out = UOp(Op.CONTIGUOUS, x.dtype, (out,)) if stored else out
        return reshaped(out, self.kept)

    def less(self, shift: UOp) -> UOp:
        """Subtract `shift`, which has one number for each block, from the blocks' elements."""
        return self.value.alu(Op.SUB, expanded(shift, self.value.shape))


def _pieces(row: UOp, walk: Walk) -> list[_Piece]:
    """Return the blocks of full length, and the shorter last block of each row, if there is one."""
    size = row.shape[walk.axis]
    assert isinstance(size, int)
    rest = size % walk.length
    before = tuple(a for a in walk.axes if a < walk.axis)
    after = tuple(a for a in walk.axes if a > walk.axis)
    blocks = row if not rest else _between(row, walk.axis, 0, size - rest)
    parts = (size // walk.length, walk.length)
    shape = (*row.shape[: walk.axis], *parts, *row.shape[walk.axis + 1 :])
    inner = (walk.axis + 1, *(a + 1 for a in after))
    pieces = [_Piece(reshaped(blocks, shape), inner, (*before, walk.axis))]
    if rest:
        last = _between(row, walk.axis, size - rest, size)
        pieces.append(_Piece(last, (walk.axis, *after), before))
    return pieces


def combined(shifted: Shifted, walk: Walk, node: UOp) -> UOp:
    """Compute the sum `node` from statistics of blocks."""
    op, row, shift = shifted
    sums = []
    for piece in _pieces(row, walk):
        about = expanded(reshaped(shift, _ones(shift.shape, walk, piece)), piece.kept)
        known = _of_powers if op is Op.EXP else _of_deviations
        sums.append(_over_blocks(known(op, piece, about), Op.ADD, piece, node))
    return _joined(sums, Op.ADD, node)


def _of_powers(_op: Op, piece: _Piece, about: UOp) -> UOp:
    """Return the sum of ``exp(u - about)`` for each block."""
    greatest = piece.sum_of(piece.value, Op.MAX, stored=False)
    # An infinite maximum is not subtracted: a block of only -inf sums to 0, one with inf to inf.
    powers = piece.less(_unless_infinite(greatest, greatest)).alu(Op.EXP)
    own = piece.sum_of(piece.value, Op.MAX, stored=True)
    total = piece.sum_of(powers, Op.ADD, stored=True)
    return total.alu(Op.MUL, own.alu(Op.SUB, about).alu(Op.EXP))


def _of_deviations(op: Op, piece: _Piece, about: UOp) -> UOp:
    """Return the sum of ``u - about``, or of ``(u - about) ** 2``, for each block."""
    number = elements(tuple(piece.value.shape[a] for a in piece.within))
    count = full(const(number, about.dtype), piece.kept)
    # An approximate mean is sufficient; an exact division would need a kernel of its own.
    share = full(const(1 / number, about.dtype), piece.kept)
    rest = piece.less(piece.sum_of(piece.value, Op.ADD, stored=False).alu(Op.MUL, share))
    own = piece.sum_of(piece.value, Op.ADD, stored=True).alu(Op.MUL, share)
    gap = own.alu(Op.SUB, about)
    total = piece.sum_of(rest, Op.ADD, stored=True)
    more = gap.alu(Op.MUL, count)
    if op is Op.MUL:
        twice = total.alu(Op.MUL, full(const(2, about.dtype), piece.kept))
        more = gap.alu(Op.MUL, twice.alu(Op.ADD, more))
        total = piece.sum_of(rest.alu(Op.MUL, rest), Op.ADD, stored=True)
    # If the sum of a block overflows, deviations from it are infinite, as are those from the mean.
    return total.alu(Op.ADD, _unless_infinite(own, more))


def whole(row: UOp, walk: Walk, reducer: Op, node: UOp) -> UOp:
    """Compute the reduction `node` of `row` from reductions of blocks."""
    parts = [
        _over_blocks(p.sum_of(p.value, reducer, stored=True), reducer, p, node)
        for p in _pieces(row, walk)
    ]
    return _joined(parts, reducer, node)


def _over_blocks(x: UOp, reducer: Op, piece: _Piece, node: UOp) -> UOp:
    """Reduce one number per block to one number per row."""
    if piece.blocks:
        x = UOp(Op.REDUCE_AXIS, x.dtype, (x,), (reducer, piece.blocks))
    return reshaped(x, node.shape)


def _joined(parts: list[UOp], reducer: Op, node: UOp) -> UOp:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.alu(reducer, part)
    inherit(whole, node)
    return whole


def _unless_infinite(number: UOp, value: UOp) -> UOp:
    """Return `value`, or 0 where `number` is infinite."""
    limit = full(const(math.inf, number.dtype), number.shape)
    zero = full(const(0, value.dtype), value.shape)
    return number.alu(Op.ABS).eq(limit).where(zero, value)


def _ones(shape: tuple[Dim, ...], walk: Walk, piece: _Piece) -> tuple[Dim, ...]:
    """Insert size-1 axes into `shape` until it has as many axes as `piece`."""
    more = len(piece.value.shape) - len(shape)
    return (*shape[: walk.axis], *(1,) * more, *shape[walk.axis :])


def _between(x: UOp, axis: int, low: int, high: int) -> UOp:
    bounds = tuple((low, high) if a == axis else (0, d) for a, d in enumerate(x.shape))
    return UOp(Op.SHRINK, x.dtype, (x,), bounds)


def reshaped(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    """Return `x` with another shape."""
    return x if x.shape == shape else UOp(Op.RESHAPE, x.dtype, (x,), shape)


def expanded(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    """Broadcast `x` along its axes of size 1."""
    return x if x.shape == shape else UOp(Op.EXPAND, x.dtype, (x,), shape)
