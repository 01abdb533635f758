"""Where the windows of pooling lie, at sizes that they do and do not come out even with."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

#: Kernel, stride, padding.
WINDOWS = [(1, 1, 0), (1, 3, 0), (2, 2, 0), (2, 2, 1), (2, 3, 1), (3, 1, 1), (3, 2, 1), (3, 4, 0),
           (3, 4, 1), (4, 3, 2), (5, 2, 2)]  # fmt: skip
SIZES = range(4, 12)


def same(name: str, x: np.ndarray, *args: object, **options: object) -> None:
    """Values and gradients are those of torch."""
    outcomes = []
    for lib in (krt, torch):
        given = lib.tensor(x, requires_grad=True)
        pool = getattr(lib.nn.functional, name)
        out = pool(given, *args, **options)
        (out * out).sum().backward()
        outcomes.append((out.detach().numpy(), given.grad.numpy()))
    for ours, theirs in zip(*outcomes, strict=True):
        assert ours.shape == theirs.shape, (name, x.shape, args, options)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.cases(1)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_the_greatest(window, ceil_mode):
    rng = np.random.default_rng(0)
    for size in SIZES:
        x = rng.standard_normal((2, 3, size)).astype(np.float32)
        same("max_pool1d", x, *window, ceil_mode=ceil_mode)


@pytest.mark.cases(1)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("padding_counts", [False, True])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_means(window, padding_counts, ceil_mode):
    rng = np.random.default_rng(0)
    for size in SIZES:
        x = rng.standard_normal((2, 3, size)).astype(np.float32)
        same("avg_pool1d", x, *window, ceil_mode=ceil_mode, count_include_pad=padding_counts)


@pytest.mark.cases(1)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("dilation", [2, 3])
def test_dilated_windows(dilation, ceil_mode):
    rng = np.random.default_rng(0)
    for rows, columns in ((7, 8), (9, 11), (10, 7)):
        x = rng.standard_normal((1, 2, rows, columns)).astype(np.float32)
        for stride in (1, 2, 3):
            same("max_pool2d", x, 3, stride, 1, dilation, ceil_mode=ceil_mode)
