"""Arrays that lie where the kernel stores its results: which do, and that values stay right."""

from __future__ import annotations

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.ir import Op, UOp
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.passes.fuse_loops import merge_passes
from kernelrt.loops.passes.share_arrays import scratch_outputs
from kernelrt.loops.tiles import Tile
from kernelrt.loops.tiling import Tiling

SHAPE = (5, 70)


def squares(build, kind, rows=SHAPE[0], columns=SHAPE[1], dtype=dt.float32):
    """x^2 over its row's sum, or what is like it in all but one respect."""
    i, j, k, s = (build.range(n, m) for m, n in enumerate([rows, *[columns] * 3]))
    size = rows * columns
    out, x, other = (build.param(slot, size, dtype) for slot in range(3))
    source = out if kind == "in place" else x
    at = build.load(source, i * columns + k)
    row = build.local(at * at, k)
    total = build.reduce(Op.ADD, build.load(row, s), s)
    value = build.load(row, columns - 1 - j if kind == "backwards" else j) / total
    stores = [build.store(out, i * columns + j, value)]
    if kind == "read by two":
        stores.append(build.store(other, i * columns + j, build.load(row, columns - 1 - j)))
    elif kind == "read again":
        q = build.range(columns, 4)
        every = build.reduce(Op.MAX, build.load(row, q) + build.load(other, i * columns + j), q)
        stores = [build.store(out, i * columns + j, value + every)]
    elif kind == "summed to another type":
        narrow = UOp(Op.CAST, dt.float16, (value,))
        stores = [build.store(build.param(0, size, dt.float16), i * columns + j, narrow)]
    elif kind == "apart":
        stores = [build.store(build.param(0, 2 * size, dtype), (i * columns + j) * 2, value)]
    elif kind == "columns":
        stores = [build.store(out, j * rows + i, value)]
    return build.sink(*stores)


def lies(ast, *, turned=False, **how):
    info = Analysis(merge_passes(ast))
    ranges = sorted({r for s in info.sink.src for r in info.deps[s]}, key=lambda r: r.arg)
    order = ranges[::-1] if turned else ranges
    if "chunked" in how:
        how["chunked"] = ranges[how["chunked"]]
    if "wide" in how:
        how["tiles"] = {ranges[how.pop("wide")]: Tile(4, 4)}
    found = scratch_outputs(info, Tiling(order=tuple(order), **how))
    return [param.arg[0] for param, _ in found.values()]


def test_a_row_lies_where_its_results_are_stored(build):
    assert lies(squares(build, "")) == [0]
    text = LLVMRenderer(DeviceSpec.avx512()).outline(squares(build, ""))
    assert "float32[70] at p0[i * 70]" in text


def test_such_a_row_takes_no_memory(build):
    render = LLVMRenderer(host()).render
    assert render(squares(build, "")).stack_bytes == 0
    assert render(squares(build, "backwards")).stack_bytes >= 4 * SHAPE[1]


@pytest.mark.parametrize(
    "kind",
    ["in place", "backwards", "read by two", "read again", "summed to another type", "apart",
     "columns"],
)  # fmt: skip
def test_others_do_not(build, kind):
    assert lies(squares(build, kind)) == []


def test_chunks_share_no_row(build):
    ast = squares(build, "")
    assert lies(ast, chunked=0, share=2) == [0]
    # Each chunk of columns would compute the row, and overwrite what another one has stored.
    assert lies(ast, chunked=1, share=32) == []


def test_rows_stay_where_they_are_computed_for_each_column(build):
    assert lies(squares(build, ""), turned=True) == []


def test_rows_side_by_side_lie_elsewhere(build):
    assert lies(squares(build, ""), wide=0) == []


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.float16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 16), (3, 17), (9, 130), (2, 0), (0, 2)])
def test_values(run, build, rng, shape, dtype):
    kind = np.dtype(dtype.name)
    x = rng.standard_normal(shape).astype(kind)
    out = np.full(shape, np.nan, kind)
    run(squares(build, "", *shape, dtype), [out, x])
    wide = x.astype(np.float64) ** 2
    tolerance, least = {2: (2e-3, 1e-6), 4: (2e-6, 0), 8: (1e-14, 0)}[x.itemsize]
    expected = wide / wide.sum(1, keepdims=True)
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=least)


@pytest.mark.parametrize("kind", ["in place", "backwards", "read by two", "read again", "columns"])
def test_values_of_others(run, build, rng, kind):
    x, other = rng.standard_normal((2, *SHAPE)).astype(np.float32)
    wide = x.astype(np.float64) ** 2
    expected = wide / wide.sum(1, keepdims=True)
    if kind == "backwards":
        expected = expected[:, ::-1]
    if kind == "read again":
        expected = expected + wide.max(1, keepdims=True) + other
    if kind == "columns":
        expected = expected.T
    out = x.copy() if kind == "in place" else np.full(SHAPE, np.nan, np.float32)
    run(squares(build, kind), [out, x, other])
    np.testing.assert_allclose(out.reshape(expected.shape), expected, rtol=3e-6, atol=1e-6)
