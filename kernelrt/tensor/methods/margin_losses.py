"""Margin, ranking and sequence losses, and likelihoods of distributions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self, TypeAlias

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import broadcasts_to, format_shape, format_size, same
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import integer, real
from kernelrt.tensor.nodes.composite_ops import at_least, softplus
from kernelrt.tensor.nodes.ctc import alignment_losses
from kernelrt.tensor.nodes.positions import check_labels, checked
from kernelrt.tensor.operation import operations
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelrt.tensor.base import Operand, TensorBase
    from kernelrt.tensor.methods.statistics import StatisticsMethods as _Below
    from kernelrt.tensor.nodes import data_checks
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = ["Lengths", "MarginMethods"]

#: One number per sample.
Lengths: TypeAlias = "TensorBase | Sequence[int] | int"


@operations()
class MarginMethods(_Below):
    """Losses with margins between scores, sequence losses, and likelihoods of distributions."""

    __slots__ = ()

    def _together(self, target: Operand, name: str) -> tuple[Self, Self]:
        """Return this tensor and a target that broadcasts with it, in one dtype."""
        self._floats(name)
        a, b = self._unify((f"{name}: target", target))
        return self._of(a), self._of(b)

    def soft_margin_loss(self, target: Operand, reduction: str = "mean") -> Self:
        """Return ``log(1 + exp(-target * self))``, where `target` holds -1 and 1.

        Parameters
        ----------
        target : Tensor
            Signs of the classes, -1 or 1, of the same shape.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

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
        >>> x, y = krt.tensor([[0.0, 2.0], [1.0, -1.0]], dtype="float64")
        >>> x.soft_margin_loss(y, reduction="none").round(decimals=4).tolist()
        [0.6931, 2.1269]
        """
        x, y = self._pair(target, "soft_margin_loss")
        a, b = x._unify(("target", y))
        wide = a.dtype.accumulator
        losses = softplus(build.neg(a.cast(wide).alu(Op.MUL, b.cast(wide))))
        return self._of(losses.cast(a.dtype))._reduced(reduction)

    def hinge_embedding_loss(
        self, target: Operand, margin: float = 1.0, reduction: str = "mean"
    ) -> Self:
        """Return the distance where `target` is 1, and ``max(margin - self, 0)`` where it is -1.

        Parameters
        ----------
        target : Tensor
            1 for pairs that are similar, -1 for others; shapes broadcast. This tensor holds
            distances.
        margin : float, default 1.0
            Distance from which on a pair with target -1 has no loss.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

        Returns
        -------
        Tensor of floats
            Scalar, or the broadcast shape if `reduction` is "none"; same dtype.

        Raises
        ------
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> x, y = krt.tensor([0.5, 0.25, 2.0]), krt.tensor([1, -1, -1])
        >>> x.hinge_embedding_loss(y, reduction="none").tolist()
        [0.5, 0.75, 0.0]
        """
        y = self._lift(target, "hinge_embedding_loss: target", like=True)
        self._floats("hinge_embedding_loss")
        x = self.uop
        lacks = self._of(build.sub(x, real(margin, "margin")))._lack()
        near = self._where(y.ne(-1), self, 0)
        far = self._where(y.ne(1), lacks, 0)
        return (near + far)._reduced(reduction)

    def _lack(self) -> Self:
        """Return ``max(-self, 0)``; the derivative at 0 is -1."""
        x = self.uop
        positive = build.zeros_like(x).alu(Op.LT, x)
        return self._of(build.where(positive, 0, build.neg(x)))

    def _where(self, condition: Self, yes: Self, no: float) -> Self:
        return self._select(condition, yes, no)

    def margin_ranking_loss(
        self, input2: Operand, target: Operand, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """Return ``max(-target * (self - input2) + margin, 0)``, reduced.

        Where `target` is 1, the loss is 0 if this tensor is at least `margin` above `input2`. Where
        it is -1, the loss is 0 if this tensor is at least `margin` below `input2`. All three
        tensors broadcast.

        Parameters
        ----------
        input2 : Tensor
            Scores to compare with.
        target : Tensor
            1 or -1 for each pair.
        margin : float, default 0.0
            Least distance between the scores at which the loss is 0.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

        Returns
        -------
        Tensor
            Scalar, or the broadcast shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        ShapeError
            The numbers of axes differ.

        Examples
        --------
        >>> x, y = krt.tensor([3.0, 1.0]), krt.tensor([2.0, 2.0])
        >>> x.margin_ranking_loss(y, krt.tensor([1.0, 1.0]), reduction="none").tolist()
        [0.0, 1.0]
        """
        other = self._lift(input2, "input2", like=True)
        y = self._lift(target, "margin_ranking_loss: target", like=True)
        if not self.ndim == other.ndim == y.ndim:
            raise ShapeError(
                "margin_ranking_loss: expected equal numbers of axes, not input of shape "
                f"{format_shape(self.dims)}, input2 of shape {format_shape(other.dims)} and target "
                f"of shape {format_shape(y.dims)}"
            )
        lack = -y * (self - other) + real(margin, "margin")
        return lack.clamp(min=0)._reduced(reduction)

    def cosine_embedding_loss(
        self, input2: TensorBase, target: TensorBase, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """Return ``1 - cos`` where `target` is 1, and ``max(cos - margin, 0)`` where it is -1.

        Parameters
        ----------
        input2 : Tensor
            Tensor of the same shape as this one, (N, D) or (D,).
        target : Tensor
            1 for pairs that are similar, -1 for others, of shape (N,) or ().
        margin : float, default 0.0
            Cosine up to which a pair with target -1 has no loss.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

        Returns
        -------
        Tensor of floats
            Scalar, or the shape of `target` if `reduction` is "none"; promoted dtype, float32 for
            integers.

        Raises
        ------
        ShapeError
            The shapes do not match.

        Examples
        --------
        >>> x, y = krt.tensor([[1.0, 0.0], [1.0, 0.0]]), krt.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> x.cosine_embedding_loss(y, krt.tensor([1, -1]), reduction="none").tolist()
        [1.0, 1.0]
        """
        other = self._lift(input2, "input2")
        y = self._lift(target, "cosine_embedding_loss: target")
        if y.ndim > 1 or other.ndim != y.ndim + 1 or self.ndim != y.ndim + 1:
            raise ShapeError(
                "cosine_embedding_loss: expected input, input2 and target of shapes (N, D), (N, D) "
                "and (N,), or (D,), (D,) and (), not of shapes "
                f"{', '.join(format_shape(t.dims) for t in (self, other, y))}"
            )
        # Cosines of integers are float32.
        kind = dt.promote(self.dtype, other.dtype)
        kind = kind if kind.is_float else dt.float32
        a, b = (t.cast(kind.accumulator) for t in (self, other))
        products = (a * b).sum(y.ndim)
        sizes = [(t * t).sum(y.ndim) + _COSINE_EPS for t in (a, b)]
        cosine = (products / (sizes[0] * sizes[1]).sqrt()).cast(kind)
        near = self._where(y.eq(1), 1 - cosine, 0)
        far = self._where(y.eq(-1), (cosine - real(margin, "margin")).clamp(min=0), 0)
        return (near + far)._reduced(reduction)

    def triplet_margin_loss(
        self, positive: TensorBase, negative: TensorBase, margin: float = 1.0, p: float = 2.0,
        eps: float = 1e-6, swap: bool = False, reduction: str = "mean",
    ) -> Self:  # fmt: skip
        """Return ``max(margin + d(self, positive) - d(self, negative), 0)`` for distances d.

        Parameters
        ----------
        positive, negative : Tensor
            Samples that are similar and dissimilar to this tensor's, in shapes that broadcast.
        margin : float, default 1.0
            Margin between the distances, above 0.
        p, eps : float, default 2.0 and 1e-6
            Parameters of :meth:`pairwise_distance`.
        swap : bool, default False
            Whether to use the distance between `positive` and `negative` where it is less than that
            between this tensor and `negative`.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

        Returns
        -------
        Tensor of floats
            Scalar, or the broadcast shape without its last axis if `reduction` is "none"; promoted
            dtype.

        Raises
        ------
        DomainError
            `margin` is not above 0.
        ShapeError
            The numbers of axes differ.

        Notes
        -----
        From Balntas et al., "Learning Local Feature Descriptors with Triplets and Shallow
        Convolutional Neural Networks", 2016.

        Examples
        --------
        >>> anchor, near, far = krt.tensor([[[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 4.0]]])
        >>> anchor.triplet_margin_loss(near, far, eps=0.0).item()
        2.0
        """

        def distance(a: Self, b: Self) -> Self:
            return a.pairwise_distance(b, p, eps)

        return self._triplet(
            positive, negative, distance, margin, swap, reduction, "triplet_margin_loss"
        )

    def triplet_margin_with_distance_loss(
        self, positive: TensorBase, negative: TensorBase, *,
        distance_function: Callable[[Self, Self], Self] | None = None, margin: float = 1.0,
        swap: bool = False, reduction: str = "mean",
    ) -> Self:  # fmt: skip
        """Compute :meth:`triplet_margin_loss` with distances from `distance_function(a, b)`.

        Parameters
        ----------
        positive, negative : Tensor
            Samples that are similar and dissimilar to this tensor's.
        distance_function : callable, optional
            Function of two tensors that returns their distances; by default
            :meth:`pairwise_distance`.
        margin, swap, reduction : optional
            As in :meth:`triplet_margin_loss`.

        Returns
        -------
        Tensor
            Scalar, or the shape of the distances if `reduction` is "none".

        Raises
        ------
        DomainError
            `margin` is not above 0.
        ShapeError
            The numbers of axes differ.

        Examples
        --------
        >>> anchor, near, far = krt.tensor([[[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 4.0]]])
        >>> anchor.triplet_margin_with_distance_loss(
        ...     near, far, distance_function=lambda a, b: (a - b).abs().sum(-1)
        ... ).item()
        4.0
        """
        measure = distance_function or (lambda a, b: a.pairwise_distance(b))
        return self._triplet(
            positive, negative, measure, margin, swap, reduction,
            "triplet_margin_with_distance_loss",
        )  # fmt: skip

    def _triplet(
        self, positive: TensorBase, negative: TensorBase, measure: Callable[[Self, Self], Self],
        margin: float, swap: bool, reduction: str, name: str,
    ) -> Self:  # fmt: skip
        if not real(margin, "margin") > 0:
            raise DomainError(f"margin: expected a number above 0, not {margin}")
        near, far = self._lift(positive, "positive"), self._lift(negative, "negative")
        if not self.ndim == near.ndim == far.ndim:
            raise ShapeError(
                f"{name}: expected equal numbers of axes, not anchor of shape "
                f"{format_shape(self.dims)}, positive of shape {format_shape(near.dims)} and "
                f"negative of shape {format_shape(far.dims)}"
            )
        close, apart = measure(self, near), measure(self, far)
        if swap:
            apart = apart.minimum(measure(near, far))
        return (margin + close - apart).clamp(min=0)._reduced(reduction)

    def multi_margin_loss(
        self, target: TensorBase, p: int = 1, margin: float = 1.0,
        weight: TensorBase | None = None, reduction: str = "mean",
    ) -> Self:  # fmt: skip
        """Return the margin loss of the score of each sample's class against all other scores.

        The loss of a sample is the sum of ``max(margin + other - score, 0) ** p`` over the other
        classes, divided by C.

        Parameters
        ----------
        target : Tensor of integers
            Class numbers of shape (N,) for scores (N, C), () for (C,).
        p : 1 or 2
            Power of each term.
        margin : float, default 1.0
            Least distance of the score above each other score at which the loss is 0.
        weight : Tensor, optional
            Weight of each class, of shape (C,).
        reduction : "mean", "sum" or "none"
            Reduction of the losses of the samples.

        Returns
        -------
        Tensor of floats
            Scalar, or the shape of `target` if `reduction` is "none"; same dtype.

        Raises
        ------
        DomainError
            `p` is neither 1 nor 2.
        ShapeError
            A shape does not match.
        DTypeError
            The scores are not floats, or `target` does not hold integers.
        IndexBoundsError
            At run time, if a class is outside of [0, C).

        Examples
        --------
        >>> krt.tensor([[0.5, 1.0, 0.0, 0.25]]).multi_margin_loss(krt.tensor([0])).item()
        0.6875
        """
        if p not in (1, 2):
            raise DomainError(f"p: expected 1 or 2, not {p!r}")
        if self.ndim not in (1, 2):
            raise ShapeError(f"multi_margin_loss: expected 1 or 2 axes, not {self.ndim}")
        x, axis = self._scores("multi_margin_loss")
        x = x.cast(x.dtype.accumulator)
        given = self._lift(target, "multi_margin_loss: target")
        own, labels, _ = self._chosen(x, given, axis, None, "multi_margin_loss")
        place = build.reshape(labels, build.keep_axes(x.shape, (axis,)))
        other = build.iota_along(x.shape, axis).ne(build.expand(place, x.shape))
        own = build.expand(build.reshape(own, build.keep_axes(x.shape, (axis,))), x.shape)
        lack = build.add(x.alu(Op.SUB, own), real(margin, "margin"))
        missed = build.zeros_like(lack).alu(Op.LT, lack)
        lack = build.where(missed.alu(Op.AND, other), lack, 0)
        lacks = self._of(lack if p == 1 else lack.alu(Op.MUL, lack))
        if weight is not None:
            table = self._class_weights(weight, self.dims[axis])
            factors = table[self._of(labels)]
            lacks = lacks * factors.unsqueeze(axis)
        return lacks.mean(axis)._reduced(reduction).cast(self.dtype)

    def multilabel_margin_loss(self, target: TensorBase, reduction: str = "mean") -> Self:
        """Return the margin loss of the scores of a sample's classes against all other scores.

        The loss of a sample is the sum of ``max(1 + other - score, 0)``, divided by C. The sum has
        a term for each pair of a score of the sample's classes and a score of other classes.

        Parameters
        ----------
        target : Tensor of integers
            Class numbers in the shape of the scores, (N, C) or (C,). Only those before the first -1
            count.
        reduction : "mean", "sum" or "none"
            Reduction of the losses of the samples.

        Returns
        -------
        Tensor of floats
            Scalar, or shape (N,) if `reduction` is "none"; same dtype.

        Raises
        ------
        ShapeError
            The shapes of scores and `target` differ.
        DTypeError
            The scores are not floats, or `target` does not hold integers.
        IndexBoundsError
            At run time, if a class that counts is outside of [0, C).

        Examples
        --------
        >>> scores = krt.tensor([[0.5, 1.0, 0.0, 0.25]])
        >>> scores.multilabel_margin_loss(krt.tensor([[1, 0, -1, -1]])).item()
        0.375
        """
        given = self._lift(target, "multilabel_margin_loss: target")
        if self.ndim not in (1, 2) or not build.same_shape(given.dims, self.dims):
            raise ShapeError(
                "multilabel_margin_loss: expected scores and classes of one shape, (N, C) or (C,), "
                f"not {format_shape(self.dims)} and {format_shape(given.dims)}"
            )
        x = self._wide("multilabel_margin_loss")
        if not given.dtype.is_int:
            raise DTypeError(
                f"target: expected integers, not {given.dtype.name}; cast them, as in target.long()"
            )
        labels = given.uop.cast(dt.int64)
        # The first -1 and all classes after it do not count.
        ends = self._of(labels.eq(build.full(-1, dt.int64, labels.shape)))
        gone = ends.cast(dt.int64).cumsum(-1).ne(0)
        counted = gone.uop.alu(Op.NOT)
        labels = build.where(counted, labels, 0)
        labels = check_labels(labels, x.shape[-1], "multilabel_margin_loss: target")
        rank = len(x.shape)
        square = (*x.shape, x.shape[-1])  # classes that count, and all
        wide_labels = build.expand(build.reshape(labels, (*labels.shape, 1)), square)
        wide_counted = build.expand(build.reshape(counted, (*labels.shape, 1)), square)
        hit = wide_labels.eq(build.iota_along(square, rank)).alu(Op.AND, wide_counted)
        each = build.expand(build.reshape(x, (*x.shape[:-1], 1, x.shape[-1])), square)
        own = build.reduce(build.where(hit, each, 0), Op.ADD, (rank,))
        is_class = build.reduce(hit, Op.MAX, (rank - 1,))
        other = build.expand(
            build.reshape(is_class.alu(Op.NOT), (*x.shape[:-1], 1, x.shape[-1])), square
        )
        own = build.expand(build.reshape(own, (*own.shape, 1)), square)
        lack = build.add(each.alu(Op.SUB, own), 1)
        used = wide_counted.alu(Op.AND, other).alu(Op.AND, build.zeros_like(lack).alu(Op.LT, lack))
        total = build.reduce(build.where(used, lack, 0), Op.ADD, (rank - 1, rank))
        size = build.broadcast_to(build.scalar(x.shape[-1], total.dtype), total.shape)
        losses = total.alu(Op.DIV, size)
        return self._of(losses)._reduced(reduction).cast(self.dtype)

    def multilabel_soft_margin_loss(
        self, target: Operand, weight: TensorBase | None = None, reduction: str = "mean"
    ) -> Self:
        """Return the mean over classes, the last axis, of the binary cross entropy of scores.

        Parameters
        ----------
        target : Tensor
            0 or 1 for each class, in the shape of the scores, (..., C).
        weight : Tensor, optional
            Factor of the loss of each class; it broadcasts.
        reduction : "mean", "sum" or "none"
            Reduction of the losses of the samples.

        Returns
        -------
        Tensor of floats
            Scalar, or shape (...) if `reduction` is "none"; promoted dtype.

        Raises
        ------
        ShapeError
            The shape of `target` differs.
        DTypeError
            The scores are not floats.

        Examples
        --------
        >>> scores = krt.tensor([[0.0, 0.0, 2.0]], dtype="float64")
        >>> scores.multilabel_soft_margin_loss(krt.tensor([[1, 0, 1]])).round(decimals=4).item()
        0.5044
        """
        x, y = self._pair(target, "multilabel_soft_margin_loss")
        losses = x.binary_cross_entropy_with_logits(y, weight, reduction="none")
        return losses.mean(-1)._reduced(reduction)

    # ---- sequences

    def ctc_loss(
        self, targets: TensorBase, input_lengths: Lengths, target_lengths: Lengths,
        blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
    ) -> Self:  # fmt: skip
        """Return the connectionist temporal classification loss of these log-probabilities.

        Each time step runs one or two kernels for all samples. The gradient is with respect to the
        log-probabilities. PyTorch's gradient also adds their probabilities, which a preceding
        log_softmax removes again.

        Parameters
        ----------
        targets : Tensor of integers
            Classes other than `blank`: of shape (N, S), or those of all samples concatenated.
        input_lengths, target_lengths : Tensor or sequence of int
            For each sample, the number of time steps and the number of classes in its target, of
            shape (N,).
        blank : int, default 0
            Class that separates classes.
        reduction : "mean", "sum" or "none"
            Reduction of the losses. The mean divides each loss by the length of its target.
        zero_infinity : bool, default False
            Whether a target that does not fit into its time steps has loss 0 instead of infinity.

        Returns
        -------
        Tensor of floats
            Scalar; if `reduction` is "none", shape (N,) for this tensor of shape (T, N, C), () for
            (T, C).

        Raises
        ------
        DomainError
            `blank` is not one of the classes.
        ShapeError
            A shape does not match.
        DTypeError
            The log-probabilities are not floats, or targets or lengths are not integers.
        IndexBoundsError
            At run time, if a class or a length is out of range.

        Notes
        -----
        From Graves et al., "Connectionist Temporal Classification: Labelling Unsegmented Sequence
        Data with Recurrent Neural Networks", 2006.

        Examples
        --------
        >>> log_probs = krt.zeros(3, 1, 2, dtype="float64").log_softmax(-1)
        >>> log_probs.ctc_loss(krt.tensor([[1]]), [3], [1]).round(decimals=4).item()
        0.2877
        """
        if self.ndim not in (2, 3):
            raise ShapeError(
                f"ctc_loss: expected shape (T, N, C) or (T, C), not {format_shape(self.dims)}"
            )
        x = self if self.ndim == 3 else self.unsqueeze(1)
        times, classes = (x._static_size(a, "ctc_loss") for a in (0, 2))
        count = x.dims[1]
        if times == 0:
            raise ShapeError("ctc_loss: expected at least one time step, not 0")
        number = integer(blank, "blank", least=0)
        if number >= classes:
            raise DomainError(f"blank: expected a class from 0 to {classes - 1}, not {number}")
        steps = x._lengths(input_lengths, count, times, "input_lengths")
        labels, lengths = x._labels(targets, target_lengths, count, classes, number)
        wide = x._wide("ctc_loss")
        losses = self._of(alignment_losses(wide, labels, steps, lengths, number))
        if zero_infinity:
            losses = losses.masked_fill(losses.eq(math.inf), 0)
        if reduction == "mean":
            losses = losses / self._of(lengths).clamp(min=1)
        out = losses._reduced(reduction).cast(self.dtype)
        return out.squeeze(0) if self.ndim == 2 and reduction == "none" else out

    def _lengths(self, lengths: Lengths, count: Dim, most: int, name: str) -> UOp:
        """Check lengths, one per sample from 0 to `most`, and return them."""
        given = self._lift(lengths, name)
        if not given.dtype.is_int:
            raise DTypeError(
                f"{name}: expected integers, not {given.dtype.name}; cast them, as in {name}.long()"
            )
        line = given.reshape(1) if given.ndim == 0 else given
        if line.ndim != 1 or not same(line.dims[0], count):
            raise ShapeError(
                f"{name}: expected one number per sample, of shape {format_shape((count,))}, not "
                f"{format_shape(given.dims)}"
            )
        return checked(line.uop, most + 1)

    def _labels(
        self, targets: TensorBase, lengths: Lengths, count: Dim, classes: int, blank: int
    ) -> tuple[UOp, UOp]:
        """Check and return classes of shape (N, S) and the lengths of the targets.

        Classes after the end of a target are blank.
        """
        given = self._lift(targets, "targets")
        if not given.dtype.is_int:
            raise DTypeError(
                f"targets: expected integers, not {given.dtype.name}; cast them, as in "
                    "targets.long()"
            )
        if given.ndim == 2 and not same(given.dims[0], count):
            raise ShapeError(
                f"targets: expected a row for each of {format_size(count)} samples, not shape "
                f"{format_shape(given.dims)}"
            )
        if given.ndim not in (1, 2):
            raise ShapeError(f"targets: expected 1 or 2 axes, not {given.ndim}")
        size = given._static_size(given.ndim - 1, "ctc_loss")
        held = self._lengths(lengths, count, size, "target_lengths")
        if given.ndim == 1:
            given = given._in_rows(self._of(held), count, size)
        place = build.iota_along(given.dims, 1)
        inside = place.alu(Op.LT, build.expand(build.reshape(held, (count, 1)), place.shape))
        labels = build.where(inside, given.uop.cast(dt.int64), blank)
        return check_labels(labels, classes, "ctc_loss: targets"), held

    def _in_rows(self, lengths: Self, count: Dim, size: int) -> Self:
        """Split concatenated targets into rows, each as long as all targets together."""
        starts = lengths.cumsum(0) - lengths
        place = self._of(build.iota_along((count, size), 1))
        at = starts.unsqueeze(1) + place
        inside = place < lengths.unsqueeze(1)
        return self[at.masked_fill(~inside, 0)] if size else self.reshape(1, 0).expand(count, 0)

    # ---- distributions

    def poisson_nll_loss(
        self, target: Operand, log_input: bool = True, full: bool = False, eps: float = 1e-8,
        reduction: str = "mean",
    ) -> Self:  # fmt: skip
        """Return the negative log-likelihood of the counts `target` under Poisson distributions.

        Parameters
        ----------
        target : Tensor
            Observed counts; shapes broadcast.
        log_input : bool, default True
            Whether this tensor holds the logarithms of the expected counts, not the counts
            themselves.
        full : bool, default False
            Whether to add Stirling's approximation of ``log(target!)`` for counts above 1.
        eps : float, default 1e-8
            Number added to expected counts before the logarithm.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

        Returns
        -------
        Tensor of floats
            Scalar, or the broadcast shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> krt.tensor([0.0, 0.0]).poisson_nll_loss(krt.tensor([1.0, 2.0])).item()
        1.0
        """
        x, y = self._together(target, "poisson_nll_loss")
        narrow = x.dtype
        x, y = x.cast(narrow.accumulator), y.cast(narrow.accumulator)
        losses = x.exp() - y * x if log_input else x - y * (x + real(eps, "eps")).log()
        if full:
            stirling = y * y.log() - y + 0.5 * (2 * math.pi * y).log()
            losses = losses + self._where(y > 1, stirling, 0)
        return losses._reduced(reduction).cast(narrow)

    def gaussian_nll_loss(
        self, target: Operand, var: Operand, full: bool = False, eps: float = 1e-6,
        reduction: str = "mean",
    ) -> Self:  # fmt: skip
        """Return the negative log-likelihood of `target` under normal distributions.

        Parameters
        ----------
        target : Tensor
            Observed values; shapes broadcast. This tensor holds the expected values.
        var : Tensor or number
            Variances, at least 0. The shape is that of this tensor; its last axis may be missing or
            have size 1. A variance below `eps` counts as `eps`; the gradient passes unchanged.
        full : bool, default False
            Whether to add ``log(2 * pi) / 2``.
        eps : float, default 1e-6
            Least variance, above 0.
        reduction : "mean", "sum" or "none"
            Reduction of the losses.

        Returns
        -------
        Tensor of floats
            Scalar, or the broadcast shape if `reduction` is "none"; promoted dtype.

        Raises
        ------
        DomainError
            `eps` is not above 0. Or, at run time, a variance is below 0.
        ShapeError
            The shape of `var` does not match.
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> x, y = krt.tensor([[0.0, 0.0], [1.0, 2.0]])
        >>> x.gaussian_nll_loss(y, 1.0, reduction="none").tolist()
        [0.5, 2.0]
        """
        if not real(eps, "eps") > 0:
            raise DomainError(f"eps: expected a number above 0, not {eps}")
        x, y = self._together(target, "gaussian_nll_loss")
        spread = self._variances(var, x)
        held = self._of(at_least(spread.uop, eps))
        losses = (held.log() + (x - y).square() / held) * 0.5
        if full:
            losses = losses + 0.5 * math.log(2 * math.pi)

        out = losses._reduced(reduction)
        # As in PyTorch, NaN is no error.
        below = self._of(build.where((spread < 0).uop, spread.detach().uop, 0))
        if reduction == "none":
            return data_checks.if_each(out, below.expand(out.dims), 0, math.inf, "var")
        return data_checks.if_all(out, below, 0, math.inf, "var")

    def _variances(self, var: Operand, x: Self) -> Self:
        spread = self._lift(var, "var", like=True)
        spread = spread.cast(dt.promote(x.dtype, spread.dtype))
        if spread.ndim == 0 or build.same_shape(spread.dims, self.dims):
            return spread
        if build.same_shape(spread.dims, self.dims[:-1]):
            return spread.unsqueeze(-1)
        if spread.ndim != self.ndim or not broadcasts_to(spread.dims, self.dims):
            raise ShapeError(
                f"var: expected shape {format_shape(self.dims)}, with or without its last axis, "
                f"which may have size 1, not {format_shape(spread.dims)}"
            )
        return spread


#: Added to squared norms, as in PyTorch.
_COSINE_EPS = 1e-12
