"""Multi-head attention (Vaswani et al., arXiv:1706.03762), with PyTorch's name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import format_shape, same
from kernelrt.nn import init
from kernelrt.nn.layers import Linear, parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import zeros
from kernelrt.tensor.free_functions.joining import cat
from kernelrt.tensor.methods.dot_product_attention import scaled_dot_product_attention
from kernelrt.tensor.nodes.arguments import tensor_of

if TYPE_CHECKING:
    from kernelrt.ir import Dim

__all__ = ["MultiheadAttention"]


def _check_mask(mask: Any, name: str) -> Tensor:
    if not isinstance(mask, Tensor) or not (mask.dtype.is_bool or mask.dtype.is_float):
        raise DTypeError(
            f"{name}: expected a Tensor of bools (True masks a position) or of floats (added to "
            f"the scores), not {getattr(mask, 'dtype', type(mask).__name__)}"
        )
    return mask


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Convert a mask to floats that are added to scores."""
    if mask.dtype.is_bool:
        return zeros(*mask.dims, dtype=like.dtype).masked_fill(mask, -math.inf)
    return mask.cast(like.dtype)


class MultiheadAttention(Module):
    """Apply multi-head attention with input and output projections.

    Maps queries ``(queries, batch, embed_dim)``, keys ``(keys, batch, kdim)`` and values
    ``(keys, batch, vdim)`` to a result ``(queries, batch, embed_dim)`` and attention weights
    ``(batch, queries, keys)``. The batch may be missing.

    Parameters
    ----------
    embed_dim : int
        Number of features of the queries and of the result.
    num_heads : int
        Number of heads; each gets ``embed_dim / num_heads`` features.
    dropout : float, default 0.0
        Dropout probability of the attention weights, in training.
    bias : bool, default True
        Whether the projections have biases.
    add_bias_kv : bool, default False
        Whether to append a learned key to the keys, and a learned value to the values.
    add_zero_attn : bool, default False
        Whether to append a key of zeros to the keys, and a value of zeros to the values.
    kdim, vdim : int, optional
        Number of features of keys and of values; `embed_dim` by default.
    batch_first : bool, default False
        Whether inputs have the axes (batch, length, features) instead of (length, batch, features).
    dtype : DType or str, default float32
        Floating-point dtype of the parameters.

    Attributes
    ----------
    in_proj_weight : Tensor of shape (3 * embed_dim, embed_dim), or None
        Weights that project queries, keys and values, one below the other. If `kdim` or `vdim`
        differs from `embed_dim`, this is None, and the layer has ``q_proj_weight``,
        ``k_proj_weight`` and ``v_proj_weight`` instead.
    in_proj_bias : Tensor of shape (3 * embed_dim,), or None
        Biases of the three projections.
    out_proj : Linear
        Projection of the result.
    bias_k, bias_v : Tensor of shape (1, 1, embed_dim), or None
        Learned key and value of `add_bias_kv`.

    Raises
    ------
    DomainError
        `dropout` is not from 0 to 1.
    ShapeError
        `embed_dim` is not a multiple of `num_heads`; in a call: inputs or masks have other shapes.

    Notes
    -----
    Vaswani et al., "Attention is all you need", 2017 (arXiv:1706.03762).

    Examples
    --------
    >>> attention = krt.nn.MultiheadAttention(8, 2)
    >>> query, memory = krt.ones(5, 3, 8), krt.ones(7, 3, 8)
    >>> result, weights = attention(query, memory, memory)
    >>> result.shape, weights.shape
    ((5, 3, 8), (3, 5, 7))
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, *, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed_dim = positive("embed_dim", embed_dim)
        self.num_heads = positive("num_heads", num_heads)
        if embed_dim % num_heads:
            raise ShapeError(
                f"embed_dim: expected a multiple of num_heads, {num_heads}, not {embed_dim}"
            )
        if not 0 <= dropout <= 1:
            raise DomainError(f"dropout: expected a probability from 0 to 1, not {dropout}")
        self.dropout = float(dropout)
        self.kdim = embed_dim if kdim is None else positive("kdim", kdim)
        self.vdim = embed_dim if vdim is None else positive("vdim", vdim)
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.head_dim = embed_dim // num_heads
        together = self.kdim == self.vdim == embed_dim
        self.in_proj_weight = parameter((3 * embed_dim, embed_dim), dtype) if together else None
        self.q_proj_weight = None if together else parameter((embed_dim, embed_dim), dtype)
        self.k_proj_weight = None if together else parameter((embed_dim, self.kdim), dtype)
        self.v_proj_weight = None if together else parameter((embed_dim, self.vdim), dtype)
        self.in_proj_bias = parameter((3 * embed_dim,), dtype) if bias else None
        self.bias_k = parameter((1, 1, embed_dim), dtype) if add_bias_kv else None
        self.bias_v = parameter((1, 1, embed_dim), dtype) if add_bias_kv else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights (Glorot's uniform distribution) and set biases to 0."""
        for weight in (
            self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        ):  # fmt: skip
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        for value in (self.bias_k, self.bias_v):
            if value is not None:
                init.xavier_normal_(value)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Map ``(queries, batch, embed_dim)`` to the same shape: attend to `key` and `value`.

        Parameters
        ----------
        query, key, value : Tensor
            Axes (length, batch, features), (batch, length, features) with `batch_first`, or
            (length, features).
        key_padding_mask : Tensor, shape (batch, keys), optional
            Bools that are True where a key is padding, or floats to add to the scores.
        need_weights : bool, default True
            Whether to return the attention weights as well. Without them, attention takes less
            memory.
        attn_mask : Tensor, optional
            Shape (queries, keys) or (batch * heads, queries, keys): bools that are True where a
            query must not see a key, or floats to add to the scores.
        average_attn_weights : bool, default True
            Whether to average the returned weights over heads.
        is_causal : bool, default False
            States that `attn_mask` is a causal mask. You must pass `attn_mask` as well.

        Returns
        -------
        output : Tensor
            Result, of the shape of `query`.
        weights : Tensor or None
            Attention weights, of shape (batch, queries, keys), or (batch, heads, queries, keys) if
            they are not averaged.

        Raises
        ------
        ShapeError
            Inputs or masks have other shapes, or `is_causal` comes without `attn_mask`.
        DTypeError
            A mask holds neither bools nor floats.

        Examples
        --------
        The mask keeps the first query from the second key:

        >>> attention = krt.nn.MultiheadAttention(4, 1)
        >>> x, mask = krt.ones(2, 4), krt.tensor([[False, True], [False, False]])
        >>> attention(x, x, x, attn_mask=mask)[1].tolist()
        [[1.0, 0.0], [0.5, 0.5]]
        """
        single = query.ndim == 2
        self._check(query, key, value)
        if is_causal and attn_mask is None:
            raise ShapeError(
                "attn_mask: is_causal=True needs a causal mask, but attn_mask is None; pass "
                "Transformer.generate_square_subsequent_mask(size)"
            )
        if single:
            q, k, v = (x.unsqueeze(0) for x in (query, key, value))
        elif self.batch_first:
            q, k, v = query, key, value
        else:
            q, k, v = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._projected(q, k, v, shared=query is key is value)
        batch, count = q.dims[0], q.dims[1]
        mask = self._mask(attn_mask, key_padding_mask, q, k, single=single)
        k, v, mask = self._extended(k, v, mask)
        q, k, v = (
            x.reshape(batch, x.dims[1], self.num_heads, self.head_dim).transpose(1, 2)
            for x in (q, k, v)
        )
        rate = self.dropout if self.training else 0.0
        if need_weights:
            scores = (q * self.head_dim**-0.5) @ k.mT
            weights = (scores if mask is None else scores + mask).softmax(-1)
            out = weights.dropout(rate) @ v
        else:
            weights = None
            out = scaled_dot_product_attention(q, k, v, mask, rate)
        out = self.out_proj(out.transpose(1, 2).reshape(batch, count, self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if single:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        sizes = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        for (name, size), x in zip(sizes.items(), (query, key, value), strict=True):
            tensor_of(x, name)
            if x.ndim not in (2, 3) or x.ndim != query.ndim or not same(x.dims[-1], size):
                raise ShapeError(
                    f"{name}: expected {query.ndim if query.ndim in (2, 3) else '2 or 3'} axes, "
                    f"the last of size {size}, not shape {format_shape(x.dims)}"
                )

    def _projected(
        self, q: Tensor, k: Tensor, v: Tensor, *, shared: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        bias = self.in_proj_bias
        if self.in_proj_weight is not None and shared:
            one, two, three = q.linear(self.in_proj_weight, bias).chunk(3, -1)
            return one, two, three
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            assert self.q_proj_weight is not None
            assert self.k_proj_weight is not None
            assert self.v_proj_weight is not None
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        one, two, three = (
            x.linear(w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)
        )
        return one, two, three

    def _mask(
        self, mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor, *, single: bool
    ) -> Tensor | None:
        """Return both masks as one tensor to add to scores (batch, heads, queries, keys).

        Return None if there is no mask.
        """
        out: Tensor | None = None
        batch, queries, keys = q.dims[0], q.dims[1], k.dims[1]
        if mask is not None:
            _check_mask(mask, "attn_mask")
            whole = (batch * self.num_heads, queries, keys)
            if mask.ndim == 3 and _fits(mask, whole):
                out = _added(mask, q).reshape(batch, self.num_heads, queries, keys)
            elif _fits(mask, (queries, keys)):
                out = _added(mask, q)
            else:
                raise ShapeError(
                    f"attn_mask: expected the shape {format_shape((queries, keys))} or "
                    f"{format_shape(whole)}, not {format_shape(mask.dims)}"
                )
        if padding is not None:
            _check_mask(padding, "key_padding_mask")
            wanted = (keys,) if single else (batch, keys)
            if not _fits(padding, wanted):
                raise ShapeError(
                    f"key_padding_mask: expected the shape {format_shape(wanted)}, not "
                    f"{format_shape(padding.dims)}"
                )
            line = _added(padding, q).reshape(batch, 1, 1, keys)
            out = line if out is None else out + line
        return out

    def _extended(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the learned key and value, and a key and value of zeros, if the layer has them."""
        batch = k.dims[0]
        if self.bias_k is not None and self.bias_v is not None:
            k = cat([k, self.bias_k.expand(batch, 1, self.embed_dim)], 1)
            v = cat([v, self.bias_v.expand(batch, 1, self.embed_dim)], 1)
            mask = None if mask is None else mask.pad((0, 1))
        if self.add_zero_attn:
            k, v = (x.pad((0, 0, 0, 1)) for x in (k, v))
            mask = None if mask is None else mask.pad((0, 1))
        return k, v, mask

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return f"{self.embed_dim}, {self.num_heads}"


def _fits(x: Tensor, shape: tuple[Dim, ...]) -> bool:
    return x.ndim == len(shape) and all(map(same, x.dims, shape))
