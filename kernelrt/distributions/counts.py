"""Distributions of counts: Poisson, Geometric, Binomial, NegativeBinomial, Multinomial."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt import dtype as dt
from kernelrt.distributions import constraints
from kernelrt.distributions.discrete import Chances, OverCategories
from kernelrt.distributions.distribution import Distribution, as_params
from kernelrt.distributions.noise import log_gamma
from kernelrt.errors import ShapeError
from kernelrt.tensor import is_tracing
from kernelrt.tensor.free_functions.creation import arange, zeros, zeros_like
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.random_draws_in_place import exponentials
from kernelrt.tensor.nodes.arguments import integer
from kernelrt.tensor.rng.discrete_draws import draw_binomial, draw_poisson
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["Binomial", "Geometric", "Multinomial", "NegativeBinomial", "Poisson"]


class Poisson(Distribution):
    """The Poisson distribution.

    If the mean is below 10, the gaps between events are drawn from the exponential distribution. A
    sample is the number of events in a unit of time. Otherwise samples come from rejection
    sampling: 16 candidates for a sample are drawn at once. If none is accepted (in 1 of 2e8
    samples), the sample is the mean, rounded down.

    The probability of a whole number ``k >= 0`` is ``rate**k * exp(-rate) / k!``.

    Parameters
    ----------
    rate : float or Tensor
        Mean, at least 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Poisson(2.5)
    >>> p.mean.item(), p.mode.item(), p.variance.item()
    (2.5, 2.0, 2.5)
    """

    arg_constraints: ClassVar = {"rate": constraints.nonnegative}
    _params = ("rate",)

    def __init__(self, rate: float | Tensor, validate_args: bool | None = None) -> None:
        (self.rate,) = as_params(rate=rate)
        super().__init__(self.rate.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        """The mean: `rate`."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """The mode: `rate`, rounded down."""
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        """The variance: `rate`."""
        return self.rate

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            return draw_poisson(self.rate, self._extended(sample_shape)).cast(self.rate.dtype)

    def log_prob(self, value: Any) -> Tensor:
        found = self._value(value).cast(self.rate.dtype)
        return found.xlogy(self.rate) - self.rate - (found + 1).lgamma()


class Geometric(Chances):
    """The geometric distribution: the number of failures before the first success.

    The probability of a whole number ``k >= 0`` is ``(1 - probs)**k * probs``.

    Parameters
    ----------
    probs : float or Tensor, optional
        Probability of success, above 0 and up to 1.
    logits : float or Tensor, optional
        Log odds, instead of `probs`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Geometric(0.25)
    >>> p.mean.item(), p.mode.item(), p.variance.item()
    (3.0, 0.0, 12.0)
    """

    arg_constraints: ClassVar = {
        "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip

    def __init__(
        self, probs: float | Tensor | None = None, logits: float | Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (held,) = self._hold(probs, logits)
        super().__init__(held.dims, (), validate_args)
        if probs is not None and self._validates and not is_tracing():
            self._demand("probs", held, constraints.Constraint(
                "a number above 0 and up to 1", lambda x: x > 0))  # fmt: skip

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        """The mean: ``1 / probs - 1``."""
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        """The mode: 0."""
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        """The variance: ``(1 / probs - 1) / probs``."""
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            shape, chance = self._extended(sample_shape), self.probs.double()
            trials = exponentials(shape, dt.float64) / -(-chance).log1p()
            return trials.floor().cast(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        found, chance = self._value(value), self.probs
        sure = (chance == 1) & (found == 0)
        return found * (-where(sure, 0.0, chance)).log1p() + chance.log()

    def entropy(self) -> Tensor:
        bits = self.logits.binary_cross_entropy_with_logits(self.probs, reduction="none")
        return bits / self.probs


class Binomial(Chances):
    """The binomial distribution: the number of successes in a number of trials.

    If the mean number of successes, or of failures, is below 10, the gaps between them are drawn
    from the geometric distribution. A sample counts how many gaps fit into the trials. Otherwise
    samples come from rejection sampling: 16 candidates for a sample are drawn at once. If none is
    accepted (in 1 of 2e8 samples), the sample is the mode.

    The probability of a whole number k from 0 to n, with n the `total_count`::

        n! / (k! * (n - k)!) * probs**k * (1 - probs)**(n - k)

    Parameters
    ----------
    total_count : int or Tensor
        Number of trials, at least 0.
    probs : float or Tensor, optional
        Probability of success, from 0 to 1.
    logits : float or Tensor, optional
        Log odds, instead of `probs`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Binomial(4, 0.5)
    >>> p.mean.item(), p.variance.item(), round(p.log_prob(2.0).exp().item(), 4)
    (2.0, 1.0, 0.375)
    >>> p.enumerate_support().tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """

    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval,
        "logits": constraints.real,
    }  # fmt: skip
    has_enumerate_support = True
    _params: ClassVar[tuple[str, ...]] = ("total_count", "_probs", "_logits")

    def __init__(
        self, total_count: int | Tensor = 1, probs: float | Tensor | None = None,
        logits: float | Tensor | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        held, self.total_count = self._hold(probs, logits, total_count=total_count)
        super().__init__(held.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: whole numbers from 0 to `total_count`."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        """The mean: ``total_count * probs``."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        """The mode: ``(total_count + 1) * probs``, rounded down, at most `total_count`."""
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        """The variance: ``total_count * probs * (1 - probs)``."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            shape = self._extended(sample_shape)
            return draw_binomial(self.total_count, self.probs, shape).cast(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        found, n, logits = self._value(value), self.total_count, self.logits
        ways = (n + 1).lgamma() - (found + 1).lgamma() - (n - found + 1).lgamma()
        return ways + found * logits - n * logits.softplus()

    def entropy(self) -> Tensor:
        every = self.log_prob(self.enumerate_support())
        return -(every.exp() * every).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return the numbers from 0 to `total_count`, along a new first axis.

        Parameters
        ----------
        expand : bool
            Whether to repeat the numbers for each distribution of the batch. Otherwise the axes of
            the batch have size 1.

        Returns
        -------
        Tensor
            Numbers of shape ``(total_count + 1, *batch_shape)`` in the dtype of the probabilities.

        Raises
        ------
        ShapeError
            Elements of `total_count` differ, or the call is inside a traced function.
        """
        if is_tracing():
            raise ShapeError(
                "total_count: enumerate_support needs the values of total_count, which are unknown "
                "while a function is traced; call enumerate_support outside the jitted function"
            )
        counts = self.total_count.detach()
        most = int(counts.max().item())
        if most != int(counts.min().item()):
            raise ShapeError(
                "total_count: enumerate_support expects equal elements, because all of them share "
                "one support; create a Binomial for each count"
            )
        rank = len(self.batch_shape)
        line = arange(most + 1, dtype=self.probs.dtype).reshape(-1, *([1] * rank))
        return line.expand((most + 1, *self.batch_shape)) if expand else line


class NegativeBinomial(Chances):
    """The negative binomial distribution: the number of successes before a number of failures.

    A sample is a Poisson variate whose rate is a gamma variate.

    The probability of a whole number ``k >= 0``, with n the `total_count`::

        Gamma(n + k) / (k! * Gamma(n)) * (1 - probs)**n * probs**k

    Parameters
    ----------
    total_count : float or Tensor
        Number of failures, not necessarily whole; above 0, or 0 if no samples are drawn.
    probs : float or Tensor, optional
        Probability of success, at least 0 and below 1.
    logits : float or Tensor, optional
        Log odds, instead of `probs`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.NegativeBinomial(3.0, 0.5)
    >>> round(p.mean.item(), 4), round(p.variance.item(), 4)
    (3.0, 6.0)
    """

    arg_constraints: ClassVar = {
        "total_count": constraints.nonnegative,
        "probs": constraints.half_open_interval(0, 1), "logits": constraints.real,
    }  # fmt: skip
    _params: ClassVar[tuple[str, ...]] = ("total_count", "_probs", "_logits")

    def __init__(
        self, total_count: float | Tensor, probs: float | Tensor | None = None,
        logits: float | Tensor | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        held, self.total_count = self._hold(probs, logits, total_count=total_count)
        super().__init__(held.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        """The mean: ``total_count * probs / (1 - probs)``."""
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """The variance: ``total_count * probs / (1 - probs)**2``."""
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            shape = self._extended(sample_shape)
            log_rate = log_gamma(self.total_count.double(), shape) + self.logits.double()
            return draw_poisson(log_rate.exp(), shape).cast(self.total_count.dtype)

    def log_prob(self, value: Any) -> Tensor:
        found, n = self._value(value).cast(self.total_count.dtype), self.total_count
        ways = (n + found).lgamma() - (found + 1).lgamma() - n.lgamma()
        ways = where(n + found == 0, 0.0, ways)
        return ways - n * self.logits.softplus() - found * (-self.logits).softplus()


class Multinomial(OverCategories):
    """The multinomial distribution: the counts of categories in a number of draws.

    The event shape is (n,) for n categories. The batch shape is the shape of the other axes. The
    probability of counts k with the sum `total_count`::

        total_count! / prod(k!) * prod(probs**k)

    Parameters
    ----------
    total_count : int
        Number of draws, at least 0.
    probs : Tensor, optional
        Nonnegative weights, shape (..., n); they are divided by their sum.
    logits : Tensor, optional
        Unnormalized log probabilities, shape (..., n), instead of `probs`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.Multinomial(4, krt.tensor([1.0, 1.0, 2.0]))
    >>> p.mean.tolist(), p.sample().sum().item()
    ([1.0, 1.0, 2.0], 4.0)
    """

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.total_count = integer(total_count, "total_count", least=0)
        super().__init__(probs, logits, validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: counts with the sum `total_count`."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        """The mean of each count: ``total_count * probs``."""
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        """The variance of each count: ``total_count * probs * (1 - probs)``."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        with no_grad():
            shape, kind = self._extended(sample_shape), self.probs.dtype
            drawn = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
            none = zeros(shape, dtype=kind)
            return none.scatter_add(-1, drawn, (drawn * 0 + 1).cast(kind))

    def log_prob(self, value: Any) -> Tensor:
        found = self._value(value).cast(self.probs.dtype)
        shares = where((found == 0) & (self.logits == -math.inf), 0.0, found * self.logits)
        ways = math.lgamma(self.total_count + 1) - (found + 1).lgamma().sum(-1)
        return ways + shares.sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        found = n * self._categorical.entropy() - math.lgamma(n + 1)
        # Add the mean of log(x!) for the count x of each category, which is binomial.
        counts = arange(n + 1, dtype=self.probs.dtype).reshape(-1, *([1] * self.probs.ndim))
        chances = Binomial(n, self.probs, validate_args=False).log_prob(counts).exp()
        return found + (chances * (counts + 1).lgamma()).sum((0, -1))
