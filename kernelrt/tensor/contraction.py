"""Matrix products and convolutions.

Both are a sum over products of expanded operands; what makes them contractions is what their
indices say. Their gradients are of the same form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import broadcast, format_shape, format_size, is_static, same, total
from kernelrt.tensor import build
from kernelrt.tensor.arguments import lacking, whole
from kernelrt.tensor.hints import tell_widening
from kernelrt.tensor.indexing import IndexingMethods
from kernelrt.tensor.marks import custom
from kernelrt.tensor.operation import operations
from kernelrt.tensor.parts import PartMethods
from kernelrt.tensor.promotion import joint_type
from kernelrt.tensor.rules import unwindow

if TYPE_CHECKING:
    from kernelrt.tensor.base import Operand, TensorBase

__all__ = ["ContractionMethods", "PerAxis", "per_axis"]

#: A number for every axis, or one each.
PerAxis: TypeAlias = int | Sequence[int]


@operations()
class ContractionMethods(PartMethods, IndexingMethods):
    """Matrix products and convolutions."""

    __slots__ = ()

    def matmul(self, other: Operand) -> Self:
        """Matrix product over the last two axes; leading axes broadcast, vectors are rows/columns.

        Raises
        ------
        ShapeError
            An operand has no axes, or the inner sizes differ.
        DTypeError
            The operands are bools.
        """
        right = self._lift(other, "other")
        a, b = self._factors(right, "matmul")
        if not a.shape or not b.shape:
            raise ShapeError(
                f"matmul: shapes {format_shape(a.shape)} and {format_shape(b.shape)}: a scalar "
                "has no rows; use *"
            )
        inner = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
        if not same(a.shape[-1], inner):
            raise ShapeError(
                f"matmul: shapes {format_shape(a.shape)} and {format_shape(b.shape)} do not fit: "
                f"the last axis of the first has {a.shape[-1]} elements, the "
                f"{'second to last' if len(b.shape) > 1 else 'only'} axis of the second {inner}"
            )
        return self._of(_matmul(a, b))

    mm = bmm = matmul

    def dot(self, other: Operand) -> Self:
        """Inner product of two vectors."""
        right = self._lift(other, "other")
        if self.ndim != 1 or right.ndim != 1:
            raise ShapeError(f"dot: expected two vectors, not {self.ndim} and {right.ndim} axes")
        return self.matmul(right)

    def outer(self, other: Operand) -> Self:
        """All products of an element of this vector with one of the other."""
        right = self._lift(other, "other")
        if self.ndim != 1 or right.ndim != 1:
            raise ShapeError(f"outer: expected two vectors, not {self.ndim} and {right.ndim} axes")
        return self.unsqueeze(1) * right

    def __matmul__(self, other: Operand) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Operand) -> Self:
        return self._lift(other, "other").matmul(self)

    def linear(self, weight: TensorBase, bias: TensorBase | None = None) -> Self:
        """``self @ weight.T + bias``, for a weight of shape (out, in)."""
        w = self._lift(weight, "weight")
        if w.ndim != 2 or self.ndim == 0 or not same(self.dims[-1], w.dims[1]):
            raise ShapeError(
                f"weight: expected shape (out, {self.dims[-1] if self.ndim else 'in'}) for an "
                f"input of shape {format_shape(self.dims)}, not {format_shape(w.dims)}"
            )
        out = self.matmul(w.t())
        return out if bias is None else out + bias

    # ---- convolution

    def conv1d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
    ) -> Self:  # fmt: skip
        """Cross-correlation along one axis; as :meth:`conv2d`."""
        return self._conv(1, weight, bias, stride, padding, dilation, groups)

    def conv2d(
        self, weight: TensorBase, bias: TensorBase | None = None, stride: PerAxis = 1,
        padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
    ) -> Self:  # fmt: skip
        """Cross-correlation of images with filters.

        Parameters
        ----------
        weight : Tensor
            Filters of shape (out, in / groups, height, width); this tensor has shape
            (batch, in, height, width), or no batch axis.
        bias : Tensor, optional
            Added to each of the `out` channels.
        stride, dilation : int or (int, int)
            Steps between windows and between taps.
        padding : int, (int, int), "valid" or "same"
            Zeros around the image.
        groups : int
            Into how many independent parts the channels are divided.

        Raises
        ------
        ShapeError
            Ranks, channels or sizes do not fit.
        """
        return self._conv(2, weight, bias, stride, padding, dilation, groups)

    def _conv(
        self, n: int, weight: TensorBase, bias: TensorBase | None, stride: PerAxis,
        padding: PerAxis | str, dilation: PerAxis, groups: int,
    ) -> Self:  # fmt: skip
        name = f"conv{n}d"
        if self.ndim == n + 1:
            single = self.unsqueeze(0)
            return single._conv(n, weight, bias, stride, padding, dilation, groups).squeeze(0)
        w = self._lift(weight, "weight")
        self._check_channels(name, n, w, groups)
        strides = per_axis(stride, n, "stride", least=1)
        dilations = per_axis(dilation, n, "dilation", least=1)
        kernel = tuple(w._static_size(2 + i, name) for i in range(n))
        widths = _padding(padding, kernel, strides, dilations)
        x, filters = self._factors(w, name)
        x = build.pad(x, [(0, 0), (0, 0), *widths])
        for size, k, d in zip(x.shape[2:], kernel, dilations, strict=True):
            if (end := lacking(size, d * (k - 1) + 1)) is not None:
                raise ShapeError(
                    f"{name}: a kernel of {k} taps, {d} apart, does not fit in the "
                    f"{format_size(size)} padded elements of an axis{end}"
                )
        windows = tuple(
            (2 + i, *w) for i, w in enumerate(zip(kernel, strides, dilations, strict=True))
        )
        out = self._of(_convolve(x, filters, windows, groups))
        if bias is None:
            return out
        b = self._lift(bias, "bias")
        if b.ndim != 1 or not same(b.dims[0], w.dims[0]):
            raise ShapeError(
                f"bias: expected shape {format_shape((w.dims[0],))}, not {format_shape(b.dims)}"
            )
        return out + b.reshape(-1, *(1,) * n)

    def _check_channels(self, name: str, n: int, w: Self, groups: int) -> None:
        if self.ndim != n + 2 or w.ndim != n + 2:
            raise ShapeError(
                f"{name}: expected an input of {n + 1} or {n + 2} axes and a weight of {n + 2}, "
                f"not {self.ndim} and {w.ndim}"
            )
        channels, outputs = self._static_size(1, name), w._static_size(0, name)
        if groups < 1 or channels % groups or outputs % groups:
            raise ShapeError(
                f"groups: {groups} does not divide the {channels} input and {outputs} output "
                "channels"
            )
        if w.shape[1] != channels // groups:
            raise ShapeError(
                f"weight: expected {channels // groups} channels (axis 1) for an input with "
                f"{channels} in {groups} groups, not {w.shape[1]}"
            )

    def _factors(self, other: Self, name: str) -> tuple[UOp, UOp]:
        a, b = self.uop, other.uop
        if a.dtype is not b.dtype:
            tell_widening(self, other)
        dtype = joint_type((a, b))
        if dtype.is_bool:
            raise DTypeError(f"{name}: bools have no products to sum; cast them to integers")
        return a.cast(dtype), b.cast(dtype)


def _matmul(a: UOp, b: UOp) -> UOp:
    """Products of rows of `a` and columns of `b`, both along a last axis, summed over it."""
    row, column = len(a.shape) == 1, len(b.shape) == 1
    if row:
        a = build.reshape(a, (1, *a.shape))
    # Columns as rows; a vector is one column.
    rank = len(b.shape)
    b = build.reshape(b, (1, *b.shape)) if column else build.permute(
        b, (*range(rank - 2), rank - 1, rank - 2)
    )  # fmt: skip
    (*lead_a, m, k), (*lead_b, n, _) = a.shape, b.shape
    lead = broadcast(tuple(lead_a), tuple(lead_b))
    shape = (*lead, m, n, k)
    left = build.broadcast_to(build.reshape(a, (*lead_a, m, 1, k)), shape)
    right = build.broadcast_to(build.reshape(b, (*lead_b, 1, n, k)), shape)
    out = build.reduce(left.alu(Op.MUL, right), Op.ADD, (len(shape) - 1,))
    kept = (*lead, *(() if row else (m,)), *(() if column else (n,)))
    return build.reshape(out, kept)


#: Remainders of a position by the strides that a transposed convolution has kernels of their own
#: for: a kernel takes about 10 ms to compile.
_PHASES = 16

_Windows: TypeAlias = tuple[tuple[int, int, int, int], ...]


def _convolve(x: UOp, w: UOp, windows: _Windows, groups: int) -> UOp:
    """Cross-correlation of padded `x` (batch, in, ...) with `w` (out, in / groups, ...)."""
    n = len(windows)
    seen = _rows(x, windows, groups)  # batch, group, 1, positions, in / group, taps
    filters = _filters(w, n, groups)  # 1, group, out / group, 1s, in / group, taps
    left, right = build.align(seen, filters)
    axes = range(len(left.shape) - n - 1, len(left.shape))
    out = build.reduce(left.alu(Op.MUL, right), Op.ADD, axes)
    positions = seen.shape[3 : 3 + n]
    out = build.reshape(out, (x.shape[0], w.shape[0], *positions))
    return custom(out, _convolve_rule, x, w, arg=(windows, groups))


def _rows(x: UOp, windows: _Windows, groups: int) -> UOp:
    n = len(windows)
    seen = UOp(Op.WINDOW, x.dtype, (x,), windows)
    batch, channels, *rest = seen.shape
    assert isinstance(channels, int)
    seen = build.reshape(seen, (batch, groups, channels // groups, *rest))
    order = (0, 1, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n))
    seen = build.permute(seen, order)
    return build.reshape(seen, (batch, groups, 1, *seen.shape[2:]))


def _filters(w: UOp, n: int, groups: int) -> UOp:
    out, channels, *taps = w.shape
    assert isinstance(out, int)
    return build.reshape(w, (1, groups, out // groups, *(1,) * n, channels, *taps))


def _convolve_rule(node: UOp, g: UOp, i: int) -> UOp:
    windows, groups = node.arg.arg
    x, w = node.arg.inputs
    return _input_gradient(x, w, g, windows, groups) if i == 0 else _weight_gradient(
        x, w, g, windows, groups
    )  # fmt: skip


def _weight_gradient(x: UOp, w: UOp, g: UOp, windows: _Windows, groups: int) -> UOp:
    n = len(windows)
    seen = _rows(x, windows, groups)
    batch, out, *positions = g.shape
    assert isinstance(out, int)
    g = build.reshape(g, (batch, groups, out // groups, *positions, *(1,) * (n + 1)))
    left, right = build.align(g, seen)
    total = build.reduce(left.alu(Op.MUL, right), Op.ADD, (0, *range(3, 3 + n)))
    return build.reshape(total, w.shape)


def _input_gradient(x: UOp, w: UOp, g: UOp, windows: _Windows, groups: int) -> UOp:
    """What each element of the padded input `x` gets from the results that it went into."""
    return _spread(g, w, x.shape, windows, groups)


def _spread(g: UOp, w: UOp, shape: build.Shape, windows: _Windows, groups: int) -> UOp:
    """Convolution transposed: each element of `g` times the filters, added up where they lie.

    Elements of the result that lie a stride apart take the same taps, so each remainder of a
    position by the stride is a convolution with its own taps, and no product is one with the zeros
    between. Where there are many remainders, they are channels of one convolution, if all of them
    have as many taps.
    """
    n = len(windows)
    sizes = shape[2:]
    remainders = math.prod(stride for _, _, stride, _ in windows)
    if remainders == 1 or not is_static(sizes):
        return _gathered(g, w, shape, windows, groups)
    if remainders > _PHASES:
        even = all(size % stride == 0 and dilation == 1 for _, size, stride, dilation in windows)
        return (_shuffled if even else _gathered)(g, w, shape, windows, groups)
    parts = [
        [_phase(*window[1:], r) for r in range(window[2])] for window in windows
    ]
    counts = tuple(-(-size // window[2]) for size, window in zip(sizes, windows, strict=True))
    rows = [
        _phase_of(g, w, (*shape[:2], *counts), windows, phases, groups)
        for phases in itertools.product(*parts)
    ]
    # The remainders of the last axis change fastest.
    for k in reversed(range(n)):
        stride, behind = windows[k][2], 3 + 2 * k
        rows = [build.cat(rows[i : i + stride], behind) for i in range(0, len(rows), stride)]
    whole = build.reshape(rows[0], (*shape[:2], *(
        count * window[2] for count, window in zip(counts, windows, strict=True)
    )))  # fmt: skip
    return build.shrink(whole, [(0, d) for d in shape])


def _shuffled(g: UOp, w: UOp, shape: build.Shape, windows: _Windows, groups: int) -> UOp:
    """Convolution transposed whose remainders are channels: each stride-th tap is one's own.

    Source: sub-pixel convolution, Shi et al., "Real-time single image and video super-resolution
    using an efficient sub-pixel convolutional neural network", 2016.
    """
    n = len(windows)
    batch, channels, *sizes = shape
    out, inside = w.shape[:2]
    strides = [stride for _, _, stride, _ in windows]
    remainders = math.prod(strides)
    own = [size // stride for _, size, stride, _ in windows]
    # out, in / group, (taps of its own, remainder)... with the remainders beside the channels.
    w = build.reshape(w, (out, inside, *itertools.chain(*zip(own, strides, strict=True))))
    w = build.permute(w, (0, 1, *range(3, 3 + 2 * n, 2), *range(2, 2 + 2 * n, 2)))
    w = build.reshape(w, (out, inside * remainders, *own))
    counts = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    plain = tuple((axis, tap, 1, 1) for (axis, *_), tap in zip(windows, own, strict=True))
    reached = [size + tap - 1 for size, tap in zip(g.shape[2:], own, strict=True)]
    found = _gathered(g, w, (batch, channels * remainders, *reached), plain, groups)
    for axis, count in enumerate(counts, 2):
        found = _moved(found, axis, 0, count)
    found = build.reshape(found, (batch, channels, *strides, *counts))
    order = itertools.chain(*((2 + n + k, 2 + k) for k in range(n)))
    found = build.permute(found, (0, 1, *order))
    whole = build.reshape(found, (batch, channels, *(
        count * stride for count, stride in zip(counts, strides, strict=True)
    )))  # fmt: skip
    return build.shrink(whole, [(0, d) for d in shape])


class _Phase(NamedTuple):
    """The taps that reach positions of one remainder by the stride: each `step`-th.

    The results of the taps `first`, `first + step`, ... lie `dilation` apart, behind `ahead`
    elements that none of them reaches.
    """

    first: int
    step: int
    taps: int
    dilation: int
    ahead: int


def _phase(kernel: int, stride: int, dilation: int, remainder: int) -> _Phase:
    common = math.gcd(stride, dilation)
    step = stride // common
    first = next((k for k in range(step) if k * dilation % stride == remainder), kernel)
    taps = max(0, -(-(kernel - first) // step))
    return _Phase(first, step, taps, dilation // common, (first * dilation - remainder) // stride)


def _phase_of(
    g: UOp, w: UOp, shape: build.Shape, windows: _Windows, phases: Sequence[_Phase], groups: int
) -> UOp:
    """The results of one remainder along each axis, and behind each axis one for the remainder."""
    apart = (*shape[:2], *(d for size in shape[2:] for d in (size, 1)))
    if any(phase.taps == 0 for phase in phases):
        return build.full(0, g.dtype, apart)
    for axis, phase in enumerate(phases, 2):
        w = _every(w, axis, phase)
    plain = tuple(
        (axis, phase.taps, 1, phase.dilation)
        for (axis, *_), phase in zip(windows, phases, strict=True)
    )
    reached = tuple(
        total((size, phase.dilation * (phase.taps - 1)))
        for size, phase in zip(g.shape[2:], phases, strict=True)
    )
    out = _gathered(g, w, (*shape[:2], *reached), plain, groups)
    for axis, phase in enumerate(phases, 2):
        out = _moved(out, axis, phase.ahead, shape[axis])
    return build.reshape(out, apart)


def _every(w: UOp, axis: int, phase: _Phase) -> UOp:
    """The taps of `w` along `axis` that belong to `phase`."""
    if phase.step == 1:
        return w
    last = phase.first + (phase.taps - 1) * phase.step + 1
    w = build.shrink(
        w, [(phase.first, last) if a == axis else (0, d) for a, d in enumerate(w.shape)]
    )
    seen = UOp(Op.WINDOW, w.dtype, (w,), ((axis, phase.taps, 1, phase.step),))
    rank = len(w.shape)
    order = [rank if a == axis else a for a in range(rank)]
    shape = tuple(seen.shape[a] for a in order)
    return build.reshape(build.permute(seen, (*order, axis)), shape)


def _moved(x: UOp, axis: int, ahead: int, size: Dim) -> UOp:
    """`x` behind `ahead` zeros along `axis`, cut or filled with zeros to `size`."""
    assert isinstance(size, int)
    have = x.shape[axis]
    assert isinstance(have, int)
    kept = min(have, size - ahead)
    if kept <= 0:
        return build.full(0, x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
    x = build.shrink(x, [(0, kept) if a == axis else (0, d) for a, d in enumerate(x.shape)])
    return build.pad(x, [
        (ahead, size - ahead - kept) if a == axis else (0, 0) for a in range(len(x.shape))
    ])  # fmt: skip


def _gathered(g: UOp, w: UOp, shape: build.Shape, windows: _Windows, groups: int) -> UOp:
    """One contraction over output channels and taps: the taps of `g` are gathered first."""
    n = len(windows)
    batch, out, *positions = g.shape
    channels = shape[1]
    assert isinstance(out, int)
    assert isinstance(channels, int)
    taps = tuple(k for _, k, _, _ in windows)
    g = build.expand(
        build.reshape(g, (batch, out, *positions, *(1,) * n)), (batch, out, *positions, *taps)
    )
    spread = unwindow(g, (batch, out, *shape[2:]), windows)
    spread = build.reshape(spread, (batch, groups, out // groups, *spread.shape[2:]))
    spread = build.permute(spread, (0, 1, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n)))
    spread = build.reshape(spread, (batch, groups, 1, *spread.shape[2:]))
    filters = build.reshape(w, (groups, out // groups, channels // groups, *taps))
    filters = build.permute(filters, (0, 2, 1, *range(3, 3 + n)))
    filters = build.reshape(
        filters, (1, groups, channels // groups, *(1,) * n, out // groups, *taps)
    )
    left, right = build.align(spread, filters)
    whole = build.reduce(
        left.alu(Op.MUL, right), Op.ADD, range(len(left.shape) - n - 1, len(left.shape))
    )
    return build.reshape(whole, shape)


def per_axis(value: Any, n: int, name: str, *, least: int = 0) -> tuple[int, ...]:
    """`value`, a number for all of `n` axes or one each, as a tuple."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,) * n
    if len(given) == 1:
        given *= n
    values: tuple[int, ...] = ()
    for v in given:
        number = whole(v)
        if number is None:
            raise DTypeError(f"{name}: expected integers, not {type(v).__name__}")
        values += (number,)
    if len(values) != n or min(values) < least:
        raise ShapeError(f"{name}: expected {n} numbers of at least {least}, not {value!r}")
    return values


def _padding(
    padding: PerAxis | str, kernel: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> list[tuple[int, int]]:  # fmt: skip
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        if any(s != 1 for s in strides):
            raise ShapeError("padding: 'same' needs a stride of 1")
        spans = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
        return [(s // 2, s - s // 2) for s in spans]
    if isinstance(padding, str):
        raise ShapeError(f"padding: expected numbers, 'valid' or 'same', not {padding!r}")
    return [(p, p) for p in per_axis(padding, len(kernel), "padding")]

