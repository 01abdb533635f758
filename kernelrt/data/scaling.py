"""Scales features to mean 0 and standard deviation 1."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kernelrt.data.rows import as_array
from kernelrt.errors import DTypeError, ShapeError, StateError
from kernelrt.tensor import Tensor

__all__ = ["Standardizer"]

Array = np.ndarray[Any, Any]


class Standardizer:
    """Scale the last axis to mean 0 and standard deviation 1, and back.

    Parameters
    ----------
    axis : int or tuple of int, optional
        Axes to average over; all but the last by default.

    Attributes
    ----------
    mean, std : ndarray
        Mean and standard deviation from :meth:`fit`: float64 for float64 data, otherwise float32.
        Constant features have the standard deviation 1.

    Examples
    --------
    >>> from kernelrt.data import Standardizer
    >>> x = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> scale = Standardizer().fit(x)
    >>> scale.transform(x).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    >>> scale.inverse(scale.transform(x)).tolist()
    [[1.0, 5.0], [3.0, 5.0]]
    """

    mean: Array
    std: Array

    def __init__(self, axis: int | tuple[int, ...] | None = None) -> None:
        self.axis = axis

    def fit(self, x: Any) -> Self:
        """Compute the mean and the standard deviation of an array or a tensor.

        Parameters
        ----------
        x : array or Tensor
            Numbers, by default of shape (rows, features).

        Returns
        -------
        Standardizer
            This object, so that calls can be chained.

        Raises
        ------
        DTypeError
            `x` does not hold numbers.
        ShapeError
            `x` has no rows.
        """
        found = as_array(x, "x")
        if found.dtype.kind not in "fiub":
            raise DTypeError(f"x: expected numbers, not {found.dtype}")
        if found.ndim == 0 or found.size == 0:
            raise ShapeError(f"x: expected at least one row, not shape {found.shape}")
        axes = self.axis
        if axes is None:
            axes = tuple(range(found.ndim - 1)) or (0,)
        # float64, since float32 loses digits over long columns.
        wide = found.astype(np.float64)
        mean = wide.mean(axes, keepdims=True)
        spread = np.sqrt(((wide - mean) ** 2).mean(axes, keepdims=True))
        # The deviation of a constant column is rounding error only.
        flat = spread <= 10 * np.finfo(np.float64).eps * np.abs(mean)
        kind = np.float64 if found.dtype == np.float64 else np.float32
        shape = mean.shape[1:] if found.ndim > 1 and mean.shape[0] == 1 else mean.shape
        #: Averaged axes, counted from the end; their sizes may differ in `transform`.
        ends = range(-found.ndim, 0)
        self._over = {ends[a] for a in (axes if isinstance(axes, tuple) else (axes,))}
        self.mean = mean.reshape(shape).astype(kind)
        self.std = np.where(flat, 1.0, spread).reshape(shape).astype(kind)
        return self

    def transform(self, x: Any) -> Any:
        """Return ``(x - mean) / std``: an array for an array, a Tensor for a tensor.

        Parameters
        ----------
        x : array or Tensor
            Numbers with the features of :meth:`fit`.

        Returns
        -------
        array or Tensor
            Numbers of the shape of `x`.

        Raises
        ------
        StateError
            :meth:`fit` was not called.
        ShapeError
            The number of features differs from that of :meth:`fit`.
        """
        mean, std = self._parts(x)
        return (x - mean) / std

    def fit_transform(self, x: Any) -> Any:
        """Call :meth:`fit`, then :meth:`transform`.

        Parameters
        ----------
        x : array or Tensor
            Numbers, by default of shape (rows, features).

        Returns
        -------
        array or Tensor
            Scaled numbers of the shape of `x`.

        Examples
        --------
        >>> krt.data.Standardizer().fit_transform(krt.tensor([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]
        """
        return self.fit(x).transform(x)

    def inverse(self, x: Any) -> Any:
        """Return ``x * std + mean``, the inverse of :meth:`transform`.

        Parameters
        ----------
        x : array or Tensor
            Scaled numbers.

        Returns
        -------
        array or Tensor
            Numbers in the units of the data that :meth:`fit` got.

        Raises
        ------
        StateError
            :meth:`fit` was not called.
        ShapeError
            The number of features differs from that of :meth:`fit`.
        """
        mean, std = self._parts(x)
        return x * std + mean

    inverse_transform = inverse

    def _parts(self, x: Any) -> tuple[Any, Any]:
        if "mean" not in self.__dict__:
            raise StateError("Standardizer: no mean and standard deviation yet; call fit(x) first")
        self._check_features(np.shape(x))
        if isinstance(x, Tensor):
            kind = x.dtype if x.dtype.is_float else None
            return tuple(Tensor(v, dtype=kind) for v in (self.mean, self.std))  # type: ignore[return-value]
        return self.mean, self.std

    def _check_features(self, shape: tuple[Any, ...]) -> None:
        over = self.__dict__.get("_over")
        if over is None:  # mean was set without fit
            return
        for axis in range(-self.mean.ndim, 0):
            size, found = self.mean.shape[axis], shape[axis] if -axis <= len(shape) else None
            if axis not in over and isinstance(found, int | None) and found != size:
                raise ShapeError(
                    f"x: expected {size} features along axis {axis}, as in fit(x), not shape "
                    f"{shape}"
                )

    def __repr__(self) -> str:
        return f"Standardizer(axis={self.axis})"
