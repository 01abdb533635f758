"""Hooks on tensors: what sees a gradient on its way, and may change it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError

torch = pytest.importorskip("torch")

DATA = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])


def both(program, **options):
    """What a program gives here and in PyTorch."""
    results = []
    for k in (krt, torch):
        x = k.tensor(DATA, dtype=k.float64, requires_grad=True)
        results.append([np.asarray(v.detach().numpy()) for v in program(k, x, **options)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    return results[0]


def grad_of(k, *args, **options):
    found = (k.grad if k is krt else k.autograd.grad)(*args, **options)
    return found[0] if isinstance(found, tuple) else found


def test_a_leaf_gets_what_its_hooks_give():
    def program(k, x):
        seen = []
        x.register_hook(lambda g: g * 2)
        x.register_hook(seen.append)
        ((x * x).sum() + (3 * x).sum()).backward()
        return [x.grad, *seen]

    both(program)


@pytest.mark.parametrize("realized", [False, True])
def test_a_result_passes_on_what_its_hooks_give(realized):
    def program(k, x):
        seen = []
        y = x.exp() if not realized else x.exp() * 1.5
        if realized:
            y.tolist()
        y.register_hook(lambda g: g.clamp(-1, 1))
        y.register_hook(seen.append)
        (y * y + y.sin()).sum().backward()
        return [x.grad, *seen]

    both(program)


def test_hooks_see_what_grad_asks_for():
    def program(k, x):
        y = x * 3
        y.register_hook(lambda g: g + 1)
        x.register_hook(lambda g: g * 2)
        z = (y * y).sum()
        return [grad_of(k, z, [y], retain_graph=True), grad_of(k, z, [x])]

    both(program)


def test_what_a_hook_does_has_gradients():
    def program(k, x):
        y = x * x
        y.register_hook(lambda g: g * g)
        g = grad_of(k, (y * y).sum(), [x], create_graph=True)
        g.sum().backward()
        return [g, x.grad]

    both(program)


def test_hooks_without_a_graph_have_no_gradients():
    x = krt.tensor(DATA, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append((g.requires_grad, (g * x).requires_grad)))
    (x * x).sum().backward()
    assert seen == [(False, False)]


def test_each_step_of_a_loop_has_its_hooks():
    """Results of equal operations are one node; a hook belongs to one of them."""

    def program(k, x):
        found = []
        for factor in (2.0, 3.0):
            x.grad = None
            y = x * x
            y.register_hook(lambda g, factor=factor: g * factor)
            (y * 2).sum().backward()
            found.append(x.grad)
        x.grad = None
        y = x * x
        (y * 2).sum().backward()
        return [*found, x.grad]

    both(program)


def test_equal_results_have_hooks_of_their_own():
    def program(k, x):
        y, z = x * x, x * x
        y.register_hook(lambda g: g * 2)
        z.register_hook(lambda g: g * 3)
        (y.sum() + (z * 5).sum()).backward()
        return [x.grad]

    both(program)


def test_hooks_are_removed():
    def program(k, x):
        handle = x.register_hook(lambda g: g * 7)
        with x.register_hook(lambda g: g * 2):
            (x * x).sum().backward()
        handle.remove()
        handle.remove()
        y = x * 2
        y.register_hook(lambda g: g * 5).remove()
        y.sum().backward()
        return [x.grad]

    both(program)


def test_retained_gradients():
    def program(k, x):
        x.retain_grad()
        y = x * x
        assert not y.retains_grad
        y.register_hook(lambda g: g * 2)
        y.retain_grad()
        y.retain_grad()
        assert y.retains_grad
        assert not x.retains_grad
        z = (y * y).sum()
        z.retain_grad()
        z.backward(retain_graph=True)
        z.backward()
        return [x.grad, y.grad, z.grad]

    both(program)


def test_gradients_are_retained_by_backward_alone():
    x = krt.tensor(DATA, requires_grad=True)
    y = x * x
    y.retain_grad()
    krt.grad((y * 2).sum(), x)
    assert y.grad is None


def test_backward_to_some_inputs():
    def program(k, x):
        w = k.tensor(DATA * 2, dtype=k.float64, requires_grad=True)
        y = x * w
        (y * y).sum().backward(inputs=[w, y])
        assert x.grad is None
        (x * w).sum().backward(inputs=w)
        return [w.grad, y.grad]

    both(program)


def test_backward_to_inputs_that_are_none():
    x = krt.tensor(DATA, requires_grad=True)
    with pytest.raises(DTypeError, match=r"inputs\[0\]: expected a Tensor, not float"):
        (x * 2).sum().backward(inputs=[1.0])
    with pytest.raises(GradientError, match=r"inputs\[0\]: expected a tensor created with"):
        (x * 2).sum().backward(inputs=[krt.ones(2)])
    with pytest.raises(ShapeError, match="inputs: expected at least one"):
        (x * 2).sum().backward(inputs=[])


@pytest.mark.parametrize("use", ["before", "twin"])
def test_ways_past_a_hook_are_found(use):
    x = krt.tensor(DATA, requires_grad=True)
    y = x * x
    other = y if use == "before" else x * x
    z = (other * 2).sum()
    y.register_hook(lambda g: g * 2)
    with pytest.raises(GradientError, match=r"backward: a tensor was used before a hook"):
        (z + y.sum()).backward()
    y = (x * 3).clone()  # no hook on what it equals
    z = (x * 3 * 2).sum()
    y.register_hook(lambda g: g * 2)
    (z + y.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full((2, 3), 12.0))


def test_a_hook_that_is_gone_is_in_nobodys_way():
    x = krt.tensor(DATA, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * 2)
    del y
    gc.collect()
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), DATA * 2)


def test_views_have_hooks_as_clones():
    x = krt.tensor(DATA, requires_grad=True)
    with pytest.raises(GradientError, match=r"register_hook: the tensor is a view .*clone\(\)"):
        x.reshape(6).register_hook(print)
    y = x.reshape(6).clone()
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 2.0))


def test_errors():
    x = krt.tensor(DATA, requires_grad=True)
    with pytest.raises(GradientError, match="register_hook: no gradient flows into the tensor"):
        krt.ones(3).register_hook(print)
    with pytest.raises(GradientError, match="retain_grad: no gradient flows"):
        krt.ones(3).retain_grad()
    with pytest.raises(DTypeError, match="hook: expected a function, not int"):
        x.register_hook(3)
    with x.register_hook(lambda _: 3), pytest.raises(DTypeError, match=r"hook: .* not int"):
        x.sum().backward()
    with x.register_hook(lambda g: g[0]), pytest.raises(ShapeError, match=r"hook: .*\(2, 3\)"):
        x.sum().backward()
    x.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones((2, 3)))


def test_a_hook_that_assigns_is_called_once():
    x = krt.tensor(DATA, requires_grad=True)
    total, calls = krt.zeros(2, 3, dtype="float64").realize(), []

    def collect(g):
        calls.append(1)
        total.add_(g)
        total.tolist()
        return g * 2

    x.register_hook(collect)
    y = x * x
    y.register_hook(collect)
    y.sum().backward()
    assert len(calls) == 2
    np.testing.assert_allclose(total.numpy(), 1 + DATA * 4)
    np.testing.assert_allclose(x.grad.numpy(), DATA * 8)


def test_what_made_a_tensor():
    x = krt.tensor(DATA, requires_grad=True)
    assert x.grad_fn is None
    assert (krt.ones(2) * 3).grad_fn is None
    y = x.exp()
    assert y.grad_fn.name() == "EXP"
    assert repr(y.grad_fn) == "<EXP>"
    y.register_hook(print)
    y.tolist()
    assert y.grad_fn.name() == "EXP"
    assert y.detach().grad_fn is None
    with krt.no_grad():
        assert x.exp().grad_fn is None


# ---- traced


def test_hooks_in_a_traced_function():
    w = krt.tensor(DATA, requires_grad=True)
    traced = []

    @krt.jit
    def step(x):
        y = (x * w).exp()
        y.register_hook(lambda g: traced.append(1) or g.clamp(-2, 2))
        y.retain_grad()
        w.grad = None
        (y * y).sum().backward()
        return y.grad, w.grad

    for scale in (1.0, 0.5, 0.25):
        x = torch.tensor(DATA * scale)
        v = torch.tensor(DATA, requires_grad=True)
        y = (x * v).exp()
        y.register_hook(lambda g: g.clamp(-2, 2))
        y.retain_grad()
        (y * y).sum().backward()
        found = step(krt.tensor(DATA * scale))
        np.testing.assert_allclose(found[0].numpy(), y.grad.numpy(), rtol=1e-12)
        np.testing.assert_allclose(found[1].numpy(), v.grad.numpy(), rtol=1e-12)
    assert len(traced) < 3


def test_plans_are_made_for_the_hooks_of_leaves():
    w = krt.tensor(DATA, requires_grad=True)

    @krt.jit
    def step(x):
        w.grad = None
        (x * w).sum().backward()
        return w.grad

    x = krt.ones(2, 3, dtype="float64")
    for _ in range(3):
        np.testing.assert_array_equal(step(x).numpy(), np.ones((2, 3)))
    handle = w.register_hook(lambda g: g * 3)
    for _ in range(3):
        np.testing.assert_array_equal(step(x).numpy(), np.full((2, 3), 3.0))
    handle.remove()
    np.testing.assert_array_equal(step(x).numpy(), np.ones((2, 3)))


def test_leaves_get_no_hooks_in_a_traced_function():
    w = krt.tensor(DATA, requires_grad=True)

    @krt.jit
    def step(x):
        w.register_hook(print)
        return x

    with pytest.raises(JitError, match=r"register_hook: .* outside of the function"):
        step(krt.ones(3))
    w.sum().backward()


# ---- modes


def test_set_grad_enabled():
    w = krt.tensor([1.0], requires_grad=True)

    @krt.set_grad_enabled(False)
    def plain():
        return (w * 2).requires_grad

    assert krt.is_grad_enabled()
    assert not plain()
    with krt.set_grad_enabled(False):
        assert not (w * 2).requires_grad
        with krt.set_grad_enabled(True):
            assert (w * 2).requires_grad
    assert krt.is_grad_enabled()
    krt.set_grad_enabled(False)
    try:
        assert not krt.is_grad_enabled()
    finally:
        krt.set_grad_enabled(True)
    assert krt.is_grad_enabled()
    again = krt.set_grad_enabled(False)
    for _ in range(2):
        with again:
            assert not krt.is_grad_enabled()
        assert krt.is_grad_enabled()
    with pytest.raises(DTypeError, match="mode: expected a bool, not int"):
        krt.set_grad_enabled(0)
    assert krt.is_grad_enabled()


def test_a_traced_function_does_not_change_the_mode():
    @krt.jit
    def step(x):
        krt.set_grad_enabled(False)
        return x + 1

    with pytest.raises(JitError, match=r"set_grad_enabled\(\) in step outlives it"):
        step(krt.ones(2))
    assert krt.is_grad_enabled()


@pytest.mark.parametrize("mode", ["inference_mode", "no_grad", "enable_grad"])
def test_modes_decorate_with_and_without_brackets(mode):
    def wanted():
        return krt.is_grad_enabled()

    kind = getattr(krt, mode)
    with krt.set_grad_enabled(mode != "enable_grad"):
        assert kind(wanted)() is kind()(wanted)() is (mode == "enable_grad")


def test_inference_mode():
    w = krt.tensor([1.0], requires_grad=True)
    with krt.inference_mode():
        assert not (w * 2).requires_grad
        with krt.inference_mode(False):
            assert (w * 2).requires_grad
    assert (w * 2).requires_grad
