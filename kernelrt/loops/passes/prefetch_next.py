"""Software prefetch of operands that the next iteration of an outer loop reads.

Such as the matrices of the next member of a population, or the rows that data choose from. It goes
to the second cache, by shares: each turn of the loops within asks for some lines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
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
    places_of,
    tiled,
)
from kernelrt.loops.passes.prefetch_streams import LINE, is_beyond, is_plain
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
    """LOADs of the block from which data choose elements in the next turn of a loop around.

    Members of a population that take rows of their own have one. Its elements come in no order, and
    each would be waited for, where the lines of the block in theirs come twenty times as fast.

    Parameters
    ----------
    info : Analysis
        The kernel.
    stores : sequence of UOp
        What is stored.
    opened : sequence of UOp
        RANGEs of the loops that are open, outermost first.
    tiles : mapping of UOp to Tile
        Tiles of the ranges that have one.
    device : DeviceSpec
        The target: what its first cache holds needs no asking for.

    Returns
    -------
    tuple of UOp
        LOADs at indices that begin with the turn of the innermost loop.
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
    """The LOAD `x` at the lines of which a turn of the innermost loop asks for its share."""
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
    """LOADs of what sums read in the next turn of the outermost loop, again and again.

    Products of members' matrices walk both once for each tile: the first walk waits for memory, all
    others find a matrix in a cache. So those of the next member are asked for meanwhile, and 64
    products of 64 x 512 and 512 x 64 take 1.07 ms in the place of 1.55. What is walked once comes
    as fast without.

    Parameters
    ----------
    info : Analysis
        The kernel.
    values : sequence of UOp
        What is summed up.
    opened : sequence of UOp
        RANGEs of the loops around, outermost first.
    closed : sequence of UOp
        RANGEs of the sums, outermost first; each turn of the last asks for its share.
    tiles : mapping of UOp to Tile
        Tiles of the ranges that have one.
    device : DeviceSpec
        The target: what its second cache holds needs no asking for.
    """
    if not opened:
        return ()
    within = tiled([*opened[1:], *closed], tiles)
    found: list[UOp] = []
    for x in dict.fromkeys(x for value in values for x in direct_loads(info, value)):
        again = any(loop.trips > 1 and loop.range not in info.deps[x] for loop in within)
        if again and is_known(x) and is_beyond(x, device):
            found += _operand_after(x, opened[0], within, tiles, device)
    vectors = places_of(info, values, opened, tiles) * tiles.get(closed[-1], ONE).places
    return tuple(found) if len(found) * WORTH_A_LINE <= vectors else ()


def _operand_after(
    x: UOp, r: UOp, within: Sequence[Tiled], tiles: Mapping[UOp, Tile], device: DeviceSpec
) -> list[UOp]:
    """The LOAD `x` at the lines that one turn of all loops `within` asks for."""
    param, index = x.src[:2]
    step, factor = stride(index, r) or 0, tiles.get(r, ONE).factor
    if step <= 0 or step * extent(r) != param.arg[1] or extent(r) <= factor:
        return []
    # What the first cache holds comes as fast without; of two operands, what is read now and what
    # is asked for take half of the second.
    if not device.l1_bytes < factor * step * x.dtype.itemsize <= device.l2_bytes // 8:
        return []
    line = LINE // x.dtype.itemsize
    lines = -(-factor * step // (line * math.prod(loop.trips for loop in within)))
    # Where tiles do not come out even, some lines are asked for twice.
    begins, share = const(0, dt.int64), lines * line
    for loop in reversed(within):
        begins = begins + loop.range * (share // loop.factor)
        share *= loop.trips
    start = (r + factor) * step + begins
    return [x.replace(src=(param, simplify(start + n * line))) for n in range(lines)]
