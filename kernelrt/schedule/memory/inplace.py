"""Decides whether a kernel may write to memory that it reads."""

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
    """Return why a kernel could overwrite an element before it reads it; None if it cannot.

    Parameters
    ----------
    stores : sequence of UOp
        All STOREs of a kernel.
    loads : collection of UOp
        LOADs of the memory in question, in the expressions of `stores`.
    written : sequence of UOp
        The STOREs of `stores` that write to that memory.
    """
    if not loads or not written:
        return None
    if len(written) > 1 or written[0].arg is not None:
        return "a kernel that reads it must write it with a single store, without an update"
    at = written[0].src[1]
    if any(load.src[1] is not at for load in loads):
        return "a kernel that reads it must not write another element than it reads"
    loops = ranges_of(at)
    for store in stores:
        # A store under fewer loops runs before one under more.
        if ranges_of(store.src[1]) != loops and not set(loads).isdisjoint(toposort([store])):
            return "a kernel that reads it must write it in the same loops"
    return None
