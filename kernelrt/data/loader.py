"""DataLoader: loads batches of any data set before the program asks for them."""

from __future__ import annotations

import itertools
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import numpy as np

from kernelrt.data.collate import computed, default_collate
from kernelrt.data.rows import size_option
from kernelrt.data.samplers import BatchSampler, RandomSampler, SequentialSampler
from kernelrt.data.sets import TensorDataset
from kernelrt.errors import DomainError, DTypeError, ShapeError
from kernelrt.tensor import Tensor
from kernelrt.tensor.free_functions.creation import tensor
from kernelrt.tensor.nodes.arguments import flag, integer, real

__all__ = ["DataLoader"]

Collate = Callable[[list[Any]], Any]


class DataLoader:
    """Batches of a data set as Tensors, with the interface of ``torch.utils.data.DataLoader``.

    Parameters
    ----------
    dataset : object
        Object with ``__getitem__`` and ``__len__``, or with ``__iter__`` only: a list, a data set
        of PyTorch or Hugging Face, or a class of your own.
    batch_size : int, optional
        Samples of a batch. With None, the loader yields single samples that are not collated.
    shuffle : bool, optional
        Whether to use a new random order in each epoch.
    sampler : iterable of int, optional
        Indices of the samples, instead of `shuffle`.
    batch_sampler : iterable of list of int, optional
        Indices of the samples of each batch, instead of all options above.
    num_workers : int
        Number of threads that load batches ahead. With 0, a batch is loaded when it is requested.
        Threads run in parallel while they read files or run NumPy or kernelrt, but not while they
        run plain Python code.
    collate_fn : callable, optional
        Makes a batch of a list of samples; :func:`default_collate` by default.
    pin_memory, persistent_workers : bool
        Ignored, because they have no meaning for CPUs and threads.
    drop_last : bool
        Whether to leave out the last batch if it is smaller.
    timeout : float
        Seconds to wait for a batch before an error; 0 waits forever.
    worker_init_fn : callable, optional
        Called in each thread with the thread's number.
    multiprocessing_context : object
        Ignored: there are no processes.
    generator : Generator or numpy.random.Generator, optional
        Random generator of the orders.
    prefetch_factor : int, optional
        Number of batches that each thread loads ahead, 2 by default.
    seed : int, optional
        Seed of the orders if there is no `generator`; by default they follow
        :func:`kernelrt.manual_seed`.

    Notes
    -----
    The loader computes the tensors of each sample, then the tensors of the batch. So graphs that
    use the batch do not contain the operations that made the samples, such as slices and random
    draws.

    Raises
    ------
    DomainError
        `timeout` is negative.
    ShapeError
        Options exclude each other, or a number is too small.
    DTypeError
        `dataset` cannot be indexed or iterated, or an option has a wrong type.

    Examples
    --------
    >>> from kernelrt.data import DataLoader
    >>> for x, name in DataLoader([(1.0, "a"), (2.0, "b"), (3.0, "c")], batch_size=2):
    ...     print(x.tolist(), name)
    [1.0, 2.0] ['a', 'b']
    [3.0] ['c']
    """

    def __init__(
        self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
        sampler: Iterable[int] | None = None, batch_sampler: Iterable[list[int]] | None = None,
        num_workers: int = 0, collate_fn: Collate | None = None, pin_memory: bool = False,
        drop_last: bool = False, timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: object = None, generator: Any = None, *,
        prefetch_factor: int | None = None, persistent_workers: bool = False,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        del pin_memory, persistent_workers, multiprocessing_context
        shuffle = None if shuffle is None else flag(shuffle, "shuffle")
        self.timeout = real(timeout, "timeout")
        if not self.timeout >= 0:
            raise DomainError(f"timeout: expected at least 0 seconds, not {timeout!r}")
        self.dataset = dataset
        self.num_workers = integer(num_workers, "num_workers", least=0)
        self._start = _function(worker_init_fn, "worker_init_fn")
        self._ahead = 2 if prefetch_factor is None else size_option(
            prefetch_factor, "prefetch_factor")  # fmt: skip
        self.collate_fn = _function(collate_fn, "collate_fn")
        self.drop_last = flag(drop_last, "drop_last")
        self.batch_size = None if batch_size is None else size_option(batch_size, "batch_size")
        self._streams = _is_stream(dataset)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if self._streams:
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ShapeError(
                    "shuffle: an iterable data set cannot be reordered by shuffle, sampler or "
                    "batch_sampler; leave them out, and shuffle in the data set itself"
                )
            return
        self._choose(shuffle, generator, seed)

    def _choose(self, shuffle: bool | None, generator: Any, seed: int | None) -> None:
        """Check and set the samplers."""
        if self.batch_sampler is not None:
            if self.batch_size != 1 or shuffle or self.sampler is not None or self.drop_last:
                raise ShapeError(
                    "batch_sampler: the batch sampler already defines the batches; leave out "
                    "batch_size, shuffle, sampler and drop_last"
                )
            self.batch_size = None
            return
        if self.sampler is not None and shuffle:
            raise ShapeError("sampler: the sampler already defines the order; leave out shuffle")
        if self.sampler is None:
            self.sampler = (
                RandomSampler(self.dataset, generator=generator, seed=seed) if shuffle
                else SequentialSampler(self.dataset)
            )  # fmt: skip
        if self.batch_size is None:
            if self.drop_last:
                raise ShapeError(
                    "drop_last: batch_size=None makes no batches; leave out drop_last, or pass a "
                    "batch_size"
                )
            return
        self.batch_sampler = BatchSampler(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        """Return the number of batches of an epoch; TypeError if the data set has no length."""
        plan = self.batch_sampler if self.batch_sampler is not None else self.sampler
        if plan is not None:
            if not isinstance(plan, Sized):
                raise TypeError(f"object of type {type(plan).__name__!r} has no len()")
            return len(plan)
        total = len(self.dataset)
        if self.batch_size is None:
            return total
        whole, rest = divmod(total, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self._streams:
            tasks = self._stream()
            if self.num_workers == 0:
                return (task() for task in tasks)
            return _ahead_of(_one_thread(tasks), self, 1)
        tasks = self._tasks()
        if self.num_workers == 0:
            return (task() for task in tasks)
        return _ahead_of(tasks, self, self.num_workers)

    def _tasks(self) -> Iterator[Callable[[], Any]]:
        if self.batch_sampler is not None:
            for places in self.batch_sampler:
                yield lambda places=places: self._batch(list(places))  # type: ignore[misc]
            return
        assert self.sampler is not None
        for place in self.sampler:
            yield lambda place=place: self._single(self.dataset[place])  # type: ignore[misc]

    def _batch(self, places: list[int]) -> Any:
        held = self.dataset
        if self.collate_fn is None and type(held) is TensorDataset:
            return tuple(t if isinstance(t, Tensor) else tensor(t) for t in held.take(places))
        if hasattr(held, "__getitems__"):
            samples = held.__getitems__(places)
        else:
            samples = [computed(held[i]) for i in places]
        return self._joined(samples)

    def _joined(self, samples: list[Any]) -> Any:
        return computed((self.collate_fn or default_collate)(samples))

    def _single(self, sample: Any) -> Any:
        if self.collate_fn is not None:
            return computed(self.collate_fn(computed(sample)))
        return tensor(sample) if isinstance(sample, np.ndarray) else computed(sample)

    def _stream(self) -> Iterator[Callable[[], Any]]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            for sample in samples:
                yield lambda sample=sample: self._single(sample)  # type: ignore[misc]
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield lambda batch=batch: self._joined([*map(computed, batch)])  # type: ignore[misc]


def _function(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        raise DTypeError(f"{name}: expected a function, not {type(value).__name__}")
    return value


def _is_stream(dataset: Any) -> bool:
    """Return whether a data set can only be iterated, not indexed."""
    kinds = type(dataset).__mro__
    # PyTorch's IterableDataset inherits a __getitem__ that raises an error.
    if any(kind.__name__ == "IterableDataset" for kind in kinds):
        return True
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return False
    if hasattr(dataset, "__iter__"):
        return True
    raise DTypeError(
        "dataset: expected an object with __getitem__ and __len__, or with __iter__, not "
        f"{type(dataset).__name__}"
    )


#: Seconds between two checks for signals while waiting for a batch.
_SLICE_S = 0.1


class _Slot:
    """A batch that a thread will load."""

    __slots__ = ("done", "error", "task", "value")

    def __init__(self, task: Callable[[], Any]) -> None:
        self.task = task
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def comes(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the batch; return whether it is there.

        The method waits in slices of 0.1 s, because a signal that arrives just before a wait does
        not interrupt the wait. The handler of the signal then runs at the end of the slice.
        """
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            if self.done.wait(min(left, _SLICE_S)):
                return True
        return self.done.is_set()

    def fill(self) -> None:
        """Run the task."""
        try:
            self.value = self.task()
        except BaseException as error:  # noqa: BLE001 - raised in the consumer
            self.error = error
        finally:
            self.done.set()


def _work(
    tasks: queue.SimpleQueue[_Slot | None], ends: threading.Event, number: int,
    start: Callable[[int], object] | None,
) -> None:  # fmt: skip
    failed: BaseException | None = None
    try:
        if start is not None:
            start(number)
    except BaseException as error:  # noqa: BLE001 - raised in the consumer
        failed = error
    while (slot := tasks.get()) is not None:
        if ends.is_set():
            slot.done.set()
        elif failed is not None:
            slot.error = failed
            slot.done.set()
        else:
            slot.fill()


def _ahead_of(
    tasks: Iterator[Callable[[], Any]], loader: DataLoader, workers: int
) -> Iterator[Any]:
    """Yield the results of tasks in order; threads run the tasks before the results are needed.

    The threads stop when the iterator stops: at its end, when it is closed or collected, or when it
    raises an error or is interrupted by Ctrl-C. They are daemon threads, so a thread that waits for
    data does not keep the process alive.
    """
    todo: queue.SimpleQueue[_Slot | None] = queue.SimpleQueue()
    ends = threading.Event()
    waiting: deque[_Slot] = deque()
    threads = [
        threading.Thread(
            target=_work, args=(todo, ends, i, loader._start), daemon=True,  # noqa: SLF001
            name=f"kernelrt-loader-{i}",
        )
        for i in range(workers)
    ]  # fmt: skip
    try:
        for thread in threads:
            thread.start()
        for task in itertools.islice(tasks, workers * loader._ahead):  # noqa: SLF001
            waiting.append(_Slot(task))
            todo.put(waiting[-1])
        while waiting:
            slot = waiting.popleft()
            if not slot.comes(loader.timeout or math.inf):
                raise TimeoutError(
                    f"DataLoader: no batch arrived within {loader.timeout} s; pass a greater "
                    "timeout, or timeout=0 to wait as long as it takes"
                )
            if slot.error is not None:
                if isinstance(slot.error, _End):
                    return
                raise slot.error
            for task in itertools.islice(tasks, 1):
                waiting.append(_Slot(task))
                todo.put(waiting[-1])
            yield slot.value
    finally:
        ends.set()
        for _ in threads:
            todo.put(None)


class _End(Exception):  # noqa: N818 - not an error
    """A stream has no more samples."""


def _one_thread(tasks: Iterator[Callable[[], Any]]) -> Iterator[Callable[[], Any]]:
    """Return tasks that run in one thread; each takes the next item of a stream."""

    def take() -> Any:
        for task in tasks:
            return task()
        raise _End

    return itertools.repeat(take)
