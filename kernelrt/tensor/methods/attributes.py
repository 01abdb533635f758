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
else:  # at run time a mixin without bases: freeing a tensor visits each base class of Tensor
    _Below = object
    creation = Module("kernelrt.tensor.free_functions.creation")

__all__ = ["InquiryMethods"]


class InquiryMethods(_Below):
    """Attributes that need no computation, and ``new_zeros`` and the like."""

    __slots__ = ()

    # ---- dtype

    def is_floating_point(self) -> bool:
        """Return whether the dtype is a floating-point type."""
        return self.dtype.is_float

    def is_complex(self) -> bool:
        """Return False, as there are no complex dtypes."""
        return False

    def is_conj(self) -> bool:
        """Return False, as there are no complex dtypes."""
        return False

    def is_signed(self) -> bool:
        """Return whether the dtype can represent negative numbers."""
        return self.dtype.is_float or self.dtype.is_signed

    def is_nonzero(self) -> bool:
        """Return whether the only element is not zero.

        Raises
        ------
        ShapeError
            The tensor does not have exactly one element.
        """
        return bool(self._python("is_nonzero()"))

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes.

        Raises
        ------
        ShapeError
            The shape has Variables, so the size is known only at run time.
        """
        count = prod(self.dims)
        if not isinstance(count, int):
            raise ShapeError(
                "nbytes: the shape has Variables, whose values are known only at run time; use "
                "x.numel() * x.itemsize"
            )
        return count * self.dtype.itemsize

    def byte(self) -> Self:
        """Convert this tensor to uint8."""
        return self.cast(dt.uint8)

    def char(self) -> Self:
        """Convert this tensor to int8."""
        return self.cast(dt.int8)

    def short(self) -> Self:
        """Convert this tensor to int16."""
        return self.cast(dt.int16)

    # ---- shape

    def nelement(self) -> Any:
        """Return the number of elements; the same as :meth:`numel`."""
        return self.numel()

    def ndimension(self) -> int:
        """Return the number of axes; the same as ``ndim``."""
        return self.ndim

    def is_same_size(self, other: Tensor) -> bool:
        """Return whether `other` has the same shape."""
        theirs = other.dims
        return len(theirs) == self.ndim and all(map(same, self.dims, theirs))

    def is_contiguous(self, memory_format: object = None) -> bool:  # noqa: ARG002
        """Return True: elements are read in row-major order, also those of views."""
        return True

    def stride(self, dim: int | None = None) -> Any:
        """Return the stride of each axis, or of `dim`, in elements.

        These are the strides of the row-major array that :meth:`numpy` returns.

        Raises
        ------
        ShapeError
            The size of an axis other than the first is a Variable, or there is no axis `dim`.
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
        """Return 0: elements are counted from the first one, also those of views."""
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
        """Return -1, PyTorch's device number of the CPU."""
        return -1

    def is_pinned(self) -> bool:
        """Return False, as there is no device to pin memory for."""
        return False

    # ---- value

    @property
    def data(self) -> Self:
        """An alias of this tensor without its history: it always has the tensor's current value.

        Writing to it, as in ``p.data.mul_(0.9)`` and ``p.data[0] = 1``, writes to this tensor.
        ``p.data = value`` copies another value to this tensor. Aliases taken before as ``p.data``
        keep the former value, except that an alias taken outside of a traced function changes if
        the function assigns ``p.data``. If this tensor is the result of operations that gradients
        flow through, writing to its data raises GradientError.
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
        """Return this tensor, as there are no complex dtypes."""
        return self

    resolve_conj = resolve_neg = conj_physical = conj

    def detach_(self) -> Self:
        """Stop requiring a gradient, in place.

        Raises
        ------
        GradientError
            This tensor is the result of operations that gradients flow through, which cannot be
            undone in place. Use :meth:`detach`, which returns the value without them.
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
        """Return zeros of the given shape, in this tensor's dtype by default."""
        dtype = self._or_own(dtype)
        return creation.zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)

    @sized
    def new_ones(self, *size: Any, dtype: object = None, device: object = None,
                 requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return ones of the given shape, in this tensor's dtype by default."""
        dtype = self._or_own(dtype)
        return creation.ones(*size, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_full(self, size: Any, fill_value: bool | float, dtype: object = None,
                 device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return a tensor filled with `fill_value`, in this tensor's dtype by default."""
        return creation.full(size, fill_value, self._or_own(dtype), device, requires_grad)

    @sized
    def new_empty(self, *size: Any, dtype: object = None, device: object = None,
                  requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return an uninitialized tensor of the given shape, in this tensor's dtype by default."""
        made = creation.empty(*size, dtype=self._or_own(dtype), device=device)
        return made.requires_grad_() if requires_grad else made

    def new_tensor(self, data: Any, dtype: object = None, device: object = None,
                   requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Return a tensor with a copy of `data`, in this tensor's dtype by default."""
        return creation.tensor(data, self._or_own(dtype), device, requires_grad)

    def _or_own(self, dtype: object) -> object:
        return self.dtype if dtype is None else dtype
