"""Operands that are copied because a product would read them across their rows."""

from __future__ import annotations

import dataclasses

import pytest

import kernelrt as krt
from kernelrt.device.spec import DeviceSpec
from kernelrt.schedule import schedule

AVX2 = DeviceSpec.avx2()
AVX512 = dataclasses.replace(DeviceSpec.avx512(), l2_bytes=AVX2.l2_bytes)


def kernels(spec, m, k, n, dtype="float32", batch=()):
    """Kernels of ``a.T @ b`` for `a` of (k, m)."""
    a = krt.zeros(*batch, k, m, dtype=dtype).contiguous().realize()
    b = krt.zeros(*batch, k, n, dtype=dtype).contiguous().realize()
    return len(schedule([(a.mT @ b).uop], [], device=spec).kernels)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("sizes", [(512, 512, 512), (768, 768, 768), (1024, 1024, 256)])
def test_rows_are_copied_for_16_registers(sizes, batch, dtype):
    assert kernels(AVX2, *sizes, dtype=dtype, batch=batch) == 2
    assert kernels(AVX512, *sizes, dtype=dtype, batch=batch) == 1


@pytest.mark.parametrize("sizes", [
    (512, 512, 64),  # too few columns to pay for the copy
    (512, 64, 512),  # few lines, which stay in the L2 cache
    (784, 128, 512), (17, 512, 512),  # lines that map to many sets
])  # fmt: skip
def test_rows_that_a_cache_holds_are_not_copied(sizes):
    assert kernels(AVX2, *sizes) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32"])
def test_other_types_are_not_copied(dtype):
    assert kernels(AVX2, 512, 512, 512, dtype) == 1


def test_rows_along_the_depth_are_not_copied():
    a = krt.zeros(512, 512).contiguous().realize()
    assert len(schedule([(a @ a).uop, (a @ a.mT).uop], [], device=AVX2).kernels) == 2
