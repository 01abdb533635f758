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
    """Limits of a floating type: like ``kernelrt.finfo``, with the type itself as ``dtype``."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntInfo:
    """Limits of an integer type: like ``kernelrt.iinfo``, with the type itself as ``dtype``."""

    bits: int
    max: int
    min: int
    dtype: DType


def astype(x: Tensor, dtype: object, /, *, copy: bool = True, device: object = None) -> Tensor:
    """Cast `x` to a type; without `copy`, return `x` itself if it has that type."""
    check_device(device)
    out = x.cast(dtype)
    return x.clone() if copy and out is x else out


def _type_of(value: object, name: str) -> DType:
    return value.dtype if isinstance(value, Tensor) else dt.parse(value, name)


def can_cast(from_: object, to: object, /) -> bool:
    """Return whether a type can represent all values of another type, or of a tensor's type."""
    return dt.contains(_type_of(to, "to"), _type_of(from_, "from_"))


def finfo(type: object, /) -> FloatInfo:
    """Return the limits of a floating type, or of a tensor's type."""
    kind = _type_of(type, "type")
    info = krt.finfo(kind)
    return FloatInfo(info.bits, info.eps, info.max, info.min, info.smallest_normal, kind)


def iinfo(type: object, /) -> IntInfo:
    """Return the limits of an integer type, or of a tensor's type."""
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
    """
    found = dt.parse(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise DTypeError(
                f"kind: expected a type or one of {', '.join(map(repr, _KINDS))}, not {kind!r}"
            )
        return found in _KINDS[kind] or (found.is_float and dt.float32 in _KINDS[kind])
    return found is dt.parse(kind, "kind")


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the promoted type of tensors, types and Python numbers, whatever the axes."""
    numbers = [v for v in arrays_and_dtypes if isinstance(v, bool | int | float)]
    kinds = [
        _type_of(v, "arrays_and_dtypes")
        for v in arrays_and_dtypes
        if not isinstance(v, bool | int | float)
    ]
    if not kinds:
        raise DTypeError("arrays_and_dtypes: expected at least one tensor or type")
    found = dt.promote(*kinds)
    for number in numbers:
        found = dt.of_scalar(number, found)
    return found


class Info:
    """Capabilities of the namespace."""

    def capabilities(self) -> dict[str, bool | int]:
        """Return support for data-dependent shapes (not in jitted functions) and the axis limit."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MAX_DIMS,
        }

    def default_device(self) -> str:
        """Return the CPU."""
        return self.devices()[0]

    def default_dtypes(self, *, device: object = None) -> dict[str, DType]:
        """Return the default types; there is no complex type."""
        check_device(device)
        return {"real floating": dt.float32, "integral": dt.int64, "indexing": dt.int64}

    def devices(self) -> list[str]:
        """Return all devices: the CPU."""
        return ["CPU"]

    def dtypes(
        self, *, device: object = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the standard's supported types, by name; optionally of some categories only."""
        check_device(device)
        wanted = ("bool", "numeric") if kind is None else kind
        return {d.name: d for d in _KINDS["bool"] + _KINDS["numeric"] if isdtype(d, wanted)}
