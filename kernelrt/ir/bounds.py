"""Interval analysis of integer nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp

__all__ = ["infer"]


def infer(u: UOp) -> tuple[int, int]:
    """Bounds of `u` from the bounds of its operands; float nodes get (0, 0) and mean nothing."""
    if u.dtype.is_float:
        return (0, 0)
    low, high = _exact(u)
    tmin, tmax = int(u.dtype.min), int(u.dtype.max)
    # A value that may wrap can be anything.
    return (low, high) if tmin <= low and high <= tmax else (tmin, tmax)


def _exact(u: UOp) -> tuple[int, int]:
    op = u.op
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
    if op is Op.BOUND:
        return 0, max(0, u.src[1].vmax - 1)
    if op is Op.CAST or (u.src and op in _PASS_THROUGH):
        return u.src[0].bounds
    if op is Op.PAD:
        return min(0, u.src[0].vmin), max(0, u.src[0].vmax)
    if op in (Op.LT, Op.LE, Op.EQ, Op.NE):
        return _compare(op, u.src[0].bounds, u.src[1].bounds)
    return anything


_PASS_THROUGH = frozenset(
    {Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.SHRINK, Op.FLIP, Op.CONTIGUOUS, Op.DETACH}
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
