"""cond and switch: branches inside a graph, chosen at run time.

Names and argument orders follow ``jax.lax``. See docs/loops.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.func.bodies import (
    Body,
    Carry,
    computes_shared_reads,
    describe,
    first_values,
    made_once,
    node_of,
    own,
    plain_tree,
    realized,
    stepwise,
    within,
)
from kernelrt.func.trees import alike, flatten, leaves_of, named_leaves, nesting, rebuilt
from kernelrt.ir import Op
from kernelrt.ir.shape import format_shape
from kernelrt.jit.effects.purity import BRANCHES
from kernelrt.native.node import count_asked
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import whole
from kernelrt.tensor.tracing import region_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.func.bodies import Traced
    from kernelrt.ir import UOp
    from kernelrt.tensor import Trace

__all__ = ["cond", "switch"]


@computes_shared_reads
def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """Run one of two functions, chosen by a condition at run time.

    Parameters
    ----------
    pred : bool or Tensor
        Condition: a bool of shape ().
    true_fn, false_fn : callable
        Take `operands` and return nested tensors; nesting, shapes and types of the two results
        agree. Both are traced; one of them runs.
    *operands : Tensor, or nested Tensors
        Arguments of both functions.

    Returns
    -------
    Tensor, or nested Tensors
        Result of the chosen function.

    Raises
    ------
    DTypeError, ShapeError
        The condition is not a bool of shape (), or the results of the functions differ in nesting,
        shape or type.
    JitError
        One of the functions, chosen or not, reads a value or sets something other than tensors.

    Examples
    --------
    >>> x = krt.tensor(-3.0)
    >>> krt.cond(x > 0, lambda x: x, lambda x: x * 10, x).item()
    -30.0
    """
    if isinstance(pred, bool | np.bool_):
        return (true_fn if pred else false_fn)(*own(operands))
    if not isinstance(pred, Tensor) or not pred.dtype.is_bool or pred.dims:
        raise DTypeError(
            f"cond: pred: expected a bool or a bool Tensor of shape (), not {describe(pred)}; "
            "compare, as in x > 0, or use where() to choose element by element"
        )
    if stepwise():
        return _called("cond", true_fn if pred.item() else false_fn, operands)
    return _choose("cond", pred.uop.cast(dt.int64), (false_fn, true_fn), operands)


@computes_shared_reads
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Run one of several functions, chosen by an index at run time.

    Parameters
    ----------
    index : int or Tensor
        Index into `branches`: an integer of shape (). An index below 0 chooses the first branch, an
        index past the end the last.
    branches : sequence of callable
        Functions as in :func:`cond`.
    *operands : Tensor, or nested Tensors
        Arguments of all functions.

    Returns
    -------
    Tensor, or nested Tensors
        Result of the chosen function.

    Raises
    ------
    DTypeError, ShapeError, JitError
        See :func:`cond`.

    Examples
    --------
    >>> fs = [lambda x: x, lambda x: x + 1, lambda x: x * x]
    >>> [krt.switch(krt.tensor(i), fs, krt.tensor(5.0)).item() for i in range(3)]
    [5.0, 6.0, 25.0]
    """
    branches = tuple(branches)
    if not branches:
        raise ShapeError("switch: branches: expected at least one function, not none")
    number = whole(index)
    if number is not None:
        return branches[min(max(number, 0), len(branches) - 1)](*own(operands))
    if not isinstance(index, Tensor) or not index.dtype.is_int or index.dims:
        raise DTypeError(
            "switch: index: expected an int or an integer Tensor of shape (), not "
            f"{describe(index)}"
        )
    if len(branches) == 1:
        return branches[0](*own(operands))
    if stepwise():
        chosen = branches[min(max(int(index.item()), 0), len(branches) - 1)]
        return _called("switch", chosen, operands)
    which = index.uop
    if which.dtype is dt.uint64:  # the cast to int64 would make large numbers negative
        which = which.alu(Op.MIN, build.scalar(len(branches) - 1, dt.uint64))
    return _choose("switch", which.cast(dt.int64), branches, operands)


def _called(name: str, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """Call the chosen branch without tracing and compute its result."""
    given = own(plain_tree(tuple(operands), name))
    return realized(plain_tree(function(*given), f"{name}: result"))


def _choose(
    name: str, which: UOp, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    since = count_asked()
    trees: list[Any] = []
    bodies = [Body(name, function) for function in branches]
    carry = Carry(name, bodies[0], tuple(operands))

    def taken(result: Any) -> list[Tensor]:
        tree = plain_tree(result, f"{name}: result")
        trees.append(tree)
        if len(trees) > 1:
            return _like_first(name, trees[0], tree)
        return leaves_of(tree)

    def call(trace: Trace) -> list[Traced]:
        graphs = []
        for made in bodies:
            graphs.append(made.call(trace, carry.given(made), (), taken))
            carry.note_roots(trace, graphs[-1])
        return graphs

    graphs = within(BRANCHES, bodies, call)
    changed: dict[int, Tensor] = {id(t): t for g in graphs for t, _ in g.states}
    tensors = list(changed.values())
    with state.no_grad():
        now = [node_of(t) for t in tensors]
    known = [n for g in graphs for n in (*g.nodes, *(new for _, new in g.states))]
    firsts = first_values(tensors, [*carry.first, *known])
    values = []
    for graph in graphs:
        new = {id(t): node for t, node in graph.states}
        rest = [new.get(id(t), node) for t, node in zip(tensors, now, strict=True)]
        values.append([*graph.nodes, *rest])
    if which.op is Op.CONST:
        which = build.reshape(which, ())
    pairs = list(zip(carry.slots, carry.first, strict=True))
    copies = {old: copy for old, copy in zip(now, firsts, strict=True) if copy is not old}
    found = region_graphs.choice(which, pairs, values, since=since, instead=copies)
    found = made_once(name, tensors, found)
    count = len(graphs[0].nodes)
    if changed:
        with state.no_grad():
            fresh = [Tensor._of(node) for node in found[count:]]
            assign_all(list(zip(tensors, fresh, strict=True)))
    return rebuilt(trees[0], [Tensor._of(node) for node in found[:count]])


def _like_first(name: str, first: Any, other: Any) -> list[Tensor]:
    """Return the leaves of a branch's result after checking them against the first branch."""
    if not alike(first, other):
        raise ShapeError(
            f"{name}: the functions return the different nestings {nesting(first)} and "
            f"{nesting(other)}, where * is a tensor; return the same nesting from all"
        )
    leaves = flatten(other, first, name)
    for (path, one), another in zip(named_leaves(first), leaves, strict=True):
        if not build.same_shape(one.dims, another.dims):
            raise ShapeError(
                f"{name}: result{path} has shape {format_shape(one.dims)} from the first function "
                f"and {format_shape(another.dims)} from another; make the shapes equal, for "
                "example with broadcast_to()"
            )
        if one.dtype is not another.dtype:
            raise DTypeError(
                f"{name}: result{path} has dtype {one.dtype.name} from the first function and "
                f"{another.dtype.name} from another; make the dtypes equal, for example with "
                f"x.to({one.dtype.name!r})"
            )
    return leaves
