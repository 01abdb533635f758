"""Creation functions, with the standard's parameter names."""

from __future__ import annotations

from typing import Any

import kernelrt as krt
from kernelrt import Tensor
from kernelrt import dtype as dt
from kernelrt.device.registry import check_device
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import format_shape

__all__ = ["arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace",
           "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like"]  # fmt: skip


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: object = None,
    device: object = None,
) -> Tensor:  # fmt: skip
    """Return the numbers from `start` up to, but not including, `stop`; ``arange(n)`` begins at 0.

    Parameters
    ----------
    start : number
        First number.
    stop : number, optional
        End, which is not reached.
    step : number
        Difference of neighbors.
    dtype : DType, optional
        Type of the result; by default int64 for ints, and float32 for floats.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Vector.

    Examples
    --------
    >>> krt.array_api.arange(3).tolist(), krt.array_api.arange(1, 2, 0.25).tolist()
    ([0, 1, 2], [1.0, 1.25, 1.5, 1.75])
    """
    return krt.arange(start, stop, step, dtype, device)


def asarray(
    obj: Any, /, *, dtype: object = None, device: object = None, copy: bool | None = None
) -> Tensor:
    """Return `obj` as a tensor; see ``kernelrt.asarray``.

    Parameters
    ----------
    obj : array_like
        Tensor, array, number, or nested lists of numbers.
    dtype : DType, optional
        Type of the result; by default that of `obj`.
    device : optional
        "cpu", the only device.
    copy : bool, optional
        True always copies. None copies if it must. False raises an error if a copy is necessary.

    Returns
    -------
    Tensor
        `obj` itself if it is a Tensor of this type and `copy` is not true; otherwise a new tensor.

    Raises
    ------
    DeviceError
        `device` is unknown.
    SharingError
        `copy` is False, but a copy is necessary.

    Examples
    --------
    >>> krt.array_api.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    return krt.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape: Any, *, dtype: object = None, device: object = None) -> Tensor:
    """Return a tensor of a shape with arbitrary elements.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the result.
    dtype : DType, optional
        Type of the result; float32 by default.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of this shape.

    Examples
    --------
    >>> krt.array_api.empty((2, 3)).shape
    (2, 3)
    """
    return krt.empty(shape, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: object = None, device: object = None) -> Tensor:
    """Return a tensor with the shape and type of `x` and arbitrary elements.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    dtype : DType, optional
        Type of the result; by default that of `x`.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of the shape of `x`.

    Examples
    --------
    >>> krt.array_api.empty_like(krt.tensor([1, 2])).dtype
    kernelrt.int64
    """
    return krt.empty_like(x, dtype, device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: object = None,
    device: object = None,
) -> Tensor:  # fmt: skip
    """Return a matrix with ones on the `k`-th diagonal and zeros elsewhere.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    n_cols : int, optional
        Number of columns; by default that of rows.
    k : int
        Diagonal: 0 is the main one, positive numbers are above it.
    dtype : DType, optional
        Type of the result; float32 by default.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Matrix of shape (n_rows, n_cols).

    Examples
    --------
    >>> krt.array_api.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if not k:
        return krt.eye(n_rows, n_cols, dtype, device)
    check_device(device)
    columns = n_rows if n_cols is None else n_cols
    kind = dt.float32 if dtype is None else dt.parse(dtype)
    return (krt.arange(n_rows).unsqueeze(1) + k == krt.arange(columns)).cast(kind)


def full(
    shape: Any, fill_value: Tensor | bool | float, *, dtype: object = None, device: object = None
) -> Tensor:
    """Return a tensor filled with a number or with the element of a 0-d tensor.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the result.
    fill_value : number, bool or Tensor
        Value of all elements; a Tensor has shape ().
    dtype : DType, optional
        Type of the result; by default bool, int64 or float32, or that of a Tensor `fill_value`.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of this shape.

    Raises
    ------
    ShapeError
        `fill_value` is a Tensor with axes.

    Examples
    --------
    >>> krt.array_api.full((2, 2), 7).tolist()
    [[7, 7], [7, 7]]
    """
    if not isinstance(fill_value, Tensor):
        return krt.full(shape, fill_value, dtype, device)
    check_device(device)
    if fill_value.ndim:
        raise ShapeError(
            "fill_value: expected a number or a tensor of shape (), not a tensor of shape "
            f"{format_shape(fill_value.dims)}"
        )
    value = fill_value if dtype is None else fill_value.cast(dtype)
    return value.broadcast_to(shape)


def full_like(
    x: Tensor, /, fill_value: Tensor | bool | float, *, dtype: object = None, device: object = None
) -> Tensor:
    """Return a tensor like `x` filled with a number or with the element of a 0-d tensor.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    fill_value : number, bool or Tensor
        Value of all elements; a Tensor has shape ().
    dtype : DType, optional
        Type of the result; by default that of `x`.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of the shape of `x`.

    Raises
    ------
    ShapeError
        `fill_value` is a Tensor with axes.

    Examples
    --------
    >>> krt.array_api.full_like(krt.tensor([1.0, 2.0]), 7).tolist()
    [7.0, 7.0]
    """
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: object = None, device: object = None,
    endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """Return `num` evenly spaced numbers from `start` to `stop`, with or without `stop` itself.

    Parameters
    ----------
    start, stop : number
        Ends of the interval.
    num : int
        Number of elements, at least 0.
    dtype : DType, optional
        Type of the result; float32 by default.
    device : optional
        "cpu", the only device.
    endpoint : bool
        Whether the last element is `stop`.

    Returns
    -------
    Tensor
        Vector of `num` elements.

    Raises
    ------
    ShapeError
        `num` is negative.

    Examples
    --------
    >>> krt.array_api.linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    >>> krt.array_api.linspace(0, 1, 2, endpoint=False).tolist()
    [0.0, 0.5]
    """
    if endpoint or not num:
        return krt.linspace(start, stop, num, dtype, device)
    return krt.linspace(start, stop, num + 1, dtype, device)[:-1]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of all points of a grid, from the coordinates along each axis.

    Parameters
    ----------
    *arrays : Tensor
        Vectors of coordinates.
    indexing : "xy" or "ij"
        "ij": axis i of the results belongs to vector i. "xy": the first two axes are exchanged, as
        in images.

    Returns
    -------
    list of Tensor
        One tensor for each vector, all of one shape.

    Examples
    --------
    >>> x, y = krt.array_api.meshgrid(krt.tensor([1, 2, 3]), krt.tensor([4, 5]))
    >>> x.tolist(), y.tolist()
    ([[1, 2, 3], [1, 2, 3]], [[4, 4, 4], [5, 5, 5]])
    """
    return list(krt.meshgrid(*arrays, indexing=indexing)) if arrays else []


def ones(shape: Any, *, dtype: object = None, device: object = None) -> Tensor:
    """Return ones of a shape.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the result.
    dtype : DType, optional
        Type of the result; float32 by default.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of this shape.

    Examples
    --------
    >>> krt.array_api.ones((2, 2)).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    return krt.ones(shape, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: object = None, device: object = None) -> Tensor:
    """Return ones with the shape and type of `x`.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    dtype : DType, optional
        Type of the result; by default that of `x`.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of the shape of `x`.

    Examples
    --------
    >>> krt.array_api.ones_like(krt.tensor([5, 6])).tolist()
    [1, 1]
    """
    return krt.ones_like(x, dtype, device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the elements on and below the `k`-th diagonal, with zeros above.

    Parameters
    ----------
    x : Tensor, shape (..., n, m)
        Matrices.
    k : int
        Diagonal: 0 is the main one, positive numbers are above it.

    Returns
    -------
    Tensor
        The shape and type of `x`.

    Examples
    --------
    >>> krt.array_api.tril(krt.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 0], [3, 4]]
    """
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the elements on and above the `k`-th diagonal, with zeros below.

    Parameters
    ----------
    x : Tensor, shape (..., n, m)
        Matrices.
    k : int
        Diagonal: 0 is the main one, positive numbers are above it.

    Returns
    -------
    Tensor
        The shape and type of `x`.

    Examples
    --------
    >>> krt.array_api.triu(krt.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 2], [0, 4]]
    """
    return x.triu(k)


def zeros(shape: Any, *, dtype: object = None, device: object = None) -> Tensor:
    """Return zeros of a shape.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the result.
    dtype : DType, optional
        Type of the result; float32 by default.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of this shape.

    Examples
    --------
    >>> krt.array_api.zeros((2, 2)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return krt.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: object = None, device: object = None) -> Tensor:
    """Return zeros with the shape and type of `x`.

    Parameters
    ----------
    x : Tensor
        Tensor of any shape.
    dtype : DType, optional
        Type of the result; by default that of `x`.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        Tensor of the shape of `x`.

    Examples
    --------
    >>> krt.array_api.zeros_like(krt.tensor([5, 6])).tolist()
    [0, 0]
    """
    return krt.zeros_like(x, dtype, device)
