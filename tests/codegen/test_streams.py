"""What is fetched ahead: rows pages apart that are read once, and what a store needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelrt.codegen import LLVMRenderer
from kernelrt.codegen.analysis import Analysis
from kernelrt.codegen.loops import Fetch
from kernelrt.codegen.loops import build as nest_of
from kernelrt.codegen.loops_spec import verify_loops
from kernelrt.codegen.tiling import Tiling
from kernelrt.device.spec import DeviceSpec
from kernelrt.errors import CompileError
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
    """Lines that are asked for to be read."""
    lines = LLVMRenderer(device).render(ast).src.splitlines()
    return sum("call void @llvm.prefetch" in line and "i32 0, i32 3" in line for line in lines)


def masked_product(build, m, n, depth):
    """A product, kept where another matrix is positive; `run` on 0: the result, 3: that matrix."""
    i, j, k = (build.range(size, number) for number, size in enumerate((m, n, depth)))
    a, b = build.param(1, m * depth), build.param(2, depth * n)
    total = build.reduce(Op.ADD, build.load(a, i * depth + k) * build.load(b, k * n + j), k)
    mask = build.load(build.param(3, m * n), i * n + j)
    value = (mask > 0.0).where(total, total.const_like(0.0))
    return build.sink(build.store(build.param(0, m * n), i * n + j, value))


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


@pytest.mark.parametrize("device", [AVX512, DeviceSpec.avx2(), DeviceSpec.neon()])
def test_what_a_store_needs_is_asked_for_before_long_sums(build, device):
    ast = masked_product(build, 128, 256, 300)
    assert "fetch p0, p3" in LLVMRenderer(device).outline(ast)
    source = LLVMRenderer(device).render(ast).src
    assert source.index("llvm.prefetch") < source.index("fmul" if not device.has_fma else "fma")
    # Short sums, and what the first cache holds, are not worth asking.
    assert "fetch" not in LLVMRenderer(device).outline(masked_product(build, 128, 256, 8))
    assert "fetch" not in LLVMRenderer(device).outline(masked_product(build, 16, 64, 300))


@pytest.mark.parametrize(("m", "n", "depth"), [(128, 256, 300), (129, 257, 64), (67, 300, 515)])
def test_what_is_asked_for_changes_nothing(build, run, m, n, depth):
    rng = np.random.default_rng(m)
    a, b, mask = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((m, depth), (depth, n), (m, n))
    )
    out = np.full((m, n), np.nan, np.float32)
    run(masked_product(build, m, n, depth), [out, a, b, mask])
    wanted = np.where(mask > 0, a.astype(np.float64) @ b, 0)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


def test_what_is_asked_for_is_checked(build):
    ast = masked_product(build, 128, 256, 2000)
    info = Analysis(ast)
    tiling = Tiling(order=tuple(sorted(info.deps[ast.src[0]], key=lambda r: r.arg)))
    nest = nest_of(info, tiling, AVX512)
    outer = nest.body[0]
    (fetch,) = (item for item in outer.body[0].body if isinstance(item, Fetch))
    verify_loops(nest, info)
    early = replace(nest, body=(replace(outer, body=(fetch, *outer.body)),))
    with pytest.raises(CompileError, match="asked for outside a loop"):
        verify_loops(early, info)
    sums = replace(fetch, accesses=(ast.src[0].src[2],))
    with pytest.raises(CompileError, match="lies in no memory"):
        verify_loops(replace(nest, body=(replace(outer, body=(sums, *outer.body)),)), info)


@pytest.mark.parametrize("reducer", [Op.ADD, Op.MAX])
@pytest.mark.parametrize(("rows", "width"), [(9, 4097), (17, 1024), (100, 2049), (65, 515)])
def test_values(build, run, rows, width, reducer):
    x = np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)
    out = np.zeros(width, np.float32)
    run(columns(build, rows, width, reducer=reducer), [out, x])
    wide = x.astype(np.float64)
    expected = wide.sum(0) if reducer is Op.ADD else wide.max(0)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
