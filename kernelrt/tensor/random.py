"""Random numbers: counter-based, so that a seed reproduces a run and each replay draws afresh.

The n-th number of a stream is a hash of n: threefry2x32 with 20 rounds (Salmon, Moraes, Dror,
Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011). The key comes from the seed; the
counter of numbers drawn so far is state, which a traced function advances like any other.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.device.buffer import Buffer
from kernelrt.errors import DTypeError, JitError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import dim_max, is_static, prod
from kernelrt.tensor import build, state
from kernelrt.tensor.creation import check_device, check_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.dtype import DType
    from kernelrt.tensor.tensor import Tensor

__all__ = ["bernoulli", "kaiming_normal", "kaiming_uniform", "manual_seed", "normal", "rand",
           "rand_like", "randint", "randn", "randn_like", "threefry", "uniform", "xavier_normal",
           "xavier_uniform"]  # fmt: skip

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_DEFAULT_SEED = 0


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


class _Generator:
    """The process's stream: its key and its counter, both state."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: Tensor | None = None
        self._counter: Tensor | None = None

    def state(self) -> tuple[Tensor, Tensor]:
        with self._lock:
            if self._key is None or self._counter is None:
                from kernelrt.tensor.tensor import Tensor

                self._key = Tensor._over(Buffer(2, dt.uint32), (2,))
                self._counter = Tensor._over(Buffer(1, dt.uint64), (1,))
                self._write(self._key, self._counter, _DEFAULT_SEED)
            return self._key, self._counter

    def seed(self, seed: int) -> None:
        self._write(*self.state(), seed)

    @staticmethod
    def _write(key: Tensor, counter: Tensor, seed: int) -> None:
        words = key._memory.numpy()
        words[0], words[1] = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
        counter._memory.numpy()[0] = 0

    def words(self, n: Dim) -> tuple[UOp, UOp]:
        """The next `n` pairs of words of the stream."""
        key, counter = self.state()
        place = build.iota(n).cast(dt.uint64)
        place = place.alu(Op.ADD, build.expand(counter.uop, place.shape))
        low = place.cast(dt.uint32)
        high = place.alu(Op.SHR, build.full(32, dt.uint64, place.shape)).cast(dt.uint32)
        keys = [
            build.expand(build.shrink(key.uop, [(i, i + 1)]), place.shape) for i in (0, 1)
        ]
        return threefry((keys[0], keys[1]), (low, high))

    def advance(self, n: Dim) -> None:
        _, counter = self.state()
        if state.local.trace is None:
            counter._memory.numpy()[0] += n
        else:
            counter.assign(counter + counter._of(build.scalar(n, dt.uint64)))


_generator = _Generator()


def manual_seed(seed: int) -> None:
    """Start the stream of random numbers anew; plans that were made before follow it, too.

    Raises
    ------
    JitError
        A function is being traced.
    DTypeError
        `seed` is not an int.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise DTypeError(f"seed: expected an int, not {type(seed).__name__}")
    if state.local.trace is not None:
        raise JitError("manual_seed() inside a traced function has no effect on replays; call it "
                       "outside")  # fmt: skip
    _generator.seed(seed)


def _draw(shape: tuple[Dim, ...], transform: Any, dtype: DType) -> Tensor:
    """`transform` of as many pairs of words as `shape` has elements."""
    from kernelrt.tensor.tensor import Tensor

    if build.has_zero(shape):
        return Tensor._of(build.full(0, dtype, shape))
    n = prod(shape)
    with state.no_grad():
        out = Tensor._of(build.reshape(transform(*_generator.words(n)), shape))
        if state.local.trace is None:
            if not is_static(shape):
                raise ShapeError(
                    "size: random tensors with Variables in their shape are drawn inside a "
                    "jitted function only"
                )
            out.realize()
        _generator.advance(n)
    return out


def _fraction(word: UOp, bits: int, dtype: DType) -> UOp:
    """The upper `bits` of a word as a number in [0, 1)."""
    top = word.alu(Op.SHR, build.full(32 - bits, dt.uint32, word.shape))
    # Signed conversion is one instruction everywhere; the value fits for bits < 32.
    number = (top.cast(dt.int32) if bits < 32 else top.cast(dt.int64)).cast(dtype)
    return number.alu(Op.MUL, build.full(2.0**-bits, dtype, word.shape))


def _unit(x: UOp, y: UOp, dtype: DType) -> UOp:
    """Uniform numbers in [0, 1), with as many bits as the type resolves."""
    if dtype is dt.float64:
        high, low = _fraction(x, 27, dtype), _fraction(y, 26, dtype)
        return high.alu(Op.ADD, low.alu(Op.MUL, build.full(2.0**-27, dtype, low.shape)))
    if dtype is dt.float32:
        return _fraction(x, 24, dtype)
    return _fraction(x, 11 if dtype is dt.float16 else 8, dt.float32).cast(dtype)


def _gauss(x: UOp, y: UOp, dtype: DType) -> UOp:
    """Standard normal numbers, by Box and Muller."""
    wide = dt.float64 if dtype is dt.float64 else dt.float32
    bits = 32 if dtype is dt.float64 else 24
    ulp = build.full(2.0**-bits, wide, x.shape)
    radius = _fraction(x, bits, wide).alu(Op.ADD, ulp).alu(Op.LOG)
    radius = radius.alu(Op.MUL, build.full(-2, wide, x.shape)).alu(Op.SQRT)
    angle = _fraction(y, bits, wide).alu(Op.MUL, build.full(2 * math.pi, wide, x.shape))
    return radius.alu(Op.MUL, angle.alu(Op.COS)).cast(dtype)


def _float_type(dtype: object) -> DType:
    wanted = dt.float32 if dtype is None else dt.parse(dtype)
    if not wanted.is_float:
        raise DTypeError(f"dtype: expected a floating type, not {wanted.name}; see randint")
    return wanted


def uniform(
    *size: Any, low: float = 0.0, high: float = 1.0, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers drawn evenly from [`low`, `high`)."""
    check_device(device)
    wanted = _float_type(dtype)

    def scaled(x: UOp, y: UOp) -> UOp:
        return build.add(build.mul(_unit(x, y, wanted), high - low), low)

    out = _draw(check_shape(size), scaled, wanted)
    return out.requires_grad_() if requires_grad else out


def normal(
    *size: Any, mean: float = 0.0, std: float = 1.0, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers drawn from the normal distribution."""
    check_device(device)
    wanted = _float_type(dtype)

    def scaled(x: UOp, y: UOp) -> UOp:
        return build.add(build.mul(_gauss(x, y, wanted), std), mean)

    out = _draw(check_shape(size), scaled, wanted)
    return out.requires_grad_() if requires_grad else out


def rand(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Numbers drawn evenly from [0, 1)."""
    return uniform(*size, dtype=dtype, device=device, requires_grad=requires_grad)


def randn(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Numbers drawn from the standard normal distribution."""
    return normal(*size, dtype=dtype, device=device, requires_grad=requires_grad)


def rand_like(input: Any, dtype: object = None) -> Tensor:  # noqa: A002 - torch's name
    """:func:`rand` in the shape and type of `input`."""
    return rand(*input.shape, dtype=dtype or input.dtype)


def randn_like(input: Any, dtype: object = None) -> Tensor:  # noqa: A002 - torch's name
    """:func:`randn` in the shape and type of `input`."""
    return randn(*input.shape, dtype=dtype or input.dtype)


def randint(low: int, high: int, size: Sequence[Dim], dtype: object = None) -> Tensor:
    """Integers drawn evenly from [`low`, `high`), int64 unless told otherwise.

    Raises
    ------
    ShapeError
        The interval is empty or wider than 2**32.
    """
    wanted = dt.int64 if dtype is None else dt.parse(dtype)
    width = high - low
    if not 0 < width <= 1 << 32:
        raise ShapeError(f"low, high: expected low < high <= low + 2**32, not {low} and {high}")

    def scaled(x: UOp, _y: UOp) -> UOp:
        product = x.cast(dt.uint64).alu(Op.MUL, build.full(width, dt.uint64, x.shape))
        top = product.alu(Op.SHR, build.full(32, dt.uint64, x.shape)).cast(dt.int64)
        return build.add(top, low).cast(wanted)

    return _draw(check_shape((tuple(size),)), scaled, wanted)


def bernoulli(size: Sequence[Dim], p: float) -> Tensor:
    """Bools that are true with probability `p`."""
    limit = round(p * (1 << 24))

    def chosen(x: UOp, _y: UOp) -> UOp:
        top = x.alu(Op.SHR, build.full(8, dt.uint32, x.shape)).cast(dt.int32)
        return top.alu(Op.LT, build.full(limit, dt.int32, x.shape))

    return _draw(tuple(size), chosen, dt.bool_)


# ---- initialization

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def _gain(nonlinearity: str, a: float) -> float:
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + a * a))
    if nonlinearity not in _GAINS:
        names = ", ".join(["leaky_relu", *_GAINS])
        raise ShapeError(f"nonlinearity: {nonlinearity!r} is unknown; expected one of {names}")
    return _GAINS[nonlinearity]


def _fans(size: tuple[Dim, ...]) -> tuple[int, int]:
    """How many inputs and outputs one weight of this shape (out, in, ...) connects."""
    if len(size) < 2 or any(dim_max(d) == 0 for d in size):
        raise ShapeError(f"size: expected at least 2 axes, none empty, not {size}")
    taps = math.prod(dim_max(d) for d in size[2:])
    return dim_max(size[1]) * taps, dim_max(size[0]) * taps


def _fan(size: tuple[Dim, ...], mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f"mode: expected 'fan_in' or 'fan_out', not {mode!r}")
    return _fans(size)[mode == "fan_out"]


def kaiming_uniform(
    *size: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    dtype: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Weights of shape (out, in, ...) that keep the variance of activations (He et al. 2015)."""
    shape = check_shape(size)
    limit = _gain(nonlinearity, a) * math.sqrt(3 / _fan(shape, mode))
    return uniform(shape, low=-limit, high=limit, dtype=dtype, requires_grad=requires_grad)


def kaiming_normal(
    *size: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    dtype: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """As :func:`kaiming_uniform`, from the normal distribution."""
    shape = check_shape(size)
    std = _gain(nonlinearity, a) / math.sqrt(_fan(shape, mode))
    return normal(shape, std=std, dtype=dtype, requires_grad=requires_grad)


def xavier_uniform(
    *size: Any, gain: float = 1.0, dtype: object = None, requires_grad: bool = False
) -> Tensor:
    """Weights that keep the variance forwards and backwards (Glorot and Bengio 2010)."""
    shape = check_shape(size)
    limit = gain * math.sqrt(6 / sum(_fans(shape)))
    return uniform(shape, low=-limit, high=limit, dtype=dtype, requires_grad=requires_grad)


def xavier_normal(
    *size: Any, gain: float = 1.0, dtype: object = None, requires_grad: bool = False
) -> Tensor:
    """As :func:`xavier_uniform`, from the normal distribution."""
    shape = check_shape(size)
    std = gain * math.sqrt(2 / sum(_fans(shape)))
    return normal(shape, std=std, dtype=dtype, requires_grad=requires_grad)
