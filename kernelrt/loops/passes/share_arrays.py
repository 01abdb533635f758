"""Local-array sharing: an array takes the memory of another one that is no longer needed.

If the loop that fills array B is the last one that reads array A, B takes the memory of A. For
example, the scores of a row of attention, their exponentials and the weights share one array. An
array may also lie in an output buffer: the exponentials of a softmax lie where its results will be
stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir.local import flat_index, local_itemsize
from kernelrt.ir.ops import Op
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import linear
from kernelrt.loops.analysis import CLOSING

if TYPE_CHECKING:
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiling import Tiling

__all__ = ["replaced", "scratch_outputs"]

_Pass = tuple["UOp", ...]
#: Types with the same representation in memory and in registers.
_WHOLE = (dt.float32, dt.float64, dt.int32, dt.int64)


def replaced(info: Analysis) -> dict[UOp, UOp]:
    """Map each LOCAL to the LOCAL whose memory it takes, because nothing reads the latter later.

    Parameters
    ----------
    info : Analysis
        A kernel after loop fusion.
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
            # The filling pass itself loads each element before it stores the new one.
            others = {each for x, each in readers[old] if x is not load or each != own}
            # A reader whose pass varies with `own` runs again for the next element.
            again = any(
                not info.deps[u].isdisjoint(own) for each in others if each in info.passes
                for u in info.passes[each]
            )
            if others <= needs[own] and own not in others and not again:
                found[local] = old
                taken.add(old)
                break
    return found


def scratch_outputs(info: Analysis, tiling: Tiling) -> dict[UOp, tuple[UOp, UOp]]:
    """Map each LOCAL that lies in an output buffer to (PARAM of the buffer, start index).

    The STORE to the output reads each element of the array once and overwrites it with the result.
    Nothing reads the array after that. This saves memory traffic, for two reasons. An array of a
    long row would not stay in the cache together with the output. And the computation of the array
    already fetches the lines of the output.

    Parameters
    ----------
    info : Analysis
        A kernel after loop fusion.
    tiling : Tiling
        Tiles and chunks of the kernel.
    """
    if not info.locals:
        return {}
    moved = replaced(info)
    merged = {*moved, *moved.values()}
    read = {x.src[0] for x in info.nodes if x.op is Op.LOAD}
    found: dict[UOp, tuple[UOp, UOp]] = {}
    for store in info.sink.src:
        param = store.src[0]
        alone = sum(s.src[0] is param for s in info.sink.src) == 1
        if store.arg is not None or param in read or not alone:
            continue
        for load in info.loads(store.src[2]):
            local = load.src[0]
            if local.op is not Op.LOCAL or local in merged or local in found:
                continue
            start = _start(info, store, load)
            if start is not None and _may_lie_there(info, tiling, store, load):
                found[local] = param, start
                break
    return found


def _start(info: Analysis, store: UOp, load: UOp) -> UOp | None:
    """Return the index in the output at which `store` begins to store a row from an array.

    Return None if the row does not have the elements of the array of `load`, in the same order.
    """
    local = load.src[0]
    own, around = local.src[1:], info.deps[local]
    inner = sorted(info.deps[store.src[1]] - around, key=lambda r: int(r.arg))
    if len(load.src) > 2 or [r.src[0] for r in inner] != [r.src[0] for r in own]:
        return None
    if linear(load.src[1]) != linear(flat_index(inner)):
        return None
    start = simplify(store.src[1] - load.src[1])
    # Each point of the enclosing loops must have a row of its own.
    return start if set(linear(start)[0]) == around else None


def _may_lie_there(info: Analysis, tiling: Tiling, store: UOp, load: UOp) -> bool:
    """Return whether nothing but `store` reads the array of `load` once `store` begins to write."""
    local = load.src[0]
    around = info.deps[local]
    inside = sum(r in around for r in tiling.order[: len(around)]) == len(around)
    same = local.dtype is store.src[0].dtype and local.dtype in _WHOLE
    chunked = tiling.chunked is None or tiling.chunked in around
    if not inside or not same or not chunked or any(tiling.tile(r).lanes > 1 for r in around):
        return False
    _, readers = _order(info)
    for x, ranges in readers[local]:
        if not ranges and x is not load:
            return False
        if ranges and not all(info.deps[u] <= around for u in info.passes[ranges]):
            return False
    others = [s for s in info.sink.src if s is not store]
    known = set(info.closing([store.src[2]]))
    for u in (u for u in info.nodes[::-1] if u in known):
        known.update(info.closing([u.src[0]]))
    # A pass that only another store needs may run after this store.
    asked = {ranges for _, ranges in readers[local] if ranges}
    return all(info.passes[r][0] in known for r in asked) and not any(
        load in info.loads(s.src[2]) for s in others
    )


def _alike(info: Analysis, old: UOp, new: UOp) -> bool:
    return (
        old.op is Op.LOCAL
        and info.deps[old] == info.deps[new]
        and [r.src[0] for r in old.src[1:]] == [r.src[0] for r in new.src[1:]]
        and old.dtype.is_float == new.dtype.is_float
        and local_itemsize(old.dtype) == local_itemsize(new.dtype)
    )


def _is_own(load: UOp, own: _Pass) -> bool:
    """Return whether `load` reads the array element whose indices are the RANGEs `own`."""
    away = simplify(load.src[1] - flat_index(own))
    return len(load.src) == 2 and away.op is Op.CONST and away.arg == 0


def _order(
    info: Analysis,
) -> tuple[dict[_Pass, set[_Pass]], dict[UOp, set[tuple[UOp, _Pass]]]]:
    """Return the passes that finish before each pass, and the LOADs of each LOCAL.

    Each LOAD comes with its pass. The empty tuple stands for the stores, which are in no pass.
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
