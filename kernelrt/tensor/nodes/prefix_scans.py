"""Folds of all elements up to each one along the last axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.reducers import of_nothing
from kernelrt.ir.shape import dim_max
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.reductions import log_total
from kernelrt.tensor.nodes.special import log_add

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fold", "in_rows", "log_sum", "records"]

#: Elements that are folded as windows; their totals are folded in the same way.
_BLOCK = 64
#: The same where each element of a window takes an exp, or a division for the gradient.
_DEAR_BLOCK = 16


def _padded(x: UOp, before: Dim, behind: Dim, value: float) -> UOp:
    """`x` with `value` before and behind the last axis."""
    *lead, _ = x.shape
    ends = [
        build.full(value, x.dtype, (*lead, n)) for n in (before, behind)
    ]
    parts = [part for part in (ends[0], x, ends[1]) if not build.has_zero(part.shape)]
    return build.cat(parts, len(lead))


def in_rows(x: UOp, block: int, value: float) -> UOp:
    """The last axis as rows of `block` elements, the last of them filled up with `value`."""
    *lead, n = x.shape
    if isinstance(n, int):
        count = -(-n // block)
        return build.reshape(_behind(x, count * block - n, value), (*lead, count, block))
    wide = _behind(x, block - 1, value)
    return UOp(Op.WINDOW, x.dtype, (wide,), ((len(lead), block, block, 1),))


def _behind(x: UOp, n: int, value: float) -> UOp:
    """`x` with `n` times `value` behind the last axis."""
    if value == 0:
        return build.pad(x, [*((0, 0) for _ in x.shape[1:]), (0, n)])
    return _padded(x, 0, n, value)


def _windows(x: UOp, n: Dim, nothing: float) -> UOp:
    """The last `n` elements up to each one, along a new last axis; before the first `nothing`."""
    rank = len(x.shape)
    padded = _padded(x, build.difference(n, 1), 0, nothing)
    return UOp(Op.WINDOW, x.dtype, (padded,), ((rank - 1, n, 1, 1),))


def _blocked(
    x: UOp,
    within: Callable[[UOp], UOp],
    join: Callable[[UOp, UOp], UOp],
    nothing: float,
    block: int,
) -> UOp:
    """The fold that `within` computes for a few elements, for as many as there are."""
    *lead, n = x.shape
    if dim_max(n) <= block:
        return within(x) if dim_max(n) > 1 else x
    rows = in_rows(x, block, nothing)
    count = rows.shape[-2]
    inner = within(rows)
    last = [(0, d) for d in (*lead, count)]
    ends = build.shrink(inner, [*last, (block - 1, block)])
    totals = _blocked(build.reshape(ends, (*lead, count)), within, join, nothing, block)
    before = build.shrink(_padded(totals, 1, 0, nothing), last)
    before = build.reshape(before, (*lead, count, 1))
    joined = join(build.expand(before, inner.shape), inner)
    whole = build.reshape(joined, (*lead, build.volume((count, block))))
    return build.shrink(whole, [*last[:-1], (0, n)])


def fold(x: UOp, op: Op) -> UOp:
    """The running product, maximum or minimum; `op` is MUL, MAX or MIN."""
    nothing = of_nothing(op, x.dtype)

    def within(part: UOp) -> UOp:
        n = part.shape[-1]
        return build.reduce(_windows(part, n, nothing), op, (len(part.shape),))

    return _blocked(x, within, lambda a, b: a.alu(op, b), nothing,
                    _DEAR_BLOCK if op is Op.MUL else _BLOCK)  # fmt: skip


def log_sum(x: UOp) -> UOp:
    """The logarithm of the running sum of the exponentials."""

    def within(part: UOp) -> UOp:
        n = part.shape[-1]
        windows = _windows(part, n, -math.inf)
        top, rest = log_total(windows, (len(part.shape),), guard=True)
        return build.reshape(rest.alu(Op.ADD, top), part.shape)

    return _blocked(x, within, log_add, -math.inf, _DEAR_BLOCK)


def records(x: UOp, op: Op) -> UOp:
    """Where the running maximum or minimum up to each element comes from: the last such place.

    NaN is a record, behind which only NaN is one.
    """
    best = fold(x, op)
    hit = x.eq(best)
    if x.dtype.is_float:
        hit = hit.alu(Op.OR, x.ne(x))
    place = build.iota_along(x.shape, len(x.shape) - 1)
    return fold(build.where(hit, place, build.full(0, dt.int64, x.shape)), Op.MAX)
