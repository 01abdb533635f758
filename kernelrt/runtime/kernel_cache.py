"""Cache of the compiled kernels of this process, keyed by AST."""

from __future__ import annotations

import gc
import weakref
from _thread import LockType, allocate_lock
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, overload

from kernelrt.device.registry import free_programs, opened
from kernelrt.errors import CompileError, DeviceError, SpecError
from kernelrt.ir.fingerprint import fingerprint
from kernelrt.ir.routine import is_call
from kernelrt.native import locks
from kernelrt.runtime.kernel import CachedKernel
from kernelrt.runtime.routines import routine_kernel
from kernelrt.util.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kernelrt.device.program import ProgramSpec, Renderer
    from kernelrt.device.registry import Device
    from kernelrt.ir import UOp

__all__ = ["KernelCache", "build", "kernels"]

_Key = tuple["UOp", str]
#: Input of a renderer for one kernel.
_Kernel = TypeVar("_Kernel")


#: Seconds that a thread waits for a kernel before it checks for a deadlock.
_SLICE_S = 0.05


class _Task:
    """A kernel that a thread compiles, and the result.

    `batch` is locked while the kernel is compiled, by a ``with`` block whose exit no interrupt can
    prevent. So if the batch of a task is unlocked, the task is over, even if it has no kernel.
    """

    __slots__ = ("batch", "error", "kernel", "thread")

    def __init__(self, batch: LockType) -> None:
        self.batch = batch
        self.thread = get_ident()
        self.kernel: CachedKernel | None = None
        self.error: Exception | None = None

    def wait(self) -> bool:
        """Wait until the task is over. Return False if its thread waits for a lock of this one.

        That can happen if a finalizer or a signal handler runs a computation on the thread that
        compiles.
        """
        while not locks.is_free_within(self.batch, _SLICE_S):
            if locks.waits_for_me(self.thread):
                return False
        return True


class _Target(NamedTuple):
    """A device that renders kernels, and its renderer."""

    device: Device
    renderer: Renderer


class KernelCache:
    """Thread-safe cache of kernels, keyed by AST and device.

    UOps are hash-consed, so equal ASTs are the same key. The cache finds each kernel that a live
    plan uses. It also keeps the `limit` kernels that were requested last.

    Parameters
    ----------
    limit : int
        Maximum number of kernels to keep that may have no user.

    Examples
    --------
    >>> plan = krt.jit(lambda x: x * 2).plan(np.ones(3, np.float32))
    >>> [op] = plan.prepared_kernels
    >>> krt.runtime.kernels.get(op.ast) is op.kernel
    True
    """

    def __init__(self, limit: int = 1024) -> None:
        self.limit = limit
        self._kept: OrderedDict[_Key, CachedKernel] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[_Key, CachedKernel] = weakref.WeakValueDictionary()
        self._pending: dict[_Key, _Task] = {}
        self._lock = locks.Lock(locks.KERNELS)
        locks.at_fork(locks.KERNELS, in_child=self._forget_others)
        self._compiled = 0
        self._seconds = 0.0

    @property
    def compiled(self) -> int:
        """Number of kernels that were compiled or loaded from disk so far."""
        return self._compiled

    @property
    def seconds(self) -> float:
        """Total seconds of rendering, compiling and loading so far, summed over threads."""
        return self._seconds

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, ast: object) -> bool:
        return any(key[0] is ast for key in list(self._kept))

    def get(self, ast: UOp, device: str = "CPU") -> CachedKernel:
        """Return the kernel of `ast`; compile it if it is new.

        Parameters
        ----------
        ast : UOp
            Kernel AST.
        device : str
            Device to compile for.

        Returns
        -------
        CachedKernel
            The kernel.

        Raises
        ------
        CompileError, SpecError
            The kernel cannot be compiled.
        """
        return self.get_many([ast], device)[0]

    def get_many(self, asts: Sequence[UOp], device: str = "CPU") -> list[CachedKernel]:
        """Return the kernels of `asts`, in order. All new kernels are compiled together.

        If another thread is compiling a kernel, this thread waits for it. Code that interrupts the
        compiling thread, such as a signal handler, cannot wait and compiles its own copy.

        Parameters
        ----------
        asts : sequence of UOp
            Kernel ASTs.
        device : str
            Device to compile for.

        Returns
        -------
        list of CachedKernel
            One kernel for each AST.

        Raises
        ------
        CompileError, SpecError
            A kernel cannot be compiled. All threads that wait for it get the error. The failure is
            not cached; the next request tries again.
        """
        keys = [(ast, device) for ast in asts]
        stuck: set[_Task] = set()
        while True:
            found: dict[_Key, CachedKernel] = {}
            mine: dict[_Key, _Task] = {}
            theirs: dict[_Key, _Task] = {}
            batch = allocate_lock()
            with batch:
                try:
                    self._look_up(keys, found, mine, theirs, batch, stuck)
                    if mine:
                        self._compile(mine, device)
                finally:
                    self._forget(mine)
            stuck.update(task for task in theirs.values() if not task.wait())
            for key, task in (mine | theirs).items():
                if task.error is not None:
                    raise task.error
                if task.kernel is not None:
                    found[key] = task.kernel
            # If the compiling thread was interrupted or is blocked, this thread compiles.
            if all(key in found for key in keys):
                return [found[key] for key in keys]

    def put(self, kernel: CachedKernel) -> None:
        """Make `kernel` the cached kernel of its AST. Existing plans keep their kernels.

        Parameters
        ----------
        kernel : CachedKernel
            Kernel for later requests of its AST and device.
        """
        key = (kernel.ast, kernel.device)
        with self._lock:
            self._alive[key] = kernel
            self._keep(key, kernel)

    def clear(self) -> None:
        """Remove all kernels. Plans keep theirs; code without a user is freed."""
        with self._lock:
            self._kept.clear()
            self._alive.clear()
        free_programs()

    def collect(self) -> int:
        """Free the kernels that no live plan uses.

        Returns
        -------
        int
            Number of freed kernels.
        """
        with self._lock:
            before = list(self._kept)
            self._kept.clear()
        gc.collect()  # frees plans in reference cycles
        with self._lock:
            self._keep_alive(before)
            gone = sum(key not in self._kept for key in before)
        free_programs()
        return gone

    # Loops in these with blocks contain no conditions: at the end of a loop with a condition,
    # CPython 3.13 lets an interrupt leave the with block without running its exit, so the lock
    # would stay held.

    def _keep_alive(self, keys: Iterable[_Key]) -> None:
        for key in keys:
            kernel = self._alive.get(key)
            if kernel is not None:
                self._kept[key] = kernel

    def _look_up(
        self,
        keys: Sequence[_Key],
        found: dict[_Key, CachedKernel],
        mine: dict[_Key, _Task],
        theirs: dict[_Key, _Task],
        batch: LockType,
        stuck: set[_Task],
    ) -> None:
        """Fill `found` (cached), `mine` (to compile here) and `theirs` (compiled elsewhere)."""
        with self._lock:
            for key in dict.fromkeys(keys):
                self._look_up_one(key, found, mine, theirs, batch, stuck)

    def _look_up_one(
        self,
        key: _Key,
        found: dict[_Key, CachedKernel],
        mine: dict[_Key, _Task],
        theirs: dict[_Key, _Task],
        batch: LockType,
        stuck: set[_Task],
    ) -> None:
        kernel = self._alive.get(key)
        task = self._pending.get(key)
        if kernel is not None:
            found[key] = kernel
            self._keep(key, kernel)
        elif task is not None and task.batch.locked() and not (
            task.thread == get_ident() or task in stuck
        ):
            theirs[key] = task
        else:
            mine[key] = _Task(batch)
            if task is None or not task.batch.locked():
                self._pending[key] = mine[key]

    def _forget(self, tasks: dict[_Key, _Task]) -> None:
        """Remove `tasks` from the pending tasks."""
        with self._lock:
            for key, task in tasks.items():
                self._forget_one(key, task)

    def _forget_one(self, key: _Key, task: _Task) -> None:
        if self._pending.get(key) is task:
            self._pending.pop(key, None)

    def _keep(self, key: _Key, kernel: CachedKernel) -> None:
        # A finalizer or signal handler may remove any entry between two steps.
        self._kept[key] = kernel
        with suppress(KeyError):
            self._kept.move_to_end(key)
            for _ in range(len(self._kept) - self.limit):
                self._kept.popitem(last=False)

    def _compile(self, mine: dict[_Key, _Task], device: str) -> None:
        """Compile the kernels of `mine`; set the kernel or the error of each task."""
        keys = list(mine)
        started = perf_counter()
        try:
            kernels = _build([ast for ast, _ in keys], device)
            self._settle(mine, keys, kernels, perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - raised in the threads that wait
            if len(keys) == 1:
                self._forget(mine)
                mine[keys[0]].error = error
            else:  # compile one by one: one broken kernel must not fail the others
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
                mine[key].kernel = kernel
            self._forget(mine)

    def _forget_others(self) -> None:
        """Forget pending tasks in a forked child, where the compiling threads do not exist."""
        self._pending = {}


def build(asts: Sequence[tuple[UOp, str | None]], device: str = "CPU") -> list[CachedKernel]:
    """Compile and load kernels without the cache.

    Parameters
    ----------
    asts : sequence of (UOp, str or None)
        Kernel ASTs, each with the code variant to generate; None: the renderer chooses.
    device : str
        Device to compile for.

    Raises
    ------
    CompileError, SpecError
        A kernel cannot be compiled.
    """
    target = _target(device)
    return _loaded(target, asts, lambda given: target.renderer.render(*given))


def _build(asts: Sequence[UOp], device: str) -> list[CachedKernel]:
    called = {ast: routine_kernel(ast, opened(device)) for ast in asts if is_call(ast)}
    written = [ast for ast in asts if ast not in called]
    if written:
        target = _target(device)
        made = _loaded(target, written, lambda ast: _rendered(target, ast))
        called.update(zip(written, made, strict=True))
    return [called[ast] for ast in asts]


def _target(device: str) -> _Target:
    target = opened(device)
    if target.renderer is None:
        raise DeviceError(
            f"device {device!r} has no renderer to compile kernels from graphs; pass compiled "
            "kernels"
        )
    return _Target(target, target.renderer)


def _rendered(target: _Target, ast: UOp) -> ProgramSpec:
    """Return the program of `ast`, in the variant tuned for this device if there is one."""
    tuned = target.device.tuned
    variant = None if tuned is None else tuned.find(fingerprint(ast))
    if tuned is not None and variant is not None:
        try:
            return target.renderer.render(ast, variant)
        except SpecError as error:
            tuned.refuse(fingerprint(ast), str(error))
    return target.renderer.render(ast)


def _loaded(
    target: _Target, kernels: Sequence[_Kernel], render: Callable[[_Kernel], ProgramSpec]
) -> list[CachedKernel]:
    device = target.device
    with Progress(None, len(kernels), "kernel", plain=True) as bar:
        programs = _Programs(kernels, render, bar)
        compiled = device.compiler.compile(programs)
    try:
        loaded = device.loader.load(compiled)
    except CompileError:
        # A cached object file of another process may not load here: compile it again.
        if not device.compiler.forget(programs):
            raise
        loaded = device.loader.load(device.compiler.compile(programs))
    return [
        CachedKernel.from_program(spec, program)
        for spec, program in zip(programs, loaded, strict=True)
    ]


class _Programs(Sequence["ProgramSpec"], Generic[_Kernel]):
    """Programs that are rendered when they are first accessed.

    A compiler can start with the first programs, before the others are rendered.
    """

    def __init__(
        self, kernels: Sequence[_Kernel], render: Callable[[_Kernel], ProgramSpec], bar: Progress
    ) -> None:
        self._bar = bar
        self._kernels = kernels
        self._render = render
        self._rendered: dict[int, ProgramSpec] = {}

    def __len__(self) -> int:
        return len(self._kernels)

    def __iter__(self) -> Iterator[ProgramSpec]:
        # Sequence.__iter__ would treat an IndexError of the renderer as the end.
        return (self[at] for at in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> ProgramSpec: ...

    @overload
    def __getitem__(self, index: slice) -> list[ProgramSpec]: ...

    def __getitem__(self, index: int | slice) -> ProgramSpec | list[ProgramSpec]:
        indices = range(len(self._kernels))[index]
        if isinstance(indices, range):
            return [self[at] for at in indices]
        if indices not in self._rendered:
            self._rendered[indices] = self._render(self._kernels[indices])
            self._bar.show(len(self._rendered), "compiling")
        return self._rendered[indices]


#: Default kernel cache.
kernels = KernelCache()
