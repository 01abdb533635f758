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
"""What a Replay gives back when the arguments are not the ones it was made for."""

#: What has to be empty for a call to run straight away.
Register: TypeAlias = dict[Any, Any] | Roster

OutputSpec: TypeAlias = (
    tuple[int, int, tuple[int, ...]] | tuple[int, int, tuple[int, ...], Sequence[Site]]
)
"""``(address in the plan's memory, dtype_code, shape)``, copied from there after the run; or with
sites, bound: the plan writes straight to the memory of the result."""

_H = TypeVar("_H", bound=ArrayHandle)

class Watch(Protocol):
    """What a replay depends on beside its arguments, and changes beside memory."""

    def fits(self) -> bool:
        """Whether the replay may run."""
    def before(self) -> tuple[bool, tuple[list[Any], list[Any]], tuple[tuple[Any, bool], ...]]:
        """Make ready for a run.

        Returns whether there was anything to do, what `kernelrt.native.array_handle.finish` does
        afterwards, and tensors that require a gradient, or none, from then on.
        """

class Replay:
    """One prepared plan together with the calling convention of the traced function.

    Parameters
    ----------
    plan
        Runs between copying in and copying out, all in one turn of the plan's lock.
    inputs
        One spec for each positional argument.
    outputs
        Where the results lie after the run. Each call makes fresh handles that own copies.
    result_type
        The subclass of ArrayHandle to make results of.
    build
        None: the single result itself where there is one output, a tuple otherwise. Else called
        with the results; what it returns is the result of the call.
    bindings
        Gives the pointers, values and chunk counts (see `PlanCore.execute_with`) that this replay
        runs with; called within the turn, when another replay or `execute_with` ran in between.
    structure
        How the positional arguments are nested, where they are not the leaves themselves. Specs
        are those of the leaves in order.
    registers, make_way
        `make_way` is called before a run, outside of the plan's turn, if one of the `registers`
        holds something.
    births
        Its only element grows with what the registers get. `make_way` gives the one up to which it
        has done all, -1 where nothing is ever to be done: up to the run it is called again.
    watch
        Asked whether the replay still fits, and told before a run, unless nothing was
        touched (`kernelrt.native.array_handle.touch`) since a run that it had nothing to do for.
    names
        Variables of Python; the replay matches only while all are what they were.
    records
        1: it matches only where gradients are recorded; 0: where they are not; -1: everywhere.
    guards
        (handle, address): state that the plan reads and writes in place. The replay matches only
        while every handle still has its data at that address.
    writes
        (begin, end) address ranges that the plan writes. An array that overlaps one is copied
        even where it could be bound.
    severed, by_argument
        For each output what marks the results (see `ArrayHandle._severed`) or None, and the places
        of array arguments; where one of these has a lineage, `by_argument` marks the results. In
        `no_grad` nothing does.
    keep
        Anything to be kept alive with the replay (buffers behind the addresses).
    results_from
        Where the memory of larger results comes from and goes back to.

    Notes
    -----
    What matches: an exact ndarray of the spec's shape and native dtype (any strides: arrays that
    are not C-contiguous and aligned are copied through NumPy), a realized ArrayHandle of the
    spec's shape and dtype, a float, the very static, or an equal one of the same type. Everything
    else, and every other number of arguments, is a MISMATCH, found before anything was changed.

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
    most_calls: int  # from so many on, calls ask Python; 0: never
    @property
    def calls(self) -> int:
        """How often the plan ran through this object."""
    def load(self, *args: object) -> Mismatch | None:
        """MISMATCH, or None: the leaves were copied to their places in the plan's memory."""
    def profile(self, *args: object) -> Mismatch | list[tuple[int, int, int, int]]:
        """MISMATCH, or what `PlanCore.execute_profiled_raw` gives of a call with these leaves."""
    def __call__(self, *args: object) -> Any:
        """MISMATCH, or the results for these leaves. Raises what `PlanCore.execute` raises."""

class JitCore:
    """Base class of a jitted function: tries its replays and otherwise calls `_slow`.

    The replay that matched last is tried first. Keyword arguments are brought into the order of
    the named parameters, if they continue the positional ones.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def _slow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace, or bring the arguments into the form that a replay takes. To be overridden."""
    def _require_empty(self, registers: Iterable[Register]) -> None:
        """Call `_slow` as long as any of these dicts holds something."""
    def _name_parameters(self, names: Iterable[str]) -> None:
        """Say what the parameters that may be passed by position are called."""
    def _add_replay(self, replay: Replay) -> None: ...
    def _clear_replays(self) -> None: ...
    @property
    def _replays(self) -> tuple[Replay, ...]: ...
