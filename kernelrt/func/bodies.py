"""Traces functions as bodies of loops and branches.

What a body assigns to, of tensors that were there before, is carried from turn to turn like what
it is given, and assigned when the last turn is over: so optimizers, running statistics and streams
of random numbers work in a body. Which tensors these are is known when it was called; it is then
called once more, with what stands for them.
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

__all__ = ["Body", "Carry", "Traced", "check_carry", "computes_shared_reads", "first_values",
           "made_once", "node_of", "own", "plain_tree", "realized", "refuse_changes", "stepwise",
           "told", "turn_of", "within"]  # fmt: skip


T = TypeVar("T")
_F = TypeVar("_F", bound="Callable[..., Any]")


def within(purpose: Purpose, bodies: Sequence[Body], work: Callable[[Trace], T]) -> T:
    """What `work` makes of the active trace, or of one of its own, in which it calls bodies.

    Raises
    ------
    JitError
        They set something else than tensors, once for all that they are called for.
    """
    functions = [body.function for body in bodies]
    trace = state.local.trace
    if trace is not None:
        return called_once(trace, purpose, bodies[0].name, functions, lambda: work(trace))
    with Trace() as made:
        return called_once(made, purpose, bodies[0].name, functions, lambda: work(made))


# ---- nested tensors


def plain_tree(tree: object, name: str) -> Any:
    """Nested data with tensors in the place of arrays and numbers.

    Raises
    ------
    DTypeError
        A leaf is none of these.
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
    """Nested tensors for a function that is called as it is, and may assign to them."""
    return mapped(lambda t: Tensor._of(t.uop) if isinstance(t, Tensor) else t, tree)


def stepwise() -> bool:
    """Whether functions are called as they are, with values: within ``krt.disable_jit()``."""
    return state.local.stepwise and state.local.trace is None


def realized(tree: Any) -> Any:
    """Nested tensors, computed."""
    realize(*(t for t in leaves_of(tree) if isinstance(t, Tensor)))
    return tree


def computes_shared_reads(function: _F) -> _F:
    """Decorate a function so that it computes those of its results that read shared memory."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if shared_memory.shared[0]:
            shared_memory.compute_readers(t for t in leaves_of(result) if isinstance(t, Tensor))
        return result

    return cast("_F", call)


def node_of(tensor: Tensor) -> UOp:
    """The node of a tensor, with its history where that is recorded."""
    return tensor.uop


def check_carry(name: str, what: str, before: object, after: Any) -> list[Tensor]:
    """The leaves of what a turn gives back, which are as those that it was given.

    Raises
    ------
    ShapeError
        They are nested otherwise, or one has another shape.
    DTypeError
        One has another type.
    """
    made = plain_tree(after, f"{name}: {what}")
    if not alike(before, made):
        raise ShapeError(
            f"{name}: {what}: the body gives back {nesting(made)} for {nesting(before)}, where * "
            "is a tensor; it has to be nested alike in every turn"
        )
    out = []
    for (path, old), new in zip(named_leaves(before), flatten(made, before, what), strict=True):
        if not build.same_shape(old.dims, new.dims):
            raise ShapeError(
                f"{name}: {what}{path}: the body makes shape {format_shape(new.dims)} of "
                f"{format_shape(old.dims)}; the shape has to stay the same in every turn"
            )
        if new.dtype is not old.dtype:
            raise DTypeError(
                f"{name}: {what}{path}: the body makes {new.dtype.name} of {old.dtype.name}; "
                f"begin with that type, or cast what is given back, as in x.to({old.dtype.name!r})"
            )
        out.append(new)
    return out


# ---- bodies


@dataclass(slots=True, eq=False)
class Traced:
    """What a body makes.

    Attributes
    ----------
    result : object
        What it gave back, nested.
    nodes : list of UOp
        The nodes of the tensors that the caller asked for.
    states : list of (Tensor, UOp)
        Tensors that it assigned to, and the values that they had at the end.
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
        What the user called, for errors.
    function : callable
        What is called.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise DTypeError(f"{name}: expected a function, not {type(function).__name__}")
        self.name = name
        self.function = function
        self._bare: dict[UOp, UOp] = {}

    def tensor(self, made: Slot, first: UOp) -> Tensor:
        """A tensor for a slot, which requires a gradient if what it stands for does."""
        return Tensor._of(self.marked(made, Leaf() if has_history(first) else None))

    def marked(self, made: Slot, leaf: Leaf | None) -> UOp:
        """The node that a body sees of a slot: gradients are collected for it, or not."""
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
        """Call the function once.

        Parameters
        ----------
        trace : Trace
            The active one.
        args : sequence
            What it is given.
        begin : sequence of (Tensor, UOp)
            Tensors that have another value in it than outside.
        taken : callable
            Checks what it gives back, and gives the tensors whose nodes are wanted.

        Raises
        ------
        GradientError
            It leaves gradients that nobody has used, or adds to those that were there before.
        """
        made = Traced()
        with trace.within(begin) as inner:
            made.result = self.function(*args)
            nodes = [node_of(t) for t in taken(made.result)]
        if inner.found or inner.left:
            raise GradientError(
                f"{self.name}: the body "
                + ("adds to gradients from before" if inner.found else "leaves gradients behind")
                + ", which would be those of one turn; call zero_grad() of the optimizer in it, "
                "before backward(), and step() behind, or give back what krt.func.grad gives"
            )
        values = [node for _, node in inner.assigned]
        bare = rewritten([*nodes, *values, *inner.roots], self._bare)
        made.nodes = bare[: len(nodes)]
        tensors = [cast("Tensor", tensor) for tensor, _ in inner.assigned]
        made.states = list(zip(tensors, bare[len(nodes) :], strict=False))
        made.roots = bare[len(nodes) + len(values) :]
        return made


def refuse_changes(name: str, made: Traced) -> None:
    """Refuse a body that assigns to tensors from outside."""
    if keeps_order([tensor for tensor, _ in made.states]):
        raise JitError(
            f"{name}: the condition makes a call with pure=False, but may only compute a value; "
            "make the call in the body, and carry its result"
        )
    if made.states:
        tensor = made.states[0][0]
        raise JitError(
            f"{name}: the condition assigns to a tensor of shape {format_shape(tensor.dims)} from "
            "outside, but may only compute a value; return the new value instead"
        )


# ---- what is carried


def first_values(tensors: Sequence[Tensor], known: Sequence[UOp]) -> list[UOp]:
    """The nodes of state as it is before a body assigns to it.

    Gradients compute what the body does again, from that. Without a trace the memory of state is
    written when the body has run, so it is copied where gradients may come, as to anything in the
    graphs that are `known`: they come to all that a run reads.
    """
    if not tensors:
        return []
    copied = state.local.trace is None and any(map(has_history, below(known, has_history)))
    return [node_of(t.detach().clone().realize()) if copied else node_of(t) for t in tensors]


class Carry:
    """What a loop carries from turn to turn: nested tensors, and state that its body assigns to."""

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
        """What stands for it in the active trace."""
        pairs = zip(self.slots, self.first, strict=True)
        return rebuilt(self.tree, [body.tensor(s, first) for s, first in pairs])

    @property
    def begin(self) -> list[tuple[Tensor, UOp]]:
        """State with what stands for it in a turn."""
        return [(t, self._body.marked(s, t._leaf)) for t, s in self.state]

    @property
    def changed(self) -> list[Tensor]:
        """State that the body assigns to."""
        return [t for t, _ in self.state]

    def add_state(self, tensors: Sequence[Tensor]) -> None:
        """Carry state, too."""
        for t in tensors:
            self.state.append((t, slot(t.dims, t.dtype)))

    def triples(
        self, made: Traced, others: Sequence[UOp] = ()
    ) -> list[tuple[Slot, UOp, UOp]]:
        """Slots, first values, and what a turn makes of them. It is given the `others`, too."""
        count = len(self.slots)
        own = list(zip(self.slots, self.first, made.nodes[:count], strict=True))
        new = {id(t): node for t, node in made.states}
        known = (*self.first, *made.nodes, *others, *(node for _, node in made.states))
        firsts = first_values([t for t, _ in self.state], known)
        for (t, s), first in zip(self.state, firsts, strict=True):
            own.append((s, first, new.get(id(t), s.node)))
        return own

    def leave(self, finals: Sequence[UOp]) -> Any:
        """Assign state; give the last values of the rest, nested."""
        count = len(self.slots)
        if self.state:
            with state.no_grad():
                pairs = zip((t for t, _ in self.state), finals[count:], strict=True)
                assign_all([(t, Tensor._of(node)) for t, node in pairs])
        return rebuilt(self.tree, [Tensor._of(n) for n in finals[:count]])

    def note_roots(self, trace: Trace, made: Traced) -> None:
        """Tell an outer trace what gradients were taken of, as of the first turn."""
        if not made.roots:
            return
        pairs = [*zip(self.slots, self.first, strict=True)]
        pairs += [(s, node_of(t)) for t, s in self.state]
        put = {s.place: build.reshape(node, s.place.shape) for s, node in pairs}
        trace.differentiated_within(rewritten(made.roots, put))


def made_once(name: str, states: Iterable[Tensor], nodes: list[UOp]) -> list[UOp]:
    """`nodes`, computed if a call that is made once is in their run and nothing else computes it.

    Whatever the run is needed for later, it does not run again.
    """
    if state.local.trace is not None or not keeps_order(states):
        return nodes
    results = [Tensor._of(node) for node in nodes]
    realize(*results)
    given = [node_of(t) for t in results]
    return [mark(n.arg.storage, Stale(n, name)) if is_kept(n) else n for n in given]


def turn_of(
    trace: Trace,
    body: Body,
    carry: Carry,
    args: Sequence[Any],
    taken: Callable[[Any], Sequence[Tensor]],
) -> Traced:
    """The graph of one turn; called again as long as it assigns to state that is not carried."""
    while True:
        made = body.call(trace, args, carry.begin, taken)
        known = {id(t) for t, _ in carry.state}
        new = [t for t, _ in made.states if id(t) not in known]
        if not new:
            carry.note_roots(trace, made)
            return made
        carry.add_state(new)


def told(value: object) -> str:
    """What a value is, for errors."""
    if isinstance(value, Tensor):
        return f"{value.dtype.name} of shape {format_shape(value.dims)}"
    return type(value).__name__
