"""Scatters: which write counts, gradients where values are zero or equal, wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelrt as krt

X = krt.tensor(np.arange(6, dtype=np.float32))
I = krt.tensor(np.array([0, 2]))  # noqa: E741


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("n", [1, 7, 300])
def test_the_last_write_counts(dtype: str, n: int) -> None:
    rng = np.random.default_rng(n)
    base, index = rng.integers(0, 2, (5, 9)), rng.integers(0, 5, (n, 9))
    values = rng.integers(0, 2 if dtype == "bool" else 100, (n, 9))
    wanted = base.copy()
    for row, new in zip(index, values, strict=True):
        wanted[row, np.arange(9)] = new
    x, y = krt.tensor(base).cast(dtype), krt.tensor(values).cast(dtype)
    found = x.scatter(0, krt.tensor(index), y)
    assert found.dtype is x.dtype
    assert found.long().tolist() == wanted.tolist()
    traced = krt.jit(lambda x, i, y: x.scatter(0, i, y))(x, krt.tensor(index), y)
    assert traced.long().tolist() == wanted.tolist()


def test_the_last_write_gets_the_gradient() -> None:
    x = krt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = krt.tensor([4.0, 5.0, 6.0], requires_grad=True)
    out = x.scatter(0, krt.tensor([2, 0, 2]), y)
    (out * krt.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.tolist() == [0, 2, 0]
    assert y.grad.tolist() == [0, 1, 4]


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("include_self", [True, False])
def test_gradients_of_products_with_zeros(zeros: int, include_self: bool) -> None:
    base = np.array([2.0, 0.0, 3.0])
    values = np.array([1.5, 0.5, 4.0, 5.0])
    values[:zeros] = 0
    index = np.array([0, 0, 1, 0])

    def product(base: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        out = base.copy()
        if not include_self:
            out[index] = 1
        np.multiply.at(out, index, values)
        return out

    x, y = krt.tensor(base, requires_grad=True), krt.tensor(values, requires_grad=True)
    out = x.scatter_reduce(0, krt.tensor(index), y, "prod", include_self=include_self)
    np.testing.assert_allclose(out.detach().numpy(), product(base, values))
    weight = np.array([1.0, 10.0, 100.0])
    (out * krt.tensor(weight)).sum().backward()
    for tensor, at in ((x, 0), (y, 1)):
        given = [base, values]
        for i in range(len(given[at])):
            step = np.zeros(len(given[at]))
            step[i] = 0.5  # a product is linear in each of its factors
            higher, lower = list(given), list(given)
            higher[at], lower[at] = given[at] + step, given[at] - step
            slope = ((product(*higher) - product(*lower)) * weight).sum()
            assert tensor.grad is not None
            np.testing.assert_allclose(tensor.grad.numpy()[i], slope)


@pytest.mark.parametrize("how", ["sum", "prod", "mean", "amax", "amin"])
def test_nan_is_taken_in(how: str) -> None:
    torch = pytest.importorskip("torch")
    values = np.array([np.nan, 1.0, np.inf, -np.inf, 2.0], np.float32)
    index = np.array([0, 0, 1, 1, 2])
    found = krt.zeros(4).scatter_reduce(0, krt.tensor(index), krt.tensor(values), how)
    wanted = torch.zeros(4).scatter_reduce(0, torch.tensor(index), torch.tensor(values), how)
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())


@pytest.mark.parametrize("call", [
    lambda x, i: x.scatter(0, i, krt.ones(2)),
    lambda x, i: x.scatter_reduce(0, i, krt.ones(2), "amax"),
    lambda x, i: x.index_add(0, i, krt.ones(2)),
    lambda x, i: x.index_copy(0, i, krt.ones(2)),
    lambda x, i: x.index_fill(0, i - 12, 1),
    lambda x, i: x.take(i - 12),
    lambda x, i: x.put(i, krt.ones(2)),
    lambda x, i: x.index_put((i,), krt.ones(2)),
    lambda x, i: x.masked_scatter(x >= 0, i.float()),
])  # fmt: skip
@pytest.mark.parametrize("jitted", [False, True])
def test_places_outside_are_found_when_it_runs(call: Any, jitted: bool) -> None:
    call = krt.jit(call) if jitted else call
    with pytest.raises(krt.IndexBoundsError, match="index"):
        call(X, krt.tensor([1, 6])).numpy()


@pytest.mark.parametrize("call", [
    lambda x, i: x.scatter(0, i, krt.ones(2)),
    lambda x, i: x.scatter(0, i, 1.0),
    lambda x, i: x.scatter(0, i, 2.0, reduce="multiply"),
    lambda x, i: x.clone().scatter_(0, i, krt.ones(2)),
    lambda x, i: x.scatter_add(0, i, krt.ones(2)),
    lambda x, i: x.scatter_reduce(0, i, krt.ones(2), "sum"),
    lambda x, i: x.scatter_reduce(0, i, krt.ones(2), "mean", include_self=False),
    lambda x, i: x.index_add(0, i, krt.ones(2)),
    lambda x, i: x.index_copy(0, i, krt.ones(2)),
    lambda x, i: x.index_fill(0, i, 1),
    lambda x, i: x.index_reduce(0, i, krt.ones(2), "amax"),
    lambda x, i: x.put(i, krt.ones(2)),
    lambda x, i: x.put(i, krt.ones(2), accumulate=True),
    lambda x, i: x.index_put((i,), krt.ones(2)),
    lambda x, i: x.index_put((i,), krt.ones(2), accumulate=True),
    lambda x, i: x.clone().__setitem__(i, 1.0),
    lambda x, i: x.reshape(3, 0).index_copy(1, i, krt.ones(3, 2)),
])  # fmt: skip
@pytest.mark.parametrize("jitted", [False, True])
def test_an_axis_of_size_0_has_no_place(call: Any, jitted: bool) -> None:
    if jitted:
        call = krt.jit(call, dynamic=False)
    with pytest.raises(krt.IndexBoundsError, match="has no elements to index"):
        call(krt.zeros(0), krt.tensor([0, -1]))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: X.scatter(0, I), krt.DTypeError, "src, value"),
    (lambda: X.scatter(0, I, krt.ones(2), value=3), krt.DTypeError, "src, value"),
    (lambda: X.scatter(0, I, krt.ones(2), reduce="sum"), krt.DomainError, "reduce: expected 'add'"),
    (lambda: X.scatter(0, I, krt.ones(1)), krt.ShapeError, "src: expected axes at least"),
    (lambda: X.scatter(0, I, krt.ones(2, dtype="int64")), krt.DTypeError, "src: expected float32"),
    (lambda: X.scatter(0, I.float(), krt.ones(2)), krt.DTypeError, "index: expected integers"),
    (lambda: X.long().scatter(0, I, 1e30), krt.DTypeError, "value"),
    (lambda: X.scatter_reduce(0, I, krt.ones(2), "max"), krt.DomainError, "reduce: expected 'sum'"),
    (lambda: X.index_reduce(0, I, krt.ones(2), "sum"), krt.DomainError, "reduce: expected 'prod'"),
    (lambda: X.index_add(0, I, krt.ones(3)), krt.ShapeError, "source: expected the shape"),
    (lambda: X.index_add(0, I[None], krt.ones(2)), krt.ShapeError, "index: expected a vector"),
    (lambda: X.index_fill(0, I, krt.ones(2)), krt.ShapeError, "value: expected a number"),
    (lambda: X.put(I, krt.ones(3)), krt.ShapeError, "source: expected as many"),
    (lambda: X.index_put(I, krt.ones(2)), krt.DTypeError, "indices: expected a tuple or list"),
    (lambda: X.index_put((I,), krt.ones(3)), krt.ShapeError, "value: shape"),
    (lambda: X.masked_scatter(I, krt.ones(2)), krt.DTypeError, "mask: expected bools"),
    (lambda: X.select_scatter(krt.ones(2), 0, 1), krt.ShapeError, "src: expected the shape"),
    (lambda: X.slice_scatter(krt.ones(2)), krt.ShapeError, "src: expected the shape"),
    (lambda: X.slice_scatter(krt.ones(2), 0, 0, 2, 0), krt.ShapeError, "step"),
])  # fmt: skip
def test_wrong_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
