"""Long sums of numbers that all round alike, which drift the further the more follow each other."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

UNITS = 64
"""Of the last place. Added up one after the other, the sums below are off by thousands."""


def off(found, exact, dtype=np.float32):
    exact = np.asarray(exact, np.float64)
    return float(np.max(np.abs(found.astype(np.float64) - exact) / np.abs(exact))) / np.finfo(
        dtype
    ).eps


SHAPES = [
    ((70_000,), 0), ((70_001,), 0), ((70_000, 4), 0), ((9_973, 33), 0), ((1_100, 900), (0, 1)),
    ((3, 50_021), 1), ((64, 1_031, 7), (0, 1)), ((40, 1, 30_000), (0, 2)), ((300_000, 1), 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_sums_of_equal_numbers(shape, axis, dtype):
    x = np.full(shape, 0.1, dtype)
    count = np.prod([shape[a] for a in np.atleast_1d(axis)])
    exact = np.full(x.sum(axis).shape, np.longdouble(x.flat[0]) * count)
    found = krt.tensor(x).sum(axis if isinstance(axis, int) else list(axis)).numpy()
    assert off(found, exact, dtype) < UNITS


def test_sums_of_products_of_equal_numbers():
    x, w = np.full((3, 20_000), 0.3, np.float32), np.full((20_000, 40), 0.7, np.float32)
    exact = np.full((3, 40), float(x[0, 0]) * float(w[0, 0]) * 20_000)
    assert off((krt.tensor(x) @ krt.tensor(w)).numpy(), exact) < UNITS
    assert off((krt.tensor(x) ** 2).sum(1).numpy(), [float(x[0, 0]) ** 2 * 20_000]) < UNITS


def test_sums_along_open_sizes():
    n = krt.Variable("n", 1, 100_000)
    total = krt.jit(lambda x: (x.sum(0), x.sum()), dynamic={"x": {0: n}})
    for size in (1, 2, 127, 128, 129, 5_003, 99_999):
        x = np.full((size, 3), 0.1, np.float32)
        columns, whole = total(x)
        one = float(x[0, 0]) * size
        assert off(columns.numpy(), [one]) < UNITS
        assert off(whole.numpy(), 3 * one) < UNITS


@pytest.mark.parametrize("size", [1, 127, 128, 129, 511, 512, 513, 4_099, 8_192, 65_537])
def test_every_element_is_counted_once(size):
    x = np.random.default_rng(size).integers(-8, 9, (size, 5)).astype(np.float32)
    np.testing.assert_array_equal(krt.tensor(x).sum(0).numpy(), x.sum(0))
    np.testing.assert_array_equal(krt.tensor(x.T.copy()).sum(1).numpy(), x.sum(0))
    np.testing.assert_array_equal(krt.tensor(x).sum().numpy(), x.sum())


def test_the_printed_nest_tells_of_blocks():
    step = krt.jit(lambda x: x.sum(0))
    x = np.ones((5_000, 64), np.float32)
    step(x)
    text = "\n".join(kernel.loops() for kernel in step.plan(x).kernels)
    assert "added up in blocks of" in text
