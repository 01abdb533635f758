"""Cost of tensor-level nodes in cycles, as fusion decides by it.

What an op, a byte and a launch cost is said by :mod:`kernelrt.device.costs`; here is what a graph
makes of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

from kernelrt import dtype as dt
from kernelrt.device.costs import BECOMES, costs_of, instructions
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.local import local_itemsize
from kernelrt.ir.ops import ALU, MOVEMENT
from kernelrt.ir.shape import dim_max

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.dtype import DType

__all__ = [
    "FEW",
    "FREE",
    "MOST_WRITTEN",
    "SHORT_LOOP",
    "Prices",
    "Work",
    "contraction_reuse",
    "distinct",
    "elements",
    "product_of",
    "strip",
    "written",
]

#: A value is stored beside another that takes this many of its elements each, or exactly one.
SHORT_LOOP = 8
#: Reductions to this many elements or fewer cannot keep several cores busy.
FEW = 16
#: Instructions of one evaluation of all values of a kernel: 100 kB of text without tiles. Past it
#: the compiler's time grows faster than the saved traffic.
MOST_WRITTEN = 1300
#: Instructions that a value counts for at least: its own, its operands' addresses and loads.
_LEAST_WRITTEN = 2
#: Those around what becomes many: the branch for rare elements.
_AROUND = 10
#: Where estimates saturate.
_MOST_CYCLES = 1e12
#: Last caches that a buffer may fill before kernels rather compute its rows again, which takes
#: attention's gradient of length 512 to 4096 half as long again to twice as long.
_ROOMY = 4
#: Second caches that an operand may fill which is walked for every few rows of another.
_WALKED = 4
#: Times that a byte is moved to be written: its line is fetched before it is stored.
_WRITTEN = 2
#: Reads past the second find what they read in a cache.
_FAR_READS = 2
#: Launches that splitting a kernel over cores should be worth.
_PARALLEL_LAUNCHES = 20

#: Ops that only change which element is meant; nothing is gained by storing what they give.
FREE = (MOVEMENT - {Op.PAD, Op.UNWINDOW}) | {Op.CONST, Op.VAR, Op.BUFFER, Op.IOTA}


_INDEX_TYPES = (dt.int64, dt.int32, dt.bool_)


def elements(shape: tuple[Dim, ...]) -> int:
    """Elements of a shape at the largest values of its Variables."""
    for dim in shape:
        if type(dim) is not int:
            return math.prod(map(dim_max, shape))
    return math.prod(cast("tuple[int, ...]", shape))


def strip(node: UOp) -> UOp:
    """`node` without the reshapes on top of it: the same elements in the same order."""
    while node.op is Op.RESHAPE:
        node = node.src[0]
    return node


class Work(NamedTuple):
    """What computing the values of a graph takes.

    Attributes
    ----------
    cycles : dict
        For one element of each node, from stored values.
    last : set
        Nodes made element by element of one that will have a kernel whatever they have, and the
        only users of it: stored, they take its place, and no further kernel.
    """

    cycles: dict[UOp, float]
    last: set[UOp]


class Prices:
    """What a target pays for the values of a graph.

    Parameters
    ----------
    device : DeviceSpec
        The target.

    Attributes
    ----------
    launch : float
        Cycles that one more kernel is worth.
    loop : float
        Cycles of entering and leaving a loop.
    multiplication : float
        Cycles of one, with vectors.
    scalar : int
        How many times its share of a vector a value costs that is computed alone.
    parallel : float
        Cycles from which a reduction to few elements is a kernel of its own, so that the kernel
        that uses it can be split over cores without repeating it.
    row_byte : float
        Cycles for each byte of a value that a buffer would tear out of a kernel: its rows leave
        the cache before they are read again.
    roomy : int
        A buffer of more bytes than these is not wanted, if it can be helped.
    shared_bytes : int
        A shared input of at least this many bytes does not stay in the first cache between
        kernels.
    walked : int
        Bytes of an operand that may be walked again for every few rows of another.
    """

    __slots__ = (
        "_costs", "_load", "launch", "loop", "multiplication", "parallel", "roomy", "row_byte",
        "scalar", "shared_bytes", "walked",
    )  # fmt: skip

    def __init__(self, device: DeviceSpec) -> None:
        costs = costs_of(device)
        self._costs = costs
        self._load = costs.element(Op.ADD, dt.float32)
        self.multiplication = costs.element(Op.MUL, dt.float32)
        self.launch = costs.call
        self.loop = costs.loop
        self.scalar = costs.lanes(dt.float32)
        self.parallel = _PARALLEL_LAUNCHES * costs.call
        self.row_byte = costs.far_byte
        self.walked = _WALKED * costs.levels[1].nbytes
        self.roomy = _ROOMY * costs.levels[2].nbytes
        self.shared_bytes = costs.levels[0].nbytes

    def byte(self, nbytes: int) -> float:
        """Cycles for each byte to or from a buffer of `nbytes`."""
        return self._costs.byte(nbytes)

    def multiplies(self, dtype: DType) -> bool:
        """Whether numbers as narrow as `dtype` are multiplied as they are, several at once."""
        return self._costs.spec.dot_parts(dtype) > 0

    def lanes(self, dtype: DType) -> int:
        """Elements of `dtype` in a vector of what a local array holds."""
        return self._costs.spec.lanes(local_itemsize(dtype))

    def spared(self, dtype: DType) -> float:
        """Cycles that this takes less for each product than widening them first."""
        parts = self._costs.spec.dot_parts(dtype)
        if not parts:
            return 0.0
        if dtype.is_float:
            apart = self._costs.element(Op.FMA, dt.float32)
        else:
            apart = sum(self._costs.element(op, dt.int32) for op in (Op.MUL, Op.ADD))
        return max(0.0, apart - self._costs.element(Op.DOT, dtype.accumulator) / parts)

    def traffic(self, nbytes: int, reads: float = 1.0, *, torn: bool = False) -> float:
        """Cycles for what goes to and from a buffer of `nbytes`.

        Parameters
        ----------
        nbytes : int
            Its size.
        reads : float
            How often each element is read.
        torn : bool
            Whether its rows leave the cache before they are read.
        """
        per_byte = self.row_byte if torn else self.byte(nbytes)
        return per_byte * (_WRITTEN + min(reads, _FAR_READS)) * nbytes

    def is_stored(self, pad: UOp, reads: int) -> bool:
        """Whether a copy of a PAD's value is worth a kernel, for so many reads of an element."""
        count = elements(pad.shape)
        repeated = (reads - count) * self._costs.element(Op.PAD, pad.dtype)
        return repeated > self.launch + self.traffic(count * pad.dtype.itemsize)

    def worth_storing(self, node: UOp) -> float:
        """Cycles per element from which storing beats repeating once."""
        return self.traffic(node.dtype.itemsize, torn=True)

    def worth_keeping(self, node: UOp) -> float:
        """Cycles per element from which an array of the kernel beats repeating once."""
        return self.traffic(node.dtype.itemsize)

    def work_of(
        self, order: Sequence[UOp], stored: Iterable[UOp], *, kept: bool = False
    ) -> Work:
        """What computing one element of each node takes.

        What is dear and has several consumers will get a buffer whatever its consumers do, so
        for them it counts as a read. What has one consumer counts in full: the consumer is where
        its value would best be stored.

        Parameters
        ----------
        order : sequence of UOp
            Nodes, operands first.
        stored : iterable of UOp
            Nodes that are sure to have a buffer, which is read.
        kept : bool
            Whether what has several consumers will be kept in an array of their kernel, for
            which it need not be as dear.
        """
        worth = self.worth_keeping if kept else self.worth_storing
        read = set(stored)
        users: dict[UOp, list[UOp]] = {}
        for node in order:
            for s in dict.fromkeys(node.src):
                users.setdefault(s, []).append(node)
        work: dict[UOp, float] = {}
        dear: set[UOp] = set()
        last: set[UOp] = set()
        indices: set[UOp] = set()
        load = self._load
        for node in order:
            if _is_index(node, indices):
                # Folded into loop counters and addresses.
                indices.add(node)
                work[node] = 0.0
                continue
            total = self._own(node) + sum(load if s in read else work[s] for s in node.src)
            if node.op is Op.EXPAND:
                # What does not vary along a loop is moved out of it.
                total *= elements(node.src[0].shape) / max(1, elements(node.shape))
            elif node.op is Op.REDUCE_AXIS:
                total *= elements(tuple(node.src[0].shape[axis] for axis in node.arg[1]))
            work[node] = min(total, _MOST_CYCLES)
            if node.op in ALU and any(
                all(u is node or users.get(u) == [node] for u in users[s])
                for s in node.src
                if s in dear or s in last
            ):
                last.add(node)
            if len(users.get(node, ())) > 1 and total > worth(node):
                read.add(node)
                dear.add(node)
        return Work(work, last)

    def _own(self, node: UOp) -> float:
        if node.op is Op.BUFFER:
            return self._load
        if node.op is Op.REDUCE_AXIS:
            return self._costs.element(node.arg[0], node.dtype)
        return self._costs.node(node)


def _is_index(node: UOp, indices: Container[UOp]) -> bool:
    """Whether `node` is arithmetic on positions alone."""
    if node.op in (Op.IOTA, Op.VAR, Op.CONST):
        return not node.dtype.is_float
    known = node.op in ALU or node.op in MOVEMENT
    return known and node.dtype in _INDEX_TYPES and all(s in indices for s in node.src)


def written(node: UOp) -> int:
    """Instructions of one evaluation of `node`, its operands left out."""
    count = instructions(node.op, wide=node.dtype is dt.float64)
    return max(_LEAST_WRITTEN, count) + _AROUND * (node.op in BECOMES)


def contraction_reuse(node: UOp) -> float:
    """How often a contraction uses each operand, for the operand used least; else 0.

    A contraction is a sum over products of two operands both of which are used more than once:
    a matrix product or a convolution. A matrix times a vector is an ordinary reduction.
    """
    if node.op is not Op.REDUCE_AXIS or node.arg[0] is not Op.ADD:
        return 0.0
    product = product_of(node)
    if product.op is not Op.MUL:
        return 0.0
    total = elements(product.shape)
    reuse = min(total / max(1, distinct(s)) for s in product.src)
    return reuse if reuse > 1 else 0.0


def product_of(node: UOp) -> UOp:
    """What a sum adds up, below casts and reshapes."""
    product = node.src[0]
    while product.op in (Op.CAST, Op.RESHAPE, Op.PERMUTE):
        product = product.src[0]
    return product


def distinct(node: UOp) -> int:
    """Elements that a chain of movement ops and casts really holds."""
    least = elements(node.shape)
    while node.op in MOVEMENT or node.op is Op.CAST:
        node = node.src[0]
        least = min(least, elements(node.shape))
    return least
