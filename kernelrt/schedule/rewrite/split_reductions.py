"""Splits long reductions to few elements into two steps, so that cores can share the first.

A kernel is divided among cores along its output. The sum of all elements has only one output
element, so it is rewritten as a sum of partial sums. Their number follows from the shape and the
target, not from the number of cores. So the result does not depend on the number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt.device.costs import costs_of
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import dim_max, is_static
from kernelrt.schedule.fuse.fusion_cost import FEW, elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = ["split_reductions"]

#: Minimum number of parts for which a second kernel pays, and maximum number that is useful.
_LEAST: Final = 4
_MOST: Final = 64
#: Up to this many times the wanted parts are accepted, as few numbers divide a size.
_SLACK: Final = 4


def split_reductions(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Split long reductions to few elements.

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
    checked: set[UOp] = set()
    for node in toposort(roots):
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        # Leave checked nodes alone: parts may be computed where no element is read, and must not
        # fail there.
        if node.op is Op.BOUND or any(s in checked for s in node.src):
            checked.add(node)
        elif node.op is Op.REDUCE_AXIS:
            new = _in_parts(new, device)
        done[node] = new
    return [done[root] for root in roots]


def _in_parts(node: UOp, device: DeviceSpec) -> UOp:
    (x,), (reducer, axes) = node.src, node.arg
    # Parts of narrow floats would be rounded when they are stored.
    narrow = node.dtype.is_narrow and reducer in (Op.ADD, Op.MUL)
    if narrow or not is_static(x.shape) or elements(node.shape) > FEW:
        return node
    costs = costs_of(device)
    count = elements(x.shape)
    work = count * costs.element(reducer, node.dtype)
    wanted = min(_MOST, int(costs.launch(work, count * x.dtype.itemsize) / costs.chunk))
    if wanted < _LEAST:
        return node
    for axis in axes:
        size = x.shape[axis]
        assert isinstance(size, int)
        parts = _divisor(size, wanted, 1)
        if parts is not None:
            return _joined(node, axis, (parts, size // parts), 1)
        below = x.shape[axis + 1] if axis + 1 in axes else 1
        assert isinstance(below, int)
        parts = _divisor(below, wanted, size) if 1 < size < wanted else None
        if parts is not None:
            # Split each of few rows, so that a part is a run of memory, not a strip of all rows.
            return _joined(node, axis, (size, parts, below // parts), 2)
    # The rows themselves are the parts if nothing divides into as many as wanted.
    rows = {axis: size for axis in axes if _LEAST <= (size := dim_max(x.shape[axis])) < wanted}
    if not rows or len(axes) == 1:
        return node
    axis = max(rows, key=rows.__getitem__)
    return _joined(node, axis, (rows[axis],), 1)


def _divisor(size: int, wanted: int, rows: int) -> int | None:
    """Return the smallest divisor of `size` that gives `rows` the `wanted` parts, or a few more."""
    parts = range(-(-wanted // rows), (_SLACK * wanted - 1) // rows + 1)
    return next((p for p in parts if size % p == 0), None)


def _joined(node: UOp, axis: int, split: tuple[int, ...], kept: int) -> UOp:
    """Return the reduction `node` as a reduction of partial results, which are stored.

    The `kept` axes of the operand that begin at `axis` are reshaped to the axes `split`. The first
    `kept` axes of `split` number the partial results. The other axes of `split` are reduced.
    """
    (x,), (reducer, axes) = node.src, node.arg
    more = len(split) - kept
    shape = (*x.shape[:axis], *split, *x.shape[axis + kept :])
    inner = tuple(a if a < axis else a + more for a in axes if not axis <= a < axis + kept)
    inner = tuple(sorted((*inner, *range(axis + kept, axis + len(split)))))
    blocks = UOp(Op.RESHAPE, x.dtype, (x,), shape)
    partial = UOp(Op.REDUCE_AXIS, node.dtype, (blocks,), (reducer, inner))
    stored = UOp(Op.CONTIGUOUS, node.dtype, (partial,))
    at = axis - sum(a < axis for a in axes)
    whole = UOp(Op.REDUCE_AXIS, node.dtype, (stored,), (reducer, tuple(range(at, at + kept))))
    inherit(whole, node)
    return whole
