"""Loops and choices in plans made by hand, against the same in NumPy or plain Python."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import add, fill, gather, scale

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer
from kernelrt.errors import (
    CustomFunctionError,
    IndexBoundsError,
    PlanBuildError,
    PlanBusyError,
    PlanReleasedError,
)
from kernelrt.ir import Variable
from kernelrt.runtime import CachedKernel, ExecutionPlanBuilder
from kernelrt.runtime.kernel_cache import build

WIDTH = 4


class Body:
    """A builder of a plan whose buffers are ports of WIDTH int64."""

    def __init__(self, ports: int, size: int = WIDTH) -> None:
        self.builder = ExecutionPlanBuilder()
        self.ports = [self.builder.add_port(size, dt.int64) for _ in range(ports)]

    def add(self, out: int, a: int, b: int) -> None:
        self.builder.add_kernel(add(WIDTH), [out, a, b])

    def scale(self, out: int, source: int, factor: int) -> None:
        self.builder.add_kernel(scale(factor, WIDTH), [out, source])


class Outer:
    """A builder of a plan over arrays."""

    def __init__(self) -> None:
        self.builder = ExecutionPlanBuilder()

    def given(self, array: np.ndarray) -> int:
        return self.builder.add_buffer(Buffer.wrap(array))

    def numbers(self, *values: int) -> int:
        return self.given(np.array(values, np.int64))


def running_sum():
    """carry += x; y = carry: ports (carry, x, y)."""
    body = Body(3)
    carry, x, y = body.ports
    body.add(carry, carry, x)
    body.builder.add_copy(y, carry)
    return body.builder.build()


def sums(turns: int, **options: object):
    """A plan of running sums over the rows of `xs`, and its arrays: start, xs, ys."""
    rng = np.random.default_rng(turns)
    start = rng.integers(-9, 9, WIDTH)
    xs = rng.integers(-9, 9, (max(turns, 1), WIDTH))
    ys = np.full_like(xs, -7)
    outer = Outer()
    places = [outer.given(a) for a in (start, xs, ys)]
    carry = outer.builder.add_intermediate(WIDTH, dt.int64)
    row = WIDTH * 8
    outer.builder.add_region(
        [running_sum()],
        [carry, places[1], places[2], places[0]],
        [(0, 0, 0), (0, 1, 1, row), (0, 2, 2, row)],
        [0, 2],
        count=turns,
        copies=((0, 3, row),),
        **options,
    )
    outer.builder.set_output_buffer(carry)
    return outer.builder.build(), start, xs, ys


@pytest.mark.parametrize("turns", [1, 2, 7, 600, 3000])
def test_a_loop_moves_along_rows_and_carries(turns):
    plan, start, xs, ys = sums(turns)
    for _ in range(2):
        plan.execute()
        expected = start + np.cumsum(xs, axis=0)
        np.testing.assert_array_equal(ys, expected)
        np.testing.assert_array_equal(plan.output_buffer.numpy(), expected[-1])
        xs += 1


def test_a_loop_in_reverse():
    plan, start, xs, ys = sums(9, reverse=True)
    plan.execute()
    np.testing.assert_array_equal(ys, (start + np.cumsum(xs[::-1], axis=0))[::-1])


def test_no_turns_leave_the_first_carry():
    plan, start, _, ys = sums(0)
    plan.execute()
    np.testing.assert_array_equal(plan.output_buffer.numpy(), start)
    assert (ys == -7).all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("asked", "turns"), [(0, 0), (3, 3), (8, 8), (9, 8), (-2, 0), (1 << 40, 8)])
def test_how_many_turns_is_read_when_it_runs(asked, turns, reverse):
    body = Body(2)
    body.builder.add_copy(body.ports[1], body.ports[0])
    number = body.builder.add_port(1, dt.int64)
    seen = []
    body.builder.add_custom(lambda n: seen.append(int(n[0])), [number])
    outer = Outer()
    xs, ys = np.arange(8 * WIDTH), np.zeros(8 * WIDTH, np.int64)
    asks = np.array([asked])
    buffers = [outer.given(xs), outer.given(ys), outer.given(asks)]
    outer.builder.add_region(
        [body.builder.build()], buffers, [(0, 0, 0, 32), (0, 1, 1, 32), (0, number, -1)], [1],
        count=8, count_slot=2, reverse=reverse,
    )  # fmt: skip
    plan = outer.builder.build()
    plan.execute()
    np.testing.assert_array_equal(ys, np.where(np.arange(32) < turns * WIDTH, xs, 0))
    assert seen == (list(range(turns))[::-1] if reverse else list(range(turns)))
    asks[0], seen[:] = 5, []
    plan.execute()
    assert sorted(seen) == [0, 1, 2, 3, 4]


@functools.cache
def below(limit: int) -> CachedKernel:
    """out (a bool) = x1[0] < limit"""
    text = f"""
define void @below(ptr %bufs, ptr %vals) {{
  %b1 = getelementptr ptr, ptr %bufs, i64 1
  %out = load ptr, ptr %bufs
  %x = load ptr, ptr %b1
  %v = load i64, ptr %x
  %c = icmp slt i64 %v, {limit}
  %r = zext i1 %c to i8
  store i8 %r, ptr %out
  ret void
}}"""
    return CachedKernel.from_source("below", text, 2, [0])


def doubling(limit: int, most: int):
    """A plan that doubles a number while it is below `limit`."""
    body = Body(1)
    go = body.builder.add_port(1, dt.bool_)
    body.scale(0, 0, 2)
    body.builder.add_kernel(below(limit), [go, 0])
    outer = Outer()
    state = np.ones(WIDTH, np.int64)
    x = outer.given(state)
    holds = outer.builder.add_intermediate(1, dt.bool_)
    outer.builder.add_kernel(below(limit), [holds, x])
    outer.builder.add_region(
        [body.builder.build()], [x, holds], [(0, 0, 0), (0, go, 1)], [0, 1],
        count=most, condition_slot=1,
    )  # fmt: skip
    return outer.builder.build(), state


@pytest.mark.parametrize(("first", "limit", "result"), [(1, 100, 128), (100, 100, 100), (3, 7, 12)])
def test_a_condition_ends_a_loop(first, limit, result):
    plan, state = doubling(limit, 60)
    state[:] = first
    plan.execute()
    assert state.tolist() == [result] * WIDTH


def test_a_condition_that_always_holds_ends_with_the_count():
    plan, state = doubling(1 << 62, 10)
    plan.execute()
    assert state.tolist() == [1024] * WIDTH


def test_loops_within_loops():
    """ys[i, j] = xs[i, j] added up over i and j, in row-major order, from a carry of both."""
    rows, columns = 5, 7
    middle = ExecutionPlanBuilder()
    carry = middle.add_port(WIDTH, dt.int64)
    xs = middle.add_port(columns * WIDTH, dt.int64)
    ys = middle.add_port(columns * WIDTH, dt.int64)
    tail = middle.add_view(ys, WIDTH * 8, WIDTH * (columns - 1))  # the inner loop writes a part
    middle.add_copy(ys, xs, WIDTH * 8)
    middle.add_region(
        [running_sum()], [carry, xs, tail], [(0, 0, 0), (0, 1, 1, 32), (0, 2, 2, 32)], [0, 2],
        count=columns - 1,
    )  # fmt: skip
    outer = Outer()
    x = np.random.default_rng(3).integers(-9, 9, (rows, columns, WIDTH))
    y, state = np.zeros_like(x), np.zeros(WIDTH, np.int64)
    buffers = [outer.given(a) for a in (state, x, y)]
    step = columns * WIDTH * 8
    outer.builder.add_region(
        [middle.build()], buffers,
        [(0, carry, 0), (0, xs, 1, step), (0, ys, 2, step)], [0, 2], count=rows,
    )  # fmt: skip
    plan = outer.builder.build()
    plan.execute()
    expected, total = np.zeros_like(x), np.zeros(WIDTH, np.int64)
    for i in range(rows):
        expected[i, 0] = x[i, 0]
        for j in range(columns - 1):
            total = total + x[i, j]
            expected[i, j + 1] = total
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(state, total)


def chooser(bodies: int):
    """A plan that multiplies by 2, 3, 4 or so, as `which` says."""
    made = []
    for i in range(bodies):
        body = Body(1)
        body.scale(0, 0, i + 2)
        made.append(body.builder.build())
    outer = Outer()
    which, state = np.zeros(1, np.int64), np.ones(WIDTH, np.int64)
    outer.builder.add_region(
        made, [outer.given(state), outer.given(which)], [(i, 0, 0) for i in range(bodies)], [0],
        choice_slot=1,
    )  # fmt: skip
    return outer.builder.build(), which, state


@pytest.mark.parametrize(("choice", "factor"), [(0, 2), (1, 3), (2, 4), (3, 4), (-1, 2)])
def test_one_of_several_bodies_is_run(choice, factor):
    plan, which, state = chooser(3)
    which[0] = choice
    plan.execute()
    assert state.tolist() == [factor] * WIDTH


def test_operations_around_a_region_wait_for_it_and_it_for_them():
    outer = Outer()
    out = np.zeros(WIDTH, np.int64)
    result = outer.given(out)
    xs = outer.builder.add_intermediate(3 * WIDTH, dt.int64)
    total = outer.builder.add_intermediate(WIDTH, dt.int64)
    outer.builder.add_kernel(fill(5, 3 * WIDTH), [xs])
    outer.builder.add_kernel(fill(1, WIDTH), [total])
    body = Body(2)
    body.add(0, 0, 1)
    outer.builder.add_region(
        [body.builder.build()], [total, xs], [(0, 0, 0), (0, 1, 1, 32)], [0], count=3
    )
    outer.builder.add_kernel(scale(2, WIDTH), [result, total])
    plan = outer.builder.build()
    assert [op.dependencies for op in plan.prepared_ops] == [(), (), (0, 1), (2,)]
    plan.execute()
    assert out.tolist() == [32] * WIDTH


# ---- Failure


def looking_up(turns: int):
    """A loop of y = table[x] over rows; the table has 10 elements."""
    table = Buffer.wrap(np.arange(10) * 10)
    body = Body(2)
    body.builder.add_kernel(gather(WIDTH, 10), [1, body.builder.add_buffer(table), 0])
    outer = Outer()
    xs, ys = np.zeros((turns, WIDTH), np.int64), np.full((turns, WIDTH), -7)
    outer.builder.add_region(
        [body.builder.build()], [outer.given(xs), outer.given(ys)],
        [(0, 0, 0, 32), (0, 1, 1, 32)], [1], count=turns,
    )  # fmt: skip
    return outer.builder.build(), xs, ys


@pytest.mark.parametrize("bad", [0, 3, 7])
def test_a_failing_check_names_the_turn_and_leaves_state(bad):
    plan, xs, ys = looking_up(8)
    xs[bad, 2] = 10
    for _ in range(2):
        with pytest.raises(IndexBoundsError, match=rf"in turn {bad} of the loop of 8 turns") as told:
            plan.execute()
        assert told.value.turn == bad
        assert (ys == -7).all()
    xs[bad, 2] = 9
    plan.execute()
    np.testing.assert_array_equal(ys, xs * 10)


def test_a_failing_check_within_two_loops_names_both_turns():
    inner = ExecutionPlanBuilder()
    x, y = inner.add_port(WIDTH, dt.int64), inner.add_port(WIDTH, dt.int64)
    inner.add_kernel(gather(WIDTH, 4), [y, inner.add_buffer(Buffer.wrap(np.arange(4))), x])
    middle = ExecutionPlanBuilder()
    xs = middle.add_port(3 * WIDTH, dt.int64)
    y = middle.add_intermediate(WIDTH, dt.int64)
    middle.add_region([inner.build()], [xs, y], [(0, 0, 0, 32), (0, 1, 1)], [1], count=3)
    outer = Outer()
    rows = np.zeros((5, 3, WIDTH), np.int64)
    outer.builder.add_region(
        [middle.build()], [outer.given(rows)], [(0, xs, 0, 96)], count=5, reverse=True
    )
    plan = outer.builder.build()
    plan.execute()
    rows[4, 1, 0] = -1
    with pytest.raises(IndexBoundsError, match=r"turn 1 of the loop of 3.*turn 4 of the loop of 5"):
        plan.execute()


def test_a_failing_check_in_a_choice_names_no_turn():
    bodies = []
    for size in (4, 8):
        body = Body(2)
        table = body.builder.add_buffer(Buffer.wrap(np.arange(size)))
        body.builder.add_kernel(gather(WIDTH, size), [1, table, 0])
        bodies.append(body.builder.build())
    outer = Outer()
    x, which = np.full(WIDTH, 5), np.zeros(1, np.int64)
    y = np.zeros(WIDTH, np.int64)
    buffers = [outer.given(x), outer.given(y), outer.given(which)]
    ports = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1)]
    outer.builder.add_region(bodies, buffers, ports, [1], choice_slot=2)
    plan = outer.builder.build()
    with pytest.raises(IndexBoundsError) as told:
        plan.execute()
    assert told.value.turn is None
    assert "turn" not in str(told.value)
    which[0] = 1
    plan.execute()
    assert y.tolist() == [5] * WIDTH


def test_custom_functions_in_a_loop_see_what_their_ports_are_bound_to():
    body = Body(1)
    number = body.builder.add_port(1, dt.int64)

    def function(row, turn):
        assert not turn.flags.writeable
        if row[0] == 13:
            raise ValueError("unlucky")
        row += turn

    body.builder.add_custom(function, [0, number], [0])
    outer = Outer()
    xs = np.zeros((6, WIDTH), np.int64)
    outer.builder.add_region(
        [body.builder.build()], [outer.given(xs)], [(0, 0, 0, 32), (0, number, -1)], [0], count=6
    )
    plan = outer.builder.build()
    plan.execute()
    np.testing.assert_array_equal(xs, np.arange(6)[:, None].repeat(WIDTH, 1))
    before = xs.copy()
    xs[4, 0] = before[4, 0] = 13
    with pytest.raises(CustomFunctionError, match=r"in turn 4 of the loop.*unlucky") as told:
        plan.execute()
    assert told.value.turn == 4
    assert isinstance(told.value.__cause__, ValueError)
    np.testing.assert_array_equal(xs, before)


def test_an_array_that_a_function_keeps_keeps_the_plan():
    body, kept = Body(1), []
    body.builder.add_custom(kept.append, [0], [0])
    outer = Outer()
    buffer = outer.builder.add_intermediate(WIDTH, dt.int64)
    outer.builder.add_kernel(fill(3, WIDTH), [buffer])
    outer.builder.add_region([body.builder.build()], [buffer], [(0, 0, 0)], [0], count=2)
    plan = outer.builder.build()
    plan.execute()
    gone = weakref.ref(plan)
    del plan
    gc.collect()
    assert gone() is not None
    assert kept[1].tolist() == [3] * WIDTH
    kept.clear()
    gc.collect()
    assert gone() is None


def test_functions_in_bodies_cannot_run_the_plan_again():
    body, found = Body(1), []
    outer = Outer()

    def function(_):
        try:
            plan.execute()
        except PlanBusyError as error:
            found.append(error)

    body.builder.add_custom(function, [0])
    state = outer.given(np.zeros(WIDTH, np.int64))
    outer.builder.add_region([body.builder.build()], [state], [(0, 0, 0)], count=2)
    plan = outer.builder.build()
    plan.execute()
    assert len(found) == 2


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
sys.path.insert(0, {tests!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from support.plan_kernels import add
from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.runtime import ExecutionPlanBuilder

def loop(body, ports, outer, turns):
    outer.add_region([body], range(len(ports)), [(0, p, i) for i, p in enumerate(ports)],
                     [0], count=turns)

inner = ExecutionPlanBuilder()
inner.add_port(16, dt.int64); inner.add_port(16, dt.int64)
inner.add_kernel(add(16), [0, 0, 1])
body = inner.build()
for turns in {turns}:
    middle = ExecutionPlanBuilder()
    if turns == {turns}[-1]:
        total = middle.add_intermediate(16, dt.int64)
        xs = middle.add_buffer(Buffer.wrap(np.ones(16, np.int64)))
        state = np.zeros(16, np.int64)
        middle.add_copy(total, xs)
    else:
        total, xs = middle.add_port(16, dt.int64), middle.add_port(16, dt.int64)
    loop(body, [0, 1], middle, turns)
    if turns == {turns}[-1]:
        middle.add_copy(middle.add_buffer(Buffer.wrap(state)), total)
    body = middle.build()
sent = []
def send():
    time.sleep(0.2)
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=send).start()
try:
    body.execute()
except KeyboardInterrupt:
    print(time.perf_counter() - sent[0], int(state.sum()))
"""


@pytest.mark.parametrize("turns", [[1 << 40], [100, 1 << 30], [3, 5, 1 << 34]])
def test_ctrl_c_ends_a_long_loop_and_leaves_state(turns):
    from pathlib import Path

    text = INTERRUPTED.format(tests=str(Path(__file__).parents[1]), turns=turns)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True
    )
    seconds, total = done.stdout.split()
    assert float(seconds) < 1.0  # 0.1, on a machine that does nothing else
    assert int(total) == 0


# ---- Threads, copies, profiles


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
    (profile,) = plan.execute_profiled()
    np.testing.assert_array_equal(ys, start + np.cumsum(xs, axis=0))
    assert (profile.runs, profile.region, profile.chunks) == (12, 0, 1)
    assert 0 < profile.elapsed < 1
    (again,) = plan.execute_profiled()
    assert again.runs == 12
    raw = plan.execute_profiled_raw()
    (_, whole, _, _, runs), *body = raw
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
    assert "  loop of 4 turns (op 0): 3, 2 <- 1, 0" in text
    assert "\n      kernel 'add' (op 0): 0 <- 0, 1" in text
    plan, _, _ = chooser(2)
    assert "choice among 2 (op 0): 0 <- 1" in plan.explain()
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
    outer.builder.add_region([body.builder.build()], [outer.given(state)], [(0, 0, 0)], [0], count=3)
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


# ---- What is refused


def refused(match: str, bindings=None, *, body=None, outputs=(0,), **options):
    outer = Outer()
    buffers = [outer.numbers(*range(8)), outer.numbers(*range(8))]
    if body is None:
        body = Body(2)
        body.add(0, 0, 1)
        body = body.builder.build()
    bindings = [(0, 0, 0), (0, 1, 1)] if bindings is None else bindings
    with pytest.raises(PlanBuildError, match=match):
        outer.builder.add_region([body], buffers, bindings, outputs, **options)
        outer.builder.build()


@pytest.mark.parametrize(
    ("match", "bindings", "options"),
    [
        ("port 1 is bound to nothing", [(0, 0, 0)], {}),
        ("buffer 0 is no port, or comes twice", [(0, 0, 0), (0, 0, 1)], {}),
        ("buffer 7 is no port", [(0, 7, 0)], {}),
        ("bindings: 5 is neither", [(0, 0, 5), (0, 1, 1)], {}),
        ("leaves the 64 bytes of slot 0", [(0, 0, 0, 32), (0, 1, 1)], {"count": 3}),
        ("leaves the 64 bytes of slot 1", [(0, 0, 0), (0, 1, 1, -8)], {"count": 2}),
        ("not aligned", [(0, 0, 0, 4), (0, 1, 1)], {"count": 2}),
        ("shares bytes with port 1", [(0, 0, 0), (0, 1, 0)], {}),
        ("shares bytes with port 1", [(0, 0, 0, 32), (0, 1, 0)], {"count": 2}),
        ("count: expected at least 0", None, {"count": -1}),
        ("output_indices: slot 0 is written", None, {"outputs": ()}),
        ("output_indices: 2 is no position", None, {"outputs": (2,)}),
        ("copies: 65 bytes", None, {"copies": ((0, 1, 65),)}),
        ("copies: 3 is no position", None, {"copies": ((0, 3, 8),)}),
        ("condition_slot: expected a buffer of bool", None, {"condition_slot": 1}),
        ("count_slot: 2 is neither", None, {"count_slot": 2}),
        ("choice_slot is 0 and there are 1 bodies", None, {"choice_slot": 0}),
        ("the number of the turn is 1 int64", [(0, 0, 0), (0, 1, -1)], {}),
    ],
)
def test_what_does_not_fit_is_named(match, bindings, options):
    refused(match, bindings, **options)


def test_bodies_with_variables_or_state_are_refused():
    body = Body(2)
    body.builder.add_kernel(plan_kernels.add_n(Variable("n", 0, 5), WIDTH), [0, 1])
    refused("variables n", body=body.builder.build())
    body = Body(2)
    state = body.builder.add_buffer(Buffer.wrap(np.zeros(WIDTH, np.int64)))
    body.scale(state, 0, 2)
    refused("given to it", body=body.builder.build())


def test_ports_that_never_meet_in_a_turn_may_share_a_buffer():
    """y[i + 1] = 2 * y[i], along one buffer."""
    body = Body(2)
    body.scale(1, 0, 2)
    outer = Outer()
    row = np.zeros((5, WIDTH), np.int64)
    row[0] = 1
    whole = outer.given(row)
    later = outer.builder.add_view(whole, 32, 4 * WIDTH)
    outer.builder.add_region(
        [body.builder.build()], [whole, later], [(0, 0, 0, 32), (0, 1, 1, 32)], [1], count=4
    )
    outer.builder.build().execute()
    np.testing.assert_array_equal(row, (2 ** np.arange(5))[:, None].repeat(WIDTH, 1))
