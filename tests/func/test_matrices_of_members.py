"""Matrices of members that every turn of a loop multiplies by: laid out once, before the first."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

RNG = np.random.default_rng(19)
MEMBERS, ROWS, WIDTH = 4, 8, 32


def settled(weight: krt.Tensor, x: krt.Tensor, turns: int) -> krt.Tensor:
    """What members' layers make of their rows, again and again."""

    def turn(c: krt.Tensor, _: None) -> tuple[krt.Tensor, None]:
        return krt.vmap(lambda w, c: (c @ w.T).tanh())(weight, c), None

    out: krt.Tensor = krt.scan(turn, x, length=turns)[0]
    return out


def made(weight: np.ndarray, x: np.ndarray, turns: int) -> np.ndarray:
    for _ in range(turns):
        x = np.tanh(x @ weight.swapaxes(-1, -2))
    return x


def copies(function: krt.JitFunction, *args: krt.Tensor) -> list[str]:
    """Kernels before the loop that read the weight, by their loops."""
    once = [repr(k.kernel) for k in function.profile(*args) if k.runs == 1]
    return [name for name in once if f"{MEMBERS}x{WIDTH}x{WIDTH}" in name]


@pytest.mark.parametrize("turns", [2, 9, 30])
@pytest.mark.parametrize("lead", [(MEMBERS,), (2, 2)])
def test_products_are_what_they_are(turns: int, lead: tuple[int, ...]) -> None:
    weight = (RNG.standard_normal((*lead, WIDTH, WIDTH)) * 0.2).astype(np.float32)
    x = RNG.standard_normal((*lead, ROWS, WIDTH)).astype(np.float32)

    @krt.jit
    def run(weight: krt.Tensor, x: krt.Tensor) -> krt.Tensor:
        def turn(c: krt.Tensor, _: None) -> tuple[krt.Tensor, None]:
            return (c @ weight.mT).tanh() * 0.5, None

        out: krt.Tensor = krt.scan(turn, x, length=turns)[0]
        return out

    want = x.astype(float)
    for _ in range(turns):
        want = np.tanh(want @ weight.astype(float).swapaxes(-1, -2)) * 0.5
    found = run(krt.tensor(weight), krt.tensor(x)).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_they_are_laid_out_before_many_turns_alone() -> None:
    weight = (RNG.standard_normal((MEMBERS, WIDTH, WIDTH)) * 0.1).astype(np.float32)
    x = RNG.standard_normal((MEMBERS, ROWS, WIDTH)).astype(np.float32)
    args = krt.tensor(weight), krt.tensor(x)
    for turns, laid_out in ((3, False), (20, True)):
        function = krt.jit(lambda weight, x, turns=turns: settled(weight, x, turns))
        np.testing.assert_allclose(function(*args).numpy(), made(weight, x, turns), atol=1e-5)
        assert bool(copies(function, *args)) == laid_out


def test_one_matrix_for_all_members_is_none_of_theirs() -> None:
    weight = krt.tensor((RNG.standard_normal((WIDTH, WIDTH)) * 0.1).astype(np.float32))
    x = RNG.standard_normal((MEMBERS, ROWS, WIDTH)).astype(np.float32)

    @krt.jit
    def run(weight: krt.Tensor, x: krt.Tensor) -> krt.Tensor:
        out: krt.Tensor = krt.scan(
            lambda c, _: (krt.vmap(lambda c: (c @ weight.T).tanh())(c), None), x, length=20
        )[0]
        return out

    found = run(weight, krt.tensor(x)).numpy()
    np.testing.assert_allclose(found, made(weight.numpy(), x, 20), atol=1e-5)


def test_of_a_population_with_gradients() -> None:
    krt.manual_seed(0)
    population = nn.stack_modules(lambda: nn.Linear(WIDTH, WIDTH), MEMBERS)
    x = krt.randn(MEMBERS, ROWS, WIDTH)

    @krt.jit
    def looped() -> krt.Tensor:
        population.zero_grad()
        last = krt.scan(lambda c, _: (population(c).tanh(), None), x, length=10)[0]
        loss: krt.Tensor = last.square().sum()
        loss.backward()
        return loss

    @krt.jit
    def written_out() -> krt.Tensor:
        population.zero_grad()
        last = x
        for _ in range(10):
            last = population(last).tanh()
        loss: krt.Tensor = last.square().sum()
        loss.backward()
        return loss

    found = []
    for function in (looped, written_out):
        loss = function().item()
        found.append([np.float32(loss), *(p.grad.numpy() for p in population.parameters())])
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)


def test_what_is_laid_out_is_not_copied_again_in_each_turn() -> None:
    krt.manual_seed(0)

    def network() -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )

    population = nn.stack_modules(network, 64)

    @krt.jit
    def run(x: krt.Tensor) -> krt.Tensor:
        with krt.no_grad():
            out: krt.Tensor = krt.scan(
                lambda c, _: (c * 0.5 + population(c).sum(-1, keepdim=True), None), x, length=16
            )[0]
        return out

    x = krt.rand(64, 64, 4)
    want = x
    with krt.no_grad():
        for _ in range(16):
            want = (want * 0.5 + population(want).sum(-1, keepdim=True)).realize()
    np.testing.assert_allclose(run(x).numpy(), want.numpy(), rtol=1e-3, atol=1e-4)
    turns = [k for k in run.profile(x) if k.runs == 16]
    assert turns
    assert not any(launch.flops == 0 for launch in turns)
