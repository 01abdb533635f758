"""Distributions made of other distributions: Independent, MixtureSameFamily."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt.distributions import constraints
from kernelrt.distributions.discrete import Categorical
from kernelrt.distributions.distribution import Distribution
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor.nodes.arguments import integer
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Independent", "MixtureSameFamily"]


class Independent(Distribution):
    """A distribution whose last batch axes become event axes.

    Its :meth:`log_prob` and :meth:`entropy` are those of the base distribution, summed over the
    moved axes.

    Parameters
    ----------
    base_distribution : Distribution
        Base distribution.
    reinterpreted_batch_ndims : int
        Number of batch axes to move to the event.
    validate_args : bool, optional
        Whether to check parameters and values.

    Raises
    ------
    DTypeError
        `base_distribution` is not a Distribution.
    ShapeError
        The batch has fewer than `reinterpreted_batch_ndims` axes.

    Examples
    --------
    >>> p = krt.distributions.Independent(krt.distributions.Normal(krt.zeros(5, 3), 1.0), 1)
    >>> p.batch_shape, p.event_shape, p.log_prob(krt.zeros(5, 3)).shape
    ((5,), (3,), (5,))
    """

    _parts = ()

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(base_distribution, Distribution):
            raise DTypeError(
                "base_distribution: expected a Distribution, not "
                f"{type(base_distribution).__name__}"
            )
        count = integer(reinterpreted_batch_ndims, "reinterpreted_batch_ndims", least=0)
        batch = base_distribution.batch_shape
        if count > len(batch):
            raise ShapeError(
                f"reinterpreted_batch_ndims: expected at most {len(batch)}, the number of batch "
                f"axes, not {count}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = count
        cut = len(batch) - count
        super().__init__(
            batch[:cut], (*batch[cut:], *base_distribution.event_shape), validate_args
        )

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether :meth:`rsample` is available."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    def expand(self, batch_shape: Sequence[Dim]) -> Independent:
        inner = self.event_shape[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand((*batch_shape, *inner))
        return Independent(base, self.reinterpreted_batch_ndims, self._validates)

    @property
    def mean(self) -> Tensor:
        """The mean of the base distribution."""
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        """The mode of the base distribution."""
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        """The variance of the base distribution."""
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def _summed(self, x: Tensor) -> Tensor:
        for _ in range(self.reinterpreted_batch_ndims):
            x = x.sum(-1)
        return x

    def log_prob(self, value: Any) -> Tensor:
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        return self._summed(self.base_dist.entropy())

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamily(Distribution):
    """A mixture of distributions of one class.

    The density is the mean of the components' densities, weighted by the probabilities of
    `mixture_distribution`.

    Parameters
    ----------
    mixture_distribution : Categorical
        Distribution of the component's index, batch shape (...).
    component_distribution : Distribution
        Components, along the last axis of the batch shape (..., n).
    validate_args : bool, optional
        Whether to check parameters and values.

    Raises
    ------
    DTypeError
        An argument is not a Categorical, or not a Distribution.
    ShapeError
        The batch shape of the components does not end in the number of components.

    Examples
    --------
    >>> parts = krt.distributions.Uniform(krt.tensor([0.0, 2.0]), krt.tensor([2.0, 4.0]))
    >>> p = krt.distributions.MixtureSameFamily(
    ...     krt.distributions.Categorical(krt.tensor([1.0, 3.0])), parts)
    >>> p.mean.item(), p.batch_shape
    (2.5, ())
    """

    _parts = ()

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(mixture_distribution, Categorical):
            raise DTypeError(
                "mixture_distribution: expected a Categorical, not "
                f"{type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise DTypeError(
                "component_distribution: expected a Distribution, not "
                f"{type(component_distribution).__name__}"
            )
        batch, wanted = component_distribution.batch_shape, mixture_distribution.param_shape
        if not batch or batch[-1] != wanted[-1]:
            raise ShapeError(
                f"component_distribution: expected a batch shape that ends in {wanted[-1]}, the "
                f"number of components, not {batch}"
            )
        self.mixture_distribution = mixture_distribution.expand(batch[:-1])
        self.component_distribution = component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: they satisfy the constraints of all components."""
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def expand(self, batch_shape: Sequence[Dim]) -> MixtureSameFamily:
        count = self.mixture_distribution.param_shape[-1]
        return MixtureSameFamily(
            self.mixture_distribution.expand(batch_shape),
            self.component_distribution.expand((*batch_shape, count)), self._validates,
        )  # fmt: skip

    def _weights(self) -> Tensor:
        """Return the component probabilities, with axes of size 1 for the event."""
        probs = self.mixture_distribution.probs
        return probs.reshape((*probs.dims, *([1] * len(self.event_shape))))

    @property
    def _axis(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The weighted mean of the components' means."""
        return (self._weights() * self.component_distribution.mean).sum(self._axis)

    @property
    def variance(self) -> Tensor:
        """The weighted mean of the components' variances, plus the variance of their means."""
        weights, parts = self._weights(), self.component_distribution
        inner = (weights * parts.variance).sum(self._axis)
        away = parts.mean - self.mean.unsqueeze(self._axis)
        return inner + (weights * away.square()).sum(self._axis)

    def _each(self, value: Any) -> Tensor:
        return self._value(value).unsqueeze(self._axis)

    def log_prob(self, value: Any) -> Tensor:
        each = self.component_distribution.log_prob(self._each(value))
        return (each + self.mixture_distribution.logits).logsumexp(-1)

    def cdf(self, value: Any) -> Tensor:
        each = self.component_distribution.cdf(self._each(value))
        return (each * self.mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            which = self.mixture_distribution.sample(sample_shape)
            every = self.component_distribution.sample(sample_shape)
            tail = len(self.event_shape)
            index = which.reshape((*which.dims, 1, *([1] * tail)))
            wanted = (*which.dims, 1, *self.event_shape)
            return every.gather(every.ndim - 1 - tail, index.expand(wanted)).squeeze(self._axis)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution!r}, {self.component_distribution!r})"
