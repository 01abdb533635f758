"""Masked-tile skipping: finds blocks of an array that a mask makes zero.

A mask that is made of loops alone, as that of causal attention, leaves whole blocks of an array
with values that hardly vary: a number, or one for each row. Whether all of these are zero is seen
from few of them, and what is zero need not be computed to be multiplied.
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
    """When an array of `element` over the RANGEs `own` is computed: else it is zero throughout.

    A bool that does not vary with `own`. None where no mask tells, or where looking at what it
    leaves would be a walk of both `row` and the others.

    Parameters
    ----------
    element : UOp
        What the array is made of.
    own : sequence of UOp
        RANGEs of fixed extents.
    row : UOp
        The one of them that is another row.
    free : iterator of int
        Numbers of new RANGEs.
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
        places = {r: new_range(extent(r), next(free)) for r in walked}
        [left] = substitute([left], places)
        some = left.replace(op=Op.BITCAST, dtype=bits, src=(left,), arg=None)
        some = some.alu(Op.NE, const(0, bits)).cast(dt.int32)
        if walked:
            some = UOp(Op.REDUCE, dt.int32, (some, *places.values()), Op.MAX)
        return ~decided | some.alu(Op.NE, const(0, dt.int32))
    return None


def _is_array(u: UOp) -> bool:
    return u.op is Op.LOCAL


def _is_set(number: float) -> bool:
    """Whether any bit of a float is set."""
    return number != 0 or str(number).startswith("-")


def _masks(element: UOp) -> Iterator[tuple[UOp, bool]]:
    """Conditions made of loops alone under which `element` is simpler."""
    for u in toposort([element], stop=lambda n: n.op in CLOSING):
        if u.op is Op.WHERE and is_of_loops(u.src[0]):
            yield u.src[0], True
            yield u.src[0], False


def _under(element: UOp, mask: UOp, *, holds: bool) -> UOp:
    """`element` where `mask` holds, or does not."""
    chosen = {
        u: u.src[1 if holds else 2]
        for u in toposort([element], stop=lambda n: n.op in CLOSING)
        if u.op is Op.WHERE and u.src[0] is mask
    }
    while any(u in chosen for u in toposort([element], stop=lambda n: n.op in CLOSING)):
        [element] = substitute([element], chosen)
    return element


def _throughout(mask: UOp, own: Sequence[UOp], *, holds: bool) -> UOp | None:
    """A condition that does not vary with `own`, under which `mask` is `holds` for all of them."""
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
    """The greatest value that a sum takes over `own`."""
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
