"""Sums of products of bfloat16, two to a word: values, rounding, and when it is done."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.assembly import assembly, count, inner_loop
from support.skip_list import needs

from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import TARGETS, DeviceSpec, machine
from kernelrt.ir import Op, UOp, toposort
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.loops.analysis import Analysis
from kernelrt.loops.loop_ir import build as nest_of
from kernelrt.loops.passes.packed_dot import MANY_ROWS, ROWS, SIDES, in_words
from kernelrt.loops.reduction_order import order_of_sums
from kernelrt.loops.tiling import Tiling
from tests.codegen.conftest import RUNNABLE, runner, runner_on

SERVER = replace(DeviceSpec.avx512(), features=f"{DeviceSpec.avx512().features},+avx512bf16")
SHORT = replace(DeviceSpec.avx2(), features=f"{DeviceSpec.avx2().features},+avx512vl,+avx512bf16")
LAYOUTS = ["NN", "NT", "TN", "TT"]
SIZES = [
    (1, 40, 64), (3, 17, 31), (ROWS - 1, 33, 18), (ROWS, 16, 16), (MANY_ROWS, 33, 19), (40, 1, 40),
    (40, 40, 1), (40, 40, 3), (17, 130, 65), (131, 129, 127), (64, 200, 1030),
    (32, 32 * SIDES[0], 16), (24, 64, 4100),
]  # fmt: skip
#: The least normal number, of bfloat16 and of float32.
LEAST = 2.0**-126
own_words = needs("products of bfloat16")


def bits(x):
    """The bits of bfloat16, of numbers that it has."""
    wide = np.asarray(x, np.float32).view(np.uint32)
    assert not (wide & 0xFFFF).any()
    return (wide >> 16).astype(np.uint16)


def cut(x):
    """`x` cut off to what bfloat16 has."""
    return (np.asarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def product(build, sizes, layout="NN", total=dt.float32, kinds=(dt.bfloat16, dt.bfloat16)):
    m, n, k = sizes
    i, j, t = (build.range(size, number) for number, size in enumerate(sizes))
    a, b = build.param(1, m * k, kinds[0]), build.param(2, k * n, kinds[1])
    x = build.load(a, t * m + i if layout[0] == "T" else i * k + t).cast(total)
    y = build.load(b, j * k + t if layout[1] == "T" else t * n + j).cast(total)
    value = build.reduce(Op.ADD, x * y, t).cast(dt.float32)
    return build.sink(build.store(build.param(0, m * n), i * n + j, value))


def laid(a, b, layout):
    """Operands as they lie in memory."""
    pair = (a.T if layout[0] == "T" else a, b.T if layout[1] == "T" else b)
    return [np.ascontiguousarray(bits(x)) for x in pair]


def bound(a, b):
    """How far sums may be from the true ones, and these.

    Each of as many additions as there are products rounds a number that is no greater than the sum
    of their sizes, to nearest.
    """
    x, y = a.astype(np.float64), b.astype(np.float64)
    unit = (x.shape[1] + 2) * 2.0**-24
    return np.abs(x) @ np.abs(y) * unit / (1 - unit), x @ y


def parts(ast, target=SERVER):
    """Of what DOTs the kernel is made: 2, or nothing."""
    written = in_words(ast, target)
    verify_kernel(written)
    found = {u.arg.number for u in toposort([written]) if u.op is Op.DOT}
    assert len(found) < 2
    return found.pop() if found else None


@pytest.fixture(scope="module", params=RUNNABLE)
def run_on(request):
    """Runners for this process and for named targets, all of which multiply floats only."""
    return runner_on(request.param)


@pytest.fixture(scope="module")
def run_words():
    """A runner for this machine, whatever the target of this process."""
    return runner(machine())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sums_are_as_exact_as_additions_in_float32(run_on, build, rng, sizes, layout):
    m, n, k = sizes
    a, b = (cut(rng.standard_normal(s) * np.exp2(rng.integers(-9, 9, s))) for s in ((m, k), (k, n)))
    error, truth = bound(a, b)
    out = np.full((m, n), np.nan, np.float32)
    run_on(product(build, sizes, layout), [out, *laid(a, b, layout)])
    assert (np.abs(out - truth) <= error).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_numbers_are_exact(run_on, build, rng, layout):
    for sizes in ((48, 32, 64), (33, 20, 21), (5, 40, 77)):
        m, n, k = sizes
        a, b = (rng.integers(-99, 99, s).astype(np.float32) for s in ((m, k), (k, n)))
        for total in (dt.float32, dt.bfloat16):
            out = np.full((m, n), np.nan, np.float32)
            run_on(product(build, sizes, layout, total), [out, *laid(a, b, layout)])
            exact = a.astype(np.float64) @ b.astype(np.float64)
            if total is dt.float32:
                np.testing.assert_array_equal(out, exact)
            else:
                np.testing.assert_allclose(out, exact, rtol=2.0**-8)


def test_sums_of_equal_numbers_do_not_drift(run_on, build):
    """Where all terms round alike only shorter chains of additions help."""
    m, n, k = sizes = (48, 32, 16_000)
    x = float(cut(0.1))
    out = np.zeros((m, n), np.float32)
    a, b = np.full((m, k), x, np.float32), np.full((k, n), x, np.float32)
    run_on(product(build, sizes, "NT"), [out, *laid(a, b, "NT")])
    np.testing.assert_allclose(out, k * x * x, rtol=2e-5)


def test_what_is_multiplied_in_words(build):
    sizes = (64, 64, 64)
    for layout in LAYOUTS:
        for total in (dt.float32, dt.bfloat16):
            assert parts(product(build, sizes, layout, total)) == 2
            assert parts(product(build, sizes, layout, total), SHORT) == 2
    for target in (make() for make in TARGETS.values()):
        assert target.dot(dt.bfloat16) is None
        assert parts(product(build, sizes), target) is None
    # Bits alone say that these are bfloat16.
    for kinds in ((dt.bfloat16, dt.float32), (dt.float16, dt.bfloat16), (dt.int16, dt.bfloat16)):
        assert parts(product(build, sizes, kinds=kinds)) is None
        assert SERVER.dot(*kinds) is None
    # What is rounded on the way, or added up in more digits, is another number.
    for total in (dt.float16, dt.float64):
        assert parts(product(build, sizes, total=total)) is None
    assert parts(product(build, (ROWS - 1, 64, 64), "NN")) is None
    assert parts(product(build, (ROWS - 1, 64, 64), "NT")) == 2


def test_a_matrix_that_streams_is_read_once(build):
    """Few rows times a matrix whose rows lie in pages of their own: its sums are kept instead."""
    assert parts(product(build, (16, 4096, 4096), "NN")) is None
    assert parts(product(build, (16, 4096, 4096), "NT")) == 2
    assert parts(product(build, (128, 4096, 4096), "NN")) == 2
    assert parts(product(build, (16, 512, 512), "NN")) == 2


@pytest.mark.parametrize("kind", [dt.int16, dt.uint16, dt.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bits_that_are_said_to_be_bfloat16(run, build, rng, layout, kind):
    for sizes in ((40, 48, 33), (5, 40, 64)):
        m, n, k = sizes
        i, j, t = (build.range(size, number) for number, size in enumerate(sizes))
        a, b = build.param(1, m * k, kind), build.param(2, k * n, dt.bfloat16)
        x = build.load(a, t * m + i if layout[0] == "T" else i * k + t)
        x = UOp(Op.BITCAST, dt.bfloat16, (x,)).cast(dt.float32)
        y = build.load(b, j * k + t if layout[1] == "T" else t * n + j).cast(dt.float32)
        ast = build.sink(
            build.store(build.param(0, m * n), i * n + j, build.reduce(Op.ADD, x * y, t))
        )
        words = kind.is_int and (m >= ROWS or layout == "NT")
        assert parts(ast) == (2 if words else None)
        left, right = (rng.integers(-99, 99, s).astype(np.float32) for s in ((m, k), (k, n)))
        out = np.full((m, n), np.nan, np.float32)
        run(ast, [out, *laid(left, right, layout)])
        np.testing.assert_array_equal(out, left.astype(np.float64) @ right)


# Numbers that are none, none left, and too small ones ---------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(40, 48, 64), (40, 48, 33), (5, 40, 33)], ids=str)
def test_what_is_no_number_stays_where_it_is(run_on, build, rng, sizes, layout):
    m, n, k = sizes
    a, b = (rng.integers(1, 9, s).astype(np.float32) for s in ((m, k), (k, n)))
    a[1, k - 1], a[2, 0], a[3, k - 2], b[0, 4], b[k - 1, 5] = math.nan, math.inf, -math.inf, 0, 0
    a[4, k - 1] = 2.0**127
    out = np.zeros((m, n), np.float32)
    run_on(product(build, sizes, layout), [out, *laid(a, b, layout)])
    with np.errstate(all="ignore"):
        truth = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(out, truth)
    assert np.isnan(out[1]).all()
    assert np.isnan(out[2, 4])
    assert np.isinf(out[2, 5])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [1, 2, 8, 9, 33])
def test_sums_of_negative_zeros(run_on, build, layout, k):
    """What fills a word up changes no sign."""
    for m in (5, 40):
        a, b = np.full((m, k), -0.0, np.float32), np.ones((k, 48), np.float32)
        out = np.ones((m, 48), np.float32)
        run_on(product(build, (m, 48, k), layout), [out, *laid(a, b, layout)])
        assert (out == 0).all()
        assert np.signbit(out).all()
        a[:, k // 2] = 0.0
        run_on(product(build, (m, 48, k), layout), [out, *laid(a, b, layout)])
        assert (out == 0).all()
        assert not np.signbit(out).any()


def test_words_that_are_filled_up_change_no_sign(run_on, build):
    """Along one of several axes words may end past the end."""
    m, n, channels, taps = 40, 36, 5, 3
    i, j, s, t = (build.range(size, number) for number, size in enumerate((m, n, channels, taps)))
    a, b = build.param(1, channels * m * taps, dt.bfloat16), build.param(2, n * 15, dt.bfloat16)
    x = build.load(a, (s * m + i) * taps + t).cast(dt.float32)
    y = build.load(b, (j * channels + s) * taps + t).cast(dt.float32)
    value = build.reduce(Op.ADD, x * y, s, t)
    ast = build.sink(build.store(build.param(0, m * n), i * n + j, value))
    assert parts(ast) == 2
    left, right = np.full((channels, m, taps), -0.0), np.ones((n, channels, taps))
    out = np.ones((m, n), np.float32)
    run_on(ast, [out, bits(left), bits(right)])
    assert (out == 0).all()
    assert np.signbit(out).all()
    right *= -1
    left[2, :, 1] = 3
    run_on(ast, [out, bits(left), bits(right)])
    assert (out == -3).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(40, 48, 64), (40, 48, 33), (5, 40, 33)], ids=str)
def test_subnormal_numbers_are_themselves_or_nothing(run_on, build, rng, sizes, layout):
    m, n, k = sizes
    a, b = (cut(rng.standard_normal(s) * np.exp2(rng.integers(-136, -120, s)))
            for s in ((m, k), (k, n)))  # fmt: skip
    b = cut(b * 2.0**126)
    error, truth = bound(a, b)
    # Of each product what a subnormal factor has, and what each of two sums is too small for.
    error += k * LEAST * (np.abs(a).max() + np.abs(b).max() + 2)
    out = np.full((m, n), np.nan, np.float32)
    run_on(product(build, sizes, layout), [out, *laid(a, b, layout)])
    assert (np.abs(out - truth) <= error).all()


@own_words
@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_words_subnormal_numbers_are_zero(run_words, build, layout):
    """As the documentation of types says."""
    m, n, k = sizes = (40, 48, 33)
    for x, y, wanted in [
        (LEAST / 2, 2.0**20, 0.0), (-LEAST / 2, 2.0**20, -0.0), (LEAST, 1.0, k * LEAST),
        (LEAST / 2, math.inf, math.nan), (2.0**-70, 2.0**-70, 0.0),
    ]:  # fmt: skip
        a, b = np.full((m, k), x, np.float32), np.full((k, n), y, np.float32)
        out = np.ones((m, n), np.float32)
        run_words(product(build, sizes, layout), [out, *laid(a, b, layout)])
        np.testing.assert_array_equal(out, np.full((m, n), wanted, np.float32))


@pytest.mark.parametrize("sizes", [(0, 40, 40), (40, 0, 40), (40, 40, 0)], ids=str)
def test_nothing(run_on, build, rng, sizes):
    m, n, k = sizes
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    out = np.full((m, n), -7, np.float32)
    run_on(product(build, sizes), [out, *laid(a, b, "NN")])
    assert (out == 0).all()


# Order, and text ----------------------------------------------------------------------------------


def in_pairs(a, b):
    """The second product of each pair, then the first, each added by a fused multiply-add."""
    total = np.full((len(a), b.shape[1]), np.float32(-0.0))
    for k in range(0, a.shape[1], 2):
        for at in (k + 1, k):
            exact = a[:, at, None].astype(np.longdouble) * b[None, at] + total
            total = exact.astype(np.float32)
    return total


@own_words
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_one_instruction_adds(run_words, build, rng, layout):
    """One word: the second product and then the first, with one rounding."""
    sizes = m, n, k = 40, 48, 2
    shapes = (m, k), (k, n)
    a, b = (cut(rng.standard_normal(s) * np.exp2(rng.integers(-6, 6, s))) for s in shapes)
    out = np.zeros((m, n), np.float32)
    run_words(product(build, sizes, layout), [out, *laid(a, b, layout)])
    np.testing.assert_array_equal(out, in_pairs(a, b))


@pytest.mark.cases(1)
@own_words
@pytest.mark.parametrize("layout", ["NN", "NT"])
@pytest.mark.parametrize("sizes", [(40, 48, 330), (5, 40, 331)], ids=str)
def test_tiles_with_one_key_give_the_same_bits(build, rng, sizes, layout):
    m, n, k = sizes
    a, b = cut(rng.standard_normal((m, k))), cut(rng.standard_normal((k, n)))
    error, truth = bound(a, b)
    renderer, ast = LLVMRenderer(machine()), product(build, sizes, layout)
    info = renderer._nest(Analysis(ast))[0]
    found, shared = {}, 0
    for variant in [v.text for v in renderer.variants(ast)][:12]:
        out = np.zeros((m, n), np.float32)
        runner(machine(), variant)(ast, [out, *laid(a, b, layout)])
        assert (np.abs(out - truth) <= error).all()
        key = order_of_sums(nest_of(info, Tiling.parse(variant, info), machine()))
        shared += key in found
        np.testing.assert_array_equal(out, found.setdefault(key, out), err_msg=variant)
    assert shared


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
@pytest.mark.parametrize("target", [SERVER, SHORT], ids=["avx512", "avx2"])
def test_targets_compile_them(build, target, layout):
    for sizes in ((128, 1024, 64), (131, 257, 67), (3, 64, 64), (1, 5, 7)):
        assert "ret" in assembly(product(build, sizes, layout), target)


@pytest.mark.parametrize("target", [SERVER, SHORT], ids=["avx512", "avx2"])
def test_the_inner_loop_is_of_dot_products(build, target):
    inner = inner_loop(assembly(product(build, (128, 128, 128), "NT"), target), "vdpbf16ps")
    assert count(inner, "vdpbf16ps") >= 16
    assert not count(inner, "mm.*Spill")  # none of its sums waits on the stack


def test_sums_in_words_are_of_words_alone(build):
    """No panel holds wider numbers, and what bits stand for takes no arithmetic."""
    written = in_words(product(build, (64, 64, 64), "TN"), SERVER)
    arrays = [u for u in toposort([written]) if u.op is Op.LOCAL]
    assert len(arrays) == 2
    assert all(u.dtype is dt.int32 for u in arrays)
    [total] = [u for u in toposort([written]) if u.op is Op.REDUCE]
    assert total.dtype is dt.float32
    assert total.src[0].op is Op.DOT
