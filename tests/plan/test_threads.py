"""Plans and threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from support import plan_kernels
from support.patience import PATIENCE
from support.plan_kernels import Chain

import kernelrt as krt
from kernelrt.ir import Variable

N = Variable("n", 1, 16)


def together(*functions) -> None:
    """Run functions at once; whatever one of them raises is raised here."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(functions))

    def call(function):
        barrier.wait()
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=call, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_two_threads_on_one_plan_take_turns():
    chain = Chain(np.zeros(16))
    inside: list[int] = []
    most: list[int] = []

    def note(_):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.001)
        inside.pop()

    chain.builder.add_custom(note, [0])
    plan = chain.build()
    together(*[lambda: [plan.execute() for _ in range(20)]] * 4)
    assert most == [1] * 80


def test_setting_variables_and_running_is_one_turn():
    chain = Chain(np.arange(16))
    a, b = chain.scratch(), chain.scratch()
    chain.builder.add_kernel(plan_kernels.add_n(Variable("m", 0, 1000), 16), [a, 0])
    chain.builder.add_kernel(plan_kernels.add_n(Variable("m", 0, 1000), 16), [b, 0])
    wrong = []
    chain.builder.add_custom(lambda x, y: wrong.append(1) if (x != y).any() else None, [a, b])
    plan = chain.build()

    def setter(start: int):
        return lambda: [plan.execute_with_vars(m=start + i) for i in range(300)]

    together(setter(0), setter(400), lambda: [plan.execute() for _ in range(300)])
    assert not wrong


def test_distinct_plans_run_at_once():
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def make():
        chain = Chain(np.zeros(16))
        chain.builder.add_custom(lambda _: barrier.wait(), [0])
        return chain.build()

    first, second = make(), make()
    together(first.execute, second.execute)


def test_a_replica_runs_beside_its_original():
    barrier = threading.Barrier(2, timeout=PATIENCE)
    chain = Chain(np.zeros(16))
    chain.builder.add_custom(lambda _: barrier.wait(), [0])
    plan = chain.build()
    together(plan.execute, plan.replicate().execute)


def test_a_plan_made_in_one_thread_runs_in_another():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 2)
    plan = chain.build(1)
    together(plan.execute)
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 2)


def test_release_waits_for_a_run_in_another_thread():
    chain = Chain(np.zeros(16))
    started, finished = threading.Event(), []

    def slow(_):
        started.set()
        time.sleep(0.1)
        finished.append(1)

    chain.builder.add_custom(slow, [0])
    plan = chain.build()
    thread = threading.Thread(target=plan.execute)
    thread.start()
    started.wait()
    plan.release_all_buffers()
    assert finished == [1]
    thread.join()


@pytest.mark.parametrize(("rows", "chunks"), [(1, 1), (512, 8)])
def test_results_do_not_depend_on_the_number_of_threads(rows, chunks):
    x = np.random.default_rng(0).standard_normal((rows, 512)).astype(np.float32)
    before = krt.get_num_threads()
    outs = []
    try:
        for threads in (1, 2, 4):
            krt.set_num_threads(threads)
            t = krt.tensor(x)
            plan = krt.prepare((t * 1.7).exp().sum(1) + t @ t.sin().transpose(0, 1))
            for _ in range(3):
                plan.execute()
                outs.append(plan.output_buffer.numpy().tobytes())
            assert max(p.chunks for p in plan.execute_profiled()) >= chunks
    finally:
        krt.set_num_threads(before)
    assert set(outs) == {outs[0]}


def test_the_number_of_threads_for_a_block():
    before = krt.get_num_threads()
    with krt.num_threads(1):
        assert krt.get_num_threads() == 1
    assert krt.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), krt.num_threads(1):
        1 / 0  # noqa: B018
    assert krt.get_num_threads() == before
    with pytest.raises(krt.ShapeError), krt.num_threads(0):
        pass


def test_a_plan_may_be_held_to_one_thread():
    x = krt.ones(300, 300)
    plan = krt.prepare(x @ x, threads=1)
    plan.execute()
    assert {p.worker for p in plan.execute_profiled()} == {0}


@pytest.mark.parametrize("kilobytes", [64, 256, 1024])
def test_kernels_with_arrays_on_a_thread_with_a_small_stack(kilobytes):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((256, 2048)).astype(np.float32)
    b = rng.standard_normal((2048, 2048)).astype(np.float32)
    want = np.maximum(a.astype(np.float64) @ b, 0) @ b
    found = []

    def work():
        x, y = krt.from_numpy(a), krt.from_numpy(b)
        step = krt.jit(lambda x, y: (x @ y).relu() @ y)
        found.extend((step(x, y).numpy(), step(x, y).numpy(), ((x @ y).relu() @ y).numpy()))
        plan = step.plan(x, y)
        assert max(kernel.stack_bytes for kernel in plan.kernels) > 64 << 10
        profile = plan.execute_profiled()
        assert sum(p.elapsed for p in profile) > 0
        found.append(plan.output_buffer.raw().view(np.float32).reshape(want.shape).copy())

    before = threading.stack_size(kilobytes << 10)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert len(found) == 4
    for got in found:
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
        np.testing.assert_array_equal(got, found[0])
