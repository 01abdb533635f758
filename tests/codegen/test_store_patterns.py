"""Kernels with several stores, each laid out another way, some accumulating, of open size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernelrt import dtype as dt
from kernelrt.backend.llvm.renderer import LLVMRenderer
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Variable, const

MOST = 40


class Stores:
    """A random kernel of stores over common ranges; `expected` says what it leaves behind."""

    def __init__(self, build, seed: int) -> None:
        rng = np.random.default_rng(seed)
        open_size = Variable("n", 1, MOST)
        fixed = [int(n) for n in rng.choice([1, 2, 3, 4, 16, 17], int(rng.integers(1, 3)))]
        self.sizes: list[int | None] = [None, *fixed]
        rng.shuffle(self.sizes)
        self.ranges = [
            build.range(open_size if n is None else n, i) for i, n in enumerate(self.sizes)
        ]
        self.most = [MOST if n is None else n for n in self.sizes]
        count = int(rng.integers(2, 5))
        self.plans = [
            (
                [int(a) for a in rng.permutation(len(self.sizes))],  # layout in memory
                not rng.integers(4),  # accumulates
                int(rng.integers(2)),  # elements before the first
            )
            for _ in range(count)
        ]
        total = int(np.prod(self.most)) + 1
        source = build.param(count, total)
        flat = self.flat(self.ranges, range(len(self.sizes)))
        stores = []
        for slot, (layout, adds, first) in enumerate(self.plans):
            index = self.flat(self.ranges, layout) + first
            value = build.load(source, flat) * 2.0**slot
            loops = self.ranges if adds else []
            stores.append(build.store(build.param(slot, total), index, value, *loops))
        self.ast = build.sink(*stores)
        self.total = total

    def flat(self, position, layout):
        """Flat index of `position` with the axes laid out in this order, outermost first."""
        index, step = None, 1
        for axis in reversed(list(layout)):
            part = position[axis] * step
            index = part if index is None else index + part
            step *= self.most[axis]
        return index

    def expected(self, before, source, n):
        after = [x.copy() for x in before]
        for place in itertools.product(*(range(n if s is None else s) for s in self.sizes)):
            x = source[self.flat(place, range(len(place)))]
            for slot, (layout, adds, first) in enumerate(self.plans):
                value = x * np.float32(2.0**slot)
                at = self.flat(place, layout) + first
                after[slot][at] = after[slot][at] + value if adds else value
        return after


@pytest.mark.parametrize("seed", range(60))
def test_stores_of_every_layout(run, build, seed):
    kernel = Stores(build, seed)
    rng = np.random.default_rng(seed)
    for n in (1, 2, 15, 16, 17, 33, MOST):
        source = rng.standard_normal(kernel.total).astype(np.float32)
        before = [rng.standard_normal(kernel.total).astype(np.float32) for _ in kernel.plans]
        got = [x.copy() for x in before]
        run(kernel.ast, [*got, source], n=n)
        for x, y in zip(got, kernel.expected(before, source, n), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("size", [64, 33], ids=str)
def test_zeros_beside_what_is_computed_are_vectors_too(run, build, rng, size):
    i, j, k = build.range(8, 0), build.range(32, 1), build.range(size, 2)
    out = build.param(0, 8 * (32 + size))
    value = build.load(build.param(1, 8 * 32), i * 32 + j) * 2.0
    row = i * (32 + size)
    zero = const(0.0, dt.float32)
    ast = build.sink(build.store(out, row + j, value), build.store(out, row + 32 + k, zero))
    outline = LLVMRenderer(DeviceSpec.avx512()).outline(ast)
    assert outline.count("vectors of 16") == 2
    x, found = rng.standard_normal((8, 32)).astype(np.float32), np.ones((8, 32 + size), np.float32)
    run(ast, [found, x])
    np.testing.assert_array_equal(found, np.pad(2 * x, ((0, 0), (0, size))))
