"""Tensor: the public class, on top of its method families."""

from __future__ import annotations

import copy
from inspect import getattr_static
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, cast

from kernelrt import dtype as dt
from kernelrt.device.registry import check_device
from kernelrt.errors import DomainError, DTypeError, GradientError, ShapeError
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
from kernelrt.tensor.methods.arranging import ArrangingMethods
from kernelrt.tensor.methods.attributes import InquiryMethods
from kernelrt.tensor.methods.comparison import ComparisonMethods
from kernelrt.tensor.methods.conversion import ConversionMethods
from kernelrt.tensor.methods.convolution import ConvolutionMethods
from kernelrt.tensor.methods.cumulative import RunningMethods
from kernelrt.tensor.methods.derived import DerivedMethods
from kernelrt.tensor.methods.dot_product_attention import AttentionMethods
from kernelrt.tensor.methods.einsum import EinsumMethods
from kernelrt.tensor.methods.elementwise_functions import ElementwiseMethods
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
from kernelrt.tensor.methods.operators import OperatorMethods
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
    ElementwiseMethods,
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
    OperatorMethods,
    ComparisonMethods,
    FunctionMethods,
    OperandMethods,
    TensorBase,
):
    """A lazy array: an expression that is computed when its value is needed.

    Operations have PyTorch's names and semantics and return tensors. Nothing is computed before a
    value is read (`numpy`, `item`), a plan is made (`prepare`), or `realize` is called.
    ``x += y`` and ``x.add_(y)`` assign to the tensor; if it collects a gradient, that is allowed
    only under ``no_grad``. ``x[0]``, ``x.T`` and ``x.reshape(-1)`` are views, as in PyTorch:
    assigning to a view changes x.

    Parameters
    ----------
    data : number, nested list of numbers, NumPy array, Tensor, or array-like
        Data to copy. Python floats become float32 and ints int64. Arrays keep their dtype, and a
        list that holds float64 arrays or NumPy numbers becomes float64.
    dtype : DType, str or NumPy dtype, optional
        Dtype to convert to.
    device : str, optional
        Device of the result; "cpu" is the only one.
    requires_grad : bool
        Whether :meth:`backward` collects a gradient in ``grad``.

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
    >>> x = krt.Tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [2.0, 4.0]
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
        """Compute this tensor and commit pending assignments; see :func:`kernelrt.realize`.

        Returns
        -------
        Tensor
            This tensor.

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0]) * 2
        >>> x.is_realized, x.realize().is_realized
        (False, True)
        """
        realize.realize(self)
        return self

    def prepare(self, *, threads: int | None = None) -> ExecutionPlan:
        """Return a plan that computes this tensor in each run; see :func:`kernelrt.prepare`.

        Parameters
        ----------
        threads : int, optional
            Maximum number of threads of the plan.

        Returns
        -------
        ExecutionPlan
            Plan with one output.

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0])
        >>> plan = (x * 2).prepare()
        >>> _ = x.assign(krt.tensor([3.0, 4.0]))
        >>> plan.execute()
        >>> plan.output_buffer.numpy().tolist()
        [6.0, 8.0]
        """
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
            Gradient of this tensor, in its shape; required if it has more than one element.
        retain_graph : bool, optional
            Ignored; accepted for compatibility with PyTorch. A graph lives as long as one of its
            tensors.
        create_graph : bool
            Whether the gradients can be differentiated again.
        inputs : Tensor or sequence of Tensor, optional
            The only tensors whose ``grad`` is added to. They may be results of operations.

        Raises
        ------
        GradientError
            This tensor has more than one element and no `gradient` is given, its dtype is not
            floating, or no tensor it depends on requires a gradient.

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        >>> (x * 3).backward(krt.tensor([1.0, 10.0]))  # adds to the gradient
        >>> x.grad.tolist()
        [5.0, 34.0]
        """
        chosen = None if inputs is None else listed(inputs, "inputs")
        _backward(self, gradient, create_graph=create_graph, inputs=chosen)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Register a function that sees the gradient of this tensor and may replace it.

        Parameters
        ----------
        hook : callable
            Called with the complete gradient each time that gradients flow into this tensor. If it
            returns a tensor of this shape, that tensor replaces the gradient. If it returns None,
            the gradient flows on, with any in-place change by the hook. The hook is not called for
            gradients that :func:`kernelrt.grad` is not asked for. Hooks of leaves are called when
            all gradients are known, and may assign to any tensor. A hook of a result must not
            assign to tensors that gradients are still computed from.

        Returns
        -------
        Handle
            ``handle.remove()`` removes the hook.

        Raises
        ------
        GradientError
            No gradient flows into this tensor; or it is a view or a negative of another tensor
            and was used already.
        JitError
            This tensor collects gradients, and a function is being traced: register the hook
            outside the function.

        Notes
        -----
        Register a hook on a result of operations before anything else is computed from the
        result; otherwise the backward pass raises GradientError if a gradient bypasses the hook.
        A jitted function calls the hook only while it is traced.

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0], requires_grad=True)
        >>> handle = x.register_hook(lambda g: g * 10)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [20.0, 40.0]
        """
        return hooking.hook(self, hook)

    def retain_grad(self) -> None:
        """Make :meth:`backward` collect the gradient of this result of operations in ``grad``.

        As with :meth:`register_hook`, call it before anything else is computed from this tensor.

        Raises
        ------
        GradientError
            No gradient flows into this tensor.

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 2
        >>> y.retain_grad()
        >>> (y * y).sum().backward()
        >>> y.grad.tolist()
        [4.0, 8.0]
        """
        hooking.retain(self)

    @property
    def retains_grad(self) -> bool:
        """Whether :meth:`retain_grad` was called on this result of operations."""
        return hooking.retains(self)

    @property
    def grad_fn(self) -> GradFn | None:
        """Backward function of this result of operations; None if there is none, as for leaves.

        Examples
        --------
        >>> x = krt.tensor([1.0], requires_grad=True)
        >>> x.grad_fn is None, (x * 2).grad_fn.name()
        (True, 'MUL')
        """
        return hooking.grad_fn(self)

    def zero_grad(self) -> None:
        """Set ``grad`` to None.

        Examples
        --------
        >>> x = krt.tensor(2.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.zero_grad()
        >>> x.grad is None
        True
        """
        self.grad = None

    # ---- random

    def dropout(self, p: float = 0.5, training: bool = True) -> Self:
        """Zero elements with probability `p`, and divide the others by ``1 - p``.

        Each run of a jitted function draws new random numbers.

        Parameters
        ----------
        p : float
            Probability of dropping an element, from 0 to 1.
        training : bool
            Whether to apply dropout; if False, return this tensor.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype.

        Raises
        ------
        DomainError
            `p` lies outside of [0, 1].
        DTypeError
            The elements are not floats.

        Notes
        -----
        N. Srivastava et al., Dropout: A simple way to prevent neural networks from overfitting,
        Journal of Machine Learning Research 15, 2014.

        Examples
        --------
        >>> krt.ones(1000).dropout(0.5).unique().tolist()
        [0.0, 2.0]
        """
        if not 0 <= p <= 1:
            raise DomainError(f"p: expected a probability from 0 to 1, not {p}")
        if not training or p == 0:
            return self
        self._floats("dropout")
        if p == 1:
            return self * 0
        return self._without(random.bernoulli(self.dims, p), 1 / (1 - p))

    @operation
    def _without(self, drop: TensorBase, scale: float) -> Self:
        """Return this tensor times `scale`, with zeros where `drop` is true."""
        return self._of(build.where(drop.uop, 0, build.mul(self._floats("dropout"), scale)))

    # ---- state

    def assign(self, value: Operand) -> Self:
        """Assign a new value of the same shape and dtype.

        A tensor with storage keeps its storage. The value is written there, in place, as soon as
        any tensor is computed or this tensor is read. Plans that read the storage see the value.
        A tensor without storage, such as ``krt.zeros(3)``, gets storage once its new value is
        computed from its current value. Views of this tensor change, too. Assigning to a view
        changes the tensor that it views. The gradient history of `value` is dropped.

        Parameters
        ----------
        value : Tensor, number or array
            Value to assign, broadcast to this shape. Floats of other widths are converted.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        ShapeError
            `value` does not broadcast to this shape, or this tensor's memory is read-only.
        DTypeError
            `value` is of another dtype kind, such as floats for an integer tensor.

        Examples
        --------
        >>> x = krt.tensor([1.0, 2.0])
        >>> x.assign(x * 10).tolist()
        [10.0, 20.0]
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
        """Assign the value of another tensor together with its gradient history.

        If no gradients flow, this equals :meth:`assign`.

        Parameters
        ----------
        src : Tensor, number or array
            Value to assign, broadcast to this shape. Floats of other widths are converted.
        non_blocking : bool
            Ignored; accepted for compatibility with PyTorch.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        ShapeError
            `src` does not broadcast to this shape, or this tensor's memory is read-only.
        DTypeError
            `src` is of another dtype kind, such as floats for an integer tensor.
        GradientError
            Gradients are enabled, and this tensor is a leaf that requires a gradient. Or gradients
            flow into `src`, and this tensor cannot keep a history: it is a parameter, or comes from
            outside of the traced function.

        Examples
        --------
        >>> x = krt.zeros(2, 2)
        >>> x.copy_(krt.tensor([1.0, 2.0])).tolist()
        [[1.0, 2.0], [1.0, 2.0]]
        """
        return self._copy_from(src, "copy_")

    def _copy_from(self, src: Operand, name: str) -> Self:
        """Assign `src` with its history; errors name the method `name`."""
        self._check_no_leaf(name)
        if state.changing is None and fill_or_copy(self, src):
            return self
        if isinstance(src, Tensor) and state.is_grad_enabled() and (
            src.requires_grad
            # Or a jitted function made it: gradients that reach it must raise an error.
            or (src._lineage and not self.requires_grad and not self._is_parameter)
        ):  # fmt: skip
            return self._replace(cast("Self", src._fitted(self)), name)
        return self.assign(src)

    def _fitted(self, target: Self) -> Self:
        shape = target.dims
        if not broadcasts_to(self.dims, shape):
            raise ShapeError(
                f"value: shape {format_shape(self.dims)} does not broadcast to "
                f"shape {format_shape(shape)} of the tensor"
            )
        if self.dtype is not target.dtype and self.dtype.kind > target.dtype.kind:
            raise DTypeError(
                f"value: assigning {self.dtype.name} to a tensor of {target.dtype.name} would lose "
                f"information; cast it, as in value.cast({target.dtype.name!r})"
            )
        return self.cast(target.dtype).expand(shape)

    def zero_(self) -> Self:
        """Assign zeros; see :meth:`fill_`.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        GradientError
            Gradients are enabled, and this tensor is a leaf that requires a gradient.

        Examples
        --------
        >>> krt.tensor([1, 2]).zero_().tolist()
        [0, 0]
        """
        return self._fill(0, "zero_")

    def fill_(self, value: bool | float) -> Self:
        """Assign a number or a 0-d tensor to all elements.

        Parameters
        ----------
        value : number, or Tensor without axes
            Value to assign. Integer tensors take a number without its fraction.

        Returns
        -------
        Tensor
            This tensor.

        Raises
        ------
        DTypeError
            The dtype cannot represent the number.
        ShapeError
            `value` is a tensor with axes; use :meth:`copy_`.
        GradientError
            Gradients are enabled, and this tensor is a leaf that requires a gradient.

        Examples
        --------
        >>> x = krt.zeros(2, 2)
        >>> _ = x[0].fill_(7)
        >>> x.tolist()
        [[7.0, 7.0], [0.0, 0.0]]
        """
        return self._fill(value, "fill_")

    def _fill(self, value: bool | float, name: str) -> Self:
        """Assign a number to all elements; errors name the method `name`."""
        given: object = value
        number: UOp | bool | float | None = number_node(given)
        if number is None and isinstance(given, Tensor):
            if given.ndim:
                raise ShapeError(
                    "value: expected a number or a 0-d tensor, not one of shape "
                    f"{format_shape(given.dims)}; use copy_() to assign a tensor"
                )
            return self._copy_from(given, name)
        self._check_no_leaf(name)
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
        """List only public names, because Python's errors suggest no name if there are over 750."""
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
        buffer = self._buffer  # also sets the node of a result of a replay
        assert buffer is not None
        twin = self._over(copy.copy(buffer), tuple(self._shape or ()))
        if self._is_parameter:
            twin._become_parameter(self.requires_grad)
            held = cast("Self | gradient_state.ConsumedGradient | None", gradient_state.find(self))
            spent = isinstance(held, gradient_state.ConsumedGradient)
            twin._grad = held if spent else copy.deepcopy(held, memo)
        if isinstance(known := self._lineage, Severed):
            twin._plain, twin._uop = False, mark(twin._uop, known)
        memo[id(self)] = twin
        return twin


def _frozen(data: np.ndarray[Any, Any], dtype: dt.DType) -> Tensor:
    """Restore a parameter that was pickled while it was frozen."""
    return Tensor(data, dtype)._become_parameter(False)


_backward = gradient.backward


def _name_methods() -> None:
    """Make errors of calls name the class Tensor, whichever base class defines the method."""
    for part in Tensor.__mro__[1:]:
        for value in list(vars(part).values()):
            for function in (value, getattr(value, "__wrapped__", None)):
                # An Operation is not a function and has its own name.
                if isinstance(function, FunctionType) and part.__module__.startswith("kernelrt."):
                    function.__qualname__ = f"Tensor.{function.__name__}"
                    if function is value:
                        function.__module__ = Tensor.__module__  # where pickle finds it


_name_methods()
install(Tensor, "a Tensor of kernelrt", TENSOR | OTHERS, sealed=True)
