"""Distributions of absolute values: HalfNormal, HalfCauchy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt import dtype as dt
from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params
from kernelrt.tensor.free_functions.creation import full_like, zeros_like
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.rng import random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["HalfCauchy", "HalfNormal"]


class _Half(Distribution):
    """The absolute value of a variate of a distribution around 0.

    Parameters
    ----------
    scale : float or Tensor
        Scale of the two-sided distribution, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.
    """

    arg_constraints: ClassVar = {"scale": constraints.positive}
    has_rsample = True
    _params: ClassVar[tuple[str, ...]] = ("scale",)

    def __init__(self, scale: float | Tensor, validate_args: bool | None = None) -> None:
        (self.scale,) = as_params(scale=scale)
        super().__init__(self.scale.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples."""
        return constraints.nonnegative

    @property
    def mode(self) -> Tensor:
        """The mode: the value of the highest density or probability."""
        return zeros_like(self.scale)

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw samples that pass gradients to the parameters."""
        return self.scale * self._noise(self._extended(sample_shape))

    def _standard(self, value: Any) -> Tensor:
        return self._value(value) / self.scale

    def log_prob(self, value: Any) -> Tensor:
        """Return the log density, or the log probability, of `value`."""
        z = self._standard(value)
        return where(z >= 0, self._log_density(z), -math.inf)

    def _log_density(self, z: Tensor) -> Tensor:
        raise NotImplementedError


class HalfNormal(_Half):
    """The distribution of the absolute value of a normal variate around 0.

    Parameters
    ----------
    scale : float or Tensor
        Standard deviation of the normal variate, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> from kernelrt.distributions import HalfNormal
    >>> HalfNormal(1.0).mean
    tensor(0.7978846)
    """

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self.scale.square() * (1 - 2 / math.pi)

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        return random.randn(shape, dtype=self.scale.dtype).abs()

    def _log_density(self, z: Tensor) -> Tensor:
        return 0.5 * math.log(2 / math.pi) - 0.5 * (z * z) - self.scale.log()

    def cdf(self, value: Any) -> Tensor:
        """Return the cumulative probability of `value`."""
        return (self._standard(value) / math.sqrt(2)).erf()

    def icdf(self, value: Any) -> Tensor:
        """Return the quantile of the cumulative probability `value`."""
        return self.scale * math.sqrt(2) * self._share(value).erfinv()

    def entropy(self) -> Tensor:
        """Return the entropy, in nats."""
        return 0.5 * math.log(math.pi / 2) + 0.5 + self.scale.log()


class HalfCauchy(_Half):
    """The distribution of the absolute value of a Cauchy variate around 0; its mean is infinite.

    Parameters
    ----------
    scale : float or Tensor
        Scale of the Cauchy variate, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.
    """

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return full_like(self.scale, math.inf)

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        angle = random.rand(shape, dtype=dt.float64) * (math.pi / 2)
        return angle.tan().cast(self.scale.dtype)

    def _log_density(self, z: Tensor) -> Tensor:
        return math.log(2 / math.pi) - self.scale.log() - (z * z).log1p()

    def cdf(self, value: Any) -> Tensor:
        """Return the cumulative probability of `value`."""
        return self._standard(value).atan() * (2 / math.pi)

    def icdf(self, value: Any) -> Tensor:
        """Return the quantile of the cumulative probability `value`."""
        return (self._share(value) * (math.pi / 2)).tan() * self.scale

    def entropy(self) -> Tensor:
        """Return the entropy, in nats."""
        return math.log(2 * math.pi) + self.scale.log()
