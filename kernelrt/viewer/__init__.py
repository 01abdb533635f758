"""Pictures of plans: one HTML page that needs no network."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from kernelrt.errors import DTypeError, JitError, PlanReleasedError
from kernelrt.jit import JitFunction
from kernelrt.runtime import ExecutionPlan
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.util.atomic_file import destination, write_text
from kernelrt.viewer.collect import PlanRecord, collect
from kernelrt.viewer.page import page
from kernelrt.viewer.peaks import peaks

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["PlanView", "view"]


class PlanView:
    """The page of one or several plans, as :func:`view` returns it.

    Notebooks show it in place.

    Attributes
    ----------
    records : tuple of PlanRecord
        The measurements that the page shows, one record for each plan.
    html : str
        The page.

    Examples
    --------
    >>> page = krt.view(krt.jit(lambda x: x.exp()), krt.ones(1000))
    >>> len(page.records), "</html>" in page.html
    (1, True)
    """

    def __init__(self, records: Sequence[PlanRecord]) -> None:
        self.records = tuple(records)
        self.html = page(self.records, [peaks(record.threads) for record in self.records])

    def __repr__(self) -> str:
        names = ", ".join(record.name for record in self.records)
        return f"<PlanView of {names}: {len(self.html) / 1e3:.0f} KB>"

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its styles do not change the notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:720px;'
            'border:1px solid #ccc"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, atomically; return its path.

        Parameters
        ----------
        path : str or path
            File to write; an existing one is replaced.
        """
        return write_text(path, self.html)


def view(
    target: ExecutionPlan | JitFunction[Any] | Sequence[ExecutionPlan | JitFunction[Any]],
    /,
    *args: Any,
    path: str | os.PathLike[str] | None = None,
) -> PlanView:
    """Measure plans and draw them as one HTML page.

    The page shows the graph of kernels, a timeline of a run, the roofline of this machine, the
    memory of intermediates, and the share of the time that each line of source takes. It also shows
    the loops and the assembly of kernels, and the reasons of the scheduler's choices. The page
    needs no network.

    A copy of the plan runs for about a tenth of a second, and at least five times; the state of the
    plan does not change. Functions
    of :func:`kernelrt.call` in the plan are called in each run.

    Parameters
    ----------
    target : ExecutionPlan, JitFunction, or a sequence of these
        Plan to show, or jitted function. All plans of a jitted function are shown. A table compares
        several plans.
    *args
        Arguments of a jitted function. Only the plan for these arguments is shown; it is made if
        there is none.
    path : path, optional
        File to write the page to.

    Returns
    -------
    PlanView
        The page. Notebooks show it, and ``save(path)`` writes it.

    Raises
    ------
    DTypeError
        `target` is neither a plan nor a jitted function, arguments come with a plan, or `path` is
        no path.
    StateError
        `path` is not the name of a file.
    JitError
        A jitted function has no plan and no arguments are given; or a function is being traced.
    PlanReleasedError
        The plan was released, or all plans of a jitted function were.

    Examples
    --------
    >>> import kernelrt as krt
    >>> twice = krt.jit(lambda x: (x * 2).sum())
    >>> page = krt.view(twice, krt.ones(1000))
    >>> page.html.startswith("<!doctype html>")
    True
    """
    forbid("view()")
    several = isinstance(target, list | tuple)
    targets: Sequence[Any] = target if isinstance(target, list | tuple) else [target]
    if args and (several or not isinstance(target, JitFunction)):
        raise DTypeError(
            f"args: expected none, not {len(args)}, because view takes arguments only for a single "
            "jitted function; leave them out"
        )
    if path is not None:
        destination(path)
    found = [named for each in targets for named in _plans(each, args)]
    if not found:
        raise DTypeError(
            "target: expected at least one plan or jitted function, not an empty sequence"
        )
    shown = PlanView([collect(plan, name) for name, plan in found])
    if path is not None:
        shown.save(path)
    return shown


def _plans(target: object, args: tuple[Any, ...]) -> list[tuple[str, ExecutionPlan]]:
    if isinstance(target, ExecutionPlan):
        if target.released:
            raise PlanReleasedError("target: the plan was released; prepare it again")
        return [("plan", target)]
    if not isinstance(target, JitFunction):
        raise DTypeError(
            f"target: expected an ExecutionPlan or a jitted function, not {type(target).__name__}"
        )
    if args:
        return [(target.name, target.plan(*args))]
    if not target.plans:
        raise JitError(
            f"{target.name} has no plan yet; call the function first, or pass arguments, as in "
            "view(f, *args)"
        )
    return live_plans([target])


def live_plans(functions: Iterable[JitFunction[Any]]) -> list[tuple[str, ExecutionPlan]]:
    """Return the plans that were not released, with the names of their functions.

    Raises
    ------
    PlanReleasedError
        There are plans, and all of them were released.
    """
    plans = [(function.name, plan) for function in functions for plan in function.plans]
    live = [(name, plan) for name, plan in plans if not plan.released]
    if plans and not live:
        names = ", ".join(dict.fromkeys(name for name, _ in plans))
        raise PlanReleasedError(
            f"all plans of {names} were released, so none can be measured; call the function's "
            "clear(), then the function"
        )
    return live
