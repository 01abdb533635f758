"""Fusion: chooses the values that get a buffer, and the kernels that store them.

Fusion traverses the graph once, consumers first. When it visits a node, it knows all uses of the
node's value: the kernels, the indices and the predicates. From the cost of these uses,
:mod:`.decide` decides how the value is computed. :mod:`.demand` records which operands are needed
at which indices. One kernel may store several values of the same shape. For example, one pass
computes a weight's gradient, its Adam moments and its new value, and one pass computes an
activation and its operand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.local import LOCAL_BYTES
from kernelrt.ir.origin import Origin, resolve, spread
from kernelrt.ir.shape import is_static, total
from kernelrt.schedule.fuse.decide import Decider, FusionDecision
from kernelrt.schedule.fuse.demand import POINTWISE, Value, demand, picks_in, weakened
from kernelrt.schedule.fuse.fusion_cost import (
    FREE,
    MOST_WRITTEN,
    Prices,
    contraction_reuse,
    elements,
    strip,
    written,
)
from kernelrt.schedule.fuse.fusion_groups import Group
from kernelrt.schedule.fuse.index_maps import ZERO, Index, Indexer, Order
from kernelrt.schedule.rewrite.array_layouts import is_row_major, preferred_orders
from kernelrt.schedule.rewrite.axis_maps import innermost
from kernelrt.schedule.types import Decision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import Dim

__all__ = ["Fusion", "fuse"]

#: Ops whose results always have a buffer.
_STORED = frozenset({Op.CONTIGUOUS, Op.SCATTER, Op.CALL, Op.REGION})
#: Ops whose operands must have a buffer, too.
_GIVEN_MEMORY = frozenset({Op.CALL, Op.REGION})
#: Predicates of the uses of a value, without duplicates; None is always true.
_Predicates = dict["UOp | None", None]
_Requests = dict[tuple[Group, Index], _Predicates]
#: One predicate that covers all uses of a value in a group at an index.
_Covers = dict[tuple[Group, Index], "UOp | None"]
_ALWAYS: _Predicates = {None: None}
_PLAIN = Value(None)
#: Maximum number of CAT operands that one kernel stores. LLVM's time for a block of stores grows
#: with the square of their number: 1,000 operands of 3 floats take 5.2 s in one kernel.
MOST_PARTS: Final = 32


@dataclass(slots=True)
class Fusion:
    """Result of fusion.

    Attributes
    ----------
    groups : list of Group
        Kernels, producers before consumers.
    home : dict
        Maps each stored node to the group after which all of the node is stored.
    orders : dict
        Axes, outermost first, of stored nodes that are not row-major.
    decisions : list of Decision
        Decisions with reasons, for users.
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
        Nodes that must have a buffer; none is a RESHAPE.
    committed : mapping
        BUFFERs of lasting state, by the node that is written to them.
    indexer : Indexer
        Index arithmetic.
    device : DeviceSpec
        Target of the kernels.
    """
    return _Traversal(wanted, committed, indexer, Prices(device)).run()


def called_with(nodes: Iterable[UOp]) -> set[UOp]:
    """Return the operands of routines and regions, which need row-major buffers."""
    operands = {strip(s) for node in nodes if node.op in _GIVEN_MEMORY for s in node.src}
    return {node for node in operands if node.op is not Op.BUFFER}


def _portions(cat: UOp) -> Iterator[list[tuple[UOp, Dim]]]:
    """Yield lists of operands of `cat`, with offsets. Each list needs at most MOST_PARTS stores."""
    portion: list[tuple[UOp, Dim]] = []
    start: Dim = 0
    stored = 0
    for part in cat.src:
        if elements(part.shape):
            if stored == MOST_PARTS:
                yield portion
                portion, stored = [], 0
            stored += 1
        portion.append((part, start))
        start = total((start, part.shape[cat.arg]))
    yield portion


def _just(predicate: UOp | None) -> _Predicates:
    return _ALWAYS if predicate is None else {predicate: None}


def _current(requests: _Requests) -> _Requests:
    """Return `requests`, but replace merged groups and their loops by the current ones."""
    for group, _ in requests:
        if group.now() is not group:
            break
    else:
        return requests
    out: _Requests = {}
    for (group, index), predicates in requests.items():
        given = out.setdefault((group.now(), group.renamed(index)), {})
        for predicate in predicates:
            given[group.renamed_gate(predicate)] = None
    return out


class _Traversal:
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
        self._origins_of_code: dict[tuple[int, ...], Origin] = {}
        self._said: dict[Origin, Origin] = {}
        self._committed = committed
        called = called_with(self._order)
        self._forced = set(wanted) | called | {n for n in self._order if n.op in _STORED}
        work = prices.work_of(self._order, self._forced)
        self._work = work.cycles
        row_major = {n for n in self._forced if n.op is not Op.CONTIGUOUS} | set(wanted) | called
        self._orders = preferred_orders(self._order, row_major, indexer)
        self._decider = Decider(
            prices, work, self._forced, row_major, self._orders, committed, self._order
        )
        self._requests: dict[UOp, _Requests] = {}
        self._groups: list[Group] = []
        self._runs: dict[object, Group] = {}
        self._home: dict[UOp, Group] = {}
        self._decisions: list[Decision] = []
        self._ranks: dict[Group, int] = {}
        self._varying: dict[Index, frozenset[UOp]] = {}
        self._picking = any(n.op is Op.GATHER for n in self._order)

    def run(self) -> Fusion:
        prices = self._prices
        for node in reversed(self._order):
            if node not in self._requests and node not in self._forced:
                continue
            accesses = _current(self._requests.pop(node, {}))
            if not elements(node.shape):
                continue
            if len(accesses) > 1:
                if node.op is Op.BUFFER:
                    self._share_input(node, accesses)
                elif self._work[node] >= prices.worth_storing(node):
                    self._share_value(node, accesses)
                accesses = _current(accesses)
            covers = {
                key: None if predicates is _ALWAYS else self._cover(node, key, predicates)
                for key, predicates in accesses.items()
            }
            if node.op is Op.BUFFER:
                self._read(node, covers)
                continue
            decision = self._decider.decide(node, covers)
            if decision.why is not None:
                self._decisions.append(decision.why)
            for group, index in decision.exempt_uses:
                self._descend(node, group, index, covers.pop((group, index)))
            if decision.choice == "global":
                self._store(node, covers, decision)
            elif decision.choice == "local":
                self._hold(node, covers, decision)
            else:
                for (group, index), predicate in covers.items():
                    self._descend(node, group, index, predicate)
        self._join_records()
        home = {node: group.now() for node, group in self._home.items()}
        orders = {node: order for node, order in self._orders.items() if node in home}
        return Fusion(self._in_order(), home, orders, self._decisions)

    def _join_records(self) -> None:
        """Add the records of merged groups to the merged group, consumers first."""
        joined: dict[Group, None] = {}
        for group in self._groups:
            now = group.now()
            if now is not group:
                now.take(group, self._indexer)
                joined[now] = None
        if joined:
            rank = {node: k for k, node in enumerate(self._order)}
            for group in joined:
                noted = sorted(group.values.items(), key=lambda item: -rank[item[0][0]])
                group.values = {key: value for key, value in noted if key not in group.held}

    def _cover(
        self, node: UOp, use: tuple[Group, Index], predicates: _Predicates
    ) -> UOp | None:
        """Return one predicate that covers all `predicates` of `node` at a group and index."""
        if None in predicates:
            return None
        group, index = use
        needed = [self._indexer.needed(predicate, index) for predicate in predicates]
        whole = self._indexer.covering(needed, index, node.shape, group.reducing)
        if whole is None or not self._picking:
            return whole
        # An index read under a predicate cannot be part of that predicate.
        picked = set(picks_in([whole])) - set(picks_in(index))
        circular = {p for p in picked if node in toposort([p.src[0].arg])}
        return weakened(whole, circular, self._indexer) if circular else whole

    def _in_order(self) -> list[Group]:
        """Return the groups in topological order, producers first."""
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

    def _note(self, node: UOp, choice: str, grounds: str) -> None:
        self._decisions.append(Decision(node, choice, grounds))

    # Kernels that store several values

    def _share_value(self, node: UOp, accesses: _Requests) -> None:
        """Merge independent groups with equal iteration spaces, if they use `node` at one index."""
        by_index: dict[tuple[Index, Index], list[Group]] = {}
        for group, index in accesses:
            if group.kind == "map" and not group.inside_reduction(index):
                by_index.setdefault((index, group.natural), []).append(group)
        for groups in by_index.values():
            self._unite(node, groups, "needed at the same elements")

    def _share_input(self, node: UOp, accesses: _Requests) -> None:
        """Merge independent groups that traverse a large input in the same order."""
        if elements(node.shape) * node.dtype.itemsize < self._prices.shared_bytes:
            return
        alike: dict[tuple[Index, Index], list[Group]] = {}
        for group, index in accesses:
            if group.kind == "map":
                alike.setdefault((group.walk(index), group.natural), []).append(group)
        for groups in alike.values():
            self._unite(node, groups, "traversed in the same order")

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
                first.absorb(other)
                self._note(node, "merge", f"{reason} by two kernels")
                below = None

    def _may_unite(self, a: Group, b: Group) -> bool:
        """Return whether one kernel may compute both groups, if neither depends on the other."""
        return (
            a.shape == b.shape
            and a.natural == b.natural
            and a.size + b.size <= MOST_WRITTEN
            and a.held_bytes + b.held_bytes <= LOCAL_BYTES
            and len(a.contractions | b.contractions) <= 1
            and not (a.checks and b.targets)
            and not (b.checks and a.targets)
        )

    # Traversal

    def _read(self, node: UOp, covers: _Covers) -> None:
        """Record the reads of a stored value."""
        for (group, index), predicate in covers.items():
            group.reads[node, index] = predicate

    def _vectors_along(self, node: UOp, group: Group, index: Index) -> int | None:
        """Return the axis of a reduction that vectors should run along in `group`, if known."""
        if group.fills(index):
            filled = [a for a, i in enumerate(index) if i in group.filling]
            return filled[-1] if filled else innermost(node, self._orders.get(node))
        return innermost(node, self._orders[node]) if node in self._orders else None

    def _hold(self, node: UOp, covers: _Covers, decision: FusionDecision) -> None:
        """Compute `node` once in each kernel that uses it, into a local array."""
        for group in dict.fromkeys(group for group, _ in covers):
            own = {index: predicate for (g, index), predicate in covers.items() if g is group}
            axes = decision.array_axes.get(group, decision.axes)
            if axes:
                self._descend(node, group, group.hold(node, list(own), axes), None)
            else:
                for index, predicate in own.items():
                    self._descend(node, group, index, predicate)

    def _store(self, node: UOp, covers: _Covers, decision: FusionDecision) -> None:
        """Give `node` a buffer, and a kernel that computes it."""
        if decision.order is not None:
            self._orders[node] = decision.order
        if decision.host is None:
            self._start(node)
        else:
            del covers[decision.host]
            self._add_root(node, *decision.host)
        self._read(node, covers)
        home = self._home[node]
        for group, _ in covers:
            group.needs.add(home)

    def _add_root(self, node: UOp, group: Group, index: Index) -> None:
        """Store `node` in a kernel that computes it element by element anyway."""
        order = group.walks(index, node.shape)
        assert order is not None
        self._orders.pop(node, None)
        if not is_row_major(node, order):
            self._orders[node] = order
        group.roots[node] = index
        self._home[node] = group
        self._note(node, "merge", "stored by a kernel that computes it element by element")
        group.targets |= frozenset(self._committed.get(node, ()))
        self._descend(node, group, index, None)

    def _start(self, node: UOp) -> None:
        """Start a kernel that stores `node`. A SCATTER or a long CAT gets several kernels."""
        if node.op is Op.CAT:
            for portion in _portions(node):
                if (group := self._open(node, "cat", node.shape)) is not None:
                    group.split(node.arg, portion)
                    for part, _, index in group.parts:
                        self._request(part, (group, index))
        elif node.op is Op.SCATTER:
            base, update, *indices = node.src
            for kind, operands in (("update", [update, *indices]), ("init", [base])):
                if (group := self._open(node, kind, operands[0].shape)) is not None:
                    for operand in operands:
                        self._request(operand, (group, group.natural))
        elif node.op in _GIVEN_MEMORY:
            self._start_given(node)
        elif (pad := self._separate_pad(node)) is not None:
            (inside,) = pad.src
            if (group := self._open(node, "map", inside.shape)) is not None:
                group.paddings[node] = pad
                self._request(inside, (group, group.natural))
        elif (group := self._open(node, "map", node.shape)) is not None:
            self._descend(node, group, group.natural, None)

    def _start_given(self, node: UOp) -> None:
        """Start a call or region. If another result has started it already, add `node` to it."""
        run = node.op is Op.REGION
        key = node.arg.program if run else node.arg.callee, node.src
        known = self._runs.get(key)
        if known is not None:
            known.roots[node] = (ZERO,) * len(node.shape)
            known.targets |= frozenset(self._committed.get(node, ()))
            self._add_origin(node, known)
            self._home[node] = known
        elif (group := self._open(node, "region" if run else "call", node.shape)) is not None:
            self._runs[key] = group
            group.checks = run or bool(node.arg.failure)
            for operand in map(strip, node.src):
                self._request(operand, (group, (ZERO,) * len(operand.shape)))

    def _separate_pad(self, node: UOp) -> UOp | None:
        """Return the PAD that `node` is or copies; None if its zeros need no separate STOREs."""
        pad = node.src[0] if node.op is Op.CONTIGUOUS else node
        separate = pad.op is Op.PAD and is_static(pad.shape) and node not in self._committed
        return pad if separate and elements(pad.src[0].shape) else None

    def _open(self, node: UOp, kind: str, shape: tuple[Dim, ...]) -> Group | None:
        """Start a kernel that computes `node` or a part of it; None if there are no elements."""
        if elements(shape) == 0:
            return None
        order = self._orders.get(node, ()) if kind == "map" else ()
        targets = frozenset(self._committed.get(node, ()))
        group = Group(shape, kind, targets=targets, order=order, varying=self._varying)
        group.roots[node] = group.natural
        self._add_origin(node, group)
        self._groups.append(group)
        if node in self._home:
            self._home[node].needs.add(group)
        else:
            self._home[node] = group
        return group

    def _add_origin(self, node: UOp, group: Group) -> None:
        """Record the origin of `node` among the origins of `group`."""
        raw = node.origin
        if raw is not None:
            origin = self._origins.get(id(raw))
            if origin is None:
                # Each node has its own origin tuple, but most tuples are equal.
                code, offset, method, caller, scope, _, backward = raw
                said = (id(code), offset, id(method), id(caller), id(scope), backward)
                origin = self._origins_of_code.get(said)
                if origin is None:
                    origin = resolve(raw)
                    # Use one object for equal origins, so that comparing them is fast.
                    origin = self._origins_of_code[said] = self._said.setdefault(origin, origin)
                self._origins[id(raw)] = origin
            group.origins[origin] = None

    def _request(
        self, node: UOp, key: tuple[Group, Index], predicates: _Predicates = _ALWAYS
    ) -> None:
        requests = self._requests.get(node)
        if requests is None:
            self._requests[node] = {key: predicates}
            return
        known = requests.get(key)
        if known is None or predicates is _ALWAYS:
            requests[key] = predicates
        elif known is not _ALWAYS:
            requests[key] = {**known, **predicates}

    def _descend(self, node: UOp, group: Group, index: Index, predicate: UOp | None) -> None:
        """Compute `node` at `index` in `group`, and request its operands there."""
        op = node.op
        if op not in FREE:
            group.size += written(node)
            self._add_origin(node, group)
        if op in POINTWISE:
            group.values[node, index] = _PLAIN if predicate is None else Value(predicate)
            key = (group, index)
            predicates = _just(predicate)
            for s in node.src:
                self._request(s, key, predicates)
            return
        loops: Index = ()
        if op is Op.REDUCE_AXIS:
            loops = group.enter(node, index, contraction=contraction_reuse(node) > 0)
            along = self._vectors_along(node, group, index)
            if along is not None and index[along].op is Op.RANGE:
                group.vectors |= {index[along]}
        elif op is Op.BOUND:
            group.checks = True
        value = group.values[node, index] = demand(node, index, predicate, loops, self._indexer)
        for use in value.uses:
            self._request(use.node, (group, use.at), _just(use.predicate))
