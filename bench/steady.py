"""Values that are the same in every run, but written where they are used: tables, weight norms."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.limits import Work, cases_of, normal

if TYPE_CHECKING:
    from bench.cases import Case

#: Lengths and widths of sequences.
TABLES = ((32, 64), (128, 256), (1024, 512))
#: Numbers of rows, and widths of square weights.
PRODUCTS = ((1, 256), (8, 256), (8, 1024))
RATE = -2 * math.log(10000.0)


def _positions(x: Any) -> Any:
    import kernelrt as krt

    length, width = x.shape
    place = krt.arange(length).cast("float32").unsqueeze(1)
    angle = place * (krt.arange(width // 2).cast("float32") * (RATE / width)).exp()
    return x + krt.cat([angle.sin(), angle.cos()], 1)


def _torch_positions(x: Any) -> Any:
    import torch

    length, width = x.shape
    place = torch.arange(length, dtype=torch.float32)[:, None]
    angle = place * (torch.arange(width // 2, dtype=torch.float32) * (RATE / width)).exp()
    return x + torch.cat([angle.sin(), angle.cos()], 1)


@functools.cache
def _weight(width: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((width, width), np.float32)


@functools.cache
def _ours(width: int) -> Any:
    import kernelrt as krt

    return krt.tensor(_weight(width))


@functools.cache
def _theirs(width: int) -> Any:
    import torch

    return torch.from_numpy(_weight(width))


def _normed(v: Any, x: Any) -> Any:
    return x @ (v / (v * v).sum(1)[:, None].sqrt()).T


def works() -> tuple[Work, ...]:
    """Return all computations."""
    tables = [
        Work(
            f"positions-{n}x{d}", f"positions {n} x {d}, added", normal((n, d)),
            _positions, _torch_positions, tolerance=1e-3,
        )
        for n, d in TABLES
    ]  # fmt: skip
    products = [
        Work(
            f"normed-{m}x{n}", f"product of {m} rows and a weight of {n} with normed rows",
            normal((m, n)), lambda x: _normed(_ours(x.shape[-1]), x),
            lambda x: _normed(_theirs(x.shape[-1]), x),
        )
        for m, n in PRODUCTS
    ]  # fmt: skip
    return (*tables, *products)


def cases() -> tuple[Case, ...]:
    """Return the cases of all computations."""
    return cases_of(works())
