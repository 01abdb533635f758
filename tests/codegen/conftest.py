"""Kernels compiled and called directly, without a plan."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from support.skip_list import needs, require

from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler, LLVMLoader
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.program import CORE_ID
from kernelrt.device.spec import TARGETS, DeviceSpec, host, machine, named
from kernelrt.ir import Op, UOp, const, simplify, toposort
from kernelrt.loops.loop_ir import Pass

Array = np.ndarray


class Build:
    """Shorthand for writing kernel ASTs."""

    @staticmethod
    def range(size: int | UOp, number: int) -> UOp:
        node = size if isinstance(size, UOp) else const(size, dt.int64)
        return UOp(Op.RANGE, dt.int64, (node,), number)

    @staticmethod
    def param(slot: int, size: int, dtype: dt.DType = dt.float32) -> UOp:
        return UOp(Op.PARAM, dtype, (), (slot, size))

    @staticmethod
    def load(param: UOp, index: UOp, *predicate: UOp) -> UOp:
        return UOp(Op.LOAD, param.dtype, (param, simplify(index), *predicate))

    @staticmethod
    def store(param: UOp, index: UOp, value: UOp, *loops: UOp) -> UOp:
        """A STORE; one that adds where it names its loops."""
        arg = Op.ADD if loops else None
        return UOp(Op.STORE, value.dtype, (param, simplify(index), value, *loops), arg)

    @staticmethod
    def reduce(op: Op, value: UOp, *ranges: UOp) -> UOp:
        return UOp(Op.REDUCE, value.dtype, (value, *ranges), op)

    @staticmethod
    def local(value: UOp, *ranges: UOp) -> UOp:
        return UOp(Op.LOCAL, value.dtype, (value, *ranges))

    @staticmethod
    def sink(*stores: UOp) -> UOp:
        return UOp(Op.SINK, stores[0].dtype, stores)


Run = Callable[..., None]

#: For :func:`runner_on`: the target of this process, and all that this machine can run.
RUNNABLE = ["own", *(pytest.param(name, marks=needs(name)) for name in TARGETS)]


def runner(spec: DeviceSpec, variant: str | None = None) -> Run:
    """Compile a kernel AST, once each, and run all its chunks on NumPy arrays."""
    renderer, compiler = LLVMRenderer(spec), LLVMCompiler(spec)
    loader = LLVMLoader(compiler)
    loaded: dict[UOp, tuple[object, object]] = {}

    def call(ast: UOp, buffers: Sequence[Array], **variables: int) -> None:
        if ast not in loaded:
            program = renderer.render(ast, variant)
            loaded[ast] = program, loader.load(compiler.compile([program]))[0]
        program, code = loaded[ast]
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address)
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*(b.ctypes.data for b in buffers))
        for core in range(chunk_count(program, variables)):
            values = [core if n == CORE_ID else variables[n] for n in program.var_names]
            vals = (ctypes.c_int64 * max(1, len(values)))(*values)
            function(ctypes.addressof(pointers), ctypes.addressof(vals))

    return call


def runner_on(name: str) -> Run:
    """:func:`runner` for the target of this process, ``"own"``, or for a named one."""
    return runner(host() if name == "own" else named(name, machine(), "runner_on"))


@pytest.fixture(scope="session")
def run() -> Run:
    """:func:`runner` for this machine."""
    return runner(host())


@pytest.fixture
def run_anew() -> Run:
    """:func:`runner` for this machine that has compiled nothing yet."""
    return runner(host())


@pytest.fixture(scope="session")
def run_plain() -> Run:
    """:func:`runner` without anything that not every machine of this kind has."""
    require("x86-64")
    return runner_on("x86-64")


def chunk_count(program: object, variables: dict[str, int]) -> int:
    """Chunks of `program` for these values of its Variables."""
    from kernelrt.ir import substitute

    size = program.global_size[0]
    if isinstance(size, int):
        return size
    known = {u: const(variables[u.arg[0]], dt.int64) for u in toposort([size]) if u.op is Op.VAR}
    return int(simplify(substitute([size], known)[0]).arg)


def index_at(index: UOp, places: dict[UOp, int]) -> int:
    """What `index` comes to with these numbers in the place of RANGEs."""
    from kernelrt.ir import substitute

    [found] = substitute([index], {r: const(n, r.dtype) for r, n in places.items()})
    return int(simplify(found).arg)


def walked(items: Sequence[object]) -> Iterator[object]:
    """All that stands in the bodies of the items of a nest."""
    for item in items:
        yield item
        yield from walked([item.loop] if isinstance(item, Pass) else getattr(item, "body", ()))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def build() -> type[Build]:
    return Build
