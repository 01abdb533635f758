"""What the function of a loop, a choice or vmap does besides: it is called once for all of them."""

from __future__ import annotations

import random
import threading
import warnings
from collections import deque
from functools import partial

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

COUNT = 0
XS = krt.arange(3.0)


class Holder:
    def __init__(self) -> None:
        self.value = krt.tensor(0.0)
        self.number = 0
        self.rate = 0.5
        self.items: list[object] = []


def scan(f):
    return krt.scan(lambda c, x: (c + f(x), None), krt.tensor(0.0), XS)[0]


def fori(f):
    return krt.fori_loop(0, 3, lambda i, c: c + f(i.float()), krt.tensor(0.0))


def repeat(f):
    return krt.while_loop(lambda c: c < 3, lambda c: c + 1 + 0 * f(c), krt.tensor(0.0))


def asked(f):
    return krt.while_loop(lambda c: f(c) < 3, lambda c: c + 1, krt.tensor(0.0))


def choose(f):
    return krt.cond(krt.tensor(0) > 0, f, lambda x: x, krt.tensor(0.0))


def among(f):
    return krt.switch(krt.tensor(1), [lambda x: x, lambda x: x * 2, f], krt.tensor(1.5))


def members(f):
    return krt.vmap(f)(XS).sum()


CALLS = {
    "scan": scan, "fori_loop": fori, "while_loop": repeat, "cond of while_loop": asked,
    "cond": choose, "switch": among, "vmap": members,
}  # fmt: skip
EXPECTED = {"cond": 0.0}


@pytest.fixture(params=CALLS)
def call(request):
    return CALLS[request.param]


def test_a_count_is_refused_and_as_before(call):
    held = Holder()

    def f(x):
        held.number += 1
        return x

    with pytest.raises(krt.JitError, match=r"held\.number.*from 0 to 1.*test_called_once\.py:\d+"):
        call(f)
    assert held.number == 0


def test_a_count_that_a_class_begins_is_refused(call):
    class Walk:
        steps = 0

        def __call__(self, x):
            self.steps += 1
            return x

    walk = Walk()
    with pytest.raises(krt.JitError, match=r"steps: .* from 0 to 1"):
        call(walk)
    assert "steps" not in vars(walk)
    assert walk.steps == 0


def test_a_tensor_is_refused_and_as_before(call):
    held = Holder()
    before = held.value

    def f(x):
        held.value = held.value + x
        return x

    with pytest.raises(krt.JitError, match=r"held\.value: .* sets it to another one"):
        call(f)
    assert held.value is before
    assert held.value.item() == 0


def test_globals_and_variables_around_are_refused(call):
    def by_global(x):
        global COUNT  # noqa: PLW0603 - what is tested
        COUNT += 1
        return x

    count = 0

    def by_variable(x):
        nonlocal count
        count += 1
        return x

    with pytest.raises(krt.JitError, match=r"COUNT: .* from 0 to 1"):
        call(by_global)
    with pytest.raises(krt.JitError, match=r"count: .* from 0 to 1"):
        call(by_variable)
    assert COUNT == 0
    assert count == 0


@pytest.mark.parametrize("kept", [[], {}, set(), deque()], ids=lambda kept: type(kept).__name__)
def test_tensors_kept_in_containers_are_refused(call, kept):
    keep = {
        list: lambda: kept.append, set: lambda: kept.add, deque: lambda: kept.appendleft,
        dict: lambda: partial(kept.setdefault, "x"),
    }[type(kept)]()  # fmt: skip

    def f(x):
        keep(x * 2)
        return x

    with pytest.raises(krt.JitError, match=r"keep.* sets it to a tensor that has no value outside"):
        call(f)
    assert not kept


def test_methods_helpers_and_modules_are_looked_into(call):
    class Model(nn.Module):
        def __init__(self) -> None:
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            return x

    model = Model()
    for f in (model, model.forward, lambda x: model(x) * 1, partial(lambda m, x: m(x), model)):
        with pytest.raises(krt.JitError, match=r"steps: .* from 0 to 1"):
            call(f)
        assert model.steps == 0


def test_a_member_of_a_body_in_a_member_is_refused(call):
    held = Holder()

    def f(x):
        def g(y):
            held.items.append(y)
            return y

        return krt.vmap(g)(krt.stack([x, x])).sum()

    with pytest.raises(krt.JitError, match=r"held\.items\[0\]"):
        call(f)
    assert held.items == []


def test_what_stays_is_let_be(call):
    """Numbers that stay, texts in a list, and a module's mode, as in jitted functions."""
    held, log = Holder(), []

    def f(x):
        held.rate = 0.5
        log.append("called")
        local = Holder()
        local.number += 1
        local.value = x
        return local.value * local.number

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(f).item()
    assert set(log) == {"called"}


def test_after_an_error_all_is_as_before(call):
    held = Holder()
    before = held.value

    def f(x):
        held.value = x
        held.number = 3
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        call(f)
    assert held.value is before
    assert held.number == 0


@pytest.mark.parametrize("state", [krt.no_grad, krt.enable_grad])
def test_with_and_without_gradients(call, state):
    held = Holder()

    def f(x):
        held.number += 1
        return x

    with state(), pytest.raises(krt.JitError, match="number"):
        call(f)


def test_one_turn_without_gradients_is_one_call():
    """Which counts once, as it should."""
    held = Holder()

    def turn(c, x):
        held.number += 1
        return c + x, x

    with krt.no_grad():
        total, _ = krt.scan(turn, krt.tensor(1.0), krt.tensor([2.0]))
    assert total.item() == 3
    assert held.number == 1


def test_choices_of_python_are_one_call():
    held = Holder()

    def f(x):
        held.number += 1
        return x

    krt.cond(True, f, f, krt.tensor(1.0))
    krt.switch(0, [f, f], krt.tensor(1.0))
    assert held.number == 2


def test_within_jit_the_jitted_function_is_named():
    held = Holder()

    @krt.jit
    def whole(xs):
        def turn(c, x):
            held.number += 1
            return c + x, None

        return krt.scan(turn, krt.tensor(0.0), xs)[0]

    with pytest.raises(krt.JitError, match=r"held\.number: whole changes it"):
        whole(XS)


def told(call, f) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(f).item()
    for warning in found:
        assert warning.category is krt.KernelrtWarning
        assert warning.filename == __file__
    return [str(warning.message) for warning in found]


def test_draws_of_others_are_told(call):
    own, draw = np.random.default_rng(0), np.random.default_rng(1).normal
    shared, plain = np.random, random.Random(0)  # noqa: S311 - no secret
    pick = plain.choice
    for name, f in {
        "own": lambda x: x + own.random() * 0,
        "draw": lambda x: x + draw() * 0,
        "pick": lambda x: x + pick([0, 0]),
        "numpy.random": lambda x: x + shared.rand() * 0,
        "random": lambda x: x + random.random() * 0,  # noqa: S311
    }.items():
        texts = told(call, f)
        assert len(texts) == 1, (name, texts)
        (text,) = texts
        assert text.startswith(f"{name}: "), text
        assert "become part of the program" in text
    assert told(call, lambda x: x + (own is draw)) == []


def test_kernelrts_draws_are_not():
    assert told(scan, lambda x: x + krt.rand()) == []
    assert told(members, lambda x: x + krt.rand()) == []


def test_long_lists_take_no_time_and_go_unseen():
    """A loop is looked at in each call."""
    held = Holder()
    held.items = [(i,) for i in range(200_000)]

    def f(x):
        return x * len(held.items)

    assert scan(f).item() == 600_000


def test_another_threads_variables_are_its_own():
    """What others set while a body is called is no change of the body's."""
    entered, left = threading.Event(), threading.Event()
    count = 0

    def other() -> None:
        nonlocal count
        entered.wait()
        count += 1
        left.set()

    def f(x):
        entered.set()
        assert left.wait(60)
        return x

    thread = threading.Thread(target=other)
    thread.start()
    try:
        assert scan(lambda x: f(x) * (count >= 0)).item() == 3
    finally:
        entered.set()
        thread.join()
    assert count == 1
