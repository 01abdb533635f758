"""Hooks on tensors: what sees a gradient on its way, and may change it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from support.crowd import crowd
from support.skip_list import Package

import kernelrt as krt
from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError
from kernelrt.native.graph_key import structural_key
from kernelrt.tensor import state
from kernelrt.tensor.autograd import hooking

torch = Package("torch")

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


def test_hooks_aside_from_what_is_asked_for_see_nothing():
    def program(k, x):
        w = k.tensor(DATA * 2, dtype=k.float64, requires_grad=True)
        seen = []

        def made(t, name):
            t.register_hook(lambda _: seen.append(name))
            return t

        made(x, "x")
        made(w, "w")
        below = made(x * 1.5, "below")
        aside = made(w * 3, "aside")
        y = made(below * 2, "y")
        aside.retain_grad()
        z = (y * y * aside).sum()
        found = [grad_of(k, z, [y], retain_graph=True)]
        assert seen == ["y"]
        seen.clear()
        z.backward(inputs=[w])
        assert seen == ["aside", "w"]
        assert x.grad is None
        return [*found, w.grad, aside.grad]

    both(program)


def test_a_leaf_is_asked_for_by_an_equal_tensor():
    x = krt.tensor(DATA, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 5)
    found = krt.grad((y * 3).sum(), x.reshape(x.shape))
    np.testing.assert_array_equal(found.numpy(), np.full((2, 3), 30.0))


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
    with pytest.raises(GradientError, match=r"inputs\[0\]: expected a tensor that requires"):
        (x * 2).sum().backward(inputs=[krt.ones(2)])
    with pytest.raises(ShapeError, match="inputs: expected at least one"):
        (x * 2).sum().backward(inputs=[])


def test_ways_past_a_hook_are_found():
    x = krt.tensor(DATA, requires_grad=True)
    y = x * x
    z = (y * 2).sum()
    y.register_hook(lambda g: g * 2)
    for _ in range(2):
        with pytest.raises(GradientError, match=r"backward: a tensor was used before a hook"):
            (z + y.sum()).backward()
        assert x.grad is None
    y.sum().backward()  # what is made of it since
    np.testing.assert_allclose(x.grad.numpy(), DATA * 4)
    kept = (x * x).exp()
    kept.tolist()
    z = kept.sum()
    kept.retain_grad()
    with pytest.raises(GradientError, match=r"backward: a tensor was used before a hook"):
        z.backward()


def test_a_hook_that_came_late_is_not_forgotten_with_its_tensor():
    x = krt.tensor(DATA, requires_grad=True)
    y = x * x
    z = (y * 2).sum()
    y.register_hook(lambda g: g * 2)
    del y
    gc.collect()
    with pytest.raises(GradientError, match=r"backward: a tensor was used before a hook"):
        z.backward()


def test_a_late_hook_goes_with_its_tensor():
    x = krt.tensor(DATA, requires_grad=True)
    y = x * x
    z = (y * 2).sum()
    hook = Equal(2.0)
    y.register_hook(hook)
    gone = weakref.ref(hook)
    del y, hook
    gc.collect()
    assert gone() is None
    assert z.requires_grad


def test_a_twin_that_was_used_is_another_tensor():
    def program(k, x):
        z = (x * x * 2).sum()
        y = x * x
        y.register_hook(lambda g: g * 2)
        (z + y.sum()).backward()
        return [x.grad]

    both(program)


def test_equal_values_elsewhere_meet_no_hook():
    """A retained result that lives on concerns no later program that computes the same."""

    def program(k, x):
        w = k.tensor(DATA * 2, dtype=k.float64, requires_grad=True)
        kept, found = [], []
        for i in range(3):
            feature = (x * w).exp()
            if i != 1:
                feature.retain_grad()
            (feature * 3)[0, i].backward()
            kept.append(feature)
            found.append(feature.grad if i != 1 else w.grad)
        out = ((x * w).exp() * 3).sum()
        out.backward()
        return [*found, w.grad, x.grad]

    both(program)


def test_plans_meet_no_hook_of_an_equal_value():
    w = krt.tensor(DATA, requires_grad=True)
    kept = w * 2
    kept.retain_grad()

    @krt.jit
    def step():
        w.grad = None
        (w * 2).sum().backward()
        return w.grad * 1

    for _ in range(3):
        np.testing.assert_array_equal(step().numpy(), np.full((2, 3), 2.0))
    assert kept.grad is None


def test_equal_results_retain_gradients_of_their_own():
    def program(k, x):
        a = x * 2
        a.retain_grad()
        b = a.reshape(a.shape)
        assert a.retains_grad
        assert not b.retains_grad
        b.retain_grad()
        seen = []
        b.register_hook(seen.append)
        (a * 2 + b * 3).sum().backward()
        assert a.retains_grad
        assert b.retains_grad
        return [a.grad, b.grad, x.grad, *seen]

    both(program)


def test_a_result_that_is_changed_retains_the_gradient_of_what_it_is():
    def program(k, x):
        y = x * 2
        seen = []
        y.register_hook(seen.append)
        y.retain_grad()
        y.mul_(3)
        assert y.retains_grad
        y.sum().backward()
        return [y.grad, x.grad, *seen]

    both(program)


def test_a_hook_that_is_gone_is_in_nobodys_way():
    x = krt.tensor(DATA, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * 2)
    del y
    gc.collect()
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), DATA * 2)


VIEWS = {
    "reshape": lambda k, x: x.reshape(6),
    "neg": lambda k, x: -x,
    "transpose": lambda k, x: x.T,
    "row": lambda k, x: x[0],
    "expand": lambda k, x: x.expand(2, 2, 3),
    "flip": lambda k, x: x.flip(0),
    "pad": lambda k, x: k.nn.functional.pad(x, (1, 1)),
    "mean": lambda k, x: x.mean((0, 1)),
    "cumsum": lambda k, x: x.cumsum(1),
    "max": lambda k, x: x.max(1)[0],
    "pool": lambda k, x: k.nn.functional.adaptive_avg_pool2d(x[None, None], 1),
    "einsum": lambda k, x: k.einsum("ij,kj->ki", x, x),
    "itself": lambda k, x: x * 1,
}


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_results_that_end_in_a_view_have_hooks(name, realized):
    def program(k, x):
        y = VIEWS[name](k, x)
        if realized:
            y.tolist()
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        z = y * y * 3
        z.sum().backward()
        found = [y.grad, x.grad]
        other = VIEWS[name](k, x)
        other.register_hook(lambda g: g * 5)
        return [*found, grad_of(k, (other * other).sum(), [x])]

    both(program)


def test_the_gradient_of_a_view_that_has_a_hook_is_found():
    def program(k, x):
        y = x.reshape(6)
        y.register_hook(lambda g: g + 1)
        return [grad_of(k, (y * y).sum(), [y])]

    both(program)


def test_views_that_were_used_have_hooks_as_clones():
    x = krt.tensor(DATA, requires_grad=True)
    used = x.reshape(6)
    z = used.reshape(3, 2)
    with pytest.raises(GradientError, match=r"register_hook: cannot add a hook .*clone\(\)"):
        used.register_hook(print)
    y = used.clone()
    y.register_hook(lambda g: g * 2)
    (y.sum() + z.sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 3.0))


# ---- hooks that write


def test_what_a_hook_changes_in_place_goes_on():
    def program(k, x):
        def scale(g):
            g.mul_(10)

        y = x * 3
        y.register_hook(scale)
        y.register_hook(lambda g: g + 1)
        x.register_hook(lambda g: g + 2)
        x.register_hook(scale)
        (y * y).sum().backward()
        z = (x * x).sum()
        return [x.grad, grad_of(k, z, [x])]

    both(program)


@pytest.mark.parametrize("jitted", [False, True])
def test_hooks_of_leaves_may_write_what_other_gradients_read(jitted):
    """An optimizer in the backward: each step is that of the values before."""

    def program(k, x):
        v = k.tensor(DATA + 1, dtype=k.float64, requires_grad=True)
        seen = {}
        for name, p in (("x", x), ("v", v)):

            def descend(g, name=name, p=p):
                seen[name] = g if k is krt and jitted else g.tolist()
                p.data.add_(g * -0.5)

            p.register_hook(descend)

        def step():
            x.grad, v.grad = None, None
            (x * v * x).sum().backward()
            return x.grad * 1, v.grad * 1

        if jitted and k is krt:
            step = krt.jit(step)
        found = []
        for _ in range(3):
            found += step()
            if not jitted:
                found += [k.tensor(seen["x"]), k.tensor(seen["v"])]
        return [*found, x, v]

    both(program)


def test_hooks_write_before_grad_gives_what_it_found():
    def program(k, x):
        v = k.tensor(DATA + 1, dtype=k.float64, requires_grad=True)

        def write(g):
            x.data.mul_(2)
            v.data.zero_()
            x.tolist()

        x.register_hook(write)
        v.register_hook(write)
        z = (x * v * x).sum()
        found = (k.grad if k is krt else k.autograd.grad)(z, [x, v])
        return [*found, x, v]

    both(program)


def test_a_hook_of_a_result_may_not_write_what_is_read():
    x = krt.tensor(DATA, requires_grad=True)
    w = krt.tensor(DATA * 2, requires_grad=True)
    seen = []

    def write(g):
        w.data.mul_(2)
        w.tolist()

    early = x * w
    early.register_hook(seen.append)
    late = early * 3
    late.register_hook(write)
    with pytest.raises(GradientError, match="has been assigned since"):
        late.sum().backward()
    assert x.grad is None
    assert w.grad is None
    assert not seen


def test_a_seed_that_a_hook_writes_is_what_it_was():
    def program(k, x):
        seed = k.tensor(DATA, dtype=k.float64)

        def write(g):
            seed.mul_(5)
            seed.tolist()
            return g * 2

        y = x * 2
        y.register_hook(write)
        (y * 3).backward(seed)
        return [x.grad, seed]

    both(program)


# ---- many at once, and none


def test_threads_register_all_of_their_hooks():
    x = krt.tensor(DATA, requires_grad=True)
    module = krt.nn.Linear(2, 2)
    calls = []

    def work():
        for _ in range(200):
            x.register_hook(lambda g: calls.append(1))
            x.register_hook(print).remove()
            module.register_forward_hook(lambda *_: calls.append(2))

    crowd(*[work] * 4)
    x.sum().backward()
    module(krt.ones(1, 2))
    assert calls.count(1) == 800
    assert calls.count(2) == 800


def test_marks_without_hooks_are_forgotten():
    gc.collect()
    before = len(state.hooked)
    x = krt.tensor(DATA, requires_grad=True)
    y = x * 2
    handles = [t.register_hook(print) for t in (x, y)]
    assert len(state.hooked) == before + 2
    for handle in handles:
        handle.remove()
    assert len(state.hooked) == before
    y.retain_grad()
    z = (y * 3).sum()
    assert hooking.are_met(z.uop)
    del y
    gc.collect()
    assert not hooking.are_met(z.uop)
    z.backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 6.0))


def test_marks_that_do_nothing_are_in_no_plans_way():
    x = krt.tensor(DATA, requires_grad=True)
    found = []
    for _ in range(2):
        x.grad = None
        y = x * 2.5
        y.register_hook(print).remove()
        z = (y * 3.25).sum()
        structure, *_ = structural_key([z.uop], True)
        found.append(structure)
        z.backward()
        assert x.grad.is_realized  # the graph has its plan
        np.testing.assert_array_equal(x.grad.numpy(), np.full((2, 3), 8.125))
    assert found[0] == found[1]


class Equal:
    """A hook that equals any other one, and has no hash."""

    __hash__ = None

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, g):
        return g * self.factor

    def __eq__(self, other):
        return True


def test_plans_tell_equal_hooks_apart():
    w = krt.tensor(DATA, requires_grad=True)

    @krt.jit
    def step():
        w.grad = None
        (w * 2).sum().backward()
        return w.grad * 1

    for factor in (2.0, 5.0):
        with w.register_hook(Equal(factor)):
            for _ in range(2):
                np.testing.assert_array_equal(step().numpy(), np.full((2, 3), 2 * factor))


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
    match = r"hook: .*\(2, 3\).*return None"
    with x.register_hook(lambda g: g[0]), pytest.raises(ShapeError, match=match):
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
    image = x[None, None]
    made = {
        "SOFTMAX": x.softmax(-1), "LOGSUMEXP": x.logsumexp(-1), "NORM": x.norm(), "NEG": -x,
        "MAX_POOL2D": krt.nn.functional.max_pool2d(image, 2), "RESHAPE": x.reshape(6),
        "CONV2D": krt.nn.functional.conv2d(image, krt.ones(1, 1, 2, 2, dtype="float64")),
    }  # fmt: skip
    for name, result in made.items():
        assert result.grad_fn.name() == name
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

    with pytest.raises(JitError, match=r"register_hook: .* outside the function"):
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

    with pytest.raises(JitError, match=r"set_grad_enabled\(\) in step stays in effect"):
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


def test_hooks_are_those_of_backward_passes():
    """A derivative forward, in the direction of a tangent, calls none."""

    def f(a):
        y = a * a
        y.register_hook(lambda g: g * 10)
        return y * 2

    x = krt.tensor(DATA[0])
    value, tangent = krt.func.jvp(f, (x,), (krt.ones_like(x),))
    np.testing.assert_allclose(value.numpy(), 2 * DATA[0] ** 2)
    np.testing.assert_allclose(tangent.numpy(), 4 * DATA[0])
    np.testing.assert_allclose(krt.func.jacfwd(f)(x).numpy(), np.diag(4 * DATA[0]))
    np.testing.assert_allclose(krt.func.jacrev(f)(x).numpy(), np.diag(40 * DATA[0]))


SHOWN = {
    "part": lambda x: x[1:], "narrow": lambda x: x.narrow(0, 0, 1), "row": lambda x: x[1],
    "transpose": lambda x: x.T, "reshape": lambda x: x.reshape(3, 2), "diagonal": krt.diagonal,
    "strided": lambda x: x[:, ::2], "view of view": lambda x: x[1:].T[1:],
}  # fmt: skip


@pytest.mark.parametrize("read", ["item", "root", "numpy", "realize", "str"])
@pytest.mark.parametrize("name", SHOWN)
def test_a_view_keeps_its_hooks_where_values_are_computed(name, read):
    x = krt.tensor(DATA, requires_grad=True)
    root = x * 1
    view = SHOWN[name](root)
    seen = []
    view.register_hook(lambda gradient: (seen.append(gradient.tolist()), gradient * 10)[1])
    values = {
        "item": lambda: view.sum().item(), "root": root.tolist, "realize": view.realize,
        "numpy": lambda: view.detach().numpy(), "str": lambda: str(view),
    }  # fmt: skip
    values[read]()
    (view * view).sum().backward()
    kept = SHOWN[name](krt.tensor(np.arange(6).reshape(2, 3))).numpy().ravel()
    want = np.zeros(6)
    want[kept] = 20 * DATA.ravel()[kept]
    np.testing.assert_allclose(x.grad.numpy().ravel(), want)
    assert len(seen) == 1
