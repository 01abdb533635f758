"""Costs of the nodes of a tensor graph in cycles, for fusion decisions.

:mod:`kernelrt.device.costs` has the costs of one op, of one byte and of one kernel launch. This
module adds them up for the nodes of a graph.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

from kernelrt import dtype as dt
from kernelrt.device.costs import costs_of, instructions
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.local import local_itemsize
from kernelrt.ir.ops import ALU, EXPANSIONS, MOVEMENT
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

#: A value may be stored by the kernel of another value that has as many elements, or at least this
#: many times as many.
SHORT_LOOP = 8
#: Reductions to this many elements or fewer do not keep several cores busy.
FEW = 16
#: Maximum number of instructions in one evaluation of all values of a kernel: 100 kB of text
#: without tiles. Beyond it, compile time grows faster than the saved traffic.
MOST_WRITTEN = 1300
#: Minimum number of instructions of a value, for its operands' addresses and loads.
_LEAST_WRITTEN = 2
#: Extra instructions of an op that is lowered to a polynomial: the branch to its cold path.
_COLD_BRANCH = 10
#: Upper limit of estimates.
_MOST_CYCLES = 1e12
#: Number of last-level caches that a buffer may fill before kernels recompute its rows instead.
#: For attention's gradient of length 512 to 4096, recomputing takes 1.5 to 2 times as long.
_MAX_BUFFER_CACHES = 4
#: Size of an operand that may be read again for every few rows of the other operand, in units of
#: the second-level cache.
_MAX_REREAD_CACHES = 4
#: Transfers for each byte written: its cache line is fetched before it is stored.
_WRITTEN = 2
#: Reads that reach the memory level of the buffer; later reads hit a cache.
_FAR_READS = 2
#: Minimum time that must be saved by splitting a kernel over cores, in units of a kernel launch.
_PARALLEL_LAUNCHES = 20

#: Ops that only change the index. Storing their values gains nothing.
FREE = (MOVEMENT - {Op.PAD, Op.COL2IM}) | {Op.CONST, Op.VAR, Op.BUFFER, Op.IOTA}


_INDEX_TYPES = (dt.int64, dt.int32, dt.bool_)


def elements(shape: tuple[Dim, ...]) -> int:
    """Return the number of elements of a shape, at the largest values of its Variables."""
    for dim in shape:
        if type(dim) is not int:
            return math.prod(map(dim_max, shape))
    return math.prod(cast("tuple[int, ...]", shape))


def strip(node: UOp) -> UOp:
    """If `node` is a chain of reshapes, return the node below the chain; else return `node`.

    Both have the same elements in the same order.
    """
    while node.op is Op.RESHAPE:
        node = node.src[0]
    return node


class Work(NamedTuple):
    """Cycles to compute the values of a graph.

    Attributes
    ----------
    cycles : dict
        Cycles for one element of each node, starting from stored values.
    last : set
        Elementwise nodes that are the only user of a value, where the value gets its own kernel in
        any case. This kernel can compute and store the node as well, so a buffer for the node costs
        no further launch.
    """

    cycles: dict[UOp, float]
    last: set[UOp]


class Prices:
    """Costs on a target, for the values of a graph.

    Parameters
    ----------
    device : DeviceSpec
        The target.

    Attributes
    ----------
    few_registers : bool
        Whether the target has few vector registers.
    launch : float
        Cycles of one more kernel launch.
    loop : float
        Cycles to enter and leave a loop.
    multiplication : float
        Cycles of one multiplication in vector code.
    scalar : int
        Cost of a scalar operation relative to one element of a vector operation.
    parallel : float
        Minimum cycles for which a reduction to few elements gets its own kernel. Then the kernel
        that reads the results can be divided among cores, and no core repeats the reduction.
    row_byte : float
        Cycles per byte of a buffer whose rows leave the cache before another kernel reads them.
    max_buffer_bytes : int
        Buffers with more bytes than this are avoided where possible.
    shared_bytes : int
        Minimum bytes of a shared input that does not stay in the first-level cache between kernels.
    max_reread_bytes : int
        Maximum bytes of an operand that is read again for every few rows of another operand.
    """

    __slots__ = (
        "_costs", "_load", "few_registers", "launch", "loop", "max_buffer_bytes",
        "max_reread_bytes", "multiplication", "parallel", "row_byte", "scalar", "shared_bytes",
    )  # fmt: skip

    def __init__(self, device: DeviceSpec) -> None:
        costs = costs_of(device)
        self._costs = costs
        self._load = costs.element(Op.ADD, dt.float32)
        self.few_registers = device.few_registers
        self.multiplication = costs.element(Op.MUL, dt.float32)
        self.launch = costs.call
        self.loop = costs.loop
        self.scalar = costs.lanes(dt.float32)
        self.parallel = _PARALLEL_LAUNCHES * costs.call
        self.row_byte = costs.far_byte
        self.max_reread_bytes = _MAX_REREAD_CACHES * costs.levels[1].nbytes
        self.max_buffer_bytes = _MAX_BUFFER_CACHES * costs.levels[2].nbytes
        self.shared_bytes = costs.levels[0].nbytes

    def byte(self, nbytes: int) -> float:
        """Return the cycles per byte to or from a buffer of `nbytes`."""
        return self._costs.byte(nbytes)

    def multiplies(self, dtype: DType) -> bool:
        """Return whether the target multiplies vectors of `dtype` without widening them."""
        return self._costs.spec.dot(dtype) is not None

    def lanes(self, dtype: DType) -> int:
        """Return the number of elements in a vector, if a local array holds values of `dtype`."""
        return self._costs.spec.lanes(local_itemsize(dtype))

    def spared(self, dtype: DType) -> float:
        """Return the cycles that each product saves if `dtype` is multiplied without widening."""
        parts = self._costs.spec.dot(dtype)
        if parts is None:
            return 0.0
        wide = dt.float32 if dtype.is_float else dt.int32
        dots = self._costs.added(Op.DOT, wide) / parts.number
        return max(0.0, self._costs.added(Op.MUL, wide) - dots)

    def traffic(self, nbytes: int, reads: float = 1.0, *, out_of_cache: bool = False) -> float:
        """Return the cycles of writing and reading a buffer of `nbytes`.

        Parameters
        ----------
        nbytes : int
            Size of the buffer.
        reads : float
            Number of reads of each element.
        out_of_cache : bool
            Whether rows leave the cache before they are read.
        """
        per_byte = self.row_byte if out_of_cache else self.byte(nbytes)
        return per_byte * (_WRITTEN + min(reads, _FAR_READS)) * nbytes

    def is_stored(self, pad: UOp, reads: int) -> bool:
        """Return whether to store `pad` by its own kernel, if each element has `reads` reads."""
        count = elements(pad.shape)
        repeated = (reads - count) * self._costs.element(Op.PAD, pad.dtype)
        return repeated > self.launch + self.traffic(count * pad.dtype.itemsize)

    def worth_storing(self, node: UOp) -> float:
        """Return the cycles per element above which a buffer of `node` beats recomputation."""
        return self.traffic(node.dtype.itemsize, out_of_cache=True)

    def worth_keeping(self, node: UOp) -> float:
        """Return the cycles per element above which a local array of `node` beats recomputation."""
        return self.traffic(node.dtype.itemsize)

    def work_of(
        self, order: Sequence[UOp], stored: Iterable[UOp], *, kept: bool = False
    ) -> Work:
        """Return the cycles to compute one element of each node.

        An expensive node with several consumers gets a buffer in any case, so the work of each
        consumer includes only a load of it. If a node has one consumer, the two are computed
        together, so the work of the consumer includes that of the node.

        Parameters
        ----------
        order : sequence of UOp
            Nodes, operands first.
        stored : iterable of UOp
            Nodes that certainly have a buffer, so that they are read.
        kept : bool
            Whether a node with several consumers is kept in a local array instead of a buffer. An
            array saves time for cheaper nodes as well.
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
                # Index arithmetic is folded into loop counters and addresses.
                indices.add(node)
                work[node] = 0.0
                continue
            total = self._own(node) + sum(load if s in read else work[s] for s in node.src)
            if node.op is Op.EXPAND:
                # Work that does not vary with a loop is hoisted out of it.
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
    """Return whether `node` is arithmetic on positions only."""
    if node.op in (Op.IOTA, Op.VAR, Op.CONST):
        return not node.dtype.is_float
    known = node.op in ALU or node.op in MOVEMENT
    return known and node.dtype in _INDEX_TYPES and all(s in indices for s in node.src)


def written(node: UOp) -> int:
    """Return the number of instructions of one evaluation of `node`, without its operands."""
    count = instructions(node.op, wide=node.dtype is dt.float64)
    return max(_LEAST_WRITTEN, count) + _COLD_BRANCH * (node.op in EXPANSIONS)


def contraction_reuse(node: UOp) -> float:
    """Return how often the contraction `node` uses each element of its less reused operand.

    Return 0 if `node` is no contraction.
    A contraction is a sum of products of two operands that are both used more than once: a matrix
    product or a convolution. A matrix-vector product is an ordinary reduction.
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
    """Return the node that a sum adds up, below casts, reshapes and permutations."""
    product = node.src[0]
    while product.op in (Op.CAST, Op.RESHAPE, Op.PERMUTE):
        product = product.src[0]
    return product


def distinct(node: UOp) -> int:
    """Return the number of distinct elements that a chain of movement ops and casts reads."""
    least = elements(node.shape)
    while node.op in MOVEMENT or node.op is Op.CAST:
        node = node.src[0]
        least = min(least, elements(node.shape))
    return least
