"""Warnings about code that works but may be a mistake, once for each line.

A loop that computes the same graph many times should be jitted. Float64 features together with
float32 weights make all later results float64.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.errors import EagerLoopWarning, KernelrtWarning
from kernelrt.ir.origin import resolve
from kernelrt.native.source_lines import here
from kernelrt.native.thread_modes import count_read
from kernelrt.tensor import state

if TYPE_CHECKING:
    from kernelrt.ir import UOp
    from kernelrt.native.evaluate import UseCounts
    from kernelrt.tensor.base import TensorBase

__all__ = ["look", "note_compiled", "tell", "tell_widening"]

#: Minimum number of nodes for a warning; smaller graphs gain little from jit.
LEAST_NODES: Final = 16
#: The user's line is looked up at the first run and then once in this many runs.
EVERY: Final = 64
#: Number of successive look-ups that must find the same line before a warning.
TIMES: Final = 5

#: Number of graphs that a line compiles before a warning.
MOST_COMPILED: Final = 32
#: Maximum number of lines for which graphs are counted.
MOST_LINES: Final = 4096

#: Number of compiled graphs and seconds spent, by the line that computes and the line of the last
#: operation.
_compiled: dict[tuple[tuple[str, int], tuple[str, int]], tuple[int, float]] = {}
_told: set[tuple[str, int]] = set()
#: (text, file, line) of warnings that are issued once no work is half done: they may be errors.
_due: list[tuple[str, str, int]] = []
_widened: set[tuple[str, int]] = set()


def look(uses: UseCounts) -> None:
    """Look up the line that uses a plan; :func:`tell` warns if one line uses it many times."""
    uses.left = EVERY
    line = None if uses.nodes < LEAST_NODES else _line()
    if line is None:
        return
    uses.times = uses.times + 1 if line == uses.line else 1
    uses.line = line
    if uses.times > TIMES and line not in _told:
        _told.add(line)
        text = (
            f"this line has computed the same graph of {uses.nodes} nodes more than "
            f"{EVERY * TIMES} times without jit; move the body of the loop into a function with "
            "@kernelrt.jit, which runs as one plan. "
            "warnings.simplefilter('ignore', kernelrt.EagerLoopWarning) silences this"
        )
        _due.append((text, *line))


def _line() -> tuple[str, int] | None:
    """Return the user's line that computes now; None if a function is traced or debugged."""
    local = state.local
    found = here(None)
    if found is None or local.trace is not None or local.debugs:
        return None
    origin = resolve(found)
    return origin.file, origin.line


def note_compiled(last: UOp, seconds: float) -> None:
    """Count a new plan, whose last operation is `last` and which took `seconds` to compile.

    :func:`tell` warns if a loop compiles many plans. In a loop, the same line computes each time,
    and the same line builds the graph. (The cases of a test have different lines.)
    """
    while last.origin is None and last.src:
        last = last.src[0]
    line, built = _line(), None if last.origin is None else resolve(last.origin)
    if line is None or built is None:
        return
    if len(_compiled) >= MOST_LINES:
        _compiled.clear()
    key = line, (built.file, built.line)
    count, total = _compiled.get(key, (0, 0.0))
    _compiled[key] = count + 1, total + seconds
    if count + 1 == MOST_COMPILED:
        text = (
            f"this line has compiled {count + 1} different graphs without jit, in "
            f"{total + seconds:.2g} s. If the graph grows with each iteration, call realize() on "
            "the tensors that the loop carries; otherwise move the loop into a function with "
            "@kernelrt.jit, with kernelrt.scan for many iterations. "
            "warnings.simplefilter('ignore', kernelrt.EagerLoopWarning) silences this"
        )
        _due.append((text, *line))


def tell() -> None:
    """Issue the collected warnings; called at the end of a read or a backward pass."""
    while _due:
        try:
            text, file, line = _due.pop(0)
        except IndexError:
            return  # interrupting code has issued it
        warnings.warn_explicit(text, EagerLoopWarning, file, line)


def tell_widening(a: TensorBase, b: TensorBase) -> None:
    """Warn if one of two factors is float64 data and the other a trained float32 tensor.

    Traced functions issue a warning of their own that names the argument.
    """
    data, trained = (a, b) if a.dtype is dt.float64 else (b, a)
    if (data.dtype, trained.dtype) != (dt.float64, dt.float32):
        return
    if state.local.trace is not None or data.requires_grad or not trained.requires_grad:
        return
    count_read()  # a warning is a side effect: prevent a template, so that the next line warns, too
    found = here(state.local.scope)
    origin = None if found is None else resolve(found)
    if origin is None or (origin.file, origin.line) in _widened:
        return
    warnings.warn_explicit(
        f"{origin.layer or origin.op}: features of shape {data.shape} are float64 but the weights "
        "are float32, so the results are float64 and take about twice the time; pass x.float(), "
        "or make the weights float64",
        KernelrtWarning,
        origin.file,
        origin.line,
    )
    _widened.add((origin.file, origin.line))  # after the warning, because it may be an error
