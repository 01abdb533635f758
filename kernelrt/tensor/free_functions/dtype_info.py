"""PyTorch's functions for dtypes and shapes, and conversions to tensors."""

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
    """Return whether `obj` is a Tensor.

    Parameters
    ----------
    obj : object
        Object of any type.

    Examples
    --------
    >>> krt.is_tensor(krt.zeros(2)), krt.is_tensor([0.0])
    (True, False)
    """
    return isinstance(obj, TensorBase)


def as_tensor(data: Any, dtype: object = None, device: object = None) -> Tensor:
    """Return `data` itself if it is a tensor of the given dtype; convert other data.

    A tensor keeps its autograd history. Other data is copied, including NumPy arrays; to share the
    memory of an array, use :func:`kernelrt.from_numpy`.

    Parameters
    ----------
    data : Tensor, array, number or nested list of numbers
        Data to convert.
    dtype : DType, str or NumPy dtype, optional
        Dtype to convert to.
    device : str, optional
        Device of the result; "cpu" is the only one.

    Returns
    -------
    Tensor
        `data`, or a new tensor.

    Examples
    --------
    >>> x = krt.as_tensor([1, 2])
    >>> krt.as_tensor(x) is x, krt.as_tensor(x, krt.float32).tolist()
    (True, [1.0, 2.0])
    """
    check_device(device)
    if isinstance(data, TensorBase):
        return data if dtype is None else data.to(dtype)  # type: ignore[return-value, attr-defined]
    return tensor(data, dtype)


def asarray(
    obj: Any, *, dtype: object = None, device: object = None, copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Convert `obj` to a tensor.

    Parameters
    ----------
    obj : Tensor, array, number or nested list of numbers
        Data to convert.
    dtype : DType, str or NumPy dtype, optional
        Dtype to convert to.
    device : str, optional
        Device of the result; "cpu" is the only one.
    copy : bool, optional
        True always copies. False returns a tensor unchanged and shares the memory of an array, as
        :func:`kernelrt.from_numpy` does. None copies everything except tensors.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        `obj`, or a new tensor of its shape.

    Raises
    ------
    SharingError
        `copy` is False, but `obj` has no memory to share, or has another dtype.

    Examples
    --------
    >>> array = np.zeros(2)
    >>> x = krt.asarray(array, copy=False)
    >>> array[0] = 5
    >>> x.tolist()
    [5.0, 0.0]
    """
    made = _sharing(obj, dtype, device) if copy is False else as_tensor(obj, dtype, device)
    if copy and made is obj:
        made = made.clone()
    if requires_grad:
        made = (made.detach() if made is obj else made).requires_grad_()
    return made


def _sharing(obj: Any, dtype: object, device: object) -> Tensor:
    """Convert `obj` to a tensor without a copy; raise SharingError if that is impossible."""
    check_device(device)
    if isinstance(obj, TensorBase):
        made: Tensor = obj  # type: ignore[assignment]
    elif isinstance(obj, np.generic) or not has_memory(obj):
        raise SharingError(
            f"copy: False forbids a copy, but {kind_name(obj)} has no memory to share; pass "
            "copy=None"
        )
    else:
        made = from_numpy(obj)
    if dtype is not None and made.dtype is not dt.parse(dtype):
        raise SharingError(
            f"copy: False forbids a copy, but the conversion from {made.dtype.name} to "
            f"{dt.parse(dtype).name} needs one; pass copy=None"
        )
    return made


def from_dlpack(
    ext_tensor: Any, *, device: object = None, copy: bool | None = None
) -> Tensor:
    """Return a tensor that shares the memory of another library's tensor.

    Parameters
    ----------
    ext_tensor : object with ``__dlpack__``
        Tensor in CPU memory.
    device : str, optional
        Device of the result; "cpu" is the only one.
    copy : bool, optional
        True always copies. False raises ShapeError if the memory cannot be shared because the
        elements are not contiguous. None copies in this case.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `ext_tensor`.

    Raises
    ------
    DTypeError
        `ext_tensor` has no ``__dlpack__``, or kernelrt has no dtype for its elements.
    ShapeError
        `copy` is False, and the elements are not contiguous.

    Examples
    --------
    >>> krt.from_dlpack(np.ones((2, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
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
    """Return a number as a tensor without axes, float32 by default.

    Parameters
    ----------
    s : number
        Value of the tensor.
    dtype : DType or str, optional
        Dtype of the result, whatever type `s` has.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        Tensor of shape ().

    Examples
    --------
    >>> krt.scalar_tensor(3).item(), krt.tensor(3).item()
    (3.0, 3)
    """
    return tensor(s, dt.float32 if dtype is None else dtype, device, requires_grad)


def logspace(
    start: float | TensorBase, end: float | TensorBase, steps: int, base: float = 10.0,
    dtype: object = None, device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return `base` raised to `steps` evenly spaced exponents from `start` to `end`.

    Parameters
    ----------
    start, end : float or Tensor without axes
        First and last exponent. Tensors get no gradient. An integer `dtype` truncates both.
    steps : int
        Count of numbers, at least 0.
    base : float
        Base of the powers.
    dtype : DType or str, optional
        Dtype of the result; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients.

    Returns
    -------
    Tensor
        Vector of shape (steps,).

    Raises
    ------
    ShapeError
        An end has axes, or `steps` is negative.

    Examples
    --------
    >>> krt.logspace(0, 3, 4, base=2).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    check_device(device)
    count = integer(steps, "steps", 0)
    wanted = dt.float32 if dtype is None else dt.parse(dtype)
    exact = dt.float64 if wanted is dt.float64 or wanted.is_int else dt.float32
    whole = wanted.is_int and count != 1  # for one number, PyTorch does not truncate the start
    first, last = line_end(start, "start", whole=whole), line_end(end, "end", whole=whole)
    powers = linspace(first, last, count, dtype=exact)
    out = (real(base, "base") ** powers).to(wanted)
    return out.requires_grad_() if requires_grad else out


# ---- types


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating dtype.

    Attributes
    ----------
    dtype : str
        Name of the dtype.
    bits : int
        Width in bits.
    eps : float
        Distance from 1 to the next larger number.
    min, max : float
        Least and greatest finite number.
    tiny, smallest_normal : float
        Smallest positive normal number.
    resolution : float
        ``10 ** -digits``, where `digits` is the number of decimal digits that are always kept.
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
    """The limits of an integer dtype.

    Attributes
    ----------
    dtype : str
        Name of the dtype.
    bits : int
        Width in bits.
    min, max : int
        Least and greatest number.
    """

    dtype: str
    bits: int
    min: int
    max: int


def finfo(type: object = None) -> FloatInfo:  # noqa: A002
    """Return the limits of a floating dtype, by default float32.

    Parameters
    ----------
    type : DType, str or NumPy dtype, optional
        Floating dtype.

    Returns
    -------
    FloatInfo
        Record with the fields of :class:`FloatInfo`.

    Raises
    ------
    DTypeError
        `type` is no floating dtype.

    Examples
    --------
    >>> krt.finfo(krt.float16).max
    65504.0
    """
    kind = dt.float32 if type is None else dt.parse(type, "type")
    if not kind.is_float:
        hint = "; use kernelrt.iinfo" if kind.is_int else ""
        raise DTypeError(f"type: expected a floating type, not {kind.name}{hint}")
    digits, exponent = kind.digits, kind.exponent_bits
    most = 2 ** (exponent - 1) - 1
    eps, tiny = 2.0 ** (1 - digits), 2.0 ** (1 - most)
    largest = (2.0 - eps) * 2.0**most
    # As FLT_DIG in C: decimal digits that survive a round trip, floor((digits - 1) * log10(2)).
    decimals = int((digits - 1) * np.log10(2.0))
    return FloatInfo(kind.name, kind.bits, eps, -largest, largest, tiny, tiny, 10.0**-decimals)


def iinfo(type: object) -> IntInfo:  # noqa: A002
    """Return the limits of an integer dtype.

    Parameters
    ----------
    type : DType, str or NumPy dtype
        Integer dtype.

    Returns
    -------
    IntInfo
        Record with the fields of :class:`IntInfo`.

    Raises
    ------
    DTypeError
        `type` is no integer dtype.

    Examples
    --------
    >>> krt.iinfo(krt.int8).min, krt.iinfo(krt.int8).max
    (-128, 127)
    """
    kind = dt.parse(type, "type")
    if not kind.is_int:
        hint = "; use kernelrt.finfo" if kind.is_float else ""
        raise DTypeError(f"type: expected an integer type, not {kind.name}{hint}")
    return IntInfo(kind.name, kind.bits, int(kind.min), int(kind.max))


def get_default_dtype() -> DType:
    """Return float32, the dtype of tensors made from Python floats.

    Examples
    --------
    >>> krt.get_default_dtype()
    kernelrt.float32
    """
    return dt.float32


def promote_types(type1: object, type2: object) -> DType:
    """Return the dtype that operations on tensors of two dtypes promote to.

    Parameters
    ----------
    type1, type2 : DType, str or NumPy dtype
        Dtypes of two tensors with axes.

    Returns
    -------
    DType
        Dtype of their sum.

    Examples
    --------
    >>> krt.promote_types(krt.int8, krt.uint8), krt.promote_types(krt.int64, krt.float16)
    (kernelrt.int16, kernelrt.float16)
    """
    return dt.promote(dt.parse(type1, "type1"), dt.parse(type2, "type2"))


def can_cast(from_: object, to: object) -> bool:
    """Return whether an operation may write one dtype to another.

    As in PyTorch, the dtype category must not become smaller (bool < integer < float).

    Parameters
    ----------
    from_, to : DType, str or NumPy dtype
        Dtype of the values, and of the tensor that they are written to.

    Returns
    -------
    bool
        Whether the category of `to` is that of `from_` or a greater one.

    Examples
    --------
    >>> krt.can_cast(krt.float32, krt.int64), krt.can_cast(krt.int64, krt.int8)
    (False, True)
    """
    source, target = dt.parse(from_, "from_"), dt.parse(to, "to")
    rank = {dt.Kind.BOOL: 0, dt.Kind.UINT: 1, dt.Kind.INT: 1, dt.Kind.FLOAT: 2}
    return rank[source.kind] <= rank[target.kind]


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """Return the dtype of ``tensor1 + tensor2``.

    Numbers and tensors without axes count less in type promotion than tensors with axes.

    Parameters
    ----------
    tensor1, tensor2 : Tensor or number
        Operands.

    Returns
    -------
    DType
        Dtype of the sum.

    Examples
    --------
    >>> x = krt.tensor([1, 2], dtype=krt.int8)
    >>> krt.result_type(x, 3), krt.result_type(x, 0.5)
    (kernelrt.int8, kernelrt.float32)
    """
    kind: Any = _class()
    given = (("tensor1", tensor1), ("tensor2", tensor2))
    host = next((v for _, v in given if isinstance(v, TensorBase)), None)
    if host is None:
        return promotion.result_type([kind(v).uop for _, v in given])
    return promotion.result_type([promotion.operand(cast("Any", host), v, n) for n, v in given])


# ---- shapes


def broadcast_shapes(*shapes: Any) -> tuple[Dim, ...]:
    """Return the shape that `shapes`, each a sequence or a number, broadcast to.

    Parameters
    ----------
    *shapes : int or sequence of int
        Shapes; a number is the shape of a vector.

    Returns
    -------
    tuple of int
        The common shape.

    Raises
    ------
    ShapeError
        The shapes are not compatible.

    Examples
    --------
    >>> krt.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    known = [shape_of((s,), "shapes") for s in shapes]
    for shape in known:
        check_sizes(shape, "shapes")
    return tuple(broadcast(*known)) if known else ()
