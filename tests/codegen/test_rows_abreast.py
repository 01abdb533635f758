"""Rows that are computed side by side because their next pass waits for their sums."""

from __future__ import annotations

import json

import pytest

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, UOp
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.cost_model import PAGE


def shares(build, rows, columns, dtype=dt.float32):
    """Elements over their row's sum."""
    i, j, k = (build.range(n, m) for m, n in enumerate([rows, columns, columns]))
    x = build.param(1, rows * columns, dtype)
    total = build.reduce(Op.ADD, build.load(x, i * columns + k), k)
    value = build.load(x, i * columns + j) / total
    return build.sink(build.store(build.param(0, rows * columns, dtype), i * columns + j, value))


def row_sums(build, rows, columns):
    i, k = build.range(rows, 0), build.range(columns, 1)
    total = build.reduce(Op.ADD, build.load(build.param(1, rows * columns), i * columns + k), k)
    return build.sink(build.store(build.param(0, rows), i, total))


def tiles(ast):
    text = LLVMRenderer(DeviceSpec.avx512()).render(ast).variant
    return {int(r): tuple(tile) for r, tile in json.loads(text)["tiles"].items()}


@pytest.mark.parametrize("columns", [33, 64, 128, 256, 500])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=str)
def test_short_rows_wait_together(build, columns, dtype):
    factor, lanes = tiles(shares(build, 100, columns, dtype)).get(0, (1, 1))
    assert lanes == 1
    assert factor > 1
    assert factor * columns * dtype.itemsize < 2 * PAGE


def test_rows_of_a_page_go_one_after_the_other(build):
    assert 0 not in tiles(shares(build, 1000, 1024))


def test_what_is_awaited(build):
    for ast, awaited in ((shares(build, 8, 128), True), (row_sums(build, 8, 128), False)):
        info = Analysis(ast)
        assert (info.reduces[0] in info.awaited) == awaited


def exp(value):
    return UOp(Op.EXP, value.dtype, (value,))


@pytest.mark.parametrize("columns", [40001, 50000, 65536])
def test_rows_that_no_first_cache_holds_go_one_after_the_other(build, columns):
    """Two of them drive each other out before the next pass reads them again."""
    i, j, k, m = (build.range(n, r) for r, n in enumerate([64, columns, columns, columns]))
    x = build.param(1, 64 * columns)
    greatest = build.reduce(Op.MAX, build.load(x, i * columns + j), j)
    total = build.reduce(Op.ADD, exp(build.load(x, i * columns + k) - greatest), k)
    value = build.load(x, i * columns + m) - greatest - total.alu(Op.LOG)
    ast = build.sink(build.store(build.param(0, 64 * columns), i * columns + m, value))
    assert 0 not in tiles(ast)


def test_a_product_that_ends_a_function_is_work(build):
    """Sums of exp, whose polynomial ends in a product, are no sums of two loaded factors."""
    i, j, k = (build.range(n, m) for m, n in enumerate([32, 10, 10]))
    x = build.param(1, 320)
    total = build.reduce(Op.ADD, exp(build.load(x, i * 10 + k)), k)
    store = build.store(build.param(0, 320), i * 10 + j, exp(build.load(x, i * 10 + j)) / total)
    # In vectors along the row, though it does not fill one.
    assert any(lanes > 1 for r, (_, lanes) in tiles(build.sink(store)).items() if r != 1)
