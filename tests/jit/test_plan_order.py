"""Jitted functions: what meets in memory is ordered, and checks come before commits."""

from __future__ import annotations

import numpy as np
import pytest
from support.plan_order import check_order

import kernelrt as krt
from kernelrt import nn


def lasting(plan):
    """Addresses of all that was given to a plan."""
    return [
        (b.address, b.address + b.nbytes) for i, b in enumerate(plan.buffers) if not plan.owns(i)
    ]


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 16)
        self.inner = nn.Linear(16, 24)
        self.norm = nn.LayerNorm(24)
        self.outer = nn.Linear(24, 5)

    def forward(self, x):
        return self.outer(self.norm(self.inner(self.table(x)).tanh()).mean(1))


@pytest.mark.cases(1)
@pytest.mark.parametrize("optimizer", [nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW])
@pytest.mark.parametrize("steps", [1, 4])
def test_training_with_indices_that_are_checked(optimizer, steps):
    krt.manual_seed(3)
    model = Words()
    opt = optimizer(model.parameters(), lr=0.01)

    @krt.jit
    def train(x, y):
        for i in range(steps):
            opt.zero_grad()
            loss = model(x[i]).cross_entropy(y[i])
            loss.backward()
            opt.step()
        return loss

    x, y = np.zeros((steps, 6, 7), np.int64), np.zeros((steps, 6), np.int64)
    plan = train.plan(x, y)
    met, held = check_order(plan, lasting(plan))
    assert met >= len(plan.prepared_ops) - 1
    assert held >= 5  # the table, and weights and biases


def test_training_of_convolutions():
    krt.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 3))
    opt = nn.optim.Adam(model.parameters(), lr=0.01)

    @krt.jit
    def train(x, y):
        opt.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        opt.step()
        return loss

    plan = train.plan(np.zeros((5, 1, 8, 8), np.float32), np.zeros(5, np.int64))
    check_order(plan, lasting(plan))


def test_state_that_is_moved_about():
    a, b = krt.tensor(np.arange(8.0)), krt.tensor(np.ones(8))

    @krt.jit
    def step(i):
        old = a * 1
        a.assign(b.flip(0))
        b.assign(old + b[i])
        return old.sum()

    plan = step.plan(np.int64([3]))
    met, held = check_order(plan, lasting(plan))
    assert met
    assert held == 2


@pytest.mark.parametrize("rows", [3, 40])
def test_a_whole_pass_over_rows_of_state(rows):
    state = krt.tensor(np.zeros((rows, 16), np.float32))

    @krt.jit
    def sweep(x):
        for i in range(1, min(rows, 12)):
            state[i] = state[i - 1] * 0.5 + x
        return state.sum()

    plan = sweep.plan(np.zeros(16, np.float32))
    check_order(plan, lasting(plan))
