"""Bottom-up graph rewriting with tables of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kernelrt.ir.ops import Op
from kernelrt.ir.uop import UOp, toposort
from kernelrt.native.node import inherit, substitute

__all__ = ["Memo", "Rule", "Table", "rewrite", "substitute"]

#: Returns the node that replaces a node, or None to keep the node.
Rule = Callable[[UOp], UOp | None]
#: Rules to try on a node, in order, by the node's op.
Table = Mapping[Op, tuple[Rule, ...]]



class Memo(Protocol):
    """Storage of rewrite results, such as a dict."""

    def __contains__(self, u: UOp, /) -> bool: ...
    def __getitem__(self, u: UOp, /) -> UOp: ...
    def __setitem__(self, u: UOp, simple: UOp, /) -> None: ...
    def get(self, u: UOp, default: UOp, /) -> UOp:
        """Return the result stored for `u`, or `default`."""
        ...


_LIMIT = 64


def rewrite(
    roots: Iterable[UOp], table: Table, memo: Memo | None = None
) -> list[UOp]:
    """Apply the rules of `table` bottom-up until none matches; return the rewritten `roots`.

    Parameters
    ----------
    roots : iterable of UOp
        Graphs to rewrite; shared nodes are rewritten once.
    table : Table
        Rules by op.
    memo : Memo, optional
        Results of earlier calls with the same table; reused and extended.
    """
    done: Memo = {} if memo is None else memo
    roots = list(roots)
    for node in toposort(roots, stop=done.__contains__):
        if node not in done:
            done[node] = _settle(node, table, done)
    return [done[root] for root in roots]


def _settle(node: UOp, table: Table, done: Memo) -> UOp:
    src = tuple([done[s] for s in node.src])
    current = node if src == node.src else node.replace(src=src)
    for _ in range(_LIMIT):
        following = _apply(current, table)
        if following is None:
            return current
        inherit(following, current)
        if following in done:  # true also for nodes that the memo marks as final
            return done[following]
        # Below its root, only nodes that the rule newly built need rewriting.
        fresh = [s for s in following.src if s not in done]
        if fresh:
            rewrite(fresh, table, done)
        src = tuple([done.get(s, s) for s in following.src])
        if src != following.src:  # an operand was rewritten before
            following = following.replace(src=src)
        if following is current:
            return current
        current = following
    return current


def _apply(node: UOp, table: Table) -> UOp | None:
    for rule in table.get(node.op, ()):
        found = rule(node)
        if found is not None and found is not node:
            return found
    return None
