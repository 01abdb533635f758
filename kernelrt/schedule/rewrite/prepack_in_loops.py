"""Weight prepacking for loops: transposes a matrix before the loop that multiplies by it.

Vectors of a product run along its columns. If the matrix is stored along the other axis, every
iteration has to transpose it. For example, a product of 16 x 256 by 256 x 64 takes 6.2 us that way,
and 3.7 us if the matrix is stored along its columns (AVX-512). So a matrix that the loop does not
change is transposed once, before the loop.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kernelrt.ir import Op, UOp, substitute, toposort
from kernelrt.ir.region import Loop, Outcome
from kernelrt.ir.shape import dim_max
from kernelrt.schedule.fuse.fusion_cost import elements
from kernelrt.schedule.rewrite.axis_maps import AXES, axes_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["prepack_matrices"]

#: Minimum number of iterations. A copy takes as long as two or three iterations save by it.
_TURNS: Final = 8
#: Minimum number of rows of a product, and of columns of the matrix.
_ROWS: Final = 4
_COLUMNS: Final = 16

_Runs = dict[tuple[Loop, tuple[UOp, ...]], list[UOp]]


def prepack_matrices(roots: Sequence[UOp]) -> list[UOp]:
    """Transpose loop-invariant matrices before their loops, to the order that products read."""
    runs: _Runs = {}
    for node in toposort(roots):
        if node.op is Op.REGION and isinstance(node.arg.program, Loop):
            runs.setdefault((node.arg.program, node.src), []).append(node)
    put: dict[UOp, UOp] = {}
    for (loop, src), nodes in runs.items():
        if dim_max(loop.trip_count) >= _TURNS:
            put.update(_relaid(loop, src, nodes))
    return substitute(roots, put) if put else list(roots)


def _relaid(loop: Loop, src: tuple[UOp, ...], nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return the replacement of each of `nodes`, the results of one loop."""
    graphs = list(dict.fromkeys(g for node in nodes for g in node.arg.graphs))
    found = _transposed(loop, graphs)
    if not found:
        return {}
    operands = list(src)
    inside: dict[UOp, UOp] = {}
    for k, matrix in found.items():
        *members, rows, columns = matrix.shape
        port, last = loop.ports[k], len(members)
        order = (*range(last), last + 1, last)
        turned = UOp(Op.RESHAPE, port.dtype, (port,), (*members, columns, rows))
        inside[matrix] = UOp(Op.PERMUTE, port.dtype, (turned,), order)
        whole = UOp(Op.RESHAPE, port.dtype, (src[k],), matrix.shape)
        whole = UOp(Op.PERMUTE, port.dtype, (whole,), order)
        operands[k] = UOp(Op.CONTIGUOUS, port.dtype, (whole,))
    made = dict(zip(graphs, substitute(graphs, inside), strict=True))
    program = replace(loop, carries=tuple(made[c] for c in loop.carries))
    out = {}
    for node in nodes:
        values = tuple(made[v] for v in node.arg.values)
        outcome = Outcome(program, node.arg.carry, values)
        out[node] = UOp(Op.REGION, node.dtype, tuple(operands), outcome)
    return out


def _transposed(loop: Loop, graphs: Sequence[UOp]) -> dict[int, UOp]:
    """Return the matrices to transpose, by the number of their port.

    Only products read such a matrix, and all of them sum along its rows. Batch axes of `vmap` may
    come before its axes.
    """
    first = len(loop.carries) + loop.stacked
    fixed = set(loop.ports[first : len(loop.ports) - loop.numbered])
    users: dict[UOp, set[UOp]] = {}
    read: dict[UOp, list[bool]] = {}
    for node in toposort(graphs):
        for s in node.src:
            if s in fixed:
                users.setdefault(s, set()).add(node)
        if node.op is Op.REDUCE_AXIS and node.arg[0] is Op.ADD and node.src[0].op is Op.MUL:
            for factor in node.src[0].src:
                _note(factor, node, fixed, read)
    found = {}
    for port, nodes in users.items():
        matrix = next(iter(nodes))
        fits = len(nodes) == 1 and port not in graphs and matrix not in graphs
        if fits and read.get(matrix) and all(read[matrix]):
            found[loop.ports.index(port)] = matrix
    return found


def _note(factor: UOp, product: UOp, fixed: Iterable[UOp], read: dict[UOp, list[bool]]) -> None:
    """If `factor` is a view of a matrix, record whether `product` sums along the matrix's rows."""
    chain = []
    node = factor
    while node.op in AXES and node.src[0] not in fixed:
        chain.append(node)
        node = node.src[0]
    if node.op is not Op.RESHAPE or len(node.shape) < 2 or node.src[0] not in fixed:
        return
    axes: list[int | None] = list(range(len(node.shape)))
    for step in reversed(chain):
        moved = axes_above(step, axes)
        if moved is None:
            read.setdefault(node, []).append(False)
            return
        axes = moved
    summed = product.arg[1]
    *members, columns, depth = (dim_max(d) for d in node.shape)
    rows = elements(product.shape) // (columns * math.prod(members))
    varying = [a for a, size in enumerate(node.shape) if size != 1]
    read.setdefault(node, []).append(
        min(columns, depth) > 1
        and all(axes.count(a) == 1 for a in varying)
        and axes.index(len(members) + 1) in summed
        and not any(axes.index(a) in summed for a in varying[:-1])
        and rows >= _ROWS
        and columns >= _COLUMNS
    )
