"""What is written to `data` is written to the tensor, as in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import GradientError

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")

WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "polyak": lambda p, q: p.data.mul_(0.9).add_(q.data, alpha=0.1),
    "two_steps": lambda p, q: (p.data.mul_(0.9), p.data.add_(0.1 * q.data)),
    "copy": lambda p, q: p.data.copy_(0.1 * q.data + 0.9 * p.data),
    "fill": lambda p, _: p.data.fill_(0.5),
    "zero": lambda p, _: p.data.zero_(),
    "clamp": lambda p, _: p.data.clamp_(-0.1, 0.2),
    "part": lambda p, _: p.data.__setitem__(1, 7.0),
    "every_part": lambda p, q: p.data.__setitem__(slice(None), q.data + 1),
    "mask": lambda p, _: p.data.__setitem__(p.data > 1, 0.0),
    "set": lambda p, q: setattr(p, "data", p.data + q.data),
}


def _augmented(p: Any, q: Any) -> None:
    p.data += q.data
    p.data *= 2


WAYS["augmented"] = _augmented


def _leaves(k: Any) -> tuple[Any, Any]:
    start = np.arange(6, dtype=np.float32).reshape(2, 3) / 3
    p = k.tensor(start.tolist(), requires_grad=True)
    return p, k.tensor((start * 2 + 1).tolist(), requires_grad=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("jitted", [False, True])
def test_writing_to_data_writes_to_the_tensor(way: str, jitted: bool) -> None:
    p, q = _leaves(krt)
    wanted, other = _leaves(torch)

    def step() -> None:
        WAYS[way](p, q)

    do = krt.jit(step) if jitted else step
    for _ in range(3):
        do()
        WAYS[way](wanted, other)
    np.testing.assert_allclose(p.numpy(), wanted.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(q.numpy(), other.detach().numpy(), rtol=1e-6)
    assert p.requires_grad
    assert p.is_leaf


@pytest.mark.parametrize("read", [False, True])
def test_data_that_is_kept_follows_what_is_written_to_it(read: bool) -> None:
    p, _ = _leaves(krt)
    kept = p.data
    if read:
        assert kept.sum().item() == 5
        krt.realize(kept)
    kept.mul_(2)
    assert kept.tolist() == p.tolist()
    kept.add_(1)
    assert kept.tolist() == p.tolist()
    kept[0] = 3.0
    assert kept.tolist() == p.tolist()


def test_initial_values_are_written_by_data() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.data.normal_(0.0, 0.02)
    layer.bias.data.zero_()
    assert 0 < layer.weight.abs().max().item() < 0.2
    assert layer.bias.tolist() == [0, 0]
    nn.init.constant_(layer.weight.data, 0.25)
    assert layer.weight.tolist() == [[0.25] * 3] * 2


def test_data_takes_no_history() -> None:
    p, q = _leaves(krt)
    before = p.tolist()
    with pytest.raises(GradientError, match="history"):
        p.data.add_(q)
    with pytest.raises(GradientError, match="history"):
        p.data[0] = q[0]
    assert p.tolist() == before
    with krt.no_grad():
        p.data.add_(q)
    np.testing.assert_allclose(p.numpy(), np.array(before) + q.numpy(), rtol=1e-6)


def test_writing_to_data_computes_the_tensor_alone() -> None:
    p, _ = _leaves(krt)
    p.data.mul_(2)
    krt.realize()
    old = p * 1.0
    p.data.mul_(2)  # `old` keeps the value that it was made from
    np.testing.assert_allclose(old.detach().numpy() * 2, p.numpy())
