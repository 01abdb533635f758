"""Index maps: converts an index of a tensor-level node into indices of its operands.

Movement ops are nothing but index maps: they move no data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp, const, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.rewrite import rewrite
from kernelrt.ir.shape import as_uop, prod, same, strides_of, total
from kernelrt.ir.symbolic import RULES
from kernelrt.ir.terms import ranges_of
from kernelrt.schedule.fuse.predicates import conjuncts, united

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

__all__ = ["FALSE", "ZERO", "Index", "Indexer", "Order", "Step", "groups_of_axes", "is_never"]

#: One integer expression for each axis.
Index = tuple[UOp, ...]
#: Axes in memory order, outermost first.
Order = tuple[int, ...]
#: Index of an operand, and the condition that its element exists (None: always).
Step = tuple[Index, "UOp | None"]

ZERO = const(0, dt.int64)
FALSE = const(False, dt.bool_)
_POSITIONS = frozenset({Op.CONST, Op.VAR, Op.IOTA})
_DATA = frozenset({Op.LOAD, Op.REDUCE, Op.ELEMENT})


class Indexer:
    """Index arithmetic with a cache.

    Each scheduling call has its own object.
    """

    def __init__(self) -> None:
        self._memo: dict[UOp, UOp] = {}
        self._steps: dict[tuple[UOp, Index], Step] = {}
        self._ranges: dict[UOp, frozenset[UOp]] = {}
        self._flat: dict[tuple[Index, tuple[Dim, ...]], UOp] = {}
        self._reshaped: dict[tuple[Index, tuple[Dim, ...], tuple[Dim, ...]], Index] = {}
        self._needed: dict[tuple[UOp, Index], UOp | None] = {}
        self._positions: dict[tuple[UOp, Index], UOp] = {}
        self._positional: dict[UOp, bool] = {}

    def simplify(self, u: UOp) -> UOp:
        """Return `u` in canonical form, without changing LOADs, REDUCEs and ELEMENTs in it.

        The same REDUCE may be used as a value elsewhere, and two forms of it cannot share loops.
        """
        memo = self._memo
        found = memo.get(u)
        if found is not None:
            return found
        for node in toposort([u], stop=lambda n: n in memo or n.op in _DATA):
            if node.op in _DATA:
                memo[node] = node
        return rewrite([u], RULES, memo)[0]

    def ranges(self, u: UOp) -> frozenset[UOp]:
        """Return the RANGEs that `u` varies with."""
        found = self._ranges.get(u)
        if found is None:
            found = self._ranges[u] = frozenset(ranges_of(u))
        return found

    def placed(self, index: Index, shape: tuple[Dim, ...], order: Order) -> UOp:
        """Return the offset of `index` if the axes of `shape` are stored in `order`."""
        return self.flat(tuple(index[a] for a in order), tuple(shape[a] for a in order))

    def flat(self, index: Index, shape: tuple[Dim, ...]) -> UOp:
        """Return the row-major offset of `index` in `shape`."""
        key = (index, shape)
        found = self._flat.get(key)
        if found is None:
            offset = ZERO
            for i, stride in zip(index, strides_of(shape), strict=True):
                if i is not ZERO:
                    offset = offset + i * as_uop(stride)
            found = self._flat[key] = self.simplify(offset)
        return found

    def step(self, node: UOp, index: Index) -> Step:
        """Return the operand's index that element `index` of movement op `node` reads."""
        key = (node, index)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._step(node, index)
        return found

    def _step(self, node: UOp, index: Index) -> Step:
        op, arg = node.op, node.arg
        if op is Op.RESHAPE:
            return self.reshape(index, node.shape, node.src[0].shape), None
        if op is Op.EXPAND:
            old = node.src[0].shape
            # The only index of a size-1 axis is 0, whether or not it is expanded.
            return tuple(ZERO if d == 1 else i for i, d in zip(index, old, strict=True)), None
        if op is Op.PERMUTE:
            out = [ZERO] * len(index)
            for axis, i in zip(arg, index, strict=True):
                out[axis] = i
            return tuple(out), None
        if op is Op.FLIP:
            shape = node.shape
            return tuple(
                self.simplify(as_uop(shape[axis]) - 1 - i) if axis in arg else i
                for axis, i in enumerate(index)
            ), None
        if op is Op.SHRINK:
            return tuple(
                i if lo == 0 else self.simplify(i + as_uop(lo))
                for i, (lo, _) in zip(index, arg, strict=True)
            ), None
        if op is Op.PAD:
            return self._pad(node, index)
        if op is Op.IM2COL:
            return self._window(node, index), None
        return self._unwindow(node, index)

    def _pad(self, node: UOp, index: Index) -> Step:
        out: list[UOp] = []
        predicate: UOp | None = None
        for i, (lo, hi), size in zip(index, node.arg, node.src[0].shape, strict=True):
            inner = i if lo == 0 else self.simplify(i - as_uop(lo))
            if lo != 0:
                predicate = self.both(predicate, self.at_least_zero(inner))
            if hi != 0:
                predicate = self.both(predicate, self.simplify(inner < as_uop(size)))
            out.append(ZERO if size == 1 else inner)
        return tuple(out), predicate

    def _window(self, node: UOp, index: Index) -> Index:
        rank = len(node.src[0].shape)
        out = list(index[:rank])
        for tap, (axis, _, stride, dilation) in zip(index[rank:], node.arg, strict=True):
            out[axis] = self.simplify(out[axis] * stride + tap * dilation)
        return tuple(out)

    def _unwindow(self, node: UOp, index: Index) -> Step:
        shape, windows = node.arg
        taps = index[len(shape) :]
        counts = node.src[0].shape
        out = list(index[: len(shape)])
        predicate: UOp | None = None
        for tap, (axis, _, stride, dilation) in zip(taps, windows, strict=True):
            first = self.simplify(out[axis] - tap * dilation)
            position = self.simplify(first // stride)
            predicate = self.both(predicate, self.at_least_zero(first))
            if stride != 1:
                predicate = self.both(predicate, self.simplify((first % stride).eq(0)))
            predicate = self.both(predicate, self.simplify(position < as_uop(counts[axis])))
            out[axis] = ZERO if counts[axis] == 1 else position
        return (*out, *taps), predicate

    def parts(self, node: UOp, index: Index) -> list[Step]:
        """Return, for each operand of a CAT, its index and the condition under which it is read.

        For the first and the last operand, the condition is a single comparison.
        """
        axis = node.arg
        position = index[axis]
        out: list[Step] = []
        start: Dim = 0
        for k, s in enumerate(node.src):
            inner = position if start == 0 else self.simplify(position - as_uop(start))
            predicate = None if k == 0 else self.at_least_zero(inner)
            if k < len(node.src) - 1:
                predicate = self.both(predicate, self.simplify(inner < as_uop(s.shape[axis])))
            if s.shape[axis] == 1:
                inner = ZERO
            out.append(((*index[:axis], inner, *index[axis + 1 :]), predicate))
            start = total((start, s.shape[axis]))
        return out

    def ends(self, node: UOp, index: Index) -> list[UOp]:
        """Return, for each operand of a CAT, the condition that `index` is before its end."""
        out: list[UOp] = []
        end: Dim = 0
        for s in node.src:
            end = total((end, s.shape[node.arg]))
            out.append(self.simplify(index[node.arg] < as_uop(end)))
        return out

    def positive(self, size: UOp) -> UOp:
        """Return the condition that an axis of `size` has an element."""
        return self.simplify(const(0, size.dtype) < size)

    def at_least_zero(self, i: UOp) -> UOp:
        """Return the condition that `i` is not negative."""
        return self.simplify(const(-1, dt.int64) < i)

    def both(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """Return the conjunction of two predicates; None stands for one that always holds."""
        if a is None or b is None:
            return a if b is None else None if _is_true(b) else b
        if a is b or _is_true(b):
            return a
        return self.simplify(a & b)

    def either(self, predicates: Iterable[UOp | None]) -> UOp | None:
        """Return the disjunction of predicates; None stands for one that always holds."""
        wanted = [g for g in dict.fromkeys(predicates) if not is_never(g)]
        if not wanted:
            return FALSE
        if len(wanted) == 1:
            return wanted[0]
        given = [g for g in wanted if g is not None]
        if len(given) < len(wanted):
            return None
        out: UOp | None = None
        for parts in united(given):
            whole: UOp | None = None
            for part in parts:
                whole = self.both(whole, part)
            if whole is None:
                return None
            out = whole if out is None else self.simplify(out | whole)
        return None if out is None or _is_true(out) else out

    def covering(
        self,
        predicates: Iterable[UOp | None],
        index: Index,
        shape: tuple[Dim, ...],
        inner: AbstractSet[UOp],
    ) -> UOp | None:
        """Return a predicate that covers all uses of one element of a tensor.

        In most cases this is the disjunction that :meth:`either` returns. But several reductions
        may use the element, each under a condition on its own loops, which do not exist in the
        other uses. So each such condition is replaced by the condition that `index` lies in the
        tensor.

        Parameters
        ----------
        predicates : iterable of UOp or None
            Predicates of the uses.
        index : Index
            Index of the element.
        shape : tuple of Dim
            Shape of the tensor.
        inner : set of UOp
            Loops of reductions.
        """
        given = list(dict.fromkeys(predicates))
        if None in given or len(given) < 2:
            return self.either(given)
        own = frozenset().union(*map(self.ranges, index))
        loops = [frozenset(self.ranges(g) & inner) - own for g in given if g is not None]
        shared = frozenset.intersection(*loops)
        if all(found == shared for found in loops):
            return self.either(given)
        there: UOp | None = None
        for i, d in zip(index, shape, strict=True):
            there = self.both(there, self.at_least_zero(i))
            there = self.both(there, self.simplify(i < as_uop(d)))
        return self.either(
            predicate if found == shared else self._less(predicate, found - shared, there)
            for predicate, found in zip(given, loops, strict=True)
        )

    def _less(
        self, predicate: UOp | None, loops: AbstractSet[UOp], instead: UOp | None
    ) -> UOp | None:
        """Return `predicate`, but replace its conditions on `loops` by `instead`."""
        out = instead
        for part in [] if predicate is None else conjuncts(predicate):
            if loops.isdisjoint(self.ranges(part)):
                out = self.both(out, part)
        return out

    def needed(self, predicate: UOp | None, index: Index) -> UOp | None:
        """Return `predicate` without conditions on loops that `index` does not vary with.

        In all iterations of such a loop, the element at `index` is the same, so it can be read once
        for all of them.
        """
        if predicate is None:
            return None
        key = (predicate, index)
        if key not in self._needed:
            varying = frozenset().union(*map(self.ranges, index))
            out: UOp | None = None
            for part in conjuncts(predicate):
                loops = self.ranges(part)
                if not loops or not loops.isdisjoint(varying):
                    out = self.both(out, part)
            self._needed[key] = out
        return self._needed[key]

    # Values computed from positions only

    def position(self, node: UOp, index: Index) -> UOp | None:
        """Return the element of `node` at `index` as index arithmetic; None if it reads data."""
        memo = self._positional
        if node not in memo:
            for n in toposort([node], stop=memo.__contains__):
                if n not in memo:
                    memo[n] = _of_positions(n) and all(memo[s] for s in n.src)
        return self._resolve(node, index) if memo[node] else None

    def _resolve(self, node: UOp, index: Index) -> UOp:
        known = self._positions
        stack = [(node, index)]
        while stack:
            key = at, where = stack[-1]
            condition: UOp | None = None
            if key in known:
                stack.pop()
                continue
            if at.op in MOVEMENT:
                inner, condition = self.step(at, where)
                operands = [(at.src[0], inner)]
            else:
                operands = [(s, where) for s in at.src] if at.op is not Op.IOTA else []
            missing = [operand for operand in operands if operand not in known]
            if missing:
                stack += missing
                continue
            values = [known[operand] for operand in operands]
            if at.op is Op.IOTA:
                found = where[0]
            elif at.op in MOVEMENT:
                found = values[0]
                if condition is not None:
                    found = condition.where(found, found.const_like(0))
            else:
                found = at.replace(src=tuple(values)) if values else at
            known[key] = self.simplify(found)
            stack.pop()
        return known[node, index]

    def reshape(self, index: Index, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> Index:
        """Convert `index` of shape `old` to the index of the same element in shape `new`.

        Axes of both shapes are matched in groups of equal product. So if the reshape does not
        change an axis, the axis keeps its index.
        """
        if old == new:
            return index
        key = (index, old, new)
        found = self._reshaped.get(key)
        if found is None:
            found = self._reshaped[key] = self._matched(index, old, new)
        return found

    def _matched(self, index: Index, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> Index:
        out: list[UOp] = []
        pairs = [(i, d) for i, d in zip(index, old, strict=True) if d != 1]
        wanted = [d for d in new if d != 1]
        for source, target in _groups([d for _, d in pairs], wanted):
            group = pairs[source]
            sizes = wanted[target]
            if len(group) == 1 and len(sizes) == 1:
                out.append(group[0][0])
                continue
            flat = self.flat(tuple(i for i, _ in group), tuple(d for _, d in group))
            out.extend(self._unflatten(flat, sizes))
        matched = iter(out)
        return tuple(ZERO if d == 1 else next(matched) for d in new)

    def _unflatten(self, flat: UOp, sizes: list[Dim]) -> list[UOp]:
        out: list[UOp] = []
        for axis, (size, stride) in enumerate(zip(sizes, strides_of(tuple(sizes)), strict=True)):
            i = flat if stride == 1 else flat // as_uop(stride)
            out.append(self.simplify(i if axis == 0 else i % as_uop(size)))
        return out


def _of_positions(node: UOp) -> bool:
    """Return whether an op computes indices or conditions only from other such values."""
    if node.dtype not in (dt.int64, dt.bool_):
        return False
    return node.op in _POSITIONS or node.op in ALU or node.op in MOVEMENT


def is_never(predicate: UOp | None) -> bool:
    """Return whether `predicate` is never true."""
    return predicate is not None and predicate.op is Op.CONST and not predicate.arg


def _is_true(predicate: UOp) -> bool:
    return predicate.op is Op.CONST and bool(predicate.arg)


def groups_of_axes(
    old: tuple[Dim, ...], new: tuple[Dim, ...]
) -> list[tuple[list[int], list[int]]]:
    """Split the axes of two shapes into groups of equal product, and pair the groups.

    Axes of size 1 are left out. For example, shapes (6, 4) and (2, 3, 4) give the pairs
    ([0], [0, 1]) and ([1], [2]).
    """
    mine = [a for a, d in enumerate(old) if d != 1]
    theirs = [a for a, d in enumerate(new) if d != 1]
    found = _groups([old[a] for a in mine], [new[a] for a in theirs])
    return [(mine[i], theirs[j]) for i, j in found]


def _groups(old: list[Dim], new: list[Dim]) -> list[tuple[slice, slice]]:
    """Pair groups of axes of two shapes as slices; see :func:`groups_of_axes`."""
    out: list[tuple[slice, slice]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = i + 1, j + 1
        if a > len(old) or b > len(new):
            break
        left, right = old[i], new[j]
        while not same(left, right):
            if isinstance(left, int) and isinstance(right, int):
                grow_left = left < right
            else:
                grow_left = _less_dim(left, right)
            if grow_left and a < len(old):
                left, a = prod((left, old[a])), a + 1
            elif not grow_left and b < len(new):
                right, b = prod((right, new[b])), b + 1
            else:
                a, b = len(old), len(new)
                break
        out.append((slice(i, a), slice(j, b)))
        i, j = a, b
    return out


def _less_dim(left: Dim, right: Dim) -> bool:
    """Guess, for symbolic sizes, whether the product `left` still lacks factors of `right`."""
    return as_uop(left).vmax < as_uop(right).vmax
