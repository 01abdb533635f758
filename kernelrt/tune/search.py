"""Searches for faster variants of a plan's slowest kernels, by timing them in a copy of the plan.

Everything runs in a replica with its own state. The plan itself changes only at the end, when the
winners are installed in one step. Other threads may run the plan during the search. Variants
alternate from run to run, so that disturbances of the machine affect all of them equally.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kernelrt.device.registry import opened
from kernelrt.errors import CompileError, PlanBuildError, SpecError
from kernelrt.runtime.kernel_cache import build
from kernelrt.runtime.plan_ops import PreparedCustomFunction
from kernelrt.tune.report import KernelTuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kernelrt.device.buffer import Buffer
    from kernelrt.device.program import Variant
    from kernelrt.runtime import CachedKernel, ExecutionPlan, KernelProfile

    Measure = Callable[[ExecutionPlan], Sequence[KernelProfile]]
    Show = Callable[[float, str], None]

__all__ = ["Limits", "Outcome", "Search"]

_MOST_KERNELS: Final = 16
"""Maximum number of kernels of one plan to tune."""
_LEAST_SHARE: Final = 0.01
"""Minimum fraction of the plan's time that a kernel must take to be tuned."""
_SAMPLES: Final = (3, 4, 10)
"""Runs of each remaining variant, for each heat."""
_SLOWER: Final = (1.25, 1.08)
"""A heat drops variants whose least time exceeds the best one's by this factor."""
_MOST_FINALISTS: Final = 3
_LEAST_GAIN: Final = 0.97
"""A winner's median is at most this fraction of the median of the code that it replaces. The gain
must exceed the variation between runs of the same code. A judgement, not a measurement."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a search.

    Attributes
    ----------
    deadline : float
        Time at which to stop; `clock` returns the current time.
    clock : callable
        Clock in seconds.
    reordering : bool
        Whether variants may change the order of floating-point sums.
    variants : int
        Maximum number of variants of a kernel to time per round.
    """

    deadline: float
    clock: Callable[[], float]
    reordering: bool
    variants: int

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.clock() >= self.deadline


@dataclass(slots=True, eq=False)
class _Entry:
    """A variant of a kernel and its times."""

    kernel: CachedKernel
    keeps_bits: bool
    times: list[float] = field(default_factory=list)
    warm: bool = False

    @property
    def least(self) -> float:
        return min(self.times, default=float("inf"))

    @property
    def median(self) -> float:
        return statistics.median(self.times) if self.times else float("inf")


@dataclass(slots=True, eq=False)
class _Contest:
    """The variants of one kernel; the first is the one that the plan runs.

    `measured` holds two medians of the last complete round: of the first variant, and of the best.
    """

    title: str
    entries: list[_Entry]
    best: _Entry
    seen: set[str]
    in_plan: CachedKernel
    tried: int = 1
    open: bool = True
    measured: tuple[float, float] | None = None

    @property
    def held(self) -> _Entry:
        """The variant that the plan runs."""
        return self.entries[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a search.

    Attributes
    ----------
    rows : list of KernelTuning
        Results of the tuned kernels.
    winners : dict of CachedKernel to CachedKernel
        Replacement for each kernel to replace.
    before, after : float
        Median seconds of a run without and with the replacements; 0 if nothing was timed.
    """

    rows: list[KernelTuning]
    winners: dict[CachedKernel, CachedKernel]
    before: float
    after: float


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether some times are significantly less than others."""
    if min(len(one), len(other)) < _SAMPLES[0]:
        return False
    upper = statistics.quantiles(one, n=4, method="inclusive")[2]
    middle = statistics.median(other)
    return statistics.median(one) <= _LEAST_GAIN * middle and upper < middle and min(one) < min(
        other
    )


class Search:
    """A search for faster code of a plan's kernels.

    Parameters
    ----------
    plan : ExecutionPlan
        The plan; it is neither run nor changed.
    limits : Limits
        Time limit and allowed variants.
    measure : callable
        Runs a plan and returns the profile of its launches.
    show : callable
        Called with the elapsed fraction of the time and the current activity.
    inputs : iterable of (int, Buffer), optional
        Replacements of some buffers of the plan, by index.

    Raises
    ------
    PlanBuildError
        The plan calls custom functions, which every run would call.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        limits: Limits,
        measure: Measure,
        show: Show,
        inputs: Iterable[tuple[int, Buffer]] = (),
    ) -> None:
        functions = [op for op in plan.prepared_ops if isinstance(op, PreparedCustomFunction)]
        if functions:
            raise PlanBuildError(
                f"{functions[0].label}: a plan that calls custom functions cannot be tuned, "
                "because tuning runs the plan many times, and each run would call them; tune a "
                "plan without custom functions"
            )
        self._limits = limits
        self._measure = measure
        self._show = show
        self._twin = plan.replicate()
        for index, buffer in inputs:
            self._twin.rebind(index, buffer)
        self._began = limits.clock()
        self._saved = [(b, b.copyout()) for b in self._twin.state]
        self._contests: list[_Contest] = []
        self._span = 0.0

    def run(self) -> Outcome:
        """Search until nothing improves any more or the time is up."""
        if not self._limits.over:
            self._open()
        while not self._limits.over and any(c.open for c in self._contests):
            self._round()
        return self._settle()

    # ---- Variants to try

    def _open(self) -> None:
        """Find the slowest kernels."""
        self._tell("profiling")
        self._profile()  # the first run warms up
        profiles = self._profile()
        self._span = _span(profiles)
        launches: dict[CachedKernel, list[KernelProfile]] = {}
        for p in profiles:
            launches.setdefault(p.kernel, []).append(p)
        shares = {k: sum(p.elapsed for p in ps) for k, ps in launches.items() if k.variant}
        whole = sum(p.elapsed for p in profiles)
        heavy = sorted(shares, key=lambda k: -shares[k])[:_MOST_KERNELS]
        for kernel in heavy:
            if shares[kernel] >= _LEAST_SHARE * whole:
                entry = _Entry(kernel, self._keeps_bits(kernel))
                title = launches[kernel][0].title
                self._contests.append(
                    _Contest(title, [entry], entry, {kernel.variant}, kernel)
                )

    def _keeps_bits(self, kernel: CachedKernel) -> bool:
        """Return whether results are bitwise equal to those of the default variant."""
        renderer = opened(kernel.device).renderer
        assert renderer is not None
        return next(renderer.variants(kernel.ast, kernel.variant)).keeps_bits

    def _round(self) -> None:
        """Time variants similar to the best variant of each kernel."""
        for contest in self._contests:
            for entry in contest.entries:
                entry.times.clear()
            if contest.open and not self._limits.over:
                self._enter(contest)
        heats = zip(_SAMPLES, (*_SLOWER, None), strict=True)
        for samples, slower in heats:
            self._heat(samples)
            for contest in self._contests:
                _drop(contest, slower)
        for contest in self._contests:
            before = contest.best
            contest.best = _winner(contest)
            contest.open = contest.open and contest.best is not before
            if min(len(contest.held.times), len(contest.best.times)) >= _SAMPLES[0]:
                contest.measured = contest.held.median, contest.best.median

    def _enter(self, contest: _Contest) -> None:
        """Compile new variants of a kernel, up to the limit per round."""
        kernel = contest.best.kernel
        room = self._limits.variants
        for variant in self._new(contest):
            if room == 0 or self._limits.over:
                break
            self._tell(f"compiling {contest.title}")
            contest.seen.add(variant.text)
            try:
                [made] = build([(kernel.ast, variant.text)], kernel.device)
                self._twin.exchange({contest.in_plan: made})
            except (CompileError, SpecError):  # LLVM rejects some variants
                continue
            except PlanBuildError:  # needs an unaliased output
                continue
            contest.in_plan = made
            contest.entries.append(_Entry(made, variant.keeps_bits))
            contest.tried += 1
            room -= 1
        contest.open = room < self._limits.variants

    def _new(self, contest: _Contest) -> Iterator[Variant]:
        """Yield untried variants: the default one, then those similar to the best."""
        best = contest.best.kernel
        renderer = opened(best.device).renderer
        assert renderer is not None
        listed = itertools.chain(
            itertools.islice(renderer.variants(best.ast), 1),
            renderer.variants(best.ast, best.variant),
        )
        for variant in listed:
            allowed = variant.keeps_bits or self._limits.reordering
            if allowed and variant.text not in contest.seen:
                yield variant

    # ---- Running

    def _heat(self, samples: int) -> None:
        """Run every remaining variant `samples` times, alternating between them."""
        self._restore()
        turns = samples * max((len(c.entries) for c in self._contests), default=0)
        for turn in range(turns):
            if self._limits.over:
                return
            self._tell("timing")
            chosen = [(c, c.entries[turn % len(c.entries)]) for c in self._contests]
            self._put(chosen)
            if not all(entry.warm for _, entry in chosen):
                self._profile()
                for _, entry in chosen:
                    entry.warm = True
            taken: dict[CachedKernel, float] = {}
            for p in self._profile():
                taken[p.kernel] = taken.get(p.kernel, 0.0) + p.elapsed
            for _, entry in chosen:
                entry.times.append(taken[entry.kernel])

    def _put(self, chosen: Iterable[tuple[_Contest, _Entry]]) -> None:
        """Install these variants in the replica."""
        changes = {c.in_plan: e.kernel for c, e in chosen if c.in_plan is not e.kernel}
        if changes:
            self._twin.exchange(changes)
        for contest, entry in chosen:
            contest.in_plan = entry.kernel

    def _profile(self) -> Sequence[KernelProfile]:
        return self._measure(self._twin)

    def _restore(self) -> None:
        """Reset the replica to the plan's state."""
        for buffer, content in self._saved:
            buffer.raw()[...] = content

    def _tell(self, what: str) -> None:
        limits = self._limits
        whole = limits.deadline - self._began
        part = (limits.clock() - self._began) / whole if whole > 0 else 1.0
        self._show(part, what)

    # ---- Outcome

    def _settle(self) -> Outcome:
        """Verify the winners, alone and all together, and return the outcome."""
        self._check_bits()
        before, after = self._compare()
        rows = []
        winners = {}
        for contest in self._contests:
            held, best = contest.held, contest.best
            if contest.measured is None:
                continue
            if best is not held:
                winners[held.kernel] = best.kernel
            rows.append(
                KernelTuning(
                    name=held.kernel.entry_point,
                    title=contest.title,
                    before=contest.measured[0],
                    after=contest.measured[best is not held],
                    tiling=best.kernel.variant,
                    tried=contest.tried,
                    changed=best is not held,
                    keeps_bits=best.keeps_bits,
                )
            )
        return Outcome(rows, winners, before, after)

    def _check_bits(self) -> None:
        """Reject winners that change bits although they should not."""
        changed = [c for c in self._contests if c.best is not c.held]
        wanted = [c for c in changed if c.best.keeps_bits and c.held.keeps_bits]
        if not wanted:
            return
        self._put([(c, c.held) for c in self._contests])
        expected = self._results()
        for contest in wanted:
            self._put([(contest, contest.best)])
            if self._results() != expected:
                contest.best = contest.held
            self._put([(contest, contest.held)])

    def _results(self) -> list[bytes]:
        """Run once from the saved state; return the contents of state and outputs."""
        self._restore()
        self._profile()
        buffers = [*self._twin.state, *self._twin.output_buffers]
        return [b.copyout().tobytes() for b in buffers]

    def _compare(self) -> tuple[float, float]:
        """Return median seconds of whole runs with the plan's own code and with the winners.

        If the winners together are not faster, all are rejected, even if each was faster alone.
        """
        changed = [c for c in self._contests if c.best is not c.held]
        if not changed:
            return self._span, self._span
        held = [(c, c.held) for c in self._contests]
        best = [(c, c.best) for c in self._contests]
        spans: tuple[list[float], list[float]] = ([], [])
        self._restore()
        while len(spans[0]) < _SAMPLES[-1]:
            for chosen, found in zip((held, best), spans, strict=True):
                self._put(chosen)
                found.append(_span(self._profile()))
            if self._limits.over and len(spans[0]) >= _SAMPLES[0]:
                break
        before, after = map(statistics.median, spans)
        if after <= before or min(spans[1]) <= min(spans[0]):
            return before, after
        for contest in changed:
            contest.best = contest.held
        return before, before


def _span(profiles: Sequence[KernelProfile]) -> float:
    """Return the seconds from the start to the end of a run."""
    return max((p.start + p.elapsed for p in profiles), default=0.0)


def _drop(contest: _Contest, slower: float | None) -> None:
    """Drop slow variants after a heat; keep the variant of the plan and the best so far."""
    least = min(entry.least for entry in contest.entries)
    kept = [
        e
        for e in contest.entries
        if e in (contest.held, contest.best) or slower is None or e.least <= slower * least
    ]
    if slower is not None and len(kept) > _MOST_FINALISTS and slower == _SLOWER[-1]:
        fastest = sorted(kept, key=lambda e: e.median)[:_MOST_FINALISTS]
        kept = [e for e in kept if e in fastest or e in (contest.held, contest.best)]
    contest.entries = kept


def _winner(contest: _Contest) -> _Entry:
    """Return the fastest entry if it beats the best so far and the plan's; else the best so far."""
    fastest = min(contest.entries, key=lambda e: e.median)
    if fastest is contest.best or not beats(fastest.times, contest.best.times):
        return contest.best
    gains = fastest is contest.held or beats(fastest.times, contest.held.times)
    return fastest if gains else contest.best
