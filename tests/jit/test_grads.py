"""Gradients as state of jitted functions, against PyTorch and by hand."""

from __future__ import annotations

import functools
import gc
import threading
import types
import weakref

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.tensor.autograd import gradient_state

F32 = np.float32


def leaf(*values: float) -> krt.Tensor:
    return krt.tensor(np.array(values, F32), requires_grad=True)


@pytest.mark.cases(1)
@pytest.mark.parametrize("block", range(6))
def test_random_programs_with_state_agree_with_torch(block: int) -> None:
    pytest.importorskip("torch")
    from support import stateful

    for seed in range(block * 20, block * 20 + 20):
        case = stateful.generate(np.random.default_rng(seed))
        found = stateful.run(case)
        assert found is None, f"seed {seed}: {found}; smaller: {stateful.shrink(case)}"


def test_a_jitted_backward_leaves_its_gradients() -> None:
    w = leaf(1, 2)
    backward = krt.jit(lambda x: (w * x).sum().backward())
    backward(np.array([3, 4], F32))
    assert w.grad.tolist() == [3, 4]
    backward(np.array([1, 1], F32))
    backward(np.array([1, 1], F32))
    assert w.grad.tolist() == [5, 6]
    w.grad = None
    backward(np.array([7, 8], F32))
    assert w.grad.tolist() == [7, 8]
    assert backward.retraces == 1, backward.explain()


def test_a_step_of_its_own_sees_each_gradient() -> None:
    w = leaf(0)
    opt = nn.optim.SGD([w], lr=1.0)

    @krt.jit
    def gradients(x):
        opt.zero_grad()
        (w * x).sum().backward()

    step = krt.jit(opt.step)
    for x, expected in ((1, -1), (2, -3), (4, -7)):
        gradients(np.array([x], F32))
        step()
        assert w.item() == expected
    assert step.retraces == 0


def test_eager_gradients_reach_a_jitted_step() -> None:
    w = leaf(0)
    opt = nn.optim.SGD([w], lr=1.0)
    step = krt.jit(opt.step)
    for x, expected in ((1, -1), (2, -3), (4, -7)):
        opt.zero_grad()
        (w * x).sum().backward()
        step()
        assert w.item() == expected
    assert step.retraces == 0


def test_a_gradient_that_is_held_keeps_its_value() -> None:
    w = leaf(0)

    @krt.jit
    def gradients(x):
        w.grad = None
        (w * x).sum().backward()

    gradients(np.array([1], F32))
    first, lazy = w.grad, w.grad * 2
    gradients(np.array([5], F32))
    assert (first.item(), lazy.item(), w.grad.item()) == (1, 2, 5)
    assert w.grad is not first


def test_a_held_gradient_that_another_plan_reads_is_followed() -> None:
    w = leaf(0)

    @krt.jit
    def gradients(x):
        w.grad = None
        (w * x).sum().backward()

    gradients(np.array([1], F32))
    held = w.grad
    double = krt.jit(lambda: held * 2)
    assert double().item() == 2
    gradients(np.array([5], F32))
    assert double().item() == 2


def test_what_a_training_step_uses_up_is_kept_on_request() -> None:
    for keep in (False, True):
        w = leaf(1)
        opt = nn.optim.SGD([w], lr=1.0)

        @krt.jit(keep_grads=keep)
        def step(x):
            opt.zero_grad()  # noqa: B023
            (w * x).sum().backward()  # noqa: B023
            opt.step()  # noqa: B023

        for x in (2, 3):
            step(np.array([x], F32))
            if keep:
                assert w.grad.item() == x
            else:
                with pytest.raises(krt.GradientError, match=r"step .*keep_grads=True"):
                    w.grad  # noqa: B018 - reading it is what raises
        opt.zero_grad()
        assert w.grad is None


def test_adversaries_need_no_gradients_kept() -> None:
    a, b = leaf(1), leaf(2)
    opts = [nn.optim.SGD([w], lr=0.125) for w in (a, b)]

    def step(i):
        opts[i].zero_grad()
        (a * b).sum().backward()
        opts[i].step()

    jitted = [krt.jit(lambda i=i: step(i)) for i in range(2)]
    for _ in range(4):
        jitted[0]()
        jitted[1]()
    x, y = 1.0, 2.0
    for _ in range(4):
        x -= 0.125 * y
        y -= 0.125 * x
    assert (a.item(), b.item()) == (x, y)


def test_freezing_a_parameter_traces_anew() -> None:
    w, v = leaf(1), leaf(1)

    @krt.jit
    def gradients():
        w.grad = v.grad = None
        (w * v).sum().backward()

    gradients()
    w.requires_grad_(False)
    gradients()
    assert w.grad is None
    assert v.grad.item() == 1
    w.requires_grad_()
    gradients()
    assert w.grad.item() == 1


def test_hyperparameters_take_effect() -> None:
    w = leaf(0)
    opt = nn.optim.SGD([w], lr=1.0, momentum=0.5)

    @krt.jit
    def step(x):
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()
        return w

    one = np.array([1], F32)
    assert [step(one).item(), step(one).item()] == [-1, -2.5]
    opt.momentum = 0.0
    assert step(one).item() == -3.5
    opt.weight_decay = 1.0
    assert step(one).item() == -3.5 - (1 - 3.5)
    assert "SGD.momentum changed from 0.5 to 0.0" in step.explain()
    with pytest.raises(krt.JitError, match=r"SGD\.momentum outside"):
        krt.jit(lambda: setattr(opt, "momentum", 0.25))()
    assert opt.momentum == 0


@pytest.mark.parametrize("make", [nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW])
def test_an_optimizer_has_no_other_attributes(make: type) -> None:
    opt = make([leaf(0)])
    with pytest.raises(krt.UnknownNameError, match=r"momentums.*lr"):
        opt.momentums = 0
    assert isinstance(krt.UnknownNameError("x"), AttributeError)
    with pytest.raises(krt.DomainError, match="weight_decay: expected a finite number"):
        opt.weight_decay = -1
    with pytest.raises(krt.DomainError, match="lr: expected a finite number"):
        make([leaf(0)], lr=10**400)


def test_gradients_die_with_their_tensor() -> None:
    w = leaf(1)
    gradients = krt.jit(functools.partial(lambda w: (w * 2).sum().backward(), w))
    gradients()
    seen = weakref.ref(w.grad)
    del w, gradients
    gc.collect()
    assert seen() is None


def test_gradients_do_not_miss_an_argument() -> None:
    w = leaf(2)

    @krt.jit
    def gradients(x):
        w.grad = None
        (w * x).sum().backward()

    plain = krt.tensor([3.0])
    text = r"^x: the argument requires a gradient, but gradients that gradients computes.*detach"
    for x in (leaf(3), leaf(3) * 1, (leaf(3) * 1).realize()):
        for _ in range(2):
            with pytest.raises(krt.JitError, match=text):
                gradients(x)
            gradients(x.detach())
            gradients(plain)
            assert w.grad.item() == 3
    plain.requires_grad_()
    with pytest.raises(krt.JitError, match=text):
        gradients(plain)
    forward = krt.jit(lambda x: x * w)
    assert forward(plain).item() == forward(leaf(3) * 1).item() == 6
    assert (gradients.retraces, forward.retraces) == (0, 0)


#: How a gradient may be held, and how it is read later.
HOLDERS = {
    "name": (lambda w: w.grad, lambda g: g),
    "list": (lambda w: [w.grad, w.grad], lambda held: held[1]),
    "attribute": (lambda w: types.SimpleNamespace(g=w.grad), lambda held: held.g),
    "grad of another": (lambda w: with_gradient(w.grad), lambda held: held.grad),
    "lazy": (lambda w: w.grad * 1, lambda g: g),
    "detached": (lambda w: w.grad.detach(), lambda g: g),
    "generator": (lambda w: yielding(w.grad), next),
    "thread": (lambda w: holding_thread(w.grad), lambda held: held()),
    "numpy": (lambda w: w.grad.numpy(), lambda g: g),
    "dlpack": (lambda w: np.from_dlpack(w.grad), lambda g: g),
    "name and dlpack": (lambda w: (w.grad, np.from_dlpack(w.grad)), lambda held: held[0]),
}


def with_gradient(gradient):
    made = leaf(0, 0)
    made.grad = gradient
    return made


def yielding(gradient):
    while True:
        yield gradient


def holding_thread(gradient):
    """A thread with the gradient in a frame, and what ends it and gives what it held."""
    done, out = threading.Event(), []

    def run(held):
        done.wait()
        out.append(held)

    thread = threading.Thread(target=run, args=(gradient,))
    thread.start()

    def end():
        done.set()
        thread.join()
        return out[0]

    return end


@pytest.mark.parametrize("how", HOLDERS)
def test_however_a_gradient_is_held_it_keeps_its_value(how: str) -> None:
    w = leaf(1, 1)

    @krt.jit
    def backward(x):
        w.grad = None
        (w * x).sum().backward()

    add = krt.jit(lambda x: (w * x).sum().backward())
    hold, read = HOLDERS[how]
    for _ in range(3):
        backward(np.array([1, 2], F32))
        held = hold(w)
        backward(np.array([5, 6], F32))
        assert w.grad.tolist() == [5, 6]
        assert read(held).tolist() == [1, 2]
        assert w.grad is w.grad
        add(np.array([1, 1], F32))
        assert w.grad.tolist() == [6, 7]
        assert read(held).tolist() == [1, 2]
    assert backward.retraces == 0
    assert add.retraces == 0


def test_nothing_is_copied_for_a_gradient_that_nobody_holds(monkeypatch) -> None:
    w = leaf(1, 1)

    @krt.jit
    def backward(x):
        w.grad = None
        (w * x).sum().backward()

    backward(np.array([1, 2], F32))
    assert w.grad.tolist() == [1, 2]
    copies = []
    monkeypatch.setattr(gradient_state.GradientBuffer, "vacate", copies.append)
    for _ in range(3):
        backward(np.array([1, 2], F32))
        assert w.grad.tolist() == [1, 2]
    assert not copies
