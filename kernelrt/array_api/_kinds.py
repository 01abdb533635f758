"""The standard's queries about types and capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import kernelrt as krt
from kernelrt import Tensor
from kernelrt import dtype as dt
from kernelrt.device.registry import check_device
from kernelrt.errors import DTypeError
from kernelrt.native.array_handle import MAX_DIMS

if TYPE_CHECKING:
    from kernelrt import DType

__all__ = ["Info", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_SIGNED: Final = (dt.int8, dt.int16, dt.int32, dt.int64)
_UNSIGNED: Final = (dt.uint8, dt.uint16, dt.uint32, dt.uint64)
_REAL: Final = (dt.float32, dt.float64)

#: The standard's type categories and their types.
_KINDS: Final = {
    "bool": (dt.bool_,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": (),
    "numeric": _SIGNED + _UNSIGNED + _REAL,
}  # fmt: skip


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating type: like ``kernelrt.finfo``, with the type itself as ``dtype``.

    Attributes
    ----------
    bits : int
        Size of an element in bits.
    eps : float
        Difference between 1 and the next greater number.
    max, min : float
        Greatest and least finite number.
    smallest_normal : float
        Least positive number with full precision.
    dtype : DType
        The type.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntInfo:
    """Limits of an integer type: like ``kernelrt.iinfo``, with the type itself as ``dtype``.

    Attributes
    ----------
    bits : int
        Size of an element in bits.
    max, min : int
        Greatest and least number.
    dtype : DType
        The type.
    """

    bits: int
    max: int
    min: int
    dtype: DType


def astype(x: Tensor, dtype: object, /, *, copy: bool = True, device: object = None) -> Tensor:
    """Cast `x` to a type; without `copy`, return `x` itself if it has that type.

    Parameters
    ----------
    x : Tensor
        Numbers of any shape.
    dtype : DType
        Type of the result.
    copy : bool
        Whether to return a copy even if `x` has this type already.
    device : optional
        "cpu", the only device.

    Returns
    -------
    Tensor
        The shape of `x`; floats are rounded toward 0 for integers.

    Examples
    --------
    >>> krt.array_api.astype(krt.tensor([1.5, -2.5]), krt.int32).tolist()
    [1, -2]
    """
    check_device(device)
    out = x.cast(dtype)
    return x.clone() if copy and out is x else out


def _type_of(value: object, name: str) -> DType:
    return value.dtype if isinstance(value, Tensor) else dt.parse(value, name)


def can_cast(from_: object, to: object, /) -> bool:
    """Return whether a type can represent all values of another type, or of a tensor's type.

    Parameters
    ----------
    from_ : DType or Tensor
        Type to cast from.
    to : DType
        Type to cast to.

    Returns
    -------
    bool
        True if the cast changes no value.

    Examples
    --------
    >>> krt.array_api.can_cast(krt.int8, krt.int16), krt.array_api.can_cast(krt.int64, krt.float32)
    (True, False)
    """
    return dt.contains(_type_of(to, "to"), _type_of(from_, "from_"))


def finfo(type: object, /) -> FloatInfo:
    """Return the limits of a floating type, or of a tensor's type.

    Parameters
    ----------
    type : DType or Tensor
        Floating type, or a tensor of it.

    Returns
    -------
    FloatInfo
        The limits.

    Raises
    ------
    DTypeError
        The type is not a floating type.

    Examples
    --------
    >>> krt.array_api.finfo(krt.float32).bits, krt.array_api.finfo(krt.float32).eps == 2.0**-23
    (32, True)
    """
    kind = _type_of(type, "type")
    info = krt.finfo(kind)
    return FloatInfo(info.bits, info.eps, info.max, info.min, info.smallest_normal, kind)


def iinfo(type: object, /) -> IntInfo:
    """Return the limits of an integer type, or of a tensor's type.

    Parameters
    ----------
    type : DType or Tensor
        Integer type, or a tensor of it.

    Returns
    -------
    IntInfo
        The limits.

    Raises
    ------
    DTypeError
        The type is not an integer type.

    Examples
    --------
    >>> info = krt.array_api.iinfo(krt.int8)
    >>> info.min, info.max
    (-128, 127)
    """
    kind = _type_of(type, "type")
    info = krt.iinfo(kind)
    return IntInfo(info.bits, info.max, info.min, kind)


def isdtype(dtype: object, kind: object) -> bool:
    """Return whether a type belongs to a category.

    Parameters
    ----------
    dtype : DType
        The type.
    kind : DType, str or tuple of these
        A type to compare with, or "bool", "signed integer", "unsigned integer", "integral",
        "real floating", "complex floating" or "numeric". Half types are real floating.

    Returns
    -------
    bool
        True if `kind` is this type, a category that contains it, or a tuple with such an item.

    Raises
    ------
    DTypeError
        `kind` is neither a type nor a category.

    Examples
    --------
    >>> krt.array_api.isdtype(krt.int8, "integral")
    True
    >>> krt.array_api.isdtype(krt.int8, ("bool", "real floating"))
    False
    """
    found = dt.parse(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise DTypeError(
                f"kind: expected a dtype or one of {', '.join(map(repr, _KINDS))}, not {kind!r}"
            )
        return found in _KINDS[kind] or (found.is_float and dt.float32 in _KINDS[kind])
    return found is dt.parse(kind, "kind")


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the promoted type of tensors, types and Python numbers; 0-d tensors count fully.

    Parameters
    ----------
    *arrays_and_dtypes : Tensor, DType or number
        At least one Tensor or type. A Python number counts only if its kind is higher than theirs.

    Returns
    -------
    DType
        The type of an operation on all of them.

    Raises
    ------
    DTypeError
        There is neither a Tensor nor a type.

    Examples
    --------
    >>> krt.array_api.result_type(krt.int8, krt.uint8), krt.array_api.result_type(krt.int8, 1.5)
    (kernelrt.int16, kernelrt.float32)
    """
    numbers = [v for v in arrays_and_dtypes if isinstance(v, bool | int | float)]
    kinds = [
        _type_of(v, "arrays_and_dtypes")
        for v in arrays_and_dtypes
        if not isinstance(v, bool | int | float)
    ]
    if not kinds:
        raise DTypeError(
            "arrays_and_dtypes: expected at least one tensor or dtype, not only Python numbers"
        )
    found = dt.promote(*kinds)
    for number in numbers:
        found = dt.of_scalar(number, found)
    return found


class Info:
    """Capabilities of the namespace.

    Result of ``kernelrt.array_api.__array_namespace_info__()``.

    Examples
    --------
    >>> info = krt.array_api.__array_namespace_info__()
    >>> info.default_device(), info.devices()
    ('CPU', ['CPU'])
    >>> sorted(info.dtypes(kind="real floating"))
    ['float32', 'float64']
    """

    def capabilities(self) -> dict[str, bool | int]:
        """Return which optional features exist, and the maximum number of axes.

        Boolean indexing and data-dependent shapes exist outside of jitted functions.

        Returns
        -------
        dict of str to bool or int
            "boolean indexing", "data-dependent shapes" and "max dimensions".
        """
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MAX_DIMS,
        }

    def default_device(self) -> str:
        """Return the CPU."""
        return self.devices()[0]

    def default_dtypes(self, *, device: object = None) -> dict[str, DType]:
        """Return the default types; there is no complex type.

        Parameters
        ----------
        device : optional
            "cpu", the only device.

        Returns
        -------
        dict of str to DType
            Types of "real floating", "integral" and "indexing".
        """
        check_device(device)
        return {"real floating": dt.float32, "integral": dt.int64, "indexing": dt.int64}

    def devices(self) -> list[str]:
        """Return all devices: the CPU."""
        return ["CPU"]

    def dtypes(
        self, *, device: object = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the types of the standard that kernelrt has, by name; all, or those of `kind`.

        Parameters
        ----------
        device : optional
            "cpu", the only device.
        kind : str or tuple of str, optional
            Categories, as in :func:`isdtype`; by default all.

        Returns
        -------
        dict of str to DType
            Types by name.
        """
        check_device(device)
        wanted = ("bool", "numeric") if kind is None else kind
        return {d.name: d for d in _KINDS["bool"] + _KINDS["numeric"] if isdtype(d, wanted)}
