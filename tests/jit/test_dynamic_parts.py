"""Parts, diagonals and other sizes of axes whose size is known only at run time."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.nn.functional import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    interpolate,
)

N = krt.Variable("n", 4, 12)
ANY = krt.Variable("n", 0, 12)
SIZES = (4, 11)

#: name -> what to compute of a matrix of n rows and 6 columns
PARTS = {
    "split of another axis": lambda x: x.split(4, 1),
    "split by sizes": lambda x: x.split((2, x.shape[0] - 3, 1)),
    "split by halves": lambda x: x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2]),
    "split into one": lambda x: x.split(12),
    "split into two": lambda x: krt.cat([x, x[:4], x[:4], x[:1]]).split(12),
    "chunk of another axis": lambda x: x.chunk(4, 1),
    "two chunks": lambda x: x.chunk(2),
    "four chunks": lambda x: krt.cat([x, x[:4], x[:3]]).chunk(4),
    "chunks of a multiple": lambda x: x.repeat(3, 1).chunk(3),
    "tensor_split of another axis": lambda x: x.tensor_split(4, 1),
    "tensor_split": lambda x: x.tensor_split(3),
    "tensor_split at indices": lambda x: x.tensor_split([1, 4]),
    "tensor_split at sizes": lambda x: x.tensor_split([1, x.shape[0] // 2, -1]),
    "vsplit": lambda x: x.repeat(2, 1).vsplit(2),
    "vsplit at indices": lambda x: x.vsplit([3]),
    "unbind of another axis": lambda x: x.unbind(1),
    "diagonal": lambda x: (x @ x.T).diagonal(),
    "diagonal above": lambda x: (x @ x.T).diagonal(2),
    "diagonal below": lambda x: (x @ x.T).diagonal(-4),
    "diagonal of a fixed length": lambda x: x[:, :4].diagonal(),
    "diagonal of a wide matrix": lambda x: x.repeat(1, 2).diagonal(),
    "diagonal beyond": lambda x: x.diagonal(6),
    "diagonals of matrices": lambda x: (x @ x.T).expand(2, x.shape[0], -1).diagonal(1, 2, 1),
    "diag": lambda x: krt.diag(x @ x.T, 1),
    "trace": lambda x: (x @ x.T).trace(),
    "diagonal_scatter": lambda x: (x @ x.T).diagonal_scatter(x[1:, 0], -1),
}  # fmt: skip


def resized(**options):
    return lambda x: interpolate(x.expand(2, 1, *x.shape), **options)


IMAGES = {
    "size of its own": lambda x: resized(size=(x.shape[0], 5), mode="bilinear")(x),
    "one more": lambda x: resized(size=(x.shape[0] + 1, 5), mode="bicubic")(x),
    "two thirds": lambda x: resized(size=(x.shape[0] * 2 // 3, 6), mode="nearest-exact")(x),
    "from a fixed size": lambda x: resized(size=(x.shape[0], 6), mode="bilinear")(x[:4]),
    "doubled in size": lambda x: resized(size=(x.shape[0] * 2, 12))(x),
    "to one": resized(size=1, mode="bilinear", align_corners=True),
    "line": lambda x: interpolate(x[None], scale_factor=2, mode="linear"),
    "columns": lambda x: interpolate(x.T[None], scale_factor=1.5, mode="linear"),
    "batch": lambda x: interpolate(x[:, None], size=4, mode="linear", align_corners=True),
    "recomputed": resized(scale_factor=1.25, recompute_scale_factor=True, mode="bilinear"),
    "area": lambda x: resized(size=(x.shape[0], 4), mode="area")(x),
    "mean of all": lambda x: adaptive_avg_pool2d(x[None], 1),
    "mean of rows": lambda x: adaptive_avg_pool2d(x[None], (None, 3)),
    "mean of columns": lambda x: adaptive_avg_pool2d(x[None], (1, None)),
    "max of all": lambda x: adaptive_max_pool2d(x[None], 1),
    "max and place": lambda x: adaptive_max_pool1d(x.T[None], 1, return_indices=True),
}  # fmt: skip
for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
    for factor in (2, 0.5, 1.5, 1):
        IMAGES[f"{mode} {factor}"] = resized(scale_factor=factor, mode=mode)
    IMAGES[f"{mode} to a fixed size"] = resized(size=(5, 3), mode=mode)
for mode in ("bilinear", "bicubic"):
    IMAGES[f"{mode} of corners"] = resized(scale_factor=2, mode=mode, align_corners=True)


def several(found):
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", [*PARTS, *IMAGES])
def test_one_plan_gives_what_each_size_gives(name):
    f = {**PARTS, **IMAGES}[name]

    def both(x):
        def loss(x):
            return sum((y * y).sum() for y in several(f(x)) if y.dtype.is_float)

        return *several(f(x)), krt.func.grad(loss)(x)

    plan = krt.jit(both, dynamic={"x": {0: N}})
    rng = np.random.default_rng(0)
    for size in SIZES:
        x = krt.tensor(rng.standard_normal((size, 6)))
        found, wanted = plan(x), both(x)
        assert len(found) == len(wanted)
        for got, want in zip(found, wanted, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12, atol=1e-14)
    assert plan.retraces == 0


@pytest.mark.parametrize("name", ["two", "halves", "diagonal"])
def test_sizes_may_be_zero(name):
    f = {
        "two": lambda x: x.tensor_split(2), "diagonal": lambda x: (x @ x.T).diagonal(),
        "halves": lambda x: x.tensor_split([x.shape[0] // 2]),
    }[name]  # fmt: skip
    plan = krt.jit(f, dynamic={"x": {0: ANY}})
    for size in (0, 1, 5):
        x = krt.ones(size, 3)
        for got, want in zip(several(plan(x)), several(f(x)), strict=True):
            assert got.tolist() == want.tolist()


DOUBLE = krt.nn.ConvTranspose1d(3, 2, 2, stride=2)


def test_the_size_of_a_transposed_convolution_may_follow_the_input():
    plan = krt.jit(
        lambda x: DOUBLE(x.T[None], output_size=[2 * x.shape[0] + 1]), dynamic={"x": {0: N}}
    )
    for size in (4, 11):
        x = krt.randn(size, 3)
        got, want = plan(x).numpy(), DOUBLE(x.T[None], [2 * size + 1]).detach().numpy()
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
    assert plan.retraces == 0


def longer(x):
    return krt.cat([x, krt.ones(1, 3)])


OPEN = {
    "split: the size n of axis 0 is .* from 0 to 12, and the number of": lambda x: x.split(5),
    "chunk: the size n of axis 0 is .* from 0 to 12, and the number of": lambda x: x.chunk(3),
    r"split_size: \(1, n\) does not add up to n, the size": lambda x: x.split((1, x.shape[0])),
    r"split_size: \(5, n \+ -5\) does not add up": lambda x: x.split((5, x.shape[0] - 5)),
    "whether 3 lies within axis 0": lambda x: x.tensor_split([3]),
    "vsplit: cannot split the n elements of axis 0 into 2 equal parts": lambda x: x.vsplit(2),
    "unbind: axis 0 needs a fixed size, but its size n is known": lambda x: x.unbind(0),
    r"diagonal: the length of diagonal 0 of matrices of shape \(n, 3\)": lambda x: x.diagonal(),
    "scale_factor: 0.7 times the size n": lambda x: interpolate(x.T[None], scale_factor=0.7),
    "interpolate: axis 2 of n elements cannot be resized": lambda x: interpolate(x.T[None], size=5),
    "size: expected sizes of at least 1": lambda x: interpolate(x[None], size=x.shape[0]),
    "interpolate with antialias=True: axis 3 needs a fixed size": lambda x: interpolate(
        longer(x).T[None, None], size=3, mode="bilinear", antialias=True),
    "adaptive_avg_pool1d: expected at least 1 el": lambda x: adaptive_avg_pool1d(x.T[None], 1),
    "adaptive_avg_pool1d: axis 2 needs a fixed size": lambda x: adaptive_avg_pool1d(
        longer(x).T[None], 2),
    r"output_size: .* not n \+ 1, which is known only at run time": lambda x: adaptive_avg_pool1d(
        x[None], x.shape[0] + 1),
    r"output_size: whether 9 is in the range from n \* 2 to \(n \* 2\) \+ 1 is known": lambda x:
        DOUBLE(x.T[None], output_size=[9]),
    r"from n \* 2 to \(n \* 2\) \+ 1 for an input axis of n .* stride 2, not \(n \* 2\) \+ 2":
        lambda x: DOUBLE(x.T[None], output_size=[2 * x.shape[0] + 2]),
}  # fmt: skip


@pytest.mark.parametrize("message", OPEN)
def test_what_depends_on_the_size_is_refused(message):
    with pytest.raises(krt.ShapeError, match=message):
        krt.jit(OPEN[message], dynamic={"x": {0: ANY}})(krt.ones(5, 3))
