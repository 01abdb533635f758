"""Sums of products of narrow integers, several to a word: values, and when it is done."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from support.assembly import assembly, count, inner_loop
from support.work import lines_run

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import TARGETS, DeviceSpec, host
from kernelrt.errors import CompileError
from kernelrt.ir import Op, UOp, Variable, const, toposort
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.ops import HALVES, Parts
from kernelrt.loops.passes.packed_dot import MANY_ROWS, ROWS, SIDES, in_words
from tests.codegen.conftest import RUNNABLE, runner, runner_on

VNNI = replace(DeviceSpec.avx512(), features=f"{DeviceSpec.avx512().features},+avx512vnni")
SHORT = replace(DeviceSpec.avx2(), features=f"{DeviceSpec.avx2().features},+avxvnni")
ALL = {"vnni": VNNI, "avxvnni": SHORT, **{name: make() for name, make in TARGETS.items()}}
KINDS = ["int8", "uint8", "int16"]
#: For bytes of which one is flipped, for others, and for halves.
PAIRS = [("int8", "int8"), ("uint8", "int8"), ("int16", "int16")]
BYTES = [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")]
LAYOUTS = ["NN", "NT", "TN", "TT"]
READS = [HALVES, *(Parts(4, x, y) for x in (True, False) for y in (True, False))]


def product(build, sizes, layout="NN", kinds=("int8", "int8"), total="int32", rows=None):
    m, n, k = sizes
    left, right, dtype = (getattr(dt, name) for name in (*kinds, total))
    i, j, t = (build.range(size, number) for number, size in enumerate((rows or m, n, k)))
    a, b = build.param(1, m * k, left), build.param(2, k * n, right)
    x = build.load(a, t * m + i if layout[0] == "T" else i * k + t).cast(dtype)
    y = build.load(b, j * k + t if layout[1] == "T" else t * n + j).cast(dtype)
    value = build.reduce(Op.ADD, x * y, t)
    return build.sink(build.store(build.param(0, m * n, dtype), i * n + j, value))


def drawn(rng, kind, shape):
    """Numbers of which a third are the least, and a third the greatest."""
    info = np.iinfo(kind)
    some = rng.integers(info.min, info.max + 1, shape)
    return np.choose(rng.integers(0, 3, shape), [some, info.min, info.max]).astype(kind)


def operands(rng, sizes, layout="NN", kinds=("int8", "int8"), total="int32"):
    """The product as C wraps it, and both operands as they are laid out."""
    m, n, k = sizes
    a, b = drawn(rng, kinds[0], (m, k)), drawn(rng, kinds[1], (k, n))
    laid = (a.T if layout[0] == "T" else a, b.T if layout[1] == "T" else b)
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(total), *map(np.ascontiguousarray, laid)


def form(ast, target=VNNI):
    """How the DOTs of the kernel read words; None if it has no DOTs."""
    written = in_words(ast, target)
    verify_kernel(written)
    found = {u.arg for u in toposort([written]) if u.op is Op.DOT}
    assert len(found) < 2
    return found.pop() if found else None


def parts(ast, target=VNNI):
    """The numbers in a word of the DOTs of the kernel: 4, 2, or None."""
    found = form(ast, target)
    return found and found.number


def copies(ast, target=VNNI):
    return sum(u.op is Op.LOCAL for u in toposort([in_words(ast, target)]))


@pytest.fixture(scope="module", params=RUNNABLE)
def run_on(request):
    """Runners for this process and for named targets, which may have less."""
    return runner_on(request.param)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kinds", [*itertools.product(KINDS, KINDS)], ids=str)
def test_products_of_extreme_numbers(run_on, build, rng, kinds, layout):
    for sizes in ((48, 32, 64), (33, 20, 21)):
        truth, a, b = operands(rng, sizes, layout, kinds)
        out = np.full(truth.shape, -7, truth.dtype)
        run_on(product(build, sizes, layout, kinds), [out, a, b])
        np.testing.assert_array_equal(out, truth)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_the_least_and_the_greatest(run_on, build, kind):
    """The greatest sums of all pairs, which wrap for int16."""
    m, n, k = sizes = (16, 16, 40)
    for x, y in itertools.product((np.iinfo(kind).min, np.iinfo(kind).max), repeat=2):
        a, b, out = np.full((m, k), x, kind), np.full((k, n), y, kind), np.zeros((m, n), np.int32)
        run_on(product(build, sizes, kinds=(kind, kind)), [out, a, b])
        assert (out == np.int64(k * int(x) * int(y)).astype(np.int32)).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kinds", PAIRS, ids=str)
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 40, 64), (3, 17, 31), (ROWS - 1, 33, 18), (ROWS, 16, 16), (MANY_ROWS, 33, 18),
        (40, 1, 40), (40, 40, 1), (40, 40, 3), (17, 130, 65), (131, 129, 127), (200, 64, 1030),
    ],
    ids=str,
)  # fmt: skip
def test_odd_sizes(run, build, rng, sizes, kinds, layout):
    truth, a, b = operands(rng, sizes, layout, kinds)
    out = np.full(truth.shape, -7, truth.dtype)
    run(product(build, sizes, layout, kinds), [out, a, b])
    np.testing.assert_array_equal(out, truth)


@pytest.mark.parametrize("total", ["int8", "int16", "uint16", "uint32"])
@pytest.mark.parametrize("kinds", BYTES, ids=str)
def test_sums_in_other_types_wrap_to_these(run, build, rng, kinds, total):
    sizes = (32, 48, 50)
    truth, a, b = operands(rng, sizes, kinds=kinds, total=total)
    out = np.zeros(truth.shape, total)
    ast = product(build, sizes, kinds=kinds, total=total)
    assert parts(ast) == 4
    run(ast, [out, a, b])
    np.testing.assert_array_equal(out, truth)


@pytest.mark.parametrize("total", ["int64", "uint64", "float32"])
def test_wider_sums_are_no_products_of_words(run, build, rng, total):
    sizes = (32, 48, 50)
    truth, a, b = operands(rng, sizes, total=total)
    out = np.zeros(truth.shape, total)
    ast = product(build, sizes, total=total)
    assert parts(ast) is None
    run(ast, [out, a, b])
    np.testing.assert_array_equal(out, truth)


def test_what_is_multiplied_in_words(build):
    sizes = (64, 64, 64)
    quads, pairs = ("int8", "uint8"), ("int8", "int16")
    assert parts(product(build, sizes, kinds=quads)) == 4
    assert parts(product(build, sizes, kinds=quads), SHORT) == 4
    assert parts(product(build, sizes, kinds=quads), DeviceSpec.avx512()) == 2
    assert parts(product(build, sizes, kinds=quads), DeviceSpec.generic()) == 2
    assert parts(product(build, sizes, kinds=quads), DeviceSpec.neon()) is None
    reads = form(product(build, sizes, kinds=quads), DeviceSpec.neon_i8mm())
    assert reads == Parts(4, False, True)
    # The bytes of the first operand are flipped.
    reads = form(product(build, sizes, kinds=quads), DeviceSpec.neon_dot())
    assert reads == Parts(4, False, False)
    for kind, signed in (("int8", True), ("uint8", False)):
        for spec in (DeviceSpec.neon_dot(), DeviceSpec.neon_i8mm()):
            reads = form(product(build, sizes, kinds=(kind, kind)), spec)
            assert reads == Parts(4, signed, signed)
    assert parts(product(build, sizes, kinds=pairs), DeviceSpec.neon_i8mm()) is None
    assert parts(product(build, sizes, kinds=pairs)) == 2
    # The halves of a word are signed.
    assert parts(product(build, sizes, kinds=("uint16", "int8"))) is None
    assert parts(product(build, sizes, kinds=("int32", "int32"))) is None
    assert parts(product(build, sizes, kinds=("bool_", "int8"))) is None
    # There is no block of rows of which nobody knows how many there are.
    assert parts(product(build, sizes, rows=Variable("rows", 1, 64))) is None
    # Few rows are worth no copies: where words do not lie side by side they are not made.
    assert parts(product(build, (ROWS - 1, 64, 64), "NN")) is None
    assert parts(product(build, (ROWS - 1, 64, 64), "NT")) == 4
    assert parts(product(build, (ROWS - 1, 64, 64), "TT")) is None


def test_casts_that_change_numbers_stay(run, build, rng):
    """Numbers that wrap on the way are others than those that are stored."""
    m, n, k = sizes = (32, 32, 32)
    i, j, t = (build.range(size, number) for number, size in enumerate(sizes))
    a, b = build.param(1, m * k, dt.int16), build.param(2, k * n, dt.int8)
    x = build.load(a, i * k + t).cast(dt.int8).cast(dt.int32)
    y = build.load(b, t * n + j).cast(dt.uint8).cast(dt.int32)
    value = build.reduce(Op.ADD, x * y, t)
    ast = build.sink(build.store(build.param(0, m * n, dt.int32), i * n + j, value))
    assert parts(ast) is None
    left, right = drawn(rng, "int16", (m, k)), drawn(rng, "int8", (k, n))
    out = np.zeros((m, n), np.int32)
    run(ast, [out, left, right])
    truth = left.astype(np.int8).astype(np.int64) @ right.astype(np.uint8).astype(np.int64)
    np.testing.assert_array_equal(out, truth)


def test_what_is_copied(build):
    sizes = (64, 64, 64)
    # Words of the columns, those of the rows with bits flipped, and what that adds to each column.
    assert copies(product(build, sizes, "NT")) == 3
    assert copies(product(build, sizes, "NT", ("uint8", "int8"))) == 1
    assert copies(product(build, sizes, "TN", ("uint8", "int8"))) == 2
    # And words of what is left of the depth.
    assert copies(product(build, (64, 64, 63), "NT")) == 5
    assert copies(product(build, (MANY_ROWS - 1, 64, 64), "NT")) == 0


def test_batches_and_an_epilogue(run, build, rng):
    count, m, n, k = 3, 40, 50, 30
    s, i, j, t = (build.range(size, number) for number, size in enumerate((count, m, n, k)))
    a, b = build.param(1, count * m * k, dt.int8), build.param(2, count * k * n, dt.int8)
    scale = build.load(build.param(3, n), j)
    x = build.load(a, (s * m + i) * k + t).cast(dt.int32)
    y = build.load(b, (s * k + t) * n + j).cast(dt.int32)
    value = build.reduce(Op.ADD, x * y, t).cast(dt.float32) * scale
    ast = build.sink(build.store(build.param(0, count * m * n), (s * m + i) * n + j, value))
    assert parts(ast) == 4
    left, right = drawn(rng, "int8", (count, m, k)), drawn(rng, "int8", (count, k, n))
    scales = rng.standard_normal(n).astype(np.float32)
    out = np.zeros((count, m, n), np.float32)
    run(ast, [out, left, right, scales])
    truth = left.astype(np.int64) @ right.astype(np.int64)
    np.testing.assert_array_equal(out, truth.astype(np.float32) * scales)


@pytest.mark.parametrize("sizes", [(131, 129, 40), (128, 128, 40)], ids=str)
def test_results_that_replace_what_is_read_are_computed_once(run, build, rng, sizes):
    """Blocks that repeat some results would add to them twice."""
    m, n, k = sizes
    i, j, t = (build.range(size, number) for number, size in enumerate(sizes))
    a, b = build.param(1, m * k, dt.int8), build.param(2, k * n, dt.int8)
    out, at = build.param(0, m * n, dt.int32), i * n + j
    x, y = build.load(a, i * k + t).cast(dt.int32), build.load(b, t * n + j).cast(dt.int32)
    ast = build.sink(
        build.store(out, at, build.load(out, at) * 3 + build.reduce(Op.ADD, x * y, t))
    )
    assert parts(ast) == (4 if m % 2 == 0 else None)
    truth, left, right = operands(rng, sizes)
    kept = drawn(rng, "int16", (m, n)).astype(np.int32)
    found = kept.copy()
    run(ast, [found, left, right])
    np.testing.assert_array_equal(found, kept * 3 + truth)


@pytest.mark.parametrize("taps", [3, 4])
def test_sums_along_several_axes(run, build, rng, taps):
    """As in a convolution: of the axes the one goes along words that words divide."""
    m, n, channels = 40, 36, 10
    i, j, s, t = (build.range(size, number) for number, size in enumerate((m, n, channels, taps)))
    width = m + taps - 1
    a, b = build.param(1, channels * width, dt.uint8), build.param(2, n * channels * taps, dt.int8)
    x = build.load(a, s * width + i + t).cast(dt.int32)
    y = build.load(b, (j * channels + s) * taps + t).cast(dt.int32)
    value = build.reduce(Op.ADD, x * y, s, t)
    ast = build.sink(build.store(build.param(0, m * n, dt.int32), i * n + j, value))
    assert parts(ast) == 4
    left, right = drawn(rng, "uint8", (channels, width)), drawn(rng, "int8", (n, channels, taps))
    out = np.zeros((m, n), np.int32)
    run(ast, [out, left, right])
    seen = np.lib.stride_tricks.sliding_window_view(left, taps, 1).astype(np.int64)
    np.testing.assert_array_equal(out, np.einsum("smt,nst->mn", seen, right.astype(np.int64)))


@pytest.mark.parametrize("only", [201, 7])
@pytest.mark.parametrize("of_left", [True, False])
def test_axes_that_one_operand_alone_varies_along(run, build, rng, only, of_left):
    """Such a RANGE of the depth is no row, however long it is."""
    m, n, taps = 40, 36, 8
    i, j, s, t = (build.range(size, number) for number, size in enumerate((m, n, only, taps)))
    a, b = build.param(1, m * only * taps, dt.uint8), build.param(2, n * only * taps, dt.int8)
    x = build.load(a, (t * only + s) * m + i if of_left else t * m + i).cast(dt.int32)
    y = build.load(b, t * n + j if of_left else (t * only + s) * n + j).cast(dt.int32)
    ast = build.sink(build.store(
        build.param(0, m * n, dt.int32), i * n + j, build.reduce(Op.ADD, x * y, s, t)))  # fmt: skip
    left = drawn(rng, "uint8", (taps, only if of_left else 1, m))
    right = drawn(rng, "int8", (taps, 1 if of_left else only, n))
    out = np.zeros((m, n), np.int32)
    run(ast, [out, left, right])
    sums = [np.broadcast_to(g.astype(np.int64), (taps, only, g.shape[-1])) for g in (left, right)]
    np.testing.assert_array_equal(out, np.einsum("tsm,tsn->mn", *sums))


def looked_up(build, place, *, checked):
    """A number of memory of its own for each place, below 40, checked or not."""
    found = build.load(build.param(3, place.src[0].arg, dt.uint8), place).cast(dt.int64)
    if not checked:
        return found
    sources = (found, const(40, dt.int64), build.param(4, 1, dt.int64))
    return UOp(Op.BOUND, dt.int64, sources, (0, False))


@pytest.mark.parametrize("total", ["int32", "int8"])
def test_checked_and_masked_rows_are_left_where_they_are(build, total):
    """Copies are filled whole: nothing in them may fail, or be left out."""
    n = 40
    i, j, t = (build.range(n, number) for number in range(3))
    a, b, c = build.param(1, n * n, dt.int8), build.param(2, n * n, dt.int8), getattr(dt, total)
    row, line = (looked_up(build, place, checked=True) for place in (t, i))
    x, y = build.load(a, i * n + t), build.load(b, t * n + j)
    pairs = [
        (x, build.load(b, row * n + j)), (x, build.load(b, t * n + j, t < 30)),
        (build.load(a, i * n + row), y), (build.load(a, i * n + t, t < 30), y),
        (build.load(a, line * n + t), y),
    ]  # fmt: skip
    for left, right in pairs:
        value = build.reduce(Op.ADD, left.cast(c) * right.cast(c), t)
        ast = build.sink(build.store(build.param(0, n * n, c), i * n + j, value))
        assert parts(ast) is None


def test_rows_that_are_read_in_place_may_be_checked(run, build, rng):
    n = 40
    i, j, t = (build.range(n, number) for number in range(3))
    a, b = build.param(1, n * n, dt.int16), build.param(2, n * n, dt.int16)
    x = build.load(a, looked_up(build, i, checked=True) * n + t)
    value = build.reduce(Op.ADD, x * build.load(b, t * n + j), t)
    ast = build.sink(build.store(build.param(0, n * n, dt.int16), i * n + j, value))
    assert parts(ast) == 2
    left, right = (drawn(rng, "int16", (n, n)) for _ in range(2))
    numbers, status = rng.integers(0, n, n).astype(np.uint8), np.zeros(1, np.int64)
    out = np.zeros((n, n), np.int16)
    run(ast, [out, left, right, numbers, status])
    truth = left[numbers].astype(np.int64) @ right.astype(np.int64)
    np.testing.assert_array_equal(out, truth.astype(np.int16))
    assert status[0] == 0


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("taps", [4, 6])
@pytest.mark.parametrize("along", ["depth", "result"])
def test_indices_are_read_where_there_are_some(run, build, rng, side, taps, along):
    """Words that are filled up past the depth would read indices from past their end."""
    m, n, channels, far = 40, 48, 5, 40
    i, j, s, t = (build.range(size, number) for number, size in enumerate((m, n, channels, taps)))
    own = i if side == "left" else j
    place = t if along == "depth" else own
    number = looked_up(build, place, checked=False)
    first, last = (own, number) if along == "depth" else (number, t)
    size = 64 * channels * far
    given, other = build.param(1, size, dt.int8), build.param(2, channels * taps * n, dt.int8)
    x = build.load(given, (first * channels + s) * far + last)
    y = build.load(other, (s * taps + t) * n + (j if side == "left" else i))
    value = build.reduce(Op.ADD, x * y, s, t)
    ast = build.sink(build.store(build.param(0, m * n, dt.int8), i * n + j, value))
    assert parts(ast) == (None if along == "depth" and taps == 6 else 4)
    indices = [u for u in toposort([in_words(ast, VNNI)])
               if u.op is Op.LOAD and u.src[0].arg == (3, place.src[0].arg)]  # fmt: skip
    assert all(u.src[1].vmin >= 0 and u.src[1].vmax < place.src[0].arg for u in indices)
    table, weights = (drawn(rng, "int8", shape)
                      for shape in ((64, channels, far), (channels, taps, n)))  # fmt: skip
    numbers = rng.integers(0, 40, place.src[0].arg).astype(np.uint8)
    chosen = table[:, :, numbers] if along == "depth" else table[numbers, :, :taps]
    out, sizes = np.zeros((m, n), np.int8), (m if side == "left" else n, n if side == "left" else m)
    run(ast, [out, table, weights, numbers])
    sums = np.einsum(
        "ist,stj->ij", chosen[: sizes[0]].astype(np.int64), weights[:, :, : sizes[1]]
    ).astype(np.int8)
    np.testing.assert_array_equal(out, sums if side == "left" else sums.T)


def test_any_number_of_rows_is_as_quick_to_write(build):
    """Blocks are not searched for among as many as there are rows."""
    few, many = (product(build, (rows, 64, 64)) for rows in (10**3, 10**7))
    assert parts(many) == 4
    assert lines_run(lambda: parts(many)) < 2 * lines_run(lambda: parts(few))


@pytest.mark.parametrize("rows", [12, 13, 127, 128, 129, 1000, 1537])
def test_rows_are_shared_by_blocks_of_equal_size(build, rows):
    """The fewest blocks that there is memory for, of as few rows as these can do with."""
    blocks = -(-rows // SIDES[1])
    height = -(-rows // blocks)
    written = in_words(product(build, (rows, 64, 64)), VNNI)
    extents = {u.src[0].arg for u in toposort([written]) if u.op is Op.RANGE}
    assert height in extents


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("kinds", PAIRS, ids=str)
def test_as_many_blocks_as_rows(run, build, rng, kinds, layout):
    """The loop over blocks takes the place of another one, which may be as long."""
    sizes = (32, 32 * SIDES[0], 32)
    truth, a, b = operands(rng, sizes, layout, kinds)
    out = np.full(truth.shape, -7, truth.dtype)
    run(product(build, sizes, layout, kinds), [out, a, b])
    np.testing.assert_array_equal(out, truth)


@pytest.mark.parametrize("sizes", [(0, 40, 40), (40, 0, 40), (40, 40, 0)], ids=str)
def test_nothing(run, build, rng, sizes):
    truth, a, b = operands(rng, sizes)
    out = np.full(truth.shape, -7, np.int32)
    run(product(build, sizes), [out, a, b])
    np.testing.assert_array_equal(out, truth)


def test_long_depths(run, build, rng):
    for sizes in ((32, 48, 8192), (MANY_ROWS, 40, 30_000)):
        truth, a, b = operands(rng, sizes)
        out = np.zeros(truth.shape, np.int32)
        run(product(build, sizes), [out, a, b])
        np.testing.assert_array_equal(out, truth)


@pytest.mark.parametrize("kinds", [("int8", "int8"), ("int16", "int16")], ids=str)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("target", ALL)
def test_every_target_compiles_them(build, target, layout, kinds):
    spec = ALL[target]
    for sizes in ((128, 1024, 64), (131, 257, 67), (3, 64, 64)):
        assert "ret" in assembly(product(build, sizes, layout, kinds), spec)


@pytest.mark.parametrize(
    ("target", "kinds", "instruction"),
    [
        ("vnni", ("int8", "int8"), "vpdpbusd"),
        ("vnni", ("int16", "int16"), "vpdpwssd"),
        ("avxvnni", ("uint8", "int8"), "vpdpbusd"),
        ("x86-64-v4", ("int8", "int8"), "vpmaddwd"),
        ("x86-64-v3", ("int8", "int8"), "vpmaddwd"),
        ("x86-64", ("int16", "int16"), "pmaddwd"),
    ],
)
def test_the_inner_loop_is_of_dot_products(build, target, kinds, instruction):
    text = assembly(product(build, (128, 128, 128), kinds=kinds), ALL[target])
    inner = inner_loop(text, instruction)
    assert count(inner, instruction) >= 16
    assert not count(inner, "mm.*Spill")  # none of its sums waits on the stack


def test_blocks_are_shared_by_cores(build):
    for sizes in ((1024, 1024, 256), (4096, 64, 512), (1000, 1000, 1000)):
        assert LLVMRenderer(VNNI).render(product(build, sizes)).global_size[0] >= 8


@pytest.mark.parametrize(
    ("sizes", "columns", "rows"),
    [
        # Wide where cores have enough such blocks, and no higher then than memory allows.
        ((1024, 1024, 1024), 128, 64),
        ((1024, 1023, 1024), 64, 128),
        ((1024, 512, 1024), 64, 128),
        ((65, 1024, 1024), 128, 33),
    ],
    ids=str,
)
def test_blocks_are_wide_where_there_are_many(build, sizes, columns, rows):
    m, n, _ = sizes
    loops = LLVMRenderer(VNNI).outline(product(build, sizes, "NT"))
    assert loops.startswith(f"for i in {-(-n // columns)}:")
    assert f"for w in {-(-m // rows)}:" in loops


@pytest.mark.parametrize("kinds", BYTES)
@pytest.mark.parametrize("sizes", [(70, 1024, 36), (64, 1040, 133)], ids=str)
def test_wide_blocks(run, build, rng, kinds, sizes):
    truth, a, b = operands(rng, sizes, "NT", kinds)
    out = np.full(truth.shape, 77, np.int32)
    run(product(build, sizes, "NT", kinds), [out, a, b])
    np.testing.assert_array_equal(out, truth)


def test_any_tile_can_be_written(build, rng):
    """Vectors that are longer than a register, as a variant may have them."""
    renderer = LLVMRenderer(host())
    sizes = (48, 64, 64)
    ast = product(build, sizes)
    truth, a, b = operands(rng, sizes)
    for variant in itertools.islice(renderer.variants(ast), 12):
        out = np.zeros(truth.shape, np.int32)
        runner(host(), variant.text)(ast, [out, a, b])
        np.testing.assert_array_equal(out, truth)


@pytest.mark.parametrize("parts", READS, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_a_dot_that_a_target_lacks_is_refused(target, parts, build):
    spec = TARGETS[target]()
    i, k = build.range(64, 0), build.range(32, 1)
    words = (build.load(build.param(slot, 64 * 32, dt.int32), i * 32 + k) for slot in (1, 2))
    value = build.reduce(Op.ADD, UOp(Op.DOT, dt.int32, tuple(words), parts), k)
    ast = build.sink(build.store(build.param(0, 64, dt.int32), i, value))
    verify_kernel(ast)
    if spec.has_dot(parts, dt.int32):
        assert "ret" in assembly(ast, spec)
    else:
        with pytest.raises(CompileError, match="has no dot-product instruction for Parts"):
            LLVMRenderer(spec).render(ast)


def test_dots_that_targets_have():
    kinds = (True, False)
    targets = {name: make() for name, make in TARGETS.items()} | {"vnni": VNNI, "avxvnni": SHORT}
    found = {
        target: [(x, y) for x in kinds for y in kinds if spec.has_dot(Parts(4, x, y), dt.int8)]
        for target, spec in targets.items()
    }
    mixed, alike = [(True, False), (False, True)], [(True, True), (False, False)]
    assert {target: forms for target, forms in found.items() if forms} == {
        "vnni": mixed, "avxvnni": mixed, "armv8.2-a": alike,
        "armv8.6-a": [(x, y) for x in kinds for y in kinds],
    }  # fmt: skip
