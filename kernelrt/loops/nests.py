"""Groups of REDUCEs and LOCALs that run in one loop nest and are costed together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelrt.ir.ops import PRODUCTS, Op
from kernelrt.loops.tiles import extent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.device.costs import Costs
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis

__all__ = ["Nest", "longest_first", "other_ranges"]


class Nest:
    """REDUCEs and LOCALs that close over the same RANGEs; one loop nest computes them.

    Attributes
    ----------
    nodes : list of UOp
        All of them.
    reduces, fills : list of UOp
        The REDUCE nodes, and the LOCAL nodes.
    closed : tuple of UOp
        The RANGEs they close over, outermost first.
    deps : frozenset of UOp
        The RANGEs their results vary with.
    ranges : frozenset of UOp
        Both.
    loads : list of UOp
        LOADs in the loop, those of what is nested in it left out.
    work : float
        Cost of one element of each REDUCE, in plain instructions.
    filling : float
        The same for one element of all LOCALs, beside what the REDUCEs compute as well.
    in_order : bool
        Whether each result is added up one term after the other.
    awaited : bool
        Whether what is computed under more loops than its results needs them first.
    """

    def __init__(self, info: Analysis, nodes: list[UOp], costs: Costs) -> None:
        self.nodes = nodes
        self.reduces = [u for u in nodes if u.op is Op.REDUCE]
        self.fills = [u for u in nodes if u.op is Op.LOCAL]
        self.closed = nodes[0].src[1:]
        self.deps = info.deps[nodes[0]]
        self.ranges = self.deps | set(self.closed)
        self.loads = list(dict.fromkeys(x for u in nodes for x in info.loads(u.src[0])))
        # Sums of products take a multiply-add, beside what is computed for each product alone.
        products = [
            u.src[0] for u in self.reduces
            if u.arg is Op.ADD and u.src[0].op in PRODUCTS
        ]
        values = [u.src[0] for u in self.reduces if u.src[0] not in products]
        values += [s for x in products for s in x.src if info.deps[s] == info.deps[x]]
        folding = info.weight(values, costs)
        self.work = 1.0 + folding / max(1, len(self.reduces))
        filled = [u.src[0] for u in self.fills]
        self.filling = info.weight([*values, *filled], costs) - folding
        self.in_order = not info.in_order.isdisjoint(self.reduces)
        self.awaited = not info.awaited.isdisjoint(self.reduces)


def other_ranges(nest: Nest, nests: Iterable[Nest]) -> list[UOp]:
    """The other ranges of the array that `nest` computes an element of, innermost first."""
    inner = (other.closed[-2::-1] for other in nests if other.fills)
    return next(([*own] for own in inner if own and nest.deps.issuperset(own)), [])


def longest_first(nests: Iterable[Nest]) -> list[Nest]:
    """`nests` by how often their innermost body is gone through."""
    return sorted(nests, key=lambda nest: -math.prod(map(extent, nest.ranges)))
