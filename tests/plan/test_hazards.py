"""Order follows from the bytes that operations touch."""

from __future__ import annotations

import numpy as np
import pytest
from support import plan_kernels, plan_model
from support.plan_kernels import Chain
from support.plan_order import check_order

from kernelrt.device.buffer import Buffer
from kernelrt.ir import Variable
from kernelrt.runtime import ExecutionPlanBuilder


def deps(plan) -> list[tuple[int, ...]]:
    return [op.dependencies for op in plan.prepared_ops]


def test_read_after_write():
    chain = Chain(np.arange(16), np.zeros(16), np.zeros(16))
    chain.scale(1, 0, 2)
    chain.scale(2, 1, 2)
    assert deps(chain.build()) == [(), (0,)]


def test_write_after_read():
    chain = Chain(np.arange(16), np.zeros(16), np.ones(16))
    chain.scale(1, 0, 2)
    chain.scale(0, 2, 2)
    assert deps(chain.build()) == [(), (0,)]


def test_write_after_write():
    chain = Chain(np.arange(16), np.zeros(16), np.ones(16))
    chain.scale(1, 0, 2)
    chain.scale(1, 2, 2)
    assert deps(chain.build()) == [(), (0,)]


def test_reads_of_one_buffer_do_not_wait():
    chain = Chain(np.arange(16), np.zeros(16), np.ones(16))
    chain.scale(1, 0, 2)
    chain.scale(2, 0, 2)
    assert deps(chain.build()) == [(), ()]


def parts(offsets: list[tuple[int, int]]):
    """A builder with parts (first element, elements) of one storage of 64."""
    data = Buffer.wrap(np.arange(64))
    builder = ExecutionPlanBuilder()
    whole = builder.add_buffer(data)
    return data, builder, [builder.add_view(whole, 8 * start, n) for start, n in offsets]


def kernels_deps(builder) -> list[tuple[int, ...]]:
    plan = builder.build()
    index = {op.id: i for i, op in enumerate(plan.prepared_kernels)}
    return [tuple(index[d] for d in op.dependencies if d in index) for op in plan.prepared_kernels]


def test_disjoint_parts_of_one_storage_do_not_wait():
    _, builder, (a, b, c) = parts([(0, 16), (16, 16), (32, 16)])
    builder.add_kernel(plan_kernels.scale(2, 16), [a, c])
    builder.add_kernel(plan_kernels.scale(3, 16), [b, c])
    assert kernels_deps(builder) == [(), ()]


def test_parts_that_share_one_element_wait():
    data, builder, (a, b, c) = parts([(0, 16), (15, 16), (32, 16)])
    builder.add_kernel(plan_kernels.scale(2, 16), [a, c])
    builder.add_kernel(plan_kernels.scale(3, 16), [c, b])
    assert kernels_deps(builder) == [(), (0,)]
    builder.build().execute()
    expected = np.arange(64)
    expected[:16] = expected[32:48] * 2
    expected[32:48] = expected[15:31] * 3
    np.testing.assert_array_equal(data.numpy(), expected)


def test_a_partial_write_keeps_earlier_writers_of_the_rest():
    _, builder, (whole, head, tail, out) = parts([(0, 32), (0, 16), (16, 16), (32, 16)])
    builder.add_kernel(plan_kernels.fill(1, 32), [whole])
    builder.add_kernel(plan_kernels.fill(2, 16), [head])
    builder.add_kernel(plan_kernels.scale(3, 16), [out, tail])
    assert kernels_deps(builder) == [(), (0,), (0,)]


def test_wrapped_arrays_that_overlap_are_one_storage():
    array = np.arange(32)
    builder = ExecutionPlanBuilder()
    a, b = (builder.add_buffer(Buffer.wrap(array[s : s + 16])) for s in (0, 8))
    out = builder.add_buffer(Buffer.wrap(np.zeros(16, np.int64)))
    builder.add_kernel(plan_kernels.fill(7, 16), [a])
    builder.add_kernel(plan_kernels.scale(2, 16), [out, b])
    plan = builder.build()
    assert deps(plan) == [(), (0,)]
    plan.execute()
    assert plan.buffers[out].numpy().tolist() == [14] * 8 + [2 * i for i in range(16, 24)]


def test_one_buffer_given_twice_is_one_storage():
    data = Buffer.wrap(np.arange(16))
    builder = ExecutionPlanBuilder()
    a, b = builder.add_buffer(data), builder.add_buffer(data)
    builder.add_kernel(plan_kernels.scale(2, 16), [a, a])
    builder.add_kernel(plan_kernels.scale(3, 16), [b, b])
    plan = builder.build()
    assert deps(plan) == [(), (0,)]
    plan.execute()
    np.testing.assert_array_equal(data.numpy(), np.arange(16) * 6)


def test_a_kernel_may_update_in_place():
    chain = Chain(np.arange(16))
    chain.add(0, 0, 0)
    plan = chain.build(0)
    plan.execute()
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[0], np.arange(16) * 4)


def test_a_copy_waits_for_the_writer_of_the_view_it_reads():
    chain = Chain(np.arange(16), np.zeros(16))
    part = chain.builder.add_view(0, 64, 8)
    chain.scale(0, 0, 2)
    chain.builder.add_copy(1, part)
    plan = chain.build(1)
    assert plan.prepared_ops[-1].dependencies == (1,)
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], [*range(16, 32, 2)] + [0] * 8)


def test_a_copy_touches_no_more_than_its_first_bytes():
    def waits(nbytes):
        chain = Chain(np.arange(16), np.zeros(16))
        left, right = chain.builder.add_view(0, 0, 8), chain.builder.add_view(0, 64, 8)
        chain.builder.add_copy(1, 0, nbytes)
        chain.builder.add_copy(right, left)
        return chain.build(0).prepared_ops[-1].dependencies

    n = Variable("n", 1, 8)
    assert waits(64) == ()
    assert waits(72) == (2,)
    assert waits(n * 8) == ()
    assert waits((n + 1) * 8) == (2,)


def test_given_dependencies_are_kept():
    chain = Chain(np.arange(16), np.zeros(16), np.ones(16))
    chain.scale(1, 0, 2)
    chain.scale(2, 0, 2, dependencies=[0])
    assert deps(chain.build()) == [(), (0,)]


def test_a_dependency_on_a_view_holds():
    chain = Chain(np.arange(16), np.zeros(16))
    first = chain.scale(1, 0, 2)
    part = chain.builder.add_view(0, 0, 4, dependencies=[first])
    second = chain.builder.add_custom(lambda: None, [], dependencies=[1])
    plan = chain.build()
    by_id = {op.id: op for op in plan.prepared_ops}
    assert by_id[1].buffer_indices == (part, 0)
    assert by_id[1].dependencies == (first,)
    assert by_id[second].dependencies == (1,)


@pytest.mark.parametrize("reuse_memory", [True, False])
def test_intermediates_share_bytes_only_when_ordered(reuse_memory):
    chain = Chain(np.arange(16), np.zeros(16), np.zeros(16))
    a, b = chain.scratch(), chain.scratch()
    chain.scale(a, 0, 2)
    chain.scale(b, 0, 3)
    chain.scale(1, a, 1)
    chain.scale(2, b, 1)
    plan = chain.build(reuse_memory=reuse_memory)
    assert plan.memory.arena == 256
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 2)
    np.testing.assert_array_equal(chain.arrays[2], np.arange(16) * 3)


def test_views_of_an_intermediate_keep_its_bytes_taken():
    chain = Chain(np.arange(16), np.zeros(16))
    a, b = chain.scratch(), chain.scratch()
    part = chain.builder.add_view(a, 64, 8)
    chain.scale(a, 0, 2)
    chain.scale(b, 0, 5)
    chain.scale(b, b, 5)
    chain.builder.add_copy(1, part)
    plan = chain.build(1, b)
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], [*range(16, 32, 2)] + [0] * 8)


def test_the_arena_changes_no_bit():
    outs = []
    for reuse_memory in (True, False):
        chain = Chain(np.arange(16), np.zeros(16))
        values = [0]
        rng = np.random.default_rng(3)
        for _ in range(40):
            here = chain.scratch()
            a, b = (values[-1 - int(i)] for i in rng.integers(0, min(4, len(values)), 2))
            chain.add(here, a, b)
            values.append(here)
        chain.scale(1, values[-1], 1)
        plan = chain.build(1, reuse_memory=reuse_memory)
        plan.execute()
        outs.append(chain.arrays[1].copy())
    np.testing.assert_array_equal(*outs)


@pytest.mark.cases(1)
@pytest.mark.parametrize("reuse_memory", [True, False])
def test_dependencies_of_random_plans_order_all_that_meets_and_checks_before_commits(reuse_memory):
    met = held = 0
    for seed in range(250):
        case = plan_model.generate(seed)
        arrays = [np.zeros(size, np.int64) for size, _ in case.storages]
        plan = plan_model.build(case, arrays, reuse_memory).plan
        kept = [
            (a.ctypes.data, a.ctypes.data + a.nbytes)
            for a, (_, kind) in zip(arrays, case.storages, strict=True) if kind == "kept"
        ]  # fmt: skip
        pairs, writes = check_order(plan, kept)
        met, held = met + pairs, held + writes
    assert met > 1000
    assert held > 100


def test_bytes_pass_on_only_to_what_is_written_behind_in_all_its_parts():
    arrays = [np.arange(16) + n for n in range(5)]
    data = [Buffer.wrap(a.copy()) for a in arrays]
    builder = ExecutionPlanBuilder()
    a, b, c, d, out = (builder.add_buffer(x) for x in data)
    first = builder.add_intermediate(16, data[0].dtype)
    builder.add_copy(first, a)
    builder.add_copy(b, first)
    # The left half waits for that, the right half for nothing.
    second = builder.add_intermediate(16, data[0].dtype)
    builder.add_copy(builder.add_view(second, 0, 8), b, 64)
    builder.add_copy(builder.add_view(second, 64, 8), c, 64)
    builder.add_copy(out, second)
    builder.add_copy(d, second)
    builder.set_output_buffer(out)
    plan = builder.build()
    starts = [plan.buffers[i].address for i in (first, second)]
    assert abs(starts[0] - starts[1]) >= 128
    plan.execute()
    np.testing.assert_array_equal(data[4].numpy(), np.r_[arrays[0][:8], arrays[2][:8]])
