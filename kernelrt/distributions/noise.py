"""Draws of gamma variates, by a fixed number of rounds of rejection.

Shapes are static and nothing waits on values, so a draw is part of a plan like any operation. All
candidates of an element are drawn at once, and the first that is accepted is taken.
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

__all__ = ["inside", "log_gamma", "log_gamma_slope", "share_below"]

#: Of the gamma distribution a candidate is refused with a chance of less than 0.05 (Marsaglia and
#: Tsang, table 1), so that one of 2.6e10 draws is the fallback.
_GAMMA_ROUNDS: Final = 8


def inside(drawn: Tensor, most: float | None = None) -> Tensor:
    """`drawn`, held to numbers of its type from the least normal one on; gradients pass.

    With `most` of 1 they also stay below that, so that no logarithm of a share, or of what it
    leaves of 1, is infinite.
    """
    kind = drawn.dtype
    least = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(kind.name, 2.0**-126)
    end = None if most is None else most - 2.0**-kind.digits
    plain = drawn.detach()
    return drawn + (plain.clamp(min=least, max=end) - plain)


def log_gamma(alpha: Tensor, shape: Shape) -> Tensor:
    """Logarithms of standard gamma variates of this `shape`, to which `alpha` is broadcast.

    Marsaglia and Tsang (ACM TOMS 26, 2000), for alpha below 1 with a power of a uniform number
    (their section 6). The logarithm does not underflow where alpha is small. Gradients flow to
    alpha by implicit reparameterization (Figurnov, Mohamed, Mnih, arXiv:1805.08498).
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
        # Numbers near 0 of `alpha` must not make two logarithms -inf, which have no difference.
        least = -1e307 if kind is dt.float64 else -1e37
        boost = (positive_rand(shape, kind).log() / wide).clamp(min=least)
        found = where(small, logs + boost, logs)
    return _reparameterized(found, alpha.cast(kind)).cast(alpha.dtype)


@operation
def _reparameterized(drawn: Tensor, alpha: Tensor) -> Tensor:
    """What was drawn, with the gradient that it has by alpha."""
    return drawn._of(custom(drawn.uop, _implicit_rule, alpha.uop))  # noqa: SLF001 - an operation


def _implicit_rule(node: UOp, g: UOp, _i: int) -> UOp:
    (alpha,) = node.arg.inputs
    # In float32 differences of nearly equal numbers would be left of large alphas.
    y, a, slope = (Tensor._of(u) for u in (node, alpha, g))  # noqa: SLF001 - a rule of nodes
    return (slope.double() * log_gamma_slope(y.double(), a.double())).cast(g.dtype).uop


def _nodes() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Nodes and weights for integrals over (0, inf) of what falls like an exponential.

    w = exp(t - exp(-t)) by the trapezoidal rule in t (Takahasi and Mori, 1974).
    """
    t = np.arange(-3.2, 5.3, 0.125)
    w = np.exp(t - np.exp(-t))
    return w, w * (1 + np.exp(-t)) * 0.125


_WHERE, _WEIGHTS = _nodes()
#: What is left out of the series for x below 1 is below 1e-17.
_TERMS: Final = 19


def log_gamma_slope(y: Tensor, alpha: Tensor) -> Tensor:
    """The derivative by alpha of the logarithm `y` of a gamma variate, its probability kept.

    With P the distribution and p the density of x = exp(y), that is -(dP/dalpha) / (x p). Below an
    x of 1 it comes from a series. From there on the integral of dp/dalpha = p (log t -
    digamma(alpha)) over t = x exp(-w), w > 0, or over t = x exp(w) where x is above alpha, is taken
    by quadrature; its relative error is below 1e-7.
    """
    x = y.exp()
    score = y.unsqueeze(-1) - alpha.unsqueeze(-1).digamma()
    total, sign = _beside(x, alpha, score)
    series, by_alpha = _series(x, alpha)
    near = -((y - (alpha + 1).digamma()) * series + by_alpha) / alpha
    return where(x < 1, near, total * sign)


def _series(x: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over n of ``x**n / ((alpha + 1) ... (alpha + n))``, and its derivative by alpha.

    Times ``x**alpha exp(-x) / Gamma(alpha + 1)`` it is the probability below x. For x below 1.
    """
    below = alpha.unsqueeze(-1) + tensor(np.arange(1.0, _TERMS), dtype=alpha.dtype)
    terms = (x.clamp(max=1).unsqueeze(-1) / below).cumprod(-1)
    return 1 + terms.sum(-1), -(terms * (1 / below).cumsum(-1)).sum(-1)


def _beside(x: Tensor, alpha: Tensor, score: Tensor | None) -> tuple[Tensor, Tensor]:
    """The integral over ``t = x exp(v)`` from x to the end on the nearer side, over x times p(x).

    With `score`, of the density times it plus v. And 1 where that end is infinity, -1 for 0.
    """
    kind = alpha.dtype
    sign = where(x > alpha, 1.0, -1.0).cast(kind)
    # The integrand falls by e over about this length.
    length = (1 / ((alpha - x).abs() + x.sqrt() + 0.1 * alpha)).detach()
    w = length.unsqueeze(-1) * tensor(_WHERE, dtype=kind)
    weights = length.unsqueeze(-1) * tensor(_WEIGHTS, dtype=kind)
    moved = sign.unsqueeze(-1) * w
    power = alpha.unsqueeze(-1) * moved - x.unsqueeze(-1) * moved.expm1()
    inner = power.exp() if score is None else power.exp() * (score + moved)
    return (inner * weights).sum(-1), sign


@operation
def share_below(x: Tensor, alpha: Tensor, above: bool = False) -> Tensor:
    """The probability of gamma variates up to `x`, or `above` it: the incomplete gamma function.

    By the same quadrature, on the side where the probability is small.
    """
    y, a = x.detach().double(), alpha.detach().double()
    safe = y.clamp(min=1e-300, max=1e300)
    part, sign = _beside(safe, a, None)
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
    x, alpha, slope = (Tensor._of(u) for u in (*node.arg.inputs, g))  # noqa: SLF001 - of nodes
    y, a = x.double(), alpha.double()
    if i == 0:
        found = ((a - 1).xlogy(y) - y - a.lgamma()).exp()
    else:
        log = y.clamp(min=1e-300).log()
        found = -log_gamma_slope(log, a) * (a * log - y - a.lgamma()).exp()
    found = where((y <= 0) | (y == math.inf), 0.0, found)
    return (slope.double() * found).cast(slope.dtype).uop


def _share_rule_above(node: UOp, g: UOp, i: int) -> UOp:
    return build.neg(_share_rule(node, g, i))
