"""Draws follow their distributions, are fresh in jit, and have the gradients that they should."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import distributions as D  # noqa: N812 - as it is written everywhere
from kernelrt.distributions.noise import incomplete_gamma, log_gamma, log_gamma_derivative

stats = pytest.importorskip("scipy.stats")
special = pytest.importorskip("scipy.special")

N = 40_000
#: Of a sample that follows its distribution one of a thousand is further away.
KS = 1.95


class Cdf:
    """A distribution of SciPy that it has not."""

    def __init__(self, cdf):
        self.cdf = cdf

    def support(self):
        return 0, 1


CONTINUOUS = [
    (lambda: D.Normal(1.0, 2.0), stats.norm(1, 2)),
    (lambda: D.LogNormal(0.5, 0.75), stats.lognorm(0.75, scale=math.exp(0.5))),
    (lambda: D.Laplace(1.0, 2.0), stats.laplace(1, 2)),
    (lambda: D.Cauchy(1.0, 2.0), stats.cauchy(1, 2)),
    (lambda: D.Gumbel(1.0, 2.0), stats.gumbel_r(1, 2)),
    (lambda: D.Uniform(-1.0, 3.0), stats.uniform(-1, 4)),
    (lambda: D.Exponential(2.0), stats.expon(scale=0.5)),
    (lambda: D.StudentT(3.0, 1.0, 2.0), stats.t(3, 1, 2)),
    (lambda: D.StudentT(0.5), stats.t(0.5)),
    (lambda: D.Chi2(3.0), stats.chi2(3)),
    (lambda: D.FisherSnedecor(3.0, 5.0), stats.f(3, 5)),
    (lambda: D.FisherSnedecor(1.0, 0.5), stats.f(1, 0.5)),
    *((lambda a=a: D.Gamma(a, 2.0), stats.gamma(a, scale=0.5))
      for a in (0.05, 0.3, 0.9, 1.0, 1.5, 5.0, 70.0, 1e4)),
    *((lambda a=a, b=b: D.Beta(a, b), stats.beta(a, b))
      for a, b in ((0.2, 0.3), (1.0, 1.0), (2.0, 5.0), (40.0, 3.0))),
    (lambda: D.HalfNormal(2.0), stats.halfnorm(scale=2)),
    (lambda: D.HalfCauchy(2.0), stats.halfcauchy(scale=2)),
    (lambda: D.Weibull(2.0, 0.7), stats.weibull_min(0.7, scale=2)),
    (lambda: D.Pareto(2.0, 1.5), stats.pareto(1.5, scale=2)),
    *((lambda c=c: D.GeneralizedPareto(0.5, 2.0, c), stats.genpareto(c, 0.5, 2))
      for c in (0.0, 0.7, -0.4, -3.0)),
    *((lambda t=t: D.ContinuousBernoulli(logits=t),
       Cdf(lambda x, t=t: np.expm1(t * x) / np.expm1(t)))
      for t in (1e-6, -0.5, 9.0, -40.0)),
    (lambda: D.InverseGamma(3.0, 2.0), stats.invgamma(3, scale=2)),
    (lambda: D.Kumaraswamy(2.0, 3.0), Cdf(lambda x: 1 - (1 - x**2) ** 3)),
    (lambda: D.VonMises(0.0, 1.5), stats.vonmises(1.5)),
    (lambda: D.VonMises(0.0, 200.0), stats.vonmises(200)),
    (lambda: D.VonMises(0.0, 1e-9), stats.uniform(-math.pi, 2 * math.pi)),
    (lambda: D.TanhNormal(0.3, 0.8), None),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", range(len(CONTINUOUS)))
def test_continuous_draws(case, dtype):
    krt.manual_seed(100 + case)
    make, peer = CONTINUOUS[case]
    made = make()
    if dtype == "float64":
        made = _in_float64(made)
    x = made.sample((N,))
    assert x.dtype.name == dtype
    cdf = peer.cdf if peer is not None else (
        lambda v: stats.norm(0.3, 0.8).cdf(np.arctanh(np.clip(v, -1 + 1e-12, 1 - 1e-12))))
    x = np.sort(x.double().numpy())
    # Below the least number of float32 all are this one.
    seen = x > 2e-38 if peer is not None and peer.support()[0] == 0 else x == x
    away = np.abs(cdf(x) - (np.arange(N) + 0.5) / N)[seen]
    assert away.max() * math.sqrt(N) < KS


def _in_float64(made):
    for part in (made, getattr(made, "base_dist", made)):
        for name in part._params:
            if isinstance(part.__dict__.get(name), krt.Tensor):
                part.__dict__[name] = part.__dict__[name].double()
    return made


COUNTS = [
    *((lambda r=r: D.Poisson(r), stats.poisson(r))
      for r in (0.0, 0.1, 3.0, 9.9, 10.0, 25.0, 400.0)),
    (lambda: D.Geometric(0.3), stats.geom(0.3, loc=-1)),
    (lambda: D.Geometric(1.0), stats.geom(1.0, loc=-1)),
    (lambda: D.Bernoulli(0.3), stats.bernoulli(0.3)),
    (lambda: D.NegativeBinomial(5.0, 0.3), stats.nbinom(5, 0.7)),
    (lambda: D.NegativeBinomial(0.5, 0.9), stats.nbinom(0.5, 0.1)),
    *((lambda n=n, p=p: D.Binomial(n, p), stats.binom(n, p))
      for n, p in ((1, 0.3), (10, 0.5), (10, 1.0), (10, 0.0), (40, 0.25), (50, 0.2), (30, 0.9),
                   (1000, 0.3), (1000, 0.005), (100_000, 0.7))),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of SciPy, for a chance of 1
@pytest.mark.parametrize("case", range(len(COUNTS)))
def test_counts(case):
    krt.manual_seed(200 + case)
    make, peer = COUNTS[case]
    x = make().sample((N,)).numpy().astype(np.int64)
    low, high = int(peer.ppf(1e-4)), int(peer.ppf(1 - 1e-4))
    edges = np.unique(np.linspace(low, high, 30).astype(int))
    wanted = np.diff(np.concatenate([[0.0], peer.cdf(edges), [1.0]])) * N
    found = np.histogram(x, np.concatenate([[-np.inf], edges + 0.5, [np.inf]]))[0]
    full = wanted > 5
    square = ((found - wanted)[full] ** 2 / wanted[full]).sum()
    if full.sum() > 1:
        assert stats.chi2(full.sum() - 1).sf(square) > 1e-3
    assert found[~full].sum() < 60
    assert abs(x.mean() - peer.mean()) <= 5 * peer.std() / math.sqrt(N)


def test_categories():
    krt.manual_seed(1)
    probs = np.array([[0.1, 0.0, 0.6, 0.3], [0.25, 0.25, 0.25, 0.25]])
    x = D.Categorical(krt.tensor(probs)).sample((N,)).numpy()
    assert x.shape == (N, 2)
    for k in (0, 1):
        shares = np.bincount(x[:, k], minlength=4) / N
        np.testing.assert_allclose(shares, probs[k], atol=0.01)
    assert abs(np.corrcoef(x[:, 0], x[:, 1])[0, 1]) < 0.02
    hot = D.OneHotCategorical(krt.tensor(probs)).sample((N,)).numpy()
    np.testing.assert_allclose(hot.mean(0), probs, atol=0.01)
    logits = D.Categorical(logits=krt.tensor([0.0, 1000.0])).sample((50,))
    assert set(logits.tolist()) == {1}
    assert D.Categorical(krt.ones(3)).sample().shape == ()
    assert D.Categorical(krt.ones(2, 3)).sample((0,)).shape == (0, 2)


def test_vectors():
    krt.manual_seed(2)
    concentration = np.array([0.3, 1.0, 4.0])
    x = D.Dirichlet(krt.tensor(concentration)).sample((N,)).numpy()
    np.testing.assert_allclose(x.sum(1), 1, rtol=1e-9)
    for k in range(3):
        peer = stats.beta(concentration[k], concentration.sum() - concentration[k])
        assert stats.kstest(x[:, k], peer.cdf).statistic * math.sqrt(N) < KS
    tiny = D.Dirichlet(krt.full((3,), 1e-3)).sample((1000,)).numpy()
    assert np.isfinite(tiny).all()
    np.testing.assert_allclose(tiny.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(tiny.mean(0), 1 / 3, atol=0.05)
    lower = np.array([[1.0, 0, 0], [0.5, 0.8, 0], [-1, 0.2, 0.6]])
    y = D.MultivariateNormal(krt.tensor([1.0, 2, 3], dtype="float64"),
                             scale_tril=krt.tensor(lower)).sample((N,)).numpy()  # fmt: skip
    np.testing.assert_allclose(y.mean(0), [1, 2, 3], atol=0.03)
    np.testing.assert_allclose(np.cov(y.T), lower @ lower.T, atol=0.04)
    few = D.LowRankMultivariateNormal(krt.tensor([1.0, 2, 3], dtype="float64"),
                                      krt.tensor(lower[:, :2]), krt.tensor([0.5, 0.1, 2.0]))
    z = few.sample((N,)).numpy()
    np.testing.assert_allclose(z.mean(0), [1, 2, 3], atol=0.03)
    np.testing.assert_allclose(np.cov(z.T), few.covariance_matrix.numpy(), atol=0.06)


def test_draws_lie_within_their_support():
    krt.manual_seed(8)
    k = krt.tensor([-5.0, -3.0, -1.0, -0.3, 0.0, 0.4, 30.0])
    for loc, scale in ((0.0, 1.0), (-7.3, 0.3), (1e6, 3.3)):
        made = D.GeneralizedPareto(loc, scale, k)
        assert bool(made.support.check(made.sample((5000,))).all())
    made = D.ContinuousBernoulli(logits=krt.tensor([-1e4, -90.0, 0.0, 1e-6, 90.0, 1e4]))
    x = made.sample((5000,))
    assert bool(made.support.check(x).all())
    assert np.isfinite(made.log_prob(x).numpy()).all()


@pytest.mark.parametrize("a", [1e-38, 1e-7, 0.01, 0.5, 3.0])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.cases(1)
def test_shares_lie_between_zero_and_one(dtype, a):
    krt.manual_seed(3)
    a = a if dtype != "float16" else max(a, 2.0**-24)
    first, second, several = (krt.full((n,), a, dtype=dtype, requires_grad=True) for n in (1, 1, 3))
    made = D.Beta(first, second)
    x = made.rsample((3000,))
    shares = D.Dirichlet(several)
    y = shares.rsample((1000,))
    # That of a tiny number is 1 or nearly so with half the chance.
    assert x.double().mean().item() == pytest.approx(0.5, abs=0.04)
    for drawn, density in ((x, made.log_prob(x)), (y, shares.log_prob(y))):
        assert bool(((drawn > 0) & (drawn < 1)).all())
        assert np.isfinite(density.double().detach().numpy()).all()
    densities = made.log_prob(x.detach()).double().mean() + shares.log_prob(y.detach()).mean()
    (x.double().mean() + (y.double() * krt.arange(3)).mean() + densities).backward()
    if a > 1e-3:  # of the least numbers the digamma function is beyond the type
        for p in (first, second, several):
            assert np.isfinite(p.grad.double().numpy()).all()


@pytest.mark.cases(1 / 4)
def test_matrices():
    krt.manual_seed(5)
    scale = np.array([[2.0, 0.5], [0.5, 1.0]])
    made = D.Wishart(krt.tensor(4.5, dtype="float64"), krt.tensor(scale))
    x = made.sample((N,)).numpy()
    np.testing.assert_allclose(x.mean(0), 4.5 * scale, rtol=0.02)
    np.testing.assert_allclose(x.var(0), made.variance.numpy(), rtol=0.05)
    for c in (0.4, 1.0, 5.0):
        y = D.LKJCholesky(3, krt.tensor(c, dtype="float64")).sample((N,))
        assert bool(D.constraints.corr_cholesky.check(y).all())
        whole = (y @ y.mT).numpy()
        # Each correlation is a beta variate on (-1, 1), of c - 1 + n / 2 twice.
        peer = stats.beta(c + 0.5, c + 0.5)
        for i, j in ((1, 0), (2, 0), (2, 1)):
            found = stats.kstest((whole[:, i, j] + 1) / 2, peer.cdf).statistic
            assert found * math.sqrt(N) < KS
    batch = D.LKJCholesky(4, krt.ones(2, 3)).sample((5,))
    assert batch.shape == (5, 2, 3, 4, 4)


def test_counts_of_categories():
    krt.manual_seed(6)
    x = D.Multinomial(7, krt.tensor([[0.2, 0.0, 0.8], [1.0, 1.0, 2.0]])).sample((4000,)).numpy()
    assert (x.sum(-1) == 7).all()
    wanted = 7 * np.array([[0.2, 0, 0.8], [0.25, 0.25, 0.5]])
    np.testing.assert_allclose(x.mean(0), wanted, atol=0.1)
    np.testing.assert_allclose(x.var(0)[1], 7 * np.array([3, 3, 4]) / 16, rtol=0.1)
    assert D.Multinomial(0, krt.ones(3)).sample().tolist() == [0, 0, 0]
    for made in (D.RelaxedBernoulli(0.1, krt.tensor([0.3])),
                 D.RelaxedOneHotCategorical(0.1, krt.tensor([0.3, 0.7]))):  # fmt: skip
        y = made.rsample((4000,))
        assert (y > 0.5).double().mean(0)[0].item() == pytest.approx(0.3, abs=0.03)
        assert np.isfinite(made.log_prob(y).numpy()).all()


def test_mixtures():
    krt.manual_seed(3)
    parts = D.Normal(krt.tensor([-2.0, 3.0]), krt.tensor([0.5, 1.0]))
    made = D.MixtureSameFamily(D.Categorical(krt.tensor([0.25, 0.75])), parts)
    x = made.sample((N,)).numpy()
    cdf = lambda v: 0.25 * stats.norm(-2, 0.5).cdf(v) + 0.75 * stats.norm(3, 1).cdf(v)  # noqa: E731
    assert stats.kstest(x, cdf).statistic * math.sqrt(N) < KS
    inner = D.Independent(D.Normal(krt.tensor([[-2.0, 0.0], [3.0, 5.0]]), 0.1), 1)
    y = D.MixtureSameFamily(D.Categorical(krt.tensor([0.25, 0.75])), inner).sample((N,)).numpy()
    near = np.abs(y[:, 0] + 2) < 1
    assert near.mean() == pytest.approx(0.25, abs=0.01)
    assert (np.abs(y[near][:, 1]) < 1).all()
    assert (np.abs(y[~near][:, 1] - 5) < 1).all()


@pytest.mark.parametrize("a", [1e-3, 0.01, 0.1, 0.3, 0.9, 1.0, 1.5, 3.0, 10.0, 50.0, 300.0, 1e4])
def test_the_slope_of_a_gamma_draw(a):
    """By differences of the inverse of the distribution, its probability kept."""
    u = np.array([1e-6, 0.01, 0.1, 0.3, 0.5, 0.6, 0.8, 0.95, 0.993, 0.999, 1 - 1e-7])
    u = u[special.gammaincinv(a * 0.99, u) > 0]
    h = a * 1e-4
    logs = [np.log(special.gammaincinv(a + k * h, u)) for k in (-2, -1, 0, 1, 2)]
    wanted = (8 * (logs[3] - logs[1]) - (logs[4] - logs[0])) / (12 * h)
    found = log_gamma_derivative(krt.tensor(logs[2]), krt.tensor(np.full(u.shape, a)))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-7)


@pytest.mark.parametrize("a", [1e-3, 0.1, 0.9, 1.0, 3.0, 50.0, 1e4])
def test_the_share_below_a_gamma_variate(a):
    """Values against SciPy's, also far out; derivatives against differences of these."""
    x = a * np.array([0, 1e-8, 0.01, 0.5, 0.9, 1, 1.2, 2, 5, 1, 1])
    x[-4:] += [1, 40, 0.3, 0.99]
    p, q = (krt.tensor(v, requires_grad=True) for v in (x, np.full(x.shape, a)))
    below, above = incomplete_gamma(p, q), incomplete_gamma(p, q, above=True)
    np.testing.assert_allclose(below.detach().numpy(), special.gammainc(a, x), rtol=2e-7)
    np.testing.assert_allclose(above.detach().numpy(), special.gammaincc(a, x), rtol=2e-7)
    g, h = krt.grad(below.sum(), [p, q])
    step = 1e-5 * a
    with np.errstate(divide="ignore"):
        slope = np.exp((a - 1) * np.log(x) - x - special.gammaln(a))
    np.testing.assert_allclose(g.numpy()[1:], slope[1:], rtol=1e-6)
    wanted = (special.gammainc(a + step, x) - special.gammainc(a - step, x)) / (2 * step)
    np.testing.assert_allclose(h.numpy(), wanted, rtol=1e-5, atol=1e-9)
    ends = krt.tensor([0.0, math.inf, math.nan])
    shares = incomplete_gamma(ends, krt.full((3,), a))
    np.testing.assert_array_equal(shares.numpy(), [0, 1, math.nan])


@pytest.mark.parametrize("a", [0.01, 0.5, 2.0, 100.0, 1e4])
@pytest.mark.cases(1)
def test_the_slope_in_float32_is_that_of_float64(a):
    krt.manual_seed(1)
    alpha = krt.full((200,), a, requires_grad=True)
    y = log_gamma(alpha, (200,))
    y.sum().backward()
    wide = krt.full((200,), np.float32(a), dtype="float64")
    wanted = log_gamma_derivative(y.detach().double(), wide)
    np.testing.assert_allclose(alpha.grad.numpy(), wanted.numpy(), rtol=1e-6)


MEANS = {
    # Made of a parameter, a function of draws, its mean as a function of the parameter.
    "Gamma": (lambda a: D.Gamma(a, 2.0), lambda x: x * x, lambda a: a * (a + 1) / 4, 1.3),
    "Gamma small": (lambda a: D.Gamma(a, 2.0), lambda x: x * x, lambda a: a * (a + 1) / 4, 0.2),
    "Gamma rate": (lambda r: D.Gamma(2.0, r), lambda x: x * x, lambda r: 6 / r**2, 1.3),
    "HalfNormal": (D.HalfNormal, lambda x: x, lambda s: s * math.sqrt(2 / math.pi), 0.7),
    "Weibull": (lambda k: D.Weibull(2.0, k), lambda x: x, lambda k: 2 * math.gamma(1 + 1 / k), 1.7),
    "Pareto": (lambda a: D.Pareto(2.0, a), lambda x: 1 / x, lambda a: a / (2 * a + 2), 1.3),
    "Kumaraswamy": (lambda a: D.Kumaraswamy(a, 2.0), lambda x: x,
                    lambda a: 2 * special.beta(1 + 1 / a, 2), 1.3),
    "GeneralizedPareto": (lambda c: D.GeneralizedPareto(1.0, 2.0, c), lambda x: x,
                          lambda c: 1 + 2 / (1 - c), 0.1),
    "ContinuousBernoulli": (D.ContinuousBernoulli, lambda x: x,
                            lambda p: p / (2 * p - 1) + 1 / np.log((1 - p) / p), 0.3),
    "LogisticNormal": (lambda s: D.LogisticNormal(0.2, s), lambda x: x[..., 0].square(),
                       lambda s: stats.norm(0.2, s).expect(lambda x: special.expit(x) ** 2), 0.7),
    "LowRankMultivariateNormal": (
        lambda w: D.LowRankMultivariateNormal(krt.zeros(2, dtype="float64"),
                                              krt.stack([w, 2 * w]).unsqueeze(-1),
                                              krt.ones(2, dtype="float64")),
        lambda x: x[..., 0] * x[..., 1], lambda w: 2 * w * w, 0.7),
    "InverseGamma": (lambda a: D.InverseGamma(a, 2.0), lambda x: 1 / x, lambda a: a / 2, 1.3),
    "RelaxedBernoulli": (lambda p: D.RelaxedBernoulli(1.0, p), lambda x: x,
                         lambda p: stats.uniform().expect(
                             lambda u: 1 / (1 + (1 - p) / p * (1 - u) / u)), 0.3),
    "Beta": (lambda a: D.Beta(a, 2.0), lambda x: x, lambda a: a / (a + 2), 0.7),
    "Beta second": (lambda b: D.Beta(1.5, b), lambda x: x, lambda b: 1.5 / (1.5 + b), 0.7),
    "Chi2": (D.Chi2, lambda x: x, lambda a: a, 3.0),
    "FisherSnedecor": (lambda n: D.FisherSnedecor(3.0, n), lambda x: (-x).exp(),
                       lambda n: stats.f(3, n).expect(lambda x: np.exp(-x)), 5.0),
    "FisherSnedecor first": (lambda m: D.FisherSnedecor(m, 5.0), lambda x: (-x).exp(),
                             lambda m: stats.f(m, 5).expect(lambda x: np.exp(-x)), 3.0),
    "OneHotCategoricalStraightThrough": (
        lambda p: D.OneHotCategoricalStraightThrough(krt.stack([p, 1 - p], -1)),
        lambda x: x[..., 0], lambda p: p, 0.3),
    "Normal": (lambda s: D.Normal(1.0, s), lambda x: x * x, lambda s: 1 + s * s, 0.7),
    "Laplace": (lambda s: D.Laplace(1.0, s), lambda x: x * x, lambda s: 1 + 2 * s * s, 0.7),
    "Gumbel": (lambda s: D.Gumbel(1.0, s), lambda x: x, lambda s: 1 + 0.5772156649 * s, 0.7),
    "Exponential": (D.Exponential, lambda x: x * x, lambda r: 2 / r**2, 1.3),
    "Uniform": (lambda h: D.Uniform(0.0, h), lambda x: x * x, lambda h: h * h / 3, 1.3),
    "StudentT": (D.StudentT, lambda x: (-x * x).exp(), lambda n: stats.t(n).expect(
        lambda x: np.exp(-x * x)), 3.0),
    "LogNormal": (lambda s: D.LogNormal(0.2, s), lambda x: x,
                  lambda s: math.exp(0.2 + s * s / 2), 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANS)
def test_gradients_of_draws_are_those_of_means(name):
    krt.manual_seed(9)
    make, function, mean, at = MEANS[name]
    p = krt.tensor(at, dtype="float64", requires_grad=True)
    values = function(make(p).rsample((100_000,)))
    values.mean().backward()
    h = 1e-4
    wanted = (mean(at + h) - mean(at - h)) / (2 * h)
    assert values.mean().item() == pytest.approx(mean(at), rel=0.03)
    assert p.grad.item() == pytest.approx(wanted, rel=0.04)


def test_samples_have_no_gradients_but_those_of_rsample():
    p = krt.tensor(0.5, requires_grad=True)
    affine = [D.AffineTransform(p, p * 2)]
    made = [
        D.TransformedDistribution(D.Normal(0.0, 1.0), affine),
        D.TransformedDistribution(D.Normal(p, p), affine), D.LogNormal(p, p),
        D.TransformedDistribution(D.TransformedDistribution(D.Normal(0.0, 1.0), affine), affine),
        D.Independent(D.TransformedDistribution(D.Normal(krt.zeros(2), 1.0), affine), 1),
        D.Normal(p, p), D.Gumbel(p, p), D.Weibull(p, p), D.Kumaraswamy(p, p), D.TanhNormal(p, p),
        D.RelaxedBernoulli(p, probs=p), D.RelaxedOneHotCategorical(p, logits=krt.stack([p, p * 2])),
        D.Pareto(p, p),
        D.LogisticNormal(krt.stack([p, p]), krt.stack([p, p])), D.InverseGamma(p, p),
    ]
    for one in made:
        assert not one.sample((2,)).requires_grad, one
        assert one.rsample((2,)).requires_grad, one
    for kind in (D.Categorical, D.OneHotCategorical, D.OneHotCategoricalStraightThrough):
        assert not kind(krt.stack([p, 1 - p])).sample().requires_grad
    base = D.TransformedDistribution(D.Poisson(p), affine)
    assert not base.has_rsample
    assert not base.sample().requires_grad


@pytest.mark.cases(1 / 4)
def test_shares_have_gradients():
    krt.manual_seed(4)
    a = krt.tensor([0.5, 1.5, 2.0], dtype="float64", requires_grad=True)
    x = D.Dirichlet(a).rsample((100_000,))
    x[:, 0].mean().backward()
    np.testing.assert_allclose(a.grad.numpy(), [3.5 / 16, -0.5 / 16, -0.5 / 16], rtol=0.05)


def test_the_second_derivative_of_a_draw():
    """That of the quantile by alpha, against differences of first ones."""
    u, a, h = 0.3, 1.7, 1e-4
    quantile = lambda v: math.log(special.gammaincinv(v, u))  # noqa: E731
    krt.manual_seed(0)
    alpha = krt.tensor(a, dtype="float64", requires_grad=True)
    y = log_gamma(alpha, ())
    u = float(special.gammainc(a, math.exp(y.item())))
    (first,) = krt.grad(y, [alpha], create_graph=True)
    (second,) = krt.grad(first, [alpha])
    assert first.item() == pytest.approx((quantile(a + h) - quantile(a - h)) / (2 * h), rel=1e-5)
    wanted = (quantile(a + h) - 2 * quantile(a) + quantile(a - h)) / h**2
    assert second.item() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("make", [
    lambda p: D.Normal(p, 1.0), lambda p: D.Gamma(p, 1.0), lambda p: D.Beta(p, p),
    D.Poisson, D.HalfNormal, lambda p: D.Weibull(p, 2.0), lambda p: D.Pareto(1.0, p),
    lambda p: D.Kumaraswamy(p, 2.0), lambda p: D.InverseGamma(p, 2.0), lambda p: D.VonMises(p, 2.0),
    lambda p: D.NegativeBinomial(p, 0.3), lambda p: D.Multinomial(5, p),
    lambda p: D.RelaxedBernoulli(0.5, p / 10), lambda p: D.RelaxedOneHotCategorical(0.5, p),
    lambda p: D.Binomial(20, p / 10), lambda p: D.Geometric(p / 10),
    D.Categorical, D.OneHotCategorical, D.Dirichlet, lambda p: D.ContinuousBernoulli(p / 10),
    lambda p: D.GeneralizedPareto(p, p, p / 10), lambda p: D.LogisticNormal(p, 1.0),
    lambda p: D.LowRankMultivariateNormal(p, p.unsqueeze(-1), p),
    lambda p: D.Bernoulli(p / 10), D.StudentT, lambda p: D.TanhNormal(p, 1.0),
    lambda p: D.MultivariateNormal(p, scale_tril=krt.eye(4)), lambda p: D.Gumbel(p, 1.0),
    lambda p: D.MixtureSameFamily(D.Categorical(p), D.Normal(p, 1.0)),
])  # fmt: skip
def test_a_jitted_function_draws_afresh(make):
    p = krt.tensor([1.0, 2.0, 3.0, 4.0])
    draw = krt.jit(lambda p: make(p).sample((16,)))
    first, second = draw(p).tolist(), draw(p).tolist()
    assert first != second
    assert draw.retraces == 0
    krt.manual_seed(7)
    one = draw(p).tolist()
    krt.manual_seed(7)
    assert draw(p).tolist() == one
    krt.manual_seed(7)
    assert np.allclose(make(p).sample((16,)).tolist(), one, rtol=1e-5)


def test_a_policy_is_trained_within_jit():
    """Soft actor, no critic: the squashed normal finds the best action."""
    krt.manual_seed(0)
    mean = krt.zeros(2, requires_grad=True)
    spread = krt.zeros(2, requires_grad=True)
    opt = krt.optim.Adam([mean, spread], 0.05)

    @krt.jit
    def step():
        opt.zero_grad()
        policy = D.Independent(D.TanhNormal(mean, spread.exp()), 1)
        action = policy.rsample((64,))
        wrong = (action - krt.tensor([0.5, -0.3])).square().sum(-1)
        loss = (wrong + 0.001 * policy.log_prob(action)).mean()
        loss.backward()
        opt.step()
        return loss

    for _ in range(200):
        step()
    np.testing.assert_allclose(np.tanh(mean.numpy()), [0.5, -0.3], atol=0.05)
    assert step.retraces == 0
