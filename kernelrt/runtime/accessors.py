"""Read-only accessors of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from kernelrt._dispatch import PlanCore
from kernelrt.errors import PlanReleasedError
from kernelrt.runtime.plan_ops import PreparedKernel, PreparedOp, PreparedRegion

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from kernelrt.device.buffer import Buffer
    from kernelrt.device.byte_ranges import ByteRange
    from kernelrt.ir import Dim
    from kernelrt.runtime.buffer_layout import Entry, Layout
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.memory import PlanMemory
    from kernelrt.runtime.plan import ExecutionPlan
    from kernelrt.runtime.plan_ops import RuntimeVar
    from kernelrt.runtime.slice_pipelining import Pipeline
    from kernelrt.runtime.variables import VariableTable
    from kernelrt.schedule.types import Decision, Intermediate

__all__ = ["BuildTimes", "PlanAccessors", "PlanParts"]


@dataclass(frozen=True, slots=True)
class BuildTimes:
    """Seconds that it took to make a plan.

    Attributes
    ----------
    trace : float
        Running the Python function; 0 for a plan that no jitted function made.
    schedule : float
        Rewriting the graph, choosing kernels, and placing memory.
    compile : float
        Generating and compiling the code of the kernels, or finding it in a cache.
    assemble : float
        Allocating memory and filling the tables of the C core.

    Examples
    --------
    >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
    >>> plan.build_times.trace > 0, plan.build_times.assemble > 0
    (True, True)
    """

    trace: float = 0.0
    schedule: float = 0.0
    compile: float = 0.0
    assemble: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PlanParts:
    """The parts of a plan, checked and in execution order."""

    device: str
    layout: Layout
    ops: list[PreparedOp]
    deps: list[tuple[int, ...]]
    outputs: list[int]
    ast_map: dict[Hashable, int]
    arena_offsets: dict[Intermediate, int]
    arena_size: int
    decisions: tuple[Decision, ...] = ()


class PlanAccessors(PlanCore):
    """Accessors of a plan's parts. Code that changes the parts must hold the plan's lock."""

    build_times: BuildTimes = BuildTimes()
    """Seconds that it took to make the plan, its preparation not included."""

    _ops: list[PreparedOp]
    _pipelines: list[Pipeline]
    _parts: PlanParts
    _memory: PlanMemory
    _table: VariableTable
    _values: dict[str, int]

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Reasons why values were fused into their consumers, or stored."""
        return self._parts.decisions

    @property
    def preparation(self) -> ExecutionPlan | None:
        """Plan that computes run-invariant values before the first run and after inputs changed."""
        found, _ = self._prepared_by
        return cast("ExecutionPlan | None", found)

    @property
    def device(self) -> str:
        """Name of the device that runs the plan."""
        return self._parts.device

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers, by index.

        Raises
        ------
        PlanReleasedError
            A buffer was released.
        """
        buffers = self._memory.buffers
        if any(b is None for b in buffers):
            raise PlanReleasedError("the plan's buffers were released; prepare the plan again")
        return tuple(b for b in buffers if b is not None)

    def buffer_at(self, index: int) -> Buffer | None:
        """Return the buffer at `index`; None if there is none or it was released.

        Parameters
        ----------
        index : int
            Index of the buffer in the plan.

        Returns
        -------
        Buffer or None
            The buffer.
        """
        buffers = self._memory.buffers
        return buffers[index] if 0 <= index < len(buffers) else None

    def buffer(self, ast_id: Hashable) -> Buffer | None:
        """Return the buffer named `ast_id`; None if there is none.

        Parameters
        ----------
        ast_id : hashable
            Name that was given to ``map_buffer``; usually a BUFFER node.

        Returns
        -------
        Buffer or None
            The buffer.

        Examples
        --------
        >>> from kernelrt.device import Buffer
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> index = builder.add_buffer(Buffer.wrap(np.array([1, 2])), "x")
        >>> plan = builder.build()
        >>> plan.buffer("x").numpy().tolist(), plan.buffer("y")
        ([1, 2], None)
        """
        index = self.buffer_index(ast_id)
        return None if index is None else self.buffer_at(index)

    def buffer_index(self, ast_id: Hashable) -> int | None:
        """Return the index of the buffer named `ast_id`; None if there is none.

        Parameters
        ----------
        ast_id : hashable
            Name that was given to ``map_buffer``; usually a BUFFER node.

        Returns
        -------
        int or None
            Index of the buffer.
        """
        return self._parts.ast_map.get(ast_id)

    @property
    def ast_to_buffer_map(self) -> dict[Hashable, int]:
        """Buffer indices by name; the name usually is a BUFFER node."""
        return dict(self._parts.ast_map)

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._parts.outputs)

    @property
    def output_buffer_idx(self) -> int | None:
        """Index of the first output; None if there is none."""
        return self._parts.outputs[0] if self._parts.outputs else None

    @property
    def output_buffer(self) -> Buffer | None:
        """The first output; None if there is none or it was released."""
        return self.output_buffer_at(0)

    def output_buffer_at(self, i: int) -> Buffer | None:
        """Return output `i`; None if there is none or it was released.

        Parameters
        ----------
        i : int
            Number of the output, from 0.

        Returns
        -------
        Buffer or None
            The buffer that holds the output of the last run.
        """
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
        """All operations in execution order, with all dependencies."""
        return tuple(self._ops)

    @property
    def prepared_kernels(self) -> tuple[PreparedKernel, ...]:
        """The operations that launch kernels."""
        return tuple(op for op in self._ops if isinstance(op, PreparedKernel))

    @property
    def kernels(self) -> tuple[CachedKernel, ...]:
        """The distinct compiled kernels, in order of first launch; kernels of bodies come last."""
        own = [op.kernel for op in self.prepared_kernels]
        within = [kernel for body in self.bodies for kernel in body.kernels]
        return tuple(dict.fromkeys(own + within))

    @property
    def chains(self) -> tuple[Pipeline, ...]:
        """Pipelines of kernels: one slice of each kernel runs, then the next slice of each."""
        now = (replace(p, slices=self.slices(p.first)) for p in self._pipelines)
        return tuple(pipeline for pipeline in now if pipeline.slices)

    @property
    def bodies(self) -> tuple[ExecutionPlan, ...]:
        """The bodies of all regions, in the order of the regions."""
        regions = (op for op in self._ops if isinstance(op, PreparedRegion))
        return tuple(body for op in regions for body in op.bodies)

    def is_lasting(self) -> bool:
        """Return whether the plan writes memory that was given to it."""
        return self._memory.is_lasting()

    def region(self, index: int) -> ByteRange | None:
        """Return the byte range of a buffer; None for a port and its views.

        Parameters
        ----------
        index : int
            Index of the buffer.
        """
        if self._parts.layout.root_of(index).port:
            return None
        return self._memory.region(index)

    def given_buffers(self) -> list[Buffer]:
        """Return the buffers that were given to the plan, without views."""
        return [self._memory.live(i) for i in self._memory.given()]

    def ranges(self) -> list[tuple[ByteRange, bool]]:
        """Return, for each buffer except ports, its byte range and whether it was given."""
        return self._memory.ranges()

    def size_entries(self) -> Iterator[tuple[int, int, bool, Dim | str, dict[str, int]]]:
        """Yield the entries of the C table that depend on variables; see VariableTable."""
        return self._table.entries()

    # ---- As a body

    @property
    def ports(self) -> tuple[int, ...]:
        """Indices of the ports, whose addresses the region that runs the plan sets."""
        return tuple(i for i, entry in enumerate(self._parts.layout.entries) if entry.port)

    def port(self, index: int) -> Entry:
        """Return the description of a port.

        Parameters
        ----------
        index : int
            Index of the port in the plan.

        Returns
        -------
        Entry
            Its size in elements, dtype and number of bytes.
        """
        return self._parts.layout.entries[index]

    def writes_to(self, index: int) -> bool:
        """Return whether the plan writes a buffer or a view of it.

        Parameters
        ----------
        index : int
            Index of the buffer.

        Returns
        -------
        bool
            True if an operation writes a byte of it.
        """
        return self._memory.writes(index)

    def given(self) -> list[ByteRange]:
        """Return the byte ranges of the buffers given to the plan and to bodies of its regions."""
        own = [self._memory.region(i) for i in self._memory.given()]
        return own + [region for body in self.bodies for region in body.given()]

    def owns(self, index: int) -> bool:
        """Return whether the plan allocated the buffer at `index`.

        Parameters
        ----------
        index : int
            Index of the buffer.

        Returns
        -------
        bool
            False for buffers that were given to the plan, and for ports.
        """
        root = self._parts.layout.root_of(index)
        return root.buffer is None and not root.port

    @property
    def variables(self) -> dict[str, RuntimeVar]:
        """The variables that an execution may set, by name.

        Examples
        --------
        >>> f = krt.jit(lambda x: x * 2, dynamic={"x": {0: krt.Variable("n", 1, 8)}})
        >>> plan = f.plan(np.ones(3, np.float32))
        >>> plan.variables
        {'n': RuntimeVar(name='n', min_val=1, max_val=8)}
        """
        return dict(self._table.variables)

    @property
    def values(self) -> dict[str, int]:
        """Current values of the variables."""
        return dict(self._values)
