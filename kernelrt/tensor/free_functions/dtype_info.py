"""PyTorch's queries about types and shapes, and its constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device.dlpack import kind_name
from kernelrt.device.registry import check_device
from kernelrt.errors import DTypeError, ShapeError, SharingError
from kernelrt.ir.shape import broadcast
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.free_functions.creation import (
    _class,
    from_numpy,
    has_memory,
    line_end,
    linspace,
    tensor,
)
from kernelrt.tensor.nodes import promotion
from kernelrt.tensor.nodes.arguments import check_sizes, integer, real, shape_of

if TYPE_CHECKING:
    from kernelrt.dtype import DType
    from kernelrt.ir import Dim
    from kernelrt.tensor.tensor import Tensor

__all__ = ["FloatInfo", "IntInfo", "as_tensor", "asarray", "broadcast_shapes", "can_cast", "finfo",
           "from_dlpack", "get_default_dtype", "iinfo", "is_tensor", "logspace", "promote_types",
           "result_type", "scalar_tensor"]  # fmt: skip


def is_tensor(obj: object) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, TensorBase)


def as_tensor(data: Any, dtype: object = None, device: object = None) -> Tensor:
    """`data` itself where it is a tensor of that type, else a tensor of it.

    A tensor keeps its history. All else is copied, also an array, whose memory
    :func:`kernelrt.from_numpy` shares.
    """
    check_device(device)
    if isinstance(data, TensorBase):
        return data if dtype is None else data.to(dtype)  # type: ignore[return-value, attr-defined]
    return tensor(data, dtype)


def asarray(
    obj: Any, *, dtype: object = None, device: object = None, copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`obj` as a tensor.

    Parameters
    ----------
    obj : Tensor, array, number or nested list of numbers
        The data.
    dtype : DType, str or NumPy dtype, optional
        Type to convert to.
    device : str, optional
        "cpu".
    copy : bool, optional
        True gives memory of its own. False gives `obj` itself where it is a tensor, and shares the
        memory of arrays as :func:`kernelrt.from_numpy` does. None copies all but tensors.
    requires_grad : bool
        Whether to collect gradients.

    Raises
    ------
    SharingError
        `copy` is False, and `obj` has no memory, or one of another type.
    """
    made = _sharing(obj, dtype, device) if copy is False else as_tensor(obj, dtype, device)
    if copy and made is obj:
        made = made.clone()
    if requires_grad:
        made = (made.detach() if made is obj else made).requires_grad_()
    return made


def _sharing(obj: Any, dtype: object, device: object) -> Tensor:
    """`obj` as a tensor that is no copy of it."""
    check_device(device)
    if isinstance(obj, TensorBase):
        made: Tensor = obj  # type: ignore[assignment]
    elif isinstance(obj, np.generic) or not has_memory(obj):
        raise SharingError(
            f"copy: False, but {kind_name(obj)} has no memory to share, and a tensor of it is a "
            "copy; pass copy=None"
        )
    else:
        made = from_numpy(obj)
    if dtype is not None and made.dtype is not dt.parse(dtype):
        raise SharingError(
            f"copy: False, but a tensor of {made.dtype.name} as {dt.parse(dtype).name} is a copy; "
            "pass copy=None"
        )
    return made


def from_dlpack(
    ext_tensor: Any, *, device: object = None, copy: bool | None = None
) -> Tensor:
    """A tensor that shares the memory of another library's tensor.

    Parameters
    ----------
    ext_tensor : object with ``__dlpack__``
        In the memory of the CPU.
    device : str, optional
        "cpu".
    copy : bool, optional
        True copies; False raises ShapeError where memory cannot be shared, because elements do
        not lie one behind the other; None copies there.
    """
    check_device(device)
    if not hasattr(ext_tensor, "__dlpack__"):
        raise DTypeError(
            f"ext_tensor: expected an object with __dlpack__, not {type(ext_tensor).__name__}; "
            "use kernelrt.tensor to copy"
        )
    if copy:
        return tensor(ext_tensor)
    try:
        return from_numpy(ext_tensor)
    except ShapeError:
        if copy is not None:
            raise
        return tensor(ext_tensor)


def scalar_tensor(
    s: bool | float, *, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """A number as a tensor without axes, float32 unless told otherwise."""
    return tensor(s, dt.float32 if dtype is None else dtype, device, requires_grad)


def logspace(
    start: float | TensorBase, end: float | TensorBase, steps: int, base: float = 10.0,
    dtype: object = None, device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`base` to the power of `steps` numbers from `start` to `end`, evenly apart.

    The ends are numbers, or tensors without axes, which get no gradient. Where `dtype` is one of
    integers, they count without their fractions; see :func:`linspace`.
    """
    check_device(device)
    count = integer(steps, "steps", 0)
    wanted = dt.float32 if dtype is None else dt.parse(dtype)
    exact = dt.float64 if wanted is dt.float64 or wanted.is_int else dt.float32
    whole = wanted.is_int and count != 1  # PyTorch's single power is that of the start itself
    first, last = line_end(start, "start", whole=whole), line_end(end, "end", whole=whole)
    powers = linspace(first, last, count, dtype=exact)
    out = (real(base, "base") ** powers).to(wanted)
    return out.requires_grad_() if requires_grad else out


# ---- types


@dataclass(frozen=True)
class FloatInfo:
    """What a floating type holds.

    Attributes
    ----------
    dtype : str
        Its name.
    bits : int
        Width.
    eps : float
        From 1 to the next number above it.
    min, max : float
        The least and the greatest finite number.
    tiny, smallest_normal : float
        The least number above 0 with all digits.
    resolution : float
        Of decimal digits: ``10 ** -digits`` with those that are always kept.
    """

    dtype: str
    bits: int
    eps: float
    min: float
    max: float
    tiny: float
    smallest_normal: float
    resolution: float


@dataclass(frozen=True)
class IntInfo:
    """What an integer type holds: its name, width, and least and greatest number."""

    dtype: str
    bits: int
    min: int
    max: int


def finfo(type: object = None) -> FloatInfo:  # noqa: A002
    """What a floating type holds, float32 unless told otherwise."""
    kind = dt.float32 if type is None else dt.parse(type, "type")
    if not kind.is_float:
        raise DTypeError(f"type: expected a floating type, not {kind.name}; use kernelrt.iinfo")
    digits, exponent = kind.digits, kind.exponent_bits
    most = 2 ** (exponent - 1) - 1
    eps, tiny = 2.0 ** (1 - digits), 2.0 ** (1 - most)
    largest = (2.0 - eps) * 2.0**most
    # C's FLT_DIG: decimal digits that come back unchanged, floor((digits - 1) * log10(2)).
    decimals = int((digits - 1) * np.log10(2.0))
    return FloatInfo(kind.name, kind.bits, eps, -largest, largest, tiny, tiny, 10.0**-decimals)


def iinfo(type: object) -> IntInfo:  # noqa: A002
    """What an integer type holds."""
    kind = dt.parse(type, "type")
    if not kind.is_int:
        raise DTypeError(f"type: expected an integer type, not {kind.name}; use kernelrt.finfo")
    return IntInfo(kind.name, kind.bits, int(kind.min), int(kind.max))


def get_default_dtype() -> DType:
    """float32, the type of what is made of Python's floats."""
    return dt.float32


def promote_types(type1: object, type2: object) -> DType:
    """The type in which tensors of two types meet."""
    return dt.promote(dt.parse(type1, "type1"), dt.parse(type2, "type2"))


def can_cast(from_: object, to: object) -> bool:
    """Whether PyTorch lets an operation write one type to another: never to a lesser category."""
    source, target = dt.parse(from_, "from_"), dt.parse(to, "to")
    rank = {dt.Kind.BOOL: 0, dt.Kind.UINT: 1, dt.Kind.INT: 1, dt.Kind.FLOAT: 2}
    return rank[source.kind] <= rank[target.kind]


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The type of ``tensor1 + tensor2``, where numbers and tensors without axes count for less."""
    kind: Any = _class()
    given = (("tensor1", tensor1), ("tensor2", tensor2))
    host = next((v for _, v in given if isinstance(v, TensorBase)), None)
    if host is None:
        return promotion.result_type([kind(v).uop for _, v in given])
    return promotion.result_type([promotion.operand(cast("Any", host), v, n) for n, v in given])


# ---- shapes


def broadcast_shapes(*shapes: Any) -> tuple[Dim, ...]:
    """The shape to which `shapes`, each a sequence or a number, broadcast.

    Raises
    ------
    ShapeError
        They do not broadcast.
    """
    known = [shape_of((s,), "shapes") for s in shapes]
    for shape in known:
        check_sizes(shape, "shapes")
    return tuple(broadcast(*known)) if known else ()
