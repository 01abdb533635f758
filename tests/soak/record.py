"""What the case at hand has compared and compiled, and whether it kept to what compiling may cost.

A generator tells what it compared, in the words of the closing list: ``record.note("trainings")``.
What it compiles is seen here, whichever way it came about: the text of each kernel, and the
computing that it took to make each plan, from its graph to its machine code.
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
"""Of computing, in all threads, so that a busy machine makes no plan look slow."""


@dataclass
class Record:
    """What was done since the record was begun.

    Attributes
    ----------
    compared : Counter
        How often, by unit of the closing list.
    plans, kernels : int
        How many were made.
    longest : float
        Seconds of computing that went into one plan.
    largest : int
        Bytes of LLVM IR in one kernel.
    """

    compared: Counter[str] = field(default_factory=Counter)
    plans: int = 0
    kernels: int = 0
    longest: float = 0.0
    largest: int = 0

    def plain(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        return {**vars(self), "compared": dict(self.compared)}

    def add(self, other: dict[str, Any]) -> None:
        """Take in what `plain` gave."""
        self.compared.update(other["compared"])
        self.plans += other["plans"]
        self.kernels += other["kernels"]
        self.longest = max(self.longest, other["longest"])
        self.largest = max(self.largest, other["largest"])

    def excess(self) -> str | None:
        """Which bound was passed."""
        if self.largest > IR_BYTES:
            return f"IR: {self.largest} bytes in one kernel"
        if self.longest > PLAN_SECONDS:
            return f"time: {self.longest:.1f} s of computing for one plan"
        return None


current = Record()


def note(unit: str, times: int = 1) -> None:
    """Say that so many of `unit` were compared with the truth."""
    current.compared[unit] += times


@contextlib.contextmanager
def begun() -> Iterator[Record]:
    """A fresh record of what happens within."""
    global current  # noqa: PLW0603 - one case is run at a time
    before, current = current, Record()
    try:
        yield current
    finally:
        current = before


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """See all that is compiled in this process meanwhile."""
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
