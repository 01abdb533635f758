"""Graphs with other nodes in the place of some of theirs, in values and in histories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from kernelrt.ir import Op, UOp
from kernelrt.tensor.marks import Custom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["below", "reads_of", "rewritten"]


def reads_of(node: UOp) -> tuple[UOp, ...]:
    """What a node is made of, and what its mark knows of."""
    if node.op is not Op.DETACH or not isinstance(node.arg, Custom):
        return node.src
    mark = node.arg
    return (*node.src, *mark.inputs, *mark.parts)


def below(roots: Iterable[UOp], stop: Callable[[UOp], bool]) -> Iterator[UOp]:
    """The nodes of graphs and of their histories, each once, operands first.

    Nothing is visited below a node for which `stop` is true; the node itself is.
    """
    seen: set[UOp] = set()
    stack = [(root, False) for root in roots]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if not stop(node):
                stack.extend((s, False) for s in reads_of(node) if s not in seen)


def rewritten(roots: Sequence[UOp], put: Mapping[UOp, UOp]) -> list[UOp]:
    """`roots` with the values of `put` in the place of its keys, which have the same shapes."""
    done: dict[UOp, UOp] = dict(put)
    for node in below(roots, put.__contains__):
        if node not in done:
            done[node] = _renewed(node, done)
    return [done[root] for root in roots]


def _renewed(node: UOp, done: Mapping[UOp, UOp]) -> UOp:
    reads = reads_of(node)
    if all(done[s] is s for s in reads):
        return node
    src = tuple(done[s] for s in node.src)
    if len(reads) == len(node.src):
        return node.replace(src=src)
    mark = cast("Custom", node.arg)
    inputs, parts = (tuple(done[s] for s in nodes) for nodes in (mark.inputs, mark.parts))
    arg = replace(mark, inputs=inputs, parts=parts)
    return node.replace(src=src, arg=arg)
