"""max and min along an axis: values, indices and gradients among equals are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.ir import Op, toposort

torch = Package("torch")

SHAPES = [(3,), (1,), (2, 3), (4, 1, 5), (3, 0), (70, 2), ()]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("special", [None, np.nan, np.inf])
def test_the_gradient_goes_to_the_element_that_is_named(shape, name, keepdim, special):
    rng = np.random.default_rng(0)
    for dim in range(-len(shape), len(shape)) if shape else (0, -1):
        if shape and shape[dim] == 0:
            continue
        data = rng.integers(0, 3, shape).astype(np.float64)
        if special is not None and data.size > 2:
            data.flat[2] = special
        theirs = torch.tensor(data, requires_grad=True)
        ours = krt.tensor(data, requires_grad=True)
        values, indices = getattr(theirs, name)(dim, keepdim)
        got, places = getattr(ours, name)(dim, keepdim)
        weights = rng.standard_normal(tuple(values.shape))
        (values * torch.tensor(weights)).sum().backward()
        (got * krt.tensor(weights)).sum().backward()
        np.testing.assert_array_equal(got.numpy(), values.detach().numpy())
        np.testing.assert_array_equal(places.numpy(), indices.numpy())
        np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


WIDTHS = (8, 16, 32, 64)
TYPES = [
    "bool", *(f"int{n}" for n in WIDTHS), *(f"uint{n}" for n in WIDTHS),
    *(f"float{n}" for n in WIDTHS[1:]),
]  # fmt: skip


def ordinary(kind, rng):
    """Values with many equals; of floats also those that no other number stands for."""
    data = rng.integers(0, 4, (9, 37)).astype(kind)
    if data.dtype.kind == "i":
        data -= 2
    if data.dtype.kind in "iu":
        info = np.iinfo(data.dtype)
        data[rng.random(data.shape) < 0.02] = rng.choice(np.array([info.min, info.max], kind))
    if data.dtype.kind == "f":
        data = data * rng.choice(np.array([-1.0, -0.0, 0.0, 1.0], kind), data.shape)
        for special in rng.choice([np.inf, -np.inf, np.nan, -np.nan], 2):
            data[rng.random(data.shape) < 0.02] = special
    return data


@pytest.mark.parametrize("kind", TYPES)
def test_the_first_of_equals_is_named(kind):
    rng = np.random.default_rng(1)
    for _ in range(10):
        data = ordinary(kind, rng)
        for axis in (0, 1, None):
            for name in ("argmax", "argmin"):
                found = getattr(krt.tensor(data), name)(axis).numpy()
                np.testing.assert_array_equal(found, getattr(data, name)(axis))


def loads_of(plan):
    return [n for k in plan.kernels for n in toposort([k.ast]) if n.op is Op.LOAD]


def test_positions_down_columns_are_found_in_one_walk():
    x = krt.tensor(np.random.default_rng(2).standard_normal((64, 300), np.float32))
    assert len(loads_of(krt.jit(lambda x: x.argmax(0)).plan(x))) == 1


@pytest.mark.parametrize("axis", [1, None])
def test_only_one_block_of_a_row_is_searched(axis):
    x = krt.tensor(np.random.default_rng(2).standard_normal((64, 2048), np.float32))
    plan = krt.jit(lambda x: x.argmax(axis)).plan(x)
    extrema, search = (
        [n for n in toposort([k.ast]) if n.op is Op.REDUCE] for k in plan.kernels
    )
    assert [n.arg for n in extrema] == [Op.MAX]
    searched = {r for n in search for r in n.src[1:]}
    assert max(int(r.src[0].arg) for r in searched) < x.shape[1]


def special(kind, shape, rng):
    """Yield numbers, ties, the least and the greatest number, for floats NaN and zeros, too."""
    if np.dtype(kind).kind != "f":
        info = np.iinfo(kind)
        yield rng.integers(info.min, info.max, shape, kind, endpoint=True)
        yield rng.integers(0, 4, shape).astype(kind)
        yield np.full(shape, info.min, kind)
        yield np.full(shape, info.max, kind)
        return
    x = rng.standard_normal(shape).astype(kind)
    yield x
    for number in (np.nan, np.inf, -np.inf):
        holes = x.round()
        holes.flat[rng.integers(0, x.size, 5)] = number
        yield holes
        yield np.full(shape, number, kind)
    zeros = np.zeros(shape, kind)
    zeros.flat[::3] = -0.0
    yield zeros
    lowest = np.full(shape, -np.inf, kind)
    lowest.flat[-3:] = np.nan
    yield lowest


@pytest.mark.parametrize("shape", [(32, 128), (33, 191), (5, 1000), (5003,), (4, 3, 512)])
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64", "uint8"])
def test_positions_by_blocks(kind, shape):
    for x in special(kind, shape, np.random.default_rng(3)):
        for name in ("argmax", "argmin"):
            for axis in (-1, None):
                find = krt.jit(lambda x, name=name, axis=axis: getattr(x, name)(axis))
                found = find(krt.tensor(x)).numpy()
                np.testing.assert_array_equal(found, getattr(np, name)(x, axis))


def test_positions_in_views_by_blocks():
    data = np.random.default_rng(4).integers(0, 9, (260, 300)).astype(np.float32)
    x = krt.tensor(data)
    for view, there in (
        (x.T, data.T), (x[::2, 1::2], data[::2, 1::2]), (x[3:, 5:], data[3:, 5:]),
        (x.flip(1), data[:, ::-1]), (x[1:2].expand(40, 300), np.repeat(data[1:2], 40, 0)),
    ):  # fmt: skip
        for axis in (0, 1, None):
            found = krt.jit(lambda x, axis=axis: x.argmax(axis, keepdim=True))(view).numpy()
            np.testing.assert_array_equal(found, there.argmax(axis, keepdims=True))


def test_eager_positions_of_a_large_tensor_are_found_by_blocks():
    data = np.random.default_rng(5).integers(0, 1000, (1024, 1024)).astype(np.float32)
    x = krt.tensor(data)
    np.testing.assert_array_equal(x.argmax(1).numpy(), data.argmax(1))
    assert x.argmin().item() == data.argmin()
