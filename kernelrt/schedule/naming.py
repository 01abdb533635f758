"""Numbers for the loops of reductions while kernels are still being put together.

Each kernel counts its own, apart from the loops of stores: kernels of one structure then ask the
same questions about their indices. Where two become one, the loops of one are numbered anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir import Op, UOp, substitute, toposort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["INNER", "renamed", "shifted"]

#: Loops of reductions have this number or a higher one.
INNER = 1 << 16


def shifted(loops: Iterable[UOp], by: int) -> dict[UOp, UOp]:
    """Each of `loops` -> the one that has its number plus `by`."""
    return {r: r.replace(arg=r.arg + by) for r in loops}


def renamed(roots: Sequence[UOp], names: Mapping[UOp, UOp]) -> tuple[UOp, ...]:
    """Expressions with other loops, also where an index read from data stands for itself.

    Such a stand-in is a LOAD whose `arg` holds the index that it is read at.
    """
    done = dict(names)
    stack = [(node, False) for node in _stand_ins(roots)]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        tensor, index = node.arg
        if ready:
            src, at = substitute(node.src, done), substitute(index, done)
            done[node] = node.replace(src=tuple(src), arg=(tensor, tuple(at)))
        else:
            stack.append((node, True))
            stack.extend((n, False) for n in _stand_ins(index) if n not in done)
    return tuple(substitute(roots, done))


def _stand_ins(roots: Sequence[UOp]) -> list[UOp]:
    return [n for n in toposort(roots) if n.op is Op.LOAD]
