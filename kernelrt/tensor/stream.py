"""The stream of random words that all random numbers are made of.

The n-th pair of words is a hash of n: threefry2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw:
Parallel random numbers: as easy as 1, 2, 3, SC 2011). The key comes from the seed; the count of
pairs drawn so far is state, which a traced function advances like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt._handle import draw
from kernelrt.device.buffer import Buffer
from kernelrt.ir import Dim, Op, UOp, Variable
from kernelrt.tensor import build, execute, state

if TYPE_CHECKING:
    import numpy as np

    from kernelrt.dtype import DType
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.tensor import Tensor

__all__ = ["Generator", "Transform", "generator", "threefry"]

#: ``transform(x, y, scale, shift, dtype)`` makes a number of two words, elementwise. Outside a
#: trace it tells kinds of numbers apart, so it is a function of a module and no closure.
Transform = Callable[[UOp, UOp, UOp, UOp, "DType"], UOp]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_DEFAULT_SEED = 0
_BLOCK = 1 << 15


def threefry(key: tuple[UOp, UOp], counter: tuple[UOp, UOp]) -> tuple[UOp, UOp]:
    """Two uint32 words hashed with a key of two: threefry2x32 with 20 rounds."""
    k0, k1 = key
    shape = k0.shape
    k2 = k0.alu(Op.XOR, k1).alu(Op.XOR, build.full(_PARITY, dt.uint32, shape))
    keys = (k0, k1, k2)
    x, y = counter[0].alu(Op.ADD, k0), counter[1].alu(Op.ADD, k1)
    for group in range(5):
        for r in _ROTATIONS[group % 2]:
            x = x.alu(Op.ADD, y)
            left = y.alu(Op.SHL, build.full(r, dt.uint32, shape))
            right = y.alu(Op.SHR, build.full(32 - r, dt.uint32, shape))
            y = left.alu(Op.OR, right).alu(Op.XOR, x)
        x = x.alu(Op.ADD, keys[(group + 1) % 3])
        y = y.alu(Op.ADD, keys[(group + 2) % 3])
        y = y.alu(Op.ADD, build.full(group + 1, dt.uint32, shape))
    return x, y


class Generator:
    """The process's stream: its key and its counter, both state."""

    def __init__(self) -> None:
        self._state: dict[str, tuple[Tensor, Tensor]] = {}
        self._blocks: dict[tuple[Transform, DType], _Block] = {}

    def state(self) -> tuple[Tensor, Tensor]:
        """Key (two words) and counter, made when first needed."""
        with state.lock:
            found = self._state.get("state")
            if found is None:
                from kernelrt.tensor.tensor import Tensor

                key = Tensor._over(Buffer(2, dt.uint32), (2,))
                counter = Tensor._over(Buffer(1, dt.uint64), (1,))
                _write(key, counter, _DEFAULT_SEED)
                # Code that interrupts this one may have made and used others.
                found = self._state.setdefault("state", (key, counter))
            return found

    def seed(self, seed: int) -> None:
        """Start anew, in place."""
        _write(*self.state(), seed)

    def node(
        self, n: Dim, transform: Transform, dtype: DType, scale: float, shift: float
    ) -> UOp:
        """Give the next `n` numbers as a node, and count them as drawn, within a trace."""
        line = _line_type(dtype)
        with state.no_grad():
            key, counter = self.state()
            x, y = _words(key.uop, counter.uop, n)
            factor, offset = (build.full(v, line, x.shape) for v in (scale, shift))
            out = transform(x, y, factor, offset, dtype)
            counter.assign(counter + counter._of(build.scalar(n, dt.uint64)))
        return out

    def fill(
        self, n: int, transform: Transform, dtype: DType, scale: float, shift: float
    ) -> Buffer:
        """Compute the next `n` numbers now."""
        out = Buffer(n, dtype)
        with state.lock:
            # Taken all at once, and computed with memory of its own, by a plan that nobody else
            # has meanwhile: a finalizer or a handler of a signal may draw at any time.
            *key, first = draw(*self.state(), n)
            kind = transform, dtype
            block = self._blocks.pop(kind, None) or _Block(transform, dtype)
            target = out.content()
            for start in range(0, n, _BLOCK):
                size = min(_BLOCK, n - start)
                count = (first + start) % (1 << 64)
                target[start : start + size] = block.run(key, count, size, scale, shift)
            self._blocks[kind] = block
        return out


def _words(key: UOp, counter: UOp, n: Dim) -> tuple[UOp, UOp]:
    """`n` pairs of words as nodes of shape (n,), from those of a key and a count on."""
    place = build.iota(n).cast(dt.uint64)
    place = place.alu(Op.ADD, build.expand(counter, place.shape))
    low = place.cast(dt.uint32)
    high = place.alu(Op.SHR, build.full(32, dt.uint64, place.shape)).cast(dt.uint32)
    keys = [build.expand(build.shrink(key, [(i, i + 1)]), place.shape) for i in (0, 1)]
    return threefry((keys[0], keys[1]), (low, high))


class _Block:
    """One plan for each kind of number, whatever their count and interval."""

    def __init__(self, transform: Transform, dtype: DType) -> None:
        self._key, self._count = Buffer(2, dt.uint32), Buffer(1, dt.uint64)
        key, count = build.memory(self._key), build.memory(self._count)
        x, y = _words(key, count, Variable("n", 1, _BLOCK))
        self._line = Buffer(2, _line_type(dtype))
        line = build.memory(self._line)
        scale, shift = (build.expand(build.shrink(line, [(i, i + 1)]), x.shape) for i in (0, 1))
        self._plan: ExecutionPlan = execute.prepare([transform(x, y, scale, shift, dtype)])

    def run(
        self, key: Sequence[int], count: int, n: int, scale: float, shift: float
    ) -> np.ndarray[Any, Any]:
        self._key.content()[:] = key
        self._count.content()[0] = count
        self._line.content()[:] = scale, shift
        self._plan.execute_with_vars(n=n)
        out = self._plan.output_buffer
        assert out is not None
        return out.content()[:n]


def _line_type(dtype: DType) -> DType:
    """The type of scale and shift."""
    if not dtype.is_float:
        return dt.int64
    return dt.float64 if dtype is dt.float64 else dt.float32


def _write(key: Tensor, counter: Tensor, seed: int) -> None:
    words = key._memory.numpy()
    words[0], words[1] = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    counter._memory.numpy()[0] = 0


generator = Generator()
