"""PyTorch's attributes of tensors, and tensors made with the type of another one."""

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
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object
    creation = Module("kernelrt.tensor.free_functions.creation")

__all__ = ["InquiryMethods"]


class InquiryMethods(_Below):
    """Questions that need no computing, and ``new_zeros`` and its like."""

    __slots__ = ()

    # ---- type

    def is_floating_point(self) -> bool:
        """Whether the type is a floating one."""
        return self.dtype.is_float

    def is_complex(self) -> bool:
        """False, as there are no complex types."""
        return False

    def is_conj(self) -> bool:
        """False, as there are no complex types."""
        return False

    def is_signed(self) -> bool:
        """Whether the type has numbers below 0."""
        return self.dtype.is_float or self.dtype.is_signed

    def is_nonzero(self) -> bool:
        """Whether the only element is not zero.

        Raises
        ------
        ShapeError
            There is not exactly one element.
        """
        return bool(self._python("is_nonzero()"))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements.

        Raises
        ------
        ShapeError
            The shape has Variables, so that they are known only at run time.
        """
        count = prod(self.dims)
        if not isinstance(count, int):
            raise ShapeError(
                "nbytes: the shape has Variables, whose values are known at run time only; use "
                "x.numel() * x.itemsize"
            )
        return count * self.dtype.itemsize

    def byte(self) -> Self:
        """This tensor as uint8."""
        return self.cast(dt.uint8)

    def char(self) -> Self:
        """This tensor as int8."""
        return self.cast(dt.int8)

    def short(self) -> Self:
        """This tensor as int16."""
        return self.cast(dt.int16)

    # ---- shape

    def nelement(self) -> Any:
        """How many elements there are; the same as :meth:`numel`."""
        return self.numel()

    def ndimension(self) -> int:
        """How many axes there are; the same as ``ndim``."""
        return self.ndim

    def is_same_size(self, other: Tensor) -> bool:
        """Whether `other` has the same shape."""
        theirs = other.dims
        return len(theirs) == self.ndim and all(map(same, self.dims, theirs))

    def is_contiguous(self, memory_format: object = None) -> bool:  # noqa: ARG002
        """True: elements are read in row-major order, those of views too."""
        return True

    def stride(self, dim: int | None = None) -> Any:
        """How many elements lie from one to the next along each axis, or along `dim`.

        Those of the value in row-major order, which is how :meth:`numpy` gives it.

        Raises
        ------
        ShapeError
            An axis behind the first has a Variable as its size, or there is no axis `dim`.
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
        """0: elements are counted from the first one, those of views too."""
        return 0

    # ---- place

    @property
    def is_cpu(self) -> bool:
        """True: kernelrt computes on CPUs."""
        return True

    @property
    def is_cuda(self) -> bool:
        """False: kernelrt computes on CPUs."""
        return False

    is_meta = is_mps = is_xpu = is_xla = is_cuda

    @property
    def is_sparse(self) -> bool:
        """False, as there are no sparse tensors."""
        return False

    @property
    def is_quantized(self) -> bool:
        """False, as there are no quantized types."""
        return False

    def get_device(self) -> int:
        """-1, PyTorch's number of the CPU."""
        return -1

    def is_pinned(self) -> bool:
        """False, as there is no device to pin memory for."""
        return False

    # ---- value

    @property
    def data(self) -> Self:
        """This tensor without its history: it reads as this tensor does, whenever it is read.

        Writing to it, as in ``p.data.mul_(0.9)`` and ``p.data[0] = 1``, writes to this tensor.
        ``p.data = value`` copies another value to this tensor, and what was taken as ``p.data``
        before keeps the former one; taken outside of a function that is traced, it does not where
        the function does so. Where this is the result of operations that gradients flow through,
        writing to its data raises GradientError.
        """
        return data_of(self)  # type: ignore[return-value]

    @data.setter
    def data(self, value: Self) -> None:
        set_data(self, value)

    @property
    def real(self) -> Self:
        """This tensor, as there are no complex types."""
        return self

    def conj(self) -> Self:
        """This tensor, as there are no complex types."""
        return self

    resolve_conj = resolve_neg = conj_physical = conj

    def detach_(self) -> Self:
        """Become a tensor that requires no gradient.

        Raises
        ------
        GradientError
            It is the result of operations that gradients pass through, which cannot be undone in
            it; :meth:`detach` gives its value without them.
        """
        if self.requires_grad and not self.is_leaf:
            raise GradientError(
                "detach_: the tensor is the result of operations that gradients pass through; "
                "write x = x.detach()"
            )
        return self.requires_grad_(False) if self.requires_grad else self

    # ---- others of its type

    @sized
    def new_zeros(self, *size: Any, dtype: object = None, device: object = None,
                  requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Zeros of a shape, of this tensor's type unless told otherwise."""
        dtype = self._or_own(dtype)
        return creation.zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)

    @sized
    def new_ones(self, *size: Any, dtype: object = None, device: object = None,
                 requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Ones of a shape, of this tensor's type unless told otherwise."""
        dtype = self._or_own(dtype)
        return creation.ones(*size, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_full(self, size: Any, fill_value: bool | float, dtype: object = None,
                 device: object = None, requires_grad: bool = False) -> Tensor:  # fmt: skip
        """`fill_value` in a shape, of this tensor's type unless told otherwise."""
        return creation.full(size, fill_value, self._or_own(dtype), device, requires_grad)

    @sized
    def new_empty(self, *size: Any, dtype: object = None, device: object = None,
                  requires_grad: bool = False) -> Tensor:  # fmt: skip
        """Storage of a shape, of this tensor's type unless told otherwise."""
        made = creation.empty(*size, dtype=self._or_own(dtype), device=device)
        return made.requires_grad_() if requires_grad else made

    def new_tensor(self, data: Any, dtype: object = None, device: object = None,
                   requires_grad: bool = False) -> Tensor:  # fmt: skip
        """A tensor with a copy of `data`, of this tensor's type unless told otherwise."""
        return creation.tensor(data, self._or_own(dtype), device, requires_grad)

    def _or_own(self, dtype: object) -> object:
        return self.dtype if dtype is None else dtype
