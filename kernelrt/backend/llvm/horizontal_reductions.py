"""Identities of reductions, and horizontal reductions of vector accumulators.

All functions except :func:`any_lane` take a REDUCE node, and use its reducer and dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.backend.llvm.instructions import alu
from kernelrt.backend.llvm.llvm_types import Value
from kernelrt.ir.ops import Op
from kernelrt.ir.reducers import start

if TYPE_CHECKING:
    from kernelrt.backend.llvm.llvm_types import Text
    from kernelrt.ir.uop import UOp

__all__ = ["across", "any_lane", "identity", "merge", "widen"]


def identity(b: Text, u: UOp, lanes: int) -> Value:
    """Return the identity of a reduction: the value that leaves any other value unchanged."""
    return b.constant(start(u.arg, u.dtype), u.dtype, lanes)


def widen(b: Text, u: UOp, element: Value, lanes: int) -> Value:
    """Extend a vector to `lanes` lanes; new lanes hold the identity of the reduction."""
    if element.lanes == 1:
        fill = identity(b, u, lanes)
        kind = b.type_of(element)
        text = b.emit(
            f"insertelement {b.type_of(fill)} {fill.text}, {kind} {element.text}, i64 0"
        )
        return Value(text, lanes, u.dtype)
    fill = identity(b, u, element.lanes)
    return b.shuffle(element, fill, [min(i, element.lanes) for i in range(lanes)])


def merge(b: Text, u: UOp, parts: list[Value]) -> Value:
    """Combine the accumulators of one result pairwise."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [alu(b, u.arg, u.dtype, p) if len(p) == 2 else p[0] for p in pairs]
    return parts[0]


def across(b: Text, u: UOp, vectors: list[Value]) -> Value:
    """Reduce each vector to one lane, and return all results in one vector.

    Each round combines the two halves of each vector, and puts the results of two vectors into one.
    So the number of vectors is halved in each round. Sixteen sums of sixteen lanes take fifteen
    additions, not sixty-four.
    """
    lanes = vectors[0].lanes
    if lanes & (lanes - 1):
        lanes = 1 << lanes.bit_length()
        vectors = [widen(b, u, v, lanes) for v in vectors]
    wanted = len(vectors)
    count = 1 << (wanted - 1).bit_length()
    if count > lanes:
        halves = [across(b, u, half) for half in (vectors[:lanes], vectors[lanes:])]
        return b.pack([b.lane(h, i) for h in halves for i in range(h.lanes)])
    # Each result occupies `group` adjacent lanes of a vector.
    group = lanes
    vectors = vectors + [vectors[-1]] * (count - wanted)
    while len(vectors) > 1:
        pairs = zip(vectors[0::2], vectors[1::2], strict=True)
        vectors = [_halve(b, u, group, *pair) for pair in pairs]
        group //= 2
    one = vectors[0]
    while group > 1:
        one = _halve(b, u, group, one, None)
        group //= 2
    return one if one.lanes == wanted else b.shuffle(one, None, list(range(wanted)))


def _halve(b: Text, u: UOp, group: int, x: Value, y: Value | None) -> Value:
    """Combine the low half of each group of lanes with its high half."""
    half = group // 2
    starts = range(0, x.lanes * (1 if y is None else 2), group)
    low = [s + i for s in starts for i in range(half)]
    high = [s + half + i for s in starts for i in range(half)]
    return alu(b, u.arg, u.dtype, [b.shuffle(x, y, low), b.shuffle(x, y, high)])


def any_lane(b: Text, masks: list[Value]) -> Value:
    """Return whether any lane of any of `masks` is true."""
    widest = max(mask.lanes for mask in masks)
    wide = [m for m in masks if m.lanes == widest]
    narrow = [m for m in masks if m.lanes < widest]
    folded = [any_lane(b, narrow)] if narrow else []
    while len(wide) > 1:
        pairs = [wide[i : i + 2] for i in range(0, len(wide), 2)]
        wide = [alu(b, Op.OR, dt.bool_, p) if len(p) == 2 else p[0] for p in pairs]
    some = wide[0]
    if widest > 1:
        mask = (b.type_of(some), some.text)
        some = Value(b.call(f"llvm.vector.reduce.or.v{widest}i1", "i1", mask), 1, dt.bool_)
    return alu(b, Op.OR, dt.bool_, [some, *folded]) if folded else some
