"""Records comparisons and compilations of the current case, and checks the compile limits.

A generator reports its comparisons in the units of the final list: ``record.note("trainings")``.
Compilations are recorded here, whatever causes them: the text of each kernel, and the CPU time to
make each plan, from its graph to machine code.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

IR_BYTES = 110_000
PLAN_SECONDS = 5.0
"""Limit of CPU time over all threads, which a busy machine does not lengthen."""


@dataclass
class Record:
    """The work since the start of the record.

    Attributes
    ----------
    compared : Counter
        Number of comparisons by unit of the final list.
    plans, kernels : int
        Numbers of plans and kernels made.
    longest : float
        CPU seconds of the slowest plan.
    largest : int
        Bytes of LLVM IR of the largest kernel.
    """

    compared: Counter[str] = field(default_factory=Counter)
    plans: int = 0
    kernels: int = 0
    longest: float = 0.0
    largest: int = 0

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        return {**vars(self), "compared": dict(self.compared)}

    def add(self, other: dict[str, Any]) -> None:
        """Add the result of `plain`."""
        self.compared.update(other["compared"])
        self.plans += other["plans"]
        self.kernels += other["kernels"]
        self.longest = max(self.longest, other["longest"])
        self.largest = max(self.largest, other["largest"])

    def excess(self) -> str | None:
        """Return the exceeded limit, or None."""
        if self.largest > IR_BYTES:
            return f"IR: {self.largest} bytes in one kernel"
        if self.longest > PLAN_SECONDS:
            return f"time: {self.longest:.1f} s of computing for one plan"
        return None


current = Record()


def note(unit: str, times: int = 1) -> None:
    """Report that `times` times `unit` were compared with the truth."""
    current.compared[unit] += times


@contextlib.contextmanager
def begun() -> Iterator[Record]:
    """Start a new record of the work in the block."""
    global current  # noqa: PLW0603 - only one case runs at a time
    before, current = current, Record()
    try:
        yield current
    finally:
        current = before


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """Record all compilations in this process in the block."""
    from kernelrt import runtime, schedule
    from kernelrt.backend.cpu.compiler import LLVMCompiler

    usual = schedule.schedule, runtime.prepare, LLVMCompiler.compile_sources
    spent = 0.0

    def scheduling(*args: Any, **options: Any) -> Any:
        nonlocal spent
        began = time.process_time()
        try:
            return usual[0](*args, **options)
        finally:
            spent += time.process_time() - began

    def preparing(*args: Any, **options: Any) -> Any:
        nonlocal spent
        began = time.process_time()
        try:
            return usual[1](*args, **options)
        finally:
            current.plans += 1
            current.longest = max(current.longest, spent + time.process_time() - began)
            spent = 0.0

    def compiling(self: Any, kernels: Any) -> Any:
        return usual[2](self, map(seen, kernels))

    def seen(kernel: tuple[str, str]) -> tuple[str, str]:
        current.kernels += 1
        current.largest = max(current.largest, len(kernel[1]))
        return kernel

    schedule.schedule, runtime.prepare = scheduling, preparing
    LLVMCompiler.compile_sources = compiling  # type: ignore[method-assign]
    try:
        yield
    finally:
        schedule.schedule, runtime.prepare = usual[:2]
        LLVMCompiler.compile_sources = usual[2]  # type: ignore[method-assign]
