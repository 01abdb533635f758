"""Gradients of solve_triangular stay in the triangle that it reads; NumPy solves the whole."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt


@pytest.mark.cases(8)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_gradients_are_those_of_the_triangle(upper, unit, left):
    def solution(a):
        part = np.triu(a) if upper else np.tril(a)
        if unit:
            np.fill_diagonal(part, 1)
        return np.linalg.solve(part, y) if left else np.linalg.solve(part.T, y.T).T

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 4)) / 4 + 2 * np.eye(4), rng.standard_normal((4, 4))
    weights = rng.standard_normal((4, 4))
    a = krt.tensor(x, requires_grad=True)
    b = krt.tensor(y, requires_grad=True)
    out = krt.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)
    np.testing.assert_allclose(out.detach().numpy(), solution(x), rtol=1e-12)
    (out * krt.tensor(weights)).sum().backward()
    for i, j in np.ndindex(4, 4):
        step = np.zeros((4, 4))
        step[i, j] = 1e-6
        slope = ((solution(x + step) - solution(x - step)) * weights).sum() / 2e-6
        np.testing.assert_allclose(a.grad.numpy()[i, j], slope, rtol=1e-6, atol=1e-8)
    outside = np.tril(np.ones((4, 4)), unit - 1).astype(bool)
    assert not a.grad.numpy()[outside if upper else outside.T].any()
