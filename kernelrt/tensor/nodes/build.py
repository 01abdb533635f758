"""Build simplified tensor-stage nodes.

The functions omit operations without an effect: a reshape to the same shape, a product with one,
a sum over an axis that was only expanded. Gradients are built with them, so that the scheduler
sees only necessary computations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import IndexBoundsError
from kernelrt.ir import Dim, Op, UOp, const
from kernelrt.ir.constants import SAME_VALUES, uniform
from kernelrt.ir.ffi import FfiResult
from kernelrt.ir.shape import (
    as_dim,
    as_uop,
    broadcast,
    difference,
    dim_span,
    format_shape,
    infer,
    prod,
    same,
    total,
)  # fmt: skip
from kernelrt.ir.symbolic import in_range
from kernelrt.native.node import expanded, reduced, reshaped
from kernelrt.native.source_lines import here, now
from kernelrt.native.thread_modes import local

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.dtype import DType
    from kernelrt.ir.ffi import FfiFunction
    from kernelrt.ir.routine import Routine

__all__ = [
    "Shape",
    "add",
    "align",
    "alu",
    "bound",
    "broadcast_to",
    "call",
    "cat",
    "check_room",
    "const_value",
    "depending_on",
    "difference",
    "div",
    "expand",
    "flip",
    "foreign",
    "full",
    "has_zero",
    "iota",
    "iota_along",
    "keep_axes",
    "memory",
    "mul",
    "multiply_add",
    "neg",
    "pad",
    "permute",
    "quotient",
    "reduce",
    "reshape",
    "same_shape",
    "scalar",
    "scatter",
    "scatter_add",
    "shrink",
    "sub",
    "sum_to",
    "total",
    "volume",
    "where",
    "write",
    "zeros_like",
]

Shape = tuple[Dim, ...]
Number = bool | int | float


def memory(buffer: Buffer) -> UOp:
    """Return the node of the storage of `buffer`."""
    return UOp(Op.BUFFER, buffer.dtype, (), buffer)


def write(buffer: Buffer, value: UOp) -> tuple[UOp, UOp]:
    """Return the storage of `buffer` and the value to write there: a commit of a schedule."""
    return memory(buffer), reshape(value, (buffer.size,))

#: A DETACH may be the tag of a leaf, to which gradients flow.
_SAME_HISTORY = SAME_VALUES - {Op.DETACH}


def same_shape(a: Shape, b: Shape) -> bool:
    """Return whether two shapes are provably equal."""
    return a == b or (len(a) == len(b) and all(map(same, a, b)))


def has_zero(shape: Iterable[Dim]) -> bool:
    """Return whether a tensor of this shape certainly has no elements."""
    return any(isinstance(d, int) and d == 0 for d in shape)


def const_value(u: UOp) -> Number | None:
    """Return the number that all elements of `u` equal, or None if that is not obvious."""
    found = uniform(u, _SAME_HISTORY)
    if found is None:
        return None
    value: Number = found.arg
    return value


# ---- movement


def _shaped(op: Op, dtype: DType, src: tuple[UOp, ...], arg: object = None) -> UOp:
    """Return a node and infer its shape now, so that errors point to the caller."""
    node = UOp(op, dtype, src, arg)
    if node.cached_shape is None:
        for operand in src:
            operand.shape  # noqa: B018 - `infer` needs it
        node.cached_shape = infer(node)
    return node


def reshape(x: UOp, shape: Shape) -> UOp:
    """Reshape `x` to a shape with the same number of elements."""
    if type(shape) is tuple and (found := reshaped(x, shape)) is not None:
        return found
    if same_shape(x.shape, shape):
        return x
    if x.op is Op.RESHAPE:
        return reshape(x.src[0], shape)
    return _shaped(Op.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, shape: Shape) -> UOp:
    """Expand axes of size 1 of `x` to `shape`, which has the same rank."""
    if type(shape) is tuple and (found := expanded(x, shape)) is not None:
        return found
    if same_shape(x.shape, shape):
        return x
    if x.op is Op.EXPAND:
        x = x.src[0]
    return _shaped(Op.EXPAND, x.dtype, (x,), shape)


def broadcast_to(x: UOp, shape: Shape) -> UOp:
    """Broadcast `x` to `shape`, as in NumPy."""
    missing = len(shape) - len(x.shape)
    return expand(reshape(x, (1,) * missing + x.shape) if missing else x, shape)


def align(*nodes: UOp) -> list[UOp]:
    """Broadcast `nodes` to their common shape."""
    shape = broadcast(*(n.shape for n in nodes))
    return [broadcast_to(n, shape) for n in nodes]


def permute(x: UOp, axes: Sequence[int]) -> UOp:
    """Permute the axes of `x` to the order `axes`."""
    axes = tuple(axes)
    if axes == tuple(range(len(axes))):
        return x
    if x.op is Op.PERMUTE:
        return permute(x.src[0], [x.arg[a] for a in axes])
    return UOp(Op.PERMUTE, x.dtype, (x,), axes)


def shrink(x: UOp, bounds: Sequence[tuple[Dim, Dim]], *, alike: bool = False) -> UOp:
    """Slice `x` to the half-open `bounds` of each axis.

    With `alike` a node is built even for the whole of `x`, so that graphs of all sizes have the
    same structure.
    """
    pairs = zip(bounds, x.shape, strict=True)
    if not alike and all(same(lo, 0) and same(hi, d) for (lo, hi), d in pairs):
        return x
    return _shaped(Op.SHRINK, x.dtype, (x,), tuple(bounds))


def pad(x: UOp, widths: Sequence[tuple[Dim, Dim]], *, alike: bool = False) -> UOp:
    """Pad `x` with zeros before and after each axis; for `alike` see :func:`shrink`."""
    if not alike and all(same(lo, 0) and same(hi, 0) for lo, hi in widths):
        return x
    return _shaped(Op.PAD, x.dtype, (x,), tuple(widths))


def flip(x: UOp, axes: Sequence[int]) -> UOp:
    """Reverse `x` along `axes`."""
    axes = tuple(sorted(a for a in axes if not (isinstance(x.shape[a], int) and x.shape[a] == 1)))
    return UOp(Op.FLIP, x.dtype, (x,), axes) if axes else x


def cat(parts: Sequence[UOp], axis: int) -> UOp:
    """Concatenate `parts` along `axis`. Dtypes and the other axes must agree."""
    return parts[0] if len(parts) == 1 else _shaped(Op.CAT, parts[0].dtype, tuple(parts), axis)


# ---- leaves


def scalar(value: Dim | Number, dtype: DType) -> UOp:
    """Return a number, or an integer expression of Variables, as a node of shape ()."""
    return value.cast(dtype) if isinstance(value, UOp) else const(value, dtype)


def full(value: Dim | Number, dtype: DType, shape: Shape) -> UOp:
    """Return a node of shape `shape` filled with `value`."""
    return broadcast_to(scalar(value, dtype), shape)


def zeros_like(x: UOp) -> UOp:
    """Return zeros with the shape and dtype of `x`."""
    return full(0, x.dtype, x.shape)


def iota(n: Dim) -> UOp:
    """Return the integers 0 to n - 1, as int64."""
    return _shaped(Op.IOTA, dt.int64, (as_uop(n),))


def iota_along(shape: Shape, axis: int) -> UOp:
    """Return the index of each element along `axis`."""
    line = reshape(iota(shape[axis]), tuple(d if a == axis else 1 for a, d in enumerate(shape)))
    return expand(line, shape)


def bound(index: UOp, size: Dim, *, from_end: bool = False) -> UOp:
    """Return `index` with a run-time check that it is in [0, size).

    `from_end` means that `size` was added to negative indices; the error message shows the indices
    before this addition.
    """
    end = as_uop(size)
    return index if in_range(index, end) else UOp(Op.BOUND, index.dtype, (index, end), from_end)


def check_room(x: UOp, index: UOp) -> None:
    """Raise IndexBoundsError if `x` has no elements, but `index` has.

    No kernel runs for an empty result, so none would check the index.
    """
    if has_zero(x.shape) and not has_zero(index.shape):
        raise IndexBoundsError(
            f"index: a tensor of shape {format_shape(x.shape)} has no elements to index"
        )


def depending_on(base: UOp, nothing: UOp) -> UOp:
    """Return `base`, made to depend on the empty `nothing`, so that `nothing` gets a gradient."""
    part = reshape(nothing, (0,))
    flat = reshape(base, (prod(base.shape),))
    return reshape(cat([flat, part], 0), base.shape)


def scatter_add(base: UOp, values: UOp, *indices: UOp) -> UOp:
    """Add `values` to `base` at `indices`; each sum is rounded once."""
    return scatter(Op.ADD, base, values, *indices)


def put(base: UOp, values: UOp, *indices: UOp) -> UOp:
    """Write `values` to `base` at `indices`, which must be unique."""
    return UOp(Op.SCATTER, base.dtype, (base, values, *indices))


def scatter(reducer: Op, base: UOp, values: UOp, *indices: UOp) -> UOp:
    """Update `base` by `reducer` with `values` at `indices`, in row-major order."""
    check_room(base, values)
    inexact = reducer in (Op.ADD, Op.MUL)
    wide = base.dtype.accumulator if inexact else base.dtype
    operands = (base.cast(wide), values.cast(wide), *indices)
    return UOp(Op.SCATTER, wide, operands, reducer).cast(base.dtype)


# ---- elementwise


def call(routine: Routine, *operands: UOp) -> UOp:
    """Call a routine on `operands`, which it reads in row-major order.

    The result has no derivative unless :func:`~kernelrt.tensor.autograd.tags.custom` adds one.
    Errors name the user's line that made the call.
    """
    node = _shaped(Op.CALL, routine.signature.gives, operands, routine)
    if node.origin is None or node.origin[5] != now():
        node.origin = here(local.scope)
    return node


def foreign(callee: FfiFunction, index: int, *operands: UOp) -> UOp:
    """Return result `index` of an FFI function; results with the same operands share one call.

    The result has no derivative unless :func:`~kernelrt.tensor.autograd.tags.custom` adds one.
    """
    which = FfiResult(callee, index)
    return _shaped(Op.CALL, which.dtype, operands, which)


def alu(op: Op, *operands: UOp) -> UOp:
    """Apply the elementwise `op` to operands of one shape."""
    return operands[0].alu(op, *operands[1:])


def where(condition: UOp, yes: UOp | Number, no: UOp | Number) -> UOp:
    """Select `yes` where `condition` is true, else `no`; at least one of the two is a node."""
    if isinstance(yes, UOp):
        other = no if isinstance(no, UOp) else full(no, yes.dtype, yes.shape)
        return condition.where(yes, other)
    assert isinstance(no, UOp)
    return condition.where(full(yes, no.dtype, no.shape), no)


def neg(x: UOp) -> UOp:
    """Return ``-x``."""
    value = const_value(x)
    if value is not None:
        return full(-value, x.dtype, x.shape)
    return x.src[0] if x.op is Op.NEG else x.alu(Op.NEG)


def add(a: UOp, b: UOp | Number) -> UOp:
    """Return ``a + b``; a number `b` takes the dtype and shape of `a`."""
    b = _like(b, a)
    x, y = const_value(a), const_value(b)
    if x is not None and y is not None:
        return full(x + y, a.dtype, a.shape)
    if x == 0:
        return b
    return a if y == 0 else a.alu(Op.ADD, b)


def sub(a: UOp, b: UOp | Number) -> UOp:
    """Return ``a - b``; a number `b` takes the dtype and shape of `a`."""
    b = _like(b, a)
    x, y = const_value(a), const_value(b)
    if x is not None and y is not None:
        return full(x - y, a.dtype, a.shape)
    if x == 0:
        return neg(b)
    return a if y == 0 else a.alu(Op.SUB, b)


def mul(a: UOp, b: UOp | Number) -> UOp:
    """Return ``a * b``; a number `b` takes the dtype and shape of `a`."""
    b = _like(b, a)
    x, y = const_value(a), const_value(b)
    if x is not None and y is not None:
        return full(x * y, a.dtype, a.shape)
    for value, other in ((x, b), (y, a)):
        if value == 1:
            return other
        if value == -1:
            return neg(other)
    return a.alu(Op.MUL, b)


def multiply_add(a: UOp, b: UOp, c: UOp) -> UOp:
    """Return ``a * b + c``; floats are rounded once on targets with FMA."""
    if a.dtype.is_float:
        return a.alu(Op.FMA, b, c)
    return a.alu(Op.MUL, b).alu(Op.ADD, c)


def div(a: UOp, b: UOp | Number) -> UOp:
    """Return ``a / b`` of floats; a number `b` takes the dtype and shape of `a`."""
    b = _like(b, a)
    x, y = const_value(a), const_value(b)
    if x is not None and y is not None and y != 0:
        return full(x / y, a.dtype, a.shape)
    return a if y == 1 else a.alu(Op.DIV, b)


def _like(value: UOp | Number, x: UOp) -> UOp:
    return value if isinstance(value, UOp) else full(value, x.dtype, x.shape)


# ---- reductions


def keep_axes(shape: Shape, axes: Iterable[int]) -> Shape:
    """Return `shape` with the size of the reduced `axes` set to 1."""
    gone = set(axes)
    return tuple(1 if a in gone else d for a, d in enumerate(shape))


def reduce(x: UOp, op: Op, axes: Iterable[int]) -> UOp:
    """Reduce `x` over `axes`, which are removed."""
    gone = {a % len(x.shape) for a in axes}
    if not gone:
        return x
    if (found := reduced(x, op, gone)) is not None:
        return found
    shape = tuple(d for a, d in enumerate(x.shape) if a not in gone)
    real = {a for a in gone if not same(x.shape[a], 1)}
    x, real, count = _unexpand(x, op, real)
    node = UOp(Op.REDUCE_AXIS, x.dtype, (x,), (op, tuple(sorted(real)))) if real else x
    node = reshape(node, shape)
    if same(count, 1):
        return node
    wide = node.dtype.accumulator  # a narrow type cannot represent every count
    return mul(node.cast(wide), full(count, wide, node.shape)).cast(node.dtype)


def _unexpand(x: UOp, op: Op, axes: set[int]) -> tuple[UOp, set[int], Dim]:
    """Drop expanded axes from a reduction: a sum of n equal terms is n times the term.

    Return the node, the axes that are left to reduce, and the factor.
    """
    if x.op is not Op.EXPAND or op is Op.MUL:
        return x, axes, 1
    source = x.src[0]
    # An axis that may be empty has no term.
    repeated = {a for a in axes if same(source.shape[a], 1) and dim_span(x.shape[a])[0] > 0}
    if not repeated:
        return x, axes, 1
    count = prod(x.shape[a] for a in repeated) if op is Op.ADD else 1
    return expand(source, keep_axes(x.shape, repeated)), axes - repeated, count


def sum_to(x: UOp, shape: Shape) -> UOp:
    """Sum `x` over the axes along which `shape` was broadcast to it."""
    missing = len(x.shape) - len(shape)
    axes = [a for a, d in enumerate(x.shape)
            if a < missing or (same(shape[a - missing], 1) and not same(d, 1))]  # fmt: skip
    return reshape(reduce(x, Op.ADD, axes), shape)


def volume(shape: Shape, axes: Iterable[int] | None = None) -> Dim:
    """Return the number of elements of `shape` along `axes`, or in total."""
    return prod(shape if axes is None else (shape[a] for a in axes))


def quotient(a: Dim, b: int) -> Dim:
    """Return ``a // b`` for a dimension `a`."""
    return a // b if isinstance(a, int) else as_dim(a // b)
