"""``kernelrt view``: runs a script and draws the plans of its jitted functions."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from kernelrt.errors import JitError
from kernelrt.jit import JitFunction
from kernelrt.viewer import PlanView
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
        0, or 1 if the script failed; its traceback is on standard error then.

    Raises
    ------
    JitError
        The script called no jitted function.
    """
    before, path = sys.argv, sys.path[0]
    made: list[JitFunction[Any]] = []
    JitFunction.made = made
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    except Exception:
        if not Path(script).is_file():
            raise
        traceback.print_exc()  # the script failed, not this command
        return 1
    finally:
        sys.argv, sys.path[0] = before, path
        JitFunction.made = None
    shown = _page(made)
    shown.save(output)
    count = len(shown.records)
    plans = "1 plan" if count == 1 else f"{count} plans"
    print(f"{output}: {plans} of {script}, {len(shown.html) / 1e3:.0f} KB")
    return 0


def _page(made: list[JitFunction[Any]]) -> PlanView:
    plans = [(f.name, plan) for f in made for plan in f.plans]
    if not plans:
        raise JitError("the script called no jitted function, so there is no plan to draw")
    kept = sorted(plans, key=lambda item: -len(item[1].prepared_ops))[:_MOST_PLANS]
    return PlanView([collect(plan, name) for name, plan in plans if (name, plan) in kept])
