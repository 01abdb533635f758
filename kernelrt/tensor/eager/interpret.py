"""Interpreter: runs graphs operation by operation while compiling them would take longer.

A small graph compiles in tens of milliseconds. A C loop for one operation and dtype runs in well
under a microsecond. So a graph is interpreted until that has cost about as much as compiling it.
Both costs are estimated from the sizes of the graph, not measured, so a program gives the same bits
each time it runs. Elementwise results are bitwise equal to those of compiled code. Reductions of
floats differ in their last bits, because their terms are combined in another order.

This module writes programs: it chooses the loop of each operation, and the offsets and strides of
its operands. ``csrc/interpret.c`` has the loops and runs them.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.allocator import ALIGNMENT
from kernelrt.device.buffer import Buffer
from kernelrt.device.registry import allocator, opened
from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.ir.ops import ALU, FUNCTIONS
from kernelrt.ir.reducers import empty_result
from kernelrt.ir.shape import are_packed, is_static, packed_strides, reshaped_strides
from kernelrt.native import interpreter
from kernelrt.native.evaluate import Entry, LruValue
from kernelrt.native.interpreter import (
    ARENA,
    AXES,
    BLOCK,
    CONSTANTS,
    FIRST_BUFFER,
    LOOPS,
    Budget,
    Interpretation,
    joined,
)  # fmt: skip
from kernelrt.tensor.autograd.tags import Kept, is_kept
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
#: Cost of writing a program, for each node of its graph.
WRITING_NS: Final = 5e3
#: Cost of an element of a result: of plain arithmetic; of an integer division; of a function such
#: as exp, which computes whole blocks; of a gather or scatter.
ELEMENT_NS: Final = 0.5
DIVISION_NS: Final = 5.0
FUNCTION_NS: Final = 4.0
PLACE_NS: Final = 8.0
#: Cost of a term of a sum of products: in a loop, and in a matrix product; and the fixed cost of a
#: matrix product.
TERM_NS: Final = 0.6
PRODUCT_NS: Final = 0.03
PRODUCTS_NS: Final = 4e3
#: Minimum number of products for which NumPy multiplies matrices.
MANY_PRODUCTS: Final = 1 << 13
#: A graph with a larger intermediate result is compiled, because fusion avoids most of the memory.
MOST_BYTES: Final = 16 << 20
#: If all values take more memory, values reuse the memory of values that no later step reads.
REUSED_BYTES: Final = 1 << 16
#: Larger iotas are computed by a step instead of stored as constants.
CONSTANT_BYTES: Final = 1 << 16

#: Compiled code fuses several operations on these dtypes in float32 before it rounds.
_HALVES: Final = frozenset({dt.float16, dt.bfloat16})
#: Dtypes for which a step computes sums of products.
_SUMMED: Final = frozenset({dt.float32, dt.float64})
_DIVISIONS: Final = frozenset({Op.IDIV, Op.MOD})


class _Unfit(Exception):  # noqa: N818 - control flow that users never see
    """The interpreter cannot run this graph: compile it."""


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
        with contextlib.suppress(_Unfit):
            writer = _Writer(values, commits, read, numbers)
            self.fixed = tuple(writer.fixed)
            self.weigh(writer.length)
            self._budget.limit = COMPILE_NS + COMPILE_STEP_NS * writer.length
            self._budget.spent += WRITING_NS * writer.length
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
        self._budget.spent = math.inf
        return None


def _shape(node: UOp) -> Shape:
    """Return the shape of a node that is known to be static."""
    return node.shape  # type: ignore[return-value]


def _need_static(dims: Iterable[Any]) -> None:
    if not is_static(tuple(dims)):
        raise _Unfit


def _products(order: Sequence[UOp], roots: Sequence[UOp]) -> set[UOp]:
    """Return the products whose only reader is a sum, which computes them without storing them."""
    found = {
        node.src[0] for node in order
        if node.op is Op.REDUCE_AXIS and node.arg[0] is Op.ADD and node.src[0].op is Op.MUL
        and node.dtype in _SUMMED
    }.difference(roots)  # fmt: skip
    if found:
        uses = Counter([source for node in order for source in node.src if source in found])
        found = {node for node in found if uses[node] == 1}
    return found


# ---- arrays with strides


class View(NamedTuple):
    """A strided array in a slot.

    Attributes
    ----------
    slot : int
        Index of the slot.
    offset : int
        Bytes from the start of the slot to the first element.
    shape, strides : tuple of int
        Size and stride of each axis; strides in bytes. A stride is 0 if all elements along the
        axis are equal and stored once.
    """

    slot: int
    offset: int
    shape: Shape
    strides: Shape


# ---- programs


class _Slot:
    """Memory of a value: its base and offset, and whether it is `kept`, i.e. never reused."""

    __slots__ = ("base", "kept", "nbytes", "offset")

    def __init__(self, base: int, offset: int, nbytes: int) -> None:
        self.base, self.offset, self.nbytes, self.kept = base, offset, nbytes, False


class _Step(NamedTuple):
    """A loop over operands.

    Attributes
    ----------
    loop, combine, code : int
        Addresses of functions; see krt_step in csrc/interpret.h.
    sizes : tuple of int
        Sizes of the axes; the last `reduced` ones are reduced.
    reduced : int
        Number of reduced axes.
    operands : list of (slot, offset, strides)
        Result, then operands.
    more : tuple of int
        Additional parameters of the loop; see krt_step.
    """

    loop: int
    combine: int
    code: int
    sizes: Shape
    reduced: int
    operands: list[tuple[int, int, Shape]]
    more: Shape


#: A Python function that is called between two steps, and its array arguments.
_Call = tuple["Callable[..., None]", list[tuple[View, dt.DType]]]


class _Writer:
    """Writer of the program of graphs; see :class:`CachedProgram` for the parameters.

    Raises
    ------
    _Unfit
        The graphs cannot be interpreted.
    """

    def __init__(
        self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]], read: Sequence[UOp],
        numbers: Sequence[UOp],
    ) -> None:  # fmt: skip
        #: Estimated time of a run, in nanoseconds.
        self.cost = RUN_NS
        #: Positions of numbers that are sizes; other values need another program.
        self.fixed: list[int] = []
        self._constants = bytearray()
        self._numbers: list[tuple[int, int, int]] = []  # slot, code of the type, position
        self._slots: list[_Slot] = []
        self._steps: list[_Step | _Call] = []
        self._views: dict[UOp, View] = {}
        self._keeps: list[object] = []  # owners of compiled code
        self._indices = {node: i for i, node in enumerate(read)}
        self._positions = {node: i for i, node in enumerate(numbers)}
        self._n_results = len(values)
        roots = [*values, *(new for _, new in commits)]
        order = toposort(roots, kept=Kept)
        #: Number of operations.
        self.length = sum(1 for node in order if node.src)
        merged = _products(order, roots)
        #: Nodes computed from CONSTs alone.
        self._constant: set[UOp] = set()
        for node in order:
            if node.op is Op.CONST or (node.src and self._constant.issuperset(node.src)):
                self._constant.add(node)
            rule = _RULES.get(node.op)
            if rule is None or node.dtype in _HALVES or not is_static(node.shape):
                raise _Unfit
            if node not in merged:
                rule(self, node)
        for i, value in enumerate(values):
            slot = self._slots[self.owned(value)]
            slot.base, slot.offset = FIRST_BUFFER + len(read) + i, 0
        self._writes = [(self._indices[storage], self.owned(new)) for storage, new in commits]

    def finished(self, budget: Budget) -> Interpretation:
        """Assign offsets to all values and make the program."""
        arena = self._place_slots()
        steps: list[tuple[Any, ...]] = []
        calls = []
        for step in self._steps:
            if isinstance(step, _Step):
                layout = [*step.sizes]
                for slot, offset, strides in step.operands:
                    layout += [self._slots[slot].base, self._slots[slot].offset + offset, *strides]
                steps.append((step.loop, step.combine, step.code, len(step.sizes), step.reduced,
                              len(step.operands), layout, step.more))  # fmt: skip
            else:
                function, arrays = step
                calls.append((len(steps), function, [self._array(*array) for array in arrays]))
        numbers = [(self._slots[slot].offset, code, len(self._indices) + position)
                   for slot, code, position in self._numbers]  # fmt: skip
        writes = [(buffer, self._slots[slot].offset, self._slots[slot].nbytes)
                  for buffer, slot in self._writes]  # fmt: skip
        return Interpretation(
            steps, calls, bytes(self._constants), arena, numbers, len(self._indices),
            self._n_results, writes, self.cost, budget, self._keeps,
        )  # fmt: skip

    def _array(self, view: View, dtype: dt.DType) -> tuple[Any, ...]:
        """Describe an array for `calls` of :class:`kernelrt.native.interpreter.Interpretation`."""
        slot = self._slots[view.slot]
        offset = slot.offset + view.offset
        ends = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
        kind = dt.to_numpy(dtype)
        return slot.base, offset, view.shape, view.strides, kind, offset + sum(ends) + kind.itemsize

    def _place_slots(self) -> int:
        """Assign offsets to slots in the memory of a run; return its size in bytes."""
        total = 0
        own = [slot for slot in self._slots if slot.base == ARENA]
        for slot in own:
            slot.offset = total
            total += -(-slot.nbytes // ALIGNMENT) * ALIGNMENT
        if total <= REUSED_BYTES:
            return total
        holders = {slot: scheduled.Intermediate(slot.nbytes, dt.uint8) for slot in own}
        last = len(self._steps)  # an extra last step that reads all kept slots
        uses: list[list[scheduled.Intermediate]] = [[] for _ in range(last + 1)]
        for i, step in enumerate(self._steps):
            views = step.operands if isinstance(step, _Step) else [view for view, _ in step[1]]
            uses[i] = [holders[slot] for view in views if (slot := self._slots[view[0]]) in holders]
        kept = [slot for slot in own if slot.kept]
        uses[last] = [holders[slot] for slot in kept]
        # Numbers are stored before the first step.
        uses[0] += [holders[self._slots[slot]] for slot, _, _ in self._numbers]
        offsets, total = arena.plan_arena(uses, None, ())
        for slot, holder in holders.items():
            slot.offset = offsets.get(holder, 0)
        return total

    # ---- values

    def slot(self, base: int, offset: int, nbytes: int) -> int:
        """Make a slot."""
        self._slots.append(_Slot(base, offset, nbytes))
        return len(self._slots) - 1

    def new(self, shape: Shape, itemsize: int) -> View:
        """Make a slot of elements in the memory of a run."""
        size = math.prod(shape)
        if size * itemsize > MOST_BYTES:
            raise _Unfit
        return View(self.slot(ARENA, 0, size * itemsize), 0, shape, packed_strides(shape, itemsize))

    def constant(self, values: Array) -> int:
        """Make a slot of constants."""
        data = values.tobytes()
        self._constants += bytes(-len(self._constants) % 8)
        self._constants += data
        return self.slot(CONSTANTS, len(self._constants) - len(data), len(data))

    def same(self, number: float, dtype: dt.DType, shape: Shape) -> View:
        """Make a value whose elements all equal one constant."""
        slot = self.constant(np.array(number, dt.to_numpy(dtype)))
        return View(slot, 0, shape, (0,) * len(shape))

    def owned(self, root: UOp) -> int:
        """Return a slot that holds only this value, packed; copy the value if needed."""
        view = self._views[root]
        slot = self._slots[view.slot]
        nbytes = math.prod(view.shape) * root.dtype.itemsize
        alone = slot.base == ARENA and slot.nbytes == nbytes and not slot.kept
        if not (alone and are_packed(view.shape, view.strides, root.dtype.itemsize)):
            view = self.copied(view, root.dtype.itemsize)
            slot = self._slots[view.slot]
        slot.kept = True
        return view.slot

    # ---- steps

    def step(
        self, loop: int, shape: Shape, views: Sequence[View], *, code: int = 0,
        more: Sequence[int] = (), each_ns: float = ELEMENT_NS,
    ) -> None:  # fmt: skip
        """Add a step over views of one shape; the first view is the result."""
        self.cost += STEP_NS + each_ns * math.prod(shape)
        if 0 in shape:
            return
        sizes, strides = joined(shape, [v.strides for v in views])
        self.append(loop, 0, code, sizes, 0, views, strides, more)

    def append(
        self, loop: int, combine: int, code: int, sizes: Shape, reduced: int,
        views: Sequence[View], strides: Sequence[Shape], more: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Add a step."""
        if len(sizes) > AXES or len(views) > AXES + 2:
            raise _Unfit
        operands = [(v.slot, v.offset, s) for v, s in zip(views, strides, strict=True)]
        self._steps.append(_Step(loop, combine, code, sizes, reduced, operands, tuple(more)))

    def copy(self, target: View, source: View, itemsize: int) -> None:
        """Add a step that copies elements."""
        self.step(LOOPS["COPY", itemsize, itemsize], source.shape, [target, source])

    def copied(self, view: View, itemsize: int) -> View:
        """Return a packed copy of a value."""
        out = self.new(view.shape, itemsize)
        self.copy(out, view, itemsize)
        return out

    def computed(
        self, dtype: dt.DType, views: Sequence[View]
    ) -> tuple[View, View, list[View]]:
        """Make the result of an elementwise operation.

        Along axes where all operands are broadcast, one element is computed. Return the result
        with all elements, the part of it that is computed, and the operands cut to that part.
        """
        shape = views[0].shape
        once = [not any(steps) for steps in zip(*[v.strides for v in views], strict=True)]
        if True not in once:
            out = self.new(shape, dtype.itemsize)
            return out, out, [*views]
        few = tuple([min(n, 1) if one else n for n, one in zip(shape, once, strict=True)])
        part = self.new(few, dtype.itemsize)
        steps = tuple([0 if one else s for s, one in zip(part.strides, once, strict=True)])
        out = View(part.slot, 0, shape, steps)
        return out, part, [View(v.slot, v.offset, few, v.strides) for v in views]

    def elementwise(
        self, loop: int, dtype: dt.DType, views: Sequence[View], each_ns: float = ELEMENT_NS
    ) -> View:
        """Add the step of an elementwise operation."""
        out, part, given = self.computed(dtype, views)
        self.step(loop, part.shape, [part, *given], each_ns=each_ns)
        return out

    # ---- leaves

    def const(self, node: UOp) -> None:
        position = self._positions.get(node)
        if position is None:
            self._views[node] = self.same(node.arg, node.dtype, ())
        else:
            cell = self.slot(ARENA, 0, 8)
            self._slots[cell].kept = True
            self._numbers.append((cell, node.dtype.code, position))
            self._views[node] = View(cell, 0, (), ())

    def buffer(self, node: UOp) -> None:
        buffer = self._indices.get(node)
        if buffer is None or type(node.arg) is not Buffer:  # for example a StandIn without memory
            raise _Unfit
        shape, itemsize = _shape(node), node.dtype.itemsize
        slot = self.slot(FIRST_BUFFER + buffer, 0, math.prod(shape) * itemsize)
        self._views[node] = View(slot, 0, shape, packed_strides(shape, itemsize))

    def iota(self, node: UOp) -> None:
        position = self._positions.get(node.src[0])
        if position is not None:
            self.fixed.append(position)
        (n,) = _shape(node)
        if node.dtype is not dt.int64:
            raise _Unfit
        if n * node.dtype.itemsize <= CONSTANT_BYTES:
            slot = self.constant(np.arange(n, dtype=np.int64))
            self._views[node] = View(slot, 0, (n,), (8,))
        else:
            self._views[node] = out = self.new((n,), 8)
            self.step(LOOPS["COUNT", node.dtype.code, node.dtype.code], (n,), [out])

    # ---- elements

    def element(self, node: UOp) -> None:
        views = [self._views[s] for s in node.src]
        self._views[node] = self._element(node, views)

    def _element(self, node: UOp, views: list[View]) -> View:
        op, kind, dtype = node.op, node.src[0].dtype, node.dtype
        if op is Op.BITCAST:
            if kind.itemsize != dtype.itemsize:
                raise _Unfit
            return views[0]
        if op is Op.WHERE:
            return self.elementwise(LOOPS["WHERE", dtype.itemsize, dtype.itemsize], dtype, views)
        loop = LOOPS.get((op.name, kind.code, dtype.code))
        if op is Op.POW and build.const_value(node.src[1]) is None:
            loop = None
        if loop is not None and op is not Op.POW:
            each = DIVISION_NS if op in _DIVISIONS else ELEMENT_NS
            return self.elementwise(loop, dtype, views, each)
        if op in FUNCTIONS and node.src[0] in self._constant:
            raise _Unfit  # the compiler folds functions of constants, correctly rounded
        kinds = tuple([s.dtype for s in node.src])
        kernel = _kernel(op, node.arg, kinds, dtype)
        self._keeps.append(kernel)
        out, part, given = self.computed(dtype, views)
        sizes, _ = joined(part.shape, [v.strides for v in given])
        if len(sizes) > 1:  # a call for each row would compute a block for each
            given = [v if not any(v.strides) or are_packed(v.shape, v.strides, k.itemsize)
                     else self.copied(v, k.itemsize)
                     for v, k in zip(given, kinds, strict=True)]  # fmt: skip
        self.cost += FUNCTION_NS * BLOCK
        self.step(loop or LOOPS["BLOCKS", 0, 0], part.shape, [part, *given], code=kernel.address,
                  more=[k.itemsize for k in (dtype, *kinds)], each_ns=FUNCTION_NS)  # fmt: skip
        return out

    def bound(self, node: UOp) -> None:
        index, size = [self._views[s] for s in node.src]
        views = [index, size._replace(shape=index.shape, strides=(0,) * len(index.shape))]
        loop = LOOPS.get(("BOUND", node.src[0].dtype.code, node.dtype.code))
        if loop is None or node.src[0].dtype is not node.src[1].dtype:
            raise _Unfit
        self._views[node] = self.elementwise(loop, node.dtype, views)

    # ---- movement

    def passed_on(self, node: UOp) -> None:
        self._views[node] = self._views[node.arg.storage if is_kept(node) else node.src[0]]

    def expand(self, node: UOp) -> None:
        view, shape = self._views[node.src[0]], _shape(node)
        strides = tuple([s if n == m else 0 for s, n, m in
                         zip(view.strides, view.shape, shape, strict=True)])  # fmt: skip
        self._views[node] = View(view.slot, view.offset, shape, strides)

    def reshape(self, node: UOp) -> None:
        view, shape = self._views[node.src[0]], _shape(node)
        strides = reshaped_strides(view.shape, view.strides, shape)
        if strides is None:
            view = self.copied(view, node.dtype.itemsize)
            strides = packed_strides(shape, node.dtype.itemsize)
        self._views[node] = View(view.slot, view.offset, shape, strides)

    def permute(self, node: UOp) -> None:
        view = self._views[node.src[0]]
        shape, strides = ([row[axis] for axis in node.arg] for row in (view.shape, view.strides))
        self._views[node] = View(view.slot, view.offset, tuple(shape), tuple(strides))

    def shrink(self, node: UOp) -> None:
        _need_static([n for ends in node.arg for n in ends])
        view = self._views[node.src[0]]
        begin = sum(low * s for (low, _), s in zip(node.arg, view.strides, strict=True))
        self._views[node] = View(view.slot, view.offset + begin, _shape(node), view.strides)

    def flip(self, node: UOp) -> None:
        view = self._views[node.src[0]]
        flipped = [axis for axis in node.arg if view.shape[axis]]
        begin = sum((view.shape[axis] - 1) * view.strides[axis] for axis in flipped)
        strides = tuple([-s if axis in flipped else s for axis, s in enumerate(view.strides)])
        self._views[node] = View(view.slot, view.offset + begin, view.shape, strides)

    def window(self, node: UOp) -> None:
        _need_static([n for window in node.arg for n in window])
        view = self._views[node.src[0]]
        strides = _windowed(view.strides, node.arg)
        self._views[node] = View(view.slot, view.offset, _shape(node), strides)

    def unwindow(self, node: UOp) -> None:
        whole, windows = node.arg
        _need_static([*whole, *[n for window in windows for n in window]])
        view, itemsize = self._views[node.src[0]], node.dtype.itemsize
        out = self.zeros(node)
        rest = len(whole)
        inner = [*_windowed(out.strides[:rest], windows)]
        for t in range(len(windows)):
            inner[rest + t] += out.strides[rest + t]
        self.copy(out._replace(shape=view.shape, strides=tuple(inner)), view, itemsize)
        self._views[node] = out

    def zeros(self, node: UOp) -> View:
        """Add a step that fills memory for a node with zeros."""
        out = self.new(_shape(node), node.dtype.itemsize)
        self.copy(out, self.same(0, node.dtype, out.shape), node.dtype.itemsize)
        return out

    def pad(self, node: UOp) -> None:
        _need_static([n for pair in node.arg for n in pair])
        source, out = self._views[node.src[0]], self.zeros(node)
        begin = sum(low * s for (low, _), s in zip(node.arg, out.strides, strict=True))
        inner = out._replace(offset=begin, shape=source.shape)
        self.copy(inner, source, node.dtype.itemsize)
        self._views[node] = out

    def cat(self, node: UOp) -> None:
        out = self.new(_shape(node), node.dtype.itemsize)
        begin = 0
        for source in [self._views[s] for s in node.src]:
            part = out._replace(offset=begin * out.strides[node.arg], shape=source.shape)
            self.copy(part, source, node.dtype.itemsize)
            begin += source.shape[node.arg]
        self._views[node] = out

    # ---- indices

    def _places_of(self, indices: Sequence[UOp], shape: Shape) -> list[View]:
        """Return the indices for all axes of a tensor, as int64."""
        if not indices or len(indices) != len(shape):
            raise _Unfit
        return [
            self._views[i] if i.dtype is dt.int64 else
            self.elementwise(LOOPS["CAST", i.dtype.code, dt.int64.code], dt.int64, [self._views[i]])
            for i in indices
        ]  # fmt: skip

    def gather(self, node: UOp) -> None:
        source, *indices = node.src
        view, size = self._views[source], node.dtype.itemsize
        if not indices:
            self._views[node] = view
            return
        out, part, given = self.computed(node.dtype, self._places_of(indices, view.shape))
        table = view._replace(shape=part.shape, strides=(0,) * len(part.shape))
        more = [n for axis in zip(view.shape, view.strides, strict=True) for n in axis]
        self.step(LOOPS["GATHER", size, size], part.shape, [part, table, *given], more=more,
                  each_ns=PLACE_NS)  # fmt: skip
        self._views[node] = out

    def scatter(self, node: UOp) -> None:
        base, values, *indices = node.src
        code, size = node.dtype.code, node.dtype.itemsize
        name = ("SECOND", size, size) if node.arg is None else (node.arg.name, code, code)
        combine = LOOPS.get(name)
        if combine is None:
            raise _Unfit
        self._views[node] = out = self.copied(self._views[base], size)
        given = [self._views[values], *self._places_of(indices, out.shape)]
        shape = given[0].shape
        self.cost += 5 * PLACE_NS * math.prod(shape)
        if 0 in shape:
            return
        table = out._replace(shape=shape, strides=(0,) * len(shape))
        views = [table, *given]
        sizes, strides = joined(shape, [v.strides for v in views])
        more = [n for axis in zip(out.shape, out.strides, strict=True) for n in axis]
        self.append(LOOPS["SCATTER", 0, 0], combine, 0, sizes, 0, views, strides, more)

    # ---- reductions

    def reduce(self, node: UOp) -> None:
        reducer, axes = node.arg
        (source,) = node.src
        if 0 in [_shape(source)[axis] for axis in axes]:
            nothing = empty_result(reducer, node.dtype)
            self._views[node] = self.same(nothing, node.dtype, _shape(node))
        elif source in self._views:
            name = f"REDUCE_{reducer.name}"
            self._views[node] = self._reduced(node, name, [self._views[source]], ELEMENT_NS)
        else:
            factors = [self._views[s] for s in source.src]
            made = self._multiplied(node, factors)
            if made is None:
                made = self._reduced(node, "DOT", factors, TERM_NS)
            self._views[node] = made

    def _reduced(self, node: UOp, name: str, views: list[View], each_ns: float) -> View:
        """Add a step that reduces one value, or the product of two."""
        loop = LOOPS.get((name, node.dtype.code, node.dtype.code))
        whole, reduced = views[0].shape, node.arg[1]
        if loop is None:
            raise _Unfit
        kept = [axis for axis in range(len(whole)) if axis not in reduced]
        outer = [
            View(v.slot, v.offset, tuple([whole[a] for a in kept]),
                 tuple([v.strides[a] for a in kept])) for v in views
        ]  # fmt: skip
        out, part, given = self.computed(node.dtype, outer)
        self.cost += STEP_NS + each_ns * math.prod([*part.shape, *[whole[a] for a in reduced]])
        if 0 not in part.shape:
            operands = [part, *given]
            sizes, strides = joined(part.shape, [v.strides for v in operands])
            along = [tuple([v.strides[a] for a in reduced]) for v in views]
            few, steps = joined([whole[a] for a in reduced], along)
            if not few:  # all reduced axes have one element
                few, steps = (1,), [(0,) for _ in views]
            inner = [(0,) * len(few), *steps]
            self.append(
                loop, 0, 0, (*sizes, *few), len(few), operands,
                [(*a, *b) for a, b in zip(strides, inner, strict=True)],
            )  # fmt: skip
        return out

    def _multiplied(self, node: UOp, factors: list[View]) -> View | None:
        """Compute a sum of products by NumPy if it is a large matrix product, else return None."""
        one, two = factors
        shape, reduced = one.shape, node.arg[1]
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
        if b * m * n * k < MANY_PRODUCTS or not inner or not (rows or columns):
            return None
        order = [*both, *rows, *columns]
        itemsize = node.dtype.itemsize
        out = self.new(tuple([shape[a] for a in order]), itemsize)
        flat = out._replace(shape=(b, m, n), strides=packed_strides((b, m, n), itemsize))
        left = self._ordered(one, [*both, *rows, *inner], node.dtype)
        right = self._ordered(two, [*both, *inner, *columns], node.dtype)
        arrays = [(flat, node.dtype), (left, node.dtype), (right, node.dtype)]
        self._steps.append((_multiplying((b, m, k), (b, k, n)), arrays))
        self.cost += PRODUCTS_NS + b * k * (PRODUCT_NS * m * n + 2 * ELEMENT_NS * (m + n))
        kept = sorted([*order, *none])
        strides = dict(zip(order, out.strides, strict=True))
        return out._replace(shape=tuple([shape[a] for a in kept]),
                            strides=tuple([strides.get(a, 0) for a in kept]))  # fmt: skip

    def _ordered(self, view: View, axes: Sequence[int], dtype: dt.DType) -> View:
        """Return the view with its axes in this order; copy it if a stride is negative."""
        found = view._replace(shape=tuple([view.shape[a] for a in axes]),
                              strides=tuple([view.strides[a] for a in axes]))  # fmt: skip
        return self.copied(found, dtype.itemsize) if min(found.strides, default=0) < 0 else found


_RULES: Final[dict[Op, Callable[[_Writer, UOp], None]]] = {
    Op.CONST: _Writer.const, Op.BUFFER: _Writer.buffer, Op.IOTA: _Writer.iota,
    Op.BOUND: _Writer.bound, Op.EXPAND: _Writer.expand, Op.RESHAPE: _Writer.reshape,
    Op.PERMUTE: _Writer.permute, Op.SHRINK: _Writer.shrink, Op.FLIP: _Writer.flip,
    Op.PAD: _Writer.pad, Op.IM2COL: _Writer.window, Op.COL2IM: _Writer.unwindow,
    Op.CAT: _Writer.cat, Op.GATHER: _Writer.gather, Op.SCATTER: _Writer.scatter,
    Op.REDUCE_AXIS: _Writer.reduce, Op.CONTIGUOUS: _Writer.passed_on, Op.DETACH: _Writer.passed_on,
    **dict.fromkeys(ALU, _Writer.element),
}  # fmt: skip


def _windowed(strides: Shape, windows: Sequence[tuple[int, int, int, int]]) -> Shape:
    """Return the strides of windows over a tensor; the last axes are positions in a window."""
    found, taps = [*strides], []
    for axis, _, stride, dilation in windows:
        taps.append(found[axis] * dilation)
        found[axis] *= stride
    return (*found, *taps)


@functools.lru_cache(1024)
def _multiplying(left: Shape, right: Shape) -> Callable[[Array, Array, Array], None]:
    """Return a function that multiplies stacks of matrices given with more axes."""

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
            raise _Unfit
        spec = device.renderer.render(UOp(Op.SINK, dtype, (store,)))
        if spec.global_size != (1, 1, 1) or spec.var_names:
            raise _Unfit  # the kernel needs more than one call
        [self._program] = device.loader.load(device.compiler.compile([spec]))
        self.address: int = self._program.address


_kernel = functools.cache(_Kernel)
