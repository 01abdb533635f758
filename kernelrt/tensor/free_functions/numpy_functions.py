"""NumPy functions for tensors, as far as their code takes more than one line."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.free_functions import creation, joining
from kernelrt.tensor.methods import comparison
from kernelrt.tensor.nodes.arguments import axis_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["append", "array_split", "as_float", "average", "broadcast_arrays", "cov", "digitize",
           "histogram", "interp", "nan_extreme", "of_share", "searchsorted", "take", "tensor_of",
           "unique"]  # fmt: skip


def tensor_of(value: Any) -> Any:
    """Return `value` if it is a tensor, else convert it to one."""
    return value if isinstance(value, TensorBase) else creation.tensor(value)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorBase)


def as_float(value: Any) -> Any:
    """Return `value` as a floating tensor; integers become float64, as in NumPy."""
    x = tensor_of(value)
    return x if x.dtype.is_float else x.cast(dt.float64)


def _along(x: Any, axis: Any) -> tuple[Any, Any]:
    return (x.flatten(), 0) if axis is None else (x, axis)


def of_share(name: str, whole: float) -> Callable[..., Any]:
    """Return ``numpy.quantile`` (`whole` is 1) or ``numpy.percentile`` (100) for tensors.

    `name` is the tensor's method: "quantile", or "nanquantile" to ignore NaN.
    """

    def do(
        a: Any, q: Any, axis: Any = None, *, method: Any = "linear", keepdims: Any = False
    ) -> Any:
        x = as_float(a)
        share: Any = q if isinstance(q, TensorBase) else creation.tensor(q, dtype=x.dtype)
        if isinstance(axis, tuple | list):
            raise DTypeError(
                f"axis: expected one axis or None, not {axis!r}; merge the axes before the call, "
                "as in x.flatten(0, 1)"
            )
        return getattr(x, name)(
            share / whole, axis, keepdim=bool(keepdims), interpolation=method
        )

    return do


def unique(
    ar: Any, return_index: Any = False, return_inverse: Any = False, return_counts: Any = False,
    axis: Any = None,
) -> Any:  # fmt: skip
    """Return the sorted unique elements, and on request their indices, inverse and counts.

    This is ``numpy.unique`` for tensors.

    Examples
    --------
    >>> values, counts = np.unique(krt.tensor([3, 1, 3]), return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    x = tensor_of(ar)
    if axis is not None:
        axis = axis_of(axis, x.ndim, "axis")
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True, dim=axis)
    found = [values]
    if return_index:
        flat = inverse.reshape(-1)
        places = creation.arange(flat.shape[0])
        first = creation.full((counts.shape[0],), flat.shape[0], dtype=dt.int64)
        found.append(first.scatter_reduce(0, flat, places, "amin"))
    if return_inverse:
        found.append(inverse)
    if return_counts:
        found.append(counts)
    return found[0] if len(found) == 1 else tuple(found)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None,  # noqa: A002
) -> Any:  # fmt: skip
    """Return the histogram and the bin edges; unweighted counts are int64.

    This is ``numpy.histogram`` for tensors. `bins` is a number of bins, or their edges.

    Raises
    ------
    DTypeError
        `bins` is the name of a rule.

    Examples
    --------
    >>> counts, edges = np.histogram(krt.tensor([0.0, 1.0, 2.0]), bins=2)
    >>> counts.tolist(), edges.tolist()
    ([1, 2], [0.0, 1.0, 2.0])
    """
    if isinstance(bins, str):
        raise DTypeError(
            f"numpy.histogram: bins: expected a number or bin edges, not {bins!r}; to choose "
            "bins by a rule, call numpy.histogram(x.numpy(), ...)"
        )
    x = as_float(a)
    if not isinstance(bins, int | np.integer):
        bins = tensor_of(bins).cast(x.dtype)
    found = x.histogram(bins, range=range, weight=None if weights is None else tensor_of(weights),
                        density=bool(density))  # fmt: skip
    hist = found.hist if density or weights is not None else found.hist.long()
    return hist, found.bin_edges


def _ascending(edges: Any, name: str) -> Any:
    if edges.ndim != 1:
        raise ShapeError(f"{name}: expected a vector, not shape {format_shape(edges.dims)}")
    return edges


def digitize(x: Any, bins: Any, right: Any = False) -> Any:
    """Return the index of the bin of each element, for ascending or descending bin edges.

    This is ``numpy.digitize`` for tensors.

    Examples
    --------
    >>> np.digitize(krt.tensor([0.5, 2.5]), krt.tensor([1.0, 2.0])).tolist()
    [0, 2]
    """
    edges = _ascending(tensor_of(bins), "numpy.digitize: bins")
    values = tensor_of(x)
    size = int(edges.shape[0])
    if size and edges[0].item() > edges[-1].item():
        return size - edges.flip(0).searchsorted(values, right=not right)
    return edges.searchsorted(values, right=not right)


def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    """Return the indices at which to insert elements so that `a` stays sorted.

    This is ``numpy.searchsorted`` for tensors; see :meth:`Tensor.searchsorted`.

    Examples
    --------
    >>> np.searchsorted(krt.tensor([1.0, 3.0]), krt.tensor([2.0])).tolist()
    [1]
    """
    edges, values = tensor_of(a), tensor_of(v)
    if sorter is not None:
        sorter = tensor_of(sorter)
    return edges.searchsorted(values, side=side, sorter=sorter)


def _as_data(value: Any) -> Any:
    return value if isinstance(value, TensorBase) else np.asarray(value, np.float64)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """Interpolate linearly between points; outside, return the nearest end, `left` or `right`.

    This is ``numpy.interp`` for tensors.

    Raises
    ------
    ShapeError
        `fp` and `xp` are no vectors of equal length, or have no elements.

    Examples
    --------
    >>> xp, fp = krt.tensor([0.0, 1.0]), krt.tensor([10.0, 20.0])
    >>> np.interp(krt.tensor([0.5, 3.0]), xp, fp).tolist()
    [15.0, 20.0]
    """
    kinds = [as_float(v).dtype for v in (x, xp, fp) if isinstance(v, TensorBase)]
    kind = dt.promote(*kinds)
    at, places, values = (
        v.cast(kind) if _is_tensor(v) else creation.tensor(v, dtype=kind)
        for v in map(_as_data, (x, xp, fp))
    )
    _ascending(places, "numpy.interp: xp")
    if values.shape != places.shape or not int(places.shape[0]):
        raise ShapeError(
            "numpy.interp: expected fp and xp of equal shape with at least one element, not "
            f"{format_shape(values.dims)} and {format_shape(places.dims)}"
        )
    last = int(places.shape[0]) - 1
    first = (places.searchsorted(at.detach(), right=True) - 1).clamp(0, max(last - 1, 0))
    second = (first + 1).clamp(max=last)
    x0, y0, y1 = places[first], values[first], values[second]
    gap = places[second] - x0
    alone = gap == 0
    slope = (y1 - y0) / comparison.where(alone, 1.0, gap)
    inner = comparison.where(alone, y0, y0 + slope * (at - x0))
    low = values[0] if left is None else left
    high = values[last] if right is None else right
    out = comparison.where(at < places[0], low, inner)
    out = comparison.where(at == places[last], values[last], out)
    return comparison.where(at > places[last], high, out)


def average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: Any = False) -> Any:
    """Return the mean along axes, weighted if `weights` are given.

    This is ``numpy.average`` for tensors; integers give float64.

    Examples
    --------
    >>> np.average(krt.tensor([1.0, 3.0]), weights=krt.tensor([3.0, 1.0])).item()
    1.5
    """
    x = as_float(a)
    if weights is None:
        return x.mean(axis, keepdim=bool(keepdims))
    share = tensor_of(weights)
    if share.ndim == 1 and x.ndim != 1:
        if not isinstance(axis, int | np.integer):
            raise ShapeError(
                f"numpy.average: axis: expected an int, as weights is a vector, not {axis!r}"
            )
        place = axis_of(axis, x.ndim, "axis")
        share = share.reshape(*(-1 if k == place else 1 for k in range(x.ndim)))
    share = share.expand(x.shape)
    keep = bool(keepdims)
    return (x * share).sum(axis, keepdim=keep) / share.sum(axis, keepdim=keep)


def cov(m: Any, *, rowvar: Any = True, ddof: Any = None, fweights: Any = None,
        aweights: Any = None) -> Any:  # fmt: skip
    """Return the covariance matrix of variables, stored as rows unless `rowvar` is false.

    This is ``numpy.cov`` for tensors; integers give float64. See :meth:`Tensor.cov`.

    Examples
    --------
    >>> np.cov(krt.tensor([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]])).tolist()
    [[1.0, -2.0], [-2.0, 4.0]]
    """
    x = as_float(m)
    if not rowvar and x.ndim > 1:
        x = x.mT
    given = {"fweights": fweights, "aweights": aweights}
    found = {k: tensor_of(v) for k, v in given.items() if v is not None}
    return x.cov(correction=1 if ddof is None else int(ddof), **found)


def nan_extreme(name: str) -> Callable[..., Any]:
    """Return the function ``nanmax`` or ``nanmin``: amax or amin that ignores NaN."""

    def do(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
        x = tensor_of(a)
        keep = bool(keepdims)
        if not x.dtype.is_float:
            return getattr(x, name)(axis, keepdim=keep)
        end = float("-inf") if name == "amax" else float("inf")
        missing = x.isnan()
        best = getattr(x.masked_fill(missing, end), name)(axis, keepdim=keep)
        gone = missing.all(axis, keepdim=keep)
        return best.masked_fill(gone, float("nan"))

    return do


def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """Concatenate two arrays along an axis; flatten them first if `axis` is None.

    This is ``numpy.append`` for tensors.

    Examples
    --------
    >>> np.append(krt.tensor([1, 2]), krt.tensor([3])).tolist()
    [1, 2, 3]
    """
    first, second = tensor_of(arr), tensor_of(values)
    if axis is None:
        first, second, axis = first.flatten(), second.flatten(), 0
    return joining.cat([first, second], axis)


def take(a: Any, indices: Any, axis: Any = None, *, mode: Any = "raise") -> Any:
    """Return the slices at `indices` along an axis; negative indices count from the end.

    This is ``numpy.take`` for tensors.

    Raises
    ------
    DTypeError
        `mode` is not "raise".

    Examples
    --------
    >>> np.take(krt.tensor([1, 2, 3]), krt.tensor([0, -1])).tolist()
    [1, 3]
    """
    if mode != "raise":
        raise DTypeError(
            f"numpy.take: mode: expected 'raise', not {mode!r}; clamp the indices, or take their "
            "remainder, before the call"
        )
    x, place = _along(tensor_of(a), axis)
    number = isinstance(indices, int | np.integer)
    index = operator.index(indices) if number else tensor_of(indices)
    return x[(*(slice(None),) * axis_of(place, x.ndim, "axis"), index)]


def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    """Split a tensor; if the sizes cannot be equal, the first parts have one element more.

    This is ``numpy.array_split`` for tensors.

    Examples
    --------
    >>> [part.tolist() for part in np.array_split(krt.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    given = indices_or_sections
    if not isinstance(given, int | np.integer | TensorBase):
        given = [int(i) for i in given]
    return list(tensor_of(ary).tensor_split(given, axis))


def broadcast_arrays(*args: Any) -> Any:
    """Broadcast tensors, numbers and arrays; arrays that are not numeric stay NumPy arrays.

    This is ``numpy.broadcast_arrays`` for arguments of which at least one is a tensor.

    Examples
    --------
    >>> x, y = np.broadcast_arrays(krt.tensor([1, 2]), krt.tensor([[3], [4]]))
    >>> x.tolist(), y.tolist()
    ([[1, 2], [1, 2]], [[3, 3], [4, 4]])
    """
    given = [_numbers(a) for a in args]
    shape = np.broadcast_shapes(*(g.shape for g in given))
    return tuple(
        g.expand(shape) if _is_tensor(g) else np.broadcast_to(g, shape) for g in given
    )


def _numbers(value: Any) -> Any:
    if isinstance(value, TensorBase):
        return value
    array = np.asarray(value)
    return tensor_of(value) if array.dtype.kind in "biuf" else array
