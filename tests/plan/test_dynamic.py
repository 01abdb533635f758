"""Plans over tensors whose sizes are Variables: one compile for all sizes."""

from __future__ import annotations

import os

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import VariableError
from kernelrt.runtime import kernels

LARGEST = 256
#: Sizes at which the plan is compared with one prepared for just that size.
FRESH = (
    range(1, LARGEST + 1)
    if os.environ.get("KERNELRT_ALL_SIZES") == "1"
    else (1, 2, 3, 7, 8, 16, 17, 64, 100, 255, 256)
)


class Step:
    """Loss and gradients of a small classifier, for a batch of `batch` rows."""

    def __init__(self, batch: object) -> None:
        krt.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
        self.weights = [p.numpy().copy() for p in model.parameters()]
        self.rows = np.zeros((LARGEST, 8), np.float32)
        self.labels = np.zeros(LARGEST, np.int64)
        x = krt.from_numpy(self.rows)[:batch]
        y = krt.from_numpy(self.labels)[:batch]
        loss = model(x).cross_entropy(y)
        self.plan = krt.prepare(loss, *krt.grad(loss, list(model.parameters())))

    def run(self, rows: np.ndarray, labels: np.ndarray, **variables: int) -> list[np.ndarray]:
        self.rows[: len(rows)] = rows
        self.labels[: len(rows)] = labels
        self.plan.execute_with_vars(**variables)
        return [b.copyout() for b in self.plan.output_buffers]


def numpy_step(weights: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The same in float64."""
    w1, b1, w2, b2 = (w.astype(np.float64) for w in weights)
    x = x.astype(np.float64)
    hidden = np.tanh(x @ w1.T + b1)
    logits = hidden @ w2.T + b2
    logits -= logits.max(1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(p[rows, y]).mean()
    d = p.copy()
    d[rows, y] -= 1
    d /= len(x)
    back = (d @ w2) * (1 - hidden**2)
    return [np.array([loss]), back.T @ x, back.sum(0), d.T @ hidden, d.sum(0)]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    return rng.standard_normal((LARGEST, 8)).astype(np.float32), rng.integers(0, 4, LARGEST)


@pytest.fixture(scope="module")
def dynamic() -> Step:
    return Step(krt.Variable("batch", 1, LARGEST))


def test_every_size_matches_numpy(dynamic, data):
    x, y = data
    for n in range(1, LARGEST + 1):
        found = dynamic.run(x[:n], y[:n], batch=n)
        for a, b in zip(found, numpy_step(dynamic.weights, x[:n], y[:n]), strict=True):
            np.testing.assert_allclose(a, b.ravel(), rtol=2e-5, atol=2e-6, err_msg=f"size {n}")


@pytest.mark.exhaustive
def test_sizes_match_plans_prepared_for_just_them(dynamic, data):
    x, y = data
    for n in FRESH:
        found = dynamic.run(x[:n], y[:n], batch=n)
        for a, b in zip(found, Step(n).run(x[:n], y[:n]), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6, err_msg=f"size {n}")


def test_a_new_size_compiles_nothing(dynamic, data):
    x, y = data
    before = kernels.compiled
    for n in (5, 50, 250, 5):
        dynamic.run(x[:n], y[:n], batch=n)
    assert kernels.compiled == before


def test_going_back_to_a_size_gives_the_same_bits(dynamic, data):
    x, y = data
    first = dynamic.run(x[:33], y[:33], batch=33)
    dynamic.run(x, y, batch=256)
    again = dynamic.run(x[:33], y[:33], batch=33)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))


def test_buffers_hold_the_largest_size(dynamic):
    batch = dynamic.plan.variables["batch"]
    assert (batch.min_val, batch.max_val) == (1, LARGEST)
    x = krt.from_numpy(np.zeros((LARGEST, 8), np.float32))[: krt.Variable("batch", 1, LARGEST)]
    plan = (x * 2).prepare()
    assert plan.output_buffer.size == LARGEST * 8


def test_sizes_out_of_bounds_raise(dynamic):
    for n in (0, LARGEST + 1):
        with pytest.raises(VariableError, match=f"batch: {n} lies outside"):
            dynamic.plan.execute_with_vars(batch=n)


def test_two_variables_in_one_plan():
    rows, columns = krt.Variable("rows", 1, 12), krt.Variable("columns", 1, 9)
    a = np.random.default_rng(0).standard_normal((12, 9)).astype(np.float32)
    plan = krt.from_numpy(a)[:rows, :columns].sum().prepare()
    for r, c in ((1, 1), (12, 9), (5, 2), (3, 9)):
        plan.execute_with_vars(rows=r, columns=c)
        np.testing.assert_allclose(plan.output_buffer.numpy()[0], a[:r, :c].sum(), rtol=1e-5)


def test_an_index_out_of_range_leaves_parameters_as_they_were():
    krt.manual_seed(0)
    table = krt.randn(10, 4).realize()
    before = table.numpy().copy()
    index = krt.from_numpy(np.array([1, 2, 99]))
    table.assign(table - 0.1 * table[index].sum())
    with pytest.raises(krt.IndexBoundsError, match=r"index 99 is out of range .* of size 10"):
        table.realize()
    np.testing.assert_array_equal(table.numpy(), before)


def test_an_index_out_of_range_names_kernel_and_buffer():
    table = krt.randn(10, 4).realize()
    index = krt.from_numpy(np.array([1, 2, 99]))
    plan = (table[index] * 2).prepare()
    with pytest.raises(krt.IndexBoundsError) as caught:
        plan.execute()
    launch = plan.prepared_ops[caught.value.op]
    assert launch.label in str(caught.value)
    where = next(i for i, b in enumerate(plan.buffers) if b.dtype is krt.int64)
    assert f"read from buffer {where} (3 int64)" in str(caught.value)
    assert (caught.value.index, caught.value.size) == (99, 10)
