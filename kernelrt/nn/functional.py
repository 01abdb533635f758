"""nn.functional: methods of Tensor as functions whose first argument is the tensor.

This module defines the functions that differ from the method of the same name. The others are made
from the methods on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kernelrt.nn.bags import embedding, embedding_bag
from kernelrt.tensor import Tensor as _Tensor
from kernelrt.tensor.free_functions.dropout_functions import (
    alpha_dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from kernelrt.tensor.free_functions.fractional_pooling import (
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from kernelrt.tensor.free_functions.from_methods import function as _function
from kernelrt.tensor.free_functions.from_methods import provide as _provide
from kernelrt.tensor.free_functions.grids import affine_grid
from kernelrt.tensor.methods.dot_product_attention import scaled_dot_product_attention
from kernelrt.tensor.methods.einsum import bilinear
from kernelrt.tensor.methods.image_windows import fold, unfold
from kernelrt.tensor.nodes.arguments import flag as _flag
from kernelrt.util.unsupported_names import of_module as _of_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.nn._functions import *  # noqa: F403 - those that are made of methods
    from kernelrt.tensor import Tensor

__all__ = ["affine_grid", "alpha_dropout", "bilinear", "dropout", "dropout1d", "dropout2d",
           "dropout3d", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
           "fractional_max_pool2d", "fractional_max_pool3d", "scaled_dot_product_attention",
           "unfold"]  # fmt: skip

#: Functions that are made from methods without changes.
_METHODS: Final = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm
binary_cross_entropy binary_cross_entropy_with_logits channel_shuffle conv1d conv2d conv3d
conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity
cross_entropy ctc_loss gaussian_nll_loss gelu glu grid_sample group_norm
gumbel_softmax hardshrink hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss
layer_norm linear local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d
margin_ranking_loss max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d mse_loss
multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss normalize one_hot pad
pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu_ rms_norm
sigmoid smooth_l1_loss soft_margin_loss softmax softmin softplus
softshrink softsign tanh tanhshrink triplet_margin_loss triplet_margin_with_distance_loss
"""
#: Functions that also take `inplace`, as in PyTorch.
_ACTIVATIONS: Final = """
celu elu hardsigmoid hardswish hardtanh leaky_relu mish relu relu6 rrelu selu silu threshold
"""


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero each element with probability `p` and scale the others by ``1 / (1 - p)``.

    Parameters
    ----------
    input : Tensor of floats
        Tensor of any shape.
    p : float, default 0.5
        Probability, from 0 to 1.
    training : bool, default True
        Whether to apply dropout at all.
    inplace : bool, default False
        Accepted for compatibility, without effect: `input` never changes.

    Returns
    -------
    Tensor
        Tensor of the shape and dtype of `input`.

    Raises
    ------
    DomainError
        `p` is not from 0 to 1.

    Examples
    --------
    >>> import kernelrt.nn.functional as F
    >>> sorted(set(F.dropout(krt.ones(1000), 0.5).tolist()))
    [0.0, 2.0]
    >>> F.dropout(krt.tensor([1.0, 3.0]), training=False).tolist()
    [1.0, 3.0]
    """
    _flag(inplace, "inplace")
    return input.dropout(p, _flag(training, "training"))


def _activation(name: str) -> Callable[..., Tensor]:
    """Return a function that also accepts ``inplace``, which has no effect."""
    made = _function(_Tensor, name, __name__)

    def call(*args: Any, inplace: bool = False, **options: Any) -> Tensor:
        _flag(inplace, "inplace")
        result: Tensor = made(*args, **options)
        return result

    call.__name__ = call.__qualname__ = name
    # Errors and profiles take the function's name from its code object.
    call.__code__ = call.__code__.replace(co_name=name, co_qualname=name)
    call.__doc__ = made.__doc__
    return call


if not TYPE_CHECKING:  # type checkers would accept any name of a module with __getattr__
    _found, __dir__ = _provide(
        __name__, _Tensor, [*_METHODS.split(), *_ACTIVATIONS.split()],
        _of_module(__name__, {}, __all__, _Tensor),
    )  # fmt: skip

    def __getattr__(name: str) -> Any:
        if name in _ACTIVATIONS.split() and hasattr(_Tensor, name):
            made = globals()[name] = _activation(name)
            return made
        return _found(name)
