"""Every row of every table for three members at once, against one after the other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

from surface import compare, rows  # noqa: E402

#: Rows, and whether all operands but the last one are shared.
EVERY = [
    pytest.param(row, shared, id=f"{table}-{row.name}{'-shared' if shared else ''}")
    for table, row in rows.tables() if row.jit
    for shared in ([False, True] if len(row.specs) > 1 else [False])
]  # fmt: skip
MEMBERS = 3


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krt.EagerLoopWarning)
        yield


def outputs(row):
    """The row as a function that gives its tensors."""

    def call(*tensors):
        found = compare.leaves(row.call(krt, *tensors))
        return [o for o in found if isinstance(o, krt.Tensor)]

    return call


def operands(row, arrays):
    """Leaves in float64."""
    found = []
    for array, spec in zip(arrays, row.specs, strict=True):
        source = krt.tensor(array, dtype=krt.float64 if array.dtype.kind == "f" else None)
        found.append(source.requires_grad_(row.grad and spec.grad))
    return found


def slopes(out, sources, weights):
    """The gradients of the floats in `out` times `weights`."""
    wanted = [s for s in sources if s.requires_grad]
    if not wanted:
        return []
    floats = [o for o in out if o.dtype.is_float]
    total = sum(((s.reshape(-1)[:0]).sum() for s in wanted), krt.tensor(0.0, dtype=krt.float64))
    for o, w in zip(floats, weights, strict=True):
        total = total + (o * krt.tensor(w, dtype=krt.float64)).sum()
    return list(krt.grad(total, wanted, materialize_grads=True))


def together(out, gradients):
    """Values, computed in one plan, and those of the gradients."""
    read = [o.float() if o.dtype is krt.bfloat16 else o for o in out]
    if read or gradients:
        krt.realize(*read, *gradients)
    return [o.numpy() for o in read], [g.numpy() for g in gradients]


@pytest.mark.cases(30)
@pytest.mark.parametrize(("row", "shared"), EVERY)
def test_members_at_once_are_members_alone(row, shared):
    """All operands have members, or the last one alone does and the others are shared."""
    of = rows.sizes(row)
    drawn = [rows.draw(row, of, seed) for seed in range(MEMBERS)]
    axes = [None if shared and i < len(row.specs) - 1 else 0 for i in range(len(row.specs))]
    members = [
        [drawn[0][i] if axis is None else arrays[i] for i, axis in enumerate(axes)]
        for arrays in drawn
    ]
    stacked = operands(
        row,
        [members[0][i] if axis is None else np.stack([m[i] for m in members])
         for i, axis in enumerate(axes)],
    )  # fmt: skip
    mapped = krt.func.vmap(outputs(row), tuple(axes))(*stacked)
    floats = [o for o in mapped if o.dtype.is_float]
    weights = [compare.weights(o.shape, i) for i, o in enumerate(floats)]
    found, found_slopes = together(mapped, slopes(mapped, stacked, weights))
    values, gradients = [], []
    for k, arrays in enumerate(members):
        sources = operands(row, arrays)
        out = outputs(row)(*sources)
        one = together(out, slopes(out, sources, [w[k] for w in weights]))
        values.append(one[0])
        gradients.append(one[1])
    eps = 1e-9 * row.tol
    for i, got in enumerate(found):
        want = np.stack([v[i] for v in values])
        assert not (problem := compare.mismatch(got, want, eps)), f"output {i}: {problem}"
    graded = [a for a, s in zip(axes, stacked, strict=True) if s.requires_grad]
    for i, (got, axis) in enumerate(zip(found_slopes, graded, strict=True)):
        each = np.stack([g[i] for g in gradients])
        want = each.sum(0) if axis is None else each
        floor = float(np.abs(each).max(initial=0))
        assert not (problem := compare.mismatch(got, want, eps, floor)), f"gradient {i}: {problem}"
