"""Augmented assignments: of a parameter in place, without gradients only, else a new tensor."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

SIGNS = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow,
}  # fmt: skip
START = np.array([1.5, 2.0, 0.5], np.float32)
every_sign = pytest.mark.parametrize("sign", SIGNS)
OTHERS = [2, 0.5, np.float32(3), np.full(3, 2, np.float32), np.full((), 2, np.float32)]


@every_sign
@pytest.mark.parametrize("other", OTHERS, ids=str)
@pytest.mark.parametrize("jitted", [False, True])
def test_parameters_change_in_place_without_gradients(sign: str, other: Any, jitted: bool) -> None:
    torch = pytest.importorskip("torch")
    w = krt.tensor(START, requires_grad=True)
    v = torch.tensor(START, requires_grad=True)

    def step() -> None:
        with krt.no_grad():
            for p in [w]:
                assert SIGNS[sign](p, other) is w

    step = krt.jit(step) if jitted else step
    for _ in range(3):
        step()
        with torch.no_grad():
            SIGNS[sign](v, torch.tensor(other) if isinstance(other, np.ndarray) else other)
        np.testing.assert_allclose(w.numpy(), v.detach().numpy(), rtol=1e-5)
    assert w.requires_grad
    assert w.is_leaf
    (w * 2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 2, 2]


@every_sign
def test_with_gradients_it_is_an_error_that_says_how(sign: str) -> None:
    w = krt.tensor(START, requires_grad=True)
    with pytest.raises(krt.GradientError, match=rf"^{re.escape(sign)}: .*no_grad"):
        SIGNS[sign](w, 2)
    with pytest.raises(krt.GradientError, match="no_grad"):
        krt.jit(lambda x: SIGNS[sign](w, x))(START)
    np.testing.assert_array_equal(w.numpy(), START)


@every_sign
def test_other_tensors_are_values(sign: str) -> None:
    a = krt.tensor(START)
    b = a
    b = SIGNS[sign](b, 2)
    assert b is not a
    np.testing.assert_array_equal(a.numpy(), START)
    w = krt.tensor(START, requires_grad=True)
    y = w * 1
    SIGNS[sign](y, 2).sum().backward()  # results of operations stay part of the graph
    assert w.grad is not None


def test_shapes_and_types_that_do_not_fit_leave_it_as_it_was() -> None:
    w = krt.tensor(START, requires_grad=True)
    with krt.no_grad(), pytest.raises(krt.ShapeError, match="does not broadcast"):
        w += np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(w.numpy(), START)


def test_descent_by_hand_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 4), np.float32), rng.standard_normal((5, 2), np.float32)
    theirs = torch.nn.Linear(4, 2)
    model = nn.Linear(4, 2)
    model.load_state_dict(theirs.state_dict())

    @krt.jit
    def step(x, y):
        loss = model(x).mse_loss(y)
        loss.backward()
        with krt.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad  # noqa: PLW2901 - in place
        model.zero_grad()
        return loss

    for _ in range(4):
        loss = torch.nn.functional.mse_loss(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        with torch.no_grad():
            for p in theirs.parameters():
                p -= 0.1 * p.grad  # noqa: PLW2901 - in place
        theirs.zero_grad()
        np.testing.assert_allclose(step(x, y).item(), loss.item(), rtol=1e-5)
    for p, q in zip(model.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), atol=1e-6)
