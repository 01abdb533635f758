"""The stream of random words behind all random numbers.

The n-th pair of words is a hash of n: threefry2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw:
Parallel random numbers: as easy as 1, 2, 3, SC 2011). The key comes from the seed; the count of
pairs drawn so far is state, which a traced function advances like any other.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.device.registry import check_device
from kernelrt.errors import DTypeError, JitError, ShapeError
from kernelrt.ir import Dim, Op, UOp, Variable
from kernelrt.native.array_handle import draw, undraw
from kernelrt.tensor import state
from kernelrt.tensor.eager import execute
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import whole
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.native.core import Bindings
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor import tensor as tensor_module
    from kernelrt.tensor.eager import realize
    from kernelrt.tensor.free_functions import creation
    from kernelrt.tensor.tensor import Tensor
else:
    tensor_module = Module("kernelrt.tensor.tensor")
    realize = Module("kernelrt.tensor.eager.realize")
    creation = Module("kernelrt.tensor.free_functions.creation")

__all__ = ["Generator", "Share", "Transform", "default_generator", "source_of", "threefry"]

#: ``transform(x, y, scale, shift, dtype)`` makes a number of two words, elementwise. Outside a
#: trace it tells kinds of numbers apart, so it is a function of a module and no closure.
Transform = Callable[[UOp, UOp, UOp, UOp, "DType"], UOp]

#: Which of several who draw from a stream at once one is, and how many they are: uint64 scalars.
Share = tuple[UOp, UOp]

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


#: Plans that are not drawing: who does takes one out, so that nobody else has it meanwhile.
_blocks: dict[tuple[Transform, DType], list[_Block]] = {}


#: All that there are.
_generators: weakref.WeakSet[Generator] = weakref.WeakSet()


def is_counter(tensor: object) -> bool:
    """Whether `tensor` counts what was drawn from a generator."""
    return any(tensor is part for g in _generators for parts in g._state.values() for part in parts)


class Generator:
    """A stream of random numbers: its key and its counter, both state.

    Functions that draw take one as ``generator=``; what is drawn from it does not depend on what
    is drawn from others. A traced function draws from it as it does from the process's own.

    Parameters
    ----------
    device : str, optional
        "cpu".

    Raises
    ------
    JitError
        A function is being traced: make it outside.

    Examples
    --------
    >>> import kernelrt as krt
    >>> g = krt.Generator().manual_seed(3)
    >>> x = krt.rand(2, generator=g)
    >>> state = g.get_state()
    >>> y = krt.rand(2, generator=g)
    >>> g.set_state(state).initial_seed()
    3
    >>> krt.rand(2, generator=g).equal(y)
    True
    """

    def __init__(self, device: object = None) -> None:
        check_device(device)
        _outside("Generator()")
        self._state: dict[str, tuple[Tensor, Tensor]] = {}
        _generators.add(self)

    @property
    def device(self) -> str:
        """Name of the device that it draws on."""
        return "CPU"

    def _parts(self) -> tuple[tensor_module.Tensor, tensor_module.Tensor]:
        """Key (two words) and counter, made when first needed."""
        with state.lock:
            found = self._state.get("state")
            if found is None:
                key = tensor_module.Tensor._over(Buffer(2, dt.uint32), (2,))
                counter = tensor_module.Tensor._over(Buffer(1, dt.uint64), (1,))
                _write(key, counter, _DEFAULT_SEED)
                # Code that interrupts this one may have made and used others.
                found = self._state.setdefault("state", (key, counter))
            return found

    def _settled(self) -> tuple[Tensor, Tensor]:
        """Key and counter, with what was assigned to them, as by a loop that draws, in memory."""
        parts = self._parts()
        if any(id(t) in state.pending for t in parts):
            realize.flush()
        return parts

    def manual_seed(self, seed: int) -> Self:
        """Start anew, in place: plans that were made before follow it, too.

        Raises
        ------
        JitError
            A function is being traced.
        DTypeError
            `seed` is not an int.
        ShapeError
            `seed` has more than 64 bits.
        """
        number = whole(seed)
        if number is None:
            raise DTypeError(f"seed: expected an int, not {type(seed).__name__}")
        if not -(1 << 63) <= number < 1 << 64:
            raise ShapeError(f"seed: expected a number from -2**63 to 2**64 - 1, not {number}")
        _outside("manual_seed()")
        with state.lock:
            _write(*self._settled(), number)
        return self

    def seed(self) -> int:
        """Start anew from a number that nobody knows before, and give that."""
        found = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(found)
        return found

    def initial_seed(self) -> int:
        """The number that the stream was started from; one below 0 plus 2**64."""
        _outside("initial_seed()")
        low, high = (int(word) for word in self._settled()[0]._memory.numpy())
        return high << 32 | low

    def get_state(self) -> Tensor:
        """What tells where the stream is, as 16 bytes."""
        _outside("get_state()")
        with state.lock:
            words = [t._memory.numpy().view(np.uint8) for t in self._settled()]
            return creation.tensor(np.concatenate(words))

    def set_state(self, new_state: tensor_module.Tensor) -> Self:
        """Go on from where :meth:`get_state` was called.

        Raises
        ------
        DTypeError
            `new_state` is no tensor of uint8.
        ShapeError
            It does not have 16 elements.
        """
        given: Any = new_state
        if not isinstance(given, tensor_module.Tensor) or given.dtype is not dt.uint8:
            is_tensor = isinstance(given, tensor_module.Tensor)
            kind = given.dtype.name if is_tensor else type(given).__name__
            raise DTypeError(f"new_state: expected a Tensor of uint8, from get_state(), not {kind}")
        if new_state.shape != (16,):
            raise ShapeError(f"new_state: expected shape (16,), not {new_state.shape}")
        _outside("set_state()")
        data = new_state.numpy()
        with state.lock:
            key, counter = (t._memory.numpy() for t in self._settled())
            key[:], counter[:] = data[:8].view(np.uint32), data[8:].view(np.uint64)
        return self

    def clone_state(self) -> Generator:
        """Another generator that goes on from where this one is."""
        return Generator().set_state(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.get_state(),)

    def __deepcopy__(self, memo: dict[int, object]) -> Generator:
        memo[id(self)] = twin = self.clone_state()
        return twin

    def node(
        self, n: Dim, transform: Transform, dtype: DType, scale: float, shift: float,
        share: Share | None = None,
    ) -> UOp:  # fmt: skip
        """Give the next `n` numbers as a node, and count them as drawn, within a trace.

        Of a `share` those of one of several who draw as many each.
        """
        line = _line_type(dtype)
        with state.no_grad():
            key, counter = self._parts()
            first, drawn = counter.uop, build.scalar(n, dt.uint64)
            if share is not None:
                place, count = share
                first = build.add(first, build.reshape(place.alu(Op.MUL, drawn), first.shape))
                drawn = drawn.alu(Op.MUL, count)
            x, y = _words(key.uop, first, n)
            factor, offset = (build.full(v, line, x.shape) for v in (scale, shift))
            out = transform(x, y, factor, offset, dtype)
            counter.assign(counter + counter._of(drawn))
        return out

    def fill(
        self, n: int, transform: Transform, dtype: DType, scale: float, shift: float
    ) -> Buffer:
        """Compute the next `n` numbers now.

        Where that fails they are not drawn, unless somebody has drawn what comes after them.
        """
        out = Buffer(n, dtype)
        target = out.content()
        taken: list[tuple[int, int, int]] = []
        with state.lock:
            parts = self._settled()
            free = _blocks.setdefault((transform, dtype), [])
            try:
                block = free.pop()
            except IndexError:
                block = _Block(transform, dtype)
        try:
            # Taken all at once, and computed with memory of its own, by a plan that nobody else
            # has meanwhile: other threads, finalizers and handlers of signals may draw at any time.
            with state.lock:
                draw(*parts, n, taken)
            [(*key, first)] = taken
            for start in range(0, n, _BLOCK):
                size = min(_BLOCK, n - start)
                count = (first + start) % (1 << 64)
                target[start : start + size] = block.run(key, count, size, scale, shift)
        except BaseException:
            if taken:
                with state.lock:
                    undraw(*parts, n, *taken[0])
            raise
        free.append(block)
        return out


def _words(key: UOp, counter: UOp, n: Dim) -> tuple[UOp, UOp]:
    """`n` pairs of words as nodes of shape (n,), from those of a key and a count on."""
    place = build.iota(n).cast(dt.uint64)
    place = place.alu(Op.ADD, build.expand(counter, place.shape))
    low = place.cast(dt.uint32)
    high = place.alu(Op.SHR, build.full(32, dt.uint64, place.shape)).cast(dt.uint32)
    keys = [build.expand(build.shrink(key, [(i, i + 1)]), place.shape) for i in (0, 1)]
    return threefry((keys[0], keys[1]), (low, high))


#: For so many counts a block keeps what its plan is run with.
_MOST_COUNTS: Final = 64


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
        drawn = self._plan.output_buffer
        assert drawn is not None
        inputs = (self._key, self._count, self._line)
        self._bindings: dict[int, Callable[[], Bindings]] = {}
        self._arrays = [buffer.content() for buffer in (*inputs, drawn)]

    def run(
        self, key: Sequence[int], count: int, n: int, scale: float, shift: float
    ) -> np.ndarray[Any, Any]:
        into_key, into_count, into_line, out = self._arrays
        into_key[:] = key
        into_count[0] = count
        into_line[:] = scale, shift
        bindings = self._bindings.get(n)
        if bindings is None:
            if len(self._bindings) == _MOST_COUNTS:
                self._bindings.clear()
            bindings = self._bindings[n] = self._plan.bindings(n=n)
        self._plan.execute_with(bindings)
        return out[:n]


def _line_type(dtype: DType) -> DType:
    """The type of scale and shift."""
    if not dtype.is_float:
        return dt.int64
    return dt.float64 if dtype is dt.float64 else dt.float32


def _write(key: Tensor, counter: Tensor, seed: int) -> None:
    words = key._memory.numpy()
    words[0], words[1] = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    counter._memory.numpy()[0] = 0


def _outside(what: str) -> None:
    if state.local.trace is not None:
        raise JitError(
            f"{what} inside a traced function has no effect on later calls; call it outside"
        )


def _restored(data: Tensor) -> Generator:
    return Generator().set_state(data)


def source_of(generator: object) -> Generator:
    """The stream that an argument ``generator`` names; None is the process's own."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise DTypeError(
            f"generator: expected a kernelrt.Generator, not {type(generator).__name__}"
        )
    return generator


#: The process's own, from which all draw that name no other.
default_generator = Generator()
