"""Methods that are made of others: distances of pairs, histograms, sums to a shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from kernelrt import dtype as dt
from kernelrt.errors import ShapeError
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
else:  # a mixin: freeing a tensor goes through each class of the line below Tensor
    _Below = object
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = ["DerivedMethods", "Histogram"]

_T = TypeVar("_T")


class Histogram(NamedTuple, Generic[_T]):
    """How much lies in each interval, and where these begin and end."""

    hist: _T
    bin_edges: _T


class DerivedMethods(_Below):
    """Methods that are made of others."""

    __slots__ = ()

    def pdist(self, p: float = 2.0) -> Self:
        """The distances of all pairs of rows: of the first to each other one, and so on.

        Parameters
        ----------
        p : float
            The order of the norm, from 0 to infinity.
        """
        if self.ndim != 2:
            raise ShapeError(f"pdist: expected shape (n, m), not {format_shape(self.dims)}")
        check_floats(self.dtype, "pdist")
        if not real(p, "p") >= 0:
            raise ShapeError(f"p: expected a number of at least 0, not {p}")
        first, second = np.triu_indices(self._static_size(0, "pdist"), 1)
        if not len(first) or build.has_zero(self.dims):
            return self[first].sum(-1)  # nothing, or zeros, of which there is a gradient
        return cast("Self", distances(cast("Tensor", self[first] - self[second]), p))

    def histogram(
        self,
        bins: int | TensorBase = 100,
        *,
        range: Sequence[float] | None = None,  # noqa: A002 - torch's name
        weight: TensorBase | None = None,
        density: bool = False,
    ) -> Histogram[Self]:
        """How many elements lie in each of some intervals, the last of which holds its end, too.

        Parameters
        ----------
        bins : int or Tensor
            How many, of one width; or where they begin and end, in ascending order.
        range : pair of float, optional
            Where the first begins and the last ends, if `bins` is a number; else the least and the
            greatest element.
        weight : Tensor, optional
            What each element counts; of this shape.
        density : bool
            Whether to give shares of the total, over the widths of the intervals.

        Returns
        -------
        Histogram of (hist, bin_edges)
            Both of this type. What lies outside counts nowhere.

        Raises
        ------
        DomainError
            At run time, where the ends are those of the elements, and one is NaN or infinite.
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
                    f"bins: expected a vector of at least 2 ends, not {format_shape(given.dims)}"
                )
            if span is not None:
                raise ShapeError("range: the ends of intervals are given; leave it out")
            return given.detach().cast(self.dtype)
        count = integer(bins, "bins", 1)
        if span is None:
            span = (0.0, 1.0) if build.has_zero(self.dims) else None
        if span is None:
            first, last = (data_checks.finite(v, "input") for v in (self.amin(), self.amax()))
        else:
            low, high = (real(v, "range") for v in span)
            if not low <= high:
                raise ShapeError(f"range: expected its ends in order, not {low} and {high}")
            first, last = (self._of(build.full(v, self.dtype, ())) for v in (low, high))
        alone = first.eq(last).cast(self.dtype) * 0.5
        first, last = first - alone, last + alone
        places = self._of(build.iota(count + 1))
        step = (last - first) / count
        # From both ends, so that these are exact: the greatest element is not beyond the last.
        up = first + step * places.cast(self.dtype)
        down = last - step * (count - places).cast(self.dtype)
        return self._of(build.where((places * 2 < count + 1).uop, up.uop, down.uop))

    def sum_to_size(self, *size: Any) -> Self:
        """The sum over axes that broadcasting to this shape would have made or stretched.

        Parameters
        ----------
        size : int or sequence of int
            A shape that broadcasts to that of this tensor.
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
        """Each channel of each instance, (batch, channels, ...), less its mean, over its deviation.

        Parameters
        ----------
        running_mean, running_var : Tensor, optional
            Statistics of channels. Where those of the input are used they are assigned to.
        weight, bias : Tensor, optional
            Scales and shifts of channels.
        use_input_stats : bool
            Whether to use the statistics of the input, or the running ones.
        momentum : float
            The share of the new statistics, averaged over instances, in the running ones.
        eps : float
            Added to the variance.
        """
        if not flag(use_input_stats, "use_input_stats"):
            if running_mean is None or running_var is None:
                raise ShapeError(
                    "use_input_stats: without them running_mean and running_var are needed"
                )
            return self.batch_norm(running_mean, running_var, weight, bias, False, 0.0, eps)
        if self.ndim < 3:
            raise ShapeError(
                "input: expected (batch, channels, ...) of at least 3 axes, not "
                f"{format_shape(self.dims)}"
            )
        axes = tuple(range(2, self.ndim))
        for kept, rule in ((running_mean, self.mean), (running_var, self.var)):
            if kept is None:
                continue
            with state.no_grad():
                new = rule(axes).mean(0)
                mixed = cast("Any", kept) * (1 - momentum) + new * momentum
                cast("Any", kept).assign(mixed.cast(kept.dtype))
        return self.group_norm(self._static_size(1, "instance_norm"), weight, bias, eps)

    def narrow_copy(self, dim: int, start: Dim, length: Dim) -> Self:
        """A copy of what :meth:`narrow` shows."""
        return cast("Self", cast("Any", self.narrow(dim, start, length)).clone())

    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Self:
        """:meth:`nonzero` of a fixed number of rows: others are dropped, missing ones filled."""
        return cast("Self", cast("Any", self).nonzero(size=size, fill_value=fill_value))

    def angle(self) -> Self:
        """0, or pi for numbers below 0; NaN stays."""
        kind = self.dtype if self.dtype.is_float else dt.float32
        turned = (self < 0).cast(kind) * float(np.pi)
        if not self.dtype.is_float:
            return turned
        return turned.where(self == self, self * 0)

    def adjoint(self) -> Self:
        """The matrices transposed, as there are no complex types."""
        return self.mT

    @property
    def mH(self) -> Self:  # noqa: N802 - torch's name
        """The matrices transposed, as there are no complex types."""
        return self.mT

    @property
    def H(self) -> Self:  # noqa: N802 - torch's name
        """The matrix transposed, as there are no complex types.

        Raises
        ------
        ShapeError
            This tensor has not two axes.
        """
        if self.ndim not in (0, 2):
            raise ShapeError(f"H: expected a matrix, not {format_shape(self.dims)}; see mT")
        return self.mT if self.ndim else self

    def is_neg(self) -> bool:
        """False: negatives are computed."""
        return False

    def is_inference(self) -> bool:
        """False: tensors made in :func:`kernelrt.inference_mode` are like any other."""
        return False
