"""Selections whose size depends on data: with a size in traced functions, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelrt as krt

X = np.array([3, 1, 0, 1, 0, 2, 3, 3], np.float32)


def both(call: Any, *arrays: Any) -> list[list[Any]]:
    """What `call` gives, which is the same in a traced function."""
    eager = call(*map(krt.tensor, arrays))
    traced = krt.jit(call)(*arrays)
    found = [eager, traced]
    lists = [
        [p.tolist() for p in f] if isinstance(f, tuple) else [f.tolist()] for f in found
    ]
    assert lists[0] == lists[1]
    return lists[0]


@pytest.mark.parametrize("size", [0, 1, 6, 9])
def test_nonzero_of_a_size(size: int) -> None:
    x = X.reshape(2, 4)
    wanted = np.full((size, 2), -7)
    found = np.argwhere(x)[:size]
    wanted[: len(found)] = found
    assert both(lambda x: x.nonzero(size=size, fill_value=-7), x) == [wanted.tolist()]
    assert both(lambda x: x.argwhere(size=size, fill_value=-7), x) == [wanted.tolist()]
    columns = both(lambda x: x.nonzero(as_tuple=True, size=size, fill_value=-7), x)
    assert columns == wanted.T.tolist()


@pytest.mark.parametrize("size", [0, 3, 6, 9])
def test_masked_select_of_a_size(size: int) -> None:
    wanted = np.full(size, 0.5)
    found = X[X > 0][:size]
    wanted[: len(found)] = found
    found = both(lambda x: x.masked_select(x > 0, size=size, fill_value=0.5), X)
    assert found == [wanted.tolist()]


@pytest.mark.parametrize("size", [2, 4, 6])
@pytest.mark.parametrize("fill", [None, -1.0])
@pytest.mark.parametrize("repeats", [1, 20])
def test_unique_of_a_size(size: int, fill: float | None, repeats: int) -> None:
    x = np.tile(X, repeats)
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    wanted = np.full(size, values[0] if fill is None else fill)
    wanted[: len(values)] = values[:size]
    many = np.zeros(size, int)
    many[: len(values)] = counts[:size]
    assert both(
        lambda x: x.unique(return_inverse=True, return_counts=True, size=size, fill_value=fill), x
    ) == [wanted.tolist(), inverse.tolist(), many.tolist()]


def test_unique_consecutive_of_a_size() -> None:
    found = both(
        lambda x: x.unique_consecutive(return_inverse=True, return_counts=True, size=8), X
    )
    assert found == [[3, 1, 0, 1, 0, 2, 3, 3], [0, 1, 2, 3, 4, 5, 6, 6], [1] * 6 + [2, 0]]


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int8"])
def test_repeats_of_every_type(dtype: str) -> None:
    counts = krt.tensor([1, 0, 2], dtype=dtype)
    assert krt.tensor([5, 6, 7]).repeat_interleave(counts).tolist() == [5, 7, 7]


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_unique_of_a_scalar(name: str) -> None:
    found = getattr(krt.tensor(3), name)(return_inverse=True, return_counts=True)
    assert [(t.shape, t.tolist()) for t in found] == [((1,), [3]), ((), 0), ((1,), [1])]


def test_bincount_of_a_size() -> None:
    assert both(lambda x: x.long().bincount(size=5), X) == [[2, 2, 1, 3, 0]]
    with pytest.raises(krt.IndexBoundsError):
        krt.tensor([0, 7]).bincount(size=5).numpy()
    with pytest.raises(krt.IndexBoundsError):
        krt.tensor([0, -1]).bincount().numpy()


def test_repeats_of_a_sum() -> None:
    counts = np.array([2, 0, 3, 1])
    call = lambda x, n: x.repeat_interleave(n, output_size=6)  # noqa: E731
    assert both(call, X[:4], counts) == [np.repeat(X[:4], counts).tolist()]
    with pytest.raises(krt.IndexBoundsError):
        krt.tensor(X[:4]).repeat_interleave(krt.tensor(counts), output_size=7).numpy()
    with pytest.raises(krt.ShapeError, match="at least 0"):
        krt.tensor(X[:4]).repeat_interleave(krt.tensor(-counts))


def test_gradients_of_a_size() -> None:
    x = krt.tensor(X, requires_grad=True)
    weight = krt.tensor([1.0, 2.0, 4.0, 8.0])
    (x.masked_select(x > 0, size=4) * weight).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 2, 0, 4, 0, 8, 0, 0]


def test_a_mask_of_rows_in_a_traced_function_takes_as_many_values() -> None:
    @krt.jit
    def put(x: krt.Tensor, rows: krt.Tensor) -> krt.Tensor:
        out = x * 1
        out[x[:, 0] > 0] = rows
        return out

    x = X.reshape(4, 2)
    rows = np.array([[7, 8], [9, 10]], np.float32)
    wanted = x.copy()
    wanted[x[:, 0] > 0] = np.array([[7, 8], [9, 10]])
    assert put(x, rows).tolist() == wanted.tolist()
    for wrong in (x * 0, x + 1):
        with pytest.raises(krt.IndexBoundsError):
            put(wrong, rows).numpy()


@pytest.mark.parametrize(("call", "way"), [
    (lambda x: x[x > 0], "size=n"),
    (lambda x: x[:, None][x > 0], "size=n"),
    (lambda x: x.nonzero(), "size="),
    (lambda x: x.argwhere(), "size="),
    (lambda x: x.masked_select(x > 0), "size="),
    (lambda x: x.unique(), "size="),
    (lambda x: x.unique_consecutive(), "size="),
    (lambda x: x.long().bincount(), "size="),
    (lambda x: x.repeat_interleave(x.long()), "output_size="),
])  # fmt: skip
def test_a_traced_function_needs_a_size(call: Any, way: str) -> None:
    with pytest.raises(krt.JitError, match=way):
        krt.jit(call)(X)


def test_wrong_arguments() -> None:
    x = krt.tensor(X)
    with pytest.raises(krt.DTypeError, match="mask: expected bools"):
        x.masked_select(x)
    with pytest.raises(krt.ShapeError, match="size: cannot be combined with dim"):
        x.unique(dim=0, size=3)
    with pytest.raises(krt.ShapeError, match="vector of integers"):
        x.bincount()
    with pytest.raises(krt.ShapeError, match="size: expected at least 0"):
        x.nonzero(size=-1)
    with pytest.raises(krt.DomainError, match="min, max"):
        x.histc(4, 2, 1)


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_a_number_is_one_element(name: str, dim: int | None) -> None:
    found, inverse, counts = getattr(krt.tensor(2.5), name)(
        return_inverse=True, return_counts=True, dim=dim
    )
    assert found.reshape(-1).tolist() == [2.5]
    assert inverse.shape == (() if dim is None else (1,))
    assert (inverse.sum().item(), counts.tolist()) == (0, [1])
