"""Interval analysis of integer nodes.

Arithmetic wraps to the width of its type, as in C. A node is *exact* if it wraps for no values of
its leaves. Then it equals the same expression over unbounded integers. Index arithmetic is exact,
because RANGEs and Variables have bounds that prove it. Arithmetic on data is seldom exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir.integers import RING
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["infer"]


def infer(u: UOp) -> tuple[int, int, bool]:
    """Compute the bounds of `u` from those of its operands; return them, and whether `u` is exact.

    A node is exact if no sum or product between it and its leaves can wrap. Float nodes get the
    bounds (0, 0), which have no meaning.
    """
    if u.dtype.is_float:
        return (0, 0, True)
    low, high = _interval(u)
    tmin, tmax = int(u.dtype.min), int(u.dtype.max)
    # A value that may wrap can be anything.
    if low < tmin or high > tmax:
        return (tmin, tmax, u.op not in RING)
    return (low, high, u.op not in RING or all(s.exact for s in u.src))


def _interval(u: UOp) -> tuple[int, int]:
    op = u.op
    if op in _PASS_THROUGH and u.src:
        return u.src[0].bounds
    if op is Op.CONST:
        return int(u.arg), int(u.arg)
    if op is Op.VAR:
        return u.arg[1], u.arg[2]
    if op in (Op.RANGE, Op.IOTA):
        return 0, max(0, u.src[0].vmax - 1)
    anything = int(u.dtype.min), int(u.dtype.max)
    if any(s.dtype.is_float for s in u.src):
        return anything
    if op in (Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.MIN, Op.AND, Op.SHR):
        return _binary(u, u.src[0].bounds, u.src[1].bounds)
    if op is Op.NEG:
        return -u.src[0].vmax, -u.src[0].vmin
    if op is Op.WHERE:
        (a, b), (c, d) = u.src[1].bounds, u.src[2].bounds
        return min(a, c), max(b, d)
    if op is Op.BOUND and len(u.src) < 4:
        return 0, max(0, u.src[1].vmax - 1)
    if op is Op.BOUND:
        return min(0, u.src[3].vmin), max(0, u.src[3].vmax)
    if op is Op.CAST:
        return u.src[0].bounds
    if op is Op.PAD or (op is Op.LOAD and u.src and u.src[0].op is Op.LOCAL):
        return min(0, u.src[0].vmin), max(0, u.src[0].vmax)
    if op in (Op.LT, Op.LE, Op.EQ, Op.NE):
        return _compare(op, u.src[0].bounds, u.src[1].bounds)
    return anything


_PASS_THROUGH = frozenset(
    {Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SHRINK, Op.FLIP, Op.CONTIGUOUS, Op.DETACH, Op.LOCAL}
)


def _binary(u: UOp, x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    (a, b), (c, d) = x, y
    op = u.op
    if op is Op.ADD:
        return a + c, b + d
    if op is Op.SUB:
        return a - d, b - c
    if op is Op.MUL:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op is Op.MAX:
        return max(a, c), max(b, d)
    if op is Op.MIN:
        return min(a, c), min(b, d)
    if op is Op.IDIV and c > 0:
        corners = (a // c, a // d, b // c, b // d)
        return min(corners), max(corners)
    if op is Op.MOD and c > 0:
        return (a, b) if a >= 0 and b < c else (0, min(d - 1, b) if a >= 0 else d - 1)
    if op is Op.AND and a >= 0 and c >= 0:
        return 0, min(b, d)
    if op is Op.SHR and a >= 0 and c >= 0 and d < u.dtype.bits:
        return a >> d, b >> c
    return int(u.dtype.min), int(u.dtype.max)


def _compare(op: Op, x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    (a, b), (c, d) = x, y
    if op is Op.LT:
        return int(b < c), int(a < d)
    if op is Op.LE:
        return int(b <= c), int(a <= d)
    disjoint = b < c or d < a
    same = a == b == c == d
    if op is Op.EQ:
        return int(same), int(not disjoint)
    return int(disjoint), int(not same)
