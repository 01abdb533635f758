"""ExecutionPlanBuilder: plans by hand, from any mix of kernels, copies, views and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt.device import registry
from kernelrt.device.buffer import Buffer, whole
from kernelrt.errors import DeviceError, PlanBuildError
from kernelrt.ir import UOp
from kernelrt.ir.size import plain
from kernelrt.runtime import op_order
from kernelrt.runtime.buffer_layout import Layout
from kernelrt.runtime.kernel import CachedKernel
from kernelrt.runtime.kernel_cache import kernels
from kernelrt.runtime.op_cost import largest
from kernelrt.runtime.plan import ExecutionPlan, PlanParts
from kernelrt.runtime.plan_ops import (
    PortBinding,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    PreparedRegion,
    written,
)
from kernelrt.runtime.verify_region import check_places

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from kernelrt.dtype import DType
    from kernelrt.ir import Dim
    from kernelrt.ir.size import Size
    from kernelrt.schedule.types import Decision, Intermediate

__all__ = ["ExecutionPlanBuilder"]


class ExecutionPlanBuilder:
    """Collects buffers and operations, and checks them once, so that executing need not.

    Operations run as if one after the other in the order in which they were added (as far as
    given dependencies do not ask for another). What may run at the same time follows from the
    bytes that they touch.

    Parameters
    ----------
    device : str
        The device that all kernels and buffers belong to.

    Examples
    --------
    >>> from kernelrt import dtype
    >>> builder = ExecutionPlanBuilder()
    >>> source, target = Buffer(4, dtype.int32), Buffer(4, dtype.int32)
    >>> source.copyin([1, 2, 3, 4])
    >>> a, b = builder.add_buffer(source), builder.add_buffer(target)
    >>> op = builder.add_copy(b, a)
    >>> builder.set_output_buffer(b)
    >>> plan = builder.build()
    >>> plan.execute()
    >>> plan.output_buffer.numpy()
    array([1, 2, 3, 4], dtype=int32)
    """

    def __init__(self, device: str = "CPU") -> None:
        registry.allocator(device)
        self.device = device
        self._layout = Layout()
        self._ops: list[PreparedOp] = []
        self._next_id = 0
        self._ast_map: dict[Hashable, int] = {}
        self._outputs: list[int] = []

    def add_buffer(self, buffer: Buffer, ast_id: Hashable = None, *, scratch: bool = False) -> int:
        """Add a buffer that lives outside the plan; it may be added more than once.

        Parameters
        ----------
        buffer : Buffer
            Kept alive, and kept from being released, by the plan.
        ast_id : hashable, optional
            A name to find it by, as a BUFFER node; see :meth:`map_buffer`.
        scratch : bool
            Whether its content may be left half-written by a run that fails. By default a run
            that fails leaves it as it was.

        Returns
        -------
        int
            Its index in the plan.
        """
        if not isinstance(buffer, Buffer):
            raise PlanBuildError(f"buffer: expected a Buffer, not {buffer!r}; see Buffer.wrap")
        if buffer.device != self.device:
            raise DeviceError(f"buffer: it is on {buffer.device!r} and the plan on {self.device!r}")
        index = self._layout.add_given(buffer, protected=not scratch)
        if ast_id is not None:
            self.map_buffer(ast_id, index)
        return index

    def add_intermediate(self, size: int, dtype: DType, ast_id: Hashable = None) -> int:
        """Add a buffer of `size` elements that the plan makes; bytes are shared over time.

        An intermediate that is an output gets memory of its own.
        """
        size = whole("size", size)
        if size < 0:
            raise PlanBuildError(f"size: expected at least 0 elements, not {size}")
        index = self._layout.add_own(size, dtype)
        if ast_id is not None:
            self.map_buffer(ast_id, index)
        return index

    def add_port(self, size: int, dtype: DType, ast_id: Hashable = None) -> int:
        """Add a buffer of `size` elements that lies elsewhere each time the plan is run.

        A plan with ports is the body of a region (:meth:`add_region`), which binds each of them.
        """
        size = whole("size", size)
        if size < 0:
            raise PlanBuildError(f"size: expected at least 0 elements, not {size}")
        index = self._layout.add_port(size, dtype)
        if ast_id is not None:
            self.map_buffer(ast_id, index)
        return index

    def add_view(
        self,
        base: int,
        byte_offset: int,
        size: int,
        dtype: DType | None = None,
        *,
        dependencies: Iterable[int] = (),
    ) -> int:
        """Add a part of a buffer as a buffer. Returns the index of the part."""
        self._check_index("base", base)
        byte_offset, size = whole("byte_offset", byte_offset), whole("size", size)
        index = self._layout.add_part(base, byte_offset, size, dtype)
        nbytes = self._layout.entries[index].nbytes
        self.add_op(
            PreparedBufferView(
                self._new_id(), (index, base), byte_offset, nbytes, tuple(dependencies)
            )
        )
        return index

    def map_buffer(self, ast_id: Hashable, index: int) -> None:
        """Let ``plan.buffer(ast_id)`` give the buffer at `index`.

        Raises
        ------
        PlanBuildError
            There is no such buffer, or the name is taken by another.
        """
        self._check_index("map_buffer", index)
        if self._ast_map.setdefault(ast_id, index) != index:
            raise PlanBuildError(
                f"ast_id: {ast_id!r} already stands for buffer {self._ast_map[ast_id]}"
            )

    def add_kernel(
        self,
        kernel: PreparedKernel | CachedKernel | UOp,
        buffer_indices: Sequence[int] | None = None,
        *,
        fixedvars: Mapping[str, int] | None = None,
        vals: Mapping[str, int] | None = None,
        dependencies: Iterable[int] = (),
    ) -> int:
        """Add a launch. Returns the id of the op.

        Parameters
        ----------
        kernel : PreparedKernel, CachedKernel or UOp
            A launch that is ready as it is; a kernel to launch; or the AST of one.
        buffer_indices : sequence of int
            The plan's buffer for each slot. Not with a PreparedKernel.
        fixedvars : mapping, optional
            Variables bound for good.
        vals : mapping, optional
            First values of the others; their upper bounds if not given.
        dependencies : iterable of int
            Ids of ops that must have run before, beside those that the bytes ask for.
        """
        if isinstance(kernel, PreparedKernel):
            if buffer_indices is not None or fixedvars or vals or tuple(dependencies):
                raise PlanBuildError(
                    f"{kernel.label} is prepared already; it takes no further arguments"
                )
            return self.add_op(kernel)
        if isinstance(kernel, UOp):
            kernel = kernels.get(kernel, self.device)
        if not isinstance(kernel, CachedKernel):
            raise PlanBuildError(
                f"kernel: expected a PreparedKernel, a CachedKernel or a kernel AST, not {kernel!r}"
            )
        if buffer_indices is None:
            raise PlanBuildError(f"kernel {kernel.entry_point!r}: buffer_indices is missing")
        return self.add_op(
            PreparedKernel(
                self._new_id(),
                kernel,
                tuple(buffer_indices),
                fixedvars or {},
                tuple(dependencies),
                vals or {},
            )
        )

    def add_copy(
        self,
        destination: int,
        source: int,
        nbytes: Dim | Size | None = None,
        *,
        dependencies: Iterable[int] = (),
    ) -> int:
        """Add a copy of `nbytes` bytes (the whole source if not given). Returns its id."""
        if nbytes is None:
            self._check_index("source", source)
            nbytes = self._layout.entries[source].nbytes
        return self.add_op(
            PreparedCopy(
                self._new_id(), (destination, source), plain(nbytes), tuple(dependencies)
            )
        )

    def add_custom(
        self,
        function: Callable[..., Any],
        buffer_indices: Sequence[int],
        outputs: Sequence[int] = (),
        *,
        variables: Sequence[UOp | Size] = (),
        dependencies: Iterable[int] = (),
    ) -> int:
        """Add a call into Python; see PreparedCustomFunction. Returns its id."""
        return self.add_op(
            PreparedCustomFunction(
                self._new_id(),
                function,
                tuple(buffer_indices),
                tuple(outputs),
                plain(tuple(variables)),
                tuple(dependencies),
            )
        )

    def add_region(
        self,
        bodies: Sequence[ExecutionPlan],
        buffer_indices: Sequence[int],
        bindings: Iterable[tuple[int, int, int] | tuple[int, int, int, int]],
        outputs: Sequence[int] = (),
        *,
        count: int = 1,
        dependencies: Iterable[int] = (),
        **options: Any,
    ) -> int:
        """Add a loop over a plan, or a choice between plans. Returns its id.

        Parameters
        ----------
        bodies : sequence of ExecutionPlan
            Plans whose buffers from outside are ports; see :meth:`add_port`. They become part of
            this plan and cannot be run by themselves any more.
        buffer_indices : sequence of int
            This plan's buffers that the region uses.
        bindings : iterable of tuple
            For each port (body, port, position in `buffer_indices`), and the bytes by which it
            moves on in each turn where it does; position -1 is the number of the turn.
        outputs : sequence of int
            Positions in `buffer_indices` that are written.
        count : int
            How many turns.
        dependencies : iterable of int
            Ids of ops that must have run before, beside those that the bytes ask for.
        **options
            `copies`, `reverse`, `count_slot`, `condition_slot` and `choice_slot` of a
            :class:`~kernelrt.runtime.PreparedRegion`.
        """
        return self.add_op(
            PreparedRegion(
                self._new_id(),
                tuple(bodies),
                tuple(buffer_indices),
                tuple(outputs),
                tuple(PortBinding(*binding) for binding in bindings),
                count=count,
                dependencies=tuple(dependencies),
                **options,
            )
        )

    def add_op(self, op: PreparedOp) -> int:
        """Add an operation that is ready as it is. Returns its id."""
        if not isinstance(op, PreparedOp):
            raise PlanBuildError(f"op: expected a prepared operation, not {op!r}")
        self._ops.append(op)
        self._next_id = max(self._next_id, op.id + 1)
        return op.id

    def set_output_buffer(self, index: int) -> None:
        """Make one buffer the plan's only output."""
        self.set_output_buffers([index])

    def set_output_buffers(self, indices: Iterable[int]) -> None:
        """Set the plan's outputs, in order."""
        indices = list(indices)
        for index in indices:
            self._check_index("output", index)
        self._outputs = indices

    def build(self, *, reuse_memory: bool = True) -> ExecutionPlan:
        """Check everything and make the plan. The builder can be used further.

        Parameters
        ----------
        reuse_memory : bool
            Whether intermediates may share bytes over time. Results are the same either way.

        Raises
        ------
        PlanBuildError
            An index, a size, a dependency or an id is wrong; the message names the op.
        """
        for op in self._ops:
            self._check_op(op)
            if isinstance(op, PreparedKernel):
                op.check_lent(self._layout.region)
                if op.kernel.params:
                    self._check_overlap(op)
        layout = self._layout.copy()
        ops = op_order.in_dependency_order(self._ops)
        deps = op_order.edges(ops, layout)
        ops, changed = op_order.protect(ops, deps, layout, self._next_id)
        if changed:
            deps = op_order.edges(ops, layout)
        self._check_written(ops, layout)
        keep = {own for i in self._outputs if (own := layout.root_of(i).own) is not None}
        places, size = op_order.arena(ops, deps, layout, keep, reuse=reuse_memory)
        op_order.verify(ops, deps, layout, places)
        return self.assemble(layout, ops, deps, places, size)

    def assemble(
        self,
        layout: Layout,
        ops: list[PreparedOp],
        deps: Sequence[tuple[int, ...]],
        places: Mapping[Intermediate, int],
        arena_size: int,
        decisions: Sequence[Decision] = (),
    ) -> ExecutionPlan:
        """Make a plan of parts that were checked and placed before."""
        return ExecutionPlan(
            PlanParts(
                self.device,
                layout,
                ops,
                [tuple(d) for d in deps],
                list(self._outputs),
                dict(self._ast_map),
                dict(places),
                arena_size,
                tuple(decisions),
            )
        )

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _check_index(self, argument: str, index: int) -> None:
        count = len(self._layout.entries)
        if not hasattr(index, "__index__") or index not in range(count):
            raise PlanBuildError(f"{argument}: there is no buffer {index!r}; the plan has {count}")

    def _check_op(self, op: PreparedOp) -> None:
        places = range(len(self._layout.entries))
        for index in op.buffer_indices:
            if type(index) is not int or index not in places:
                self._check_index(op.label, index)
        for index in written(op):
            buffer = self._layout.entries[index].buffer
            if buffer is not None and buffer.readonly:
                raise PlanBuildError(f"{op.label} writes buffer {index}, which is read-only")
        if isinstance(op, PreparedKernel):
            self._check_kernel(op)
        elif isinstance(op, PreparedCopy):
            self._check_copy(op)
        elif isinstance(op, PreparedBufferView):
            self._check_view(op)
        elif isinstance(op, PreparedRegion):
            check_places(op, self._layout)

    def _check_kernel(self, op: PreparedKernel) -> None:
        if op.device != self.device:
            raise DeviceError(f"{op.label} is for {op.device!r} and the plan for {self.device!r}")
        entries = self._layout.entries
        for slot, size, dtype in op.kernel.params:
            if slot >= len(op.buffer_indices):  # the status word
                continue
            entry = entries[op.buffer_indices[slot]]
            if dtype is not entry.dtype:
                raise PlanBuildError(
                    f"{op.label}: slot {slot} takes {dtype.name}, buffer "
                    f"{op.buffer_indices[slot]} holds {entry.dtype.name}"
                )
            if entry.size < size:
                raise PlanBuildError(
                    f"{op.label}: slot {slot} takes {size} elements, buffer "
                    f"{op.buffer_indices[slot]} has {entry.size}"
                )

    def _check_overlap(self, op: PreparedKernel) -> None:
        """Elements of a kernel made from an AST run in no particular order."""
        places = [
            (b, self._layout.region(b), self._layout.entries[b].dtype.itemsize)
            for b in op.buffer_indices
        ]
        for slot in op.output_indices:
            out, here, size = places[slot]
            for b, other, other_size in places:
                in_step = here.start == other.start and size == other_size
                if not in_step and here.meets(other):
                    raise PlanBuildError(
                        f"{op.label}: its output, buffer {out}, overlaps buffer {b} in part; "
                        "they must be the same or share no byte"
                    )

    def _check_copy(self, op: PreparedCopy) -> None:
        low = op.nbytes.vmin if isinstance(op.nbytes, UOp) else op.nbytes
        if low < 0:
            raise PlanBuildError(f"{op.label}: nbytes can be {low}; expected at least 0")
        for what, index in zip(("destination", "source"), op.buffer_indices, strict=True):
            nbytes = self._layout.entries[index].nbytes
            if largest(op.nbytes) > nbytes:
                raise PlanBuildError(
                    f"{op.label}: it copies up to {largest(op.nbytes)} bytes, its {what}, "
                    f"buffer {index}, has {nbytes}"
                )

    def _check_view(self, op: PreparedBufferView) -> None:
        part, base = op.buffer_indices
        here, whole = self._layout.region(part), self._layout.region(base)
        fits = here.nbytes == op.nbytes
        if here.nbytes:  # what has no bytes lies nowhere
            fits &= whole.covers(here) and here.start - whole.start == op.byte_offset
        if not fits:
            raise PlanBuildError(
                f"{op.label}: buffer {part} is not bytes {op.byte_offset} to "
                f"{op.byte_offset + op.nbytes} of buffer {base}"
            )

    def _check_written(self, ops: Sequence[PreparedOp], layout: Layout) -> None:
        found = op_order.unwritten(ops, layout, self._outputs)
        if found is not None:
            raise PlanBuildError(found.text)
