"""Activation functions with an axis, weights or random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir import Op
from kernelrt.ir.shape import format_shape, same
from kernelrt.tensor.nodes import build
from kernelrt.tensor.nodes.arguments import axis_of, check_floats, real
from kernelrt.tensor.nodes.composite_ops import sigmoid
from kernelrt.tensor.operation import operation, operations
from kernelrt.tensor.rng import random

if TYPE_CHECKING:
    from kernelrt.tensor.base import TensorBase
    from kernelrt.tensor.methods.conversion import ConversionMethods as _Below
else:  # a mixin needs no base at run time, and freeing a tensor visits each base of Tensor
    _Below = object

__all__ = ["GatingMethods"]


@operations("rrelu")
class GatingMethods(_Below):
    """Activation functions that use more than one element, weights or random numbers."""

    __slots__ = ()

    def glu(self, dim: int = -1) -> Self:
        """Halve axis `dim`, and return the first half times the sigmoid of the second half.

        Parameters
        ----------
        dim : int, default -1
            Axis to halve.

        Returns
        -------
        Tensor of floats
            Same dtype; axis `dim` has half the size.

        Raises
        ------
        ShapeError
            The size of the axis is odd.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2016
        (arXiv:1612.08083).

        Examples
        --------
        >>> krt.tensor([4.0, 6.0, 0.0, 0.0]).glu().tolist()
        [2.0, 3.0]
        """
        x = self._floats("glu")
        axis = axis_of(dim, self.ndim)
        size = self._static_size(axis, "glu") if self.ndim else 1
        if size % 2:
            raise ShapeError(f"dim: expected an even size to halve, not {size}")
        wide = x.cast(x.dtype.accumulator)
        ends = [[(0, d) for d in x.shape] for _ in range(2)]
        ends[0][axis], ends[1][axis] = (0, size // 2), (size // 2, size)
        first, second = (build.shrink(wide, end) for end in ends)
        return self._of(first.alu(Op.MUL, sigmoid(second)).cast(x.dtype))

    def prelu(self, weight: TensorBase) -> Self:
        """Return x where x is positive, and ``weight * x`` elsewhere.

        Parameters
        ----------
        weight : Tensor of floats
            One slope, or one for each channel (axis 1), of shape (channels,).

        Returns
        -------
        Tensor of floats
            Same shape and dtype.

        Raises
        ------
        ShapeError
            `weight` has another shape.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From He et al., "Delving Deep into Rectifiers: Surpassing Human-Level Performance on
        ImageNet Classification", 2015 (arXiv:1502.01852).

        Examples
        --------
        >>> krt.tensor([[-4.0, -4.0], [1.0, 2.0]]).prelu(krt.tensor([0.25, 0.5])).tolist()
        [[-1.0, -2.0], [1.0, 2.0]]
        """
        x = self._floats("prelu")
        slope = self._lift(weight, "weight")
        line = slope.reshape(()) if same(build.volume(slope.dims), 1) and slope.ndim <= 1 else slope
        if line.ndim:
            if line.ndim != 1 or self.ndim < 2 or not same(line.dims[0], self.dims[1]):
                raise ShapeError(
                    f"weight: expected one number, or a vector with one number for each channel "
                    f"(axis 1) of the input of shape {format_shape(self.dims)}, not shape "
                    f"{format_shape(slope.dims)}"
                )
            line = line.reshape(line.dims[0], *(1,) * (self.ndim - 2))
        a, b = self._unify(("weight", line))
        positive = build.zeros_like(a).alu(Op.LT, a)
        return self._of(build.where(positive, a, a.alu(Op.MUL, b)).cast(x.dtype))

    def rrelu(
        self, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
    ) -> Self:
        """Return x where x is positive, and x times a random slope elsewhere.

        Parameters
        ----------
        lower, upper : float, default 1/8 and 1/3
            Limits of the slopes.
        training : bool, default False
            Whether to draw each slope uniformly between the limits, anew in each run of a jitted
            function. Otherwise the slope is the mean of the limits.

        Returns
        -------
        Tensor of floats
            Same shape and dtype.

        Raises
        ------
        DomainError
            `lower` is greater than `upper`.
        DTypeError
            This tensor holds integers or bools.

        Notes
        -----
        From Xu et al., "Empirical Evaluation of Rectified Activations in Convolutional Network",
        2015 (arXiv:1505.00853).

        Examples
        --------
        >>> krt.tensor([-4.0, 2.0]).rrelu(0.25, 0.75).tolist()
        [-2.0, 2.0]
        """
        low, high = real(lower, "lower"), real(upper, "upper")
        if not low <= high:
            raise DomainError(f"lower, upper: expected lower <= upper, not {low} and {high}")
        self._floats("rrelu")
        if not training:
            return self.leaky_relu((low + high) / 2)
        kind = self.dtype.accumulator
        return self._sloped(random.uniform(self.dims, low=low, high=high, dtype=kind))

    @operation
    def _sloped(self, slopes: TensorBase) -> Self:
        x = self._wide("rrelu")
        positive = build.zeros_like(x).alu(Op.LT, x)
        return self._of(build.where(positive, x, x.alu(Op.MUL, slopes.uop)).cast(self.dtype))

    def softmin(self, dim: int = -1, dtype: object = None) -> Self:
        """Return the :meth:`softmax` of the negated elements.

        Parameters
        ----------
        dim : int, default -1
            Axis along which the results add up to 1.
        dtype : DType or str, optional
            Dtype to cast to first.

        Returns
        -------
        Tensor of floats
            Same shape and dtype, or `dtype`.

        Raises
        ------
        DTypeError
            The elements are not floats, and `dtype` is not given.

        Examples
        --------
        >>> krt.tensor([0.0, 1.0], dtype="float64").softmin().round(decimals=4).tolist()
        [0.7311, 0.2689]
        >>> krt.tensor([0, 1]).softmin(dtype="float64").round(decimals=4).tolist()
        [0.7311, 0.2689]
        """
        x = self if dtype is None else self.cast(dtype)
        check_floats(x.dtype, "softmin")
        return (-x).softmax(dim)
