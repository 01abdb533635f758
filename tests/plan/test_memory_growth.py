"""Resident memory does not grow with use."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import Chain
from support.regions import sums
from support.skip_list import needs

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import CustomFunctionError
from kernelrt.ir import Variable
from kernelrt.runtime import ExecutionPlanBuilder

ALLOWED = 2 << 20
statm = Path("/proc/self/statm")

pytestmark = [pytest.mark.exhaustive, needs("Linux")]


def rss() -> int:
    return int(statm.read_text(encoding="ascii").split()[1]) * 4096


def growth(function, warm_up: int, count: int) -> int:
    """Bytes of resident memory that `count` calls add after `warm_up` calls.

    Twice the lesser of two halves: a leak shows in both, while the heap of a long test run may
    still take a step in one of them.
    """
    for _ in range(warm_up):
        function()
    gc.collect()
    marks = [rss()]
    for _ in range(2):
        for _ in range(count // 2):
            function()
        gc.collect()  # beside a large heap the interpreter leaves cycles lying for long
        marks.append(rss())
    return 2 * min(marks[1] - marks[0], marks[2] - marks[1])


def small_plan(*, n: bool = False):
    chain = Chain(np.arange(16), np.zeros(16))
    scratch, out = chain.scratch(), chain.scratch()
    chain.scale(scratch, 0, 2)
    chain.add(out, scratch, 0)
    if n:
        chain.builder.add_kernel(plan_kernels.square_to(Variable("n", 1, 16), split=True), [1, 0])
    return chain.build(out)


def test_a_hundred_thousand_executes():
    assert growth(small_plan().execute, 1000, 100_000) < ALLOWED


def test_a_hundred_thousand_executes_with_variables():
    plan = small_plan(n=True)
    sizes = iter(range(1 << 30))
    assert growth(lambda: plan.execute_with_vars(n=1 + next(sizes) % 16), 1000, 100_000) < ALLOWED


def test_ten_thousand_executes_of_loops():
    plan, *_ = sums(20)
    assert growth(plan.execute, 1000, 10_000) < ALLOWED
    assert growth(plan.execute_profiled, 500, 5_000) < ALLOWED


def test_a_thousand_plans_with_loops():
    assert growth(lambda: sums(3)[0].replicate().execute(), 100, 1000) < ALLOWED


def test_ten_thousand_profiled_executes():
    assert growth(small_plan().execute_profiled, 500, 10_000) < ALLOWED


def test_ten_thousand_builds_and_releases():
    assert growth(lambda: small_plan().release_all_buffers(), 500, 10_000) < ALLOWED


def test_ten_thousand_builds_that_are_just_dropped():
    assert growth(small_plan, 500, 10_000) < ALLOWED


def test_failures_leave_nothing_behind():
    chain = Chain(np.arange(16))

    def fail(_):
        raise ValueError("as told")

    chain.builder.add_custom(fail, [0], [0])
    plan = chain.build(0)

    def run():
        with pytest.raises(CustomFunctionError):
            plan.execute()

    assert growth(run, 500, 10_000) < ALLOWED


def test_replicas_and_rebinds_leave_nothing_behind():
    plan = small_plan()
    assert growth(lambda: plan.replicate().execute(), 200, 3000) < ALLOWED
    assert growth(lambda: plan.rebind(0, Buffer.wrap(np.ones(16, np.int64))), 200, 3000) < ALLOWED


def test_large_buffers_come_and_go():
    def run():
        builder = ExecutionPlanBuilder()
        index = builder.add_intermediate(1 << 20, dt.int64)
        builder.add_kernel(plan_kernels.fill(1, 16), [index])
        builder.set_output_buffer(index)
        plan = builder.build()
        plan.execute()
        plan.output_buffer.numpy()[:] = 1

    assert growth(run, 20, 200) < ALLOWED


def test_prepared_tensors_come_and_go():
    import kernelrt as krt

    x = krt.tensor(np.ones((8, 8), np.float32)).realize()

    def run():
        plan = krt.prepare((x * 2).sum())
        plan.execute()
        plan.release_all_buffers()

    assert growth(run, 200, 3000) < ALLOWED
