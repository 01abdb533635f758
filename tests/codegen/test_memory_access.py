"""Contiguous, strided, transposed, gathered, masked and checked access."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.conftest import RUNNABLE, runner_on

from kernelrt import dtype as dt
from kernelrt.ir import Op, UOp, Variable, const
from kernelrt.ir.status import LARGEST, LEAST, unpack

SIZES = [1, 2, 3, 15, 16, 17, 31, 64, 65, 100, 1000]


@pytest.mark.parametrize("size", SIZES)
def test_elementwise_with_every_remainder(run, build, rng, size):
    r = build.range(size, 0)
    a, b = build.param(1, size), build.param(2, size)
    ast = build.sink(
        build.store(build.param(0, size), r, build.load(a, r) * build.load(b, r) + 1.5)
    )
    x, y = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    out = np.full(size + 8, 7, np.float32)
    run(ast, [out, x, y])
    np.testing.assert_allclose(out[:size], x * y + 1.5, rtol=1e-6, atol=1e-6)
    assert (out[size:] == 7).all()


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX, Op.MIN, Op.MUL], ids=lambda o: o.name)
@pytest.mark.parametrize("size", SIZES)
def test_reduction_with_every_remainder(run, build, rng, size, op):
    r = build.range(size, 0)
    value = build.reduce(op, build.load(build.param(1, size), r), r)
    x = (rng.standard_normal(size) / 8 + 1).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(build.sink(build.store(build.param(0, 1), const(0, dt.int64), value)), [out, x])
    numpy_op = {Op.ADD: np.sum, Op.MAX: np.max, Op.MIN: np.min, Op.MUL: np.prod}[op]
    np.testing.assert_allclose(out[0], numpy_op(x.astype(np.float64)), rtol=2e-5)


@pytest.mark.parametrize("size", [s for s in SIZES if s <= 300])
def test_symbolic_size_touches_nothing_beyond(run, build, rng, size):
    n = Variable("n", 1, 300)
    r = build.range(n, 0)
    x = build.param(1, 300)
    ast = build.sink(
        build.store(build.param(0, 300), r, build.load(x, r) * 2.0 + r.cast(dt.float32))
    )
    # Arrays of exactly `size`: a stray access would show under a guarded allocator.
    data = rng.standard_normal(size).astype(np.float32)
    out = np.full(300, 7, np.float32)
    run(ast, [out, data], n=size)
    np.testing.assert_allclose(out[:size], data * 2 + np.arange(size), rtol=1e-6)
    assert (out[size:] == 7).all()


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX, Op.MIN], ids=lambda o: o.name)
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 64, 80, 299, 300])
def test_symbolic_reduction(run, build, rng, size, op):
    n = Variable("n", 1, 300)
    r = build.range(n, 0)
    value = build.reduce(op, build.load(build.param(1, 300), r), r)
    # The identity of the wrong operation would win here.
    x = (rng.standard_normal(300) - (5 if op is Op.MAX else -5)).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(build.sink(build.store(build.param(0, 1), const(0, dt.int64), value)), [out, x], n=size)
    numpy_op = {Op.ADD: np.sum, Op.MAX: np.max, Op.MIN: np.min}[op]
    np.testing.assert_allclose(out[0], numpy_op(x[:size].astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("shape", [(64, 64), (33, 17), (5, 100), (100, 5), (4, 4), (1, 9)], ids=str)
def test_transposing_copy(run, build, rng, shape):
    m, n = shape
    i, j = build.range(m, 0), build.range(n, 1)
    value = build.load(build.param(1, m * n), j * m + i)
    data = rng.standard_normal((n, m)).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    run(build.sink(build.store(build.param(0, m * n), i * n + j, value)), [out, data])
    np.testing.assert_array_equal(out, data.T)


@pytest.mark.parametrize("size", [1, 5, 16, 31, 60])
def test_symbolic_inner_dimension(run, build, rng, size):
    n = Variable("n", 1, 60)
    i, j = build.range(n, 0), build.range(n, 1)
    value = build.load(build.param(1, 3600), j * n + i)
    data = rng.standard_normal((size, size)).astype(np.float32)
    out = np.zeros((size, size), np.float32)
    run(build.sink(build.store(build.param(0, 3600), i * n + j, value)), [out, data], n=size)
    np.testing.assert_array_equal(out, data.T)


@pytest.mark.parametrize("shape", [(33, 50), (64, 10), (3, 1000), (5, 1)], ids=str)
def test_several_passes_over_a_row(run, build, rng, shape):
    m, k = shape
    i, j, r, s = build.range(m, 0), build.range(k, 1), build.range(k, 2), build.range(k, 3)
    x = build.param(1, m * k)
    top = build.reduce(Op.MAX, build.load(x, i * k + r), r)
    total = build.reduce(Op.ADD, (build.load(x, i * k + s) - top) * 2.0 - 1.0, s)
    value = (build.load(x, i * k + j) - top) / total
    data = rng.standard_normal((m, k)).astype(np.float32)
    out = np.zeros((m, k), np.float32)
    run(build.sink(build.store(build.param(0, m * k), i * k + j, value)), [out, data])
    wide = data.astype(np.float64)
    shifted = wide - wide.max(1, keepdims=True)
    expected = shifted / (shifted * 2 - 1).sum(1, keepdims=True)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-6)


def test_reductions_over_columns_run_outside_the_rows(run, build, rng):
    m, n = 40, 37
    i, j, r = build.range(m, 0), build.range(n, 1), build.range(m, 2)
    x = build.param(1, m * n)
    total = build.reduce(Op.ADD, build.load(x, r * n + j), r)
    data = rng.standard_normal((m, n)).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    ast = build.sink(
        build.store(build.param(0, m * n), i * n + j, build.load(x, i * n + j) - total)
    )
    run(ast, [out, data])
    np.testing.assert_allclose(out, data - data.astype(np.float64).sum(0), rtol=1e-4, atol=1e-4)


def test_two_reductions_of_one_row_share_a_pass(run, build, rng):
    from kernelrt.loops.analysis import Analysis
    from kernelrt.loops.passes.fuse_loops import merge_passes

    m, k = 20, 70
    i, r, s = build.range(m, 0), build.range(k, 1), build.range(k, 2)
    x = build.param(2, m * k)
    total = build.reduce(Op.ADD, build.load(x, i * k + r), r)
    element = build.load(x, i * k + s)
    squares = build.reduce(Op.ADD, element * element, s)
    ast = build.sink(
        build.store(build.param(0, m), i, total), build.store(build.param(1, m), i, squares)
    )
    assert len({u.src[1] for u in Analysis(merge_passes(ast)).reduces}) == 1
    data = rng.standard_normal((m, k)).astype(np.float32)
    out = np.zeros((2, m), np.float32)
    run(ast, [out[0], out[1], data])
    np.testing.assert_allclose(out[0], data.astype(np.float64).sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out[1], (data.astype(np.float64) ** 2).sum(1), rtol=1e-4)


def checked(build, index: UOp, size: int, slot: int) -> UOp:
    status = build.param(slot, 1, dt.int64)
    return UOp(Op.BOUND, dt.int64, (index, const(size, dt.int64), status), (0, False))


def gather_ast(build, rows, table, width):
    i, j = build.range(rows, 0), build.range(width, 1)
    row = checked(build, build.load(build.param(2, rows, dt.int64), i), table, 3)
    value = build.load(build.param(1, table * width), row * width + j)
    return build.sink(build.store(build.param(0, rows * width), i * width + j, value))


def test_rows_picked_by_data(run, build, rng):
    table = rng.standard_normal((50, 24)).astype(np.float32)
    picks = rng.integers(0, 50, 37)
    out, status = np.zeros((37, 24), np.float32), np.zeros(1, np.int64)
    run(gather_ast(build, 37, 50, 24), [out, table, picks, status])
    np.testing.assert_array_equal(out, table[picks])
    assert status[0] == 0


@pytest.mark.parametrize("bad", [-1, 50, -(2**62), 2**62])
@pytest.mark.parametrize("at", [0, 16, 36])
def test_an_index_out_of_range_is_reported_and_harmless(run, build, rng, bad, at):
    table = rng.standard_normal((50, 24)).astype(np.float32)
    picks = rng.integers(0, 50, 37)
    picks[at] = bad
    out, status = np.zeros((37, 24), np.float32), np.zeros(1, np.int64)
    run(gather_ast(build, 37, 50, 24), [out, table, picks, status])
    assert unpack(int(status[0])) == (0, min(max(bad, LEAST), LARGEST))
    picks[at] = 0
    np.testing.assert_array_equal(out, table[picks])


@pytest.mark.parametrize("width", [1, 24])
def test_adding_at_rows_picked_by_data_keeps_every_addend(run, build, rng, width):
    rows, table = 61, 7
    i, j = build.range(rows, 0), build.range(width, 1)
    row = checked(build, build.load(build.param(2, rows, dt.int64), i), table, 3)
    value = build.load(build.param(1, rows * width), i * width + j)
    ast = build.sink(
        build.store(build.param(0, table * width), row * width + j, value, i, j)
    )
    picks = rng.integers(0, table, rows)
    addends = rng.standard_normal((rows, width)).astype(np.float32)
    out, status = np.zeros((table, width), np.float32), np.zeros(1, np.int64)
    run(ast, [out, addends, picks, status])
    expected = np.zeros((table, width))
    np.add.at(expected, picks, addends.astype(np.float64))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d is not dt.bfloat16], ids=lambda d: d.name)
def test_padding_reads_zero_outside(run, build, rng, dtype):
    r = build.range(40, 0)
    predicate = (r >= 3) & (r < 13)
    value = build.load(build.param(1, 10, dtype), r - 3, predicate)
    data = (rng.standard_normal(10) * 9).astype(dt.to_numpy(dtype))
    out = np.ones(40, dt.to_numpy(dtype))
    run(build.sink(build.store(build.param(0, 40, dtype), r, value)), [out, data])
    np.testing.assert_array_equal(out, np.pad(data, (3, 27)))


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d is not dt.bfloat16], ids=lambda d: d.name)
def test_unaligned_memory(run, build, dtype):
    r = build.range(50, 0)
    kind = dt.to_numpy(dtype)
    raw = np.zeros(50 * kind.itemsize + kind.itemsize, np.uint8)
    data = raw[kind.itemsize :].view(kind)
    data[:] = np.arange(50) % 2 if dtype.is_bool else np.arange(50)
    out = np.zeros(50, kind)
    value = build.load(build.param(1, 50, dtype), r)
    run(build.sink(build.store(build.param(0, 50, dtype), r, value)), [out, data])
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("step", [-4, -1, 2, 3, 4, 7])
@pytest.mark.parametrize("size", [1, 5, 16, 40])
def test_every_nth_element_and_backwards(run, build, rng, size, step):
    r = build.range(size, 0)
    span = (size - 1) * abs(step) + 1
    start = span - 1 if step < 0 else 0
    value = build.load(build.param(1, span), r * step + start)
    # Exactly as many elements as are reached: a run must not be read beyond them.
    data = rng.standard_normal(span).astype(np.float32)
    out = np.zeros(size, np.float32)
    run(build.sink(build.store(build.param(0, size), r, value)), [out, data])
    np.testing.assert_array_equal(out, data[::step])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.float32], ids=lambda d: d.__name__)
def test_lanes_that_are_off_stay_off_in_vectors_of_any_length(target, dtype, build):
    """A running sum reads one lane more of each window; LLVM has loaded others, too."""
    run = runner_on(target)
    for size in range(2, 18):
        i, j = build.range(size, 0), build.range(size, 1)
        x = build.param(1, size, dt.from_numpy(np.dtype(dtype)))
        at = i + j - (size - 1)
        term = build.load(x, at, const(-1, dt.int64).alu(Op.LT, at))
        out = np.full(size + 1, 7, np.float32)
        # As many lanes as float32 has, whose vectors are the longest.
        sums = build.reduce(Op.ADD, term, j).cast(dt.float32)
        values = np.arange(3, size + 3).astype(dtype)
        run(build.sink(build.store(build.param(0, size), i, sums)), [out, values])
        assert out.tolist() == [*np.cumsum(values), 7], size
