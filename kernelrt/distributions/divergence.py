"""The Kullback-Leibler divergence, from a table of rules for pairs of distributions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from kernelrt.distributions.composed import Independent
from kernelrt.distributions.continuous import Cauchy, Gumbel, Laplace, Normal, Uniform
from kernelrt.distributions.continuous_bernoulli import ContinuousBernoulli
from kernelrt.distributions.counts import Binomial, Geometric, Poisson
from kernelrt.distributions.discrete import Bernoulli, Categorical, OneHotCategorical
from kernelrt.distributions.distribution import Distribution, UnsupportedError
from kernelrt.distributions.halves import HalfCauchy, HalfNormal
from kernelrt.distributions.matrices import Wishart
from kernelrt.distributions.multivariate import NormalVectors
from kernelrt.distributions.positive import Beta, Dirichlet, Exponential, Gamma, InverseGamma
from kernelrt.distributions.powers import Pareto
from kernelrt.distributions.transformed import TransformedDistribution
from kernelrt.errors import DTypeError
from kernelrt.tensor.free_functions.creation import full_like
from kernelrt.tensor.methods.comparison import where

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]

_EULER = 0.57721566490153286061

_F = TypeVar("_F", bound="Callable[[Any, Any], Tensor]")
_rules: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_F], _F]:
    """Register a function as the rule for the divergence of two distributions.

    Parameters
    ----------
    type_p, type_q : type
        Distribution classes; the rule also serves their subclasses.

    Returns
    -------
    callable
        Decorator for a function of two distributions that returns a Tensor of the batch shape.

    Raises
    ------
    DTypeError
        `type_p` or `type_q` is not a subclass of Distribution.

    Examples
    --------
    >>> from kernelrt import distributions
    >>> class Mine(distributions.Normal):
    ...     pass
    >>> @distributions.register_kl(Mine, Mine)
    ... def none(p, q):
    ...     return p.loc * 0
    >>> distributions.kl_divergence(Mine(1.0, 2.0), Mine(0.0, 1.0)).item()
    0.0
    """
    given: tuple[tuple[str, Any], ...] = (("type_p", type_p), ("type_q", type_q))
    for name, kind in given:
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise DTypeError(f"{name}: expected a subclass of Distribution, not {kind!r}")

    def register(rule: _F) -> _F:
        _rules[type_p, type_q] = rule
        return rule

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the Kullback-Leibler divergence of `q` from `p`: the mean of ``log(p / q)`` over `p`.

    Parameters
    ----------
    p, q : Distribution
        Distributions whose batch shapes broadcast. Of the rules for their classes and base classes,
        the most specific one applies.

    Returns
    -------
    Tensor
        One number of nats for each pair of distributions: the broadcast batch shape.

    Raises
    ------
    DTypeError
        `p` or `q` is not a Distribution.
    UnsupportedError
        No rule exists for the two classes; see :func:`register_kl`.

    Examples
    --------
    >>> from kernelrt.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(1.0, 1.0), Normal(0.0, 1.0)).item()
    0.5
    """
    best = None
    for name, value in (("p", p), ("q", q)):
        if not isinstance(value, Distribution):
            raise DTypeError(f"{name}: expected a Distribution, not {type(value).__name__}")
    for (left, right), rule in _rules.items():
        if isinstance(p, left) and isinstance(q, right):
            far = type(p).__mro__.index(left) + type(q).__mro__.index(right)
            if best is None or far < best[0]:
                best = far, rule
    if best is None:
        raise UnsupportedError(
            f"kl_divergence: there is no rule for {type(p).__name__} and {type(q).__name__}; add "
            "one with register_kl, or average p.log_prob(x) - q.log_prob(x) over samples x of p"
        )
    return best[1](p, q)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    away = ((p.loc - q.loc) / q.scale).square()
    return 0.5 * (ratio + away - 1 - ratio.log())


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    top = ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log()
    return top - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    first, second, third = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    middle = (second + (1 + first).lgamma() - third).exp()
    return -first.log() - second + third + first * _EULER + middle - (1 + _EULER)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Uniform, Normal)
def _uniform_normal(p: Uniform, q: Normal) -> Tensor:
    width = p.high - p.low
    first = (math.sqrt(math.pi * 2) * q.scale / width).log()
    second = width.square() / 12 + ((p.high + p.low) / 2 - q.loc).square()
    return first + 0.5 * second / q.scale.square()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc) / p.scale
    first = math.sqrt(2 / math.pi) * (-0.5 * away.square()).exp()
    second = away * (away / math.sqrt(2)).erf()
    return -(ratio.log()) + ratio * (first + second) - 0.5 - 0.5 * math.log(0.5 * math.pi)


@register_kl(Laplace, Normal)
def _laplace_normal(p: Laplace, q: Normal) -> Tensor:
    away = 2 * p.scale.square() + (p.loc - q.loc).square()
    norm = q.scale.log() + 0.5 * math.log(2 * math.pi)
    return -p.entropy() + norm + 0.5 * away / q.scale.square()


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio - 1 - ratio.log())


@register_kl(HalfCauchy, HalfCauchy)
def _half_cauchy(p: HalfCauchy, q: HalfCauchy) -> Tensor:
    return (p.scale + q.scale).square().log() - (4 * p.scale * q.scale).log()


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, found)


@register_kl(InverseGamma, InverseGamma)
def _inverse_gamma(p: InverseGamma, q: InverseGamma) -> Tensor:
    return _gamma(Gamma(p.concentration, p.rate, False), Gamma(q.concentration, q.rate, False))


# The divergence is the mean of -log(q) over p minus the entropy of p. The functions `_of_...`
# return the mean of -log(q), computed from moments of p.


def _of_normal(q: Normal, mean: Tensor, variance: Tensor) -> Tensor:
    away = variance + (mean - q.loc).square()
    return q.scale.log() + 0.5 * math.log(2 * math.pi) + 0.5 * away / q.scale.square()


def _of_gamma(q: Gamma, mean: Tensor, mean_log: Tensor) -> Tensor:
    k = q.concentration
    return k.lgamma() - k * q.rate.log() - (k - 1) * mean_log + q.rate * mean


def _of_exponential(q: Exponential, mean: Tensor) -> Tensor:
    return q.rate * mean - q.rate.log()


def _of_gumbel(q: Gumbel, mean: Tensor, mean_exp: Tensor) -> Tensor:
    """Return the mean of -log(q); `mean_exp` is the mean of ``exp(-x / q.scale)``."""
    return q.scale.log() + (mean - q.loc) / q.scale + (q.loc / q.scale).exp() * mean_exp


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, Exponential)
def _beta_exponential(p: Beta, q: Exponential) -> Tensor:
    return _of_exponential(q, p.mean) - p.entropy()


@register_kl(Beta, Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> Tensor:
    mean_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return _of_gamma(q, p.mean, mean_log) - p.entropy()


@register_kl(Beta, Normal)
def _beta_normal(p: Beta, q: Normal) -> Tensor:
    return _of_normal(q, p.mean, p.variance) - p.entropy()


@register_kl(Beta, Uniform)
def _beta_uniform(p: Beta, q: Uniform) -> Tensor:
    found = (q.high - q.low).log() - p.entropy()
    return where((q.low > 0) | (q.high < 1), math.inf, found)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> Tensor:
    mean_exp = p.rate * q.scale / (p.rate * q.scale + 1)
    return _of_gumbel(q, p.mean, mean_exp) - p.entropy()


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> Tensor:
    mean_exp = (-p.concentration * (1 / (p.rate * q.scale)).log1p()).exp()
    return _of_gumbel(q, p.mean, mean_exp) - p.entropy()


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> Tensor:
    mean_exp = (0.5 * (p.scale / q.scale).square() - p.loc / q.scale).exp()
    return _of_gumbel(q, p.mean, mean_exp) - p.entropy()


@register_kl(Gumbel, Normal)
def _gumbel_normal(p: Gumbel, q: Normal) -> Tensor:
    return _of_normal(q, p.mean, p.variance) - p.entropy()


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Pareto, q: Exponential) -> Tensor:
    return _of_exponential(q, p.mean) - p.entropy()


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> Tensor:
    return _of_gamma(q, p.mean, p.scale.log() + 1 / p.alpha) - p.entropy()


@register_kl(Pareto, Normal)
def _pareto_normal(p: Pareto, q: Normal) -> Tensor:
    return _of_normal(q, p.mean, p.variance) - p.entropy()


def _mean_log(low: Tensor, high: Tensor) -> Tensor:
    """Return the mean of ``log(x)`` over an interval."""
    return (high.xlogy(high) - low.xlogy(low)) / (high - low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    first = (a - 1) * _mean_log(p.low, p.high)
    second = (b - 1) * _mean_log(1 - p.high, 1 - p.low)
    found = norm - first - second - p.entropy()
    return where((p.high > 1) | (p.low < 0), math.inf, found)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return where(p.low < 0, math.inf, _of_exponential(q, p.mean) - p.entropy())


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    found = _of_gamma(q, p.mean, _mean_log(p.low, p.high)) - p.entropy()
    return where(p.low < 0, math.inf, found)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> Tensor:
    width = (p.high - p.low) / q.scale
    mean_exp = (-p.low / q.scale).exp() * -(-width).expm1() / width
    return _of_gumbel(q, p.mean, mean_exp) - p.entropy()


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    a = q.alpha
    found = (a + 1) * _mean_log(p.low, p.high) - a.log() - a * q.scale.log() - p.entropy()
    return where(p.low < q.scale, math.inf, found)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
@register_kl(Beta, ContinuousBernoulli)
def _continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - q._log_density(p.mean)  # noqa: SLF001 - linear in the value


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    return where((p.high > 1) | (p.low < 0), math.inf, _continuous_bernoulli(p, q))


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p: ContinuousBernoulli, q: Exponential) -> Tensor:
    return _of_exponential(q, p.mean) - p.entropy()


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p: ContinuousBernoulli, q: Normal) -> Tensor:
    return _of_normal(q, p.mean, p.variance) - p.entropy()


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: ContinuousBernoulli, q: Uniform) -> Tensor:
    found = (q.high - q.low).log() - p.entropy()
    return where((q.low > 0) | (q.high < 1), math.inf, found)


def _infinite(p: Distribution, _q: Distribution) -> Tensor:
    """Return infinity, because q has no density at some samples of p, whatever the parameters."""
    return full_like(p.mean, math.inf)


for _kind, _others in (
    (Beta, (Pareto,)),
    (ContinuousBernoulli, (Pareto,)),
    (Exponential, (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gamma, (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gumbel, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Laplace, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Pareto, (Beta, ContinuousBernoulli, Uniform)),
    (Poisson, (Bernoulli, Binomial)),
):
    for _other in _others:
        register_kl(_kind, _other)(_infinite)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    first = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return first + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> Tensor:
    ratio, b = q.rate / p.rate, q.concentration
    return -b * ratio.log() + ratio + b.lgamma() + b * _EULER - (1 + _EULER)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Gamma, q: Exponential) -> Tensor:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Exponential, Normal)
def _exponential_normal(p: Exponential, q: Normal) -> Tensor:
    square = q.scale.square()
    first = 0.5 * (p.rate.square() * square * 2 * math.pi).log()
    mean = p.rate.reciprocal()
    return first - 1 + (mean.square() - q.loc * mean + q.loc.square() / 2) / square


@register_kl(Gamma, Normal)
def _gamma_normal(p: Gamma, q: Normal) -> Tensor:
    away = p.variance + (p.mean - q.loc).square()
    return (
        -p.entropy() + q.scale.log() + 0.5 * math.log(2 * math.pi) + 0.5 * away / q.scale.square()
    )


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    first = c.lgamma() + d.lgamma() + (a + b).lgamma()
    second = a.lgamma() + b.lgamma() + (c + d).lgamma()
    third = (a - c) * a.digamma() + (b - d) * b.digamma()
    return first - second + third + (c + d - a - b) * (a + b).digamma()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    first = total.lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma()).sum(-1)
    return first + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    chance, other = p.probs, q.probs
    first = chance * (q.logits.neg().softplus() - p.logits.neg().softplus())
    first = where((other == 0) & (chance != 0), math.inf, where(chance == 0, 0.0, first))
    second = (1 - chance) * (q.logits.softplus() - p.logits.softplus())
    second = where((other == 1) & (chance != 1), math.inf, where(chance == 1, 0.0, second))
    return first + second


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = where((q.probs == 0) & (p.probs != 0), math.inf, terms)
    return where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)  # noqa: SLF001 - their base


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    found = p.total_count * (
        p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    )
    # With more trials, p gives counts that q cannot.
    return where(p.total_count > q.total_count, math.inf, found)


@register_kl(NormalVectors, NormalVectors)
def _normal_vectors(p: NormalVectors, q: NormalVectors) -> Tensor:
    if p.event_shape != q.event_shape:
        raise UnsupportedError(
            f"kl_divergence: expected distributions with equal event shapes, not {p.event_shape} "
            f"and {q.event_shape}"
        )
    return p.divergence(q)


@register_kl(Wishart, Wishart)
def _wishart(p: Wishart, q: Wishart) -> Tensor:
    return p._divergence(q)  # noqa: SLF001 - same class


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UnsupportedError(
            "kl_divergence: expected equal reinterpreted_batch_ndims, not "
            f"{p.reinterpreted_batch_ndims} and {q.reinterpreted_batch_ndims}"
        )
    return p._summed(kl_divergence(p.base_dist, q.base_dist))  # noqa: SLF001 - same class


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if [type(t) for t in p.transforms] != [type(t) for t in q.transforms]:
        raise UnsupportedError(
            "kl_divergence: expected distributions with the same types of transforms, not "
            f"{p.transforms} and {q.transforms}"
        )
    if p.event_shape != q.event_shape:
        raise UnsupportedError(
            f"kl_divergence: expected distributions with equal event shapes, not {p.event_shape} "
            f"and {q.event_shape}"
        )
    for a, b in zip(p.transforms, q.transforms, strict=True):
        if a is not b and vars(a) != vars(b):
            raise UnsupportedError(
                f"kl_divergence: expected transforms with equal parameters, but those of {a} and "
                f"{b} differ"
            )
    found = kl_divergence(p.base_dist, q.base_dist)
    for _ in range(len(p.event_shape) - len(p.base_dist.event_shape)):
        found = found.sum(-1)
    return found
