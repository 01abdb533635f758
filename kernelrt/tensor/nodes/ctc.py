"""Connectionist temporal classification.

A. Graves and others, ICML 2006: the sum over all ways to spread the classes of a target, with
blanks between them, over the steps of time, by its forward recursion.
"""

from __future__ import annotations

from typing import Final

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.reductions import log_total

__all__ = ["alignment_losses"]

#: What stands for the logarithm of 0: it can be added up and subtracted.
_NEVER: Final = -1e30


def alignment_losses(
    x: UOp, labels: UOp, steps: UOp, lengths: UOp, blank: int
) -> UOp:
    """The negative logarithm of the probability of each target; infinite where it has none.

    Parameters
    ----------
    x : UOp
        Logarithms of probabilities, of shape (T, N, C) with fixed T.
    labels : UOp
        Classes inside [0, C), of shape (N, S) with fixed S, `blank` from a target's end on.
    steps, lengths : UOp
        How many steps of time and classes count, int64 of shape (N,).
    blank : int
        The class of what lies between classes.
    """
    times = x.shape[0]
    size = labels.shape[1]
    assert isinstance(times, int)
    assert isinstance(size, int)
    states = 2 * size + 1
    path = _between_blanks(labels, blank, states)
    scores = _picked(x, path)
    alpha = _started(scores, states)
    skips = _skips(path, blank)
    n = x.shape[1]
    running = _running(steps, times)
    for t in range(1, times):
        ways = [alpha, _moved(alpha, 1), build.where(skips, _moved(alpha, 2), _NEVER)]
        new = _sum_of(ways).alu(Op.ADD, _at(scores, t))
        active = build.reshape(build.shrink(running, [(t, t + 1), (0, n)]), (n,))
        alpha = build.where(_wide(active, states), new, alpha)
    return _ended(alpha, steps, lengths)


def _running(steps: UOp, times: int) -> UOp:
    """Whether a sample has as many steps, of shape (T, N)."""
    shape = (times, *steps.shape)
    wide = build.expand(build.reshape(steps, (1, *steps.shape)), shape)
    return _stored(build.iota_along(shape, 0).alu(Op.LT, wide))


def _stored(x: UOp) -> UOp:
    """What the steps read, each its row: with numbers of its own each would be another kernel."""
    return UOp(Op.CONTIGUOUS, x.dtype, (x,))


def _wide(x: UOp, count: int) -> UOp:
    """One number a sample for all of its states."""
    return build.expand(build.reshape(x, (*x.shape, 1)), (*x.shape, count))


def _between_blanks(labels: UOp, blank: int, states: int) -> UOp:
    """The classes of a target, of shape (N, S), with blanks around each."""
    n, size = labels.shape
    blanks = build.full(blank, labels.dtype, (n, size, 1))
    pairs = build.cat([blanks, build.reshape(labels, (n, size, 1))], 2)
    flat = build.reshape(pairs, (n, states - 1))
    return build.cat([flat, build.full(blank, labels.dtype, (n, 1))], 1)


def _picked(x: UOp, path: UOp) -> UOp:
    """The score of each state at each time, of shape (T, N, states)."""
    shape = (x.shape[0], *path.shape)
    wide = build.expand(build.reshape(path, (1, *path.shape)), shape)
    places = build.iota_along(shape, 0), build.iota_along(shape, 1), wide
    picked = UOp(Op.GATHER, x.dtype, (x, *places))
    return _stored(picked.alu(Op.MAX, build.full(_NEVER, x.dtype, shape)))


def _at(scores: UOp, t: int) -> UOp:
    _, n, states = scores.shape
    return build.reshape(build.shrink(scores, [(t, t + 1), (0, n), (0, states)]), (n, states))


def _state(n: build.Shape, states: int) -> UOp:
    return build.iota_along((*n, states), 1)


def _started(scores: UOp, states: int) -> UOp:
    """After the first step: the first blank or the first class."""
    first = _at(scores, 0)
    inside = _state(first.shape[:1], states).alu(Op.LT, build.full(2, dt.int64, first.shape))
    return build.where(inside, first, _NEVER)


def _skips(path: UOp, blank: int) -> UOp:
    """Where a class may follow the one before it without a blank: they differ."""
    n, states = path.shape
    other = path.ne(build.full(blank, path.dtype, path.shape))
    assert isinstance(states, int)
    third = build.full(2, dt.int64, path.shape).alu(Op.LT, _state((n,), states))
    return other.alu(Op.AND, path.ne(_moved(path, 2))).alu(Op.AND, third)


def _moved(x: UOp, by: int) -> UOp:
    """What each state has at the state that comes `by` before it, `_NEVER` where there is none."""
    n, states = x.shape
    assert isinstance(states, int)
    if states <= by:
        return build.full(_NEVER if x.dtype.is_float else 0, x.dtype, x.shape)
    rest = build.shrink(x, [(0, n), (0, states - by)])
    return build.cat([build.full(_NEVER if x.dtype.is_float else 0, x.dtype, (n, by)), rest], 1)


def _sum_of(ways: list[UOp]) -> UOp:
    """The logarithm of the sum of the exponentials."""
    shape = ways[0].shape
    stacked = build.cat([build.reshape(w, (*shape, 1)) for w in ways], len(shape))
    top, rest = log_total(stacked, (len(shape),))
    return build.reshape(top.alu(Op.ADD, rest), shape)


def _ended(alpha: UOp, steps: UOp, lengths: UOp) -> UOp:
    """By the last class or the blank behind it; without time by nothing, if the target is."""
    n, states = alpha.shape
    assert isinstance(states, int)
    place = _state((n,), states)
    last = _wide(build.mul(lengths, 2), states)
    ends = [
        build.reduce(build.where(place.eq(end), alpha, 0), Op.ADD, (1,))
        for end in (last, build.sub(last, 1))
    ]
    nothing = build.zeros_like(lengths)
    ends[1] = build.where(lengths.eq(nothing), _NEVER, ends[1])
    losses = build.neg(_sum_of(ends))
    losses = build.where(build.full(-_NEVER / 2, losses.dtype, losses.shape).alu(Op.LT, losses),
                         float("inf"), losses)  # fmt: skip
    timeless = build.where(lengths.eq(nothing), 0, build.full(float("inf"), losses.dtype, (n,)))
    return build.where(steps.eq(nothing), timeless, losses)
