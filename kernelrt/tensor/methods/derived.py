"""Methods composed of other methods: distances of pairs, histograms, sums to a shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir.shape import broadcasts_to, format_shape, same
from kernelrt.tensor import state
from kernelrt.tensor.autograd.tags import detach
from kernelrt.tensor.base import TensorBase
from kernelrt.tensor.methods.statistics import distances
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import check_floats, flag, integer, real, shape_of
from kernelrt.util.lazy_import import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import Dim
    from kernelrt.tensor.methods.sorting import OrderingMethods as _Below
    from kernelrt.tensor.nodes import data_checks
    from kernelrt.tensor.tensor import Tensor
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = ["DerivedMethods", "Histogram"]

_T = TypeVar("_T")


class Histogram(NamedTuple, Generic[_T]):
    """Result of :meth:`~DerivedMethods.histogram`: counts and edges of the bins.

    Attributes
    ----------
    hist : Tensor
        Count, total weight or density of each bin, of shape (bins,).
    bin_edges : Tensor
        Edges of the bins in ascending order, of shape (bins + 1,).

    Examples
    --------
    >>> counts, edges = krt.tensor([1.0, 2.0, 2.0]).histogram(2, range=(0, 4))
    >>> counts.tolist(), edges.tolist()
    ([1.0, 2.0], [0.0, 2.0, 4.0])
    """

    hist: _T
    bin_edges: _T


class DerivedMethods(_Below):
    """Methods composed of other methods."""

    __slots__ = ()

    def pdist(self, p: float = 2.0) -> Self:
        """Return the distances of all pairs of rows, in the order (0, 1), (0, 2), ..., (1, 2), ...

        Parameters
        ----------
        p : float, default 2.0
            Order of the norm, from 0 to infinity; see :meth:`cdist` for its gradient at infinity.

        Returns
        -------
        Tensor of floats
            Vector of ``n (n - 1) / 2`` distances for shape (n, m), same dtype.

        Raises
        ------
        DomainError
            `p` is negative.
        ShapeError
            This tensor does not have 2 axes.
        DTypeError
            This tensor holds integers or bools.

        Examples
        --------
        >>> krt.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]]).pdist().tolist()
        [5.0, 4.0, 3.0]
        """
        if self.ndim != 2:
            raise ShapeError(f"pdist: expected shape (n, m), not {format_shape(self.dims)}")
        check_floats(self.dtype, "pdist")
        if not real(p, "p") >= 0:
            raise DomainError(f"p: expected a number of at least 0, not {p}")
        first, second = np.triu_indices(self._static_size(0, "pdist"), 1)
        if not len(first) or build.has_zero(self.dims):
            return self[first].sum(-1)  # empty or zeros, with a gradient
        return cast("Self", distances(cast("Tensor", self[first] - self[second]), p))

    def histogram(
        self,
        bins: int | TensorBase = 100,
        *,
        range: Sequence[float] | None = None,  # noqa: A002 - torch's name
        weight: TensorBase | None = None,
        density: bool = False,
    ) -> Histogram[Self]:
        """Count the elements in each bin; the last bin includes its right edge.

        Parameters
        ----------
        bins : int or Tensor, default 100
            Number of bins of equal width, or the edges of the bins in ascending order.
        range : pair of float, optional
            If `bins` is a number: the left edge of the first bin and the right edge of the last
            one; by default the least and the greatest element.
        weight : Tensor, optional
            Weight of each element, in the shape of this tensor.
        density : bool, default False
            Whether to divide counts by their total and by the width of the bin.

        Returns
        -------
        Histogram of (hist, bin_edges)
            Both in this tensor's dtype. Elements outside of all bins are not counted.

        Raises
        ------
        DTypeError
            This tensor holds integers or bools.
        ShapeError
            `bins`, `range` or the shape of `weight` is not as described, or `range` is given with
            edges.
        DomainError
            At run time, if the range comes from the elements and one of its ends is NaN or
            infinite.

        Examples
        --------
        >>> found = krt.tensor([1.0, 2.0, 2.0, 5.0]).histogram(4)
        >>> found.hist.tolist(), found.bin_edges.tolist()
        ([1.0, 2.0, 0.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0])
        """
        check_floats(self.dtype, "histogram")
        x = self._of(detach(self.uop)).reshape(-1)
        edges = x._edges(bins, range)
        count = edges._static_size(0, "histogram") - 1
        if weight is None:
            weights = self._of(build.full(1, self.dtype, x.dims))
        else:
            given = self._lift(weight, "weight")
            if not build.same_shape(given.dims, self.dims):
                raise ShapeError(
                    f"weight: expected the shape {format_shape(self.dims)}, not "
                    f"{format_shape(given.dims)}"
                )
            weights = given.detach().reshape(-1).cast(self.dtype)
        inside = (x >= edges[0]) & (x <= edges[-1])
        place = edges.searchsorted(x, right=True) - 1
        slot = build.where(inside.uop, place.clamp(0, count - 1).uop, count)
        total = build.scatter_add(
            build.full(0, self.dtype, (count + 1,)), weights.uop, slot
        )
        hist = self._of(build.shrink(total, [(0, count)]))
        if flag(density, "density"):
            hist = hist / hist.sum() / (edges[1:] - edges[:-1])
        return Histogram(hist, edges)

    def _edges(self, bins: int | TensorBase, span: Sequence[float] | None) -> Self:
        if isinstance(bins, TensorBase):
            given = self._lift(bins, "bins")
            if given.ndim != 1 or given._static_size(0, "histogram") < 2:
                raise ShapeError(
                    "bins: expected a vector of at least 2 edges, not shape "
                    f"{format_shape(given.dims)}"
                )
            if span is not None:
                raise ShapeError("range: expected None, as bins gives the edges; leave range out")
            return given.detach().cast(self.dtype)
        count = integer(bins, "bins", 1)
        if span is None:
            span = (0.0, 1.0) if build.has_zero(self.dims) else None
        if span is None:
            first, last = (data_checks.finite(v, "input") for v in (self.amin(), self.amax()))
        else:
            low, high = (real(v, "range") for v in span)
            if not low <= high:
                raise DomainError(f"range: expected ends in ascending order, not {low} and {high}")
            first, last = (self._of(build.full(v, self.dtype, ())) for v in (low, high))
        alone = first.eq(last).cast(self.dtype) * 0.5
        first, last = first - alone, last + alone
        places = self._of(build.iota(count + 1))
        step = (last - first) / count
        # Computed from both ends to make both exact, so that the greatest element is inside.
        up = first + step * places.cast(self.dtype)
        down = last - step * (count - places).cast(self.dtype)
        return self._of(build.where((places * 2 < count + 1).uop, up.uop, down.uop))

    def sum_to_size(self, *size: Any) -> Self:
        """Sum this tensor to shape `size`, undoing a broadcast from that shape.

        Parameters
        ----------
        *size : int or sequence of int
            Shape that broadcasts to this tensor's shape.

        Returns
        -------
        Tensor
            Shape `size`, same dtype; summed integers and bools are int64.

        Raises
        ------
        ShapeError
            `size` does not broadcast to this tensor's shape.

        Examples
        --------
        >>> krt.ones(2, 3).sum_to_size(1, 3).tolist()
        [[2.0, 2.0, 2.0]]
        """
        wanted = shape_of(size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size)
        if not wanted:
            return self.sum()
        more = self.ndim - len(wanted)
        if not broadcasts_to(wanted, self.dims):
            raise ShapeError(
                f"size: {format_shape(wanted)} does not broadcast to the shape "
                f"{format_shape(self.dims)} of the tensor"
            )
        axes = [a for a, d in enumerate(self.dims) if a < more or not same(wanted[a - more], d)]
        return self.sum(axes, keepdim=True).reshape(wanted) if axes else self

    def instance_norm(
        self, running_mean: TensorBase | None = None, running_var: TensorBase | None = None,
        weight: TensorBase | None = None, bias: TensorBase | None = None,
        use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
    ) -> Self:  # fmt: skip
        """Normalize each channel of each instance of an input of shape (batch, channels, ...).

        Parameters
        ----------
        running_mean, running_var : Tensor, optional
            Running statistics of shape (channels,). They are updated in place when the input's own
            statistics are used.
        weight, bias : Tensor, optional
            Scale and shift, of shape (channels,).
        use_input_stats : bool, default True
            Whether to use the statistics of the input instead of the running ones.
        momentum : float, default 0.1
            Weight of the new statistics in the running ones. The new statistics are averages over
            the instances of the batch.
        eps : float, default 1e-5
            Added to the variance.

        Returns
        -------
        Tensor of floats
            Same shape; promoted dtype of this tensor, `weight` and `bias`.

        Raises
        ------
        ShapeError
            This tensor has fewer than 3 axes, or `use_input_stats` is False without running
            statistics.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Ulyanov et al., "Instance Normalization: The Missing Ingredient for Fast Stylization",
        2016 (arXiv:1607.08022).

        Examples
        --------
        >>> krt.tensor([[[1.0, 3.0], [10.0, 14.0]]]).instance_norm(eps=0.0).tolist()
        [[[-1.0, 1.0], [-1.0, 1.0]]]
        """
        if not flag(use_input_stats, "use_input_stats"):
            if running_mean is None or running_var is None:
                raise ShapeError(
                    "use_input_stats: False needs running_mean and running_var; pass both"
                )
            return self.batch_norm(running_mean, running_var, weight, bias, False, 0.0, eps)
        if self.ndim < 3:
            raise ShapeError(
                "input: expected shape (batch, channels, ...) of at least 3 axes, not "
                f"{format_shape(self.dims)}"
            )
        axes = tuple(range(2, self.ndim))
        known = self._statistics(running_mean, running_var)
        for kept, rule in ((known[0], self.mean), (known[1], self.var)):
            if kept is None:
                continue
            with state.no_grad():
                new = rule(axes).mean(0)
                mixed = cast("Any", kept) * (1 - momentum) + new * momentum
                cast("Any", kept).assign(mixed.cast(kept.dtype))
        return self.group_norm(self._static_size(1, "instance_norm"), weight, bias, eps)

    def narrow_copy(self, dim: int, start: Dim, length: Dim) -> Self:
        """Return a copy of the part that :meth:`narrow` selects.

        Parameters
        ----------
        dim : int
            Axis to select from.
        start : int
            First position; a negative one counts from the end.
        length : int
            Number of elements.

        Returns
        -------
        Tensor
            Same dtype, with size `length` along axis `dim`.

        Raises
        ------
        ShapeError
            The part is not inside of the axis.

        Examples
        --------
        >>> krt.arange(5).narrow_copy(0, 1, 3).tolist()
        [1, 2, 3]
        """
        return cast("Self", cast("Any", self.narrow(dim, start, length)).clone())

    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Self:
        """Return the first `size` rows of :meth:`nonzero`; fill missing rows with `fill_value`.

        The shape of the result does not depend on the elements, so traced functions can use it.

        Parameters
        ----------
        size : int
            Number of rows of the result.
        fill_value : int, default -1
            Value of all elements in missing rows.

        Returns
        -------
        Tensor
            Shape (size, ndim), int64.

        Examples
        --------
        >>> krt.tensor([0, 3, 0, 4]).nonzero_static(size=3).tolist()
        [[1], [3], [-1]]
        """
        return cast("Self", cast("Any", self).nonzero(size=size, fill_value=fill_value))

    def angle(self) -> Self:
        """Return the angle of each real number: 0, or pi for negative ones; NaN stays NaN.

        Returns
        -------
        Tensor
            Same shape and dtype; integers and bools give float32.

        Examples
        --------
        >>> krt.tensor([-1.0, 0.0, 2.0], dtype="float64").angle().tolist()
        [3.141592653589793, 0.0, 0.0]
        """
        kind = self.dtype if self.dtype.is_float else dt.float32
        turned = (self < 0).cast(kind) * float(np.pi)
        if not self.dtype.is_float:
            return turned
        return turned.where(self == self, self * 0)

    def adjoint(self) -> Self:
        """Return the transposed matrices, as there are no complex dtypes.

        Returns
        -------
        Tensor
            Shape (..., n, m) for shape (..., m, n), same dtype.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).adjoint().tolist()
        [[1, 3], [2, 4]]
        """
        return self.mT

    @property
    def mH(self) -> Self:  # noqa: N802 - torch's name
        """The transposed matrices, as there are no complex dtypes.

        Examples
        --------
        >>> krt.ones(4, 2, 3).mH.shape
        (4, 3, 2)
        """
        return self.mT

    @property
    def H(self) -> Self:  # noqa: N802 - torch's name
        """The transposed matrix, as there are no complex dtypes.

        Raises
        ------
        ShapeError
            This tensor does not have 0 or 2 axes.

        Examples
        --------
        >>> krt.tensor([[1, 2], [3, 4]]).H.tolist()
        [[1, 3], [2, 4]]
        """
        if self.ndim not in (0, 2):
            raise ShapeError(
                f"H: expected a matrix, not shape {format_shape(self.dims)}; use mT for a batch"
            )
        return self.mT if self.ndim else self

    def is_neg(self) -> bool:
        """Return False: no tensor stores its elements with the sign flipped.

        Examples
        --------
        >>> krt.ones(2).is_neg()
        False
        """
        return False

    def is_inference(self) -> bool:
        """Return False: tensors made in :func:`kernelrt.inference_mode` are like any other.

        Examples
        --------
        >>> krt.ones(2).is_inference()
        False
        """
        return False
