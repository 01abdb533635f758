"""Gradients that jitted functions pass from one tensor to another, or that tensors share."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.tensor import state

F32 = np.float32
N_PARAMS = 3
STATEMENTS = ("backward", "backward", "all", "clear", "move", "swap", "share", "scale", "add",
              "step")  # fmt: skip


def leaf(*values: float) -> krt.Tensor:
    return krt.tensor(np.array(values, F32), requires_grad=True)


# ---- random programs, run by PyTorch too


def statement(rng: np.random.Generator) -> tuple[Any, ...]:
    i, j = (int(k) for k in rng.permutation(N_PARAMS)[:2])
    return str(rng.choice(STATEMENTS)), i, j


def do(what: tuple[Any, ...], params: list[Any], x: Any, no_grad: Any) -> None:
    kind, i, j = what
    a, b = params[i], params[j]
    if kind == "backward":
        (a * b * x).sum().backward()
    elif kind == "all":
        sum((p * x).sum() * k for k, p in enumerate(params, 1)).backward()
    elif kind == "clear":
        a.grad = None
    elif kind == "move":
        a.grad = b.grad
        b.grad = None
    elif kind == "swap":
        a.grad, b.grad = b.grad, a.grad
    elif kind == "share":
        a.grad = b.grad
    elif a.grad is None:
        pass
    elif kind == "scale":
        a.grad = a.grad * 0.5
    elif kind == "add":
        with no_grad():
            a.grad.copy_(a.grad + 1)
    elif kind == "step":
        with no_grad():
            a.copy_(a - a.grad * 0.125)


def differing(seed: int) -> str | None:
    """Where the program of a seed differs from PyTorch's, if it does."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    bodies = [[statement(rng) for _ in range(rng.integers(1, 5))] for _ in range(2)]
    calls: list[Any] = [int(rng.integers(2)) for _ in range(6)]
    calls.insert(int(rng.integers(1, 6)), statement(rng))
    start = [np.arange(1, 4) / (i + 2) for i in range(N_PARAMS)]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    ours = [krt.tensor(a, requires_grad=True) for a in start]

    def function(body: list[tuple[Any, ...]]) -> Any:
        def fn(x: krt.Tensor) -> None:
            for what in body:
                do(what, ours, x, krt.no_grad)

        return krt.jit(fn, keep_grads=True)

    jitted = [function(body) for body in bodies]
    for k, call in enumerate(calls):
        x = np.array([1.0, -2.0, 3.0]) * (1 + k % 3)
        if isinstance(call, int):
            jitted[call](x)
        else:
            do(call, ours, krt.tensor(x), krt.no_grad)
        for what in bodies[call] if isinstance(call, int) else [call]:
            do(what, theirs, torch.tensor(x), torch.no_grad)
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            for got, expected in ((a, b), (a.grad, b.grad)):
                if (got is None) is not (expected is None) or (
                    got is not None
                    and not np.allclose(got.detach().numpy(), expected.detach().numpy())
                ):
                    where = f"{bodies} {calls}, call {k}, parameter {i}"
                    return f"{where}: {got}, expected {expected}"
    return None


@pytest.mark.parametrize("block", range(4))
def test_random_programs_agree_with_torch(block: int) -> None:
    for seed in range(block * 6, block * 6 + 6):
        assert differing(seed) is None, seed


# ---- by hand


def test_a_gradient_moves_on_in_each_call() -> None:
    a, b = leaf(0), leaf(1)

    @krt.jit
    def move(x):
        a.grad = b.grad
        b.grad = None
        (b * x).sum().backward()

    (b * 1).sum().backward()
    for k in range(2, 6):
        move(np.array([k], F32))
        assert (a.grad.item(), b.grad.item()) == (k - 1, k)
    assert move.retraces == 0, move.explain()


def test_gradients_trade_places_in_each_call() -> None:
    a, b = leaf(0), leaf(1)
    a.grad, b.grad = krt.tensor([1.0]), krt.tensor([2.0])

    @krt.jit
    def swap():
        a.grad, b.grad = b.grad, a.grad

    for expected in ((2, 1), (1, 2), (2, 1)):
        swap()
        assert (a.grad.item(), b.grad.item()) == expected
    assert swap.retraces == 0


def test_what_is_added_to_a_shared_gradient_is_seen_in_both() -> None:
    a, b = leaf(0), leaf(0)
    add = krt.jit(lambda x: ((a + 2 * b) * x).sum().backward())
    add(np.array([1], F32))
    add(np.array([1], F32))
    assert (a.grad.item(), b.grad.item()) == (2, 4)
    a.grad = b.grad
    for expected in (7, 10):
        add(np.array([1], F32))
        assert a.grad is b.grad
        assert a.grad.item() == expected
    a.grad = a.grad * 1
    add(np.array([1], F32))
    assert (a.grad.item(), b.grad.item()) == (11, 12)


def test_the_place_of_a_gradient_goes_with_its_tensor() -> None:
    def train() -> None:
        w = leaf(1)
        krt.jit(lambda x: (w * x).sum().backward())(np.array([1], F32))
        assert w.grad.item() == 1

    before = len(state.homes)
    for _ in range(3):
        train()
    gc.collect()
    assert len(state.homes) <= before


# ---- gradients that are reached by other names, too


class Holder(nn.Module):
    """A module that keeps a tensor, which may be a gradient."""

    def __init__(self) -> None:
        self.kept = krt.zeros(1)


def test_a_gradient_read_by_its_name_before_it_grows_is_what_it_was() -> None:
    w, holder = leaf(0), Holder()
    w.grad = holder.kept = krt.tensor([1.0])

    @krt.jit
    def add(x):
        before = holder.kept * 10
        (w * x).sum().backward()
        return before

    for expected in (1, 3, 5):
        assert add(np.array([2], F32)).item() == expected * 10
        assert w.grad.item() == holder.kept.item() == expected + 2


@pytest.mark.parametrize("later", [False, True])
def test_a_gradient_read_by_its_name_after_it_grew_is_refused(later: bool) -> None:
    w, holder = leaf(0), Holder()
    holder.kept = krt.tensor([1.0])
    w.grad = krt.tensor([1.0]) if later else holder.kept

    @krt.jit
    def add(x):
        (w * x).sum().backward()
        return holder.kept * 10

    if later:
        assert add(np.array([2], F32)).item() == 10
        w.grad = holder.kept
    for _ in range(2):
        with pytest.raises(krt.JitError, match="that shares its memory was assigned to"):
            add(np.array([2], F32))
        assert w.grad.item() == holder.kept.item() == 1
    w.grad = holder.kept.clone()
    assert add(np.array([2], F32)).item() == 10
    assert w.grad.item() == 3


def test_a_kept_gradient_is_followed_out_of_its_place() -> None:
    w, holder = leaf(0), Holder()

    @krt.jit
    def renew(x):
        w.grad = None
        (w * x).sum().backward()

    renew(np.array([1], F32))
    holder.kept = w.grad
    both = krt.jit(lambda: holder.kept * 10 + w.grad)
    assert both().item() == 11
    for k in (2, 3):
        renew(np.array([k], F32))
        assert both().item() == 10 + k


@pytest.mark.parametrize("keep", [list.append, lambda kept, g: kept.__setitem__(0, g)])
def test_a_gradient_that_is_there_does_not_leave_the_trace(keep) -> None:
    w, kept = leaf(0), [None]
    w.grad = krt.tensor([1.0])

    @krt.jit
    def add(x):
        keep(kept, w.grad)
        (w * x).sum().backward()

    with pytest.raises(krt.JitError, match="no value outside"):
        add(np.array([2], F32))
    assert kept == [None]
    assert w.grad.item() == 1
