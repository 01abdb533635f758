"""Where loops and choices fail or are interrupted: what is said, and that state stays."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from support.patience import PATIENCE
from support.plan_kernels import fill, gather
from support.regions import WIDTH, Body, Outer

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import (
    CustomFunctionError,
    IndexBoundsError,
    PlanBusyError,
)
from kernelrt.runtime import ExecutionPlanBuilder


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
        with pytest.raises(IndexBoundsError, match=f"in iteration {bad} of the loop of 8") as told:
            plan.execute()
        assert told.value.iteration == told.value.turn == bad
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
    match = "iteration 1 of the loop of 3.*iteration 4 of the loop of 5"
    with pytest.raises(IndexBoundsError, match=match):
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
    assert told.value.iteration is None
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
    with pytest.raises(CustomFunctionError, match=r"in iteration 4 of the loop.*unlucky") as told:
        plan.execute()
    assert told.value.iteration == 4
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
import os, signal, sys, threading
import numpy as np
sys.path.insert(0, {tests!r})
begun = threading.Event()
signal.signal(signal.SIGINT, signal.default_int_handler)
from support.patience import PATIENCE
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
        middle.add_custom(lambda _: begun.set(), [xs])
    else:
        total, xs = middle.add_port(16, dt.int64), middle.add_port(16, dt.int64)
    loop(body, [0, 1], middle, turns)
    if turns == {turns}[-1]:
        middle.add_copy(middle.add_buffer(Buffer.wrap(state)), total)
    body = middle.build()
def send():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=send).start()
try:
    body.execute()
except KeyboardInterrupt:
    print("interrupted", int(state.sum()))
"""


@pytest.mark.cases(1)
@pytest.mark.parametrize("turns", [[1 << 40], [100, 1 << 30], [3, 5, 1 << 34]])
def test_ctrl_c_ends_a_long_loop_and_leaves_state(turns):
    text = INTERRUPTED.format(tests=str(Path(__file__).parents[1]), turns=turns)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == "interrupted 0\n"


