"""LLVMLoader: loads relocatable objects into memory, and unloads them.

The unit of loading is a library: up to `BATCH` objects that are linked together. The memory of a
library is freed with its last program. :mod:`elf` links most objects. LLVM links the others, for
example those that call the C library. So a process whose kernels are all in the cache need not load
LLVM.

After the last program of a library that LLVM has linked is gone, the next such call of the loader
frees the library's memory. A finalizer does not free it, since a finalizer may run at any point of
other code, and may itself be interrupted. LLVM's engine keeps some kilobytes for every library that
it has ever loaded. So a new engine is created after every `ENGINE_LIBRARIES` libraries, and an old
one is freed with its last library.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelrt.backend.cpu import elf, llvm
from kernelrt.backend.cpu.parallel import on_threads
from kernelrt.errors import CompileError
from kernelrt.native import locks
from kernelrt.native.memory import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelrt.backend.cpu.compiler import LLVMCompiler
    from kernelrt.device.program import CompiledSpec, Program

__all__ = ["CPUProgram", "LLVMLoader"]

BATCH = 16
ENGINE_LIBRARIES = 64

_names = itertools.count()

_lock = locks.Lock(locks.LOADER)
#: All code that LLVM has linked, with its engine. The engine comes first: a tuple releases its last
#: element first, and code must be freed before its engine.
_linked: list[tuple[Any, Any, weakref.ref[_Library]]] = []
# Finalizers may run plans until the very end of the process, so no code is freed at exit.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_linked))


class _Library:
    """Handle of linked code. Without references to it, no program can call the code."""

    __slots__ = ("__weakref__", "_code", "addresses")

    def __init__(self, addresses: dict[str, int], code: Code | None = None) -> None:
        self.addresses = addresses
        self._code = code  # kept alive, unless LLVM owns the code


@dataclass(frozen=True, slots=True, eq=False)
class CPUProgram:
    """A compiled function in memory. It keeps its code alive.

    Attributes
    ----------
    name : str
        Name of the function.
    address : int
        Address of the function, a ``void (*)(void *const *bufs, const int64_t *vals)``.
    library : object
        Owner of the code.
    """

    name: str
    address: int
    library: object


class LLVMLoader:
    """Links objects into this process. Any thread may use it.

    Parameters
    ----------
    compiler : LLVMCompiler
        Compiler for kernels that are given as source.
    """

    def __init__(self, compiler: LLVMCompiler) -> None:
        self._compiler = compiler
        self._engine: Any = None
        self._libraries = 0

    def load(self, compiled: Sequence[CompiledSpec]) -> list[Program]:
        """Load all kernels of `compiled`, in order.

        Raises
        ------
        CompileError
            A source or object is invalid, or calls a function that this process does not define.
        """
        objects = self._objects(compiled, self._compiler)
        programs: list[Program | None] = [None] * len(objects)
        for batch in _batches(compiled):
            names = [compiled[i].name for i in batch]
            parts = [objects[i] for i in batch]
            library = self._link_here(names, parts) or self._link(names, parts)
            for i, name in zip(batch, names, strict=True):
                programs[i] = CPUProgram(name, library.addresses[name], library)
        return [program for program in programs if program is not None]

    def _objects(
        self, compiled: Sequence[CompiledSpec], compiler: LLVMCompiler
    ) -> list[bytes]:
        """Return the object of each kernel. All sources are compiled in one call."""
        sources = [(c.name, c.src) for c in compiled if c.src is not None]
        made = iter(compiler.compile_sources(sources))
        return [c.bytes if c.bytes is not None else next(made) for c in compiled]

    def flat(self, compiled: Sequence[CompiledSpec]) -> tuple[bytes, list[int]]:
        """Link kernels to one block of position-independent code.

        Returns
        -------
        code : bytes
            The block.
        entries : list of int
            Offset of each kernel in the block.

        Raises
        ------
        CompileError
            A source or object is invalid, or calls a function of the C library.
        """
        spec = self._compiler.spec
        same = spec.in_files == spec
        compiler = self._compiler if same else self._compiler.for_target(spec.in_files)
        objects = self._objects(compiled, compiler)
        names = (c.name for c in compiled)
        return elf.flat(zip(names, objects, strict=True), spec.in_files.triple)

    def collect(self) -> None:
        """Free the code to which no program refers any more."""
        if _linked:
            on_threads(lambda _: self._free(), [None])

    def _link_here(self, names: list[str], objects: list[bytes]) -> _Library | None:
        """Link the objects without LLVM. Return None if that is not possible."""
        try:
            text, entries = elf.flat(
                zip(names, objects, strict=True), self._compiler.spec.triple
            )
        except CompileError:  # LLVM links the objects, or says why it cannot
            return None
        code = Code(text)
        addresses = (code.address + entry for entry in entries)
        return _Library(dict(zip(names, addresses, strict=True)), code)

    def _link(self, names: list[str], objects: list[bytes]) -> _Library:
        [outcome] = on_threads(lambda _: self._linked_as(names, objects), [None])
        if isinstance(outcome, _Library):
            return outcome
        if len(names) > 1:  # link one by one, to find the invalid object
            for name, data in zip(names, objects, strict=True):
                self._link([name], [data])
        raise CompileError(_explain(names[0], objects[0], outcome))

    def _linked_as(self, names: list[str], objects: list[bytes]) -> _Library | str:
        """Link the objects. Return a library, or a string with the reason of a failure."""
        binding = llvm.initialize(self._compiler.spec.triple)
        builder = binding.JITLibraryBuilder().add_current_process()
        for name, data in zip(names, objects, strict=True):
            builder.add_object_img(data).export_symbol(name)
        with _lock:
            self._free()
            engine = self._next_engine(binding)
            try:
                tracker = builder.link(engine, f"kernelrt{next(_names)}")
            except RuntimeError as error:
                return str(error).strip()
            library = _Library({name: tracker[name] for name in names})
            _linked.append((engine, tracker, weakref.ref(library)))
        return library

    def _free(self) -> None:
        with _lock:
            _linked[:] = _used()

    def _next_engine(self, binding: Any) -> Any:
        if self._engine is None or self._libraries >= ENGINE_LIBRARIES:
            self._engine = binding.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
            self._libraries = 0
        self._libraries += 1
        return self._engine


def _used() -> list[tuple[Any, Any, weakref.ref[_Library]]]:
    return [entry for entry in _linked if entry[2]() is not None]


def _batches(compiled: Sequence[CompiledSpec]) -> Iterator[list[int]]:
    """Yield groups of indices of kernels to link together; names within a group are unique."""
    batch: list[int] = []
    names: set[str] = set()
    for i, kernel in enumerate(compiled):
        if len(batch) == BATCH or kernel.name in names:
            yield batch
            batch, names = [], set()
        batch.append(i)
        names.add(kernel.name)
    if batch:
        yield batch


def _explain(name: str, data: bytes, reason: str) -> str:
    process = ctypes.CDLL(None)
    missing = [symbol for symbol in elf.undefined(data) if not hasattr(process, symbol)]
    if missing:
        reason = f"it calls {', '.join(missing)}, which this process does not define"
    return (
        f"kernel {name!r}: the object could not be linked: {reason}. A kernel may call functions "
        "of the C library and the math library only"
    )
