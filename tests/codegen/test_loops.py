"""The loop nest as data: what it holds, what is legal, and how it reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.errors import CompileError
from kernelrt.ir import Op, UOp, Variable, const
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.loop_ir import Axis, Loop, LoopNest, Pass, Step, build
from kernelrt.loops.tiles import Part, Tile, parts
from kernelrt.loops.tiling import Tiling
from kernelrt.loops.verify_loops import verify_loops


def product(build):
    """The kernel of a matrix product of 12 x 40 over 30, and its RANGEs."""
    i, j, k = (build.range(n, number) for number, n in enumerate((12, 40, 30)))
    a, b = build.param(1, 360), build.param(2, 1200)
    total = build.reduce(Op.ADD, build.load(a, i * 30 + k) * build.load(b, k * 40 + j), k)
    ast = build.sink(build.store(build.param(0, 480), i * 40 + j, total))
    return Analysis(ast), (i, j, k)


def tiled(info, ranges, **how):
    i, j, k = ranges
    tiles = {i: Tile(5), j: Tile(32, 16), k: Tile(4)}
    return build(info, Tiling(tiles, [i, j], **how), DeviceSpec.avx512())


def test_a_nest_says_what_each_loop_is_for(build):
    info, (i, j, k) = product(build)
    nest = tiled(info, (i, j, k), chunked=i, share=10)
    verify_loops(nest, info)
    [rows] = nest.body
    [columns] = rows.body
    total, store = columns.body
    assert (rows.range, rows.axis, rows.share) == (i, Axis.CHUNK, 10)
    assert (columns.range, columns.axis, columns.tile) == (j, Axis.VECTOR, Tile(32, 16))
    assert columns.parts == (Part(Tile(32, 16), 1), Part(Tile(8, 16), 1))
    assert (total.folds, total.outer, total.closed) == (tuple(info.reduces), (i, j), (k,))
    assert (total.loop.axis, total.unrolled, total.vector) == (Axis.REDUCE, 4, None)
    assert store == Step(info.sink.src, (i, j))


def test_what_varies_with_fewer_loops_stands_outside(build):
    i, j, k = (build.range(n, number) for number, n in enumerate((4, 40, 30)))
    x = build.param(1, 120)
    top = build.reduce(Op.MAX, build.load(x, i * 30 + k), k)
    ast = build.sink(build.store(build.param(0, 160), i * 40 + j, top))
    info = Analysis(ast)
    [rows] = build_nest(info, [i, j]).body
    assert [type(item) for item in rows.body] == [Pass, Loop]
    assert rows.axis is Axis.SEQUENTIAL


def build_nest(info, order):
    nest = build(info, Tiling({}, order), DeviceSpec.avx512())
    verify_loops(nest, info)
    return nest


@pytest.mark.parametrize("size", [0, 1, 5, 16, 37, 64])
def test_parts_cover_a_known_extent(build, size):
    for tile in (Tile(), Tile(4), Tile(16, 16), Tile(24, 8)):
        runs = parts(build.range(size, 0), tile)
        assert sum(run.trips * run.tile.factor for run in runs) == size


def test_an_unknown_extent_ends_in_a_mask(build):
    runs = parts(build.range(Variable("n", 0, 999), 0), Tile(128, 8))
    assert [(run.tile.factor, run.trips, run.masked) for run in runs] == [
        (128, None, False), (32, None, False), (8, None, False), (8, None, True),
    ]  # fmt: skip


def rows_of(nest):
    [rows] = nest.body
    return rows


def in_rows(nest, *items, **fields):
    return LoopNest((replace(rows_of(nest), body=items, **fields),))


def faults(info, ranges):
    """Nests with one thing wrong each, and what the verifier has to say."""
    i, _, k = ranges
    nest = tiled(info, ranges)
    rows = rows_of(nest)
    [columns] = rows.body
    total, store = columns.body
    inner = total.loop
    yield LoopNest(()), "is done 0 times"
    yield LoopNest((rows, rows)), "is done 2 times"
    yield in_rows(nest, replace(columns, body=(store,))), "is not computed yet"
    yield in_rows(nest, replace(columns, body=(store, total))), "is not computed yet"
    yield in_rows(nest, replace(columns, body=(total, total, store))), "is computed twice"
    yield in_rows(nest, total, replace(columns, body=(store,))), "outside a loop that it varies"
    yield in_rows(nest, replace(columns, range=i)), "has a loop inside its own loop"
    yield in_rows(nest, replace(columns, tile=Tile(4, 8))), "has an invalid tile"
    yield in_rows(nest, replace(columns, parts=columns.parts[:1])), "its parts cover 32"
    yield in_rows(nest, columns, tile=Tile(4, 4)), "vectors along RANGEs 0 and 1"
    yield in_rows(nest, replace(columns, body=(total, replace(store, ranges=(i,))))), "leaves out"
    yield in_rows(nest, replace(columns, body=(inner, store))), "outside the pass"
    again = Loop(k, Axis.SEQUENTIAL, Tile(), (Part(Tile(), 30),), (total, store))
    yield in_rows(nest, replace(columns, body=(again,))), "computed again in the loop over RANGE 2"
    empty = replace(total, loop=replace(inner, body=(store,)))
    yield in_rows(nest, replace(columns, body=(empty, store))), "end in the step of its pass"
    yield in_rows(nest, columns, axis=Axis.CHUNK, share=7), "into chunks of 7"


@pytest.mark.parametrize("number", range(15))
def test_what_is_wrong_with_a_nest(build, number):
    info, ranges = product(build)
    nest, fault = list(faults(info, ranges))[number]
    with pytest.raises(CompileError, match="loop nest") as caught:
        verify_loops(nest, info)
    assert fault in str(caught.value)


def test_a_product_reads_as_one_writes_it(build):
    info, _ = product(build)
    text = LLVMRenderer(DeviceSpec.avx512()).outline(info.sink)
    lines = text.splitlines()
    assert lines[0].startswith("for i in 12")
    assert [line.strip() for line in lines if line.strip().startswith("for j")] == [
        line.strip() for line in lines if "vectors of" in line
    ]
    assert "reduce" in next(line for line in lines if "for k in 30" in line)
    assert "sum0 += p1[i * 30 + k] * p2[j + k * 40]" in text
    assert lines[-1].strip() == "p0[i * 40 + j] = sum0"
    depth = [len(line) - len(line.lstrip()) for line in lines]
    assert depth == [0, 4, 8, 8, 12, 8]


def test_functions_read_as_such_and_shared_values_have_names(build):
    i = build.range(20, 0)
    x = build.load(build.param(1, 20), i)
    wave = UOp(Op.TANH, dt.float32, (x * 2.0,))
    predicate = UOp(Op.WHERE, dt.float32, (wave < 0.5, wave, -wave / (wave + 1.0)))
    ast = build.sink(build.store(build.param(0, 20), i * 3 + 1, predicate))
    assert LLVMRenderer(DeviceSpec.avx2()).outline(ast).splitlines()[1:] == [
        "    v1 = tanh(p1[i] * 2.0)",
        "    p0[i * 3 + 1] = v1 if v1 < 0.5 else -v1 / (v1 + 1.0)",
    ]


def test_gates_checks_and_sums_into_memory_read_as_such(build):
    i, k = build.range(6, 0), build.range(4, 1)
    index = build.load(build.param(1, 6, dt.int64), i)
    index = UOp(
        Op.BOUND, dt.int64, (index, const(9, dt.int64), build.param(3, 1, dt.int64)), (0, False)
    )
    value = build.load(build.param(2, 24), i * 4 + k, k < 3)
    ast = build.sink(build.store(build.param(0, 9), index, value, i, k))
    text = LLVMRenderer(DeviceSpec.avx2()).outline(ast)
    assert "p0[checked(p1[i], 9)] += p2[i * 4 + j] if j < 3 else 0" in text


def test_chunks_share_out_every_loop_over_their_range(build, run):
    i, j, k = (build.range(n, number) for number, n in enumerate((3, 20000, 50)))
    x, y = build.param(2, 60000), build.param(3, 150)
    narrow = UOp(Op.EXP, dt.float32, (build.load(x, j),))
    total = build.reduce(Op.ADD, build.load(x, i * 20000 + j) * build.load(y, i * 50 + k), k)
    ast = build.sink(
        build.store(build.param(0, 20000), j, narrow),
        build.store(build.param(1, 60000), i * 20000 + j, total),
    )
    nest = build_loops(ast, Tiling({j: Tile(64, 16)}, [i, j], chunked=j, share=640))
    assert [loop.axis for loop in nest.body] == [Axis.CHUNK, Axis.SEQUENTIAL]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(60000), rng.standard_normal(150)
    a, b = np.zeros(20000, np.float32), np.zeros(60000, np.float32)
    run(ast, [a, b, x.astype(np.float32), y.astype(np.float32)])
    np.testing.assert_allclose(a, np.exp(x[:20000]), 1e-5)
    want = x.reshape(3, 20000) * y.reshape(3, 50).sum(1, keepdims=True)
    np.testing.assert_allclose(b.reshape(3, 20000), want, 1e-3, 1e-3)


def build_loops(ast, tiling):
    info = Analysis(ast)
    nest = build(info, tiling, DeviceSpec.avx512())
    verify_loops(nest, info)
    return nest
