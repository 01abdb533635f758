"""Work on several threads that a signal handler cannot stop halfway."""

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
    """Give `work` of each of `items`, in order, which no signal handler gets to see halfway.

    Handlers run on the main thread alone. An exception of one, thrown between two calls of LLVM,
    would leave objects that are freed twice or in the wrong order. So the main thread waits for
    others. Where no thread can be started, and in a child that a handler forks meanwhile, this one
    does the work.

    The items are made on this thread, where handlers may meet that. Other threads, one fewer than
    `limit`, begin with the first ones while the next are made. Whatever has to wait is done in the
    order of its `weight`, the greatest first, so that in the end no thread is left alone with much.

    `work` may take the locks of the compiler, of the loader and of LLVM, which are taken nowhere
    else, and none that the interrupted code of the main thread may hold, nor what makes the items.

    Raises
    ------
    Exception
        What was raised for the first item for which that happened, in making it or by `work`.
    """
    tasks = _Tasks(work, weight)
    own = threading.current_thread() is not threading.main_thread()
    # Handlers of signals and finalizers may start anywhere in here; helpers end by themselves as
    # soon as nothing waits for them.
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
    """Items that wait, and what came of the others, by their place in the order.

    What many threads do with the lists and dicts here are single steps of the interpreter.
    """

    def __init__(self, work: Callable[[_Item], _Result], weight: Callable[[_Item], int]) -> None:
        self._work = work
        self._weight = weight
        self._items: list[_Item] = []
        self._done: dict[int, _Result] = {}
        self._failed: dict[int, BaseException] = {}
        self.left: list[tuple[int, int]] = []  # a heap

    def share(self, items: Iterable[_Item], helpers: Helpers, most: int) -> None:
        """Take `items`, and start helpers for them as long as fewer than `most` are busy."""
        for _ in self._each(items):
            if helpers.busy() < most:
                helpers.start()

    def _each(self, items: Iterable[_Item]) -> Iterator[None]:
        """Take `items`, and stop after each one, until one has failed."""
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
        """Work until nothing waits."""
        while self.left:
            try:
                _, at = heapq.heappop(self.left)
            except IndexError:  # another thread was faster
                return
            if self._failed and min(self._failed) < at:
                continue  # never asked for
            try:
                self._done[at] = self._work(self._items[at])
            except Exception as error:  # noqa: BLE001 - raised again where it belongs
                self._failed[at] = error
            except BaseException as error:  # noqa: BLE001 - an interrupt comes before all
                self._failed[-1] = error

    def finish(self) -> None:
        """Do what no other thread did."""
        for at in range(len(self._items)):
            if not (at in self._done or at in self._failed):
                self._wait_for(at)
        self.run()

    def results(self) -> list[_Result]:
        """Give what came of all items, or raise the error of the first that failed."""
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._done[at] for at in range(len(self._items))]

    def _wait_for(self, at: int) -> None:
        heapq.heappush(self.left, (-self._weight(self._items[at]), at))
