"""Changes in place of what PyTorch would let share memory: they reach no other, and say so."""

from __future__ import annotations

import warnings

import pytest

import kernelrt as krt
from kernelrt.errors import ViewWarning


def stored(*shape: int) -> krt.Tensor:
    x = krt.zeros(*shape)
    x.numpy()
    return x


CHANGES = [
    lambda x: x[0].copy_(krt.ones(4)),
    lambda x: x[0].add_(1),
    lambda x: x.view(-1).fill_(1),
    lambda x: x.T.zero_(),
    lambda x: x.detach().mul_(2),
    lambda x: x[0].__setitem__(1, 5),
    lambda x: x[1:, :2].clamp_(1),
    lambda x: x.reshape(2, 6)[0].normal_(),
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


FINE = [
    lambda x: x.__setitem__(0, x[0] + 1),
    lambda x: x[0].clone().add_(1),
    lambda x: (x[0] + 1).add_(1),
    lambda x: x.add_(1),
    lambda x: x.data.add_(1),
    lambda x: x[0].__iadd__(1),
    lambda x: krt.zeros(2, 3).view(-1).fill_(1),
    lambda x: krt.tensor(x).zero_(),
    lambda x: x.assign(1),
]  # fmt: skip


@pytest.mark.parametrize("change", FINE)
def test_what_changes_nothing_else_says_nothing(change):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        change(stored(3, 4))


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
