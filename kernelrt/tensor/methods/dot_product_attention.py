"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir import Dim, Op, UOp
from kernelrt.ir.shape import broadcast, broadcasts_to, format_shape, format_size, is_static, same
from kernelrt.tensor.autograd.tags import custom, detach
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import real, tensor_of
from kernelrt.tensor.nodes.reductions import kept, softmax_rule
from kernelrt.tensor.operation import operation

if TYPE_CHECKING:
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["AttentionMethods", "scaled_dot_product_attention"]


class AttentionMethods(_Below):
    """Scaled dot-product attention."""

    __slots__ = ()

    @operation
    def _attention_weights(self, key: Self, mask: Self | None, causal: bool, scale: float) -> Self:
        """Return the softmax of the scores in the accumulation dtype; fully masked rows are 0."""
        wide = self.dtype.accumulator
        rows, columns = self.cast(wide), key.cast(wide)
        scores = rows.matmul(columns.mT) * scale
        x = scores.uop
        if causal:
            query, place = (build.iota_along(x.shape, len(x.shape) - k) for k in (2, 1))
            x = build.where(query.alu(Op.LT, place), -math.inf, x)
            return self._of(x).softmax(-1)
        if mask is None:
            return scores.softmax(-1)
        given = build.broadcast_to(mask.uop, x.shape)
        if mask.dtype.is_bool:
            x = build.where(given, x, -math.inf)
        else:
            x = x.alu(Op.ADD, given.cast(wide))
        return self._of(_softmax(x))


def _softmax(x: UOp) -> UOp:
    """Return the softmax along the last axis; rows that are all minus infinity give zeros."""
    axes = (len(x.shape) - 1,)
    top = kept(detach(x), Op.MAX, axes)
    nothing = top.eq(build.full(-math.inf, x.dtype, top.shape))
    held = build.where(nothing, 0, top)
    powers = x.alu(Op.SUB, build.expand(held, x.shape)).alu(Op.EXP)
    total = build.where(nothing, 1, kept(powers, Op.ADD, axes))
    return custom(powers.alu(Op.DIV, build.expand(total, x.shape)), softmax_rule, x, arg=axes)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``softmax(query @ key.mT * scale + mask) @ value``.

    A large weight matrix is not stored: blocks of its rows are computed as they are used. float16
    and bfloat16 inputs are computed in float32 and rounded once.

    Parameters
    ----------
    query, key, value : Tensor of floats
        Tensors of shapes (..., L, E), (..., S, E) and (..., S, V); the leading axes broadcast.
    attn_mask : Tensor, optional
        Mask that broadcasts to (..., L, S): bools that are True for the keys to use, or floats to
        add to the scores. A query without any key to use gives zeros.
    dropout_p : float, default 0.0
        Probability to drop a weight; the remaining weights are divided by ``1 - dropout_p``.
    is_causal : bool, default False
        Whether query i uses only the keys up to i. Not together with `attn_mask`.
    scale : float, optional
        Factor of the scores, ``1 / sqrt(E)`` by default.
    enable_gqa : bool, default False
        Whether several query heads share one head of keys and values (grouped-query attention). The
        heads are the third axis from the end.

    Returns
    -------
    Tensor of floats
        Shape (..., L, V), dtype of `query`.

    Raises
    ------
    ShapeError
        The shapes do not match, or `attn_mask` is given together with `is_causal`.
    DTypeError
        The tensors are not floats of one dtype, or the mask is neither bools nor floats.

    Notes
    -----
    From Vaswani et al., "Attention Is All You Need", 2017 (arXiv:1706.03762). Grouped queries are
    from Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
    Checkpoints", 2023 (arXiv:2305.13245).

    Examples
    --------
    >>> from kernelrt.nn import functional
    >>> query, key = krt.zeros(1, 2), krt.eye(2)
    >>> value = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> functional.scaled_dot_product_attention(query, key, value).tolist()
    [[2.0, 3.0]]
    """
    names = ("query", "key", "value")
    _check(names, (query, key, value))
    lead, length, width = query.dims[:-2], query.dims[-2], query.dims[-1]
    if not same(key.dims[-1], width) or not same(key.dims[-2], value.dims[-2]):
        raise ShapeError(
            "scaled_dot_product_attention: expected query, key and value of shapes (..., L, E), "
            "(..., S, E) and (..., S, V), not of shapes "
            f"{', '.join(format_shape(t.dims) for t in (query, key, value))}"
        )
    leads = (lead[:-1], key.dims[:-3]) if enable_gqa else (lead, key.dims[:-2])
    heads = lead[-1:] if enable_gqa else ()
    mask = None
    if attn_mask is not None:
        scores = (*broadcast(*leads), *heads, length, key.dims[-2])
        mask = _checked_mask(query, attn_mask, is_causal, scores)
    factor = _scale(width) if scale is None else real(scale, "scale")
    q, k, v = query, key, value
    if enable_gqa:
        q, k, v = _grouped(q, k, v)
        if mask is not None and mask.ndim > 2:
            mask = _grouped_mask(mask, q)
    weights = q._attention_weights(k, mask, is_causal, factor)
    if dropout_p:
        weights = weights.dropout(dropout_p)
    out = (weights @ v.cast(weights.dtype)).cast(query.dtype)
    if not enable_gqa:
        return out
    whole = broadcast(*leads, value.dims[:-3])
    return out.reshape(*whole, lead[-1], length, value.dims[-1])


def _check(names: tuple[str, ...], tensors: tuple[Tensor, ...]) -> None:
    for name, x in zip(names, tensors, strict=True):
        tensor_of(x, name)
        if x.ndim < 2:
            raise ShapeError(f"{name}: expected at least 2 axes, not shape {format_shape(x.dims)}")
        if not x.dtype.is_float or x.dtype is not tensors[0].dtype:
            raise DTypeError(
                f"{name}: expected floats of one dtype, not {x.dtype.name} with a query of "
                f"{tensors[0].dtype.name}; cast them to the same dtype"
            )


def _checked_mask(
    query: Tensor, mask: Tensor, is_causal: bool, scores: tuple[Dim, ...]
) -> Tensor:
    given = query._lift(mask, "attn_mask")
    if is_causal:
        raise ShapeError(
            "attn_mask, is_causal: expected at most one of the two; pass one attn_mask that also "
            "hides the later keys from each query"
        )
    if not given.dtype.is_bool and not given.dtype.is_float:
        raise DTypeError(
            f"attn_mask: expected bools or floats, not {given.dtype.name}; pass mask != 0"
        )
    if not broadcasts_to(given.dims, scores):
        known = is_static(given.dims) and is_static(scores)
        raise ShapeError(
            f"attn_mask: shape {format_shape(given.dims)} does not broadcast to the shape "
            f"{format_shape(scores)} of the scores; each axis must have size 1 or the same size"
            + ("" if known else ", given by the same Variable if known only at run time")
        )
    return given


def _scale(width: Dim) -> float:
    if not isinstance(width, int):
        raise ShapeError(
            "scale: expected a number, not None, since the size E of the last axis of query, which "
            "gives the default, is known only at run time; pass a number"
        )
    return 1 / math.sqrt(width) if width else 1.0


def _grouped(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split the query heads into groups that share a head of keys, and give keys a group axis."""
    if min(q.ndim, k.ndim, v.ndim) < 3:
        raise ShapeError(
            "enable_gqa: expected at least 3 axes, with the heads in axis -3, not query, key and "
            f"value of {q.ndim}, {k.ndim} and {v.ndim} axes"
        )
    heads, shared = (t._static_size(t.ndim - 3, "enable_gqa") for t in (q, k))
    if not same(v.dims[-3], shared) or shared == 0 or heads % shared:
        raise ShapeError(
            f"enable_gqa: expected equal numbers of key and value heads that divide the {heads} "
            f"query heads, not {shared} and {format_size(v.dims[-3])}"
        )
    grouped = q.unflatten(-3, (shared, heads // shared))
    return grouped, k.unsqueeze(-3), v.unsqueeze(-3)


def _grouped_mask(mask: Tensor, q: Tensor) -> Tensor:
    if same(mask.dims[-3], 1):
        return mask.unsqueeze(-3)
    return mask.unflatten(-3, q.dims[-4:-2])
