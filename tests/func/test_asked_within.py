"""What a branch asks for is its own, whoever asked before; what is older is read as it was."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import func
from kernelrt.errors import CustomFunctionError, GradientError


@pytest.mark.parametrize("jitted", [False, True])
def test_a_branch_not_taken_does_not_fail_where_others_asked_for_the_same(jitted: bool) -> None:
    x, at = krt.tensor([1.0, 2.0, 3.0]), krt.tensor(7)

    def chosen(take, at):
        kept = x[at] * 2  # never read; with it the branch below finds nodes that are there
        found = krt.cond(take, lambda: x[at] * 2, lambda: krt.tensor(-1.0))
        del kept
        return found

    run = krt.jit(chosen) if jitted else chosen
    assert run(krt.tensor(False), at).item() == -1.0
    assert run(krt.tensor(True), krt.tensor(2)).item() == 6.0
    with pytest.raises(IndexError):
        run(krt.tensor(True), at).item()


def test_turns_that_do_not_come_do_not_fail_where_others_asked_for_the_same() -> None:
    x, at = krt.tensor([1.0, 2.0, 3.0]), krt.tensor(7)
    kept = x[at]
    found = krt.fori_loop(0, krt.tensor(0), lambda i, c: c + x[at], krt.tensor(5.0))
    assert found.item() == 5.0
    del kept


@pytest.mark.parametrize("taken", [False, True])
def test_a_branch_assigns_to_what_an_older_value_was_computed_from(taken: bool) -> None:
    w = krt.tensor(np.float32([1.0, 2.0, 4.0]), requires_grad=True)
    old = w.softmax(-1)
    expected = np.exp([1.0, 2.0, 4.0]) / np.exp([1.0, 2.0, 4.0]).sum()

    def changes():
        with krt.no_grad():
            w.assign(old)
        return old * 2

    out = krt.cond(krt.tensor(taken), changes, lambda: old * 3)
    np.testing.assert_allclose(
        w.detach().numpy(), expected if taken else [1.0, 2.0, 4.0], rtol=1e-6
    )
    np.testing.assert_allclose(out.detach().numpy(), expected * (2 if taken else 3), rtol=1e-6)
    np.testing.assert_allclose(old.detach().numpy(), expected, rtol=1e-6)


def _counted(fails_at: int = 0):
    seen: list[float] = []

    def function(x):
        seen.append(float(x))
        if len(seen) == fails_at:
            raise ValueError("no more")
        return x + 1

    return seen, lambda x: krt.call(function, x, out=x, pure=False, vjp=lambda i, r, g: g)


@pytest.mark.parametrize("kind", ["scan", "fori_loop", "while_loop", "cond"])
def test_without_jit_a_loop_with_calls_made_once_runs_where_it_is_written(kind: str) -> None:
    seen, step = _counted()
    x = krt.tensor(0.0, requires_grad=True)
    if kind == "scan":
        out, rows = krt.scan(lambda c, _: (step(c), c), x, length=3)
        assert rows.tolist() == [0.0, 1.0, 2.0]
    elif kind == "fori_loop":
        out = krt.fori_loop(0, 3, lambda i, c: step(c), x)
    elif kind == "while_loop":
        out = krt.while_loop(lambda c: c < 3.0, step, x, max_steps=5)
    else:
        out = krt.cond(krt.tensor(True), lambda c: step(step(step(c))), lambda c: c, x)
    assert seen == [0.0, 1.0, 2.0]
    assert out.item() == 3.0
    with pytest.raises(GradientError, match="pure=False"):
        out.backward()
    assert x.grad is None
    assert len(seen) == 3
    gc.collect()
    assert out.item() == 3.0


@pytest.mark.parametrize("kind", ["scan", "cond"])
def test_calls_made_once_are_not_made_again_when_one_fails(kind: str) -> None:
    seen, step = _counted(fails_at=2)
    count = krt.tensor(0.0)
    other = krt.tensor(1.0)
    other.assign(other + 1)  # pending, and no part of it

    def twice(c):
        count.assign(count + 1)
        return step(step(c))

    def run():
        if kind == "scan":
            return krt.scan(lambda c, _: (twice(c), None), krt.tensor(0.0), length=4)
        return krt.cond(krt.tensor(True), twice, lambda c: c, krt.tensor(0.0))

    with pytest.raises(CustomFunctionError, match="no more"):
        run()
    assert seen == [0.0, 1.0]
    assert count.item() == 0.0
    assert other.item() == 2.0
    assert len(seen) == 2


def test_in_jit_values_and_gradient_of_a_loop_with_calls_made_once_are_one_run() -> None:
    seen, step = _counted()

    @krt.jit
    def both(x):
        return func.value_and_grad(lambda x: krt.scan(lambda c, _: (step(c) * x, None), x,
                                                      length=3)[0])(x)  # fmt: skip

    value, slope = both(krt.tensor(2.0))
    x = 2.0
    a = (x + 1) * x
    b = (a + 1) * x
    c = (b + 1) * x
    da = x + (x + 1)
    db = da * x + (a + 1)
    assert value.item() == c
    assert slope.item() == db * x + (b + 1)
    assert seen == [2.0, a, b]


def test_a_gradient_passes_by_a_loop_whose_branches_draw() -> None:
    def loss(x, which):
        first = krt.rand(())

        def turn(c, _):
            krt.switch(which, [lambda: x, lambda: (krt.rand(17), x)[1]])
            return c * 1, None

        last, _ = krt.scan(turn, first, length=3)
        return last * x, last

    slope, last = func.grad(loss, has_aux=True)(krt.tensor(2.0), krt.tensor(1))
    assert slope.item() == last.item()


def test_what_is_computed_already_is_read_by_a_branch_that_asks_for_it_again() -> None:
    x = krt.tensor(0.5, requires_grad=True)
    old = x.tanh()
    old.realize()

    def again():
        assert krt.tensor(0.5).tanh() is not None
        x.tanh()
        return old

    out = krt.cond(krt.tensor(True), again, lambda: x)
    out.backward()
    assert out.item() == pytest.approx(np.tanh(0.5), rel=1e-6)
    assert x.grad.item() == pytest.approx(1 - np.tanh(0.5) ** 2, rel=1e-6)


@pytest.mark.parametrize("number", [0, 1])
def test_both_branches_give_what_was_made_of_state_that_changed_since(number: int) -> None:
    p, state = krt.tensor(0.25, requires_grad=True), krt.tensor(1.0)
    value = p * state
    state.assign(state + 1)
    out = krt.switch(krt.tensor(number), [lambda: value, lambda: value])
    assert out.item() == 0.25
    try:
        out.backward()
    except GradientError:
        return  # the factor is gone
    assert p.grad.item() == 1.0


def test_sizes_that_a_loop_or_choice_cannot_take_are_named() -> None:
    run = krt.jit(
        lambda x: krt.cond(x.sum() > 0, lambda: x, lambda: -x),
        dynamic={"x": {0: krt.Variable("n", 1, 16)}},
    )
    with pytest.raises(krt.errors.VariableError, match=r"\(n,\) depends on a Variable"):
        run(krt.ones(3))
    for call in (
        lambda: krt.scan(lambda c, _: (c, None), 1.0, length=2**63),
        lambda: krt.fori_loop(0, 2**62, lambda i, c: c, 1.0),
        lambda: krt.fori_loop(0, 2**80, lambda i, c: c, 1.0),
        lambda: krt.while_loop(lambda c: c < 3, lambda c: c + 1, 1.0, max_steps=2**70),
    ):
        with pytest.raises(krt.errors.ShapeError, match=r"less than|64 bits"):
            call()


def test_numbers_of_branches() -> None:
    branches = [lambda k=k: krt.tensor(k) for k in range(3)]
    for value, chosen in (
        (np.uint64(2**63 + 5), 2), (np.uint64(1), 1), (np.int8(-4), 0), (np.int64(2**62), 2),
    ):  # fmt: skip
        assert krt.switch(krt.tensor(value), branches).item() == chosen
        assert krt.jit(lambda i: krt.switch(i, branches))(krt.tensor(value)).item() == chosen
    assert krt.cond(np.bool_(False), lambda: 1, lambda: 2) == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["scan", "cond", "switch"])
def test_what_is_called_as_it_is_assigns_to_its_own(kind: str) -> None:
    x = krt.tensor(1.0)

    def more(c, *_):
        c += 1
        return (c, None) if kind == "scan" else c

    if kind == "scan":
        out, _ = krt.scan(more, x, length=1)
    elif kind == "cond":
        out = krt.cond(True, more, more, x)
    else:
        out = krt.switch(5, [more], x)
    assert (out.item(), x.item()) == (2.0, 1.0)


def test_dicts_have_their_keys_in_any_order() -> None:
    first = {"a": krt.tensor(1), "b": krt.tensor(2.0)}
    last, _ = krt.scan(lambda c, _: ({"b": c["b"] * 2, "a": c["a"] + 1}, None), first, length=3)
    assert {k: v.item() for k, v in last.items()} == {"a": 4, "b": 16.0}
    out = krt.cond(
        krt.tensor(True), lambda c: {"b": c["b"], "a": c["a"] * 5}, lambda c: c, first
    )
    assert {k: v.item() for k, v in out.items()} == {"a": 5, "b": 2.0}
    with pytest.raises(krt.errors.ShapeError, match="return the same nesting"):
        krt.scan(lambda c, _: ({"b": c["b"]}, None), first, length=3)


@pytest.mark.parametrize("number", [0, 1])
def test_state_that_holds_an_argument_leaves_its_gradient_alone(number: int) -> None:
    state = krt.tensor(0.5)

    @krt.jit
    def slope(x, which):
        def loss(x):
            old = state.clone()
            state.assign(x.detach())

            def back():
                state.assign(old)
                return x * 3

            chosen = krt.switch(which, [lambda: old * 1, back])
            return krt.cond(which == which, lambda: chosen, lambda: chosen)

        return func.grad(loss)(x)

    assert slope(krt.tensor(2.0), krt.tensor(number)).item() == 3.0 * number
    assert state.item() == (0.5 if number else 2.0)


def test_a_condition_with_a_call_made_once_is_refused_by_name() -> None:
    seen, step = _counted()
    with pytest.raises(krt.JitError, match="pure=False"):
        krt.while_loop(lambda c: step(c) < 3, lambda c: c + 1, krt.tensor(0.0))
    assert not seen


def test_none_is_no_leaf_and_keys_are_compared_as_dicts_do() -> None:
    out = krt.vmap(lambda d: (d[0] + 1, None))((krt.tensor([1.0, 2.0]), None))
    assert out[0].tolist() == [2.0, 3.0]
    assert out[1] is None
    last, _ = krt.scan(lambda c, _: ({1.0: c[1] + 1}, None), {1: krt.tensor(0.0)}, length=2)
    assert last[1].item() == 2.0

    class Same(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return "'a'"

    with pytest.raises(krt.errors.ShapeError, match="return the same nesting"):
        krt.scan(lambda c, _: ({Same("b"): c["a"]}, None), {"a": krt.tensor(0.0)}, length=2)
