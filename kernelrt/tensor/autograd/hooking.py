"""Tensor hooks: functions that see, and may replace, a gradient during backward.

A leaf keeps its hooks in its mark. A result gets a mark of its own, under which whatever is made of
it from then on finds it: graphs hold equal values once, and a hook belongs to one of them.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kernelrt.errors import DTypeError, GradientError, JitError, ShapeError
from kernelrt.ir import Op, UOp
from kernelrt.ir.ops import MOVEMENT
from kernelrt.ir.origin import resolve
from kernelrt.ir.shape import format_shape
from kernelrt.native.array_handle import exchange, touch
from kernelrt.native.thread_modes import GRAD, Mode
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import (
    Hooked,
    Kept,
    Leaf,
    detach,
    gradient_operands,
    history,
    is_kept,
    mark,
)
from kernelrt.tensor.nodes import build
from kernelrt.util.hook_handles import Entry, Handle
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from kernelrt.tensor import tensor as tensor_module
    from kernelrt.tensor.autograd.tags import Hooks
    from kernelrt.tensor.base import TensorBase
else:
    tensor_module = Module("kernelrt.tensor.tensor")

__all__ = ["PASSED_BY", "Answers", "GradFn", "Handle", "Late", "answered", "are_met", "check_met",
           "follow", "grad_fn", "handed_on", "hook", "is_hooked", "retain", "retains"]  # fmt: skip

_E = TypeVar("_E")
_T = TypeVar("_T", bound="TensorBase")

#: Operations that others are joined with, so that what is made of their result may pass it by.
PASSED_BY = MOVEMENT | {Op.NEG}


class GradFn:
    """The operation through which gradients flow into a tensor.

    Parameters
    ----------
    op : str
        What the user called, or what the graph calls it: names of PyTorch's functions differ.
    """

    __slots__ = ("_op",)

    def __init__(self, op: str) -> None:
        self._op = op

    def name(self) -> str:
        """What the operation is called."""
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
    # An operation is made of several nodes, of which the last says little.
    called = "" if node.origin is None else resolve(node.origin).op
    return GradFn(called.upper() if called not in _UNKNOWN else node.op.name)


#: What the origin of a node says where no operation was called.
_UNKNOWN = ("", "tensor")


# ---- registering


@dataclass(slots=True, eq=False, repr=False)
class Late:
    """That a result was marked when something may have been made of it already.

    It keeps no hook alive, which may hold the result: where that is gone, it remembers it.

    Attributes
    ----------
    mark : weak reference to Hooked
        Its mark.
    made : int
        Nodes that are older may have been made of it without the mark.
    kept : weak reference to Kept, or None
        The mark of the value's memory, if it is stored.
    """

    mark: weakref.ref[Hooked]
    made: int
    kept: weakref.ref[Kept] | None
    #: Whether the mark has hooks, or had some when it went.
    hooked: bool = False

    def is_active(self) -> bool:
        """Whether a gradient that comes another way is missed."""
        on = self.mark()
        return self.hooked if on is None else _is_active(on)


def _is_active(on: Leaf | Hooked) -> bool:
    return bool(on.hooks) or (isinstance(on, Hooked) and on.keeper is not None)


def _enlist(on: Leaf | Hooked) -> None:
    """Note whether `on` has anything to do; the lock is held."""
    if isinstance(on, Hooked) and on.late is not None:
        on.late.hooked = bool(on.hooks)
    if _is_active(on):
        state.hooked[id(on)] = on
    else:
        state.hooked.pop(id(on), None)


def _edit(on: Leaf | Hooked, change: Callable[[Hooks], Hooks]) -> None:
    """Exchange the hooks; plans in which gradients come to a leaf are made for its hooks."""
    with state.lock:
        while True:
            before = on.hooks
            hooks = change(before)
            if hooks is before:
                return
            if isinstance(on, Leaf) and state.local.trace is not None:
                raise JitError(
                    "register_hook: the tensor exists outside the traced function, and the hook "
                    "would be registered only when the function is traced, not in each call; "
                    "register and remove the hook outside the function"
                )
            if on.hooks is before:  # else a signal's handler, which has the lock, too, came first
                on.hooks = hooks
                break
        _enlist(on)
        if isinstance(on, Leaf):  # behind the change: what is traced meanwhile is so again
            state.flips[0] += 1
            touch()


def _edit_if_alive(mark: weakref.ref[Leaf | Hooked], change: Callable[[Hooks], Hooks]) -> None:
    on = mark()
    if on is not None:
        _edit(on, change)


def hook(tensor: TensorBase, function: Callable[..., Any]) -> Handle:
    """Let `function` see the gradient of `tensor`."""
    if not callable(function):
        raise DTypeError(f"hook: expected a function, not {type(function).__name__}")
    on = _mark_of(tensor, "register_hook")
    entry = Entry(function)
    _edit(on, lambda hooks: (*hooks, entry))
    return Handle(partial(_edit_if_alive, weakref.ref(on)), entry)


def retain(tensor: TensorBase) -> None:
    """Let ``grad`` of a result collect its gradient, as that of a leaf does."""
    on = _mark_of(tensor, "retain_grad")
    if isinstance(on, Hooked):
        with state.lock:
            on.retained = True
            _enlist(on)


def follow(tensor: TensorBase, before: UOp | None) -> None:
    """Let a tensor that had the node `before` collect the gradient of its new value, if it did."""
    known = _known(tensor, before)
    if known is not None and known.retained:
        with state.lock:
            known.retained = False
            _enlist(known)
        if tensor.requires_grad:
            retain(tensor)


def is_hooked(tensor: TensorBase, node: UOp | None) -> bool:
    """Whether hooks have marked the value of a result, which is `node`."""
    return _known(tensor, node) is not None


def retains(tensor: TensorBase) -> bool:
    """Whether :func:`retain` was called."""
    known = _known(tensor, tensor._uop)
    return known is not None and known.retained


def _known(tensor: TensorBase, node: UOp | None) -> Hooked | None:
    """The mark that hooks have given a result already."""
    if node is not None and is_kept(node):
        node = node.src[0]
    if node is None or node.op is not Op.DETACH or not isinstance(node.arg, Hooked):
        return None
    return node.arg if node.arg.is_of(tensor) else None


def _mark_of(tensor: TensorBase, name: str) -> Leaf | Hooked:
    """The mark that has hooks of `tensor`, made when there is none."""
    if tensor._uop is not None and tensor._leaf is not None:
        return tensor._leaf
    if not tensor.requires_grad:
        raise GradientError(
            f"{name}: no gradient flows into the tensor; create it with requires_grad=True, or "
            "compute it from tensors that require gradients"
        )
    trace = state.local.trace
    if trace is not None and trace.assigned_to(tensor) is not None:
        raise GradientError(
            f"{name}: the tensor was assigned to in the traced function; use a clone() of it"
        )
    while True:
        tensor._enter()
        node = tensor._entered()
        known = _known(tensor, node)
        if known is not None:
            return known
        kept = is_kept(node)
        base = node.src[0] if kept else node
        used = tensor._used
        if used and base.op in PASSED_BY:
            raise GradientError(
                f"{name}: the tensor is a view or a negative of another tensor ({base.op.name}) "
                f"and was used already, so gradients may bypass it; call {name} right after the "
                "tensor is created, or on a clone() that later operations use"
            )
        new = Hooked(tensor)
        marked = mark(base, new)
        if exchange(tensor, node, mark(marked, node.arg) if kept else marked):
            state.births[0] += 1
            if tensor._link is not None:
                tensor._link.node = marked
            if used:
                memory = weakref.ref(node.arg) if kept else None
                new.late = late = Late(weakref.ref(new), marked.made, memory)
                with state.lock:
                    _note_late(base, late)
            return new


def _note_late(base: UOp, late: Late) -> None:
    """Note that something may have been made of `base`, or of copies of it, before a mark."""
    for value in _copies_of(base):
        state.late[value] = (*state.late.get(value, ()), late)


def _copies_of(value: UOp) -> list[UOp]:
    """`value`, and the nodes that replaced it where memory that it reads was written over."""
    found = [value]
    for one in found:
        copies = (copy for to in state.copied.get(one, ()) if (copy := to()) is not None)
        found += [copy for copy in copies if copy not in found]
    return found


# ---- on the way of a gradient


@dataclass(slots=True, eq=False, repr=False)
class Answers:
    """What hooks of results gave, so that none is called again where it all is begun again.

    What they gave are tensors, and what is differentiated begins at tensors: they have the values
    that they had when they came, whatever hooks assign.

    Attributes
    ----------
    create_graph : bool
        Whether what hooks do is recorded for gradients.
    called : bool
        Whether hooks are called: they are those of backward passes.
    given : dict
        By marks.
    seeds : list of Tensor
        The gradients to start from, where hooks may be met.
    """

    create_graph: bool = False
    called: bool = True
    given: dict[Hooked, TensorBase | None] = field(default_factory=dict)
    seeds: list[TensorBase] = field(default_factory=list)


def answered(on: Hooked, g: UOp, answers: Answers) -> UOp:
    """The gradient that goes on from the mark of a result to which `g` comes."""
    if answers.called and on.hooks and on not in answers.given:
        answers.given[on] = _called(on, g, create_graph=answers.create_graph)
    answer = answers.given.get(on)
    return g if answer is None else answer.uop


def handed_on(found: Iterable[tuple[_E, _T]], *, create_graph: bool) -> list[tuple[_E, _T]]:
    """Gradients, those of leaves as their hooks give them.

    All are tensors by now, so a hook that assigns changes none that another one sees.
    """
    done = []
    for end, g in found:
        new = None
        if isinstance(end, Leaf) and end.hooks:
            new = _called(end, g.uop, create_graph=create_graph)
        node = None if new is None else new.uop
        if node is None:
            done.append((end, g))
        else:
            done.append((end, g._of(node if create_graph else detach(node))))
    return done


def _called(on: Leaf | Hooked, g: UOp, *, create_graph: bool) -> TensorBase | None:
    with Mode(GRAD, create_graph):
        given: TensorBase = tensor_module.Tensor._of(g if create_graph else detach(g))
        before: UOp | None = given._entered()
        for entry in on.hooks:
            new = entry.hook(given)
            if new is None:
                continue  # it may have changed what it was given
            if not isinstance(new, tensor_module.Tensor):
                raise DTypeError(
                    "hook: expected the function to return a Tensor or None, not "
                    f"{type(new).__name__}"
                )
            if not build.same_shape(new.dims, g.shape) or new.dtype is not g.dtype:
                raise ShapeError(
                    f"hook: expected the function to return {g.dtype.name} of shape "
                    f"{format_shape(g.shape)}, as the gradient has, not {new.dtype.name} of shape "
                    f"{format_shape(new.dims)}; return None to leave the gradient unchanged"
                )
            given, before = new, None
    return None if given._uop is before else given


def are_met(root: UOp) -> bool:
    """Whether a gradient of `root` comes to a tensor that has hooks or retains it."""
    if not state.hooked and not state.late:
        return False
    late = bool(state.late)
    return any(
        (node.op is Op.DETACH and isinstance(node.arg, Leaf | Hooked) and _is_active(node.arg))
        or (late and any(one.is_active() for one in state.late.get(node, ())))
        for node in history(root)
    )


def check_met(order: Sequence[UOp], asked: Collection[UOp], name: str) -> None:
    """Raise GradientError where a gradient comes to a result with hooks by another way.

    That is so where something was made of it before the mark was there. What is made of a tensor
    that equals it is older, too, only if it is that very value.
    """
    marked = {
        node: found for node in (order if state.late else ())
        if node in asked
        and (found := [late for late in state.late.get(node, ()) if late.is_active()])
    }  # fmt: skip
    for user in order if marked else ():
        for node in gradient_operands(user):
            for late in marked.get(node, ()):
                if is_kept(user) and (late.kept is None or late.kept() is not user.arg):
                    continue  # the memory of another tensor
                if user.made < late.made:
                    raise GradientError(
                        f"{name}: a tensor was used before a hook was registered on it, or before "
                        "retain_grad() was called on it; make that call right after the tensor is "
                        "created, or on a clone() of it, before anything is computed from the clone"
                    )
