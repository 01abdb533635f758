"""Bounds-check elimination: drops checks that an earlier kernel has made.

What outlives a run waits for all that may fail. The gradient of a lookup, which adds to the rows
that were looked up, comes last in a step of training, and checks the same indices again: weights
would wait for it with all that their gradients are made of. It waits for the lookup itself, so its
own checks find nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.terms import linear
from kernelrt.schedule.kernels.unscheduled import KernelDraft
from kernelrt.schedule.memory.hazards import Access, dependencies, reached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernelrt.schedule.kernels.unscheduled import Draft
    from kernelrt.schedule.memory.hazards import Extents

__all__ = ["drop_repeated"]

#: What is checked: how an index is made of the elements of BUFFERs that lie at one place, and the
#: size of the axis.
_Check = tuple[UOp, int]


def drop_repeated(drafts: Sequence[Draft], where: Extents) -> None:
    """Take checks out of `drafts` that can find nothing.

    So is a check of elements of a BUFFER where another draft, which has to come before, checks all
    of them against a size that is no greater. An index stays within its axis all the same: whoever
    else writes to that memory meanwhile gets wrong numbers, not a fault.

    Parameters
    ----------
    drafts : sequence of Draft
        What computes every value, operands first.
    where : Extents
        Regions that are known.
    """
    failing = [n for n, draft in enumerate(drafts) if draft.fails]
    if len(failing) < 2:
        return
    waits = dependencies(
        Access([where[b] for b in d.reads], [where[b] for b in d.writes]) for d in drafts
    )
    stored = _stored(drafts)
    whole: dict[UOp, list[tuple[int, int]]] = {}
    for n in failing:
        draft = drafts[n]
        if not isinstance(draft, KernelDraft):
            continue
        earlier = set(reached(waits[n], waits))
        found = {u: _checked(u, stored) for u in toposort(draft.stores) if u.op is Op.BOUND}
        checks = {u: check for u, check in found.items() if check is not None}
        dropped = {
            u: _without(u)
            for u, (index, size) in checks.items()
            if any(at in earlier and least <= size for at, least in whole.get(index, ()))
        }
        if dropped:
            draft.rewrite(substitute(draft.stores, dropped))
        for u, (index, size) in checks.items():
            if u not in dropped and _is_of_all(u.src[0]):
                whole.setdefault(index, []).append((n, size))


def _stored(drafts: Sequence[Draft]) -> dict[UOp, UOp]:
    """The STORE that computes a BUFFER, where it is one alone."""
    found: dict[UOp, list[UOp]] = {}
    for draft in drafts:
        for buffer in draft.writes:
            stores = draft.stores_to(buffer) if isinstance(draft, KernelDraft) else []
            found.setdefault(buffer, []).extend(stores or [buffer])
    alone = {b: stores[0] for b, stores in found.items() if len(stores) == 1}
    return {b: s for b, s in alone.items() if s.op is Op.STORE and s.arg is None}


def _checked(u: UOp, stored: Mapping[UOp, UOp]) -> _Check | None:
    """What a BOUND checks; None where it is not made of elements at one place, whichever it is.

    Of a BUFFER that holds nothing but what is made of others' elements, each at the place of its
    own, these count: whether a number is below 0 may have been stored, and what it is not.
    """
    index, size = u.src[:2]
    place = _place(index)
    if place is None or size.op is not Op.CONST or size.arg <= 0:
        return None
    first = const(0, place.dtype)
    settled: set[UOp] = set()
    while loads := [x for x in _loads(index) if x not in settled]:
        chosen: dict[UOp, UOp] = {}
        for x in loads:
            store = stored.get(x.src[0])
            if store is not None and _place(store.src[2]) is store.src[1]:
                at = {y: y.replace(src=(y.src[0], first)) for y in _loads(store.src[2])}
                [chosen[x]] = substitute([store.src[2]], at)
            else:
                chosen[x] = x.replace(src=(x.src[0], first))
                settled.add(chosen[x])
        [index] = substitute([index], chosen)
    # Narrow floats are wider where they were not stored; and the place counts for itself.
    others = (n.op is Op.RANGE or n.dtype.is_float for n in toposort([index]))
    return None if any(others) else (index, int(size.arg))


def _loads(value: UOp) -> list[UOp]:
    return [n for n in toposort([value]) if n.op is Op.LOAD]


def _place(value: UOp) -> UOp | None:
    """Where the elements of BUFFERs lie that `value` is made of; None unless that is one place."""
    loads = _loads(value)
    plain = all(x.src[0].op is Op.BUFFER and len(x.src) == 2 for x in loads)
    places = {x.src[1] for x in loads}
    return places.pop() if plain and len(places) == 1 else None


def _is_of_all(index: UOp) -> bool:
    """Whether the loops around go through all elements of the BUFFERs that `index` is made of."""
    place = _place(index)
    assert place is not None
    terms, constant = linear(place)
    walked = 1
    for loop, step in sorted(terms.items(), key=lambda term: term[1]):
        if loop.op is not Op.RANGE or loop.src[0].op is not Op.CONST or step != walked:
            return False
        walked *= int(loop.src[0].arg)
    sizes = {int(x.src[0].arg.size) for x in _loads(index)}
    return constant == 0 and sizes == {walked}


def _without(u: UOp) -> UOp:
    """What a BOUND that finds nothing gives."""
    if len(u.src) > 3:
        return u.src[3]
    index, size = u.src[:2]
    return index.alu(Op.MAX, 0).alu(Op.MIN, int(size.arg) - 1)
