"""Draws of gamma variates and counts, by a fixed number of rounds of rejection.

Shapes are static and nothing waits on values, so a draw is part of a plan like any operation. All
candidates of an element are drawn at once, and the first that is accepted is taken.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.tensor import Tensor, random
from kernelrt.tensor.comparison import where
from kernelrt.tensor.creation import tensor
from kernelrt.tensor.drawing import exponentials, positive_rand
from kernelrt.tensor.marks import custom
from kernelrt.tensor.operation import operation
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from kernelrt.distributions.base import Shape
    from kernelrt.ir import UOp

__all__ = ["binomial", "log_gamma", "poisson"]

#: Of the gamma distribution a candidate is refused with a chance of less than 0.05 (Marsaglia and
#: Tsang, table 1), so that one of 2.6e10 draws is the fallback.
_GAMMA_ROUNDS: Final = 8
#: Of counts a candidate is refused with a chance of less than 0.3, so that one of 2e8 draws is.
_COUNT_ROUNDS: Final = 16
#: Below this mean counts are made by adding gaps; more than 64 have a chance below 1e-30.
_FEW: Final = 10.0
_GAPS: Final = 64


def _first(accepted: Tensor, candidates: Tensor, fallback: Tensor) -> Tensor:
    """Along the last axis the first candidate that is accepted, if one is."""
    place = accepted.cast(dt.int8).argmax(-1, keepdim=True)
    found = candidates.gather(-1, place).squeeze(-1)
    return found.where(accepted.any(-1), fallback)


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
        logs = _first(accepted, 3 * safe.log(), wide * 0) + d.log()
        boost = positive_rand(shape, kind).log() / wide
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
    return (slope * log_gamma_slope(y.double(), a.double()).cast(g.dtype)).uop


def _nodes() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Nodes and weights for integrals over (0, inf) of what falls like an exponential.

    w = exp(t - exp(-t)) by the trapezoidal rule in t (Takahasi and Mori, 1974).
    """
    t = np.arange(-3.2, 5.3, 0.125)
    w = np.exp(t - np.exp(-t))
    return w, w * (1 + np.exp(-t)) * 0.125


_WHERE, _WEIGHTS = _nodes()


def log_gamma_slope(y: Tensor, alpha: Tensor) -> Tensor:
    """The derivative by alpha of the logarithm `y` of a gamma variate, its probability kept.

    With P the distribution and p the density of x = exp(y), that is -(dP/dalpha) / (x p). The
    integral of dp/dalpha = p (log t - digamma(alpha)) over t = x exp(-w), w > 0, or over t = x
    exp(w) where x is above alpha, is taken by quadrature; its relative error is below 1e-7.
    """
    kind = alpha.dtype
    x = y.exp()
    above = x > alpha
    sign = where(above, 1.0, -1.0).cast(kind)
    # The integrand falls by e over about this length.
    length = (1 / ((alpha - x).abs() + x.sqrt() + 0.1 * alpha)).detach()
    w = length.unsqueeze(-1) * tensor(_WHERE, dtype=kind)
    weights = length.unsqueeze(-1) * tensor(_WEIGHTS, dtype=kind)
    side, base, shape = sign.unsqueeze(-1), x.unsqueeze(-1), alpha.unsqueeze(-1)
    moved = side * w
    power = shape * moved - base * moved.expm1()
    score = y.unsqueeze(-1) + moved - shape.digamma()
    return (power.exp() * score * weights).sum(-1) * sign


# ---- counts


def poisson(rate: Tensor, shape: Shape) -> Tensor:
    """Poisson variates in float64: by gaps below a mean of 10, else by transformed rejection.

    The latter is PTRS (Hoermann, Insurance: Mathematics and Economics 12, 1993).
    """
    mean = rate.detach().double().expand(shape)
    gaps = exponentials((*shape, _GAPS), dt.float64).cumsum(-1)
    few = (gaps < mean.unsqueeze(-1)).sum(-1).double()
    mu = mean.clamp(min=_FEW).unsqueeze(-1)
    b = 0.931 + 2.53 * mu.sqrt()
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    k, us, v = _hats(shape, a, b, mu + 0.43)
    least = -mu + k * mu.log() - (k + 1).clamp(min=1).lgamma()
    exact = v.log() + inverse.log() - (a / (us * us) + b).log() <= least
    sure = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    accepted = (k >= 0) & (sure | (((us >= 0.013) | (v <= us)) & exact))
    many = _first(accepted, k, mu.squeeze(-1).floor())
    found = where(mean < _FEW, few, many)
    return where(mean == mean, found, math.nan)  # NaN stays


def _hats(shape: Shape, a: Tensor, b: Tensor, center: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates of transformed rejection, how near an end they are, and what they are tried by."""
    rounds = (*shape, _COUNT_ROUNDS)
    u = random.rand(rounds, dtype=dt.float64) - 0.5
    v = positive_rand(rounds, dt.float64)
    us = (0.5 - u.abs()).clamp(min=1e-300)
    return ((2 * a / us + b) * u + center).floor(), us, v


def binomial(count: Tensor, probability: Tensor, shape: Shape) -> Tensor:
    """Binomial variates in float64: by gaps below a mean of 10, else by transformed rejection.

    The latter is BTRS (Hoermann, J. Statist. Comput. Simul. 46, 1993), with exact logarithms of
    factorials.
    """
    n = count.detach().double().expand(shape)
    chance = probability.detach().double().expand(shape)
    flipped = chance > 0.5
    p = where(flipped, 1 - chance, chance)
    # Trials up to each next success are geometric.
    rarely = (-p).log1p().clamp(max=-1e-300).unsqueeze(-1)
    gaps = (-exponentials((*shape, _GAPS), dt.float64) / rarely).ceil().clamp(min=1, max=1e15)
    few = (gaps.cumsum(-1) <= n.unsqueeze(-1)).sum(-1).double()
    many = _binomial_many(n, p, shape)
    found = where(n * p < _FEW, few, many)
    return where(flipped, n - found, found)


def _binomial_many(n: Tensor, p: Tensor, shape: Shape) -> Tensor:
    # Where the mean is small these numbers are not looked at; they only have to be numbers.
    n = where(n * p < _FEW, 40.0, n).unsqueeze(-1)
    p = where(n.squeeze(-1) * p < _FEW, 0.5, p).unsqueeze(-1)
    spread = (n * p * (1 - p)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * spread
    k, us, v = _hats(shape, a, b, n * p + 0.5)
    inside = (k >= 0) & (k <= n)
    safe = k.clamp(min=0).minimum(n)
    m = ((n + 1) * p).floor()
    height = (m + 1).lgamma() + (n - m + 1).lgamma()
    height = height - (safe + 1).lgamma() - (n - safe + 1).lgamma()
    height = height + (safe - m) * (p / (1 - p)).log()
    exact = (v * alpha / (a / (us * us) + b)).log() <= height
    sure = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
    return _first(inside & (sure | exact), k, m.squeeze(-1))
