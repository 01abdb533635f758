"""Distributions of categories: Bernoulli, Categorical, OneHotCategorical."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt import dtype as dt
from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params, static
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import broadcast, prod
from kernelrt.tensor.free_functions.creation import arange, full_like
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Bernoulli", "Categorical", "Chances", "OneHotCategorical",
           "OneHotCategoricalStraightThrough", "OverCategories"]  # fmt: skip


def _one_of(kind: str, probs: object, logits: object) -> None:
    if (probs is None) == (logits is None):
        raise ShapeError(
            f"probs, logits: {kind} takes exactly one of them, not "
            f"{'both' if logits is not None else 'neither'}"
        )


def _safe(probs: Tensor) -> Tensor:
    """Return probabilities clamped so that their logarithms are finite."""
    least = 2.0 ** (1 - probs.dtype.digits)
    return probs.clamp(least, 1 - least)


class Chances(Distribution):
    """A distribution with a probability of success, given as `probs` or as `logits`."""

    _params: ClassVar[tuple[str, ...]] = ("_probs", "_logits")
    _probs: Tensor
    _logits: Tensor

    def _given(self, name: str) -> Tensor | None:
        held = super()._given(name)
        return super()._given("_" + name) if held is None else held

    def _hold(self, probs: Any, logits: Any, **others: Any) -> list[Tensor]:
        """Keep `probs` or `logits`, whichever is given; return it and `others` in one shape."""
        _one_of(type(self).__name__, probs, logits)
        name = "logits" if probs is None else "probs"
        held, *rest = as_params(**{name: logits if probs is None else probs}, **others)
        self.__dict__["_" + name] = held
        return [held, *rest]

    @property
    def probs(self) -> Tensor:
        """The probabilities of success."""
        held: Tensor | None = self.__dict__.get("_probs")
        return self._logits.sigmoid() if held is None else held

    @property
    def logits(self) -> Tensor:
        """The log odds: ``log(probs / (1 - probs))``."""
        if "_logits" in self.__dict__:
            return self._logits
        safe = _safe(self._probs)
        return safe.log() - (-safe).log1p()


class Bernoulli(Chances):
    """The Bernoulli distribution: 1 with a probability, otherwise 0.

    Samples are floats, 0 or 1.

    Parameters
    ----------
    probs : float or Tensor, optional
        Probabilities of 1.
    logits : float or Tensor, optional
        Log odds, instead of `probs`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Bernoulli(0.25)
    >>> p.mean.item(), p.mode.item(), p.variance.item()
    (0.25, 0.0, 0.1875)
    >>> round(p.log_prob(1.0).exp().item(), 4)
    0.25
    """

    arg_constraints: ClassVar = {
        "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip
    has_enumerate_support = True

    def __init__(
        self, probs: float | Tensor | None = None, logits: float | Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (held,) = self._hold(probs, logits)
        super().__init__(held.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.boolean

    @property
    def mean(self) -> Tensor:
        """The mean: `probs`."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The mode: 0 or 1, whichever is more likely; NaN for a probability of one half."""
        probs = self.probs
        return where(probs == 0.5, math.nan, (probs >= 0.5).cast(probs.dtype))

    @property
    def variance(self) -> Tensor:
        """The variance: ``probs * (1 - probs)``."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            return self.probs.expand(self._extended(sample_shape)).bernoulli()

    def log_prob(self, value: Any) -> Tensor:
        logits = self.logits
        target = self._value(value).cast(logits.dtype)
        shape = broadcast(logits.dims, target.dims)
        return -logits.expand(shape).binary_cross_entropy_with_logits(
            target.expand(shape), reduction="none"
        )

    def entropy(self) -> Tensor:
        logits = self.logits
        return logits.binary_cross_entropy_with_logits(self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return _all_values(2, self, self.probs.dtype, expand=expand)


def _all_values(
    count: int, of: Distribution, dtype: dt.DType, *, expand: bool
) -> Tensor:
    rank = len(of.batch_shape)
    line = arange(count, dtype=dtype).reshape(count, *([1] * rank))
    return line.expand((count, *of.batch_shape)) if expand else line


class Categorical(Distribution):
    """The categorical distribution: the index of a category.

    Samples are int64, from 0 to n - 1. The batch shape is that of the axes before the last.

    Parameters
    ----------
    probs : Tensor, optional
        Nonnegative weights, shape (..., n); they are divided by their sum.
    logits : Tensor, optional
        Unnormalized log probabilities, shape (..., n), instead of `probs`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Categorical(krt.tensor([1.0, 1.0, 2.0]))
    >>> p.probs.tolist(), p.mode.item()
    ([0.25, 0.25, 0.5], 2)
    >>> round(p.log_prob(2).exp().item(), 4)
    0.5
    """

    has_enumerate_support = True
    _params = ("probs", "logits")
    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    probs: Tensor
    logits: Tensor

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        _one_of("Categorical", probs, logits)
        name = "logits" if probs is None else "probs"
        (held,) = as_params(**{name: logits if probs is None else probs})
        if held.ndim < 1:
            raise ShapeError(f"{name}: Categorical expected at least one axis, not a scalar")
        self._count = int(held.shape[-1])
        if probs is None:
            self.logits = held - held.logsumexp(-1, keepdim=True)
            self.probs = self.logits.softmax(-1)
        else:
            self.probs = held / held.sum(-1, keepdim=True)
            self.logits = _safe(self.probs).log()
        super().__init__(held.dims[:-1], (), validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: indices from 0 to n - 1."""
        return constraints.integer_interval(0, self._count - 1)

    @property
    def param_shape(self) -> tuple[Dim, ...]:
        """Shape of the probabilities."""
        return self.probs.dims

    @property
    def mean(self) -> Tensor:
        """The mean: NaN, since categories have no order."""
        return full_like(self.probs[..., 0], math.nan)

    @property
    def mode(self) -> Tensor:
        """The most likely category, int64."""
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        """The variance: NaN, since categories have no order."""
        return full_like(self.probs[..., 0], math.nan)

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        shape = self._extended(sample_shape)
        size = tuple(shape[: len(shape) - len(self.batch_shape)])
        count = prod(size)
        if count == 0:
            return arange(0).reshape(shape)
        with no_grad():
            rows = self.probs.detach().reshape(-1, self._count)
            drawn = rows.multinomial(int(count), replacement=True)  # type: ignore[arg-type]
            return drawn.mT.reshape(shape)

    def log_prob(self, value: Any) -> Tensor:
        found = self._value(value).cast(dt.int64)
        shape = broadcast(found.dims, self.batch_shape)
        logits = self.logits.expand((*shape, self._count))
        return logits.gather(-1, found.expand(shape).unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        least = -3.4028234663852886e38 if self.logits.dtype is not dt.float64 else (
            -1.7976931348623157e308)  # fmt: skip
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return the indices of all categories, along a new first axis.

        Parameters
        ----------
        expand : bool
            Whether to repeat the indices for each distribution of the batch. Otherwise the axes of
            the batch have size 1.

        Returns
        -------
        Tensor
            int64 of shape ``(n, *batch_shape)``.

        Examples
        --------
        >>> krt.distributions.Categorical(krt.ones(3)).enumerate_support().tolist()
        [0, 1, 2]
        """
        return _all_values(self._count, self, dt.int64, expand=expand)


class OverCategories(Distribution):
    """Base class of distributions of vectors with an element for each category.

    Parameters
    ----------
    probs, logits : Tensor, optional
        See :class:`Categorical`.
    validate_args : bool, optional
        Whether to check parameters and values.
    """

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _parts = ("_categorical",)

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args
        )

    @property
    def probs(self) -> Tensor:
        """The probabilities, which sum to 1 along the last axis."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The log probabilities."""
        return self._categorical.logits


class OneHotCategorical(OverCategories):
    """The categorical distribution with one-hot vectors as samples.

    Samples are floats. The event shape is that of the categories, (n,).

    Parameters
    ----------
    probs, logits : Tensor, optional
        See :class:`Categorical`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.OneHotCategorical(krt.tensor([1.0, 1.0, 2.0]))
    >>> p.mean.tolist(), p.mode.tolist()
    ([0.25, 0.25, 0.5], [0.0, 0.0, 1.0])
    """

    has_enumerate_support = True

    @property
    def support(self) -> Constraint:
        return constraints.one_hot

    @property
    def mean(self) -> Tensor:
        """The mean: `probs`."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The most likely vector."""
        return self._vectors(self._categorical.mode)

    @property
    def variance(self) -> Tensor:
        """The variance of each element: ``probs * (1 - probs)``."""
        return self.probs * (1 - self.probs)

    def _vectors(self, places: Tensor) -> Tensor:
        return places.one_hot(static(self.event_shape[0], "probs")).cast(self.probs.dtype)

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        return self._vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Any) -> Tensor:
        return self._categorical.log_prob(self._value(value).argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._vectors(self._categorical.enumerate_support(expand))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A :class:`OneHotCategorical` whose samples have the gradient of `probs` (straight-through).

    The estimator is biased (Bengio, Leonard and Courville, Estimating or Propagating Gradients
    Through Stochastic Neurons for Conditional Computation, arXiv:1308.3432, 2013).

    Parameters
    ----------
    probs, logits : Tensor, optional
        One of the two, of shape (..., n); see :class:`Categorical`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.tensor([0.0, 1.0], requires_grad=True)
    >>> drawn = krt.distributions.OneHotCategoricalStraightThrough(p).rsample()
    >>> drawn.tolist()
    [0.0, 1.0]
    """

    has_rsample = True

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw samples whose gradient is that of the probabilities.

        Parameters
        ----------
        sample_shape : sequence of int
            Shape of the samples, in front of the batch shape.

        Returns
        -------
        Tensor
            One-hot vectors of shape ``(*sample_shape, *batch_shape, n)``.

        Examples
        --------
        >>> p = krt.tensor([0.0, 1.0], requires_grad=True)
        >>> drawn = krt.distributions.OneHotCategoricalStraightThrough(p).rsample()
        >>> (drawn * krt.tensor([1.0, 3.0])).sum().backward()
        >>> p.grad.tolist()
        [-2.0, 0.0]
        """
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())
