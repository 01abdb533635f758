"""Movement operations: shapes, axes, slices and padding."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Self, cast

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import (
    broadcasts_to,
    dim_max,
    dim_span,
    format_shape,
    format_size,
    is_static,
    missing_size,
    prod,
    same,
)
from kernelrt.tensor import views
from kernelrt.tensor.autograd import tags
from kernelrt.tensor.nodes import build, pad_modes
from kernelrt.tensor.nodes.arguments import (
    axes_of,
    axis_of,
    check_sizes,
    index_of,
    integer,
    own_axis,
    real,
    shape_of,
    size_of,
    whole,
)
from kernelrt.tensor.nodes.promotion import element
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.activation import ActivationMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["MovementMethods"]


@operations()
class MovementMethods(_Below):
    """Shapes, axes and padding. Nothing is copied until a kernel needs another layout.

    Methods that return a view share the elements: an assignment to the view changes this tensor.
    """

    __slots__ = ()

    # ---- shapes

    def reshape(self, *shape: Any) -> Self:
        """Return the elements in another shape, in row-major order.

        Parameters
        ----------
        *shape : int, or one sequence of int
            Sizes of the axes. One size may be -1: it follows from the number of elements.

        Returns
        -------
        Tensor
            View of this tensor; or a copy, as in PyTorch, if this tensor is itself a view whose
            elements lie in another order, such as a transpose.

        Raises
        ------
        ShapeError
            The numbers of elements differ, or more than one size is -1.

        Examples
        --------
        >>> krt.arange(6).reshape(2, -1).tolist()
        [[0, 1, 2], [3, 4, 5]]
        """
        wanted = self._infer_shape(shape_of(shape))
        if not views.is_viewable(self, wanted):
            return self._of(build.reshape(self.uop, wanted))
        node, below = views.read(self)
        return views.view(self, build.reshape(node, wanted), below, views.RESHAPE, wanted)

    def _infer_shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        unknown = [i for i, d in enumerate(shape) if isinstance(d, int) and d == -1]
        if len(unknown) > 1:
            raise ShapeError(
                f"shape: {format_shape(shape)} has more than one -1; give all sizes but one"
            )
        if unknown:
            known = [d for i, d in enumerate(shape) if i not in unknown]
            size = missing_size(self.dims, known)
            shape = tuple(size if i in unknown and size is not None else d
                          for i, d in enumerate(shape))  # fmt: skip
        if any(isinstance(d, int) and d < 0 for d in shape) or not same(
            prod(self.dims), prod(shape)
        ):
            raise ShapeError(
                f"shape: {format_shape(self.dims)} has {format_size(prod(self.dims))} elements "
                f"and cannot become {format_shape(shape)}"
                + ("" if is_static(self.dims) else " for all values of its Variables")
                + "; give sizes with the same product, or -1 for one size"
            )
        check_sizes(shape, "shape")
        return shape

    def view_as(self, other: TensorBase) -> Self:
        """Reshape this tensor to the shape of `other`; see :meth:`reshape`.

        Parameters
        ----------
        other : Tensor
            Tensor with as many elements.

        Returns
        -------
        Tensor
            View of this tensor, or a copy; see :meth:`reshape`.

        Examples
        --------
        >>> krt.arange(6).view_as(krt.zeros(3, 2)).tolist()
        [[0, 1], [2, 3], [4, 5]]
        """
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Merge the axes from `start_dim` to `end_dim`, both included, into one.

        Parameters
        ----------
        start_dim, end_dim : int
            First and last axis to merge; by default all axes.

        Returns
        -------
        Tensor
            View of this tensor, or a copy; see :meth:`reshape`. A tensor without axes becomes a
            vector of one element.

        Raises
        ------
        ShapeError
            `start_dim` comes after `end_dim`.

        Examples
        --------
        >>> krt.zeros(2, 3, 4).flatten(1).shape
        (2, 12)
        """
        first = axis_of(start_dim, self.ndim, "start_dim")
        last = axis_of(end_dim, self.ndim, "end_dim")
        if self.ndim == 0:
            return self.reshape(1)
        if first > last:
            raise ShapeError(
                f"start_dim, end_dim: expected start_dim <= end_dim, not {start_dim} and {end_dim}"
            )
        joined = prod(self.dims[first : last + 1])
        return self.reshape(*self.dims[:first], joined, *self.dims[last + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[Dim]) -> Self:
        """Split axis `dim` into axes of the given sizes.

        Parameters
        ----------
        dim : int
            Axis to split.
        sizes : sequence of int
            Sizes whose product is the size of the axis. One may be -1: it follows from the others.

        Returns
        -------
        Tensor
            View of this tensor.

        Raises
        ------
        ShapeError
            The product of `sizes` is not the size of the axis.

        Examples
        --------
        >>> krt.zeros(2, 12).unflatten(1, (3, -1)).shape
        (2, 3, 4)
        """
        axis = own_axis(dim, self.ndim)
        shape = list(shape_of((sizes,), "sizes"))
        unknown = [i for i, d in enumerate(shape) if isinstance(d, int) and d == -1]
        if len(unknown) == 1:
            (i,) = unknown
            size = missing_size([self.dims[axis]], (d for k, d in enumerate(shape) if k != i))
            shape[i] = -1 if size is None else size
        negative = any(isinstance(d, int) and d < 0 for d in shape)
        if negative or not same(prod(shape), self.dims[axis]):
            raise ShapeError(
                f"sizes: axis {axis} has {format_size(self.dims[axis])} elements and cannot become "
                f"{format_shape(shape_of((sizes,)))}; one size may be -1"
            )
        return self.reshape(*self.dims[:axis], *shape, *self.dims[axis + 1 :])

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
        """Remove all axes of size 1, or those of `dim` that have size 1.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to remove if their size is 1; all by default.

        Returns
        -------
        Tensor
            View of this tensor.

        Raises
        ------
        VariableError
            Whether an axis has size 1 is unknown while the function is traced.

        Examples
        --------
        >>> x = krt.zeros(1, 2, 1)
        >>> x.squeeze().shape, x.squeeze(0).shape, x.squeeze(1).shape
        ((2,), (2, 1), (1, 2, 1))
        """
        axes = axes_of(dim, self.ndim)
        gone = {i for i in axes if self.shape[i] == 1}
        return self.reshape(tuple(d for i, d in enumerate(self.dims) if i not in gone))

    def unsqueeze(self, dim: int) -> Self:
        """Insert an axis of size 1 at `dim`.

        Parameters
        ----------
        dim : int
            Position of the new axis in the result; -1 puts it last.

        Returns
        -------
        Tensor
            View of this tensor.

        Examples
        --------
        >>> x = krt.zeros(2, 3)
        >>> x.unsqueeze(0).shape, x.unsqueeze(-1).shape
        ((1, 2, 3), (2, 3, 1))
        """
        axis = axis_of(dim, self.ndim + 1)
        return self.reshape(*self.dims[:axis], 1, *self.dims[axis:])

    def expand(self, *shape: Any) -> Self:
        """Repeat axes of size 1 to `shape`; new axes come first.

        Parameters
        ----------
        *shape : int, or one sequence of int
            Sizes of the result. -1 keeps the size of an axis.

        Returns
        -------
        Tensor
            View of this tensor. Repeated elements share memory, so the view cannot be assigned to.

        Raises
        ------
        ShapeError
            `shape` has too few axes, or another size where this tensor's axis is longer than 1.

        Examples
        --------
        >>> krt.tensor([[1], [2]]).expand(-1, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        wanted = shape_of(shape)
        missing = len(wanted) - self.ndim
        if missing < 0:
            raise ShapeError(
                f"shape: {format_shape(wanted)} has fewer axes than the tensor of shape "
                f"{format_shape(self.dims)}; give at least {self.ndim} sizes"
            )
        old = (1,) * missing + self.dims
        new = tuple(
            o if isinstance(w, int) and w == -1 and i >= missing else w
            for i, (o, w) in enumerate(zip(old, wanted, strict=True))
        )
        if not broadcasts_to(old, new) or any(isinstance(n, int) and n < 0 for n in new):
            raise ShapeError(
                f"shape: {format_shape(self.dims)} does not expand to {format_shape(wanted)}; "
                "only axes of size 1 can grow"
            )
        check_sizes(new, "shape")
        node, below = views.read(self)
        return views.view(self, build.broadcast_to(node, new), below, views.EXPAND, new)

    def expand_as(self, other: TensorBase) -> Self:
        """Expand this tensor to the shape of `other`; see :meth:`expand`.

        Parameters
        ----------
        other : Tensor
            Tensor whose shape this one broadcasts to.

        Returns
        -------
        Tensor
            View of this tensor.

        Examples
        --------
        >>> krt.tensor([1, 2]).expand_as(krt.zeros(2, 2)).tolist()
        [[1, 2], [1, 2]]
        """
        return self.expand(other.shape)

    def broadcast_to(self, *shape: Any) -> Self:
        """Expand this tensor; the same as :meth:`expand`.

        Parameters
        ----------
        *shape : int, or one sequence of int
            Sizes of the result. -1 keeps the size of an axis.

        Returns
        -------
        Tensor
            View of this tensor.

        Examples
        --------
        >>> krt.tensor([1, 2]).broadcast_to(2, 2).tolist()
        [[1, 2], [1, 2]]
        """
        return self.expand(*shape)

    def repeat(self, *repeats: Any) -> Self:
        """Repeat this tensor along each axis; new axes come first.

        Parameters
        ----------
        *repeats : int, or one sequence of int
            Number of copies along each axis of the result, at least one number for each axis.

        Returns
        -------
        Tensor
            New tensor of this dtype.

        Raises
        ------
        ShapeError
            There are fewer numbers than axes, or a number is negative.

        Examples
        --------
        >>> krt.tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        counts = shape_of(repeats, "repeats")
        missing = len(counts) - self.ndim
        if missing < 0:
            raise ShapeError(
                f"repeats: expected at least {self.ndim} numbers, one per axis, not {len(counts)}"
            )
        check_sizes(counts, "repeats")
        shape = (1,) * missing + self.dims
        # (n, m) becomes (1, n, 1, m), grows to (r, n, s, m) and is read as (r * n, s * m).
        pairs = [x for d in shape for x in (1, d)]
        grown = [x for c, d in zip(counts, shape, strict=True) for x in (c, d)]
        node = build.expand(build.reshape(self.uop, tuple(pairs)), tuple(grown))
        whole = tuple(prod(p) for p in zip(counts, shape, strict=True))
        return self._of(build.reshape(node, whole))

    def tile(self, *dims: Any) -> Self:
        """Repeat this tensor like :meth:`repeat`; fewer numbers than axes apply to the last axes.

        Parameters
        ----------
        *dims : int, or one sequence of int
            Number of copies along each axis.

        Returns
        -------
        Tensor
            New tensor of this dtype.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).tile(2).tolist()
        [[1, 2, 1, 2], [3, 4, 3, 4]]
        """
        counts = shape_of(dims, "dims")
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def _spread_out(self, repeats: object, axis: int) -> Self:
        count = size_of(repeats, "repeats")
        before, behind = self.dims[: axis + 1], self.dims[axis + 1 :]
        grown = self.reshape(*before, 1, *behind).expand(*before, count, *behind)
        return grown.reshape(*before[:-1], prod((before[-1], count)), *behind)

    # ---- axes

    def permute(self, *dims: Any) -> Self:
        """Return the axes in the order `dims`.

        Parameters
        ----------
        *dims : int, or one sequence of int
            Each axis of this tensor once.

        Returns
        -------
        Tensor
            View of this tensor.

        Raises
        ------
        ShapeError
            `dims` does not name each axis once.

        Examples
        --------
        >>> krt.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        order = dims[0] if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims
        axes = [axis_of(d, self.ndim, "dims") for d in order]
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(
                f"dims: {tuple(order)} does not name each of the {self.ndim} axes once"
            )
        return self._permuted(axes)

    def _permuted(self, axes: Sequence[int]) -> Self:
        node, below = views.read(self)
        return views.view(self, build.permute(node, axes), below, views.PERMUTE, tuple(axes))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Exchange two axes.

        Parameters
        ----------
        dim0, dim1 : int
            Axes to exchange.

        Returns
        -------
        Tensor
            View of this tensor.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).transpose(0, 1).tolist()
        [[1, 3], [2, 4]]
        """
        a, b = axis_of(dim0, self.ndim, "dim0"), axis_of(dim1, self.ndim, "dim1")
        order = list(range(self.ndim))
        if self.ndim:
            order[a], order[b] = b, a
        return self._permuted(order)

    swapaxes = transpose

    def movedim(
        self, source: int | Sequence[int], destination: int | Sequence[int]
    ) -> Self:
        """Move the axes `source` to `destination`; the others keep their order.

        Parameters
        ----------
        source : int or sequence of int
            Axes to move.
        destination : int or sequence of int
            Their positions in the result.

        Returns
        -------
        Tensor
            View of this tensor.

        Raises
        ------
        ShapeError
            `source` and `destination` differ in length, or one of them names an axis twice.

        Examples
        --------
        >>> krt.zeros(2, 3, 4).movedim(0, -1).shape
        (3, 4, 2)
        """
        pairs = []
        for value, name in ((source, "source"), (destination, "destination")):
            given = value if isinstance(value, tuple | list) else (value,)
            axes = [axis_of(d, self.ndim, name) for d in given]
            if len(set(axes)) < len(axes):
                raise ShapeError(f"{name}: {value} names an axis twice; give each axis once")
            pairs.append(axes)
        sources, targets = pairs
        if len(sources) != len(targets):
            raise ShapeError(
                f"source, destination: expected equal numbers of axes, not {source} and "
                f"{destination}"
            )
        if self.ndim == 0:
            return self._permuted(())
        order = [a for a in range(self.ndim) if a not in sources]
        for target, axis in sorted(zip(targets, sources, strict=True)):
            order.insert(target, axis)
        return self._permuted(order)

    moveaxis = movedim

    def t(self) -> Self:
        """Return the transpose of a matrix; return vectors and scalars unchanged.

        Returns
        -------
        Tensor
            View of this tensor.

        Raises
        ------
        ShapeError
            There are more than two axes.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).t().tolist()
        [[1, 3], [2, 4]]
        """
        if self.ndim > 2:
            raise ShapeError(
                f"t: expected at most 2 axes, not {self.ndim}; use mT for a batch of matrices"
            )
        return self._permuted(range(self.ndim)[::-1])

    @property
    def T(self) -> Self:  # noqa: N802 - torch's name
        """The transpose: all axes in reverse order. It is a view.

        Examples
        --------
        >>> krt.zeros(2, 3, 4).T.shape
        (4, 3, 2)
        """
        return self._permuted(range(self.ndim)[::-1])

    @property
    def mT(self) -> Self:  # noqa: N802 - torch's name
        """The transposes of a batch of matrices: the last two axes exchanged. It is a view.

        Raises
        ------
        ShapeError
            There are fewer than two axes.

        Examples
        --------
        >>> krt.zeros(2, 3, 4).mT.shape
        (2, 4, 3)
        """
        if self.ndim < 2:
            raise ShapeError(f"mT: expected at least 2 axes, not {self.ndim}")
        return self.transpose(-2, -1)

    def flip(self, *dims: Any) -> Self:
        """Reverse the order of the elements along `dims`.

        Parameters
        ----------
        *dims : int, or one sequence of int
            Axes to reverse. Without arguments, nothing is reversed.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).flip(0).tolist()
        [[3, 4], [1, 2]]
        """
        axes = axes_of(
            dims[0] if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims,
            self.ndim, "dims",
        )  # fmt: skip
        return self._of(build.flip(self.uop, axes))

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Shift the elements by `shifts` along `dims`; those that leave one end enter at the other.

        Parameters
        ----------
        shifts : int or sequence of int
            Number of positions to shift by, one for each axis of `dims`. Negative numbers shift
            towards the start.
        dims : int or sequence of int, optional
            Axes to shift along. Without it the elements shift in row-major order.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        ShapeError
            The numbers of shifts and axes differ.

        Examples
        --------
        >>> x = krt.tensor([[1, 2], [3, 4]])
        >>> x.roll(1).tolist(), x.roll(1, 0).tolist()
        ([[4, 1], [2, 3]], [[3, 4], [1, 2]])
        """
        moves = shifts if isinstance(shifts, tuple | list) else (shifts,)
        moves = [integer(m, "shifts") for m in moves]
        axes = () if dims is None else dims if isinstance(dims, tuple | list) else (dims,)
        if not axes:
            if len(moves) != 1:
                raise ShapeError(f"shifts: without dims, expected one number, not {shifts!r}")
            return self.reshape(-1)._rolled(moves[0], 0).reshape(self.dims)
        if len(moves) != len(axes):
            raise ShapeError(
                f"shifts, dims: expected one shift per axis, not {shifts!r} and {dims!r}"
            )
        out = self
        for move, dim in zip(moves, axes, strict=True):
            out = out._rolled(move, axis_of(dim, self.ndim, "dims"))
        return out

    def _rolled(self, move: int, axis: int) -> Self:
        if self.ndim == 0:
            return self._of(self.uop)
        size = self.dims[axis]
        if not isinstance(size, int):
            return self._rolled_open(move, axis, size)
        shift = move % size if size else 0
        if shift == 0:
            return self._of(self.uop)
        ends = [self._part_node(axis, size - shift, size), self._part_node(axis, 0, size - shift)]
        return self._of(build.cat(ends, axis))

    def _rolled_open(self, move: int, axis: int, size: Dim) -> Self:
        """Shift along an axis whose size is known only at run time."""
        if move == 0:
            return self._of(self.uop)
        if abs(move) <= dim_span(size)[0]:
            first = build.difference(size, move) if move > 0 else -move
            return self._of(build.cat(
                [self._part_node(axis, first, size), self._part_node(axis, 0, first)], axis
            ))  # fmt: skip
        # The shift may be larger than a short axis, so positions wrap by MOD.
        place = build.sub(build.iota(size), move)
        turned = place.alu(Op.MOD, build.full(size, dt.int64, place.shape))
        source: Any = self
        picked: Self = source.index_select(axis, self._of(turned))
        return picked

    def _static_size(self, axis: int, name: str) -> int:
        size = self.dims[axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"{name}: axis {axis} needs a fixed size, but its size {format_size(size)} is "
                f"known only at run time; use x.shape[{axis}] and operations on the whole axis, or "
                "leave the axis out of jit(dynamic=...)"
            )
        return size

    # ---- slices and splits

    def _part_node(self, axis: int, start: Dim, end: Dim) -> UOp:
        """Return the node of a slice along an axis, for another operation to read."""
        bounds: list[tuple[Dim, Dim]] = [(0, d) for d in self.uop.shape]
        bounds[axis] = (start, end)
        return build.shrink(self.uop, bounds)

    def narrow(self, dim: int, start: Dim, length: Dim) -> Self:
        """Return `length` elements of axis `dim` from `start` on.

        Parameters
        ----------
        dim : int
            Axis to slice.
        start : int
            Position of the first element; a negative one counts from the end.
        length : int
            Number of elements.

        Returns
        -------
        Tensor
            View of this tensor.

        Raises
        ------
        ShapeError
            The slice does not lie inside of the axis.

        Examples
        --------
        >>> krt.arange(5).narrow(0, 1, 3).tolist()
        [1, 2, 3]
        """
        axis = own_axis(dim, self.ndim)
        start, length = shape_of((start, length), "start, length")
        size = self.dims[axis]
        if isinstance(start, int) and start < 0:
            start = build.total((size, start))
        end = build.total((start, length))
        spare = build.difference(size, end)
        if min(dim_span(d)[0] for d in (start, length, spare)) < 0:
            raise ShapeError(
                f"start, length: a slice of {format_size(length)} elements from "
                f"{format_size(start)} on does not fit in axis {axis} of shape "
                f"{format_shape(self.dims)}"
            )
        return self._between(axis, start, end)

    def _between(self, axis: int, start: Dim, end: Dim) -> Self:
        """Return the elements of an axis from `start` to before `end`; both lie inside the axis."""
        index = (*[slice(None)] * axis, slice(start, end))
        return cast("Self", cast("Any", self)[index])

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Split along `dim` into parts of size `split_size` or, for a sequence, of these sizes.

        If the size of the axis is known only at run time, the sizes of a sequence may be dynamic as
        well, as in ``x.split((2, x.shape[0] - 2))``. With one number, the bounds of the size must
        determine the number of parts.

        Parameters
        ----------
        split_size : int or sequence of int
            Size of each part, the last of which may be smaller; or sizes that add up to the size of
            the axis.
        dim : int
            Axis to split.

        Returns
        -------
        tuple of Tensor
            Views of this tensor.

        Raises
        ------
        ShapeError
            `split_size` is below 1, the sizes do not add up, or the number of parts is unknown.

        Examples
        --------
        >>> [part.tolist() for part in krt.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
        >>> [part.tolist() for part in krt.arange(5).split((1, 4))]
        [[0], [1, 2, 3, 4]]
        """
        axis = own_axis(dim, self.ndim)
        size = self.dims[axis]
        step = whole(index_of(split_size, "split_size"))
        if step is not None:
            if step < 1:
                raise ShapeError(f"split_size: expected at least 1, not {step}")
            least, most = (max(1, math.ceil(n / step)) for n in dim_span(size))
            if least != most:
                raise self._open_count(axis, "split")
            return self._parts(axis, [step] * (most - 1))
        if not isinstance(split_size, tuple | list):
            raise DTypeError(
                f"split_size: expected an int or a sequence of ints, not {split_size!r}"
            )
        sizes = shape_of((split_size,), "split_size")
        least = min((dim_span(n)[0] for n in sizes), default=0)
        if least < 0 or not same(build.total(sizes), size):
            raise ShapeError(
                f"split_size: {format_shape(sizes)} does not add up to {format_size(size)}, the "
                f"size of axis {axis}"
            )
        return self._parts(axis, sizes[:-1]) if sizes else ()

    def _parts(self, axis: int, sizes: Sequence[Dim]) -> tuple[Self, ...]:
        """Split an axis into parts of these sizes and a last part of the rest."""
        places = [*(build.total(sizes[:i]) for i in range(len(sizes) + 1)), self.dims[axis]]
        return tuple(self._between(axis, *ends) for ends in itertools.pairwise(places))

    def _open_count(self, axis: int, name: str) -> ShapeError:
        least, most = dim_span(self.dims[axis])
        return ShapeError(
            f"{name}: the size {format_size(self.dims[axis])} of axis {axis} is known only at "
            f"run time, from {least} to {most}, and the number of parts depends on it; give the "
            f"size of each part, as in x.split((2, x.shape[{axis}] - 2)), narrow the bounds of the "
            "Variables in the size of the axis, or leave the axis out of jit(dynamic=...)"
        )

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Split along `dim` into at most `chunks` parts of equal size; the last may be smaller.

        An axis of size 0 gives exactly `chunks` empty parts. If the size is known only at run time,
        its bounds must determine the number of parts.

        Parameters
        ----------
        chunks : int
            Largest number of parts, at least 1.
        dim : int
            Axis to split.

        Returns
        -------
        tuple of Tensor
            Views of this tensor.

        Raises
        ------
        ShapeError
            `chunks` is below 1, or the number of parts is unknown.

        Examples
        --------
        >>> [part.tolist() for part in krt.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
        >>> len(krt.arange(6).chunk(4))  # three parts of size 2
        3
        """
        chunks = integer(chunks, "chunks", 1)
        axis = own_axis(dim, self.ndim)
        size = self.dims[axis]
        if isinstance(size, int):
            if size == 0:
                return self.split((0,) * chunks, axis)
            return self.split(max(1, math.ceil(size / chunks)), axis)
        least, most = dim_span(size)
        # More than (chunks - 1) ** 2 elements always give exactly `chunks` parts.
        sizes = range(least, min(most, max(least, (chunks - 1) ** 2 + 1)) + 1)
        counts = {math.ceil(n / math.ceil(n / chunks)) if n else chunks for n in sizes}
        if len(counts) > 1:
            raise self._open_count(axis, "chunk")
        step = build.quotient(build.total((size, chunks - 1)), chunks)
        return self._parts(axis, [step] * (counts.pop() - 1))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return the slices along `dim`, without that axis.

        Parameters
        ----------
        dim : int
            Axis whose slices to return. Its size must be fixed.

        Returns
        -------
        tuple of Tensor
            Views of this tensor.

        Raises
        ------
        ShapeError
            The size of the axis is known only at run time.

        Examples
        --------
        >>> a, b = krt.tensor([[1, 2], [3, 4]]).unbind()
        >>> a.tolist(), b.tolist()
        ([1, 2], [3, 4])
        """
        axis = own_axis(dim, self.ndim)
        size = self._static_size(axis, "unbind")
        if axis == 0:
            return tuple([cast("Any", self)[i] for i in range(size)])
        return tuple([self.narrow(axis, i, 1).squeeze(axis) for i in range(size)])

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return a diagonal of each matrix formed by axes `dim1` and `dim2`, along a new last axis.

        Parameters
        ----------
        offset : int
            Diagonal to return: 0 is the main one, a positive number lies above it, a negative one
            below.
        dim1, dim2 : int
            Axes of the rows and the columns.

        Returns
        -------
        Tensor
            View of this tensor, of shape `(*, n)`; `*` are the other axes.

        Raises
        ------
        ShapeError
            There are fewer than two axes, or `dim1` and `dim2` are the same.

        Examples
        --------
        >>> x = krt.tensor([[1, 2], [3, 4]])
        >>> x.diagonal().tolist(), x.diagonal(1).tolist()
        ([1, 4], [2])
        """
        if self.ndim < 2:
            raise ShapeError(f"diagonal: expected at least 2 axes, not {self.ndim}")
        first, second = axis_of(dim1, self.ndim, "dim1"), axis_of(dim2, self.ndim, "dim2")
        offset = integer(offset, "offset")
        if first == second:
            raise ShapeError(f"dim1, dim2: expected two different axes, not {dim1} and {dim2}")
        rest = [a for a in range(self.ndim) if a not in (first, second)]
        bare, below = views.bare(self)
        node = bare.permute(*rest, first, second)._diagonal(offset)._live()
        return views.view(self, node, below, views.DIAGONAL, offset, first, second)

    def _diagonal(self, offset: int) -> Self:
        down, right, lead = max(-offset, 0), max(offset, 0), self.dims[:-2]
        rows, columns = (
            build.difference(d, cut) for d, cut in zip(self.dims[-2:], (down, right), strict=True)
        )
        spare = dim_span(build.difference(rows, columns))
        n = rows if spare[1] <= 0 else columns
        least, most = dim_span(n)
        if spare[0] < 0 < spare[1] or (least < 0 < most):
            axes = format_shape(self.dims[-2:])
            raise ShapeError(
                f"diagonal: the length of diagonal {offset} of matrices of shape {axes} depends on "
                "sizes that are known only at run time; narrow the bounds of their Variables, or "
                "leave the axes out of jit(dynamic=...)"
            )
        if most <= 0:
            return self.narrow(-1, 0, 0).narrow(-2, 0, 0).reshape(*lead, 0)
        # In row-major order every (columns + 1)-th element lies on the diagonal: in padded rows of
        # that length the diagonal is the first column.
        part = self.narrow(-2, down, n).narrow(-1, right, n).reshape(*lead, build.volume((n, n)))
        longer = build.total((n, 1))
        return part.pad((0, n)).reshape(*lead, n, longer).narrow(-1, 0, 1).squeeze(-1)

    # ---- padding and triangles

    def pad(
        self, pad: Sequence[Dim], mode: str = "constant", value: float | None = None
    ) -> Self:
        """Add elements at the ends of axes.

        Parameters
        ----------
        pad : sequence of int
            Pairs (before, after), the last axis first. Negative numbers remove elements.
        mode : "constant", "reflect", "replicate" or "circular"
            Elements to add. "constant": `value`. "reflect": the elements mirrored at the first and
            at the last element, which are not repeated. "replicate": the first and the last
            element. "circular": the elements of the other end. The last three modes take one to
            three pairs, for a tensor with one or two more axes than pairs.
        value : number, optional
            Constant to add, 0 by default. Integer tensors take it without its fraction.

        Returns
        -------
        Tensor
            New tensor of this dtype.

        Raises
        ------
        DTypeError
            The dtype cannot represent `value`.
        DomainError
            `mode` is unknown.
        ShapeError
            The pairs do not fit the axes, or more elements are removed or mirrored than there are.

        Examples
        --------
        >>> x = krt.tensor([[1, 2, 3]])
        >>> x.pad((1, 2)).tolist(), x.pad((2, 0), "reflect").tolist()
        ([[0, 1, 2, 3, 0, 0]], [[3, 2, 1, 2, 3]])
        """
        if mode != "constant" and mode not in pad_modes.MODES:
            known = ", ".join(map(repr, ["constant", *pad_modes.MODES]))
            raise DomainError(f"mode: expected one of {known}, not {mode!r}")
        if not isinstance(pad, tuple | list):
            raise DTypeError(f"pad: expected pairs of ints, not {type(pad).__name__} ({pad!r})")
        if mode != "constant":
            if value:
                raise ShapeError(
                    f"value: mode {mode!r} takes no value, not {value!r}; leave it out"
                )
            return self._of(pad_modes.padded(self.uop, pad, mode))
        if len(pad) % 2 or len(pad) > 2 * self.ndim:
            raise ShapeError(
                f"pad: expected pairs for at most {self.ndim} axes, not {len(pad)} numbers"
            )
        widths = shape_of(tuple(pad), "pad")
        pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)][::-1]
        pairs = [(0, 0)] * (self.ndim - len(pairs)) + pairs
        filler = 0 if value is None else real(value, "value")
        return self._pad(pairs, element(filler, self.dtype, "value"))

    def _pad(self, pairs: Sequence[tuple[Dim, Dim]], value: float = 0) -> Self:
        node = self.uop
        cut: list[tuple[Dim, Dim]] = []
        for d, (lo, hi) in zip(node.shape, pairs, strict=True):
            low, high = build.difference(0, _cut(lo)), build.total((d, _cut(hi)))
            room = build.difference(high, low)
            if dim_span(room)[0] < 0:
                raise ShapeError(
                    f"pad: ({lo}, {hi}) removes more than the {format_size(d)} elements of the axis"
                )
            cut.append((low, high))
        node = build.shrink(node, cut)
        grow = [(lo if dim_span(lo)[0] >= 0 else 0, hi if dim_span(hi)[0] >= 0 else 0)
                for lo, hi in pairs]  # fmt: skip
        padded = build.pad(node, grow)
        if value != 0 and padded is not node:
            inside = build.pad(build.full(True, dt.bool_, node.shape), grow)
            padded = build.where(inside, padded, value)
        return self._of(padded)

    def tril(self, diagonal: int = 0) -> Self:
        """Set the elements above the given diagonal of the last two axes to zero.

        Parameters
        ----------
        diagonal : int
            Last diagonal to keep: 0 is the main one, a positive number lies above it, a negative
            one below.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        ShapeError
            There are fewer than two axes.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        return self._triangle(diagonal, "tril")

    def triu(self, diagonal: int = 0) -> Self:
        """Set the elements below the given diagonal of the last two axes to zero.

        Parameters
        ----------
        diagonal : int
            First diagonal to keep: 0 is the main one, a positive number lies above it, a negative
            one below.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Raises
        ------
        ShapeError
            There are fewer than two axes.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).triu(1).tolist()
        [[0, 2], [0, 0]]
        """
        return self._triangle(diagonal, "triu")

    def _triangle(self, diagonal: int, name: str) -> Self:
        if self.ndim < 2:
            raise ShapeError(f"{name}: expected at least 2 axes, not {self.ndim}")
        node = self.uop
        shape = node.shape
        # Diagonals further away are outside the matrix, and their sum with a row could wrap.
        rows, columns = map(dim_max, shape[-2:])
        first = max(-rows, min(integer(diagonal, "diagonal"), columns))
        row = build.add(build.iota_along(shape, self.ndim - 2), first)
        column = build.iota_along(shape, self.ndim - 1)
        keep = column.alu(Op.LE, row) if name == "tril" else row.alu(Op.LE, column)
        return self._of(build.where(keep, node, 0))

    def contiguous(self) -> Self:
        """Return this tensor with its elements in row-major order in memory.

        A view whose elements lie in another order is copied.

        Returns
        -------
        Tensor
            View of this tensor, or a copy of the same shape.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).t().contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        if not views.is_packed(self):
            return self.clone()
        node, below = views.read(self)
        packed = UOp(Op.CONTIGUOUS, self.dtype, (node,))
        return views.view(self, packed, below, views.CONTIGUOUS)

    def detach(self) -> Self:
        """Return a view of this tensor without its history.

        Gradients do not flow through it.

        Returns
        -------
        Tensor
            View of the same shape that does not require a gradient.

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x.detach()).sum().backward()
        >>> x.grad.tolist()  # not [2.0, 4.0]
        [1.0, 2.0]
        """
        node, below = views.read(self)
        return views.view(self, tags.detach(node), below, views.DETACH)

    def clone(self) -> Self:
        """Return a copy that an assignment to this tensor does not change.

        Gradients flow through it.

        Returns
        -------
        Tensor
            New tensor of this shape and dtype.

        Examples
        --------
        >>> x = krt.tensor([1, 2])
        >>> y = x.clone()
        >>> x.zero_().tolist(), y.tolist()
        ([0, 0], [1, 2])
        """
        return self._of(UOp(Op.CONTIGUOUS, self.dtype, (self.uop,)))


def _cut(width: Dim) -> Dim:
    """Return a negative padding width, which removes elements; return 0 for any other."""
    low, high = dim_span(width)
    if low < 0 < high:
        raise ShapeError(
            f"pad: whether {format_size(width)} adds or removes elements is known only at run "
            "time; narrow the bounds of the Variables in this width"
        )
    return width if low < 0 else 0
