"""Gradients of extrema among equal numbers: those that are equal share the slope."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

NUMBERS = np.array([-1.5, 0.0, 2.0, 2.0, -1.5, 7.0])


@pytest.mark.cases(10)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_two_equal_operands_have_half_each(name, jitted):
    def slopes(x, y):
        return krt.func.grad(lambda x, y: (getattr(krt, name)(x, y) * 3).sum(), (0, 1))(x, y)

    function = krt.jit(slopes) if jitted else slopes
    numbers, other = NUMBERS, NUMBERS[::-1].copy()
    first, second = function(krt.tensor(numbers), krt.tensor(other))
    wins = numbers > other if name == "maximum" else numbers < other
    expected = np.where(numbers == other, 1.5, np.where(wins, 3.0, 0.0))
    np.testing.assert_array_equal(first.numpy(), expected)
    np.testing.assert_array_equal(second.numpy(), 3 - expected)
    first, second = function(krt.tensor(numbers), krt.tensor(numbers.copy()))
    np.testing.assert_array_equal(first.numpy(), np.full(6, 1.5))
    np.testing.assert_array_equal(second.numpy(), np.full(6, 1.5))


@pytest.mark.cases(10)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (6, 1)])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_equal_elements_share_the_slope(name, shape):
    x = krt.tensor(NUMBERS.reshape(shape), requires_grad=True)
    (getattr(x, name)(-1) * 6).sum().backward()
    data = NUMBERS.reshape(shape)
    best = getattr(np, name)(data, -1, keepdims=True)
    shares = (data == best) / (data == best).sum(-1, keepdims=True) * 6
    np.testing.assert_allclose(x.grad.numpy(), shares, rtol=1e-15)
