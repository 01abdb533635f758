"""Find side effects of functions that run once for all replays, iterations or batch elements.

The operations of such a function become a graph, which runs as often as necessary. Other effects
happen only in its one call: attributes that it sets, counters that it increments, and random
numbers that it draws from other libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kernelrt.jit.effects.random_draws import Draws
from kernelrt.jit.effects.side_effects import OuterState
from kernelrt.jit.parameters import name_of
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelrt.tensor import Trace

__all__ = ["BRANCHES", "MEMBERS", "REPLAYS", "TURNS", "Observed", "Purpose", "called_once"]

T = TypeVar("T")

ROOM: Final = 1_000
"""Maximum number of items checked in each call of a loop function: one or two milliseconds."""
MOST_GENERATORS: Final = 4
"""Maximum number of random generators checked in each such call."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why a function is called only once: phrases for errors and warnings, and strictness.

    Attributes
    ----------
    missing : str
        Why a change that the function makes has no effect.
    counting : str
        Advice for a function that counts.
    assigning : str
        The effect of an assignment to a tensor; empty if assignments are impossible.
    keeping : str
        Advice for a function that stores a tensor.
    drawing : tuple of str
        Why random numbers of other libraries are wrong in such a function, and when random
        functions of kernelrt draw new numbers.
    passing : str
        How to pass in numbers that were drawn outside.
    strict : bool
        Whether it is an error to store a tensor of the trace anywhere, and whether all changes are
        undone after an error. If false, the function may store tensors, because it may need them
        later. Reading such a tensor outside the function raises an error.
    """

    missing: str
    counting: str
    assigning: str
    keeping: str
    drawing: tuple[str, str]
    passing: str
    strict: bool = False


REPLAYS: Final = Purpose(
    missing="but replays do not run Python code",
    counting="count outside of the function",
    assigning="which every replay repeats",
    keeping="return the tensor and {verb} it outside",
    drawing=("replays repeat them", "in each call"),
    passing="pass them as arguments",
    strict=True,
)
TURNS: Final = Purpose(
    missing="but iterations do not run Python code",
    counting="carry the number from iteration to iteration",
    assigning="which every iteration repeats",
    keeping="carry the tensor, or return it, and {verb} it outside",
    drawing=("iterations repeat them", "in each iteration"),
    passing="pass them in the carried values or as slices",
)
BRANCHES: Final = Purpose(
    missing="whichever branch runs",
    counting="return the number and store it outside",
    assigning="which happens only if the branch runs",
    keeping="return the tensor and {verb} it outside",
    drawing=("they are drawn whichever branch runs", "in the branch that runs"),
    passing="pass them as operands",
)
MEMBERS: Final = Purpose(
    missing="but vmap calls the function once for all batch elements",
    counting="count outside of the function",
    assigning="",
    keeping="return the tensor and {verb} it outside",
    drawing=("all batch elements use the same numbers", "for each batch element"),
    passing="pass them as arguments with a batch axis",
)


class Observed:
    """A snapshot of the state that a function may change, taken just before its only call.

    Parameters
    ----------
    trace : Trace
        The active trace.
    purpose : Purpose
        Purpose of the call.
    name : str
        Name of the function for errors.
    around : OuterState
        State that the function can reach.
    own : callable
        Predicate for further objects that, as the tensors of the trace, have no value outside.
    """

    def __init__(
        self, trace: Trace, purpose: Purpose, name: str, around: OuterState,
        own: Callable[[object], bool] = lambda _: False,
    ) -> None:  # fmt: skip
        self._trace, self._purpose, self._name = trace, purpose, name
        self._around, self._own = around, own
        self._draws: Draws | None = None
        outer = cast("Draws | None", trace.draws)
        if outer is not None:  # the call of an enclosing function compares these containers
            around.leave_out(outer.met)
            return
        # Libraries also draw from the process-wide generators, but reading the states of these
        # takes as long as a small loop.
        shared = purpose.strict or around.mentions("random")
        most = None if purpose.strict else MOST_GENERATORS
        self._draws = trace.draws = Draws(around.reached, shared=shared, most=most)
        self._draws.met = around.met  # alive as long as this is

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which calls the function.

        Raises
        ------
        JitError
            The function made a change that must not persist. The change is undone.
        """
        if self._draws is not None:
            self._draws.begin()
        failed = True
        try:
            result = work()
            failed = False
            self._around.check(self._name, self._purpose, self._made)
        except BaseException:  # restores again, in case the check itself was interrupted
            self._around.restore(self._purpose, self._made, failed=failed)
            raise
        if self._draws is not None:
            self._draws.tell(self._name, self._purpose)
        return result

    def _made(self, value: object) -> bool:
        if not isinstance(value, Tensor):
            return False
        born = value._born
        trace = self._trace
        return born is trace or (born is not None and born.holds(trace)) or self._own(value)


def called_once(
    trace: Trace, purpose: Purpose, what: str, functions: Sequence[Callable[..., object]],
    work: Callable[[], T], arguments: Iterable[tuple[str, object]] = (),
) -> T:  # fmt: skip
    """Take a quick snapshot of reachable state, then call :meth:`Observed.call`.

    Parameters
    ----------
    trace, purpose, work
        See :class:`Observed` and :meth:`Observed.call`.
    what : str
        Name of the caller, such as scan.
    functions : sequence of callable
        All functions that `work` calls.
    arguments : iterable of (str, object)
        Arguments of the functions, by name.
    """
    around = OuterState(*(("", f) for f in functions), *arguments, room=ROOM)
    if around.is_empty:
        return work()
    name = f"{name_of(functions[0])} in {what}" if len(functions) == 1 else f"a function of {what}"
    return Observed(trace, purpose, name, around).call(work)
