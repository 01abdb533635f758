"""Powers of integers: every bit of the exponent counts, results wrap, negative powers vanish."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def expected(base: int, exponent: int, kind: np.dtype) -> int:
    """Python's exact power, wrapped; a negative one as the quotient it stands for."""
    if exponent < 0:
        exact = {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    else:
        exact = pow(base, exponent, 1 << 8 * kind.itemsize)
    return int(np.array(exact % (1 << 8 * kind.itemsize), np.uint64).astype(kind))


def numbers(kind: np.dtype, rng: np.random.Generator) -> np.ndarray:
    info = np.iinfo(kind)
    edges = [0, 1, 2, 3, 5, info.max, info.max - 1, info.min, info.bits, info.bits - 1]
    edges += [info.min + 1, -1, -2, -3] if info.min else [info.max // 2 + 1]
    return np.concatenate([np.array(edges, kind), rng.integers(info.min, info.max, 10, kind)])


@pytest.mark.parametrize("name", TYPES)
def test_powers_of_tensors(name):
    kind = np.dtype(name)
    values = numbers(kind, np.random.default_rng(1))
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    want = [expected(int(a), int(b), kind) for a, b in zip(x, y, strict=True)]
    assert (krt.tensor(x) ** krt.tensor(y)).tolist() == want


@pytest.mark.parametrize("name", TYPES)
def test_powers_by_a_number(name):
    kind = np.dtype(name)
    x = numbers(kind, np.random.default_rng(2))
    exponents = [0, 1, 2, 3, 4, 7, kind.itemsize * 8, 100, 255, 300, 2**40, 2**62 + 12345, 3**50]
    results = [krt.tensor(x) ** e for e in exponents]
    krt.realize(*results)
    for e, got in zip(exponents, results, strict=True):
        assert got.dtype.name == name
        assert got.tolist() == [expected(int(a), e, kind) for a in x], e


def test_a_number_to_the_power_of_integers():
    y = np.array([-3, -1, 0, 1, 5, 63, 64], np.int64)
    for base in (-2, -1, 0, 1, 2, 3):
        got = (base ** krt.tensor(y)).tolist()
        assert got == [expected(base, int(e), y.dtype) for e in y]


@pytest.mark.parametrize("exponent", [-1, np.int64(-2)])
def test_a_negative_number_as_exponent_is_refused(exponent):
    with pytest.raises(krt.DTypeError, match="exponent: integers to the power -"):
        krt.tensor([2]) ** exponent
