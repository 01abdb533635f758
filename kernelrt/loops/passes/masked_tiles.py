"""Masked-tile skipping: finds blocks of an array that a mask makes zero.

If a mask contains only loop indices, as in causal attention, it sets whole blocks of an array to
one value, or to one value for each row. A test of these few values shows whether the whole block is
zero. If so, the block need not be computed before it is multiplied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import UOp, const, toposort
from kernelrt.loops.analysis import CLOSING, is_of_loops
from kernelrt.loops.passes.pack_operands import new_range
from kernelrt.loops.tiles import extent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["needed"]

_COMPARISONS = (Op.LT, Op.LE)


def needed(element: UOp, own: Sequence[UOp], row: UOp, free: Iterator[int]) -> UOp | None:
    """Return the predicate under which an array over the RANGEs `own` is not all zero.

    The predicate is a bool that does not vary with `own`. If it is false, all elements of the array
    are zero. Return None if no mask makes whole blocks zero, or if a test of the values under the
    mask would need loops over `row` and further RANGEs.

    Parameters
    ----------
    element : UOp
        Element of the array.
    own : sequence of UOp
        RANGEs of the array, of constant extents.
    row : UOp
        The RANGE in `own` of the rows.
    free : iterator of int
        Unused numbers for new RANGEs.
    """
    size = element.dtype.itemsize
    bits = {4: dt.int32, 8: dt.int64}.get(size)
    for mask, holds in _masks(element):
        decided = _throughout(mask, own, holds=holds)
        left = _under(element, mask, holds=holds)
        nodes = list(toposort([left], stop=_is_array))
        walked = [r for r in own if r in nodes]
        tells = decided is not None and not any(u.op is Op.REDUCE for u in nodes)
        if not tells or bits is None or (row in walked and len(walked) > 1):
            continue
        assert decided is not None
        if left.op is Op.CONST and _is_set(left.arg):
            continue
        if left.op is Op.CONST:
            return ~decided
        fresh = {r: new_range(extent(r), next(free)) for r in walked}
        [left] = substitute([left], fresh)
        some = left.replace(op=Op.BITCAST, dtype=bits, src=(left,), arg=None)
        some = some.alu(Op.NE, const(0, bits)).cast(dt.int32)
        if walked:
            some = UOp(Op.REDUCE, dt.int32, (some, *fresh.values()), Op.MAX)
        return ~decided | some.alu(Op.NE, const(0, dt.int32))
    return None


def _is_array(u: UOp) -> bool:
    return u.op is Op.LOCAL


def _is_set(number: float) -> bool:
    """Return whether any bit of a number is set; -0.0 has one, its sign bit, and 0.0 has none."""
    return number != 0 or str(number).startswith("-")


def _masks(element: UOp) -> Iterator[tuple[UOp, bool]]:
    """Yield (condition, True) and (condition, False) for each WHERE with a condition on loops."""
    for u in toposort([element], stop=lambda n: n.op in CLOSING):
        if u.op is Op.WHERE and is_of_loops(u.src[0]):
            yield u.src[0], True
            yield u.src[0], False


def _under(element: UOp, mask: UOp, *, holds: bool) -> UOp:
    """Return `element`, simplified for the case that `mask` has the value `holds`."""
    chosen = {
        u: u.src[1 if holds else 2]
        for u in toposort([element], stop=lambda n: n.op in CLOSING)
        if u.op is Op.WHERE and u.src[0] is mask
    }
    while any(u in chosen for u in toposort([element], stop=lambda n: n.op in CLOSING)):
        [element] = substitute([element], chosen)
    return element


def _throughout(mask: UOp, own: Sequence[UOp], *, holds: bool) -> UOp | None:
    """Return a condition under which `mask` has the value `holds` for all indices `own`, or None.

    The condition itself does not vary with `own`.
    """
    if mask.op is Op.NOT:
        return _throughout(mask.src[0], own, holds=not holds)
    if mask.op in (Op.AND, Op.OR) and mask.dtype.is_bool:
        both = [_throughout(s, own, holds=holds) for s in mask.src]
        if (mask.op is Op.AND) is holds:
            return None if both[0] is None or both[1] is None else both[0] & both[1]
        found = [x for x in both if x is not None]
        return found[0] | found[-1] if found else None
    if mask.op not in _COMPARISONS or not all(s.exact for s in mask.src):
        return None
    a, b = mask.src
    ends = _greatest(a - b if holds else b - a, own)
    if ends is None:
        return None
    # not (a <= b) is b < a.
    strict = (mask.op is Op.LT) is holds
    zero = const(0, dt.int64)
    return simplify(ends.alu(Op.LT if strict else Op.LE, zero))


def _greatest(x: UOp, own: Sequence[UOp]) -> UOp | None:
    """Return the greatest value of `x` for any indices `own`; None if `x` is not linear in them."""
    terms, constant = linear(x)
    total = const(constant, dt.int64)
    for term, factor in terms.items():
        if term in own:
            total = total + max(0, factor) * (extent(term) - 1)
        elif any(n in own for n in toposort([term])):
            return None
        else:
            total = total + term * factor
    return total
