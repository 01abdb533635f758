"""An operation that code comes into the middle of was written before that code, or after it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.between import Between

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import GradientError, PlanBusyError
from kernelrt.tensor import state
from kernelrt.tensor.operation import operation

OURS = tuple(str(Path(krt.__file__).parent / name) for name in ("tensor", "nn"))
#: At most so many lines lie between two that an act comes before.
STRIDE = 11


class Program:
    """`w` is what the code in between assigns to; `y` is computed from it and has no data yet."""

    def __init__(self):
        self.w = krt.from_numpy(np.float32([[0.5, -1], [2, 0.25]]))
        self.v = krt.from_numpy(np.float32([[3, 1], [-2, 4]]))
        self.mean, self.variance = krt.zeros(2).realize(), krt.ones(2).realize()
        self.labels = krt.from_numpy(np.array([1, 0]))
        self.p = krt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        self.optimizer = nn.optim.Adam([self.p], 0.1)
        self.y = self.w + 1
        self.rows = list(self.w)
        self.p.grad = self.w * 4
        krt.manual_seed(5)
        self.layer = nn.Linear(2, 2)
        self.values = {"weight": self.y, "bias": self.w[0]}

    def seen(self):
        grad = self.p.grad
        found = [self.w, self.v, self.mean, self.variance, self.y, self.p, *self.layer.parameters()]
        if grad is not None:
            found.append(grad)
        return [t.detach().numpy() for t in found]


def assign(m):
    m.w.assign(m.w + 100)


def commit(m):
    m.w.assign(m.w + 100)
    krt.realize()


def read(m):
    m.w.assign(m.w * m.y)
    assert m.w.numpy().shape == (2, 2)


def write_a_part(m):
    m.w[0] = m.w[1] * 50


def update(m):
    m.w += 7
    m.v.realize()


ACTS = [assign, commit, read, write_a_part, update]


def renew(m):
    m.v.assign(m.y)


def set_a_part(m):
    m.v[1] = m.y[0]


def train(m):
    return m.y.batch_norm(m.mean, m.variance, training=True)


def backward(m):
    (m.p * m.y).sum().backward()


def load(m):
    m.layer.load_state_dict(m.values)


WORKS = {
    "a number": lambda m: m.y * np.float32(2),  # one of Python's takes no line
    "plus": lambda m: m.y + m.w.double(),
    "reversed": lambda m: 2**m.y,
    "power": lambda m: m.y**2,
    "clamp": lambda m: m.y.clamp(m.w, m.v),
    "lerp": lambda m: m.w.lerp(m.y, 0.5),
    "where": lambda m: krt.where(m.y > m.v, m.y, m.w),
    "unary": lambda m: m.y.tanh(),
    "gelu": lambda m: m.y.gelu(),
    "sum": lambda m: m.y.sum(0),
    "max": lambda m: m.y.max(1).values,
    "var": lambda m: m.y.var(),
    "softmax": lambda m: m.y.softmax(0),
    "cumsum": lambda m: m.y.cumsum(1),
    "product": lambda m: m.y @ m.w,
    "linear": lambda m: m.y.linear(m.w, m.v[0]),
    "cat": lambda m: krt.cat([m.y, m.w, m.y]),
    "stack": lambda m: krt.stack([m.w, m.y]),
    "transposed": lambda m: m.y.T,
    "pad": lambda m: m.y.pad((1, 1)),
    "pick": lambda m: m.y[m.labels],
    "mask": lambda m: m.y.masked_fill(m.w > 0, 0.5),
    "loss": lambda m: m.y.cross_entropy(m.labels),
    "layer_norm": lambda m: m.y.layer_norm((2,), *m.rows),
    "copy": lambda m: krt.tensor(m.y),
    "bits": lambda m: m.y.bitcast("int32"),
    "assign": renew,
    "set a part": set_a_part,
    "batch_norm": train,
    "backward": backward,
    "step": lambda m: m.optimizer.step(),
    "load": load,
}


def outcome(*steps):
    m = Program()
    found = []
    for step in steps:
        with krt.enable_grad() if step is backward else krt.no_grad():
            given = step(m)
        if isinstance(given, krt.Tensor):
            found.append(given)
    return [*[t.detach().numpy() for t in found], *m.seen()]


@pytest.mark.cases(1)
@pytest.mark.filterwarnings("ignore::kernelrt.EagerLoopWarning")
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", WORKS)
def test_what_comes_in_between_comes_before_or_after(name, act):
    work = WORKS[name]
    either = outcome(act, work), outcome(work, act)
    with krt.no_grad(), Between(None, -1, OURS) as between:
        m = Program()
        between.lines = 0
        with krt.enable_grad() if work is backward else krt.no_grad():
            work(m)
    lines = between.lines
    stride = min(STRIDE, max(lines // 4, 1))
    at = (3 * ACTS.index(act) + list(WORKS).index(name)) % stride
    done = 0
    while at <= lines:
        with krt.no_grad():
            m = Program()

            def come(m=m):
                with krt.no_grad():
                    act(m)

        mode = krt.enable_grad() if work is backward else krt.no_grad()
        with mode, Between(come, at, OURS) as between:
            try:
                given = work(m)
            except GradientError as error:
                assert "has been assigned since" in str(error)  # noqa: PT017 - it may go well, too
                given = None
                between.done = False
        found = [given] if isinstance(given, krt.Tensor) else []
        found = [*[t.detach().numpy() for t in found], *m.seen()]
        if between.done:
            done += 1
            assert any(
                all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, one, strict=True))
                for one in either
            ), f"line {at}"
        lines = between.lines
        at += stride
    assert done * stride > lines / 5
    assert not state.pending


def test_handlers_that_come_all_the_time_let_an_operation_end():
    """What they write and compute has nothing to do with it; or they are told."""
    x, z = krt.tensor([1.0]) * 3, krt.zeros(1).realize()

    def come():
        z.assign(z + 1)
        krt.realize(z + 2)

    times = 0

    @operation
    def interrupted(y):
        nonlocal times
        times += 1
        if times < 200:
            come()
        return y * 2

    with pytest.raises(PlanBusyError, match="less often"):
        interrupted(x)
    times = 195
    assert interrupted(x).item() == 6


def test_an_operation_is_begun_once_where_memory_it_does_not_read_is_written():
    x, z = krt.tensor([1.0]) * 3, krt.zeros(1).realize()
    times = 0

    @operation
    def interrupted(y):
        nonlocal times
        times += 1
        z.assign(z + 1)
        assert z.item() == times
        return y * 2

    assert interrupted(x).item() == 6
    assert times == 1
