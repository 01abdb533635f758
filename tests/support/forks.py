"""Forked children for tests: start them, wait for them, report where they hang."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
import warnings
from typing import TYPE_CHECKING

from support.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HANGS = -1
"""Status of a child that did not end."""


def start(function: Callable[[], object]) -> int:
    """Fork a child that calls `function` and exits with status 0, or prints its error."""
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork, on purpose
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:  # noqa: BLE001 - reported by the status
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return pid


def wait(pid: int) -> int:
    """Return the exit status; a child that hangs writes its stack to stderr and is killed."""
    status = _wait_for(pid, PATIENCE)
    if status is not None:
        return status
    os.write(2, f"the child {pid} did not end in {PATIENCE:.0f} s:\n".encode())
    os.kill(pid, signal.SIGUSR1)
    _wait_for(pid, 2)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    return HANGS


def _wait_for(pid: int, patience: float) -> int | None:
    deadline = time.monotonic() + patience
    pause = 0.0005
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.01, pause * 2)
    return None


def run(function: Callable[[], object]) -> int:
    """Fork, and wait for the status."""
    return wait(start(function))


@contextlib.contextmanager
def quick_switches(seconds: float = 2e-4) -> Iterator[None]:
    """Switch threads often, so that a fork can happen at more moments."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
