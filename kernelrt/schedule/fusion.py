"""Which values get a buffer and which kernels store them, decided by counted work and bytes.

The graph is walked once, consumers first. By the time a node is visited it is known in which
kernels and at which indices its value is wanted, so how often it would be computed if it were
inlined there can be counted, and compared with what a buffer costs. There are three outcomes:

- inline: the value is computed wherever it is wanted;
- stored by a kernel that wants it element by element anyway (so that a weight's gradient, its
  moments and its new value are one pass, and so are an activation and what it is made from);
- stored by a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, substitute, toposort
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.origin import Origin, resolve, spread
from kernelrt.ir.shape import as_uop
from kernelrt.ir.terms import linear
from kernelrt.schedule.cost import (
    FREE,
    MOST_WRITTEN,
    SHORT_LOOP,
    Prices,
    contraction_reuse,
    elements,
    written,
)
from kernelrt.schedule.gates import conjuncts
from kernelrt.schedule.groups import Group
from kernelrt.schedule.indexing import Index, Indexer, Order
from kernelrt.schedule.layout import innermost, is_row_major, preferred_orders
from kernelrt.schedule.types import Decision

if TYPE_CHECKING:
    from kernelrt.device.spec import DeviceSpec

__all__ = ["Fusion", "fuse"]

#: Ops that have a buffer by their nature.
_STORED = frozenset({Op.CONTIGUOUS, Op.SCATTER_ADD})
#: Reductions to this many elements or fewer cannot keep several cores busy.
_FEW = 16
#: Uses of an element by a contraction from which a copy in a better order pays.
_REUSE = 8

_Accesses = Collection[tuple[Group, Index]]
#: The conditions under which a value is wanted, each once; None is always true.
_Gates = dict["UOp | None", None]
_Wishes = dict[tuple[Group, Index], _Gates]
_ALWAYS: _Gates = {None: None}
_COUNTED = "{:.3g} evaluations of {} elements: {:.3g} cycles to repeat, {:.3g} to store"


@dataclass(slots=True)
class Fusion:
    """What the walk decided.

    Attributes
    ----------
    groups : list of Group
        Kernels, producers before consumers.
    home : dict
        Stored node -> the group at whose end it is complete.
    orders : dict
        Stored nodes that are not row-major -> their axes, outermost first.
    decisions : list of Decision
        For the user who asks why.
    """

    groups: list[Group] = field(default_factory=list)
    home: dict[UOp, Group] = field(default_factory=dict)
    orders: dict[UOp, Order] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)


def fuse(
    wanted: Sequence[UOp],
    committed: Mapping[UOp, Sequence[UOp]],
    indexer: Indexer,
    device: DeviceSpec,
) -> Fusion:
    """Decide for every node below `wanted` whether it gets a buffer.

    Parameters
    ----------
    wanted : sequence of UOp
        Nodes that must have one (without reshapes on top).
    committed : mapping
        Those of them that are written to lasting state -> the BUFFERs there.
    indexer : Indexer
        Index arithmetic.
    device : DeviceSpec
        What the kernels are for.
    """
    return _Walk(wanted, committed, indexer, Prices(device)).run()


def _rounds(node: UOp) -> bool:
    """Whether what a reduction comes to depends on the order in which it goes."""
    return node.dtype.is_float and node.arg[0] in (Op.ADD, Op.MUL)


def _as_they_are(wishes: _Wishes) -> _Wishes:
    """`wishes` in terms of the groups as they are now."""
    for group, _ in wishes:
        if group.now() is not group:
            break
    else:
        return wishes
    out: _Wishes = {}
    for (group, index), gates in wishes.items():
        given = out.setdefault((group.now(), group.renamed(index)), {})
        for gate in gates:
            given[gate if gate is None else group.renamed((gate,))[0]] = None
    return out


class _Walk:
    def __init__(
        self,
        wanted: Sequence[UOp],
        committed: Mapping[UOp, Sequence[UOp]],
        indexer: Indexer,
        prices: Prices,
    ) -> None:
        self._indexer = indexer
        self._prices = prices
        self._order = list(toposort(wanted))
        spread(self._order)
        self._origins: dict[int, Origin] = {}
        self._places: dict[tuple[int, ...], Origin] = {}
        self._said: dict[Origin, Origin] = {}
        self._hosted: tuple[UOp, tuple[Group, Index] | None] | None = None
        self._committed = committed
        self._forced = set(wanted) | {n for n in self._order if n.op in _STORED}
        self._work, self._last = prices.work_of(self._order, self._forced)
        self._row_major = {n for n in self._forced if n.op is not Op.CONTIGUOUS} | set(wanted)
        self._orders = preferred_orders(self._order, self._row_major, indexer)
        self._wishes: dict[UOp, _Wishes] = {}
        self._groups: list[Group] = []
        self._home: dict[UOp, Group] = {}
        self._decisions: list[Decision] = []
        self._ranks: dict[Group, int] = {}
        self._varying: dict[Index, frozenset[UOp]] = {}

    def run(self) -> Fusion:
        for node in reversed(self._order):
            if node not in self._wishes and node not in self._forced:
                continue
            accesses = _as_they_are(self._wishes.pop(node, {}))
            if not elements(node.shape):
                continue
            if len(accesses) > 1:
                if node.op is Op.BUFFER:
                    self._share_input(node, accesses)
                elif self._work[node] >= self._prices.worth_storing(node):
                    self._share_value(node, accesses)
                accesses = _as_they_are(accesses)
            self._cover(node, accesses)
            if node.op is Op.BUFFER:
                continue
            if self._repacked(node, accesses):
                self._store(node, accesses, alone=True)
            elif self._gets_buffer(node, accesses):
                self._store(node, accesses)
            else:
                for (group, index), gates in accesses.items():
                    self._descend(node, group, index, gates)
        home = {node: group.now() for node, group in self._home.items()}
        orders = {node: order for node, order in self._orders.items() if node in home}
        return Fusion(self._in_order(), home, orders, self._decisions)

    def _cover(self, node: UOp, accesses: _Wishes) -> None:
        """Find the one condition under which `node` is computed, wherever there is one.

        Conditions that are read from data are known to lowering alone: these stay apart.
        """
        for (group, index), gates in accesses.items():
            if gates is _ALWAYS or None in gates:
                group.gates[node, index] = None
                accesses[group, index] = _ALWAYS
                continue
            needed = dict.fromkeys(self._indexer.needed(gate, index) for gate in gates)
            if None in needed:
                whole = None
            elif any(gate is not None and self._of_data(gate) for gate in needed):
                accesses[group, index] = needed
                group.apart |= {(node, index)}
                continue
            else:
                whole = self._indexer.either(needed)
            group.cover(node, index, whole, self._indexer)
            accesses[group, index] = {whole: None}

    def _of_data(self, gate: UOp) -> bool:
        return any(n.op is Op.LOAD for part in conjuncts(gate) for n in toposort([part]))

    def _in_order(self) -> list[Group]:
        """The groups, each after those that it needs."""
        out: dict[Group, None] = {}
        for last in reversed(self._groups):
            stack = [(last.now(), False)]
            while stack:
                group, ready = stack.pop()
                if ready:
                    out[group] = None
                elif group not in out:
                    stack.append((group, True))
                    needed = {g.now(): None for g in sorted(group.needs, key=self._rank)}
                    stack.extend((g, False) for g in needed if g not in out)
        return list(out)

    def _rank(self, group: Group) -> int:
        if len(self._ranks) < len(self._groups):
            self._ranks = {g: k for k, g in enumerate(self._groups)}
        return self._ranks[group]

    # The decision

    def _gets_buffer(self, node: UOp, accesses: _Accesses) -> bool:
        if node in self._forced:
            return True
        if node.op in FREE:
            return False
        for group, _ in accesses:
            if group.size >= MOST_WRITTEN:
                self._note(node, "global", "the kernel that reads it is full")
                return True
        if self._work[node] == 0:
            return False
        refusal = self._refusal(node, accesses)
        if refusal is not None:
            self._note(node, "global", refusal)
            return True
        return self._cheaper_stored(node, accesses)

    def _refusal(self, node: UOp, accesses: _Accesses) -> str | None:
        """A reason for a buffer that no count outweighs."""
        if node.op is Op.BOUND and any(group.targets for group, _ in accesses):
            return "a failing check must come before a commit"
        if node.op is not Op.REDUCE_AXIS:
            return None
        if _rounds(node) and len(accesses) > 1:
            return "two loops would add in different orders, and round differently"
        if contraction_reuse(node):
            if any(group.inside_reduction(index) for group, index in accesses):
                return "a contraction inside another reduction's loop"
            if any(group.contractions - {(node, index)} for group, index in accesses):
                return "one contraction a kernel"
            if any(g.evaluations(index) < elements(g.shape) for g, index in accesses):
                return "a contraction under more loops than its own"
            if not all(self._runs_along(node, group, index) for group, index in accesses):
                return "a contraction along another axis than its kernel"
        elif self._is_long(node):
            for group, index in accesses:
                if group.hoisted(index) and not group.inside_reduction(index):
                    return "a long reduction to few elements, used by many"
        return None

    def _runs_along(self, node: UOp, group: Group, index: Index) -> bool:
        """Whether neighbours in the stores of `group` are neighbours in a contraction."""
        order = self._orders.get(node)
        if order is None and group.order == tuple(range(len(group.shape))):
            return True
        axis = innermost(node, order)
        if axis is None or not group.loops:
            return True
        return linear(index[axis])[0].get(group.loops[-1]) == 1

    def _repacked(self, node: UOp, accesses: _Accesses) -> bool:
        """Whether a contraction reads `node` so that a copy in another order pays."""
        if node.op not in MOVEMENT or node in self._forced:
            return False
        stored = node.src[0].op is Op.BUFFER
        scattered = node.op is Op.RESHAPE and node.src[0] in self._orders
        if not stored and (not scattered or node in self._orders):
            return False
        count = elements(node.shape)
        for group, index in accesses:
            if not group.inside_contraction(index) or group.evaluations(index) < _REUSE * count:
                continue
            if scattered:
                self._note(node, "global", "row-major for the contraction that reads it")
                return True
            along = [a for a, i in enumerate(index) if i in group.vectors]
            if along and along[0] != innermost(node, None):
                rest = (a for a in range(len(index)) if a != along[0])
                self._orders[node] = (*rest, along[0])
                self._note(node, "global", "laid out for the contraction that reads it")
                return True
        return False

    def _is_long(self, node: UOp) -> bool:
        count = elements(node.shape)
        return count <= _FEW and self._work[node] * count >= self._prices.parallel

    def _cheaper_stored(self, node: UOp, accesses: _Accesses) -> bool:
        """Compare repeated work with the traffic of a buffer."""
        count = elements(node.shape)
        total = sum(group.evaluations(index) for group, index in accesses)
        repeated = self._wasted(node, total)
        if repeated == 0:
            return False
        if all(not group.ranges(index) for group, index in accesses):
            repeated *= self._prices.scalar
        nbytes = count * node.dtype.itemsize
        apart = len({group for group, _ in accesses}) > 1 or any(
            group.inside_contraction(index) for group, index in accesses
        )
        per_byte = self._prices.byte(nbytes) if apart else self._prices.row_byte
        # Written (and fetched before that), then read; reads past the second find it in cache.
        stored = per_byte * (2 + min(total / count, 2)) * nbytes
        host = self._host(node, accesses)
        self._hosted = (node, host)
        if host is None and node not in self._last:
            stored += self._prices.launch
        choice = "global" if repeated > stored else "inline"
        self._note(node, choice, _COUNTED, (total, count, repeated, stored))
        return repeated > stored

    def _wasted(self, node: UOp, total: int) -> float:
        """Work beyond what is needed, when `node` is computed `total` times."""
        if node.op is Op.CAT:
            # A select computes every part for every element.
            return sum(max(0, total - elements(s.shape)) * self._work[s] for s in node.src)
        return max(0, total - elements(node.shape)) * self._work[node]

    def _note(
        self, node: UOp, choice: str, grounds: str, counts: tuple[float, ...] = ()
    ) -> None:
        self._decisions.append(Decision(node, choice, grounds, counts))

    # Kernels that store several values

    def _host(self, node: UOp, accesses: _Accesses) -> tuple[Group, Index] | None:
        """A group that computes `node` element by element anyway and can store it too."""
        if node.op in (Op.SCATTER_ADD, Op.CAT):
            return None
        long = node.op is Op.REDUCE_AXIS and self._is_long(node)
        seen: dict[Group, list[Index]] = {}
        for group, index in accesses:
            seen.setdefault(group, []).append(index)
        for group, indices in seen.items():
            order = group.walks(indices[0], node.shape)
            if len(indices) > 1 or order is None:
                continue
            if node in self._row_major and not is_row_major(node, order):
                continue
            if long and group.hoisted(indices[0]):
                continue
            # Stored from inside loops too short for vectors it would cost more than it saves.
            if elements(node.shape) < elements(group.shape) < SHORT_LOOP * elements(node.shape):
                continue
            if group.size >= MOST_WRITTEN or (group.targets and node.op is Op.BOUND):
                continue
            if group.checks and node in self._committed:
                continue
            if contraction_reuse(node) and (
                group.contractions - {(node, indices[0])}
                or not self._runs_along(node, group, indices[0])
            ):
                continue
            # The other readers come after this group; it must not come after them.
            if not group.reaches(set(seen) - {group}):
                return group, indices[0]
        return None

    def _share_value(self, node: UOp, accesses: _Accesses) -> None:
        """Merge independent groups of one iteration space that want `node` at one index."""
        by_index: dict[tuple[Index, Index], list[Group]] = {}
        for group, index in accesses:
            if group.kind == "map" and not group.inside_reduction(index):
                by_index.setdefault((index, group.natural), []).append(group)
        for groups in by_index.values():
            self._unite(node, groups, "wanted at the same elements")

    def _share_input(self, node: UOp, accesses: _Accesses) -> None:
        """Merge independent groups that walk a large input in the same way."""
        if elements(node.shape) * node.dtype.itemsize < self._prices.shared_bytes:
            return
        alike: dict[tuple[UOp, Index], list[Group]] = {}
        for group, (index,) in accesses:
            if group.kind == "map":
                inner = sorted(group.ranges((index,)) - set(group.natural), key=lambda r: r.arg)
                plain = {r: r.replace(arg=1 << 24 | k) for k, r in enumerate(inner)}
                (walk,) = substitute([index], plain)
                alike.setdefault((walk, group.natural), []).append(group)
        for groups in alike.values():
            self._unite(node, groups, "walked in the same way")

    def _unite(self, node: UOp, groups: Sequence[Group], reason: str) -> None:
        first = groups[0].now()
        below: set[Group] | None = None
        barren: set[Group] = set()
        for other in (g.now() for g in groups[1:]):
            if other is first or not self._may_unite(first, other):
                continue
            if below is None:
                below, barren = first.below(), set()
            if other not in below and not other.reaches({first}, barren):
                first.absorb(other, self._indexer)
                self._note(node, "merge", f"{reason} by two kernels")
                below = None

    def _may_unite(self, a: Group, b: Group) -> bool:
        """Whether one kernel may compute both, if neither needs the other."""
        return (
            a.shape == b.shape
            and a.natural == b.natural
            and a.size + b.size <= MOST_WRITTEN
            and len(a.contractions | b.contractions) <= 1
            and not (a.checks and b.targets)
            and not (b.checks and a.targets)
        )

    # The walk

    def _store(self, node: UOp, accesses: _Accesses, *, alone: bool = False) -> None:
        """Give `node` a buffer, and a kernel that computes it there."""
        hosted, host = self._hosted or (None, None)
        if alone:
            host = None
        elif hosted is not node:
            host = self._host(node, accesses)
        if host is not None:
            group, index = host
            group.roots[node] = index
            order = group.walks(index, node.shape)
            assert order is not None
            self._orders.pop(node, None)
            if not is_row_major(node, order):
                self._orders[node] = order
            self._home[node] = group
            self._note(node, "merge", "stored by a kernel that computes it element by element")
            group.targets |= frozenset(self._committed.get(node, ()))
            group.gates[node, index] = None
            self._descend(node, group, index, _ALWAYS)
        else:
            if node in self._forced:
                self._note(node, "global", "asked for")
            self._start(node)
        home = self._home[node]
        for group, _ in accesses:
            if group is not home:
                group.needs.add(home)

    def _start(self, node: UOp) -> None:
        """A kernel, or two for SCATTER_ADD, that computes `node` into its buffer."""
        kinds = {Op.SCATTER_ADD: ("add", "init"), Op.CAT: ("cat",)}.get(node.op, ("map",))
        for kind in kinds:
            shape = node.src[1].shape if kind == "add" else node.shape
            if elements(shape) == 0:
                continue
            order = self._orders.get(node, ()) if kind == "map" else ()
            targets = frozenset(self._committed.get(node, ()))
            group = Group(shape, kind, targets=targets, order=order, varying=self._varying)
            group.roots[node] = group.natural
            self._credit(node, group)
            self._groups.append(group)
            if node in self._home:
                self._home[node].needs.add(group)
            else:
                self._home[node] = group
            if kind == "map":
                self._descend(node, group, group.natural, _ALWAYS)
            elif kind == "cat":
                for part, index in zip(node.src, group.split(node), strict=True):
                    self._wish(part, (group, index))
            else:
                for operand in node.src[1:] if kind == "add" else node.src[:1]:
                    self._wish(operand, (group, group.natural))

    def _credit(self, node: UOp, group: Group) -> None:
        """Note whose work `node` is among what `group` computes."""
        raw = node.origin
        if raw is not None:
            origin = self._origins.get(id(raw))
            if origin is None:
                # Each node has a tuple of its own, most of which say the same.
                code, offset, method, caller, scope, _, backward = raw
                said = (id(code), offset, id(method), id(caller), id(scope), backward)
                origin = self._places.get(said)
                if origin is None:
                    origin = resolve(raw)
                    # One object for all that say the same: comparing it is quick.
                    origin = self._places[said] = self._said.setdefault(origin, origin)
                self._origins[id(raw)] = origin
            group.origins[origin] = None

    def _wish(self, node: UOp, key: tuple[Group, Index], gates: _Gates = _ALWAYS) -> None:
        wishes = self._wishes.get(node)
        if wishes is None:
            self._wishes[node] = {key: gates}
            return
        known = wishes.get(key)
        if known is None or gates is _ALWAYS:
            wishes[key] = gates
        elif known is not _ALWAYS:
            wishes[key] = {**known, **gates}

    def _descend(self, node: UOp, group: Group, index: Index, gates: _Gates) -> None:
        """Pass the wish for `node` at `index` on to its operands."""
        op = node.op
        if op not in FREE:
            group.size += written(node) * len(gates)
            self._credit(node, group)
        if op in ALU or op is Op.CONTIGUOUS:
            key = (group, index)
            for s in node.src:
                self._wish(s, key, gates)
        elif op is Op.BOUND:
            group.checks = True
            self._wish(node.src[0], (group, index), gates)
        elif op in MOVEMENT:
            inner, condition = self._indexer.step(node, index)
            self._wish(node.src[0], (group, inner), self._narrowed(gates, condition))
        elif op is Op.REDUCE_AXIS:
            self._descend_reduction(node, group, index, gates)
        elif op is Op.GATHER:
            for s in node.src[1:]:
                self._wish(s, (group, index), gates)
            self._wish(node.src[0], (group, self._opaque(node, group, index)), gates)
        elif op is Op.CAT:
            parts = self._indexer.parts(node, index)
            for s, (inner, condition) in zip(node.src, parts, strict=True):
                self._wish(s, (group, inner), self._narrowed(gates, condition))

    def _narrowed(self, gates: _Gates, condition: UOp | None) -> _Gates:
        if condition is None:
            return gates
        return dict.fromkeys(self._indexer.both(gate, condition) for gate in gates)

    def _descend_reduction(
        self, node: UOp, group: Group, index: Index, gates: _Gates
    ) -> None:
        axes = node.arg[1]
        dims = node.src[0].shape
        own = group.loops_along(d for a, d in enumerate(dims) if a in axes)
        loops, outer = iter(own), iter(index)
        inner = tuple(next(loops if a in axes else outer) for a in range(len(dims)))
        group.enter(node, index, own, contraction=contraction_reuse(node) > 0)
        along = innermost(node, self._orders[node]) if node in self._orders else None
        if along is not None and index[along].op is Op.RANGE:
            group.vectors |= {index[along]}
        self._wish(node.src[0], (group, inner), gates)

    def _opaque(self, node: UOp, group: Group, index: Index) -> Index:
        """Stand-ins for indices that are read from data: unknown, varying with `index`."""
        varying = tuple(sorted(group.ranges(index), key=lambda r: int(r.arg)))
        return tuple(
            UOp(
                Op.BOUND, dt.int64,
                (UOp(Op.LOAD, dt.int64, varying, (tensor, index)), as_uop(dim)),
            )
            for tensor, dim in zip(node.src[1:], node.src[0].shape, strict=True)
        )  # fmt: skip
