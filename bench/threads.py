"""The gain of a second thread, its overhead where there is no gain, and the cost of a call.

Both sides are kernelrt. The second side runs on the calling thread alone, or leaves out the part
that is measured.
"""

from __future__ import annotations

import ctypes
import functools
import random
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.cases import OURS, Case, Side
from bench.dispatch import library
from bench.networks import CONTROL_TRAIN
from bench.peers import kernelrt_side

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cases import Call

SERIAL = "one thread"
Ops = list[tuple[object, ...]]


def ours(title: str, name: str, make: Callable[[], Call], aim: float) -> Case:
    """Compare two threads with one."""
    sides = (
        Side(OURS, make, functools.partial(kernelrt_side.threads, 2)),
        Side(SERIAL, make, functools.partial(kernelrt_side.threads, 1)),
    )
    return Case(name, title, sides, aim=aim)


@functools.cache
def rounds_per_us() -> float:
    """Return the number of rounds of busy_kernel per microsecond."""
    table, values = (ctypes.c_void_p * 1)(), (ctypes.c_int64 * 1)(200_000)
    cell = (ctypes.c_float * 1)()
    table[0] = ctypes.addressof(cell)
    times = []
    for _ in range(20):
        start = time.perf_counter_ns()
        library().busy_kernel(table, values)
        times.append(time.perf_counter_ns() - start)
    return values[0] / min(times) * 1e3


def busy_plan(ops: list[tuple[float, tuple[int, ...]]]) -> Call:
    """Build a plan of ops that each keep a core busy for some microseconds, with dependencies."""
    from kernelrt._dispatch import KERNEL, PlanCore

    function = ctypes.cast(library().busy_kernel, ctypes.c_void_p).value or 0
    cells = np.zeros((len(ops), 16), np.float32)
    rows = [
        (KERNEL, function, (cells[i].ctypes.data,), (round(us * rounds_per_us()),), 1, -1, 1,
         round(us * 1e3), deps)
        for i, (us, deps) in enumerate(ops)
    ]  # fmt: skip
    plan = PlanCore(rows)
    execute = plan.execute

    def call() -> object:
        execute()
        return cells

    return call


def chains() -> Call:
    """Build two chains of fifty 20 us kernels."""
    return busy_plan([(20.0, (i - 2,) if i >= 2 else ()) for i in range(100)])


def wide_graph() -> Call:
    """Build 500 kernels of 5 to 50 us. Each depends on up to two of the sixty before it."""
    draw = random.Random(0)  # noqa: S311 - a reproducible graph, not a secret
    ops: list[tuple[float, tuple[int, ...]]] = []
    for i in range(500):
        earlier = range(max(0, i - 60), i)
        count = min(len(earlier), draw.randint(0, 2))
        ops.append((draw.uniform(5, 50), tuple(sorted(draw.sample(earlier, count)))))
    return busy_plan(ops)


def product(n: int) -> Call:
    """Build one matrix product, split into chunks."""
    import kernelrt as krt

    rng = np.random.default_rng(0)
    a, b = (krt.tensor(rng.standard_normal((n, n)).astype(np.float32)) for _ in range(2))
    plan = (a @ b).prepare()
    execute = plan.execute

    def call() -> object:
        execute()
        return plan

    return call


def empty_execute() -> Call:
    from kernelrt._dispatch import PlanCore

    return PlanCore([]).execute


def empty_method() -> Call:
    """Build a call of a nearly empty method of a compiled class."""
    from kernelrt.native.array_handle import ArrayHandle

    return ArrayHandle()._unbind  # noqa: SLF001 - the cheapest method


def small_call(whole: bool) -> Call:
    """Build a jit call with two small arrays and a scalar result, or a call of its kernel alone."""
    import kernelrt as krt

    @krt.jit
    def dot(a: krt.Tensor, b: krt.Tensor) -> krt.Tensor:
        return (a * b).sum()

    a, b = (np.ones(16, np.float32) for _ in range(2))
    dot(a, b)
    return functools.partial(dot, a, b) if whole else dot.plan(a, b).execute


def cases() -> tuple[Case, ...]:
    """Return cases of calls and of threads."""
    return (
        Case(
            "execute-empty", "execute() of an empty plan",
            (Side(OURS, empty_execute), Side("empty method", empty_method)),
        ),
        Case(
            "call-small", "jit call, two small arrays in, one number out",
            (
                Side(OURS, functools.partial(small_call, True)),
                Side("its kernel alone", functools.partial(small_call, False)),
            ),
        ),
        ours(
            "MLP 8-64-64-4 training step, two threads", "threads-small",
            functools.partial(kernelrt_side.training, CONTROL_TRAIN), aim=0.95,
        ),
        ours("matmul 512x512x512, two threads", "threads-chunks",
             functools.partial(product, 512), aim=1.8),
        ours("two chains of 20 us kernels, two threads", "threads-chains", chains, aim=1.8),
        ours("random graph of 500 kernels of 5 to 50 us, two threads", "threads-graph",
             wide_graph, aim=1.7),
    )  # fmt: skip
