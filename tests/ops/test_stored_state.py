"""A lazy tensor that is updated in a loop is state like one with storage."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.tensor import state
from kernelrt.tensor.eager import plan_cache
from kernelrt.tensor.eager.assign import assign_all

STEPS = 12


def batches(n=STEPS):
    rng = np.random.default_rng(3)
    return [rng.standard_normal(8).astype(np.float32) for _ in range(n)]


def plans_made(step, data):
    """How many plans the second half of the steps makes."""
    for i, x in enumerate(data):
        if i == len(data) // 2:
            before = plan_cache.plans.misses
        step(krt.tensor(x))
    return plan_cache.plans.misses - before


@pytest.mark.parametrize(
    "make", [lambda _: krt.zeros(8), krt.zeros_like, lambda _: krt.full((8,), 0.0),
             lambda _: krt.ones(8) - 1, lambda p: p.detach() * 0],
    ids=["zeros", "zeros_like", "full", "folded", "computed"],
)  # fmt: skip
def test_an_optimizer_by_hand_has_one_plan_for_its_steps(make):
    w = krt.ones(8).realize().requires_grad_()
    momentum, mean = make(w), make(w)
    assert not momentum.is_realized

    def step(x):
        nonlocal w
        loss = (w * x).square().sum()
        w.grad = None
        loss.backward()
        with krt.no_grad():
            momentum.assign(0.9 * momentum + 0.1 * w.grad)
            w -= 0.01 * momentum
            mean.assign(0.5 * mean + 0.5 * w)
        loss.item()

    data = batches()
    assert plans_made(step, data) == 0
    assert momentum.is_realized
    p, m, e = np.ones(8), np.zeros(8), np.zeros(8)
    for x in data:
        m = 0.9 * m + 0.1 * 2 * p * x * x
        p = p - 0.01 * m
        e = 0.5 * e + 0.5 * p
    for got, want in ((w, p), (momentum, m), (mean, e)):
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-4, atol=1e-6)


def test_momentum_that_begins_as_a_gradient():
    w = krt.ones(8).realize().requires_grad_()
    kept = []

    def step(x):
        loss = (w * x).sum()
        w.grad = None
        loss.backward()
        with krt.no_grad():
            if kept:
                kept[0].assign(0.5 * kept[0] + w.grad)
            else:
                kept.append(w.grad.clone())
            w.assign(w - kept[0])
        loss.item()

    data = batches()
    assert plans_made(step, data) == 0
    m = 0
    for x in data:
        m = 0.5 * m + x
    np.testing.assert_allclose(kept[0].numpy(), m, rtol=1e-4, atol=1e-6)


UPDATES = {
    "a sum": lambda q, x: q.assign(q + x),
    "copy_": lambda q, x: q.copy_(x + q),
    "every other element": lambda q, x: q.__setitem__(slice(None, None, 2), (q + x)[::2]),
    "where a mask selects": lambda q, x: q.__setitem__(x > 0, 1),
}


@pytest.mark.parametrize("update", UPDATES)
def test_what_reads_it_has_one_plan(update):
    q, w = krt.zeros(8), krt.zeros(8).realize()

    def step(x):
        UPDATES[update](q, x)
        w.assign(w + q)
        x.sum().item()

    assert plans_made(step, batches()) == 0
    assert q.is_realized


def test_a_parameter_that_was_not_computed_yet():
    w = krt.ones(8, requires_grad=True)
    with krt.no_grad():
        v = w
        v -= 0.5
    assert v is w
    assert w.is_realized
    assert w.requires_grad
    assert w.is_leaf
    w.sum().backward()
    assert w.grad.tolist() == [1] * 8
    assert w.tolist() == [0.5] * 8


def test_two_that_are_made_of_each_other():
    a, b, w = krt.tensor([1.0, 2.0]) + 0, krt.tensor([3.0, 4.0]) * 1, krt.zeros(2).realize()
    a, b = a * 2, b * 2

    def step(x):
        assign_all([(a, b + x[:2]), (b, a - x[:2])])
        w.assign(w + a)
        x.sum().item()

    assert plans_made(step, batches()) == 0


def test_a_value_that_cannot_be_computed_leaves_the_old_one():
    q, other = krt.zeros(3), krt.zeros(3)
    other.assign(other + 1)
    q.assign(q + krt.tensor([1.0, 2.0])[krt.tensor([0, 7, 1])])
    with pytest.raises(krt.IndexBoundsError, match="index 7"):
        q.numpy()
    assert not state.pending
    assert [q.tolist(), other.tolist()] == [[0] * 3, [1] * 3]


def test_an_old_value_that_cannot_be_computed_is_told_by_the_assignment():
    q = krt.tensor([1.0, 2.0])[krt.tensor([0, 7, 1])] * 2
    with pytest.raises(krt.IndexBoundsError, match="index 7"):
        q.assign(q + 1)
    assert not state.pending
    q.assign(krt.ones(3))
    assert q.tolist() == [1] * 3


def test_what_is_merely_replaced_is_not_computed():
    q, data = krt.tensor([1.0, 2.0]).realize() * 3, krt.tensor([5.0, 6.0])
    q.assign(data)
    q.zero_()
    q.fill_(4)
    assert not q.is_realized
    assert q.tolist() == [4, 4]


def test_others_keep_the_values_they_were_written_down_with():
    q = krt.zeros(2)
    before = q + 1
    q.assign(q + 5)
    between = q * 2
    q.assign(q + 5)
    assert [before.tolist(), between.tolist(), q.tolist()] == [[1, 1], [10, 10], [10, 10]]


def test_a_history_ends_where_a_value_is_assigned():
    w = krt.ones(2, requires_grad=True).realize()
    y = w * 2
    loss = (y * y).sum()
    y.assign(y + 1)
    assert not y.requires_grad
    assert y.tolist() == [3, 3]
    loss.backward()
    assert w.grad.tolist() == [8, 8]


def test_in_a_traced_function_nothing_is_stored():
    @krt.jit
    def f(x):
        q = krt.zeros(3)
        q.assign(q + x)
        q.assign(q * 2)
        return q

    for k in range(3):
        assert f(krt.full((3,), k + 1.0)).tolist() == [2 * k + 2] * 3


def test_sizes_that_are_open_stay_open():
    n = krt.Variable("n", 1, 8)
    x, total = krt.ones(n), krt.zeros(())
    total.assign(total + x.sum())
    x.assign(x + 1)
    assert not state.pending
    assert not total.is_realized
    plan = krt.prepare(total, x.sum())
    for k in (2, 5):
        plan.execute_with_vars(n=k)
        assert [float(b.numpy().ravel()[0]) for b in plan.output_buffers] == [k, 2 * k]
