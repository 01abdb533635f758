"""Compiling, loading and unloading LLVM IR."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from support.patience import until
from support.skip_list import needs

from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler, LLVMLoader
from kernelrt.backend.cpu.elf import undefined
from kernelrt.device.program import CompiledSpec
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.errors import CompileError, SpecError
from kernelrt.ir import Op, UOp

SINK = UOp(Op.SINK, dt.int64)


def returning(name: str, value: int) -> str:
    return f"""
define void @{name}(ptr %bufs, ptr %vals) {{
  %out = load ptr, ptr %bufs
  store i64 {value}, ptr %out
  ret void
}}"""


def call(address: int) -> int:
    out = ctypes.c_int64(-1)
    bufs = (ctypes.c_void_p * 1)(ctypes.addressof(out))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
    function(ctypes.addressof(bufs), None)
    return out.value


def source(name: str, src: str) -> CompiledSpec:
    return CompiledSpec.from_source(name, src, SINK, 1)


@pytest.fixture
def loader() -> LLVMLoader:
    return LLVMLoader(LLVMCompiler(host()))


@pytest.mark.parametrize("options", [{}, {"codegen_level": 0}, {"codegen_level": 3, "optimize": 3}])
def test_effort_does_not_change_results(options):
    loader = LLVMLoader(LLVMCompiler(host(), **options))
    [program] = loader.load([source("k", returning("k", 41))])
    assert (program.name, call(program.address)) == ("k", 41)


@pytest.mark.parametrize("options", [{"codegen_level": 4}, {"optimize": -1}])
def test_effort_is_checked(options):
    with pytest.raises(SpecError):
        LLVMCompiler(host(), **options)


def test_many_kernels_load_together_and_in_order(loader):
    specs = [source(f"k{i}", returning(f"k{i}", i)) for i in range(50)]
    assert [call(p.address) for p in loader.load(specs)] == list(range(50))


def test_one_name_may_stand_for_several_kernels(loader):
    programs = loader.load([source("k", returning("k", i)) for i in range(5)])
    assert [call(p.address) for p in programs] == list(range(5))


def test_source_and_objects_mix(loader):
    [data] = LLVMCompiler(host()).compile_sources([("b", returning("b", 2))])
    specs = [
        source("a", returning("a", 1)),
        CompiledSpec.from_bytes("b", data, SINK, 1),
        source("c", returning("c", 3)),
    ]
    assert [call(p.address) for p in loader.load(specs)] == [1, 2, 3]


def test_nothing_to_do_is_fine(loader):
    assert loader.load([]) == []
    assert LLVMCompiler(host()).compile([]) == []


def test_code_is_freed_with_the_last_program_of_its_library(loader):
    first, second = loader.load([source(n, returning(n, 5)) for n in "ab"])
    library = weakref.ref(first.library)
    del first
    gc.collect()
    assert call(second.address) == 5
    del second

    def freed():
        gc.collect()
        return library() is None

    until(freed)  # a thread that compiled may not have ended yet


@pytest.mark.parametrize(
    ("name", "src", "match"),
    [
        ("k", "define void @k(ptr %a", "LLVM rejected the source"),
        ("k", "define void @k(ptr %a, ptr %b) { ret i64 0 }", "LLVM rejected the source"),
        ("k", returning("other", 1), "defines no function @k"),
        ("k", "declare void @k(ptr, ptr)", "defines no function @k"),
        ("k", "", "defines no function @k"),
    ],
)
def test_broken_source_names_the_kernel(loader, name, src, match):
    with pytest.raises(CompileError, match=f"kernel 'k': .*{match}"):
        loader.load([source(name, src)])


def test_verifier_errors_are_quoted(loader):
    bad = (
        "define void @k(ptr %a, ptr %b) {\n  %y = add i64 %x, 1\n  %x = add i64 0, 1\n ret void\n}"
    )
    with pytest.raises(CompileError, match="does not dominate"):
        loader.load([source("k", bad)])


def test_a_missing_function_is_named_and_the_innocent_are_not(loader):
    src = "declare void @nowhere_to_be_found()\n" + returning("k", 1).replace(
        "  ret", "  call void @nowhere_to_be_found()\n  ret"
    )
    with pytest.raises(CompileError, match=r"'k'.*nowhere_to_be_found") as caught:
        loader.load([source("good", returning("good", 1)), source("k", src)])
    assert "'good'" not in str(caught.value)
    assert call(loader.load([source("good", returning("good", 3))])[0].address) == 3


def test_functions_of_the_c_library_are_found(loader):
    src = """
declare double @llvm.pow.f64(double, double)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @k(ptr %bufs, ptr %vals) {
  %out = load ptr, ptr %bufs
  %n = load i64, ptr %out
  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 8, i1 false)
  %x = sitofp i64 %n to double
  %y = call double @llvm.pow.f64(double %x, double 2.5)
  %i = fptosi double %y to i64
  store i64 %i, ptr %out
  ret void
}"""
    [program] = loader.load([source("k", src)])
    out = ctypes.c_int64(4)
    bufs = (ctypes.c_void_p * 1)(ctypes.addressof(out))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(program.address)(
        ctypes.addressof(bufs), None
    )
    assert out.value == 32


@pytest.mark.parametrize("data", [b"no object", b"\x7fELF\x02\x01" + bytes(10), b"\x7fELF"])
def test_broken_objects_are_refused(loader, data):
    with pytest.raises(CompileError, match="'k'"):
        loader.load([CompiledSpec.from_bytes("k", data, SINK, 1)])


def test_an_object_without_the_entry_point_is_refused(loader):
    [data] = LLVMCompiler(host()).compile_sources([("a", returning("a", 1))])
    with pytest.raises(CompileError, match="'b'"):
        loader.load([CompiledSpec.from_bytes("b", data, SINK, 1)])


def mapped(address: int) -> str:
    """Return the permissions of the memory at an address; empty if it is not mapped."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, permissions = line.split()[:2]
        first, last = (int(part, 16) for part in bounds.split("-"))
        if first <= address < last:
            return permissions
    return ""


@needs("Linux")
def test_code_is_never_writable_and_is_unmapped_with_its_library(loader):
    [program] = loader.load([source("k", returning("k", 5))])
    assert mapped(program.address) == "r-xp"
    address = program.address
    del program
    gc.collect()
    assert mapped(address) == ""


def test_kernels_are_linked_without_llvm():
    code = f"""if True:
        import sys
        from kernelrt import dtype
        from kernelrt.backend.cpu import LLVMCompiler, LLVMLoader
        from kernelrt.device.program import CompiledSpec
        from kernelrt.device.spec import DeviceSpec
        from kernelrt.ir import Op, UOp
        spec = DeviceSpec.{"neon" if host().is_arm64 else "generic"}()
        data, sink = sys.stdin.buffer.read(), UOp(Op.SINK, dtype.int64)
        compiled = CompiledSpec.from_bytes("k", data, sink, 1)
        [program] = LLVMLoader(LLVMCompiler(spec)).load([compiled])
        sys.exit("llvmlite" in sys.modules)
    """
    [data] = LLVMCompiler(host()).compile_sources([("k", returning("k", 5))])
    subprocess.run([sys.executable, "-c", code], input=data, check=True)


def test_undefined_symbols_of_objects():
    src = "declare void @far()\ndefine void @k(ptr %a, ptr %b) {\n call void @far()\n ret void\n}"
    [data] = LLVMCompiler(DeviceSpec.avx2()).compile_sources([("k", src)])
    assert "far" in undefined(data)
    assert "k" not in undefined(data)
    assert undefined(b"other") == []
    assert undefined(data[:80]) == []


@pytest.mark.parametrize("cpu", ["skylake-avx512", "znver4", "x86-64-v4"])
def test_512_bit_vectors_stay_whole(cpu):
    import dataclasses

    spec = dataclasses.replace(DeviceSpec.avx512(), cpu=cpu)
    src = """
define void @k(ptr %bufs, ptr %vals) {
  %p = load ptr, ptr %bufs
  %x = load <16 x float>, ptr %p, align 4
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %p, align 4
  ret void
}"""
    assembly = LLVMCompiler(spec).assembly("k", src)
    assert "zmm" in assembly
    assert "ymm" not in assembly


def test_floating_point_is_not_loosened():
    src = """
define void @k(ptr %bufs, ptr %vals) {
  %p = load ptr, ptr %bufs
  %x = load float, ptr %p
  %a = fmul float %x, 3.0
  %b = fadd float %a, 1.0
  %c = fsub float %b, %b
  store float %c, ptr %p
  ret void
}"""
    assembly = LLVMCompiler(DeviceSpec.avx2(), optimize=3).assembly("k", src)
    assert "fmadd" not in assembly
    assert "mulss" in assembly
    assert "subss" in assembly


CYCLES = """
import gc
import subprocess
import sys
import itertools
from kernelrt.backend.cpu import LLVMCompiler
from kernelrt.device.spec import host
from kernelrt.errors import CompileError

gc.disable()
head = "define void @{}(ptr %bufs, ptr %vals) "
sources = [
    "nonsense",
    head + "{{ ret void",
    head + "{{ entry: br label %b a: %x = add i64 1, %y ret void "
    "b: %y = add i64 1, 2 %z = add i64 %x, 1 ret void }}",
    "define void @other(ptr %bufs, ptr %vals) {{ ret void }}",
]
for optimize, count, src in itertools.product((0, 2), (1, 3), sources):
    compiler = LLVMCompiler(host(), optimize=optimize)
    for _ in range(20):
        try:
            compiler.compile_sources([(f"k{i}", src.format(f"k{i}")) for i in range(count)])
        except CompileError as error:
            error.itself = error
        else:
            raise AssertionError(src)
    gc.collect()
"""


def test_rejected_sources_may_end_in_cycles():
    run = subprocess.run(
        [sys.executable, "-c", CYCLES], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
