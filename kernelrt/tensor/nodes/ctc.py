"""Connectionist temporal classification (CTC) loss.

Forward algorithm of A. Graves and others, ICML 2006. It adds up the probabilities of all ways to
assign the classes of a target, with optional blanks between them, to the time steps.
"""

from __future__ import annotations

from typing import Final

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.reductions import log_total

__all__ = ["alignment_losses"]

#: Finite replacement for log(0), so that sums and differences are not NaN.
_NEVER: Final = -1e30


def alignment_losses(
    x: UOp, labels: UOp, steps: UOp, lengths: UOp, blank: int
) -> UOp:
    """Return the negative log probability of each target; infinite if it is impossible.

    Parameters
    ----------
    x : UOp
        Log probabilities, shape (T, N, C) with fixed T.
    labels : UOp
        Classes in [0, C), shape (N, S) with fixed S; `blank` after the end of a target.
    steps, lengths : UOp
        For each sample, the number of time steps and the length of its target, int64, shape (N,).
    blank : int
        Class of the blank label.
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
    """Return a mask of the time steps of each sample, shape (T, N)."""
    shape = (times, *steps.shape)
    wide = build.expand(build.reshape(steps, (1, *steps.shape)), shape)
    return _stored(build.iota_along(shape, 0).alu(Op.LT, wide))


def _stored(x: UOp) -> UOp:
    """Store values in memory, so that all time steps read rows of it and share one kernel."""
    return UOp(Op.CONTIGUOUS, x.dtype, (x,))


def _wide(x: UOp, count: int) -> UOp:
    """Expand one number per sample to all of its states."""
    return build.expand(build.reshape(x, (*x.shape, 1)), (*x.shape, count))


def _between_blanks(labels: UOp, blank: int, states: int) -> UOp:
    """Return the classes of the targets with blanks around each, shape (N, 2 * S + 1)."""
    n, size = labels.shape
    blanks = build.full(blank, labels.dtype, (n, size, 1))
    pairs = build.cat([blanks, build.reshape(labels, (n, size, 1))], 2)
    flat = build.reshape(pairs, (n, states - 1))
    return build.cat([flat, build.full(blank, labels.dtype, (n, 1))], 1)


def _picked(x: UOp, path: UOp) -> UOp:
    """Return the score of each state at each time step, shape (T, N, states)."""
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
    """Return the scores after the first step: only the first blank or the first class."""
    first = _at(scores, 0)
    inside = _state(first.shape[:1], states).alu(Op.LT, build.full(2, dt.int64, first.shape))
    return build.where(inside, first, _NEVER)


def _skips(path: UOp, blank: int) -> UOp:
    """Return where a class may follow the previous one without a blank: the two differ."""
    n, states = path.shape
    other = path.ne(build.full(blank, path.dtype, path.shape))
    assert isinstance(states, int)
    third = build.full(2, dt.int64, path.shape).alu(Op.LT, _state((n,), states))
    return other.alu(Op.AND, path.ne(_moved(path, 2))).alu(Op.AND, third)


def _moved(x: UOp, by: int) -> UOp:
    """Shift values by `by` states; the first states get `_NEVER`, or 0 for integers."""
    n, states = x.shape
    assert isinstance(states, int)
    if states <= by:
        return build.full(_NEVER if x.dtype.is_float else 0, x.dtype, x.shape)
    rest = build.shrink(x, [(0, n), (0, states - by)])
    return build.cat([build.full(_NEVER if x.dtype.is_float else 0, x.dtype, (n, by)), rest], 1)


def _sum_of(ways: list[UOp]) -> UOp:
    """Return the logarithm of the sum of the exponentials."""
    shape = ways[0].shape
    stacked = build.cat([build.reshape(w, (*shape, 1)) for w in ways], len(shape))
    top, rest = log_total(stacked, (len(shape),))
    return build.reshape(top.alu(Op.ADD, rest), shape)


def _ended(alpha: UOp, steps: UOp, lengths: UOp) -> UOp:
    """Return the losses: a target ends with its last class or the blank after it.

    Without time steps, the loss is 0 for an empty target and infinite for others.
    """
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
