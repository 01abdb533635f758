"""Replaces a masked sum that selects one element of a long row by a gather.

For example, a cross-entropy loss takes the score of a sample's class as the sum of
``where(position == class, scores, 0)``. If the scores have to be read in any case, this sum costs
little, and its gradient needs no scatter. But a kernel should not read a long row for one element
only.
"""

from __future__ import annotations

from kernelrt.ir import Op, UOp, const
from kernelrt.ir.constants import full, is_zeros
from kernelrt.schedule.rewrite.blocked_statistics import expanded, reshaped

__all__ = ["looked_up", "row_of_one"]


def row_of_one(node: UOp) -> UOp | None:
    """Return the row from which the masked sum `node` selects one element.

    Returns
    -------
    UOp or None
        The row, with the shape of the summed value. None if `node` is no such sum, or if the index
        of the element may be out of bounds.
    """
    selected = _selected(node)
    return None if selected is None else node.src[0].src[1]


def looked_up(node: UOp) -> UOp:
    """Return a GATHER for the masked sum `node`, for which :func:`row_of_one` returns a row."""
    selected = _selected(node)
    assert selected is not None
    row, axes = node.src[0].src[1], node.arg[1]
    indices, kept = [], 0
    for axis, size in enumerate(row.shape):
        if axis in axes:
            indices.append(reshaped(selected, node.shape))
            continue
        count = size if isinstance(size, UOp) else const(size, selected.dtype)
        ones = tuple(size if a == kept else 1 for a in range(len(node.shape)))
        along = reshaped(UOp(Op.IOTA, selected.dtype, (count,)), ones)
        indices.append(expanded(along, node.shape))
        kept += 1
    found = UOp(Op.GATHER, row.dtype, (row, *indices))
    # A sum starts with 0.0, so it never returns -0.0. Adding 0.0 does the same.
    return found.alu(Op.ADD, full(const(0, row.dtype), node.shape))


def _selected(node: UOp) -> UOp | None:
    """Return the index of the element that a masked sum selects; None if `node` is no such sum.

    The index is within bounds. It has size 1 along the one axis of the sum.
    """
    (x,), (reducer, axes) = node.src, node.arg
    if reducer is not Op.ADD or len(axes) != 1 or x.op is not Op.WHERE or not is_zeros(x.src[2]):
        return None
    [axis] = axes
    size = x.shape[axis]
    if x.src[0].op is not Op.EQ or not isinstance(size, int):
        return None
    kept = tuple(1 if a == axis else d for a, d in enumerate(x.shape))
    for positions, spread in (x.src[0].src, x.src[0].src[::-1]):
        if _counts(positions, axis) and spread.op is Op.EXPAND:
            [selected] = spread.src
            if selected.shape[axis] == 1 and selected.vmin >= 0 and selected.vmax < size:
                return expanded(selected, kept)
    return None


def _counts(node: UOp, axis: int) -> bool:
    """Return whether each element of `node` is its own position along `axis`."""
    size = node.shape[axis]
    if node.op is Op.EXPAND and node.src[0].shape[axis] == size:
        node = node.src[0]
    if node.op is Op.RESHAPE and all(d == 1 for a, d in enumerate(node.shape) if a != axis):
        node = node.src[0]
    return node.op is Op.IOTA and node.shape == (size,)
