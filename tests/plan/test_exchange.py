"""Other code takes the place of a plan's kernels while the plan stays what it is."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import PlanBuildError, PlanReleasedError
from kernelrt.ir import Variable
from kernelrt.runtime.kernel_cache import build

SIZE = 40_000


def variants_of(kernel):
    """A split and an unsplit way to write a kernel that adds nothing up."""
    from kernelrt.device.registry import opened

    found = {}
    for v in opened("CPU").renderer.variants(kernel.ast):
        [made] = build([(kernel.ast, v.text)])
        if made.is_split:
            chunks = made.global_size[0]
            found.setdefault("split" if chunks != 2 else "in two", made)
        else:
            found.setdefault("whole", made)
        if len(found) == 3:
            break
    return found


@pytest.fixture
def plan():
    x = krt.tensor(np.arange(SIZE, dtype=np.float32))
    return krt.prepare(x * 3 + 1, x.square())


def test_a_plan_goes_on_with_other_code(plan):
    ops, buffers, text = plan.prepared_ops, plan.buffers, plan.explain().splitlines()[0]
    plan.execute()
    expected = [b.copyout() for b in plan.output_buffers]
    first = plan.kernels[0]
    found = variants_of(first)
    assert set(found) == {"whole", "split", "in two"}
    for kernel in (*found.values(), first, *reversed(found.values())):
        changes = plan.exchange({plan.kernels[0]: kernel})
        assert changes >= 1
        assert plan.kernels[0] is kernel
        for output in plan.output_buffers:
            output.raw()[...] = 0
        plan.execute()
        for output, values in zip(plan.output_buffers, expected, strict=True):
            np.testing.assert_array_equal(output.copyout(), values)
        assert plan.execute_profiled()[0].kernel is kernel
        assert plan.execute_profiled()[0].chunks == kernel.global_size[0]
    assert plan.prepared_ops == ops
    assert plan.buffers == buffers
    assert plan.explain().splitlines()[0] == text


def test_replicas_take_what_the_plan_runs_and_keep_it(plan):
    first = plan.kernels[0]
    found = variants_of(first)
    plan.exchange({first: found["split"]})
    twin = plan.replicate()
    assert twin.kernels[0] is found["split"]
    plan.exchange({found["split"]: found["whole"]})
    assert twin.kernels[0] is found["split"]
    assert twin.replicate().kernels[0] is found["split"]
    twin.execute()
    plan.execute()
    for a, b in zip(plan.output_buffers, twin.output_buffers, strict=True):
        np.testing.assert_array_equal(a.copyout(), b.copyout())


def test_a_replica_runs_on_as_many_threads(plan):
    assert plan.replicate().max_threads is None
    plan.set_threads(1)
    assert plan.replicate().max_threads == 1


def test_chunks_follow_the_variables_of_the_new_code():
    n = Variable("n", 1, SIZE)

    def function(x):
        return x * 3 + 1

    jitted = krt.jit(function, dynamic={"x": {0: n}})
    x = np.arange(SIZE, dtype=np.float32)
    plan = jitted.plan(x)
    found = variants_of(plan.kernels[0])
    for kernel in (*found.values(), *reversed(found.values())):
        plan.exchange({plan.kernels[0]: kernel})
        for size in (1, 17, 20_000, SIZE, 3):
            np.testing.assert_array_equal(jitted(x[:size]).numpy(), x[:size] * 3 + 1)
        plan.execute_with_vars(n=5)
        plan.exchange({kernel: kernel})
        assert plan.values == {"n": 5}


def test_what_is_skipped_stays_so(plan):
    found = variants_of(plan.kernels[0])
    plan.execute()
    for output in plan.output_buffers:
        output.raw()[...] = 7
    plan.set_chunks(0, 0)
    plan.exchange({plan.kernels[0]: found["split"]})
    assert plan.chunks(0) == 0
    plan.execute()
    assert all((output.copyout() == 7).all() for output in plan.output_buffers)


def test_another_computation_is_refused_and_changes_nothing(plan):
    other = krt.prepare(krt.tensor(np.ones(5, np.float32)).exp()).kernels[0]
    before = plan.kernels
    with pytest.raises(PlanBuildError, match="AST and device must be the same"):
        plan.exchange({plan.kernels[0]: other})
    assert plan.kernels == before
    plan.execute()


def test_kernels_that_the_plan_does_not_launch_are_left_out(plan):
    found = variants_of(plan.kernels[0])
    assert plan.exchange({found["split"]: found["whole"]}) == 0
    assert plan.exchange({}) == 0


def test_a_released_plan_says_so(plan):
    kernel = plan.kernels[0]
    found = variants_of(kernel)
    plan.release_all_buffers()
    with pytest.raises(PlanReleasedError):
        plan.exchange({kernel: found["split"]})


def test_other_threads_run_the_plan_meanwhile(plan):
    found = list(variants_of(plan.kernels[0]).values())
    plan.execute()
    expected = [b.copyout() for b in plan.output_buffers]
    stop = threading.Event()
    errors = []

    def work():
        while not stop.is_set():
            try:
                plan.execute()
            except BaseException as error:  # noqa: BLE001
                errors.append(error)
                return

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for turn in range(60):
        plan.exchange({plan.kernels[0]: found[turn % len(found)]})
    stop.set()
    for t in threads:
        t.join()
    assert not errors
    for output, values in zip(plan.output_buffers, expected, strict=True):
        np.testing.assert_array_equal(output.copyout(), values)
