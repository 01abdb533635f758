"""Normalization and loss functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import dim_max, dim_span, format_shape, same
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import shape_of
from kernelrt.tensor.nodes.composite_ops import (
    binary_loss,
    divergence,
    huber,
    log_divergence,
    logistic_loss,
)
from kernelrt.tensor.nodes.positions import check_labels
from kernelrt.tensor.nodes.reductions import log_total, normalize
from kernelrt.tensor.operation import operation, operations
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.dtype import DType
    from kernelrt.tensor.base import Operand, TensorBase
    from kernelrt.tensor.methods.window_pooling import PoolingMethods as _Below
    from kernelrt.tensor.nodes import data_checks
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = ["LossMethods"]


@operations("batch_norm")
class LossMethods(_Below):
    """Normalizations and losses."""

    __slots__ = ()

    # ---- normalization

    def layer_norm(
        self, normalized_shape: int | Sequence[int], weight: TensorBase | None = None,
        bias: TensorBase | None = None, eps: float = 1e-5,
    ) -> Self:  # fmt: skip
        """Normalize the last axes to zero mean and unit variance, then scale and shift.

        Parameters
        ----------
        normalized_shape : int or sequence of int
            Sizes of the axes to normalize over.
        weight, bias : Tensor, optional
            Scale and shift, of shape `normalized_shape`.
        eps : float, default 1e-5
            Added to the variance.

        Returns
        -------
        Tensor of floats
            Same shape; promoted dtype of this tensor, `weight` and `bias`.

        Raises
        ------
        ShapeError
            `normalized_shape` or the shape of `weight` or `bias` does not match.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Ba et al., "Layer Normalization", 2016 (arXiv:1607.06450).

        Examples
        --------
        >>> krt.tensor([[1.0, 3.0], [10.0, 14.0]]).layer_norm(2, eps=0.0).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]
        """
        sizes = self._last_sizes(normalized_shape)
        axes = tuple(range(self.ndim - len(sizes), self.ndim))
        out = self._of(normalize(self._wide("layer_norm"), axes, eps)[0])
        return out._scaled(self.dtype, weight, bias, sizes, ())

    def _last_sizes(self, normalized_shape: int | Sequence[int]) -> tuple[Dim, ...]:
        """Check that `normalized_shape` gives the sizes of the last axes, and return them."""
        sizes = shape_of((normalized_shape,), "normalized_shape")
        n = len(sizes)
        if n == 0 or n > self.ndim or not build.same_shape(self.dims[-n:], sizes):
            raise ShapeError(
                f"normalized_shape: expected the sizes of the last axes of shape "
                f"{format_shape(self.dims)}, not {format_shape(sizes)}"
            )
        return sizes

    def group_norm(
        self, num_groups: int, weight: TensorBase | None = None, bias: TensorBase | None = None,
        eps: float = 1e-5,
    ) -> Self:  # fmt: skip
        """Normalize each group of channels (axis 1) of a sample to zero mean and unit variance.

        Parameters
        ----------
        num_groups : int
            Number of groups, which divides the number of channels.
        weight, bias : Tensor, optional
            Scale and shift, of shape (channels,).
        eps : float, default 1e-5
            Added to the variance.

        Returns
        -------
        Tensor of floats
            Same shape; promoted dtype of this tensor, `weight` and `bias`.

        Raises
        ------
        ShapeError
            This tensor has fewer than 2 axes, or `num_groups` does not divide the number of
            channels.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Wu and He, "Group Normalization", 2018 (arXiv:1803.08494).

        Examples
        --------
        >>> krt.tensor([[1.0, 3.0, 10.0, 14.0]]).group_norm(2, eps=0.0).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]
        """
        if self.ndim < 2:
            raise ShapeError(f"group_norm: expected at least 2 axes, not {self.ndim}")
        channels = self._static_size(1, "group_norm")
        if num_groups < 1 or channels % num_groups:
            raise ShapeError(
                f"num_groups: expected a divisor of the {channels} channels, not {num_groups}"
            )
        x = self._of(self._wide("group_norm"))
        grouped = x.reshape(self.dims[0], num_groups, channels // num_groups, *self.dims[2:])
        axes = tuple(range(2, grouped.ndim))
        out = self._of(normalize(grouped.uop, axes, eps)[0]).reshape(self.dims)
        return out._scaled(self.dtype, weight, bias, (channels,), (1,) * (self.ndim - 2))

    def rms_norm(
        self, normalized_shape: int | Sequence[int], weight: TensorBase | None = None,
        eps: float | None = None,
    ) -> Self:  # fmt: skip
        """Normalize the last axes to unit mean square, then scale.

        Parameters
        ----------
        normalized_shape : int or sequence of int
            Sizes of the axes to normalize over.
        weight : Tensor, optional
            Scale, of shape `normalized_shape`.
        eps : float, optional
            Added to the mean square; by default the distance from 1 to the next number of this
            dtype.

        Returns
        -------
        Tensor of floats
            Same shape; promoted dtype of this tensor and `weight`.

        Raises
        ------
        ShapeError
            `normalized_shape` or the shape of `weight` does not match.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019 (arXiv:1910.07467).

        Examples
        --------
        >>> krt.tensor([4.0, -4.0]).rms_norm(2, eps=0.0).tolist()
        [1.0, -1.0]
        """
        if eps is None:
            eps = 2.0 ** -{dt.bfloat16: 7, dt.float16: 10, dt.float64: 52}.get(self.dtype, 23)
        sizes = self._last_sizes(normalized_shape)
        x = self._of(self._wide("rms_norm"))
        axes = tuple(range(-len(sizes), 0))
        out = x * (x.square().mean(axes, keepdim=True) + eps).rsqrt()
        return out._scaled(self.dtype, weight, None, sizes, ())

    def _scaled(
        self, dtype: DType, weight: TensorBase | None, bias: TensorBase | None,
        shape: tuple[Dim, ...], behind: tuple[int, ...],
    ) -> Self:  # fmt: skip
        """Scale and shift in the accumulation dtype, then round to the promoted dtype."""
        out = self
        for name, value in (("weight", weight), ("bias", bias)):
            if value is None:
                continue
            other = self._lift(value, name)
            if not build.same_shape(other.dims, shape):
                raise ShapeError(
                    f"{name}: expected shape {format_shape(shape)}, not "
                    f"{format_shape(other.dims)}"
                )
            dtype = dt.promote(dtype, other.dtype)
            other = other.reshape(*shape, *behind)
            out = out * other if name == "weight" else out + other
        return out.cast(dtype)

    def batch_norm(
        self, running_mean: TensorBase | None, running_var: TensorBase | None,
        weight: TensorBase | None = None, bias: TensorBase | None = None, training: bool = False,
        momentum: float | TensorBase = 0.1, eps: float = 1e-5,
    ) -> Self:  # fmt: skip
        """Normalize each channel (axis 1) over the batch to zero mean and unit variance.

        Parameters
        ----------
        running_mean, running_var : Tensor or None
            Running statistics of shape (channels,). In training they are assigned ``(1 - momentum)
            * running + momentum * batch``; otherwise they are the statistics used.
        weight, bias : Tensor, optional
            Scale and shift, of shape (channels,).
        training : bool, default False
            Whether to use the statistics of this batch. An empty batch leaves the running
            statistics unchanged. A batch with one value per channel raises an error, or, if the
            count is known only at run time, updates only `running_mean`.
        momentum, eps : float, default 0.1 and 1e-5
            Weight of the new statistics in the running ones, and number added to the variance.

        Returns
        -------
        Tensor of floats
            Same shape, (batch, channels, ...); promoted dtype of this tensor, `weight`, `bias` and,
            outside of training, the running statistics.

        Raises
        ------
        ShapeError
            This tensor has fewer than 2 axes, statistics are missing outside of training, or there
            is one value per channel in training.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing
        Internal Covariate Shift", 2015 (arXiv:1502.03167).

        Examples
        --------
        >>> x = krt.tensor([[1.0, 3.0], [9.0, 7.0]])
        >>> x.batch_norm(None, None, training=True, eps=0.0).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
        """
        if self.ndim < 2:
            raise ShapeError(f"batch_norm: expected at least 2 axes, not {self.ndim}")
        behind = (1,) * (self.ndim - 2)
        channels = (self._static_size(1, "batch_norm"),)
        known = self._statistics(running_mean, running_var)
        if training:
            axes = (0, *range(2, self.ndim))
            out, mean, variance = self._normalized(axes, eps)
            if dim_max(count := build.volume(self.dims, axes)) == 1:
                raise ShapeError(
                    "batch_norm: training needs more than one value per channel, not shape "
                    f"{format_shape(self.dims)}; give a larger batch, or call eval() of the module"
                )
            if dim_max(count) > 0:  # an empty batch leaves the statistics unchanged
                rest = out._of(build.scalar(build.difference(count, 1), variance.dtype))
                unbiased = variance * out._of(build.scalar(count, variance.dtype)) / rest
                self._learn(known[0], mean.reshape(channels), momentum, count, 1)
                self._learn(known[1], unbiased.reshape(channels), momentum, count, 2)
            return out._scaled(self.dtype, weight, bias, channels, behind)
        if known[0] is None or known[1] is None:
            raise ShapeError(
                "running_mean, running_var: training=False needs both, but at least one is None; "
                "pass both, or training=True to use the statistics of the batch"
            )
        line = (1, self.dims[1], *behind)
        mean, spread = known[0].reshape(line), known[1].reshape(line)
        x = self._of(self._wide("batch_norm"))
        out = (x - mean) * (spread.cast(spread.dtype.accumulator) + eps).rsqrt()
        dtype = dt.promote(self.dtype, mean.dtype, spread.dtype)
        return out._scaled(dtype, weight, bias, channels, behind)

    def _statistics(
        self, running_mean: TensorBase | None, running_var: TensorBase | None
    ) -> list[Self | None]:
        """Return running statistics; check that they have one number for each channel."""
        found: list[Self | None] = []
        for name, value in (("running_mean", running_mean), ("running_var", running_var)):
            known = None if value is None else self._lift(value, name)
            if known is not None and not build.same_shape(known.dims, self.dims[1:2]):
                raise ShapeError(
                    f"{name}: expected one number for each channel, of shape "
                    f"{format_shape(self.dims[1:2])}, not {format_shape(known.dims)}"
                )
            found.append(known)
        return found

    def _learn(
        self, known: Self | None, new: Self, momentum: float | TensorBase, count: Dim, needed: int
    ) -> None:
        """Mix statistics `new`, of `count` values, into `known` if `count` is at least `needed`."""
        if known is None:
            return
        rest: Any = 1 - momentum  # type: ignore[operator]
        mixed = (known * rest + new * momentum).cast(known.dtype)
        if dim_span(count)[0] < needed:
            seen = self._of(build.scalar(count, dt.int64))
            mixed = mixed.where(seen >= needed, known)
        known._assign(mixed)

    @operation
    def _normalized(self, axes: tuple[int, ...], eps: float) -> tuple[Self, Self, Self]:
        """Return the tensors of :func:`~kernelrt.tensor.nodes.reductions.normalize`."""
        out, mean, variance = normalize(self._wide("batch_norm"), axes, eps)
        return self._of(out), self._of(mean), self._of(variance)

    # ---- losses

    def _reduced(self, reduction: str) -> Self:
        if reduction == "none":
            return self
        if reduction not in ("mean", "sum"):
            raise DomainError(f"reduction: expected 'mean', 'sum' or 'none', not {reduction!r}")
        return self.mean() if reduction == "mean" else self.sum()

    def cross_entropy(
        self, target: TensorBase, weight: TensorBase | None = None,
        ignore_index: int | None = -100, reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> Self:  # fmt: skip
        """Return the cross entropy between class scores and class numbers or probabilities.

        Parameters
        ----------
        target : Tensor
            Class numbers in [0, C): integers of shape (batch,) for scores (batch, C), (batch, ...)
            for (batch, C, ...), () for (C,). Or the probability of each class: floats in the shape
            of the scores.
        weight : Tensor, optional
            Weight of each class, of shape (C,). For class numbers the mean is then weighted.
        ignore_index : int, optional
            Class number whose samples do not count, -100 by default.
        reduction : "mean", "sum" or "none"
            Reduction of the losses of the samples.
        label_smoothing : float, default 0.0
            Share of the target, from 0 to 1, to spread over all classes.

        Returns
        -------
        Tensor of floats
            Scalar, or the shape of the class numbers if `reduction` is "none". Dtype of the scores,
            promoted with that of probabilities.

        Raises
        ------
        DomainError
            `label_smoothing` is not from 0 to 1, or `reduction` is unknown.
        ShapeError
            A shape does not match.
        DTypeError
            `target` holds neither integers nor probabilities of all classes, or the scores are not
            floats.
        IndexBoundsError
            At run time, if a class is outside of [0, C) and is not `ignore_index`.

        Notes
        -----
        Label smoothing is from Szegedy et al., "Rethinking the Inception Architecture for Computer
        Vision", 2015 (arXiv:1512.00567).

        Examples
        --------
        >>> scores = krt.tensor([[2.0, 1.0], [0.0, 0.0]], dtype="float64")
        >>> scores.cross_entropy(krt.tensor([0, 1]), reduction="none").round(decimals=4).tolist()
        [0.3133, 0.6931]
        """
        x, axis = self._scores("cross_entropy")
        x = x.cast(x.dtype.accumulator)
        if not 0 <= label_smoothing <= 1:
            raise DomainError(f"label_smoothing: expected 0 to 1, not {label_smoothing}")
        given = self._lift(target, "cross_entropy: target")
        if given.dtype.is_float and build.same_shape(given.dims, self.dims):
            return self._probability_loss(given, weight, reduction, label_smoothing, axis)
        smooth = label_smoothing
        if smooth and weight is not None:
            return self._smooth_loss(given, weight, ignore_index, reduction, smooth, axis)
        chosen, labels, ignored = self._chosen(x, given, axis, ignore_index, "cross_entropy")
        top, rest = (build.reshape(u, chosen.shape) for u in log_total(x, (axis,)))
        gap = top.alu(Op.SUB, chosen)
        if smooth:
            mean = build.reduce(x, Op.ADD, (axis,))
            share = 1 / _classes(x.shape[axis])
            mean = build.mul(mean, build.full(share, x.dtype, mean.shape))
            # Weighting differences instead of scores gives exactly 0 for a single class.
            spread = top.alu(Op.SUB, mean)
            gap = build.add(build.mul(gap, 1 - smooth), build.mul(spread, smooth))
        losses = self._of(rest.alu(Op.ADD, gap))
        factors = None
        if weight is not None:
            factors = self._class_weights(weight, self.dims[axis])[self._of(labels)]
        return losses._counted(factors, ignored, reduction).cast(self.dtype)

    def nll_loss(
        self, target: TensorBase, weight: TensorBase | None = None,
        ignore_index: int | None = -100, reduction: str = "mean",
    ) -> Self:  # fmt: skip
        """Return the negative log-probability of each sample's class; see :meth:`cross_entropy`.

        Parameters
        ----------
        target : Tensor of integers
            Class numbers in [0, C): of shape (batch,) for log-probabilities (batch, C), (batch,
            ...) for (batch, C, ...), () for (C,).
        weight : Tensor, optional
            Weight of each class, of shape (C,). The mean is then weighted.
        ignore_index : int, optional
            Class number whose samples do not count, -100 by default.
        reduction : "mean", "sum" or "none"
            Reduction of the losses of the samples.

        Returns
        -------
        Tensor of floats
            Scalar, or the shape of `target` if `reduction` is "none"; same dtype.

        Raises
        ------
        ShapeError
            A shape does not match.
        DTypeError
            `target` does not hold integers, or the log-probabilities are not floats.
        IndexBoundsError
            At run time, if a class is outside of [0, C) and is not `ignore_index`.

        Examples
        --------
        >>> krt.tensor([[-1.0, -2.0], [-3.0, -0.5]]).nll_loss(krt.tensor([1, 1])).item()
        1.25
        """
        x, axis = self._scores("nll_loss")
        x = x.cast(x.dtype.accumulator)
        given = self._lift(target, "nll_loss: target")
        chosen, labels, ignored = self._chosen(x, given, axis, ignore_index, "nll_loss")
        factors = None
        if weight is not None:
            factors = self._class_weights(weight, self.dims[axis])[self._of(labels)]
        losses = self._of(build.neg(chosen))
        return losses._counted(factors, ignored, reduction).cast(self.dtype)

    def _scores(self, name: str) -> tuple[UOp, int]:
        """Return the class scores and the axis of the classes."""
        if self.ndim == 0:
            raise ShapeError(f"{name}: expected an axis of classes, not a scalar")
        return self._floats(name), 0 if self.ndim == 1 else 1

    def _chosen(
        self, x: UOp, target: Self, axis: int, ignore_index: int | None, name: str
    ) -> tuple[UOp, UOp, Self | None]:
        """Return each sample's score of its class, the classes, and which samples to ignore.

        The class of an ignored sample is 0.
        """
        rows = tuple(d for a, d in enumerate(x.shape) if a != axis)
        if build.same_shape(target.dims, x.shape) and x.shape:
            floats = " or floats, as in y.float()," if name == "cross_entropy" else ""
            raise ShapeError(
                f"target: expected class numbers of shape {format_shape(rows)}{floats} for scores "
                f"of shape {format_shape(x.shape)}, not {target.dtype.name} in the shape of the "
                f"scores; convert one-hot labels to class numbers by y.argmax({axis})"
            )
        if not target.dtype.is_int:
            check_labels(target.uop, x.shape[axis], f"{name}: target")
        if not build.same_shape(target.dims, rows):
            raise ShapeError(
                f"target: expected shape {format_shape(rows)} for scores of shape "
                f"{format_shape(x.shape)}, not {format_shape(target.dims)}"
            )
        labels, ignored = target.uop.cast(dt.int64), None
        if ignore_index is not None and dt.holds(target.dtype, ignore_index):
            ignored = labels.eq(build.full(ignore_index, dt.int64, rows))
            labels = build.where(ignored, 0, labels)
        labels = check_labels(labels, x.shape[axis], f"{name}: target")
        wide = build.reshape(labels, build.keep_axes(x.shape, (axis,)))
        hit = build.iota_along(x.shape, axis).eq(build.expand(wide, x.shape))
        chosen = build.reduce(build.where(hit, x, 0), Op.ADD, (axis,))
        return chosen, labels, None if ignored is None else self._of(ignored)

    def _class_weights(
        self, weight: TensorBase, classes: Dim, dtype: DType | None = None
    ) -> Self:
        table = self._lift(weight, "weight")
        if table.ndim != 1 or not same(table.dims[0], classes):
            raise ShapeError(
                f"weight: expected one number per class, of shape {format_shape((classes,))}, not "
                f"{format_shape(table.dims)}"
            )
        return table.detach().cast((dtype or self.dtype).accumulator)

    def _counted(self, factors: Self | None, ignored: Self | None, reduction: str) -> Self:
        """Reduce the samples' losses times their factors, without the ignored samples."""
        if factors is None and ignored is None:
            return self._reduced(reduction)
        losses = self if factors is None else self * factors
        if ignored is not None:
            losses = losses.masked_fill(ignored, 0)
        if reduction != "mean":
            return losses._reduced(reduction)
        if factors is None:
            assert ignored is not None
            return losses.sum() / (~ignored).sum()
        if ignored is not None:
            factors = factors.masked_fill(ignored, 0)
        return losses.sum() / factors.sum()

    def _smooth_loss(
        self, target: Self, weight: TensorBase, ignore_index: int | None, reduction: str,
        smooth: float, axis: int,
    ) -> Self:  # fmt: skip
        """Return the smoothed cross entropy with class weights."""
        table = self._class_weights(weight, self.dims[axis])
        line = tuple(self.dims[axis] if a == axis else 1 for a in range(self.ndim))
        scores = self.cast(self.dtype.accumulator).log_softmax(axis)
        even = -(scores * table.reshape(line)).sum(axis) / _classes(self.dims[axis])
        picked, labels, ignored = self._chosen(
            scores.uop, target, axis, ignore_index, "cross_entropy"
        )
        factors = table[self._of(labels)]
        losses = self._of(build.neg(picked)) * factors * (1 - smooth) + even * smooth
        if ignored is not None:
            losses, factors = losses.masked_fill(ignored, 0), factors.masked_fill(ignored, 0)
        out = losses.sum() / factors.sum() if reduction == "mean" else losses._reduced(reduction)
        return out.cast(self.dtype)

    def _probability_loss(
        self, target: Self, weight: TensorBase | None, reduction: str, smooth: float, axis: int
    ) -> Self:
        """Return the cross entropy with the probabilities of all classes."""
        dtype = dt.promote(self.dtype, target.dtype)
        target = target.cast(dtype.accumulator)
        if smooth:
            target = target * (1 - smooth) + smooth / _classes(self.dims[axis])
        scores = self.cast(dtype.accumulator).log_softmax(axis)
        if weight is not None:
            line = tuple(self.dims[axis] if a == axis else 1 for a in range(self.ndim))
            scores = scores * self._class_weights(weight, self.dims[axis], dtype).reshape(line)
        return (-(scores * target).sum(axis))._reduced(reduction).cast(dtype)

    def _pair(self, target: Operand, name: str) -> tuple[Self, Self]:
        """Return this tensor and a target; raise ShapeError if their shapes differ.

        PyTorch broadcasts some shapes with a warning: (n, 1) and (n,) give n * n differences there.
        """
        x = self._of(self._floats(name))
        y = self._lift(target, f"{name}: target", like=True)
        if not build.same_shape(x.dims, y.dims):
            raise ShapeError(
                f"{name}: target: expected the shape {format_shape(x.dims)} of the input, not "
                f"{format_shape(y.dims)}; to broadcast the target, pass target.expand_as(input)"
            )
        return x, y

    def mse_loss(
        self, target: Operand, reduction: str = "mean", weight: TensorBase | None = None
    ) -> Self:
        """Return the squared differences, reduced; `target` must have the same shape.

        Parameters
        ----------
        target : Tensor
            Expected values.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.
        weight : Tensor, optional
            Factor of each squared difference, of the same shape; the mean is then divided by the
            sum of the weights.

        Returns
        -------
        Tensor of floats
            Scalar, or the same shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        ShapeError
            The shape of `target` or `weight` differs.
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).mse_loss(krt.tensor([1.0, 5.0])).item()
        4.5
        """
        x, y = self._pair(target, "mse_loss")
        return (x - y).square()._weighted_by(weight, reduction, "mse_loss")

    def l1_loss(
        self, target: Operand, reduction: str = "mean", weight: TensorBase | None = None
    ) -> Self:
        """Return the absolute differences, reduced; `target` must have the same shape.

        Parameters
        ----------
        target : Tensor
            Expected values.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.
        weight : Tensor, optional
            Factor of each difference, of the same shape; the mean is then divided by the sum of the
            weights.

        Returns
        -------
        Tensor of floats
            Scalar, or the same shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        ShapeError
            The shape of `target` or `weight` differs.
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> krt.tensor([1.0, 2.0]).l1_loss(krt.tensor([1.0, 5.0])).item()
        1.5
        """
        x, y = self._pair(target, "l1_loss")
        return (x - y).abs()._weighted_by(weight, reduction, "l1_loss")

    def _weighted_by(
        self, weight: TensorBase | None, reduction: str, name: str, *, divides: bool = True
    ) -> Self:
        """Reduce losses times their weights.

        With `divides` a mean is divided by the sum of the weights.
        """
        if weight is None:
            return self._reduced(reduction)
        factor = self._lift(weight, "weight")
        if tuple(factor.dims) != tuple(self.dims):
            raise ShapeError(
                f"{name}: weight: expected the shape {format_shape(self.dims)} of the input, not "
                f"{format_shape(factor.dims)}"
            )
        losses = self * factor
        if divides and reduction == "mean":
            return losses.sum() / factor.sum()
        return losses._reduced(reduction)

    def huber_loss(
        self, target: Operand, reduction: str = "mean", delta: float = 1.0,
        weight: TensorBase | None = None,
    ) -> Self:  # fmt: skip
        """Return half the squared differences up to `delta`; beyond it the loss grows linearly.

        Parameters
        ----------
        target : Tensor
            Expected values, of the same shape.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.
        delta : float, default 1.0
            Limit, above 0. For greater differences d the loss is ``delta * (d - delta / 2)``.
        weight : Tensor, optional
            Factor of each loss, of the same shape. As in PyTorch, "mean" divides the sum of the
            products by their number, not by the sum of the weights.

        Returns
        -------
        Tensor of floats
            Scalar, or the same shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        DomainError
            `delta` is not above 0.
        ShapeError
            The shape of `target` or `weight` differs.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Huber, "Robust Estimation of a Location Parameter", 1964.

        Examples
        --------
        >>> x, y = krt.tensor([[1.0, 2.0], [2.0, 5.0]])
        >>> x.huber_loss(y, reduction="none").tolist()
        [0.5, 2.5]
        """
        if not delta > 0:
            raise DomainError(f"delta: expected a number above 0, not {delta}")
        x, y = self._pair(target, "huber_loss")
        losses = (x - y)._widely(lambda d: huber(d, delta))
        return losses._weighted_by(weight, reduction, "huber_loss", divides=False)

    def smooth_l1_loss(self, target: Operand, reduction: str = "mean", beta: float = 1.0) -> Self:
        """Return the Huber loss divided by `beta`, or the :meth:`l1_loss` if `beta` is 0.

        Parameters
        ----------
        target : Tensor
            Expected values, of the same shape.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.
        beta : float, default 1.0
            The parameter `delta` of :meth:`huber_loss`, at least 0.

        Returns
        -------
        Tensor of floats
            Scalar, or the same shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        DomainError
            `beta` is negative.
        ShapeError
            The shape of `target` differs.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Girshick, "Fast R-CNN", 2015 (arXiv:1504.08083).

        Examples
        --------
        >>> x, y = krt.tensor([[1.0, 2.0], [2.0, 5.0]])
        >>> x.smooth_l1_loss(y, beta=2.0, reduction="none").tolist()
        [0.25, 2.0]
        """
        if not beta >= 0:
            raise DomainError(f"beta: expected a number of at least 0, not {beta}")
        if beta == 0:
            return self.l1_loss(target, reduction)
        x, y = self._pair(target, "smooth_l1_loss")
        return (x - y)._widely(lambda d: huber(d, beta, beta))._reduced(reduction)

    def binary_cross_entropy(
        self, target: Operand, weight: TensorBase | None = None, reduction: str = "mean",
    ) -> Self:  # fmt: skip
        """Return the binary cross entropy between these probabilities and those in `target`.

        Logarithms are clamped to at least -100. So the loss is finite for probabilities 0 and 1.
        Computing from scores is more precise than from probabilities: see
        :meth:`binary_cross_entropy_with_logits`.

        Parameters
        ----------
        target : Tensor
            Probabilities from 0 to 1, of the same shape.
        weight : Tensor, optional
            Factor of each loss; it broadcasts.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

        Returns
        -------
        Tensor of floats
            Scalar, or the same shape if `reduction` is "none"; promoted dtype of all arguments.

        Raises
        ------
        ShapeError
            The shape of `target` differs.
        DTypeError
            This tensor holds integers or bools.
        DomainError
            At run time, if a probability of either tensor is outside of [0, 1] or is NaN.

        Examples
        --------
        >>> x, y = krt.tensor([[0.5, 0.75], [1.0, 1.0]], dtype="float64")
        >>> x.binary_cross_entropy(y, reduction="none").round(decimals=4).tolist()
        [0.6931, 0.2877]
        """
        x, y = self._pair(target, "binary_cross_entropy")
        out = self._weighted_pair(binary_loss, [x, y], weight, reduction)
        demand = data_checks.if_each if reduction == "none" else data_checks.if_all
        return demand(demand(out, x, 0, 1, "input"), y, 0, 1, "target")

    def _weighted_pair(
        self, rule: Callable[..., UOp], parts: Sequence[Self], weight: TensorBase | None,
        reduction: str,
    ) -> Self:  # fmt: skip
        """Return a loss of `parts` times `weight` in their promoted dtype."""
        factors = [] if weight is None else [self._lift(weight, "weight", like=True)]
        dtype = dt.promote(*(p.dtype for p in (*parts, *factors)))
        losses = self._of(rule(*build.align(*(p.uop.cast(dtype.accumulator) for p in parts))))
        for factor in factors:
            losses = losses * factor
        return losses._reduced(reduction).cast(dtype)

    def binary_cross_entropy_with_logits(
        self, target: Operand, weight: TensorBase | None = None, reduction: str = "mean",
        pos_weight: TensorBase | None = None,
    ) -> Self:  # fmt: skip
        """Return the binary cross entropy between these scores and the probabilities `target`.

        The loss of an infinite score is 0 if the score is right, and infinite if it is wrong.

        Parameters
        ----------
        target : Tensor
            Probabilities from 0 to 1, of the same shape.
        weight : Tensor, optional
            Factor of each loss; it broadcasts.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.
        pos_weight : Tensor, optional
            Factor of the part of the loss that belongs to `target`, not to ``1 - target``; it
            broadcasts.

        Returns
        -------
        Tensor of floats
            Scalar, or the same shape if `reduction` is "none"; promoted dtype of all arguments.

        Raises
        ------
        ShapeError
            The shape of `target` differs.
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> x, y = krt.tensor([[0.0, 2.0], [1.0, 0.0]], dtype="float64")
        >>> x.binary_cross_entropy_with_logits(y, reduction="none").round(decimals=4).tolist()
        [0.6931, 2.1269]
        """
        x, y = self._pair(target, "binary_cross_entropy_with_logits")
        parts = [x, y] if pos_weight is None else [x, y, self._lift(pos_weight, "pos_weight")]
        return self._weighted_pair(logistic_loss, parts, weight, reduction)

    def kl_div(
        self, target: Operand, reduction: str = "mean", log_target: bool = False
    ) -> Self:
        """Return the Kullback-Leibler divergence of `target` from these log-probabilities.

        A probability of 0 contributes 0 and has no gradient; one below 0 gives NaN.

        Parameters
        ----------
        target : Tensor
            Probabilities, or with `log_target` their logarithms, of the same shape.
        reduction : "mean", "batchmean", "sum" or "none"
            Reduction of the terms. "batchmean" divides the sum by the size of the first axis.
        log_target : bool, default False
            Whether `target` holds logarithms.

        Returns
        -------
        Tensor of floats
            Scalar, or the same shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        ShapeError
            The shape of `target` differs.
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> x, y = krt.tensor([[0.5, 0.5], [1.0, 0.0]], dtype="float64")
        >>> x.log().kl_div(y, reduction="sum").round(decimals=4).item()
        0.6931
        """
        x, y = self._pair(target, "kl_div")
        a, b = x._unify(("target", y))
        wide = a.dtype.accumulator
        a, b, narrow = a.cast(wide), b.cast(wide), a.dtype
        gap = (log_divergence if log_target else divergence)(a, b)
        losses = self._of(gap)
        if reduction == "batchmean":
            return (losses.sum() / (x.shape[0] if x.ndim else 1)).cast(narrow)
        return losses._reduced(reduction).cast(narrow)


def _classes(size: object) -> float:
    """Return the number of classes, or 1 if there are none, as a divisor for label smoothing."""
    if not isinstance(size, int):
        raise DTypeError(
            "label_smoothing: expected a fixed number of classes, but it is known only at run "
            "time; leave the axis of classes out of jit(dynamic=...)"
        )
    return float(max(size, 1))
