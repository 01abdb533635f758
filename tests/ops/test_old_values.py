"""Random eager programs that read old values beside assignments, against copies in NumPy.

What was written down before an assignment reads what was there before it, whichever operation
combines the two and in whatever order its operands come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import GradientError
from kernelrt.tensor import state

if TYPE_CHECKING:
    from collections.abc import Callable

N = 3

#: Operations on two or three square matrices, with their equals in NumPy.
COMBINE: dict[str, tuple[int, Callable, Callable]] = {
    "add": (2, lambda a, b: a + b, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b, lambda a, b: a - b),
    "rsub": (2, lambda a, b: b.__rsub__(a), lambda a, b: a - b),
    "maximum": (2, lambda a, b: a.maximum(b), np.maximum),
    "matmul": (2, lambda a, b: a @ b / N, lambda a, b: a @ b / N),
    "linear": (3, lambda a, b, c: a.linear(b, c[0]) / N, lambda a, b, c: (a @ b.T + c[0]) / N),
    "cat": (2, lambda a, b: krt.cat([a, b])[1 : N + 1], lambda a, b: np.vstack([a, b])[1 : N + 1]),
    "stack": (3, lambda *t: krt.stack(t).sum(0), lambda *t: np.sum(t, 0)),
    "where": (3, lambda a, b, c: krt.where(a < b, b, c), lambda a, b, c: np.where(a < b, b, c)),
    "masked": (3, lambda a, b, c: c.masked_fill(a > b, 2), lambda a, b, c: np.where(a > b, 2, c)),
    "pow": (2, lambda a, b: (a.abs() + 1) ** b.tanh(), lambda a, b: (abs(a) + 1) ** np.tanh(b)),
    "clamp": (3, lambda a, b, c: a.clamp(b, c), lambda a, b, c: np.where(
        np.where(a < b, b, a) > c, c, np.where(a < b, b, a))),
    "lerp": (3, lambda a, b, c: a.lerp(b, c), lambda a, b, c: a + c * (b - a)),
    "mse": (2, lambda a, b: a * 0 + a.mse_loss(b), lambda a, b: a * 0 + ((a - b) ** 2).mean()),
    "l1": (2, lambda a, b: a * 0 + a.l1_loss(b), lambda a, b: a * 0 + abs(a - b).mean()),
    "gather": (2, lambda a, b: a.gather(1, (b > 0).long()), lambda a, b: np.take_along_axis(
        a, (b > 0).astype(np.int64), 1)),
    "index": (2, lambda a, b: a[(b[0] > 0).long()], lambda a, b: a[(b[0] > 0).astype(np.int64)]),
    "divide": (2, lambda a, b: a / (b * b + 1), lambda a, b: a / (b * b + 1)),
    "mod": (2, lambda a, b: a % (b.abs() + 1), lambda a, b: a % (abs(b) + 1)),
}  # fmt: skip


class Session:
    """Tensors and their values; each step makes a tensor or changes one."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pairs = [self.fresh() for _ in range(3)]
        self.made = [[t, v.copy()] for t, v in self.pairs]

    def fresh(self) -> list:
        value = self.rng.uniform(-2, 2, (N, N))
        return [krt.tensor(value), value]

    def pick(self, count: int) -> tuple[list, list]:
        chosen = [self.made[i] for i in self.rng.integers(len(self.made), size=count)]
        return [t for t, _ in chosen], [v for _, v in chosen]

    def step(self) -> None:
        kind = self.rng.integers(10)
        if kind < 4:
            self.combine()
        elif kind < 6:
            (source,), (value,) = self.pick(1)
            self.made.append([source.clone(), value.copy()])
        elif kind < 9:
            self.assign()
        else:
            (read,), (value,) = self.pick(1)
            np.testing.assert_allclose(read.numpy(), value, rtol=1e-9, atol=1e-9)

    def combine(self) -> None:
        names = list(COMBINE)
        count, ours, theirs = COMBINE[names[self.rng.integers(len(names))]]
        tensors, values = self.pick(count)
        result = np.clip(theirs(*values), -3, 3)
        self.made.append([ours(*tensors).clamp(-3, 3), result])

    def assign(self) -> None:
        target = self.made[self.rng.integers(len(self.made))]
        (source,), (value,) = self.pick(1)
        how = self.rng.integers(4)
        if how == 0:
            target[0].assign(source)
            target[1] = value.copy()
        elif how == 1:
            target[0].assign(target[0] * 0.5 + source)
            target[1] = target[1] * 0.5 + value
        elif how == 2:
            target[0][1] = source[0]
            target[1] = target[1].copy()
            target[1][1] = value[0]
        else:
            target[0].fill_(0.25)
            target[1] = np.full((N, N), 0.25)
        np.clip(target[1], -3, 3, out=target[1])
        target[0].assign(target[0].clamp(-3, 3))

    def check(self) -> None:
        for i in self.rng.permutation(len(self.made)):
            tensor, value = self.made[i]
            np.testing.assert_allclose(tensor.numpy(), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    session = Session(seed)
    for _ in range(30):
        session.step()
    session.check()
    assert not state.pending


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", COMBINE)
def test_every_operation_reads_the_old_value(name, reverse):
    count, ours, theirs = COMBINE[name]
    rng = np.random.default_rng(3)
    was, new = rng.uniform(-2, 2, (2, N, N))
    w = krt.tensor(was)
    old = [w.clone(), w * 1, w.t().clone().t()][:count]
    w.assign(new)
    tensors, values = [*old[: count - 1], w], [*[was] * (count - 1), new]
    if reverse:
        tensors.reverse()
        values.reverse()
    np.testing.assert_allclose(ours(*tensors).numpy(), theirs(*values), rtol=1e-9)


@pytest.mark.parametrize("make", [
    lambda p: nn.optim.SGD(p, 0.1), lambda p: nn.optim.SGD(p, 0.1, 0.9, nesterov=True),
    lambda p: nn.optim.Adam(p, 0.1), lambda p: nn.optim.AdamW(p, 0.1),
])  # fmt: skip
def test_weights_before_a_step_beside_those_after_it(make):
    krt.manual_seed(1)
    layer = nn.Linear(3, 2)
    opt = make(list(layer.parameters()))
    for _ in range(3):
        before = [p.detach().clone() for p in layer.parameters()]
        copies = [p.numpy().copy() for p in layer.parameters()]
        opt.zero_grad()
        layer(krt.ones(4, 3)).square().mean().backward()
        opt.step()
        moved = [b - p for b, p in zip(before, layer.parameters(), strict=True)]
        for change, copy, p in zip(moved, copies, layer.parameters(), strict=True):
            np.testing.assert_allclose(change.numpy(), copy - p.numpy(), rtol=1e-6)
            assert np.abs(change.numpy()).max() > 1e-4


def test_a_step_is_one_plan():
    """No update is computed on its own because another parameter changes first."""
    from kernelrt.tensor.eager import plan_cache

    layer = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    opt = nn.optim.Adam(list(layer.parameters()))
    plan_cache.plans.clear()
    before = plan_cache.plans.misses
    layer(krt.ones(4, 3)).square().mean().backward()
    opt.step()
    krt.realize()
    assert plan_cache.plans.misses - before == 1, "the plan of the step is the optimizer's own"


def test_a_history_over_data_that_change_is_stale_before_it_is_used():
    """The kept history of one operand goes stale where another operand is committed."""
    w = krt.tensor([1.0, 2.0], requires_grad=True)
    h = (w * w).realize()
    w.assign(w * 10)
    with pytest.raises(GradientError, match="assigned since"):
        (h * w).sum().backward()


def test_gradients_that_are_added_to_what_they_are_computed_from():
    """The second gradient reads the first one's storage, which accumulation changes."""
    a = krt.tensor([1.0, 2.0], requires_grad=True)
    b = krt.tensor([3.0, 4.0], requires_grad=True)
    (a * b).sum().backward()
    krt.realize(a.grad, b.grad)
    (a * a.grad + b * a.grad * 2).sum().backward()
    assert a.grad.tolist() == [6, 8]
    assert b.grad.tolist() == [1 + 6, 2 + 8]


def test_preparing_a_reader_beside_the_assigned_tensor():
    w = krt.tensor([1.0, 2.0])
    twice = w * 2
    w.assign(w + 1)
    plan = krt.prepare(twice, w)
    plan.execute()
    assert [b.numpy().tolist() for b in plan.output_buffers] == [[2, 4], [2, 3]]
    assert w.tolist() == [2, 3]


@pytest.mark.parametrize("index", [0, slice(1, 3), slice(None, None, 2), ..., [True, False, True]])
def test_a_part_of_a_result_is_assigned_to(index):
    w = krt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (w * 2).realize()
    z = (w * 2).realize()
    z[index] = 5
    (z * z + w).sum().backward()
    hit = np.array(z.tolist()) == 5
    assert w.grad.tolist() == np.where(hit, 1, [9, 17, 25]).tolist()
    free = y.detach().clone()
    free[index] = 5
    with krt.no_grad():
        w[index] = 5
    assert free.tolist() == [5 if v == 5 else 2 * k + 2 for k, v in enumerate(w.tolist())]
    assert y.tolist() == [2, 4, 6]
    with krt.no_grad():
        y[index] = 5
    assert y.tolist() == free.tolist()


def test_what_is_left_to_a_plan_reads_no_later_assignment():
    t, o, last = (krt.tensor([1.0, 2.0]).realize() for _ in range(3))
    last.assign(o * 10)
    o.assign(t + 1)
    t.assign(t * 2)
    plan = krt.prepare(last, o)
    for _ in range(2):
        plan.execute()
        assert [last.tolist(), o.tolist(), t.tolist()] == [[10, 20], [2, 3], [2, 4]]


def test_what_is_left_to_a_plan_can_wait_for_its_like():
    t, o = (krt.tensor([1.0, 2.0]).realize() for _ in range(2))
    o.assign(t + 1)
    t.assign(t * 2)
    plan = krt.prepare(o, t)
    for expected in ([2, 3], [2, 4]), ([3, 5], [4, 8]):
        plan.execute()
        assert (o.tolist(), t.tolist()) == expected


def test_what_is_left_to_a_plan_does_not_undo_a_later_assignment():
    memory = np.zeros(4, np.float32)
    left, right = krt.from_numpy(memory[:3]), krt.from_numpy(memory[1:])
    left.assign(krt.full((3,), 1.0))
    right.assign(krt.full((3,), 2.0))
    krt.prepare(left).execute()
    assert memory.tolist() == [1, 2, 2, 2]
