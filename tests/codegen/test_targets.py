"""Kernels compile for every target, with the registers that they were planned for."""

from __future__ import annotations

import re

import pytest

from kernelrt.backend.cpu import LLVMCompiler
from kernelrt.codegen import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op

TARGETS = {
    "avx512": DeviceSpec.avx512(), "avx2": DeviceSpec.avx2(),
    "neon": DeviceSpec.neon(), "generic": DeviceSpec.generic(),
}  # fmt: skip
STACK = {"avx512": r"\(%rsp\)", "avx2": r"\(%rsp\)", "neon": r"\[sp"}


def assembly(target: str, ast) -> str:
    spec = TARGETS[target]
    program = LLVMRenderer(spec).render(ast)
    return LLVMCompiler(spec).assembly(program.name, program.src)


def product(build, m, n, k, transposed=False):
    i, j, t = build.range(m, 0), build.range(n, 1), build.range(k, 2)
    a = build.load(build.param(1, m * k), i * k + t)
    b = build.load(build.param(2, n * k), j * k + t if transposed else t * n + j)
    value = build.reduce(Op.ADD, a * b, t)
    return build.sink(build.store(build.param(0, m * n), i * n + j, value))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_product_compiles(target, transposed, build):
    assert "ret" in assembly(target, product(build, 33, 70, 65, transposed))


@pytest.mark.parametrize("target", STACK)
@pytest.mark.parametrize("shape", [(64, 64, 64), (784, 128, 128), (60, 96, 50)], ids=str)
def test_the_inner_loop_keeps_its_tile_in_registers(target, shape, build):
    text = assembly(target, product(build, *shape))
    blocks = re.split(r"^(?:\.?L\w+:|\s+(?:j|b\.)\w+\s.*)", text, flags=re.MULTILINE)
    inner = max(blocks, key=lambda text: len(re.findall(r"fmadd|fmla", text)))
    assert len(re.findall(r"fmadd|fmla", inner)) >= 32
    assert not re.findall(STACK[target], inner)


def test_wide_vectors_are_used_where_they_exist(build):
    text = assembly("avx512", product(build, 64, 64, 64))
    assert text.count("zmm") > text.count("ymm")
    assert "vfmadd" in text


@pytest.mark.parametrize("target", TARGETS)
def test_checked_and_masked_access_compiles(target, build):
    from kernelrt import dtype as dt
    from kernelrt.ir import UOp, const

    i, j = build.range(30, 0), build.range(24, 1)
    row = UOp(
        Op.BOUND, dt.int64,
        (build.load(build.param(2, 30, dt.int64), i), const(50, dt.int64),
         build.param(3, 1, dt.int64)),
        (0, False),
    )  # fmt: skip
    gate = j < 20
    value = build.load(build.param(1, 50 * 24), row * 24 + j, gate)
    ast = build.sink(build.store(build.param(0, 30 * 24), i * 24 + j, value))
    assert "ret" in assembly(target, ast)
