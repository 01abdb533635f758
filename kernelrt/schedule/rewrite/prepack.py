"""Weight prepacking: lays invariant matrices out once in the order that products read.

A product goes through some columns of a matrix at a time, down its whole depth. Stored so, as many
columns as a vector has lanes side by side, nothing has to be copied, turned or fetched from places
that lie pages apart: a product runs at the peak of the processor from a few rows on.
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

#: Depth from which on a matrix is laid out: less is read as it lies, whatever that is.
_DEPTH: Final = 8
#: Rows that a product should have. One takes from 0.78 to 1.5 of its time so, two from 0.8 to 1.0,
#: with matrices of 64 x 64 to 4096 x 4096.
_ROWS: Final = 2
#: First caches that a matrix may take which meets one row. 64 x 192 to 128 x 128 (one to one and a
#: half) take 0.67 to 0.78 of their time, 256 x 256 (five) 1.05 (Zen 5).
_NEAR: Final = 2


class _Matrix(NamedTuple):
    """An operand of a product of `rows`: which axes of `core` are batched, columns, and summed."""

    rows: int
    core: UOp
    batch: list[int]
    columns: int
    depth: list[int]


def lay_out(
    roots: Sequence[UOp], steady: Collection[UOp], device: DeviceSpec, room: float
) -> tuple[list[UOp], set[UOp]]:
    """Equal graphs that read steady matrices from panels, and the nodes that these are.

    Left out is what is wider than what it is made of, as a weight of bytes that is multiplied as
    float32: reading more takes longer than laying it out spares.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage, without marks.
    steady : collection of UOp
        Their nodes whose values do not change.
    device : DeviceSpec
        How many lanes a vector has.
    room : float
        Bytes that all panels may take.
    """
    put: dict[UOp, UOp] = {}
    panels: set[UOp] = set()
    without: set[UOp] = set()
    for node in toposort(roots):
        if not _is_product(node) or node.src[0] in steady:
            continue
        left, right = node.src[0].src
        for factor, other in ((left, right), (right, left)):
            read = core_of(other)[0]
            if core_of(factor)[0] not in steady or factor in put or read.op is Op.WINDOW:
                continue  # sums over windows of an image are as fast without
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
                # Rows that a kernel computes for a product are not walked along panels.
                [read_now] = substitute([read], put)
                put[read] = UOp(Op.CONTIGUOUS, read.dtype, (read_now,))
    return (substitute(roots, put) if put else list(roots)), panels


def _bytes_below(core: UOp) -> int:
    """What reading all that `core` is made of takes."""
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
    """Whether a value is made of a product's results, element by element.

    `without` has nodes that are not, and gets more of them: what many products read is gone through
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
    """What a product reads as a matrix, if it has several rows for it."""
    node, steps = core_of(factor)
    # What is moved about is laid out, rather than what comes of that.
    for k, core in enumerate((node, *steps)):
        places: list[int | None] | None = list(range(len(core.shape)))
        for step in steps[k:]:
            places = axes_above(step, places) if places is not None else None
        if places is not None and is_static(core.shape):
            return _as_matrix(core, places, varying_axes(other), product)
    return None


def _as_matrix(
    core: UOp, places: Sequence[int | None], beside: Collection[int], product: UOp
) -> _Matrix | None:
    """`core`, whose axes are at `places` of what is summed, where the rest varies `beside` it."""
    summed = product.arg[1]
    batch: list[int] = []
    columns: list[int] = []
    depth: list[int] = []
    rows = 1
    for axis, (place, size) in enumerate(zip(places, product.src[0].shape, strict=True)):
        if place is None or core.shape[place] == 1:
            rows *= 1 if axis in summed else dim_max(size)
        else:
            kind = depth if axis in summed else batch if axis in beside else columns
            kind.append(place)
    whole = {k for k, n in enumerate(core.shape) if n != 1} == {*batch, *columns, *depth}
    deep = elements(tuple(core.shape[k] for k in depth)) >= _DEPTH
    if len(columns) != 1 or not whole or not deep:
        return None
    return _Matrix(rows, core, batch, columns[0], depth)


def _laid_out(found: _Matrix, lanes: int) -> tuple[UOp, UOp]:
    """The panels of a matrix, stored, and the matrix as it is read from them."""
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
