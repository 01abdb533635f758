"""Rewrites sums of products over equal axes as one product over a longer axis.

A weight that a program uses again and again, at each step of a sequence, has a gradient that is a
sum of as many contractions. Over the operands side by side it is one: as long as the steps
together, of one size of code however many there are. Operands are looked at below what only moves
them, so that the slices of a sequence come together as the sequence.
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

    #: What a sum of sums becomes, by its node and the terms that it adds up; None where it stays.
    _Rule = Callable[[UOp, list[UOp]], UOp | None]

__all__ = ["concatenate_products", "side_by_side"]

#: Ops that need not read all elements of their first operand.
_PICKING = frozenset({Op.GATHER, Op.SHRINK, Op.WINDOW})


def concatenate_products(roots: Sequence[UOp], device: DeviceSpec) -> list[UOp]:
    """Equal graphs in which a sum of like contractions is one, where that costs less.

    Parameters
    ----------
    roots : sequence of UOp
        Graphs of the tensor stage.
    device : DeviceSpec
        What the kernels are for.
    """
    if not _add_products(roots):
        return list(roots)
    joins = _Joins(costs_of(device))
    joined = _rewritten(roots, joins.products)
    # Other sums over what lies side by side now, such as a bias's gradient.
    return _rewritten(joined, joins.others) if joins.made else joined


def _adds_sums(node: UOp) -> bool:
    """Whether `node` is a sum over axes of a sum of terms; rounded once, at its end."""
    if node.op is not Op.REDUCE_AXIS or node.arg[0] is not Op.ADD:
        return False
    x = node.src[0]
    return x.op is Op.ADD and x.dtype.is_float and not x.dtype.is_narrow and is_static(x.shape)


def _add_products(roots: Sequence[UOp]) -> bool:
    """Whether some node below adds up sums with products among what they are sums of."""
    among: set[UOp] = set()
    for node in toposort(roots):
        if node.op is Op.MUL or (node.op is Op.ADD and not among.isdisjoint(node.src)):
            among.add(node)
        elif _adds_sums(node) and not among.isdisjoint(node.src):
            return True
    return False


def _rewritten(roots: Sequence[UOp], rule: _Rule) -> list[UOp]:
    """`roots` with `rule` applied to sums of sums."""
    nodes = list(toposort(roots))
    # What one addition takes twice has two uses: as a term it is not taken apart twice.
    users = Counter(itertools.chain(roots, *(node.src for node in nodes)))
    partly = _wanted_in_part(nodes)
    done: dict[UOp, UOp] = {}
    checked: set[UOp] = set()
    for node in nodes:
        src = tuple(done[s] for s in node.src)
        new = node if src == node.src else node.replace(src=src)
        if node.op is Op.BOUND or any(s in checked for s in node.src):
            checked.add(node)
        # What lies side by side is computed whole, and so are the checks in it.
        if _adds_sums(node) and not (node in checked and node in partly):
            found = rule(new, [done[term] for term in _terms(node.src[0], users)])
            if found is not None:
                new = inherit(found, node)
        done[node] = new
    return [done[root] for root in roots]


def _wanted_in_part(nodes: Sequence[UOp]) -> set[UOp]:
    """Those of `nodes` of which some users may want a part of the elements only."""
    found: set[UOp] = set()
    for node in reversed(nodes):
        if node in found:
            found.update(node.src)
        elif node.op in _PICKING:
            found.add(node.src[0])
    return found


def _terms(root: UOp, users: Counter[UOp]) -> list[UOp]:
    """What a chain of additions adds up, in order; what others use as well is a term."""
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
    """What is put side by side in a graph, on a target of these costs."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        #: Concatenations that products read.
        self.made: set[UOp] = set()

    def products(self, node: UOp, terms: list[UOp]) -> UOp | None:
        """`node` with its products of operands in which elements are used again joined to one."""
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
        """`node` as one sum of what products have put side by side."""
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
        """Cycles of writing a concatenation beside its parts, if that is not done anyway."""
        if cat in self.made:
            return 0.0
        nbytes = elements(cat.shape) * cat.dtype.itemsize
        return self._costs.call + 2 * nbytes * self._costs.byte(nbytes)

    def _apart(self, node: UOp, product: UOp) -> float:
        """Cycles that products take where both operands are loaded for each."""
        return elements(product.shape) * self._costs.element(Op.MUL, node.dtype)


def _with_rest(node: UOp, joined: UOp, terms: list[UOp], like: list[UOp]) -> UOp:
    """`joined`, and the terms of `node` that it does not hold."""
    taken = Counter(like)
    taken.subtract(terms)
    rest = [t for t in terms if taken[t] < 0]
    if not rest:
        return joined
    total = rest[0]
    for term in rest[1:]:
        total = UOp(Op.ADD, node.dtype, (total, term))
    beside = UOp(Op.REDUCE_AXIS, node.dtype, (total,), node.arg)
    return UOp(Op.ADD, node.dtype, (joined, beside))


def _concatenations(node: UOp) -> list[UOp]:
    """The concatenations that :func:`side_by_side` made below what only moves them."""
    while node.op in _RULES:
        node = node.src[0]
    return [node] if node.op is Op.CAT else []


def side_by_side(parts: Sequence[UOp], axis: int) -> UOp:
    """The concatenation of `parts` along `axis`, taken as far below movement ops as it goes.

    Parameters
    ----------
    parts : sequence of UOp
        Of equal types, and of equal known shapes but along `axis`.
    axis : int
        Which.
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
    """Whether `shapes` are equal but along `axis`."""
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
    """Neighbouring parts of one value are a part of it."""
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
    """A concatenation before its axes are split or joined, if its axis begins with one there."""
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
    # Along an axis of one element before it they lie in the same order.
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
