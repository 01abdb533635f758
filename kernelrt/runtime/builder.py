"""ExecutionPlanBuilder: builds plans from kernels, copies, views, functions and regions."""

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
from kernelrt.runtime.verify_region import check_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from kernelrt.dtype import DType
    from kernelrt.ir import Dim
    from kernelrt.ir.size import Size
    from kernelrt.schedule.types import Decision, Intermediate

__all__ = ["ExecutionPlanBuilder"]


class ExecutionPlanBuilder:
    """Collects the buffers and operations of a plan, and checks them once, before any execution.

    Results are as if operations ran one after the other, in the order in which you added them.
    Dependencies that you give may change this order. Operations may run at the same time if they
    share no bytes, or only read the bytes that they share.

    Parameters
    ----------
    device : str
        Device of all kernels and buffers.

    Raises
    ------
    DeviceError
        `device` is unknown.

    Examples
    --------
    >>> from kernelrt.device import Buffer
    >>> builder = krt.runtime.ExecutionPlanBuilder()
    >>> source, target = Buffer.wrap(np.array([1, 2, 3, 4])), Buffer(4, krt.int64)
    >>> a, b = builder.add_buffer(source), builder.add_buffer(target)
    >>> op = builder.add_copy(b, a)
    >>> builder.set_output_buffer(b)
    >>> plan = builder.build()
    >>> plan.execute()
    >>> plan.output_buffer.numpy().tolist()
    [1, 2, 3, 4]
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
        """Add a buffer that lives outside the plan. It may be added more than once.

        Parameters
        ----------
        buffer : Buffer
            Buffer to add. The plan keeps it alive and prevents its release.
        ast_id : hashable, optional
            Name to find the buffer by, such as a BUFFER node; see :meth:`map_buffer`.
        scratch : bool
            Whether a run that fails may leave the content half-written. By default it leaves the
            content unchanged.

        Returns
        -------
        int
            Index of the buffer in the plan.

        Raises
        ------
        DeviceError
            `buffer` is on another device.
        PlanBuildError
            `buffer` is not a Buffer, or `ast_id` already names another buffer.
        """
        if not isinstance(buffer, Buffer):
            raise PlanBuildError(f"buffer: expected a Buffer, not {buffer!r}; see Buffer.wrap")
        if buffer.device != self.device:
            raise DeviceError(
                f"buffer: expected a buffer on the plan's device {self.device!r}, not on "
                f"{buffer.device!r}"
            )
        index = self._layout.add_given(buffer, protected=not scratch)
        if ast_id is not None:
            self.map_buffer(ast_id, index)
        return index

    def add_intermediate(self, size: int, dtype: DType, ast_id: Hashable = None) -> int:
        """Add a buffer that the plan allocates.

        Intermediates share memory: when no later operation reads an intermediate, others may use
        its bytes. An intermediate that is an output has its own memory.

        Parameters
        ----------
        size : int
            Number of elements, at least 0.
        dtype : DType
            Type of the elements.
        ast_id : hashable, optional
            Name to find the buffer by; see :meth:`map_buffer`.

        Returns
        -------
        int
            Index of the buffer in the plan.

        Raises
        ------
        PlanBuildError
            `size` is negative, or `ast_id` already names another buffer.
        """
        size = whole("size", size)
        if size < 0:
            raise PlanBuildError(f"size: expected at least 0 elements, not {size}")
        index = self._layout.add_own(size, dtype)
        if ast_id is not None:
            self.map_buffer(ast_id, index)
        return index

    def add_port(self, size: int, dtype: DType, ast_id: Hashable = None) -> int:
        """Add a buffer whose address is set by the region that runs the plan.

        A plan with ports is the body of a region; :meth:`add_region` binds each port.

        Parameters
        ----------
        size : int
            Number of elements, at least 0.
        dtype : DType
            Type of the elements.
        ast_id : hashable, optional
            Name to find the buffer by; see :meth:`map_buffer`.

        Returns
        -------
        int
            Index of the buffer in the plan.

        Raises
        ------
        PlanBuildError
            `size` is negative, or `ast_id` already names another buffer.
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
        """Add a view of a part of a buffer.

        Parameters
        ----------
        base : int
            Index of the buffer.
        byte_offset : int
            Bytes from the start of the buffer to the start of the view.
        size : int
            Number of elements.
        dtype : DType, optional
            Type of the elements; by default that of the buffer.
        dependencies : iterable of int
            Ids of ops that must run first.

        Returns
        -------
        int
            Index of the view in the plan.

        Raises
        ------
        PlanBuildError
            There is no buffer `base`, or the view exceeds it.
        """
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
        """Make ``plan.buffer(ast_id)`` return the buffer at `index`.

        Parameters
        ----------
        ast_id : hashable
            Name of the buffer.
        index : int
            Index of the buffer in the plan.

        Raises
        ------
        PlanBuildError
            `index` is out of range, or `ast_id` already names another buffer.
        """
        self._check_index("map_buffer", index)
        if self._ast_map.setdefault(ast_id, index) != index:
            raise PlanBuildError(
                f"ast_id: {ast_id!r} already names buffer {self._ast_map[ast_id]}; use another name"
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
        """Add a kernel launch.

        Parameters
        ----------
        kernel : PreparedKernel, CachedKernel or UOp
            A PreparedKernel is a complete launch. A CachedKernel is launched. A UOp is the AST of a
            kernel, which is compiled and launched.
        buffer_indices : sequence of int
            For each slot of the kernel, the index of the plan's buffer. Not allowed with a
            PreparedKernel.
        fixedvars : mapping, optional
            Variables with a fixed value.
        vals : mapping, optional
            Initial values of the other variables; their upper bounds by default.
        dependencies : iterable of int
            Ids of ops that must run first, in addition to those found from memory conflicts.

        Returns
        -------
        int
            Id of the op.

        Raises
        ------
        CompileError, SpecError
            The AST cannot be compiled.
        PlanBuildError
            Buffers or variables do not match the kernel, or an argument is missing.
        VariableError
            A value is out of bounds.
        """
        if isinstance(kernel, PreparedKernel):
            if buffer_indices is not None or fixedvars or vals or tuple(dependencies):
                raise PlanBuildError(
                    f"{kernel.label}: a PreparedKernel is complete; pass it without other arguments"
                )
            return self.add_op(kernel)
        if isinstance(kernel, UOp):
            kernel = kernels.get(kernel, self.device)
        if not isinstance(kernel, CachedKernel):
            raise PlanBuildError(
                f"kernel: expected a PreparedKernel, a CachedKernel or a kernel AST, not {kernel!r}"
            )
        if buffer_indices is None:
            raise PlanBuildError(
                f"kernel {kernel.entry_point!r}: buffer_indices is missing; pass the index of a "
                "buffer for each slot"
            )
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
        """Add a copy of bytes from one buffer to another.

        Parameters
        ----------
        destination, source : int
            Indices of the buffers.
        nbytes : int, Size or UOp, optional
            Number of bytes, which may depend on Variables; by default the whole source.
        dependencies : iterable of int
            Ids of ops that must run first.

        Returns
        -------
        int
            Id of the op.
        """
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
        """Add a call of a Python function (PreparedCustomFunction).

        Parameters
        ----------
        function : callable
            Function that receives one NumPy array for each buffer, and the values of `variables` as
            keywords. Each array shares the memory of its buffer.
        buffer_indices : sequence of int
            Indices of the buffers to pass.
        outputs : sequence of int
            Positions in `buffer_indices` that the function writes.
        variables : sequence of Variable
            Variables to pass.
        dependencies : iterable of int
            Ids of ops that must run first.

        Returns
        -------
        int
            Id of the op.

        Raises
        ------
        PlanBuildError
            `function` is not callable, or `outputs` are out of range.

        Examples
        --------
        >>> from kernelrt.device import Buffer
        >>> log = []
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> data = builder.add_buffer(Buffer.wrap(np.array([1, 2])))
        >>> op = builder.add_custom(lambda a: log.append(a.tolist()), [data])
        >>> builder.build().execute()
        >>> log
        [[1, 2]]
        """
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
        """Add a loop over a plan, or a choice between plans.

        Parameters
        ----------
        bodies : sequence of ExecutionPlan
            Plans that access this plan's buffers through ports; see :meth:`add_port`. They become
            part of this plan and can no longer be run on their own.
        buffer_indices : sequence of int
            This plan's buffers that the region uses.
        bindings : iterable of tuple
            One tuple for each port: (body, port, position in `buffer_indices`), or these three and
            a stride. The stride is the number of bytes by which the port advances in each
            iteration. Position -1 binds the port to the iteration number.
        outputs : sequence of int
            Positions in `buffer_indices` that are written.
        count : int
            Number of iterations.
        dependencies : iterable of int
            Ids of ops that must run first, in addition to those found from memory conflicts.
        **options
            `copies`, `reverse`, `count_slot`, `condition_slot` and `choice_slot`; see
            :class:`~kernelrt.runtime.PreparedRegion`.

        Returns
        -------
        int
            Id of the op.

        Raises
        ------
        PlanBuildError
            Bodies, buffers and bindings do not match.

        Examples
        --------
        A loop over five rows of a table; the port ``row`` advances by 16 bytes in each iteration:

        >>> from kernelrt.device import Buffer
        >>> body = krt.runtime.ExecutionPlanBuilder()
        >>> total, row = body.add_port(2, krt.int64), body.add_port(2, krt.int64)
        >>> op = body.add_custom(lambda t, r: np.add(t, r, out=t), [total, row], outputs=[0])
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> sums = builder.add_buffer(Buffer.wrap(np.zeros(2, np.int64)))
        >>> rows = builder.add_buffer(Buffer.wrap(np.arange(10)))
        >>> bindings = [(0, total, 0), (0, row, 1, 16)]
        >>> loop = builder.add_region([body.build()], [sums, rows], bindings, outputs=[0], count=5)
        >>> builder.set_output_buffer(sums)
        >>> plan = builder.build()
        >>> plan.execute()
        >>> plan.output_buffer.numpy().tolist()
        [20, 25]
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
        """Add a prepared operation.

        Parameters
        ----------
        op : PreparedOp
            Kernel launch, copy, view, custom function or region, with an id of its own.

        Returns
        -------
        int
            Id of the op.

        Raises
        ------
        PlanBuildError
            `op` is not a prepared operation.
        """
        if not isinstance(op, PreparedOp):
            raise PlanBuildError(f"op: expected a prepared operation, not {op!r}")
        self._ops.append(op)
        self._next_id = max(self._next_id, op.id + 1)
        return op.id

    def set_output_buffer(self, index: int) -> None:
        """Make one buffer the plan's only output.

        Parameters
        ----------
        index : int
            Index of the buffer.

        Raises
        ------
        PlanBuildError
            There is no such buffer.
        """
        self.set_output_buffers([index])

    def set_output_buffers(self, indices: Iterable[int]) -> None:
        """Set the plan's outputs, in order.

        Parameters
        ----------
        indices : iterable of int
            Indices of the buffers.

        Raises
        ------
        PlanBuildError
            There is no such buffer.
        """
        indices = list(indices)
        for index in indices:
            self._check_index("output", index)
        self._outputs = indices

    def build(self, *, reuse_memory: bool = True) -> ExecutionPlan:
        """Check all buffers and operations and make the plan. The builder stays usable.

        Parameters
        ----------
        reuse_memory : bool
            Whether an intermediate may reuse the memory of one that is no longer read. Results are
            the same either way.

        Returns
        -------
        ExecutionPlan
            The finished plan.

        Raises
        ------
        PlanBuildError
            An index, a size, a dependency or an id is wrong; the message names the op.

        Examples
        --------
        >>> from kernelrt.device import Buffer
        >>> builder = krt.runtime.ExecutionPlanBuilder()
        >>> a = builder.add_buffer(Buffer(4, krt.int32))
        >>> op = builder.add_copy(a, a, 20)
        >>> builder.build()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        kernelrt.errors.PlanBuildError: copy (op 0): copies up to 20 bytes, but the destination, ...
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
        arena_offsets, size = op_order.arena(ops, deps, layout, keep, reuse=reuse_memory)
        op_order.verify(ops, deps, layout, arena_offsets)
        return self.assemble(layout, ops, deps, arena_offsets, size)

    def assemble(
        self,
        layout: Layout,
        ops: list[PreparedOp],
        deps: Sequence[tuple[int, ...]],
        arena_offsets: Mapping[Intermediate, int],
        arena_size: int,
        decisions: Sequence[Decision] = (),
    ) -> ExecutionPlan:
        """Make a plan of parts that are already checked and have memory assigned.

        Parameters
        ----------
        layout : Layout
            Buffers of the plan, and the range of bytes of each.
        ops : list of PreparedOp
            Ops in the order of execution.
        deps : sequence of tuple of int
            For each op, the indices of the earlier ops that it waits for.
        arena_offsets : mapping of Intermediate to int
            Offset of each intermediate buffer in the plan's memory, in bytes.
        arena_size : int
            Size of this memory, in bytes.
        decisions : sequence of Decision, optional
            Reasons why values were fused or stored; ``plan.decisions`` shows them.
        """
        return ExecutionPlan(
            PlanParts(
                self.device,
                layout,
                ops,
                [tuple(d) for d in deps],
                list(self._outputs),
                dict(self._ast_map),
                dict(arena_offsets),
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
            raise PlanBuildError(
                f"{argument}: there is no buffer {index!r}; the plan has {count} buffers"
            )

    def _check_op(self, op: PreparedOp) -> None:
        indices = range(len(self._layout.entries))
        for index in op.buffer_indices:
            if type(index) is not int or index not in indices:
                self._check_index(op.label, index)
        for index in written(op):
            buffer = self._layout.entries[index].buffer
            if buffer is not None and buffer.readonly:
                raise PlanBuildError(
                    f"{op.label} writes buffer {index}, which is read-only; pass a buffer of "
                    "writable memory"
                )
        if isinstance(op, PreparedKernel):
            self._check_kernel(op)
        elif isinstance(op, PreparedCopy):
            self._check_copy(op)
        elif isinstance(op, PreparedBufferView):
            self._check_view(op)
        elif isinstance(op, PreparedRegion):
            check_ranges(op, self._layout)

    def _check_kernel(self, op: PreparedKernel) -> None:
        if op.device != self.device:
            raise DeviceError(
                f"{op.label}: expected a kernel for the plan's device {self.device!r}, not for "
                f"{op.device!r}"
            )
        entries = self._layout.entries
        for slot, size, dtype in op.kernel.params:
            if slot >= len(op.buffer_indices):  # the status word
                continue
            entry = entries[op.buffer_indices[slot]]
            if dtype is not entry.dtype:
                raise PlanBuildError(
                    f"{op.label}: slot {slot}: expected a buffer of {dtype.name}, not buffer "
                    f"{op.buffer_indices[slot]} of {entry.dtype.name}"
                )
            if entry.size < size:
                raise PlanBuildError(
                    f"{op.label}: slot {slot}: expected a buffer of at least {size} elements, not "
                    f"buffer {op.buffer_indices[slot]} of {entry.size}"
                )

    def _check_overlap(self, op: PreparedKernel) -> None:
        """Check that no output overlaps an operand in part.

        A kernel made from an AST may compute the elements in any order.
        """
        operands = [
            (b, self._layout.region(b), self._layout.entries[b].dtype.itemsize)
            for b in op.buffer_indices
        ]
        for slot in op.output_indices:
            out, here, size = operands[slot]
            for b, other, other_size in operands:
                in_step = here.start == other.start and size == other_size
                if not in_step and here.meets(other):
                    raise PlanBuildError(
                        f"{op.label}: the output, buffer {out}, overlaps buffer {b} in part; "
                        "the two must be the same bytes or share no byte"
                    )

    def _check_copy(self, op: PreparedCopy) -> None:
        low = op.nbytes.vmin if isinstance(op.nbytes, UOp) else op.nbytes
        if low < 0:
            raise PlanBuildError(
                f"{op.label}: nbytes: expected at least 0, but it can be {low}; correct the "
                "expression or the bounds of its Variables"
            )
        for what, index in zip(("destination", "source"), op.buffer_indices, strict=True):
            nbytes = self._layout.entries[index].nbytes
            if largest(op.nbytes) > nbytes:
                raise PlanBuildError(
                    f"{op.label}: copies up to {largest(op.nbytes)} bytes, but the {what}, buffer "
                    f"{index}, has {nbytes}; copy fewer bytes, or use a larger buffer"
                )

    def _check_view(self, op: PreparedBufferView) -> None:
        part, base = op.buffer_indices
        here, whole = self._layout.region(part), self._layout.region(base)
        fits = here.nbytes == op.nbytes
        if here.nbytes:  # a view without bytes has no address
            fits &= whole.covers(here) and here.start - whole.start == op.byte_offset
        if not fits:
            raise PlanBuildError(
                f"{op.label}: expected buffer {part} to be bytes {op.byte_offset} to "
                f"{op.byte_offset + op.nbytes} of buffer {base}, but it is other memory; make it "
                "with add_view"
            )

    def _check_written(self, ops: Sequence[PreparedOp], layout: Layout) -> None:
        found = op_order.unwritten(ops, layout, self._outputs)
        if found is not None:
            raise PlanBuildError(found.text)
