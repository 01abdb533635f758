"""Interleave factor: how many independent chains of operations are emitted side by side.

Operations of a chain wait for each other: exp of a vector is a dozen of them, a few cycles each. A
processor turns to other vectors meanwhile, as far ahead in the text as it sees: on Zen 5 some seven
vectors of exp, half of what it needs. Where the text itself goes through several vectors step by
step, it finds enough to do nearby: functions of one million numbers take 10 to 25 percent less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kernelrt.device.costs import costs_of
from kernelrt.ir.ops import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.ir.uop import UOp
    from kernelrt.loops.analysis import Analysis

__all__ = ["abreast"]

#: Cost of an element, in plain instructions, up to which chains are too short to be waited for.
_SHORT: Final = 12
#: Places side by side. Of 1 to 8 for the functions of `python -m bench.report rows`, on targets of
#: 16 and of 32 registers: more gain little, and lengthen the text.
_MOST: Final = 4
#: Values alive at once for each register. Fewer are alive in what LLVM makes of the text, but from
#: about here on it stores them and loads them again: tan of 8 places took twice as long as of 4.
_PRESSURE: Final = 2


def abreast(info: Analysis, roots: Sequence[UOp], target: DeviceSpec) -> int:
    """Places at which `roots` should be computed step by step with each other.

    Parameters
    ----------
    info : Analysis
        The kernel, without transcendental ops.
    roots : sequence of UOp
        Values of one place.
    target : DeviceSpec
        Its registers, and what ops cost there.
    """
    # A fused multiply-add without an instruction is a call, which no other one goes along with.
    calls = not target.has_fma and any(u.op is Op.FMA for u in info.order(roots))
    if calls or info.weight(roots, costs_of(target)) <= _SHORT:
        return 1
    return max(1, min(_MOST, _PRESSURE * target.vector_registers // _alive(info, roots)))


def _alive(info: Analysis, roots: Sequence[UOp]) -> int:
    """Values of a place that wait for their last use at once, at most; masks left out."""
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
