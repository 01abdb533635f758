"""Bounds-check elimination: drops checks that an earlier kernel has already made.

If a write outlives the run, it waits for everything that may fail. In a training step, the gradient
of an embedding lookup comes last, and it checks the same indices as the lookup. So all weight
updates, and all gradients that they need, would wait for this gradient. But it runs after the
lookup, whose checks have passed by then. So the checks of the gradient cannot fail, and are
dropped.
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

    from kernelrt.schedule.kernels.unscheduled import UnscheduledItem
    from kernelrt.schedule.memory.hazards import Extents

__all__ = ["drop_repeated"]

#: A check: the index as an expression of BUFFER elements at one address, and the axis size.
_Check = tuple[UOp, int]


def drop_repeated(drafts: Sequence[UnscheduledItem], where: Extents) -> None:
    """Drop checks of `drafts` that cannot fail.

    Elements of an index BUFFER are checked against the size of the axis that they index. The check
    in a draft is dropped if the draft depends on an earlier one that checks all elements of that
    BUFFER against the same size or a smaller one. The index is still clamped to its axis. So if
    other code writes to that memory meanwhile, results are wrong, but no access is out of bounds.

    Parameters
    ----------
    drafts : sequence of UnscheduledItem
        Drafts that compute all values, operands first.
    where : Extents
        Known byte ranges.
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


def _stored(drafts: Sequence[UnscheduledItem]) -> dict[UOp, UOp]:
    """Return the STORE of each BUFFER that is computed by exactly one STORE, without an update."""
    found: dict[UOp, list[UOp]] = {}
    for draft in drafts:
        for buffer in draft.writes:
            stores = draft.stores_to(buffer) if isinstance(draft, KernelDraft) else []
            found.setdefault(buffer, []).extend(stores or [buffer])
    alone = {b: stores[0] for b, stores in found.items() if len(stores) == 1}
    return {b: s for b, s in alone.items() if s.op is Op.STORE and s.arg is None}


def _checked(u: UOp, stored: Mapping[UOp, UOp]) -> _Check | None:
    """Return what a BOUND checks; None unless it depends on elements at a single address.

    An element may be computed from elements of other buffers at the same address. Then the
    computation replaces the element. For example, a stored index may be an index to which the size
    was added if it was negative.
    """
    index, size = u.src[:2]
    address = _address(index)
    if address is None or size.op is not Op.CONST or size.arg <= 0:
        return None
    first = const(0, address.dtype)
    settled: set[UOp] = set()
    while loads := [x for x in _loads(index) if x not in settled]:
        chosen: dict[UOp, UOp] = {}
        for x in loads:
            store = stored.get(x.src[0])
            if store is not None and _address(store.src[2]) is store.src[1]:
                at = {y: y.replace(src=(y.src[0], first)) for y in _loads(store.src[2])}
                [chosen[x]] = substitute([store.src[2]], at)
            else:
                chosen[x] = x.replace(src=(x.src[0], first))
                settled.add(chosen[x])
        [index] = substitute([index], chosen)
    # Reject floats, since a narrow one is wider if it is not stored, and loop indices.
    others = (n.op is Op.RANGE or n.dtype.is_float for n in toposort([index]))
    return None if any(others) else (index, int(size.arg))


def _loads(value: UOp) -> list[UOp]:
    return [n for n in toposort([value]) if n.op is Op.LOAD]


def _address(value: UOp) -> UOp | None:
    """Return the address that all LOADs in `value` have; None if their addresses differ."""
    loads = _loads(value)
    plain = all(x.src[0].op is Op.BUFFER and len(x.src) == 2 for x in loads)
    addresses = {x.src[1] for x in loads}
    return addresses.pop() if plain and len(addresses) == 1 else None


def _is_of_all(index: UOp) -> bool:
    """Return whether the loops visit all elements of the BUFFERs that `index` depends on."""
    address = _address(index)
    assert address is not None
    terms, constant = linear(address)
    walked = 1
    for loop, step in sorted(terms.items(), key=lambda term: term[1]):
        if loop.op is not Op.RANGE or loop.src[0].op is not Op.CONST or step != walked:
            return False
        walked *= int(loop.src[0].arg)
    sizes = {int(x.src[0].arg.size) for x in _loads(index)}
    return constant == 0 and sizes == {walked}


def _without(u: UOp) -> UOp:
    """Return what replaces a BOUND that cannot fail: its value, or its clamped index."""
    if len(u.src) > 3:
        return u.src[3]
    index, size = u.src[:2]
    return index.alu(Op.MAX, 0).alu(Op.MIN, int(size.arg) - 1)
