"""Peak arithmetic and memory rates of this machine, measured once in a process."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

import kernelrt as krt
from kernelrt.device import registry

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Peaks", "peaks"]

#: Products of N x N float32 matrices fit in the L2 cache and run near the rate of multiply-adds.
_N: Final = 192
_RUNS: Final = 12
#: Largest array to stream through memory; it has to exceed the L3 cache to measure memory.
_MOST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured rates of one machine, for the roofline.

    Attributes
    ----------
    flops : float
        Floating-point operations per second of a float32 matrix product in cache.
    memory : float
        Bytes per second, read and written, of an array in memory.
    cache : float
        Bytes per second, read and written, of an array in the L2 cache.
    threads : int
        Number of threads. `memory` is measured with all threads. `flops` and `cache` are the rates
        of one thread times the number of threads, because each core has its own arithmetic units
        and L2 cache.
    """

    flops: float
    memory: float
    cache: float
    threads: int

    def least(self, flops: float, nbytes: float) -> float:
        """Return the seconds that work takes at these rates if its bytes are in the L2 cache."""
        return max(flops / self.flops, nbytes / self.cache)


@functools.cache
def peaks(threads: int) -> Peaks:
    """Measure this machine with `threads` threads; later calls return the same result."""
    spec = registry.opened().spec
    rng = np.random.default_rng(0)
    a, b = (krt.tensor(rng.random((_N, _N), np.float32)) for _ in range(2))
    alone = 2 * _N**3 / _shortest(krt.prepare(a @ b, threads=1).execute)
    near = krt.tensor(np.ones(spec.l2_bytes // 16, np.float32))
    cache = 2 * near.nbytes / _shortest(krt.prepare(near + 1.0, threads=1).execute)
    far = krt.tensor(np.ones(min(_MOST_BYTES, max(2 * spec.l3_bytes, 16 << 20)) // 4, np.float32))
    memory = 2 * far.nbytes / _shortest(krt.prepare(far + 1.0, threads=threads).execute, 4)
    return Peaks(alone * threads, memory, max(cache * threads, memory), threads)


def _shortest(call: Callable[[], None], runs: int = _RUNS) -> float:
    """Return the shortest time of a call in seconds."""
    call()
    found = []
    for _ in range(runs):
        began = perf_counter()
        call()
        found.append(perf_counter() - began)
    return min(found)
