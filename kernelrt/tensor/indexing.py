"""Indexing by numbers, slices and tensors; gather and scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, GradientError, IndexBoundsError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import broadcast, dim_span, format_shape, is_static, prod, same
from kernelrt.ir.size import plain
from kernelrt.tensor import build, state
from kernelrt.tensor.arguments import axis_of, integer, lacking
from kernelrt.tensor.base import Operand, TensorBase
from kernelrt.tensor.marks import Severed, Stale
from kernelrt.tensor.operation import operation, operations
from kernelrt.tensor.promotion import as_scalar, check_size, element
from kernelrt.tensor.reduction import ReductionMethods
from kernelrt.tensor.window import window

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["IndexingMethods", "check_labels"]

_SELECTED = "what the index selects"


@operations()
class IndexingMethods(ReductionMethods):
    """Indexing, gather and scatter."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Self:
        """Elements by integers, slices, None, Ellipsis and integer tensors, as in NumPy.

        Raises
        ------
        IndexBoundsError
            A number lies outside its axis; for an index tensor at run time, where the element
            that it names is computed.
        ShapeError
            There are more indices than axes, or the index is a mask of bools, whose result would
            have a shape that depends on data.
        """
        items = _spelled_out(index, self.ndim)
        out, axis = self, 0
        tensors: list[tuple[int, IndexingMethods]] = []
        for item in items:
            if item is None:
                out = out.unsqueeze(axis)
                axis += 1
            elif isinstance(item, slice):
                out = out._slice(axis, item)
                axis += 1
            elif _is_array(item):
                tensors.append((axis, self._index_tensor(item)))
                axis += 1
            else:
                out = out._pick(axis, item)
        if not tensors:
            return out._of(out.uop) if out is self else out
        return out._take(tensors)

    def _pick(self, axis: int, item: object) -> Self:
        """Element `item` of `axis`, which is dropped."""
        size = self.dims[axis]
        start = _position(item, size, axis)
        node = self.uop
        bounds: list[tuple[Dim, Dim]] = [(0, d) for d in node.shape]
        bounds[axis] = (start, build.total((start, 1)))
        picked = window(node, bounds)
        return self._of(
            build.reshape(picked, (*node.shape[:axis], *node.shape[axis + 1 :]))
        )

    def _slice(self, axis: int, item: slice) -> Self:
        size = self.dims[axis]
        step = 1 if item.step is None else item.step
        if not isinstance(step, int | np.integer) or step == 0:
            raise ShapeError(f"index: a slice needs a whole step other than 0, not {item.step!r}")
        if step == 1:
            start = _limit(item.start, 0, size, axis)
            stop = _limit(item.stop, size, size, axis)
            node = self.uop
            length = build.difference(stop, start)
            if isinstance(length, int) and length < 0:
                stop = start
            elif dim_span(length)[0] < 0:
                raise ShapeError(
                    f"index: the slice {format_shape((start, stop))} of axis {axis} could be "
                    "negative for some values of its Variables"
                )
            bounds: list[tuple[Dim, Dim]] = [(0, d) for d in node.shape]
            bounds[axis] = (start, stop)
            return self._of(window(node, bounds))
        return self._strided(axis, *item.indices(self._static_size(axis, "a slice with a step")))

    def _strided(self, axis: int, start: int, stop: int, step: int) -> Self:
        count = len(range(start, stop, step))
        if count == 0:
            return self.narrow(axis, 0, 0)
        out, size = self, self._static_size(axis, "a slice with a step")
        if step < 0:
            out, start, step = out.flip(axis), size - 1 - start, -step
        # Every step-th element is the first column of rows of length step.
        length = min(count * step, size - start)
        out = out.narrow(axis, start, length)
        short = count * step - length
        out = out._pad([(0, short if a == axis else 0) for a in range(out.ndim)])
        shape = (*out.dims[:axis], count, step, *out.dims[axis + 1 :])
        return out.reshape(shape).narrow(axis + 1, 0, 1).squeeze(axis + 1)

    def _index_tensor(self, item: Any) -> IndexingMethods:
        tensor = self._lift(item, "index")
        if isinstance(item, list) and build.has_zero(tensor.dims):
            tensor = tensor.cast(dt.int64)  # no elements say what type they have
        if tensor.dtype.is_bool:
            raise ShapeError(
                "index: a mask of bools selects a number of elements that depends on data; use "
                "where(mask, x, other), x.masked_fill(mask, value), or x * mask"
            )
        if not tensor.dtype.is_int:
            raise DTypeError(f"index: expected integers, not {tensor.dtype.name}")
        return tensor

    def _take(self, tensors: list[tuple[int, IndexingMethods]]) -> Self:
        """Index by tensors: their common shape takes the place of the axes they stand for."""
        shape = broadcast(*(t.dims for _, t in tensors))
        axes = [a for a, _ in tensors]
        adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
        node = self.uop
        rest = [a for a in range(self.ndim) if a not in axes]
        front = [a for a in rest if adjacent and a < axes[0]]
        back = [a for a in rest if a not in front]
        whole = (*(node.shape[a] for a in front), *shape, *(node.shape[a] for a in back))
        indices: list[UOp] = []
        for axis in range(self.ndim):
            if axis in axes:
                index = _checked(tensors[axes.index(axis)][1].uop, node.shape[axis])
                index = build.broadcast_to(index, shape)
                index = build.reshape(index, (*(1,) * len(front), *shape, *(1,) * len(back)))
            else:
                place = front.index(axis) if axis in front else (
                    len(front) + len(shape) + back.index(axis)
                )  # fmt: skip
                line = tuple(
                    node.shape[axis] if i == place else 1 for i in range(len(whole))
                )
                index = build.reshape(build.iota(node.shape[axis]), line)
            indices.append(build.expand(index, whole))
        return self._of(_gather(node, indices))

    # ---- by one axis

    def gather(self, dim: int, index: TensorBase) -> Self:
        """Elements whose position along `dim` is read from `index`, of the same rank.

        ``out[i, j] = self[index[i, j], j]`` for `dim` 0; `index` may be shorter in the other axes.

        Raises
        ------
        IndexBoundsError
            At run time, where an index lies outside [0, size of `dim`).
        """
        axis = axis_of(dim, self.ndim)
        places = self._along(axis, index, "gather")
        node = self.uop
        if not node.shape:  # one element, at position 0
            picked = _gather(build.reshape(node, (1,)), [build.reshape(places[0], (1,))])
            return self._of(build.reshape(picked, ()))
        return self._of(_gather(node, places))

    def take_along_dim(self, indices: TensorBase, dim: int) -> Self:
        """As :meth:`gather`, with this tensor and `indices` broadcast in the other axes."""
        axis = axis_of(dim, self.ndim)
        index = self._lift(indices, "indices")
        if index.ndim != self.ndim:
            raise ShapeError(f"indices: expected {self.ndim} axes, not {index.ndim}")
        shape = broadcast(
            tuple(1 if a == axis else d for a, d in enumerate(self.dims)),
            tuple(1 if a == axis else d for a, d in enumerate(index.dims)),
        )
        wide = self.expand(tuple(self.dims[a] if a == axis else d for a, d in enumerate(shape)))
        index = index.expand(tuple(index.shape[a] if a == axis else d for a, d in enumerate(shape)))
        return wide.gather(axis, index)

    def scatter_add(self, dim: int, index: TensorBase, src: TensorBase) -> Self:
        """This tensor with each element of `src` added at its position from `index`.

        ``out[index[i, j], j] += src[i, j]`` for `dim` 0, in row-major order of `index`.
        """
        axis = axis_of(dim, self.ndim)
        places = self._along(axis, index, "scatter_add")
        values = self._lift(src, "src", like=True)
        shape = places[0].shape
        end = "" if values.ndim != self.ndim else _first_lack(values.dims, shape)
        if end is not None:
            raise ShapeError(
                f"src: expected at least the shape {format_shape(shape)} of index, not "
                f"{format_shape(values.dims)}{end}"
            )
        if values.dtype is not self.dtype:
            raise DTypeError(
                f"src: expected {self.dtype.name} like the tensor, not {values.dtype.name}"
            )
        part = build.shrink(values.uop, [(0, d) for d in shape])
        base = self.uop
        if not base.shape:  # one element, at position 0
            operands = (build.reshape(u, (1,)) for u in (base, part, places[0]))
            return self._of(build.reshape(build.scatter_add(*operands), ()))
        return self._of(build.scatter_add(base, part, *places))

    def _along(self, axis: int, index: object, name: str) -> list[UOp]:
        """An index for every axis: `index` for one, each element's own position for the rest."""
        places = self._lift(index, "index")
        if not places.dtype.is_int:
            raise DTypeError(f"index: expected integers, not {places.dtype.name}")
        end: str | None = ""
        if places.ndim == self.ndim:
            others = (*self.dims[:axis], *self.dims[axis + 1 :])
            end = _first_lack(others, (*places.dims[:axis], *places.dims[axis + 1 :]))
        if end is not None:
            raise ShapeError(
                f"index: {name} expects {self.ndim} axes, none but {axis} longer than in "
                f"{format_shape(self.dims)}, not {format_shape(places.dims)}{end}"
            )
        node = places.uop.cast(dt.int64)
        if not self.dims:
            return [build.bound(node, 1)]
        return [
            build.bound(node, self.dims[a]) if a == axis else build.iota_along(node.shape, a)
            for a in range(self.ndim)
        ]

    def index_select(self, dim: int, index: TensorBase) -> Self:
        """The slices along `dim` that a vector of positions names."""
        axis = axis_of(dim, self.ndim)
        places = self._lift(index, "index")
        if places.ndim > 1 or not places.dtype.is_int:
            raise ShapeError(
                f"index: expected a vector of integers, not {places.dtype.name} of shape "
                f"{format_shape(places.dims)}"
            )
        if self.ndim == 0 and not same(prod(places.dims), 1):
            raise ShapeError(
                f"index: expected one position for a scalar, not the shape "
                f"{format_shape(places.dims)}"
            )
        source = self if self.ndim else self.reshape(1)
        checked = self._of(build.bound(places.uop.cast(dt.int64), source.dims[axis]))
        out = source._take([(axis, checked.reshape(-1))])
        return out if self.ndim else out.reshape(())

    def embedding(self, weight: TensorBase) -> Any:
        """The rows of `weight` that this tensor of integers names.

        Raises
        ------
        IndexBoundsError
            At run time, where a number is negative or at least ``weight.shape[0]``.
        """
        table = self._lift(weight, "weight")
        if table.ndim != 2:
            raise ShapeError(f"weight: expected 2 axes, not {table.ndim}")
        if not self.dtype.is_int:
            raise DTypeError(f"embedding: expected integers, not {self.dtype.name}")
        index = self._of(build.bound(self.uop.cast(dt.int64), table.dims[0]))
        return table._take([(0, index)])

    def one_hot(self, num_classes: int) -> Self:
        """A last axis of `num_classes` with 1 at each element's class, else 0, as int64.

        Raises
        ------
        IndexBoundsError
            At run time, where a class lies outside [0, `num_classes`).
        """
        if integer(num_classes, "num_classes") < 1:
            raise ShapeError(
                f"num_classes: expected a number of at least 1, not {num_classes!r}; it cannot be "
                "found from data before they are computed"
            )
        labels = check_labels(self.uop, num_classes, "one_hot")
        shape = (*labels.shape, num_classes)
        wide = build.expand(build.reshape(labels, (*labels.shape, 1)), shape)
        return self._of(wide.eq(build.iota_along(shape, len(shape) - 1)).cast(dt.int64))

    # ---- assignment

    def __setitem__(self, index: Any, value: Operand) -> None:
        """Assign to the elements that integers, slices or a mask of bools name.

        Where the tensor has storage it is written in place: only what is selected, if that is one
        run of its elements and no function is traced, else as a whole.

        Gradients flow through the assignment, into the value and into what was there before, as
        long as the tensor has no storage: in a traced function, what operations made there, such
        as ``krt.zeros(3)``; elsewhere, until the first value without a history is assigned.

        Raises
        ------
        ShapeError
            The value does not broadcast to what is selected, or the index has integer tensors.
        DTypeError
            The value is a number that the type of this tensor does not have.
        GradientError
            The value has a history, or the tensor has one and is no parameter, and the storage of
            the tensor would lose it.
        """
        new = self._new_elements(value)
        if state.local.trace is None:
            _ = self.uop  # an assignment to what this tensor is computed from lets it be computed
        history = self._needs_history(new)
        if _is_array(index) and self._lift(index, "index").dtype.is_bool:
            mask = self._mask(self._lift(index, "index"))
            # How many elements the mask selects is known only when it is computed.
            new = new._into(self.dims, "the whole tensor, which it must where a mask selects")
            chosen = self._select(mask, new, self)
            self._become_value(chosen, new, history)
            return
        items = _spelled_out(index, self.ndim)
        if any(_is_array(i) for i in items):
            raise ShapeError(
                "index: assignment through integer tensors is not there, because equal indices "
                "would leave the result open; use scatter_add, or where with a mask"
            )
        part = None if history else self._run_of(index, items)
        if part is not None:
            bound = self._bound_by(new)
            part._assign(new._into(part.dims, _SELECTED))
            if bound is not None:
                self._sever(bound)
            return
        # Where the selection has gone says which elements it covers: zeros in, ones out.
        places = self._of(build.reshape(build.iota(prod(self.dims)), self.dims))[index]
        covered, filled = self._spread(items, new._into(places.dims, _SELECTED))
        self._become_value(self._select(covered, filled, self), new, history)

    def _needs_history(self, new: Self) -> bool:
        """Whether gradients have to find the way through an assignment of `new`."""
        own = self.requires_grad and self._leaf is None
        if not state.local.grad:
            return False
        trace = state.local.trace
        stored = self.is_realized or self._leaf is not None or self._born is not trace
        if not own and not new.requires_grad:
            return not stored and bool(self._lineage or new._lineage)
        if stored:
            raise GradientError(
                f"{'self' if own else 'value'}: gradients flow into it, but writing to the "
                "storage of a tensor keeps no history; join the parts with kernelrt.stack, cat or "
                "where, or assign in a jitted function that makes the tensor with kernelrt.zeros; "
                "if none is meant to flow, pass value.detach() or use kernelrt.no_grad()"
            )
        return True

    def _become_value(self, value: Self, new: Self, history: bool) -> None:
        if not history:
            bound = self._bound_by(new)
            self._assign(value)
            if bound is not None:
                self._sever(bound)
            return
        self._plain = False
        self._follow(value)

    def _bound_by(self, new: Self) -> Severed | Stale | None:
        """What gradients meet in this tensor once `new` is written to a part of it.

        The rest stays what it was, so what was computed with a history, or by a jitted function
        from tensors that have one, is not forgotten.
        """
        if self._leaf is not None or (self._born is not state.local.trace):
            return None
        own, theirs = self._lineage, new._lineage if state.local.grad else False
        if own is True:
            return Stale()
        if not isinstance(theirs, Severed):
            return own or None
        # Of results of two functions, it is not told apart which elements are whose.
        return theirs if own in (False, theirs) else Severed(theirs.function, None)

    def _mask(self, mask: Self) -> Self:
        """A mask over the first axes of this tensor, or over all of them, with all axes."""
        if mask.ndim > self.ndim or not all(map(same, mask.dims, self.dims)):
            raise ShapeError(
                f"index: a mask of shape {format_shape(mask.dims)} for a tensor of shape "
                f"{format_shape(self.dims)}; it needs the sizes of all its axes, or of the first"
            )
        while mask.ndim < self.ndim:
            mask = mask.unsqueeze(-1)
        return mask

    def _into(self, shape: tuple[Dim, ...], named: str) -> Self:
        """This value for elements of `shape`; as in NumPy, it may have more axes of size 1."""
        new = self
        while new.ndim > len(shape) and same(new.dims[0], 1):
            new = new.squeeze(0)
        pairs = zip(new.dims[::-1], shape[::-1], strict=False)
        if new.ndim > len(shape) or not all(same(d, e) or same(d, 1) for d, e in pairs):
            raise ShapeError(
                f"value: shape {format_shape(self.dims)} does not fit {named}, "
                f"{format_shape(shape)}; only axes of size 1 can expand"
            )
        return new.expand(shape)

    def _new_elements(self, value: Operand) -> Self:
        """`value` in this tensor's type. A number is data: another one is no other program."""
        number = as_scalar(value)
        if number is not None:
            value = element(number, self.dtype, "value")
        check_size(value, self.dtype, "value")
        return self._lift(value, "value", like=True).cast(self.dtype)

    def _run_of(self, index: Any, items: list[Any]) -> Self | None:
        """A tensor of the storage below what `index` selects, where that is one run of it."""
        if state.local.trace is not None or self._leaf is not None:
            return None
        if not self.is_realized:
            # A loop would heap up assignments to the whole otherwise, in a graph of its own.
            if not is_static(self.dims) or not _is_run(items, self.dims):
                return None
            from kernelrt.tensor.realize import materialize

            materialize([self])
        whole = self
        if self._severed is not None:  # the mark would stand between the part and the storage
            assert self._buffer is not None
            whole = self._over(self._buffer, cast("tuple[int, ...]", self._shape))
        part = whole[index]
        below = part.uop
        while below.op is Op.RESHAPE:
            below = below.src[0]
        if below.op is not Op.BUFFER or below.arg is self._memory:
            return None
        return self._over(below.arg, cast("tuple[int, ...]", part.shape))

    @operation
    def _spread(self, items: list[Any], value: Self) -> tuple[Self, Self]:
        """The inverse of slicing: a mask of what `items` selects, and `value` laid out there."""
        value = value.reshape(
            tuple(d for d, i in zip(_result_axes(value, items), items, strict=True)
                  if i is not None)
        )  # fmt: skip
        node = value.uop
        mask = build.full(True, dt.bool_, node.shape)
        axis = 0
        for item in items:
            if item is None:
                continue
            size = self.dims[axis]
            if not isinstance(item, slice):
                start = _position(item, size, axis)
                before, behind, step = start, build.difference(size, build.total((start, 1))), 1
            elif item.step is None or item.step == 1:
                start, count = _limit(item.start, 0, size, axis), node.shape[axis]
                before = start
                behind, step = build.difference(size, build.total((start, count))), 1
            else:
                first, stop, step = item.indices(self._static_size(axis, "a slice with a step"))
                count = len(range(first, stop, step))
                if step < 0:
                    node, mask = build.flip(node, (axis,)), build.flip(mask, (axis,))
                    first, step = first + (count - 1) * step, -step
                node, mask = (_dilate(n, axis, step) for n in (node, mask))
                before, behind = first, build.difference(size, first + count * step)
            widths: list[tuple[Dim, Dim]] = [(0, 0)] * len(node.shape)
            widths[axis] = (before, behind if not isinstance(behind, int) else max(behind, 0))
            node, mask = build.pad(node, widths), build.pad(mask, widths)
            bounds: list[tuple[Dim, Dim]] = [(0, d) for d in node.shape]
            bounds[axis] = (0, size)
            node, mask = build.shrink(node, bounds), build.shrink(mask, bounds)
            axis += 1
        return self._of(mask), self._of(node)


def _is_run(items: list[Any], dims: Sequence[Dim]) -> bool:
    """Whether elements that lie side by side are selected: `items` are checked as they are used."""
    behind_whole = True
    kept = [i for i in items if i is not None]
    for item, size in zip(reversed(kept), reversed(dims), strict=True):
        if not isinstance(item, slice):
            count, step = 1, 1
        elif isinstance(size, int) and _is_plain(item):
            span = range(size)[item]
            count, step = len(span), span.step
        else:
            return False
        if count != 1 and (step != 1 or not behind_whole):
            return False
        behind_whole = behind_whole and count == size
    return True


def _is_plain(item: slice) -> bool:
    """Whether the ends of a slice and its step are numbers that may stand there."""
    ends = (item.start, item.stop, item.step)
    return item.step != 0 and all(e is None or isinstance(e, int | np.integer) for e in ends)


def _dilate(x: UOp, axis: int, step: int) -> UOp:
    """`x` with `step` - 1 zeros behind each element of `axis`."""
    shape = x.shape
    wide = build.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    widths: list[tuple[Dim, Dim]] = [(0, 0)] * len(wide.shape)
    widths[axis + 1] = (0, step - 1)
    padded = build.pad(wide, widths)
    joined = build.volume((shape[axis], step))
    return build.reshape(padded, (*shape[:axis], joined, *shape[axis + 1 :]))


def _result_axes(value: TensorBase, items: list[Any]) -> list[Dim]:
    """The size that each item has in `value`: integers, which drop their axis, count 1."""
    sizes = iter(value.dims)
    return [1 if _is_number(i) else next(sizes) for i in items]


def _is_number(item: object) -> bool:
    return not (item is None or isinstance(item, slice))


def _is_array(item: object) -> bool:
    return isinstance(item, TensorBase | np.ndarray | list)


def _spelled_out(index: Any, rank: int) -> list[Any]:
    """The items of an index, one an axis (None adds one), with Ellipsis as slices."""
    items = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if used > rank:
        raise ShapeError(f"index: {used} indices for a tensor with {rank} axes")
    if len(dots) > 1:
        raise ShapeError("index: only one Ellipsis may stand in an index")
    at = dots[0] if dots else len(items)
    fill: list[Any] = [slice(None)] * (rank - used)
    return items[:at] + fill + items[at + len(dots) :]


def _position(item: object, size: Dim, axis: int) -> Dim:
    """A checked position, counted from the front."""
    item = plain(item)
    if isinstance(item, UOp):
        room = build.difference(size, item)
        if dim_span(item)[0] < 0 or dim_span(room)[0] < 1:
            raise IndexBoundsError(
                f"index: {format_shape((item,))} can leave axis {axis} with size "
                f"{format_shape((size,))}; narrow the bounds of its Variables"
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
            f"index: {number} is out of range for axis {axis} with size {format_shape((size,))}"
        )
    return number if number >= 0 else build.total((size, number))


def _limit(item: object, default: Dim, size: Dim, axis: int) -> Dim:
    """One end of a slice: numbers are clipped to the axis as in Python."""
    item = plain(item)
    if item is None:
        return default
    if isinstance(item, UOp):
        room = build.difference(size, item)
        if dim_span(item)[0] < 0 or dim_span(room)[0] < 0:
            raise IndexBoundsError(
                f"index: the slice end {format_shape((item,))} can leave axis {axis} with size "
                f"{format_shape((size,))}; narrow the bounds of its Variables"
            )
        return item
    if isinstance(item, bool) or not isinstance(item, int | np.integer):
        raise DTypeError(f"index: the ends of a slice are integers, not {type(item).__name__}")
    number = int(item)
    if isinstance(size, int):
        return max(0, number + size) if number < 0 else min(number, size)
    if abs(number) > max(0, dim_span(size)[0]):
        raise ShapeError(_open_size(number, axis, size, "slice"))
    return number if number >= 0 else build.total((size, number))


def _first_lack(have: Sequence[Dim], need: Sequence[Dim]) -> str | None:
    ends = (lacking(*pair) for pair in zip(have, need, strict=True))
    return next((end for end in ends if end is not None), None)


def _open_size(number: int, axis: int, size: Dim, use: str) -> str:
    """What is wrong where an axis may, or may not, be long enough."""
    return (
        f"index: whether {number} lies within axis {axis} with size {format_shape((size,))} is "
        f"known only at run time; raise the Variable's lower bound or {use} by a Variable"
    )


def _checked(index: UOp, size: Dim) -> UOp:
    """`index` in int64, negative numbers counted from the end, checked at run time."""
    wide = index.cast(dt.int64)
    # An unsigned number too large for int64 becomes a negative one, which no axis has.
    from_end = not index.dtype.is_unsigned and wide.vmin < 0
    if from_end:
        zero = build.zeros_like(wide)
        counted = wide.alu(Op.ADD, build.full(size, dt.int64, wide.shape))
        wide = build.where(wide.alu(Op.LT, zero), counted, wide)
    return build.bound(wide, size, from_end=from_end)


def _gather(x: UOp, indices: list[UOp]) -> UOp:
    if build.has_zero(x.shape) and not build.has_zero(indices[0].shape):
        raise IndexBoundsError(
            f"index: a tensor of shape {format_shape(x.shape)} has no elements to index"
        )
    return UOp(Op.GATHER, x.dtype, (x, *indices))


def check_labels(labels: UOp, classes: Dim, name: str) -> UOp:
    """Class numbers in int64, checked at run time to lie in [0, classes)."""
    if not labels.dtype.is_int:
        raise DTypeError(
            f"{name}: labels are integers, not {labels.dtype.name}; cast class numbers, as in "
            "y.long(), after replacing NaN"
        )
    return build.bound(labels.cast(dt.int64), classes)

