"""krt.grad: of several outputs, of results of operations, of what nothing depends on."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

ARRAY = np.random.default_rng(0).uniform(0.5, 2, (3, 4))


def in_both(program):
    """What a program makes of kernelrt and of torch; it takes (library, x, w, grad)."""
    torch = pytest.importorskip("torch")
    found = []
    for k, grad in ((krt, krt.grad), (torch, torch.autograd.grad)):
        x = k.tensor(ARRAY, requires_grad=True)
        w = k.tensor(ARRAY.T.copy(), requires_grad=True)
        out = program(k, x, w, grad)
        out = out if isinstance(out, tuple | list) else [out]
        found.append([None if t is None else t.detach().numpy() for t in out])
    assert len(found[0]) == len(found[1])
    for ours, theirs in zip(*found, strict=True):
        if theirs is None:
            assert ours is None
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def middle(k, x, w, grad):
    h = (x @ w).tanh()
    y = h.exp() * h
    return grad(y.sum(), [h, y, x])


def middle_alone(k, x, w, grad):
    h = (x @ w).tanh()
    return grad((h * h).sum() + x.sum(), [h])


def above_and_below(k, x, w, grad):
    h = x * x
    y = (h * w.T).sum() + h.exp().sum()
    return grad(y, [h, w])


def second_of_a_middle(k, x, w, grad):
    h = x * 2
    (slope,) = grad((h**3).sum(), [h], create_graph=True)
    return grad(slope.sum(), [x, h])


def several_outputs(k, x, w, grad):
    return grad([x.exp().sum(), (x @ w).sum()], [x, w])


def several_with_gradients(k, x, w, grad):
    return grad([x.exp(), x @ w], [x, w], [k.tensor(ARRAY), (x @ w).detach()])


def named(k, x, w, grad):
    return grad(x.exp(), x, grad_outputs=k.tensor(ARRAY))


def unused_is_none(k, x, w, grad):
    return grad(x.exp().sum(), [x, w], allow_unused=True)


def all_unused(k, x, w, grad):
    return grad(x.exp().sum(), [w], allow_unused=True)


def unused_is_zero(k, x, w, grad):
    return grad(x.exp().sum(), [x, w], materialize_grads=True)


def retained(k, x, w, grad):
    y = (x * w.T).sum()
    return [*grad(y, [x], retain_graph=True), *grad(y, [w])]


def clone_of_a_view(k, x, w, grad):
    v = x.reshape(-1).clone()
    return grad((v.reshape(4, 3) * w).sum(), [v])


@pytest.mark.parametrize(
    "program",
    [middle, middle_alone, above_and_below, second_of_a_middle, several_outputs,
     several_with_gradients, named, unused_is_none, all_unused, unused_is_zero, retained,
     clone_of_a_view],
    ids=lambda p: p.__name__,
)  # fmt: skip
def test_programs(program):
    in_both(program)


def test_a_middle_that_was_computed():
    x = krt.tensor(ARRAY, requires_grad=True)
    h = x * x
    before = h.exp().sum()
    h.realize()
    after = (h * 3).sum()
    found = krt.grad(before + after, h)
    np.testing.assert_allclose(found.numpy(), np.exp(ARRAY**2) + 3)


def test_in_a_jit():
    @krt.jit
    def slopes(a):
        x = a.detach().requires_grad_()
        h = x * x
        return krt.grad((h * h).sum(), [h, x])

    h, x = slopes(ARRAY)
    np.testing.assert_allclose(h.numpy(), 2 * ARRAY**2)
    np.testing.assert_allclose(x.numpy(), 4 * ARRAY**3)


def test_refusals():
    x = krt.tensor(ARRAY, requires_grad=True)
    w = krt.tensor(ARRAY, requires_grad=True)
    y = x.exp().sum()
    for options in ({}, {"allow_unused": False}, {"materialize_grads": False}):
        with pytest.raises(krt.GradientError, match=r"inputs\[1\].*materialize_.*allow_unused"):
            krt.grad(y, [x, w], **options)
    with pytest.raises(krt.GradientError, match=r"inputs\[1\].*does not depend"):
        krt.jit(lambda a: krt.grad((x * a).sum(), [x, w]))(ARRAY)
    with pytest.raises(krt.GradientError, match="does not depend"):
        krt.grad(krt.ones(()) * 2, w)
    assert krt.grad(y, w, materialize_grads=True).tolist() == np.zeros((3, 4)).tolist()
    with pytest.raises(krt.GradientError, match="materialize_grads"):
        krt.grad(y, x, allow_unused=False, materialize_grads=True)
    with pytest.raises(krt.GradientError, match="grad_outputs"):
        krt.grad(y, x, krt.tensor(1.0), grad_outputs=krt.tensor(1.0))
    with pytest.raises(krt.ShapeError, match="one tensor for each of the 2 outputs"):
        krt.grad([y, y], x, krt.tensor(1.0, dtype=krt.float64))
    with pytest.raises(krt.ShapeError, match="at least one"):
        krt.grad(y, [])
    with pytest.raises(krt.DTypeError, match=r"output\[1\]"):
        krt.grad([y, 3], x)
    for view in (x.reshape(-1), x.T, -x, x[1:], x.expand(2, 3, 4)):
        with pytest.raises(krt.GradientError, match="clone"):
            krt.grad((view * 2).sum(), view)
    with krt.no_grad():
        h = x * 2
    with pytest.raises(krt.GradientError, match="requires_grad=True"):
        krt.grad(y, h)
