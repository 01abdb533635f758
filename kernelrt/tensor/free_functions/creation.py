"""Create tensors from data, constants and sequences."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer
from kernelrt.device.dlpack import REFUSALS, import_array, kind_name, nothing
from kernelrt.errors import DomainError, DTypeError, KernelrtError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import as_uop, dim_max, format_size, prod, same
from kernelrt.ir.size import Real, Size, plain
from kernelrt.native.array_handle import array_copy
from kernelrt.tensor.autograd.tags import detach
from kernelrt.tensor.base import TensorBase, storage_node
from kernelrt.tensor.eager import shared_memory
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import (
    SIZE,
    check_sizes,
    index_of,
    integer,
    lacking,
    real,
    shape_of,
    sized,
    take_by_value,
)
from kernelrt.tensor.nodes.promotion import Weak, check_fits, element, number_node
from kernelrt.tensor.operation import operation
from kernelrt.tensor.state import local
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.dtype import DType
    from kernelrt.tensor import tensor as tensor_module
    from kernelrt.tensor.tensor import Tensor
else:
    tensor_module = Module("kernelrt.tensor.tensor")

__all__ = ["arange", "check_shape", "empty", "empty_like", "eye", "from_data",
           "from_numpy", "full", "full_like", "has_memory", "line_end", "linspace", "ones",
           "ones_like", "tensor", "tril_indices", "triu_indices", "zeros",
           "zeros_like"]  # fmt: skip

_T = TypeVar("_T", bound=TensorBase)

_NUMBERS = {float, int, bool}


def _class() -> type[tensor_module.Tensor]:
    return tensor_module.Tensor


def from_data(
    kind: type[_T], data: object, name: str = "data", dtype: object = None
) -> _T:
    """Return a tensor of class `kind` with a copy of `data`."""
    if isinstance(data, TensorBase):
        return _copied(kind, data, dtype)
    if dtype is None and local.trace is None:
        copy = array_copy(kind, data, registry.allocator("CPU"))
        if copy is not None:
            return copy
        if type(data) is list and data and all(type(x) is float for x in data):
            with np.errstate(over="ignore"):
                copy = array_copy(kind, np.array(data, np.float32), registry.allocator("CPU"))
            if copy is not None:
                return copy
    data = plain(data)
    if isinstance(data, UOp):
        usual = dt.float32 if data.dtype.is_float else dt.int64
        kept = usual if dtype is None else dt.parse(dtype)
        check_fits(Weak(data), kept, name)
        return kind._of(build.scalar(data, kept))
    wanted = None if dtype is None else dt.parse(dtype)
    bits = _bfloat16_bits(data, name)
    if bits is not None:
        narrow = _over_copy(kind, bits, dt.bfloat16)
        return narrow if wanted is None else kind._of(narrow.uop.cast(wanted))
    array = _as_array(data, name, wanted)
    source = dt.from_numpy(array.dtype, name)
    if wanted is None:
        typed = hasattr(data, "dtype") or (source is dt.float64 and _holds_float64(data))
        wanted = source if typed else _python_default(source)
    if wanted is dt.bfloat16:
        wide = _over_copy(kind, array.astype(np.float32), dt.float32)
        return kind._of(wide.uop.cast(wanted))
    if wanted.is_int and not hasattr(data, "dtype"):
        _check_fits(array, wanted, name)
    with np.errstate(all="ignore"):
        return _over_copy(kind, array.astype(dt.to_numpy(wanted), order="C", copy=False), wanted)


@operation
def _copied(kind: type[_T], data: TensorBase, dtype: object) -> _T:
    node = UOp(Op.CONTIGUOUS, data.dtype, (data.uop,))
    return kind._of(node if dtype is None else node.cast(dt.parse(dtype)))


def _bfloat16_bits(data: object, name: str) -> np.ndarray[Any, Any] | None:
    """Return the bits of another library's bfloat16 array as integers, or None for other data."""
    if str(getattr(data, "dtype", "")).rpartition(".")[2] != "bfloat16":
        return None
    if isinstance(data, np.ndarray):
        return data.view(np.uint16)
    return import_array(data, name)[0] if hasattr(data, "__dlpack__") else None


def _check_fits(array: np.ndarray[Any, Any], dtype: DType, name: str) -> None:
    """Raise DTypeError if Python numbers, truncated to integers, would overflow `dtype`."""
    if not array.size:
        return
    least, most = array.min().item(), array.max().item()
    if not (dt.has_whole(dtype, least) and dt.has_whole(dtype, most)):
        raise DTypeError(
            f"{name}: {dtype.name} holds numbers from {dtype.min} to {dtype.max}, but the data "
            f"has numbers from {least} to {most}; use a wider dtype, or, to let numbers wrap "
            "around, make a tensor of a wider dtype and cast() it"
        )


def _over_copy(kind: type[_T], array: np.ndarray[Any, Any], dtype: DType) -> _T:
    buffer = Buffer(array.size, dtype)
    buffer.content()[...] = array.reshape(-1)
    if local.trace is not None:  # a constant of the trace, created in each call, not state
        tensor = kind._of(storage_node(buffer, array.shape))
        tensor._made_of = cast("UOp", tensor._uop), buffer
        local.trace.constants.add(buffer)
        return tensor
    return kind._over(buffer, array.shape)


def _python_default(found: DType) -> DType:
    """Return the dtype for Python numbers: float32 for floats, int64 for ints."""
    return dt.float32 if found is dt.float64 else found


def _holds_float64(data: object) -> bool:
    """Return whether a nested list has a float64 array, tensor or NumPy scalar."""
    level = [data]
    while level:
        if {type(item) for item in level} <= _NUMBERS:
            return False
        names = (str(getattr(item, "dtype", "")) for item in level)
        if any(name.rpartition(".")[2] in ("float64", ">f8") for name in names):
            return True
        level = [x for item in level if isinstance(item, list | tuple) for x in item]
    return False


def refuse_masked(data: object, name: str) -> None:
    """Raise DTypeError if `data` is a NumPy array with masked elements."""
    # Same test as numpy.ma.is_masked, without the import of numpy.ma.
    if isinstance(data, np.ndarray) and np.any(getattr(data, "_mask", False)):
        raise DTypeError(
            f"{name}: a masked array has elements without a value; replace them, as in "
            "array.filled(0)"
        )


def _as_array(data: object, name: str, wanted: DType | None) -> np.ndarray[Any, Any]:
    refuse_masked(data, name)
    if isinstance(data, list | tuple):
        _check_rectangular(data, name)
        data = [np.asarray(d) if isinstance(d, TensorBase) else d for d in data]
    elif not isinstance(data, bool | int | float | np.ndarray | np.generic) and not (
        hasattr(data, "__array__") or hasattr(data, "__dlpack__") or _has_buffer(data)
    ):
        raise DTypeError(
            f"{name}: expected numbers, nested lists of numbers, a NumPy array or an object with "
            f"the buffer protocol, not {kind_name(data)}{nothing(data)}"
        )
    try:
        if not hasattr(data, "__array__") and hasattr(data, "__dlpack__"):
            return np.from_dlpack(data)
        array = np.asarray(data)
    except KernelrtError:
        raise
    except REFUSALS as error:
        raise DTypeError(
            f"{name}: {kind_name(data)} cannot be converted to an array: {error}"
        ) from None
    if isinstance(data, int | list | tuple) and array.dtype.kind in "Of":
        array = _with_long_integers(array, data, name, wanted)
    if array.dtype.kind not in "biuf":
        raise DTypeError(
            f"{name}: elements of NumPy dtype {array.dtype} are not supported; expected bools, "
            "integers or floats"
        )
    return array


def _with_long_integers(
    array: np.ndarray[Any, Any], data: object, name: str, wanted: DType | None
) -> np.ndarray[Any, Any]:
    """Convert integers beyond 64 bits to floats if floats are wanted.

    NumPy stores them as objects, or converts the whole array to floats.
    """
    if array.dtype.kind == "f" and not (np.abs(array) >= 2.0**63).any():
        return array
    numbers = np.asarray(data, object).ravel().tolist()
    if not all(isinstance(v, bool | int | float) for v in numbers):
        return array
    if (wanted is None or not wanted.is_float) and all(isinstance(v, int) for v in numbers):
        largest = max(numbers, key=abs)
        element(largest, wanted or dt.int64, name)
        element(min(numbers), wanted or dt.int64, name)
    for number in numbers:
        element(number, dt.float64, name)
    return array.astype(np.float64)


def has_memory(data: object) -> bool:
    """Return whether an object exposes its memory to other libraries."""
    return hasattr(data, "__array_interface__") or hasattr(data, "__dlpack__") or _has_buffer(data)


def _has_buffer(data: object) -> bool:
    try:
        memoryview(data).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _check_rectangular(data: Sequence[Any], name: str) -> None:
    """Raise ShapeError naming the first nested list whose length differs from the others.

    Arrays and tensors in the lists are not checked: NumPy compares their shapes.
    """
    level: list[tuple[str, Any]] = [(name, data)]
    above: set[int] = set()
    while level:
        level = [(path, item) for path, item in level if not getattr(item, "shape", ())]
        lengths = [len(d) if isinstance(d, list | tuple) else -1 for _, d in level]
        for (path, _), length in zip(level, lengths, strict=True):
            if length != lengths[0]:
                raise ShapeError(
                    f"{path} is {_count(length)}, but {level[0][0]} is {_count(lengths[0])}; "
                    "nested lists must be rectangular"
                )
        if not lengths or lengths[0] < 0:
            return
        # All numbers have the same depth, so a list that occurs at two depths contains itself.
        lists = {id(d): path for path, d in level if isinstance(d, list | tuple)}
        if again := above & lists.keys():
            raise ShapeError(
                f"{lists[again.pop()]} is a list that contains itself; expected nested lists of "
                "numbers"
            )
        above |= lists.keys()
        if {type(x) for _, d in level for x in d} <= _NUMBERS:
            return
        level = [(f"{path}[{i}]", x) for path, d in level for i, x in enumerate(d)]


def _count(length: int) -> str:
    return "a number" if length < 0 else f"a list of {length} elements"


def tensor(
    data: object, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor with a copy of `data`.

    Parameters
    ----------
    data : number, nested list of numbers, NumPy array, Tensor, or array-like
        Data to copy. Python floats become float32 and ints int64. Arrays keep their dtype. A list
        that contains float64 arrays or float64 NumPy scalars becomes float64.
    dtype : DType, str or NumPy dtype, optional
        Dtype to convert to.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor of the shape of `data`.

    Raises
    ------
    ShapeError
        Nested lists are ragged.
    DTypeError
        kernelrt has no dtype for the elements, or `dtype` cannot represent a Python number.
    GradientError
        `requires_grad` is True, and the elements are not floats.

    Examples
    --------
    >>> x = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, x.dtype, x.sum().item()
    ((2, 2), kernelrt.float32, 10.0)
    >>> krt.tensor(np.arange(3, dtype=np.uint8)).dtype
    kernelrt.uint8
    """
    registry.check_device(device)
    foreign = getattr(data, "requires_grad", None) is True and not isinstance(data, TensorBase)
    if foreign and hasattr(data, "detach"):
        data = data.detach()  # as torch.tensor() does; PyTorch cannot export one with a history
    return _asked(from_data(_class(), data, "data", dtype), requires_grad)


def from_numpy(array: Any) -> Tensor:
    """Return a tensor that shares the memory of `array`; writes to one are visible in the other.

    An operation computes with the values at the time of its call. For this it copies the array,
    unless there are no other references to it. A plan of :func:`kernelrt.prepare` and a jitted
    function read the array itself when they run.

    Parameters
    ----------
    array : numpy.ndarray or array-like with DLPack or the buffer protocol
        A C-contiguous array, or a transpose of one, aligned to its elements. The tensor keeps a
        reference to it.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `array`.

    Raises
    ------
    ShapeError
        The memory has another layout.
    DTypeError
        kernelrt has no dtype for the elements, some are masked, or `array` exposes no memory.

    Examples
    --------
    >>> array = np.zeros(3)
    >>> x = krt.from_numpy(array)
    >>> array[0] = 5
    >>> x.tolist()
    [5.0, 0.0, 0.0]
    """
    dtype = None
    refuse_masked(array, "array")
    if not has_memory(array):
        raise DTypeError(
            f"array: expected a NumPy array or shared memory, not {type(array).__name__}; "
            "use kernelrt.tensor to copy"
        )
    if not hasattr(array, "__array_interface__") and hasattr(array, "__dlpack__"):
        array, bfloat16 = import_array(array, "array")
        dtype = dt.bfloat16 if bfloat16 else None
    array = np.asarray(array)
    dt.from_numpy(array.dtype, "array")
    order = sorted(range(array.ndim), key=lambda a: (-array.strides[a], a))
    packed = array.transpose(order)
    if not array.flags.aligned:
        raise ShapeError(
            f"array: misaligned memory cannot be shared: the address {array.ctypes.data:#x} and "
            f"the strides {array.strides} are not all multiples of the {array.dtype.alignment} "
            f"bytes that {array.dtype} needs; pass array.copy(), or use kernelrt.tensor to copy"
        )
    if not packed.flags.c_contiguous:
        raise ShapeError(
            f"array: memory with strides {array.strides} for shape {array.shape} cannot be "
            "shared; pass numpy.ascontiguousarray(array), or use kernelrt.tensor to copy"
        )
    buffer = Buffer.wrap(packed, dtype)
    shared_memory.shared[0] = True
    shared = _class()._over(buffer, packed.shape)
    if packed.shape == array.shape and order == sorted(order):
        return shared
    return shared.permute([order.index(a) for a in range(array.ndim)])


def check_shape(args: Sequence[object]) -> tuple[Dim, ...]:
    """Return the shape given by `args`; raise ShapeError for negative sizes."""
    shape = shape_of(args)
    check_sizes(shape, "shape")
    return shape


def full(
    size: Any, fill_value: bool | float | Size | Real | TensorBase, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of shape `size` filled with `fill_value`, a number or a tensor without axes.

    Parameters
    ----------
    size : int or sequence of int
        Shape of the result.
    fill_value : number, or Tensor without axes
        Value of all elements. An integer `dtype` truncates a float.
    dtype : DType or str, optional
        Dtype of the result; by default that of `fill_value`: bool, int64 or float32 for a number.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor. A tensor as `fill_value` gets no gradient.

    Raises
    ------
    DTypeError
        `dtype` cannot represent the number.
    ShapeError
        A size is negative.

    Examples
    --------
    >>> krt.full((2, 2), 7).tolist()
    [[7, 7], [7, 7]]
    """
    registry.check_device(device)
    shape = check_shape((size,))
    value: Any = number_node(fill_value)
    if value is None and isinstance(fill_value, TensorBase) and not fill_value.ndim:
        kept = fill_value.dtype if dtype is None else dt.parse(dtype)
        node = build.broadcast_to(detach(fill_value.uop.cast(kept)), shape)
        return _asked(_class()._of(UOp(Op.CONTIGUOUS, kept, (node,))), requires_grad)
    if value is None:
        value = _number(fill_value)
    if not isinstance(value, bool | int | float | UOp):
        raise DTypeError(f"fill_value: expected a number, not {type(fill_value).__name__}")
    example = (0.0 if value.dtype.is_float else 0) if isinstance(value, UOp) else value
    wanted = dt.of_scalar(example) if dtype is None else dt.parse(dtype)
    if isinstance(value, UOp):
        check_fits(Weak(value), wanted, "fill_value")
    else:
        value = element(value, wanted, "fill_value")
    out = _class()._of(build.full(value, wanted, shape))
    return out.requires_grad_() if requires_grad else out


@sized
def zeros(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor of zeros, float32 by default.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape of the result.
    dtype : DType or str, optional
        Dtype of the result.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor of shape `size`.

    Raises
    ------
    ShapeError
        A size is negative.

    Examples
    --------
    >>> krt.zeros(2, 3).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return _repeated(0, size, dtype, device, requires_grad)


@sized
def ones(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor of ones, float32 by default.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape of the result.
    dtype : DType or str, optional
        Dtype of the result.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor of shape `size`.

    Raises
    ------
    ShapeError
        A size is negative.

    Examples
    --------
    >>> krt.ones(2, dtype=krt.int64).tolist()
    [1, 1]
    """
    return _repeated(1, size, dtype, device, requires_grad)


def _repeated(
    value: int, size: tuple[Any, ...], dtype: object, device: object, requires_grad: bool
) -> Tensor:
    """Return a tensor filled with one number; cache its node if the shape consists of ints."""
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple | list) else size
    wanted = dt.float32 if dtype is None else dtype
    if device is None and isinstance(wanted, dt.DType) and all(type(d) is int for d in shape):
        return _asked(_class()._of(_constant(value, wanted, shape)), requires_grad)
    return full(shape_of(size), value, wanted, device, requires_grad)


@functools.lru_cache(1024)
def _constant(value: int, dtype: DType, shape: tuple[int, ...]) -> UOp:
    """Return the node of a constant tensor; raise ShapeError for negative sizes."""
    return build.full(element(value, dtype, "fill_value"), dtype, check_shape((shape,)))


def _asked(out: Tensor, requires_grad: bool) -> Tensor:
    return out.requires_grad_() if requires_grad else out


@sized
def empty(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor with uninitialized elements; in a traced function the same as :func:`zeros`.

    If the shape has Variables, the memory has room for their largest values, and the elements are
    in row-major order.

    Parameters
    ----------
    *size : int, or one sequence of int
        Shape of the result.
    dtype : DType or str, optional
        Dtype of the result; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor of shape `size`.

    Raises
    ------
    ShapeError
        A size is negative.

    Examples
    --------
    >>> krt.empty(2, 3).shape
    (2, 3)
    """
    registry.check_device(device)
    shape = check_shape(size)
    wanted = dt.float32 if dtype is None else dt.parse(dtype)
    if local.trace is not None and not requires_grad:
        return zeros(shape, dtype=wanted)
    buffer = Buffer(cast("int", prod(map(dim_max, shape))), wanted)
    if all(isinstance(d, int) for d in shape):
        return _asked(_class()._over(buffer, shape), requires_grad)  # type: ignore[arg-type]
    return _asked(_class()._of(storage_node(buffer, shape)), requires_grad)


def full_like(
    input: TensorBase, fill_value: bool | float | TensorBase, dtype: object = None,  # noqa: A002 - torch's name
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of `fill_value`, with the shape and, by default, the dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Tensor whose shape and dtype to use.
    fill_value : number, or Tensor without axes
        Value of all elements. An integer dtype truncates a float.
    dtype : DType or str, optional
        Another dtype.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor.

    Raises
    ------
    DTypeError
        The dtype cannot represent the number.

    Examples
    --------
    >>> krt.full_like(krt.tensor([1, 2]), 7).tolist()
    [7, 7]
    """
    return full(input.shape, fill_value, dtype or input.dtype, device, requires_grad)


def zeros_like(
    input: TensorBase, dtype: object = None, device: object = None, requires_grad: bool = False  # noqa: A002 - torch's name
) -> Tensor:
    """Return zeros with the shape and, by default, the dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Tensor whose shape and dtype to use.
    dtype : DType or str, optional
        Another dtype.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor.

    Examples
    --------
    >>> krt.zeros_like(krt.tensor([1, 2])).tolist()
    [0, 0]
    """
    return _repeated(0, input.shape, dtype or input.dtype, device, requires_grad)


def ones_like(
    input: TensorBase, dtype: object = None, device: object = None, requires_grad: bool = False  # noqa: A002 - torch's name
) -> Tensor:
    """Return ones with the shape and, by default, the dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Tensor whose shape and dtype to use.
    dtype : DType or str, optional
        Another dtype.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor.

    Examples
    --------
    >>> krt.ones_like(krt.tensor([1, 2]), dtype=krt.float32).tolist()
    [1.0, 1.0]
    """
    return _repeated(1, input.shape, dtype or input.dtype, device, requires_grad)


def empty_like(
    input: TensorBase, dtype: object = None, device: object = None, requires_grad: bool = False  # noqa: A002 - torch's name
) -> Tensor:
    """Return an uninitialized tensor with the shape and, by default, the dtype of `input`.

    Parameters
    ----------
    input : Tensor
        Tensor whose shape and dtype to use.
    dtype : DType or str, optional
        Another dtype.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        New tensor; see :func:`empty`.

    Examples
    --------
    >>> x = krt.empty_like(krt.tensor([1, 2]))
    >>> x.shape, x.dtype
    ((2,), kernelrt.int64)
    """
    kind = dtype or input.dtype
    return empty(input.shape, dtype=kind, device=device, requires_grad=requires_grad)


def _number(value: Any) -> Any:
    value = take_by_value(value)
    return value.item() if isinstance(value, np.generic) else plain(value)


def _end(value: Any, name: str) -> Any:
    """Return `value` as a finite number or an integer expression of Variables."""
    value = index_of(value, name, SIZE)
    if isinstance(value, TensorBase) and not value.ndim:
        value = value.item()  # type: ignore[attr-defined]
    number = _number(value)
    if isinstance(number, float) and not math.isfinite(number):
        raise DTypeError(f"{name}: expected a finite number, not {number}")
    if not isinstance(number, int | float | UOp):
        raise DTypeError(f"{name}: expected a number, not {type(value).__name__}")
    return number


def arange(
    start: Dim | float, end: Dim | float | None = None, step: float = 1, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the numbers from `start` (default 0) to `end` (excluded) with distance `step`.

    Parameters
    ----------
    start, end : int or float
        First number, and end of the range, which is excluded. A single argument is `end`. Integers
        may be dynamic sizes.
    step : int or float
        Distance of neighbors, not 0. A negative one counts down.
    dtype : DType or str, optional
        Dtype of the result: int64 by default if all arguments are integers, else float32. For an
        integer dtype, `start` and `step` are truncated; for int64, `end` is too.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        Vector of ``ceil((end - start) / step)`` numbers, or none if that is negative.

    Raises
    ------
    DTypeError
        `dtype` cannot represent all of these integers, or an argument is infinite or NaN.
    DomainError
        `step` is 0.
    ShapeError
        `step` is not 1 with dynamic sizes.

    Examples
    --------
    >>> krt.arange(3).tolist(), krt.arange(1, 2, 0.25).tolist()
    ([0, 1, 2], [1.0, 1.25, 1.5, 1.75])
    """
    registry.check_device(device)
    if end is None:
        start, end = 0, start
    start, end, step = _end(start, "start"), _end(end, "end"), _end(step, "step")
    if step == 0:
        raise DomainError("step: expected a number other than 0, not 0")
    whole = all(isinstance(v, int | UOp) for v in (start, end, step))
    wanted = dt.parse(dtype) if dtype is not None else dt.int64 if whole else dt.float32
    if isinstance(end, UOp) or isinstance(start, UOp):
        if step != 1 or not whole:
            came = f"step {step}" if step != 1 else "a float"
            raise ShapeError(
                "arange: if start or end is a Variable, both must be integers and step must be 1, "
                f"not {came}; compute with arange of integers, as in start + step * krt.arange(n)"
            )
        assert isinstance(start, int | UOp)
        assert isinstance(end, int | UOp)
        if (missing := lacking(end, start)) is not None:
            raise ShapeError(
                f"end: expected at least start ({format_size(start)}), not "
                f"{format_size(end)}{missing}"
            )
        count: Dim = build.difference(end, start)
        for bound, name in ((start, "start"), (build.difference(end, 1), "end")):
            check_fits(Weak(as_uop(bound)), wanted, name)
    else:
        if not whole:
            for value, name in ((start, "start"), (end, "end"), (step, "step")):
                element(value, dt.float64, name)
        steps = -((start - end) // step) if whole else (end - start) / step
        if isinstance(steps, float) and math.isinf(steps):
            raise DomainError(
                f"step: {step} gives infinitely many numbers from {start} to {end}; use a larger "
                "step"
            )
        count = max(0, math.ceil(steps))
        if wanted.is_int and not whole:  # PyTorch counts before it truncates, except for int64
            given, start, step, whole = step, int(start), int(step), True
            if wanted is dt.int64:
                if step == 0:
                    raise DomainError(
                        "step: expected at least 1 or at most -1 for int64, which drops the "
                        f"fraction, not {given}; pass a floating dtype"
                    )
                count = max(0, -((start - int(end)) // step))
    if whole and isinstance(start, int) and isinstance(count, int) and count:
        kind = wanted if wanted.is_int else dt.int64
        element(start, kind, "start")
        element(start + int(step) * (count - 1), kind, "end")
    line = build.iota(count) if not same(count, 0) else build.full(0, dt.int64, (0,))
    if whole:
        assert isinstance(start, int | UOp)
        out = build.add(build.mul(line, int(step)), build.full(start, dt.int64, line.shape))
    else:  # in float64: in float32, rounding errors would grow along the line
        out = build.add(build.mul(line.cast(dt.float64), step), float(start))  # type: ignore[arg-type]
    return _asked(_class()._of(out.cast(wanted)), requires_grad)


def linspace(
    start: float | TensorBase, end: float | TensorBase, steps: int, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return `steps` evenly spaced numbers from `start` to `end`, both included.

    Parameters
    ----------
    start, end : float or Tensor without axes
        First and last number. Tensors get no gradient, as in PyTorch. An integer `dtype`
        truncates both.
    steps : int
        Count of numbers, at least 0.
    dtype : dtype or str, optional
        Dtype of the result; float32 by default, whatever dtype the ends have.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether the result is a leaf that accumulates gradients.

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
    >>> krt.linspace(krt.tensor(1.0), 3, 5).tolist()
    [1.0, 1.5, 2.0, 2.5, 3.0]
    """
    registry.check_device(device)
    count = integer(steps, "steps", 0)
    wanted = dt.float32 if dtype is None else dt.parse(dtype)
    first = line_end(start, "start", whole=wanted.is_int)
    last = line_end(end, "end", whole=wanted.is_int)
    if isinstance(first, TensorBase) or isinstance(last, TensorBase):
        return _asked(_line(first, last, count, wanted), requires_grad)
    return _asked(
        from_data(_class(), np.linspace(first, last, count), "linspace", wanted), requires_grad
    )


def line_end(value: Any, name: str, *, whole: bool) -> Any:
    """Return an end of a range: a number, or a detached float64 tensor without axes.

    With `whole`, truncate it to an integer.
    """
    if not isinstance(value, TensorBase):
        number = real(value, name)
        return float(math.trunc(number)) if whole and math.isfinite(number) else number
    if value.ndim:
        raise ShapeError(
            f"{name}: expected a number, or a tensor without axes, not one of shape {value.shape}"
        )
    held = value.detach().cast(dt.float64)  # type: ignore[attr-defined]
    return held.trunc() if whole else held


def _line(first: Any, last: Any, count: int, wanted: DType) -> Tensor:
    """Return the result of linspace if an end is a tensor, without reading its value."""
    place = arange(count, dtype=dt.float64)
    step = (last - first) / max(count - 1, 1)
    # Each half is computed from its own end, so that both ends are exact.
    near = place < count / 2
    line: Tensor = _class().where(first + step * place, near, last - step * (count - 1 - place))
    return line.cast(wanted)


def eye(
    n: int, m: int | None = None, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a matrix of `n` rows and `m` (default `n`) columns with ones on its diagonal.

    Parameters
    ----------
    n : int
        Number of rows.
    m : int, optional
        Number of columns; `n` by default.
    dtype : DType or str, optional
        Dtype of the result; float32 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether to accumulate gradients in ``grad``.

    Returns
    -------
    Tensor
        Tensor of shape (n, m).

    Raises
    ------
    ShapeError
        A size is negative.

    Examples
    --------
    >>> krt.eye(2, 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    registry.check_device(device)
    wanted = dt.float32 if dtype is None else dt.parse(dtype)
    shape = check_shape((n, n if m is None else m))
    if build.has_zero(shape):
        return _asked(_class()._of(build.full(0, wanted, shape)), requires_grad)
    hit = build.iota_along(shape, 0).eq(build.iota_along(shape, 1))
    return _asked(_class()._of(hit.cast(wanted)), requires_grad)


def tril_indices(
    row: int, col: int, offset: int = 0, dtype: object = None, device: object = None
) -> Tensor:
    """Return the positions on and below a diagonal: row indices, then column indices.

    Parameters
    ----------
    row, col : int
        Shape of the matrix.
    offset : int
        Diagonal: 0 is the main one, a positive number lies above it, a negative one below.
    dtype : DType or str, optional
        Dtype of the result; int64 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.

    Returns
    -------
    Tensor
        Tensor of shape (2, count), in row-major order of the positions.

    Raises
    ------
    ShapeError
        A size is negative.

    Examples
    --------
    >>> krt.tril_indices(2, 3).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    registry.check_device(device)
    return _triangle_places(row, col, offset, dtype, lower=True)


def triu_indices(
    row: int, col: int, offset: int = 0, dtype: object = None, device: object = None
) -> Tensor:
    """Return the positions on and above a diagonal: row indices, then column indices.

    Parameters
    ----------
    row, col : int
        Shape of the matrix.
    offset : int
        Diagonal: 0 is the main one, a positive number lies above it, a negative one below.
    dtype : DType or str, optional
        Dtype of the result; int64 by default.
    device : str, optional
        Device of the result; "cpu" is the only one.

    Returns
    -------
    Tensor
        Tensor of shape (2, count), in row-major order of the positions.

    Raises
    ------
    ShapeError
        A size is negative.

    Examples
    --------
    >>> krt.triu_indices(2, 3).tolist()
    [[0, 0, 0, 1, 1], [0, 1, 2, 1, 2]]
    """
    registry.check_device(device)
    return _triangle_places(row, col, offset, dtype, lower=False)


def _triangle_places(row: int, col: int, offset: int, dtype: object, *, lower: bool) -> Tensor:
    shape = integer(row, "row", 0), integer(col, "col", 0)
    kept = (np.tril if lower else np.triu)(np.ones(shape, bool), integer(offset, "offset"))
    return from_data(_class(), np.argwhere(kept).T, "indices", dtype)
