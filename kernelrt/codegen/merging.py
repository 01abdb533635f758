"""Which REDUCEs and LOCALs run in one loop nest: those that close over the same RANGEs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.codegen.analysis import CLOSING, Analysis
from kernelrt.ir.local import flat_index
from kernelrt.ir.ops import Op
from kernelrt.ir.rewrite import substitute
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["merge_passes"]


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


def _read_in_passing(sink: UOp) -> UOp:
    """`sink` with the LOCALs that a REDUCE walks once filled in its loops, where they may be."""
    tried: set[tuple[UOp, UOp]] = set()
    while True:
        info = Analysis(sink)
        if not info.locals:
            return sink
        for reduce, local in _walked(info):
            if (reduce, local) in tried:
                continue
            tried.add((reduce, local))
            joined = _joined(sink, reduce, local)
            if joined is not None:
                sink = joined
                break
        else:
            return sink


def _walked(info: Analysis) -> Iterable[tuple[UOp, UOp]]:
    """REDUCEs and the LOCALs whose elements they read in order, under the same outer loops."""
    for reduce in info.reduces:
        for load in info.loads(reduce.src[0]):
            local = load.src[0]
            alike = local.op is Op.LOCAL and info.deps[local] == info.deps[reduce]
            if alike and _is_identity(load, reduce):
                yield reduce, local


def _is_identity(load: UOp, reduce: UOp) -> bool:
    """Whether each iteration of `reduce` reads the element of the array that is its own."""
    local, closed = load.src[0], reduce.src[1:]
    if len(load.src) > 2 or [r.src[0] for r in local.src[1:]] != [r.src[0] for r in closed]:
        return False
    away = simplify(load.src[1] - flat_index(closed))
    return away.op is Op.CONST and away.arg == 0


def _joined(sink: UOp, reduce: UOp, local: UOp) -> UOp | None:
    """`sink` with `local` filled in the loops of `reduce`; None where one has to wait."""
    if local.src[1:] != reduce.src[1:]:
        own = dict(zip(local.src[1:], reduce.src[1:], strict=True))
        # At once: the loads keep their index, so they are found by it again.
        sink, reduce, local = substitute([sink, reduce, local], own)
    elements = {
        load: local.src[0]
        for load in toposort([reduce.src[0]])
        if load.op is Op.LOAD and load.src[0] is local and _is_identity(load, reduce)
    }
    value = substitute([reduce.src[0]], elements)[0]
    joined = substitute([sink], {reduce: reduce.replace(src=(value, *reduce.src[1:]))})[0]
    passes = _passes(Analysis(joined))
    return None if any(each in _all_needed(each) for each in passes) else joined


class _Pass:
    """REDUCEs and LOCALs that will run in one loop nest."""

    def __init__(self, closed: tuple[UOp, ...]) -> None:
        self.closed = closed
        self.nodes: list[UOp] = []
        #: Passes whose results these use, directly or not.
        self.needs: set[_Pass] = set()


def _passes(info: Analysis) -> list[_Pass]:
    """The passes of a kernel, each with those whose results it uses directly."""
    passes: dict[tuple[UOp, ...], _Pass] = {}
    below: dict[UOp, frozenset[_Pass]] = {}
    for u in info.nodes:
        under = frozenset[_Pass]().union(*(below[s] for s in u.src))
        if u.op in CLOSING:
            own = passes.setdefault(u.src[1:], _Pass(u.src[1:]))
            own.nodes.append(u)
            own.needs |= under
            under |= {own}
        below[u] = under
    return list(passes.values())


def _shared_ranges(info: Analysis) -> dict[UOp, UOp]:
    """Ranges to exchange for others, so that what may share a loop nest does."""
    passes = _passes(info)
    for each in passes:
        each.needs = _all_needed(each)
    alike: dict[object, list[_Pass]] = {}
    shared: dict[UOp, UOp] = {}
    for each in passes:
        key = (info.deps[each.nodes[0]], tuple(r.src[0] for r in each.closed))
        kept = alike.setdefault(key, [])
        # One that needs the other comes after it; neither may, by way of any pass.
        fit = next((k for k in kept if each not in k.needs and k not in each.needs), None)
        if fit is None:
            kept.append(each)
            continue
        shared.update(zip(each.closed, fit.closed, strict=True))
        _join(fit, each, passes)
    return shared


def _all_needed(each: _Pass) -> set[_Pass]:
    """What a pass needs, and what that needs, where passes are joined already."""
    found: set[_Pass] = set()
    pending = list(each.needs)
    while pending:
        needed = pending.pop()
        if needed not in found:
            found.add(needed)
            pending += needed.needs
    return found


def _join(kept: _Pass, gone: _Pass, passes: Iterable[_Pass]) -> None:
    """Let `kept` do what `gone` did: whoever needed either needs both, and all that they need."""
    kept.needs |= gone.needs
    for other in passes:
        if kept in other.needs or gone in other.needs:
            other.needs |= {kept, gone} | kept.needs
