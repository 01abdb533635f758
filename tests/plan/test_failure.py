"""A call that raises leaves every buffer given to the plan as it was, and the plan usable."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import Chain

from kernelrt.device.buffer import Buffer
from kernelrt.errors import CustomFunctionError, IndexBoundsError, KernelrtError, PlanBusyError


class Fuse:
    """A custom function that raises while it is lit."""

    def __init__(self) -> None:
        self.lit = True

    def __call__(self, *_: np.ndarray) -> None:
        if self.lit:
            raise ValueError("burnt")


def gather_chain(indices: list[int]) -> Chain:
    return Chain(np.zeros(16), np.arange(16) * 10, np.array(indices + [0] * (16 - len(indices))))


def test_an_index_out_of_range_raises_and_names_the_kernel():
    chain = gather_chain([3, 99])
    op = chain.builder.add_kernel(plan_kernels.gather(16, 16), [0, 1, 2])
    plan = chain.build(0)
    with pytest.raises(IndexBoundsError, match=r"kernel 'gather' \(op 0\)") as caught:
        plan.execute()
    assert plan.prepared_ops[caught.value.op].id == op
    assert not chain.arrays[0].any()
    chain.arrays[2][1] = 2
    plan.execute()
    assert chain.arrays[0][:3].tolist() == [30, 20, 0]


def test_an_exception_of_a_custom_function_is_the_cause():
    chain = Chain(np.zeros(16))
    chain.builder.add_custom(Fuse(), [0])
    plan = chain.build()
    with pytest.raises(CustomFunctionError, match=r"function 'Fuse' \(op 0\).*burnt") as caught:
        plan.execute()
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_can_fail_runs_before_the_first_lasting_write():
    chain = Chain(np.arange(16), np.zeros(16))
    fuse = Fuse()
    chain.scale(1, 0, 2)
    chain.builder.add_custom(fuse, [0])
    plan = chain.build(1)
    assert [op.id for op in plan.prepared_ops] == [1, 0]
    with pytest.raises(CustomFunctionError):
        plan.execute()
    assert not chain.arrays[1].any()
    fuse.lit = False
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 2)


def test_a_lasting_write_waits_for_whatever_may_fail():
    chain = Chain(np.zeros(16), np.arange(16), np.zeros(16), np.zeros(16))
    picked = chain.scratch()
    check = chain.builder.add_kernel(plan_kernels.gather(16, 16), [picked, 1, 2])
    commit = chain.scale(3, 1, 2)
    chain.add(0, picked, picked)
    plan = chain.build(0)
    waits = {op.id: op.dependencies for op in plan.prepared_ops}
    assert waits[commit] == (check,)


def test_a_write_that_a_later_failure_depends_on_is_undone():
    chain = Chain(np.arange(16), np.arange(16))
    fuse = Fuse()
    chain.scale(1, 1, 2)
    chain.builder.add_custom(fuse, [1])
    chain.add(1, 1, 0)
    plan = chain.build(1)
    before = chain.arrays[1].copy()
    for _ in range(2):
        with pytest.raises(CustomFunctionError):
            plan.execute()
        np.testing.assert_array_equal(chain.arrays[1], before)
    fuse.lit = False
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 3)


def test_a_custom_function_that_raises_half_way_leaves_its_output():
    chain = Chain(np.arange(16))

    def spoil(x):
        x[:8] = -1
        raise ValueError("half way")

    chain.builder.add_custom(spoil, [0], [0])
    plan = chain.build(0)
    with pytest.raises(CustomFunctionError):
        plan.execute()
    np.testing.assert_array_equal(chain.arrays[0], np.arange(16))


def test_overlapping_buffers_are_protected_together():
    array = np.arange(24)
    chain = Chain()
    a, b = (chain.builder.add_buffer(Buffer.wrap(array[s : s + 16])) for s in (0, 8))
    fuse = Fuse()
    chain.scale(a, a, 2)
    chain.builder.add_custom(fuse, [b])
    chain.scale(b, b, 3)
    plan = chain.build(a)
    with pytest.raises(CustomFunctionError):
        plan.execute()
    np.testing.assert_array_equal(array, np.arange(24))
    fuse.lit = False
    plan.execute()
    expected = np.arange(24)
    expected[:16] *= 2
    expected[8:] *= 3
    np.testing.assert_array_equal(array, expected)


def test_an_update_that_checks_its_own_indices_is_all_or_nothing():
    chain = gather_chain([1, 2, 50])
    chain.arrays[0][:] = 7
    chain.builder.add_kernel(plan_kernels.gather(16, 16), [0, 1, 2])
    plan = chain.build(0)
    with pytest.raises(IndexBoundsError):
        plan.execute()
    np.testing.assert_array_equal(chain.arrays[0], 7)


def test_scratch_is_not_protected_and_costs_no_copy():
    chain = Chain(np.arange(16))
    scratch = chain.builder.add_buffer(Buffer.wrap(np.zeros(16, np.int64)), scratch=True)
    chain.scale(scratch, 0, 2)
    chain.builder.add_custom(Fuse(), [scratch])
    plan = chain.build(scratch)
    assert plan.n_ops == 2
    with pytest.raises(CustomFunctionError):
        plan.execute()
    np.testing.assert_array_equal(plan.buffers[scratch].numpy(), np.arange(16) * 2)


def test_without_anything_that_can_fail_nothing_is_copied():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 2)
    chain.scale(1, 1, 2)
    assert chain.build(1).n_ops == 2


def test_reentry_from_a_custom_function_raises():
    chain = Chain(np.zeros(16))
    caught = []

    def again(_):
        other = Buffer.wrap(np.zeros(16, np.int64))
        for name, arguments in (
            ("execute", ()),
            ("execute_with_vars", ()),
            ("execute_profiled", ()),
            ("rebind", (0, other)),
            ("replicate", ()),
            ("release", ()),
        ):
            try:
                getattr(plan, name)(*arguments)
            except PlanBusyError as error:
                caught.append(error)

    chain.builder.add_custom(again, [0])
    plan = chain.build()
    plan.execute()
    assert len(caught) == 6
    plan.execute()


def test_another_plan_may_run_inside_a_custom_function():
    inner = Chain(np.arange(16), np.zeros(16))
    inner.scale(1, 0, 2)
    inside = inner.build(1)
    chain = Chain(np.zeros(16))
    chain.builder.add_custom(lambda _: inside.execute(), [0])
    chain.build().execute()
    np.testing.assert_array_equal(inner.arrays[1], np.arange(16) * 2)


def test_a_signal_before_the_first_lasting_write_interrupts_and_leaves_all_as_it_was():
    chain = Chain(np.arange(16), np.zeros(16))

    chain.builder.add_custom(lambda _: signal.raise_signal(signal.SIGALRM), [0])
    chain.scale(1, 0, 2)
    plan = chain.build(1)

    def alarm(*_):
        raise TimeoutError("enough")

    old = signal.signal(signal.SIGALRM, alarm)
    try:
        with pytest.raises((TimeoutError, KernelrtError)):
            plan.execute()
    finally:
        signal.signal(signal.SIGALRM, old)
    assert not chain.arrays[1].any()


def test_a_failed_build_leaves_the_builder_as_it_was():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 2)
    ops = list(chain.builder._ops)
    chain.builder.add_copy(1, 0, 999)
    with pytest.raises(KernelrtError):
        chain.build(1)
    assert chain.builder._ops[:1] == ops
