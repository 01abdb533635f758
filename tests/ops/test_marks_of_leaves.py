"""Tensors that cease to require gradients for a while, derivatives that are refused, modes."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import GradientError
from kernelrt.tensor.eager.plan_cache import plans

ONES = np.ones((1, 2), np.float32)


def test_a_graph_from_before_a_parameter_was_frozen_finds_it_afterwards():
    w = krt.tensor([2.0, 3.0], requires_grad=True)
    v = krt.tensor([5.0, 7.0], requires_grad=True)
    before = (w * w * v).sum()
    w.requires_grad_(False)
    while_frozen = (w * v).sum()
    w.requires_grad_()
    gw, gv = krt.grad(before, [w, v])
    assert gw.tolist() == [20, 42]
    assert gv.tolist() == [4, 9]
    (before + while_frozen).backward()
    assert w.grad.tolist() == [20, 42]
    assert v.grad.tolist() == [6, 12]


def test_no_gradient_comes_to_a_parameter_while_it_is_frozen():
    w = krt.tensor([2.0], requires_grad=True)
    v = krt.tensor([5.0], requires_grad=True)
    loss = (w * v).sum()
    w.requires_grad_(False)
    loss.backward()
    assert w.grad is None
    assert v.grad.item() == 2
    w.requires_grad_()
    (w * 3).sum().backward()
    assert w.grad.item() == 3


@pytest.mark.parametrize("jitted", [False, True])
def test_a_discriminator_is_frozen_for_the_generators_pass(jitted):
    krt.manual_seed(1)
    d, g = nn.Linear(2, 1, bias=False), nn.Linear(2, 2, bias=False)
    optimizer = nn.optim.SGD([*d.parameters()], 1.0)

    def step(x):
        loss = d(x).sum()
        d.requires_grad_(False)
        other = d(g(x)).sum()
        d.requires_grad_(True)
        optimizer.zero_grad()
        (loss + other).backward()
        optimizer.step()
        return loss

    run = krt.jit(step) if jitted else step
    start = d.weight.numpy()
    for i in range(3):
        run(krt.from_numpy(ONES))
        np.testing.assert_allclose(d.weight.numpy(), start - ONES * (i + 1), rtol=1e-6)


def test_what_create_graph_gives_requires_gradients_wherever_it_is_asked_for():
    x = krt.tensor([3.0], requires_grad=True)
    y = (x**3).sum()
    with krt.no_grad():
        slope = krt.grad(y, x, create_graph=True)
        assert slope.requires_grad
        assert not krt.grad(y, x).requires_grad
    assert krt.grad(slope.sum(), x).item() == 18


def test_functions_that_run_later_than_they_are_called_cannot_be_decorated():
    def generator():
        yield 1

    async def coroutine():
        pass

    for function in (generator, coroutine):
        with pytest.raises(GradientError, match="is a generator or coroutine function"):
            krt.no_grad()(function)


@pytest.mark.parametrize("computed", [False, True])
def test_freezing_and_thawing_again_and_again_takes_no_plan_and_no_nodes(computed):
    f, w = krt.ones(8, requires_grad=True), krt.ones(8, requires_grad=True)
    if computed:
        with krt.no_grad():
            f = w * 2
        f.requires_grad_()
    depths, misses = [], []
    for _ in range(12):
        f.requires_grad_(False)
        f.requires_grad_(True)
        depths.append(f.uop.depth)
        f.grad = w.grad = None
        (w * f).sum().backward()
        assert w.grad.tolist() == f.tolist()
        assert f.grad.tolist() == w.tolist()
        misses.append(plans.misses)
    assert depths[3:] == [depths[3]] * 9
    assert misses[3:] == [misses[3]] * 9


def test_an_argument_that_is_frozen_in_the_function_gets_no_gradient():
    w = krt.tensor([5.0, 7.0], requires_grad=True)

    @krt.jit
    def step(x):
        for _ in range(2):
            x.requires_grad_(True)
            x.requires_grad_(False)
        loss = (x * w).sum()
        loss.backward()
        return loss

    for _ in range(2):
        w.grad = None
        step(krt.tensor([2.0, 3.0], requires_grad=True))
        assert w.grad.tolist() == [2, 3]


def test_gradients_of_what_is_frozen_are_refused_by_its_name():
    w, v = krt.ones(3, requires_grad=True), krt.ones(3, requires_grad=True)
    w.requires_grad_(False)
    with pytest.raises(GradientError, match=r"inputs\[1\]: the parameter is frozen"):
        krt.grad((w * v).sum(), [v, w])
