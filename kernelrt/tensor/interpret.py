"""Graphs computed operation by operation, with NumPy, while compiling them would take longer.

Compiling a graph takes about a hundred milliseconds, computing a small one by NumPy some
microseconds. So a graph is interpreted until that has cost as much as a part of its compile. What
counts is an estimate from the sizes of the graph, not time, so a program gives the same bits each
time it runs. Elements get the bits that compiled code gives them; sums and products of matrices
add their terms in NumPy's order, which may change the last bits.
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
from kernelrt._eager import UNFIT, settle
from kernelrt._evaluate import Entry, Used
from kernelrt.device.buffer import Buffer
from kernelrt.device.registry import opened
from kernelrt.ir import Op, UOp, const
from kernelrt.ir.ops import ALU
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
#: Computes one value of the row of all values.
Step: TypeAlias = "Callable[[list[Any]], None]"

#: Estimates, in nanoseconds: of a compile, and of that part of it which each operation adds;
COMPILE_NS: Final = 12e6
COMPILE_STEP_NS: Final = 0.4e6
#: of an interpretation, of each of its steps, and of an element of their results.
RUN_NS: Final = 10e3
STEP_NS: Final = 1e3
ELEMENT_NS: Final = 0.5
FUNCTION_NS: Final = 4.0
PLACE_NS: Final = 8.0
PRODUCT_NS: Final = 0.1
#: A graph with a larger value is compiled: fused, few of its values need memory.
MOST_BYTES: Final = 16 << 20
#: Larger values are let go of as soon as no later step reads them.
LARGE_BYTES: Final = 1 << 16
#: How kernels are called.
_CODE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
#: Elements that the kernel of one operation computes in a call.
BLOCK: Final = 1024

_UFUNCS: Final[dict[Op, Callable[..., Any]]] = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.SQRT: np.sqrt, Op.FLOOR: np.floor, Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc, Op.ROUND: np.rint, Op.ADD: np.add, Op.SUB: np.subtract,
    Op.MUL: np.multiply, Op.DIV: np.divide, Op.MAX: np.maximum, Op.MIN: np.minimum,
    Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor, Op.SHL: np.left_shift,
    Op.SHR: np.right_shift, Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal,
    Op.NE: np.not_equal, Op.WHERE: np.where, Op.NOT: np.invert,
}  # fmt: skip
_INTEGER_UFUNCS: Final = {Op.IDIV: np.floor_divide, Op.MOD: np.remainder}
_REDUCERS: Final = {Op.ADD: np.add, Op.MUL: np.multiply, Op.MAX: np.maximum, Op.MIN: np.minimum}
#: Compiled code computes several operations on these in float32 before it rounds.
_HALVES: Final = frozenset({dt.float16, dt.bfloat16})
#: Types of the products that NumPy leaves to BLAS.
_BLAS: Final = frozenset({dt.float32, dt.float64})


class _Unfit(Exception):  # noqa: N818 - a way out, which no user sees
    """Compiled code has to compute this graph, or to say what is wrong with its values."""


class Known(Used):
    """Graphs that are equal up to their numbers, and their program, if there is one.

    Parameters
    ----------
    values, commits, read, numbers : sequence
        As of :class:`Program`.
    family : SizeFamily
        That of graphs which differ in their sizes, too; it says what interpreting them has cost.
    """

    def __init__(
        self, values: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]], read: Sequence[UOp],
        numbers: Sequence[UOp], family: SizeFamily,
    ) -> None:  # fmt: skip
        self._family = family
        self._program: Program | None = None
        with contextlib.suppress(_Unfit):
            self._program = Program(values, commits, read, numbers)
            self.weigh(self._program.length)

    def entry(self, numbers: Sequence[UOp]) -> Entry | None:
        """Make what computes graphs with these numbers; None where they should be compiled."""
        program = self._program
        if program is None:
            return None
        run = Interpretation(program, numbers, self._family)
        if run.is_spent:
            return None
        entry = Entry(run, tuple(range(len(program.sizes))), program.sizes, 0)
        entry.weigh(program.length)
        return entry


class Interpretation:
    """Runs a program in the place of a plan; see :class:`kernelrt._eager.Prepared`."""

    #: What it runs; there is none.
    plan: Final = None

    def __init__(self, program: Program, numbers: Sequence[UOp], family: SizeFamily) -> None:
        self._program, self._numbers, self._family = program, numbers, family

    @property
    def is_spent(self) -> bool:
        """Whether interpreting has cost so much that it is time to compile."""
        return self._family.spent + self._program.cost > self._program.compile_cost

    def run(
        self,
        buffers: list[UOp],
        results: list[Memory],
        fresh: list[Fresh],
        resets: list[Reset],
        pending: dict[int, Any],
        born: tuple[list[int], int] | None = None,
    ) -> int:
        """Compute the graphs of these BUFFER nodes and hand everything over.

        UNFIT, and nothing done, where compiled code has to decide, as of an index out of range.
        """
        program = self._program
        self._family.spent += program.cost
        try:
            arrays = program.compute(buffers, self._numbers)
        except (_Unfit, MemoryError):
            return UNFIT
        n = len(results)
        written = [(buffers[i].arg, _owned(a))
                   for i, a in zip(program.written, arrays[n:], strict=True)]  # fmt: skip
        return settle([np.asarray(a, order="C") for a in arrays[:n]], results, written, fresh,
                      resets, pending, born)  # fmt: skip


def _owned(array: Any) -> Array:
    """An array that shares no memory with another one."""
    found = np.asarray(array, order="C")
    return found if found.base is None and found.flags.owndata else found.copy()


class Program:
    """The steps that compute graphs of one structure and size.

    Parameters
    ----------
    values : sequence of UOp
        What is computed; may bear marks.
    commits : sequence of (UOp, UOp)
        BUFFER nodes and what is written there.
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
        self._template, self._steps = writer.template, writer.steps
        self._numbers, self._buffers, self._roots = writer.numbers, writer.buffers, writer.roots
        #: How many steps there are.
        self.length = len(self._steps)
        #: An estimate of what computing takes, and of what compiling would, in nanoseconds.
        self.cost, self.compile_cost = writer.cost, COMPILE_NS + COMPILE_STEP_NS * self.length

    def compute(self, buffers: Sequence[UOp], numbers: Sequence[UOp]) -> list[Any]:
        """Give the values of the roots."""
        values = [*self._template]
        for slot, i in self._buffers:
            values[slot] = buffers[i].arg.content()
        for slot, i, kind in self._numbers:
            values[slot] = np.array(numbers[i].arg, kind)
        with np.errstate(all="ignore"):
            for step in self._steps:
                step(values)
        return [values[slot] for slot in self._roots]


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
        self.steps: list[Step] = []
        self.buffers: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int, Any]] = []
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
        self.roots = [self.whole(root) for root in roots]
        self._let_go()

    def _let_go(self) -> None:
        """Add the steps that let go of large values."""
        kept = {*self.roots}
        after: dict[int, list[int]] = {}
        for slot, last in self._last.items():
            if slot not in kept:
                after.setdefault(last, []).append(slot)
        if not after:
            return
        steps: list[Step] = []
        for i, step in enumerate(self.steps):
            drops = [partial(_drop, slot) for slot in after.get(i, ())]
            steps += [step, *drops]
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

    def whole(self, node: UOp) -> int:
        """The slot of a value with all its elements."""
        shape = _shape(node)
        if self._shapes[node] != shape:
            source = self._slots[node]
            self._slots[node] = self.add(partial(_expanded, shape), [source], shape, node.dtype)
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
                self._last[source] = len(self.steps)
        if size * dtype.itemsize > LARGE_BYTES:
            self._last[slot] = len(self.steps)
        self.steps.append(_step(function, sources, slot))
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
        slot = self.new(node, (), np.array(node.arg).astype(kind))
        position = self._positions.get(node)
        if position is not None:
            self.numbers.append((slot, position, kind))

    def buffer(self, node: UOp) -> None:
        place = self._places.get(node)
        if place is None or type(node.arg) is not Buffer:  # as a StandIn, which has no value
            raise _Unfit
        self.buffers.append((self.new(node, _shape(node)), place))

    # ---- elements

    def element(self, node: UOp) -> None:
        function, each_ns = _element(node)
        sources = [self._slots[s] for s in node.src]
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
        self.put(node, _iota, [self._slots[node.src[0]]])

    def expand(self, node: UOp) -> None:
        self.same(node, node.src[0])

    def kept(self, node: UOp) -> None:
        self.same(node, _operands(node)[0])

    def moved(self, node: UOp) -> None:
        """Add the step of a movement, unless it moves equal elements only."""
        if self._shapes[node.src[0]] == ():
            self.same(node, node.src[0])
        else:
            _MOVEMENTS[node.op](self, node)

    def reshape(self, node: UOp) -> None:
        shape = _shape(node)
        self.put(node, lambda x: x.reshape(shape), [self.whole(node.src[0])])

    def permute(self, node: UOp) -> None:
        axes, source = node.arg, node.src[0]
        old = self._shapes[source]
        shape = tuple([old[axis] for axis in axes])
        self.put(node, lambda x: x.transpose(axes), [self._slots[source]], shape)

    def shrink(self, node: UOp) -> None:
        source = node.src[0]
        old, bounds = self._shapes[source], []
        for size, ends in zip(old, node.arg, strict=True):
            _need_static(ends)
            low, high = ends
            bounds.append((low, high) if size != 1 else (0, min(1, high - low)))
        part = tuple([slice(low, high) for low, high in bounds])
        shape = tuple([high - low for low, high in bounds])
        self.put(node, lambda x: x[part], [self._slots[source]], shape)

    def pad(self, node: UOp) -> None:
        source = node.src[0]
        shape, kind = _shape(node), dt.to_numpy(node.dtype)
        _need_static([n for pair in node.arg for n in pair])
        lows = [low for low, _ in node.arg]
        part = tuple([slice(low, low + n)
                      for low, n in zip(lows, _shape(source), strict=True)])  # fmt: skip

        def pad(x: Array) -> Array:
            out = np.zeros(shape, kind)
            out[part] = x
            return out

        self.put(node, pad, [self._slots[source]])

    def flip(self, node: UOp) -> None:
        source = node.src[0]
        part = tuple([slice(None, None, -1 if axis in node.arg else 1)
                      for axis in range(len(_shape(node)))])  # fmt: skip
        self.put(node, lambda x: x[part], [self._slots[source]], self._shapes[source])

    def window(self, node: UOp) -> None:
        _need_static([n for window in node.arg for n in window])
        shape, windows = _shape(node), node.arg
        self.put(node, partial(_windowed, shape, windows), [self.whole(node.src[0])])

    def unwindow(self, node: UOp) -> None:
        whole, windows = node.arg
        _need_static([*whole, *[n for window in windows for n in window]])
        self.put(node, partial(_unwindowed, whole, windows), [self.whole(node.src[0])])

    def cat(self, node: UOp) -> None:
        axis = node.arg
        sources = [self.whole(s) for s in node.src]
        self.put(node, lambda *parts: np.concatenate(parts, axis), sources)

    # ---- indices

    def gather(self, node: UOp) -> None:
        source, *indices = node.src
        if not indices:
            self.same(node, source)
            return
        slots = [self.whole(source), *[self._slots[i] for i in indices]]
        shape = self.common(indices)
        self.put(node, lambda x, *at: x[at], slots, shape, PLACE_NS)

    def scatter(self, node: UOp) -> None:
        base, values, *indices = node.src
        if not indices:
            raise _Unfit
        reducer = None if node.arg is None else _REDUCERS[node.arg]
        slots = [self.whole(base), self.whole(values), *[self.whole(i) for i in indices]]
        self.cost += 4 * PLACE_NS * math.prod(_shape(values))
        self.put(node, partial(_scattered, reducer), slots)

    # ---- reductions

    def reduce(self, node: UOp) -> None:
        reducer, axes = node.arg
        source = node.src[0]
        if source not in self._slots:
            if self._product(node, source, axes):
                return
            self.element(source)
        slot, shape = self.whole(source), _shape(source)
        self.cost += 2 * ELEMENT_NS * math.prod(shape)
        self.put(node, _reduction(reducer, tuple(axes), node.dtype), [slot])

    def _product(self, node: UOp, factors: UOp, reduced: Sequence[int]) -> bool:
        """Add the step of a sum of products that is one of matrices; return whether it is."""
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

        def product(x: Array, y: Array) -> Any:
            left = x.transpose(first).reshape(b, m, k)
            right = y.transpose(second).reshape(b, k, n)
            return np.matmul(left, right).reshape(found).transpose(back)

        kept = tuple([found[i] for i in back])
        slots = [self._slots[factor] for factor in factors.src]
        self.cost += PRODUCT_NS * b * m * k * n
        self.put(node, product, slots, kept)
        return True


_MOVEMENTS: Final[dict[Op, Callable[[_Writer, UOp], None]]] = {
    Op.RESHAPE: _Writer.reshape, Op.PERMUTE: _Writer.permute, Op.SHRINK: _Writer.shrink,
    Op.FLIP: _Writer.flip,
}  # fmt: skip
_RULES: Final[dict[Op, Callable[[_Writer, UOp], None]]] = {
    Op.CONST: _Writer.const, Op.BUFFER: _Writer.buffer, Op.IOTA: _Writer.iota,
    Op.BOUND: _Writer.bound, Op.EXPAND: _Writer.expand, Op.PAD: _Writer.pad,
    Op.WINDOW: _Writer.window, Op.UNWINDOW: _Writer.unwindow, Op.CAT: _Writer.cat,
    Op.GATHER: _Writer.gather, Op.SCATTER: _Writer.scatter,
    Op.REDUCE_AXIS: _Writer.reduce, Op.CONTIGUOUS: _Writer.kept, Op.DETACH: _Writer.kept,
    **dict.fromkeys(_MOVEMENTS, _Writer.moved), **dict.fromkeys(ALU, _Writer.element),
}  # fmt: skip


def _products(order: Sequence[UOp], roots: Sequence[UOp]) -> set[UOp]:
    """The products that one sum takes in and nothing else."""
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


def _step(function: Callable[..., Any], sources: Sequence[int], slot: int) -> Step:
    if len(sources) == 1:
        (a,) = sources

        def step(values: list[Any]) -> None:
            values[slot] = function(values[a])
    elif len(sources) == 2:
        a, b = sources

        def step(values: list[Any]) -> None:
            values[slot] = function(values[a], values[b])
    else:

        def step(values: list[Any]) -> None:
            values[slot] = function(*[values[source] for source in sources])

    return step


def _drop(slot: int, values: list[Any]) -> None:
    values[slot] = None


def _expanded(shape: tuple[int, ...], x: Array) -> Array:
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


def _iota(n: Array) -> Array:
    return np.arange(int(n), dtype=np.int64)


def _bound(index: Array, size: Array) -> Array:
    if ((index < 0) | (index >= size)).any():
        raise _Unfit
    return index


def _windowed(
    shape: tuple[int, ...], windows: Sequence[tuple[int, int, int, int]], x: Array
) -> Array:
    strides = [*x.strides]
    taps = []
    for axis, _, stride, dilation in windows:
        taps.append(strides[axis] * dilation)
        strides[axis] *= stride
    return np.lib.stride_tricks.as_strided(x, shape, [*strides, *taps], writeable=False)


def _unwindowed(
    whole: tuple[int, ...], windows: Sequence[tuple[int, int, int, int]], y: Array
) -> Array:
    out = y
    rank = len(whole)
    for t, (axis, _, stride, dilation) in enumerate(windows):
        shape = list(out.shape)
        shape[axis] = whole[axis]
        moved = np.zeros(shape, out.dtype)
        strides = [*moved.strides]
        strides[rank + t] += strides[axis] * dilation
        strides[axis] *= stride
        np.lib.stride_tricks.as_strided(moved, out.shape, strides)[...] = out
        out = moved
    return out


def _scattered(reducer: np.ufunc | None, base: Array, values: Array, *at: Array) -> Array:
    out = base.copy()
    if reducer is None:
        out[at] = values
    else:
        reducer.at(out, at, values)
    return out


def _reduction(reducer: Op, axes: tuple[int, ...], dtype: dt.DType) -> Callable[[Array], Array]:
    ufunc, kind = _REDUCERS[reducer], dt.to_numpy(dtype)
    if reducer in (Op.MAX, Op.MIN):
        first = dtype.min if reducer is Op.MAX else dtype.max
        return lambda x: ufunc.reduce(x, axis=axes, initial=first)
    # NumPy adds along an axis that is not the last one term by term.
    wide = np.float64 if dtype is dt.float32 else kind
    if not dtype.is_float or reducer is not Op.ADD:
        return lambda x: ufunc.reduce(x, axis=axes, dtype=wide).astype(kind, copy=False)

    def add(x: Array) -> Array:
        # The sum of negative zeros is one; that of nothing is 0.
        found = np.add.reduce(x, axis=axes, dtype=wide, initial=-0.0 if x.size else 0.0)
        return np.asarray(found).astype(kind, copy=False)

    return add


def _element(node: UOp) -> tuple[Callable[..., Any], float]:
    """The function of an operation on elements, and what one of them takes."""
    op, kind = node.op, node.src[0].dtype
    if op is Op.CAST:
        to = dt.to_numpy(node.dtype)
        if kind.is_float and node.dtype.is_int:
            return partial(_whole, node.dtype, to), 8 * ELEMENT_NS
        return (lambda x: x.astype(to)), ELEMENT_NS
    if op is Op.BITCAST:
        to = dt.to_numpy(node.dtype)
        return (lambda x: np.asarray(x, order="C").view(to)), ELEMENT_NS
    if op is Op.NOT and kind is dt.bool_:
        return np.logical_not, ELEMENT_NS
    if op in _UFUNCS:
        return _UFUNCS[op], ELEMENT_NS
    if op in _INTEGER_UFUNCS and kind.is_int:
        return _INTEGER_UFUNCS[op], 4 * ELEMENT_NS
    kernel = _kernel(op, node.arg, tuple([s.dtype for s in node.src]), node.dtype)
    if op is Op.POW and build.const_value(node.src[1]) is not None:
        return partial(_power, kernel), FUNCTION_NS
    return kernel, FUNCTION_NS


def _power(kernel: _Kernel, x: Array, exponent: Array) -> Any:
    """A power with a constant exponent; short ones are products in compiled code, too."""
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


def _whole(dtype: dt.DType, kind: np.dtype[Any], x: Array) -> Array:
    """Floats as integers: cut off, and at most the least or the greatest integer."""
    low, limit = float(dtype.min), 2.0 ** (dtype.bits - (not dtype.is_unsigned))
    inside = (x > low - 1) & (x < limit) if dtype.bits < 32 else (x >= low) & (x < limit)
    if inside.all():
        return x.astype(kind)
    out = np.where(inside, x, 0).astype(kind)
    out[x >= limit] = dtype.max
    out[x < low] = dtype.min
    out[np.isnan(x)] = dtype.max if dtype.is_unsigned else dtype.min
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
        blocks = self._free.pop() if self._free else _Blocks(self._kinds)
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


@functools.cache
def _kernel(op: Op, arg: object, kinds: tuple[dt.DType, ...], dtype: dt.DType) -> _Kernel:
    """The compiled code of an operation on elements."""
    return _Kernel(op, arg, kinds, dtype)
