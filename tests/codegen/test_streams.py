"""What is fetched ahead: rows pages apart that are read once, and what a store needs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.errors import CompileError
from kernelrt.ir import Op, UOp
from kernelrt.ir.terms import linear
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.loop_ir import Fetch, Loop, Pass
from kernelrt.loops.loop_ir import build as nest_of
from kernelrt.loops.tile_heuristic import Chooser
from kernelrt.loops.tiles import extent
from kernelrt.loops.tiling import Tiling
from kernelrt.loops.verify_loops import verify_loops
from tests.codegen.conftest import index_at, walked

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


def fetched(ast, device=AVX512, caches=(1, 2)):
    """Lines that are asked for to be read, into one of these caches."""
    lines = LLVMRenderer(device).render(ast).src.splitlines()
    calls = [line for line in lines if "call void @llvm.prefetch" in line]
    return sum(f"i32 0, i32 {4 - cache}, i32 1)" in call for cache in caches for call in calls)


def masked_product(build, m, n, depth):
    """A product, kept where another matrix is positive; `run` on 0: the result, 3: that matrix."""
    i, j, k = (build.range(size, number) for number, size in enumerate((m, n, depth)))
    a, b = build.param(1, m * depth), build.param(2, depth * n)
    total = build.reduce(Op.ADD, build.load(a, i * depth + k) * build.load(b, k * n + j), k)
    mask = build.load(build.param(3, m * n), i * n + j)
    value = (mask > 0.0).where(total, total.const_like(0.0))
    return build.sink(build.store(build.param(0, m * n), i * n + j, value))


def convolution(build, size, channels, filters, taps=3):
    """A filter slid over an image with its channels innermost."""
    y, x, f = (build.range(n, number) for number, n in enumerate((size, size, filters)))
    c, v, u = (build.range(n, number) for number, n in enumerate((channels, taps, taps), 3))
    wide = size + taps - 1
    image = build.param(1, wide * wide * channels)
    weight = build.param(2, channels * taps * taps * filters)
    pixel = build.load(image, ((y + v) * wide + x + u) * channels + c)
    value = pixel * build.load(weight, ((c * taps + v) * taps + u) * filters + f)
    total = build.reduce(Op.ADD, value, c, v, u)
    out = build.param(0, size * size * filters)
    return build.sink(build.store(out, (y * size + x) * filters + f, total))


def next_windows(ast, device):
    """The LOADs that the passes of `ast` ask for ahead, and the tile of each loop."""
    info = Analysis(ast)
    body = list(nest_of(info, Chooser(info, device).choose(), device).body)
    found, tiles = [], {}
    while body:
        item = body.pop()
        if isinstance(item, Pass):
            item = item.loop
            inside = [x for x in item.body if isinstance(x, Fetch)]
            found += [x for fetch in inside for x in fetch.accesses]
        if isinstance(item, Loop):
            tiles[item.range.arg] = item.tile.factor
            body += item.body
    return found, tiles


@pytest.mark.parametrize("device", [AVX512, DeviceSpec.avx2(), DeviceSpec.neon()])
def test_a_line_is_asked_for_once(build, device):
    ast = columns(build, 512, 1008)
    assert "p1 fetched 8 ahead" in LLVMRenderer(device).outline(ast)
    floats = LLVMRenderer(device).render(ast).src.count(f"load <{device.lanes(4)} x float>")
    assert fetched(ast, device) == floats * device.lanes(4) // 16
    assert not fetched(ast, device, caches=(1,))


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


@pytest.mark.parametrize(("m", "n", "depth"), [(128, 256, 300), (129, 257, 96), (67, 300, 515)])
def test_what_is_asked_for_changes_nothing(build, run, m, n, depth):
    ast = masked_product(build, m, n, depth)
    for device in (host(), AVX512, DeviceSpec.avx2(), DeviceSpec.neon()):
        assert "fetch p0, p3" in LLVMRenderer(device).outline(ast)
    rng = np.random.default_rng(m)
    a, b, mask = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((m, depth), (depth, n), (m, n))
    )
    out = np.full((m, n), np.nan, np.float32)
    run(ast, [out, a, b, mask])
    wanted = np.where(mask > 0, a.astype(np.float64) @ b, 0)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


def test_lines_that_windows_move_on_to_are_asked_for(build):
    ast = convolution(build, 96, 64, 32)
    [ahead], tiles = next_windows(ast, AVX512)
    terms, constant = linear(ahead.src[1])
    y, x, c = (98 * 64, 64, 1)
    assert {r.arg: step for r, step in terms.items()} == {0: y, 1: x, 3: c}
    # The last row and column of the windows, one tile further on.
    assert constant == (tiles[1] + 2) * x + 2 * y
    # Few registers leave tiles for which a line is worth asking for where there are many taps.
    for device, taps in ((AVX512, 3), (DeviceSpec.avx2(), 7)):
        ast = convolution(build, 96, 64, 32, taps)
        assert "fetch p1" in LLVMRenderer(device).outline(ast)
        assert fetched(ast, device) > 0


def filter_gradient(build, count, size, channels, filters, stride=1, taps=3):
    """Sums over four images of gradients' pixels times what a window saw, `count` times."""
    sizes = (count, channels, taps, taps, filters, 4, size, size)
    b, c, v, u, f, i, y, x = (build.range(n, number) for number, n in enumerate(sizes))
    wide = (size - 1) * stride + taps
    image = build.param(1, count * 4 * channels * wide * wide)
    grad = build.param(2, count * 4 * filters * size * size)
    row = ((b * 4 + i) * channels + c) * wide + y * stride + v
    value = build.load(image, row * wide + x * stride + u)
    pixel = ((b * 4 + i) * filters + f) * size * size + y * size + x
    total = build.reduce(Op.ADD, value * build.load(grad, pixel), i, y, x)
    at = (((b * channels + c) * taps + v) * taps + u) * filters + f
    return build.sink(build.store(build.param(0, count * channels * taps**2 * filters), at, total))


def later_fetches(ast, device=AVX512):
    """What the kernel of `ast` asks for ahead of later tiles, and its tiles and passes."""
    info, tiling, nest, *_ = LLVMRenderer(device)._nest(Analysis(ast), None)
    return info, tiling, [x for x in walked(nest.body) if isinstance(x, Fetch) and x.later]


def test_taps_of_a_filter_are_one_tile(build):
    # The element that one tap multiplies is its neighbour's in the next term: it is read once.
    _, tiling, _ = later_fetches(filter_gradient(build, 16, 32, 16, 16))
    rows, columns = (next(r for r in tiling.order if r.arg == number) for number in (2, 3))
    assert (tiling.tile(rows).factor, tiling.tile(columns).factor) == (3, 3)


@pytest.mark.parametrize(("size", "stride"), [(32, 1), (16, 2)])
def test_rows_of_the_next_channels_are_asked_for(build, size, stride):
    channels = 16
    ast = filter_gradient(build, 16, size, channels, 16, stride)
    assert "fetch p1 for later" in LLVMRenderer(AVX512).outline(ast)
    _, tiling, [fetch] = later_fetches(ast)
    by_number = {r.arg: r for r in fetch.ranges} | {r.arg: r for r in tiling.order}
    b, c, i, y = (by_number[number] for number in (0, 1, 5, 6))
    inside = [r for r in tiling.order if r not in (b, c)]
    factor = tiling.tile(c).factor
    lines = set()
    for at in itertools.product(*(range(0, extent(r), tiling.tile(r).factor) for r in inside),
                                range(size)):  # fmt: skip
        places = dict(zip((*inside, y), at, strict=True)) | {b: 3, c: factor, i: 2}
        lines |= {index_at(x.src[1], places) // 16 for x in fetch.accesses}
    # All of the planes of the tile that follows, but for their last rows, and little beside.
    wide = (size - 1) * stride + 3
    starts = [((3 * 4 + 2) * channels + 2 * factor + n) * wide * wide for n in range(factor)]
    planes = {n // 16 for s in starts for n in range(s, s + size * stride * wide)}
    assert planes <= lines
    assert len(lines) <= 1.25 * len(planes) + 8


def test_rows_that_a_cache_holds_are_not(build):
    for count, asked in ((16, True), (2, False)):
        text = LLVMRenderer(AVX512).outline(filter_gradient(build, count, 32, 16, 16))
        assert ("fetch p1 for later" in text) is asked


@pytest.mark.parametrize(
    ("count", "size", "channels", "filters", "stride", "taps"),
    [
        (16, 32, 16, 16, 1, 3), (16, 16, 16, 32, 2, 3), (16, 17, 31, 16, 1, 3),
        # Taps that do not meet, and tiles that lie within a row.
        (2, 15, 128, 64, 2, 2), (8, 16, 64, 16, 3, 1), (16, 33, 17, 3, 1, 3),
    ],
    ids=str,
)  # fmt: skip
def test_filter_gradients(build, run, count, size, channels, filters, stride, taps):
    ast = filter_gradient(build, count, size, channels, filters, stride, taps)
    for device in (AVX512, DeviceSpec.avx2(), DeviceSpec.neon(), DeviceSpec.generic()):
        LLVMRenderer(device).render(ast)
    rng = np.random.default_rng(size)
    wide = (size - 1) * stride + taps
    image = rng.standard_normal((count, 4, channels, wide, wide)).astype(np.float32)
    grad = rng.standard_normal((count, 4, filters, size, size)).astype(np.float32)
    out = np.full((count, channels, taps, taps, filters), np.nan, np.float32)
    run(ast, [out, image, grad])
    reach = (size - 1) * stride + 1
    for v, u in itertools.product(range(taps), repeat=2):
        seen = image[..., v : v + reach : stride, u : u + reach : stride].astype(np.float64)
        wanted = np.einsum("bicyx,bifyx->bcf", seen, grad)
        np.testing.assert_allclose(out[:, :, v, u], wanted, rtol=1e-4, atol=2e-3)


@pytest.mark.cases(1 / 4)
def test_what_is_asked_for_is_known_where_it_is(build):
    # A hint stops no kernel: of sizes and targets at random none is refused.
    rng = np.random.default_rng(11)
    for _ in range(150):
        taps = int(rng.integers(1, 4))
        sizes = [int(rng.choice(n)) for n in ([1, 4, 16], [7, 8, 15, 28], [3, 16, 64], [1, 16, 48])]
        ast = filter_gradient(build, *sizes, int(rng.integers(1, 4)), taps)
        target = [AVX512, DeviceSpec.avx2(), DeviceSpec.neon()][rng.integers(3)]
        info, _, found = later_fetches(ast, target)
        for fetch in found:
            assert all(Fetch.varying(x) <= set(fetch.ranges) for x in fetch.accesses)
            assert all(x.src[0] in info.nodes for x in fetch.accesses)


def test_copies_of_sums_are_asked_for_by_none(build, run):
    # A row of the product is itself a sum: what that reads varies with loops of its own.
    m, k, n, count = 512, 512, 64, 2
    i, j, t, s = (build.range(size, number) for number, size in enumerate((m, n, k, count)))
    left = build.reduce(Op.ADD, build.load(build.param(1, count * m * k), (s * m + i) * k + t), s)
    value = left * build.load(build.param(2, k * n), t * n + j)
    total = build.reduce(Op.ADD, value, t)
    ast = build.sink(build.store(build.param(0, m * n), i * n + j, total))
    for device in (AVX512, DeviceSpec.avx2(), DeviceSpec.neon(), DeviceSpec.generic()):
        LLVMRenderer(device).render(ast)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(size).astype(np.float32) for size in ((count, m, k), (k, n)))
    out = np.full((m, n), np.nan, np.float32)
    run(ast, [out, a, b])
    wanted = a.astype(np.float64).sum(0) @ b
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize(
    ("size", "channels", "filters", "taps"),
    [(16, 64, 32, 3), (96, 64, 32, 1), (320, 4, 32, 3), (1200, 4, 1, 3)],
    ids=["near", "no windows", "one turn", "little to compute"],
)
def test_lines_of_other_windows_are_not(build, size, channels, filters, taps):
    ast = convolution(build, size, channels, filters, taps)
    assert next_windows(ast, AVX512)[0] == []
    assert "fetch p1" not in LLVMRenderer(AVX512).outline(ast)


@pytest.mark.parametrize(("size", "channels", "filters"), [(96, 64, 32), (67, 120, 17)])
def test_convolutions_that_ask_ahead(build, run, size, channels, filters):
    ast = convolution(build, size, channels, filters)
    rng = np.random.default_rng(size)
    image = rng.standard_normal((size + 2, size + 2, channels)).astype(np.float32)
    weight = rng.standard_normal((channels, 3, 3, filters)).astype(np.float32)
    out = np.full((size, size, filters), np.nan, np.float32)
    run(ast, [out, image, weight])
    wanted = sum(
        image[v : v + size, u : u + size].astype(np.float64) @ weight[:, v, u]
        for v in range(3)
        for u in range(3)
    )
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", ["element", "sum", "array"])
def test_what_lies_where_data_say_is_not(build, run, kind):
    """Its index is not known where it would be asked for."""
    m, n, depth, count = 128, 256, 300, 64
    i, j, k, q = (build.range(size, number) for number, size in enumerate((m, n, depth, count)))
    table = build.param(4, count, dt.int64)
    at = build.load(table, q.const_like(3))
    if kind == "sum":
        at = build.reduce(Op.MAX, build.load(table, q), q)
    elif kind == "array":
        at = build.load(build.local(build.load(table, q), q), q.const_like(3))
    a, b, kept = (build.param(1 + s, size) for s, size in enumerate((m * depth, depth * n, m * n)))
    total = build.reduce(Op.ADD, build.load(a, i * depth + k) * build.load(b, k * n + j), k)
    value = (build.load(kept, i * n + j + at) > 0.0).where(total, total.const_like(0.0))
    ast = build.sink(build.store(build.param(0, m * n), i * n + j, value))
    for device in (AVX512, DeviceSpec.avx2()):
        assert "fetch p0\n" in LLVMRenderer(device).outline(ast)
    rng = np.random.default_rng(0)
    left, right, mask = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((m, depth), (depth, n), (m, n))
    )
    out = np.full((m, n), np.nan, np.float32)
    run(ast, [out, left, right, mask, np.zeros(count, np.int64)])
    wanted = np.where(mask > 0, left.astype(np.float64) @ right, 0)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


def shifted_exponentials(build, rows, width, op=Op.EXP):
    """Of each row its greatest element, then the sum of `op` below it, then both in one store."""
    i, j, k, m = (build.range(n, number) for number, n in enumerate((rows, width, width, width)))
    x = build.param(1, rows * width)
    greatest = build.reduce(Op.MAX, build.load(x, i * width + j), j)
    total = build.reduce(Op.ADD, (build.load(x, i * width + k) - greatest).alu(op), k)
    value = build.load(x, i * width + m) - greatest - total
    return build.sink(build.store(build.param(0, rows * width), i * width + m, value))


@pytest.mark.parametrize("device", [AVX512, DeviceSpec.avx2(), DeviceSpec.neon()])
def test_rows_are_asked_for_while_the_ones_before_are_computed(build, device):
    device = replace(device, l1_bytes=32 << 10, l2_bytes=2 << 20)
    found, tiles = next_windows(shifted_exponentials(build, 64, 50000), device)
    # The row that is written may be one that another core writes at this time.
    [x] = found
    assert x.op is Op.LOAD
    terms, constant = linear(x.src[1])
    assert constant == 50000 * tiles[0]
    assert sorted(terms.values()) == [1, 50000]


@pytest.mark.parametrize(
    ("rows", "width", "op"),
    [(64, 50000, Op.NEG), (64, 1000, Op.EXP), (64, 400000, Op.EXP), (1, 50000, Op.EXP)],
    ids=["nothing to compute", "near", "far too long", "one row"],
)
def test_other_rows_are_not(build, rows, width, op):
    device = replace(AVX512, l1_bytes=32 << 10, l2_bytes=2 << 20)
    assert not next_windows(shifted_exponentials(build, rows, width, op), device)[0]


@pytest.mark.parametrize(("rows", "width"), [(3, 50000), (5, 40001), (2, 30000)])
def test_rows_that_are_asked_for(build, run, rows, width):
    x = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
    out = np.empty_like(x)
    run(shifted_exponentials(build, rows, width), [out, x])
    wide = x.astype(np.float64)
    wide -= wide.max(1, keepdims=True)
    want = wide - np.exp(wide).sum(1, keepdims=True)
    assert np.allclose(out, want, rtol=1e-5, atol=0)


def test_rows_below_other_loops_are_asked_for():
    """Rows of two axes that are no single one: the address varies with both loops around."""
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 20000), (4, 20000)))
    wide = x.astype(np.float64) + y
    for value, given in (
        (krt.jit(lambda x, y: (x + y).softmax(-1))(x, y), wide),
        (krt.jit(lambda x: x.transpose(0, 1).softmax(-1))(x), x.astype(np.float64).swapaxes(0, 1)),
    ):
        powers = np.exp(given - given.max(-1, keepdims=True))
        want = powers / powers.sum(-1, keepdims=True)
        np.testing.assert_allclose(value.numpy(), want, rtol=2e-5)


def test_what_is_asked_for_is_checked(build):
    ast = masked_product(build, 128, 256, 2000)
    info = Analysis(ast)
    tiling = Tiling(order=tuple(sorted(info.deps[ast.src[0]], key=lambda r: r.arg)))
    nest = nest_of(info, tiling, AVX512)
    outer = nest.body[0]
    (fetch,) = (item for item in outer.body[0].body if isinstance(item, Fetch))
    verify_loops(nest, info)
    early = replace(nest, body=(replace(outer, body=(fetch, *outer.body)),))
    with pytest.raises(CompileError, match="prefetched outside a loop"):
        verify_loops(early, info)
    mask = next(x for x in fetch.accesses if x.op is Op.LOAD)
    row = UOp(Op.LOAD, dt.int64, (build.param(4, 128, dt.int64), outer.range))
    most = build.reduce(Op.MAX, row, build.range(3, 9))
    for unknown in (row, most):
        index = mask.src[1] + unknown
        early = replace(fetch, accesses=(mask.replace(src=(mask.src[0], index)),))
        with pytest.raises(CompileError, match="not known before its iteration"):
            verify_loops(replace(nest, body=(replace(outer, body=(early, *outer.body)),)), info)
    sums = replace(fetch, accesses=(ast.src[0].src[2],))
    with pytest.raises(CompileError, match="is not in an argument"):
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


def powers(build, rows, length, dtype=dt.float32):
    """For each row the sum of exp(x - max(x))."""
    i, j, k = (build.range(size, number) for number, size in enumerate((rows, length, length)))
    x = build.param(1, rows * length, dtype)
    top = build.reduce(Op.MAX, build.load(x, i * length + j).cast(dt.float32), j)
    value = (build.load(x, i * length + k).cast(dt.float32) - top).alu(Op.EXP)
    return build.sink(build.store(build.param(0, rows), i, build.reduce(Op.ADD, value, k)))


def spreads(build, rows, length, dtype=dt.float32):
    """For each row the sum of the squares of x - sum(x)."""
    i, j, k = (build.range(size, number) for number, size in enumerate((rows, length, length)))
    x = build.param(1, rows * length, dtype)
    total = build.reduce(Op.ADD, build.load(x, i * length + j).cast(dt.float32), j)
    gap = build.load(x, i * length + k).cast(dt.float32) - total
    return build.sink(build.store(build.param(0, rows), i, build.reduce(Op.ADD, gap * gap, k)))


def at_once(ast):
    """How many rows one turn of the outermost loop goes along."""
    _, tiling, *_ = LLVMRenderer(AVX512)._nest(Analysis(ast), None)
    return tiling.tile(tiling.order[0]).factor


def test_long_rows_go_one_by_one_while_the_next_comes(build):
    for length in (16_000, 100_000):
        ast = powers(build, 512, length)
        assert at_once(ast) == 1
        assert "fetch p1" in LLVMRenderer(AVX512).outline(ast)
    # What a cache holds, or a processor reads on to by itself, waits for its sums together.
    for rows, length in ((8, 16_000), (4096, 2000)):
        assert at_once(powers(build, rows, length)) > 1


def test_rows_that_wait_for_memory_go_together_while_a_cache_holds_them(build):
    assert at_once(spreads(build, 2048, 16_000)) > 1
    assert at_once(spreads(build, 256, 200_000)) == 1
    assert at_once(spreads(build, 2048, 32_000, dt.bfloat16)) == 1


def test_columns_are_no_rows(build):
    i, j, k = (build.range(size, number) for number, size in enumerate((64, 250_000, 250_000)))
    x = build.param(1, 64 * 250_000)
    top = build.reduce(Op.MAX, build.load(x, j * 64 + i), j)
    value = (build.load(x, k * 64 + i) - top).alu(Op.EXP)
    ast = build.sink(build.store(build.param(0, 64), i, build.reduce(Op.ADD, value, k)))
    assert at_once(ast) > 1


def maxima(build, rows, width, dtype=dt.float32):
    i, k = build.range(rows, 0), build.range(width, 1)
    x = build.load(build.param(1, rows * width, dtype), i * width + k)
    greatest = build.reduce(Op.MAX, x, k)
    return build.sink(build.store(build.param(0, rows, dtype), i, greatest))


@pytest.mark.parametrize("device", [DeviceSpec.avx2(), AVX512], ids=lambda d: d.cpu)
def test_short_rows_from_memory_are_read_in_order(build, device):
    width = device.lanes(4) * 4
    near, far = (maxima(build, rows, width) for rows in (1024, 1 << 18))
    places = []
    for ast in (near, far):
        renderer = LLVMRenderer(device)
        assert ("row by row" in renderer.outline(ast)) is (ast is far)
        lines = renderer.render(ast).src.splitlines()
        at = [line.rsplit("i64 ", 1) for line in lines if "= getelementptr float" in line]
        places.append([int(number) for *_, number in at if number.isdigit()])
    assert places[1] == sorted(places[1]) != []
    assert places[0] != sorted(places[0])


@pytest.mark.parametrize("device", [DeviceSpec.avx2(), AVX512], ids=lambda d: d.cpu)
@pytest.mark.parametrize(("width", "alone"), [(64, False), (128, True), (512, True)])
def test_rows_that_no_cache_holds_are_reduced_one_by_one(build, device, width, alone):
    rows = device.l3_bytes // width
    far, near = maxima(build, rows, width), maxima(build, rows // 8, width)
    for ast, expected in ((far, alone), (near, False)):
        tiling = Tiling.parse(LLVMRenderer(device).render(ast).variant, Analysis(ast))
        [i] = Analysis(ast).sink.src[0].src[1:2]
        assert (tiling.tile(i).factor == 1) is expected
