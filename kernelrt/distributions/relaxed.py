"""Relaxed distributions: continuous approximations of discrete ones, with gradients.

Maddison, Mnih, Teh, The Concrete Distribution, arXiv:1611.00712; Jang, Gu, Poole, arXiv:1611.01144.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.distributions import constraints
from kernelrt.distributions.discrete import Categorical, Chances
from kernelrt.distributions.distribution import Distribution, as_params, static
from kernelrt.distributions.transformed import TransformedDistribution
from kernelrt.distributions.transforms import ExpTransform, SigmoidTransform
from kernelrt.tensor.methods.random_draws_in_place import gumbels
from kernelrt.tensor.rng import random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["RelaxedBernoulli", "RelaxedOneHotCategorical"]


class _LogitRelaxedBernoulli(Chances):
    """The distribution of the logits of :class:`RelaxedBernoulli`."""

    arg_constraints: ClassVar = {
        "temperature": constraints.positive, "probs": constraints.unit_interval,
        "logits": constraints.real,
    }  # fmt: skip
    has_rsample = True
    _params: ClassVar[tuple[str, ...]] = ("temperature", "_probs", "_logits")

    def __init__(
        self, temperature: float | Tensor, probs: float | Tensor | None,
        logits: float | Tensor | None, validate_args: bool | None,
    ) -> None:  # fmt: skip
        held, self.temperature = self._hold(probs, logits, temperature=temperature)
        super().__init__(held.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.real

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        kind = self.logits.dtype
        u = random.rand(self._extended(sample_shape), dtype=kind.accumulator)
        u = u.clamp(2.0**-kind.accumulator.digits, 1 - 2.0**-kind.accumulator.digits)
        noise = (u.log() - (-u).log1p()).cast(kind)
        return (self.logits + noise) / self.temperature

    def log_prob(self, value: Any) -> Tensor:
        away = self.logits - self._value(value) * self.temperature
        return self.temperature.log() + away - 2 * away.softplus()


class _ExpRelaxedCategorical(Distribution):
    """The distribution of the logarithms of :class:`RelaxedOneHotCategorical`."""

    has_rsample = True
    arg_constraints: ClassVar = {"temperature": constraints.positive}
    _parts = ("_categorical",)

    def __init__(
        self, temperature: float | Tensor, probs: Tensor | None, logits: Tensor | None,
        validate_args: bool | None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits, validate_args)
        (self.temperature,) = as_params(temperature=temperature)
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args
        )

    @property
    def support(self) -> Constraint:
        return constraints.real_vector

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        logits = self._categorical.logits
        noise = gumbels(self._extended(sample_shape), logits.dtype)
        return ((logits + noise) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Any) -> Tensor:
        size = static(self.event_shape[0], "probs")
        score = self._categorical.logits - self.temperature * self._value(value)
        norm = math.lgamma(size) + (size - 1) * self.temperature.log()
        return score.sum(-1) - size * score.logsumexp(-1) + norm


class RelaxedBernoulli(TransformedDistribution):
    """A relaxed Bernoulli distribution, of numbers between 0 and 1 that are mostly close to 0 or 1.

    A sample is ``sigmoid((logits + log(u) - log(1 - u)) / temperature)`` with a uniform u
    (Maddison, Mnih and Teh, The Concrete Distribution, arXiv:1611.00712, 2016; Jang, Gu and Poole,
    Categorical Reparameterization with Gumbel-Softmax, arXiv:1611.01144, 2016).

    Parameters
    ----------
    temperature : float or Tensor
        Temperature, above 0; samples are closer to 0 or 1 if it is lower.
    probs : float or Tensor, optional
        Probabilities of numbers above one half.
    logits : float or Tensor, optional
        Log odds, instead of `probs`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.tensor([0.25, 0.75], requires_grad=True)
    >>> drawn = krt.distributions.RelaxedBernoulli(0.5, p).rsample((3,))
    >>> drawn.shape, bool(((drawn > 0) & (drawn < 1)).all())
    ((3, 2), True)
    """

    arg_constraints: ClassVar = {
        "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip

    def __init__(
        self, temperature: float | Tensor, probs: float | Tensor | None = None,
        logits: float | Tensor | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = _LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args)

    @property
    def _base(self) -> _LogitRelaxedBernoulli:
        assert isinstance(self.base_dist, _LogitRelaxedBernoulli)
        return self.base_dist

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self._base.temperature

    @property
    def probs(self) -> Tensor:
        """The probabilities of numbers above one half."""
        return self._base.probs

    @property
    def logits(self) -> Tensor:
        """The log odds."""
        return self._base.logits


class RelaxedOneHotCategorical(TransformedDistribution):
    """A relaxed one-hot distribution: over vectors of positive numbers that sum to 1.

    The lower the temperature, the closer samples are to one-hot vectors.

    A sample is ``softmax((logits + g) / temperature)`` with Gumbel variates g (Maddison, Mnih and
    Teh, The Concrete Distribution, arXiv:1611.00712, 2016; Jang, Gu and Poole, Categorical
    Reparameterization with Gumbel-Softmax, arXiv:1611.01144, 2016).

    Parameters
    ----------
    temperature : float or Tensor
        Temperature, above 0; samples are closer to one-hot if it is lower.
    probs, logits : Tensor, optional
        See :class:`Categorical`.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.RelaxedOneHotCategorical(0.5, krt.tensor([1.0, 1.0, 2.0]))
    >>> p.rsample((4,)).sum(-1).round(decimals=4).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    arg_constraints: ClassVar = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self, temperature: float | Tensor, probs: Tensor | None = None,
        logits: Tensor | None = None, validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = _ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args)

    @property
    def _base(self) -> _ExpRelaxedCategorical:
        assert isinstance(self.base_dist, _ExpRelaxedCategorical)
        return self.base_dist

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: shares that sum to 1."""
        return constraints.simplex

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self._base.temperature

    @property
    def probs(self) -> Tensor:
        """The probability of each element to be the greatest."""
        return self._base._categorical.probs  # noqa: SLF001 - its base

    @property
    def logits(self) -> Tensor:
        """The log probabilities."""
        return self._base._categorical.logits  # noqa: SLF001 - as above
