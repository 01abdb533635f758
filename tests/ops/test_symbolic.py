"""Dimensions known at run time: one plan, every size."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import IndexBoundsError, ShapeError, VariableError
from kernelrt.ir.shape import is_static

N = krt.Variable("n", 1, 12)
RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((12, 5))
WEIGHT = RNG.standard_normal((3, 5))
LABELS = RNG.integers(0, 5, 12)
SIZES = (1, 2, 7, 12)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(x, y):
    return -np.log(softmax(x)[np.arange(len(y)), y])


def layer_norm(x, eps):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)


# (what of the tensor x with n rows, what of the array a with n rows)
CASES = {
    "elementwise": (lambda x: x * 2 + x.exp(), lambda a: a * 2 + np.exp(a)),
    "broadcast": (lambda x: x + x[:1], lambda a: a + a[:1]),
    "row_vector": (lambda x: x - krt.tensor(WEIGHT[0]), lambda a: a - WEIGHT[0]),
    "sum": (lambda x: x.sum(), np.sum),
    "sum_of_columns": (lambda x: x.sum(0), lambda a: a.sum(0)),
    "sum_of_rows": (lambda x: x.sum(1), lambda a: a.sum(1)),
    "mean": (lambda x: x.mean(0), lambda a: a.mean(0)),
    "max": (lambda x: x.amax(0), lambda a: a.max(0)),
    "var": (lambda x: x.var(0, correction=0), lambda a: a.var(0)),
    "matmul": (lambda x: x @ krt.tensor(WEIGHT.T), lambda a: a @ WEIGHT.T),
    "gram": (lambda x: x.T @ x, lambda a: a.T @ a),
    "outer_gram": (lambda x: (x @ x.T).sum(1), lambda a: (a @ a.T).sum(1)),
    "softmax": (lambda x: x.softmax(-1), softmax),
    "softmax_over_n": (lambda x: x.softmax(0), lambda a: softmax(a.T).T),
    "slice": (lambda x: x[:, 1:4] * 3, lambda a: a[:, 1:4] * 3),
    "transpose": (lambda x: x.T * 1, lambda a: a.T),
    "flatten": (lambda x: x.reshape(-1) * 1, lambda a: a.reshape(-1)),
    "pad": (lambda x: x.pad((0, 0, 1, 2)), lambda a: np.pad(a, ((1, 2), (0, 0)))),
    "cat": (lambda x: krt.cat([x, x * 2]), lambda a: np.concatenate([a, a * 2])),
    "last": (lambda x: x[-1], lambda a: a[-1]),
    "flip": (lambda x: x.flip(0), lambda a: a[::-1]),
    "argmax": (lambda x: x.argmax(0), lambda a: a.argmax(0)),
    "over_n": (lambda x: x / N, lambda a: a / len(a)),
    "arange": (lambda x: x * krt.arange(N).unsqueeze(1), lambda a: a * np.arange(len(a))[:, None]),
    "layer_norm": (lambda x: x.layer_norm(5, eps=0.1), lambda a: layer_norm(a, 0.1)),
    "cross_entropy": (lambda x: x.cross_entropy(krt.tensor(LABELS)[:N]),
                      lambda a: cross_entropy(a, LABELS[: len(a)]).mean()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_at_every_size(name):
    op, truth = CASES[name]
    out = op(krt.tensor(DATA)[:N])
    plan = out.prepare()
    for n in SIZES:
        plan.execute_with_vars(n=n)
        expected = np.asarray(truth(DATA[:n]))
        got = plan.output_buffer.numpy()[: expected.size].reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


SMOOTH = [
    "elementwise", "broadcast", "sum_of_columns", "mean", "matmul", "gram", "softmax", "slice",
    "cat", "cross_entropy", "layer_norm", "softmax_over_n", "over_n", "var",
]  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_at_every_size(name):
    op, truth = CASES[name]
    x = krt.tensor(DATA, requires_grad=True)
    (op(x[:N]).square().sum()).backward()
    assert x.grad.shape == (12, 5)
    plan = x.grad.prepare()
    step = RNG.standard_normal(DATA.shape)
    h = 1e-6
    for n in SIZES:
        plan.execute_with_vars(n=n)
        got = plan.output_buffer.numpy().reshape(12, 5)
        up, down = ((np.asarray(truth((DATA + s * h * step)[:n])) ** 2).sum() for s in (1, -1))
        np.testing.assert_allclose((got * step).sum(), (up - down) / (2 * h), rtol=1e-5, atol=1e-6)


def test_a_training_step_at_every_size():
    w = krt.tensor(WEIGHT.copy(), requires_grad=True)
    rows, labels = krt.tensor(DATA)[:N], krt.tensor(LABELS % 3)[:N]
    loss = rows.linear(w).cross_entropy(labels)
    loss.backward()
    w.assign(w - w.grad)
    plan = krt.prepare(loss, w)
    truth = WEIGHT.copy()
    for n in SIZES:
        plan.execute_with_vars(n=n)
        scores, y = DATA[:n] @ truth.T, (LABELS % 3)[:n]
        expected = cross_entropy(scores, y).mean()
        np.testing.assert_allclose(plan.output_buffer_at(0).numpy()[0], expected, rtol=1e-10)
        slope = softmax(scores)
        slope[np.arange(n), y] -= 1
        truth = truth - slope.T @ DATA[:n] / n
        np.testing.assert_allclose(w.numpy(), truth, rtol=1e-9)


def test_shapes_name_the_variable():
    x = krt.tensor(DATA)[:N]
    assert not is_static(x.shape)
    assert x.shape == (N, 5)
    assert "n" in repr(x)
    assert (x + 1).shape == (N, 5)
    assert (x @ x.T).shape == (N, N)
    assert x.sum(0).shape == (5,)


def test_storage_has_room_for_the_largest_size():
    x = krt.empty(N, 5)
    assert x.shape == (N, 5)
    plan = (x * 2).prepare()
    assert plan.output_buffer.size == 60


def test_what_needs_a_fixed_size_says_so():
    x = krt.tensor(DATA)[:N]
    with pytest.raises(VariableError, match="execute_with_vars"):
        x.numpy()
    with pytest.raises(VariableError):
        (x + 1).realize()
    with pytest.raises(ShapeError, match="run time"):
        x.split(2)
    with pytest.raises(ShapeError, match="run time"):
        x[:3]
    with pytest.raises(IndexBoundsError, match="Variable"):
        krt.tensor(DATA)[: krt.Variable("m", 1, 13)]
    with pytest.raises(IndexBoundsError):
        krt.tensor(DATA)[N]
    with pytest.raises(ShapeError, match="broadcast"):
        x + krt.tensor(DATA)
    assert krt.tensor(DATA)[N - 1].shape == (5,)
