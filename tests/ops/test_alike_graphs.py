"""Eager graphs that differ in numbers, or in which rows they read or write, share plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import IndexBoundsError
from kernelrt.tensor.eager.plan_cache import ALIKE, plans

if TYPE_CHECKING:
    from collections.abc import Callable

N = 40


@pytest.fixture(autouse=True)
def _no_plans() -> None:
    plans.clear()


def data(*shape: int, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    return (rng.normal(size=shape) * 4).astype(dtype)


def made(loop: Callable[[int], None]) -> int:
    """How many plans forty turns make."""
    before = plans.misses
    for i in range(N):
        loop(i)
    return plans.misses - before


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint32"])
def test_numbers_that_change_share_a_plan(dtype: str) -> None:
    x = data(3, 5, dtype=dtype)
    t = krt.tensor(x)

    def turn(i: int) -> None:
        c = i * 0.37 - 3 if dtype.startswith("float") else i % 100
        got = ((t * c + 1).maximum(c) - 2).numpy()
        want = np.maximum(x * np.dtype(dtype).type(c) + np.dtype(dtype).type(1), c)
        np.testing.assert_allclose(got, want - np.dtype(dtype).type(2), rtol=2e-3, atol=2e-2)

    assert made(turn) <= ALIKE + 4


def test_numbers_of_every_kind_in_one_graph() -> None:
    x, y = data(4, 3), np.arange(12).reshape(4, 3)
    t, u = krt.tensor(x), krt.tensor(y)

    def turn(i: int) -> None:
        a, k = float(np.sin(i)), i % 7 - 3
        got = krt.where(u == k, t / (a + 2), (t * a).exp() + k).sum(1).numpy()
        x64 = x.astype(np.float64)
        want = np.where(y == k, x64 / (a + 2), np.exp(x64 * a) + k).sum(1)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    assert made(turn) <= 2 * ALIKE + 6


@pytest.mark.parametrize("numbers", [
    [np.nan, 1.0, np.inf, -np.inf, -0.0, 0.0, 1e-45, 3.4e38, 1.0, np.nan],
    [1.0] * 3 + [2.0] * 3 + [1.0, 2.0, 3.0] * 3,
    [0.5, 2.0, 0.5, 2.0, 4.0, 0.25, 1.0, 0.0],
])  # fmt: skip
def test_numbers_that_are_no_ordinary_ones(numbers: list[float]) -> None:
    x = np.array([0.0, -0.0, 1.0, -2.5, np.inf, np.nan], np.float32)
    t = krt.tensor(x)
    with np.errstate(all="ignore"):
        for c in numbers:
            for got, want in [
                (t * c, x * np.float32(c)),
                (t / c, x / np.float32(c)),
                (t + c, x + np.float32(c)),
                (c - t, np.float32(c) - x),
                (t.maximum(c), np.maximum(x, np.float32(c))),
                (t < c, x < np.float32(c)),
            ]:
                np.testing.assert_array_equal(got.numpy(), want)


def test_sizes_are_no_numbers() -> None:
    for n in range(1, 4 * ALIKE):
        index = krt.arange(n).flip(0)
        rows = np.arange(2.0 * n, dtype=np.float32).reshape(n, 2)
        assert (index + n).tolist() == [2 * n - 1 - i for i in range(n)]
        got = krt.tensor(rows)[krt.tensor([0]) + (n - 1)]
        assert got.tolist() == [rows[n - 1].tolist()]
    x = krt.tensor(np.arange(60.0, dtype=np.float32).reshape(3, 20))
    for n in range(1, 4 * ALIKE):
        assert (x[:, :1] * 0 + krt.arange(n).sum() + n).tolist() == [[n * (n + 1) / 2]] * 3


def test_two_numbers_that_are_one_at_times() -> None:
    x = data(7)
    t = krt.tensor(x)
    for a, b in [(1.5, 2.5), (1.5, 1.5), (2.5, 1.5), (3.5, 3.5), (4.0, 5.0), (6.0, 6.0)] * 3:
        np.testing.assert_allclose((t * a - b).numpy(), x * np.float32(a) - np.float32(b))


def test_a_result_that_is_a_number_itself() -> None:
    t = krt.tensor([1.0, 2.0])

    def turn(i: int) -> None:
        number, other = krt.full((3,), i * 0.5), t + i * 0.5
        krt.realize(number, other)
        assert number.tolist() == [i * 0.5] * 3
        assert other.tolist() == [1 + i * 0.5, 2 + i * 0.5]

    made(turn)


def test_checks_name_the_line_of_each_graph() -> None:
    table = krt.arange(5)
    index = krt.tensor([1, 2])
    for i in range(4 * ALIKE):
        if i < 3:
            assert table[index + i].tolist() == [1 + i, 2 + i]
        else:
            with pytest.raises(IndexBoundsError, match=f"{2 + i}|{1 + i}"):
                table[index + i].realize()


READERS = {
    "rows": lambda table, index: table[index] * 2,
    "gather": lambda table, index: (table.gather(0, index) + 1).sum(),
    "twice": lambda table, index: table[index] + table[(index + 1) % 7],
    "nothing": lambda table, index: table[index][:0].sum() + table[index],
}


def write(table: krt.Tensor, index: krt.Tensor) -> krt.Tensor:
    held = (table * 1).realize()
    held.assign(held + table[index].sum())
    return held


@pytest.mark.parametrize("name", [*READERS, "write"])
def test_a_check_that_fails_is_told_by_the_plan_that_is_there(name: str) -> None:
    read = READERS.get(name, write)
    table = krt.arange(5.0).realize()
    one, other = krt.tensor([1, 2]).realize(), krt.tensor([1, 9]).realize()

    def told(line: Callable[[krt.Tensor], krt.Tensor]) -> str:
        with pytest.raises(IndexBoundsError) as error:
            line(other).realize()
        return str(error.value).rpartition(":")[0]

    first = [told(lambda index: read(table, index)) for _ in range(2)]
    assert first[0] == first[1]
    misses = plans.misses
    assert [told(lambda index: read(table, index)) for _ in range(20)] == first[:1] * 20
    read(table, one).realize()
    assert plans.misses <= misses + 1


def test_each_of_several_lines_is_named() -> None:
    table = krt.arange(5.0).realize()
    other = krt.tensor([1, 9]).realize()
    for _ in range(3):
        with pytest.raises(IndexBoundsError) as first:
            (table[other] * 2).realize()
        with pytest.raises(IndexBoundsError) as second:
            (table[other] * 2).realize()
        assert str(first.value) != str(second.value)


def test_rows_and_batches_share_a_plan() -> None:
    x = data(N + 4, 3, 2)
    t = krt.tensor(x)
    w = krt.tensor(data(2, 4))

    def turn(i: int) -> None:
        np.testing.assert_array_equal(t[i].numpy(), x[i])
        np.testing.assert_array_equal(t[i, 1].numpy(), x[i, 1])
        np.testing.assert_array_equal(t[i : i + 4].numpy(), x[i : i + 4])
        np.testing.assert_array_equal(t.narrow(0, i, 1).numpy(), x[i : i + 1])
        got = (t[i : i + 3] @ w).relu().sum(0).numpy()
        want = np.maximum(x[i : i + 3].astype(np.float64) @ data(2, 4), 0).sum(0)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    assert made(turn) <= 5


def test_gradients_of_batches_share_a_plan() -> None:
    x, y = data(N + 4, 3), data(N + 4)
    xs, ys = krt.tensor(x), krt.tensor(y)
    w = krt.tensor(data(3) * 0.1, requires_grad=True)

    def turn(i: int) -> None:
        w.grad = None
        ((xs[i : i + 4] * w).sum(1) - ys[i : i + 4]).square().mean().backward()
        x64, y64 = x[i : i + 4].astype(np.float64), y[i : i + 4].astype(np.float64)
        error = x64 @ w.detach().numpy().astype(np.float64) - y64
        np.testing.assert_allclose(w.grad.numpy(), error @ x64 / 2, rtol=1e-4, atol=1e-5)

    assert made(turn) <= 3


def test_what_is_made_of_a_window_keeps_the_old_value() -> None:
    t = krt.tensor(np.arange(6.0, dtype=np.float32))
    row, again = t[1:3], t.reshape(2, 3)[1]
    copy, twice = row.clone(), again * 2
    t.assign(t * 10)
    assert copy.tolist() == [1, 2]
    assert twice.tolist() == [6, 8, 10]
    assert row.tolist() == t[1:3].tolist() == [10, 20]
    assert again.tolist() == [30, 40, 50]
    last = t[4:]
    del t
    assert last.tolist() == [40, 50]


def test_rows_are_written_one_by_one() -> None:
    want = np.zeros((N, 3), np.float32)
    t = krt.tensor(want)
    row = data(3)
    value = krt.tensor(row)

    def turn(i: int) -> None:
        t[i] = value * i
        want[i] = row * i

    assert made(turn) <= ALIKE + 2
    np.testing.assert_allclose(t.numpy(), want)


@pytest.mark.parametrize("start", ["zeros", "full", "computed", "copied"])
@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 3)])
def test_assignments_without_storage_do_not_heap_up(shape: tuple[int, ...], start: str) -> None:
    want = np.ones(shape, np.float32)
    t = (
        krt.zeros(*shape) if start == "zeros" else krt.full(shape, 1.0) if start == "full"
        else krt.ones(*shape) * 2 if start == "computed" else krt.tensor(want)
    )  # fmt: skip
    scores, rng = krt.tensor(data(5)), np.random.default_rng(0)

    def turn(i: int) -> None:
        pick = int(rng.integers(5))
        t[i] = (scores * 2).exp()[pick]
        want[i] = np.exp(scores.numpy() * 2)[pick]
        assert t.uop.depth < 8

    assert made(turn) <= ALIKE + 8
    np.testing.assert_allclose(t.numpy(), want, rtol=1e-6)


def test_writing_a_part_that_is_read() -> None:
    want = np.arange(10.0, dtype=np.float32)
    t = krt.tensor(want)
    before = t * 1
    t[1:6] = t[0:5]
    want[1:6] = want[0:5].copy()
    t[2] = t[3] * 2 + t[2]
    want[2] = want[3] * 2 + want[2]
    t[0:3] = 7
    want[0:3] = 7
    t[4:4] = 1
    t[:] = t + 1
    want += 1
    assert t.tolist() == want.tolist()
    assert before.tolist() == list(range(10))


@pytest.mark.cases(1 / 4)
def test_random_rows_read_and_written() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        shape = tuple(rng.integers(1, 5, rng.integers(1, 4)))
        want = rng.integers(-9, 9, shape).astype(np.float32)
        t = krt.tensor(want)
        want = want.copy()
        kept: list[tuple[krt.Tensor, np.ndarray]] = []
        for _ in range(12):
            index = tuple(
                int(rng.integers(-d, d)) if rng.random() < 0.5
                else slice(*sorted(rng.integers(0, d + 1, 2).tolist()))
                for d in shape[: rng.integers(1, len(shape) + 1)]
            )  # fmt: skip
            other = tuple(int(rng.integers(0, d)) for d in shape)
            number = float(rng.integers(-3, 4))
            kind = rng.integers(4)
            if kind == 0:
                kept.append((t[index] * number + t[other], want[index] * number + want[other]))
            elif kind == 1:
                kept.append((t[index], want[(*index, ...)]))  # views of both
            elif kind == 2:
                t[index] = t[other] * number
                want[index] = want[other] * number
            else:
                t[index] = t[index] + number
                want[index] = want[index] + number
            if rng.random() < 0.3 and kept:
                got, expected = kept.pop(rng.integers(len(kept)))
                np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(t.numpy(), want)
        for got, expected in kept:
            np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_value_that_is_carried_along_rows(width: int, lazy: bool) -> None:
    """Rows written backwards, each made of the one behind it, as advantages are."""
    rewards, values = data(N, width), data(N + 1, width)
    r, v = krt.tensor(rewards), krt.tensor(values)
    out = krt.zeros(N, width) if lazy else krt.zeros(N, width).realize()
    last, want, carried = 0, np.zeros((N, width)), np.zeros(width)
    kept = []
    before = plans.misses
    for i in reversed(range(N)):
        delta = r[i] + 0.9 * v[i + 1] - v[i]
        out[i] = last = delta + 0.8 * last
        kept.append(last)
        carried = rewards[i] + 0.9 * values[i + 1].astype(np.float64) - values[i] + 0.8 * carried
        want[i] = carried
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(krt.stack(kept[::-1]).numpy(), want, rtol=1e-4, atol=1e-4)
    assert plans.misses - before <= 8
    assert all(row.uop.depth < 40 for row in kept)


def test_two_carried_values_and_a_third_that_is_written() -> None:
    """The value that is written is not one of those that the next step reads."""
    x, w = data(N, 4), data(4, 4) * 0.3
    rows, weight = krt.tensor(x), krt.tensor(w)
    out = krt.zeros(N, 4).realize()
    h = c = krt.zeros(4)
    want_h, want_c, want = np.zeros(4), np.zeros(4), np.zeros((N, 4))
    before = plans.misses
    for i in range(N):
        c = 0.5 * c + (rows[i] @ weight + h).tanh()
        h = c.tanh() * 0.7
        out[i] = h * 2 + 1
        want_c = 0.5 * want_c + np.tanh(x[i].astype(np.float64) @ w + want_h)
        want_h = np.tanh(want_c) * 0.7
        want[i] = want_h * 2 + 1
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c.numpy(), want_c, rtol=1e-4, atol=1e-5)
    assert plans.misses - before <= 8


def test_gradients_flow_through_what_rows_were_written_from() -> None:
    """Values with a history are left as they are, whatever is computed for a row."""
    x = data(N, 3)
    rows, w = krt.tensor(x), krt.tensor(np.full(3, 0.5, np.float32), requires_grad=True)
    log = krt.zeros(N, 3).realize()
    state = krt.zeros(3)
    total, kept, seen = krt.zeros(()), np.zeros(3), np.zeros(3)
    slope = np.zeros(3)
    for i in range(8):
        state = 0.5 * state + rows[i] * w
        log[i] = state.detach()
        total = total + state.sum()
        kept, slope = 0.5 * kept + x[i] * 0.5, 0.5 * slope + x[i].astype(np.float64)
        np.testing.assert_allclose(log[i].numpy(), kept, rtol=1e-5, atol=1e-5)
        seen += slope
    total.backward()
    np.testing.assert_allclose(w.grad.numpy(), seen, rtol=1e-5, atol=1e-5)


def test_a_value_that_is_there_is_copied_and_old_values_stay() -> None:
    """No plan is made for that, unless something has to be computed before."""
    x, row = krt.tensor(data(6, 3)), krt.tensor(data(3))
    want, value = data(6, 3), data(3)
    other = krt.zeros(3).realize()
    scale = krt.jit(lambda: x * 2)
    scale()
    before = plans.misses
    for i in range(6):
        x[i] = row
        want[i] = value
        x[i, 1] = i
        want[i, 1] = i
        np.testing.assert_array_equal(scale().numpy(), want * 2)
    x[1:4] = krt.tensor(data(3, 3))
    want[1:4] = data(3, 3)
    x[::5] = 7  # no run of memory
    want[::5] = 7
    assert plans.misses - before <= 1

    early = x[2] + 1  # has the old value
    other.assign(x[3] * 2)  # is pending, and reads what is written next
    old, old_row = want[2] + 1, want[3] * 2
    x[2] = row
    x[3] = 5
    want[2], want[3] = value, 5
    np.testing.assert_array_equal(early.numpy(), old)
    np.testing.assert_array_equal(other.numpy(), old_row)
    x[0:4] = x[1:5]
    want[0:4] = want[1:5].copy()
    np.testing.assert_array_equal(x.numpy(), want)

    whole = x * 1
    whole.assign(whole + 1)
    whole[0] = row  # follows what is pending
    assert whole.numpy()[0].tolist() == value.tolist()
    fixed = np.zeros((2, 3), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(krt.ShapeError, match="read-only"):
        krt.from_numpy(fixed)[0] = row
    narrow = krt.zeros(2, 2).cast("bfloat16").realize()
    narrow[0] = 1.5
    narrow[1] = krt.tensor([2.0, 3.0]).cast("bfloat16").realize()
    assert narrow.float().tolist() == [[1.5, 1.5], [2, 3]]


@pytest.mark.parametrize("source", ["itself", "detached", "part", "data", "another"])
def test_a_row_takes_a_value_that_is_assigned_but_not_read(source: str) -> None:
    """Its memory holds the value of before until something reads it."""
    w, table = krt.zeros(2, 3).realize(), krt.zeros(2, 2, 3).realize()
    parameter = krt.nn.Parameter(krt.zeros(2, 3))
    value = {
        "itself": w, "detached": w.detach(), "part": w[:2], "data": parameter.data, "another": w,
    }[source]  # fmt: skip
    with krt.no_grad():
        (parameter if source == "data" else w).add_(1)
        table[0] = value
        if source == "another":
            w.add_(1)
            table[1, 0] = w[1]
    assert table[0].tolist() == [[1] * 3] * 2
    assert table[1, 0].tolist() == [2 if source == "another" else 0] * 3


def test_a_history_that_reads_a_row_ends_where_the_row_is_written() -> None:
    w = krt.tensor(data(3), requires_grad=True)
    rows = krt.tensor(data(4, 3))
    product = (w * rows[1]).realize()
    rows[1] = krt.zeros(3).realize()
    with pytest.raises(krt.GradientError, match="assigned since"):
        product.sum().backward()


#: Rows changed by what is read of them: of `r` and of `v`, by `k` below 12 and a number `u`.
OVERLAPPING = (
    "v[k] = v[k] * 0.5 + 1", "v[1] = v[1] + 0.1 * (u - v[1])", "v[k] = v[k] * u",
    "r[k] += 0.1 * (r[(k + 1) % 12] - r[k])", "r[k] = r[k] * u + (1 - u) * r[(k + 5) % 12]",
    "r[k] /= r[k].sum() + 9", "r[k] -= r[k].mean()", "r[k, 1:] = r[k, :-1] * 1",
    "r[k, 1] = r[k, 1] + r[k, 2]", "v[1:] = v[:-1] * 1; v[0] = k", "r[:, k % 3] = r[:, k % 3] / 2",
    "v[k] = v[(k + 1) % 12] * u; v[k] = v[k] * u",
    "a = r[k] * 1; b = r[(k + 1) % 12] * 1; r[k] = b; r[(k + 1) % 12] = a",
)  # fmt: skip


@pytest.mark.parametrize("line", OVERLAPPING)
def test_changes_of_rows_by_themselves_share_plans(line: str) -> None:
    rng = np.random.default_rng(0)
    rows, flat = rng.normal(size=(12, 3)), rng.normal(size=12)
    ours = {"r": krt.tensor(rows), "v": krt.tensor(flat)}
    theirs = {"r": rows.copy(), "v": flat.copy()}
    made = 0
    for turn in range(4):
        before = plans.misses
        for k in range(12):
            u = float(rng.random())
            for names in (ours, theirs):
                exec(line, {**names, "k": k, "u": u})  # noqa: S102 - the lines above
            for name, want in theirs.items():
                np.testing.assert_allclose(ours[name].numpy(), want, rtol=1e-12)
        made = plans.misses - before if turn > 1 else 0
    assert not made
