"""The only module that calls llvmlite.

llvmlite guards every call with one lock, which an interrupt between two steps of Python can lose,
and its objects must be freed in order. So whatever calls it does so in
:func:`~kernelrt.backend.cpu.parallel.on_threads`.

LLVM allows several threads as long as each has a context and a target machine of its own. So
kernels are compiled past the lock, in one call each, where llvmlite's library can be reached
directly.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from kernelrt.errors import CompileError
from kernelrt.native import locks
from kernelrt.native.emit_object import Emitter
from kernelrt.util.llvm_binding import binding, llvmlite_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrt.device.spec import DeviceSpec

__all__ = ["Machine", "emit", "emit_at_once", "initialize", "optimize", "parsed", "version"]


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


_gate = locks.Gate(locks.GATE)


@functools.cache
def version() -> str:
    """Version of LLVM, and of the library around it."""
    llvm = binding()
    return ".".join(map(str, llvm.llvm_version_info)) + "/" + llvmlite_version()


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A code generator. One thread may use it at a time.

    Attributes
    ----------
    ref : TargetMachine
        What llvmlite has for it.
    triple, layout : str
        Target and data layout of modules that it takes.
    """

    ref: Any
    triple: str
    layout: str

    @classmethod
    def of(cls, spec: DeviceSpec, opt: int) -> Self:
        """Make one for the target `spec` with an effort of `opt`, 0 to 3."""
        llvm = initialize(spec.triple)
        target = llvm.Target.from_triple(spec.triple)
        # Without "pic" the addresses of constants take only 32 bits, which loaded code may exceed.
        ref = target.create_target_machine(
            cpu=spec.cpu, features=spec.features, opt=opt, reloc="pic", codemodel="small"
        )
        return cls(ref, spec.triple, str(ref.target_data))


@contextlib.contextmanager
def parsed(machine: Machine, name: str, src: str) -> Iterator[Any]:
    """Give a verified module of `src`, and dispose of it at the end.

    A module has to go before its context. Left to Python that order is lost as soon as a
    traceback holds both and the collector finds them in a cycle.

    Raises
    ------
    CompileError
        LLVM rejects the source; in LLVM's words.
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
    """Run LLVM's standard pipeline of `level` (1 to 3) over `module`, in place."""
    llvm = initialize(machine.triple)
    with contextlib.ExitStack() as owned:
        tuning = owned.enter_context(llvm.create_pipeline_tuning_options(speed_level=level))
        tuning.loop_vectorization = level > 1
        tuning.slp_vectorization = level > 1
        builder = owned.enter_context(llvm.create_pass_builder(machine.ref, tuning))
        passes = owned.enter_context(builder.getModulePassManager())
        passes.run(module, builder)


def emit(machine: Machine, module: Any, name: str) -> bytes:
    """Generate the object of `module`."""
    try:
        return bytes(machine.ref.emit_object(module))
    except RuntimeError as error:
        raise CompileError(f"kernel {name!r}: LLVM could not generate code: {error}") from None


def emit_at_once(machine: Machine, name: str, src: str) -> bytes | None:
    """Generate the object of `src` in one call, past the lock.

    None where that cannot be: in several calls LLVM says why, if it is the source's fault.
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
