"""Fusion decisions: recompute a value at each use, once a kernel, or once into a buffer.

:meth:`Decider.decide` is the one place that says so, with its reason. What has to be, whatever it
costs, is in :meth:`Decider._obligation`; everything else is counted work against counted traffic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from kernelrt.ir import Op, UOp
from kernelrt.ir.local import LOCAL_BYTES, LONG_ROW, ROWS_BYTES, local_itemsize, row_blocks
from kernelrt.ir.ops import MOVEMENT
from kernelrt.ir.reducers import IN_ORDER, depends_on_order
from kernelrt.ir.shape import dim_max
from kernelrt.schedule.fuse import tileability
from kernelrt.schedule.fuse.fusion_cost import (
    FEW,
    FREE,
    MOST_WRITTEN,
    SHORT_LOOP,
    contraction_reuse,
    elements,
)  # fmt: skip
from kernelrt.schedule.fuse.fusion_groups import Group, outside
from kernelrt.schedule.rewrite.array_layouts import is_row_major
from kernelrt.schedule.rewrite.axis_maps import innermost
from kernelrt.schedule.types import Decision

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kernelrt.schedule.fuse.fusion_cost import Prices, Work
    from kernelrt.schedule.fuse.index_maps import Index, Order
    from kernelrt.schedule.fuse.tileability import Accesses

__all__ = ["Decider", "Verdict"]

#: Uses of an element by a contraction from which a copy in a better order pays.
_REUSE = 8
#: Rows of a register tile: so many arrays lie side by side.
_TILE = 16
#: Of what a contraction takes, what it and the one that walks its rows take longer in one kernel,
#: and in blocks of long rows: 256 rows of 784 x 256 x 256 x 16 take 0.65 ms, 0.54 apart, 512 of
#: 256 x 1024 x 256 take 3.0 in blocks and 2.2 apart (`python -m bench.report serving`).
_SLOWED = (0.1, 0.5)
#: Cycles that a buffer is worth which is just too large, in those that its traffic takes.
_CROWDED = 4
#: Multiplications that an element is worth from which on it is a function: an exponential is worth
#: 16 with AVX-512, a root and a division 14.
_FUNCTION = 12
#: Nodes below a function that are looked at for sums.
_MOST_SEEN = 64
_BESIDE = "before a short loop, or again in each row: {:.3g} cycles, {:.3g} to store"
_COUNTED = "{:.3g} evaluations of {} elements: {:.3g} cycles to repeat, {:.3g} to store"
Choice = Literal["inline", "local", "global"]
_KEPT = "{:.3g} evaluations or {:.3g}: {:.3g} cycles to repeat, {:.3g} to keep"
_AGAIN = "{:.3g} bytes are too many: each kernel computes rows, {:.3g} cycles, {:.3g} to store"
_ROW = "a row of it fits an array of the kernel: {:.3g} cycles to keep, {:.3g} to store"
_CONVERTED = "a contraction converts what it reads where it copies it"
_UNTILED = "{}: {{:.3g}} cycles without its tile, {{:.3g}} to store"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a value.

    Attributes
    ----------
    choice : str
        ``"inline"``: it is computed wherever it is wanted; ``"local"``: once into an array of the
        kernel that wants it in several passes; ``"global"``: once into a buffer.
    host : (Group, Index) or None
        The kernel that computes it element by element anyway and stores it; None for one of its
        own.
    order : tuple of int or None
        Its axes, outermost first, where it is copied into another order.
    why : Decision or None
        The reason; None where there was no question.
    axes : tuple of int
        Those that an array of the kernel is over.
    array_axes : mapping of Group to tuple of int
        For a value that several kernels compute, the axes of each kernel's local array; empty for
        a kernel that reads each element once.
    exempt_uses : frozenset of (Group, Index)
        Uses of a copied value that gain nothing by the copy and read its source.
    """

    choice: Choice
    host: tuple[Group, Index] | None = None
    order: Order | None = None
    why: Decision | None = None
    axes: tuple[int, ...] = ()
    array_axes: Mapping[Group, tuple[int, ...]] = field(default_factory=dict)
    exempt_uses: frozenset[tuple[Group, Index]] = frozenset()


_INLINE = Verdict("inline")


class Decider:
    """Decides for one graph.

    Parameters
    ----------
    prices : Prices
        What the target pays.
    work : Work
        What computing one element of each node takes.
    forced : set of UOp
        Nodes that have a buffer whatever it costs.
    row_major : container of UOp
        Those that lie in row-major order.
    orders : mapping
        Nodes that are better not stored row-major -> their axes, outermost first.
    committed : container of UOp
        Nodes that are written to lasting state.
    order : sequence of UOp
        All nodes, operands first.
    """

    def __init__(
        self,
        prices: Prices,
        work: Work,
        forced: AbstractSet[UOp],
        row_major: Container[UOp],
        orders: Mapping[UOp, Order],
        committed: Container[UOp],
        order: Sequence[UOp],
    ) -> None:
        self._prices = prices
        self._work = work.cycles
        self._last = work.last
        self._forced = forced
        self._row_major = row_major
        self._orders = orders
        self._committed = committed
        self._order = order

    def decide(self, node: UOp, accesses: Accesses) -> Verdict:
        """What becomes of `node`, by all its uses.

        Parameters
        ----------
        node : UOp
            Not a BUFFER.
        accesses : mapping
            Every kernel that wants it and where -> the condition that covers its uses there.
        """
        if node in self._forced:
            host = self._host(node, accesses)
            why = None if host else Decision(node, "global", "asked for")
            return Verdict("global", host, None, why)
        copied = self._copied(node, accesses)
        if copied is not None:
            return copied
        if node.op in FREE:
            return _INLINE
        again = self._again(node, accesses)
        if again is not None:
            return again
        if self._converts(node) and all(_is_multiplied(node, *access) for access in accesses):
            return Verdict("inline", why=Decision(node, "inline", _CONVERTED))
        if contraction_reuse(node):
            kept = self._kept_sums(node, accesses)
            if kept is not None:
                return kept
        obligation = self._obligation(node, accesses)
        if obligation is not None:
            why = Decision(node, "global", obligation)
            return Verdict("global", self._host(node, accesses), None, why)
        return self._cheaper(node, accesses)

    # What no count outweighs

    def _obligation(self, node: UOp, accesses: Accesses) -> str | None:
        """A reason for a buffer that is not a matter of its cost."""
        if any(group.size >= MOST_WRITTEN for group, _ in accesses):
            # The compiler's time, which is not counted in work.
            return "the kernel that reads it is full"
        if node.op is Op.BOUND and any(group.targets for group, _ in accesses):
            return "a failing check must come before a commit"
        if node.op is not Op.REDUCE_AXIS or self._work[node] == 0:
            return None
        if depends_on_order(node) and len(accesses) > 1:
            return "two loops would add in different orders, and round differently"
        if not contraction_reuse(node) and self._is_long(node):
            for group, index in accesses:
                if group.hoisted(index) and not group.inside_reduction(index):
                    # Bits do not depend on the number of cores, so it is not counted.
                    return "a long reduction to few elements, used by many"
        return None

    def _is_long(self, node: UOp) -> bool:
        count = elements(node.shape)
        return count <= FEW and self._work[node] * count >= self._prices.parallel

    # Counted

    def _cheaper(self, node: UOp, accesses: Accesses) -> Verdict:
        """Compare what computing it wherever it is wanted wastes with the traffic of a buffer."""
        count = elements(node.shape)
        total = sum(group.evaluations(index) for group, index in accesses)
        wasted = self._repeated(node, total)
        beside = 0.0 if wasted else self._beside_vectors(node, accesses)
        wasted += beside
        if wasted and all(not group.ranges(index) for group, index in accesses):
            wasted *= self._prices.scalar
        lost, slow = None, 0
        for key, gate in accesses.items() if not contraction_reuse(node) else ():
            why_not = tileability.across(node, {key: gate}, self._orders)
            if why_not is not None:
                lost, slow = why_not, slow + key[0].evaluations(key[1])
        if contraction_reuse(node):
            lost = tileability.untiled(node, accesses, self._orders)
            slow = total if lost else 0
        wasted += slow * self._work[node] * (self._prices.scalar - 1)
        if wasted == 0:
            return _INLINE
        nbytes = count * node.dtype.itemsize
        apart = len({group for group, _ in accesses}) > 1 or any(
            group.inside_contraction(index) for group, index in accesses
        )
        traffic = self._prices.traffic(nbytes, total / count, torn=not apart)
        host = None if beside else self._host(node, accesses)
        if len(accesses) == 1:
            kept = self._kept_row(node, accesses, traffic)
            if kept is not None:
                return kept
        if host is None and node not in self._last:
            traffic += self._prices.launch
        stored = wasted > traffic
        if len(accesses) > 1:
            kept = self._kept(node, accesses, traffic)
            if kept is not None:
                return kept
        choice = "global" if stored else "inline"
        if lost is not None:
            why = Decision(node, choice, _UNTILED.format(lost), (wasted, traffic))
        else:
            counts = (beside, traffic) if beside else (total, count, wasted, traffic)
            why = Decision(node, choice, _BESIDE if beside else _COUNTED, counts)
        return Verdict("global", host, None, why) if stored else Verdict("inline", why=why)

    def _kept(self, node: UOp, accesses: Accesses, traffic: float) -> Verdict | None:
        """Whether the one kernel that wants `node` in several passes keeps it in an array.

        None where a buffer is cheaper, or where there can be no array: all its elements are
        computed, so there is none of what exists under conditions or of what could fail.
        """
        (group, *others), indices = zip(*accesses, strict=True)
        if any(g is not group for g in others) or contraction_reuse(node):
            return None
        axes = group.rows(indices, node.shape)
        if not axes or not self._may_keep(node, accesses, axes):
            return None
        length = elements(tuple(node.shape[a] for a in axes))
        nbytes = length * local_itemsize(node.dtype)
        fills = group.evaluations(outside(indices[0], axes))
        total = sum(map(group.evaluations, indices))
        moved = self._prices.byte(nbytes) * local_itemsize(node.dtype) * (fills * length + total)
        saved = (total - fills * length) * self._near[node]
        cost = moved + fills * self._prices.loop
        counts = (total, fills * length, saved, cost)
        if traffic < min(saved, cost):
            return None
        choice: Choice = "local" if cost < saved else "inline"
        return Verdict(choice, why=Decision(node, choice, _KEPT, counts), axes=tuple(axes))

    def _may_keep(self, node: UOp, accesses: Accesses, axes: Sequence[int]) -> bool:
        """Whether the kernel of all `accesses` can keep `node` in an array over `axes`."""
        if any(gate is not None for gate in accesses.values()) or node in self._checks:
            return False
        length = elements(tuple(node.shape[a] for a in axes))
        # What fills one vector is had as quickly as it is written and read.
        if length < self._prices.scalar:
            return False
        (group, _), *_ = accesses
        most = ROWS_BYTES if group.contractions else LOCAL_BYTES
        return group.held_bytes + length * local_itemsize(node.dtype) <= most

    def _kept_row(self, node: UOp, accesses: Accesses, traffic: float) -> Verdict | None:
        """Whether a contraction that walks rows of `node` has each of them in an array.

        It is filled before the row's results and computed no more often than in a buffer, of
        which the elements need not fit any cache. None where a buffer is cheaper or has to be.
        """
        ((group, index),) = accesses
        if group.kind != "map" or not group.inside_contraction(index):
            return None
        axes = group.row(index, node.shape)
        if axes is None or axes[-1] != innermost(node, self._orders.get(node)):
            return None
        if not self._may_keep(node, accesses, axes):
            return None
        # What is multiplied as narrow as it is, is read from copies of what is stored.
        spared = self._prices.spared(node.dtype) * group.evaluations(index)
        cost = self._keeping(node, group, axes) + spared
        long = elements(tuple(node.shape[a] for a in axes)) >= LONG_ROW
        inner = tileability.made_of(node)
        if inner and tileability.wants_panels(group, self._orders):
            return None
        for x in inner:
            cost += self._prices.traffic(tileability.turned(x, self._orders))
            cost += _SLOWED[long] * elements(x.shape) * self._work[x]
        if traffic < cost:
            return None
        return Verdict("local", why=Decision(node, "local", _ROW, (cost, traffic)), axes=(*axes,))

    def _kept_sums(self, node: UOp, accesses: Accesses) -> Verdict | None:
        """Whether the kernel that wants rows of a contraction in several passes keeps them.

        They are added up once, so that all passes have the same sums.
        """
        (group, *others), indices = zip(*accesses, strict=True)
        if len(indices) < 2 or any(g is not group for g in others):
            return None
        axes = group.rows(indices, node.shape)
        if not axes or node in self._orders or axes[-1] != innermost(node, None):
            return None
        if not group.contractions or not self._may_keep(node, accesses, axes):
            return None
        nbytes = elements(node.shape) * node.dtype.itemsize
        traffic = self._prices.traffic(nbytes, 2)
        cost = self._keeping(node, group, axes)
        if traffic < cost:
            return None
        return Verdict("local", why=Decision(node, "local", _ROW, (cost, traffic)), axes=(*axes,))

    def _again(self, node: UOp, accesses: Accesses) -> Verdict | None:
        """Whether several kernels compute rows of `node`, each for itself, to save a buffer.

        None where there is no need, or where one of them could not.
        """
        nbytes = elements(node.shape) * node.dtype.itemsize
        groups = dict.fromkeys(group for group, _ in accesses)
        roomy = self._prices.roomy
        full = any(group.size >= MOST_WRITTEN for group in groups)
        if len(groups) < 2 or nbytes <= roomy or full or not self._may_repeat(node):
            return None
        repeated = (len(groups) - 1) * elements(node.shape) * self._work[node]
        traffic = self._prices.byte(nbytes) * (2 + len(groups)) * nbytes
        # A byte is worth the more the less there is for all that are needed.
        if repeated > traffic * _CROWDED * nbytes / roomy:
            return None
        apart: dict[Group, tuple[int, ...]] = {}
        for group in groups:
            own = {key: gate for key, gate in accesses.items() if key[0] is group}
            axes = self._row_of(node, group, own)
            if axes is None:
                return None
            apart[group] = axes
        why = Decision(node, "local", _AGAIN, (nbytes, repeated, traffic))
        return Verdict("local", why=why, array_axes=apart)

    def _may_repeat(self, node: UOp) -> bool:
        """Whether `node` checks nothing, and has the same bits in each kernel that computes it."""
        if node in self._checks:
            return False
        if not depends_on_order(node):
            return True
        return elements(tuple(node.src[0].shape[a] for a in node.arg[1])) <= IN_ORDER

    def _row_of(self, node: UOp, group: Group, own: Accesses) -> tuple[int, ...] | None:
        """Axes of an array that `group` keeps rows of `node` in; none if it needs no array."""
        if group.kind != "map":
            return None
        indices = [index for _, index in own]
        if len(indices) == 1:
            [index] = indices
            if group.evaluations(index) <= elements(node.shape):
                rounds = depends_on_order(node)
                alone = group.fills(index) if rounds else group.inside_reduction(index)
                return () if alone else None
            axes = group.row(index, node.shape) if group.inside_contraction(index) else None
        else:
            axes = group.rows(indices, node.shape)
        if not axes or not self._may_keep(node, own, axes):
            return None
        length = elements(tuple(node.shape[a] for a in axes))
        beside = (r for r in group.loops if all(r not in group.ranges(i) for i in indices))
        walked = length * math.prod(r.src[0].vmax for r in beside) * node.dtype.itemsize
        # It is walked less often, or gladly, where the buffer would be larger.
        nbytes = elements(node.shape) * node.dtype.itemsize
        most = self._prices.walked * max(1, nbytes // self._prices.roomy)
        return tuple(axes) if walked < most else None

    def _keeping(self, node: UOp, group: Group, axes: Sequence[int]) -> float:
        """Cycles of the traffic of arrays over `axes`, one for each row of `node`."""
        length = elements(tuple(node.shape[a] for a in axes))
        nbytes = length * local_itemsize(node.dtype)
        rows = elements(node.shape) // max(1, length)
        near = self._prices.byte(_TILE * (group.held_bytes + nbytes))
        return rows * (near * 4 * nbytes + self._prices.loop)

    @cached_property
    def _near(self) -> Mapping[UOp, float]:
        """Work where what is wanted in several passes of a kernel is kept."""
        return self._prices.work_of(self._order, self._forced, kept=True).cycles

    @cached_property
    def _checks(self) -> set[UOp]:
        """Nodes in which an index is checked, other than in what they read."""
        found = {n for n in self._order if n.op is Op.BOUND}
        for node in self._order if found else ():
            if any(s in found and s not in self._forced for s in node.src):
                found.add(node)
        return found

    def _repeated(self, node: UOp, total: int) -> float:
        """Work beyond what is needed, when `node` is computed `total` times."""
        if node.op is Op.CAT:
            # A select computes every part for every element.
            return sum(max(0, total - elements(s.shape)) * self._work[s] for s in node.src)
        return max(0, total - elements(node.shape)) * self._work[node]

    def _beside_vectors(self, node: UOp, accesses: Accesses) -> float:
        """Work of functions beyond what is needed, as loops that they do not vary with have it.

        Before the innermost loop, along which vectors go, they are computed one by one; what that
        takes no longer than the loop does is had beside it. Within it they are computed again in
        each turn of the loops around. A few multiplications are no reason for a buffer.
        """
        work = self._work[node]
        if work < _FUNCTION * self._prices.multiplication or self._adds_up(node):
            return 0
        wasted = 0.0
        for group, index in accesses:
            varying, loops = group.ranges(index), group.loops
            if group.kind != "map" or not varying or not varying.issubset(loops):
                return 0
            last = max(k for k, loop in enumerate(loops) if loop in varying)
            often = math.prod(dim_max(loop.src[0]) for loop in loops[: last + 1])
            within = math.prod(dim_max(loop.src[0]) for loop in loops[last + 1 :])
            if within > 1:
                rest = max(self._work[root] for root in group.roots) * within - work
                wasted += often * max(0.0, work * self._prices.scalar - max(0.0, rest))
            else:
                wasted += max(0, often - elements(node.shape)) * work
        return wasted

    def _adds_up(self, node: UOp) -> bool:
        """Whether `node` is made of a reduction that is not stored, or of too much to tell."""
        stack, seen = [node], {node}
        while stack:
            x = stack.pop()
            if x.op is Op.REDUCE_AXIS or len(seen) > _MOST_SEEN:
                return True
            if x.op is not Op.BUFFER and (x is node or x not in self._forced):
                stack += [s for s in x.src if s not in seen]
                seen.update(x.src)
        return False

    def _copied(self, node: UOp, accesses: Accesses) -> Verdict | None:
        """A copy of what is stored, where a contraction reads it better in another order.

        Rows of sums that fill an array have no panels: whatever they read is put in order once.
        """
        if node.op not in MOVEMENT:
            return None
        stored = node.src[0].op is Op.BUFFER
        scattered = node.op is Op.RESHAPE and node.src[0] in self._orders
        filling = any(group.filling & group.ranges(index) for group, index in accesses)
        if not stored and not filling and (not scattered or node in self._orders):
            return None
        count = elements(node.shape)
        for group, index in accesses:
            if not group.inside_contraction(index) or group.evaluations(index) < _REUSE * count:
                continue
            if scattered and node not in self._orders:
                grounds = "row-major for the contraction that reads it"
                return Verdict("global", why=Decision(node, "global", grounds))
            wanted = group.vectors if stored else group.vectors & group.filling
            along = [a for a, i in enumerate(index) if i in wanted]
            if along and self._in_blocks(node, group, index, index[along[0]]):
                continue
            lying = innermost(node, None), tileability.lying_along(node, self._orders)
            if along and along[0] not in lying:
                grounds = "laid out for the contraction that reads it"
                why = Decision(node, "global", grounds)
                order = (*(a for a in range(len(index)) if a != along[0]), along[0])
                beside = frozenset(
                    key for key in accesses if stored and key[1][along[0]] not in key[0].vectors
                )
                return Verdict("global", order=order, why=why, exempt_uses=beside)
        return None

    def _in_blocks(self, node: UOp, group: Group, index: Index, filled: UOp) -> bool:
        """Whether rows that `group` fills are computed in blocks, in which vectors go across."""
        row = group.row_around(index, filled) if filled in group.filling else None
        if row is None or any(r.src[0].op is not Op.CONST for r in (row, filled)):
            return False
        sizes = row.src[0].arg, filled.src[0].arg
        return bool(row_blocks(*sizes, self._prices.lanes(node.dtype)))

    def _converts(self, node: UOp) -> bool:
        """Whether `node` widens what a copy holds or multiplies so anyway, or takes no time."""
        if node.op is not Op.CAST:
            return node.op is Op.BITCAST
        before, after = node.src[0].dtype, node.dtype
        alike = before.is_float if after.is_float else self._prices.multiplies(before)
        return before.itemsize < after.itemsize <= 4 and alike

    # Kernels that store several values

    def _host(self, node: UOp, accesses: Accesses) -> tuple[Group, Index] | None:
        """A group that computes `node` element by element anyway and can store it too."""
        if node.op in (Op.SCATTER, Op.CAT, Op.CALL, Op.REGION):
            return None
        seen: dict[Group, list[Index]] = {}
        for group, index in accesses:
            seen.setdefault(group, []).append(index)
        for group, (index, *others) in seen.items():
            if others or not self._can_host(node, group, index):
                continue
            # The other readers come after this group; it must not come after them.
            if not group.reaches(set(seen) - {group}):
                return group, index
        return None

    def _can_host(self, node: UOp, group: Group, index: Index) -> bool:
        order = group.walks(index, node.shape)
        if order is None or (node in self._row_major and not is_row_major(node, order)):
            return False
        if node.op is Op.REDUCE_AXIS and self._is_long(node) and group.hoisted(index):
            return False
        if tileability.across(node, {(group, index): None}, self._orders) is not None:
            return False
        # Stored from inside loops too short for vectors it would cost more than it saves.
        if elements(node.shape) < elements(group.shape) < SHORT_LOOP * elements(node.shape):
            return False
        if group.size >= MOST_WRITTEN or (group.targets and node.op is Op.BOUND):
            return False
        if group.checks and node in self._committed:
            return False
        if not contraction_reuse(node):
            return True
        others = group.contractions - {(node, index)}
        return not others and tileability.runs_along(node, group, index, self._orders)


def _is_multiplied(node: UOp, group: Group, index: Index) -> bool:
    """Whether what contracts `node` at `index` copies it, or multiplies it as narrow as it is."""
    whole = node.dtype.is_int and group.inside_reduction(index)
    return whole or group.inside_contraction(index)
