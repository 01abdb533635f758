"""Samples in a process of their own, so that a crash or a hang is an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.processes import DiedError, Worker

from .outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["run"]

DEATHS = 3
"""After so many crashes or hangs the other samples of an operation are left out."""


class _Runner:
    """A worker that is started again after its death."""

    def __init__(self, suite: str) -> None:
        self._suite = suite
        self._start()

    def _start(self) -> None:
        self._worker = Worker(self._suite, program="tests.conformance.worker")

    def close(self) -> None:
        self._worker.close()

    def names(self) -> list[str]:
        found: list[str] = self._worker.greeting["names"]
        return found

    def outcomes(self, name: str, count: int, draw: int) -> list[Outcome]:
        """The outcomes of the samples of one operation or module."""
        found: list[Outcome] = []
        first = deaths = 0
        while deaths < DEATHS:
            try:
                self._worker.send(name=name, count=count, draw=draw, first=first)
                while "outcomes" in (reply := self._worker.reply()):
                    found += [Outcome(**plain) for plain in reply["outcomes"]]
                    first += 1
            except DiedError as end:
                found.append(Outcome(name, f"number {first}", "eager", "crashed", str(end)))
                first, deaths = first + 1, deaths + 1
                self._worker.close()
                self._start()
            else:
                break
        return found


def run(
    suite: str,
    chosen: Sequence[str],
    count: int,
    draw: int,
    tell: Callable[[str, list[Outcome]], None],
) -> dict[str, list[Outcome]]:
    """The outcomes of a suite by name, told as they come.

    Parameters
    ----------
    suite : str
        "ops" or "modules".
    chosen : sequence of str
        Names; empty for all.
    count : int
        At most so many samples of each type, 0 for all.
    draw : int
        Which samples they are.
    tell : callable
        ``tell(name, outcomes)`` is called after each name.

    Raises
    ------
    ValueError
        A name is none of the suite.
    """
    runner = _Runner(suite)
    try:
        names = runner.names()
        if unknown := sorted(set(chosen) - set(names)):
            raise ValueError(f"PyTorch has no samples of {', '.join(unknown)}")
        found = {}
        for name in chosen or names:
            found[name] = runner.outcomes(name, count, draw)
            tell(name, found[name])
        return found
    finally:
        runner.close()
