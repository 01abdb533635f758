"""ExecutionPlan: prepared once, executed thousands of times."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from kernelrt.errors import PlanBuildError, PlanReleasedError, ShapeError
from kernelrt.native.core import pool_limit
from kernelrt.runtime import failures, plan_report, preparation, table
from kernelrt.runtime.accessors import PlanAccessors, PlanParts
from kernelrt.runtime.memory import PlanMemory
from kernelrt.runtime.plan_ops import PreparedKernel, PreparedRegion
from kernelrt.runtime.repeat import PlanProfile
from kernelrt.runtime.slice_pipelining import find_pipelines, still_pipelined
from kernelrt.runtime.variables import VariableTable, merge_updates
from kernelrt.util import displays
from kernelrt.util.atomic_file import destination, writing
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from kernelrt._dispatch import OpTuple, PlanCore, Sample
    from kernelrt.device.buffer import Buffer
    from kernelrt.errors import CustomFunctionError, DomainError, IndexBoundsError, LinAlgError
    from kernelrt.native.core import Bindings, Exchanges
    from kernelrt.native.memory import Storage
    from kernelrt.runtime import image
    from kernelrt.runtime.buffer_layout import Layout
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.plan_ops import PreparedCustomFunction, PreparedOp
    from kernelrt.runtime.profiler import KernelProfile
    from kernelrt.runtime.table import Launch
else:
    image = Module("kernelrt.runtime.image")

__all__ = ["ExecutionPlan", "PlanParts"]

_NOTHING: Bindings = ((), (), (), ())


class ExecutionPlan(PlanAccessors):
    """An executable plan: tables that the C core runs, and the Python objects that describe them.

    Create a plan with :class:`~kernelrt.runtime.builder.ExecutionPlanBuilder` or
    :func:`~kernelrt.runtime.prepare.prepare`. Any thread may execute it. If two threads execute the
    same plan, one waits for the other. The C core implements ``execute()`` and ``release()``.

    Parameters
    ----------
    parts : PlanParts
        Ops, buffers, dependencies and memory of the plan, as the builder checked them.

    Examples
    --------
    >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
    >>> plan.execute()
    >>> plan.output_buffer.numpy().tolist()
    [2.0, 2.0, 2.0]
    >>> len(plan.prepared_ops), len(plan.buffers), plan.memory.peak
    (1, 2, 12)
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
        self._pipelines = find_pipelines(
            self._ops, lambda op: table.is_serial(op, parts), self._memory.region, pool_limit()
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
            op._location.plan, op._location.index = mine, i  # noqa: SLF001 - the plan sets it

    # ---- Running

    def prepare_by(self, preparation: PlanCore, sources: Iterable[Storage]) -> None:
        """Attach a plan that recomputes inputs of this one whenever `sources` may have changed.

        Parameters
        ----------
        preparation : ExecutionPlan
            Plan that reads only `sources` and constants, and writes memory that nothing else
            writes.
        sources : iterable of Storage
            Storages that `preparation` reads. If one of them is shared with other code,
            `preparation` runs before every run of this plan.
        """
        super().prepare_by(preparation, sources)
        if isinstance(preparation, ExecutionPlan):
            preparation._prepares = True  # noqa: SLF001 - of the same class

    def execute_with_vars(self, values: Any = None, /, **variables: int) -> None:
        """Set some variables and run the plan, as one atomic step.

        Parameters
        ----------
        values : mapping or iterable of pairs, optional
            Names (or Variables) and their new values.
        **variables : int
            New values as keywords. Variables that are not named keep their last value.

        Raises
        ------
        VariableError
            A name is unknown, fixed or ``core_id``; a value is outside its bounds; or a launch
            size evaluates to less than one. Nothing has run and no variable has changed.
        IndexBoundsError, CustomFunctionError, PlanBusyError, PlanReleasedError
            As for ``execute``.

        Examples
        --------
        >>> f = krt.jit(lambda x: x * 2, dynamic={"x": {0: krt.Variable("n", 1, 8)}})
        >>> plan = f.plan(np.ones(3, np.float32))
        >>> plan.execute_with_vars(n=2)                      # or {"n": 2}
        >>> plan.values
        {'n': 2}
        >>> plan.execute_with_vars(n=9)
        Traceback (most recent call last):
        kernelrt.errors.VariableError: n: 9 lies outside its bounds 1 to 8
        """
        self.execute_with(self.bindings(values, **variables))

    def bindings(self, values: Any = None, /, **variables: int) -> Callable[[], Bindings]:
        """Check values of variables; return the callable that `execute_with` and a Replay take.

        Parameters
        ----------
        values, **variables
            As for :meth:`execute_with_vars`.

        Returns
        -------
        callable
            Gives the entries of the C table for these values, when the plan runs.

        Raises
        ------
        VariableError
            As for :meth:`execute_with_vars`. Launch sizes are checked only when the plan runs.

        Examples
        --------
        >>> f = krt.jit(lambda x: x * 2, dynamic={"x": {0: krt.Variable("n", 1, 8)}})
        >>> plan = f.plan(np.ones(3, np.float32))
        >>> plan.execute_with(plan.bindings(n=2))
        >>> plan.values
        {'n': 2}
        """
        updates = self._table.check(merge_updates(values, variables))
        return lambda: self._bind(updates)

    def execute_profiled(self) -> list[KernelProfile]:
        """Run the plan; return the profile of each kernel, in execution order.

        Returns
        -------
        list of KernelProfile
            One item for each launch. Kernels in bodies of regions come last.

        Examples
        --------
        >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
        >>> [profile] = plan.execute_profiled()
        >>> profile.flops, profile.bytes                     # 12 bytes are read, 12 written
        (3, 24)
        """
        return self.profiles_of(self.execute_profiled_raw())

    def execute_with_vars_profiled(
        self, values: Any = None, /, **variables: int
    ) -> list[KernelProfile]:
        """Run as :meth:`execute_with_vars` does; return the profile of each kernel.

        Parameters
        ----------
        values, **variables
            As for :meth:`execute_with_vars`.

        Returns
        -------
        list of KernelProfile
            As of :meth:`execute_profiled`, with estimates for the new sizes.

        Raises
        ------
        VariableError
            As for :meth:`execute_with_vars`.

        Examples
        --------
        >>> f = krt.jit(lambda x: x * 2, dynamic={"x": {0: krt.Variable("n", 1, 8)}})
        >>> plan = f.plan(np.ones(3, np.float32))
        >>> [profile] = plan.execute_with_vars_profiled(n=2)
        >>> profile.flops
        2
        """
        updates = self._table.check(merge_updates(values, variables))
        raw = self.execute_profiled_raw(lambda: self._bind(updates))
        return self.profiles_of(raw, updates)

    def profile(self, n: int = 100, values: Any = None, /, **variables: int) -> PlanProfile:
        """Run the plan `n` times; return the median, minimum and spread of each kernel's time.

        Parameters
        ----------
        n : int
            Number of runs, at least 1. Each run is a full run: it updates the state of the plan.
        values, **variables
            As for :meth:`execute_with_vars`.

        Returns
        -------
        PlanProfile
            The runs. It prints as a table; ``ops`` has the numbers, and ``save_trace`` writes a
            file.

        Raises
        ------
        ShapeError
            `n` is below 1.
        VariableError
            As for :meth:`execute_with_vars`.

        Examples
        --------
        >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
        >>> found = plan.profile(20)
        >>> len(found.runs), found.ops[0].median > 0
        (20, True)
        """
        if n < 1:
            raise ShapeError(f"n: expected at least one run, not {n}")
        return PlanProfile([self.execute_with_vars_profiled(values, **variables) for _ in range(n)])

    def _bind(self, updates: dict[str, int]) -> Bindings:
        """Return the entries of the C table for new values. The caller holds the plan's lock."""
        merged = self._values | updates
        if merged == self._values:
            return _NOTHING
        values, chunks = self._table.launch(merged)
        return (), values, chunks, ((self, "_values", merged),)

    def profiles_of(
        self, raw: list[Sample], updates: Mapping[str, int] | None = None
    ) -> list[KernelProfile]:
        """Return the profile of each kernel from the samples of a run.

        Parameters
        ----------
        raw : list of tuple
            One tuple for each op: start and elapsed time in ns, worker, number of chunks, number of
            runs, and the ranges of chunks that each thread ran. Tuples for ops in bodies of regions
            follow.
        updates : mapping, optional
            Values of Variables in that run where they differ from the plan's current values.

        Returns
        -------
        list of KernelProfile
            One item for each launch of a kernel.
        """
        return plan_report.profiles(self._ops, raw, {**self._values, **(updates or {})})

    # ---- Other memory

    def rebind(self, index: int, buffer: Buffer) -> None:
        """Replace a buffer that was given to the plan by another buffer.

        Later runs read and write the new buffer. Views of the old buffer become views of the new
        one. If a preparation reads the old buffer, a new preparation that reads the new one
        replaces it.

        Parameters
        ----------
        index : int
            Index of a buffer that was given to the plan.
        buffer : Buffer
            Buffer of the same size and dtype.

        Raises
        ------
        ShapeError, DTypeError
            The size or the dtype differs.
        PlanBuildError
            The plan allocated the buffer at `index`. Or the new buffer overlaps another buffer of
            the plan, and one of the two is written. Or this plan is the preparation of another
            plan. Or the preparation of this plan computes the buffer, or reads it together with
            memory around it.

        Examples
        --------
        >>> from kernelrt.device import Buffer
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> source = builder.add_buffer(Buffer.wrap(np.array([1, 2])))
        >>> target = builder.add_intermediate(2, krt.int64)
        >>> op = builder.add_copy(target, source)
        >>> builder.set_output_buffer(target)
        >>> plan = builder.build()
        >>> plan.rebind(source, Buffer.wrap(np.array([3, 4])))
        >>> plan.execute()
        >>> plan.output_buffer.numpy().tolist()
        [3, 4]
        """
        if self._prepares:
            raise PlanBuildError(
                "rebind: this plan is the preparation of another plan; call rebind on that plan"
            )
        if self.bodies and self.buffer_at(index) is not None:
            here = self._memory.region(index)
            if any(here.meets(there) for body in self.bodies for there in body.given()):
                raise PlanBuildError(
                    f"index: cannot rebind buffer {index}, because it was also given to a body of "
                    "a region; let the body read it through a port"
                )

        def bind() -> Bindings:
            layout, new = self._memory.plan_rebind(index, buffer)
            parts = replace(self._parts, layout=layout)
            prepared = self._prepared_from(index, buffer)
            pointers, attributes = self._memory.rebind(layout, new)
            return pointers, (), (), ((self, "_parts", parts), *attributes, *prepared)

        self.set_with(bind)

    def _prepared_from(self, index: int, buffer: Buffer) -> list[tuple[object, str, object]]:
        """Return the attributes to set when `buffer` replaces the buffer at `index`."""
        if (known := self.preparation) is None:
            return []
        moved = preparation.moved_with(self._memory, known._memory, index, buffer)  # noqa: SLF001
        if not moved:
            return []
        made = known._over(known._memory.plan_move(moved)[0])  # noqa: SLF001
        made._prepares = True  # noqa: SLF001
        return [(self, "_prepared_by", (made, preparation.sources_in(made._memory)))]  # noqa: SLF001

    def _over(self, layout: Layout, replacements: Mapping[int, Buffer] | None = None) -> Self:
        """Make a plan of the same operations and variable values over other memory.

        Bodies of regions are copied. `replacements` maps indices of this plan's buffers to new
        buffers. If a body reads part of an old buffer, its copy reads the same part of the new one.
        """
        parts = replace(self._parts, layout=layout)
        if self.bodies:
            ops = [self._moved_bodies(op, replacements or {}) for op in parts.ops]
            parts = replace(parts, ops=ops)
        made = type(self)(parts)
        if self.max_threads is not None:
            made.set_threads(self.max_threads)
        made.set_with(lambda: made._bind(self._values))  # noqa: SLF001 - of the same class
        return made

    def _moved_bodies(self, op: PreparedOp, replacements: Mapping[int, Buffer]) -> PreparedOp:
        if not isinstance(op, PreparedRegion):
            return op
        made = []
        for body in op.bodies:
            theirs = body._memory.following(self._memory, replacements)  # noqa: SLF001
            made.append(body._over(body._parts.layout.moved(theirs), theirs))  # noqa: SLF001
        return replace(op, bodies=tuple(made))

    @property
    def arena_nbytes(self) -> int:
        """Size in bytes of the memory that intermediates share."""
        return self._memory.arena_nbytes

    def given_storages(self) -> dict[int, int]:
        """Return the size in bytes of each storage that was given to the plan, by its ``id()``.

        Returns
        -------
        dict of int to int
            Maps the ``id()`` of each storage to its number of bytes.
        """
        return self._memory.given_storages()

    def discard_arena(self) -> bool:
        """Return the memory of intermediates to the system until the plan runs again.

        Returns
        -------
        bool
            Whether the memory was returned. If the plan is running, nothing is done.
        """
        return self.unless_busy(self._memory.discard_arena)

    def sites(self, index: int) -> tuple[tuple[int, int, int], ...]:
        """List the slots of the C table that point into a buffer.

        You may write other addresses there with ``set_pointer``. Then you have to avoid data
        hazards, and to restore the old addresses afterwards.

        Parameters
        ----------
        index : int
            Index of the buffer.

        Returns
        -------
        tuple of (int, int, int)
            One tuple for each slot: the op, the slot, and the byte offset from the start of the
            buffer. The result is empty if a custom function uses the buffer.

        Examples
        --------
        >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
        >>> plan.sites(plan.output_buffer_idx)
        ((0, 0, 0),)
        """
        return self._memory.sites(index)

    def replicate(self) -> Self:
        """Make a second plan that shares the code and all read-only buffers.

        The new plan gets its own copy of each buffer that the plan writes, with the present
        contents, and its own preparation. Both plans may run at the same time.

        Returns
        -------
        ExecutionPlan
            The second plan, with the present values of the variables.

        Examples
        --------
        >>> from kernelrt.device import Buffer
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> source = builder.add_buffer(Buffer.wrap(np.array([1, 2])))
        >>> target = builder.add_intermediate(2, krt.int64)
        >>> op = builder.add_copy(target, source)
        >>> builder.set_output_buffer(target)
        >>> plan = builder.build()
        >>> plan.execute()
        >>> twin = plan.replicate()
        >>> twin.rebind(source, Buffer.wrap(np.array([3, 4])))
        >>> twin.execute()
        >>> twin.output_buffer.numpy().tolist(), plan.output_buffer.numpy().tolist()
        ([3, 4], [1, 2])
        """
        replacements: dict[int, Buffer] = {}
        outputs: dict[int, Any] = {}
        prepares: list[tuple[ExecutionPlan, Layout]] = []

        def take() -> Bindings:
            outputs.update((i, self._memory.live(i).copyout()) for i in self._parts.outputs)
            replacements.update(self._memory.copy_of_state())
            if (known := self.preparation) is not None:
                theirs = known._memory.copy_of_state()  # noqa: SLF001
                replacements.update(self._memory.following(known._memory, theirs))  # noqa: SLF001
                prepares.append((known, known._parts.layout.moved(theirs)))  # noqa: SLF001
            return _NOTHING

        self.set_with(take)
        twin = self._over(self._parts.layout.moved(replacements), replacements)
        for i, content in outputs.items():
            if self.owns(i):
                twin.buffers[i].content()[...] = content
        for known, layout in prepares:
            made = known._over(layout)  # noqa: SLF001
            twin.prepare_by(made, preparation.sources_in(made._memory))  # noqa: SLF001
        return twin

    @property
    def state(self) -> tuple[Buffer, ...]:
        """Given buffers that the plan writes, and given buffers that share bytes with them."""
        return tuple(self._memory.state())

    # ---- Other code

    def exchange(self, kernels: Mapping[CachedKernel, CachedKernel]) -> int:
        """Replace kernels by other code for the same ASTs, in one atomic step.

        Nothing else about the plan changes.

        Parameters
        ----------
        kernels : mapping of CachedKernel to CachedKernel
            Current kernels and their replacements.

        Returns
        -------
        int
            Number of operations whose kernel was replaced.

        Raises
        ------
        PlanBuildError
            A replacement has another AST or device than the kernel that it replaces. Or it uses an
            output as scratch space, and this output shares memory with another slot. Nothing has
            changed.
        """
        for old, new in kernels.items():
            if new.ast is not old.ast or new.device != old.device:
                raise PlanBuildError(
                    f"kernels: {new.entry_point!r} on {new.device} cannot replace "
                    f"{old.entry_point!r} on {old.device}; AST and device must be the same"
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
        """Return the new rows of the C table, the attributes to set, and the number of changed ops.

        The caller holds the plan's lock.
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
        pipelines = still_pipelined(self._pipelines, ops, self._memory.region)
        for pipeline in {*self.chains} ^ {*pipelines}:
            changed.update(pipeline.members)
        attributes += [
            (self, "_parts", replace(self._parts, ops=parts)),
            (self, "_table", VariableTable(ops)),
        ]
        again = {i: ops[i] for i in sorted(changed)}
        rows = table.launches(self._parts, again, pipelines, self._values)
        return rows, attributes, count

    def _need_stack_of(self, kernels: Iterable[CachedKernel]) -> None:
        if most := max((kernel.stack_bytes for kernel in kernels), default=0):
            self.need_stack(most)

    def release_intermediate_buffers(self, remove_fn: Callable[[int], object] | None = None) -> int:
        """Release the plan's buffers except the outputs. The plan cannot run any more.

        Parameters
        ----------
        remove_fn : callable, optional
            Called with the id of each buffer that the plan releases.

        Returns
        -------
        int
            Number of released buffers.

        Examples
        --------
        >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
        >>> plan.execute()
        >>> plan.release_intermediate_buffers()              # the argument's buffer
        1
        >>> plan.output_buffer.numpy().tolist(), plan.released
        ([2.0, 2.0, 2.0], True)
        """
        outputs = {id(b.storage) for b in self.output_buffers}
        return self._release(remove_fn, lambda b: id(b.storage) in outputs)

    def release_all_buffers(self, remove_fn: Callable[[int], object] | None = None) -> int:
        """Release all buffers, outputs too. The plan cannot run any more.

        Parameters
        ----------
        remove_fn : callable, optional
            Called with the id of each buffer that the plan releases.

        Returns
        -------
        int
            Number of released buffers.
        """
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

    # ---- Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the plan, and the content of the buffers given to it, to a model file.

        The function in the file is called ``run``. It takes no arguments and returns the outputs.
        Given buffers become state of the file. The label of a buffer is the name of the state;
        buffers without a label are called ``buffer0``, ``buffer1`` and so on. Variables have their
        present values; a C program can set other values.

        Parameters
        ----------
        path : str or path
            File to write. It is replaced only when the new file is complete.

        Raises
        ------
        ModelFileError
            The plan calls Python, or code from outside the code generator.

        See Also
        --------
        kernelrt.load : Open the file.

        Examples
        --------
        >>> import tempfile
        >>> from kernelrt.device import Buffer
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> source, target = Buffer.wrap(np.array([1, 2])), Buffer(2, krt.int64)
        >>> indices = builder.add_buffer(source), builder.add_buffer(target)
        >>> op = builder.add_copy(indices[1], indices[0])
        >>> builder.set_output_buffer(indices[1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     builder.build().save(f"{folder}/copy.krt")
        ...     model = krt.load(f"{folder}/copy.krt")
        >>> _ = model.state["buffer0"].copy_([3, 4])
        >>> model.run().tolist()
        [3, 4]
        """
        target = destination(path)
        parts = image.of_plan(self)
        with writing(target) as file:
            for part in parts:
                file.write(part)

    # ---- For people

    def _repr_html_(self) -> str | None:
        """Draw the plan in a notebook, as :func:`kernelrt.view` does."""
        return None if self.released else displays.html_of(self)

    @property
    def arena_parts(self) -> list[plan_report.ArenaPart]:
        """The intermediates in the arena (the memory that they share), in order of first use."""
        return plan_report.arena_parts(self._parts, self._ops)

    @property
    def memory(self) -> plan_report.MemoryReport:
        """Memory that the plan allocates, and a lower bound for it.

        Examples
        --------
        >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
        >>> print(plan.memory)
        arena 0 B, peak 12 B, reused 0 B, lower bound 0 B
        """
        return plan_report.memory(self._parts, self._ops)

    def explain(self) -> str:
        """Describe the plan: operations in parallel waves, buffers and fusion decisions.

        Returns
        -------
        str
            Several lines of text, to print.

        Examples
        --------
        >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
        >>> print(plan.explain())  # doctest: +ELLIPSIS
        ExecutionPlan of 1 ops (1 kernels) on CPU, 2 buffers, 12 B of its own
        wave 0
          kernel ...
        outputs: 0
        memory: arena 0 B, peak 12 B, reused 0 B, lower bound 0 B
        ...
        """
        return plan_report.explain(self, self._parts)

    def __repr__(self) -> str:
        return plan_report.summary(self, self._parts)

    def _rows(self) -> list[OpTuple]:
        mine = weakref.ref(self)

        def values() -> Mapping[str, int]:
            plan = mine()
            return {} if plan is None else plan._values  # noqa: SLF001 - of the same class

        def pointer_of(op: int, slot: int) -> tuple[int, object]:
            plan = mine()
            if plan is None:
                raise PlanReleasedError("the plan was garbage-collected; keep a reference to it")
            return plan.pointer(op, slot), plan._outermost()  # noqa: SLF001

        def function(index: int, op: PreparedCustomFunction) -> Callable[[], object]:
            return table.caller(op, partial(self._memory.arrays, index, pointer_of), values)

        return table.rows(
            self._parts, self._ops, self._table, self._pipelines, self._values,
            self._memory.address, lambda kernel: kernel.address, function,
        )  # fmt: skip

    def rows_for(
        self,
        address: Callable[[int], int],
        code: Callable[[CachedKernel], int],
        function: Callable[[int, PreparedCustomFunction], Callable[[], object]],
        status: int,
    ) -> list[OpTuple]:
        """Return the rows of the C table with other addresses, for any number of processors.

        Parameters
        ----------
        address, code, function, status
            As for :func:`kernelrt.runtime.table.rows`.

        Returns
        -------
        list of tuple
            One row for each op.
        """
        pipelines = find_pipelines(
            self._ops, lambda op: table.is_serial(op, self._parts), self._memory.region, 1
        )
        return table.rows(
            self._parts, self._ops, self._table, pipelines, self._values, address, code, function,
            status,
        )  # fmt: skip

    def _outermost(self) -> ExecutionPlan:
        """Return the outermost plan that runs this one as a body, or this one if it is no body."""
        host = None if self._host is None else self._host()
        return self if host is None else host._outermost()  # noqa: SLF001

    def _op_name(self, op: int) -> str:
        return self._ops[op].label

    def _iteration_name(self, op: int, iteration: int) -> str | None:
        region = self._ops[op]
        is_loop = isinstance(region, PreparedRegion) and not region.is_choice
        return f"iteration {iteration} of the {region.label}" if is_loop else None

    def _index_error(
        self, op: int, status_word: int
    ) -> IndexBoundsError | DomainError | LinAlgError | CustomFunctionError:
        launch = self._ops[op]
        if not isinstance(launch, PreparedKernel):
            return super()._index_error(op, status_word)
        return failures.index_error(launch, status_word, self._values, self.buffers)


def _with_own_bodies(op: PreparedOp) -> PreparedOp:
    """Return the region with copies of those bodies that already belong to another plan."""
    if not isinstance(op, PreparedRegion) or not any(body.is_body for body in op.bodies):
        return op
    own = [
        body._over(body._parts.layout) if body.is_body else body  # noqa: SLF001
        for body in op.bodies
    ]
    return replace(op, bodies=tuple(own))
