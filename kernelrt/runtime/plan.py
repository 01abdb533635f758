"""ExecutionPlan: prepared once, executed thousands of times."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from kernelrt import _dispatch
from kernelrt import dtype as dt
from kernelrt._dispatch import PlanCore
from kernelrt.device.allocator import ALIGNMENT
from kernelrt.device.buffer import Buffer
from kernelrt.errors import DTypeError, PlanBuildError, PlanReleasedError, ShapeError
from kernelrt.runtime import report
from kernelrt.runtime.cost import estimate_ns
from kernelrt.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    written,
)
from kernelrt.runtime.order import can_fail
from kernelrt.runtime.profiler import KernelProfile
from kernelrt.runtime.repeat import PlanProfile
from kernelrt.runtime.sizes import evaluate
from kernelrt.runtime.variables import VariableTable, merge_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from kernelrt._dispatch import Bindings, OpTuple
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.layout import Layout
    from kernelrt.runtime.ops import RuntimeVar
    from kernelrt.schedule.types import Decision, Intermediate

__all__ = ["ExecutionPlan", "PlanParts"]

_NOTHING: Bindings = ((), (), ())


@dataclass(frozen=True, slots=True, eq=False)
class PlanParts:
    """Everything a plan is made of, checked and in execution order."""

    device: str
    layout: Layout
    ops: list[PreparedOp]
    deps: list[tuple[int, ...]]
    outputs: list[int]
    ast_map: dict[Hashable, int]
    places: dict[Intermediate, int]
    arena_size: int
    decisions: tuple[Decision, ...] = ()


class ExecutionPlan(PlanCore):
    """A finished plan: flat tables in C, and the objects that tell what is in them.

    Made by :class:`~kernelrt.runtime.builder.ExecutionPlanBuilder` or
    :func:`~kernelrt.runtime.prepare.prepare`. May be executed from any thread; two threads on
    one plan take turns. ``execute()`` and ``release()`` are those of the C core.
    """

    def __init__(self, parts: PlanParts) -> None:
        # Holds come first among the attributes, so that they go first when the plan goes.
        self._holds: list[memoryview] = []
        self._parts = parts
        self._buffers: list[Buffer | None] = []
        self._arrays: dict[int, list[Any]] = {}
        self._allocate()
        # Where buffers were when the dependencies were found: what shared bytes then may again.
        self._analysed = [self._span(i) for i in range(len(self._buffers))]
        ids = {op.id: i for i, op in enumerate(parts.ops)}
        names = list(ids)
        self._ops: list[PreparedOp] = [
            replace(op, dependencies=tuple(names[d] for d in deps))
            for op, deps in zip(parts.ops, parts.deps, strict=True)
        ]
        self._table = VariableTable(self._ops)
        self._values = dict(self._table.initial)
        self._index = ids
        rows = self._rows()
        super().__init__(rows)
        mine = weakref.ref(self)
        for i, op in enumerate(self._ops):
            op._place.plan, op._place.index = mine, i  # noqa: SLF001 - the op's place is here

    # ---- What the plan is made of

    @property
    def device(self) -> str:
        """Name of the device that runs the plan."""
        return self._parts.device

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers, by index. Raises PlanReleasedError where some were released."""
        if any(b is None for b in self._buffers):
            raise PlanReleasedError("the plan's buffers were released")
        return tuple(b for b in self._buffers if b is not None)

    def buffer_at(self, index: int) -> Buffer | None:
        """Give the buffer at `index`; None where there is none or it was released."""
        return self._buffers[index] if 0 <= index < len(self._buffers) else None

    def buffer(self, ast_id: Hashable) -> Buffer | None:
        """Give the buffer that stands for `ast_id`; None where there is none."""
        index = self._parts.ast_map.get(ast_id)
        return None if index is None else self.buffer_at(index)

    @property
    def ast_to_buffer_map(self) -> dict[Hashable, int]:
        """From what a buffer stands for (a BUFFER node) to its index."""
        return dict(self._parts.ast_map)

    @property
    def num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self._parts.outputs)

    @property
    def output_buffer_idx(self) -> int | None:
        """Index of the first output; None where there is none."""
        return self._parts.outputs[0] if self._parts.outputs else None

    @property
    def output_buffer(self) -> Buffer | None:
        """The first output; None where there is none, or it was released."""
        return self.output_buffer_at(0)

    def output_buffer_at(self, i: int) -> Buffer | None:
        """Give output `i`; None where there is none, or it was released."""
        outputs = self._parts.outputs
        return self.buffer_at(outputs[i]) if 0 <= i < len(outputs) else None

    @property
    def output_buffers(self) -> tuple[Buffer, ...]:
        """All outputs that were not released, in order."""
        found = (self.buffer_at(i) for i in self._parts.outputs)
        return tuple(b for b in found if b is not None)

    @property
    def output_indices(self) -> tuple[int, ...]:
        """Indices of the outputs, in order."""
        return tuple(self._parts.outputs)

    @property
    def prepared_ops(self) -> tuple[PreparedOp, ...]:
        """All operations in execution order, with all their dependencies."""
        return tuple(self._ops)

    @property
    def prepared_kernels(self) -> tuple[PreparedKernel, ...]:
        """The operations that launch kernels."""
        return tuple(op for op in self._ops if isinstance(op, PreparedKernel))

    @property
    def kernels(self) -> tuple[CachedKernel, ...]:
        """The compiled kernels, each once, in order of first launch."""
        return tuple(dict.fromkeys(op.kernel for op in self.prepared_kernels))

    @property
    def variables(self) -> dict[str, RuntimeVar]:
        """The variables that an execution may set, by name."""
        return dict(self._table.variables)

    @property
    def values(self) -> dict[str, int]:
        """Current values of the variables."""
        return dict(self._values)

    # ---- Running

    def execute_with_vars(self, values: Any = None, /, **variables: int) -> None:
        """Set some variables and run, in one turn of the plan.

        Parameters
        ----------
        values : mapping or iterable of pairs, optional
            Names (or Variables) and values.
        **variables : int
            The same as keywords. Variables not named keep their last value.

        Raises
        ------
        VariableError
            A name is unknown, fixed or ``core_id``, a value lies outside its bounds, or a launch
            size comes out below one. Nothing has run and no variable has changed.
        IndexBoundsError, CustomFunctionError, PlanBusyError, PlanReleasedError
            As ``execute``.

        Examples
        --------
        >>> plan.execute_with_vars({"batch": 16})  # doctest: +SKIP
        >>> plan.execute_with_vars(batch=16)  # doctest: +SKIP
        """
        self.execute_with(self.bindings(values, **variables))

    def bindings(self, values: Any = None, /, **variables: int) -> Callable[[], Bindings]:
        """Check values of variables; give what `execute_with` and a Replay run with them.

        Raises
        ------
        VariableError
            As :meth:`execute_with_vars`, apart from launch sizes, which are checked in the turn.
        """
        updates = self._table.check(merge_updates(values, variables))
        return lambda: self._bind(updates)

    def execute_profiled(self) -> list[KernelProfile]:
        """Run, and tell what each kernel took, in execution order."""
        return self._profiles(self.execute_profiled_raw(), self._values)

    def execute_with_vars_profiled(
        self, values: Any = None, /, **variables: int
    ) -> list[KernelProfile]:
        """Do what execute_with_vars does, and tell what each kernel took."""
        updates = self._table.check(merge_updates(values, variables))
        raw = self.execute_profiled_raw(lambda: self._bind(updates))
        return self._profiles(raw, {**self._values, **updates})

    def profile(self, n: int = 100, values: Any = None, /, **variables: int) -> PlanProfile:
        """Run `n` times; give the median, least time and spread of each kernel.

        Parameters
        ----------
        n : int
            Runs, at least 1. The plan does its work each time: state that it commits changes.
        values, **variables
            As for :meth:`execute_with_vars`.

        Examples
        --------
        >>> print(plan.profile(200))  # doctest: +SKIP
        >>> plan.profile(20).save_trace("step.json")  # doctest: +SKIP
        """
        if n < 1:
            raise ShapeError(f"n: expected at least one run, not {n}")
        return PlanProfile([self.execute_with_vars_profiled(values, **variables) for _ in range(n)])

    def _bind(self, updates: dict[str, int]) -> Bindings:
        """Turn new values into entries of the C table. Runs in the turn that uses them."""
        merged = self._values | updates
        if merged == self._values:
            return _NOTHING
        values, chunks = self._table.launch(merged)
        self._values = merged
        return (), values, chunks

    def _profiles(
        self, raw: list[tuple[int, int, int, int]], values: Mapping[str, int]
    ) -> list[KernelProfile]:
        out = []
        for op, (start, elapsed, worker, chunks) in zip(self._ops, raw, strict=True):
            if not isinstance(op, PreparedKernel):
                continue
            known = {**values, **op.fixedvars}
            out.append(
                KernelProfile(
                    kernel=op.kernel,
                    device=op.device,
                    num_buffers=len(op.buffer_indices),
                    elapsed=elapsed / 1e9,
                    start=start / 1e9,
                    flops=evaluate(op.kernel.flops, known),
                    bytes=evaluate(op.kernel.bytes, known),
                    chunks=chunks,
                    op=op.id,
                    worker=worker,
                )
            )
        return out

    # ---- Other memory

    def rebind(self, index: int, buffer: Buffer) -> None:
        """Let another buffer take the place of one that was given to the plan.

        Later runs read and write it; buffers that are parts of the old one become parts of it.

        Raises
        ------
        ShapeError, DTypeError
            It has another size or type.
        PlanBuildError
            The place is one of the plan's own, or the bytes overlap others of the plan such
            that the order of operations would have to change.
        """
        self._check_rebind(index, buffer)
        layout = self._parts.layout.moved({index: buffer})
        new = {i: b for i in self._parts_of(index) if (b := layout.entries[i].buffer) is not None}
        self._check_overlap(new)

        def bind() -> Bindings:
            self._holds.append(buffer.storage.hold())
            self._parts = replace(self._parts, layout=layout)
            for i, b in new.items():
                self._buffers[i] = b
            self._renew_arrays(new)
            return [(op, slot, new[i].address) for op, slot, i in self._uses() if i in new], (), ()

        self.set_with(bind)
        self._renew_holds()

    def sites(self, index: int) -> tuple[tuple[int, int, int], ...]:
        """List where the C table points into a buffer: op, slot, and byte offset from its start.

        Whoever writes other addresses there by ``set_pointer`` takes care of hazards, and puts
        the old ones back. Empty where a custom function uses the buffer.
        """
        buffer = self._live(index)
        begin, end = buffer.address, buffer.address + buffer.nbytes
        found = []
        for op, slot, i in self._uses():
            start, stop = self._span(i)
            if begin <= start and stop <= end:
                found.append((op, slot, start - begin))
        overlapping = {
            i
            for i in range(len(self._buffers))
            if self._span(i)[0] < end and begin < self._span(i)[1]
        }
        if any(not overlapping.isdisjoint(self._ops[i].buffer_indices) for i in self._arrays):
            return ()
        return tuple(found)

    def replicate(self) -> Self:
        """Make a second plan that shares code and whatever is only read.

        Buffers that the plan writes become its own, with their present content. Both plans may
        run at the same time.
        """
        layout = self._parts.layout.copy()
        places: dict[int, Buffer] = {}
        outputs: dict[int, Any] = {}

        def take() -> Bindings:
            for i in self._parts.outputs:
                outputs[i] = self._live(i).copyout()
            for group, begin, end in self._written_groups():
                whole = Buffer(begin % ALIGNMENT + end - begin, dt.uint8, self.device)
                for i in group:
                    source = self._live(i)
                    start = begin % ALIGNMENT + source.address - begin
                    places[i] = whole.view(start, source.size, source.dtype)
                    places[i].raw()[...] = source.raw()
            return _NOTHING

        self.set_with(take)
        twin = type(self)(replace(self._parts, layout=layout.moved(places)))
        twin.set_with(lambda: twin._bind(self._values))  # noqa: SLF001 - of the same class
        for i, content in outputs.items():
            if layout.root_of(i).buffer is None:
                twin._live(i).raw()[...] = content  # noqa: SLF001
        return twin

    def release_intermediate_buffers(self, remove_fn: Callable[[int], object] | None = None) -> int:
        """Give back what the plan needs to run; it refuses to from now on. Outputs stay.

        Parameters
        ----------
        remove_fn : callable, optional
            Called with the id of each buffer that the plan lets go of.

        Returns
        -------
        int
            How many buffers those were.
        """
        outputs = {id(b.storage) for b in self.output_buffers}
        return self._release(remove_fn, lambda b: id(b.storage) in outputs)

    def release_all_buffers(self, remove_fn: Callable[[int], object] | None = None) -> int:
        """Give back everything, outputs too, as release_intermediate_buffers does."""
        return self._release(remove_fn, lambda _: False)

    def _release(
        self, remove_fn: Callable[[int], object] | None, keep: Callable[[Buffer], bool]
    ) -> int:
        self.release()
        dropped = []
        for i, buffer in enumerate(self._buffers):
            if buffer is not None and not keep(buffer):
                dropped.append(buffer.id)
                self._buffers[i] = None
        self._holds.clear()
        self._arrays.clear()
        self._renew_holds()
        for ident in dropped:
            if remove_fn is not None:
                remove_fn(ident)
        return len(dropped)

    # ---- For people

    @property
    def memory(self) -> report.MemoryReport:
        """What the plan's own buffers take, and the least they could."""
        return report.memory(self._parts, self._ops)

    def explain(self) -> str:
        """Describe operations, the waves in which they may run, buffers and fusion decisions."""
        return report.explain(self, self._parts)

    def __repr__(self) -> str:
        return report.summary(self, self._parts)

    # ---- Building

    def _allocate(self) -> None:
        parts = self._parts
        arena = Buffer(parts.arena_size, dt.uint8, parts.device) if parts.arena_size else None
        made: dict[int, Buffer] = {}
        for i, entry in enumerate(parts.layout.entries):
            if entry.buffer is not None:
                buffer = entry.buffer
            elif entry.base is not None:
                buffer = made[entry.base].view(entry.byte_offset, entry.size, entry.dtype)
            elif arena is not None and entry.own in parts.places:
                buffer = arena.view(parts.places[entry.own], entry.size, entry.dtype)
            else:
                buffer = Buffer(entry.size, entry.dtype, parts.device)
            made[i] = buffer
            self._buffers.append(buffer)
        self._renew_holds()

    def _renew_holds(self) -> None:
        storages = {id(b.storage): b.storage for b in self._buffers if b is not None}
        self._holds = [storage.hold() for storage in storages.values()]

    def _rows(self) -> list[OpTuple]:
        values, chunks = self._table.launch(self._values)
        numbers = {(op, slot): v for op, slot, v in values}
        counts = dict(chunks)
        nbytes = [e.nbytes for e in self._parts.layout.entries]
        rows: list[OpTuple] = []
        for i, (op, deps) in enumerate(zip(self._ops, self._parts.deps, strict=True)):
            buffers = [self._live(b).address for b in op.buffer_indices]
            cost = estimate_ns(op, nbytes)
            flags = self._flags(op)
            if isinstance(op, PreparedKernel):
                rows.append(self._kernel_row(op, buffers, counts.get(i), flags, cost, deps))
            elif isinstance(op, PreparedCopy):
                size = numbers.get((i, 0), op.nbytes)
                row_vals = [size if isinstance(size, int) else 0]
                rows.append((_dispatch.COPY, None, buffers, row_vals, 1, -1, flags, cost, deps))
            elif isinstance(op, PreparedCustomFunction):
                call = self._caller(i, op)
                rows.append((_dispatch.CUSTOM, call, buffers, [], 1, -1, flags, cost, deps))
            else:
                rows.append((_dispatch.NOP, None, [], [], 1, -1, flags, 0, deps))
        return rows

    def _kernel_row(
        self,
        op: PreparedKernel,
        buffers: list[int],
        chunks: int | None,
        flags: int,
        cost: int,
        deps: tuple[int, ...],
    ) -> OpTuple:
        kernel = op.kernel
        if kernel.may_fail:
            buffers = [*buffers, self.status_address]
        known = {**self._values, **op.fixedvars}
        vals = [known.get(name, 0) for name in kernel.var_names]
        core_slot = len(vals) - 1 if kernel.is_split else -1
        if chunks is None:
            chunks = evaluate(kernel.global_size[0], known)
        fn = kernel.address
        return (_dispatch.KERNEL, fn, buffers, vals, chunks, core_slot, flags, cost, deps)

    def _flags(self, op: PreparedOp) -> int:
        flags = 0
        if isinstance(op, PreparedCopy) or (
            isinstance(op, PreparedKernel) and op.kernel.host_parallel_safe
        ):
            flags |= _dispatch.HOST_PARALLEL_SAFE
        if isinstance(op, PreparedKernel) and can_fail(op):
            flags |= _dispatch.MAY_FAIL
        if any(self._parts.layout.entries[b].protected for b in written(op)):
            flags |= _dispatch.COMMIT
        return flags

    def _caller(self, index: int, op: PreparedCustomFunction) -> Callable[[], object]:
        """Make the function of no arguments that the C core calls."""
        arrays = self._arrays[index] = self._arrays_of(op)
        function = op.function
        if not op.variables:
            return lambda: function(*arrays)
        names = [v.arg[0] for v in op.variables]
        mine = weakref.ref(self)

        def call() -> object:
            plan = mine()
            values = {} if plan is None else plan._values  # noqa: SLF001 - the plan's own closure
            return function(*arrays, **{name: values[name] for name in names})

        return call

    def _arrays_of(self, op: PreparedCustomFunction) -> list[Any]:
        arrays = []
        for position, b in enumerate(op.buffer_indices):
            array = self._live(b).raw()
            if position not in op.output_indices:
                array = array.view()
                array.flags.writeable = False
            arrays.append(array)
        return arrays

    def _renew_arrays(self, changed: Mapping[int, Buffer]) -> None:
        for index, arrays in self._arrays.items():
            op = self._ops[index]
            if isinstance(op, PreparedCustomFunction) and not changed.keys().isdisjoint(
                op.buffer_indices
            ):
                arrays[:] = self._arrays_of(op)

    def _live(self, index: int) -> Buffer:
        buffer = self._buffers[index]
        if buffer is None:
            raise PlanReleasedError(f"buffer {index} of the plan was released")
        return buffer

    def _uses(self) -> Iterable[tuple[int, int, int]]:
        """Yield op, slot and buffer index of every address in the C table."""
        for i, op in enumerate(self._ops):
            if not isinstance(op, PreparedBufferView):
                for slot, b in enumerate(op.buffer_indices):
                    yield i, slot, b

    def _parts_of(self, index: int) -> list[int]:
        entries = self._parts.layout.entries
        return [i for i, e in enumerate(entries) if i == index or e.base == index]

    def _written_groups(self) -> list[tuple[list[int], int, int]]:
        """Group given buffers that share bytes, with their span, where the plan writes any."""
        dirty = [self._span(i) for i in self._written()]
        given = [
            (self._span(i), i)
            for i, entry in enumerate(self._parts.layout.entries)
            if entry.buffer is not None and entry.base is None and entry.nbytes
        ]
        groups: list[tuple[list[int], int, int]] = []
        for (begin, end), i in sorted(given):
            if groups and begin < groups[-1][2]:
                members, start, stop = groups[-1]
                groups[-1] = ([*members, i], start, max(stop, end))
            else:
                groups.append(([i], begin, end))
        return [g for g in groups if any(g[1] < stop and start < g[2] for start, stop in dirty)]

    def _span(self, index: int) -> tuple[int, int]:
        buffer = self._live(index)
        return buffer.address, buffer.address + buffer.nbytes

    def _written(self) -> set[int]:
        return {b for op in self._ops for b in written(op)}

    def _check_rebind(self, index: int, buffer: Buffer) -> None:
        if self.released:
            raise PlanReleasedError("the plan was released; prepare it again")
        entries = self._parts.layout.entries
        if not 0 <= index < len(entries):
            raise PlanBuildError(f"index: there is no buffer {index}; the plan has {len(entries)}")
        entry = entries[index]
        if entry.buffer is None or entry.base is not None:
            raise PlanBuildError(f"index: buffer {index} was not given to the plan; it is its own")
        if buffer.dtype is not entry.dtype:
            raise DTypeError(
                f"buffer: expected elements of {entry.dtype.name}, not {buffer.dtype.name}"
            )
        if buffer.size != entry.size:
            raise ShapeError(f"buffer: expected {entry.size} elements, not {buffer.size}")
        if buffer.readonly and not self._written().isdisjoint(self._parts_of(index)):
            raise PlanBuildError(f"buffer: the plan writes buffer {index}; this one is read-only")

    def _check_overlap(self, new: Mapping[int, Buffer]) -> None:
        dirty = self._written()
        for i, b in new.items():
            here = (b.address, b.address + b.nbytes)
            for j in range(len(self._buffers)):
                if j in new or (i not in dirty and j not in dirty):
                    continue
                known = _meet(self._analysed[i], self._analysed[j])
                if not known and _meet(here, self._span(j)):
                    raise PlanBuildError(
                        f"buffer: its bytes overlap buffer {j} of the plan, and one of them is "
                        "written; bind a copy"
                    )

    def _op_name(self, op: int) -> str:
        return self._ops[op].label


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]
