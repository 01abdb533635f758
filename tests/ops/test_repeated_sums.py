"""A sum that two kernels need is one number, as what compares it with itself expects."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

REDUCED = {
    "mean of windows": lambda x: x.avg_pool2d(2).max(1)[0],
    "largest mean": lambda x: x.mean(2).max(1)[0],
    "least sum": lambda x: x.sum(2).amin(1),
    "largest product": lambda x: x.prod(2).amax(1),
    "largest root of squares": lambda x: x.square().sum(2).sqrt().amax(0),
}


@pytest.mark.parametrize("shape", [(1, 4, 5), (2, 6, 3), (3, 8, 17), (5, 2, 2), (1, 33, 9)])
@pytest.mark.parametrize("name", REDUCED)
def test_gradients_of_extrema_of_sums_computed_with_them(name, shape):
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    theirs = torch.tensor(values).double().requires_grad_()
    if name == "mean of windows":
        truth = torch.nn.functional.avg_pool2d(theirs, 2).max(1)[0]
    else:
        truth = REDUCED[name](theirs)
    (wanted,) = torch.autograd.grad((truth * truth * 0.5 + truth).sum(), theirs)

    def both(x):
        x = x.clone().requires_grad_()
        result = REDUCED[name](x)
        return result, krt.grad((result * result * 0.5 + result).sum(), x)

    found = both(krt.tensor(values))
    krt.realize(*found)
    for result, gradient in (found, krt.jit(both)(values)):
        np.testing.assert_allclose(result.numpy(), truth.detach().numpy(), 1e-4, 1e-5)
        np.testing.assert_allclose(gradient.numpy(), wanted.numpy(), 1e-3, 1e-4)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("kind", ["sum", "mean", "prod", "squares", "windows"])
def test_a_sum_equals_itself_within_one_computation(kind, seed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 9), rng.integers(2, 20), rng.integers(2, 40)
    x = krt.tensor(rng.normal(size=shape).astype(np.float32))
    sums = {
        "sum": lambda: x.sum(2),
        "mean": lambda: x.mean(2),
        "prod": lambda: x.prod(2),
        "squares": lambda: x.square().sum(2),
        "windows": lambda: x[:, : shape[1] // 2 * 2, : shape[2] // 2 * 2].avg_pool2d(2),
    }[kind]()
    assert (sums == sums.amax(1, keepdim=True)).numpy().any(1).all()
