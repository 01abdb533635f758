"""PreparedKernel, PreparedCopy, PreparedBufferView and PreparedCustomFunction: their fields."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import Chain

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import PlanBuildError, PlanReleasedError, VariableError
from kernelrt.ir import Variable
from kernelrt.runtime import (
    ExecutionPlanBuilder,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    RuntimeVar,
)

N = Variable("n", 1, 16)
M = Variable("m", 0, 9)


def test_a_prepared_kernel_tells_its_kernel_ast_and_device():
    kernel = plan_kernels.add(16)
    op = PreparedKernel(5, kernel, (0, 1, 2), dependencies=(3,))
    assert (op.id, op.kernel, op.ast, op.device) == (5, kernel, kernel.ast, "CPU")
    assert (op.buffer_indices, op.output_indices, op.dependencies) == ((0, 1, 2), (0,), (3,))
    assert (op.vals, dict(op.fixedvars), op.runtime_vars) == ((), {}, ())


def test_runtime_vars_are_found_once_at_construction():
    kernel = plan_kernels.square_to(N, split=True)
    op = PreparedKernel(0, kernel, (0, 1))
    assert op.runtime_vars == (RuntimeVar("n", 1, 16),)
    assert op.runtime_vars is op.runtime_vars
    assert op.runtime_vars[0].min_val == 1
    assert op.runtime_vars[0].max_val == 16


def test_runtime_vars_leave_out_fixedvars_and_core_id():
    kernel = plan_kernels.square_to(N, split=True)
    op = PreparedKernel(0, kernel, (0, 1), fixedvars={"n": 4})
    assert op.runtime_vars == ()
    assert op.vals == (4, 0)


def test_vals_begin_at_the_upper_bound_or_at_what_is_given():
    kernel = plan_kernels.square_to(N)
    assert PreparedKernel(0, kernel, (0, 1)).vals == (16,)
    assert PreparedKernel(0, kernel, (0, 1), initial_vals={"n": 3}).vals == (3,)


def test_vals_follow_executions():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_kernel(plan_kernels.square_to(N), [1, 0])
    plan = chain.build(1)
    plan.execute_with_vars(n=7)
    assert plan.prepared_kernels[0].vals == (7,)
    assert plan.value(0, 0) == 7


def test_buffer_ptrs_are_the_addresses_the_core_uses():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 3)
    plan = chain.build(1)
    [op] = plan.prepared_kernels
    assert op.buffer_ptrs == tuple(a.ctypes.data for a in chain.arrays[::-1])
    assert op.buffer_ptrs == (plan.pointer(0, 0), plan.pointer(0, 1))
    other = Buffer.wrap(np.full(16, 2))
    plan.rebind(0, other)
    assert op.buffer_ptrs[1] == other.address


def test_buffer_ids_are_those_of_the_buffers():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.scale(1, 0, 3)
    plan = chain.build(1)
    [op] = plan.prepared_kernels
    assert op.buffer_ids == (plan.buffers[1].id, plan.buffers[0].id)


def test_a_kernel_in_no_plan_has_no_addresses():
    op = PreparedKernel(0, plan_kernels.add(16), (0, 1, 2))
    with pytest.raises(PlanReleasedError, match="belongs to no plan"):
        _ = op.buffer_ptrs


def test_dependencies_include_what_the_bytes_ask_for():
    chain = Chain(np.arange(16), np.zeros(16), np.zeros(16))
    first = chain.scale(1, 0, 3)
    second = chain.scale(2, 1, 3)
    plan = chain.build(2)
    assert [op.dependencies for op in plan.prepared_ops] == [(), (first,)]
    assert plan.prepared_ops[1].id == second


def test_buffer_indices_match_the_slots():
    with pytest.raises(PlanBuildError, match="3 slots"):
        PreparedKernel(0, plan_kernels.add(16), (0, 1))


def test_the_status_word_is_no_buffer_of_the_op():
    op = PreparedKernel(0, plan_kernels.gather(4, 8), (0, 1, 2))
    assert op.kernel.buf_count == 4
    assert op.kernel.may_fail
    assert op.output_indices == (0,)


def test_fixedvars_must_be_variables_within_bounds():
    kernel = plan_kernels.square_to(N)
    with pytest.raises(VariableError, match="no variable 'm'"):
        PreparedKernel(0, kernel, (0, 1), fixedvars={"m": 1})
    with pytest.raises(VariableError, match="n=17"):
        PreparedKernel(0, kernel, (0, 1), fixedvars={"n": 17})
    with pytest.raises(VariableError, match="core_id"):
        PreparedKernel(0, kernel, (0, 1), fixedvars={"core_id": 0})


def test_a_variable_needs_bounds_or_a_fixed_value():
    source = plan_kernels.source("f", "%r = add i64 %k, 0", 0, count=4, names=["k"])
    kernel = plan_kernels.CachedKernel.from_source("f", source, 1, [0], var_names=["k"])
    with pytest.raises(PlanBuildError, match="'k' has neither bounds nor a fixed value"):
        PreparedKernel(0, kernel, (0,))
    assert PreparedKernel(0, kernel, (0,), fixedvars={"k": 3}).vals == (3,)


def test_a_copy_moves_the_first_bytes():
    chain = Chain(np.arange(16), np.zeros(16))
    op_id = chain.builder.add_copy(1, 0, 24)
    plan = chain.build(1)
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], [0, 1, 2] + [0] * 13)
    [op] = plan.prepared_ops
    assert isinstance(op, PreparedCopy)
    assert (op.id, op.buffer_indices, op.nbytes, op.output_indices) == (op_id, (1, 0), 24, (0,))


def test_a_copy_may_overlap_itself():
    data = Buffer.wrap(np.arange(16))
    builder = ExecutionPlanBuilder()
    whole = builder.add_buffer(data)
    head = builder.add_view(whole, 0, 12)
    tail = builder.add_view(whole, 16, 12)
    builder.add_copy(tail, head)
    builder.build().execute()
    np.testing.assert_array_equal(data.numpy(), [0, 1, *range(12), 14, 15])


def test_the_length_of_a_copy_may_follow_a_variable():
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_copy(1, 0, N * 8)
    plan = chain.build(1)
    plan.execute_with_vars(n=5)
    np.testing.assert_array_equal(chain.arrays[1], [0, 1, 2, 3, 4] + [0] * 11)


def test_a_view_runs_nothing_and_shares_bytes():
    chain = Chain(np.arange(16), np.zeros(16))
    part = chain.builder.add_view(0, 32, 4)
    chain.builder.add_copy(1, part)
    plan = chain.build(1)
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], [4, 5, 6, 7] + [0] * 12)
    view = plan.prepared_ops[0]
    assert isinstance(view, PreparedBufferView)
    assert (view.buffer_indices, view.byte_offset, view.nbytes) == ((part, 0), 32, 32)
    assert plan.buffers[part].address == plan.buffers[0].address + 32


def test_a_custom_function_gets_arrays_that_share_memory():
    chain = Chain(np.arange(16), np.zeros(16))
    seen = []

    def cumulate(out, x):
        seen.append((out.flags.writeable, x.flags.writeable, x.dtype))
        np.cumsum(x, out=out)

    op_id = chain.builder.add_custom(cumulate, [1, 0], [0])
    plan = chain.build(1)
    plan.execute()
    assert seen == [(True, False, np.dtype(np.int64))]
    np.testing.assert_array_equal(chain.arrays[1], np.cumsum(np.arange(16)))
    [op] = [op for op in plan.prepared_ops if isinstance(op, PreparedCustomFunction)]
    assert (op.id, op.function) == (op_id, cumulate)
    assert (op.output_indices, op.variables) == ((0,), ())


def test_a_custom_function_gets_its_variables_as_keywords():
    chain = Chain(np.arange(16))
    seen = []
    chain.builder.add_custom(lambda _, *, m: seen.append(m), [0], variables=[M])
    plan = chain.build()
    plan.execute_with_vars(m=4)
    plan.execute()
    assert seen == [4, 4]


def test_a_custom_function_must_be_callable_and_its_outputs_its_buffers():
    with pytest.raises(PlanBuildError, match="expected a callable"):
        PreparedCustomFunction(0, 42, (0,))
    with pytest.raises(PlanBuildError, match="output_indices"):
        PreparedCustomFunction(0, print, (0,), (1,))


def test_a_kernel_may_be_an_object_file():
    from kernelrt.backend.cpu import LLVMCompiler
    from kernelrt.device.program import CompiledSpec
    from kernelrt.device.spec import host

    text = plan_kernels.source("triple", "%r = mul i64 %x1, 3", 1, count=16)
    [data] = LLVMCompiler(host()).compile_sources([("triple", text)])
    spec = CompiledSpec.from_bytes("triple", data, plan_kernels.add(16).ast, 2)
    kernel = plan_kernels.CachedKernel.from_compiled(spec, [0])
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_kernel(kernel, [1, 0])
    chain.build(1).execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 3)


def test_a_kernel_may_be_a_ctypes_function():
    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64))
    def negate(bufs, vals):
        out = ctypes.cast(bufs[0], ctypes.POINTER(ctypes.c_int64))
        x = ctypes.cast(bufs[1], ctypes.POINTER(ctypes.c_int64))
        for i in range(vals[0]):
            out[i] = -x[i]

    kernel = plan_kernels.CachedKernel.from_function(negate, 2, [0], variables=[N])
    assert not kernel.host_parallel_safe
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_kernel(kernel, [1, 0])
    chain.build(1).execute_with_vars(n=3)
    np.testing.assert_array_equal(chain.arrays[1], [0, -1, -2] + [0] * 13)


def test_a_kernel_may_be_a_numba_cfunc():
    numba = pytest.importorskip("numba")
    signature = numba.types.void(
        numba.types.CPointer(numba.types.CPointer(numba.int64)), numba.types.CPointer(numba.int64)
    )

    @numba.cfunc(signature)
    def halve(bufs, vals):
        for i in range(16):
            bufs[0][i] = bufs[1][i] // 2

    kernel = plan_kernels.CachedKernel.from_function(halve, 2, [0])
    chain = Chain(np.arange(16), np.zeros(16))
    chain.builder.add_kernel(kernel, [1, 0])
    chain.build(1).execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) // 2)


def test_bfloat16_reaches_a_custom_function_as_its_bits():
    builder = ExecutionPlanBuilder()
    index = builder.add_intermediate(4, dt.bfloat16)
    seen = []
    builder.add_custom(lambda x: (seen.append(x.dtype), x.fill(0x3F80)), [index], [0])
    builder.set_output_buffer(index)
    plan = builder.build()
    plan.execute()
    assert seen == [np.dtype(np.uint16)]
    assert plan.output_buffer.raw().tolist() == [0x3F80] * 4
