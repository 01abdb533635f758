"""embedding and embedding_bag look up rows of tables, and their sums, means and maxima."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, GradientError, ShapeError
from kernelrt.ir.shape import dim_max, format_shape, total
from kernelrt.tensor.base import is_parameter
from kernelrt.tensor.free_functions.creation import arange, full, zeros
from kernelrt.tensor.nodes.arguments import own_axis, real
from kernelrt.tensor.nodes.positions import within
from kernelrt.tensor.state import no_grad

if TYPE_CHECKING:
    from kernelrt.ir import Dim
    from kernelrt.ir.size import Size
    from kernelrt.tensor import Tensor

__all__ = ["check_lookup", "embedding", "embedding_bag"]

#: An index that no tensor has: it is beyond the end of the largest possible one.
_NOWHERE = 1 << 62


def check_lookup(
    max_norm: float | None, norm_type: float, scale_grad_by_freq: object, sparse: object
) -> None:
    """Check the options of a lookup. The error for an unsupported option names an alternative."""
    real(norm_type, "norm_type")
    if max_norm is not None and not real(max_norm, "max_norm") >= 0:
        raise DomainError(f"max_norm: expected a number of at least 0, not {max_norm}")
    if scale_grad_by_freq:
        raise DTypeError(
            "scale_grad_by_freq: expected False; divide weight.grad by the number of uses of each "
            "row, index.bincount(minlength=rows).clamp(min=1).unsqueeze(1)"
        )
    if sparse:
        raise DTypeError("sparse: expected False, as kernelrt has no sparse tensors; leave it out")


def _limit(weight: Tensor, index: Tensor, max_norm: float | None, norm_type: float) -> None:
    """Scale the looked-up rows of `weight` down to norms of at most `max_norm`, in place."""
    if max_norm is None:
        return
    if weight.requires_grad and not is_parameter(weight):
        raise GradientError(
            "weight: expected a parameter, not the result of operations, because max_norm changes "
            "weight in place; pass weight.renorm(norm_type, 0, max_norm) and leave out max_norm"
        )
    with no_grad():
        places = index.reshape(-1)
        rows = places.embedding(weight)
        norms = rows.norm(norm_type, 1, keepdim=True)
        # PyTorch adds the same 1e-7 to the norm.
        scaled = rows * (float(max_norm) / (norms + 1e-7))
        weight.index_put_((places,), scaled.where(norms > max_norm, rows))


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None,
    max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Return the rows of `weight` at the given indices.

    Parameters
    ----------
    input : Tensor of integers
        Indices in [0, rows), of any shape ``(*)``.
    weight : Tensor, shape (rows, width)
        The embedding table.
    padding_idx : int, optional
        Index of a row that gets no gradient from this lookup. A negative index counts from the end.
    max_norm : float, optional
        Maximum norm of a row. Rows with a larger norm are scaled down to it before they are
        returned. This changes `weight` in place, and the gradient is that of the scaled rows.
    norm_type : float, default 2.0
        Order of these norms.
    scale_grad_by_freq, sparse : optional
        Options of PyTorch that kernelrt lacks. A value other than the default raises an error,
        which names an alternative.

    Returns
    -------
    Tensor
        Rows of shape ``(*, width)`` in the dtype of `weight`.

    Raises
    ------
    GradientError
        `max_norm` is given, and `weight` is the result of operations that requires a gradient.
    IndexBoundsError
        At run time, if an index is out of range.

    Examples
    --------
    >>> import kernelrt.nn.functional as F
    >>> F.embedding(krt.tensor([1, 1]), krt.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    >>> table = krt.tensor([[3.0, 4.0], [0.3, 0.4]], requires_grad=True)
    >>> rows = F.embedding(krt.tensor([0, 1]), table, max_norm=1.0)
    >>> rows.detach().norm(dim=1).round(decimals=3), table.detach().norm(dim=1).round(decimals=3)
    (tensor([1. , 0.5]), tensor([1. , 0.5]))
    """
    check_lookup(max_norm, norm_type, scale_grad_by_freq, sparse)
    _limit(weight, input, max_norm, norm_type)
    rows: Tensor = input.embedding(weight)
    if padding_idx is None:
        return rows
    kept = input != _padding_row(weight, padding_idx)
    return rows.where(kept.unsqueeze(-1), rows.detach())


def _padding_row(weight: Tensor, padding_idx: int) -> int | Size:
    """Return `padding_idx` as an index from 0; a negative number counts from the end.

    The number of rows may be known only at run time.
    """
    place = own_axis(padding_idx, dim_max(weight.dims[0]), "padding_idx")
    return place if padding_idx >= 0 else weight.shape[0] + padding_idx


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None,
    max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Look up rows of `weight`, and reduce them within each bag.

    Parameters
    ----------
    input : Tensor of integers, shape (bags, n) or (n,)
        Indices in [0, rows). Two axes hold bags of equal size; one axis holds all bags, one after
        the other.
    weight : Tensor, shape (rows, width)
        The embedding table.
    offsets : Tensor of integers, shape (bags,), optional
        Position in `input` at which each bag starts, in ascending order from 0. Required if `input`
        has one axis, and not allowed if it has two.
    max_norm, norm_type : optional
        As in :func:`embedding`.
    scale_grad_by_freq, sparse : optional
        Options of PyTorch that kernelrt lacks. A value other than the default raises an error,
        which names an alternative.
    mode : "mean", "sum" or "max", default "mean"
        How to combine the rows of a bag. An empty bag gives zeros.
    per_sample_weights : Tensor, optional
        Factor of each looked-up row, in the shape of `input`; only for mode "sum".
    include_last_offset : bool, default False
        Whether the last of `offsets` is the end of the last bag.
    padding_idx : int, optional
        Index of a row that is left out of all bags.

    Returns
    -------
    Tensor
        Reduced rows of shape ``(bags, width)`` in the dtype of `weight`.

    Raises
    ------
    DomainError
        `mode` is unknown.
    ShapeError
        `offsets` is missing for an `input` of one axis, or given for two axes; or
        `per_sample_weights` has another shape than `input` or comes without mode "sum".
    IndexBoundsError
        At run time: an index is out of range, the first offset is not 0, or an offset is beyond the
        end of `input`. The order of the offsets is not checked.

    Examples
    --------
    >>> import kernelrt.nn.functional as F
    >>> table = krt.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> F.embedding_bag(krt.tensor([0, 1, 1]), table, krt.tensor([0, 1]), mode="sum").tolist()
    [[1.0, 2.0], [6.0, 8.0]]
    """
    check_lookup(max_norm, norm_type, scale_grad_by_freq, sparse)
    if mode not in ("mean", "sum", "max"):
        raise DomainError(f"mode: expected 'mean', 'sum' or 'max', not {mode!r}")
    if per_sample_weights is not None:
        if mode != "sum":
            raise ShapeError(f"per_sample_weights: expected mode='sum' with weights, not {mode!r}")
        if tuple(per_sample_weights.dims) != tuple(input.dims):
            raise ShapeError(
                f"per_sample_weights: expected the shape of input, {format_shape(input.dims)}, "
                f"not {format_shape(per_sample_weights.dims)}"
            )
    _check_bags(input, offsets)
    _limit(weight, input, max_norm, norm_type)
    rows: Tensor = input.embedding(weight)
    kept = None
    if padding_idx is not None:
        kept = input != _padding_row(weight, padding_idx)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return _even(rows, kept, mode)
    return _uneven(rows, kept, mode, offsets, include_last_offset)


def _check_bags(index: Tensor, offsets: Tensor | None) -> None:
    if index.ndim == 2 and offsets is not None:
        raise ShapeError(
            "offsets: expected None for an input of two axes, whose rows are the bags; leave it out"
        )
    if index.ndim == 1 and offsets is None:
        raise ShapeError(
            "offsets: expected the start of each bag for an input of one axis, not None; or pass "
            "an input of two axes, whose rows are the bags"
        )
    if index.ndim not in (1, 2):
        raise ShapeError(f"input: expected 1 or 2 axes, not shape {format_shape(index.dims)}")
    if offsets is not None and (offsets.ndim != 1 or not offsets.dtype.is_int):
        raise ShapeError(
            f"offsets: expected a vector of integers, not {offsets.dtype.name} of shape "
            f"{format_shape(offsets.dims)}"
        )


def _even(rows: Tensor, kept: Tensor | None, mode: str) -> Tensor:
    """Reduce `rows` of shape (bags, n, width) over axis 1."""
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
    """Reduce `rows` of shape (n, width) within each bag; the bags begin at `offsets`."""
    n, width = rows.dims
    # The offsets are stored, so that each is checked: the binary search does not read all of them.
    offsets = within(offsets, total((n, 1))).contiguous()
    bags = offsets.dims[0]
    if bags == 0:
        return rows[:0]
    places = arange(n, dtype=offsets.dtype)
    bag = offsets.searchsorted(places, right=True) - 1
    shape = (bags, width)
    dtype = rows.dtype
    ones = full((n,), 1, dt.int64) if kept is None else kept.to(dt.int64)
    count = zeros((bags,), dtype=dt.int64).index_add(0, bag, ones).unsqueeze(-1)
    if mode == "max":
        if kept is not None:
            rows = rows.where(kept.unsqueeze(-1), float("-inf"))
        out = _first_maxima(rows, bag, kept, shape)
    else:
        if kept is not None:
            rows = rows.where(kept.unsqueeze(-1), 0.0)
        out = zeros(shape, dtype=dtype).index_add(0, bag, rows)
        if mode == "mean":
            out = out / count.clamp(min=1)
    return out[:-1] if closed else out


def _first_maxima(
    rows: Tensor, bag: Tensor, kept: Tensor | None, shape: tuple[Dim, ...]
) -> Tensor:
    """Return the maxima of bags, 0 for empty bags. Of equal maxima, the first gets the gradient."""
    apart = rows.detach()
    most = full(shape, float("-inf"), rows.dtype).index_reduce(0, bag, apart, "amax")
    hits = (apart == most.index_select(0, bag)).logical_or(apart.isnan())
    if kept is not None:
        hits = hits.logical_and(kept.unsqueeze(-1))
    places = arange(rows.dims[0]).unsqueeze(-1)
    found = places.where(hits, _NOWHERE)
    first = full(shape, _NOWHERE, dt.int64).index_reduce(0, bag, found, "amin")
    chosen = rows.where(places == first.index_select(0, bag), 0.0)
    return zeros(shape, dtype=rows.dtype).index_add(0, bag, chosen)
