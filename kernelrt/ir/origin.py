"""Origins of nodes: the user's line and the layer.

An origin is noted where a Tensor is made (`kernelrt.native.source_lines.here`) and lies beside the
node, not in it: equal computations stay one node. Rewriting hands it on (`inherit`). A node without
an origin takes that of the node which reads it (`spread`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.ir.ops import Op
from kernelrt.native.node import inherit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import CodeType

    from kernelrt.ir.uop import UOp
    from kernelrt.native.source_lines import Raw

__all__ = ["Origin", "adjoint", "inherit", "lines", "origins", "resolve", "spread",
           "summary"]  # fmt: skip

#: Nodes of graphs that keep their origin, as all that is made of them does.
_KNOWN = frozenset({Op.BUFFER, Op.BOUND, Op.CALL})
#: Layers, and places, that a summary names before it only counts.
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """What a kernel, or a check in it, was made from.

    Attributes
    ----------
    file : str
        The user's file.
    line : int
        The line in it, from 1.
    function : str
        The function that the line stands in.
    op : str
        The method or function called there: ``"matmul"``, ``"cross_entropy"``; for optimizers
        their class.
    layer : str
        Dotted path of the module within the outermost one, which its class names:
        ``"Net.layers.2"``. Empty outside of modules.
    backward : bool
        Whether it is part of the gradient of that operation.
    """

    file: str
    line: int
    function: str
    op: str
    layer: str = ""
    backward: bool = False

    @property
    def place(self) -> str:
        """File name and line."""
        return f"{self.file.rpartition(os.sep)[2]}:{self.line}"

    @property
    def name(self) -> str:
        """Layer and operation, without the place."""
        name = f"{self.layer} {self.op}" if self.layer else self.op
        return f"grad of {name}" if self.backward else name

    def __str__(self) -> str:
        """Write layer, operation and place."""
        return f"{self.name} at {self.place}"


def adjoint(origin: Raw) -> Raw:
    """The origin of a gradient of what has `origin`."""
    return (*origin[:6], True)


def spread(order: Sequence[UOp]) -> None:
    """Give each node of a graph that has no origin that of its last consumer.

    Parameters
    ----------
    order : sequence of UOp
        The nodes, operands first.
    """
    for node in reversed(order):
        if node.origin is not None:
            for operand in node.src:
                if operand.src:
                    inherit(operand, node)


def resolve(origin: Raw) -> Origin:
    """`origin` in words."""
    code, offset, method, caller, scope, _, backward = origin
    layer = "" if scope is None else str(scope)
    op = "" if method is None else method.co_name.strip("_")
    if caller is not None and not layer:
        op = caller.co_qualname.split(".")[0].strip("_")
    return Origin(
        code.co_filename, _line(code, offset), code.co_name, op or "tensor", layer, backward
    )


def origins(order: Sequence[UOp]) -> tuple[Raw | None, ...]:
    """The origin of each node of a graph, operands first, as plans made from it have it.

    None for what is made of constants alone, of which graphs of other lines have the same nodes,
    unless it can fail.
    """
    spread(order)
    known: set[UOp] = set()
    for node in order:
        if node.op in _KNOWN or not known.isdisjoint(node.src):
            known.add(node)
    return tuple([node.origin if node in known else None for node in order])


def lines(found: Iterable[Raw | None]) -> list[Origin | None]:
    """Origins in words, so that those of another call of the same line are equal to them."""
    known: dict[Raw | None, Origin | None] = {None: None}
    out = []
    for origin in found:
        raw = origin and (*origin[:5], 0, origin[6])
        if raw not in known:
            assert raw is not None
            known[raw] = resolve(raw)
        out.append(known[raw])
    return out


def _line(code: CodeType, offset: int) -> int:
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def summary(origins: Iterable[Origin]) -> str:
    """What a kernel computes, in a line: its layers and operations, then where they stand."""
    kept = list(dict.fromkeys(origins))
    if not kept:
        return ""
    heads: dict[tuple[bool, str], dict[str, None]] = {}
    for o in kept:
        heads.setdefault((o.backward, o.layer), {})[o.op] = None
    names = []
    for (backward, layer), ops in heads.items():
        text = f"{layer} {_some(list(ops), '+')}" if layer else _some(list(ops), "+")
        names.append(f"grad of {text}" if backward else text)
    places = _some(list(dict.fromkeys(o.place for o in kept)), ", ")
    return f"{_some(names, ', ')} ({places})"


def _some(words: list[str], joint: str) -> str:
    text = joint.join(words[:_MOST_NAMED])
    more = len(words) - _MOST_NAMED
    return f"{text}{joint}{more} more" if more > 0 else text
