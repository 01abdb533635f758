"""Interleaved timing: many rounds of short blocks that alternate between the sides."""

from __future__ import annotations

import gc
import statistics
from dataclasses import dataclass, field
from time import perf_counter_ns, process_time, sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.cases import Call, Side

BATCH_NS = 200_000
"""Minimum duration of a batch of calls, so that the cost of the clock is negligible."""


SETTLE_S = 1.0
"""Longest wait between sides: OpenBLAS's threads spin for 2**28 ticks after their last work."""
LOOK_S = 0.01
"""Interval in which the threads must be idle: use less than a tenth of it as processor time."""


@dataclass
class Samples:
    """Times of one side: for each batch of calls, the nanoseconds of a call."""

    batches: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.batches)

    @property
    def best(self) -> float:
        return min(self.batches)


def calls_per_batch(call: Call) -> int:
    """Return the number of calls that fill a batch. Measuring it also warms the caches."""
    count = 1
    while True:
        start = perf_counter_ns()
        for _ in range(count):
            call()
        elapsed = perf_counter_ns() - start
        if elapsed >= BATCH_NS:
            return max(1, round(count * BATCH_NS / elapsed))
        count *= 2


def measure(
    sides: Mapping[str, tuple[Side, Call]], *, rounds: int = 30, block_ms: float = 30.0
) -> dict[str, Samples]:
    """Time all sides in `rounds` rounds; in each, every side gets one block of `block_ms`.

    Before a block, the threads of the previous side come to rest. The first quarter of a block does
    not count, because threads first have to wake up, and caches hold the data of other sides.
    """
    samples = {name: Samples() for name in sides}
    counts: dict[str, int] = {}
    for name, (side, call) in sides.items():
        side.enter()
        counts[name] = calls_per_batch(call)
    names = list(sides)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                side, call = sides[name]
                side.enter()
                settle()
                _block(call, counts[name], int(block_ms * 1e6), samples[name].batches)
            gc.collect()
    finally:
        gc.enable()
    for name, (side, _) in sides.items():
        samples[name].batches[:] = [batch / side.calls for batch in samples[name].batches]
    return samples


def settle() -> None:
    """Wait until no thread of the process computes any more."""
    for _ in range(round(SETTLE_S / LOOK_S)):
        before = process_time()
        sleep(LOOK_S)
        if process_time() - before < LOOK_S / 10:
            return


def _block(call: Call, count: int, block_ns: int, batches: list[float]) -> None:
    start = perf_counter_ns()
    while perf_counter_ns() - start < block_ns // 4:
        call()
    repeat = range(count)
    while True:
        before = perf_counter_ns()
        for _ in repeat:
            call()
        after = perf_counter_ns()
        batches.append((after - before) / count)
        if after - start >= block_ns:
            return
