"""Conversion to Python and NumPy, and between types."""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device import dlpack
from kernelrt.device.registry import check_device
from kernelrt.errors import DeviceError, DTypeError, ScalarError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.ir.ufuncs import asked, operate
from kernelrt.native.array_handle import ArrayHandle
from kernelrt.native.evaluate import computed_alone
from kernelrt.tensor import views
from kernelrt.tensor.autograd import gradient_state
from kernelrt.tensor.eager import diagnostics, shared_memory
from kernelrt.tensor.eager.realize import flush, realize
from kernelrt.tensor.nodes import float_parts
from kernelrt.tensor.nodes.arguments import take_by_value, type_of_to
from kernelrt.tensor.nodes.positions import known
from kernelrt.tensor.operation import operation
from kernelrt.tensor.tracing.trace import forbid, is_tracing
from kernelrt.util.lazy_import import Module, load

if TYPE_CHECKING:
    from kernelrt.tensor.free_functions import numpy_calls
    from kernelrt.tensor.methods.loss import LossMethods as _Below
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object
    numpy_calls = Module("kernelrt.tensor.free_functions.numpy_calls")

__all__ = ["ConversionMethods"]


class ConversionMethods(_Below):
    """Reading values, and casts that are named after their type."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators and functions of numbers, as tensors; DTypeError for others."""
        out = options.pop("out", ())
        if out and "where" not in options and all(isinstance(o, ArrayHandle) for o in out):
            found = getattr(ufunc, method)(*inputs, **options)
            return numpy_calls.written(found, out, asked(ufunc, method))
        options = {**options, "out": out} if out else options
        found = operate(self, ufunc, method, inputs, options)
        if found is NotImplemented:
            found = numpy_calls.universal(self, ufunc, method, inputs, options)
        if found is NotImplemented:
            name, own = asked(ufunc, method), "the tensor's own methods"
            if method == "__call__" and hasattr(self, ufunc.__name__):
                own = f"x.{ufunc.__name__}()"
            raise DTypeError(
                f"{name}: computes with arrays, not with tensors; use {own}, or "
                f"{name}(x.numpy()) where values are there to be read"
            )
        return found

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's other functions, as ``numpy.sum(x)``; DTypeError where none stands for it."""
        return numpy_calls.call(func, args, kwargs)

    # ---- values

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array of their own.

        Raises
        ------
        JitError
            A function is being traced.
        DTypeError
            The type is bfloat16, which NumPy does not have.
        """
        forbid("numpy()")
        if self._link is not None and self._address is None:
            found = views.copied_from_memory(self)
            if found is not None:
                diagnostics.tell()
                return found
        if self._uop is not None:  # otherwise it is the result of a replay, and nothing is pending
            self._realized()
        array = self._copy_out()
        while array is None and self._address is None:  # a view, and another thread has written
            self._realized()
            array = self._copy_out()
        if array is None:
            dt.to_numpy(self.dtype)  # says what bfloat16 can be cast to
        assert array is not None
        return array

    def _realized(self) -> None:
        """Make sure that the data are there and current."""
        if computed_alone(self):
            diagnostics.tell()
            return
        if self._link is not None:
            views.enter(self, self._link)
            if self.is_realized:  # else what is assigned is written by the plan that computes it
                flush()
                views.enter(self, self._link)
        if not self.is_realized:
            realize(self)
        else:
            flush()
            diagnostics.tell()

    def _in_memory(self) -> None:
        """Compute this tensor; a view that can share memory with its root then does."""
        if self._link is not None:
            realize(self._link.root)
        self._realized()

    def item(self) -> Any:
        """The only element, as a Python number.

        Raises
        ------
        ShapeError
            There is not exactly one element.
        """
        return self._python("item()")

    def _python(self, asked: str) -> Any:
        """The only element as a Python number, for what `asked` for it."""
        if is_tracing():
            self._take_by_value()
        forbid(asked)
        if self._uop is not None:
            self._realized()
        value = self._only()
        if value is not None:
            return value
        if self.numel() != 1:
            raise ShapeError(
                f"{asked.rstrip(',')}: the tensor has shape {format_shape(self.dims)}, not one "
                "element; index or reduce it first"
            )
        source = self.cast(dt.float32) if self.dtype is dt.bfloat16 else self
        return source.numpy().item()

    def _take_by_value(self) -> None:
        """Let float arguments be part of the traced program where this package needs the number.

        Code of the user's that reads one is told that there is no value.
        """
        frame = sys._getframe()
        while frame.f_code.co_filename == __file__ and frame.f_back is not None:
            frame = frame.f_back
        name = str(frame.f_globals.get("__name__"))
        # What jit calls itself is a function of the user's without a frame, as max().
        if name.startswith("kernelrt.") and not name.startswith("kernelrt.jit."):
            take_by_value(self)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        source = self.cast(dt.float32) if self.dtype is dt.bfloat16 else self
        return source.numpy().tolist()

    def data_ptr(self) -> builtins.int:
        """Address of the first element; computes the tensor."""
        forbid("data_ptr()")
        self._in_memory()
        shared_memory.lend(self)
        address, buffer = self._address, self._buffer
        assert address is not None
        assert buffer is not None
        buffer.storage.share()
        return address

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The functions of the array API standard: the module ``kernelrt.array_api``.

        Parameters
        ----------
        api_version : str, optional
            A version of the standard, "2021.12" to "2024.12".
        """
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ShapeError(
                f"api_version: expected '2021.12', '2022.12', '2023.12' or '2024.12', not "
                f"{api_version!r}"
            )
        name = "kernelrt.array_api"  # which stands above tensors
        load(name)
        return sys.modules[name]

    def to_device(self, device: object, /, *, stream: object = None) -> Self:
        """This tensor; all tensors are on the CPU.

        Raises
        ------
        DeviceError
            Another device is named, or a stream, which the CPU has not.
        """
        check_device(device)
        if stream is not None:
            raise DeviceError(f"stream: expected None, as the CPU has none, not {stream!r}")
        return self

    def __array__(self, dtype: Any = None, copy: builtins.bool | None = None) -> Any:
        if copy is False:
            raise ValueError("the elements of a tensor are copied; pass copy=None")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __arrow_array__(self, type: Any = None) -> Any:  # noqa: A002 - Arrow's name
        """The elements of a vector as an array of Arrow, as ``pyarrow.array(x)`` asks."""
        if self.ndim != 1:
            raise ShapeError(
                f"__arrow_array__: an array of Arrow is a vector, not of shape "
                f"{format_shape(self.dims)}; give a column, as x[:, 0], or x.tolist()"
            )
        try:
            import pyarrow as pa  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise DTypeError(
                "__arrow_array__: needs the package pyarrow; install it, or give x.numpy()"
            ) from None
        return pa.array(self.numpy(), type=type)

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        """The same for others that read Arrow's arrays, as ``polars.Series(x)`` does."""
        return self.__arrow_array__().__arrow_c_array__(requested_schema)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[builtins.int, builtins.int] | None = None,
        dl_device: tuple[builtins.int, builtins.int] | None = None,
        copy: builtins.bool | None = None,
    ) -> Any:
        """The data, shared with the importer.

        It copies a view whose elements do not follow each other in memory, such as ``x.T``.
        """
        forbid("__dlpack__()")
        self._in_memory()
        gradient_state.move_out(self)
        shared_memory.lend(self)
        buffer = self._buffer
        assert buffer is not None
        shaped = buffer.raw().reshape(self._shape or ())
        asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return dlpack.export(shaped, self.dtype is dt.bfloat16, asked)

    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        return (1, 0)

    def __len__(self) -> builtins.int:
        if self.ndim == 0:
            raise ScalarError("len: a tensor without axes has no length")
        return self._static_size(0, "len")

    def __iter__(self) -> Any:
        if self.ndim == 0:
            raise ScalarError("iter: a tensor without axes cannot be iterated over; use item()")
        self._static_size(0, "iter")
        return iter(self.unbind(0))

    def __contains__(self, value: Any) -> builtins.bool:
        return builtins.bool((self == value).any().item())

    def __bool__(self) -> builtins.bool:
        if self.numel() != 1:
            raise ShapeError(
                f"bool: the truth of a tensor of shape {format_shape(self.dims)} is ambiguous; "
                "use any() or all(), and maximum() or minimum() for max() or min()"
            )
        asked = "bool(), which if, while, and, not, min() and max() ask,"
        return builtins.bool(self._python(asked))

    def __float__(self) -> builtins.float:
        return builtins.float(self._python("float(), which math.sqrt() and its kin ask,"))

    def __complex__(self) -> complex:
        return complex(self._python("complex()"))

    def __int__(self) -> builtins.int:
        return builtins.int(self._python("int()"))

    def __index__(self) -> builtins.int:
        if not self.dtype.is_int:
            raise DTypeError(f"index: expected an integer tensor, not {self.dtype.name}")
        if is_tracing() and not self.ndim and (found := known(self)) is not None:
            return builtins.int(found)
        return builtins.int(self._python("index(), which range() and lists ask,"))

    def __format__(self, spec: str) -> str:
        if not spec and (self.ndim or is_tracing()):
            return repr(self)
        forbid("format()")
        if self.ndim:
            raise ScalarError(
                f"format: a tensor of shape {format_shape(self.dims)} takes no format "
                f"{spec!r}, which is for one number; format x.item(), each of x.tolist(), or "
                "str(x)"
            )
        return format(self.item(), spec)

    def __repr__(self) -> str:
        head = f"shape={format_shape(self.dims)}, dtype={self.dtype.name}"
        if self.requires_grad:
            head += ", requires_grad=True"
        if is_tracing() or not (self.is_realized or self._born is None):
            return f"<Tensor, traced, {head}>"
        if not all(isinstance(d, int) for d in self.dims):
            return f"<Tensor, {head}>"
        source = self.cast(dt.float32) if self.dtype is dt.bfloat16 else self
        elements = views.values_of(source)
        elements = source.numpy() if elements is None else elements
        text = np.array2string(elements, separator=", ", prefix="tensor(")
        summarized = elements.size > np.get_printoptions()["threshold"]
        tail = f", shape={format_shape(self.dims)}" if summarized else ""
        usual = self.dtype in (dt.float32, dt.int64, dt.bool_)
        tail += "" if usual else f", dtype={self.dtype.name}"
        if self.requires_grad:
            tail += ", requires_grad=True"
        return f"tensor({text}{tail})"

    # ---- types

    def to(
        self, *args: object, dtype: object = None, device: object = None, copy: bool = False,
        non_blocking: bool = False,
    ) -> Self:  # fmt: skip
        """This tensor with another scalar type, as in ``x.to(kernelrt.float64)``.

        Parameters
        ----------
        *args : DType, str or Tensor
            A type, the device that holds it (``"cpu"``), which changes nothing, or a tensor that
            has the type. Behind them `non_blocking` and `copy`, as in PyTorch.
        dtype, device : optional
            The same by name.
        copy : bool
            Whether the result is another tensor where the type stays, too.
        non_blocking : bool
            Accepted, and without a meaning on the CPU.

        Raises
        ------
        DeviceError
            Another device is named.
        """
        del non_blocking
        flags = [arg for arg in args if isinstance(arg, bool)]
        wanted = type_of_to(args, dtype, device)
        out = self if wanted is None else self.cast(wanted)
        return out.clone() if out is self and (copy or flags[1:] == [True]) else out

    def cpu(self) -> Self:
        """This tensor; all tensors are on the CPU."""
        return self

    def type(self, dtype: object = None) -> Self:
        """The same as :meth:`cast`.

        Raises
        ------
        DTypeError
            There is no `dtype`: the type of a tensor is its attribute of that name.
        """
        if dtype is None:
            raise DTypeError("dtype: expected a scalar type; the one that a tensor has is x.dtype")
        return self.cast(dtype)

    def type_as(self, other: Self) -> Self:
        """This tensor with the scalar type of `other`."""
        return self.cast(other.dtype)

    @operation
    def bitcast(self, dtype: object) -> Self:
        """The bits of the elements read as another type.

        One of another width has more or fewer elements along the last axis; those that share an
        element stand in order, the lowest bits first.

        Raises
        ------
        DTypeError
            Bools are read, or are to be read.
        ShapeError
            Widths differ, and there is no last axis, or it does not make whole elements.
        """
        wanted = dt.parse(dtype)
        if wanted is self.dtype:
            return self
        if dt.bool_ in (wanted, self.dtype):
            raise DTypeError(
                f"dtype: {self.dtype.name} cannot be read as {wanted.name}, as the bits of bools "
                "say no more than 0 and 1; cast converts values instead"
            )
        return self._of(float_parts.bits_as(self.uop, wanted))

    def float(self) -> Self:
        """This tensor as float32."""
        return self.cast(dt.float32)

    def double(self) -> Self:
        """This tensor as float64."""
        return self.cast(dt.float64)

    def half(self) -> Self:
        """This tensor as float16."""
        return self.cast(dt.float16)

    def bfloat16(self) -> Self:
        """This tensor as bfloat16."""
        return self.cast(dt.bfloat16)

    def int(self) -> Self:
        """This tensor as int32."""
        return self.cast(dt.int32)

    def long(self) -> Self:
        """This tensor as int64."""
        return self.cast(dt.int64)

    def bool(self) -> Self:
        """Whether each element is not zero."""
        return self.cast(dt.bool_)
