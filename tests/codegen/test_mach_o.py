"""Kernels for arm64 macOS: every kernel of the surface tables becomes a Mach-O object.

Such objects are written on every machine; only a Mac can run them.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from support.assembly import kernels_of
from surface import rows

import kernelrt as krt
from kernelrt.backend.cpu import LLVMCompiler
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp
from kernelrt.ir.ops import EXPANSIONS
from kernelrt.schedule import schedule

MAC = replace(DeviceSpec.neon_dot(), triple="arm64-apple-macosx11.0.0", cpu="apple-m1")
RENDERER, COMPILER = LLVMRenderer(MAC), LLVMCompiler(MAC)
EVERY = [pytest.param(row, id=f"{table}-{row.name}") for table, row in rows.tables()]
#: Functions of the C library that LLVM calls for fills and copies.
LIBRARY = {"_memset", "_memcpy", "_memmove", "_bzero", "_memset_pattern16"}

# <mach-o/loader.h> and <mach-o/nlist.h>: the header, a command, the table of symbols, a symbol.
HEADER = struct.Struct("<IiiIIIII")
COMMAND = struct.Struct("<II")
SYMTAB = struct.Struct("<IIIIII")
SYMBOL = struct.Struct("<IBBHQ")
MAGIC, ARM64, OBJECT = 0xFEEDFACF, 0x0100000C, 1


def symbols(data: bytes) -> tuple[set[str], set[str]]:
    """Return the external symbols that an object defines, and those that it lacks."""
    magic, processor, _, kind, count, *_ = HEADER.unpack_from(data)
    assert (magic, processor, kind) == (MAGIC, ARM64, OBJECT)
    defined, lacking = set(), set()
    at = HEADER.size
    for _ in range(count):
        command, nbytes = COMMAND.unpack_from(data, at)
        if command == 2:
            *_, offset, number, strings, _ = SYMTAB.unpack_from(data, at)
            for place in range(offset, offset + number * SYMBOL.size, SYMBOL.size):
                name, flags, section, _, _ = SYMBOL.unpack_from(data, place)
                start = strings + name
                if flags & 1:  # external
                    found = lacking if section == 0 else defined
                    found.add(data[start : data.index(0, start)].decode())
        at += nbytes
    return defined, lacking


def compiled(ast: UOp) -> None:
    program = RENDERER.render(ast)
    [data] = COMPILER.compile_sources([(program.name, program.src)])
    defined, lacking = symbols(data)
    assert f"_{program.name}" in defined
    assert lacking <= LIBRARY


@pytest.mark.cases(40)
@pytest.mark.parametrize("row", EVERY)
def test_kernels_of_operations(row):
    dtype = krt.float16 if row.half and len(row.name) % 2 else krt.float32  # of each, a half
    for ast in kernels_of(row, MAC, dtype):
        compiled(ast)


@pytest.mark.parametrize("size", [1, 70])
@pytest.mark.parametrize("op", EXPANSIONS, ids=lambda op: op.name)
def test_functions(op, size, build):
    for dtype in (krt.float32, krt.float64, krt.bfloat16):
        r = build.range(size, 0)
        x, y = (build.load(build.param(1 + k, size, dtype), r) for k in range(2))
        value = UOp(op, dtype, (x, y) if op in (Op.POW, Op.ATAN2) else (x,))
        compiled(build.sink(build.store(build.param(0, size, dtype), r, value)))


def test_a_training_step():
    rng = np.random.default_rng(0)
    x, w, v = (
        krt.tensor(rng.standard_normal(shape).astype(np.float32))
        for shape in ((64, 70), (70, 33), (33, 10))
    )
    w.requires_grad = v.requires_grad = True
    loss = ((x @ w).gelu() @ v).cross_entropy(krt.tensor(np.arange(64) % 10))
    steps = [p - 0.1 * g for p, g in zip((w, v), krt.grad(loss, [w, v]), strict=True)]
    items = schedule([loss.uop, *(s.uop for s in steps)], device=MAC).items
    assert len(items) > 4
    for item in items:
        compiled(item.ast)
