"""Dispatch: a plan of tiny kernels against a bare C loop over the same function pointers."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.cases import OURS, Case, PeerMissingError, Side

if TYPE_CHECKING:
    from bench.cases import Call

SOURCE = Path(__file__).with_name("dispatch.c")
ELEMENTS = 16
REPEATED_KERNELS = 100_000
"""Kernels per call of the bare loop: enough to make the cost of the Python call negligible."""


@functools.cache
def library() -> ctypes.CDLL:
    """Compile dispatch.c with the system's compiler, and load it."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "dispatch.so")
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(SOURCE), "-o"]
        try:
            subprocess.run(  # noqa: S603 - the compiler that built Python
                [*command, str(path)], check=True, capture_output=True, text=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise PeerMissingError(f"bare C loop: {compiler} cannot compile it: {error}") from error
        return ctypes.CDLL(str(path))


class Chain:
    """`n` kernels with memory of their own: the addresses that both sides use, and the memory."""

    def __init__(self, entry: str, n: int) -> None:
        self.n = n
        self.function = ctypes.cast(library()[entry], ctypes.c_void_p).value or 0
        rng = np.random.default_rng(0)
        self.memory = rng.standard_normal((3, n, ELEMENTS)).astype(np.float32)
        base, step = self.memory.ctypes.data, ELEMENTS * 4
        self.rows = [
            [base + (side * n + i) * step for side in range(3)] if entry == "add_kernel" else []
            for i in range(n)
        ]

    def result(self) -> object:
        return self.memory[0].copy()


def plan_side(entry: str, n: int) -> Call:
    """Build a kernelrt plan of `n` kernels, executed from Python."""
    from kernelrt._dispatch import KERNEL, PlanCore

    chain = Chain(entry, n)
    ops = [(KERNEL, chain.function, row, (), 1, -1, 0, 5, ()) for row in chain.rows]
    plan = PlanCore(ops)
    execute = plan.execute

    def call() -> object:
        execute()
        return chain

    return call


def bare_side(entry: str, n: int, repeat: int) -> Call:
    """Build one ctypes call of the C loop over `n` kernels, repeated `repeat` times."""
    chain = Chain(entry, n)
    loop = library().bare_loop
    loop.argtypes = [ctypes.c_size_t] * 2 + [ctypes.c_void_p] * 3
    loop.restype = None
    kernels = (ctypes.c_void_p * n)(*[chain.function] * n)
    tables = [(ctypes.c_void_p * max(1, len(row)))(*row) for row in chain.rows]
    bufs = (ctypes.c_void_p * n)(*[ctypes.addressof(table) for table in tables])
    vals = (ctypes.c_void_p * n)()

    def call() -> object:
        loop(repeat, n, kernels, bufs, vals)
        return chain, tables

    return call


def cases() -> tuple[Case, ...]:
    """Return cases of empty and of small kernels."""
    made = []
    for entry, what in (("empty_kernel", "empty kernel"), ("add_kernel", "add of 16 floats")):
        for n in (1, 100, 1000):
            repeat = REPEATED_KERNELS // n
            sides = (
                Side(OURS, functools.partial(plan_side, entry, n)),
                Side("bare C loop", functools.partial(bare_side, entry, n, repeat), calls=repeat),
            )
            aim = 1 / 3 if n == 1000 else None
            name = f"dispatch-{entry.split('_')[0]}-{n}"
            made.append(Case(name, f"{what}, plan of {n:,}, each", sides, unit=n, aim=aim))
    return tuple(made)
