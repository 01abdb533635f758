"""Software prefetch of operands that the next iteration of an outer loop reads.

For example, the outer loop goes over the members of a population, and its next iteration reads the
next member's matrices, or gathers from the next member's rows. The data is prefetched to the L2
cache in shares: each iteration of the inner loops prefetches some cache lines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.device.spec import LINE
from kernelrt.ir.ops import Op
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import const
from kernelrt.loops.analysis import CLOSING, stride
from kernelrt.loops.passes.prefetch import (
    MOST_LINES,
    WORTH_A_LINE,
    begin_of_share,
    direct_loads,
    is_known,
    points_of,
    tiled,
)
from kernelrt.loops.passes.prefetch_streams import is_beyond, is_plain
from kernelrt.loops.tiles import ONE, extent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.passes.prefetch import Tiled
    from kernelrt.loops.tiles import Tile

__all__ = ["blocks_after", "operands_after"]


def blocks_after(
    info: Analysis,
    stores: Sequence[UOp],
    opened: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """Return LOADs of the block from which the next iteration of an outer loop gathers elements.

    For example, each member of a population gathers from its own rows of a table; these rows are
    the block. Elements are gathered in random order, so each read would wait for memory. A prefetch
    of the lines of the block in order is twenty times as fast.

    Parameters
    ----------
    info : Analysis
        The kernel.
    stores : sequence of UOp
        The STOREs.
    opened : sequence of UOp
        RANGEs of the open loops, outermost first.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    device : DeviceSpec
        The target. Buffers that fit its L1 cache are not prefetched.

    Returns
    -------
    tuple of UOp
        LOADs of the share of each iteration of the innermost loop.
    """
    if len(opened) < 2:
        return ()
    found: dict[UOp, list[UOp]] = {}
    values = [s.src[2] for s in stores if s.src[2].op not in CLOSING]
    for x in info.loads(*values):
        param, index = x.src[:2]
        if param.op is not Op.PARAM or is_plain(index) or param in found:
            continue
        if opened[-1] not in info.deps[x] or not info.deps[x] <= set(opened):
            continue
        if param.arg[1] * param.dtype.itemsize > device.l1_bytes:
            found[param] = _block_after(x, opened, tiles, device)
    return tuple(x for block in found.values() for x in block)


def _block_after(
    x: UOp, opened: Sequence[UOp], tiles: Mapping[UOp, Tile], device: DeviceSpec
) -> list[UOp]:
    """Return LOADs of the lines of `x`'s next block that an innermost iteration prefetches."""
    param, index = x.src[:2]
    steps, _ = linear(index)
    for n, r in enumerate(opened[:-1]):
        step = steps.get(r, 0)
        if step <= 0 or step * extent(r) != param.arg[1]:
            continue
        factor = tiles.get(r, ONE).factor
        within = tiled(opened[n + 1 :], tiles)
        line = LINE // x.dtype.itemsize
        lines = -(-factor * step // (line * math.prod(loop.trips for loop in within)))
        reads = factor * math.prod(loop.factor for loop in within)
        begins = begin_of_share(within, lines * line)
        near = factor * step * x.dtype.itemsize <= device.l2_bytes // 4
        if begins is None or not near or lines > min(2 * reads, MOST_LINES):
            return []
        start = (r + factor) * step + begins
        return [
            x.replace(src=(param, simplify(start + number * line))) for number in range(lines)
        ]
    return []


def operands_after(
    info: Analysis,
    values: Sequence[UOp],
    opened: Sequence[UOp],
    closed: Sequence[UOp],
    tiles: Mapping[UOp, Tile],
    device: DeviceSpec,
) -> tuple[UOp, ...]:
    """Return LOADs of operands that the next iteration of the outermost loop reads repeatedly.

    For example, each member of a population multiplies two matrices of its own, and reads each
    matrix once for every tile of the product. The first read waits for memory; later ones find the
    matrix in a cache. Prefetching the next member's matrices hides that wait: 64 products of
    64 x 512 by 512 x 64 take 1.07 ms instead of 1.55 ms. Operands that are read only once gain
    nothing.

    Parameters
    ----------
    info : Analysis
        The kernel.
    values : sequence of UOp
        Terms of the sums.
    opened : sequence of UOp
        RANGEs of the enclosing loops, outermost first.
    closed : sequence of UOp
        RANGEs of the sums, outermost first. Each iteration of the last prefetches its share.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    device : DeviceSpec
        The target. Buffers that fit its L2 cache are not prefetched.
    """
    if not opened:
        return ()
    within = tiled([*opened[1:], *closed], tiles)
    found: list[UOp] = []
    for x in dict.fromkeys(x for value in values for x in direct_loads(info, value)):
        again = any(loop.trips > 1 and loop.range not in info.deps[x] for loop in within)
        if again and is_known(x) and is_beyond(x, device):
            found += _operand_after(x, opened[0], within, tiles, device)
    vectors = points_of(info, values, opened, tiles) * tiles.get(closed[-1], ONE).points
    return tuple(found) if len(found) * WORTH_A_LINE <= vectors else ()


def _operand_after(
    x: UOp, r: UOp, within: Sequence[Tiled], tiles: Mapping[UOp, Tile], device: DeviceSpec
) -> list[UOp]:
    """Return LOADs of the lines of `x` that an iteration of the nested `within` prefetches."""
    param, index = x.src[:2]
    step, factor = stride(index, r) or 0, tiles.get(r, ONE).factor
    if step <= 0 or step * extent(r) != param.arg[1] or extent(r) <= factor:
        return []
    # Operands that fit the L1 cache gain nothing. Two operands, each with the part in use and the
    # prefetched part, take at most half of the L2 cache.
    if not device.l1_bytes < factor * step * x.dtype.itemsize <= device.l2_bytes // 8:
        return []
    line = LINE // x.dtype.itemsize
    lines = -(-factor * step // (line * math.prod(loop.trips for loop in within)))
    # If tiles do not divide the extents, some lines are prefetched twice.
    begins, share = const(0, dt.int64), lines * line
    for loop in reversed(within):
        begins = begins + loop.range * (share // loop.factor)
        share *= loop.trips
    start = (r + factor) * step + begins
    return [x.replace(src=(param, simplify(start + n * line))) for n in range(lines)]
