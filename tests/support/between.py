"""Runs code between two lines, like a finalizer or a signal handler does."""

from __future__ import annotations

import sys

from kernelrt.errors import GradientError, PlanBusyError
from kernelrt.native import graph_templates
from kernelrt.tensor import is_tracing

__all__ = ["Between"]


class Between:
    """Call `act` before line number `at` of the lines of code in files below the path `within`.

    The attribute `lines` counts those lines. If none ran, the end of the with block raises
    AssertionError, because a loop over the lines would test nothing.
    """

    def __init__(self, act, at, within):
        self.act, self.at, self.within = act, at, within
        self.lines, self.done = 0, False

    def __enter__(self):
        graph_templates.enable(False)  # code from templates cannot be interrupted
        self.before = sys.gettrace()
        sys.settrace(self.enter)
        return self

    def __exit__(self, kind, *_):
        sys.settrace(self.before)
        graph_templates.enable(True)
        assert self.lines or kind, f"the tracer counts no line below {self.within}"

    def enter(self, frame, *_):
        return self.line if frame.f_code.co_filename.startswith(self.within) else None

    def line(self, _frame, event, _argument):
        if event == "line" and not is_tracing():
            if self.lines == self.at:
                sys.settrace(None)
                try:
                    self.act()
                    self.done = True
                except (PlanBusyError, GradientError):
                    pass  # it reads memory that is being written, or was
                finally:
                    sys.settrace(self.enter)
            self.lines += 1
        return self.line
