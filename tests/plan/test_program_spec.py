"""ProgramSpec and CompiledSpec: every field and method."""

from __future__ import annotations

import ctypes

import pytest

from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.program import CompiledSpec, ProgramSpec
from kernelrt.device.registry import opened
from kernelrt.device.spec import TARGETS, host
from kernelrt.errors import CompileError, SpecError
from kernelrt.ir import Op, UOp, Variable, const

SINK = UOp(Op.SINK, dt.int64)
SRC = """
define void @three(ptr %bufs, ptr %vals) {
  %out = load ptr, ptr %bufs
  store i64 3, ptr %out
  ret void
}"""


def spec() -> ProgramSpec:
    return ProgramSpec("three", SRC, host(), SINK)


def ast_of(size: UOp | int, split: bool = False) -> UOp:
    """out[i] = in[i] + in2[i], with in2 also written: slots 0 and 2 out, 1 in."""
    count = size if isinstance(size, UOp) else const(size, dt.int64)
    index = UOp(Op.RANGE, dt.int64, (count,), 0)
    most = count.vmax
    out, a, both = (UOp(Op.PARAM, dt.float32, (), (slot, most)) for slot in range(3))
    x = UOp(Op.LOAD, dt.float32, (a, index))
    y = UOp(Op.LOAD, dt.float32, (both, index))
    stores = (
        UOp(Op.STORE, dt.float32, (out, index, x + y)),
        UOp(Op.STORE, dt.float32, (both, index, x * 2.0)),
    )
    return UOp(Op.SINK, dt.float32, stores)


def test_fields_start_as_an_unlaunched_kernel():
    p = spec()
    assert (p.name, p.src, p.device, p.ast) == ("three", SRC, host(), SINK)
    assert (p.global_size, p.local_size) == (None, None)
    assert (p.vars, p.var_names, p.globals, p.outs, p.ins, p.buf_count) == ([], [], [], [], [], 0)
    assert (p.flops, p.bytes, p.host_parallel_safe, p.may_fail) == (0, 0, True, False)


def test_add_var_appends_a_variable_and_its_name():
    n, m = Variable("n", 1, 8), Variable("m", 0, 3)
    p = spec().add_var(n).add_var(m).add_var(n)
    assert p.vars == [n, m]
    assert p.var_names == ["n", "m"]


def test_add_var_keeps_core_id_last():
    p = spec().set_var_names(["core_id"]).add_var(Variable("n", 1, 8))
    assert p.var_names == ["n", "core_id"]


def test_add_var_refuses_a_second_meaning_of_a_name():
    p = spec().add_var(Variable("n", 1, 8))
    with pytest.raises(SpecError, match="'n'"):
        p.add_var(Variable("n", 1, 9))


def test_add_var_refuses_what_is_no_variable():
    with pytest.raises(SpecError, match="expected a Variable"):
        spec().add_var(const(1, dt.int64))


def test_set_work_sizes_takes_symbolic_sizes():
    n = Variable("n", 1, 8)
    p = spec().set_work_sizes((n, 1, 1), (2, 1, 1))
    assert p.global_size == (n, 1, 1)
    assert p.local_size == (2, 1, 1)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 1, "x"), 4])
def test_set_work_sizes_refuses_other_than_three_integers(sizes):
    with pytest.raises(SpecError, match="global_size"):
        spec().set_work_sizes(sizes)


def test_set_var_names_puts_core_id_last_or_raises():
    assert spec().set_var_names(["n", "core_id"]).var_names == ["n", "core_id"]
    with pytest.raises(SpecError, match="last"):
        spec().set_var_names(["core_id", "n"])
    with pytest.raises(SpecError, match="twice"):
        spec().set_var_names(["n", "n"])


def test_set_buffer_metadata_excludes_outputs_from_ins():
    p = spec().set_buffer_metadata(outs=[2, 0], ins=[1, 2])
    assert (p.globals, p.outs, p.ins, p.buf_count) == ([0, 1, 2], [0, 2], [1], 3)
    assert spec().set_buffer_metadata([0], [1], 5).buf_count == 5


def test_set_buffer_metadata_refuses_slots_beyond_the_count():
    with pytest.raises(SpecError, match="slots"):
        spec().set_buffer_metadata([0], [3], 2)


def test_a_rendered_program_names_its_stores_and_loads():
    p = LLVMRenderer(host()).render(ast_of(16))
    assert (p.outs, p.ins, p.globals, p.buf_count) == ([0, 2], [1], [0, 1, 2], 3)
    assert p.vars == []
    assert p.flops == 32
    assert p.bytes > 0


def test_a_rendered_program_lists_its_variables():
    n = Variable("n", 1, 64)
    p = LLVMRenderer(host()).render(ast_of(n))
    assert p.vars == [n]
    assert p.var_names == ["n"]


def test_a_split_program_ends_its_var_names_with_core_id():
    n = Variable("n", 1, 1 << 24)
    p = LLVMRenderer(host()).render(ast_of(n))
    assert p.var_names == ["n", "core_id"]
    assert isinstance(p.global_size[0], UOp)
    assert p.global_size[1:] == (1, 1)
    assert p.local_size is None


def test_compile_gives_bytes_and_keeps_the_rest():
    p = spec().set_var_names(["n", "core_id"]).set_work_sizes((4, 1, 1))
    p.set_buffer_metadata([0], [])
    [c] = LLVMCompiler(host()).compile([p])
    assert c.src is None
    assert c.bytes.startswith(b"\x7fELF")
    assert (c.name, c.ast, c.var_names) == ("three", SINK, ("n", "core_id"))
    assert (c.global_size, c.local_size, c.buf_count) == ((4, 1, 1), None, 1)


def test_compile_takes_many_programs_in_order():
    sources = {f"k{i}": SRC.replace("three", f"k{i}").replace("3,", f"{i},") for i in range(9)}
    programs = [ProgramSpec(name, src, host(), SINK) for name, src in sources.items()]
    compiled = LLVMCompiler(host()).compile(programs)
    assert [c.name for c in compiled] == list(sources)
    assert [call(c) for c in compiled] == list(range(9))


def call(c: CompiledSpec) -> int:
    [program] = opened().loader.load([c])
    out = ctypes.c_int64(-1)
    bufs = (ctypes.c_void_p * 1)(ctypes.addressof(out))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(program.address)(
        ctypes.addressof(bufs), None
    )
    return out.value


def test_from_source_and_from_bytes_run_alike():
    source = CompiledSpec.from_source("three", SRC, SINK, 1)
    [data] = LLVMCompiler(host()).compile_sources([("three", SRC)])
    binary = CompiledSpec.from_bytes("three", data, SINK, 1)
    assert (source.src, source.bytes) == (SRC, None)
    assert (binary.src, binary.bytes) == (None, data)
    assert call(source) == call(binary) == 3


def test_from_source_with_sizes_carries_everything():
    n = Variable("n", 1, 8)
    c = CompiledSpec.from_source_with_sizes(
        "three", SRC, SINK, ["n", "core_id"], (n, 1, 1), None, 1
    )
    assert (c.var_names, c.global_size, c.local_size) == (("n", "core_id"), (n, 1, 1), None)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        (("", SRC, None), "name"),
        (("k", None, None), "exactly one of src and bytes"),
        (("k", SRC, b"x"), "exactly one of src and bytes"),
        (("k", None, b""), "empty"),
    ],
)
def test_a_compiled_spec_is_source_or_bytes(fields, match):
    with pytest.raises(CompileError, match=match):
        CompiledSpec(*fields, SINK)


def test_programs_can_be_made_for_targets_that_are_not_here():
    for target in (make() for make in TARGETS.values()):
        [c] = LLVMCompiler(target).compile([LLVMRenderer(target).render(ast_of(64))])
        assert len(c.bytes) > 100
