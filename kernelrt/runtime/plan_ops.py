"""Operations of a plan: prepared kernels, copies, views and custom functions."""

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

    from kernelrt.device.byte_ranges import Region
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
    """A variable that each execution may set, and its inclusive bounds."""

    name: str
    min_val: int
    max_val: int


@dataclass(slots=True, eq=False)
class _Place:
    """Where a prepared op ended up: its plan, and its index in the C table."""

    plan: weakref.ref[ExecutionPlan] | None = None
    index: int = -1

    def live(self) -> ExecutionPlan | None:
        """Give the plan, unless it is gone or was released."""
        plan = None if self.plan is None else self.plan()
        return None if plan is None or plan.released else plan


@dataclass(slots=True, eq=False)
class PreparedKernel:
    """One launch of a kernel.

    Attributes
    ----------
    id : int
        Names the op in dependencies; unique in its plan.
    kernel : CachedKernel
        What to launch.
    buffer_indices : tuple of int
        The plan's buffer for each slot (the status word's slot has none).
    fixedvars : mapping of str to int
        Variables bound for good by whoever prepared the launch.
    dependencies : tuple of int
        Ids of ops that must have run before; a plan adds those that its hazards ask for.
    initial_vals : mapping of str to int
        First values of the other variables; their upper bounds if not given.
    output_indices : tuple of int
        Positions in `buffer_indices` that are written.
    runtime_vars : tuple of RuntimeVar
        The variables that an execution may set.
    origins : tuple of Origin
        The user's lines and layers that it computes, producers first; empty where not known.
    checks : tuple of Origin or None
        Where each of its index checks comes from, by number.

    Raises
    ------
    PlanBuildError
        Buffers or variables do not fit the kernel.
    VariableError
        A value is out of bounds.
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
    _place: _Place = field(default_factory=_Place, init=False, repr=False)

    def __post_init__(self) -> None:
        kernel = self.kernel
        slots = kernel.buf_count - kernel.may_fail
        if len(self.buffer_indices) != slots:
            raise PlanBuildError(
                f"{self.label}: buffer_indices has {len(self.buffer_indices)} entries, "
                f"expected one for each of its {slots} slots"
            )
        self.output_indices = tuple(slot for slot in kernel.outs if slot < slots)
        self.runtime_vars = self._find_runtime_vars()

    def _find_runtime_vars(self) -> tuple[RuntimeVar, ...]:
        kernel = self.kernel
        bounds = {v.arg[0]: RuntimeVar(*v.arg) for v in kernel.vars}
        bounds |= {v.arg[0]: RuntimeVar(*v.arg) for v in variables_of(self.sizes)}
        if CORE_ID in self.fixedvars or CORE_ID in self.initial_vals:
            raise VariableError(f"{self.label}: {CORE_ID} is set by the plan alone")
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
                raise VariableError(f"{self.label}: it has no variable {name!r}")
            _, low, high = bounds.get(name, (name, value, value))
            if not low <= value <= high:
                raise VariableError(
                    f"{self.label}: {name}={value} lies outside its bounds {low} to {high}"
                )
        return tuple(bounds[n] for n in free if n not in self.fixedvars)

    def check_lent(self, region: Callable[[int], Region]) -> None:
        """Check that no slot shares a byte with one that the code takes for memory of its own.

        Parameters
        ----------
        region : callable
            Gives the bytes of a buffer of the plan.

        Raises
        ------
        PlanBuildError
            Naming both slots.
        """
        for slot in self.kernel.lent:
            here = region(self.buffer_indices[slot])
            for other, index in enumerate(self.buffer_indices):
                if other != slot and here.meets(region(index)):
                    raise PlanBuildError(
                        f"{self.label}: its output, slot {slot}, holds other values before the "
                        "results, or takes some of these twice, and shares memory with slot "
                        f"{other}; they must share no byte"
                    )

    @property
    def label(self) -> str:
        """What errors call this op."""
        return f"kernel {self.kernel.entry_point!r} (op {self.id})"

    @property
    def title(self) -> str:
        """What it computes, for people: layers, operations, lines; else its entry point."""
        return summary(self.origins) or self.kernel.entry_point

    @property
    def ast(self) -> UOp:
        """The kernel AST."""
        return self.kernel.ast

    @property
    def device(self) -> str:
        """Name of the device that runs it."""
        return self.kernel.device

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """Launch sizes, symbolic."""
        return self.kernel.global_size + (self.kernel.local_size or ())

    @property
    def vals(self) -> tuple[int, ...]:
        """Values that the next launch will get, in the order of ``var_names``.

        ``core_id`` shows as 0; each chunk gets its own.
        """
        plan = self._place.live()
        if plan is not None:
            known: Mapping[str, int] = plan.values
        else:
            known = {v.name: v.max_val for v in self.runtime_vars} | dict(self.initial_vals)
        return tuple(self.kernel.vals_for({**known, **self.fixedvars}))

    @property
    def buffer_ptrs(self) -> tuple[int, ...]:
        """Addresses in the C table, one for each of `buffer_indices`.

        Raises
        ------
        PlanReleasedError
            The op is in no plan, or the plan was released.
        """
        plan = self._live()
        return tuple(plan.pointer(self._place.index, i) for i in range(len(self.buffer_indices)))

    @property
    def buffer_ids(self) -> tuple[int, ...]:
        """Ids of the buffers, one for each of `buffer_indices`."""
        buffers = self._live().buffers
        return tuple(buffers[i].id for i in self.buffer_indices)

    def _live(self) -> ExecutionPlan:
        plan = self._place.live()
        if plan is None:
            raise PlanReleasedError(f"{self.label} is in no plan, or its plan was released")
        return plan


@dataclass(slots=True, eq=False)
class PreparedCopy:
    """A copy of the first `nbytes` bytes of one buffer to another; they may overlap.

    Attributes
    ----------
    id : int
        Names the op in dependencies.
    buffer_indices : tuple of int
        Destination and source.
    nbytes : Dim
        How much to copy; may depend on Variables.
    dependencies : tuple of int
        Ids of ops that must have run before.
    """

    id: int
    buffer_indices: tuple[int, int]
    nbytes: Dim
    dependencies: tuple[int, ...] = ()
    _place: _Place = field(default_factory=_Place, init=False, repr=False)

    def __post_init__(self) -> None:
        self.nbytes = plain(self.nbytes)
        if not isinstance(self.nbytes, UOp):
            self.nbytes = whole(f"{self.label}: nbytes", self.nbytes)

    @property
    def label(self) -> str:
        """What errors call this op."""
        return f"copy (op {self.id})"

    @property
    def output_indices(self) -> tuple[int, ...]:
        """Positions in `buffer_indices` that are written."""
        return (0,)


@dataclass(slots=True, eq=False)
class PreparedBufferView:
    """A buffer that is part of another. Nothing runs for it.

    Attributes
    ----------
    id : int
        Names the op in dependencies.
    buffer_indices : tuple of int
        The view, and the buffer it is part of.
    byte_offset, nbytes : int
        Which part.
    dependencies : tuple of int
        Ids of ops that must have run before.
    """

    id: int
    buffer_indices: tuple[int, int]
    byte_offset: int
    nbytes: int
    dependencies: tuple[int, ...] = ()
    _place: _Place = field(default_factory=_Place, init=False, repr=False)

    def __post_init__(self) -> None:
        self.byte_offset = whole(f"{self.label}: byte_offset", self.byte_offset)
        self.nbytes = whole(f"{self.label}: nbytes", self.nbytes)

    @property
    def label(self) -> str:
        """What errors call this op."""
        return f"view (op {self.id})"

    @property
    def output_indices(self) -> tuple[int, ...]:
        """Positions in `buffer_indices` that are written: none."""
        return ()


@dataclass(slots=True, eq=False)
class PreparedCustomFunction:
    """A call into Python, with the GIL.

    Attributes
    ----------
    id : int
        Names the op in dependencies.
    function : callable
        Called with one NumPy array a buffer (one-dimensional, sharing its memory; read-only
        where the op does not write it; bfloat16 as its uint16 bits), and the variables it names
        as keywords. What it returns is ignored; what it raises ends the run.
    buffer_indices : tuple of int
        The plan's buffers to pass.
    output_indices : tuple of int
        Positions in `buffer_indices` that it writes.
    variables : tuple of UOp
        Variables to pass.
    dependencies : tuple of int
        Ids of ops that must have run before.
    """

    id: int
    function: Callable[..., Any]
    buffer_indices: tuple[int, ...]
    output_indices: tuple[int, ...] = ()
    variables: tuple[UOp, ...] = ()
    dependencies: tuple[int, ...] = ()
    _place: _Place = field(default_factory=_Place, init=False, repr=False)

    def __post_init__(self) -> None:
        self.variables = plain(tuple(self.variables))
        if not callable(self.function):
            raise PlanBuildError(f"{self.label}: function: {self.function!r} cannot be called")
        bad = [i for i in self.output_indices if not 0 <= i < len(self.buffer_indices)]
        if bad:
            raise PlanBuildError(
                f"{self.label}: output_indices {bad} lie outside its "
                f"{len(self.buffer_indices)} buffers"
            )

    @property
    def label(self) -> str:
        """What errors call this op."""
        name = getattr(self.function, "__qualname__", None) or type(self.function).__name__
        return f"function {name!r} (op {self.id})"


class PortBinding(NamedTuple):
    """Where a port of a region's body lies.

    Attributes
    ----------
    body : int
        Which body.
    buffer : int
        The port, by its index in the plan that is the body.
    slot : int
        Where in the region's `buffer_indices` stands what it lies in; -1: the port is an int64 that
        has the number of the turn.
    stride : int
        Bytes by which it lies further on in each turn.
    """

    body: int
    buffer: int
    slot: int
    stride: int = 0


@dataclass(slots=True, eq=False)
class PreparedRegion:
    """Plans that are run as one operation: a loop over a body, or one of several bodies.

    Attributes
    ----------
    id : int
        Names the op in dependencies.
    bodies : tuple of ExecutionPlan
        What is run. They have no Variables, and write to ports and to memory of their own alone.
        Each is the body of one region; a plan that is one already is copied.
    buffer_indices : tuple of int
        The plan's buffers that bodies and the region itself read and write.
    output_indices : tuple of int
        Positions in `buffer_indices` that are written, also where they are read later on.
    bindings : tuple of PortBinding
        One for each port of each body.
    copies : tuple of (int, int, int)
        Positions in `buffer_indices` from the second of which so many bytes are copied to the
        first, before the first turn, and also where no turn is run.
    count : int
        How many turns, at most.
    reverse : bool
        Whether turns are numbered down to 0, and not up from 0.
    count_slot : int
        Position of an int64 that says how many turns, within 0 to `count`; -1 for none.
    condition_slot : int
        Position of a bool; a turn begins only where it holds. -1 for none.
    choice_slot : int
        Position of an int64 that says which body, the nearest that there is; -1 for none.
    may_fail : bool
        Whether a run may end there; found by itself.
    origins : tuple of Origin
        The user's lines and layers that it computes.
    dependencies : tuple of int
        Ids of ops that must have run before.

    Raises
    ------
    PlanBuildError
        The parts do not fit together.
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
    _place: _Place = field(default_factory=_Place, init=False, repr=False)

    def __post_init__(self) -> None:
        self.count = whole(f"{self.label}: count", self.count)
        check_region(self)
        self.may_fail |= any(can_fail(op) for body in self.bodies for op in body.prepared_ops)

    def given(self) -> list[Region]:
        """The bytes of all buffers that were given to its bodies, which only read them."""
        return [region for body in self.bodies for region in body.given()]

    @property
    def is_choice(self) -> bool:
        """Whether it runs one of several bodies, and not one again and again."""
        return len(self.bodies) > 1 and self.count == 1

    @property
    def label(self) -> str:
        """What errors call this op."""
        if self.is_choice:
            return f"choice among {len(self.bodies)} (op {self.id})"
        most = "up to " if max(self.count_slot, self.condition_slot) >= 0 else ""
        return f"loop of {most}{self.count} turns (op {self.id})"

    @property
    def title(self) -> str:
        """What it computes, for people: layers, operations, lines; else its label."""
        return summary(self.origins) or self.label


PreparedOp = (
    PreparedKernel | PreparedCopy | PreparedBufferView | PreparedCustomFunction | PreparedRegion
)


def can_fail(op: PreparedOp) -> bool:
    """Whether a run may end at `op`."""
    if isinstance(op, PreparedKernel):
        return op.kernel.may_fail
    if isinstance(op, PreparedRegion):
        return op.may_fail
    return isinstance(op, PreparedCustomFunction)


def written(op: PreparedOp) -> Sequence[int]:
    """List the plan's buffers that `op` writes."""
    return [op.buffer_indices[i] for i in op.output_indices]


def read_slots(op: PreparedOp) -> list[tuple[int, int]]:
    """List (position, buffer) of what `op` reads: every slot that is not an output."""
    if isinstance(op, PreparedBufferView):
        return []
    outs = set(op.output_indices)
    return [(i, b) for i, b in enumerate(op.buffer_indices) if i not in outs]


def read(op: PreparedOp) -> Sequence[int]:
    """List the plan's buffers that `op` reads."""
    return [b for _, b in read_slots(op)]
