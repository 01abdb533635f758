"""The gamma family: Gamma, InverseGamma, Chi2, FisherSnedecor, Exponential, Beta, Dirichlet."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params, static
from kernelrt.distributions.noise import incomplete_gamma, inside, log_gamma
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import broadcast
from kernelrt.tensor.free_functions.creation import zeros_like
from kernelrt.tensor.free_functions.joining import stack
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.random_draws_in_place import exponentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Beta", "Chi2", "Dirichlet", "Exponential", "FisherSnedecor", "Gamma",
           "InverseGamma", "OfShares"]  # fmt: skip


class _OfRate(Distribution):
    """Base class of distributions with a concentration and a rate, both above 0."""

    arg_constraints: ClassVar = {
        "concentration": constraints.positive, "rate": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    _params: ClassVar[tuple[str, ...]] = ("concentration", "rate")

    def __init__(
        self, concentration: float | Tensor, rate: float | Tensor,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.concentration, self.rate = as_params(concentration=concentration, rate=rate)
        super().__init__(self.concentration.dims, (), validate_args)


class Gamma(_OfRate):
    """The gamma distribution.

    Samples come from rejection sampling (Marsaglia and Tsang, A Simple Method for Generating Gamma
    Variables, 2000). The eight candidates for a sample are drawn at once. If none is accepted (in 1
    of 2e10 samples), the sample is the mode of the proposal distribution. The gradients of
    :meth:`rsample` come from implicit reparameterization (Figurnov, Mohamed and Mnih, Implicit
    Reparameterization Gradients, arXiv:1805.08498, 2018).

    The density of a number ``x >= 0``, with the concentration a::

        rate**a * x**(a - 1) * exp(-rate * x) / Gamma(a)

    Parameters
    ----------
    concentration, rate : float or Tensor
        Shape and inverse scale, above 0; the mean is ``concentration / rate``.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Gamma(3.0, 2.0)
    >>> p.mean.item(), p.mode.item(), p.variance.item()
    (1.5, 1.0, 0.75)
    """

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        """The mean: ``concentration / rate``."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """The mode: ``(concentration - 1) / rate``, or 0 if that is negative."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """The variance: ``concentration / rate**2``."""
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        return inside(log_gamma(self.concentration, self._extended(sample_shape)).exp() / self.rate)

    def log_prob(self, value: Any) -> Tensor:
        found, a = self._value(value), self.concentration
        return a.xlogy(self.rate) + (a - 1).xlogy(found) - self.rate * found - a.lgamma()

    def cdf(self, value: Any) -> Tensor:
        """Return the cumulative probability of `value`; relative error 1e-7 in both tails.

        Parameters
        ----------
        value : array_like
            Numbers of at least 0 that broadcast with the batch shape.

        Returns
        -------
        Tensor
            Probability of samples up to `value`; differentiable by `value` and the parameters.

        Examples
        --------
        >>> p = krt.distributions.Gamma(1.0, 1.0)
        >>> round(p.cdf(np.log(4.0)).item(), 4)                # 1 - exp(-x)
        0.75
        """
        x, a = self.rate * self._value(value), self.concentration
        shape = broadcast(x.dims, a.dims)
        return incomplete_gamma(x.expand(shape), a.expand(shape))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """The chi-squared distribution.

    It is the distribution of the sum of `df` squared standard normal variates. It is also the gamma
    distribution with concentration ``df / 2`` and rate 1/2. The density of a number ``x >= 0``::

        x**(df / 2 - 1) * exp(-x / 2) / (2**(df / 2) * Gamma(df / 2))

    Parameters
    ----------
    df : float or Tensor
        Degrees of freedom, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Chi2(4.0)
    >>> p.mean.item(), p.mode.item(), p.variance.item()
    (4.0, 2.0, 8.0)
    """

    arg_constraints: ClassVar = {"df": constraints.positive}
    _params = ("concentration", "rate", "df")

    def __init__(self, df: float | Tensor, validate_args: bool | None = None) -> None:
        (self.df,) = as_params(df=df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


class FisherSnedecor(Distribution):
    """The F distribution: a ratio of chi-squared variates, each over its degrees of freedom.

    The density of a number ``x > 0``, with ``a = df1 / 2``, ``b = df2 / 2``, ``r = df1 / df2`` and
    the beta function B::

        r**a * x**(a - 1) * (1 + r * x)**(-a - b) / B(a, b)

    Parameters
    ----------
    df1, df2 : float or Tensor
        Degrees of freedom of the numerator and the denominator, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Notes
    -----
    The mean is NaN for `df2` up to 2, the variance for `df2` up to 4, and the mode for `df1` up to
    2, as in PyTorch. Formulas: Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions
    2, 1995, chapter 27.

    Examples
    --------
    >>> krt.distributions.FisherSnedecor(2.0, 4.0).mean.item()
    2.0
    """

    arg_constraints: ClassVar = {"df1": constraints.positive, "df2": constraints.positive}
    has_rsample = True
    _params: ClassVar[tuple[str, ...]] = ("df1", "df2")

    def __init__(
        self, df1: float | Tensor, df2: float | Tensor, validate_args: bool | None = None
    ) -> None:
        self.df1, self.df2 = as_params(df1=df1, df2=df2)
        super().__init__(self.df1.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.positive

    @property
    def mean(self) -> Tensor:
        """The mean: ``df2 / (df2 - 2)``; NaN for `df2` up to 2."""
        n = where(self.df2 > 2, self.df2, 3.0)
        return where(self.df2 > 2, n / (n - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        """The mode: ``(df1 - 2) / df1 * df2 / (df2 + 2)``; NaN for `df1` up to 2."""
        finite = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, finite, math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance; NaN for `df2` up to 4."""
        n = where(self.df2 > 4, self.df2, 5.0)
        finite = 2 * n.square() * (self.df1 + n - 2)
        finite = finite / (self.df1 * (n - 2).square() * (n - 4))
        return where(self.df2 > 4, finite, math.nan)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        shape = self._extended(sample_shape)
        # Twice a gamma variate of df / 2 is chi-squared.
        above, below = (log_gamma(0.5 * df, shape) - df.log() for df in (self.df1, self.df2))
        return (above - below).exp()

    def log_prob(self, value: Any) -> Tensor:
        x = self._value(value)
        a, b, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * x.log() - (a + b) * (ratio * x).log1p() - norm


class InverseGamma(_OfRate):
    """The distribution of the reciprocal of a gamma variate.

    The density of a number ``x > 0``, with the concentration a::

        rate**a * x**(-a - 1) * exp(-rate / x) / Gamma(a)

    Parameters
    ----------
    concentration, rate : float or Tensor
        Parameters of the gamma variate, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.InverseGamma(3.0, 4.0)
    >>> p.mean.item(), p.mode.item(), p.variance.item()
    (2.0, 1.0, 4.0)
    """

    @property
    def support(self) -> Constraint:
        return constraints.positive

    @property
    def mean(self) -> Tensor:
        """The mean: ``rate / (concentration - 1)``; infinite for a concentration up to 1."""
        a = where(self.concentration > 1, self.concentration, 2.0)
        return where(self.concentration > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """The mode: ``rate / (concentration + 1)``."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """The variance; infinite for a concentration up to 2."""
        a = where(self.concentration > 2, self.concentration, 3.0)
        finite = (self.rate / (a - 1)).square() / (a - 2)
        return where(self.concentration > 2, finite, math.inf)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        drawn = log_gamma(self.concentration, self._extended(sample_shape))
        return inside(self.rate * (-drawn).exp())

    def log_prob(self, value: Any) -> Tensor:
        found, a = self._value(value), self.concentration
        return a.xlogy(self.rate) - (a + 1) * found.log() - self.rate / found - a.lgamma()

    def cdf(self, value: Any) -> Tensor:
        """Return the cumulative probability of `value`; relative error 1e-7 in both tails.

        Parameters
        ----------
        value : array_like
            Numbers above 0 that broadcast with the batch shape.

        Returns
        -------
        Tensor
            Probability of samples up to `value`; differentiable by `value` and the parameters.
        """
        x, a = self.rate / self._value(value), self.concentration
        shape = broadcast(x.dims, a.dims)
        return incomplete_gamma(x.expand(shape), a.expand(shape), above=True)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class Exponential(Distribution):
    """The exponential distribution.

    The density of a number ``x >= 0``::

        rate * exp(-rate * x)

    Parameters
    ----------
    rate : float or Tensor
        Rate, above 0; the mean is ``1 / rate``.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Exponential(0.5)
    >>> p.mean.item(), p.variance.item()
    (2.0, 4.0)
    """

    arg_constraints: ClassVar = {"rate": constraints.positive}
    has_rsample = True
    _params = ("rate",)

    def __init__(self, rate: float | Tensor, validate_args: bool | None = None) -> None:
        (self.rate,) = as_params(rate=rate)
        super().__init__(self.rate.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative

    @property
    def mean(self) -> Tensor:
        """The mean: ``1 / rate``."""
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        """The mode: 0."""
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        """The standard deviation: ``1 / rate``."""
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        """The variance: ``1 / rate**2``."""
        return self.rate.square().reciprocal()

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        kind = self.rate.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator).cast(kind)
        return drawn / self.rate

    def log_prob(self, value: Any) -> Tensor:
        return self.rate.log() - self.rate * self._value(value)

    def cdf(self, value: Any) -> Tensor:
        return -(-self.rate * self._value(value)).expm1()

    def icdf(self, value: Any) -> Tensor:
        return -(-self._share(value)).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Dirichlet(Distribution):
    """The Dirichlet distribution, of shares that sum to 1.

    Samples are normalized gamma variates, computed from their logs, which do not underflow.

    The event shape is (n,), and the batch shape is that of the other axes. The density of shares x,
    with the concentrations c::

        Gamma(sum(c)) * prod(x**(c - 1) / Gamma(c))

    Parameters
    ----------
    concentration : Tensor
        Concentrations, above 0, shape (..., n).
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Dirichlet(krt.tensor([1.0, 1.0, 2.0]))
    >>> p.mean.tolist(), p.event_shape
    ([0.25, 0.25, 0.5], (3,))
    """

    arg_constraints: ClassVar = {"concentration": constraints.Constraint(
        "numbers above 0", lambda x: (x > 0).all(-1), 1)}  # fmt: skip
    has_rsample = True
    _params = ("concentration",)

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        (self.concentration,) = as_params(concentration=concentration)
        shape = self.concentration.dims
        if not shape:
            raise ShapeError("concentration: Dirichlet expected at least one axis, not a scalar")
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.simplex

    @property
    def _total(self) -> Tensor:
        return self.concentration.sum(-1, keepdim=True)

    @property
    def mean(self) -> Tensor:
        """The mean: ``concentration / concentration.sum(-1, keepdim=True)``."""
        return self.concentration / self._total

    @property
    def mode(self) -> Tensor:
        """The mode: one-hot if all concentrations are below 1; NaN if the greatest one is 1."""
        less = (self.concentration - 1).clamp(min=0)
        inner = less / less.sum(-1, keepdim=True)
        bare = (self.concentration < 1).all(-1, keepdim=True)
        top = self.concentration.argmax(-1).one_hot(static(self.event_shape[0], "concentration"))
        return where(bare, top.cast(inner.dtype), inner)

    @property
    def variance(self) -> Tensor:
        """The variance of each share."""
        total, a = self._total, self.concentration
        return a * (total - a) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        kind = self.concentration.dtype
        wide = self.concentration.cast(kind.accumulator)
        shares = log_gamma(wide, self._extended(sample_shape)).softmax(-1)
        return inside(shares.cast(kind), 1)

    def log_prob(self, value: Any) -> Tensor:
        found, a = self._value(value), self.concentration
        return (a - 1).xlogy(found).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1)
        size = static(self.event_shape[0], "concentration")
        norm = a.lgamma().sum(-1) - total.lgamma() - (size - total) * total.digamma()
        return norm - ((a - 1) * a.digamma()).sum(-1)


class OfShares(Distribution):
    """Base class of distributions of numbers from 0 to 1 with two concentrations above 0."""

    arg_constraints: ClassVar = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    _params = ("concentration1", "concentration0")

    def __init__(
        self, concentration1: float | Tensor, concentration0: float | Tensor,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.concentration1, self.concentration0 = as_params(
            concentration1=concentration1, concentration0=concentration0
        )
        super().__init__(self.concentration1.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.unit_interval


class Beta(OfShares):
    """The beta distribution.

    It is the distribution of the first of the two shares of a :class:`Dirichlet`. The density of a
    number x from 0 to 1, with the concentrations a and b and the beta function B::

        x**(a - 1) * (1 - x)**(b - 1) / B(a, b)

    Parameters
    ----------
    concentration1, concentration0 : float or Tensor
        Parameters above 0, often called alpha and beta.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Beta(1.0, 3.0)
    >>> p.mean.item(), p.mode.item()
    (0.25, 0.0)
    """

    @property
    def _both(self) -> Dirichlet:
        return Dirichlet(stack([self.concentration1, self.concentration0], -1), False)

    @property
    def mean(self) -> Tensor:
        """The mean: ``concentration1 / (concentration1 + concentration0)``."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """The mode: 0 or 1 if both concentrations are below 1; NaN if the greater one is 1."""
        return self._both.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        """The variance: ``a * b / ((a + b)**2 * (a + b + 1))``, with the concentrations a and b."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        shape, kind = self._extended(sample_shape), self.concentration1.dtype
        first, second = (
            log_gamma(c.cast(kind.accumulator), shape)
            for c in (self.concentration1, self.concentration0)
        )
        return inside((first - second).sigmoid().cast(kind), 1)

    def log_prob(self, value: Any) -> Tensor:
        found = self._value(value)
        a, b = self.concentration1, self.concentration0
        norm = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return (a - 1).xlogy(found) + (b - 1).xlogy(1 - found) + norm

    def entropy(self) -> Tensor:
        return self._both.entropy()


