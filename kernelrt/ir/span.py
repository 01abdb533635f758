"""Tighter bounds of expressions over Variables.

Bounds of nodes (:mod:`.bounds`) treat the operands of each node as independent. Questions about
sizes, such as whether ``n - n // 2`` can be negative, need tighter bounds.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt.ir.integers import EXACT, RING
from kernelrt.ir.ops import Op
from kernelrt.ir.terms import exact_linear
from kernelrt.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["span"]

#: If the Variables have at most this many combinations of values, all combinations are tried.
_TRIED = 1 << 16
#: If there are at most this many Variables and nodes, all combinations of the least and the
#: greatest value of each Variable (corners) are tried.
_CORNERS, _NODES = 6, 100

#: Op -> the function that computes it on arrays of integers. Divisors are positive.
_WHOLE: Mapping[Op, Callable[..., Any]] = {
    **{op: EXACT[op] for op in RING}, Op.IDIV: operator.floordiv, Op.MOD: operator.mod,
    Op.MAX: np.maximum, Op.MIN: np.minimum,
}  # fmt: skip


def span(u: UOp) -> tuple[int, int]:
    """Return bounds of an integer expression over Variables, as tight as known.

    The bounds are exact in two cases: if the Variables have few combinations of values, or if the
    expression is a polynomial that is linear in each Variable. The extremes of such a polynomial
    are at the corners of the bounds.
    """
    low, high = _of_quotients(u)
    nodes = list(itertools.islice(toposort([u]), _NODES + 1))
    variables = [n for n in nodes if n.op is Op.VAR]
    if low == high or not variables or len(nodes) > _NODES:
        return low, high
    if not all(n.exact for n in nodes):
        return low, high
    if math.prod(v.vmax - v.vmin + 1 for v in variables) <= _TRIED and _is_whole(nodes):
        # The values are counted from 0, because vmax + 1 may overflow 64 bits.
        lines = [v.vmin + np.arange(v.vmax - v.vmin + 1) for v in variables]
        values = np.meshgrid(*lines, sparse=True)
        found = _at(nodes, dict(zip(variables, values, strict=True)))
        return int(np.min(found)), int(np.max(found))
    if len(variables) > _CORNERS or not _is_multilinear(nodes):
        return low, high
    corners = [
        int(_at(nodes, dict(zip(variables, corner, strict=True))))
        for corner in itertools.product(*(v.bounds for v in variables))
    ]
    return max(low, min(corners)), min(high, max(corners))


def _is_whole(nodes: list[UOp]) -> bool:
    return all(
        n.op in (Op.VAR, Op.CONST)
        or (n.op in _WHOLE and (n.op not in (Op.IDIV, Op.MOD) or n.src[1].vmin > 0))
        for n in nodes
    )


def _is_multilinear(nodes: list[UOp]) -> bool:
    degrees: dict[UOp, dict[UOp, int]] = {}
    for node in nodes:
        degree = degrees[node] = {node: 1} if node.op is Op.VAR else {}
        if node.op not in (Op.VAR, Op.CONST) and node.op not in RING:
            return False
        for s in node.src:
            for variable, d in degrees[s].items():
                more = degree.get(variable, 0)
                degree[variable] = more + d if node.op is Op.MUL else max(more, d)
        if max(degree.values(), default=0) > 1:
            return False
    return True


def _at(nodes: list[UOp], known: Mapping[UOp, Any]) -> Any:
    done = dict(known)
    for node in nodes:
        if node.op is Op.CONST:
            done[node] = int(node.arg)
        elif node.op is not Op.VAR:
            done[node] = _WHOLE[node.op](*(done[s] for s in node.src))
    return done[nodes[-1]]


def _of_quotients(u: UOp) -> tuple[int, int]:
    """Return bounds of expressions with x and x // c. They use that x is c * (x // c) + x % c."""
    low, high = u.bounds
    terms, constant = exact_linear(u)
    for quotient, factor in list(terms.items()):
        if quotient.op is not Op.IDIV or quotient.src[1].op is not Op.CONST:
            continue
        inner, offset = exact_linear(quotient.src[0])
        divisor = int(quotient.src[1].arg)
        if len(inner) != 1 or divisor <= 0:
            continue
        ((x, scale),) = inner.items()
        if scale != 1 or x not in terms:
            continue
        # a x + b q with x + offset = c q + r, 0 <= r < c
        a = terms[x]
        rest = {n: f for n, f in terms.items() if n is not x}
        rest[quotient] = factor + a * divisor
        ends = [
            sum(f * (n.vmin if (f > 0) is least else n.vmax) for n, f in rest.items())
            + constant - a * offset + (0 if (a > 0) is least else a * (divisor - 1))
            for least in (True, False)
        ]  # fmt: skip
        low, high = max(low, ends[0]), min(high, ends[1])
    return low, high
