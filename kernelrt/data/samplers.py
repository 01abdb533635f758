"""Samplers: the order of samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

from kernelrt.data.rows import fresh_seed, seed_of, size_option
from kernelrt.data.sets import order_of
from kernelrt.errors import DTypeError, ShapeError, a_type
from kernelrt.tensor.nodes.arguments import flag

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler"]


class Sampler:
    """Base class of samplers, which yield indices of samples. Any iterable can replace one.

    Examples
    --------
    >>> class Backwards(krt.data.Sampler):
    ...     def __init__(self, count):
    ...         self.count = count
    ...     def __iter__(self):
    ...         return iter(range(self.count - 1, -1, -1))
    >>> loader = krt.data.DataLoader([1.0, 2.0, 3.0], batch_size=2, sampler=Backwards(3))
    >>> [x.tolist() for x in loader]
    [[3.0, 2.0], [1.0]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(
            f"{type(self).__name__} defines no __iter__; a subclass of Sampler must define it"
        )


class SequentialSampler(Sampler):
    """Yield all indices in order.

    Parameters
    ----------
    data_source : object
        Object with ``__len__``.

    Examples
    --------
    >>> list(krt.data.SequentialSampler(["a", "b", "c"]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Yield indices in a new random order each time.

    Parameters
    ----------
    data_source : object
        Object with ``__len__``.
    replacement : bool
        Whether to draw with replacement.
    num_samples : int, optional
        Number of indices; by default the number of samples.
    generator : Generator or numpy.random.Generator, optional
        Random generator of the order.
    seed : int, optional
        Seed of the orders if there is no `generator`; by default they follow
        :func:`kernelrt.manual_seed`.

    Attributes
    ----------
    epoch : int
        Number of iterations started.

    Raises
    ------
    ShapeError
        `num_samples` is below 1.

    Examples
    --------
    >>> sampler = krt.data.RandomSampler(range(4), seed=0)
    >>> len(sampler), sorted(sampler)
    (4, [0, 1, 2, 3])
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None,
        generator: Any = None, *, seed: int | None = None,
    ) -> None:  # fmt: skip
        self.data_source = data_source
        self.replacement = replacement
        self._count = None if num_samples is None else size_option(num_samples, "num_samples")
        self._generator = generator
        self._seed = seed_of(seed)
        #: Number of iterations started.
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        if self._seed is None and self._generator is None:
            self._seed = fresh_seed()
        rng = order_of(self._generator, self._seed, self.epoch)
        self.epoch += 1
        total, count = len(self.data_source), len(self)
        if self.replacement:
            yield from rng.integers(0, total, count).tolist()
            return
        while count > 0:
            order = rng.permutation(total).tolist()[:count]
            yield from order
            count -= len(order)

    def __len__(self) -> int:
        return len(self.data_source) if self._count is None else self._count


class BatchSampler(Sampler):
    """Yield lists of indices from another sampler.

    Parameters
    ----------
    sampler : iterable of int
        Sampler of the indices.
    batch_size : int
        Length of a list.
    drop_last : bool
        Whether to leave out the last list if it is shorter.

    Raises
    ------
    DTypeError
        `sampler` is not iterable.
    ShapeError
        `batch_size` is below 1; or in ``len()``, `sampler` has no length.

    Examples
    --------
    >>> list(krt.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(sampler, Iterable):
            raise DTypeError(f"sampler: expected an iterable, not {type(sampler).__name__}")
        self.sampler = sampler
        self.batch_size = size_option(batch_size, "batch_size")
        self.drop_last = flag(drop_last, "drop_last")

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise ShapeError(
                "sampler: len() of a BatchSampler needs a sampler with __len__, not "
                f"{a_type(self.sampler)}"
            )
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)
