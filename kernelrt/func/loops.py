"""scan, fori_loop and while_loop: loops inside a graph.

Names and argument orders follow ``jax.lax``. See docs/loops.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError, VariableError, a_type
from kernelrt.func.bodies import (
    Body,
    Carry,
    check_carry,
    computes_shared_reads,
    describe,
    made_once,
    node_of,
    own,
    plain_tree,
    realized,
    refuse_changes,
    stepwise,
    trace_iteration,
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
    """Call a function on successive slices of arrays and pass a carry from iteration to iteration.

    Whatever the length, `body` is traced only once, or twice if it assigns to outside tensors. The
    plan runs it as a loop. Outside tensors that `body` assigns to, such as parameters that an
    optimizer updates, are carried, too, and get their new values after the last iteration.

    Parameters
    ----------
    body : callable
        ``body(carry, x)`` returns ``(carry, y)``. The new carry has the nesting, shapes and types
        of the old one. `y` is this iteration's part of the result: nested tensors or None.
    init : Tensor, or nested dicts, lists, tuples and dataclasses of Tensors
        Carry of the first iteration.
    xs : Tensor, or nested Tensors, optional
        Arrays whose first axes have one size, the number of iterations. `body` receives one slice
        of each. The size may depend on a Variable.
    length : int, optional
        Number of iterations; required without `xs`.
    reverse : bool
        Iterate from the last slice to the first. Results keep the positions of their slices.
    unroll : int or bool
        Unroll factor: number of iterations, at least 1, per iteration of the plan's loop; True
        unrolls completely. Results are the same. Unrolling small bodies that fuse into one kernel
        saves run time and costs compile time. A loop is not unrolled if its length depends on a
        Variable. Nor is it if its body can fail, for example at an index or in an inner loop,
        because the error must name the iteration.
    checkpoint : bool
        Keep only the carries for the backward pass and recompute each iteration from its carry.
        This takes more time and less memory.

    Returns
    -------
    tuple
        Last carry, and the `y` of all iterations, stacked along a new first axis.

    Raises
    ------
    ShapeError
        Lengths disagree, the body changes the nesting or a shape of the carry, or `unroll` is less
        than 1.
    DTypeError
        The body changes a type of the carry, or does not return a pair of nested tensors.
    JitError
        The body reads a value, which does not exist during tracing, or has a side effect that would
        have to happen in each iteration, such as setting an attribute or counting.
    IndexBoundsError
        During the run: an index is out of range. The message names the iteration. State is
        unchanged.

    Examples
    --------
    >>> total, sums = krt.scan(lambda c, x: (c + x, c + x), krt.tensor(0.0), krt.arange(4.0))
    >>> total.item(), sums.tolist()
    (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    made = Body("scan", body)
    arrays = plain_tree(xs, "scan: xs")
    trip_count = _length(arrays, length)
    factor = _unroll(unroll, trip_count)
    carried = plain_tree(init, "scan: init")
    slices = [t.dims for t in leaves_of(carried)] + [t.dims[1:] for t in leaves_of(arrays)]
    # Without a trace, values that an iteration overwrites are gone when its gradient is computed.
    alone = same(trip_count, 1) and (state.local.trace is not None or not state.local.grad)
    if alone or (stepwise() and not same(trip_count, 0)) or not all(map(is_static, slices)):
        return _unrolled(body, carried, arrays, trip_count, reverse=reverse)
    since = count_asked()
    carry = Carry("scan", made, carried)
    wholes = [node_of(t) for t in leaves_of(arrays)]
    slots = [slot(t.dims[1:], t.dtype) for t in leaves_of(arrays)]
    nested: list[Any] = []

    def taken(result: Any) -> list[Tensor]:
        new, y = _check_result(result, carry.tree)
        nested[:] = [y]
        return [*new, *leaves_of(y)]

    def call(trace: Trace) -> Traced:
        args = carry.given(made), rebuilt(arrays, [
            made.tensor(s, whole) for s, whole in zip(slots, wholes, strict=True)
        ])
        return trace_iteration(trace, made, carry, args, taken)

    graph = within(TURNS, [made], call)
    triples = carry.triples(graph, wholes)
    rows = graph.nodes[len(carry.slots) :]
    if same(trip_count, 0):
        finals = [first for _, first, _ in triples]
        stacks = [build.full(0, r.dtype, (0, *r.shape)) for r in rows]
    elif isinstance(trip_count, int) and factor > 1 and not _may_fail(triples, rows, since):
        finals, stacks = unrolled(
            triples, list(zip(slots, wholes, strict=True)), rows, trip_count, factor, since=since,
            reverse=reverse, checkpoint=checkpoint,
        )  # fmt: skip
    else:
        finals, stacks = region_graphs.loop(
            triples, list(zip(slots, wholes, strict=True)), rows, trip_count, since=since,
            count=trip_count if isinstance(trip_count, UOp) else None, reverse=reverse,
            checkpoint=checkpoint,
        )  # fmt: skip
        both = made_once("scan", carry.changed, [*finals, *stacks])
        finals, stacks = both[: len(finals)], both[len(finals) :]
    out = rebuilt(nested[0], [Tensor._of(node) for node in stacks])
    return carry.leave(finals), out


def _check_result(result: Any, before: Any) -> tuple[list[Tensor], Any]:
    """Check what `body` returned in one iteration of a scan; return (leaves of the carry, y)."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise DTypeError(
            f"scan: expected a pair (carry, y) from the body (y may be None), not {_kind(result)}"
        )
    return check_carry("scan", "carry", before, result[0]), plain_tree(result[1], "scan: y")


def _unrolled(
    body: Callable[[Any, Any], Any], carry: Any, arrays: Any, trip_count: Dim, *, reverse: bool
) -> tuple[Any, Any]:
    """Run a scan as a Python loop.

    Used in ``krt.disable_jit()``, and if a shape is known only at run time. Also used for a single
    iteration in a trace, or outside a trace while gradients are disabled.
    """
    if not isinstance(trip_count, int):
        raise VariableError(
            "scan: if the number of iterations depends on a Variable, xs and the carry need fixed "
            "shapes, not "
            + " and ".join(format_shape(t.dims) for t in leaves_of((arrays, carry)))
            + "; use jit(dynamic=...) only for the first axes of xs"
        )
    leaves = leaves_of(arrays)
    carry = own(carry)
    found: list[Any] = []
    for k in reversed(range(trip_count)) if reverse else range(trip_count):
        new, y = _check_result(body(carry, rebuilt(arrays, [t[k] for t in leaves])), carry)
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
    return a_type(value)


def _length(arrays: Any, length: object) -> Dim:
    found: Dim | None = None
    if length is not None:
        number = whole(length)
        if number is None:
            raise DTypeError(f"scan: length: expected an int, not {type(length).__name__}")
        _check_trip_count(number, "scan: length")
        found = number
    for path, t in named_leaves(arrays):
        if not t.dims:
            raise ShapeError(f"scan: xs{path}: expected an array with a first axis, not shape ()")
        if found is not None and not same(t.dims[0], found):
            giver = "as length says" if length is not None else "as the arrays before it have"
            raise ShapeError(
                f"scan: xs{path}: expected a first axis of size {format_size(found)}, {giver}, not "
                f"{format_size(t.dims[0])}"
            )
        found = t.dims[0]
    if found is None:
        raise ShapeError(
            "scan: length: without xs, the number of iterations is required; pass an int as length"
        )
    return found


def _may_fail(
    triples: Sequence[tuple[Slot, UOp, UOp]], rows: Sequence[UOp], since: int
) -> bool:
    """Return whether an iteration can raise an error during the run."""
    return region_graphs.may_fail([*(new for *_, new in triples), *rows], since)


def _unroll(value: object, trip_count: Dim) -> int:
    """Return the unroll factor."""
    most = trip_count if isinstance(trip_count, int) else 1
    if isinstance(value, bool | np.bool_):
        return most if value else 1
    number = whole(value)
    if number is None:
        raise DTypeError(f"scan: unroll: expected an int or a bool, not {describe(value)}")
    if number < 1:
        raise ShapeError(f"scan: unroll: expected at least 1 or True (all), not {number}")
    return min(number, most)


def _check_trip_count(trip_count: int, name: str) -> None:
    if not 0 <= trip_count < UNBOUNDED:
        expected = "at least 0" if trip_count < 0 else "less than 2**62"
        raise ShapeError(f"{name}: expected {expected}, not {trip_count}")


@computes_shared_reads
def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """Call a function for each integer from `lower` to before `upper`, passing a carry along.

    Parameters
    ----------
    lower, upper : int or Tensor
        Integers, or integer tensors of shape () if they are known only at run time.
    body : callable
        ``body(i, carry)`` returns the new carry; `i` is an int64 Tensor.
    init : Tensor, or nested Tensors
        Carry of the first iteration.

    Returns
    -------
    Tensor, or nested Tensors
        Last carry; `init` if there are no iterations.

    Raises
    ------
    ShapeError, DTypeError, JitError, IndexBoundsError
        See :func:`scan`.
    GradientError
        A gradient is taken and `lower` or `upper` is a tensor.

    Examples
    --------
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
    index = build.add(number.node, start)

    def taken(result: Any) -> list[Tensor]:
        return check_carry("fori_loop", "carry", carry.tree, result)

    def call(trace: Trace) -> Traced:
        args = Tensor._of(index), carry.given(made)
        return trace_iteration(trace, made, carry, args, taken)

    graph = within(TURNS, [made], call)
    triples = carry.triples(graph)
    if isinstance(first, int) and isinstance(last, int):
        trip_count, count = max(0, last - first), None
        _check_trip_count(trip_count, "fori_loop: upper - lower")
    else:
        stop = last if isinstance(last, UOp) else build.scalar(last, dt.int64)
        some = start.alu(Op.LT, stop)
        trip_count, count = UNBOUNDED, build.where(some, build.sub(stop, start), 0)
    if not trip_count:
        return carry.leave([value for _, value, _ in triples])
    finals, _ = region_graphs.loop(
        triples, (), (), trip_count, since=since, number=number, count=count
    )
    return carry.leave(made_once("fori_loop", carry.changed, finals))


def _counted(body: Callable[[Any, Any], Any], first: int | UOp, last: int | UOp, init: Any) -> Any:
    """Run a fori_loop as a Python loop."""
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
            raise ShapeError(f"fori_loop: {name}: expected an int of at most 64 bits, not {number}")
        return number
    if isinstance(value, Tensor) and value.dtype.is_int and not value.dims:
        with state.no_grad():
            return value.uop.cast(dt.int64)
    raise DTypeError(
        f"fori_loop: {name}: expected an int or an integer Tensor of shape (), not "
        f"{describe(value)}"
    )


@computes_shared_reads
def while_loop(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any,
    max_steps: int | None = None,
) -> Any:  # fmt: skip
    """Call a function as long as a condition holds, passing a carry along.

    Parameters
    ----------
    cond : callable
        ``cond(carry)`` returns a bool Tensor of shape (). It is evaluated before each iteration;
        the loop ends when it is False.
    body : callable
        ``body(carry)`` returns the new carry.
    init : Tensor, or nested Tensors
        Carry of the first iteration.
    max_steps : int, optional
        Maximum number of iterations; the loop then ends whatever the condition says. Gradients need
        it: it determines the size of the arrays that keep values for the backward pass.

    Returns
    -------
    Tensor, or nested Tensors
        Last carry; `init` if there are no iterations.

    Raises
    ------
    ShapeError, DTypeError, JitError, IndexBoundsError
        See :func:`scan`. DTypeError also if the condition is not a bool of shape ().
    GradientError
        A gradient is taken without `max_steps`.

    Examples
    --------
    >>> krt.while_loop(lambda x: x < 100.0, lambda x: x * 2, krt.tensor(3.0)).item()
    192.0
    """
    asked, made = Body("while_loop", cond), Body("while_loop", body)
    trip_count = UNBOUNDED
    if max_steps is not None:
        found = whole(max_steps)
        if found is None:
            raise DTypeError(f"while_loop: max_steps: expected an int, not {describe(max_steps)}")
        _check_trip_count(found, "while_loop: max_steps")
        trip_count = found
    if stepwise():
        return _repeated(cond, body, trip_count, init)
    since = count_asked()
    carry = Carry("while_loop", made, init)
    count = slot((), dt.int64)
    flag = slot((), dt.bool_)

    def taken(result: Any) -> list[Tensor]:
        return check_carry("while_loop", "carry", carry.tree, result)

    def call(trace: Trace) -> tuple[Traced, Traced]:
        graph = trace_iteration(trace, made, carry, (carry.given(made),), taken)
        return graph, asked.call(trace, (carry.given(asked),), carry.begin, _condition)

    graph, test = within(TURNS, [made, asked], call)
    refuse_changes("while_loop: cond", test)
    triples = carry.triples(graph)
    now = {s.memory: build.reshape(first, s.memory.shape) for s, first, _ in triples}
    then = {s.memory: build.reshape(new, s.memory.shape) for s, _, new in triples}
    before, after = rewritten(test.nodes, now)[0], rewritten(test.nodes, then)[0]
    if not trip_count:
        return carry.leave([value for _, value, _ in triples])
    triples = [
        (flag, before, after),
        (count, build.scalar(0, dt.int64), build.add(count.node, 1)),
        *triples,
    ]
    finals, _ = region_graphs.loop(triples, (), (), trip_count, since=since, conditional=True)
    return carry.leave(made_once("while_loop", carry.changed, finals[2:]))


def _repeated(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], most: int, init: Any
) -> Any:
    """Run a while_loop as a Python loop."""
    carry = own(plain_tree(init, "while_loop: init"))
    trip_count = 0
    while trip_count < most and _condition(cond(carry))[0].item():
        new = check_carry("while_loop", "carry", carry, body(carry))
        carry = realized(rebuilt(carry, new))
        trip_count += 1
    return carry


def _condition(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor) and result.dtype.is_bool and not result.dims:
        return [result]
    raise DTypeError(
        f"while_loop: cond: expected a bool Tensor of shape (), not {describe(result)}; compare, "
        "as in x < 1, and reduce an array with all() or any()"
    )
