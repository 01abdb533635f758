"""Maps axes of a value through views, and finds the axis that is contiguous in memory.

All passes that follow a value through movement ops, in either direction, use this module. The
caller labels the axes, for example as the axes of a matrix, and the labels are followed. The label
None marks an axis to ignore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from kernelrt.ir import Op
from kernelrt.schedule.fuse.index_maps import groups_of_axes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.ir import UOp
    from kernelrt.schedule.fuse.index_maps import Order

__all__ = ["AXES", "axes_above", "axes_below", "core_of", "innermost", "lying", "varying_axes"]

L = TypeVar("L")

#: Ops that keep all elements of a value and only change its shape or the order of its axes.
AXES: Final = frozenset({Op.RESHAPE, Op.EXPAND, Op.PERMUTE})
#: Ops through which contiguity is followed.
_FOLLOWED: Final = AXES | {Op.CAST, Op.IM2COL}


def innermost(node: UOp, order: Order | None) -> int | None:
    """Return the axis of `node` that is contiguous in memory; None for a single element."""
    axes = order if order is not None else range(len(node.shape))
    return next((a for a in reversed(axes) if node.shape[a] != 1), None)


def core_of(node: UOp) -> tuple[UOp, list[UOp]]:
    """Return the node below reshapes, expands and permutes, and these nodes, lowest first."""
    steps: list[UOp] = []
    while node.op in AXES:
        steps.append(node)
        node = node.src[0]
    return node, steps[::-1]


def axes_above(step: UOp, axes: Sequence[L | None]) -> list[L | None] | None:
    """Return the labels of a step's result axes, given those of its operand axes.

    New axes (of size 1, or broadcast) have no label. Return None if the step merges or splits axes.
    """
    if step.op is Op.PERMUTE:
        return [axes[a] for a in step.arg]
    before, after = step.src[0].shape, step.shape
    if step.op is Op.EXPAND:
        return [a if d == n else None for a, d, n in zip(axes, before, after, strict=True)]
    found: list[L | None] = [None] * len(after)
    for old, new in groups_of_axes(before, after):
        if len(old) != 1 or len(new) != 1:
            return None
        found[new[0]] = axes[old[0]]
    return found


def axes_below(step: UOp, axes: Sequence[L | None]) -> list[L | None]:
    """Return the labels of a step's operand axes, given those of its result axes.

    If the step merges or splits axes, the innermost axis keeps its label and the others lose
    theirs.
    """
    shape = step.src[0].shape
    if step.op is Op.IM2COL:
        windowed = {axis for axis, *_ in step.arg}
        return [None if a in windowed else axes[a] for a in range(len(shape))]
    if step.op is Op.PERMUTE:
        return [axes[step.arg.index(a)] for a in range(len(shape))]
    if step.op is Op.RESHAPE:
        there = {old[-1]: axes[new[-1]] for old, new in groups_of_axes(shape, step.shape)}
        return [there.get(a) for a in range(len(shape))]
    return list(axes)


def varying_axes(node: UOp) -> set[int]:
    """Return the axes of `node` along which elements may differ, which are not broadcast."""
    if node.op not in _FOLLOWED:
        return {k for k, n in enumerate(node.shape) if n != 1}
    shape, below = node.src[0].shape, varying_axes(node.src[0])
    if node.op is Op.EXPAND:
        return {k for k in below if shape[k] != 1}
    if node.op is Op.PERMUTE:
        return {k for k, axis in enumerate(node.arg) if axis in below}
    if node.op is Op.RESHAPE:
        groups = groups_of_axes(shape, node.shape)
        return {k for old, new in groups if not below.isdisjoint(old) for k in new}
    if node.op is Op.IM2COL:
        windowed = {axis for axis, *_ in node.arg}
        return below | windowed | set(range(len(shape), len(node.shape)))
    return below


def lying(
    node: UOp, axes: Sequence[L | None], orders: Mapping[UOp, Order]
) -> tuple[L | None, set[L]]:
    """Return the label of the axis along which `node` is contiguous, and all labels it varies with.

    If `node` is a chain of movement ops, the memory is that of the stored value below it. `axes`
    has the labels of the axes of `node`. `orders` has the memory orders of values that are not
    row-major.
    """
    varies = {label for k in varying_axes(node) if (label := axes[k]) is not None}
    while node.op in _FOLLOWED:
        axes, node = axes_below(node, axes), node.src[0]
    last = innermost(node, orders.get(node))
    return None if last is None else axes[last], varies
