"""Contractions whose sums wait in an array: values, bits, and when it is done."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer, renderer
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.errors import CompileError, SpecError
from kernelrt.ir import Op, Variable, toposort
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.local import most_elements
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.loop_ir import Fetch, Loop, Pass
from kernelrt.loops.loop_ir import build as nest_of
from kernelrt.loops.passes.cache_blocking import block
from kernelrt.loops.reduction_order import order_of_sums
from kernelrt.loops.search_space import verify
from kernelrt.loops.tile_heuristic import MOST_BYTES
from kernelrt.loops.tiles import Tile, extent
from kernelrt.loops.tiling import Tiling
from kernelrt.loops.verify_loops import verify_loops
from tests.codegen.conftest import index_at, runner, walked

#: Caches so small that small operands leave them: what a kernel computes does not depend on it.
OWN = replace(host(), l1_bytes=32 << 10, l2_bytes=128 << 10)
#: The same with the tiles of the widest vectors, which any machine can run in parts.
SMALL = replace(OWN, vector_bits=512, vector_registers=32)
RENDERER = LLVMRenderer(SMALL)
#: Rows, columns and depth: a matrix that streams by, and two that are cut into blocks.
STREAM = (3, 1024, 70)
BLOCKS = (256, 128, 256)


@pytest.fixture(scope="module", params=[OWN, SMALL], ids=["own", "wide"])
def run_small(request):
    return runner(request.param)


def product(build, sizes, layout="NN", dtype=dt.float32, depth=None):
    m, n, k = sizes
    i, j, t = (build.range(size, number) for number, size in enumerate((m, n, depth or k)))
    a, b = build.param(1, m * k, dtype), build.param(2, k * n, dtype)
    left = build.load(a, t * m + i if layout[0] == "T" else i * k + t)
    right = build.load(b, j * k + t if layout[1] == "T" else t * n + j)
    total = build.reduce(Op.ADD, left * right, t)
    return build.sink(build.store(build.param(0, m * n, dtype), i * n + j, total))


def operands(rng, sizes, layout="NN", kind=np.float32):
    """The product in float64, and both operands as they are laid out."""
    m, n, k = sizes
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n)))
    laid = (a.T if layout[0] == "T" else a, b.T if layout[1] == "T" else b)
    return a.astype(np.float64) @ b.astype(np.float64), *map(np.ascontiguousarray, laid)


def arrays(ast, target=SMALL):
    """LOCALs that `ast` gets: one for sums, and one for each operand that is copied."""
    blocked = block(ast, target)
    verify_kernel(blocked)
    return sum(u.op is Op.LOCAL for u in toposort([blocked]))


@pytest.mark.parametrize(
    ("sizes", "layout", "count"),
    [
        (STREAM, "NN", 1),
        (STREAM, "TN", 1),
        # The rows of the matrix lie along the depth.
        (STREAM, "NT", 0),
        # Enough rows to read a matrix in place for; a matrix that stays in the cache.
        ((64, 1024, 70), "NN", 0),
        ((3, 1024, 20), "NN", 0),
        # No strip of whole vectors, and none that leaves enough of them.
        ((3, 1000, 70), "NN", 0),
        ((3, 512, 140), "NN", 0),
        (BLOCKS, "TN", 3),
        (BLOCKS, "TT", 3),
        (BLOCKS, "NN", 0),
        # Depths of one block less one, and without any part; sides without one.
        ((256, 128, 63), "TN", 0),
        ((256, 128, 257), "TN", 0),
        ((256, 120, 256), "TN", 0),
        ((256, 1, 256), "TN", 0),
    ],
    ids=str,
)
def test_what_is_blocked(build, sizes, layout, count):
    assert arrays(product(build, sizes, layout)) == count


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        # There is memory for two panels of the whole depth; for one; for none.
        ((64, 128, 2048), False),
        ((64, 128, 2112), True),
        ((64, 128, 8192), True),
        # Rows that 16 does not divide: one panel, or none at all.
        ((100, 128, 2112), False),
        ((100, 128, 8192), True),
        # The fewest rows that a copy serves, and fewer; no whole panels; no parts of the depth.
        ((32, 128, 2112), True),
        ((28, 128, 8192), False),
        ((64, 120, 2112), False),
        ((64, 128, 2113), False),
    ],
    ids=str,
)
def test_a_depth_too_long_for_panels_is_cut(build, sizes, blocks, layout):
    target = replace(SMALL, l2_bytes=1 << 20)
    assert arrays(product(build, sizes, layout), target) == (3 if blocks else 0)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("sizes", [(32, 128, 640), (36, 64, 525), (100, 192, 517), (48, 80, 1031),
                                   (1000, 128, 1028), (33, 131, 1030)], ids=str)  # fmt: skip
def test_long_depths(run_small, build, rng, sizes, layout):
    truth, a, b = operands(rng, sizes, layout)
    out = np.full(truth.shape, np.nan, np.float32)
    run_small(product(build, sizes, layout), [out, a, b])
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("sizes", [(128, 768, 3072), (100, 1024, 8192), (32, 4096, 4096)], ids=str)
def test_blocks_of_long_depths_are_short_text(build, sizes, layout):
    for target in (DeviceSpec.avx512(), replace(SMALL, l2_bytes=1 << 20)):
        ast = product(build, sizes, layout)
        assert arrays(ast, target) == 3
        assert len(LLVMRenderer(target).render(ast).src) < MOST_BYTES


def test_lines_that_do_not_meet_are_read_in_place(build):
    assert arrays(product(build, (272, 128, 256), "TN")) == 0
    assert arrays(product(build, (1024, 1024, 1024), "TN"), replace(SMALL, l2_bytes=8 << 20)) == 0


@pytest.mark.parametrize("layout", ["NN", "TN"])
@pytest.mark.parametrize("sizes", [(1, 1024, 33), (1, 1088, 64), (3, 1024, 37), (8, 1024, 35),
                                   (31, 1024, 33), (2, 4096, 131)], ids=str)  # fmt: skip
def test_a_matrix_that_streams_by(run_small, build, rng, sizes, layout):
    truth, a, b = operands(rng, sizes, layout)
    out = np.full(truth.shape, np.nan, np.float32)
    ast = product(build, sizes, layout)
    assert arrays(ast) == 1
    run_small(ast, [out, a, b])
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["TN", "TT"])
@pytest.mark.parametrize("sizes", [BLOCKS, (256, 128, 192), (512, 64, 130), (768, 192, 129)],
                         ids=str)  # fmt: skip
def test_blocks(run_small, build, rng, sizes, layout):
    truth, a, b = operands(rng, sizes, layout)
    out = np.full(truth.shape, np.nan, np.float32)
    run_small(product(build, sizes, layout), [out, a, b])
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(0, 1024, 70), (1, 1024, 1), (3, 1024, 0), (5, 4099, 67),
                                   (127, 128, 256), (257, 131, 256), (256, 128, 251)],
                         ids=str)  # fmt: skip
def test_degenerate_sizes(run_small, build, rng, sizes):
    truth, a, b = operands(rng, sizes, "TN")
    out = np.full(truth.shape, np.nan, np.float32)
    run_small(product(build, sizes, "TN"), [out, a, b])
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("sizes", "layout"), [(STREAM, "NN"), (BLOCKS, "TN"), (BLOCKS, "TT")])
@pytest.mark.parametrize(("dtype", "kind"), [(dt.float64, np.float64), (dt.float16, np.float16)])
def test_other_floats(build, rng, sizes, layout, dtype, kind):
    sizes = (sizes[0], sizes[1] * 2, sizes[2] * 2)
    truth, a, b = operands(rng, sizes, layout, kind)
    ast = product(build, sizes, layout, dtype=dtype)
    target = replace(SMALL, l2_bytes=(256 if dtype is dt.float64 else 96) << 10)
    assert arrays(ast, target) == (1 if sizes[0] < 32 else 3)
    out = np.zeros(truth.shape, kind)
    runner(target)(ast, [out, a, b])
    loose = 1e-12 if kind is np.float64 else 2e-2
    np.testing.assert_allclose(out.astype(np.float64), truth, rtol=loose, atol=loose * 10)


@pytest.mark.parametrize(("sizes", "layout"), [((1, 4096, 70), "NN"), (BLOCKS, "TN")])
def test_the_order_of_the_sums_stays(build, rng, monkeypatch, sizes, layout):
    _, a, b = operands(rng, sizes, layout)
    ast = product(build, sizes, layout)
    assert arrays(ast)
    out, plain = np.zeros(sizes[:2], np.float32), np.zeros(sizes[:2], np.float32)
    runner(SMALL)(ast, [out, a, b])
    monkeypatch.setattr(renderer, "block", lambda sink, _: sink)
    runner(SMALL)(ast, [plain, a, b])
    np.testing.assert_array_equal(out, plain)


FOLDS = {
    "sum": (Op.ADD, lambda x: x, lambda x: x.sum(0)),
    "squares": (Op.ADD, lambda x: x * x + 0.5, lambda x: (x * x + 0.5).sum(0)),
    "greatest": (Op.MAX, lambda x: x, lambda x: x.max(0)),
    "least": (Op.MIN, lambda x: x * 2.0, lambda x: (x * 2).min(0)),
}


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("sizes", [(65, 1024), (1026, 1088), (1031, 1024), (2, 4096)], ids=str)
def test_columns_of_a_matrix_that_streams_by(run_small, build, rng, sizes, fold):
    op, value, truth = FOLDS[fold]
    rows, columns = sizes
    i, j = build.range(columns, 0), build.range(rows, 1)
    x = build.load(build.param(1, rows * columns), j * columns + i)
    total = build.reduce(op, value(x), j)
    ast = build.sink(build.store(build.param(0, columns), i, total * 3.0))
    assert (arrays(ast) > 0) == (rows * columns * 4 > SMALL.l2_bytes)
    data = rng.standard_normal(sizes).astype(np.float32)
    data[0, 5] = data[-1, 300] = np.nan
    out = np.zeros(columns, np.float32)
    run_small(ast, [out, data])
    exact = truth(data.astype(np.float64)) * 3
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-4)


def test_zeros_keep_their_sign(run_small, build):
    m, n, k = STREAM
    a, b = np.zeros((m, k), np.float32), np.full((k, n), -1, np.float32)
    out = np.ones((m, n), np.float32)
    run_small(product(build, STREAM), [out, a, b])
    assert np.signbit(out).all()
    assert (out == 0).all()


def test_a_depth_known_at_run_time_is_left_alone(run_small, build, rng):
    truth, a, b = operands(rng, STREAM)
    ast = product(build, STREAM, depth=Variable("depth", 0, 70))
    assert arrays(ast) == 0
    out = np.zeros(truth.shape, np.float32)
    run_small(ast, [out, a, b], depth=70)
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-4)


def with_epilogue(build, sizes, count, left):
    """Batches of products; a bias, and memory that is updated in place from the result."""
    m, n, k = sizes
    s, i, j, t = (build.range(size, number) for number, size in enumerate((count, m, n, k)))
    a, b = build.param(2, count * m * k), build.param(3, count * k * n)
    bias, times = build.param(4, n), build.param(5, count * m * n)
    terms = build.load(a, left(s, i, t, m, k)) * build.load(b, (s * k + t) * n + j)
    at = (s * m + i) * n + j
    value = build.reduce(Op.ADD, terms, t) + build.load(bias, j)
    old = build.load(build.param(1, count * m * n), at)
    return build.sink(
        build.store(build.param(0, count * m * n), at, value.alu(Op.MAX, 0.0)),
        build.store(build.param(1, count * m * n), at, old * 0.5 + value * build.load(times, at)),
    )


@pytest.mark.parametrize(("sizes", "transposed"), [((3, 1024, 70), False), (BLOCKS, True)])
def test_batches_and_an_epilogue(run_small, build, rng, sizes, transposed):
    count, (m, n, k) = 3, sizes
    ast = with_epilogue(build, sizes, count, lambda s, i, t, m, k: (
        (s * k + t) * m + i if transposed else (s * m + i) * k + t
    ))  # fmt: skip
    assert arrays(ast)
    left, right = (rng.standard_normal(shape).astype(np.float32)
                   for shape in ((count, m, k), (count, k, n)))  # fmt: skip
    add = rng.standard_normal(n).astype(np.float32)
    kept, times = (rng.standard_normal((count, m, n)).astype(np.float32) for _ in range(2))
    out, before = np.zeros_like(kept), kept.copy()
    given = np.ascontiguousarray(left.swapaxes(1, 2)) if transposed else left
    run_small(ast, [out, kept, given, right, add, times])
    truth = left.astype(np.float64) @ right + add
    np.testing.assert_allclose(out, np.maximum(truth, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(kept, before * 0.5 + truth * times, rtol=1e-4, atol=1e-4)


def test_sums_along_two_axes(run_small, build, rng):
    m, n, first, second = 256, 128, 3, 256
    i, j, s, t = (build.range(size, number) for number, size in enumerate((m, n, first, second)))
    k = first * second
    a, b = build.param(1, k * m), build.param(2, k * n)
    terms = build.load(a, (s * second + t) * m + i) * build.load(b, (s * second + t) * n + j)
    total = build.reduce(Op.ADD, terms, s, t)
    ast = build.sink(build.store(build.param(0, m * n), i * n + j, total))
    assert arrays(ast) == 3
    truth, left, right = operands(rng, (m, n, k), "TN")
    out = np.zeros((m, n), np.float32)
    run_small(ast, [out, left, right])
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=1e-4)


# As data --------------------------------------------------------------------------------------


def blocked(build, sizes=BLOCKS, layout="TN"):
    """The loops of a product in blocks, and its tiling."""
    ast = product(build, sizes, layout)
    info = Analysis(block(ast, SMALL))
    return info, Tiling.parse(RENDERER.render(ast).variant, info)


def test_a_blocked_product_reads_as_one_would_write_it(build):
    lines = RENDERER.outline(product(build, (256, 128, 256), "TN")).splitlines()
    heads = [line.strip().split(" by ")[0].rstrip(":") for line in lines]
    assert heads[:4] == ["for i in 4: chunks of 1", "for j in 2", "local0 = float32[4096] of 0",
                         "for k in 4: reduce"]  # fmt: skip
    [update] = [line for line in lines if "+=" in line]
    assert update.strip().startswith("local0[")
    assert "local1[" in update
    assert "local2[" in update


def test_a_streaming_matrix_is_fetched_ahead(build):
    text = RENDERER.outline(product(build, STREAM))
    assert "for j in 70 by 4: reduce, p2 fetched 8 ahead" in text


@pytest.mark.cases(1 / 4)
def test_tiles_ask_for_the_lines_of_the_next_turn(build):
    # Of rows 2 and 4 kB apart, in matrices that the second cache does not hold.
    info, tiling = blocked(build, (512, 1024, 256))
    nest = nest_of(info, tiling, SMALL)
    verify_loops(nest, info)
    [kept] = [u for u in info.locals if tiling.keeps(u)]
    turn = kept.src[0].src[1]
    [fetch] = [x for x in walked(nest.body) if isinstance(x, Fetch) and x.later]
    tiles = [(r, tiling.tile(r).factor) for r in kept.src[1:]]
    starts = [
        dict(zip(kept.src[1:], at, strict=True))
        for at in itertools.product(*(range(0, extent(r), step) for r, step in tiles))
    ]
    blocks = dict.fromkeys(info.deps[kept], 1)
    for copy in {x.src[0] for x in info.loads(kept.src[0].src[0])}:
        [read] = info.loads(copy.src[0])
        own = [
            dict(zip(copy.src[1:], at, strict=True))
            for at in itertools.product(*(range(extent(r)) for r in copy.src[1:]))
        ]
        wanted = {index_at(read.src[1], {**blocks, turn: 3, **at}) // 16 for at in own}
        asked = [x for x in fetch.accesses if x.src[0] is read.src[0]]
        found = {
            index_at(x.src[1], {**blocks, turn: 2, **at}) // 16 for x in asked for at in starts
        }
        assert found == wanted
        assert len(asked) * len(starts) == len(wanted)  # each line once


@pytest.mark.parametrize(
    "sizes",
    [
        (256, 512, 256),  # rows that a processor follows by itself
        (2048, 32, 64),  # one turn, and matrices that the second cache holds
    ],
)
def test_what_comes_by_itself_is_not_asked_for(build, sizes):
    text = LLVMRenderer(replace(SMALL, l2_bytes=1 << 20)).outline(product(build, sizes, "TN"))
    assert "for later" not in text


@pytest.mark.parametrize("sizes", [(512, 1024, 256), (512, 1040, 512), (1024, 512, 128)])
def test_asking_ahead_changes_nothing(run_small, build, rng, sizes):
    truth, left, right = operands(rng, sizes, "TN")
    out = np.full(sizes[:2], np.nan, np.float32)
    run_small(product(build, sizes, "TN"), [out, left, right])
    np.testing.assert_allclose(out, truth, rtol=1e-4, atol=2e-4)


def test_large_blocks_where_there_is_memory_and_enough_of_them(build):
    wide = replace(SMALL, l2_bytes=1 << 20)

    def sums(sizes, target):
        blocked = block(product(build, sizes, "TN"), target)
        own = next(u for u in toposort([blocked]) if u.op is Op.LOCAL and u.src[0].op is Op.REDUCE)
        return most_elements(own.src[1:])

    assert sums((1536, 512, 1024), wide) == 256 * 256
    for cores in (1, 2, 8):
        assert sums((1024, 512, 1024), replace(wide, cores=cores)) == 128 * 256
    assert sums((1536, 512, 1024), replace(wide, l2_bytes=768 << 10)) == 128 * 256
    assert sums((1536, 512, 1024), replace(wide, l2_bytes=512 << 10)) == 128 * 128
    # Few blocks along both sides.
    assert sums((128, 256, 4096), wide) == 128 * 128
    assert sums((128, 1024, 8192), wide) == 128 * 128
    assert sums((128, 1536, 4096), wide) == 128 * 256


def test_what_goes_outside_is_part_of_the_tiling(build):
    info, own = blocked(build)
    [array] = [u for u in info.locals if u.src[0].op is Op.REDUCE]
    turn, step = array.src[0].src[1:]
    assert own.outside == (turn,)
    assert own.keeps(array)
    assert Tiling.parse(own.text(), info) == own
    plain = replace(own, outside=())
    assert plain != own
    assert "outside" not in plain.text()
    for wrong in ((step,), (step, turn), (turn, turn), (own.order[0],)):
        with pytest.raises(SpecError, match="outside"):
            verify(info, SMALL, replace(own, outside=wrong))
    wide = {**own.tiles, step: Tile(4, 4)}
    with pytest.raises(SpecError):
        verify(info, SMALL, replace(own, tiles=wide))
    verify(info, SMALL, own)


@pytest.mark.parametrize(("sizes", "layout"), [(STREAM, "NN"), (BLOCKS, "TN")])
def test_candidates_that_keep_bits_do(build, rng, sizes, layout):
    ast = product(build, sizes, layout)
    _, a, b = operands(rng, sizes, layout)
    others = [v for v in RENDERER.variants(ast) if v.keeps_bits]
    first = others[0].text
    inside = [v for v in others if ("outside" in v.text) != ("outside" in first)]
    # Packed operands would be packed again for each tile.
    assert bool(inside) is (layout == "NN")
    results = []
    for variant in (*others[:4], *inside[:1]):
        out = np.zeros(sizes[:2], np.float32)
        runner(SMALL, variant.text)(ast, [out, a, b])
        results.append(out)
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])


@pytest.mark.cases(1)
@pytest.mark.parametrize(("sizes", "layout"), [((3, 1024, 1536), "NN"), ((256, 128, 1024), "TN")])
def test_long_sums_are_added_up_in_parts(build, rng, sizes, layout):
    ast = product(build, sizes, layout)
    truth, *equal = operands(rng, sizes, layout)
    assert arrays(ast) == (2 if layout == "NN" else 3)
    for factors in (equal, [np.full(x.shape, 0.3, np.float32) for x in equal]):
        results = []
        for variant in [v for v in RENDERER.variants(ast) if v.keeps_bits][:6]:
            out = np.zeros(sizes[:2], np.float32)
            runner(SMALL, variant.text)(ast, [out, *factors])
            results.append(out)
        for out in results[1:]:
            np.testing.assert_array_equal(out, results[0])
        if factors is equal:
            np.testing.assert_allclose(results[0], truth, rtol=1e-4, atol=1e-4)
        else:
            exact = float(np.float32(0.3)) ** 2 * sizes[2]
            assert np.abs(results[0] / exact - 1).max() < 32 * np.finfo(np.float32).eps


def test_the_key_of_sums_in_arrays_is_that_of_sums_in_registers(build):
    info, own = blocked(build)
    keys = {order_of_sums(nest_of(info, replace(own, outside=o), SMALL)) for o in (own.outside, ())}
    assert len(keys) == 1


def passes(items):
    for item in items:
        if isinstance(item, Pass):
            yield item
        elif isinstance(item, Loop):
            yield from passes(item.body)


def test_a_pass_that_keeps_sums_is_verified(build, monkeypatch):
    info, own = blocked(build)
    nest = nest_of(info, own, SMALL)
    verify_loops(nest, info)
    [kept] = [p for p in passes(nest.body) if p.kept]

    def with_pass(items, changed):
        for item in items:
            if item is kept:
                yield changed
            elif isinstance(item, Loop):
                yield replace(item, body=tuple(with_pass(item.body, changed)))
            else:
                yield item

    others = kept.closed[1:]
    for changed, fault in (
        (replace(kept, closed=others), "accumulates over other loops"),
        (replace(kept, folds=()), "does not fill it"),
        (replace(kept, loop=replace(kept.loop, tile=Tile(2, 2))), "accumulates vectors along"),
    ):
        wrong = replace(nest, body=tuple(with_pass(nest.body, changed)))
        with pytest.raises(CompileError, match=fault):
            verify_loops(wrong, info)


def test_chunks_share_blocks(build):
    for target in (SMALL, DeviceSpec.avx512(), DeviceSpec.avx2()):
        program = LLVMRenderer(target).render(product(build, (1024, 1024, 1024), "TN"))
        assert program.global_size[0] >= 8
