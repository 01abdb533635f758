"""Ops whose gradient is a rule of their own, where their value folds to an operand or a constant.

Beside other uses of the operand and alone, against PyTorch in float64.
"""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")
F = torch.nn.functional

OPS = {
    "max_pool1d(1)": (lambda x: x.max_pool1d(1), lambda x: F.max_pool1d(x, 1)),
    "max_pool1d(1, 2)": (lambda x: x.max_pool1d(1, 2), lambda x: F.max_pool1d(x, 1, 2)),
    "max_pool2d(1)": (lambda x: x.max_pool2d(1), lambda x: F.max_pool2d(x, 1)),
    "max_pool2d(1, 2)": (lambda x: x.max_pool2d(1, 2), lambda x: F.max_pool2d(x, 1, 2)),
    "max_pool2d(2)": (
        lambda x: x.pad((0, 1, 0, 1)).max_pool2d(2),
        lambda x: F.max_pool2d(F.pad(x, (0, 1, 0, 1)), 2),
    ),
    "avg_pool2d(1)": (lambda x: x.avg_pool2d(1), lambda x: F.avg_pool2d(x, 1)),
    "softmax": (lambda x: x.softmax(-1), lambda x: x.softmax(-1)),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x: x.log_softmax(-1)),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda x: x.logsumexp(-1)),
    "var": (lambda x: x.var(-1, correction=0), lambda x: x.var(-1, correction=0)),
    "layer_norm": (
        lambda x: x.layer_norm(x.shape[-1]), lambda x: F.layer_norm(x, x.shape[-1:])
    ),
    "sigmoid": (lambda x: x.sigmoid(), lambda x: x.sigmoid()),
    "softplus": (lambda x: x.softplus(), F.softplus),
    "log1p": (lambda x: x.abs().log1p(), lambda x: x.abs().log1p()),
    "expm1": (lambda x: x.expm1(), lambda x: x.expm1()),
    "rsqrt": (lambda x: (x * x + 1).rsqrt(), lambda x: (x * x + 1).rsqrt()),
    "relu6": (lambda x: x.relu6(), F.relu6),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), lambda x: x.clamp(-0.5, 0.5)),
    "amax": (lambda x: x.amax(-1), lambda x: x.amax(-1)),
    "conv1d": (
        lambda x: x.conv1d(krt.ones(x.shape[1], x.shape[1], 1, dtype="float64")),
        lambda x: F.conv1d(x, torch.ones(x.shape[1], x.shape[1], 1, dtype=torch.float64)),
    ),
    "itself": (lambda x: x.max_pool1d(1) * x, lambda x: F.max_pool1d(x, 1) * x),
    "twice": (
        lambda x: x.max_pool1d(1).max_pool1d(1) + x.max_pool1d(1),
        lambda x: 2 * F.max_pool1d(x, 1),
    ),
    "x**2 pooled": (lambda x: (x * x).max_pool1d(1), lambda x: F.max_pool1d(x * x, 1)),
}  # fmt: skip
SHAPES = [(1, 1, 1), (2, 3, 1), (2, 3, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("beside", ["alone", "beside", "expanded"])
def test_gradient(name, shape, beside):
    data = np.random.default_rng(len(name)).standard_normal(shape)

    def loss(op, x):
        y = op(x)
        weighted = (y * y.exp()).sum()
        return (x * 3).sum() + weighted + x.sum() if beside == "beside" else weighted

    ours, theirs = OPS[name]
    x = krt.tensor(data[:, :, :1] if beside == "expanded" else data, requires_grad=True)
    t = torch.tensor(x.numpy(), requires_grad=True)
    wide = (lambda v: v.expand(*shape)) if beside == "expanded" else (lambda v: v)
    loss(ours, wide(x)).backward()
    loss(theirs, wide(t)).backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-12)
