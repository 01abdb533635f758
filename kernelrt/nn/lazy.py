"""Layers that infer the size of their input from the first call."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, cast

from kernelrt import dtype as dt
from kernelrt.errors import JitError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.nn import tree
from kernelrt.nn.layers import Linear
from kernelrt.nn.module import Module
from kernelrt.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from kernelrt.nn.spatial import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from kernelrt.tensor import Tensor, is_tracing
from kernelrt.tensor.nodes.arguments import tensor_of

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
    "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class _Lazy(Module):
    """Base of layers that create their parameters in their first call.

    The first call changes the class of the layer to `_becomes`. Before this call, access to
    parameters or state raises StateError. If you convert the dtype or freeze the layer before, this
    applies to the parameters when they are created.

    Parameters
    ----------
    *args, **kwargs
        Arguments of that class without the first, the size of the input.
    """

    _becomes: ClassVar[type[Module]]
    #: Axis of the input that determines the size.
    _axis: ClassVar[int] = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        made = inspect.signature(self._becomes.__init__)
        made.bind(self, 1, *args, **kwargs)  # raises TypeError for invalid arguments
        self._arguments = args, kwargs
        self.__dict__[tree.UNMADE] = {}

    def has_uninitialized_params(self) -> bool:
        """Return True, because the layer was not called yet: its first call changes its class."""
        return True

    def reset_parameters(self) -> None:
        """Do nothing: there are no parameters yet."""

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Create the parameters for inputs like `input`, and return the result for it.

        Input and result have the shapes of the layer that this one becomes, such as
        :class:`Linear`.

        Raises
        ------
        JitError
            The first call is inside of a jitted function.
        ShapeError
            The input lacks the axis that determines the size.
        """
        name = type(self).__name__
        tensor_of(input, "input")
        if is_tracing():
            raise JitError(
                f"{name}: cannot create its parameters inside a traced function; call the module "
                "once outside of the function first"
            )
        axis = self._axis_of(input)
        if not -input.ndim <= axis < input.ndim:
            raise ShapeError(
                f"input: {name} cannot infer its input size from shape {format_shape(input.dims)}, "
                f"which has no axis {axis}"
            )
        (given, options), kind = self._arguments, type(self)
        plain: Any = self._becomes
        held = dict(self.__dict__)
        try:
            del self._arguments
            later = self.__dict__.pop(tree.UNMADE)
            self.__class__ = plain
            plain.__init__(self, input.shape[axis], *given, **options)
            if "dtype" in later:
                self.to(later["dtype"])
            if "requires_grad" in later:
                self.requires_grad_(later["requires_grad"])
            return self.forward(input, *args, **kwargs)
        except BaseException:
            self.__class__ = kind
            self.__dict__.clear()
            self.__dict__.update(held)
            raise

    def _axis_of(self, x: Tensor) -> int:  # noqa: ARG002 - overridden methods read it
        return self._axis

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        args, kwargs = self._arguments
        return ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])


class LazyLinear(_Lazy, Linear):
    """Apply a :class:`Linear` layer that infers `in_features` from its first input.

    Maps ``(*, in_features)`` to ``(*, out_features)``. The layer has no parameters until its first
    call. Call the layer once before you create an optimizer, load a state, or trace a function that
    calls it. Access to the parameters before the first call raises StateError. You may convert the
    dtype or freeze the layer before the first call; this applies to the parameters when they are
    created.

    Parameters
    ----------
    out_features : int
        Size of the last axis of the result.
    bias : bool, default True
        Whether to add a bias.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Examples
    --------
    >>> layer = krt.nn.LazyLinear(3)
    >>> layer(krt.ones(2, 5)).shape
    (2, 3)
    >>> layer
    Linear(5, 3)
    """

    _becomes = Linear
    _axis = -1


class _LazyInstanceNorm(_Lazy):
    """Base of lazy instance norms; as in PyTorch, parameters and statistics are on by default."""

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, *, bias: bool = True, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__(eps, momentum, affine, track_running_stats, bias=bias, dtype=dtype)

    def _axis_of(self, x: Tensor) -> int:
        alone: int = cast("Any", self)._ndims[0]  # noqa: SLF001 - of the class it becomes
        return 0 if x.ndim == alone else 1


class _LazyConvolution(_Lazy):
    def _axis_of(self, x: Tensor) -> int:
        found: int = cast("Any", self._becomes)._axis_of(self, x)  # noqa: SLF001 - see above
        return found


class LazyConv1d(_LazyConvolution, Conv1d):
    """Apply a :class:`Conv1d` layer that infers `in_channels` from its first input.

    The input has shape ``(batch, in_channels, length)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`Conv1d` without the first.

    Examples
    --------
    >>> layer = krt.nn.LazyConv1d(4, kernel_size=3)
    >>> layer(krt.ones(5, 2, 10)).shape, layer.weight.shape
    ((5, 4, 8), (4, 2, 3))
    """

    _becomes = Conv1d


class LazyConv2d(_LazyConvolution, Conv2d):
    """Apply a :class:`Conv2d` layer that infers `in_channels` from its first input.

    The input has shape ``(batch, in_channels, rows, columns)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`Conv2d` without the first.

    Examples
    --------
    >>> layer = krt.nn.LazyConv2d(8, kernel_size=3)
    >>> layer(krt.ones(5, 3, 10, 10)).shape, layer.weight.shape
    ((5, 8, 8, 8), (8, 3, 3, 3))
    """

    _becomes = Conv2d


class LazyConv3d(_LazyConvolution, Conv3d):
    """Apply a :class:`Conv3d` layer that infers `in_channels` from its first input.

    The input has shape ``(batch, in_channels, depth, rows, columns)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`Conv3d` without the first.

    Examples
    --------
    >>> krt.nn.LazyConv3d(2, kernel_size=3)(krt.ones(5, 1, 4, 6, 6)).shape
    (5, 2, 2, 4, 4)
    """

    _becomes = Conv3d


class LazyConvTranspose1d(_LazyConvolution, ConvTranspose1d):
    """Apply a :class:`ConvTranspose1d` layer that infers `in_channels` from its first input.

    The input has shape ``(batch, in_channels, length)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`ConvTranspose1d` without the first.

    Examples
    --------
    >>> krt.nn.LazyConvTranspose1d(2, kernel_size=2, stride=2)(krt.ones(5, 4, 50)).shape
    (5, 2, 100)
    """

    _becomes = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvolution, ConvTranspose2d):
    """Apply a :class:`ConvTranspose2d` layer that infers `in_channels` from its first input.

    The input has shape ``(batch, in_channels, rows, columns)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`ConvTranspose2d` without the first.

    Examples
    --------
    >>> krt.nn.LazyConvTranspose2d(3, kernel_size=2, stride=2)(krt.ones(5, 8, 14, 14)).shape
    (5, 3, 28, 28)
    """

    _becomes = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvolution, ConvTranspose3d):
    """Apply a :class:`ConvTranspose3d` layer that infers `in_channels` from its first input.

    The input has shape ``(batch, in_channels, depth, rows, columns)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`ConvTranspose3d` without the first.

    Examples
    --------
    >>> krt.nn.LazyConvTranspose3d(2, kernel_size=2, stride=2)(krt.ones(5, 4, 2, 4, 4)).shape
    (5, 2, 4, 8, 8)
    """

    _becomes = ConvTranspose3d


class LazyBatchNorm1d(_Lazy, BatchNorm1d):
    """Apply a :class:`BatchNorm1d` layer that infers `num_features` from its first input.

    The input has shape ``(batch, num_features)`` or ``(batch, num_features, length)``.
    :class:`LazyLinear` says what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`BatchNorm1d` without the first.

    Examples
    --------
    >>> layer = krt.nn.LazyBatchNorm1d()
    >>> layer(krt.ones(5, 3)).shape, layer.weight.shape
    ((5, 3), (3,))
    """

    _becomes = BatchNorm1d


class LazyBatchNorm2d(_Lazy, BatchNorm2d):
    """Apply a :class:`BatchNorm2d` layer that infers `num_features` from its first input.

    The input has shape ``(batch, num_features, rows, columns)``. :class:`LazyLinear` says what such
    a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`BatchNorm2d` without the first.

    Examples
    --------
    >>> layer = krt.nn.LazyBatchNorm2d()
    >>> layer(krt.ones(5, 3, 4, 4)).shape, layer.weight.shape
    ((5, 3, 4, 4), (3,))
    """

    _becomes = BatchNorm2d


class LazyBatchNorm3d(_Lazy, BatchNorm3d):
    """Apply a :class:`BatchNorm3d` layer that infers `num_features` from its first input.

    The input has shape ``(batch, num_features, depth, rows, columns)``. :class:`LazyLinear` says
    what such a layer can do before its first call.

    Parameters
    ----------
    *args, **kwargs
        Arguments of :class:`BatchNorm3d` without the first.

    Examples
    --------
    >>> layer = krt.nn.LazyBatchNorm3d()
    >>> layer(krt.ones(5, 3, 2, 4, 4)).shape, layer.weight.shape
    ((5, 3, 2, 4, 4), (3,))
    """

    _becomes = BatchNorm3d


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """Apply an :class:`InstanceNorm1d` layer that infers `num_features` from its first input.

    The input has shape ``(batch, num_features, length)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call. As in PyTorch, `affine`
    and `track_running_stats` are True by default.

    Parameters
    ----------
    eps, momentum, affine, track_running_stats, bias, dtype
        As in :class:`InstanceNorm1d`.

    Examples
    --------
    >>> layer = krt.nn.LazyInstanceNorm1d()
    >>> layer(krt.ones(5, 3, 4)).shape, layer.weight.shape
    ((5, 3, 4), (3,))
    """

    _becomes = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """Apply an :class:`InstanceNorm2d` layer that infers `num_features` from its first input.

    The input has shape ``(batch, num_features, rows, columns)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call. As in PyTorch, `affine`
    and `track_running_stats` are True by default.

    Parameters
    ----------
    eps, momentum, affine, track_running_stats, bias, dtype
        As in :class:`InstanceNorm2d`.

    Examples
    --------
    >>> layer = krt.nn.LazyInstanceNorm2d()
    >>> layer(krt.ones(5, 3, 4, 4)).shape, layer.weight.shape
    ((5, 3, 4, 4), (3,))
    """

    _becomes = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """Apply an :class:`InstanceNorm3d` layer that infers `num_features` from its first input.

    The input has shape ``(batch, num_features, depth, rows, columns)``; the batch may be missing.
    :class:`LazyLinear` says what such a layer can do before its first call. As in PyTorch, `affine`
    and `track_running_stats` are True by default.

    Parameters
    ----------
    eps, momentum, affine, track_running_stats, bias, dtype
        As in :class:`InstanceNorm3d`.

    Examples
    --------
    >>> layer = krt.nn.LazyInstanceNorm3d()
    >>> layer(krt.ones(5, 3, 2, 4, 4)).shape, layer.weight.shape
    ((5, 3, 2, 4, 4), (3,))
    """

    _becomes = InstanceNorm3d
