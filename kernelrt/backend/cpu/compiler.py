"""LLVMCompiler: compiles IR text to relocatable objects in parallel, with a cache on disk."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from kernelrt._version import __version__
from kernelrt.backend.cpu import llvm
from kernelrt.backend.cpu.parallel import on_threads
from kernelrt.device.program import CompiledSpec, ProgramSpec
from kernelrt.errors import SpecError
from kernelrt.native import locks
from kernelrt.native.core import pool_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kernelrt.device.spec import DeviceSpec
    from kernelrt.util.object_cache import ObjectCache

__all__ = ["LLVMCompiler"]


class LLVMCompiler:
    """Compiles LLVM IR for one target. Any thread may use it.

    Generated kernels are already vectorized, so by default LLVM only selects instructions and
    allocates registers. The compiler adds no floating-point flags, such as fast-math, to those in
    the IR.

    Parameters
    ----------
    spec : DeviceSpec
        The target.
    cache : ObjectCache, optional
        Cache of compiled objects.
    codegen_level : int
        LLVM's optimization level for instruction selection and register allocation, 0 to 3.
    optimize : int
        Level of LLVM's optimization pipeline, 1 to 3, or 0 to leave it out. The pipeline runs
        before code generation. It helps for IR from other compilers, whose scalar loops have to be
        vectorized.

    Examples
    --------
    >>> from kernelrt.device.spec import host
    >>> compiler = LLVMCompiler(host())
    >>> src = "define void @k(ptr %bufs, ptr %vals) { ret void }"
    >>> [data] = compiler.compile_sources([("k", src)])
    >>> len(data) > 0
    True
    """

    def __init__(
        self,
        spec: DeviceSpec,
        *,
        cache: ObjectCache | None = None,
        codegen_level: int = 2,
        optimize: int = 0,
    ) -> None:
        if not 0 <= codegen_level <= 3:
            raise SpecError(
                f"codegen_level is {codegen_level}; expected 0 (fast compilation) to 3 (fast code)"
            )
        if not 0 <= optimize <= 3:
            raise SpecError(
                f"optimize is {optimize}; expected 0 (no pipeline of LLVM's passes) or a level "
                "from 1 to 3"
            )
        self.spec = spec
        self.cache = cache
        self._codegen_level = codegen_level
        self._optimize = optimize
        self._machines: list[llvm.Machine] = []
        self._lock = locks.Lock(locks.COMPILER)

    def for_target(self, spec: DeviceSpec) -> Self:
        """Return a compiler for another target with the same options and cache."""
        return type(self)(
            spec, cache=self.cache, codegen_level=self._codegen_level, optimize=self._optimize
        )

    def compile(self, programs: Sequence[ProgramSpec]) -> list[CompiledSpec]:
        """Compile all `programs` on as many threads as this process may use.

        The results are in the order of `programs`. With several threads, other threads compile the
        first programs while this thread looks up the rest in the cache.

        Raises
        ------
        CompileError
            LLVM rejected a source. The message names the kernel and quotes LLVM. Nothing of the
            failed kernel is kept.
        """
        objects = self.compile_sources((p.name, p.src) for p in programs)
        return [
            CompiledSpec.from_bytes(
                program.name,
                data,
                program.ast,
                program.buf_count,
                var_names=program.var_names,
                global_size=program.global_size,
                local_size=program.local_size,
            )
            for program, data in zip(programs, objects, strict=True)
        ]

    def forget(self, programs: Sequence[ProgramSpec]) -> bool:
        """Remove the objects of `programs` from the disk cache; return whether it had any."""
        if self.cache is None:
            return False
        dropped = [self.cache.drop(self.key(program.src)) for program in programs]
        return any(dropped)

    def compile_sources(self, kernels: Iterable[tuple[str, str]]) -> list[bytes]:
        """Compile pairs of an entry point's name and LLVM IR text to objects, in the same order.

        With several threads, other threads compile the first pairs while this thread takes the rest
        from `kernels` and looks them up in the cache.
        """
        found: list[bytes | None] = []
        missing: list[tuple[int, str]] = []

        def new() -> Iterator[tuple[str, str]]:
            for name, src in kernels:
                data = None if self.cache is None else self.cache.get(self.key(src))
                found.append(data)
                if data is None:
                    missing.append((len(found) - 1, src))
                    yield name, src

        made = on_threads(lambda kernel: self._object(*kernel), new(), pool_limit(), _length)
        for (at, src), data in zip(missing, made, strict=True):
            found[at] = data
            if self.cache is not None:
                self.cache.put(self.key(src), data)
        return [data for data in found if data is not None]

    def assembly(self, name: str, src: str) -> str:
        """Return the assembly of a kernel as text."""

        def show(_: object) -> str:
            machine = self._take()
            try:
                with self._module(machine, name, src) as module:
                    return str(machine.ref.emit_assembly(module))
            finally:
                self._machines.append(machine)

        return on_threads(show, [None])[0]

    def key(self, src: str) -> tuple[str, ...]:
        """Return the cache key of `src`: everything that its object depends on."""
        spec = self.spec
        target = (spec.triple, spec.cpu, spec.features)
        effort = f"codegen {self._codegen_level} optimize {self._optimize}"
        return (__version__, llvm.version(), *target, effort, src)

    def _object(self, name: str, src: str) -> bytes:
        machine = self._take()
        try:
            if not self._optimize:
                data = llvm.emit_at_once(machine, name, src)
                if data is not None:
                    return data
            with self._module(machine, name, src) as module:
                return llvm.emit(machine, module, name)
        finally:
            self._machines.append(machine)

    @contextlib.contextmanager
    def _module(self, machine: llvm.Machine, name: str, src: str) -> Iterator[Any]:
        with llvm.parsed(machine, name, src) as module:
            if self._optimize:
                llvm.optimize(machine, module, self._optimize)
            yield module

    def _take(self) -> llvm.Machine:
        with self._lock:
            if self._machines:
                return self._machines.pop()
        return llvm.Machine.of(self.spec, self._codegen_level)


def _length(kernel: tuple[str, str]) -> int:
    return len(kernel[1])
