"""KernelProfile, profiled execution and its table."""

from __future__ import annotations

import time

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import Chain

from kernelrt.ir import Variable
from kernelrt.runtime import profiler

N = Variable("n", 1, 16)


@pytest.fixture
def plan():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 2)
    chain.builder.add_copy(0, 1)
    kernel = plan_kernels.kernel(
        "cube", "%s = mul i64 %x1, %x1\n%r = mul i64 %s, %x1", 1, count=N, variables=[N],
        split=True, flops=N * 2, bytes=N * 16,
    )  # fmt: skip
    chain.builder.add_kernel(kernel, [1, 0])
    return chain.build(1)


def test_there_is_one_profile_for_each_launch_in_order(plan):
    profiles = plan.execute_profiled()
    assert [p.kernel.entry_point for p in profiles] == ["scale_2", "cube"]
    assert [p.op for p in profiles] == [0, 2]


def test_a_profile_tells_kernel_device_and_buffers(plan):
    first, second = plan.execute_profiled()
    assert first.kernel is plan.prepared_kernels[0].kernel
    assert (first.device, first.num_buffers) == ("CPU", 2)
    assert (first.chunks, second.chunks) == (1, 2)


def test_elapsed_and_start_are_seconds_of_one_run(plan):
    began = time.perf_counter()
    first, second = plan.execute_profiled()
    assert 0 < first.elapsed < time.perf_counter() - began
    assert 0 <= first.start <= first.start + first.elapsed <= second.start


def test_flops_and_bytes_follow_the_variables(plan):
    assert [(p.flops, p.bytes) for p in plan.execute_with_vars_profiled(n=5)][1] == (10, 80)
    assert [(p.flops, p.bytes) for p in plan.execute_profiled()][1] == (10, 80)
    profile = plan.execute_with_vars_profiled(n=16)[1]
    assert profile.gflops == pytest.approx(32 / profile.elapsed / 1e9)
    assert profile.gbytes == pytest.approx(256 / profile.elapsed / 1e9)


def test_a_profiled_run_computes_what_a_plain_one_does():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.add(1, 1, 0)
    plan = chain.build(1)
    plan.execute()
    plan.execute_profiled()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 2)


def test_the_table_sums_calls_and_sorts_by_time(plan):
    profiles = plan.execute_profiled() + plan.execute_profiled()
    lines = profiler.table(profiles).splitlines()
    assert lines[0].split() == ["kernel", "calls", "time", "share", "GFLOP/s", "GB/s"]
    assert {line.split()[0] for line in lines[1:3]} == {"scale_2", "cube"}
    assert all(line.split()[1] == "2" for line in lines[1:3])
    assert lines[-1].split()[:2] == ["total", "4"]
    shares = [float(line.split("%")[0].split()[-1]) for line in lines[1:3]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_the_table_takes_repeated_runs(plan):
    runs = plan.profile(3)
    lines = profiler.table(runs).splitlines()
    assert lines[-1].split()[:2] == ["total", "6"]
    assert profiler.table(iter(runs)).splitlines() == lines


def test_the_table_can_be_cut(plan):
    lines = profiler.table(plan.execute_profiled(), limit=1).splitlines()
    assert lines[2].startswith("(1 more)")


def test_total_adds_up_seconds(plan):
    profiles = plan.execute_profiled()
    assert profiler.total(profiles) == pytest.approx(sum(p.elapsed for p in profiles))
