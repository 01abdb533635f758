"""Attributes, items and classes that a traced function reads: a change leads to another plan."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import time
import types
import warnings
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

X = np.ones(2, np.float32)


class Plain:
    rate = 1.0

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def scaled(self, x: Any) -> Any:
        return x * self.rate

    @property
    def hidden(self) -> float:
        return self._hidden

    @hidden.setter
    def hidden(self, value: float) -> None:
        self._hidden = value


@dataclasses.dataclass(slots=True)
class Slotted:
    value: float = 1.0
    other: float = 1.0


class Config(dict):
    __getattr__ = dict.__getitem__


def attribute(o):
    return (lambda x: x * o.value), (lambda v: setattr(o, "value", v))


def item(d, key):
    return (lambda x: x * d[key]), (lambda v: d.__setitem__(key, v))


def dict_of_attributes():
    d = Config(value=1.0)
    return (lambda x: x * d.value), (lambda v: d.__setitem__("value", v))


def in_class(cls):
    o = cls()
    return o.scaled, (lambda v: setattr(cls, "rate", v))


def hides_class():
    o = Plain()
    return o.scaled, (lambda v: setattr(o, "rate", v))


def class_itself():
    cls = type("Settings", (), {"rate": 1.0, "__module__": __name__})
    return (lambda x: x * cls.rate), (lambda v: setattr(cls, "rate", v))


def by_property():
    o = Plain(_hidden=1.0)
    return (lambda x: x * o.hidden), (lambda v: setattr(o, "hidden", v))


def by_text():
    o = Plain(value=1.0)
    return (lambda x: x * getattr(o, "value")), (lambda v: setattr(o, "value", v))  # noqa: B009


def nested_object():
    o = Plain(config=Plain(value=1.0))
    return (lambda x: x * o.config.value), (lambda v: setattr(o, "config", Plain(value=v)))


def nested_items():
    o = Plain(table={"a": [1, {"b": 1.0}]})
    return (
        lambda x: x * o.table["a"][1]["b"], lambda v: o.table["a"][1].__setitem__("b", v)
    )  # fmt: skip


def missing_key():
    d: dict[str, float] = {"other": 1.0, "value": 1.0}

    def change(v):
        d.pop("value", None)
        if v != 1.0:
            d["value"] = v

    return (lambda x: x * d.get("value", 1.0)), change


def within_a_module():
    module = nn.Linear(2, 2)
    module.settings = Plain(value=1.0)
    return (lambda x: x * module.settings.value), (lambda v: setattr(module.settings, "value", v))


def a_text():
    o = Plain(mode="1.0")
    return (lambda x: x * float(o.mode)), (lambda v: setattr(o, "mode", str(v)))


def a_tensor():
    o = Plain(value=krt.ones(2))
    return (lambda x: x * o.value), (lambda v: setattr(o, "value", krt.full((2,), v)))


CASES = {
    "attribute": lambda: attribute(Plain(value=1.0)),
    "namespace": lambda: attribute(types.SimpleNamespace(value=1.0)),
    "slot": lambda: attribute(Slotted()),
    "dict": lambda: item({"a": 1.0, "b": 2}, "a"),
    "dict by number": lambda: item({3: 1.0}, 3),
    "ordered dict": lambda: item(OrderedDict(a=1.0), "a"),
    "default dict": lambda: item(defaultdict(float, a=1.0), "a"),
    "dict of attributes": dict_of_attributes,
    "list": lambda: item([5, 1.0], 1),
    "class": lambda: in_class(type("Own", (Plain,), {"rate": 1.0, "__module__": __name__})),
    "inherited": lambda: in_class(type("Own", (Plain,), {"__module__": __name__})),
    "hides the class": hides_class,
    "class itself": class_itself,
    "property": by_property,
    "by text": by_text,
    "nested object": nested_object,
    "nested items": nested_items,
    "missing key": missing_key,
    "within a module": within_a_module,
    "text": a_text,
    "tensor": a_tensor,
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_and_the_plan_of_before_is_found_again(name: str) -> None:
    function, change = CASES[name]()
    f = krt.jit(function)
    for value in (1.0, 1.0, 2.5, 2.5, 4.0):
        change(value)
        assert f(X).tolist() == [value] * 2
    traced = f.retraces
    f(X)
    assert f.retraces == traced
    if name not in ("nested object", "tensor"):  # where another one took its place
        change(2.5)
        assert f(X).tolist() == [2.5] * 2
        assert f.retraces == traced == 2


def hides(base: Any = (), **values: Any) -> Any:
    """A class without attributes that inherits these."""
    parent = type("Parent", base or (Plain,), values | {"__module__": __name__})
    return type("Child", (parent,), {"__module__": __name__})


def through_hooks(hooks):
    def function(x):
        for hook in hooks.values() if isinstance(hooks, dict) else hooks:
            x = hook(x)
        return x

    return function


def read(o, name):
    return getattr(o, name, 1.0)


def absent(o, function):
    return (lambda x: x * function(o)), (lambda: setattr(o, "value", 5.0)), 5.0


def caught(get):
    def function(o):
        try:
            return get(o)
        except (AttributeError, IndexError, KeyError):
            return 1.0

    return function


def grows(holder, function, expected, **more):
    def change():
        holder.append(2.0) if isinstance(holder, list) else holder.update(more or {"k": 2.0})

    return (lambda x: x * function(holder)), change, expected


def one_list_by_two_names():
    first = [1.0]
    o = Plain(value=first)
    return (lambda x: x * first[0] * sum(o.value)), (lambda: first.append(1.0)), 2.0


def read_by_the_second_name():
    o = Plain(value=1.0)
    table = Plain(unread=o, config=o)
    return (lambda x: x * table.config.value), (lambda: setattr(o, "value", 5.0)), 5.0


def another_order():
    d = {"a": lambda x: x * 0 + 3, "b": lambda x: x + 1}
    return through_hooks(d), (lambda: d.__setitem__("a", d.pop("a"))), 3.0


def of_a_default():
    def function(x, hooks=[]):  # noqa: B006
        return through_hooks(hooks)(x)

    return function, (lambda: function.__defaults__[0].append(lambda x: x * 5)), 5.0


def in_a_module():
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hooks: list[Any] = []

        def forward(self, x: Any) -> Any:
            for hook in self.hooks:
                x = hook(x)
            return x

    module = Hooked()
    return (lambda x: module(x) * 1), (lambda: module.hooks.append(lambda x: x * 5)), 5.0


def gets(cls, function, name="value", new: Any = 5.0):
    o = cls()
    return (lambda x: x * function(o)), (lambda: setattr(cls, name, new)), 5.0


def shared_by_a_class(value, function, change):
    cls = type("Own", (Plain,), {"value": value, "__module__": __name__})
    o = cls()
    return (lambda x: x * function(o.value)), (lambda: change(cls.value)), 5.0


def dynamic_attribute():
    cls = type("Dynamic", (), {"__module__": __name__, "__getattr__": lambda *_: 1.0})
    return absent(cls(), lambda o: o.value)


KEY = "k"
HOOKS: list[Any] = []
TABLE: dict[str, Any] = {}

#: The function, what happens after the first call, and what it gives then, in the place of 1.
COMES_LATER = {
    "getattr": lambda: absent(Plain(), lambda o: getattr(o, "value", 1.0)),
    "hasattr": lambda: absent(Plain(), lambda o: 5.0 if hasattr(o, "value") else 1.0),
    "name from other code": lambda: absent(Plain(), lambda o: read(o, "value")),
    "try attribute": lambda: absent(Plain(), caught(lambda o: o.value)),
    "namespace": lambda: absent(types.SimpleNamespace(), lambda o: getattr(o, "value", 1.0)),
    "dynamic attribute": dynamic_attribute,
    "list of hooks": lambda: (through_hooks(HOOKS), lambda: HOOKS.append(lambda x: x * 7), 7.0),
    "dict of hooks": lambda: (
        through_hooks(TABLE), lambda: TABLE.update(a=lambda x: x * 7), 7.0
    ),
    "default": of_a_default,
    "list of a module": in_a_module,
    "sum": lambda: grows([1.0], sum, 3.0),
    "length": lambda: grows([1.0], len, 2.0),
    "last": lambda: grows([1.0], lambda h: h[-1], 2.0),
    "truth": lambda: grows([], lambda h: 2.0 if h else 1.0, 2.0),
    "in a list": lambda: grows([1.0], lambda h: 3.0 if 2.0 in h else 1.0, 3.0),
    "try index": lambda: grows([1.0], caught(lambda h: h[1]), 2.0),
    "try key": lambda: grows({}, caught(lambda h: h["k"]), 2.0),
    "get from nothing": lambda: grows({}, lambda h: h.get("k", 1.0), 2.0),
    "get by text": lambda: grows({}, lambda h: h.get("k-1", 1.0), 2.0, **{"k-1": 2.0}),
    "get by variable": lambda: grows({"a": 1.0}, lambda h: h.get(KEY, 1.0), 2.0),
    "in a dict": lambda: grows({"a": 1.0}, lambda h: 3.0 if "k" in h else 1.0, 3.0),
    "items": lambda: grows({"a": 1.0}, lambda h: sum(v for _, v in h.items()), 3.0),
    "of a class of dicts": lambda: grows(Config(a=1.0), lambda h: sum(h.values()), 3.0),
    "two names": one_list_by_two_names,
    "second name": read_by_the_second_name,
    "order": another_order,
    "class hides base": lambda: gets(hides(value=1.0), lambda o: o.value),
    "method hides base": lambda: gets(
        hides(act=lambda _: 1.0), lambda o: o.act(), "act", lambda _: 5.0
    ),
    "another method": lambda: gets(
        type("Own", (Plain,), {"act": lambda _: 1.0, "__module__": __name__}),
        lambda o: o.act(), "act", lambda _: 5.0,
    ),
    "class hides base of a module": lambda: gets(hides((nn.Module,), value=1.0), lambda o: o.value),
    "absent in the class": lambda: gets(hides(), lambda o: getattr(o, "value", 1.0)),
    "absent in the class of a module": lambda: gets(
        hides((nn.Module,)), lambda o: getattr(o, "value", 1.0)
    ),
    "list of a class": lambda: shared_by_a_class([1.0], sum, lambda v: v.append(4.0)),
    "dict of a class": lambda: shared_by_a_class(
        {"a": 1.0}, lambda v: v["a"], lambda v: v.update(a=5.0)
    ),
    "object of a class": lambda: shared_by_a_class(
        Plain(rate=1.0), lambda v: v.rate, lambda v: setattr(v, "rate", 5.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMES_LATER)
def test_what_comes_after_the_trace_is_seen(name: str) -> None:
    HOOKS.clear()
    TABLE.clear()
    function, change, expected = COMES_LATER[name]()
    f = krt.jit(function)
    before = function(krt.tensor(X)).tolist()
    assert f(X).tolist() == f(X).tolist() == before
    assert f.retraces == 0
    change()
    assert function(krt.tensor(X)).tolist() == [expected] * 2 != before
    assert f(X).tolist() == f(X).tolist() == [expected] * 2
    assert f.retraces == 1


def fills_a_dict(x, cache={}):  # noqa: B006
    if x.shape not in cache:
        cache[x.shape] = float(x.shape[0])
    return x * cache[x.shape] * len(cache) * 0 + x


def fills_by_reading():
    d = defaultdict(float)
    return lambda x: x + d["a"] + d[str(x.shape)]


def appends():
    o = Plain(log=[])

    def function(x):
        o.log.append("called")
        return x + 0 * len(o.log)

    return function


def sets_an_item():
    log = ["a"]

    def function(x):
        log[0] += "b" * len(log)
        return x + 0

    return function


def sets_what_is_absent(o):
    def function(x):
        if not hasattr(o, "value"):
            o.value = 3.0
        return x * o.value

    return function


def uses_a_stack():
    stack: list[int] = []

    def function(x):
        stack.append(1)
        try:
            return x * len(stack)
        finally:
            stack.pop()

    return function


def keeps_the_newest():
    d = {"(2,)": 1.0, "(3,)": 2.0}

    def function(x):
        d[str(x.shape)] = d.pop(str(x.shape))
        return x * len(list(d.items()))

    return function


def property_that_is_kept():
    class Own:
        @functools.cached_property
        def value(self) -> float:
            return 3.0

    o = Own()
    return lambda x: x * (o.value if hasattr(o, "value") else 1.0)


FILLS = {
    "dict": lambda: fills_a_dict,
    "default dict": fills_by_reading,
    "list": appends,
    "item": sets_an_item,
    "attribute": lambda: sets_what_is_absent(Plain()),
    "attribute of a class": lambda: sets_what_is_absent(
        type("Own", (), {"__module__": __name__})
    ),
    "stack": uses_a_stack,
    "order": keeps_the_newest,
    "cached property": property_that_is_kept,
}  # fmt: skip


@pytest.mark.parametrize("name", FILLS)
def test_what_a_function_fills_itself_leads_to_no_other_trace(name: str) -> None:
    f = krt.jit(FILLS[name]())
    for _ in range(3):
        f(X)
        f(np.ones(3, np.float32))
    assert f.retraces <= 1
    assert len(f.plans) == 2


def test_explain_tells_of_items_that_came() -> None:
    hooks = [1.0]
    f = krt.jit(lambda x: x * sum(hooks))
    f(X)
    hooks.append(2.0)
    f(X)
    assert "hooks gained or lost items" in f.explain()


def test_methods_see_what_they_read_alone() -> None:
    class Agent:
        def __init__(self) -> None:
            self.epsilon, self.steps, self.losses = 1.0, 0, [0.0]

        @krt.jit
        def act(self, q: Any) -> Any:
            return q * self.epsilon

        def count(self) -> None:
            self.steps += 1
            self.losses.append(float(self.steps))

    agent, found = Agent(), []
    for _ in range(3):
        found.append(agent.act(X).tolist()[0])
        agent.epsilon *= 0.5
        agent.count()
    assert found == [1.0, 0.5, 0.25]
    for _ in range(5):
        agent.count()
        agent.act(X)
    assert agent.act.retraces == 3
    assert "self.epsilon was rebound, or its value changed" in agent.act.explain()


def test_what_grows_changes_nothing() -> None:
    o = Plain(history=[1.0], table={"a": 1.0})
    f = krt.jit(
        lambda x: x * o.history[0] * o.table["a"] * o.table.get("b", 1.0) + 0 * ("c" in o.table)
    )
    for i in range(4):
        assert f(X).tolist() == [1.0, 1.0]
        o.history.append(float(i))
        o.table[str(i)] = i
    assert f.retraces == 0


def test_a_list_that_became_shorter_is_seen() -> None:
    items = [1.0, 2.0, 4.0]
    f = krt.jit(lambda x: x * sum(items))
    assert f(X).tolist() == [7.0, 7.0]
    del items[1:]
    assert f(X).tolist() == [1.0, 1.0]
    items[0] = float("1.0")  # an equal number, another object
    assert f(X).tolist() == [1.0, 1.0]
    assert f.retraces == 1


def test_what_a_function_sets_itself_is_no_reason_to_trace_again() -> None:
    o = Plain(label="", value=1.0)

    def use(x: Any) -> Any:
        o.label = "used"
        return x * o.value

    f = krt.jit(use)
    for _ in range(3):
        f(X)
    assert f.retraces == 0
    o.value = 3.0
    assert f(X).tolist() == [3.0, 3.0]


def test_what_functions_that_plans_call_change_is_theirs() -> None:
    class Environment:
        def __init__(self) -> None:
            self.n = 0

        def step(self, x: np.ndarray) -> np.ndarray:
            self.n += 1
            return x + self.n + time.time() * 0

    env = Environment()
    f = krt.jit(lambda x: krt.call(env.step, x, out=krt.zeros(2), pure=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [f(X).tolist()[0] for _ in range(3)] == [2.0, 3.0, 4.0]
    assert f.retraces == 0


def test_containers_given_as_arguments_are_arguments() -> None:
    f = krt.jit(lambda d: d["x"] * d["k"][0])
    for k in (1.0, 2.0, 3.0):
        assert f({"x": X, "k": [k]}).tolist() == [k, k]
    assert f.retraces == 0


CLOCKS = {
    "time.time": lambda x: x * 0 + time.time() * 0,
    "time.perf_counter_ns": lambda x: x + 0 * time.perf_counter_ns(),
    "dt.datetime.now": lambda x: x + 0 * dt.datetime.now(tz=dt.UTC).hour,
}


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_are_told_once_with_their_line(name: str) -> None:
    function = CLOCKS[name]
    line = function.__code__.co_firstlineno
    f = krt.jit(function)
    with pytest.warns(krt.KernelrtWarning, match=rf"reads the time with {name}\(\) \(.*:{line}\)"):
        f(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(np.ones(3, np.float32))
        krt.jit(lambda x: x + 1 + time.timezone * 0)(X)
