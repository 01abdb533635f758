"""Lowers the record of a fusion group to STOREs over RANGEs.

The record (:mod:`kernelrt.schedule.fuse.demand`) lists each value to compute, with its operands and
their indices. So lowering does not compute indices itself. A stored value becomes a LOAD at its
address. An ELEMENT, which stands for an index that is read from data, is replaced by the value of
the index.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, ClassVar

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, const, substitute, toposort
from kernelrt.ir.constants import is_plus_zero
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.origin import inherit
from kernelrt.ir.reducers import empty_result, start, start_is_empty_result
from kernelrt.ir.shape import as_dim, as_uop
from kernelrt.ir.symbolic import in_range
from kernelrt.schedule.fuse.demand import POINTWISE, ArrayRead, Key, Use, Value, picks_in
from kernelrt.schedule.fuse.fusion_cost import elements
from kernelrt.schedule.fuse.index_maps import ZERO, Index, Indexer, Order, is_never
from kernelrt.schedule.fuse.predicates import conjuncts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kernelrt.schedule.fuse.fusion_groups import Group

__all__ = ["STATUS", "lower_group"]

#: Placeholder of the status word until slots are numbered.
STATUS = UOp(Op.PARAM, dt.int64, (), (-1, 1))


def lower_group(
    group: Group,
    buffers: Mapping[UOp, UOp],
    orders: Mapping[UOp, Order],
    indexer: Indexer,
) -> list[UOp]:
    """Return the STOREs of `group`; they and the LOADs in them access BUFFERs.

    Parameters
    ----------
    group : Group
        Fusion group to lower.
    buffers : mapping of UOp to UOp
        BUFFER of each stored node.
    orders : mapping of UOp to tuple of int
        Axes, outermost first, of stored nodes that are not row-major.
    indexer : Indexer
        Index arithmetic.
    """
    return _Lowering(group, buffers, orders, indexer).stores()


class _Lowering:
    def __init__(
        self,
        group: Group,
        buffers: Mapping[UOp, UOp],
        orders: Mapping[UOp, Order],
        indexer: Indexer,
    ) -> None:
        self._group = group
        self._buffers = buffers
        self._orders = orders
        self._indexer = indexer
        self._done: dict[Key, UOp] = {}
        # ELEMENT of the record -> the value of that index.
        self._picks: dict[UOp, UOp] = {}
        self._real: dict[UOp, UOp] = {}
        self._picking = any(node.op is Op.GATHER for node, _ in group.values)
        self._indices: set[UOp] = set()
        self._checked: dict[UOp, frozenset[UOp]] = {}

    def stores(self) -> list[UOp]:
        """Return the STORE nodes of the kernel."""
        group = self._group
        done = self._done
        for key in reversed(group.values):  # operands first
            if key not in done:
                done[key] = self._made(key)
        if group.kind == "map":
            inside = [
                self._interior(r, at) if r in group.paddings else self._store(r, r, at)
                for r, at in self._stored_first()
            ]
            return [*inside, *(s for r in group.paddings for s in self._padding(r))]
        (root,) = group.roots
        if group.kind == "cat":
            return self._join(root)
        if group.kind == "init":
            return [self._store(root, root.src[0], group.natural)]
        return [self._scatter(root)]

    def _stored_first(self) -> list[tuple[UOp, Index]]:
        """Return the roots and their indices, producers first."""
        return list(reversed(self._group.roots.items()))

    def _store(self, root: UOp, value: UOp, index: Index) -> UOp:
        at = self._offset(root, index)
        return UOp(Op.STORE, root.dtype, (self._buffers[root], at, self._value(value, index)))

    def _interior(self, root: UOp, index: Index) -> UOp:
        """Return the STORE of a PAD's interior."""
        pad = self._group.paddings[root]
        at = tuple(
            i + as_uop(low) if low else i for i, (low, _) in zip(index, pad.arg, strict=True)
        )
        value = self._value(pad.src[0], index)
        return UOp(Op.STORE, root.dtype, (self._buffers[root], self._offset(root, at), value))

    def _padding(self, root: UOp) -> Iterator[UOp]:
        """Yield the STOREs of a PAD's zeros."""
        zero = const(0, root.dtype)
        order = self._orders.get(root, tuple(range(len(root.shape))))
        for index in self._group.slabs(self._group.paddings[root], order):
            at = self._offset(root, index)
            yield UOp(Op.STORE, root.dtype, (self._buffers[root], at, zero))

    def _join(self, root: UOp) -> list[UOp]:
        axis = root.arg
        out: list[UOp] = []
        for part, before, index in self._group.parts:
            value = self._value(part, index)
            there = (*index[:axis], index[axis] + as_uop(before), *index[axis + 1 :])
            at = self._indexer.flat(there, root.shape)
            if elements(part.shape):
                out.append(UOp(Op.STORE, root.dtype, (self._buffers[root], at, value)))
        return out

    def _scatter(self, root: UOp) -> UOp:
        _, value, *axes = root.src
        here = self._group.natural
        index = tuple(self._pick(axis, here) for axis in axes)
        at = self._indexer.flat(index, root.shape)
        value = self._value(value, here)
        if not frozenset().union(*map(self._checks, index)) <= self._checks(at):
            value = self._guarded(value, index)
        if root.arg is None:
            return UOp(Op.STORE, root.dtype, (self._buffers[root], at, value))
        # Keep all loops: every update counts, also along loops that no index varies with.
        loops = self._group.loops
        return UOp(Op.STORE, root.dtype, (self._buffers[root], at, value, *loops), root.arg)

    def _value(self, node: UOp, index: Index) -> UOp:
        """Return the value of `node` at `index`: computed before, from a local array, or loaded."""
        found = self._done.get((node, index))
        if found is None:
            held = self._group.held.get((node, index))
            found = self._load(node, index) if held is None else self._from_array(node, held)
            self._done[node, index] = found
        return found

    def _from_array(self, node: UOp, held: ArrayRead) -> UOp:
        value = self._done[node, held.at]
        if self._indexer.ranges(value).isdisjoint(held.loops):
            return value  # one for all elements
        dims = tuple(as_dim(r.src[0]) for r in held.loops)
        at = self._indexer.flat(tuple(map(self._known, held.element)), dims)
        array = UOp(Op.LOCAL, node.dtype, (value, *held.loops))
        return UOp(Op.LOAD, node.dtype, (array, at))

    def _operand(self, use: Use) -> UOp:
        if is_never(use.predicate):
            return const(0, use.node.dtype)
        return self._value(use.node, use.at)

    # Indices that are read from data

    def _pick(self, node: UOp, index: Index) -> UOp:
        """Return the element of `node` at `index`, as an index."""
        done = self._done
        stack = self._computed([(node, index)])
        begun: set[Key] = set()
        while stack:  # compute operands first: the record's order may put them later
            key = stack[-1]
            if key in done or key in begun:
                if key not in done:
                    done[key] = self._made(key)
                stack.pop()
            else:
                begun.add(key)
                # An index is pushed last, so that it is computed before the value it selects.
                stack.extend(reversed(self._operands(key)))
        pick = self._value(node, index)
        # Simplified as an address, it may vary with fewer loops.
        least = self._indexer.simplify(pick)
        return _checked_if(_some_elements(node, tuple(map(self._known, index)), least), pick)

    def _operands(self, key: Key) -> list[Key]:
        """Return the values that the value of `key` is computed from."""
        node, index = key
        if node.op in POINTWISE:
            return self._computed([(s, index) for s in node.src])
        return self._computed([(use.node, use.at) for use in self._group.values[key].uses])

    def _computed(self, keys: Iterable[Key]) -> list[Key]:
        """Return those of `keys` that this kernel computes.

        For a value in a local array, this is the key at which the array is filled.
        """
        held = self._group.held
        found = ((k[0], held[k].at) if k in held else k for k in keys)
        return [k for k in found if k in self._group.values]

    def _known(self, expression: UOp) -> UOp:
        """Replace the placeholders of indices in `expression` by the values read from data."""
        if not self._picking:
            return expression
        known = self._real.get(expression)
        if known is None:
            found = picks_in([expression])
            for stand_in in found:
                if stand_in not in self._picks:
                    element = stand_in.src[0]
                    self._picks[stand_in] = self._pick(element.arg, element.src)
            known = self._picks.get(expression, expression)
            if found and known is expression:
                known = self._indexer.simplify(substitute([expression], self._picks)[0])
            self._real[expression] = known
        return known

    def _predicate(self, predicate: UOp | None, at: UOp) -> UOp | None:
        """Return `predicate` without conditions that hold whenever the loops of `at` run."""
        if predicate is None or not self._picking:
            return predicate
        known = self._known(predicate)
        filled = {self._indexer.positive(r.src[0]) for r in self._indexer.ranges(at)}
        if filled.isdisjoint(conjuncts(known)):
            return known
        out: UOp | None = None
        for part in conjuncts(known):
            out = out if part in filled else self._indexer.both(out, part)
        return out

    # Lowering rules by op

    def _made(self, key: Key) -> UOp:
        node, index = key
        value = self._group.values[key]
        if node.op in ALU and not is_never(value.predicate):
            return self._elementwise(node, index)
        if is_never(value.predicate):
            return const(0, node.dtype)
        if node.op in MOVEMENT:
            return self._masked(*value.uses)
        return self._RULES[node.op](self, node, index, value)

    def _offset(self, node: UOp, index: Index) -> UOp:
        """Return the position of an element of a stored node in its buffer."""
        order = self._orders.get(node)
        if order is None:
            return self._indexer.flat(index, node.shape)
        return self._indexer.placed(index, node.shape, order)

    def _load(self, node: UOp, index: Index) -> UOp:
        if (node, index) not in self._group.reads:
            assert not elements(node.shape), "a use that is not in the record"
            return const(0, node.dtype)
        buffer = node if node.op is Op.BUFFER else self._buffers[node]
        at = self._offset(node, tuple(map(self._known, index)))
        predicate = self._predicate(self._group.reads[node, index], at)
        if self._picking:
            # An index from data may vary with fewer loops than the ELEMENT it replaced.
            predicate = self._indexer.needed(predicate, (at,))
        if is_never(predicate):
            return const(0, node.dtype)
        operands = (buffer, at) if predicate is None else (buffer, at, predicate)
        return UOp(Op.LOAD, node.dtype, operands)

    def _elementwise(self, node: UOp, index: Index) -> UOp:
        values = tuple([self._value(s, index) for s in node.src])
        if node.op is Op.WHERE and values[0].op is Op.CONST:
            return values[1] if values[0].arg else values[2]
        new = node.replace(src=values)
        if node.dtype in (dt.int64, dt.bool_) and all(map(self._is_index, values)):
            new = self._indexer.simplify(new)
            self._indices.add(new)
        return new

    def _masked(self, use: Use) -> UOp:
        """Return the value of a movement op's operand, or 0 where it has no such element."""
        value = self._operand(use)
        if use.condition is None:
            return value
        predicated = value.op is Op.LOAD and len(value.src) == 3
        if predicated and value.src[2] is self._predicate(use.predicate, value.src[1]):
            return value  # the predicated LOAD gives 0 already
        return _zero_unless(self._known(use.condition), value)

    def _constant(self, node: UOp, _index: Index, _value: Value) -> UOp:
        return node

    def _iota(self, node: UOp, index: Index, _value: Value) -> UOp:
        element = self._known(index[0])
        if all(n.op is not Op.LOAD for n in toposort([element])):
            self._indices.add(element)
        return element.cast(node.dtype)

    def _is_index(self, value: UOp) -> bool:
        """Return whether `value` is index arithmetic, which cannot wrap, and not data."""
        if value.op is Op.CONST:
            return not value.dtype.is_float
        return value.op is Op.VAR or value in self._indices

    def _pass(self, node: UOp, index: Index, _value: Value) -> UOp:
        return self._value(node.src[0], index)

    def _bound(self, node: UOp, _index: Index, value: Value) -> UOp:
        (use,) = value.uses
        position = self._operand(use)
        size = self._indexer.simplify(node.src[1])
        if in_range(position, size):
            return position
        predicate = self._predicate(value.predicate, position)
        if predicate is not None:
            position, size = _zero_unless(predicate, position), _long_enough(size, predicate)
        arg = (0, node.arg or False)
        return inherit(UOp(Op.BOUND, node.dtype, (position, size, STATUS), arg), node)

    def _reduce(self, node: UOp, _index: Index, value: Value) -> UOp:
        reducer, axes = node.arg
        if any(node.src[0].shape[a] == 0 for a in axes):
            return const(empty_result(reducer, node.dtype), node.dtype)
        (use,) = value.uses
        reduced = self._operand(use)
        own = [loop for loop in value.loops if loop is not ZERO]
        if own:
            reduced = UOp(Op.REDUCE, node.dtype, (reduced, *own), reducer)
        empty = [loop.src[0] for loop in own if loop.src[0].vmin <= 0]
        if not empty or start_is_empty_result(reducer, node.dtype):
            return reduced
        some = functools.reduce(operator.and_, [const(0, s.dtype).alu(Op.LT, s) for s in empty])
        numbers = (const(f(reducer, node.dtype), node.dtype) for f in (start, empty_result))
        return reduced.alu(reducer, some.where(*numbers))

    def _gather(self, node: UOp, index: Index, value: Value) -> UOp:
        picks = [self._pick(pick, index) for pick in node.src[1:]]
        return self._guarded(self._operand(value.uses[-1]), picks)

    def _guarded(self, value: UOp, picks: Iterable[UOp]) -> UOp:
        """Return `value` with BOUNDs for the checks of `picks` that it lacks."""
        missing = frozenset().union(*map(self._checks, picks)) - self._checks(value)
        if not missing:
            return value
        # The last check goes first: its operands may contain the others.
        for check in reversed([n for n in toposort(picks) if n in missing]):
            if check not in self._checks(value):
                guard = UOp(Op.BOUND, value.dtype, (*check.src[:3], value), check.arg)
                value = inherit(guard, check)
                self._checked[value] = self._checks(value) | {check}
        return value

    def _checks(self, value: UOp) -> frozenset[UOp]:
        """Return the BOUNDs that `value` is computed with."""
        memo = self._checked
        if value not in memo:
            for node in toposort([value], stop=memo.__contains__):
                if node not in memo:
                    found = frozenset().union(*(memo[s] for s in node.src))
                    memo[node] = found | {node} if node.op is Op.BOUND else found
        return memo[value]

    def _cat(self, _node: UOp, _index: Index, value: Value) -> UOp:
        *uses, last = value.uses
        result = self._operand(last)
        for use in reversed(uses):
            assert use.condition is not None
            condition = self._known(use.condition)
            if condition.op is not Op.CONST:
                result = condition.where(self._operand(use), result)
            elif condition.arg:
                result = self._operand(use)
        return result

    # A table of functions: bound methods would make each object part of a reference cycle.
    _RULES: ClassVar[dict[Op, Callable[[_Lowering, UOp, Index, Value], UOp]]] = {
        Op.CONST: _constant, Op.VAR: _constant, Op.IOTA: _iota, Op.CONTIGUOUS: _pass,
        Op.BOUND: _bound, Op.REDUCE_AXIS: _reduce, Op.GATHER: _gather, Op.CAT: _cat,
    }  # fmt: skip


def _some_elements(node: UOp, index: Index, pick: UOp) -> UOp | None:
    """Return the condition that `node` has an element; None if its own loops imply this.

    If a value does not vary with a loop, it is computed before the loop, even if the loop has no
    iterations.
    """
    sizes: dict[UOp, None] = {}
    inside = {n for n in toposort([pick]) if n.op is Op.RANGE}
    for dim, position in zip(node.shape, index, strict=True):
        outside = [n for n in toposort([position]) if n.op is Op.RANGE and n not in inside]
        if outside:
            sizes |= dict.fromkeys((as_uop(dim), *(r.src[0] for r in outside)))
    found: UOp | None = None
    for size in sizes:
        if size.vmin <= 0:
            filled = const(0, size.dtype) < size
            found = filled if found is None else found & filled
    return found


def _checked_if(condition: UOp | None, pick: UOp) -> UOp:
    """Return the index `pick`, changed so that its check fails only if `condition` holds."""
    if pick.op is not Op.BOUND or condition is None:
        return pick
    value, size = _zero_unless(condition, pick.src[0]), _long_enough(pick.src[1], condition)
    return inherit(UOp(Op.BOUND, pick.dtype, (value, size, *pick.src[2:]), pick.arg), pick)


def _long_enough(size: UOp, condition: UOp) -> UOp:
    """Return the size of an axis, or 1 if it may be 0 and `condition` is false."""
    return size if size.vmin > 0 else condition.where(size, const(1, size.dtype))


def _zero_unless(condition: UOp, value: UOp) -> UOp:
    """Return `value` if `condition` holds, else 0."""
    if is_plus_zero(value):
        return value
    if condition.op is Op.CONST:
        return value if condition.arg else const(0, value.dtype)
    return condition.where(value, const(0, value.dtype))
