"""Weight prepacking: stores invariant matrices once in the order in which products read them.

A matrix product reads the second matrix by *panels*. A panel has as many columns as a vector has
lanes, over the whole depth (the summed axis). If the matrix is stored panel by panel, no run has to
pack or transpose it, and elements that are used together are close in memory. So even a product of
a few rows reaches the processor's peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt.ir import Op, UOp, substitute, toposort
from kernelrt.ir.ops import ALU
from kernelrt.ir.shape import dim_max, is_static
from kernelrt.schedule.fuse.fusion_cost import elements
from kernelrt.schedule.rewrite.axis_maps import AXES, axes_above, core_of, varying_axes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = ["lay_out"]

#: Minimum depth of a matrix that is packed; smaller ones are fast in any layout.
_DEPTH: Final = 8
#: Minimum number of rows of a product. For matrices of 64 x 64 to 4096 x 4096, panels change the
#: time of a product of one row to 0.78 to 1.5 times, and that of two rows to 0.8 to 1.0 times.
_ROWS: Final = 2
#: Maximum size of a matrix that is packed for products of one row, in units of the first-level
#: cache. With panels, such a product takes 0.67 to 0.78 times as long for 64 x 192 to 128 x 128 (1
#: to 1.5 caches), and 1.05 times as long for 256 x 256 (5 caches, Zen 5).
_NEAR: Final = 2


class _Matrix(NamedTuple):
    """The value `core` as an operand of a product: its batch, column and summed (depth) axes.

    `rows` is the number of rows of the other operand.
    """

    rows: int
    core: UOp
    batch: list[int]
    columns: int
    depth: list[int]


def lay_out(
    roots: Sequence[UOp], invariant: Collection[UOp], device: DeviceSpec, room: float
) -> tuple[list[UOp], set[UOp]]:
    """Rewrite graphs so that products read run-invariant matrices from panels.

    A matrix is left out if it has more bytes than the data from which it is computed. For example,
    int8 weights that are multiplied as float32 would take four times as many bytes. To read these
    bytes costs more than packing saves.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage, without autograd tags.
    invariant : collection of UOp
        Run-invariant nodes of the graphs.
    device : DeviceSpec
        Target; its vector lanes set the panel width.
    room : float
        Maximum bytes of all panels.

    Returns
    -------
    roots : list of UOp
        The graphs, with equal values.
    panels : set of UOp
        Nodes of the panels.
    """
    put: dict[UOp, UOp] = {}
    panels: set[UOp] = set()
    without: set[UOp] = set()
    for node in toposort(roots):
        if not _is_product(node) or node.src[0] in invariant:
            continue
        left, right = node.src[0].src
        for factor, other in ((left, right), (right, left)):
            read = core_of(other)[0]
            if core_of(factor)[0] not in invariant or factor in put or read.op is Op.IM2COL:
                continue  # sums over windows of an image are as fast without panels
            found = _matrix(factor, other, node)
            lanes = device.lanes(node.dtype.itemsize)
            if found is None or not elements(found.core.shape):
                continue
            if dim_max(found.core.shape[found.columns]) % lanes:
                continue
            panel, equal = _laid_out(found, lanes)
            if panel not in panels:
                nbytes = elements(panel.shape) * panel.dtype.itemsize
                if nbytes > min(room, _bytes_below(found.core)):
                    continue
                if found.rows < _ROWS and nbytes > _NEAR * device.l1_bytes:
                    continue
                room -= nbytes
            put[factor] = substitute([factor], {found.core: equal})[0]
            panels.add(panel)
            if read not in put and _holds_product(read, without):
                # A kernel that computes these rows itself cannot use panels, so store them.
                [read_now] = substitute([read], put)
                put[read] = UOp(Op.CONTIGUOUS, read.dtype, (read_now,))
    return (substitute(roots, put) if put else list(roots)), panels


def _bytes_below(core: UOp) -> int:
    """Return the bytes of all buffers that `core` is computed from."""
    read = (node for node in toposort([core]) if node.op is Op.BUFFER)
    return sum(elements(node.shape) * node.dtype.itemsize for node in read)


def _is_product(node: UOp) -> bool:
    return (
        node.op is Op.REDUCE_AXIS
        and node.arg[0] is Op.ADD
        and node.src[0].op is Op.MUL
        and node.dtype.is_float
        and not node.dtype.is_narrow
    )


def _holds_product(node: UOp, without: set[UOp]) -> bool:
    """Return whether `node` is computed element by element from a product's results.

    `without` caches the nodes for which the result is False, so that shared operands are visited
    once.
    """
    stack, seen = [node], set[UOp]()
    while stack:
        node = stack.pop()
        if _is_product(node):
            return True
        if node not in seen and node not in without and (node.op in ALU or node.op in AXES):
            seen.add(node)
            stack.extend(node.src)
    without |= seen
    return False


def _matrix(factor: UOp, other: UOp, product: UOp) -> _Matrix | None:
    """Return the operand `factor` of a product as a matrix, or None if it cannot be packed."""
    node, steps = core_of(factor)
    # Pack the source of the movement ops rather than their result, if possible.
    for k, core in enumerate((node, *steps)):
        axes: list[int | None] | None = list(range(len(core.shape)))
        for step in steps[k:]:
            axes = axes_above(step, axes) if axes is not None else None
        if axes is not None and is_static(core.shape):
            return _as_matrix(core, axes, varying_axes(other), product)
    return None


def _as_matrix(
    core: UOp, axes: Sequence[int | None], shared_axes: Collection[int], product: UOp
) -> _Matrix | None:
    """Return `core` as a matrix, or None if it lacks the axes of a matrix.

    `axes` maps each axis of the operands of `product` to an axis of `core`, or to None.
    """
    summed = product.arg[1]
    batch: list[int] = []
    columns: list[int] = []
    depth: list[int] = []
    rows = 1
    for axis, (own, size) in enumerate(zip(axes, product.src[0].shape, strict=True)):
        if own is None or core.shape[own] == 1:
            rows *= 1 if axis in summed else dim_max(size)
        else:
            kind = depth if axis in summed else batch if axis in shared_axes else columns
            kind.append(own)
    whole = {k for k, n in enumerate(core.shape) if n != 1} == {*batch, *columns, *depth}
    deep = elements(tuple(core.shape[k] for k in depth)) >= _DEPTH
    if len(columns) != 1 or not whole or not deep:
        return None
    return _Matrix(rows, core, batch, columns[0], depth)


def _laid_out(found: _Matrix, lanes: int) -> tuple[UOp, UOp]:
    """Return a node that stores the panels of a matrix, and the matrix as a view of the panels."""
    _, core, batch, columns, depth = found
    ones = (k for k, n in enumerate(core.shape) if n == 1)
    order = (*ones, *batch, columns, *depth)
    sizes = tuple(dim_max(core.shape[k]) for k in order)
    # (..., columns, depth) as (..., columns / lanes, depth, lanes)
    at = order.index(columns)
    split = (*sizes[:at], sizes[at] // lanes, lanes, *sizes[at + 1 :])
    turn = (*range(at + 1), *range(at + 2, len(split)), at + 1)
    rows = _permuted(core, order)
    panel = _permuted(UOp(Op.RESHAPE, core.dtype, (rows,), split), turn)
    panel = UOp(Op.CONTIGUOUS, core.dtype, (panel,))
    equal = UOp(Op.RESHAPE, core.dtype, (_permuted(panel, _inverse(turn)),), sizes)
    return panel, _permuted(equal, _inverse(order))


def _permuted(node: UOp, order: Sequence[int]) -> UOp:
    return UOp(Op.PERMUTE, node.dtype, (node,), tuple(order))


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))
