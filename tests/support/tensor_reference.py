"""Evaluates tensor-stage graphs directly in NumPy: what scheduling has to agree with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from support.routines import called

from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ops import ALU

from .kernel_reference import Array, elementwise, numpy_type, reduce_axes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_UPDATES: dict[Op, np.ufunc] = {
    Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum,
}  # fmt: skip


class TensorReference:
    """Values of tensor-stage nodes.

    Parameters
    ----------
    memory : mapping of UOp to array
        Flat content of each BUFFER.
    variables : mapping
        Values of Variables by name.
    """

    def __init__(self, memory: Mapping[UOp, Array], variables: Mapping[str, int]) -> None:
        self.memory = memory
        self.variables = variables
        self.value: dict[UOp, Array] = {}

    def evaluate(self, roots: Iterable[UOp]) -> list[Array]:
        """Arrays of `roots`, in their shapes."""
        roots = list(roots)
        for node in toposort(roots):
            if node not in self.value:
                self.value[node] = self._evaluate(node)
        return [self.value[r] for r in roots]

    def dim(self, d: Any) -> int:
        """A dimension as a number."""
        return d if isinstance(d, int) else int(self.evaluate([d])[0])

    def shape(self, node: UOp) -> tuple[int, ...]:
        """A node's shape in numbers."""
        return tuple(self.dim(d) for d in node.shape)

    def _evaluate(self, node: UOp) -> Array:
        kind = numpy_type(node.dtype)
        if node.op is Op.CONST:
            return np.asarray(node.arg, kind)
        if node.op is Op.VAR:
            return np.asarray(self.variables[node.arg[0]], kind)
        if node.op is Op.BUFFER:
            return self.memory[node].copy()
        values = [self.value[s] for s in node.src]
        if node.op in ALU:
            return elementwise(node, values)
        return np.asarray(_RULES[node.op](self, node, *values))

    def reduce(self, node: UOp, x: Array) -> Array:
        return reduce_axes(node, x, node.arg[1], node.arg[0], False)

    def shrink(self, node: UOp, x: Array) -> Array:
        return x[tuple(slice(self.dim(lo), self.dim(hi)) for lo, hi in node.arg)]

    def pad(self, node: UOp, x: Array) -> Array:
        widths = [(self.dim(lo), self.dim(hi)) for lo, hi in node.arg]
        return np.pad(x, widths) if widths else x

    def window(self, node: UOp, x: Array) -> Array:
        shape = self.shape(node)
        out = np.empty(shape, x.dtype)
        rank = x.ndim
        for position in np.ndindex(*shape):
            at = list(position[:rank])
            for tap, (axis, _, stride, dilation) in zip(position[rank:], node.arg, strict=True):
                at[axis] = at[axis] * stride + tap * dilation
            out[position] = x[tuple(at)]
        return out

    def unwindow(self, node: UOp, y: Array) -> Array:
        shape, windows = node.arg
        out = np.zeros(self.shape(node), y.dtype)
        for position in np.ndindex(*out.shape):
            at = list(position)
            for k, (axis, _, stride, dilation) in enumerate(windows):
                first = at[axis] - position[len(shape) + k] * dilation
                at[axis] = first // stride if first >= 0 and first % stride == 0 else -1
            if all(0 <= i < n for i, n in zip(at, y.shape, strict=True)):
                out[position] = y[tuple(at)]
        return out

    def scatter(self, node: UOp, base: Array, value: Array, *index: Array) -> Array:
        out = base.copy()
        if node.arg is None:
            out[index] = value
        else:
            _UPDATES[node.arg].at(out, index, value)
        return out

    def bound(self, _node: UOp, index: Array, size: Array) -> Array:
        return np.where((index >= 0) & (index < size), index, 0)


_RULES: dict[Op, Callable[..., Any]] = {
    Op.IOTA: lambda _, u, n: np.arange(int(n), dtype=numpy_type(u.dtype)),
    Op.RESHAPE: lambda r, u, x: x.reshape(r.shape(u)),
    Op.EXPAND: lambda r, u, x: np.broadcast_to(x, r.shape(u)),
    Op.PERMUTE: lambda _, u, x: x.transpose(u.arg),
    Op.SHRINK: TensorReference.shrink,
    Op.PAD: TensorReference.pad,
    Op.FLIP: lambda _, u, x: np.flip(x, u.arg),
    Op.WINDOW: TensorReference.window,
    Op.UNWINDOW: TensorReference.unwindow,
    Op.REDUCE_AXIS: TensorReference.reduce,
    Op.GATHER: lambda _, __, x, *i: x[i],
    Op.SCATTER: TensorReference.scatter,
    Op.CAT: lambda _, u, *x: np.concatenate(x, u.arg),
    Op.CONTIGUOUS: lambda _, __, x: x,
    Op.DETACH: lambda _, __, x: x,
    Op.BOUND: TensorReference.bound,
    Op.CALL: lambda _, u, *operands: called(u.arg, list(operands)),
}
