"""Control-flow regions: bodies of loops and branches as graphs.

The inputs of a region are *ports*: BUFFER nodes over a :class:`Port`. The region computes from its
ports and constants only. Its graph is separate from the outer graph. In the outer graph, each
result of the region is a REGION node, whose `arg` holds the region and says which result it is. If
several REGION nodes have the same program and operands, the program runs once for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.errors import VariableError
from kernelrt.ir.ops import Op
from kernelrt.ir.shape import dim_max, format_size, is_static, same
from kernelrt.ir.uop import UOp, toposort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.dtype import DType
    from kernelrt.ir.uop import Dim

__all__ = ["Choice", "Loop", "Outcome", "Port", "every_node", "port", "region_fault"]


@dataclass(frozen=True, slots=True)
class Port:
    """An input of a region; the `arg` of a BUFFER in its graph.

    Attributes
    ----------
    number : int
        Index among the ports of the region.
    size : int
        Number of elements.
    """

    number: int
    size: int


def port(number: int, size: int, dtype: DType) -> UOp:
    """Return the BUFFER node of a port."""
    return UOp(Op.BUFFER, dtype, (), Port(number, size))


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop (scan or while) over a region.

    The operands are, in this order: the initial values of the carries; the stacked arrays, of which
    each iteration gets one slice along the first axis; loop-invariant values; and the number of
    iterations, if `counted` is true. There is one port for each operand except the number of
    iterations.

    Attributes
    ----------
    ports : tuple of UOp
        Inputs of an iteration. If `numbered`, the last one is the iteration number, int64.
    carries : tuple of UOp
        New values of the carries, with the shapes and dtypes of the first ports.
    stacked : int
        Number of ports for slices. They follow the ports of the carries.
    trip_count : Dim
        Number of iterations. If the loop is `counted` or `conditional`, it is the maximum. If it
        depends on Variables, the loop is `counted`, and the last operand has the same value.
    reverse : bool
        Whether iterations go from the last slice to the first.
    conditional : bool
        Whether the first carry, a bool, decides whether another iteration follows.
    counted : bool
        Whether the last operand, an int64, is the number of iterations.
    numbered : bool
        Whether an iteration gets its number.
    checkpoint : bool
        Whether the gradient recomputes each iteration from its carries (rematerialization).
    """

    ports: tuple[UOp, ...]
    carries: tuple[UOp, ...]
    stacked: int
    trip_count: Dim
    reverse: bool = False
    conditional: bool = False
    counted: bool = False
    numbered: bool = False
    checkpoint: bool = False

    @property
    def n_operands(self) -> int:
        """Number of operands."""
        return len(self.ports) - self.numbered + self.counted

    def slices(self, k: int) -> bool:
        """Return whether each iteration gets one slice of operand `k`."""
        return 0 <= k - len(self.carries) < self.stacked

    @property
    def values(self) -> tuple[UOp, ...]:
        """Graphs that the loop contains."""
        return self.carries

    def with_values(self, values: tuple[UOp, ...]) -> Loop:
        """Return the loop with its graphs replaced by `values`."""
        return replace(self, carries=values)


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice between regions with the same ports, one of which runs.

    The first operand, an int64, selects the branch. There is one port for each other operand.

    Attributes
    ----------
    ports : tuple of UOp
        Inputs of each branch.
    branches : int
        Number of branches.
    """

    ports: tuple[UOp, ...]
    branches: int

    @property
    def n_operands(self) -> int:
        """Number of operands."""
        return len(self.ports) + 1

    @property
    def values(self) -> tuple[UOp, ...]:
        """Graphs that the choice contains: none. The graphs of a result are in its Outcome."""
        return ()

    def with_values(self, _values: tuple[UOp, ...]) -> Choice:
        """Return the choice itself."""
        return self


@dataclass(frozen=True, slots=True)
class Outcome:
    """One result of a loop or choice; the `arg` of a REGION.

    Attributes
    ----------
    program : Loop or Choice
        Program that runs.
    carry : int
        Index of the carry of a loop whose final value is the result; -1 if the result is no carry.
    values : tuple of UOp
        Used if `carry` is -1. For a loop, the value of one iteration; the result is the stack of
        these values. For a choice, the value of each branch, in order.
    """

    program: Loop | Choice
    carry: int = -1
    values: tuple[UOp, ...] = ()

    @property
    def each(self) -> UOp:
        """Value of one iteration or branch."""
        if self.carry >= 0:
            return self.program.values[self.carry]
        return self.values[0]

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Shape of the result."""
        if self.carry < 0 and isinstance(self.program, Loop):
            return (self.program.trip_count, *self.each.shape)
        return self.each.shape

    @property
    def dtype(self) -> DType:
        """Dtype of the result."""
        return self.each.dtype

    @property
    def graphs(self) -> tuple[UOp, ...]:
        """All graphs in the regions that this result depends on."""
        return (*self.program.values, *self.values)

    def with_trip_count(self, trip_count: Dim) -> Outcome:
        """Return the outcome of the loop with another trip count.

        If `trip_count` depends on Variables, the loop becomes a counted one.
        """
        loop = self.program
        assert isinstance(loop, Loop)
        if isinstance(trip_count, UOp):
            if loop.counted:
                raise VariableError(
                    "trip_count: expected an int for a loop whose number of iterations depends on "
                    f"data, not {format_size(trip_count)}; pass a constant upper bound"
                )
            loop = replace(loop, counted=True)
        return replace(self, program=replace(loop, trip_count=trip_count))

    def mapped(self, function: Callable[[tuple[UOp, ...]], Iterable[UOp]]) -> Outcome:
        """Return the outcome with its graphs replaced by those that `function` returns."""
        made = tuple(function(self.graphs))
        count = len(self.program.values)
        program: Any = self.program.with_values(made[:count])
        return Outcome(program, self.carry, made[count:])


def every_node(roots: Iterable[UOp]) -> Iterator[UOp]:
    """Yield the nodes of graphs and, recursively, of the graphs in their regions."""
    for node in toposort(roots):
        yield node
        if node.op is Op.REGION:
            yield from every_node(node.arg.graphs)


def region_fault(node: UOp) -> str | None:
    """Return the error in a REGION node; None if it is valid."""
    found = node.arg
    if not isinstance(found, Outcome):
        return f"its arg {found!r} must be an Outcome"
    program = found.program
    if len(node.src) != program.n_operands:
        return f"has {len(node.src)} operands; its program takes {program.n_operands}"
    if node.dtype is not found.dtype:
        return f"its dtype is {node.dtype.name}, but its program returns {found.dtype.name}"
    for k, s in enumerate((*node.src, *found.graphs)):
        sliced = isinstance(program, Loop) and program.slices(k)
        if not is_static(s.shape[sliced:]):
            return f"shape {s.shape} depends on a Variable; regions take fixed sizes only"
    known = set(program.ports)
    for inner in toposort(found.graphs):
        if (inner.op is Op.BUFFER and inner not in known) or inner.op is Op.VAR:
            return f"{inner!r} occurs in the region, which has no port for it"
    return _loop_fault(node, program) if isinstance(program, Loop) else _choice_fault(node, found)


def _elements(node: UOp) -> int:
    return math.prod(map(dim_max, node.shape))


def _loop_fault(node: UOp, loop: Loop) -> str | None:
    own = node.src[: len(node.src) - loop.counted]
    for k, (p, s) in enumerate(zip(loop.ports, own, strict=False)):
        sliced = loop.slices(k)
        if sliced and (not s.shape or not same(s.shape[0], loop.trip_count)):
            wanted = loop.trip_count
            return f"operand {k} has shape {s.shape}; its first axis must have size {wanted}"
        wanted = p.arg.size * (dim_max(loop.trip_count) if sliced else 1)
        if s.dtype is not p.dtype or _elements(s) != wanted:
            return (
                f"operand {k} has {_elements(s)} elements of {s.dtype.name}; its port takes "
                f"{wanted} of {p.dtype.name}"
            )
    for k, (p, value) in enumerate(zip(loop.ports, loop.carries, strict=False)):
        if value.dtype is not p.dtype or _elements(value) != p.arg.size:
            return (
                f"carry {k} has {_elements(value)} elements of {value.dtype.name}; its port takes "
                f"{p.arg.size} of {p.dtype.name}"
            )
    if loop.conditional and (not loop.carries or loop.carries[0].dtype is not dt.bool_):
        return "its first carry must be a bool: whether another iteration follows"
    if loop.counted and node.src[-1].dtype is not dt.int64:
        return "its last operand must be an int64: the number of iterations"
    if isinstance(loop.trip_count, UOp) and not (
        loop.counted and same(node.src[-1], loop.trip_count)
    ):
        return f"its last operand must equal the number of iterations, {loop.trip_count}"
    return None


def _choice_fault(node: UOp, found: Outcome) -> str | None:
    if node.src[0].dtype is not dt.int64 or _elements(node.src[0]) != 1:
        return "its first operand must be one int64: the index of the branch"
    if len(found.values) != found.program.branches:  # type: ignore[union-attr]
        return f"has {len(found.values)} values; expected one for each branch"
    for k, (p, s) in enumerate(zip(found.program.ports, node.src[1:], strict=True)):
        if s.dtype is not p.dtype or _elements(s) != p.arg.size:
            return (
                f"operand {k + 1} has {_elements(s)} elements of {s.dtype.name}; its port takes "
                f"{p.arg.size} of {p.dtype.name}"
            )
    first = found.values[0]
    if any(v.dtype is not first.dtype or v.shape != first.shape for v in found.values):
        return "its branches return values of different shapes or dtypes"
    return None
