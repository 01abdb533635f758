"""Numbers that are known when a graph is scheduled give what they would give as data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernelrt as krt

SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, 3.0, -3.0, 1e10, np.inf, -np.inf, np.nan]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal with the signs of zeros; any NaN is one."""
    signs = np.isnan(a) | (np.signbit(a) == np.signbit(b))
    return np.array_equal(a, b, equal_nan=True) and bool(signs.all())


def forms(value: float, dtype: str, size: int) -> list[krt.Tensor]:
    """`value` as a constant of the graph, and as data."""
    return [
        krt.full((size,), value, dtype=dtype),
        krt.tensor([value] * size, dtype=dtype).realize(),
    ]


@pytest.mark.cases(1)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema(name: str, dtype: str) -> None:
    for a, b in itertools.product(SPECIAL, repeat=2):
        truth = getattr(np, name)(a, b)
        for size in (1, 9):
            pairs = list(itertools.product(forms(a, dtype, size), forms(b, dtype, size)))
            found = [getattr(x, name)(y).double().numpy() for x, y in pairs]
            found += [getattr(x, name)(b).double().numpy() for x in forms(a, dtype, size)]
            assert all(same(found[0], other) for other in found), (a, b)
            wanted = krt.tensor(truth, dtype=dtype).double().item()
            np.testing.assert_array_equal(found[0], np.full(size, wanted))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers(dtype: str) -> None:
    exponents = [0.5, -0.5, 1.5, -1.0, 2.0, 3.0, -3.0, 2.0**60, 1e300, -0.0]
    exponents += [np.inf, -np.inf, np.nan]
    for a, b in itertools.product(SPECIAL, exponents):
        with np.errstate(over="ignore"):
            b = float(np.dtype(dtype).type(b))  # noqa: PLW2901
        folded, *others = (
            x.pow(y).numpy()
            for x, y in itertools.product(forms(a, dtype, 1), forms(b, dtype, 1))
        )
        for other in others:
            np.testing.assert_allclose(other, folded, rtol=1e-6, err_msg=f"{a} ** {b}")
            assert np.isnan(other[0]) or np.signbit(other[0]) == np.signbit(folded[0]), (a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["int32", "uint32"])
def test_integers_become_narrow_floats_as_in_steps(dtype: str, kind: str) -> None:
    numbers = np.array([2**30 + 2**22 + 1, 2**11 + 1, 2**24 + 2**16 + 1, 4097], kind)
    data = krt.tensor(numbers)
    fused = data.cast("float64").cast(dtype).double()
    steps = data.cast("float64").realize().cast(dtype).double()
    assert fused.tolist() == steps.tolist()


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
#: Beside the ends of integer types, and where float32 and float64 end to have all of them.
ENDS = [float(s * 2**k + d) for s in (1, -1) for k in (7, 8, 15, 16, 31, 32) for d in (-1, 0, 0.5)]
ENDS += [float(s * 2**k) for s in (1, -1) for k in (24, 53, 63, 64, 65)]


@pytest.mark.parametrize("to", [*INTEGERS, "bool"])
@pytest.mark.parametrize("of", FLOATS)
def test_floats_become_integers(of: str, to: str) -> None:
    numbers = [*SPECIAL, *ENDS, 5e-324]
    data = krt.tensor(numbers, dtype=of).realize().cast(to).tolist()
    # One graph: of many that are alike constants become data.
    folded = krt.stack([krt.full((), v, dtype=of).cast(to) for v in numbers]).tolist()
    assert folded == data


@pytest.mark.parametrize("to", [*INTEGERS, *FLOATS, "bool"])
@pytest.mark.parametrize("of", INTEGERS)
def test_integers_become_numbers(of: str, to: str) -> None:
    info = np.iinfo(of)
    numbers = {s * (2**k) + d + t for s in (1, -1) for k in range(0, 64, 3)
               for d in (-1, 0, 1) for t in (0, (2**k) >> 24, (2**k) >> 53)}  # fmt: skip
    numbers = sorted(n for n in numbers | {info.min, info.max} if info.min <= n <= info.max)
    data = krt.tensor(np.array(numbers, of)).realize().cast(to).tolist()
    folded = krt.stack([krt.full((), n, dtype=of).cast(to) for n in numbers]).tolist()
    assert folded == data


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_powers_are_those_of_data(dtype: str) -> None:
    data = np.random.default_rng(3).normal(size=200).astype(dtype)
    data = np.concatenate([data, np.array(SPECIAL, dtype)])
    x = krt.tensor(data)
    exponents = [-1.0, 0.0, 1.0, 2.0, 3.0]
    constants, arrays = zip(*(forms(e, dtype, data.size) for e in exponents), strict=True)
    # One graph each, in which constants stay such.
    plain, constant, computed = (
        krt.stack([x.pow(e) for e in kind]).numpy() for kind in (exponents, constants, arrays)
    )
    assert same(plain, constant)
    np.testing.assert_allclose(computed, plain, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("least", [0, 1])
def test_sums_keep_the_sign_of_zero_whatever_the_bounds(least: int) -> None:
    n = krt.Variable("n", least, 9)
    total = krt.jit(lambda x: x.sum(0), dynamic={"x": {0: n}})
    for value in (-0.0, 0.0, 2.0):
        data = np.full((3, 2), value, np.float32)
        assert same(total(data).numpy(), krt.tensor(data).sum(0).numpy())
    if not least:
        assert same(total(np.zeros((0, 2), np.float32)).numpy(), np.zeros(2, np.float32))
