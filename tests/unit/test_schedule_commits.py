"""Writes to state: in place where that is right, through a second buffer where it is not."""

import numpy as np
import pytest
from support.graphs import (
    Memory,
    add,
    alu,
    base,
    bound,
    check,
    check_faults,
    exp,
    expand,
    flip,
    gather,
    iota,
    matmul,
    mul,
    reduce,
    reshape,
    scalar,
    scatter_add,
    shrink,
    sub,
    transpose,
)  # fmt: skip
from support.kernel_reference import HostBuffer, ScheduleRun

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.schedule import CopyItem, KernelItem, Schedule, schedule


@pytest.fixture
def mem() -> Memory:
    return Memory(2)


def copies(plan: Schedule) -> int:
    return sum(isinstance(item, CopyItem) for item in plan.items)


def flat(x: UOp) -> UOp:
    return x if len(x.shape) == 1 else reshape(x, base(x).shape)


def test_an_elementwise_update_is_in_place(mem: Memory) -> None:
    w, g = mem.random(4, 6), mem.random(4, 6)
    plan = check(mem, [], [(base(w), flat(sub(w, mul(g, 0.1))))], kernels=1)
    assert plan.kernels[0].outs == (base(w),)
    assert plan.kernels[0].buffers == (base(w), base(g))


def test_a_shifted_update_is_not_in_place(mem: Memory) -> None:
    w = mem.random(24)
    plan = check(mem, [], [(base(w), flat(add(flip(w, 0), 1.0)))], kernels=2)
    assert copies(plan) == 1


def test_a_row_wise_update_is_not_in_place(mem: Memory) -> None:
    w = mem.random(4, 6)
    value = sub(w, reduce(w, Op.MAX, 1, keep=True))
    assert copies(check(mem, [], [(base(w), flat(value))], kernels=2)) == 1


def test_swap(mem: Memory) -> None:
    a, b = mem.random(10), mem.random(10)
    plan = check(mem, [], [(base(a), base(b)), (base(b), base(a))])
    assert len(plan.items) == 3


def test_rotation_of_three(mem: Memory) -> None:
    a, b, c = (mem.random(10) for _ in range(3))
    commits = [(base(a), base(b)), (base(b), base(c)), (base(c), base(a))]
    assert len(check(mem, [], commits).items) == 4


def test_swap_of_computed_values(mem: Memory) -> None:
    a, b = mem.random(10), mem.random(10)
    check(mem, [], [(base(a), add(b, 1.0)), (base(b), mul(a, 2.0))])


def test_readers_of_the_old_value_come_first(mem: Memory) -> None:
    w, x = mem.random(16, 8), mem.random(4, 16)
    update = flat(mul(w, 0.9))
    plan = check(mem, [matmul(x, w), reduce(w, Op.ADD, 0)], [(base(w), update)])
    assert copies(plan) == 0
    last = plan.items[-1]
    assert isinstance(last, KernelItem)
    assert last.outs == (base(w),)


def test_new_value_read_after_the_commit(mem: Memory) -> None:
    w, x = mem.random(16, 8), mem.random(4, 16)
    new = mul(w, 0.9)
    plan = check(mem, [matmul(x, new)], [(base(w), flat(new))], kernels=2)
    assert copies(plan) == 0


def test_old_and_new_value_read_by_one_kernel(mem: Memory) -> None:
    w, x = mem.random(16, 8), mem.random(4, 16)
    new = exp(w)
    old_rows = expand(reduce(w, Op.ADD, 0, keep=True), (16, 8))
    check(mem, [matmul(x, add(new, old_rows))], [(base(w), flat(new))])


def test_output_equal_to_a_committed_value_is_apart(mem: Memory) -> None:
    w = mem.random(10)
    new = add(w, 1.0)
    plan = check(mem, [new], [(base(w), new)], kernels=1)
    assert plan.outputs[0] is not base(w)
    assert len(plan.kernels[0].writes) == 2


def test_old_value_as_output_is_copied(mem: Memory) -> None:
    w = mem.random(10)
    plan = check(mem, [w], [(base(w), add(w, 1.0))], kernels=2)
    assert plan.outputs[0] is not base(w)


def test_one_value_committed_twice(mem: Memory) -> None:
    a, b, x = (mem.random(10) for _ in range(3))
    value = exp(x)
    plan = check(mem, [], [(base(a), value), (base(b), value)], kernels=1)
    assert set(plan.kernels[0].outs) == {base(a), base(b)}


def test_commit_of_itself_is_nothing(mem: Memory) -> None:
    w = mem.random(10)
    check(mem, [], [(base(w), base(w))], kernels=0)


def test_what_stays_as_it_is_is_restored_where_another_commit_changes_it(mem: Memory) -> None:
    whole = HostBuffer(np.arange(10, dtype=np.float32))
    left = mem.add(whole.view(0, 6), dt.float32)
    right = mem.add(whole.view(4, 6), dt.float32)
    other = mem.add(HostBuffer(np.zeros(4, np.float32)), dt.float32)
    for commits, wanted in (
        ([(left, mul(left, 2.0)), (right, right)], [0, 2, 4, 6, 4, 5, 6, 7, 8, 9]),
        ([(right, right), (left, mul(left, 2.0))], [0, 2, 4, 6, 8, 10, 6, 7, 8, 9]),
        ([(other, exp(other)), (right, right)], list(range(10))),
    ):
        whole.data[:] = np.arange(10)
        ScheduleRun(schedule([], commits), mem.data).run()
        np.testing.assert_array_equal(whole.data, wanted)


def test_commit_of_a_constant(mem: Memory) -> None:
    w = mem.random(10)
    check(mem, [], [(base(w), expand(scalar(0.0), (10,)))], kernels=1)


def test_views_of_one_storage(mem: Memory) -> None:
    whole = HostBuffer(np.arange(10, dtype=np.float32))
    both = mem.add(whole, dt.float32)
    left = mem.add(whole.view(0, 6), dt.float32)
    right = mem.add(whole.view(4, 6), dt.float32)
    # The halves overlap in two elements; the later commit wins there.
    plan = schedule([reduce(both, Op.ADD, 0)], [(left, add(right, 1.0))])
    assert copies(plan) == 1, "the kernel reads bytes that it would be writing"
    apart = mem.add(whole.view(6, 4), dt.float32)
    plan = schedule([reduce(both, Op.ADD, 0)], [(apart, add(apart, 1.0))])
    assert copies(plan) == 0
    assert plan.items[-1].outs == (apart,), "the sum reads the old bytes"
    assert (0,) in plan.deps


def test_scatter_into_state_is_in_place(mem: Memory) -> None:
    table, rows, x = mem.random(20, 6), mem.indices(20, 7), mem.random(7, 6)
    new = scatter_add(table, x, reshape(rows, (7, 1)), reshape(iota(6), (1, 6)))
    plan = check(mem, [], [(base(table), flat(new))], kernels=1)
    assert plan.kernels[0].outs == (base(table),)


def test_checked_scatter_into_state_is_in_place(mem: Memory) -> None:
    table, rows, x = mem.random(20, 6), mem.indices(20, 7), mem.random(7, 6)
    index = reshape(bound(rows, 20), (7, 1)), reshape(iota(6), (1, 6))
    looked = gather(table, *index)
    new = scatter_add(table, mul(sub(looked, x), -0.1), *index)
    plan = check(mem, [reduce(looked, Op.ADD, 0, 1)], [(base(table), flat(new))])
    assert not any(k.may_fail for k in plan.kernels if base(table) in k.outs)


@pytest.mark.parametrize("bad", [-1, 20])
def test_a_failing_run_changes_nothing(mem: Memory, bad: int) -> None:
    table, rows, x = mem.random(20, 6), mem.indices(20, 7), mem.random(7, 6)
    mem.data[base(rows)][3] = bad
    step = mem.of(np.float32([1]))
    index = reshape(bound(rows, 20), (7, 1)), reshape(iota(6), (1, 6))
    loss = reduce(mul(gather(table, *index), x), Op.ADD, 0, 1)
    gradient = scatter_add(expand(scalar(0.0), (20, 6)), x, *index)
    commits = [
        (base(table), flat(sub(table, mul(gradient, 0.1)))),
        (base(step), add(step, 1.0)),
    ]
    check_faults(mem, [loss], commits)


@pytest.mark.parametrize("check_first", [True, False])
@pytest.mark.parametrize("commit_first", [True, False])
def test_a_value_of_a_check_and_of_a_commit_keeps_them_apart(
    mem: Memory, check_first: bool, commit_first: bool
) -> None:
    """Both want one value at the same elements, so one kernel could do both."""
    state, table = mem.random(20, 60), mem.random(50)
    x, rows = mem.random(20, 60), mem.indices(50, 20, 60)
    shared = exp(exp(exp(x)))
    found = gather(table, bound(rows, 50))
    looked = mul(found, shared) if check_first else mul(shared, found)
    new = add(mul(shared, 0.5), 1.0)
    wanted = [reduce(new, Op.ADD, 0), looked] if commit_first else [looked]
    commits = [(base(state), flat(new))]
    check(mem, wanted, commits)
    mem.data[base(rows)][-1] = 50
    check_faults(mem, wanted, commits)


def test_commits_behind_a_failing_kernel_that_needs_them(mem: Memory) -> None:
    counter, x = mem.of(np.int64([3])), mem.random(8)
    new = alu(Op.ADD, counter, 1)
    picked = gather(x, bound(new, 8))
    plan = check(mem, [picked], [(base(counter), new)])
    assert plan.items[-1].outs == (base(counter),)
    mem.data[base(counter)][0] = 7
    check_faults(mem, [picked], [(base(counter), new)])


def test_weight_used_backwards_before_its_update(mem: Memory) -> None:
    w, x, dy = mem.random(8, 8), mem.random(8, 8), mem.random(8, 8)
    dx = matmul(dy, transpose(w))
    dw = matmul(transpose(x), dy)
    plan = check(mem, [dx], [(base(w), flat(sub(w, mul(dw, 0.1))))], kernels=2)
    assert copies(plan) == 0


def test_commit_errors(mem: Memory) -> None:
    w = mem.random(10)
    with pytest.raises(ShapeError, match="must be a BUFFER"):
        schedule([], [(add(w, 1.0), w)])
    with pytest.raises(ShapeError, match="5 float32 cannot replace 10 float32"):
        schedule([], [(base(w), shrink(w, (0, 5)))])
    with pytest.raises(ShapeError, match="int64 cannot replace"):
        schedule([], [(base(w), iota(10))])


def test_a_row_value_updated_beside_what_reads_it_inside_the_row(mem: Memory) -> None:
    """The sum of a row would be stored before the row's elements read the old one."""
    s, x = mem.random(8), mem.random(8, 100)
    rows = exp(reduce(exp(x), Op.MAX, 1))
    y = mul(exp(x), add(reshape(s, (8, 1)), reshape(rows, (8, 1))))
    check(mem, [y], [(base(s), rows)])
