"""Updates the preparation of a plan when the plan gets other memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.device.byte_ranges import region_of
from kernelrt.errors import PlanBuildError

if TYPE_CHECKING:
    from kernelrt.device.buffer import Buffer
    from kernelrt.native.memory import Storage
    from kernelrt.runtime.memory import PlanMemory

__all__ = ["moved_with", "sources_in"]


def sources_in(preparation: PlanMemory) -> tuple[Storage, ...]:
    """The storages that a preparation reads."""
    read = [preparation.live(i) for i in preparation.given() if not preparation.writes(i)]
    return tuple({id(b.storage): b.storage for b in read}.values())


def moved_with(
    memory: PlanMemory, preparation: PlanMemory, index: int, buffer: Buffer
) -> dict[int, Buffer]:
    """Which buffers of the preparation go elsewhere when one of the plan is exchanged.

    Raises
    ------
    PlanBuildError
        The preparation computes what is there, or reads what the plan would write, or bytes
        beside those that are exchanged.
    """
    here, after = memory.region(index), region_of(buffer)
    moved = preparation.following(memory, {index: buffer})
    for i in preparation.given():
        there = preparation.region(i)
        if preparation.writes(i):
            if here.meets(there) or after.meets(there):
                raise PlanBuildError(
                    f"index: buffer {index} or the one given holds what the plan's preparation "
                    "computes; rebind what that is computed from"
                )
        elif here.meets(there) and i not in moved:
            raise PlanBuildError(
                f"index: values are prepared from buffer {index} and memory beside it; make the "
                "plan anew, such as by tracing the function with the other memory"
            )
        elif after.meets(there) and memory.writes(index):
            raise PlanBuildError(
                f"buffer: the plan writes buffer {index}, and values are prepared from these "
                "bytes; bind a copy"
            )
    return moved
