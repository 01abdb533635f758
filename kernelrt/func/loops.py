"""scan, fori_loop and while_loop: loops as values of a graph.

The functions and the order of their arguments are those of ``jax.lax``. See docs/loops.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError, VariableError
from kernelrt.func.bodies import (
    Body,
    Carry,
    check_carry,
    computes_shared_reads,
    made_once,
    node_of,
    own,
    plain_tree,
    realized,
    refuse_changes,
    stepwise,
    told,
    turn_of,
    within,
)
from kernelrt.func.trees import leaves_of, named_leaves, rebuilt
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import format_shape, format_size, is_static, same
from kernelrt.jit.effects.purity import TURNS
from kernelrt.native.node import count_asked
from kernelrt.tensor import Tensor, state
from kernelrt.tensor.autograd.loop_adjoints import UNBOUNDED
from kernelrt.tensor.autograd.tags import rewritten
from kernelrt.tensor.free_functions import joining
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import whole
from kernelrt.tensor.tracing import region_graphs
from kernelrt.tensor.tracing.region_graphs import slot
from kernelrt.tensor.tracing.unrolling import unrolled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.func.bodies import Traced
    from kernelrt.tensor import Trace
    from kernelrt.tensor.tracing.region_graphs import Slot

__all__ = ["fori_loop", "scan", "while_loop"]


@computes_shared_reads
def scan(
    body: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
    checkpoint: bool = False,
) -> tuple[Any, Any]:
    """Run a function over the slices of arrays, one after the other, and carry something along.

    It is called once or twice, whatever the length: what it computes becomes a loop of the plan.
    Tensors from outside that it assigns to, such as parameters by an optimizer, are carried along,
    too, and have their new values when the last turn is over.

    Parameters
    ----------
    body : callable
        ``body(carry, x)`` gives ``(carry, y)``: what is carried on, of the same nesting, shapes
        and types, and what this turn adds to the result, nested tensors or None.
    init : Tensor, or nested dicts, lists, tuples and dataclasses of Tensors
        What is carried into the first turn.
    xs : Tensor, or nested Tensors, optional
        Arrays with one first axis in common; a turn is given one slice of each. Its size may
        depend on a Variable.
    length : int, optional
        How many turns there are; needed where there is no `xs`.
    reverse : bool
        Whether the last slice comes first. Results stand where their slices do.
    unroll : int or bool
        How many turns the plan's loop makes in one, at least 1; True for all. The results are the
        same: small bodies of which several make one kernel take less time, and longer to compile.
        A body that may fail, as by an index or a loop within, makes its turns one by one, so that
        the error names the turn; so does a loop whose length depends on a Variable.
    checkpoint : bool
        Whether gradients compute each turn again from what was carried into it, which takes longer
        and keeps less.

    Returns
    -------
    tuple
        What the last turn carried on, and what the turns gave, along a new first axis.

    Raises
    ------
    ShapeError
        Lengths disagree, the body changes the nesting or a shape of what is carried, or `unroll`
        is less than 1.
    DTypeError
        It changes a type, or gives back something else than pairs of nested tensors.
    JitError
        It reads a value, which no turn has yet, or sets what turns would have to set again, such as
        an attribute or a count.
    IndexBoundsError
        When it is computed: an index is out of range; it says in which turn. State is as before.

    Examples
    --------
    >>> import kernelrt as krt
    >>> total, sums = krt.scan(lambda c, x: (c + x, c + x), krt.tensor(0.0), krt.arange(4.0))
    >>> total.item(), sums.tolist()
    (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    made = Body("scan", body)
    arrays = plain_tree(xs, "scan: xs")
    turns = _length(arrays, length)
    many = _unroll(unroll, turns)
    carried = plain_tree(init, "scan: init")
    slices = [t.dims for t in leaves_of(carried)] + [t.dims[1:] for t in leaves_of(arrays)]
    # Without a trace what a turn assigns to is gone when its gradient is asked for.
    alone = same(turns, 1) and (state.local.trace is not None or not state.local.grad)
    if alone or (stepwise() and not same(turns, 0)) or not all(map(is_static, slices)):
        return _unrolled(body, carried, arrays, turns, reverse=reverse)
    since = count_asked()
    carry = Carry("scan", made, carried)
    wholes = [node_of(t) for t in leaves_of(arrays)]
    slots = [slot(t.dims[1:], t.dtype) for t in leaves_of(arrays)]
    nested: list[Any] = []

    def taken(result: Any) -> list[Tensor]:
        new, y = _turn(result, carry.tree)
        nested[:] = [y]
        return [*new, *leaves_of(y)]

    def call(trace: Trace) -> Traced:
        args = carry.given(made), rebuilt(arrays, [
            made.tensor(s, whole) for s, whole in zip(slots, wholes, strict=True)
        ])
        return turn_of(trace, made, carry, args, taken)

    graph = within(TURNS, [made], call)
    triples = carry.triples(graph, wholes)
    rows = graph.nodes[len(carry.slots) :]
    if same(turns, 0):
        finals = [first for _, first, _ in triples]
        stacks = [build.full(0, r.dtype, (0, *r.shape)) for r in rows]
    elif isinstance(turns, int) and many > 1 and not _may_fail(triples, rows, since):
        finals, stacks = unrolled(
            triples, list(zip(slots, wholes, strict=True)), rows, turns, many, since=since,
            reverse=reverse, checkpoint=checkpoint,
        )  # fmt: skip
    else:
        finals, stacks = region_graphs.loop(
            triples, list(zip(slots, wholes, strict=True)), rows, turns, since=since,
            count=turns if isinstance(turns, UOp) else None, reverse=reverse,
            checkpoint=checkpoint,
        )  # fmt: skip
        both = made_once("scan", carry.changed, [*finals, *stacks])
        finals, stacks = both[: len(finals)], both[len(finals) :]
    out = rebuilt(nested[0], [Tensor._of(node) for node in stacks])
    return carry.leave(finals), out


def _turn(result: Any, before: Any) -> tuple[list[Tensor], Any]:
    """What a turn of a scan carries on, and what it adds to the result."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise DTypeError(
            f"scan: the body returns a pair (carry, y), where y may be None, not {_kind(result)}"
        )
    return check_carry("scan", "carry", before, result[0]), plain_tree(result[1], "scan: y")


def _unrolled(
    body: Callable[[Any, Any], Any], carry: Any, arrays: Any, turns: Dim, *, reverse: bool
) -> tuple[Any, Any]:
    """A scan as so many calls: of one turn, step by step, and of sizes known at run time only."""
    if not isinstance(turns, int):
        raise VariableError(
            "scan: where the number of turns depends on a Variable, slices and what is carried are "
            "of known sizes, not "
            + " and ".join(format_shape(t.dims) for t in leaves_of((arrays, carry)))
        )
    leaves = leaves_of(arrays)
    carry = own(carry)
    found: list[Any] = []
    for k in reversed(range(turns)) if reverse else range(turns):
        new, y = _turn(body(carry, rebuilt(arrays, [t[k] for t in leaves])), carry)
        carry = rebuilt(carry, new)
        if stepwise():
            realized((carry, y))
        found.append(y)
    if reverse:
        found.reverse()
    columns = zip(*map(leaves_of, found), strict=True)
    return carry, rebuilt(found[0], [joining.stack(list(parts)) for parts in columns])


def _kind(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"


def _length(arrays: Any, length: object) -> Dim:
    found: Dim | None = None
    if length is not None:
        number = whole(length)
        if number is None:
            raise DTypeError(f"scan: length: expected an int, not {type(length).__name__}")
        _check_turns(number, "scan: length")
        found = number
    for path, t in named_leaves(arrays):
        if not t.dims:
            raise ShapeError(f"scan: xs{path}: expected an array with a first axis, not shape ()")
        if found is not None and not same(t.dims[0], found):
            raise ShapeError(
                f"scan: xs{path}: its first axis has {format_size(t.dims[0])}, and there are "
                f"{format_size(found)} turns by "
                + ("length" if length is not None else "what comes before it")
            )
        found = t.dims[0]
    if found is None:
        raise ShapeError("scan: length: expected the number of turns, where there are no xs")
    return found


def _may_fail(
    triples: Sequence[tuple[Slot, UOp, UOp]], rows: Sequence[UOp], since: int
) -> bool:
    """Whether a turn may."""
    return region_graphs.may_fail([*(new for *_, new in triples), *rows], since)


def _unroll(value: object, turns: Dim) -> int:
    """How many turns are made in one."""
    most = turns if isinstance(turns, int) else 1
    if isinstance(value, bool | np.bool_):
        return most if value else 1
    number = whole(value)
    if number is None:
        raise DTypeError(f"scan: unroll: expected an int or a bool, not {told(value)}")
    if number < 1:
        raise ShapeError(f"scan: unroll: expected at least 1, or True for all turns, not {number}")
    return min(number, most)


def _check_turns(turns: int, name: str) -> None:
    if not 0 <= turns < UNBOUNDED:
        expected = "at least 0" if turns < 0 else "less than 2**62"
        raise ShapeError(f"{name}: expected {expected}, not {turns}")


@computes_shared_reads
def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """Run a function for each whole number from `lower` to before `upper`, with what it carries.

    Parameters
    ----------
    lower, upper : int or Tensor
        Integers; tensors of shape () where they are known when it is computed only.
    body : callable
        ``body(i, carry)`` gives what is carried on; `i` is a Tensor of int64.
    init : Tensor, or nested Tensors
        What is carried into the first turn.

    Returns
    -------
    Tensor, or nested Tensors
        What the last turn carried on; `init` where there is none.

    Raises
    ------
    ShapeError, DTypeError, JitError, IndexBoundsError
        As of :func:`scan`.
    GradientError
        A gradient is taken where the numbers are tensors.

    Examples
    --------
    >>> import kernelrt as krt
    >>> krt.fori_loop(0, 5, lambda i, x: x + i, krt.tensor(0)).item()
    10
    """
    made = Body("fori_loop", body)
    first, last = _bound(lower, "lower"), _bound(upper, "upper")
    if stepwise():
        return _counted(body, first, last, init)
    since = count_asked()
    carry = Carry("fori_loop", made, init)
    number = slot((), dt.int64)
    with state.no_grad():
        start = first if isinstance(first, UOp) else build.scalar(first, dt.int64)
    turn = build.add(number.node, start)

    def taken(result: Any) -> list[Tensor]:
        return check_carry("fori_loop", "carry", carry.tree, result)

    def call(trace: Trace) -> Traced:
        args = Tensor._of(turn), carry.given(made)
        return turn_of(trace, made, carry, args, taken)

    graph = within(TURNS, [made], call)
    triples = carry.triples(graph)
    if isinstance(first, int) and isinstance(last, int):
        turns, count = max(0, last - first), None
        _check_turns(turns, "fori_loop: upper - lower")
    else:
        stop = last if isinstance(last, UOp) else build.scalar(last, dt.int64)
        some = start.alu(Op.LT, stop)
        turns, count = UNBOUNDED, build.where(some, build.sub(stop, start), 0)
    if not turns:
        return carry.leave([value for _, value, _ in triples])
    finals, _ = region_graphs.loop(triples, (), (), turns, since=since, number=number, count=count)
    return carry.leave(made_once("fori_loop", carry.changed, finals))


def _counted(body: Callable[[Any, Any], Any], first: int | UOp, last: int | UOp, init: Any) -> Any:
    """A fori_loop as so many calls."""
    carry = own(plain_tree(init, "fori_loop: init"))
    start, stop = (
        n if isinstance(n, int) else int(Tensor._of(n).item()) for n in (first, last)
    )
    for i in range(start, stop):
        number = Tensor._of(build.scalar(i, dt.int64))
        new = check_carry("fori_loop", "carry", carry, body(number, carry))
        carry = realized(rebuilt(carry, new))
    return carry


def _bound(value: object, name: str) -> int | UOp:
    number = whole(value)
    if number is not None:
        if not -(2**63) <= number < 2**63:
            raise ShapeError(f"fori_loop: {name}: expected a number of 64 bits, not {number}")
        return number
    if isinstance(value, Tensor) and value.dtype.is_int and not value.dims:
        with state.no_grad():
            return value.uop.cast(dt.int64)
    raise DTypeError(
        f"fori_loop: {name}: expected an int or an integer Tensor of shape (), not {told(value)}"
    )


@computes_shared_reads
def while_loop(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any,
    max_steps: int | None = None,
) -> Any:  # fmt: skip
    """Run a function as long as a condition holds, carrying something along.

    Parameters
    ----------
    cond : callable
        ``cond(carry)`` gives a bool Tensor of shape (): whether another turn follows. It is asked
        before each.
    body : callable
        ``body(carry)`` gives what is carried on.
    init : Tensor, or nested Tensors
        What is carried into the first turn.
    max_steps : int, optional
        The most turns, after which it ends whatever the condition says. Gradients need it: what
        turns keep for them is as large as so many turns make it.

    Returns
    -------
    Tensor, or nested Tensors
        What the last turn carried on; `init` where there is none.

    Raises
    ------
    ShapeError, DTypeError, JitError, IndexBoundsError
        As of :func:`scan`; also where the condition is no bool, or not of shape ().
    GradientError
        A gradient is taken and there is no `max_steps`.

    Examples
    --------
    >>> import kernelrt as krt
    >>> krt.while_loop(lambda x: x < 100.0, lambda x: x * 2, krt.tensor(3.0)).item()
    192.0
    """
    asked, made = Body("while_loop", cond), Body("while_loop", body)
    turns = UNBOUNDED
    if max_steps is not None:
        found = whole(max_steps)
        if found is None:
            raise DTypeError(f"while_loop: max_steps: expected an int, not {told(max_steps)}")
        _check_turns(found, "while_loop: max_steps")
        turns = found
    if stepwise():
        return _repeated(cond, body, turns, init)
    since = count_asked()
    carry = Carry("while_loop", made, init)
    count = slot((), dt.int64)
    flag = slot((), dt.bool_)

    def taken(result: Any) -> list[Tensor]:
        return check_carry("while_loop", "carry", carry.tree, result)

    def call(trace: Trace) -> tuple[Traced, Traced]:
        graph = turn_of(trace, made, carry, (carry.given(made),), taken)
        return graph, asked.call(trace, (carry.given(asked),), carry.begin, _condition)

    graph, test = within(TURNS, [made, asked], call)
    refuse_changes("while_loop: cond", test)
    triples = carry.triples(graph)
    now = {s.place: build.reshape(first, s.place.shape) for s, first, _ in triples}
    then = {s.place: build.reshape(new, s.place.shape) for s, _, new in triples}
    before, after = rewritten(test.nodes, now)[0], rewritten(test.nodes, then)[0]
    if not turns:
        return carry.leave([value for _, value, _ in triples])
    triples = [
        (flag, before, after),
        (count, build.scalar(0, dt.int64), build.add(count.node, 1)),
        *triples,
    ]
    finals, _ = region_graphs.loop(triples, (), (), turns, since=since, conditional=True)
    return carry.leave(made_once("while_loop", carry.changed, finals[2:]))


def _repeated(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], most: int, init: Any
) -> Any:
    """A while_loop as so many calls."""
    carry = own(plain_tree(init, "while_loop: init"))
    turns = 0
    while turns < most and _condition(cond(carry))[0].item():
        new = check_carry("while_loop", "carry", carry, body(carry))
        carry = realized(rebuilt(carry, new))
        turns += 1
    return carry


def _condition(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor) and result.dtype.is_bool and not result.dims:
        return [result]
    raise DTypeError(
        f"while_loop: cond: expected a bool Tensor of shape (), not {told(result)}; compare, as in "
        "x < 1, and take all() or any() of several"
    )
