"""Scheduler: lowers a tensor graph to kernels in execution order."""

from kernelrt.schedule.scheduler import schedule
from kernelrt.schedule.types import (
    CopyItem,
    Decision,
    Intermediate,
    Item,
    KernelItem,
    Part,
    Schedule,
)

__all__ = [
    "CopyItem",
    "Decision",
    "Intermediate",
    "Item",
    "KernelItem",
    "Part",
    "Schedule",
    "schedule",
]
