"""Reductions, cumulative sums, sorting and sets, with the standard's names and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import kernelrt as krt
from kernelrt import Tensor
from kernelrt import dtype as dt
from kernelrt.array_api._arranging import only_axis
from kernelrt.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt import DType

__all__ = ["UniqueAll", "UniqueCounts", "UniqueInverse", "all", "any", "argmax", "argmin",
           "argsort", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean",
           "min", "nonzero", "prod", "searchsorted", "sort", "std", "sum", "total_type",
           "unique_all", "unique_counts", "unique_inverse", "unique_values", "var"]  # fmt: skip

_Axes: TypeAlias = "int | Sequence[int] | None"


class UniqueAll(NamedTuple):
    """Distinct elements, first index of each, index of each element among them, and counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct elements and their counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct elements, and the index of each element among them."""

    values: Tensor
    inverse_indices: Tensor


def total_type(x: Tensor, dtype: object) -> DType | None:
    """Return the type of sums and products; unsigned integers stay unsigned."""
    if dtype is not None:
        return dt.parse(dtype)
    return dt.uint64 if x.dtype.is_unsigned else None


def all(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements over some axes are nonzero."""
    return x.all(axis, keepdims).bool()


def any(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element over some axes is nonzero."""
    return x.any(axis, keepdims).bool()


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first maximum, along an axis or in row-major order."""
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first minimum, along an axis or in row-major order."""
    return x.argmin(axis, keepdims)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """Return the indices that sort the elements along an axis; every sort is stable."""
    return x.argsort(axis, descending, stable)


def count_nonzero(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the number of nonzero elements over some axes."""
    return x.bool().sum(axis, keepdims)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Tensor:
    """Return cumulative products along an axis, optionally with a 1 in front."""
    along = only_axis(x, axis, "cumulative_prod")
    out = x.cumprod(along, total_type(x, dtype))
    return _with_first(out, along, 1) if include_initial else out


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Tensor:
    """Return cumulative sums along an axis, optionally with a 0 in front."""
    along = only_axis(x, axis, "cumulative_sum")
    out = x.cumsum(along, total_type(x, dtype))
    return _with_first(out, along, 0) if include_initial else out


def _with_first(x: Tensor, axis: int, number: int) -> Tensor:
    if x.ndim == 0:
        raise ShapeError(
            "x: include_initial=True expects at least 1 axis, not a scalar; reshape x to (1,)"
        )
    shape = tuple(1 if a == axis else d for a, d in enumerate(x.shape))
    return krt.cat([krt.full(shape, number, x.dtype), x], axis)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return differences of neighbors along an axis, taken `n` times."""
    return x.diff(n, axis, prepend, append)


def max(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over some axes; NaN if there is a NaN."""
    return x.amax(axis, keepdims)


def mean(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of floats over some axes."""
    return x.mean(axis, keepdims)


def min(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the minimum over some axes; NaN if there is a NaN."""
    return x.amin(axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the indices of nonzero elements, a vector for each axis."""
    if x.ndim == 0:
        raise ShapeError("nonzero: expected at least 1 axis, not a scalar")
    found = x.nonzero(as_tuple=True)
    assert isinstance(found, tuple)
    return found


def prod(
    x: Tensor, /, *, axis: _Axes = None, dtype: object = None, keepdims: bool = False
) -> Tensor:
    """Return the product over some axes; integers are multiplied in 64 bits."""
    return x.prod(axis, keepdims, dtype=total_type(x, dtype))


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Return the indices where `x2` would be inserted so that the vector `x1` stays sorted."""
    return x1.searchsorted(x2, side=side, sorter=sorter)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sort the elements along an axis. Every sort is stable; NaN is the greatest."""
    return x.sort(axis, descending, stable).values


def std(
    x: Tensor, /, *, axis: _Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Return the standard deviation over some axes, with ``count - correction`` as divisor."""
    return x.std(axis, None, keepdims, correction=correction)


def sum(
    x: Tensor, /, *, axis: _Axes = None, dtype: object = None, keepdims: bool = False
) -> Tensor:
    """Return the sum over some axes; integers are added in 64 bits."""
    return x.sum(axis, keepdims, dtype=total_type(x, dtype))


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the distinct elements, ascending, with indices and counts; NaNs are all distinct."""
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    places = krt.arange(inverse.numel())
    first = krt.full_like(values, inverse.numel(), dt.int64)
    first = first.scatter_reduce(0, inverse.flatten(), places, "amin")
    return UniqueAll(values, first, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct elements, ascending, and their counts."""
    return UniqueCounts(*x.unique(return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct elements, ascending, and the index of each element among them."""
    return UniqueInverse(*x.unique(return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct elements, ascending."""
    values: Tensor = x.unique()
    return values


def var(
    x: Tensor, /, *, axis: _Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Return the variance over some axes, with ``count - correction`` as divisor."""
    return x.var(axis, None, keepdims, correction=correction)
