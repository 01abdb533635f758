"""Bodies of loops and branches as graphs, with the values that they capture.

What a body makes of values that do not change from turn to turn is computed once, before the first
turn, and given to it; so are the values themselves. What is made of constants alone stays inside.

What only says which element of a value is meant stays inside, too, as it costs a body nothing but
where places that data tell are read: rows whose parts lie pages apart drive each other out of a
cache, again in each turn. So a loop that reads as many of them is given the rows in their order.
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

#: Ops that only say which element is meant: what they are made of is given in their place.
MOVED = frozenset({Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.WINDOW})


class StandIn(Buffer):
    """Memory that nobody has: it stands for what a body is given while its graph is made."""

    __slots__ = ()
    stands_in = True


class Slot(NamedTuple):
    """What stands for something that a body is given, while its graph is made.

    Attributes
    ----------
    place : UOp
        A BUFFER node that nothing else has.
    node : UOp
        It, in the shape of what is given.
    """

    place: UOp
    node: UOp

    @property
    def shape(self) -> build.Shape:
        """Of what is given."""
        return self.node.shape


def slot(shape: build.Shape, dtype: DType) -> Slot:
    """A new one."""
    size = build.volume(shape)
    assert isinstance(size, int)
    place = build.memory(StandIn(size, dtype))
    return Slot(place, build.reshape(place, shape))


def unknown_size(name: str, shape: build.Shape) -> VariableError:
    """Refuses a shape that is known at run time only."""
    return VariableError(
        f"{name}: the shape {format_shape(shape)} depends on a Variable, but loops and branches "
        "need fixed sizes; pad the tensor to a fixed size, or use jit without dynamic=, which "
        "compiles a plan for each size"
    )


def may_fail(roots: Sequence[UOp], since: int) -> bool:
    """Whether a run may end at a node of these graphs that was asked for after `since`."""
    new = below(roots, lambda n: n.asked <= since)
    return any(n.op in FAILING and n.asked > since for n in new)


def frontier(
    roots: Iterable[UOp], inside: Collection[UOp], since: int, stays: Callable[[UOp], bool],
    turns: int = 0,
) -> list[UOp]:  # fmt: skip
    """What graphs read that is not made of nodes `inside`, nor of constants: each once, in order.

    Below ops that only say which element is meant stands what is read, unless it pays to have its
    elements in that order for at least so many turns. Nodes for which `stays` is true count as made
    of what is inside; none that was asked for before `since` is.
    """
    roots = list(roots)
    bound: set[UOp] = set(inside)  # made of what is inside
    varies: set[UOp] = set(inside)  # that, and what stays
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
                    found[r if _is_laid_out(r, node, turns) else bare(r)] = None
        elif reached or varied or _begins(node):
            outside.add(node)
    for root in roots:
        if root in outside:
            found[bare(root)] = None
    return list(found)


def bare(node: UOp) -> UOp:
    """What a node only says elements of."""
    while node.op in MOVED:
        node = node.src[0]
    return node


def _is_laid_out(node: UOp, reader: UOp, turns: int) -> bool:
    """Whether a loop is given `node` in the order that it says, for the sake of this reader."""
    if node.op not in MOVED or not _is_turned(node):
        return False
    size, least, read = (build.volume(n.shape) for n in (node, bare(node), reader))
    if not (isinstance(size, int) and isinstance(least, int) and size <= least):
        return False
    if reader.op is Op.GATHER:
        return node is reader.src[0] and isinstance(read, int) and size <= turns * read
    return reader.op is Op.REGION and turns > 1  # which has it in memory, or would in each turn


def _is_turned(node: UOp) -> bool:
    """Whether ops that only say which element is meant change the order of axes."""
    while node.op in MOVED:
        if node.op is Op.PERMUTE and _moves(node):
            return True
        node = node.src[0]
    return False


def _moves(node: UOp) -> bool:
    """Whether a PERMUTE changes the order of axes that have more than one element."""
    axes = [axis for axis in node.arg if node.src[0].shape[axis] != 1]
    return axes != sorted(axes)


def _marked(node: UOp) -> Iterator[UOp]:
    """What a node only says elements of, with the marks upon it and without."""
    node = bare(node)
    yield node
    while _is_mark(node):
        node = bare(node.src[0])
        yield node


def _begins(node: UOp) -> bool:
    """Whether a node is no constant, whatever it is made of."""
    return _is_mark(node) or node.op in (Op.BUFFER, Op.VAR, Op.REGION)


def _is_mark(node: UOp) -> bool:
    """Whether a node says something of a value that is there, rather than how it is made."""
    return node.op is Op.DETACH and node.arg is not None and not isinstance(node.arg, Custom)


def loop(
    carried: Sequence[tuple[Slot, UOp, UOp]],
    sliced: Sequence[tuple[Slot, UOp]],
    rows: Sequence[UOp],
    turns: Dim,
    *,
    since: int,
    number: Slot | None = None,
    count: UOp | None = None,
    reverse: bool = False,
    conditional: bool = False,
    checkpoint: bool = False,
) -> tuple[list[UOp], list[UOp]]:
    """Nodes of a run of a loop.

    Parameters
    ----------
    carried : sequence of (Slot, UOp, UOp)
        What is carried from turn to turn: what stands for it in the graph of one turn, its first
        value, and what a turn makes of it.
    sliced : sequence of (Slot, UOp)
        What stands for a slice, and what it is one of, along the first axis.
    rows : sequence of UOp
        What else a turn makes.
    turns : Dim
        How many turns there are at most.
    since : int
        What :func:`count_asked` gave before the graph of a turn was made.
    number : Slot, optional
        What stands for the number of the turn.
    count : UOp, optional
        How many turns there are, int64.
    reverse : bool
        Whether the last slice comes first.
    conditional : bool
        Whether the first thing that is carried says if another turn follows.
    checkpoint : bool
        Whether its derivative computes each turn again.

    Returns
    -------
    list of UOp
        The last values of what is carried.
    list of UOp
        What the turns made, along a new first axis.
    """
    slots = [s for s, _, _ in carried] + [s for s, _ in sliced]
    graphs = [*(new for *_, new in carried), *rows]
    inside = {s.place for s in slots} | ({number.place} if number else set())
    # A turn that may not come must not fail before it does.
    may_not_come = conditional or count is not None
    outer = frontier(
        graphs, inside, since, lambda n: may_not_come and n.op in FAILING,
        1 if may_not_come else dim_max(turns),
    )  # fmt: skip
    put, ports = _ports([s.place for s in slots], outer)
    if number is not None:
        put[number.place] = port(len(ports), 1, dt.int64)
        ports.append(put[number.place])
    made = rewritten(graphs, put)
    program = Loop(
        tuple(ports), tuple(made[: len(carried)]), len(sliced), turns, reverse, conditional,
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
    """Nodes of what one of several branches gives.

    Parameters
    ----------
    which : UOp
        The number of the branch, int64, of shape ().
    given : sequence of (Slot, UOp)
        What stands for an operand in the graphs of the branches, and the operand.
    branches : sequence of sequence of UOp
        The values of each, of equal shapes and types.
    since : int
        What :func:`count_asked` gave before the first of these graphs was made: what nobody asked
        for since is computed in any case, the rest where its branch is chosen.
    instead : mapping of UOp to UOp, optional
        What is read in the place of nodes from around, of the same size.
    """
    graphs = [value for values in branches for value in values]
    slots = [s for s, _ in given]
    outer = frontier(graphs, {s.place for s in slots}, since, lambda _: True)
    put, ports = _ports([s.place for s in slots], outer)
    made = iter(rewritten(graphs, put))
    columns = zip(*([next(made) for _ in values] for values in branches), strict=True)
    program = Choice(tuple(ports), len(branches))
    read_instead = {at: bare(other) for n, other in (instead or {}).items() for at in _marked(n)}
    around = [read_instead.get(node, node) for node in outer]
    operands = [which, *(operand for _, operand in given), *around]
    return [value_of_run(Outcome(program, -1, tuple(values)), operands) for values in columns]


def _ports(
    places: Sequence[UOp], outer: Sequence[UOp]
) -> tuple[dict[UOp, UOp], list[UOp]]:
    """What takes the place of slots, and of what is read from around; and the ports in order."""
    put: dict[UOp, UOp] = {}
    ports: list[UOp] = []
    for place in places:
        ports.append(port(len(ports), int(place.arg.size), place.dtype))
        put[place] = ports[-1]
    for node in outer:
        if not is_static(node.shape):
            raise unknown_size("tensor that a loop or branch reads", node.shape)
        size = build.volume(node.shape)
        assert isinstance(size, int)
        ports.append(port(len(ports), size, node.dtype))
        put[node] = build.reshape(ports[-1], node.shape)
    return put, ports

