"""Words about code that works but may not be meant, each line of the user's once.

A loop that computes the same again and again forgets jit; float64 features beside float32 weights
make everything behind them float64; what changes a view changes the viewed tensor in PyTorch, and
not here.
"""

from __future__ import annotations

import gc
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kernelrt import dtype as dt
from kernelrt._handle import ArrayHandle
from kernelrt._origin import here
from kernelrt.errors import EagerLoopWarning, KernelrtWarning, ViewWarning
from kernelrt.ir.origin import resolve
from kernelrt.tensor import state
from kernelrt.tensor.window import viewed, viewed_by

if TYPE_CHECKING:
    import weakref

    from kernelrt.device.buffer import Buffer
    from kernelrt.ir import UOp
    from kernelrt.tensor.base import TensorBase

__all__ = ["Uses", "note_view", "own", "tell", "tell_view", "tell_widening", "withdraw"]

_T = TypeVar("_T", bound="TensorBase")

#: Where it was not noted what a tensor views.
_UNKNOWN: Final = object()
#: A graph of fewer nodes gains little.
LEAST_NODES: Final = 16
#: The line is looked up once in so many runs,
EVERY: Final = 64
#: and has to be the same so many times.
TIMES: Final = 6

_told: set[tuple[str, int]] = set()
#: (text, file, line) of what is to be said once nothing is half done: it may be an error.
_due: list[tuple[str, str, int]] = []
_widened: set[tuple[str, int]] = set()
_views: set[tuple[str, int]] = set()

#: How often it was looked, at each line, whether what is viewed still lives, which takes as long
#: as a look at all objects does: some 20 ms with PyTorch beside. A training loop changes batches
#: that nobody else has.
_searched: dict[tuple[str, int], int] = {}
MOST_SEARCHES: Final = 4


@dataclass(slots=True, eq=False, repr=False)
class Uses:
    """How often a plan of eager code was found again, and from where.

    Attributes
    ----------
    nodes : int
        How large its graph is.
    """

    nodes: int
    count: int = 0
    times: int = 0
    line: tuple[str, int] = ("", 0)

    def note(self) -> None:
        """Count a run; :func:`tell` warns where one line of the user's makes so many of them."""
        self.count += 1
        if self.count % EVERY or self.nodes < LEAST_NODES:
            return
        found = here(None)
        if found is None or state.local.trace is not None:
            return
        origin = resolve(found)
        line = origin.file, origin.line
        self.times = self.times + 1 if line == self.line else 1
        self.line = line
        if self.times >= TIMES and line not in _told:
            _told.add(line)
            text = (
                f"this line has computed the same graph of {self.nodes} nodes more than "
                f"{EVERY * (TIMES - 1)} times without jit; a function with @kernelrt.jit around "
                "what the loop does runs as one plan. "
                "warnings.simplefilter('ignore', kernelrt.EagerLoopWarning) silences this"
            )
            _due.append((text, *line))


def tell() -> None:
    """Say what was noted; called where a read or a backward pass is over."""
    _tell_noted()
    while _due:
        try:
            text, file, line = _due.pop(0)
        except IndexError:
            return  # interrupting code has told it
        warnings.warn_explicit(text, EagerLoopWarning, file, line)


def tell_widening(a: TensorBase, b: TensorBase) -> None:
    """Warn where one of two factors is data in float64 and the other trained in float32.

    Traced functions tell it themselves: they know the name of the argument.
    """
    data, trained = (a, b) if a.dtype is dt.float64 else (b, a)
    if (data.dtype, trained.dtype) != (dt.float64, dt.float32):
        return
    if state.local.trace is not None or data.requires_grad or not trained.requires_grad:
        return
    found = here(state.local.scope)
    origin = None if found is None else resolve(found)
    if origin is None or (origin.file, origin.line) in _widened:
        return
    warnings.warn_explicit(
        f"{origin.layer or origin.op}: features of shape {data.shape} are float64 beside float32 "
        "weights, so the results are float64 and take about twice the time; pass x.float(), or "
        "make the weights float64",
        KernelrtWarning,
        origin.file,
        origin.line,
    )
    _widened.add((origin.file, origin.line))  # behind it: it may be an error


def tell_view(tensor: TensorBase, name: str) -> None:
    """Warn where a tensor is to change whose elements PyTorch would take from another one."""
    note = _view(tensor, name)
    if note is not None:
        _say(note)


def note_view(tensor: TensorBase, name: str) -> None:
    """As :func:`tell_view`, with the next value that is read: :func:`withdraw` may come first."""
    note = _view(tensor, name)
    if note is not None:
        _tell_noted()  # what `x[i] += v` noted it has taken back by now
        _later.note = note


def own(tensor: _T) -> _T:
    """`tensor`, whose value PyTorch has in memory of its own, whatever its node is."""
    tensor._viewed = None
    return tensor


def withdraw(value: object) -> None:
    """Take back what was noted of `value`, which is assigned to where it came from."""
    note = _later.note
    if note is not None and note.tensor == id(value):
        _later.note = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _View:
    """A change of a tensor, by its identity, at a line of the user's."""

    tensor: int
    memory: weakref.ref[Buffer] | None  # None: of what is not computed yet, which somebody holds
    name: str
    line: tuple[str, int]


class _Later(threading.local):
    note: _View | None = None


_later = _Later()


def _view(tensor: TensorBase, name: str) -> _View | None:
    """What is to be said of a change of `tensor`, if that may reach others in PyTorch."""
    if tensor._leaf is not None or hasattr(tensor, "_whose"):
        return None
    memory: Any = getattr(tensor, "_viewed", _UNKNOWN)
    nodes: list[UOp] = []
    if memory is _UNKNOWN:
        node = None if tensor.is_realized else tensor.uop  # which computes it on the way to a trace
        memory = None if node is None or tensor.is_realized else viewed_by(node)
        if memory is None and node is not None:
            nodes = viewed(tensor._uop or node)  # which is not detached where nothing is recorded
    if not nodes and (memory is None or memory() is None):
        return None
    found = here(state.local.scope)
    if found is None:
        return None
    origin = resolve(found)
    line = origin.file, origin.line
    if line in _views or _searched.get(line, 0) >= MOST_SEARCHES:
        return None
    if memory is None:
        _searched[line] = _searched.get(line, 0) + 1
        # Who holds it now may hold it no more when this is told.
        if not _are_held(nodes, tensor):
            return None
    return _View(id(tensor), memory, name, line)


def _tell_noted() -> None:
    note = _later.note
    if note is not None:
        _later.note = None
        _say(note)


def _say(note: _View) -> None:
    if note.memory is not None:
        _searched[note.line] = _searched.get(note.line, 0) + 1
        if not _is_held(note.memory()):
            return
    text = (
        f"{note.name}: this changes a part or another shape of another tensor, which itself keeps "
        "its value: views do not share memory, unlike PyTorch's. Write x[index] = value to change "
        "the other one, or copy first, as in x[index].clone()"
    )
    warnings.warn_explicit(text, ViewWarning, *note.line)
    _views.add(note.line)  # behind it: it may be an error, which is one each time


def _are_held(nodes: list[UOp], tensor: TensorBase) -> bool:
    """Whether another tensor lives that is one of `nodes`, or equal to one, which has its node."""
    return any(
        isinstance(t, ArrayHandle) and t is not tensor and any(t._uop is node for node in nodes)
        for t in gc.get_referrers(*nodes)
    )


def _is_held(memory: Buffer | None) -> bool:
    """Whether a tensor lives that has `memory`."""
    return memory is not None and any(
        isinstance(t, ArrayHandle) and t._memory is memory for t in gc.get_referrers(memory)
    )
