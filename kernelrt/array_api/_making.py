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
    """Return the numbers from `start` (0 if it is the only one given) up to, without, `stop`."""
    return krt.arange(start, stop, step, dtype, device)


def asarray(
    obj: Any, /, *, dtype: object = None, device: object = None, copy: bool | None = None
) -> Tensor:
    """Return `obj` as a tensor; see ``kernelrt.asarray``."""
    return krt.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape: Any, *, dtype: object = None, device: object = None) -> Tensor:
    """Return a tensor of a shape with arbitrary elements."""
    return krt.empty(shape, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: object = None, device: object = None) -> Tensor:
    """Return a tensor with the shape and type of `x` and arbitrary elements."""
    return krt.empty_like(x, dtype, device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: object = None,
    device: object = None,
) -> Tensor:  # fmt: skip
    """Return a matrix with ones on the `k`-th diagonal and zeros elsewhere."""
    if not k:
        return krt.eye(n_rows, n_cols, dtype, device)
    check_device(device)
    columns = n_rows if n_cols is None else n_cols
    kind = dt.float32 if dtype is None else dt.parse(dtype)
    return (krt.arange(n_rows).unsqueeze(1) + k == krt.arange(columns)).cast(kind)


def full(
    shape: Any, fill_value: Tensor | bool | float, *, dtype: object = None, device: object = None
) -> Tensor:
    """Return a tensor filled with a number or with the element of a 0-d tensor."""
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
    """Return a tensor like `x` filled with a number or with the element of a 0-d tensor."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: object = None, device: object = None,
    endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """Return `num` evenly spaced numbers from `start` to `stop`, which is optionally left out."""
    if endpoint or not num:
        return krt.linspace(start, stop, num, dtype, device)
    return krt.linspace(start, stop, num + 1, dtype, device)[:-1]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of all points of a grid, from those along each axis."""
    return list(krt.meshgrid(*arrays, indexing=indexing)) if arrays else []


def ones(shape: Any, *, dtype: object = None, device: object = None) -> Tensor:
    """Return ones of a shape."""
    return krt.ones(shape, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: object = None, device: object = None) -> Tensor:
    """Return ones with the shape and type of `x`."""
    return krt.ones_like(x, dtype, device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the elements on and below the `k`-th diagonal, with zeros above."""
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the elements on and above the `k`-th diagonal, with zeros below."""
    return x.triu(k)


def zeros(shape: Any, *, dtype: object = None, device: object = None) -> Tensor:
    """Return zeros of a shape."""
    return krt.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: object = None, device: object = None) -> Tensor:
    """Return zeros with the shape and type of `x`."""
    return krt.zeros_like(x, dtype, device)
