"""Shape manipulation, by the standard's names of parameters."""

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
    """`x` and an axis: for None all elements in a row, and that."""
    return (x.flatten(), 0) if axis is None else (x, axis)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Tensors with the shape to which all of them broadcast."""
    return list(krt.broadcast_tensors(*arrays)) if arrays else []


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """`x` with axes of size 1, and new ones in front, grown to `shape`."""
    return x.broadcast_to(tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Tensors one behind the other along an axis, or all their elements in a row for None."""
    parts = [x.flatten() for x in arrays] if axis is None else list(arrays)
    return krt.cat(parts, axis or 0)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """`x` with a new axis of size 1 at `axis`."""
    return x.unsqueeze(axis)


def flip(x: Tensor, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """`x` with the order along some axes reversed, or along all."""
    return x.flip(axes_of(axis, x.ndim, "axis"))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """`x` with its last two axes exchanged."""
    return x.mT


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """`x` with axes moved to other places, and the others in their order."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """`x` with its axes in another order."""
    return x.permute(tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times along an axis, or of all elements in a row."""
    source, along = flat_or_along(x, axis)
    return source.repeat_interleave(repeats, along)


def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """The elements in row-major order in another shape; `copy` asks for memory of its own."""
    out = x.reshape(tuple(shape))
    return out.clone() if copy else out


def roll(
    x: Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None
) -> Tensor:
    """`x` moved along axes, or along all elements in a row; one end enters at the other."""
    if isinstance(shift, int) and isinstance(axis, tuple | list):
        shift = (shift,) * len(axis)
    return x.roll(shift, axis)


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """`x` without axes of size 1.

    Raises
    ------
    ShapeError
        One of them has another size.
    """
    axes = axes_of(axis, x.ndim, "axis")
    for a in axes:
        if not same(x.dims[a], 1):
            raise ShapeError(
                f"axis: expected axes of size 1, but axis {a} of {format_shape(x.dims)} is another"
            )
    return x.squeeze(axes)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape beside each other along a new axis."""
    return krt.stack(list(arrays), axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices along an axis that positions name; those below 0 are counted from the end."""
    place = only_axis(x, axis, "take")
    taken: Tensor = x[(*(slice(None),) * place, indices)]
    return taken


def only_axis(x: Tensor, axis: int | None, name: str) -> int:
    """`axis`, which may be None where there is one."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"axis: {name} of a tensor of shape {format_shape(x.dims)} needs one")
    return axis_of(axis or 0, x.ndim, "axis")


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements along an axis that positions name, which stand beside them.

    Positions below 0 are counted from the end.
    """
    return x.take_along_dim(indices, axis)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """`x` laid out several times along each axis."""
    return x.tile(tuple(repetitions))


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis."""
    return x.unbind(axis)
