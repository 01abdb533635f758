"""First values of parameters: distributions by PyTorch's formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.nn import init

SHAPE = (200, 50, 3, 3)
FAN_IN, FAN_OUT = 450, 1800


def moments(t: krt.Tensor) -> tuple[float, float, float]:
    x = t.detach().numpy()
    return float(x.mean()), float(x.std()), float(np.abs(x).max())


@pytest.mark.parametrize(
    ("fill", "std", "bound"),
    [
        (lambda t: init.uniform_(t, -2, 2), 2 / math.sqrt(3), 2),
        (lambda t: init.normal_(t, 0, 3), 3, None),
        (init.kaiming_uniform_, math.sqrt(2 / FAN_IN), math.sqrt(6 / FAN_IN)),
        (lambda t: init.kaiming_normal_(t, mode="fan_out"), math.sqrt(2 / FAN_OUT), None),
        (
            lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)),
            math.sqrt(1 / 3 / FAN_IN),
            math.sqrt(1 / FAN_IN),
        ),
        (
            lambda t: init.xavier_uniform_(t, gain=2),
            2 * math.sqrt(2 / (FAN_IN + FAN_OUT)),
            2 * math.sqrt(6 / (FAN_IN + FAN_OUT)),
        ),
        (init.xavier_normal_, math.sqrt(2 / (FAN_IN + FAN_OUT)), None),
    ],
)
def test_distributions(fill, std: float, bound: float | None) -> None:
    krt.manual_seed(0)
    t = krt.empty(*SHAPE).requires_grad_()
    assert fill(t) is t
    mean, found, largest = moments(t)
    assert abs(mean) < 6 * std / math.sqrt(math.prod(SHAPE))
    assert found == pytest.approx(std, rel=0.01)
    if bound is not None:
        assert bound * 0.999 < largest <= bound
    assert t.requires_grad


def test_constants() -> None:
    t = krt.empty(3).requires_grad_()
    assert init.ones_(t).tolist() == [1, 1, 1]
    assert init.zeros_(t).tolist() == [0, 0, 0]
    assert init.constant_(t, 2.5).tolist() == [2.5] * 3


def test_layers_start_as_in_torch() -> None:
    krt.manual_seed(0)
    layer = nn.Linear(400, 300)
    _, std, largest = moments(layer.weight)
    assert largest <= 0.05
    assert std == pytest.approx(0.05 / math.sqrt(3), rel=0.01)
    assert 0.045 < moments(layer.bias)[2] <= 0.05
    conv = nn.Conv2d(16, 32, 5)
    assert 0.049 < moments(conv.weight)[2] <= 0.05
    _, std, _ = moments(nn.Embedding(100, 100).weight)
    assert std == pytest.approx(1, rel=0.03)


def test_a_seed_gives_the_same_model() -> None:
    models = []
    for seed in (1, 1, 2):
        krt.manual_seed(seed)
        models.append(nn.Linear(3, 3).weight.numpy())
    assert np.array_equal(models[0], models[1])
    assert not np.array_equal(models[0], models[2])


def test_gains_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(
        torch.nn.init.calculate_gain("leaky_relu", 0.3)
    )


def test_bad_arguments_are_named() -> None:
    with pytest.raises(krt.ShapeError, match="two axes"):
        init.xavier_uniform_(krt.empty(3))
    with pytest.raises(krt.DomainError, match="mode"):
        init.kaiming_uniform_(krt.empty(3, 3), mode="in")
    with pytest.raises(krt.DomainError, match="nonlinearity"):
        init.calculate_gain("step")
    with pytest.raises(krt.DTypeError, match="tensor"):
        init.normal_(krt.empty(3, dtype="int32"))
    with pytest.raises(krt.DTypeError, match="tensor"):
        init.normal_(np.ones(3))
