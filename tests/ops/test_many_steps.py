"""Costs that must not grow from step to step, and graphs of thousands of unread operations."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.native.write_barrier import count_looks, forget_history
from kernelrt.tensor import state

#: Looks that a step costs at most; a graph that is walked anew costs as many as there were steps.
FEW = 8


def stepper():
    w = krt.zeros(3).realize()

    @krt.jit
    def step(x):
        w.assign(w + x)
        return (w * x).sum()

    return step


def costs(body, steps=40) -> list[int]:
    # Memory that earlier tests wrote, and lazy tensors that they left, are looked at, too.
    gc.collect()
    forget_history()
    out = []
    for i in range(steps):
        before = count_looks()
        body(i)
        out.append(count_looks() - before)
    return out


def test_a_total_of_losses_is_not_walked_again_in_each_step():
    step, x = stepper(), np.ones(3, np.float32)
    total = [krt.zeros(())]

    def body(i):
        total[0] = total[0] + step(x)

    each = costs(body)
    assert max(each[20:]) <= FEW
    assert total[0].item() == sum(3.0 * (i + 1) for i in range(40))


def test_totals_of_two_plans_that_take_turns():
    first, second, x = stepper(), stepper(), np.ones(3, np.float32)
    total = [krt.zeros(())]

    def body(i):
        total[0] = total[0] + (first if i % 2 else second)(x)

    each = costs(body)
    assert max(each[20:]) <= FEW
    assert total[0].item() == 2 * sum(3.0 * (i + 1) for i in range(20))


def test_a_total_beside_eager_assignments():
    w, v = krt.zeros(3).realize(), krt.ones(3).realize()
    total = [krt.zeros(())]

    def body(i):
        w.assign(w + 1)
        krt.realize()
        total[0] = total[0] + v.sum() * 2

    each = costs(body)
    assert max(each[20:]) <= FEW
    assert total[0].item() == 240


def test_a_total_that_reads_state_keeps_its_old_values():
    w = krt.zeros(3).realize()

    @krt.jit
    def step(x):
        w.assign(w + x)

    total = krt.zeros(())
    for _ in range(10):
        total = total + w.sum()
        step(np.ones(3, np.float32))
    assert total.item() == 3 * sum(range(10))


def test_a_long_total_is_computed_in_pieces_of_one_structure():
    """Of any length; the graph of the whole would be compiled for this length alone."""
    from kernelrt.tensor import base
    from kernelrt.tensor.eager.plan_cache import plans

    step, x = stepper(), np.ones(3, np.float32)
    total = krt.zeros(())
    for i in range(3 * base.MOST_DEPTH):
        if i == 2 * base.MOST_DEPTH:
            misses = plans.misses
        total = total + step(x)
        assert total._uop is None or total._uop.depth <= base.MOST_DEPTH
    assert plans.misses == misses
    assert total.item() == sum(3.0 * (i + 1) for i in range(3 * base.MOST_DEPTH))


def recurrence(xp, w, start, turns, tanh, sigmoid):
    """Two values that a loop carries, and one that it keeps of each turn."""
    h = c = start
    kept = []
    for i in range(turns):
        gate = sigmoid(h @ w)
        c = c * gate + tanh(h + c) * (1 - gate) * (1 / (i + 1))
        h = tanh(c) * gate
        kept.append(h.sum())
    return h, c, xp.stack(kept)


@pytest.mark.cases(1 / 4)
def test_a_loop_that_reads_nothing_is_computed_in_pieces_of_one_structure():
    from kernelrt.tensor.eager.plan_cache import plans

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 8)) / 4
    w = krt.tensor(weight)
    for round_ in range(3):
        start = rng.standard_normal((4, 8))
        before = plans.misses
        got = recurrence(krt, w, krt.tensor(start), 60, krt.tanh, krt.sigmoid)
        assert got[0]._uop is None or got[0]._uop.depth <= 128
        wanted = recurrence(np, weight, start, 60, np.tanh, lambda x: 1 / (1 + np.exp(-x)))
        for ours, theirs in zip(got, wanted, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, 1e-12, 1e-12)
        if round_:
            assert plans.misses == before


@pytest.mark.cases(1 / 4)
def test_a_loop_that_gradients_flow_through_is_not_cut():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    weight, start = rng.standard_normal((8, 8)) / 4, rng.standard_normal((4, 8))
    slopes = []
    for xp in (krt, torch):
        w = xp.tensor(weight, requires_grad=True)
        h, _, kept = recurrence(xp, w, xp.tensor(start), 20, xp.tanh, xp.sigmoid)
        assert xp is torch or h._uop.depth > 128
        (h.sum() + kept.sum()).backward()
        slopes.append(w.grad.numpy())
    np.testing.assert_allclose(*slopes, 1e-10, 1e-10)


def test_thousands_of_unread_operations():
    x = krt.tensor(np.ones(3))
    y = x
    for i in range(2000):
        y = y + x if i % 2 else y * 1.0
    assert len(state.watched) >= 1
    kept = [x * float(i) for i in range(1500)]
    z = krt.tensor(np.zeros(3))
    z.assign(z + 1)
    assert z.tolist() == [1, 1, 1]
    assert kept[7].tolist() == [7, 7, 7]
    del y
