"""Distributions of powers of exponential variates: Weibull, Pareto, Kumaraswamy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.distributions import constraints
from kernelrt.distributions.base import Distribution, as_params
from kernelrt.distributions.noise import inside
from kernelrt.distributions.positive import OfShares
from kernelrt.tensor.comparison import where
from kernelrt.tensor.drawing import exponentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Kumaraswamy", "Pareto", "Weibull"]

_EULER = 0.57721566490153286061


class Weibull(Distribution):
    """The Weibull distribution, of times to failure.

    Parameters
    ----------
    scale, concentration : float or Tensor
        Above 0; the failure rate grows with time where the concentration is above 1.
    validate_args : bool, optional
        Whether values are checked.

    Examples
    --------
    >>> from kernelrt.distributions import Weibull
    >>> Weibull(2.0, 1.0).mean
    tensor(2.)
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
        """What samples may be."""
        return constraints.positive

    def _moment(self, order: int) -> Tensor:
        """Of the distribution whose scale is 1."""
        return (1 + order / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The likeliest value, 0 where the density falls all along."""
        k = self.concentration
        return self.scale * ((k - 1) / k).clamp(min=0) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw values that gradients pass, to the parameters."""
        kind = self.scale.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator)
        power = (drawn.log() / self.concentration).exp()
        return inside((self.scale * power).cast(kind))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, of `value`."""
        k = self.concentration
        log_ratio = (self._value(value) / self.scale).log()
        return k.log() - self.scale.log() + (k - 1) * log_ratio - (k * log_ratio).exp()

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to `value`."""
        return -(-((self._value(value) / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Any) -> Tensor:
        """The value up to which others have the probability `value`."""
        return self.scale * (-(-self._share(value)).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        k = self.concentration
        return _EULER * (1 - k.reciprocal()) + (self.scale / k).log() + 1


class Pareto(Distribution):
    """The Pareto distribution, whose tail is a power.

    Parameters
    ----------
    scale, alpha : float or Tensor
        The least value, and the exponent of the tail; above 0.
    validate_args : bool, optional
        Whether values are checked.
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
        """What samples may be."""
        return constraints.at_least(self.scale)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        a = where(self.alpha > 1, self.alpha, 2.0)
        return where(self.alpha > 1, a * self.scale / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """The variance."""
        a = where(self.alpha > 2, self.alpha, 3.0)
        finite = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return where(self.alpha > 2, finite, math.inf)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw values that gradients pass, to the parameters."""
        kind = self.scale.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator)
        return (self.scale * (drawn / self.alpha).exp()).cast(kind)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, of `value`."""
        a = self.alpha
        return a.log() + a * self.scale.log() - (a + 1) * self._value(value).log()

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to `value`."""
        return -(self.alpha * (self.scale / self._value(value)).log()).expm1()

    def icdf(self, value: Any) -> Tensor:
        """The value up to which others have the probability `value`."""
        return self.scale * (-(-self._share(value)).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class Kumaraswamy(OfShares):
    """The Kumaraswamy distribution, on (0, 1), whose cumulated probability has a closed form.

    Parameters
    ----------
    concentration1, concentration0 : float or Tensor
        Above 0: a and b of the cumulated probability ``1 - (1 - x**a)**b``.
    validate_args : bool, optional
        Whether values are checked.
    """

    def _moment(self, order: int) -> Tensor:
        b, first = self.concentration0, 1 + order / self.concentration1
        return (b.log() + first.lgamma() + b.lgamma() - (first + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The likeliest value, NaN where the density has no maximum between 0 and 1."""
        a, b = self.concentration1, self.concentration0
        peaked = (a >= 1) & (b >= 1) & (a * b > 1)
        safe, other = where(peaked, a, 2.0), where(peaked, b, 2.0)
        found = ((safe - 1) / (safe * other - 1)) ** safe.reciprocal()
        return where(peaked, found, math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self._moment(2) - self._moment(1).square()

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw values that gradients pass, to the parameters."""
        kind = self.concentration1.dtype
        drawn = exponentials(self._extended(sample_shape), kind.accumulator)
        below = (-(-drawn / self.concentration0).expm1()).log()
        return inside((below / self.concentration1).exp().cast(kind), 1)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, of `value`."""
        a, b = self.concentration1, self.concentration0
        found = self._value(value)
        rest = -(a * found.log()).expm1()  # 1 - x**a
        return a.log() + b.log() + (a - 1).xlogy(found) + (b - 1).xlogy(rest)

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to `value`."""
        rest = -(self._value(value) ** self.concentration1)
        return -(self.concentration0 * rest.log1p()).expm1()

    def icdf(self, value: Any) -> Tensor:
        """The value up to which others have the probability `value`."""
        below = -((-self._share(value)).log1p() / self.concentration0).expm1()
        return below ** self.concentration1.reciprocal()

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + _EULER
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
