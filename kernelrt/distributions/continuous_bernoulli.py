"""The continuous Bernoulli distribution: an exponential one cut to the unit interval.

Loaiza-Ganem and Cunningham, arXiv:1907.06845. With the logit t, the density at x is
``t * exp(t * x) / expm1(t)``. Mirrored, x to 1 - x, it is that of -t, so each function is computed
for ``a = |t|``, as a series where a is below 1, with derivatives that keep their digits at 0.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kernelrt import dtype as dt
from kernelrt.distributions import constraints
from kernelrt.distributions.discrete import Chances
from kernelrt.ir.shape import broadcast
from kernelrt.tensor import Tensor
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.operation import operation
from kernelrt.tensor.rng import random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.distributions.constraints import Constraint
    from kernelrt.distributions.distribution import Shape
    from kernelrt.ir import Dim, UOp

__all__ = ["ContinuousBernoulli"]

_BERNOULLI_NUMBERS: Final = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138,
)  # fmt: skip
#: The odd coefficients of ``1 / expm1(a)`` from a on; what is left out below 1 is below 1e-18.
_ODD: Final = tuple(b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI_NUMBERS, 1))


def _series(a: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The sum of coefficients times even powers of `a`."""
    square, found = a.square(), a * 0
    for c in reversed(coefficients):
        found = found * square + c
    return found


def _parted(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where `a` is small, and it on both sides of that, harmless where it is on the other."""
    small = a < 1
    return small, where(small, a, 0.0), where(small, 1.0, a)


def _log_norm(a: Tensor) -> Tensor:
    """``log((1 - exp(-a)) / a)``."""
    small, near, far = _parted(a)
    series = _series(near, [c / (2 * k) for k, c in enumerate(_ODD, 1)])
    return where(small, near.square() * series - near / 2, (-(-far).expm1() / far).log())


def _low_mean(a: Tensor) -> Tensor:
    """``1 / a - 1 / expm1(a)``, the mean for the logit -a."""
    small, near, far = _parted(a)
    power = (-far).exp()
    return where(small, 0.5 - near * _series(near, _ODD), 1 / far - power / (1 - power))


def _mean(t: Tensor) -> Tensor:
    found = _low_mean(_size(t))
    return where(t > 0, 1 - found, found)


def _size(t: Tensor) -> Tensor:
    """The absolute value, whose slope at 0 is that of one side, as :func:`_above` has it there."""
    return where(t > 0, t, -t)


def _above(t: Tensor, x: Tensor) -> Tensor:
    """``t * x``, less its maximum over x."""
    return where(t > 0, t * (x - 1), t * x)


def _below(t: Tensor, x: Tensor) -> Tensor:
    """The probability of values up to `x`, which is from 0 to 1."""
    a = _size(t)
    below = where(t > 0, t * (x - 1), 0.0)
    return x * (_log_norm(a * x) - _log_norm(a) + below).exp()


@operation
def _quantile(t: Tensor, share: Tensor) -> Tensor:
    """The x that has this share of values below it."""
    a = t.abs().clamp(min=2.0**-100)
    side = where(t > 0, 1 - share, share)
    found = -(side * (-a).expm1()).log1p() / a
    found = where(t > 0, 1 - found, found)
    return found._of(custom(found.uop, _quantile_rule, t.uop, share.uop))  # noqa: SLF001 - an operation


def _quantile_rule(node: UOp, g: UOp, i: int) -> UOp:
    # Implicitly: the share of values below x stays where t changes.
    x, t, slope = (Tensor._of(u) for u in (node, node.arg.inputs[0], g))  # noqa: SLF001 - of nodes
    density = (_above(t, x) - _log_norm(_size(t))).exp()
    if i == 1:
        return (slope / density).uop
    by_t = _below(t, x) * (x * _mean(t * x) - _mean(t))
    return (-slope * by_t / density).uop


class ContinuousBernoulli(Chances):
    """Numbers from 0 to 1 whose density is proportional to ``probs**x * (1 - probs)**(1 - x)``.

    It is the likelihood that an autoencoder with binary cross entropy lacks for grey values. The
    shape of a batch is that of the parameter; an event is a number. Where PyTorch takes a series
    next to a chance of one half, and the uniform distribution for ``cdf`` and draws, all functions
    are exact here.

    Parameters
    ----------
    probs : float or Tensor, optional
        From 0 to 1; the density falls where it is below one half. The mean is another number.
    logits : float or Tensor, optional
        In their place: ``log(probs / (1 - probs))``.
    lims : tuple of float
        As in PyTorch, where a series is used between them; it changes nothing.
    validate_args : bool, optional
        Whether values are checked.

    Raises
    ------
    ShapeError
        Both of `probs` and `logits` are given, or none, or a chance is not from 0 to 1.

    References
    ----------
    Loaiza-Ganem and Cunningham, The continuous Bernoulli, arXiv:1907.06845.

    Examples
    --------
    >>> import kernelrt as krt
    >>> from kernelrt.distributions import ContinuousBernoulli
    >>> made = ContinuousBernoulli(krt.tensor([0.5, 0.9]))
    >>> made.mean > 0.6
    tensor([False,  True])
    >>> made.rsample((3,)).shape
    (3, 2)
    """

    arg_constraints: ClassVar = {
        "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip
    has_rsample = True

    def __init__(
        self, probs: float | Tensor | None = None, logits: float | Tensor | None = None,
        lims: tuple[float, float] = (0.499, 0.501),  # noqa: ARG002 - PyTorch's
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (held,) = self._hold(probs, logits)
        super().__init__(held.dims, (), validate_args)

    @property
    def support(self) -> Constraint:
        """What samples may be."""
        return constraints.unit_interval

    @property
    def param_shape(self) -> Shape:
        """The shape of the parameter."""
        return self.batch_shape

    def _wide(self) -> Tensor:
        """Logits of a type to compute with."""
        logits = self.logits
        return logits.cast(logits.dtype.accumulator)

    def _in_kind(self, found: Tensor, *given: Tensor) -> Tensor:
        """`found` in the type of the parameter and of what is given."""
        return found.cast(functools.reduce(dt.promote, (v.dtype for v in given), self.logits.dtype))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self._in_kind(_mean(self._wide()))

    @property
    def variance(self) -> Tensor:
        """The variance."""
        small, near, far = _parted(_size(self._wide()))
        power = (-far).exp()
        closed = 1 / far.square() - power / (1 - power).square()
        series = _series(near, [c * (2 * k - 1) for k, c in enumerate(_ODD, 1)])
        return self._in_kind(where(small, series, closed))

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        """Draw values that gradients pass, to the parameters."""
        t = self._wide()
        shape = self._extended(sample_shape)
        return self._in_kind(_quantile(t.expand(shape), random.rand(shape, dtype=t.dtype)))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, of `value`."""
        found = self._value(value)
        return self._in_kind(self._log_density(found), found)

    def _log_density(self, x: Tensor) -> Tensor:
        t = self._wide()
        return _above(t, x) - _log_norm(_size(t))

    def cdf(self, value: Any) -> Tensor:
        """The probability of values up to `value`."""
        found = self._value(value)
        return self._in_kind(_below(self._wide(), found.clamp(0, 1)), found)

    def icdf(self, value: Any) -> Tensor:
        """The value up to which others have the probability `value`."""
        t, share = self._wide(), self._share(value)
        wide = share.cast(dt.promote(t.dtype, share.dtype))
        whole = broadcast(t.dims, wide.dims)
        return self._in_kind(_quantile(t.expand(whole), wide.expand(whole)), share)

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        a = _size(self._wide())
        return self._in_kind(_log_norm(a) + a * _low_mean(a))
