"""The stream of random words that all random numbers are computed from.

The n-th pair of words is a hash of n: threefry2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw:
Parallel random numbers: as easy as 1, 2, 3, SC 2011). The key comes from the seed; the count of
pairs drawn so far is state, which a traced function advances like any other state.
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
from kernelrt.errors import DomainError, DTypeError, JitError, ShapeError
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

#: ``transform(x, y, scale, shift, dtype)`` computes a number from two words, elementwise. Outside a
#: trace it is a cache key, so it must be a module-level function, not a closure.
Transform = Callable[[UOp, UOp, UOp, UOp, "DType"], UOp]

#: Index of a consumer among several that draw from a stream at once, and their number: uint64.
Share = tuple[UOp, UOp]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_DEFAULT_SEED = 0
_BLOCK = 1 << 15


def threefry(key: tuple[UOp, UOp], counter: tuple[UOp, UOp]) -> tuple[UOp, UOp]:
    """Hash two uint32 words with a key of two words: threefry2x32 with 20 rounds."""
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


#: Idle plans. A draw takes one out while it runs, so that no other draw uses the same plan.
_blocks: dict[tuple[Transform, DType], list[_Block]] = {}


#: All live generators.
_generators: weakref.WeakSet[Generator] = weakref.WeakSet()


def is_counter(tensor: object) -> bool:
    """Return whether `tensor` is part of the state of a generator: its key or its counter."""
    return any(tensor is part for g in _generators for parts in g._state.values() for part in parts)


class Generator:
    """A stream of random numbers, with a key and a counter as its state.

    Pass it to random functions as ``generator=``. Its numbers do not depend on draws from other
    generators. A traced function can draw from it as from the default generator.

    Parameters
    ----------
    device : str, optional
        Device of the numbers; "cpu" is the only one.

    Raises
    ------
    JitError
        A function is being traced: create the generator outside.

    Notes
    -----
    The n-th pair of words is a hash of n, threefry2x32 with 20 rounds: Salmon, Moraes, Dror and
    Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.

    Examples
    --------
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
        """Name of the device that computes the numbers."""
        return "CPU"

    def _parts(self) -> tuple[tensor_module.Tensor, tensor_module.Tensor]:
        """Return the key (two words) and the counter; create them on first use."""
        with state.lock:
            found = self._state.get("state")
            if found is None:
                key = tensor_module.Tensor._over(Buffer(2, dt.uint32), (2,))
                counter = tensor_module.Tensor._over(Buffer(1, dt.uint64), (1,))
                _write(key, counter, _DEFAULT_SEED)
                # Interrupting code may have created and used others.
                found = self._state.setdefault("state", (key, counter))
            return found

    def _settled(self) -> tuple[Tensor, Tensor]:
        """Return the key and counter, after committing pending assignments to them."""
        parts = self._parts()
        if any(id(t) in state.pending for t in parts):
            realize.flush()
        return parts

    def manual_seed(self, seed: int) -> Self:
        """Set the seed and restart the stream, in place: existing plans use the new seed, too.

        Parameters
        ----------
        seed : int
            Number from -2**63 to 2**64 - 1.

        Returns
        -------
        Generator
            This generator.

        Raises
        ------
        JitError
            A function is being traced.
        DTypeError
            `seed` is not an int.
        DomainError
            `seed` has more than 64 bits.

        Examples
        --------
        >>> g = krt.Generator().manual_seed(3)
        >>> x = krt.rand(2, generator=g)
        >>> x.equal(krt.rand(2, generator=g.manual_seed(3)))
        True
        """
        number = whole(seed)
        if number is None:
            raise DTypeError(f"seed: expected an int, not {type(seed).__name__}")
        if not -(1 << 63) <= number < 1 << 64:
            raise DomainError(f"seed: expected a number from -2**63 to 2**64 - 1, not {number}")
        _outside("manual_seed()")
        with state.lock:
            _write(*self._settled(), number)
        return self

    def seed(self) -> int:
        """Set a random seed from the operating system, and return it.

        Returns
        -------
        int
            The seed, of 64 bits.

        Examples
        --------
        >>> g = krt.Generator()
        >>> g.seed() == g.initial_seed()
        True
        """
        found = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(found)
        return found

    def initial_seed(self) -> int:
        """Return the seed of the stream; 2**64 is added to negative seeds.

        Examples
        --------
        >>> krt.Generator().manual_seed(3).initial_seed()
        3
        """
        _outside("initial_seed()")
        low, high = (int(word) for word in self._settled()[0]._memory.numpy())
        return high << 32 | low

    def get_state(self) -> Tensor:
        """Return the seed and the position of the stream, as 16 bytes.

        Returns
        -------
        Tensor
            uint8 of shape (16,).

        Examples
        --------
        >>> krt.Generator().manual_seed(3).get_state().tolist()
        [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        """
        _outside("get_state()")
        with state.lock:
            words = [t._memory.numpy().view(np.uint8) for t in self._settled()]
            return creation.tensor(np.concatenate(words))

    def set_state(self, new_state: tensor_module.Tensor) -> Self:
        """Restore a state that :meth:`get_state` returned.

        Parameters
        ----------
        new_state : Tensor
            uint8 of shape (16,).

        Returns
        -------
        Generator
            This generator.

        Raises
        ------
        DTypeError
            `new_state` is not a tensor of uint8.
        ShapeError
            `new_state` does not have shape (16,).

        Examples
        --------
        >>> g, other = krt.Generator().manual_seed(3), krt.Generator()
        >>> other.set_state(g.get_state()).initial_seed()
        3
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
        """Return a new generator with the same state.

        Examples
        --------
        >>> g = krt.Generator().manual_seed(3)
        >>> twin = g.clone_state()
        >>> krt.rand(2, generator=g).equal(krt.rand(2, generator=twin))
        True
        """
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
        """Return the next `n` numbers as a node, and advance the counter, within a trace.

        With `share`, return the numbers of one of several consumers that draw `n` numbers each.

        Parameters
        ----------
        n : int or Size
            Number of numbers.
        transform, dtype, scale, shift
            As for :meth:`fill`.
        share : tuple of UOp, optional
            Index of the consumer, and the number of consumers; both uint64.
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

        If that fails, the counter is reset, unless later numbers have been drawn meanwhile.

        Parameters
        ----------
        n : int
            Number of numbers.
        transform : callable
            Function that computes the numbers. It is called with the nodes of two vectors of random
            32-bit words, the nodes of `scale` and `shift`, and `dtype`. It returns a node.
        dtype : DType
            Dtype of the numbers.
        scale, shift : float
            Numbers for `transform`; most transforms multiply by `scale` and add `shift`.
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
            # Other threads, finalizers and signal handlers may draw at any time. So advance the
            # counter in one step, and compute with memory and a plan that no other draw uses.
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
    """Return `n` pairs of words for a key, from `counter` on, as nodes of shape (n,)."""
    place = build.iota(n).cast(dt.uint64)
    place = place.alu(Op.ADD, build.expand(counter, place.shape))
    low = place.cast(dt.uint32)
    high = place.alu(Op.SHR, build.full(32, dt.uint64, place.shape)).cast(dt.uint32)
    keys = [build.expand(build.shrink(key, [(i, i + 1)]), place.shape) for i in (0, 1)]
    return threefry((keys[0], keys[1]), (low, high))


#: Maximum number of counts for which a block caches the bindings of its plan.
_MOST_COUNTS: Final = 64


class _Block:
    """A plan that draws from one distribution in one dtype, for any count and interval."""

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
    """Return the dtype of the scale and the shift of draws in `dtype`."""
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
            f"{what} in a traced function would run only during the trace, not in later calls; "
            "call it outside"
        )


def _restored(data: Tensor) -> Generator:
    return Generator().set_state(data)


def source_of(generator: object) -> Generator:
    """Return the generator for an argument ``generator``; None is the default generator."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise DTypeError(
            f"generator: expected a kernelrt.Generator, not {type(generator).__name__}"
        )
    return generator


#: The default generator of the process.
default_generator = Generator()
