"""Canonical form of a kernel: canonical loops and numbered buffers.

If kernels differ only in the buffers that they access, they have the same form, which is computed
once. So to schedule an unrolled training loop takes about as long as to schedule one of its steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelrt.ir import Op, UOp, substitute, toposort
from kernelrt.schedule.kernels.canonical_loops import canonical_loops
from kernelrt.schedule.kernels.lower import STATUS
from kernelrt.schedule.types import Part

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kernelrt.schedule.fuse.index_maps import Indexer

__all__ = ["Form", "Forms"]


@dataclass(frozen=True, slots=True)
class Form:
    """A kernel AST and the buffers of its slots.

    Attributes
    ----------
    ast : UOp
        The kernel AST (a SINK).
    slots : tuple of UOp
        The BUFFER of each slot, except that of the status word.
    writes : int
        Number of slots that are written; they come first.
    checks : tuple of UOp
        The BOUNDs, in the order of their numbers.
    """

    ast: UOp
    slots: tuple[UOp, ...]
    writes: int
    checks: tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class _Hole:
    """The `arg` of a placeholder BUFFER, which stands for any buffer of its size."""

    number: int
    size: int


class Forms:
    """Cache of the canonical forms of kernels.

    Parameters
    ----------
    indexer : Indexer
        Index arithmetic.
    keep : collection of UOp
        BUFFERs that the caller may move to other memory. No form uses a Part of such a BUFFER.
    """

    def __init__(self, indexer: Indexer, keep: Collection[UOp]) -> None:
        self._indexer = indexer
        self._keep = keep
        self._known: dict[tuple[object, ...], Form] = {}

    def of(
        self, stores: Sequence[UOp], loops: Sequence[UOp], buffers: Mapping[UOp, UOp]
    ) -> Form:
        """Return the canonical form of a kernel.

        Parameters
        ----------
        stores : sequence of UOp
            STOREs to BUFFERs.
        loops : sequence of UOp
            RANGEs of the STOREs that belong to no REDUCE, outermost first.
        buffers : mapping of UOp to UOp
            Replacements of BUFFERs in the STOREs.
        """
        nodes = toposort(stores)
        if any(n.op is Op.BOUND for n in nodes):
            # A check has the source line of its operation, and equal nodes must have the same one.
            meant = substitute(stores, {b: p for b, p in buffers.items() if p is not b})
            return self._made(meant, loops, frozenset(self._keep))
        holes: dict[UOp, UOp] = {}
        mapping: dict[UOp, UOp] = {}
        inner: list[UOp] = []
        outer = set(loops)
        for node in nodes:
            if node.op is Op.BUFFER:
                buffer = buffers.get(node, node)
                if buffer not in holes:
                    hole = _Hole(len(holes), int(buffer.arg.size))
                    holes[buffer] = UOp(Op.BUFFER, buffer.dtype, (), hole)
                mapping[node] = holes[buffer]
            elif node.op is Op.RANGE and node not in outer:
                inner.append(node)
        # Keep the order of the old numbers, since terms are sorted by them.
        first = 1 + max((int(r.arg) for r in loops), default=-1)
        for number, loop in enumerate(sorted(inner, key=lambda r: int(r.arg)), first):
            mapping[loop] = loop.replace(arg=number)
        alike = substitute(stores, mapping)
        whole = frozenset(h for buffer, h in holes.items() if buffer in self._keep)
        key = (*alike, None, *loops, whole)
        form = self._known.get(key)
        if form is None:
            form = self._known[key] = self._made(alike, loops, whole)
        meant_by = {hole: buffer for buffer, hole in holes.items()}
        slots = tuple(_filled(slot, meant_by) for slot in form.slots)
        return Form(form.ast, slots, form.writes, ())

    def _made(self, stores: Sequence[UOp], loops: Sequence[UOp], whole: Collection[UOp]) -> Form:
        stores = canonical_loops(_with_parts(stores, whole), loops, self._indexer)
        nodes = toposort(stores)
        slots = {b: k for k, b in enumerate(dict.fromkeys(s.src[0] for s in stores))}
        writes = len(slots)
        for node in nodes:
            if node.op is Op.LOAD and node.src[0].op is Op.BUFFER:
                slots.setdefault(node.src[0], len(slots))
        params = {b: UOp(Op.PARAM, b.dtype, (), (k, int(b.arg.size))) for b, k in slots.items()}
        params[STATUS] = STATUS.replace(arg=(len(slots), 1))
        checks = tuple(n for n in nodes if n.op is Op.BOUND)
        return Form(_sink(stores, nodes, params, checks), tuple(slots), writes, checks)


def _filled(slot: UOp, meant: Mapping[UOp, UOp]) -> UOp:
    """Return the BUFFER that the placeholder `slot` of a form stands for."""
    if isinstance(slot.arg, Part) and slot not in meant:
        base = meant[slot.arg.base]
        return slot.replace(arg=Part(base, slot.arg.offset, slot.arg.size))
    return meant[slot]


def _with_parts(stores: Sequence[UOp], whole: Collection[UOp]) -> list[UOp]:
    """Replace each BUFFER that is read only in part by a BUFFER of that part.

    Then kernels that differ only in the part that they read share one form.
    """
    nodes = toposort(stores)
    accesses: dict[UOp, list[UOp]] = {}
    for node in nodes:
        if node.op is Op.LOAD and node.src[0].op is Op.BUFFER:
            accesses.setdefault(node.src[0], []).append(node)
    written = {s.src[0] for s in stores}
    parts: dict[UOp, tuple[UOp, int]] = {}
    for buffer, loads in accesses.items():
        if buffer not in whole and buffer not in written:
            found = _part(buffer, loads)
            if found is not None:
                parts.update(dict.fromkeys(loads, found))
    if not parts:
        return list(stores)
    done: dict[UOp, UOp] = {}
    for node in nodes:
        src = tuple(done[s] for s in node.src)
        if node in parts:
            part, first = parts[node]
            src = (part, src[1] - first, *src[2:])
        done[node] = node if src == node.src else node.replace(src=src)
    return [done[s] for s in stores]


def _part(buffer: UOp, loads: Sequence[UOp]) -> tuple[UOp, int] | None:
    """Return the part of `buffer` that `loads` read, and the index of its first element."""
    # Use the smallest index, not the constant term: the index of a flipped axis counts down.
    first = min(load.src[1].vmin for load in loads)
    span = max(load.src[1].vmax for load in loads) + 1 - first
    size = int(buffer.arg.size)
    if not 0 <= first < size or span >= size:
        return None
    span = min(span, size - first)
    return buffer.replace(arg=Part(buffer, first * buffer.dtype.itemsize, span)), first


def _sink(
    stores: Sequence[UOp], nodes: Sequence[UOp], params: Mapping[UOp, UOp], checks: Sequence[UOp]
) -> UOp:
    numbers = {n: k for k, n in enumerate(checks)}
    done = dict(params)
    for node in nodes:
        if node not in done:
            src = tuple(done[s] for s in node.src)
            arg = (numbers[node], node.arg[1]) if node.op is Op.BOUND else node.arg
            same = src == node.src and arg == node.arg
            done[node] = node if same else node.replace(src=src, arg=arg)
    return UOp(Op.SINK, stores[0].dtype, tuple(done[s] for s in stores))
