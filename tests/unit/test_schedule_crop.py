"""A part of a value is computed, not the whole."""

import numpy as np
import pytest
from support.graphs import (
    Memory,
    add,
    alu,
    base,
    bound,
    cat,
    check,
    conv2d,
    exp,
    expand,
    flip,
    gather,
    iota,
    matmul,
    mul,
    pad,
    permute,
    reduce,
    reshape,
    shrink,
    softmax,
    transpose,
    windows,
)  # fmt: skip

from kernelrt.ir import Op, UOp, toposort
from kernelrt.schedule.rewrite.push_down_slices import push_slices_down

MEM = Memory(6)
X = MEM.random(4, 6)


def sizes(u: UOp, op: Op) -> set[tuple[int, ...]]:
    return {n.shape for n in toposort([u]) if n.op is op}


def test_through_arithmetic_reduction_and_movement() -> None:
    x = MEM.random(4, 6, 5)
    y = permute(exp(reduce(mul(x, 2.0), Op.ADD, 2)), 1, 0)
    (found,) = push_slices_down([shrink(y, (1, 3), (0, 2))])
    assert sizes(found, Op.EXP) == {(2, 2)}
    assert sizes(found, Op.MUL) == {(2, 2, 5)}
    check(MEM, [shrink(y, (1, 3), (0, 2))], kernels=1)


def test_a_crop_takes_padding_away() -> None:
    (found,) = push_slices_down([shrink(pad(X, (2, 2), (1, 3)), (2, 6), (1, 7))])
    assert found is X
    (found,) = push_slices_down([shrink(pad(X, (2, 2), (1, 3)), (1, 6), (0, 8))])
    assert found is pad(X, (1, 0), (1, 1))
    (found,) = push_slices_down([shrink(pad(X, (2, 2), (1, 3)), (0, 2), (0, 8))])
    assert Op.BUFFER not in {n.op for n in toposort([found])}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_through_windows(stride: int, dilation: int) -> None:
    taps = windows(MEM.random(3, 12), (1, 3, stride, dilation))
    part = shrink(taps, (0, 3), (1, 3), (1, 3))
    (found,) = push_slices_down([part])
    assert found.op is Op.IM2COL
    check(MEM, [part, add(part, 1.0)])


def test_through_joined_parts() -> None:
    parts = [exp(MEM.random(3, n)) for n in (2, 5, 4)]
    (found,) = push_slices_down([shrink(cat(1, *parts), (0, 3), (3, 8))])
    assert sizes(found, Op.EXP) == {(3, 4), (3, 1)}
    (found,) = push_slices_down([shrink(cat(1, *parts), (1, 3), (3, 6))])
    assert Op.CAT not in {n.op for n in toposort([found])}
    check(MEM, [shrink(cat(1, *parts), (0, 3), (3, 8))])


def test_other_consumers_want_the_whole() -> None:
    y = softmax(X)
    (found, whole) = push_slices_down([shrink(y, (0, 2), (0, 6)), y])
    assert found.op is Op.SHRINK
    assert found.src[0] is whole
    thirds = matmul(MEM.random(4, 8), MEM.random(8, 9))
    q, k = shrink(thirds, (0, 4), (0, 3)), shrink(thirds, (0, 4), (3, 6))
    plan = check(MEM, [matmul(q, transpose(k))])
    assert len(plan.items) == 2, "one product for both parts"


def test_gradient_of_a_padded_convolution_is_not_computed_for_the_padding() -> None:
    dy, w = MEM.random(2, 8, 6, 6), MEM.random(4, 8, 3, 3)
    whole = conv2d(dy, w, padding=2)
    part = shrink(whole, (0, 2), (0, 4), (1, 7), (1, 7))
    plan = check(MEM, [part])
    assert [b.arg.size for k in plan.kernels for b in k.outs] == [2 * 8 * 8 * 8, 2 * 4 * 6 * 6]


def test_reshape_of_other_axes() -> None:
    y = reshape(exp(MEM.random(4, 6, 5)), (4, 3, 2, 5))
    (found,) = push_slices_down([shrink(y, (0, 2), (0, 3), (0, 2), (1, 4))])
    assert sizes(found, Op.EXP) == {(2, 6, 3)}
    (kept,) = push_slices_down([shrink(y, (0, 4), (0, 2), (0, 2), (0, 5))])
    assert sizes(kept, Op.EXP) == {(4, 6, 5)}
    check(MEM, [shrink(y, (0, 2), (1, 3), (0, 2), (1, 4))])


def test_gather_flip_and_expand() -> None:
    table = MEM.random(20, 6)
    rows = gather(table, reshape(bound(MEM.indices(20, 7), 20), (7, 1)), reshape(iota(6), (1, 6)))
    wide = expand(reshape(flip(rows, 0), (1, 7, 6)), (3, 7, 6))
    part = shrink(wide, (1, 2), (0, 2), (2, 6))
    (found,) = push_slices_down([part])
    assert sizes(found, Op.GATHER) == {(2, 4)}
    check(MEM, [part])


def test_symbolic_and_empty_parts_stay() -> None:
    empty = shrink(exp(X), (2, 2), (0, 6))
    assert push_slices_down([empty]) == [empty]
    check(MEM, [empty, reduce(empty, Op.ADD, 0)])


def test_a_cropped_value_may_be_committed() -> None:
    w = MEM.of(np.zeros(6, np.float32))
    check(MEM, [], [(base(w), reshape(shrink(exp(X), (1, 2), (0, 6)), (6,)))])


def test_long_chains() -> None:
    y = X
    for _ in range(5000):
        y = alu(Op.NEG, add(y, 1.0))
    (found,) = push_slices_down([shrink(y, (0, 1), (0, 6))])
    assert found.shape == (1, 6)


def test_what_is_wanted_whole_behind_a_reshape_is_computed_once() -> None:
    y = reshape(reduce(X, Op.ADD, 0), (1, 6))
    found = push_slices_down([y, shrink(y, (0, 1), (5, 6))])
    assert [n.shape for n in toposort(found) if n.op is Op.REDUCE_AXIS] == [(6,)]
