"""Where the windows of pooling lie, at sizes that they do and do not come out even with."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

#: Kernel, stride, padding.
WINDOWS = [(1, 1, 0), (1, 3, 0), (2, 2, 0), (2, 2, 1), (2, 3, 1), (3, 1, 1), (3, 2, 1), (3, 4, 0),
           (3, 4, 1), (4, 3, 2), (5, 2, 2)]  # fmt: skip
SIZES = range(4, 12)


def same(name: str, x: np.ndarray, *args: object, **options: object) -> None:
    """Values and gradients are those of torch."""
    torch = pytest.importorskip("torch")
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


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_windows_begin_in_the_input_or_in_the_padding_ahead(ceil_mode):
    rng = np.random.default_rng(0)
    for size in (4, 7, 10):
        x = rng.standard_normal((2, size)).astype(np.float32)
        expected, results = [], []
        for kernel, stride, padding in WINDOWS:
            begins = [
                begin for begin in range(-padding, size + padding, stride)
                if begin + kernel <= size + padding
                or (ceil_mode and begin < size and begin - stride + kernel < size + padding)
            ]  # fmt: skip
            parts = [x[:, max(b, 0) : b + kernel].max(-1) for b in begins]
            expected.append(np.stack(parts, -1))
            results.append(krt.nn.functional.max_pool1d(
                krt.tensor(x[None]), kernel, stride, padding, ceil_mode=ceil_mode
            ))  # fmt: skip
        krt.realize(*results)
        for window, got, wanted in zip(WINDOWS, results, expected, strict=True):
            np.testing.assert_array_equal(got[0].numpy(), wanted, str((size, *window)))


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
