"""One-pass reductions: dependent reductions of a row in one pass over it, where it fits a cache.

The sum of ``exp(u - c)``, where `c` is the greatest `u`, needs `c` before it begins; so do the
deviations from a mean, and their squares. A row that is longer than a cache would come from memory
for each. Here it is cut into blocks, each of which is walked twice while it is in the caches of a
core; `blocked_statistics.py` has what is stored of a block, and what the row makes of that.

What a graph means says where this may be done, not which method made it; what is counted from
shapes and the target says where it gains.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.device.costs import costs_of
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.constants import uniform
from kernelrt.ir.ops import ALU
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import is_static
from kernelrt.schedule.fuse.fusion_cost import FEW, contraction_reuse, elements, strip
from kernelrt.schedule.rewrite.axis_maps import axes_below, innermost
from kernelrt.schedule.rewrite.blocked_statistics import Shifted, Walk, combined, whole
from kernelrt.schedule.rewrite.one_hot_gather import looked_up, row_of_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = ["fold_online"]

#: Blocks of rows are larger than the first cache, so that a kernel asks for the next one while it
#: goes along one again (``loops.passes.prefetch_streams.next_rows``), at most this many times as
#: large: of 64, 80, 160 and 400 kB beside a first cache of 48 the first is the fastest for
#: ``logsumexp`` of 8 x 2,000,000, the last takes 5% longer (Zen 5).
_LARGEST: Final = 4
#: Parts of the second cache that a block of columns takes at least, and at most: half as many bytes
#: of 40000 x 400 and 16000 x 1024 took up to half as long again for their variances.
_LEAST_PART: Final = 4
_MOST_PART: Final = 2
#: Elements of a row that a block has at least. With 16 to 50 the variances of 62500 x 256 to
#: 16000 x 1024 gained little or nothing, with 64 to 128 they took two thirds of the time.
_SHORTEST: Final = 64
#: Nodes below a sum that are looked at for where its row lies.
_DEEP: Final = 32
#: What has a buffer of its own: whatever was checked below it has been.
_STORED: Final = frozenset({Op.BUFFER, Op.CONTIGUOUS, Op.CALL, Op.REGION})


def fold_online(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Equal graphs in which statistics of rows that no cache holds are had in one walk.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage.
    device : DeviceSpec
        What the kernels are for.
    """
    nodes = list(toposort(roots))
    found = _found(nodes, device)
    if not found:
        return list(roots)
    walks = {(shifted.row, node.arg[1]): walk for node, (shifted, walk) in found.items()}
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        if node in found:
            shifted, walk = found[node]
            row, shift = done[shifted.row], done[shifted.shift]
            new = combined(Shifted(shifted.op, row, shift), walk, node)
        elif node.op is Op.REDUCE_AXIS:
            # What waits for no other reduction is had in the same walk, or looked up.
            reducer, axes = node.arg
            searched = row_of_one(node)
            if (node.src[0], axes) in walks:
                new = whole(new.src[0], walks[node.src[0], axes], reducer, node)
            elif searched is not None and (searched, axes) in walks:
                new = looked_up(new)
                inherit(new, node)
        done[node] = new
    return [done[root] for root in roots]


# What is found


def _found(nodes: Sequence[UOp], device: DeviceSpec) -> dict[UOp, tuple[Shifted, Walk]]:
    """Sums that are worth it, what they are of, and how their rows are cut."""
    checked: set[UOp] = set()
    found: dict[UOp, tuple[Shifted, Walk]] = {}
    for node in nodes:
        # What looks up no element may fail at none: parts are computed wherever they are wanted.
        stored = contraction_reuse(node) > 0 or node.op in _STORED
        if node.op is Op.BOUND or (not stored and any(s in checked for s in node.src)):
            checked.add(node)
        elif node.op is Op.REDUCE_AXIS and node.arg[0] is Op.ADD:
            shifted = _shifted(node)
            walk = shifted and _walk(shifted.row, node.arg[1], device)
            if shifted and walk:
                found[node] = shifted, walk
    if found:
        _leave_rows(nodes, found, device)
    return found


def _leave_rows(
    nodes: Sequence[UOp], found: dict[UOp, tuple[Shifted, Walk]], device: DeviceSpec
) -> None:
    """Remove reductions from `found` that a kernel computes row by row and then reads again.

    Few rows have no such kernel: reductions to few elements are kernels of their own
    (`split_reductions.py`). If there are many rows, the kernel reduces a row and then divides its
    elements while the last cache still holds them. With all statistics computed first, the elements
    would come from memory.
    """
    spread = {s for node in nodes if node.op is Op.EXPAND for s in _sums_below(node, found)}
    rows = set()
    for node in spread:
        row = found[node][0].row
        read_and_written = 2 * _bytes(row) // elements(node.shape)
        if elements(node.shape) > FEW and read_and_written <= device.l3_bytes:
            rows.add(row)
    for node in [n for n, (shifted, _) in found.items() if shifted.row in rows]:
        del found[node]


def _sums_below(spread: UOp, found: dict[UOp, tuple[Shifted, Walk]]) -> list[UOp]:
    """Those of `found` that an EXPAND to the shape of their rows gives back to each element."""
    count, out = elements(spread.shape), []
    seen, wanted = {spread}, [spread.src[0]]
    while wanted and len(seen) <= _DEEP:
        node = wanted.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in found and count >= elements(found[node][0].row.shape):
            out.append(node)
        elif node.op in ALU or node.op is Op.RESHAPE:
            wanted += node.src
    return out


def _shifted(node: UOp) -> Shifted | None:
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
    return Shifted(op, row, shift) if known(shift, row, axes) else None


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


def _walk(row: UOp, axes: tuple[int, ...], device: DeviceSpec) -> Walk | None:
    """How to cut the rows of `row` along `axes`; None where that gains nothing."""
    sizes = [d for d in row.shape if isinstance(d, int)]
    long = [a for a, d in enumerate(sizes) if d != 1]
    if not set(axes).intersection(long) or any(
        axes[0] < a < axes[-1] and a not in axes for a in long
    ):
        return None
    # Rows that lie beside each other, as columns of a matrix do, go together.
    wide, along = 1, max(a for a in long if a in axes)
    if not _lies_along(row, along):
        wide, along = math.prod(sizes[axes[-1] + 1 :]), long[-1]
        if wide == 1 or not _lies_along(row, along):
            return None
    together = wide * math.prod(sizes[a] for a in axes)
    count, itemsize = math.prod(sizes), _stored(row).dtype.itemsize
    # The second cache holds them and the next ones, which are asked for meanwhile.
    held = min(count, 2 * together) * itemsize
    if held <= device.l2_bytes:
        return None
    least, most = device.l1_bytes, _LARGEST * device.l1_bytes
    if wide > 1:  # what is not asked for ahead
        least, most = device.l2_bytes // _LEAST_PART, device.l2_bytes // _MOST_PART
    least, most = least // itemsize + 1, most // itemsize
    if wide > most:
        return None  # no block of rows that lie beside each other stays in the cache
    within, axis = wide, axes[-1]
    for axis in reversed(axes):
        if within * sizes[axis] >= least:
            break
        within *= sizes[axis]
    walk = Walk(axes, axis, _cut(sizes[axis], -(-least // within), most // within))
    block = walk.length * within
    if not _SHORTEST * wide <= block < together:
        return None
    costs = costs_of(device)
    spared = costs.byte(held) - costs.byte(block * itemsize)
    stored = row.dtype.itemsize * wide * count // block
    # Three sums at most, written and read; a kernel that combines them, and one for what is left.
    lost = 2 * costs.call + 6 * stored * costs.byte(stored)
    return walk if count * itemsize * spared > lost else None


def _cut(size: int, least: int, most: int) -> int:
    """The length of blocks of at least `least` along an axis: a divisor of it, if one is near."""
    if size <= most:
        return size
    near = range(size // least, size // most, -1)
    return next((size // count for count in near if size % count == 0), least)


def _bytes(row: UOp) -> int:
    """What reading all of `row` takes."""
    return elements(row.shape) * _stored(row).dtype.itemsize


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
        if node.op in (Op.PERMUTE, Op.RESHAPE):
            below = axes_below(node, [a if a == axis else None for a in range(len(node.shape))])
            if axis not in below:
                return False
            wanted.append((node.src[0], below.index(axis)))
        elif node.op is Op.EXPAND and node.src[0].shape[axis] == 1:
            continue
        elif node.op in ALU or node.op in (Op.EXPAND, Op.SHRINK, Op.FLIP):
            wanted += [(s, axis) for s in node.src]
        elif axis != innermost(node, None):
            return False
    return True
