"""Loops in loops that carry many values: what is done for a body is not done for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.ir import toposort
from kernelrt.tensor.autograd import tags

VALUES, DEPTH = 5, 3


def mixed(carry: list[Any]) -> list[Any]:
    return [c * 0.5 + d for c, d in zip(carry, carry[1:] + carry[:1], strict=True)]


def nested(depth: int, carry: list[Any]) -> list[Any]:
    if not depth:
        return mixed(carry)
    found: list[Any] = krt.scan(lambda c, _: (nested(depth - 1, c), None), carry, length=2)[0]
    return found


def test_each_body_is_stripped_of_marks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nested(DEPTH, [krt.tensor(float(k)) for k in range(VALUES)])
    walks: list[object] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        walks.append(args)
        return toposort(*args, **kwargs)

    monkeypatch.setattr(tags, "toposort", counted)
    tags.strip([t.uop for t in found])
    assert len(walks) == 1 + DEPTH
    want = [float(k) for k in range(VALUES)]
    for _ in range(2**DEPTH):
        want = mixed(want)
    assert [t.item() for t in found] == pytest.approx(want)


# Ports of a loop and of one within it are equal where number, size and type are.


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def in_a_scan(w: Any, rows: Any, inner: Any) -> Any:
    """What the inner loop reads is made of a slice of the outer one, and of the member."""

    def body(c: Any, q: Any) -> Any:
        h = krt.tanh(q @ w)
        return krt.scan(lambda d, j: (d * 0.5 + h * j, (d * j).sum()), c, inner)

    return krt.scan(body, krt.zeros(3), rows)


def in_a_fori_loop(w: Any, rows: Any, inner: Any) -> Any:
    def turn(k: Any, c: Any) -> Any:
        h = krt.tanh(rows[k] @ w)
        return krt.fori_loop(0, 5, lambda j, d: d * 0.5 + h * inner[j], c)

    return krt.fori_loop(0, 4, turn, krt.zeros(3)), w.sum()


def in_a_choice(w: Any, rows: Any, inner: Any) -> Any:
    def body(c: Any, q: Any) -> Any:
        h = krt.tanh(q @ w)
        c = krt.cond(w.sum() > 0, lambda d, j: d * 0.5 + h * j, lambda d, j: d - h * j, c, q)
        return c, (c * inner[0]).sum()

    return krt.scan(body, krt.ones(3), rows)


@pytest.mark.parametrize("program", [in_a_scan, in_a_fori_loop, in_a_choice])
@pytest.mark.parametrize("jitted", [False, True])
def test_members_of_loops_within_loops(program: Any, jitted: bool) -> None:
    w, rows, inner = krt.tensor(normal(3, 3, 3)), krt.tensor(normal(4, 3)), krt.tensor(normal(5, 3))

    def both(w: Any) -> Any:
        return program(w, rows, inner)

    def slope(w: Any) -> Any:
        return krt.func.grad(lambda w: sum(t.sum() for t in both(w)))(w)

    for f in (both, lambda w: (slope(w),)):
        mapped = krt.vmap(f)
        found = (krt.jit(mapped) if jitted else mapped)(w)
        each = [f(w[k]) for k in range(3)]
        for k, values in enumerate(found):
            want = np.stack([e[k].numpy() for e in each])
            np.testing.assert_allclose(values.numpy(), want, rtol=1e-4, atol=1e-5)


def test_members_look_up_what_the_outer_loop_chose() -> None:
    x = krt.tensor(normal(2, 5))
    chosen, again = krt.tensor(np.array([3, 2])), krt.arange(2)

    def f(x: Any) -> Any:
        def body(c: Any, q: Any) -> Any:
            return c, krt.scan(lambda d, _: (d, x[q]), krt.tensor(0.0), again)[1]

        return krt.scan(body, krt.tensor(1.0), chosen)[1]

    want = np.repeat(x.numpy()[:, [3, 2], None], 2, axis=2)
    np.testing.assert_array_equal(krt.vmap(f)(x).numpy(), want)
