"""Movement operations: shapes, axes, slices and padding."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, Self, cast

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import (
    broadcasts_to,
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
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object

__all__ = ["MovementMethods"]


@operations()
class MovementMethods(_Below):
    """Shapes, axes and padding. Nothing is copied until a kernel needs a layout."""

    __slots__ = ()

    # ---- shapes

    def reshape(self, *shape: Any) -> Self:
        """The elements, in row-major order, in another shape; one size may be -1.

        Raises
        ------
        ShapeError
            The numbers of elements differ.
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
                f"shape: {format_shape(shape)} leaves more than one size open; give all but one"
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
            )
        check_sizes(shape, "shape")
        return shape

    def view_as(self, other: TensorBase) -> Self:
        """This tensor in the shape of `other`."""
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from `start_dim` to `end_dim`, both included, as one."""
        first = axis_of(start_dim, self.ndim, "start_dim")
        last = axis_of(end_dim, self.ndim, "end_dim")
        if self.ndim == 0:
            return self.reshape(1)
        if first > last:
            raise ShapeError(f"start_dim: axis {start_dim} comes behind end_dim {end_dim}")
        joined = prod(self.dims[first : last + 1])
        return self.reshape(*self.dims[:first], joined, *self.dims[last + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[Dim]) -> Self:
        """Axis `dim` as several axes of `sizes`; one may be -1."""
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
        """Without its axes of size 1, or without those of `dim` that have size 1.

        Raises
        ------
        VariableError
            Whether an axis has size 1 is open while the function is traced.
        """
        axes = axes_of(dim, self.ndim)
        gone = {i for i in axes if self.shape[i] == 1}
        return self.reshape(tuple(d for i, d in enumerate(self.dims) if i not in gone))

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1 at `dim`."""
        axis = axis_of(dim, self.ndim + 1)
        return self.reshape(*self.dims[:axis], 1, *self.dims[axis:])

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated to `shape`; -1 keeps a size, new axes come first."""
        wanted = shape_of(shape)
        missing = len(wanted) - self.ndim
        if missing < 0:
            raise ShapeError(
                f"shape: {format_shape(wanted)} has fewer axes than {format_shape(self.dims)}"
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
        """This tensor expanded to the shape of `other`."""
        return self.expand(other.shape)

    def broadcast_to(self, *shape: Any) -> Self:
        """The same as :meth:`expand`."""
        return self.expand(*shape)

    def repeat(self, *repeats: Any) -> Self:
        """Each axis laid out `repeats` times; new axes come first."""
        counts = shape_of(repeats, "repeats")
        missing = len(counts) - self.ndim
        if missing < 0:
            raise ShapeError(
                f"repeats: expected at least {self.ndim} numbers, one an axis, not {len(counts)}"
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
        """As :meth:`repeat`; where there are fewer numbers than axes, the first axes stay."""
        counts = shape_of(dims, "dims")
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def _spread_out(self, repeats: object, axis: int) -> Self:
        count = size_of(repeats, "repeats")
        before, behind = self.dims[: axis + 1], self.dims[axis + 1 :]
        grown = self.reshape(*before, 1, *behind).expand(*before, count, *behind)
        return grown.reshape(*before[:-1], prod((before[-1], count)), *behind)

    # ---- axes

    def permute(self, *dims: Any) -> Self:
        """The axes in the order `dims`."""
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
        """With two axes exchanged."""
        a, b = axis_of(dim0, self.ndim, "dim0"), axis_of(dim1, self.ndim, "dim1")
        order = list(range(self.ndim))
        if self.ndim:
            order[a], order[b] = b, a
        return self._permuted(order)

    swapaxes = transpose

    def movedim(
        self, source: int | Sequence[int], destination: int | Sequence[int]
    ) -> Self:
        """With the axes `source` moved to `destination`; the others keep their order."""
        pairs = []
        for value, name in ((source, "source"), (destination, "destination")):
            given = value if isinstance(value, tuple | list) else (value,)
            axes = [axis_of(d, self.ndim, name) for d in given]
            if len(set(axes)) < len(axes):
                raise ShapeError(f"{name}: {value} names an axis twice")
            pairs.append(axes)
        sources, targets = pairs
        if len(sources) != len(targets):
            raise ShapeError(
                f"source, destination: expected as many axes, not {source} and {destination}"
            )
        if self.ndim == 0:
            return self._permuted(())
        order = [a for a in range(self.ndim) if a not in sources]
        for target, axis in sorted(zip(targets, sources, strict=True)):
            order.insert(target, axis)
        return self._permuted(order)

    moveaxis = movedim

    def t(self) -> Self:
        """The transpose of a matrix; vectors and scalars stay."""
        if self.ndim > 2:
            raise ShapeError(
                f"t: expected at most 2 axes, not {self.ndim}; use mT for a batch of matrices"
            )
        return self._permuted(range(self.ndim)[::-1])

    @property
    def T(self) -> Self:  # noqa: N802 - torch's name
        """The transpose: all axes in reverse order."""
        return self._permuted(range(self.ndim)[::-1])

    @property
    def mT(self) -> Self:  # noqa: N802 - torch's name
        """The last two axes exchanged: the transposes of a batch of matrices."""
        if self.ndim < 2:
            raise ShapeError(f"mT: expected at least 2 axes, not {self.ndim}")
        return self.transpose(-2, -1)

    def flip(self, *dims: Any) -> Self:
        """With the order along `dims` reversed."""
        axes = axes_of(
            dims[0] if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims,
            self.ndim, "dims",
        )  # fmt: skip
        return self._of(build.flip(self.uop, axes))

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Moved by `shifts` along `dims`; what leaves one end enters at the other.

        Without `dims` the elements move in row-major order.
        """
        moves = shifts if isinstance(shifts, tuple | list) else (shifts,)
        moves = [integer(m, "shifts") for m in moves]
        axes = () if dims is None else dims if isinstance(dims, tuple | list) else (dims,)
        if not axes:
            if len(moves) != 1:
                raise ShapeError(f"shifts: expected one number without dims, not {shifts!r}")
            return self.reshape(-1)._rolled(moves[0], 0).reshape(self.dims)
        if len(moves) != len(axes):
            raise ShapeError(
                f"shifts, dims: expected as many shifts as axes, not {shifts!r} and {dims!r}"
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
        """Moved along an axis whose size is known at run time."""
        if move == 0:
            return self._of(self.uop)
        if abs(move) <= dim_span(size)[0]:
            first = build.difference(size, move) if move > 0 else -move
            return self._of(build.cat(
                [self._part_node(axis, first, size), self._part_node(axis, 0, first)], axis
            ))  # fmt: skip
        # More than once around, where the axis is short.
        place = build.sub(build.iota(size), move)
        turned = place.alu(Op.MOD, build.full(size, dt.int64, place.shape))
        source: Any = self
        picked: Self = source.index_select(axis, self._of(turned))
        return picked

    def _static_size(self, axis: int, name: str) -> int:
        size = self.dims[axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"{name}: the size {format_size(size)} of axis {axis} is known only at run time, "
                f"and a fixed one is needed; compute with x.shape[{axis}] and on the axis as a "
                "whole, or leave it out of dynamic"
            )
        return size

    # ---- parts

    def _part_node(self, axis: int, start: Dim, end: Dim) -> UOp:
        """Return the node of a part along an axis, for another operation to read."""
        bounds: list[tuple[Dim, Dim]] = [(0, d) for d in self.uop.shape]
        bounds[axis] = (start, end)
        return build.shrink(self.uop, bounds)

    def narrow(self, dim: int, start: Dim, length: Dim) -> Self:
        """`length` elements of axis `dim` from `start` on; below 0 it counts from the end."""
        axis = own_axis(dim, self.ndim)
        start, length = shape_of((start, length), "start, length")
        size = self.dims[axis]
        if isinstance(start, int) and start < 0:
            start = build.total((size, start))
        end = build.total((start, length))
        spare = build.difference(size, end)
        if min(dim_span(d)[0] for d in (start, length, spare)) < 0:
            raise ShapeError(
                f"start, length: {format_shape((start, length))} leaves axis {axis} of "
                f"{format_shape(self.dims)}; the part from the start on has to lie inside"
            )
        return self._between(axis, start, end)

    def _between(self, axis: int, start: Dim, end: Dim) -> Self:
        """Elements of an axis from `start` to before `end`, which lie inside."""
        index = (*[slice(None)] * axis, slice(start, end))
        return cast("Self", cast("Any", self)[index])

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of `split_size` along `dim` (the last may be smaller), or of the sizes given.

        Of an axis whose size is known only at run time, the sizes given may be sizes, too, as in
        ``x.split((2, x.shape[0] - 2))``; with one number, the bounds have to say how many parts
        there are.
        """
        axis = own_axis(dim, self.ndim)
        size = self.dims[axis]
        step = whole(index_of(split_size))
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
                f"split_size: {format_shape(sizes)} does not add up to the {format_size(size)} "
                f"of axis {axis}"
            )
        return self._parts(axis, sizes[:-1]) if sizes else ()

    def _parts(self, axis: int, sizes: Sequence[Dim]) -> tuple[Self, ...]:
        """Parts of these sizes along an axis, and one of what is left."""
        places = [*(build.total(sizes[:i]) for i in range(len(sizes) + 1)), self.dims[axis]]
        return tuple(self._between(axis, *ends) for ends in itertools.pairwise(places))

    def _open_count(self, axis: int, name: str) -> ShapeError:
        least, most = dim_span(self.dims[axis])
        return ShapeError(
            f"{name}: the size {format_size(self.dims[axis])} of axis {axis} is known only at "
            f"run time, from {least} to {most}, and how many parts there are depends on it; give "
            f"the size of each part, as in x.split((2, x.shape[{axis}] - 2)), narrow the bounds of "
            "its Variable, or leave it out of dynamic"
        )

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` parts of equal size along `dim`; the last may be smaller.

        Of an axis without elements, exactly `chunks` parts without elements. Of one whose size is
        known only at run time, the bounds have to say how many parts there are.
        """
        chunks = integer(chunks, "chunks", 1)
        axis = own_axis(dim, self.ndim)
        size = self.dims[axis]
        if isinstance(size, int):
            if size == 0:
                return self.split((0,) * chunks, axis)
            return self.split(max(1, math.ceil(size / chunks)), axis)
        least, most = dim_span(size)
        # Of more than (chunks - 1) ** 2 elements there are always as many parts as are asked for.
        sizes = range(least, min(most, max(least, (chunks - 1) ** 2 + 1)) + 1)
        counts = {math.ceil(n / math.ceil(n / chunks)) if n else chunks for n in sizes}
        if len(counts) > 1:
            raise self._open_count(axis, "chunk")
        step = build.quotient(build.total((size, chunks - 1)), chunks)
        return self._parts(axis, [step] * (counts.pop() - 1))

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """The slices along `dim`, without that axis."""
        axis = own_axis(dim, self.ndim)
        size = self._static_size(axis, "unbind")
        if axis == 0:
            return tuple([cast("Any", self)[i] for i in range(size)])
        return tuple([self.narrow(axis, i, 1).squeeze(axis) for i in range(size)])

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """A diagonal of the matrices over `dim1` and `dim2`, as the last axis.

        Parameters
        ----------
        offset : int
            How far above the main diagonal, or with a negative number below it.
        dim1, dim2 : int
            The axes of the rows and of the columns.
        """
        if self.ndim < 2:
            raise ShapeError(f"diagonal: expected at least 2 axes, not {self.ndim}")
        first, second = axis_of(dim1, self.ndim, "dim1"), axis_of(dim2, self.ndim, "dim2")
        offset = integer(offset, "offset")
        if first == second:
            raise ShapeError(f"dim1, dim2: expected two axes, not {dim1} and {dim2}")
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
                f"diagonal: how long the diagonal {offset} of matrices of shape {axes} is depends "
                "on sizes that are known only at run time; narrow the bounds of their Variables, "
                "or leave them out of dynamic"
            )
        if most <= 0:
            return self.narrow(-1, 0, 0).narrow(-2, 0, 0).reshape(*lead, 0)
        # In row-major order the diagonal is every (columns + 1)-th element: padded to whole rows
        # of that length it is the first column.
        part = self.narrow(-2, down, n).narrow(-1, right, n).reshape(*lead, build.volume((n, n)))
        longer = build.total((n, 1))
        return part.pad((0, n)).reshape(*lead, n, longer).narrow(-1, 0, 1).squeeze(-1)

    # ---- padding and triangles

    def pad(
        self, pad: Sequence[Dim], mode: str = "constant", value: float | None = None
    ) -> Self:
        """With elements added at the ends of axes.

        Parameters
        ----------
        pad : sequence of int
            Pairs (before, behind), the last axis first. Negative numbers cut elements off.
        mode : "constant", "reflect", "replicate" or "circular"
            What to add; the last three are of the tensor itself, see
            :func:`kernelrt.tensor.nodes.pad_modes.padded`.
        value : number, optional
            The constant, 0 if not given; DTypeError for one that the type does not have.
        """
        if mode != "constant" and mode not in pad_modes.MODES:
            known = ", ".join(map(repr, ["constant", *pad_modes.MODES]))
            raise ShapeError(f"mode: expected one of {known}, not {mode!r}")
        if not isinstance(pad, tuple | list):
            raise DTypeError(f"pad: expected pairs of ints, not {type(pad).__name__} ({pad!r})")
        if mode != "constant":
            if value:
                raise ShapeError(f"value: mode {mode!r} takes none; leave it out, not {value!r}")
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
                raise ShapeError(f"pad: ({lo}, {hi}) cuts more off than {format_size(d)}")
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
        """With zeros above the given diagonal of the last two axes."""
        return self._triangle(diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """With zeros below the given diagonal of the last two axes."""
        return self._triangle(diagonal, lower=False)

    def _triangle(self, diagonal: int, *, lower: bool) -> Self:
        if self.ndim < 2:
            raise ShapeError(f"tril, triu: expected at least 2 axes, not {self.ndim}")
        node = self.uop
        shape = node.shape
        row = build.add(
            build.iota_along(shape, self.ndim - 2), integer(diagonal, "diagonal")
        )
        column = build.iota_along(shape, self.ndim - 1)
        keep = column.alu(Op.LE, row) if lower else row.alu(Op.LE, column)
        return self._of(build.where(keep, node, 0))

    def contiguous(self) -> Self:
        """This tensor with its elements in row-major order in memory.

        A view whose elements lie in another order is copied.
        """
        if not views.is_packed(self):
            return self.clone()
        node, below = views.read(self)
        packed = UOp(Op.CONTIGUOUS, self.dtype, (node,))
        return views.view(self, packed, below, views.CONTIGUOUS)

    def detach(self) -> Self:
        """A view of this tensor without its history."""
        node, below = views.read(self)
        return views.view(self, tags.detach(node), below, views.DETACH)

    def clone(self) -> Self:
        """A copy that an assignment to this tensor does not change."""
        return self._of(UOp(Op.CONTIGUOUS, self.dtype, (self.uop,)))


def _cut(width: Dim) -> Dim:
    """What a width of padding takes away, as a number that is not positive."""
    low, high = dim_span(width)
    if low < 0 < high:
        raise ShapeError(
            f"pad: whether {format_size(width)} adds elements or cuts some off is known only at "
            "run time; narrow the bounds of its Variables"
        )
    return width if low < 0 else 0
