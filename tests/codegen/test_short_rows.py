"""Rows of a few elements that take long to compute: vectors go from row to row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelrt as krt

if TYPE_CHECKING:
    from numpy.typing import NDArray

RNG = np.random.default_rng(11)


def log_softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = x - x.max(-1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


@pytest.mark.parametrize("classes", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 100, 517])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_of_few_classes(classes: int, rows: int, dtype: str) -> None:
    x = (RNG.standard_normal((rows, classes)) * 5).astype(dtype)
    both = krt.jit(lambda x: (x.log_softmax(-1), x.softmax(-1) + 1))
    logs, parts = both(krt.tensor(x))
    want, near = log_softmax(x.astype(float)), 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(logs.numpy(), want, rtol=near, atol=near)
    np.testing.assert_allclose(parts.numpy(), np.exp(want) + 1, rtol=near, atol=near)


@pytest.mark.parametrize("rows", [1, 16, 33, 700])
def test_of_an_open_number_of_rows(rows: int) -> None:
    n = krt.Variable("n", 1, 1000)
    logs = krt.jit(lambda x: x.log_softmax(-1), dynamic={"x": {0: n}})
    x = RNG.standard_normal((rows, 2)).astype(np.float32)
    np.testing.assert_allclose(logs(x).numpy(), log_softmax(x.astype(float)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_gradients_of_what_was_chosen(classes: int) -> None:
    members, rows, table = 3, 40, 90
    x = krt.tensor(RNG.standard_normal((members, rows, classes)).astype(np.float32))
    scale = krt.tensor(RNG.standard_normal((members, table)).astype(np.float32))
    places = krt.tensor(RNG.integers(0, table, (members, rows)))
    chosen = krt.tensor(RNG.integers(0, classes, (members, rows)))

    def loss(x: krt.Tensor) -> krt.Tensor:
        logs = x.log_softmax(-1)
        own = krt.vmap(lambda t, i: t[i])(scale, places)
        ratio = logs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1).exp()
        return (ratio * (own - own.mean(-1, keepdim=True)) - (logs.exp() * logs).sum(-1)).sum()

    found = krt.jit(krt.func.grad(loss))(x).numpy()
    logs = log_softmax(x.numpy().astype(float))
    p, own = np.exp(logs), np.take_along_axis(scale.numpy(), places.numpy(), 1).astype(float)
    own -= own.mean(-1, keepdims=True)
    hot = np.eye(classes)[chosen.numpy()]
    of_ratio = (p * hot).sum(-1, keepdims=True) * own[..., None] * (hot - p)
    of_entropy = p * (logs - (p * logs).sum(-1, keepdims=True))
    np.testing.assert_allclose(found, of_ratio - of_entropy, rtol=1e-4, atol=1e-5)


def test_a_state_is_changed_in_place() -> None:
    x = RNG.standard_normal((200, 2)).astype(np.float32)
    state = krt.tensor(x)

    @krt.jit
    def turn() -> None:
        state.assign(state.softmax(-1).log() * 2 + state)

    turn()
    want = x + 2 * log_softmax(x.astype(float))
    np.testing.assert_allclose(state.numpy(), want, rtol=1e-4, atol=1e-5)


def test_vectors_go_from_row_to_row() -> None:
    x = krt.rand(4096, 2)
    logs = krt.jit(lambda x: x.log_softmax(-1))
    (kernel,) = [launch.kernel for launch in logs.profile(x)]
    lanes = kernel.target.vector_bits // 32
    # A vector takes two registers where the cost model finds enough of them.
    assert re.search(rf"vectors of ({lanes}|{2 * lanes})\b", kernel.loops())


def test_cheap_rows_are_stored_as_they_lie() -> None:
    x, y = krt.rand(4096, 2), krt.rand(4096)
    scaled = krt.jit(lambda x, y: x * y.unsqueeze(-1))
    (kernel,) = [launch.kernel for launch in scaled.profile(x, y)]
    assert "vectors of 2" in kernel.loops()
