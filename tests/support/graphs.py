"""Small functions that build tensor-stage graphs, and a check of their schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Dim, Op, UOp, const
from kernelrt.ir.ops import COMPARE
from kernelrt.ir.shape import as_uop, broadcast
from kernelrt.schedule import Schedule, schedule

from .kernel_reference import FaultError, HostBuffer, ScheduleRun, random_order
from .reference import evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .scalars import Array


class Memory:
    """BUFFERs over random or given data."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)
        self.data: dict[UOp, Array] = {}

    def add(self, holder: HostBuffer, dtype: dt.DType) -> UOp:
        """Return the BUFFER node of `holder`."""
        buffer = UOp(Op.BUFFER, dtype, (), holder)
        self.data[buffer] = holder.data
        return buffer

    def of(self, data: Any) -> UOp:
        """Return a tensor with the given content."""
        data = np.array(data)
        buffer = self.add(HostBuffer(data.ravel().copy()), dt.from_numpy(data.dtype))
        return reshape(buffer, data.shape)

    def random(self, *shape: int) -> UOp:
        """Return a float32 tensor of normal numbers."""
        return self.of(self.generator.standard_normal(shape).astype(np.float32))

    def indices(self, high: int, *shape: int) -> UOp:
        """Return an int64 tensor of numbers below `high`."""
        return self.of(self.generator.integers(0, high, shape))


def base(x: UOp) -> UOp:
    """Return the BUFFER below reshapes."""
    while x.op is Op.RESHAPE:
        x = x.src[0]
    return x


def reshape(x: UOp, shape: Sequence[Dim]) -> UOp:
    return UOp(Op.RESHAPE, x.dtype, (x,), tuple(shape))


def expand(x: UOp, shape: Sequence[Dim]) -> UOp:
    """Broadcast `x` to `shape`, as in NumPy."""
    lacking = len(shape) - len(x.shape)
    if lacking:
        x = reshape(x, (1,) * lacking + x.shape)
    return UOp(Op.EXPAND, x.dtype, (x,), tuple(shape))


def permute(x: UOp, *axes: int) -> UOp:
    return UOp(Op.PERMUTE, x.dtype, (x,), axes)


def shrink(x: UOp, *bounds: tuple[Dim, Dim]) -> UOp:
    return UOp(Op.SHRINK, x.dtype, (x,), bounds)


def pad(x: UOp, *widths: tuple[Dim, Dim]) -> UOp:
    return UOp(Op.PAD, x.dtype, (x,), widths)


def flip(x: UOp, *axes: int) -> UOp:
    return UOp(Op.FLIP, x.dtype, (x,), axes)


def cat(axis: int, *parts: UOp) -> UOp:
    return UOp(Op.CAT, parts[0].dtype, parts, axis)


def contiguous(x: UOp) -> UOp:
    return UOp(Op.CONTIGUOUS, x.dtype, (x,))


def scalar(value: float, dtype: dt.DType = dt.float32) -> UOp:
    return const(value, dtype)


def alu(op: Op, *operands: UOp | float) -> UOp:
    """Apply `op` with broadcasting; numbers take the type of the first tensor."""
    kind = next(o.dtype for o in operands if isinstance(o, UOp) and not o.dtype.is_bool)
    nodes = [o if isinstance(o, UOp) else const(o, kind) for o in operands]
    shape = broadcast(*(n.shape for n in nodes))
    nodes = [n if n.shape == shape else expand(n, shape) for n in nodes]
    result = dt.bool_ if op in COMPARE else nodes[-1].dtype
    return UOp(op, result, tuple(nodes))


def add(a: UOp, b: UOp | float) -> UOp:
    return alu(Op.ADD, a, b)


def sub(a: UOp, b: UOp | float) -> UOp:
    return alu(Op.SUB, a, b)


def mul(a: UOp, b: UOp | float) -> UOp:
    return alu(Op.MUL, a, b)


def div(a: UOp, b: UOp | float) -> UOp:
    return alu(Op.DIV, a, b)


def exp(x: UOp) -> UOp:
    return alu(Op.EXP, x)


def reduce(x: UOp, reducer: Op, *axes: int, keep: bool = False) -> UOp:
    out = UOp(Op.REDUCE_AXIS, x.dtype, (x,), (reducer, axes))
    if not keep:
        return out
    return reshape(out, tuple(1 if k in axes else d for k, d in enumerate(x.shape)))


def matmul(a: UOp, b: UOp) -> UOp:
    """Return (..., n, k) @ (k, m), or batched with equal leading axes."""
    *lead, n, k = a.shape
    m = b.shape[-1]
    rank = len(lead)
    left = expand(reshape(a, (*lead, n, 1, k)), (*lead, n, m, k))
    axes = (*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2)
    turned = permute(b, *axes)
    right = reshape(turned, (*turned.shape[:-2], 1, m, k))
    return reduce(mul(left, expand(right, (*lead, n, m, k))), Op.ADD, rank + 2)


def transpose(x: UOp) -> UOp:
    return permute(x, 1, 0)


def relu(x: UOp) -> UOp:
    return alu(Op.MAX, x, 0.0)


def softmax(x: UOp, axis: int = -1) -> UOp:
    axis %= len(x.shape)
    shifted = exp(sub(x, reduce(x, Op.MAX, axis, keep=True)))
    return div(shifted, reduce(shifted, Op.ADD, axis, keep=True))


def mean(x: UOp, *axes: int) -> UOp:
    count = int(np.prod([x.shape[a] for a in axes]))
    return div(reduce(x, Op.ADD, *axes, keep=True), float(count))


def layer_norm(x: UOp) -> UOp:
    last = len(x.shape) - 1
    centered = sub(x, mean(x, last))
    return div(centered, alu(Op.SQRT, add(mean(mul(centered, centered), last), 1e-5)))


def windows(x: UOp, *args: tuple[int, int, int, int]) -> UOp:
    return UOp(Op.IM2COL, x.dtype, (x,), args)


def unwindows(y: UOp, shape: Sequence[Dim], *args: tuple[int, int, int, int]) -> UOp:
    return UOp(Op.COL2IM, y.dtype, (y,), (tuple(shape), args))


def conv2d(x: UOp, w: UOp, stride: int = 1, padding: int = 0) -> UOp:
    """Return the convolution of (n, c, h, w) by (o, c, kh, kw)."""
    o, c, kh, kw = w.shape
    if padding:
        x = pad(x, (0, 0), (0, 0), (padding, padding), (padding, padding))
    taps = windows(x, (2, kh, stride, 1), (3, kw, stride, 1))
    n, _, oh, ow, _, _ = taps.shape
    shape = (n, o, c, oh, ow, kh, kw)
    left = expand(reshape(taps, (n, 1, c, oh, ow, kh, kw)), shape)
    right = expand(reshape(w, (1, o, c, 1, 1, kh, kw)), shape)
    return reduce(mul(left, right), Op.ADD, 2, 5, 6)


def iota(n: Dim) -> UOp:
    return UOp(Op.IOTA, dt.int64, (as_uop(n),))


def bound(index: UOp, size: Dim) -> UOp:
    return UOp(Op.BOUND, dt.int64, (index, as_uop(size)))


def gather(x: UOp, *index: UOp) -> UOp:
    shape = broadcast(*(i.shape for i in index))
    return UOp(Op.GATHER, x.dtype, (x, *(i if i.shape == shape else expand(i, shape)
                                         for i in index)))  # fmt: skip


def scatter_add(onto: UOp, value: UOp, *index: UOp) -> UOp:
    return scatter(Op.ADD, onto, value, *index)


def scatter(reducer: Op, onto: UOp, value: UOp, *index: UOp) -> UOp:
    shape = value.shape
    return UOp(Op.SCATTER, onto.dtype, (onto, value, *(
        i if i.shape == shape else expand(i, shape) for i in index
    )), reducer)  # fmt: skip


def one_hot(labels: UOp, classes: int) -> UOp:
    n = labels.shape[0]
    shape = (n, classes)
    same = alu(Op.EQ, expand(reshape(labels, (n, 1)), shape), expand(iota(classes), shape))
    return UOp(Op.CAST, dt.float32, (same,))


#: The same decisions, by the same costs, on every machine.
TARGET = DeviceSpec.avx512()


def check(
    memory: Memory,
    outputs: Sequence[UOp],
    commits: Sequence[tuple[UOp, UOp]] = (),
    *,
    kernels: int | None = None,
    tolerance: float = 1e-4,
    **variables: int,
) -> Schedule:
    """Return the schedule of a graph after comparing its results with direct evaluation.

    The schedule runs three times: in its own order with and without reuse of memory, and in another
    order that its dependencies allow. The three results must be equal bit for bit.
    """
    before = {b: d.copy() for b, d in memory.data.items()}
    wanted = evaluate([*outputs, *(v for _, v in commits)], variables, before)
    plan = schedule(outputs, commits, device=TARGET)
    if kernels is not None:
        assert len(plan.items) == kernels, plan.items
    apart = schedule(outputs, commits, device=TARGET, arena=False)
    results = []
    for arena, seed in ((plan, None), (apart, None), (plan, 1)):
        restore(memory, before)
        order = None if seed is None else random_order(arena, seed)
        got = ScheduleRun(arena, memory.data).run(order, **variables)
        got += [memory.data[t].copy() for t, _ in commits]
        for value, expected in zip(got, wanted, strict=True):
            flat = value[: expected.size]
            np.testing.assert_allclose(
                flat, expected.ravel(), rtol=tolerance, atol=tolerance, equal_nan=True
            )
        results.append(got)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            size = min(len(a), len(b))
            assert a[:size].tobytes() == b[:size].tobytes()
    untouched = [b for b in memory.data if b not in {t for t, _ in commits}]
    restore(memory, before, [t for t, _ in commits])
    for buffer in untouched:
        if buffer.arg.base is None and not any(
            t.arg is buffer.arg or t.arg.base is buffer.arg for t, _ in commits
        ):
            np.testing.assert_array_equal(memory.data[buffer], before[buffer])
    restore(memory, before)
    return plan


def check_faults(
    memory: Memory, outputs: Sequence[UOp], commits: Sequence[tuple[UOp, UOp]]
) -> None:
    """Assert that a run with an index out of range leaves all state unchanged."""
    before = {b: d.copy() for b, d in memory.data.items()}
    plan = schedule(outputs, commits)
    for seed in range(4):
        with pytest.raises(FaultError):
            ScheduleRun(plan, memory.data).run(random_order(plan, seed))
        for buffer, old in before.items():
            assert memory.data[buffer].tobytes() == old.tobytes()


def restore(memory: Memory, content: dict[UOp, Array], only: Sequence[UOp] | None = None) -> None:
    """Restore the `content` of buffers: of all, or of those in `only`."""
    for buffer in content if only is None else only:
        memory.data[buffer][:] = content[buffer]
