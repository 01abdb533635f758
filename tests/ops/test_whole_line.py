"""Activations keep their digits over the whole line, also where they nearly vanish."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v)) if v > 0 else math.exp(v) / (1 + math.exp(v))


#: Of each its value and its derivative in float64, and how far its arguments may lie from 0.
TRUTH = {
    "sigmoid": (sigmoid, lambda v: sigmoid(v) * sigmoid(-v), 87, 708),
    "silu": (lambda v: v * sigmoid(v), lambda v: sigmoid(v) * (1 + v * sigmoid(-v)), 87, 708),
    "logsigmoid": (
        lambda v: -math.log1p(math.exp(-v)) if v > 0 else v - math.log1p(math.exp(v)),
        lambda v: sigmoid(-v), 87, 708,
    ),
    "elu": (
        lambda v: v if v > 0 else math.expm1(v), lambda v: 1 if v > 0 else math.exp(v), 87, 708,
    ),
    "erfc": (math.erfc, lambda v: -2 / math.sqrt(math.pi) * math.exp(-v * v), 9, 26),
    "tanh": (math.tanh, lambda v: 1 / math.cosh(v) ** 2, 87, 350),
    "expm1": (math.expm1, math.exp, 87, 708),
}  # fmt: skip
#: A gradient that is computed from the result is lost where that is rounded to its limit.
FROM_RESULT = {"sigmoid": (-math.inf, 3), "tanh": (-2, 2)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(TRUTH))
def test_relative_errors_are_small_everywhere(name: str, dtype: str) -> None:
    value, slope, *ends = TRUTH[name]
    end = ends[dtype == "float64"]
    rng = np.random.default_rng(3)
    points = np.concatenate([
        rng.uniform(-end, end, 400), rng.uniform(-9, 9, 400), -(2.0 ** rng.uniform(-30, 0, 60)),
    ]).astype(dtype)  # fmt: skip
    x = krt.tensor(points, requires_grad=True)
    y = getattr(x, name)()
    y.sum().backward()
    # What is rounded off a square, here and in math, weighs more where the function falls steeply.
    bound = 1e-5 if dtype == "float32" else 2e-12
    for got, truth, within in ((y, value, None), (x.grad, slope, FROM_RESULT.get(name))):
        want = np.array([truth(float(v)) for v in points])
        clear = np.abs(want) > np.finfo(dtype).tiny
        if within is not None:
            clear &= (points > within[0]) & (points < within[1])
        error = np.abs(got.detach().numpy() / want - 1)[clear]
        assert error.max() < bound, points[clear][error.argmax()]
