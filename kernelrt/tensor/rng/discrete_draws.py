"""Poisson and binomial draws, by rejection sampling with a fixed number of rounds.

Shapes are static and do not depend on values, so a draw is part of a plan like any operation. All
candidates of an element are drawn at once, and the first accepted one is used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError
from kernelrt.ir.shape import broadcast
from kernelrt.tensor.methods.comparison import where
from kernelrt.tensor.methods.random_draws_in_place import exponentials, positive_rand
from kernelrt.tensor.nodes.arguments import tensor_of
from kernelrt.tensor.rng import random
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.ir import Dim
    from kernelrt.tensor.nodes import data_checks
    from kernelrt.tensor.rng.stream import Generator
    from kernelrt.tensor.tensor import Tensor

    Shape = tuple[Dim, ...]
else:
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = ["binomial", "draw_binomial", "draw_poisson", "first", "poisson"]

#: A candidate is rejected with probability below 0.3, so one of 2e8 draws uses the fallback.
_COUNT_ROUNDS: Final = 16
#: Below this mean, counts are drawn by adding gaps; the probability of more than 64 is below 1e-30.
_FEW: Final = 10.0
_GAPS: Final = 64


def first(accepted: Tensor, candidates: Tensor, fallback: Tensor) -> Tensor:
    """Return the first accepted candidate along the last axis, or `fallback` if there is none."""
    place = accepted.cast(dt.int8).argmax(-1, keepdim=True)
    found = candidates.gather(-1, place).squeeze(-1)
    return found.where(accepted.any(-1), fallback)


def draw_poisson(rate: Tensor, shape: Shape, generator: Generator | None = None) -> Tensor:
    """Draw Poisson variates in float64.

    For means below 10, exponential times between events are added up, and the events before time
    `rate` are counted. Other variates come from transformed rejection: PTRS (Hoermann, Insurance:
    Mathematics and Economics 12, 1993).
    """
    mean = rate.detach().double().expand(shape)
    gaps = exponentials((*shape, _GAPS), dt.float64, generator).cumsum(-1)
    few = (gaps < mean.unsqueeze(-1)).sum(-1).double()
    mu = mean.clamp(min=_FEW).unsqueeze(-1)
    b = 0.931 + 2.53 * mu.sqrt()
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    k, us, v = _hats(shape, a, b, mu + 0.43, generator)
    least = -mu + k * mu.log() - (k + 1).clamp(min=1).lgamma()
    exact = v.log() + inverse.log() - (a / (us * us) + b).log() <= least
    sure = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    accepted = (k >= 0) & (sure | (((us >= 0.013) | (v <= us)) & exact))
    many = first(accepted, k, mu.squeeze(-1).floor())
    return data_checks.if_each(where(mean < _FEW, few, many), mean, 0, math.inf, "rate")


def _hats(
    shape: Shape, a: Tensor, b: Tensor, center: Tensor, generator: Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return candidates of transformed rejection, and the numbers `us` and `v` that test them."""
    rounds = (*shape, _COUNT_ROUNDS)
    u = random.rand(rounds, dtype=dt.float64, generator=generator) - 0.5
    v = positive_rand(rounds, dt.float64, generator)
    us = (0.5 - u.abs()).clamp(min=1e-300)
    return ((2 * a / us + b) * u + center).floor(), us, v


def draw_binomial(
    count: Tensor, probability: Tensor, shape: Shape, generator: Generator | None = None
) -> Tensor:
    """Draw binomial variates in float64.

    For means below 10, geometric numbers of trials up to each next success are added up, and the
    successes within `count` trials are counted. Other variates come from transformed rejection:
    BTRS (Hoermann, J. Statist. Comput. Simul. 46, 1993), with exact logarithms of factorials.
    """
    n = count.detach().double().expand(shape)
    chance = probability.detach().double().expand(shape)
    flipped = chance > 0.5
    p = where(flipped, 1 - chance, chance)
    # The numbers of trials up to each next success are geometric.
    rarely = (-p).log1p().clamp(max=-1e-300).unsqueeze(-1)
    drawn = -exponentials((*shape, _GAPS), dt.float64, generator) / rarely
    gaps = drawn.ceil().clamp(min=1, max=1e15)
    few = (gaps.cumsum(-1) <= n.unsqueeze(-1)).sum(-1).double()
    many = _binomial_many(n, p, shape, generator)
    found = where(n * p < _FEW, few, many)
    return where(flipped, n - found, found)


def _binomial_many(
    n: Tensor, p: Tensor, shape: Shape, generator: Generator | None
) -> Tensor:
    # For small means the results are discarded; the values only have to be finite.
    n = where(n * p < _FEW, 40.0, n).unsqueeze(-1)
    p = where(n.squeeze(-1) * p < _FEW, 0.5, p).unsqueeze(-1)
    spread = (n * p * (1 - p)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * spread
    k, us, v = _hats(shape, a, b, n * p + 0.5, generator)
    inside = (k >= 0) & (k <= n)
    safe = k.clamp(min=0).minimum(n)
    m = ((n + 1) * p).floor()
    height = (m + 1).lgamma() + (n - m + 1).lgamma()
    height = height - (safe + 1).lgamma() - (n - safe + 1).lgamma()
    height = height + (safe - m) * (p / (1 - p)).log()
    exact = (v * alpha / (a / (us * us) + b)).log() <= height
    sure = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
    return first(inside & (sure | exact), k, m.squeeze(-1))


def poisson(input: Any, generator: Generator | None = None) -> Tensor:  # noqa: A002 - torch's name
    """Draw counts from Poisson distributions, in the shape and dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Means, at least 0.
    generator : Generator, optional
        Generator to draw from.

    Returns
    -------
    Tensor
        New tensor of whole numbers, in the floating dtype of `input`. It gets no gradient.

    Raises
    ------
    DTypeError
        `input` is not floating.
    DomainError
        At run time: a mean is below 0 or NaN.

    Notes
    -----
    Counts with a mean of at least 10 are drawn by transformed rejection: W. Hoermann, The
    transformed rejection method for generating Poisson random variables, Insurance: Mathematics
    and Economics 12, 1993.

    Examples
    --------
    >>> krt.poisson(krt.tensor([0.0, 0.0])).tolist()
    [0.0, 0.0]
    >>> abs(krt.poisson(krt.full((100_000,), 4.0)).mean().item() - 4) < 0.1
    True
    """
    rate = tensor_of(input, "input", floats=True).detach()
    return draw_poisson(rate, rate.dims, generator).cast(rate.dtype)


def binomial(count: Any, prob: Any, generator: Generator | None = None) -> Tensor:
    """Draw the number of successes in `count` trials; each succeeds with probability `prob`.

    Parameters
    ----------
    count : Tensor
        Number of trials, as floats. For numbers below 0 and NaN the result is NaN.
    prob : Tensor
        Probability of success, of the same dtype, broadcast with `count`. Outside [0, 1] the
        result is NaN.
    generator : Generator, optional
        Generator to draw from.

    Returns
    -------
    Tensor
        New tensor of whole numbers, of the broadcast shape and the dtype of `count`. It gets no
        gradient.

    Raises
    ------
    DTypeError
        One of the two is not floating, or their dtypes differ.

    Notes
    -----
    Counts with a mean of at least 10 are drawn by transformed rejection: W. Hoermann, The
    generation of binomial random variates, J. Statist. Comput. Simul. 46, 1993.

    Examples
    --------
    >>> krt.binomial(krt.tensor([10.0, 10.0]), krt.tensor([1.0, 0.0])).tolist()
    [10.0, 0.0]
    """
    trials = tensor_of(count, "count", floats=True).detach()
    chance = tensor_of(prob, "prob", floats=True).detach()
    if trials.dtype is not chance.dtype:
        raise DTypeError(
            f"prob: expected the dtype of count, {trials.dtype.name}, not {chance.dtype.name}; "
            "cast one of the two"
        )
    shape = broadcast(trials.dims, chance.dims)
    drawn = draw_binomial(trials, chance, shape, generator)
    fine = (trials >= 0) & (chance >= 0) & (chance <= 1)
    return where(fine, drawn, math.nan).cast(trials.dtype)
