"""Layers of two inputs: distances, and a bilinear map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.nn import init
from kernelrt.nn.layers import bias_bound, parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor.methods.einsum import bilinear
from kernelrt.tensor.nodes.arguments import integer, real

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["Bilinear", "CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """Compute the cosine of the angle between vectors along an axis.

    Takes two tensors of shape ``(*, n, *)``, or of shapes that broadcast to it. The result lacks
    the axis of size n; see ``Tensor.cosine_similarity``.

    Parameters
    ----------
    dim : int, default 1
        Axis of the vectors.
    eps : float, default 1e-8
        Lower bound of each norm. The dot product is divided by both norms.

    Examples
    --------
    >>> similarity = krt.nn.CosineSimilarity()
    >>> similarity(krt.tensor([[2.0, 0.0]]), krt.tensor([[4.0, 0.0], [0.0, 4.0]])).tolist()
    [1.0, 0.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = integer(dim, "dim"), real(eps, "eps")

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Map two tensors ``(*, n, *)`` to the same without the axis of size n."""
        return x1.cosine_similarity(x2, self.dim, self.eps)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"dim={self.dim}, eps={self.eps}"


class PairwiseDistance(Module):
    """Compute the norm of the difference of vectors along the last axis.

    Maps two tensors of shape ``(*, n)``, or of shapes that broadcast to it, to ``(*)``, or to
    ``(*, 1)`` with `keepdim`; see ``Tensor.pairwise_distance``.

    Parameters
    ----------
    p : float, default 2.0
        Order of the norm.
    eps : float, default 1e-6
        Number added to each difference of elements.
    keepdim : bool, default False
        Whether to keep the last axis, with size 1.

    Examples
    --------
    >>> distance = krt.nn.PairwiseDistance(eps=0.0)
    >>> distance(krt.tensor([[3.0, 4.0]]), krt.zeros(1, 2)).tolist()
    [5.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm, self.eps, self.keepdim = real(p, "p"), real(eps, "eps"), keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Map two tensors of shape ``(*, n)``, up to broadcasting, to ``(*)``."""
        return x1.pairwise_distance(x2, self.norm, self.eps, self.keepdim)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"p={self.norm}, eps={self.eps}, keepdim={self.keepdim}"


class Bilinear(Module):
    """Apply a bilinear map: ``x1 @ weight[k] @ x2 + bias[k]`` over the last axes, for each k.

    Maps ``(*, in1_features)`` and ``(*, in2_features)`` to ``(*, out_features)``.

    Parameters
    ----------
    in1_features, in2_features, out_features : int
        Sizes of the last axes of the inputs and the result.
    bias : bool, default True
        Whether to add a bias.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    weight : Tensor, shape (out_features, in1_features, in2_features)
        Initialized uniformly between ±1/sqrt(in1_features).
    bias : Tensor of shape (out_features,), or None
        Initialized from the same distribution.

    Examples
    --------
    >>> layer = krt.nn.Bilinear(2, 3, 4)
    >>> layer(krt.ones(5, 2), krt.ones(5, 3)).shape
    (5, 4)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, *,
        dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        self.in1_features = positive("in1_features", in1_features)
        self.in2_features = positive("in2_features", in2_features)
        self.out_features = positive("out_features", out_features)
        self.weight = parameter((out_features, in1_features, in2_features), dtype)
        self.bias = parameter((out_features,), dtype) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values for weight and bias."""
        bound = bias_bound(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Map ``(*, in1_features)`` and ``(*, in2_features)`` to ``(*, out_features)``."""
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
