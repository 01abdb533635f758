"""ExecutionPlan: every accessor."""

from __future__ import annotations

import numpy as np
import pytest
from support import plan_kernels
from support.plan_kernels import Chain

from kernelrt import dtype as dt
from kernelrt._dispatch import PlanCore
from kernelrt.device.buffer import Buffer
from kernelrt.ir import Op, UOp, Variable
from kernelrt.runtime import ExecutionPlan, ExecutionPlanBuilder

N = Variable("n", 1, 16)


@pytest.fixture
def chain() -> Chain:
    return Chain(np.arange(16), np.zeros(16))


@pytest.fixture
def plan(chain) -> ExecutionPlan:
    """Doubles buffer 0 into an intermediate, 2, and adds that and 0 into 1."""
    scratch = chain.scratch()
    chain.scale(scratch, 0, 2)
    chain.add(1, scratch, 0)
    return chain.build(1, scratch)


def test_output_buffer_is_the_first_output(plan):
    assert plan.output_buffer is plan.buffers[1]


def test_output_buffer_at_counts_the_outputs(plan):
    assert plan.output_buffer_at(0) is plan.buffers[1]
    assert plan.output_buffer_at(1) is plan.buffers[2]


@pytest.mark.parametrize("i", [2, -1])
def test_output_buffer_at_is_none_beyond_them(plan, i):
    assert plan.output_buffer_at(i) is None


def test_output_buffers_are_all_outputs_in_order(plan):
    assert plan.output_buffers == (plan.buffers[1], plan.buffers[2])
    assert plan.num_outputs == 2
    assert plan.output_indices == (1, 2)
    assert plan.output_buffer_idx == 1


def test_a_plan_without_outputs_gives_none(chain):
    plan = chain.build()
    assert plan.output_buffer is None
    assert plan.output_buffer_at(0) is None
    assert plan.output_buffer_idx is None
    assert (plan.num_outputs, plan.output_buffers) == (0, ())


def test_buffer_finds_by_what_it_stands_for():
    builder = ExecutionPlanBuilder()
    node = UOp(Op.BUFFER, dt.int64, (), Buffer(4, dt.int64))
    builder.add_buffer(node.arg, ast_id=node)
    builder.add_intermediate(4, dt.int64, ast_id="scratch")
    plan = builder.build()
    assert plan.buffer(node) is node.arg
    assert plan.buffer("scratch") is plan.buffer_at(1)
    assert plan.buffer("other") is None
    assert plan.ast_to_buffer_map == {node: 0, "scratch": 1}


def test_the_map_given_out_is_a_copy(plan):
    plan.ast_to_buffer_map["x"] = 0
    assert plan.buffer("x") is None


def test_buffer_at_is_none_beyond_the_last(plan):
    assert plan.buffer_at(2) is plan.buffers[2]
    assert plan.buffer_at(3) is None
    assert plan.buffer_at(-1) is None


def test_buffers_lists_given_ones_and_the_plan_s_own(plan, chain):
    assert len(plan.buffers) == 3
    assert [b.address for b in plan.buffers[:2]] == [a.ctypes.data for a in chain.arrays]
    assert plan.buffers[2].size == 16


def test_device_is_its_name(plan):
    assert plan.device == "CPU"


def test_prepared_ops_come_in_execution_order(plan):
    assert [op.id for op in plan.prepared_ops] == [0, 1]
    assert plan.prepared_kernels == plan.prepared_ops
    assert plan.n_ops == 2


def test_prepared_kernels_leave_out_other_operations(chain):
    chain.builder.add_copy(1, 0)
    chain.scale(1, 0, 2)
    plan = chain.build(1)
    assert len(plan.prepared_ops) == 2
    assert [op.kernel.entry_point for op in plan.prepared_kernels] == ["scale_2"]


def test_kernels_are_listed_once_each(chain):
    chain.scale(1, 0, 2)
    chain.add(1, 1, 0)
    chain.scale(1, 1, 2)
    assert chain.build(1).kernels == (plan_kernels.scale(2, 16), plan_kernels.add(16))


def test_variables_and_their_values(chain):
    chain.builder.add_kernel(plan_kernels.square_to(N), [1, 0])
    plan = chain.build(1)
    assert plan.variables == {"n": ("n", 1, 16)}
    assert plan.values == {"n": 16}
    plan.execute_with_vars(n=3)
    assert plan.values == {"n": 3}


def test_execute_is_the_method_of_the_c_core():
    assert ExecutionPlan.execute is PlanCore.execute


def test_execute_runs_everything_again_each_time(plan, chain):
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 3)
    chain.arrays[0][:] = 1
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], 3)
    np.testing.assert_array_equal(plan.output_buffer_at(1).numpy(), 2)


def test_results_stay_when_the_plan_goes(plan):
    plan.execute()
    out = plan.output_buffer_at(1)
    del plan
    np.testing.assert_array_equal(out.numpy(), np.arange(16) * 2)


def test_repr_reads_well(chain):
    chain.builder.add_kernel(plan_kernels.square_to(N), [1, 0])
    plan = chain.build(1)
    text = repr(plan)
    assert text == "<ExecutionPlan of 1 ops (1 kernels) on CPU, 2 buffers, 0 B of its own, n=1..16>"
    plan.release()
    assert repr(plan).endswith("released>")


def test_explain_shows_ops_waves_buffers_and_memory(chain):
    scratch, other = chain.scratch(), chain.scratch()
    chain.scale(scratch, 0, 2)
    chain.scale(other, 0, 3)
    chain.add(1, scratch, other)
    lines = chain.build(1).explain().splitlines()
    assert lines.index("wave 1") - lines.index("wave 0") == 3
    assert any("kernel 'add' (op 2): 1 <- 2, 3" in line and "after 0, 1" in line for line in lines)
    assert "  0: 16 int64, 128 B, given, kept on failure" in lines
    assert "  2: 16 int64, 128 B, arena at byte 0" in lines
    assert "outputs: 1" in lines
    assert any(line.startswith("memory: arena 256 B") for line in lines)


def test_explain_shows_fusion_decisions():
    import kernelrt as krt

    x = krt.tensor(np.ones((4, 4), np.float32))
    text = krt.prepare((x + 1).sum()).explain()
    assert "fusion" in text.splitlines()


def test_memory_tells_what_was_reused():
    chain = Chain(np.arange(16), np.zeros(16))
    last = 0
    for _ in range(6):
        here = chain.scratch()
        chain.scale(here, last, 2)
        last = here
    chain.scale(1, last, 1)
    report = chain.build(1).memory
    assert report.requested == 6 * 128
    assert report.arena == 2 * 128
    assert report.reused == 4 * 128
    assert report.lower_bound == 2 * 128
    assert report.peak == 2 * 128


def test_memory_counts_outputs_of_the_plan_s_own(plan):
    assert plan.memory.arena == 0
    assert plan.memory.peak == 128


def test_without_reuse_intermediates_lie_side_by_side():
    chain = Chain(np.arange(16), np.zeros(16))
    a, b, c = (chain.scratch() for _ in range(3))
    chain.scale(a, 0, 2)
    chain.scale(b, a, 2)
    chain.scale(c, b, 2)
    chain.scale(1, c, 2)
    plan = chain.build(1, reuse_memory=False)
    assert plan.memory.arena == 3 * 128
    plan.execute()
    np.testing.assert_array_equal(chain.arrays[1], np.arange(16) * 16)


def test_the_plan_s_own_memory_is_64_byte_aligned():
    chain = Chain(np.arange(16), np.zeros(16))
    scratch = [chain.builder.add_intermediate(5, dt.int64) for _ in range(3)]
    for s in scratch:
        chain.builder.add_kernel(plan_kernels.fill(1, 5), [s])
    plan = chain.build(scratch[2])
    assert all(plan.buffers[s].address % 64 == 0 for s in scratch)
