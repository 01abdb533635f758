"""Data sets: indexed and iterable ones."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kernelrt.data.rows import count_of, fresh_seed, generator_of, held, seed_of, take
from kernelrt.errors import DTypeError, ShapeError
from kernelrt.tensor.nodes.arguments import whole
from kernelrt.tensor.rng.random import randint
from kernelrt.tensor.rng.stream import Generator
from kernelrt.util.lazy_import import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ConcatDataset", "Dataset", "IterableDataset", "Subset", "TensorDataset",
           "random_split"]  # fmt: skip


class Dataset:
    """Base class of indexed data sets; a subclass defines ``__len__`` and ``__getitem__``.

    Other objects with both methods can be loaded, too.

    Examples
    --------
    >>> class Squares(krt.data.Dataset):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, index):
    ...         return index, index**2
    >>> [x.tolist() for x in next(iter(krt.data.DataLoader(Squares(), batch_size=3)))]
    [[0, 1, 2], [0, 1, 4]]
    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} defines no __getitem__; a subclass of Dataset must define it"
        )

    def __len__(self) -> int:
        raise NotImplementedError(
            f"{type(self).__name__} defines no __len__; a subclass of Dataset must define it"
        )


class IterableDataset:
    """Base class of data sets that yield samples; a subclass defines ``__iter__``.

    Examples
    --------
    >>> class Stream(krt.data.IterableDataset):
    ...     def __iter__(self):
    ...         yield from (1.0, 2.0, 3.0)
    >>> [x.tolist() for x in krt.data.DataLoader(Stream(), batch_size=2)]
    [[1.0, 2.0], [3.0]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(
            f"{type(self).__name__} defines no __iter__; a subclass of IterableDataset must define "
            "it"
        )


class TensorDataset(Dataset):
    """Rows of arrays and tensors: sample `i` is a tuple of row `i` of each.

    Parameters
    ----------
    *tensors : Tensor or array
        Data with equal numbers of rows along the first axis. A loader computes and reads a tensor
        only once.

    Raises
    ------
    DTypeError
        An argument has no rows.
    ShapeError
        There is no argument, or numbers of rows differ.

    Examples
    --------
    >>> data = krt.data.TensorDataset(krt.tensor([1.0, 2.0, 3.0]), np.array([4, 5, 6]))
    >>> len(data), [float(v) for v in data[1]]
    (3, [2.0, 5.0])
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ShapeError("tensors: expected at least one tensor or array, not none")
        self._count = count_of(tensors, "tensors")
        self.tensors = tensors
        self._held: Any = None

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        number = whole(index)
        if number is None:
            return tuple(take(t, index if isinstance(index, slice) else np.asarray(index))
                         for t in self.tensors)  # fmt: skip
        place = _position(number, self._count)
        return tuple(t[place] for t in self.tensors)

    def take(self, rows: Sequence[int]) -> tuple[Any, ...]:
        """Return the given samples as a batch.

        Parameters
        ----------
        rows : sequence of int
            Indices of the samples.

        Returns
        -------
        tuple
            The rows of each array and tensor.

        Examples
        --------
        >>> data = krt.data.TensorDataset(krt.tensor([1.0, 2.0, 3.0]), np.array([4, 5, 6]))
        >>> [v.tolist() for v in data.take([2, 0])]
        [[3.0, 1.0], [6, 4]]
        """
        if self._held is None:
            self._held = held(self.tensors)
        found: tuple[Any, ...] = take(self._held, np.asarray(rows, np.int64))
        return found

    def __len__(self) -> int:
        return self._count


def _position(index: int, count: int) -> int:
    """Return a checked, nonnegative index."""
    if not -count <= index < count:
        raise IndexError(f"index: {index} is out of range for a data set of {count} samples")
    return index % count


class Subset(Dataset):
    """Selected samples of a data set.

    Parameters
    ----------
    dataset : object
        Data set with ``__getitem__``.
    indices : sequence of int
        Indices of the samples.

    Raises
    ------
    DTypeError
        `dataset` has no ``__getitem__``.

    Examples
    --------
    >>> part = krt.data.Subset(["a", "b", "c"], [2, 0])
    >>> len(part), part[0]
    (2, 'c')
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        if not hasattr(dataset, "__getitem__"):
            raise DTypeError(
                f"dataset: expected an object with __getitem__, not {type(dataset).__name__}"
            )
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list | tuple | np.ndarray):
            return [self.dataset[self.indices[int(i)]] for i in index]
        return self.dataset[self.indices[_position(int(index), len(self.indices))]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Concatenated data sets.

    Parameters
    ----------
    datasets : sequence of object
        Data sets with ``__getitem__`` and ``__len__``.

    Raises
    ------
    ShapeError
        There is no data set.

    Examples
    --------
    >>> both = krt.data.ConcatDataset([["a", "b"], ["c"]])
    >>> len(both), both[2]
    (3, 'c')
    """

    def __init__(self, datasets: Sequence[Any]) -> None:
        if not datasets:
            raise ShapeError("datasets: expected at least one data set, not an empty sequence")
        self.datasets = list(datasets)
        self._ends = np.cumsum([len(d) for d in self.datasets]).tolist()

    def __getitem__(self, index: int) -> Any:
        place = _position(int(index), len(self))
        which = bisect_right(self._ends, place)
        return self.datasets[which][place - (self._ends[which - 1] if which else 0)]

    def __len__(self) -> int:
        return int(self._ends[-1])


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Any = None, *, seed: int | None = None
) -> list[Subset]:
    """Split a data set randomly into parts.

    Parameters
    ----------
    dataset : object
        Data set with ``__getitem__`` and ``__len__``.
    lengths : sequence of int or float
        Number of samples of each part, or shares that sum to 1. With shares, the sizes are rounded
        down; then the first parts get one more sample each, until all samples are used.
    generator : Generator or numpy.random.Generator, optional
        Random generator of the order.
    seed : int, optional
        Seed of the order if there is no `generator`; by default it follows
        :func:`kernelrt.manual_seed`.

    Returns
    -------
    list of Subset
        One for each length.

    Raises
    ------
    DTypeError
        `lengths` holds anything but numbers, or `generator` is not a generator.
    ShapeError
        `lengths` are negative, or do not sum to 1 or to the number of samples.

    Examples
    --------
    >>> train, test = krt.data.random_split(range(10), [0.75, 0.25], seed=0)
    >>> len(train), len(test), sorted([*train, *test]) == list(range(10))
    (8, 2, True)
    """
    total = len(dataset)
    sizes = _lengths(lengths, total)
    order = order_of(generator, seed_of(seed)).permutation(total).tolist()
    ends = np.cumsum(sizes).tolist()
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _lengths(lengths: Sequence[float], total: int) -> list[int]:
    if any(isinstance(v, bool) or not isinstance(v, int | float | np.number) for v in lengths):
        raise DTypeError(f"lengths: expected numbers, not {lengths!r}")
    if any(v < 0 for v in lengths):
        raise ShapeError(f"lengths: expected numbers of at least 0, not {lengths}")
    if any(isinstance(v, float | np.floating) for v in lengths):
        if abs(sum(lengths) - 1) > 1e-6:
            raise ShapeError(f"lengths: expected fractions that sum to 1, not {lengths}")
        sizes = [int(total * v) for v in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        return sizes
    if sum(lengths) != total:
        raise ShapeError(
            f"lengths: expected numbers that sum to {total}, the number of samples, not {lengths}"
        )
    return [int(v) for v in lengths]


def order_of(generator: Any, seed: int | None, epoch: int = 0) -> np.random.Generator:
    """Return the random generator of an order: the given one, or one from a seed."""
    if generator is None:
        return generator_of(fresh_seed() if seed is None else seed, epoch)
    load("numpy.random")
    if isinstance(generator, Generator):
        words = randint(0, 1 << 32, (4,), generator=generator)
        return np.random.default_rng(cast("list[int]", words.tolist()))
    if not isinstance(generator, np.random.Generator):
        raise DTypeError(
            "generator: expected a kernelrt.Generator or a numpy.random.Generator, not "
            f"{type(generator).__name__}; to seed with a number, pass seed="
        )
    return generator
