"""Whether a tensor requires a gradient, asked in a traced function: what plain Python says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

X = np.arange(1, 4, dtype=np.float32)

ASKS = {
    "itself": lambda t: t.requires_grad,
    "a result": lambda t: (t * 2).requires_grad,
    "a view": lambda t: t[1:].requires_grad,
    "without gradients": lambda t: krt.no_grad()(lambda: (t * 2).requires_grad)(),
    "detached": lambda t: t.detach().requires_grad,
    "an int": lambda t: t.cast("int32").requires_grad,
    "leaf": lambda t: t.is_leaf,
    "leaf of a result": lambda t: (t * 2).is_leaf,
    "parameters": lambda t: bool(nn.parameters([t])),
}


@pytest.mark.parametrize("ask", ASKS)
def test_state_and_arguments_answer_as_in_plain_python(ask: str) -> None:
    w = krt.tensor(X)
    asks = ASKS[ask]

    def plain(x: Any) -> Any:
        return x * (2 if asks(w) else 3)

    def of_argument(x: Any) -> Any:
        return x * (2 if asks(x) else 3)

    f, g = krt.jit(plain), krt.jit(of_argument)
    p = krt.tensor(X, requires_grad=True)
    for required in (False, True, True, False, True):
        w.requires_grad_(required)
        assert f(X).tolist() == plain(krt.tensor(X)).tolist()
        for x in (krt.tensor(X), p, p * 1, w, X):
            eager = of_argument(krt.tensor(x) if isinstance(x, np.ndarray) else x)
            assert g(x).tolist() == eager.tolist()
    assert len(f.plans) <= 2
    assert len(g.plans) <= 3


def test_a_function_counts_the_parameters_that_are_frozen() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    f = krt.jit(lambda x: x * len(list(model.parameters())))
    for required in (True, False, True):
        model[0].requires_grad_(required)
        assert f(X).tolist() == (X * 4).tolist()
    assert len(f.plans) == 1


def test_a_function_counts_the_parameters_that_require_a_gradient() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    f = krt.jit(lambda x: x * sum(p.requires_grad for p in model.parameters()))
    for required in (True, False, True):
        model[0].requires_grad_(required)
        assert f(X).tolist() == (X * (4 if required else 2)).tolist()
    assert len(f.plans) == 2


def test_what_became_a_parameter_and_was_frozen_since_is_counted() -> None:
    w = krt.tensor(X)
    f = krt.jit(lambda x: x * (1 + len(nn.parameters([w]))))
    assert f(X).tolist() == X.tolist()
    w.requires_grad_().requires_grad_(False)
    assert f(X).tolist() == (X * 2).tolist()
    assert "be a parameter" in f.explain()
    w.requires_grad_()
    assert f(X).tolist() == (X * 2).tolist()
    assert len(f.plans) == 2


@pytest.mark.parametrize("told", [(True,), (True, False), (False,)])
def test_a_function_makes_a_parameter_as_plain_python_does(told: tuple[bool, ...]) -> None:
    def make() -> tuple[krt.Tensor, Any]:
        w = krt.tensor(X)

        def f(x: Any) -> Any:
            before = len(nn.parameters([w]))
            for required in told:
                w.requires_grad_(required)
            return x * (1 + before) + 10 * len(nn.parameters([w]))

        return w, f

    (w, jitted), (v, plain) = make(), make()
    jitted = krt.jit(jitted)
    for _ in range(4):
        assert jitted(X).tolist() == plain(krt.tensor(X)).tolist()
        assert len(nn.parameters([w])) == len(nn.parameters([v])) == any(told)
        assert w.requires_grad is v.requires_grad
    assert len(jitted.plans) <= 2


def test_an_argument_is_a_parameter_also_while_it_is_frozen() -> None:
    f = krt.jit(lambda x: x * (1 + len(nn.parameters([x]))))
    p, plain = krt.tensor(X, requires_grad=True), krt.tensor(X)
    for required in (True, False):
        p.requires_grad_(required)
        assert f(p).tolist() == (X * 2).tolist()
        assert f(plain).tolist() == X.tolist()
    assert len(f.plans) == 2
    assert "x began or ceased to be a parameter" in f.explain()


def test_a_result_of_a_jitted_function_requires_none() -> None:
    w = krt.ones(3, requires_grad=True)
    y = krt.jit(lambda: w * 2)()
    asks = krt.jit(lambda x: x + (1 if x.requires_grad else 2))
    assert asks(y).tolist() == (y.detach() + (1 if y.requires_grad else 2)).tolist()
    assert asks(y).tolist() == [4, 4, 4]


def test_functions_that_do_not_ask_need_no_other_plan() -> None:
    f = krt.jit(lambda x: x * 2)
    for x in (krt.tensor(X), krt.tensor(X, requires_grad=True), X):
        f(x)
    assert len(f.plans) == 1


def test_the_reason_names_the_argument() -> None:
    f = krt.jit(lambda x, y: x * (2 if y.requires_grad else 3))
    f(X, X)
    f(X, krt.tensor(X, requires_grad=True))
    assert "y began or ceased to require a gradient" in f.explain()


@pytest.mark.parametrize("first", [True, False])
def test_what_is_in_place_for_parameters_only_follows_whether_it_is_one(first):
    def step(x):
        with krt.no_grad():
            p = state["p"]
            p -= x
            return p * 1

    for run in (step, krt.jit(step)):
        p = krt.tensor([5.0, 7.0])
        state = {"p": p}
        seen = []
        for required in (first, not first, first):
            p.requires_grad_(required)
            result = run(np.ones(2, np.float32)).tolist()
            seen.append((result, p.tolist()))
        if run is step:
            wanted = seen
    assert seen == wanted


PLACES = ("before", "between", "behind", "outside")


@pytest.mark.parametrize("seed", range(40))
def test_frozen_and_thawed_inside_and_outside_of_a_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    settings: dict[str, list[tuple[int, bool]]] = {
        place: [(int(rng.integers(3)), bool(rng.integers(2))) for _ in range(rng.integers(3))]
        for place in PLACES
    }

    def tell(parameters: list[krt.Tensor], place: str) -> None:
        for i, required in settings[place]:
            parameters[i].requires_grad_(required)

    def make() -> tuple[list[krt.Tensor], Any]:
        parameters = [krt.tensor(X * (i + 1), requires_grad=True) for i in range(3)]
        optimizer = nn.optim.SGD([*parameters, krt.tensor(X, requires_grad=True)], 0.01)
        last = optimizer.params[-1]

        def step(x: Any) -> Any:
            tell(parameters, "before")
            a, b, c = parameters
            y = a * x + b * b + (c * x).square() * last
            tell(parameters, "between")
            optimizer.zero_grad()
            y.sum().backward()
            tell(parameters, "behind")
            optimizer.step()
            return y

        return parameters, step

    (ours, jitted), (plain, eager) = make(), make()
    jitted = krt.jit(jitted)
    for k in range(6):
        if k == 3:
            tell(ours, "outside")
            tell(plain, "outside")
        assert jitted(X).tolist() == pytest.approx(eager(krt.tensor(X)).tolist(), rel=1e-6)
        for a, b in zip(ours, plain, strict=True):
            assert a.requires_grad is b.requires_grad
            assert a.tolist() == pytest.approx(b.tolist(), rel=1e-6)
    assert len(jitted.plans) <= 3


def test_two_functions_that_freeze_and_thaw_what_they_share_are_traced_once() -> None:
    w, v = krt.tensor(X, requires_grad=True), krt.tensor(X, requires_grad=True)

    @krt.jit
    def first(x: Any) -> None:
        w.requires_grad_(True)
        (w * v.detach() * x).sum().backward()

    @krt.jit
    def second(x: Any) -> None:
        w.requires_grad_(False)
        (w * v * x).sum().backward()

    w.requires_grad_(False)
    for k in range(1, 5):
        first(X)
        assert w.requires_grad
        second(X)
        assert not w.requires_grad
        np.testing.assert_allclose(w.grad.numpy(), X * X * k)
        np.testing.assert_allclose(v.grad.numpy(), X * X * k)
    assert len(first.plans) <= 2  # without gradients, and with those of earlier calls
    assert len(second.plans) <= 2


@pytest.mark.parametrize("tracing", [True, False])
def test_a_call_that_raises_leaves_it_as_it_was(tracing: bool) -> None:
    w = krt.tensor(X)

    @krt.jit
    def f(i: Any) -> Any:
        w.requires_grad_(True)
        if tracing:
            raise KeyError
        return w[i]

    if not tracing:
        f(np.array(1))
        assert w.requires_grad
        w.requires_grad_(False)
    with pytest.raises((KeyError, krt.IndexBoundsError)):
        f(np.array(7))
    assert not w.requires_grad
    assert nn.parameters([w]) == ([] if tracing else [w])


def kinds() -> dict[str, Any]:
    w = krt.ones(3, requires_grad=True)
    frozen = krt.tensor(X, requires_grad=True)
    frozen.requires_grad_(False)
    return {
        "array": X,
        "tensor": krt.tensor(X),
        "leaf": krt.tensor(X, requires_grad=True),
        "result": (w * krt.tensor(X)).realize(),
        "detached": (w * krt.tensor(X)).detach().realize(),
        "frozen": frozen,
        "of a jitted function": krt.jit(lambda: w * krt.tensor(X))(),
        "integers": krt.tensor([1, 2, 3]),
    }


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_answers_follow_the_arguments_in_any_order(ask: str, seed: int) -> None:
    """A plan is found in C where nothing requires a gradient, and never for what does."""
    given = kinds()

    def function(x: Any, y: Any) -> Any:
        return x * (2 + ASKS[ask](x)) + y * (5 + ASKS[ask](y))

    jitted = krt.jit(function)
    names = np.array(list(given))
    for a, b in np.random.default_rng(seed).choice(names, (60, 2)):
        found = jitted(given[a], given[b])
        plain = [krt.tensor(given[n]) if n == "array" else given[n] for n in (a, b)]
        assert found.tolist() == function(*plain).tolist(), (a, b)


@pytest.mark.parametrize("ask", ASKS)
def test_arguments_answer_alike_where_nothing_is_recorded(ask: str) -> None:
    for name, given in kinds().items():
        with krt.no_grad():
            plain = ASKS[ask](krt.tensor(given) if name == "array" else given)
            answers: list[bool] = []

            @krt.jit
            def f(x: Any, answers: list[bool] = answers) -> Any:
                answers.append(ASKS[ask](x))
                return x * 1

            f(given)
        assert answers == [plain], name


def test_changes_in_place_ask_and_calls_are_found_in_c_all_the_same() -> None:
    s, table = krt.zeros(3), krt.zeros(4, 3)

    @krt.jit
    def step(k: krt.Tensor) -> None:
        s.add_(k)
        table[1] = k * 2

    for given in (X, krt.tensor(X), X):
        step(given)
    assert len(step._replays) == len(step.plans) == 1
    assert s.tolist() == (3 * X).tolist()
    assert table[1].tolist() == (2 * X).tolist()
    with pytest.raises(krt.GradientError):
        step(krt.tensor(X, requires_grad=True))
    assert s.tolist() == (3 * X).tolist()
    step(X)
    assert s.tolist() == (4 * X).tolist()
