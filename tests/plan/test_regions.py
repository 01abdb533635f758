"""Loops and choices in plans made by hand, against the same in NumPy or plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from support.plan_kernels import fill, scale
from support.regions import WIDTH, Body, Outer, chooser, doubling, running_sum, sums

from kernelrt import dtype as dt
from kernelrt.runtime import ExecutionPlanBuilder


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
@pytest.mark.parametrize(
    ("asked", "turns"), [(0, 0), (3, 3), (8, 8), (9, 8), (-2, 0), (1 << 40, 8)]
)
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


