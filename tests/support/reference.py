"""Evaluates tensor-stage graphs with NumPy, node by node: the truth for schedules and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from support.routines import called
from support.scalars import UPDATES, Array, compute, numpy_type, reduce

from kernelrt import dtype as dt
from kernelrt.errors import IndexBoundsError
from kernelrt.ir import Dim, Op, UOp, toposort
from kernelrt.ir.ops import ALU
from kernelrt.ir.region import Choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Evaluator:
    """Evaluates graphs and remembers every node's value.

    Parameters
    ----------
    variables : mapping of str to int, optional
        Values of the Variables.
    memory : mapping of UOp to array, optional
        Flat content of each BUFFER; by default that of the buffer itself.
    wide : bool
        Whether to compute all floats in float64.

    Raises
    ------
    IndexBoundsError
        An index is out of range.
    """

    def __init__(
        self,
        variables: Mapping[str, int] | None = None,
        memory: Mapping[UOp, Array] | None = None,
        *,
        wide: bool = False,
    ) -> None:
        self.variables = dict(variables or {})
        self.memory = memory
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

    def type(self, dtype: dt.DType) -> np.dtype[Any]:
        return numpy_type(dtype, wide=self.wide)

    def dim(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        return int(Evaluator(self.variables)([dim])[0])

    def shape(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(map(self.dim, shape))

    def _value(self, u: UOp) -> Any:
        src = [self.values[s] for s in u.src]
        return compute(u, src, wide=self.wide) if u.op in ALU else _RULES[u.op](self, u, *src)


def evaluate(
    roots: Sequence[UOp],
    variables: Mapping[str, int] | None = None,
    memory: Mapping[UOp, Array] | None = None,
    *,
    wide: bool = False,
) -> list[Array]:
    """Return the values of `roots`; for the parameters see :class:`Evaluator`."""
    return Evaluator(variables, memory, wide=wide)(roots)


def _buffer(e: Evaluator, u: UOp) -> Array:
    if e.memory is not None:
        return e.memory[u].copy()
    raw = u.arg.raw()
    if u.dtype is dt.bfloat16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.copy()


def _bound(e: Evaluator, u: UOp, index: Array, size: Array) -> Array:
    if np.any((index < 0) | (index >= size)):
        raise IndexBoundsError(f"index {index} is out of range for an axis of size {size}")
    return index


def _slices(e: Evaluator, bounds: Sequence[tuple[Dim, Dim]]) -> tuple[slice, ...]:
    return tuple(slice(e.dim(lo), e.dim(hi)) for lo, hi in bounds)


def _pad(e: Evaluator, u: UOp, x: Array) -> Array:
    widths = [(e.dim(lo), e.dim(hi)) for lo, hi in u.arg]
    return np.pad(x, widths) if widths else x  # NumPy below 2.3 refuses to pad no axes


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


def _reduce(_: Evaluator, u: UOp, x: Array) -> Array:
    reducer, axes = u.arg
    return reduce(u, x, axes, reducer)


def _gather(e: Evaluator, u: UOp, x: Array, *indices: Array) -> Array:
    return x[tuple(indices)]


def _scatter(e: Evaluator, u: UOp, base: Array, v: Array, *indices: Array) -> Array:
    out = base.copy()
    if u.arg is None:
        out[tuple(indices)] = v
        return out
    UPDATES[u.arg].at(out, tuple(indices), v)
    return out


def _inner(e: Evaluator, given: Mapping[UOp, Array], roots: Sequence[UOp]) -> list[Array]:
    """Return values of the graphs of a control-flow region."""
    inside = Evaluator(e.variables, e.memory, wide=e.wide)
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
    turns = range(program.trip_count)
    if program.counted:
        turns = range(min(max(int(operands[-1]), 0), program.trip_count))
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
    Op.BOUND: _bound,
    Op.CALL: lambda _e, u, *operands: called(u.arg, list(operands)),
    Op.REGION: _region,
    Op.RESHAPE: lambda e, u, x: x.reshape(e.shape(u.arg)),
    Op.EXPAND: lambda e, u, x: np.broadcast_to(x, e.shape(u.arg)),
    Op.PERMUTE: lambda _e, u, x: x.transpose(u.arg),
    Op.SHRINK: lambda e, u, x: x[_slices(e, u.arg)],
    Op.PAD: _pad,
    Op.FLIP: lambda _e, u, x: np.flip(x, u.arg),
    Op.IM2COL: _window,
    Op.COL2IM: _unwindow,
    Op.REDUCE_AXIS: _reduce,
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.CAT: lambda _e, u, *parts: np.concatenate(parts, u.arg),
    Op.CONTIGUOUS: lambda _e, _u, x: x,
    Op.DETACH: lambda _e, _u, x: x,
}
