"""Traces the functions that are bodies of loops and branches.

Tensors from outside that a body assigns to become part of the carry: they pass from iteration to
iteration, and are assigned after the last one. So optimizers, running statistics and random number
streams work in a body. The first trace of a body finds these tensors; the body is then traced once
more with placeholders for them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError
from kernelrt.func.trees import alike, flatten, leaves_of, mapped, named_leaves, nesting, rebuilt
from kernelrt.ir.shape import format_shape, is_static
from kernelrt.jit.effects.purity import called_once
from kernelrt.tensor import Tensor, Trace, state
from kernelrt.tensor.autograd.tags import Leaf, Stale, below, has_history, is_kept, mark, rewritten
from kernelrt.tensor.eager import shared_memory
from kernelrt.tensor.eager.assign import assign_all
from kernelrt.tensor.eager.realize import realize
from kernelrt.tensor.free_functions import creation
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing.ffi_calls import keeps_order
from kernelrt.tensor.tracing.region_graphs import Slot, slot, unknown_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelrt.ir import UOp
    from kernelrt.jit.effects.purity import Purpose

__all__ = [
    "Body",
    "Carry",
    "Traced",
    "check_carry",
    "computes_shared_reads",
    "describe",
    "first_values",
    "made_once",
    "node_of",
    "own",
    "plain_tree",
    "realized",
    "refuse_changes",
    "stepwise",
    "trace_iteration",
    "within",
]  # fmt: skip


T = TypeVar("T")
_F = TypeVar("_F", bound="Callable[..., Any]")


def within(purpose: Purpose, bodies: Sequence[Body], work: Callable[[Trace], T]) -> T:
    """Call `work` with the active trace, or with a new one if no trace is active.

    `work` calls `bodies` in that trace.

    Raises
    ------
    JitError
        A body has a side effect other than assigning to tensors, such as setting an attribute. It
        would happen once during the trace, instead of in each iteration or chosen branch.
    """
    functions = [body.function for body in bodies]
    trace = state.local.trace
    if trace is not None:
        return called_once(trace, purpose, bodies[0].name, functions, lambda: work(trace))
    with Trace() as made:
        return called_once(made, purpose, bodies[0].name, functions, lambda: work(made))


# ---- nested tensors


def plain_tree(tree: object, name: str) -> Any:
    """Return nested data with arrays and numbers converted to tensors.

    Raises
    ------
    DTypeError
        A leaf is not a tensor, an array or a number.
    """
    if isinstance(tree, Tensor):
        return tree
    return rebuilt(tree, [_tensor(leaf, path) for path, leaf in named_leaves(tree, name)])


def _tensor(leaf: object, name: str) -> Tensor:
    if isinstance(leaf, Tensor):
        found = leaf
    else:
        try:
            found = creation.tensor(leaf)
        except (DTypeError, ShapeError) as error:
            raise DTypeError(
                f"{name}: expected a Tensor, an array or a number, or dicts, lists, tuples and "
                f"dataclasses of these, not {type(leaf).__name__}"
            ) from error
    return found


def own(tree: Any) -> Any:
    """Return new tensors with the same values, for an untraced function that may assign to them."""
    return mapped(lambda t: Tensor._of(t.uop) if isinstance(t, Tensor) else t, tree)


def stepwise() -> bool:
    """Return whether functions run untraced: in ``krt.disable_jit()`` and outside a trace."""
    return state.local.stepwise and state.local.trace is None


def realized(tree: Any) -> Any:
    """Compute all tensors of a nested structure, and return the structure."""
    realize(*(t for t in leaves_of(tree) if isinstance(t, Tensor)))
    return tree


def computes_shared_reads(function: _F) -> _F:
    """Decorate a function: it computes its results that read shared memory before it returns."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if shared_memory.shared[0]:
            shared_memory.compute_readers(t for t in leaves_of(result) if isinstance(t, Tensor))
        return result

    return cast("_F", call)


def node_of(tensor: Tensor) -> UOp:
    """Return the node of a tensor, with autograd history if that is recorded."""
    return tensor.uop


def check_carry(name: str, what: str, before: object, after: Any) -> list[Tensor]:
    """Return the leaves of a new carry after checking it against the old one.

    Raises
    ------
    ShapeError
        The nesting or a shape differs.
    DTypeError
        A type differs.
    """
    made = plain_tree(after, f"{name}: {what}")
    if not alike(before, made):
        raise ShapeError(
            f"{name}: {what}: the body receives the nesting {nesting(before)} and returns the "
            f"nesting {nesting(made)}, where * is a tensor; return the same nesting"
        )
    out = []
    for (path, old), new in zip(named_leaves(before), flatten(made, before, what), strict=True):
        if not build.same_shape(old.dims, new.dims):
            raise ShapeError(
                f"{name}: {what}{path}: the body changes the shape {format_shape(old.dims)} to "
                f"{format_shape(new.dims)}; return the same shape in every iteration"
            )
        if new.dtype is not old.dtype:
            raise DTypeError(
                f"{name}: {what}{path}: the body changes the dtype {old.dtype.name} to "
                f"{new.dtype.name}; start with {new.dtype.name}, or cast the new value, as in "
                f"x.to({old.dtype.name!r})"
            )
        out.append(new)
    return out


# ---- bodies


@dataclass(slots=True, eq=False)
class Traced:
    """The graph of one traced body.

    Attributes
    ----------
    result : object
        Nested result of the function.
    nodes : list of UOp
        Nodes of the tensors that the caller asked for.
    states : list of (Tensor, UOp)
        Tensors that the body assigned to, each with its last value.
    roots : list of UOp
        Nodes that the body took gradients of, such as losses.
    """

    result: Any = None
    nodes: list[UOp] = field(default_factory=list)
    states: list[tuple[Tensor, UOp]] = field(default_factory=list)
    roots: list[UOp] = field(default_factory=list)


class Body:
    """A function whose calls become graphs.

    Parameters
    ----------
    name : str
        Name of the function that the user called, for errors.
    function : callable
        The body itself.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise DTypeError(f"{name}: expected a function, not {type(function).__name__}")
        self.name = name
        self.function = function
        self._bare: dict[UOp, UOp] = {}

    def tensor(self, made: Slot, first: UOp) -> Tensor:
        """Return a tensor for a slot; it requires a gradient if the slot's first value does."""
        return Tensor._of(self.marked(made, Leaf() if has_history(first) else None))

    def marked(self, made: Slot, leaf: Leaf | None) -> UOp:
        """Return the node of a slot for use in the body; with `leaf`, it collects a gradient."""
        if leaf is None:
            return made.node
        node = mark(made.node, leaf)
        self._bare[node] = made.node
        return node

    def call(
        self,
        trace: Trace,
        args: Sequence[Any],
        begin: Sequence[tuple[Tensor, UOp]],
        taken: Callable[[Any], Sequence[Tensor]],
    ) -> Traced:
        """Trace one call of the function.

        Parameters
        ----------
        trace : Trace
            Active trace.
        args : sequence
            Arguments of the call.
        begin : sequence of (Tensor, UOp)
            Outside tensors, each with its value inside the body.
        taken : callable
            Checks the result and returns the tensors whose nodes the caller needs.

        Raises
        ------
        GradientError
            The body leaves gradients that nothing used, or adds to gradients from before.
        """
        made = Traced()
        with trace.within(begin) as inner:
            made.result = self.function(*args)
            nodes = [node_of(t) for t in taken(made.result)]
        if inner.found or inner.left:
            told = (
                "the body adds to gradients from outside the body" if inner.found else
                "the body computes gradients and does not use them"
            )
            raise GradientError(
                f"{self.name}: {told}, but these gradients would be those of a single iteration; "
                "in the body, call the optimizer's zero_grad() before backward() and step() after "
                "it, or use krt.func.grad"
            )
        values = [node for _, node in inner.assigned]
        bare = rewritten([*nodes, *values, *inner.roots], self._bare)
        made.nodes = bare[: len(nodes)]
        tensors = [cast("Tensor", tensor) for tensor, _ in inner.assigned]
        made.states = list(zip(tensors, bare[len(nodes) :], strict=False))
        made.roots = bare[len(nodes) + len(values) :]
        return made


def refuse_changes(name: str, made: Traced) -> None:
    """Raise an error if a condition assigns to outside tensors."""
    if keeps_order([tensor for tensor, _ in made.states]):
        raise JitError(
            f"{name}: the condition calls a function with pure=False, but a condition may only "
            "compute a value; call the function in the body, and carry its result"
        )
    if made.states:
        tensor = made.states[0][0]
        raise JitError(
            f"{name}: the condition assigns to a tensor of shape {format_shape(tensor.dims)} from "
            "outside, but a condition may only compute a value; return the new value instead"
        )


# ---- what is carried


def first_values(tensors: Sequence[Tensor], known: Sequence[UOp]) -> list[UOp]:
    """Return the nodes of state tensors before a body assigns to them.

    The backward pass recomputes the body from these values. Without a trace the memory of state is
    overwritten after the body has run. So the values are copied if any node in `known`, the graphs
    of the run, has an autograd history, because gradients then flow to all inputs of the run.
    """
    if not tensors:
        return []
    copied = state.local.trace is None and any(map(has_history, below(known, has_history)))
    return [node_of(t.detach().clone().realize()) if copied else node_of(t) for t in tensors]


class Carry:
    """The carry of a loop: nested tensors, and state that the body assigns to."""

    def __init__(self, name: str, body: Body, init: object) -> None:
        self._body = body
        self.tree = plain_tree(init, f"{name}: init")
        self.tensors: list[Tensor] = leaves_of(self.tree)
        for path, t in named_leaves(self.tree):
            if not is_static(t.dims):
                raise unknown_size(f"{name}: init{path}", t.dims)
        self.first = [node_of(t) for t in self.tensors]
        self.slots = [slot(t.dims, t.dtype) for t in self.tensors]
        self.state: list[tuple[Tensor, Slot]] = []

    def given(self, body: Body) -> Any:
        """Return the nested tensors that stand for the carry in the active trace."""
        pairs = zip(self.slots, self.first, strict=True)
        return rebuilt(self.tree, [body.tensor(s, first) for s, first in pairs])

    @property
    def begin(self) -> list[tuple[Tensor, UOp]]:
        """State tensors, each with the node that stands for it in an iteration."""
        return [(t, self._body.marked(s, t._leaf)) for t, s in self.state]

    @property
    def changed(self) -> list[Tensor]:
        """State tensors that the body assigns to."""
        return [t for t, _ in self.state]

    def add_state(self, tensors: Sequence[Tensor]) -> None:
        """Add state tensors to the carry."""
        for t in tensors:
            self.state.append((t, slot(t.dims, t.dtype)))

    def triples(
        self, made: Traced, others: Sequence[UOp] = ()
    ) -> list[tuple[Slot, UOp, UOp]]:
        """Return (slot, first value, value after one iteration) for each carried tensor.

        `others` are further inputs of the loop.
        """
        count = len(self.slots)
        own = list(zip(self.slots, self.first, made.nodes[:count], strict=True))
        new = {id(t): node for t, node in made.states}
        known = (*self.first, *made.nodes, *others, *(node for _, node in made.states))
        firsts = first_values([t for t, _ in self.state], known)
        for (t, s), first in zip(self.state, firsts, strict=True):
            own.append((s, first, new.get(id(t), s.node)))
        return own

    def leave(self, finals: Sequence[UOp]) -> Any:
        """Assign the last values of state; return those of the other tensors, nested."""
        count = len(self.slots)
        if self.state:
            with state.no_grad():
                pairs = zip((t for t, _ in self.state), finals[count:], strict=True)
                assign_all([(t, Tensor._of(node)) for t, node in pairs])
        return rebuilt(self.tree, [Tensor._of(n) for n in finals[:count]])

    def note_roots(self, trace: Trace, made: Traced) -> None:
        """Tell an outer trace which nodes of the first iteration were differentiated."""
        if not made.roots:
            return
        pairs = [*zip(self.slots, self.first, strict=True)]
        pairs += [(s, node_of(t)) for t, s in self.state]
        put = {s.memory: build.reshape(node, s.memory.shape) for s, node in pairs}
        trace.differentiated_within(rewritten(made.roots, put))


def made_once(name: str, states: Iterable[Tensor], nodes: list[UOp]) -> list[UOp]:
    """Return the results `nodes`; compute them now if a body makes a call with pure=False.

    Later uses then read the computed values and do not repeat the call. In a trace, `nodes` are
    returned unchanged.
    """
    if state.local.trace is not None or not keeps_order(states):
        return nodes
    results = [Tensor._of(node) for node in nodes]
    realize(*results)
    given = [node_of(t) for t in results]
    return [mark(n.arg.storage, Stale(n, name)) if is_kept(n) else n for n in given]


def trace_iteration(
    trace: Trace,
    body: Body,
    carry: Carry,
    args: Sequence[Any],
    taken: Callable[[Any], Sequence[Tensor]],
) -> Traced:
    """Trace one iteration; retrace as long as it assigns to state that is not carried yet."""
    while True:
        made = body.call(trace, args, carry.begin, taken)
        known = {id(t) for t, _ in carry.state}
        new = [t for t, _ in made.states if id(t) not in known]
        if not new:
            carry.note_roots(trace, made)
            return made
        carry.add_state(new)


def describe(value: object) -> str:
    """Describe a value for an error message."""
    if isinstance(value, Tensor):
        return f"{value.dtype.name} of shape {format_shape(value.dims)}"
    return type(value).__name__
