"""Layers against NumPy float64, other floating types, and bad arguments."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def values(layer: nn.Module) -> dict[str, np.ndarray]:
    return {k: v.numpy().astype(np.float64) for k, v in layer.state_dict().items()}


def close(ours: krt.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias: bool) -> None:
    layer, x = nn.Linear(5, 7, bias=bias), data(2, 3, 5)
    v = values(layer)
    assert list(v) == ["weight", "bias"][: 1 + bias]
    close(layer(krt.tensor(x)), x @ v["weight"].T + v.get("bias", 0))


def windows(x: np.ndarray, kernel: tuple, stride: tuple, dilation: tuple) -> np.ndarray:
    """(batch, channels, rows, columns, taps, taps)."""
    counts = [
        (x.shape[2 + a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(2)
    ]
    out = np.empty((*x.shape[:2], *counts, *kernel))
    for i, j, p, q in itertools.product(*map(range, (*counts, *kernel))):
        row, column = i * stride[0] + p * dilation[0], j * stride[1] + q * dilation[1]
        out[:, :, i, j, p, q] = x[:, :, row, column]
    return out


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"kernel_size": 3}, (2, 4, 6, 7)),
        ({"kernel_size": (3, 2), "stride": (1, 2), "padding": (2, 0)}, (1, 4, 5, 8)),
        ({"kernel_size": 2, "dilation": (2, 3), "padding": 1}, (2, 4, 7, 7)),
        ({"kernel_size": 3, "groups": 2, "stride": 2, "padding": 1}, (2, 4, 7, 6)),
        ({"kernel_size": 1, "bias": False}, (2, 4, 3, 3)),
    ],
)
def test_conv2d(options: dict, shape: tuple) -> None:
    layer, x = nn.Conv2d(4, 6, **options), data(*shape)
    v = values(layer)
    rows, columns = layer.padding
    padded = np.pad(x, ((0, 0), (0, 0), (rows, rows), (columns, columns)))
    taps = windows(padded, layer.kernel_size, layer.stride, layer.dilation)
    groups = layer.groups
    parts = [
        np.einsum("ncijpq,ocpq->noij", part, weight)
        for part, weight in zip(
            np.split(taps, groups, 1), np.split(v["weight"], groups, 0), strict=True
        )
    ]
    expected = np.concatenate(parts, 1) + v.get("bias", np.zeros(6))[:, None, None]
    close(layer(krt.tensor(x)), expected)


def test_pooling() -> None:
    x = data(2, 3, 6, 7)
    taps = windows(x, (2, 2), (2, 2), (1, 1))
    close(nn.MaxPool2d(2)(krt.tensor(x)), taps.max((-1, -2)))
    close(nn.AvgPool2d(2)(krt.tensor(x)), taps.mean((-1, -2)))
    border = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    taps = windows(border, (3, 3), (2, 2), (1, 1))
    close(nn.MaxPool2d(3, 2, 1)(krt.tensor(x)), taps.max((-1, -2)))


def test_layer_norm() -> None:
    layer, x = nn.LayerNorm((3, 4), eps=1e-3), data(5, 3, 4)
    layer.weight.assign(krt.tensor(data(3, 4, seed=1)))
    layer.bias.assign(krt.tensor(data(3, 4, seed=2)))
    v = values(layer)
    mean = x.mean((1, 2), keepdims=True)
    var = x.astype(np.float64).var((1, 2), keepdims=True)
    close(layer(krt.tensor(x)), (x - mean) / np.sqrt(var + 1e-3) * v["weight"] + v["bias"])


def test_embedding() -> None:
    layer, index = nn.Embedding(10, 4), np.array([[1, 9, 0], [1, 1, 5]])
    y = layer(krt.tensor(index))
    close(y, values(layer)["weight"][index])
    y.sum().backward()
    assert (
        layer.weight.grad.numpy()[:, 0].tolist()
        == np.bincount(index.ravel(), minlength=10).tolist()
    )
    for bad in (10, -1):
        with pytest.raises(krt.IndexBoundsError):
            layer(krt.tensor([bad])).numpy()


def test_activations() -> None:
    x = data(3, 4).astype(np.float64)
    erf = np.vectorize(math.erf)
    expected = {
        nn.ReLU(): np.maximum(x, 0),
        nn.LeakyReLU(0.2): np.where(x > 0, x, 0.2 * x),
        nn.Tanh(): np.tanh(x),
        nn.Sigmoid(): 1 / (1 + np.exp(-x)),
        nn.SiLU(): x / (1 + np.exp(-x)),
        nn.Softplus(): np.log1p(np.exp(x)),
        nn.GELU(): x * (1 + erf(x / np.sqrt(2))) / 2,
        nn.Softmax(0): np.exp(x) / np.exp(x).sum(0),
        nn.LogSoftmax(): x - np.log(np.exp(x).sum(-1, keepdims=True)),
        nn.Flatten(0): x.ravel(),
        nn.Identity(): x,
    }
    for layer, value in expected.items():
        close(layer(krt.tensor(x.astype(np.float32))), value)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_floating_types(dtype: str) -> None:
    krt.manual_seed(0)  # a gradient near 0 has a square of 0 in float16
    model = nn.Sequential(
        nn.Linear(4, 6, dtype=dtype), nn.LayerNorm(6, dtype=dtype), nn.Linear(6, 2, dtype=dtype)
    )
    y = model(krt.ones(3, 4, dtype=dtype))
    assert y.dtype.name == dtype
    y.cast("float32").sum().backward()
    assert all(p.grad.dtype.name == dtype for p in model.parameters())
    before = [p.cast("float64").detach().numpy() for p in model.parameters()]
    opt = nn.optim.AdamW(model.parameters(), lr=0.1)
    opt.step()
    after = [p.cast("float64").detach().numpy() for p in model.parameters()]
    assert all(np.isfinite(b).all() for b in after)
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_dropout_in_both_modes() -> None:
    drop = nn.Dropout(0.25)
    x = krt.ones(4000)
    y = drop(x).numpy()
    assert 800 < (y == 0).sum() < 1200
    assert np.allclose(y[y != 0], 4 / 3)
    assert np.array_equal(drop.eval()(x).numpy(), x.numpy())
    assert not nn.Dropout(1.0)(x).numpy().any()


def test_bad_arguments_are_named() -> None:
    for make, match in (
        (lambda: nn.Linear(0, 3), "in_features"),
        (lambda: nn.Linear(3, -1), "out_features"),
        (lambda: nn.Conv2d(3, 4, 0), "kernel_size"),
        (lambda: nn.Conv2d(3, 4, 3, stride=0), "stride"),
        (lambda: nn.Conv2d(3, 4, 3, padding=-1), "padding"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels"),
        (lambda: nn.Dropout(1.5), "p:"),
        (lambda: nn.GELU("exact"), "approximate"),
        (lambda: nn.LayerNorm(()), "normalized_shape"),
        (lambda: nn.Linear(3, 4)(krt.ones(2, 4)), r"Linear\(3, 4\)"),
        (lambda: nn.Conv2d(3, 4, 3)(krt.ones(2, 8, 8)), r"Conv2d\(3, 4"),
    ):
        with pytest.raises(krt.ShapeError, match=match):
            make()
    for make, match in (
        (lambda: nn.Linear(2.5, 3), "in_features"),
        (lambda: nn.Linear(True, 3), "in_features"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "kernel_size"),
        (lambda: nn.Linear(2, 3, dtype="int32"), "dtype"),
        (lambda: nn.Sequential(nn.ReLU(), 3), "layer 1"),
    ):
        with pytest.raises(krt.DTypeError, match=match):
            make()
