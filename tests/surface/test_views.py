"""A change of the result of every row changes its operands where it does in torch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

from surface import rows  # noqa: E402
from surface.rows import leaves  # noqa: E402

EVERY = [pytest.param(row, id=f"{table}-{row.name}") for table, row in rows.tables()]
#: Of windows that overlap, torch writes some element more than once, in an order of its own.
OVERLAPPING = ("unfold_1", "as_strided_overlap")
#: Here they are copies.
EINSUM = ("einsum diagonal", "einsum permute")


def changed(library, row, call, arrays):
    """The operands once every result was changed in place, and whether that was refused."""
    operands = [
        library.tensor(a, dtype=library.float64 if a.dtype.kind == "f" else None) for a in arrays
    ]
    refused = 0
    with library.no_grad():
        for out in leaves(call(library, *operands)):
            if not isinstance(out, library.Tensor) or out.dtype in (krt.bool_, torch.bool):
                continue
            try:
                out.mul_(2).add_(1)
            except (krt.ShapeError, RuntimeError):
                refused += 1
    return [t.numpy() for t in operands], refused


@pytest.mark.cases(100)
@pytest.mark.parametrize("row", EVERY)
def test_what_shares_elements_in_torch_does(row):
    arrays = rows.draw(row, rows.sizes(row))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, their_refusals = changed(torch, row, row.peer, arrays)
        found, refusals = changed(krt, row, row.call, arrays)
    assert bool(refusals) is bool(their_refusals)
    shares = [not np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
              for a, b in zip(arrays, wanted, strict=True)]  # fmt: skip
    for got, want, before, shared in zip(found, wanted, arrays, shares, strict=True):
        if row.name in OVERLAPPING:
            assert not np.array_equal(got, before)
        elif shared and row.name in EINSUM:
            np.testing.assert_array_equal(got, before)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-12)
