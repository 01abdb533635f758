"""embedding and embedding_bag: rows of tables, and their sums, means and maxima."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelrt import dtype as dt
from kernelrt.errors import DTypeError, GradientError, ShapeError
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

#: A place behind the end of any tensor.
_NOWHERE = 1 << 62


def check_lookup(
    max_norm: float | None, norm_type: float, scale_grad_by_freq: object, sparse: object
) -> None:
    """Check how tables are changed; refuse what is not told here, with the way out."""
    real(norm_type, "norm_type")
    if max_norm is not None and not real(max_norm, "max_norm") >= 0:
        raise ShapeError(f"max_norm: expected a number of at least 0, not {max_norm}")
    if scale_grad_by_freq:
        raise DTypeError(
            "scale_grad_by_freq: expected False; divide weight.grad by how often each row was "
            "used, index.bincount(minlength=rows).clamp(min=1).unsqueeze(1)"
        )
    if sparse:
        raise DTypeError("sparse: expected False, as there are no sparse tensors; leave it out")


def _limit(weight: Tensor, index: Tensor, max_norm: float | None, norm_type: float) -> None:
    """Scale the rows of `weight` that are looked up to norms of at most `max_norm`, in place."""
    if max_norm is None:
        return
    if weight.requires_grad and not is_parameter(weight):
        raise GradientError(
            "max_norm: it changes the table in place, which is the result of operations here and "
            "would lose its gradient; pass weight.renorm(norm_type, 0, max_norm) without max_norm"
        )
    with no_grad():
        places = index.reshape(-1)
        rows = places.embedding(weight)
        norms = rows.norm(norm_type, 1, keepdim=True)
        # PyTorch adds so much to the norm that it divides by.
        scaled = rows * (float(max_norm) / (norms + 1e-7))
        weight.index_put_((places,), scaled.where(norms > max_norm, rows))


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None,
    max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
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
    max_norm : float, optional
        Rows that are looked up are first scaled to it where their norms are greater. This changes
        `weight` in place; the gradient is that of the rows as they are then.
    norm_type : float
        The order of these norms.
    scale_grad_by_freq, sparse : optional
        PyTorch's; anything but their defaults is refused, with what to write in its place.

    Raises
    ------
    GradientError
        There is a `max_norm`, and `weight` is the result of operations and has a gradient.

    Examples
    --------
    >>> import kernelrt as krt
    >>> import kernelrt.nn.functional as F
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
    """Return the row that `padding_idx` names; negative ones count from the end.

    How many rows there are may be known only at run time.
    """
    place = own_axis(padding_idx, dim_max(weight.dims[0]), "padding_idx")
    return place if padding_idx >= 0 else weight.shape[0] + padding_idx


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None,
    max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
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
    max_norm, norm_type : optional
        As of :func:`embedding`.
    scale_grad_by_freq, sparse : optional
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
    """The maxima of bags, 0 where one keeps none. The first of equal elements gets the gradient."""
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
