"""Autograd tags: the `arg` of DETACH nodes, and how tags are removed from a graph.

A DETACH node returns its operand unchanged. Its `arg`, the tag, is information for differentiation
or realization. The scheduler never sees a DETACH.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from kernelrt.errors import GradientError
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import inherit
from kernelrt.ir.reducers import empty_result
from kernelrt.native.array_handle import _name_mark
from kernelrt.native.graph_key import _name_marks, gradient_operands, lineage
from kernelrt.native.node import _name_kept, history_order
from kernelrt.native.write_barrier import _name_nodes
from kernelrt.tensor import state
from kernelrt.tensor.nodes import build
from kernelrt.util.hook_handles import Entry

if TYPE_CHECKING:
    from kernelrt.device.buffer import Buffer
    from kernelrt.tensor.autograd.hooking import Late
    from kernelrt.tensor.base import TensorBase

__all__ = [
    "ArgumentTag", "Custom", "Hooked", "Hooks", "Kept", "Leaf", "RuleOfAll", "Severed", "Stale",
    "below", "custom", "detach", "gradient_operands", "has_history", "history", "is_kept",
    "lineage", "mark", "marked_anew", "origins", "reads_of", "renewed", "rewritten", "stale",
    "strip", "with_values",
]  # fmt: skip

#: Called with a tagged node, the gradient of its value and `i`; returns the gradient of input `i`.
CustomRule = Callable[[UOp, UOp, int], UOp | None]


class RuleOfAll:
    """A rule that computes the gradients of all inputs at once and returns them one by one."""

    __slots__ = ()

    def at(self, node: UOp, gradient: UOp) -> CustomRule:
        """Return the rule for one gradient of the node, which computes all input gradients once."""
        raise NotImplementedError


#: Functions that see a gradient.
Hooks = tuple[Entry[Callable[..., Any]], ...]


class Leaf:
    """Tag of a tensor that collects gradients; each such tensor has a Leaf of its own."""

    __slots__ = ("__weakref__", "hooks")

    def __init__(self) -> None:
        self.hooks: Hooks = ()


class Hooked:
    """Tag of a result whose gradient has hooks or is retained.

    Parameters
    ----------
    owner : Tensor
        Tensor that has the value. No other tensor shares the tag, even if its value is equal.
    """

    __slots__ = ("__weakref__", "_owner", "hooks", "late", "retained")

    def __init__(self, owner: TensorBase) -> None:
        self._owner = weakref.ref(owner)
        self.hooks: Hooks = ()
        self.retained = False
        #: Set if the value may have been used before it was tagged.
        self.late: Late | None = None

    def is_of(self, tensor: TensorBase) -> bool:
        """Return whether this is the tag of `tensor`."""
        return self._owner() is tensor

    @property
    def keeper(self) -> TensorBase | None:
        """The tensor whose ``grad`` collects the gradient, or None."""
        return self._owner() if self.retained else None


class ArgumentTag:
    """Tag of an argument of a traced function, with the index of the argument."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Severed:
    """Tag of a result of a jitted function, through which no gradient can flow.

    Parameters
    ----------
    function : str
        Name of the function.
    sources : iterable of Buffer, optional
        Memory of the leaves that the gradient would reach; None if unknown.
    """

    __slots__ = ("function", "sources")

    def __init__(self, function: str, sources: Iterable[Buffer] | None) -> None:
        self.function = function
        self.sources = None if sources is None else weakref.WeakSet(sources)

    def concerns(self, buffers: Iterable[Buffer]) -> bool:
        """Return whether the gradient might reach a leaf in one of these buffers."""
        return self.sources is None or any(b in self.sources for b in buffers)

    def error(self, what: str) -> GradientError:
        """Return the error to raise if a gradient reaches this tag."""
        return GradientError(
            f"{what}: a gradient reached an output of the jitted function {self.function}. Outputs "
            "of jitted functions carry no graph: compute the loss and call backward() inside the "
            "function, or detach() the output"
        )


class Stale:
    """Tag of a value that cannot be computed from its history again.

    Parameters
    ----------
    node : UOp
        Node of the value with that history.
    called : str, optional
        Name of the loop or function that made calls with ``pure=False`` for the value. If not
        given, an assignment overwrote memory that the value was computed from.
    """

    __slots__ = ("_called", "_leaves")

    def __init__(self, node: UOp, called: str | None = None) -> None:
        self._called = called
        self._leaves: weakref.WeakSet[Leaf] = weakref.WeakSet()
        if not state.differentiating:
            return  # `concerns` is only asked for leaves of functions being differentiated
        self._leaves |= origins(node)[0]
        for n in history(node):
            if n.op is Op.DETACH and isinstance(n.arg, Stale):
                self._leaves |= n.arg._leaves

    def concerns(self, marks: Iterable[Leaf]) -> bool:
        """Return whether a gradient that reaches this tag would flow on to one of these leaves."""
        return any(leaf in self._leaves for leaf in marks)

    def error(self, what: str) -> GradientError:
        """Return the error to raise if a gradient reaches this tag."""
        if self._called is not None:
            return GradientError(
                f"{what}: a gradient reached results of {self._called}, which calls functions with "
                "pure=False. Computing the gradient would repeat these calls: compute values and "
                "gradients in one jitted function"
            )
        return GradientError(
            f"{what}: a tensor that this result was computed from has been assigned since, so "
            "the gradient can no longer be computed; call backward() before the assignment "
            "(optimizer.step() is one), pass a tensor h from one step to the next as h.detach(), "
            "and assign only in hooks of leaves, not in hooks of results"
        )


class Kept:
    """Tag of a value that is already computed and stored in a buffer, and keeps its history.

    Parameters
    ----------
    storage : UOp
        Node of the value in the buffer.
    shared : bool
        Whether `storage` is a copy of memory that outside code can write. The history reads that
        memory.
    """

    __slots__ = ("__weakref__", "shared", "storage")

    def __init__(self, storage: UOp, *, shared: bool = False) -> None:
        self.storage = storage
        self.shared = shared


@dataclass(frozen=True, slots=True)
class Custom:
    """Tag of a value whose derivative with respect to `inputs` is known in closed form.

    Attributes
    ----------
    rule : callable
        ``rule(node, gradient, i)`` returns the gradient of ``inputs[i]``. If it needs the value,
        it reads `node`, so that second derivatives use the rule, too.
    inputs : tuple of UOp
        Nodes that the value is computed from.
    parts : tuple of UOp
        Other nodes that the rule reads; no gradient flows to them from here.
    arg : hashable
        Other parameters of the rule: plain data, no nodes. A node would give every graph a
        structure of its own.
    """

    rule: CustomRule
    inputs: tuple[UOp, ...]
    parts: tuple[UOp, ...] = ()
    arg: object = None


#: Tags at which histories begin.
_ENDS = Leaf | Stale | Severed | ArgumentTag

_name_kept(Kept)
_name_marks(Kept, Leaf, Stale, Custom, Hooked, Severed, ArgumentTag)
_name_nodes(Op.BUFFER, Op.DETACH, Kept, Custom)
_name_mark(Op.DETACH)


def mark(x: UOp, token: object) -> UOp:
    """Return `x` under a DETACH with the tag `token`."""
    return UOp(Op.DETACH, x.dtype, (x,), token)


def detach(x: UOp) -> UOp:
    """Return `x` under a DETACH that stops gradients."""
    return x if x.op is Op.CONST or (x.op is Op.DETACH and x.arg is None) else mark(x, None)


def marked_anew(node: UOp, before: Leaf | None, leaf: Leaf | None) -> UOp:
    """Return `node` with the tag `leaf` in place of the tag `before`.

    The former tag is removed. Otherwise the graph would grow, and need a new plan, with each
    change.
    """
    if before is not None and node.op is Op.DETACH and node.arg is before:
        node = node.src[0]
    if leaf is not None:
        return mark(node, leaf)
    return detach(node) if lineage(node) or origins(node)[1] else node


def custom(
    x: UOp, rule: CustomRule, *inputs: UOp, parts: tuple[UOp, ...] = (), arg: object = None
) -> UOp:
    """Return `x` with a tag: it is differentiated by `rule` instead of through its nodes."""
    return mark(x, Custom(rule, inputs, parts, arg))


def history(
    root: UOp, stop: Callable[[UOp], bool] | None = None, others: Sequence[UOp] = (),
    after: Mapping[UOp, tuple[UOp, ...]] | None = None,
) -> Iterator[UOp]:  # fmt: skip
    """Yield the nodes that a gradient of `root` or `others` passes, each once, operands first.

    If `stop` is true for a node, its operands are not visited. A node that is a key of `after`
    comes after the nodes given there, instead of after its operands.
    """
    after = after or {}
    seen: set[UOp] = set()
    stack = [(r, False) for r in (*reversed(others), root)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if stop is None or not stop(node):
                first = after[node] if node in after else gradient_operands(node)
                stack.extend((s, False) for s in reversed(first) if s not in seen)


def origins(root: UOp) -> tuple[frozenset[Leaf], frozenset[int], frozenset[Severed]]:
    """Return the leaves, argument indices and Severed tags that a gradient of `root` reaches."""
    ends = [n.arg for n in history(root) if n.op is Op.DETACH]
    return (
        frozenset(a for a in ends if isinstance(a, Leaf)),
        frozenset(a.index for a in ends if isinstance(a, ArgumentTag)),
        frozenset(a for a in ends if isinstance(a, Severed)),
    )


def has_history(node: UOp) -> bool:
    """Return whether a gradient that flows into `node` reaches a leaf."""
    return lineage(node) is True


def strip(roots: Iterable[UOp]) -> list[UOp]:
    """Remove tags, and tensors without elements inside the graph, from `roots`.

    Computed values are read from their buffers. Results of only empty tensors become constants.
    """
    return _stripped(tuple(roots), {})


def _stripped(roots: tuple[UOp, ...], known: dict[tuple[UOp, ...], list[UOp]]) -> list[UOp]:
    """Strip like :func:`strip`; `known` caches bodies, which all results of a loop share."""
    if roots in known:
        return known[roots]
    done: dict[UOp, UOp] = {}
    for node in toposort(roots, stop=is_kept):
        if is_kept(node):
            done[node] = node.arg.storage
        elif node.op is Op.DETACH:
            done[node] = value = done[node.src[0]]
            if value.src:  # only the tag node has the origin of a value with a closed-form gradient
                inherit(value, node)
        else:
            src = tuple(done[s] for s in node.src)
            new = node if src == node.src else node.replace(src=src)
            if node.op is Op.REGION:
                new = new.replace(arg=new.arg.mapped(lambda graphs: _stripped(graphs, known)))
            done[node] = _without_nothing(new) if new.op in _CONSUMERS else new
    known[roots] = found = [done[root] for root in roots]
    return found


_CONSUMERS = frozenset({Op.REDUCE_AXIS, Op.PAD, Op.CAT, Op.SCATTER, Op.COL2IM})


def _without_nothing(u: UOp) -> UOp:
    """Simplify `u` if an operand has no elements."""
    shapes = [s.shape for s in u.src]
    if not any(map(build.has_zero, shapes)) or build.has_zero(u.shape):
        return u
    if u.op is Op.REDUCE_AXIS:
        return build.full(empty_result(u.arg[0], u.dtype), u.dtype, u.shape)
    if u.op is Op.SCATTER:
        return u.src[0]
    if u.op is Op.CAT:
        return build.cat([s for s in u.src if not build.has_zero(s.shape)], u.arg)
    return build.full(0, u.dtype, u.shape)


def is_kept(node: UOp) -> bool:
    """Return whether the value of `node` is already stored in a buffer."""
    return node.op is Op.DETACH and type(node.arg) is Kept


# ---- replacing nodes of graphs


def reads_of(node: UOp) -> tuple[UOp, ...]:
    """Return the operands of a node, and the nodes that its tag refers to."""
    if node.op is not Op.DETACH or not isinstance(node.arg, Custom):
        return node.src
    mark = node.arg
    return (*node.src, *mark.inputs, *mark.parts)


def below(roots: Iterable[UOp], stop: Callable[[UOp], bool]) -> list[UOp]:
    """Return the nodes of graphs and of their histories, each once, operands first.

    If `stop` is true for a node, the nodes below it are not visited.
    """
    return history_order(roots, stop, Custom)


def stale(storage: UOp, node: UOp) -> UOp:
    """Tag `storage` as the value of `node`, whose history cannot be computed again."""
    new = mark(storage, Stale(node))
    known = [node, node.src[0]] if is_kept(node) else [node]
    if copies := [copy for one in known for copy in state.copied.get(one, ())]:
        state.copied[new] = tuple(copies)
    return new


def rewritten(roots: Sequence[UOp], put: Mapping[UOp, UOp]) -> list[UOp]:
    """Return `roots` with the keys of `put` replaced by its values, which have the same shapes."""
    if not put:
        return list(roots)
    done = with_values(roots, put)
    return [done[root] for root in roots]


def with_values(roots: Sequence[UOp], put: Mapping[UOp, UOp]) -> dict[UOp, UOp]:
    """Replace the keys of `put` by its values; map each node below `roots` to its new node."""
    done: dict[UOp, UOp] = dict(put)
    for node in below(roots, put.__contains__):
        if node not in done:
            done[node] = renewed(node, done)
    return done


def renewed(node: UOp, done: Mapping[UOp, UOp]) -> UOp:
    """Return `node` with each node that it reads replaced by its entry in `done`."""
    reads = reads_of(node)
    for read in reads:
        if done[read] is not read:
            break
    else:
        return node
    src = tuple(done[s] for s in node.src)
    if len(reads) == len(node.src):
        return node.replace(src=src)
    mark = cast("Custom", node.arg)
    inputs, parts = (tuple(done[s] for s in nodes) for nodes in (mark.inputs, mark.parts))
    arg = replace(mark, inputs=inputs, parts=parts)
    return node.replace(src=src, arg=arg)
