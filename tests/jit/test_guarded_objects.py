"""Attributes, items and classes that a traced function reads: a change leads to another plan."""

from __future__ import annotations

import dataclasses
import datetime as dt
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
    assert "self.epsilon was rebound, or became another number" in agent.act.explain()


def test_what_grows_changes_nothing() -> None:
    o = Plain(history=[1.0], table={"a": 1.0})
    f = krt.jit(lambda x: x * o.history[0] * o.table["a"])
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
    with pytest.warns(krt.KernelrtWarning, match=rf"reads the time by {name}\(\) \(.*:{line}\)"):
        f(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(np.ones(3, np.float32))
        krt.jit(lambda x: x + 1 + time.timezone * 0)(X)
