"""ExecutionPlan: prepared once, executed thousands of times."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from kernelrt.errors import PlanBuildError, PlanReleasedError, ShapeError
from kernelrt.native.core import pool_limit
from kernelrt.runtime import plan_report, preparation, table
from kernelrt.runtime.accessors import PlanAccessors, PlanParts
from kernelrt.runtime.memory import PlanMemory
from kernelrt.runtime.plan_ops import PreparedKernel, PreparedRegion
from kernelrt.runtime.repeat import PlanProfile
from kernelrt.runtime.slice_pipelining import find_chains, rechained
from kernelrt.runtime.variables import VariableTable, merge_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kernelrt._dispatch import OpTuple, PlanCore
    from kernelrt.device.buffer import Buffer
    from kernelrt.errors import CustomFunctionError, DomainError, IndexBoundsError, LinAlgError
    from kernelrt.native.core import Bindings, Exchanges
    from kernelrt.native.memory import Storage
    from kernelrt.runtime.buffer_layout import Layout
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.plan_ops import PreparedOp
    from kernelrt.runtime.profiler import KernelProfile
    from kernelrt.runtime.table import Launch

__all__ = ["ExecutionPlan", "PlanParts"]

_NOTHING: Bindings = ((), (), (), ())


class ExecutionPlan(PlanAccessors):
    """A finished plan: flat tables in C, and the objects that tell what is in them.

    Made by :class:`~kernelrt.runtime.builder.ExecutionPlanBuilder` or
    :func:`~kernelrt.runtime.prepare.prepare`. May be executed from any thread; two threads on
    one plan take turns. ``execute()`` and ``release()`` are those of the C core.
    """

    def __init__(self, parts: PlanParts) -> None:
        ids = [op.id for op in parts.ops]
        if any(isinstance(op, PreparedRegion) for op in parts.ops):
            parts = replace(parts, ops=[_with_own_bodies(op) for op in parts.ops])
        self._ops = [
            replace(op, dependencies=tuple(ids[d] for d in deps))
            for op, deps in zip(parts.ops, parts.deps, strict=True)
        ]
        self._parts = parts
        self._memory = PlanMemory(parts, self._ops)
        self._chains = find_chains(
            self._ops, lambda op: table.is_apart(op, parts), self._memory.region, pool_limit()
        )
        self._table = VariableTable(self._ops)
        self._values = dict(self._table.initial)
        super().__init__(self._rows())
        self._need_stack_of(op.kernel for op in self.prepared_kernels)
        if any(op.kernel.is_foreign for op in self.prepared_kernels):
            self.calls_foreign_code()
        if not self._memory.is_lasting():
            self.keep_to_own_memory()
        self._prepares = False
        mine = weakref.ref(self)
        self._host: weakref.ref[ExecutionPlan] | None = None
        for body in self.bodies:
            body._host = mine  # noqa: SLF001 - of the same class
        for i, op in enumerate(self._ops):
            op._place.plan, op._place.index = mine, i  # noqa: SLF001 - the op's place is here

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
        self, raw: list[tuple[int, int, int, int, int]], updates: Mapping[str, int] | None = None
    ) -> list[KernelProfile]:
        """What the samples of a run say of each kernel.

        Parameters
        ----------
        raw : list of tuple
            For each op when it began, how long it took (both in ns), on which worker it ran, in
            how many chunks, and how often; behind these, those of bodies of regions.
        updates : mapping, optional
            Values of Variables that were others than the plan's own.
        """
        return plan_report.profiles(self._ops, raw, {**self._values, **(updates or {})})

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
        if self.bodies and self.buffer_at(index) is not None:
            here = self._memory.region(index)
            if any(here.meets(there) for body in self.bodies for there in body.given()):
                raise PlanBuildError(
                    f"index: buffer {index} was also given to a body of a region; let the body "
                    "read it through a port"
                )

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

    def _over(self, layout: Layout, places: Mapping[int, Buffer] | None = None) -> Self:
        """Make a plan of the same operations over other memory, with the same values.

        Bodies of regions are made anew. What they read within buffers that go to `places` they read
        there.
        """
        parts = replace(self._parts, layout=layout)
        if self.bodies:
            parts = replace(parts, ops=[self._moved_bodies(op, places or {}) for op in parts.ops])
        made = type(self)(parts)
        if self.max_threads is not None:
            made.set_threads(self.max_threads)
        made.set_with(lambda: made._bind(self._values))  # noqa: SLF001 - of the same class
        return made

    def _moved_bodies(self, op: PreparedOp, places: Mapping[int, Buffer]) -> PreparedOp:
        if not isinstance(op, PreparedRegion):
            return op
        made = []
        for body in op.bodies:
            theirs = body._memory.following(self._memory, places)  # noqa: SLF001
            made.append(body._over(body._parts.layout.moved(theirs), theirs))  # noqa: SLF001
        return replace(op, bodies=tuple(made))

    @property
    def arena_nbytes(self) -> int:
        """The bytes of the memory that intermediates share."""
        return self._memory.arena_nbytes

    def given_storages(self) -> dict[int, int]:
        """Bytes of each storage that the caller gave to the plan, by the storage's identity."""
        return self._memory.given_storages()

    def discard_arena(self) -> bool:
        """Return the memory of intermediates to the system until the plan runs again.

        Returns
        -------
        bool
            False, and nothing done, if the plan is running.
        """
        return self.unless_busy(self._memory.discard_arena)

    def sites(self, index: int) -> tuple[tuple[int, int, int], ...]:
        """List where the C table points into a buffer: op, slot, and byte offset from its start.

        Whoever writes other addresses there by ``set_pointer`` takes care of hazards, and puts
        the old ones back. Empty where a custom function uses the buffer.
        """
        return self._memory.sites(index)

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
        twin = self._over(self._parts.layout.moved(places), places)
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
        changed = 0

        def take() -> Exchanges:
            nonlocal changed
            found = [(plan, *plan._exchanges(kernels)) for plan in (self, *self._all_bodies())]  # noqa: SLF001
            changed = sum(count for *_, count in found)
            return (
                [(plan, rows) for plan, rows, *_ in found],
                [attribute for _, _, attributes, _ in found for attribute in attributes],
            )

        self.exchange_with(take)
        return changed

    def _all_bodies(self) -> Iterable[ExecutionPlan]:
        for body in self.bodies:
            yield body
            yield from body._all_bodies()  # noqa: SLF001 - of the same class

    def _exchanges(
        self, kernels: Mapping[CachedKernel, CachedKernel]
    ) -> tuple[list[Launch], list[tuple[object, str, object]], int]:
        """What changes in the table, what tells of it, and in how many places launches change.

        Runs in a turn of the plan.
        """
        ops = list(self._ops)
        parts = list(self._parts.ops)
        attributes: list[tuple[object, str, object]] = []
        changed: set[int] = set()
        for i, (op, part) in enumerate(zip(self._ops, self._parts.ops, strict=True)):
            if not isinstance(op, PreparedKernel) or not isinstance(part, PreparedKernel):
                continue
            new = kernels.get(op.kernel, op.kernel)
            if new is not op.kernel:
                moved = replace(op, kernel=new)
                moved.check_lent(self._memory.region)
                ops[i], parts[i] = moved, replace(part, kernel=new)
                attributes.append((op, "kernel", new))
                changed.add(i)
        count = len(changed)
        chains = rechained(self._chains, ops, self._memory.region)
        for chain in {*self.chains} ^ {*chains}:
            changed.update(chain.members)
        attributes += [
            (self, "_parts", replace(self._parts, ops=parts)),
            (self, "_table", VariableTable(ops)),
        ]
        again = {i: ops[i] for i in sorted(changed)}
        rows = table.launches(self._parts, again, chains, self._values)
        return rows, attributes, count

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
        for body in self.bodies:
            dropped += body._memory.drop(lambda _: False)  # noqa: SLF001 - released with this one
        for ident in dropped:
            if remove_fn is not None:
                remove_fn(ident)
        return len(dropped)

    # ---- For people

    @property
    def memory(self) -> plan_report.MemoryReport:
        """What the plan's own buffers take, and the least they could."""
        return plan_report.memory(self._parts, self._ops)

    def explain(self) -> str:
        """Describe operations, the waves in which they may run, buffers and fusion decisions."""
        return plan_report.explain(self, self._parts)

    def __repr__(self) -> str:
        return plan_report.summary(self, self._parts)

    def _rows(self) -> list[OpTuple]:
        mine = weakref.ref(self)

        def values() -> Mapping[str, int]:
            plan = mine()
            return {} if plan is None else plan._values  # noqa: SLF001 - of the same class

        def place(op: int, slot: int) -> tuple[int, object]:
            plan = mine()
            if plan is None:
                raise PlanReleasedError("the plan is gone")
            return plan.pointer(op, slot), plan._outermost()  # noqa: SLF001

        return table.rows(
            self._parts, self._ops, self._memory, self._table, self._chains, values, place
        )

    def _outermost(self) -> ExecutionPlan:
        """The plan that runs this one as a body, or as a body of a body; else itself."""
        host = None if self._host is None else self._host()
        return self if host is None else host._outermost()  # noqa: SLF001

    def _op_name(self, op: int) -> str:
        return self._ops[op].label

    def _turn_name(self, op: int, turn: int) -> str | None:
        region = self._ops[op]
        is_loop = isinstance(region, PreparedRegion) and not region.is_choice
        return f"turn {turn} of the {region.label}" if is_loop else None

    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | DomainError | LinAlgError | CustomFunctionError:
        launch = self._ops[op]
        if not isinstance(launch, PreparedKernel):
            return super()._index_error(op, status_word)
        return plan_report.index_error(launch, status_word, self._values, self.buffers)


def _with_own_bodies(op: PreparedOp) -> PreparedOp:
    """Copy the bodies of a region that belong to another plan already."""
    if not isinstance(op, PreparedRegion) or not any(body.is_body for body in op.bodies):
        return op
    own = [
        body._over(body._parts.layout) if body.is_body else body  # noqa: SLF001
        for body in op.bodies
    ]
    return replace(op, bodies=tuple(own))
