"""How long an op should take: one estimate for the pool, the GIL and the profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import UOp
from kernelrt.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedKernel,
    PreparedOp,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim

__all__ = ["estimate_ns", "largest"]

# What one core of a present server does in cache: operations and bytes in a nanosecond, and
# the cost of a call. Rough on purpose; only orders of magnitude are decided by it.
_FLOPS_PER_NS = 64.0
_BYTES_PER_NS = 32.0
_CALL_NS = 20.0
# For what tells nothing about itself: enough that a plan that holds it lets go of the GIL.
_UNKNOWN_NS = 20_000


def largest(dim: Dim) -> int:
    """Give the greatest value of `dim`, at least 0."""
    return max(0, dim.vmax if isinstance(dim, UOp) else dim)


def estimate_ns(op: PreparedOp, buffer_bytes: Sequence[int]) -> int:
    """Estimate the time of `op` on one core, for the largest sizes.

    Parameters
    ----------
    op : PreparedOp
        The op.
    buffer_bytes : sequence of int
        Bytes of each of the plan's buffers.
    """
    if isinstance(op, PreparedBufferView):
        return 0
    if isinstance(op, PreparedCopy):
        return int(_CALL_NS + 2 * largest(op.nbytes) / _BYTES_PER_NS)
    if isinstance(op, PreparedKernel):
        flops, moved = largest(op.kernel.flops), largest(op.kernel.bytes)
        if op.kernel.code and not flops and not moved:
            moved = sum(buffer_bytes[i] for i in op.buffer_indices)
        if flops or moved:
            return int(_CALL_NS + max(flops / _FLOPS_PER_NS, moved / _BYTES_PER_NS))
    return _UNKNOWN_NS
