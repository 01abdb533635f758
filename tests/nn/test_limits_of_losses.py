"""Losses of infinite scores and of probabilities of 0: the limits, where torch gives NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("score", "chance", "loss"),
    [
        (INF, 1.0, 0.0), (-INF, 0.0, 0.0), (INF, 0.0, INF), (-INF, 1.0, INF), (INF, 0.25, INF),
        (-INF, 0.25, INF), (NAN, 0.0, NAN), (1e30, 1.0, 0.0), (-100.0, 1.0, 100.0),
    ],
)  # fmt: skip
def test_scores(score, chance, loss):
    x, y = krt.tensor([score, 0.0]), krt.tensor([chance, 1.0])
    found = x.binary_cross_entropy_with_logits(y, reduction="none").numpy()
    np.testing.assert_allclose(found, [loss, math.log(2)], rtol=1e-6)
    if math.isfinite(chance) and chance in (0, 1):
        several = x.reshape(1, 2).multilabel_soft_margin_loss(y.reshape(1, 2), reduction="none")
        np.testing.assert_allclose(several.numpy(), [(loss + math.log(2)) / 2], rtol=1e-6)


@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize(
    ("given", "chance", "loss", "slope"),
    [
        (-1.0, 0.0, 0.0, 0.0), (-INF, 0.0, 0.0, 0.0), (-INF, 0.5, INF, -0.5), (NAN, 0.0, NAN, 0.0),
        (-1.0, 1.0, 1.0, -1.0), (0.0, 1.0, 0.0, -1.0),
    ],
)  # fmt: skip
def test_divergence(given, chance, loss, slope, logarithms):
    target = krt.tensor(chance)
    target = (target.log() if logarithms else target).requires_grad_()
    x = krt.tensor(given).requires_grad_()
    found = x.kl_div(target, reduction="sum", log_target=logarithms)
    of_x, of_target = krt.grad(found, [x, target])
    np.testing.assert_allclose(found.item(), loss, rtol=1e-6)
    if not math.isnan(given):
        np.testing.assert_allclose(of_x.item(), slope, rtol=1e-6)
    if chance == 0 and given == -1:
        assert of_target.item() == 0


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_weights_have_the_shape_of_the_input(name):
    loss = getattr(krt.nn.functional, name)
    with pytest.raises(krt.ShapeError, match=rf"{name}: weight: expected the shape \(2, 3\)"):
        loss(krt.ones(2, 3), krt.ones(2, 3), weight=krt.ones(3))


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (2, 0)])
def test_distances_of_no_pairs_have_a_gradient(shape):
    x = krt.ones(*shape, requires_grad=True)
    found = krt.nn.functional.pdist(x)
    assert found.shape == (int(shape[0] == 2),)
    assert found.tolist() == [0.0] * int(shape[0] == 2)
    found.sum().backward()
    assert x.grad.tolist() == krt.zeros(*shape).tolist()
