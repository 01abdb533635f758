"""Augmented assignments and methods in place: of a parameter without gradients only."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.between import Between
from support.crowd import crowd

import kernelrt as krt
from kernelrt import nn

PACKAGE = str(Path(krt.__file__).parent)
SIGNS = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow,
}  # fmt: skip
START = np.array([1.5, 2.0, 0.5], np.float32)
every_sign = pytest.mark.parametrize("sign", SIGNS)
OTHERS = [2, 0.5, np.float32(3), np.full(3, 2, np.float32), np.full((), 2, np.float32)]


@every_sign
@pytest.mark.parametrize("other", OTHERS, ids=str)
@pytest.mark.parametrize("jitted", [False, True])
def test_parameters_change_in_place_without_gradients(sign: str, other: Any, jitted: bool) -> None:
    torch = pytest.importorskip("torch")
    w = krt.tensor(START, requires_grad=True)
    v = torch.tensor(START, requires_grad=True)

    def step() -> None:
        with krt.no_grad():
            for p in [w]:
                assert SIGNS[sign](p, other) is w

    step = krt.jit(step) if jitted else step
    for _ in range(3):
        step()
        with torch.no_grad():
            SIGNS[sign](v, torch.tensor(other) if isinstance(other, np.ndarray) else other)
        np.testing.assert_allclose(w.numpy(), v.detach().numpy(), rtol=1e-5)
    assert w.requires_grad
    assert w.is_leaf
    (w * 2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 2, 2]


CHANGES = {"+=": lambda t: operator.iadd(t, 1), "add_": lambda t: t.add_(1)}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_threads_that_add_to_one_tensor(change: Any) -> None:
    t = krt.zeros(4).realize()

    def add() -> None:
        for _ in range(500):
            change(t)

    crowd(add, add, add)
    assert t.tolist() == [1500] * 4


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_handler_that_adds_between_two_lines_of_an_addition(change: Any) -> None:
    t, want, at, lines = krt.zeros(4).realize(), 0, 0, 1
    while at <= lines:
        with Between(lambda: change(t), at, PACKAGE) as between:
            change(t)
        want += 1 + between.done
        assert t.tolist() == [want] * 4, at
        at, lines = at + 1, between.lines


@every_sign
def test_with_gradients_it_is_an_error_that_says_how(sign: str) -> None:
    w = krt.tensor(START, requires_grad=True)
    with pytest.raises(krt.GradientError, match=rf"^{re.escape(sign)}: .*no_grad"):
        SIGNS[sign](w, 2)
    with pytest.raises(krt.GradientError, match="no_grad"):
        krt.jit(lambda x: SIGNS[sign](w, x))(START)
    np.testing.assert_array_equal(w.numpy(), START)


@pytest.mark.parametrize("sign", [s for s in SIGNS if s != "//="])  # torch has no derivative of it
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
def test_results_change_in_place_and_stay_part_of_the_graph(
    sign: str, stored: bool, jitted: bool
) -> None:
    torch = pytest.importorskip("torch")

    def loss(k: Any, w: Any) -> Any:
        y = w * 1.5
        z = y * 2  # what was made of the old value keeps it
        if stored and not jitted:
            y.tolist()
        before = y
        y = SIGNS[sign](y, 2)
        y *= w
        assert stored or y is before  # storage keeps no history
        return (y * z).sum()

    w = krt.tensor(START, requires_grad=True)
    v = torch.tensor(START, requires_grad=True)

    def step() -> krt.Tensor:
        value = loss(krt, w)
        value.backward()
        return value

    found = (krt.jit(step) if jitted else step)()
    wanted = loss(torch, v)
    wanted.backward()
    np.testing.assert_allclose(found.item(), wanted.item(), rtol=1e-5)
    assert w.grad is not None
    assert v.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), v.grad.numpy(), rtol=1e-5)


@every_sign
def test_stored_tensors_change_in_place(sign: str) -> None:
    a = krt.tensor(START)
    kept, twice = a, a * 2
    a = SIGNS[sign](a, 2)
    assert a is kept
    np.testing.assert_array_equal(twice.numpy(), START * 2)
    np.testing.assert_allclose(a.numpy(), SIGNS[sign](START.copy(), 2))


def test_a_stored_tensor_takes_a_history() -> None:
    w = krt.tensor(START, requires_grad=True)
    total = krt.tensor(0.0)
    for _ in range(3):
        total += (w * w).sum()
        assert total.requires_grad
        total.item()
    total.backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 6 * START)
    total.mul_(w.sum()).backward()
    before = 3 * (START**2).sum()
    np.testing.assert_allclose(w.grad.numpy(), 6 * START * (1 + START.sum()) + before)


@pytest.mark.parametrize("other", [
    lambda x: x, lambda x: x[1:], lambda x: x.data, lambda x: x.detach()[::2], lambda x: [x][0],
    lambda x: x.reshape(1, 3).T,
])  # fmt: skip
@pytest.mark.parametrize("sign", [s for s in SIGNS if s != "//="])
@pytest.mark.parametrize("from_leaf", [False, True])
def test_others_see_what_a_stored_tensor_becomes(other: Any, sign: str, from_leaf: bool) -> None:
    """A name alone may go to another tensor; where there are more names or views, it may not."""
    torch = pytest.importorskip("torch")
    found = []
    for lib in (krt, torch):
        w = lib.tensor(START).requires_grad_()
        x = w * 1.5 if from_leaf else lib.tensor(START)
        x.tolist()
        shown = other(x)
        x = SIGNS[sign](x, w * 2)
        loss = (x * x).sum() + (shown * 3).sum()
        loss.backward()
        found.append([a.detach().numpy() for a in (x, shown, loss, w.grad)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_stored_state_of_a_function_keeps_its_memory() -> None:
    state, w = krt.tensor(START), krt.tensor(START, requires_grad=True)
    scaled = krt.jit(lambda x: x * state)
    assert scaled(START).tolist() == (START * START).tolist()
    state.add_(1)
    assert scaled(START).tolist() == (START * (START + 1)).tolist()
    before = id(state)
    state += w  # the function refers to it, too, so it stays the same tensor
    assert id(state) == before
    assert scaled(START).detach().tolist() == (START * (2 * START + 1)).tolist()


def test_a_number_that_is_traced_is_no_tensor() -> None:
    @krt.jit
    def shifted(x: krt.Tensor, n: int) -> krt.Tensor:
        n += 1
        return x * n

    assert shifted(START, 3).tolist() == (START * 4).tolist()


def test_an_argument_of_a_traced_function_is_not_assigned_to() -> None:
    @krt.jit
    def grown(x: krt.Tensor) -> krt.Tensor:
        x += 1
        return x

    with pytest.raises(krt.JitError, match="assigns to its argument"):
        grown(START)


#: Arguments of methods, by name; all others take none.
GIVEN: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        [
            "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "atan2",
            "arctan2", "copysign", "eq", "ne", "not_equal", "ge", "greater_equal", "gt", "greater",
            "le", "less_equal", "lt", "less", "floor_divide", "fmod", "heaviside", "hypot", "ldexp",
            "logical_and", "logical_or", "logical_xor", "nextafter", "pow", "remainder", "xlogy",
        ],
        (np.array([[0.5, 2.0, 1.5], [1.0, 0.25, 3.0]], np.float32),),
    ),
    "clamp": (0.2, 0.8), "clip": (0.2, 0.8), "clamp_min": (0.5,), "clamp_max": (0.5,),
    "cumsum": (1,), "cumprod": (1,), "polygamma": (1,), "mvlgamma": (1,), "renorm": (2.0, 0, 1.0),
    "lerp": (np.ones((2, 3), np.float32), 0.25),
    "masked_fill": (np.array([True, False, True]), 7.0),
    "addcmul": (np.ones((2, 3), np.float32), np.full(3, 2, np.float32)),
    "addcdiv": (np.ones((2, 3), np.float32), np.full(3, 2, np.float32)),
    "index_add": (1, np.array([2, 0]), np.ones((2, 2), np.float32)),
    "index_copy": (1, np.array([2, 0]), np.ones((2, 2), np.float32)),
    "index_fill": (1, np.array([2, 0]), 5.0),
    "scatter": (1, np.array([[2], [0]]), np.ones((2, 1), np.float32)),
    "scatter_add": (1, np.array([[2], [0]]), np.ones((2, 1), np.float32)),
    "scatter_reduce": (1, np.array([[2], [0]]), np.ones((2, 1), np.float32), "prod"),
    "put": (np.array([5, 1]), np.array([1.0, 2.0], np.float32)),
    "masked_scatter": (np.array([True, False, True]), np.arange(4, dtype=np.float32)),
}  # fmt: skip
PLAIN = [
    "abs", "absolute", "acos", "arccos", "acosh", "arccosh", "asin", "arcsin", "asinh", "arcsinh",
    "atan", "arctan", "atanh", "arctanh", "ceil", "cos", "cosh", "deg2rad", "digamma", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "floor", "frac", "i0", "lgamma", "log",
    "log10", "log1p", "log2", "logical_not", "logit", "nan_to_num", "neg", "negative", "rad2deg",
    "reciprocal", "relu", "round", "rsqrt", "sgn", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt",
    "square", "tan", "tanh", "tril", "triu", "trunc",
]


@pytest.mark.parametrize("name", [*GIVEN, *PLAIN])
def test_methods_in_place(name: str) -> None:
    torch = pytest.importorskip("torch")
    data = np.array([[0.3, 0.7, 0.9], [0.2, 0.6, 0.4]], np.float32)
    data = data + 1 if name in ("acosh", "arccosh", "mvlgamma") else data
    arguments = GIVEN.get(name, ())
    x, y = krt.tensor(data), torch.tensor(data)
    given = [krt.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    theirs = [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
    assert getattr(x, f"{name}_")(*given) is x
    getattr(y, f"{name}_")(*theirs)
    assert x.dtype is krt.float32
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-5, atol=1e-6)

    def traced(k: krt.Tensor) -> krt.Tensor:
        made = k * 1
        return getattr(made, f"{name}_")(*given)

    np.testing.assert_allclose(krt.jit(traced)(data).numpy(), y.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"])
def test_methods_in_place_of_integers(name: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = np.array([6, 4, 15, -9]), np.array([4, 6, 10, 6])
    x, y = krt.tensor(a), torch.tensor(a)
    getattr(x, f"{name}_")(krt.tensor(b))
    getattr(y, f"{name}_")(torch.tensor(b))
    assert x.tolist() == y.tolist()


@pytest.mark.parametrize(("shape", "wrap"), [((3, 4), False), ((7, 3), False), ((7, 3), True),
                                             ((3, 3, 3), False), ((2, 5), True)])  # fmt: skip
def test_fill_diagonal(shape: tuple[int, ...], wrap: bool) -> None:
    torch = pytest.importorskip("torch")
    x, y = krt.zeros(shape), torch.zeros(shape)
    assert x.fill_diagonal_(4, wrap=wrap) is x
    assert x.tolist() == y.fill_diagonal_(4, wrap=wrap).tolist()


def test_results_that_do_not_fit() -> None:
    x = krt.tensor([1, 2])
    with pytest.raises(krt.DTypeError, match=r"add_: the result is float32"):
        x.add_(0.5)
    with pytest.raises(krt.DTypeError, match=r"/=: the result is float32"):
        x /= 2
    with pytest.raises(krt.ShapeError, match=r"add_: .*not the tensor's shape \(2,\)"):
        x.add_(krt.ones(3, 2))
    with pytest.raises(AttributeError, match=r"'unsqueeze_'.* x = x.unsqueeze\(dim\)"):
        x.unsqueeze_(0)
    w = krt.tensor(START, requires_grad=True)
    with pytest.raises(krt.GradientError, match=r"exp_: .*no_grad"):
        w.exp_()
    assert x.tolist() == [1, 2]
    assert w.tolist() == START.tolist()


def test_shapes_and_types_that_do_not_fit_leave_it_as_it_was() -> None:
    w = krt.tensor(START, requires_grad=True)
    with krt.no_grad(), pytest.raises(krt.ShapeError, match="not the tensor's shape"):
        w += np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(w.numpy(), START)


def test_descent_by_hand_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 4), np.float32), rng.standard_normal((5, 2), np.float32)
    theirs = torch.nn.Linear(4, 2)
    model = nn.Linear(4, 2)
    model.load_state_dict(theirs.state_dict())

    @krt.jit
    def step(x, y):
        loss = model(x).mse_loss(y)
        loss.backward()
        with krt.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad  # noqa: PLW2901 - in place
        model.zero_grad()
        return loss

    for _ in range(4):
        loss = torch.nn.functional.mse_loss(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        with torch.no_grad():
            for p in theirs.parameters():
                p -= 0.1 * p.grad  # noqa: PLW2901 - in place
        theirs.zero_grad()
        np.testing.assert_allclose(step(x, y).item(), loss.item(), rtol=1e-5)
    for p, q in zip(model.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
def test_what_is_copied_brings_its_history(jitted: bool) -> None:
    torch = pytest.importorskip("torch")

    def loss(k: Any, w: Any) -> Any:
        y = w * 1.5
        z = y * 2  # the old value has a gradient, too
        y.copy_(w[:1] * w)
        return (y * y).sum() + z.sum()

    w = krt.tensor(START, requires_grad=True)
    v = torch.tensor(START, requires_grad=True)

    def train() -> None:
        loss(krt, w).backward()

    (krt.jit(train) if jitted else train)()
    loss(torch, v).backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), v.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
def test_a_copy_keeps_its_history_or_is_an_error(jitted: bool) -> None:
    w = krt.tensor(START, requires_grad=True)
    state = krt.tensor(START)

    def keep() -> None:
        state.copy_(w * 2)

    def keep_without_gradients() -> None:
        with krt.no_grad():
            state.copy_(w * 2)

    wrap = krt.jit if jitted else lambda f: f
    if jitted:
        with pytest.raises(krt.GradientError, match=r"^copy_: "):
            wrap(keep)()
        np.testing.assert_array_equal(state.numpy(), START)
    else:
        keep()
        (state * 3).sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [6, 6, 6]
    wrap(keep_without_gradients)()
    np.testing.assert_array_equal(state.numpy(), START * 2)
    assert not state.requires_grad
    state.copy_(w.detach(), non_blocking=True)
    np.testing.assert_array_equal(state.numpy(), START)
