"""Predication: skips sums that no result uses, products with zero, and values of masked elements.

If a mask contains only loop indices, as in causal attention, it has one of two effects. It makes
whole tiles of a result unused, or it sets whole tiles of an operand to zero or another constant.
The kernel finds unused tiles by the mask, and does not compute them. It finds constant tiles by a
test of the computed operand, and computes only one row of their products. No result changes by a
bit.
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

    from kernelrt.device.costs import Costs
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiles import Tile

    _Seen = Callable[[Mapping[UOp, tuple[int, int]]], bool]

__all__ = [
    "LEAST_AT_ONCE",
    "Masked",
    "Predicate",
    "computed",
    "masked_in",
    "may_be_zero",
    "predicate_of",
    "zeros_in",
    "zeros_of_iterations",
]  # fmt: skip

#: The least number of terms of a sum that gets a predicate. For fewer terms, it costs too much to
#: evaluate the mask.
_LEAST_TERMS: Final = 16
#: The least number of elements of a row that are tested for zeros together: a vector of float32.
LEAST_AT_ONCE: Final = 8
#: The least cost of an element, in plain instructions, for a test whether a tile is masked: about
#: half of exp. Causal attention of 1 x 4 x 128 x 32 takes 109 us with the test of exp, 118 without
#: (AVX2), and the same with AVX-512 (Zen 4).
_LEAST_WORK: Final = 12
#: Number of sampled tiles for the estimate of the fraction that is computed. For causal masks over
#: rows and over columns in parts, the error of the estimate is at most 0.015.
_SAMPLES: Final = 256
_PRIMES: Final = (2, 3, 5, 7, 11, 13)


class Predicate(NamedTuple):
    """Predicate under which a result is used.

    Attributes
    ----------
    condition : UOp
        A bool that contains only loop indices, constants and Variables.
    holds : bool
        The value that the condition has where the result is used.
    """

    condition: UOp
    holds: bool


class Masked(NamedTuple):
    """Elements of an array that a mask has set to a constant.

    Attributes
    ----------
    load : UOp
        LOAD of the array.
    value : UOp
        The CONST that masked elements hold.
    """

    load: UOp
    value: UOp


def predicate_of(info: Analysis, nodes: Sequence[UOp]) -> Predicate | None:
    """Return the predicate under which the results of a pass are used, or None if there is none.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nodes : sequence of UOp
        The REDUCEs and LOCALs of the pass.
    """
    found = {_predicate(info, u) for u in nodes}
    if len(found) > 1 or most_elements(nodes[0].src[1:]) < _LEAST_TERMS:
        return None
    return found.pop()


def _predicate(info: Analysis, u: UOp) -> Predicate | None:
    # A bounds check inside must not be skipped.
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
            if known and user.src.count(node) == 1:
                return Predicate(condition, node is yes)
            return None
        node = user


def computed(predicate: Predicate, tiles: Mapping[UOp, Tile]) -> float:
    """Estimate the fraction of a result's tiles in which at least one element is used.

    Parameters
    ----------
    predicate : Predicate
        Predicate of the result.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    """
    throughout = _throughout(predicate.condition, not predicate.holds)
    if throughout is None:
        return 1.0
    ranges = [n for n in toposort([predicate.condition]) if n.op is Op.RANGE]
    sizes, steps = [extent(r) for r in ranges], [tiles.get(r, ONE).factor for r in ranges]
    iterations = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
    if len(ranges) > len(_PRIMES):
        return 1.0
    samples: Iterable[tuple[int, ...]] = itertools.product(*map(range, iterations))
    if math.prod(iterations) > _SAMPLES:
        samples = [
            tuple(map(int, map(operator.mul, at, iterations))) for at in _halton(len(ranges))
        ]
    left = [
        not throughout({
            r: (i * step, min(i * step + step, size) - 1)
            for r, size, step, i in zip(ranges, sizes, steps, at, strict=True)
        })
        for at in samples
    ]  # fmt: skip
    return sum(left) / max(1, len(left))


@functools.cache
def _halton(count: int) -> list[tuple[float, ...]]:
    """Return quasi-random points in the unit cube of `count` dimensions (Halton, 1960)."""
    return [
        tuple(_radical_inverse(k, base) for base in _PRIMES[:count])
        for k in range(1, _SAMPLES + 1)
    ]


def _radical_inverse(number: int, base: int) -> float:
    """Return the radical inverse of a number: its digits in `base`, in reverse after the point."""
    found, weight = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        weight /= base
        found += weight * digit
    return found


def _throughout(mask: UOp, holds: bool) -> _Seen | None:
    """Return a test whether `mask` has the value `holds` throughout a tile, or None.

    The test takes the first and last index of the tile for each RANGE. It may be False for a tile
    throughout which `mask` has that value, but it is never True for another tile.
    """
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
    # A term with a positive factor is greatest at the last index, with a negative one at the first.
    signed = [(r, sign * factor, sign * factor > 0) for r, factor in terms.items()]
    # Not a < b is b - a <= 0, and for integers a < 0 is a <= -1.
    limit = -sign * constant - ((mask.op is Op.LT) is holds)
    return lambda ends: sum(f * ends[r][last] for r, f, last in signed) <= limit


def zeros_in(info: Analysis, nodes: Sequence[UOp], tiles: Mapping[UOp, Tile]) -> UOp | None:
    """Return the LOAD of a pass for which a test for zeros saves time, or None.

    The LOAD reads, in order, an array that masks may have filled with zeros. If a whole tile of it
    is zero, all its rows have the same products with the other operand: 0, or NaN where the other
    operand is infinite or NaN. So one row of products is computed for all rows.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nodes : sequence of UOp
        The REDUCEs and LOCALs of a pass.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
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


def masked_in(
    info: Analysis, nodes: Sequence[UOp], tiles: Mapping[UOp, Tile], costs: Costs
) -> Masked | None:
    """Return the masked array whose elements are all that varies along the loop of a pass, or None.

    If a whole tile of this array is masked, all elements of a row have the same value, which is
    computed once for the row. In a softmax, this value is ``exp(-inf - maximum)``.

    Parameters
    ----------
    info : Analysis
        The kernel.
    nodes : sequence of UOp
        The REDUCEs and LOCALs of a pass.
    tiles : mapping of UOp to Tile
        Tiles of the RANGEs. Default tile: one element.
    costs : Costs
        Costs of the device.
    """
    r, *more = nodes[0].src[1:]
    values = [u.src[0] for u in nodes]
    if more or tiles.get(r, ONE).lanes == 1 or info.weight(values, costs) < _LEAST_WORK:
        return None
    varying = [u for u in toposort(values, stop=_is_leaf) if _is_leaf(u) and r in info.deps[u]]
    if len(varying) != 1 or varying[0].op is not Op.LOAD or len(varying[0].src) > 2:
        return None
    [load] = varying
    array = load.src[0]
    wide = load.dtype.is_float and not load.dtype.is_narrow
    if array.op is not Op.LOCAL or not wide or info.stride(load, r) != 1:
        return None
    value = _mask_value(array.src[0])
    return None if value is None else Masked(load, value)


def _is_leaf(u: UOp) -> bool:
    return u.op in (Op.LOAD, Op.REDUCE, Op.RANGE, Op.BOUND)


def zeros_of_iterations(
    info: Analysis, kept: UOp, around: Sequence[UOp], tiles: Mapping[UOp, Tile]
) -> UOp | None:
    """Return a LOAD of a factor that may be zero in a whole iteration of the loops `around`.

    The LOAD has a predicate whose value is known where an iteration of `around` begins. If the
    predicate is false, the LOAD gives zeros. Then each product with the loaded value is the same in
    every row of the sums that `kept` accumulates. Return None if there is no such LOAD.
    """
    u = kept.src[0]
    outer = {*around, *info.deps[kept]}
    if u.src[0].op is not Op.MUL or any(tiles.get(r, ONE) != ONE for r in outer):
        return None
    predicated = [x for x in u.src[0].src if x.op is Op.LOAD and len(x.src) > 2]
    for x in predicated:
        if x.src[0].op is Op.LOCAL and info.deps[x.src[2]] <= outer:
            return x
    return None


def may_be_zero(info: Analysis, u: UOp) -> bool:
    """Return whether `u` is a sum of products in which masks may have set a factor to zero."""
    return u.op is Op.REDUCE and len(u.src) == 2 and any(True for _ in _factors(info, u))


def _factors(info: Analysis, u: UOp) -> list[tuple[UOp, UOp]]:
    """Return pairs (factor, other factor) of the terms of `u` whose factor is in a masked array."""
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
    """Return whether a mask of loop indices sets some elements of an array to a constant."""
    inside = toposort([local.src[0]], stop=lambda n: n.op is Op.REDUCE)
    return any(_mask_value(n) is not None for n in inside)


def _mask_value(value: UOp) -> UOp | None:
    """Return the CONST that a mask of loop indices sets some elements of `value` to, or None."""
    if value.op is not Op.WHERE or not is_of_loops(value.src[0]):
        return None
    return next((s for s in value.src[1:] if s.op is Op.CONST), None)
