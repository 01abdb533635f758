"""Where graphs become plans and plans run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import UOp

__all__ = ["compute", "prepare"]


def prepare(values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]] = ()) -> Any:
    """A plan that computes `values` and then writes each commit's value to its storage."""
    from kernelrt import runtime
    from kernelrt.schedule import schedule

    return runtime.prepare(schedule(values, commits))


def compute(values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]] = ()) -> list[Buffer]:
    """Buffers of their own with `values`, once the commits are carried out."""
    plan = prepare(values, commits)
    plan.execute()
    return list(plan.output_buffers)
