"""Arrays that take the place of others: each element is read once more, to compute what follows it.

Scores, their exponentials and the weights of a row of attention are three arrays of which one
exists at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.codegen.analysis import CLOSING
from kernelrt.ir.local import flat_index, local_itemsize
from kernelrt.ir.ops import Op
from kernelrt.ir.symbolic import simplify

if TYPE_CHECKING:
    from kernelrt.codegen.analysis import Analysis
    from kernelrt.ir.uop import UOp

__all__ = ["replaced"]

_Pass = tuple["UOp", ...]


def replaced(info: Analysis) -> dict[UOp, UOp]:
    """LOCALs that are filled where others lie -> those, which nothing reads any more.

    Parameters
    ----------
    info : Analysis
        A kernel whose passes are joined.
    """
    if len(info.locals) < 2:
        return {}
    needs, readers = _order(info)
    found: dict[UOp, UOp] = {}
    taken: set[UOp] = set()
    for local in info.locals:
        own = local.src[1:]
        for load in info.loads(local.src[0]):
            old = load.src[0]
            if old in taken or not _alike(info, old, local) or not _is_own(load, own):
                continue
            # In the same pass the element that was loaded is there before the new one is stored.
            others = {each for x, each in readers[old] if x is not load or each != own}
            if others <= needs[own] and own not in others:
                found[local] = old
                taken.add(old)
                break
    return found


def _alike(info: Analysis, old: UOp, new: UOp) -> bool:
    return (
        old.op is Op.LOCAL
        and info.deps[old] == info.deps[new]
        and [r.src[0] for r in old.src[1:]] == [r.src[0] for r in new.src[1:]]
        and old.dtype.is_float == new.dtype.is_float
        and local_itemsize(old.dtype) == local_itemsize(new.dtype)
    )


def _is_own(load: UOp, own: _Pass) -> bool:
    """Whether `load` reads the element that the ranges `own` are at."""
    away = simplify(load.src[1] - flat_index(own))
    return len(load.src) == 2 and away.op is Op.CONST and away.arg == 0


def _order(
    info: Analysis,
) -> tuple[dict[_Pass, set[_Pass]], dict[UOp, set[tuple[UOp, _Pass]]]]:
    """Passes -> those that are over before them; LOCALs -> their LOADs and in which pass each is.

    The empty pass stands for the stores.
    """
    needs: dict[_Pass, set[_Pass]] = {ranges: set() for ranges in info.passes}
    readers: dict[UOp, set[tuple[UOp, _Pass]]] = {u: set() for u in info.locals}
    roots = [(u.src[1:], u.src[0]) for nodes in info.passes.values() for u in nodes]
    roots += [((), s) for store in info.sink.src for s in store.src[1:]]
    for ranges, root in roots:
        for load in info.loads(root):
            if load.src[0].op is Op.LOCAL:
                readers[load.src[0]].add((load, ranges))
        if ranges:
            needs[ranges] |= {u.src[1:] for u in info.closing([root])}
    for u in (u for u in info.nodes if u.op in CLOSING):  # operands first
        own = needs[u.src[1:]]
        own |= set().union(*(needs[each] for each in own))
    return needs, readers
