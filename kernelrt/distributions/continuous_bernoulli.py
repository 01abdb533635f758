"""The continuous Bernoulli distribution: an exponential distribution cut to the unit interval.

Loaiza-Ganem and Cunningham, arXiv:1907.06845. With the logit t, the density at x is ``t * exp(t *
x) / expm1(t)``. Replacing x by 1 - x replaces t by -t. So each function is computed for ``a =
|t|``. For a below 1, it is a series with derivatives that are accurate at 0.
"""

# ruff: noqa: D102 - methods that override inherit the docstrings of Distribution

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
#: Coefficients of the odd powers of a in ``1 / expm1(a)``; the truncation error for a < 1 is below
#: 1e-18.
_ODD: Final = tuple(b / math.factorial(2 * k) for k, b in enumerate(_BERNOULLI_NUMBERS, 1))


def _series(a: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Return the sum of coefficients times even powers of `a`."""
    square, found = a.square(), a * 0
    for c in reversed(coefficients):
        found = found * square + c
    return found


def _by_size(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (a < 1, `a` where it is below 1, `a` elsewhere), with harmless values in the gaps."""
    small = a < 1
    return small, where(small, a, 0.0), where(small, 1.0, a)


def _log_norm(a: Tensor) -> Tensor:
    """Return ``log((1 - exp(-a)) / a)``."""
    small, near, far = _by_size(a)
    series = _series(near, [c / (2 * k) for k, c in enumerate(_ODD, 1)])
    return where(small, near.square() * series - near / 2, (-(-far).expm1() / far).log())


def _low_mean(a: Tensor) -> Tensor:
    """Return ``1 / a - 1 / expm1(a)``, the mean for the logit -a."""
    small, near, far = _by_size(a)
    power = (-far).exp()
    return where(small, 0.5 - near * _series(near, _ODD), 1 / far - power / (1 - power))


def _mean(t: Tensor) -> Tensor:
    found = _low_mean(_magnitude(t))
    return where(t > 0, 1 - found, found)


def _magnitude(t: Tensor) -> Tensor:
    """Return the absolute value, whose derivative at 0 is one-sided, as in :func:`_above`."""
    return where(t > 0, t, -t)


def _above(t: Tensor, x: Tensor) -> Tensor:
    """Return ``t * x`` minus its maximum over x."""
    return where(t > 0, t * (x - 1), t * x)


def _below(t: Tensor, x: Tensor) -> Tensor:
    """Return the cumulative probability of `x`, a number from 0 to 1."""
    a = _magnitude(t)
    below = where(t > 0, t * (x - 1), 0.0)
    return x * (_log_norm(a * x) - _log_norm(a) + below).exp()


@operation
def _quantile(t: Tensor, share: Tensor) -> Tensor:
    """Return the quantile of the cumulative probability `share`."""
    a = t.abs().clamp(min=2.0**-100)
    side = where(t > 0, 1 - share, share)
    found = -(side * (-a).expm1()).log1p() / a
    found = where(t > 0, 1 - found, found)
    return found._of(custom(found.uop, _quantile_rule, t.uop, share.uop))  # noqa: SLF001 - an operation


def _quantile_rule(node: UOp, g: UOp, i: int) -> UOp:
    # Implicit differentiation: the share of values below x is constant in t.
    x, t, grad = (Tensor._of(u) for u in (node, node.arg.inputs[0], g))  # noqa: SLF001 - of nodes
    density = (_above(t, x) - _log_norm(_magnitude(t))).exp()
    if i == 1:
        return (grad / density).uop
    by_t = _below(t, x) * (x * _mean(t * x) - _mean(t))
    return (-grad * by_t / density).uop


class ContinuousBernoulli(Chances):
    """Numbers from 0 to 1 with a density proportional to ``probs**x * (1 - probs)**(1 - x)``.

    This distribution is the proper likelihood for autoencoders that apply binary cross entropy to
    gray values. The batch shape is the shape of the parameter; an event is a number. If `probs` is
    near one half, PyTorch approximates: ``cdf`` and samples use the uniform distribution, and other
    functions use a series. In kernelrt all functions are exact.

    Parameters
    ----------
    probs : float or Tensor, optional
        Parameter from 0 to 1. The density decreases if it is below one half. It is not the mean.
    logits : float or Tensor, optional
        ``log(probs / (1 - probs))``, instead of `probs`.
    lims : tuple of float
        Ignored. PyTorch uses a series between these limits.
    validate_args : bool, optional
        Whether to check parameters and values.

    Raises
    ------
    DomainError
        `probs` is not from 0 to 1.
    ShapeError
        Both or neither of `probs` and `logits` are given.

    References
    ----------
    Loaiza-Ganem and Cunningham, The continuous Bernoulli, arXiv:1907.06845.

    Examples
    --------
    >>> p = krt.distributions.ContinuousBernoulli(krt.tensor([0.5, 0.9]))
    >>> p.mean[0].item(), (p.mean > 0.6).tolist()
    (0.5, [False, True])
    >>> p.rsample((3,)).shape
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
        return constraints.unit_interval

    @property
    def param_shape(self) -> Shape:
        """Shape of the parameter."""
        return self.batch_shape

    def _wide(self) -> Tensor:
        """Return the logits in the type for intermediate results."""
        logits = self.logits
        return logits.cast(logits.dtype.accumulator)

    def _in_kind(self, found: Tensor, *given: Tensor) -> Tensor:
        """Return `found` cast to the promoted type of the parameter and `given`."""
        return found.cast(functools.reduce(dt.promote, (v.dtype for v in given), self.logits.dtype))

    @property
    def mean(self) -> Tensor:
        return self._in_kind(_mean(self._wide()))

    @property
    def variance(self) -> Tensor:
        small, near, far = _by_size(_magnitude(self._wide()))
        power = (-far).exp()
        closed = 1 / far.square() - power / (1 - power).square()
        series = _series(near, [c * (2 * k - 1) for k, c in enumerate(_ODD, 1)])
        return self._in_kind(where(small, series, closed))

    def rsample(self, sample_shape: Sequence[Dim] = ()) -> Tensor:
        t = self._wide()
        shape = self._extended(sample_shape)
        return self._in_kind(_quantile(t.expand(shape), random.rand(shape, dtype=t.dtype)))

    def log_prob(self, value: Any) -> Tensor:
        found = self._value(value)
        return self._in_kind(self._log_density(found), found)

    def _log_density(self, x: Tensor) -> Tensor:
        t = self._wide()
        return _above(t, x) - _log_norm(_magnitude(t))

    def cdf(self, value: Any) -> Tensor:
        found = self._value(value)
        return self._in_kind(_below(self._wide(), found.clamp(0, 1)), found)

    def icdf(self, value: Any) -> Tensor:
        t, share = self._wide(), self._share(value)
        wide = share.cast(dt.promote(t.dtype, share.dtype))
        whole = broadcast(t.dims, wide.dims)
        return self._in_kind(_quantile(t.expand(whole), wide.expand(whole)), share)

    def entropy(self) -> Tensor:
        a = _magnitude(self._wide())
        return self._in_kind(_log_norm(a) + a * _low_mean(a))
