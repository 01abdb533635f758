"""Whatever a traced function read of a module is looked at again; arguments end with the trace."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import JitError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(1, 5, dtype=np.float32)


def double(y: Any) -> Any:
    return y * 2


class Base(nn.Module):
    def forward(self, y: Any) -> Any:
        return y * self.inherited


class Everything(Base):
    def __init__(self) -> None:
        self.inherited: object = 2
        self.bias: object = None
        self.mode = "a"
        self.k = 2
        self.scale: object = np.float32(2)
        self.table: object = np.ones(4, np.float32)
        self.pair: object = (1.0, "x")
        self.fn: Callable[..., Any] = double
        self.more: object = [nn.Linear(4, 4)]
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self.chain = nn.Sequential(nn.Linear(4, 4))
        self._hidden = 1.5

    @property
    def derived(self) -> float:
        return self._hidden * 2

    def forward(self, y: Any) -> Any:
        y = super().forward(y)
        for layer in [*self.layers, *self.more]:
            y = layer(y)
        y = self.chain(y)
        if self.bias is not None:
            y = y + self.bias
        y = sum([y * self.k for _ in range(2)])
        if hasattr(self, "late"):
            y = y + 100
        number, sign = self.pair
        y = y * number * self.derived * getattr(self, "mo" + "re_scale", 1)
        return self.fn(y * self.scale * self.table * (1 if self.mode == "a" else -1)) + len(sign)


CHANGES: dict[str, Callable[[Any], object]] = {
    "append": lambda m: m.layers.append(nn.Linear(4, 4)),
    "append to a chain": lambda m: m.chain.append(nn.ReLU()),
    "None becomes a tensor": lambda m: setattr(m, "bias", krt.ones(4)),
    "a list": lambda m: setattr(m, "more", [nn.Linear(4, 4), nn.ReLU()]),
    "in a comprehension": lambda m: setattr(m, "k", 3),
    "the type of a number": lambda m: setattr(m, "k", True),
    "a number of NumPy": lambda m: setattr(m, "scale", np.float32(3)),
    "an array": lambda m: setattr(m, "table", X),
    "a text": lambda m: setattr(m, "mode", "b"),
    "a tuple": lambda m: setattr(m, "pair", (3.0, "yy")),
    "a function": lambda m: setattr(m, "fn", lambda y: -y),
    "read by super": lambda m: setattr(m, "inherited", 3),
    "read by a property": lambda m: setattr(m, "_hidden", 0.5),
    "asked for by hasattr": lambda m: setattr(m, "late", 1),
    "asked for by getattr": lambda m: setattr(m, "more_scale", 7),
    "a method": lambda m: setattr(m, "forward", lambda y: y - 1),
    "taken away": lambda m: (setattr(m, "forward", lambda y: y - 1), delattr(m, "forward")),
}


@pytest.mark.parametrize("how", ["closure", "module", "argument"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what: str, how: str) -> None:
    krt.manual_seed(3)
    m = Everything()
    f = krt.jit(m) if how == "module" else krt.jit(lambda y: m(y) * 1)
    if how == "argument":
        g = krt.jit(lambda y, module: module(y))

        def f(y: Any) -> Any:
            return g(y, m)

    for _ in range(2):
        np.testing.assert_allclose(f(X).numpy(), m(krt.tensor(X)).numpy(), rtol=1e-5)
    CHANGES[what](m)
    for _ in range(2):
        np.testing.assert_allclose(f(X).numpy(), m(krt.tensor(X)).numpy(), rtol=1e-5)


def test_what_was_not_read_changes_nothing() -> None:
    m = Everything()
    m.note = 0
    f = krt.jit(m)
    f(X)
    for i in range(3):
        m.note = i
        m.k = 2
        m.pair = (1.0, "x")
        m.other = [i]
        f(X)
    assert len(f.plans) == 1


def test_a_plan_is_found_again() -> None:
    m = Everything()
    f = krt.jit(m)
    first = f(X).numpy()
    m.mode = "b"
    other = f(X).numpy()
    m.mode = "a"
    np.testing.assert_array_equal(f(X).numpy(), first)
    assert not np.array_equal(first, other)
    assert len(f.plans) == 2
    assert "Everything.mode changed from 'a' to 'b'" in f.explain()


class Lazily(nn.Module):
    def __init__(self) -> None:
        self.ready = ""

    def forward(self, y: Any) -> Any:
        if not self.ready:
            self.ready = "yes"
            return y
        return y * 2


class Toggles(nn.Module):
    def __init__(self) -> None:
        self.phase = "x"

    def forward(self, y: Any) -> Any:
        self.phase = "y" if self.phase == "x" else "x"
        return y * (2 if self.phase == "y" else 1)


@pytest.mark.parametrize("kind", [Lazily, Toggles])
def test_what_a_trace_sets_itself_is_seen_by_the_next_call(kind: type[nn.Module]) -> None:
    m, other = kind(), kind()
    f = krt.jit(m)
    assert [f(X).tolist() for _ in range(4)] == [other(krt.tensor(X)).tolist() for _ in range(4)]


def test_modules_are_copied_and_pickled_after_a_trace() -> None:
    m = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)).eval()
    f = krt.jit(m)
    expected = f(X).numpy()
    np.testing.assert_array_equal(krt.jit(copy.copy(m))(X).numpy(), expected)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):  # noqa: S301
        g = krt.jit(other)
        np.testing.assert_array_equal(g(X).numpy(), expected)
        other[0].bias = None
        assert (g(X).numpy() != expected).all()
        np.testing.assert_array_equal(f(X).numpy(), expected)


KEPT: list[Any] = []


def keep(x: Any) -> Any:
    KEPT.append(x)
    return x * 2


keep.__module__ = "numpy"  # far away: what it keeps is not looked for


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_an_argument_that_leaves_the_trace_has_no_value(dynamic: bool, fails: bool) -> None:
    KEPT.clear()
    rows = krt.Variable("rows", 1, 9)

    @krt.jit(dynamic={"x": {0: rows}} if dynamic else None)
    def f(x: Any, s: float) -> Any:
        keep(s)
        if fails:
            raise LookupError(x, s)
        return keep(x) * s

    if fails:
        with pytest.raises(LookupError) as caught:
            f(X, 3.0)
        left = caught.value.args
    else:
        assert f(X, 3.0).tolist() == (X * 6).tolist()
        left = tuple(KEPT)
    for tensor in left:
        for use in (krt.Tensor.numpy, krt.Tensor.tolist, lambda t: (t + 1).numpy(), krt.realize):
            with pytest.raises(JitError, match="made while a function was traced"):
                use(tensor)
        assert "traced" in repr(tensor)
    if not fails:
        assert f(X, 2.0).tolist() == (X * 4).tolist()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("change", [
    lambda x: x.assign(x * 2),
    lambda x: x.__setitem__(0, 5.0),
])  # fmt: skip
def test_assigning_to_an_argument_is_refused(dynamic: bool, change: Any) -> None:
    rows = krt.Variable("rows", 1, 9)

    @krt.jit(dynamic={"x": {0: rows}} if dynamic else None)
    def f(x: Any) -> Any:
        change(x)
        return x + 1

    with pytest.raises(JitError, match=r"x: f assigns to its argument"):
        f(X)
