"""Hooks that hold the tensor that they are on: the collector of cycles finds both."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn


def of_leaf(hook):
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    hook(x)
    return x


def of_result(hook):
    y = krt.tensor([1.0, 2.0], requires_grad=True) * 2
    hook(y)
    return y


def of_stored(hook):
    y = of_result(hook)
    y.realize()
    return y


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("made", [of_leaf, of_result, of_stored])
@pytest.mark.parametrize("twice", [False, True])
def test_a_tensor_goes_with_hooks_that_hold_it(made, used, twice):
    def add(x):
        x.register_hook(lambda g: g * x.detach())
        if twice:
            x.register_hook(lambda g: g + x.detach())

    x = made(add)
    if used:
        x.retain_grad()
        (x * x).sum().backward()
        want = np.array([1.0, 2.0] if made is of_leaf else [2.0, 4.0])
        want = want * want * 2 + (want if twice else 0)
        np.testing.assert_array_equal(x.grad.tolist(), want)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None


def a_layer():
    layer = nn.Linear(2, 1)
    krt.realize(*layer.parameters())
    layer.weight.register_hook(lambda g: g * layer.bias.detach())
    return layer


def test_a_module_goes_with_hooks_of_its_parameters_that_hold_it():
    layer = a_layer()
    alive = weakref.ref(layer.weight), weakref.ref(layer)
    del layer
    gc.collect()
    assert [r() for r in alive] == [None, None]


def test_what_is_still_to_come_keeps_hooks_that_hold_their_tensor():
    seen = []

    def add(y):
        y.register_hook(lambda g: seen.append((g.tolist(), y.tolist())))

    y = of_result(add)
    total = (y * 3).sum()
    alive = weakref.ref(y)
    del y
    gc.collect()
    assert alive() is not None
    total.backward()
    assert seen == [([3, 3], [2, 4])]
    del total
    gc.collect()
    assert alive() is None
