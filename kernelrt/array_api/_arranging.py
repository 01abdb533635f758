"""Shape manipulation, with the standard's parameter names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kernelrt as krt
from kernelrt.errors import ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.tensor.nodes.arguments import axes_of, axis_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt import Tensor

__all__ = ["broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flat_or_along", "flip",
           "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze",
           "stack", "take", "take_along_axis", "tile", "unstack"]  # fmt: skip


def flat_or_along(x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    """Return (`x`, axis); if `axis` is None, the flattened `x` and 0."""
    return (x.flatten(), 0) if axis is None else (x, axis)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Broadcast tensors to their common shape."""
    return list(krt.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """Broadcast `x` to `shape`."""
    return x.broadcast_to(tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Concatenate tensors along an axis, or their flattened elements if it is None."""
    parts = [x.flatten() for x in arrays] if axis is None else list(arrays)
    return krt.cat(parts, axis or 0)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """Add an axis of size 1 at `axis`."""
    return x.unsqueeze(axis)


def flip(x: Tensor, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverse the order along some axes, or along all."""
    return x.flip(axes_of(axis, x.ndim, "axis"))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Swap the last two axes."""
    return x.mT


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """Move axes to other positions; the other axes keep their order."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """Permute the axes."""
    return x.permute(tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element `repeats` times along an axis, or of the flattened `x`."""
    source, along = flat_or_along(x, axis)
    return source.repeat_interleave(repeats, along)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """Return the elements, in row-major order, in another shape; with `copy` in new memory."""
    out = x.reshape(tuple(shape))
    return out.clone() if copy else out


def roll(
    x: Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None
) -> Tensor:
    """Shift elements cyclically along axes, or in the flattened order."""
    if isinstance(shift, int) and isinstance(axis, tuple | list):
        shift = (shift,) * len(axis)
    return x.roll(shift, axis)


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """Remove axes of size 1.

    Raises
    ------
    ShapeError
        An axis has another size.
    """
    axes = axes_of(axis, x.ndim, "axis")
    for a in axes:
        if not same(x.dims[a], 1):
            raise ShapeError(
                f"axis: expected axes of size 1, but axis {a} of {format_shape(x.dims)} is not"
            )
    return x.squeeze(axes)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Stack tensors of one shape along a new axis."""
    return krt.stack(list(arrays), axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the slices at the given indices along an axis; negative indices count from the end."""
    place = only_axis(x, axis, "take")
    taken: Tensor = x[(*(slice(None),) * place, indices)]
    return taken


def only_axis(x: Tensor, axis: int | None, name: str) -> int:
    """Return `axis`; it may be None if `x` has one axis."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"axis: {name} of a tensor of shape {format_shape(x.dims)} needs an axis")
    return axis_of(axis or 0, x.ndim, "axis")


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the elements at the given indices along an axis.

    `indices` has an index for each element of the result. Negative indices count from the end.
    """
    return x.take_along_dim(indices, axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """Repeat `x` along each axis."""
    return x.tile(tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices along an axis."""
    return x.unbind(axis)
