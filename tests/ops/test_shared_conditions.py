"""One element that several reductions of a kernel want, each under a condition on its own loop."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [17, 20, 31, 33])
def test_second_gradients_of_blocks(n):
    torch = pytest.importorskip("torch")
    arrays = [RNG.standard_normal(n) for _ in range(3)]
    found = []
    for k, grad in ((krt, krt.grad), (torch, torch.autograd.grad)):
        x, v, w = (k.tensor(a) for a in arrays)
        x.requires_grad_()
        (first,) = grad([(x.logcumsumexp(0) * v).sum()], [x], create_graph=True)
        (second,) = grad([(first * w).sum()], [x])
        found.append(second.numpy())
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_sums_of_windows_beside_each_other(size):
    """Both sums read ``b[i]``, the first one where ``i < k`` and the second where ``i < m``."""
    rows = RNG.standard_normal((size, 4))
    a, b, c, d = (RNG.standard_normal((size, 3)) for _ in range(4))

    def both(rows, a, b, c, d):
        k = [(x * y.exp()).pad((0, 1)).cumsum(1) for x, y in ((a, b), (c, b))]
        inner = (rows[:, :, None] * k[0][:, None, :]).sum(2)
        return inner + (k[1] * d.exp().pad((1, 0))).flip(1)

    found = both(*map(krt.tensor, (rows, a, b, c, d))).numpy()
    p, q = (np.cumsum(np.pad(x * np.exp(b), ((0, 0), (0, 1))), 1) for x in (a, c))
    expected = rows * p.sum(1, keepdims=True) + (q * np.pad(np.exp(d), ((0, 0), (1, 0))))[:, ::-1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
