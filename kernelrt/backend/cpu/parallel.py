"""Runs work on several threads so that no signal handler can interrupt it halfway."""

from __future__ import annotations

import heapq
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from kernelrt.native import locks
from kernelrt.util.lazy_import import Helpers
from kernelrt.util.llvm_binding import binding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

__all__ = ["on_threads"]


def on_threads(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    limit: int = 1,
    weight: Callable[[_Item], int] = lambda _: 0,
) -> list[_Result]:
    """Return the results of `work` for `items`, in order. No signal handler interrupts `work`.

    Signal handlers run on the main thread. If a handler raised an exception between two calls of
    LLVM, objects could be freed twice or in the wrong order. So other threads do the work, while
    the main thread waits. The calling thread does the work itself in two cases only: if no other
    thread can be started, and in a child process that a handler forks meanwhile.

    The iterator `items` runs on the calling thread, where handlers may interrupt it. While it
    produces items, at most `limit` - 1 other threads already process the first ones. Waiting items
    are processed in the order of their `weight`, greatest first. So no thread is left with a large
    item at the end while the others are idle.

    `work` may take the locks of the compiler, the loader and LLVM, which no other code takes. It
    must not take a lock that interrupted code of the main thread, or the iterator, may hold.

    Raises
    ------
    Exception
        The exception that the iterator or `work` raised. If several items failed, the exception of
        the first one.
    """
    tasks = _Tasks(work, weight)
    own = threading.current_thread() is not threading.main_thread()
    # Signal handlers and finalizers may run anywhere in here. Helper threads end by themselves when
    # no item is waiting.
    with locks.uncollected:
        helpers = Helpers(tasks.run)
        try:
            tasks.share(items, helpers, limit - 1)
            for _ in range(min(len(tasks.left), limit - own - helpers.busy())):
                helpers.start()
            if own:
                tasks.run()
            helpers.wait()
            tasks.finish()
        finally:
            tasks.left.clear()
    return tasks.results()


class _Tasks(Generic[_Item, _Result]):
    """Waiting items, and the results of finished ones by their position.

    Threads share the lists and dicts of this object without a lock: each access is a single
    operation that the interpreter does not interrupt.
    """

    def __init__(self, work: Callable[[_Item], _Result], weight: Callable[[_Item], int]) -> None:
        self._work = work
        self._weight = weight
        self._items: list[_Item] = []
        self._done: dict[int, _Result] = {}
        self._failed: dict[int, BaseException] = {}
        self.left: list[tuple[int, int]] = []  # a heap

    def share(self, items: Iterable[_Item], helpers: Helpers, most: int) -> None:
        """Take all `items`, and start helpers as long as fewer than `most` are busy."""
        for _ in self._each(items):
            if helpers.busy() < most:
                helpers.start()

    def _each(self, items: Iterable[_Item]) -> Iterator[None]:
        """Take `items` one by one, until one has failed."""
        try:
            for item in items:
                if not self._items:
                    binding()
                self._items.append(item)
                self._wait_for(len(self._items) - 1)
                yield
                if self._failed:
                    return
        except Exception as error:  # noqa: BLE001 - raised again unless an earlier item fails
            self._failed[len(self._items)] = error

    def run(self) -> None:
        """Process items until none is waiting."""
        while self.left:
            try:
                _, at = heapq.heappop(self.left)
            except IndexError:  # another thread was faster
                return
            if self._failed and min(self._failed) < at:
                continue  # its result is not needed, since an earlier item failed
            try:
                self._done[at] = self._work(self._items[at])
            except Exception as error:  # noqa: BLE001 - results() raises it
                self._failed[at] = error
            except BaseException as error:  # noqa: BLE001 - an interrupt has priority
                self._failed[-1] = error

    def finish(self) -> None:
        """Process the items that no other thread has processed."""
        for at in range(len(self._items)):
            if not (at in self._done or at in self._failed):
                self._wait_for(at)
        self.run()

    def results(self) -> list[_Result]:
        """Return the results of all items, or raise the exception of the first failed item."""
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._done[at] for at in range(len(self._items))]

    def _wait_for(self, at: int) -> None:
        heapq.heappush(self.left, (-self._weight(self._items[at]), at))
