"""Sorting and matrix factorizations: C routines, and kernels where those are faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.limits import Work, cases_of, normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cases import Case

#: Rows and keys; up to 64 keys are sorted by comparing all pairs.
SORTED = ((1, 64), (1000, 16), (1000, 64), (64, 1000), (1, 100_000), (1, 1_000_000))
#: Number of matrices, and their number of rows.
BATCHES = ((1000, 2), (1000, 4), (500, 8), (100, 16), (50, 32), (10, 64), (2, 128))


def _definite(x: Any) -> Any:
    return x @ x.mT + 4.0 * _eye(x)


def _eye(x: Any) -> Any:
    if type(x).__module__.startswith("torch"):
        import torch

        return torch.eye(x.shape[-1])
    import kernelrt as krt

    return krt.eye(x.shape[-1])


def _of_both(name: str) -> Callable[[Any], Any]:
    """Return a `linalg` function of a definite matrix, for arguments of both libraries."""

    def call(x: Any) -> Any:
        if type(x).__module__.startswith("torch"):
            import torch.linalg as linalg
        else:
            import kernelrt.linalg as linalg
        a = _definite(x)
        if name == "solve":
            return linalg.solve(a, x)
        found = getattr(linalg, name)(a)
        return found if name in ("cholesky", "inv") else found[{"eigh": 0, "qr": 1, "svd": 1}[name]]

    return call


def works() -> tuple[Work, ...]:
    """Return all computations."""
    orders = [
        Work(
            f"sort-{rows}x{n}", f"sort {rows} x {n} float32", normal((rows, n)),
            lambda x: x.sort(-1)[0], lambda x: x.sort(-1)[0], aim=1.0,
        )
        for rows, n in SORTED
    ]  # fmt: skip
    integers = Work(
        "sort-int64", "sort 64 x 1000 int64",
        lambda: [np.random.default_rng(0).integers(-(10**6), 10**6, (64, 1000))],
        lambda x: x.sort(-1)[0], lambda x: x.sort(-1)[0], aim=1.0,
    )  # fmt: skip
    factors = [
        Work(
            f"{name}-{n}", f"{name} of {count} matrices of {n} x {n}", normal((count, n, n)),
            _of_both(name), _of_both(name), tolerance=2e-2, aim=1.0,
        )
        for name in ("solve", "inv", "cholesky", "eigh", "svd")
        for count, n in BATCHES
    ]  # fmt: skip
    return (*orders, integers, *factors)


def cases() -> tuple[Case, ...]:
    """Return each computation with one and two threads."""
    return cases_of(works())
