"""Predication: skips sums that nobody reads, and products with zero.

Masks that are made of loops alone leave whole tiles of a result, or of an operand, without meaning.
Which they are is seen from the mask, or from what was computed; what is skipped would not have
changed a bit of any result.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt.ir.local import most_elements
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.terms import linear
from kernelrt.ir.uop import UOp, toposort
from kernelrt.loops.analysis import is_of_loops
from kernelrt.loops.tiles import ONE, extent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiles import Tile

    _Seen = Callable[[Mapping[UOp, tuple[int, int]]], bool]

__all__ = [
    "LEAST_AT_ONCE", "Gate", "computed", "gate_of", "may_be_zero", "zeros_in", "zeros_of_turns",
]  # fmt: skip

#: Terms of a sum from which a look at its mask costs little beside it.
_LEAST_TERMS: Final = 16
#: Elements of a row that are compared with zero at once, and no fewer: a vector of float32.
LEAST_AT_ONCE: Final = 8
#: Tiles at which is looked to see what part of all is computed: of causal masks over rows and
#: columns in parts it is off by 0.015 at most.
_LOOKS: Final = 256
_PRIMES: Final = (2, 3, 5, 7, 11, 13)


class Gate(NamedTuple):
    """When a result is looked at.

    Attributes
    ----------
    condition : UOp
        A bool made of loops alone.
    holds : bool
        Its value there.
    """

    condition: UOp
    holds: bool


def gate_of(info: Analysis, nodes: Sequence[UOp]) -> Gate | None:
    """The condition under which the results of a pass are used; None where there is none to see.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nodes : sequence of UOp
        The REDUCEs and LOCALs of the pass.
    """
    found = {_gate(info, u) for u in nodes}
    if len(found) > 1 or most_elements(nodes[0].src[1:]) < _LEAST_TERMS:
        return None
    return found.pop()


def _gate(info: Analysis, u: UOp) -> Gate | None:
    # A check inside must not be missed.
    if u.op is not Op.REDUCE or any(n.op is Op.BOUND for n in toposort([u])):
        return None
    node = u
    while True:
        users = info.users.get(node, ())
        if len(users) != 1 or users[0].op not in ALU:
            return None
        (user,) = users
        if user.op is Op.WHERE and node is not user.src[0]:
            condition, yes, _ = user.src
            known = info.deps[condition] <= info.deps[u] and is_of_loops(condition)
            return Gate(condition, node is yes) if known and user.src.count(node) == 1 else None
        node = user


def computed(gate: Gate, tiles: Mapping[UOp, Tile]) -> float:
    """The part of the tiles of a result in which any of it is looked at, about.

    Parameters
    ----------
    gate : Gate
        When it is.
    tiles : mapping of UOp to Tile
        Tiles of the ranges that have one.
    """
    throughout = _throughout(gate.condition, not gate.holds)
    if throughout is None:
        return 1.0
    ranges = [n for n in toposort([gate.condition]) if n.op is Op.RANGE]
    sizes, steps = [extent(r) for r in ranges], [tiles.get(r, ONE).factor for r in ranges]
    turns = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
    if len(ranges) > len(_PRIMES):
        return 1.0
    places: Iterable[tuple[int, ...]] = itertools.product(*map(range, turns))
    if math.prod(turns) > _LOOKS:
        places = [tuple(map(int, map(operator.mul, at, turns))) for at in _spread(len(ranges))]
    left = [
        not throughout({
            r: (place * step, min(place * step + step, size) - 1)
            for r, size, step, place in zip(ranges, sizes, steps, at, strict=True)
        })
        for at in places
    ]  # fmt: skip
    return sum(left) / max(1, len(left))


@functools.cache
def _spread(count: int) -> list[tuple[float, ...]]:
    """Points that are spread evenly over a cube of so many axes, from 0 to 1 (Halton, 1960)."""
    return [tuple(_turned(k, base) for base in _PRIMES[:count]) for k in range(1, _LOOKS + 1)]


def _turned(number: int, base: int) -> float:
    """What a number's digits are behind the point, the last one first."""
    found, weight = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        weight /= base
        found += weight * digit
    return found


def _throughout(mask: UOp, holds: bool) -> _Seen | None:
    """What tells whether `mask` is seen to be `holds` between ends of its RANGEs; None: nothing."""
    if mask.op is Op.NOT:
        return _throughout(mask.src[0], not holds)
    if mask.op in (Op.AND, Op.OR) and mask.dtype.is_bool:
        parts = [_throughout(s, holds) for s in mask.src]
        of_all = (mask.op is Op.AND) is holds
        known = [part for part in parts if part is not None]
        if not known or (of_all and len(known) < len(parts)):
            return None
        decide = all if of_all else any
        return lambda ends: decide(part(ends) for part in known)
    if mask.op not in (Op.LT, Op.LE) or not all(s.exact for s in mask.src):
        return None
    terms, constant = linear(mask.src[0] - mask.src[1])
    if any(r.op is not Op.RANGE for r in terms):
        return None
    sign = 1 if holds else -1
    # A factor above 0 is greatest at the last place, one below 0 at the first.
    signed = [(r, sign * factor, sign * factor > 0) for r, factor in terms.items()]
    # Not a < b is b - a <= 0, and of whole numbers a < 0 is a <= -1.
    limit = -sign * constant - ((mask.op is Op.LT) is holds)
    return lambda ends: sum(f * ends[r][last] for r, f, last in signed) <= limit


def zeros_in(info: Analysis, nodes: Sequence[UOp], tiles: Mapping[UOp, Tile]) -> UOp | None:
    """The LOAD of which a whole tile may be zero, so that one row of products does for all rows.

    It reads arrays in order that masks may have filled with zeros. All its rows then have the same
    products with the other operand: zeros, and what is no number where that is none.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nodes : sequence of UOp
        The REDUCEs and LOCALs of a pass.
    tiles : mapping of UOp to Tile
        Tiles of the ranges that have one.
    """
    u, *others = nodes
    k = u.src[-1]
    if others or len(u.src) != 2 or tiles.get(k, ONE).lanes > 1:
        return None
    for x, other in _factors(info, u):
        rows = info.deps[x] - {k} - info.deps[other]
        alone = all(tiles.get(r, ONE).lanes == 1 for r in info.deps[x])
        if alone and any(tiles.get(r, ONE).factor > 1 for r in rows):
            return x
    return None


def zeros_of_turns(
    info: Analysis, kept: UOp, around: Sequence[UOp], tiles: Mapping[UOp, Tile]
) -> UOp | None:
    """The LOAD of an array that whole turns of `around` need not have, of those for `kept`.

    It is gated by what is known where a turn begins. Where it gives zeros, all rows of the sums
    that `kept` keeps have the same products.
    """
    u = kept.src[0]
    outer = {*around, *info.deps[kept]}
    if u.src[0].op is not Op.MUL or any(tiles.get(r, ONE) != ONE for r in outer):
        return None
    gated = [x for x in u.src[0].src if x.op is Op.LOAD and len(x.src) > 2]
    for x in gated:
        if x.src[0].op is Op.LOCAL and info.deps[x.src[2]] <= outer:
            return x
    return None


def may_be_zero(info: Analysis, u: UOp) -> bool:
    """Whether `u` is a sum of products with what masks may have made zero."""
    return u.op is Op.REDUCE and len(u.src) == 2 and any(True for _ in _factors(info, u))


def _factors(info: Analysis, u: UOp) -> list[tuple[UOp, UOp]]:
    """Factors of the sum of products `u` that lie, maybe masked, in an array; and the others."""
    value, k = u.src[0], u.src[-1]
    if u.arg is not Op.ADD or value.op is not Op.MUL or not value.dtype.is_float:
        return []
    a, b = value.src
    return [
        (x, y)
        for x, y in ((a, b), (b, a))
        if x.op is Op.LOAD
        and x.src[0].op is Op.LOCAL
        and len(x.src) == 2
        and info.stride(x, k) == 1
        and extent(k) >= LEAST_AT_ONCE
        and _is_masked(x.src[0])
    ]


def _is_masked(local: UOp) -> bool:
    """Whether some elements of an array follow from a number, by where they are."""
    inside = toposort([local.src[0]], stop=lambda n: n.op is Op.REDUCE)
    return any(
        n.op is Op.WHERE
        and any(s.op is Op.CONST for s in n.src[1:])
        and is_of_loops(n.src[0])
        for n in inside
    )
