"""Matrices of members that products walk again and again: the next member's are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.device.spec import host

RNG = np.random.default_rng(23)


def loops_of(a: krt.Tensor, b: krt.Tensor) -> str:
    product = krt.jit(lambda a, b: a.mT @ b)
    return "\n".join(k.kernel.loops() for k in product.profile(a, b))


@pytest.mark.parametrize("members", [1, 3, 24])
@pytest.mark.parametrize(("rows", "left", "right"), [(512, 64, 64), (500, 65, 50), (300, 40, 70)])
def test_products_of_members(members: int, rows: int, left: int, right: int) -> None:
    a = RNG.standard_normal((members, rows, left)).astype(np.float32)
    b = RNG.standard_normal((members, rows, right)).astype(np.float32)
    found = krt.jit(lambda a, b: a.mT @ b)(krt.tensor(a), krt.tensor(b)).numpy()
    want = a.astype(float).swapaxes(1, 2) @ b.astype(float)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)


def test_operands_that_no_first_cache_holds() -> None:
    device = host()
    most = device.l2_bytes // 8
    if most <= device.l1_bytes:
        pytest.skip("caches of one size")
    large, small = krt.rand(64, most // 256, 64), krt.rand(256, 32, 64)
    assert "for later" in loops_of(large, large)
    assert "for later" not in loops_of(small, small)
