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


FORMS = [
    lambda x: x.sum(1), lambda x: x.exp().sum(1), lambda x: (x * x).sum(), lambda x: x.mean((0, 1)),
    lambda x: (x * x.T.contiguous().T).sum(0), lambda x: x @ x.T,
    lambda x: x.sum(1, keepdim=True) + x, lambda x: (x.exp() * x.sin() + x.cos()).sum(1),
]  # fmt: skip


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("most", [300, 4_000, 1_000_000])
def test_open_sizes_count_every_element_once(form, most):
    """Also those of a last vector, partly filled, and of loops that do not run at all."""
    n = krt.Variable("n", 1, most)
    f = krt.jit(FORMS[form], dynamic={"x": {1: n}})
    for size in (1, 2, 7, 15, 16, 17, 64, 65, 131, 299):
        x = np.random.default_rng(size).integers(-3, 4, (40, size)).astype(np.float64) / 4
        wide = {1: np.exp(x).sum(1), 2: (x * x).sum(), 3: x.mean(), 4: (x * x).sum(0), 5: x @ x.T}
        wide |= {6: x.sum(1, keepdims=True) + x, 7: (np.exp(x) * np.sin(x) + np.cos(x)).sum(1)}
        exact = {0: x.sum(1), **wide}[form]
        np.testing.assert_allclose(f(x.astype(np.float32)).numpy(), exact, rtol=2e-6, atol=1e-6)


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


@pytest.mark.cases(1)
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 15])
@pytest.mark.parametrize("depth", [4_096, 5_003, 20_000])
def test_sums_of_products_with_a_matrix_that_streams(rows, depth):
    x, w = np.full((rows, depth), 0.3, np.float32), np.full((depth, 2_048), 0.7, np.float32)
    exact = np.full((rows, 2_048), float(x[0, 0]) * float(w[0, 0]) * depth)
    most = UNITS if depth % 2 == 0 else 6 * UNITS
    assert off((krt.tensor(x) @ krt.tensor(w)).numpy(), exact) < most
    rng = np.random.default_rng(depth + rows)
    x, w = (rng.integers(-4, 5, a.shape).astype(np.float32) for a in (x, w))
    np.testing.assert_array_equal((krt.tensor(x) @ krt.tensor(w)).numpy(), x @ w)
