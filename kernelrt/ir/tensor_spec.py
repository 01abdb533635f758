"""Verifier of the tensor stage: rules by op.

Verifiers run between stages, so that an error is found in the pass that caused it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.ir.ffi import FfiResult
from kernelrt.ir.node_spec import (
    ELEMENTWISE,
    Check,
    apply_table,
    at_least,
    constant,
    integer,
    is_of,
    keeps_type,
    operands,
    variable,
)
from kernelrt.ir.ops import REDUCERS, Op
from kernelrt.ir.region import region_fault
from kernelrt.ir.routine import Routine
from kernelrt.ir.shape import dim_span, prod, same, window_count
from kernelrt.ir.span import span
from kernelrt.ir.uop import Dim, UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["TENSOR", "verify_tensor"]


def verify_tensor(roots: Iterable[UOp]) -> None:
    """Check a tensor-stage graph.

    Raises
    ------
    SpecError
        A node breaks a rule; the message names both.
    """
    for node in toposort(roots):
        apply_table(TENSOR, "tensor", node)


def _same_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    return a == b or (len(a) == len(b) and all(map(same, a, b)))


def _shapes_agree(u: UOp) -> str | None:
    first = u.src[0].shape
    for s in u.src[1:]:
        if not _same_shape(first, s.shape):
            return f"operand shapes {first} and {s.shape} differ; broadcast explicitly"
    return None


def _index_shapes_agree(u: UOp) -> str | None:
    indices = u.src[1:] if u.op is Op.GATHER else u.src[2:]
    rank = len(u.src[0].shape)
    if len(indices) != rank:
        return f"has {len(indices)} index tensors for {rank} axes; it takes one per axis"
    reference = u.src[1].shape
    for s in indices:
        if s.dtype is not dt.int64:
            return f"an index is {s.dtype.name}; indices are int64"
        if not _same_shape(reference, s.shape):
            return f"index shapes {reference} and {s.shape} differ"
    return None


def _scatter_values(u: UOp) -> str | None:
    if u.arg is not None and u.arg not in REDUCERS:
        return f"its arg {u.arg!r} is not a reducer; use ADD, MUL, MAX, MIN or None"
    if u.src[1].dtype is u.dtype:
        return None
    return f"scatters {u.src[1].dtype.name} into {u.dtype.name}; types must be equal"


def _holder(u: UOp) -> str | None:
    return None if hasattr(u.arg, "size") else f"its arg {u.arg!r} has no size"


def _reshape(u: UOp) -> str | None:
    old, new = prod(u.src[0].shape), prod(u.arg)
    return None if same(old, new) else f"shapes {u.src[0].shape} and {u.arg} differ in elements"


def _expand(u: UOp) -> str | None:
    old = u.src[0].shape
    if len(old) != len(u.arg):
        return f"expands from rank {len(old)} to rank {len(u.arg)}, but EXPAND keeps the rank"
    for axis, (a, b) in enumerate(zip(old, u.arg, strict=True)):
        if a != 1 and not same(a, b):
            return f"axis {axis} goes from {a} to {b}; only axes of size 1 can expand"
    return None


def _permute(u: UOp) -> str | None:
    rank = len(u.src[0].shape)
    if sorted(u.arg) == list(range(rank)):
        return None
    return f"axes {u.arg} are not a permutation of 0..{rank - 1}"


def _pairs(u: UOp) -> str | None:
    rank = len(u.src[0].shape)
    if len(u.arg) != rank or any(len(pair) != 2 for pair in u.arg):
        return f"its arg {u.arg} must contain one pair for each of {rank} axes"
    if u.op is Op.PAD and any(_negative(n) for pair in u.arg for n in pair):
        return f"pads by {u.arg}; widths must not be negative"
    if u.op is Op.SHRINK:
        for axis, ((lo, hi), size) in enumerate(zip(u.arg, u.src[0].shape, strict=True)):
            static = all(isinstance(n, int) for n in (lo, hi, size))
            if _negative(lo) or (static and not lo <= hi <= size):
                return f"axis {axis} of size {size} cannot be cut to {lo}..{hi}"
    return None


def _negative(n: Dim) -> bool:
    return n < 0 if isinstance(n, int) else n.vmin < 0 and span(n)[0] < 0


def _axes(axes: Any, rank: int) -> str | None:
    axes = tuple(axes)
    if len(set(axes)) == len(axes) and all(0 <= a < rank for a in axes):
        return None
    return f"axes {axes} must be distinct and lie in 0..{rank - 1}"


def _flip(u: UOp) -> str | None:
    return _axes(u.arg, len(u.src[0].shape))


def _window(u: UOp) -> str | None:
    rank = len(u.src[0].shape)
    return _window_args(u.arg) or _axes((w[0] for w in u.arg), rank)


def _window_args(windows: Any) -> str | None:
    for axis, kernel, stride, dilation in windows:
        if not all(isinstance(n, int) for n in (axis, stride, dilation)):
            return f"axis {axis}: only the kernel size may depend on a Variable"
        if min(dim_span(kernel)[0], stride, dilation) < 1:
            return f"axis {axis}: kernel, stride and dilation must be positive"
    return None


def _unwindow(u: UOp) -> str | None:
    shape, windows = u.arg
    fault = _window_args(windows) or _axes((w[0] for w in windows), len(shape))
    if fault is not None:
        return fault
    dims = list(shape)
    for axis, kernel, stride, dilation in windows:
        dims[axis] = window_count(dims[axis], kernel, stride, dilation)
    expected = (*dims, *(w[1] for w in windows))
    if _same_shape(u.src[0].shape, expected):
        return None
    return f"its operand has shape {u.src[0].shape}, but windows of {shape} have shape {expected}"


def _reduce_axis(u: UOp) -> str | None:
    reducer, axes = u.arg
    if reducer not in REDUCERS:
        return f"{reducer!r} is not a reducer; use ADD, MUL, MAX or MIN"
    return _axes(axes, len(u.src[0].shape))


def _cat(u: UOp) -> str | None:
    first = u.src[0].shape
    if not isinstance(u.arg, int) or not 0 <= u.arg < len(first):
        return f"axis {u.arg} must lie in 0..{len(first) - 1}"
    for s in u.src:
        if s.dtype is not u.dtype:
            return f"concatenates {s.dtype.name} into {u.dtype.name}; types must be equal"
        rest = [
            same(a, b)
            for k, (a, b) in enumerate(zip(first, s.shape, strict=False))
            if k != u.arg
        ]
        if len(s.shape) != len(first) or not all(rest):
            return f"shapes {first} and {s.shape} differ in other axes than {u.arg}"
    return None


def _foreign(u: UOp) -> str | None:
    callee = u.arg.callee
    if not 0 <= u.arg.index < callee.n_results or u.dtype is not u.arg.dtype:
        return (
            f"its dtype is {u.dtype.name}, but {callee!r} has no result {u.arg.index} of that dtype"
        )
    expected = [((*callee.rows, *shape), dtype) for shape, dtype in callee.operands]
    if [(s.shape, s.dtype) for s in u.src] != expected:
        return f"its operands must have the shapes and types of {callee!r}"
    return None


def _call(u: UOp) -> str | None:
    if isinstance(u.arg, FfiResult):
        return _foreign(u)
    if not isinstance(u.arg, Routine):
        return f"its arg {u.arg!r} must be a Routine or an FfiResult"
    if not u.src:
        return "has no operands"
    known = u.arg.signature
    if u.dtype is not known.gives or any(s.dtype is not known.reads for s in u.src):
        return f"must read {known.reads.name} and return {known.gives.name}"
    for s in u.src:
        if 0 in s.shape:
            return f"an operand has shape {s.shape}; routines take at least one element"
    if not _same_shape(tuple(prod(s.shape) for s in u.src), u.arg.operands):
        return f"its operands must have {u.arg.operands} elements"
    return None


TENSOR: Mapping[Op, tuple[Check, ...]] = {
    **{op: (*checks, _shapes_agree) for op, checks in ELEMENTWISE.items()},
    Op.CONST: (operands(0), constant),
    Op.VAR: (operands(0), is_of(dt.int64), variable),
    Op.BUFFER: (operands(0), _holder),
    Op.IOTA: (operands(1), integer),
    Op.BOUND: (operands(2), is_of(dt.int64), keeps_type),
    Op.RESHAPE: (operands(1), keeps_type, _reshape),
    Op.EXPAND: (operands(1), keeps_type, _expand),
    Op.PERMUTE: (operands(1), keeps_type, _permute),
    Op.SHRINK: (operands(1), keeps_type, _pairs),
    Op.PAD: (operands(1), keeps_type, _pairs),
    Op.FLIP: (operands(1), keeps_type, _flip),
    Op.IM2COL: (operands(1), keeps_type, _window),
    Op.COL2IM: (operands(1), keeps_type, _unwindow),
    Op.REDUCE_AXIS: (operands(1), keeps_type, _reduce_axis),
    Op.GATHER: (at_least(1), keeps_type, _index_shapes_agree),
    Op.SCATTER: (at_least(2), keeps_type, _scatter_values, _index_shapes_agree),
    Op.CAT: (at_least(1), _cat),
    Op.CALL: (_call,),
    Op.REGION: (region_fault,),
    Op.CONTIGUOUS: (operands(1), keeps_type),
    Op.DETACH: (operands(1), keeps_type),
}
