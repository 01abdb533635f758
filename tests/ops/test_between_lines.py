"""Code that comes in between any two lines, as a finalizer does, and computes and assigns, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.between import Between

import kernelrt as krt
from kernelrt import nn
from kernelrt.tensor import state
from kernelrt.tensor.eager import plan_cache

OURS = tuple(str(Path(krt.__file__).parent / name) for name in ("tensor", "jit", "nn"))
X = np.arange(3, dtype=np.float32)
#: Memory that is written for the first time is new only as long as nobody else gets it again.
ALIVE: list[krt.Tensor] = []


class Trained:
    """A jitted sum, a jitted training and an eager optimizer, and what their state has to be."""

    def __init__(self):
        self.total = krt.zeros(3).realize()
        self.param = krt.tensor(np.zeros(3, np.float32), requires_grad=True)
        self.weight = krt.tensor(np.zeros(3, np.float32), requires_grad=True)
        self.optimizer = nn.optim.SGD([self.param], 0.5)
        inner = nn.optim.SGD([self.weight], 0.5)
        self.sums = self.steps = self.trainings = 0

        @krt.jit
        def add(x):
            self.total.assign(self.total + x)
            return (self.total * x).sum()

        @krt.jit
        def train(x):
            inner.zero_grad()
            loss = (self.weight * x).sum()
            loss.backward()
            inner.step()
            return loss

        self.add, self.train = add, train
        self.call()
        self.fit()
        self.step()

    def call(self):
        got = self.add(X)
        self.sums += 1
        assert got.item() == self.sums * 5

    def fit(self):
        got = self.train(X)
        self.trainings += 1
        assert got.item() == -2.5 * (self.trainings - 1)

    def step(self):
        self.param.grad = krt.from_numpy(X)
        self.optimizer.step()
        self.steps += 1

    def check(self):
        np.testing.assert_array_equal(self.total.numpy(), X * self.sums)
        np.testing.assert_array_equal(self.param.numpy(), X * self.steps * -0.5)
        np.testing.assert_array_equal(self.weight.numpy(), X * self.trainings * -0.5)


@pytest.fixture(scope="module")
def trained():
    return Trained(), Trained()


class Program:
    """Tensors, what works with them, what comes in between, and what they are in the end."""

    def __init__(self, more, trained):
        self.x = krt.from_numpy(X.copy())
        self.w = krt.tensor([0.0, 1.0, 3.0], requires_grad=True)
        self.other = krt.zeros(2).realize()
        ALIVE.append(self.other)
        self.more = more
        self.mine, self.yours = trained
        self.first = self.x * 2 + more
        self.second = self.first * self.x
        self.third = self.second + self.first
        self.fourth = (self.third * self.second + self.first).sum()
        with krt.no_grad():
            self.w.assign(self.w + 1)
        krt.realize()  # from here on it is known which of the above read nothing that changes
        self.before = self.w.detach().clone()
        self.old = self.before * 3
        self.older = self.old * self.first
        self.product = self.w * self.x
        self.loss = self.product.sum()
        self.penalty = (self.w * 5).sum()
        self.sights = [(t * 2, t.numpy() * 2) for m in trained
                       for t in (m.total, m.param.detach(), m.weight.detach())]  # fmt: skip
        krt.manual_seed(more)
        self.drawn = []

    def one(self):
        self.first.realize()

    def later(self):
        self.second.realize()

    def both(self):
        krt.realize(self.first, self.second)

    def assign(self):
        with krt.no_grad():
            self.w.assign(self.w + 1)
        krt.realize()

    def read_pending(self):
        with krt.no_grad():
            self.w.assign(self.w + 1)
            both = self.before + self.w
        np.testing.assert_array_equal(both.numpy(), [3, 5, 9])

    def backward(self):
        self.loss.backward()

    def penalize(self):
        self.penalty.backward()

    def everything(self):
        krt.realize(self.old, self.product, self.loss, self.first, self.fourth)

    def draw(self):
        self.drawn.append(krt.rand(4).numpy())

    def look(self):
        for t in (self.mine.total, self.mine.param.detach(), self.mine.weight.detach()):
            self.sights.append((t * 2, t.numpy() * 2))

    def count(self):
        self.other.assign(self.other + 1)
        krt.realize()

    def pend(self):
        self.other.assign(self.other + 1)

    def count_and_read(self):
        self.pend()
        self.later()
        assert self.other.tolist() == [1, 1]
        assert self.fourth.item() == self.sum()

    def call(self):
        self.mine.call()

    def fit(self):
        self.mine.fit()

    def step(self):
        self.mine.step()

    def call_other(self):
        self.yours.call()

    def fit_other(self):
        self.yours.fit()

    def step_other(self):
        self.yours.step()

    def sum(self):
        first = X * 2 + self.more
        return ((first * X + first) * (first * X) + first).sum()

    def check(self, works):
        first = X * 2 + self.more
        np.testing.assert_array_equal(self.first.numpy(), first)
        np.testing.assert_array_equal(self.second.numpy(), first * X)
        assert self.fourth.item() == self.sum()
        np.testing.assert_array_equal(self.old.numpy(), [3, 6, 12])
        np.testing.assert_array_equal(self.older.numpy(), np.array([3, 6, 12]) * first)
        np.testing.assert_array_equal(self.product.numpy(), [0, 2, 8])
        assert self.loss.item() == 10
        changes = sum(w in (Program.assign, Program.read_pending) for w in works)
        np.testing.assert_array_equal(self.w.numpy(), np.array([1, 2, 4]) + changes)
        slope = X * works.count(Program.backward) + 5 * works.count(Program.penalize)
        if slope.any():
            np.testing.assert_array_equal(self.w.grad.numpy(), slope)
        counts = sum(w in (Program.count, Program.pend, Program.count_and_read) for w in works)
        assert self.other.tolist() == [counts] * 2
        for sight, want in self.sights:
            np.testing.assert_array_equal(sight.numpy(), want)
        self.mine.check()
        self.yours.check()
        if self.drawn:
            krt.manual_seed(self.more)
            want = krt.rand(4 * len(self.drawn)).numpy()
            got = sorted(map(tuple, self.drawn))
            assert got == sorted(map(tuple, want.reshape(-1, 4)))
        assert not state.pending
        assert state.changing is None


WORKS = [
    Program.one, Program.both, Program.assign, Program.read_pending, Program.backward,
    Program.everything, Program.draw, Program.call, Program.fit, Program.step,
]  # fmt: skip
ACTS = [
    Program.both, Program.everything, Program.penalize, Program.draw, Program.look, Program.count,
    Program.pend, Program.count_and_read, Program.call_other, Program.fit_other,
    Program.step_other,
]  # fmt: skip
#: So many lines lie between two that an act comes before.
STRIDE = 29


@pytest.mark.cases(1)
@pytest.mark.filterwarnings("ignore::kernelrt.EagerLoopWarning")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("work", WORKS)
def test_code_between_any_two_lines(work, act, trained):
    # Acts and works differ in where they begin, so that few lines are left out by all.
    at, lines = (ACTS.index(act) + 5 * WORKS.index(work)) % STRIDE, STRIDE
    while at <= lines:
        program = Program(at % 7, trained)
        with Between(lambda program=program: act(program), at, OURS) as between:
            work(program)
        lines = between.lines
        program.check([work, act] if between.done else [work])
        at += STRIDE
    ALIVE.clear()


def test_graphs_that_differ_in_numbers_between_any_two_lines():
    x = krt.from_numpy(X.copy())

    def compute(a, b):
        np.testing.assert_array_equal((x * a + b).numpy(), X * a + b)

    at, lines = 0, 0
    while at <= lines:
        plan_cache.plans.clear()
        for i in range(4):
            compute(1.5 + i, 0.5)
        with Between(lambda: compute(2.5, 7.5), at, OURS) as between:
            compute(9.5, 0.5)  # so far only one of the numbers has varied
        for i in range(3):
            compute(3.5 + i, 8.5 + i)
            compute(4.5, 0.5)
        lines = between.lines
        at += 2


def test_what_reads_no_assignment_is_asked_again_after_one_between_any_two_lines():
    at, lines = 0, 0
    while at <= lines:
        w, other = krt.zeros(3).realize(), krt.zeros(3).realize()
        before = other.detach().clone()
        first = before * 2 + 1
        w.assign(w + 1)
        with Between(lambda other=other: other.assign(other + 1), at, OURS) as between:
            second = first * np.float32(3)  # a number of Python takes no line
        assert (before + other).tolist() == [between.done] * 3
        assert second.tolist() == [3, 3, 3]
        lines = between.lines
        at += 1


@pytest.mark.parametrize("act", [lambda x: x.tolist(), lambda x: x.assign(x + 1), lambda x: x[1:]],
                         ids=["read", "assign", "view"])  # fmt: skip
@pytest.mark.parametrize("view", [
    lambda x: x[1], lambda x: x[1:], lambda x: x.reshape(3, 1), lambda x: x.reshape(1, 3).T[2],
    lambda x: x.detach()[0], lambda x: x[krt.tensor(2)],
])  # fmt: skip
def test_a_view_shows_its_root_whatever_comes_between_any_two_lines(view, act):
    at, lines, stride = 0, 0, 3
    while at <= lines:
        x = krt.tensor(X) * 2 + 1
        with Between(lambda x=x: act(x), at, OURS) as between:
            shown = view(x)
            shown.tolist()
        lines = between.lines
        x.assign(x * 10)
        want = view(krt.tensor(x.numpy())).tolist()
        assert shown.tolist() == want, at
        shown.add_(1)
        assert view(x).tolist() == shown.tolist(), at
        at += stride
    ALIVE.clear()
