"""Adding at indices against np.add.at: every update counts, whatever it is made of."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import IndexBoundsError

DTYPES = [
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
#: How a tensor comes by its elements: stored, or known without any memory, wholly or along axes.
KINDS = ["stored", "constant", "expanded", "row", "scalar"]


def made(rng, kind, shape, draw, dtype):
    """A tensor of `shape` and its elements; `draw(shape)` gives numbers."""
    if kind == "constant":
        number = int(draw(()))
        return krt.full(shape, number, dtype=dtype), np.full(shape, number)
    if kind == "stored":
        inner = shape
    elif kind == "scalar":
        inner = (1,) * len(shape)
    elif kind == "row":
        inner = (*(1 for _ in shape[:-1]), *shape[-1:])
    else:
        inner = tuple(n if rng.random() < 0.5 else 1 for n in shape)
    data = np.asarray(draw(inner))
    return krt.tensor(data, dtype=dtype).expand(shape), np.broadcast_to(data, shape)


def compared(got, expected, dtype):
    if got.dtype.is_float:
        np.testing.assert_array_equal(got.double().numpy(), expected.astype(np.float64))
    else:
        np.testing.assert_array_equal(got.numpy(), expected.astype(dtype))


@pytest.mark.parametrize("seed", range(60))
def test_scatter_add(seed):
    rng = np.random.default_rng(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    rank = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 17], rank))
    dim = int(rng.integers(rank))
    picked = tuple(
        int(rng.choice([0, 1, 2, 7, 33])) if a == dim else int(rng.integers(0, n + 1)) or n
        for a, n in enumerate(shape)
    )
    kinds = [str(k) for k in rng.choice(KINDS, 3)]
    # Whole numbers small enough for exact sums in every type.
    base, base_np = made(rng, kinds[0], shape, lambda s: rng.integers(0, 3, s), dtype)
    index, index_np = made(rng, kinds[1], picked, lambda s: rng.integers(0, shape[dim], s), "int64")
    value, value_np = made(rng, kinds[2], picked, lambda s: rng.integers(0, 3, s), dtype)
    expected = base_np.astype(np.int64)
    at = [*np.indices(picked)]
    at[dim] = index_np
    np.add.at(expected, tuple(at), value_np)
    compared(base.scatter_add(dim, index, value), expected, dtype)
    jitted = krt.jit(lambda b, i, v: b.scatter_add(dim, i, v))
    compared(jitted(base, index, value), expected, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 5, 40])
@pytest.mark.parametrize("width", [1, 3, 16])
def test_the_gradient_of_rows_counts_each_use(kind, count, width):
    rng = np.random.default_rng(count)
    index, index_np = made(rng, kind, (2, count), lambda s: rng.integers(0, 4, s), "int64")
    expected = np.zeros((4, width))
    np.add.at(expected, index_np, 1.0)
    for read in (lambda w: w[index], index.embedding):
        weight = krt.ones(4, width).requires_grad_()
        read(weight).sum().backward()
        np.testing.assert_array_equal(weight.grad.numpy(), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 6])
def test_the_gradient_of_gather_counts_each_use(kind, count):
    rng = np.random.default_rng(count)
    index, index_np = made(rng, kind, (3, count), lambda s: rng.integers(0, 5, s), "int64")
    weights, weights_np = made(rng, kind, (3, count), lambda s: rng.integers(1, 5, s), "float32")
    x = krt.ones(3, 5).requires_grad_()
    (x.gather(1, index) * weights).sum().backward()
    expected = np.zeros((3, 5))
    np.add.at(expected, (np.arange(3)[:, None], index_np), weights_np)
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_a_dynamic_number_of_equal_updates():
    n = krt.Variable("n", 1, 40)

    def count(x):
        return krt.zeros(3).scatter_add(0, (x * 0).long(), krt.ones(1).expand(x.shape[0]))

    jitted = krt.jit(count, dynamic={"x": {0: n}})
    for size in (1, 2, 17, 40):
        np.testing.assert_array_equal(jitted(np.ones(size, np.float32)).numpy(), [size, 0, 0])


@pytest.mark.parametrize("at", [0, 1])
def test_tensors_without_axes_have_one_position(at):
    x = krt.tensor(3.0, requires_grad=True)
    index = krt.tensor(at)
    for result, expected in ((x.gather(0, index), 3.0), (x.scatter_add(0, index, x * 2), 9.0)):
        if at:
            with pytest.raises(IndexBoundsError):
                result.item()
        else:
            assert result.item() == expected
    if not at:
        (x.gather(0, index) * 2).backward()
        assert x.grad.item() == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("count", [1, 9, 5000])
def test_sums_at_one_place_are_rounded_once(dtype, count):
    """A narrow type stays behind at 2048 or 256 ones, where the next one is half a unit."""
    expected = [float(krt.tensor(count, dtype="float32").cast(dtype).item()), 1.0]
    index, ones = krt.zeros(count, dtype="int64"), krt.ones(count, dtype=dtype)
    base = krt.tensor([0.0, 1.0], dtype=dtype)

    def add(base, index, ones):
        return base.scatter_add(0, index, ones)

    assert add(base, index, ones).tolist() == krt.jit(add)(base, index, ones).tolist() == expected
    expected[1] = 0.0
    for read in (lambda w: w[index], lambda w: w.gather(0, index),
                 lambda w: w.index_select(0, index),
                 lambda w: index.embedding(w.reshape(2, 1))):  # fmt: skip
        weight = krt.ones(2, dtype=dtype).requires_grad_()
        read(weight).sum().backward()
        assert weight.grad.dtype.name == dtype
        assert weight.grad.tolist() == expected


@pytest.mark.parametrize("empty", [[], np.zeros((0, 3), np.int64), np.zeros(0, bool)])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (4,)])
def test_an_index_of_nothing_may_have_any_type_and_rank(shape, empty):
    x = krt.ones(*shape, requires_grad=True)
    index = krt.tensor(empty)
    picked = x.gather(0, index)
    assert (picked.shape, picked.dtype) == (index.shape, x.dtype)
    picked.sum().backward()
    assert x.grad.shape == shape
    assert not x.grad.numpy().any()
    source = krt.ones(1)
    for kept in (x.scatter(0, index, 2.0), x.scatter_add(0, index, source),
                 x.scatter_reduce(0, index, source, "sum")):  # fmt: skip
        assert kept.tolist() == x.tolist()
