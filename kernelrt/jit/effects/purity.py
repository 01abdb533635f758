"""Checks functions that run once for all replays, iterations or members for side effects.

What they compute becomes a graph, which runs as often as it has to. Attributes that they set,
counts that they keep and numbers that they draw elsewhere are of that one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kernelrt.jit.effects.random_draws import Draws
from kernelrt.jit.effects.side_effects import Surroundings
from kernelrt.jit.parameters import name_of
from kernelrt.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernelrt.tensor import Trace

__all__ = ["BRANCHES", "MEMBERS", "REPLAYS", "TURNS", "Observed", "Purpose", "called_once"]

T = TypeVar("T")

ROOM: Final = 1_000
"""How many items are looked at where each call of a loop looks: for a millisecond, or two."""
MOST_GENERATORS: Final = 4
"""Of random numbers, likewise."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a function is called for, in the words of errors and warnings.

    Attributes
    ----------
    missing : str
        What is wrong about a change that it makes.
    counting : str
        What to do in the place of counting.
    assigning : str
        What becomes of an assignment to a tensor; empty where none can be made.
    keeping : str
        How a tensor gets out.
    drawing : tuple of str
        What is wrong about a draw of others' random numbers, and where kernelrt's draw afresh.
    passing : str
        How numbers drawn outside get in.
    strict : bool
        Whether tensors that it makes may be left nowhere, and what it sets is undone behind any
        error. Where it is called in each call, these have no value outside, as whoever reads
        one is told, and may be what it works with.
    """

    missing: str
    counting: str
    assigning: str
    keeping: str
    drawing: tuple[str, str]
    passing: str
    strict: bool = False


REPLAYS: Final = Purpose(
    missing="and replays run no Python",
    counting="count outside of the function",
    assigning="which every replay repeats",
    keeping="return the tensor and {verb} it outside",
    drawing=("replays repeat them", "in each call"),
    passing="pass them as arguments",
    strict=True,
)
TURNS: Final = Purpose(
    missing="and iterations run no Python",
    counting="carry it from iteration to iteration",
    assigning="which every iteration repeats",
    keeping="carry the tensor, or return it, and {verb} it outside",
    drawing=("iterations repeat them", "in each iteration"),
    passing="pass them in what is carried or in slices",
)
BRANCHES: Final = Purpose(
    missing="whichever branch runs",
    counting="return it and keep it outside",
    assigning="which happens only if the branch runs",
    keeping="return the tensor and {verb} it outside",
    drawing=("are drawn whichever branch runs", "in the branch that runs"),
    passing="pass them as operands",
)
MEMBERS: Final = Purpose(
    missing="but runs once for all members",
    counting="count outside of the function",
    assigning="",
    keeping="return the tensor and {verb} it outside",
    drawing=("all members have the same", "for each member"),
    passing="pass them as arguments with an axis for the members",
)


class Observed:
    """What a function that is called once may change, looked at just before.

    Parameters
    ----------
    trace : Trace
        The active one.
    purpose : Purpose
        What it is called for.
    name : str
        What it is called in errors.
    around : Surroundings
        What it reaches.
    own : callable
        Which objects have no value outside, beside what the trace makes.
    """

    def __init__(
        self, trace: Trace, purpose: Purpose, name: str, around: Surroundings,
        own: Callable[[object], bool] = lambda _: False,
    ) -> None:  # fmt: skip
        self._trace, self._purpose, self._name = trace, purpose, name
        self._around, self._own = around, own
        self._draws: Draws | None = None
        outer = cast("Draws | None", trace.draws)
        if outer is not None:  # of a function around this one, which met the rest before
            around.leave_out(outer.met)
            return
        # Libraries draw from those of the process, too; a look at these takes as long as a small
        # loop.
        shared = purpose.strict or around.mentions("random")
        most = None if purpose.strict else MOST_GENERATORS
        self._draws = trace.draws = Draws(around.reached, shared=shared, most=most)
        self._draws.met = around.met  # alive as long as this is

    def call(self, work: Callable[[], T]) -> T:
        """What `work`, which calls the function, gives.

        Raises
        ------
        JitError
            The function set what cannot stay; that is as before then.
        """
        if self._draws is not None:
            self._draws.begin()
        failed = True
        try:
            result = work()
            failed = False
            self._around.check(self._name, self._purpose, self._made)
        except BaseException:  # once more, where the check was interrupted
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
    """As :meth:`Observed.call`, after a quick look around.

    Parameters
    ----------
    trace, purpose, work
        As there.
    what : str
        What the functions are called by.
    functions : sequence of callable
        All that `work` calls.
    arguments : iterable of (str, object)
        What they are given, by name.
    """
    around = Surroundings(*(("", f) for f in functions), *arguments, room=ROOM)
    if around.is_empty:
        return work()
    name = f"{name_of(functions[0])} in {what}" if len(functions) == 1 else f"a function of {what}"
    return Observed(trace, purpose, name, around).call(work)
