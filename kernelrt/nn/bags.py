"""Rows of tables that integers name, and sums, means and maxima of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.ir.shape import format_shape, total
from kernelrt.tensor.arguments import own_axis, real
from kernelrt.tensor.creation import arange, full, zeros
from kernelrt.tensor.positions import within

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["check_lookup", "embedding", "embedding_bag"]


def check_lookup(
    max_norm: object, norm_type: object, scale_grad_by_freq: object, sparse: object
) -> None:
    """Refuse what tables are not told here, with the way out."""
    real(norm_type, "norm_type")
    if max_norm is not None:
        raise DTypeError(
            "max_norm: expected None, as looking up changes no table; scale it before, with "
            "weight.assign(weight * (max_norm / weight.norm(2, 1, keepdim=True)).clamp(max=1)) "
            "under no_grad"
        )
    if scale_grad_by_freq:
        raise DTypeError(
            "scale_grad_by_freq: expected False; divide weight.grad by how often each row was "
            "used, index.bincount(minlength=rows).clamp(min=1).unsqueeze(1)"
        )
    if sparse:
        raise DTypeError("sparse: expected False, as there are no sparse tensors; leave it out")


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None,  # noqa: A002
    max_norm: None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of `weight` that integers name.

    Parameters
    ----------
    input : Tensor
        Integers of any shape.
    weight : Tensor, shape (rows, width)
        The table.
    padding_idx : int, optional
        A row that gets no gradient from here; counted from the end below 0.
    max_norm, norm_type, scale_grad_by_freq, sparse : optional
        PyTorch's; anything but their defaults is refused, with what to write in its place.
    """
    check_lookup(max_norm, norm_type, scale_grad_by_freq, sparse)
    rows: Tensor = input.embedding(weight)
    if padding_idx is None:
        return rows
    place = own_axis(padding_idx, int(weight.shape[0]), "padding_idx")
    return rows.where((input != place).unsqueeze(-1), rows.detach())


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None,  # noqa: A002
    max_norm: None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The rows of `weight` that integers name, reduced bag by bag.

    Parameters
    ----------
    input : Tensor
        Integers: (bags, n) for bags of one size, or all bags one behind the other.
    weight : Tensor, shape (rows, width)
        The table.
    offsets : Tensor, optional
        Where bags begin in an `input` of one axis, in order; the first one with 0.
    mode : "mean", "sum" or "max"
        What becomes of a bag. An empty one gives zeros.
    per_sample_weights : Tensor, optional
        In the shape of `input`: what rows are multiplied by before they are added.
    include_last_offset : bool
        Whether the last one of `offsets` says where the last bag ends.
    padding_idx : int, optional
        A row that is left out of bags.
    max_norm, norm_type, scale_grad_by_freq, sparse : optional
        PyTorch's; anything but their defaults is refused, with what to write in its place.

    Returns
    -------
    Tensor
        Of shape (bags, width).

    Raises
    ------
    IndexBoundsError
        At run time, where an integer names no row, the first offset is not 0, or one lies behind
        the end of `input`. That offsets ascend is not checked.
    """
    check_lookup(max_norm, norm_type, scale_grad_by_freq, sparse)
    if mode not in ("mean", "sum", "max"):
        raise ShapeError(f"mode: expected 'mean', 'sum' or 'max', not {mode!r}")
    if per_sample_weights is not None:
        if mode != "sum":
            raise ShapeError(f"per_sample_weights: expected mode 'sum' with them, not {mode!r}")
        if tuple(per_sample_weights.dims) != tuple(input.dims):
            raise ShapeError(
                f"per_sample_weights: expected the shape of input, {format_shape(input.dims)}, "
                f"not {format_shape(per_sample_weights.dims)}"
            )
    _check_bags(input, offsets)
    rows: Tensor = input.embedding(weight)
    kept = None
    if padding_idx is not None:
        kept = input != own_axis(padding_idx, int(weight.shape[0]), "padding_idx")
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return _even(rows, kept, mode)
    return _uneven(rows, kept, mode, offsets, include_last_offset)


def _check_bags(index: Tensor, offsets: Tensor | None) -> None:
    if index.ndim == 2 and offsets is not None:
        raise ShapeError("offsets: expected None beside an input of two axes, whose rows are bags")
    if index.ndim == 1 and offsets is None:
        raise ShapeError("offsets: expected where bags begin, for an input of one axis")
    if index.ndim not in (1, 2):
        raise ShapeError(f"input: expected 1 or 2 axes, not shape {format_shape(index.dims)}")
    if offsets is not None and (offsets.ndim != 1 or not offsets.dtype.is_int):
        raise ShapeError(
            f"offsets: expected a vector of integers, not {offsets.dtype.name} of shape "
            f"{format_shape(offsets.dims)}"
        )


def _even(rows: Tensor, kept: Tensor | None, mode: str) -> Tensor:
    """(bags, n, width) reduced over n."""
    if rows.dims[1] == 0:
        return rows.sum(1)
    count = None
    if kept is not None:
        keep = kept.unsqueeze(-1)
        lowest = float("-inf") if mode == "max" else 0.0
        rows = rows.where(keep, lowest)
        count = keep.sum(1)
    if mode == "max":
        most: Tensor = rows.max(1).values
        return most if count is None else most.where(count > 0, 0.0)
    if mode == "sum":
        return rows.sum(1)
    return rows.mean(1) if count is None else rows.sum(1) / count.clamp(min=1)


def _uneven(
    rows: Tensor, kept: Tensor | None, mode: str, offsets: Tensor, closed: bool
) -> Tensor:
    """(n, width) reduced over bags that begin at `offsets`."""
    n, width = rows.dims
    # Stored, so that all are checked: a search in them does not look at each.
    offsets = within(offsets, total((n, 1))).contiguous()
    bags = offsets.dims[0]
    places = arange(n, dtype=offsets.dtype)
    bag = offsets.searchsorted(places, right=True) - 1
    shape = (bags, width)
    dtype = rows.dtype
    ones = full((n,), 1, dt.int64) if kept is None else kept.to(dt.int64)
    count = zeros((bags,), dtype=dt.int64).index_add(0, bag, ones).unsqueeze(-1)
    if mode == "max":
        if kept is not None:
            rows = rows.where(kept.unsqueeze(-1), float("-inf"))
        most = full(shape, float("-inf"), dtype).index_reduce(0, bag, rows, "amax")
        out = most.where(count > 0, 0.0)
    else:
        if kept is not None:
            rows = rows.where(kept.unsqueeze(-1), 0.0)
        out = zeros(shape, dtype=dtype).index_add(0, bag, rows)
        if mode == "mean":
            out = out / count.clamp(min=1)
    return out[:-1] if closed else out
