"""Running folds, slices with a step and turns along an axis whose size is known at run time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import kernelrt as krt
from kernelrt.errors import DTypeError, IndexBoundsError, ShapeError

SIZES = (1, 3, 64, 65, 150)


def at(part):
    return lambda x: x[part]


def written(part):
    def write(x):
        y = x * 1
        y[part] = y[part] * 2 + 1
        return y

    return write


def by_length(make, end):
    return lambda x: make(end(x.shape[0]))(x)


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
#: By name: a function of the length that gives a slice, and the least length.
ENDS = {
    "all": (lambda n: np.s_[n::-1], 1), "every other": (lambda n: np.s_[n::-2], 1),
    "none": (lambda n: np.s_[:n:-1], 1), "last": (lambda n: np.s_[n - 1 :: -1], 1),
    "half": (lambda n: np.s_[n // 2 :: -1], 1), "upper": (lambda n: np.s_[: n // 2 : -2], 1),
    "inner": (lambda n: np.s_[n - 2 : 0 : -1], 3), "number": (lambda _: np.s_[2::-1], 3),
}  # fmt: skip
#: By name: a function of tensors, the same of arrays where it differs, and the least size.
PROGRAMS = {
    **{f"at{k}": (at(p), at(p), 1) for k, p in enumerate(PARTS)},
    **{f"written{k}": (written(p), written(p), 1) for k, p in enumerate(PARTS)},
    **{f"{kind}_{name}": (by_length(make, end), by_length(make, end), least)
       for kind, make in (("from", at), ("written", written))
       for name, (end, least) in ENDS.items()},
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
    with pytest.raises(ShapeError, match="at most n, the size of axis 0"):
        dynamic(lambda x: x.unfold(0, 3, 1), 2)(np.ones((5, 2)))


@pytest.mark.parametrize("size", [12, None])
@pytest.mark.parametrize("make", [at, written])
def test_slices_up_to_the_length_of_another(make, size):
    """Where the axis itself has a known size, too."""
    for end in (lambda n: np.s_[n::2], lambda n: np.s_[n::-2], lambda n: np.s_[:n:-2],
                lambda n: np.s_[n - 1:1:-1], lambda n: np.s_[n:n + 4:2]):  # fmt: skip
        known = {} if size else {"x": {0: krt.Variable("m", 12, 20)}}
        jitted = krt.jit(
            lambda x, y, end=end: make(end(y.shape[0]))(x),
            dynamic={"y": {0: krt.Variable("n", 2, 8)}, **known},
        )
        for n in (2, 5, 8):
            x = np.arange(12.0)
            wanted = make(end(n))(x)
            np.testing.assert_array_equal(jitted(x, np.ones(n)).numpy(), wanted)


OPEN = {
    "x[4:1:-2]": (ShapeError, "whether 4 lies"), "x[10::-1]": (ShapeError, "whether 10 lies"),
    "x[:-4:-1]": (ShapeError, "whether -4 lies"), "x[:2:-1]": (ShapeError, "whether 2 lies"),
    "x[5:]": (ShapeError, "whether 5 lies"), "x[-5::2]": (ShapeError, "whether -5 lies"),
    "x[x.shape[0] - 3 :: -1]": (IndexBoundsError, r"the slice end n \+ -3 may lie outside"),
    "x[0:-1:-1]": (ShapeError, r"the slice \(0, n \+ -1\) of axis 0 could have a negative length"),
    "x['a'::-1]": (DTypeError, "expected integers as the ends of a slice, not str"),
    "x[:1.5:-2]": (DTypeError, "not float"),
    "x[True::-1]": (DTypeError, "expected integers as the ends of a slice, not bool"),
}  # fmt: skip


@pytest.mark.parametrize("text", OPEN)
def test_errors_name_the_ends_of_slices_as_they_were_written(text):
    kind, said = OPEN[text]
    part = eval(f"lambda x: {text}")  # noqa: S307 - of our own
    with pytest.raises(kind, match=said):
        krt.jit(part, dynamic={"x": {0: krt.Variable("n", 1, 20)}})(np.ones(12))
    if kind is DTypeError:
        with pytest.raises(kind, match=said):
            part(krt.ones(12))
