"""Tilings as data: listed, checked, written down; and in which order their sums add up."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import random
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.backend.cpu import LLVMCompiler, LLVMLoader
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.costs import costs_of
from kernelrt.device.program import CORE_ID
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.errors import SpecError
from kernelrt.ir import Op, UOp, Variable, const, rewrite, toposort
from kernelrt.loops.analysis import Analysis, kernel_cost
from kernelrt.loops.loop_ir import build
from kernelrt.loops.math.decompositions import decompositions
from kernelrt.loops.passes.cache_blocking import block
from kernelrt.loops.passes.fuse_loops import merge_passes
from kernelrt.loops.passes.pack_operands import pack
from kernelrt.loops.reduction_order import order_of_sums
from kernelrt.loops.search_space import verify
from kernelrt.loops.tile_heuristic import choose
from kernelrt.loops.tiles import Tile, extent
from kernelrt.loops.tiling import Tiling
from kernelrt.runtime.sizes import evaluate

RENDERER = LLVMRenderer(host())
COMPILER = LLVMCompiler(host())
LOADER = LLVMLoader(COMPILER)


def loops(ast):
    """The kernel whose loops a tiling is of."""
    packed = pack(block(merge_passes(ast), host()), host())
    return Analysis(rewrite([packed], decompositions(host()))[0])


def leaf(*shape, dtype=np.float32):
    rng = np.random.default_rng(sum(shape))
    return krt.tensor(rng.uniform(-1, 1, shape).astype(dtype), requires_grad=dtype is np.float32)


def rows(x):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * ((x - mean).square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def embedding_gradient():
    table = leaf(7, 5)
    index = krt.tensor(np.random.default_rng(0).integers(0, 7, 40))
    return krt.grad((table[index] * leaf(40, 5)).sum(), [table])[0]


PROGRAMS = {
    "product": lambda: leaf(37, 29) @ leaf(29, 45),
    "product by rows": lambda: leaf(33, 50) @ leaf(21, 50).transpose(0, 1),
    "rows by a vector": lambda: leaf(5, 70) @ leaf(70),
    "sum along rows": lambda: leaf(19, 203).sum(1),
    "sum along columns": lambda: leaf(203, 19).sum(0),
    "sum of all": lambda: leaf(1000).sum(),
    "greatest": lambda: leaf(19, 203).amax(1),
    "product of elements": lambda: (leaf(9, 40) + 1.5).prod(1),
    "softmax": lambda: leaf(18, 33).softmax(-1),
    "norm": lambda: rows(leaf(10, 65)),
    "convolution": lambda: leaf(2, 3, 9, 9).conv2d(leaf(4, 3, 3, 3)),
    "three axes": lambda: leaf(3, 17, 5).sum((1, 2)),
    "first and last": lambda: leaf(11, 6, 13).sum((0, 2)),
    "double": lambda: (leaf(23, 31, dtype=np.float64) * 3).sum(1),
    "half": lambda: leaf(23, 31, dtype=np.float16).sum(0),
    "integers": lambda: krt.tensor(np.arange(600).reshape(20, 30)).sum(1),
    "map": lambda: (leaf(30, 41) * 2 + 1).tanh() * 3,
    "transposed": lambda: leaf(30, 41).transpose(0, 1).contiguous(),
    "added rows": embedding_gradient,
}


def asts_of(name):
    return [k.ast for k in krt.prepare(PROGRAMS[name]()).kernels]


def dynamic_ast(function, *axes):
    n = Variable("n", 1, 77)
    jitted = krt.jit(function, dynamic={"x": dict.fromkeys(axes, n)})
    plan = jitted.plan(np.ones((50, 50), np.float32))
    return [k.ast for k in plan.kernels]


def run(ast, variant, values):
    """The bytes of every buffer after a kernel ran on what is the same each time."""
    program = RENDERER.render(ast, variant)
    code = LOADER.load(COMPILER.compile([program]))[0]
    rng = np.random.default_rng(3)
    buffers = []
    for u in sorted((u for u in toposort([ast]) if u.op is Op.PARAM), key=lambda u: u.arg[0]):
        _, size = u.arg
        kind = np.dtype(np.uint16) if u.dtype is dt.bfloat16 else dt.to_numpy(u.dtype)
        if kind.kind == "f":
            buffers.append(rng.uniform(-1, 1, size).astype(kind))
        else:
            buffers.append(rng.integers(0, 5, size).astype(kind))
    pointers = (ctypes.c_void_p * max(1, program.buf_count))(*(b.ctypes.data for b in buffers))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address)
    for core in range(evaluate(program.global_size[0], values)):
        row = [core if n == CORE_ID else values[n] for n in program.var_names]
        vals = (ctypes.c_int64 * max(1, len(row)))(*row)
        function(ctypes.addressof(pointers), ctypes.addressof(vals))
    return [b for i, b in enumerate(buffers) if i in program.outs]


def random_tiling(rng, info):
    """Any tiles, order and chunks; many of these cannot be written."""
    stored = list({r for s in info.sink.src for r in info.deps_of(s.src)})
    rng.shuffle(stored)
    tiles = {}
    for r in info.ranges:
        lanes = rng.choice([1, 1, 1, 2, 4, 8, 16, 3])
        tiles[r] = Tile(lanes * rng.choice([1, 1, 2, 3, 4, 5, 8]), lanes)
    chunked = rng.choice([*stored, None]) if stored else None
    share = 0 if chunked is None else tiles[chunked].factor * rng.randint(1, 6)
    return Tiling(tiles, tuple(stored), chunked, share)


def tilings(ast, count, seed=0):
    """Candidates of `ast`, and others that can be written."""
    info = loops(ast)
    found = {}
    for variant in RENDERER.variants(ast):
        found[variant.text] = None
        if len(found) == count:
            break
    rng = random.Random(seed)  # noqa: S311 - tests draw
    for _ in range(60 * count):
        if len(found) >= 2 * count:
            break
        tiling = random_tiling(rng, info)
        try:
            verify(info, host(), tiling)
        except SpecError:
            continue
        found[tiling.text()] = None
    return info, [Tiling.parse(text, info) for text in found]


def same(a, b):
    """Whether arrays agree bit for bit; NaNs count as equal."""
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") and (
        x.dtype.kind != "f" or np.array_equal(np.signbit(x), np.signbit(y))
    ) for x, y in zip(a, b, strict=True))  # fmt: skip


def check(ast, values, count=8):
    """Equal keys give equal bits, and all give the values; how many keys and results differ."""
    info, every = tilings(ast, count)
    expected = run(ast, None, values)
    by_key = {}
    for tiling in every:
        found = run(ast, tiling.text(), values)
        for x, y in zip(found, expected, strict=True):
            if x.dtype.kind == "f":
                loose = 2e-3 if x.dtype == np.float16 else 1e-5
                np.testing.assert_allclose(x, y, rtol=loose, atol=loose, err_msg=tiling.text())
            else:
                np.testing.assert_array_equal(x, y, err_msg=tiling.text())
        key = order_of_sums(build(info, tiling, host()))
        first = by_key.setdefault(key, (tiling, found))
        assert same(found, first[1]), f"{tiling.text()} against {first[0].text()}, both {key}"
    return len(by_key), len({b"".join(x.tobytes() for x in found) for _, found in by_key.values()})


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_keys_give_equal_bits(name):
    for ast in asts_of(name):
        keys, results = check(ast, {})
        assert keys >= results


@pytest.mark.parametrize("name", ["map", "transposed", "integers"])
def test_what_rounds_no_sum_has_one_key(name):
    for ast in asts_of(name):
        info, every = tilings(ast, 12)
        assert len(every) > 6
        assert len({order_of_sums(build(info, tiling, host())) for tiling in every}) == 1


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["product by rows", "sum along rows", "norm"])
def test_other_orders_have_other_keys_because_they_have_other_bits(name):
    counts = [check(ast, {}, 12) for ast in asts_of(name)]
    assert max(results for _, results in counts) > 1


@pytest.mark.cases(1)
@pytest.mark.parametrize("n", [1, 15, 16, 50, 77])
@pytest.mark.parametrize("function", [
    lambda x: (x * 2).sum(1), lambda x: (x * 2).sum(0), lambda x: x @ (x * 0.5).transpose(0, 1),
], ids=["rows", "columns", "product"])  # fmt: skip
def test_equal_keys_give_equal_bits_for_every_size(function, n):
    for ast in dynamic_ast(function, 0, 1):
        check(ast, {"n": n}, 5)


@pytest.mark.cases(1 / 4)
def test_the_first_candidate_is_the_choice_and_no_candidate_comes_twice():
    for name in PROGRAMS:
        for ast in asts_of(name):
            variants = list(RENDERER.variants(ast))
            texts = [v.text for v in variants]
            assert texts[0] == RENDERER.render(ast).variant
            assert RENDERER.render(ast, texts[0]).src == RENDERER.render(ast).src
            assert len(set(texts)) == len(texts)
            assert variants[0].keeps_bits


def test_there_are_several_for_a_product_of_each_kind():
    (ast,) = asts_of("product")
    own = json.loads(RENDERER.render(ast).variant)
    others = [json.loads(v.text) for v in RENDERER.variants(ast)][1:]
    for part in ("tiles", "order", "chunked"):
        assert any(other[part] != own[part] for other in others)


def test_candidates_around_another_differ_from_that_one():
    (ast,) = asts_of("product")
    second = list(RENDERER.variants(ast))[3]
    around = list(RENDERER.variants(ast, second.text))
    assert around[0].text == second.text
    own = RENDERER.render(ast).variant
    info = loops(ast)
    keys = [order_of_sums(build(info, Tiling.parse(t, info), host())) for t in (own, second.text)]
    assert around[0].keeps_bits == (keys[0] == keys[1])


@pytest.mark.parametrize("name", ["softmax", "norm", "packed"])
def test_no_candidate_does_everything_over(name):
    """As one would that has a loop around arrays, whose elements do not vary with it."""
    square = krt.zeros(1024, 1024)
    plan = krt.prepare(square.transpose(0, 1) @ square if name == "packed" else PROGRAMS[name]())
    [ast] = [k.ast for k in plan.kernels]
    variants = itertools.islice(RENDERER.variants(ast), 40)
    counts = [computed(RENDERER.outline(ast, v.text)) for v in variants]
    assert len(counts) > 4
    assert max(counts) <= 8 * counts[0], counts


def computed(outline: str) -> int:
    """How often the lines of a nest without a loop below them run, vectors counted as elements."""
    depth: list[tuple[int, int]] = []
    total = 0
    for line in outline.splitlines():
        indent = len(line) - len(line.lstrip())
        depth = [(i, n) for i, n in depth if i < indent]
        found = re.match(r"\s*for \w+ in (\d+)", line)
        if found:
            depth.append((indent, int(found[1])))
        elif " = " in line or " += " in line:
            total += math.prod(n for _, n in depth)
    return total


@pytest.mark.cases(1)
@pytest.mark.parametrize("target", [DeviceSpec.avx512(), DeviceSpec.avx2(), DeviceSpec.neon()])
def test_every_candidate_can_be_written_for_every_target(target):
    renderer, compiler = LLVMRenderer(target), None
    if target.is_x86:
        compiler = LLVMCompiler(target)
    for name in ("product", "softmax", "convolution", "transposed"):
        for ast in asts_of(name):
            some = itertools.islice(renderer.variants(ast), 6)
            programs = [renderer.render(ast, v.text) for v in some]
            assert all(p.variant for p in programs)
            if compiler is not None:
                assert len(compiler.compile(programs)) == len(programs)


def test_a_tiling_is_frozen_data_that_comes_back_from_its_text():
    (ast,) = asts_of("product")
    info, every = tilings(ast, 10)
    for tiling in every:
        again = Tiling.parse(tiling.text(), info)
        assert again == tiling
        assert hash(again) == hash(tiling)
        assert json.loads(tiling.text()).keys() == {"tiles", "order", "chunked", "share"}
    with pytest.raises(FrozenInstanceError):
        every[0].share = 3
    with pytest.raises(TypeError):
        every[0].tiles[info.ranges[0]] = Tile(2, 2)
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("text", [
    "", "[]", "null", "{}", "x" * 10_000, "[" * 100_000,
    '{"chunked":null,"order":[0],"share":0,"tiles":{"99":[1,1]}}',
    '{"chunked":null,"order":[true,0],"share":0,"tiles":{}}',
    '{"chunked":null,"order":[0,1],"share":0.0,"tiles":{}}',
    '{"chunked":null,"order":[0,1],"share":0,"tiles":{"0":[4]}}',
    '{"chunked":null, "order":[0,1],"share":0,"tiles":{}}',
])  # fmt: skip
def test_what_is_no_tiling_of_the_kernel_is_refused(text):
    (ast,) = asts_of("product")
    with pytest.raises(SpecError):
        RENDERER.render(ast, text)


def test_tilings_that_cannot_be_written_are_refused():
    (ast,) = asts_of("product")
    info = loops(ast)
    own = Tiling.parse(RENDERER.render(ast).variant, info)
    i, j = own.order
    (k,) = info.reduces[0].src[1:]
    wrong = [
        Tiling({i: Tile(extent(i) + 1, 1)}, own.order),
        Tiling({j: Tile(0, 1)}, own.order),
        Tiling({j: Tile(8, 0)}, own.order),
        Tiling({j: Tile(8, 16)}, own.order),
        Tiling({j: Tile(12, 8)}, own.order),
        Tiling({j: Tile(8, 8), i: Tile(8, 8)}, own.order),
        Tiling({}, (i,)),
        Tiling({}, (i, i)),
        Tiling({}, (i, j, k)),
        Tiling({}, own.order, k, 1),
        Tiling({}, own.order, i, 0),
        Tiling({}, own.order, i, extent(i)),
        Tiling({i: Tile(4, 1)}, own.order, i, 6),
        Tiling({}, own.order, None, 4),
        Tiling({i: Tile(37, 1), j: Tile(45, 1), k: Tile(29, 1)}, own.order),
    ]
    for tiling in wrong:
        with pytest.raises(SpecError):
            verify(info, host(), tiling)
    verify(info, host(), own)


def test_what_adds_to_memory_is_never_split():
    for ast in asts_of("added rows"):
        info = loops(ast)
        if all(s.arg is None for s in info.sink.src):
            continue
        every = [Tiling.parse(v.text, info) for v in RENDERER.variants(ast)]
        assert all(t.chunked is None for t in every)
        with pytest.raises(SpecError):
            verify(info, host(), Tiling({}, every[0].order, every[0].order[0], 1))


def test_vectors_go_along_the_stores_of_most_elements():
    """A number for each row is stored by the kernel that stores the rows; it comes first."""
    i, j = (UOp(Op.RANGE, dt.int64, (const(n, dt.int64),), k) for k, n in enumerate((32, 64)))
    few, rows, x = (
        UOp(Op.PARAM, dt.float32, (), (slot, size)) for slot, size in enumerate((32, 2048, 2048))
    )
    total = UOp(Op.RANGE, dt.int64, (const(64, dt.int64),), 2)
    each = UOp(Op.LOAD, dt.float32, (x, i * 64 + total))
    mean = UOp(Op.REDUCE, dt.float32, (each, total), Op.ADD)
    element = UOp(Op.LOAD, dt.float32, (x, i * 64 + j))
    stores = (
        UOp(Op.STORE, dt.float32, (few, i, mean)),
        UOp(Op.STORE, dt.float32, (rows, i * 64 + j, element - mean)),
    )
    info = Analysis(UOp(Op.SINK, dt.float32, stores))
    device = DeviceSpec.avx2()
    cost = kernel_cost(info, info, costs_of(device))
    assert choose(info, device, cost).tile(j).lanes == device.lanes(4)


@pytest.mark.parametrize(("length", "together"), [(4096, False), (96, True)])
def test_rows_from_memory_are_walked_one_after_the_other(build, length, together):
    """What a core's cache does not hold is read as one run; short rows share their last steps."""
    i, j = build.range(4096, 0), build.range(length, 1)
    x = build.param(1, 4096 * length)
    total = build.reduce(Op.ADD, build.load(x, i * length + j), j)
    info = Analysis(build.sink(build.store(build.param(0, 4096), i, total)))
    spec = DeviceSpec.avx512()
    tiling = choose(info, spec, kernel_cost(info, info, costs_of(spec)))
    assert (tiling.tile(i).factor > 1) == together


@pytest.mark.parametrize(("length", "together"), [(50000, False), (128, True)])
def test_rows_that_are_read_again_stay_in_the_cache(build, length, together):
    """Several rows share what they are weighted with where all of them are still near then."""
    i, j, k = (build.range(n, at) for at, n in enumerate((64, length, length)))
    x, weights = build.param(1, 64 * length), build.param(2, length)
    product = build.load(x, i * length + k) * build.load(weights, k)
    rest = build.load(x, i * length + j) - build.reduce(Op.ADD, product, k)
    info = Analysis(build.sink(build.store(build.param(0, 64 * length), i * length + j, rest)))
    spec = DeviceSpec.avx512()
    tiling = choose(info, spec, kernel_cost(info, info, costs_of(spec)))
    assert (tiling.tile(i).factor > 1) == together
