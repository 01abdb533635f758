"""What gradients of views become: no conditions in inner loops, and the same bits."""

import numpy as np
import pytest
from support.graphs import (
    Memory,
    add,
    alu,
    cat,
    check,
    conv2d,
    exp,
    expand,
    matmul,
    mul,
    pad,
    permute,
    reduce,
    relu,
    reshape,
    scalar,
    unwindows,
    windows,
)  # fmt: skip

from kernelrt.ir import Op, UOp, toposort
from kernelrt.schedule import Schedule, schedule
from kernelrt.schedule.memory.partial_writes import concatenate_assigned
from kernelrt.schedule.rewrite.simplify import simplify_graph


@pytest.fixture
def mem() -> Memory:
    return Memory(8)


def ops(u: UOp) -> set[Op]:
    return {n.op for n in toposort(concatenate_assigned(simplify_graph([u])))}


def predicates(plan: Schedule) -> int:
    nodes = (n for k in plan.kernels for n in toposort([k.ast]))
    return sum(n.op is Op.LOAD and len(n.src) > 2 for n in nodes)


def quarters(mem: Memory) -> list[UOp]:
    return [pad(exp(mem.random(6, 8)), (0, 0), (8 * k, 24 - 8 * k)) for k in range(4)]


def test_a_sum_of_parts_among_zeros_is_a_join(mem: Memory) -> None:
    a, b, c, d = quarters(mem)
    total = add(add(add(a, c), d), b)
    assert Op.PAD not in ops(total)
    plan = check(mem, [total], kernels=1)
    assert predicates(plan) == 0
    check(mem, [matmul(total, mem.random(32, 5))], kernels=2)


def test_gaps_are_zero(mem: Memory) -> None:
    a, _, c, _ = quarters(mem)
    total = add(c, a)
    assert Op.PAD not in ops(total)
    check(mem, [total])


def test_parts_over_each_other_are_added(mem: Memory) -> None:
    a, b, *_ = quarters(mem)
    over = pad(mem.random(6, 8), (0, 0), (4, 20))
    assert Op.PAD in ops(add(a, over))
    check(mem, [add(a, over), add(add(a, b), over)])


def test_other_axes_and_user_joins(mem: Memory) -> None:
    down = pad(mem.random(3, 8), (3, 0), (0, 0))
    across = pad(mem.random(6, 4), (0, 0), (4, 0))
    assert Op.PAD in ops(add(down, across))
    joined = cat(1, mem.random(6, 4), expand(scalar(0.0), (6, 4)))
    check(mem, [add(joined, across), add(joined, pad(mem.random(6, 2), (0, 0), (3, 3)))])


def test_minus_zero_becomes_zero_as_in_the_sum(mem: Memory) -> None:
    x = mem.of(np.float32([-0.0, 1.0, -0.0]))
    total = add(pad(x, (0, 2)), pad(mem.of(np.float32([-0.0, 2.0])), (3, 0)))
    plan = schedule([total])
    assert Op.PAD not in ops(total)
    constants = [n for n in toposort([plan.kernels[0].ast]) if n.op is Op.CONST]
    assert 0.0 in [c.arg for c in constants]
    check(mem, [total, alu(Op.DIV, scalar(1.0), total)])


def test_integers(mem: Memory) -> None:
    a, b = mem.indices(9, 4), mem.indices(9, 3)
    check(mem, [alu(Op.ADD, pad(a, (0, 3)), pad(b, (4, 0)))], kernels=1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_input_gradient_of_a_convolution(mem: Memory, stride: int, dilation: int) -> None:
    shape = (2, 8, 11, 11)
    args = ((2, 3, stride, dilation), (3, 3, stride, dilation))
    counts = windows(mem.random(*shape), *args).shape
    dy, w = mem.random(2, 16, *counts[2:4]), mem.random(16, 8, 3, 3)
    full = (2, 8, *counts[2:4], 3, 3, 16)
    left = expand(reshape(permute(dy, 0, 2, 3, 1), (2, 1, *counts[2:4], 1, 1, 16)), full)
    right = expand(reshape(permute(w, 1, 2, 3, 0), (1, 8, 1, 1, 3, 3, 16)), full)
    taps = reduce(mul(left, right), Op.ADD, 6)
    gradient = reduce(unwindows(taps, shape, *args), Op.ADD, 4, 5)
    check(mem, [gradient], tolerance=1e-3)


def test_gradient_of_a_repeated_value_through_windows(mem: Memory) -> None:
    shape = (2, 3, 9)
    args = (2, 3, 2, 1)
    counts = windows(mem.random(*shape), args).shape
    dy = mem.random(*counts[:3])
    spread = expand(reshape(dy, (*counts[:3], 1)), counts)
    gradient = reduce(unwindows(spread, shape, args), Op.ADD, 3)
    assert Op.COL2IM not in ops(gradient)
    check(mem, [gradient])


def test_a_convolution_and_its_gradients_have_no_conditions(mem: Memory) -> None:
    x, w = mem.random(2, 4, 18, 18), mem.random(8, 4, 3, 3)
    plan = check(mem, [relu(conv2d(x, w))])
    assert predicates(plan) == 0


def test_recurrent_steps_are_one_kernel_ast(mem: Memory) -> None:
    """Each step reads another part of one product, and writes its own state."""
    x, w, u = mem.random(5, 4, 6), mem.random(6, 8), mem.random(8, 8)
    inputs = matmul(reshape(x, (20, 6)), w)
    h = expand(scalar(0.0), (4, 8))
    h = alu(Op.TANH, mem.random(4, 8))
    for t in range(5):
        part = UOp(Op.SHRINK, inputs.dtype, (reshape(inputs, (5, 4, 8)),),
                   ((t, t + 1), (0, 4), (0, 8)))  # fmt: skip
        h = alu(Op.TANH, add(reshape(part, (4, 8)), matmul(h, u)))
    plan = check(mem, [h])
    steps = [k.ast for k in plan.kernels if len(k.ins) == 3]
    assert len(steps) == 5
    assert len(set(steps)) == 1
