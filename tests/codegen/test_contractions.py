"""Register tiles: every layout, remainders in every direction, epilogues, symbolic sizes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, Variable, const

SHAPES = [
    (1, 1, 1), (1, 64, 64), (1, 64, 8), (1, 4, 64), (7, 5, 3), (17, 33, 9), (32, 64, 64),
    (32, 4, 64), (64, 10, 128), (33, 47, 129), (130, 50, 100),
]  # fmt: skip


def product(build, m, n, k, layout, dtype=dt.float32):
    """AST of a matrix product; `layout` says of each operand whether it is transposed."""
    i, j, t = build.range(m, 0), build.range(n, 1), build.range(k, 2)
    a = build.load(build.param(1, m * k, dtype), t * m + i if layout[0] == "T" else i * k + t)
    b = build.load(build.param(2, k * n, dtype), j * k + t if layout[1] == "T" else t * n + j)
    return i * n + j, build.reduce(Op.ADD, a * b, t)


def operands(rng, m, n, k, layout, dtype=np.float32):
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    laid_a = np.ascontiguousarray(a.T) if layout[0] == "T" else a
    laid_b = np.ascontiguousarray(b.T) if layout[1] == "T" else b
    return a.astype(np.float64) @ b.astype(np.float64), laid_a, laid_b


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matrix_product(run, build, rng, shape, layout):
    m, n, k = shape
    index, value = product(build, m, n, k, layout)
    expected, a, b = operands(rng, m, n, k, layout)
    out = np.full((m, n), np.nan, np.float32)
    run(build.sink(build.store(build.param(0, m * n), index, value)), [out, a, b])
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5 * k)


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("dtype", [dt.float64, dt.float16, dt.int32, dt.int64], ids=str)
def test_matrix_product_of_other_types(run, build, rng, dtype, layout):
    m, n, k = 19, 21, 30
    kind = dt.to_numpy(dtype)
    a = (rng.standard_normal((m, k)) * 4).astype(kind)
    b = (rng.standard_normal((k, n)) * 4).astype(kind)
    index, value = product(build, m, n, k, layout, dtype)
    out = np.zeros((m, n), kind)
    laid = np.ascontiguousarray(b.T) if layout[1] == "T" else b
    run(build.sink(build.store(build.param(0, m * n, dtype), index, value)), [out, a, laid])
    tolerance = {"float64": 1e-12, "float16": 5e-3}.get(dtype.name, 0)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 9)


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("rows", [1, 2, 7, 15, 16, 17, 33, 200])
def test_symbolic_rows(run, build, rng, rows, layout):
    batch = Variable("batch", 1, 200)
    n, k = 20, 24
    i, j, t = build.range(batch, 0), build.range(n, 1), build.range(k, 2)
    a = build.load(build.param(1, 200 * k), i * k + t)
    b = build.load(build.param(2, n * k), j * k + t if layout == "NT" else t * n + j)
    ast = build.sink(
        build.store(build.param(0, 200 * n), i * n + j, build.reduce(Op.ADD, a * b, t))
    )
    expected, laid_a, laid_b = operands(rng, rows, n, k, layout)
    out = np.zeros((200, n), np.float32)
    run(ast, [out, laid_a, laid_b], batch=rows)
    np.testing.assert_allclose(out[:rows], expected, rtol=1e-4, atol=1e-4)
    assert not out[rows:].any()


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 33, 200])
def test_symbolic_reduction_of_a_contraction(run, build, rng, rows):
    batch = Variable("batch", 1, 200)
    i, j, t = build.range(24, 0), build.range(20, 1), build.range(batch, 2)
    a, b = build.param(1, 200 * 24), build.param(2, 200 * 20)
    value = build.reduce(Op.ADD, build.load(a, t * 24 + i) * build.load(b, t * 20 + j), t)
    left = rng.standard_normal((rows, 24)).astype(np.float32)
    right = rng.standard_normal((rows, 20)).astype(np.float32)
    out = np.zeros((24, 20), np.float32)
    run(
        build.sink(build.store(build.param(0, 480), i * 20 + j, value)),
        [out, left, right], batch=rows,
    )  # fmt: skip
    np.testing.assert_allclose(out, left.T @ right, rtol=1e-4, atol=1e-4)


def test_epilogue_reads_and_writes_in_place(run, build, rng):
    """A gradient, both moments and the parameter: one contraction, three stores."""
    m, n, k = 10, 64, 32
    i, j, t = build.range(m, 0), build.range(n, 1), build.range(k, 2)
    g = build.reduce(
        Op.ADD,
        build.load(build.param(3, k * m), t * m + i) * build.load(build.param(4, k * n), t * n + j),
        t,
    )
    at = i * n + j
    p, first, second = (build.param(slot, m * n) for slot in range(3))
    new_first = build.load(first, at) * 0.9 + g * 0.1
    new_second = build.load(second, at) * 0.99 + g * g * 0.01
    new_p = build.load(p, at) - new_first / (new_second.alu(Op.SQRT) + 1e-8)
    ast = build.sink(
        build.store(p, at, new_p), build.store(first, at, new_first),
        build.store(second, at, new_second),
    )  # fmt: skip
    state = [rng.random((m, n)).astype(np.float32) for _ in range(3)]
    a, b = (rng.standard_normal((k, c)).astype(np.float32) for c in (m, n))
    gradient = a.T.astype(np.float64) @ b
    expected_first = state[1] * 0.9 + gradient * 0.1
    expected_second = state[2] * 0.99 + gradient**2 * 0.01
    expected_p = state[0] - expected_first / (np.sqrt(expected_second) + 1e-8)
    run(ast, [*state, a, b])
    for got, want in zip(state, (expected_p, expected_first, expected_second), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def test_equal_rows_of_a_tile_have_equal_bits(run, build, rng):
    """Rows that fill no tile may be added up by more accumulators than those before them."""
    m, n, k = 35, 40, 50
    index, value = product(build, m, n, k, "NN")
    row = rng.standard_normal(k).astype(np.float32)
    a = np.repeat(row[None], m, 0)
    b = rng.standard_normal((k, n)).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    run(build.sink(build.store(build.param(0, m * n), index, value)), [out, a, b])
    changes = (out[1:] != out[:-1]).any(axis=1)
    assert changes.sum() <= 1
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_a_large_product_is_split_into_chunks(run, build, rng):
    from kernelrt.backend.llvm import LLVMRenderer
    from kernelrt.device.spec import host

    m, n, k = 257, 120, 300
    index, value = product(build, m, n, k, "NN")
    ast = build.sink(build.store(build.param(0, m * n), index, value))
    program = LLVMRenderer(host()).render(ast)
    assert program.var_names == ["core_id"]
    assert program.global_size is not None
    assert program.global_size[0] >= 2
    expected, a, b = operands(rng, m, n, k, "NN")
    out = np.full((m, n), np.nan, np.float32)
    run(ast, [out, a, b])
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)


def test_a_product_with_a_masked_operand(run, build, rng):
    """A convolution's padding inside the contraction."""
    size, taps = 20, 5
    i, j, t = build.range(6, 0), build.range(size, 1), build.range(taps, 2)
    at = j + t - 2
    inside = (at >= 0) & (at < size)
    x = build.load(build.param(1, size), at, inside)
    w = build.load(build.param(2, 6 * taps), i * taps + t)
    ast = build.sink(
        build.store(build.param(0, 6 * size), i * size + j, build.reduce(Op.ADD, x * w, t))
    )
    signal = rng.standard_normal(size).astype(np.float32)
    weights = rng.standard_normal((6, taps)).astype(np.float32)
    out = np.zeros((6, size), np.float32)
    run(ast, [out, signal, weights])
    expected = [np.correlate(np.pad(signal, 2), w, "valid") for w in weights]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_a_reduction_inside_a_reduction(run, build, rng):
    """max over rows of (x - mean of the row), with the mean's loop under the max's."""
    i, j, t = build.range(9, 0), build.range(13, 1), build.range(21, 2)
    x = build.param(1, 9 * 13 * 21)
    total = build.reduce(Op.ADD, build.load(x, (i * 13 + j) * 21 + t), t)
    value = build.reduce(Op.MAX, total * total, j)
    data = rng.standard_normal((9, 13, 21)).astype(np.float32)
    out = np.zeros(9, np.float32)
    run(build.sink(build.store(build.param(0, 9), i, value)), [out, data])
    expected = (data.astype(np.float64).sum(2) ** 2).max(1)
    np.testing.assert_allclose(out, expected, rtol=1e-4)


def test_a_reduction_inside_one_that_carries_vectors(run, build, rng):
    """Window maxima: the store, the outer and the inner reduction all have unit strides."""
    m, k, w = 17, 2, 5
    i, j, t = build.range(m, 0), build.range(k, 1), build.range(w, 2)
    x = build.load(build.param(1, m * 10), i * 10 + j + t * 2)
    value = build.reduce(Op.MAX, build.reduce(Op.MAX, x, t), j)
    data = rng.standard_normal((m, 10)).astype(np.float32)
    out = np.zeros(m, np.float32)
    run(build.sink(build.store(build.param(0, m), i, value)), [out, data])
    np.testing.assert_array_equal(out, data.max(1))


def test_a_tile_is_made_of_fused_multiply_adds(build):
    from kernelrt.backend.llvm import LLVMRenderer
    from kernelrt.device.spec import DeviceSpec

    index, value = product(build, 64, 64, 64, "NN")
    ast: UOp = build.sink(build.store(build.param(0, 4096), index, value))
    wide = LLVMRenderer(DeviceSpec.avx512()).render(ast).src
    assert "@llvm.fma.v16f32" in wide
    assert "fmul" not in wide
    narrow = LLVMRenderer(DeviceSpec.neon()).render(ast).src
    assert "@llvm.fma.v4f32" in narrow
    # Without the instruction a call of fma() would be the slowest of all choices.
    assert "llvm.fma" not in LLVMRenderer(DeviceSpec.generic()).render(ast).src


def test_a_double_that_varies_with_no_loop_takes_no_lanes(build):
    """The step number that an optimizer scales its update by."""
    from kernelrt.backend.llvm import LLVMRenderer
    from kernelrt.device.spec import DeviceSpec

    index, value = product(build, 64, 64, 64, "TN")
    number = build.load(build.param(3, 1, dt.float64), const(0, dt.int64))
    scaled = value * number.cast(dt.float32)
    ast: UOp = build.sink(build.store(build.param(0, 4096), index, scaled))
    source = LLVMRenderer(DeviceSpec.avx512()).render(ast).src
    assert "@llvm.fma.v16f32" in source
    assert "@llvm.fma.v8f32" not in source


@pytest.mark.parametrize("target", ["avx2", "avx512"])
def test_lines_of_one_iteration_fit_their_cache_set(target, build):
    """Heads of an attention, multiplied with the weights of their projection.

    Rows of two heads lie 8 kB apart, those of two batches 32 kB: all share a set.
    """
    from kernelrt.backend.llvm import LLVMRenderer
    from kernelrt.device.spec import DeviceSpec

    batch, row, column = build.range(12, 0), build.range(64, 1), build.range(128, 2)
    head, t = build.range(4, 3), build.range(32, 4)
    mixed = build.load(build.param(1, 12 * 8192), batch * 8192 + head * 2048 + row * 32 + t)
    weight = build.load(build.param(2, 128 * 128), column * 128 + head * 32 + t)
    total = build.reduce(Op.ADD, mixed * weight, head, t)
    index = (batch * 64 + row) * 128 + column
    ast: UOp = build.sink(build.store(build.param(0, 12 * 8192), index, total))
    spec = getattr(DeviceSpec, target)()
    outline = LLVMRenderer(spec).outline(ast)
    at_once = {
        loop: int(factor or 1)
        for loop, factor in re.findall(r"for (\w+) in \d+(?: by (\d+))?", outline)
    }
    update = outline[: outline.rindex(" * local0")].rpartition("p1[")[2]
    batch_loop, head_loop = (re.search(rf"(\w+) \* {n}\b", update)[1] for n in (8192, 2048))
    assert at_once[batch_loop] * at_once[head_loop] <= spec.l1_bytes // 4096


@pytest.mark.parametrize("columns", [False, True])
def test_a_double_of_each_member_takes_no_lanes(build, columns):
    """Its rate of learning; one of each column goes with the vectors."""
    from kernelrt.backend.llvm import LLVMRenderer
    from kernelrt.device.spec import DeviceSpec

    m, i, j, t = build.range(8, 0), build.range(64, 1), build.range(64, 2), build.range(64, 3)
    a = build.load(build.param(1, 8 * 4096), m * 4096 + t * 64 + i)
    b = build.load(build.param(2, 8 * 4096), m * 4096 + t * 64 + j)
    rate = build.load(build.param(3, 64, dt.float64), j if columns else m * 6)
    scaled = build.reduce(Op.ADD, a * b, t) * rate.cast(dt.float32)
    out = build.store(build.param(0, 8 * 4096), m * 4096 + i * 64 + j, scaled)
    source = LLVMRenderer(DeviceSpec.avx512()).render(build.sink(out)).src
    assert ("@llvm.fma.v16f32" in source) is not columns
    assert ("@llvm.fma.v8f32" in source) is columns
