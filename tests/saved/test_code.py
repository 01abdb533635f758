"""Kernels are linked to position-independent code: objects need no symbol of other code."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from support.saved_programs import PROGRAMS

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler, elf
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.cli.export import sources
from kernelrt.device.spec import TARGETS
from kernelrt.errors import CompileError
from kernelrt.ir import status
from kernelrt.ir.routine import is_call
from kernelrt.runtime import image, slice_pipelining
from kernelrt.util.object_cache import _DIGEST, _MAGIC


def functions_in(data: bytes) -> list[str]:
    """Return the names of the symbols that an object defines for others."""
    reserved = 0xFF00
    symbols = elf._parse(data).symbols
    return [
        s.name for s in symbols
        if s.name and 0 < s.section < reserved and not s.name.startswith(".")
    ]  # fmt: skip


def test_every_object_in_the_cache_can_be_linked() -> None:
    """Those that the tests before this one compiled, and those of the saved programs."""
    program = PROGRAMS[0]()
    program.function(*program.args)
    folder = Path(os.environ["KERNELRT_CACHE_DIR"])
    linked = 0
    for path in sorted(folder.rglob("*.krto"))[:3000]:
        data = path.read_bytes()[len(_MAGIC) + _DIGEST :]
        if data.startswith(b"\x7fELF"):
            assert not elf.undefined(data)
            names = functions_in(data)
            triple = {62: "x86_64", 183: "aarch64"}[elf._parse(data).machine]
            code, entries = elf.flat([(name, data) for name in names[:1]], triple)
            assert entries[0] < len(code)
            linked += 1
    assert linked


@pytest.mark.cases(1)
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_every_target_can_be_linked(target: str) -> None:
    krt.manual_seed(0)
    spec = TARGETS[target]()
    plans = [p.function.plan(*p.args, **p.kwargs) for p in (make() for make in PROGRAMS[:12])]
    # LLVM can call the C library for these.
    for dtype in ("float32", "float64"):
        x, y = krt.ones(5, dtype=dtype), krt.ones(5, dtype=dtype)
        plans += [krt.jit(lambda x, y: (x.fmod(y), x % y, x // y)).plan(x, y)]
        plans += [krt.jit(lambda x: (x.floor(), x.ceil(), x.trunc(), x.round())).plan(x)]
    asts = dict.fromkeys(k.ast for plan in plans for k in plan.kernels if not is_call(k.ast))
    programs = [LLVMRenderer(spec).render(ast) for ast in asts]
    compiler = LLVMCompiler(spec)
    objects = compiler.compile_sources([(p.name, p.src) for p in programs])
    named = [(p.name, data) for p, data in zip(programs, objects, strict=True)]
    code, entries = elf.flat(named, spec.triple)
    assert len(set(entries)) == len(named) > 20
    assert all(entry % 4 == 0 for entry in entries)
    assert max(entries) < len(code)


def test_malformed_objects_are_refused() -> None:
    src = "define void @k(ptr %bufs, ptr %vals) {\n  ret void\n}"
    spec = TARGETS["x86-64"]()
    compiler = LLVMCompiler(spec)
    [data] = compiler.compile_sources([("k", src)])
    assert elf.flat([("k", data)], spec.triple)[1] == [0]
    with pytest.raises(CompileError, match="another processor"):
        elf.flat([("k", data)], TARGETS["armv8-a"]().triple)
    for wrong in (b"", b"\x7fELF", data[:100], data[: len(data) // 2], b"MZ" + data[2:]):
        with pytest.raises(CompileError, match="is malformed, or not in the ELF format"):
            elf.flat([("k", wrong)], spec.triple)
    calling = "declare double @sin(double)\n" + src.replace(
        "ret void", "%x = call double @sin(double 1.0)\n  store double %x, ptr %bufs\n  ret void"
    )
    [data] = compiler.compile_sources([("k", calling)])
    with pytest.raises(CompileError, match="calls sin, which it does not define"):
        elf.flat([("k", data)], spec.triple)
    chosen = """
@far = internal ifunc i64 (), ptr @choose
define internal ptr @choose() {
  ret ptr null
}
""" + src.replace("ret void", "%x = call i64 @far()\n  store i64 %x, ptr %bufs\n  ret void")
    [data] = compiler.compile_sources([("k", chosen)])
    with pytest.raises(CompileError, match="functions chosen at run time"):
        elf.flat([("k", data)], spec.triple)
    constant = "store <4 x float> <float 1.0, float 2.0, float 3.0, float 4.0>, ptr %bufs"
    [data] = compiler.compile_sources([("k", src.replace("ret void", f"{constant}\n  ret void"))])
    assert b".rodata" in data
    rng = np.random.default_rng(0)
    headers = struct.unpack_from("<Q", data, 40)[0]  # of sections, 64 bytes each
    places = [*range(headers, len(data)), *rng.integers(len(data), size=300)]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        with contextlib.suppress(CompileError):
            elf.flat([("k", bytes(damaged))], spec.triple)


def names_in(header: str, prefix: str) -> list[str]:
    """Return the enumerators of a C header that begin with `prefix`, in order, without it."""
    text = re.sub(r"/\*.*?\*/", "", (sources() / header).read_text(), flags=re.DOTALL)
    return re.findall(rf"\b{prefix}(\w+)(?=\s*[,=}}]|\s*$)", text, re.MULTILINE)


def value_in(file: str, name: str) -> str:
    """Return the value that a C file gives a constant."""
    [found] = re.findall(rf"\b{name}(?: =)? \"?([-\w]+)", (sources() / file).read_text())
    return found


def test_the_writer_in_python_and_the_reader_in_c_share_a_format() -> None:
    assert names_in("model.h", "KRT_S_") == [*image._SECTIONS]
    assert names_in("model.h", "KRT_C_") == [*image._CODES]
    assert names_in("krt_model.h", "KRT_(?=BOOL|U?INT|B?FLOAT)") == [d.name.upper() for d in dt.ALL]
    assert [d.code for d in dt.ALL] == [*range(len(dt.ALL))]
    kinds = names_in("model_host.h", "KRT_CHECK_")
    assert [getattr(status, kind) for kind in kinds] == [*range(len(kinds))]
    for file, name, expected in (
        ("model.h", "KRT_MODEL_MAGIC", image.MAGIC.decode()),
        ("model.h", "KRT_MODEL_VERSION", image.VERSION),
        ("model.h", "KRT_PLACE_STATUS", image._STATUS),
        ("model.h", "KRT_PLACE_PORT", image._PORT),
        ("krt_model.h", "KRT_MOST_AXES", image.MOST_AXES),
        ("krt_model.h", "KRT_MOST_SIZES", image.MOST_SIZES),
        ("model.c", "define MOST_DEPTH", image._DEEPEST),
        ("model.c", "define FEWEST_SLICES", slice_pipelining.FOR_EACH),
    ):
        assert value_in(file, name) == str(expected), name
