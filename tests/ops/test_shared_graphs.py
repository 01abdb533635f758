"""Graphs with few nodes and exponentially many paths: work must follow the nodes."""

from __future__ import annotations

import numpy as np
import pytest
from support.work import lines_run

import kernelrt as krt

DEPTH = 100
#: Far above what is needed, far below what anything exponential takes.
MOST_LINES = 3_000_000


def times(x, step):
    for k in range(DEPTH):
        x = step(x, k)
    return x


STEPS = {
    "squared": lambda x, _: x * x,
    "doubled": lambda x, _: x + x,
    "both": lambda x, k: x * x + x * (k + 1),
    "divided": lambda x, k: (x + x) // (k + 2) + x % 7,
    "chosen": lambda x, k: krt.where(x < k, x * 3, x + x) if isinstance(x, krt.Tensor)
    else np.where(x < k, x * 3, x + x),
}  # fmt: skip


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("use", ["value", "index"])
def test_shared_integers(name, use):
    data = np.array([2, 3, -5, 2**40 + 1, 0, 1])
    table = np.arange(7.0)
    found = None

    def compute():
        nonlocal found
        got = times(krt.tensor(data), STEPS[name])
        found = (got if use == "value" else krt.tensor(table)[got % 7]).numpy()

    lines_run(compute, MOST_LINES)
    with np.errstate(all="ignore"):
        expected = times(data, STEPS[name])
    np.testing.assert_array_equal(found, expected if use == "value" else table[expected % 7])


def test_a_high_power_of_an_integer():
    found = []
    lines_run(lambda: found.extend((krt.tensor([2, 1, -1, 0]) ** (2**40)).tolist()), MOST_LINES)
    assert found == [0, 1, 1, 0]


USES = {
    "getitem": lambda x: x[krt.randint(0, 4, (8,))],
    "gather": lambda x: x.gather(0, krt.randint(0, 4, (8,))),
    "embedding": lambda x: krt.randint(0, 4, (8,)).embedding(x.reshape(4, 1)).reshape(8),
    "gumbel": lambda x: x[(x - (-krt.rand(8, 4).log()).log()).argmax(1)],
}


@pytest.mark.parametrize("name", USES)
def test_a_random_index(name):
    krt.manual_seed(0)
    f = krt.jit(USES[name])
    drawn = []

    def draw():
        drawn.extend(f(np.arange(4, dtype=np.float32)).numpy() for _ in range(8))

    lines_run(draw, MOST_LINES)
    assert set(np.concatenate(drawn)) == {0, 1, 2, 3}
