"""Groups of REDUCEs and LOCALs that run in one loop nest. The cost model charges them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt.ir.ops import PRODUCTS, Op

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.device.costs import Costs
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis

__all__ = ["Nest", "other_ranges"]


class Nest:
    """REDUCEs and LOCALs over the same RANGEs; one loop nest computes them.

    Attributes
    ----------
    nodes : list of UOp
        All REDUCEs and LOCALs of the nest.
    reduces, fills : list of UOp
        The REDUCE nodes, and the LOCAL nodes.
    closed : tuple of UOp
        The reduced or filled RANGEs, outermost first.
    deps : frozenset of UOp
        The RANGEs that the results vary with.
    ranges : frozenset of UOp
        Union of `closed` and `deps`.
    loads : list of UOp
        LOADs in the loops of the nest, without those in nests inside it.
    work : float
        Cost of one element of each REDUCE, in plain instructions.
    filling : float
        Cost of one element of all LOCALs, in plain instructions, without the work that they share
        with REDUCEs.
    adds_products : bool
        Whether each REDUCE adds products of two LOADs, by one instruction each.
    sequential : bool
        Whether each result is a sequential sum.
    awaited : bool
        Whether values under further loops use the results.
    """

    def __init__(self, info: Analysis, nodes: list[UOp], costs: Costs) -> None:
        self.nodes = nodes
        self.reduces = [u for u in nodes if u.op is Op.REDUCE]
        self.fills = [u for u in nodes if u.op is Op.LOCAL]
        self.closed = nodes[0].src[1:]
        self.deps = info.deps[nodes[0]]
        self.ranges = self.deps | set(self.closed)
        self.loads = list(dict.fromkeys(x for u in nodes for x in info.loads(u.src[0])))
        # A sum of products takes a multiply-add, plus the cost of factors that are not reused.
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
        self.adds_products = len(products) == len(self.reduces) == len(nodes) and all(
            costs.spec.adds_products(x.op, x.dtype)
            and all(s.op is Op.LOAD and not s.dtype.is_narrow for s in x.src)
            for x in products
        )
        self.sequential = not info.sequential.isdisjoint(self.reduces)
        self.awaited = not info.awaited.isdisjoint(self.reduces)


def other_ranges(nest: Nest, nests: Iterable[Nest]) -> list[UOp]:
    """Return the RANGEs, but the innermost, of the array whose elements `nest` computes.

    The innermost of them comes first. The list is empty if there is no such array.
    """
    inner = (other.closed[-2::-1] for other in nests if other.fills)
    return next(([*own] for own in inner if own and nest.deps.issuperset(own)), [])
