"""Creates tensors from data, constants and sequences."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device import registry
from kernelrt.device.buffer import Buffer
from kernelrt.device.dlpack import REFUSALS, import_array, kind_name, nothing
from kernelrt.errors import DTypeError, KernelrtError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import as_uop, dim_max, format_size, prod, same
from kernelrt.ir.size import Real, Size, plain
from kernelrt.native.array_handle import array_copy
from kernelrt.tensor.autograd.tags import detach
from kernelrt.tensor.base import TensorBase, storage_node
from kernelrt.tensor.eager import shared_memory
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import (
    check_sizes,
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
    """A tensor of class `kind` with a copy of `data`."""
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
    """The elements of another library's bfloat16 as integers; None of all else."""
    if str(getattr(data, "dtype", "")).rpartition(".")[2] != "bfloat16":
        return None
    if isinstance(data, np.ndarray):
        return data.view(np.uint16)
    return import_array(data, name)[0] if hasattr(data, "__dlpack__") else None


def _check_fits(array: np.ndarray[Any, Any], dtype: DType, name: str) -> None:
    """Raise DTypeError where Python's numbers, without their fractions, would wrap."""
    if not array.size:
        return
    least, most = array.min().item(), array.max().item()
    if not (dt.has_whole(dtype, least) and dt.has_whole(dtype, most)):
        raise DTypeError(
            f"{name}: {dtype.name} goes from {dtype.min} to {dtype.max}, the numbers from "
            f"{least} to {most}; choose a wider dtype, or cast() a tensor of them"
        )


def _over_copy(kind: type[_T], array: np.ndarray[Any, Any], dtype: DType) -> _T:
    buffer = Buffer(array.size, dtype)
    buffer.content()[...] = array.reshape(-1)
    if local.trace is not None:  # it is made anew in each call, and is no state
        tensor = kind._of(storage_node(buffer, array.shape))
        tensor._made_of = cast("UOp", tensor._uop), buffer
        local.trace.constants.add(buffer)
        return tensor
    return kind._over(buffer, array.shape)


def _python_default(found: DType) -> DType:
    """Python floats become float32, ints int64."""
    return dt.float32 if found is dt.float64 else found


def _holds_float64(data: object) -> bool:
    """Return whether a nested list holds an array, a tensor or a NumPy number of float64."""
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
    """Raise DTypeError if `data` is an array of NumPy that has masked elements."""
    # As numpy.ma.is_masked, which lies in a module that NumPy imports when it is first named.
    if isinstance(data, np.ndarray) and np.any(getattr(data, "_mask", False)):
        raise DTypeError(
            f"{name}: a masked array has elements without a value; give them one, as in "
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
        raise DTypeError(f"{name}: {kind_name(data)} does not convert: {error}") from None
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
    """Integers beyond 64 bits as floats where floats are wanted.

    NumPy keeps them as objects, or makes floats of them and of all that stand beside them.
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
    """Whether an object of another library, or of Python, hands out its memory."""
    return hasattr(data, "__array_interface__") or hasattr(data, "__dlpack__") or _has_buffer(data)


def _has_buffer(data: object) -> bool:
    try:
        memoryview(data).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _check_rectangular(data: Sequence[Any], name: str) -> None:
    """Raise ShapeError naming the first element that does not have its neighbours' length.

    NumPy compares the arrays and tensors among them.
    """
    level: list[tuple[str, Any]] = [(name, data)]
    above: set[int] = set()
    while level:
        level = [(path, item) for path, item in level if not getattr(item, "shape", ())]
        lengths = [len(d) if isinstance(d, list | tuple) else -1 for _, d in level]
        for (path, _), length in zip(level, lengths, strict=True):
            if length != lengths[0]:
                raise ShapeError(
                    f"{path} has {_count(length)}, but {level[0][0]} has {_count(lengths[0])}; "
                    "nested lists must be rectangular"
                )
        if not lengths or lengths[0] < 0:
            return
        # Numbers lie equally deep, so a list that occurs at two depths has no end.
        lists = {id(d): path for path, d in level if isinstance(d, list | tuple)}
        if again := above & lists.keys():
            raise ShapeError(f"{lists[again.pop()]} is a list that contains itself")
        above |= lists.keys()
        if {type(x) for _, d in level for x in d} <= _NUMBERS:
            return
        level = [(f"{path}[{i}]", x) for path, d in level for i, x in enumerate(d)]


def _count(length: int) -> str:
    return "no elements but is a number" if length < 0 else f"{length} elements"


def tensor(
    data: object, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """A tensor with a copy of `data`.

    Parameters
    ----------
    data : number, nested list of numbers, NumPy array, Tensor, or array-like
        What to copy. Python floats become float32 and ints int64; arrays keep their type,
        and a list that holds float64 arrays or NumPy numbers becomes float64.
    dtype : DType, str or NumPy dtype, optional
        Type to convert to.
    device : str, optional
        "cpu".
    requires_grad : bool
        Whether to collect gradients in ``grad``.

    Raises
    ------
    ShapeError
        Nested lists are ragged.
    DTypeError
        The elements have a type that kernelrt does not hold.

    Examples
    --------
    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).sum().item()
    10.0
    """
    registry.check_device(device)
    foreign = getattr(data, "requires_grad", None) is True and not isinstance(data, TensorBase)
    if foreign and hasattr(data, "detach"):
        data = data.detach()  # as PyTorch's tensor() does; PyTorch exports none with a history
    return _asked(from_data(_class(), data, "data", dtype), requires_grad)


def from_numpy(array: Any) -> Tensor:
    """A tensor that shares the memory of `array`; each sees what the other writes.

    An operation computes with what the array holds at that line. It copies the array, unless nobody
    else holds it. A plan of :func:`kernelrt.prepare` and a jitted function read the array itself
    when they run.

    Parameters
    ----------
    array : numpy.ndarray or array-like with DLPack or the buffer protocol
        C-contiguous, or a transpose of such; aligned to its elements. It is kept alive.

    Raises
    ------
    ShapeError
        The memory is not laid out like that.
    DTypeError
        The elements have a type that kernelrt does not hold, or some are masked.
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
            f"array: its memory begins at {array.ctypes.data:#x} and steps by {array.strides}, not "
            f"by multiples of the {array.dtype.alignment} bytes of {array.dtype}, and cannot be "
            "shared; pass array.copy(), or use kernelrt.tensor to copy"
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
    """A shape without negative sizes."""
    shape = shape_of(args)
    check_sizes(shape, "shape")
    return shape


def full(
    size: Any, fill_value: bool | float | Size | Real | TensorBase, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of shape `size` with `fill_value`, a number or a tensor without axes, everywhere.

    Raises
    ------
    DTypeError
        `dtype` does not have that number; of a float, integers keep the whole part.
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
    """Zeros of a shape, float32 unless told otherwise."""
    return _repeated(0, size, dtype, device, requires_grad)


@sized
def ones(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """Ones of a shape, float32 unless told otherwise."""
    return _repeated(1, size, dtype, device, requires_grad)


def _repeated(
    value: int, size: tuple[Any, ...], dtype: object, device: object, requires_grad: bool
) -> Tensor:
    """Make a tensor of one number, as :func:`full`; cache its node for shapes of ints."""
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple | list) else size
    wanted = dt.float32 if dtype is None else dtype
    if device is None and isinstance(wanted, dt.DType) and all(type(d) is int for d in shape):
        return _asked(_class()._of(_constant(value, wanted, shape)), requires_grad)
    return full(shape_of(size), value, wanted, device, requires_grad)


@functools.lru_cache(1024)
def _constant(value: int, dtype: DType, shape: tuple[int, ...]) -> UOp:
    """A number everywhere, as a node; the sizes are checked."""
    return build.full(element(value, dtype, "fill_value"), dtype, check_shape((shape,)))


def _asked(out: Tensor, requires_grad: bool) -> Tensor:
    return out.requires_grad_() if requires_grad else out


@sized
def empty(
    *size: Any, dtype: object = None, device: object = None, requires_grad: bool = False
) -> Tensor:
    """A tensor with storage and arbitrary elements; in a traced function :func:`zeros`.

    With Variables in its shape it has room for the largest, and elements in row-major order.
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
    """`fill_value` in the shape, and unless told otherwise the type, of `input`."""
    return full(input.shape, fill_value, dtype or input.dtype, device, requires_grad)


def zeros_like(
    input: TensorBase, dtype: object = None, device: object = None, requires_grad: bool = False  # noqa: A002 - torch's name
) -> Tensor:
    """Zeros in the shape and type of `input`."""
    return _repeated(0, input.shape, dtype or input.dtype, device, requires_grad)


def ones_like(
    input: TensorBase, dtype: object = None, device: object = None, requires_grad: bool = False  # noqa: A002 - torch's name
) -> Tensor:
    """Ones in the shape and type of `input`."""
    return _repeated(1, input.shape, dtype or input.dtype, device, requires_grad)


def empty_like(
    input: TensorBase, dtype: object = None, device: object = None, requires_grad: bool = False  # noqa: A002 - torch's name
) -> Tensor:
    """Storage in the shape and type of `input`, with arbitrary elements."""
    kind = dtype or input.dtype
    return empty(input.shape, dtype=kind, device=device, requires_grad=requires_grad)


def _number(value: Any) -> Any:
    value = take_by_value(value)
    return value.item() if isinstance(value, np.generic) else plain(value)


def _end(value: Any, name: str) -> Any:
    """A finite number, or a whole expression over Variables."""
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
    """The numbers from `start` (0 if one number is given) to `end`, not included, by `step`.

    They are int64 if all arguments are integers, else float32, unless told otherwise. Where `dtype`
    is one of integers, `start` and `step` count without their fractions; for int64 so does `end`.

    Raises
    ------
    DTypeError
        `dtype` does not have all of these integers.
    """
    registry.check_device(device)
    if end is None:
        start, end = 0, start
    start, end, step = _end(start, "start"), _end(end, "end"), _end(step, "step")
    if step == 0:
        raise ShapeError("step: expected a number other than 0")
    whole = all(isinstance(v, int | UOp) for v in (start, end, step))
    wanted = dt.parse(dtype) if dtype is not None else dt.int64 if whole else dt.float32
    if isinstance(end, UOp) or isinstance(start, UOp):
        if step != 1 or not whole:
            raise ShapeError("arange: with Variables, start and end are whole and step is 1")
        assert isinstance(start, int | UOp)
        assert isinstance(end, int | UOp)
        if (missing := lacking(end, start)) is not None:
            raise ShapeError(
                f"end: {format_size(end)} is less than the start {format_size(start)}{missing}"
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
            raise ShapeError(f"step: {step} makes endlessly many steps from {start} to {end}")
        count = max(0, math.ceil(steps))
        if wanted.is_int and not whole:  # as PyTorch, which counts before, but for int64
            start, step, whole = int(start), int(step), True
            if wanted is dt.int64:
                if step == 0:
                    raise ShapeError("step: expected a number whose whole part is not 0 for int64")
                count = max(0, -((start - int(end)) // step))
    if whole and isinstance(start, int) and isinstance(count, int) and count:
        kind = wanted if wanted.is_int else dt.int64
        element(start, kind, "start")
        element(start + int(step) * (count - 1), kind, "end")
    line = build.iota(count) if not same(count, 0) else build.full(0, dt.int64, (0,))
    if whole:
        assert isinstance(start, int | UOp)
        out = build.add(build.mul(line, int(step)), build.full(start, dt.int64, line.shape))
    else:  # in float64, as rounding errors would otherwise grow along the line
        out = build.add(build.mul(line.cast(dt.float64), step), float(start))  # type: ignore[arg-type]
    return _asked(_class()._of(out.cast(wanted)), requires_grad)


def linspace(
    start: float | TensorBase, end: float | TensorBase, steps: int, dtype: object = None,
    device: object = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` numbers from `start` to `end`, both included, at equal distances.

    Parameters
    ----------
    start, end : float or Tensor without axes
        Tensors get no gradient, as in PyTorch. Where `dtype` is one of integers, the ends count
        without their fractions.
    steps : int
        At least 0.
    dtype : dtype or str, optional
        float32 unless told otherwise, whatever type the ends have.
    device : str, optional
        The CPU.
    requires_grad : bool
        Whether the result is a leaf that gradients come to.

    Raises
    ------
    ShapeError
        An end has axes, or `steps` is negative.

    Examples
    --------
    >>> import kernelrt as krt
    >>> krt.linspace(krt.tensor(1.0), 3, 5)
    tensor([1. , 1.5, 2. , 2.5, 3. ])
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
    """An end of a line: a number, or a float64 tensor without axes that has no history.

    Where it has to be `whole`, it has lost its fraction.
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
    """What linspace gives for ends of which one is a tensor; values are not read."""
    place = arange(count, dtype=dt.float64)
    step = (last - first) / max(count - 1, 1)
    # Each half from its end, so that both ends are exact.
    near = place < count / 2
    line: Tensor = _class().where(first + step * place, near, last - step * (count - 1 - place))
    return line.cast(wanted)


def eye(
    n: int, m: int | None = None, dtype: object = None, device: object = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A matrix of `n` rows and `m` (or `n`) columns with ones on its diagonal."""
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
    """The positions on and below a diagonal of a matrix, as two rows: theirs, and columns."""
    registry.check_device(device)
    return _triangle_places(row, col, offset, dtype, lower=True)


def triu_indices(
    row: int, col: int, offset: int = 0, dtype: object = None, device: object = None
) -> Tensor:
    """The positions on and above a diagonal of a matrix, as two rows: theirs, and columns."""
    registry.check_device(device)
    return _triangle_places(row, col, offset, dtype, lower=False)


def _triangle_places(row: int, col: int, offset: int, dtype: object, *, lower: bool) -> Tensor:
    shape = integer(row, "row", 0), integer(col, "col", 0)
    kept = (np.tril if lower else np.triu)(np.ones(shape, bool), integer(offset, "offset"))
    return from_data(_class(), np.argwhere(kept).T, "indices", dtype)
