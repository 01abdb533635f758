"""Tensor hooks: functions that see, and may replace, a gradient during backward.

A leaf keeps its hooks in its tag. A hooked result gets a tag of its own, and everything computed
from it afterwards reads the tagged node. The tag is needed because graphs store equal values only
once, but a hook belongs to one tensor.
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

__all__ = [
    "PASSED_BY", "GradFn", "Handle", "HookResults", "Late", "answered", "are_met", "check_met",
    "follow", "grad_fn", "handed_on", "hook", "is_hooked", "retain", "retains",
]  # fmt: skip

_E = TypeVar("_E")
_T = TypeVar("_T", bound="TensorBase")

#: Operations that are merged with later ones, so later gradients may bypass their results.
PASSED_BY = MOVEMENT | {Op.NEG}


class GradFn:
    """The operation through which gradients flow into a tensor: its ``grad_fn``.

    Parameters
    ----------
    op : str
        Name of the called function, or of the graph's op. Names in PyTorch differ.

    Examples
    --------
    >>> x = krt.tensor([1.0], requires_grad=True)
    >>> x.exp().grad_fn.name()
    'EXP'
    """

    __slots__ = ("_op",)

    def __init__(self, op: str) -> None:
        self._op = op

    def name(self) -> str:
        """Return the name of the operation."""
        return self._op

    def __repr__(self) -> str:
        return f"<{self._op}>"


def grad_fn(tensor: TensorBase) -> GradFn | None:
    """Return the operation that made a tensor that requires a gradient; None for a leaf."""
    if tensor.is_leaf:
        return None
    node = tensor._entered()
    while node.op is Op.DETACH and isinstance(node.arg, Kept | Hooked):
        node = node.src[0]
    # An operation consists of several nodes, and the last one alone is not informative.
    called = "" if node.origin is None else resolve(node.origin).op
    return GradFn(called.upper() if called not in _UNKNOWN else node.op.name)


#: Names in the origin of a node that was not made by calling an operation.
_UNKNOWN = ("", "tensor")


# ---- registering


@dataclass(slots=True, eq=False, repr=False)
class Late:
    """Record of a result that was tagged when it might have been used already.

    It does not keep the tag alive, because hooks may hold the result. If the tag is gone,
    `hooked` tells whether it had hooks.

    Attributes
    ----------
    mark : weak reference to Hooked
        Tag of the result.
    made : int
        Creation number of the tagged node; older nodes may read the result without the tag.
    kept : weak reference to Kept, or None
        Tag of the value's memory, if it is stored.
    """

    mark: weakref.ref[Hooked]
    made: int
    kept: weakref.ref[Kept] | None
    #: Whether the tag has hooks, or had some when it was deleted.
    hooked: bool = False

    def is_active(self) -> bool:
        """Return whether a gradient that bypasses the tag would be missed."""
        on = self.mark()
        return self.hooked if on is None else _is_active(on)


def _is_active(on: Leaf | Hooked) -> bool:
    return bool(on.hooks) or (isinstance(on, Hooked) and on.keeper is not None)


def _enlist(on: Leaf | Hooked) -> None:
    """Register `on` in `state.hooked` if it is active, else remove it. The lock is held."""
    if isinstance(on, Hooked) and on.late is not None:
        on.late.hooked = bool(on.hooks)
    if _is_active(on):
        state.hooked[id(on)] = on
    else:
        state.hooked.pop(id(on), None)


def _edit(on: Leaf | Hooked, change: Callable[[Hooks], Hooks]) -> None:
    """Replace the hooks; plans that compute gradients of a leaf are specialized for its hooks."""
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
            if on.hooks is before:  # else a signal handler, which also has the lock, changed them
                on.hooks = hooks
                break
        _enlist(on)
        if isinstance(on, Leaf):  # after the change, so that functions traced meanwhile retrace
            state.flips[0] += 1
            touch()


def _edit_if_alive(mark: weakref.ref[Leaf | Hooked], change: Callable[[Hooks], Hooks]) -> None:
    on = mark()
    if on is not None:
        _edit(on, change)


def hook(tensor: TensorBase, function: Callable[..., Any]) -> Handle:
    """Register `function` as a hook of `tensor`."""
    if not callable(function):
        raise DTypeError(f"hook: expected a function, not {type(function).__name__}")
    on = _tag_of(tensor, "register_hook")
    entry = Entry(function)
    _edit(on, lambda hooks: (*hooks, entry))
    return Handle(partial(_edit_if_alive, weakref.ref(on)), entry)


def retain(tensor: TensorBase) -> None:
    """Make ``grad`` of a result collect its gradient, as for a leaf."""
    on = _tag_of(tensor, "retain_grad")
    if isinstance(on, Hooked):
        with state.lock:
            on.retained = True
            _enlist(on)


def follow(tensor: TensorBase, before: UOp | None) -> None:
    """Keep ``retain_grad`` in effect for a tensor that had the node `before` and got a new one."""
    known = _existing_tag(tensor, before)
    if known is not None and known.retained:
        with state.lock:
            known.retained = False
            _enlist(known)
        if tensor.requires_grad:
            retain(tensor)


def is_hooked(tensor: TensorBase, node: UOp | None) -> bool:
    """Return whether `node`, the value of `tensor`, has the tensor's own tag for hooks."""
    return _existing_tag(tensor, node) is not None


def retains(tensor: TensorBase) -> bool:
    """Return whether :func:`retain` was called."""
    known = _existing_tag(tensor, tensor._uop)
    return known is not None and known.retained


def _existing_tag(tensor: TensorBase, node: UOp | None) -> Hooked | None:
    """Return the tag for hooks that a result already has, or None."""
    if node is not None and is_kept(node):
        node = node.src[0]
    if node is None or node.op is not Op.DETACH or not isinstance(node.arg, Hooked):
        return None
    return node.arg if node.arg.is_of(tensor) else None


def _tag_of(tensor: TensorBase, name: str) -> Leaf | Hooked:
    """Return the tag that holds the hooks of `tensor`; create it if there is none."""
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
        known = _existing_tag(tensor, node)
        if known is not None:
            return known
        kept = is_kept(node)
        base = node.src[0] if kept else node
        used = tensor._used
        if used and base.op in PASSED_BY:
            raise GradientError(
                f"{name}: cannot add a hook to a view or negative of another tensor after an "
                "operation has used it, because gradients may flow to the other tensor without "
                f"passing this one; call {name} before any operation uses it, or add the hook to a "
                "clone() and use the clone from then on"
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
                    _record_late(base, late)
            return new


def _record_late(base: UOp, late: Late) -> None:
    """Record that `base`, or copies of it, may have been used before it was tagged."""
    for value in _copies_of(base):
        state.late[value] = (*state.late.get(value, ()), late)


def _copies_of(value: UOp) -> list[UOp]:
    """Return `value`, and the nodes that replaced it because memory it reads was overwritten."""
    found = [value]
    for one in found:
        copies = (copy for to in state.copied.get(one, ()) if (copy := to()) is not None)
        found += [copy for copy in copies if copy not in found]
    return found


# ---- calling hooks


@dataclass(slots=True, eq=False, repr=False)
class HookResults:
    """Cache of the values returned by hooks of results.

    If differentiation starts again, no hook is called a second time. The cached values and the
    seeds are tensors, so they keep their values whatever hooks assign.

    Attributes
    ----------
    create_graph : bool
        Whether operations in hooks are recorded for gradients.
    called : bool
        Whether hooks are called.
    given : dict
        Returned value by tag.
    seeds : list of Tensor
        Gradients to start from, if there may be hooks.
    """

    create_graph: bool = False
    called: bool = True
    given: dict[Hooked, TensorBase | None] = field(default_factory=dict)
    seeds: list[TensorBase] = field(default_factory=list)


def answered(on: Hooked, g: UOp, answers: HookResults) -> UOp:
    """Call the hooks of a result with its gradient `g`, and return the gradient that flows on."""
    if answers.called and on.hooks and on not in answers.given:
        answers.given[on] = _called(on, g, create_graph=answers.create_graph)
    answer = answers.given.get(on)
    return g if answer is None else answer.uop


def handed_on(found: Iterable[tuple[_E, _T]], *, create_graph: bool) -> list[tuple[_E, _T]]:
    """Apply the hooks of leaves to their gradients, and return all gradients.

    All gradients are tensors here, so an assignment in one hook does not change the gradients that
    other hooks see.
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
                continue  # the hook may have changed its argument in place
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
    """Return whether a gradient of `root` reaches a tensor with hooks or a retained gradient."""
    if not state.hooked and not state.late:
        return False
    late = bool(state.late)
    return any(
        (node.op is Op.DETACH and isinstance(node.arg, Leaf | Hooked) and _is_active(node.arg))
        or (late and any(one.is_active() for one in state.late.get(node, ())))
        for node in history(root)
    )


def check_met(order: Sequence[UOp], asked: Collection[UOp], name: str) -> None:
    """Raise GradientError if a gradient bypasses the tag of a result with hooks.

    That happens if a node was computed from the result before it was tagged. A use of another
    tensor with an equal value counts only if that tensor has the same node.
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
