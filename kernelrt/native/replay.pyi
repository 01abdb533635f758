"""Types of the hot path of jit: find a replay, copy arguments in, run, hand results out."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from kernelrt._dispatch import PlanCore
from kernelrt.native.array_handle import ArrayHandle, Roster
from kernelrt.native.core import Bindings
from kernelrt.native.locks import Lock
from kernelrt.native.memory import BlockCache
from kernelrt.native.name_guards import Names
from kernelrt.native.signature import InputSpec, Site, Structure

class Mismatch:
    """The type of MISMATCH."""

MISMATCH: Final[Mismatch]
"""Result of a Replay that does not take the arguments."""

#: Containers that must be empty for a call to run directly.
Register: TypeAlias = dict[Any, Any] | Roster

OutputSpec: TypeAlias = (
    tuple[int, int, tuple[int, ...]] | tuple[int, int, tuple[int, ...], Sequence[Site]]
)
"""``(address in the plan's memory, dtype_code, shape)``: copied from there after the run. With
sites it is bound: the plan writes directly to the memory of the result."""

_H = TypeVar("_H", bound=ArrayHandle)

class Watch(Protocol):
    """Guards of a replay on state beyond its arguments, and its effects beyond memory."""

    def fits(self) -> bool:
        """Return whether the replay may run."""
    def before(self) -> tuple[bool, tuple[list[Any], list[Any]], tuple[tuple[Any, bool], ...]]:
        """Prepare a run.

        Return whether there was work, the argument for `kernelrt.native.array_handle.finish` after
        the run, and tensors whose `requires_grad` changes, with the new values.
        """

class Replay:
    """One prepared plan together with the calling convention of the traced function.

    Parameters
    ----------
    plan
        Plan to run between copying in and copying out, all with exclusive access to it.
    inputs
        One spec per positional argument.
    outputs
        Location of each result after the run. Each call returns new handles that own copies.
    result_type
        Subclass of ArrayHandle for results.
    build
        Function that builds the result of the call from the output handles. If None, the result is
        the handle itself for one output, or a tuple of handles.
    bindings
        Returns the pointers, values and chunk counts for this replay (see `PlanCore.execute_with`).
        Called with exclusive access if another replay or `execute_with` ran in between.
    structure
        Nesting of the positional arguments, if they are not the leaves themselves. Specs are then
        those of the leaves, in order.
    registers, make_way
        `make_way` is called before a run, without exclusive access, if one of the `registers` is
        not empty.
    births
        List with a count that grows with each entry of a register. `make_way` returns the count up
        to which its work is done, or -1 if there is never any; it is called again if the count grew
        before the run.
    watch
        Guards that are checked before a run, unless nothing was touched
        (`kernelrt.native.array_handle.touch`) since a run for which there was nothing to do.
    names
        Python variables; the replay matches only while they are unchanged.
    records
        1: the replay matches only if gradients are recorded; 0: only if they are not; -1: always.
    guards
        (handle, address): state that the plan reads and writes in place. The replay matches only
        while the data of every handle is at that address.
    writes
        (begin, end) address ranges that the plan writes. An array that overlaps one is copied
        even if it could be bound.
    severed, by_argument
        For each output the tag of the result (see `ArrayHandle._severed`) or None, and the indices
        of array arguments; if one of these has an autograd history, the result gets the tag
        `by_argument`. In `no_grad` there are no tags.
    keep
        Objects to keep alive with the replay (buffers behind the addresses).
    results_from
        Allocator of the memory of larger results.

    Notes
    -----
    An argument matches if it is an exact ndarray of the spec's shape and native dtype (any strides:
    arrays that are not C-contiguous and aligned are copied through NumPy), a realized ArrayHandle
    of the spec's shape and dtype, a float, or the same static object, or an equal one of the same
    type. Other arguments, or another number of them, give MISMATCH before anything was changed.

    Raises
    ------
    ShapeError, DTypeError, DeviceError
        A spec is malformed, or a site does not exist in the plan.
    """

    def __init__(
        self,
        plan: PlanCore,
        inputs: Sequence[InputSpec],
        outputs: Sequence[OutputSpec],
        result_type: type[_H],
        *,
        build: Callable[..., object] | None = None,
        bindings: Callable[[], Bindings] | None = None,
        structure: Structure | None = None,
        registers: Iterable[Register] = (),
        make_way: Callable[[], object] | None = None,
        births: list[int] | None = None,
        watch: Watch | None = None,
        entry: Lock | None = None,
        names: Names | None = None,
        records: int = -1,
        guards: Sequence[tuple[ArrayHandle, int]] = (),
        writes: Sequence[tuple[int, int]] = (),
        keep: object = None,
        results_from: BlockCache | None = None,
        severed: Iterable[tuple[object, Iterable[int]]] = (),
        by_argument: object = None,
    ) -> None: ...
    @property
    def plan(self) -> PlanCore: ...
    @property
    def bindings(self) -> Callable[[], Bindings] | None: ...
    most_calls: int  # number of calls from which on they go to Python; 0: never
    @property
    def calls(self) -> int:
        """Number of runs through this object."""
    def load(self, *args: object) -> Mismatch | None:
        """Copy the leaves to the plan's memory and return None; or return MISMATCH."""
    def profile(self, *args: object) -> Mismatch | list[tuple[int, int, int, int]]:
        """Return `PlanCore.execute_profiled_raw` of a call with these leaves, or MISMATCH."""
    def __call__(self, *args: object) -> Any:
        """Return the results for these leaves, or MISMATCH; raise errors of `PlanCore.execute`."""

class JitCore:
    """Base class of a jitted function: tries its replays and otherwise calls `_slow`.

    The replay that matched last is tried first. Keyword arguments are converted to positional ones
    if they continue these.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace, or convert the arguments to the form that a replay takes; to be overridden."""
    def _require_empty(self, registers: Iterable[Register]) -> None:
        """Call `_slow` while any of these dicts is not empty."""
    def _name_parameters(self, names: Iterable[str]) -> None:
        """Set the names of the parameters that may be passed by position."""
    def _add_replay(self, replay: Replay) -> None: ...
    def _clear_replays(self) -> None: ...
    @property
    def _replays(self) -> tuple[Replay, ...]: ...
