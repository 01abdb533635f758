"""Transformers (Vaswani et al., arXiv:1706.03762), with PyTorch's names."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
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
        raise ShapeError(f"activation: expected 'relu', 'gelu' or a function, not {given!r}")
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
        """Add `inner` of `x` to `x`, with normalization `k` before or after it."""
        norm, drop = getattr(self, f"norm{k}"), getattr(self, f"dropout{k}")
        out: Tensor = x + drop(inner(norm(x))) if self.norm_first else norm(x + drop(inner(x)))
        return out


class TransformerEncoderLayer(_Block):
    """Self-attention and a feed-forward network, each with a residual connection.

    Parameters
    ----------
    d_model, nhead, dim_feedforward : int
        Number of features, of heads, and of features inside the feed-forward network.
    dropout : float
        Dropout probability, in training.
    activation : "relu", "gelu" or callable
        Activation of the feed-forward network.
    layer_norm_eps : float
        Added to the variance in layer normalization.
    batch_first : bool
        As in :class:`MultiheadAttention`.
    norm_first : bool
        Whether to normalize the inputs of attention and network, instead of the sums.
    bias : bool
        Whether to use biases.
    dtype : DType or str
        Floating-point dtype of the parameters.
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
        """Encode `src`; the masks are those of :class:`MultiheadAttention`."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )[0]  # fmt: skip

        return self._residual(self._residual(src, 1, attend), 2, self._fed)


class TransformerDecoderLayer(_Block):
    """Self-attention, attention to the encoder's output, and a feed-forward network.

    The parameters are those of :class:`TransformerEncoderLayer`.
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
        """Decode `tgt` given `memory`; the masks are those of :class:`MultiheadAttention`."""

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
    """A stack of encoder layers.

    Parameters
    ----------
    encoder_layer : TransformerEncoderLayer
        Layer that is copied for each layer of the stack.
    num_layers : int
        Number of layers.
    norm : Module, optional
        Applied to the result.
    enable_nested_tensor, mask_check : bool
        Accepted for compatibility; kernelrt has no nested tensors.
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
        """Encode `src`; the masks are those of :class:`MultiheadAttention`."""
        out = src
        for layer in self.layers:
            out = layer(out, mask, src_key_padding_mask, bool(is_causal))
        return out if self.norm is None else self.norm(out)


class TransformerDecoder(Module):
    """A stack of decoder layers.

    Parameters
    ----------
    decoder_layer : TransformerDecoderLayer
        Layer that is copied for each layer of the stack.
    num_layers : int
        Number of layers.
    norm : Module, optional
        Applied to the result.
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
        """Decode `tgt` given `memory`; the masks are those of :class:`MultiheadAttention`."""
        out = tgt
        for layer in self.layers:
            out = layer(
                out, memory, tgt_mask, memory_mask, tgt_key_padding_mask,
                memory_key_padding_mask, bool(tgt_is_causal), memory_is_causal,
            )  # fmt: skip
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """A transformer: an encoder and a decoder.

    Parameters
    ----------
    d_model, nhead : int
        Number of features and of heads.
    num_encoder_layers, num_decoder_layers : int
        Number of layers of encoder and decoder.
    dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, dtype
        As in :class:`TransformerEncoderLayer`.
    custom_encoder, custom_decoder : Module, optional
        Modules to use instead of the standard encoder and decoder.
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
        """Encode `src`, and decode `tgt` given the result."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        out: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            tgt_is_causal, memory_is_causal,
        )  # fmt: skip
        return out

    @staticmethod
    def generate_square_subsequent_mask(sz: int, dtype: object = dt.float32) -> Tensor:
        """Return a causal mask of shape (sz, sz): minus infinity at later positions, else 0."""
        count = positive("sz", sz)
        return full((count, count), -math.inf, dtype=dtype).triu(1)
