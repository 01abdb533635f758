"""A progress bar of plain text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Progress"]

_WIDTH = 24


class Progress:
    """A line that is rewritten in place and erased at the end.

    Parameters
    ----------
    shown : bool or None
        Whether to write; None writes if `stream` is a terminal.
    stream : text file, optional
        Stream to write to; standard error by default.
    """

    def __init__(self, shown: bool | None, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        if shown is None:
            # sys.stderr is None without a console.
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
        """Show the fraction of the work that is done, from 0 to 1, and the current activity."""
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
