"""Interpreter: runs graphs operation by operation while compiling them would take longer.

A small graph compiles in tens of milliseconds. A C loop for one operation and dtype runs in well
under a microsecond. So a graph is interpreted until that has cost about as much as compiling it.
Both costs are estimated from the sizes of the graph, not measured, so a program gives the same bits
each time it runs. Elementwise results are bitwise equal to those of compiled code. Reductions of
floats differ in their last bits, because their terms are combined in another order.

This module writes programs: it chooses the loop of each operation, and the offsets and strides of
its operands. ``native/interpreter.pyx`` writes the most common operations and collects the steps;
``csrc/interpret.c`` has the loops and runs them.
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.allocator import ALIGNMENT
from kernelrt.device.buffer import Buffer
from kernelrt.device.registry import allocator, opened
from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.ir.ops import ALU, FUNCTIONS
from kernelrt.ir.reducers import empty_result
from kernelrt.ir.shape import are_packed, is_static, packed_strides
from kernelrt.native import interpreter
from kernelrt.native.evaluate import Entry, LruValue
from kernelrt.native.interpreter import (
    ARENA,
    BLOCK,
    FIRST_BUFFER,
    LOOPS,
    Budget,
    Interpretation,
    ProgramBuilder,
    Unfit,
    View,
    merged_axes,
)  # fmt: skip
from kernelrt.tensor.autograd.tags import Kept
from kernelrt.tensor.nodes import build
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelrt.schedule import types as scheduled
    from kernelrt.schedule.memory import arena
    from kernelrt.tensor.eager.plan_cache import SizeFamily
else:
    arena = Module("kernelrt.schedule.memory.arena")
    scheduled = Module("kernelrt.schedule.types")

__all__ = ["CachedProgram"]
interpreter._name_memory(np.ndarray, allocator("CPU"))

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# The cost model, in nanoseconds.
#: Fixed cost of compiling a graph, and the cost that each operation adds.
COMPILE_NS: Final = 12e6
COMPILE_STEP_NS: Final = 0.4e6
#: Fixed cost of a run, and the cost of each step.
RUN_NS: Final = 4e3
STEP_NS: Final = 0.1e3
#: Cost of writing a program, for each operation of its graph.
WRITING_NS: Final = 5e3
#: Cost of an element of a result: of plain arithmetic; of an integer division; of a function such
#: as exp, which computes whole blocks; of a gather or scatter.
ELEMENT_NS: Final = 0.5
DIVISION_NS: Final = 5.0
FUNCTION_NS: Final = 4.0
INDEX_NS: Final = 8.0
#: Cost of a term of a sum of products: in a loop, and in a matrix product; and the fixed cost of a
#: matrix product.
TERM_NS: Final = 0.6
MATMUL_TERM_NS: Final = 0.03
MATMUL_NS: Final = 4e3
#: Minimum number of products for which NumPy multiplies matrices.
LEAST_MATMUL_TERMS: Final = 1 << 13
#: A graph with a larger intermediate result is compiled, because fusion avoids most of the memory.
MOST_BYTES: Final = 16 << 20
#: If all values together take more memory, a value may reuse the memory of another value that no
#: later step reads.
REUSED_BYTES: Final = 1 << 16
#: Larger iotas are computed by a step instead of stored as constants.
CONSTANT_BYTES: Final = 1 << 16

#: Compiled code fuses several operations on these dtypes in float32 before it rounds.
_HALVES: Final = frozenset({dt.float16, dt.bfloat16})
#: Dtypes for which a step computes sums of products.
_SUMMED: Final = frozenset(d for d in dt.ALL if ("DOT", d.code, d.code) in LOOPS)
_DIVISIONS: Final = frozenset({Op.IDIV, Op.MOD})


class CachedProgram(LruValue):
    """Graphs that differ only in numbers, and their program, if there is one.

    Numbers that are sizes, such as the 5 in ``arange(5)``, are the same in all of these graphs.

    Parameters
    ----------
    values : sequence of UOp
        Nodes to compute, with or without tags.
    commits : sequence of (UOp, UOp)
        BUFFER nodes, each with the value to write there.
    read, numbers : sequence of UOp
        BUFFER nodes and CONST nodes of the graph, in the order in which later graphs list theirs.
    family : SizeFamily
        Family of graphs that differ also in sizes. It adds up the cost of interpreting.
    """

    def __init__(
        self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]], read: Sequence[UOp],
        numbers: Sequence[UOp], family: SizeFamily,
    ) -> None:  # fmt: skip
        self._budget = family.budget
        self._entry: Entry | None = None
        #: The positions of the numbers that are sizes.
        self.fixed: tuple[int, ...] = ()
        with contextlib.suppress(Unfit):
            writer = _Writer(values, commits, read, numbers)
            self.fixed = tuple(writer.size_positions)
            self.weigh(writer.length)
            self._budget.limit = COMPILE_NS + COMPILE_STEP_NS * writer.length
            self._budget.add(WRITING_NS * writer.length)
            sizes = tuple([(math.prod(_shape(v)), v.dtype) for v in values])
            program = writer.finished(self._budget)
            self._entry = Entry(program, tuple(range(len(sizes))), sizes, 0)
            self._entry.weigh(writer.length)
            self._entry.uses.nodes = writer.length

    def take_entry(self) -> Entry | None:
        """Return an entry that interprets these graphs; None if they should be compiled.

        After None, all graphs of the family are compiled.
        """
        if self._entry is None or not self._entry.is_spent():
            return self._entry
        self._budget.exhaust()
        return None


def _shape(node: UOp) -> Shape:
    """Return the shape of a node that is known to be static."""
    return node.shape  # type: ignore[return-value]


def _need_static(dims: Iterable[Any]) -> None:
    if not is_static(tuple(dims)):
        raise Unfit


# ---- programs


class _Writer(ProgramBuilder):
    """Writer of the program of graphs; see :class:`CachedProgram` for the parameters.

    Raises
    ------
    Unfit
        The graphs cannot be interpreted.
    """

    def __init__(
        self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]], read: Sequence[UOp],
        numbers: Sequence[UOp],
    ) -> None:  # fmt: skip
        super().__init__(read, numbers)
        self.cost = RUN_NS
        self._keeps: list[object] = []  # owners of compiled code
        self._n_results = len(values)
        roots = [*values, *(new for _, new in commits)]
        self.write(toposort(roots, kept=Kept), roots)
        for i, value in enumerate(values):
            slot = self.slots[self.owned(value)]
            slot.base, slot.offset = FIRST_BUFFER + len(read) + i, 0
        self._writes = [
            (self.buffer_positions[storage], self.owned(new)) for storage, new in commits
        ]

    def finished(self, budget: Budget) -> Interpretation:
        """Assign offsets to all values and make the program."""
        nbytes = self._place_slots()
        calls = [(before, function, [self._array(*array) for array in arrays])
                 for before, function, arrays in self.calls]  # fmt: skip
        numbers = [(self.slots[slot].offset, code, len(self.buffer_positions) + position)
                   for slot, code, position in self.number_slots]  # fmt: skip
        writes = [(buffer, self.slots[slot].offset, self.slots[slot].nbytes)
                  for buffer, slot in self._writes]  # fmt: skip
        return Interpretation(
            self.steps, self.slots, calls, bytes(self.constant_data), nbytes, numbers,
            len(self.buffer_positions), self._n_results, writes, self.cost, budget, self._keeps,
        )  # fmt: skip

    def _array(self, view: View, dtype: dt.DType) -> tuple[Any, ...]:
        """Describe an array for `calls` of :class:`kernelrt.native.interpreter.Interpretation`."""
        slot = self.slots[view.slot]
        offset = slot.offset + view.offset
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
        kind = dt.to_numpy(dtype)
        return slot.base, offset, view.shape, view.strides, kind, offset + sum(ends) + kind.itemsize

    def _place_slots(self) -> int:
        """Assign offsets to slots in the memory of a run; return its size in bytes."""
        total = 0
        own = [slot for slot in self.slots if slot.base == ARENA]
        for slot in own:
            slot.offset = total
            total += -(-slot.nbytes // ALIGNMENT) * ALIGNMENT
        if total <= REUSED_BYTES:
            return total
        # The slots of each step and each call, in the order in which they run.
        used = [self.steps.slots_of(i) for i in range(len(self.steps))]
        for before, _, arrays in reversed(self.calls):
            used.insert(before, [view.slot for view, _ in arrays])
        # Permanent values must last as if they were read at the end, and numbers as if they were
        # written at the start.
        used.append([i for i, slot in enumerate(self.slots) if slot.permanent])
        used[0] = used[0] + [slot for slot, _, _ in self.number_slots]
        holders = {slot: scheduled.Intermediate(slot.nbytes, dt.uint8) for slot in own}
        uses = [[holders[slot] for i in row if (slot := self.slots[i]) in holders] for row in used]
        offsets, total = arena.plan_arena(uses, None, ())
        for slot, holder in holders.items():
            slot.offset = offsets.get(holder, 0)
        return total

    # ---- values

    def same(self, number: float, dtype: dt.DType, shape: Shape) -> View:
        """Make a value whose elements all equal one constant."""
        slot = self.add_constant(np.array(number, dt.to_numpy(dtype)).tobytes())
        return View(slot, 0, shape, (0,) * len(shape))

    def owned(self, root: UOp) -> int:
        """Return a slot that holds only this value, packed; copy the value if needed."""
        view = self.views[root]
        slot = self.slots[view.slot]
        nbytes = math.prod(view.shape) * root.dtype.itemsize
        alone = slot.base == ARENA and slot.nbytes == nbytes and not slot.permanent
        if not (alone and are_packed(view.shape, view.strides, root.dtype.itemsize)):
            view = self.copied(view, root.dtype.itemsize)
            slot = self.slots[view.slot]
        slot.permanent = True
        return view.slot

    def copy(self, target: View, source: View, itemsize: int) -> None:
        """Add a step that copies elements to a view of the same shape."""
        self.step(LOOPS["COPY", itemsize, itemsize], [target, source])

    def write_rare(self, node: UOp) -> None:
        rule = _RULES.get(node.op)
        if rule is None:
            raise Unfit
        rule(self, node)

    # ---- leaves

    def const(self, node: UOp) -> None:
        self.views[node] = self.same(node.arg, node.dtype, ())

    def iota(self, node: UOp) -> None:
        position = self.number_positions.get(node.src[0])
        if position is not None:
            self.size_positions.append(position)
        (n,) = _shape(node)
        if node.dtype is not dt.int64:
            raise Unfit
        if n * node.dtype.itemsize <= CONSTANT_BYTES:
            slot = self.add_constant(np.arange(n, dtype=np.int64).tobytes())
            self.views[node] = View(slot, 0, (n,), (8,))
        else:
            self.views[node] = out = self.new((n,), 8)
            self.step(LOOPS["COUNT", node.dtype.code, node.dtype.code], [out])

    # ---- elements

    def element(self, node: UOp) -> None:
        """Write an elementwise operation that `_element_loops` lacks."""
        op, dtype = node.op, node.dtype
        views = [self.views[s] for s in node.src]
        if op is Op.BITCAST:
            if node.src[0].dtype.itemsize != dtype.itemsize:
                raise Unfit
            self.views[node] = views[0]
            return
        loop = LOOPS["BLOCKS", 0, 0]
        # The loop of a power computes some constant exponents, and blocks for the others.
        if op is Op.POW and build.const_value(node.src[1]) is not None:
            loop = LOOPS.get((op.name, node.src[0].dtype.code, dtype.code), loop)
        if op in FUNCTIONS and node.src[0] in self.constant_nodes:
            raise Unfit  # the compiler folds functions of constants, correctly rounded
        kinds = tuple([s.dtype for s in node.src])
        kernel = _kernel(op, node.arg, kinds, dtype)
        self._keeps.append(kernel)
        out, part, given = self.computed(dtype.itemsize, views)
        if merged_axes(given) > 1:  # a call for each row would compute a block for each
            given = [v if not any(v.strides) or are_packed(v.shape, v.strides, k.itemsize)
                     else self.copied(v, k.itemsize)
                     for v, k in zip(given, kinds, strict=True)]  # fmt: skip
        self.cost += FUNCTION_NS * BLOCK  # the last block is computed as a whole
        self.step(loop, [part, *given], code=kernel.address,
                  more=[k.itemsize for k in (dtype, *kinds)], each_ns=FUNCTION_NS)  # fmt: skip
        self.views[node] = out

    def bound(self, node: UOp) -> None:
        index, size = [self.views[s] for s in node.src]
        views = [index, View(size.slot, size.offset, index.shape, (0,) * len(index.shape))]
        loop = LOOPS.get(("BOUND", node.src[0].dtype.code, node.dtype.code))
        if loop is None or node.src[0].dtype is not node.src[1].dtype:
            raise Unfit
        self.views[node] = self.elementwise(loop, node.dtype.itemsize, views)

    # ---- movement

    def flip(self, node: UOp) -> None:
        view = self.views[node.src[0]]
        flipped = [axis for axis in node.arg if view.shape[axis]]
        begin = sum((view.shape[axis] - 1) * view.strides[axis] for axis in flipped)
        strides = tuple([-s if axis in flipped else s for axis, s in enumerate(view.strides)])
        self.views[node] = View(view.slot, view.offset + begin, view.shape, strides)

    def window(self, node: UOp) -> None:
        _need_static([n for window in node.arg for n in window])
        view = self.views[node.src[0]]
        strides = _windowed(view.strides, node.arg)
        self.views[node] = View(view.slot, view.offset, _shape(node), strides)

    def unwindow(self, node: UOp) -> None:
        whole, windows = node.arg
        _need_static([*whole, *[n for window in windows for n in window]])
        view, itemsize = self.views[node.src[0]], node.dtype.itemsize
        out = self.zeros(node)
        rest = len(whole)
        inner = [*_windowed(out.strides[:rest], windows)]
        for t in range(len(windows)):
            inner[rest + t] += out.strides[rest + t]
        self.copy(View(out.slot, 0, view.shape, tuple(inner)), view, itemsize)
        self.views[node] = out

    def zeros(self, node: UOp) -> View:
        """Add a step that fills memory for a node with zeros."""
        out = self.new(_shape(node), node.dtype.itemsize)
        self.copy(out, self.same(0, node.dtype, out.shape), node.dtype.itemsize)
        return out

    def pad(self, node: UOp) -> None:
        _need_static([n for pair in node.arg for n in pair])
        source, out = self.views[node.src[0]], self.zeros(node)
        begin = sum(low * s for (low, _), s in zip(node.arg, out.strides, strict=True))
        inner = View(out.slot, begin, source.shape, out.strides)
        self.copy(inner, source, node.dtype.itemsize)
        self.views[node] = out

    def cat(self, node: UOp) -> None:
        out = self.new(_shape(node), node.dtype.itemsize)
        begin = 0
        for source in [self.views[s] for s in node.src]:
            part = View(out.slot, begin * out.strides[node.arg], source.shape, out.strides)
            self.copy(part, source, node.dtype.itemsize)
            begin += source.shape[node.arg]
        self.views[node] = out

    # ---- indices

    def _places_of(self, indices: Sequence[UOp], shape: Shape) -> list[View]:
        """Return the indices for all axes of a tensor, as int64."""
        if not indices or len(indices) != len(shape):
            raise Unfit
        return [
            self.views[i] if i.dtype is dt.int64 else
            self.elementwise(LOOPS["CAST", i.dtype.code, dt.int64.code], 8, [self.views[i]])
            for i in indices
        ]  # fmt: skip

    def gather(self, node: UOp) -> None:
        source, *indices = node.src
        view, size = self.views[source], node.dtype.itemsize
        if not indices:
            self.views[node] = view
            return
        out, part, given = self.computed(size, self._places_of(indices, view.shape))
        table = View(view.slot, view.offset, part.shape, (0,) * len(part.shape))
        more = [n for axis in zip(view.shape, view.strides, strict=True) for n in axis]
        self.step(LOOPS["GATHER", size, size], [part, table, *given], more=more, each_ns=INDEX_NS)
        self.views[node] = out

    def scatter(self, node: UOp) -> None:
        base, values, *indices = node.src
        code, size = node.dtype.code, node.dtype.itemsize
        name = ("SECOND", size, size) if node.arg is None else (node.arg.name, code, code)
        combine = LOOPS.get(name)
        if combine is None:
            raise Unfit
        self.views[node] = out = self.copied(self.views[base], size)
        given = [self.views[values], *self._places_of(indices, out.shape)]
        shape = given[0].shape
        self.cost += 5 * INDEX_NS * math.prod(shape)
        table = View(out.slot, 0, shape, (0,) * len(shape))
        more = [n for axis in zip(out.shape, out.strides, strict=True) for n in axis]
        self.append(LOOPS["SCATTER", 0, 0], [table, *given], combine=combine, more=more)

    # ---- reductions

    def reduce(self, node: UOp) -> None:
        reducer, axes = node.arg
        (source,) = node.src
        if 0 in [_shape(source)[axis] for axis in axes]:
            nothing = empty_result(reducer, node.dtype)
            self.views[node] = self.same(nothing, node.dtype, _shape(node))
        elif source in self.views:
            name = f"REDUCE_{reducer.name}"
            self.views[node] = self._reduced(node, name, [self.views[source]], ELEMENT_NS)
        else:  # a product that only this sum reads: it is computed with the sum
            factors = [self.views[s] for s in source.src]
            made = self._multiplied(node, factors)
            if made is None:
                made = self._reduced(node, "DOT", factors, TERM_NS)
            self.views[node] = made

    def _reduced(self, node: UOp, name: str, views: list[View], each_ns: float) -> View:
        """Add a step that reduces one value, or the product of two."""
        loop = LOOPS.get((name, node.dtype.code, node.dtype.code))
        if loop is None:
            raise Unfit
        return self.reduced(loop, node.dtype.itemsize, views, node.arg[1], each_ns)

    def _multiplied(self, node: UOp, factors: list[View]) -> View | None:
        """Compute a sum of products by NumPy if it is a large matrix product, else return None."""
        one, two = factors
        shape, reduced = one.shape, node.arg[1]
        if math.prod(shape) < LEAST_MATMUL_TERMS:
            return None
        both: list[int] = []
        rows: list[int] = []
        columns: list[int] = []
        inner: list[int] = []
        none: list[int] = []
        for axis, size in enumerate(shape):
            here, there = (size > 1 and view.strides[axis] != 0 for view in factors)
            if axis in reduced:
                if not (here and there) and size != 1:
                    return None
                inner.append(axis)
            elif here:
                (both if there else rows).append(axis)
            else:
                (columns if there else none).append(axis)
        b, m, k, n = (math.prod([shape[a] for a in part]) for part in (both, rows, inner, columns))
        if b * m * n * k < LEAST_MATMUL_TERMS or not inner or not (rows or columns):
            return None
        order = [*both, *rows, *columns]
        itemsize = node.dtype.itemsize
        out = self.new(tuple([shape[a] for a in order]), itemsize)
        flat = View(out.slot, 0, (b, m, n), packed_strides((b, m, n), itemsize))
        left = self._ordered(one, [*both, *rows, *inner], node.dtype)
        right = self._ordered(two, [*both, *inner, *columns], node.dtype)
        arrays = [(flat, node.dtype), (left, node.dtype), (right, node.dtype)]
        self.calls.append((len(self.steps), _multiplying((b, m, k), (b, k, n)), arrays))
        self.cost += MATMUL_NS + b * k * (MATMUL_TERM_NS * m * n + 2 * ELEMENT_NS * (m + n))
        kept = sorted([*order, *none])
        strides = dict(zip(order, out.strides, strict=True))
        return View(out.slot, 0, tuple([shape[a] for a in kept]),
                    tuple([strides.get(a, 0) for a in kept]))  # fmt: skip

    def _ordered(self, view: View, axes: Sequence[int], dtype: dt.DType) -> View:
        """Return the view with its axes in this order; copy it if a stride is negative."""
        found = View(view.slot, view.offset, tuple([view.shape[a] for a in axes]),
                     tuple([view.strides[a] for a in axes]))  # fmt: skip
        return self.copied(found, dtype.itemsize) if min(found.strides, default=0) < 0 else found


def _element_loops() -> dict[tuple[Op, dt.DType, dt.DType], tuple[int, float]]:
    """Return the loop and the cost of an element, by op, dtype of the first operand and result."""
    found: dict[tuple[Op, dt.DType, dt.DType], tuple[int, float]] = {}
    ops = {op.name: op for op in ALU.difference({Op.POW, Op.WHERE, Op.BITCAST})}
    dtypes = {dtype.code: dtype for dtype in dt.ALL}
    for (name, operand, result), loop in LOOPS.items():
        if (op := ops.get(name)) is not None:
            each_ns = DIVISION_NS if op in _DIVISIONS else ELEMENT_NS
            found[op, dtypes[operand], dtypes[result]] = loop, each_ns
    for dtype in dt.ALL:
        loop = LOOPS["WHERE", dtype.itemsize, dtype.itemsize]
        found[Op.WHERE, dt.bool_, dtype] = loop, ELEMENT_NS
    return found


#: Writers of the nodes that ProgramBuilder does not write.
_RULES: Final[dict[Op, Callable[[_Writer, UOp], None]]] = {
    Op.CONST: _Writer.const, Op.IOTA: _Writer.iota, Op.BOUND: _Writer.bound,
    Op.FLIP: _Writer.flip, Op.PAD: _Writer.pad, Op.IM2COL: _Writer.window,
    Op.COL2IM: _Writer.unwindow, Op.CAT: _Writer.cat, Op.GATHER: _Writer.gather,
    Op.SCATTER: _Writer.scatter, Op.REDUCE_AXIS: _Writer.reduce,
    **dict.fromkeys(ALU, _Writer.element),
}  # fmt: skip
interpreter._name_costs(STEP_NS, ELEMENT_NS, MOST_BYTES)
interpreter._name_rules(
    (Op.CONST, Op.BUFFER, Op.EXPAND, Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.DETACH, Op.CONTIGUOUS,
     Op.REDUCE_AXIS, Op.ADD, Op.MUL),
    _element_loops(), Kept, Buffer, _HALVES, _SUMMED,
)  # fmt: skip


def _windowed(strides: Shape, windows: Sequence[tuple[int, int, int, int]]) -> Shape:
    """Return the strides of windows over a tensor; the last axes are positions in a window."""
    found, taps = [*strides], []
    for axis, _, stride, dilation in windows:
        taps.append(found[axis] * dilation)
        found[axis] *= stride
    return (*found, *taps)


@functools.lru_cache(1024)
def _multiplying(left: Shape, right: Shape) -> Callable[[Array, Array, Array], None]:
    """Return a function that reshapes two arrays to stacks of matrices and multiplies them."""

    def multiply(out: Array, x: Array, y: Array) -> None:
        with np.errstate(all="ignore"):
            np.matmul(x.reshape(left), y.reshape(right), out=out)

    return multiply


class _Kernel:
    """Compiled code of one elementwise operation, for a block of elements.

    Parameters
    ----------
    op, arg : Op, object
        Operation.
    kinds : tuple of DType
        Dtypes of the operands.
    dtype : DType
        Dtype of the result.
    """

    def __init__(self, op: Op, arg: object, kinds: tuple[dt.DType, ...], dtype: dt.DType) -> None:
        i = UOp(Op.RANGE, dt.int64, (const(BLOCK, dt.int64),), 0)
        result, *operands = [
            UOp(Op.PARAM, kind, (), (slot, BLOCK)) for slot, kind in enumerate((dtype, *kinds))
        ]
        loads = tuple([UOp(Op.LOAD, kind, (operand, i))
                       for operand, kind in zip(operands, kinds, strict=True)])  # fmt: skip
        store = UOp(Op.STORE, dtype, (result, i, UOp(op, dtype, loads, arg)))
        device = opened()
        if device.renderer is None:
            raise Unfit
        spec = device.renderer.render(UOp(Op.SINK, dtype, (store,)))
        if spec.global_size != (1, 1, 1) or spec.var_names:
            raise Unfit  # the kernel needs more than one call
        [self._program] = device.loader.load(device.compiler.compile([spec]))
        self.address: int = self._program.address


_kernel = functools.cache(_Kernel)
