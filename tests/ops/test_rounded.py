"""What rounding by chance tells: how many digits a computation leaves, and what it may come to."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.rounded import Rounded  # noqa: E402

KINDS = ["float16", "bfloat16", "float32"]


def double(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_the_type_stay(kind):
    rng = np.random.default_rng(1)
    bits = rng.integers(-(2**15), 2**15, 4000).astype(np.int16 if kind != "float32" else np.int32)
    if kind == "float32":
        bits = bits * 65537
    exact = torch.from_numpy(bits).view(getattr(torch, kind)).double()
    with Rounded(kind, 1):
        found = exact * 1.0
    assert torch.equal(found.nan_to_num(7.0), exact.nan_to_num(7.0))


@pytest.mark.parametrize("kind", KINDS)
def test_others_become_one_of_their_two_neighbours(kind):
    exact = double(np.random.default_rng(2).normal(size=500))
    with Rounded(kind, 1):
        found = torch.stack([exact * 1.0 for _ in range(16)])
    rounded = exact.to(getattr(torch, kind)).double()
    step = torch.finfo(getattr(torch, kind)).eps * exact.abs()
    assert torch.equal(found.to(getattr(torch, kind)).double(), found)
    assert ((found - exact).abs() <= step).all()
    assert ((found == rounded).any(0) & (found != rounded).any(0)).all()


@pytest.mark.parametrize(("kind", "great"), [("float16", 65504.0), ("float32", 3.4028234e38)])
def test_too_great_is_infinite_and_below_the_least_is_it_or_nothing(kind, great):
    least = float(torch.finfo(getattr(torch, kind)).smallest_normal)
    tiny = least * torch.finfo(getattr(torch, kind)).eps
    with Rounded(kind, 1):
        assert torch.equal(double([great, -great]) * 2, double([torch.inf, -torch.inf]))
        found = double([tiny]).repeat(50) / 2
    assert sorted(set(found.tolist())) == [0.0, tiny]


def test_terms_that_cancel_within_an_operation_show_themselves():
    x = double([[1.0, 1.042]]).requires_grad_()
    weights = double([[0.3, -0.7]])

    def gradient():
        out = torch.nn.functional.layer_norm(x, (2,), eps=0.0)
        return torch.autograd.grad(out, x, weights)[0]

    exact = gradient()
    found = []
    for seed in range(8):
        with Rounded("float32", seed):
            found.append(gradient())
    reach = (torch.stack(found) - exact).abs().max().item()
    assert 1e-7 < reach < 1e-3


def test_what_keeps_its_digits_is_not_spread():
    x = double(np.linspace(1, 2, 50))
    with Rounded("float32", 3):
        found = (x * x + x).sqrt()
    assert ((found - (x * x + x).sqrt()).abs() < 4 * 2.0**-24 * found).all()


def test_what_torch_computes_at_once_has_steps_as_well():
    scores, labels = torch.ones(4, 1, dtype=torch.float64).requires_grad_(), torch.zeros(4).long()

    def gradient():
        loss = torch.nn.functional.cross_entropy(scores, labels, label_smoothing=0.1)
        return torch.autograd.grad(loss, scores)[0]

    assert torch.equal(gradient(), torch.zeros(4, 1))
    found = []
    for seed in range(8):
        with Rounded("float32", seed):
            found.append(gradient())
    assert 1e-9 < torch.stack(found).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["sum", "mean", "cumsum"])
def test_integers_are_rounded_before_they_are_added_up(name):
    x = torch.tensor([2**40 + 1, 2**41 + 3, -3 * 2**40 + 5])
    options = {"dim": 0} if name == "cumsum" else {}
    found = []
    for seed in range(8):
        with Rounded("float32", seed):
            found.append(getattr(x, name)(dtype=torch.float64, **options).reshape(-1)[-1])
    assert torch.stack(found).std() > 2**14


def test_equal_numbers_can_round_to_equal_ones():
    x = double([0.75, -0.75, 3.5])
    several = set()
    for seed in range(16):
        with Rounded("float32", seed, alike=True):
            first, second, both = x * 0.3, x.clone().mul(0.3), x[:, None].repeat(1, 3) * 0.3
        assert torch.equal(first, second)
        assert torch.equal(both, first[:, None].repeat(1, 3))
        assert first[0] == -first[1]
        several.add(tuple(first.tolist()))
    assert len(several) >= 4


def test_a_step_at_a_number_that_is_computed_goes_either_way():
    found = set()
    for seed in range(16):
        with Rounded("float32", seed, alike=True):
            found.add(torch.nn.functional.mish(double([9.0])).floor().item())
            assert double([9.0]).floor().item() == 9
    assert found == {8, 9}


def test_long_sums_are_off_by_more_than_a_digit():
    x = torch.from_numpy(np.random.default_rng(33).normal(size=19996).astype(np.float32)).double()
    at = 15905
    assert 0 < 3 - x.cumsum(0)[at] < 1e-5
    found = set()
    for seed in range(8):
        with Rounded("float32", seed, alike=True):
            found.add(x.cumsum(0).floor()[at].item())
            whole = x.round().cumsum(0)
        assert torch.equal(whole, x.round().cumsum(0))
    assert found == {2, 3}
