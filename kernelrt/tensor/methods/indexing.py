"""Indexing by numbers, slices and tensors; gather and scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import AxisError, DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import broadcast, dim_span, format_shape, prod, same
from kernelrt.native.fast_paths import quicken_rows
from kernelrt.tensor import state, views
from kernelrt.tensor.eager import shared_memory
from kernelrt.tensor.nodes import build, positions
from kernelrt.tensor.nodes.arguments import axis_of, index_of, integer
from kernelrt.tensor.nodes.positions import (
    check_labels,
    checked,
    elements,
    first_lack,
    is_array,
    known,
    limit,
    mask_rank,
    position,
    spelled_out,
    window,
)
from kernelrt.tensor.nodes.promotion import as_scalar, element
from kernelrt.tensor.operation import operations
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.free_functions import creation
    from kernelrt.tensor.methods import masked
    from kernelrt.tensor.methods.reduction import ReductionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    masked = Module("kernelrt.tensor.methods.masked")
    creation = Module("kernelrt.tensor.free_functions.creation")

__all__ = ["IndexingMethods"]


@operations()
class IndexingMethods(_Below):
    """Indexing, gather and scatter."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Self:
        """Select elements by integers, slices, None, Ellipsis, integer tensors and bool masks.

        A mask stands for as many axes as it has, and selects the positions where it is True, as
        ``mask.nonzero(as_tuple=True)`` lists them. Their number depends on data: outside of traced
        functions the mask is computed immediately.

        Raises
        ------
        IndexBoundsError
            A number is outside of its axis. Index tensors are checked at run time, and only where
            the element that they select is computed.
        AxisError
            There are more indices than axes, or the shape of a mask differs from that of its axes.
            AxisError is an IndexError and a ShapeError.
        DTypeError
            An index is of another type, such as a float.
        JitError
            An index is a mask that depends on tensor data, and a function is traced. In a trace,
            masks may be NumPy arrays, lists, or computed from numbers alone, as in ``krt.arange(5)
            < 3``. With other masks, ``x[mask] += y`` and ``x[mask] = 2 * y[mask]`` work, as they do
            not need the number of elements.

        Examples
        --------
        >>> x = krt.tensor([[1, 2, 3], [4, 5, 6]])
        >>> x[0, -1].item(), x[:, ::2].tolist()
        (3, [[1, 3], [4, 6]])
        >>> x[krt.tensor([1, 0]), 0].tolist(), x[x > 4].tolist()
        ([4, 1], [5, 6])
        """
        held = None if isinstance(index, tuple) else self._held_elements(index)
        if held is not None:
            return held
        items = spelled_out(index, self.ndim)
        _, below = views.read(self)
        out, axis = self, 0
        nodes: list[UOp] = []
        tensors: list[tuple[int, IndexingMethods]] = []
        for number, item in enumerate(items):
            if item is None:
                out = out.unsqueeze(axis)
                axis += 1
            elif isinstance(item, slice):
                if not item.start is item.stop is item.step is None:
                    out = out._slice(axis, item)
                axis += 1
            elif mask_rank(item) is not None:
                if not mask_rank(item):
                    out = out.unsqueeze(axis)
                found = out._held_positions(axis, item)
                if found is None:
                    if isinstance(index, tuple):
                        raise masked.unknown_count()
                    return cast("Self", masked.MaskedPart(self, self._lift(item, "index")))
                tensors += list(enumerate(found, axis))
                axis += len(found)
            elif is_array(item):
                lifted = self._index_tensor(item)
                if lifted.ndim:
                    tensors.append((axis, lifted))
                    axis += 1
                else:  # a scalar index drops its axis, as a number does
                    out = out._take([(axis, lifted)])
                    # A later assignment to the index tensor must not move the view.
                    nodes.append(lifted.uop)
                    items[number] = self._of(nodes[-1])
            else:
                out = out._pick(axis, item)
        if tensors:
            return shared_memory.computed(self, out._take(tensors))
        node = out._live()
        shown = views.view(self, node, below, views.INDEX, tuple(items), index, tuple(nodes))
        if nodes:
            assert shown._link is not None
            fixed = tuple((i, i._uop) for i in items if isinstance(i, IndexingMethods))
            shown._link.fixed = (*(shown._link.fixed or ()), *fixed)
        return shown

    def _held_elements(self, mask: Any) -> Self | None:
        """Copy the elements that a mask selects from memory.

        Return None if a graph is needed: gradients may flow, nothing is stored, a function is
        traced, or the mask does not fit.
        """
        if (
            not mask_rank(mask) or state.local.trace is not None
            or (state.local.grad and self._lineage is not False) or not views.has_memory(self)
        ):  # fmt: skip
            return None
        with state.lock:
            found = positions.selection(self, mask)
            values = None if found is None else views.values_of(self)
            if found is None or values is None:
                return None

            return creation.from_data(type(self), values[found.elements])

    def _pick(self, axis: int, item: object) -> Self:
        """Select element `item` of `axis` and drop the axis."""
        size = self.dims[axis]
        start = position(item, size, axis)
        node = self._live()
        bounds: list[tuple[Dim, Dim]] = [(0, d) for d in node.shape]
        bounds[axis] = (start, build.total((start, 1)))
        picked = window(node, bounds)
        return self._of(
            build.reshape(picked, (*node.shape[:axis], *node.shape[axis + 1 :]))
        )

    def _slice(self, axis: int, item: slice) -> Self:
        size = self.dims[axis]
        step = 1 if item.step is None else index_of(item.step, "index", "the step of a slice")
        if not isinstance(step, int | np.integer) or step == 0:
            raise ShapeError(f"index: expected a nonzero integer as slice step, not {item.step!r}")
        step, back = abs(int(step)), bool(step < 0)
        start = limit(item.start, 0, size, axis, back=back)
        stop = limit(item.stop, size, size, axis, back=back)
        whole = self._backwards(axis) if back else self
        if step != 1 and isinstance(start, int) and isinstance(stop, int) and isinstance(size, int):
            return whole._strided(axis, start, stop, step)
        length = build.difference(stop, start)
        if isinstance(length, int) and length < 0:
            stop = start
        elif dim_span(length)[0] < 0:
            last = build.difference(size, 1)
            ends = [build.difference(last, end) if back else end for end in (start, stop)]
            raise ShapeError(
                f"index: the slice {format_shape(tuple(ends))} of axis {axis} could have a "
                "negative length for some values of its Variables; narrow the bounds of the "
                "Variables"
            )
        node = whole._live()
        bounds: list[tuple[Dim, Dim]] = [(0, d) for d in node.shape]
        bounds[axis] = (start, stop)
        return self._of(window(node, bounds))._every(axis, step)

    def _backwards(self, axis: int) -> Self:
        """Reverse an axis of this tensor itself; :meth:`flip` may read a copy of shared memory."""
        return self._of(build.flip(self._live(), (axis,)))

    def _every(self, axis: int, step: int) -> Self:
        """Select the first element of an axis and each `step`-th one after it."""
        if step == 1:
            return self
        node = self._live()
        taps = UOp(Op.IM2COL, node.dtype, (node,), ((axis, 1, step, 1),))
        return self._of(build.reshape(taps, taps.shape[:-1]))

    def _strided(self, axis: int, start: int, stop: int, step: int) -> Self:
        count = len(range(start, stop, step))
        if count == 0:
            return self.narrow(axis, 0, 0)
        size = self._static_size(axis, "a slice with a step")
        # In rows of length `step`, the selected elements are the first column.
        length = min(count * step, size - start)
        node = self._live()  # not a copy of shared memory
        bounds: list[tuple[Dim, Dim]] = [(0, d) for d in node.shape]
        bounds[axis] = (start, start + length)
        out = self._of(window(node, bounds))
        short = count * step - length
        out = out._pad([(0, short if a == axis else 0) for a in range(out.ndim)])
        shape = (*out.dims[:axis], count, step, *out.dims[axis + 1 :])
        return out.reshape(shape).narrow(axis + 1, 0, 1).squeeze(axis + 1)

    def _index_tensor(self, item: Any) -> IndexingMethods:
        if isinstance(item, tuple | range):
            item = list(item)
        tensor = self._lift(item, "index")
        if isinstance(item, list) and build.has_zero(tensor.dims):
            tensor = tensor.cast(dt.int64)  # an empty list has no dtype of its own
        if not tensor.dtype.is_int:
            raise DTypeError(
                f"index: expected integers, not {tensor.dtype.name}; cast them, as in index.long()"
            )
        return tensor

    def _held_positions(self, axis: int, item: Any) -> list[IndexingMethods] | None:
        """Return the positions where a mask over the axes from `axis` on is True.

        There is one vector of positions for each axis of the mask. Return None if the trace does
        not know the mask.
        """
        mask = self._lift(list(item) if isinstance(item, tuple) else item, "index")
        sizes = self.dims[axis : axis + mask.ndim]
        if not build.same_shape(mask.dims, sizes):
            raise AxisError(
                f"index: a mask of shape {format_shape(mask.dims)} indexes axes of the sizes "
                f"{format_shape(sizes)}; pass a mask of these sizes"
            )
        if isinstance(item, bool | np.bool_):
            return [self._lift(np.arange(int(item)), "index")]
        held = known(mask)
        if held is None:
            return None
        held = np.atleast_1d(held)
        return [self._lift(found.astype(np.int64), "index") for found in held.nonzero()]

    def _take(self, tensors: list[tuple[int, IndexingMethods]]) -> Self:
        """Index by tensors: their broadcast shape replaces the indexed axes."""
        shape = broadcast(*(t.dims for _, t in tensors))
        axes = [a for a, _ in tensors]
        adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
        node = self._live()
        rest = [a for a in range(self.ndim) if a not in axes]
        front = [a for a in rest if adjacent and a < axes[0]]
        back = [a for a in rest if a not in front]
        whole = (*(node.shape[a] for a in front), *shape, *(node.shape[a] for a in back))
        indices: list[UOp] = []
        for axis in range(self.ndim):
            if axis in axes:
                index = checked(tensors[axes.index(axis)][1].uop, node.shape[axis], from_end=True)
                index = build.broadcast_to(index, shape)
                index = build.reshape(index, (*(1,) * len(front), *shape, *(1,) * len(back)))
            else:
                at = front.index(axis) if axis in front else (
                    len(front) + len(shape) + back.index(axis)
                )  # fmt: skip
                line = tuple(
                    node.shape[axis] if i == at else 1 for i in range(len(whole))
                )
                index = build.reshape(build.iota(node.shape[axis]), line)
            indices.append(build.expand(index, whole))
        return self._of(_gather(node, indices))

    # ---- by one axis

    def gather(self, dim: int, index: TensorBase) -> Self:
        """Select elements along `dim` at the positions given by `index`, which has the same rank.

        ``out[i, j] = self[index[i, j], j]`` for `dim` 0. The other axes of `index` may be shorter
        than this tensor's. A scalar is a vector of one element. An `index` without elements may
        have any dtype and rank.

        Parameters
        ----------
        dim : int
            Axis to select along.
        index : Tensor of integers
            Positions along `dim`.

        Returns
        -------
        Tensor
            Shape of `index`, dtype of this tensor.

        Raises
        ------
        ShapeError
            `index` has another number of axes, or is longer than this tensor in an axis other than
            `dim`.
        IndexBoundsError
            At run time, if an index is outside of [0, size of `dim`).

        Examples
        --------
        >>> x = krt.tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.gather(1, krt.tensor([[0, 0], [2, 1]])).tolist()
        [[1, 1], [6, 5]]
        """
        axis, indices = axis_of(dim, self.ndim), self._lift(index, "index")
        if build.has_zero(indices.dims):
            return self.reshape(-1)[:0].reshape(indices.dims)
        return self._gathered(axis, indices, "gather")

    def _gathered(
        self, axis: int, index: TensorBase, name: str, *, from_end: bool = False
    ) -> Self:
        if not (self.ndim and index.ndim):
            source, indices = self._as_vector(), cast("Self", index)._as_vector()
            if source.ndim == indices.ndim == 1:
                found = source._gathered(0, indices, name, from_end=from_end)
                return found.reshape(index.dims)
        return self._of(_gather(self.uop, self._along(axis, index, name, from_end=from_end)))

    def _as_vector(self) -> Self:
        """Return a scalar as a vector of one element, and any other tensor itself."""
        return self if self.ndim else self.reshape(1)

    def take_along_dim(self, indices: TensorBase, dim: int | None = None) -> Self:
        """Gather elements along `dim`, with this tensor and `indices` broadcast in the other axes.

        Negative indices count from the end. Without `dim` both tensors are flattened in row-major
        order. See :meth:`gather`.

        Parameters
        ----------
        indices : Tensor of integers
            Positions along `dim`, with as many axes as this tensor.
        dim : int, optional
            Axis to select along.

        Returns
        -------
        Tensor
            Dtype of this tensor. Its size along `dim` is that of `indices`; the other sizes
            broadcast. A vector without `dim`.

        Raises
        ------
        ShapeError
            `indices` has another number of axes.
        IndexBoundsError
            At run time, if an index is outside of the axis.

        Examples
        --------
        >>> x = krt.tensor([[3, 1, 2], [6, 4, 5]])
        >>> x.take_along_dim(x.argsort(1), 1).tolist()
        [[1, 2, 3], [4, 5, 6]]
        """
        if dim is None:
            flat = self._lift(indices, "indices").reshape(-1)
            return self.reshape(-1).take_along_dim(flat, 0)
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
        return wide._gathered(axis, index, "take_along_dim", from_end=True)

    def scatter_add(self, dim: int, index: TensorBase, src: TensorBase) -> Self:
        """Return this tensor with each element of `src` added at its position in `index`.

        ``out[index[i, j], j] += src[i, j]`` for `dim` 0, in row-major order of `index`. A scalar is
        a vector of one element.

        Parameters
        ----------
        dim : int
            Axis along which `index` gives positions.
        index : Tensor of integers
            Positions, with as many axes as this tensor.
        src : Tensor
            Numbers to add, of this tensor's dtype, at least as long as `index` in each axis.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Raises
        ------
        ShapeError
            The shapes of `index` and `src` do not match.
        DTypeError
            `src` has another dtype, or `index` does not hold integers.
        IndexBoundsError
            At run time, if an index is outside of [0, size of `dim`).

        Examples
        --------
        >>> index, src = krt.tensor([0, 2, 0]), krt.tensor([1.0, 2.0, 3.0])
        >>> krt.zeros(3).scatter_add(0, index, src).tolist()
        [4.0, 0.0, 2.0]
        """
        values = self._lift(src, "src", like=True)
        return self._scattered(
            dim, index, values, "scatter_add",
            lambda base, new, places: build.scatter_add(base, new, *places),
        )  # fmt: skip

    def _scattered(
        self, dim: int, index: TensorBase, src: object, name: str,
        rule: Callable[[UOp, UOp, Sequence[UOp]], UOp],
    ) -> Self:  # fmt: skip
        """Return this tensor with ``rule(old, new, positions)`` where `index` points."""
        axis, given = axis_of(dim, self.ndim), self._lift(index, "index")
        if build.has_zero(given.dims):
            return self._with_none_of(src)
        if max(self.ndim, given.ndim) <= 1:  # a scalar is a vector of one element
            base, given = self._as_vector(), given._as_vector()
        else:
            base = self
        indices = base._along(axis, given, name)
        shape = indices[0].shape
        number = as_scalar(src)
        if number is not None:
            values = build.full(element(number, self.dtype, "value"), self.dtype, shape)
        else:
            values = self._source(src, shape)
        return self._of(build.reshape(rule(base.uop, values, indices), self.dims))

    def _with_none_of(self, src: object) -> Self:
        """Return this tensor for an index without elements; the gradient of `src` is 0."""
        values = self._lift(src, "src", like=True).uop
        none = build.shrink(build.reshape(values, (prod(values.shape),)), [(0, 0)])
        return self._of(build.depending_on(self.uop, none.cast(self.dtype)))

    def _source(self, src: object, shape: tuple[Dim, ...]) -> UOp:
        """Return the part of `src` for which an index of `shape` has positions."""
        values = self._lift(src, "src", like=True)
        values = values._as_vector() if len(shape) == 1 else values
        end = "" if values.ndim != len(shape) else first_lack(values.dims, shape)
        if end is not None:
            raise ShapeError(
                f"src: expected axes at least as long as in {format_shape(shape)}, the shape of "
                f"index, not shape {format_shape(values.dims)}{end}"
            )
        return build.shrink(self._of_own_type(values, "src").uop, [(0, d) for d in shape])

    def _of_own_type(self, values: Self, name: str) -> Self:
        if values.dtype is not self.dtype:
            raise DTypeError(
                f"{name}: expected {self.dtype.name}, the tensor's dtype, not {values.dtype.name}; "
                f"cast it, as in {name}.cast({self.dtype.name!r})"
            )
        return values

    def _along(
        self, axis: int, index: object, name: str, *, from_end: bool = False
    ) -> list[UOp]:
        """Return an index for each axis: `index` for `axis`, and 0, 1, 2, ... for the others."""
        indices = self._lift(index, "index")
        if not indices.dtype.is_int:
            raise DTypeError(
                f"index: expected integers, not {indices.dtype.name}; cast them, as in index.long()"
            )
        if indices.ndim != self.ndim:
            raise ShapeError(
                f"index: {name} expects {self.ndim} axes, as in the tensor, not shape "
                f"{format_shape(indices.dims)}"
            )
        others = (*self.dims[:axis], *self.dims[axis + 1 :])
        end = first_lack(others, (*indices.dims[:axis], *indices.dims[axis + 1 :]))
        if end is not None:
            raise ShapeError(
                f"index: {name} expects every axis except {axis} to be at most as long as in the "
                f"tensor's shape {format_shape(self.dims)}, not shape "
                f"{format_shape(indices.dims)}{end}"
            )
        node = checked(indices.uop, self.dims[axis], from_end=from_end)
        return [
            node if a == axis else build.iota_along(node.shape, a) for a in range(self.ndim)
        ]

    def index_select(self, dim: int, index: TensorBase) -> Self:
        """Select slices along `dim` at a vector of positions.

        Parameters
        ----------
        dim : int
            Axis to select from.
        index : Tensor of integers
            Vector of positions.

        Returns
        -------
        Tensor
            Same dtype; the size of axis `dim` is the length of `index`.

        Raises
        ------
        ShapeError
            `index` is not a vector of integers.
        IndexBoundsError
            At run time, if an index is outside of [0, size of `dim`).

        Examples
        --------
        >>> x = krt.tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.index_select(1, krt.tensor([2, 0])).tolist()
        [[3, 1], [6, 4]]
        """
        axis = axis_of(dim, self.ndim)
        indices = self._lift(index, "index")
        if indices.ndim > 1 or not indices.dtype.is_int:
            raise ShapeError(
                f"index: expected a vector of integers, not {indices.dtype.name} of shape "
                f"{format_shape(indices.dims)}"
            )
        if self.ndim == 0 and not same(prod(indices.dims), 1):
            raise ShapeError(
                f"index: expected one position for a scalar, not the shape "
                f"{format_shape(indices.dims)}"
            )
        source = self if self.ndim else self.reshape(1)
        index = self._of(checked(indices.uop, source.dims[axis]))
        out = shared_memory.computed(source, source._take([(axis, index.reshape(-1))]))
        return out if self.ndim else out.reshape(())

    def embedding(self, weight: TensorBase) -> Any:
        """Select the rows of `weight` given by this tensor of integers.

        Parameters
        ----------
        weight : Tensor
            Matrix of shape (rows, width).

        Returns
        -------
        Tensor
            Shape (..., width) for this tensor's shape (...), dtype of `weight`.

        Raises
        ------
        ShapeError
            `weight` does not have 2 axes.
        DTypeError
            This tensor does not hold integers.
        IndexBoundsError
            At run time, if a number is negative or at least ``weight.shape[0]``.

        Examples
        --------
        >>> weight = krt.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> krt.tensor([2, 0]).embedding(weight).tolist()
        [[5.0, 6.0], [1.0, 2.0]]
        """
        table = self._lift(weight, "weight")
        if table.ndim != 2:
            raise ShapeError(f"weight: expected 2 axes, not {table.ndim}")
        if not self.dtype.is_int:
            raise DTypeError(
                f"embedding: expected integers, not {self.dtype.name}; cast them, as in x.long()"
            )
        index = self._of(checked(self.uop, table.dims[0]))
        return shared_memory.computed(table, table._take([(0, index)]))

    def one_hot(self, num_classes: int = -1) -> Self:
        """Return each class as `num_classes` numbers along a new last axis: 1 at the class, else 0.

        Parameters
        ----------
        num_classes : int, default -1
            Number of classes. -1 stands for the greatest element plus 1, which is then computed.
            Required in a traced function.

        Returns
        -------
        Tensor of int64
            Shape (..., num_classes) for this tensor's shape (...).

        Raises
        ------
        DTypeError
            This tensor does not hold integers.
        IndexBoundsError
            At run time, if a class is outside of [0, `num_classes`).

        Examples
        --------
        >>> krt.tensor([1, 0, 2]).one_hot().tolist()
        [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
        """
        num_classes = integer(num_classes, "num_classes")
        if num_classes == -1:
            num_classes = self._count_of_classes() if self.dtype.is_int else 1
        if num_classes < 1:
            raise ShapeError(
                f"num_classes: expected at least 1, or -1 to count the classes, not {num_classes!r}"
            )
        labels = check_labels(self.uop, num_classes, "one_hot")
        shape = (*labels.shape, num_classes)
        wide = build.expand(build.reshape(labels, (*labels.shape, 1)), shape)
        return self._of(wide.eq(build.iota_along(shape, len(shape) - 1)).cast(dt.int64))

    def _count_of_classes(self) -> int:
        """Compute the greatest element plus 1; at least 1."""
        if build.has_zero(self.dims):
            raise ShapeError(
                "num_classes: expected a number of at least 1 for an empty tensor, not -1"
            )
        return max(1, int(elements(self, "one_hot", "pass num_classes=").max()) + 1)


def _gather(x: UOp, indices: list[UOp]) -> UOp:
    build.check_room(x, indices[0])
    return UOp(Op.GATHER, x.dtype, (x, *indices))


quicken_rows(IndexingMethods.__getitem__)
