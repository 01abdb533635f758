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
    """`sink` with REDUCEs and LOCALs over equal extents sharing one loop, where they may.

    Sharing ranges is what fuses: afterwards the code generator runs what closes over the same
    ranges in one pass, and what several read is one node. A REDUCE that reads an array element by
    element takes each as it is computed, while the array is filled.
    """
    sink = _read_in_passing(sink)
    # What is nested varies with the loops around it, so that it may match once these do.
    while shared := _shared_ranges(Analysis(sink)):
        sink = substitute([sink], shared)[0]
    return sink


class _Passes:
    """The passes of a kernel: the REDUCEs and LOCALs over the same RANGEs, which one nest runs.

    Both are counted from 0, and sets of them are integers of which bit i stands for number i.

    Attributes
    ----------
    closed : list of tuples of UOp
        The RANGEs of each pass.
    first : list of UOp
        A REDUCE or LOCAL of each pass.
    needs : list of int
        The passes whose results each takes up, those that these need, and so on.
    """

    def __init__(self, sink: UOp) -> None:
        self.closed: list[tuple[UOp, ...]] = []
        self.first: list[UOp] = []
        #: Of REDUCEs and LOCALs, each one's number, the passes they are in, by number, ...
        self._numbers: dict[UOp, int] = {}
        self._within: list[int] = []
        #: ... and those that the ones of a pass take up.
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
        # Operands are counted first, so that this is done twice unless passes are shared.
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
        """Whether one would have to wait for itself."""
        return any(needs >> each & 1 for each, needs in enumerate(self.needs))

    def wait(self, reduce: UOp, local: UOp) -> bool:
        """Whether `reduce` and `local` cannot be one pass, for all that lies between theirs."""
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


def _read_in_passing(sink: UOp) -> UOp:
    """`sink` with the LOCALs that a REDUCE walks once filled in its loops, where they may be."""
    refused: set[_Pair] = set()
    # Where an array is filled in passing, so may those be that it is filled from.
    while pairs := [pair for pair in _walked(sink) if pair not in refused]:
        while (joined := _joined(sink, pairs)) is None and len(pairs) > 1:
            pairs = pairs[: len(pairs) // 2]
        if joined is None:
            refused.add(pairs[0])
        else:
            sink = joined
    return sink


def _walked(sink: UOp) -> Iterator[_Pair]:
    """REDUCEs and the LOCALs whose elements they read in order, under the same outer loops."""
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
    """Whether each iteration of `reduce` reads the element of the array that is its own."""
    local, closed = load.src[0], reduce.src[1:]
    if len(load.src) > 2 or [r.src[0] for r in local.src[1:]] != [r.src[0] for r in closed]:
        return False
    away = simplify(load.src[1] - flat_index(closed))
    return away.op is Op.CONST and away.arg == 0


def _joined(sink: UOp, pairs: list[_Pair]) -> UOp | None:
    """`sink` with each LOCAL filled in the loops of its REDUCE; None where one has to wait."""
    # What is left to join is rewritten along with the kernel, as the node that it is there.
    nodes = [sink, *chain.from_iterable(reversed(pairs))]
    while len(nodes) > 1:
        reduce, local = nodes[-2:]
        if local.src[1:] != reduce.src[1:]:
            own = dict(zip(local.src[1:], reduce.src[1:], strict=True))
            # At once: the loads keep their index, so they are found by it again.
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
    """Ranges to exchange for others, so that what may share a loop nest does."""
    passes = _Passes(info.sink)
    needs = passes.needs
    alike: dict[object, list[int]] = {}
    shared: dict[UOp, UOp] = {}
    # An array of sums of products wants the registers, and a mask, for itself.
    summed = [_is_of_sums(info, first) for first in passes.first]
    for each, closed in enumerate(passes.closed):
        key = (info.deps[passes.first[each]], tuple(r.src[0] for r in closed))
        kept = alike.setdefault(key, [])
        # One that needs the other comes after it; neither may, by way of any pass.
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
        # Whoever needed either needs both from now on, and all that they need.
        both = 1 << each | 1 << fit
        needs[fit] |= needs[each]
        for other, needed in enumerate(needs):
            if needed & both:
                needs[other] = needed | both | needs[fit]
    return shared


def _is_of_sums(info: Analysis, u: UOp) -> bool:
    """Whether `u` is an array of blocks of rows, of sums that are added up for each element."""
    if u.op is not Op.LOCAL or len(u.src) < 3:
        return False
    return any(not info.deps[x].isdisjoint(u.src[1:]) for x in info.closing([u.src[0]]))
