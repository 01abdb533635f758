"""Graphs computed for many values of some of their nodes at once.

Each of these nodes gets a new first axis, and so does all that is made of them. A value with a
derivative of its own keeps it: the rule makes the graph of one, which then is batched, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import VariableError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.foreign import Foreign
from kernelrt.ir.ops import ALU
from kernelrt.ir.origin import inherit
from kernelrt.tensor import build
from kernelrt.tensor.batched_runs import batched_run
from kernelrt.tensor.marks import Custom, Kept, Leaf, mark
from kernelrt.tensor.rewriting import below

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["along", "batched", "lifted"]


def batched(roots: Sequence[UOp], given: Mapping[UOp, UOp], count: Dim) -> list[UOp]:
    """`roots` for each of `count` values of some nodes.

    Parameters
    ----------
    roots : sequence of UOp
        What is computed.
    given : mapping of UOp to UOp
        Nodes, and their values along a new first axis.
    count : Dim
        The size of that axis.

    Returns
    -------
    list of UOp
        The values of `roots` along a new first axis.

    Raises
    ------
    VariableError
        A routine of C stands between, and `count` is not fixed.
    """
    return lifted(roots, along(roots, given, count), count)


def along(roots: Sequence[UOp], given: Mapping[UOp, UOp], count: Dim) -> list[UOp | None]:
    """As :func:`batched`, with None for what does not depend on the nodes that are `given`."""
    done: dict[UOp, UOp | None] = dict(given)
    order = list(below(roots, given.__contains__))
    runs: dict[tuple[object, tuple[UOp, ...]], list[UOp]] = {}
    for node in order:
        if node.op is Op.REGION:
            runs.setdefault((node.arg.program, node.src), []).append(node)
    for node in order:
        if node in done:
            continue
        if node.op is Op.REGION:
            done.update(batched_run(runs[node.arg.program, node.src], done, count))
        else:
            done[node] = found = _along(node, done, count)
            if found is not None:
                inherit(found, node)
    return [done[root] for root in roots]


def lifted(roots: Sequence[UOp], values: Sequence[UOp | None], count: Dim) -> list[UOp]:
    """What :func:`along` gave for `roots`, with the axis also where all have the same value."""
    done = dict(zip(roots, values, strict=True))
    return [_lifted(root, done, count) for root in roots]


def _lifted(node: UOp, done: Mapping[UOp, UOp | None], count: Dim) -> UOp:
    """The value of a node along the new axis, on which it need not depend."""
    found = done[node]
    return build.broadcast_to(node, (count, *node.shape)) if found is None else found


def _along(node: UOp, done: Mapping[UOp, UOp | None], count: Dim) -> UOp | None:
    """A node along the new axis; None if it does not depend on it."""
    if node.op is Op.DETACH:
        return _marked(node, done, count)
    if all(done[s] is None for s in node.src):
        return None
    if node.op in _LIFTED:
        return node.replace(src=tuple(_lifted(s, done, count) for s in node.src))
    return _RULES[node.op](node, tuple(_lifted(s, done, count) for s in node.src), count)


def _marked(node: UOp, done: Mapping[UOp, UOp | None], count: Dim) -> UOp | None:
    (x,) = node.src
    known = node.arg
    if not isinstance(known, Custom):
        if done[x] is None:
            return None
        value = _lifted(x, done, count)
        return value if isinstance(known, Kept) else mark(value, known)
    reads = (x, *known.inputs, *known.parts)
    if all(done[s] is None for s in reads):
        return None
    value, *rest = (_lifted(s, done, count) for s in reads)
    n = len(known.inputs)
    rule = _Batched(node, count)
    return mark(value, Custom(rule, tuple(rest[:n]), tuple(rest[n:]), known.arg))


@dataclass(frozen=True, slots=True)
class _Batched:
    """The rule of a value with a derivative of its own, for many at once.

    Attributes
    ----------
    one : UOp
        The value for one.
    count : Dim
        How many there are.
    """

    one: UOp
    count: Dim

    @property
    def nodes(self) -> tuple[UOp, ...]:
        return (self.one,)

    def put(self, of: Callable[[UOp], UOp]) -> _Batched:
        return _Batched(of(self.one), self.count)

    def __call__(self, node: UOp, g: UOp, i: int) -> UOp | None:
        before: Custom = self.one.arg
        now: Custom = node.arg
        # Under marks of their own no other nodes are these, and none is made of what is below
        # them: of a transpose that is transposed again nothing would be left that is given here.
        seed = mark(build.zeros_like(self.one), Leaf())
        value = mark(self.one.src[0], Leaf())
        inputs, parts = (tuple(map(_apart, nodes)) for nodes in (before.inputs, before.parts))
        one = mark(value, replace(before, inputs=inputs, parts=parts))
        share = before.rule(one, seed, i)
        if share is None:
            return None
        pairs = zip((*inputs, *parts), (*now.inputs, *now.parts), strict=True)
        known = {old: new for old, new in pairs if build.const_value(old) is None}
        given = {**known, value: node.src[0], one: node, seed: g}
        return batched([share], given, self.count)[0]


def _apart(node: UOp) -> UOp:
    """A node under a mark of its own, unless it is a number, which rules may look at."""
    return node if build.const_value(node) is not None else mark(node, Leaf())


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
    return UOp(Op.WINDOW, u.dtype, src, _moved(u.arg))


def _unwindow(u: UOp, src: tuple[UOp, ...], count: Dim) -> UOp:
    shape, windows = u.arg
    return UOp(Op.UNWINDOW, u.dtype, src, ((count, *shape), _moved(windows)))


def _reduce(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    op, axes = u.arg
    return build.reduce(src[0], op, [a + 1 for a in axes])


def _own(shape: build.Shape) -> UOp:
    """For each element its place along the first axis."""
    return build.iota_along(shape, 0).cast(dt.int64)


def _gather(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    x, *places = src
    return UOp(Op.GATHER, u.dtype, (x, _own(places[0].shape), *places))


def _scatter(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    base, values, *places = src
    return u.replace(src=(base, values, _own(values.shape), *places))


def _bound(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return u.replace(src=(src[0], u.src[1]))


def _cat(u: UOp, src: tuple[UOp, ...], _count: Dim) -> UOp:
    return build.cat(src, u.arg + 1)


def _call(u: UOp, src: tuple[UOp, ...], count: Dim) -> UOp:
    if not isinstance(count, int):
        raise VariableError(f"{u.arg.name}: the number of problems must be fixed, not {count}")
    if isinstance(u.arg, Foreign):
        return build.foreign(u.arg.callee.mapped(count), u.arg.index, *src)
    if not count:  # a routine has problems to solve
        return build.full(0, u.dtype, (0, *u.shape))
    # The problems of one value follow each other, as those of a batch do.
    found = build.call(replace(u.arg, rows=count * u.arg.rows), *src)
    return build.reshape(found, (count, *u.shape))


#: What is computed of elements of its operands alone, so that these only have to be there.
_LIFTED = ALU | {Op.CONTIGUOUS}
_RULES: dict[Op, Callable[[UOp, tuple[UOp, ...], Dim], UOp]] = {
    Op.RESHAPE: _reshape, Op.EXPAND: _expand, Op.PERMUTE: _permute, Op.SHRINK: _shrink,
    Op.PAD: _pad, Op.FLIP: _flip, Op.WINDOW: _window, Op.UNWINDOW: _unwindow,
    Op.REDUCE_AXIS: _reduce, Op.GATHER: _gather, Op.SCATTER: _scatter, Op.CAT: _cat,
    Op.BOUND: _bound, Op.CALL: _call,
}  # fmt: skip
