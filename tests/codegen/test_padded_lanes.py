"""Elementwise ops beside lanes that padding and joining fill: neither may change the other."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

SPECIAL = [2.0, -0.0, 0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 4.0, 0.5, -3.0, 1e-40, 7.0]

UNARY = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "square": np.square, "isnan": np.isnan,
    "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "maximum": np.maximum, "minimum": np.minimum, "lt": np.less, "eq": np.equal,
}  # fmt: skip
#: Less than a vector, more than one, and all but whole ones.
KINDS = [(1, np.float32), (3, np.float32), (17, np.float32), (3, np.float64), (5, np.float16)]


class Ours:
    """Padding, joining and conversion of tensors; :class:`Theirs` does it to arrays."""

    def pad(self, x, before, after):
        return x.pad((before, after))

    def cat(self, *parts):
        return krt.cat(list(parts))

    def cast(self, x, like):
        return x.cast(like.dtype)


class Theirs:
    def pad(self, x, before, after):
        return np.pad(x, (before, after))

    def cat(self, *parts):
        return np.concatenate(parts)

    def cast(self, x, like):
        return x.astype(like.dtype)


def forms(lib, op, *operands):
    """`op` inside, outside and between padding and joining."""
    inner = op(*operands)
    padded = [lib.pad(x, 0, 2) for x in operands]
    return [
        lib.pad(inner, 0, 2),
        lib.pad(inner, 3, 0),
        lib.pad(inner, 1, 1),
        lib.pad(op(*(lib.pad(x, 1, 2) for x in operands)), 1, 1),
        op(*padded),
        op(*padded)[: inner.shape[0]],
        lib.cat(inner, inner),
        lib.cat(lib.pad(operands[0], 0, 1), lib.cast(inner, operands[0])),
        lib.cat(lib.cast(op(*padded), operands[0]), operands[-1]),
        lib.pad(op(*(x[1:] for x in operands)), 2, 3),
    ]


def check(op, ours, *arrays):
    got = krt.jit(lambda *xs: tuple(forms(Ours(), ours, *xs)))(*arrays)
    wide = [a.astype(np.float64) if a.dtype == np.float16 else a for a in arrays]
    with np.errstate(all="ignore"):
        expected = forms(Theirs(), op, *wide)
    tolerance = 2e-3 if arrays[0].dtype == np.float16 else 1e-6
    for number, (x, y) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_allclose(
            x.numpy().astype(y.dtype), y, rtol=tolerance, atol=1e-7, err_msg=f"form {number}"
        )


def operands(dtype, size, count):
    rng = np.random.default_rng(size)
    least = float(np.finfo(dtype).smallest_normal)
    values = np.array([x for x in SPECIAL if x == 0 or not abs(x) < least], dtype)
    many = np.resize(values, max(size, len(values)))
    drawn = [rng.permutation(many)[:size] for _ in range(count)]
    drawn[0][0] = 2.0
    return drawn


@pytest.mark.parametrize(("size", "dtype"), KINDS)
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name, size, dtype):
    check(UNARY[name], lambda x: getattr(x, name)(), *operands(dtype, size, 1))


@pytest.mark.parametrize(("size", "dtype"), KINDS)
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name, size, dtype):
    check(BINARY[name], lambda x, y: getattr(x, name)(y), *operands(dtype, size, 2))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_quotients_and_remainders_of_whole_numbers(name, size, dtype):
    rng = np.random.default_rng(size)
    x, y = (rng.integers(1, 9, size).astype(dtype) for _ in range(2))
    function = {"floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b}[name]
    check(getattr(np, name), function, x, y)


@pytest.mark.cases(12)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("total", [7, 11, 13, 14, 15, 22, 30])
@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_whole_vectors_beyond_the_end_are_zero(size, total, dtype):
    """The last vector of a padded line may lie past the data, where nothing may be read."""
    memory = np.full(64, 7, dtype)  # what lies behind the data
    x = memory[:size]
    x[:] = np.arange(1, size + 1)
    y = np.full((2, total), 3, dtype)
    got = krt.jit(lambda x, y: krt.cat([x.reshape(1, -1).pad((0, total - size)), y]))(x, y)
    expected = np.concatenate([np.pad(x, (0, total - size))[None], y])
    np.testing.assert_array_equal(got.numpy(), expected)
