"""Fractional max pooling."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from kernelrt import dtype as dt
from kernelrt.errors import DomainError, ShapeError
from kernelrt.ir.shape import format_shape
from kernelrt.tensor.free_functions.creation import arange, full
from kernelrt.tensor.free_functions.joining import cat
from kernelrt.tensor.methods.window_pooling import Pooled
from kernelrt.tensor.nodes.arguments import flag, per_axis, real, tensor_of
from kernelrt.tensor.rng.random import rand

if TYPE_CHECKING:
    from kernelrt.tensor.tensor import Tensor

__all__ = ["Fractions", "fractional_max_pool2d", "fractional_max_pool3d"]

#: A number for every axis, or one each.
_Numbers = Any


class Fractions:
    """The checked window options of fractional pooling.

    Parameters
    ----------
    name : str
        Name of the function, for errors.
    n : int
        Number of pooled axes.
    kernel_size : int, or n of them
        Window sizes.
    output_size, output_ratio
        `output_size` is the number of windows along each axis. `output_ratio` is this number
        divided by the axis size, above 0 and below 1.
    """

    def __init__(
        self, name: str, n: int, kernel_size: _Numbers, output_size: _Numbers | None,
        output_ratio: _Numbers | None,
    ) -> None:  # fmt: skip
        if (output_size is None) == (output_ratio is None):
            came = "neither is" if output_size is None else "both are"
            raise ShapeError(
                f"{name}: output_size, output_ratio: expected exactly one of the two, but {came} "
                "given"
            )
        self.name = name
        self.kernel = per_axis(kernel_size, n, "kernel_size", least=1)
        self.counts = (
            None if output_size is None else per_axis(output_size, n, "output_size", least=0)
        )
        self.ratios: tuple[float, ...] | None = None
        if output_ratio is not None:
            several = isinstance(output_ratio, tuple | list)
            each = tuple(output_ratio) if several else (output_ratio,) * n
            self.ratios = tuple(real(ratio, "output_ratio") for ratio in each)
            if len(each) != n or not all(0 < ratio < 1 for ratio in self.ratios):
                raise DomainError(
                    f"output_ratio: expected {n} numbers between 0 and 1, not {output_ratio!r}"
                )

    def of(self, sizes: list[int]) -> list[int]:
        """Return the number of windows along axes of these sizes."""
        counts = list(self.counts or ())
        if self.ratios is not None:
            counts = [int(size * ratio) for size, ratio in zip(sizes, self.ratios, strict=True)]
        for size, count, kernel in zip(sizes, counts, self.kernel, strict=True):
            if count + kernel - 1 > size:
                raise ShapeError(
                    f"{self.name}: {count} windows of {kernel} elements, which all start at "
                    f"different elements, need an axis of at least {count + kernel - 1} elements, "
                    f"not {size}"
                )
        return counts


def fractional_max_pool2d(
    input: Tensor, kernel_size: _Numbers, output_size: _Numbers | None = None,  # noqa: A002
    output_ratio: _Numbers | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | Pooled[Tensor]:  # fmt: skip
    """Return the maxima of windows at random positions over the last two axes.

    As in Graham, arXiv:1412.6071, the distance between successive windows takes two values, in an
    order drawn for each channel of each image.

    Parameters
    ----------
    input : Tensor, shape (batch, channels, rows, columns), or without the batch
        Images of floats.
    kernel_size : int or pair of int
        Window size.
    output_size : int or pair of int, optional
        Number of windows along each axis.
    output_ratio : float or pair of float, optional
        Alternative to `output_size`: number of windows divided by the axis size, above 0 and below
        1.
    return_indices : bool
        Whether to also return the positions of the maxima in the image, as row-major indices.
    _random_samples : Tensor, shape (batch, channels, 2), optional
        Numbers from 0 to 1 to use instead of drawn ones; the number for the columns comes first.

    Returns
    -------
    Tensor or Pooled
        Tensor of shape (batch, channels, out rows, out columns), or without the batch. With
        `return_indices`, a named tuple (values, indices).

    Raises
    ------
    DTypeError
        `input` does not hold floats.
    ShapeError
        The windows do not fit, or not exactly one of `output_size` and `output_ratio` is given.

    Examples
    --------
    >>> images = krt.arange(16.0).reshape(1, 4, 4)
    >>> krt.nn.functional.fractional_max_pool2d(images, 2, output_size=2).shape
    (1, 2, 2)
    """
    given = Fractions("fractional_max_pool2d", 2, kernel_size, output_size, output_ratio)
    return _pooled(input, given, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Tensor, kernel_size: _Numbers, output_size: _Numbers | None = None,  # noqa: A002
    output_ratio: _Numbers | None = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | Pooled[Tensor]:  # fmt: skip
    """Return the maxima of windows at random positions over the last three axes.

    See :func:`fractional_max_pool2d`.

    Parameters
    ----------
    input : Tensor, shape (batch, channels, depth, rows, columns), or without the batch
        Volumes of floats.
    kernel_size : int or triple of int
        Window size.
    output_size : int or triple of int, optional
        Number of windows along each axis.
    output_ratio : float or triple of float, optional
        Alternative to `output_size`: number of windows divided by the axis size, above 0 and below
        1.
    return_indices : bool
        Whether to also return the positions of the maxima in the volume, as row-major indices.
    _random_samples : Tensor, shape (batch, channels, 3), optional
        Numbers from 0 to 1 to use instead of drawn ones, in the order of the axes.

    Returns
    -------
    Tensor or Pooled
        Tensor of shape (batch, channels, out depth, out rows, out columns), or without the batch.
        With `return_indices`, a named tuple (values, indices).

    Raises
    ------
    DTypeError, ShapeError
        As for :func:`fractional_max_pool2d`.

    Examples
    --------
    >>> volumes = krt.arange(64.0).reshape(1, 4, 4, 4)
    >>> krt.nn.functional.fractional_max_pool3d(volumes, 2, output_ratio=0.5).shape
    (1, 2, 2, 2)
    """
    given = Fractions("fractional_max_pool3d", 3, kernel_size, output_size, output_ratio)
    return _pooled(input, given, return_indices, _random_samples)


def _pooled(
    images: Tensor, given: Fractions, return_indices: bool, samples: Tensor | None
) -> Tensor | Pooled[Tensor]:
    x, n, name = tensor_of(images, "input", floats=True), len(given.kernel), given.name
    if x.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"input: expected {n + 1} or {n + 2} axes, not the shape {format_shape(x.dims)}"
        )
    single = x.ndim == n + 1
    x = x.unsqueeze(0) if single else x
    sizes = [x._static_size(axis, name) for axis in range(2, n + 2)]
    counts = given.of(sizes)
    wanted = (*x.dims[:2], n)
    drawn = rand(*wanted, dtype=x.dtype) if samples is None else samples
    if tensor_of(drawn, "_random_samples", floats=True).shape != (*x.shape[:2], n):
        raise ShapeError(
            f"_random_samples: expected shape {format_shape(wanted)}, not "
            f"{format_shape(drawn.dims)}"
        )
    # For images PyTorch expects the sample of the columns first; for volumes, in axis order.
    order = range(n) if n == 3 else (1, 0)
    places = [
        _starts(drawn[..., k], size, count, kernel)
        for k, size, count, kernel in zip(order, sizes, counts, given.kernel, strict=True)
    ]
    taps = []
    for axis, (start, kernel) in enumerate(zip(places, given.kernel, strict=True)):
        at = start.unsqueeze(-1) + arange(kernel)
        shape = [1] * (2 * n)
        shape[axis], shape[n + axis] = counts[axis], kernel
        taps.append(at.reshape(*x.dims[:2], *shape) * math.prod(sizes[axis + 1 :]))
    index = functools.reduce(lambda a, b: a + b, taps)
    windows = (*x.dims[:2], math.prod(counts), math.prod(given.kernel))
    taken = index.reshape(*x.dims[:2], windows[2] * windows[3])
    seen = x.flatten(2).gather(2, taken).reshape(windows)
    best = seen.max(-1)
    where = index.reshape(windows).gather(-1, best.indices.unsqueeze(-1)).squeeze(-1)
    found = [t.reshape(*x.dims[:2], *counts) for t in (best.values, where)]
    values, at = (t.squeeze(0) for t in found) if single else found
    return Pooled(values, at) if flag(return_indices, "return_indices") else values


def _starts(sample: Tensor, size: int, count: int, kernel: int) -> Tensor:
    """Return the start positions of windows along an axis, for each channel of each image."""
    last = full((*sample.dims, 1), size - kernel, dtype=dt.int64)
    if count <= 1:
        return last[..., :count]
    step = (size - kernel) / (count - 1)
    sample = sample.detach().unsqueeze(-1)
    first = ((arange(count - 1) + sample) * step).long() - (sample * step).long()
    return cat([first, last], -1)
