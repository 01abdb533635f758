"""Line search for a step length that satisfies the strong Wolfe conditions.

Nocedal and Wright, Numerical Optimization (2nd edition), algorithms 3.5 and 3.6, with the cubic of
equation 3.59. Where the book leaves choices open, this code follows PyTorch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = ["Point", "search"]

_ARMIJO: Final = 1e-4
_CURVATURE: Final = 0.9


class Point(NamedTuple):
    """A point on the search line: step length, loss, gradient, directional derivative."""

    length: float
    loss: float
    gradient: np.ndarray[Any, Any]
    slope: float


def search(
    evaluate: Callable[[float], Point], start: Point, length: float, widest: float,
    tolerance: float, most: int,
) -> tuple[Point, int]:  # fmt: skip
    """Return a point along the search direction, and the number of evaluations of the loss.

    Parameters
    ----------
    evaluate : callable
        Function that returns the point at a step length.
    start : Point
        Point at length 0.
    length : float
        First length to try.
    widest : float
        Largest absolute value of an element of the direction.
    tolerance : float
        The search ends when the steps to both ends of a bracket differ by less than this in each
        element.
    most : int
        Maximum number of iterations.
    """
    ends, rounds, done = _bracket(evaluate, start, length, most)
    count = 1 + rounds
    stalled = False
    # The better end comes first.
    low, high = (0, 1) if ends[0].loss <= ends[-1].loss else (1, 0)
    while not done and rounds < most:
        if abs(ends[1].length - ends[0].length) * widest < tolerance:
            break
        step, stalled = _inside(ends, stalled)
        new = evaluate(step)
        count, rounds = count + 1, rounds + 1
        if _too_high(new, start) or new.loss >= ends[low].loss:
            ends[high] = new
            low, high = (0, 1) if ends[0].loss <= ends[1].loss else (1, 0)
            continue
        if abs(new.slope) <= -_CURVATURE * start.slope:
            done = True
        elif new.slope * (ends[high].length - ends[low].length) >= 0:
            ends[high] = ends[low]
        ends[low] = new
    return ends[low], count


def _too_high(new: Point, start: Point) -> bool:
    return new.loss > start.loss + _ARMIJO * new.length * start.slope


def _bracket(
    evaluate: Callable[[float], Point], start: Point, length: float, most: int
) -> tuple[list[Point], int, bool]:
    """Return the ends of a bracket around a solution, or a single point that is a solution.

    Also return the number of iterations, and whether the point is a solution.
    """
    last, new = start, evaluate(length)
    for rounds in range(most):
        if _too_high(new, start) or (rounds > 1 and new.loss >= last.loss):
            return [last, new], rounds, False
        if abs(new.slope) <= -_CURVATURE * start.slope:
            return [new], rounds, True
        if new.slope >= 0:
            return [last, new], rounds, False
        least = new.length + 0.01 * (new.length - last.length)
        step = _cubic(last, new, least, new.length * 10)
        last, new = new, evaluate(step)
    return [start, new], most, False


def _inside(ends: list[Point], stalled: bool) -> tuple[float, bool]:
    """Return the next length to try, inside a bracket, and whether it is close to an end.

    `stalled` tells whether the previous length was close to an end. If it was, the next one is not.
    """
    first, second = sorted(p.length for p in ends)
    step = _cubic(ends[0], ends[1], first, second)
    margin = 0.1 * (second - first)
    if min(second - step, step - first) >= margin:
        return step, False
    if not stalled and first < step < second:
        return step, True
    near_end = abs(step - second) < abs(step - first)
    return (second - margin if near_end else first + margin), False


def _cubic(a: Point, b: Point, least: float, most: float) -> float:
    """Minimize the cubic through two points and their derivatives, between two lengths."""
    if a.length > b.length:
        a, b = b, a
    if a.length == b.length:
        return (least + most) / 2
    bend = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.length - b.length)
    square = bend * bend - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2
    root = math.sqrt(square)
    share = (b.slope + root - bend) / (b.slope - a.slope + 2 * root)
    return min(max(b.length - (b.length - a.length) * share, least), most)
