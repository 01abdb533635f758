"""Loop fusion: REDUCEs and LOCALs over the same RANGEs run in one loop nest."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from kernelrt.ir.local import flat_index
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import UOp, toposort
from kernelrt.loops.analysis import CLOSING, Analysis

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["merge_passes"]

#: A REDUCE and a LOCAL that might be filled in its loops.
_Pair = tuple[UOp, UOp]


def merge_passes(sink: UOp) -> UOp:
    """Return `sink` with REDUCEs and LOCALs over equal extents fused, if dependences allow it.

    The function fuses nodes by giving them the same RANGEs, because the code generator computes
    REDUCEs and LOCALs over the same RANGEs in one pass. Values that several of them use become one
    node. If a REDUCE reads an array element by element, it uses each element as soon as the element
    is computed.
    """
    sink = _fused_reads(sink)
    # Nested nodes vary with their outer loops, so they may match only after these are shared.
    while shared := _shared_ranges(Analysis(sink)):
        sink = substitute([sink], shared)[0]
    return sink


class _Passes:
    """The dependences among the passes of a kernel.

    A pass is all REDUCEs and LOCALs over the same RANGEs. Passes, REDUCEs and LOCALs have numbers.
    A set of them is a bit mask in an integer: bit i stands for number i.

    Attributes
    ----------
    closed : list of tuples of UOp
        The RANGEs of each pass.
    first : list of UOp
        The first REDUCE or LOCAL of each pass.
    needs : list of int
        The passes that each pass depends on, directly or indirectly, as bit masks.
    """

    def __init__(self, sink: UOp) -> None:
        self.closed: list[tuple[UOp, ...]] = []
        self.first: list[UOp] = []
        #: The number of each REDUCE and LOCAL.
        self._numbers: dict[UOp, int] = {}
        #: The pass of each REDUCE and LOCAL, by number.
        self._within: list[int] = []
        #: The REDUCEs and LOCALs that those of each pass use directly, as bit masks.
        self._taken: list[int] = []
        passes: dict[tuple[UOp, ...], int] = {}
        below: dict[UOp, int] = {}
        for u in toposort([sink]):
            taken = 0
            for s in u.src:
                taken |= below[s]
            if u.op in CLOSING:
                within = passes.setdefault(u.src[1:], len(passes))
                if within == len(self.closed):
                    self.closed.append(u.src[1:])
                    self.first.append(u)
                    self._taken.append(0)
                self._taken[within] |= taken
                taken = 1 << len(self._within)
                self._numbers[u] = len(self._within)
                self._within.append(within)
            below[u] = taken
        self.needs = self._all_needed()

    def _all_needed(self) -> list[int]:
        used = [sum({1 << self._within[u] for u in _members(taken)}) for taken in self._taken]
        needs, settled = list(used), False
        # Operands have lower numbers, so two rounds are enough unless passes are shared.
        while not settled:
            settled = True
            for each, direct in enumerate(used):
                found = needs[each]
                for other in _members(direct):
                    found |= needs[other]
                settled = settled and found == needs[each]
                needs[each] = found
        return needs

    def is_circular(self) -> bool:
        """Return whether a pass depends on itself."""
        return any(needs >> each & 1 for each, needs in enumerate(self.needs))

    def wait(self, reduce: UOp, local: UOp) -> bool:
        """Return whether `reduce` and `local` cannot share a pass.

        They cannot share one if another pass must run after `local` is filled and before `reduce`
        starts.
        """
        own, filled = (self._within[self._numbers[u]] for u in (reduce, local))
        if self.needs[filled] >> own & 1:
            return True
        besides = self._taken[own] & ~(1 << self._numbers[local])
        between = {self._within[u] for u in _members(besides)}
        return any(each == filled or self.needs[each] >> filled & 1 for each in between)


def _members(numbers: int) -> Iterator[int]:
    while numbers:
        yield (numbers & -numbers).bit_length() - 1
        numbers &= numbers - 1


def _fused_reads(sink: UOp) -> UOp:
    """Return `sink` with LOCALs filled in the loops of a REDUCE that reads them in order."""
    refused: set[_Pair] = set()
    # Fusing one array may allow fusing the arrays that it is filled from.
    while pairs := [pair for pair in _in_order_reads(sink) if pair not in refused]:
        while (fused := _fused(sink, pairs)) is None and len(pairs) > 1:
            pairs = pairs[: len(pairs) // 2]
        if fused is None:
            refused.add(pairs[0])
        else:
            sink = fused
    return sink


def _in_order_reads(sink: UOp) -> Iterator[_Pair]:
    """Yield pairs of a REDUCE and a LOCAL that it reads in order, under the same outer loops."""
    info = Analysis(sink)
    if not info.locals:
        return
    passes = _Passes(sink)
    for reduce in info.reduces:
        for load in info.loads(reduce.src[0]):
            local = load.src[0]
            alike = local.op is Op.LOCAL and info.deps[local] == info.deps[reduce]
            if alike and not passes.wait(reduce, local) and _is_identity(load, reduce):
                yield reduce, local


def _is_identity(load: UOp, reduce: UOp) -> bool:
    """Return whether iteration `i` of `reduce` reads element `i` of the array of `load`."""
    local, closed = load.src[0], reduce.src[1:]
    if len(load.src) > 2 or [r.src[0] for r in local.src[1:]] != [r.src[0] for r in closed]:
        return False
    away = simplify(load.src[1] - flat_index(closed))
    return away.op is Op.CONST and away.arg == 0


def _fused(sink: UOp, pairs: list[_Pair]) -> UOp | None:
    """Return `sink` with each LOCAL filled in the loops of its REDUCE; None if that is circular."""
    # The remaining pairs are rewritten together with the kernel, so that they stay its nodes.
    nodes = [sink, *chain.from_iterable(reversed(pairs))]
    while len(nodes) > 1:
        reduce, local = nodes[-2:]
        if local.src[1:] != reduce.src[1:]:
            own = dict(zip(local.src[1:], reduce.src[1:], strict=True))
            # Substitute in all nodes at once: the loads keep their index and are found by it.
            nodes = substitute(nodes, own)
            reduce, local = nodes[-2:]
        elements = {
            load: local.src[0]
            for load in toposort([reduce.src[0]])
            if load.op is Op.LOAD and load.src[0] is local and _is_identity(load, reduce)
        }
        value = substitute([reduce.src[0]], elements)[0]
        nodes = substitute(nodes[:-2], {reduce: reduce.replace(src=(value, *reduce.src[1:]))})
    return None if _Passes(nodes[0]).is_circular() else nodes[0]


def _shared_ranges(info: Analysis) -> dict[UOp, UOp]:
    """Return the RANGEs to replace, with their replacements, so that passes share loop nests."""
    passes = _Passes(info.sink)
    needs = passes.needs
    alike: dict[object, list[int]] = {}
    shared: dict[UOp, UOp] = {}
    # An array of sums of products needs the registers, and a mask, for itself.
    summed = [_is_of_sums(info, first) for first in passes.first]
    for each, closed in enumerate(passes.closed):
        key = (info.deps[passes.first[each]], tuple(r.src[0] for r in closed))
        kept = alike.setdefault(key, [])
        # Passes can only be fused if neither depends on the other, directly or indirectly.
        fit = next(
            (
                k for k in kept
                if not (needs[k] >> each | needs[each] >> k) & 1
                and not (summed[k] or summed[each])
            ),
            None,
        )  # fmt: skip
        if fit is None:
            kept.append(each)
            continue
        shared.update(zip(closed, passes.closed[fit], strict=True))
        # Passes that needed either of them now need both, and everything that these need.
        both = 1 << each | 1 << fit
        needs[fit] |= needs[each]
        for other, needed in enumerate(needs):
            if needed & both:
                needs[other] = needed | both | needs[fit]
    return shared


def _is_of_sums(info: Analysis, u: UOp) -> bool:
    """Return whether `u` is an array of several axes, each of whose elements needs a sum."""
    if u.op is not Op.LOCAL or len(u.src) < 3:
        return False
    return any(not info.deps[x].isdisjoint(u.src[1:]) for x in info.closing([u.src[0]]))
