"""Measures the costs of a processor with kernelrt's own kernels.

To measure an op, kernelrt times two kernels that apply the op many times to each element. One has a
long chain or sum of ops, the other a short one. The cost of the op is the difference of the times,
divided by the difference of the lengths. So the costs of loads, stores and loops cancel out. The
values lie in the L1 cache. The clock rate comes from a chain of dependent shifts and exclusive ors,
each of which takes one cycle.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelrt import dtype as dt
from kernelrt._dispatch import HOST_PARALLEL_SAFE, KERNEL, PlanCore
from kernelrt.backend.cpu import LLVMCompiler, LLVMLoader
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device import Buffer
from kernelrt.ir import Op, UOp, const, toposort
from kernelrt.ir.ops import BINARY, EXPANSIONS
from kernelrt.native.core import get_num_threads
from kernelrt.threads import num_threads

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from kernelrt.device import DeviceSpec, Program, ProgramSpec
    from kernelrt.dtype import DType

__all__ = ["TYPES", "measure", "ops_of"]

#: Element types to measure.
TYPES: Final = (dt.float32, dt.float64, dt.int32, dt.int64)
#: Bytes of an array; the arrays of a chain fit into the L1 cache together.
_NEAR: Final = 2048
#: Padding elements that loads may touch beyond the end.
_MARGIN: Final = 64
#: Rows of the kernel that measures the cost of a loop.
_ROWS: Final = 16
#: Number of kernels called in turn, so that the processor is not warmed up for one.
_KERNELS: Final = 128
#: Ops of a plan that two threads share, and the claimed time of each, which makes them share it.
_SHARED: Final = 64
_SHARED_NS: Final = 20_000
#: Seconds after which idle threads sleep.
_ASLEEP_S: Final = 0.002
#: Number of runs, of which the shortest counts since it was disturbed least; launches per run of
#: small kernels.
_RUNS: Final = 30
_LAUNCHES: Final = 256
_FLOATS: Final = (
    Op.ADD, Op.MUL, Op.FMA, Op.MAX, Op.WHERE, Op.CAST, Op.FLOOR, Op.DIV, Op.SQRT, Op.IDIV, Op.MOD,
    *EXPANSIONS,
)  # fmt: skip
_INTS: Final = (Op.ADD, Op.MUL, Op.MAX, Op.WHERE, Op.IDIV, Op.MOD)
_MOVES: Final = (Op.LOAD, Op.PAD, Op.COL2IM, Op.CAT, Op.GATHER, Op.FLIP)
#: Operand type of the dot-product instructions that accumulate in a type.
_MULTIPLIED: Final = {dt.int32: dt.int8, dt.float32: dt.bfloat16}
_DEAR: Final = frozenset({*EXPANSIONS, Op.DIV, Op.SQRT, Op.IDIV, Op.MOD, *_MOVES})
#: Ops that are measured together: a comparison and its choice, a cast there and back.
_TWICE: Final = frozenset({Op.WHERE, Op.CAST})


def ops_of(dtype: DType, spec: DeviceSpec) -> tuple[Op, ...]:
    """Return the ops to measure for a type on a target."""
    multiplied = _MULTIPLIED.get(dtype)
    dots = (Op.DOT,) if multiplied is not None and spec.dot(multiplied) else ()
    return (*(_FLOATS if dtype.is_float else _INTS), *dots, *_MOVES)


def measure(spec: DeviceSpec) -> dict[str, Any]:
    """Measure the cost model's numbers for `spec` on this machine.

    Parameters
    ----------
    spec : DeviceSpec
        Target; this machine must be able to run its code.

    Returns
    -------
    dict
        ``ghz``; ``call``, ``loop``, ``hand_over`` and ``wake`` in cycles, the last two 0 with a
        single core; ``bytes``, by cache level, in cycles per byte; ``ops``, by op and type, in
        cycles per vector.
    """
    asts: dict[Hashable, UOp] = {("clock", n): _clock(n) for n in (100, 300)}
    asts |= {("call", n): _map(n) for n in range(_KERNELS)}
    asts |= {("loop", n): _rows(n) for n in (64, 128)}
    asts |= {("bytes", n): _copy(n) for n in _level_elements(spec).values()}
    links = [(op, d) for d in TYPES for op in ops_of(d, spec)]
    asts |= {(op, d, n): _link(op, d, n, spec) for op, d in links for n in _lengths(op)}
    asts |= {(None, d, n): _chain(None, d, n) for d in TYPES for n in _lengths(None)}
    bench = _Bench(spec, asts)

    def slope(key: tuple[Hashable, ...], few: int, many: int) -> float:
        return bench.ns((*key, many)) - bench.ns((*key, few))

    # Measured before and after, because processors raise their clock rate slowly.
    cycle = slope(("clock",), 100, 300) / (200 * 6)
    levels = {
        name: bench.ns(("bytes", n)) / (8 * n) for name, n in _level_elements(spec).items()
    }
    call = bench.ns(*(("call", n) for n in range(_KERNELS)))
    # Extrapolated to a loop without iterations.
    loop = (2 * bench.ns(("loop", 64)) - bench.ns(("loop", 128))) / _ROWS
    found: dict[str, dict[str, float]] = {}
    for d in TYPES:
        vectors = _elements(d) / spec.lanes(d.itemsize)

        def link(op: Op | None, d: DType = d, vectors: float = vectors) -> float:
            few, many = _lengths(op)
            return slope((op, d), few, many) / ((many - few) * vectors)

        # A baseline of two independent plain instructions.
        base, load = link(None), link(Op.LOAD)
        for op in ops_of(d, spec):
            if op is Op.ADD:
                own = base / 2
            elif op in (Op.FMA, Op.DOT):
                # Includes its sum, if one instruction computes both.
                alone = op is Op.DOT and not spec.adds_products(op, d)
                own = link(op) - alone * base / 2
            elif op is Op.LOAD:
                own = load - base / 2
            elif op in _MOVES:
                own = link(op) - load
            else:
                own = (link(op) - base) / (2 if op in _TWICE else 1)
            found.setdefault(op.name, {})[d.name] = max(0.0, own)
    cycle = min(cycle, slope(("clock",), 100, 300) / (200 * 6))
    hand_over, wake = bench.threads((Op.POW, dt.float32, 6))
    return {
        "ghz": 1.0 / cycle,
        "call": max(0.0, call / cycle),
        "loop": max(0.0, loop / cycle),
        "hand_over": max(0.0, hand_over / cycle),
        "wake": max(0.0, wake / cycle),
        "bytes": {name: ns / cycle for name, ns in levels.items()},
        "ops": {op: {d: ns / cycle for d, ns in row.items()} for op, row in found.items()},
    }


class _Bench:
    """Kernels compiled for a target, and the times of their launches."""

    def __init__(self, spec: DeviceSpec, asts: Mapping[Hashable, UOp]) -> None:
        renderer, compiler = LLVMRenderer(spec), LLVMCompiler(spec)
        programs = [renderer.render(ast) for ast in asts.values()]
        loaded = LLVMLoader(compiler).load(compiler.compile(programs))
        self._kernels = dict(zip(asts, zip(programs, loaded, strict=True), strict=True))
        self._kept: list[Buffer] = []
        self._buffers: dict[tuple[int, int, DType], Buffer] = {}
        self._empty = _shortest(PlanCore([]), 1000)

    def ns(self, *keys: Hashable) -> float:
        """Return the nanoseconds of a launch, averaged over several kernels launched in turn."""
        rows, size = [], 1
        for key in keys:
            spec, program = self._kernels[key]
            params = {u.arg[0]: u for u in toposort([spec.ast]) if u.op is Op.PARAM}
            size += sum(u.arg[1] * u.dtype.itemsize for u in params.values())
            # Slots that a kernel does not read must only be non-null.
            addresses = [self._buffer(params[0]).address] * spec.buf_count
            for slot, param in params.items():
                addresses[slot] = self._buffer(param).address
            rows.append(_row(spec, program, addresses))
        rows *= max(1, min(_LAUNCHES // len(keys), (1 << 24) // size))
        runs = max(3, _RUNS * len(rows) // _LAUNCHES)
        return (_shortest(PlanCore(rows), runs) - self._empty) / len(rows)

    def threads(self, key: Hashable) -> tuple[float, float]:
        """Return the overhead of an op that two threads share, and the time to wake one, in ns."""
        if get_num_threads() < 2:
            return 0.0, 0.0
        spec, program = self._kernels[key]
        slots = range(spec.buf_count)
        params = {u.arg[0]: u for u in toposort([spec.ast]) if u.op is Op.PARAM}
        rows = []
        for _ in range(_SHARED):
            target = Buffer(params[0].arg[1], params[0].dtype)
            self._kept.append(target)
            inputs = [self._buffer(params.get(slot, params[1])).address for slot in slots[1:]]
            row = _row(spec, program, [target.address, *inputs])
            rows.append((*row[:6], HOST_PARALLEL_SAFE, _SHARED_NS, ()))
        alone: list[float] = []
        shared: list[float] = []
        woken: list[float] = []
        for _ in range(2 * _RUNS):
            # A new plan each time, because a plan that was slower in parallel runs serially.
            for threads, found in ((1, alone), (2, shared)):
                with num_threads(threads):
                    core = PlanCore(rows)
                    found.append(_shortest(core, 4))
            time.sleep(_ASLEEP_S)
            with num_threads(2):
                woken.append(_shortest(PlanCore(rows), 1))
        # While one thread wakes, the other does the work of both, so the delay counts twice.
        late = statistics.median(woken) - statistics.median(shared)
        return (2 * min(shared) - min(alone)) / _SHARED, 2 * late

    def _buffer(self, param: UOp) -> Buffer:
        """Return memory for an argument, filled with numbers that are valid for every chain."""
        slot, size = param.arg
        key = (slot, size, param.dtype)
        if key not in self._buffers:
            rng = np.random.default_rng(0)
            if param.dtype.is_float:
                content = rng.uniform(1.25, 1.75, size)
            else:
                content = rng.integers(1, 9, size)
            buffer = self._buffers[key] = Buffer(size, param.dtype)
            buffer.copyin(content.astype(param.dtype.name))
        return self._buffers[key]


def _row(spec: ProgramSpec, program: Program, addresses: list[int]) -> Any:
    """Return one single-threaded launch in the form of the C core."""
    assert spec.global_size is not None
    chunks = spec.global_size[0]
    split = len(spec.var_names)
    return (KERNEL, program.address, addresses, [0] * split, chunks, split - 1, 0, 0, ())


def _shortest(core: PlanCore, runs: int) -> float:
    """Return the nanoseconds of the shortest of several executions."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter_ns()
        core.execute()
        best = min(best, time.perf_counter_ns() - start)
    return best


# Kernels


def _range(size: int, number: int = 0) -> UOp:
    return UOp(Op.RANGE, dt.int64, (const(size, dt.int64),), number)


def _load(slot: int, size: int, index: UOp, dtype: DType, *predicate: UOp) -> UOp:
    return UOp(Op.LOAD, dtype, (UOp(Op.PARAM, dtype, (), (slot, size)), index, *predicate))


def _sink(size: int, index: UOp, value: UOp) -> UOp:
    store = UOp(Op.STORE, value.dtype, (UOp(Op.PARAM, value.dtype, (), (0, size)), index, value))
    return UOp(Op.SINK, value.dtype, (store,))


def _clock(rounds: int) -> UOp:
    """Return a kernel with six dependent instructions of one cycle each per round."""
    value = _load(1, 1, const(0, dt.int64), dt.uint64)
    for _ in range(rounds):
        for step in (13, -7, 17):
            amount = const(abs(step), dt.uint64)
            value ^= value << amount if step > 0 else value >> amount
    return _sink(1, const(0, dt.int64), value)


def _copy(size: int) -> UOp:
    """Return a kernel that reads and writes each byte once. Its sum prevents a call of memcpy."""
    r = _range(size)
    return _sink(size, r, _load(1, size, r, dt.float32) + 1.0)


def _map(number: int) -> UOp:
    """Return a kernel of one vector, a different one for each number."""
    r = _range(16)
    return _sink(16, r, _load(1, 16, r, dt.float32) * (1.5 + number / 16) + float(number))


def _rows(length: int) -> UOp:
    """Return a kernel that sums each of several rows."""
    i, k = _range(_ROWS), _range(length, 1)
    row = _load(1, _ROWS * length, i * length + k, dt.float32)
    return _sink(_ROWS, i, UOp(Op.REDUCE, dt.float32, (row, k), Op.ADD))


def _level_elements(spec: DeviceSpec) -> dict[str, int]:
    """Return for each cache level the size of an array that, with its copy, fits well into it."""
    sizes = {"L1": spec.l1_bytes, "L2": spec.l2_bytes, "L3": spec.l3_bytes}
    return {name: size // 16 for name, size in sizes.items()} | {"memory": spec.l3_bytes // 2}


def _elements(dtype: DType) -> int:
    return _NEAR // dtype.itemsize


def _lengths(op: Op | None) -> tuple[int, int]:
    if op is Op.DOT:
        return 64, 256
    return (2, 6) if op in _DEAR else (4, 16)


def _link(op: Op, dtype: DType, length: int, spec: DeviceSpec) -> UOp:
    return _dots(dtype, length, spec) if op is Op.DOT else _chain(op, dtype, length)


def _dots(dtype: DType, length: int, spec: DeviceSpec) -> UOp:
    """Return a kernel with sums of `length` dot-product instructions over packed words.

    Words that are small integers are subnormal numbers as bfloat16; these take no longer.
    """
    n = _elements(dtype)
    r, k = _range(n), _range(length, 1)
    words = _load(1, n, r, dt.int32), _load(2, length, k, dt.int32)
    value = UOp(Op.DOT, dtype, words, spec.dot(_MULTIPLIED[dtype]))
    return _sink(n, r, UOp(Op.REDUCE, dtype, (value, k), Op.ADD))


def _chain(op: Op | None, dtype: DType, length: int) -> UOp:
    """Return a kernel that sums `op` of `length` values for each element; if None, the values."""
    n = _elements(dtype)
    r = _range(n)
    value, other = (_load(slot, n + _MARGIN, r, dtype) for slot in (1, 2))
    total = value
    for number in range(1, length + 1):
        if op in _MOVES:
            total += _moved(op, r, number, dtype)
        elif op is Op.FMA:
            total = total.alu(op, const(0.5, dtype), const(_step(number), dtype))
        else:
            # Independent values, added up.
            operand = value + _step(number) if dtype.is_float else value ^ (1000 + 37 * number)
            total += _applied(op, operand, other)
    return _sink(n, r, total)


def _step(number: int) -> float:
    return 0.25 + number / 64


def _applied(op: Op | None, v: UOp, other: UOp) -> UOp:
    if op is None:
        return v
    if op is Op.WHERE:
        return (v < other).where(v, other)
    if op is Op.CAST:
        return v.cast(dt.int32 if v.dtype is dt.float32 else dt.int64).cast(v.dtype)
    if op is Op.DIV:
        return other / v
    return v.alu(op, *([other] if op in BINARY else []))


def _moved(op: Op, r: UOp, number: int, dtype: DType) -> UOp:
    """Return an element at another position, as movement ops and gathers load it.

    Each element has its own memory, because one load could serve several neighbors in one array.
    """
    size = _elements(dtype) + _MARGIN
    first = 3 * number
    if op is Op.PAD:
        return _load(first, size, r - number, dtype, const(number - 1, dt.int64) < r)
    if op is Op.COL2IM:
        even = ((r + number) % 2).alu(Op.EQ, const(0, dt.int64))
        return _load(first, size, (r + number) // 2, dtype, even)
    if op is Op.CAT:
        left = r < size // 2
        parts = _load(first, size, r, dtype, left), _load(first + 1, size, r, dtype, ~left)
        return left.where(*parts)
    if op is Op.GATHER:
        return _load(first, size, _load(first + 2, size, r, dt.int64), dtype)
    return _load(first, size, r if op is Op.LOAD else size - r - 1, dtype)
