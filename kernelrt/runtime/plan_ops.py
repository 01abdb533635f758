"""Operations of a plan: kernels, copies, views, custom functions and regions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelrt.device.buffer import whole
from kernelrt.device.program import CORE_ID
from kernelrt.errors import PlanBuildError, PlanReleasedError, VariableError
from kernelrt.ir import UOp
from kernelrt.ir.origin import Origin, summary
from kernelrt.ir.size import plain
from kernelrt.runtime.sizes import variables_of
from kernelrt.runtime.verify_region import check_region

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Mapping, Sequence

    from kernelrt.device.byte_ranges import ByteRange
    from kernelrt.ir import Dim
    from kernelrt.runtime.kernel import CachedKernel
    from kernelrt.runtime.plan import ExecutionPlan

__all__ = [
    "PortBinding",
    "PreparedBufferView",
    "PreparedCopy",
    "PreparedCustomFunction",
    "PreparedKernel",
    "PreparedOp",
    "PreparedRegion",
    "RuntimeVar",
    "can_fail",
    "read",
    "read_slots",
    "written",
]


class RuntimeVar(NamedTuple):
    """A variable that each execution may set, with its inclusive bounds.

    Attributes
    ----------
    name : str
        Name of the variable.
    min_val, max_val : int
        Least and greatest value.

    Examples
    --------
    >>> f = krt.jit(lambda x: x * 2, dynamic={"x": {0: krt.Variable("n", 1, 8)}})
    >>> f.plan(np.ones(3, np.float32)).variables["n"].max_val
    8
    """

    name: str
    min_val: int
    max_val: int


@dataclass(slots=True, eq=False)
class _Location:
    """Location of a prepared op: its plan and its index in the C table."""

    plan: weakref.ref[ExecutionPlan] | None = None
    index: int = -1

    def live(self) -> ExecutionPlan | None:
        """Return the plan; None if it was garbage-collected or released."""
        plan = None if self.plan is None else self.plan()
        return None if plan is None or plan.released else plan


@dataclass(slots=True, eq=False)
class PreparedKernel:
    """One launch of a kernel.

    Attributes
    ----------
    id : int
        Id of the op, used in dependencies; unique in its plan.
    kernel : CachedKernel
        Kernel to launch.
    buffer_indices : tuple of int
        Index of the plan's buffer for each slot, except the slot of the status word.
    fixedvars : mapping of str to int
        Variables with a fixed value.
    dependencies : tuple of int
        Ids of ops that must run first. A plan also orders ops that write bytes which others access.
    initial_vals : mapping of str to int
        Initial values of the other variables; their upper bounds by default.
    output_indices : tuple of int
        Positions in `buffer_indices` that are written.
    runtime_vars : tuple of RuntimeVar
        Variables that an execution may set.
    origins : tuple of Origin
        User code lines and layers that the launch computes, producers first; empty if unknown.
    checks : tuple of Origin or None
        Origin of each index check of the kernel, by check number.

    Raises
    ------
    PlanBuildError
        Buffers or variables do not match the kernel.
    VariableError
        A value is out of bounds.

    Examples
    --------
    >>> [op] = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32)).prepared_kernels
    >>> op.buffer_indices, op.output_indices, op.dependencies
    ((0, 1), (0,), ())
    """

    id: int
    kernel: CachedKernel
    buffer_indices: tuple[int, ...]
    fixedvars: Mapping[str, int] = field(default_factory=dict)
    dependencies: tuple[int, ...] = ()
    initial_vals: Mapping[str, int] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()
    checks: tuple[Origin | None, ...] = ()
    output_indices: tuple[int, ...] = field(init=False)
    runtime_vars: tuple[RuntimeVar, ...] = field(init=False)
    _location: _Location = field(default_factory=_Location, init=False, repr=False)

    def __post_init__(self) -> None:
        kernel = self.kernel
        slots = kernel.buf_count - kernel.may_fail
        if len(self.buffer_indices) != slots:
            raise PlanBuildError(
                f"{self.label}: buffer_indices has {len(self.buffer_indices)} entries, "
                f"expected one for each of the kernel's {slots} slots"
            )
        self.output_indices = tuple(slot for slot in kernel.outs if slot < slots)
        self.runtime_vars = self._find_runtime_vars()

    def _find_runtime_vars(self) -> tuple[RuntimeVar, ...]:
        kernel = self.kernel
        bounds = {v.arg[0]: RuntimeVar(*v.arg) for v in kernel.vars}
        bounds |= {v.arg[0]: RuntimeVar(*v.arg) for v in variables_of(self.sizes)}
        if CORE_ID in self.fixedvars or CORE_ID in self.initial_vals:
            raise VariableError(f"{self.label}: only the plan sets {CORE_ID}; remove the value")
        names = [n for n in kernel.var_names if n != CORE_ID and n not in kernel.numbers]
        unbounded = [n for n in names if n not in bounds and n not in self.fixedvars]
        if unbounded:
            raise PlanBuildError(
                f"{self.label}: variable {unbounded[0]!r} has neither bounds nor a fixed value; "
                "pass it in variables or in fixedvars"
            )
        free = dict.fromkeys([*names, *bounds])
        for name, value in (*self.fixedvars.items(), *self.initial_vals.items()):
            if name not in free:
                raise VariableError(
                    f"{self.label}: the kernel has no variable {name!r}; it has "
                    f"{', '.join(free) or 'none'}"
                )
            _, low, high = bounds.get(name, (name, value, value))
            if not low <= value <= high:
                raise VariableError(
                    f"{self.label}: {name}={value} lies outside its bounds {low} to {high}"
                )
        return tuple(bounds[n] for n in free if n not in self.fixedvars)

    def check_lent(self, region: Callable[[int], ByteRange]) -> None:
        """Check that no slot shares a byte with an output that the kernel uses as scratch space.

        Parameters
        ----------
        region : callable
            Returns the byte range of a buffer of the plan, by its index.

        Raises
        ------
        PlanBuildError
            Two slots share bytes; the message names both.
        """
        for slot in self.kernel.scratch_outputs:
            here = region(self.buffer_indices[slot])
            for other, index in enumerate(self.buffer_indices):
                if other != slot and here.meets(region(index)):
                    raise PlanBuildError(
                        f"{self.label}: slot {slot}, an output that the kernel uses as scratch "
                        f"space or stores twice, shares memory with slot {other}; they must share "
                        "no byte"
                    )

    @property
    def label(self) -> str:
        """Name of the op in errors."""
        return f"kernel {self.kernel.entry_point!r} (op {self.id})"

    @property
    def title(self) -> str:
        """Layers, operations and lines that the op computes; if unknown, its entry point."""
        return summary(self.origins) or self.kernel.entry_point

    @property
    def ast(self) -> UOp:
        """The kernel AST."""
        return self.kernel.ast

    @property
    def device(self) -> str:
        """Name of the device that runs the kernel."""
        return self.kernel.device

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """Symbolic launch sizes."""
        return self.kernel.global_size + (self.kernel.local_size or ())

    @property
    def vals(self) -> tuple[int, ...]:
        """Values for the next launch, in the order of ``var_names``.

        ``core_id`` is given as 0; each chunk gets its own value.
        """
        plan = self._location.live()
        if plan is not None:
            known: Mapping[str, int] = plan.values
        else:
            known = {v.name: v.max_val for v in self.runtime_vars} | dict(self.initial_vals)
        return tuple(self.kernel.vals_for({**known, **self.fixedvars}))

    @property
    def buffer_ptrs(self) -> tuple[int, ...]:
        """Addresses in the C table, one for each entry of `buffer_indices`.

        Raises
        ------
        PlanReleasedError
            The op belongs to no plan, or its plan was released.
        """
        plan = self._live()
        return tuple(plan.pointer(self._location.index, i) for i in range(len(self.buffer_indices)))

    @property
    def buffer_ids(self) -> tuple[int, ...]:
        """Ids of the buffers, one per entry of `buffer_indices`."""
        buffers = self._live().buffers
        return tuple(buffers[i].id for i in self.buffer_indices)

    def _live(self) -> ExecutionPlan:
        plan = self._location.live()
        if plan is None:
            raise PlanReleasedError(
                f"{self.label} belongs to no plan, or its plan was released; use an op of a live "
                "plan"
            )
        return plan


@dataclass(slots=True, eq=False)
class PreparedCopy:
    """A copy of the first `nbytes` bytes of one buffer to another. The buffers may overlap.

    Attributes
    ----------
    id : int
        Id of the op, used in dependencies.
    buffer_indices : tuple of int
        Destination and source.
    nbytes : Dim
        Number of bytes to copy; may depend on Variables.
    dependencies : tuple of int
        Ids of ops that must run first.

    Examples
    --------
    >>> op = krt.runtime.PreparedCopy(0, (1, 0), 16)
    >>> op.label, op.output_indices
    ('copy (op 0)', (0,))
    """

    id: int
    buffer_indices: tuple[int, int]
    nbytes: Dim
    dependencies: tuple[int, ...] = ()
    _location: _Location = field(default_factory=_Location, init=False, repr=False)

    def __post_init__(self) -> None:
        self.nbytes = plain(self.nbytes)
        if not isinstance(self.nbytes, UOp):
            self.nbytes = whole(f"{self.label}: nbytes", self.nbytes)

    @property
    def label(self) -> str:
        """Name of the op in errors."""
        return f"copy (op {self.id})"

    @property
    def output_indices(self) -> tuple[int, ...]:
        """Positions in `buffer_indices` that are written."""
        return (0,)


@dataclass(slots=True, eq=False)
class PreparedBufferView:
    """A buffer that is a part of another buffer. It executes nothing.

    Attributes
    ----------
    id : int
        Id of the op, used in dependencies.
    buffer_indices : tuple of int
        The view and its base buffer.
    byte_offset, nbytes : int
        Byte range of the view in its base.
    dependencies : tuple of int
        Ids of ops that must run first.

    Examples
    --------
    >>> krt.runtime.PreparedBufferView(0, (1, 0), byte_offset=8, nbytes=8).label
    'view (op 0)'
    """

    id: int
    buffer_indices: tuple[int, int]
    byte_offset: int
    nbytes: int
    dependencies: tuple[int, ...] = ()
    _location: _Location = field(default_factory=_Location, init=False, repr=False)

    def __post_init__(self) -> None:
        self.byte_offset = whole(f"{self.label}: byte_offset", self.byte_offset)
        self.nbytes = whole(f"{self.label}: nbytes", self.nbytes)

    @property
    def label(self) -> str:
        """Name of the op in errors."""
        return f"view (op {self.id})"

    @property
    def output_indices(self) -> tuple[int, ...]:
        """Positions of written buffers in `buffer_indices`: none, because a view writes nothing."""
        return ()


@dataclass(slots=True, eq=False)
class PreparedCustomFunction:
    """A call of a Python function, with the GIL held.

    Attributes
    ----------
    id : int
        Id of the op, used in dependencies.
    function : callable
        Function to call. It receives one NumPy array for each buffer, and the values of `variables`
        as keywords. Each array has one axis and shares the memory of its buffer. It is read-only
        unless the op writes the buffer. Elements of bfloat16 come as their bits, in uint16. The
        return value is ignored. An exception ends the run.
    buffer_indices : tuple of int
        Indices of the plan's buffers to pass.
    output_indices : tuple of int
        Positions in `buffer_indices` that the function writes.
    variables : tuple of UOp
        Variables to pass.
    dependencies : tuple of int
        Ids of ops that must run first.

    Raises
    ------
    PlanBuildError
        `function` is not callable, or `output_indices` are out of range.

    Examples
    --------
    >>> def fill(a):
    ...     a[:] = 1
    >>> krt.runtime.PreparedCustomFunction(0, fill, (0,), (0,)).label
    "function 'fill' (op 0)"
    """

    id: int
    function: Callable[..., Any]
    buffer_indices: tuple[int, ...]
    output_indices: tuple[int, ...] = ()
    variables: tuple[UOp, ...] = ()
    dependencies: tuple[int, ...] = ()
    _location: _Location = field(default_factory=_Location, init=False, repr=False)

    def __post_init__(self) -> None:
        self.variables = plain(tuple(self.variables))
        if not callable(self.function):
            raise PlanBuildError(f"{self.label}: expected a callable, not {self.function!r}")
        bad = [i for i in self.output_indices if not 0 <= i < len(self.buffer_indices)]
        if bad:
            raise PlanBuildError(
                f"{self.label}: output_indices: expected positions from 0 to "
                f"{len(self.buffer_indices) - 1} in buffer_indices, not {bad}"
            )

    @property
    def label(self) -> str:
        """Name of the op in errors."""
        name = getattr(self.function, "__qualname__", None) or type(self.function).__name__
        return f"function {name!r} (op {self.id})"


class PortBinding(NamedTuple):
    """Binding of a port of a region's body to one of the region's buffers.

    Attributes
    ----------
    body : int
        Index of the body.
    buffer : int
        Index of the port in the body's plan.
    slot : int
        Position in the region's `buffer_indices` of the buffer that contains the port. It is -1 if
        the port is one int64 that holds the iteration number.
    stride : int
        Bytes by which the port advances in each iteration.

    Examples
    --------
    Buffer 0 of the only body is a port in the third buffer of the region; it advances by 16 bytes:

    >>> krt.runtime.PortBinding(body=0, buffer=0, slot=2, stride=16).stride
    16
    """

    body: int
    buffer: int
    slot: int
    stride: int = 0


@dataclass(slots=True, eq=False)
class PreparedRegion:
    """A control-flow region: a loop over a body plan, or a choice between several body plans.

    Attributes
    ----------
    id : int
        Id of the op, used in dependencies.
    bodies : tuple of ExecutionPlan
        Plans to run. They have no Variables, and write only to ports and to their own memory. A
        plan is the body of one region; a plan that already is a body is copied.
    buffer_indices : tuple of int
        The plan's buffers that the bodies and the region itself read and write.
    output_indices : tuple of int
        Positions in `buffer_indices` that are written, whether or not they are also read.
    bindings : tuple of PortBinding
        One binding per port of each body.
    copies : tuple of (int, int, int)
        Copies (destination, source, bytes) between positions in `buffer_indices`. They run before
        the first iteration, and also if no iteration runs.
    count : int
        Maximum number of iterations.
    reverse : bool
        Whether iterations are numbered down to 0 instead of up from 0.
    count_slot : int
        Position of an int64 that holds the number of iterations, from 0 to `count`; -1 if there is
        none.
    condition_slot : int
        Position of a bool, which must be true for an iteration to begin; -1 if there is none.
    choice_slot : int
        Position of an int64, the index of the body to run; -1 if there is none. An index out of
        range selects the nearest body.
    may_fail : bool
        Whether this op may fail and end the run; set automatically if an op of a body may fail.
    origins : tuple of Origin
        User code lines and layers that the region computes.
    dependencies : tuple of int
        Ids of ops that must run first.

    Raises
    ------
    PlanBuildError
        Bodies, buffers and bindings do not match.

    Examples
    --------
    A loop of :func:`kernelrt.scan` is a region:

    >>> total = lambda x: krt.scan(lambda c, v: (c + v, None), krt.zeros(3), x)[0]
    >>> plan = krt.jit(total).plan(np.ones((50, 3), np.float32))
    >>> [(op.count, op.is_choice) for op in plan.prepared_ops if hasattr(op, "bodies")]
    [(50, False)]
    """

    id: int
    bodies: tuple[ExecutionPlan, ...]
    buffer_indices: tuple[int, ...]
    output_indices: tuple[int, ...]
    bindings: tuple[PortBinding, ...]
    copies: tuple[tuple[int, int, int], ...] = ()
    count: int = 1
    reverse: bool = False
    count_slot: int = -1
    condition_slot: int = -1
    choice_slot: int = -1
    may_fail: bool = False
    origins: tuple[Origin, ...] = ()
    dependencies: tuple[int, ...] = ()
    _location: _Location = field(default_factory=_Location, init=False, repr=False)

    def __post_init__(self) -> None:
        self.count = whole(f"{self.label}: count", self.count)
        check_region(self)
        self.may_fail |= any(can_fail(op) for body in self.bodies for op in body.prepared_ops)

    def given(self) -> list[ByteRange]:
        """Return the byte ranges of the buffers given to the bodies, which only read them.

        Returns
        -------
        list of ByteRange
            One range for each buffer.
        """
        return [region for body in self.bodies for region in body.given()]

    @property
    def is_choice(self) -> bool:
        """Whether the region runs one of several bodies, instead of a loop over one body."""
        return len(self.bodies) > 1 and self.count == 1

    @property
    def label(self) -> str:
        """Name of the op in errors."""
        if self.is_choice:
            return f"choice among {len(self.bodies)} bodies (op {self.id})"
        most = "up to " if max(self.count_slot, self.condition_slot) >= 0 else ""
        return f"loop of {most}{self.count} iterations (op {self.id})"

    @property
    def title(self) -> str:
        """Layers, operations and lines that the op computes; if unknown, its label."""
        return summary(self.origins) or self.label


PreparedOp = (
    PreparedKernel | PreparedCopy | PreparedBufferView | PreparedCustomFunction | PreparedRegion
)


def can_fail(op: PreparedOp) -> bool:
    """Return whether a run may fail at `op`."""
    if isinstance(op, PreparedKernel):
        return op.kernel.may_fail
    if isinstance(op, PreparedRegion):
        return op.may_fail
    return isinstance(op, PreparedCustomFunction)


def written(op: PreparedOp) -> Sequence[int]:
    """List the plan's buffers that `op` writes."""
    return [op.buffer_indices[i] for i in op.output_indices]


def read_slots(op: PreparedOp) -> list[tuple[int, int]]:
    """List (position, buffer) of the slots that `op` reads, which are all but the outputs."""
    if isinstance(op, PreparedBufferView):
        return []
    outs = set(op.output_indices)
    return [(i, b) for i, b in enumerate(op.buffer_indices) if i not in outs]


def read(op: PreparedOp) -> Sequence[int]:
    """List the plan's buffers that `op` reads."""
    return [b for _, b in read_slots(op)]
