"""Cumulative products, extremes and logarithms of sums: values, gradients, and equal bits."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt

RNG = np.random.default_rng(5)
NAMES = ("cumprod", "cummax", "cummin", "logcumsumexp")
#: Along the last axis, the first and one between: short, with parts of tiles, with more than 512
#: columns, with narrow rows, and with numbers of rows that are no multiple of four.
SHAPES = [((1,), 0), ((7,), 0), ((1000,), 0), ((5, 31), 1), ((11, 257), 1), ((30, 700), 0),
          ((40, 16), 0), ((300, 3), 0), ((3, 50, 20), 1), ((2, 6, 5), 1)]  # fmt: skip
#: Numbers by name; few different ones for equal elements and for zeros.
NUMBERS = {
    "normal": lambda shape: RNG.normal(size=shape),
    "few": lambda shape: RNG.integers(-2, 3, shape).astype(float),
    "signed zeros": lambda shape: RNG.choice([0.0, -0.0, 1.5], shape),
    "rising": lambda shape: np.sort(RNG.normal(size=shape), -1),
    "not finite": lambda shape: RNG.choice([1.0, 2.0, math.inf, -math.inf, math.nan], shape,
                                           p=[0.6, 0.3, 0.04, 0.04, 0.02]),
    "far apart": lambda shape: RNG.choice([0.0, -1000.0, 1000.0, math.nan], shape,
                                          p=[0.4, 0.4, 0.18, 0.02]),
}  # fmt: skip


def value(out: object) -> object:
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values_indices_and_gradients(name, shape, axis, numbers):
    torch = pytest.importorskip("torch")
    x, weights = NUMBERS[numbers](shape), RNG.normal(size=shape)
    for dtype, tolerance in (("float32", 2e-5), ("float64", 1e-11)):
        found = []
        for library in (krt, torch):
            leaf = library.tensor(x.astype(dtype), requires_grad=True)
            out = getattr(leaf, name)(axis)
            places = out[1].numpy() if isinstance(out, tuple) else None
            (value(out) * library.tensor(weights.astype(dtype))).sum().backward()
            found.append((value(out).detach().numpy(), places, leaf.grad.numpy()))
        (ours, ours_at, ours_back), (theirs, theirs_at, theirs_back) = found
        np.testing.assert_allclose(ours, theirs, tolerance, tolerance)
        if theirs_at is not None:
            np.testing.assert_array_equal(ours_at, theirs_at)
        if numbers not in ("not finite", "far apart"):
            np.testing.assert_allclose(ours_back, theirs_back, 20 * tolerance, 20 * tolerance)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32",
                                   "uint64", "int64"])  # fmt: skip
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_integers(dtype, shape, axis):
    x = RNG.integers(-(2**62), 2**62, shape).astype(dtype)
    x[RNG.random(shape) < 0.2] = 1
    ours = krt.tensor(x)
    product = ours.cumprod(axis)
    assert product.dtype is krt.int64
    np.testing.assert_array_equal(product.numpy(), np.cumprod(x, axis, np.int64))
    line = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    for name, ufunc in (("cummax", np.maximum), ("cummin", np.minimum)):
        values, places = getattr(ours, name)(axis)
        best = ufunc.accumulate(x, axis)
        assert values.dtype is ours.dtype
        np.testing.assert_array_equal(values.numpy(), best)
        last = np.maximum.accumulate(np.where(x == best, line, 0), axis)
        np.testing.assert_array_equal(places.numpy(), last)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_each_axis_gives_the_same_bits(name, dtype):
    x = RNG.normal(size=(300, 41)).astype(dtype)
    weights = krt.tensor(RNG.normal(size=(300, 41)).astype(dtype))

    def both(x, weights, axis):
        out = value(getattr(x, name)(axis))
        return krt.cat([out, krt.grad((out * weights).sum(), x)], 1 - axis)

    leaf = krt.tensor(x, requires_grad=True)
    turned = krt.tensor(np.ascontiguousarray(x.T), requires_grad=True)
    down = both(leaf, weights, 0).numpy()
    np.testing.assert_array_equal(both(turned, weights.T.contiguous(), 1).numpy().T, down)
    each = krt.vmap(lambda v: value(getattr(v, name)(0)), 1, 1)(krt.tensor(x)).numpy()
    np.testing.assert_array_equal(each, down[:, :41])


@pytest.mark.parametrize("zeros", [[], [0], [9], [4], [0, 9], [3, 4], [0, 1], [2, 5, 8], range(10)])
def test_gradients_of_products_with_zeros(zeros):
    """Against differences, exact as each product is linear in each element."""
    x, weights = RNG.normal(size=10), RNG.normal(size=10)
    x[list(zeros)] = 0

    def slopes(x):
        steps = [[(np.cumprod(x + s * row) * weights).sum() for s in (1, -1)] for row in np.eye(10)]
        return np.array([(up - down) / 2 for up, down in steps])

    leaf = krt.tensor(x, requires_grad=True)
    out = (leaf.cumprod(0) * krt.tensor(weights)).sum()
    (first,) = krt.grad([out], [leaf], create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), slopes(x), 1e-11, 1e-11)
    across = RNG.normal(size=10)
    (second,) = krt.grad([(first * krt.tensor(across)).sum()], [leaf], create_graph=True)
    rows = [(slopes(x + row) - slopes(x - row)) / 2 for row in np.eye(10)]
    np.testing.assert_allclose(second.detach().numpy(), rows @ across, 1e-10, 1e-10)
    _, tangent = krt.func.jvp(lambda t: t.cumprod(0), (krt.tensor(x),), (krt.tensor(across),))
    np.testing.assert_allclose((tangent.numpy() * weights).sum(), slopes(x) @ across, 1e-10, 1e-10)


@pytest.mark.parametrize("last", [50, 35])
def test_gradients_of_products_that_leave_the_range_and_come_back(last):
    torch = pytest.importorskip("torch")
    numbers = np.r_[[0.1] * 50, [10.0] * last].astype(np.float32)
    grads = []
    for kind in (krt, torch):
        x = kind.tensor(numbers, requires_grad=True)
        out = x.cumprod(0)
        (out.sum() if last == 50 else out[-1]).backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-4)
    tangent = np.eye(len(numbers), dtype=np.float32)[49]
    found = krt.func.jvp(lambda x: x.cumprod(0)[-1], (krt.tensor(numbers),), (krt.tensor(tangent),))
    np.testing.assert_allclose(found[1].item(), 10.0 ** (last - 49), rtol=1e-4)


def test_third_derivatives_of_products():
    torch = pytest.importorskip("torch")
    found = []
    x, weights = RNG.normal(size=(4, 30)), RNG.normal(size=(3, 4, 30))
    for k, grad in ((krt, krt.grad), (torch, torch.autograd.grad)):
        leaf = k.tensor(x, requires_grad=True)
        now = leaf.cumprod(1)
        for each in weights:
            (now,) = grad([(now * k.tensor(each)).sum()], [leaf], create_graph=True)
        found.append(now.detach().numpy())
    np.testing.assert_allclose(*found, 1e-8, 1e-8)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_what_follows_a_record_does_not_reach_an_earlier_one(name):
    """The gradient of the second record is not finite, that of the first is."""
    x = krt.tensor([1.0, 1.0, 2.0, 2.0] if name == "cummax" else [2.0, 2.0, 1.0, 1.0])
    x.requires_grad_()
    weights = krt.tensor([1.0, 2.0, math.inf, math.nan])
    slope = krt.grad((getattr(x, name)(0)[0] * weights).sum(), x)
    np.testing.assert_array_equal(slope.numpy(), [1.0, 2.0, math.inf, math.nan])


@pytest.mark.parametrize("step", [0.0, 1e-6, 1e-4, 0.01, 0.3, 3.0, -1e-4])
def test_errors_of_logarithms_do_not_add_up(step):
    """Each element is greater than the one before by the same number, so errors have one sign."""
    x = (-20 + step * np.arange(50_000)).astype(np.float32)
    want = np.logaddexp.accumulate(x.astype(np.longdouble))
    leaf = krt.tensor(x, requires_grad=True)
    found = leaf.logcumsumexp(0)
    np.testing.assert_allclose(found.detach().numpy(), want.astype(float), 3e-7, 3e-6)
    weights = RNG.random(x.size).astype(np.float32)
    (found * krt.tensor(weights)).sum().backward()
    later, back = 0.0, np.empty(x.size)
    fall = np.exp(-np.diff(want, append=want[-1]))
    for i in reversed(range(x.size)):
        later = weights[i] + fall[i] * later
        back[i] = np.exp(x[i] - want[i]) * later
    np.testing.assert_allclose(leaf.grad.numpy(), back, 1e-5, 1e-6)


def test_a_logarithm_of_one_great_element_is_that_element():
    x = np.array([-np.inf, -2000.0, 1e-5, -100.0, -500.0, 3e30, 1.0], np.float32)
    found = krt.tensor(x).logcumsumexp(0).numpy()
    np.testing.assert_array_equal(found, np.maximum.accumulate(x))


def test_in_the_body_of_a_loop():
    x = RNG.normal(size=(4, 50)).astype(np.float32)

    @krt.jit
    def step(h, each):
        return krt.scan(lambda h, row: ((h + row).cummax(0)[0] * 0.1, h), h, each)

    last, _ = step(krt.zeros(50), krt.tensor(x))
    want = np.zeros(50)
    for row in x:
        want = np.maximum.accumulate(want + row) * 0.1
    np.testing.assert_allclose(last.numpy(), want, 1e-5, 1e-6)
