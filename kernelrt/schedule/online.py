"""Reductions of a row that depend on another reduction of it, in one walk where it fills no cache.

The sum of ``exp(u - c)``, where `c` is the greatest `u`, needs `c` before it begins; so do the
deviations from a mean, and their squares. A row that is longer than a cache would come from memory
for each. But what a sum over a block is about another shift than `c` tells what it is about `c`:

    sum(exp(u - c))   = exp(m - c) * sum(exp(u - m))
    sum(u - c)        = sum(u - m) + n * (m - c)
    sum((u - c) ** 2) = sum((u - m) ** 2) + (m - c) * (2 * sum(u - m) + n * (m - c))

for the `n` elements of the block and any `m`: here its own maximum, or mean. So a block is walked
twice while it is in the caches of a core, its sums are stored, and few numbers are left to be
combined. The first is how Milakov and Gimelshein (2018, arXiv:1805.02867) normalize a softmax
online, the last how Chan, Golub and LeVeque (The American Statistician 37, 1983) join variances.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt.device.costs import costs_of
from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.ir.constants import full, uniform
from kernelrt.ir.origin import inherit
from kernelrt.ir.ops import ALU
from kernelrt.ir.shape import is_static
from kernelrt.schedule.cost import elements, strip
from kernelrt.schedule.lookups import looked_up, row_of_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir import Dim

__all__ = ["fold_online"]

#: Blocks are larger than the first cache, so that a kernel asks for the next one while it goes over
#: one again (``codegen.streams.next_rows``), and at most this many times as large: of 64, 80, 160
#: and 400 kB beside a cache of 48 the first is the fastest, the last takes 5 % longer
#: (``python -m bench.report rows``).
_LARGEST: Final = 4
#: Nodes below a sum that are looked at for where its row lies.
_DEEP: Final = 32


class _Walk(NamedTuple):
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


class _Shifted(NamedTuple):
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


def fold_online(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Equal graphs in which rows that no cache of a core holds are walked once for their statistics.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage.
    device : DeviceSpec
        What the kernels are for.
    """
    nodes = list(toposort(roots))
    checked: set[UOp] = set()
    found: dict[UOp, _Shifted] = {}
    walks: dict[tuple[UOp, tuple[int, ...]], _Walk] = {}
    for node in nodes:
        # What looks up no element may fail at none: parts are computed wherever they are wanted.
        if node.op is Op.BOUND or any(s in checked for s in node.src):
            checked.add(node)
        elif node.op is Op.REDUCE_AXIS and node.arg[0] is Op.ADD:
            shifted = _shifted(node)
            walk = shifted and _walk(shifted.row, node.arg[1], device)
            if shifted and walk:
                found[node] = shifted
                walks[shifted.row, node.arg[1]] = walk
    if not walks:
        return list(roots)
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        row = row_of_one(node) if node.op is Op.REDUCE_AXIS else None
        if row and (row, node.arg[1]) in walks:
            new = looked_up(new)
            inherit(new, node)
        elif node in found:
            op, row, shift = found[node]
            walk = walks[row, node.arg[1]]
            new = _combined(_Shifted(op, done[row], done[shift]), walk, node)
        elif node.op is Op.REDUCE_AXIS and (node.src[0], node.arg[1]) in walks:
            # Also what does not depend on another reduction: it is had in the same walk.
            walk = walks[node.src[0], node.arg[1]]
            new = _whole(new.src[0], walk, node.arg[0], node)
        done[node] = new
    return [done[root] for root in roots]


# What is found


def _shifted(node: UOp) -> _Shifted | None:
    """What the sum `node` is of, if its shift is a reduction of the same rows."""
    (x,), (_, axes) = node.src, node.arg
    op, difference = Op.SUB, x
    if x.op is Op.EXP or (x.op is Op.MUL and x.src[0] is x.src[1]):
        op, difference = x.op, x.src[0]
    if difference.op is not Op.SUB or not node.dtype.is_float or node.dtype.is_narrow:
        return None
    row, shift = difference.src
    if shift.op is not Op.EXPAND or not is_static(row.shape):
        return None
    shift = shift.src[0]
    if any(shift.shape[a] != 1 for a in axes):
        return None
    known = _is_greatest if op is Op.EXP else _is_mean
    return _Shifted(op, row, shift) if known(shift, row, axes) else None


def _is_greatest(shift: UOp, row: UOp, axes: tuple[int, ...]) -> bool:
    """Whether `shift` is the maximum of `row`, or in its place, where it is infinite, a number."""
    if shift.op is Op.WHERE:
        numbers = [n for n in map(uniform, shift.src[1:]) if n is not None]
        others = [s for s in shift.src[1:] if uniform(s) is None]
        if len(others) != 1 or not all(math.isfinite(n.arg) for n in numbers):
            return False
        [shift] = others
    return _reduces(shift, Op.MAX, row, axes)


def _is_mean(shift: UOp, row: UOp, axes: tuple[int, ...]) -> bool:
    """Whether `shift` is the sum of `row`, times or over a number."""
    if shift.op not in (Op.DIV, Op.MUL):
        return False
    number = uniform(shift.src[1])
    known = number is not None and math.isfinite(number.arg) and number.arg != 0
    return known and _reduces(shift.src[0], Op.ADD, row, axes)


def _reduces(node: UOp, reducer: Op, row: UOp, axes: tuple[int, ...]) -> bool:
    node = strip(node)
    return node.op is Op.REDUCE_AXIS and node.src[0] is row and node.arg == (reducer, axes)


# Where it gains


def _walk(row: UOp, axes: tuple[int, ...], device: DeviceSpec) -> _Walk | None:
    """How to cut the rows of `row` along `axes`; None where that gains nothing."""
    sizes = [d for d in row.shape if isinstance(d, int)]
    others = (a for a in range(axes[0], len(sizes)) if a not in axes)
    if any(sizes[a] != 1 for a in others) or not _lies_along(row, axes[-1]):
        return None
    itemsize = _stored(row).dtype.itemsize
    length = math.prod(sizes[a] for a in axes)
    # A row and the next one, for which it is asked meanwhile, stay in the second cache.
    if 2 * length * itemsize <= device.l2_bytes:
        return None
    least = device.l1_bytes // itemsize + 1
    within = 1
    for axis in reversed(axes):
        if within * sizes[axis] >= least:
            break
        within *= sizes[axis]
    walk = _Walk(axes, axis, _cut(sizes[axis], -(-least // within)))
    costs = costs_of(device)
    count = math.prod(sizes)
    spared = costs.byte(2 * length * itemsize) - costs.byte(_LARGEST * device.l1_bytes)
    stored = row.dtype.itemsize * count // (walk.length * within)
    # Three sums at most, written and read; a kernel that combines them, and one for what is left.
    lost = 2 * costs.call + 6 * stored * costs.byte(stored)
    return walk if count * itemsize * spared > lost else None


def _cut(size: int, least: int) -> int:
    """The length of blocks of at least `least` of an axis: a divisor, unless all are long."""
    parts = size // least
    for count in range(parts, max(1, parts // _LARGEST), -1):
        if size % count == 0:
            return size // count
    return min(size, least)


def _stored(row: UOp) -> UOp:
    """What is read for `row`: it is widened on the way."""
    while row.op in (Op.CAST, Op.RESHAPE):
        row = row.src[0]
    return row


def _lies_along(row: UOp, axis: int) -> bool:
    """Whether the elements of `row` along `axis` are read side by side."""
    seen = 0
    wanted = [(row, axis)]
    while wanted:
        node, axis = wanted.pop()
        seen += 1
        if seen > _DEEP:
            return False
        if uniform(node) is not None or node.op is Op.IOTA:
            continue
        if node.op is Op.PERMUTE:
            wanted.append((node.src[0], node.arg[axis]))
        elif node.op is Op.EXPAND and node.src[0].shape[axis] == 1:
            continue
        elif node.op in ALU or node.op in (Op.EXPAND, Op.SHRINK, Op.FLIP):
            wanted += [(s, axis) for s in node.src]
        elif any(d != 1 for d in node.shape[axis + 1 :]):
            return False
        elif node.op is Op.RESHAPE and node.src[0].shape:
            long = [a for a, d in enumerate(node.src[0].shape) if d != 1]
            wanted.append((node.src[0], max(long, default=0)))
    return True


# What becomes of it


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
        return _reshaped(out, self.kept)

    def less(self, shift: UOp) -> UOp:
        """The elements, less one number a block."""
        return self.value.alu(Op.SUB, _expanded(shift, self.value.shape))


def _pieces(row: UOp, walk: _Walk) -> list[_Piece]:
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
    pieces = [_Piece(_reshaped(blocks, shape), inner, (*before, walk.axis))]
    if rest:
        last = _between(row, walk.axis, size - rest, size)
        pieces.append(_Piece(last, (walk.axis, *after), before))
    return pieces


def _combined(shifted: _Shifted, walk: _Walk, node: UOp) -> UOp:
    """The sum `node`, of what is known of blocks."""
    op, row, shift = shifted
    sums = []
    for piece in _pieces(row, walk):
        about = _expanded(_reshaped(shift, _ones(shift.shape, walk, piece)), piece.kept)
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


def _whole(row: UOp, walk: _Walk, reducer: Op, node: UOp) -> UOp:
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
    return _reshaped(x, node.shape)


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


def _ones(shape: tuple[Dim, ...], walk: _Walk, piece: _Piece) -> tuple[Dim, ...]:
    """`shape` with as many axes as `piece` has."""
    more = len(piece.value.shape) - len(shape)
    return (*shape[: walk.axis], *(1,) * more, *shape[walk.axis :])


def _between(x: UOp, axis: int, low: int, high: int) -> UOp:
    bounds = tuple((low, high) if a == axis else (0, d) for a, d in enumerate(x.shape))
    return UOp(Op.SHRINK, x.dtype, (x,), bounds)


def _reshaped(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    return x if x.shape == shape else UOp(Op.RESHAPE, x.dtype, (x,), shape)


def _expanded(x: UOp, shape: tuple[Dim, ...]) -> UOp:
    return x if x.shape == shape else UOp(Op.EXPAND, x.dtype, (x,), shape)
