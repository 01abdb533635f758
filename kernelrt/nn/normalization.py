"""Normalization layers: batch, instance, group and RMS."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.nn.layers import parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor.free_functions.creation import ones, tensor, zeros
from kernelrt.tensor.nodes.arguments import flag
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.tensor import Tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d",
           "InstanceNorm2d", "InstanceNorm3d", "LocalResponseNorm", "RMSNorm"]  # fmt: skip


def _reset(weight: Tensor | None, bias: Tensor | None) -> None:
    """Set the weight to 1 and the bias to 0, where they exist."""
    with no_grad():
        if weight is not None:
            weight.fill_(1)
        if bias is not None:
            bias.zero_()


class _Statistics(Module):
    """Base of layers with running statistics of channels."""

    _ndims: ClassVar[tuple[int, ...]]
    _affine = True
    _tracks = True

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool | None = None, track_running_stats: bool | None = None, *, bias: bool = True,
        dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = positive("num_features", num_features)
        self.eps = eps
        if momentum is not None and not isinstance(momentum, int | float):
            raise DTypeError(f"momentum: expected a float or None, not {type(momentum).__name__}")
        self.momentum = momentum
        self.affine = self._affine if affine is None else flag(affine, "affine")
        tracks = self._tracks if track_running_stats is None else track_running_stats
        self.track_running_stats = flag(tracks, "track_running_stats")
        shape = (num_features,)
        self.weight = parameter(shape, dtype) if self.affine else None
        shifts = flag(bias, "bias") and self.affine
        self.bias = parameter(shape, dtype) if shifts else None
        kept = self.track_running_stats
        self.running_mean = zeros(*shape, dtype=dtype).realize() if kept else None
        self.running_var = ones(*shape, dtype=dtype).realize() if kept else None
        self.num_batches_tracked = tensor(np.array(0)) if kept else None
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset the running statistics: mean 0, variance 1, no batches."""
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0, and reset the running statistics."""
        self.reset_running_stats()
        _reset(self.weight, self.bias)

    def _check(self, x: Tensor, axis: int) -> None:
        if x.ndim not in self._ndims or not same(x.dims[axis], self.num_features):
            axes = " or ".join(map(str, self._ndims))
            raise ShapeError(
                f"input: {type(self).__name__}({self.num_features}) expects {axes} axes with "
                f"{self.num_features} channels in axis {axis}, not shape {format_shape(x.dims)}"
            )

    def _share(self) -> float | Tensor:
        """Count this batch, and return its weight in the running statistics."""
        if self.num_batches_tracked is None:
            return 0.0 if self.momentum is None else self.momentum
        count = self.num_batches_tracked + 1
        with no_grad():
            self.num_batches_tracked.assign(count)
        return 1.0 / count.double() if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        """Return the number of channels and the options as text."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Statistics):
    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, num_features, *)`` to the same shape."""
        self._check(input, 1)
        of_batch = self.training or self.running_mean is None
        learns = self.training and self.running_mean is not None
        share = self._share() if learns else 0.0
        mean = self.running_mean if learns or not of_batch else None
        var = self.running_var if learns or not of_batch else None
        return input.batch_norm(mean, var, self.weight, self.bias, of_batch, share, self.eps)


class BatchNorm1d(_BatchNorm):
    """Apply batch normalization: normalize each channel over the batch and the length.

    Input and output have shape ``(batch, num_features)`` or ``(batch, num_features, length)``. In
    training mode, the layer uses the statistics of the batch, and updates the running statistics
    with them. In evaluation mode, it uses the running statistics.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default 1e-5
        Added to the variance.
    momentum : float or None, default 0.1
        Weight of the new batch in the running statistics. With None, these are the mean over all
        batches so far.
    affine : bool, default True
        Whether to have a learned weight and bias.
    track_running_stats : bool, default True
        Whether to keep running statistics; without them the statistics of the batch are always
        used.
    bias : bool, default True
        Whether to have a bias, if `affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight, bias : Tensor of shape (num_features,), or None
        Scale and shift, initialized to ones and zeros.
    running_mean, running_var : Tensor of shape (num_features,), or None
        Running statistics, initialized to zeros and ones.
    num_batches_tracked : Tensor of shape () in int64, or None
        Number of batches seen in training.

    Raises
    ------
    ShapeError
        In a call: the input has other axes, or another number of channels; or, in training, only
        one value per channel.

    Notes
    -----
    Ioffe and Szegedy, "Batch normalization", 2015 (arXiv:1502.03167).

    Examples
    --------
    >>> norm = krt.nn.BatchNorm1d(2, eps=0.0)
    >>> norm(krt.tensor([[1.0, 10.0], [3.0, 30.0]])).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    _ndims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Apply batch normalization: normalize each channel over the batch and the pixels.

    Input and output have shape ``(batch, num_features, rows, columns)``. In training mode, the
    layer uses the statistics of the batch; in evaluation mode, the running statistics.
    :class:`BatchNorm1d` describes the attributes and errors.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default 1e-5
        Added to the variance.
    momentum : float or None, default 0.1
        Weight of the new batch in the running statistics. With None, these are the mean over all
        batches so far.
    affine : bool, default True
        Whether to have a learned weight and bias.
    track_running_stats : bool, default True
        Whether to keep running statistics; without them the statistics of the batch are always
        used.
    bias : bool, default True
        Whether to have a bias, if `affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Examples
    --------
    >>> norm = krt.nn.BatchNorm2d(1, eps=0.0)
    >>> norm(krt.tensor([[[[1.0, 3.0], [1.0, 3.0]]]])).tolist()
    [[[[-1.0, 1.0], [-1.0, 1.0]]]]
    """

    _ndims = (4,)


class BatchNorm3d(_BatchNorm):
    """Apply batch normalization: normalize each channel over batch, depth, rows and columns.

    Input and output have shape ``(batch, num_features, depth, rows, columns)``. In training mode,
    the layer uses the statistics of the batch; in evaluation mode, the running statistics.
    :class:`BatchNorm1d` describes the attributes and errors.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default 1e-5
        Added to the variance.
    momentum : float or None, default 0.1
        Weight of the new batch in the running statistics. With None, these are the mean over all
        batches so far.
    affine : bool, default True
        Whether to have a learned weight and bias.
    track_running_stats : bool, default True
        Whether to keep running statistics; without them the statistics of the batch are always
        used.
    bias : bool, default True
        Whether to have a bias, if `affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Examples
    --------
    >>> krt.nn.BatchNorm3d(3)(krt.ones(5, 3, 2, 4, 4)).shape
    (5, 3, 2, 4, 4)
    """

    _ndims = (5,)


class _InstanceNorm(_Statistics):
    _affine = False
    _tracks = False

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, num_features, *)`` to the same shape; the batch may be missing."""
        single = input.ndim == self._ndims[0]
        self._check(input, 0 if single else 1)
        x = input.unsqueeze(0) if single else input
        # As in PyTorch: batches are not counted, and momentum=None keeps the running statistics.
        of_input = self.training or self.running_mean is None
        out = x.instance_norm(
            self.running_mean, self.running_var, self.weight, self.bias, of_input,
            0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Apply instance normalization: normalize each channel of each sequence over its length.

    Input and output have shape ``(batch, num_features, length)``; the batch may be missing. The
    result is that of batch normalization of each sample on its own. With `affine` the layer has a
    weight and a bias, and with `track_running_stats` running statistics. :class:`BatchNorm1d`
    describes these attributes.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default 1e-5
        Added to the variance.
    momentum : float or None, default 0.1
        Weight of the new batch in the running statistics; None leaves them unchanged.
    affine : bool, default False
        Whether to have a learned weight and bias.
    track_running_stats : bool, default False
        Whether to keep running statistics, which evaluation uses.
    bias : bool, default True
        Whether to have a bias, if `affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Raises
    ------
    ShapeError
        In a call: the input has other axes, or another number of channels.

    Notes
    -----
    Ulyanov et al., "Instance normalization", 2016 (arXiv:1607.08022).

    Examples
    --------
    >>> norm = krt.nn.InstanceNorm1d(2, eps=0.0)
    >>> norm(krt.tensor([[1.0, 3.0], [10.0, 30.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

    _ndims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Apply instance normalization: normalize each channel of each image over its pixels.

    Input and output have shape ``(batch, num_features, rows, columns)``; the batch may be missing.
    :class:`InstanceNorm1d` describes the errors.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default 1e-5
        Added to the variance.
    momentum : float or None, default 0.1
        Weight of the new batch in the running statistics; None leaves them unchanged.
    affine : bool, default False
        Whether to have a learned weight and bias.
    track_running_stats : bool, default False
        Whether to keep running statistics, which evaluation uses.
    bias : bool, default True
        Whether to have a bias, if `affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Examples
    --------
    >>> norm = krt.nn.InstanceNorm2d(1, eps=0.0)
    >>> norm(krt.tensor([[[[1.0, 3.0], [1.0, 3.0]]]])).tolist()
    [[[[-1.0, 1.0], [-1.0, 1.0]]]]
    """

    _ndims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Apply instance normalization: normalize each channel of each sample over its volume.

    Input and output have shape ``(batch, num_features, depth, rows, columns)``; the batch may be
    missing. :class:`InstanceNorm1d` describes the errors.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float, default 1e-5
        Added to the variance.
    momentum : float or None, default 0.1
        Weight of the new batch in the running statistics; None leaves them unchanged.
    affine : bool, default False
        Whether to have a learned weight and bias.
    track_running_stats : bool, default False
        Whether to keep running statistics, which evaluation uses.
    bias : bool, default True
        Whether to have a bias, if `affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Examples
    --------
    >>> krt.nn.InstanceNorm3d(3)(krt.ones(5, 3, 2, 4, 4)).shape
    (5, 3, 2, 4, 4)
    """

    _ndims = (4, 5)


class GroupNorm(Module):
    """Apply group normalization: normalize each group of channels of each sample.

    Input and output have shape ``(batch, num_channels, *)``.

    Parameters
    ----------
    num_groups, num_channels : int
        Number of groups, and number of channels. All groups have the same number of channels.
    eps : float, default 1e-5
        Added to the variance.
    affine : bool, default True
        Whether to have a learned weight and bias.
    bias : bool, default True
        Whether to have a bias, if `affine`.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight, bias : Tensor of shape (num_channels,), or None
        Scale and shift, initialized to ones and zeros.

    Raises
    ------
    ShapeError
        `num_channels` is not a multiple of `num_groups`; in a call: the input has another number of
        channels.

    Notes
    -----
    Wu and He, "Group normalization", 2018 (arXiv:1803.08494).

    Examples
    --------
    >>> norm = krt.nn.GroupNorm(2, 4, eps=0.0)
    >>> norm(krt.tensor([[1.0, 3.0, 10.0, 30.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *,
        bias: bool = True, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_groups = positive("num_groups", num_groups)
        self.num_channels = positive("num_channels", num_channels)
        if num_channels % num_groups:
            raise ShapeError(
                f"num_channels: expected a multiple of num_groups, {num_groups}, not {num_channels}"
            )
        self.eps = eps
        self.affine = flag(affine, "affine")
        self.weight = parameter((num_channels,), dtype) if affine else None
        shifts = flag(bias, "bias") and self.affine
        self.bias = parameter((num_channels,), dtype) if shifts else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, num_channels, *)`` to the same shape."""
        if input.ndim < 2 or not same(input.dims[1], self.num_channels):
            raise ShapeError(
                f"input: GroupNorm({self.num_groups}, {self.num_channels}) expects "
                f"{self.num_channels} channels in axis 1, not shape {format_shape(input.dims)}"
            )
        return input.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class RMSNorm(Module):
    """Apply RMS normalization: ``x / sqrt(mean(x**2) + eps) * weight`` over the last axes.

    Input and output have shape ``(*, *normalized_shape)``.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Sizes of the last axes, over which to take the mean.
    eps : float, optional
        Added to the mean; by default the machine epsilon of the input's dtype.
    elementwise_affine : bool, default True
        Whether to have a learned weight.
    dtype : DType or str, default float32
        Floating-point dtype of the weight.

    Attributes
    ----------
    weight : Tensor of shape normalized_shape, or None
        Initialized to ones.

    Notes
    -----
    Zhang and Sennrich, "Root mean square layer normalization", 2019 (arXiv:1910.07467).

    Examples
    --------
    >>> norm = krt.nn.RMSNorm(2, eps=0.0)
    >>> norm(krt.tensor([[2.0, -2.0], [8.0, 8.0]])).tolist()
    [[1.0, -1.0], [1.0, 1.0]]
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, *, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        given = normalized_shape if isinstance(normalized_shape, tuple | list) else (
            normalized_shape,
        )
        self.normalized_shape = tuple(positive("normalized_shape", size) for size in given)
        self.eps = eps
        self.elementwise_affine = flag(elementwise_affine, "elementwise_affine")
        self.weight = parameter(self.normalized_shape, dtype) if elementwise_affine else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1."""
        if self.weight is not None:
            with no_grad():
                self.weight.fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(*, *normalized_shape)`` to the same shape."""
        return x.rms_norm(self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}"
        )


class LocalResponseNorm(Module):
    """Apply local response normalization: divide by a power of the mean square of neighbors.

    Input and output have shape ``(batch, channels, n, *)``; see ``Tensor.local_response_norm``.

    Parameters
    ----------
    size : int
        Number of neighboring channels to average over, the channel itself included.
    alpha, beta, k : float, default 1e-4, 0.75 and 1.0
        Factor, exponent, and additive constant of ``x / (k + alpha * mean(x**2)) ** beta``.

    Notes
    -----
    Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", 2012.
    They sum over the neighbors; this layer takes the mean, as PyTorch does.

    Examples
    --------
    >>> norm = krt.nn.LocalResponseNorm(1, alpha=1.0, beta=0.5, k=0.0)
    >>> norm(krt.tensor([[[2.0], [-5.0]]])).tolist()
    [[[1.0], [-1.0]]]
    """

    def __init__(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        self.size = positive("size", size)
        self.alpha, self.beta, self.k = alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(batch, channels, n, *)`` to the same shape."""
        return input.local_response_norm(self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
