"""Rows that lie pages apart are fetched ahead, where each is read once."""

from __future__ import annotations

import numpy as np
import pytest

from kernelrt.codegen import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op

AVX512 = DeviceSpec.avx512()


def columns(build, rows, width, step=None, reducer=Op.ADD):
    """The kernel that reduces the columns of a matrix whose rows lie `step` apart."""
    step = step or width
    i, k = build.range(width, 0), build.range(rows, 1)
    x = build.param(1, rows * step)
    total = build.reduce(reducer, build.load(x, k * step + i), k)
    return build.sink(build.store(build.param(0, width), i, total))


def product(build, m, n, depth):
    i, j, k = (build.range(size, number) for number, size in enumerate((m, n, depth)))
    a, b = build.param(1, m * depth), build.param(2, depth * n)
    value = build.load(a, i * depth + k) * build.load(b, k * n + j)
    return build.sink(build.store(build.param(0, m * n), i * n + j, build.reduce(Op.ADD, value, k)))


def fetched(ast, device=AVX512):
    return LLVMRenderer(device).render(ast).src.count("call void @llvm.prefetch")


@pytest.mark.parametrize("device", [AVX512, DeviceSpec.avx2(), DeviceSpec.neon()])
def test_a_line_is_asked_for_once(build, device):
    ast = columns(build, 512, 1008)
    assert "p1 fetched 8 ahead" in LLVMRenderer(device).outline(ast)
    floats = LLVMRenderer(device).render(ast).src.count(f"load <{device.lanes(4)} x float>")
    assert fetched(ast, device) == floats * device.lanes(4) // 16


@pytest.mark.parametrize(
    ("rows", "width"), [(512, 64), (8, 8192), (4, 1024)], ids=["near", "few", "unrolled"]
)
def test_what_is_near_or_soon_over_is_not(build, rows, width):
    assert fetched(columns(build, rows, width)) == 0


def test_what_is_read_again_is_not(build):
    assert fetched(product(build, 512, 1024, 1024)) == 0
    assert fetched(product(build, 1, 1000, 1024)) > 0


@pytest.mark.parametrize("reducer", [Op.ADD, Op.MAX])
@pytest.mark.parametrize(("rows", "width"), [(9, 4097), (17, 1024), (100, 2049), (65, 515)])
def test_values(build, run, rows, width, reducer):
    x = np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)
    out = np.zeros(width, np.float32)
    run(columns(build, rows, width, reducer=reducer), [out, x])
    wide = x.astype(np.float64)
    expected = wide.sum(0) if reducer is Op.ADD else wide.max(0)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
