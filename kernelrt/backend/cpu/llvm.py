"""The few calls of LLVM that the backend makes; the only place where llvmlite is called.

llvmlite guards every call with one lock, which an interrupt between two steps of Python can lose,
and its objects must be freed in order. So whatever calls it does so in :func:`on_threads`.
Generating code is by far the longest call and LLVM
allows it on several threads as long as each has a context and a target machine of its own, so
that one call is made past the lock where llvmlite's library can be reached directly.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from kernelrt import _locks
from kernelrt._late import aside
from kernelrt._llvm import binding
from kernelrt.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelrt.device.spec import DeviceSpec

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

__all__ = ["emit", "initialize", "on_threads", "parsed", "target_machine", "version"]


def on_threads(
    work: Callable[[_Item], _Result], items: Sequence[_Item], limit: int = 1
) -> list[_Result]:
    """Give `work` of each of `items`, which no signal handler gets to see halfway.

    Handlers run on the main thread alone. An exception of one, thrown between two calls of LLVM,
    would leave objects that are freed twice or in the wrong order. So the main thread waits for
    others. Where no thread can be started, and in a child that a handler forks meanwhile, this one
    does the work.

    `work` may take the locks of the compiler, of the loader and of LLVM, which are taken nowhere
    else, and none that the interrupted code of the main thread may hold.
    """
    if items:
        binding()
    left = collections.deque(enumerate(items))
    done: dict[int, _Result] = {}
    failed: dict[int, BaseException] = {}

    def run() -> None:
        while left and not failed:
            try:
                at, item = left.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                done[at] = work(item)
            except BaseException as error:  # noqa: BLE001 - raised again where it belongs
                failed[at] = error

    wanted = min(len(items), limit)
    own = threading.current_thread() is not threading.main_thread()
    try:
        aside(run, wanted - own, along=own)
        if not failed:
            left.extend((at, item) for at, item in enumerate(items) if at not in done)
            run()
    finally:
        left.clear()
    if failed:
        raise failed[min(failed)]
    return [done[at] for at in range(len(items))]


@functools.cache
def initialize(triple: str) -> Any:
    """Prepare LLVM for `triple`; gives llvmlite.binding."""
    llvm = binding()
    if triple.partition("-")[0] == llvm.get_process_triple().partition("-")[0]:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm


_gate = _locks.Gate(_locks.GATE)


@functools.cache
def version() -> str:
    """Version of LLVM, and of the library around it."""
    llvm = binding()
    import llvmlite

    return ".".join(map(str, llvm.llvm_version_info)) + "/" + str(llvmlite.__version__)


def target_machine(spec: DeviceSpec, opt: int) -> Any:
    """Make a code generator; one thread may use it at a time."""
    llvm = initialize(spec.triple)
    target = llvm.Target.from_triple(spec.triple)
    # Without "pic" the addresses of constants take only 32 bits, which loaded code may exceed.
    return target.create_target_machine(
        cpu=spec.cpu, features=spec.features, opt=opt, reloc="pic", codemodel="small"
    )


@contextlib.contextmanager
def parsed(spec: DeviceSpec, machine: Any, name: str, src: str) -> Iterator[Any]:
    """Give a verified module of `src` for the target, and dispose of it at the end.

    A module has to go before its context. Left to Python that order is lost as soon as a
    traceback holds both and the collector finds them in a cycle.

    Raises
    ------
    CompileError
        LLVM rejects the source; in LLVM's words.
    """
    llvm = initialize(spec.triple)
    with contextlib.ExitStack() as owned:
        context = owned.enter_context(llvm.create_context())
        try:
            module = owned.enter_context(llvm.parse_assembly(src, context=context))
            module.triple = spec.triple
            module.data_layout = str(machine.target_data)
            module.verify()
        except RuntimeError as error:
            raise CompileError(f"kernel {name!r}: LLVM rejected the source: {error}") from None
        try:
            missing = module.get_function(name).is_declaration
        except NameError:
            missing = True
        if missing:
            raise CompileError(
                f"kernel {name!r}: the source defines no function @{name}; "
                f"expected 'define void @{name}(ptr %bufs, ptr %vals)'"
            )
        yield module


def optimize(machine: Any, module: Any, spec: DeviceSpec, level: int) -> None:
    """Run LLVM's standard pipeline of `level` (1 to 3) over `module`, in place."""
    llvm = initialize(spec.triple)
    with contextlib.ExitStack() as owned:
        tuning = owned.enter_context(llvm.create_pipeline_tuning_options(speed_level=level))
        tuning.loop_vectorization = level > 1
        tuning.slp_vectorization = level > 1
        builder = owned.enter_context(llvm.create_pass_builder(machine, tuning))
        passes = owned.enter_context(builder.getModulePassManager())
        passes.run(module, builder)


def emit(machine: Any, module: Any, name: str) -> bytes:
    """Generate the object of `module`."""
    unlocked = _unlocked_emit()
    if unlocked is None:
        return bytes(machine.emit_object(module))
    from llvmlite.binding import ffi

    message = ctypes.c_char_p()
    memory = _gate.run(unlocked, machine, module, 1, ctypes.byref(message))
    if not memory:
        text = (message.value or b"no reason given").decode(errors="replace")
        raise CompileError(f"kernel {name!r}: LLVM could not generate code: {text}")
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(memory)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


@functools.cache
def _unlocked_emit() -> Callable[..., Any] | None:
    from llvmlite.binding import ffi

    try:
        locked = ffi.lib.LLVMPY_TargetMachineEmitToMemory
        function = ctypes.CDLL(ffi.lib._name).LLVMPY_TargetMachineEmitToMemory  # noqa: SLF001
        function.argtypes, function.restype = locked.argtypes, locked.restype
    except (AttributeError, OSError):
        return None
    else:
        return function
