"""Variables that a traced function read: globals, and variables of enclosing functions."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest
from support.patience import PATIENCE

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import GradientError

X = np.arange(1, 5, dtype=np.float32)


def compiled(source: str, **names: Any) -> dict[str, Any]:
    """The globals of a module of its own, after `source`."""
    names |= {"krt": krt, "nn": nn, "np": np}
    exec(source, names)  # noqa: S102
    return names


VALUES: dict[str, tuple[Any, Any]] = {
    "int": (2, 3),
    "kind of number": (1, True),
    "float": (2.0, 2.5),
    "sign of zero": (0.0, -0.0),
    "sign of zeros": ((0.0, 0.0), (-0.0, -0.0)),
    "text": ("a", "b"),
    "none": (None, 4),
    "tuple": ((1, 2.0), (1, 2.5)),
    "array": (np.ones(4, np.float32), np.full(4, 3, np.float32)),
    "numpy number": (np.float32(2), np.float32(5)),
    "tensor": (krt.ones(4), krt.full((4,), 3.0)),
    "module": (nn.Linear(4, 4), nn.Linear(4, 4)),
    "function": (lambda x: x * 2, lambda x: x * 3),
    "jitted": (krt.jit(lambda x: x * 2), krt.jit(lambda x: x * 3)),
    "list": ([1, 2], [3]),
}

BODY = """
def use(x, v):
    if v is None or isinstance(v, str):
        return x * (2 if v in (None, "a") else 5)
    if isinstance(v, (tuple, list)):
        return x * sum(v[1:], v[0])
    return v(x) if callable(v) else x * v
"""


@pytest.mark.parametrize("kind", VALUES)
def test_a_global_that_is_rebound_is_seen(kind: str) -> None:
    first, second = VALUES[kind]
    names = compiled(BODY + "f = krt.jit(lambda x: use(x, value))\n", value=first)
    f, use, x = names["f"], names["use"], krt.tensor(X)
    for value in (first, first, second, second, first):
        names["value"] = value
        got, expected = f(X).numpy(), use(x, value).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    assert len(f.plans) == 2
    assert "value was rebound" in f.explain()


@pytest.mark.parametrize("kind", VALUES)
def test_a_variable_of_an_enclosing_function_that_is_rebound_is_seen(kind: str) -> None:
    first, second = VALUES[kind]
    use, x = compiled(BODY)["use"], krt.tensor(X)
    value = first
    f = krt.jit(lambda x: use(x, value))
    for now in (first, first, second, second, first):
        value = now
        got, expected = f(X).numpy(), use(x, value).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    assert len(f.plans) == 2


def test_a_function_that_is_defined_again_is_seen() -> None:
    names = compiled("def inner(x): return x + 1\nf = krt.jit(lambda x: inner(x) * 2)\n")
    assert names["f"](X).tolist() == ((X + 1) * 2).tolist()
    exec("def inner(x): return x - 1\n", names)  # noqa: S102
    assert names["f"](X).tolist() == ((X - 1) * 2).tolist()
    del names["inner"]
    with pytest.raises(NameError):
        names["f"](X)


def test_names_behind_other_functions_and_modules() -> None:
    other = compiled("rate = 2.0\ndef scaled(x): return x * rate\n")
    names = compiled("def f(x): return scaled(x) + 1\ng = krt.jit(f)\n", scaled=other["scaled"])
    assert names["g"](X).tolist() == (X * 2 + 1).tolist()
    other["rate"] = 3.0
    assert names["g"](X).tolist() == (X * 3 + 1).tolist()


def test_what_is_not_read_or_equal_makes_no_plan() -> None:
    names = compiled(
        "shape = size = 0\nf = krt.jit(lambda x: (x * value).sum() * x.shape[0])\n",
        value=1000, unrelated=0,
    )  # fmt: skip
    for i in range(5):
        names["unrelated"], names["shape"], names[f"new{i}"] = i, i, i
        names["value"] = int("1000")
        names["loss"] = names["f"](X)
    assert len(names["f"].plans) == 1


AGENT = """
from kernelrt import nn
counter = 0
def step(x):
    return x + counter
class Base:
    def scaled(self, x):
        return x * value_scaled
class Agent(Base, nn.Module):
    def idle(self):
        return helper() + self.idle_too(), step
    def idle_too(self):
        return counter
    @property
    def rate(self):
        return value_rate
    @staticmethod
    def fixed(x):
        return x * value_fixed
    @classmethod
    def of_class(cls, x):
        return x * value_of_class
    @krt.jit
    def jitted(self, x):
        return x * value_jitted
    def scaled(self, x):
        return super().scaled(x)
    def forward(self, x):
        return x * value_forward
    def step(self, x):
        return x * value_step
    @krt.jit
    def learn(self, x):
        step = counter = 1
        return BODY
def helper():
    return counter
agent = Agent()
"""
VALUE_NAMES = re.findall(r"value_\w+", AGENT)


@pytest.mark.parametrize(
    "body",
    [
        "x * self.rate", "self.fixed(x)", "self.of_class(x)", "self.jitted(x)", "self.scaled(x)",
        "self(x)", "self.step(x)", "getattr(self, 'st' + 'ep')(x)", "(lambda: self.step)()(x)",
        "[self.step][0](x)", "vars(type(self))['step'](self, x)",
        "type(self).__dict__['step'](self, x)",
    ],
)  # fmt: skip
def test_what_a_method_that_runs_reads_is_seen(body: str) -> None:
    source = AGENT.replace("BODY", body)
    values = dict.fromkeys(VALUE_NAMES, 2.0)
    jitted = compiled(source, **values, __name__="agents")
    plain = compiled(source.replace("@krt.jit", ""), **values, __name__="agents")
    for name in VALUE_NAMES:
        jitted[name] = plain[name] = 3.0
        expected = plain["agent"].learn(krt.tensor(X)).tolist()
        assert jitted["agent"].learn(X).tolist() == expected


@pytest.mark.parametrize("body", ["x * self.rate", "self.step(x)", "self(x)", "self.jitted(x)"])
def test_a_variable_that_only_code_that_does_not_run_reads_makes_no_plan(body: str) -> None:
    names = compiled(AGENT.replace("BODY", body), __name__="agents")
    names.update(dict.fromkeys(VALUE_NAMES, 2.0))
    for i in range(4):
        names["counter"] = i
        assert names["agent"].learn(X).tolist() == (X * 2).tolist()
    assert len(names["agent"].learn.plans) == 1
    assert "counter" not in names["agent"].learn.explain()


@pytest.mark.parametrize("enclosed", [False, True])
def test_rebinding_from_another_thread_is_not_taken_for_the_function_s_own(enclosed: bool) -> None:
    value = 1.0
    moved, busy = threading.Event(), threading.Event()

    def scaled(x: Any, by: float) -> Any:
        if not moved.is_set():
            busy.set()
            assert moved.wait(PATIENCE)
        return x * by

    names = compiled("f = krt.jit(lambda x: scaled(x, value))\n", value=1.0, scaled=scaled)
    f = krt.jit(lambda x: scaled(x, value)) if enclosed else names["f"]

    def rebind() -> None:
        nonlocal value
        assert busy.wait(PATIENCE)
        names["value"] = value = 2.0
        moved.set()

    thread = threading.Thread(target=rebind)
    thread.start()
    first = f(X).tolist()
    thread.join()
    assert first in [X.tolist(), (X * 2).tolist()]
    assert (names["value"], value) == (2.0, 2.0)
    assert f(X).tolist() == (X * 2).tolist()


def test_a_name_that_the_function_rebinds_itself() -> None:
    source = """
mode = "x"
def turn(x):
    global mode
    mode = "y" if mode == "x" else "x"
    return x * (2 if mode == "y" else 1)
f = krt.jit(turn)
"""
    jitted, plain = compiled(source), compiled(source)
    for _ in range(4):
        assert jitted["f"](X).tolist() == plain["turn"](krt.tensor(X)).tolist()


def test_gradients_are_recorded_where_the_caller_records_them() -> None:
    w = krt.ones(2, requires_grad=True)

    def update() -> None:
        nonlocal_w = w
        nonlocal_w -= 0.5

    f = krt.jit(update)
    with krt.no_grad():
        f()
    assert w.tolist() == [0.5, 0.5]
    with pytest.raises(GradientError, match="no_grad"):
        f()
    assert w.tolist() == [0.5, 0.5]
    g = krt.jit(lambda: (w * w).sum().backward())
    with krt.no_grad(), pytest.raises(GradientError):
        g()
    assert w.grad is None
    g()
    assert w.grad is not None
    assert w.grad.tolist() == [1.0, 1.0]
    asks = krt.jit(lambda x: x + (10 if krt.is_grad_enabled() else 20))
    for _ in range(2):
        assert asks(X)[0].item() == 11
        with krt.no_grad():
            assert asks(X)[0].item() == 21
    assert len(asks.plans) == 2
    assert "gradients are not recorded" in asks.explain()


@pytest.mark.parametrize("number", [np.float16(1.5), np.float32(1.5), np.float64(1.5)])
def test_floats_of_numpy_keep_their_type(number) -> None:
    assert krt.jit(lambda c: c * 1)(number).dtype is krt.asarray(number).dtype

    def scanned(start):
        return krt.scan(lambda c, _: (c + 0.5, None), start, length=3)[0]

    plain, jitted = scanned(krt.asarray(number)), krt.jit(scanned)(number)
    assert (jitted.dtype, jitted.item()) == (plain.dtype, 3.0)
    assert krt.jit(lambda c, x: c * x)(number, np.ones(2, np.float16)).dtype is krt.float16
