"""Gradients through ``x[index] = value``: into the value, and into what was there before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import GradientError

torch = pytest.importorskip("torch")


def an_index(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers, slices, an Ellipsis, or a mask."""
    if rng.random() < 0.2:
        return rng.random(shape[: rng.integers(1, len(shape) + 1)]) < 0.5
    items: list[Any] = []
    for size in shape[: rng.integers(1, len(shape) + 1)]:
        if rng.random() < 0.5 and size:
            items.append(int(rng.integers(-size, size)))
        else:
            start, stop = sorted(rng.integers(-size - 1, size + 2, 2).tolist())
            items.append(slice(start, stop, int(rng.integers(1, 4))))
    if rng.random() < 0.3:
        items.insert(int(rng.integers(0, len(items) + 1)), Ellipsis)
    return tuple(items)


Assignment = tuple[Any, str, float]


def a_program(rng: np.random.Generator) -> tuple[tuple[int, ...], str, list[Assignment]]:
    shape = tuple(int(rng.choice([0, 1, 2, 3, 5])) for _ in range(rng.integers(1, 4)))
    start = str(rng.choice(["zeros", "computed"]))
    kinds = ["number", "weight", "computed", "itself"]
    # The first value has a history: without jit, zeros get storage when they are given numbers.
    return shape, start, [
        (an_index(rng, shape), kinds[rng.integers(0 if i else 1, 4 if i else 3)],
         float(rng.integers(-3, 4)))
        for i in range(rng.integers(1, 5))
    ]  # fmt: skip


def run(lib: Any, program: Any, w: Any, v: Any, c: Any) -> tuple[Any, Any]:
    """The final tensor and its weighted sum, by kernelrt or torch."""
    shape, start, assignments = program
    x = lib.zeros(shape, dtype=lib.float64) if start == "zeros" else w * 2.0
    for index, kind, number in assignments:
        x[lib.tensor(index) if isinstance(index, np.ndarray) else index] = (
            number if kind == "number" else
            v if kind == "weight" else
            (v * v + w.sum()) * number if kind == "computed" else
            x.sum() * number
        )  # fmt: skip
    return x, (x * c).sum() + (v * w.sum()) * 0.5


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, jitted: bool) -> None:
    rng = np.random.default_rng(seed)
    program = a_program(rng)
    shape = program[0]
    w, c, v = rng.normal(size=shape), rng.normal(size=shape), np.array(rng.normal())
    there = [torch.tensor(a, requires_grad=True) for a in (w, v)]
    expected, loss = run(torch, program, *there, torch.tensor(c))
    loss.backward()
    here = [krt.tensor(a, requires_grad=True) for a in (w, v)]

    def step(c: Any) -> Any:
        x, loss = run(krt, program, *here, c)
        loss.backward()
        return x.detach()

    got = krt.jit(step)(c) if jitted else step(krt.tensor(c))
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-12)
    for mine, theirs in zip(here, there, strict=True):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", ["value", "masked", "self", "parameter"])
def test_storage_that_would_lose_a_history_refuses_it(case: str) -> None:
    w = krt.ones(3, requires_grad=True)
    x = krt.tensor([1.0, 2.0, 3.0]) if case != "self" else w * 2
    x = krt.ones(3, requires_grad=True) if case == "parameter" else x
    krt.realize(x)
    before = x.tolist()
    named = "self" if case == "self" else "value"
    index = krt.tensor([True, False, True]) if case == "masked" else 0
    with pytest.raises(GradientError, match=rf"^{named}: .*detach\(\)"):
        x[index] = 5.0 if case == "self" else w.sum()
    assert x.tolist() == before


def test_storage_outside_of_a_jitted_function_refuses_it() -> None:
    w, log = krt.ones(3, requires_grad=True), krt.zeros(4)
    with pytest.raises(GradientError, match=r"^value: "):
        krt.jit(lambda: log.__setitem__(0, w.sum()))()
    krt.jit(lambda: log.__setitem__(0, w.sum().detach()))()
    assert log.tolist() == [3, 0, 0, 0]


def test_without_gradients_storage_takes_what_comes() -> None:
    w, x = krt.ones(3, requires_grad=True), krt.tensor([1.0, 2.0])
    with krt.no_grad():
        x[0] = w.sum()
    x[1] = w.sum().detach()
    assert x.tolist() == [3.0, 3.0]
    assert not x.requires_grad
    w[1] = 7.0
    assert w.is_leaf
    assert w.tolist() == [1, 7, 1]
