"""The result of autotuning, and its table."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KernelTuning", "TuningReport"]


@dataclass(frozen=True, slots=True)
class KernelTuning:
    """The tuning result of one kernel.

    Attributes
    ----------
    name : str
        Entry point of the kernel.
    title : str
        Readable description: layers, operations and the user's lines.
    before, after : float
        Median seconds of the kernel's launches in one run of the plan, with the original code and
        with the best variant.
    tiling : str
        Tiling of the best variant: for each RANGE, by number, the elements of an iteration and how
        many of them are vector lanes.
    tried : int
        Number of timed variants, including the plan's own.
    changed : bool
        Whether the plan now runs other code.
    keeps_bits : bool
        Whether results are bitwise equal to those of the code generator's default variant.

    Examples
    --------
    >>> from kernelrt.tune import KernelTuning
    >>> found = KernelTuning("k0", "exp", 3e-3, 1e-3, "0:8", tried=12, changed=True)
    >>> round(found.gain, 2)
    3.0
    """

    name: str
    title: str
    before: float
    after: float
    tiling: str
    tried: int
    changed: bool
    keeps_bits: bool = True

    @property
    def gain(self) -> float:
        """The speedup factor."""
        return self.before / self.after if self.changed and self.after > 0 else 1.0


@dataclass(frozen=True, slots=True, repr=False)
class TuningReport:
    """The result of :func:`kernelrt.autotune`.

    Attributes
    ----------
    kernels : tuple of KernelTuning
        Tuned kernels, the slowest first.
    before, after : float
        Median seconds of one run of all tuned plans, before and after; 0 if nothing was timed.
    seconds : float
        Duration of autotuning.
    plans : int
        Number of plans.

    Examples
    --------
    >>> from kernelrt.tune import KernelTuning, TuningReport
    >>> found = KernelTuning("k0", "exp", 3e-3, 1e-3, "0:8", tried=12, changed=True)
    >>> report = TuningReport((found,), before=4e-3, after=2e-3, seconds=0.5, plans=1)
    >>> report.gain, report.changed
    (2.0, 1)
    """

    kernels: tuple[KernelTuning, ...]
    before: float
    after: float
    seconds: float
    plans: int

    @property
    def gain(self) -> float:
        """The speedup factor of the plans."""
        return self.before / self.after if self.before > 0 and self.after > 0 else 1.0

    @property
    def changed(self) -> int:
        """Number of kernels that now run other code."""
        return sum(kernel.changed for kernel in self.kernels)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Return a table of the kernels."""
        width = max([len("kernel"), *(len(kernel.title) for kernel in self.kernels)])
        lines = [f"{'kernel':<{width}}  {'before':>9}  {'after':>9}  {'gain':>5}  tried  tiling"]
        for kernel in self.kernels:
            tiling = kernel.tiling if kernel.changed else "unchanged"
            mark = "" if kernel.keeps_bits else " (other summation order)"
            lines.append(
                f"{kernel.title:<{width}}  {_time(kernel.before):>9}  {_time(kernel.after):>9}  "
                f"{kernel.gain:>4.2f}x  {kernel.tried:>5}  {tiling}{mark}"
            )
        many = "" if self.plans == 1 else "s"
        lines.append(
            f"{self.plans} plan{many}: {_time(self.before)} before, {_time(self.after)} now, "
            f"{self.gain:.2f}x; {self.changed} of {len(self.kernels)} kernels changed in "
            f"{self.seconds:.1f} s"
        )
        if not self.changed and not any(kernel.tried for kernel in self.kernels):
            lines.append("no other variant was tried in this time: pass a larger budget_seconds")
        return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e6:.1f} us"
