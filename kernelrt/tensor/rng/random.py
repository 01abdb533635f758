"""Counter-based random numbers: a seed reproduces a run, and each replay draws new numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kernelrt import dtype as dt
from kernelrt.device.registry import check_device
from kernelrt.errors import DomainError, DTypeError, GradientError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import broadcast, broadcasts_to, dim_max, format_shape, prod
from kernelrt.tensor import state
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.free_functions.creation import check_shape
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import (
    check_floats,
    index_of,
    real,
    sized,
    sized_after,
    take_by_value,
    whole,
)
from kernelrt.tensor.rng.stream import default_generator, source_of
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.dtype import DType
    from kernelrt.tensor import tensor as tensor_module
    from kernelrt.tensor.nodes import data_checks
    from kernelrt.tensor.rng.stream import Generator, Share, Transform
    from kernelrt.tensor.tensor import Tensor
else:
    data_checks = Module("kernelrt.tensor.nodes.data_checks")
    tensor_module = Module("kernelrt.tensor.tensor")

__all__ = ["at_least_zero", "bernoulli", "check_asked", "get_rng_state", "initial_seed",
           "kaiming_normal", "kaiming_uniform", "manual_seed", "normal", "rand", "rand_like",
           "randint", "randint_like", "randn", "randn_like", "seed", "set_rng_state", "uniform",
           "xavier_normal", "xavier_uniform"]  # fmt: skip


def manual_seed(seed: int) -> Generator:
    """Seed the default generator; see :meth:`Generator.manual_seed`.

    Parameters
    ----------
    seed : int
        Number from -2**63 to 2**64 - 1.

    Returns
    -------
    Generator
        The default generator.

    Raises
    ------
    DTypeError
        `seed` is not an int.
    DomainError
        `seed` has more than 64 bits.
    JitError
        A function is being traced.

    Examples
    --------
    >>> _ = krt.manual_seed(3)
    >>> x = krt.rand(2)
    >>> _ = krt.manual_seed(3)
    >>> x.equal(krt.rand(2))
    True
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator with a random number, and return this number.

    Returns
    -------
    int
        The seed, of 64 bits.

    Examples
    --------
    >>> krt.seed() == krt.initial_seed()
    True
    """
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed of the default generator; 2**64 is added to negative seeds.

    Returns
    -------
    int
        The seed; 0 if it was never set.

    Examples
    --------
    >>> krt.manual_seed(3).initial_seed() == krt.initial_seed()
    True
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator, as bytes.

    Returns
    -------
    Tensor
        uint8 of shape (16,); see :meth:`Generator.get_state`.

    Examples
    --------
    >>> state = krt.get_rng_state()
    >>> x = krt.rand(2)
    >>> krt.set_rng_state(state)
    >>> x.equal(krt.rand(2))
    True
    """
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state of the default generator that :func:`get_rng_state` returned.

    Parameters
    ----------
    new_state : Tensor
        uint8 of shape (16,).

    Raises
    ------
    DTypeError
        `new_state` is not a tensor of uint8.
    ShapeError
        `new_state` does not have shape (16,).

    Examples
    --------
    >>> krt.set_rng_state(krt.Generator().manual_seed(3).get_state())
    >>> krt.initial_seed()
    3
    """
    default_generator.set_state(new_state)


def _draw(
    size: tuple[Dim, ...], transform: Transform, dtype: DType, scale: float = 1,
    shift: float = 0, generator: Generator | None = None, share: Share | None = None,
) -> tensor_module.Tensor:  # fmt: skip
    """Draw random numbers of shape `size`; outside a trace they are computed at once."""
    source = source_of(generator)
    if build.has_zero(size):
        return tensor_module.Tensor._of(build.full(0, dtype, size))
    n = prod(size)
    trace = state.local.trace
    if share is not None:
        line = source.node(n, transform, dtype, scale, shift, share)
        return tensor_module.Tensor._of(build.reshape(line, size))
    if trace is not None:
        again = partial(_draw, transform=transform, dtype=dtype, scale=scale, shift=shift,
                        generator=generator)  # fmt: skip
        if (found := trace.drawn(size, again)) is not None:
            return cast("Tensor", found)
        drawn = source.node(n, transform, dtype, scale, shift)
        return tensor_module.Tensor._of(build.reshape(drawn, size))
    if not isinstance(n, int):
        raise ShapeError(
            f"size: expected fixed sizes, not {format_shape(size)}; draw tensors with Variables in "
            "their shape inside a jitted function"
        )
    buffer = source.fill(n, transform, dtype, scale, shift)
    return tensor_module.Tensor._over(buffer, tuple(map(dim_max, size)))


def _fraction(word: UOp, bits: int, dtype: DType) -> UOp:
    """Convert the upper `bits` of a word to a number in [0, 1)."""
    top = word.alu(Op.SHR, build.full(32 - bits, dt.uint32, word.shape))
    # Signed conversion is one instruction everywhere; the value fits for bits < 32.
    number = (top.cast(dt.int32) if bits < 32 else top.cast(dt.int64)).cast(dtype)
    return number.alu(Op.MUL, build.full(2.0**-bits, dtype, word.shape))


# Distributions, as transforms of two words; see stream.Transform.


def _uniform(x: UOp, y: UOp, scale: UOp, shift: UOp, dtype: DType) -> UOp:
    """Return uniform numbers in [0, 1) with all bits of the dtype, then scaled and shifted."""
    if dtype is dt.float64:
        low = build.mul(_fraction(y, 26, dtype), 2.0**-27)
        unit = _fraction(x, 27, dtype).alu(Op.ADD, low)
    else:
        unit = _fraction(x, dtype.digits, dt.float32)
    return build.add(build.mul(unit, scale), shift).cast(dtype)


def _normal(x: UOp, y: UOp, scale: UOp, shift: UOp, dtype: DType) -> UOp:
    """Return standard normal numbers (Box-Muller), then scaled and shifted."""
    wide = scale.dtype
    bits = 32 if wide is dt.float64 else 24
    radius = build.add(_fraction(x, bits, wide), 2.0**-bits).alu(Op.LOG)
    radius = build.mul(radius, -2).alu(Op.SQRT)
    angle = build.mul(_fraction(y, bits, wide), 2 * math.pi)
    gauss = radius.alu(Op.MUL, angle.alu(Op.COS))
    return build.add(build.mul(gauss, scale), shift).cast(dtype)


def _integer(x: UOp, _y: UOp, scale: UOp, shift: UOp, dtype: DType) -> UOp:
    """Return uniform integers in [shift, shift + scale)."""
    product = x.cast(dt.uint64).alu(Op.MUL, scale.cast(dt.uint64))
    top = product.alu(Op.SHR, build.full(32, dt.uint64, x.shape)).cast(dt.int64)
    return build.add(top, shift).cast(dtype)


def _coin(x: UOp, _y: UOp, scale: UOp, _shift: UOp, _dtype: DType) -> UOp:
    """Return bools that are true with probability scale / 2**24."""
    top = x.alu(Op.SHR, build.full(8, dt.uint32, x.shape)).cast(dt.int32)
    return top.alu(Op.LT, scale.cast(dt.int32))


def _float_type(dtype: object) -> DType:
    wanted = dt.float32 if dtype is None else dt.parse(dtype)
    if not wanted.is_float:
        raise DTypeError(
            f"dtype: expected a floating type, not {wanted.name}; use randint to draw integers"
        )
    return wanted


@sized
def uniform(
    *size: Any, low: float = 0.0, high: float = 1.0, dtype: object = None, device: object = None,
    requires_grad: bool = False, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw numbers from the uniform distribution on [`low`, `high`).

    ``low + (high - low) * u`` with u in [0, 1) may round to `high`, as in NumPy.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape of the result.
    low, high : float
        Limits. If they are equal, all numbers are `low`.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor of shape `size`. A jitted function draws new numbers in each run.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    DomainError
        `low` is greater than `high`.
    ShapeError
        A size is negative.

    Examples
    --------
    >>> x = krt.uniform(100, low=2.0, high=3.0)
    >>> x.amin().item() >= 2, x.amax().item() <= 3
    (True, True)
    """
    check_device(device)
    if not isinstance(low, TensorBase) and not isinstance(high, TensorBase):
        low, high = real(low, "low"), real(high, "high")
        if not low <= high:
            raise DomainError(f"low, high: expected low <= high, not {low} and {high}")
    out = _draw(check_shape(size), _uniform, _float_type(dtype), high - low, low, generator)
    return out.requires_grad_() if requires_grad else out


@sized_after(2)
def normal(
    *size: Any, mean: Any = 0.0, std: Any = 1.0, dtype: object = None, device: object = None,
    requires_grad: bool = False, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw numbers from the normal distribution.

    As in PyTorch, the mean and standard deviation can come first: ``normal(mean, std)`` if at
    least one is a tensor, and ``normal(0.0, 1.0, (2, 3))`` for two numbers. Numbers alone are a
    size: ``normal(2, 3, mean=0.0)``. Without a size, the result has the shape that `mean` and
    `std` broadcast to.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape of the result.
    mean, std : float or Tensor of floats
        Mean and standard deviation, which is at least 0. Tensors get no gradient.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor. A jitted function draws new numbers in each run.

    Raises
    ------
    DomainError
        `std` is below 0. Or, at run time, `std` is a tensor with an element below 0.
    ShapeError
        `mean` and `std` do not broadcast to the size.
    DTypeError
        `mean` or `std` is a tensor that is not floating, or `dtype` is no floating dtype.

    Examples
    --------
    >>> krt.normal(2, 3, mean=5.0).shape
    (2, 3)
    >>> krt.normal(krt.tensor([1.0, 2.0]), 0.0).tolist()
    [1.0, 2.0]
    """
    check_device(device)
    place = None
    if len(size) > 1 and isinstance(size[-1], tuple | list):
        *first, place = size
        size = tuple(first)
    tensors = any(isinstance(v, TensorBase) for v in size)
    # As in normal(3, std=deviations): the first argument of PyTorch is the mean.
    alone = len(size) == 1 and not isinstance(size[0], tuple | list)
    if size and (place is not None or tensors or (alone and isinstance(std, TensorBase))):
        if len(size) > 2:
            raise ShapeError(
                "normal: expected a mean, a standard deviation and a size, as in "
                f"normal(mean, 1.0, (2, 3)), not {size}"
            )
        mean, *rest = size
        std, size = rest[0] if rest else std, ()
    if size or place is not None:
        mean, std = take_by_value(mean), take_by_value(std)
    if not isinstance(std, TensorBase):
        std = at_least_zero(std, "std")
    taken = check_shape(size if place is None else (place,)) if size or place is not None else None
    if isinstance(mean, TensorBase) or isinstance(std, TensorBase):
        return _normal_around(mean, std, taken, dtype, generator, requires_grad=requires_grad)
    out = _draw(taken or (), _normal, _float_type(dtype), std, mean, generator)
    return out.requires_grad_() if requires_grad else out


def at_least_zero(value: Any, name: str) -> float:
    """Return `value` as a float; raise DomainError if it is below 0 or NaN."""
    number = real(value, name)
    if not number >= 0:
        raise DomainError(f"{name}: expected a number of at least 0, not {value}")
    return number


def _normal_around(
    mean: Any, std: Any, wanted: tuple[Dim, ...] | None, dtype: object,
    generator: Generator | None, *, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Draw normal numbers with tensors as mean or std, of shape `wanted` or the broadcast shape."""
    given = [v for v in (mean, std) if isinstance(v, TensorBase)]
    for name, value in (("mean", mean), ("std", std)):
        if isinstance(value, TensorBase):
            check_floats(value.dtype, name)
    kind = dt.promote(*(v.dtype for v in given)) if dtype is None else _float_type(dtype)
    size = broadcast(*(v.dims for v in given))
    if wanted is not None:
        if not broadcasts_to(size, wanted):
            raise ShapeError(
                f"size: mean and std of shape {format_shape(size)} do not broadcast to "
                f"{format_shape(wanted)}; leave size out to draw numbers of their shape"
            )
        size = wanted
    noise = _draw(size, _normal, kind.accumulator, generator=generator)
    with state.no_grad():
        out: Tensor = (noise * std + mean).cast(kind)
        if isinstance(std, TensorBase):
            out = data_checks.if_each(out, cast("Any", std).expand(size), 0, math.inf, "std")
    return out.requires_grad_() if requires_grad else out


@sized
def rand(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw numbers from the uniform distribution on [0, 1).

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape of the result.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor of shape `size`. A jitted function draws new numbers in each run.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    ShapeError
        A size is negative.

    Examples
    --------
    >>> x = krt.rand(2, 3)
    >>> x.shape, ((x >= 0) & (x < 1)).all().item()
    ((2, 3), True)
    """
    return uniform(
        *size, dtype=dtype, device=device, requires_grad=requires_grad, generator=generator
    )


@sized
def randn(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw numbers from the standard normal distribution.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape of the result.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor of shape `size`. A jitted function draws new numbers in each run.

    Raises
    ------
    DTypeError
        `dtype` is no floating dtype.
    ShapeError
        A size is negative.

    Examples
    --------
    >>> x = krt.randn(100_000)
    >>> abs(x.mean().item()) < 0.05, abs(x.std().item() - 1) < 0.05
    (True, True)
    """
    return normal(
        *size, dtype=dtype, device=device, requires_grad=requires_grad, generator=generator
    )


def rand_like(
    input: Any, dtype: object = None, device: object = None, requires_grad: bool = False,  # noqa: A002 - torch's name
    *, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw uniform numbers like :func:`rand`, in the shape and dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Tensor whose shape and dtype to use.
    dtype : DType or str, optional
        Another floating dtype.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor.

    Raises
    ------
    DTypeError
        The dtype is not floating.

    Examples
    --------
    >>> krt.rand_like(krt.zeros(2, 3)).shape
    (2, 3)
    """
    return uniform(
        input.shape, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad,
        generator=generator,
    )  # fmt: skip


def randn_like(
    input: Any, dtype: object = None, device: object = None, requires_grad: bool = False,  # noqa: A002 - torch's name
    *, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw normal numbers like :func:`randn`, in the shape and dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Tensor whose shape and dtype to use.
    dtype : DType or str, optional
        Another floating dtype.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor.

    Raises
    ------
    DTypeError
        The dtype is not floating.

    Examples
    --------
    >>> krt.randn_like(krt.zeros(2, 3)).shape
    (2, 3)
    """
    return normal(
        input.shape, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad,
        generator=generator,
    )  # fmt: skip


def randint_like(
    input: Any, low: Any = 0, high: Any = None, dtype: object = None, device: object = None,  # noqa: A002 - torch's name
    requires_grad: bool = False, *, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw integers like :func:`randint`, in the shape and dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Tensor whose shape and dtype to use.
    low, high : int
        Limits: integers from `low` to `high` - 1. A single number is `high`, with `low` 0.
    dtype : DType or str, optional
        Another dtype.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``; only for floats.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor.

    Raises
    ------
    DomainError
        The interval is empty.
    DTypeError
        The dtype cannot represent all integers of the interval.

    Examples
    --------
    >>> krt.randint_like(krt.zeros(2, 3), 7, 8).tolist()
    [[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]]
    """
    if high is None:
        low, high = 0, low
    return randint(
        low, high, input.shape, dtype or input.dtype, generator, device=device,
        requires_grad=requires_grad,
    )  # fmt: skip


def randint(
    low: Any = 0, high: Any = None, size: Sequence[Dim] | None = None, dtype: object = None,
    generator: Generator | None = None, *, device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Draw integers uniformly from [`low`, `high`).

    With one bound, as in ``randint(10, (3,))``, the bound is `high`, and `low` is 0.

    Parameters
    ----------
    low, high : int
        Limits: integers from `low` to `high` - 1.
    size : sequence of int
        Shape of the result.
    dtype : DType or str, optional
        Dtype of the result; int64 by default.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``; only for a floating `dtype`.

    Returns
    -------
    Tensor
        New tensor of shape `size`. A jitted function draws new numbers in each run.

    Raises
    ------
    DomainError
        The interval is empty.
    DTypeError
        `dtype` cannot represent all integers of the interval, or there is no `size`.
    GradientError
        `requires_grad` is True, and `dtype` is not floating.

    Notes
    -----
    In an interval of n <= 2**32 numbers, each has the probability 1 / n up to a relative error of
    n / 2**32. In wider intervals the relative error is at most 2**-32.

    Examples
    --------
    >>> krt.randint(7, 8, (2, 3)).tolist()
    [[7, 7, 7], [7, 7, 7]]
    >>> x = krt.randint(6, (100,))
    >>> x.amin().item() >= 0, x.amax().item() < 6
    (True, True)
    """
    check_device(device)
    if size is None and isinstance(high, tuple | list):
        high, size = None, high
    if high is None:
        low, high = 0, low
    if size is None:
        raise DTypeError("size: expected a shape for the result, as in randint(10, (3,)), not None")
    first, limit = whole(index_of(low, "low")), whole(index_of(high, "high"))
    if first is None or limit is None:
        raise DTypeError(f"low, high: expected integers, not {low!r} and {high!r}")
    low, high, width = first, limit, limit - first
    if width <= 0:
        raise DomainError(f"low, high: expected low < high, not {low} and {high}")
    wanted = dt.int64 if dtype is None else dt.parse(dtype)
    least, most = wanted.min, wanted.max
    if wanted.is_float:  # it represents every integer in this range
        most = 1 << wanted.digits
        least = -most
    if not least <= low < high <= most + 1:
        raise DTypeError(
            f"dtype: {wanted.name} cannot represent all integers from {low} to {high - 1}; choose "
            "a wider dtype"
        )
    check_asked(wanted, requires_grad=requires_grad)
    shape = check_shape((size,))
    if wanted.is_float:
        out = randint(low, high, shape, generator=generator).cast(wanted)
        return out.requires_grad_() if requires_grad else out
    start = low if low < 1 << 63 else low - (1 << 64)  # sums wrap
    if width > 1 << 32:
        drawn = _wide_integer(shape, width, generator) + low % (1 << 64)
        return cast("Tensor", drawn.cast(wanted))
    return _draw(shape, _integer, wanted, width, start, generator)


def _wide_integer(size: tuple[Dim, ...], width: int, generator: Generator | None) -> Tensor:
    """Return uniform uint64 in [0, width), width <= 2**64: `width` times a fraction of 96 bits."""

    def word() -> Tensor:
        return _draw(size, _integer, dt.uint64, 1 << 32, 0, generator)

    if width == 1 << 64:
        return word() * (1 << 32) + word()
    high, low = divmod(width, 1 << 32)
    found: Any = 0
    for _ in range(3):
        digit = word()
        # (width * digit + found) / 2**32, whose parts fit into 64 bits.
        rest = (digit * low + (found & 0xFFFFFFFF)) >> 32
        found = digit * high + (found >> 32) + rest
    return cast("Tensor", found)


def check_asked(dtype: DType, *, requires_grad: bool) -> None:
    """Raise GradientError, before drawing, if a gradient is requested of integers."""
    if requires_grad and not dtype.is_float:
        raise GradientError(
            f"requires_grad: gradients need a floating dtype, not {dtype.name}; pass False"
        )


def bernoulli(size: Sequence[Dim], p: float) -> Tensor:
    """Draw bools that are true with probability `p`."""
    return _draw(tuple(size), _coin, dt.bool_, round(p * (1 << 24)))


# ---- initialization

_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def _gain(nonlinearity: str, a: float) -> float:
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + a * a))
    if nonlinearity not in _GAINS:
        names = ", ".join(["leaky_relu", *_GAINS])
        raise DomainError(f"nonlinearity: expected one of {names}, not {nonlinearity!r}")
    return _GAINS[nonlinearity]


def _fans(size: tuple[Dim, ...]) -> tuple[int, int]:
    """Return fan-in and fan-out of a weight of shape (out, in, ...)."""
    known = [d for d in size if isinstance(d, int) and d > 0]
    if len(size) < 2 or len(known) < len(size):
        raise ShapeError(
            "size: expected at least 2 axes, all of fixed sizes above 0, not shape "
            f"{format_shape(size)}"
        )
    taps = math.prod(known[2:])
    return known[1] * taps, known[0] * taps


def _fan(size: tuple[Dim, ...], mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise DomainError(f"mode: expected 'fan_in' or 'fan_out', not {mode!r}")
    return _fans(size)[mode == "fan_out"]


@sized
def kaiming_uniform(
    *size: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    dtype: object = None, device: object = None, requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw weights of shape (out, in, ...) that preserve activation variance (He et al. 2015).

    The numbers are uniform between plus and minus ``gain * sqrt(3 / n)``.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape (out, in, ...) of the weights.
    a : float
        Slope of leaky_relu for negative numbers.
    mode : "fan_in" or "fan_out"
        With "fan_in", n is ``in``, which preserves the variance of activations. With "fan_out", n
        is ``out``, which preserves the variance of gradients. Both are multiplied by the sizes of
        the other axes.
    nonlinearity : str
        Function after the layer, which determines the gain: "leaky_relu"
        (``sqrt(2 / (1 + a ** 2))``), "relu" (``sqrt(2)``), "tanh" (5 / 3), "selu" (0.75),
        "linear" or "sigmoid" (1).
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor of shape `size`.

    Raises
    ------
    DomainError
        `mode` or `nonlinearity` is unknown.
    ShapeError
        There are fewer than two axes, or a size is 0.
    DTypeError
        `dtype` is no floating dtype.

    Notes
    -----
    K. He, X. Zhang, S. Ren and J. Sun, Delving deep into rectifiers: Surpassing human-level
    performance on ImageNet classification, 2015.

    Examples
    --------
    >>> x = krt.kaiming_uniform(10, 6)
    >>> x.shape, x.abs().amax().item() <= 1.0
    ((10, 6), True)
    """
    shape = check_shape(size)
    limit = _gain(nonlinearity, a) * math.sqrt(3 / _fan(shape, mode))
    return uniform(
        shape, low=-limit, high=limit, dtype=dtype, device=device, requires_grad=requires_grad,
        generator=generator,
    )  # fmt: skip


@sized
def kaiming_normal(
    *size: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    dtype: object = None, device: object = None, requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw weights like :func:`kaiming_uniform`, from the normal distribution.

    Its standard deviation is ``gain / sqrt(n)``.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape (out, in, ...) of the weights.
    a : float
        Slope of leaky_relu for negative numbers.
    mode : "fan_in" or "fan_out"
        With "fan_in", n is ``in``, which preserves the variance of activations. With "fan_out", n
        is ``out``, which preserves the variance of gradients. Both are multiplied by the sizes of
        the other axes.
    nonlinearity : str
        Function after the layer, which determines the gain: "leaky_relu"
        (``sqrt(2 / (1 + a ** 2))``), "relu" (``sqrt(2)``), "tanh" (5 / 3), "selu" (0.75),
        "linear" or "sigmoid" (1).
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor of shape `size`.

    Raises
    ------
    DomainError
        `mode` or `nonlinearity` is unknown.
    ShapeError
        There are fewer than two axes, or a size is 0.
    DTypeError
        `dtype` is no floating dtype.

    Notes
    -----
    K. He, X. Zhang, S. Ren and J. Sun, Delving deep into rectifiers: Surpassing human-level
    performance on ImageNet classification, 2015.

    Examples
    --------
    >>> krt.kaiming_normal(10, 6).shape
    (10, 6)
    """
    shape = check_shape(size)
    std = _gain(nonlinearity, a) / math.sqrt(_fan(shape, mode))
    return normal(
        shape, std=std, dtype=dtype, device=device, requires_grad=requires_grad,
        generator=generator,
    )  # fmt: skip


@sized
def xavier_uniform(
    *size: Any, gain: float = 1.0, dtype: object = None, device: object = None,
    requires_grad: bool = False, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw weights that preserve the variance forward and backward (Glorot and Bengio 2010).

    The numbers are uniform between plus and minus ``gain * sqrt(6 / (fan_in + fan_out))``. The two
    fans are ``in`` and ``out``, each times the sizes of the other axes.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape (out, in, ...) of the weights.
    gain : float
        Factor of the weights.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor of shape `size`.

    Raises
    ------
    DomainError
        `gain` is below 0.
    ShapeError
        There are fewer than two axes, or a size is 0.
    DTypeError
        `dtype` is no floating dtype.

    Notes
    -----
    X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward neural
    networks, 2010.

    Examples
    --------
    >>> x = krt.xavier_uniform(2, 4)
    >>> x.shape, x.abs().amax().item() <= 1.0
    ((2, 4), True)
    """
    shape = check_shape(size)
    limit = gain * math.sqrt(6 / sum(_fans(shape)))
    return uniform(
        shape, low=-limit, high=limit, dtype=dtype, device=device, requires_grad=requires_grad,
        generator=generator,
    )  # fmt: skip


@sized
def xavier_normal(
    *size: Any, gain: float = 1.0, dtype: object = None, device: object = None,
    requires_grad: bool = False, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Draw weights like :func:`xavier_uniform`, from the normal distribution.

    Its standard deviation is ``gain * sqrt(2 / (fan_in + fan_out))``. The two fans are ``in`` and
    ``out``, each times the sizes of the other axes.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape (out, in, ...) of the weights.
    gain : float
        Factor of the weights.
    dtype : DType or str, optional
        Floating dtype; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.
    generator : Generator, optional
        Generator to draw from; by default the one that :func:`manual_seed` seeds.

    Returns
    -------
    Tensor
        New tensor of shape `size`.

    Raises
    ------
    DomainError
        `gain` is below 0.
    ShapeError
        There are fewer than two axes, or a size is 0.
    DTypeError
        `dtype` is no floating dtype.

    Notes
    -----
    X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward neural
    networks, 2010.

    Examples
    --------
    >>> krt.xavier_normal(2, 4).shape
    (2, 4)
    """
    shape = check_shape(size)
    std = gain * math.sqrt(2 / sum(_fans(shape)))
    return normal(
        shape, std=std, dtype=dtype, device=device, requires_grad=requires_grad,
        generator=generator,
    )  # fmt: skip
