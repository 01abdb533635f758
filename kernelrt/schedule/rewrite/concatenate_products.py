"""Rewrites a sum of contractions as one contraction of concatenated operands.

If every step of a sequence uses a weight, the weight's gradient is a sum with one contraction for
each step. This pass concatenates the operands of these contractions. Then the gradient is one
contraction, whose code does not grow with the number of steps. Operands are concatenated below
movement ops, so that the slices of a sequence become the sequence itself.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from kernelrt.device.costs import costs_of
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.origin import inherit
from kernelrt.ir.shape import is_static
from kernelrt.schedule.fuse.fusion_cost import contraction_reuse, elements
from kernelrt.schedule.fuse.index_maps import groups_of_axes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.device.costs import Costs
    from kernelrt.device.spec import DeviceSpec

    #: A rule takes a sum of sums and its terms, and returns the replacement, or None to keep it.
    _Rule = Callable[[UOp, list[UOp]], UOp | None]

__all__ = ["concatenate_products", "side_by_side"]

#: Ops that may read only part of their first operand.
_PICKING = frozenset({Op.GATHER, Op.SHRINK, Op.IM2COL})


def concatenate_products(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Merge each sum of similar contractions into one contraction, if that costs less.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage.
    device : DeviceSpec
        Target of the kernels.

    Returns
    -------
    list of UOp
        Graphs with equal values, up to rounding.
    """
    if not _add_products(roots):
        return list(roots)
    joins = _Joins(costs_of(device))
    joined = _rewritten(roots, joins.products)
    # Other sums over the concatenated operands, such as a bias's gradient.
    return _rewritten(joined, joins.others) if joins.made else joined


def _adds_sums(node: UOp) -> bool:
    """Return whether `node` is a sum over the elements of an ADD of floats that are not narrow."""
    if node.op is not Op.REDUCE_AXIS or node.arg[0] is not Op.ADD:
        return False
    x = node.src[0]
    return x.op is Op.ADD and x.dtype.is_float and not x.dtype.is_narrow and is_static(x.shape)


def _add_products(roots: Sequence[UOp]) -> bool:
    """Return whether any node is a sum over the elements of an ADD that has a product as a term."""
    among: set[UOp] = set()
    for node in toposort(roots):
        if node.op is Op.MUL or (node.op is Op.ADD and not among.isdisjoint(node.src)):
            among.add(node)
        elif _adds_sums(node) and not among.isdisjoint(node.src):
            return True
    return False


def _rewritten(roots: Sequence[UOp], rule: _Rule) -> list[UOp]:
    """Apply `rule` to each reduction of an ADD (see :func:`_adds_sums`) in `roots`."""
    nodes = list(toposort(roots))
    # An operand that one addition uses twice has two uses, so that it is not expanded twice.
    users = Counter(itertools.chain(roots, *(node.src for node in nodes)))
    partly = _wanted_in_part(nodes)
    done: dict[UOp, UOp] = {}
    checked: set[UOp] = set()
    for node in nodes:
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        if node.op is Op.BOUND or any(s in checked for s in node.src):
            checked.add(node)
        # Concatenated operands are computed whole, and so are the checks in them.
        if _adds_sums(node) and not (node in checked and node in partly):
            found = rule(new, [done[term] for term in _terms(node.src[0], users)])
            if found is not None:
                new = inherit(found, node)
        done[node] = new
    return [done[root] for root in roots]


def _wanted_in_part(nodes: Sequence[UOp]) -> set[UOp]:
    """Return the nodes that have a user which may need only a part of their elements."""
    found: set[UOp] = set()
    for node in reversed(nodes):
        if node in found:
            found.update(node.src)
        elif node.op in _PICKING:
            found.add(node.src[0])
    return found


def _terms(root: UOp, users: Counter[UOp]) -> list[UOp]:
    """Return the terms of a chain of ADDs, in order.

    If an ADD in the chain has other users, it is itself a term.
    """
    out: list[UOp] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.op is Op.ADD and (node is root or users[node] == 1):
            stack.extend(reversed(node.src))
        else:
            out.append(node)
    return out


class _Joins:
    """Rewrites the sums of one graph, by the costs on a target."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        #: Concatenations that products read.
        self.made: set[UOp] = set()

    def products(self, node: UOp, terms: list[UOp]) -> UOp | None:
        """Merge the contractions among `terms` of `node`; return None if this saves nothing."""
        like = [t for t in terms if self._contracts(node, t)]
        if len(like) < 2:
            return None
        best: tuple[float, UOp, list[UOp]] | None = None
        for axis in node.arg[1]:
            for order in (like, like[::-1]):
                operands = [side_by_side([t.src[k] for t in order], axis) for k in (0, 1)]
                copied = [cat for operand in operands for cat in _concatenations(operand)]
                cost = sum(map(self._copy, dict.fromkeys(copied)))
                if best is None or cost < best[0]:
                    best = cost, UOp(Op.MUL, node.dtype, tuple(operands)), copied
        assert best is not None
        cost, product, copied = best
        if cost >= self._apart(node, product):
            return None
        self.made.update(copied)
        joined = UOp(Op.REDUCE_AXIS, node.dtype, (product,), node.arg)
        return _with_rest(node, joined, terms, like)

    def others(self, node: UOp, terms: list[UOp]) -> UOp | None:
        """Rewrite `node` as one sum over a concatenation that a merged contraction reads already.

        Return None if there is no such concatenation.
        """
        for axis in node.arg[1]:
            for order in (terms, terms[::-1]):
                joined = side_by_side(order, axis)
                found = _concatenations(joined)
                if found and self.made.issuperset(found):
                    return UOp(Op.REDUCE_AXIS, node.dtype, (joined,), node.arg)
        return None

    def _contracts(self, node: UOp, term: UOp) -> bool:
        if term.op is not Op.MUL:
            return False
        return contraction_reuse(UOp(Op.REDUCE_AXIS, node.dtype, (term,), node.arg)) > 0

    def _copy(self, cat: UOp) -> float:
        """Return the cycles of a concatenation, or 0 if it is stored in any case."""
        if cat in self.made:
            return 0.0
        nbytes = elements(cat.shape) * cat.dtype.itemsize
        return self._costs.call + 2 * nbytes * self._costs.byte(nbytes)

    def _apart(self, node: UOp, product: UOp) -> float:
        """Return the cycles of separate contractions: a load of both operands for each product."""
        return elements(product.shape) * self._costs.element(Op.MUL, node.dtype)


def _with_rest(node: UOp, joined: UOp, terms: list[UOp], like: list[UOp]) -> UOp:
    """Add the terms of `node` that `joined` does not contain."""
    taken = Counter(like)
    taken.subtract(terms)
    rest = [t for t in terms if taken[t] < 0]
    if not rest:
        return joined
    total = rest[0]
    for term in rest[1:]:
        total = UOp(Op.ADD, node.dtype, (total, term))
    rest_sum = UOp(Op.REDUCE_AXIS, node.dtype, (total,), node.arg)
    return UOp(Op.ADD, node.dtype, (joined, rest_sum))


def _concatenations(node: UOp) -> list[UOp]:
    """Return the CAT that :func:`side_by_side` put below movement ops, if any."""
    while node.op in _RULES:
        node = node.src[0]
    return [node] if node.op is Op.CAT else []


def side_by_side(parts: Sequence[UOp], axis: int) -> UOp:
    """Concatenate `parts` along `axis`, as far below movement ops as possible.

    Parameters
    ----------
    parts : sequence of UOp
        Nodes of the same dtype, whose static shapes only differ along `axis`.
    axis : int
        Axis of the concatenation.
    """
    found: UOp | None = None
    ops = {part.op for part in parts}
    if len(ops) == 1:
        rule = _RULES.get(ops.pop())
        found = None if rule is None else rule(parts, axis)
    return UOp(Op.CAT, parts[0].dtype, tuple(parts), axis) if found is None else found


def _sources(parts: Sequence[UOp]) -> list[UOp]:
    return [part.src[0] for part in parts]


def _length(parts: Sequence[UOp], axis: int) -> int:
    return sum(_number(part.shape[axis]) for part in parts)


def _number(dim: Any) -> int:
    assert isinstance(dim, int)
    return dim


def _alike(shapes: Sequence[tuple[Any, ...]], axis: int) -> bool:
    """Return whether `shapes` differ at most along `axis`."""
    return len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) == 1


def _expanded(parts: Sequence[UOp], axis: int) -> UOp | None:
    inner = _sources(parts)
    whole = all(s.shape[axis] == p.shape[axis] for s, p in zip(inner, parts, strict=True))
    if not whole or not _alike([s.shape for s in inner], axis):
        return None
    shape = parts[0].shape
    shape = (*shape[:axis], _length(parts, axis), *shape[axis + 1 :])
    return UOp(Op.EXPAND, parts[0].dtype, (side_by_side(inner, axis),), shape)


def _permuted(parts: Sequence[UOp], axis: int) -> UOp | None:
    order = parts[0].arg
    if any(part.arg != order for part in parts):
        return None
    inside = side_by_side(_sources(parts), order[axis])
    return UOp(Op.PERMUTE, parts[0].dtype, (inside,), order)


def _shrunk(parts: Sequence[UOp], axis: int) -> UOp | None:
    """Concatenate adjacent SHRINKs of one value into one SHRINK."""
    (source, *others), bounds = dict.fromkeys(_sources(parts)), [part.arg for part in parts]
    if others or not _alike(bounds, axis):
        return None
    if any(a[axis][1] != b[axis][0] for a, b in itertools.pairwise(bounds)):
        return None
    first, last = bounds[0], bounds[-1]
    whole = (*first[:axis], (first[axis][0], last[axis][1]), *first[axis + 1 :])
    if all(pair == (0, d) for pair, d in zip(whole, source.shape, strict=True)):
        return source
    return UOp(Op.SHRINK, source.dtype, (source,), whole)


def _reshaped(parts: Sequence[UOp], axis: int) -> UOp | None:
    """Concatenate the operands of RESHAPEs, if one of their axes starts where `axis` starts."""
    shapes = Counter(source.shape for source in _sources(parts))
    inner = shapes.most_common(1)[0][0]
    if not is_static(inner) or any(part.shape != parts[0].shape for part in parts):
        return None
    shape = parts[0].shape
    began = [old[0] for old, new in groups_of_axes(inner, shape) if new[0] == axis]
    if not began:
        return None
    inside = [_shaped(source, inner) for source in _sources(parts)]
    outer = (*shape[:axis], _length(parts, axis), *shape[axis + 1 :])
    # Concatenating along a size-1 axis before it gives the same order.
    at = began[0]
    while at and inner[at - 1] == 1:
        at -= 1
    found = min(
        (side_by_side(inside, a) for a in range(at, began[0] + 1)),
        key=lambda node: len(_concatenations(node)),
    )
    return _shaped(found, outer)


def _shaped(node: UOp, shape: tuple[Any, ...]) -> UOp:
    if node.op is Op.RESHAPE:
        node = node.src[0]
    return node if node.shape == shape else UOp(Op.RESHAPE, node.dtype, (node,), shape)


_RULES: dict[Op, Callable[[Sequence[UOp], int], UOp | None]] = {
    Op.EXPAND: _expanded, Op.PERMUTE: _permuted, Op.RESHAPE: _reshaped, Op.SHRINK: _shrunk,
}  # fmt: skip
