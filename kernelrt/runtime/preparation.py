"""Updates the preparation of a plan when a buffer of the plan is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.device.byte_ranges import byte_range_of
from kernelrt.errors import PlanBuildError

if TYPE_CHECKING:
    from kernelrt.device.buffer import Buffer
    from kernelrt.native.memory import Storage
    from kernelrt.runtime.memory import PlanMemory

__all__ = ["moved_with", "sources_in"]


def sources_in(preparation: PlanMemory) -> tuple[Storage, ...]:
    """Return the storages that a preparation reads."""
    read = [preparation.live(i) for i in preparation.given() if not preparation.writes(i)]
    return tuple({id(b.storage): b.storage for b in read}.values())


def moved_with(
    memory: PlanMemory, preparation: PlanMemory, index: int, buffer: Buffer
) -> dict[int, Buffer]:
    """Return the preparation's buffers to replace when a buffer of the plan is replaced.

    Raises
    ------
    PlanBuildError
        The preparation computes the old or the new buffer. Or it reads bytes that the plan would
        write. Or it reads the old buffer together with memory around it.
    """
    here, after = memory.region(index), byte_range_of(buffer)
    moved = preparation.following(memory, {index: buffer})
    for i in preparation.given():
        there = preparation.region(i)
        if preparation.writes(i):
            if here.meets(there) or after.meets(there):
                raise PlanBuildError(
                    f"index: the preparation of the plan computes the values of buffer {index} or "
                    "of the new buffer; rebind the buffers that these values are computed from"
                )
        elif here.meets(there) and i not in moved:
            raise PlanBuildError(
                f"index: the preparation of the plan reads buffer {index} together with the memory "
                "around this buffer; make a new plan, for example by tracing the function with the "
                "other memory"
            )
        elif after.meets(there) and memory.writes(index):
            raise PlanBuildError(
                f"buffer: the plan writes buffer {index}, but the preparation of the plan reads "
                "the bytes of the new buffer; bind a copy"
            )
    return moved
