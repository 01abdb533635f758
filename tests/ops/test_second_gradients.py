"""Gradients of gradients where a rule stands for the ops of a function, against torch."""

from __future__ import annotations

from functools import partial

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
    "tan": lambda x: x.tan(), "asin": lambda x: (x / 4).asin(), "acos": lambda x: (x / 4).acos(),
    "atan": lambda x: x.atan(), "atan2": lambda x: x.atan2(x * x - 2), "sinh": lambda x: x.sinh(),
    "cosh": lambda x: x.cosh(), "asinh": lambda x: x.asinh(), "exp2": lambda x: x.exp2(),
    "acosh": lambda x: (x.abs() + 1.5).acosh(), "atanh": lambda x: (x / 4).atanh(),
    "log2": lambda x: x.abs().log2(), "log10": lambda x: x.abs().log10(),
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


#: Numbers where parts of a closed form overflow or vanish, though the function does not.
EXTREME = [-1e4, -200.0, -100.0, -89.0, -20.0, -0.5, 0.25, 0.5, 30.0, 100.0, 1e4]
SMOOTH = {
    **{name: METHODS[name] for name in ("sigmoid", "tanh", "logsumexp", "softmax", "log_softmax")},
    **{name: named(name) for name in ("elu", "softplus", "silu", "gelu", "logsigmoid", "softsign")},
    "gelu_by_tanh": lambda x: (
        torch.nn.functional.gelu(x, approximate="tanh") if isinstance(x, torch.Tensor)
        else x.gelu("tanh")
    ),
    "mish": lambda x: (
        x * torch.nn.functional.softplus(x).tanh() if isinstance(x, torch.Tensor) else x.mish()
    ),
    "norm": METHODS["norm"],
    "rsqrt": METHODS["rsqrt"], "atan": METHODS["atan"], "asinh": METHODS["asinh"],
}  # fmt: skip


def curvature(kit, x, function, weights):
    """The gradient of a sum of first gradients with weights."""
    if kit is krt:
        first = krt.grad(function(x).sum(), x, create_graph=True)
        return krt.grad((first * weights).sum(), x).numpy()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return torch.autograd.grad((first * weights).sum(), x)[0].numpy()


def both(array, function, dtype="float64"):
    weights = np.linspace(1, 2, array.size).reshape(array.shape)
    ours = krt.tensor(array, dtype=dtype, requires_grad=True)
    theirs = torch.tensor(array, dtype=torch.float64, requires_grad=True)
    given = krt.tensor(weights, dtype=dtype)
    wanted = curvature(torch, theirs, function, torch.tensor(weights))
    return curvature(krt, ours, function, given), wanted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SMOOTH)
def test_second_gradients_of_large_numbers(name, dtype):
    array = np.array([EXTREME, EXTREME[::-1]]) * (1 if dtype == "float32" else 10)
    ours, wanted = both(array, SMOOTH[name], dtype)
    bound = 1e-5 if dtype == "float32" else 1e-9
    np.testing.assert_allclose(ours, np.nan_to_num(wanted), rtol=bound, atol=bound)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_second_gradients_of_products_with_zeros(dim):
    rows = [[0.0, 3, 2, 4], [0, 3, 0, 5], [3, 2, -0.0, 0], [0, 0, 0, 2], [1, 2, 3, 0.5], [0] * 4]
    for array in (np.array(rows), np.array(rows).T, np.array(rows[1]), np.array(rows[1:2])):
        if dim is None or dim < array.ndim:
            def product(x):
                # The squares are there as torch has no history of a product of one.
                return (x.prod() if dim is None else x.prod(dim)).sum() + (x * x).sum()

            np.testing.assert_allclose(*both(array, product), rtol=1e-9, atol=1e-9)


def multiplied(x):
    """The product over axis 1, element by element."""
    out = x[:, 0]
    for i in range(1, x.shape[1]):
        out = out * x[:, i]
    return out


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize("special", [np.inf, -np.inf, 0, 1e-30, 1e30])
def test_second_gradients_of_products_beside_extremes(count, special):
    # Of one sign: what infinities of both signs add up to depends on the order.
    array = np.random.default_rng(count).uniform(0.5, 2, (3, count))
    array[0, 0] = array[1, -1] = special
    ours = both(array, lambda x: x.prod(1))[0]
    wanted = both(array, multiplied)[1]
    np.testing.assert_allclose(ours, wanted, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 8])
def test_second_gradients_of_products_of_open_length(count):
    array = np.random.default_rng(count).uniform(0.5, 2, (count, 3))
    array[-1, 0], array[0, 1] = np.inf, 0
    weights = np.linspace(1, 2, array.size).reshape(array.shape)

    @partial(krt.jit, dynamic={key: {0: krt.Variable("n", 1, 9)} for key in ("x", "weights")})
    def run(x, weights):
        x = x.detach().requires_grad_()
        first = krt.grad(x.prod(0).sum() + 3 * (x * x).sum(), x, create_graph=True)
        return krt.grad((first * weights).sum(), x)

    x = torch.tensor(array, requires_grad=True)
    out = multiplied(x.T).sum() + 3 * (x * x).sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    wanted = torch.autograd.grad((first * torch.tensor(weights)).sum(), x)[0].numpy()
    np.testing.assert_allclose(run(array, weights).numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_third_gradients_of_products(dtype):
    array = np.array([[1.0, 2.0, 4.0, -0.5], [0.0, 2.0, 1.0, 0.0]])
    weights = np.array([[1.0, 0.5, 2.0, 1.0]])
    x = krt.tensor(array, dtype=dtype, requires_grad=True)
    first = krt.grad(x.prod(1).sum(), x, create_graph=True)
    second = krt.grad((first * krt.tensor(weights, dtype=dtype)).sum(), x, create_graph=True)
    third = krt.grad((second * second).sum(), x)
    y = torch.tensor(array, requires_grad=True)
    (one,) = torch.autograd.grad(multiplied(y).sum(), y, create_graph=True)
    (two,) = torch.autograd.grad((one * torch.tensor(weights)).sum(), y, create_graph=True)
    (three,) = torch.autograd.grad((two * two).sum(), y)
    assert third.dtype.name == dtype
    rounding = {"bfloat16": 2**-7, "float16": 2**-10}.get(dtype, 1e-7)
    np.testing.assert_allclose(third.float().tolist(), three.tolist(), rtol=rounding)


@pytest.mark.parametrize("correction", [0, 1])
def test_second_gradients_of_equal_elements(correction):
    ours, wanted = both(np.full((2, 3), 1.5), lambda x: x.std(1, correction=correction))
    assert ours.tolist() == wanted.tolist() == [[0.0] * 3] * 2
