"""Methods composed of other methods: distances of pairs, histograms, sums to a shape."""

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
else:  # at run time a mixin without bases: freeing a tensor visits each base class of Tensor
    _Below = object
    data_checks = Module("kernelrt.tensor.nodes.data_checks")

__all__ = ["DerivedMethods", "Histogram"]

_T = TypeVar("_T")


class Histogram(NamedTuple, Generic[_T]):
    """Result of :meth:`~DerivedMethods.histogram`: counts and edges of the bins."""

    hist: _T
    bin_edges: _T


class DerivedMethods(_Below):
    """Methods composed of other methods."""

    __slots__ = ()

    def pdist(self, p: float = 2.0) -> Self:
        """Return the distance of each pair of rows: first row to each later row, and so on.

        Parameters
        ----------
        p : float
            Order of the norm, from 0 to infinity; see :meth:`cdist` for its gradient at infinity.
        """
        if self.ndim != 2:
            raise ShapeError(f"pdist: expected shape (n, m), not {format_shape(self.dims)}")
        check_floats(self.dtype, "pdist")
        if not real(p, "p") >= 0:
            raise ShapeError(f"p: expected a number of at least 0, not {p}")
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
        bins : int or Tensor
            Number of bins of equal width, or the edges of the bins in ascending order.
        range : pair of float, optional
            Left edge of the first bin and right edge of the last one if `bins` is a number; by
            default the least and the greatest element.
        weight : Tensor, optional
            Weight of each element, in the shape of this tensor.
        density : bool
            Whether to divide counts by their total and by the width of the bin.

        Returns
        -------
        Histogram of (hist, bin_edges)
            Both in this tensor's dtype. Elements outside of all bins are not counted.

        Raises
        ------
        DomainError
            At run time, if the range comes from the elements and one of its ends is NaN or
            infinite.
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
                raise ShapeError(f"range: expected ends in ascending order, not {low} and {high}")
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
        size : int or sequence of int
            Shape that broadcasts to this tensor's shape.
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
            Running statistics of the channels. They are updated in place when the input's own
            statistics are used.
        weight, bias : Tensor, optional
            Scale and shift of each channel.
        use_input_stats : bool
            Whether to use the statistics of the input instead of the running ones.
        momentum : float
            Weight of the new statistics, averaged over instances, in the running ones.
        eps : float
            Added to the variance.
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
        for kept, rule in ((running_mean, self.mean), (running_var, self.var)):
            if kept is None:
                continue
            with state.no_grad():
                new = rule(axes).mean(0)
                mixed = cast("Any", kept) * (1 - momentum) + new * momentum
                cast("Any", kept).assign(mixed.cast(kept.dtype))
        return self.group_norm(self._static_size(1, "instance_norm"), weight, bias, eps)

    def narrow_copy(self, dim: int, start: Dim, length: Dim) -> Self:
        """Return a copy of the part that :meth:`narrow` selects."""
        return cast("Self", cast("Any", self.narrow(dim, start, length)).clone())

    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Self:
        """Return :meth:`nonzero` with `size` rows: drop surplus rows, fill missing ones."""
        return cast("Self", cast("Any", self).nonzero(size=size, fill_value=fill_value))

    def angle(self) -> Self:
        """Return the angle of each real number: 0, or pi for negative ones; NaN stays NaN."""
        kind = self.dtype if self.dtype.is_float else dt.float32
        turned = (self < 0).cast(kind) * float(np.pi)
        if not self.dtype.is_float:
            return turned
        return turned.where(self == self, self * 0)

    def adjoint(self) -> Self:
        """Return the transposed matrices, as there are no complex dtypes."""
        return self.mT

    @property
    def mH(self) -> Self:  # noqa: N802 - torch's name
        """The transposed matrices, as there are no complex dtypes."""
        return self.mT

    @property
    def H(self) -> Self:  # noqa: N802 - torch's name
        """The transposed matrix, as there are no complex dtypes.

        Raises
        ------
        ShapeError
            This tensor does not have 0 or 2 axes.
        """
        if self.ndim not in (0, 2):
            raise ShapeError(
                f"H: expected a matrix, not shape {format_shape(self.dims)}; use mT for a batch"
            )
        return self.mT if self.ndim else self

    def is_neg(self) -> bool:
        """Return False: no tensor stores its elements with the sign flipped."""
        return False

    def is_inference(self) -> bool:
        """Return False: tensors made in :func:`kernelrt.inference_mode` are like any other."""
        return False
