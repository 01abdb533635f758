"""Regions: bodies of loops and branches as graphs.

A region has *ports*, BUFFER nodes over a :class:`Port`, for what it is given; what it computes is
made of these and of constants alone. It is no part of the graph that it is used in: a REGION node
there names it in its `arg`, with one of the values that it gives. Nodes with one program and the
same operands are values of one run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.errors import VariableError
from kernelrt.ir.ops import Op
from kernelrt.ir.shape import dim_max, is_static, same
from kernelrt.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.dtype import DType
    from kernelrt.ir.uop import Dim

__all__ = ["Choice", "Loop", "Outcome", "Port", "every_node", "port", "region_fault"]


@dataclass(frozen=True, slots=True)
class Port:
    """Memory that a region is given; the `arg` of a BUFFER in its graph.

    Attributes
    ----------
    number : int
        Its place among those of the region.
    size : int
        Elements.
    """

    number: int
    size: int


def port(number: int, size: int, dtype: DType) -> UOp:
    """The BUFFER node of a port."""
    return UOp(Op.BUFFER, dtype, (), Port(number, size))


@dataclass(frozen=True, slots=True)
class Loop:
    """A region that runs again and again.

    Its operands are the first values of what it carries from turn to turn, arrays of which each
    turn is given one slice along their first axis, values that are the same in every turn, and, if
    it is `counted`, how many turns there are. It has a port for each of them, but for the last.

    Attributes
    ----------
    ports : tuple of UOp
        What a turn is given. Where it is `numbered`, the last is the number of the turn, int64.
    carries : tuple of UOp
        What a turn makes of what is carried, in the shapes and types of the first ports.
    stacked : int
        How many ports behind those are slices.
    turns : Dim
        How many turns there are; the most, where it is `counted` or has a condition. Where it
        depends on Variables the loop is counted, by an operand that says the same.
    reverse : bool
        Whether the turns go from the last slice to the first.
    conditional : bool
        Whether the first thing that is carried, a bool, says if another turn follows.
    counted : bool
        Whether the last operand, an int64, says how many turns there are.
    numbered : bool
        Whether a turn is given its number.
    checkpoint : bool
        Whether its derivative computes each turn again, from what was carried into it.
    """

    ports: tuple[UOp, ...]
    carries: tuple[UOp, ...]
    stacked: int
    turns: Dim
    reverse: bool = False
    conditional: bool = False
    counted: bool = False
    numbered: bool = False
    checkpoint: bool = False

    @property
    def n_operands(self) -> int:
        """How many operands it has."""
        return len(self.ports) - self.numbered + self.counted

    def slices(self, k: int) -> bool:
        """Whether each turn is given one slice of operand `k`."""
        return 0 <= k - len(self.carries) < self.stacked

    @property
    def values(self) -> tuple[UOp, ...]:
        """The graphs that it holds."""
        return self.carries

    def with_values(self, values: tuple[UOp, ...]) -> Loop:
        """The loop with others in their place."""
        return replace(self, carries=values)


@dataclass(frozen=True, slots=True)
class Choice:
    """Regions with the same ports, one of which runs.

    The first operand, an int64, says which one; the ports are for the others.

    Attributes
    ----------
    ports : tuple of UOp
        What each is given.
    branches : int
        How many there are.
    """

    ports: tuple[UOp, ...]
    branches: int

    @property
    def n_operands(self) -> int:
        """How many operands it has."""
        return len(self.ports) + 1

    @property
    def values(self) -> tuple[UOp, ...]:
        """The graphs that it holds: none, those of a value stand with it."""
        return ()

    def with_values(self, _values: tuple[UOp, ...]) -> Choice:
        """The choice itself."""
        return self


@dataclass(frozen=True, slots=True)
class Outcome:
    """A value that a run of a program gives; the `arg` of a REGION.

    Attributes
    ----------
    program : Loop or Choice
        What runs.
    carry : int
        Which of what a loop carries is meant, when its last turn is over; -1: none of that.
    values : tuple of UOp
        Else what each turn of a loop makes, of which all turns together are the value, or what
        each branch of a choice makes, in order.
    """

    program: Loop | Choice
    carry: int = -1
    values: tuple[UOp, ...] = ()

    @property
    def each(self) -> UOp:
        """What a turn, or a branch, makes."""
        if self.carry >= 0:
            return self.program.values[self.carry]
        return self.values[0]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Of the value."""
        if self.carry < 0 and isinstance(self.program, Loop):
            return (self.program.turns, *self.each.shape)
        return self.each.shape

    @property
    def dtype(self) -> DType:
        """Of the value."""
        return self.each.dtype

    @property
    def graphs(self) -> tuple[UOp, ...]:
        """All that stands in the regions, as far as this value goes."""
        return (*self.program.values, *self.values)

    def of_turns(self, turns: Dim) -> Outcome:
        """The outcome of a loop with so many turns, counted where that depends on Variables."""
        loop = self.program
        assert isinstance(loop, Loop)
        if isinstance(turns, UOp):
            if loop.counted:
                raise VariableError("a loop of a number of turns that data say has a known bound")
            loop = replace(loop, counted=True)
        return replace(self, program=replace(loop, turns=turns))

    def mapped(self, function: Callable[[tuple[UOp, ...]], Iterable[UOp]]) -> Outcome:
        """The outcome with what `function` makes of its graphs in their place."""
        made = tuple(function(self.graphs))
        count = len(self.program.values)
        program: Any = self.program.with_values(made[:count])
        return Outcome(program, self.carry, made[count:])


def every_node(roots: Iterable[UOp]) -> Iterator[UOp]:
    """The nodes of graphs, and those of the graphs that stand in their regions."""
    for node in toposort(roots):
        yield node
        if node.op is Op.REGION:
            yield from every_node(node.arg.graphs)


def region_fault(node: UOp) -> str | None:
    """What is wrong with a REGION node; None if nothing is."""
    found = node.arg
    if not isinstance(found, Outcome):
        return f"its arg {found!r} must be an Outcome"
    program = found.program
    if len(node.src) != program.n_operands:
        return f"has {len(node.src)} operands; its program takes {program.n_operands}"
    if node.dtype is not found.dtype:
        return f"gives {found.dtype.name}"
    for k, s in enumerate((*node.src, *found.graphs)):
        apart = isinstance(program, Loop) and program.slices(k)
        if not is_static(s.shape[apart:]):
            return f"shape {s.shape} depends on a Variable; regions take known sizes"
    known = set(program.ports)
    for inner in toposort(found.graphs):
        if (inner.op is Op.BUFFER and inner not in known) or inner.op is Op.VAR:
            return f"{inner!r} stands in the region, which has no port for it"
    return _loop_fault(node, program) if isinstance(program, Loop) else _choice_fault(node, found)


def _elements(node: UOp) -> int:
    return math.prod(map(dim_max, node.shape))


def _loop_fault(node: UOp, loop: Loop) -> str | None:
    own = node.src[: len(node.src) - loop.counted]
    for k, (p, s) in enumerate(zip(loop.ports, own, strict=False)):
        sliced = loop.slices(k)
        if sliced and (not s.shape or not same(s.shape[0], loop.turns)):
            return f"operand {k} has shape {s.shape}; its first axis must be the {loop.turns} turns"
        wanted = p.arg.size * (dim_max(loop.turns) if sliced else 1)
        if s.dtype is not p.dtype or _elements(s) != wanted:
            return f"operand {k} has {_elements(s)} {s.dtype.name}; its port takes {wanted}"
    for k, (p, value) in enumerate(zip(loop.ports, loop.carries, strict=False)):
        if value.dtype is not p.dtype or _elements(value) != p.arg.size:
            return f"carry {k} comes to {_elements(value)} {value.dtype.name}, from {p.arg.size}"
    if loop.conditional and (not loop.carries or loop.carries[0].dtype is not dt.bool_):
        return "its first carry is no bool, and says whether it goes on"
    if loop.counted and node.src[-1].dtype is not dt.int64:
        return "its last operand is no int64, and says how many turns there are"
    if isinstance(loop.turns, UOp) and not (loop.counted and same(node.src[-1], loop.turns)):
        return f"its last operand has to say that there are {loop.turns} turns"
    return None


def _choice_fault(node: UOp, found: Outcome) -> str | None:
    if node.src[0].dtype is not dt.int64 or _elements(node.src[0]) != 1:
        return "its first operand is no single int64, and says which branch runs"
    if len(found.values) != found.program.branches:  # type: ignore[union-attr]
        return f"has {len(found.values)} values for its branches"
    for k, (p, s) in enumerate(zip(found.program.ports, node.src[1:], strict=True)):
        if s.dtype is not p.dtype or _elements(s) != p.arg.size:
            return f"operand {k + 1} has {_elements(s)} {s.dtype.name}; its port takes {p.arg.size}"
    first = found.values[0]
    if any(v.dtype is not first.dtype or v.shape != first.shape for v in found.values):
        return "its branches give values of different shapes or types"
    return None
