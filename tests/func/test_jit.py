"""Derivatives of jitted functions, and jitted derivatives."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import func

X = np.random.default_rng(0).standard_normal(5)
W = np.random.default_rng(1).standard_normal((4, 5))


def layer(x, w):
    return (w @ x).tanh() * (w @ x)


def total(x, w):
    return layer(x, w).exp().sum()


@pytest.mark.parametrize(
    "make",
    [
        lambda: func.grad(total, (0, 1)), lambda: func.grad_and_value(total),
        lambda: func.jacrev(layer, (0, 1)), lambda: func.jacfwd(layer), lambda: func.hessian(total),
        lambda: lambda x, w: func.jvp(layer, (x, w), (x * 2, w)),
        lambda: lambda x, w: func.vjp(layer, x, w)[1]((w @ x).sin()),
        lambda: func.grad(lambda x, w: func.grad(total)(x, w).square().sum()),
    ],
    ids=["grad", "grad_and_value", "jacrev", "jacfwd", "hessian", "jvp", "vjp", "grad_of_grad"],
)  # fmt: skip
def test_a_jitted_derivative(make):
    x, w = krt.tensor(X), krt.tensor(W)
    expected = make()(x, w)
    jitted = krt.jit(make())
    for scale in (1.0, 1.0):  # a trace and a replay
        found = jitted(x * scale, w)
        for a, b in zip(func.trees.leaves_of(found), func.trees.leaves_of(expected), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    assert len(jitted.plans) == 1
    np.testing.assert_allclose(
        next(iter(func.trees.leaves_of(jitted(x + 1, w)))).numpy(),
        next(iter(func.trees.leaves_of(make()(x + 1, w)))).numpy(), rtol=1e-12,
    )  # fmt: skip


def test_the_derivative_of_a_jitted_function():
    x, w = krt.tensor(X), krt.tensor(W)
    expected = func.grad(total)(x, w).numpy()
    jitted = krt.jit(total)
    plain = jitted(x, w).item()
    for _ in range(2):
        np.testing.assert_allclose(func.grad(jitted)(x, w).numpy(), expected)
    assert jitted(x, w).item() == plain
    inner = krt.jit(layer)
    inner(x, w)
    found = func.hessian(lambda x, w: inner(x, w).exp().sum())(x, w)
    np.testing.assert_allclose(found.numpy(), func.hessian(total)(x, w).numpy())
    with pytest.raises(krt.DTypeError, match="returns a tuple"):
        func.grad(krt.jit(func.grad_and_value(total)))(x, w)


def test_other_threads_replay_meanwhile():
    jitted = krt.jit(lambda x: x * 2)
    jitted(X)
    calls = []

    def elsewhere():
        calls.append(jitted(X).numpy())

    def f(x):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return jitted(x).sum()

    np.testing.assert_allclose(func.grad(f)(krt.tensor(X)).numpy(), 2)
    np.testing.assert_allclose(calls[0], 2 * X)
    assert len(jitted.plans) == 1


def test_after_an_error_functions_are_replayed_again():
    jitted = krt.jit(lambda x: (x * 2).sum())

    def fails(x):
        jitted(x)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        func.grad(fails)(krt.tensor(X))
    assert not jitted.plans
    jitted(X)
    assert len(jitted.plans) == 1


def test_parameters_are_trained_by_a_jitted_step():
    module = krt.nn.Sequential(krt.nn.Linear(5, 4), krt.nn.Tanh(), krt.nn.Linear(4, 1))
    x, y = krt.tensor(np.random.default_rng(2).standard_normal((16, 5)).astype(np.float32)), 1.0

    @krt.jit
    def step(parameters, x):
        def loss(parameters):
            return ((func.functional_call(module, parameters, x) - y) ** 2).mean()

        slopes, value = func.grad_and_value(loss)(parameters)
        return {n: p - 0.1 * slopes[n] for n, p in parameters.items()}, value

    parameters = {n: p.detach() for n, p in module.named_parameters()}
    before = {n: p.numpy().copy() for n, p in module.named_parameters()}
    losses = []
    for _ in range(20):
        parameters, value = step(parameters, x)
        losses.append(value.item())
    assert losses[-1] < 0.2 * losses[0]
    assert len(step.plans) == 1, step.explain()
    for n, p in module.named_parameters():
        np.testing.assert_array_equal(p.numpy(), before[n])


def test_a_size_that_is_known_at_run_time_only():
    n = krt.Variable("n", 1, 9)
    grad = krt.jit(func.grad(lambda x: (x**3).sum()), dynamic={"x": {0: n}})
    for size in (3, 5):
        np.testing.assert_allclose(grad(np.arange(size) * 1.0).numpy(), 3 * np.arange(size) ** 2.0)
    jacobian = krt.jit(func.jacrev(lambda x: x * x), dynamic={"x": {0: n}})
    with pytest.raises(krt.VariableError, match="jacrev"):
        jacobian(np.arange(3.0))
