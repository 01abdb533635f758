"""Sums that elements of arrays are made of: the same bits whichever kernel and tiles."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import host
from kernelrt.errors import SpecError
from kernelrt.ir import Op
from kernelrt.ir.reducers import IN_ORDER
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.loop_ir import Loop, Pass
from kernelrt.loops.loop_ir import build as nest_of
from kernelrt.loops.tiles import Tile
from kernelrt.loops.tiling import Tiling

from .conftest import runner

SIZES = [(2, 2, 1), (2, 5, 3), (4, 2, 16), (3, 33, 64), (17, 20, 100), (40, 16, IN_ORDER)]


def scores(build, queries, keys, width, *, columns):
    """All products of rows of two matrices, had row by row, or column by column.

    Each row is read twice, backwards and as it is, so that it has to be an array.
    """
    rows, across = (keys, queries) if columns else (queries, keys)
    i, j, a, s, d = (build.range(n, m) for m, n in enumerate([rows, *[across] * 3, width]))
    x, y = build.param(2, queries * width), build.param(3, keys * width)
    query, key = (a, i) if columns else (i, a)
    terms = build.load(x, query * width + d) * build.load(y, key * width + d)
    row = build.local(build.reduce(Op.ADD, terms, d), a)
    top = build.reduce(Op.MAX, build.load(row, s), s)
    at = j * rows + i if columns else i * across + j
    backwards = build.load(row, across - 1 - j)
    return build.sink(
        build.store(build.param(0, queries * keys), at, build.load(row, j)),
        build.store(build.param(1, queries * keys), at, backwards + top),
    )


def sequential(x, y):
    """By fused multiply-adds of float32, one after the other."""
    total = np.full((len(x), len(y)), np.float32(-0.0))
    for k in range(x.shape[1]):
        exact = x[:, None, k].astype(np.longdouble) * y[None, :, k] + total
        total = exact.astype(np.float32)
    return total


def variants(ast, count, seed):
    """The renderer's own, some that it lists, and any others that can be written."""
    renderer = LLVMRenderer(host())
    listed = [None, *(v.text for v in itertools.islice(renderer.variants(ast), count))]
    info = renderer._nest(Analysis(ast))[0]
    draw = random.Random(seed)  # noqa: S311 - tests draw
    for _ in range(40 * count):
        if len(listed) > 2 * count:
            break
        own = Tiling.parse(listed[1], info)
        tiles = dict(own.tiles)
        for r in draw.sample(info.ranges, 2):
            lanes = draw.choice([1, 1, 4, 8, 16])
            tiles[r] = Tile(lanes * draw.choice([1, 2, 3, 4]), lanes)
        text = Tiling(tiles, own.order).text()
        try:
            renderer.render(ast, text)
        except SpecError:
            continue
        listed.append(text)
    return listed


@pytest.mark.cases(1)
@pytest.mark.parametrize("size", SIZES)
def test_rows_and_columns_under_any_tiles_have_the_same_bits(build, rng, size):
    queries, keys, width = size
    x = rng.standard_normal((queries, width)).astype(np.float32)
    y = rng.standard_normal((keys, width)).astype(np.float32)
    expected = sequential(x, y) if host().has_fma else None
    for columns in (False, True):
        ast = scores(build, *size, columns=columns)
        for text in variants(ast, 6, seed=width):
            found, other = np.full((2, queries, keys), np.nan, np.float32)
            runner(host(), text)(ast, [found, other, x, y])
            if expected is None:
                expected = found
            np.testing.assert_array_equal(found, expected, err_msg=str(text))


def passes(items):
    for item in items:
        if isinstance(item, Pass):
            yield item
            yield from passes([item.loop])
        elif isinstance(item, Loop):
            yield from passes(item.body)


@pytest.mark.parametrize("width", [IN_ORDER, IN_ORDER + 1])
def test_longer_sums_are_split_up(build, width):
    ast = scores(build, 8, 32, width, columns=False)
    info = Analysis(ast)
    [fold] = [u for u in info.reduces if u.arg is Op.ADD]
    assert (fold in info.sequential) == (width == IN_ORDER)
    order = sorted(info.deps_of(s.src[1] for s in info.sink.src), key=lambda r: r.arg)
    nest = nest_of(info, Tiling({fold.src[1]: Tile(32, 16)}, tuple(order)), host())
    [each] = [p for p in passes(nest.body) if fold in p.folds]
    assert each.sequential == (width == IN_ORDER)
    assert (each.copies(1) == 1 and each.vector is None) == (width == IN_ORDER)

