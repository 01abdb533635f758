"""Eager graphs that differ in sizes share plans, and have the values of plans of their own."""

from __future__ import annotations

import contextlib
import dataclasses
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
from kernelrt.ir.region import Loop
from kernelrt.tensor.eager import plan_cache
from kernelrt.tensor.eager.plan_cache import PlanCache, plans
from kernelrt.tensor.eager.size_families import LEAST_ROOM, MOST_SPECIALIZED

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

torch = Package("torch")
RNG = np.random.default_rng(7)
X, V = RNG.normal(size=(80, 70)).astype(np.float32), RNG.normal(size=500).astype(np.float32)
OURS = krt.tensor(X), krt.tensor(V)
THEIRS = X.astype(np.float64), V.astype(np.float64)
#: A graph of size 1 may have another structure, as its axes repeat.
PLANS = MOST_SPECIALIZED + 2

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
    "short running sum": lambda _, x, v, n: (v[: n % 8 + 1] * 2).cumsum(0) + x[0, 0],
    "running sum from 9 on": lambda _, x, v, n: (v[: n + 8] * 2).cumsum(0) + x[0, 0],
    "running sums from 9 on": lambda _, x, v, n: (x[:n, : n + 8] * 2).cumsum(1) + v[: n + 8],
    "running sums of columns": lambda _, x, v, n: (x[:n, :40] * 2).cumsum(0) + v[:40],
    "running product": lambda _, x, v, n: (v[: n % 15 + 2] * 0.5).cumprod(0) + x[0, 0],
    "running maximum": lambda lib, x, v, n: lib.cummax(v[:n] * 2) + x[0, 0],
    "sorted rows": lambda lib, x, v, n: lib.sort(x[: n % 9 + 1, : n + 2] * 2) + v[: n + 2],
    "sorted from 70 on": lambda lib, x, v, n: lib.sort(v[: n + 70]) + x[0, 0],
    "places from 70 on": lambda _, x, v, n: (v[: n + 70] * 2).argsort(-1) + 0 * x[0, 0],
    "windows": lambda lib, x, v, n: lib.correlate(v[: n + 3], x[0, :3], 1) + x[0, 0],
    "every other window": lambda lib, x, v, n: lib.correlate(v[: n + 3], x[0, :3], 2) + x[0, 0],
    "every third window": lambda lib, x, v, n: lib.correlate(v[: n + 3], x[0, :4], 3) * v[0],
    "searched": lambda lib, x, v, n: lib.searchsorted(lib.sort(v[:n]), x[0]) + 0 * v[0],
    "searched for": lambda lib, x, v, n: lib.searchsorted(lib.sort(x[0]), v[:n]) + 0 * v[0],
    "a loop": lambda lib, x, v, n: lib.decayed(x[:n] * 1.5)[0] + v[:70],
    "what its turns give": lambda lib, x, v, n: lib.decayed(x[:n])[1] * 2 + v[:70],
    "written from the front": lambda lib, x, v, n: lib.written(v[100:170] * 2, 0, v[:n]),
    "written behind": lambda lib, x, v, n: lib.written(v[100:250] * 2, n, v[:n] + x[0, :n]),
    "written, looked up": lambda lib, x, v, n: lib.written(
        v[100:250] * 2, 3, v[v[200 : 202 + n].argsort(-1)] + x[0, 0]
    ),
    "written, sorted": lambda lib, x, v, n: lib.written(v[:250] * 2, n, lib.sort(v[200 : 270 + n])),
    "written, carried": lambda lib, x, v, n: lib.written(x * 2, slice(n), lib.decayed(x[:n])[1]),
    "written, shares": lambda lib, x, v, n: lib.written(x * 2, slice(n), lib.shares(x[:n] + v[0])),
    "written rows": lambda lib, x, v, n: lib.written(x + v[0], slice(n // 2, n), v[:70]),
    "chosen": lambda lib, x, v, n: x[lib.arange(n), (lib.arange(n) * 7) % n] * v[:n],
}
#: These have a plan more: for what is written to, for size 2, or for sizes of which the first three
#: seem to depend on each other.
ONE_MORE = {"running maximum", "sorted rows", "every third window", "chosen",
            *(name for name in CASES if "written" in name)}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_plans() -> None:
    plans.clear()


class Ours:
    """kernelrt with NumPy's names."""

    concatenate, arange, where, tril, roll = krt.cat, krt.arange, krt.where, krt.tril, krt.roll
    searchsorted = krt.searchsorted

    @staticmethod
    def sort(x: krt.Tensor) -> krt.Tensor:
        return x.sort()[0]

    @staticmethod
    def cummax(x: krt.Tensor) -> krt.Tensor:
        return x.cummax(0)[0]

    @staticmethod
    def shares(x: krt.Tensor) -> krt.Tensor:
        return x.softmax(-1)

    @staticmethod
    def correlate(x: krt.Tensor, taps: krt.Tensor, stride: int) -> krt.Tensor:
        return nn.functional.conv1d(x[None, None], taps[None, None], stride=stride)[0, 0]

    @staticmethod
    def decayed(x: krt.Tensor) -> tuple[krt.Tensor, krt.Tensor]:
        return krt.scan(lambda h, each: (h * 0.5 + each, h), x[0] * 0, x)

    @staticmethod
    def written(x: krt.Tensor, where: Any, value: krt.Tensor) -> krt.Tensor:
        x = x.realize()
        x[slice(where, where + len(value)) if isinstance(where, int) else where] = value
        return x


class Theirs(type(np)):  # type: ignore[misc]
    """NumPy with some more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    cummax = staticmethod(np.maximum.accumulate)

    @staticmethod
    def shares(x: Any) -> Any:
        exponentials = np.exp(x - x.max(-1, keepdims=True))
        return exponentials / exponentials.sum(-1, keepdims=True)

    @staticmethod
    def correlate(x: Any, taps: Any, stride: int) -> Any:
        return np.correlate(x, taps, "valid")[::stride]

    @staticmethod
    def decayed(x: Any) -> tuple[Any, Any]:
        h, found = x[0] * 0, []
        for each in x:
            found.append(h)
            h = h * 0.5 + each
        return h, np.stack(found)

    @staticmethod
    def written(x: Any, where: Any, value: Any) -> Any:
        x[slice(where, where + len(value)) if isinstance(where, int) else where] = value
        return x


@pytest.mark.parametrize("name", CASES)
def test_values_and_how_many_plans(name: str) -> None:
    case = CASES[name]
    before = plans.misses
    for n in [5, 2, 9, 4, 33, 7, 2, 60, 12, 5, 1, 8]:
        want = case(Theirs("numpy"), *THEIRS, n)
        found = case(Ours, *OURS, n).numpy()
        assert found.shape == np.shape(want)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    assert plans.misses - before <= PLANS + (name in ONE_MORE)


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


@pytest.mark.cases(1 / 4)
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


@pytest.mark.cases(1 / 4)
def test_gradients_of_what_sorts_slides_and_repeats() -> None:
    """Of a sum of many things that are made of a part of a vector, beside NumPy's."""
    weights = RNG.normal(size=300)
    taps = krt.tensor(V[:3])

    def slope(n: int) -> np.ndarray[Any, Any]:
        w = weights[:n]
        found = np.cumsum(w[::-1])[::-1].copy()  # of the running sums
        found[np.argsort(THEIRS[1][:n], kind="stable")] += w  # of the sorted
        for i in range((n - 3) // 2 + 1):  # of every other window
            found[2 * i : 2 * i + 3] += w[i] * THEIRS[1][:3]
        each = 0.0
        for i in reversed(range(n)):  # of the loop
            each = each * 0.5 + w[i]
            found[i] += each
        return found

    def turn(h: krt.Tensor, each: krt.Tensor) -> tuple[krt.Tensor, krt.Tensor]:
        h = h * 0.5 + each
        return h, h

    for lengths in ([70, 90, 81, 66, 120, 200, 73, 131], [3, 9, 5, 40, 12, 4, 33]):
        plans.clear()
        before = plans.misses
        for n in lengths:
            x = krt.tensor(V[:n], requires_grad=True)
            w = krt.tensor(weights[:n].astype(np.float32))
            strided = nn.functional.conv1d(x[None, None], taps[None, None], stride=2)[0, 0]
            made = [x.cumsum(0), x.sort()[0], strided, krt.scan(turn, x[0] * 0, x)[1]]
            sum((part * w[: len(part)]).sum() for part in made).backward()
            np.testing.assert_allclose(x.grad.numpy(), slope(n), rtol=1e-3, atol=1e-3)
        assert plans.misses - before <= 2 * PLANS


@pytest.mark.cases(1 / 4)
def test_recurrent_layers_over_sequences_of_any_length() -> None:
    krt.manual_seed(0)
    for kind in (nn.GRU, nn.LSTM, nn.RNN):
        layer = kind(5, 6, batch_first=True, bidirectional=True)
        x = krt.tensor(RNG.normal(size=(2, 40, 5)).astype(np.float32))
        found, before = {}, plans.misses
        for n in [5, 2, 9, 4, 33, 7, 40, 12]:
            layer.zero_grad()
            out = layer(x[:, :n])[0]
            out.square().sum().backward()
            found[n] = [out.detach().numpy(), *(p.grad.numpy() for p in layer.parameters())]
        assert plans.misses - before <= 2 * PLANS
        for n in (2, 12, 40):  # each by a plan of its own
            plans.clear()
            layer.zero_grad()
            out = layer(x[:, :n])[0]
            out.square().sum().backward()
            own = [out.detach().numpy(), *(p.grad.numpy() for p in layer.parameters())]
            for mine, other in zip(own, found[n], strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.exhaustive
def test_windows_of_images() -> None:
    torch_functional = torch.nn.functional
    x, w = RNG.normal(size=(1, 3, 40, 40)), RNG.normal(size=(4, 3, 3, 3))
    before = plans.misses
    for n in [7, 12, 9, 30, 17, 40, 8]:
        m = n * 5 % 33 + 7
        ours, theirs = krt.tensor(x)[:, :, :n, :m], torch.tensor(x)[:, :, :n, :m]
        ours.requires_grad_()
        theirs.requires_grad_()
        found = nn.functional.conv2d(ours, krt.tensor(w), stride=2, padding=1)
        want = torch_functional.conv2d(theirs, torch.tensor(w), stride=2, padding=1)
        np.testing.assert_allclose(found.detach().numpy(), want.detach().numpy(), 1e-9, 1e-9)
        nn.functional.max_pool2d(found, 3, 2, 1).square().sum().backward()
        torch_functional.max_pool2d(want, 3, 2, 1).square().sum().backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), 1e-9, 1e-9)
    assert plans.misses - before <= 4 * PLANS


@pytest.mark.exhaustive
def test_layers_with_strides_over_signals_of_any_length() -> None:
    """Whether a stride goes into a length is no difference, nor how many sizes follow from it."""

    def made(lib: Any) -> Any:
        return lib.Sequential(
            lib.Conv1d(3, 8, 5, stride=2, padding=2), lib.ReLU(), lib.MaxPool1d(2),
            lib.Conv1d(8, 8, 3, stride=2, padding=1), lib.ReLU(), lib.AvgPool1d(2, 2, 1),
            lib.Conv1d(8, 4, 3, stride=3, padding=1), lib.AdaptiveAvgPool1d(1), lib.Flatten(),
        ).double()  # fmt: skip

    ours, theirs, misses = made(nn), made(torch.nn), []
    ours.load_state_dict({k: krt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    for n in [80, 97, 73, 104, 131, 160, 85, 78, 117, 103, 141, 98]:
        misses.append(plans.misses)
        x = RNG.normal(size=(2, 3, n))
        for model, lib in ((ours, krt), (theirs, torch)):
            model.zero_grad()
            model(lib.tensor(x)).square().sum().backward()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), 1e-8, 1e-9)
    assert plans.misses == misses[-4]  # four forms at most are tried


def test_sizes_that_only_data_of_windows_make_equal() -> None:
    """Counts of windows that are equal to a size in the graphs that were seen, and not later."""
    for n, m in [(9, 4), (11, 5), (15, 7), (17, 8), (9, 3), (12, 5), (20, 2)]:
        found = Ours.correlate(OURS[1][:n], OURS[0][0, :3], 2)
        want = Theirs.correlate(THEIRS[1][:n], THEIRS[0][0, :3], 2)
        if m <= len(want):
            found, want = found[:m] + OURS[1][:m], want[:m] + THEIRS[1][:m]
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


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
        with pytest.raises(IndexBoundsError, match=f"index {n} is out of range .* of size {n}"):
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
    places = krt.tensor([0, 1], dtype=krt.int32).realize()

    def work(n: int, number: int) -> krt.Tensor:
        return OURS[1][:n][places * krt.tensor(number, dtype=krt.int32)].sum()

    for n in (5, 6, 7, 8):
        work(n, 2).item()
    work(9, 3).item()
    before = plans.misses
    for n in (10, 11, 12, 13):
        assert work(n, 2).item() == pytest.approx(V[0] + V[2], rel=1e-5)
    assert plans.misses == before


def test_numbers_in_bfloat16_that_vary() -> None:
    before, held = plans.misses, krt.zeros(3).cast("bfloat16").realize()
    for n in range(3, 30):
        x = torch.tensor(V[:n]).bfloat16()
        for found, want in [
            (OURS[1][:n].cast("bfloat16") * (n / 4), x * (n / 4)),
            (held + n / 4, x[:3] * 0 + n / 4),
        ]:
            np.testing.assert_array_equal(found.realize().float().numpy(), want.float().numpy())
    assert plans.misses - before <= 3 * PLANS
    for number in (0.1, -3.7, 1e39, float("nan"), -0.0, 1e-42):
        whole = krt.full((5,), number, dtype="bfloat16").realize().float()
        want = torch.tensor(np.full(5, number)).bfloat16().float()
        np.testing.assert_array_equal(whole.numpy(), want.numpy())


def test_the_structure_of_a_loop_has_all_of_its_fields() -> None:
    # native/graph_key.pyx lists them by hand, all but the trip count.
    assert {field.name for field in dataclasses.fields(Loop)} == {
        "ports", "carries", "stacked", "trip_count", "reverse", "conditional", "counted",
        "numbered", "checkpoint",
    }  # fmt: skip


@pytest.mark.cases(1 / 4)
def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = PlanCache(most_plans=6)
    monkeypatch.setattr(plan_cache, "plans", plans)
    made: list[weakref.ref[Any]] = []
    for depth in range(2, 14):
        for n in (5, 6, 7, 8, 9):
            y = OURS[1][:n]
            for _ in range(depth):
                y = y.tanh() + y.sum()
            y.realize()
        made += [plan for _, family in plans._size_families.items() for plan in family.plans]
    gc.collect()
    assert len({ref() for ref in made} - {None}) <= 4
    assert OURS[1][:30].tanh().numpy() == pytest.approx(np.tanh(V[:30]), rel=1e-5)


@pytest.mark.cases(1 / 4)
def test_what_fits_no_plan_is_not_kept() -> None:
    for n in range(2, 60):
        krt.linalg.inv(OURS[0][:n, :n] + 9 * krt.eye(n)).numpy()
        krt.nn.functional.max_pool1d(OURS[1][None, : 3 * n], 3 + n % 5).numpy()
    assert all(len(family.seen) <= 8 for _, family in plans._size_families.items())


@pytest.mark.cases(15)
@pytest.mark.parametrize("seed", range(240))
def test_random_programs(seed: int) -> None:
    assert torch.tensor
    with contextlib.suppress(size_programs.Refused):
        size_programs.check(size_programs.generate(np.random.default_rng(seed)))


def test_columns_of_one_tensor_and_rows_of_another() -> None:
    """They differ in sizes alone, and have no plan in common."""
    rng = np.random.default_rng(0)
    tables = [krt.tensor(rng.normal(size=s), requires_grad=True) for s in ((8, 90), (90, 8))]
    for turn in range(24):
        if turn in (12, 18):
            before = plans.misses
        which = turn // 12 if turn < 18 else turn % 2
        i, j = (int(k) for k in rng.integers(2, 88, 2))
        table = tables[which]
        h = table[:, i] + table[:, j] if which == 0 else table[i] + table[j]
        h.tanh().sum().backward()
        want = np.zeros(table.shape)
        values = table.detach().numpy()
        values = values if which else values.T
        slope = 1 - np.tanh(values[i] + values[j]) ** 2
        for k in (i, j):
            (want if which else want.T)[k] += slope
        np.testing.assert_allclose(table.grad.numpy(), want, 1e-12)
        table.grad = None
        if turn == 17:
            assert plans.misses - before <= PLANS + 1
    assert plans.misses == before
