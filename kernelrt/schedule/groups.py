"""A kernel under construction: which values it stores, over which loops, reading what."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernelrt import dtype as dt
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import as_uop
from kernelrt.ir.symbolic import ranges_of
from kernelrt.schedule.cost import elements
from kernelrt.schedule.indexing import ZERO, Index

__all__ = ["Frame", "Group"]


@dataclass(frozen=True, slots=True)
class Frame:
    """The loops of one reduction.

    Attributes
    ----------
    outer : frozenset of UOp
        RANGEs for each combination of which the reduction runs anew.
    own : tuple of UOp
        Its own RANGEs, outermost first.
    depth : int
        1 for a reduction that lies in no other.
    """

    outer: frozenset[UOp]
    own: tuple[UOp, ...]
    depth: int


@dataclass(eq=False, slots=True)
class Group:
    """Values stored by one kernel, in one iteration space.

    Attributes
    ----------
    shape : tuple of Dim
        The iteration space.
    kind : str
        ``"map"`` stores each root; ``"init"`` and ``"add"`` are the two halves of a
        SCATTER_ADD: the base stored, the updates added.
    roots : list of UOp
        Tensor-level nodes whose buffers are written.
    targets : dict
        BUFFERs of lasting state that the roots are committed to.
    checks : bool
        Whether an index is checked inside, so that the kernel may fail.
    reads : dict
        Stored nodes and BUFFERs -> the indices at which they are read.
    contractions : set
        Contractions computed inside, as (node, index).
    size : int
        Values computed inside, for the limit on the size of a kernel.
    """

    shape: tuple[Dim, ...]
    kind: str = "map"
    roots: list[UOp] = field(default_factory=list)
    targets: dict[UOp, None] = field(default_factory=dict)
    checks: bool = False
    reads: dict[UOp, dict[Index, None]] = field(default_factory=dict)
    contractions: set[tuple[UOp, Index]] = field(default_factory=set)
    contraction_ranges: set[UOp] = field(default_factory=set)
    size: int = 0
    natural: Index = ()
    _frames: dict[UOp, Frame] = field(default_factory=dict)
    _count: int = 0
    _ranges: dict[Index, frozenset[UOp]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.natural = tuple(self.new_range(d) for d in self.shape)

    def new_range(self, dim: Dim) -> UOp:
        """A loop over `dim`; index 0 where there is one element only."""
        if dim == 1:
            return ZERO
        self._count += 1
        return UOp(Op.RANGE, dt.int64, (as_uop(dim),), self._count - 1)

    def ranges(self, index: Index) -> frozenset[UOp]:
        """RANGEs that `index` varies with."""
        found = self._ranges.get(index)
        if found is None:
            parts = [{i} if i.op is Op.RANGE else ranges_of(i) for i in index if i is not ZERO]
            found = self._ranges[index] = frozenset().union(*parts)
        return found

    def evaluated_over(self, index: Index) -> frozenset[UOp]:
        """RANGEs over which a value at `index` is computed, loop-invariant ones left out."""
        varying = self.ranges(index)
        frames = [self._frames[r] for r in varying if r in self._frames]
        if not frames:
            return varying
        frame = max(frames, key=lambda f: f.depth)
        last = max(k for k, r in enumerate(frame.own) if r in varying)
        return frame.outer | frozenset(frame.own[: last + 1])

    def evaluations(self, index: Index) -> int:
        """How often a value at `index` is computed."""
        over = self.evaluated_over(index)
        total = math.prod(r.src[0].vmax for r in over)
        if any(r in self._frames for r in over):
            return total
        # An index such as r // 8 takes fewer values than r.
        return min(total, math.prod(i.vmax - i.vmin + 1 for i in index))

    def enter(self, index: Index, dims: list[Dim], contraction: bool) -> Index:
        """New RANGEs for a reduction that itself stands at `index`."""
        own = tuple(self.new_range(d) for d in dims)
        varying = self.ranges(index)
        depth = max((self._frames[r].depth for r in varying if r in self._frames), default=0)
        frame = Frame(
            self.evaluated_over(index), tuple(r for r in own if r is not ZERO), depth + 1
        )
        for r in frame.own:
            self._frames[r] = frame
        if contraction:
            self.contraction_ranges.update(frame.own)
        return own

    def inside_reduction(self, index: Index) -> bool:
        """Whether a value at `index` is computed inside a reduction's loops."""
        return any(r in self._frames for r in self.ranges(index))

    def inside_contraction(self, index: Index) -> bool:
        """Whether a value at `index` is computed in the inner loop of a contraction."""
        return not self.contraction_ranges.isdisjoint(self.ranges(index))

    def hoisted(self, index: Index) -> bool:
        """Whether a value at `index` is shared by several iterations of the outer loops."""
        over = self.evaluated_over(index)
        return math.prod(r.src[0].vmax for r in over) < elements(self.shape)

    def read(self, node: UOp, index: Index) -> None:
        """Note that stored `node` is read at `index`."""
        self.reads.setdefault(node, {})[index] = None
