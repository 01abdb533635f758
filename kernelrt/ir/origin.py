"""Origins of nodes: line of user code and layer.

`kernelrt.native.source_lines.here` records the origin when a Tensor is created. The origin is not
part of the node's identity, so equal computations are one node. Rewrites copy it with `inherit`.
`spread` gives a node without an origin the origin of a consumer.
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

#: Nodes of these ops, and all nodes that depend on them, keep their origin in a plan.
_KNOWN = frozenset({Op.BUFFER, Op.BOUND, Op.CALL})
#: Maximum number of layers, and of lines, that a summary names; it counts the others.
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """The user code from which a kernel, or a check in it, was made.

    Attributes
    ----------
    file : str
        File of user code.
    line : int
        Line number, from 1.
    function : str
        Function that contains the line.
    op : str
        Method or function called there, such as ``"matmul"`` or ``"cross_entropy"``; for an
        optimizer, its class.
    layer : str
        Dotted path of the module, starting with the class of the outermost module:
        ``"Net.layers.2"``. Empty outside of modules.
    backward : bool
        Whether the kernel is part of the gradient of that operation.
    """

    file: str
    line: int
    function: str
    op: str
    layer: str = ""
    backward: bool = False

    @property
    def place(self) -> str:
        """File name and line number."""
        return f"{self.file.rpartition(os.sep)[2]}:{self.line}"

    @property
    def name(self) -> str:
        """Layer and operation, without file and line."""
        name = f"{self.layer} {self.op}" if self.layer else self.op
        return f"grad of {name}" if self.backward else name

    def __str__(self) -> str:
        """Return layer, operation, file name and line."""
        return f"{self.name} at {self.place}"


def adjoint(origin: Raw) -> Raw:
    """Return the origin of a gradient of a node with `origin`."""
    return (*origin[:6], True)


def spread(order: Sequence[UOp]) -> None:
    """Set the origin of each node that has none to the origin of its last consumer.

    Parameters
    ----------
    order : sequence of UOp
        Nodes of a graph, operands first.
    """
    for node in reversed(order):
        if node.origin is not None:
            for operand in node.src:
                if operand.src:
                    inherit(operand, node)


def resolve(origin: Raw) -> Origin:
    """Convert a raw origin to an Origin."""
    code, offset, method, caller, scope, _, backward = origin
    layer = "" if scope is None else str(scope)
    op = "" if method is None else method.co_name.strip("_")
    if caller is not None and not layer:
        op = caller.co_qualname.split(".")[0].strip("_")
    return Origin(
        code.co_filename, _line(code, offset), code.co_name, op or "tensor", layer, backward
    )


def origins(order: Sequence[UOp]) -> tuple[Raw | None, ...]:
    """Return the origin that a plan shows for each node of a graph; `order` has operands first.

    If a node depends only on constants, its origin is None, because graphs from other lines share
    the node. Nodes that can fail keep their origin in any case.
    """
    spread(order)
    known: set[UOp] = set()
    for node in order:
        if node.op in _KNOWN or not known.isdisjoint(node.src):
            known.add(node)
    return tuple([node.origin if node in known else None for node in order])


def lines(found: Iterable[Raw | None]) -> list[Origin | None]:
    """Convert raw origins. The origins of several calls in one line become equal."""
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
    """Describe a kernel in one line: layers and operations, then files and lines."""
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
