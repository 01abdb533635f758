"""Running folds, slices with a step and turns along an axis whose size is known at run time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import kernelrt as krt
from kernelrt.errors import ShapeError

SIZES = (1, 3, 64, 65, 150)


def at(part):
    return lambda x: x[part]


def written(part):
    def write(x):
        y = x * 1
        y[part] = y[part] * 2 + 1
        return y

    return write


def added(x):
    y = x * 1
    y[1::2] += 3
    return y


def rolled(n):
    return lambda x: x.roll(n, 0)


def rolled_array(n):
    return lambda x: np.roll(x, n, 0)


def found(x):
    places = (x > 0).nonzero(size=5, fill_value=-1)
    return places.float()


def found_by_numpy(x):
    rows = np.argwhere(x > 0)
    return np.concatenate([rows, -np.ones((5, 2))])[:5]


PARTS = [np.s_[::2], np.s_[1::3], np.s_[::-1], np.s_[::-2], np.s_[-1::-3], np.s_[:-1:2],
         np.s_[0:1:5], np.s_[:0:-2], np.s_[:, ::-2]]  # fmt: skip
#: By name: a function of tensors, the same of arrays where it differs, and the least size.
PROGRAMS = {
    **{f"at{k}": (at(p), at(p), 1) for k, p in enumerate(PARTS)},
    **{f"written{k}": (written(p), written(p), 1) for k, p in enumerate(PARTS)},
    "at_both_ends": (at(np.s_[-2:1:-1]), at(np.s_[-2:1:-1]), 3),
    "added": (added, added, 1),
    "cumsum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0), 1),
    "cumsum_flat": (lambda x: x.reshape(-1).cumsum(0), lambda x: x.reshape(-1).cumsum(), 1),
    "cumprod": (lambda x: x.cumprod(0), lambda x: x.cumprod(0), 1),
    "cummax": (lambda x: x.cummax(0)[0], np.maximum.accumulate, 1),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), np.logaddexp.accumulate, 1),
    **{f"roll{n}": (rolled(n), rolled_array(n), least)
       for n, least in ((1, 1), (-1, 1), (2, 3), (-7, 1), (70, 1))},
    "roll_flat": (lambda x: x.roll(2), lambda x: np.roll(x, 2), 1),
    "diff": (lambda x: x.diff(n=2, dim=0), lambda x: np.diff(x, 2, 0), 3),
    "trapezoid": (
        lambda x: krt.trapezoid(x, dim=0), lambda x: ((x[1:] + x[:-1]) / 2).sum(0), 1,
    ),
    "unfold": (lambda x: x.unfold(0, 3, 2), lambda x: sliding_window_view(x, 3, 0)[::2], 3),
    "nonzero": (found, found_by_numpy, 1),
}  # fmt: skip


def slopes(function):
    def slope(x):
        x = x.detach().requires_grad_()
        y = function(x)
        return krt.grad((y * y).sum(), x)

    return slope


def dynamic(function, least):
    return krt.jit(function, dynamic={"x": {0: krt.Variable("n", least, 150)}})


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name):
    function, expected, least = PROGRAMS[name]
    jitted = dynamic(lambda x: function(x), least)  # noqa: PLW0108 - argument is to be called x
    rng = np.random.default_rng(len(name))
    for n in SIZES:
        if n >= least:
            x = rng.normal(size=(n, 2))
            np.testing.assert_allclose(jitted(x).numpy(), expected(x), rtol=1e-9, atol=1e-12)
    if name == "nonzero":
        return
    of_open, of_fixed = dynamic(slopes(function), least), krt.jit(slopes(function), dynamic=False)
    for n in (3, 150):
        x = rng.normal(size=(n, 2))
        np.testing.assert_allclose(of_open(x).numpy(), of_fixed(x).numpy(), rtol=1e-9, atol=1e-12)


def test_differences_of_what_may_have_no_elements():
    for function in (lambda x: x.diff(dim=0), lambda x: krt.trapezoid(x, dim=0)):
        with pytest.raises(ShapeError, match="known only at run time"):
            dynamic(lambda x, f=function: f(x), 0)(np.ones((2, 2)))
    with pytest.raises(ShapeError, match="at most the n of axis 0"):
        dynamic(lambda x: x.unfold(0, 3, 1), 2)(np.ones((5, 2)))
