"""Values and gradients of every op that NumPy has, against NumPy; torch is not needed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from support.reference import evaluate
from support.routines import known
from surface import compare, rows

import kernelrt as krt
from kernelrt.tensor.autograd.tags import strip

EVERY = [pytest.param(row, id=f"{table}-{row.name}") for table, row in rows.true_rows()]
each = pytest.mark.parametrize("row", EVERY)

#: A few units in the last place, of numbers of size one.
DOUBLE, SINGLE = 1e-13, 2e-6
#: What central differences lose.
SLOPE = 2e-6


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krt.EagerLoopWarning)
        yield


def truth(row, arrays):
    found = row.truth(*arrays)
    assert found is not None
    return [np.asarray(x) for x in found]


def floats(arrays):
    return [a for a in arrays if a.dtype.kind == "f"]


def close(what, got, wanted, eps, floor=0.0):
    assert len(got) == len(wanted)
    for i, (g, w) in enumerate(zip(got, wanted, strict=True)):
        problem = compare.mismatch(np.asarray(g), w, eps, floor)
        assert not problem, f"{what} {i}: {problem}"


@pytest.mark.cases(130)
@each
def test_values_and_gradients_in_float64(row):
    """The values, and the gradients against central differences along random directions."""
    arrays = rows.draw(row, rows.sizes(row), seed=1)
    sources, operands = compare.given(row, arrays, krt.float64, row.grad)
    out = row.call(krt, *operands)
    gradients = compare.differentiate(out, sources) if row.grad else []
    found = compare.values(out, gradients)
    close("value", found.values, truth(row, arrays), DOUBLE * row.tol * row.tol64)
    if not row.grad or not row.second:  # where branches meet there is no slope
        return
    rng = np.random.default_rng(1)
    graded = [i for i, spec in enumerate(row.specs) if spec.grad]
    for i, gradient in zip(graded, found.gradients, strict=True):
        assert gradient.shape == arrays[i].shape
        for _ in range(2):
            step = rng.standard_normal(arrays[i].shape)
            slope, size = directional(row, arrays, i, step)
            lost = SLOPE * row.tol * (1 + abs(slope) + size)
            found_slope = (gradient * step).sum()
            near = abs(found_slope - slope) <= lost
            alike = np.isnan(slope) and np.isnan(gradient).any()
            assert near or alike, (
                f"{row.name}: the gradient of operand {i} has the slope {found_slope!r} along a "
                f"random direction, expected {slope!r} within {lost:.2g}"
            )


def directional(row, arrays, i, step, h=1e-6):
    """The derivative along `step`, by central differences of the truth, and what it loses."""
    ends = []
    for sign in (1, -1):
        moved = list(arrays)
        moved[i] = moved[i] + sign * h * step
        outputs = floats(truth(row, moved))
        ends.append(sum((w * compare.weights(w.shape, n)).sum() for n, w in enumerate(outputs)))
    size = sum(np.abs(w).sum() for w in outputs)
    return (ends[0] - ends[1]) / (2 * h), 1e-4 * size


@pytest.mark.cases(100)
@each
def test_values_and_gradients_in_float32(row):
    """As in float64, and as the graph itself evaluated node by node."""
    arrays = [a.astype(np.float32) if a.dtype.kind == "f" else a
              for a in rows.draw(row, rows.sizes(row), seed=2)]  # fmt: skip
    sources, operands = compare.given(row, arrays, krt.float32, row.grad)
    out = row.call(krt, *operands)
    results = [t for t in rows.leaves(out) if isinstance(t, krt.Tensor)]
    values = len(results)
    results += compare.differentiate(out, sources) if row.grad else []
    nodes = strip(t.uop for t in results)
    expected = evaluate(nodes, wide=True) if known(nodes) else None
    krt.realize(*results)
    got = [t.numpy() for t in results]
    exact = truth(row, [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays])
    if len(exact) == values:  # no result is a number
        close("value", got[:values], exact, SINGLE * row.tol)
    if expected is not None:
        close("result", got, expected, 2 * SINGLE * row.tol, floor=1.0)


@pytest.mark.cases(30)
@each
def test_gradients_agree_with_torch(row):
    """The graphs of values and gradients, without kernels."""
    torch = pytest.importorskip("torch")
    assert torch
    arrays = rows.draw(row, rows.sizes(row), seed=3)
    theirs = compare.on_torch(row, arrays, grad=row.grad)
    sources, operands = compare.given(row, arrays, krt.float64, row.grad)
    out = row.call(krt, *operands)
    results = [t for t in rows.leaves(out) if isinstance(t, krt.Tensor)]
    results += compare.differentiate(out, sources) if row.grad else []
    wanted = [w for w in theirs.values if isinstance(w, np.ndarray)] + theirs.gradients
    nodes = strip(t.uop for t in results)
    if not known(nodes):
        krt.realize(*results)
    got = evaluate(nodes) if known(nodes) else [t.numpy() for t in results]
    close("result", got, wanted, 1e-12 * row.tol * row.tol64)
