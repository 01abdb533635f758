"""Plans with loops as plans: on threads, copied, with other memory, profiled, released."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import scale
from support.regions import WIDTH, Body, Outer, chooser, doubling, sums

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer
from kernelrt.errors import (
    PlanBuildError,
    PlanReleasedError,
)
from kernelrt.ir import Variable
from kernelrt.runtime import ExecutionPlanBuilder
from kernelrt.runtime.kernel_cache import build


def test_two_threads_take_turns():
    plan, state = doubling(1 << 40, 30)
    state[:] = 0
    outer = Outer()
    counts = np.zeros(WIDTH, np.int64)
    body = Body(2)
    body.add(0, 0, 1)
    ones = outer.given(np.ones(WIDTH, np.int64))
    outer.builder.add_region(
        [body.builder.build()], [outer.given(counts), ones], [(0, 0, 0), (0, 1, 1)], [0], count=50
    )
    plan = outer.builder.build()
    threads = [
        threading.Thread(target=lambda: [plan.execute() for _ in range(200)]) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts.tolist() == [2 * 200 * 50] * WIDTH


def test_large_kernels_of_a_body_give_the_same_on_several_threads():
    size = 1 << 16
    n = Variable("n", size, size)
    square = plan_kernels.square_to(n, split=True)
    body = ExecutionPlanBuilder()
    x, y = body.add_port(size, dt.int64), body.add_port(size, dt.int64)
    body.add_kernel(square, [y, x], fixedvars={"n": size})
    body.add_kernel(square, [x, y], fixedvars={"n": size})
    outer = Outer()
    start = np.random.default_rng(0).integers(0, 1 << 62, size)
    state = start.copy()
    scratch = outer.builder.add_intermediate(size, dt.int64)
    outer.builder.add_region(
        [body.build()], [outer.given(state), scratch], [(0, x, 0), (0, y, 1)], [0, 1], count=3
    )
    plan = outer.builder.build()
    plan.execute()
    expected = start
    for _ in range(6):
        expected = expected * expected
    np.testing.assert_array_equal(state, expected)
    many = state.copy()
    state[:] = start
    plan.set_threads(1)
    plan.execute()
    np.testing.assert_array_equal(state, many)


def test_replicas_share_no_body_and_run_beside_each_other():
    plan, start, xs, ys = sums(40)
    plan.execute()
    first = ys.copy()
    twin = plan.replicate()
    assert not set(map(id, twin.bodies)) & set(map(id, plan.bodies))
    xs += 1
    twin.execute()
    np.testing.assert_array_equal(ys, first)
    expected = start + np.cumsum(xs, axis=0)
    np.testing.assert_array_equal(twin.output_buffer.numpy(), expected[-1])
    threads = [
        threading.Thread(target=lambda each=each: [each.execute() for _ in range(100)])
        for each in (plan, twin)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(ys, expected)


def test_a_replica_reads_its_own_state_in_bodies_too():
    state = np.arange(WIDTH)
    buffer = Buffer.wrap(state)
    body = Body(1)
    body.add(0, 0, body.builder.add_buffer(buffer))
    outer = Outer()
    out = np.zeros(WIDTH, np.int64)
    outer.builder.add_region([body.builder.build()], [outer.given(out)], [(0, 0, 0)], [0], count=2)
    place = outer.builder.add_buffer(buffer)
    outer.builder.add_kernel(scale(2, WIDTH), [place, place])
    plan = outer.builder.build()
    assert plan.prepared_ops[1].dependencies == (0,)
    twin = plan.replicate()
    plan.execute()
    assert out.tolist() == [0, 2, 4, 6]
    assert state.tolist() == [0, 2, 4, 6]
    twin.execute()
    twin.execute()
    assert [b.numpy().tolist() for b in twin.state if b.size] != []
    assert twin.buffers[0].numpy().tolist() == [0, 6, 12, 18]
    with pytest.raises(PlanBuildError, match="given to a body"):
        plan.rebind(place, Buffer.wrap(np.ones(WIDTH, np.int64)))


def test_rebind_reaches_the_loop():
    plan, start, xs, _ = sums(6)
    other = np.full_like(xs, -7)
    plan.rebind(2, Buffer.wrap(other))
    plan.rebind(1, Buffer.wrap(2 * xs))
    plan.execute()
    np.testing.assert_array_equal(other, start + np.cumsum(2 * xs, axis=0))


def test_a_builder_can_build_twice_and_plans_are_apart():
    body = Body(1)
    body.scale(0, 0, 3)
    outer = Outer()
    state = np.ones(WIDTH, np.int64)
    ready = body.builder.build()
    outer.builder.add_region([ready], [outer.given(state)], [(0, 0, 0)], [0], count=2)
    first, second = outer.builder.build(), outer.builder.build()
    assert first.bodies == (ready,)
    assert second.bodies != (ready,)
    first.execute()
    second.execute()
    assert state.tolist() == [81] * WIDTH


def test_kernels_in_bodies_can_be_exchanged():
    size = 40_000
    (old,) = krt.prepare(krt.tensor(np.zeros(size, np.float32)) * 3 + 1).kernels
    opened = registry.opened("CPU").renderer
    made = (build([(old.ast, v.text)])[0] for v in opened.variants(old.ast))
    new = next(kernel for kernel in made if kernel.is_split is not old.is_split)
    body = ExecutionPlanBuilder()
    out, x = body.add_port(size, dt.float32), body.add_port(size, dt.float32)
    body.add_kernel(old, [out, x])
    middle = ExecutionPlanBuilder()
    outs, xs = middle.add_port(2 * size, dt.float32), middle.add_port(2 * size, dt.float32)
    bindings = [(0, out, 0, 4 * size), (0, x, 1, 4 * size)]
    middle.add_region([body.build()], [outs, xs], bindings, [0], count=2)
    outer = Outer()
    rows = np.random.default_rng(1).random((6, size), np.float32)
    results = np.zeros_like(rows)
    outer.builder.add_region(
        [middle.build()], [outer.given(results), outer.given(rows)],
        [(0, outs, 0, 8 * size), (0, xs, 1, 8 * size)], [0], count=3,
    )  # fmt: skip
    plan = outer.builder.build()
    plan.execute()
    expected = results.copy()
    np.testing.assert_allclose(expected, rows * 3 + 1, rtol=1e-6)
    for first, second in ((old, new), (new, old), (old, new)):
        assert plan.exchange({first: second}) == 1
        assert plan.kernels == (second,)
        results[:] = 0
        plan.execute()
        np.testing.assert_array_equal(results, expected)
    assert plan.replicate().kernels == (new,)
    results[:] = 0
    assert [(p.kernel, p.runs) for p in plan.execute_profiled()] == [(new, 6)]
    np.testing.assert_array_equal(results, expected)


def test_profiles_add_up_the_turns_of_a_body():
    plan, start, xs, ys = sums(12)
    began = time.perf_counter()
    (profile,) = plan.execute_profiled()
    took = time.perf_counter() - began
    np.testing.assert_array_equal(ys, start + np.cumsum(xs, axis=0))
    assert (profile.runs, profile.region, profile.chunks) == (12, 0, 1)
    assert 0 < profile.elapsed < took
    (again,) = plan.execute_profiled()
    assert again.runs == 12
    raw = plan.execute_profiled_raw()
    (_, whole, _, _, runs, _), *body = raw
    assert runs == 1
    assert [row[4] for row in body] == [12, 12]
    assert sum(row[1] for row in body) <= whole


def test_profiles_of_loops_within_loops_count_all_turns():
    inner = Body(1)
    inner.scale(0, 0, 1)
    middle = Body(1)
    middle.builder.add_region([inner.builder.build()], [0], [(0, 0, 0)], [0], count=3)
    middle.scale(0, 0, 1)
    outer = Outer()
    x = outer.numbers(1, 2, 3, 4)
    outer.builder.add_region([middle.builder.build()], [x], [(0, 0, 0)], [0], count=5)
    outer.builder.add_kernel(scale(1, WIDTH), [x, x])
    plan = outer.builder.build()
    assert [(p.runs, p.region) for p in plan.execute_profiled()] == [(1, None), (5, 0), (15, 0)]
    assert "calls" in str(plan.profile(3)) or plan.profile(3).ops


def test_only_the_body_that_ran_is_in_a_profile():
    plan, which, _ = chooser(3)
    which[0] = 1
    assert [p.runs for p in plan.execute_profiled()] == [0, 1, 0]
    which[0] = 2
    assert [p.runs for p in plan.execute_profiled()] == [0, 0, 1]


def test_explain_shows_bodies():
    text = sums(4)[0].explain()
    assert "0 kernels, 1 in bodies" in text
    assert "  loop of 4 iterations (op 0): 3, 2 <- 1, 0" in text
    assert "\n      kernel 'add' (op 0): 0 <- 0, 1" in text
    plan, _, _ = chooser(2)
    assert "choice among 2 bodies (op 0): 0 <- 1" in plan.explain()
    assert "\n    body 1\n" in plan.explain()


def test_the_estimate_counts_turns():
    assert sums(3000)[0].cost_ns > 100 * sums(3)[0].cost_ns


# ---- Life


def test_bodies_go_with_the_plan_and_cannot_be_run_or_changed():
    plan, *_ = sums(3)
    (body,) = plan.bodies
    assert body.is_body
    for use in (
        body.execute,
        body.release,
        body.execute_profiled,
        lambda: body.set_pointer(0, 0, 64),
        lambda: body.set_threads(1),
        lambda: body.exchange({}),
    ):
        with pytest.raises(PlanBuildError, match="body of a region"):
            use()
    plan.execute()
    plan.release()
    with pytest.raises(PlanReleasedError):
        body.execute()
    with pytest.raises(PlanReleasedError):
        plan.execute()


def test_memory_of_bodies_goes_with_the_plan():
    body = Body(1)
    scratch = body.builder.add_intermediate(WIDTH, dt.int64)
    body.scale(scratch, 0, 2)
    body.builder.add_copy(0, scratch)
    outer = Outer()
    state = np.ones(WIDTH, np.int64)
    outer.builder.add_region(
        [body.builder.build()], [outer.given(state)], [(0, 0, 0)], [0], count=3
    )
    plan = outer.builder.build()
    plan.execute()
    assert state.tolist() == [8] * WIDTH
    assert plan.memory.peak == plan.bodies[0].memory.peak > 0
    ids = []
    plan.release_all_buffers(ids.append)
    assert plan.bodies[0].buffer_at(scratch) is None
    assert len(ids) == 3
    plan, *_ = sums(3)
    gone = [weakref.ref(plan), weakref.ref(plan.bodies[0])]
    del plan
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_ports_take_no_memory():
    body = ExecutionPlanBuilder()
    port = body.add_port(1 << 40, dt.int64)
    part = body.add_view(port, 1 << 40, WIDTH)
    body.add_kernel(scale(2, WIDTH), [part, port])
    plan = body.build()
    assert plan.memory.peak == 0
    assert plan.sites(port) == ((1, 0, 1 << 40), (1, 1, 0))
    assert not plan.owns(port)
    assert plan.ports == (port,)


