"""A weight that is used at each step of a sequence has a gradient that is one contraction."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import (
    Memory,
    add,
    bound,
    exp,
    expand,
    gather,
    iota,
    mul,
    permute,
    reduce,
    reshape,
    shrink,
    transpose,
)  # fmt: skip
from support.reference import evaluate

import kernelrt as krt
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, toposort
from kernelrt.schedule.fuse.fusion_cost import strip
from kernelrt.schedule.rewrite.concatenate_products import concatenate_products, side_by_side

SPEC = DeviceSpec.avx512()


def sums(roots):
    """What each sum in a graph adds up."""
    return [n.src[0] for n in toposort(roots) if n.op is Op.REDUCE_AXIS]


def outer(a, b):
    """The products whose sum over the first axis is the transpose of `a` times `b`."""
    (n, rows), columns = a.shape, b.shape[1]
    shape = (n, rows, columns)
    return mul(expand(reshape(a, (n, rows, 1)), shape), expand(reshape(b, (n, 1, columns)), shape))


def agree(memory, before, after):
    values = evaluate([*before, *after], memory=memory.data)
    for expected, got in zip(values[: len(before)], values[len(before) :], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def chained(terms):
    total, *rest = terms
    for term in rest:
        total = add(total, term)
    return total


# Bringing parts together


def split(rng, shape):
    """`shape` with an axis split, or one of 1 put in."""
    at = int(rng.integers(0, len(shape) + 1))
    if at < len(shape) and shape[at] % 2 == 0 and rng.random() < 0.6:
        return (*shape[:at], *[(2, shape[at] // 2), (shape[at] // 2, 2)][rng.integers(2)],
                *shape[at + 1 :])  # fmt: skip
    return (*shape[:at], 1, *shape[at:])


def moved(rng, parts):
    """`parts`, each moved in the same way."""
    shape = parts[0].shape
    kind = rng.choice(["split", "join", "permute", "expand", "shrink", "exp"])
    if kind == "split":
        new = split(rng, shape)
        return [reshape(p, new) for p in parts]
    if kind == "join" and len(shape) > 1:
        at = int(rng.integers(0, len(shape) - 1))
        new = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
        return [reshape(p, new) for p in parts]
    if kind == "permute":
        axes = [int(a) for a in rng.permutation(len(shape))]
        return [permute(p, *axes) for p in parts]
    if kind == "expand" and 1 in shape:
        new = [3 if d == 1 and rng.random() < 0.7 else d for d in shape]
        return [expand(p, new) for p in parts]
    if kind == "shrink":
        bounds = [(0, d) if d == 1 or rng.random() < 0.7 else (1, d) for d in shape]
        return [shrink(p, *bounds) for p in parts]
    return [exp(p) for p in parts] if kind == "exp" and rng.random() < 0.3 else parts


def drawn(rng, memory):
    count = int(rng.integers(2, 5))
    shape = tuple(rng.choice([1, 2, 3, 4, 6], rng.integers(1, 4)).tolist())
    if rng.random() < 0.4:
        return [memory.random(*shape) for _ in range(count)]
    at = int(rng.integers(0, len(shape)))
    size = shape[at]
    whole = memory.random(*shape[:at], size * count + int(rng.integers(0, 2)), *shape[at + 1 :])
    every = [(0, d) for d in shape]
    return [
        shrink(whole, *every[:at], (size * k, size * (k + 1)), *every[at + 1 :])
        for k in (rng.permutation(count).tolist() if rng.random() < 0.2 else range(count))
    ]


@pytest.mark.parametrize("seed", range(400))
def test_parts_moved_alike_come_together(seed):
    rng = np.random.default_rng(seed)
    memory = Memory(seed)
    parts = drawn(rng, memory)
    for _ in range(int(rng.integers(0, 6))):
        parts = moved(rng, parts)
    axis = int(rng.integers(0, len(parts[0].shape)))
    wanted = np.concatenate(evaluate(parts, memory=memory.data), axis)
    [got] = evaluate([side_by_side(parts, axis)], memory=memory.data)
    np.testing.assert_array_equal(got, wanted)




def test_slices_of_a_sequence_are_the_sequence():
    memory = Memory(0)
    x = memory.random(5, 4, 3)
    rows = [
        expand(reshape(shrink(x, (t, t + 1), (0, 4), (0, 3)), (4, 1, 3)), (4, 7, 3))
        for t in range(5)
    ]
    assert not any(n.op in (Op.CAT, Op.SHRINK) for n in toposort([side_by_side(rows, 0)]))
    backwards = side_by_side(rows[::-1], 0)
    assert any(n.op is Op.CAT for n in toposort([backwards]))


# Sums of products


def products(memory, count, rows=64, wide=32):
    return [outer(memory.random(16, rows), memory.random(16, wide)) for _ in range(count)]


def test_a_sum_of_contractions_is_one():
    memory = Memory(1)
    terms = products(memory, 6)
    root = reduce(chained(terms), Op.ADD, 0)
    [joined] = concatenate_products([root], SPEC)
    [product] = sums([joined])
    assert product.op is Op.MUL
    assert product.shape == (6 * 16, 64, 32)
    agree(memory, [root], [joined])


def test_what_is_no_product_of_reused_operands_stays_beside():
    memory = Memory(2)
    terms = products(memory, 5)
    terms.insert(2, memory.random(16, 64, 32))
    root = reduce(chained(terms), Op.ADD, 0)
    [joined] = concatenate_products([root], SPEC)
    assert sorted(x.shape[0] for x in sums([joined])) == [16, 5 * 16]
    agree(memory, [root], [joined])


def test_equal_terms_count_as_often_as_they_are_added():
    memory = Memory(3)
    one, two = products(memory, 2)
    beside = memory.random(16, 64, 32)
    root = reduce(chained([one, two, one, beside, one, beside]), Op.ADD, 0)
    [joined] = concatenate_products([root], SPEC)
    assert joined is not root
    agree(memory, [root], [joined])


def test_terms_that_are_doubled_again_and_again_are_terms():
    """Taken apart, thirty doublings would be a billion terms."""
    memory = Memory(7)
    [total] = products(memory, 1)
    for _ in range(30):
        total = total.alu(Op.ADD, total)
    root = reduce(total, Op.ADD, 0)
    found = concatenate_products([root], SPEC)
    assert sum(1 for _ in toposort(found)) < 100
    agree(memory, [root], found)


def test_a_sum_of_what_lies_side_by_side_reads_that():
    memory = Memory(4)
    factors = [memory.random(16, 64) for _ in range(6)]
    others = [exp(memory.random(16, 32)) for _ in range(6)]
    weight = reduce(chained([outer(a, b) for a, b in zip(factors, others, strict=True)]), Op.ADD, 0)
    bias = reduce(chained(factors), Op.ADD, 0)
    joined = concatenate_products([weight, bias], SPEC)
    cats = [n for n in toposort(joined) if n.op is Op.CAT]
    assert len(cats) == 2
    assert strip(sums(joined)[1]) in cats
    agree(memory, [weight, bias], joined)


def test_what_others_use_or_what_is_little_stays():
    memory = Memory(5)
    small = [outer(memory.random(2, 2), memory.random(2, 2)) for _ in range(3)]
    root = reduce(chained(small), Op.ADD, 0)
    assert concatenate_products([root], SPEC) == [root]
    total = chained(products(memory, 4))
    shared = [reduce(exp(total), Op.MAX, 0), reduce(total, Op.ADD, 0)]
    joined = concatenate_products(shared, SPEC)
    agree(memory, shared, joined)


def test_no_further_index_is_looked_up():
    memory = Memory(6)
    table, picks = memory.random(9, 64), memory.indices(9, 16)
    wide = (16, 64)
    rows = expand(reshape(bound(picks, 9), (16, 1)), wide)
    columns = expand(reshape(iota(64), (1, 64)), wide)
    looked = outer(gather(table, rows, columns), memory.random(16, 32))
    root = reduce(chained([looked, *products(memory, 4)]), Op.ADD, 0)
    [whole] = concatenate_products([root], SPEC)
    assert whole is not root
    part = gather(transpose(root), memory.indices(32, 3), memory.indices(64, 3))
    assert concatenate_products([part], SPEC) == [part]


# Whole programs


def recurrent(steps, rows=16, inputs=24, hidden=32):
    rng = np.random.default_rng(steps)
    x = rng.standard_normal((steps, rows, inputs)).astype(np.float32)
    arrays = [
        (rng.standard_normal(shape) / 6).astype(np.float32)
        for shape in ((inputs, hidden), (hidden, hidden), (hidden,))
    ]

    @krt.jit
    def gradients(x, w, u, b):
        leaves = [t.requires_grad_() for t in (w + 0, u + 0, b + 0)]
        w, u, b = leaves
        h = (x[0] @ w + b).tanh()
        for t in range(1, steps):
            h = (x[t] @ w + h @ u + b).tanh()
        return krt.grad(h.square().sum(), leaves)

    return gradients, (x, *arrays)


def by_hand(x, w, u, b):
    """Backpropagation through time in float64."""
    x, w, u, b = (a.astype(np.float64) for a in (x, w, u, b))
    states = [np.tanh(x[0] @ w + b)]
    for t in range(1, len(x)):
        states.append(np.tanh(x[t] @ w + states[-1] @ u + b))
    dw, du, db, dh = np.zeros_like(w), np.zeros_like(u), np.zeros_like(b), 2 * states[-1]
    for t in reversed(range(len(x))):
        dz = dh * (1 - states[t] ** 2)
        dw += x[t].T @ dz
        db += dz.sum(0)
        if t:
            du += states[t - 1].T @ dz
        dh = dz @ u.T
    return dw, du, db


@pytest.mark.parametrize("steps", [2, 3, 9])
def test_gradients_through_time(steps):
    gradients, arguments = recurrent(steps)
    for got, expected in zip(gradients(*arguments), by_hand(*arguments), strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=2e-4, atol=2e-4)


def test_code_does_not_grow_with_the_steps():
    texts = []
    for steps in (8, 24):
        gradients, arguments = recurrent(steps)
        plan = gradients.plan(*arguments)
        extents = {
            n.src[1].src[0].arg
            for k in plan.kernels
            for n in toposort([k.ast])
            if n.op is Op.REDUCE
        }
        assert steps * 16 in extents
        contractions = [k for k in plan.kernels if k.entry_point.startswith("contract")]
        texts.append(max(len(k.code) for k in contractions))
    assert texts[1] < 1.3 * texts[0]
