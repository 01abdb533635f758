"""Dataclasses as nested data: of jitted functions, loops, choices and functions of functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import errors, func
from kernelrt.jit.signature import flatten


@dataclass
class State:
    x: Any
    more: Any = None
    mode: str = field(default="plus", metadata={"static": True})


@dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any

    def __post_init__(self) -> None:
        if isinstance(self.x, str):
            raise TypeError("x")

    @property
    def total(self) -> Any:
        return self.x.sum() + self.y.sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    w: Any
    b: Any
    scale: float = field(default=1.0, metadata={"static": True})
    seen: Any = field(init=False, default=0)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Empty:
    pass


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def step(s: State, q: Any) -> State:
    x = s.x + q if s.mode == "plus" else s.x - q
    return State(x, {"old": s.x}, s.mode)


# ---- jit


@pytest.mark.parametrize("keyword", [False, True])
def test_arguments_and_results_of_jitted_functions(keyword: bool) -> None:
    traces: list[str] = []

    @krt.jit
    def run(s: Any, q: Any) -> Any:
        traces.append(s.mode)
        return Pair(step(s, q), [Frozen(q * 2, 3)])

    def call(s: Any, q: Any) -> Any:
        return run(s=s, q=q) if keyword else run(s, q)

    for mode, sign in (("plus", 1), ("minus", -1), ("plus", 1), ("minus", -1)):
        s = State(array(1, 2), None, mode)
        made = call(s, array(3, 4))
        assert isinstance(made, Pair)
        assert type(made.left) is State
        assert made.left.mode == mode
        assert made.left.x.tolist() == [1 + sign * 3, 2 + sign * 4]
        assert made.left.more["old"].tolist() == [1.0, 2.0]
        assert type(made.right[0]) is Frozen
        assert made.right[0].y == 3
    assert traces == ["plus", "minus"]
    # A result is an argument again; another nesting, and another class, need another plan.
    again = call(call(State(array(1, 2)), array(3, 4)).left, array(1, 1))
    assert again.left.x.tolist() == [5.0, 7.0]
    assert traces == ["plus", "minus", "plus"]


def test_fields_are_leaves_as_arguments_are() -> None:
    traces: list[Any] = []

    @krt.jit
    def run(p: Slots, more: Empty) -> Any:
        traces.append(p.scale)
        assert not hasattr(more, "x")
        return p.w * p.scale + p.b + p.seen

    def given(b: float, scale: float = 2.0, seen: int = 1) -> Slots:
        made = Slots(w=array(1, 2), b=b, scale=scale)
        object.__setattr__(made, "seen", seen)
        return made

    for b in (0.5, 1.5, 2.5):  # floats are inputs, whole numbers are not
        np.testing.assert_allclose(run(given(b), Empty()).numpy(), array(1, 2) * 2 + b + 1)
    assert len(traces) == 1
    np.testing.assert_allclose(run(given(0.5, 3.0), Empty()).numpy(), array(1, 2) * 3 + 1.5)
    np.testing.assert_allclose(run(given(0.5, seen=2), Empty()).numpy(), array(1, 2) * 2 + 2.5)
    assert traces == [2.0, 3.0, 2.0]


def test_names_of_fields() -> None:
    _, leaves = flatten({"s": State(1, [Frozen(2, 3)])}, "a")
    assert [name for name, _ in leaves] == ["a['s'].x", "a['s'].more[0].x", "a['s'].more[0].y"]
    with pytest.raises(errors.JitError, match=r"s\.x: a jitted function takes no object"):
        krt.jit(lambda s: s.x)(State(object()))
    with pytest.raises(errors.JitError, match=r"s\.mode: a static field holds a list"):
        krt.jit(lambda s: s.x)(State(1.0, mode=[1]))  # type: ignore[arg-type]
    ring = State(array(1))
    ring.more = [ring]
    with pytest.raises(errors.JitError, match="the State contains itself"):
        krt.jit(lambda s: s.x)(ring)


@dataclass(frozen=True)
class Fixed:
    x: Any
    k: Any = field(default=None, metadata={"static": True})


class Tagged(float):
    """Floats with an equality of their own."""

    def __new__(cls, value: float, tag: str) -> Self:
        made = super().__new__(cls, value)
        made.tag = tag
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tagged) and float(self) == float(other) and self.tag == other.tag

    __hash__ = float.__hash__


NAN = float("nan")
STATIC = [
    (2, 2.0), (2, True), ((2,), (2.0,)), ((1, (2,)), (1, (2.0,))), (Pair(1, 2), Pair(1, 2.0)),
    (Pair(1, 2), (1, 2)), (0.0, -0.0), ((0.0,), (-0.0,)), (complex(1, 0.0), complex(1, -0.0)),
    (NAN, 1.0), (frozenset([2]), frozenset([2.0])), (np.float32(0), np.float32(-0.0)),
    (np.float32(1), np.float64(1)), ("1", b"1"), (Tagged(1, "a"), Tagged(1, "b")), ((), None),
]  # fmt: skip


@pytest.mark.parametrize("pair", STATIC, ids=str)
def test_static_fields_differ_by_type_and_value(pair: tuple[object, object]) -> None:
    seen: list[object] = []

    @krt.jit
    def run(s: Fixed) -> Any:
        seen.append(s.k)
        return s.x + 1

    for _ in range(3):
        for value in pair:
            run(Fixed(array(1), value))
    assert list(map(repr, seen)) == list(map(repr, pair))
    assert len(run.plans) == 2


@pytest.mark.parametrize("make", [
    lambda: float("nan"), lambda: (float("nan"), 1), lambda: frozenset([float("nan")]),
    lambda: complex(0, float("nan")), lambda: np.float32("nan"), lambda: Pair(float("nan"), ()),
    lambda: np.datetime64("nat"), lambda: 10**20, lambda: "a" * 20, lambda: (10**20, ("b" * 20,)),
])  # fmt: skip
def test_equal_static_fields_share_a_plan(make: Any) -> None:
    run = krt.jit(lambda s: s.x + 1)
    for _ in range(3):
        run(Fixed(array(1), make()))  # in C from the second call on
    run(s=Fixed(array(1), make()))  # in Python
    assert len(run.plans) == 1
    _, final = krt.scan(lambda s, _: (Fixed(s.x + 1, make()), s.x), Fixed(krt.ones(1), make()),
                        length=2)  # fmt: skip
    assert final.shape == (2, 1)


def test_keys_of_dicts_differ_by_type_and_value() -> None:
    for one, other in ((1, 1.0), (1, True), (0.0, -0.0), ((2,), (2.0,))):
        run = krt.jit(lambda d: d)
        assert [repr(list(run({k: array(1)}))) for k in (one, other, one)] == [
            repr([one]), repr([other]), repr([one])
        ]  # fmt: skip
    run = krt.jit(lambda d: d)
    for _ in range(3):
        run({float("nan"): array(1)})
    assert len(run.plans) == 1


def test_values_of_static_fields_reach_the_function() -> None:
    run = krt.jit(lambda s: s.x * s.k[0])
    whole, real = (run(Fixed(krt.tensor([1, 2]), k)) for k in ((2,), (2.0,)))
    assert (whole.dtype, real.dtype) == (krt.int64, krt.float32)
    inverse = krt.jit(lambda s: 1 / krt.full((1,), s.k) + s.x)
    assert [inverse(Fixed(array(1), k)).item() for k in (0.0, -0.0)] == [np.inf, -np.inf]
    nested = krt.jit(lambda s: s.x)
    deep: tuple[object, ...] = ()
    for _ in range(20):
        deep = (deep,)
    for _ in range(2):
        nested(Fixed(array(1), deep))
    with pytest.raises(errors.JitError, match=r"s\.k: a static field holds a tuple"):
        nested(Fixed(array(1), ([],)))


def test_a_field_that_was_deleted_is_missed() -> None:
    run = krt.jit(lambda s: s.x + 1)
    run(State(array(1)))
    gone = State(array(1))
    del gone.x
    with pytest.raises(AttributeError):
        run(gone)


def test_training_state_as_a_record() -> None:
    def loss(p: Slots, x: Any, y: Any) -> Any:
        return ((x @ p.w + p.b - y) ** 2).mean()

    @krt.jit
    def update(p: Slots, x: Any, y: Any) -> tuple[Slots, Any]:
        g, value = func.grad_and_value(loss)(p, x, y)
        made = Slots(w=p.w - 0.1 * g.w, b=p.b - 0.1 * g.b, scale=p.scale)
        object.__setattr__(made, "seen", p.seen)
        return made, value

    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 3)).astype(np.float32)
    y = x @ array(1, -2, 3) + 0.5
    p = Slots(w=krt.zeros(3), b=krt.tensor(0.0), scale=2.0)
    object.__setattr__(p, "seen", krt.tensor(0.0))
    for _ in range(200):
        p, value = update(p, x, y)
    assert value.item() < 1e-6
    np.testing.assert_allclose(p.w.numpy(), [1, -2, 3], atol=1e-3)
    assert p.scale == 2.0


# ---- loops and choices


@pytest.mark.parametrize("jitted", [False, True])
def test_carries_of_loops(jitted: bool) -> None:
    def run(x: Any, qs: Any) -> Any:
        begin = State(x, {"old": x}, "minus")
        last, rows = krt.scan(lambda s, q: (step(s, q), Frozen(s.x, q)), begin, qs)
        counted = krt.fori_loop(0, 3, lambda i, s: step(s, i.float()), begin)
        ended = krt.while_loop(lambda s: s.x.sum() > 0, lambda s: step(s, 1.0), begin)
        branches = lambda s: step(s, 1.0), lambda s: step(s, -1.0)
        chosen = krt.cond(x.sum() > 0, *branches, begin)
        return last, rows, counted, ended, chosen

    f = krt.jit(run) if jitted else run
    last, rows, counted, ended, chosen = f(krt.tensor([5.0, 6.0]), krt.ones(4))
    assert [type(t) for t in (last, rows, counted, ended, chosen)] == [
        State, Frozen, State, State, State,
    ]  # fmt: skip
    assert last.mode == "minus"
    assert last.x.tolist() == [1.0, 2.0]
    assert last.more["old"].tolist() == [2.0, 3.0]
    assert rows.x.tolist() == [[5.0 - k, 6.0 - k] for k in range(4)]
    assert rows.total.item() == sum(11 - 2 * k for k in range(4)) + 4
    assert counted.x.tolist() == [2.0, 3.0]
    assert ended.x.tolist() == [-1.0, 0.0]
    assert chosen.x.tolist() == [4.0, 5.0]


def test_what_is_nested_otherwise_is_refused() -> None:
    begin = State(krt.ones(2))
    with pytest.raises(errors.ShapeError, match=r"returns .* State\(x=\*, more=\*, mode='plus'\)"):
        krt.scan(lambda s, _: (State(s.x, s.x), None), begin, None, 2)
    with pytest.raises(errors.ShapeError, match=r"'plus'\) and returns .* State.*'minus'"):
        krt.scan(lambda s, _: (State(s.x, None, "minus"), None), begin, None, 2)
    with pytest.raises(errors.ShapeError, match="return the same nesting from all"):
        krt.cond(krt.tensor(True), lambda s: s, lambda s: Pair(s.x, None), begin)
    with pytest.raises(errors.DTypeError, match=r"scan: init\.x: expected a Tensor"):
        krt.scan(lambda s, _: (s, None), State(object()), None, 2)


# ---- functions of functions


def test_derivatives_by_records() -> None:
    p = Frozen(krt.tensor([1.0, 2.0]), krt.tensor(3.0))

    def f(p: Frozen) -> Any:
        return (p.x**2).sum() * p.y

    g = func.grad(f)(p)
    assert type(g) is Frozen
    assert (g.x.tolist(), g.y.item()) == ([6.0, 12.0], 5.0)
    value, slope = func.jvp(f, (p,), (Frozen(krt.ones(2), krt.tensor(1.0)),))
    assert (value.item(), slope.item()) == (15.0, 23.0)
    _, back = func.vjp(lambda p: Frozen(p.y * p.x, p.x), p)
    (found,) = [back(Frozen(krt.ones(2), krt.ones(2)))]
    assert (found.x.tolist(), found.y.item()) == ([4.0, 4.0], 3.0)


def test_members_of_records() -> None:
    s = State(krt.tensor([[1.0, 2.0], [3.0, 4.0]]), krt.tensor([10.0, 20.0]), "minus")

    def f(s: State) -> State:
        assert s.mode == "minus"
        return State(s.x + s.more, s.more, s.mode)

    both = krt.vmap(f)(s)
    assert both.x.tolist() == [[11.0, 12.0], [23.0, 24.0]]
    assert both.mode == "minus"
    axes = State(1, None)
    mixed = krt.vmap(f, in_axes=(axes,), out_axes=State(0, None))(s)
    assert mixed.x.tolist() == [[11.0, 23.0], [12.0, 24.0]]
    assert mixed.more.tolist() == [10.0, 20.0]
    with pytest.raises(errors.ShapeError, match=r"argument 0\.x of shape \(2, 2\)"):
        krt.vmap(f)(State(s.x, krt.ones(3), "minus"))
    with pytest.raises(errors.ShapeError, match="axes with the nesting of argument 0, a"):
        krt.vmap(f, in_axes=(Frozen(0, 0),))(s)
