"""Graphs with few nodes and exponentially many paths: time must follow the nodes."""

from __future__ import annotations

import time

import numpy as np
import pytest

import kernelrt as krt

DEPTH = 200
#: Far above what is needed, far below what anything exponential takes.
SECONDS = 60


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


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("use", ["value", "index"])
def test_shared_integers(name, use):
    data = np.array([2, 3, -5, 2**40 + 1, 0, 1])
    table = np.arange(7.0)
    start = time.perf_counter()
    got = times(krt.tensor(data), STEPS[name])
    out = got if use == "value" else krt.tensor(table)[got % 7]
    found = out.numpy()
    assert time.perf_counter() - start < SECONDS
    with np.errstate(all="ignore"):
        expected = times(data, STEPS[name])
    np.testing.assert_array_equal(found, expected if use == "value" else table[expected % 7])


def test_a_high_power_of_an_integer():
    start = time.perf_counter()
    assert (krt.tensor([2, 1, -1, 0]) ** (2**40)).tolist() == [0, 1, 1, 0]
    assert time.perf_counter() - start < SECONDS


USES = {
    "getitem": lambda x: x[krt.randint(0, 4, (8,))],
    "gather": lambda x: x.gather(0, krt.randint(0, 4, (8,))),
    "embedding": lambda x: krt.randint(0, 4, (8,)).embedding(x.reshape(4, 1)).reshape(8),
    "gumbel": lambda x: x[(x - (-krt.rand(8, 4).log()).log()).argmax(1)],
}


@pytest.mark.parametrize("name", USES)
def test_a_random_index(name):
    krt.manual_seed(0)
    start = time.perf_counter()
    f = krt.jit(USES[name])
    drawn = np.concatenate([f(np.arange(4, dtype=np.float32)).numpy() for _ in range(8)])
    assert time.perf_counter() - start < SECONDS
    assert set(drawn) == {0, 1, 2, 3}
