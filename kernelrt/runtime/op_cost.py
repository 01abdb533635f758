"""Estimated time of an op, for the thread pool, the release of the GIL and the profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.device.costs import costs_of
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp
from kernelrt.native.core import set_thread_costs
from kernelrt.runtime.plan_ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    PreparedRegion,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim
    from kernelrt.runtime.kernel import CachedKernel

__all__ = ["THREAD_COSTS", "estimate_ns", "is_unknown", "largest", "launch_ns"]

# Target for costs of code whose target is unknown.
_ANY: Final = DeviceSpec.generic()
# Thread costs do not depend on the vector width.
_COSTS: Final = costs_of(_ANY)
THREAD_COSTS: Final = (
    round(_COSTS.ns(_COSTS.hand_over)), round(_COSTS.ns(_COSTS.chunk)),
    round(_COSTS.ns(_COSTS.part)), round(_COSTS.ns(_COSTS.wake)),
)  # fmt: skip
"""Arguments of :func:`kernelrt.native.core.set_thread_costs`."""
set_thread_costs(*THREAD_COSTS)
# Assumed time of code with unknown cost: high enough that a plan with it releases the GIL.
_UNKNOWN_NS = 20_000
# Upper limit of an estimate: one hour.
_MOST_NS = 3_600_000_000_000


def largest(dim: Dim) -> int:
    """Return the greatest value of `dim`, at least 0."""
    return max(0, dim.vmax if isinstance(dim, UOp) else dim)


def launch_ns(kernel: CachedKernel, flops: int, nbytes: int, cycles: int) -> float:
    """Estimate the nanoseconds of one launch of `kernel` on one core; 0 if nothing is known.

    Parameters
    ----------
    kernel : CachedKernel
        Kernel to launch.
    flops, nbytes, cycles : int
        Estimated operations, bytes moved and compute cycles for the sizes of the launch.
    """
    if not (flops or nbytes or cycles):
        return 0.0
    costs = costs_of(kernel.target or _ANY)
    work = cycles or flops * costs.element(Op.ADD, dt.float32)
    return costs.ns(costs.launch(work, nbytes))


def is_unknown(op: PreparedOp) -> bool:
    """Return whether `op` is user code whose running time is unknown.

    Parameters
    ----------
    op : PreparedOp
        The op.
    """
    if isinstance(op, PreparedKernel):
        kernel = op.kernel
        known = map(largest, (kernel.flops, kernel.bytes, kernel.cycles))
        return not (kernel.code or any(known))
    return isinstance(op, PreparedCustomFunction)


def estimate_ns(op: PreparedOp, buffer_bytes: Sequence[int]) -> int:
    """Estimate the time of `op` on one core, for the largest sizes.

    Parameters
    ----------
    op : PreparedOp
        The op.
    buffer_bytes : sequence of int
        Size in bytes of each of the plan's buffers.
    """
    if isinstance(op, PreparedBufferView):
        return 0
    if isinstance(op, PreparedCopy):
        return int(_COSTS.ns(_COSTS.launch(0, 2 * largest(op.nbytes))))
    if is_unknown(op):
        return _UNKNOWN_NS
    if isinstance(op, PreparedKernel):
        kernel = op.kernel
        flops, moved, cycles = map(largest, (kernel.flops, kernel.bytes, kernel.cycles))
        if not (flops or moved or cycles):
            moved = sum(buffer_bytes[i] for i in op.buffer_indices)
        return int(launch_ns(kernel, flops, moved, cycles)) or _UNKNOWN_NS
    if isinstance(op, PreparedRegion):
        iterations = op.count
        if iterations > 1 and max(op.count_slot, op.condition_slot) >= 0:
            iterations = (iterations + 1) // 2  # the count is known only at run time; assume half
        return min(iterations * sum(b.cost_ns for b in op.bodies) // len(op.bodies), _MOST_NS)
    return _UNKNOWN_NS
