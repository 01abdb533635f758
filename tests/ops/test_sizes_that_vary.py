"""Eager graphs that differ in sizes share plans, and have the values of plans of their own."""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import size_programs
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import IndexBoundsError
from kernelrt.tensor.plan_cache import plans
from kernelrt.tensor.size_families import LEAST_ROOM, MOST_APART

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

torch = Package("torch")
RNG = np.random.default_rng(7)
X, V = RNG.normal(size=(80, 70)).astype(np.float32), RNG.normal(size=500).astype(np.float32)
OURS = krt.tensor(X), krt.tensor(V)
THEIRS = X.astype(np.float64), V.astype(np.float64)
#: A graph of size 1 may have another structure, as its axes repeat.
PLANS = MOST_APART + 2

CASES: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "a column": lambda _, x, v, n: x[:, n] * 2 + v[:80],
    "columns": lambda _, x, v, n: (x[:, :n] + v[:n]).sum(1),
    "columns from n": lambda _, x, v, n: (x[:, n : n + 3] * v[0]).sum(0),
    "product": lambda _, x, v, n: x[:, :n] @ x[:n] + v[:70],
    "row sums": lambda _, x, v, n: (x[:n] * 1.5).sum(1) + v[:n],
    "mean": lambda _, x, v, n: v[:n].mean() + x[0, 0],
    "largest": lambda _, x, v, n: v[:n].max() + x[0],
    "its place": lambda _, x, v, n: v[:n].argmax() + 0 * x[0, 0],
    "joined": lambda lib, x, v, n: lib.concatenate([v[:n], v[2 * n : 4 * n], x[0]]),
    "table": lambda _, x, v, n: (v[:n, None] * v[None, :n]).sum(0) + x[0, 0],
    "strided": lambda _, x, v, n: v[: 2 * n : 2] * 2 + x[0, 0],
    "rows of four": lambda _, x, v, n: v[: 4 * n].reshape(n, 4).sum(1) + x[0, 0],
    "four rows": lambda _, x, v, n: (v[: 4 * n] + x[0, 0]).reshape(4, n).sum(1),
    "positions": lambda lib, x, v, n: lib.arange(n) * v[:n] + x[0, 0],
    "below the diagonal": lambda lib, x, v, n: lib.tril(x[:n, :n]).sum(0) + v[:n],
    "where": lambda lib, x, v, n: lib.where(x[:n, :n] > 0, x[:n, :n], 0.5) + v[:n],
    "rolled": lambda lib, x, v, n: lib.roll(v[:n], 1, 0) + x[0, 0],
    "sorted": lambda lib, x, v, n: lib.sort(v[:n]) + x[0, 0],
    "number": lambda _, x, v, n: v[:5] * (1.0 / n) + x[0, :5],
}


@pytest.fixture(autouse=True)
def _no_plans() -> None:
    plans.clear()


class Ours:
    """kernelrt with NumPy's names."""

    concatenate, arange, where, tril, roll = krt.cat, krt.arange, krt.where, krt.tril, krt.roll

    @staticmethod
    def sort(x: krt.Tensor) -> krt.Tensor:
        return x.sort()[0]


@pytest.mark.parametrize("name", CASES)
def test_values_and_how_many_plans(name: str) -> None:
    case = CASES[name]
    before = plans.misses
    for n in [5, 2, 9, 4, 33, 7, 2, 60, 12, 5, 1, 8]:
        want = case(np, *THEIRS, n)
        found = case(Ours, *OURS, n).numpy()
        assert found.shape == np.shape(want)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    assert plans.misses - before <= PLANS


def test_sizes_that_were_equal_by_chance() -> None:
    """Three graphs in which two sizes agree say nothing of the fourth."""
    for n, m in [(4, 4), (6, 6), (9, 9), (9, 5), (3, 8), (20, 2), (5, 5)]:
        found = (OURS[0][:n, :m] * 2).sum(0) + OURS[1][:m]
        want = (THEIRS[0][:n, :m] * 2).sum(0) + THEIRS[1][:m]
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


def test_two_sizes_that_vary_on_their_own() -> None:
    before = plans.misses
    for n in range(2, 40):
        m = n * 7 % 50 + 2
        found = (OURS[0][:n, :m] * 2).sum(1)
        np.testing.assert_allclose(
            found.numpy(), (THEIRS[0][:n, :m] * 2).sum(1), rtol=1e-4, atol=1e-5
        )
    assert plans.misses - before <= PLANS + 1


def test_more_than_there_is_room_for() -> None:
    x = RNG.normal(size=9 * LEAST_ROOM).astype(np.float32)
    ours, before = krt.tensor(x), plans.misses
    for n in [3, 5, 8, LEAST_ROOM, LEAST_ROOM + 1, 8 * LEAST_ROOM, 9 * LEAST_ROOM, 4, 0, 3]:
        found = (ours[:n] * ours[:n].flip(0)).sum()
        assert found.item() == pytest.approx((x[:n] * x[:n][::-1]).sum(dtype=float), 1e-3, 1e-3)
    assert plans.misses - before <= 9


def test_a_growing_sequence_through_attention() -> None:
    krt.manual_seed(0)
    table, attention = nn.Embedding(20, 16), nn.MultiheadAttention(16, 2, batch_first=True)
    tokens, before = RNG.integers(0, 20, (1, 40)), plans.misses
    with krt.no_grad():
        whole = []
        for n in range(1, 41):
            h = table(krt.tensor(tokens[:, :n]))
            whole.append(attention(h, h, h, need_weights=False)[0].numpy())
        made = plans.misses - before
        for n in (1, 2, 7, 40):  # each by a plan of its own
            plans.clear()
            h = table(krt.tensor(tokens[:, :n]))
            own = attention(h, h, h, need_weights=False)[0].numpy()
            np.testing.assert_allclose(whole[n - 1], own, rtol=1e-4, atol=1e-5)
    assert made <= PLANS + 1  # and one that stores the weights


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_batches_of_any_size_are_trained_with_few_plans(reduction: str) -> None:
    """The mean divides by a number that depends on the size."""
    weight = RNG.normal(size=(6, 3))
    w = krt.tensor(weight.astype(np.float32), requires_grad=True)
    want, before = weight.copy(), plans.misses
    for n in [4, 9, 2, 30, 5, 17, 8, 9, 11, 3]:
        x, y = RNG.normal(size=(n, 6)), RNG.normal(size=(n, 3))
        error = krt.tensor(x.astype(np.float32)) @ w - krt.tensor(y.astype(np.float32))
        loss = getattr(error.square(), reduction)()
        loss.backward()
        slope = 2 * x.T @ (x @ want - y) / (n * 3 if reduction == "mean" else 1)
        np.testing.assert_allclose(w.grad.numpy(), slope, rtol=1e-3, atol=1e-3)
        with krt.no_grad():
            w -= 0.01 * w.grad
        w.grad = None
        want = w.detach().numpy().astype(np.float64)
    assert plans.misses - before <= 2 * PLANS


def test_columns_are_written_one_by_one() -> None:
    out, want, before = krt.zeros(6, 40).realize(), np.zeros((6, 40)), plans.misses
    for i in range(40):
        out[:, i] = OURS[0][:6, i] * 2
        want[:, i] = THEIRS[0][:6, i] * 2
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-6)
    assert plans.misses - before <= PLANS + 2


def test_writing_a_part_that_is_read() -> None:
    """Memory that is written and read at once needs an order of its own."""
    table, before = krt.ones(40, 8).realize(), plans.misses
    wanted = np.ones((40, 8))
    for n, m in [(4, 2), (5, 4), (7, 1), (6, 3), (9, 5), (8, 3), (10, 6)]:
        table[:n, :m] *= 0.5
        wanted[:n, :m] *= 0.5
        assert table.tolist() == wanted.tolist()
    assert plans.misses - before <= 7  # no plan is made in vain
    for n in [2, 3, 4, 5, 9, 3, 20]:
        want = np.arange(2.0 * n)
        t = krt.tensor(want)
        t[1 : n + 1] = t[:n] * 2
        want[1 : n + 1] = want[:n].copy() * 2
        assert t.tolist() == want.tolist()


def test_an_index_out_of_range_is_told_for_each_size() -> None:
    for n in [3, 4, 5, 6, 7, 3, 6]:
        table = OURS[0][:n]
        good, bad = krt.tensor([0, n - 1]), krt.tensor([0, n])
        np.testing.assert_array_equal((table[good] * 1).numpy(), X[[0, n - 1]])
        with pytest.raises(IndexBoundsError, match=f"index {n} is out of range for an axis of {n}"):
            (table[bad] * 1).numpy()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "uint64"])
def test_types(dtype: str) -> None:
    data = krt.tensor(RNG.integers(0, 2, 60)).cast(dtype).realize()
    held = data.cast(krt.int64).numpy()
    for n in [5, 7, 2, 9, 30, 8]:
        assert (data[:n].flip(0) + data[n : 2 * n]).cast(krt.int64).tolist() == (
            (held[:n][::-1] | held[n : 2 * n]) if dtype == "bool"
            else held[:n][::-1] + held[n : 2 * n]
        ).tolist()  # fmt: skip


def test_threads_share_a_plan() -> None:
    """Each runs it for sizes of its own, in turns."""
    for n in (3, 4, 5):
        (OURS[1][:n] * 2).sum().item()
    wrong: list[int] = []

    def work(start: int) -> None:
        for n in range(start, 200, 7):
            found = (OURS[1][:n] * 2).sum().item()
            if abs(found - (THEIRS[1][:n] * 2).sum()) > 1e-3:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(6 + k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("turned", [False, True])
def test_callers_that_read_memory_in_another_order(turned: bool) -> None:
    """One graph of gradients, or of a value, that several graphs come to."""

    def loss(w: krt.Tensor, v: krt.Tensor) -> krt.Tensor:
        return ((v.exp() * w) if turned else (w * v.exp())).sum()

    for n in [11, 12, 13, 14, 20]:
        for order in (1, -1):
            w, v = (krt.tensor(V[k : k + n], requires_grad=k == 0) for k in (0, 100))
            total = loss(w, v) if order == 1 else (v.exp() * w if not turned else w * v.exp()).sum()
            total.realize()
            total.backward()
            np.testing.assert_allclose(w.grad.numpy(), np.exp(V[100 : 100 + n]), rtol=1e-5)
        np.testing.assert_allclose(v.exp().numpy(), np.exp(V[100 : 100 + n]), rtol=1e-5)


def test_numbers_that_are_no_sizes() -> None:
    x = krt.tensor(np.arange(5))
    for k in [0, 1, 2**61, 5, -(2**62), 2**62, 7, -3, 10**12]:
        assert (x + k).tolist() == [k + i for i in range(5)]
        assert (x * k).tolist() == [(k * i + 2**63) % 2**64 - 2**63 for i in range(5)]


def test_a_graph_that_fits_no_plan_leaves_the_others_theirs() -> None:
    def work(n: int, number: float) -> krt.Tensor:
        return (OURS[1][:n].cast("bfloat16") * number).sum()

    for n in (5, 6, 7, 8):
        work(n, 2.0).item()
    work(9, 3.0).item()
    before = plans.misses
    for n in (10, 11, 12, 13):
        assert work(n, 2.0).item() == pytest.approx(2 * THEIRS[1][:n].sum(), rel=0.1, abs=0.3)
    assert plans.misses == before


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "most_plans", 6)
    made: list[weakref.ref[Any]] = []
    for depth in range(2, 14):
        for n in (5, 6, 7, 8, 9):
            y = OURS[1][:n]
            for _ in range(depth):
                y = y.tanh() + y.sum()
            y.realize()
        made += [f.plan for f in plans._size_families.values() if f.plan is not None]
    gc.collect()
    assert len({ref() for ref in made} - {None}) <= 4
    assert OURS[1][:30].tanh().numpy() == pytest.approx(np.tanh(V[:30]), rel=1e-5)


def test_what_fits_no_plan_is_not_kept() -> None:
    for n in range(2, 60):
        OURS[1][:n].cumsum(0).numpy()
        krt.nn.functional.max_pool1d(OURS[1][None, : 3 * n], 3 + n % 5).numpy()
    assert all(len(family.seen) <= 8 for family in plans._size_families.values())


@pytest.mark.cases(60)
@pytest.mark.parametrize("seed", range(240))
def test_random_programs(seed: int) -> None:
    assert torch.tensor
    with contextlib.suppress(size_programs.Refused):
        size_programs.check(size_programs.generate(np.random.default_rng(seed)))
