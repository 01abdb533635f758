"""Loss layers.

PyTorch's deprecated `size_average` and `reduce` do not exist; the arguments that follow them in
PyTorch are keyword-only here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kernelrt.errors import DTypeError, ShapeError
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
            raise ShapeError(f"reduction: expected one of {known}, not {reduction!r}")
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
        """Return the loss of `input` against `target`."""
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
    """Mean squared error; see ``Tensor.mse_loss``."""

    _method = "mse_loss"


class L1Loss(_Pair):
    """Mean absolute error; see ``Tensor.l1_loss``."""

    _method = "l1_loss"


class SmoothL1Loss(_Pair):
    """L1 loss, but quadratic for errors below `beta`; see ``Tensor.smooth_l1_loss``.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    beta : float
        Error at which the loss changes from quadratic to linear.
    """

    _method, _arguments = "smooth_l1_loss", ("beta",)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.beta = real(beta, "beta")


class HuberLoss(_Pair):
    """:class:`SmoothL1Loss` times `delta`: the Huber loss; see ``Tensor.huber_loss``.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    delta : float
        Error at which the loss changes from quadratic to linear.
    """

    _method, _arguments = "huber_loss", ("delta",)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = real(delta, "delta")


class KLDivLoss(_Pair):
    """Kullback-Leibler divergence; the input holds log-probabilities; see ``Tensor.kl_div``.

    Parameters
    ----------
    reduction : "mean", "batchmean", "sum" or "none"
        Reduction of the element losses; "batchmean" divides their sum by the batch size.
    log_target : bool
        Whether the target holds log-probabilities, too.
    """

    _method, _arguments = "kl_div", ("log_target",)
    _reductions = ("mean", "batchmean", "sum", "none")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.log_target = log_target


class BCELoss(_Weighted):
    """Binary cross entropy of probabilities; see ``Tensor.binary_cross_entropy``."""

    _method = "binary_cross_entropy"


class BCEWithLogitsLoss(_Weighted):
    """Binary cross entropy of logits; see ``Tensor.binary_cross_entropy_with_logits``.

    Parameters
    ----------
    weight : Tensor, optional
        Factor of each element's loss; part of the state.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    pos_weight : Tensor, optional
        Factor of the losses whose target is 1; part of the state.
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
    """Negative log-likelihood of the target classes; see ``Tensor.nll_loss``.

    Parameters
    ----------
    weight : Tensor, optional
        Weight of each class; part of the state.
    ignore_index : int
        Class index whose elements are ignored.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _method = "nll_loss"
    _arguments: ClassVar[tuple[str, ...]] = ("weight", "ignore_index")

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = integer(ignore_index, "ignore_index")


class CrossEntropyLoss(NLLLoss):
    """Cross entropy between logits and target classes; see ``Tensor.cross_entropy``.

    Parameters
    ----------
    weight : Tensor, optional
        Weight of each class; part of the state.
    ignore_index : int
        Class index whose elements are ignored.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    label_smoothing : float
        Part of each target that is spread evenly over all classes.
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
    """Logistic loss ``log(1 + exp(-target * x))``; see ``Tensor.soft_margin_loss``."""

    _method = "soft_margin_loss"


class MultiLabelMarginLoss(_Pair):
    """Multi-label hinge loss; see ``Tensor.multilabel_margin_loss``."""

    _method = "multilabel_margin_loss"


class MultiLabelSoftMarginLoss(_Weighted):
    """Binary cross entropy of every class; see ``Tensor.multilabel_soft_margin_loss``."""

    _method = "multilabel_soft_margin_loss"


class MultiMarginLoss(_Weighted):
    """Multi-class hinge loss, target class against others; see ``Tensor.multi_margin_loss``.

    Parameters
    ----------
    p : 1 or 2
        Power to which margin violations are raised.
    margin : float
        Amount by which the target class's score has to exceed the other scores.
    weight : Tensor, optional
        Weight of each class; part of the state.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _method, _arguments = "multi_margin_loss", ("p", "margin", "weight")

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, reduction=reduction)
        if p not in (1, 2):
            raise ShapeError(f"p: expected 1 or 2, not {p!r}")
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
    """Hinge loss on distances of similar (1) or dissimilar (-1) pairs.

    See ``Tensor.hinge_embedding_loss``.
    """

    _method = "hinge_embedding_loss"

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(margin, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the distances `input`; `target` is 1 (similar) or -1 (dissimilar)."""
        return self._loss(input, target)


class MarginRankingLoss(_Margin):
    """Loss on the order of two inputs; see ``Tensor.margin_ranking_loss``."""

    _method = "margin_ranking_loss"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss; `target` is 1 where `input1` should be greater, and -1 otherwise."""
        return self._loss(input1, input2, target)


class CosineEmbeddingLoss(_Margin):
    """Cosine loss of similar (1) or dissimilar (-1) pairs; see ``Tensor.cosine_embedding_loss``."""

    _method = "cosine_embedding_loss"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the rows of `input1` and `input2`; `target` is 1 or -1."""
        return self._loss(input1, input2, target)


class TripletMarginLoss(_Margin):
    """Triplet loss: the anchor should be nearer to the positive than to the negative example.

    See ``Tensor.triplet_margin_loss``.

    Parameters
    ----------
    margin : float
        Amount by which the negative distance has to exceed the positive distance.
    p : float
        Order of the norm that measures distances.
    eps : float
        Added to the differences of elements.
    swap : bool
        Whether the positive-negative distance replaces a larger anchor-negative distance.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _method, _arguments = "triplet_margin_loss", ("margin", "p", "eps", "swap")

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(margin, reduction=reduction)
        if not self.margin > 0:
            raise ShapeError(f"margin: expected a number above 0, not {margin}")
        self.p, self.eps, self.swap = real(p, "p"), real(eps, "eps"), swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss of three tensors of shape (batch, width)."""
        return self._loss(anchor, positive, negative)


class TripletMarginWithDistanceLoss(_Margin):
    """:class:`TripletMarginLoss` with a custom distance.

    Parameters
    ----------
    distance_function : callable, optional
        Function that returns the distances of two tensors; ``PairwiseDistance()`` by default.
    margin : float
        Amount by which the negative distance has to exceed the positive distance.
    swap : bool
        Whether the positive-negative distance replaces a larger anchor-negative distance.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
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
            raise ShapeError(f"margin: expected a number above 0, not {margin}")
        self.distance_function, self.swap = distance_function, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss of the distances between `anchor` and the two others."""
        return self._loss(anchor, positive, negative)


class PoissonNLLLoss(_Pair):
    """Negative log-likelihood of Poisson-distributed counts; see ``Tensor.poisson_nll_loss``.

    Parameters
    ----------
    log_input : bool
        Whether the input holds logarithms of the rates.
    full : bool
        Whether to add the term that does not depend on the rates (Stirling's approximation).
    eps : float
        Added to the rates if `log_input` is false.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _method, _arguments = "poisson_nll_loss", ("log_input", "full", "eps")

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, real(eps, "eps")

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of two tensors of the same shape."""
        return super().forward(log_input, target)


class GaussianNLLLoss(_Loss):
    """Negative log-likelihood of normal distributions; see ``Tensor.gaussian_nll_loss``.

    Parameters
    ----------
    full : bool
        Whether to add the constant term of the normal distribution.
    eps : float
        Lower bound of the variances.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    """

    _method, _arguments = "gaussian_nll_loss", ("full", "eps")

    def __init__(
        self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, real(eps, "eps")

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Return the loss of normal distributions with means `input` and variances `var`."""
        return self._loss(input, target, var)


class CTCLoss(_Loss):
    """Connectionist temporal classification loss; see ``Tensor.ctc_loss``.

    Parameters
    ----------
    blank : int
        Class index of the blank label.
    reduction : "mean", "sum" or "none"
        Reduction of the element losses.
    zero_infinity : bool
        Whether infinite losses (no path is possible) and their gradients become 0.
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
        """Return the loss of log-probabilities of shape (steps, batch, classes)."""
        return self._loss(log_probs, targets, input_lengths, target_lengths)
