"""Transposes operands that products would otherwise read across their rows.

Vectors of a product run along its columns. Some operands are stored along the depth (the summed
axis) instead, such as the keys of attention. If the number of columns is static, the kernel itself
transposes panels of such an operand (loops/passes/pack_operands). If it is dynamic, the kernel
would gather each lane, so this pass copies the operand. For example, a batch of 8 x 4 products of
64 x 16 by 16 x 64 takes 290 us with gathers, and 45 us with the copy (AVX-512).

The other operand may be stored along the rows, as in ``a.T @ b``. Then a tile reads a few elements
of each cache line, and lines that are far apart evict each other before the next tile. With 32
vector registers, a kernel copies blocks of both operands (loops/passes/cache_blocking). With 16
registers its tiles are smaller, and a copy of the whole operand is faster: ``a.T @ b`` of
1024 x 1024 reaches 92 GF/s with blocks, and 105 GF/s with the copy (AVX2, Zen 4).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.shape import dim_max, is_static
from kernelrt.schedule.fuse.fusion_cost import contraction_reuse
from kernelrt.schedule.rewrite.axis_maps import AXES, axes_below, lying

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.spec import DeviceSpec

__all__ = ["transpose_operands"]

#: Minimum rows of the other operand for which a copy costs less than it gains.
_ROWS: Final = 8
#: Minimum number of columns for which a copy of the other operand is faster than blocks. 512 x 768
#: times 768 x 128 reaches 106 GF/s with the copy and 92 GF/s with blocks; with only 64 columns, it
#: is 89 and 88 GF/s (AVX2, Zen 4).
_COLUMNS: Final = 128


def transpose_operands(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Copy operands of products so that vectors and tiles read them along their rows.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage.
    device : DeviceSpec
        Target of the kernels.

    Returns
    -------
    list of UOp
        Graphs with equal values.
    """
    done: dict[UOp, UOp] = {}
    for node in toposort(roots):
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        done[node] = _transposed(new, device) if contraction_reuse(new) > 0 else new
    return [done[root] for root in roots]


def _transposed(node: UOp, device: DeviceSpec) -> UOp:
    """Return `node` with a copy of one operand if that is faster, else `node` itself."""
    product, summed = node.src[0], set(node.arg[1])
    kept = [a for a, size in enumerate(product.shape) if a not in summed and size != 1]
    if product.op is not Op.MUL or not kept:
        return node
    columns, axes = kept[-1], range(len(product.shape))
    found = [lying(factor, axes, {}) for factor in product.src]
    for k, (along, varies) in enumerate(found):
        others = found[1 - k][1]
        if not isinstance(product.shape[columns], int):
            rows = math.prod(dim_max(product.shape[a]) for a in others - varies - summed)
            copies = along in summed and columns in varies - others and rows >= _ROWS
            to = columns
        else:
            to = node.arg[1][-1]
            copies = (
                along in varies - others - summed
                and columns not in varies
                and dim_max(product.shape[columns]) >= _COLUMNS
                and _is_slow(node, k, to, device)
            )
        if copies:
            factors = list(product.src)
            factors[k] = _copied(factors[k], varies, to)
            return node.replace(src=(product.replace(src=tuple(factors)),))
    return node


def _is_slow(node: UOp, k: int, depth: int, device: DeviceSpec) -> bool:
    """Return whether a product is slow because its factor `k` is stored along the rows."""
    product = node.src[0]
    wide = node.dtype.is_float and not node.dtype.is_narrow
    if not (device.few_registers and wide) or len(node.arg[1]) > 1:
        return False
    step = _step(product.src[k], depth)
    lines = product.shape[depth]
    return step is not None and isinstance(lines, int) and device.evicts(lines, step)


def _step(factor: UOp, axis: int) -> int | None:
    """Return the distance in bytes of neighbors along an axis of `factor`; None if unknown."""
    node, axes = factor, list[int | None](range(len(factor.shape)))
    while node.op in AXES:
        below = axes_below(node, axes)
        if axis not in below:
            break
        node, axes = node.src[0], below
    inner = node.shape[axes.index(axis) + 1 :]
    return math.prod(map(dim_max, inner)) * node.dtype.itemsize if is_static(inner) else None


def _copied(factor: UOp, varies: set[int], along: int) -> UOp:
    """Copy `factor` so that it is stored `along` an axis, without its broadcast axes."""
    shape = factor.shape
    bounds = tuple((0, size if a in varies else 1) for a, size in enumerate(shape))
    order = (*(a for a in range(len(shape)) if a != along), along)
    copy = UOp(Op.SHRINK, factor.dtype, (factor,), bounds)
    copy = UOp(Op.PERMUTE, factor.dtype, (copy,), order)
    copy = UOp(Op.CONTIGUOUS, factor.dtype, (copy,))
    back = tuple(order.index(a) for a in range(len(shape)))
    copy = UOp(Op.PERMUTE, factor.dtype, (copy,), back)
    return UOp(Op.EXPAND, factor.dtype, (copy,), shape)
