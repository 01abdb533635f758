"""Adjoints of loops and branches: loops that run backwards over the iterations.

The graph of one iteration is differentiated by the usual rules. This gives the body of the backward
loop. The forward loop stores the values that the backward body reads, one row for each iteration.
A value is recomputed instead if a few cheap operations compute it from stored values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.errors import GradientError
from kernelrt.ir import Op, UOp
from kernelrt.ir.ffi import FfiResult
from kernelrt.ir.ops import COMPARE
from kernelrt.ir.origin import adjoint
from kernelrt.ir.region import Choice, Loop, Outcome
from kernelrt.ir.shape import dim_max
from kernelrt.native.node import count_asked
from kernelrt.tensor.autograd import gradient
from kernelrt.tensor.autograd.dependence import carries_of_run, flow_of_run, value_of_run
from kernelrt.tensor.autograd.hooking import HookResults
from kernelrt.tensor.autograd.tags import Leaf, below, gradient_operands, mark, reads_of, rewritten
from kernelrt.tensor.nodes import build
from kernelrt.tensor.tracing import region_graphs
from kernelrt.tensor.tracing.region_graphs import MOVED, Slot, bare, slot
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kernelrt.tensor.tracing import batching_rules
else:
    batching_rules = Module("kernelrt.tensor.tracing.batching_rules")

__all__ = ["UNBOUNDED", "Cotangents", "Runs", "pull_run", "together"]

#: Results of a loop or branch, each with its gradient.
Cotangents = list[tuple[UOp, UOp]]
#: Operations that take no longer to compute than to store and to load their results.
_CHEAP: Final = (
    MOVED | COMPARE
    | {Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS, Op.NOT, Op.MAX, Op.MIN, Op.WHERE, Op.FMA, Op.AND,
       Op.OR, Op.XOR, Op.CAST, Op.BITCAST, Op.DETACH, Op.PAD}
)  # fmt: skip
#: Number of iterations from which on a loop counts as unbounded.
UNBOUNDED: Final = 1 << 62


def together(nodes: Iterable[UOp]) -> dict[UOp, tuple[UOp, ...]]:
    """Map each REGION node to the operands that get gradients from any result of the same run.

    Runs with a single result are left out. A run is differentiated once for all its results, so
    the backward pass must visit all results before any of these operands.
    """
    runs: dict[tuple[object, tuple[UOp, ...]], list[UOp]] = {}
    for node in nodes:
        runs.setdefault((node.arg.program, node.src), []).append(node)
    return {
        node: tuple(dict.fromkeys(s for n in values for s in gradient_operands(n)))
        for values in runs.values() if len(values) > 1 for node in values
    }  # fmt: skip


class Runs:
    """Collects the gradients of loops and branches until all results of a run are visited.

    Parameters
    ----------
    order : sequence of UOp
        The REGION nodes that gradients flow through, operands first.
    """

    def __init__(self, order: Iterable[UOp]) -> None:
        self._left: dict[tuple[object, tuple[UOp, ...]], int] = {}
        self._known: dict[tuple[object, tuple[UOp, ...]], Cotangents] = {}
        self._nodes = frozenset(order)
        for node in self._nodes:
            run = node.arg.program, node.src
            self._left[run] = self._left.get(run, 0) + 1

    def __contains__(self, node: UOp) -> bool:
        return node in self._nodes

    def shares(
        self, node: UOp, g: UOp | None, live: Collection[UOp], name: str
    ) -> list[tuple[UOp, UOp]]:
        """Return the contributions to the operands' gradients, once all results are visited.

        Earlier calls return an empty list. Call this once for each result of a run that leads to a
        leaf, even if no gradient flows into the result.
        """
        run = node.arg.program, node.src
        self._left[run] -= 1
        if g is not None:
            self._known.setdefault(run, []).append((node, g))
        given = self._known.get(run)
        if self._left[run] or not given:
            return []
        shares = pull_run(given, live, name)
        for _, share in shares:
            if share.origin is None and node.origin is not None:
                share.origin = adjoint(node.origin)
        return shares


def pull_run(given: Cotangents, live: Collection[UOp], name: str) -> list[tuple[UOp, UOp]]:
    """Return the contributions to the gradient of each operand that leads to a leaf.

    Parameters
    ----------
    given : list of (UOp, UOp)
        REGION nodes of one program over the same operands, with their gradients.
    live : collection of UOp
        Nodes that lead to a leaf.
    name : str
        Name of the called function, for errors.
    """
    node = given[0][0]
    flow = flow_of_run([n.arg for n, _ in given])
    wanted = [k for k in sorted(flow) if node.src[k] in live]
    if isinstance(node.arg.program, Loop):
        return _BackwardLoop(node.arg.program, node.src, given, wanted, name).shares()
    return _branch_gradients(node.arg.program, node.src, given, wanted, name)


def _port_gradients(
    seeds: Sequence[tuple[UOp, UOp]], ports: Sequence[UOp], name: str
) -> list[UOp | None]:
    """Return the gradient of each port, given values that read the ports, and their gradients."""
    leaves = {p: mark(p, Leaf()) for p in ports}
    roots = rewritten([value for value, _ in seeds], leaves)
    wanted = gradient.Targets(marks=frozenset(m.arg for m in leaves.values()))
    pairs = list(zip(roots, (g for _, g in seeds), strict=True))
    found = gradient.gradients(pairs, name, wanted, HookResults(create_graph=True)) if pairs else {}
    assert found is not None  # bodies have no hooks
    nodes = [found.get(m.arg) for m in leaves.values()]
    bare = iter(rewritten([n for n in nodes if n is not None], {m: p for p, m in leaves.items()}))
    return [None if n is None else next(bare) for n in nodes]


def _zeros(x: UOp) -> UOp:
    return build.full(0, x.dtype, x.shape)


def _branch_gradients(
    program: Choice, src: Sequence[UOp], given: Cotangents, wanted: Sequence[int], name: str
) -> list[tuple[UOp, UOp]]:
    """Build a branch that recomputes the chosen branch together with its derivative."""
    which, operands = src[0], src[1:]
    since = count_asked()
    ports = [program.ports[k - 1] for k in wanted]
    slopes = [slot(g.shape, g.dtype) for _, g in given]
    branches = []
    for branch in range(program.branches):
        seeds = [(n.arg.values[branch], s.node) for (n, _), s in zip(given, slopes, strict=True)]
        flown = _port_gradients(seeds, ports, name)
        _check_not_repeated([f for f in flown if f is not None], name)
        branches.append(
            [_zeros(p) if f is None else f for p, f in zip(ports, flown, strict=True)]
        )
    inside = {p: build.reshape(s, p.shape) for p, s in zip(program.ports, operands, strict=True)}
    branches = [rewritten(values, inside) for values in branches]
    pairs = [(s, g) for s, (_, g) in zip(slopes, given, strict=True)]
    found = region_graphs.choice(which, pairs, branches, since=since)
    return [
        (src[k], build.reshape(share, src[k].shape))
        for k, share in zip(wanted, found, strict=True)
    ]


def _is_ordered(node: UOp) -> bool:
    """Return whether a node is a call with pure=False, which is made once and in order."""
    return isinstance(node.arg, FfiResult) and node.arg.callee.ordered


def _check_not_repeated(flown: Sequence[UOp], name: str) -> None:
    """Raise GradientError if derivatives of a branch would repeat a call with pure=False."""
    for node in below(flown, lambda n: n.op is Op.BUFFER):
        if _is_ordered(node):
            raise GradientError(
                f"{name}: the derivative of a branch of cond or switch needs the results of "
                f"{node.arg.callee.name} again, but a function called with pure=False is not "
                "called a second time; call it before the branches, or pass pure=True"
            )


class _BackwardLoop:
    """Builder of the backward loop.

    Parameters
    ----------
    program : Loop
        Program of the forward loop.
    src : sequence of UOp
        Operands of the forward loop.
    given, name
        As in :func:`pull_run`.
    wanted : sequence of int
        Indices of the operands whose gradients are requested.
    """

    def __init__(
        self,
        program: Loop,
        src: Sequence[UOp],
        given: Cotangents,
        wanted: Sequence[int],
        name: str,
    ) -> None:
        if dim_max(program.trip_count) >= UNBOUNDED:
            raise GradientError(
                f"{name}: the gradient of a loop stores values of every iteration, but the number "
                "of iterations has no bound; pass max_steps= to while_loop, or Python numbers "
                "instead of tensors to fori_loop"
            )
        self._loop, self._src, self._given, self._name = program, src, given, name
        carried, behind = len(program.carries), len(program.carries) + program.stacked
        # Gradients flow along a carry even if its initial value needs none.
        self._carries = sorted(carries_of_run([n.arg for n, _ in given]))
        self._begins = {k for k in wanted if k < carried}
        self._slices = [k for k in wanted if carried <= k < behind]
        self._fixed = [k for k in wanted if k >= behind]

    def shares(self) -> list[tuple[UOp, UOp]]:
        """Return the gradient of each requested operand."""
        loop, src = self._loop, self._src
        since = count_asked()
        coming = {k: slot(loop.carries[k].shape, loop.carries[k].dtype) for k in self._carries}
        rows = [(n, g) for n, g in self._given if n.arg.carry < 0]
        row_slots = [slot(n.arg.each.shape, n.dtype) for n, _ in rows]
        sums = {k: slot(loop.ports[k].shape, loop.ports[k].dtype) for k in self._fixed}
        flown = self._iteration_gradients(coming, [n for n, _ in rows], row_slots, sums)
        later = self._deferred_sums(flown)
        for k in later:
            del sums[k]
        last = {n.arg.carry: g for n, g in self._given if n.arg.carry >= 0}
        news, first = [], []
        for k in self._carries:
            value = flown[k]
            shape = loop.carries[k].shape
            news.append(_zeros(coming[k].node) if value is None else build.reshape(value, shape))
            first.append(last.get(k, _zeros(coming[k].node)))
        for k, before in sums.items():
            value = flown[k]
            news.append(before.node if value is None else build.add(before.node, value))
            first.append(_zeros(before.node))
        out = [_zeros(loop.ports[k]) if (o := flown[k]) is None else o for k in self._slices]
        factors = list(dict.fromkeys(f for _, parts in later.values() for f in parts))
        slots = [*coming.values(), *sums.values()]
        inside = {s.memory for s in (*slots, *row_slots)}
        back = [f for f in factors if not self._is_forward(f, inside)]
        news, out, kept = self._with_stored(news, [*out, *back], inside)
        finals, stacks = region_graphs.loop(
            list(zip(slots, first, news, strict=True)),
            [*zip(row_slots, (g for _, g in rows), strict=True), *kept],
            out, loop.trip_count, since=since, number=self._number, count=self._count(),
            reverse=not loop.reverse,
        )  # fmt: skip
        found = [f for f in zip(self._carries, finals, strict=False) if f[0] in self._begins]
        found += zip(sums, finals[len(self._carries) :], strict=True)
        found += zip(self._slices, stacks, strict=False)
        whole = dict(zip(back, stacks[len(self._slices) :], strict=True))
        whole |= {f: self._stacked_values(f) for f in factors if f not in whole}
        found += [(k, self._summed(value, parts, whole)) for k, (value, parts) in later.items()]
        return [(src[k], build.reshape(share, src[k].shape)) for k, share in found]

    def _deferred_sums(
        self, flown: dict[int, UOp | None]
    ) -> dict[int, tuple[UOp, tuple[UOp, ...]]]:
        """Find gradients that are sums over iterations of sums of products with few factors.

        These are not accumulated in each iteration. The iterations store the factors, and one sum
        over all of them is computed after the loop, which moves less memory.
        """
        loop = self._loop
        if loop.counted or loop.conditional:
            return {}  # iterations that do not run leave no rows
        later: dict[int, tuple[UOp, tuple[UOp, ...]]] = {}
        known: set[UOp] = set()
        sums = [(k, v) for k in self._fixed if (v := flown[k]) is not None]
        # Large ones first: the others may reuse the factors that these store.
        for k, value in sorted(sums, key=lambda pair: -_size(pair[1])):
            parts = _factors(value)
            if parts is None:
                continue
            left = sum(_size(f) for f in parts if f not in known and f not in loop.ports)
            if left < 2 * _size(value):
                later[k] = value, parts
                known.update(parts)
        return later

    def _is_forward(self, node: UOp, inside: set[UOp]) -> bool:
        """Return whether a node depends only on values of the forward iterations."""
        return not any(n in inside for n in below([node], inside.__contains__))

    def _stacked_values(self, node: UOp) -> UOp:
        """Return the values of a node of the forward body, stacked over all iterations."""
        loop = self._loop
        carried = len(loop.carries)
        if node in loop.ports[carried : carried + loop.stacked]:
            whole = self._src[loop.ports.index(node)]
            return build.reshape(whole, (loop.trip_count, *node.shape))
        return value_of_run(Outcome(loop, -1, (node,)), self._src)

    def _summed(
        self, value: UOp, parts: tuple[UOp, ...], whole: dict[UOp, UOp]
    ) -> UOp:
        """Return the sum over all iterations of `value`, a function of the factors `parts`."""
        core = bare(value)
        stands = {p: slot(p.shape, p.dtype) for p in parts}
        (one,) = rewritten([core.src[0]], {p: s.node for p, s in stands.items()})
        given = {s.node: whole[p] for p, s in stands.items()}
        (every,) = batching_rules.batched([one], given, self._loop.trip_count)
        total = build.reduce(every, Op.ADD, (0, *(a + 1 for a in core.arg[1])))
        return rewritten([value], {core: total})[0]

    def _iteration_gradients(
        self, coming: dict[int, Slot], rows: Sequence[UOp], row_slots: Sequence[Slot],
        sums: dict[int, Slot],
    ) -> dict[int, UOp | None]:  # fmt: skip
        """Return the gradient of each requested port in one iteration."""
        loop = self._loop
        seeds = [(loop.carries[k], s.node) for k, s in coming.items()]
        seeds += [(n.arg.each, s.node) for n, s in zip(rows, row_slots, strict=True)]
        wanted = [*self._carries, *self._slices, *sums]
        found = _port_gradients(seeds, [loop.ports[k] for k in wanted], self._name)
        return dict(zip(wanted, found, strict=True))

    def _count(self) -> UOp | None:
        loop = self._loop
        if loop.counted:
            return self._src[-1]
        if loop.conditional:  # carry 1 counts the iterations
            return build.reshape(value_of_run(Outcome(loop, 1), self._src), ())
        return None

    def _with_stored(
        self, news: list[UOp], out: list[UOp], inside: set[UOp]
    ) -> tuple[list[UOp], list[UOp], list[tuple[Slot, UOp]]]:
        """Replace forward values in the backward body by slots for stored rows."""
        loop, src = self._loop, self._src
        carried, behind = len(loop.carries), len(loop.carries) + loop.stacked
        put: dict[UOp, UOp] = {}
        pairs: list[tuple[Slot, UOp]] = []
        for node in _stored_values([*news, *out], loop, inside):
            stands = slot(node.shape, node.dtype)
            put[node] = stands.node
            pairs.append((stands, self._stacked_values(node)))
        for k in range(carried, behind):
            p = loop.ports[k]
            stands = slot(p.shape, p.dtype)
            put[p] = stands.memory
            pairs.append((stands, src[k]))
        for k in range(behind, len(loop.ports) - loop.numbered):
            put[loop.ports[k]] = build.reshape(src[k], loop.ports[k].shape)
        self._number = None
        if loop.numbered:
            self._number = slot((1,), dt.int64)
            put[loop.ports[-1]] = self._number.memory
        made = rewritten([*news, *out], put)
        return made[: len(news)], made[len(news) :], pairs


def _size(node: UOp) -> int:
    found = build.volume(node.shape)
    assert isinstance(found, int)
    return found


def _factors(value: UOp) -> tuple[UOp, ...] | None:
    """Return the one or two factors that `value` sums, ignoring movement ops; None if no sum."""
    value = bare(value)
    if value.op is not Op.REDUCE_AXIS or value.arg[0] is not Op.ADD:
        return None
    inner = bare(value.src[0])
    return tuple(dict.fromkeys(map(bare, inner.src if inner.op is Op.MUL else (inner,))))


def _stored_values(roots: Iterable[UOp], loop: Loop, inside: set[UOp]) -> list[UOp]:
    """Return the forward values to store: those that the backward body reads and are costly."""
    roots = list(roots)
    ports = set(loop.ports)
    given = ports - set(loop.ports[: len(loop.carries)])
    back: set[UOp] = set()
    forth: set[UOp] = set()
    order: list[UOp] = []
    wanted: set[UOp] = set()

    for node in below(roots, lambda n: n in inside or n in ports):
        order.append(node)
        if node in ports:
            forth.add(node)
        elif node in inside or any(r in back for r in reads_of(node)):
            back.add(node)
            for r in reads_of(node):
                if r in forth:
                    wanted.add(bare(r))
        elif any(r in forth for r in reads_of(node)):
            forth.add(node)
    if loop.checkpoint:
        # Results of calls with pure=False are always stored.
        once = [n for n in order if n in forth and _is_ordered(n)]
        return [p for p in loop.ports[: len(loop.carries)] if p in forth] + once
    for root in roots:
        if root in forth:
            wanted.add(bare(root))
    known: dict[UOp, bool] = {}
    kept: list[UOp] = []
    for node in order:
        if node not in forth:
            known[node] = node not in back
            continue
        cheap = node in given or (
            node not in ports and node.op in _CHEAP and all(known[r] for r in reads_of(node))
        )
        if not cheap and node in wanted:
            kept.append(node)
            cheap = True
        known[node] = cheap
    return kept
