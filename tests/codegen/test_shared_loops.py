"""Several reductions over the same loops, each walking memory in a way of its own."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt
from kernelrt.device.costs import costs_of
from kernelrt.device.spec import DeviceSpec
from kernelrt.ir import Op
from kernelrt.loops.analysis import Analysis, kernel_cost
from kernelrt.loops.passes.fuse_loops import merge_passes
from kernelrt.loops.tile_heuristic import choose

SIZES = (1, 2, 3, 4, 5, 8, 15, 16, 17, 33)


class Terms:
    """A sum of reductions over common axes, as a function of arrays and in float64."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        rank = int(self.rng.integers(1, 4))
        self.shape = tuple(int(n) for n in self.rng.choice(SIZES[: 11 - 2 * rank], rank))
        count = int(self.rng.integers(1, rank + 1))
        self.axes = tuple(sorted(int(a) for a in self.rng.choice(rank, count, replace=False)))
        self.arrays: list[np.ndarray] = []
        self.terms = [
            ([self.factor() for _ in range(self.rng.integers(1, 4))], self.reducer())
            for _ in range(self.rng.integers(2, 5))
        ]

    def reducer(self) -> str:
        return str(self.rng.choice(["sum", "sum", "sum", "amax", "amin"]))

    def factor(self):
        """A view of a new or an old array, broadcast to the common shape."""
        rank = len(self.shape)
        kept = [bool(self.rng.integers(3)) for _ in range(rank)]
        order = [int(a) for a in self.rng.permutation(rank)]
        small = tuple(n if k else 1 for n, k in zip(self.shape, kept, strict=True))
        first = [int(self.rng.integers(2)) for _ in range(rank)]
        step = [int(self.rng.choice([1, 1, 2, 3])) for _ in range(rank)]
        laid = tuple(first[a] + step[a] * small[a] for a in order)
        flipped = [a for a in range(rank) if not self.rng.integers(6)]
        held = len(self.arrays)
        self.arrays.append(self.rng.uniform(-1, 1, laid).astype(np.float32))
        back = tuple(int(a) for a in np.argsort(order))
        window = tuple(
            slice(f, f + s * n, s) for f, s, n in zip(first, step, small, strict=True)
        )

        def view(arrays, library):
            x = arrays[held]
            x = x.permute(*back) if library is krt else x.transpose(back)
            x = x[window]
            if flipped:
                x = x.flip(flipped) if library is krt else np.flip(x, flipped)
            return x.expand(*self.shape) if library is krt else np.broadcast_to(x, self.shape)

        return view

    def __call__(self, arrays, library):
        total = 0.0
        for factors, reducer in self.terms:
            value = 1.0
            for view in factors:
                value = view(arrays, library) * value
            if library is krt:
                total = getattr(value, reducer)(self.axes) + total
            else:
                total = getattr(np, reducer)(value, self.axes) + total
        return total


@pytest.mark.parametrize("seed", range(150))
def test_reductions_of_different_access(seed):
    terms = Terms(seed)
    expected = terms([a.astype(np.float64) for a in terms.arrays], np)
    got = krt.jit(lambda *arrays: terms(arrays, krt))(*terms.arrays).numpy()
    size = np.prod([terms.shape[a] for a in terms.axes])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-6 * size)


def test_vectors_of_a_nest_run_along_one_range(build):
    # Two sums over the same loops, one contiguous along the outer, one along the inner.
    i, j, p, q = (build.range(n, k) for k, n in enumerate((16, 32, 16, 32)))
    a, b = build.param(1, 16), build.param(2, 512)
    first = build.reduce(Op.ADD, build.load(a, i) * build.load(a, i), i, j)
    second = build.reduce(Op.ADD, build.load(b, p * 32 + q) * build.load(a, p), p, q)
    zero = i.const_like(0)
    ast = merge_passes(build.sink(build.store(build.param(0, 1), zero, first + second)))
    info = Analysis(ast)
    assert len({u.src[1:] for u in info.reduces}) == 1
    target = DeviceSpec.avx512()
    tiling = choose(info, target, kernel_cost(info, info, costs_of(target)))
    wide = [r for r in info.reduces[0].src[1:] if tiling.tile(r).lanes > 1]
    assert len(wide) == 1


def gradients(torch, function, *arrays):
    """Gradients of ``function(library, *tensors)`` here and in float64."""
    ours = [krt.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    function(krt, *ours).backward()
    function(torch, *theirs).backward()
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("norm", ["rms_norm", "var", "layer_norm"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 5), (4, 16), (5, 17), (2, 33), (7, 2), (1, 7)])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_gradient_of_a_repeated_and_normalized_value(norm, shape, repeats):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape).astype(np.float32)
    c = rng.standard_normal((shape[0], shape[1] * repeats)).astype(np.float32)

    def loss(library, x):
        y = x.repeat_interleave(repeats, 1)
        if norm == "var":
            y = y.var(-1).sum() * 3 + (y * y.var(-1, keepdim=True)).sum()
        elif library is krt:
            y = getattr(y, norm)(y.shape[-1], eps=1e-5)
        else:
            y = getattr(torch.nn.functional, norm)(y, y.shape[-1:], eps=1e-5)
        weight = krt.tensor(c) if library is krt else torch.tensor(c, dtype=torch.float64)
        return (y * weight).sum()

    gradients(torch, loss, x)


@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 4), (2, 3, 8, 8), (1, 2, 2, 2), (3, 2, 6, 4), (2, 5, 5, 7), (4, 1, 16, 16)]
)
def test_gradient_of_pooled_batch_norm(shape):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype(np.float32)
    c = rng.standard_normal((*shape[:2], shape[2] // 2, shape[3] // 2)).astype(np.float32)

    def loss(library, x):
        if library is krt:
            y = x.batch_norm(None, None, training=True).max_pool2d(2)
            return (y * krt.tensor(c)).sum()
        y = torch.nn.functional.batch_norm(x, None, None, training=True)
        y = torch.nn.functional.max_pool2d(y, 2)
        return (y * torch.tensor(c, dtype=torch.float64)).sum()

    gradients(torch, loss, x)


@pytest.mark.parametrize("seed", range(40))
def test_reductions_that_use_each_other(run, build, seed):
    """Sums of this length or that, each using some before it: who shares a loop is a puzzle."""
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.choice(SIZES, 2, replace=False)]
    totals, expected, arrays = [], [], []
    for i in range(int(rng.integers(3, 10))):
        size = int(rng.choice(sizes))
        r = build.range(size, i)
        arrays.append(rng.uniform(-1, 1, size).astype(np.float32))
        value, truth = build.load(build.param(i + 1, size), r), arrays[-1].astype(np.float64)
        for j in range(i):
            if not rng.integers(3):
                value, truth = value * totals[j] + 0.5, truth * expected[j] + 0.5
        totals.append(build.reduce(Op.ADD, value * 0.25, r))
        expected.append((truth * 0.25).sum())
    out = np.zeros(1, np.float32)
    at = totals[0].const_like(0).cast(dt.int64)
    ast = build.sink(build.store(build.param(0, 1), at, sum(totals[1:], totals[0])))
    run(ast, [out, *arrays])
    np.testing.assert_allclose(out[0], sum(expected), rtol=1e-4, atol=1e-4)
