"""Shapes of tensor-level nodes, and arithmetic on dimensions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
from kernelrt.ir.ops import ALU, Op
from kernelrt.ir.span import span
from kernelrt.ir.symbolic import simplify
from kernelrt.ir.terms import factors, render
from kernelrt.ir.uop import Dim, UOp, const
from kernelrt.native.array_handle import MAX_DIMS
from kernelrt.native.node import (
    _name_moves,
    are_packed,
    is_plain,
    is_static,
    packed_strides,
    reshaped_strides,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "MOST_ELEMENTS",
    "are_packed",
    "as_dim",
    "as_uop",
    "broadcast",
    "broadcasts_to",
    "difference",
    "dim_max",
    "dim_span",
    "format_shape",
    "format_size",
    "infer",
    "is_static",
    "missing_size",
    "packed_strides",
    "prod",
    "reshaped_strides",
    "same",
    "strides_of",
    "total",
    "window_count",
]


#: Maximum number of elements of a tensor: its bytes fit 63 bits for every dtype.
MOST_ELEMENTS = (1 << 60) - 1
_name_moves(Op.RESHAPE, Op.EXPAND, Op.REDUCE_AXIS, MOST_ELEMENTS, MAX_DIMS)
_LEAST, _MOST = int(dt.int64.min), int(dt.int64.max)


def as_uop(dim: Dim) -> UOp:
    """Return a dimension as an integer node. Raise ShapeError if it does not fit 64 bits."""
    if isinstance(dim, UOp):
        return dim
    if not _LEAST <= dim <= _MOST:
        raise ShapeError(f"size: {dim} does not fit 64-bit integers; use a smaller size")
    return const(dim, dt.int64)


def as_dim(u: Dim) -> Dim:
    """Return a dimension in simplest form: an int if it is constant."""
    if not isinstance(u, UOp):
        return u
    simple = simplify(u)
    return int(simple.arg) if simple.op is Op.CONST else simple


def same(a: Dim, b: Dim) -> bool:
    """Return whether two dimensions are provably equal."""
    if a is b or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    return as_dim(as_uop(a) - as_uop(b)) == 0


def dim_max(dim: Dim) -> int:
    """Return the largest value that a dimension can have."""
    return dim.vmax if isinstance(dim, UOp) else dim


def dim_span(dim: Dim) -> tuple[int, int]:
    """Return bounds for the value of a dimension, as tight as known."""
    return span(dim) if isinstance(dim, UOp) else (dim, dim)


def total(dims: Iterable[Dim]) -> Dim:
    """Return the sum of dimensions."""
    out: Dim = 0
    for dim in dims:
        if isinstance(out, int) and isinstance(dim, int):
            out += dim
        else:
            out = as_dim(as_uop(out) + as_uop(dim))
    return out


def difference(a: Dim, b: Dim) -> Dim:
    """Return ``a - b`` of dimensions."""
    return a - b if isinstance(a, int) and isinstance(b, int) else as_dim(as_uop(a) - as_uop(b))


def prod(dims: Iterable[Dim]) -> Dim:
    """Return the product of dimensions; 1 for none."""
    dims = tuple(dims)
    if is_static(dims):
        return math.prod(cast("tuple[int, ...]", dims))
    out: Dim = 1
    for dim in dims:
        if isinstance(out, int) and isinstance(dim, int):
            out *= dim
        else:
            out = as_dim(as_uop(out) * as_uop(dim))
    return out


def missing_size(have: Iterable[Dim], known: Iterable[Dim]) -> Dim | None:
    """Return the size that, multiplied by the product of `known`, gives the product of `have`.

    Return None if there is no such size, or if it cannot be proved for all values of the Variables.
    """
    number, above = _split_factors(have)
    divisor, below = _split_factors(known)
    for factor in list(below):
        if factor in above and (factor.vmin > 0 or factor.vmax < 0):
            above.remove(factor)
            below.remove(factor)
    whole, part = prod((number, *above)), prod((divisor, *below))
    if part == 0:
        return None
    if isinstance(whole, int) and isinstance(part, int):
        return whole // part if whole % part == 0 else None
    size = as_dim(as_uop(whole) // as_uop(part))
    return size if same(prod((size, part)), whole) else None


def _split_factors(dims: Iterable[Dim]) -> tuple[int, list[UOp]]:
    """Split the product of `dims` into its constant factor and the list of other factors."""
    number = 1
    rest: list[UOp] = []
    for dim in dims:
        for factor in factors(simplify(as_uop(dim))):
            if factor.op is Op.CONST:
                number *= int(factor.arg)
            else:
                rest.append(factor)
    return number, rest


def strides_of(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return row-major strides, in elements."""
    if is_static(shape):
        return packed_strides(cast("tuple[int, ...]", shape))
    out: list[Dim] = []
    step: Dim = 1
    for dim in reversed(shape):
        out.append(step)
        step = prod((step, dim))
    return tuple(reversed(out))


def broadcast(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the NumPy broadcast of several shapes.

    Raises
    ------
    ShapeError
        Two dimensions differ and neither is 1.
    """
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            if isinstance(dim, int) and dim == 1:
                continue
            if out[axis] == 1:
                out[axis] = dim
            elif not same(out[axis], dim):
                raise ShapeError(
                    f"shapes {' and '.join(map(format_shape, shapes))} do not broadcast: axis "
                    f"{axis - rank} has sizes {format_size(out[axis])} and {format_size(dim)}; "
                    "they must be equal or 1"
                )
    return tuple(out)


def broadcasts_to(shape: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> bool:
    """Return whether `shape` broadcasts to exactly `wanted` by NumPy's rules."""
    return len(shape) <= len(wanted) and all(
        same(have, need) or same(have, 1)
        for have, need in zip(reversed(shape), reversed(wanted), strict=False)
    )


def format_size(dim: Dim) -> str:
    """Return a dimension as text, with Variables by name."""
    return render(dim) if isinstance(dim, UOp) else str(dim)


def format_shape(shape: tuple[Dim, ...]) -> str:
    """Return a shape as text, such as ``(n, 3)``."""
    parts = [format_size(d) for d in shape]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def window_count(size: Dim, kernel: Dim, stride: int, dilation: int) -> Dim:
    """Return the number of windows of `kernel` elements that fit in an axis of `size` elements.

    Neighboring windows are `stride` apart, and the elements of a window `dilation` apart.
    """
    rest = difference(size, total((prod((dilation, difference(kernel, 1))), 1)))
    if isinstance(rest, int):
        return max(0, rest // stride + 1)
    return as_dim(rest // stride + 1)


def infer(u: UOp) -> tuple[Dim, ...]:
    """Return the shape of `u` from the shapes of its operands, which must be known.

    Raises
    ------
    ShapeError
        The shape is invalid: a size is negative, or there are too many axes or elements.
    """
    rule = _RULES.get(u.op)
    if rule is not None:
        return _possible(rule(u))
    if u.op in ALU:
        return u.src[0].shape
    return ()


def _possible(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return a shape after checking that a tensor can have it.

    The check of the number of elements counts an axis of size 0 as one of size 1.
    """
    if is_plain(shape):
        return shape
    elements = 1
    for d in shape:
        size = d.vmax if isinstance(d, UOp) else d
        if size < 0 or (isinstance(d, UOp) and d.vmin < 0 and span(d)[0] < 0):
            if isinstance(d, int):
                raise ShapeError(
                    f"shape: expected sizes of at least 0, not {d} in {format_shape(shape)}"
                )
            raise ShapeError(
                f"shape: size {format_size(d)} of {format_shape(shape)} may be negative; narrow "
                "the bounds of its Variables"
            )
        elements *= size or 1
    if elements > MOST_ELEMENTS:
        raise ShapeError(
            f"shape: {format_shape(shape)} has up to {elements} elements, counting axes of size 0 "
            f"as 1; a tensor has at most {MOST_ELEMENTS}"
        )
    if len(shape) > MAX_DIMS:
        raise ShapeError(
            f"shape: a tensor has at most {MAX_DIMS} axes, not {len(shape)}; merge axes with "
            "flatten() or reshape()"
        )
    return shape


def _shrink(u: UOp) -> tuple[Dim, ...]:
    return tuple(difference(hi, lo) for lo, hi in u.arg)


def _pad(u: UOp) -> tuple[Dim, ...]:
    return tuple(
        total((d, lo, hi)) for d, (lo, hi) in zip(u.src[0].shape, u.arg, strict=True)
    )


def _window(u: UOp) -> tuple[Dim, ...]:
    dims = list(u.src[0].shape)
    for axis, kernel, stride, dilation in u.arg:
        dims[axis] = window_count(dims[axis], kernel, stride, dilation)
    return (*dims, *(kernel for _, kernel, _, _ in u.arg))


def _unwindow(u: UOp) -> tuple[Dim, ...]:
    shape, windows = u.arg
    return (*shape, *(kernel for _, kernel, _, _ in windows))


def _cat(u: UOp) -> tuple[Dim, ...]:
    dims = list(u.src[0].shape)
    dims[u.arg] = total(s.shape[u.arg] for s in u.src)
    return tuple(dims)


def _reduce_axis(u: UOp) -> tuple[Dim, ...]:
    axes = u.arg[1]
    return tuple(d for i, d in enumerate(u.src[0].shape) if i not in axes)


_RULES: dict[Op, Callable[[UOp], tuple[Dim, ...]]] = {
    Op.BUFFER: lambda u: (u.arg.size,),
    Op.IOTA: lambda u: (as_dim(u.src[0]),),
    Op.RESHAPE: lambda u: tuple(u.arg),
    Op.EXPAND: lambda u: tuple(u.arg),
    Op.PERMUTE: lambda u: tuple(u.src[0].shape[a] for a in u.arg),
    Op.SHRINK: _shrink,
    Op.PAD: _pad,
    Op.FLIP: lambda u: u.src[0].shape,
    Op.IM2COL: _window,
    Op.COL2IM: _unwindow,
    Op.CAT: _cat,
    Op.REDUCE_AXIS: _reduce_axis,
    Op.GATHER: lambda u: u.src[1].shape,
    Op.SCATTER: lambda u: u.src[0].shape,
    Op.CALL: lambda u: u.arg.shape,
    Op.REGION: lambda u: u.arg.shape,
    Op.CONTIGUOUS: lambda u: u.src[0].shape,
    Op.DETACH: lambda u: u.src[0].shape,
    Op.BOUND: lambda u: u.src[0].shape,
}
