"""Random numbers of other libraries that a traced function draws are told: replays repeat them."""

from __future__ import annotations

import random
import threading
import warnings

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

ONE = np.ones(2, np.float32)
OUTER = np.random.default_rng(0)


class Noisy(nn.Module):
    def __init__(self) -> None:
        self.parts = [np.random.default_rng(1)]

    def forward(self, x):
        return x * self.parts[0].random()


def told(fn) -> list[str]:
    f = krt.jit(fn)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            f(ONE)
    for warning in found:
        assert warning.category is krt.KernelrtWarning
        assert warning.filename == __file__
    return [str(warning.message).partition(":")[0] for warning in found]


@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_each_kind_of_generator(bits):
    own = np.random.Generator(getattr(np.random, bits)(3))
    draws = (own.random, own.standard_normal, lambda: own.integers(7), lambda: own.permutation(2))
    for draw in draws:
        assert told(lambda x, draw=draw: (x * 2, draw(), own)[0]) == ["own"]
    assert told(lambda x: x * id(own) * 0) == []


def test_what_everybody_shares():
    shared, draw = np.random, getattr(random, "random")  # noqa: B009 - as users write it
    assert told(lambda x: x * shared.rand()) == ["numpy.random"]
    assert told(lambda x: x * draw()) == ["random"]
    assert told(lambda x: x + draw() * shared.normal()) == ["random", "numpy.random"]


def test_generators_within_reach():
    old, new, plain = np.random.RandomState(3), [OUTER], random.Random(1)  # noqa: S311
    noisy = Noisy()
    assert told(lambda x: x * old.rand()) == ["old"]
    assert told(lambda x: x * new[0].random()) == ["new[0]"]
    assert told(lambda x: x * OUTER.random()) == ["OUTER"]
    assert told(lambda x: x * plain.random()) == ["plain"]
    system = random.SystemRandom()
    assert told(lambda x: x * (1 + system.random())) == []
    assert told(noisy) == ["parts[0]"]


def test_draws_of_our_own_and_outside_are_fine():
    drop = nn.Dropout(0.5)
    assert told(lambda x: drop(x) * krt.rand(2)) == []
    f = krt.jit(lambda x, r: x * r)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [f(ONE, r).tolist() for r in (0.5, 2.0)] == [[0.5, 0.5], [2, 2]]


def test_draws_of_another_thread_are_no_matter_of_the_function() -> None:
    begun, over = threading.Event(), threading.Event()

    def load() -> None:
        while not over.is_set():
            np.random.rand()  # noqa: NPY002 - as loaders have it
            begun.set()

    def traced(x: krt.Tensor) -> krt.Tensor:
        begun.clear()
        assert begun.wait(60)
        return x * 2

    thread = threading.Thread(target=load)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert krt.jit(traced)(np.ones(2)).tolist() == [2, 2]
    finally:
        over.set()
        thread.join()
