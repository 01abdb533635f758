"""Chunk footprint: the bytes of each argument that one chunk of a kernel touches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir.local import most_elements
from kernelrt.ir.ops import Op
from kernelrt.ir.terms import linear
from kernelrt.loops.analysis import is_empty_load
from kernelrt.loops.tiles import is_fixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.tiling import Tiling

__all__ = ["chunk_bytes"]


def chunk_bytes(
    info: Analysis, tiling: Tiling, scratch_outputs: Mapping[UOp, tuple[UOp, UOp]]
) -> dict[int, int]:
    """Return the arguments that are partitioned among chunks, with the bytes of each partition.

    Parameters
    ----------
    info : Analysis
        The kernel that code is generated for.
    tiling : Tiling
        Tiling of the kernel, with its chunks.
    scratch_outputs : mapping
        LOCALs that lie in arguments, as in :class:`~kernelrt.loops.loop_ir.LoopNest`.

    Returns
    -------
    dict of int to int
        Maps slots to a number of bytes `n`: chunk `c` touches only bytes ``c * n`` to
        ``(c + 1) * n`` (exclusive) of the argument. A chunk may touch any byte of a slot that is
        not in the mapping.
    """
    r = tiling.chunked
    if r is None or not is_fixed(r) or any(r in u.src[1:] for u in (*info.reduces, *info.locals)):
        return {}
    found: dict[int, int] = {}
    shared: set[int] = set()
    for param, step in _steps(info, r, scratch_outputs):
        slot = int(param.arg[0])
        nbytes = step * tiling.share * param.dtype.itemsize
        if not step or found.setdefault(slot, nbytes) != nbytes:
            shared.add(slot)
    return {slot: nbytes for slot, nbytes in found.items() if slot not in shared}


def _steps(
    info: Analysis, r: UOp, scratch_outputs: Mapping[UOp, tuple[UOp, UOp]]
) -> Iterator[tuple[UOp, int]]:
    """Yield, for each access of an argument, its PARAM and the result of :func:`_step`."""
    for u in info.nodes:
        if is_empty_load(u):
            continue
        params = [s for s in u.src if s.op is Op.PARAM]
        if u.op in (Op.LOAD, Op.STORE) and params == [u.src[0]]:
            yield u.src[0], _step(info, u.src[1], r, 1)
        else:
            yield from ((param, 0) for param in params)
    for local, (param, start) in scratch_outputs.items():
        yield param, _step(info, start, r, most_elements(local.src[1:]))


def _step(info: Analysis, index: UOp, r: UOp, elements: int) -> int:
    """Return the stride of `index` along `r` if iterations touch disjoint elements, else 0.

    Each iteration of the loop over `r` touches `elements` elements, from `index` on.
    """
    terms, first = linear(index)
    step = terms.pop(r, 0)
    if any(r in info.deps_of([term]) for term in terms):
        return 0
    ends = [(factor * u.vmin, factor * u.vmax) for u, factor in terms.items()]
    first, last = first + sum(map(min, ends)), first + sum(map(max, ends)) + elements - 1
    return step if first >= 0 and last < step else 0
