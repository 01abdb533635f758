"""Types of the hot path of jit: find a replay, copy arguments in, run, return results."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from kernelrt._dispatch import PlanCore, Sample
from kernelrt.native.array_handle import ArrayHandle, HandleRegistry
from kernelrt.native.core import Bindings
from kernelrt.native.locks import Lock
from kernelrt.native.memory import BlockCache
from kernelrt.native.name_guards import Names
from kernelrt.native.signature import InputSpec, Site, Structure

class Mismatch:
    """The type of MISMATCH."""

MISMATCH: Final[Mismatch]
"""The value that a Replay returns if the arguments do not match its specs."""

#: A collection of tensors with pending work. A call runs a replay directly only while all registers
#: are empty.
Register: TypeAlias = dict[Any, Any] | HandleRegistry

OutputSpec: TypeAlias = (
    tuple[int, int, tuple[int, ...]] | tuple[int, int, tuple[int, ...], Sequence[Site]]
)
"""``(address in the plan's memory, dtype_code, shape)``: the result is copied from there after the
run. With sites it is bound instead: the plan writes directly to the memory of the result."""

_H = TypeVar("_H", bound=ArrayHandle)

class Watch(Protocol):
    """The Python state that a replay depends on or changes, in addition to arguments and memory."""

    def fits(self) -> bool:
        """Return whether the replay may run."""
    def before(self) -> tuple[bool, tuple[list[Any], list[Any]], tuple[tuple[Any, bool], ...]]:
        """Prepare a run.

        Return whether there was anything to do, the work that
        `kernelrt.native.array_handle.finish` does after the run, and tensors with the
        `requires_grad` that they get then.
        """

class Replay:
    """A prepared plan together with the calling convention of the traced function.

    Parameters
    ----------
    plan : PlanCore
        Plan to run. Copying in, running and copying out take place under one exclusive access.
    inputs : sequence of InputSpec
        One spec for each positional argument.
    outputs : sequence of OutputSpec
        Locations of the results after the run. Each call creates new handles that own copies.
    result_type : type
        Subclass of ArrayHandle to create results of.
    build : callable, optional
        Called with the results; its return value is the result of the call. Without it, a call
        returns the single result, or a tuple if there are several outputs.
    bindings : callable, optional
        Returns the pointers, values and chunk counts (see `PlanCore.execute_with`) of this replay.
        Called under exclusive access, if another replay or `execute_with` ran in between.
    structure : Structure, optional
        Nesting of the positional arguments, if they are not the leaves themselves. The specs
        describe the leaves in order.
    registers, make_way : iterable of Register, callable, optional
        `make_way` is called before a run, outside the exclusive access, if one of the `registers`
        is not empty.
    births : list of int, optional
        Its only element grows with each entry of the registers. `make_way` returns the number up
        to which it has processed all entries, or -1 if none ever needs work. If the element has
        grown before the run, `make_way` is called again.
    watch : Watch, optional
        Asked whether the replay still fits, and called before a run. Both are skipped if nothing
        was touched (`kernelrt.native.array_handle.touch`) since a run without work for it.
    entry : Lock, optional
        Lock that is held while `watch` is asked and the plan runs.
    names : Names, optional
        Python variables. The replay matches only while all of them are unchanged.
    records : int
        1: the replay matches only if gradients are recorded; 0: only if not; -1: in both cases.
    guards : sequence of (handle, address)
        State that the plan reads and writes in place. The replay matches only while the data of
        every handle are at its address.
    writes : sequence of (begin, end)
        Address ranges that the plan writes. An array that overlaps one of them is copied, even if
        it could be bound.
    severed, by_argument
        For each output the tag of the results (see `ArrayHandle._severed`) or None, and the
        indices of array arguments. If one of these arguments has a lineage, the tag is
        `by_argument`. In `no_grad` results get no tag.
    keep : object
        Kept alive with the replay (for example the buffers behind the addresses).
    results_from : BlockCache, optional
        Cache that provides and takes back the memory of larger results.

    Notes
    -----
    These arguments match: an exact ndarray of the spec's shape and native dtype (with any strides:
    NumPy copies arrays that are not C-contiguous and aligned), a realized ArrayHandle of the spec's
    shape and dtype, a float, the same static object, or an equal one of the same type. All other
    arguments, and any other number of arguments, result in MISMATCH before anything is changed.

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
    most_calls: int  # from this number of calls on, `_slow` is called; 0: never
    @property
    def calls(self) -> int:
        """The number of runs of the plan through this replay."""
    def load(self, *args: object) -> Mismatch | None:
        """Copy the leaves into the plan's memory. Return None, or MISMATCH."""
    def profile(self, *args: object) -> Mismatch | list[Sample]:
        """Run with these leaves; return `PlanCore.execute_profiled_raw`'s samples, or MISMATCH."""
    def __call__(self, *args: object) -> Any:
        """Return the results for these leaves, or MISMATCH. Raise like `PlanCore.execute`."""

class JitCore:
    """Base class of a jitted function: tries its replays and otherwise calls `_slow`.

    The replay that matched last is tried first. Keyword arguments that continue the positional
    arguments are put into the order of the named parameters.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace, or convert the arguments to the form that a replay takes. Override this."""
    def _require_empty(self, registers: Iterable[Register]) -> None:
        """Set the registers that must be empty. While one of them is not, calls go to `_slow`."""
    def _name_parameters(self, names: Iterable[str]) -> None:
        """Set the names of the parameters that may be passed by position."""
    def _add_replay(self, replay: Replay) -> None: ...
    def _clear_replays(self) -> None: ...
    @property
    def _replays(self) -> tuple[Replay, ...]: ...
