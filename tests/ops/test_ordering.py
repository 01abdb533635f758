"""Sorting and ranks against NumPy and torch, where the table of rows cannot say it."""

import itertools

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import DomainError, DTypeError, ShapeError

KINDS = (np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8,
         np.uint16, np.uint32, np.uint64, np.bool_)  # fmt: skip
#: Around the number of keys up to which each is compared with each, and beyond.
SIZES = (1, 2, 3, 63, 64, 65, 66, 200, 513, 1000)


def drawn(kind: type, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Elements of which many are equal, from the whole range of the type."""
    rng = np.random.default_rng(seed)
    if kind is np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(kind, np.floating):
        a = (rng.standard_normal(shape) * 3).round(1).astype(kind)
        special = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
        return np.where(rng.random(shape) < 0.2, special, a).astype(kind)
    info = np.iinfo(kind)
    pool = np.array([info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max], kind)
    wide = rng.integers(info.min, info.max, shape, kind, endpoint=True)
    return np.where(rng.random(shape) < 0.5, rng.choice(pool, shape), wide)


def descending(a: np.ndarray) -> np.ndarray:
    """The stable order from the greatest, of which NaN is one."""
    return a.shape[-1] - 1 - np.argsort(a[..., ::-1], -1, kind="stable")[..., ::-1]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("n", SIZES)
def test_order_is_stable_in_every_type(kind: type, n: int) -> None:
    a = drawn(kind, (3, n), n)
    x = krt.tensor(a)
    up, down = x.argsort(), x.argsort(descending=True)
    values = x.sort().values
    krt.realize(up, down, values)
    expected = np.argsort(a, -1, kind="stable")
    np.testing.assert_array_equal(up.numpy(), expected)
    np.testing.assert_array_equal(down.numpy(), descending(a))
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, expected, -1))
    assert values.dtype is x.dtype


def test_signs_of_zeros_and_bits_of_nans_come_along() -> None:
    a = np.array([0.0, -0.0, np.nan, 1.0, -0.0, 0.0], np.float32)
    out = krt.tensor(a).sort().values.numpy()
    assert np.signbit(out[:4]).tolist() == [False, True, True, False]
    assert np.isnan(out[-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("data", [[-1.0, 0.0, -0.0], [-0.0, 0.0], [0.0, -0.0, -0.0, 0.0]])
def test_the_greatest_of_zeros_is_the_first(dtype: str, data: list[float]) -> None:
    x = krt.tensor(data, dtype=dtype)
    values, places = x.topk(1)
    assert np.signbit(values.item()) == np.signbit(x[places.item()].item())
    assert places.item() == data.index(0.0)


def test_bfloat16() -> None:
    a = np.array([3.0, -1.5, 2.0, -0.0, 0.0], np.float32)
    x = krt.tensor(a, dtype="bfloat16")
    assert x.argsort().tolist() == [1, 3, 4, 2, 0]
    assert x.sort().values.dtype is krt.bfloat16


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("shape", [(5, 70, 3), (70, 5, 70), (0, 4, 3), (4, 0, 3), (1, 70, 1)])
def test_every_axis(shape: tuple[int, ...], dim: int) -> None:
    a = drawn(np.float32, shape)
    np.testing.assert_array_equal(
        krt.tensor(a).argsort(dim).numpy(), np.argsort(a, dim, kind="stable")
    )


def test_many_elements() -> None:
    for kind in (np.float32, np.int64):
        a = drawn(kind, (300_001,))
        np.testing.assert_array_equal(
            krt.tensor(a).argsort().numpy(), np.argsort(a, kind="stable")
        )


def test_scalars() -> None:
    x = krt.tensor(3.0)
    assert x.sort()[0].shape == ()
    assert x.argsort().item() == 0
    assert x.topk(1).values.shape == ()
    assert x.topk(0).values.shape == (0,)
    assert x.median().item() == 3.0
    assert x.median(0).indices.item() == 0
    assert x.mode().values.item() == 3.0
    assert x.quantile(0.5).item() == 3.0


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_medians_with_nan(name: str, dim: int | None) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(6):
        a = drawn(np.float64, (5, 7), seed)
        a[0] = np.nan
        args = () if dim is None else (dim,)
        got, want = getattr(krt.tensor(a), name)(*args), getattr(torch.tensor(a), name)(*args)
        if dim is None:
            np.testing.assert_array_equal(got.numpy(), want.numpy())
        else:
            np.testing.assert_array_equal(got.values.numpy(), want.values.numpy())
            again = np.take_along_axis(a, np.expand_dims(got.indices.numpy(), dim), dim)
            np.testing.assert_array_equal(np.squeeze(again, dim), want.values.numpy())


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(how: str) -> None:
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(3).standard_normal((4, 9))
    for q in (0.0, 0.25, 0.3, 0.5, 1.0, [0.1, 0.9], []):
        for dim in (None, 0, -1):
            for keep in (False, True):
                peer = torch.tensor(q, dtype=torch.float64)
                want = torch.quantile(torch.tensor(a), peer, dim, keep, interpolation=how)
                got = krt.tensor(a).quantile(q, dim, keep, interpolation=how)
                np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-12, 1e-12)
                assert got.shape == tuple(want.shape)
    for share in (np.nan, 1.5, -0.1):
        shares = krt.tensor([0.2, share, 0.7], dtype="float64")
        with pytest.raises(krt.DomainError, match=r"q: quantile .* expected numbers from 0 to 1"):
            krt.tensor(a[0]).quantile(shares, interpolation=how).numpy()


def test_quantiles_at_infinite_elements() -> None:
    x = krt.tensor([-np.inf, 1.0, 3.0, np.inf])
    assert x.quantile([0.0, 1 / 3, 1.0]).tolist() == [-np.inf, 1.0, np.inf]
    assert x.quantile(0.9, interpolation="lower").item() == 3.0


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles_between_infinite_elements(name: str, how: str) -> None:
    """As torch has them, which has NaN where an infinite element itself is wanted, too."""
    torch = pytest.importorskip("torch")
    numbers = [-np.inf, -1.0, 2.0, np.inf, np.nan]
    rows = np.array(list(itertools.product(numbers, repeat=3)))
    q = [0.0, 0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0]
    got = getattr(krt.tensor(rows), name)(q, 1, interpolation=how).numpy()
    peer = torch.tensor(q, dtype=torch.float64)
    want = getattr(torch, name)(torch.tensor(rows), peer, 1, interpolation=how).numpy()
    itself = np.isnan(want) & np.isinf(got)
    np.testing.assert_allclose(np.where(itself, got, want), got, 1e-12)
    for share, row in np.argwhere(itself):
        known = rows[row][~np.isnan(rows[row])]
        rank = q[share] * (len(known) - 1) if len(known) else 0
        assert rank == round(rank)
        assert got[share, row] == np.sort(known)[round(rank)]


def test_quantiles_without_nan() -> None:
    a = np.random.default_rng(4).standard_normal((6, 9))
    a[np.random.default_rng(5).random(a.shape) < 0.4] = np.nan
    got = krt.tensor(a).nanquantile([0.2, 0.5], 1).numpy()
    np.testing.assert_allclose(got, np.nanquantile(a, [0.2, 0.5], axis=1), 1e-12)
    assert np.isnan(krt.tensor(a).quantile(0.5).item())


@pytest.mark.parametrize("dim", [0, 1])
def test_modes(dim: int) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(8):
        a = np.random.default_rng(seed).integers(0, 3, (6, 70))
        got, want = krt.tensor(a).mode(dim), torch.tensor(a).mode(dim)
        np.testing.assert_array_equal(got.values.numpy(), want.values.numpy())
        # Which of equal elements it is torch leaves open.
        lines = zip(np.moveaxis(a, dim, -1), got.values.numpy(), strict=True)
        last = [np.flatnonzero(line == value)[-1] for line, value in lines]
        np.testing.assert_array_equal(got.indices.numpy(), last)


@pytest.mark.cases(1)
@pytest.mark.parametrize("right", [False, True])
def test_searching(right: bool) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    for n in (1, 2, 3, 7, 8, 9, 100):
        rows = np.sort(rng.integers(0, 12, (4, n)).astype(np.float64), 1)
        wanted = rng.integers(-1, 14, (4, 6)).astype(np.float64)
        wanted[0, :3] = np.nan, np.inf, -np.inf
        want = torch.searchsorted(torch.tensor(rows), torch.tensor(wanted), right=right)
        got = krt.tensor(rows).searchsorted(krt.tensor(wanted), right)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
        want = torch.bucketize(torch.tensor(wanted), torch.tensor(rows[1]), right=right)
        got = krt.tensor(wanted).bucketize(krt.tensor(rows[1]), right=right)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    empty = krt.zeros(0).searchsorted(krt.ones(3))
    assert empty.tolist() == [0, 0, 0]
    assert krt.tensor([1.0, 3.0]).searchsorted(2, out_int32=True).dtype is krt.int32


def test_searching_in_an_order() -> None:
    a = np.array([3.0, 1.0, 2.0])
    x = krt.tensor(a)
    got = x.searchsorted(krt.tensor([2.5, 0.0]), sorter=x.argsort())
    np.testing.assert_array_equal(got.numpy(), np.searchsorted(a, [2.5, 0.0], sorter=a.argsort()))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("nans", [0, 1, 3, 7])
def test_positions_beside_nan(nans: int, side: str) -> None:
    """NaN is the greatest, in what is sorted and in what is looked for."""
    rows = np.array([-np.inf, -2.0, 0.0, 1.0, 1.0, np.inf, 3.0])
    rows.sort()
    rows[len(rows) - nans :] = np.nan
    wanted = np.array([-np.inf, -3.0, -2.0, 0.5, 1.0, 5.0, np.inf, np.nan])
    got = krt.tensor(rows).searchsorted(krt.tensor(wanted), side=side)
    np.testing.assert_array_equal(got.numpy(), np.searchsorted(rows, wanted, side=side))


@pytest.mark.parametrize(
    "among", [[np.nan], [np.nan, 1.0], [1.0, np.nan, -np.inf], [np.inf, np.nan]]
)
def test_membership_beside_nan(among: list[float]) -> None:
    a = np.array([np.nan, 1.0, np.inf, -np.inf, 0.0])
    np.testing.assert_array_equal(krt.tensor(a).isin(krt.tensor(among)).numpy(), np.isin(a, among))


@pytest.mark.parametrize("n", [0, 1, 5, 100])
def test_membership(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, 50, (7, 9)), rng.integers(0, 50, n)
    got = krt.tensor(a).isin(krt.tensor(b))
    np.testing.assert_array_equal(got.numpy(), np.isin(a, b))
    got = krt.tensor(a).isin(krt.tensor(b), invert=True)
    np.testing.assert_array_equal(got.numpy(), np.isin(a, b, invert=True))


def test_a_sorted_tensor_is_assigned_to_itself() -> None:
    a = np.random.default_rng(7).standard_normal(100).astype(np.float32)
    x = krt.tensor(a)

    @krt.jit
    def step() -> krt.Tensor:
        x.assign(x.sort(descending=True).values)
        return x.sum()

    step()
    step()
    np.testing.assert_array_equal(x.numpy(), -np.sort(-a))


def test_bad_arguments() -> None:
    x = krt.ones(3, 4)
    with pytest.raises(ShapeError, match="axis 2"):
        x.sort(2)
    with pytest.raises(DTypeError, match="descending"):
        x.sort(1, "down")
    with pytest.raises(ShapeError, match="k: expected at most 4"):
        x.topk(5)
    with pytest.raises(ShapeError, match="k: expected at least 1"):
        x.kthvalue(0)
    with pytest.raises(DTypeError, match="k: expected an int"):
        x.topk(1.5)
    with pytest.raises(DomainError, match="from 0 to 1"):
        x.quantile(1.5)
    with pytest.raises(DomainError, match="interpolation"):
        x.quantile(0.5, interpolation="cubic")
    with pytest.raises(DTypeError, match="float32 or float64"):
        krt.arange(3).quantile(0.5)
    with pytest.raises(ShapeError, match="empty"):
        krt.zeros(0).median(0)
    with pytest.raises(ShapeError, match="empty"):
        krt.arange(0).median()
    with pytest.raises(ShapeError, match="leading axes"):
        x.searchsorted(krt.ones(2, 4))
    with pytest.raises(ShapeError, match="boundaries"):
        x.bucketize(x)
