"""Split-K: computes a contraction of large operands to few results block by block.

A kernel keeps a tile of the results in registers. For each tile it reads all operands of the sum.
For example, the gradient of a filter is a sum over a batch of images, so all images come from
memory again for every tile of the gradient. This pass rewrites such a sum as a sum of partial sums.
Each partial sum is over a block of the operands that fits the cache. The number of blocks follows
from the shape and the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.device.costs import costs_of
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import dim_max, is_static
from kernelrt.schedule.fuse.fusion_cost import contraction_reuse, distinct, elements
from kernelrt.schedule.fuse.index_maps import ZERO, Indexer
from kernelrt.schedule.rewrite.array_layouts import varying

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.costs import Costs
    from kernelrt.device.spec import DeviceSpec

__all__ = ["block_contractions"]

#: Approximate number of results of a register tile along one operand and along the other.
_TILE: Final = (32, 12)
#: Operands of a block may take 1 / `_PART` of a cache. The rest is for data in flight.
_PART: Final = 2


def block_contractions(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Rewrite contractions of large operands to few results as sums of partial sums.

    Otherwise they would read an operand from memory again for every few results.

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
    done: dict[UOp, UOp] = {}
    for node in toposort(roots):
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        done[node] = _in_blocks(new, device) if node.op is Op.REDUCE_AXIS else new
    return [done[root] for root in roots]


def _in_blocks(node: UOp, device: DeviceSpec) -> UOp:
    (x,) = node.src
    narrow = not node.dtype.is_float or node.dtype.is_narrow
    if x.op is not Op.MUL or narrow or not is_static(x.shape) or not contraction_reuse(node):
        return node
    axis = node.arg[1][0]
    # The code generator packs panels for a sum along one axis, if they are not too long.
    panel = device.lanes(node.dtype.itemsize) * node.dtype.itemsize * dim_max(x.shape[axis])
    if len(node.arg[1]) < 2 and panel <= device.panel_bytes:
        return node
    parts = _parts(node, axis, device, costs_of(device))
    if parts < 2 or not _varies(x, axis):
        return node
    size = x.shape[axis]
    assert isinstance(size, int)
    shape = (*x.shape[:axis], parts, size // parts, *x.shape[axis + 1 :])
    # Blocks are outermost, so that their results lie one after the other, each like the whole.
    order = (axis, *(a for a in range(len(shape)) if a != axis))
    operands = tuple(_permuted(UOp(Op.RESHAPE, s.dtype, (s,), shape), order) for s in x.src)
    inner = tuple(a + 1 for a in node.arg[1])
    partial = UOp(Op.REDUCE_AXIS, node.dtype, (x.replace(src=operands),), (Op.ADD, inner))
    whole = UOp(Op.REDUCE_AXIS, node.dtype, (partial,), (Op.ADD, (0,)))
    inherit(whole, node)
    return whole


def _permuted(x: UOp, order: tuple[int, ...]) -> UOp:
    return x if order == tuple(sorted(order)) else UOp(Op.PERMUTE, x.dtype, (x,), order)


def _parts(node: UOp, axis: int, device: DeviceSpec, costs: Costs) -> int:
    """Return the number of blocks to split a sum along `axis` into; 1 if this saves nothing."""
    (x,) = node.src
    size = x.shape[axis]
    assert isinstance(size, int)
    moved = sum(distinct(s) * s.dtype.itemsize for s in x.src)
    block = device.l2_bytes // _PART
    parts = next((p for p in range(-(-moved // block), size + 1) if size % p == 0), 1)
    stored = parts * elements(node.shape) * node.dtype.itemsize
    # Results as large as the operands are tiled themselves.
    if moved <= device.l2_bytes or 2 * stored > moved:
        return 1
    wide, high = _TILE
    walked = elements(x.shape) * node.dtype.itemsize * (1 / wide + 1 / high)
    gained = (walked - moved) * (costs.byte(moved) - costs.byte(block))
    return parts if gained > costs.call + 2 * stored * costs.byte(stored) else 1


def _varies(x: UOp, axis: int) -> bool:
    """Return whether both operands vary along `axis`, so that a block reads only a part of both."""
    size = x.shape[axis]
    assert isinstance(size, int)
    loop = UOp(Op.RANGE, dt.int64, (UOp(Op.CONST, dt.int64, (), size),), 0)
    index = tuple(loop if a == axis else ZERO for a in range(len(x.shape)))
    return all(loop in varying(s, index, Indexer()) for s in x.src)
