"""The standard's reductions, cumulative sums, sorting functions and set functions."""

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
    """Distinct elements, with the first index of each, the inverse indices, and the counts.

    Result of :func:`unique_all`.

    Attributes
    ----------
    values, indices, inverse_indices, counts : Tensor
        See :func:`unique_all`.
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct elements and their counts.

    Result of :func:`unique_counts`.

    Attributes
    ----------
    values, counts : Tensor
        See :func:`unique_counts`.
    """

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct elements, and the inverse indices.

    Result of :func:`unique_inverse`.

    Attributes
    ----------
    values, inverse_indices : Tensor
        See :func:`unique_inverse`.
    """

    values: Tensor
    inverse_indices: Tensor


def total_type(x: Tensor, dtype: object) -> DType | None:
    """Return the type of sums and products; unsigned integers stay unsigned."""
    if dtype is not None:
        return dt.parse(dtype)
    return dt.uint64 if x.dtype.is_unsigned else None


def all(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements along some axes are nonzero.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of bools
        The shape of `x` without the reduced axes.

    Examples
    --------
    >>> krt.array_api.all(krt.tensor([[1, 2], [0, 3]]), axis=1).tolist()
    [True, False]
    """
    return x.all(axis, keepdims).bool()


def any(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return whether any element along some axes is nonzero.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of bools
        The shape of `x` without the reduced axes.

    Examples
    --------
    >>> krt.array_api.any(krt.tensor([[0, 0], [0, 3]]), axis=1).tolist()
    [False, True]
    """
    return x.any(axis, keepdims).bool()


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first maximum along an axis, or in the flattened `x`.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int, optional
        Axis to reduce; by default the flattened `x`.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of int64
        The shape of `x` without the axis.

    Examples
    --------
    >>> krt.array_api.argmax(krt.tensor([1, 3, 3])).item()
    1
    """
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first minimum along an axis, or in the flattened `x`.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int, optional
        Axis to reduce; by default the flattened `x`.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of int64
        The shape of `x` without the axis.

    Examples
    --------
    >>> krt.array_api.argmin(krt.tensor([3, 1, 1])).item()
    1
    """
    return x.argmin(axis, keepdims)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """Return the indices that sort the elements along an axis; every sort is stable.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int
        Axis along which to sort.
    descending : bool
        Whether to sort from the greatest to the least.
    stable : bool
        Ignored: equal elements always keep their order.

    Returns
    -------
    Tensor of int64
        Indices of the shape of `x`.

    Examples
    --------
    >>> krt.array_api.argsort(krt.tensor([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    return x.argsort(axis, descending, stable)


def count_nonzero(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the number of nonzero elements along some axes.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of int64
        The shape of `x` without the reduced axes.

    Examples
    --------
    >>> krt.array_api.count_nonzero(krt.tensor([[0, 2], [3, 4]]), axis=0).tolist()
    [1, 2]
    """
    return x.bool().sum(axis, keepdims)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Tensor:
    """Return cumulative products along an axis, optionally with a 1 in front.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int, optional
        Axis to multiply along; required if `x` has more than one.
    dtype : DType, optional
        Type of the result. By default floats keep theirs, unsigned integers become uint64, and
        bools and other integers int64.
    include_initial : bool
        Whether the result starts with a 1, so that the axis is one longer.

    Returns
    -------
    Tensor
        The shape of `x`, or one longer along the axis.

    Raises
    ------
    ShapeError
        `axis` is missing and `x` has not exactly one axis.

    Examples
    --------
    >>> x = krt.tensor([2, 3, 4])
    >>> krt.array_api.cumulative_prod(x).tolist()
    [2, 6, 24]
    >>> krt.array_api.cumulative_prod(x, include_initial=True).tolist()
    [1, 2, 6, 24]
    """
    along = only_axis(x, axis, "cumulative_prod")
    out = x.cumprod(along, total_type(x, dtype))
    return _with_first(out, along, 1) if include_initial else out


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Tensor:
    """Return cumulative sums along an axis, optionally with a 0 in front.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int, optional
        Axis to add up along; required if `x` has more than one.
    dtype : DType, optional
        Type of the result. By default floats keep theirs, unsigned integers become uint64, and
        bools and other integers int64.
    include_initial : bool
        Whether the result starts with a 0, so that the axis is one longer.

    Returns
    -------
    Tensor
        The shape of `x`, or one longer along the axis.

    Raises
    ------
    ShapeError
        `axis` is missing and `x` has not exactly one axis.

    Examples
    --------
    >>> x = krt.tensor([2, 3, 4])
    >>> krt.array_api.cumulative_sum(x).tolist()
    [2, 5, 9]
    >>> krt.array_api.cumulative_sum(x, include_initial=True).tolist()
    [0, 2, 5, 9]
    """
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
    """Return differences of neighbors along an axis, taken `n` times.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int
        Axis along which to subtract.
    n : int
        Number of times to take differences.
    prepend, append : Tensor, optional
        Elements to add at the start and at the end of the axis first.

    Returns
    -------
    Tensor
        The type of `x`; each of the `n` differences makes the axis one shorter.

    Examples
    --------
    >>> krt.array_api.diff(krt.tensor([1, 4, 9, 16])).tolist()
    [3, 5, 7]
    >>> krt.array_api.diff(krt.tensor([1, 4, 9, 16]), n=2).tolist()
    [2, 2]
    """
    return x.diff(n, axis, prepend, append)


def max(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the maximum over some axes; NaN if there is a NaN.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor
        The shape of `x` without the reduced axes, in its type.

    Examples
    --------
    >>> x = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> krt.array_api.max(x, axis=0).tolist()
    [3.0, 4.0]
    """
    return x.amax(axis, keepdims)


def mean(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of floats over some axes.

    Parameters
    ----------
    x : Tensor of floats
        Numbers of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of floats
        The shape of `x` without the reduced axes, in its type.

    Raises
    ------
    DTypeError
        `x` does not hold floats.

    Examples
    --------
    >>> x = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> krt.array_api.mean(x, axis=0).tolist()
    [2.0, 3.0]
    """
    return x.mean(axis, keepdims)


def min(x: Tensor, /, *, axis: _Axes = None, keepdims: bool = False) -> Tensor:
    """Return the minimum over some axes; NaN if there is a NaN.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor
        The shape of `x` without the reduced axes, in its type.

    Examples
    --------
    >>> x = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> krt.array_api.min(x, axis=0).tolist()
    [1.0, 2.0]
    """
    return x.amin(axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the indices of nonzero elements, a vector for each axis.

    Parameters
    ----------
    x : Tensor
        Tensor of at least one axis.

    Returns
    -------
    tuple of Tensor
        One int64 vector for each axis, in row-major order of the elements.

    Raises
    ------
    JitError
        The call is inside a traced function, where values are unknown.
    ShapeError
        `x` has no axes.

    Examples
    --------
    >>> [i.tolist() for i in krt.array_api.nonzero(krt.tensor([[0, 1], [1, 1]]))]
    [[0, 1, 1], [1, 0, 1]]
    """
    if x.ndim == 0:
        raise ShapeError("nonzero: expected at least 1 axis, not a scalar; reshape x to (1,)")
    found = x.nonzero(as_tuple=True)
    assert isinstance(found, tuple)
    return found


def prod(
    x: Tensor, /, *, axis: _Axes = None, dtype: object = None, keepdims: bool = False
) -> Tensor:
    """Return the product over some axes; integers are multiplied in 64 bits.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    dtype : DType, optional
        Type of the result. By default floats keep theirs, unsigned integers become uint64, and
        bools and other integers int64.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor
        The shape of `x` without the reduced axes.

    Examples
    --------
    >>> krt.array_api.prod(krt.tensor([[1, 2], [3, 4]]), axis=1).tolist()
    [2, 12]
    """
    return x.prod(axis, keepdims, dtype=total_type(x, dtype))


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Return the indices where `x2` would be inserted so that the vector `x1` stays sorted.

    Parameters
    ----------
    x1 : Tensor, shape (n,)
        Sorted numbers; or unsorted ones with a `sorter`.
    x2 : Tensor
        Numbers to insert, of any shape.
    side : "left" or "right"
        Whether equal numbers are inserted before or after those of `x1`.
    sorter : Tensor, optional
        Indices that sort `x1`, as of :func:`argsort`.

    Returns
    -------
    Tensor of int64
        Indices from 0 to n, of the shape of `x2`.

    Examples
    --------
    >>> x1, x2 = krt.tensor([1, 3, 5]), krt.tensor([3, 4])
    >>> krt.array_api.searchsorted(x1, x2).tolist()
    [1, 2]
    >>> krt.array_api.searchsorted(x1, x2, side="right").tolist()
    [2, 2]
    """
    return x1.searchsorted(x2, side=side, sorter=sorter)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sort the elements along an axis. Every sort is stable; NaN is the greatest.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int
        Axis along which to sort.
    descending : bool
        Whether to sort from the greatest to the least.
    stable : bool
        Ignored: equal elements always keep their order.

    Returns
    -------
    Tensor
        The shape and type of `x`.

    Examples
    --------
    >>> krt.array_api.sort(krt.tensor([3, 1, 2]), descending=True).tolist()
    [3, 2, 1]
    """
    return x.sort(axis, descending, stable).values


def std(
    x: Tensor, /, *, axis: _Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Return the standard deviation along some axes; the divisor is ``count - correction``.

    Parameters
    ----------
    x : Tensor of floats
        Numbers of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    correction : float
        Subtracted from the number of elements in the divisor: 0 for a population, 1 for a sample.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of floats
        The shape of `x` without the reduced axes, in its type.

    Raises
    ------
    DTypeError
        `x` does not hold floats.

    Examples
    --------
    >>> krt.array_api.std(krt.tensor([[1.0, 3.0], [2.0, 6.0]]), axis=1).tolist()
    [1.0, 2.0]
    """
    return x.std(axis, None, keepdims, correction=correction)


def sum(
    x: Tensor, /, *, axis: _Axes = None, dtype: object = None, keepdims: bool = False
) -> Tensor:
    """Return the sum over some axes; integers are added in 64 bits.

    Parameters
    ----------
    x : Tensor
        Numbers or bools of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    dtype : DType, optional
        Type of the result. By default floats keep theirs, unsigned integers become uint64, and
        bools and other integers int64.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor
        The shape of `x` without the reduced axes.

    Examples
    --------
    >>> krt.array_api.sum(krt.tensor([[1, 2], [3, 4]]), axis=1).tolist()
    [3, 7]
    >>> krt.array_api.sum(krt.tensor([200, 100], dtype="uint8")).dtype
    kernelrt.uint64
    """
    return x.sum(axis, keepdims, dtype=total_type(x, dtype))


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the distinct elements, ascending, with indices and counts; NaNs count as distinct.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape; they count as one flat list.

    Returns
    -------
    UniqueAll of (values, indices, inverse_indices, counts)
        The distinct elements in the type of `x`, and three tensors of int64. `indices` has the
        first index of each in the flattened `x`, and `counts` their counts. `inverse_indices` has
        the shape of `x`, and for each element of `x` its index among the distinct ones.

    Raises
    ------
    JitError
        The call is inside a traced function, where values are unknown.

    Examples
    --------
    >>> found = krt.array_api.unique_all(krt.tensor([3, 1, 3]))
    >>> found.values.tolist(), found.indices.tolist()
    ([1, 3], [1, 0])
    >>> found.inverse_indices.tolist(), found.counts.tolist()
    ([1, 0, 1], [1, 2])
    """
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    places = krt.arange(inverse.numel())
    first = krt.full_like(values, inverse.numel(), dt.int64)
    first = first.scatter_reduce(0, inverse.flatten(), places, "amin")
    return UniqueAll(values, first, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the distinct elements, ascending, and their counts.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape; they count as one flat list.

    Returns
    -------
    UniqueCounts of (values, counts)
        The distinct elements in the type of `x`, and int64.

    Raises
    ------
    JitError
        The call is inside a traced function, where values are unknown.

    Examples
    --------
    >>> values, counts = krt.array_api.unique_counts(krt.tensor([3, 1, 3]))
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    return UniqueCounts(*x.unique(return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the distinct elements, ascending, and for each element of `x` its index among them.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape; they count as one flat list.

    Returns
    -------
    UniqueInverse of (values, inverse_indices)
        The distinct elements in the type of `x`, and int64 of the shape of `x`.

    Raises
    ------
    JitError
        The call is inside a traced function, where values are unknown.

    Examples
    --------
    >>> values, inverse = krt.array_api.unique_inverse(krt.tensor([3, 1, 3]))
    >>> values.tolist(), inverse.tolist()
    ([1, 3], [1, 0, 1])
    """
    return UniqueInverse(*x.unique(return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    """Return the distinct elements, ascending.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape; they count as one flat list.

    Returns
    -------
    Tensor
        Vector in the type of `x`.

    Raises
    ------
    JitError
        The call is inside a traced function, where values are unknown.

    Examples
    --------
    >>> krt.array_api.unique_values(krt.tensor([3, 1, 3])).tolist()
    [1, 3]
    """
    values: Tensor = x.unique()
    return values


def var(
    x: Tensor, /, *, axis: _Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Return the variance along some axes; the divisor is ``count - correction``.

    Parameters
    ----------
    x : Tensor of floats
        Numbers of any shape.
    axis : int or sequence of int, optional
        Axes to reduce; by default all.
    correction : float
        Subtracted from the number of elements in the divisor: 0 for a population, 1 for a sample.
    keepdims : bool
        Whether reduced axes stay, with size 1.

    Returns
    -------
    Tensor of floats
        The shape of `x` without the reduced axes, in its type.

    Raises
    ------
    DTypeError
        `x` does not hold floats.

    Examples
    --------
    >>> x = krt.tensor([1.0, 3.0])
    >>> krt.array_api.var(x).item(), krt.array_api.var(x, correction=1).item()
    (1.0, 2.0)
    """
    return x.var(axis, None, keepdims, correction=correction)
