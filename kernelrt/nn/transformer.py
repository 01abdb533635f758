"""Transformers (Vaswani et al., arXiv:1706.03762), with PyTorch's names."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import DomainError
from kernelrt.nn import init
from kernelrt.nn.attention import MultiheadAttention
from kernelrt.nn.containers import ModuleList
from kernelrt.nn.dropout import Dropout
from kernelrt.nn.layers import LayerNorm, Linear, positive
from kernelrt.nn.module import Module
from kernelrt.tensor.free_functions.creation import full

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelrt.tensor import Tensor

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]  # fmt: skip

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.relu(),
    "gelu": lambda x: x.gelu(),
}


def _activation(given: object) -> Callable[[Tensor], Tensor]:
    if callable(given):
        return given
    found = _ACTIVATIONS.get(str(given))
    if found is None:
        raise DomainError(f"activation: expected 'relu', 'gelu' or a function, not {given!r}")
    return found


class _Block(Module):
    """Base of encoder and decoder layers."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int, dropout: float, activation: object,
        layer_norm_eps: float, batch_first: bool, norm_first: bool, bias: bool, dtype: object,
        *, attentions: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.norm_first, self.batch_first = norm_first, batch_first
        self.activation = activation
        _activation(activation)
        options = {"bias": bias, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
        )
        if attentions > 1:
            self.multihead_attn = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
            )
        self.linear1 = Linear(d_model, dim_feedforward, **options)  # type: ignore[arg-type]
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)  # type: ignore[arg-type]
        for k in range(1, attentions + 2):
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
            setattr(self, f"norm{k}", norm)
        for k in range(1, attentions + 2):
            setattr(self, f"dropout{k}", Dropout(dropout))

    def _fed(self, x: Tensor) -> Tensor:
        inner = _activation(self.activation)(self.linear1(x))
        return self.linear2(self.dropout(inner))

    def _residual(self, x: Tensor, k: int, inner: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``x + inner(x)``; normalization `k` is applied before `inner` or to the sum."""
        norm, drop = getattr(self, f"norm{k}"), getattr(self, f"dropout{k}")
        out: Tensor = x + drop(inner(norm(x))) if self.norm_first else norm(x + drop(inner(x)))
        return out


class TransformerEncoderLayer(_Block):
    """Apply self-attention and a feed-forward network, each with a residual connection.

    Input and output have shape ``(steps, batch, d_model)``, or ``(batch, steps, d_model)`` with
    `batch_first`; the batch may be missing.

    Parameters
    ----------
    d_model, nhead, dim_feedforward : int, default 2048 for dim_feedforward
        Number of features, number of heads, and number of features inside the feed-forward network.
    dropout : float, default 0.1
        Dropout probability, in training.
    activation : "relu", "gelu" or callable, default "relu"
        Activation of the feed-forward network.
    layer_norm_eps : float, default 1e-5
        Added to the variance in layer normalization.
    batch_first : bool, default False
        As in :class:`MultiheadAttention`.
    norm_first : bool, default False
        Whether to normalize the inputs of attention and feed-forward network, instead of the sums
        of inputs and results.
    bias : bool, default True
        Whether to use biases.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Raises
    ------
    DomainError
        `activation` is unknown.
    ShapeError
        `d_model` is not a multiple of `nhead`.

    Examples
    --------
    >>> layer = krt.nn.TransformerEncoderLayer(8, 2, dim_feedforward=16)
    >>> layer(krt.ones(5, 3, 8)).shape
    (5, 3, 8)
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu", layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, *,
        dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, dtype, attentions=1,
        )  # fmt: skip

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Map ``(steps, batch, d_model)`` to the same shape: encode `src`.

        Parameters
        ----------
        src : Tensor
            Sequences to encode.
        src_mask, src_key_padding_mask : Tensor, optional
            `attn_mask` and `key_padding_mask` of :class:`MultiheadAttention`.
        is_causal : bool, default False
            States that `src_mask` is causal. You must pass `src_mask` as well.
        """

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )[0]  # fmt: skip

        return self._residual(self._residual(src, 1, attend), 2, self._fed)


class TransformerDecoderLayer(_Block):
    """Apply self-attention, attention to the encoder's output, and a feed-forward network.

    Maps a target ``(steps, batch, d_model)`` and a memory ``(length, batch, d_model)`` to the shape
    of the target; with `batch_first` the batch is the first axis.

    Parameters
    ----------
    d_model, nhead, dim_feedforward : int, default 2048 for dim_feedforward
        Number of features, number of heads, and number of features inside the feed-forward network.
    dropout : float, default 0.1
        Dropout probability, in training.
    activation : "relu", "gelu" or callable, default "relu"
        Activation of the feed-forward network.
    layer_norm_eps : float, default 1e-5
        Added to the variance in layer normalization.
    batch_first : bool, default False
        As in :class:`MultiheadAttention`.
    norm_first : bool, default False
        Whether to normalize the inputs of attention and feed-forward network, instead of the sums
        of inputs and results.
    bias : bool, default True
        Whether to use biases.
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Raises
    ------
    DomainError
        `activation` is unknown.
    ShapeError
        `d_model` is not a multiple of `nhead`.

    Examples
    --------
    >>> layer = krt.nn.TransformerDecoderLayer(8, 2, dim_feedforward=16)
    >>> layer(krt.ones(5, 3, 8), memory=krt.ones(7, 3, 8)).shape
    (5, 3, 8)
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu", layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, *,
        dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__(
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, dtype, attentions=2,
        )  # fmt: skip

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Map ``(steps, batch, d_model)`` to the same shape: decode `tgt` given `memory`.

        Parameters
        ----------
        tgt, memory : Tensor
            Sequences to decode, and the encoder's output.
        tgt_mask, tgt_key_padding_mask : Tensor, optional
            `attn_mask` and `key_padding_mask` of :class:`MultiheadAttention`, for the
            self-attention.
        memory_mask, memory_key_padding_mask : Tensor, optional
            The same masks for the attention to `memory`.
        tgt_is_causal, memory_is_causal : bool, default False
            State that `tgt_mask` or `memory_mask` is causal. You must pass this mask as well.
        """

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )[0]  # fmt: skip

        def look(x: Tensor) -> Tensor:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask,
                is_causal=memory_is_causal,
            )[0]  # fmt: skip

        x = self._residual(self._residual(tgt, 1, attend), 2, look)
        return self._residual(x, 3, self._fed)


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList(copy.deepcopy(layer) for _ in range(positive("num_layers", count)))


class TransformerEncoder(Module):
    """Apply a stack of encoder layers.

    Input and output have the shape of a layer: ``(steps, batch, d_model)``.

    Parameters
    ----------
    encoder_layer : TransformerEncoderLayer
        Layer that is copied for each layer of the stack.
    num_layers : int
        Number of layers.
    norm : Module, optional
        Applied to the result.
    enable_nested_tensor, mask_check : bool, default True
        Accepted for compatibility; kernelrt has no nested tensors.

    Attributes
    ----------
    layers : ModuleList
        The copies, which start with the same parameters.

    Examples
    --------
    >>> layer = krt.nn.TransformerEncoderLayer(8, 2, dim_feedforward=16)
    >>> encoder = krt.nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(krt.ones(5, 3, 8)).shape, len(encoder.layers)
    ((5, 3, 8), 2)
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self, src: Tensor, mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """Map ``(steps, batch, d_model)`` to the same shape: encode `src`.

        Parameters
        ----------
        src : Tensor
            Sequences to encode.
        mask, src_key_padding_mask : Tensor, optional
            `attn_mask` and `key_padding_mask` of :class:`MultiheadAttention`.
        is_causal : bool, optional
            States that `mask` is causal. You must pass `mask` as well.
        """
        out = src
        for layer in self.layers:
            out = layer(out, mask, src_key_padding_mask, bool(is_causal))
        return out if self.norm is None else self.norm(out)


class TransformerDecoder(Module):
    """Apply a stack of decoder layers.

    Maps a target and a memory to the shape of the target, as :class:`TransformerDecoderLayer` does.

    Parameters
    ----------
    decoder_layer : TransformerDecoderLayer
        Layer that is copied for each layer of the stack.
    num_layers : int
        Number of layers.
    norm : Module, optional
        Applied to the result.

    Attributes
    ----------
    layers : ModuleList
        The copies, which start with the same parameters.

    Examples
    --------
    >>> layer = krt.nn.TransformerDecoderLayer(8, 2, dim_feedforward=16)
    >>> decoder = krt.nn.TransformerDecoder(layer, num_layers=2)
    >>> decoder(krt.ones(5, 3, 8), memory=krt.ones(7, 3, 8)).shape
    (5, 3, 8)
    """

    def __init__(
        self, decoder_layer: Module, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Map ``(steps, batch, d_model)`` to the same shape: decode `tgt` given `memory`.

        The arguments are those of :meth:`TransformerDecoderLayer.forward`.
        """
        out = tgt
        for layer in self.layers:
            out = layer(
                out, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                memory_key_padding_mask, bool(tgt_is_causal), memory_is_causal,
            )  # fmt: skip
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """Apply a transformer: an encoder and a decoder.

    Maps a source ``(length, batch, d_model)`` and a target ``(steps, batch, d_model)`` to the shape
    of the target; with `batch_first` the batch is the first axis.

    Parameters
    ----------
    d_model, nhead : int, default 512 and 8
        Number of features and of heads.
    num_encoder_layers, num_decoder_layers : int, default 6
        Number of layers of encoder and decoder.
    dim_feedforward, dropout, activation
        As in :class:`TransformerEncoderLayer`.
    custom_encoder, custom_decoder : Module, optional
        Modules to use instead of the standard encoder and decoder.
    layer_norm_eps, batch_first, norm_first, bias, dtype
        As in :class:`TransformerEncoderLayer`.

    Raises
    ------
    DomainError
        `activation` is unknown.
    ShapeError
        `d_model` is not a multiple of `nhead`.

    Notes
    -----
    Vaswani et al., "Attention is all you need", 2017 (arXiv:1706.03762).

    Examples
    --------
    >>> model = krt.nn.Transformer(8, 2, 1, 1, dim_feedforward=16)
    >>> model(krt.ones(7, 3, 8), krt.ones(5, 3, 8)).shape
    (5, 3, 8)
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Module | None = None, custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True, *, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

        def layer(kind: type[_Block]) -> Module:
            return kind(
                d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                norm_first, bias, dtype=dtype,
            )  # type: ignore[call-arg]  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            layer(TransformerEncoderLayer), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            layer(TransformerDecoderLayer), num_decoder_layers, norm()
        )
        for tensor in self.parameters():
            if tensor.ndim > 1:
                init.xavier_uniform_(tensor)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Map a source ``(length, batch, d_model)`` and a target to the shape of the target.

        Parameters
        ----------
        src, tgt : Tensor
            Sequences to encode, and sequences to decode with attention to the encoded ones.
        src_mask, tgt_mask, memory_mask : Tensor, optional
            `attn_mask` of :class:`MultiheadAttention`: for the encoder, for the decoder's
            self-attention, and for the decoder's attention to the encoder's output.
        src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask : Tensor, optional
            `key_padding_mask` of :class:`MultiheadAttention`, for the same three.
        src_is_causal, tgt_is_causal, memory_is_causal : bool, optional
            State that the mask of the same prefix is causal. You must pass this mask as well.
        """
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        out: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            tgt_is_causal, memory_is_causal,
        )  # fmt: skip
        return out

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: object = dt.float32) -> Tensor:
        """Return a causal mask of shape (sz, sz): minus infinity at later positions, 0 elsewhere.

        Parameters
        ----------
        sz : int
            Number of positions.
        dtype : DType or str, default float32
            Dtype of the mask.

        Examples
        --------
        >>> krt.nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        count = positive("sz", sz)
        return full((count, count), -math.inf, dtype=dtype).triu(1)
