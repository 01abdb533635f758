"""Contractions that copy an operand, a panel at a time: values, bits, and when it is done."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.assembly import assembly
from support.work import lines_run

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer, renderer
from kernelrt.device.spec import LINE, TARGETS, WAY, DeviceSpec, host
from kernelrt.ir import Op, UOp, Variable, const, toposort
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.partition import FEW, _share
from kernelrt.loops.passes.pack_operands import _cache_sets, contraction, pack

#: Rows, columns and depth; rows of the operand that lie 4096 bytes apart meet in the cache.
WIDE = (40, 1024, 64)
TALL = (400, 48, 33)


def product(build, sizes, layout="NN", dtype=dt.float32, rows=None):
    m, n, k = sizes
    i, j, t = (build.range(size, number) for number, size in enumerate((rows or m, n, k)))
    a, b = build.param(1, m * k, dtype), build.param(2, k * n, dtype)
    left = build.load(a, t * m + i if layout[0] == "T" else i * k + t)
    right = build.load(b, j * k + t if layout[1] == "T" else t * n + j)
    total = build.reduce(Op.ADD, left * right, t)
    return build.sink(build.store(build.param(0, m * n, dtype), i * n + j, total))


def operands(rng, sizes, layout, kind=np.float32):
    """The product in float64, and both operands as they are laid out."""
    m, n, k = sizes
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n)))
    laid = (a.T if layout[0] == "T" else a, b.T if layout[1] == "T" else b)
    return a.astype(np.float64) @ b.astype(np.float64), *map(np.ascontiguousarray, laid)


def is_packed(ast, target=None):
    target = target or DeviceSpec.avx512()
    packed = pack(ast, target)
    verify_kernel(packed)
    return any(u.op is Op.LOCAL for u in toposort([packed]))


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_what_is_packed(build, layout):
    transposed = layout[1] == "T"
    assert is_packed(product(build, WIDE, layout))
    assert is_packed(product(build, TALL, layout)) is transposed
    # It stays in the first cache.
    assert not is_packed(product(build, (400, 64, 16), f"{layout[0]}N"))
    # Too few rows to make up for the copy; no memory for a panel.
    assert not is_packed(product(build, (16, 1024, 64), layout))
    assert not is_packed(product(build, (400, 1024, 8192), layout))


def test_what_the_second_cache_holds_is_read_as_it_lies(build):
    """By up to 512 rows, where its rows are less than a page apart and as it is wanted."""
    assert not is_packed(product(build, (64, 512, 256)))
    assert not is_packed(product(build, (512, 256, 512)))
    assert is_packed(product(build, (600, 512, 256)))  # more rows are worth a copy
    assert is_packed(product(build, (64, 1024, 128)))  # a page apart
    assert is_packed(product(build, (64, 768, 1024)))  # 3 MB
    assert is_packed(product(build, (64, 512, 256), "NT"))


def test_a_last_panel_repeats_columns_where_turning_them_would_cost_more(build):
    for columns in (15, 14):  # less than one panel
        assert not is_packed(product(build, (600, columns, 64), "NT"))
    cases = [(columns, 64, columns != 17) for columns in (1000, 300, 100, 40, 24, 17)]
    # Vectors along the depth come out nearly even, or leave an end.
    cases += [(100, 500, False), (100, 784, False), (84, 120, True), (300, 300, True)]
    for columns, depth, packed in cases:
        sizes = (600, columns, depth)
        assert is_packed(product(build, sizes, "NT")) is packed
        # What lies as it is wanted is read as it lies.
        assert not is_packed(product(build, sizes, "NN"))
    i, j, t = (build.range(size, number) for number, size in enumerate((64, 300, 64)))
    left, right = build.param(1, 64 * 64), build.param(2, 300 * 64)
    total = build.reduce(Op.ADD, build.load(left, i * 64 + t) * build.load(right, j * 64 + t), t)
    out = build.param(0, 64 * 300)
    assert is_packed(build.sink(build.store(out, i * 300 + j, total)))
    # What is added to may not be added to twice.
    again = build.store(out, i * 300 + j, total + build.load(out, i * 300 + j))
    assert not is_packed(build.sink(again))


def test_an_output_of_repeated_columns_shares_its_memory_with_nothing(build):
    """Plans refuse it: the second time an operand would be read that the first has written to."""
    target = LLVMRenderer(DeviceSpec.avx512())
    for sizes, scratch_outputs in (((64, 300, 64), [0]), ((64, 304, 64), []), ((16, 300, 64), [])):
        assert target.render(product(build, sizes, "NT")).scratch_outputs == scratch_outputs


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    "sizes",
    [(64, 300, 64), (33, 100, 17), (40, 31, 65), (100, 84, 120), (257, 1000, 50), (64, 15, 2)],
    ids=str,
)
def test_products_whose_columns_fill_no_panels(run, build, rng, sizes, kind):
    truth, a, b = operands(rng, sizes, "NT", kind)
    out = np.full(truth.shape, np.nan, kind)
    run(product(build, sizes, "NT", getattr(dt, kind)), [out, a, b])
    tolerance = {"float32": 1e-4, "float64": 1e-12, "float16": 0.06}[kind]
    np.testing.assert_allclose(out, truth, rtol=tolerance, atol=tolerance * sizes[2] ** 0.5)


def converted(build, sizes, dtype, function, layout="NN"):
    """A product of what `function` makes of its right operand."""
    m, n, k = sizes
    i, j, t = (build.range(size, number) for number, size in enumerate(sizes))
    left = build.load(build.param(1, m * k), i * k + t)
    right = build.load(build.param(2, k * n, dtype), j * k + t if layout == "NT" else t * n + j)
    total = build.reduce(Op.ADD, left * function(right), t)
    return build.sink(build.store(build.param(0, m * n), i * n + j, total))


def test_what_is_converted_is_packed_for_many_rows(build):
    """A copy in the first cache spares each tile of rows the conversion."""
    for rows, packed in ((2000, True), (32, False)):
        sizes = (rows, 64, 16)
        for dtype in (dt.bfloat16, dt.float16):
            assert is_packed(product(build, sizes, dtype=dtype)) is packed
            cast = converted(build, sizes, dtype, lambda x: x.cast(dt.float32))
            assert is_packed(cast) is packed
        assert not is_packed(product(build, sizes))
    assert is_packed(converted(build, (64, 64, 16), dt.float32, lambda x: x.alu(Op.EXP)))


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_panels_hold_what_is_multiplied(run, build, rng, kind, layout):
    sizes = m, n, k = (400, 64, 50)
    ast = converted(build, sizes, getattr(dt, kind),
                    lambda x: x.cast(dt.float32) * 0.5 + 1.0, layout)  # fmt: skip
    assert is_packed(ast)
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = (rng.standard_normal((k, n)) * 20).astype(kind)
    out = np.full((m, n), np.nan, np.float32)
    run(ast, [out, a, np.ascontiguousarray(b.T if layout == "NT" else b)])
    truth = a.astype(np.float64) @ (b.astype(np.float64) * 0.5 + 1.0)
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("sizes", "layout", "turned"),
    [
        ((64, 4, 1024), "NN", True),
        ((4096, 10, 784), "NN", True),
        # One column, and a whole vector of them.
        ((64, 1, 1024), "NN", False),
        ((64, 16, 1024), "NN", False),
        # Its rows lie along the depth already; those of the other operand do not.
        ((64, 4, 1024), "NT", False),
        ((64, 4, 1024), "TN", False),
        # Too little that the copy spares; a depth of less than two vectors; no memory.
        ((32, 2, 1024), "NN", False),
        ((31, 15, 1024), "NN", False),
        ((64, 4, 31), "NN", False),
        ((64, 4, 1 << 20), "NN", False),
    ],
    ids=str,
)
def test_rows_shorter_than_a_vector_are_turned(build, sizes, layout, turned):
    ast = product(build, sizes, layout)
    assert is_packed(ast) is turned
    if turned:
        text = LLVMRenderer(DeviceSpec.avx512()).outline(ast)
        assert f"local0 = float32[{sizes[1] * sizes[2]}]" in text


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int8", "int64"])
@pytest.mark.parametrize(
    "sizes", [(64, 4, 1024), (129, 3, 33), (47, 15, 65), (513, 2, 255), (64, 7, 512)], ids=str
)
def test_products_of_few_columns(run, build, rng, sizes, kind):
    m, n, k = sizes
    a, b = ((rng.standard_normal(shape) * 9).astype(kind) for shape in ((m, k), (k, n)))
    out = np.full((m, n), 99, kind)
    run(product(build, sizes, dtype=getattr(dt, kind)), [out, a, b])
    if np.issubdtype(kind, np.integer):
        np.testing.assert_array_equal(out, a @ b)
        return
    truth, terms = a.astype(np.float64) @ b.astype(np.float64), np.abs(a) @ np.abs(b)
    assert (np.abs(out - truth) <= 4 * np.finfo(kind).eps * terms.astype(np.float64) + 1e-6).all()


@pytest.mark.parametrize(
    ("tiles", "count", "chunks"),
    [(196, 3, 4), (196, 4, 4), (5, 4, 5), (6, 3, 3), (7, 3, 4), (2, 3, 2), (100, 9, 9), (64, 8, 8)],
)
def test_two_cores_are_done_soonest(tiles, count, chunks):
    def longest(share):
        return -(-len(range(0, tiles, share)) // 2) * share

    share = _share(tiles, count)
    assert len(range(0, tiles, share)) == chunks
    if count < FEW:
        assert longest(share) <= longest(-(-tiles // count))


def test_panels_are_not_filled_three_times(build):
    program = LLVMRenderer(DeviceSpec.avx512()).render(product(build, (784, 128, 128), "NT"))
    assert program.global_size[0] == 4


def test_what_is_turned_may_be_computed(run, build, rng):
    m, n, k = sizes = (64, 5, 96)
    ast = converted(build, sizes, dt.float32, lambda x: x.alu(Op.EXP))
    assert is_packed(ast)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    out = np.full((m, n), np.nan, np.float32)
    run(ast, [out, a, b])
    truth = a.astype(np.float64) @ np.exp(b, dtype=np.float64)
    np.testing.assert_allclose(out, truth, rtol=2e-5, atol=1e-4)


def test_a_transposed_panel_is_filled_by_blocks(build):
    ast = product(build, (400, 48, 32), "NT")
    text = LLVMRenderer(DeviceSpec.avx512()).outline(ast)
    fill = text[: text.index("local0[")]
    assert "for j in 32 by 16" in fill
    assert "for k in 16 by 16: vectors of 16" in fill
    source = LLVMRenderer(DeviceSpec.avx512()).render(ast).src
    # The sixteen rows of a block at once, no element alone.
    assert source[: source.index("store <16 x float>")].count("= load <16 x float>, ptr") >= 16
    assert "= load float, ptr" not in source[: source.index("store <16 x float>")]


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("sizes", [WIDE, TALL, (500, 256, 100)], ids=str)
def test_products(run, build, rng, sizes, layout):
    truth, a, b = operands(rng, sizes, layout)
    out = np.full(truth.shape, np.nan, np.float32)
    run(product(build, sizes, layout), [out, a, b])
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-4)


def test_the_order_of_the_sums_stays(run, run_anew, build, rng, monkeypatch):
    _, a, b = operands(rng, WIDE, "NN")
    ast = product(build, WIDE)
    out, plain = np.zeros(WIDE[:2], np.float32), np.zeros(WIDE[:2], np.float32)
    run(ast, [out, a, b])
    monkeypatch.setattr(renderer, "pack", lambda sink, _: sink)
    run_anew(ast, [plain, a, b])
    np.testing.assert_array_equal(out, plain)


@pytest.mark.parametrize(("dtype", "kind"), [(dt.float64, np.float64), (dt.float16, np.float16)])
def test_other_floats(run, build, rng, dtype, kind):
    sizes = (40, 2048, 64)
    truth, a, b = operands(rng, sizes, "NN", kind)
    ast = product(build, sizes, dtype=dtype)
    assert is_packed(ast)
    out = np.zeros(truth.shape, kind)
    run(ast, [out, a, b])
    loose = 1e-12 if kind is np.float64 else 2e-2
    np.testing.assert_allclose(out.astype(np.float64), truth, rtol=loose, atol=loose)


@pytest.mark.parametrize("rows", [0, 1, 15, 40])
def test_any_number_of_rows(run, build, rng, rows):
    truth, a, b = operands(rng, WIDE, "NN")
    out = np.full(truth.shape, np.nan, np.float32)
    ast = product(build, WIDE, rows=Variable("rows", 0, 40))
    assert is_packed(ast)
    run(ast, [out, a, b], rows=rows)
    np.testing.assert_allclose(out[:rows], truth[:rows], rtol=1e-4, atol=1e-4)
    assert np.isnan(out[rows:]).all()


def test_batches_and_an_epilogue(run, build, rng):
    count, (m, n, k) = 3, WIDE
    s, i, j, t = (build.range(size, number) for number, size in enumerate((count, m, n, k)))
    a, b = build.param(2, count * m * k), build.param(3, count * k * n)
    bias, other = build.param(4, n), build.param(5, count * m * n)
    terms = build.load(a, (s * m + i) * k + t) * build.load(b, (s * k + t) * n + j)
    at = (s * m + i) * n + j
    value = build.reduce(Op.ADD, terms, t) + build.load(bias, j)
    old = build.load(build.param(1, count * m * n), at)
    ast = build.sink(
        build.store(build.param(0, count * m * n), at, value.alu(Op.MAX, 0.0)),
        build.store(build.param(1, count * m * n), at, old * 0.5 + value * build.load(other, at)),
    )
    assert is_packed(ast)
    left, right = (rng.standard_normal(shape).astype(np.float32)
                   for shape in ((count, m, k), (count, k, n)))  # fmt: skip
    add = rng.standard_normal(n).astype(np.float32)
    kept, times = (rng.standard_normal((count, m, n)).astype(np.float32) for _ in range(2))
    out, before = np.zeros_like(kept), kept.copy()
    run(ast, [out, kept, left, right, add, times])
    truth = left.astype(np.float64) @ right + add
    np.testing.assert_allclose(out, np.maximum(truth, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(kept, before * 0.5 + truth * times, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
def test_sums_along_several_axes(run, build, rng, transposed):
    """As in the gradient of a weight whose inputs have two leading axes, and of a split one."""
    m, n, first, second = 40, 1024, 5, 24
    k = first * second
    i, j, s, t = (build.range(size, number) for number, size in enumerate((m, n, first, second)))
    a, b = build.param(1, k * m), build.param(2, 2 * k * n)
    at = (s * n + j) * second + t if transposed else (s * 2 * second + t) * n + j
    terms = build.load(a, (s * second + t) * m + i) * build.load(b, at)
    ast = build.sink(
        build.store(build.param(0, m * n), i * n + j, build.reduce(Op.ADD, terms, s, t))
    )
    assert is_packed(ast)
    left = rng.standard_normal((first, second, m)).astype(np.float32)
    right = rng.standard_normal(2 * k * n).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    run(ast, [out, left, right])
    if transposed:
        taken = right[: k * n].reshape(first, n, second).transpose(0, 2, 1)
    else:
        taken = right.reshape(first, 2, second, n)[:, 0]
    truth = np.einsum("stm,stn->mn", left.astype(np.float64), taken.astype(np.float64))
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-4)


def test_checked_rows_are_left_where_they_are(build):
    i, j, t = (build.range(size, number) for number, size in enumerate(WIDE))
    m, n, k = WIDE
    row = UOp(
        Op.BOUND, dt.int64,
        (build.load(build.param(3, k, dt.int64), t), const(k, dt.int64),
         build.param(4, 1, dt.int64)),
        (0, False),
    )  # fmt: skip
    terms = build.load(build.param(1, m * k), i * k + t) * build.load(
        build.param(2, k * n), row * n + j
    )
    total = build.reduce(Op.ADD, terms, t)
    assert not is_packed(build.sink(build.store(build.param(0, m * n), i * n + j, total)))


def test_rows_that_are_not_copied_may_be_checked(run, build, rng):
    """Indices that the copied operand reads, too: none from past their end, none twice checked."""
    m, n, k = WIDE
    i, j, t = (build.range(size, number) for number, size in enumerate(WIDE))
    lines, rows = build.load(build.param(3, m, dt.int64), i), build.load(
        build.param(5, k, dt.int64), t
    )  # fmt: skip
    line = UOp(Op.BOUND, dt.int64, (lines, const(m, dt.int64), build.param(4, 1, dt.int64)),
               (0, False))  # fmt: skip
    terms = build.load(build.param(1, m * k), line * k + t) * build.load(
        build.param(2, k * n), rows * n + j
    )
    total = build.reduce(Op.ADD, terms, t)
    ast = build.sink(build.store(build.param(0, m * n), i * n + j, total))
    _, a, b = operands(rng, WIDE, "NN")
    out, status = np.zeros((m, n), np.float32), np.zeros(1, np.int64)
    lines, rows = rng.integers(0, m, m), rng.integers(0, k, k)
    run(ast, [out, a, b, lines, status, rows])
    np.testing.assert_allclose(out, a[lines] @ b[rows], rtol=1e-4, atol=1e-4)
    assert status[0] == 0


def far_apart(build, steps, sizes, dtype):
    """A product of which the rows of the right operand lie so many elements apart."""
    m, n = 40, 64
    i, j, *depth = (build.range(size, number) for number, size in enumerate((m, n, *sizes)))
    row = sum((r * step for r, step in zip(depth, steps, strict=True)), const(0, dt.int64))
    last = sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    place = depth[0]
    for r, size in zip(depth[1:], sizes[1:], strict=True):
        place = place * size + r
    left = build.load(build.param(1, m * math.prod(sizes), dtype), i * math.prod(sizes) + place)
    right = build.load(build.param(2, last + n, dtype), row + j)
    total = build.reduce(Op.ADD, left * right, *depth)
    return build.sink(build.store(build.param(0, m * n, dtype), i * n + j, total))


@pytest.mark.parametrize(
    ("steps", "sizes"),
    [((1024,), (64,)), ((1032,), (64,)), ((64,), (64,)), ((5120, 64), (8, 8)),
     ((4096, 1024), (5, 13)), ((4112, 1040), (5, 13)), ((3, 1031), (7, 40)), ((8192,), (33,))],
    ids=str,
)  # fmt: skip
def test_places_are_those_at_which_rows_begin(build, steps, sizes):
    info = Analysis(far_apart(build, steps, sizes, dt.float32))
    found = contraction(info)
    rows = np.zeros(1, np.int64)
    for step, size in zip(steps, sizes, strict=True):
        rows = (rows[:, None] + 4 * step * np.arange(size)).ravel()
    assert _cache_sets(found, steps) == len(np.unique(rows % WAY // LINE))


def test_rows_at_odd_distances_are_as_quick_to_count(build):
    ast = far_apart(build, (4097, 1025), (4096, 4096), dt.bfloat16)
    near = far_apart(build, (4096, 1024), (4096, 4096), dt.bfloat16)
    assert lines_run(lambda: is_packed(ast)) < 2 * lines_run(lambda: is_packed(near))


@pytest.mark.parametrize("sizes", [(1024, 1024, 256), (4096, 64, 512)], ids=str)
def test_chunks_do_not_fill_for_nothing(build, sizes):
    ast = product(build, sizes)
    assert is_packed(ast)
    assert LLVMRenderer(host()).render(ast).global_size[0] >= 8


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_every_target_compiles_them(build, target, layout):
    spec = TARGETS[target]()
    ast = product(build, (400, 1024, 64), layout)
    assert is_packed(ast, spec)
    assert "ret" in assembly(ast, spec)
