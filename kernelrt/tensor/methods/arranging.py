"""Diagonals, rotations, sliding windows and splits."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.shape import dim_span, format_shape, format_size, prod, same, window_count
from kernelrt.tensor import views
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, index_of, integer, own_axis, shape_of, whole
from kernelrt.tensor.nodes.composite_ops import settled
from kernelrt.tensor.nodes.positions import checked, elements
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["ArrangingMethods"]


@operations()
class ArrangingMethods(_Below):
    """Diagonals, rotations, sliding windows and splits."""

    __slots__ = ()

    # ---- diagonals

    def diag(self, diagonal: int = 0) -> Self:
        """Return a matrix with this vector as a diagonal, or copy a diagonal of this matrix.

        Parameters
        ----------
        diagonal : int, default 0
            Diagonal to fill or read: 0 is the main one, a positive number is above it, a negative
            one below.

        Returns
        -------
        Tensor
            Same dtype. Shape (n + abs(diagonal), n + abs(diagonal)) for a vector of n elements;
            a vector for a matrix.

        Raises
        ------
        ShapeError
            This tensor is neither a vector nor a matrix.

        Examples
        --------
        >>> krt.tensor([1, 2]).diag(1).tolist()
        [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
        >>> krt.tensor([[1, 2], [3, 4]]).diag().tolist()
        [1, 4]
        """
        if self.ndim == 1:
            return self.diag_embed(diagonal)
        if self.ndim != 2:
            raise ShapeError(
                f"diag: expected a vector or a matrix, not the shape {format_shape(self.dims)}; "
                "for a batch, use x.diag_embed() or x.diagonal(0, -2, -1)"
            )
        return self.diagonal(integer(diagonal, "diagonal")).clone()

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """Return matrices with the last axis as a diagonal and zeros elsewhere.

        Parameters
        ----------
        offset : int, default 0
            Diagonal to fill: 0 is the main one, a positive number is above it, a negative one
            below.
        dim1, dim2 : int, default -2 and -1
            Axes of the rows and the columns in the result.

        Returns
        -------
        Tensor
            Same dtype; shape (..., n + abs(offset), n + abs(offset)) for shape (..., n).

        Raises
        ------
        ShapeError
            This tensor is a scalar, or `dim1` and `dim2` are the same axis.
        AxisError
            `dim1` or `dim2` is not an axis of the result.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).diag_embed().tolist()
        [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]
        """
        if self.ndim == 0:
            raise ShapeError("diag_embed: expected at least 1 axis, not 0; use x.reshape(1)")
        rank, offset = self.ndim + 1, integer(offset, "offset")
        first, second = axis_of(dim1, rank, "dim1"), axis_of(dim2, rank, "dim2")
        if first == second:
            raise ShapeError(f"dim1, dim2: expected two different axes, not {dim1} and {dim2}")
        node = self.uop
        lead, n = node.shape[:-1], node.shape[-1]
        size = build.total((n, abs(offset)))
        shape = (*lead, size, size)
        widths: list[tuple[Dim, Dim]] = [(0, 0)] * len(lead)
        line = build.pad(node, [*widths, (0, abs(offset))])
        # Element i lies in row i of a diagonal above the main one, in column i of one below.
        line = build.reshape(line, (*lead, size, 1) if offset >= 0 else (*lead, 1, size))
        row, column = (build.iota_along(shape, self.ndim - 1 + k) for k in (0, 1))
        there = column.eq(build.add(row, offset))
        made = self._of(build.where(there, build.expand(line, shape), 0))
        return made.movedim((-2, -1), (first, second))

    def diagflat(self, offset: int = 0) -> Self:
        """Return a matrix with all elements, in row-major order, as a diagonal.

        Parameters
        ----------
        offset : int, default 0
            Diagonal to fill; see :meth:`diag_embed`.

        Returns
        -------
        Tensor
            Matrix of the same dtype, with ``numel() + abs(offset)`` rows and columns.

        Examples
        --------
        >>> krt.tensor([[1, 2]]).diagflat().tolist()
        [[1, 0], [0, 2]]
        """
        return self.reshape(-1).diag_embed(offset)

    def trace(self) -> Self:
        """Return the sum of the diagonal of a matrix.

        Returns
        -------
        Tensor
            Scalar of the same dtype; integers and bools give int64.

        Raises
        ------
        ShapeError
            This tensor does not have 2 axes.

        Examples
        --------
        >>> krt.tensor([[1.0, 2.0], [3.0, 4.0]]).trace().item()
        5.0
        """
        if self.ndim != 2:
            raise ShapeError(
                f"trace: expected a matrix, not the shape {format_shape(self.dims)}; for a batch, "
                "use x.diagonal(0, -2, -1).sum(-1)"
            )
        return self.diagonal().sum()

    # ---- flips and rotations

    def fliplr(self) -> Self:
        """Reverse the order of the elements along axis 1.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Raises
        ------
        ShapeError
            This tensor has fewer than 2 axes.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).fliplr().tolist()
        [[2, 1], [4, 3]]
        """
        if self.ndim < 2:
            raise ShapeError(f"fliplr: expected at least 2 axes, not {self.ndim}")
        return self.flip(1)

    def flipud(self) -> Self:
        """Reverse the order of the elements along axis 0.

        Returns
        -------
        Tensor
            Same shape and dtype.

        Raises
        ------
        ShapeError
            This tensor is a scalar.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).flipud().tolist()
        [[3, 4], [1, 2]]
        """
        if self.ndim < 1:
            raise ShapeError("flipud: expected at least 1 axis, not 0")
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Rotate by `k` times 90 degrees, from the first to the second of the two axes `dims`.

        Parameters
        ----------
        k : int, default 1
            Number of quarter turns; a negative number turns back.
        dims : sequence of two int, default (0, 1)
            Axes of the plane to rotate.

        Returns
        -------
        Tensor
            Same dtype. An odd `k` exchanges the sizes of the two axes.

        Raises
        ------
        ShapeError
            `dims` are not two different axes.
        AxisError
            One of `dims` is not an axis of this tensor.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        turns = integer(k, "k") % 4
        if not isinstance(dims, tuple | list) or len(dims) != 2:
            raise ShapeError(f"dims: expected two axes, not {dims!r}")
        a, b = (own_axis(d, self.ndim, "dims") for d in dims)
        if a == b:
            raise ShapeError(f"dims: expected two different axes, not {dims[0]} and {dims[1]}")
        if turns == 0:
            return self._of(self.uop)
        if turns == 2:
            return self.flip(a, b)
        return self.flip(b).transpose(a, b) if turns == 1 else self.transpose(a, b).flip(b)

    def swapdims(self, dim0: int, dim1: int) -> Self:
        """Exchange two axes; the same as :meth:`transpose`.

        Parameters
        ----------
        dim0, dim1 : int
            Axes to exchange.

        Returns
        -------
        Tensor
            Same dtype, with the two sizes exchanged.

        Examples
        --------
        >>> krt.ones(2, 3, 5).swapdims(0, 2).shape
        (5, 3, 2)
        """
        return self.transpose(dim0, dim1)

    # ---- shapes

    def view(self, *shape: Any, dtype: object = None) -> Self:
        """Return the elements in another shape, like :meth:`reshape`; or their bits in a new dtype.

        Parameters
        ----------
        *shape : int, or one DType
            The new shape, or the new dtype. If the item sizes of the dtypes differ, the last axis
            becomes longer or shorter (see :meth:`bitcast`). A view of another dtype passes no
            gradient. Writing to it changes this tensor.
        dtype : DType, optional
            The new dtype, as a keyword.

        Returns
        -------
        Tensor
            Of the new shape or dtype.

        Raises
        ------
        ShapeError
            The new shape has another number of elements. Or the item sizes differ, and this tensor
            is a view whose rows are not contiguous in memory.
        DTypeError
            Exactly one of the two dtypes is bool.

        Examples
        --------
        >>> krt.arange(6).view(2, -1).tolist()
        [[0, 1, 2], [3, 4, 5]]
        >>> krt.tensor([1.0]).view("int32").tolist()
        [1065353216]
        >>> x = krt.tensor([1.0, 2.0])
        >>> _ = x.view("int32").bitwise_or_(1 << 31)  # sets the signs
        >>> x.tolist()
        [-1.0, -2.0]
        """
        if dtype is not None:
            shape = (*shape, dt.parse(dtype))
        if len(shape) == 1 and isinstance(shape[0], dt.DType | str | np.dtype | type):
            return views.bits(self, dt.parse(shape[0]))
        return self.reshape(*shape)

    def ravel(self) -> Self:
        """Return the elements as a vector in row-major order.

        Returns
        -------
        Tensor
            Shape (numel(),), same dtype.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).ravel().tolist()
        [1, 2, 3, 4]
        """
        source = self if views.is_packed(self) else self.clone()
        return source.reshape(-1) if not build.has_zero(self.dims) else source.reshape(0)

    def reshape_as(self, other: TensorBase) -> Self:
        """Reshape this tensor to the shape of `other`.

        Parameters
        ----------
        other : Tensor
            Tensor with as many elements as this one.

        Returns
        -------
        Tensor
            Shape of `other`, dtype of this tensor.

        Raises
        ------
        ShapeError
            `other` has another number of elements.

        Examples
        --------
        >>> krt.arange(4).reshape_as(krt.zeros(2, 2)).tolist()
        [[0, 1], [2, 3]]
        """
        return self.reshape(other.dims)

    def repeat_interleave(
        self, repeats: int | TensorBase, dim: int | None = None, *, output_size: int | None = None
    ) -> Self:
        """Repeat each slice along `dim`; the copies of a slice follow each other.

        Parameters
        ----------
        repeats : int or Tensor
            Number of repetitions of every slice, or a vector of integers with one number for each
            slice.
        dim : int, optional
            Axis to repeat along; by default, repeat the elements in row-major order.
        output_size : int, optional
            Sum of the vector `repeats`; required in a traced function. If the sum is greater, the
            surplus slices at the end are dropped.

        Returns
        -------
        Tensor
            Same dtype. The size of axis `dim` is the sum of all repetitions. Without `dim`, the
            result is a vector.

        Raises
        ------
        DTypeError
            The tensor `repeats` does not hold integers, or has more than 1 axis.
        ShapeError
            A number of repetitions is negative, or the length of `repeats` differs from the size of
            the axis.
        IndexBoundsError
            At run time, if the sum of `repeats` is less than `output_size`.

        Examples
        --------
        >>> x = krt.tensor([[1, 2], [3, 4]])
        >>> x.repeat_interleave(2).tolist()
        [1, 1, 2, 2, 3, 3, 4, 4]
        >>> x.repeat_interleave(krt.tensor([1, 2]), dim=0).tolist()
        [[1, 2], [3, 4], [3, 4]]
        """
        source = self.reshape(-1) if dim is None else self
        axis = 0 if dim is None else own_axis(dim, self.ndim)
        if not isinstance(repeats, TensorBase | np.ndarray):
            return views.unshared(source._spread_out(repeats, axis), self)
        counts = self._lift(repeats, "repeats")
        size = source._static_size(axis, "repeat_interleave")
        if not counts.dtype.is_int or counts.ndim > 1:
            raise DTypeError(
                f"repeats: expected a vector of integers, not {counts.dtype.name} of shape "
                f"{format_shape(counts.dims)}"
            )
        counts = counts.reshape(-1)
        if counts.dims[0] not in (1, size):
            raise ShapeError(
                f"repeats: expected 1 or {size} numbers, one for each slice of axis {axis}, not "
                f"{counts.dims[0]}"
            )
        return source.index_select(axis, self._repeated(counts.expand(size), output_size))

    def _repeated(self, counts: Self, size: int | None) -> Self:
        """Return the positions from 0 on, position i repeated ``counts[i]`` times."""
        if size is None:
            data = elements(counts.long(), "repeat_interleave", "pass output_size=")
            if data.size and data.min() < 0:
                raise ShapeError(f"repeats: expected numbers of at least 0, not {data.min()}")
            return self._lift(np.repeat(np.arange(len(data)), data), "repeats")
        n = integer(size, "output_size", 0)
        ends = counts.long().cumsum(0).clamp(0, n)
        zeros, ones = build.full(0, dt.int64, (n + 1,)), build.full(1, dt.int64, ends.dims)
        if build.has_zero(ends.dims):
            return self._of(build.full(0, dt.int64, (n,)))
        passed = self._of(build.scatter_add(zeros, ones, checked(ends.uop, n + 1))).cumsum(0)
        return passed.narrow(0, 0, n)

    # ---- windows

    def unfold(self, dimension: int, size: int, step: int) -> Self:
        """Return sliding windows along an axis, `step` elements apart, as a new last axis.

        The function ``krt.nn.functional.unfold`` is another operation: it returns windows of
        images.

        Parameters
        ----------
        dimension : int
            Axis to slide along.
        size : int
            Number of elements of a window, at most the size of the axis.
        step : int
            Distance between the starts of neighboring windows, at least 1.

        Returns
        -------
        Tensor
            Same dtype. Axis `dimension` of n elements has size ``(n - size) // step + 1``; the
            new last axis has size `size`.

        Raises
        ------
        ShapeError
            `size` is greater than the size of the axis, or `step` is below 1.
        AxisError
            There is no axis `dimension`.

        Examples
        --------
        >>> krt.arange(5).unfold(0, 3, 2).tolist()
        [[0, 1, 2], [2, 3, 4]]
        """
        axis = axis_of(dimension, self.ndim, "dimension")
        width, stride = integer(size, "size", 0), integer(step, "step", 1)
        if self.ndim == 0:
            return self.reshape(1).unfold(0, size, step).reshape(min(width, 1))
        length = self.dims[axis]
        if width > dim_span(length)[0]:
            raise ShapeError(
                f"size: expected at most {format_size(length)}, the size of axis {axis}, not "
                f"{width}"
            )
        node, below = views.read(self)
        count = window_count(length, width, stride, 1)
        shape = (*node.shape[:axis], count, *node.shape[axis + 1 :], width)
        if build.has_zero(shape):
            return self._of(settled(build.full(0, node.dtype, shape), node))
        node = UOp(Op.IM2COL, node.dtype, (node,), ((axis, width, stride, 1),))
        return views.view(self, node, below, views.UNFOLD, axis, width, stride)

    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
    ) -> Self:
        """Return a view with the given sizes and strides.

        Its element [i, j, ...] is element ``storage_offset + i * stride[0] + j * stride[1] + ...``
        of this tensor, counted in row-major order.

        Parameters
        ----------
        size : sequence of int
            Shape of the view.
        stride : sequence of int
            Step of each axis in elements, at least 0.
        storage_offset : int, default 0
            Position of the first element.

        Returns
        -------
        Tensor
            Shape `size`, same dtype.

        Raises
        ------
        ShapeError
            `size` and `stride` differ in length, or the last element of the view is beyond the
            elements of this tensor.

        Examples
        --------
        >>> krt.arange(5).as_strided((3, 3), (1, 1)).tolist()
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
        """
        sizes = [integer(n, "size", 0) for n in size]
        steps = [integer(n, "stride", 0) for n in stride]
        start = integer(storage_offset, "storage_offset", 0)
        if len(sizes) != len(steps):
            raise ShapeError(
                f"size, stride: expected one stride for each size, not {size} and {stride}"
            )
        count = prod(self.dims)
        if 0 in sizes:
            return self._of(build.full(0, self.dtype, tuple(sizes)))
        last = start + sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        if not isinstance(count, int) or last >= count:
            raise ShapeError(
                f"size, stride: the view needs element {last}, counted from 0, but the tensor "
                f"of shape {format_shape(self.dims)} has {format_size(count)} elements; use "
                "smaller sizes, strides or storage_offset"
            )
        place = build.full(start, dt.int64, tuple(sizes))
        for axis, step in enumerate(steps):
            place = build.add(place, build.mul(build.iota_along(tuple(sizes), axis), step))
        bare, below = views.bare(self)
        node = bare.reshape(-1)[self._of(place)]._live()
        return views.view(self, node, below, views.AS_STRIDED, tuple(sizes), tuple(steps), start)

    # ---- splits

    def tensor_split(
        self, indices_or_sections: int | Sequence[int] | TensorBase, dim: int = 0
    ) -> tuple[Self, ...]:
        """Split along `dim` into a number of nearly equal parts, or at the given indices.

        If the size is not a multiple of the number of parts, the first parts are longer by one.
        Indices may be sizes that are known only at run time.

        Parameters
        ----------
        indices_or_sections : int, sequence of int, or Tensor
            Number of parts, or indices at which a part ends and the next one starts.
        dim : int, default 0
            Axis to split.

        Returns
        -------
        tuple of Tensor
            The parts, in the same dtype; their shapes differ in the size of `dim` only.

        Raises
        ------
        ShapeError
            The number of parts is less than 1.
        DTypeError
            `indices_or_sections` is neither an int nor a sequence of ints.

        Examples
        --------
        >>> [part.tolist() for part in krt.arange(7).tensor_split(3)]
        [[0, 1, 2], [3, 4], [5, 6]]
        >>> [part.tolist() for part in krt.arange(7).tensor_split([1, 4])]
        [[0], [1, 2, 3], [4, 5, 6]]
        """
        axis = own_axis(dim, self.ndim)
        size = self.dims[axis]
        given: Any = indices_or_sections
        if isinstance(given, TensorBase):
            name = "indices_or_sections"
            given = given.tolist() if given.ndim else index_of(given, name)  # type: ignore[attr-defined]
        number = whole(given)
        if number is not None:
            if number < 1:
                raise ShapeError(f"indices_or_sections: expected at least 1 part, not {number}")
            # The first parts get the elements that remain after an equal division.
            counts = (build.total((size, number - 1 - i)) for i in range(number - 1))
            sizes = [build.quotient(n, number) for n in counts]
            return self._parts(axis, sizes)
        if isinstance(given, tuple | list):
            ends = shape_of((given,), "indices_or_sections")
        else:
            raise DTypeError(
                f"indices_or_sections: expected an int or a sequence of ints, not {given!r}"
            )
        whole_axis = (slice(None),) * axis
        return tuple(
            self[(*whole_axis, slice(a, b))]
            for a, b in itertools.pairwise([0, *ends, size])
        )

    def _split_evenly(self, given: Any, dim: int, name: str) -> tuple[Self, ...]:
        number = whole(index_of(given, "indices_or_sections"))
        if number is not None and number > 0:
            size = self.dims[dim]
            each = build.quotient(size, number)
            if not same(build.volume((each, number)), size):
                raise ShapeError(
                    f"{name}: cannot split the {format_size(size)} elements of axis {dim} into "
                    f"{number} equal parts; use x.tensor_split()"
                )
        return self.tensor_split(given, dim)

    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split into equal parts along axis 1 (axis 0 of a vector), or at the given indices.

        Parameters
        ----------
        indices_or_sections : int or sequence of int
            Number of parts, or indices at which a part ends and the next one starts.

        Returns
        -------
        tuple of Tensor
            The parts, in the same dtype.

        Raises
        ------
        ShapeError
            This tensor is a scalar, or the number of parts does not divide the size of the axis.

        Examples
        --------
        >>> [part.tolist() for part in krt.tensor([[1, 2], [3, 4]]).hsplit(2)]
        [[[1], [3]], [[2], [4]]]
        """
        if self.ndim < 1:
            raise ShapeError("hsplit: expected at least 1 axis, not 0")
        return self._split_evenly(indices_or_sections, int(self.ndim > 1), "hsplit")

    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split into equal parts along axis 0, or at the given indices.

        Parameters
        ----------
        indices_or_sections : int or sequence of int
            Number of parts, or indices at which a part ends and the next one starts.

        Returns
        -------
        tuple of Tensor
            The parts, in the same dtype.

        Raises
        ------
        ShapeError
            This tensor has fewer than 2 axes, or the number of parts does not divide the size of
            axis 0.

        Examples
        --------
        >>> [part.tolist() for part in krt.tensor([[1, 2], [3, 4]]).vsplit(2)]
        [[[1, 2]], [[3, 4]]]
        """
        if self.ndim < 2:
            raise ShapeError(f"vsplit: expected at least 2 axes, not {self.ndim}")
        return self._split_evenly(indices_or_sections, 0, "vsplit")

    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Self, ...]:
        """Split into equal parts along axis 2, or at the given indices.

        Parameters
        ----------
        indices_or_sections : int or sequence of int
            Number of parts, or indices at which a part ends and the next one starts.

        Returns
        -------
        tuple of Tensor
            The parts, in the same dtype.

        Raises
        ------
        ShapeError
            This tensor has fewer than 3 axes, or the number of parts does not divide the size of
            axis 2.

        Examples
        --------
        >>> [part.shape for part in krt.ones(2, 3, 4).dsplit([1])]
        [(2, 3, 1), (2, 3, 3)]
        """
        if self.ndim < 3:
            raise ShapeError(f"dsplit: expected at least 3 axes, not {self.ndim}")
        return self._split_evenly(indices_or_sections, 2, "dsplit")

    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Split along `dim` into parts of the given sizes.

        Parameters
        ----------
        split_sizes : sequence of int
            Sizes of the parts, which add up to the size of the axis.
        dim : int, default 0
            Axis to split.

        Returns
        -------
        tuple of Tensor
            The parts, in the same dtype.

        Raises
        ------
        ShapeError
            The sizes do not add up to the size of the axis.

        Examples
        --------
        >>> [part.tolist() for part in krt.arange(5).split_with_sizes([2, 3])]
        [[0, 1], [2, 3, 4]]
        """
        if not isinstance(split_sizes, tuple | list):
            raise DTypeError(f"split_sizes: expected a sequence of ints, not {split_sizes!r}")
        return self.split(split_sizes, dim)

    unsafe_split_with_sizes = split_with_sizes

    def unsafe_split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Split along `dim`; the same as :meth:`split`.

        Parameters
        ----------
        split_size : int or sequence of int
            Size of each part, or the sizes of all parts.
        dim : int, default 0
            Axis to split.

        Returns
        -------
        tuple of Tensor
            The parts, in the same dtype; their shapes differ in the size of `dim` only.

        Examples
        --------
        >>> [part.tolist() for part in krt.arange(5).unsafe_split(2)]
        [[0, 1], [2, 3], [4]]
        """
        return self.split(split_size, dim)

    def unsafe_chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Split along `dim`; the same as :meth:`chunk`.

        Parameters
        ----------
        chunks : int
            Greatest number of parts.
        dim : int, default 0
            Axis to split.

        Returns
        -------
        tuple of Tensor
            The parts, in the same dtype; their shapes differ in the size of `dim` only.

        Examples
        --------
        >>> [part.tolist() for part in krt.arange(5).unsafe_chunk(2)]
        [[0, 1, 2], [3, 4]]
        """
        return self.chunk(chunks, dim)
