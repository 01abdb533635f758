"""Distributions of absolute values: HalfNormal, HalfCauchy."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

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
        return constraints.nonnegative

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        raise NotImplementedError

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        return self.scale * self._noise(self._extended(sample_shape))

    def _standard(self, value: Any) -> Tensor:
        return self._value(value) / self.scale

    def log_prob(self, value: Any) -> Tensor:
        z = self._standard(value)
        return where(z >= 0, self._log_density(z), -math.inf)

    def _log_density(self, z: Tensor) -> Tensor:
        raise NotImplementedError


class HalfNormal(_Half):
    """The distribution of the absolute value of a normal variate around 0.

    The density of a number ``x >= 0``::

        2 * exp(-(x / scale)**2 / 2) / (scale * sqrt(2 * pi))

    Parameters
    ----------
    scale : float or Tensor
        Standard deviation of the normal variate, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.HalfNormal(2.0)
    >>> p.mode.item(), round(p.mean.item(), 4)
    (0.0, 1.5958)
    """

    @property
    def mean(self) -> Tensor:
        """The mean: ``scale * sqrt(2 / pi)``."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        """The variance: ``scale**2 * (1 - 2 / pi)``."""
        return self.scale.square() * (1 - 2 / math.pi)

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        return random.randn(shape, dtype=self.scale.dtype).abs()

    def _log_density(self, z: Tensor) -> Tensor:
        return 0.5 * math.log(2 / math.pi) - 0.5 * (z * z) - self.scale.log()

    def cdf(self, value: Any) -> Tensor:
        return (self._standard(value) / math.sqrt(2)).erf()

    def icdf(self, value: Any) -> Tensor:
        return self.scale * math.sqrt(2) * self._share(value).erfinv()

    def entropy(self) -> Tensor:
        return 0.5 * math.log(math.pi / 2) + 0.5 + self.scale.log()


class HalfCauchy(_Half):
    """The distribution of the absolute value of a Cauchy variate around 0; its mean is infinite.

    The density of a number ``x >= 0``::

        2 / (pi * scale * (1 + (x / scale)**2))

    Parameters
    ----------
    scale : float, or Tensor of any shape
        Scale of the Cauchy variate, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.HalfCauchy(2.0)
    >>> round(p.cdf(2.0).item(), 4)
    0.5
    """

    @property
    def mean(self) -> Tensor:
        """The mean: infinity."""
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        """The variance: infinity."""
        return full_like(self.scale, math.inf)

    def _noise(self, shape: tuple[Dim, ...]) -> Tensor:
        angle = random.rand(shape, dtype=dt.float64) * (math.pi / 2)
        return angle.tan().cast(self.scale.dtype)

    def _log_density(self, z: Tensor) -> Tensor:
        return math.log(2 / math.pi) - self.scale.log() - (z * z).log1p()

    def cdf(self, value: Any) -> Tensor:
        return self._standard(value).atan() * (2 / math.pi)

    def icdf(self, value: Any) -> Tensor:
        return (self._share(value) * (math.pi / 2)).tan() * self.scale

    def entropy(self) -> Tensor:
        return math.log(2 * math.pi) + self.scale.log()
