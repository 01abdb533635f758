"""Arrays that a kernel fills for itself: values and when they are computed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.assembly import assembly

from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler
from kernelrt.backend.llvm import LLVMRenderer, renderer
from kernelrt.device.spec import TARGETS, DeviceSpec, host
from kernelrt.errors import CompileError
from kernelrt.ir import Op, UOp, Variable, const
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.local import LOCAL_BYTES, ROWS_BYTES
from kernelrt.loops.tiles import Tile
from kernelrt.loops.tiling import Tiling

SHAPES = [(1, 1), (3, 1), (2, 5), (4, 16), (3, 17), (5, 33), (2, 100), (33, 64), (3, 0), (0, 3)]


def exp(value: UOp) -> UOp:
    return UOp(Op.EXP, value.dtype, (value,))


def softmax_rows(build, rows, columns, most=None, dtype=dt.float32):
    """Softmax along the last axis; each row of exponentials is computed once."""
    size = (most or rows) * columns if isinstance(columns, int) else rows * columns.vmax
    i, j, k, r, s = (build.range(n, m) for m, n in enumerate([rows, *[columns] * 4]))
    x = build.param(1, size, dtype)
    top = build.reduce(Op.MAX, build.load(x, i * columns + k), k)
    row = build.local(exp(build.load(x, i * columns + r) - top), r)
    total = build.reduce(Op.ADD, build.load(row, s), s)
    value = build.load(row, j) / total
    return build.sink(build.store(build.param(0, size, dtype), i * columns + j, value))


def softmax_columns(build, rows, columns):
    """Softmax along the first axis: the arrays stand under the loop that carries vectors."""
    i, j, k, r, s = (build.range(n, m) for m, n in enumerate([rows, columns, *[rows] * 3]))
    x = build.param(1, rows * columns)
    top = build.reduce(Op.MAX, build.load(x, k * columns + j), k)
    column = build.local(exp(build.load(x, r * columns + j) - top), r)
    total = build.reduce(Op.ADD, build.load(column, s), s)
    value = build.load(column, i) / total
    return build.sink(build.store(build.param(0, rows * columns), i * columns + j, value))


def softmax(x, axis):
    wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True, initial=-np.inf))
    return wide / wide.sum(axis, keepdims=True)


def panel_product(build, m, blocks, width, depth):
    """A matrix product that packs one panel of its second operand at a time."""
    n = blocks * width
    p, i, j, k, q, r = (
        build.range(size, number)
        for number, size in enumerate([blocks, m, width, depth, depth, width])
    )
    a, b = build.param(1, m * depth), build.param(2, depth * n)
    panel = build.local(build.load(b, q * n + p * width + r), q, r)
    terms = build.load(a, i * depth + k) * build.load(panel, k * width + j)
    total = build.reduce(Op.ADD, terms, k)
    return build.sink(build.store(build.param(0, m * n), i * n + p * width + j, total))


def attention(build, queries, keys, width):
    """Rows of scores, computed by sums, are read by a maximum, a sum and a product."""
    i, e, d, j, a, b, c = (
        build.range(size, number)
        for number, size in enumerate([queries, width, width, keys, keys, keys, keys])
    )
    q, k, v = build.param(1, queries * width), *(build.param(s, keys * width) for s in (2, 3))
    terms = build.load(q, i * width + d) * build.load(k, j * width + d)
    scores = build.local(build.reduce(Op.ADD, terms, d), j)
    top = build.reduce(Op.MAX, build.load(scores, a), a)
    weights = build.local(exp(build.load(scores, b) - top), b)
    total = build.reduce(Op.ADD, build.load(weights, c), c)
    t = build.range(keys, 7)
    value = build.reduce(Op.ADD, build.load(weights, t) * build.load(v, t * width + e), t)
    return build.sink(build.store(build.param(0, queries * width), i * width + e, value / total))


@pytest.fixture(params=["host", "plain"])
def either(request, run, run_plain):
    return run if request.param == "host" else run_plain


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_computed_once(either, build, rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    out = np.full(shape, np.nan, np.float32)
    ast = softmax_rows(build, *shape)
    verify_kernel(ast)
    either(ast, [out, x])
    np.testing.assert_allclose(out, softmax(x, 1), rtol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_columns_are_computed_once(either, build, rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    out = np.full(shape, np.nan, np.float32)
    either(softmax_columns(build, *shape), [out, x])
    np.testing.assert_allclose(out, softmax(x, 0), rtol=2e-6)


@pytest.mark.parametrize("dtype", [dt.float16, dt.bfloat16, dt.float64], ids=str)
def test_rows_of_other_floats(either, build, rng, dtype):
    x = rng.standard_normal((5, 37)).astype(np.float32)
    kind = np.float64 if dtype is dt.float64 else np.float16
    narrow = x.astype(kind)
    if dtype is dt.bfloat16:
        narrow = (x.view(np.uint32) >> 16).astype(np.uint16)
        x = (narrow.astype(np.uint32) << 16).view(np.float32)
    else:
        x = narrow
    out = np.zeros_like(narrow)
    either(softmax_rows(build, 5, 37, dtype=dtype), [out, narrow])
    if dtype is dt.bfloat16:
        out = (out.astype(np.uint32) << 16).view(np.float32)
    # Three are rounded: the exponential, their sum, and the quotient.
    error = {dt.float16: 2.0**-11, dt.bfloat16: 2.0**-8, dt.float64: 1e-14}[dtype]
    np.testing.assert_allclose(out.astype(np.float64), softmax(x, 1), rtol=3 * error)


def test_a_row_and_its_sum_take_one_pass(build):
    text = LLVMRenderer(host()).outline(softmax_rows(build, 64, 1000))
    assert text.count("exp(") == 1
    assert text.count("for ") == 4
    lines = text.splitlines()
    [filled] = [n for n, line in enumerate(lines) if "local0[" in line and "= v" in line]
    assert "exp(" in lines[filled - 1]
    assert "sum1 +=" in lines[filled + 1]


def test_a_row_read_under_further_loops_is_not_computed_there(build):
    text = LLVMRenderer(host()).outline(attention(build, 64, 48, 32))
    assert text.count("exp(") == 1
    assert text.count("p1[") == 1


def test_what_needs_the_whole_row_waits_for_it(run, build, rng):
    # Each element is scaled by the one at the other end: no sum of these while the row is filled.
    n = 19
    j, r, s = (build.range(n, k) for k in range(3))
    x = build.param(1, n)
    row = build.local(exp(build.load(x, r)), r)
    total = build.reduce(Op.ADD, build.load(row, s) * build.load(row, n - 1 - s), s)
    ast = build.sink(build.store(build.param(0, n), j, build.load(row, j) / total))
    x, out = rng.standard_normal(n).astype(np.float32), np.zeros(n, np.float32)
    run(ast, [out, x])
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(out, wide / (wide * wide[::-1]).sum(), rtol=2e-6)


@pytest.mark.parametrize("size", [(5, 1, 1, 1), (7, 3, 16, 20), (33, 2, 17, 65), (12, 4, 32, 1)])
def test_packed_panels(either, build, rng, size):
    m, blocks, width, depth = size
    a = rng.standard_normal((m, depth)).astype(np.float32)
    b = rng.standard_normal((depth, blocks * width)).astype(np.float32)
    out = np.zeros((m, blocks * width), np.float32)
    either(panel_product(build, *size), [out, a, b])
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 5, 7), (17, 33, 16), (64, 48, 32), (2, 0, 3)])
def test_attention(either, build, rng, size):
    queries, keys, width = size
    q = rng.standard_normal((queries, width)).astype(np.float32)
    k, v = (rng.standard_normal((keys, width)).astype(np.float32) for _ in range(2))
    out = np.full((queries, width), np.nan, np.float32)
    ast = attention(build, *size)
    verify_kernel(ast)
    either(ast, [out, q, k, v])
    with np.errstate(invalid="ignore"):
        truth = softmax(q.astype(np.float64) @ k.T, 1) @ v.astype(np.float64)
    np.testing.assert_allclose(out, truth if keys else np.nan, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 40])
def test_an_array_of_an_array(either, build, rng, n):
    i, j, r, s = (build.range(size, k) for k, size in enumerate([6, n, n, n]))
    x = build.param(1, 6 * n)
    inner = build.local(exp(build.load(x, i * n + r)), r)
    around = build.load(inner, s) - build.load(inner, (s + 1) % n)
    outer = build.local(around * 3.0, s)
    value = build.load(outer, n - 1 - j) + build.load(inner, const(0, dt.int64))
    ast = build.sink(build.store(build.param(0, 6 * n), i * n + j, value))
    x = rng.standard_normal((6, n)).astype(np.float32)
    out = np.zeros_like(x)
    either(ast, [out, x])
    wide = np.exp(x.astype(np.float64))
    truth = ((wide - np.roll(wide, -1, 1)) * 3)[:, ::-1] + wide[:, :1]
    np.testing.assert_allclose(out, truth, rtol=1e-5, atol=1e-5)


KINDS = [dt.bool_, dt.int8, dt.uint16, dt.int32, dt.int64, dt.float64]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_elements_of_any_type(either, build, rng, dtype):
    n = 37
    j, r = build.range(n, 0), build.range(n, 1)
    row = build.local(build.load(build.param(1, n, dtype), n - 1 - r), r)
    value = UOp(Op.WHERE, dtype, (j < 30, build.load(row, (j * 5) % n), build.load(row, j)))
    ast = build.sink(build.store(build.param(0, n, dtype), j, value))
    x = rng.integers(0, 2 if dtype.is_bool else 100, n).astype(dt.to_numpy(dtype))
    out = np.zeros_like(x)
    either(ast, [out, x])
    at = np.arange(n)
    np.testing.assert_array_equal(out, x[::-1][np.where(at < 30, at * 5 % n, at)])


def test_elements_behind_a_gate(either, build, rng):
    n, held = 40, 24
    j, r = build.range(n, 0), build.range(held, 1)
    row = build.local(build.load(build.param(1, held), r) * 2.0, r)
    value = build.load(row, j - 8, (j >= 8) & (j < held + 8))
    ast = build.sink(build.store(build.param(0, n), j, value))
    x, out = rng.standard_normal(held).astype(np.float32), np.full(n, np.nan, np.float32)
    either(ast, [out, x])
    np.testing.assert_array_equal(out, np.pad(2 * x, 8))


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 40])
def test_rows_of_any_length(either, build, rng, n):
    size = Variable("n", 0, 40)
    ast = softmax_rows(build, 3, size)
    x, out = rng.standard_normal(120).astype(np.float32), np.full(120, np.nan, np.float32)
    either(ast, [out, x], n=n)
    np.testing.assert_allclose(
        out[: 3 * n].reshape(3, n), softmax(x[: 3 * n].reshape(3, n), 1), rtol=2e-6
    )
    assert np.isnan(out[3 * n :]).all()


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 50])
def test_any_number_of_columns(either, build, rng, n):
    rows, size = 5, Variable("n", 0, 50)
    i, j, r, s = (build.range(e, k) for k, e in enumerate([rows, size, rows, rows]))
    x = build.param(1, rows * 50)
    column = build.local(exp(build.load(x, r * size + j)), r)
    total = build.reduce(Op.ADD, build.load(column, s), s)
    value = build.load(column, i) / total
    ast = build.sink(build.store(build.param(0, rows * 50), i * size + j, value))
    x = rng.standard_normal(rows * n).astype(np.float32)
    out = np.full(rows * 50, np.nan, np.float32)
    either(ast, [out, np.concatenate([x, np.full(rows * 50 - x.size, np.nan, np.float32)])], n=n)
    np.testing.assert_allclose(
        out[: rows * n].reshape(rows, n), softmax(x.reshape(rows, n), 0), rtol=2e-6
    )


def test_rows_in_chunks(run, build, rng):
    rows, columns = 2048, 1024
    ast = softmax_rows(build, rows, columns)
    assert LLVMRenderer(host()).render(ast).global_size[0] > 1
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    out = np.zeros_like(x)
    run(ast, [out, x])
    np.testing.assert_allclose(out, softmax(x, 1), rtol=4e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", [softmax_rows, softmax_columns, panel_product, attention])
def test_every_target_compiles_them(target, kernel, build):
    sizes = {panel_product: (33, 3, 32, 40), attention: (20, 33, 16)}.get(kernel, (33, 70))
    spec = TARGETS[target]()
    assert "ret" in assembly(kernel(build, *sizes), spec)


def test_only_so_much_memory(build):
    columns = LOCAL_BYTES // 4
    ast = softmax_columns(build, 1024, columns // 1024)
    text = LLVMRenderer(DeviceSpec.avx512()).render(ast).src
    taken = sum(int(n) for n in re.findall(r"= alloca \[(\d+) x i8\]", text))
    assert 4096 <= taken <= LOCAL_BYTES
    with pytest.raises(CompileError, match="local arrays"):
        LLVMRenderer(host()).render(softmax_rows(build, 2, ROWS_BYTES // 4 + 1))


@pytest.mark.parametrize("target", TARGETS)
def test_every_page_of_the_stack_is_touched(target, build):
    spec = TARGETS[target]()
    text = assembly(softmax_columns(build, 20000, 2), spec)
    # A loop that moves the stack pointer by a page and writes there.
    assert re.search(r"subq\s+\$4096, %rsp|sub\s+sp, sp, #1, lsl #12", text)


class AnyTiles:
    """Instead of the best tiles, any: what is written must not depend on who chose."""

    def __init__(self, monkeypatch, seed):
        self.rng = np.random.default_rng(seed)
        self.choose = renderer.choose
        monkeypatch.setattr(renderer, "choose", self)

    def __call__(self, info, target, cost, _length=None):
        order = self.choose(info, target, cost).order
        tiles = {}
        nests = [order, *info.passes]
        for ranges in nests:
            for r in ranges:
                tiles[r] = Tile(int(self.rng.choice([1, 1, 2, 3, 4, 8])), 1)
            if len(ranges) and self.rng.integers(3):
                lanes = int(self.rng.choice([2, 3, 4, 8, 16]))
                factor = lanes * int(self.rng.integers(1, 3)) + int(self.rng.integers(2))
                tiles[self.rng.choice(list(ranges))] = Tile(factor, lanes)
        return Tiling(tiles, order)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("kernel", [softmax_rows, softmax_columns, panel_product, attention])
def test_any_tiles_give_the_same_values(monkeypatch, run_anew, build, kernel, seed):
    AnyTiles(monkeypatch, seed)
    rng = np.random.default_rng(seed)
    if kernel is panel_product:
        test_packed_panels(run_anew, build, rng, (5, 3, 11, 9))
    elif kernel is attention:
        test_attention(run_anew, build, rng, (5, 13, 9))
    elif kernel is softmax_rows:
        test_rows_are_computed_once(run_anew, build, rng, (5, 19))
        test_rows_of_any_length(run_anew, build, rng, 19)
    else:
        test_columns_are_computed_once(run_anew, build, rng, (5, 19))
        test_any_number_of_columns(run_anew, build, rng, 19)


def two_rows(build, rows, columns, *, later):
    """Squares of a row and their exponentials; both are read at the end, or the latter alone."""
    i, j, a, b, s = (build.range(n, m) for m, n in enumerate([rows, *[columns] * 4]))
    x = build.param(1, rows * columns)
    element = build.load(x, i * columns + a)
    squares = build.local(element * element, a)
    powers = build.local(exp(build.load(squares, b) * -1.0), b)
    total = build.reduce(Op.ADD, build.load(powers, s), s)
    value = build.load(powers, j) / total
    if later:
        value = value + build.load(squares, j)
    # Backwards, so that neither row can lie where the results are stored.
    index = i * columns + (columns - 1 - j)
    return build.sink(build.store(build.param(0, rows * columns), index, value))


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (5, 33), (33, 64)])
def test_a_row_takes_the_place_of_one_that_is_not_read_any_more(either, build, rng, shape, later):
    x = rng.standard_normal(shape).astype(np.float32)
    out = np.full(shape, np.nan, np.float32)
    ast = two_rows(build, *shape, later=later)
    either(ast, [out, x])
    squares = x.astype(np.float64) ** 2
    wanted = np.exp(-squares) / np.exp(-squares).sum(1, keepdims=True) + later * squares
    np.testing.assert_allclose(out[:, ::-1], wanted, rtol=3e-6)
    count = LLVMRenderer(host()).render(ast).src.count(" = alloca ")
    alone = LLVMRenderer(host()).render(two_rows(build, *shape, later=True)).src.count(" = alloca ")
    assert (count == alone) == later


def test_a_row_that_is_read_backwards_keeps_its_place(either, build, rng):
    i, j, a, b = (build.range(n, m) for m, n in enumerate([4, 50, 50, 50]))
    x = build.param(1, 200)
    row = build.local(exp(build.load(x, i * 50 + a)), a)
    turned = build.local(build.load(row, b) * build.load(row, 49 - b), b)
    store = build.store(build.param(0, 200), i * 50 + j, build.load(turned, j))
    given = rng.standard_normal((4, 50)).astype(np.float32)
    out = np.zeros_like(given)
    either(build.sink(store), [out, given])
    power = np.exp(given.astype(np.float64))
    np.testing.assert_allclose(out, power * power[:, ::-1], rtol=3e-6)


def centred_rows(build, rows, columns):
    """Rows less their means, over what their squares come to, beside that and a scaled copy."""
    i, j, k, r, s = (build.range(n, m) for m, n in enumerate([rows, *[columns] * 4]))
    x = build.param(3, rows * columns)
    mean = build.reduce(Op.ADD, build.load(x, i * columns + k), k) / float(columns)
    row = build.local(build.load(x, i * columns + r) - mean, r)
    square = build.load(row, s)
    total = build.reduce(Op.ADD, square * square, s) / float(columns) + 0.001
    factor = total.const_like(1.0) / total.alu(Op.SQRT)
    value = build.load(row, j) * factor
    at, scale = i * columns + j, build.load(build.param(4, columns), j)
    return build.sink(
        build.store(build.param(0, rows), i, factor),
        build.store(build.param(1, rows * columns), at, value),
        build.store(build.param(2, rows * columns), at, value * scale),
    )


@pytest.mark.parametrize("target", [name for name, make in TARGETS.items() if make().is_x86])
@pytest.mark.parametrize("sizes", [(129, 9001), (40, 1500), (3, 60000)], ids=str)
def test_the_frame_is_there_before_anything_is_read(build, target, sizes):
    # LLVM's loop over its pages uses r11, so nothing may be in there yet.
    spec = TARGETS[target]()
    program = LLVMRenderer(spec).render(centred_rows(build, *sizes))
    assert program.stack_bytes > 4096
    text = LLVMCompiler(spec).assembly(program.name, program.src)
    body = text[text.index(f"\n{program.name}:") :]
    taken = body.index(", (%rsp)")
    assert taken < body.index("(%rsi)"), body[:2000]
    assert taken < body.index("(%rdi)")
