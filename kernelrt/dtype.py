"""Scalar types and the promotion table.

Promotion follows PyTorch. The categories are ordered: bool, integer, floating. The result has the
highest category of its operands, and within this category the widest type. A Python scalar changes
the type of a tensor only if its category is higher: an integer tensor and a Python float give
float32.

float16 and bfloat16 are storage types. Operations on them are computed in float32, and a value is
rounded when it is stored. A value that passes from one operation to the next within a kernel is not
stored, so it keeps float32 precision (XLA calls this excess precision; PyTorch's kernels do the
same). The scheduler decides which intermediate values are stored. So ``(a + b) - a`` may be more
exact than its separate steps, and results may differ in the last digit with and without
:func:`kernelrt.jit`. To round at a given point, as PyTorch's separate operations do, use
``x.float().cast(x.dtype)`` or ``x.realize()``.

Processors with bfloat16 instructions (AVX512_BF16) use them in matrix products, convolutions and
other sums of products of stored values. Products are exact and sums are in float32. But
subnormal factors and sums (with a magnitude below ``2**-126``) may count as 0; such a factor times
infinity is then NaN. Products of float32 operands keep subnormals.
"""

from __future__ import annotations

import enum
import functools
import math
import struct
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelrt.errors import DTypeError

__all__ = [
    "ALL",
    "PYTORCH",
    "DType",
    "Kind",
    "bfloat16",
    "bool_",
    "contains",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "has_whole",
    "holds",
    "int8",
    "int16",
    "int32",
    "int64",
    "nearest",
    "of_scalar",
    "parse",
    "promote",
    "to_numpy",
    "truncated",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "wrapped",
]


class Kind(enum.IntEnum):
    """Category of a scalar type, in promotion order."""

    BOOL = 0
    UINT = 1
    INT = 2
    FLOAT = 3


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """A scalar type, such as ``krt.float32``. Instances are unique; compare with ``is`` or ``==``.

    Attributes
    ----------
    name : str
        Name as in NumPy and PyTorch, e.g. ``"float32"``.
    kind : Kind
        Category.
    bits : int
        Width in memory (bool takes 8).
    code : int
        A small stable number, used across the C boundary and in cache keys.
    itemsize : int
        Size of one element in bytes.
    is_float, is_floating_point : bool
        Whether this is a floating-point type.
    is_int : bool
        Whether this is a signed or unsigned integer (bool is not).
    is_unsigned : bool
        Whether this is an unsigned integer.
    is_signed : bool
        Whether the highest bit of this integer is a sign.
    is_bool : bool
        Whether this is the boolean type.
    min, max : int or float
        Smallest and largest value. For floats they are infinite: the identities of MAX and MIN.
        :func:`kernelrt.finfo` has the finite limits.

    Examples
    --------
    >>> x = krt.zeros(2, dtype=krt.int8)
    >>> x.dtype is krt.int8, x.dtype.name, x.dtype.itemsize, x.dtype.max
    (True, 'int8', 1, 127)
    """

    name: str
    kind: Kind
    bits: int
    code: int

    itemsize: int = field(init=False)
    is_float: bool = field(init=False)
    is_floating_point: bool = field(init=False)
    is_int: bool = field(init=False)
    is_unsigned: bool = field(init=False)
    is_signed: bool = field(init=False)
    is_bool: bool = field(init=False)
    min: int | float = field(init=False)
    max: int | float = field(init=False)

    def __post_init__(self) -> None:
        kind = self.kind
        digits = {Kind.BOOL: 1, Kind.UINT: self.bits, Kind.INT: self.bits - 1}.get(kind)
        known = {
            "itemsize": self.bits // 8,
            "is_float": kind is Kind.FLOAT,
            "is_floating_point": kind is Kind.FLOAT,
            "is_int": kind in (Kind.INT, Kind.UINT),
            "is_unsigned": kind is Kind.UINT,
            "is_signed": kind is Kind.INT,
            "is_bool": kind is Kind.BOOL,
            "min": -math.inf if digits is None else -(1 << digits) if kind is Kind.INT else 0,
            "max": math.inf if digits is None else (1 << digits) - 1,
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @property
    def of_nan(self) -> int:
        """The integer that NaN is cast to.

        It is the minimum of a signed type, as in NumPy and PyTorch on x86-64, and the maximum of
        an unsigned type. In a type of 64 bits, this number is not a valid index of any axis.

        Examples
        --------
        >>> krt.int8.of_nan, krt.uint8.of_nan
        (-128, 255)
        """
        return int(self.min if self.is_signed else self.max)

    @property
    def is_narrow(self) -> bool:
        """Whether this is a storage type (float16, bfloat16): operations compute in float32."""
        return self.kind is Kind.FLOAT and self.bits < 32

    @property
    def accumulator(self) -> DType:
        """The type that sums of this type are accumulated in.

        Examples
        --------
        >>> krt.bfloat16.accumulator, krt.float64.accumulator
        (kernelrt.float32, kernelrt.float64)
        """
        return float32 if self.is_narrow else self

    @property
    def digits(self) -> int:
        """Bits of the significand of a floating type, including the leading one.

        Raises
        ------
        DTypeError
            The type is not floating.

        Examples
        --------
        >>> krt.float16.digits, krt.bfloat16.digits, krt.float32.digits
        (11, 8, 24)
        """
        return self._format("digits")[0]

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent of a floating type.

        Raises
        ------
        DTypeError
            The type is not floating.

        Examples
        --------
        >>> krt.float16.exponent_bits, krt.bfloat16.exponent_bits, krt.float32.exponent_bits
        (5, 8, 8)
        """
        return self._format("exponent_bits")[1]

    def _format(self, name: str) -> tuple[int, int]:
        if self.name not in _FORMATS:
            raise DTypeError(
                f"{name}: expected a floating type, not {self.name}; kernelrt.iinfo describes "
                "integer types"
            )
        return _FORMATS[self.name]

    def __repr__(self) -> str:
        return f"kernelrt.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return parse, (self.name,)


bool_: Final = DType("bool", Kind.BOOL, 8, 0)
uint8: Final = DType("uint8", Kind.UINT, 8, 1)
int8: Final = DType("int8", Kind.INT, 8, 2)
uint16: Final = DType("uint16", Kind.UINT, 16, 3)
int16: Final = DType("int16", Kind.INT, 16, 4)
uint32: Final = DType("uint32", Kind.UINT, 32, 5)
int32: Final = DType("int32", Kind.INT, 32, 6)
uint64: Final = DType("uint64", Kind.UINT, 64, 7)
int64: Final = DType("int64", Kind.INT, 64, 8)
float16: Final = DType("float16", Kind.FLOAT, 16, 9)
bfloat16: Final = DType("bfloat16", Kind.FLOAT, 16, 10)
float32: Final = DType("float32", Kind.FLOAT, 32, 11)
float64: Final = DType("float64", Kind.FLOAT, 64, 12)

#: Bits of significand and exponent (IEEE 754; bfloat16 is a truncated float32).
_FORMATS: Final = {"float16": (11, 5), "bfloat16": (8, 8), "float32": (24, 8), "float64": (53, 11)}

ALL: Final = (
    bool_, uint8, int8, uint16, int16, uint32, int32, uint64, int64,
    float16, bfloat16, float32, float64,
)  # fmt: skip
_BY_NAME: Final = {d.name: d for d in ALL} | {
    "bool_": bool_, "half": float16, "float": float32, "double": float64, "long": int64,
}  # fmt: skip


def parse(spec: object, argument: str = "dtype") -> DType:
    """Turn a DType, a name, a Python type, or a dtype of NumPy or PyTorch into a DType.

    Parameters
    ----------
    spec : DType, str, type, numpy.dtype or torch.dtype
        What to convert. ``bool``, ``int`` and ``float`` are bool, int64 and float32.
    argument : str
        Name of the argument in errors.

    Returns
    -------
    DType
        The dtype.

    Raises
    ------
    DTypeError
        `spec` is none of these, or kernelrt has no such dtype.

    Examples
    --------
    >>> krt.dtype.parse("int8"), krt.dtype.parse(float), krt.dtype.parse(np.float64)
    (kernelrt.int8, kernelrt.float32, kernelrt.float64)
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    if isinstance(spec, type) and spec in (bool, int, float):
        return {bool: bool_, int: int64, float: float32}[spec]
    if type(spec).__module__ == "torch" and type(spec).__name__ == "dtype":
        spec = str(spec).removeprefix("torch.")
        if spec in _BY_NAME:
            return _BY_NAME[spec]
    try:
        if spec is not None:  # np.dtype(None) is float64
            return from_numpy(np.dtype(spec), argument)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        if isinstance(error, DTypeError):
            raise
    names = ", ".join(d.name for d in ALL)
    raise DTypeError(f"{argument}: {spec!r} is not a dtype; expected one of {names}")


#: NumPy's type number of the first type that is registered by another library.
_FIRST_OF_USERS: Final = 256
#: Keyed by kind and size, because reading the name of a NumPy dtype imports a module.
_OF_NUMPY: Final = {
    (found.kind, found.itemsize): d for d in ALL if d is not bfloat16
    for found in [np.dtype(d.name)]
}  # fmt: skip


def from_numpy(dtype: np.dtype[np.generic], argument: str = "array") -> DType:
    """Return the DType of a NumPy dtype; the byte order must be native.

    Parameters
    ----------
    dtype : numpy.dtype
        Dtype of an array.
    argument : str
        Name of the argument in errors.

    Returns
    -------
    DType
        The dtype of the same name.

    Raises
    ------
    DTypeError
        kernelrt has no such dtype, or the byte order is not native.

    Examples
    --------
    >>> krt.dtype.from_numpy(np.dtype("int16"))
    kernelrt.int16
    """
    found = _OF_NUMPY.get((dtype.kind, dtype.itemsize))
    if found is None or not dtype.isnative or dtype.num >= _FIRST_OF_USERS:
        names = ", ".join(d.name for d in _OF_NUMPY.values())
        raise DTypeError(
            f"{argument} has NumPy dtype {dtype!s}, which kernelrt does not support; "
            f"convert it with .astype() to one of {names} in native byte order"
        )
    return found


@functools.cache
def to_numpy(dtype: DType) -> np.dtype[np.generic]:
    """Return the NumPy dtype of a DType.

    Parameters
    ----------
    dtype : DType
        Any dtype but bfloat16.

    Returns
    -------
    numpy.dtype
        The dtype of the same name.

    Raises
    ------
    DTypeError
        `dtype` is bfloat16, which NumPy does not have.

    Examples
    --------
    >>> krt.dtype.to_numpy(krt.int8)
    dtype('int8')
    """
    if dtype is bfloat16:
        raise DTypeError("bfloat16 has no NumPy dtype; cast to float32 first")
    return np.dtype(dtype.name)


@functools.cache
def promote(*dtypes: DType) -> DType:
    """Return the dtype that operands of these dtypes promote to (PyTorch's table).

    Parameters
    ----------
    *dtypes : DType or str
        At least one dtype.

    Returns
    -------
    DType
        Dtype of the result.

    Raises
    ------
    DTypeError
        There are no dtypes, or one of them is unknown.

    Examples
    --------
    >>> krt.promote(krt.int8, krt.uint8), krt.promote(krt.int64, krt.float16)
    (kernelrt.int16, kernelrt.float16)
    """
    if not dtypes:
        raise DTypeError("dtypes: expected at least one dtype, not none")
    return functools.reduce(_promote2, (parse(d, "dtypes") for d in dtypes))


def _promote2(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.kind > b.kind:
        a, b = b, a
    if a.kind is b.kind:
        if a.bits == b.bits:  # float16 with bfloat16
            return float32
        return a if a.bits > b.bits else b
    if b.kind is Kind.FLOAT or a.kind is Kind.BOOL:
        return b
    # Unsigned with signed: the signed type must hold the unsigned range, up to int64.
    for candidate in (int8, int16, int32, int64):
        if candidate.bits > a.bits and candidate.bits >= b.bits:
            return candidate
    return int64


def wrapped(value: int, dtype: DType) -> int:
    """Return `value` wrapped around to the range of the integer type `dtype`.

    Parameters
    ----------
    value : int
        Any integer.
    dtype : DType
        Integer dtype.

    Examples
    --------
    >>> krt.dtype.wrapped(200, krt.int8), krt.dtype.wrapped(-1, krt.uint8)
    (-56, 255)
    """
    number = value & ((1 << dtype.bits) - 1)
    return number - (1 << dtype.bits) if dtype.is_signed and number > dtype.max else number


def truncated(value: float, dtype: DType) -> int:
    """Return `value` truncated to an integer and clamped to the range of `dtype`.

    Parameters
    ----------
    value : float
        Any number; NaN gives :attr:`DType.of_nan`.
    dtype : DType
        Integer dtype.

    Examples
    --------
    >>> from kernelrt.dtype import truncated
    >>> truncated(-3.5, krt.int8), truncated(300.0, krt.int8), truncated(krt.nan, krt.uint8)
    (-3, 127, 255)
    """
    return dtype.of_nan if value != value else math.trunc(max(dtype.min, min(value, dtype.max)))


def has_whole(dtype: DType, value: float) -> bool:
    """Return whether `value`, truncated to an integer, is in the range of `dtype`.

    Parameters
    ----------
    dtype : DType
        Integer dtype.
    value : float
        Any number.

    Examples
    --------
    >>> krt.dtype.has_whole(krt.int8, 127.9), krt.dtype.has_whole(krt.int8, 128)
    (True, False)
    """
    return dtype.min - 1 < value < dtype.max + 1


def nearest(value: float, dtype: DType) -> float:
    """Return `value` rounded to a floating type.

    Python integers are rounded from their exact value. Numbers are rounded to float32 first, and
    then to bfloat16, as in PyTorch. Casts of integer tensors to bfloat16 round twice, too; casts of
    float64 tensors round once.

    Parameters
    ----------
    value : float
        Any number.
    dtype : DType
        Floating dtype.

    Returns
    -------
    float
        The nearest number of `dtype`; infinite beyond its range.

    Examples
    --------
    >>> krt.dtype.nearest(2049, krt.float16), krt.dtype.nearest(1e6, krt.float16)
    (2048.0, inf)
    """
    try:
        if dtype is float64:
            return float(value)
        value = _as_exact(value) if isinstance(value, int) else float(value)
        single = float(struct.unpack("<f", struct.pack("<f", value))[0])
        if dtype is float16:
            return float(struct.unpack("<e", struct.pack("<e", value))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if dtype is bfloat16 and math.isfinite(single):
        (bits,) = struct.unpack("<I", struct.pack("<f", single))
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return single


def _as_exact(number: int) -> float:
    """Return a float64 that rounds to narrower types as `number` does (round to odd)."""
    excess = abs(number).bit_length() - float64.digits
    if excess <= 0:
        return float(number)
    digits = abs(number) >> excess
    digits |= digits << excess != abs(number)
    return math.copysign(math.ldexp(digits, excess), number)


def holds(dtype: DType, value: bool | float) -> bool:
    """Return whether `dtype` represents `value` exactly; floating types represent NaN.

    Parameters
    ----------
    dtype : DType
        Any dtype.
    value : number
        Number to represent.

    Examples
    --------
    >>> krt.dtype.holds(krt.int8, 127), krt.dtype.holds(krt.float16, 2049)
    (True, False)
    """
    if dtype.is_float:
        return value != value or nearest(value, dtype) == value
    return dtype.min <= value <= dtype.max and value == int(value)


def contains(wide: DType, narrow: DType) -> bool:
    """Return whether `wide` represents every value of `narrow` exactly.

    Parameters
    ----------
    wide, narrow : DType
        Dtypes to compare.

    Examples
    --------
    >>> krt.dtype.contains(krt.float64, krt.int32), krt.dtype.contains(krt.float32, krt.int32)
    (True, False)
    """
    if wide is narrow or narrow.is_bool:
        return True
    if wide.is_bool or (narrow.is_float and not wide.is_float):
        return False
    if not wide.is_float:
        return wide.min <= narrow.min and narrow.max <= wide.max
    if narrow.is_float:
        return wide.digits >= narrow.digits and wide.exponent_bits >= narrow.exponent_bits
    return narrow.bits - (not narrow.is_unsigned) <= wide.digits


def of_scalar(value: bool | float, tensor: DType | None = None) -> DType:
    """Return the dtype of a Python scalar in an operation with a tensor of dtype `tensor`.

    Parameters
    ----------
    value : bool, int or float
        The scalar.
    tensor : DType, optional
        Dtype of the tensor; without it, the dtype of the scalar alone is returned.

    Examples
    --------
    >>> krt.dtype.of_scalar(1), krt.dtype.of_scalar(1, krt.int8), krt.dtype.of_scalar(1.5, krt.int8)
    (kernelrt.int64, kernelrt.int8, kernelrt.float32)
    """
    if isinstance(value, bool):
        return tensor or bool_
    if isinstance(value, int):
        return int64 if tensor is None or tensor.is_bool else tensor
    return tensor if tensor is not None and tensor.is_float else float32

#: PyTorch's dtype names that are Python builtins or older aliases.
PYTORCH: Final = {
    "bool": bool_, "double": float64, "float": float32, "half": float16, "int": int32,
    "long": int64, "short": int16,
}  # fmt: skip
