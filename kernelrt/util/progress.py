"""Progress bars: tqdm's where it is installed, otherwise a line of text."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from kernelrt.errors import DTypeError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Progress", "shown_option"]

_WIDTH: Final = 24


def shown_option(value: object) -> bool | None:
    """Check a `progress` argument and return it."""
    if value is not None and type(value) is not bool:
        raise DTypeError(f"progress: expected True, False or None, not {value!r}")
    return value


def _is_watched(stream: TextIO | None) -> bool:
    """Return whether a user sees what is written to a stream at once: a terminal or a notebook."""
    if stream is None:  # sys.stderr of a process without a console
        return False
    return stream.isatty() or "ipykernel" in sys.modules


class Progress:
    """A bar that is redrawn in place and erased at the end of the ``with`` block.

    Parameters
    ----------
    shown : bool or None
        Whether to draw; None draws if `stream` is a terminal or the program is a notebook.
    total : int, optional
        Number of parts of the work. By default the work is measured in fractions, from 0 to 1.
    stream : text file, optional
        Stream to write to; standard error by default.
    delay : float
        Seconds after which the bar appears, so that short work shows none.
    unit : str
        Name of a part of the work.
    plain : bool
        Whether to draw text even if tqdm is installed: where no other code may run.
    """

    def __init__(
        self, shown: bool | None, total: int | None = None, stream: TextIO | None = None,
        delay: float = 0.0, unit: str = "step", plain: bool = False,
    ) -> None:  # fmt: skip
        self._stream = sys.stderr if stream is None else stream
        shown = _is_watched(self._stream) if shown is None else shown
        #: Whether anything is drawn.
        self.shown = shown and self._stream is not None
        self._total, self._unit, self._plain = total, unit, plain
        self._due = time.monotonic() + delay
        self._bar: Any = None
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._last:
            self._write(" " * len(self._last) + "\r")

    def show(self, done: float, text: str) -> None:
        """Show how much of the work is done, and a description of the current activity."""
        if not self.shown or time.monotonic() < self._due:
            return
        if self._bar is None and not self._last and not self._plain:
            self._bar = _new_bar(self._total, self._unit, self._stream)
        if self._bar is not None:
            self._bar.n = min(done, self._bar.total)
            self._bar.set_description_str(text, refresh=False)
            self._bar.refresh()
            return
        full = round(min(1.0, max(0.0, done / (self._total or 1))) * _WIDTH)
        count = "" if self._total is None else f", {self._unit} {done:,.0f} of {self._total:,}"
        line = f"[{'#' * full}{'.' * (_WIDTH - full)}] {text}{count}"[:100]
        if line != self._last:
            self._write(line + " " * (len(self._last) - len(line)) + "\r")
            self._last = line

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _new_bar(total: int | None, unit: str, stream: TextIO) -> Any:
    """Return a bar of tqdm, or None if it is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    if total is not None:
        return tqdm(total=total, unit=unit, file=stream, leave=False)
    bar_format = "{percentage:3.0f}%|{bar}| {desc}"
    return tqdm(total=1.0, file=stream, leave=False, bar_format=bar_format)
