"""Batches of arrays and tensors in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelrt.data.rows import count_of, fresh_seed, held, seed_of, size_option, take
from kernelrt.errors import ShapeError
from kernelrt.native.multi_step import order_of
from kernelrt.tensor.nodes.arguments import flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

__all__ = ["Batches", "batches"]


class Batches:
    """Batches of rows of data. Each iteration over this object is one epoch.

    Made by :func:`batches`.

    Parameters
    ----------
    data : array, Tensor, list, or dict or tuple of them
        Data with equal numbers of rows along the first axis.
    batch_size, shuffle, seed, drop_last
        As for :func:`batches`.

    Attributes
    ----------
    batch_size : int
        Rows of a batch.
    shuffle, drop_last : bool
        Options of :func:`batches`.
    epoch : int
        Number of epochs that were started. To continue a run with the same seed, set it to the
        number of epochs that the run started.

    Examples
    --------
    >>> made = krt.data.batches(np.arange(5), batch_size=2, drop_last=True)
    >>> len(made), [x.tolist() for x in made], made.epoch
    (2, [[0, 1], [2, 3]], 1)
    """

    def __init__(
        self, data: Any, batch_size: int, *, shuffle: bool, seed: int | None, drop_last: bool
    ) -> None:
        self._data = data
        self._rows = count_of(data, "data")
        self.batch_size = size_option(batch_size, "batch_size")
        self.shuffle = flag(shuffle, "shuffle")
        self.drop_last = flag(drop_last, "drop_last")
        self._seed = seed_of(seed)
        #: Number of epochs started.
        self.epoch = 0

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        whole, rest = divmod(self._rows, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        order = self._order(self.epoch) if self.shuffle else None
        self.epoch += 1
        return self._run(order)

    def _order(self, epoch: int) -> np.ndarray[Any, Any]:
        if self._seed is None:
            self._seed = fresh_seed()
        return order_of(self._rows, self._seed, epoch)

    def _run(self, order: np.ndarray[Any, Any] | None) -> Iterator[Any]:
        data = held(self._data)
        for k in range(len(self)):
            start = k * self.batch_size
            end = min(start + self.batch_size, self._rows)
            yield take(data, slice(start, end) if order is None else order[start:end])

    def __repr__(self) -> str:
        return (
            f"Batches({self._rows} rows, batch_size={self.batch_size}, shuffle={self.shuffle}, "
            f"drop_last={self.drop_last})"
        )


def batches(
    *data: Any, batch_size: int = 32, shuffle: bool = False, seed: int | None = None,
    drop_last: bool = False,
) -> Batches:  # fmt: skip
    """Return batches of data in memory.

    The data must fit in memory. :class:`DataLoader` takes any data set.

    Parameters
    ----------
    *data : array, Tensor, list, or dict or tuple of them
        Data with equal numbers of rows along the first axis. Batches of arrays are arrays, which
        jitted functions take directly; batches of tensors are tensors.
    batch_size : int
        Rows of a batch.
    shuffle : bool
        Whether to use a new random order in each epoch.
    seed : int, optional
        Seed of the orders; by default they follow :func:`kernelrt.manual_seed`.
    drop_last : bool
        Whether to leave out the last batch if it is smaller; a jitted function would be compiled
        again for it.

    Returns
    -------
    Batches
        An iterable: one iteration is one epoch, and ``len`` is the number of its batches. A batch
        has the structure of the data. For several arguments, it is a tuple.

    Raises
    ------
    ShapeError
        Numbers of rows differ, or `batch_size` is below 1.
    DTypeError
        An argument has no rows.

    Examples
    --------
    >>> from kernelrt.data import batches
    >>> epoch = batches(np.arange(5), {"twice": np.arange(5) * 2}, batch_size=2)
    >>> len(epoch)
    3
    >>> [(x.tolist(), y["twice"].tolist()) for x, y in epoch]
    [([0, 1], [0, 2]), ([2, 3], [4, 6]), ([4], [8])]
    """
    if not data:
        raise ShapeError("data: expected at least one array, not none; call batches(x, y, ...)")
    return Batches(data[0] if len(data) == 1 else data, batch_size, shuffle=shuffle, seed=seed,
                   drop_last=drop_last)  # fmt: skip
