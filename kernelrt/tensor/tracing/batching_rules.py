"""Batching rules: compute a graph for many values of some of its nodes at once.

Each of these nodes gets a new first axis, and so do all nodes that depend on it. A value with a
closed-form derivative keeps it: the derivative rule builds the graph for one batch element, and
this graph is batched, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import VariableError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.ffi import FfiResult
from kernelrt.ir.ops import ALU
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import dim_max, is_static, prod
from kernelrt.tensor.autograd.tags import Custom, Kept, below, mark, reads_of, renewed
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing.batched_regions import BatchedValue, batched_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["BatchedValue", "along", "batched"]


def batched(roots: Sequence[UOp], given: Mapping[UOp, UOp], count: Dim) -> list[UOp]:
    """Compute `roots` for each of `count` values of some nodes.

    Parameters
    ----------
    roots : sequence of UOp
        Nodes to compute.
    given : mapping of UOp to UOp
        Nodes, and their values along a new first axis.
    count : Dim
        Size of that axis.

    Returns
    -------
    list of UOp
        Values of `roots` along a new first axis.

    Raises
    ------
    VariableError
        The graph contains a user function or a loop that must be batched, and `count` is not
        fixed.
    """
    return [found.lifted(count) for found in along(roots, given, count)]


def along(roots: Sequence[UOp], given: Mapping[UOp, UOp], count: Dim) -> list[BatchedValue]:
    """Batch like :func:`batched`, but add no axis to roots that do not depend on `given` nodes.

    For example, some carries of a loop may depend on them and others not.
    """
    done = {node: BatchedValue(value, True) for node, value in given.items()}
    order = list(below(roots, given.__contains__))
    runs: dict[tuple[object, tuple[UOp, ...]], list[UOp]] = {}
    for node in order:
        if node.op is Op.REGION:
            runs.setdefault((node.arg.program, node.src), []).append(node)
    for node in order:
        if node in done:
            continue
        reads = reads_of(node)
        if not any(done[s].batched for s in reads):
            done[node] = BatchedValue(renewed(node, {s: done[s].value for s in reads}), False)
        elif node.op is Op.REGION:
            operands = [done[s] for s in node.src]
            done.update(batched_run(runs[node.arg.program, node.src], operands, count))
        else:
            done[node] = BatchedValue(_along(node, done, count), True)
        if done[node].value is not node:
            inherit(done[node].value, node)
    return [done[root] for root in roots]


def _along(node: UOp, done: Mapping[UOp, BatchedValue], count: Dim) -> UOp:
    """Return the batched form of a node that depends on the batch axis."""
    if node.op is Op.DETACH:
        return _marked(node, done, count)
    src = tuple(done[s].lifted(count) for s in node.src)
    return node.replace(src=src) if node.op in _LIFTED else _RULES[node.op](node, src, count)


def _marked(node: UOp, done: Mapping[UOp, BatchedValue], count: Dim) -> UOp:
    known = node.arg
    value, *rest = (done[s].lifted(count) for s in reads_of(node))
    if isinstance(known, Kept):
        return value
    if not isinstance(known, Custom):
        return mark(value, known)
    n = len(known.inputs)
    rule = _Batched(_detached_copy(node), count)
    return mark(value, Custom(rule, tuple(rest[:n]), tuple(rest[n:]), known.arg))


@dataclass(frozen=True, slots=True)
class _Placeholder:
    """The `arg` of a placeholder BUFFER and of its tag, for an input of a derivative rule.

    Attributes
    ----------
    number : int
        Number of the placeholder.
    size : int
        Number of elements.
    """

    number: int
    size: int


def _placeholder(node: UOp, number: int) -> UOp:
    """Return a placeholder with the shape and dtype of `node`.

    Its tag makes it unique and stops simplification. Otherwise a transpose of a transposed
    placeholder would become the memory below it, and the placeholder would not be found.
    """
    tag = _Placeholder(number, math.prod(map(dim_max, node.shape)))
    memory = UOp(Op.BUFFER, node.dtype, (), tag)
    if not is_static(node.shape):
        memory = build.shrink(memory, [(0, prod(node.shape))])
    return mark(build.reshape(memory, node.shape), tag)


def _detached_copy(one: UOp) -> UOp:
    """Return a tagged value with placeholders for its inputs, so that it reads no other graph.

    Constants are not replaced, because rules may read them.
    """
    known: Custom = one.arg
    value, *reads = (
        node if build.const_value(node) is not None else _placeholder(node, k)
        for k, node in enumerate((*one.src, *known.inputs, *known.parts))
    )
    n = len(known.inputs)
    return mark(value, replace(known, inputs=tuple(reads[:n]), parts=tuple(reads[n:])))


@dataclass(frozen=True, slots=True)
class _Batched:
    """The batched form of a closed-form derivative rule.

    Attributes
    ----------
    one : UOp
        The tagged value of one batch element, over placeholders.
    count : Dim
        Number of batch elements.
    """

    one: UOp
    count: Dim

    def __call__(self, node: UOp, g: UOp, i: int) -> UOp | None:
        one = self.one
        before: Custom = one.arg
        now: Custom = node.arg
        seed = _placeholder(one, -1)
        share = before.rule(one, seed, i)
        if share is None:
            return None
        old = (*one.src, *before.inputs, *before.parts)
        new = (*node.src, *now.inputs, *now.parts)
        known = {o: n for o, n in zip(old, new, strict=True) if build.const_value(o) is None}
        return batched([share], {**known, one: node, seed: g}, self.count)[0]


# ---- operations with axes of their own


def _reshape(u: UOp, src: tuple[UOp, ...], count: Dim) -> UOp:
    return build.reshape(src[0], (count, *u.arg))


def _expand(u: UOp, src: tuple[UOp, ...], count: Dim) -> UOp:
    return build.expand(src[0], (count, *u.arg))


def _permute(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return build.permute(src[0], (0, *(a + 1 for a in u.arg)))


def _shrink(u: UOp, src: tuple[UOp, ...], count: Dim) -> UOp:
    return build.shrink(src[0], ((0, count), *u.arg))


def _pad(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return build.pad(src[0], ((0, 0), *u.arg))


def _flip(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return build.flip(src[0], [a + 1 for a in u.arg])


def _moved(windows: tuple[tuple[int, int, int, int], ...]) -> tuple[tuple[int, ...], ...]:
    return tuple((axis + 1, *rest) for axis, *rest in windows)


def _window(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return UOp(Op.IM2COL, u.dtype, src, _moved(u.arg))


def _unwindow(u: UOp, src: tuple[UOp, ...], count: Dim) -> UOp:
    shape, windows = u.arg
    return UOp(Op.COL2IM, u.dtype, src, ((count, *shape), _moved(windows)))


def _reduce(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    op, axes = u.arg
    return build.reduce(src[0], op, [a + 1 for a in axes])


def _own(shape: build.Shape) -> UOp:
    """Return for each element its index along the first axis."""
    return build.iota_along(shape, 0).cast(dt.int64)


def _gather(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    x, *indices = src
    return UOp(Op.GATHER, u.dtype, (x, _own(indices[0].shape), *indices))


def _scatter(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    base, values, *indices = src
    return u.replace(src=(base, values, _own(values.shape), *indices))


def _bound(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return u.replace(src=(src[0], u.src[1]))


def _cat(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return build.cat(src, u.arg + 1)


def _call(u: UOp, src: tuple[UOp, ...], count: Dim) -> UOp:
    if isinstance(u.arg, FfiResult):
        if not isinstance(count, int):
            raise VariableError(
                f"{u.arg.name}: vmap needs a fixed number of calls, not {count}; leave the batch "
                "axis out of jit(dynamic=...)"
            )
        return build.foreign(u.arg.callee.mapped(count), u.arg.index, *src)
    if count == 0:  # a routine needs at least one problem
        return build.full(0, u.dtype, (0, *u.shape))
    # The problems of all batch elements are contiguous, like one larger batch of problems.
    found = build.call(replace(u.arg, rows=prod((count, u.arg.rows))), *src)
    return build.reshape(found, (count, *u.shape))


#: Elementwise ops, whose batching rule only replaces the operands.
_LIFTED = ALU | {Op.CONTIGUOUS}
_RULES: dict[Op, Callable[[UOp, tuple[UOp, ...], Dim], UOp]] = {
    Op.RESHAPE: _reshape, Op.EXPAND: _expand, Op.PERMUTE: _permute, Op.SHRINK: _shrink,
    Op.PAD: _pad, Op.FLIP: _flip, Op.IM2COL: _window, Op.COL2IM: _unwindow,
    Op.REDUCE_AXIS: _reduce, Op.GATHER: _gather, Op.SCATTER: _scatter, Op.CAT: _cat,
    Op.BOUND: _bound, Op.CALL: _call,
}  # fmt: skip
