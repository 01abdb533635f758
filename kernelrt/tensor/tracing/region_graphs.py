"""Bodies of loops and branches as graphs, with the values that they capture.

Values that do not change between iterations are computed once, before the loop, and passed to the
body. There are two exceptions. Values computed from constants alone stay in the body, because they
read nothing from outside. Movement ops that only select elements of an outer value stay in the
body, because they usually cost nothing there.

They are not free if a GATHER reads rows of a permuted value. The elements of such a row lie pages
apart, so rows evict each other from the cache in every iteration. If the loop reads enough such
rows, it gets a copy of the value in the permuted order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import VariableError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.ops import FAILING
from kernelrt.ir.region import Choice, Loop, Outcome, port
from kernelrt.ir.shape import dim_max, format_shape, is_static
from kernelrt.tensor.autograd.dependence import value_of_run
from kernelrt.tensor.autograd.tags import Custom, below, is_kept, reads_of, rewritten
from kernelrt.tensor.nodes import build

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from kernelrt.dtype import DType

__all__ = ["MOVED", "Slot", "StandIn", "bare", "choice", "frontier", "loop", "may_fail", "slot",
           "unknown_size"]  # fmt: skip

#: Movement ops that only select elements: a body captures their operand instead of their result.
MOVED = frozenset({Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.IM2COL})


class StandIn(Buffer):
    """Placeholder buffer, without memory, for a value passed to a body while its graph is built."""

    __slots__ = ()
    stands_in = True


class Slot(NamedTuple):
    """Placeholder for a value passed to a body while its graph is built.

    Attributes
    ----------
    memory : UOp
        A unique BUFFER node.
    node : UOp
        The BUFFER reshaped to the shape of the value.
    """

    memory: UOp
    node: UOp

    @property
    def shape(self) -> build.Shape:
        """Shape of the value."""
        return self.node.shape


def slot(shape: build.Shape, dtype: DType) -> Slot:
    """Return a new placeholder."""
    size = build.volume(shape)
    assert isinstance(size, int)
    memory = build.memory(StandIn(size, dtype))
    return Slot(memory, build.reshape(memory, shape))


def unknown_size(name: str, shape: build.Shape) -> VariableError:
    """Return the error for a shape that is known only at run time."""
    return VariableError(
        f"{name}: the shape {format_shape(shape)} depends on a Variable, but loops and branches "
        "need fixed sizes; pad the tensor to a fixed size, or use jit without dynamic=, which "
        "compiles a plan for each size"
    )


def may_fail(roots: Sequence[UOp], since: int) -> bool:
    """Return whether a node of these graphs that was requested after `since` may fail."""
    new = below(roots, lambda n: n.asked <= since)
    return any(n.op in FAILING and n.asked > since for n in new)


def frontier(
    roots: Iterable[UOp], inside: Collection[UOp], since: int, stays: Callable[[UOp], bool],
    trip_count: int = 0,
) -> list[UOp]:  # fmt: skip
    """Return the outer nodes that graphs capture, each once, in order.

    A captured node depends neither on `inside` nodes nor only on constants. Movement ops on a
    captured node are skipped, unless a copy in their order pays off within `trip_count` iterations.
    A node for which `stays` is true is treated like a node that depends on `inside`, unless it was
    requested before `since`.
    """
    roots = list(roots)
    bound: set[UOp] = set(inside)  # nodes that depend on `inside`
    varies: set[UOp] = set(inside)  # these, and nodes that stay inside
    outside: set[UOp] = set()
    found: dict[UOp, None] = {}

    for node in below(roots, lambda n: n in inside or is_kept(n)):
        if node in inside:
            continue
        reads = () if is_kept(node) else reads_of(node)
        reached = not outside.isdisjoint(reads)
        varied = not varies.isdisjoint(reads)
        tied = not bound.isdisjoint(reads)
        own = (varied or (reached and stays(node))) and not _is_mark(node) and node.asked > since
        if tied or own:
            varies.add(node)
            if tied:
                bound.add(node)
            for r in reads:
                if r in outside:
                    found[r if _needs_copy(r, node, trip_count) else bare(r)] = None
        elif reached or varied or _is_not_constant(node):
            outside.add(node)
    for root in roots:
        if root in outside:
            found[bare(root)] = None
    return list(found)


def bare(node: UOp) -> UOp:
    """Return the node below movement ops."""
    while node.op in MOVED:
        node = node.src[0]
    return node


def _needs_copy(node: UOp, reader: UOp, trip_count: int) -> bool:
    """Return whether a loop should get a copy of `node` in permuted order for this reader."""
    if node.op not in MOVED or not _permutes_axes(node):
        return False
    size, least, read = (build.volume(n.shape) for n in (node, bare(node), reader))
    if not (isinstance(size, int) and isinstance(least, int) and size <= least):
        return False
    if reader.op is Op.GATHER:
        return node is reader.src[0] and isinstance(read, int) and size <= trip_count * read
    return reader.op is Op.REGION and trip_count > 1  # an inner loop copies in each iteration


def _permutes_axes(node: UOp) -> bool:
    """Return whether the movement ops above a value change the order of its axes."""
    while node.op in MOVED:
        if node.op is Op.PERMUTE and _permutes(node):
            return True
        node = node.src[0]
    return False


def _permutes(node: UOp) -> bool:
    """Return whether a PERMUTE changes the order of axes that have more than one element."""
    axes = [axis for axis in node.arg if node.src[0].shape[axis] != 1]
    return axes != sorted(axes)


def _marked(node: UOp) -> Iterator[UOp]:
    """Yield the nodes below movement ops, first with all tags, then below each tag."""
    node = bare(node)
    yield node
    while _is_mark(node):
        node = bare(node.src[0])
        yield node


def _is_not_constant(node: UOp) -> bool:
    """Return whether a node is no constant, whatever its operands are."""
    return _is_mark(node) or node.op in (Op.BUFFER, Op.VAR, Op.REGION)


def _is_mark(node: UOp) -> bool:
    """Return whether a node is a tag that describes a value rather than how it is computed."""
    return node.op is Op.DETACH and node.arg is not None and not isinstance(node.arg, Custom)


def loop(
    carried: Sequence[tuple[Slot, UOp, UOp]],
    sliced: Sequence[tuple[Slot, UOp]],
    rows: Sequence[UOp],
    trip_count: Dim,
    *,
    since: int,
    number: Slot | None = None,
    count: UOp | None = None,
    reverse: bool = False,
    conditional: bool = False,
    checkpoint: bool = False,
) -> tuple[list[UOp], list[UOp]]:
    """Build the nodes of a loop.

    Parameters
    ----------
    carried : sequence of (Slot, UOp, UOp)
        Carries: the placeholder in the graph of one iteration, the first value, and the value
        after an iteration.
    sliced : sequence of (Slot, UOp)
        Sliced arrays: the placeholder of a slice, and the array, sliced along the first axis.
    rows : sequence of UOp
        Other results of an iteration, which are stacked.
    trip_count : Dim
        Maximum number of iterations.
    since : int
        Result of :func:`count_asked` before the graph of an iteration was built.
    number : Slot, optional
        Placeholder of the index of the iteration.
    count : UOp, optional
        Number of iterations, int64.
    reverse : bool
        Whether the loop starts with the last slice.
    conditional : bool
        Whether the first carry tells if another iteration follows.
    checkpoint : bool
        Whether the derivative recomputes each iteration.

    Returns
    -------
    list of UOp
        Last values of the carries.
    list of UOp
        Rows of all iterations, stacked along a new first axis.
    """
    slots = [s for s, _, _ in carried] + [s for s, _ in sliced]
    graphs = [*(new for *_, new in carried), *rows]
    inside = {s.memory for s in slots} | ({number.memory} if number else set())
    # An iteration that may not run must not fail before it starts.
    may_not_come = conditional or count is not None
    outer = frontier(
        graphs, inside, since, lambda n: may_not_come and n.op in FAILING,
        1 if may_not_come else dim_max(trip_count),
    )  # fmt: skip
    put, ports = _ports([s.memory for s in slots], outer)
    if number is not None:
        put[number.memory] = port(len(ports), 1, dt.int64)
        ports.append(put[number.memory])
    made = rewritten(graphs, put)
    program = Loop(
        tuple(ports), tuple(made[: len(carried)]), len(sliced), trip_count, reverse, conditional,
        count is not None, number is not None, checkpoint,
    )  # fmt: skip
    operands = [
        *(first for _, first, _ in carried), *(whole for _, whole in sliced), *outer,
        *([count] if count is not None else []),
    ]  # fmt: skip
    finals = [value_of_run(Outcome(program, k), operands) for k in range(len(carried))]
    stacks = [Outcome(program, -1, (row,)) for row in made[len(carried) :]]
    return finals, [value_of_run(stack, operands) for stack in stacks]


def choice(
    which: UOp,
    given: Sequence[tuple[Slot, UOp]],
    branches: Sequence[Sequence[UOp]],
    *,
    since: int,
    instead: Mapping[UOp, UOp] | None = None,
) -> list[UOp]:
    """Build the nodes of a branch.

    Parameters
    ----------
    which : UOp
        Index of the branch, int64, of shape ().
    given : sequence of (Slot, UOp)
        Operands: the placeholder in the graphs of the branches, and the operand.
    branches : sequence of sequence of UOp
        Results of each branch, with equal shapes and dtypes.
    since : int
        Result of :func:`count_asked` before the first of these graphs was built. Nodes that were
        not requested since are computed in any case, the others only in their branch.
    instead : mapping of UOp to UOp, optional
        Nodes to read in place of captured outer nodes, of the same size.
    """
    graphs = [value for values in branches for value in values]
    slots = [s for s, _ in given]
    outer = frontier(graphs, {s.memory for s in slots}, since, lambda _: True)
    put, ports = _ports([s.memory for s in slots], outer)
    made = iter(rewritten(graphs, put))
    columns = zip(*([next(made) for _ in values] for values in branches), strict=True)
    program = Choice(tuple(ports), len(branches))
    read_instead = {at: bare(other) for n, other in (instead or {}).items() for at in _marked(n)}
    around = [read_instead.get(node, node) for node in outer]
    operands = [which, *(operand for _, operand in given), *around]
    return [value_of_run(Outcome(program, -1, tuple(values)), operands) for values in columns]


def _ports(
    memories: Sequence[UOp], outer: Sequence[UOp]
) -> tuple[dict[UOp, UOp], list[UOp]]:
    """Map placeholders and captured nodes to ports; also return the ports in order."""
    put: dict[UOp, UOp] = {}
    ports: list[UOp] = []
    for memory in memories:
        ports.append(port(len(ports), int(memory.arg.size), memory.dtype))
        put[memory] = ports[-1]
    for node in outer:
        if not is_static(node.shape):
            raise unknown_size("tensor that a loop or branch reads", node.shape)
        size = build.volume(node.shape)
        assert isinstance(size, int)
        ports.append(port(len(ports), size, node.dtype))
        put[node] = build.reshape(ports[-1], node.shape)
    return put, ports

