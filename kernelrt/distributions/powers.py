"""Distributions of powers of exponential variates: Weibull, both Paretos, Kumaraswamy."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params
from kernelrt.distributions.noise import inside
from kernelrt.distributions.positive import OfShares
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.random_draws_in_place import exponentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["GeneralizedPareto", "Kumaraswamy", "Pareto", "Weibull"]

_EULER = 0.57721566490153286061


class Weibull(Distribution):
    """The Weibull distribution, of times to failure.

    The density of a number ``x > 0``, with the concentration k::

        k / scale * (x / scale)**(k - 1) * exp(-(x / scale)**k)

    Parameters
    ----------
    scale, concentration : float or Tensor
        Scale and shape, above 0; the failure rate grows with time for a concentration above 1.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Weibull(2.0, 1.0)          # an exponential distribution
    >>> round(p.mean.item(), 4), round(p.variance.item(), 4)
    (2.0, 4.0)
    """

    arg_constraints: ClassVar = {
        "scale": constraints.positive, "concentration": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    _params = ("scale", "concentration")

    def __init__(
        self, scale: float | Tensor, concentration: float | Tensor,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.scale, self.concentration = as_params(scale=scale, concentration=concentration)
        super().__init__(self.scale.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.positive

    def _moment(self, order: int) -> Tensor:
        """Return a moment of the distribution with scale 1."""
        return (1 + order / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        """The mean: ``scale * Gamma(1 + 1 / concentration)``."""
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The mode; 0 if the density decreases everywhere."""
        k = self.concentration
        return self.scale * ((k - 1) / k).clamp(min=0) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        """The variance.

        It is ``scale**2 * (Gamma(1 + 2 / k) - Gamma(1 + 1 / k)**2)``, with the concentration k.
        """
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        kind = self.scale.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator)
        power = (drawn.log() / self.concentration).exp()
        return inside((self.scale * power).cast(kind))

    def log_prob(self, value: Any) -> Tensor:
        k = self.concentration
        log_ratio = (self._value(value) / self.scale).log()
        return k.log() - self.scale.log() + (k - 1) * log_ratio - (k * log_ratio).exp()

    def cdf(self, value: Any) -> Tensor:
        return -(-((self._value(value) / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Any) -> Tensor:
        return self.scale * (-(-self._share(value)).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        k = self.concentration
        return _EULER * (1 - k.reciprocal()) + (self.scale / k).log() + 1


class Pareto(Distribution):
    """The Pareto distribution, with a power-law tail.

    The density of a number ``x >= scale``::

        alpha * scale**alpha / x**(alpha + 1)

    Parameters
    ----------
    scale, alpha : float or Tensor
        Minimum, and exponent of the tail, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Pareto(1.0, 3.0)
    >>> p.mean.item(), p.variance.item()
    (1.5, 0.75)
    >>> round(p.cdf(2.0).item(), 4)
    0.875
    """

    arg_constraints: ClassVar = {
        "scale": constraints.positive, "alpha": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    _params = ("scale", "alpha")

    def __init__(
        self, scale: float | Tensor, alpha: float | Tensor, validate_args: bool | None = None
    ) -> None:
        self.scale, self.alpha = as_params(scale=scale, alpha=alpha)
        super().__init__(self.scale.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: at least `scale`."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        """The mean: ``alpha * scale / (alpha - 1)``; infinite for `alpha` up to 1."""
        a = where(self.alpha > 1, self.alpha, 2.0)
        return where(self.alpha > 1, a * self.scale / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """The mode: `scale`."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """The variance; infinite for `alpha` up to 2."""
        a = where(self.alpha > 2, self.alpha, 3.0)
        finite = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return where(self.alpha > 2, finite, math.inf)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        kind = self.scale.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator)
        return (self.scale * (drawn / self.alpha).exp()).cast(kind)

    def log_prob(self, value: Any) -> Tensor:
        a = self.alpha
        return a.log() + a * self.scale.log() - (a + 1) * self._value(value).log()

    def cdf(self, value: Any) -> Tensor:
        return -(self.alpha * (self.scale / self._value(value)).log()).expm1()

    def icdf(self, value: Any) -> Tensor:
        return self.scale * (-(-self._share(value)).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


def _log_part(k: Tensor, z: Tensor) -> Tensor:
    """Return ``log1p(k * z) / k``, or z if k is 0; derivatives are accurate near k = 0, too."""
    far, near, safe = _by_size(k, z, 0.25)
    # log1p(w) is 2 * atanh(s); the truncation error of its series is below 1e-17.
    s = near / (2 + near)
    return where(far, where(far, k * z, 1.0).log1p() / safe,
                 z * (2 / (2 + near) * _sum(s.square(), _ODD_PARTS)))  # fmt: skip


def _exp_part(k: Tensor, e: Tensor) -> Tensor:
    """Return ``expm1(k * e) / k``, or e if k is 0; derivatives are accurate near k = 0, too."""
    far, near, safe = _by_size(k, e, 0.5)
    return where(far, where(far, k * e, 1.0).expm1() / safe, e * _sum(near, _FACTORIALS))


def _by_size(k: Tensor, x: Tensor, edge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (|k * x| >= edge, ``k * x`` where it is small, k where it is not, else 1).

    If k is 0 and x infinite, the product counts as 0.
    """
    product = k * x
    size = product.abs()
    far = size >= edge
    return far, where(size < edge, product, k * 0), where(far, k, 1.0)


_ODD_PARTS = [1 / (2 * k + 1) for k in range(10)]
_FACTORIALS = [1 / math.factorial(k + 1) for k in range(13)]


def _sum(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Return the sum of coefficients times powers of `x`."""
    found = x * 0
    for c in reversed(coefficients):
        found = found * x + c
    return found


class GeneralizedPareto(Distribution):
    """The generalized Pareto distribution, of exceedances over a high threshold.

    The probability of values above ``loc + scale * z`` is ``(1 + concentration * z) **
    (-1 / concentration)``, or ``exp(-z)`` for a concentration of 0. If the concentration is
    negative, the greatest value is ``loc - scale / concentration``. The batch shape is the shape to
    which the parameters broadcast; an event is a number.

    Parameters
    ----------
    loc : float or Tensor
        Minimum.
    scale : float or Tensor
        Scale, above 0.
    concentration : float or Tensor
        Shape of the tail. The mean is NaN for a concentration of 1 or more, and the variance for
        one half or more, as in PyTorch.
    validate_args : bool, optional
        Whether to check parameters and values.

    References
    ----------
    Hosking and Wallis, Parameter and quantile estimation for the generalized Pareto distribution,
    Technometrics 29, 1987.

    Examples
    --------
    >>> p = krt.distributions.GeneralizedPareto(1.0, 2.0, 0.5)
    >>> p.mean.item(), round(p.cdf(5.0).item(), 4)
    (5.0, 0.75)
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }  # fmt: skip
    has_rsample = True
    _params = ("loc", "scale", "concentration")

    def __init__(
        self, loc: float | Tensor, scale: float | Tensor, concentration: float | Tensor,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.loc, self.scale, self.concentration = as_params(
            loc=loc, scale=scale, concentration=concentration
        )
        super().__init__(self.loc.dims, (), validate_args)

    def _end(self) -> Tensor:
        """Return the greatest value: infinity unless the concentration is negative."""
        k = self.concentration
        ends = k < 0
        return where(ends, self.loc - self.scale / where(ends, k, -1.0), math.inf)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: from `loc` to the end, which may be infinite."""
        return constraints.interval(self.loc, self._end())

    @property
    def mean(self) -> Tensor:
        """The mean, NaN where the concentration is 1 or more."""
        has = self.concentration < 1
        return where(has, self.loc + self.scale / (1 - where(has, self.concentration, 0.0)),
                     math.nan)  # fmt: skip

    @property
    def mode(self) -> Tensor:
        """The mode: `loc`, if the concentration is above -1."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance, NaN where the concentration is one half or more."""
        has = self.concentration < 0.5
        k = where(has, self.concentration, 0.0)
        return where(has, self.scale.square() / ((1 - k).square() * (1 - 2 * k)), math.nan)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        kind = self.scale.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator)
        found, end = self._above(drawn).cast(kind), self._end()
        return where(found > end, end, found)  # rounding may exceed the end

    def _above(self, e: Tensor) -> Tensor:
        """Return the value that is exceeded with probability ``exp(-e)``."""
        return self.loc + self.scale * _exp_part(self.concentration, e)

    def log_prob(self, value: Any) -> Tensor:
        k = self.concentration
        z = (self._value(value) - self.loc) / self.scale
        # For a concentration of -1 the density is constant, but the log at the end is infinite.
        part = where((k == -1) & (z >= 1), 0.0, _log_part(k, z))
        return -self.scale.log() - (1 + k) * part

    def log_survival_function(self, value: Any) -> Tensor:
        """Return the log of the probability of values above `value`.

        Parameters
        ----------
        value : array_like
            Numbers of the support that broadcast with the batch shape.

        Returns
        -------
        Tensor
            Natural logarithms of the broadcast shape, at most 0.

        Examples
        --------
        >>> p = krt.distributions.GeneralizedPareto(0.0, 1.0, 0.0)       # survival exp(-x)
        >>> p.log_survival_function(krt.tensor([0.0, 50.0])).abs().tolist()
        [0.0, 50.0]
        """
        z = (self._value(value) - self.loc) / self.scale
        return -_log_part(self.concentration, z)

    def log_cdf(self, value: Any) -> Tensor:
        """Return the log of the cumulative probability of `value`.

        Parameters
        ----------
        value : array_like
            Numbers of the support that broadcast with the batch shape.

        Returns
        -------
        Tensor
            Natural logarithms of the broadcast shape, at most 0.

        Examples
        --------
        >>> p = krt.distributions.GeneralizedPareto(0.0, 1.0, 0.0)       # survival exp(-x)
        >>> round(p.log_cdf(np.log(2.0)).exp().item(), 4)
        0.5
        """
        above = self.log_survival_function(value)
        rare = above < -math.log(2)  # the cumulative probability is above 1/2
        far, near = where(rare, above, -1.0), where(rare, -1.0, above)
        return where(rare, (-far.exp()).log1p(), (-near.expm1()).log())

    def cdf(self, value: Any) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Any) -> Tensor:
        return self._above(-(-self._share(value)).log1p())

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class Kumaraswamy(OfShares):
    """The Kumaraswamy distribution, on (0, 1), whose cumulative distribution has a closed form.

    The density of a number x from 0 to 1, with the concentrations a and b (Kumaraswamy, A
    generalized probability density function for double-bounded random processes, Journal of
    Hydrology 46, 1980)::

        a * b * x**(a - 1) * (1 - x**a)**(b - 1)

    Parameters
    ----------
    concentration1, concentration0 : float or Tensor
        The concentrations a and b, above 0. The cumulative probability is ``1 - (1 - x**a)**b``.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Kumaraswamy(2.0, 1.0)
    >>> round(p.cdf(0.5).item(), 4), round(p.icdf(0.25).item(), 4)
    (0.25, 0.5)
    """

    def _moment(self, order: int) -> Tensor:
        b, first = self.concentration0, 1 + order / self.concentration1
        return (b.log() + first.lgamma() + b.lgamma() - (first + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        """The mean: ``b * B(1 + 1 / a, b)``, with the beta function B."""
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The mode; NaN if the density has no maximum between 0 and 1."""
        a, b = self.concentration1, self.concentration0
        peaked = (a >= 1) & (b >= 1) & (a * b > 1)
        safe, other = where(peaked, a, 2.0), where(peaked, b, 2.0)
        found = ((safe - 1) / (safe * other - 1)) ** safe.reciprocal()
        return where(peaked, found, math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1).square()

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        kind = self.concentration1.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator)
        below = (-(-drawn / self.concentration0).expm1()).log()
        return inside((below / self.concentration1).exp().cast(kind), 1)

    def log_prob(self, value: Any) -> Tensor:
        a, b = self.concentration1, self.concentration0
        found = self._value(value)
        rest = -(a * found.log()).expm1()  # 1 - x**a
        return a.log() + b.log() + (a - 1).xlogy(found) + (b - 1).xlogy(rest)

    def cdf(self, value: Any) -> Tensor:
        rest = -(self._value(value) ** self.concentration1)
        return -(self.concentration0 * rest.log1p()).expm1()

    def icdf(self, value: Any) -> Tensor:
        below = -((-self._share(value)).log1p() / self.concentration0).expm1()
        return below ** self.concentration1.reciprocal()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + _EULER
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
