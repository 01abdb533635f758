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
