"""``kernelrt view``: runs a script and draws the plans of its jitted functions."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TextIO, cast

from kernelrt.errors import JitError
from kernelrt.jit import JitFunction
from kernelrt.util.atomic_file import destination, encodable
from kernelrt.viewer import PlanView, live_plans
from kernelrt.viewer.collect import collect

__all__ = ["run"]

#: Maximum number of plans on the page; those with most ops are kept.
_MOST_PLANS: Final = 8


def run(script: str, arguments: list[str], output: str) -> int:
    """Run a script as ``__main__``, and write the page of its plans.

    Parameters
    ----------
    script : str
        Path of the script.
    arguments : list of str
        The rest of ``sys.argv``.
    output : str
        Path of the page.

    Returns
    -------
    int
        Exit status: 0, or 1 if the script failed. Then its traceback is on standard error. A child
        process that the script forked returns 0 and writes no page.

    Raises
    ------
    JitError
        The script called no jitted function.
    PlanReleasedError
        The script released all plans.
    """
    target = Path.cwd() / destination(output)  # the script may change the folder
    process = os.getpid()
    made: list[JitFunction[Any]] = []
    before, JitFunction.made = JitFunction.made, made
    try:
        failure = _run_script(script, arguments)
    except SystemExit as ended:
        if ended.code not in (None, 0) or os.getpid() != process:
            raise
        failure = None
    finally:
        JitFunction.made = before
    if failure is not None:
        traceback.print_exception(failure)
        return 1
    if os.getpid() != process:
        return 0
    shown = _page(made)
    shown.save(target)
    count = len(shown.records)
    plans = "1 plan" if count == 1 else f"{count} plans"
    print(encodable(f"{output}: {plans} of {script}, {len(shown.html) / 1e3:.0f} KB"))
    return 0


def _run_script(script: str, arguments: list[str]) -> Exception | None:
    """Run a script as ``__main__``; return the exception that it raised.

    Afterwards ``sys.argv``, ``sys.path`` and the standard streams are as before, even if the script
    clears ``sys.path`` or closes the output.
    """
    file = str(Path.cwd() / script)
    with io.open_code(file) as source:
        text = source.read()
    main = ModuleType("__main__")
    main.__file__ = file
    before = {name: getattr(sys, name) for name in ("argv", "path", "stdout", "stderr")}
    known = sys.modules["__main__"]
    sys.argv = [script, *arguments]
    sys.path = [str(Path(file).resolve().parent), *sys.path[1:]]
    sys.modules["__main__"] = main
    try:
        exec(compile(text, file, "exec", dont_inherit=True), main.__dict__)  # noqa: S102
    except Exception as error:  # noqa: BLE001
        frames = error.__traceback__
        return error.with_traceback(frames and frames.tb_next)  # without this function
    finally:
        sys.argv, sys.path = before["argv"], before["path"]
        sys.stdout = _usable(before["stdout"], sys.stdout)
        sys.stderr = _usable(before["stderr"], sys.stderr)
        sys.modules["__main__"] = known
    return None


def _usable(*streams: Any) -> TextIO:
    """Return the first of the streams that is open, or else a stream that discards text."""
    for stream in streams:
        with contextlib.suppress(AttributeError, ValueError):  # None, or it was detached
            if not stream.closed:
                return cast("TextIO", stream)
    return Path(os.devnull).open("w", encoding="utf-8")


def _page(made: list[JitFunction[Any]]) -> PlanView:
    plans = live_plans(made)
    if not plans:
        raise JitError(
            "the script called no jitted function, so there is no plan to draw; put krt.jit around "
            "a function that the script calls"
        )
    kept = sorted(plans, key=lambda item: -len(item[1].prepared_ops))[:_MOST_PLANS]
    return PlanView([collect(plan, name) for name, plan in plans if (name, plan) in kept])
