"""Cumulative sums: values, rounding, and the same bits however they are computed."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.native.routines import ADDRESSES

RNG = np.random.default_rng(3)
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
#: Along the last axis, the first and one between: some short, some with parts of blocks and tiles,
#: rows of more than 512 elements, and rows that are narrow.
SHAPES = [((7,), 0), ((9,), 0), ((1000,), 0), ((5, 31), 1), ((3, 257), 1), ((300, 700), 0),
          ((40, 16), 0), ((300, 3), 0), ((3, 50, 20), 1), ((2, 6, 5), 1)]  # fmt: skip


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype.startswith("float"):
        return RNG.normal(size=shape).astype(dtype)
    return RNG.integers(-(2**62), 2**62, shape).astype(dtype)


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_integers_wrap_around(dtype, shape, axis):
    x = numbers(dtype, shape)
    found = krt.tensor(x).cumsum(axis)
    assert found.dtype is krt.int64
    np.testing.assert_array_equal(found.numpy(), np.cumsum(x, axis, np.int64))


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_and_their_gradients(dtype, shape, axis):
    x, weights = numbers(dtype, shape), RNG.normal(size=shape)
    ours = krt.tensor(x, requires_grad=True)
    sums = ours.cumsum(axis)
    (sums * krt.tensor(weights.astype(dtype))).sum().backward()
    tolerance = 4 * np.finfo(dtype).eps
    wide = x.astype(np.longdouble)
    bound = np.cumsum(np.abs(wide), axis) * tolerance
    assert (np.abs(sums.numpy() - np.cumsum(wide, axis)) <= bound).all()
    back = np.flip(np.cumsum(np.flip(weights.astype(dtype).astype(float), axis), axis), axis)
    np.testing.assert_allclose(ours.grad.numpy(), back, 1e-6, shape[axis] * 2 * tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_what_does_not_lie_in_rows(dtype):
    x = numbers(dtype, (60, 70))
    ours = krt.tensor(x)
    for view in (lambda a: a.T, lambda a: a[::2, 3:], lambda a: a[5:, ::3].T):
        for axis in (0, 1):
            found = view(ours).cumsum(axis).numpy()
            np.testing.assert_allclose(found, np.cumsum(view(x), axis), 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_axis_gives_the_same_bits(dtype):
    x = numbers(dtype, (1000, 40))
    ours = krt.tensor(x)
    down = ours.cumsum(0).numpy()
    across = krt.tensor(np.ascontiguousarray(x.T)).cumsum(1).numpy().T
    few = np.stack([krt.tensor(x[:, k : k + 2].copy()).cumsum(0).numpy()[:, 0] for k in (0, 39)], 1)
    each = krt.vmap(lambda v: v.cumsum(0), 1, 1)(ours).numpy()
    for other in (across, each):
        np.testing.assert_array_equal(other, down)
    np.testing.assert_array_equal(few, down[:, [0, 39]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_what_is_not_negative_do_not_decrease(dtype):
    x = RNG.random((3, 5000)).astype(dtype) ** 8
    for sums in (krt.tensor(x).cumsum(1), krt.tensor(x.T.copy()).cumsum(0).T):
        assert (np.diff(sums.numpy(), axis=1) >= 0).all()


def test_errors_do_not_grow_with_the_length():
    x = RNG.random(10**6)
    exact, found = math.fsum(x), krt.tensor(x).cumsum(0)[-1].item()
    assert abs(found - exact) <= 2 * math.ulp(exact)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinities_and_nan(dtype):
    x = np.ones((700, 20), dtype)
    x[300, 0] = math.inf
    x[300, 1], x[400, 1] = math.inf, -math.inf
    x[255, 2] = -math.inf
    x[10, 3] = math.nan
    x[256, 4] = np.finfo(dtype).max
    with np.errstate(invalid="ignore"):
        want = np.cumsum(x.astype(np.float64), 0)
    for found in (krt.tensor(x).cumsum(0), krt.tensor(x.T.copy()).cumsum(1).T):
        np.testing.assert_allclose(found.numpy(), want, 1e-6)


PROGRAM = """
import hashlib, numpy as np, kernelrt as krt
rng = np.random.default_rng(0)
found = hashlib.sha256()
for dtype in (np.float32, np.float64):
    x = krt.tensor(rng.normal(size=(600, 77)).astype(dtype), requires_grad=True)
    for axis in (0, 1):
        sums = x.cumsum(axis)
        (sums * sums.detach()).sum().backward()
        found.update(sums.detach().numpy().tobytes() + x.grad.numpy().tobytes())
print(found.hexdigest())
"""


def test_bits_are_those_of_every_target_and_number_of_threads():
    targets = ["x86-64-v2"] * (128 in ADDRESSES) + ["x86-64-v3"] * (256 in ADDRESSES)
    several = [{"KERNELRT_TARGET": target} for target in targets if sys.platform != "darwin"]
    several += [{"KERNELRT_THREADS": n} for n in "12"]
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **each}, check=True,
            capture_output=True, text=True,
        ).stdout
        for each in several
    }  # fmt: skip
    assert len(found) == 1


def test_second_derivatives_and_forward_mode():
    x = krt.tensor(RNG.normal(size=(30, 20)), requires_grad=True)
    v = krt.tensor(RNG.normal(size=(30, 20)))
    (first,) = krt.grad([(x.cumsum(0) ** 3).sum()], [x], create_graph=True)
    (second,) = krt.grad([(first * v).sum()], [x])
    sums = np.cumsum(x.detach().numpy(), 0)
    inner = 6 * sums * np.cumsum(v.numpy(), 0)
    want = np.flip(np.cumsum(np.flip(inner, 0), 0), 0)
    np.testing.assert_allclose(second.numpy(), want, 1e-9, 1e-12 * np.abs(inner).max())
    _, tangent = krt.func.jvp(lambda t: t.cumsum(0), (x.detach(),), (v,))
    np.testing.assert_allclose(tangent.numpy(), np.cumsum(v.numpy(), 0), 1e-12, 1e-13)


def test_in_the_body_of_a_loop():
    x = RNG.normal(size=(4, 50)).astype(np.float32)

    @krt.jit
    def step(h, each):
        return krt.scan(lambda h, row: ((h + row).cumsum(0) * 0.1, h), h, each)

    last, _ = step(krt.zeros(50), krt.tensor(x))
    want = np.zeros(50)
    for row in x:
        want = np.cumsum(want + row) * 0.1
    np.testing.assert_allclose(last.numpy(), want, 1e-4, 1e-5)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("n", [2, 3, 6, 8, 9, 40])
def test_short_rows_are_summed_in_float64(n, jitted):
    sums = krt.jit(lambda x: x.cumsum(-1)) if jitted else lambda x: x.cumsum(-1)
    x = (10.0 ** RNG.uniform(-8, 1, (200, n))).astype(np.float32)
    found = sums(krt.tensor(x)).numpy()
    np.testing.assert_array_equal(found, x.astype(np.float64).cumsum(-1).astype(np.float32))
    assert (np.diff(found) >= 0).all()
    most = np.zeros((3, n + 1), np.float32)
    most[:, :3] = [3e38, 3e38, -3e38]
    with np.errstate(over="ignore"):
        want = most.astype(np.float64).cumsum(-1).astype(np.float32)
    np.testing.assert_array_equal(sums(krt.tensor(most)).numpy(), want)
