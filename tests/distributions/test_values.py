"""Densities, entropies, moments and divergences against PyTorch's, with their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import distributions as ours

torch = pytest.importorskip("torch")
theirs = torch.distributions

RNG = np.random.default_rng(0)
POS = RNG.uniform(0.3, 3.0, (2, 3))
POS2 = RNG.uniform(0.3, 3.0, (3,))
REAL = RNG.standard_normal((2, 3))
REAL2 = RNG.standard_normal((3,))
UNIT = RNG.uniform(0.1, 0.9, (2, 3))
UNIT2 = RNG.uniform(0.1, 0.9, (3,))
SIGNED = np.array([[0.8, -0.4, 0.3], [-0.2, -0.7, 0.1]])
ROWS = RNG.uniform(0.5, 3.0, (2, 4))
ROWS2 = RNG.uniform(0.5, 3.0, (4,))
LOWER = np.tril(RNG.standard_normal((2, 3, 3))) * 0.3 + np.eye(3)
LOWER2 = np.tril(RNG.standard_normal((3, 3))) * 0.3 + np.eye(3)
DEFINITE = LOWER @ LOWER.swapaxes(-1, -2)
HOT = np.eye(4)[[1, 3]]
CORRELATIONS = LOWER / np.sqrt((LOWER * LOWER).sum(-1, keepdims=True))
CORRELATIONS *= np.sign(CORRELATIONS.diagonal(0, -2, -1))[..., None]

#: How each is made of parameters, parameters of two of them, and a value.
CASES = {
    "Normal": (lambda d, a, b: d.Normal(a, b), (REAL, POS), (REAL2, POS2), REAL + 0.3),
    "LogisticNormal": (lambda d, a, b: d.LogisticNormal(a, b), (REAL, POS), (REAL2, POS2),
                       ROWS / ROWS.sum(-1, keepdims=True)),
    "LogNormal": (lambda d, a, b: d.LogNormal(a, b), (REAL, POS), (REAL2, POS2), POS),
    "Laplace": (lambda d, a, b: d.Laplace(a, b), (REAL, POS), (REAL2, POS2), REAL + 0.3),
    "Cauchy": (lambda d, a, b: d.Cauchy(a, b), (REAL, POS), (REAL2, POS2), REAL + 0.3),
    "Gumbel": (lambda d, a, b: d.Gumbel(a, b), (REAL, POS), (REAL2, POS2), REAL + 0.3),
    "StudentT": (lambda d, n, a, b: d.StudentT(n, a, b), (POS + 2, REAL, POS),
                 (POS2 + 2, REAL2, POS2), REAL + 0.3),
    "StudentT low": (lambda d, n: d.StudentT(n), (POS * 0.5,), (POS2,), REAL),
    "Uniform": (lambda d, a, b: d.Uniform(a, a + b), (REAL, POS), (REAL2 - 5, POS2 + 10),
                REAL + 0.1),
    "Gamma": (lambda d, a, b: d.Gamma(a, b), (POS, POS[::-1].copy()), (POS2, POS2[::-1].copy()),
              POS),
    "Chi2": (lambda d, a: d.Chi2(a), (POS * 2,), (POS2,), POS),
    "FisherSnedecor": (lambda d, a, b: d.FisherSnedecor(a, b), (POS + 2, POS[::-1] + 4),
                       (POS2, POS2[::-1] + 4), POS),
    "FisherSnedecor low": (lambda d, a: d.FisherSnedecor(a, a), (POS,), (POS2,), POS),
    "HalfNormal": (lambda d, a: d.HalfNormal(a), (POS,), (POS2,), POS),
    "HalfCauchy": (lambda d, a: d.HalfCauchy(a), (POS,), (POS2,), POS),
    "Weibull": (lambda d, a, b: d.Weibull(a, b), (POS, POS[::-1] + 1), (POS2, POS2 + 1), POS),
    "Pareto": (lambda d, a, b: d.Pareto(a, b), (POS, POS[::-1].copy()), (POS2, POS2[::-1].copy()),
               POS * 3 + 2.5),
    "GeneralizedPareto": (lambda d, a, b, c: d.GeneralizedPareto(a, b, c), (REAL, POS, SIGNED),
                          (REAL2, POS2, SIGNED[0]), REAL + 0.4),
    "GeneralizedPareto uniform": (lambda d, a, b: d.GeneralizedPareto(a, b, a * 0 - 1), (REAL, POS),
                                  (REAL2, POS2), REAL + 0.2),
    "Kumaraswamy": (lambda d, a, b: d.Kumaraswamy(a, b), (POS, POS[::-1].copy()),
                    (POS2, POS2[::-1].copy()), UNIT),
    "InverseGamma": (lambda d, a, b: d.InverseGamma(a, b), (POS, POS[::-1].copy()),
                     (POS2, POS2[::-1].copy()), POS),
    "VonMises": (lambda d, a, b: d.VonMises(a, b), (REAL, POS), (REAL2, POS2), REAL + 0.3),
    "NegativeBinomial": (lambda d, n, p: d.NegativeBinomial(n, p), (POS + 2, UNIT), (POS2, UNIT2),
                         np.array([[0.0, 9, 4], [2, 0, 7]])),
    "NegativeBinomial logits": (lambda d, p: d.NegativeBinomial(3.0, logits=p), (REAL,), (REAL2,),
                                np.array([[0.0, 9, 4], [2, 0, 7]])),
    "Multinomial": (lambda d, p: d.Multinomial(7, p), (ROWS,), (ROWS2,),
                    np.array([[0.0, 3, 4, 0], [2, 0, 4, 1]])),
    "RelaxedBernoulli": (lambda d, p: d.RelaxedBernoulli(d.Normal(0.7, 1.0).mean, p), (UNIT,),
                         (UNIT2,), UNIT[::-1].copy()),
    "RelaxedBernoulli logits": (lambda d, p: d.RelaxedBernoulli(d.Normal(0.7, 1.0).mean, logits=p),
                                (REAL,), (REAL2,), UNIT),
    "RelaxedOneHotCategorical": (
        lambda d, p: d.RelaxedOneHotCategorical(d.Normal(0.7, 1.0).mean, p), (ROWS,), (ROWS2,),
        ROWS / ROWS.sum(-1, keepdims=True)),
    "Exponential": (lambda d, a: d.Exponential(a), (POS,), (POS2,), POS),
    "Beta": (lambda d, a, b: d.Beta(a, b), (POS, POS[::-1].copy()), (POS2, POS2[::-1].copy()),
             UNIT),
    "Dirichlet": (lambda d, a: d.Dirichlet(a), (ROWS,), (ROWS2,),
                  ROWS / ROWS.sum(-1, keepdims=True)),
    "Bernoulli": (lambda d, p: d.Bernoulli(p), (UNIT,), (1 - UNIT**2,),
                  np.array([[0.0, 1, 1], [1, 0, 0]])),
    "Bernoulli logits": (lambda d, p: d.Bernoulli(logits=p), (REAL,), (REAL + 0.5,),
                         np.array([[0.0, 1, 1], [1, 0, 0]])),
    "ContinuousBernoulli": (lambda d, p: d.ContinuousBernoulli(p), (UNIT,), (UNIT2,),
                            UNIT[::-1].copy()),
    "ContinuousBernoulli logits": (lambda d, p: d.ContinuousBernoulli(logits=p), (REAL * 4,),
                                   (REAL2,), np.array([[0.0, 1, 0.3], [0.2, 0, 1]])),
    "Categorical": (lambda d, p: d.Categorical(p), (ROWS,), (ROWS2,), np.array([1, 3])),
    "Categorical logits": (lambda d, p: d.Categorical(logits=p), (ROWS,), (ROWS2,),
                           np.array([1, 3])),
    "OneHotCategorical": (lambda d, p: d.OneHotCategorical(p), (ROWS,), (ROWS2,), HOT),
    "OneHotCategoricalStraightThrough": (
        lambda d, p: d.OneHotCategoricalStraightThrough(p), (ROWS,), (ROWS2,), HOT),
    "Geometric": (lambda d, p: d.Geometric(p), (UNIT,), (UNIT2,),
                  np.array([[0.0, 1, 4], [2, 0, 7]])),
    "Geometric logits": (lambda d, p: d.Geometric(logits=p), (REAL,), (REAL2,),
                         np.array([[0.0, 1, 4], [2, 0, 7]])),
    "Poisson": (lambda d, a: d.Poisson(a), (POS,), (POS2,), np.array([[0.0, 1, 4], [2, 0, 7]])),
    "Binomial": (lambda d, p: d.Binomial(9, p), (UNIT,), (UNIT2,),
                 np.array([[0.0, 9, 4], [2, 0, 7]])),
    "MultivariateNormal": (lambda d, a, s: d.MultivariateNormal(a, scale_tril=s.tril()),
                           (REAL, LOWER), (REAL2, LOWER2), REAL + 0.2),
    "MultivariateNormal covariance": (
        lambda d, a, s: d.MultivariateNormal(a, covariance_matrix=s @ s.mT),
        (REAL, LOWER), (REAL2, LOWER2), REAL + 0.2),
    "MultivariateNormal precision": (
        lambda d, a, s: d.MultivariateNormal(a, precision_matrix=s @ s.mT),
        (REAL, LOWER), (REAL2, LOWER2), REAL + 0.2),
    # The gradient of the matrix itself, not of what makes it symmetric.
    **{f"MultivariateNormal of {name}": (
        lambda d, a, s, name=name: d.MultivariateNormal(a, **{name: s}), (REAL2, DEFINITE),
        (REAL2 + 1, DEFINITE * 2), REAL + 0.2)
       for name in ("covariance_matrix", "precision_matrix")},
    "LowRankMultivariateNormal": (
        lambda d, a, w, v: d.LowRankMultivariateNormal(a, w, v), (REAL, LOWER[..., :2], POS),
        (REAL2, LOWER2[..., :1], POS2), REAL + 0.2),
    "Independent": (lambda d, a, b: d.Independent(d.Normal(a, b), 1), (REAL, POS), (REAL + 1, POS),
                    REAL + 0.3),
    "Transformed": (lambda d, a, b: d.TransformedDistribution(
        d.Normal(a, b), [d.SigmoidTransform(), d.AffineTransform(-1.0, 3.0)]), (REAL, POS),
        (REAL2, POS2), UNIT),
    # One at a time: of a batch torch's divergence is wrong.
    "Wishart": (lambda d, n, s: d.Wishart(n, scale_tril=s.tril()), (np.array(5.5), LOWER2),
                (np.array(4.5), LOWER[0]), DEFINITE[0]),
    "Wishart covariance": (lambda d, n, s: d.Wishart(n, s), (np.array(5.5), DEFINITE[1]),
                           (np.array(2.5), DEFINITE[0]), DEFINITE[0] + np.eye(3)),
    "Wishart precision": (lambda d, n, s: d.Wishart(n, precision_matrix=s),
                          (np.array(2.5), DEFINITE[1]), (np.array(4.5), DEFINITE[0]), DEFINITE[0]),
    "LKJCholesky": (lambda d, c: d.LKJCholesky(3, c), (POS[:, 0],), (POS2[:2],), CORRELATIONS),
    "Transformed to shares": (lambda d, a, b: d.TransformedDistribution(
        d.Normal(a, b), d.StickBreakingTransform()), (REAL, POS), (REAL2, POS2),
        ROWS / ROWS.sum(-1, keepdims=True)),
    "Transformed to correlations": (lambda d, a: d.TransformedDistribution(
        d.Independent(d.Normal(a, 1.0), 1),
        [d.AffineTransform(0.0, 0.5), d.CorrCholeskyTransform()]), (REAL,), (REAL2,), CORRELATIONS),
    "Mixture": (lambda d, w, a, b: d.MixtureSameFamily(d.Categorical(w), d.Normal(a, b)),
                (POS, REAL, POS), (POS, REAL, POS), np.array([0.3, -1.0])),
    "Mixture of vectors": (lambda d, w, a, b: d.MixtureSameFamily(
        d.Categorical(w), d.Independent(d.Normal(a, b), 1)),
        (ROWS[0, :2], REAL, POS), (ROWS[0, :2], REAL, POS), REAL2),
}  # fmt: skip


def leaves(arrays, dtype="float64"):
    a = [krt.tensor(v, dtype=dtype, requires_grad=True) for v in arrays]
    return a, [torch.tensor(v, dtype=getattr(torch, dtype), requires_grad=True) for v in arrays]


def fixed(value):
    return krt.tensor(value), torch.tensor(value)


def compare(found, wanted, a, b, near=1e-6):
    """Values, and gradients of a weighted sum."""
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=near,
                               atol=near)  # fmt: skip
    if not wanted.requires_grad or not torch.isfinite(wanted).all():
        return
    weights = np.random.default_rng(3).uniform(0.5, 2, wanted.shape)
    for p, q in zip(a, b, strict=True):
        p.grad = q.grad = None
    (found * krt.tensor(weights, dtype=found.dtype)).sum().backward()
    (wanted * torch.tensor(weights, dtype=wanted.dtype)).sum().backward()
    for p, q in zip(a, b, strict=True):
        mine = np.zeros(p.shape) if p.grad is None else p.grad.numpy()
        other = np.zeros(p.shape) if q.grad is None else q.grad.numpy()
        np.testing.assert_allclose(mine, other, rtol=near * 10, atol=near * 10)


@pytest.fixture(autouse=True)
def numbers_of_torch(request):
    """torch compares the concentration with a number of its default type, and takes no other."""
    wide = "GeneralizedPareto" in request.node.name and "float32" not in request.node.name
    torch.set_default_dtype(torch.float64 if wide else torch.float32)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", CASES)
def test_log_prob_is_that_of_torch(name):
    make, params, _, value = CASES[name]
    a, b = leaves(params)
    x, y = fixed(value)
    if x.dtype.is_float and "OneHot" not in name:
        x.requires_grad_()
        y.requires_grad_()
    p, q = make(ours, *a), make(theirs, *b)
    discrete = getattr(q.support, "is_discrete", False)
    also = [] if discrete else [x]
    compare(p.log_prob(x), q.log_prob(y), a + also, b + ([] if discrete else [y]))
    if x.dtype.is_float:
        x.requires_grad_(False)
    jitted = krt.jit(p.log_prob)(x.detach())
    np.testing.assert_allclose(jitted.numpy(), p.log_prob(x).detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ["GeneralizedPareto", "ContinuousBernoulli", "LogisticNormal",
                                  "LowRankMultivariateNormal", "MultivariateNormal"])  # fmt: skip
def test_log_prob_of_what_is_made_within_jit(name):
    make, params, _, value = CASES[name]
    a, b = leaves(params)

    @krt.jit
    def slopes(x, *params):
        def density(*params):
            return make(ours, *params).log_prob(x).sum()

        return krt.func.grad_and_value(density, tuple(range(len(params))))(*params)

    grads, found = slopes(krt.tensor(value), *(p.detach() for p in a))
    wanted = make(theirs, *b).log_prob(torch.tensor(value)).sum()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-9)
    wanted.backward()
    for mine, other in zip(grads, b, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.grad.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_log_prob_in_float32(name):
    make, params, _, value = CASES[name]
    a, b = leaves(params, "float32")
    x = value.astype(np.float32) if value.dtype.kind == "f" else value
    if name == "Dirichlet":
        x = x / x.sum(-1, keepdims=True)
    found = make(ours, *a).log_prob(krt.tensor(x))
    wanted = make(theirs, *b).log_prob(torch.tensor(x))
    assert found.dtype is krt.float32
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=2e-5,
                               atol=2e-5)  # fmt: skip


@pytest.mark.parametrize("what", ["entropy", "mean", "variance", "stddev", "mode", "cdf", "icdf",
                                  "perplexity", "enumerate_support"])  # fmt: skip
@pytest.mark.parametrize("name", CASES)
def test_what_a_distribution_tells_is_what_torch_s_tells(name, what):
    make, params, _, value = CASES[name]
    a, b = leaves(params)
    p, q = make(ours, *a), make(theirs, *b)
    shares = np.full(q.batch_shape, 0.3)

    def ask(d, v, share):
        if what == "cdf":
            return d.cdf(v)
        if what == "icdf":
            return d.icdf(share)
        found = getattr(d, what)
        return found() if callable(found) else found

    try:
        wanted = ask(q, torch.tensor(value), torch.tensor(shares))
    except NotImplementedError:
        wanted = None
    if what == "mode" and name == "Kumaraswamy":  # torch gives NaN
        return
    if wanted is None:
        with pytest.raises((NotImplementedError, krt.KernelrtError)):
            ask(p, krt.tensor(value), krt.tensor(shares))
        return
    found = ask(p, krt.tensor(value), krt.tensor(shares))
    if what == "cdf" and name in ("Gamma", "Chi2", "InverseGamma"):
        wanted = wanted.detach()  # torch differentiates no igamma; see test_draws.py
    compare(found, wanted, a, b)
    assert p.batch_shape == tuple(q.batch_shape)
    assert p.event_shape == tuple(q.event_shape)


@pytest.mark.parametrize("name", CASES)
def test_divergences_are_those_of_torch(name):
    make, first, second, _ = CASES[name]
    a, b = leaves(first)
    c, d = leaves(second)
    try:
        wanted = theirs.kl_divergence(make(theirs, *b), make(theirs, *d))
    except NotImplementedError:
        if name == "Transformed to correlations":  # torch compares transforms by identity
            return
        with pytest.raises(ours.UnsupportedError, match="register_kl"):
            ours.kl_divergence(make(ours, *a), make(ours, *c))
        return
    back = theirs.kl_divergence(make(theirs, *d), make(theirs, *b))
    if "Wishart" in name:  # torch's have no gradient by the first
        wanted, back = wanted.detach(), back.detach()
    compare(ours.kl_divergence(make(ours, *a), make(ours, *c)), wanted, a + c, b + d)
    compare(ours.kl_divergence(make(ours, *c), make(ours, *a)), back, a + c, b + d)


def _pairs():
    """Two kinds whose divergence torch knows; of some that are finite for part of the numbers."""
    known = theirs.kl._KL_REGISTRY
    return sorted((p.__name__, q.__name__) for p, q in known
                  if p is not q and p.__name__ in CASES and q.__name__ in CASES)  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [*_pairs(), ("Chi2", "Gamma"), ("Uniform", "Uniform"),
                                               ("Unit", "Beta"), ("Unit", "Exponential"),
                                               ("Unit", "Gamma"), ("Beta", "Wide"),
                                               ("Unit", "ContinuousBernoulli"),
                                               ("ContinuousBernoulli", "Wide")])  # fmt: skip
def test_divergences_of_two_kinds(first, second):
    part = {"Unit": (lambda d, a: d.Uniform(a / 2, a), (UNIT,), (UNIT,), None),
            "Wide": (lambda d, a: d.Uniform(-a, a + 1), (UNIT,), (UNIT,), None)}  # fmt: skip
    (make, params, _, _), (other, more, _, _) = ((CASES | part)[n] for n in (first, second))
    a, b = leaves(params)
    c, d = leaves(more)
    wanted = theirs.kl_divergence(make(theirs, *b), other(theirs, *d))
    compare(ours.kl_divergence(make(ours, *a), other(ours, *c)), wanted, a + c, b + d)


def test_divergences_of_a_batch_of_matrices():
    p, q = (ours.Wishart(krt.tensor([4.5, n]), krt.tensor(DEFINITE * n)) for n in (5.0, 7.0))
    for k, found in enumerate(ours.kl_divergence(p, q).tolist()):
        one, other = (ours.Wishart(d.df[k], d.covariance_matrix[k]) for d in (p, q))
        assert found == pytest.approx(ours.kl_divergence(one, other).item(), rel=1e-5)

    def divergence(df, k):
        other = ours.Wishart(4.5, krt.tensor(DEFINITE[1]))
        return ours.kl_divergence(ours.Wishart(df, krt.tensor(DEFINITE[0]) * k), other)

    df, k = (krt.tensor(v, dtype="float64", requires_grad=True) for v in (5.0, 1.5))
    divergence(df, k).backward()
    for found, up, down in ((df.grad, (5.001, 1.5), (4.999, 1.5)),
                            (k.grad, (5.0, 1.501), (5.0, 1.499))):  # fmt: skip
        ends = [divergence(*(krt.tensor(v, dtype="float64") for v in at)).item()
                for at in (up, down)]  # fmt: skip
        assert found.item() == pytest.approx((ends[0] - ends[1]) / 0.002, rel=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_expanded_distributions(name):
    make, params, _, value = CASES[name]
    a, b = leaves(params)
    p, q = make(ours, *a), make(theirs, *b)
    wide, other = p.expand((4, *p.batch_shape)), q.expand((4, *q.batch_shape))
    assert wide.batch_shape == tuple(other.batch_shape)
    assert wide.sample((2,)).shape == tuple(other.sample((2,)).shape)
    compare(wide.log_prob(krt.tensor(value)), other.log_prob(torch.tensor(value)), a, b)
    if p.batch_shape:
        with pytest.raises(krt.KernelrtError):
            p.expand((7,))


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_tanh_normal(scale):
    loc = krt.tensor([0.5, -0.2], dtype="float64", requires_grad=True)
    policy = ours.TanhNormal(loc, scale)
    peer_loc = torch.tensor([0.5, -0.2], dtype=torch.float64, requires_grad=True)
    peer = theirs.TransformedDistribution(
        theirs.Normal(peer_loc, scale), [theirs.TanhTransform(cache_size=1)])  # fmt: skip
    x = np.array([0.9, -0.4])
    compare(policy.log_prob(krt.tensor(x)), peer.log_prob(torch.tensor(x)), [loc], [peer_loc])
    krt.manual_seed(0)
    action = policy.rsample((500,))
    found = policy.log_prob(action)
    assert np.isfinite(found.detach().numpy()).all()
    # The mean of -log_prob by the change of variables, from the noise that was drawn.
    z = np.arctanh(np.clip(action.detach().numpy(), -1 + 1e-15, 1 - 1e-15))
    fine = np.abs(z) < 10
    plain = theirs.Normal(torch.tensor([0.5, -0.2]).double(), scale).log_prob(torch.tensor(z))
    want = plain.numpy() - 2 * (np.log(2) - z - np.logaddexp(0, -2 * z))
    np.testing.assert_allclose(found.detach().numpy()[fine], want[fine], rtol=1e-4, atol=1e-4)
    found.mean().backward()
    assert np.isfinite(loc.grad.numpy()).all()
    wide = ours.TanhNormal(0.0, 1.0, -2.0, 4.0)
    assert wide.support.check(wide.sample((100,))).all().item()
    assert wide.log_prob(krt.tensor(1.0)).item() == pytest.approx(
        ours.TanhNormal(0.0, 1.0).log_prob(0.0).item() - math.log(3))  # fmt: skip


VECTORS = RNG.standard_normal((2, 6)) * 0.7
TRANSFORMS = {
    "exp": (lambda d: d.ExpTransform(), REAL), "sigmoid": (lambda d: d.SigmoidTransform(), REAL),
    "tanh": (lambda d: d.TanhTransform(), REAL),
    "affine": (lambda d: d.AffineTransform(1.0, -2.0), REAL),
    "affine of vectors": (lambda d: d.AffineTransform(1.0, 3.0, event_dim=1), REAL),
    "composed": (lambda d: d.ComposeTransform(
        [d.TanhTransform(), d.AffineTransform(0.0, 2.0, 1)]), REAL),
    "abs": (lambda d: d.AbsTransform(), POS), "softplus": (lambda d: d.SoftplusTransform(), REAL),
    "power": (lambda d: d.PowerTransform(d.Normal(-1.5, 1.0).mean), POS),
    "cdf": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.2, 2.0)), REAL),
    "independent": (lambda d: d.IndependentTransform(d.ExpTransform(), 1), REAL),
    "reshaped": (lambda d: d.ReshapeTransform((6,), (2, 3)), VECTORS),
    "softmax": (lambda d: d.SoftmaxTransform(), np.log(ROWS / ROWS.sum(-1, keepdims=True))),
    "sticks": (lambda d: d.StickBreakingTransform(), REAL),
    "correlations": (lambda d: d.CorrCholeskyTransform(), VECTORS),
    "lower": (lambda d: d.LowerCholeskyTransform(), LOWER),
    "definite": (lambda d: d.PositiveDefiniteTransform(), LOWER),
    "composed of sticks": (lambda d: d.ComposeTransform(
        [d.AffineTransform(0.5, 2.0), d.StickBreakingTransform(), d.ExpTransform()]), REAL),
    "composed of correlations": (lambda d: d.ComposeTransform(
        [d.ReshapeTransform((2, 3), (6,)), d.CorrCholeskyTransform()]), VECTORS.reshape(2, 2, 3)),
    "identity": (lambda d: d.identity_transform, REAL),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    make, values = TRANSFORMS[name]
    own = lambda d: d if hasattr(d, "identity_transform") else d.transforms  # noqa: E731
    mine, other = make(ours), make(theirs if name != "identity" else own(theirs))
    x, y = leaves([values])
    compare(mine(x[0]), other(y[0]), x, y)
    assert mine.forward_shape(values.shape) == tuple(other.forward_shape(values.shape))
    assert mine.inverse_shape(mine(x[0]).dims) == values.shape
    assert mine.out_dim == other.codomain.event_dim
    assert mine.event_dim == other.domain.event_dim
    assert mine.bijective == other.bijective
    fresh = mine(x[0]).detach()
    np.testing.assert_allclose(mine.inv(fresh).numpy(), values, rtol=1e-6, atol=1e-9)
    if (values.ndim == 2 and not mine.event_dim) or name == "sticks":
        assert bool(mine.codomain.check(fresh).all())
    kept = mine(x[0])
    assert mine.inv(kept) is x[0]
    try:
        wanted = other.log_abs_det_jacobian(y[0], other(y[0]))
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine.log_abs_det_jacobian(x[0], mine(x[0]))
        return
    found = mine.log_abs_det_jacobian(x[0], mine(x[0]))
    if name == "identity":
        wanted = torch.zeros_like(y[0])
    compare(found, wanted, x, y)


def test_values_next_to_the_ends():
    p = ours.Bernoulli(krt.tensor([0.0, 1.0, 0.5]))
    q = theirs.Bernoulli(torch.tensor([0.0, 1.0, 0.5]))
    for v in ([0.0, 1.0, 1.0], [1.0, 0.0, 0.0]):
        np.testing.assert_allclose(p.log_prob(krt.tensor(v)).numpy(),
                                   q.log_prob(torch.tensor(v)).numpy(), rtol=1e-5,
                                   atol=2e-7)  # fmt: skip
    x = np.array([-300.0, -30.0, 30.0, 300.0])
    np.testing.assert_allclose(ours.Normal(0.0, 1.0).log_prob(krt.tensor(x)).numpy(),
                               -0.5 * x * x - 0.5 * math.log(2 * math.pi), rtol=1e-6)  # fmt: skip
    outside = ours.Uniform(0.0, 1.0, validate_args=False).log_prob(krt.tensor([-1.0, 0.5, 2.0]))
    assert outside.tolist() == [-math.inf, 0, -math.inf]
    p, q = ours.Uniform(0.0, 2.0), ours.Uniform(0.0, 1.0)
    assert ours.kl_divergence(p, q).item() == math.inf
    p, q = (ours.Categorical(krt.tensor(v)) for v in ([0.5, 0.5, 0.0], [1.0, 0.0, 0.0]))
    assert ours.kl_divergence(p, q).item() == math.inf
    assert ours.kl_divergence(q, p).item() == pytest.approx(math.log(2), rel=1e-5)


def test_distributions_of_parameters_without_elements():
    for made in (ours.GeneralizedPareto(krt.zeros(0), 1.0, 0.1),
                 ours.ContinuousBernoulli(krt.zeros(0))):  # fmt: skip
        assert made.sample((2,)).shape == made.log_prob(made.sample((2,))).shape == (2, 0)
    wide = ours.LowRankMultivariateNormal(krt.zeros(0, 3), krt.ones(3, 2), krt.ones(3))
    assert wide.log_prob(wide.sample((2,))).shape == (2, 0)
    assert wide.entropy().shape == (0,)
    none = ours.LowRankMultivariateNormal(krt.zeros(3), krt.ones(3, 0), krt.ones(3))
    plain = ours.MultivariateNormal(krt.zeros(3), krt.eye(3))
    assert none.log_prob(krt.ones(3)).item() == pytest.approx(plain.log_prob(krt.ones(3)).item())
    shares = ours.LogisticNormal(krt.zeros(0, 3), 1.0)
    assert shares.log_prob(shares.sample((2,))).shape == (2, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.cases(1)
def test_the_continuous_bernoulli_distribution_next_to_one_half(dtype):
    """Where torch takes a series, or the uniform distribution, and float32 has few digits."""
    t = np.array([0, 1e-30, -1e-7, 1e-3, -0.004, 0.99, 1.01, -1.0, 12.5, -80.0])
    x, u = np.linspace(0, 1, 10), np.linspace(0.05, 0.95, 10)
    # Moments by quadrature of the density over its greatest value; their slopes are the next ones.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    nodes, weights = (nodes + 1) / 2, weights / 2
    density = np.exp(t[:, None] * (nodes - (t[:, None] > 0)))
    norm = (density * weights).sum(-1)
    share = density * weights / norm[:, None]
    mean = (share * nodes).sum(-1)
    variance = (share * (nodes - mean[:, None]) ** 2).sum(-1)
    skew = (share * (nodes - mean[:, None]) ** 3).sum(-1)
    logits = krt.tensor(t, dtype=dtype, requires_grad=True)
    made = ours.ContinuousBernoulli(logits=logits)
    near = 2e-5 if dtype == "float32" else 1e-11

    def check(found, wanted, slope):
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=near, atol=near)
        (by_t,) = krt.grad(found.sum(), [logits])
        np.testing.assert_allclose(by_t.numpy(), slope, rtol=near * 10, atol=near)

    check(made.mean, mean, variance)
    check(made.variance, variance, skew)
    log_norm = np.log(norm) + np.maximum(t, 0)
    check(made.log_prob(krt.tensor(x, dtype=dtype)), t * x - log_norm, x - mean)
    check(made.entropy(), log_norm - t * mean, -t * variance)
    with np.errstate(all="ignore"):
        cdf = np.where(abs(t) < 1e-20, x, np.expm1(t * x) / np.expm1(t))
    inner = nodes[None] * x[:, None]
    part = np.exp(t[:, None] * (inner - (t[:, None] > 0))) * weights * x[:, None] / norm[:, None]
    slope = (part * (inner - mean[:, None])).sum(-1)
    check(made.cdf(krt.tensor(x, dtype=dtype)), cdf, slope)
    q = made.icdf(krt.tensor(u, dtype=dtype))
    np.testing.assert_allclose(made.cdf(q).detach().numpy(), u, rtol=near, atol=near)
    at = q.detach().requires_grad_()
    by_t = krt.grad(made.cdf(at).sum(), [logits])[0] / made.log_prob(at).exp()
    np.testing.assert_allclose(krt.grad(q.sum(), [logits])[0].numpy(), -by_t.detach().numpy(),
                               rtol=near * 10, atol=near)  # fmt: skip
    # What draws become from their share and back has no slope, of any order.
    (first,) = krt.grad(made.cdf(made.icdf(krt.tensor(u, dtype=dtype))).sum(), [logits],
                        create_graph=True)  # fmt: skip
    (second,) = krt.grad(first.sum(), [logits])
    np.testing.assert_allclose(first.detach().numpy(), 0, atol=near)
    np.testing.assert_allclose(second.numpy(), 0, atol=near * 10)


@pytest.mark.parametrize("k", [0.0, 1e-30, 1e-12, -1e-9, 1e-4, -0.06, 0.3])
def test_a_generalized_pareto_distribution_next_to_an_exponential_one(k):
    """Slopes by the concentration, which torch lacks at 0 and rounds next to it."""
    concentration = krt.tensor(k, dtype="float64", requires_grad=True)
    made = ours.GeneralizedPareto(1.0, 2.0, concentration)
    z = 1.3

    def surviving(k):
        series = sum(z * (-k * z) ** n / (n + 1) for n in range(60))
        slope = sum(-z * z * n * (-k * z) ** (n - 1) / (n + 1) for n in range(1, 60))
        return -series, -slope

    value, slope = surviving(k)
    x = krt.tensor(1 + 2 * z, dtype="float64")
    for found, wanted, by_k in (
        (made.log_survival_function(x), value, slope),
        (made.log_prob(x), (1 + k) * value - math.log(2), value + (1 + k) * slope),
        (made.cdf(x), -math.expm1(value), -math.exp(value) * slope),
        (made.log_cdf(x), math.log(-math.expm1(value)), slope / -math.expm1(-value)),
    ):
        assert found.item() == pytest.approx(wanted, rel=1e-12)
        assert krt.grad(found, [concentration])[0].item() == pytest.approx(by_k, rel=1e-10)
    # The quantile by its share: what the share gains, the density takes.
    back = made.icdf(krt.tensor(-math.expm1(value), dtype="float64"))
    assert back.item() == pytest.approx(x.item(), rel=1e-12)
    wanted = slope * math.exp(value) / made.log_prob(x).exp().item()
    assert krt.grad(back, [concentration])[0].item() == pytest.approx(wanted, rel=1e-10)


def test_the_log_cdf_of_a_generalized_pareto_distribution_at_its_ends():
    x = krt.tensor([0.0, 1e-9, 0.5, 40.0, 1e9, math.inf], dtype="float64", requires_grad=True)
    found = ours.GeneralizedPareto(0.0, 1.0, 0.25).log_cdf(x)
    above = (1 + 0.25 * x.numpy()[1:-1]) ** -4.0
    wanted = [-math.inf, math.log(1e-9), *np.log1p(-above[1:]), 0]
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-7)
    slope = krt.grad(found[1:-1].sum(), x)[1:-1].numpy()
    density = (1 + 0.25 * x.numpy()[1:-1]) ** -5.0
    np.testing.assert_allclose(slope, density / [1e-9, *(1 - above[1:])], rtol=1e-7)
    k = np.array([-2.0, -1.0, -0.3, 0.0, 0.4, 2.0])
    mine = ours.GeneralizedPareto(1.0, 2.0, krt.tensor(k))
    other = theirs.GeneralizedPareto(*map(torch.tensor, (1.0, 2.0)), torch.tensor(k))
    for share in (0.0, 1.0):
        end, wanted = mine.icdf(share), other.icdf(torch.tensor(share))
        np.testing.assert_allclose(end.numpy(), wanted.numpy(), rtol=1e-12)
        np.testing.assert_allclose(mine.cdf(end).numpy(), np.full(6, share), atol=1e-12)
    ends = np.where(k < 0, 1 - 2 / np.where(k < 0, k, 1), math.inf)
    density = np.array([math.inf, -math.log(2), *[-math.inf] * 4])
    np.testing.assert_array_equal(mine.log_prob(krt.tensor(ends)).numpy(), density)


def test_rules_of_ones_own():
    class Mine(ours.Normal):
        pass

    class Other(ours.Normal):
        pass

    @ours.register_kl(Mine, Other)
    def seven(p, q):
        return p.loc * 0 + 7

    assert ours.kl_divergence(Mine(0.0, 1.0), Other(1.0, 1.0)).item() == 7
    assert ours.kl_divergence(Other(0.0, 1.0), Mine(1.0, 1.0)).item() == 0.5


@pytest.mark.parametrize(("kind", "text", "call"), [
    (krt.DomainError, "scale: Normal expected a number above 0, not -1.0",
     lambda: ours.Normal(0.0, -1.0)),
    (krt.DomainError, "loc: Normal expected a number, not NaN", lambda: ours.Normal(math.nan, 1.0)),
    (krt.DomainError, "scale.*not -2.0", lambda: ours.Normal(0.0, krt.tensor([1.0, -2.0]))),
    (krt.DTypeError, "loc", lambda: ours.Normal("0", 1.0)),
    (krt.DomainError, "low < high", lambda: ours.Uniform(2.0, 1.0)),
    (krt.DomainError, "concentration", lambda: ours.Gamma(0.0, 1.0)),
    (krt.ShapeError, "concentration", lambda: ours.Dirichlet(krt.tensor(1.0))),
    (krt.DomainError, "rate", lambda: ours.Poisson(-1.0)),
    (krt.DomainError, "^probs: Bernoulli expected a number from 0 to 1",
     lambda: ours.Bernoulli(1.5)),
    (krt.ShapeError, "probs, logits", ours.Bernoulli),
    (krt.ShapeError, "probs, logits", lambda: ours.Geometric(0.5, 0.5)),
    (krt.DomainError, "above 0 and up to 1", lambda: ours.Geometric(0.0)),
    (krt.DomainError, "probs", lambda: ours.Categorical(krt.tensor([1.0, -1.0, 2.0]))),
    (krt.ShapeError, "scalar", lambda: ours.Categorical(krt.tensor(1.0))),
    (krt.DomainError, "total_count", lambda: ours.Binomial(-1, 0.5)),
    (krt.ShapeError, "takes exactly one of them", lambda: ours.MultivariateNormal(krt.zeros(2))),
    (krt.ShapeError, r"cov_factor: expected shape \(\.\.\., 2, m\) for a loc of 2",
     lambda: ours.LowRankMultivariateNormal(krt.zeros(2), krt.ones(2), krt.ones(2))),
    (krt.ShapeError, r"cov_diag: expected shape \(\.\.\., 2\) for a loc of 2",
     lambda: ours.LowRankMultivariateNormal(krt.zeros(2), krt.ones(2, 1), krt.ones(1))),
    (krt.DomainError, "cov_diag: LowRankMultivariateNormal expected .*a number above 0",
     lambda: ours.LowRankMultivariateNormal(krt.zeros(2), krt.ones(2, 1), krt.zeros(2))),
    (krt.ShapeError, "loc: .*at least one axis",
     lambda: ours.LowRankMultivariateNormal(krt.zeros(()), krt.ones(2, 1), krt.ones(2))),
    (ours.UnsupportedError, "equal event shapes", lambda: ours.kl_divergence(
        ours.MultivariateNormal(krt.zeros(1), krt.eye(1)),
        ours.LowRankMultivariateNormal(krt.zeros(2), krt.ones(2, 1), krt.ones(2)))),
    (krt.DomainError, "value: GeneralizedPareto expected a number from 0.0 to 2.0, not 3.0",
     lambda: ours.GeneralizedPareto(0.0, 1.0, -0.5).log_prob(3.0)),
    (krt.ShapeError, "probs, logits", lambda: ours.ContinuousBernoulli(0.5, 0.5)),
    (krt.DomainError, "probs", lambda: ours.ContinuousBernoulli(1.5)),
    (krt.DomainError, "value: ContinuousBernoulli expected a number from 0 to 1",
     lambda: ours.ContinuousBernoulli(0.5).log_prob(2.0)),
    (krt.ShapeError, "value: expected a shape that ends in",
     lambda: ours.LogisticNormal(krt.zeros(2), 1.0).log_prob(krt.ones(2) / 2)),
    (krt.ShapeError, r"scale_tril: expected shape \(\.\.\., 2, 2\)",
     lambda: ours.MultivariateNormal(krt.zeros(2), scale_tril=krt.eye(3))),
    (krt.DomainError, "lower triangular",
     lambda: ours.MultivariateNormal(krt.zeros(2), scale_tril=krt.ones(2, 2))),
    (krt.DomainError, "covariance_matrix: MultivariateNormal expected a symmetric positive def",
     lambda: ours.MultivariateNormal(krt.zeros(2), krt.tensor([[1.0, 2.0], [2.0, 1.0]]))),
    (krt.DomainError, "precision_matrix: MultivariateNormal expected a symmetric positive definite",
     lambda: ours.MultivariateNormal(
         krt.zeros(2), precision_matrix=krt.tensor([[2.0, 1], [0, 2]]))),
    (krt.DomainError, "covariance_matrix: MultivariateNormal expected a symmetric",
     lambda: ours.MultivariateNormal(krt.zeros(2), krt.full((2, 2), math.nan))),
    (krt.DomainError, "value: Gamma expected", lambda: ours.Gamma(1.0, 1.0).log_prob(-1.0)),
    (krt.DomainError, "value: Bernoulli expected 0 or", lambda: ours.Bernoulli(0.5).log_prob(0.5)),
    (krt.DomainError, "value: Categorical expected a whole number from 0 to 1",
     lambda: ours.Categorical(krt.ones(2)).log_prob(krt.tensor(2))),
    (krt.ShapeError, "value: cannot broadcast shape",
     lambda: ours.Normal(krt.zeros(3), 1.0).log_prob(krt.ones(2))),
    (krt.ShapeError, "value: expected a shape that ends in",
     lambda: ours.Dirichlet(krt.ones(3)).log_prob(krt.ones(2))),
    (krt.ShapeError, "reinterpreted_batch_ndims",
     lambda: ours.Independent(ours.Normal(0.0, 1.0), 1)),
    (krt.DTypeError, "base_distribution", lambda: ours.Independent(3, 1)),
    (krt.DTypeError, "mixture_distribution", lambda: ours.MixtureSameFamily(3, 4)),
    (krt.ShapeError, "component_distribution", lambda: ours.MixtureSameFamily(
        ours.Categorical(krt.ones(2)), ours.Normal(krt.zeros(3), 1.0))),
    (krt.DTypeError, "validate_args", lambda: ours.Normal(0.0, 1.0, 3)),
    (krt.GradientError, "rsample", lambda: ours.Poisson(1.0).rsample()),
    (krt.GradientError, "rsample", lambda: ours.Categorical(krt.ones(2)).rsample()),
    (krt.DTypeError, "p: expected", lambda: ours.kl_divergence(3, ours.Normal(0.0, 1.0))),
    (krt.DTypeError, "type_p", lambda: ours.register_kl(int, int)),
    (krt.DomainError, "df: Wishart expected a number above 1, not 0.5",
     lambda: ours.Wishart(0.5, krt.eye(2))),
    (krt.ShapeError, "takes exactly one of them", lambda: ours.Wishart(3.0)),
    (krt.ShapeError, r"expected shape \(\.\.\., n, n\)",
     lambda: ours.Wishart(3.0, krt.ones(2, 3))),
    (krt.DomainError, "value: LKJCholesky expected a lower triangular matrix .* rows of length 1",
     lambda: ours.LKJCholesky(2).log_prob(2 * krt.eye(2))),
    (krt.ShapeError, "dim", lambda: ours.LKJCholesky(1)),
    (krt.DomainError, "value: Multinomial expected whole numbers .* sum to 3",
     lambda: ours.Multinomial(3, krt.ones(2)).log_prob(krt.ones(2))),
    (krt.DomainError, "of at least 0 and below 1", lambda: ours.NegativeBinomial(1.0, 1.0)),
    (krt.DomainError, "value: Pareto expected a number of at least 2",
     lambda: ours.Pareto(2.0, 1.0).log_prob(1.0)),
    (krt.DomainError, "temperature", lambda: ours.RelaxedBernoulli(0.0, 0.5)),
    (krt.GradientError, "rsample", lambda: ours.VonMises(0.0, 1.0).rsample()),
    (krt.ShapeError, "in_shape, out_shape: expected equal numbers of elements",
     lambda: ours.ReshapeTransform((2, 3), (5,))),
    (krt.DTypeError, "base_transform", lambda: ours.IndependentTransform(3, 1)),
    (krt.ShapeError, r"x: expected n \(n - 1\) / 2 numbers",
     lambda: ours.CorrCholeskyTransform()(krt.ones(4))),
    (krt.DTypeError, r"parts\[0\]", lambda: ours.ComposeTransform([3])),
    (krt.DomainError, "cache_size", lambda: ours.ExpTransform(cache_size=2)),
    (NotImplementedError, "TanhNormal has no entropy", lambda: ours.TanhNormal(0.0, 1.0).entropy()),
])  # fmt: skip
def test_bad_arguments_are_named(kind, text, call):
    with pytest.raises(kind, match=text):
        call()


def test_arguments_are_not_checked_where_that_is_not_wanted_or_cannot_be():
    assert math.isnan(ours.Normal(0.0, -1.0, validate_args=False).log_prob(0.0).item())
    made = krt.jit(lambda s: ours.Normal(0.0, s).log_prob(krt.tensor(0.0)))
    assert math.isnan(made(krt.tensor(-1.0)).item())
