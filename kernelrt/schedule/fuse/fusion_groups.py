"""Fusion group: a kernel under construction, with its stores, loops and reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp, substitute
from kernelrt.ir.local import local_bytes
from kernelrt.ir.shape import as_uop
from kernelrt.ir.terms import ranges_of
from kernelrt.schedule.fuse.demand import ArrayRead, Key, Use, Value
from kernelrt.schedule.fuse.fusion_cost import elements
from kernelrt.schedule.fuse.index_maps import ZERO, Index, Order

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from kernelrt.ir.origin import Origin
    from kernelrt.schedule.fuse.index_maps import Indexer

__all__ = ["Frame", "Group", "outside"]


@dataclass(frozen=True, slots=True)
class Frame:
    """The loops of one reduction.

    Attributes
    ----------
    outer : frozenset of UOp
        RANGEs around the reduction: it runs once for each combination of their values.
    own : tuple of UOp
        RANGEs of the reduction, outermost first.
    depth : int
        Nesting depth: 1 for a reduction that is not inside another one.
    """

    outer: frozenset[UOp]
    own: tuple[UOp, ...]
    depth: int


@dataclass(eq=False, slots=True)
class Group:
    """Fusion group: the values that one kernel stores, and the loops over their elements.

    Attributes
    ----------
    shape : tuple of Dim
        The iteration space.
    kind : str
        ``"map"`` stores each root. ``"init"`` and ``"update"`` are the two kernels of a SCATTER:
        the first stores the base, the second applies the updates. ``"cat"`` stores the operands of
        a CAT, all or a portion. ``"call"`` calls a routine, ``"region"`` runs a region.
    order : tuple of int
        Axes of the iteration space in loop order, outermost first; row-major when empty.
    natural : tuple of UOp
        The loop, or 0, of each axis of `shape`.
    parts : list
        For a CAT, the operands that the kernel stores, each with its offset and the loops over it.
    roots : dict
        The index at which each stored tensor-level node is stored.
    paddings : dict
        The PAD of each root that is a PAD or a copy of one. The kernel computes its interior and
        stores zeros around it.
    targets : frozenset
        BUFFERs of lasting state that roots are committed to.
    checks : bool
        Whether the kernel checks an index, so that it may fail.
    needs : set
        Groups whose results this one reads.
    vectors : frozenset
        For each contraction inside, the loop over its contiguous axis.
    reductions : dict
        Loops of each (reduction, index): one for each reduced axis, or 0.
    values : dict
        Computation of each (node, index), consumers first.
    held : dict
        Maps (node, index) to the local array from which it is read.
    held_bytes : int
        Total bytes of the local arrays.
    filling : frozenset of UOp
        Loops that fill the local arrays.
    reads : dict
        Maps each (stored node, index) to a predicate that covers all its uses. None stands for a
        predicate that is always true.
    contractions : frozenset
        Contractions computed inside, as (node, index).
    size : int
        Instructions of one evaluation of all values inside, to limit the size of a kernel.
    origins : dict
        Origins of the values computed inside, as keys; consumers first.
    varying : dict
        RANGEs that each index varies with. Groups may share this cache.
    """

    shape: tuple[Dim, ...]
    kind: str = "map"
    roots: dict[UOp, Index] = field(default_factory=dict)
    targets: frozenset[UOp] = frozenset()
    checks: bool = False
    needs: set[Group] = field(default_factory=set)
    contractions: frozenset[Key] = frozenset()
    contraction_ranges: frozenset[UOp] = frozenset()
    size: int = 0
    origins: dict[Origin, None] = field(default_factory=dict)
    order: Order = ()
    natural: Index = ()
    parts: list[tuple[UOp, Dim, Index]] = field(default_factory=list)
    paddings: dict[UOp, UOp] = field(default_factory=dict)
    vectors: frozenset[UOp] = frozenset()
    reductions: dict[Key, Index] = field(default_factory=dict)
    values: dict[Key, Value] = field(default_factory=dict)
    held: dict[Key, ArrayRead] = field(default_factory=dict)
    held_bytes: int = 0
    filling: frozenset[UOp] = frozenset()
    reads: dict[Key, UOp | None] = field(default_factory=dict)
    loops: list[UOp] = field(default_factory=list)
    _frames: dict[UOp, Frame] = field(default_factory=dict)
    varying: dict[Index, frozenset[UOp]] = field(default_factory=dict)
    _counts: dict[Index, int] = field(default_factory=dict)
    _into: Group | None = None
    _names: dict[UOp, UOp] = field(default_factory=dict)
    _numbers: int = 0

    def __post_init__(self) -> None:
        if not self.order:
            self.order = tuple(range(len(self.shape)))
        nested = self._loops_over(self.shape[a] for a in self.order)
        by_axis = dict(zip(self.order, nested, strict=True))
        self.natural = tuple(by_axis[a] for a in range(len(self.shape)))
        self._note_loops()

    def _loops_over(self, dims: Iterable[Dim]) -> Index:
        """Return new loops, each inside the one before. An axis of one element gets 0 instead."""
        out: list[UOp] = []
        for dim in dims:
            if dim == 1:
                out.append(ZERO)
            else:
                out.append(UOp(Op.RANGE, dt.int64, (as_uop(dim),), self._numbers))
                self._numbers += 1
        return tuple(out)

    def split(self, axis: int, operands: Iterable[tuple[UOp, Dim]]) -> None:
        """Create loops over the `operands` of a CAT along `axis`; each comes with its offset.

        Operands of the same shape share their loops.
        """
        self._numbers = 0
        shared = self.natural = self._loops_over(self.shape[:axis])
        known: dict[tuple[Dim, ...], Index] = {}
        for part, start in operands:
            if part.shape not in known:
                known[part.shape] = (*shared, *self._loops_over(part.shape[axis:]))
            self.parts.append((part, start, known[part.shape]))
        self._note_loops()

    def slabs(self, pad: UOp, order: Order) -> Iterator[Index]:
        """Cut the zeros of `pad` into slabs, create loops over each, and yield the slabs' indices.

        Parameters
        ----------
        pad : UOp
            A PAD of the values that this group iterates over.
        order : tuple of int
            Axes of the PAD, outermost first. Slabs along outer axes are contiguous in memory.
        """
        before = {
            a: i + as_uop(low) if low else i
            for a, (i, (low, _)) in enumerate(zip(self.natural, pad.arg, strict=True))
        }
        for k, axis in enumerate(order):
            low, high = pad.arg[axis]
            for start, size in ((0, low), (pad.shape[axis] - high, high)):
                if not size:
                    continue
                (own,) = self._loops_over([size])
                rest = order[k + 1 :]
                behind = self._loops_over(pad.shape[a] for a in rest)
                self.loops += [i for i in (own, *behind) if i is not ZERO]
                at = {**before, axis: own + as_uop(start), **dict(zip(rest, behind, strict=True))}
                yield tuple(at[a] for a in range(len(order)))

    def _note_loops(self) -> None:
        every = {*self.natural, *(i for _, _, index in self.parts for i in index)}
        self.loops = sorted((i for i in every if i is not ZERO), key=lambda r: int(r.arg))

    # Merged groups

    def now(self) -> Group:
        """Return the group that this one was merged into, or itself."""
        group = self
        while group._into is not None:
            group = group._into
        return group

    def renamed(self, index: Index) -> Index:
        """Translate `index` to the loops of the group that this one was merged into."""
        group = self
        while group._into is not None:
            if group._names:
                index = tuple(substitute(index, group._names))
            group = group._into
        return index

    def renamed_gate(self, predicate: UOp | None) -> UOp | None:
        """Translate a predicate to the loops of the group that this one was merged into."""
        return predicate if predicate is None else self.renamed((predicate,))[0]

    def reaches(self, goals: Collection[Group], barren: set[Group] | None = None) -> bool:
        """Return whether this group depends, directly or not, on any of `goals`.

        `barren` contains groups that are known to depend on none of the goals. If the result is
        False, the search adds all groups that it visited.
        """
        seen = {self} if barren is None else {self, *barren}
        stack = [self]
        while stack:
            for source in stack.pop().needs:
                now = source.now()
                if now in goals:
                    return True
                if now not in seen:
                    seen.add(now)
                    stack.append(now)
        if barren is not None:
            barren |= seen
        return False

    def below(self) -> set[Group]:
        """Return the groups that this one depends on, directly or not."""
        found: set[Group] = set()
        self.reaches((), found)
        return found - {self}

    def absorb(self, other: Group) -> None:
        """Merge `other`, which has the same iteration space, into this group.

        If both groups compute the same reduction at the same index, the loops of this group stay.
        """
        other._into = self
        names = other._names
        at = other.renamed
        first = len(self.loops)
        if self._numbers > first:
            names |= {r: r.replace(arg=r.arg + self._numbers - first) for r in other._frames}
        self._numbers += other._numbers - first
        for (node, index), own in other.reductions.items():
            # Outer reductions come first, so that inner ones already use this group's loops.
            here = self.reductions.setdefault((node, at(index)), at(own))
            names |= {r: mine for r, mine in zip(own, here, strict=True) if mine is not r}
        self.roots |= other.roots
        self.paddings |= other.paddings
        self.targets |= other.targets
        self.checks |= other.checks
        self.needs |= other.needs
        self.contractions |= {(node, at(index)) for node, index in other.contractions}
        self.contraction_ranges |= frozenset(at((*other.contraction_ranges,)))
        self.vectors |= frozenset(at((*other.vectors,)))
        self.size += other.size
        self.held_bytes += other.held_bytes
        self.filling |= frozenset(at((*other.filling,)))
        self.origins |= other.origins
        for loop, frame in other._frames.items():
            name = names.get(loop, loop)
            if name not in self._frames:
                self._frames[name] = Frame(
                    frozenset(at((*frame.outer,))), at(frame.own), frame.depth
                )

    def take(self, other: Group, indexer: Indexer) -> None:
        """Add the values, arrays and reads of `other`, which was merged into this group."""
        at, gate_at = other.renamed, other.renamed_gate
        for (node, index), value in other.values.items():
            key = node, at(index)
            uses = tuple(
                Use(u.node, at(u.at), gate_at(u.predicate), gate_at(u.condition))
                for u in value.uses
            )
            there = Value(gate_at(value.predicate), uses, at(value.loops))
            known = self.values.get(key)
            if known is not None:
                there = _either(known, there, key, self.reducing, indexer)
            self.values[key] = there
        for (node, index), held in other.held.items():
            self.held.setdefault((node, at(index)), ArrayRead(*map(at, held)))
        for (node, index), predicate in other.reads.items():
            key, covered = (node, at(index)), gate_at(predicate)
            if key in self.reads:
                both = self.reads[key], covered
                covered = indexer.covering(both, key[1], node.shape, self.reducing)
            self.reads[key] = covered

    # Number of evaluations of a value

    def ranges(self, index: Index) -> frozenset[UOp]:
        """Return the RANGEs that `index` varies with."""
        found = self.varying.get(index)
        if found is None:
            parts = [{i} if i.op is Op.RANGE else ranges_of(i) for i in index if i is not ZERO]
            found = self.varying[index] = frozenset().union(*parts)
        return found

    def evaluated_over(self, index: Index) -> frozenset[UOp]:
        """Return the RANGEs around the computation of a value at `index`, after hoisting.

        The value is hoisted out of inner loops that it does not vary with.
        """
        varying = self.ranges(index)
        frames = [self._frames[r] for r in varying if r in self._frames]
        if not frames:
            return varying
        frame = max(frames, key=lambda f: f.depth)
        last = max(k for k, r in enumerate(frame.own) if r in varying)
        return frame.outer | frozenset(frame.own[: last + 1])

    def evaluations(self, index: Index) -> int:
        """Return how often a value at `index` is computed."""
        found = self._counts.get(index)
        if found is None:
            over = self.evaluated_over(index)
            found = math.prod(r.src[0].vmax for r in over)
            if self._frames.keys().isdisjoint(over):
                # An index such as r // 8 takes fewer values than r.
                found = min(found, math.prod(i.vmax - i.vmin + 1 for i in index))
            self._counts[index] = found
        return found

    def enter(self, node: UOp, index: Index, *, contraction: bool) -> Index:
        """Create the loops of the reduction `node` at `index`."""
        dims = node.src[0].shape
        own = self._loops_over(d for a, d in enumerate(dims) if a in node.arg[1])
        self.reductions[node, index] = own
        self._add_frame(index, own)
        if contraction:
            self.contractions |= {(node, index)}
            self.contraction_ranges |= frozenset(own) - {ZERO}
        return own

    def hold(self, node: UOp, indices: Sequence[Index], axes: Sequence[int]) -> Index:
        """Keep `node` in a local array over `axes`, for reads at `indices`.

        :meth:`rows` and :meth:`row` find the axes.

        Returns
        -------
        Index
            The index at which `node` is computed into the array.
        """
        loops = self._loops_over(node.shape[a] for a in axes)
        by_axis = dict(zip(axes, loops, strict=True))
        at = tuple(by_axis.get(a, i) for a, i in enumerate(indices[0]))
        self._add_frame(outside(indices[0], axes), loops)
        self.held_bytes += local_bytes(node.dtype, loops)
        self.filling |= frozenset(loops) - {ZERO}
        for index in indices:
            self.held[node, index] = ArrayRead(at, loops, tuple(index[a] for a in axes))
        return at

    def rows(self, indices: Sequence[Index], shape: tuple[Dim, ...]) -> list[int] | None:
        """Return the axes in which `indices` differ, if each index runs over all of these axes.

        Return None if the indices differ in another way. Also return None if the indices of the
        other axes are not known before the first loop over these axes begins.
        """
        axes: list[int] = []
        walked: set[UOp] = set()
        for a, dim in enumerate(shape):
            along = {index[a] for index in indices}
            if len(along) == 1:
                continue
            if any(i.op is not Op.RANGE or i.src[0] is not as_uop(dim) for i in along):
                return None
            axes.append(a)
            walked |= along
        common = self.ranges(outside(indices[0], axes))
        if any(len({index[a] for a in axes}) < len(axes) for index in indices):
            return None
        last = max((int(r.arg) for r in common), default=-1)
        if any(int(r.arg) <= last for r in walked):
            return None
        return axes if all(r in common for r in self.loops if int(r.arg) <= last) else None

    def row(self, index: Index, shape: tuple[Dim, ...]) -> list[int] | None:
        """Return the axes along which a reduction reads whole rows of a value again and again.

        It reads a row again in each iteration of a loop that the value does not vary with. Return
        None if there are no such axes or no such loop, or if the value varies with a loop inside
        the reduction's loops as well.
        """
        axes = [a for a, i in enumerate(index) if i in self._frames]
        if any(index[a].src[0] is not as_uop(shape[a]) for a in axes):
            return None
        common = self.ranges(outside(index, axes))
        if not axes or len({index[a] for a in axes}) < len(axes) or not common:
            return None
        last = max(int(r.arg) for r in common)
        if any(int(index[a].arg) <= last for a in axes):
            return None
        known = all(r in common for r in self.loops if int(r.arg) <= last)
        return axes if known and len(common) < len(self.loops) else None

    def fills(self, index: Index) -> bool:
        """Return whether `index` varies with reduction or array loops, all of which fill arrays."""
        inner = self.ranges(index) & self._frames.keys()
        return bool(inner) and inner <= self.filling

    def row_around(self, index: Index, filled: UOp) -> UOp | None:
        """Return the innermost loop around `filled` that `index` does not vary with.

        In each iteration of the returned loop, the loop `filled` fills one row of an array.
        """
        outer = self._frames[filled].outer - self.ranges(index)
        return max(outer, key=lambda r: int(r.arg), default=None)

    def _add_frame(self, index: Index, own: Index) -> None:
        varying = self.ranges(index)
        depth = max((self._frames[r].depth for r in varying if r in self._frames), default=0)
        frame = Frame(
            self.evaluated_over(index), tuple(r for r in own if r is not ZERO), depth + 1
        )
        for r in frame.own:
            self._frames[r] = frame

    def walk(self, index: Index) -> Index:
        """Return `index` with its reduction loops renumbered.

        Two groups that traverse an input in the same order then have equal indices.
        """
        inner = sorted(self.ranges(index) - set(self.natural), key=lambda r: int(r.arg))
        plain = {r: r.replace(arg=len(self.loops) + k) for k, r in enumerate(inner)}
        return tuple(substitute(index, plain))

    @property
    def reducing(self) -> AbstractSet[UOp]:
        """Loops of reductions, and loops that fill local arrays."""
        return self._frames.keys()

    def inside_reduction(self, index: Index) -> bool:
        """Return whether a value at `index` is computed inside a reduction's loops."""
        return not self._frames.keys().isdisjoint(self.ranges(index))

    def inside_contraction(self, index: Index) -> bool:
        """Return whether a value at `index` is computed in the inner loop of a contraction."""
        return not self.contraction_ranges.isdisjoint(self.ranges(index))

    def hoisted(self, index: Index) -> bool:
        """Return whether several iterations of the outer loops share a value at `index`."""
        over = self.evaluated_over(index)
        return math.prod(r.src[0].vmax for r in over) < elements(self.shape)

    def walks(self, index: Index, shape: tuple[Dim, ...]) -> Order | None:
        """Return the order in which the outer loops visit all elements of a value of `shape`.

        This kernel can store such a value, even if the value does not vary with all loops. Return
        None if the loops do not visit each element.
        """
        if self.kind != "map":
            return None
        real: list[int] = []
        for a, (i, d) in enumerate(zip(index, shape, strict=True)):
            if d != 1:
                if i not in self.loops or i.src[0] is not as_uop(d):
                    return None
                real.append(a)
            elif i is not ZERO:
                # An index read from data may select the only element along an axis.
                return None
        if len({index[a] for a in real}) < len(real):
            return None
        # A scalar is stored in a kernel without loops.
        if not real and self.loops:
            return None
        nested = sorted(real, key=lambda a: int(index[a].arg))
        return (*(a for a in range(len(shape)) if a not in real), *nested)


def outside(index: Index, axes: Container[int]) -> Index:
    """Return `index` with 0 along `axes`."""
    return tuple(ZERO if a in axes else i for a, i in enumerate(index))


def _either(
    a: Value, b: Value, key: Key, inner: AbstractSet[UOp], indexer: Indexer
) -> Value:
    """Merge two records of one node at one index. The predicates of the result cover both."""
    uses = tuple(
        x._replace(
            predicate=indexer.covering((x.predicate, y.predicate), x.at, x.node.shape, inner)
        )
        for x, y in zip(a.uses, b.uses, strict=True)
    )
    node, index = key
    predicate = indexer.covering((a.predicate, b.predicate), index, node.shape, inner)
    return Value(predicate, uses, a.loops)
