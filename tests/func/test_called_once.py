"""What the function of a loop, a choice or vmap does besides: it is called once for all of them."""

from __future__ import annotations

import argparse
import gc
import random
import threading
import types
import warnings
import weakref
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

    with pytest.raises(krt.JitError, match=r"held\.value: .* replaces the object"):
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


def test_items_are_refused_and_as_before(call):
    items, names = [1, XS], {"n": 2, "x": XS}

    def number_in_list(x):
        items[0] += 1
        return x

    def number_in_dict(x):
        names["n"] = 3
        return x

    def tensor_in_list(x):
        items[1] = items[1] + x
        return x

    def tensor_in_dict(x):
        names.update(x=None)
        return x

    for f, text in {
        number_in_list: r"items\[0\]: .* from 1 to 2", number_in_dict: r"names\['n'\]: .* to 3",
        tensor_in_list: r"items\[1\]: .* replaces", tensor_in_dict: r"names\['x'\]: .* to None",
    }.items():  # fmt: skip
        with pytest.raises(krt.JitError, match=text):
            call(f)
    assert items[0] == 1
    assert items[1] is XS
    assert names == {"n": 2, "x": XS}


@pytest.mark.parametrize("first", [None, "nothing", "left by a call before"])
def test_tensors_to_work_with_may_be_set(call, first):
    """They are set before they are read; what is left of them is told whoever reads it."""
    held, log, memory = Holder(), [], {}
    held.aux = None
    if first == "nothing":
        del held.aux

    def f(x):
        held.aux = x * 2
        memory["last"] = held.aux
        log.clear()
        log.append(held.aux)
        return held.aux + log[0] - memory["last"]

    expected = call(lambda x: x * 2).item()
    for _ in range(2 if first == "left by a call before" else 1):
        assert call(f).item() == expected
    for left in (held.aux, memory["last"], log[0]):
        with pytest.raises(krt.JitError, match="made while a function was traced"):
            left.numpy()


def test_equal_numbers_stay(call):
    held = Holder()
    held.nan = float("nan")

    def f(x):
        held.nan, held.number, held.rate = float("nan"), 0.0, np.float64(0.5)
        return x

    assert call(f).item() == call(lambda x: x).item()


def test_queues_of_numbers_may_grow(call):
    """A full one shifts what is in it; a counter that is no item of it is none."""
    recent, log = deque([1.0, 2.0], maxlen=2), [1.0]

    def f(x):
        recent.append(3.0)
        log.append(2.0)
        return x

    assert call(f).item() == call(lambda x: x).item()


def test_what_other_code_sets_is_no_change_of_the_function(call):
    """As another thread, a handler of a signal, or a finalizer does while it is called."""

    class Agent(Holder):
        def act(self):
            self.env_steps += 1
            self.recent.append(1.0)
            self.seen[self.env_steps] = 1

        def learn(self, x):
            return x * self.scale

    agent = Agent()
    agent.env_steps, agent.recent, agent.seen, agent.scale = 0, [0.0], {}, 1.0
    before = call(lambda x: x).item()
    entered, left = threading.Event(), threading.Event()

    def act():
        entered.wait()
        agent.act()
        left.set()

    def learn(x):
        entered.set()
        assert left.wait(60)
        return agent.learn(x)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        assert call(learn).item() == before
    finally:
        entered.set()
        thread.join()
    assert agent.env_steps == 1
    assert agent.recent == [0.0, 1.0]


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


def test_after_an_error_tensors_are_as_before_and_numbers_are_what_was_set(call):
    """As behind any error of Python: what asks again later counts on it."""
    held = Holder()
    before = held.value

    def f(x):
        held.value = held.value + x
        if held.number == 0:
            held.number = 3
            raise LookupError("mine")
        held.value = before
        return x

    with pytest.raises(LookupError, match="mine"):
        call(f)
    assert held.value is before
    assert held.number == 3
    assert call(f).item() == call(lambda x: x).item()


def count_in(namespace):
    namespace.n += 1


@pytest.mark.parametrize("kind", [types.SimpleNamespace, argparse.Namespace])
def test_namespaces_count(call, kind):
    space = kind(n=0)

    def f(x):
        count_in(space)
        return x

    with pytest.raises(krt.JitError, match=r"space\.n: .* from 0 to 1"):
        call(f)
    assert space.n == 0


def test_attributes_of_functions_count(call):
    def f(x):
        f.n += 1
        return x

    f.n = 0
    with pytest.raises(krt.JitError, match=r"f\.n: .* from 0 to 1"):
        call(f)
    assert f.n == 0


def test_functions_in_functions_of_kernelrt_are_looked_into():
    held = Holder()

    def f(x):
        held.number += 1
        return x * x

    for g in (krt.func.grad(f), lambda x: krt.func.vjp(f, x)[0], krt.jit(f)):
        with pytest.raises(krt.JitError, match=r"held\.number"):
            krt.scan(lambda c, x, g=g: (c + g(x), None), krt.tensor(0.0), XS)
        assert held.number == 0


# ---- objects that are odd to look at


class Named(type):
    def __getattr__(cls, name):
        return f"column {name}"


class Record(metaclass=Named):
    def __init__(self):
        self.k = 2.0


class Lazy:
    __slots__ = ("_data",)

    def __getattr__(self, name):
        raise ConnectionError("asked for nothing")


class Proxy:
    @property
    def __class__(self):
        raise RuntimeError("unbound")


class Shut:
    def __getattribute__(self, name):
        raise RuntimeError("shut")


class Key:
    def __repr__(self):
        raise RuntimeError("no text")


class Odd(float):
    def __eq__(self, other):
        return np.array([True, False])

    __hash__ = float.__hash__


class Referred:
    pass


class Asking(type):
    def __subclasscheck__(cls, other):
        raise RuntimeError("asked")


class Asked(metaclass=Asking):
    def __init__(self):
        self.k = 1


ODD = {
    "metaclass": Record, "lazy": Lazy, "proxy": Proxy, "shut": Shut,
    "key": lambda: {Key(): 1.0, Key(): [Key()]}, "dead": lambda: weakref.proxy(Referred()),
    "odd number": lambda: [Odd(1.0)], "chain": lambda: chained(5000), "asked": Asked,
}  # fmt: skip


def chained(count):
    found = None
    for _ in range(count):
        link = Holder()
        link.next, found = found, link
    return found


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_odd_objects_are_looked_at_without_a_trace(call, make):
    thing = make()
    assert call(lambda x: x + 0 * len([thing])).item() == call(lambda x: x).item()
    assert krt.jit(lambda x: x + 0 * len([thing]))(1.0).item() == 1.0


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_beside_odd_objects_counts_are_seen(call, make):
    held = Holder()
    held.odd, held.inner = make(), Holder()

    def f(x):
        held.inner.number += 1
        return x + 0 * len([held.odd])

    for calling in (call, lambda f: krt.jit(f)(1.0)):
        with pytest.raises(krt.JitError, match=r"held\.inner\.number: .* from 0 to 1"):
            calling(f)
        assert held.inner.number == 0


def test_many_names_and_an_import():
    lines = [f"    o.a{i}" for i in range(300)]
    lines += ["    from math import sqrt as s", "    return x * s(4)"]
    code = "\n".join(["def f(x, o):", *lines])
    space: dict[str, object] = {}
    exec(code, space)  # noqa: S102
    held = types.SimpleNamespace(**{f"a{i}": i for i in range(300)})
    assert scan(lambda x: space["f"](x, held)).item() == 6


def test_a_list_that_cannot_be_put_right_does_not_hide_the_error(call):
    class Log(list):
        def __setitem__(self, key, value):
            raise RuntimeError("append only")

    log, held = Log([1]), Holder()

    def f(x):
        list.__setitem__(log, 0, 2)
        held.number = 5
        return x

    with pytest.raises(krt.JitError):
        call(f)
    assert log == [1]
    assert held.number == 0


def test_a_look_takes_no_longer_than_it_may():
    """However much there is within reach: each call of a loop looks."""
    from kernelrt.jit.effects.purity import ROOM
    from kernelrt.jit.effects.side_effects import OuterState

    held = Holder()
    held.items = [[float(i) for i in range(1000)] for _ in range(1000)]
    held.by_name = {f"n{i}": Holder() for i in range(900)}
    held.functions = [lambda x, i=i: x * i for i in range(500)]
    vars(held).update({f"attribute_{i}": i for i in range(200)})

    def f(x):
        return held.functions[0](x) + held.items[0][0]

    around = OuterState(("", f), room=ROOM)
    seen = sum(len(place.before) for place in around._snapshots)
    assert ROOM // 4 < seen <= ROOM
    assert len(around._snapshots) + len(around._codes) <= ROOM // 8


@pytest.mark.parametrize("length", [300, 500, 900])
def test_lists_that_there_is_room_for_are_seen(length):
    counts = [0] * length

    def f(x):
        counts[-1] += 1
        return x

    with pytest.raises(krt.JitError, match=rf"counts\[{length - 1}\]: .* from 0 to 1"):
        scan(f)
    assert counts == [0] * length


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


def test_within_jit_what_was_there_is_told_of_the_jitted_function():
    held = Holder()

    @krt.jit
    def whole(xs):
        def turn(c, x):
            held.number += 1
            return c + x, None

        return krt.scan(turn, krt.tensor(0.0), xs)[0]

    with pytest.raises(krt.JitError, match=r"held\.number: whole changes the number"):
        whole(XS)


@pytest.mark.parametrize("around", ["jit", "scan", "vmap"])
def test_what_a_function_around_makes_is_looked_at_in_a_body(around):
    """It was not there when that function was looked at."""

    def whole(x):
        held, count = Holder(), 0

        def turn(c, x):
            held.number += 1
            return c + x * held.number, None

        def other(c, x):
            nonlocal count
            count += 1
            return c + x * count, None

        body = turn if by_attribute else other
        return krt.scan(body, krt.tensor(0.0), x + XS)[0]

    outer = {
        "jit": lambda: krt.jit(whole)(krt.tensor(1.0)),
        "scan": lambda: krt.scan(lambda c, x: (c + whole(x), None), krt.tensor(0.0), XS),
        "vmap": lambda: krt.vmap(whole)(XS),
    }[around]
    for by_attribute in (True, False):
        name = r"held\.number: turn" if by_attribute else "count: other"
        with pytest.raises(krt.JitError, match=f"{name} in scan changes the number from 0 to 1"):
            outer()


def test_what_comes_to_lie_where_another_was_is_looked_at():
    """Objects of one loop are gone when those of the next are made, often in their place."""
    refused = []

    def part(x, count):
        held = Holder()

        def turn(c, x):
            held.number += count
            return c + x, None

        try:
            return krt.scan(turn, krt.tensor(0.0), x + XS)[0]
        except krt.JitError:
            refused.append(count)
            return x

    krt.jit(lambda x: [part(x, i % 2) for i in range(40)])(krt.tensor(1.0))
    assert len(refused) == 20


def test_arguments_of_vmap_are_looked_at():
    class Model(nn.Module):
        def __init__(self) -> None:
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            return x

    model = Model()
    with pytest.raises(krt.JitError, match=r"argument 0\.steps: <lambda> in vmap changes"):
        krt.vmap(lambda m, x: m(x), in_axes=(None, 0))(model, XS)
    assert model.steps == 0


def test_tensors_may_be_keys(call):
    class Alike:
        __hash__ = object.__hash__

        def __eq__(self, other):
            return np.array([True, False])

    memo: dict[object, int] = {}

    def f(x):
        memo[x] = memo[Alike()] = 1
        return x

    assert call(f).item() == call(lambda x: x).item()
    assert memo


class Counted:
    """A descriptor with state, as traits have."""

    def __get__(self, owner, kind=None):
        return owner._n

    def __set__(self, owner, value):
        owner._n = value


class Traits:
    n = Counted()

    def __init__(self):
        self._n = 0


def test_descriptors_set(call):
    traits = Traits()

    def f(x):
        traits.n += 1
        return x

    with pytest.raises(krt.JitError, match=r"traits\._n: .* from 0 to 1"):
        call(f)
    assert traits.n == 0


def test_what_was_seen_is_let_go_of_with_the_error(call):
    big = Holder()
    gone = weakref.ref(big)

    def refuse(held):
        def f(x):
            held.number += 1
            return x

        with pytest.raises(krt.JitError):
            call(f)

    gc.collect()
    gc.disable()
    try:
        refuse(big)
        del big
        assert gone() is None
    finally:
        gc.enable()


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
