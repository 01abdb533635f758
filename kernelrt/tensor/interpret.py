"""Graphs computed operation by operation, with NumPy, while compiling them would take longer.

A small graph compiles in tens of milliseconds, and NumPy computes it in microseconds. So a graph
is interpreted until that has cost about as much as compiling it. Both costs are estimated from the
sizes of the graph, not measured, so a program gives the same bits each time it runs. Elements get
the bits that compiled code gives them. Reductions of floats differ in their last bits, as NumPy
combines their terms in another order.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from kernelrt import backend as _backend  # registers the devices
from kernelrt import dtype as dt
from kernelrt._eager import UNFIT, hand_over_arrays
from kernelrt._evaluate import Entry, Used
from kernelrt.device.buffer import Buffer
from kernelrt.device.registry import opened
from kernelrt.ir import Op, UOp, const
from kernelrt.ir.ops import ALU, FUNCTIONS
from kernelrt.ir.reducers import of_nothing, start
from kernelrt.ir.shape import is_static
from kernelrt.tensor import build
from kernelrt.tensor.marks import is_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelrt._eager import Fresh, Reset
    from kernelrt._memory import Memory
    from kernelrt.tensor.plan_cache import SizeFamily

__all__ = ["Interpretation", "Known", "Program"]
del _backend

Array = np.ndarray[Any, Any]
#: The steps of a program: their functions, the slots of their first and second operands, and of
#: their results. Columns, since an object for each step would keep the garbage collector busy.
Steps: TypeAlias = "tuple[list[Callable[..., Any]], list[int], list[int], list[int]]"
#: In the place of a second operand: there is one, or another number of them than two.
ONE: Final = -1
OTHERS: Final = -2

# The cost model, in nanoseconds.
#: A compile, and the part of it that each operation adds.
COMPILE_NS: Final = 12e6
COMPILE_STEP_NS: Final = 0.4e6
#: A run, and each of its steps.
RUN_NS: Final = 10e3
STEP_NS: Final = 0.7e3
#: Making a program, for each of its steps.
WRITING_NS: Final = 8e3
#: An element of a result: of plain arithmetic; of an integer division; of a function such as exp,
#: which computes whole blocks; of a gather or scatter.
ELEMENT_NS: Final = 0.5
DIVISION_NS: Final = 5.0
FUNCTION_NS: Final = 4.0
PLACE_NS: Final = 8.0
#: A product that is added up in a product of matrices.
PRODUCT_NS: Final = 0.03
#: A graph with a larger result of an operation is compiled: fused, few of its values need memory.
MOST_BYTES: Final = 16 << 20
#: Larger values are dropped as soon as no later step reads them.
DROP_FROM_BYTES: Final = 1 << 16
#: How kernels are called.
_CODE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
#: Elements that the kernel of one operation computes in a call.
BLOCK: Final = 1024
#: Errors of a step that make the compiler take over. Tests narrow this to find mistakes of steps.
GIVE_UP: tuple[type[Exception], ...] = (Exception,)

_UFUNCS: Final[dict[Op, Callable[..., Any]]] = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.SQRT: np.sqrt, Op.FLOOR: np.floor, Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc, Op.ROUND: np.rint, Op.NOT: np.invert, Op.ADD: np.add,
    Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor, Op.SHL: np.left_shift, Op.SHR: np.right_shift,
    Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal, Op.NE: np.not_equal,
    Op.WHERE: np.where,
}  # fmt: skip
_INTEGER_UFUNCS: Final = {
    Op.IDIV: np.floor_divide, Op.MOD: np.remainder, Op.MAX: np.maximum, Op.MIN: np.minimum,
}  # fmt: skip
#: For the maximum and the minimum of floats: compares a number with a better one.
_WORSE: Final = {Op.MAX: np.less, Op.MIN: np.greater}
_REDUCERS: Final = {Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum}
#: Compiled code computes several operations on these in float32 before it rounds.
_HALVES: Final = frozenset({dt.float16, dt.bfloat16})
#: Types of the products that NumPy leaves to BLAS.
_BLAS: Final = frozenset({dt.float32, dt.float64})


class _Unfit(Exception):  # noqa: N818 - a way out, which no user sees
    """The interpreter cannot run this graph: compile it."""


class Known(Used):
    """Graphs that are equal up to their numbers, and their program, if there is one.

    Numbers that are sizes, as of ``arange(5)``, are the same in all of them.

    Parameters
    ----------
    values, commits, read, numbers : sequence
        As of :class:`Program`.
    family : SizeFamily
        The family of graphs that differ in their sizes, too. It adds up the cost of interpreting.
    """

    def __init__(
        self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]], read: Sequence[UOp],
        numbers: Sequence[UOp], family: SizeFamily,
    ) -> None:  # fmt: skip
        self._family = family
        self._run: Interpretation | None = None
        self._entry: Entry | None = None
        #: The positions of the numbers that are sizes.
        self.fixed: tuple[int, ...] = ()
        with contextlib.suppress(_Unfit):
            program = Program(values, commits, read, numbers)
            self.fixed = program.fixed
            self.weigh(program.length)
            family.limit = program.compile_cost
            family.spent += WRITING_NS * program.length
            self._run = Interpretation(program, family)
            self._entry = Entry(self._run, tuple(range(len(program.sizes))), program.sizes, 0)
            self._entry.weigh(program.length)
            self._entry.uses.nodes = program.length

    def take_entry(self) -> Entry | None:
        """Return an entry that interprets these graphs; None where they are to be compiled.

        Then all graphs of the family are to be compiled from now on.
        """
        if self._run is None or not self._run.is_spent:
            return self._entry
        self._family.spent = math.inf
        return None


class Interpretation:
    """Runs a program in the place of a plan; see :class:`kernelrt._eager.Prepared`."""

    #: An interpretation has no plan.
    plan: Final = None

    def __init__(self, program: Program, family: SizeFamily) -> None:
        self._program, self._family = program, family

    @property
    def is_spent(self) -> bool:
        """True if the next run would exceed the budget: then the graphs are compiled."""
        return self._family.spent + self._program.cost > self._family.limit

    def run(
        self,
        buffers: list[UOp],
        results: list[Memory],
        fresh: list[Fresh],
        resets: list[Reset],
        pending: dict[int, Any],
        born: tuple[list[int], int] | None = None,
    ) -> int:
        """Compute the graphs of these BUFFER and CONST nodes and hand everything over.

        UNFIT, and nothing done, where they are to be compiled, as for an index out of range. Then
        graphs of this structure are not interpreted again.
        """
        program = self._program
        self._family.spent += program.cost
        try:
            arrays = program.compute(buffers)
        except GIVE_UP:
            self._family.spent = math.inf
            return UNFIT
        n = len(results)
        written = [(buffers[i].arg, _owned(a))
                   for i, a in zip(program.written, arrays[n:], strict=True)]  # fmt: skip
        computed = [np.asarray(a, order="C") for a in arrays[:n]]
        return hand_over_arrays(computed, results, written, fresh, resets, pending, born)


def _owned(array: Any) -> Array:
    """An array that shares no memory with another one."""
    found = np.asarray(array, order="C")
    return found if found.base is None and found.flags.owndata else found.copy()


class Program:
    """The steps that compute graphs of one structure and size.

    Parameters
    ----------
    values : sequence of UOp
        The nodes to compute, with marks or without.
    commits : sequence of (UOp, UOp)
        BUFFER nodes, each with the value to write there.
    read, numbers : sequence of UOp
        The BUFFER nodes and the CONST nodes of the graphs, in the order of later ones.

    Raises
    ------
    _Unfit
        The graphs cannot be interpreted.
    """

    def __init__(
        self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]], read: Sequence[UOp],
        numbers: Sequence[UOp],
    ) -> None:  # fmt: skip
        roots = [*values, *(new for _, new in commits)]
        places = {node: i for i, node in enumerate(read)}
        self.written = tuple(places[storage] for storage, _ in commits)
        writer = _Writer(roots, places, numbers)
        self.sizes = tuple([(math.prod(_shape(v)), v.dtype) for v in values])
        self._template, self._steps, self._more = writer.template, writer.steps, writer.more
        self._numbers, self._buffers, self._roots = writer.numbers, writer.buffers, writer.roots
        #: The positions of numbers that are sizes, with which the program is another one.
        self.fixed = tuple(writer.sizes)
        #: How many steps there are.
        self.length = writer.length
        #: An estimate of what computing takes, and of what compiling would, in nanoseconds.
        self.cost, self.compile_cost = writer.cost, COMPILE_NS + COMPILE_STEP_NS * self.length

    def compute(self, given: Sequence[UOp]) -> list[Any]:
        """Give the values of the roots, for BUFFER nodes and CONST nodes behind these."""
        values = [*self._template]
        for slot, i in self._buffers:
            values[slot] = given[i].arg.content()
        for slot, i, kind in self._numbers:
            values[slot] = np.array(given[i].arg, kind)
        with np.errstate(all="ignore"):
            self.run(values)
        return [values[slot] for slot in self._roots]

    def run(self, values: list[Any]) -> None:
        """Compute all steps. The list of values has constants and buffers already."""
        for function, a, b, slot in zip(*self._steps, strict=True):
            if b >= 0:
                values[slot] = function(values[a], values[b])
            elif b == ONE:
                values[slot] = function(values[a])
            else:
                values[slot] = function(*[values[i] for i in self._more[slot]])


def _shape(node: UOp) -> tuple[int, ...]:
    """The shape of a node that was found to be static."""
    return node.shape  # type: ignore[return-value]


def _need_static(dims: Sequence[Any]) -> None:
    if not is_static(dims):
        raise _Unfit


def _operands(node: UOp) -> tuple[UOp, ...]:
    return (node.arg.storage,) if is_kept(node) else node.src


def _ordered(roots: Sequence[UOp]) -> Iterator[UOp]:
    """The nodes of graphs, operands first; values that lie in memory are read there."""
    seen: set[UOp] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend([(s, False) for s in _operands(node) if s not in seen])


def _append(
    steps: Steps, function: Callable[..., Any], first: int, second: int, slot: int
) -> None:
    functions, firsts, seconds, slots = steps
    functions.append(function)
    firsts.append(first)
    seconds.append(second)
    slots.append(slot)


class _Writer:
    """Writes the steps of a program.

    A value whose elements are equal along an axis may be kept with one element there, and one whose
    elements are all equal as a scalar, until an operation reads the others: so most EXPANDs take no
    step.
    """

    def __init__(
        self, roots: Sequence[UOp], places: dict[UOp, int], numbers: Sequence[UOp]
    ) -> None:
        self.template: list[Any] = []
        self.steps: Steps = ([], [], [], [])
        self.more: dict[int, tuple[int, ...]] = {}  # all operands, by the slot of the result
        self.buffers: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int, Any]] = []
        self.sizes: list[int] = []
        self.cost = RUN_NS
        self._places = places
        self._positions = {node: i for i, node in enumerate(numbers)}
        self._slots: dict[UOp, int] = {}
        self._shapes: dict[UOp, tuple[int, ...]] = {}
        self._last: dict[int, int] = {}  # the last step that reads a slot
        order = [*_ordered(roots)]
        products = _products(order, roots)
        for node in order:
            rule = _RULES.get(node.op)
            if rule is None or node.dtype in _HALVES or not is_static(node.shape):
                raise _Unfit
            if node not in products:
                rule(self, node)
        self.roots = [self.materialized(root) for root in roots]
        #: How many steps compute something.
        self.length = len(self.steps[0])
        self._drop_values()

    def _drop_values(self) -> None:
        """Add steps that drop large values after their last use."""
        kept = {*self.roots}
        after: dict[int, list[int]] = {}
        for slot, last in self._last.items():
            if slot not in kept:
                after.setdefault(last, []).append(slot)
        if not after:
            return
        steps: Steps = ([], [], [], [])
        for i, (function, first, second, slot) in enumerate(zip(*self.steps, strict=True)):
            _append(steps, function, first, second, slot)
            for dropped in after.get(i, ()):
                _append(steps, _nothing, dropped, ONE, dropped)
        self.steps = steps

    # ---- values

    def new(self, node: UOp | None, shape: tuple[int, ...], value: Any = None) -> int:
        """Make the slot of a value of this shape."""
        self.template.append(value)
        slot = len(self.template) - 1
        if node is not None:
            self._slots[node], self._shapes[node] = slot, shape
        return slot

    def same(self, node: UOp, source: UOp) -> None:
        """Let a node have the value of another one."""
        self._slots[node], self._shapes[node] = self._slots[source], self._shapes[source]

    def materialized(self, node: UOp) -> int:
        """The slot of a value with all its elements."""
        shape = _shape(node)
        if self._shapes[node] != shape:
            source = self._slots[node]
            self._slots[node] = self.add(_expanding(shape), [source], shape, node.dtype)
            self._shapes[node] = shape
        return self._slots[node]

    def add(
        self, function: Callable[..., Any], sources: Sequence[int], shape: tuple[int, ...],
        dtype: dt.DType, each_ns: float = ELEMENT_NS,
    ) -> int:  # fmt: skip
        """Add a step; return the slot of its result."""
        slot = self.new(None, shape)
        size = math.prod(shape)
        if size * dtype.itemsize > MOST_BYTES:
            raise _Unfit
        self.cost += STEP_NS + each_ns * size
        for source in sources:
            if source in self._last:
                self._last[source] = len(self.steps[0])
        if size * dtype.itemsize > DROP_FROM_BYTES:
            self._last[slot] = len(self.steps[0])
        if len(sources) == 1:
            _append(self.steps, function, sources[0], ONE, slot)
        elif len(sources) == 2:
            first, second = sources
            _append(self.steps, function, first, second, slot)
        else:
            _append(self.steps, function, 0, OTHERS, slot)
            self.more[slot] = tuple(sources)
        return slot

    def put(
        self, node: UOp, function: Callable[..., Any], sources: Sequence[int],
        shape: tuple[int, ...] | None = None, each_ns: float = ELEMENT_NS,
    ) -> None:  # fmt: skip
        """Add the step of a node."""
        known = _shape(node) if shape is None else shape
        self._slots[node] = self.add(function, sources, known, node.dtype, each_ns)
        self._shapes[node] = known

    # ---- leaves

    def const(self, node: UOp) -> None:
        kind = dt.to_numpy(node.dtype)
        slot = self.new(node, (), np.array(node.arg, kind))
        position = self._positions.get(node)
        if position is not None:
            self.numbers.append((slot, len(self._places) + position, kind))

    def buffer(self, node: UOp) -> None:
        place = self._places.get(node)
        if place is None or type(node.arg) is not Buffer:  # as a StandIn, which has no value
            raise _Unfit
        self.buffers.append((self.new(node, _shape(node)), place))

    # ---- elements

    def element(self, node: UOp) -> None:
        function, each_ns = _element(node)
        sources = [self._slots[s] for s in node.src]
        if each_ns == FUNCTION_NS:
            self.cost += FUNCTION_NS * BLOCK
        self.put(node, function, sources, self.common(node.src), each_ns)

    def common(self, nodes: Sequence[UOp]) -> tuple[int, ...]:
        """The shape that NumPy broadcasts values to."""
        shapes = [shape for n in nodes if (shape := self._shapes[n])]
        if not shapes:
            return ()
        if all(shape == shapes[0] for shape in shapes):
            return shapes[0]
        return tuple([0 if 0 in sizes else max(sizes) for sizes in zip(*shapes, strict=True)])

    def bound(self, node: UOp) -> None:
        index, size = node.src
        self.put(node, _bound, [self._slots[index], self._slots[size]], self._shapes[index])

    # ---- movement

    def iota(self, node: UOp) -> None:
        position = self._positions.get(node.src[0])
        if position is not None:
            self.sizes.append(position)
        (n,) = _shape(node)
        if n * node.dtype.itemsize > DROP_FROM_BYTES:
            self.put(node, _counting(n), [])
        else:
            self.new(node, (n,), np.arange(n, dtype=np.int64))

    def passed_on(self, node: UOp) -> None:
        self.same(node, _operands(node)[0])

    def moved(self, node: UOp) -> None:
        """Add the step of a movement, unless it moves equal elements only."""
        if self._shapes[node.src[0]] == ():
            self.same(node, node.src[0])
        else:
            _MOVEMENTS[node.op](self, node)

    def reshape(self, node: UOp) -> None:
        shape = _shape(node)
        self.put(node, _reshaping(shape), [self.materialized(node.src[0])], each_ns=0)

    def permute(self, node: UOp) -> None:
        axes, source = node.arg, node.src[0]
        old = self._shapes[source]
        shape = tuple([old[axis] for axis in axes])
        self.put(node, _turning(tuple(axes)), [self._slots[source]], shape, 0)

    def shrink(self, node: UOp) -> None:
        source = node.src[0]
        old, bounds = self._shapes[source], []
        for size, ends in zip(old, node.arg, strict=True):
            _need_static(ends)
            low, high = ends
            bounds.append((low, high) if size != 1 else (0, min(1, high - low)))
        shape = tuple([high - low for low, high in bounds])
        cut = _cutting(tuple([(low, high, 1) for low, high in bounds]))
        self.put(node, cut, [self._slots[source]], shape, 0)

    def pad(self, node: UOp) -> None:
        source = node.src[0]
        _need_static([n for pair in node.arg for n in pair])
        pairs = zip(node.arg, _shape(source), strict=True)
        inner = tuple([(low, low + n) for (low, _), n in pairs])
        pad = _padding(_shape(node), inner, dt.to_numpy(node.dtype))
        self.put(node, pad, [self._slots[source]])

    def flip(self, node: UOp) -> None:
        source = node.src[0]
        ends = tuple([(None, None, -1 if axis in node.arg else 1)
                      for axis in range(len(_shape(node)))])  # fmt: skip
        self.put(node, _cutting(ends), [self._slots[source]], self._shapes[source], 0)

    def window(self, node: UOp) -> None:
        _need_static([n for window in node.arg for n in window])
        shape, windows = _shape(node), node.arg
        source = self.materialized(node.src[0])
        self.put(node, _windowing(shape, tuple(windows)), [source], each_ns=0)

    def unwindow(self, node: UOp) -> None:
        whole, windows = node.arg
        _need_static([*whole, *[n for window in windows for n in window]])
        unwindow = _unwindowing(tuple(whole), tuple(windows))
        self.put(node, unwindow, [self.materialized(node.src[0])])

    def cat(self, node: UOp) -> None:
        axis = node.arg
        sources = [self.materialized(s) for s in node.src]
        self.put(node, _joining(axis), sources)

    # ---- indices

    def gather(self, node: UOp) -> None:
        source, *indices = node.src
        if not indices:
            self.same(node, source)
            return
        slots = [self.materialized(source), *[self._slots[i] for i in indices]]
        shape = self.common(indices)
        self.put(node, _gathered, slots, shape, PLACE_NS)

    def scatter(self, node: UOp) -> None:
        base, values, *indices = node.src
        if not indices:
            raise _Unfit
        reducer = None if node.arg is None else _REDUCERS[node.arg]
        slots = [self.materialized(n) for n in (base, values, *indices)]
        self.cost += 4 * PLACE_NS * math.prod(_shape(values))
        self.put(node, _scattering(reducer), slots)

    # ---- reductions

    def reduce(self, node: UOp) -> None:
        reducer, axes = node.arg
        source = node.src[0]
        if source not in self._slots:
            if self._product(node, source, axes):
                return
            self.element(source)
        slot, shape = self.materialized(source), _shape(source)
        self.cost += 2 * ELEMENT_NS * math.prod(shape)
        self.put(node, _reduction(reducer, tuple(axes), node.dtype), [slot])

    def _product(self, node: UOp, factors: UOp, reduced: Sequence[int]) -> bool:
        """Return whether a sum of products is a product of matrices; if so, add its step."""
        shape = _shape(factors)
        one, two = [self._shapes[factor] for factor in factors.src]
        if not one or not two:
            return False
        both: list[int] = []
        rows: list[int] = []
        columns: list[int] = []
        inner: list[int] = []
        none: list[int] = []
        for axis, size in enumerate(shape):
            here, there = one[axis] > 1, two[axis] > 1
            if here and there:
                (inner if axis in reduced else both).append(axis)
            elif axis in reduced and size != 1:
                return False
            elif here:
                rows.append(axis)
            elif there:
                columns.append(axis)
            elif axis not in reduced:
                none.append(axis)
        if 0 in shape or not inner or not (rows or columns):
            return False
        ones = [axis for axis in range(len(shape)) if one[axis] == two[axis] == 1]
        # An axis of one operand alone has one element in the other.
        first = [*both, *rows, *inner, *columns, *ones]
        second = [*both, *inner, *columns, *rows, *ones]
        b, m, k, n = (math.prod([shape[a] for a in part]) for part in (both, rows, inner, columns))
        order = [*both, *rows, *columns, *none]
        found = [shape[a] if a not in none else 1 for a in order]
        back = [order.index(axis) for axis in sorted(order)]

        product = _multiplying(
            tuple(first), tuple(second), (b, m, k), (b, k, n), tuple(found), tuple(back)
        )
        kept = tuple([found[i] for i in back])
        slots = [self._slots[factor] for factor in factors.src]
        self.cost += b * k * (PRODUCT_NS * m * n + 2 * ELEMENT_NS * (m + n))
        self.put(node, product, slots, kept)
        return True


_MOVEMENTS: Final[dict[Op, Callable[[_Writer, UOp], None]]] = {
    Op.RESHAPE: _Writer.reshape, Op.PERMUTE: _Writer.permute, Op.SHRINK: _Writer.shrink,
    Op.FLIP: _Writer.flip,
}  # fmt: skip
_RULES: Final[dict[Op, Callable[[_Writer, UOp], None]]] = {
    Op.CONST: _Writer.const, Op.BUFFER: _Writer.buffer, Op.IOTA: _Writer.iota,
    Op.BOUND: _Writer.bound, Op.EXPAND: _Writer.passed_on, Op.PAD: _Writer.pad,
    Op.WINDOW: _Writer.window, Op.UNWINDOW: _Writer.unwindow, Op.CAT: _Writer.cat,
    Op.GATHER: _Writer.gather, Op.SCATTER: _Writer.scatter,
    Op.REDUCE_AXIS: _Writer.reduce, Op.CONTIGUOUS: _Writer.passed_on, Op.DETACH: _Writer.passed_on,
    **dict.fromkeys(_MOVEMENTS, _Writer.moved), **dict.fromkeys(ALU, _Writer.element),
}  # fmt: skip


def _products(order: Sequence[UOp], roots: Sequence[UOp]) -> set[UOp]:
    """The products whose only reader is a sum."""
    uses: dict[UOp, int] = dict.fromkeys(roots, 2)
    for node in order:
        for source in _operands(node):
            uses[source] = uses.get(source, 0) + 1
    return {
        node.src[0] for node in order
        if node.op is Op.REDUCE_AXIS and node.arg[0] is Op.ADD and node.src[0].op is Op.MUL
        and uses[node.src[0]] == 1 and node.dtype in _BLAS
    }  # fmt: skip


# ---- what steps call


# Those that are given constants are made once for the same ones.
_once = functools.lru_cache(8192)


def _nothing(_: Any) -> None:
    """Replace a value by None, so that its memory is freed."""


@_once
def _expanding(shape: tuple[int, ...]) -> Callable[[Array], Array]:
    def expanded(x: Array) -> Array:
        out = np.empty(shape, x.dtype)
        out[...] = x
        return out

    return expanded


@_once
def _counting(n: int) -> Callable[[], Array]:
    return lambda: np.arange(n, dtype=np.int64)


@_once
def _reshaping(shape: tuple[int, ...]) -> Callable[[Array], Array]:
    return lambda x: x.reshape(shape)


@_once
def _turning(axes: tuple[int, ...]) -> Callable[[Array], Array]:
    return lambda x: x.transpose(axes)


@_once
def _cutting(ends: tuple[tuple[int | None, int | None, int], ...]) -> Callable[[Array], Array]:
    part = tuple([slice(*each) for each in ends])
    return lambda x: x[part]


@_once
def _padding(
    shape: tuple[int, ...], inner: tuple[tuple[int, int], ...], kind: np.dtype[Any]
) -> Callable[[Array], Array]:
    part = tuple([slice(*each) for each in inner])

    def padded(x: Array) -> Array:
        out = np.zeros(shape, kind)
        out[part] = x
        return out

    return padded


@_once
def _joining(axis: int) -> Callable[..., Array]:
    return lambda *parts: np.concatenate(parts, axis)


@_once
def _multiplying(
    first: tuple[int, ...], second: tuple[int, ...], left: tuple[int, ...],
    right: tuple[int, ...], shape: tuple[int, ...], back: tuple[int, ...],
) -> Callable[[Array, Array], Any]:  # fmt: skip
    """A product of matrices: axes in another order, flattened, and both again for the result."""

    def product(x: Array, y: Array) -> Any:
        found = np.matmul(x.transpose(first).reshape(left), y.transpose(second).reshape(right))
        return found.reshape(shape).transpose(back)

    return product


def _gathered(x: Array, *at: Array) -> Any:
    return x[at]


def _bound(index: Array, size: Array) -> Array:
    if ((index < 0) | (index >= size)).any():
        raise _Unfit
    return index


@_once
def _windowing(
    shape: tuple[int, ...], windows: tuple[tuple[int, int, int, int], ...]
) -> Callable[[Array], Array]:
    def windowed(x: Array) -> Array:
        strides = [*x.strides]
        taps = []
        for axis, _, stride, dilation in windows:
            taps.append(strides[axis] * dilation)
            strides[axis] *= stride
        return np.lib.stride_tricks.as_strided(x, shape, [*strides, *taps], writeable=False)

    return windowed


@_once
def _unwindowing(
    whole: tuple[int, ...], windows: tuple[tuple[int, int, int, int], ...]
) -> Callable[[Array], Array]:
    def unwindowed(y: Array) -> Array:
        out = y
        for t, (axis, _, stride, dilation) in enumerate(windows):
            shape = list(out.shape)
            shape[axis] = whole[axis]
            moved = np.zeros(shape, out.dtype)
            strides = [*moved.strides]
            strides[len(whole) + t] += strides[axis] * dilation
            strides[axis] *= stride
            np.lib.stride_tricks.as_strided(moved, out.shape, strides)[...] = out
            out = moved
        return out

    return unwindowed


@_once
def _scattering(reducer: np.ufunc | None) -> Callable[..., Array]:
    def scattered(base: Array, values: Array, *at: Array) -> Array:
        out = base.copy()
        if reducer is None:
            out[at] = values
        else:
            reducer.at(out, at, values)
        return out

    return scattered


@_once
def _reduction(reducer: Op, axes: tuple[int, ...], dtype: dt.DType) -> Callable[[Array], Array]:
    ufunc, kind = _REDUCERS[reducer], dt.to_numpy(dtype)
    first, nothing = start(reducer, dtype), of_nothing(reducer, dtype)
    # NumPy adds along an axis that is not the last one term by term.
    wide = np.float64 if dtype is dt.float32 and reducer in (Op.ADD, Op.MUL) else kind

    def reduced(x: Array) -> Array:
        found = ufunc.reduce(x, axis=axes, dtype=wide, initial=first if x.size else nothing)
        return np.asarray(found).astype(kind, copy=False)

    return reduced


@_once
def _casting(kind: dt.DType, dtype: dt.DType) -> Callable[[Array], Array]:
    to = dt.to_numpy(dtype)
    if kind.is_float and dtype.is_int:
        return partial(_float_to_int, dtype, to)
    return lambda x: x.astype(to)


@_once
def _viewing(dtype: dt.DType) -> Callable[[Array], Array]:
    to = dt.to_numpy(dtype)
    return lambda x: np.asarray(x, order="C").view(to)


def _element(node: UOp) -> tuple[Callable[..., Any], float]:
    """Return the function of an elementwise operation, and its cost per element."""
    op, kind = node.op, node.src[0].dtype
    if op is Op.CAST:
        return _casting(kind, node.dtype), 2 * ELEMENT_NS
    if op is Op.BITCAST:
        return _viewing(node.dtype), ELEMENT_NS
    if op is Op.NOT and kind is dt.bool_:
        return np.logical_not, ELEMENT_NS
    if op in _UFUNCS:
        return _UFUNCS[op], ELEMENT_NS
    if op in _INTEGER_UFUNCS and not kind.is_float:
        return _INTEGER_UFUNCS[op], DIVISION_NS
    if op in FUNCTIONS and build.const_value(node.src[0]) is not None:
        raise _Unfit  # the compiler rounds functions of constants to the nearest number
    kernel = _kernel(op, node.arg, tuple([s.dtype for s in node.src]), node.dtype)
    if op in _WORSE:
        return _choosing(_WORSE[op], kernel), FUNCTION_NS
    if op is Op.POW and build.const_value(node.src[1]) is not None:
        return _raising(kernel), FUNCTION_NS
    return kernel, FUNCTION_NS


@_once
def _choosing(worse: np.ufunc, kernel: _Kernel) -> Callable[[Array, Array], Array]:
    def extremum(x: Array, y: Array) -> Array:
        """The first of two floats unless it is worse. NumPy gives either of 0 and -0."""
        if y.ndim == 0 and y == y:
            return np.where(worse(x, y), y, x)
        return kernel(x, y)

    return extremum


@_once
def _raising(kernel: _Kernel) -> Callable[[Array, Array], Any]:
    return partial(_power, kernel)


def _power(kernel: _Kernel, x: Array, exponent: Array) -> Any:
    """A power with a constant exponent. The compiler, too, makes products of short ones."""
    if exponent.ndim:
        x, exponent = np.broadcast_arrays(x, exponent)
    match float(exponent.flat[0]) if exponent.size else 1.0:
        case 0.0:
            return np.ones_like(x)
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case -1.0:
            return np.divide(x.dtype.type(1), x)
    return kernel(x, exponent)


def _float_to_int(dtype: dt.DType, kind: np.dtype[Any], x: Array) -> Array:
    """Cut off floats; those that are out of range become the least or the greatest integer."""
    low, limit = float(dtype.min), 2.0 ** (dtype.bits - (not dtype.is_unsigned))
    inside = (x > low - 1) & (x < limit) if dtype.bits < 32 else (x >= low) & (x < limit)
    if inside.all():
        return x.astype(kind)
    out = np.where(inside, x, 0).astype(kind)
    out[x >= limit] = dtype.max
    out[x < low] = dtype.min
    out[np.isnan(x)] = dtype.of_nan
    return out


class _Kernel:
    """The compiled code of one operation on elements, which computes blocks of them.

    Parameters
    ----------
    op, arg : Op, object
        The operation.
    kinds : tuple of DType
        Types of its operands.
    dtype : DType
        Type of its result.
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
            raise _Unfit  # it is no single call
        [self._program] = device.loader.load(device.compiler.compile([spec]))
        self._code = _CODE(self._program.address)
        self._kinds = (dtype, *kinds)
        #: Memory of calls. Code that interrupts a call takes other memory.
        self._free: list[_Blocks] = []

    def __call__(self, *operands: Any) -> Array:
        given = operands if len(operands) == 1 else np.broadcast_arrays(*operands)
        shape = given[0].shape
        size = math.prod(shape)
        try:
            blocks = self._free.pop()
        except IndexError:
            blocks = _Blocks(self._kinds)
        result, *rest = blocks.arrays
        if size <= BLOCK:
            for block, x in zip(rest, given, strict=True):
                block[:size] = x.reshape(-1)
            self._code(blocks.addresses, None)
            out = result[:size].copy()
        else:
            out = np.empty(size, result.dtype)
            flat = [x.reshape(-1) for x in given]
            for start in range(0, size, BLOCK):
                n = min(BLOCK, size - start)
                for block, x in zip(rest, flat, strict=True):
                    block[:n] = x[start : start + n]
                self._code(blocks.addresses, None)
                out[start : start + n] = result[:n]
        self._free.append(blocks)
        return out.reshape(shape)


class _Blocks:
    """Memory for a call of a kernel: a block of its result, and one of each operand."""

    def __init__(self, kinds: Sequence[dt.DType]) -> None:
        self._buffers = [Buffer(BLOCK, kind) for kind in kinds]
        self.arrays = [b.content() for b in self._buffers]
        self.addresses = (ctypes.c_void_p * len(kinds))(*[b.address for b in self._buffers])


_kernel = functools.cache(_Kernel)
