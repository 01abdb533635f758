"""What a traced function sets in its surroundings: assigned tensors stay, all else is an error."""

from __future__ import annotations

import collections
import dataclasses
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

F32 = np.float32
ONE = np.ones(2, F32)

total = krt.zeros(2)
calls = 0


class Plain:
    def __init__(self) -> None:
        self.h = krt.zeros(2)
        self.n = 0
        self.nothing = None
        self.items: list[Any] = [krt.zeros(2), 5]
        self.names: dict[str, Any] = {"a": krt.zeros(2)}
        self.queue = collections.deque([krt.zeros(2)], maxlen=3)
        self.bag = {krt.zeros(2)}

    def grow(self, x: krt.Tensor) -> None:
        self.h = self.h + x


@dataclasses.dataclass(slots=True)
class Slotted:
    h: krt.Tensor


def attribute(s, x):
    s.h = s.h + x


def attribute_in_place(s, x):
    s.h += x


def number(s, x):
    s.n += 1
    return x * s.n


def fresh_attribute(s, x):
    s.fresh = x * 2


def filled_attribute(s, x):
    s.nothing = x * 2


def argument_kept(s, x):
    s.h = x


def item(s, x):
    s.items[0] = x * 2


def number_in_list(s, x):
    s.items[1] += 1
    return x


def appended(s, x):
    s.items.append(x.sum())


def inserted(s, x):
    s.items.insert(0, x * 2)


def popped(s, x):
    return s.items.pop(0) + x


def key(s, x):
    s.names["a"] = x * 2


def new_key(s, x):
    s.names["b"] = x * 2


def queued(s, x):
    s.queue.append(x * 2)


def put_in_a_set(s, x):
    s.bag.add(x * 2)


def taken_from_a_set(s, x):
    return s.bag.pop() + x


def nested(s, x):
    s.h = {"deep": [types.SimpleNamespace(x=x * 2)]}


def exchanged(s, x):
    s.h, s.items[0] = s.items[0], s.h
    return s.h + x


def through_a_method(s, x):
    s.grow(x)


CASES = {
    attribute: ("s.h", "h = ", "s.h.assign"),
    number: ("s.n", "n +=", r"from 0 to 1.*krt\.tensor\(0\)"),
    fresh_attribute: ("s.fresh", "fresh =", "return the tensor"),
    filled_attribute: ("s.nothing", "nothing =", "return the tensor"),
    argument_kept: ("s.h", "h = x", "s.h.assign"),
    item: (r"s.items\[0\]", "items[0] =", "assign"),
    number_in_list: (r"s.items\[1\]", "items[1] +=", "from 5 to 6"),
    appended: (r"s.items\[2\]", "append", "return the tensor"),
    inserted: (r"s.items\[0\]", "insert", "assign"),
    popped: (r"s.items\[0\]", "pop", "assign"),
    key: (r"s.names\['a'\]", 'names["a"] =', "assign"),
    new_key: (r"s.names\['b'\]", 'names["b"] =', "return the tensor"),
    queued: (r"s.queue\[1\]", "append", "return the tensor"),
    put_in_a_set: ("an item of s.bag", "bag.add", "return the tensor"),
    taken_from_a_set: ("an item of s.bag", "bag.pop", "return the tensor"),
    nested: ("s.h", "h = {", "assign"),
    exchanged: ("s.h", "s.h, s.items", "assign"),
    through_a_method: ("s.h", "self.h = self.h", "s.h.assign"),
}


def line_of(fn: Any, text: str) -> int:
    lines = list(enumerate(Path(__file__).read_text().splitlines(), 1))
    start = fn.__code__.co_firstlineno if fn is not through_a_method else 0
    return next(i for i, line in lines if i > start and text in line)


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_what_is_set_is_named_with_its_line_and_the_way_out(fn: Any) -> None:
    name, text, way = CASES[fn]
    s = Plain()
    before = {"h": s.h, "items": list(s.items), "names": dict(s.names), "queue": list(s.queue),
              "bag": set(s.bag)}  # fmt: skip
    with pytest.raises(krt.JitError, match=rf"^{name}: .*{way}") as caught:
        krt.jit(lambda x: fn(s, x))(ONE)
    assert f"test_surroundings.py:{line_of(fn, text)})" in str(caught.value)
    assert (s.n, s.nothing, hasattr(s, "fresh")) == (0, None, False)
    after = {"h": s.h, "items": s.items, "names": s.names, "queue": list(s.queue)}
    assert list(map(id, before["items"])) == list(map(id, after["items"]))
    assert list(map(id, before["queue"])) == list(map(id, after["queue"]))
    assert before["h"] is after["h"]
    assert before["bag"] == s.bag
    assert before["names"].keys() == after["names"].keys()
    assert before["names"]["a"] is after["names"]["a"]


@pytest.mark.parametrize("lazy", [False, True])
def test_a_tensor_that_is_changed_in_place_stays(lazy: bool) -> None:
    s = Plain()
    if not lazy:
        s.h.realize()
    before, step = s.h, krt.jit(lambda x: attribute_in_place(s, x))
    for n in range(1, 4):
        step(ONE)
        assert s.h is before
        assert s.h.tolist() == [n, n]


def test_names_of_closures_globals_slots_and_methods() -> None:
    h = krt.zeros(2)

    def cell(x):
        nonlocal h
        h = h + x

    def outer(x):
        global total  # noqa: PLW0603 - it is what is refused
        total = total + x

    def count(x):
        global calls  # noqa: PLW0603 - it is what is refused
        calls += 1
        return x

    def new(x):
        global made_by_a_trace  # noqa: PLW0603 - it is what is refused
        made_by_a_trace = x * 2

    logged: list[Any] = []

    def log(x):
        logged.append(x.sum())

    slotted = Slotted(krt.zeros(2))

    def slot(x):
        slotted.h = x * 2

    class Model(nn.Module):
        def __init__(self) -> None:
            self.h = krt.zeros(2)

        def forward(self, x):
            self.h = self.h + x
            return self.h

        @krt.jit
        def method(self, x):
            return self(x)

    model = Model()
    for fn, name in (
        (cell, "h"), (outer, "total"), (count, "calls"), (slot, "slotted.h"),
        (new, "made_by_a_trace"), (log, r"logged\[0\]"),
        (lambda x: model(x) * 1, "model.h"),
    ):  # fmt: skip
        with pytest.raises(krt.JitError, match=rf"^{name}: .*test_surroundings.py:\d+\)"):
            krt.jit(fn)(ONE)
    for jitted in (krt.jit(model), model.method):
        with pytest.raises(krt.JitError, match=r"^self\.h: |^h: |^\w+\.h: "):
            jitted(ONE)
    assert calls == 0
    assert "made_by_a_trace" not in globals()
    assert logged == []
    assert h.tolist() == total.tolist() == slotted.h.tolist() == model.h.tolist() == [0, 0]


def test_arguments_that_hold_others_are_not_changed() -> None:
    with pytest.raises(krt.JitError, match=r"^batch\[1\]: .*return the tensor"):
        krt.jit(lambda batch: batch.append(batch[0] * 2))([ONE])


def test_what_may_be_set() -> None:
    s = Plain()
    seen = []

    @krt.jit
    def f(x):
        seen.append("traced")
        s.kept = s.h
        s.text = "once"
        s.h.assign(s.h + x)
        s.items[0].assign(x * 2)
        s.names = {"a": s.names["a"]}
        return s.h

    f(ONE)
    f(ONE)
    assert seen == ["traced"]
    assert s.h.tolist() == [2, 2]
    assert s.kept is s.h


def test_notes_by_tensor_may_be_set() -> None:
    seen: dict[Any, str] = {}
    weight = krt.ones(2)

    @krt.jit
    def note(x: krt.Tensor) -> krt.Tensor:
        seen[weight] = "read"
        return x + weight

    assert note(ONE).tolist() == [2, 2]
    assert note(ONE).tolist() == [2, 2]
    assert seen == {weight: "read"}


def test_an_error_on_the_way_undoes_what_was_set() -> None:
    s = Plain()
    h = s.h

    def f(x):
        s.h = x * 2
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        krt.jit(f)(ONE)
    assert s.h is h


def test_numbers_that_became_part_of_the_program_are_told() -> None:
    scale, shift, unread = 0.5, np.float64(2.5), Plain()
    unread.size = 3

    @krt.jit
    def f(x):
        return x * scale + shift + unread.n

    f(ONE)
    text = f.explain()
    assert "part of the program: " in text
    assert "scale = 0.5" in text
    assert "shift = " in text
    assert "2.5" in text
    assert "unread.n = 0" in text
    assert "size" not in text
