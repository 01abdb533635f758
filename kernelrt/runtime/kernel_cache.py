"""The kernels of this process, by what they compute."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from concurrent.futures import CancelledError, Future
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING

from kernelrt import _locks
from kernelrt.device.registry import opened
from kernelrt.errors import DeviceError
from kernelrt.runtime.kernel import CachedKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelrt.ir import UOp

__all__ = ["KernelCache", "kernels"]

_Key = tuple["UOp", str]


class _Task(Future[CachedKernel]):
    """A kernel that is being made, and the thread that makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_ident()


class KernelCache:
    """Kernels by the content of their AST and their device; safe for many threads.

    UOps are hash-consed, so equal ASTs are one key. A kernel in use by a live plan is always
    found here. The `limit` most recently wanted ones are kept beyond that.

    Parameters
    ----------
    limit : int
        Most kernels to keep that may have no user.
    """

    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self._kept: OrderedDict[_Key, CachedKernel] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[_Key, CachedKernel] = weakref.WeakValueDictionary()
        self._pending: dict[_Key, _Task] = {}
        self._lock = _locks.Lock(_locks.KERNELS)
        _locks.at_fork(_locks.KERNELS, in_child=self._forget_others)
        self._compiled = 0
        self._seconds = 0.0

    @property
    def compiled(self) -> int:
        """How many kernels were compiled or loaded from disk so far."""
        return self._compiled

    @property
    def seconds(self) -> float:
        """Time that rendering, compiling and loading took so far, added up over threads."""
        return self._seconds

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, ast: object) -> bool:
        return any(key[0] is ast for key in list(self._kept))

    def get(self, ast: UOp, device: str = "CPU") -> CachedKernel:
        """Give the kernel of `ast`, compiled if it is new."""
        return self.get_many([ast], device)[0]

    def get_many(self, asts: Sequence[UOp], device: str = "CPU") -> list[CachedKernel]:
        """Give the kernels of `asts`, in order; all that are new are compiled together.

        A kernel that another thread is compiling is waited for, not compiled twice. Code that
        interrupts this thread, as a handler of a signal does, cannot wait for it and compiles its
        own.

        Raises
        ------
        CompileError, SpecError
            A kernel cannot be compiled. Everyone who waits for it gets the error; nothing is
            remembered, and the next request tries again.
        """
        while True:
            found: dict[_Key, CachedKernel] = {}
            mine: dict[_Key, _Task] = {}
            theirs: dict[_Key, _Task] = {}
            try:
                self._look_up([(ast, device) for ast in asts], found, mine, theirs)
                if mine:
                    self._compile(mine, device)
            finally:
                self._withdraw(mine)
            try:
                for key, future in (mine | theirs).items():
                    found[key] = future.result()
            except CancelledError:
                continue  # whoever compiled it was interrupted; now it is this thread's turn
            return [found[ast, device] for ast in asts]

    def clear(self) -> None:
        """Forget every kernel. Plans keep theirs; code without a user is freed."""
        with self._lock:
            self._kept.clear()
            self._alive.clear()

    def collect(self) -> int:
        """Free the kernels that no live plan uses.

        Returns
        -------
        int
            How many went.
        """
        with self._lock:
            before = list(self._kept)
            self._kept.clear()
        gc.collect()  # a plan in a reference cycle is no live plan
        with self._lock:
            for key in before:
                kernel = self._alive.get(key)
                if kernel is not None:
                    self._kept[key] = kernel
            return sum(key not in self._kept for key in before)

    def _look_up(
        self,
        keys: Sequence[_Key],
        found: dict[_Key, CachedKernel],
        mine: dict[_Key, _Task],
        theirs: dict[_Key, _Task],
    ) -> None:
        """What is there, what this thread has to compile, and what others are compiling."""
        with self._lock:
            for key in keys:
                if key in found or key in mine or key in theirs:
                    continue
                kernel = self._alive.get(key)
                task = self._pending.get(key)
                if kernel is not None:
                    found[key] = kernel
                    self._keep(key, kernel)
                elif task is not None and task.thread != get_ident():
                    theirs[key] = task
                else:
                    mine[key] = _Task()
                    self._pending.setdefault(key, mine[key])

    def _forget(self, tasks: dict[_Key, _Task]) -> None:
        """Let nobody find `tasks` any more."""
        with self._lock:
            for key, task in tasks.items():
                if self._pending.get(key) is task:
                    del self._pending[key]

    def _withdraw(self, tasks: dict[_Key, _Task]) -> None:
        """Let nobody find `tasks` any more, nor wait for those that are not done."""
        self._forget(tasks)
        for task in tasks.values():
            if not task.done():
                task.cancel()

    def _keep(self, key: _Key, kernel: CachedKernel) -> None:
        self._kept[key] = kernel
        self._kept.move_to_end(key)
        while len(self._kept) > self.limit:
            self._kept.popitem(last=False)

    def _compile(self, mine: dict[_Key, _Task], device: str) -> None:
        """Settle every future of `mine`."""
        keys = list(mine)
        started = perf_counter()
        try:
            kernels = _build([ast for ast, _ in keys], device)
            self._settle(mine, keys, kernels, perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            if len(keys) == 1:
                self._forget(mine)
                mine[keys[0]].set_exception(error)
            else:  # one broken kernel is no reason for the others to fail
                for key in keys:
                    self._compile({key: mine[key]}, device)

    def _settle(
        self,
        mine: dict[_Key, _Task],
        keys: list[_Key],
        kernels: list[CachedKernel],
        seconds: float,
    ) -> None:
        with self._lock:
            self._compiled += len(kernels)
            self._seconds += seconds
            for key, kernel in zip(keys, kernels, strict=True):
                self._alive[key] = kernel
                self._keep(key, kernel)
            self._forget(mine)
        for key, kernel in zip(keys, kernels, strict=True):
            mine[key].set_result(kernel)

    def _forget_others(self) -> None:
        """Forget what threads that do not exist in a forked child were compiling."""
        self._pending = {}


def _build(asts: Sequence[UOp], device: str) -> list[CachedKernel]:
    target = opened(device)
    if target.renderer is None:
        raise DeviceError(f"device {device!r} renders no kernels; give it compiled ones")
    programs = [target.renderer.render(ast) for ast in asts]
    loaded = target.loader.load(target.compiler.compile(programs))
    return [
        CachedKernel.from_program(spec, program)
        for spec, program in zip(programs, loaded, strict=True)
    ]


#: The cache that plans are prepared with.
kernels = KernelCache()
