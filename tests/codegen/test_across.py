"""Sums with vectors across what their results are contiguous along: weights of few inputs."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("outputs", [16, 17, 31, 64, 130])
@pytest.mark.parametrize("rows", [0, 1, 3, 64, 300])
def test_gradients_of_weights_of_few_inputs(inputs: int, outputs: int, rows: int) -> None:
    x = RNG.standard_normal((rows, inputs))
    g = RNG.standard_normal((rows, outputs))
    w, m = RNG.standard_normal((2, outputs, inputs))
    for dtype, rtol in (("float32", 2e-5), ("float64", 1e-12)):
        tx, tg, tw, tm = (krt.tensor(a.astype(dtype)) for a in (x, g, w, m))

        @krt.jit
        def step(tx, tg, tw, tm):
            slope = tg.T @ tx
            mean = tm * 0.9 + slope
            return slope, tw - mean / (mean.abs().sqrt() + 1), mean

        slope = g.astype(dtype).astype(float).T @ x.astype(dtype).astype(float)
        mean = m.astype(dtype) * 0.9 + slope
        expected = slope, w.astype(dtype) - mean / (np.sqrt(np.abs(mean)) + 1), mean
        for have, want in zip(step(tx, tg, tw, tm), expected, strict=True):
            np.testing.assert_allclose(have.numpy(), want, rtol=rtol, atol=rtol * 10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "int64"])
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_other_types(dtype: str, inputs: int) -> None:
    x, g = RNG.integers(-3, 4, (40, inputs)), RNG.integers(-3, 4, (40, 35))
    tx, tg = krt.tensor(x).to(dtype), krt.tensor(g).to(dtype)
    found = krt.jit(lambda tx, tg: tg.T @ tx)(tx, tg).to("float64").numpy()
    exact = g.T @ x
    if dtype == "int8":
        exact = exact.astype(np.int8)
    np.testing.assert_array_equal(found, exact)


def test_members_have_them_too() -> None:
    x, g, w = (RNG.standard_normal(s) for s in ((6, 50, 2), (6, 50, 1), (6, 32, 1)))
    tx, tg, tw = (krt.tensor(a.astype(np.float32)) for a in (x, g, w))
    keep = krt.tensor(RNG.random((6, 50, 32)) < 0.5)

    @krt.jit
    def slope(tx, tg, tw, keep):
        back = krt.where(keep, tg @ tw.mT, 0.0)
        return back.mT @ tx

    back = np.where(keep.numpy(), g @ w.swapaxes(1, 2), 0.0)
    np.testing.assert_allclose(
        slope(tx, tg, tw, keep).numpy(), back.swapaxes(1, 2) @ x, rtol=2e-5, atol=2e-5
    )


def test_vectors_go_along_the_outputs() -> None:
    x, g = krt.rand(4096, 2), krt.rand(4096, 32)
    product = krt.jit(lambda x, g: g.T @ x)
    (kernel,) = [launch.kernel for launch in product.profile(x, g) if launch.flops > 4096]
    lanes = kernel.target.vector_bits // 32
    assert f"vectors of {lanes}" in kernel.loops()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("parts", [2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 1000])
def test_numbers_that_are_put_side_by_side(rows: int, parts: int, dtype: str) -> None:
    """States of a few numbers each: no store is contiguous."""
    x = (RNG.standard_normal((rows, parts)) * 9).astype(dtype)

    def step(x):
        columns = x.unbind(-1)
        turned = [a * 3 - b * b for a, b in zip(columns, (*columns[1:], columns[0]), strict=True)]
        return krt.stack(turned, -1)

    wide = x.astype(np.float64)
    found = krt.jit(step)(x)
    np.testing.assert_allclose(
        found.numpy(), wide * 3 - np.roll(wide, -1, 1) ** 2, rtol=1e-5, atol=1e-4
    )


def test_vectors_go_along_what_is_put_side_by_side() -> None:
    state = krt.rand(4096, 4)

    def step(state):
        x, v, angle, spin = state.unbind(-1)
        turn = (angle.sin() - v.cos() * spin) / (1 + angle.cos())
        return krt.stack([x + v, v + turn, angle + spin, (spin + turn).exp()], -1)

    [kernel] = krt.jit(step).plan(state).kernels
    assert f"vectors of {kernel.target.vector_bits // 32}" in kernel.loops()


def test_copies_that_are_put_side_by_side() -> None:
    swap = krt.jit(lambda x: krt.stack([*reversed(x.unbind(-1))], -1))
    x = RNG.standard_normal((512, 4)).astype(np.float32)
    np.testing.assert_array_equal(swap(x).numpy(), x[:, ::-1])
