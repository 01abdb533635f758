"""ExecutionPlanBuilder: what it adds, what build checks, and how errors name the culprit."""

from __future__ import annotations

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import Chain

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.device.registry import opened
from kernelrt.errors import DeviceError, DTypeError, PlanBuildError, ShapeError
from kernelrt.ir import Op, UOp, Variable, const
from kernelrt.runtime import (
    CachedKernel,
    ExecutionPlanBuilder,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    kernel_cache,
    kernels,
)


def kernel_op(ident: int, *buffers: int, dependencies: tuple[int, ...] = ()) -> PreparedKernel:
    return PreparedKernel(ident, plan_kernels.add(16), buffers, dependencies=dependencies)


def three() -> Chain:
    return Chain(np.zeros(16), np.arange(16), np.ones(16))


def test_indices_count_up_as_buffers_are_added():
    builder = ExecutionPlanBuilder()
    assert builder.add_buffer(Buffer(4, dt.float32)) == 0
    assert builder.add_intermediate(4, dt.float32) == 1
    assert builder.add_view(1, 4, 2) == 2


def test_add_op_takes_each_kind_of_prepared_operation():
    chain = three()
    view = Buffer.wrap(chain.arrays[0][:4])
    part = chain.builder.add_buffer(view)
    ops = [
        kernel_op(10, 0, 1, 2),
        PreparedCopy(11, (1, 0), 128),
        PreparedBufferView(12, (part, 0), 0, 32),
        PreparedCustomFunction(13, int, ()),
    ]
    assert [chain.builder.add_op(op) for op in ops] == [10, 11, 12, 13]
    plan = chain.build(1)
    assert sorted(op.id for op in plan.prepared_ops) == [10, 11, 12, 13]
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) + 1)


def test_ids_given_later_do_not_meet_ids_given_before():
    chain = three()
    chain.builder.add_op(kernel_op(7, 0, 1, 2))
    assert chain.add(0, 1, 2) == 8


def five_times() -> UOp:
    index = UOp(Op.RANGE, dt.int64, (const(16, dt.int64),), 0)
    out, a = (UOp(Op.PARAM, dt.int64, (), (slot, 16)) for slot in range(2))
    value = UOp(Op.LOAD, dt.int64, (a, index)) * 5
    return UOp(Op.SINK, dt.int64, (UOp(Op.STORE, dt.int64, (out, index, value)),))


def test_add_kernel_takes_an_ast():
    chain = three()
    chain.builder.add_kernel(five_times(), [0, 1])
    chain.build(0).execute()
    np.testing.assert_array_equal(chain.arrays[0], np.arange(16) * 5)


def test_a_prepared_kernel_takes_no_further_arguments():
    with pytest.raises(PlanBuildError, match="a PreparedKernel is complete"):
        three().builder.add_kernel(kernel_op(0, 0, 1, 2), [0, 1, 2])


def test_add_kernel_refuses_other_objects():
    with pytest.raises(PlanBuildError, match="kernel AST"):
        three().builder.add_kernel("add", [0, 1, 2])
    with pytest.raises(PlanBuildError, match="buffer_indices is missing"):
        three().builder.add_kernel(plan_kernels.add(16))
    with pytest.raises(PlanBuildError, match="prepared operation"):
        three().builder.add_op("copy")


def test_add_buffer_refuses_what_is_no_buffer():
    with pytest.raises(PlanBuildError, match=r"Buffer\.wrap"):
        ExecutionPlanBuilder().add_buffer(np.zeros(4))


def test_an_unknown_device_raises():
    with pytest.raises(DeviceError, match="'TPU'"):
        ExecutionPlanBuilder("TPU")


def test_a_missing_buffer_is_named():
    chain = three()
    chain.builder.add_op(kernel_op(4, 0, 1, 9))
    with pytest.raises(PlanBuildError, match=r"kernel 'add' \(op 4\): there is no buffer 9"):
        chain.build()


@pytest.mark.parametrize("index", [-1, 3, 0.5, "0", None])
def test_outputs_must_exist(index):
    with pytest.raises(PlanBuildError, match="output"):
        three().builder.set_output_buffer(index)


def test_a_duplicate_id_is_named():
    chain = three()
    chain.builder.add_op(kernel_op(4, 0, 1, 2))
    chain.builder.add_op(PreparedCopy(4, (0, 1), 8))
    with pytest.raises(PlanBuildError, match=r"copy \(op 4\): the id 4 is taken by kernel 'add'"):
        chain.build()


def test_a_dependency_on_itself_is_named():
    chain = three()
    chain.builder.add_op(kernel_op(4, 0, 1, 2, dependencies=(4,)))
    with pytest.raises(PlanBuildError, match=r"\(op 4\) depends on itself"):
        chain.build()


def test_a_missing_dependency_is_named():
    chain = three()
    chain.builder.add_op(kernel_op(4, 0, 1, 2, dependencies=(5,)))
    with pytest.raises(PlanBuildError, match=r"\(op 4\) depends on op 5, which does not exist"):
        chain.build()


def test_a_cycle_names_its_members_only():
    chain = three()
    chain.builder.add_op(kernel_op(1, 0, 1, 2))
    chain.builder.add_op(kernel_op(2, 0, 1, 2, dependencies=(3,)))
    chain.builder.add_op(kernel_op(3, 0, 1, 2, dependencies=(2,)))
    with pytest.raises(PlanBuildError, match=r"cycle among these ops: .*op 2.*op 3") as caught:
        chain.build()
    assert "op 1)" not in str(caught.value)


def test_given_dependencies_may_point_to_ops_added_later():
    chain = three()
    chain.scale(0, 1, 2, dependencies=[1])
    chain.scale(1, 2, 7)
    plan = chain.build(0)
    plan.execute()
    assert [op.id for op in plan.prepared_ops] == [1, 0]
    np.testing.assert_array_equal(chain.arrays[0], 14)


def test_a_buffer_smaller_than_the_kernel_asks_for_is_named():
    index = UOp(Op.RANGE, dt.int64, (const(32, dt.int64),), 0)
    out = UOp(Op.PARAM, dt.int64, (), (0, 32))
    ast = UOp(Op.SINK, dt.int64, (UOp(Op.STORE, dt.int64, (out, index, const(1, dt.int64))),))
    chain = three()
    chain.builder.add_kernel(ast, [1])
    text = r"slot 0: expected .* at least 32 elements, not buffer 1 of 16"
    with pytest.raises(PlanBuildError, match=text):
        chain.build()


def test_a_buffer_of_another_type_is_named():
    index = UOp(Op.RANGE, dt.int64, (const(4, dt.int64),), 0)
    out = UOp(Op.PARAM, dt.float32, (), (0, 4))
    value = const(1.0, dt.float32)
    ast = UOp(Op.SINK, dt.float32, (UOp(Op.STORE, dt.float32, (out, index, value)),))
    chain = three()
    chain.builder.add_kernel(ast, [1])
    with pytest.raises(PlanBuildError, match=r"slot 0: expected .* float32, not buffer 1 of int64"):
        chain.build()


def test_buffers_of_a_kernel_from_an_ast_are_the_same_or_disjoint():
    index = UOp(Op.RANGE, dt.int64, (const(8, dt.int64),), 0)
    out, a = (UOp(Op.PARAM, dt.int64, (), (slot, 8)) for slot in range(2))
    value = UOp(Op.LOAD, dt.int64, (a, index)) + 1
    ast = UOp(Op.SINK, dt.int64, (UOp(Op.STORE, dt.int64, (out, index, value)),))
    for first, second, fits in ((0, 0, True), (0, 64, True), (0, 8, False)):
        chain = three()
        views = [chain.builder.add_view(1, offset, 8) for offset in (first, second)]
        op = chain.builder.add_kernel(ast, views)
        if fits:
            chain.build(1).execute()
            continue
        with pytest.raises(PlanBuildError, match=rf"\(op {op}\).*overlaps buffer .* in part"):
            chain.build(1)


def test_buffers_that_begin_together_with_elements_of_other_sizes_overlap_in_part():
    """Element 3 of the one lies in the bytes of element 1 of the other."""
    index = UOp(Op.RANGE, dt.int64, (const(8, dt.int64),), 0)
    out = UOp(Op.PARAM, dt.int64, (), (0, 8))
    source = UOp(Op.PARAM, dt.int32, (), (1, 8))
    value = UOp(Op.LOAD, dt.int32, (source, index)).cast(dt.int64)
    ast = UOp(Op.SINK, dt.int64, (UOp(Op.STORE, dt.int64, (out, index, value)),))
    for offset, fits in ((64, True), (0, False)):
        chain = three()
        whole = chain.builder.add_view(1, 0, 8)
        part = chain.builder.add_view(1, offset, 8, dt.int32)
        chain.builder.add_kernel(ast, [whole, part])
        if fits:
            chain.build(1).execute()
            continue
        with pytest.raises(PlanBuildError, match=r"overlaps buffer .* in part"):
            chain.build(1)


def squares_over_their_sum(rows: int, columns: int) -> UOp:
    """x^2 over its row's sum, plus y: the squares lie in the output until the sum is there."""
    i, j, k = (
        UOp(Op.RANGE, dt.int64, (const(size, dt.int64),), number)
        for number, size in enumerate((rows, columns, columns))
    )
    out, x, y = (UOp(Op.PARAM, dt.float32, (), (slot, rows * columns)) for slot in range(3))
    at = UOp(Op.LOAD, dt.float32, (x, i * columns + k))
    row = UOp(Op.LOCAL, dt.float32, (at * at, k))
    s = UOp(Op.RANGE, dt.int64, (const(columns, dt.int64),), 3)
    total = UOp(Op.REDUCE, dt.float32, (UOp(Op.LOAD, dt.float32, (row, s)), s), Op.ADD)
    rest = UOp(Op.LOAD, dt.float32, (y, i * columns + j))
    value = UOp(Op.LOAD, dt.float32, (row, j)) / total + rest
    store = UOp(Op.STORE, dt.float32, (out, i * columns + j, value))
    return UOp(Op.SINK, dt.float32, (store,))


def in_three_buffers(kernel: CachedKernel, arrays: list[np.ndarray]) -> ExecutionPlanBuilder:
    builder = ExecutionPlanBuilder()
    slots = [builder.add_buffer(Buffer.wrap(a.reshape(-1))) for a in arrays]
    builder.add_kernel(kernel, slots)
    builder.set_output_buffer(slots[0])
    return builder


@pytest.mark.parametrize("other", [1, 2])
def test_an_output_that_holds_other_values_first_is_no_other_slot(other):
    kernel = kernels.get(squares_over_their_sum(4, 50))
    assert kernel.scratch_outputs == (0,)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, 50)).astype(np.float32) for _ in range(3)]
    _, x, y = (a.copy() for a in arrays)
    in_three_buffers(kernel, arrays).build().execute()
    expected = x**2 / (x**2).sum(1, keepdims=True) + y
    np.testing.assert_allclose(arrays[0], expected, rtol=1e-5, atol=1e-6)
    arrays[0] = arrays[other]
    match = rf"slot 0, an output .* scratch space .* memory with slot {other};"
    with pytest.raises(PlanBuildError, match=match):
        in_three_buffers(kernel, arrays).build()


def test_no_code_takes_a_plan_over_whose_outputs_it_wants_to_itself():
    ast = squares_over_their_sum(4, 50)
    lends = kernels.get(ast)
    texts = (v.text for v in opened("CPU").renderer.variants(ast))
    every = (kernel_cache.build([(ast, text)])[0] for text in texts)
    does_not = next(kernel for kernel in every if not kernel.scratch_outputs)
    arrays = [np.arange(200, dtype=np.float32).reshape(4, 50) for _ in range(3)]
    plan = in_three_buffers(does_not, [arrays[2], *arrays[1:]]).build()
    with pytest.raises(PlanBuildError, match="shares memory with slot 2"):
        plan.exchange({does_not: lends})
    assert plan.kernels == (does_not,)
    krt.autotune(plan, budget_seconds=0.5, keep=False)
    assert not plan.kernels[0].scratch_outputs


def test_a_part_of_an_intermediate_is_written_before_it_is_read():
    chain = three()
    scratch = chain.scratch()
    left, right = chain.builder.add_view(scratch, 0, 8), chain.builder.add_view(scratch, 64, 8)
    chain.builder.add_copy(left, 1, 64)
    chain.builder.add_copy(0, right, 64)
    with pytest.raises(PlanBuildError, match=f"reads intermediate {right} before any op"):
        chain.build(0)
    chain.builder.set_output_buffers([right])
    with pytest.raises(PlanBuildError, match=f"reads intermediate {right} before any op"):
        chain.builder.build()


def test_bytes_of_an_intermediate_that_nothing_wrote_are_named():
    chain = three()
    scratch = chain.scratch()
    quarter = [chain.builder.add_view(scratch, 32 * i, 4) for i in range(4)]
    chain.builder.add_copy(quarter[0], 1, 32)
    chain.builder.add_copy(quarter[2], 1, 32)
    last = chain.builder.add_copy(0, scratch)
    missing = "no op before it writes bytes 32 to 64 and 96 to 128"
    match = rf"copy \(op {last}\): slot 1 reads 128 bytes of intermediate {scratch}, and {missing}"
    with pytest.raises(PlanBuildError, match=match):
        chain.build(0)


def test_a_part_that_is_written_later_does_not_count():
    chain = three()
    scratch = chain.scratch()
    left, right = chain.builder.add_view(scratch, 0, 8), chain.builder.add_view(scratch, 64, 8)
    chain.builder.add_copy(left, 1, 64)
    chain.scale(0, scratch, 2)
    chain.builder.add_copy(right, 1, 64)
    with pytest.raises(PlanBuildError, match=r"slot 1 reads 128 bytes.* writes bytes 64 to 128;"):
        chain.build(0)


def test_an_output_that_was_written_in_part_is_named():
    chain = three()
    scratch = chain.scratch()
    chain.builder.add_copy(chain.builder.add_view(scratch, 0, 8), 1, 64)
    match = f"output 1: no op writes bytes 64 to 128 of intermediate {scratch}"
    with pytest.raises(PlanBuildError, match=match):
        chain.build(1, scratch)


@pytest.mark.parametrize("reuse", [False, True])
def test_an_intermediate_that_parts_fill(reuse):
    """Written in parts, in place and by the largest copy of a Variable; parts are read alone."""
    chain = three()
    builder = chain.builder
    scratch, other = chain.scratch(), chain.scratch()
    left, right = builder.add_view(scratch, 0, 8), builder.add_view(scratch, 64, 8)
    none = builder.add_intermediate(0, dt.int64)
    builder.add_copy(none, builder.add_view(1, 0, 0), 0)
    builder.add_copy(0, none, 0)
    builder.add_copy(left, 1, 64)
    builder.add_copy(builder.add_view(other, 64, 8), left, 64)
    builder.add_copy(right, builder.add_view(1, 64, 8), Variable("n", 1, 8) * 8)
    chain.scale(0, scratch, 2)
    builder.set_output_buffer(0)
    plan = builder.build(reuse_memory=reuse)
    plan.execute_with_vars({"n": 8})
    source = plan.buffers[1].numpy()
    assert plan.output_buffer.numpy().tolist() == (source * 2).tolist()


def test_a_kernel_that_takes_less_than_a_buffer_reads_no_more():
    chain = three()
    wide = chain.builder.add_intermediate(32, dt.int64)
    chain.builder.add_kernel(five_times(), [wide, 1])
    chain.builder.add_kernel(five_times(), [0, wide])
    plan = chain.build(0)
    source = plan.buffers[1].numpy()
    plan.execute()
    assert plan.output_buffer.numpy().tolist() == (source * 25).tolist()
    chain.builder.add_copy(chain.builder.add_intermediate(32, dt.int64), wide)
    with pytest.raises(PlanBuildError, match="no op before it writes bytes 128 to 256"):
        chain.build(0)


def test_an_output_that_nothing_writes_is_named():
    chain = three()
    scratch = chain.scratch()
    left, right = chain.builder.add_view(scratch, 0, 8), chain.builder.add_view(scratch, 64, 8)
    chain.builder.add_copy(left, 1, 64)
    with pytest.raises(PlanBuildError, match=f"no op writes intermediate {right}"):
        chain.build(left, right)


@pytest.mark.parametrize(("nbytes", "match"), [(200, "has 128"), (-8, "-8")])
def test_a_copy_must_fit_both_buffers(nbytes, match):
    chain = three()
    chain.builder.add_copy(0, 1, nbytes)
    with pytest.raises(PlanBuildError, match=match):
        chain.build()


def test_a_copy_must_fit_for_all_values_of_its_variables():
    chain = three()
    chain.builder.add_copy(0, 1, Variable("n", 1, 17) * 8)
    with pytest.raises(PlanBuildError, match="up to 136"):
        chain.build()


@pytest.mark.parametrize(("offset", "size"), [(-8, 2), (120, 2), (0, 17), (0, -1), (4, 2)])
def test_a_view_must_lie_in_its_base_and_be_aligned(offset, size):
    with pytest.raises(PlanBuildError, match="view"):
        three().builder.add_view(0, offset, size)


def test_a_view_op_must_tell_the_truth():
    chain = three()
    chain.builder.add_op(PreparedBufferView(3, (1, 0), 0, 128))
    with pytest.raises(PlanBuildError, match=r"view \(op 3\): expected buffer 1 to be bytes"):
        chain.build()


def test_a_read_only_buffer_cannot_be_written():
    array = np.zeros(16, np.int64)
    array.flags.writeable = False
    chain = three()
    index = chain.builder.add_buffer(Buffer.wrap(array))
    chain.scale(index, 1, 2)
    with pytest.raises(PlanBuildError, match="read-only"):
        chain.build()


def test_an_intermediate_must_be_written_before_it_is_read():
    chain = three()
    scratch = chain.scratch()
    chain.scale(0, scratch, 2)
    chain.scale(scratch, 1, 2)
    with pytest.raises(PlanBuildError, match=f"reads intermediate {scratch} before"):
        chain.build()


def test_an_output_must_be_written():
    chain = three()
    with pytest.raises(PlanBuildError, match="no op writes intermediate"):
        chain.build(chain.scratch())


def test_the_bounds_of_a_variable_agree_over_the_plan():
    chain = three()
    chain.builder.add_kernel(plan_kernels.add_n(Variable("n", 0, 5), 16), [0, 1])
    chain.builder.add_kernel(plan_kernels.add_n(Variable("n", 0, 6), 16), [0, 1])
    with pytest.raises(PlanBuildError, match=r"'n' has bounds 0 to 6 in .* but 0 to 5 in"):
        chain.build()


def test_a_name_stands_for_one_buffer():
    chain = three()
    chain.builder.map_buffer("x", 0)
    chain.builder.map_buffer("x", 0)
    with pytest.raises(PlanBuildError, match="already names buffer 0"):
        chain.builder.map_buffer("x", 1)


def test_a_builder_can_build_again():
    chain = three()
    chain.scale(0, 1, 2)
    first = chain.build(0)
    chain.scale(2, 0, 3)
    second = chain.build(2)
    assert (first.n_ops, second.n_ops) == (1, 2)
    second.execute()
    np.testing.assert_array_equal(chain.arrays[2], np.arange(16) * 6)
    assert first.prepared_kernels[0].buffer_ptrs[0] == chain.arrays[0].ctypes.data


def test_a_plan_without_operations_executes():
    plan = ExecutionPlanBuilder().build()
    plan.execute()
    assert plan.execute_profiled() == []


@pytest.mark.parametrize("of", [int, np.int64, np.uint8, np.array])
def test_numbers_of_any_kind_are_numbers(of):
    source, target = Buffer(of(8), dt.int32), Buffer(of(8), dt.int32)
    source.copyin(np.arange(8, dtype=np.int32))
    target.copyin(np.zeros(8, np.int32))
    builder = ExecutionPlanBuilder()
    a, b = builder.add_buffer(source), builder.add_buffer(target)
    middle = builder.add_intermediate(of(8), dt.int32)
    builder.add_copy(middle, a, of(16))
    part = builder.add_view(middle, of(8), of(2))
    builder.add_copy(b, part, of(8))
    builder.set_output_buffer(b)
    builder.build().execute()
    assert target.numpy().tolist() == [2, 3, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("wrong", [1.5, "8", None, np.float32(4)])
def test_numbers_that_are_none_are_refused(wrong):
    builder = ExecutionPlanBuilder()
    a = builder.add_buffer(Buffer(8, dt.int32))
    calls = [
        lambda: Buffer(wrong, dt.int32),
        lambda: Buffer(8, dt.int32).view(wrong, 1),
        lambda: builder.add_intermediate(wrong, dt.int32),
        lambda: builder.add_view(a, 0, wrong),
        lambda: builder.add_view(a, wrong, 1),
    ]
    if wrong is not None:
        calls.append(lambda: builder.add_copy(a, a, wrong))
    for call in calls:
        with pytest.raises(DTypeError, match="expected an integer"):
            call()


@pytest.mark.parametrize("dtype", ["float32", np.float32, float, np.dtype("float32")])
def test_a_type_may_be_named(dtype):
    assert Buffer(3, dtype).dtype is dt.float32
    assert Buffer(16, dt.uint8).view(8, 2, dtype).dtype is dt.float32
    builder = ExecutionPlanBuilder()
    middle = builder.add_intermediate(8, dtype)
    builder.add_view(middle, 8, 2, dtype)


@pytest.mark.parametrize("dtype", [3, "float33", None, object()])
def test_a_type_that_is_none_is_refused(dtype):
    for make in (Buffer, ExecutionPlanBuilder().add_intermediate):
        with pytest.raises(DTypeError, match="dtype"):
            make(3, dtype)


@pytest.mark.parametrize("size", [2**62, 2**63, 2**70])
def test_a_buffer_has_no_more_bytes_than_an_address_space(size):
    with pytest.raises(ShapeError, match="bytes"):
        Buffer(size, dt.float32)


@pytest.mark.parametrize("other", [None, 3, np.zeros(8, np.float32), [1.0]])
def test_rebinding_takes_buffers_only(other):
    builder = ExecutionPlanBuilder()
    a = builder.add_buffer(Buffer(8, dt.float32))
    plan = builder.build()
    with pytest.raises(DTypeError, match=r"Buffer\.wrap"):
        plan.rebind(a, other)
    with pytest.raises(DTypeError, match="index: expected an integer"):
        plan.rebind(0.0, Buffer(8, dt.float32))


@pytest.mark.parametrize("offset", [0, 4, 8])
@pytest.mark.parametrize("given", [True, False])
def test_a_view_may_be_empty(offset, given):
    builder = ExecutionPlanBuilder()
    data = Buffer(2, dt.float32)
    data.copyin([1.0, 2.0])
    first = builder.add_buffer(data)
    base = first if given else builder.add_intermediate(2, dt.float32)
    if not given:
        builder.add_copy(base, first, 8)
    part = builder.add_view(base, offset, 0)
    end = builder.add_buffer(Buffer(0, dt.float32))
    builder.add_copy(end, part, 0)
    builder.build().execute()


def _with_copy(index):
    builder = ExecutionPlanBuilder()
    builder.add_buffer(Buffer(8, dt.float32))
    builder.add_copy(0, index, 4)
    return builder


@pytest.mark.parametrize("index", [0.0, "0", None, np.float64(0)])
def test_an_index_that_is_no_integer_is_refused(index):
    builder = ExecutionPlanBuilder()
    builder.add_buffer(Buffer(8, dt.float32))
    for call in (
        lambda: _with_copy(index).build(),
        lambda: builder.add_view(index, 0, 1),
        lambda: builder.set_output_buffer(index),
        lambda: builder.map_buffer("name", index),
    ):
        with pytest.raises(PlanBuildError, match="no buffer"):
            call()
