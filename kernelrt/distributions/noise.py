"""Draws gamma variates, with a fixed number of rejection rounds.

Shapes are static, and no step depends on the values drawn so far. So a draw can be part of a plan
like any other operation. All candidates of an element are drawn at once; the first accepted one is
the result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.tensor import Tensor
from kernelrt.tensor.autograd.tags import custom
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.random_draws_in_place import positive_rand
from kernelrt.tensor.nodes import build
from kernelrt.tensor.operation import operation
from kernelrt.tensor.rng import random
from kernelrt.tensor.rng.discrete_draws import first
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from kernelrt.distributions.distribution import Shape
    from kernelrt.ir import UOp

__all__ = ["incomplete_gamma", "inside", "log_gamma", "log_gamma_derivative"]

#: A candidate is rejected with probability below 0.05 (Marsaglia and Tsang, table 1), so 1 in
#: 2.6e10 draws uses the fallback.
_GAMMA_ROUNDS: Final = 8


def inside(drawn: Tensor, most: float | None = None) -> Tensor:
    """Clamp `drawn` to normal numbers of its type above 0; gradients pass unchanged.

    If `most` is 1, values also stay below 1, so that log(x) and log(1 - x) are finite.
    """
    kind = drawn.dtype
    least = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(kind.name, 2.0**-126)
    end = None if most is None else most - 2.0**-kind.digits
    plain = drawn.detach()
    return drawn + (plain.clamp(min=least, max=end) - plain)


def log_gamma(alpha: Tensor, shape: Shape) -> Tensor:
    """Return logs of standard gamma variates of shape `shape`, to which `alpha` is broadcast.

    The method is that of Marsaglia and Tsang (ACM TOMS 26, 2000). For alpha below 1, a variate for
    alpha + 1 is multiplied by a power of a uniform number (their section 6). The log does not
    underflow for a small alpha. Gradients flow to alpha by implicit reparameterization (Figurnov,
    Mohamed, Mnih, arXiv:1805.08498).
    """
    alpha = alpha.expand(shape)
    kind = dt.float64 if alpha.dtype is dt.float64 else dt.float32
    with no_grad():
        wide = alpha.detach().cast(kind)
        small = wide < 1
        d = where(small, wide + 1, wide) - 1 / 3
        c = (1 / 3) * d.rsqrt()
        rounds = (*shape, _GAMMA_ROUNDS)
        x = random.randn(rounds, dtype=kind)
        u = positive_rand(rounds, kind)
        root = 1 + c.unsqueeze(-1) * x
        safe = root.clamp(min=1e-30)
        cube = safe * safe * safe
        middle = d.unsqueeze(-1)
        bound = 0.5 * x * x + middle * (1 - cube + 3 * safe.log())
        accepted = (root > 0) & (u.log() < bound)
        logs = first(accepted, 3 * safe.log(), wide * 0) + d.log()
        # For alpha near 0 the log must stay finite: -inf minus -inf would be NaN.
        least = -1e307 if kind is dt.float64 else -1e37
        boost = (positive_rand(shape, kind).log() / wide).clamp(min=least)
        found = where(small, logs + boost, logs)
    return _reparameterized(found, alpha.cast(kind)).cast(alpha.dtype)


@operation
def _reparameterized(drawn: Tensor, alpha: Tensor) -> Tensor:
    """Return `drawn`, with the rule of its gradient with respect to alpha attached."""
    return drawn._of(custom(drawn.uop, _implicit_rule, alpha.uop))  # noqa: SLF001 - an operation


def _implicit_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (alpha,) = node.arg.inputs
    # In float32, cancellation would destroy the derivative for large alpha.
    y, a, grad = (Tensor._of(u) for u in (node, alpha, g))  # noqa: SLF001 - a rule of nodes
    return (grad.double() * log_gamma_derivative(y.double(), a.double())).cast(g.dtype).uop


def _nodes() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return nodes and weights for integrals over (0, inf) of exponentially decaying functions.

    The substitution ``w = exp(t - exp(-t))`` is integrated by the trapezoidal rule in t (Takahasi
    and Mori, 1974).
    """
    t = np.arange(-3.2, 5.3, 0.125)
    w = np.exp(t - np.exp(-t))
    return w, w * (1 + np.exp(-t)) * 0.125


_WHERE, _WEIGHTS = _nodes()
#: The truncation error of the series for x below 1 is below 1e-17.
_TERMS: Final = 19


def log_gamma_derivative(y: Tensor, alpha: Tensor) -> Tensor:
    """Return the alpha derivative of `y`, the log of a gamma variate, at constant probability.

    Let P be the cumulative probability and p the density at ``x = exp(y)``. Then the derivative is
    ``-(dP/dalpha) / (x * p)``. For x below 1, a series gives dP/dalpha. Otherwise dP/dalpha is the
    integral of ``dp/dalpha = p * (log(t) - digamma(alpha))``, by quadrature with a relative error
    below 1e-7: over ``t = x * exp(-w)`` with ``w > 0``, or for x above alpha, over
    ``t = x * exp(w)``.
    """
    x = y.exp()
    score = y.unsqueeze(-1) - alpha.unsqueeze(-1).digamma()
    total, sign = _tail_integral(x, alpha, score)
    series, by_alpha = _series(x, alpha)
    near = -((y - (alpha + 1).digamma()) * series + by_alpha) / alpha
    return where(x < 1, near, total * sign)


def _series(x: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of ``x**n / ((alpha + 1) ... (alpha + n))`` over n, and its alpha derivative.

    The sum times ``x**alpha * exp(-x) / Gamma(alpha + 1)`` is the probability of values below x. It
    is accurate for x below 1.
    """
    below = alpha.unsqueeze(-1) + tensor(np.arange(1.0, _TERMS), dtype=alpha.dtype)
    terms = (x.clamp(max=1).unsqueeze(-1) / below).cumprod(-1)
    return 1 + terms.sum(-1), -(terms * (1 / below).cumsum(-1)).sum(-1)


def _tail_integral(x: Tensor, alpha: Tensor, score: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the integral of the density from x to the nearer end, divided by x p(x), and a sign.

    The variable is ``t = x exp(v)``. With `score`, the integrand is multiplied by `score` plus v.
    The sign is 1 if the nearer end is infinity and -1 if it is 0.
    """
    kind = alpha.dtype
    sign = where(x > alpha, 1.0, -1.0).cast(kind)
    # The integrand decreases by a factor of e over about this length.
    length = (1 / ((alpha - x).abs() + x.sqrt() + 0.1 * alpha)).detach()
    w = length.unsqueeze(-1) * tensor(_WHERE, dtype=kind)
    weights = length.unsqueeze(-1) * tensor(_WEIGHTS, dtype=kind)
    moved = sign.unsqueeze(-1) * w
    power = alpha.unsqueeze(-1) * moved - x.unsqueeze(-1) * moved.expm1()
    inner = power.exp() if score is None else power.exp() * (score + moved)
    return (inner * weights).sum(-1), sign


@operation
def incomplete_gamma(x: Tensor, alpha: Tensor, above: bool = False) -> Tensor:
    """Return the probability of gamma variates up to `x`, or above `x` if `above` is true.

    This is the regularized incomplete gamma function. For x of at least 1, the quadrature of
    :func:`log_gamma_derivative` computes the smaller of the two probabilities.
    """
    y, a = x.detach().double(), alpha.detach().double()
    safe = y.clamp(min=1e-300, max=1e300)
    part, sign = _tail_integral(safe, a, None)
    tail = part * (a * safe.log() - safe - a.lgamma()).exp()
    far = (sign > 0) if not above else (sign < 0)
    found = where(far, 1 - tail, tail)
    share = _series(safe, a)[0] * (a * safe.log() - safe - (a + 1).lgamma()).exp()
    found = where(safe < 1, 1 - share if above else share, found)
    found = where(y <= 0, float(above), where(y == math.inf, 1 - float(above), found))
    found = where(y == y, found, math.nan).cast(x.dtype)
    rule = _share_rule_above if above else _share_rule
    return found._of(custom(found.uop, rule, x.uop, alpha.uop))  # noqa: SLF001 - an operation


def _share_rule(node: UOp, g: UOp, i: int) -> UOp:
    x, alpha, grad = (Tensor._of(u) for u in (*node.arg.inputs, g))  # noqa: SLF001 - of nodes
    y, a = x.double(), alpha.double()
    if i == 0:
        found = ((a - 1).xlogy(y) - y - a.lgamma()).exp()
    else:
        log = y.clamp(min=1e-300).log()
        found = -log_gamma_derivative(log, a) * (a * log - y - a.lgamma()).exp()
    found = where((y <= 0) | (y == math.inf), 0.0, found)
    return (grad.double() * found).cast(grad.dtype).uop


def _share_rule_above(node: UOp, g: UOp, i: int) -> UOp:
    return build.neg(_share_rule(node, g, i))
