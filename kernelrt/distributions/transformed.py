"""TransformedDistribution, and transformed normal distributions."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kernelrt.distributions import constraints
from kernelrt.distributions.bundles import StickBreakingTransform
from kernelrt.distributions.continuous import Normal
from kernelrt.distributions.distribution import Distribution, UnsupportedError
from kernelrt.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    TanhTransform,
    Transform,
    widened,
)
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import broadcast
from kernelrt.tensor.nodes.arguments import shape_of
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["LogNormal", "LogisticNormal", "TanhNormal", "TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of transformed samples of another distribution.

    Let x be the input that the transforms map to y. The log density of y is the log density of the
    base distribution at x, minus the log absolute Jacobian determinant of the transforms at x.

    Parameters
    ----------
    base_distribution : Distribution
        Distribution of the samples.
    transforms : Transform or sequence of Transform
        Transforms, in the order in which they are applied.
    validate_args : bool, optional
        Whether to check parameters and values.

    Raises
    ------
    DTypeError
        `base_distribution` is not a Distribution, or an item of `transforms` is not a Transform.

    Examples
    --------
    >>> p = krt.distributions.TransformedDistribution(
    ...     krt.distributions.Uniform(0.0, 1.0), krt.distributions.AffineTransform(2.0, 4.0))
    >>> round(p.log_prob(3.0).exp().item(), 4), p.cdf(3.0).item(), p.icdf(0.25).item()
    (0.25, 0.25, 3.0)
    """

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(base_distribution, Distribution):
            raise DTypeError(
                "base_distribution: expected a Distribution, not "
                f"{type(base_distribution).__name__}"
            )
        single = isinstance(transforms, Transform)
        self.transforms: list[Transform] = [transforms] if single else list(transforms)  # type: ignore[list-item, arg-type]
        self._transform = ComposeTransform(self.transforms)
        inner = len(base_distribution.event_shape)
        given = (*base_distribution.batch_shape, *base_distribution.event_shape)
        whole = self._transform.forward_shape(given)
        before = self._transform.inverse_shape(whole)
        self.base_dist = base_distribution if before == given else base_distribution.expand(
            before[: len(before) - inner])  # fmt: skip
        #: Number of axes of the base that form one input value of the transform.
        self._tail = max(inner, self._transform.event_dim)
        cut = len(whole) - (self._tail + self._transform.out_dim - self._transform.event_dim)
        super().__init__(whole[:cut], whole[cut:], validate_args)

    def expand(self, batch_shape: Sequence[Dim]) -> Self:
        made = copy.copy(self)
        wanted = shape_of((tuple(batch_shape),))
        if broadcast(self.batch_shape, wanted) != wanted:
            raise ShapeError(
                f"batch_shape: the batch shape {self.batch_shape} of the distribution does not "
                f"broadcast to {wanted}"
            )
        before = self._transform.inverse_shape((*wanted, *self.event_shape))
        made.base_dist = self.base_dist.expand(
            before[: len(before) - len(self.base_dist.event_shape)]
        )
        made.__dict__["_batch_shape"] = wanted
        return made

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether :meth:`rsample` is available."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support
        return widened(self.transforms[-1].codomain, len(self.event_shape))

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            return self._transform(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        return self._transform(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        y = self._value(value)
        x = self._transform.inv(y)
        total = self.base_dist.log_prob(x)
        size = self._transform.log_abs_det_jacobian(x, y) if self.transforms else None
        for _ in range(self._tail - len(self.base_dist.event_shape)):
            total = total.sum(-1)
        if size is None:
            return total
        for _ in range(self._tail - self._transform.event_dim):  # further axes of the event
            size = size.sum(-1)
        return total - size

    def cdf(self, value: Any) -> Tensor:
        self._check_numbers("cdf")
        below = self.base_dist.cdf(self._transform.inv(self._value(value)))
        turned: Tensor = self._turned(below)
        return turned

    def icdf(self, value: Any) -> Tensor:
        self._check_numbers("icdf")
        return self._transform(self.base_dist.icdf(self._turned(value)))

    def _check_numbers(self, what: str) -> None:
        if self._transform.event_dim:
            raise UnsupportedError(
                f"{what}: expected a distribution over scalars, not over "
                f"{'vectors' if self._transform.event_dim == 1 else 'matrices'}, because only "
                "scalars have an order"
            )

    def _turned(self, share: Any) -> Any:
        """Return a cumulative probability, or its complement where the transforms decrease."""
        sign = self._transform.sign
        if isinstance(sign, int):
            return share if sign == 1 else 1 - share
        return sign * (share - 0.5) + 0.5


class LogNormal(TransformedDistribution):
    """The distribution of the exponential of a normal variate.

    The density of a number ``x > 0``, with ``z = (log(x) - loc) / scale``::

        exp(-z**2 / 2) / (x * scale * sqrt(2 * pi))

    Parameters
    ----------
    loc, scale : float or Tensor
        Mean and standard deviation of the log.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.LogNormal(0.0, 1.0)
    >>> round(p.mean.item(), 4), round(p.mode.item(), 4), p.cdf(1.0).item()      # sqrt(e), 1 / e
    (1.6487, 0.3679, 0.5)
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(
        self, loc: float | Tensor, scale: float | Tensor, validate_args: bool | None = None
    ) -> None:
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    @property
    def _normal(self) -> Normal:
        assert isinstance(self.base_dist, Normal)
        return self.base_dist

    @property
    def loc(self) -> Tensor:
        """The mean of the log."""
        return self._normal.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the log."""
        return self._normal.scale

    @property
    def mean(self) -> Tensor:
        """The mean: ``exp(loc + scale**2 / 2)``."""
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        """The mode: ``exp(loc - scale**2)``."""
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        """The variance: ``(exp(scale**2) - 1) * exp(2 * loc + scale**2)``."""
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self._normal.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """The distribution of n + 1 shares that sum to 1, made of n normal variates.

    :class:`StickBreakingTransform` makes the shares. The event is the last axis of the parameters,
    or an axis of size 1 if they are numbers; the other axes are the batch.

    Parameters
    ----------
    loc, scale : float or Tensor
        Mean and standard deviation before the transform, shape (..., n).
    validate_args : bool, optional
        Whether to check parameters and values.

    References
    ----------
    Aitchison and Shen, Logistic-normal distributions, Biometrika 67, 1980.

    Examples
    --------
    >>> p = krt.distributions.LogisticNormal(krt.zeros(5, 3), krt.ones(3))
    >>> p.batch_shape, p.event_shape
    ((5,), (4,))
    >>> p.sample().sum(-1).round(decimals=4).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """

    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}

    def __init__(
        self, loc: float | Tensor, scale: float | Tensor, validate_args: bool | None = None
    ) -> None:
        base = Normal(loc, scale, validate_args)
        super().__init__(base if base.batch_shape else base.expand((1,)), StickBreakingTransform(),
                         validate_args)  # fmt: skip

    @property
    def loc(self) -> Tensor:
        """The mean before the transform."""
        assert isinstance(self.base_dist, Normal)
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation before the transform."""
        assert isinstance(self.base_dist, Normal)
        return self.base_dist.scale


class TanhNormal(TransformedDistribution):
    """The distribution of ``tanh`` of a normal variate, scaled to an interval.

    Policies with bounded actions use it (Haarnoja and others, arXiv:1801.01290, appendix C). The
    log density of a sample is exact even near the ends, because a sample remembers the normal
    variate that it was computed from.

    Parameters
    ----------
    loc, scale : float or Tensor
        Mean and standard deviation before the tanh.
    low, high : float or Tensor
        Ends of the interval.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> policy = krt.distributions.TanhNormal(krt.zeros(3), krt.ones(3))
    >>> action = policy.rsample()
    >>> policy.log_prob(action).shape
    (3,)
    >>> bool((action.abs() <= 1).all())
    True
    """

    def __init__(
        self, loc: float | Tensor, scale: float | Tensor, low: float | Tensor = -1.0,
        high: float | Tensor = 1.0, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        parts: list[Transform] = [TanhTransform()]
        plain = isinstance(low, int | float) and isinstance(high, int | float)
        if not (plain and (low, high) == (-1, 1)):
            parts.append(AffineTransform((low + high) / 2, (high - low) / 2))
        self._ends = constraints.interval(low, high)
        super().__init__(Normal(loc, scale, validate_args), parts, validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: from `low` to `high`."""
        return self._ends

    @property
    def mode(self) -> Tensor:
        """The scaled tanh of the mean: the median, which is often near the mode."""
        return self._transform(self.base_dist.mean)

    def entropy(self) -> Tensor:
        """Raise UnsupportedError; use the mean of ``-log_prob(rsample())`` instead."""
        raise UnsupportedError(
            "TanhNormal has no entropy in closed form; use the mean of -log_prob(rsample())"
        )


