"""Conversion to Python and NumPy, and between dtypes."""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelrt import dtype as dt
from kernelrt.device import dlpack
from kernelrt.device.registry import check_device
from kernelrt.errors import DeviceError, DomainError, DTypeError, ScalarError, ShapeError
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
from kernelrt.util import displays
from kernelrt.util.lazy_import import Module, load

if TYPE_CHECKING:
    from kernelrt.tensor.free_functions import numpy_calls
    from kernelrt.tensor.methods.loss import LossMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    numpy_calls = Module("kernelrt.tensor.free_functions.numpy_calls")

__all__ = ["ConversionMethods"]


class ConversionMethods(_Below):
    """Methods that read values, and casts named after their dtype."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute a NumPy ufunc on tensors; raise DTypeError if the ufunc is not supported.

        Examples
        --------
        >>> np.add(krt.tensor([1.0, 2.0]), 1).tolist()
        [2.0, 3.0]
        """
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
                f"{name}: this NumPy function takes arrays, not tensors; use {own}, or "
                f"{name}(x.numpy()) outside of traced functions"
            )
        return found

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call the counterpart of a NumPy function such as ``numpy.sum``, or raise DTypeError.

        Examples
        --------
        >>> np.concatenate([krt.tensor([1, 2]), krt.tensor([3])]).tolist()
        [1, 2, 3]
        """
        return numpy_calls.call(func, args, kwargs)

    # ---- values

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the elements as a NumPy array.

        Returns
        -------
        numpy.ndarray
            Same shape and dtype; you may write to it.

        Raises
        ------
        JitError
            A function is being traced.
        DTypeError
            The dtype is bfloat16, which NumPy does not have.

        Examples
        --------
        >>> krt.tensor([[1.0, 2.0]]).numpy().shape
        (1, 2)
        """
        forbid("numpy()")
        if self._link is not None and self._address is None:
            found = views.copied_from_memory(self)
            if found is not None:
                diagnostics.tell()
                return found
        if self._uop is not None:  # otherwise this is the result of a replay: nothing is pending
            self._realized()
        array = self._copy_out()
        while array is None and self._address is None:  # a view, and another thread has written
            self._realized()
            array = self._copy_out()
        if array is None:
            dt.to_numpy(self.dtype)  # raises an error that names casts of bfloat16
        assert array is not None
        return array

    def _realized(self) -> None:
        """Compute this tensor if needed, so that its data in memory are current."""
        if computed_alone(self):
            diagnostics.tell()
            return
        if self._link is not None:
            views.enter(self, self._link)
            if self.is_realized:  # else the plan that computes this tensor writes assigned values
                flush()
                views.enter(self, self._link)
        if not self.is_realized:
            realize(self)
        else:
            flush()
            diagnostics.tell()

    def _in_memory(self) -> None:
        """Compute this tensor; a view first computes its root, to share its memory if possible."""
        if self._link is not None:
            realize(self._link.root)
        self._realized()

    def item(self) -> Any:
        """Return the only element as a Python number.

        Returns
        -------
        bool, int or float
            The element, of the Python type that fits the dtype.

        Raises
        ------
        ShapeError
            The tensor does not have exactly one element.
        JitError
            A function is being traced.

        Examples
        --------
        >>> krt.tensor([[2.5]]).item()
        2.5
        """
        return self._python("item()")

    def _python(self, asked: str, *instead: str) -> Any:
        """Return the only element as a Python number.

        `asked` names the caller in errors. `instead` says what to write instead in a traced
        function.
        """
        if is_tracing():
            self._take_by_value()
        forbid(asked, *instead)
        if self._uop is not None:
            self._realized()
        value = self._only()
        if value is not None:
            return value
        if self.numel() != 1:
            raise ShapeError(
                f"{asked}: expected a tensor with one element, not of shape "
                f"{format_shape(self.dims)}; index or reduce it first"
            )
        source = self.cast(dt.float32) if self.dtype is dt.bfloat16 else self
        return source.numpy().item()

    def _take_by_value(self) -> None:
        """If kernelrt's own code reads a float argument, trace again with the number as a constant.

        If user code reads such an argument, do nothing: the caller raises an error, because the
        argument has no value during tracing.
        """
        frame = sys._getframe()
        while frame.f_code.co_filename == __file__ and frame.f_back is not None:
            frame = frame.f_back
        name = str(frame.f_globals.get("__name__"))
        # A caller in kernelrt.jit stands for user code without a Python frame, such as max().
        if name.startswith("kernelrt.") and not name.startswith("kernelrt.jit."):
            take_by_value(self)

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers.

        Returns
        -------
        list, or bool, int or float
            One level of lists for each axis; a number for a scalar.

        Raises
        ------
        JitError
            A function is being traced.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        source = self.cast(dt.float32) if self.dtype is dt.bfloat16 else self
        return source.numpy().tolist()

    def data_ptr(self) -> builtins.int:
        """Compute the tensor and return the address of its first element.

        Returns
        -------
        int
            Address in memory.

        Raises
        ------
        JitError
            A function is being traced.

        Examples
        --------
        >>> x = krt.tensor([1.5, 2.5])
        >>> import ctypes
        >>> ctypes.c_float.from_address(x.data_ptr()).value
        1.5
        """
        forbid("data_ptr()")
        self._in_memory()
        shared_memory.lend(self)
        address, buffer = self._address, self._buffer
        assert address is not None
        assert buffer is not None
        buffer.storage.share()
        return address

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """Return the namespace of the array API standard, the module ``kernelrt.array_api``.

        Parameters
        ----------
        api_version : str, optional
            Version of the standard, "2021.12" to "2024.12".

        Raises
        ------
        ShapeError
            `api_version` is not one of these versions.

        Examples
        --------
        >>> x = krt.tensor([1.0, 4.0])
        >>> x.__array_namespace__().sqrt(x).tolist()
        [1.0, 2.0]
        """
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise DomainError(
                f"api_version: expected '2021.12', '2022.12', '2023.12' or '2024.12', not "
                f"{api_version!r}"
            )
        name = "kernelrt.array_api"  # loaded late: that package imports tensors
        load(name)
        return sys.modules[name]

    def to_device(self, device: object, /, *, stream: object = None) -> Self:
        """Return this tensor; all tensors are on the CPU.

        Parameters
        ----------
        device : Device or str
            Only the CPU.
        stream : None
            Argument of the array API standard; the CPU has no streams.

        Raises
        ------
        DeviceError
            `device` is not the CPU, or `stream` is not None.

        Examples
        --------
        >>> krt.tensor([1.0]).to_device("cpu").tolist()
        [1.0]
        """
        check_device(device)
        if stream is not None:
            raise DeviceError(f"stream: expected None, as the CPU has no streams, not {stream!r}")
        return self

    def __array__(self, dtype: Any = None, copy: builtins.bool | None = None) -> Any:
        if copy is False:
            raise ValueError("copy: converting a tensor to an array always copies; pass copy=None")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __arrow_array__(self, type: Any = None) -> Any:  # noqa: A002 - Arrow's name
        """Return a vector as an Arrow array, for ``pyarrow.array(x)``.

        Raises
        ------
        ShapeError
            This tensor does not have exactly 1 axis.
        DTypeError
            The package pyarrow is not installed.
        """
        if self.ndim != 1:
            raise ShapeError(
                f"__arrow_array__: expected a vector, not shape {format_shape(self.dims)}; pass a "
                "column, as in x[:, 0], or x.tolist()"
            )
        try:
            import pyarrow as pa  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise DTypeError(
                "__arrow_array__: needs the package pyarrow; install it, or pass x.numpy()"
            ) from None
        return pa.array(self.numpy(), type=type)

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        """Export a vector to other libraries that read Arrow arrays, for ``polars.Series(x)``."""
        return self.__arrow_array__().__arrow_c_array__(requested_schema)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[builtins.int, builtins.int] | None = None,
        dl_device: tuple[builtins.int, builtins.int] | None = None,
        copy: builtins.bool | None = None,
    ) -> Any:
        """Export the data in memory shared with the importer.

        A view whose elements are not contiguous in memory, such as ``x.T``, is copied.

        Examples
        --------
        >>> x = krt.zeros(2)
        >>> shared = np.from_dlpack(x)
        >>> x[0] = 5.0
        >>> shared.tolist()
        [5.0, 0.0]
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
            raise ScalarError("len: a tensor without axes has no length; use numel()")
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
                f"bool: the truth value of a tensor of shape {format_shape(self.dims)} is "
                "ambiguous; use x.any() or x.all(); instead of Python's max() or min(), use "
                "krt.maximum() or minimum()"
            )
        asked = "bool() (called by if, while, and, or, not, min() and max())"
        return builtins.bool(self._python(asked))

    def __float__(self) -> builtins.float:
        return builtins.float(self._python("float() (called by math.sqrt() and similar functions)"))

    def __complex__(self) -> complex:
        return complex(self._python("complex()"))

    def __int__(self) -> builtins.int:
        return builtins.int(self._python("int()"))

    def __index__(self) -> builtins.int:
        return self._as_index("index() (called by range() and list indexing)")

    def _as_index(self, asked: str, *instead: str) -> builtins.int:
        """Return the only element as an int; see :meth:`_python`."""
        if not self.dtype.is_int:
            raise DTypeError(
                f"index: expected an integer tensor, not {self.dtype.name}; cast it, as in x.long()"
            )
        if is_tracing() and not self.ndim and (found := known(self)) is not None:
            return builtins.int(found)
        return builtins.int(self._python(asked, *instead))

    def __format__(self, spec: str) -> str:
        if not spec and (self.ndim or is_tracing()):
            return repr(self)
        forbid("format()")
        if self.ndim:
            raise ScalarError(
                f"format: {spec!r} formats one number, not a tensor of shape "
                f"{format_shape(self.dims)}; format the numbers of x.flatten().tolist(), or str(x)"
            )
        return format(self.item(), spec)

    def __repr__(self) -> str:
        head = f"shape={format_shape(self.dims)}, dtype={self.dtype.name}"
        if self.requires_grad:
            head += ", requires_grad=True"
        elements = self._shown_values()
        if elements is None:
            return f"<Tensor, {'traced, ' if self._is_traced() else ''}{head}>"
        text = np.array2string(elements, separator=", ", prefix="tensor(")
        summarized = elements.size > np.get_printoptions()["threshold"]
        tail = f", shape={format_shape(self.dims)}" if summarized else ""
        usual = self.dtype in (dt.float32, dt.int64, dt.bool_)
        tail += "" if usual else f", dtype={self.dtype.name}"
        if self.requires_grad:
            tail += ", requires_grad=True"
        return f"tensor({text}{tail})"

    def _is_traced(self) -> bool:
        """Return whether the tensor has no values because a function is traced."""
        return is_tracing() or not (self.is_realized or self._born is None)

    def _shown_values(self) -> np.ndarray[Any, Any] | None:
        """Compute the elements for display, bfloat16 as float32; None if there are none yet."""
        if self._is_traced() or not all(isinstance(d, int) for d in self.dims):
            return None
        source = self.cast(dt.float32) if self.dtype is dt.bfloat16 else self
        elements = views.values_of(source)
        return source.numpy() if elements is None else elements

    def _repr_html_(self) -> str | None:
        """Return a table for notebooks; None for a tensor without values."""
        return displays.html_of(self)

    # ---- dtypes
    def to(
        self, *args: object, dtype: object = None, device: object = None, copy: bool = False,
        non_blocking: bool = False,
    ) -> Self:  # fmt: skip
        """Convert this tensor to another dtype, as in ``x.to(krt.float64)``.

        Floats out of the range of an integer dtype are clamped to it, unlike in PyTorch: 200.0 is
        127 in int8. :meth:`cast` describes all conversions.

        Parameters
        ----------
        *args : DType, str or Tensor
            A dtype, a device (only ``"cpu"``, which has no effect), or a tensor whose dtype to use.
            `non_blocking` and `copy` may follow by position, as in PyTorch.
        dtype, device : optional
            The same as keywords.
        copy : bool, default False
            Whether to return a new tensor even if the dtype stays.
        non_blocking : bool, default False
            Accepted for compatibility; no effect on the CPU.

        Returns
        -------
        Tensor
            Same shape, in the new dtype; this tensor itself if nothing changes.

        Raises
        ------
        DeviceError
            The device is not the CPU.

        Examples
        --------
        >>> krt.tensor([1.5, -2.5]).to(krt.int32).tolist()
        [1, -2]
        >>> krt.tensor([200.0, -200.0]).to(krt.int8).tolist()
        [127, -128]
        """
        del non_blocking
        flags = [arg for arg in args if isinstance(arg, bool)]
        wanted = type_of_to(args, dtype, device)
        out = self if wanted is None else self.cast(wanted)
        return out.clone() if out is self and (copy or flags[1:] == [True]) else out

    def cpu(self) -> Self:
        """Return this tensor; all tensors are on the CPU.

        Examples
        --------
        >>> x = krt.ones(2)
        >>> x.cpu() is x
        True
        """
        return self

    def type(self, dtype: object = None) -> Self:
        """Convert this tensor to `dtype`; the same as :meth:`cast`.

        Parameters
        ----------
        dtype : DType or str
            New dtype.

        Returns
        -------
        Tensor
            Same shape, in the new dtype.

        Raises
        ------
        DTypeError
            `dtype` is missing. A tensor's dtype is its attribute ``dtype``.

        Examples
        --------
        >>> krt.tensor([1.5, -2.5]).type("int32").tolist()
        [1, -2]
        """
        if dtype is None:
            raise DTypeError("dtype: expected a dtype to cast to; to read the dtype, use x.dtype")
        return self.cast(dtype)

    def type_as(self, other: Self) -> Self:
        """Convert this tensor to the dtype of `other`.

        Parameters
        ----------
        other : Tensor
            Tensor of any shape.

        Returns
        -------
        Tensor
            Same shape, dtype of `other`.

        Examples
        --------
        >>> krt.tensor([1, 2]).type_as(krt.tensor(0.5)).tolist()
        [1.0, 2.0]
        """
        return self.cast(other.dtype)

    @operation
    def bitcast(self, dtype: object) -> Self:
        """Reinterpret the bits of the elements as another dtype.

        If the item sizes differ, the last axis becomes longer or shorter. The narrow elements that
        share a wide element are in order, lowest bits first.

        Parameters
        ----------
        dtype : DType or str
            New dtype.

        Returns
        -------
        Tensor
            Of `dtype`; shape (..., n * old item size / new item size) for shape (..., n).

        Raises
        ------
        DTypeError
            This tensor's dtype or `dtype` is bool.
        ShapeError
            The item sizes differ, and this tensor has no axes, or its last axis does not consist of
            whole elements of `dtype`.

        Examples
        --------
        >>> krt.tensor([1.0]).bitcast("int32").tolist()
        [1065353216]
        >>> krt.tensor([1.0]).bitcast("uint8").tolist()
        [0, 0, 128, 63]
        """
        wanted = dt.parse(dtype)
        if wanted is self.dtype:
            return self
        if dt.bool_ in (wanted, self.dtype):
            raise DTypeError(
                f"dtype: the bits of {self.dtype.name} cannot be reinterpreted as {wanted.name}, "
                "as a bool is only 0 or 1; use cast to convert values"
            )
        return self._of(float_parts.bits_as(self.uop, wanted))

    def float(self) -> Self:
        """Convert this tensor to float32; see :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in float32.

        Examples
        --------
        >>> krt.tensor([1, 2]).float().tolist()
        [1.0, 2.0]
        """
        return self.cast(dt.float32)

    def double(self) -> Self:
        """Convert this tensor to float64; see :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in float64.

        Examples
        --------
        >>> krt.tensor([1, 2]).double().tolist()
        [1.0, 2.0]
        """
        return self.cast(dt.float64)

    def half(self) -> Self:
        """Convert this tensor to float16; numbers from 65520 on become infinite. See :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in float16.

        Examples
        --------
        >>> krt.tensor([0.5, 1e6]).half().tolist()
        [0.5, inf]
        """
        return self.cast(dt.float16)

    def bfloat16(self) -> Self:
        """Convert this tensor to bfloat16, which keeps 8 significant bits; see :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in bfloat16.

        Examples
        --------
        >>> krt.tensor([257.0, 0.5]).bfloat16().tolist()
        [256.0, 0.5]
        """
        return self.cast(dt.bfloat16)

    def int(self) -> Self:
        """Convert this tensor to int32; fractions are dropped. See :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in int32.

        Examples
        --------
        >>> krt.tensor([1.7, -1.7]).int().tolist()
        [1, -1]
        """
        return self.cast(dt.int32)

    def long(self) -> Self:
        """Convert this tensor to int64; fractions are dropped. See :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in int64.

        Examples
        --------
        >>> krt.tensor([1.7, -1.7]).long().tolist()
        [1, -1]
        """
        return self.cast(dt.int64)

    def bool(self) -> Self:
        """Return whether each element is nonzero; NaN counts as nonzero.

        Returns
        -------
        Tensor of bools
            Same shape.

        Examples
        --------
        >>> krt.tensor([0.0, 0.5, -2.0]).bool().tolist()
        [False, True, True]
        """
        return self.cast(dt.bool_)
