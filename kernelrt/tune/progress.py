"""A progress bar of plain text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Progress"]

_WIDTH = 24


class Progress:
    """A line that is written again and again, and gone in the end.

    Parameters
    ----------
    shown : bool or None
        Whether to write anything; None: where `stream` is a terminal.
    stream : text file, optional
        Where to write; standard error unless given.
    """

    def __init__(self, shown: bool | None, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        if shown is None:
            # Without a console there is no standard error.
            shown = self._stream is not None and self._stream.isatty()
        self._shown = shown and self._stream is not None
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._last:
            self._write(" " * len(self._last) + "\r")

    def show(self, part: float, text: str) -> None:
        """Say that `part` of the work is done, from 0 to 1, and what is going on."""
        if not self._shown:
            return
        full = round(min(1.0, max(0.0, part)) * _WIDTH)
        line = f"[{'#' * full}{'.' * (_WIDTH - full)}] {text}"[:100]
        if line != self._last:
            self._write(line + " " * (len(self._last) - len(line)) + "\r")
            self._last = line

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
