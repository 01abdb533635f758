"""Autotuning: times other variants of a plan's kernels and installs the fastest."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any

from kernelrt.errors import DomainError, DTypeError, JitError, PlanBuildError, PlanReleasedError
from kernelrt.jit import JitFunction
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.tune.report import KernelTuning, TuningReport
from kernelrt.util.lazy_import import load
from kernelrt.util.progress import Progress, shown_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.runtime import CachedKernel, ExecutionPlan, KernelProfile

__all__ = ["KernelTuning", "TuningReport", "autotune"]


def autotune(
    target: ExecutionPlan | JitFunction[Any],
    /,
    *args: Any,
    budget_seconds: float = 10.0,
    allow_reordering: bool = False,
    keep: bool = True,
    progress: bool | None = None,
) -> TuningReport:
    """Time variants of the slowest kernels of a plan and install the fastest ones.

    The plan, or the jitted function, uses the faster code at once. Its state and inputs are not
    touched: autotuning runs a copy of the plan with its own state.

    Parameters
    ----------
    target : ExecutionPlan or JitFunction
        Plan to tune, or jitted function. All plans of a jitted function are tuned.
    *args
        Arguments of a jitted function. Only the plan for these arguments is tuned, and it runs on
        them; it is made if there is none. Without `args`, plans run on random numbers for
        floating-point arguments, and on zeros for integer arguments.
    budget_seconds : float
        Time limit in seconds. Work that has begun at its end is finished, which takes some more
        runs of the plan.
    allow_reordering : bool
        Whether to allow other summation orders of floating-point sums. Results may then differ in
        the last bits; otherwise they are bitwise equal.
    keep : bool
        Whether to store the results for plans that are made later, also in later processes on the
        same processor with the same number of threads. If the environment variable
        ``KERNELRT_TUNED`` is 0, plans use no stored results. Plans use code with another summation
        order only if it is ``any``.
    progress : bool, optional
        Whether to show a progress bar on standard error, tqdm's if it is installed. By default the
        bar appears only on a terminal or in a notebook.

    Returns
    -------
    TuningReport
        Time of each kernel before and after. ``print`` shows it as a table.

    Raises
    ------
    DTypeError
        `target` is neither a plan nor a jitted function, or an argument has the wrong type.
    DomainError
        `budget_seconds` is negative or NaN.
    JitError
        A jitted function has no plan and no arguments are given; or it is being traced.
    PlanBuildError
        The plan calls custom functions.
    PlanReleasedError
        The plan was released.
    IndexBoundsError
        The generated arguments are invalid indices; pass arguments.

    Examples
    --------
    >>> import numpy as np, kernelrt as krt
    >>> @krt.jit
    ... def product(x, w):
    ...     return (x @ w).relu()
    >>> x, w = np.ones((64, 96), np.float32), np.ones((96, 32), np.float32)
    >>> report = krt.autotune(product, x, w, budget_seconds=0.2, keep=False)
    >>> report.plans, report.gain > 0
    (1, True)
    >>> print(report)
    kernel ...
    1 plan: ...
    """
    # Imported here, so that the runtime is loaded only when there is a plan.
    from kernelrt.runtime import ExecutionPlan

    forbid("autotune()")
    budget = _budget(budget_seconds)
    for name, value in (("allow_reordering", allow_reordering), ("keep", keep)):
        if type(value) is not bool:
            raise DTypeError(f"{name}: expected True or False, not {value!r}")
    shown = shown_option(progress)
    if isinstance(target, ExecutionPlan):
        if args:
            raise DTypeError(
                f"args: expected none, not {len(args)}, because target is a plan, and only jitted "
                "functions take arguments; leave them out"
            )
        targets = [_Target(target)]
    elif isinstance(target, JitFunction):
        targets = _of_function(target, args)
    else:
        raise DTypeError(
            f"target: expected an ExecutionPlan or a jitted function, not {type(target).__name__}"
        )
    return _Tuning(targets, budget, allow_reordering, keep, shown).run()


def _budget(seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise DTypeError(f"budget_seconds: expected a number of seconds, not {seconds!r}")
    if not seconds >= 0:
        raise DomainError(f"budget_seconds: expected at least 0, not {seconds!r}")
    return float(seconds)


class _Target:
    """A plan and its buffers for arguments that were not given.

    Parameters
    ----------
    plan : ExecutionPlan
        Plan to tune.
    unknown : sequence of int
        Indices of those buffers.
    """

    def __init__(self, plan: ExecutionPlan, unknown: Sequence[int] = ()) -> None:
        self.plan = plan
        self.unknown = unknown

    def inputs(self) -> list[tuple[int, Buffer]]:
        """Return buffers with generated values for the missing arguments."""
        import numpy as np

        from kernelrt.device.buffer import Buffer

        load("numpy.random")
        rng = np.random.default_rng(0)
        found = []
        for index in self.unknown:
            before = self.plan.buffers[index]
            buffer = Buffer(before.size, before.dtype, before.device)
            raw = buffer.raw()
            raw[...] = 0
            if before.dtype.is_float and raw.dtype.kind == "f":
                raw[...] = rng.uniform(0.25, 1.0, before.size)
            elif before.dtype.is_float:  # bfloat16 as its bits: numbers from 0.5 to 1
                raw[...] = rng.integers(0x3F00, 0x3F80, before.size)
            found.append((index, buffer))
        return found


def _of_function(function: JitFunction[Any], args: tuple[Any, ...]) -> list[_Target]:
    if args:
        return [_Target(function.plan(*args))]
    found = function.tunable()
    if not found:
        raise JitError(
            f"{function!r} has no plan yet; call the function first, or pass arguments to autotune"
        )
    return [_Target(plan, homes) for plan, homes in found]


class _Tuning:
    """The tuning of several plans, one after the other.

    Parameters
    ----------
    targets : list of _Target
        The plans.
    budget : float
        Seconds for all of them.
    reordering, keep, progress
        See :func:`autotune`.
    variants : int
        Maximum number of variants of a kernel to time per round.
    clock, measure : callable
        `clock` returns the time in seconds. `measure` runs a plan and returns the profile of its
        launches.
    """

    def __init__(
        self,
        targets: list[_Target],
        budget: float,
        reordering: bool,
        keep: bool,
        progress: bool | None,
        *,
        variants: int = 8,
        clock: Callable[[], float] = monotonic,
        measure: Callable[[ExecutionPlan], Sequence[KernelProfile]] | None = None,
    ) -> None:
        self._targets = targets
        self._budget = budget
        self._reordering = reordering
        self._keep = keep
        self._progress = progress
        self._variants = variants
        self._clock = clock
        self._measure = measure or _profiled
        self._winners: dict[CachedKernel, CachedKernel] = {}

    def run(self) -> TuningReport:
        """Tune all plans."""
        began = self._clock()
        rows: list[KernelTuning] = []
        before = after = 0.0
        with Progress(self._progress) as progress:
            for number, target in enumerate(self._targets):
                now = self._clock()
                left = max(0.0, began + self._budget - now) / (len(self._targets) - number)
                found = self._tune(target, now + left, progress.show)
                rows += found.rows
                before += found.before
                after += found.after
        rows.sort(key=lambda row: -row.before)
        seconds = self._clock() - began
        return TuningReport(tuple(rows), before, after, seconds, len(self._targets))

    def _tune(self, target: _Target, deadline: float, show: Callable[[float, str], None]) -> Any:
        from kernelrt.errors import DomainError, IndexBoundsError
        from kernelrt.tune.search import Limits, Outcome, Search

        plan = target.plan
        if plan.released:
            raise PlanReleasedError("target: the plan was released; prepare it again")
        known = {k: w for k in plan.kernels if (w := self._winners.get(k)) is not None}
        with contextlib.suppress(PlanBuildError):  # shared memory may rule the code out
            plan.exchange(known)
        limits = Limits(deadline, self._clock, self._reordering, self._variants)
        if limits.over:
            return Outcome([], {}, 0.0, 0.0)
        try:
            found = Search(plan, limits, self._measure, show, target.inputs()).run()
        except (IndexBoundsError, DomainError) as error:
            if target.unknown:
                error.add_note("pass arguments to autotune: without them all integers are 0")
            raise
        plan.exchange(found.winners)
        self._winners |= found.winners
        if self._keep:
            bits = {row.tiling: row.keeps_bits for row in found.rows}
            for kernel in found.winners.values():
                _remember(kernel, keeps_bits=bits[kernel.variant])
        return found


def _profiled(plan: ExecutionPlan) -> Sequence[KernelProfile]:
    return plan.execute_profiled()


def _remember(kernel: CachedKernel, *, keeps_bits: bool) -> None:
    """Store `kernel` for plans that are made later."""
    from kernelrt.device.registry import opened
    from kernelrt.ir.fingerprint import fingerprint
    from kernelrt.runtime import kernels

    tuned = opened(kernel.device).tuned
    if tuned is None:
        return
    name = fingerprint(kernel.ast)
    tuned.keep(name, kernel.variant, keeps_bits=keeps_bits)
    if tuned.find(name) == kernel.variant:
        kernels.put(kernel)
