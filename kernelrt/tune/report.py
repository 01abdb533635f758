"""The result of autotuning, and its table."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KernelTuning", "TuningReport"]


@dataclass(frozen=True, slots=True)
class KernelTuning:
    """One kernel that was tuned.

    Attributes
    ----------
    name : str
        Its entry point.
    title : str
        What it computes, for people: layers, operations and the user's lines.
    before, after : float
        Median seconds that its launches in one run of the plan took with the code that the plan
        had, and with the best that was found.
    tiling : str
        How that is written: RANGEs by their numbers, with the elements that one iteration covers
        and how many of them are lanes of a vector.
    tried : int
        Variants that were timed, the plan's own among them.
    changed : bool
        Whether the plan runs other code now.
    keeps_bits : bool
        Whether results have the bits that the code generator's own choice gives.
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
        """How many times as fast it is."""
        return self.before / self.after if self.changed and self.after > 0 else 1.0


@dataclass(frozen=True, slots=True, repr=False)
class TuningReport:
    """What :func:`kernelrt.autotune` found.

    Attributes
    ----------
    kernels : tuple of KernelTuning
        The kernels that were tried, those that took longest first.
    before, after : float
        Median seconds of one run of all tuned plans, before and now; 0 where nothing was timed.
    seconds : float
        What autotuning took.
    plans : int
        Plans that were looked at.
    """

    kernels: tuple[KernelTuning, ...]
    before: float
    after: float
    seconds: float
    plans: int

    @property
    def gain(self) -> float:
        """How many times as fast the plans are."""
        return self.before / self.after if self.before > 0 and self.after > 0 else 1.0

    @property
    def changed(self) -> int:
        """How many kernels run other code now."""
        return sum(kernel.changed for kernel in self.kernels)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Write the kernels as a table."""
        width = max([len("kernel"), *(len(kernel.title) for kernel in self.kernels)])
        lines = [f"{'kernel':<{width}}  {'before':>9}  {'after':>9}  {'gain':>5}  tried  tiling"]
        for kernel in self.kernels:
            tiling = kernel.tiling if kernel.changed else "as it was"
            mark = "" if kernel.keeps_bits else " (other order of sums)"
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
            lines.append("no other code was tried in this time: give it a larger budget_seconds")
        return "\n".join(lines)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e6:.1f} us"
