"""Results of a profiled run, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelrt.ir.origin import Origin, summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelrt.runtime.kernel import CachedKernel

__all__ = ["ClaimProfile", "KernelProfile", "table", "total"]


@dataclass(frozen=True, slots=True)
class ClaimProfile:
    """Consecutive chunks of a launch that one thread ran without a pause.

    Attributes
    ----------
    begin, end : int
        Range of the chunks; for a launch in a pipeline, range of the slices.
    worker : int
        Thread that ran them; 0 is the calling thread.
    start : float
        Seconds from the start of the run to the start of the first of these chunks.
    elapsed : float
        Seconds that they took.

    Examples
    --------
    A launch of chunks that several threads ran has several of them, others none:

    >>> [profile] = krt.jit(lambda x: x * 2).profile(np.ones(3, np.float32))
    >>> profile.chunks, profile.claims
    (1, ())
    """

    begin: int
    end: int
    worker: int
    start: float
    elapsed: float


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One launch of a kernel in a profiled run.

    Attributes
    ----------
    kernel : CachedKernel
        Kernel that ran.
    device : str
        Device that it ran on.
    num_buffers : int
        Number of buffers that it was given.
    elapsed : float
        Seconds from the start to the end of the launch.
    start : float
        Seconds from the start of the run to the start of the earliest claim of the launch.
    flops, bytes : int
        Estimated operations, and bytes read and written, for the sizes of this run.
    chunks : int
        Number of calls into which the launch was split.
    op : int
        Id of the op.
    worker : int
        Thread that ran the claim with the earliest start; 0 is the calling thread.
    origins : tuple of Origin
        User code lines and layers that the launch computes, producers first.
    expected : float
        Seconds that the cost model predicts for one core; see :mod:`kernelrt.device.costs`. 0 if
        nothing is known about the kernel.
    runs : int
        Number of launches; more than one in a loop. `elapsed`, `flops`, `bytes` and `expected` are
        totals of all launches.
    region : int or None
        Id of the plan's loop or choice in which the kernel ran; None outside of one.
    claims : tuple of ClaimProfile
        Which thread ran which chunks, in order of the chunks. Empty for a launch in a loop or
        choice, and in a part of the plan that ran on the calling thread alone.

    Examples
    --------
    >>> [profile] = krt.jit(lambda x: x * 2).profile(np.ones(3, np.float32))
    >>> profile.num_buffers, profile.flops, profile.bytes, profile.chunks
    (2, 3, 24, 1)
    >>> profile.elapsed > 0, profile.title.startswith("mul")
    (True, True)
    """

    kernel: CachedKernel
    device: str
    num_buffers: int
    elapsed: float
    start: float
    flops: int
    bytes: int
    chunks: int
    op: int
    worker: int = 0
    origins: tuple[Origin, ...] = ()
    expected: float = 0.0
    runs: int = 1
    region: int | None = None
    claims: tuple[ClaimProfile, ...] = ()

    @property
    def title(self) -> str:
        """Layers, operations and lines that the launch computes; if unknown, its entry point."""
        return summary(self.origins) or self.kernel.entry_point

    @property
    def gflops(self) -> float:
        """Operations per nanosecond (GFLOP/s)."""
        return self.flops / self.elapsed / 1e9 if self.elapsed > 0 else 0.0

    @property
    def gbytes(self) -> float:
        """Bytes per nanosecond (GB/s)."""
        return self.bytes / self.elapsed / 1e9 if self.elapsed > 0 else 0.0


@dataclass(slots=True)
class _Row:
    origins: dict[Origin, None] = field(default_factory=dict)
    calls: int = 0
    elapsed: float = 0.0
    flops: int = 0
    bytes: int = 0


def total(profiles: Iterable[KernelProfile]) -> float:
    """Return the total time of `profiles`, in seconds.

    Parameters
    ----------
    profiles : iterable of KernelProfile
        Profiles of any number of runs.

    Returns
    -------
    float
        Sum of their times. Kernels that ran at the same time count separately.

    Examples
    --------
    >>> from kernelrt.runtime import profiler
    >>> profiles = krt.jit(lambda x: x * 2).profile(np.ones(3, np.float32))
    >>> profiler.total(profiles) == profiles[0].elapsed
    True
    """
    return sum(p.elapsed for p in profiles)


def table(profiles: Iterable[KernelProfile], *, limit: int | None = None) -> str:
    """Format profiles of one or more runs as a table, the most expensive kernel first.

    Parameters
    ----------
    profiles : iterable of KernelProfile
        Profiles from ``execute_profiled`` or ``plan.profile``, of any number of runs.
    limit : int, optional
        Maximum number of kernels to show. The last row is the sum of the others.

    Returns
    -------
    str
        Lines with the number of calls, the time, its share, GFLOP/s and GB/s of each kernel.

    Examples
    --------
    >>> from kernelrt.runtime import profiler
    >>> print(profiler.table(krt.jit(lambda x: x * 2).profile(np.ones(3, np.float32))))
    kernel ...
    mul ...
    total ...
    """
    profiles = list(profiles)
    rows: dict[str, _Row] = {}
    for profile in profiles:
        row = rows.setdefault(profile.kernel.entry_point, _Row())
        row.origins |= dict.fromkeys(profile.origins)
        row.calls += profile.runs
        row.elapsed += profile.elapsed
        row.flops += profile.flops
        row.bytes += profile.bytes
    titled = [(summary(row.origins) or name, row) for name, row in rows.items()]
    ordered = sorted(titled, key=lambda item: -item[1].elapsed)
    if limit is not None and len(ordered) > limit:
        rest = _Row()
        for _, row in ordered[limit:]:
            rest.calls += row.calls
            rest.elapsed += row.elapsed
            rest.flops += row.flops
            rest.bytes += row.bytes
        ordered = [*ordered[:limit], (f"({len(ordered) - limit} more)", rest)]
    whole = total(profiles) or 1.0
    width = max([len("kernel"), *(len(name) for name, _ in ordered)])
    lines = [f"{'kernel':<{width}}  {'calls':>7}  {'time':>10}  share  GFLOP/s    GB/s"]
    for name, row in ordered:
        seconds = row.elapsed or float("inf")
        lines.append(
            f"{name:<{width}}  {row.calls:>7}  {_time(row.elapsed):>10}  "
            f"{row.elapsed / whole:>5.1%}  {row.flops / seconds / 1e9:>7.1f}  "
            f"{row.bytes / seconds / 1e9:>6.1f}"
        )
    calls = sum(p.runs for p in profiles)
    lines.append(f"{'total':<{width}}  {calls:>7}  {_time(total(profiles)):>10}")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
