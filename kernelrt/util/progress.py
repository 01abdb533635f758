"""Progress bars: bars of tqdm if it is installed, otherwise a line of text."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from kernelrt.errors import DTypeError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["DELAY", "INTERVAL", "Progress", "shown_option"]

#: Seconds after which a bar appears that the user did not ask for, so that short work shows none.
DELAY: Final = 2.0
#: Seconds between two updates of a bar, at least.
INTERVAL: Final = 0.05
_WIDTH: Final = 24
#: A forked child cannot use tqdm: a thread of its parent may hold tqdm's lock for ever.
_PROCESS: Final = os.getpid()


class _Thread(threading.local):
    #: The bar of the innermost work that this thread has begun: work within it shows none of its
    #: own. The reference is weak, so that a bar whose block an interrupt ended without its exit
    #: hides no later one.
    innermost: weakref.ref[Progress] | None = None


_thread = _Thread()


def shown_option(value: object) -> bool | None:
    """Check a `progress` argument and return it."""
    if value is not None and type(value) is not bool:
        raise DTypeError(f"progress: expected True, False or None, not {value!r}")
    return value


def _is_watched(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal or a notebook, where a user sees its text at once."""
    if stream is None:  # sys.stderr of a process without a console
        return False
    if "ipykernel" in sys.modules:
        return True
    try:
        return stream.isatty()
    except (AttributeError, OSError, ValueError):  # a stand-in without isatty, or a closed stream
        return False


class Progress:
    """A bar that is redrawn in place and erased at the end of the ``with`` block.

    A bar within the block of another one is not drawn. An error of the stream or of tqdm ends the
    bar, not the work.

    Parameters
    ----------
    shown : bool or None
        Whether to draw. None draws after DELAY seconds if `stream` is a terminal or the program is
        a notebook.
    total : int, optional
        Number of parts of the work. By default, progress is a fraction from 0 to 1.
    unit : str
        Name of a part of the work.
    stream : text file, optional
        Stream to write to; standard error by default.
    plain : bool
        Whether to draw text even if tqdm is installed. Pass True if this thread holds locks,
        because tqdm runs foreign code.
    """

    def __init__(
        self, shown: bool | None, total: int | None = None, unit: str = "step", *,
        stream: TextIO | None = None, plain: bool = False,
    ) -> None:  # fmt: skip
        self._stream = sys.stderr if stream is None else stream
        innermost = _thread.innermost
        self._outer = None if innermost is None else innermost()
        #: Whether anything is drawn.
        self.shown = (
            self._outer is None and self._stream is not None
            and (_is_watched(self._stream) if shown is None else shown)
        )  # fmt: skip
        self._total, self._unit, self._plain = total, unit, plain
        self._began = time.monotonic()
        self._due = self._began + (DELAY if shown is None else 0.0)
        self._bar: Any = None
        self._last = ""

    def __enter__(self) -> Self:
        _thread.innermost = weakref.ref(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _thread.innermost = None if self._outer is None else weakref.ref(self._outer)
        try:
            if self._bar is not None:
                self._bar.close()
            elif self._last:
                self._write(" " * len(self._last) + "\r")
        except Exception:  # noqa: BLE001 - as in show()
            self.shown = False

    def show(self, done: float, text: str) -> None:
        """Show how much of the work is done, and a description of the current activity."""
        if not self.shown or (now := time.monotonic()) < self._due:
            return
        self._due = now + INTERVAL
        try:
            self._draw(done, text)
        except Exception:  # noqa: BLE001 - a closed terminal, options of tqdm: the work goes on
            self.shown = False

    def _draw(self, done: float, text: str) -> None:
        if self._bar is None and not self._last and not self._plain:
            self._bar = _new_bar(self._total, self._unit, self._stream, self._began)
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


def _new_bar(total: int | None, unit: str, stream: TextIO, began: float) -> Any:
    """Return a bar of tqdm for work that began at `began`; None if tqdm is missing or broken."""
    if os.getpid() != _PROCESS:
        return None
    try:
        from tqdm.auto import tqdm

        if total is not None:
            bar = tqdm(total=total, unit=unit, file=stream, leave=False)
        else:
            bar_format = "{percentage:3.0f}%|{bar}| {desc}"
            bar = tqdm(total=1.0, file=stream, leave=False, bar_format=bar_format)
        bar.start_t -= time.monotonic() - began
    except Exception:  # noqa: BLE001 - whatever tqdm or its options do, the work goes on
        return None
    return bar
