"""Fusion decisions: compute a value at each use, once per kernel, or once into a buffer.

Only :meth:`Decider.decide` decides how a value is computed; fusion.py merges whole kernels. The
reason of a decision is a ``Decision``, which ``plan.explain()`` prints (runtime/plan_report.py).
:meth:`Decider._obligation` finds the values that must have a buffer at any cost. All other
decisions compare two estimates: the cycles of repeated computation, and the cycles of memory
traffic. If a loop cannot be tiled, tileability.py gives the reason.
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

__all__ = ["Decider", "FusionDecision"]

#: Minimum uses of an element by a contraction for which a copy in a better order pays.
_REUSE = 8
#: Rows of a register tile, and so the number of row arrays that are in use at the same time.
_TILE = 16
#: Slowdown of two contractions in one kernel, as a fraction of the first one's time. The second
#: number is for long rows, which are computed in blocks. 256 rows of a network of widths 784, 256,
#: 256 and 16 take 0.65 ms in one kernel and 0.54 ms in separate ones. 512 rows of widths 256, 1024
#: and 256 take 3.0 ms in blocks and 2.2 ms in separate kernels (`python -m bench.report serving`).
_FUSION_SLOWDOWN = (0.1, 0.5)
#: Value of avoiding a buffer that just exceeds the limit, as a multiple of its traffic.
_OVERSIZE_PRICE = 4
#: Minimum cost, in multiplications, of a value that counts as an expensive function. With AVX-512,
#: an exponential costs 16 multiplications, a root with a division 14.
_FUNCTION = 12
#: Maximum number of nodes below a function that are searched for sums.
_MOST_SEEN = 64
_SCALAR = (
    "computed in scalar code before a short loop, or again in each row: "
    "{:.3g} cycles, {:.3g} to store"
)
_COUNTED = "{:.3g} evaluations of {} elements: {:.3g} cycles to repeat, {:.3g} to store"
Choice = Literal["inline", "local", "global"]
_KEPT = "{:.3g} evaluations, {:.3g} with a local array: {:.3g} cycles to repeat, {:.3g} to keep"
_RECOMPUTED = (
    "a buffer of {:.3g} bytes is too large, so each kernel computes the rows that it reads: "
    "{:.3g} cycles, {:.3g} to store"
)
_ROW = "a row fits a local array of the kernel: {:.3g} cycles to keep, {:.3g} to store"
_CONVERTED = "the contraction that reads it converts it while it packs or multiplies"
_UNTILED = "{}: {{:.3g}} cycles without a register tile, {{:.3g}} to store"


@dataclass(frozen=True, slots=True)
class FusionDecision:
    """The decision how one value is computed.

    Attributes
    ----------
    choice : str
        ``"inline"``: compute it at each use; ``"local"``: compute it once into a local array of
        the kernel that uses it in several passes; ``"global"``: compute it once into a buffer.
    host : (Group, Index) or None
        A kernel that computes the value element by element in any case, and that now stores it as
        well. None if the value gets its own kernel.
    order : tuple of int or None
        Axes of the value, outermost first, if it is copied into another order.
    why : Decision or None
        Reason, for users; None for a trivial decision.
    axes : tuple of int
        Axes of the local array.
    array_axes : mapping of Group to tuple of int
        Used if several kernels compute the value: the axes of each kernel's local array. They are
        empty for a kernel that reads each element once.
    exempt_uses : frozenset of (Group, Index)
        If the value is copied: uses that gain nothing from the copy, so they read the source.
    """

    choice: Choice
    host: tuple[Group, Index] | None = None
    order: Order | None = None
    why: Decision | None = None
    axes: tuple[int, ...] = ()
    array_axes: Mapping[Group, tuple[int, ...]] = field(default_factory=dict)
    exempt_uses: frozenset[tuple[Group, Index]] = frozenset()


_INLINE = FusionDecision("inline")


class Decider:
    """Makes the fusion decisions for one graph.

    Parameters
    ----------
    prices : Prices
        Costs on the target.
    work : Work
        Cycles to compute one element of each node.
    forced : set of UOp
        Nodes that must have a buffer.
    row_major : container of UOp
        Nodes that must be stored row-major.
    orders : mapping
        Axes, outermost first, of nodes for which another order than row-major is better.
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

    def decide(self, node: UOp, accesses: Accesses) -> FusionDecision:
        """Decide how `node` is computed, from all its uses.

        Parameters
        ----------
        node : UOp
            A node that is not a BUFFER.
        accesses : mapping
            Maps each kernel and index that uses the node to the condition that covers all uses
            there.
        """
        if node in self._forced:
            host = self._host(node, accesses)
            why = None if host else Decision(node, "global", "a buffer is required")
            return FusionDecision("global", host, None, why)
        copied = self._copied(node, accesses)
        if copied is not None:
            return copied
        if node.op in FREE:
            return _INLINE
        recomputed = self._recomputed_rows(node, accesses)
        if recomputed is not None:
            return recomputed
        if self._converts(node) and all(_is_multiplied(node, *access) for access in accesses):
            return FusionDecision("inline", why=Decision(node, "inline", _CONVERTED))
        if contraction_reuse(node):
            kept = self._kept_sums(node, accesses)
            if kept is not None:
                return kept
        obligation = self._obligation(node, accesses)
        if obligation is not None:
            why = Decision(node, "global", obligation)
            return FusionDecision("global", self._host(node, accesses), None, why)
        return self._cheaper(node, accesses)

    # Decisions that no cost outweighs

    def _obligation(self, node: UOp, accesses: Accesses) -> str | None:
        """Return why `node` must have a buffer at any cost; None if it need not have one."""
        if any(group.size >= MOST_WRITTEN for group, _ in accesses):
            # This limits compile time, which the counted work does not include.
            return "the kernel that reads it has its maximum size"
        if node.op is Op.BOUND and any(group.targets for group, _ in accesses):
            return "a check that may fail must run before a commit"
        if node.op is not Op.REDUCE_AXIS or self._work[node] == 0:
            return None
        if depends_on_order(node) and len(accesses) > 1:
            return "two loops would add in different orders, and round differently"
        if not contraction_reuse(node) and self._is_long(node):
            for group, index in accesses:
                if group.hoisted(index) and not group.inside_reduction(index):
                    # Not a comparison of costs: results must not depend on the number of cores.
                    return "a long reduction to few elements, used by many iterations"
        return None

    def _is_long(self, node: UOp) -> bool:
        count = elements(node.shape)
        return count <= FEW and self._work[node] * count >= self._prices.parallel

    # Decisions by cost

    def _cheaper(self, node: UOp, accesses: Accesses) -> FusionDecision:
        """Choose what is cheaper: to compute `node` again at each use, or to store it."""
        count = elements(node.shape)
        total = sum(group.evaluations(index) for group, index in accesses)
        wasted = self._repeated(node, total)
        scalar_work = 0.0 if wasted else self._outside_vectors(node, accesses)
        wasted += scalar_work
        if wasted and all(not group.ranges(index) for group, index in accesses):
            wasted *= self._prices.scalar
        lost, slow = None, 0
        for key, predicate in accesses.items() if not contraction_reuse(node) else ():
            why_not = tileability.across(node, {key: predicate}, self._orders)
            if why_not is not None:
                lost, slow = why_not, slow + key[0].evaluations(key[1])
        if contraction_reuse(node):
            lost = tileability.untiled(node, accesses, self._orders)
            slow = total if lost else 0
        wasted += slow * self._work[node] * (self._prices.scalar - 1)
        if wasted == 0:
            return _INLINE
        nbytes = count * node.dtype.itemsize
        separate = len({group for group, _ in accesses}) > 1 or any(
            group.inside_contraction(index) for group, index in accesses
        )
        traffic = self._prices.traffic(nbytes, total / count, out_of_cache=not separate)
        host = None if scalar_work else self._host(node, accesses)
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
            counts = (scalar_work, traffic) if scalar_work else (total, count, wasted, traffic)
            why = Decision(node, choice, _SCALAR if scalar_work else _COUNTED, counts)
        if stored:
            return FusionDecision("global", host, None, why)
        return FusionDecision("inline", why=why)

    def _kept(self, node: UOp, accesses: Accesses, traffic: float) -> FusionDecision | None:
        """Decide whether the one kernel that uses `node` in several passes keeps it in an array.

        Return None if a buffer is cheaper, or if no array is possible. A kernel computes all
        elements of an array. So no array is possible if some elements are needed only under a
        condition, or if their computation may fail.
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
        return FusionDecision(choice, why=Decision(node, choice, _KEPT, counts), axes=tuple(axes))

    def _may_keep(self, node: UOp, accesses: Accesses, axes: Sequence[int]) -> bool:
        """Return whether the one kernel in `accesses` can keep `node` in an array over `axes`."""
        if any(predicate is not None for predicate in accesses.values()) or node in self._checks:
            return False
        length = elements(tuple(node.shape[a] for a in axes))
        # Recomputing what fits one vector is as fast as writing and reading it.
        if length < self._prices.scalar:
            return False
        (group, _), *_ = accesses
        most = ROWS_BYTES if group.contractions else LOCAL_BYTES
        return group.held_bytes + length * local_itemsize(node.dtype) <= most

    def _kept_row(self, node: UOp, accesses: Accesses, traffic: float) -> FusionDecision | None:
        """Decide whether a contraction that reads `node` row by row keeps each row in an array.

        The kernel fills the array before it computes the results of the row. So each element of
        `node` is computed as often as for a buffer, and only a row has to fit a cache. Return None
        if a buffer is cheaper, or if no array is possible.
        """
        ((group, index),) = accesses
        if group.kind != "map" or not group.inside_contraction(index):
            return None
        axes = group.row(index, node.shape)
        if axes is None or axes[-1] != innermost(node, self._orders.get(node)):
            return None
        if not self._may_keep(node, accesses, axes):
            return None
        # Multiplying narrow values as they are needs packed copies of a stored value.
        spared = self._prices.spared(node.dtype) * group.evaluations(index)
        cost = self._keeping(node, group, axes) + spared
        long = elements(tuple(node.shape[a] for a in axes)) >= LONG_ROW[self._prices.few_registers]
        inner = tileability.made_of(node)
        if inner and tileability.wants_panels(group, self._orders):
            return None
        for x in inner:
            cost += self._prices.traffic(tileability.turned(x, self._orders))
            cost += _FUSION_SLOWDOWN[long] * elements(x.shape) * self._work[x]
        if traffic < cost:
            return None
        why = Decision(node, "local", _ROW, (cost, traffic))
        return FusionDecision("local", why=why, axes=(*axes,))

    def _kept_sums(self, node: UOp, accesses: Accesses) -> FusionDecision | None:
        """Decide whether a kernel that uses rows of a contraction in several passes keeps them.

        Each row is then computed once, into a local array, so all passes use the same sums. Return
        None if a buffer is cheaper, or if no array is possible.
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
        why = Decision(node, "local", _ROW, (cost, traffic))
        return FusionDecision("local", why=why, axes=(*axes,))

    def _recomputed_rows(self, node: UOp, accesses: Accesses) -> FusionDecision | None:
        """Decide whether several kernels each recompute rows of `node`, to save a buffer.

        Return None if the buffer is small enough, or if one of the kernels cannot.
        """
        nbytes = elements(node.shape) * node.dtype.itemsize
        groups = dict.fromkeys(group for group, _ in accesses)
        max_buffer_bytes = self._prices.max_buffer_bytes
        full = any(group.size >= MOST_WRITTEN for group in groups)
        if len(groups) < 2 or nbytes <= max_buffer_bytes or full or not self._may_repeat(node):
            return None
        repeated = (len(groups) - 1) * elements(node.shape) * self._work[node]
        traffic = self._prices.byte(nbytes) * (2 + len(groups)) * nbytes
        # The further the buffer exceeds the limit, the more work it is worth to avoid it.
        if repeated > traffic * _OVERSIZE_PRICE * nbytes / max_buffer_bytes:
            return None
        array_axes: dict[Group, tuple[int, ...]] = {}
        for group in groups:
            own = {key: predicate for key, predicate in accesses.items() if key[0] is group}
            axes = self._row_of(node, group, own)
            if axes is None:
                return None
            array_axes[group] = axes
        why = Decision(node, "local", _RECOMPUTED, (nbytes, repeated, traffic))
        return FusionDecision("local", why=why, array_axes=array_axes)

    def _may_repeat(self, node: UOp) -> bool:
        """Return whether `node` checks no index, and every kernel computes the same bits for it."""
        if node in self._checks:
            return False
        if not depends_on_order(node):
            return True
        return elements(tuple(node.src[0].shape[a] for a in node.arg[1])) <= IN_ORDER

    def _row_of(self, node: UOp, group: Group, own: Accesses) -> tuple[int, ...] | None:
        """Return the axes of a local array in which `group` keeps a row of `node`.

        Return () if `group` needs no array, None if it cannot compute the rows itself.
        """
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
        others = (r for r in group.loops if all(r not in group.ranges(i) for i in indices))
        reread_bytes = length * math.prod(r.src[0].vmax for r in others) * node.dtype.itemsize
        # Rows may be traversed more often if the buffer they save is larger.
        nbytes = elements(node.shape) * node.dtype.itemsize
        most = self._prices.max_reread_bytes * max(1, nbytes // self._prices.max_buffer_bytes)
        return tuple(axes) if reread_bytes < most else None

    def _keeping(self, node: UOp, group: Group, axes: Sequence[int]) -> float:
        """Return the cycles to write and read each row of `node` in a local array over `axes`."""
        length = elements(tuple(node.shape[a] for a in axes))
        nbytes = length * local_itemsize(node.dtype)
        rows = elements(node.shape) // max(1, length)
        near = self._prices.byte(_TILE * (group.held_bytes + nbytes))
        return rows * (near * 4 * nbytes + self._prices.loop)

    @cached_property
    def _near(self) -> Mapping[UOp, float]:
        """Cycles per element of each node, if kernels keep values that several passes use."""
        return self._prices.work_of(self._order, self._forced, kept=True).cycles

    @cached_property
    def _checks(self) -> set[UOp]:
        """Nodes that check an index, or have an operand without a buffer that checks one."""
        found = {n for n in self._order if n.op is Op.BOUND}
        for node in self._order if found else ():
            if any(s in found and s not in self._forced for s in node.src):
                found.add(node)
        return found

    def _repeated(self, node: UOp, total: int) -> float:
        """Return the cycles that are wasted if `total` elements of `node` are computed."""
        if node.op is Op.CAT:
            # A select computes all operands for each element.
            return sum(max(0, total - elements(s.shape)) * self._work[s] for s in node.src)
        return max(0, total - elements(node.shape)) * self._work[node]

    def _outside_vectors(self, node: UOp, accesses: Accesses) -> float:
        """Return the cycles that an expensive loop-invariant function wastes.

        If the function is invariant in the innermost (vectorized) loop, it is computed before that
        loop, in scalar code. This code overlaps with the loop, so it costs only the time by which
        it exceeds the loop. If the function varies with the innermost loop but not with an outer
        one, each iteration of the outer loop computes it again. For a cheap function the result is
        0, because a few multiplications do not justify a buffer.
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
        """Return whether `node` contains a reduction without a buffer, or too many nodes."""
        stack, seen = [node], {node}
        while stack:
            x = stack.pop()
            if x.op is Op.REDUCE_AXIS or len(seen) > _MOST_SEEN:
                return True
            if x.op is not Op.BUFFER and (x is node or x not in self._forced):
                stack += [s for s in x.src if s not in seen]
                seen.update(x.src)
        return False

    def _copied(self, node: UOp, accesses: Accesses) -> FusionDecision | None:
        """Decide whether a contraction reads a copy of `node` in another memory order.

        A contraction that fills a local array row by row does not pack its operands into panels.
        So an operand in the wrong order is copied once.
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
                return FusionDecision("global", why=Decision(node, "global", grounds))
            wanted = group.vectors if stored else group.vectors & group.filling
            along = [a for a, i in enumerate(index) if i in wanted]
            if along and self._in_blocks(node, group, index, index[along[0]]):
                continue
            lying = innermost(node, None), tileability.lying_along(node, self._orders)
            if along and along[0] not in lying:
                grounds = "laid out for the contraction that reads it"
                why = Decision(node, "global", grounds)
                order = (*(a for a in range(len(index)) if a != along[0]), along[0])
                exempt = frozenset(
                    key for key in accesses if stored and key[1][along[0]] not in key[0].vectors
                )
                return FusionDecision("global", order=order, why=why, exempt_uses=exempt)
        return None

    def _in_blocks(self, node: UOp, group: Group, index: Index, filled: UOp) -> bool:
        """Return whether `group` fills an array in blocks of rows, with one row per vector lane."""
        row = group.row_around(index, filled) if filled in group.filling else None
        if row is None or any(r.src[0].op is not Op.CONST for r in (row, filled)):
            return False
        sizes = row.src[0].arg, filled.src[0].arg
        few = self._prices.few_registers
        return bool(row_blocks(*sizes, self._prices.lanes(node.dtype), few_registers=few))

    def _converts(self, node: UOp) -> bool:
        """Return whether a contraction converts its operand as `node` does, or `node` is free."""
        if node.op is not Op.CAST:
            return node.op is Op.BITCAST
        before, after = node.src[0].dtype, node.dtype
        alike = before.is_float if after.is_float else self._prices.multiplies(before)
        return before.itemsize < after.itemsize <= 4 and alike

    # Kernels that store several values

    def _host(self, node: UOp, accesses: Accesses) -> tuple[Group, Index] | None:
        """Return a group that computes `node` element by element in any case and can store it."""
        if node.op in (Op.SCATTER, Op.CAT, Op.CALL, Op.REGION):
            return None
        seen: dict[Group, list[Index]] = {}
        for group, index in accesses:
            seen.setdefault(group, []).append(index)
        for group, (index, *others) in seen.items():
            if others or not self._can_host(node, group, index):
                continue
            # The other readers run after this group, so it must not depend on them.
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
        # Stores from inside loops too short for vectors cost more than they save.
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
    """Return whether `group` uses `node` at `index` in a contraction, or in a sum of integers."""
    whole = node.dtype.is_int and group.inside_reduction(index)
    return whole or group.inside_contraction(index)
