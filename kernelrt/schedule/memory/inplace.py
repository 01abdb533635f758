"""Decides whether a kernel may write the memory that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import UOp, toposort
from kernelrt.ir.terms import ranges_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["reads_beside"]


def reads_beside(
    stores: Sequence[UOp], loads: Collection[UOp], written: Sequence[UOp]
) -> str | None:
    """Why what is read of some memory may be gone by then; None where it cannot be.

    Parameters
    ----------
    stores : sequence of UOp
        All STOREs of a kernel.
    loads : collection of UOp
        LOADs below them of the memory in question.
    written : sequence of UOp
        Those of `stores` that write to that memory.
    """
    if not loads or not written:
        return None
    if len(written) > 1 or written[0].arg is not None:
        return "writes in parts, or updates,"
    at = written[0].src[1]
    if any(load.src[1] is not at for load in loads):
        return "writes at another element than it reads of"
    loops = ranges_of(at)
    for store in stores:
        # A store under fewer loops runs before one under more.
        if ranges_of(store.src[1]) != loops and not set(loads).isdisjoint(toposort([store])):
            return "writes under other loops than it reads"
    return None
