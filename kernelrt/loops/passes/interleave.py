"""Interleave factor: the number of independent dependency chains that the code interleaves.

The operations of a chain wait for each other. For example, exp of a vector is a chain of a dozen
operations of a few cycles each. An out-of-order core overlaps the chains of several vectors, but
only within its instruction window: on Zen 5 this holds some seven vectors of exp, half as many as
the core needs. If the code itself interleaves several vectors, the core finds independent work
nearby. Functions of one million numbers then take 10 to 25 percent less time, and rows of softmax
15 to 20 percent less (AVX2, Zen 4, whose window holds two to three vectors of exp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt.device.costs import costs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis

__all__ = ["abreast"]

#: Cost of an element, in plain instructions, up to which its chain is too short to stall the core.
_SHORT: Final = 12
#: The largest interleave factor, chosen from 1 to 8 for the functions of `python -m bench.report
#: rows`, on targets with 16 and with 32 registers. Larger factors gain little more, and the text
#: gets longer.
_MOST: Final = 4
#: The most live values per register. LLVM keeps fewer values live than counted here, but from about
#: this number on it spills: tan at 8 points took twice as long as at 4.
_PRESSURE: Final = 2


def abreast(info: Analysis, roots: Sequence[UOp], target: DeviceSpec) -> int:
    """Return the interleave factor: how many points of `roots` to compute interleaved.

    Parameters
    ----------
    info : Analysis
        The kernel, without transcendental ops.
    roots : sequence of UOp
        Values of one point.
    target : DeviceSpec
        Device: its registers and costs.
    """
    if info.weight(roots, costs_of(target)) <= _SHORT:
        return 1
    return max(1, min(_MOST, _PRESSURE * target.vector_registers // _alive(info, roots)))


def _alive(info: Analysis, roots: Sequence[UOp]) -> int:
    """Return the maximum number of values of a point that are live at once, without masks."""
    order = [u for u in info.order(roots) if info.deps[u]]
    last = {s: step for step, u in enumerate(order) for s in u.src}
    last |= dict.fromkeys(roots, len(order))
    ending: dict[int, int] = {}
    alive, most = 0, 1
    for step, u in enumerate(order):
        alive -= ending.pop(step, 0)
        if not u.dtype.is_bool:
            alive += 1
            ending[last[u]] = ending.get(last[u], 0) + 1
        most = max(most, alive)
    return most
