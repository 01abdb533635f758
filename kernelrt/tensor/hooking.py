"""Hooks on tensors: functions that see a gradient on its way, and may give another one.

A leaf keeps its hooks in its mark. A result gets a mark of its own, under which whatever is made of
it from then on finds it: graphs hold equal values once, and a hook belongs to one of them.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

from kernelrt._handle import exchange, touch
from kernelrt._modes import GRAD, Mode
from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.ops import MOVEMENT
from kernelrt.ir.shape import format_shape
from kernelrt.tensor import build, state
from kernelrt.tensor.marks import (
    Hooked,
    Kept,
    Leaf,
    detach,
    gradient_operands,
    history,
    is_kept,
    mark,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kernelrt.tensor.base import TensorBase

__all__ = ["PASSED_BY", "Answers", "GradFn", "Handle", "answered", "are_met", "check_met",
           "grad_fn", "hook", "retain", "retains"]  # fmt: skip

#: Operations that others are joined with, so that what is made of their result may pass it by.
PASSED_BY = MOVEMENT | {Op.NEG}


class GradFn:
    """The operation through which gradients flow into a tensor.

    Parameters
    ----------
    op : str
        What the graph calls it: names of PyTorch's functions differ.
    """

    __slots__ = ("_op",)

    def __init__(self, op: str) -> None:
        self._op = op

    def name(self) -> str:
        """What the graph calls the operation."""
        return self._op

    def __repr__(self) -> str:
        return f"<{self._op}>"


def grad_fn(tensor: TensorBase) -> GradFn | None:
    """The operation that made a tensor into which gradients flow; None for a leaf."""
    if tensor.is_leaf:
        return None
    node = tensor._entered()
    while node.op is Op.DETACH and isinstance(node.arg, Kept | Hooked):
        node = node.src[0]
    return GradFn(node.op.name)


class Handle:
    """What takes a hook of a tensor away again."""

    __slots__ = ("_hook", "_mark")

    def __init__(self, on: Leaf | Hooked, own: tuple[Callable[..., Any]]) -> None:
        self._mark = weakref.ref(on)
        self._hook = own

    def remove(self) -> None:
        """Take the hook away; nothing happens a second time."""
        on = self._mark()
        if on is not None and any(h is self._hook for h in on.hooks):
            _set(on, tuple(h for h in on.hooks if h is not self._hook))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _set(on: Leaf | Hooked, hooks: tuple[tuple[Callable[..., Any]], ...]) -> None:
    """Exchange the hooks; plans in which gradients come to a leaf are made for its hooks."""
    if isinstance(on, Leaf):
        if state.local.trace is not None:
            raise JitError(
                "register_hook: a hook on a tensor that a traced function reaches would stay from "
                "the tracing alone; register it, and remove it, outside of the function"
            )
        state.flips[0] += 1
        touch()
    state.hooked[id(on)] = on
    on.hooks = hooks


def hook(tensor: TensorBase, function: Callable[..., Any]) -> Handle:
    """Let `function` see the gradient of `tensor`."""
    if not callable(function):
        raise DTypeError(f"hook: expected a function, not {type(function).__name__}")
    on = _mark_of(tensor, "register_hook")
    own = (function,)
    _set(on, (*on.hooks, own))
    return Handle(on, own)


def retain(tensor: TensorBase) -> None:
    """Let ``grad`` of a result collect its gradient, as that of a leaf does."""
    on = _mark_of(tensor, "retain_grad")
    if isinstance(on, Hooked):
        on.keeper = weakref.ref(tensor)


def retains(tensor: TensorBase) -> bool:
    """Whether :func:`retain` was called."""
    known = _known(tensor._uop)
    return known is not None and known.keeper is not None


def _known(node: UOp | None) -> Hooked | None:
    """The mark that hooks have given a result already."""
    if node is not None and is_kept(node):
        node = node.src[0]
    marked = node is not None and node.op is Op.DETACH and isinstance(node.arg, Hooked)
    return cast("UOp", node).arg if marked else None


def _mark_of(tensor: TensorBase, name: str) -> Leaf | Hooked:
    """The mark that has hooks of `tensor`, made when there is none."""
    if tensor._uop is not None and tensor._leaf is not None:
        return tensor._leaf
    if not tensor.requires_grad:
        raise GradientError(
            f"{name}: no gradient flows into the tensor; make it with requires_grad=True, or of "
            "tensors that require one"
        )
    trace = state.local.trace
    if trace is not None and trace.assigned_to(tensor) is not None:
        raise GradientError(
            f"{name}: the tensor was assigned to in the traced function; take a clone() of it"
        )
    while True:
        tensor._enter()
        node = tensor._entered()
        known = _known(node)
        if known is not None:
            return known
        kept = is_kept(node)
        base = node.src[0] if kept else node
        if base.op in PASSED_BY:
            raise GradientError(
                f"{name}: the tensor is a view or a negative of another one ({base.op.name}), "
                "which graphs do not keep; take a clone() of it, and use that in what follows"
            )
        new = Hooked(base)
        marked = mark(base, new)
        if exchange(tensor, node, mark(marked, node.arg) if kept else marked):
            state.births[0] += 1
            state.hooked[id(new)] = new
            return new


# ---- on the way of a gradient


@dataclass(slots=True)
class Answers:
    """What hooks gave, so that none is called again where a differentiation is begun again.

    Attributes
    ----------
    create_graph : bool
        Whether what hooks do is recorded for gradients.
    given : dict
        By marks.
    """

    create_graph: bool = False
    given: dict[Leaf | Hooked, TensorBase | None] = field(default_factory=dict)


def answered(on: Leaf | Hooked, g: UOp, answers: Answers) -> UOp:
    """The gradient that goes on from a mark to which `g` comes."""
    if on.hooks and on not in answers.given:
        answers.given[on] = _called(on, g, create_graph=answers.create_graph)
    answer = answers.given.get(on)
    return g if answer is None else answer.uop


def _called(on: Leaf | Hooked, g: UOp, *, create_graph: bool) -> TensorBase | None:
    from kernelrt.tensor.tensor import Tensor

    answer = None
    with Mode(GRAD, create_graph):
        for (function,) in on.hooks:
            given = Tensor._of(g if create_graph else detach(g)) if answer is None else answer
            new = function(given)
            if new is None:
                continue
            if not isinstance(new, Tensor):
                raise DTypeError(
                    f"hook: expected it to give a Tensor or None, not {type(new).__name__}"
                )
            if not build.same_shape(new.dims, g.shape) or new.dtype is not g.dtype:
                raise ShapeError(
                    f"hook: expected it to give {g.dtype.name} of shape {format_shape(g.shape)}, "
                    f"as the gradient is, not {new.dtype.name} of shape {format_shape(new.dims)}"
                )
            answer = new
    return answer


def are_met(root: UOp) -> bool:
    """Whether a gradient of `root` comes to a tensor that has hooks, or had some."""
    if not state.hooked:
        return False
    return any(
        node.op is Op.DETACH
        and (isinstance(node.arg, Hooked) or (isinstance(node.arg, Leaf) and node.arg.hooks))
        for node in history(root)
    )


def check_met(order: Sequence[UOp], live: Collection[UOp], name: str) -> None:
    """Raise GradientError where a gradient comes to a result with hooks by another way.

    That is so where something was made of it before the mark was there, or of a tensor that equals
    it: graphs hold equal values once.
    """
    if not state.hooked:
        return
    marks = [on for ref in state.hooked.valuerefs() if isinstance(on := ref(), Hooked)]
    bases = {on.base() for on in marks if on.hooks or on.keeper is not None}
    for node in order if bases else ():
        if node.op is Op.DETACH and isinstance(node.arg, Hooked):
            continue
        if any(s in bases and s in live for s in gradient_operands(node)):
            raise GradientError(
                f"{name}: a tensor was used before a hook was registered on it, or before it was "
                "told to retain its gradient, or one that equals it was used; do so right after "
                "it is made, or with a clone() of it, before anything is computed from that"
            )
