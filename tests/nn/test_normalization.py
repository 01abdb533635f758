"""Running statistics of the normalization layers against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("momentum", [0.1, 0.3, None])
@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d"])
def test_running_statistics_after_some_batches(
    name: str, momentum: float | None, jit: bool
) -> None:
    mine = getattr(nn, name)(3, momentum=momentum, track_running_stats=True)
    theirs = getattr(torch.nn, name)(3, momentum=momentum, track_running_stats=True)
    step = krt.jit(mine) if jit else mine
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = (rng.standard_normal((4, 3, 5, 5)) * 2 + 1).astype(np.float32)
        step(krt.tensor(x)).numpy()
        theirs(torch.tensor(x))
    expected = theirs.state_dict()
    found = mine.state_dict()
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(129, 9001), (2, 9001), (40, 2049), (129, 1025)], ids=str)
def test_long_rows_of_odd_lengths(shape: tuple[int, int], threads: int) -> None:
    rng = np.random.default_rng(5)
    x, g = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    w, b = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(2))

    @krt.jit
    def gradients(x, w, b):
        leaves = [a.requires_grad_() for a in (x, w, b)]
        y = x.layer_norm((shape[1],), w, b, 1e-3)
        return y, krt.grad((y * krt.tensor(g)).sum(), leaves)

    before = krt.get_num_threads()
    krt.set_num_threads(threads)
    try:
        y, found = gradients(x, w, b)
    finally:
        krt.set_num_threads(before)
    leaves = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, w, b)]
    wanted = torch.nn.functional.layer_norm(leaves[0], (shape[1],), *leaves[1:], 1e-3)
    (wanted * torch.tensor(g)).sum().backward()
    np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(found, leaves, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.grad.numpy(), rtol=1e-3, atol=1e-3)
