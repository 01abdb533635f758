"""Tensor: the public class, on top of its method families."""

from __future__ import annotations

import copy
from inspect import getattr_static
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, cast

from kernelrt import dtype as dt
from kernelrt.device.registry import check_device
from kernelrt.errors import DTypeError, GradientError, ShapeError
from kernelrt.ir.shape import broadcasts_to, format_shape
from kernelrt.native.fast_paths import fill_or_copy
from kernelrt.tensor import state
from kernelrt.tensor.autograd import gradient, gradient_state, hooking
from kernelrt.tensor.autograd.named_gradients import listed
from kernelrt.tensor.autograd.tags import Severed, mark
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.eager import realize
from kernelrt.tensor.free_functions.creation import from_data
from kernelrt.tensor.methods.activation import ActivationMethods
from kernelrt.tensor.methods.arithmetic import ArithmeticMethods
from kernelrt.tensor.methods.arranging import ArrangingMethods
from kernelrt.tensor.methods.attributes import InquiryMethods
from kernelrt.tensor.methods.comparison import ComparisonMethods
from kernelrt.tensor.methods.conversion import ConversionMethods
from kernelrt.tensor.methods.convolution import ConvolutionMethods
from kernelrt.tensor.methods.cumulative import RunningMethods
from kernelrt.tensor.methods.derived import DerivedMethods
from kernelrt.tensor.methods.dot_product_attention import AttentionMethods
from kernelrt.tensor.methods.einsum import EinsumMethods
from kernelrt.tensor.methods.elementwise import ElementwiseMethods
from kernelrt.tensor.methods.gated_activations import GatingMethods
from kernelrt.tensor.methods.image_windows import ImageMethods
from kernelrt.tensor.methods.in_place import InPlaceMethods
from kernelrt.tensor.methods.indexing import IndexingMethods
from kernelrt.tensor.methods.loss import LossMethods
from kernelrt.tensor.methods.margin_losses import MarginMethods
from kernelrt.tensor.methods.matrix_decompositions import LinalgMethods
from kernelrt.tensor.methods.matrix_products import ContractionMethods
from kernelrt.tensor.methods.movement import MovementMethods
from kernelrt.tensor.methods.operands import OperandMethods
from kernelrt.tensor.methods.random_draws_in_place import DrawingMethods
from kernelrt.tensor.methods.reduction import ReductionMethods
from kernelrt.tensor.methods.resampling import ResamplingMethods
from kernelrt.tensor.methods.scattering import ScatteringMethods
from kernelrt.tensor.methods.selection import SelectionMethods
from kernelrt.tensor.methods.setitem import PartMethods
from kernelrt.tensor.methods.sorting import OrderingMethods
from kernelrt.tensor.methods.statistics import StatisticsMethods
from kernelrt.tensor.methods.unary import FunctionMethods
from kernelrt.tensor.methods.window_pooling import PoolingMethods
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.promotion import check_size, element, number_node
from kernelrt.tensor.operation import operation
from kernelrt.tensor.rng import random
from kernelrt.tensor.tracing.trace import forbid
from kernelrt.util.unsupported_names import OTHERS, TENSOR, Lacking, install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from kernelrt.ir import UOp
    from kernelrt.runtime import ExecutionPlan
    from kernelrt.tensor.autograd.hooking import GradFn, Handle
    from kernelrt.tensor.base import Operand

__all__ = ["Tensor"]


class Tensor(
    DerivedMethods,
    ImageMethods,
    OrderingMethods,
    ScatteringMethods,
    SelectionMethods,
    ArrangingMethods,
    InPlaceMethods,
    MarginMethods,
    GatingMethods,
    ArithmeticMethods,
    RunningMethods,
    StatisticsMethods,
    EinsumMethods,
    AttentionMethods,
    ResamplingMethods,
    DrawingMethods,
    LinalgMethods,
    InquiryMethods,
    ConversionMethods,
    LossMethods,
    PoolingMethods,
    ConvolutionMethods,
    ContractionMethods,
    PartMethods,
    IndexingMethods,
    ReductionMethods,
    MovementMethods,
    ActivationMethods,
    ElementwiseMethods,
    ComparisonMethods,
    FunctionMethods,
    OperandMethods,
    TensorBase,
):
    """An array whose value is an expression until it is needed.

    Operations give tensors with PyTorch's names and semantics; nothing is computed before a
    value is read (`numpy`, `item`), a plan is made (`prepare`), or `realize` is called.
    ``x += y`` and ``x.add_(y)`` assign to the tensor; where it collects a gradient, that is
    allowed under ``no_grad`` only. ``x[0]``, ``x.T`` and ``x.reshape(-1)`` are views, as in
    PyTorch: an assignment to one changes x.

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
        Whether :meth:`backward` collects a gradient in ``grad``.

    Examples
    --------
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    __slots__ = ()

    def __init__(
        self, data: object, dtype: object = None, device: object = None,
        requires_grad: bool = False,
    ) -> None:  # fmt: skip
        check_device(device)
        made = from_data(Tensor, data, "data", dtype)
        self._grad = None
        self._leaf = None
        self._born = made._born
        self._plain = made._plain
        buffer = made._buffer
        if buffer is None:
            self._follow(made)
        else:
            shape = made._shape or ()
            self._bind(buffer, buffer.keep(), made._dtype_code, shape, made._uop)
        if requires_grad:
            self.requires_grad_()

    # ---- computing

    def realize(self) -> Self:
        """Compute this tensor, and commit what was assigned; see :func:`kernelrt.realize`."""
        realize.realize(self)
        return self

    def prepare(self, *, threads: int | None = None) -> ExecutionPlan:
        """A plan that computes this tensor each time; see :func:`kernelrt.prepare`."""
        return realize.prepare(self, threads=threads)

    # ---- gradients

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,  # noqa: ARG002 - graphs live as long as they are held
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Add the gradient of this tensor to the ``grad`` of the tensors it is computed from.

        Parameters
        ----------
        gradient : Tensor, optional
            Gradient of this tensor; needed where it has more than one element.
        retain_graph : bool, optional
            Taken as PyTorch takes it; a graph lives as long as one of its tensors, whatever it
            says.
        create_graph : bool
            Let the gradients be differentiated again.
        inputs : Tensor or sequence of Tensor, optional
            The only tensors whose ``grad`` is added to; results of operations among them collect
            theirs, too.

        Raises
        ------
        GradientError
            This tensor has more than one element and no `gradient` is given, its type is not
            floating, or no tensor it depends on requires a gradient.
        """
        chosen = None if inputs is None else listed(inputs, "inputs")
        _backward(self, gradient, create_graph=create_graph, inputs=chosen)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Let a function see the gradient of this tensor, and give another one.

        Parameters
        ----------
        hook : callable
            Called with the gradient each time that one flows into this tensor, with all of its
            parts added. What it gives, unless None, goes on in its place; what it changes in place
            goes on changed. It is not called for gradients that :func:`kernelrt.grad` is not asked
            for. Hooks of leaves are called when all gradients are known, and may assign to any
            tensor; one of a result may not assign to what gradients are still computed from.

        Returns
        -------
        Handle
            Its ``remove()`` takes the hook away.

        Raises
        ------
        GradientError
            No gradient flows into this tensor; or it is a view or a negative of another one, and
            was used already.
        JitError
            This tensor collects gradients, and a function is being traced: register the hook
            outside of it.

        Notes
        -----
        On the result of operations it is registered before anything else is computed from the
        result; where a gradient then comes another way, GradientError says so. A jitted function
        calls it while it is traced.

        Examples
        --------
        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> handle = x.register_hook(lambda g: g * 10)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([20., 40.])
        """
        return hooking.hook(self, hook)

    def retain_grad(self) -> None:
        """Let :meth:`backward` collect the gradient of this result of operations in ``grad``.

        As :meth:`register_hook`, it is called before anything else is computed from this tensor.
        """
        hooking.retain(self)

    @property
    def retains_grad(self) -> bool:
        """Whether :meth:`retain_grad` was called on this result of operations."""
        return hooking.retains(self)

    @property
    def grad_fn(self) -> GradFn | None:
        """What gradients flow through into this tensor; None for a leaf, and where none flow."""
        return hooking.grad_fn(self)

    def zero_grad(self) -> None:
        """Set ``grad`` to None."""
        self.grad = None

    # ---- random

    def dropout(self, p: float = 0.5, training: bool = True) -> Self:
        """Zeros with probability `p`, the other elements divided by ``1 - p``.

        Each run of a jitted function draws afresh.
        """
        if not 0 <= p <= 1:
            raise ShapeError(f"p: expected a probability from 0 to 1, not {p}")
        if not training or p == 0:
            return self
        self._floats("dropout")
        if p == 1:
            return self * 0
        return self._without(random.bernoulli(self.dims, p), 1 / (1 - p))

    @operation
    def _without(self, drop: TensorBase, scale: float) -> Self:
        """This tensor times `scale`, and zeros where `drop` holds."""
        return self._of(build.where(drop.uop, 0, build.mul(self._floats("dropout"), scale)))

    # ---- state

    def assign(self, value: Operand) -> Self:
        """Give this tensor another value of its shape and type.

        A tensor with storage keeps it: the value is written there, in place, when something is
        computed or this tensor is read next; a plan that reads the storage sees it. One without,
        such as ``krt.zeros(3)``, gets storage once a new value is computed from the one it has.
        The views of this tensor change, too, and so does the root of a view. The history of
        `value` is dropped.

        Parameters
        ----------
        value : Tensor, number or array
            Broadcast to this shape; floats of other widths are converted.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        ShapeError
            `value` does not broadcast to this shape, or this tensor's memory is read-only.
        DTypeError
            `value` is of another kind, as floats for integers.
        """
        if state.changing is None and fill_or_copy(self, value):
            return self
        check_size(value, self.dtype, "value")
        new = self._lift(value, "value", like=True)
        self._assign(new._fitted(self))
        return self

    def copy_(
        self, src: Operand, non_blocking: bool = False,  # noqa: ARG002 - as PyTorch has it
    ) -> Self:
        """Give this tensor the value of another one, and its history.

        Where no gradients flow, this is :meth:`assign`.

        Parameters
        ----------
        src : Tensor, number or array
            Broadcast to this shape; floats of other widths are converted.
        non_blocking : bool
            Changes nothing.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        ShapeError
            `src` does not broadcast to this shape, or this tensor's memory is read-only.
        DTypeError
            `src` is of another kind, as floats for integers.
        GradientError
            Gradients are recorded, and this tensor is a leaf that requires one; or they flow into
            `src`, and this tensor keeps no history, as a parameter, or a tensor from outside of
            the function that is traced.
        """
        self._check_no_leaf("copy_")
        if state.changing is None and fill_or_copy(self, src):
            return self
        if isinstance(src, Tensor) and state.is_grad_enabled() and (
            src.requires_grad
            # Or a jitted function made it, which gradients that come to it have to be told.
            or (src._lineage and not self.requires_grad and not self._is_parameter)
        ):  # fmt: skip
            return self._replace(cast("Self", src._fitted(self)), "copy_")
        return self.assign(src)

    def _fitted(self, target: Self) -> Self:
        shape = target.dims
        if not broadcasts_to(self.dims, shape):
            raise ShapeError(
                f"value: shape {format_shape(self.dims)} does not broadcast to the "
                f"{format_shape(shape)} of the tensor"
            )
        if self.dtype is not target.dtype and self.dtype.kind > target.dtype.kind:
            raise DTypeError(
                f"value: assigning {self.dtype.name} to a tensor of {target.dtype.name} would lose "
                f"information; cast it, as in value.cast({target.dtype.name!r})"
            )
        return self.cast(target.dtype).expand(shape)

    def zero_(self) -> Self:
        """Assign zeros; see :meth:`fill_`."""
        return self.fill_(0)

    def fill_(self, value: bool | float) -> Self:
        """Assign one number, or a tensor without axes, to all elements.

        Raises
        ------
        DTypeError
            The type does not have the number.
        GradientError
            Gradients are recorded, and this tensor is a leaf that requires one.
        """
        given: object = value
        number: UOp | bool | float | None = number_node(given)
        if number is None and isinstance(given, Tensor):
            if given.ndim:
                raise ShapeError(
                    "value: expected a number or a 0-d tensor, not one of shape "
                    f"{format_shape(given.dims)}; use copy_() to assign a tensor"
                )
            return self.copy_(given)
        self._check_no_leaf("fill_")
        if state.changing is None and fill_or_copy(self, given):
            return self
        if number is None:
            number = element(value, self.dtype, "value")
        return self.assign(self._of(build.full(number, self.dtype, self.dims)))

    def __reduce__(self) -> tuple[Any, ...]:
        bits = self.cast(dt.float32).numpy() if self.dtype is dt.bfloat16 else self.numpy()
        if self._is_parameter and not self.requires_grad:
            return _frozen, (bits, self.dtype)
        return Tensor, (bits, self.dtype, None, self._is_parameter)

    def __dir__(self) -> list[str]:
        """Public names: Python suggests what may be meant only where there are at most 750."""
        kind = type(self)
        return [
            name for name in super().__dir__()
            if (name[0] != "_" or name.startswith("__"))
            and not isinstance(getattr_static(kind, name, None), Lacking)
        ]  # fmt: skip

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        forbid("copy.deepcopy()")
        if self.requires_grad and not self.is_leaf:
            raise GradientError(
                "deepcopy: the tensor is the result of operations on tensors that require "
                "gradients, and a deep copy would not be connected to their graph; copy "
                "x.detach(), or use x.clone(), which gradients flow through"
            )
        self._realized()
        buffer = self._buffer  # gives a result of a replay its node, too
        assert buffer is not None
        twin = self._over(copy.copy(buffer), tuple(self._shape or ()))
        if self._is_parameter:
            twin.requires_grad_()
            held = cast("Self | gradient_state.Spent | None", gradient_state.find(self))
            spent = isinstance(held, gradient_state.Spent)
            twin._grad = held if spent else copy.deepcopy(held, memo)
            twin.requires_grad_(self.requires_grad)
        if isinstance(known := self._lineage, Severed):
            twin._plain, twin._uop = False, mark(twin._uop, known)
        memo[id(self)] = twin
        return twin


def _frozen(data: np.ndarray[Any, Any], dtype: dt.DType) -> Tensor:
    """A parameter that was pickled while it was frozen."""
    return Tensor(data, dtype, requires_grad=True).requires_grad_(False)


_backward = gradient.backward


def _name_methods() -> None:
    """Let errors of calls name the class that users know, whichever part of it has the method."""
    for part in Tensor.__mro__[1:]:
        for value in list(vars(part).values()):
            for function in (value, getattr(value, "__wrapped__", None)):
                # An operation, which is no function, has a name of its own.
                if isinstance(function, FunctionType) and part.__module__.startswith("kernelrt."):
                    function.__qualname__ = f"Tensor.{function.__name__}"
                    if function is value:
                        function.__module__ = Tensor.__module__  # where pickle finds it


_name_methods()
install(Tensor, "a Tensor of kernelrt", TENSOR | OTHERS, sealed=True)
