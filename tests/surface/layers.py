"""Every layer of kernelrt.nn, as text that makes it there and in torch.nn, and its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surface.rows import In, Index, Pos

if TYPE_CHECKING:
    from collections.abc import Callable

    from surface.rows import Bool

Spec = str | In | Index

__all__ = ["LAYERS", "Layer"]


@dataclass(frozen=True)
class Layer:
    """A layer and its inputs.

    Attributes
    ----------
    text : str
        An expression where `nn` and `k` are kernelrt's or torch's.
    inputs : tuple of str, In, Index or Bool
        Shapes of numbers; strings are floats.
    call : callable, optional
        ``call(k, layer, *tensors)``, where more than the tensors is given.
    random : bool
        Whether training draws numbers, so that only evaluation is compared.
    same_bits : bool
        Whether a jitted call gives the bits of an eager one.
    why : str
        Why it does not.
    """

    text: str
    inputs: tuple[Spec | Bool, ...]
    call: Callable[..., Any] | None = None
    random: bool = False
    same_bits: bool = True
    why: str = ""


def _each(texts: str, *inputs: Spec, **options: Any) -> list[Layer]:
    return [Layer(t.strip(), inputs, **options) for t in texts.strip().splitlines()]


LINE, IMAGE, VOLUME = "2 4 9", "2 4 6 7", "2 4 4 5 6"


def _pooled(k: Any, layer: Any, x: Any) -> Any:
    """Unpooling of what pooling gives, at places that are the same in both libraries."""
    n = x.ndim - 2
    pool = getattr(k.nn, f"MaxPool{n}d")(
        layer.kernel_size, layer.stride, layer.padding, return_indices=True
    )
    values, places = pool(x)
    return layer(values, places)


def _sized(k: Any, layer: Any, x: Any) -> Any:
    pool = getattr(k.nn, f"MaxPool{x.ndim - 2}d")(2, return_indices=True)
    values, places = pool(x)
    return layer(values, places, output_size=tuple(x.shape))


def _near(k: Any, layer: Any, x: Any) -> Any:
    """Results of the least and of the greatest size, given as sizes and as a whole shape."""
    layer.output_padding = (0,) * (x.ndim - 2)
    least = layer(x)
    sizes = [n + s - 1 for n, s in zip(least.shape[2:], layer.stride, strict=True)]
    return layer(x, output_size=least.shape), layer(x, sizes), layer(x[0], [9, *sizes])


def _lengths(k: Any, layer: Any, x: Any, y: Any) -> Any:
    return layer(x.log_softmax(-1), y, k.tensor([9, 8]), k.tensor([3, 2]))


ACTIVATIONS = _each(
    """
    nn.ReLU()
    nn.ReLU(inplace=False)
    nn.ReLU6()
    nn.LeakyReLU()
    nn.LeakyReLU(0.3)
    nn.PReLU()
    nn.PReLU(4, 0.1)
    nn.ELU()
    nn.ELU(0.7)
    nn.CELU(1.3)
    nn.SELU()
    nn.GELU()
    nn.GELU(approximate="tanh")
    nn.SiLU()
    nn.Mish()
    nn.Tanh()
    nn.Sigmoid()
    nn.LogSigmoid()
    nn.Softplus()
    nn.Softplus(2, 1)
    nn.Softsign()
    nn.Softshrink()
    nn.Softshrink(0.2)
    nn.Hardshrink(0.3)
    nn.Tanhshrink()
    nn.Hardtanh()
    nn.Hardtanh(-0.5, 0.7)
    nn.Hardsigmoid()
    nn.Hardswish()
    nn.Threshold(0.1, 20)
    nn.GLU()
    nn.GLU(dim=1)
    nn.Softmax(dim=1)
    nn.Softmin(dim=-1)
    nn.LogSoftmax(dim=-2)
    nn.Softmax2d()
    nn.Identity(54, a=2)
    nn.Flatten()
    nn.Flatten(0, 1)
    nn.Unflatten(1, (2, 2))
    nn.Unflatten(-1, (3, 2))
    """,
    "2 4 3 6",
) + _each("nn.RReLU()\nnn.RReLU(0.1, 0.2)", IMAGE, random=True)

DROPOUT = [
    *_each("nn.Dropout()\nnn.Dropout(0.2)\nnn.AlphaDropout()", IMAGE, random=True),
    *_each("nn.Dropout(0.0)\nnn.AlphaDropout(0.0)\nnn.Dropout(1.0)\nnn.AlphaDropout(1.0)", IMAGE),
    *_each("nn.FeatureAlphaDropout(0.1)\nnn.Dropout2d(0.2)", IMAGE, random=True),
    *_each("nn.Dropout1d(0.2)", LINE, random=True),
    *_each("nn.Dropout3d()", VOLUME, random=True),
    *_each("nn.Dropout2d(1.0)\nnn.FeatureAlphaDropout(1.0)", IMAGE),
]

LINEAR = [
    *_each("nn.Linear(5, 7)\nnn.Linear(5, 3, bias=False)", "2 3 5"),
    *_each("nn.Linear(5, 2)", "5"),
    *_each("nn.Bilinear(3, 4, 5)\nnn.Bilinear(3, 4, 2, bias=False)", "2 3", "2 4"),
    *_each("nn.CosineSimilarity()\nnn.CosineSimilarity(0, 1e-6)", "3 5", "3 5"),
    *_each("nn.PairwiseDistance()\nnn.PairwiseDistance(1.5, 1e-3, True)", "3 5", "3 5"),
]

LOOKUP = [
    *_each(
        """
        nn.Embedding(7, 3)
        nn.Embedding(7, 3, padding_idx=2)
        nn.Embedding(7, 3, -1)
        nn.EmbeddingBag(7, 3)
        nn.EmbeddingBag(7, 3, mode="sum")
        nn.EmbeddingBag(7, 3, mode="max")
        nn.EmbeddingBag(7, 3, padding_idx=1)
        nn.EmbeddingBag(7, 3, mode="sum", padding_idx=1)
        nn.EmbeddingBag(7, 3, mode="max", padding_idx=1)
        """,
        Index("4 3", "7"),
    ),
    *_each(
        """
        nn.EmbeddingBag(7, 3)
        nn.EmbeddingBag(7, 3, mode="sum")
        nn.EmbeddingBag(7, 3, mode="max")
        nn.EmbeddingBag(7, 3, mode="max", padding_idx=3)
        nn.EmbeddingBag(7, 3, padding_idx=3)
        """,
        Index("9", "7"), call=lambda k, layer, i: layer(i, k.tensor([0, 4, 4, 7])),
    ),
    Layer("nn.EmbeddingBag(7, 3, mode='sum', include_last_offset=True)", (Index("9", "7"),),
          lambda k, layer, i: layer(i, k.tensor([0, 2, 7, 9]))),
    Layer("nn.EmbeddingBag(7, 3, mode='sum')", (Index("4 2", "7"), "4 2"),
          lambda k, layer, i, w: layer(i, per_sample_weights=w)),
]  # fmt: skip

PADDING = [
    *_each(
        """
        nn.ZeroPad1d(2)
        nn.ConstantPad1d((1, 3), 2.5)
        nn.ReflectionPad1d((3, 1))
        nn.ReplicationPad1d((2, 12))
        nn.CircularPad1d((3, 9))
        nn.ReflectionPad1d((-1, 2))
        nn.ReplicationPad1d((-2, 2))
        nn.CircularPad1d((-1, 2))
        """,
        LINE,
    ),
    *_each(
        """
        nn.ZeroPad2d(2)
        nn.ZeroPad2d((-1, 2, 0, 1))
        nn.ConstantPad2d((1, 3, 0, 2), 2.5)
        nn.ReflectionPad2d((3, 1, 2, 5))
        nn.ReplicationPad2d((2, 8, 0, 1))
        nn.CircularPad2d((3, 7, 1, 2))
        """,
        IMAGE,
    ),
    *_each(
        """
        nn.ZeroPad3d(1)
        nn.ConstantPad3d((1, 0, 0, 2, 1, 1), -1.5)
        nn.ReflectionPad3d((3, 1, 2, 0, 1, 2))
        nn.ReplicationPad3d((2, 7, 0, 1, 1, 1))
        nn.CircularPad3d((3, 0, 1, 2, 1, 4))
        """,
        VOLUME,
    ),
]

CONVOLUTIONS = [
    *_each(
        """
        nn.Conv1d(4, 6, 3)
        nn.Conv1d(4, 6, 3, 2, 1, 2, groups=2, bias=False)
        nn.Conv1d(4, 2, 4, padding="same", padding_mode="circular")
        nn.ConvTranspose1d(4, 2, 3, 2, 1, 1)
        """,
        LINE,
    ),
    *_each(
        """
        nn.Conv2d(4, 3, 3)
        nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1), groups=2)
        nn.Conv2d(4, 2, (3, 4), padding="same", dilation=(1, 2))
        nn.Conv2d(4, 2, 3, padding=2, padding_mode="reflect")
        nn.Conv2d(4, 2, 3, padding=(1, 2), padding_mode="replicate")
        nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular", stride=2)
        nn.Conv2d(4, 2, 3, padding="valid", padding_mode="circular")
        nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), (1, 2), 2, False, (1, 2))
        """,
        IMAGE,
    ),
    *_each(
        """
        nn.Conv3d(4, 2, (1, 2, 3), padding=(0, 1, 1), groups=2)
        nn.Conv3d(4, 2, 2, padding=1, padding_mode="replicate")
        nn.ConvTranspose3d(4, 3, 3, 2, 1, 1)
        """,
        VOLUME,
    ),
    Layer("nn.ConvTranspose1d(4, 2, 3, 4, 1, 2)", (LINE,), _near),
    Layer("nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0), 0, 2, False, (2, 1))", (IMAGE,), _near),
    Layer("nn.ConvTranspose3d(4, 3, 3, (1, 2, 3), 1)", (VOLUME,), _near),
]

POOLING = [
    *_each(
        """
        nn.MaxPool1d(3)
        nn.MaxPool1d(3, 2, 1, 2, ceil_mode=True)
        nn.AvgPool1d(3, 2, 1)
        nn.AvgPool1d(2, ceil_mode=True, count_include_pad=False)
        nn.LPPool1d(2, 3)
        nn.LPPool1d(3, 2)
        nn.AdaptiveAvgPool1d(4)
        nn.AdaptiveMaxPool1d(4)
        nn.Upsample(scale_factor=2)
        nn.Upsample(5, mode="linear")
        """,
        LINE,
    ),
    *_each(
        """
        nn.MaxPool2d(2)
        nn.MaxPool2d(3, stride=2, padding=1, return_indices=True)
        nn.AvgPool2d((2, 3), padding=1, divisor_override=5)
        nn.LPPool2d(2, 2, ceil_mode=True)
        nn.AdaptiveAvgPool2d((3, None))
        nn.AdaptiveMaxPool2d(3)
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        nn.Upsample((5, 9), mode="bicubic")
        nn.UpsamplingBilinear2d(scale_factor=2)
        nn.UpsamplingNearest2d((3, 9))
        """,
        IMAGE,
    ),
    *_each(
        """
        nn.MaxPool3d(2)
        nn.AvgPool3d(2, 1)
        nn.LPPool3d(2, 2)
        nn.AdaptiveAvgPool3d((2, 3, 1))
        nn.AdaptiveMaxPool3d(2)
        nn.Upsample(scale_factor=2, mode="trilinear")
        """,
        VOLUME,
    ),
    *_each(
        """
        nn.FractionalMaxPool2d(2, (3, 2), _random_samples=k.full((2, 4, 2), 0.3).double())
        nn.FractionalMaxPool2d((3, 2), None, (0.5, 0.4), True, k.full((2, 4, 2), 0.7).double())
        """,
        IMAGE,
    ),
    *_each("nn.FractionalMaxPool3d(2, 2, _random_samples=k.full((2, 4, 3), 0.6).double())", VOLUME),
    *_each("nn.MaxUnpool1d(2)\nnn.MaxUnpool1d(3, 2, 1)", LINE, call=_pooled),
    *_each("nn.MaxUnpool2d(2)", "2 3 6 8", call=_pooled),
    *_each("nn.MaxUnpool2d(3, 2, 1)", "2 3 7 5", call=_pooled),
    *_each("nn.MaxUnpool3d(2)", "2 3 4 6 4", call=_pooled),
    Layer("nn.MaxUnpool1d(2)", (LINE,), _sized),
    Layer("nn.MaxUnpool2d(2)", (IMAGE,), _sized),
]

IMAGES = [
    *_each("nn.PixelShuffle(2)\nnn.ChannelShuffle(2)", "2 8 3 4"),
    *_each("nn.PixelUnshuffle(2)", "2 3 4 6"),
    *_each("nn.PixelShuffle(2)", "4 3 2"),
    *_each("nn.Unfold(2)\nnn.Unfold((2, 3), 2, (1, 2), (2, 1))", IMAGE),
    *_each("nn.Unfold(2)", "3 4 5"),
    *_each("nn.Fold((4, 5), 2)", "2 12 12"),
    *_each("nn.Fold((6, 7), (2, 3), 2, (1, 2), (2, 1))", "2 12 21"),
    *_each("nn.Fold((4, 5), 2)", "8 12"),
]

NORMALIZATION = [
    *_each(
        """
        nn.BatchNorm2d(4)
        nn.BatchNorm2d(4, eps=1e-3, momentum=0.3, affine=False)
        nn.BatchNorm2d(4, track_running_stats=False)
        nn.BatchNorm2d(4, momentum=None)
        nn.InstanceNorm2d(4)
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        nn.GroupNorm(2, 4)
        nn.GroupNorm(4, 4, affine=False)
        nn.LayerNorm(7)
        nn.LayerNorm((6, 7), elementwise_affine=False)
        nn.LayerNorm((4, 6, 7), bias=False)
        nn.RMSNorm(7)
        nn.RMSNorm((6, 7), eps=1e-3)
        nn.LocalResponseNorm(2)
        nn.LocalResponseNorm(3, 0.1, 0.5, 2.0)
        """,
        IMAGE,
    ),
    *_each("nn.BatchNorm1d(4)\nnn.InstanceNorm1d(4)\nnn.LocalResponseNorm(3, 0.5)", LINE),
    *_each("nn.BatchNorm1d(4)", "6 4"),
    *_each("nn.BatchNorm3d(4)\nnn.InstanceNorm3d(4)", VOLUME),
]

#: Contractions whose sums are made in another order where what follows is known.
_ORDER = {"same_bits": False, "why": "a jitted sum is made in another order"}
RECURRENT = [
    *_each(
        """
        nn.RNN(3, 4)
        nn.RNN(3, 4, 2, nonlinearity="relu", bias=False)
        nn.LSTM(3, 4)
        nn.LSTM(3, 4, 2, bidirectional=True)
        nn.GRU(3, 4)
        nn.GRU(3, 4, 2, batch_first=True)
        nn.GRU(3, 4, bidirectional=True, batch_first=True)
        """,
        "5 2 3",
    ),
    *_each("nn.LSTM(3, 4, proj_size=2)", "5 2 3", **_ORDER),
    *_each("nn.RNNCell(3, 4)\nnn.GRUCell(3, 4, bias=False)", "2 3", "2 4"),
    *_each("nn.LSTMCell(3, 4)", "2 3"),
]

TRANSFORMERS = [
    *_each(
        """
        nn.MultiheadAttention(8, 2)
        nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
        nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)
        """,
        "3 3 8", "3 3 8", "3 3 8", **_ORDER,
    ),
    *_each("nn.MultiheadAttention(8, 2, kdim=5, vdim=6)", "3 2 8", "4 2 5", "4 2 6", **_ORDER),
    *_each(
        """
        nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0)
        nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", norm_first=True, batch_first=True)
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0), 2, nn.LayerNorm(8))
        """,
        "3 2 8",
    ),
    *_each(
        """
        nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0)
        nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0), 2)
        nn.Transformer(8, 2, 1, 1, 12, 0.0)
        """,
        "3 2 8", "4 2 8",
    ),
]

CONTAINERS = [
    *_each("nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))", "5 4"),
    Layer("nn.ModuleList([nn.Linear(4, 4), nn.Tanh()])", ("5 4",),
          lambda k, layer, x: layer[1](layer[0](x))),
    Layer("nn.ModuleDict({'a': nn.Linear(4, 4)})", ("5 4",), lambda k, layer, x: layer["a"](x)),
    Layer("nn.ParameterList([nn.Parameter(k.ones(4))])", ("5 4",),
          lambda k, layer, x: layer[0] * x),
    Layer("nn.ParameterDict({'a': nn.Parameter(k.ones(4))})", ("5 4",),
          lambda k, layer, x: layer["a"] * x),
]  # fmt: skip

LOSSES = [
    *_each(
        """
        nn.MSELoss()
        nn.MSELoss(reduction="sum")
        nn.L1Loss(reduction="none")
        nn.SmoothL1Loss(beta=0.5)
        nn.HuberLoss("sum", 0.7)
        nn.SoftMarginLoss()
        nn.PoissonNLLLoss()
        nn.PoissonNLLLoss(log_input=True, full=False, reduction="sum")
        """,
        "3 4", In("3 4", grad=False),
    ),
    *_each(
        """
        nn.KLDivLoss(reduction="batchmean")
        nn.KLDivLoss(reduction="sum", log_target=True)
        nn.BCEWithLogitsLoss()
        nn.BCEWithLogitsLoss(k.tensor([1., 2., 0.5, 3.]), reduction="sum")
        nn.BCEWithLogitsLoss(pos_weight=k.tensor([1., 2., 0.5, 3.]))
        """,
        "3 4", In("3 4", 0.1, 0.9, grad=False),
    ),
    *_each(
        """
        nn.BCELoss()
        nn.BCELoss(weight=k.tensor([1., 2., 0.5, 3.]), reduction="none")
        """,
        In("3 4", 0.1, 0.9), In("3 4", 0.1, 0.9, grad=False),
    ),
    *_each("nn.PoissonNLLLoss(False, True)", Pos("3 4"), Pos("3 4", grad=False)),
    *_each("nn.GaussianNLLLoss()\nnn.GaussianNLLLoss(full=True, eps=1e-3)",
           "3 4", In("3 4", grad=False), Pos("3 4")),
    *_each(
        """
        nn.CrossEntropyLoss()
        nn.CrossEntropyLoss(k.tensor([1., 2., 0.5, 3.]), ignore_index=2, label_smoothing=0.1)
        nn.NLLLoss(reduction="sum")
        nn.NLLLoss(k.tensor([1., 2., 0.5, 3.]), ignore_index=1)
        nn.MultiMarginLoss()
        nn.MultiMarginLoss(2, 0.5, k.tensor([1., 2., 0.5, 3.]), reduction="none")
        """,
        "6 4", Index("6", "4"),
    ),
    *_each("nn.MultiLabelMarginLoss()", "6 4", Index("6 4", "4", -1)),
    *_each(
        """
        nn.MultiLabelSoftMarginLoss()
        nn.MultiLabelSoftMarginLoss(k.tensor([1., 2., 0.5, 3.]), reduction="sum")
        """,
        "6 4", In("6 4", 0.1, 0.9, grad=False),
    ),
    *_each("nn.HingeEmbeddingLoss()\nnn.HingeEmbeddingLoss(0.5, reduction='sum')", "3 4",
           call=lambda k, layer, x: layer(x, k.arange(4) % 2 * 2 - 1)),
    *_each("nn.MarginRankingLoss()\nnn.MarginRankingLoss(0.5, reduction='sum')", "4", "4",
           call=lambda k, layer, x, y: layer(x, y, k.arange(4) % 2 * 2 - 1)),
    *_each("nn.CosineEmbeddingLoss()\nnn.CosineEmbeddingLoss(0.1, reduction='none')", "4 3",
           "4 3", call=lambda k, layer, x, y: layer(x, y, k.arange(4) % 2 * 2 - 1)),
    *_each(
        """
        nn.TripletMarginLoss()
        nn.TripletMarginLoss(0.5, 1.5, 1e-3, True, reduction="sum")
        nn.TripletMarginWithDistanceLoss()
        nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(1.5), swap=True)
        """,
        "4 3", "4 3", "4 3",
    ),
    *_each("nn.CTCLoss()\nnn.CTCLoss(1, 'sum', True)", "9 2 5", Index("2 3", "5", 2),
           call=_lengths),
]  # fmt: skip

LAYERS: list[Layer] = [
    *ACTIVATIONS, *DROPOUT, *LINEAR, *LOOKUP, *PADDING, *CONVOLUTIONS, *POOLING, *IMAGES,
    *NORMALIZATION, *RECURRENT, *TRANSFORMERS, *CONTAINERS, *LOSSES,
]  # fmt: skip
