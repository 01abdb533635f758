"""Changes in place of what PyTorch would let share memory: they reach no other, and say so."""

from __future__ import annotations

import operator
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import KernelrtWarning, ViewWarning
from kernelrt.tensor import hints

if TYPE_CHECKING:
    from collections.abc import Callable


def stored(*shape: int) -> krt.Tensor:
    x = krt.zeros(*shape)
    x.numpy()
    return x


def read(x: krt.Tensor) -> krt.Tensor:
    repr(x)
    return x


def added(x: krt.Tensor) -> krt.Tensor:
    x += 1
    return x


def in_a_trace(y: krt.Tensor, change: Callable[[krt.Tensor], object]) -> None:
    @krt.jit
    def f() -> None:
        change(y)

    f()


def gradient_of_product(x: krt.Tensor) -> krt.Tensor:
    """What a hook lets through, so that it is no value of its plan alone."""
    w = krt.ones(*x.shape, requires_grad=True)
    w.register_hook(lambda g: None)
    (w * x).sum().backward()
    assert w.grad is not None
    return w.grad


CHANGES = [
    lambda x: x[0].copy_(krt.ones(4)),
    lambda x: x[0].add_(1),
    lambda x: x.view(-1).fill_(1),
    lambda x: x.T.zero_(),
    lambda x: x.detach().mul_(2),
    lambda x: x[0].__setitem__(1, 5),
    lambda x: x[1:, :2].clamp_(1),
    lambda x: x.reshape(2, 6)[0].normal_(),
    lambda x: x[1:].reshape(-1).add_(1),
    lambda x: x.data[0].add_(1),
    lambda x: x[0].realize().zero_(),
    lambda x: read(x[0]).zero_(),
    lambda x: read(x.T).add_(1),
    lambda x: read(added(x[0])),
    lambda x: read(operator.iadd(x.reshape(-1), 1)),
    lambda x: read(operator.iadd(read(x[0]), 1)),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_part_changes_alone(change):
    x = stored(3, 4)
    with pytest.warns(ViewWarning, match="views do not share memory") as found:
        change(x)
    assert [w.filename for w in found] == [__file__]
    assert not x.numpy().any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        change(x)  # each line is told once


PENDING = {
    "a constant": lambda: krt.zeros(3, 4),
    "a result": lambda: krt.zeros(3, 4) * 2,
    "a view": lambda: (krt.zeros(13) * 2)[1:].view(3, 4),
    "with a history": lambda: krt.zeros(3, 4, requires_grad=True) * 2,
}
UNREAD = [
    lambda x: x[0].copy_(krt.ones(4)),
    lambda x: x[0].add_(1),
    lambda x: x[1].view(2, 2).fill_(1),
    lambda x: x.T.zero_().add_(1),
    lambda x: x.detach().add_(2),
    lambda x: x[0].__setitem__(1, 5),
    lambda x: x[1:, :2].clamp_(1),
    lambda x: x[0].reshape(2, 2)[0].normal_(),
    lambda x: read(added(x[0])),
]  # fmt: skip


@pytest.fixture
def untold(monkeypatch):
    """Let lines be told of that were before."""
    monkeypatch.setattr(hints, "_views", set())
    monkeypatch.setattr(hints, "_searched", {})


@pytest.mark.parametrize("change", UNREAD)
@pytest.mark.parametrize("make", PENDING.values(), ids=PENDING)
def test_a_part_of_what_is_not_computed_yet_changes_alone(make, change, untold):
    x = make()
    with krt.no_grad(), pytest.warns(ViewWarning, match="views do not share memory") as found:
        change(x)
    assert [w.filename for w in found] == [__file__]
    assert not x.detach().numpy().any()


@pytest.mark.parametrize("change", UNREAD[:-1])
def test_a_part_of_what_a_trace_or_a_body_makes_changes_alone(change, untold):
    @krt.jit
    def f(x):
        y = x * 2
        change(y)
        return y

    with pytest.warns(ViewWarning, match="views do not share memory"):
        assert not f(stored(3, 4)).numpy().any()

    def body(carry, _):
        change(carry)
        return carry, carry.sum()

    hints._views.clear()
    with pytest.warns(ViewWarning, match="views do not share memory"):
        assert not krt.scan(body, krt.zeros(3, 4), krt.arange(3))[1].numpy().any()


@pytest.mark.parametrize("make", PENDING.values(), ids=PENDING)
def test_equal_tensors_are_others(make, untold):
    """Their graphs are one."""
    with warnings.catch_warnings(), krt.no_grad():
        warnings.simplefilter("error")
        a, b = make(), make()
        a[0] = 1
        a += 1
        c = make()
        c.add_(1)
        assert b.tolist() == np.zeros((3, 4)).tolist()
        assert (a.sum().item(), c.sum().item()) == (16, 12)


def test_what_nobody_holds_says_nothing(untold):
    def forward(x):
        x = (x * 2).reshape(-1)
        x += 1
        x = x.view(4, 3)
        x[0] += 1
        h = (x + 1).T
        h.mul_(2)
        return h + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = forward(stored(3, 4))
        assert krt.jit(forward)(stored(3, 4)).tolist() == found.tolist()


FINE = [
    lambda x: x.__setitem__(0, x[0] + 1),
    lambda x: x[0].clone().add_(1),
    lambda x: (x[0] + 1).add_(1),
    lambda x: x.add_(1),
    lambda x: x.data.add_(1),
    lambda x: x[[0, 1]].add_(1),
    lambda x: x.T.reshape(-1).add_(1),
    lambda x: x[:, :2].reshape(-1).add_(1),
    lambda x: x.flip(0).add_(1),
    lambda x: krt.cat([x]).add_(1),
    lambda x: krt.stack([x]).add_(1),
    lambda x: x[:1].sum(0).add_(1),
    lambda x: read(x[:1].sum(0)).add_(1),
    lambda x: gradient_of_product(x).add_(1),
    lambda x: read(gradient_of_product(x)).add_(1),
    lambda x: krt.zeros(2, 3).view(-1).fill_(1),
    lambda x: krt.tensor(x).zero_(),
    lambda x: x.assign(1),
    lambda x: in_a_trace(x + 1, lambda y: y.__setitem__(0, 5)),
    lambda x: in_a_trace(x + 1, lambda y: y.add_(1)),
    lambda x: (x + 1).assign(x).zero_(),
    lambda x: (x + 1).copy_(x.requires_grad_()).mul_(2),
    lambda x: krt.Tensor(x.requires_grad_()).detach().clone().zero_(),
]  # fmt: skip


@pytest.mark.parametrize("change", FINE)
@pytest.mark.parametrize("make", [stored, lambda *shape: krt.zeros(*shape) + 1])
def test_what_changes_nothing_else_says_nothing(change, make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        change(make(3, 4))


def test_indexed_sums_reach_the_whole():
    x = stored(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x[1] += 2
        x[:, 0] -= 1
    assert x.tolist() == [[-1, 0, 0, 0], [1, 2, 2, 2], [-1, 0, 0, 0]]


def test_in_a_jitted_function():
    @krt.jit
    def f(x):
        x[0].add_(1)
        return x * 2

    with pytest.warns(ViewWarning, match="add_"):
        assert not f(stored(3, 4)).numpy().any()


def test_of_a_result_with_a_history_that_is_stored():
    w = stored(3, 4).requires_grad_()
    y = w * 2
    y.tolist()
    with pytest.warns(ViewWarning, match="zero_"):
        y.detach().zero_()


def silent(program):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program()
        krt.ones(1).tolist()  # tells what is noted


def test_training_scripts_are_told_nothing():
    def batches():
        data = krt.data.TensorDataset(krt.ones(8, 2, 2), krt.ones(8))
        for batch in krt.data.DataLoader(data, batch_size=4):
            x, y = batch
            del batch
            x.sub_(0.5)
            x = x.reshape(4, -1)
            x.sub_(0.5).div_(2.0)
            x -= 0.25
            y = y.unsqueeze(1)
            y.mul_(2)
            assert x[0, 0].item() == -0.25

    def shadows():
        layer = krt.nn.Linear(3, 2)
        averaged = {k: v.detach().clone() for k, v in layer.named_parameters()}
        for k, v in layer.named_parameters():
            averaged[k].mul_(0.9).add_(v.detach(), alpha=0.1)
            v.data.copy_(averaged[k])

    def parts():
        x = stored(3, 4)
        for i in range(3):
            x[i] += 1
            x[i][:2] = x[i, 2:]
            x[:, i] *= 2
        row = x[1]
        row += 1
        x[1] = row

    def own():
        x = stored(3, 4)
        x = x.reshape(-1)
        x.tolist()
        x.mul_(2)
        x = x[2:]
        x += 1
        x.zero_()

    for program in (batches, shadows, own):
        silent(program)
    with pytest.warns(ViewWarning, match="index"):
        parts()  # x[i][:2] = ... alone


def test_as_errors_they_are_raised_each_time():
    x = stored(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(ViewWarning):
                x[0].zero_()
        for _ in range(2):
            y = x[0]
            y += 1
            with pytest.raises(ViewWarning, match=r"\+="):
                y.tolist()
            assert y.tolist() == [1] * 4


def test_widening_as_an_error_is_raised_each_time():
    layer = krt.nn.Linear(3, 2)
    x = krt.ones(4, 3, dtype=krt.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(KernelrtWarning, match="float64"):
                layer(x)
