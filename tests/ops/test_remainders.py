"""Float quotients rounded down and their remainders are exact, as NumPy's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.device.spec import machine, runnable

INF, NAN = np.inf, np.nan


def pairs(kind: type, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random bits, moderate numbers, multiples with rounding errors, and the special ones."""
    rng = np.random.default_rng(seed)
    info, whole = np.finfo(kind), {np.float32: np.uint32, np.float64: np.uint64}[kind]
    special = np.array([0.0, -0.0, 1, -1, 0.1, 3, INF, -INF, NAN, info.max, -info.max, info.tiny,
                        info.smallest_subnormal, -info.smallest_subnormal], kind)  # fmt: skip
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    raw = rng.integers(0, np.iinfo(whole).max, (2, 500), whole).view(kind)
    near = (rng.standard_normal((2, 500)) * [[100], [1]]).astype(kind)
    steps = near[1] * rng.integers(-1000, 1000, 500).astype(kind)
    return (np.concatenate([x, raw[0], near[0], steps, near[0]]),
            np.concatenate([y, raw[1], near[1], near[1], raw[1]]))  # fmt: skip


def hard_pairs(seed: int, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Doubles whose quotient is nearly whole, beside the largest, subnormal, or has 52 bits."""
    rng = np.random.default_rng(seed)
    y = np.abs(rng.standard_normal(n))
    multiples, next_to = y * rng.integers(1, 1000, n), rng.choice([0.0, np.inf], n)
    largest = np.full(n, np.finfo(np.float64).max)
    parts = largest / rng.integers(1, 1 << 40, n) * rng.choice([1, 1 + 2**-52, 1 - 2**-53], n)
    tiny = rng.integers(1, 1 << 53, (2, n), np.uint64).view(np.float64)
    exponent = rng.integers(0, 1980, n, np.uint64)
    more = exponent + rng.integers(0, 60, n, np.uint64)
    full = (exponent << 52 | (1 << 52) - rng.integers(1, 5, n, np.uint64)).view(np.float64)
    above = (more << 52 | rng.integers(0, 1 << 52, n, np.uint64)).view(np.float64)
    near = np.nextafter(multiples, next_to)
    return (np.concatenate([near, largest, y * 2.0**51, tiny[0], above]),
            np.concatenate([y, parts, rng.permutation(y), tiny[1], full]))  # fmt: skip


def compare_hard_pairs(seed: int) -> None:
    x, y = hard_pairs(seed)
    np.testing.assert_array_equal(krt.tensor(x).fmod(krt.tensor(y)).numpy(), np.fmod(x, y))


def test_remainders_of_hard_pairs():
    compare_hard_pairs(0)


@pytest.mark.cases(1)
@pytest.mark.parametrize("target", runnable(machine()))
def test_remainders_of_hard_pairs_on_every_target(target):
    """A process has one target, so each target has a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "1"], capture_output=True, text=True, check=False,
        env={**os.environ, "KERNELRT_TARGET": target}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_quotients_and_remainders(kind):
    x, y = pairs(kind, 1)
    a, b = krt.tensor(x), krt.tensor(y)
    with np.errstate(all="ignore"):
        expected = [x % y, x // y, np.fmod(x, y)]
    results = [a % b, a // b, a.fmod(b)]
    krt.realize(*results)
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
        sure = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got.numpy())[sure], np.signbit(want)[sure])


@pytest.mark.parametrize("n", [1, 2, 3, 9, 17])
def test_any_number_of_lanes(n):
    x = np.linspace(1e10, 1e300, n)
    np.testing.assert_array_equal((krt.tensor(x) % 0.1).numpy(), x % 0.1)
    np.testing.assert_array_equal((5.5 % krt.tensor(x)).numpy(), 5.5 % x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(dtype):
    x = krt.tensor(np.linspace(-300, 300, 41), dtype=dtype)
    y = krt.tensor(np.linspace(0.3, 7, 41), dtype=dtype)
    got = [u.realize().float().numpy() for u in (x % y, x // y)]
    a, b = x.float().numpy(), y.float().numpy()
    for value, exact in zip(got, (a % b, a // b), strict=True):
        rounded = krt.tensor(exact).cast(dtype).float().numpy()
        np.testing.assert_array_equal(value, rounded)


@pytest.mark.parametrize("op", ["fmod", "remainder"])
def test_gradients(op):
    torch = pytest.importorskip("torch")
    x = np.array([5.5, -5.5, 5.5, -5.5, 7.0, 0.0])
    y = np.array([2.0, 2.0, -2.0, -2.0, 0.1, 3.0])
    ours = [krt.tensor(a, requires_grad=True) for a in (x, y)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, y)]
    getattr(ours[0], op)(ours[1]).sum().backward()
    getattr(theirs[0], op)(theirs[1]).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
def test_divmod_and_round_are_those_of_numpy(kind):
    x, y = np.array([7, -7, 8, -1, 0], kind), np.array([2, 2, -3, 5, 4], kind)
    a, b = krt.tensor(x), krt.tensor(y)
    for ours, theirs in ((divmod(a, b), divmod(x, y)), (divmod(a, 3), divmod(x, kind(3))),
                         (divmod(9, b), divmod(kind(9), y))):  # fmt: skip
        for got, expected in zip(ours, theirs, strict=True):
            assert got.numpy().dtype == kind
            np.testing.assert_array_equal(got.numpy(), expected)
    np.testing.assert_array_equal(round(a / 2).numpy(), np.round(x / 2))


if __name__ == "__main__":
    compare_hard_pairs(int(sys.argv[1]))
