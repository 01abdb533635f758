"""Invariant hoisting: finds values that are the same in every run of a plan.

Such values are computed from constants, and from memory that a program reads but never writes. They
can be stored in buffers, which are filled before the first run, and again after this memory has
changed. The cost model chooses the values that take longer to compute than to load. If the user
says that the memory stays the same for long, matrices are also packed for their products
(`prepack.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kernelrt.device.costs import costs_of
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.ops import ALU
from kernelrt.ir.reducers import depends_on_order
from kernelrt.ir.shape import is_static
from kernelrt.schedule.fuse.fusion_cost import FREE, elements
from kernelrt.schedule.rewrite.prepack import lay_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelrt.device.costs import Costs
    from kernelrt.device.spec import DeviceSpec

__all__ = ["invariant_values", "sources_of"]

#: Minimum ratio of the time to compute a value to the time to load it. Sines gain from hoisting
#: (``bench/steady.py``). Narrow weights that are widened and scaled gain from staying narrow (the
#: narrow products of ``bench/products.py``).
_WORTH: Final = 2
#: Minimum number of cycles to save; less is lost in the variation of a call.
_LEAST: Final = 32
#: Maximum bytes of all hoisted values if the program reads fewer bytes. A program that reads more
#: may hoist as many bytes as it reads.
_MOST_BYTES: Final = 64 << 20
#: Ops whose index operands are not hoisted, so that bounds and strides stay visible in the graph.
_INDEXED: Final = frozenset({Op.GATHER, Op.SCATTER})
_MORE: Final = frozenset({Op.PAD, Op.COL2IM, Op.REDUCE_AXIS, Op.CAT, Op.CONTIGUOUS})
_KNOWN: Final = (ALU | FREE | _MORE) - {Op.VAR, Op.BOUND}


class _Count(NamedTuple):
    """Cost of a value: cycles of arithmetic and cycles of loads, which overlap in time."""

    arithmetic: float = 0.0
    loads: float = 0.0

    @property
    def cycles(self) -> float:
        return max(self.arithmetic, self.loads)


def invariant_values(
    roots: Sequence[UOp],
    is_invariant: Callable[[UOp], bool],
    device: DeviceSpec,
    *,
    panels: bool = False,
) -> tuple[list[UOp], list[UOp]]:
    """Find the values in graphs of the tensor stage that are worth hoisting.

    Parameters
    ----------
    roots : sequence of UOp
        The graphs, without autograd tags.
    is_invariant : callable
        Returns whether a BUFFER node is memory that the program reads and never writes.
    device : DeviceSpec
        Target of the kernels.
    panels : bool
        Whether to prepack matrices. Packing takes longer than it saves in a single product.

    Returns
    -------
    roots, values : list of UOp
        Graphs with equal values, and those of their nodes to hoist, operands first.
    """
    order = list(toposort(roots))
    read = sum(_nbytes(node) for node in order if node.op is Op.BUFFER)
    most = max(_MOST_BYTES, read)
    laid_out: set[UOp] = set()
    if panels:
        found, laid_out = lay_out(roots, _invariant(order, is_invariant), device, most)
        roots, order = found, list(toposort(found))
    invariant = _invariant(order, is_invariant)
    chosen = _Choice(invariant, costs_of(device), most, laid_out).among(order)
    return list(roots), _computed_once(roots, chosen, most)


def _invariant(order: Iterable[UOp], is_invariant: Callable[[UOp], bool]) -> set[UOp]:
    """Return the nodes of `order` (operands first) that have the same value in every run."""
    invariant: set[UOp] = set()
    for node in order:
        if node.op is Op.BUFFER:
            fits = is_invariant(node)
        else:
            fits = node.op in _KNOWN and is_static(node.shape) and _is_fixed(node.arg)
        if fits and invariant.issuperset(node.src):
            invariant.add(node)
    return invariant


def _computed_once(roots: Sequence[UOp], chosen: Iterable[UOp], most: int) -> list[UOp]:
    """Return `chosen`, but such that no sum is computed both before the first run and in a run.

    The program that runs before the first run, and the program of a run, would add the terms in
    different orders, and round differently. For example, the maximum of some sums might then equal
    none of the sums themselves, and its gradient would be zero. So a sum that both programs need is
    hoisted, too. If it does not fit into `most` bytes, no value that is computed from it is
    hoisted.
    """
    kept = set(chosen)
    while True:
        before = set(toposort(kept))
        twice = [
            node
            for node in toposort(roots, stop=kept.__contains__)
            if node in before and node not in kept and depends_on_order(node)
        ]
        if not twice:
            return [node for node in toposort(roots) if node in kept]
        for node in twice:
            if sum(map(_nbytes, kept)) + _nbytes(node) <= most:
                kept.add(node)
            else:
                kept -= {other for other in kept if node in toposort([other])}


def sources_of(values: Iterable[UOp]) -> list[UOp]:
    """Return the BUFFER nodes that values are computed from."""
    return [node for node in toposort(list(values)) if node.op is Op.BUFFER]


class _Choice:
    def __init__(
        self, invariant: set[UOp], costs: Costs, most_bytes: float, laid_out: set[UOp]
    ) -> None:
        self._invariant = invariant
        self._laid_out = laid_out
        self._costs = costs
        self._most_bytes = most_bytes
        self._whole: dict[UOp, _Count] = {}

    def among(self, order: Sequence[UOp]) -> list[UOp]:
        """Return the values that are worth hoisting and that other values use, operands first."""
        top: list[UOp] = []
        for node in order:
            if node not in self._invariant:
                used = node.src[:1] if node.op in _INDEXED else node.src
                top += [s for s in used if s in self._invariant]
        chosen: dict[UOp, None] = {}
        seen: set[UOp] = set()
        stack = list(dict.fromkeys(top))
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in self._laid_out or self._is_worth(node):
                chosen[node] = None
            else:
                stack.extend(node.src)
        kept = self._within(chosen)
        return [node for node in order if node in kept]

    def _within(self, chosen: Iterable[UOp]) -> set[UOp]:
        """Return the values that fit the memory limit.

        Panels come first, then the values that save most cycles for each of their bytes.
        """
        kept: set[UOp] = set()
        left = self._most_bytes

        def spared(node: UOp) -> tuple[bool, float]:
            return node in self._laid_out, self._alone(node).cycles / _nbytes(node)

        for node in sorted(chosen, key=spared, reverse=True):
            if _nbytes(node) <= left:
                kept.add(node)
                left -= _nbytes(node)
        return kept

    def _is_worth(self, node: UOp) -> bool:
        """Return whether hoisting `node` is better than hoisting its operands or nothing."""
        if not _can_be_stored(node) or not 0 < _nbytes(node) <= self._most_bytes:
            return False
        if not self._is_dear(node, self._alone(node)):
            return False
        below = self._dear_below(node)
        if sum(map(self._load, below)) >= self._load(node):
            return True
        # A few ops on smaller hoisted values are cheaper than loading their result.
        return self._is_dear(node, self._count(node, below))

    def _is_dear(self, node: UOp, count: _Count) -> bool:
        load = self._load(node)
        return count.cycles > _WORTH * load and count.cycles > load + _LEAST

    def _dear_below(self, node: UOp) -> set[UOp]:
        """Return the smaller values below `node` that would be hoisted if `node` is not."""
        load = self._load(node)
        found: set[UOp] = set()
        stack, seen = list(node.src), set[UOp]()
        while stack:
            below = stack.pop()
            if below in seen:
                continue
            seen.add(below)
            smaller = _can_be_stored(below) and self._load(below) <= load
            if smaller and self._is_dear(below, self._alone(below)):
                found.add(below)
            else:
                stack.extend(below.src)
        return found

    def _load(self, node: UOp) -> float:
        """Return the cycles to load a value, if other data takes its share of the caches."""
        nbytes = _nbytes(node)
        return nbytes * max(self._costs.byte(nbytes), self._costs.far_byte)

    def _alone(self, node: UOp) -> _Count:
        """Return the cost of computing a value if nothing below it is hoisted."""
        found = self._whole.get(node)
        if found is None:
            found = self._whole[node] = self._count(node, set())
        return found

    def _count(self, root: UOp, read: set[UOp]) -> _Count:
        """Return the cost of computing `root` from the values in `read`; each node counts once."""
        arithmetic = loads = 0.0
        for node in toposort([root], stop=read.__contains__):
            if node in read or node.op is Op.BUFFER:
                loads += self._load(node)
            else:
                arithmetic += self._work(node)
        return _Count(arithmetic, loads)

    def _work(self, node: UOp) -> float:
        if node.op is Op.REDUCE_AXIS:
            return elements(node.src[0].shape) * self._costs.element(node.arg[0], node.dtype)
        if node.op in FREE or not (node.dtype.is_float or node.src[0].dtype.is_float):
            return 0.0  # index arithmetic is folded into loop counters and addresses
        if node.op in (Op.CONTIGUOUS, Op.CAT):
            return 2 * self._load(node)
        return elements(node.shape) * self._costs.node(node)


def _nbytes(node: UOp) -> int:
    return elements(node.shape) * node.dtype.itemsize


def _is_fixed(arg: object) -> bool:
    """Return whether a node's argument, such as a slice's start, contains no Variable."""
    return all(map(_is_fixed, arg)) if isinstance(arg, tuple) else not isinstance(arg, UOp)


def _can_be_stored(node: UOp) -> bool:
    return node.op not in FREE and node.dtype.is_float
