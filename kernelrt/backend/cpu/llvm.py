"""The only module that calls llvmlite.

llvmlite guards every call with one lock. A signal handler may raise an exception between two Python
bytecodes. Then this lock may stay locked, and llvmlite's objects may be freed in the wrong order.
So callers of this module run in :func:`~kernelrt.backend.cpu.parallel.on_threads`, where no handler
interrupts them.

LLVM itself allows several threads, if each has its own context and target machine. So if llvmlite's
shared library can be called directly, one call without llvmlite's lock compiles a kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kernelrt.errors import CompileError
from kernelrt.native import locks
from kernelrt.native.emit_object import Emitter
from kernelrt.util.llvm_binding import binding, llvmlite_folder, llvmlite_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.device.spec import DeviceSpec

__all__ = ["Machine", "emit", "emit_at_once", "initialize", "optimize", "parsed", "version"]


@functools.cache
def initialize(triple: str) -> Any:
    """Initialize LLVM for `triple`. Return ``llvmlite.binding``."""
    llvm = binding()
    if triple.partition("-")[0] == llvm.get_process_triple().partition("-")[0]:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return llvm


_gate = locks.Gate(locks.GATE)


@functools.cache
def version() -> str:
    """Return llvmlite's version and the size of its library, without loading the library.

    If llvmlite was built with another LLVM, the size is another one.
    """
    files = sorted(Path(llvmlite_folder()).glob("binding/*llvmlite.*"))
    return f"{llvmlite_version()} {[file.stat().st_size for file in files]}"


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """An LLVM code generator. Only one thread may use it at a time.

    Attributes
    ----------
    ref : TargetMachine
        llvmlite's target machine.
    triple, layout : str
        Target triple and data layout of the modules that it compiles.
    """

    ref: Any
    triple: str
    layout: str

    @classmethod
    def of(cls, spec: DeviceSpec, opt: int) -> Self:
        """Create a machine for the target `spec` with optimization level `opt`, 0 to 3."""
        llvm = initialize(spec.triple)
        target = llvm.Target.from_triple(spec.triple)
        # Without "pic", addresses of constants have 32 bits, too few for code loaded anywhere.
        ref = target.create_target_machine(
            cpu=spec.cpu, features=spec.features, opt=opt, reloc="pic", codemodel="small"
        )
        return cls(ref, spec.triple, str(ref.target_data))


@contextlib.contextmanager
def parsed(machine: Machine, name: str, src: str) -> Iterator[Any]:
    """Yield a verified module of `src`, and free it at the end.

    A module must be freed before its context. If a traceback refers to both, Python's garbage
    collector may free the context first. So this function frees both explicitly.

    Raises
    ------
    CompileError
        LLVM rejects the source; the message quotes LLVM.
    """
    llvm = initialize(machine.triple)
    with contextlib.ExitStack() as owned:
        context = owned.enter_context(llvm.create_context())
        try:
            module = owned.enter_context(llvm.parse_assembly(src, context=context))
            module.triple = machine.triple
            module.data_layout = machine.layout
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


def optimize(machine: Machine, module: Any, level: int) -> None:
    """Run LLVM's standard optimization pipeline of `level` (1 to 3) on `module`, in place."""
    llvm = initialize(machine.triple)
    with contextlib.ExitStack() as owned:
        tuning = owned.enter_context(llvm.create_pipeline_tuning_options(speed_level=level))
        tuning.loop_vectorization = level > 1
        tuning.slp_vectorization = level > 1
        builder = owned.enter_context(llvm.create_pass_builder(machine.ref, tuning))
        passes = owned.enter_context(builder.getModulePassManager())
        passes.run(module, builder)


def emit(machine: Machine, module: Any, name: str) -> bytes:
    """Generate the object file of `module`."""
    try:
        return bytes(machine.ref.emit_object(module))
    except RuntimeError as error:
        raise CompileError(f"kernel {name!r}: LLVM could not generate code: {error}") from None


def emit_at_once(machine: Machine, name: str, src: str) -> bytes | None:
    """Generate the object file of `src` in one call, without llvmlite's lock.

    Return None if that fails. The caller then compiles in separate calls, which report errors.
    """
    emitter = _emitter()
    if emitter is None:
        return None
    address = ctypes.cast(machine.ref, ctypes.c_void_p).value
    return _gate.run(
        emitter.emit, address, *(s.encode() for s in (machine.triple, machine.layout, name, src))
    )


@functools.cache
def _emitter() -> Emitter | None:
    try:
        library = ctypes.CDLL(binding().ffi.lib._name)  # noqa: SLF001
        return Emitter(lambda name: ctypes.cast(library[name], ctypes.c_void_p).value or 0)
    except (AttributeError, OSError):
        return None
