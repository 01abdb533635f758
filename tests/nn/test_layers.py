"""Layers against PyTorch: values and gradients, with the same parameters."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

torch = pytest.importorskip("torch")
tnn = torch.nn

CASES = {
    "linear": (lambda n: n.Linear(5, 7), (3, 5)),
    "linear, no bias": (lambda n: n.Linear(5, 7, bias=False), (2, 3, 5)),
    "linear of one": (lambda n: n.Linear(1, 1), (1,)),
    "conv": (lambda n: n.Conv2d(3, 4, 3), (2, 3, 6, 7)),
    "conv, stride and padding": (lambda n: n.Conv2d(3, 4, 3, 2, 1), (2, 3, 7, 6)),
    "conv, pairs": (
        lambda n: n.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1)),
        (1, 2, 8, 9),
    ),
    "conv, groups": (lambda n: n.Conv2d(4, 6, 3, groups=2, bias=False), (2, 4, 5, 5)),
    "conv 1d": (lambda n: n.Conv1d(3, 4, 3, stride=2, padding=1), (2, 3, 9)),
    "conv 3d": (lambda n: n.Conv3d(2, 4, (1, 2, 3), padding=(0, 1, 1), groups=2), (2, 2, 3, 4, 5)),
    "transposed": (lambda n: n.ConvTranspose2d(3, 4, 4, 2, 1), (2, 3, 5, 4)),
    "transposed, groups": (
        lambda n: n.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, False, (1, 2)),
        (2, 4, 3, 5),
    ),
    "transposed 1d": (lambda n: n.ConvTranspose1d(3, 2, 5, 3, dilation=2), (2, 3, 6)),
    "transposed 3d": (lambda n: n.ConvTranspose3d(2, 3, 3, 2, 1, 1), (1, 2, 2, 3, 2)),
    "conv 1x1": (lambda n: n.Conv2d(4, 2, 1), (2, 4, 3, 3)),
    "max pool": (lambda n: n.MaxPool2d(2), (2, 3, 6, 7)),
    "max pool, overlapping": (lambda n: n.MaxPool2d(3, stride=2, padding=1), (2, 3, 7, 7)),
    "avg pool": (lambda n: n.AvgPool2d(2), (2, 3, 6, 7)),
    "avg pool, padding": (lambda n: n.AvgPool2d(3, stride=1, padding=1), (1, 2, 5, 5)),
    "layer norm": (lambda n: n.LayerNorm(6), (4, 6)),
    "layer norm, two axes": (lambda n: n.LayerNorm((3, 4), eps=1e-3), (5, 3, 4)),
    "layer norm, plain": (lambda n: n.LayerNorm(6, elementwise_affine=False), (2, 3, 6)),
    "relu": (lambda n: n.ReLU(), (3, 4)),
    "leaky relu": (lambda n: n.LeakyReLU(0.2), (3, 4)),
    "tanh": (lambda n: n.Tanh(), (3, 4)),
    "sigmoid": (lambda n: n.Sigmoid(), (3, 4)),
    "silu": (lambda n: n.SiLU(), (3, 4)),
    "softplus": (lambda n: n.Softplus(2.0, 3.0), (3, 4)),
    "gelu": (lambda n: n.GELU(), (3, 4)),
    "gelu, tanh": (lambda n: n.GELU("tanh"), (3, 4)),
    "softmax": (lambda n: n.Softmax(dim=1), (3, 4)),
    "log softmax": (lambda n: n.LogSoftmax(dim=-1), (3, 4)),
    "flatten": (lambda n: n.Flatten(), (2, 3, 4)),
    "flatten, middle": (lambda n: n.Flatten(1, 2), (2, 3, 4, 5)),
    "dropout of none": (lambda n: n.Dropout(0.0), (3, 4)),
    "identity": (lambda n: n.Identity(), (3, 4)),
    "network": (
        lambda n: n.Sequential(
            n.Conv2d(1, 4, 3, padding=1), n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(16, 3)
        ),
        (2, 1, 4, 4),
    ),
}


def pair(make) -> tuple:
    torch.manual_seed(0)
    theirs, ours = make(tnn), make(nn)
    for p in theirs.parameters():  # LayerNorm's ones and zeros would hide mistakes
        p.data.add_(torch.randn_like(p) * 0.3)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_torch(name: str) -> None:
    make, shape = CASES[name]
    ours, theirs = pair(make)
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 2
    x, tx = krt.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    y, ty = ours(x), theirs(tx)
    np.testing.assert_allclose(y.detach().numpy(), ty.detach().numpy(), rtol=2e-5, atol=2e-5)
    weights = np.random.default_rng(2).standard_normal(tuple(ty.shape)).astype(np.float32)
    (y * krt.tensor(weights)).sum().backward()
    (ty * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), tx.grad.numpy(), rtol=1e-4, atol=1e-4)
    expected = dict(theirs.named_parameters())
    assert [n for n, _ in ours.named_parameters()] == list(expected)
    for key, p in ours.named_parameters():
        np.testing.assert_allclose(
            p.grad.numpy(), expected[key].grad.numpy(), rtol=1e-4, atol=1e-4, err_msg=key
        )


@pytest.mark.parametrize("name", CASES)
def test_names_shapes_and_text_are_those_of_torch(name: str) -> None:
    make, _ = CASES[name]
    ours, theirs = make(nn), make(tnn)
    shapes = {k: tuple(v.shape) for k, v in theirs.state_dict().items()}
    assert {k: v.shape for k, v in ours.state_dict().items()} == shapes
    assert repr(ours).startswith(type(theirs).__name__ + "(")


def test_embedding() -> None:
    ours, theirs = pair(lambda n: n.Embedding(10, 4))
    index = np.array([[1, 9, 0], [1, 1, 5]])
    y, ty = ours(krt.tensor(index)), theirs(torch.tensor(index))
    np.testing.assert_array_equal(y.detach().numpy(), ty.detach().numpy())
    (y * y).sum().backward()
    (ty * ty).sum().backward()
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-5)
    with pytest.raises(krt.IndexBoundsError):
        ours(krt.tensor([10])).numpy()
