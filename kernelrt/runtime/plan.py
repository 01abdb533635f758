"""ExecutionPlan: prepared once, executed thousands of times."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from kernelrt._dispatch import PlanCore
from kernelrt.errors import PlanBuildError, PlanReleasedError, ShapeError
from kernelrt.runtime import preparation, report, table
from kernelrt.runtime.memory import PlanMemory
from kernelrt.runtime.ops import PreparedKernel, PreparedOp
from kernelrt.runtime.repeat import PlanProfile
from kernelrt.runtime.variables import VariableTable, merge_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from kernelrt._dispatch import Bindings, Exchanges, OpTuple
    from kernelrt._memory import Storage
    from kernelrt.device.buffer import Buffer
    from kernelrt.errors import CustomFunctionError, IndexBoundsError, LinAlgError
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.layout import Layout
    from kernelrt.runtime.ops import RuntimeVar
    from kernelrt.runtime.profiler import KernelProfile
    from kernelrt.schedule.types import Decision, Intermediate

__all__ = ["ExecutionPlan", "PlanParts"]

_NOTHING: Bindings = ((), (), (), ())


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
        ids = [op.id for op in parts.ops]
        self._ops: list[PreparedOp] = [
            replace(op, dependencies=tuple(ids[d] for d in deps))
            for op, deps in zip(parts.ops, parts.deps, strict=True)
        ]
        self._parts = parts
        self._memory = PlanMemory(parts, self._ops)
        self._table = VariableTable(self._ops)
        self._values = dict(self._table.initial)
        super().__init__(self._rows())
        self._need_stack_of(op.kernel for op in self._ops if isinstance(op, PreparedKernel))
        if not self._memory.is_lasting():
            self.keep_to_own_memory()
        self._prepares = False
        mine = weakref.ref(self)
        for i, op in enumerate(self._ops):
            op._place.plan, op._place.index = mine, i  # noqa: SLF001 - the op's place is here

    # ---- What the plan is made of

    @property
    def preparation(self) -> ExecutionPlan | None:
        """Computes what stays the same from run to run: before the first, and when it changed."""
        found, _ = self._prepared_by
        return found if isinstance(found, ExecutionPlan) else None

    @property
    def device(self) -> str:
        """Name of the device that runs the plan."""
        return self._parts.device

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers, by index. Raises PlanReleasedError where some were released."""
        buffers = self._memory.buffers
        if any(b is None for b in buffers):
            raise PlanReleasedError("the plan's buffers were released")
        return tuple(b for b in buffers if b is not None)

    def buffer_at(self, index: int) -> Buffer | None:
        """Give the buffer at `index`; None where there is none or it was released."""
        buffers = self._memory.buffers
        return buffers[index] if 0 <= index < len(buffers) else None

    def buffer(self, ast_id: Hashable) -> Buffer | None:
        """Give the buffer that stands for `ast_id`; None where there is none."""
        index = self.buffer_index(ast_id)
        return None if index is None else self.buffer_at(index)

    def buffer_index(self, ast_id: Hashable) -> int | None:
        """Give the index of the buffer that stands for `ast_id`; None where there is none."""
        return self._parts.ast_map.get(ast_id)

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

    def prepare_by(self, preparation: PlanCore, sources: Iterable[Storage]) -> None:
        """Let another plan compute what this one reads, whenever `sources` may have changed.

        Parameters
        ----------
        preparation : ExecutionPlan
            Writes to memory that nothing else writes. It reads `sources` and constants alone.
        sources : iterable of Storage
            What it reads. Where one is shared with code outside, it runs before every run.
        """
        super().prepare_by(preparation, sources)
        if isinstance(preparation, ExecutionPlan):
            preparation._prepares = True  # noqa: SLF001 - of the same class

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
        return self.profiles_of(self.execute_profiled_raw())

    def execute_with_vars_profiled(
        self, values: Any = None, /, **variables: int
    ) -> list[KernelProfile]:
        """Do what execute_with_vars does, and tell what each kernel took."""
        updates = self._table.check(merge_updates(values, variables))
        raw = self.execute_profiled_raw(lambda: self._bind(updates))
        return self.profiles_of(raw, updates)

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
        return (), values, chunks, ((self, "_values", merged),)

    def profiles_of(
        self, raw: list[tuple[int, int, int, int]], updates: Mapping[str, int] | None = None
    ) -> list[KernelProfile]:
        """What the samples of a run say of each kernel.

        Parameters
        ----------
        raw : list of tuple
            For each op when it began, how long it took (both in ns), on which worker it ran, and
            in how many chunks.
        updates : mapping, optional
            Values of Variables that were others than the plan's own.
        """
        return report.profiles(self._ops, raw, {**self._values, **(updates or {})})

    # ---- Other memory

    def rebind(self, index: int, buffer: Buffer) -> None:
        """Let another buffer take the place of one that was given to the plan.

        Later runs read and write it; buffers that are parts of the old one become parts of it.
        What is prepared from it is prepared anew, by another preparation.

        Raises
        ------
        ShapeError, DTypeError
            It has another size or type.
        PlanBuildError
            The place is one of the plan's own, or the bytes overlap others of the plan such
            that the order of operations would have to change. Or it is the preparation of another
            plan, or computed by this one's, or its bytes are prepared from along with others.
        """
        if self._prepares:
            raise PlanBuildError("it prepares values for another plan; rebind the buffer there")

        def bind() -> Bindings:
            layout, new = self._memory.plan_rebind(index, buffer)
            parts = replace(self._parts, layout=layout)
            prepared = self._prepared_from(index, buffer)
            pointers, attributes = self._memory.rebind(layout, new)
            return pointers, (), (), ((self, "_parts", parts), *attributes, *prepared)

        self.set_with(bind)

    def _prepared_from(self, index: int, buffer: Buffer) -> list[tuple[object, str, object]]:
        """What has to be set when another buffer takes the place of one."""
        if (known := self.preparation) is None:
            return []
        moved = preparation.moved_with(self._memory, known._memory, index, buffer)  # noqa: SLF001
        if not moved:
            return []
        made = known._over(known._memory.plan_move(moved)[0])  # noqa: SLF001
        made._prepares = True  # noqa: SLF001
        return [(self, "_prepared_by", (made, preparation.sources_in(made._memory)))]  # noqa: SLF001

    def _over(self, layout: Layout) -> Self:
        """Make a plan of the same operations over other memory, with the same values."""
        made = type(self)(replace(self._parts, layout=layout))
        if self.max_threads is not None:
            made.set_threads(self.max_threads)
        made.set_with(lambda: made._bind(self._values))  # noqa: SLF001 - of the same class
        return made

    def sites(self, index: int) -> tuple[tuple[int, int, int], ...]:
        """List where the C table points into a buffer: op, slot, and byte offset from its start.

        Whoever writes other addresses there by ``set_pointer`` takes care of hazards, and puts
        the old ones back. Empty where a custom function uses the buffer.
        """
        return self._memory.sites(index)

    def owns(self, index: int) -> bool:
        """Whether the buffer at `index` is the plan's own memory, and not what was given to it."""
        return self._parts.layout.root_of(index).buffer is None

    def replicate(self) -> Self:
        """Make a second plan that shares code and whatever is only read.

        Buffers that the plan writes become its own, with their present content, and so does what
        is prepared. Both plans may run at the same time.
        """
        places: dict[int, Buffer] = {}
        outputs: dict[int, Any] = {}
        prepares: list[tuple[ExecutionPlan, Layout]] = []

        def take() -> Bindings:
            outputs.update((i, self._memory.live(i).copyout()) for i in self._parts.outputs)
            places.update(self._memory.copy_of_state())
            if (known := self.preparation) is not None:
                theirs = known._memory.copy_of_state()  # noqa: SLF001
                places.update(self._memory.following(known._memory, theirs))  # noqa: SLF001
                prepares.append((known, known._parts.layout.moved(theirs)))  # noqa: SLF001
            return _NOTHING

        self.set_with(take)
        twin = self._over(self._parts.layout.moved(places))
        for i, content in outputs.items():
            if self.owns(i):
                twin.buffers[i].content()[...] = content
        for known, layout in prepares:
            made = known._over(layout)  # noqa: SLF001
            twin.prepare_by(made, preparation.sources_in(made._memory))  # noqa: SLF001
        return twin

    @property
    def state(self) -> tuple[Buffer, ...]:
        """The buffers given to the plan that it writes, and those that share bytes with them."""
        return tuple(self._memory.state())

    # ---- Other code

    def exchange(self, kernels: Mapping[CachedKernel, CachedKernel]) -> int:
        """Let other code of the same ASTs take the place of kernels, in one turn of the plan.

        Everything else stays as it is; who holds the plan goes on with it.

        Parameters
        ----------
        kernels : mapping of CachedKernel to CachedKernel
            What is launched now, and what is to be launched instead.

        Returns
        -------
        int
            How many operations launch another kernel now.

        Raises
        ------
        PlanBuildError
            A kernel was made from another AST, or for another device, than the one whose place it
            would take, or holds other values in an output that shares memory with another of its
            slots. Nothing has changed.
        """
        for old, new in kernels.items():
            if new.ast is not old.ast or new.device != old.device:
                raise PlanBuildError(
                    f"kernels: {new.entry_point!r} on {new.device} computes something else than "
                    f"{old.entry_point!r} on {old.device}"
                )
        self._need_stack_of(kernels.values())
        changed: list[int] = []

        def take() -> Exchanges:
            ops = list(self._ops)
            parts = list(self._parts.ops)
            attributes: list[tuple[object, str, object]] = []
            for i, (op, part) in enumerate(zip(self._ops, self._parts.ops, strict=True)):
                if not isinstance(op, PreparedKernel) or not isinstance(part, PreparedKernel):
                    continue
                new = kernels.get(op.kernel, op.kernel)
                if new is not op.kernel:
                    moved = replace(op, kernel=new)
                    moved.check_lent(self._memory.region)
                    ops[i], parts[i] = moved, replace(part, kernel=new)
                    attributes.append((op, "kernel", new))
                    changed.append(i)
            attributes += [
                (self, "_parts", replace(self._parts, ops=parts)),
                (self, "_table", VariableTable(ops)),
            ]
            rows = table.launches(self._parts, {i: ops[i] for i in changed}, self._values)
            return rows, attributes

        self.exchange_with(take)
        return len(changed)

    def _need_stack_of(self, kernels: Iterable[CachedKernel]) -> None:
        if most := max((kernel.stack_bytes for kernel in kernels), default=0):
            self.need_stack(most)

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
        dropped = self._memory.drop(keep)
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

    def _rows(self) -> list[OpTuple]:
        mine = weakref.ref(self)

        def values() -> Mapping[str, int]:
            plan = mine()
            return {} if plan is None else plan._values  # noqa: SLF001 - of the same class

        return table.rows(self._parts, self._ops, self._memory, self._table, values)

    def _op_name(self, op: int) -> str:
        return self._ops[op].label

    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | LinAlgError | CustomFunctionError:
        launch = self._ops[op]
        if not isinstance(launch, PreparedKernel):
            return super()._index_error(op, status_word)
        return report.index_error(launch, status_word, self._values, self.buffers)
