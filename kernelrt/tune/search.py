"""Finds faster variants of a plan's heaviest kernels by timing them in a copy of the plan.

Everything runs in a replica, which has state of its own: whatever happens, the plan is as it was
until the winners are put into it in one turn, and other threads may run it meanwhile. Variants take
turns from run to run, so that what disturbs the machine disturbs all of them alike.
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
"""Kernels of one plan that are tried."""
_LEAST_SHARE: Final = 0.01
"""Part of the plan's time below which a kernel is left as it is."""
_SAMPLES: Final = (3, 4, 10)
"""Runs of each variant that is still in, in each heat."""
_SLOWER: Final = (1.25, 1.08)
"""After a heat goes whose least time is so many times the best one's."""
_MOST_FINALISTS: Final = 3
_LEAST_GAIN: Final = 0.97
"""A winner's median is at most this part of the median of what it replaces, which must be beyond
what repeated runs of the same code differ by. A judgement, not a measurement."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search goes.

    Attributes
    ----------
    deadline : float
        When to stop, by `clock`.
    clock : callable
        The time, in seconds.
    reordering : bool
        Whether variants may change the order of floating-point sums.
    variants : int
        The most to time of each kernel in each round.
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
    """One way to write a kernel, and what it took in each run."""

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
    """The variants of one kernel; the first of them is what the plan runs.

    `measured` are the medians of that one and of the best, of the last round that got so far.
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
        """What the plan runs."""
        return self.entries[0]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search came to.

    Attributes
    ----------
    rows : list of KernelTuning
        The kernels that were tried.
    winners : dict of CachedKernel to CachedKernel
        What to put in the place of what.
    before, after : float
        Median seconds of a run with the one and with the other; 0 where none was timed.
    """

    rows: list[KernelTuning]
    winners: dict[CachedKernel, CachedKernel]
    before: float
    after: float


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether times are less than others beyond what chance makes of them."""
    if min(len(one), len(other)) < _SAMPLES[0]:
        return False
    upper = statistics.quantiles(one, n=4, method="inclusive")[2]
    middle = statistics.median(other)
    return statistics.median(one) <= _LEAST_GAIN * middle and upper < middle and min(one) < min(
        other
    )


class Search:
    """One search for faster code of a plan's kernels.

    Parameters
    ----------
    plan : ExecutionPlan
        The plan. It is not run, and nothing of it is changed.
    limits : Limits
        When to stop and what to try.
    measure : callable
        Runs a plan; gives what each launch took.
    show : callable
        Is told what part of the time is gone, and what is going on.
    inputs : mapping of int to Buffer, optional
        Other buffers for some of the plan's, by index.

    Raises
    ------
    PlanBuildError
        The plan calls custom functions, which would be called at every run.
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
                f"{functions[0].label}: a plan that calls custom functions cannot be tuned, as "
                "each of many runs would call them; tune a plan of its kernels alone"
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
        """Look for winners until nothing is gained any more, or the time is up."""
        if not self._limits.over:
            self._open()
        while not self._limits.over and any(c.open for c in self._contests):
            self._round()
        return self._settle()

    # ---- What is tried

    def _open(self) -> None:
        """Find the heavy kernels."""
        self._tell("profiling")
        self._profile()  # what a first run meets is no measure
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
        """Whether what a kernel computes has the bits of the renderer's own choice."""
        renderer = opened(kernel.device).renderer
        assert renderer is not None
        return next(renderer.variants(kernel.ast, kernel.variant)).keeps_bits

    def _round(self) -> None:
        """Time some variants of each kernel that are like its best one."""
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
        """Compile new variants of a kernel, some at a time."""
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
            except (CompileError, SpecError):  # LLVM has its own opinion of some
                continue
            except PlanBuildError:  # it wants an output to itself that shares memory here
                continue
            contest.in_plan = made
            contest.entries.append(_Entry(made, variant.keeps_bits))
            contest.tried += 1
            room -= 1
        contest.open = room < self._limits.variants

    def _new(self, contest: _Contest) -> Iterator[Variant]:
        """Variants that were not tried: the renderer's own choice, then those like the best."""
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
        """Let every variant that is in run `samples` times, in turns."""
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
        """Let the replica run these variants."""
        changes = {c.in_plan: e.kernel for c, e in chosen if c.in_plan is not e.kernel}
        if changes:
            self._twin.exchange(changes)
        for contest, entry in chosen:
            contest.in_plan = entry.kernel

    def _profile(self) -> Sequence[KernelProfile]:
        return self._measure(self._twin)

    def _restore(self) -> None:
        """Give the replica the state that the plan had."""
        for buffer, content in self._saved:
            buffer.raw()[...] = content

    def _tell(self, what: str) -> None:
        limits = self._limits
        whole = limits.deadline - self._began
        part = (limits.clock() - self._began) / whole if whole > 0 else 1.0
        self._show(part, what)

    # ---- What came of it

    def _settle(self) -> Outcome:
        """Check the winners, and that they gain where they are all together."""
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
        """Take back winners that give other bits than what the plan runs, and should not."""
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
        """What one run from the saved state leaves in memory that outlives it."""
        self._restore()
        self._profile()
        buffers = [*self._twin.state, *self._twin.output_buffers]
        return [b.copyout().tobytes() for b in buffers]

    def _compare(self) -> tuple[float, float]:
        """Median seconds of whole runs with what the plan has, and with the winners.

        What each gains alone and all lose together is taken back.
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
    """Seconds from the start of a run to its end."""
    return max((p.start + p.elapsed for p in profiles), default=0.0)


def _drop(contest: _Contest, slower: float | None) -> None:
    """Let go of what is behind after a heat; what the plan runs, and the best so far, stay."""
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
    """The fastest of the entries, if it is faster than the best so far and what the plan runs."""
    fastest = min(contest.entries, key=lambda e: e.median)
    if fastest is contest.best or not beats(fastest.times, contest.best.times):
        return contest.best
    gains = fastest is contest.held or beats(fastest.times, contest.held.times)
    return fastest if gains else contest.best
