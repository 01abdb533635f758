"""Matrices of members that products walk again and again: the next member's are asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.backend.llvm import LLVMRenderer
from kernelrt.device.spec import DeviceSpec

RNG = np.random.default_rng(23)
TARGET = LLVMRenderer(replace(DeviceSpec.avx512(), l1_bytes=48 << 10, l2_bytes=1 << 20))


def loops_of(a: krt.Tensor, b: krt.Tensor) -> str:
    plan = krt.jit(lambda a, b: a.mT @ b).plan(a, b)
    return "\n".join(TARGET.outline(k.ast) for k in plan.kernels)


@pytest.mark.parametrize("members", [1, 3, 24])
@pytest.mark.parametrize(("rows", "left", "right"), [(512, 64, 64), (500, 65, 50), (300, 40, 70)])
def test_products_of_members(members: int, rows: int, left: int, right: int) -> None:
    a = RNG.standard_normal((members, rows, left)).astype(np.float32)
    b = RNG.standard_normal((members, rows, right)).astype(np.float32)
    found = krt.jit(lambda a, b: a.mT @ b)(krt.tensor(a), krt.tensor(b)).numpy()
    want = a.astype(float).swapaxes(1, 2) @ b.astype(float)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)


def test_operands_that_no_first_cache_holds() -> None:
    large, small = krt.rand(64, 512, 64), krt.rand(256, 32, 64)
    assert "for later" in loops_of(large, large)
    assert "for later" not in loops_of(small, small)
