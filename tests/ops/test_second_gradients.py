"""Gradients of gradients where a rule stands for the ops of a function, against torch."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

METHODS = {
    "norm": lambda x: x.norm(2, 1), "norm_3": lambda x: x.norm(3, 1),
    "norm_1.5": lambda x: x.norm(1.5, 1), "std": lambda x: x.std(1), "var": lambda x: x.var(1),
    "softmax": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp(1), "expm1": lambda x: x.expm1(),
    "log1p": lambda x: x.abs().log1p(), "sigmoid": lambda x: x.sigmoid(),
    "fmod": lambda x: x.fmod(x * x + 1), "power": lambda x: x.abs() ** x, "cube": lambda x: x**3,
    "tanh": lambda x: x.tanh(), "rsqrt": lambda x: x.abs().rsqrt(), "prod": lambda x: x.prod(1),
}  # fmt: skip
FUNCTIONS = ("elu", "softplus", "silu", "gelu", "mish", "logsigmoid", "hardswish")


def named(name: str):
    functional = getattr(torch.nn.functional, name)
    return lambda x: functional(x) if isinstance(x, torch.Tensor) else getattr(x, name)()


@pytest.mark.parametrize("name", [*METHODS, *FUNCTIONS])
def test_gradients_of_gradients(name):
    function = METHODS.get(name) or named(name)
    array = np.random.default_rng(0).standard_normal((3, 5))
    x, y = krt.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    first = krt.grad((function(x) ** 2).sum(), x, create_graph=True)
    second = krt.grad((first * first).sum(), x)
    (slope,) = torch.autograd.grad((function(y) ** 2).sum(), y, create_graph=True)
    (curve,) = torch.autograd.grad((slope * slope).sum(), y)
    np.testing.assert_allclose(second.numpy(), curve.numpy(), rtol=1e-9, atol=1e-10)
