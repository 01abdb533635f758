"""Runs kernel ASTs and whole schedules in NumPy, to test scheduling without a compiler.

Every node of a kernel becomes an array with one axis for each RANGE. This executor is stricter than
a compiled kernel: it fails if an index is out of bounds, if two iterations store to the same
element, or if an in-place kernel reads its target at another position than it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from support.routines import called
from support.scalars import UPDATES, Array, compute, numpy_type, reduce

from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.routine import is_call
from kernelrt.ir.terms import ranges_of
from kernelrt.schedule import CopyItem, Intermediate, KernelItem, Part, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

class KernelRun:
    """One run of one kernel AST.

    Parameters
    ----------
    ast : UOp
        A SINK.
    buffers : sequence of arrays
        Flat memory of each slot except that of the status word.
    variables : mapping
        Values of Variables by name.
    """

    def __init__(self, ast: UOp, buffers: Sequence[Array], variables: Mapping[str, int]) -> None:
        self.ast = ast
        self.buffers = buffers
        self.variables = variables
        self.failed = False
        nodes = list(toposort([ast]))
        loops = sorted((n for n in nodes if n.op is Op.RANGE), key=lambda n: int(n.arg))
        assert [n.arg for n in loops] == list(range(len(loops))), "RANGE numbers have gaps"
        self.axis = {n: k for k, n in enumerate(loops)}
        self.closed = {r for n in nodes if n.op in (Op.REDUCE, Op.LOCAL) for r in n.src[1:]}
        self.nodes = nodes
        self.value: dict[UOp, Array] = {}

    def run(self) -> bool:
        """Run; return whether every index that is checked at run time was in range."""
        self._check_in_place()
        for node in self.nodes:
            if node.op not in (Op.PARAM, Op.STORE, Op.SINK):
                self.value[node] = self._evaluate(node)
        for store in self.ast.src:
            self._store(store)
        return not self.failed

    def _check_in_place(self) -> None:
        stored = {s.src[0]: s for s in self.ast.src}
        for store in self.ast.src:
            for node in toposort([store]):
                if node.op is Op.LOAD and node.src[0] in stored:
                    update = stored[node.src[0]]
                    assert node.src[1] is update.src[1], "read beside what is written"
                    # A store under fewer loops runs before one under more.
                    assert ranges_of(update.src[1]) == ranges_of(store.src[1])

    def _shape(self, sizes: Mapping[int, int]) -> tuple[int, ...]:
        return tuple(sizes.get(k, 1) for k in range(len(self.axis)))

    def _size(self, loop: UOp) -> int:
        return int(self.value[loop.src[0]].reshape(()))

    def _evaluate(self, node: UOp) -> Array:
        kind = numpy_type(node.dtype)
        scalar = self._shape({})
        if node.op is Op.CONST:
            return np.full(scalar, node.arg, kind)
        if node.op is Op.VAR:
            return np.full(scalar, self.variables[node.arg[0]], kind)
        if node.op is Op.RANGE:
            size = self._size(node)
            return np.arange(size, dtype=kind).reshape(self._shape({self.axis[node]: size}))
        values = [self.value[s] for s in node.src if s.op is not Op.PARAM]
        if node.op is Op.LOAD and node.src[0].op is Op.LOCAL:
            return self._element(node, *values)
        if node.op is Op.LOAD:
            return self._load(node, *values)
        if node.op is Op.BOUND:
            inside = (values[0] >= 0) & (values[0] < values[1])
            self.failed |= not bool(inside.all())
            return np.where(inside, values[-1] if len(values) > 2 else values[0], 0)
        if node.op is Op.REDUCE:
            axes = tuple(self.axis[r] for r in node.src[1:])
            whole = self._over(values[0], node.src[1:])
            return reduce(node, whole, axes, node.arg, keepdims=True)
        if node.op is Op.LOCAL:
            return self._over(values[0], node.src[1:])
        return compute(node, values)

    def _over(self, value: Array, loops: Sequence[UOp]) -> Array:
        """Broadcast `value` over the iterations of `loops`."""
        full = list(value.shape)
        for r in loops:
            full[self.axis[r]] = self._size(r)
        return np.broadcast_to(value, full)

    def _element(
        self, node: UOp, held: Array, index: Array, predicate: Array | None = None
    ) -> Array:
        """Return elements of a LOCAL, from the array of each iteration of the enclosing loops."""
        own = [self.axis[r] for r in node.src[0].src[1:]]
        outer = tuple(1 if k in own else n for k, n in enumerate(held.shape))
        rows = np.moveaxis(held, own, range(held.ndim - len(own), held.ndim))
        rows = rows.reshape(*outer, -1)
        if predicate is not None:
            index, predicate = np.broadcast_arrays(index, predicate)
            index = np.where(predicate, index, 0)
            if not predicate.any():
                return np.zeros(index.shape, held.dtype)
        shape = np.broadcast_shapes(outer, index.shape)
        if 0 in shape:
            return np.zeros(shape, held.dtype)
        assert index.min() >= 0, "index below the array"
        assert index.max() < rows.shape[-1], "index beyond the array"
        rows = np.broadcast_to(rows, (*shape, rows.shape[-1]))
        value = np.take_along_axis(rows, np.broadcast_to(index, shape)[..., None], -1)[..., 0]
        return value if predicate is None else np.where(predicate, value, held.dtype.type(0))

    def _load(self, node: UOp, index: Array, predicate: Array | None = None) -> Array:
        memory = self.buffers[node.src[0].arg[0]]
        if predicate is not None:
            index, predicate = np.broadcast_arrays(index, predicate)
            index = np.where(predicate, index, 0)
        if index.size == 0:
            return np.zeros(index.shape, memory.dtype)
        if predicate is not None and not predicate.any():
            return np.zeros(index.shape, memory.dtype)
        assert index.min() >= 0, "index below the buffer"
        assert index.max() < len(memory), "index beyond the buffer"
        value = memory[index]
        return value if predicate is None else np.where(predicate, value, memory.dtype.type(0))

    def _store(self, store: UOp) -> None:
        memory = self.buffers[store.src[0].arg[0]]
        loops = [r for r in toposort([store]) if r.op is Op.RANGE and r not in self.closed]
        shape = self._shape({self.axis[r]: self._size(r) for r in loops})
        index = np.broadcast_to(self.value[store.src[1]], shape).ravel()
        value = np.broadcast_to(self.value[store.src[2]], shape).ravel()
        if index.size == 0:
            return
        assert index.min() >= 0, "index below the buffer"
        assert index.max() < len(memory), "index beyond the buffer"
        if store.arg is not None:
            UPDATES[store.arg].at(memory, index, value)
        else:
            assert len(np.unique(index)) == len(index), "two iterations store to one element"
            memory[index] = value


class FaultError(Exception):
    """An index that is checked at run time was out of range."""


class ScheduleRun:
    """Memory for a schedule, and its execution.

    Parameters
    ----------
    plan : Schedule
        Schedule to run.
    memory : mapping of UOp to array
        Flat arrays of the BUFFERs that are not intermediates; commits write them in place.
    """

    def __init__(self, plan: Schedule, memory: Mapping[UOp, Array]) -> None:
        self.plan = plan
        self.memory = dict(memory)
        rubbish = np.frombuffer(bytes([0xA7]) * max(1, plan.arena_size), np.uint8)
        self.arena = rubbish.copy()
        buffers = [b for item in plan.items for b in (*item.ins, *item.outs)]
        for buffer in (*buffers, *plan.outputs):
            holder = buffer.arg
            if isinstance(holder, Part):
                self._cut(buffer, holder)
            elif isinstance(holder, Intermediate) and buffer not in self.memory:
                self.memory[buffer] = self._place(holder)

    def _cut(self, buffer: UOp, part: Part) -> None:
        whole = part.base
        if whole not in self.memory:
            self.memory[whole] = self._place(whole.arg)
        start = part.offset // buffer.dtype.itemsize
        self.memory[buffer] = self.memory[whole][start : start + part.size]

    def _place(self, holder: Intermediate) -> Array:
        kind = numpy_type(holder.dtype)
        if holder not in self.plan.arena_offsets:
            return np.full(holder.size * kind.itemsize, 0xA7, np.uint8).view(kind)
        start = self.plan.arena_offsets[holder]
        assert start % 64 == 0
        assert start + holder.nbytes <= self.plan.arena_size
        if kind.itemsize != holder.dtype.itemsize:
            return np.zeros(holder.size, kind)
        return self.arena[start : start + holder.nbytes].view(kind)

    def run(self, order: Sequence[int] | None = None, **variables: int) -> list[Array]:
        """Execute; return the flat content of each output.

        Parameters
        ----------
        order : sequence of int, optional
            Another order of the items that the dependencies allow.
        """
        for number in order if order is not None else range(len(self.plan.items)):
            item = self.plan.items[number]
            if isinstance(item, CopyItem):
                self.memory[item.dst][:] = self.memory[item.src]
            else:
                self._kernel(item, variables)
        return [self.memory[b].copy() for b in self.plan.outputs]

    def _kernel(self, item: KernelItem, variables: Mapping[str, int]) -> None:
        written = [self.memory[item.buffers[slot]] for slot in item.writes]
        for slot, buffer in enumerate(item.buffers):
            for k, target in zip(item.writes, written, strict=True):
                if slot != k:
                    assert not np.shares_memory(self.memory[buffer], target)
        if is_call(item.ast):
            (target,), operands = written, [self.memory[b] for b in item.ins]
            target[:] = called(item.ast.src[0].arg, operands).reshape(-1)
            return
        run = KernelRun(item.ast, [self.memory[b] for b in item.buffers], variables)
        good = run.run()
        assert item.may_fail == any(n.op is Op.BOUND for n in run.nodes)
        if not good:
            raise FaultError


class HostBuffer:
    """Holder of a BUFFER over NumPy memory, with views, like the device layer's Buffer."""

    def __init__(self, data: Array, base: HostBuffer | None = None, offset: int = 0) -> None:
        self.data = data
        self.base = base
        self.offset = offset

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.data.size)

    def view(self, start: int, size: int) -> HostBuffer:
        """Return the elements `start` to `start + size`."""
        root = self if self.base is None else self.base
        at = self.offset + start * self.data.itemsize
        return HostBuffer(self.data[start : start + size], root, at)


def random_order(plan: Schedule, seed: int) -> list[int]:
    """Return a random order of the items that the dependencies allow."""
    generator = np.random.default_rng(seed)
    waiting = [set(before) for before in plan.deps]
    out: list[int] = []
    while len(out) < len(waiting):
        ready = [n for n, w in enumerate(waiting) if not w and n not in out]
        chosen = int(generator.choice(ready))
        out.append(chosen)
        for w in waiting:
            w.discard(chosen)
    return out


