"""max and min along an axis: values, indices and gradients among equals are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

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
