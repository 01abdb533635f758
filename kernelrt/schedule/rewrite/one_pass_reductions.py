"""One-pass reductions: computes dependent reductions of a row in one pass, block by block.

Some sums depend on another reduction of the same row. For example, the sum of ``exp(u - c)`` in a
softmax needs the maximum `c` of `u` first, and a variance needs the mean first. A row larger than a
cache would be read from memory once for each reduction. This pass cuts the row into blocks, and
reads each block twice while it is in the caches of a core. `blocked_statistics.py` defines which
values are stored for each block, and how these are combined.

The pass recognizes such sums by their graph, not by the method that built them. It rewrites a sum
if this is faster for its shape and the target.
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

__all__ = ["reduce_in_one_pass"]

#: Maximum size of a block of rows, in first-level caches. A block is larger than that cache, so
#: that a kernel prefetches the next block while it reads the current one again
#: (``loops.passes.prefetch_streams.next_rows``). Of 64, 80, 160 and 400 kB, with a first-level
#: cache of 48 kB, 64 kB is the fastest for ``logsumexp`` of 8 x 2,000,000; 400 kB takes 5% longer
#: (Zen 5).
_LARGEST: Final = 4
#: A block of columns takes at least 1 / `_LEAST_PART` and at most 1 / `_MOST_PART` of the
#: second-level cache. With half as many bytes, the variances of 40000 x 400 and 16000 x 1024 took
#: up to 1.5 times as long.
_LEAST_PART: Final = 4
_MOST_PART: Final = 2
#: Minimum number of elements of a row in a block. With 16 to 50, the variances of 62500 x 256 to
#: 16000 x 1024 gained little or nothing; with 64 to 128 they took two thirds of the time.
_SHORTEST: Final = 64
#: Maximum number of nodes below a sum that are searched.
_DEEP: Final = 32
#: Ops whose results have a buffer, so that all checks below them are already made.
_STORED: Final = frozenset({Op.BUFFER, Op.CONTIGUOUS, Op.CALL, Op.REGION})


def reduce_in_one_pass(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Compute statistics of rows block by block, if the rows are too large for the caches.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage.
    device : DeviceSpec
        Target of the kernels.

    Returns
    -------
    list of UOp
        Graphs with equal values, up to rounding.
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
            # Reductions that depend on no other one use the same blocks, or become a lookup.
            reducer, axes = node.arg
            searched = row_of_one(node)
            if (node.src[0], axes) in walks:
                new = whole(new.src[0], walks[node.src[0], axes], reducer, node)
            elif searched is not None and (searched, axes) in walks:
                new = looked_up(new)
                inherit(new, node)
        done[node] = new
    return [done[root] for root in roots]


# Matching


def _found(nodes: Sequence[UOp], device: DeviceSpec) -> dict[UOp, tuple[Shifted, Walk]]:
    """Return the sums to rewrite, each with its terms and with the way to cut its rows."""
    checked: set[UOp] = set()
    found: dict[UOp, tuple[Shifted, Walk]] = {}
    for node in nodes:
        # Leave checked nodes alone: parts may be computed where no element is read, and must not
        # fail there.
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
    """Remove sums from `found` whose rows one kernel reduces and then reads again, row by row.

    If there are many rows, as in a softmax over many samples, one kernel reduces a row and then
    divides its elements, while the last-level cache still holds them. If all sums were computed
    first, the elements would come from memory again. If there are few rows, their reductions have
    kernels of their own in any case (`split_reductions.py`).
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
    """Return the nodes of `found` whose results the EXPAND `spread` broadcasts along their rows."""
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
    """Return the terms of the sum `node`; None if no reduction of the same rows is their shift."""
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
    """Return whether `shift` is the maximum of `row`; numbers may replace infinity in it."""
    if shift.op is Op.WHERE:
        numbers = [n for n in map(uniform, shift.src[1:]) if n is not None]
        others = [s for s in shift.src[1:] if uniform(s) is None]
        if len(others) != 1 or not all(math.isfinite(n.arg) for n in numbers):
            return False
        [shift] = others
    return _reduces(shift, Op.MAX, row, axes)


def _is_mean(shift: UOp, row: UOp, axes: tuple[int, ...]) -> bool:
    """Return whether `shift` is the sum of `row`, multiplied or divided by a number."""
    if shift.op not in (Op.DIV, Op.MUL):
        return False
    number = uniform(shift.src[1])
    known = number is not None and math.isfinite(number.arg) and number.arg != 0
    return known and _reduces(shift.src[0], Op.ADD, row, axes)


def _reduces(node: UOp, reducer: Op, row: UOp, axes: tuple[int, ...]) -> bool:
    node = strip(node)
    return node.op is Op.REDUCE_AXIS and node.src[0] is row and node.arg == (reducer, axes)


# Cost


def _walk(row: UOp, axes: tuple[int, ...], device: DeviceSpec) -> Walk | None:
    """Return how to cut rows along `axes` of `row` into blocks; None if that gains nothing."""
    sizes = [d for d in row.shape if isinstance(d, int)]
    long = [a for a, d in enumerate(sizes) if d != 1]
    if not set(axes).intersection(long) or any(
        axes[0] < a < axes[-1] and a not in axes for a in long
    ):
        return None
    # Adjacent rows, such as the columns of a matrix, are processed together.
    wide, along = 1, max(a for a in long if a in axes)
    if not _lies_along(row, along):
        wide, along = math.prod(sizes[axes[-1] + 1 :]), long[-1]
        if wide == 1 or not _lies_along(row, along):
            return None
    together = wide * math.prod(sizes[a] for a in axes)
    count, itemsize = math.prod(sizes), _stored(row).dtype.itemsize
    # The second-level cache holds the current rows and the next ones, which are prefetched.
    held = min(count, 2 * together) * itemsize
    if held <= device.l2_bytes:
        return None
    least, most = device.l1_bytes, _LARGEST * device.l1_bytes
    if wide > 1:  # columns are not prefetched
        least, most = device.l2_bytes // _LEAST_PART, device.l2_bytes // _MOST_PART
    least, most = least // itemsize + 1, most // itemsize
    if wide > most:
        return None  # no block of adjacent rows stays in the cache
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
    # At most three sums are written and read. One kernel combines them, one does the remainder.
    lost = 2 * costs.call + 6 * stored * costs.byte(stored)
    return walk if count * itemsize * spared > lost else None


def _cut(size: int, least: int, most: int) -> int:
    """Return a block length from `least` to `most`; it divides `size` if possible."""
    if size <= most:
        return size
    near = range(size // least, size // most, -1)
    return next((size // count for count in near if size % count == 0), least)


def _bytes(row: UOp) -> int:
    """Return the bytes of all elements of `row`, in the dtype in which they are stored."""
    return elements(row.shape) * _stored(row).dtype.itemsize


def _stored(row: UOp) -> UOp:
    """Return the stored value below the casts and reshapes of `row`."""
    while row.op in (Op.CAST, Op.RESHAPE):
        row = row.src[0]
    return row


def _lies_along(row: UOp, axis: int) -> bool:
    """Return whether the elements of `row` along `axis` are contiguous in memory."""
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
