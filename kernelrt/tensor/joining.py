"""Several tensors made one, or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.tensor import build
from kernelrt.tensor.arguments import axis_of
from kernelrt.tensor.movement import MovementMethods
from kernelrt.tensor.operation import operation
from kernelrt.tensor.promotion import joint_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.tensor import Tensor

__all__ = ["cat", "meshgrid", "stack"]


def _promoted(tensors: Sequence[TensorBase], name: str) -> list[MovementMethods]:
    if not isinstance(tensors, tuple | list) or not tensors:
        raise ShapeError(f"tensors: {name} expects a sequence of at least one Tensor")
    for i, t in enumerate(tensors):
        if not isinstance(t, MovementMethods):
            raise DTypeError(f"tensors[{i}]: expected a Tensor, not {type(t).__name__}")
    dtype = joint_type(t.uop for t in tensors)
    return [t.cast(dtype) for t in tensors if isinstance(t, MovementMethods)]


@operation
def cat(tensors: Sequence[TensorBase], dim: int = 0) -> Tensor:
    """`tensors`, which agree in all other axes, one behind the other along `dim`."""
    parts = _promoted(tensors, "cat")
    first = parts[0]
    if first.ndim == 0:
        raise ShapeError("tensors: scalars cannot be joined; use stack")
    axis = axis_of(dim, first.ndim)
    for i, part in enumerate(parts):
        if part.ndim != first.ndim or not all(
            a == axis or same(d, e)
            for a, (d, e) in enumerate(zip(part.dims, first.dims, strict=True))
        ):
            raise ShapeError(
                f"tensors[{i}]: shape {format_shape(part.dims)} does not fit "
                f"{format_shape(first.dims)}; all axes but {axis} must agree"
            )
    return cast("Tensor", first._of(build.cat([p.uop for p in parts], axis)))


@operation
def stack(tensors: Sequence[TensorBase], dim: int = 0) -> Tensor:
    """`tensors` of one shape along a new axis `dim`."""
    parts = _promoted(tensors, "stack")
    first = parts[0]
    axis = axis_of(dim, first.ndim + 1)
    for i, part in enumerate(parts):
        if not build.same_shape(part.dims, first.dims):
            raise ShapeError(
                f"tensors[{i}]: shape {format_shape(part.dims)} is not the "
                f"{format_shape(first.dims)} of tensors[0]"
            )
    return cat([p.unsqueeze(axis) for p in parts], axis)


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid from vectors: tensor `i` varies along axis `i`.

    Parameters
    ----------
    *tensors : Tensor
        Vectors, or scalars, which are vectors of one element.
    indexing : "ij" or "xy"
        "xy" exchanges the first two axes.
    """
    if indexing not in ("ij", "xy"):
        raise ShapeError(f"indexing: expected 'ij' or 'xy', not {indexing!r}")
    for i, t in enumerate(tensors):
        if not isinstance(t, MovementMethods):
            raise DTypeError(f"tensors[{i}]: expected a Tensor, not {type(t).__name__}")
        if t.ndim > 1:
            raise ShapeError(
                f"tensors[{i}]: expected a vector or a scalar, not the shape {format_shape(t.dims)}"
            )
    shape = tuple(t.dims[0] if t.ndim else 1 for t in tensors)
    grids = [
        t.reshape(tuple(d if k == i else 1 for k, d in enumerate(shape))).expand(shape)
        for i, t in enumerate(tensors)
    ]
    if indexing == "xy" and len(grids) > 1:
        grids = [g.transpose(0, 1) for g in grids]
    return tuple(grids)
