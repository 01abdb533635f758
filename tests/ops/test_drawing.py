"""Draws: their distribution, their shapes and types, fresh numbers in jit, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.nn.optim import SGD

N = 40_000


def ks(values: np.ndarray, cdf) -> float:
    """How far the values are from a distribution; 1.95 is passed by one sample of 1000."""
    x = np.sort(values.astype(np.float64))
    at = cdf(x)
    n = len(x)
    steps = np.arange(n) / n
    return max(np.abs(at - steps).max(), np.abs(at - steps - 1 / n).max()) * math.sqrt(n)


normal_cdf = np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))

CONTINUOUS = {
    "normal_": ((1.5, 2.0), lambda x: normal_cdf((x - 1.5) / 2)),
    "uniform_": ((-1.0, 3.0), lambda x: (x + 1) / 4),
    "exponential_": ((2.0,), lambda x: -np.expm1(-2 * x)),
    "log_normal_": ((0.5, 0.75), lambda x: normal_cdf((np.log(x) - 0.5) / 0.75)),
    "cauchy_": ((1.0, 0.5), lambda x: np.arctan((x - 1) / 0.5) / math.pi + 0.5),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_in_place_follow_their_distribution(name, dtype):
    krt.manual_seed(11)
    options, cdf = CONTINUOUS[name]
    x = krt.zeros(N, dtype=dtype)
    assert getattr(x, name)(*options) is x
    assert x.dtype.name == dtype
    assert ks(x.numpy(), cdf) < 1.95
    fresh = krt.jit(lambda: getattr(krt.zeros(5, dtype=dtype), name)(*options))
    assert fresh().tolist() != fresh().tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_draws_of_narrow_types(name, dtype):
    krt.manual_seed(5)
    options, cdf = CONTINUOUS[name]
    x = getattr(krt.zeros(2000, dtype=dtype), name)(*options)
    assert x.dtype.name == dtype
    assert ks(x.float().numpy(), cdf) < 3


def test_whole_numbers_follow_their_distribution():
    krt.manual_seed(3)
    counts = np.bincount(krt.zeros(N, dtype="int32").geometric_(0.25).numpy(), minlength=5)[:5] / N
    wanted = [0, *(0.25 * 0.75**k for k in range(4))]
    np.testing.assert_allclose(counts, wanted, atol=0.01)
    for p, x in ((0.3, krt.zeros(N)), (1.0, krt.zeros(10, dtype="bool")),
                 (0.0, krt.ones(10, dtype="int8"))):  # fmt: skip
        assert x.bernoulli_(p).double().mean().item() == pytest.approx(p, abs=0.01)
    p = krt.tensor([0.0, 0.2, 1.0])
    drawn = p.expand(N, 3).bernoulli()
    np.testing.assert_allclose(drawn.mean(0).numpy(), [0, 0.2, 1], atol=0.01)
    found = krt.zeros(N, 3).bernoulli_(p).mean(0).numpy()
    np.testing.assert_allclose(found, [0, 0.2, 1], atol=0.01)
    assert p.bernoulli(1.0).tolist() == [1, 1, 1]


@pytest.mark.parametrize(("dtype", "least", "most"), [
    ("int8", 0, 127), ("uint8", 0, 255), ("int64", 0, 2**63 - 1), ("float32", 0, 2**24),
    ("float16", 0, 2048), ("bool", 0, 1), ("uint64", 0, 2**64 - 1),
])  # fmt: skip
def test_integers_fill_the_type(dtype, least, most):
    x = krt.zeros(4000, dtype=dtype).random_()
    found = x.numpy().astype(np.float64) / most
    assert found.min() >= least
    assert found.max() <= 1
    assert found.mean() == pytest.approx(0.5, abs=0.03)


def test_integers_of_an_interval():
    x = krt.zeros(4000, dtype="int64")
    assert set(x.random_(3).tolist()) == {0, 1, 2}
    assert set(x.random_(-2, 1).tolist()) == {-2, -1, 0}
    wide = x.random_(-(1 << 63), 1 << 40).numpy()
    assert wide.min() < -(1 << 62)
    assert wide.max() < 1 << 40


@pytest.mark.parametrize("shape", [(4,), (2, 4), (0, 4)])
@pytest.mark.parametrize("replacement", [False, True])
def test_positions_have_the_shape_of_torch_s(shape, replacement):
    torch = pytest.importorskip("torch")
    x = np.full(shape, 0.25, np.float32)
    found = krt.tensor(x).multinomial(3, replacement)
    wanted = torch.tensor(x).multinomial(3, replacement)
    assert found.shape == tuple(wanted.shape)
    assert found.dtype is krt.int64


def test_positions_follow_their_weights():
    krt.manual_seed(7)
    weights = np.array([1.0, 0.0, 3.0, 6.0, 0.0])
    x = krt.tensor(weights)
    shares = np.bincount(x.multinomial(N, replacement=True).numpy(), minlength=5) / N
    np.testing.assert_allclose(shares, weights / 10, atol=0.01)
    rows = x.expand(N, 5).multinomial(2).numpy()
    assert (rows[:, 0] != rows[:, 1]).all()
    first = np.bincount(rows[:, 0], minlength=5) / N
    np.testing.assert_allclose(first, weights / 10, atol=0.01)
    after = rows[rows[:, 0] == 3, 1]  # of the rest, 1 to 3
    np.testing.assert_allclose((after == 2).mean(), 0.75, atol=0.01)


@pytest.mark.parametrize("row", [
    [1.0, -1.0, 2.0], [1.0, math.nan, 1.0], [1.0, math.inf, 1.0], [0.0, 0.0, 0.0],
])  # fmt: skip
@pytest.mark.parametrize("replacement", [False, True])
def test_weights_that_say_nothing_raise_when_they_are_drawn_from(row, replacement):
    with pytest.raises(krt.DomainError, match="probabilities: multinomial"):
        krt.tensor([[1.0, 1.0, 1.0], row]).multinomial(1, replacement).realize()


def test_too_few_positive_weights():
    with pytest.raises(krt.DomainError, match="probabilities: multinomial"):
        krt.tensor([1.0, 0.0, 0.0]).multinomial(2).realize()


def test_soft_draws_and_hard_ones():
    krt.manual_seed(1)
    logits = krt.tensor(np.log([[0.1, 0.2, 0.7]] * 20_000), requires_grad=True)
    hard = logits.gumbel_softmax(0.5, hard=True)
    np.testing.assert_allclose(hard.detach().mean(0).numpy(), [0.1, 0.2, 0.7], atol=0.015)
    assert set(np.unique(hard.detach().numpy().round(12))) == {0.0, 1.0}
    (hard * krt.arange(3)).sum().backward()
    assert (logits.grad.numpy() != 0).any()
    np.testing.assert_allclose(logits.grad.sum(1).numpy(), 0, atol=1e-6)
    soft = logits.detach().gumbel_softmax(2.0)
    np.testing.assert_allclose(soft.sum(1).numpy(), 1, atol=1e-9)
    assert krt.zeros(3, 2).gumbel_softmax(dim=0, hard=True).sum(0).tolist() == [1, 1]


def test_orders():
    krt.manual_seed(2)
    assert sorted(krt.randperm(1000).tolist()) == list(range(1000))
    assert krt.randperm(0).shape == (0,)
    assert krt.randperm(5, dtype="int32").dtype is krt.int32
    draw = krt.jit(lambda: krt.randperm(4)[0])
    firsts = [draw().item() for _ in range(2000)]
    np.testing.assert_allclose(np.bincount(firsts) / 2000, 0.25, atol=0.04)
    fresh = krt.jit(lambda: krt.randperm(50))
    assert fresh().tolist() != fresh().tolist()


def test_normal_around_tensors():
    krt.manual_seed(4)
    mean, std = krt.tensor([[0.0], [10.0]]), krt.tensor([1.0, 0.0, 2.0])
    drawn = krt.stack([krt.normal(mean, std) for _ in range(300)])
    assert drawn.shape == (300, 2, 3)
    np.testing.assert_allclose(drawn.mean(0).numpy(), [[0, 0, 0], [10, 10, 10]], atol=0.4)
    np.testing.assert_allclose(drawn.std(0).numpy(), [[1, 0, 2], [1, 0, 2]], atol=0.3)
    assert krt.normal(mean, 2.0).shape == (2, 1)
    assert krt.normal(1.0, std).shape == (3,)
    assert krt.normal(mean).shape == (2, 1)
    assert krt.normal(5.0, 0.0, (2, 2)).tolist() == [[5, 5], [5, 5]]
    assert krt.normal(5.0, 0.0, size=(2,)).tolist() == [5, 5]
    assert krt.normal(2, 3).shape == (2, 3)
    assert krt.normal(7, std=krt.zeros(2)).tolist() == [7, 7]
    assert krt.normal(2, 3, std=krt.zeros(3)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert krt.normal((2,), mean=krt.tensor(3.0), std=0.0).tolist() == [3, 3]
    assert krt.normal(krt.tensor(3.0), 0.0, size=(2,)).tolist() == [3, 3]
    assert krt.normal(1.0, krt.zeros(3), (2, 3)).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert krt.randint_like(mean, 3).dtype is krt.float32


def test_draws_within_a_jitted_training_step():
    w = krt.ones(4, requires_grad=True)
    opt = SGD([w], 0.1)

    @krt.jit
    def step():
        opt.zero_grad()
        loss = (w * krt.zeros(4).bernoulli_(0.5)).sum()
        loss.backward()
        opt.step()
        return krt.ones(4).multinomial(2)

    seen = {tuple(step().tolist()) for _ in range(20)}
    assert len(seen) > 3
    assert len(set(w.tolist())) > 1


@pytest.mark.parametrize(("kind", "text", "call"), [
    (krt.ShapeError, "num_samples", lambda x: x.multinomial(0)),
    (krt.ShapeError, "num_samples: expected at most 3", lambda x: x.multinomial(4)),
    (krt.DTypeError, "num_samples", lambda x: x.multinomial(1.5)),
    (krt.ShapeError, "multinomial", lambda x: krt.ones(2, 2, 2).multinomial(1)),
    (krt.ShapeError, "a last axis of at least one", lambda x: krt.ones(2, 0).multinomial(1)),
    (krt.DTypeError, "multinomial", lambda x: krt.arange(3).multinomial(1)),
    (krt.DTypeError, "bernoulli", lambda x: krt.arange(3).bernoulli()),
    (krt.DomainError, "p: expected", lambda x: x.bernoulli_(1.5)),
    (krt.DomainError, "p: expected", lambda x: x.bernoulli(math.nan)),
    (krt.DomainError, "p: expected", lambda x: x.geometric_(1.0)),
    (krt.DomainError, "std", lambda x: x.normal_(0, -1)),
    (krt.DTypeError, "normal_", lambda x: krt.arange(3).normal_()),
    (krt.DomainError, "a, b", lambda x: x.uniform_(2, 1)),
    (krt.DomainError, "lambd", lambda x: x.exponential_(0)),
    (krt.DomainError, "sigma", lambda x: x.cauchy_(0, -1)),
    (krt.DomainError, "from_, to", lambda x: x.random_(5, 5)),
    (krt.DTypeError, "int8 cannot represent", lambda x: krt.zeros(2, dtype="int8").random_(0, 300)),
    (krt.DomainError, "tau", lambda x: x.gumbel_softmax(0)),
    (krt.ShapeError, "n: expected", lambda x: krt.randperm(-1)),
    (krt.DTypeError, "n: expected", lambda x: krt.randperm(2.5)),
    (krt.DTypeError, "mean", lambda x: krt.normal(krt.arange(3), 1.0)),
    (krt.ShapeError, "size: .* do not broadcast to", lambda x: krt.normal(x, 1.0, size=(2,))),
    (krt.ShapeError, "size: .* do not broadcast to", lambda x: krt.normal(2, 2, std=x)),
])  # fmt: skip
def test_bad_arguments_are_named(kind, text, call):
    with pytest.raises(kind, match=text):
        call(krt.ones(3))
