"""Predicates under which an element exists, and unions of predicates.

A predicate is a conjunction of comparisons. Most of these compare a sum of loop indices with a
number. So a predicate is a *box*: an interval for each such sum, and a set of other comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt.ir import Op, UOp
from kernelrt.ir.terms import exact_linear, order

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["conjuncts", "united"]

_Sum = frozenset[tuple[UOp, int]]
#: A bound and the comparison that states it; None for no bound.
_Bound = tuple[int, UOp] | None
#: Maximum number of predicates that are simplified; more are just OR-ed.
_MOST = 32


@dataclass(slots=True)
class _Box:
    intervals: dict[_Sum, tuple[_Bound, _Bound]] = field(default_factory=dict)
    others: dict[UOp, None] = field(default_factory=dict)

    def nodes(self) -> list[UOp]:
        """Return the comparisons whose conjunction is this box."""
        bounds = [b for pair in self.intervals.values() for b in pair if b is not None]
        return list(dict.fromkeys([*(node for _, node in bounds), *self.others]))

    def covers(self, other: _Box) -> bool:
        """Return whether this box certainly contains all points of `other`."""
        return self.others.keys() <= other.others.keys() and all(
            _within(low, high, other.low(at), other.high(at))
            for at, (low, high) in self.intervals.items()
        )

    def low(self, at: _Sum) -> _Bound:
        """Return the lower bound of a sum."""
        return self.intervals.get(at, (None, None))[0]

    def high(self, at: _Sum) -> _Bound:
        """Return the upper bound of a sum."""
        return self.intervals.get(at, (None, None))[1]

    def bound(self, at: _Sum, low: _Bound, high: _Bound) -> None:
        """Intersect the interval of a sum with [low, high]."""
        old_low, old_high = self.intervals.get(at, (None, None))
        if low is None or (old_low is not None and old_low[0] >= low[0]):
            low = old_low
        if high is None or (old_high is not None and old_high[0] <= high[0]):
            high = old_high
        self.intervals[at] = (low, high)


def conjuncts(predicate: UOp) -> list[UOp]:
    """Return the conditions whose conjunction is `predicate`, without duplicates."""
    out: dict[UOp, None] = {}
    seen: set[UOp] = set()
    stack = [predicate]
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if part.op is Op.AND:
            stack.extend(reversed(part.src))
        else:
            out[part] = None
    return list(out)


def united(predicates: Sequence[UOp]) -> list[list[UOp]]:
    """Return predicates with the same union as `predicates`, each as a list of comparisons.

    If one predicate covers another, the other is dropped. If the union of two predicates is a box,
    they are merged. An empty list of comparisons stands for a predicate that always holds.
    """
    boxes = [_box(predicate) for predicate in predicates]
    if len(boxes) > _MOST:
        return [box.nodes() for box in boxes]
    done: list[_Box] = []
    while boxes:
        box = boxes.pop(0)
        for k, other in enumerate(done):
            whole = _union(box, other)
            if whole is not None:
                del done[k]
                boxes.append(whole)
                break
        else:
            done.append(box)
    return [box.nodes() for box in done]


def _box(predicate: UOp) -> _Box:
    box = _Box()
    for part in conjuncts(predicate):
        found = _bounded(part)
        if found is None:
            box.others[part] = None
        else:
            box.bound(*found)
    return box


def _bounded(part: UOp) -> tuple[_Sum, _Bound, _Bound] | None:
    """Return the sum that a comparison bounds, with its lower and upper bound."""
    if part.op is not Op.LT:
        return None
    a, b = part.src
    if not (a.dtype.is_int and a.exact and b.exact):
        return None
    if b.op is Op.CONST:
        terms, constant = exact_linear(a)
        below = True
        limit = int(b.arg) - 1 - constant
    elif a.op is Op.CONST:
        terms, constant = exact_linear(b)
        below = False
        limit = int(a.arg) + 1 - constant
    else:
        return None
    if not terms:
        return None
    if terms[min(terms, key=order)] < 0:
        terms, limit, below = {t: -c for t, c in terms.items()}, -limit, not below
    bound = (limit, part)
    return frozenset(terms.items()), None if below else bound, bound if below else None


def _within(low: _Bound, high: _Bound, inner_low: _Bound, inner_high: _Bound) -> bool:
    """Return whether the first interval contains the second one."""
    return (low is None or (inner_low is not None and low[0] <= inner_low[0])) and (
        high is None or (inner_high is not None and inner_high[0] <= high[0])
    )


def _union(a: _Box, b: _Box) -> _Box | None:
    """Return the union of two boxes if the union is a box, else None."""
    if a.covers(b):
        return a
    if b.covers(a):
        return b
    if a.others.keys() != b.others.keys():
        return None
    sums = dict.fromkeys([*a.intervals, *b.intervals])
    differing = [at for at in sums if not _alike(a, b, at)]
    if len(differing) != 1:
        return None
    (at,) = differing
    if not (_touches(a.low(at), b.high(at)) and _touches(b.low(at), a.high(at))):
        return None
    low = _wider(a.low(at), b.low(at), least=True)
    high = _wider(a.high(at), b.high(at), least=False)
    intervals = {s: pair for s, pair in a.intervals.items() if s != at}
    if low is not None or high is not None:
        intervals[at] = (low, high)
    return _Box(intervals, a.others)


def _alike(a: _Box, b: _Box, at: _Sum) -> bool:
    return all(
        (x is None and y is None) or (x is not None and y is not None and x[0] == y[0])
        for x, y in ((a.low(at), b.low(at)), (a.high(at), b.high(at)))
    )


def _touches(low: _Bound, high: _Bound) -> bool:
    """Return whether no integer lies between an upper bound and the next lower bound."""
    return low is None or high is None or low[0] <= high[0] + 1


def _wider(x: _Bound, y: _Bound, *, least: bool) -> _Bound:
    if x is None or y is None:
        return None
    return x if (x[0] <= y[0]) is least else y
