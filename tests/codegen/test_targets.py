"""Kernels compile for every target, with the registers that they were planned for."""

from __future__ import annotations

import numpy as np
import pytest
from support.assembly import assembly, count, inner_loop
from support.skip_list import needs

from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler
from kernelrt.backend.cpu.elf import undefined
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import TARGETS, DeviceSpec
from kernelrt.ir import Op, UOp, const

STACK = r"\(%rsp\)|\[sp"
MULTIPLY_ADD = "fmadd|fmla"


def product(build, m, n, k, transposed=False, dtype=dt.float32, total=None):
    total = total or dtype
    i, j, t = build.range(m, 0), build.range(n, 1), build.range(k, 2)
    a = build.load(build.param(1, m * k, dtype), i * k + t)
    b = build.load(build.param(2, n * k, dtype), j * k + t if transposed else t * n + j)
    value = build.reduce(Op.ADD, a.cast(total) * b.cast(total), t)
    return build.sink(build.store(build.param(0, m * n, total), i * n + j, value))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_product_compiles(target, transposed, build):
    assert "ret" in assembly(product(build, 33, 70, 65, transposed), TARGETS[target]())


@pytest.mark.parametrize("target", [name for name, make in TARGETS.items() if make().has_fma])
@pytest.mark.parametrize("shape", [(64, 64, 64), (784, 128, 128), (60, 96, 50)], ids=str)
def test_the_inner_loop_keeps_its_tile_in_registers(target, shape, build):
    inner = inner_loop(assembly(product(build, *shape), TARGETS[target]()), MULTIPLY_ADD)
    assert count(inner, MULTIPLY_ADD) >= 32
    assert not count(inner, STACK)


@pytest.mark.parametrize("shape", [(64, 64, 64), (384, 384, 384), (512, 512, 512)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "total", "multiply"),
    [(dt.int8, dt.int32, "vpmaddwd"), (dt.int32, dt.int32, "vpmulld"),
     (dt.int64, dt.int64, "vpmuludq")],
    ids=str,
)  # fmt: skip
def test_a_product_that_is_added_separately_has_a_register(dtype, total, multiply, shape, build):
    """On 16 registers. Sums in all of them would wait on the stack, nearly one for each product."""
    text = assembly(product(build, *shape, dtype=dtype, total=total), DeviceSpec.avx2())
    inner = inner_loop(text, multiply)
    assert count(inner, multiply) >= 32
    assert count(inner, r"\(%rsp\), %ymm|%ymm\d+, .*\(%rsp\)") <= count(inner, multiply) / 3


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(128, 128, 128), (512, 512, 512), (128, 128, 784)], ids=str)
def test_a_tile_of_16_registers_loads_less_than_it_multiplies(shape, transposed, build):
    """6 rows of two vectors take 8 loads for 12 multiply-adds, 2 rows of four 6 for 8."""
    text = assembly(product(build, *shape, transposed=transposed), DeviceSpec.avx2())
    inner = inner_loop(text, "vfmadd")
    loads = count(inner, r"vbroadcastss|vmovups\s.*\), %ymm|vfmadd\S+\s.*\(")
    assert loads <= 0.68 * count(inner, "vfmadd")
    assert not count(inner, STACK)


@needs("the benchmarks")
@pytest.mark.parametrize("size", [128, 512])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_instructions_for_arm64_reach_the_peak(dtype, layout, size):
    from bench import instructions

    found = instructions.inner_loop(instructions.product(size, layout, dtype), DeviceSpec.neon())
    assert found.multiply_adds >= 32
    assert found.spills == 0
    assert all(found.peak(processor) > 0.95 for processor in instructions.PROCESSORS)


def test_wide_vectors_are_used_where_they_exist(build):
    text = assembly(product(build, 64, 64, 64), DeviceSpec.avx512())
    assert text.count("zmm") > text.count("ymm")
    assert "vfmadd" in text


@pytest.mark.parametrize("target", TARGETS)
def test_checked_and_masked_access_compiles(target, build):
    i, j = build.range(30, 0), build.range(24, 1)
    row = UOp(
        Op.BOUND, dt.int64,
        (build.load(build.param(2, 30, dt.int64), i), const(50, dt.int64),
         build.param(3, 1, dt.int64)),
        (0, False),
    )  # fmt: skip
    predicate = j < 20
    value = build.load(build.param(1, 50 * 24), row * 24 + j, predicate)
    ast = build.sink(build.store(build.param(0, 30 * 24), i * 24 + j, value))
    assert "ret" in assembly(ast, TARGETS[target]())


def converting(build, size, source, target):
    r = build.range(size, 0)
    value = UOp(Op.CAST, target, (build.load(build.param(1, size, source), r),))
    return build.sink(build.store(build.param(0, size, target), r, value))


@pytest.mark.parametrize("size", [1, 9, 64])
@pytest.mark.parametrize("narrow", [dt.float16, dt.bfloat16], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_narrow_floats_need_no_functions(target, narrow, size, build):
    spec = TARGETS[target]()
    for types in ((narrow, dt.float32), (dt.float64, narrow), (dt.int32, narrow)):
        program = LLVMRenderer(spec).render(converting(build, size, *types))
        [data] = LLVMCompiler(spec).compile_sources([(program.name, program.src)])
        assert not undefined(data)


def test_float16_by_arithmetic_alone(run_plain, build):
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = np.zeros(bits.size, np.float32)
    run_plain(converting(build, bits.size, dt.float16, dt.float32), [wide, bits])
    np.testing.assert_array_equal(wide, bits.view(np.float16).astype(np.float32))
    rng = np.random.default_rng(0)
    every = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    near = rng.integers(0x32000000, 0x48000000, 1 << 16, dtype=np.uint32)
    x = np.concatenate([every, near, near | 1 << 31]).view(np.float32)
    narrow = np.zeros(x.size, np.uint16)
    run_plain(converting(build, x.size, dt.float32, dt.float16), [narrow, x])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(narrow.view(np.float16), x.astype(np.float16))
    again = np.zeros(bits.size, np.uint16)
    run_plain(converting(build, bits.size, dt.float32, dt.float16), [again, wide])
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(again[numbers], bits[numbers])
