"""A kernel's arguments are those of its AST, whatever its code turns out to need of them."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op, Variable

EXPONENTS = (0.0, -0.0, 1.0, 0.5, -1.0, 2.0, 3.0, 2.5, -2.0)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_operands_that_fall_away_keep_their_slots(run, build, exponent):
    size, first, last = 9, Variable("first", 0, 3), Variable("last", 0, 3)
    r = build.range(size, 0)
    a, b, c = (build.param(slot, size + 3) for slot in (1, 2, 3))
    x, y = build.load(a, r + first), build.load(b, r + last)
    power = x.alu(Op.POW, x.const_like(exponent))
    always = r.alu(Op.LE, r).alu(Op.WHERE, y, x)
    value = power + always + build.load(c, r) * 0.0
    ast = build.sink(build.store(build.param(0, size), r, value))
    program = LLVMRenderer(DeviceSpec.avx512()).render(ast)
    assert program.buf_count == 4
    assert list(program.var_names) == ["first", "last"]
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2, size + 3).astype(np.float32) for _ in range(3)]
    out = np.zeros(size, np.float32)
    run(ast, [out, *arrays], first=1, last=3)
    expected = arrays[0][1 : 1 + size].astype(np.float64) ** exponent + arrays[1][3 : 3 + size]
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dtype", [dt.float16, dt.float32, dt.float64], ids=str)
def test_powers_with_a_constant_exponent(exponent, dtype):
    x = np.array([2.0, 1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, -3.0], dt.to_numpy(dtype))
    with np.errstate(all="ignore"):
        # NumPy takes the square root where the exponent is the scalar 0.5; it differs for -inf.
        expected = np.power(x.astype(np.float64), np.full(x.shape, exponent))
        by_number = x.astype(np.float64) ** exponent
        summed = np.abs(x[:3].astype(np.float64)) ** exponent
    tensor = krt.tensor(x)
    exponents = krt.full(x.shape, exponent, dtype=dtype)
    np.testing.assert_allclose((tensor**exponents).numpy(), expected, rtol=1e-3)
    np.testing.assert_allclose(krt.jit(lambda a: a**exponent)(x).numpy(), by_number, rtol=1e-3)
    got = krt.jit(lambda a: (a[:3].abs() ** exponent).sum())(x)
    np.testing.assert_allclose(got.numpy(), summed.sum(), rtol=2e-3)
