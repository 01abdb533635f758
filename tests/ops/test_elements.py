"""Numbers that become elements of a tensor: kept, or without their fraction, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import ShapeError

NAN, INF = float("nan"), float("inf")
WHOLE = [krt.uint8, krt.int8, krt.uint16, krt.int16, krt.uint32, krt.int32, krt.uint64, krt.int64]
FLOATS = [krt.float16, krt.bfloat16, krt.float32, krt.float64]


def assigned(number, dtype):
    x = krt.zeros(3, dtype=dtype).realize()
    x[1] = number
    return x[1:2]


def masked(number, dtype):
    x = krt.zeros(3, dtype=dtype).realize()
    x[krt.tensor([False, True, False])] = number
    return x[1:2]


PLACES = {
    "tensor": lambda v, t: krt.tensor([v], dtype=t),
    "full": lambda v, t: krt.full((1,), v, dtype=t),
    "full_like": lambda v, t: krt.full_like(krt.zeros(1), v, dtype=t),
    "fill_": lambda v, t: krt.zeros(1, dtype=t).fill_(v),
    "masked_fill": lambda v, t: krt.zeros(1, dtype=t).masked_fill(krt.tensor([True]), v),
    "setitem": assigned,
    "masked setitem": masked,
    "pad": lambda v, t: krt.zeros(1, dtype=t).pad((0, 1), value=v)[1:],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", WHOLE, ids=lambda t: t.name)
def test_integers(place, dtype):
    put = PLACES[place]
    for number in (dtype.min, dtype.max, dtype.max - 1, 2.5, -0.75, 7, True):
        assert put(number, dtype).tolist() == [int(number)], number
    beyond = [dtype.min - 1, dtype.max + 1, dtype.max + 300, 1e30, -1e30, NAN, INF, -INF, 2**70]
    for number in beyond:
        with pytest.raises(krt.DTypeError, match=dtype.name):
            put(number, dtype)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", [*WHOLE, krt.bool_, *FLOATS], ids=lambda t: t.name)
def test_numbers_of_numpy(place, dtype):
    for number in (np.bool_(True), np.int64(3), np.uint8(2), np.float32(1)):
        want = bool(number) if dtype is krt.bool_ else number.item()
        assert PLACES[place](number, dtype).tolist() == [want], number


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_floats(place, dtype):
    put = PLACES[place]
    for number in (0.1, -2.5, 3, 1e30, -70000, 2**40, INF, NAN):
        want = krt.tensor(np.array([number], np.float64)).cast(dtype).cast(krt.float64)
        got = put(number, dtype)
        assert got.dtype is dtype
        np.testing.assert_array_equal(got.cast(krt.float64).numpy(), want.numpy())
    with pytest.raises(krt.DTypeError, match="bits"):
        put(10**400, dtype)


@pytest.mark.parametrize("number", [0.1, np.float64(0.1), 1 / 3])
def test_numbers_keep_their_digits_in_float64(number):
    x = krt.zeros(2, dtype="float64")
    x.assign(number)
    ends = x.lerp(number, 1.0)
    added = krt.zeros(1, dtype="float64").scatter_add(
        0, krt.tensor([0]), krt.full((1,), number, dtype="float64")
    )
    for t in (x, ends, added):
        assert set(t.tolist()) == {float(number)}


@pytest.mark.parametrize("value", [-2.5, 3, True, np.float32(-2.5), np.int64(3)])
def test_what_is_not_masked_stays(value):
    torch = pytest.importorskip("torch")
    data = [1, 2**53 + 1, 5561616704862964743, -(2**63)]
    mask = [True, False, False, False]
    plain = value.item() if isinstance(value, np.generic) else value
    want = torch.tensor(data).masked_fill(torch.tensor(mask), plain).tolist()
    got = krt.tensor(data).masked_fill(krt.tensor(mask), value)
    assert (got.tolist(), got.dtype) == (want, krt.int64)
    there = krt.tensor(data).masked_fill(krt.tensor(mask), krt.tensor(plain))
    assert (there.tolist(), there.dtype) == (want, krt.int64)


def test_integers_beyond_64_bits():
    for data in ([2**63, -1], [2**64 - 1, 0, -1], [2**64], [[1, -(2**63) - 1]], -(2**63) - 1):
        with pytest.raises(krt.DTypeError, match="int64"):
            krt.tensor(data)
        wide = krt.tensor(data, dtype="float64")
        np.testing.assert_array_equal(wide.numpy(), np.array(data, object).astype(np.float64))
    assert krt.tensor([1, 2.5, 2**70]).tolist() == [1, 2.5, 2.0**70]
    assert krt.tensor([1e30, 2.0]).dtype is krt.float32
    assert krt.tensor([2**64 - 1]).tolist() == [2**64 - 1]


def test_elements_that_are_masked_are_no_numbers():
    hidden = np.ma.array([1.0, 2.0], mask=[False, True])
    for make in (krt.tensor, lambda a: krt.ones(2) + a):
        with pytest.raises(krt.DTypeError, match="filled"):
            make(hidden)
    assert krt.tensor(np.ma.array([1.0, 2.0])).tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [*WHOLE, krt.bool_, *FLOATS], ids=lambda t: t.name)
def test_ranges_and_draws_have_numbers_of_the_type_only(dtype):
    digits = {krt.float16: 11, krt.bfloat16: 8, krt.float32: 24, krt.float64: 53}
    least, most = dtype.min, dtype.max
    if dtype.is_float:
        least, most = -(1 << digits[dtype]), 1 << digits[dtype]
    for low, high in ((least, least + 2), (most - 1, most + 1)):
        drawn = krt.randint(low, high, (200,), dtype=dtype)
        assert drawn.dtype is dtype
        assert set(drawn.cast(krt.int64 if dtype is not krt.uint64 else dtype).tolist()) == {
            low, low + 1
        }  # fmt: skip
        assert krt.jit(lambda n=low, m=high: krt.randint(n, m, (5,), dtype=dtype))().dtype is dtype
    for low, high in ((least - 1, least + 1), (most, most + 2)):
        with pytest.raises(krt.DTypeError, match=dtype.name):
            krt.randint(low, high, (3,), dtype=dtype)
        if dtype.is_int:
            with pytest.raises(krt.DTypeError, match=dtype.name):
                krt.arange(low, high, dtype=dtype)
    if dtype.is_int:
        assert krt.arange(most - 1, most + 1, dtype=dtype).tolist() == [most - 1, most]
        assert krt.arange(least, least + 3, 2, dtype=dtype).tolist() == [least, least + 2]


def test_seeds():
    krt.manual_seed(np.int64(3))
    first = krt.rand(3).tolist()
    krt.manual_seed(3)
    assert krt.rand(3).tolist() == first
    krt.manual_seed(2**64 - 1)
    first = krt.rand(3).tolist()
    krt.manual_seed(-1)
    assert krt.rand(3).tolist() == first
    for seed in (2**64, 2**200, -(2**63) - 1):
        with pytest.raises(krt.DomainError, match="seed"):
            krt.manual_seed(seed)
    krt.manual_seed(0)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("number", [70000, 2**100, 2**1000, -(2**1000)], ids="{:.1e}".format)
def test_integers_that_a_float_type_rounds_to_infinity(name, number):
    x = krt.ones(1, dtype=name)
    pairs = [(x + number, 1 + number), (number - x, number - 1), (x * number, number),
             (x / number, 1 / number), (number / x, number)]  # fmt: skip
    for got, exact in pairs:
        with np.errstate(all="ignore"):
            want = krt.tensor(np.array([float(exact)])).cast(name)
        assert got.cast("float64").tolist() == want.cast("float64").tolist()


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_integers_beyond_all_floats_are_told_by_name(dtype):
    x, huge = krt.ones(2, dtype=dtype), 10**5000
    for name, use in {
        "other": lambda: x + huge, "alpha": lambda: x.add(x, alpha=huge),
        "max": lambda: x.clamp(max=huge), "min": lambda: x.clamp(huge, 2),
        "exponent": lambda: x**huge,
    }.items():  # fmt: skip
        with pytest.raises(krt.DTypeError, match=f"{name}: an integer of 16610 bits"):
            use()
    for use in (lambda: x < huge, lambda: krt.where(x > 0, x, huge), lambda: huge / x):
        with pytest.raises(krt.DTypeError, match="an integer of 16610 bits"):
            use()


def test_memory_that_is_not_aligned():
    array = np.zeros(17, np.uint8)[1:].view(np.float32)
    if array.flags.aligned:  # the allocator's choice
        array = np.zeros(20, np.uint8)[2:18].view(np.float32)
    with pytest.raises(krt.ShapeError, match=r"multiples of the 4 bytes.*array\.copy\(\)"):
        krt.from_numpy(array)
    assert krt.from_numpy(array.copy()).tolist() == [0] * 4


def a_value(rng, part):
    """Something of a shape that broadcasts to that of `part`, or nearly so."""
    axes = part.shape[rng.integers(0, part.ndim + 1) :]
    shape = [int(d if rng.random() < 0.7 else 1) for d in axes]
    if shape and rng.random() < 0.2:
        shape[rng.integers(len(shape))] = int(rng.integers(0, 4))
    return rng.integers(1, 9, [1] * rng.integers(0, 3) + shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(60))
def test_values_fit_what_is_selected_as_in_numpy(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(d) for d in rng.integers(0, 4, rng.integers(1, 4)))
    index = tuple(
        slice(None) if not size or rng.random() < 0.3
        else int(rng.integers(-size, size)) if rng.random() < 0.5
        else slice(int(rng.integers(0, size)), int(rng.integers(0, size + 1)))
        for size in shape[: rng.integers(1, len(shape) + 1)]
    )  # fmt: skip
    want = rng.normal(size=shape).astype(np.float32)
    x, jitted = krt.tensor(want), krt.tensor(want)
    value = a_value(rng, want[index])
    put = krt.jit(lambda v: jitted.__setitem__(index, v))
    try:
        want[(*index, ...)] = value  # an element alone takes no array of size 1
    except ValueError:
        for assign in (lambda: x.__setitem__(index, krt.tensor(value)), lambda: put(value)):
            with pytest.raises(ShapeError, match=r"^value: shape .* does not fit the selected"):
                assign()
    else:
        x[index] = krt.tensor(value)
        put(value)
    np.testing.assert_array_equal(x.numpy(), want)
    np.testing.assert_array_equal(jitted.numpy(), want)


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("mask", [(1,), (2,), (4,), (3, 1), (3, 3), (1, 3, 2), (3, 2, 1)])
def test_masks_have_the_sizes_of_the_first_axes(mask, realized):
    x = krt.tensor(np.zeros((3, 2), np.float32)) if realized else krt.zeros(3, 2)
    with pytest.raises(ShapeError, match=r"^index: a mask of shape .* does not match a tensor of"):
        x[krt.tensor(np.ones(mask, np.bool_))] = 1.0
    assert x.tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("realized", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (4,), (2, 1), (3, 1), (3, 2), (1, 3, 2),
                                   (2, 3, 2), (3, 3), (0,)])  # fmt: skip
def test_values_beside_a_mask_fit_what_it_selects(shape, realized):
    torch = pytest.importorskip("torch")
    chosen = np.array([True, False, True])
    value = np.random.default_rng(0).random(shape, np.float32)
    x = krt.tensor(np.zeros((3, 2), np.float32)) if realized else krt.zeros(3, 2)
    y = torch.zeros(3, 2)
    try:
        y[torch.tensor(chosen)] = torch.tensor(value)
    except (RuntimeError, IndexError):
        with pytest.raises(ShapeError, match=r"^value: .* does not fit the selected elements"):
            x[krt.tensor(chosen)] = krt.tensor(value)
    else:
        x[krt.tensor(chosen)] = krt.tensor(value)
    assert x.tolist() == y.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_lerp_reaches_its_ends(dtype):
    a = krt.tensor([1e4, -1e4, 3e4, 0.1, 0.0], dtype=dtype, requires_grad=True)
    b = krt.tensor([1.1, 3.3, 0.1, 2e4, 7.7], dtype=dtype, requires_grad=True)
    n = krt.Variable("n", 1, 8)
    late = krt.jit(lambda a, b: a.lerp(b, 2 / a.shape[0]), dynamic={"a": {0: n}, "b": {0: n}})
    for weight in (1, 1.0, np.float32(1), krt.tensor(1.0, dtype=dtype), krt.ones(5, dtype=dtype)):
        assert a.lerp(b, weight).tolist() == b.tolist()
        slopes = krt.grad(a.lerp(b, weight).sum(), (a, b))
        assert [slope.tolist() for slope in slopes] == [[0] * 5, [1] * 5]
    for weight in (0, 0.0, krt.zeros((), dtype=dtype), krt.zeros(5, dtype=dtype)):
        assert a.lerp(b, weight).tolist() == a.tolist()
    assert late(a[:2].detach(), b[:2].detach()).tolist() == b[:2].tolist()


def test_lerp_between_its_ends():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 33)) * 10.0 ** rng.integers(-9, 9, (2, 3, 33))
    weight = rng.uniform(-1, 2, 33)
    wanted = torch.tensor(a).lerp(torch.tensor(b), torch.tensor(weight)).numpy()
    got = krt.tensor(a).lerp(krt.tensor(b), krt.tensor(weight)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-13)
    for one in (-0.3, 0.2, 0.49, 0.5, 0.9, 1.7):
        wanted = torch.tensor(a).lerp(torch.tensor(b), one).numpy()
        np.testing.assert_allclose(krt.tensor(a).lerp(krt.tensor(b), one).numpy(), wanted, 1e-13)
