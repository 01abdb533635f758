"""Blocked statistics: sums over rows from sums over blocks of them.

What a sum over a block is about one shift `m` tells what it is about another, `c`:

    sum(exp(u - c))   = exp(m - c) * sum(exp(u - m))
    sum(u - c)        = sum(u - m) + n * (m - c)
    sum((u - c) ** 2) = sum((u - m) ** 2) + (m - c) * (2 * sum(u - m) + n * (m - c))

for the `n` elements of the block. As `m` it has its own maximum, or mean. The first is how Milakov
and Gimelshein (2018, arXiv:1805.02867) normalize a softmax online, the last how Chan, Golub and
LeVeque (The American Statistician 37, 1983) join variances.
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
    """How the rows of a value are cut.

    Attributes
    ----------
    axes : tuple of int
        Those of a row.
    axis : int
        The one that is cut; those after it lie within blocks, those before it outside.
    length : int
        Elements of `axis` in a block.
    """

    axes: tuple[int, ...]
    axis: int
    length: int


class Shifted(NamedTuple):
    """What a sum is of: ``exp(u - c)``, ``u - c`` or its square.

    Attributes
    ----------
    op : Op
        EXP, SUB or MUL.
    row : UOp
        The `u`.
    shift : UOp
        The `c`, with size 1 along the axes of the sum.
    """

    op: Op
    row: UOp
    shift: UOp


class _Piece(NamedTuple):
    """Blocks of one length.

    Attributes
    ----------
    value : UOp
        The elements.
    within : tuple of int
        Axes of a block.
    apart : tuple of int
        Axes that tell the blocks of a row apart.
    """

    value: UOp
    within: tuple[int, ...]
    apart: tuple[int, ...]

    @property
    def kept(self) -> tuple[Dim, ...]:
        """The shape of one number a block."""
        return tuple(1 if a in self.within else d for a, d in enumerate(self.value.shape))

    def sum_of(self, x: UOp, reducer: Op, *, stored: bool) -> UOp:
        """One number for the elements `x` of each block, perhaps in memory."""
        out = UOp(Op.REDUCE_AXIS, x.dtype, (x,), (reducer, self.within))
        out = UOp(Op.CONTIGUOUS, x.dtype, (out,)) if stored else out
        return reshaped(out, self.kept)

    def less(self, shift: UOp) -> UOp:
        """The elements, less one number a block."""
        return self.value.alu(Op.SUB, expanded(shift, self.value.shape))


def _pieces(row: UOp, walk: Walk) -> list[_Piece]:
    """The blocks, and in a piece of its own what is left where their length divides no axis."""
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
    """The sum `node`, of what is known of blocks."""
    op, row, shift = shifted
    sums = []
    for piece in _pieces(row, walk):
        about = expanded(reshaped(shift, _ones(shift.shape, walk, piece)), piece.kept)
        known = _of_powers if op is Op.EXP else _of_deviations
        sums.append(_over_blocks(known(op, piece, about), Op.ADD, piece, node))
    return _joined(sums, Op.ADD, node)


def _of_powers(_op: Op, piece: _Piece, about: UOp) -> UOp:
    """The sum of ``exp(u - about)`` over each block."""
    greatest = piece.sum_of(piece.value, Op.MAX, stored=False)
    # Of nothing but -inf the sum is 0, of inf it is inf: what is added to that decides.
    powers = piece.less(_unless_infinite(greatest, greatest)).alu(Op.EXP)
    own = piece.sum_of(piece.value, Op.MAX, stored=True)
    total = piece.sum_of(powers, Op.ADD, stored=True)
    return total.alu(Op.MUL, own.alu(Op.SUB, about).alu(Op.EXP))


def _of_deviations(op: Op, piece: _Piece, about: UOp) -> UOp:
    """The sum of ``u - about``, or of its square, over each block."""
    number = elements(tuple(piece.value.shape[a] for a in piece.within))
    count = full(const(number, about.dtype), piece.kept)
    # Near the mean is near enough; a division would be worth a kernel of its own.
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
    # Where the sum of a block overflows, deviations from it are as infinite as those from the mean.
    return total.alu(Op.ADD, _unless_infinite(own, more))


def whole(row: UOp, walk: Walk, reducer: Op, node: UOp) -> UOp:
    """The reduction `node` of `row`, of reductions of blocks."""
    parts = [
        _over_blocks(p.sum_of(p.value, reducer, stored=True), reducer, p, node)
        for p in _pieces(row, walk)
    ]
    return _joined(parts, reducer, node)


def _over_blocks(x: UOp, reducer: Op, piece: _Piece, node: UOp) -> UOp:
    """One number a row, of one a block."""
    if piece.apart:
        x = UOp(Op.REDUCE_AXIS, x.dtype, (x,), (reducer, piece.apart))
    return reshaped(x, node.shape)


def _joined(parts: list[UOp], reducer: Op, node: UOp) -> UOp:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.alu(reducer, part)
    inherit(whole, node)
    return whole


def _unless_infinite(number: UOp, value: UOp) -> UOp:
    """`value`, but 0 where `number` is infinite."""
    limit = full(const(math.inf, number.dtype), number.shape)
    zero = full(const(0, value.dtype), value.shape)
    return number.alu(Op.ABS).eq(limit).where(zero, value)


def _ones(shape: tuple[Dim, ...], walk: Walk, piece: _Piece) -> tuple[Dim, ...]:
    """`shape` with as many axes as `piece` has."""
    more = len(piece.value.shape) - len(shape)
    return (*shape[: walk.axis], *(1,) * more, *shape[walk.axis :])


def _between(x: UOp, axis: int, low: int, high: int) -> UOp:
    bounds = tuple((low, high) if a == axis else (0, d) for a, d in enumerate(x.shape))
    return UOp(Op.SHRINK, x.dtype, (x,), bounds)


def reshaped(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    """`x` in another shape."""
    return x if x.shape == shape else UOp(Op.RESHAPE, x.dtype, (x,), shape)


def expanded(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    """`x`, whose axes of size 1 grow."""
    return x if x.shape == shape else UOp(Op.EXPAND, x.dtype, (x,), shape)
