"""From a group of stored values to STOREs over RANGEs.

Index expressions are pushed down from the stored values: elementwise ops pass an index on,
movement ops change it, reductions add loops, and where a stored value or a BUFFER is reached
the index becomes a LOAD. A value wanted twice at one index is one node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp, const, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.origin import inherit
from kernelrt.ir.reducers import of_nothing
from kernelrt.ir.shape import as_uop, total
from kernelrt.ir.symbolic import less
from kernelrt.schedule.cost import elements
from kernelrt.schedule.indexing import ZERO, Index, Indexer, Order, is_never

if TYPE_CHECKING:
    from kernelrt.schedule.groups import Group

__all__ = ["STATUS", "lower_group"]

#: Stands for the status word until slots are numbered.
STATUS = UOp(Op.PARAM, dt.int64, (), (-1, 1))

#: A node, where it is wanted, and the condition under which it may be touched.
_Wish = tuple[UOp, Index, "UOp | None"]
_Rule = Generator[_Wish, UOp, UOp]


def lower_group(
    group: Group,
    places: Mapping[UOp, UOp],
    orders: Mapping[UOp, Order],
    indexer: Indexer,
) -> list[UOp]:
    """The STOREs of `group`, one for each root, to and from BUFFERs.

    Parameters
    ----------
    group : Group
        What to store.
    places : mapping of UOp to UOp
        Stored node -> its BUFFER.
    orders : mapping of UOp to tuple of int
        Stored nodes that are not row-major -> their axes, outermost first.
    indexer : Indexer
        Index arithmetic.
    """
    return _Lowering(group, places, orders, indexer).stores()


class _Lowering:
    def __init__(
        self,
        group: Group,
        places: Mapping[UOp, UOp],
        orders: Mapping[UOp, Order],
        indexer: Indexer,
    ) -> None:
        self._group = group
        self._places = places
        self._orders = orders
        self._indexer = indexer
        self._memo: dict[_Wish, UOp] = {}
        # Numbers that neither the stores' loops nor those that fusion gave out have.
        self._next_range = 1 << 32
        self._loops = dict(group.loops_of)
        self._indices: set[UOp] = set()
        self._checked: dict[UOp, frozenset[UOp]] = {}
        self._at_home = group.roots if group.kind == "map" else {}

    def stores(self) -> list[UOp]:
        """The STORE nodes."""
        group = self._group
        if group.kind == "map":
            return [self._store(r, r, at, None) for r, at in self._stored_first()]
        (root,) = group.roots
        if group.kind == "cat":
            return self._join(root)
        if group.kind == "init":
            return [self._store(root, root.src[0], group.natural, None)]
        return [self._scatter(root)]

    def _stored_first(self) -> list[tuple[UOp, Index]]:
        """Roots and their indices: those that others are made from first."""
        return list(reversed(self._group.roots.items()))

    def _store(self, root: UOp, value: UOp, index: Index, mode: Op | None) -> UOp:
        at = self._offset(root, index)
        return UOp(
            Op.STORE, root.dtype, (self._places[root], at, self._run((value, index, None))), mode
        )

    def _join(self, root: UOp) -> list[UOp]:
        axis = root.arg
        start: Dim = 0
        out: list[UOp] = []
        for part, index in zip(root.src, self._group.parts, strict=True):
            value = self._run((part, index, None))
            there = (*index[:axis], index[axis] + as_uop(start), *index[axis + 1 :])
            at = self._indexer.flat(there, root.shape)
            if elements(part.shape):
                out.append(UOp(Op.STORE, root.dtype, (self._places[root], at, value)))
            start = total((start, part.shape[axis]))
        return out

    def _scatter(self, root: UOp) -> UOp:
        _, value, *axes = root.src
        here = self._group.natural
        index = tuple(
            _checked_if(_some_elements(value, here, [pick]), pick)
            for pick in (self._run((axis, here, None)) for axis in axes)
        )
        at = self._indexer.flat(index, root.shape)
        value = self._run((value, here, None))
        if not frozenset().union(*map(self._checks, index)) <= self._checks(at):
            value = self._guarded(value, index)
        # Every update counts, also those along loops that nothing varies with.
        loops = self._group.loops
        return UOp(Op.STORE, root.dtype, (self._places[root], at, value, *loops), Op.ADD)

    def _run(self, wish: _Wish) -> UOp:
        """Grant a wish and all that it leads to, without recursion."""
        memo = self._memo
        if wish in memo:
            return memo[wish]
        rule = self._rule(wish)
        if isinstance(rule, UOp):
            return rule
        # Whether fusion knew the index too: not where it is read from data.
        stack: list[tuple[_Wish, _Rule, bool]] = [(wish, rule, True)]
        answer: UOp | None = None
        while stack:
            current, rule, known = stack[-1]
            try:
                following = next(rule) if answer is None else rule.send(answer)
            except StopIteration as finished:
                answer = memo[current] = finished.value
                stack.pop()
                continue
            if current[0].op is Op.GATHER and following[0] is current[0].src[0]:
                known = False
            following = self._settled(following, known=known)
            answer = memo.get(following)
            if answer is None:
                found = self._rule(following)
                if isinstance(found, UOp):
                    answer = memo[following] = found
                else:
                    stack.append((following, found, known))
        assert answer is not None
        return answer

    def _settled(self, wish: _Wish, *, known: bool) -> _Wish:
        """`wish` under the condition that covers all uses of its value that are known.

        So a value is computed once, however many of its users exist under conditions.
        """
        node, index, gate = wish
        covers = self._group.gates
        if gate is None:
            # Nothing covers more than this, and for most values it is what covers all uses.
            if not known or covers.get((node, index)) is None:
                return wish
        elif is_never(gate):
            return wish
        gate = self._indexer.needed(gate, index)
        if (node, index) in covers and (node, index) not in self._group.apart:
            whole = covers[node, index]
            gate = whole if known else self._indexer.either((whole, gate))
        return node, index, gate

    # What each kind of node becomes. A rule yields wishes and returns a value; what wishes for
    # nothing is that value itself.

    def _rule(self, wish: _Wish) -> _Rule | UOp:
        node, index, gate = wish
        if is_never(gate) or elements(node.shape) == 0:
            return const(0, node.dtype)
        place = node if node.op is Op.BUFFER else self._places.get(node)
        if place is not None and self._at_home.get(node) != index:
            return self._load(place, node, index, gate)
        if node.op in ALU:
            return self._elementwise(node, index, gate)
        if node.op in MOVEMENT:
            return self._movement(node, index, gate)
        return self._RULES[node.op](self, node, index, gate)

    def _offset(self, node: UOp, index: Index) -> UOp:
        """Where the element of a stored node lies in its buffer."""
        order = self._orders.get(node)
        if order is None:
            return self._indexer.flat(index, node.shape)
        return self._indexer.placed(index, node.shape, order)

    def _load(self, place: UOp, node: UOp, index: Index, gate: UOp | None) -> UOp:
        at = self._offset(node, index)
        return UOp(Op.LOAD, node.dtype, (place, at) if gate is None else (place, at, gate))

    def _values(
        self, nodes: Iterable[UOp], index: Index, gate: UOp | None
    ) -> Generator[_Wish, UOp, list[UOp]]:
        values: list[UOp] = []
        for node in nodes:
            value = yield node, index, gate
            values.append(value)
        return values

    def _elementwise(self, node: UOp, index: Index, gate: UOp | None) -> _Rule:
        values = yield from self._values(node.src, index, gate)
        if node.op is Op.WHERE and values[0].op is Op.CONST:
            return values[1] if values[0].arg else values[2]
        new = node.replace(src=tuple(values))
        if node.dtype in (dt.int64, dt.bool_) and all(map(self._is_index, values)):
            new = self._indexer.simplify(new)
            self._indices.add(new)
        return new

    def _movement(self, node: UOp, index: Index, gate: UOp | None) -> _Rule:
        inner, condition = self._indexer.step(node, index)
        gates = self._indexer.both(gate, condition)
        value = yield node.src[0], inner, gates
        return value if condition is None else _masked(value, condition, gates)

    def _constant(self, node: UOp, _index: Index, _gate: UOp | None) -> UOp:
        return node

    def _iota(self, node: UOp, index: Index, _gate: UOp | None) -> UOp:
        if all(n.op is not Op.LOAD for n in toposort(index)):
            self._indices.add(index[0])
        return index[0].cast(node.dtype)

    def _is_index(self, value: UOp) -> bool:
        """Whether this is index arithmetic, which cannot wrap, rather than data."""
        if value.op is Op.CONST:
            return not value.dtype.is_float
        return value.op is Op.VAR or value in self._indices

    def _pass(self, node: UOp, index: Index, gate: UOp | None) -> _Rule:
        return (yield node.src[0], index, gate)

    def _bound(self, node: UOp, index: Index, gate: UOp | None) -> _Rule:
        value = yield node.src[0], index, gate
        size = self._indexer.simplify(node.src[1])
        if value.vmin >= 0 and less(value, size):
            return value
        if gate is not None:
            value, size = _masked(value, gate, gate), _long_enough(size, gate)
        return inherit(UOp(Op.BOUND, node.dtype, (value, size, STATUS), (0, bool(node.arg))), node)

    def _reduce(self, node: UOp, index: Index, gate: UOp | None) -> _Rule:
        reducer, axes = node.arg
        dims = node.src[0].shape
        if any(dims[a] == 0 for a in axes):
            return const(of_nothing(reducer, node.dtype), node.dtype)
        loops = iter(self._own_loops(node, index))
        outer = iter(index)
        inner = tuple(next(loops if a in axes else outer) for a in range(len(dims)))
        own = [i for a, i in enumerate(inner) if a in axes and i is not ZERO]
        value = yield node.src[0], inner, gate
        if not own:
            return value
        reduced = UOp(Op.REDUCE, node.dtype, (value, *own), reducer)
        if reducer is Op.ADD and node.dtype.is_float and any(r.src[0].vmin <= 0 for r in own):
            # Float sums start at -0.0, which is what would be left of no elements.
            return reduced + 0.0
        return reduced

    def _own_loops(self, node: UOp, index: Index) -> list[UOp]:
        """Those that fusion gave it; new ones when it occurs again under another condition."""
        known = self._loops.pop((node, index), None)
        if known is not None:
            return known
        out: list[UOp] = []
        for axis in sorted(node.arg[1]):
            dim = node.src[0].shape[axis]
            self._next_range += dim != 1
            loop = UOp(Op.RANGE, dt.int64, (as_uop(dim),), self._next_range)
            out.append(ZERO if dim == 1 else loop)
        return out

    def _gather(self, node: UOp, index: Index, gate: UOp | None) -> _Rule:
        picks = yield from self._values(node.src[1:], index, gate)
        gate = self._indexer.both(gate, _some_elements(node, index, picks))
        picks = [_checked_if(_some_elements(node, index, [pick]), pick) for pick in picks]
        value = yield node.src[0], tuple(picks), gate
        return self._guarded(value, picks)

    def _guarded(self, value: UOp, picks: Iterable[UOp]) -> UOp:
        """`value` with the checks of `picks`, also where the element does not depend on them."""
        missing = frozenset().union(*map(self._checks, picks)) - self._checks(value)
        if not missing:
            return value
        # The last one first: it may be made from others.
        for check in reversed([n for n in toposort(picks) if n in missing]):
            if check not in self._checks(value):
                guard = UOp(Op.BOUND, value.dtype, (*check.src[:3], value), check.arg)
                value = inherit(guard, check)
                self._checked[value] = self._checks(value) | {check}
        return value

    def _checks(self, value: UOp) -> frozenset[UOp]:
        """The BOUNDs that `value` is computed with."""
        memo = self._checked
        if value not in memo:
            for node in toposort([value], stop=memo.__contains__):
                if node not in memo:
                    found = frozenset().union(*(memo[s] for s in node.src))
                    memo[node] = found | {node} if node.op is Op.BOUND else found
        return memo[value]

    def _cat(self, node: UOp, index: Index, gate: UOp | None) -> _Rule:
        axis = node.arg
        values: list[UOp] = []
        conditions: list[UOp] = []
        end: Dim = 0
        for s, (inner, own) in zip(node.src, self._indexer.parts(node, index), strict=True):
            values.append((yield s, inner, self._indexer.both(gate, own)))
            end = total((end, s.shape[axis]))
            conditions.append(self._indexer.simplify(index[axis] < as_uop(end)))
        result = values.pop()
        for value, condition in zip(reversed(values), reversed(conditions[:-1]), strict=True):
            if condition.op is Op.CONST:
                result = value if condition.arg else result
            else:
                result = condition.where(value, result)
        return result

    # Of the class: bound methods would make each object a cycle.
    _RULES: ClassVar[dict[Op, Callable[[_Lowering, UOp, Index, UOp | None], _Rule | UOp]]] = {
        Op.CONST: _constant, Op.VAR: _constant, Op.IOTA: _iota, Op.CONTIGUOUS: _pass,
        Op.BOUND: _bound, Op.REDUCE_AXIS: _reduce, Op.GATHER: _gather, Op.CAT: _cat,
    }  # fmt: skip


def _some_elements(node: UOp, index: Index, picks: Sequence[UOp]) -> UOp | None:
    """Whether there is an element of `node` at all; None where it is looked up in its own loop.

    What does not vary along an axis is computed before the axis' loop, also of no elements.
    """
    found: UOp | None = None
    short = [(as_uop(dim), place) for dim, place in zip(node.shape, index, strict=True)]
    short = [(size, place) for size, place in short if size.vmin <= 0]
    loops = {n for n in toposort(picks) if n.op is Op.RANGE} if short else set()
    for size, place in short:
        if any(n.op is Op.RANGE and n not in loops for n in toposort([place])):
            filled = const(0, size.dtype) < size
            found = filled if found is None else found & filled
    return found


def _checked_if(condition: UOp | None, pick: UOp) -> UOp:
    """An index of which the check can fail only where `condition` holds."""
    if pick.op is not Op.BOUND or condition is None:
        return pick
    value, size = _masked(pick.src[0], condition, None), _long_enough(pick.src[1], condition)
    return inherit(UOp(Op.BOUND, pick.dtype, (value, size, *pick.src[2:]), pick.arg), pick)


def _long_enough(size: UOp, condition: UOp) -> UOp:
    """The size of an axis; no axis is too short for what is looked up only by a condition."""
    return size if size.vmin > 0 else condition.where(size, const(1, size.dtype))


def _masked(value: UOp, condition: UOp, gates: UOp | None) -> UOp:
    """`value` where `condition` holds, else 0."""
    if value.op is Op.LOAD and len(value.src) == 3 and value.src[2] is gates:
        return value  # such a LOAD is 0 there already
    if value.op is Op.CONST and not value.arg and str(value.arg)[0] != "-":
        return value
    if condition.op is Op.CONST:
        return value if condition.arg else const(0, value.dtype)
    return condition.where(value, const(0, value.dtype))
