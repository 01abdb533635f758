"""Location-scale distributions of real numbers, and Uniform."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt import dtype as dt
from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params
from kernelrt.distributions.noise import log_gamma
from kernelrt.errors import DomainError
from kernelrt.tensor import is_tracing
from kernelrt.tensor.free_functions.creation import full_like
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.random_draws_in_place import exponentials
from kernelrt.tensor.rng import random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Cauchy", "Gumbel", "Laplace", "Normal", "StudentT", "Uniform"]

_EULER = 0.57721566490153286061


class _Located(Distribution):
    """A location-scale distribution.

    Parameters
    ----------
    loc, scale : float or Tensor
        Location, and scale, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample = True
    _params: ClassVar[tuple[str, ...]] = ("loc", "scale")

    def __init__(
        self, loc: float | Tensor, scale: float | Tensor, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale = as_params(loc=loc, scale=scale)
        super().__init__(self.loc.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.real

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        return self.loc + self.scale * self._noise(self._extended(sample_shape))

    def _standard(self, value: Any) -> Tensor:
        return (self._value(value) - self.loc) / self.scale


class Normal(_Located):
    """The normal distribution.

    The density of a real number x, with ``z = (x - loc) / scale``::

        exp(-z**2 / 2) / (scale * sqrt(2 * pi))

    Parameters
    ----------
    loc, scale : float or Tensor
        Mean, and standard deviation, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Normal(1.0, 2.0)
    >>> p.mean.item(), p.variance.item(), p.cdf(1.0).item()
    (1.0, 4.0, 0.5)
    >>> round(p.log_prob(1.0).item(), 4)
    -1.6121
    """

    @property
    def stddev(self) -> Tensor:
        """The standard deviation: `scale`."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """The variance: ``scale**2``."""
        return self.scale.square()

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        return random.randn(shape, dtype=self.loc.dtype)

    def log_prob(self, value: Any) -> Tensor:
        z = self._standard(value)
        return -0.5 * (z * z) - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Any) -> Tensor:
        return 0.5 * (-self._standard(value) / math.sqrt(2)).erfc()

    def icdf(self, value: Any) -> Tensor:
        return self.loc + self.scale * (self._share(value) * 2 - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class Laplace(_Located):
    """The Laplace distribution: an exponential distribution on either side of `loc`.

    The density of a real number x::

        exp(-abs(x - loc) / scale) / (2 * scale)

    Parameters
    ----------
    loc, scale : float or Tensor
        Mean, and scale, above 0: the mean of ``|x - loc|``.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Laplace(1.0, 2.0)
    >>> p.mean.item(), p.variance.item(), p.cdf(1.0).item()
    (1.0, 8.0, 0.5)
    """

    @property
    def variance(self) -> Tensor:
        """The variance: ``2 * scale**2``."""
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        """The standard deviation: ``sqrt(2) * scale``."""
        return math.sqrt(2) * self.scale

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        size = exponentials(shape, self.loc.dtype.accumulator)
        left = random.bernoulli(shape, 0.5)
        return where(left, -size, size).cast(self.loc.dtype)

    def log_prob(self, value: Any) -> Tensor:
        return -(2 * self.scale).log() - self._standard(value).abs()

    def cdf(self, value: Any) -> Tensor:
        z = self._standard(value)
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Any) -> Tensor:
        term = self._share(value) - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(_Located):
    """The Cauchy distribution. Its mean is NaN and its variance infinite.

    The density of a real number x, with ``z = (x - loc) / scale``::

        1 / (pi * scale * (1 + z**2))

    Parameters
    ----------
    loc, scale : float or Tensor
        Median, and scale, above 0: half of the samples lie within `scale` of `loc`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Cauchy(1.0, 2.0)
    >>> p.mode.item(), round(p.icdf(0.75).item(), 4)
    (1.0, 3.0)
    """

    @property
    def mean(self) -> Tensor:
        """The mean: NaN."""
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance: infinity."""
        return full_like(self.loc, math.inf)

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        angle = (random.rand(shape, dtype=dt.float64) - 0.5) * math.pi
        return angle.tan().cast(self.loc.dtype)

    def log_prob(self, value: Any) -> Tensor:
        z = self._standard(value)
        return -math.log(math.pi) - self.scale.log() - (z * z).log1p()

    def cdf(self, value: Any) -> Tensor:
        return self._standard(value).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Tensor:
        return ((self._share(value) - 0.5) * math.pi).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(_Located):
    """The Gumbel distribution, of the maximum of many values.

    The density of a real number x, with ``z = (x - loc) / scale``::

        exp(-z - exp(-z)) / scale

    Parameters
    ----------
    loc, scale : float or Tensor
        Mode, and scale, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Gumbel(1.0, 2.0)
    >>> p.mode.item(), round(p.mean.item(), 4)
    (1.0, 2.1544)
    """

    @property
    def mean(self) -> Tensor:
        """The mean: ``loc + scale * 0.5772...``, with Euler's constant."""
        return self.loc + self.scale * _EULER

    @property
    def stddev(self) -> Tensor:
        """The standard deviation: ``pi / sqrt(6) * scale``."""
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Tensor:
        """The variance: ``pi**2 / 6 * scale**2``."""
        return self.stddev.square()

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        drawn = exponentials(shape, self.loc.dtype.accumulator)
        return (-drawn.log()).cast(self.loc.dtype)

    def log_prob(self, value: Any) -> Tensor:
        z = -self._standard(value)
        return z - z.exp() - self.scale.log()

    def cdf(self, value: Any) -> Tensor:
        return (-(-self._standard(value)).exp()).exp()

    def icdf(self, value: Any) -> Tensor:
        return self.loc - self.scale * (-self._share(value).log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _EULER)


class StudentT(Distribution):
    """Student's t distribution.

    The density of a real number x, with ``z = (x - loc) / scale`` and the beta function B::

        (1 + z**2 / df)**(-(df + 1) / 2) / (scale * sqrt(df) * B(1 / 2, df / 2))

    Parameters
    ----------
    df : float or Tensor
        Degrees of freedom, above 0.
    loc, scale : float or Tensor
        Location, and scale, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.StudentT(4.0, 1.0)
    >>> p.mean.item(), p.variance.item()
    (1.0, 2.0)
    """

    arg_constraints: ClassVar = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive,
    }  # fmt: skip
    has_rsample = True
    _params = ("df", "loc", "scale")

    def __init__(
        self, df: float | Tensor, loc: float | Tensor = 0.0, scale: float | Tensor = 1.0,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.df, self.loc, self.scale = as_params(df=df, loc=loc, scale=scale)
        super().__init__(self.df.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.real

    @property
    def mean(self) -> Tensor:
        """The mean: `loc`; NaN for `df` up to 1."""
        return where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        """The mode: `loc`."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance: ``scale**2 * df / (df - 2)``.

        It is infinite for `df` up to 2, and NaN for `df` up to 1.
        """
        df = self.df
        safe = where(df > 2, df, 3.0)
        finite = self.scale.square() * safe / (safe - 2)
        return where(df > 2, finite, where(df > 1, math.inf, math.nan).cast(finite.dtype))

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        shape = self._extended(sample_shape)
        noise = random.randn(shape, dtype=self.df.dtype)
        # 2 x is chi-squared if x is a gamma variate of df / 2.
        half = 0.5 * self.df
        log_share = half.log() - log_gamma(half, shape)
        return self.loc + self.scale * noise * (0.5 * log_share).exp()

    def log_prob(self, value: Any) -> Tensor:
        y, df = (self._value(value) - self.loc) / self.scale, self.df
        norm = self.scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi)
        norm = norm + (0.5 * df).lgamma() - (0.5 * (df + 1)).lgamma()
        return -0.5 * (df + 1) * (y * y / df).log1p() - norm

    def entropy(self) -> Tensor:
        df = self.df
        beta = (0.5 * df).lgamma() + math.lgamma(0.5) - (0.5 * (df + 1)).lgamma()
        middle = 0.5 * (df + 1) * ((0.5 * (df + 1)).digamma() - (0.5 * df).digamma())
        return self.scale.log() + middle + 0.5 * df.log() + beta


class Uniform(Distribution):
    """The uniform distribution on an interval.

    The density of a number x with ``low <= x < high`` is ``1 / (high - low)``. The support is the
    closed interval; the density at `high` is 0.

    Parameters
    ----------
    low, high : float or Tensor
        Ends of the interval, ``low < high``.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Uniform(0.0, 4.0)
    >>> p.mean.item(), p.cdf(1.0).item(), p.log_prob(1.0).exp().round(decimals=4).item()
    (2.0, 0.25, 0.25)
    """

    arg_constraints: ClassVar = {"low": constraints.real, "high": constraints.real}
    has_rsample = True
    _params = ("low", "high")

    def __init__(
        self, low: float | Tensor, high: float | Tensor, validate_args: bool | None = None
    ) -> None:
        self.low, self.high = as_params(low=low, high=high)
        super().__init__(self.low.dims, (), validate_args)
        if self._validates and not is_tracing() and not bool((self.low < self.high).all().item()):
            place = (self.low < self.high).reshape(-1).int().argmin()
            low, high = (end.reshape(-1)[place].item() for end in (self.low, self.high))
            raise DomainError(f"low, high: Uniform expected low < high, not {low} and {high}")

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: the interval from `low` to `high`."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        """The mean: ``(low + high) / 2``."""
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Tensor:
        """The mode: NaN, because all values are equally likely."""
        return full_like(self.low, math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance: ``(high - low)**2 / 12``."""
        return (self.high - self.low).square() / 12

    @property
    def stddev(self) -> Tensor:
        """The standard deviation: ``(high - low) / sqrt(12)``."""
        return (self.high - self.low) / math.sqrt(12)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        drawn = random.rand(self._extended(sample_shape), dtype=self.low.dtype)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Any) -> Tensor:
        found = self._value(value)
        inside = ((self.low <= found) & (self.high > found)).cast(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Any) -> Tensor:
        return ((self._value(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Any) -> Tensor:
        return self._share(value) * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
