"""An index that is looked up again, as in the gradient of a lookup, is checked once.

What only seems to be the same is checked on its own: a part of it was checked, another axis is
shorter, or what checked it comes later.
"""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import IndexBoundsError
from kernelrt.ir import Op, toposort

ROWS, WIDTH = 9, 4


def failing(jitted, *args):
    """Launches of a plan that may end a run."""
    launches = jitted.plan(*args).prepared_kernels
    return sum(any(u.op is Op.BOUND for u in toposort([k.ast])) for k in launches)


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    table = rng.integers(-4, 5, (ROWS, WIDTH)).astype(np.float32)
    weight = rng.integers(-4, 5, (WIDTH, WIDTH)).astype(np.float32)
    return rng, table, weight


def training(table, weight):
    """A step with a lookup, whose table and whose layer learn."""
    e, w = (krt.tensor(a.copy()).requires_grad_() for a in (table, weight))
    optimizer = krt.optim.SGD([e, w], lr=0.5)

    @krt.jit
    def step(index):
        optimizer.zero_grad()
        loss = (e[index].relu() @ w).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return step, e, w


def learned(table, weight, index):
    """What that step makes of both, in float64."""
    e, w = table.astype(np.float64), weight.astype(np.float64)
    looked = e[index]
    x = np.maximum(looked, 0)
    out = x @ w
    towards_e = np.zeros_like(e)
    np.add.at(towards_e, index, (2 * out @ w.T) * (looked > 0))
    rows = x.reshape(-1, WIDTH)
    return e - 0.5 * towards_e, w - 0.5 * rows.T @ (2 * out).reshape(-1, WIDTH)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (1,), (2, 1, 3)])
def test_the_gradient_of_a_lookup_checks_nothing_again(shape):
    rng, table, weight = arrays()
    step, e, w = training(table, weight)
    index = rng.integers(-ROWS, ROWS, shape)
    step(index)
    assert failing(step, index) == 1
    expected = learned(table, weight, index)
    np.testing.assert_array_equal(e.numpy(), expected[0])
    np.testing.assert_array_equal(w.numpy(), expected[1])


@pytest.mark.parametrize("wrong", [ROWS, -ROWS - 1, 2**40, -(2**62)])
def test_a_wrong_index_leaves_all_as_it_was(wrong):
    rng, table, weight = arrays()
    step, e, w = training(table, weight)
    index = rng.integers(0, ROWS, 6)
    index[rng.integers(6)] = wrong
    with pytest.raises(IndexBoundsError):
        step(index)
    np.testing.assert_array_equal(e.numpy(), table)
    np.testing.assert_array_equal(w.numpy(), weight)


def test_a_part_that_was_checked_says_nothing_of_the_rest():
    """Of `x[i][1:]` the first index is never looked at, but the gradient of another use is."""

    @krt.jit
    def step(x, index, gained):
        part = x[index][1:].sum()
        return krt.zeros(ROWS).scatter_add(0, index, gained * part)

    x, gained = np.ones((ROWS, WIDTH), np.float32), np.ones(4, np.float32)
    step(x, np.array([1, 2, 3, 4]), gained)
    with pytest.raises(IndexBoundsError):
        step(x, np.array([ROWS, 2, 3, 4]), gained)


def test_a_shorter_axis_is_checked_on_its_own():
    @krt.jit
    def step(long, short, index):
        first = long[index].sum()
        added = krt.zeros(3).scatter_add(0, index, first.expand(4))
        return (short[index] * first).sum() + added.sum()

    long, short = np.ones(9, np.float32), np.ones(4, np.float32)
    step(long, short, np.array([0, 1, 2, 2]))
    for wrong in (3, 4, 9):
        with pytest.raises(IndexBoundsError):
            step(long, short, np.array([0, wrong, 2, 2]))


def test_what_does_not_wait_for_a_check_makes_its_own():
    @krt.jit
    def step(x, index):
        return x[index].sum(), krt.zeros(ROWS).scatter_add(0, index, krt.ones(4))

    x = np.ones(ROWS, np.float32)
    step(x, np.array([0, 1, 2, 3]))
    assert failing(step, x, np.array([0, 1, 2, 3])) >= 1
    with pytest.raises(IndexBoundsError):
        step(x, np.array([0, 1, ROWS, 3]))
