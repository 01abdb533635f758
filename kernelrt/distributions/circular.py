"""Distributions of angles: VonMises."""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kernelrt import dtype as dt
from kernelrt.distributions import constraints
from kernelrt.distributions.distribution import Distribution, as_params
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.random_draws_in_place import positive_rand
from kernelrt.tensor.rng import random
from kernelrt.tensor.rng.discrete_draws import first
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.ir import Dim
    from kernelrt.tensor import Tensor

__all__ = ["VonMises"]

#: A candidate is rejected with probability below 0.35; if all are (1 in 1e9), the sample is `loc`.
_ROUNDS: Final = 20


class VonMises(Distribution):
    """The von Mises distribution of angles.

    Samples come from rejection sampling (Best and Fisher, Applied Statistics 28, 1979). The 20
    candidates for a sample are drawn at once, and the first accepted one is the sample.

    The density of an angle x, with the concentration k and the modified Bessel function I0::

        exp(k * cos(x - loc)) / (2 * pi * I0(k))

    Parameters
    ----------
    loc, concentration : float or Tensor
        Mean angle, in radians, and concentration around it, above 0.
    validate_args : bool, optional
        Whether to check parameters and values.

    Examples
    --------
    >>> p = krt.distributions.VonMises(0.0, 4.0)
    >>> p.mean.item(), p.sample((1000,)).abs().max().item() <= np.pi
    (0.0, True)
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real, "concentration": constraints.positive,
    }  # fmt: skip
    _params = ("loc", "concentration")

    def __init__(
        self, loc: float | Tensor, concentration: float | Tensor,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.loc, self.concentration = as_params(loc=loc, concentration=concentration)
        super().__init__(self.loc.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        """Constraint on the values of samples: any real number, because angles repeat."""
        return constraints.real

    @property
    def mean(self) -> Tensor:
        """The mean angle: `loc`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The mode: `loc`."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance, from 0 to 1: ``1 - I1(k) / I0(k)``, with the concentration k."""
        return 1 - self.concentration.i1e() / self.concentration.i0e()

    def log_prob(self, value: Any) -> Tensor:
        k = self.concentration
        near = k * ((self._value(value) - self.loc).cos() - 1)
        return near - math.log(2 * math.pi) - k.i0e().log()

    def sample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw angles from -pi to pi, without gradients.

        Parameters
        ----------
        sample_shape : sequence of int
            Shape of the samples, in front of the batch shape.

        Returns
        -------
        Tensor
            Radians, of shape ``(*sample_shape, *batch_shape)``.
        """
        shape = self._extended(sample_shape)
        with no_grad():
            # Below 1e-8 angles are uniform to float32 precision.
            k = self.concentration.detach().double().clamp(min=1e-8).unsqueeze(-1)
            tau = 1 + (1 + 4 * k * k).sqrt()
            rho = 2 * k / (tau + (2 * tau).sqrt())  # (tau - sqrt(2 tau)) / (2 k)
            r = (1 + rho * rho) / (2 * rho)
            rounds = (*shape, _ROUNDS)
            z = (math.pi * random.rand(rounds, dtype=dt.float64)).cos()
            c = k * (r * r - 1) / (r + z)  # k (r - f), with f the cosine of the candidate
            u = positive_rand(rounds, dt.float64)
            accepted = (c * (2 - c) > u) | ((c / u).log() + 1 >= c)
            cosine = first(accepted, (1 + r * z) / (r + z), self.loc.double().expand(shape) * 0 + 1)
            size = cosine.clamp(-1, 1).acos()
            angle = where(random.bernoulli(shape, 0.5), -size, size) + self.loc.detach().double()
            turned = (angle + math.pi) % (2 * math.pi) - math.pi
            return turned.cast(self.loc.dtype)
