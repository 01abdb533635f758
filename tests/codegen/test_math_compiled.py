"""Compiled approximations: accuracy over dense sweeps, lanes and tails, no calls into libm.

With KERNELRT_SOAK set, all 2**32 float32 numbers go through every function (some minutes each).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import numpy as np
import pytest
from support.assembly import assembly
from support.math_truth import BINARY, NUMPY, TRUTH, UNARY, promised, same_special, ulps
from support.scalars import evaluate
from support.skip_list import needs

from kernelrt import dtype as dt
from kernelrt.device.spec import TARGETS, DeviceSpec, host
from kernelrt.ir import Op, UOp, rewrite
from kernelrt.loops.math.decompositions import decompositions

Array = np.ndarray
Apply = Callable[..., Array]
WIDE = [dt.float32, dt.float64]
by_name = {"ids": lambda v: v.name}
needs_wide = needs("a long double wider than float64")
#: Types whose results are compared with those of a wider type.
CHECKED = [dt.float32, pytest.param(dt.float64, marks=needs_wide)]

#: Whether to try each of them, which takes hours, rather than every 4099th.
EVERY_FLOAT32 = bool(os.environ.get("KERNELRT_SOAK"))
#: Functions whose truth takes long to find, and by what to divide the samples.
COARSER = {Op.LGAMMA: 16, Op.ERFC: 2}

#: The promised error in ULP; decompositions.py lists the measured ones.
PROMISED = 2.0


def kernel(build: type, op: Op, dtype: dt.DType, size: int) -> UOp:
    r = build.range(size, 0)
    arguments = 2 if op in BINARY else 1
    loads = tuple(build.load(build.param(1 + k, size, dtype), r) for k in range(arguments))
    return build.sink(build.store(build.param(0, size, dtype), r, UOp(op, dtype, loads)))


def applied(run: Apply, build: type) -> Apply:
    """An op of whole arrays, compiled."""

    def call(op: Op, *arrays: Array) -> Array:
        out = np.empty_like(arrays[0])
        run(kernel(build, op, dt.parse(out.dtype), out.size), [out, *arrays])
        return out

    return call


@pytest.fixture
def apply(run: Apply, build: type) -> Apply:
    """:func:`applied` for this machine."""
    return applied(run, build)


def every(dtype: dt.DType, count: int, seed: int) -> Array:
    """Random representations: numbers of every kind and size."""
    bits = np.random.default_rng(seed).bytes(count * dtype.itemsize)
    x = np.frombuffer(bits, dt.to_numpy(dtype)).copy()
    x[np.isnan(x)] = np.nan
    return x


def worst(op: Op, got: Array, *arrays: Array) -> float:
    wide = np.float64 if got.itemsize < 8 else np.longdouble
    with np.errstate(all="ignore"):
        truth = TRUTH[op](*(a.astype(wide) for a in arrays))
    return float(ulps(got, truth).max())


# Accuracy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", UNARY, **by_name)
def test_float32_over_its_whole_range(apply: Apply, op: Op) -> None:
    step = 1 if EVERY_FLOAT32 else 4099 * COARSER.get(op, 1)
    for first in range(0, 1 << 32, step << 20):
        bits = np.arange(first, min(first + (step << 20), 1 << 32), step, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        assert worst(op, apply(op, x), x) <= PROMISED, hex(first)


@needs_wide
@pytest.mark.parametrize("op", UNARY, **by_name)
def test_float64_of_every_kind(apply: Apply, op: Op) -> None:
    x = promised(op, every(dt.float64, 100_000 // COARSER.get(op, 1), 1))
    assert worst(op, apply(op, x), x) <= PROMISED


@needs_wide
@pytest.mark.parametrize(
    ("op", "low", "high"),
    [
        (Op.EXP, -745, 710), (Op.LOG, 0, 4), (Op.SIN, -50, 50), (Op.COS, -1e9, 1e9),
        (Op.TANH, -20, 20), (Op.TANH, -1, 1), (Op.ERF, -6, 6), (Op.EXP2, -1074, 1024),
        (Op.EXPM1, -40, 709), (Op.EXPM1, -1, 1), (Op.LOG2, 0, 4), (Op.LOG10, 0, 4),
        (Op.LOG1P, -1, 3), (Op.TAN, -50, 50), (Op.ASIN, -1, 1), (Op.ACOS, -1, 1),
        (Op.ATAN, -5, 5), (Op.SINH, -20, 20), (Op.SINH, -1, 1), (Op.COSH, -20, 20),
        (Op.ASINH, -10, 10), (Op.ACOSH, 1, 10), (Op.ACOSH, 1, 1.1), (Op.ATANH, -1, 1),
        (Op.ERFC, -6, 6), (Op.ERFC, 0, 27), (Op.LGAMMA, 0, 3), (Op.LGAMMA, 0, 40),
    ],
)  # fmt: skip
def test_float64_where_it_is_used(apply: Apply, op: Op, low: float, high: float) -> None:
    x = np.random.default_rng(2).uniform(low, high, 200_000 // COARSER.get(op, 1))
    assert worst(op, apply(op, x), x) <= PROMISED


@pytest.mark.parametrize("dtype", CHECKED, **by_name)
def test_powers(apply: Apply, dtype: dt.DType) -> None:
    rng = np.random.default_rng(3)
    kind = dt.to_numpy(dtype)
    top = np.log(float(np.finfo(kind).max))
    x = np.exp(rng.uniform(-6, 6, 100_000)).astype(kind)
    x[:50_000] = 1 + rng.uniform(-1, 1, 50_000) * 10 ** rng.uniform(-6, -1, 50_000)
    x[x == 1] = 2
    y = (rng.uniform(-1.05, 1.05, x.size) * top / np.abs(np.log(x.astype(float)))).astype(kind)
    assert worst(Op.POW, apply(Op.POW, x, y), x, y) <= PROMISED


def test_powers_of_small_integers_are_exact(apply: Apply) -> None:
    x, y = (v.ravel() for v in np.meshgrid(np.arange(1.0, 200), np.arange(-1.0, 12)))
    expected = x**y
    exact = expected == expected.astype(np.float32)
    exact &= expected < 2**24
    arrays = [np.ascontiguousarray(v[exact], np.float32) for v in (x, y)]
    np.testing.assert_array_equal(apply(Op.POW, *arrays), expected[exact])


# Special values, lanes, instructions --------------------------------------------------------------


@pytest.mark.parametrize("dtype", WIDE, **by_name)
@pytest.mark.parametrize("op", [*UNARY, *BINARY], **by_name)
def test_special_values_are_numpys(apply: Apply, op: Op, dtype: dt.DType) -> None:
    info = np.finfo(dt.to_numpy(dtype))
    marks = [0, 0.5, 1, 2, 3, 2.5, info.max, info.tiny, info.smallest_subnormal, np.inf, np.nan]
    x = np.array([*marks, *(-m for m in marks)], info.dtype)
    x[len(marks)] = -0.0
    arrays = [x]
    if op in BINARY:
        arrays = [np.ascontiguousarray(v.ravel()) for v in np.meshgrid(x, x)]
    with np.errstate(all="ignore"):
        expected = NUMPY[op](*arrays)
    same = same_special(apply(op, *arrays), expected)
    assert same.all(), [a[~same] for a in arrays]


@pytest.mark.parametrize("dtype", [dt.float16, *WIDE], **by_name)
@pytest.mark.parametrize("op", [*UNARY, *BINARY], **by_name)
def test_an_element_does_not_depend_on_its_lane(apply: Apply, op: Op, dtype: dt.DType) -> None:
    """Whole vectors, short ones and single elements give the same bits."""
    x = np.random.default_rng(4).uniform(0.1, 4, 67).astype(dt.to_numpy(dtype))
    arguments = (x, x[::-1].copy()) if op in BINARY else (x,)
    together = apply(op, *arguments)
    for size in (1, 3, 8, 17):
        alone = apply(op, *(a[50 : 50 + size].copy() for a in arguments))
        np.testing.assert_array_equal(alone, together[50 : 50 + size])


@pytest.mark.parametrize("dtype", WIDE, **by_name)
@pytest.mark.parametrize("op", [*UNARY, *BINARY], **by_name)
def test_no_bit_depends_on_what_the_compiler_fuses(apply: Apply, op: Op, dtype: dt.DType) -> None:
    """The compiled kernel gives what its graph says, op by op."""
    compare_with_graph(apply, host(), op, dtype)


@pytest.mark.parametrize("dtype", WIDE, **by_name)
@pytest.mark.parametrize("op", [*UNARY, *BINARY], **by_name)
def test_targets_without_fma_compute_what_their_graph_says(
    run_plain: Apply, build: type, op: Op, dtype: dt.DType
) -> None:
    compare_with_graph(applied(run_plain, build), DeviceSpec.generic(), op, dtype)


def compare_with_graph(apply: Apply, target: DeviceSpec, op: Op, dtype: dt.DType) -> None:
    x = np.concatenate([every(dtype, 2000, 6), np.linspace(-8, 8, 2001, dtype=dt.to_numpy(dtype))])
    arguments = [x, every(dtype, 4001, 7)] if op in BINARY else [x]
    leaves = tuple(UOp(Op.VAR, dtype, (), (name, 0, 0)) for name in "xy"[: len(arguments)])
    lowered = rewrite([UOp(op, dtype, leaves)], decompositions(target))[0]
    expected = evaluate(lowered, dict(zip(leaves, arguments, strict=True)))
    np.testing.assert_array_equal(apply(op, *arguments), expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [dt.float16, *WIDE], **by_name)
@pytest.mark.parametrize("op", [*UNARY, *BINARY], **by_name)
def test_nothing_outside_is_called(build: type, op: Op, dtype: dt.DType, target: str) -> None:
    """Calls go to functions beside the kernel, at most: to what few elements need."""
    text = assembly(kernel(build, op, dtype, 256), TARGETS[target]())
    called = re.findall(r"^\s+(?:callq?|bl|blr|jmp|b)\s+(\S+)", text, re.MULTILINE)
    assert all(name.startswith((".L", '"krt.', "krt.")) for name in called), called
