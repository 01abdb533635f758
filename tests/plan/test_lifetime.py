"""Releasing, replicating and rebinding; what a plan keeps alive and what it lets go."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import Chain

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import DTypeError, PlanBuildError, PlanReleasedError, ShapeError
from kernelrt.ir import Variable
from kernelrt.runtime import ExecutionPlanBuilder

N = Variable("n", 1, 16)


@pytest.fixture
def chain() -> Chain:
    return Chain(np.arange(16), np.zeros(16))


@pytest.fixture
def plan(chain):
    """0 doubled into 2 (of the plan's own), that into 1, and into the output 3."""
    scratch, out = chain.scratch(), chain.scratch()
    chain.scale(scratch, 0, 2)
    chain.scale(1, scratch, 2)
    chain.scale(out, scratch, 3)
    return chain.build(out)


# ---- release


def test_release_intermediate_buffers_keeps_the_outputs(plan):
    plan.execute()
    ids = [b.id for b in plan.buffers]
    dropped = []
    assert plan.release_intermediate_buffers(dropped.append) == 3
    assert dropped == ids[:3]
    np.testing.assert_array_equal(plan.output_buffer.numpy(), np.arange(16) * 6)
    assert plan.buffer_at(2) is None
    assert plan.output_buffers == (plan.output_buffer,)


def test_release_all_buffers_drops_the_outputs_too(plan):
    plan.execute()
    ids = [b.id for b in plan.buffers]
    dropped = []
    assert plan.release_all_buffers(dropped.append) == 4
    assert dropped == ids
    assert plan.output_buffer is None
    assert plan.output_buffers == ()


def test_release_functions_need_no_callback_and_may_be_repeated(plan):
    assert plan.release_intermediate_buffers() == 3
    assert plan.release_intermediate_buffers() == 0
    assert plan.release_all_buffers() == 1
    assert plan.release_all_buffers() == 0


@pytest.mark.parametrize("how", ["release", "release_intermediate_buffers", "release_all_buffers"])
def test_a_released_plan_refuses(plan, how):
    getattr(plan, how)()
    assert plan.released
    for use in (
        plan.execute,
        plan.execute_profiled,
        lambda: plan.execute_with_vars({}),
        lambda: plan.execute_with_vars_profiled({}),
        plan.replicate,
        lambda: plan.rebind(0, Buffer(16, dt.int64)),
    ):
        with pytest.raises(PlanReleasedError):
            use()


def test_a_released_plan_still_describes_itself(plan):
    plan.release_all_buffers()
    assert "released" in repr(plan)
    assert "wave 0" in plan.explain()
    with pytest.raises(PlanReleasedError):
        _ = plan.buffers
    with pytest.raises(PlanReleasedError):
        _ = plan.prepared_kernels[0].buffer_ptrs


def test_buffers_given_to_a_plan_cannot_be_freed_under_it():
    builder = ExecutionPlanBuilder()
    out = Buffer(16, dt.int64)
    builder.add_kernel(plan_kernels.fill(3, 16), [builder.add_buffer(out)])
    plan = builder.build()
    with pytest.raises(BufferError, match="plans"):
        out.release()
    plan.execute()
    plan.release_all_buffers()
    out.release()


def test_a_plan_keeps_given_arrays_alive():
    builder = ExecutionPlanBuilder()
    array = np.zeros(16, np.int64)
    builder.add_kernel(plan_kernels.fill(3, 16), [builder.add_buffer(Buffer.wrap(array))])
    plan = builder.build()
    view = array[:]
    del array, builder
    gc.collect()
    plan.execute()
    np.testing.assert_array_equal(view, 3)


def test_a_plan_that_goes_lets_go_of_buffers_and_kernels():
    chain = Chain(np.arange(16))
    scratch = chain.scratch()
    kernel = plan_kernels.kernel("once", "%r = add i64 %x1, 77", 1, count=16)
    chain.builder.add_kernel(kernel, [scratch, 0])
    plan = chain.build()
    storage = weakref.ref(plan.buffers[scratch].storage)
    code = weakref.ref(kernel.program.library)
    del plan, chain, kernel
    gc.collect()
    assert storage() is None
    assert code() is None


# ---- replicate


def test_a_replica_shares_code_and_what_is_only_read(plan, chain):
    twin = plan.replicate()
    assert twin.kernels == plan.kernels
    assert twin.buffers[0] is plan.buffers[0]


def test_a_replica_owns_what_it_writes(plan, chain):
    plan.execute()
    twin = plan.replicate()
    for index in (1, 2, 3):
        assert twin.buffers[index].address != plan.buffers[index].address
    chain.arrays[0][:] = 1
    twin.execute()
    np.testing.assert_array_equal(twin.output_buffer.numpy(), 6)
    np.testing.assert_array_equal(plan.output_buffer.numpy(), np.arange(16) * 6)
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 4)


def test_a_replica_begins_with_the_present_state():
    chain = Chain(np.arange(16))
    chain.add(0, 0, 0)
    plan = chain.build(0)
    plan.execute()
    twin = plan.replicate()
    twin.execute()
    plan.execute()
    plan.execute()
    np.testing.assert_array_equal(twin.output_buffer.numpy(), np.arange(16) * 4)
    np.testing.assert_array_equal(plan.output_buffer.numpy(), np.arange(16) * 8)


def test_a_replica_has_the_present_values_of_variables():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_kernel(plan_kernels.square_to(N, split=True), [1, 0])
    plan = chain.build(1)
    plan.execute_with_vars(n=3)
    twin = plan.replicate()
    assert twin.values == {"n": 3}
    assert twin.chunks(0) == 1
    twin.execute_with_vars(n=9)
    assert plan.values == {"n": 3}
    assert twin.output_buffer.numpy()[:9].tolist() == [i * i for i in range(9)]


def test_buffers_that_overlap_still_do_in_a_replica():
    array = np.arange(24)
    builder = ExecutionPlanBuilder()
    a, b = (builder.add_buffer(Buffer.wrap(array[s : s + 16])) for s in (0, 8))
    builder.add_kernel(plan_kernels.scale(2, 16), [a, a])
    builder.add_kernel(plan_kernels.scale(3, 16), [b, b])
    twin = builder.build().replicate()
    assert twin.buffers[b].address - twin.buffers[a].address == 64
    twin.execute()
    np.testing.assert_array_equal(array, np.arange(24))
    expected = np.arange(24)
    expected[:16] *= 2
    expected[8:] *= 3
    np.testing.assert_array_equal(twin.buffers[a].numpy(), expected[:16])
    np.testing.assert_array_equal(twin.buffers[b].numpy(), expected[8:])


def test_views_of_state_follow_into_a_replica():
    chain = Chain(np.arange(16))
    part = chain.builder.add_view(0, 64, 8)
    chain.builder.add_kernel(plan_kernels.fill(5, 8), [part])
    twin = chain.build(0).replicate()
    twin.execute()
    assert twin.output_buffer.numpy().tolist() == [*range(8), *[5] * 8]
    np.testing.assert_array_equal(chain.arrays[0], np.arange(16))


# ---- rebind


def test_rebind_exchanges_an_input(plan, chain):
    plan.rebind(0, Buffer.wrap(np.full(16, 5)))
    plan.execute()
    np.testing.assert_array_equal(plan.output_buffer.numpy(), 30)


def test_rebind_exchanges_an_output(plan, chain):
    target = Buffer(16, dt.int64)
    plan.rebind(1, target)
    plan.execute()
    np.testing.assert_array_equal(target.numpy(), np.arange(16) * 4)
    assert not chain.arrays[1].any()


def test_rebind_moves_views_along():
    chain = Chain(np.arange(16), np.zeros(16))
    part = chain.builder.add_view(0, 64, 8)
    chain.builder.add_copy(1, part)
    plan = chain.build(1)
    plan.rebind(0, Buffer.wrap(np.arange(16) + 100))
    plan.execute()
    assert chain.arrays[1][:8].tolist() == list(range(108, 116))


def test_a_replica_has_the_buffers_of_the_last_rebind():
    chain = Chain(np.arange(16), np.zeros(16))
    part = chain.builder.add_view(0, 64, 8)
    chain.builder.add_copy(1, part)
    plan = chain.build(1)
    plan.rebind(0, Buffer.wrap(np.arange(16) + 100))
    twin = plan.replicate()
    twin.execute()
    assert twin.output_buffer.numpy()[:8].tolist() == list(range(108, 116))


def test_rebind_leaves_the_builder_alone():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 2)
    chain.build(1).rebind(0, Buffer.wrap(np.arange(16) + 100))
    chain.build(1).execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 2)


def test_rebind_reaches_custom_functions():
    chain = Chain(np.arange(16))
    seen = []
    chain.builder.add_custom(lambda x: seen.append(int(x[0])), [0])
    plan = chain.build()
    plan.rebind(0, Buffer.wrap(np.full(16, 8)))
    plan.execute()
    assert seen == [8]


def test_rebind_keeps_the_new_buffer_and_lets_the_old_one_go(plan):
    first, second = Buffer(16, dt.int64), Buffer(16, dt.int64)
    plan.rebind(0, first)
    with pytest.raises(BufferError):
        first.release()
    plan.rebind(0, second)
    first.release()
    with pytest.raises(BufferError):
        second.release()


def test_rebind_checks_size_type_and_place(plan):
    with pytest.raises(ShapeError, match="expected 16 elements, not 8"):
        plan.rebind(0, Buffer(8, dt.int64))
    with pytest.raises(DTypeError, match="int64"):
        plan.rebind(0, Buffer(16, dt.float64))
    with pytest.raises(PlanBuildError, match="buffer 2, which is a view, a port, or memory"):
        plan.rebind(2, Buffer(16, dt.int64))
    with pytest.raises(PlanBuildError, match="no buffer 9"):
        plan.rebind(9, Buffer(16, dt.int64))


def test_rebind_refuses_read_only_memory_for_what_is_written(plan):
    array = np.zeros(16, np.int64)
    array.flags.writeable = False
    plan.rebind(0, Buffer.wrap(array))
    with pytest.raises(PlanBuildError, match="read-only"):
        plan.rebind(1, Buffer.wrap(array))


def test_rebind_refuses_bytes_that_would_change_the_order(plan, chain):
    with pytest.raises(PlanBuildError, match="it overlaps buffer 1"):
        plan.rebind(0, Buffer.wrap(chain.arrays[1]))
    plan.execute()


def test_rebind_may_go_back_to_an_overlap_that_was_there():
    array = np.arange(24)
    builder = ExecutionPlanBuilder()
    a, b = (builder.add_buffer(Buffer.wrap(array[s : s + 16])) for s in (0, 8))
    builder.add_kernel(plan_kernels.scale(2, 16), [a, a])
    builder.add_kernel(plan_kernels.scale(3, 16), [b, b])
    plan = builder.build()
    plan.rebind(a, Buffer.wrap(np.ones(16, np.int64)))
    with pytest.raises(PlanBuildError, match="it overlaps buffer 1"):  # other bytes of it than then
        plan.rebind(a, Buffer.wrap(array[4:20]))
    plan.rebind(a, Buffer.wrap(array[:16]))
    plan.execute()
    expected = np.arange(24)
    expected[:16] *= 2
    expected[8:] *= 3
    np.testing.assert_array_equal(array, expected)


def test_sites_tell_where_the_table_points_into_a_buffer():
    chain = Chain(np.arange(16), np.zeros(16))
    part = chain.builder.add_view(0, 64, 8)
    chain.add(1, 0, 0)
    chain.builder.add_copy(1, part)
    plan = chain.build(1)
    assert plan.sites(0) == ((1, 1, 0), (1, 2, 0), (2, 1, 64))
    base = chain.arrays[0].ctypes.data
    assert all(plan.pointer(op, slot) == base + offset for op, slot, offset in plan.sites(0))


def test_a_buffer_that_python_sees_has_no_sites():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 2)
    chain.builder.add_custom(lambda _: None, [0])
    plan = chain.build(1)
    assert plan.sites(0) == ()
    assert plan.sites(1) == ((1, 0, 0),)
