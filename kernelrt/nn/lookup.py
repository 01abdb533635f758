"""Embedding layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.nn import init
from kernelrt.nn.bags import check_lookup, embedding, embedding_bag
from kernelrt.nn.layers import parameter, positive
from kernelrt.nn.module import Module
from kernelrt.tensor.free_functions.creation import arange
from kernelrt.tensor.nodes.arguments import flag, own_axis

if TYPE_CHECKING:
    from kernelrt.tensor import Tensor

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    weight: Tensor
    padding_idx: int | None
    max_norm: float | None
    norm_type: float

    def reset_parameters(self) -> None:
        """Draw new initial values of the table, with zeros in the row of `padding_idx`."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            row = arange(self.num_embeddings).unsqueeze(1) == self.padding_idx
            self.weight.assign(self.weight.detach().masked_fill(row, 0.0))

    def _set_table(
        self, rows: int, width: int, padding_idx: int | None, weight: Tensor | None, dtype: object
    ) -> None:
        self.num_embeddings = positive("num_embeddings", rows)
        self.embedding_dim = positive("embedding_dim", width)
        self.padding_idx = None
        if padding_idx is not None:
            self.padding_idx = own_axis(padding_idx, rows, "padding_idx")
        if weight is None:
            self.weight = parameter((rows, width), dtype)
            self.reset_parameters()
            return
        if tuple(weight.shape) != (rows, width):
            raise ShapeError(
                f"_weight: expected shape {(rows, width)}, not {format_shape(weight.dims)}"
            )
        self.weight = weight if weight.requires_grad else weight.detach().requires_grad_()

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        given = {"padding_idx": self.padding_idx, "max_norm": self.max_norm}
        return text + "".join(f", {k}={v}" for k, v in given.items() if v is not None)


def _check_table(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise ShapeError(
            f"embeddings: expected shape (rows, width), not {format_shape(embeddings.dims)}"
        )
    if not embeddings.dtype.is_float:
        raise DTypeError(
            f"embeddings: expected a floating-point dtype, not {embeddings.dtype.name}"
        )
    rows, width = embeddings.shape
    return int(rows), int(width)


class Embedding(_Table):
    """Look up rows of a table by integer index.

    Maps integers of shape ``(*)`` to ``(*, embedding_dim)``.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Number of rows of the table, and of elements in a row.
    padding_idx : int, optional
        Index of a row that is initialized to zeros and gets no gradient. A negative index counts
        from the end.
    max_norm : float, optional
        Maximum norm of a row: each lookup first scales down the rows whose norm is larger.
    norm_type : float, default 2.0
        Order of these norms.
    scale_grad_by_freq, sparse : optional
        Options of PyTorch that kernelrt lacks. A value other than the default raises an error,
        which names an alternative.
    _weight : Tensor, shape (num_embeddings, embedding_dim), optional
        Initial table. Use :meth:`from_pretrained` instead.
    dtype : DType or str, default float32
        Floating-point dtype of the table.

    Attributes
    ----------
    weight : Tensor, shape (num_embeddings, embedding_dim)
        Initialized from the standard normal distribution.

    Raises
    ------
    DomainError
        `max_norm` is negative.
    ShapeError
        A size is below 1, or `padding_idx` is out of range.
    IndexBoundsError
        At run time, if an index is outside of [0, num_embeddings).

    Examples
    --------
    >>> layer = krt.nn.Embedding(10, 3, padding_idx=0)
    >>> rows = layer(krt.tensor([[0, 4], [9, 0]]))
    >>> rows.shape, rows[0, 0].tolist()
    ((2, 2, 3), [0.0, 0.0, 0.0])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, _weight: Tensor | None = None, *, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        check_lookup(max_norm, norm_type, scale_grad_by_freq, sparse)
        self.max_norm, self.norm_type = max_norm, norm_type
        self._set_table(num_embeddings, embedding_dim, padding_idx, _weight, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:  # fmt: skip
        """Return a layer with a given table.

        Parameters
        ----------
        embeddings : Tensor, shape (rows, width)
            Floating-point table. If it is a parameter, it becomes the layer's `weight` itself;
            otherwise `weight` is a new parameter with its values.
        freeze : bool, default True
            Whether to freeze the table.
        padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse : optional
            As in the class.

        Raises
        ------
        ShapeError
            `embeddings` does not have two axes.
        DTypeError
            `embeddings` does not have a floating-point dtype.

        Examples
        --------
        >>> layer = krt.nn.Embedding.from_pretrained(krt.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> layer(krt.tensor([1, 0])).tolist(), layer.weight.requires_grad
        ([[3.0, 4.0], [1.0, 2.0]], False)
        """
        rows, width = _check_table(embeddings)
        made = cls(
            rows, width, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings
        )
        made.weight.requires_grad_(not flag(freeze, "freeze"))
        return made

    def forward(self, input: Tensor) -> Tensor:
        """Map integers of shape ``(*)`` to ``(*, embedding_dim)``."""
        return embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type)


class EmbeddingBag(_Table):
    """Look up bags of rows of a table and reduce each to one row.

    Maps integers of shape ``(bags, n)``, or integers of shape ``(n,)`` and offsets of shape
    ``(bags,)``, to ``(bags, embedding_dim)``. See :func:`kernelrt.nn.functional.embedding_bag`.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Number of rows of the table, and of elements in a row.
    max_norm, norm_type : optional
        As in :class:`Embedding`.
    scale_grad_by_freq, sparse : optional
        Options of PyTorch that kernelrt lacks. A value other than the default raises an error,
        which names an alternative.
    mode : "mean", "sum" or "max", default "mean"
        How to combine the rows of a bag.
    _weight : Tensor, shape (num_embeddings, embedding_dim), optional
        Initial table. Use :meth:`from_pretrained` instead.
    include_last_offset : bool, default False
        Whether the last offset is the end of the last bag.
    padding_idx : int, optional
        Index of a row that is left out of all bags.
    dtype : DType or str, default float32
        Floating-point dtype of the table.

    Attributes
    ----------
    weight : Tensor, shape (num_embeddings, embedding_dim)
        Initialized from the standard normal distribution.

    Raises
    ------
    DomainError
        `mode` is unknown, or `max_norm` is negative.
    ShapeError
        A size is below 1, or `padding_idx` is out of range.
    IndexBoundsError
        At run time, if an index is outside of [0, num_embeddings).

    Examples
    --------
    >>> layer = krt.nn.EmbeddingBag.from_pretrained(krt.tensor([[1.0], [3.0], [8.0]]), mode="sum")
    >>> layer(krt.tensor([[0, 1], [2, 2]])).tolist()
    [[4.0], [16.0]]
    >>> layer(krt.tensor([0, 1, 2]), offsets=krt.tensor([0, 1])).tolist()
    [[1.0], [11.0]]
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
        sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
        padding_idx: int | None = None, *, dtype: object = dt.float32,
    ) -> None:  # fmt: skip
        check_lookup(max_norm, norm_type, scale_grad_by_freq, sparse)
        self.max_norm, self.norm_type = max_norm, norm_type
        if mode not in ("mean", "sum", "max"):
            raise DomainError(f"mode: expected 'mean', 'sum' or 'max', not {mode!r}")
        self.mode = mode
        self.include_last_offset = flag(include_last_offset, "include_last_offset")
        self._set_table(num_embeddings, embedding_dim, padding_idx, _weight, dtype)

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
        sparse: bool = False, include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> Self:  # fmt: skip
        """Return a layer with a given table; see :meth:`Embedding.from_pretrained`.

        Parameters
        ----------
        embeddings : Tensor, shape (rows, width)
            Floating-point table.
        freeze : bool, default True
            Whether to freeze the table.
        max_norm, norm_type, scale_grad_by_freq, mode, sparse : optional
            As in the class.
        include_last_offset, padding_idx : optional
            As in the class.

        Raises
        ------
        ShapeError
            `embeddings` does not have two axes.
        DTypeError
            `embeddings` does not have a floating-point dtype.

        Examples
        --------
        >>> layer = krt.nn.EmbeddingBag.from_pretrained(krt.tensor([[1.0], [3.0]]), mode="max")
        >>> layer(krt.tensor([[0, 1]])).tolist()
        [[3.0]]
        """
        rows, width = _check_table(embeddings)
        made = cls(
            rows, width, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
            include_last_offset, padding_idx,
        )  # fmt: skip
        made.weight.requires_grad_(not flag(freeze, "freeze"))
        return made

    def forward(
        self, input: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Map ``(bags, n)``, or ``(n,)`` with offsets ``(bags,)``, to ``(bags, embedding_dim)``."""
        return embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, mode=self.mode,
            padding_idx=self.padding_idx, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes and the mode as text."""
        return f"{super().extra_repr()}, mode={self.mode!r}"
