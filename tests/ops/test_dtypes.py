"""Promotion, casts and integer arithmetic, against NumPy and torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import dtype as dt

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
         "float64"]  # fmt: skip
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def make(name, shape=(2,)):
    return krt.ones(*shape, dtype=name)


@pytest.mark.parametrize("shapes", [((2,), (2,)), ((2,), ()), ((), (2,))])
def test_promotion_of_two_tensors_is_that_of_torch(shapes):
    torch = pytest.importorskip("torch")
    for a, b in itertools.product(NAMES, NAMES):
        x, y = (torch.ones(s, dtype=getattr(torch, n)) for n, s in zip((a, b), shapes, strict=True))
        ours = (make(a, shapes[0]) * make(b, shapes[1])).dtype
        assert ours.name == str((x * y).dtype).split(".")[1], (a, b, shapes)


@pytest.mark.parametrize("number", [True, 3, 2.5])
def test_promotion_with_numbers_is_that_of_torch(number):
    torch = pytest.importorskip("torch")
    for a in NAMES:
        peer = torch.ones(2, dtype=getattr(torch, a)) * number
        assert (make(a) * number).dtype.name == str(peer.dtype).split(".")[1]
        assert (number * make(a)).dtype is (make(a) * number).dtype


def test_division_of_integers_gives_floats():
    assert (make("int32") / make("int64")).dtype is krt.float32
    assert (make("bool") / 2).dtype is krt.float32
    assert (make("float64") / make("int64")).dtype is krt.float64
    np.testing.assert_array_equal((krt.tensor([1, 2]) / 4).numpy(), np.float32([0.25, 0.5]))


@pytest.mark.parametrize("name", ["int32", "uint8", "float16", "float64"])
@pytest.mark.parametrize("x", [None, "int64", "float64"])
@pytest.mark.parametrize("function", [krt.trapezoid, krt.cumulative_trapezoid])
def test_integrals_of_no_points_have_the_dtype_of_others(function, x, name):
    kinds = set()
    for n in (0, 1, 3):
        places = None if x is None else make(x, (n,))
        kinds.add(function(make(name, (2, n)), places).dtype)
        kinds.add(function(make(name, (n, 2)), places, dim=0).dtype)
    assert len(kinds) == 1
    assert kinds.pop().is_float


def test_comparisons_give_bools():
    x, y = krt.tensor([1.0, 2.0, np.nan]), krt.tensor([2, 2, 2])
    for got, expected in (
        (x < y, [True, False, False]), (x <= y, [True, True, False]), (x > y, [False] * 3),
        (x >= y, [False, True, False]), (x == y, [False, True, False]),
        (x != y, [True, False, True]), (y > 1, [True] * 3), (x == 1, [True, False, False]),
    ):  # fmt: skip
        assert got.dtype is krt.bool_
        assert got.tolist() == expected


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arithmetic_wraps_and_floors_as_in_numpy(name):
    info = np.iinfo(name)
    a = np.array([info.min, info.max, 7, 13, info.max], name)
    b = np.array([3, 2, 5, 4, info.max], name)
    if info.min < 0:
        a[2], b[3] = -7, -4
    x, y = krt.tensor(a), krt.tensor(b)
    with np.errstate(over="ignore"):
        expected = [a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, ~a, np.minimum(a, b),
                    np.maximum(a, b), -a]  # fmt: skip
    results = [x + y, x - y, x * y, x // y, x % y, x & y, x | y, x ^ y, ~x, x.minimum(y),
               x.maximum(y), -x]  # fmt: skip
    krt.realize(*results)
    for got, value in zip(results, expected, strict=True):
        assert got.dtype.name == name
        np.testing.assert_array_equal(got.numpy(), value)


def test_division_by_zero_of_integers_is_zero():
    x, zero = krt.tensor([5, -5, 0]), krt.tensor([0, 0, 0])
    assert (x // zero).tolist() == [0, 0, 0]
    assert (x % zero).tolist() == [0, 0, 0]


def test_division_modes():
    a, b = np.array([-7, 7, -8, 6]), np.array([2, -2, 4, 4])
    x, y = krt.tensor(a), krt.tensor(b)
    assert x.div(y, rounding_mode="trunc").tolist() == np.trunc(a / b).astype(int).tolist()
    assert x.div(y, rounding_mode="floor").tolist() == (a // b).tolist()
    assert x.float().div(y, rounding_mode="trunc").tolist() == np.trunc(a / b).tolist()


def test_shifts():
    x = krt.tensor([1, 2, 255], dtype="int32")
    assert (x << 3).tolist() == [8, 16, 2040]
    assert (x >> 1).tolist() == [0, 1, 127]


@pytest.mark.parametrize("exponent", [0, 1, 2, 5, 10])
def test_integer_powers(exponent):
    a = np.array([-3, 0, 2, 7])
    assert (krt.tensor(a) ** exponent).tolist() == (a**exponent).tolist()


def test_integer_powers_of_tensors():
    base, exponent = krt.tensor([2, -1, 3, 1, 0, 2]), krt.tensor([10, -3, 4, -2, 0, -1])
    assert (base**exponent).tolist() == [1024, -1, 81, 1, 1, 0]


@pytest.mark.parametrize("target", [n for n in NAMES if n != "bfloat16"])
def test_casts(target):
    a = np.array([-2.7, -0.0, 0.4, 1.0, 3.9, 100.0])
    if target.startswith("u"):
        a = np.abs(a)
    got = krt.tensor(a).cast(target)
    np.testing.assert_array_equal(got.numpy(), a.astype(target))
    np.testing.assert_array_equal(got.cast("float64").numpy(), a.astype(target).astype("float64"))


def test_bfloat16_rounds_to_nearest_even():
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(0).standard_normal(100).astype(np.float32) * 1e3
    a[:4] = [np.inf, -np.inf, 1.00390625, 1.01171875]
    got = krt.tensor(a).bfloat16().float().numpy()
    np.testing.assert_array_equal(got, torch.tensor(a).bfloat16().float().numpy())
    assert krt.tensor([1.5], dtype="bfloat16").tolist() == [1.5]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_narrow_floats_accumulate_in_float32(name):
    x = krt.full((4096,), 1.0, dtype=name)
    assert x.sum().item() == 4096
    assert (x @ x).item() == 4096
    assert x.mean().item() == 1


def test_sums_of_integers_and_bools_are_int64():
    x = krt.full((300,), 200, dtype="uint8")
    assert (x.sum().dtype, x.sum().item()) == (krt.int64, 60000)
    assert krt.tensor([True, False, True]).sum().item() == 2
    assert krt.tensor([2, 3]).prod().item() == 6
    assert x.sum(dtype="float32").dtype is krt.float32


def test_named_casts():
    x = krt.tensor([1.9, 0.0])
    assert [x.int().dtype, x.long().dtype, x.bool().dtype, x.half().dtype, x.double().dtype] == [
        krt.int32, krt.int64, krt.bool_, krt.float16, krt.float64,
    ]  # fmt: skip
    assert x.to(krt.float64).dtype is x.to("cpu", dtype="float64").dtype is krt.float64
    assert x.bool().tolist() == [True, False]
    assert x.type_as(krt.tensor(1)).dtype is krt.int64


def test_bitcast():
    a = np.float32([1.0, -2.5])
    assert krt.tensor(a).bitcast("int32").tolist() == a.view(np.int32).tolist()


def test_logic():
    x, y = krt.tensor([True, True, False]), krt.tensor([True, False, False])
    assert (x & y).tolist() == [True, False, False]
    assert (x + y).tolist() == [True, True, False]
    assert (x * y).tolist() == [True, False, False]
    assert x.logical_and(krt.tensor([0, 3, 1])).tolist() == [False, True, False]
    assert x.logical_or(y).tolist() == [True, True, False]
    assert x.logical_not().tolist() == [False, False, True]
    assert (x.any().item(), x.all().item(), (~x).any().item()) == (True, False, True)


@pytest.mark.cases(len(dt.ALL))
@pytest.mark.parametrize("dtype", dt.ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("jitted", [False, True])
def test_all_and_any_of_no_elements(dtype, jitted):
    def reduce(x):
        return x.all(), x.any(), x.all(0), x.any(0), x.all(1), x.any(1)

    x = krt.zeros(3, 0, dtype=dtype)
    found = (krt.jit(reduce) if jitted else reduce)(x)
    assert [t.tolist() for t in found] == [True, False, [], [], [True] * 3, [False] * 3]
    assert {t.dtype for t in found} == {dt.uint8 if dtype is dt.uint8 else dt.bool_}


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_wider_variances_promote_the_loss(reduction):
    torch = pytest.importorskip("torch")
    x, y, v = np.random.default_rng(0).uniform(0.1, 2, (3, 4, 5))
    results = [
        kind.nn.functional.gaussian_nll_loss(
            *(kind.asarray(a.astype(np.float32)) for a in (x, y)), kind.asarray(v),
            reduction=reduction,
        )
        for kind in (krt, torch)
    ]  # fmt: skip
    assert results[0].dtype is dt.float64
    np.testing.assert_allclose(*(r.numpy() for r in results), rtol=1e-6)


def test_every_dtype_is_in_one_place():
    assert [getattr(krt, "bool_" if d is dt.bool_ else d.name) for d in dt.ALL] == list(dt.ALL)
