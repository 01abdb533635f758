"""Tensor-stage graphs evaluated with NumPy, node by node: what the pipeline has to agree with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from support.math_truth import NUMPY
from support.routines import called

from kernelrt import dtype as dt
from kernelrt.errors import IndexBoundsError
from kernelrt.ir import Dim, Op, UOp, toposort
from kernelrt.ir.region import Choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Array = np.ndarray[Any, Any]


class Evaluator:
    """Evaluates graphs, remembering every node's value.

    Parameters
    ----------
    variables : mapping of str to int, optional
        Values of the Variables.
    wide : bool
        Whether to compute all floats in float64.
    """

    def __init__(self, variables: Mapping[str, int] | None = None, *, wide: bool = False) -> None:
        self.variables = dict(variables or {})
        self.wide = wide
        self.values: dict[UOp, Array] = {}

    def __call__(self, roots: Sequence[UOp]) -> list[Array]:
        with np.errstate(all="ignore"):
            for node in toposort(roots, stop=self.values.__contains__):
                if node not in self.values:
                    shape = self.shape(node.shape)
                    value = np.asarray(self._value(node))
                    assert value.shape == shape, (node, value.shape, shape)
                    self.values[node] = value.astype(self.type(node.dtype), copy=False)
        return [self.values[r] for r in roots]

    def type(self, dtype: dt.DType) -> Any:
        if self.wide and dtype.is_float:
            return np.float64
        return np.float32 if dtype is dt.bfloat16 else dt.to_numpy(dtype)

    def dim(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        return int(Evaluator(self.variables)([dim])[0])

    def shape(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(map(self.dim, shape))

    def _value(self, u: UOp) -> Any:
        src = [self.values[s] for s in u.src]
        rule = _RULES.get(u.op)
        if rule is not None:
            return rule(self, u, *src)
        return _ALU[u.op](*src)


def evaluate(
    roots: Sequence[UOp], variables: Mapping[str, int] | None = None, *, wide: bool = False
) -> list[Array]:
    """The values of `roots`."""
    return Evaluator(variables, wide=wide)(roots)


def _buffer(e: Evaluator, u: UOp) -> Array:
    raw = u.arg.raw()
    if u.dtype is dt.bfloat16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.copy()


def _cast(e: Evaluator, u: UOp, x: Array) -> Array:
    if u.dtype is dt.bfloat16 and not e.wide:
        bits = x.astype(np.float32).view(np.uint32)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        rounded = (bits.astype(np.uint32) << 16).view(np.float32)
        return np.where(np.isnan(x), np.float32(np.nan), rounded)
    return x.astype(e.type(u.dtype))


def _bound(e: Evaluator, u: UOp, index: Array, size: Array) -> Array:
    if np.any((index < 0) | (index >= size)):
        raise IndexBoundsError(f"index out of range: {index} for {size}")
    return index


def _slices(e: Evaluator, bounds: Sequence[tuple[Dim, Dim]]) -> tuple[slice, ...]:
    return tuple(slice(e.dim(lo), e.dim(hi)) for lo, hi in bounds)


def _pad(e: Evaluator, u: UOp, x: Array) -> Array:
    return np.pad(x, [(e.dim(lo), e.dim(hi)) for lo, hi in u.arg])


def _window(e: Evaluator, u: UOp, x: Array) -> Array:
    out = x
    for axis, kernel, stride, dilation in u.arg:
        count = max(0, (x.shape[axis] - dilation * (kernel - 1) - 1) // stride + 1)
        places = np.arange(count)[:, None] * stride + np.arange(kernel)[None, :] * dilation
        out = np.moveaxis(np.take(out, places, axis=axis), axis + 1, -1)
    return out


def _unwindow(e: Evaluator, u: UOp, y: Array) -> Array:
    shape, windows = e.shape(u.arg[0]), u.arg[1]
    out = y
    rank = len(shape)
    for t, (axis, kernel, stride, dilation) in enumerate(windows):
        moved = np.zeros((*out.shape[:axis], shape[axis], *out.shape[axis + 1 :]), out.dtype)
        for k in range(kernel):
            for j in range(out.shape[axis]):
                at = [slice(None)] * out.ndim
                at[rank + t] = slice(k, k + 1)
                to = list(at)
                place = j * stride + k * dilation
                at[axis], to[axis] = slice(j, j + 1), slice(place, place + 1)
                moved[tuple(to)] = out[tuple(at)]
        out = moved
    return out


def _reduce(e: Evaluator, u: UOp, x: Array) -> Array:
    op, axes = u.arg
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    if op is Op.ADD:
        return np.logical_or.reduce(x, axis=axes) if x.dtype == bool else x.sum(axes, dtype=wide)
    if op is Op.MUL:
        return x.prod(axes, dtype=wide)
    return x.max(axes) if op is Op.MAX else x.min(axes)


def _gather(e: Evaluator, u: UOp, x: Array, *indices: Array) -> Array:
    return x[tuple(indices)]


_UPDATES: dict[Op, np.ufunc] = {
    Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum,
}  # fmt: skip


def _scatter(e: Evaluator, u: UOp, base: Array, v: Array, *indices: Array) -> Array:
    out = base.copy()
    if u.arg is None:
        out[tuple(indices)] = v
        return out
    _UPDATES[u.arg].at(out, tuple(indices), v)
    return out


def _inner(e: Evaluator, given: Mapping[UOp, Array], roots: Sequence[UOp]) -> list[Array]:
    """Values of the graphs of a region."""
    inside = Evaluator(e.variables, wide=e.wide)
    inside.values.update({p: np.asarray(v).reshape(p.shape) for p, v in given.items()})
    return inside(roots)


def _region(e: Evaluator, u: UOp, *operands: Array) -> Array:
    program = u.arg.program
    if isinstance(program, Choice):
        which = min(max(int(operands[0]), 0), program.branches - 1)
        given = dict(zip(program.ports, operands[1:], strict=True))
        return _inner(e, given, [u.arg.values[which]])[0]
    carried = len(program.carries)
    carry = [operands[k] for k in range(carried)]
    turns = range(program.turns)
    if program.counted:
        turns = range(min(max(int(operands[-1]), 0), program.turns))
    rows: dict[int, Array] = {}
    for t in reversed(turns) if program.reverse else turns:
        if program.conditional and not carry[0]:
            break
        given = dict(zip(program.ports, carry, strict=False))
        for k in range(carried, len(program.ports) - program.numbered):
            sliced = k < carried + program.stacked
            given[program.ports[k]] = operands[k][t] if sliced else operands[k]
        if program.numbered:
            given[program.ports[-1]] = np.array([t], np.int64)
        *carry, last = _inner(e, given, [*program.carries, u.arg.each])
        rows[t] = last
    if u.arg.carry >= 0:
        return np.asarray(carry[u.arg.carry]).reshape(u.shape)
    out = np.zeros(u.shape, e.type(u.dtype))
    for t, row in rows.items():
        out[t] = row
    return out


_RULES: dict[Op, Any] = {
    Op.CONST: lambda e, u: np.array(u.arg).astype(e.type(u.dtype)),
    Op.VAR: lambda e, u: np.int64(e.variables[u.arg[0]]),
    Op.BUFFER: _buffer,
    Op.IOTA: lambda _e, _u, n: np.arange(int(n)),
    Op.CAST: _cast,
    Op.BITCAST: lambda e, u, x: x.view(e.type(u.dtype)),
    Op.BOUND: _bound,
    Op.CALL: lambda _e, u, *operands: called(u.arg, list(operands)),
    Op.REGION: _region,
    Op.RESHAPE: lambda e, u, x: x.reshape(e.shape(u.arg)),
    Op.EXPAND: lambda e, u, x: np.broadcast_to(x, e.shape(u.arg)),
    Op.PERMUTE: lambda _e, u, x: x.transpose(u.arg),
    Op.SHRINK: lambda e, u, x: x[_slices(e, u.arg)],
    Op.PAD: _pad,
    Op.FLIP: lambda _e, u, x: np.flip(x, u.arg),
    Op.WINDOW: _window,
    Op.UNWINDOW: _unwindow,
    Op.REDUCE_AXIS: _reduce,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.CAT: lambda _e, u, *parts: np.concatenate(parts, u.arg),
    Op.CONTIGUOUS: lambda _e, _u, x: x,
    Op.DETACH: lambda _e, _u, x: x,
}


def _floor_div(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, a // np.where(b == 0, 1, b))


def _mod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.mod(a, b)
    return np.where(b == 0, 0, a % np.where(b == 0, 1, b))


_ALU: dict[Op, Any] = {
    Op.NEG: lambda x: -x,
    Op.ABS: np.abs,
    Op.NOT: np.invert,
    Op.SQRT: np.sqrt,
    **NUMPY,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc,
    Op.ROUND: np.rint,
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    Op.MUL: np.multiply,
    Op.DIV: np.divide,
    Op.IDIV: _floor_div,
    Op.MOD: _mod,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.SHL: np.left_shift,
    Op.SHR: np.right_shift,
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.WHERE: np.where,
    Op.FMA: lambda a, b, c: a * b + c,
}
