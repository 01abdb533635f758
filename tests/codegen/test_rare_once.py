"""Functions with rare cases that several parts of a kernel share."""

import numpy as np
import pytest

import kernelrt as krt


@pytest.mark.parametrize("size", [3, 6, 9, 20])
def test_second_derivative_of_sines_of_a_slice(size):
    x = np.linspace(0.1, 0.9, size)

    def f(x):
        d = x[0:3].sin()
        return (d + d[0]).sin().sum()

    def slope(x):
        d = np.sin(x[:3])
        outer = np.cos(d + d[0])
        g = np.zeros(size)
        g[:3] = outer * np.cos(x[:3])
        g[0] += outer.sum() * np.cos(x[0])
        return g

    found = krt.func.hessian(f)(krt.tensor(x)).numpy()
    steps = np.eye(size) * 1e-5
    expected = np.array([(slope(x + s) - slope(x - s)) / 2e-5 for s in steps])
    np.testing.assert_allclose(found, expected, atol=1e-8)
