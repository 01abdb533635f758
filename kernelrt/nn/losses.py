"""Loss layers.

The losses do not have PyTorch's deprecated arguments `size_average` and `reduce`. The arguments
that follow these in PyTorch must be passed by keyword here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.errors import DomainError, DTypeError
from kernelrt.nn.module import Module
from kernelrt.tensor.nodes.arguments import integer, real

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(Module):
    """Base of losses that call a method of Tensor; its extra arguments are attributes.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _method: ClassVar[str]
    _arguments: ClassVar[tuple[str, ...]] = ()
    _reductions: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")

    def __init__(self, *, reduction: str = "mean") -> None:
        if reduction not in self._reductions:
            known = ", ".join(map(repr, self._reductions))
            raise DomainError(f"reduction: expected one of {known}, not {reduction!r}")
        self.reduction = reduction

    def _loss(self, x: Tensor, *others: Any) -> Tensor:
        given = {name: getattr(self, name) for name in (*self._arguments, "reduction")}
        loss: Tensor = getattr(x, self._method)(*others, **given)
        return loss

    def extra_repr(self) -> str:
        """Return the reduction and the arguments that are not tensors as text."""
        shown = (n for n in (*self._arguments, "reduction") if not n.endswith("weight"))
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)


class _Pair(_Loss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Map input and target to the loss; the docstring of the class has the shapes."""
        return self._loss(input, target)


class _Weighted(_Pair):
    """Base of losses with a weight.

    Parameters
    ----------
    weight : Tensor, optional
        Factor of each element's loss; part of the state.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _arguments: ClassVar[tuple[str, ...]] = ("weight",)
    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Pair):
    """Compute the mean squared error; see ``Tensor.mse_loss``.

    Input and target have the same shape ``(*)``. The loss has shape ``()``, or ``(*)`` with the
    reduction "none".

    Parameters
    ----------
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the squared differences.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.MSELoss()
    >>> loss(krt.tensor([1.0, 2.0]), krt.tensor([1.0, 4.0])).item()
    2.0
    """

    _method = "mse_loss"


class L1Loss(_Pair):
    """Compute the mean absolute error; see ``Tensor.l1_loss``.

    Input and target have the same shape ``(*)``. The loss has shape ``()``, or ``(*)`` with the
    reduction "none".

    Parameters
    ----------
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the absolute differences.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.L1Loss()
    >>> loss(krt.tensor([1.0, 2.0]), krt.tensor([1.0, 4.0])).item()
    1.0
    """

    _method = "l1_loss"


class SmoothL1Loss(_Pair):
    """Compute the L1 loss, but quadratic for errors below `beta`; see ``Tensor.smooth_l1_loss``.

    Input and target have the same shape ``(*)``. The loss has shape ``()``, or ``(*)`` with the
    reduction "none".

    Parameters
    ----------
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.
    beta : float, default 1.0
        Error at which the loss changes from quadratic to linear.

    Raises
    ------
    DomainError
        `reduction` is unknown, or `beta` is negative.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.SmoothL1Loss(reduction="none")
    >>> loss(krt.tensor([0.5, 3.0]), krt.tensor([0.0, 0.0])).tolist()
    [0.125, 2.5]
    """

    _method, _arguments = "smooth_l1_loss", ("beta",)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.beta = real(beta, "beta")


class HuberLoss(_Pair):
    """Compute the Huber loss, :class:`SmoothL1Loss` times `delta`; see ``Tensor.huber_loss``.

    Input and target have the same shape ``(*)``. The loss has shape ``()``, or ``(*)`` with the
    reduction "none".

    Parameters
    ----------
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.
    delta : float, default 1.0
        Error, above 0, at which the loss changes from quadratic to linear.

    Raises
    ------
    DomainError
        `reduction` is unknown, or `delta` is not above 0.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.HuberLoss(reduction="none", delta=2.0)
    >>> loss(krt.tensor([1.0, 3.0]), krt.tensor([0.0, 0.0])).tolist()
    [0.5, 4.0]
    """

    _method, _arguments = "huber_loss", ("delta",)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = real(delta, "delta")


class KLDivLoss(_Pair):
    """Compute the Kullback-Leibler divergence of the target from log-probabilities.

    See ``Tensor.kl_div``. Input and target have the same shape ``(*)``. The loss has shape ``()``,
    or ``(*)`` with the reduction "none". The reduction "mean" divides the sum by the number of
    elements. The reduction "batchmean" gives the divergence by its definition, averaged over the
    samples.

    Parameters
    ----------
    reduction : "mean", "batchmean", "sum" or "none", default "mean"
        Reduction of the element losses; "batchmean" divides their sum by the batch size.
    log_target : bool, default False
        Whether the target holds log-probabilities, too.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.KLDivLoss(reduction="batchmean")
    >>> probabilities = krt.tensor([[0.5, 0.5]])
    >>> round(loss(probabilities.log(), krt.tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """

    _method, _arguments = "kl_div", ("log_target",)
    _reductions = ("mean", "batchmean", "sum", "none")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.log_target = log_target


class BCELoss(_Weighted):
    """Compute the binary cross entropy of probabilities; see ``Tensor.binary_cross_entropy``.

    Input and target are probabilities of the same shape ``(*)``. The loss has shape ``()``, or
    ``(*)`` with the reduction "none". :class:`BCEWithLogitsLoss` is more precise.

    Parameters
    ----------
    weight : Tensor, optional
        Factor of each element's loss, in a shape that broadcasts to ``(*)``; part of the state.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.

    Raises
    ------
    DomainError
        `reduction` is unknown; at run time: the input or the target holds a number outside of
        [0, 1].
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.BCELoss()
    >>> round(loss(krt.tensor([0.5]), krt.tensor([1.0])).item(), 4)
    0.6931
    """

    _method = "binary_cross_entropy"


class BCEWithLogitsLoss(_Weighted):
    """Compute the binary cross entropy of the sigmoid of the input.

    See ``Tensor.binary_cross_entropy_with_logits``. The input holds logits and the target
    probabilities, both of shape ``(*)``. The loss has shape ``()``, or ``(*)`` with the reduction
    "none".

    Parameters
    ----------
    weight : Tensor, optional
        Factor of each element's loss, in a shape that broadcasts to ``(*)``; part of the state.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.
    pos_weight : Tensor, optional
        Factor of the losses whose target is 1, in a shape that broadcasts to ``(*)``; part of the
        state.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.BCEWithLogitsLoss(pos_weight=krt.tensor(2.0))
    >>> round(loss(krt.tensor([0.0]), krt.tensor([1.0])).item(), 4)
    1.3863
    """

    _method, _arguments = "binary_cross_entropy_with_logits", ("weight", "pos_weight")
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(weight, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)


class NLLLoss(_Weighted):
    """Compute the negative log-likelihood of the target classes; see ``Tensor.nll_loss``.

    The input holds log-probabilities of shape ``(batch, classes, *)`` or ``(classes,)``, and the
    target class numbers of shape ``(batch, *)`` or ``()``. The loss has shape ``()``, or that of
    the target with the reduction "none".

    Parameters
    ----------
    weight : Tensor, shape (classes,), optional
        Weight of each class; part of the state. The mean divides by the sum of the weights.
    ignore_index : int, default -100
        Class number whose samples are ignored.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: target or weight do not fit the scores.
    IndexBoundsError
        At run time, if a class is out of range and is not `ignore_index`.

    Examples
    --------
    >>> loss = krt.nn.NLLLoss()
    >>> loss(krt.tensor([[-1.0, -2.0], [-3.0, -4.0]]), krt.tensor([0, 1])).item()
    2.5
    """

    _method = "nll_loss"
    _arguments: ClassVar[tuple[str, ...]] = ("weight", "ignore_index")

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = integer(ignore_index, "ignore_index")


class CrossEntropyLoss(NLLLoss):
    """Compute the cross entropy between logits and target classes; see ``Tensor.cross_entropy``.

    The input holds logits of shape ``(batch, classes, *)`` or ``(classes,)``. The target holds
    class numbers of shape ``(batch, *)`` or ``()``, or the probability of each class in the shape
    of the input. The loss has shape ``()``, or ``(batch, *)`` with the reduction "none".

    Parameters
    ----------
    weight : Tensor, shape (classes,), optional
        Weight of each class; part of the state. For targets of class numbers, the mean divides by
        the sum of the weights.
    ignore_index : int, default -100
        Class number whose samples are ignored.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples.
    label_smoothing : float, default 0.0
        Fraction of each target, from 0 to 1, that is distributed evenly over all classes.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: target or weight do not fit the scores.
    DTypeError
        In a call: a target of class numbers holds floats.
    IndexBoundsError
        At run time, if a class is out of range and is not `ignore_index`.

    Examples
    --------
    >>> loss = krt.nn.CrossEntropyLoss()
    >>> logits = krt.tensor([[0.0, 0.0], [0.0, 0.0]])
    >>> round(loss(logits, krt.tensor([0, 1])).item(), 4)
    0.6931
    """

    _method = "cross_entropy"
    _arguments = ("weight", "ignore_index", "label_smoothing")

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction)
        self.label_smoothing = real(label_smoothing, "label_smoothing")


class SoftMarginLoss(_Pair):
    """Compute the logistic loss ``log(1 + exp(-target * x))``; see ``Tensor.soft_margin_loss``.

    Input and target have the same shape ``(*)``; the target holds -1 and 1. The loss has shape
    ``()``, or ``(*)`` with the reduction "none".

    Parameters
    ----------
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.SoftMarginLoss()
    >>> round(loss(krt.tensor([0.0, 0.0]), krt.tensor([1.0, -1.0])).item(), 4)
    0.6931
    """

    _method = "soft_margin_loss"


class MultiLabelMarginLoss(_Pair):
    """Compute the multi-label hinge loss; see ``Tensor.multilabel_margin_loss``.

    The input holds scores of shape ``(batch, classes)`` or ``(classes,)``. The target, of the same
    shape, lists the classes of each sample; a -1 ends the list. The loss has shape ``()``, or
    ``(batch,)`` with the reduction "none".

    Parameters
    ----------
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes of input and target differ.
    IndexBoundsError
        At run time, if a class is out of range.

    Examples
    --------
    >>> loss = krt.nn.MultiLabelMarginLoss()
    >>> scores = krt.tensor([1.0, 0.0, 2.0, 0.5])
    >>> loss(scores, krt.tensor([0, -1, 0, 0])).item()
    0.625
    """

    _method = "multilabel_margin_loss"


class MultiLabelSoftMarginLoss(_Weighted):
    """Compute the mean binary cross entropy over the classes of each sample.

    See ``Tensor.multilabel_soft_margin_loss``. The input holds logits and the target 0 and 1, both
    of shape ``(*, classes)``. The loss has shape ``()``, or ``(*)`` with the reduction "none".

    Parameters
    ----------
    weight : Tensor, shape (classes,), optional
        Weight of each class; part of the state.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes of input and target differ.

    Examples
    --------
    >>> loss = krt.nn.MultiLabelSoftMarginLoss()
    >>> round(loss(krt.zeros(1, 3), krt.tensor([[1.0, 0.0, 1.0]])).item(), 4)
    0.6931
    """

    _method = "multilabel_soft_margin_loss"


class MultiMarginLoss(_Weighted):
    """Compute the hinge loss of the target class's score against the other scores.

    See ``Tensor.multi_margin_loss``. The input holds scores of shape ``(batch, classes)`` or
    ``(classes,)``, and the target class numbers of shape ``(batch,)`` or ``()``. The loss has shape
    ``()``, or that of the target with the reduction "none".

    Parameters
    ----------
    p : 1 or 2, default 1
        Power to which margin violations are raised.
    margin : float, default 1.0
        Amount by which the target class's score has to exceed the other scores.
    weight : Tensor, shape (classes,), optional
        Weight of each class; part of the state.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples.

    Raises
    ------
    DomainError
        `p` is neither 1 nor 2, or `reduction` is unknown.
    ShapeError
        In a call: the target does not fit the scores.
    IndexBoundsError
        At run time, if a class is out of range.

    Examples
    --------
    >>> loss = krt.nn.MultiMarginLoss()
    >>> loss(krt.tensor([[1.0, 0.0, 2.0, 0.5]]), krt.tensor([0])).item()
    0.625
    """

    _method, _arguments = "multi_margin_loss", ("p", "margin", "weight")

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, reduction=reduction)
        if p not in (1, 2):
            raise DomainError(f"p: expected 1 or 2, not {p!r}")
        self.p, self.margin = p, real(margin, "margin")


class _Margin(_Loss):
    """Base of losses with a margin.

    Parameters
    ----------
    margin : float
        The margin.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _arguments: ClassVar[tuple[str, ...]] = ("margin",)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = real(margin, "margin")


class HingeEmbeddingLoss(_Margin):
    """Compute the hinge loss of distances of similar (1) or dissimilar (-1) pairs.

    See ``Tensor.hinge_embedding_loss``. Input and target have shape ``(*)``. The loss has shape
    ``()``, or ``(*)`` with the reduction "none".

    Parameters
    ----------
    margin : float, default 1.0
        Distance from which a dissimilar pair has no loss.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes do not broadcast.

    Examples
    --------
    >>> loss = krt.nn.HingeEmbeddingLoss(reduction="none")
    >>> loss(krt.tensor([0.5, 0.25]), krt.tensor([1.0, -1.0])).tolist()
    [0.5, 0.75]
    """

    _method = "hinge_embedding_loss"

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(margin, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Map distances and a target of shape ``(*)`` to ``()``, or to ``(*)`` unreduced."""
        return self._loss(input, target)


class MarginRankingLoss(_Margin):
    """Compute the ranking loss ``max(-target * (input1 - input2) + margin, 0)``.

    See ``Tensor.margin_ranking_loss``. Both inputs and the target have shapes that broadcast to
    ``(*)``. The loss has shape ``()``, or ``(*)`` with the reduction "none".

    Parameters
    ----------
    margin : float, default 0.0
        Amount by which the greater input has to exceed the other one.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes do not broadcast.

    Examples
    --------
    >>> loss = krt.nn.MarginRankingLoss(reduction="none")
    >>> loss(krt.tensor([1.0, 2.0]), krt.tensor([2.0, 1.0]), krt.tensor([1.0, 1.0])).tolist()
    [1.0, 0.0]
    """

    _method = "margin_ranking_loss"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Map two inputs and a target of shape ``(*)`` to ``()``, or to ``(*)`` unreduced."""
        return self._loss(input1, input2, target)


class CosineEmbeddingLoss(_Margin):
    """Compute the cosine loss of similar (1) or dissimilar (-1) pairs of vectors.

    See ``Tensor.cosine_embedding_loss``. Both inputs have shape ``(batch, features)`` or
    ``(features,)``, and the target has shape ``(batch,)`` or ``()``. The loss has shape ``()``, or
    that of the target with the reduction "none".

    Parameters
    ----------
    margin : float, default 0.0
        Cosine up to which a dissimilar pair has no loss.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the pairs.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes do not broadcast.

    Examples
    --------
    >>> loss = krt.nn.CosineEmbeddingLoss(reduction="none")
    >>> a, b = krt.tensor([[2.0, 0.0], [2.0, 0.0]]), krt.tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> loss(a, b, krt.tensor([1, -1])).tolist()
    [1.0, 1.0]
    """

    _method = "cosine_embedding_loss"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Map ``(batch, features)`` twice and a target ``(batch,)`` to ``()`` or ``(batch,)``."""
        return self._loss(input1, input2, target)


class TripletMarginLoss(_Margin):
    """Compute the triplet loss: the anchor should be nearer to the positive than to the negative.

    See ``Tensor.triplet_margin_loss``. The three inputs have shapes that broadcast to
    ``(*, features)``. The loss has shape ``()``, or ``(*)`` with the reduction "none".

    Parameters
    ----------
    margin : float, default 1.0
        Amount, above 0, by which the negative distance has to exceed the positive distance.
    p : float, default 2.0
        Order of the norm that measures distances.
    eps : float, default 1e-6
        Added to the differences of elements.
    swap : bool, default False
        Whether to use the distance from positive to negative where it is smaller than that from
        anchor to negative.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples.

    Raises
    ------
    DomainError
        `margin` is not above 0, or `reduction` is unknown.
    ShapeError
        In a call: the shapes do not broadcast.

    Examples
    --------
    >>> loss = krt.nn.TripletMarginLoss()
    >>> anchor, positive, negative = krt.zeros(1, 1), krt.ones(1, 1), krt.full((1, 1), 1.5)
    >>> round(loss(anchor, positive, negative).item(), 3)
    0.5
    """

    _method, _arguments = "triplet_margin_loss", ("margin", "p", "eps", "swap")

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(margin, reduction=reduction)
        if not self.margin > 0:
            raise DomainError(f"margin: expected a number above 0, not {margin}")
        self.p, self.eps, self.swap = real(p, "p"), real(eps, "eps"), swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Map three tensors of shape ``(*, features)`` to ``()``, or to ``(*)`` unreduced."""
        return self._loss(anchor, positive, negative)


class TripletMarginWithDistanceLoss(_Margin):
    """Compute the :class:`TripletMarginLoss` with a custom distance.

    The three inputs have the shape that `distance_function` takes. The loss has shape ``()``, or
    that of the distances with the reduction "none".

    Parameters
    ----------
    distance_function : callable, optional
        Function that returns the distances of two tensors; ``PairwiseDistance()`` by default.
    margin : float, default 1.0
        Amount, above 0, by which the negative distance has to exceed the positive distance.
    swap : bool, default False
        Whether to use the distance from positive to negative where it is smaller than that from
        anchor to negative.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples.

    Raises
    ------
    DomainError
        `margin` is not above 0, or `reduction` is unknown.

    Examples
    --------
    >>> loss = krt.nn.TripletMarginWithDistanceLoss(
    ...     distance_function=lambda a, b: (a - b).abs().amax(-1)
    ... )
    >>> loss(krt.zeros(1, 2), krt.ones(1, 2), krt.tensor([[0.5, 1.5]])).item()
    0.5
    """

    _method = "triplet_margin_with_distance_loss"
    _arguments = ("distance_function", "margin", "swap")

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0, swap: bool = False, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(margin, reduction=reduction)
        if distance_function is not None and not callable(distance_function):
            raise DTypeError(
                "distance_function: expected a function of two tensors, not "
                f"{type(distance_function).__name__}"
            )
        if not self.margin > 0:
            raise DomainError(f"margin: expected a number above 0, not {margin}")
        self.distance_function, self.swap = distance_function, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Map three tensors of shape ``(batch, *)`` to ``()``, or to ``(batch,)`` unreduced."""
        return self._loss(anchor, positive, negative)


class PoissonNLLLoss(_Pair):
    """Compute the negative log-likelihood of Poisson-distributed counts.

    See ``Tensor.poisson_nll_loss``. Input and target have shapes that broadcast to ``(*)``. The
    loss has shape ``()``, or ``(*)`` with the reduction "none".

    Parameters
    ----------
    log_input : bool, default True
        Whether the input holds logarithms of the rates.
    full : bool, default False
        Whether to add the term that does not depend on the rates (Stirling's approximation).
    eps : float, default 1e-8
        Added to the rates if `log_input` is false.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes do not broadcast.

    Examples
    --------
    >>> loss = krt.nn.PoissonNLLLoss(log_input=False, reduction="none")
    >>> loss(krt.tensor([1.0, 3.0]), krt.tensor([2.0, 0.0])).tolist()
    [1.0, 3.0]
    """

    _method, _arguments = "poisson_nll_loss", ("log_input", "full", "eps")

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, real(eps, "eps")

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """Map ``(*)`` and a target ``(*)`` to ``()``, or to ``(*)`` without reduction."""
        return super().forward(log_input, target)


class GaussianNLLLoss(_Loss):
    """Compute the negative log-likelihood of normal distributions.

    See ``Tensor.gaussian_nll_loss``. The means and the target have the same shape ``(*, n)``; the
    variances have shape ``(*, n)``, ``(*, 1)`` or ``(*)``, or are a number. The loss has shape
    ``()``, or ``(*, n)`` with the reduction "none".

    Parameters
    ----------
    full : bool, default False
        Whether to add the constant term of the normal distribution.
    eps : float, default 1e-6
        Lower bound of the variances.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the element losses.

    Raises
    ------
    DomainError
        `reduction` is unknown, or `eps` is not above 0; at run time: a variance is below 0.
    ShapeError
        In a call: the shapes do not broadcast.

    Examples
    --------
    >>> loss = krt.nn.GaussianNLLLoss(reduction="none")
    >>> loss(krt.tensor([1.0, 2.0]), krt.tensor([3.0, 2.0]), 1.0).tolist()
    [2.0, 0.0]
    """

    _method, _arguments = "gaussian_nll_loss", ("full", "eps")

    def __init__(
        self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, real(eps, "eps")

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Map means and targets ``(*, n)`` and variances to ``()``, or to ``(*, n)`` unreduced."""
        return self._loss(input, target, var)


class CTCLoss(_Loss):
    """Compute the connectionist temporal classification loss; see ``Tensor.ctc_loss``.

    The log-probabilities have shape ``(steps, batch, classes)``. The targets have shape
    ``(batch, length)``, or one axis if they are concatenated. Lengths have shape ``(batch,)``. The
    loss has shape ``()``, or ``(batch,)`` with the reduction "none". Without a batch, the axes of
    size batch are missing.

    Parameters
    ----------
    blank : int, default 0
        Class number of the blank label.
    reduction : "mean", "sum" or "none", default "mean"
        Reduction of the losses of the samples. The mean first divides each loss by the length of
        its target.
    zero_infinity : bool, default False
        Whether infinite losses, which occur if no path is possible, and their gradients become 0.

    Raises
    ------
    DomainError
        `reduction` is unknown.
    ShapeError
        In a call: the shapes do not fit.
    IndexBoundsError
        At run time, if a class or a length is out of range.

    Notes
    -----
    Graves et al., "Connectionist temporal classification", 2006.

    Examples
    --------
    Three of the four labelings of two steps give the target [1], so its probability is 3/4:

    >>> loss = krt.nn.CTCLoss()
    >>> log_probs = krt.full((2, 1, 2), 0.5).log()
    >>> round((-loss(log_probs, krt.tensor([[1]]), [2], [1])).exp().item(), 4)
    0.75
    """

    _method, _arguments = "ctc_loss", ("blank", "zero_infinity")

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = integer(blank, "blank"), zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """Map log-probabilities ``(steps, batch, classes)`` to ``()``, or to ``(batch,)``."""
        return self._loss(log_probs, targets, input_lengths, target_lengths)
