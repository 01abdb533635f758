"""Cost tables of processors: the one cost model behind every decision.

:func:`costs_of` gives the costs for all decisions: on fusion, tiles, chunks, threads and the
release of the GIL. It also gives the estimates of a profile. The unit is a cycle of one core. Costs
of elements assume full vectors. All costs are throughput costs, because an out-of-order core
overlaps independent work. So the arithmetic and the memory traffic of a kernel overlap, and the
longer of the two counts.

The tables are per target, not per machine, so that a plan depends on its DeviceSpec alone.
``kernelrt calibrate`` measures the same numbers on its machine, and prints both. Unless a comment
gives another source, the numbers are its output on an AMD EPYC 9005 (Zen 5). For targets with
narrower vectors than that machine, it ran with ``--target``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kernelrt import dtype as dt
from kernelrt.ir.ops import ALU, COMPARE, ELEMENTWISE, EXPANSIONS, Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.dtype import DType
    from kernelrt.ir.uop import UOp

__all__ = [
    "ADD_LATENCY",
    "FLOAT_UNITS",
    "LOAD_PORTS",
    "MEMORY_LATENCY_NS",
    "TRACKED_STREAMS",
    "Costs",
    "Level",
    "costs_of",
    "instructions",
]

# Properties that the x86 and Arm cores of the last ten years share; Agner Fog's "The
# microarchitecture of Intel, AMD and VIA CPUs" lists them for each core.
#: Cycles from the start of a float addition to its result.
ADD_LATENCY: Final = 4.0
#: Vector units that add or multiply floats, each starting one operation a cycle.
FLOAT_UNITS: Final = 2
#: Vector loads that start in each cycle.
LOAD_PORTS: Final = 2.0
#: Approximate nanoseconds from a load that misses all caches to its data.
MEMORY_LATENCY_NS: Final = 100
#: Approximate number of memory streams that a hardware prefetcher tracks at once.
TRACKED_STREAMS: Final = 8

#: Minimum duration of a chunk, in multiples of the time to hand it over to a thread. The value is a
#: compromise for steps of small networks on two threads (`python -m bench.report models`).
_CHUNK: Final = 6
#: Minimum duration of work for which another thread is woken, in the same unit.
_PART: Final = 16


#: Bitwise ops and comparisons: processors have more execution units for these than for arithmetic.
_SIMPLE: Final = COMPARE | {
    Op.NEG, Op.ABS, Op.NOT, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.WHERE, Op.BITCAST,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the memory hierarchy.

    Attributes
    ----------
    name : str
        ``"L1"``, ``"L2"``, ``"L3"`` or ``"memory"``.
    nbytes : int
        The largest working set that fits the level, in bytes.
    cycles : float
        Cycles for each byte that is read or written there, in long runs.
    """

    name: str
    nbytes: int
    cycles: float


@dataclass(frozen=True, slots=True)
class _Target:
    """The cost table of one type of processor, in cycles unless said otherwise.

    Attributes
    ----------
    ghz : float
        Cycles per nanosecond under load.
    call : float
        Overhead of a kernel (its call, loop set-up and tail) if other kernels ran since its last
        call.
    loop : float
        Entering and leaving an inner loop.
    hand_over : float
        Handing a chunk, or another op of a plan, to a thread.
    wake : float
        Time from waking a sleeping thread until it works.
    plain : float
        Arithmetic on a vector of floats, for ops without an entry in `ops`.
    simple : float
        Arithmetic on a vector of integers, a comparison, a select, a bitwise operation.
    levels : tuple of float
        Reading or writing a byte in the L1, L2 and L3 cache and in memory.
    ops : mapping
        Costs of the ops that differ from `plain` and `simple`. Each op has four costs, for one
        vector: of float32, of float64, of integers of up to 32 bits, and of 64-bit integers. The
        cost of a movement op is that of its predicates and scattered addresses.
    """

    ghz: float
    call: float
    loop: float
    hand_over: float
    wake: float
    plain: float
    simple: float
    levels: tuple[float, float, float, float]
    ops: Mapping[Op, tuple[float, float, float, float]]


class Costs:
    """The cost model for one target.

    Parameters
    ----------
    spec : DeviceSpec
        The target.

    Attributes
    ----------
    ghz : float
        Cycles per nanosecond.
    call : float
        Overhead cycles of a kernel: its call, loop set-up and tail.
    loop : float
        Cycles to enter and leave an inner loop.
    hand_over : float
        Cycles to hand a chunk, or another op of a plan, to a thread.
    chunk : float
        Smallest work of a chunk in cycles, a multiple of `hand_over`.
    part : float
        Smallest work in cycles for which another thread is woken.
    wake : float
        Cycles from waking a sleeping thread until it works.
    plain : float
        Cycles of a vector addition.
    levels : tuple of Level
        Levels of the memory hierarchy, nearest first. The last has no size limit.

    Examples
    --------
    >>> from kernelrt.device.spec import DeviceSpec
    >>> costs = costs_of(DeviceSpec.avx512())
    >>> costs.vector(Op.DIV, dt.float32) > costs.vector(Op.ADD, dt.float32)
    True
    >>> costs.byte(1 << 30) > costs.byte(1 << 10)
    True
    """

    __slots__ = (
        "_elements", "_target", "call", "chunk", "ghz", "hand_over", "levels", "loop", "part",
        "plain", "spec", "wake",
    )  # fmt: skip

    def __init__(self, spec: DeviceSpec) -> None:
        target = _target(spec)
        self.spec = spec
        self._target = target
        self.ghz, self.call, self.loop = target.ghz, target.call, target.loop
        self.plain = target.plain
        self.hand_over, self.chunk = target.hand_over, _CHUNK * target.hand_over
        self.part = _PART * target.hand_over
        self.wake = target.wake
        sizes = (spec.l1_bytes, spec.l2_bytes, spec.l3_bytes, 1 << 62)
        names = ("L1", "L2", "L3", "memory")
        self.levels = tuple(map(Level, names, sizes, target.levels))
        self._elements: dict[tuple[Op, DType], float] = {}

    # Arithmetic

    def vector(self, op: Op, dtype: DType) -> float:
        """Return the cycles of `op` on a full vector of `dtype`, its result type.

        For comparisons, `dtype` is the operand type. If one instruction of the target multiplies
        and adds, the cost of the product includes the sum.
        """
        wide = dtype.itemsize > 4
        row = self._target.ops.get(op)
        expansion = EXPANSIONS.get(op) if row is None else None
        if expansion is not None and dtype.is_float:
            parts = expansion[wide]
            fused = parts.fused * self.vector(Op.FMA, dtype)
            divisions = parts.divisions * self.vector(Op.DIV, dtype)
            others = parts.instructions - parts.floats - parts.divisions
            unfused = (parts.floats - parts.fused) * self.plain
            return fused + unfused + others * self._target.simple + divisions
        if row is not None:
            return row[wide + 2 * (not dtype.is_float)]
        return self.plain if dtype.is_float and op not in _SIMPLE else self._target.simple

    def element(self, op: Op, dtype: DType) -> float:
        """Return the cycles of `op` per element of full vectors; 0 for ops that compute nothing.

        Raises
        ------
        KeyError
            `op` computes something, but the table of the target has no row for it.
        """
        key = (op, dtype)
        found = self._elements.get(key)
        if found is None:
            found = 0.0
            if (op in ALU or op in self._target.ops) and op is not Op.BITCAST:
                found = self.vector(op, dtype) / self.lanes(dtype)
            elif op in ELEMENTWISE and op is not Op.BITCAST:
                raise KeyError(
                    f"{op.name} has no cost on {self.spec.cpu}; expected a row in the table of "
                    "the target in kernelrt/device/costs.py"
                )
            self._elements[key] = found
        return found

    def added(self, op: Op, dtype: DType) -> float:
        """Return the cycles per element of the product `op` and of adding it to a sum."""
        alone = 0.0 if self.spec.adds_products(op, dtype) else self.element(Op.ADD, dtype)
        return self.element(op, dtype) + alone

    def node(self, u: UOp) -> float:
        """Return the cycles per element of an elementwise node, without its operands."""
        if u.op is Op.CAST:
            return self._cast(u.src[0].dtype, u.dtype)
        return self.element(u.op, u.src[0].dtype if u.op in COMPARE else u.dtype)

    def _cast(self, source: DType, target: DType) -> float:
        wide = max(source, target, key=lambda d: d.itemsize)
        if source.is_bool or target.is_bool:
            return self.element(Op.WHERE, wide)
        if source.is_float and target.is_float:
            return self.vector(Op.CAST, dt.float32) / self.lanes(wide)
        return self.element(Op.CAST, wide)

    def lanes(self, dtype: DType) -> int:
        """Return the number of elements of `dtype` that one vector instruction computes."""
        # Narrower types share kernels with wider ones and are computed as 32-bit types.
        return self.spec.lanes(max(4, dtype.itemsize))

    # Memory

    def byte(self, nbytes: int) -> float:
        """Return the cycles for each byte read or written in a working set of `nbytes`."""
        for level in self.levels:
            if nbytes <= level.nbytes:
                return level.cycles
        return self.levels[-1].cycles

    @property
    def far_byte(self) -> float:
        """Cycles to access a byte that is in the shared L3 cache, but not in the core's caches."""
        return self.levels[2].cycles

    # Kernels

    def launch(self, work: float, nbytes: int) -> float:
        """Return the cycles of a launch that computes for `work` cycles and touches `nbytes`."""
        return self.call + max(work, nbytes * self.byte(nbytes))

    def ns(self, cycles: float) -> float:
        """Convert cycles to nanoseconds."""
        return cycles / self.ghz


@functools.cache
def costs_of(spec: DeviceSpec) -> Costs:
    """Return the cost model for the target `spec`."""
    return Costs(spec)


def _target(spec: DeviceSpec) -> _Target:
    if spec.is_arm64:
        return _NEON
    if spec.vector_bits >= 512:
        return _AVX512
    return _AVX2 if spec.vector_bits >= 256 else _GENERIC


def _alike(cycles: float) -> tuple[float, float, float, float]:
    return cycles, cycles, cycles, cycles


# kernelrt calibrate
_AVX512: Final = _Target(
    ghz=3.7,
    call=50.0,
    loop=2.0,
    hand_over=1700.0,
    wake=280e3,
    plain=0.5,
    simple=0.25,
    levels=(0.01, 0.017, 0.068, 0.2),
    ops={
        Op.MAX: (0.7, 0.7, 0.25, 0.25), Op.MIN: (0.7, 0.7, 0.25, 0.25),
        Op.CAST: (1.0, 1.0, 1.0, 1.0),
        Op.DIV: (2.5, 4.0, 2.5, 4.0), Op.SQRT: (4.0, 7.0, 4.0, 7.0),
        Op.IDIV: (52.0, 34.0, 95.0, 68.0), Op.MOD: (41.0, 23.0, 95.0, 57.0),
        Op.PAD: (1.9, 0.7, 1.9, 0.7), Op.COL2IM: (15.0, 7.0, 15.0, 7.0),
        Op.CAT: (0.8, 0.8, 0.8, 0.8), Op.FLIP: (0.3, 0.2, 0.3, 0.2),
        Op.DOT: (0.75, 0.75, 0.55, 0.55),
        Op.GATHER: (10.0, 5.0, 10.0, 5.0), Op.BOUND: (1.0, 1.0, 1.0, 1.0),
    },
)  # fmt: skip
# kernelrt calibrate --target x86-64-v3
_AVX2: Final = _Target(
    ghz=3.7,
    call=50.0,
    loop=2.0,
    hand_over=1700.0,
    wake=280e3,
    plain=0.5,
    simple=0.25,
    levels=(0.012, 0.024, 0.08, 0.2),
    ops={
        Op.MUL: (0.5, 0.5, 0.25, 1.5), Op.MAX: (1.1, 1.1, 0.25, 0.6), Op.MIN: (1.1, 1.1, 0.25, 0.6),
        Op.CAST: (1.0, 6.0, 1.0, 6.0),
        Op.DIV: (2.5, 4.0, 2.5, 4.0), Op.SQRT: (4.0, 7.0, 4.0, 7.0),
        Op.IDIV: (60.0, 30.0, 51.0, 31.0), Op.MOD: (48.0, 19.0, 51.0, 30.0),
        Op.PAD: (3.0, 0.4, 3.0, 0.4), Op.COL2IM: (12.0, 6.0, 15.0, 9.0),
        Op.CAT: (1.3, 0.8, 1.3, 0.8), Op.FLIP: (0.2, 0.1, 0.2, 0.1),
        Op.DOT: _alike(0.45),
        Op.GATHER: (7.0, 2.2, 6.5, 2.5), Op.BOUND: (1.0, 1.0, 1.0, 1.0),
    },
)  # fmt: skip
# kernelrt calibrate --target x86-64. Without an FMA instruction, FMA is a multiplication and an
# addition; some of a function are several, to be exact (loops/math/primitives.py). ERF of float32
# takes its last steps in float64.
_GENERIC: Final = _Target(
    ghz=3.7,
    call=50.0,
    loop=5.0,
    hand_over=1700.0,
    wake=280e3,
    plain=0.5,
    simple=0.3,
    levels=(0.0175, 0.022, 0.1, 0.3),
    ops={
        Op.FMA: (1.3, 1.3, 0.6, 0.6), Op.MUL: (0.5, 0.5, 1.6, 1.4),
        Op.MAX: (1.1, 1.1, 1.0, 3.0), Op.MIN: (1.1, 1.1, 1.0, 3.0),
        Op.FLOOR: _alike(5.3), Op.CEIL: _alike(5.3), Op.TRUNC: _alike(5.3), Op.ROUND: _alike(5.3),
        Op.ERF: (25.0, 43.0, 25.0, 43.0),
        Op.CAST: (1.3, 3.4, 1.3, 3.4),
        Op.DIV: (2.0, 3.5, 2.0, 3.5), Op.SQRT: (4.0, 7.0, 4.0, 7.0),
        Op.IDIV: (234.0, 46.0, 24.0, 14.0), Op.MOD: (63.0, 35.0, 24.0, 14.0),
        Op.PAD: (3.7, 1.9, 4.3, 2.0), Op.COL2IM: (5.0, 2.0, 5.0, 2.0),
        Op.CAT: (4.8, 1.7, 4.4, 1.9), Op.FLIP: (0.1, 0.1, 0.1, 0.1),
        Op.DOT: _alike(0.4),
        Op.GATHER: (2.4, 1.0, 2.4, 1.0), Op.BOUND: (1.0, 1.0, 1.0, 1.0),
    },
)  # fmt: skip
# Neoverse N1 as LLVM's AArch64SchedNeoverseN1.td has it, after Arm's Software Optimization Guide:
# two vector pipes, one for rounding, conversions and shifts, one divider; a 16-byte store takes
# both load pipes. Costs that it does not give (calls, caches, scattered loads) are those measured
# for vectors of the same width.
_NEON: Final = _Target(
    ghz=2.6,
    call=50.0,
    loop=5.0,
    hand_over=1700.0,
    wake=280e3,
    plain=0.5,
    simple=0.5,
    levels=(0.047, 0.06, 0.1, 0.3),
    ops={
        Op.MUL: (0.5, 0.5, 2.0, 6.0),
        Op.MAX: (1.0, 1.0, 0.5, 1.0), Op.MIN: (1.0, 1.0, 0.5, 1.0),
        Op.FLOOR: (2.0, 1.0, 2.0, 1.0), Op.CEIL: (2.0, 1.0, 2.0, 1.0),
        Op.TRUNC: (2.0, 1.0, 2.0, 1.0), Op.ROUND: (2.0, 1.0, 2.0, 1.0),
        Op.CAST: (2.0, 1.0, 2.0, 1.0), Op.SHL: (1.0, 1.0, 1.0, 1.0), Op.SHR: (1.0, 1.0, 1.0, 1.0),
        Op.DIV: (7.0, 7.0, 7.0, 7.0), Op.SQRT: (7.0, 7.0, 7.0, 7.0),
        Op.IDIV: (234.0, 46.0, 28.0, 14.0), Op.MOD: (63.0, 35.0, 28.0, 14.0),
        Op.PAD: (3.7, 1.9, 4.3, 2.0), Op.COL2IM: (5.0, 2.0, 5.0, 2.0),
        Op.CAT: (4.8, 1.7, 4.4, 1.9), Op.FLIP: (0.5, 0.5, 0.5, 0.5),
        Op.DOT: _alike(0.5),
        Op.GATHER: (2.4, 1.0, 2.4, 1.0), Op.BOUND: (1.0, 1.0, 1.0, 1.0),
    },
)  # fmt: skip


#: Op -> number of LLVM IR instructions for one node, for ops that take more or fewer than 1.
_WRITTEN: Final[Mapping[Op, int]] = {
    Op.CONST: 0, Op.RANGE: 1, Op.LOAD: 2, Op.IDIV: 7, Op.MOD: 6, Op.MAX: 3, Op.MIN: 3,
    Op.BOUND: 20, Op.STORE: 2, Op.SHL: 3, Op.SHR: 3, Op.REDUCE: 0, Op.PARAM: 0, Op.VAR: 0,
}  # fmt: skip


def instructions(op: Op, *, wide: bool = False) -> int:
    """Return the number of LLVM IR instructions that compute `op` once, to estimate compile time.

    With `wide`, return the number for float64.
    """
    expansion = EXPANSIONS.get(op)
    return _WRITTEN.get(op, 1) if expansion is None else expansion[wide].instructions
