"""Reverse-mode differentiation of tensor graphs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kernelrt.errors import DTypeError, GradientError, ShapeError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import adjoint, spread
from kernelrt.ir.shape import format_shape, is_static, prod, same
from kernelrt.native.eager_plan import DONE
from kernelrt.native.graph_key import structural_key, was_visited
from kernelrt.native.thread_modes import undisturbed
from kernelrt.tensor import state
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.autograd.hooking import (
    PASSED_BY,
    HookResults,
    answered,
    are_met,
    check_met,
    handed_on,
)
from kernelrt.tensor.autograd.rules import RULES
from kernelrt.tensor.autograd.tags import (
    Custom,
    Hooked,
    Leaf,
    RuleOfAll,
    Severed,
    Stale,
    detach,
    gradient_operands,
    history,
    is_kept,
)
from kernelrt.tensor.eager import diagnostics, plan_cache
from kernelrt.tensor.eager.assign import put_all
from kernelrt.tensor.nodes import build
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernelrt.dtype import DType
    from kernelrt.native.eager_plan import Fresh
    from kernelrt.native.memory import Memory
    from kernelrt.tensor.autograd import loop_adjoints
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.eager import realize
else:
    loop_adjoints = Module("kernelrt.tensor.autograd.loop_adjoints")
    realize = Module("kernelrt.tensor.eager.realize")


_T = TypeVar("_T", bound="TensorBase")
_R = TypeVar("_R")

__all__ = ["Targets", "backward", "end_of", "flow", "gradients", "pull", "seed_of", "uninterrupted",
           "wanted_of"]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Targets:
    """The leaves and results whose gradients are requested.

    Attributes
    ----------
    tensors : sequence of Tensor
        Requested leaves.
    nodes : set of UOp
        Requested results of operations.
    leaves : set of Leaf
        Tags of the requested leaves.
    marks : set of Leaf, optional
        Tags of the only leaves that gradients flow to; all leaves of the graph if not given.
    """

    tensors: Sequence[TensorBase] = ()
    nodes: frozenset[UOp] = frozenset()
    leaves: frozenset[Leaf] = frozenset()
    marks: frozenset[Leaf] | None = None


#: Key of a gradient: the tag of a leaf, the tag of a result that retains its gradient, or a node.
End = Leaf | Hooked | UOp


def gradients(
    seeds: Sequence[tuple[UOp, UOp]], name: str, wanted: Targets | None, answers: HookResults
) -> dict[End, UOp] | None:
    """Return the gradients of leaves, by their tags, and of requested nodes.

    The result includes gradients of results that retain them, if they lie on the path.

    Parameters
    ----------
    seeds : sequence of (UOp, UOp)
        Nodes to differentiate, each with its gradient.
    name : str
        Name of the called function, for errors.
    wanted : Targets, optional
        Requested gradients; others may be missing.
    answers : HookResults
        Cache of the values that hooks of results have returned.

    Returns
    -------
    dict or None
        None if a hook wrote to memory that may be read here; the caller must start again.
    """
    order, regions = _order([root for root, _ in seeds])
    live = _live(order, wanted)
    hooked = _asked(order, live, wanted) if state.hooked or state.late else set()
    check_met(order, hooked, name)
    spread(order)
    nodes = wanted.nodes if wanted is not None else frozenset()
    flowing: dict[UOp, UOp] = {}
    for root, g in seeds:
        if root in live:
            _accumulate(flowing, root, g)
    found: dict[End, UOp] = {}
    runs = _runs([n for n in regions if n in live])
    for node in reversed(order):
        here = flowing.pop(node, None)
        if runs is not None and node in runs:
            for operand, share in runs.shares(node, here, live, name):
                _accumulate(flowing, operand, share)
        if here is None:
            continue
        if node in hooked and node.op is Op.DETACH and isinstance(node.arg, Hooked):
            writes = state.local.writes
            here = answered(node.arg, here, answers)
            if state.local.writes != writes:
                return None
            if node.arg.keeper is not None:
                _accumulate(found, node.arg, here)
        if node in nodes:
            found[node] = here
        if node.op is Op.DETACH and isinstance(node.arg, Leaf):
            _accumulate(found, node.arg, here)
            continue
        for operand, share in _shares(node, here, live, name):
            if share.origin is None and node.origin is not None:
                share.origin = adjoint(node.origin)
            _accumulate(flowing, operand, share)
    return found


def _order(roots: Sequence[UOp]) -> tuple[list[UOp], list[UOp]]:
    """Return the nodes that gradients of `roots` pass, operands first, and the REGIONs among them.

    All results of one loop or branch come after the operands of each of them.
    """
    order = list(history(roots[0], None, roots[1:]))
    regions = [n for n in order if n.op is Op.REGION]
    if regions and (after := loop_adjoints.together(regions)):
        order = list(history(roots[0], None, roots[1:], after))
    return order, regions


def _runs(nodes: Sequence[UOp]) -> loop_adjoints.Runs | None:
    """Return the loops and branches that gradients flow through, or None."""
    if not nodes:
        return None
    return loop_adjoints.Runs(nodes)


def _live(order: Sequence[UOp], wanted: Targets | None) -> set[UOp]:
    """Return the nodes that depend, or may have depended, on a requested value."""
    live: set[UOp] = set()
    wanted = wanted or Targets()
    buffers = [b for t in wanted.tensors if (b := t._buffer) is not None]
    by_tensor = bool(wanted.tensors or wanted.nodes)
    for node in order:
        arg = node.arg if node.op is Op.DETACH else None
        ends = (
            (isinstance(arg, Leaf) and (wanted.marks is None or arg in wanted.marks))
            or (isinstance(arg, Stale) and (wanted.marks is None or arg.concerns(wanted.marks)))
            or (isinstance(arg, Severed) and (not by_tensor or arg.concerns(buffers)))
            or node in wanted.nodes
        )
        if node.dtype.is_float and (ends or any(s in live for s in gradient_operands(node))):
            live.add(node)
    return live


def _asked(order: Sequence[UOp], live: set[UOp], wanted: Targets | None) -> set[UOp]:
    """Return the `live` nodes on a path to a requested leaf or node; all if none is requested.

    The other live nodes are only checked for tags that forbid gradients. Their hooks are not
    called.
    """
    if wanted is None or not (wanted.leaves or wanted.nodes):
        return live
    asked: set[UOp] = set()
    for node in order:
        if node in live and (
            node in wanted.nodes
            or (node.op is Op.DETACH and isinstance(node.arg, Leaf) and node.arg in wanted.leaves)
            or any(s in asked for s in gradient_operands(node))
        ):
            asked.add(node)
    return asked


def _shares(node: UOp, g: UOp, live: set[UOp], name: str) -> list[tuple[UOp, UOp]]:
    """Return the contribution of `g` to the gradient of each operand that leads to a leaf."""
    if node.op is Op.DETACH and isinstance(node.arg, Severed | Stale):
        raise node.arg.error(name)
    own = node.op is Op.DETACH and isinstance(node.arg, Custom)
    rule = node.arg.rule if own else RULES.get(node.op, _none)
    if isinstance(rule, RuleOfAll):
        rule = rule.at(node, g)
    shares = [(s, rule(node, g, i)) for i, s in enumerate(gradient_operands(node)) if s in live]
    return [(s, share) for s, share in shares if share is not None]


def _none(node: UOp, g: UOp, i: int) -> None:
    """Return None: rounding and integer operations have derivative 0 wherever it exists."""


def _accumulate(sums: dict[Any, UOp], key: object, share: UOp) -> None:
    before = sums.get(key)
    sums[key] = share if before is None else build.add(before, share)


def seed_of(tensor: TensorBase, gradient: TensorBase | None, name: str) -> UOp:
    """Return the gradient of `tensor` to start from."""
    if not tensor.dtype.is_float:
        raise GradientError(
            f"{name}: expected a tensor of a floating dtype, not {tensor.dtype.name}; cast the "
            "tensors it is computed from, as in x.float()"
        )
    if gradient is None:
        if not same(prod(tensor.dims), 1):
            raise GradientError(
                f"{name}: expected a tensor of one element, not of shape "
                f"{format_shape(tensor.dims)}; reduce it, as in loss.mean(), or pass gradient="
            )
        return build.full(1, tensor.dtype, tensor.dims)
    if not isinstance(gradient, type(tensor)):
        raise DTypeError(f"gradient: expected a Tensor, not {type(gradient).__name__}")
    if not build.same_shape(gradient.dims, tensor.dims):
        raise ShapeError(
            f"gradient: expected the shape {format_shape(tensor.dims)} of the tensor, not "
            f"{format_shape(gradient.dims)}"
        )
    return gradient.uop.cast(tensor.dtype)


def flow(
    seeds: Sequence[tuple[TensorBase, UOp]], name: str, wanted: Targets | None, answers: HookResults
) -> dict[End, UOp]:
    """Return gradients like :func:`gradients`; start again if a hook wrote memory that is read."""
    if state.hooked and not answers.seeds:
        answers.seeds += [t._of(g) for t, g in seeds]
    found = None
    while found is None:  # None: a hook has written memory that is read
        with state.enable_grad():
            roots = [t.uop for t, _ in seeds]
        if state.local.trace is not None:
            for node in roots:
                state.local.trace.differentiate(node, for_all=wanted is None)
        values = [t.uop for t in answers.seeds] or [g for _, g in seeds]
        found = gradients(list(zip(roots, values, strict=True)), name, wanted, answers)
    return found


def _found(found: dict[End, UOp], name: str) -> dict[End, UOp]:
    if not any(isinstance(end, Leaf) for end in found):
        raise GradientError(
            f"{name}: the tensor does not depend on any tensor that requires a gradient; set "
            "requires_grad=True on a tensor it is computed from, and do not detach() in between"
        )
    return found


def pull(
    seeds: Sequence[tuple[TensorBase, UOp]], name: str, wanted: Targets, *, hooks: bool = True
) -> dict[End, UOp]:
    """Return gradients like :func:`flow`; start again if interrupting code wrote memory.

    The result lacks the gradients of requested tensors that no seed depends on. Hooks of results
    are called only if `hooks` is true.
    """
    answers = HookResults(create_graph=True, called=hooks)
    return uninterrupted(seeds[0][0], lambda: flow(seeds, name, wanted, answers), pull)


def end_of(tensor: TensorBase, i: int) -> Leaf | UOp:
    """Return the key of the gradient of `tensor`, input `i`: its tag or its node."""
    if tensor._leaf is not None:
        return tensor._leaf
    if tensor._is_parameter:
        raise GradientError(
            f"inputs[{i}]: the parameter is frozen; leave it out, or call requires_grad_(True) "
            "before it is used"
        )
    if tensor._plain or not tensor.requires_grad:
        raise GradientError(
            f"inputs[{i}]: expected a tensor that requires a gradient; create it with "
            "requires_grad=True, or compute it from tensors that require gradients"
        )
    with state.enable_grad():
        node = tensor.uop
    while is_kept(node):
        node = node.src[0]
    if node.op is Op.DETACH and isinstance(node.arg, Leaf):
        return node.arg
    if node.op in PASSED_BY:
        raise GradientError(
            f"inputs[{i}]: the tensor is a view or the negative of another tensor, and gradients "
            "flow to that tensor without passing this one; take the gradient of the other tensor, "
            "or compute the output from a clone() of this tensor, or call retain_grad() on this "
            "tensor before it is used"
        )
    return node


def wanted_of(tensors: Sequence[TensorBase], ends: Sequence[Leaf | UOp]) -> Targets:
    """Return a request for the gradients of `tensors`, whose keys are `ends`."""
    leaves = [t for t, end in zip(tensors, ends, strict=True) if isinstance(end, Leaf)]
    return Targets(
        leaves,
        frozenset(end for end in ends if isinstance(end, UOp)),
        frozenset(end for end in ends if isinstance(end, Leaf)),
    )


def backward(
    tensor: TensorBase,
    gradient: TensorBase | None = None,
    *,
    create_graph: bool = False,
    inputs: Sequence[TensorBase] | None = None,
) -> None:
    """Add the gradient of `tensor` to the ``grad`` of each leaf it is computed from."""
    seed = seed_of(tensor, gradient, "backward")
    ends = None if inputs is None else [end_of(t, i) for i, t in enumerate(inputs)]
    only = None if inputs is None or ends is None else wanted_of(inputs, ends)
    targets: dict[Leaf | UOp, TensorBase] = dict(zip(ends or (), inputs or (), strict=True))
    answers = HookResults(create_graph)

    def differentiate() -> list[tuple[End, TensorBase]]:
        now = None
        if (
            gradient is None and not create_graph and only is None
            and state.local.trace is None and not state.local.nonfinite
        ):  # fmt: skip
            now = _computed(tensor, seed)
        if now is None:
            found = flow([(tensor, seed)], "backward", only, answers)
            if only is None:
                _found(found, "backward")
            # Make all tensors before the first assignment, so that each keeps its value.
            now = [
                (end, type(tensor)._of(node if create_graph else detach(node)))
                for end, node in found.items()
                if only is None or end in targets or isinstance(end, Hooked)
            ]
        return now

    with state.enable_grad() if create_graph else contextlib.nullcontext():
        now = handed_on(uninterrupted(tensor, differentiate, backward), create_graph=create_graph)
    if state.local.nonfinite and state.local.trace is None:
        realize.realize(tensor, *(new for _, new in now))
    new_by_target = [
        (target, new) for end, new in now if (target := _target(end, targets)) is not None
    ]
    while not _collect(new_by_target, create_graph):
        pass  # interrupting code has changed gradients meanwhile
    diagnostics.tell()


def _target(end: End, targets: Mapping[Leaf | UOp, TensorBase]) -> TensorBase | None:
    """Return the tensor whose ``grad`` collects the gradient with key `end`, or None."""
    if isinstance(end, Hooked):
        return end.keeper
    return state.bearer(end) if isinstance(end, Leaf) else targets.get(end)


def uninterrupted(
    tensor: TensorBase, differentiate: Callable[[], _R], named: Callable[..., object]
) -> _R:
    """Call `differentiate`, and repeat the call if interrupting code wrote memory meanwhile.

    Gradients read the same memory as the graph of `tensor`. A write computes the lazy tensors that
    read the memory, but cannot know of gradients that do not exist yet.
    """
    with state.enable_grad():
        _ = tensor.uop  # commits pending assignments
    return undisturbed(differentiate, named)


def _collect(
    new_by_target: Sequence[tuple[TensorBase, TensorBase]], create_graph: bool
) -> bool:
    """Add to existing gradients and set the others; return False if any changed meanwhile."""
    tracing = state.local.trace is not None
    writes = state.local.writes
    sums: dict[int, tuple[TensorBase, UOp]] = {}  # two tensors may share a gradient
    fresh: list[tuple[TensorBase, TensorBase]] = []
    known: list[tuple[TensorBase, UOp, object]] = []
    for target, new in new_by_target:
        known.append((target, target._entered(), target._grad))
        held = gradient_state.find(target)
        if held is None:
            fresh.append((target, new))
        elif isinstance(held, gradient_state.ConsumedGradient):
            continue  # a gradient that was not kept stays lost until it is cleared
        elif create_graph:
            fresh.append((target, held._of(build.add(held.uop, new.uop))))
        else:
            if id(held) in sums:
                before = sums[id(held)][1]
            else:
                there, node = held._live(), held._entered()
                if there is not node and there is not detach(node) and not tracing:
                    return False
                before = held.uop
                known.append((held, node, held._grad))
            sums[id(held)] = held, build.add(before, new.uop)
    if tracing:
        if state.local.writes != writes:
            return False
        for target, new in fresh:
            target.grad = new
        fresh, known = [], []
    values = [(held, detach(node)) for held, node in sums.values()]
    return put_all(values, fresh, known, writes=writes)


def _computed(tensor: TensorBase, seed: UOp) -> list[tuple[End, TensorBase]] | None:
    """Compute the gradients now, together with all tensors of the graph that the user holds.

    Graphs of the same structure have the same gradients except for the buffers they read. So the
    plan is cached, and later iterations of a loop apply no VJP rules. Return None if the graph
    depends on Variables, has a stale history or has hooks.
    """
    with state.enable_grad():
        node = tensor.uop
    if are_met(node):
        return None
    with state.lock:
        found = structural_key([node], True)
        if found is None:
            return None
        held = _held_of_graph(tensor)
        found_along = bool(held)
        if not tensor.is_realized and (own := tensor._uop) is not None:
            held.append((tensor, own))
        nodes = [n for _, n in held]
        if found_along:
            found = structural_key([*nodes, node], True)
            assert found is not None
        buffers, leaves = found[1], cast("list[Leaf]", found[2])
        key = "backward", len(nodes), found[0]
        entry = plan_cache.plans.get(key)
        if entry is None:
            values = _values_along(tensor, seed, [node, *nodes], leaves)
            if values is None:
                return None
            reached, flowing = values
            entry, numbers = plan_cache.plans.made(
                key, [*nodes, *flowing], (), buffers, reached
            )
            buffers = [*buffers, *numbers]
        results = entry.results(buffers)
        fresh = [
            t._settlement(n, r, stale=False) for (t, n), r in zip(held, results, strict=False)
        ]
        new: list[tuple[End, TensorBase]] = []
        sizes = entry.sizes[len(nodes) :]
        for i, data, size in zip(entry.notes, results[len(nodes) :], sizes, strict=True):
            gradient, settled = _settled(type(tensor), leaves[i], data, *size)
            new.append((leaves[i], gradient))
            fresh.append(settled)
        if entry.run(buffers, results, fresh, []) != DONE:
            return None  # the plan is running, or an interpreter gave up
    return new


def _held_of_graph(tensor: TensorBase) -> list[tuple[TensorBase, UOp]]:
    """Return the other live lazy tensors of the graph that was just traversed, with their nodes.

    Each node is read only once, because a finalizer may compute the tensor and remove its node.
    """
    return [
        (t, n) for t in state.watched.members()
        if t is not tensor
        and not t.is_realized
        and (n := t._uop) is not None
        and was_visited(n)
    ]  # fmt: skip


def _values_along(
    tensor: TensorBase, seed: UOp, roots: Sequence[UOp], leaves: Sequence[Leaf]
) -> tuple[tuple[int, ...], list[UOp]] | None:
    """Return the indices of the leaves that gradients flow into, and these gradients.

    Return None if the graph below `roots` has Variables, because these have no values yet.
    """
    if any(n.op is Op.VAR or not is_static(n.shape) for n in toposort(roots)):
        return None
    by_leaf = _found(flow([(tensor, seed)], "backward", None, HookResults()), "backward")
    reached = tuple(i for i, leaf in enumerate(leaves) if leaf in by_leaf)
    return reached, [by_leaf[leaves[i]] for i in reached]


def _settled(
    kind: type[_T], leaf: Leaf, data: Memory, size: int, dtype: DType
) -> tuple[_T, Fresh]:
    """Return a new tensor for the gradient of `leaf`, and its state once `data` is computed."""
    gradient = kind.__new__(kind)
    target = state.bearer(leaf)
    shape = (size,) if target is None else cast("tuple[int, ...]", target.shape)
    nbytes = size * dtype.itemsize
    return gradient, (
        gradient, None, data, None, data.address, dtype.code, shape, nbytes, None, False,
    )  # fmt: skip
