"""PyTorch's tensor attributes, and constructors that reuse a tensor's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from kernelrt import dtype as dt
from kernelrt.errors import GradientError, ShapeError
from kernelrt.ir.shape import prod, same
from kernelrt.tensor.eager.data_alias import data_of, set_data
from kernelrt.tensor.nodes.arguments import own_axis, sized
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from kernelrt.tensor.free_functions import creation
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    creation = Module("kernelrt.tensor.free_functions.creation")

__all__ = ["InquiryMethods"]


class InquiryMethods(_Below):
    """Attributes that need no computation, and ``new_zeros`` and the like."""

    __slots__ = ()

    # ---- dtype

    def is_floating_point(self) -> bool:
        """Return whether the dtype is a floating-point type.

        Examples
        --------
        >>> krt.tensor([1.0]).is_floating_point(), krt.tensor([1]).is_floating_point()
        (True, False)
        """
        return self.dtype.is_float

    def is_complex(self) -> bool:
        """Return False, as there are no complex dtypes.

        Examples
        --------
        >>> krt.ones(2).is_complex()
        False
        """
        return False

    def is_conj(self) -> bool:
        """Return False, as there are no complex dtypes.

        Examples
        --------
        >>> krt.ones(2).is_conj()
        False
        """
        return False

    def is_signed(self) -> bool:
        """Return whether the dtype can represent negative numbers.

        Examples
        --------
        >>> krt.zeros(2, dtype="uint8").is_signed(), krt.zeros(2).is_signed()
        (False, True)
        """
        return self.dtype.is_float or self.dtype.is_signed

    def is_nonzero(self) -> bool:
        """Return whether the only element is not zero.

        Raises
        ------
        ShapeError
            The tensor does not have exactly one element.

        Examples
        --------
        >>> krt.tensor([3.0]).is_nonzero()
        True
        """
        return bool(self._python("is_nonzero()"))

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes.

        Examples
        --------
        >>> krt.zeros(3).itemsize
        4
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes.

        Raises
        ------
        ShapeError
            The shape has Variables, so the size is known only at run time.

        Examples
        --------
        >>> krt.zeros(2, 3).nbytes
        24
        """
        count = prod(self.dims)
        if not isinstance(count, int):
            raise ShapeError(
                "nbytes: the shape has Variables, whose values are known only at run time; use "
                "x.numel() * x.itemsize"
            )
        return count * self.dtype.itemsize

    def byte(self) -> Self:
        """Convert this tensor to uint8; see :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in uint8.

        Examples
        --------
        >>> krt.tensor([300.0, 7.9]).byte().tolist()
        [255, 7]
        """
        return self.cast(dt.uint8)

    def char(self) -> Self:
        """Convert this tensor to int8; see :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in int8.

        Examples
        --------
        >>> krt.tensor([300, 7]).char().tolist()
        [44, 7]
        """
        return self.cast(dt.int8)

    def short(self) -> Self:
        """Convert this tensor to int16; see :meth:`cast`.

        Returns
        -------
        Tensor
            This shape, in int16.

        Examples
        --------
        >>> krt.tensor([1.5, -2.5]).short().tolist()
        [1, -2]
        """
        return self.cast(dt.int16)

    # ---- shape

    def nelement(self) -> Any:
        """Return the number of elements; the same as :meth:`numel`.

        Examples
        --------
        >>> krt.ones(2, 3).nelement()
        6
        """
        return self.numel()

    def ndimension(self) -> int:
        """Return the number of axes; the same as ``ndim``.

        Examples
        --------
        >>> krt.ones(2, 3).ndimension()
        2
        """
        return self.ndim

    def is_same_size(self, other: Tensor) -> bool:
        """Return whether `other` has the same shape.

        Parameters
        ----------
        other : Tensor
            Tensor of any dtype.

        Examples
        --------
        >>> krt.zeros(2, 3).is_same_size(krt.zeros(3, 2))
        False
        """
        theirs = other.dims
        return len(theirs) == self.ndim and all(map(same, self.dims, theirs))

    def is_contiguous(self, memory_format: object = None) -> bool:  # noqa: ARG002
        """Return True: the elements of every tensor, also of a view, are read in row-major order.

        Parameters
        ----------
        memory_format : optional
            Accepted for compatibility; no effect.

        Examples
        --------
        >>> krt.ones(2, 3).mT.is_contiguous()
        True
        """
        return True

    def stride(self, dim: int | None = None) -> Any:
        """Return the stride of each axis, or of `dim`, in elements.

        These are the strides of the row-major array that :meth:`numpy` returns.

        Parameters
        ----------
        dim : int, optional
            Axis whose stride to return.

        Returns
        -------
        tuple of int, or int
            One stride for each axis, or that of `dim`.

        Raises
        ------
        ShapeError
            The size of an axis other than the first is a Variable, or there is no axis `dim`.

        Examples
        --------
        >>> krt.zeros(2, 3).stride()
        (3, 1)
        """
        steps: list[int] = []
        step = 1
        for axis in reversed(range(self.ndim)):
            steps.append(step)
            if axis:
                step *= max(self._static_size(axis, "stride"), 1)
        strides = tuple(reversed(steps))
        return strides if dim is None else strides[own_axis(dim, self.ndim)]

    def storage_offset(self) -> int:
        """Return 0: element positions start at the first element of the tensor, also in a view.

        Examples
        --------
        >>> krt.ones(3)[1:].storage_offset()
        0
        """
        return 0

    # ---- device

    @property
    def is_cpu(self) -> bool:
        """Always True: kernelrt computes on CPUs."""
        return True

    @property
    def is_cuda(self) -> bool:
        """Always False: kernelrt computes on CPUs."""
        return False

    is_meta = is_mps = is_xpu = is_xla = is_cuda

    @property
    def is_sparse(self) -> bool:
        """Always False: there are no sparse tensors."""
        return False

    @property
    def is_quantized(self) -> bool:
        """Always False: there are no quantized dtypes."""
        return False

    def get_device(self) -> int:
        """Return -1, PyTorch's device number of the CPU.

        Examples
        --------
        >>> krt.ones(2).get_device()
        -1
        """
        return -1

    def is_pinned(self) -> bool:
        """Return False, as there is no device to pin memory for.

        Examples
        --------
        >>> krt.ones(2).is_pinned()
        False
        """
        return False

    # ---- value

    @property
    def data(self) -> Self:
        """An alias of this tensor without its history: it always has the tensor's current value.

        Writing to it, as in ``p.data.mul_(0.9)`` and ``p.data[0] = 1``, writes to this tensor.
        ``p.data = value`` copies another value to this tensor. Aliases that were read from
        ``p.data`` before keep the former value. Exception: if a traced function assigns ``p.data``,
        an alias that was read outside the function gets the new value. If this tensor is the result
        of operations that gradients flow through, writing to its data raises GradientError.

        Examples
        --------
        >>> p = krt.tensor([1.0, 2.0], requires_grad=True)
        >>> p.data.mul_(2).tolist(), p.tolist()
        ([2.0, 4.0], [2.0, 4.0])
        """
        return data_of(self)  # type: ignore[return-value]

    @data.setter
    def data(self, value: Self) -> None:
        set_data(self, value)

    @property
    def real(self) -> Self:
        """This tensor, as there are no complex dtypes."""
        return self

    def conj(self) -> Self:
        """Return this tensor: there are no complex dtypes, and no tensor is negated lazily.

        Examples
        --------
        >>> krt.tensor([1.0, -2.0]).conj().tolist()
        [1.0, -2.0]
        """
        return self

    resolve_conj = resolve_neg = conj_physical = conj

    def detach_(self) -> Self:
        """Stop requiring a gradient, in place.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        GradientError
            This tensor is the result of operations that gradients flow through, which cannot be
            undone in place. Use :meth:`detach`, which returns the value without them.

        Examples
        --------
        >>> krt.tensor([1.0], requires_grad=True).detach_().requires_grad
        False
        """
        if self.requires_grad and not self.is_leaf:
            raise GradientError(
                "detach_: the tensor is the result of operations that gradients flow through; "
                "write x = x.detach()"
            )
        return self.requires_grad_(False) if self.requires_grad else self

    # ---- tensors of the same dtype

    @sized
    def new_zeros(self, *size: Any, dtype: object = None, device: object = None,
                  requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return zeros of the given shape, in this tensor's dtype by default.

        Parameters
        ----------
        *size : int or sequence of int
            Shape of the result, as in ``(2, 3)`` or ``2, 3``.
        dtype : DType or str, optional
            Another dtype.
        device : optional
            Only ``"cpu"``.
        requires_grad : bool, default False
            Whether to record gradients of the result.

        Returns
        -------
        Tensor
            Shape `size`.

        Examples
        --------
        >>> krt.tensor([1, 2]).new_zeros(2, 3).tolist()
        [[0, 0, 0], [0, 0, 0]]
        """
        dtype = self._or_own(dtype)
        return creation.zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)

    @sized
    def new_ones(self, *size: Any, dtype: object = None, device: object = None,
                 requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return ones of the given shape, in this tensor's dtype by default.

        Parameters
        ----------
        *size : int or sequence of int
            Shape of the result, as in ``(2, 3)`` or ``2, 3``.
        dtype, device, requires_grad : optional
            As in :meth:`new_zeros`.

        Returns
        -------
        Tensor
            Shape `size`.

        Examples
        --------
        >>> krt.tensor([1, 2]).new_ones(3).tolist()
        [1, 1, 1]
        """
        dtype = self._or_own(dtype)
        return creation.ones(*size, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_full(self, size: Any, fill_value: bool | float, dtype: object = None,
                 device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return a tensor filled with `fill_value`, in this tensor's dtype by default.

        Parameters
        ----------
        size : int or sequence of int
            Shape of the result.
        fill_value : bool, int or float
            Value of each element. An integer dtype drops its fraction.
        dtype, device, requires_grad : optional
            As in :meth:`new_zeros`.

        Returns
        -------
        Tensor
            Shape `size`.

        Raises
        ------
        DTypeError
            `fill_value` is outside of the range of an integer dtype.

        Examples
        --------
        >>> krt.tensor([1.5]).new_full((3,), 7).tolist()
        [7.0, 7.0, 7.0]
        """
        return creation.full(size, fill_value, self._or_own(dtype), device, requires_grad)

    @sized
    def new_empty(self, *size: Any, dtype: object = None, device: object = None,
                  requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return an uninitialized tensor of the given shape, in this tensor's dtype by default.

        Parameters
        ----------
        *size : int or sequence of int
            Shape of the result, as in ``(2, 3)`` or ``2, 3``.
        dtype, device, requires_grad : optional
            As in :meth:`new_zeros`.

        Returns
        -------
        Tensor
            Shape `size`. In a traced function the elements are 0.

        Examples
        --------
        >>> krt.zeros(1).new_empty(2, 3).shape
        (2, 3)
        """
        made = creation.empty(*size, dtype=self._or_own(dtype), device=device)
        return made.requires_grad_() if requires_grad else made

    def new_tensor(self, data: Any, dtype: object = None, device: object = None,
                   requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return a tensor with a copy of `data`, in this tensor's dtype by default.

        Parameters
        ----------
        data : number, nested lists, array or Tensor
            Elements of the result.
        dtype, device, requires_grad : optional
            As in :meth:`new_zeros`.

        Returns
        -------
        Tensor
            Shape of `data`.

        Examples
        --------
        >>> krt.tensor([1.5]).new_tensor([1, 2]).tolist()
        [1.0, 2.0]
        """
        return creation.tensor(data, self._or_own(dtype), device, requires_grad)

    def _or_own(self, dtype: object) -> object:
        return self.dtype if dtype is None else dtype
