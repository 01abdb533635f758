"""Reverse-mode differentiation of tensor graphs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from kernelrt._modes import undisturbed
from kernelrt._survey import survey, was_surveyed
from kernelrt.errors import DTypeError, GradientError, ShapeError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import adjoint, spread
from kernelrt.ir.shape import format_shape, is_static, prod, same
from kernelrt.tensor import build, execute, grads, hints, state
from kernelrt.tensor.assign import put_all
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.marks import Custom, Leaf, Severed, Stale, detach, gradient_operands, history
from kernelrt.tensor.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt._eager import Fresh
    from kernelrt._memory import Memory
    from kernelrt.dtype import DType


_T = TypeVar("_T", bound="TensorBase")
_R = TypeVar("_R")

__all__ = ["backward", "grad", "gradients"]


def gradients(
    root: UOp, g: UOp, name: str, wanted: Sequence[TensorBase] | None = None
) -> dict[Leaf, UOp]:
    """The gradient of each leaf that `root` is made of, given the gradient `g` of `root`.

    Where those of some tensors only are `wanted`, others may be missing.
    """
    order = list(history(root))
    live = _live(order, wanted)
    spread(order)
    flowing: dict[UOp, UOp] = {root: g} if root in live else {}
    found: dict[Leaf, UOp] = {}
    for node in reversed(order):
        here = flowing.pop(node, None)
        if here is None:
            continue
        if node.op is Op.DETACH and isinstance(node.arg, Leaf):
            _accumulate(found, node.arg, here)
            continue
        for operand, share in _shares(node, here, live, name):
            if share.origin is None and node.origin is not None:
                share.origin = adjoint(node.origin)
            _accumulate(flowing, operand, share)
    return found


def _live(order: Sequence[UOp], wanted: Sequence[TensorBase] | None) -> set[UOp]:
    """The nodes that the value of a leaf flows into, or may have flowed into."""
    live: set[UOp] = set()
    places = [t._buffer for t in wanted or ()]
    for node in order:
        arg = node.arg if node.op is Op.DETACH else None
        ends = isinstance(arg, Leaf | Stale) or (
            isinstance(arg, Severed)
            and (wanted is None or arg.concerns(b for b in places if b is not None))
        )
        if node.dtype.is_float and (ends or any(s in live for s in gradient_operands(node))):
            live.add(node)
    return live


def _shares(node: UOp, g: UOp, live: set[UOp], name: str) -> list[tuple[UOp, UOp]]:
    """What `g` contributes to each operand that leads to a leaf."""
    if node.op is Op.DETACH and isinstance(node.arg, Severed):
        raise node.arg.error(name)
    if node.op is Op.DETACH and isinstance(node.arg, Stale):
        raise GradientError(
            f"{name}: a tensor that this result was computed from has been assigned since, so "
            "the gradient can no longer be computed; call backward() before the assignment"
        )
    own = node.op is Op.DETACH and isinstance(node.arg, Custom)
    rule = node.arg.rule if own else RULES.get(node.op, _none)
    shares = [(s, rule(node, g, i)) for i, s in enumerate(gradient_operands(node)) if s in live]
    return [(s, share) for s, share in shares if share is not None]


def _none(node: UOp, g: UOp, i: int) -> None:
    """Roundings and integer operations: the derivative is zero where it exists."""


def _accumulate(sums: dict[Any, UOp], key: object, share: UOp) -> None:
    before = sums.get(key)
    sums[key] = share if before is None else build.add(before, share)


def _seed(tensor: TensorBase, gradient: TensorBase | None, name: str) -> UOp:
    """The gradient to start from."""
    if not tensor.dtype.is_float:
        raise GradientError(
            f"{name}: gradients exist for floating types only, not {tensor.dtype.name}; cast the "
            "tensors it is computed from, as in x.float()"
        )
    if gradient is None:
        if not same(prod(tensor.dims), 1):
            raise GradientError(
                f"{name}: the tensor has shape {format_shape(tensor.dims)}; reduce it to one "
                "element, as in loss.mean(), or pass gradient="
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


def _flow(
    tensor: TensorBase, g: UOp, name: str, wanted: Sequence[TensorBase] | None = None
) -> dict[Leaf, UOp]:
    with state.enable_grad():
        node = tensor.uop
    if state.local.trace is not None:
        state.local.trace.differentiate(node, for_all=wanted is None)
    found = gradients(node, g, name, wanted)
    if not found:
        raise GradientError(
            f"{name}: the tensor does not depend on any tensor that requires a gradient; set "
            "requires_grad=True on one, and do not detach it on the way"
        )
    return found


def backward(
    tensor: TensorBase, gradient: TensorBase | None = None, *, create_graph: bool = False
) -> None:
    """Add the gradient of `tensor` to the ``grad`` of each leaf it is computed from."""
    seed = _seed(tensor, gradient, "backward")

    def differentiate() -> list[tuple[Leaf, TensorBase]]:
        now = None
        if gradient is None and not create_graph and state.local.trace is None:
            now = _computed(tensor, seed)
        if now is None:
            found = _flow(tensor, seed, "backward")
            # Tensors before the first assignment: each keeps its value whatever comes later.
            now = [
                (leaf, type(tensor)._of(node if create_graph else detach(node)))
                for leaf, node in found.items()
            ]
        return now

    with state.enable_grad() if create_graph else contextlib.nullcontext():
        now = _uninterrupted(tensor, differentiate, backward)
    new_by_target = [
        (target, new) for leaf, new in now if (target := state.leaves.get(leaf)) is not None
    ]
    while not _collect(new_by_target, create_graph):
        pass  # interrupting code has collected gradients, too
    hints.tell()


def _uninterrupted(
    tensor: TensorBase, differentiate: Callable[[], _R], named: Callable[..., object]
) -> _R:
    """What `differentiate` gives, from memory that no interrupting code has written meanwhile.

    Gradients read what the values of `tensor` do, and before they are there nobody knows of that.
    """
    with state.enable_grad():
        _ = tensor.uop  # commits what it must
    return undisturbed(differentiate, named)


def _collect(
    new_by_target: Sequence[tuple[TensorBase, TensorBase]], create_graph: bool
) -> bool:
    """Add to gradients that are there, and set others; not if any was exchanged meanwhile."""
    tracing = state.local.trace is not None
    writes = state.local.writes
    sums: dict[int, tuple[TensorBase, UOp]] = {}  # two tensors may share a gradient
    fresh: list[tuple[TensorBase, TensorBase]] = []
    known: list[tuple[TensorBase, UOp, object]] = []
    for target, new in new_by_target:
        known.append((target, target._entered(), target._grad))
        held = grads.find(target)
        if held is None:
            fresh.append((target, new))
        elif isinstance(held, grads.Spent):
            continue  # what is lost stays lost until it is cleared
        elif create_graph:
            fresh.append((target, held._of(build.add(held.uop, new.uop))))
        else:
            if id(held) in sums:
                before = sums[id(held)][1]
            else:
                before, node = held.uop, held._entered()
                if before is not node and before is not detach(node) and not tracing:
                    return False
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


def _computed(tensor: TensorBase, seed: UOp) -> list[tuple[Leaf, TensorBase]] | None:
    """The gradients, computed now, with whatever the user still holds of the graph.

    A graph of the same structure has the same gradients up to the buffers it reads, so in a loop
    no rule is applied again. None for what has no data yet, or a history that is stale.
    """
    with state.enable_grad():
        node = tensor.uop
    with state.lock:
        found = survey([node], True)
        if found is None:
            return None
        held = _held_of_graph(tensor)
        found_along = bool(held)
        if not tensor.is_realized and (own := tensor._uop) is not None:
            held.append((tensor, own))
        nodes = [n for _, n in held]
        if found_along:
            found = survey([*nodes, node], True)
            assert found is not None
        buffers, leaves = found[1], cast("list[Leaf]", found[2])
        key = "backward", len(nodes), found[0]
        entry = execute.plans.get(key)
        if entry is None:
            values = _values_along(tensor, seed, [node, *nodes], leaves)
            if values is None:
                return None
            places, flowing = values
            entry = execute.plans.make(key, [*nodes, *flowing], (), buffers, places)
        results = entry.results(buffers)
        fresh = [
            t._settlement(n, r, stale=False) for (t, n), r in zip(held, results, strict=False)
        ]
        new = []
        sizes = entry.sizes[len(nodes) :]
        for i, data, size in zip(entry.notes, results[len(nodes) :], sizes, strict=True):
            gradient, settled = _settled(type(tensor), leaves[i], data, *size)
            new.append((leaves[i], gradient))
            fresh.append(settled)
        entry.run(buffers, results, fresh, [])
    return new


def _held_of_graph(tensor: TensorBase) -> list[tuple[TensorBase, UOp]]:
    """What else the user holds of the graph that was just surveyed, with its nodes.

    A node is read once: computing the tensor, as a finalizer may, takes it away.
    """
    return [
        (t, n) for t in state.watched.members()
        if t is not tensor
        and not t.is_realized
        and (n := t._uop) is not None
        and was_surveyed(n)
    ]  # fmt: skip


def _values_along(
    tensor: TensorBase, seed: UOp, roots: Sequence[UOp], leaves: Sequence[Leaf]
) -> tuple[tuple[int, ...], list[UOp]] | None:
    """Which of the leaves a gradient flows into, and these gradients.

    None where the graph below `roots` has Variables, which have no values yet.
    """
    if any(n.op is Op.VAR or not is_static(n.shape) for n in toposort(roots)):
        return None
    by_leaf = _flow(tensor, seed, "backward")
    places = tuple(i for i, leaf in enumerate(leaves) if leaf in by_leaf)
    return places, [by_leaf[leaves[i]] for i in places]


def _settled(
    kind: type[_T], leaf: Leaf, data: Memory, size: int, dtype: DType
) -> tuple[_T, Fresh]:
    """A tensor for the gradient of `leaf`, and what makes it that once `data` is there."""
    gradient = kind.__new__(kind)
    target = state.leaves.get(leaf)
    shape = (size,) if target is None else cast("tuple[int, ...]", target.shape)
    nbytes = size * dtype.itemsize
    return gradient, (
        gradient, None, data, None, data.address, dtype.code, shape, nbytes, None, False,
    )  # fmt: skip


@overload
def grad(
    output: TensorBase, inputs: _T, gradient: TensorBase | None = None, *,
    create_graph: bool = False,
) -> _T: ...
@overload
def grad(
    output: TensorBase, inputs: Sequence[_T], gradient: TensorBase | None = None, *,
    create_graph: bool = False,
) -> tuple[_T, ...]: ...
def grad(
    output: TensorBase,
    inputs: TensorBase | Sequence[TensorBase],
    gradient: TensorBase | None = None,
    *,
    create_graph: bool = False,
) -> Any:
    """The gradients of `output` with respect to `inputs`, leaving their ``grad`` alone.

    Parameters
    ----------
    output : Tensor
        What to differentiate; of one element unless `gradient` is given.
    inputs : Tensor or sequence of Tensor
        Tensors created with ``requires_grad=True``.
    gradient : Tensor, optional
        The gradient of `output`, ones if not given.
    create_graph : bool
        Let the gradients be differentiated again.

    Returns
    -------
    Tensor or tuple of Tensor
        As many as `inputs`; zeros where `output` does not depend on one.

    Raises
    ------
    GradientError
        An input does not require a gradient, as a frozen parameter, or is the result of operations.
    """
    several = isinstance(inputs, tuple | list)
    wanted: Sequence[TensorBase] = inputs if several else (inputs,)  # type: ignore[assignment]
    for name, t in (("output", output), *((f"inputs[{i}]", t) for i, t in enumerate(wanted))):
        if not isinstance(t, TensorBase):
            raise DTypeError(f"{name}: expected a Tensor, not {type(t).__name__}")
    for i, t in enumerate(wanted):
        if t._leaf is None:
            if t._is_parameter:
                raise GradientError(
                    f"inputs[{i}]: the parameter is frozen; leave it out, or call "
                    "requires_grad_(True) before it is used"
                )
            raise GradientError(
                f"inputs[{i}]: expected a tensor created with requires_grad=True, not one without "
                "or a result of operations"
            )
    seed = _seed(output, gradient, "grad")

    def differentiate() -> list[TensorBase]:
        found = _flow(output, seed, "grad", wanted)
        nodes = [found.get(cast("Leaf", t._leaf)) for t in wanted]
        return [
            type(t)._of(build.full(0, t.dtype, t.dims) if n is None
                        else n if create_graph else detach(n))
            for t, n in zip(wanted, nodes, strict=True)
        ]  # fmt: skip

    with state.enable_grad() if create_graph else contextlib.nullcontext():
        out: list[Any] = _uninterrupted(output, differentiate, grad)
    return tuple(out) if several else out[0]
