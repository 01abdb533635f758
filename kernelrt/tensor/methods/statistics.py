"""Statistics, distances and norms along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar, cast

from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.ir import Op
from kernelrt.ir.shape import broadcast, format_shape, same
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, real, tensor_of
from kernelrt.tensor.nodes.composite_ops import at_least
from kernelrt.tensor.operation import operations

if TYPE_CHECKING:
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.einsum import EinsumMethods as _Below
    from kernelrt.tensor.methods.reduction import Dims
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["Extrema", "StatisticsMethods", "distances", "std_mean", "var_mean"]

_T = TypeVar("_T")


class Extrema(NamedTuple, Generic[_T]):
    """Result of ``x.aminmax()``: the least and the greatest elements, ``min`` and ``max``."""

    min: _T
    max: _T


@operations()
class StatisticsMethods(_Below):
    """Statistics and distances composed of sums."""

    __slots__ = ()

    def aminmax(self, *, dim: int | None = None, keepdim: bool = False) -> Extrema[Self]:
        """Return the least and the greatest element, of all or along `dim`; see :meth:`amin`.

        Parameters
        ----------
        dim : int, optional
            Axis to reduce; all by default.
        keepdim : bool
            Whether to keep the reduced axes with size 1.

        Returns
        -------
        Extrema
            Named tuple (min, max) of tensors in this dtype.

        Raises
        ------
        ShapeError
            A reduced axis is empty.

        Examples
        --------
        >>> least, most = krt.tensor([[1, 5], [7, 2]]).aminmax(dim=1)
        >>> least.tolist(), most.tolist()
        ([1, 2], [5, 7])
        """
        return Extrema(self.amin(dim, keepdim), self.amax(dim, keepdim))

    def nansum(self, dim: Dims = None, keepdim: bool = False, *, dtype: object = None) -> Self:
        """Return the sum over `dim`, or over all axes, of the elements that are not NaN.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.
        dtype : DType, optional
            Dtype to convert the elements to first.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype; integers and bools give int64.

        Examples
        --------
        >>> krt.tensor([1.0, krt.nan, 3.0]).nansum().item()
        4.0
        """
        return self._numbers().sum(dim, keepdim, dtype=dtype)

    def nanmean(self, dim: Dims = None, keepdim: bool = False, *, dtype: object = None) -> Self:
        """Return the mean over `dim`, or over all axes, of the elements that are not NaN.

        Parameters
        ----------
        dim : int or sequence of int, optional
            Axes to reduce; all by default. An empty tuple reduces none.
        keepdim : bool
            Whether to keep the reduced axes with size 1.
        dtype : DType, optional
            Dtype to convert the elements to first.

        Returns
        -------
        Tensor
            Tensor of the remaining axes, in this dtype. NaN where all elements are NaN.

        Raises
        ------
        DTypeError
            The elements are not floats.

        Examples
        --------
        >>> krt.tensor([1.0, krt.nan, 3.0]).nanmean().item()
        2.0
        """
        self._floats("nanmean")
        x = self if dtype is None else self.cast(dtype)
        count = (~x.isnan()).sum(dim, keepdim)
        wide = x.cast(x.dtype.accumulator)
        return (wide.nansum(dim, keepdim) / count).cast(x.dtype)

    def _numbers(self) -> Self:
        """Replace NaN by 0."""
        x = self.uop
        return self._of(build.where(x.ne(x), 0, x)) if x.dtype.is_float else self

    # ---- of observations

    def cov(
        self, *, correction: int = 1, fweights: TensorBase | None = None,
        aweights: TensorBase | None = None,
    ) -> Self:  # fmt: skip
        """Return the covariances of variables (rows) over observations (columns).

        Parameters
        ----------
        correction : int
            Number subtracted from the count of observations.
        fweights : Tensor, optional
            Number of times that each observation counts: integers of shape (observations,).
        aweights : Tensor, optional
            Weight of each observation: floats of shape (observations,).

        Returns
        -------
        Tensor
            Tensor of shape (variables, variables), or () for one variable, in this dtype; integers
            give float32.

        Raises
        ------
        ShapeError
            There are more than two axes, or weights have another shape.
        DTypeError
            This tensor holds bools, `fweights` holds no integers, or `aweights` no floats.

        Examples
        --------
        >>> krt.tensor([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]]).cov().tolist()
        [[1.0, -2.0], [-2.0, 4.0]]
        """
        if self.ndim > 2:
            raise ShapeError(f"cov: expected at most 2 axes, not {self.ndim}")
        if self.dtype.is_bool:
            raise DTypeError("cov: bools have no deviations; cast them, as in x.float()")
        rows = self if self.ndim == 2 else self.reshape(1, -1)
        x = rows._of(rows._as_float())
        narrow = x.dtype
        x = x.cast(narrow.accumulator)
        weights = x._weights(fweights, aweights)
        count = x._of(build.scalar(x.dims[1], x.dtype)) if weights is None else weights.sum()
        mean = (x if weights is None else x * weights).sum(1, True) / count
        deviation = x - mean
        other = deviation if weights is None else deviation * weights
        rest = count - correction
        if weights is not None and aweights is not None:
            share = (weights * x._lift(aweights, "aweights")).sum() / count
            rest = count - share * correction
        out = deviation.matmul(other.t()) / rest.maximum(0)
        return out.squeeze().cast(narrow)

    def _weights(self, fweights: TensorBase | None, aweights: TensorBase | None) -> Self | None:
        """Return the total weight of each observation."""
        weights: Self | None = None
        for name, value, floats in (("fweights", fweights, False), ("aweights", aweights, True)):
            if value is None:
                continue
            given = self._lift(value, name)
            if given.ndim != 1 or not same(given.dims[0], self.dims[1]):
                raise ShapeError(
                    f"{name}: expected one number per observation, of shape "
                    f"{format_shape((self.dims[1],))}, not {format_shape(given.dims)}"
                )
            if given.dtype.is_float is not floats:
                wanted = "floats" if floats else "integers"
                raise DTypeError(f"{name}: expected {wanted}, not {given.dtype.name}")
            given = given.cast(self.dtype)
            weights = given if weights is None else weights * given
        return weights

    def corrcoef(self) -> Self:
        """Return correlations of variables (rows) over observations (columns); see :meth:`cov`.

        Returns
        -------
        Tensor
            Tensor of shape (variables, variables), or () for one variable, in this dtype; integers
            give float32. NaN for a variable whose observations are all equal.

        Examples
        --------
        >>> krt.tensor([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]]).corrcoef().tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
        """
        c = self.cov()
        if c.ndim == 0:
            return c / c
        spread = c.diagonal().sqrt()
        return (c / spread.unsqueeze(1) / spread.unsqueeze(0)).clamp(-1, 1)

    # ---- distances

    def dist(self, other: TensorBase, p: float = 2) -> Self:
        """Return the `p`-norm of ``self - other``, over all elements.

        Parameters
        ----------
        other : Tensor
            Tensor whose shape broadcasts with this one.
        p : float
            Order of the norm; see :meth:`norm`.

        Returns
        -------
        Tensor
            Tensor of shape (), in the promoted dtype.

        Raises
        ------
        DTypeError
            The differences are not floats.

        Examples
        --------
        >>> x, y = krt.tensor([0.0, 0.0]), krt.tensor([3.0, 4.0])
        >>> x.dist(y).item(), x.dist(y, 1).item()
        (5.0, 7.0)
        """
        return (self - self._lift(other, "other")).norm(real(p, "p"))

    def cdist(
        self, x2: TensorBase, p: float = 2.0,
        compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
    ) -> Self:  # fmt: skip
        """Return the `p`-norm distances between the rows of this tensor and the rows of `x2`.

        Parameters
        ----------
        x2 : Tensor
            Tensor of shape (..., R, M), for this tensor's (..., P, M). Leading axes broadcast.
        p : float
            Order of the norm, at least 0. If several differences are the largest, the gradient for
            `inf` is shared equally among them; PyTorch gives each of them the whole gradient.
        compute_mode : str
            For compatibility with PyTorch: distances are always computed from differences, which is
            precise for points that lie close together.

        Returns
        -------
        Tensor
            Tensor of shape (..., P, R).

        Raises
        ------
        DTypeError
            One of the tensors does not hold floats.
        DomainError
            `p` is negative, or `compute_mode` is unknown.
        ShapeError
            The rows differ in length.

        Examples
        --------
        >>> x, y = krt.tensor([[0.0, 0.0], [6.0, 8.0]]), krt.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> x.cdist(y).tolist()
        [[0.0, 5.0], [10.0, 5.0]]
        """
        modes = ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
        if compute_mode not in (f"{modes[0]}_if_necessary", *modes):
            raise DomainError(f"compute_mode: expected one of {modes}, not {compute_mode!r}")
        other = self._lift(x2, "x2")
        self._floats("cdist")
        other._floats("cdist")
        if self.ndim < 2 or other.ndim < 2 or not same(self.dims[-1], other.dims[-1]):
            raise ShapeError(
                "cdist: expected matrices with rows of equal length, not input of shape "
                f"{format_shape(self.dims)} and x2 of shape {format_shape(other.dims)}"
            )
        if not real(p, "p") >= 0:
            raise DomainError(f"p: expected a number of at least 0, not {p}")
        gaps = self.unsqueeze(-2) - other.unsqueeze(-3)
        if build.has_zero(gaps.dims[-1:]):
            return gaps.sum(-1)
        return cast("Self", distances(cast("Tensor", gaps), p))

    def pairwise_distance(
        self, x2: TensorBase, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
    ) -> Self:
        """Return the `p`-norm of ``self - x2 + eps`` along the last axis.

        Parameters
        ----------
        x2 : Tensor
            Tensor whose shape broadcasts with this one, `(*, n)`.
        p : float
            Order of the norm; see :meth:`norm`.
        eps : float
            Number added to each difference.
        keepdim : bool
            Whether to keep the last axis with size 1.

        Returns
        -------
        Tensor
            Tensor of shape `(*)`, or `(*, 1)` with `keepdim`, in the promoted dtype.

        Raises
        ------
        DTypeError
            The differences are not floats.

        Examples
        --------
        >>> x = krt.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> x.pairwise_distance(krt.zeros(2, 2), eps=0.0).tolist()
        [0.0, 5.0]
        """
        gap = self - self._lift(x2, "x2") + real(eps, "eps")
        return gap.norm(real(p, "p"), -1, keepdim)

    def cosine_similarity(self, x2: TensorBase, dim: int = 1, eps: float = 1e-8) -> Self:
        """Return the cosine of the angle between vectors along `dim`.

        Parameters
        ----------
        x2 : Tensor
            Tensor whose shape broadcasts with this one.
        dim : int
            Axis of the vectors in the broadcast shape.
        eps : float
            Least norm: smaller norms count as `eps`.

        Returns
        -------
        Tensor
            Tensor of the broadcast shape without the axis `dim`, in the promoted dtype.

        Raises
        ------
        DTypeError
            The elements are not floats.

        Examples
        --------
        >>> x, y = krt.tensor([[2.0, 0.0], [0.0, 2.0]]), krt.tensor([[5.0, 0.0], [5.0, 0.0]])
        >>> x.cosine_similarity(y).tolist()
        [1.0, 0.0]
        """
        other = self._lift(x2, "x2")
        a, b = (self._of(u) for u in self._unify(("x2", other)))
        narrow = a.dtype
        if not narrow.is_float:
            raise DTypeError(
                f"cosine_similarity: expected a floating type, not {narrow.name}; cast the tensors "
                "first, as in x.float()"
            )
        axis = axis_of(dim, len(broadcast(self.dims, other.dims)))
        a, b = (u.cast(narrow.accumulator) for u in (a, b))
        least = real(eps, "eps")
        parts = [u / u._of(at_least(u.norm(2, axis, True).uop, least)) for u in (a, b)]
        return (parts[0] * parts[1]).sum(axis).cast(narrow)

    def normalize(self, p: float = 2.0, dim: Dims = 1, eps: float = 1e-12) -> Self:
        """Divide this tensor by its `p`-norm along `dim`.

        Parameters
        ----------
        p : float
            Order of the norm; see :meth:`norm`.
        dim : int or sequence of int
            Axes over which the results have norm 1.
        eps : float
            Least divisor: smaller norms count as `eps`.

        Returns
        -------
        Tensor
            Tensor of this shape and dtype.

        Raises
        ------
        DTypeError
            The elements are not floats.

        Examples
        --------
        >>> krt.tensor([[2.0, 2.0], [0.0, 0.0]]).normalize(p=1).tolist()
        [[0.5, 0.5], [0.0, 0.0]]
        """
        size = self.norm(real(p, "p"), dim, True)
        return self / size.clamp(min=real(eps, "eps"))

    def _renormed(self, p: float, dim: int, maxnorm: float) -> Self:
        """Compute :meth:`renorm` for checked arguments."""
        if self.ndim < 2:
            raise ShapeError(f"renorm: expected at least 2 axes, not {self.ndim}")
        axis = axis_of(dim, self.ndim)
        x = self._of(self._wide("renorm"))
        size = x.norm(p, tuple(a for a in range(self.ndim) if a != axis), True)
        most = build.full(maxnorm, size.dtype, size.dims)
        node = size.uop
        factor = build.where(
            most.alu(Op.LT, node), most.alu(Op.DIV, build.add(node, 1e-7)),
            build.full(1, size.dtype, size.dims),
        )  # fmt: skip
        return (x * self._of(factor)).cast(self.dtype)


def distances(gaps: Tensor, p: float) -> Tensor:
    """Return the `p`-norm along the last axis; a distance of 0 passes no gradient."""
    found = gaps.norm(p, -1)
    return found.where(found.ne(0), 0.0) if p == 2 else found


def std_mean(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None,  # noqa: A002 - torch's name
    keepdim: bool = False, *, correction: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return standard deviation and mean over `dim`; see ``Tensor.std``.

    Parameters
    ----------
    input : Tensor
        Tensor of floats.
    dim : int or sequence of int, optional
        Axes to reduce; all by default. An empty tuple reduces none.
    unbiased : bool, optional
        PyTorch's older form of `correction`: True means 1, False means 0.
    keepdim : bool
        Whether to keep the reduced axes with size 1.
    correction : float, optional
        Number subtracted from the count of elements; 1 by default.

    Returns
    -------
    tuple of Tensor
        Pair (standard deviation, mean), in the dtype of `input`.

    Raises
    ------
    DTypeError
        The elements are not floats, or both `unbiased` and `correction` are given.

    Examples
    --------
    >>> std, mean = krt.std_mean(krt.tensor([1.0, 2.0, 3.0]))
    >>> std.item(), mean.item()
    (1.0, 2.0)
    """
    tensor_of(input, "std_mean: input")
    axes = None if isinstance(dim, bool) else dim
    spread = input.std(dim, unbiased, keepdim, correction=correction)
    return spread, input.mean(axes, keepdim)


def var_mean(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None,  # noqa: A002 - torch's name
    keepdim: bool = False, *, correction: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return variance and mean over `dim`; see ``Tensor.var``.

    Parameters
    ----------
    input : Tensor
        Tensor of floats.
    dim : int or sequence of int, optional
        Axes to reduce; all by default. An empty tuple reduces none.
    unbiased : bool, optional
        PyTorch's older form of `correction`: True means 1, False means 0.
    keepdim : bool
        Whether to keep the reduced axes with size 1.
    correction : float, optional
        Number subtracted from the count of elements; 1 by default.

    Returns
    -------
    tuple of Tensor
        Pair (variance, mean), in the dtype of `input`.

    Raises
    ------
    DTypeError
        The elements are not floats, or both `unbiased` and `correction` are given.

    Examples
    --------
    >>> var, mean = krt.var_mean(krt.tensor([1.0, 3.0]), correction=0)
    >>> var.item(), mean.item()
    (1.0, 2.0)
    """
    tensor_of(input, "var_mean: input")
    axes = None if isinstance(dim, bool) else dim
    spread = input.var(dim, unbiased, keepdim, correction=correction)
    return spread, input.mean(axes, keepdim)
