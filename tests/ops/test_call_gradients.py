"""krt.call without jit: gradients by the rules of calls."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.errors import GradientError

torch = Package("torch")

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def sine(x):
    return krt.call(np.sin, x, out=x, vjp=_of_sine)


def _of_sine(inputs, _result, cotangent):
    (x,) = inputs
    return cotangent * krt.call(np.cos, x, out=x, vjp=_of_cosine)


def _of_cosine(inputs, _result, cotangent):
    return -cotangent * sine(inputs[0])


def test_gradients_of_any_order_go_by_the_rule():
    data = floats(5).astype(np.float64)
    x, other = krt.tensor(data), torch.tensor(data, requires_grad=True)
    f = lambda t: (sine(t) * t).sum()  # noqa: E731
    reference = (other.sin() * other).sum()
    (first,) = torch.autograd.grad(reference, other, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), other)
    grad = krt.func.grad(f)
    np.testing.assert_allclose(grad(x).numpy(), first.detach().numpy(), rtol=1e-12)
    twice = krt.func.grad(lambda t: grad(t).sum())
    np.testing.assert_allclose(twice(x).numpy(), second.numpy(), rtol=1e-12)
    x.requires_grad_()
    for k in range(1, 3):
        f(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), k * first.detach().numpy(), rtol=1e-12)


def test_forward_derivatives_and_jacobians_go_by_the_rule():
    data = floats(4).astype(np.float64)
    x, v = krt.tensor(data), krt.tensor(floats(4).astype(np.float64))
    value, slope = krt.func.jvp(sine, (x,), (v,))
    np.testing.assert_allclose(value.numpy(), np.sin(data), rtol=1e-12)
    np.testing.assert_allclose(slope.numpy(), np.cos(data) * v.numpy(), rtol=1e-12)
    for jacobian in (krt.func.jacrev, krt.func.jacfwd):
        np.testing.assert_allclose(
            jacobian(sine)(x).numpy(), np.diag(np.cos(data)), rtol=1e-12, atol=1e-14
        )


def test_one_rule_serves_all_results():
    asked = []

    def both(a, b):
        return {"sum": a + b, "count": a.size, "product": (a * b).astype(np.float64)}

    def rule(inputs, results, cotangents):
        asked.append(sorted(cotangents))
        assert cotangents["count"] is None
        assert results["count"].dtype is krt.int64
        a, b = inputs
        wide = cotangents["product"].float()
        return cotangents["sum"] + wide * b, cotangents["sum"] + wide * a

    a, b = (krt.tensor(floats(3), requires_grad=True) for _ in range(2))
    out = {"sum": a, "count": ((), "int64"), "product": ((3,), "float64")}
    found = krt.call(both, a, b, out=out, vjp=rule)
    (found["sum"].sum() + (found["product"] ** 2).sum()).backward()
    u, w = (torch.tensor(t.numpy().astype(np.float64), requires_grad=True) for t in (a, b))
    ((u + w).sum() + ((u * w) ** 2).sum()).backward()
    np.testing.assert_allclose(a.grad.numpy(), u.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), w.grad.numpy(), rtol=1e-5)
    assert len(asked) == 1


def test_without_a_rule_the_function_is_named():
    x = krt.ones(3, requires_grad=True)
    y = krt.ones(3)
    with pytest.raises(GradientError, match=r"sin: .* no derivative; pass one as vjp="):
        krt.call(np.sin, x, out=x).sum().backward()
    (krt.call(np.sin, x.detach(), out=y) * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.sin(np.ones(3, np.float32)), rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda i, r, c: (c, c), "for each of 1 inputs, not 2"),
        (lambda i, r, c: c.sum(), r"must be None or a Tensor of shape \(3,\), not shape \(\)"),
        (lambda i, r, c: 3.0, r"must be None or a Tensor of shape \(3,\), not 3.0"),
    ],
)
def test_what_a_rule_gives_is_checked(rule, message):
    x = krt.ones(3, requires_grad=True)
    with pytest.raises(GradientError, match=message):
        krt.call(np.sin, x, out=x, vjp=rule).sum().backward()


def test_a_rule_may_give_none():
    x, y = krt.ones(3, requires_grad=True), krt.ones(3, requires_grad=True)
    krt.call(np.add, x, y, out=x, vjp=lambda i, r, c: (c, None)).sum().backward()
    assert x.grad.tolist() == [1.0] * 3
    assert y.grad is None or y.grad.tolist() == [0.0] * 3
