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


def test_positions_are_found_in_one_walk():
    x = krt.tensor(np.random.default_rng(2).standard_normal((64, 300), np.float32))
    plan = krt.jit(lambda x: x.argmax(1)).plan(x)
    loads = [n for k in plan.kernels for n in toposort([k.ast]) if n.op is Op.LOAD]
    assert len(loads) == 1
