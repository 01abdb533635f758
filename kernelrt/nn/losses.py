"""Loss layers.

PyTorch's deprecated `size_average` and `reduce` are not there; what stands behind them there is
given by name.
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
    """A method of Tensor whose arguments, but for the first ones, are attributes.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
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
        """Give the arguments that are no tensors, and the reduction."""
        shown = (n for n in (*self._arguments, "reduction") if not n.endswith("weight"))
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)


class _Pair(_Loss):
    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Compare `x` with `target`."""
        return self._loss(input, target)


class _Weighted(_Pair):
    """One that weighs.

    Parameters
    ----------
    weight : Tensor, optional
        Multiplies the losses of elements; a part of the state.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    """

    _arguments: ClassVar[tuple[str, ...]] = ("weight",)
    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Pair):
    """Squared differences; see ``Tensor.mse_loss``."""

    _method = "mse_loss"


class L1Loss(_Pair):
    """Absolute differences; see ``Tensor.l1_loss``."""

    _method = "l1_loss"


class SmoothL1Loss(_Pair):
    """Absolute differences that are squares up to `beta`; see ``Tensor.smooth_l1_loss``.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    beta : float
        Where the two meet.
    """

    _method, _arguments = "smooth_l1_loss", ("beta",)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.beta = real(beta, "beta")


class HuberLoss(_Pair):
    """:class:`SmoothL1Loss` times `delta`; see ``Tensor.huber_loss``.

    Parameters
    ----------
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    delta : float
        Where squares and absolute differences meet.
    """

    _method, _arguments = "huber_loss", ("delta",)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = real(delta, "delta")


class KLDivLoss(_Pair):
    """Divergence of distributions, given as logarithms; see ``Tensor.kl_div``.

    Parameters
    ----------
    reduction : "mean", "batchmean", "sum" or "none"
        What becomes of the losses; "batchmean" divides their sum by the first size.
    log_target : bool
        Whether the target is given as logarithms, too.
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
    """Binary cross entropy of scores; see ``Tensor.binary_cross_entropy_with_logits``.

    Parameters
    ----------
    weight : Tensor, optional
        Multiplies the losses of elements; a part of the state.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    pos_weight : Tensor, optional
        Multiplies the losses of targets that are 1; a part of the state.
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
    """Negative log-probability of the right classes; see ``Tensor.nll_loss``.

    Parameters
    ----------
    weight : Tensor, optional
        A weight for each class; a part of the state.
    ignore_index : int
        A class whose elements do not count.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    """

    _method = "nll_loss"
    _arguments: ClassVar[tuple[str, ...]] = ("weight", "ignore_index")

    def __init__(
        self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = integer(ignore_index, "ignore_index")


class CrossEntropyLoss(NLLLoss):
    """Negative log-probability of the right classes, of scores; see ``Tensor.cross_entropy``.

    Parameters
    ----------
    weight : Tensor, optional
        A weight for each class; a part of the state.
    ignore_index : int
        A class whose elements do not count.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    label_smoothing : float
        How much of each target is shared among all classes.
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
    """``log(1 + exp(-target * x))``; see ``Tensor.soft_margin_loss``."""

    _method = "soft_margin_loss"


class MultiLabelMarginLoss(_Pair):
    """Margins between classes that hold and others; see ``Tensor.multilabel_margin_loss``."""

    _method = "multilabel_margin_loss"


class MultiLabelSoftMarginLoss(_Weighted):
    """Binary cross entropy of every class; see ``Tensor.multilabel_soft_margin_loss``."""

    _method = "multilabel_soft_margin_loss"


class MultiMarginLoss(_Weighted):
    """Margins between the right class and the others; see ``Tensor.multi_margin_loss``.

    Parameters
    ----------
    p : 1 or 2
        The power of what lacks.
    margin : float
        By how much the right class has to be above another.
    weight : Tensor, optional
        A weight for each class; a part of the state.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
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
    """One with a margin.

    Parameters
    ----------
    margin : float
        The margin.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    """

    _arguments: ClassVar[tuple[str, ...]] = ("margin",)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = real(margin, "margin")


class HingeEmbeddingLoss(_Margin):
    """Distances of pairs that are alike (1) or not (-1); see ``Tensor.hinge_embedding_loss``."""

    _method = "hinge_embedding_loss"

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(margin, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Judge distances `x` by `target`, of 1 and -1."""
        return self._loss(input, target)


class MarginRankingLoss(_Margin):
    """Whether one of two is the greater as it should be; see ``Tensor.margin_ranking_loss``."""

    _method = "margin_ranking_loss"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Judge whether `x1` is above `x2`, where `target` is 1, or below, where it is -1."""
        return self._loss(input1, input2, target)


class CosineEmbeddingLoss(_Margin):
    """Angles of pairs that are alike (1) or not (-1); see ``Tensor.cosine_embedding_loss``."""

    _method = "cosine_embedding_loss"

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """Judge the angle of rows of `x1` and `x2` by `target`, of 1 and -1."""
        return self._loss(input1, input2, target)


class TripletMarginLoss(_Margin):
    """Whether an anchor is nearer to what is alike; see ``Tensor.triplet_margin_loss``.

    Parameters
    ----------
    margin : float
        By how much it has to be nearer.
    p : float
        The norm of distances.
    eps : float
        Added to differences.
    swap : bool
        Whether the distance between the two others counts where it is less.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
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
        """Compare distances from `anchor`, all of shape (batch, width)."""
        return self._loss(anchor, positive, negative)


class TripletMarginWithDistanceLoss(_Margin):
    """:class:`TripletMarginLoss` by any distance.

    Parameters
    ----------
    distance_function : callable, optional
        Gives distances of two tensors; ``PairwiseDistance()`` if not given.
    margin : float
        By how much the anchor has to be nearer to what is alike.
    swap : bool
        Whether the distance between the two others counts where it is less.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
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
        """Compare distances from `anchor`."""
        return self._loss(anchor, positive, negative)


class PoissonNLLLoss(_Pair):
    """Negative log-probability of counts; see ``Tensor.poisson_nll_loss``.

    Parameters
    ----------
    log_input : bool
        Whether rates are given as logarithms.
    full : bool
        Whether to add what does not depend on the rates, by Stirling's formula.
    eps : float
        Added to rates that are no logarithms.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    """

    _method, _arguments = "poisson_nll_loss", ("log_input", "full", "eps")

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, real(eps, "eps")

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """Compare two tensors of one shape."""
        return super().forward(log_input, target)


class GaussianNLLLoss(_Loss):
    """Negative log-probability under normal distributions; see ``Tensor.gaussian_nll_loss``.

    Parameters
    ----------
    full : bool
        Whether to add the constant.
    eps : float
        The least variance.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    """

    _method, _arguments = "gaussian_nll_loss", ("full", "eps")

    def __init__(
        self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, real(eps, "eps")

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Judge means `x` and variances `var` by `target`."""
        return self._loss(input, target, var)


class CTCLoss(_Loss):
    """Connectionist temporal classification; see ``Tensor.ctc_loss``.

    Parameters
    ----------
    blank : int
        The class that stands for no label.
    reduction : "mean", "sum" or "none"
        What becomes of the losses.
    zero_infinity : bool
        Whether losses that are infinite, as no path is possible, are 0, and their gradients.
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
        """Judge (steps, batch, classes) by labels; see ``Tensor.ctc_loss``."""
        return self._loss(log_probs, targets, input_lengths, target_lengths)
