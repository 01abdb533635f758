"""Check indices against the sizes of axes, and find the memory of slices."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import AxisError, DTypeError, IndexBoundsError, JitError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import dim_span, format_size, is_static, same
from kernelrt.ir.size import plain
from kernelrt.tensor import state, views
from kernelrt.tensor.autograd.tags import Severed, mark
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import index_of, lacking

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Selection", "check_labels", "checked", "elements", "first_lack", "is_array", "is_number",
    "known", "limit", "mask_rank", "position", "selection", "spelled_out", "window", "within",
]  # fmt: skip


_T = TypeVar("_T", bound=TensorBase)


def spelled_out(index: Any, rank: int) -> list[Any]:
    """Return the items of an index, one per axis (None adds one), with Ellipsis expanded."""
    items = list(index) if isinstance(index, tuple) else [index]
    used = sum(_taken(i) for i in items)
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if used > rank:
        raise AxisError(f"index: expected at most {rank} indices, one per axis, not {used}")
    if len(dots) > 1:
        raise ShapeError(f"index: expected at most one Ellipsis, not {len(dots)}")
    at = dots[0] if dots else len(items)
    fill: list[Any] = [slice(None)] * (rank - used)
    return items[:at] + fill + items[at + len(dots) :]


def _taken(item: Any) -> int:
    """Return the number of axes that an item indexes."""
    if item is None or item is Ellipsis:
        return 0
    rank = mask_rank(item)
    return 1 if rank is None else rank


def mask_rank(item: Any) -> int | None:
    """Return the number of axes of a bool mask, or None if the item is not a mask."""
    if isinstance(item, TensorBase):
        return item.ndim if item.dtype.is_bool else None
    if isinstance(item, np.ndarray):
        return item.ndim if item.dtype == np.bool_ else None
    if isinstance(item, bool | np.bool_):
        return 0
    first, rank = item, 0
    while isinstance(first, list | tuple) and first:
        first, rank = first[0], rank + 1
    return rank if rank and isinstance(first, bool | np.bool_) else None


class Selection(NamedTuple):
    """The elements that an index selects, as two successive NumPy indices.

    Attributes
    ----------
    view : tuple
        Index of integers, slices and None, which gives a view.
    elements : tuple
        Index of that view, of slices, masks and index arrays.
    shape : tuple of int
        Shape of the selected elements.
    """

    view: tuple[Any, ...]
    elements: tuple[Any, ...]
    shape: tuple[int, ...]


def selection(tensor: TensorBase, index: Any) -> Selection | None:
    """Compute index tensors and masks, and return the elements that an index selects.

    Return None if a size is dynamic, or if the index is invalid (indexing then raises the error).
    """
    if not is_static(tensor.dims):
        return None
    if not isinstance(index, tuple) and is_array(index):
        return _selection_of_one(tensor, index)
    try:
        items = spelled_out(index, tensor.ndim)
    except ShapeError:
        return None
    sizes = iter(cast("tuple[int, ...]", tensor.dims))
    view: list[Any] = []
    elements: list[Any] = []
    arrays: list[tuple[int, tuple[int, ...]]] = []  # the axis of the view, and the shape
    left: list[int] = []
    for item in items:
        rank = mask_rank(item)
        if rank is not None:
            mask = _mask(tensor, item, tuple(islice(sizes, rank)))
            if mask is None:
                return None
            view += [slice(None)] * rank
            arrays.append((len(elements), (int(np.count_nonzero(mask)),)))
            elements.append(mask)
        elif is_array(item):
            array = _positions(tensor, item, next(sizes))
            if array is None:
                return None
            if array.ndim:
                view.append(slice(None))
                arrays.append((len(elements), array.shape))
                elements.append(array)
            else:  # a scalar drops its axis, as a number does
                view.append(int(array))
        elif item is None:
            view.append(item)
            left.append(1)
            elements.append(slice(None))
        elif isinstance(item, slice) and views.has_numbers(item):
            view.append(item)
            left.append(len(range(*item.indices(next(sizes)))))
            elements.append(slice(None))
        elif isinstance(item, int | np.integer) and -(size := next(sizes)) <= item < size:
            view.append(item)
        else:
            return None
    try:
        shape = np.broadcast_shapes(*[shape for _, shape in arrays])
    except ValueError:
        return None
    first = arrays[0][0] if arrays else 0
    adjacent = [axis for axis, _ in arrays] == list(range(first, first + len(arrays)))
    front = first if adjacent else 0  # where the indexed axes go
    return Selection((*view, ...), (*elements, ...), (*left[:front], *shape, *left[front:]))


def _selection_of_one(tensor: TensorBase, index: Any) -> Selection | None:
    """Return :class:`Selection` for one index array, or one mask over the first axes."""
    sizes = cast("tuple[int, ...]", tensor.dims)
    rank = mask_rank(index)
    if rank is not None:
        mask = _mask(tensor, index, sizes[:rank])
        count = None if mask is None else int(np.count_nonzero(mask))
        return None if count is None else Selection((...,), (mask,), (count, *sizes[rank:]))
    array = _positions(tensor, index, sizes[0]) if sizes else None
    if array is None:
        return None
    if not array.ndim:
        return Selection((int(array), ...), (...,), sizes[1:])
    return Selection((...,), (array,), (*array.shape, *sizes[1:]))


def _mask(like: Any, item: Any, sizes: tuple[int, ...]) -> np.ndarray[Any, Any] | None:
    """Compute a mask over axes of these sizes; return None if its shape differs or is ()."""
    mask = _values(like, item) if mask_rank(item) else None
    return mask if mask is not None and mask.shape == sizes else None


def _positions(like: Any, item: Any, size: int) -> np.ndarray[Any, Any] | None:
    """Compute an index array, in row-major order.

    Return None for an unsupported dtype, and for a scalar that is out of range for the axis.
    """
    array = _values(like, item)
    if array is None or array.dtype.kind not in "iu" or array.dtype == np.uint64:
        return None
    if array.ndim:  # NumPy iterates over non-contiguous arrays in memory order, not row by row
        return np.ascontiguousarray(array)
    return array if -size <= array < size else None


def _values(like: Any, item: Any) -> np.ndarray[Any, Any] | None:
    """Compute the elements of an index item; return None unless they are integers or bools."""
    if isinstance(item, tuple | range):
        item = list(item)
    tensor: TensorBase = like._lift(item, "index")
    return views.values_of(tensor) if tensor.dtype.is_int or tensor.dtype.is_bool else None


def is_number(item: object) -> bool:
    """Return whether an item drops its axis."""
    return not (item is None or isinstance(item, slice))


def is_array(item: object) -> bool:
    """Return whether an item is an index array or a mask."""
    return isinstance(item, TensorBase | np.ndarray | list | tuple | range | bool | np.bool_)


def is_one(item: object) -> bool:
    """Return whether an item never selects an element twice, whatever its values are."""
    if isinstance(item, TensorBase):
        return not item.dtype.is_bool and all(d == 1 for d in item.dims)
    return not is_array(item)


def position(item: object, size: Dim, axis: int) -> Dim:
    """Return an index counted from the front; raise IndexBoundsError if it is out of range."""
    item = plain(item)
    if isinstance(item, UOp):
        room = build.difference(size, item)
        if dim_span(item)[0] < 0 or dim_span(room)[0] < 1:
            raise IndexBoundsError(
                f"index: {format_size(item)} may be out of range for axis {axis} with size "
                f"{format_size(size)}; narrow the bounds of the Variables in the index or in the "
                "size"
            )
        return item
    if isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer):
        raise DTypeError(
            f"index: expected integers, slices, None, Ellipsis or integer tensors, not "
            f"{type(item).__name__}"
        )
    number = int(item)
    least, most = dim_span(size)
    if not -least <= number < least:
        if -most <= number < most:
            raise IndexBoundsError(_open_size(number, axis, size, "index"))
        raise IndexBoundsError(
            f"index: {number} is out of range for axis {axis} with size {format_size(size)}"
        )
    return number if number >= 0 else build.total((size, number))


def limit(item: object, default: Dim, size: Dim, axis: int, *, back: bool = False) -> Dim:
    """Return one end of a slice; numbers are clipped to the axis, as in Python.

    With `back`, it is an end of a slice with a negative step, and the result is its position on
    the flipped axis.
    """
    item = plain(item)
    if item is None:
        return default
    if isinstance(item, UOp):
        end = build.difference(build.difference(size, 1), item) if back else item
        room = end if back else build.difference(size, item)
        if back and same(item, size):
            return 0  # clipped
        if dim_span(item)[0] < 0 or dim_span(room)[0] < 0:
            raise IndexBoundsError(
                f"index: the slice end {format_size(item)} may lie outside axis {axis} with size "
                f"{format_size(size)}; narrow the bounds of the Variables in the slice end or in "
                "the size"
            )
        return end
    item = index_of(item, "index", "the start or end of a slice")
    if isinstance(item, bool) or not isinstance(item, int | np.integer):
        raise DTypeError(
            f"index: expected integers as the ends of a slice, not {type(item).__name__}"
        )
    number = ~int(item) if back else int(item)
    if isinstance(size, int):
        return max(0, number + size) if number < 0 else min(number, size)
    if abs(number) > max(0, dim_span(size)[0]):
        raise ShapeError(_open_size(int(item), axis, size, "slice"))
    return number if number >= 0 else build.total((size, number))


def first_lack(have: Sequence[Dim], need: Sequence[Dim]) -> str | None:
    """Return the end of the error message for the first axis that is too short, or None."""
    ends = (lacking(*pair) for pair in zip(have, need, strict=True))
    return next((end for end in ends if end is not None), None)


def _open_size(number: int, axis: int, size: Dim, use: str) -> str:
    """Return the error message for an index that may or may not be in range."""
    return (
        f"index: whether {number} lies within axis {axis} with size {format_size(size)} is "
        f"known only at run time; raise the Variable's lower bound, or {use} by a Variable"
    )


def checked(index: UOp, size: Dim, *, from_end: bool = False) -> UOp:
    """Return `index` as int64, with a run-time check that it is in [0, size).

    With `from_end`, negative indices count from the end. This does not apply to unsigned dtypes:
    their values beyond int64 become negative and are always out of range.
    """
    wide = index.cast(dt.int64)
    from_end = from_end and index.dtype.is_signed and wide.vmin < 0
    if from_end:
        zero = build.zeros_like(wide)
        counted = wide.alu(Op.ADD, build.full(size, dt.int64, wide.shape))
        wide = build.where(wide.alu(Op.LT, zero), counted, wide)
    return build.bound(wide, size, from_end=from_end)


def within(numbers: _T, size: Dim) -> _T:
    """Return an integer tensor as int64, with a run-time check that it is in [0, size)."""
    return numbers._of(checked(numbers.uop, size))


def known(tensor: TensorBase) -> np.ndarray[Any, Any] | None:
    """Compute the elements of a tensor; return None if a trace does not know them.

    A trace knows constants that the traced function creates, and values computed from them.
    """
    trace = state.local.trace
    if trace is None:
        return _read(tensor)
    node = tensor.uop
    if not trace.knows(node):
        return None
    state.local.trace = None
    try:
        return _read(tensor._of(node))
    finally:
        state.local.trace = trace


def _read(tensor: Any) -> np.ndarray[Any, Any]:
    held = tensor.cast(dt.float32) if tensor.dtype is dt.bfloat16 else tensor
    return np.asarray(held.detach().numpy())


def elements(tensor: TensorBase, name: str, instead: str) -> np.ndarray[Any, Any]:
    """Compute the elements; JitError with the advice `instead` if a trace does not know them."""
    found = known(tensor)
    if found is None:
        raise JitError(
            f"{name}: the size of the result depends on values, which are unknown while a function "
            f"is traced; {instead}, or call {name} outside of the traced function"
        )
    return found


def check_labels(labels: UOp, classes: Dim, name: str) -> UOp:
    """Return class labels as int64, with a run-time check that they are in [0, classes)."""
    if not labels.dtype.is_int:
        raise DTypeError(
            f"{name}: expected integer labels, not {labels.dtype.name}; cast class numbers to an "
            "integer type, as in y.long(), and replace NaN before"
        )
    return checked(labels, classes)


def window(node: UOp, bounds: Sequence[tuple[Dim, Dim]]) -> UOp:
    """Slice `node` to the half-open `bounds` of each axis.

    A slice that is contiguous in a buffer becomes a view of the buffer. So a loop over rows or
    batches builds graphs of the same structure, and these share a plan. Results of jitted functions
    keep their tag. While a function is traced, slices are never turned into views.
    """
    part = build.shrink(node, bounds)
    if part is node or state.local.trace is not None:
        return part
    below, severed = node, None
    while below.op is Op.RESHAPE or (severed is None and below.op is Op.DETACH):
        if below.op is Op.DETACH:
            if not isinstance(below.arg, Severed):
                return part
            severed = below.arg
        below = below.src[0]
    if below.op is not Op.BUFFER or not isinstance(below.arg, Buffer) or not below.arg.allocated:
        return part
    run = _run(node.shape, bounds)
    buffer = below.arg
    if run is None or buffer.address % buffer.dtype.itemsize:
        return part
    start, size = run
    view = buffer.view(start * buffer.dtype.itemsize, size)
    found = build.reshape(build.memory(view), part.shape)
    return found if severed is None else mark(found, severed)


def _run(
    shape: Sequence[Dim], bounds: Sequence[tuple[Dim, Dim]]
) -> tuple[int, int] | None:
    """Return the first element and the element count of a slice, or None if not contiguous."""
    start, size, stride, whole = 0, 1, 1, True
    for d, (lo, hi) in zip(reversed(shape), reversed(bounds), strict=True):
        if not (isinstance(d, int) and isinstance(lo, int) and isinstance(hi, int)):
            return None
        count = hi - lo
        if count < 1 or (count > 1 and not whole):
            return None
        whole = whole and count == d
        start += lo * stride
        size *= count
        stride *= d
    return start, size
