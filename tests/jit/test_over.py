"""Whole epochs in one call come to what a loop of calls comes to, bit for bit."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.patience import PATIENCE, until

import kernelrt as krt
from kernelrt import nn
from kernelrt.data import batches

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((53, 6)).astype(np.float32)
Y = RNG.integers(0, 4, 53)


class Net:
    """A model with what training changes: weights, moments, running means, random numbers."""

    def __init__(self, *, threads=None):
        krt.manual_seed(7)
        self.model = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4)
        )
        self.opt = nn.optim.Adam(self.model.parameters(), lr=1e-2)
        self.steps = krt.zeros((), dtype="int64")
        self.step = krt.jit(self._step, threads=threads)

    def _step(self, x, y):
        self.opt.zero_grad()
        scores = self.model(x)
        loss = scores.cross_entropy(y)
        loss.backward()
        self.opt.step()
        self.steps.assign(self.steps + 1)
        return loss

    def values(self):
        own = [np.asarray(v) for v in self.model.state_dict().values()]
        return [*own, self.steps.numpy(), krt.get_rng_state().numpy()]


@contextlib.contextmanager
def ringing(count, handler):
    """Have a handler of signals called once, amid steps that each add 1 to `count`."""
    so_far, rung = count._memory.numpy().item, []
    first = so_far()

    def ring(number, frame):
        if not rung and so_far() > first + 10:
            rung.append(True)
            handler(number, frame)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def loop(step, *data, epochs=1, steps=None, **options):
    found = []
    feed = batches(*data, **options)
    for _ in range(epochs):
        for batch in feed:
            found.append(step(*(batch if len(data) > 1 else (batch,))))
            if len(found) == steps:
                return found
    return found


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)


OPTIONS = [
    {"batch_size": 8, "shuffle": True, "seed": 3, "epochs": 3},
    {"batch_size": 8, "shuffle": True, "seed": 3, "epochs": 2, "drop_last": True},
    {"batch_size": 7, "epochs": 2},
    {"batch_size": 53},
    {"batch_size": 100, "epochs": 2, "shuffle": True, "seed": 0},
    {"batch_size": 8, "shuffle": True, "epochs": 2},
]


@pytest.mark.cases(1)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_epochs_are_the_loop_over_batches(options, threads, kind):
    x, y = (X, Y) if kind == "arrays" else (krt.tensor(X), krt.tensor(Y))
    one, other = Net(threads=threads), None
    losses = one.step.over(x, y, **options)
    ours = [losses.numpy(), *one.values()]
    other = Net(threads=threads)
    theirs = np.stack([loss.numpy() for loss in loop(other.step, x, y, **options)])
    same(ours, [theirs, *other.values()])
    assert isinstance(losses, krt.Tensor)
    assert one.step.retraces == other.step.retraces


def test_it_learns_as_numpy_does():
    w = krt.tensor(np.zeros((6, 1)), requires_grad=True)
    opt = nn.optim.SGD([w], lr=0.1)

    @krt.jit
    def step(x, y):
        opt.zero_grad()
        loss = (x @ w - y).square().mean()
        loss.backward()
        opt.step()
        return loss

    x = X.astype(np.float64)
    y = x @ np.arange(6.0).reshape(6, 1)
    losses = step.over(x, y, batch_size=10, epochs=4, shuffle=True, seed=1).numpy()
    want, expected = np.zeros((6, 1)), []
    feed = batches(x, y, batch_size=10, shuffle=True, seed=1)
    for _ in range(4):
        for a, b in feed:
            off = a @ want - b
            expected.append((off**2).mean())
            want = want - 0.1 * 2 * a.T @ off / off.size
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    np.testing.assert_allclose(w.detach().numpy(), want, rtol=1e-12)


class Pair(NamedTuple):
    twice: object
    parts: object


def test_results_keep_their_nesting():
    @krt.jit
    def step(x, y):
        return {"pair": Pair(x * 2, [y.sum(), (x.sum(),)]), "name": "s", "none": None, "n": 3}

    got = step.over(X, Y, batch_size=10, drop_last=True)
    assert isinstance(got["pair"], Pair)
    assert (got["name"], got["none"], got["n"]) == ("s", None, 3)
    assert got["pair"].twice.shape == (5, 10, 6)
    same([got["pair"].twice], [X[:50].reshape(5, 10, 6) * 2])
    same([got["pair"].parts[0]], [Y[:50].reshape(5, 10).sum(1)])
    assert isinstance(got["pair"].parts[1], tuple)
    two = krt.jit(lambda x: (x.sum(), x.amax(0))).over(X, batch_size=10, drop_last=True)
    assert isinstance(two, tuple)
    assert [t.shape for t in two] == [(5,), (5, 6)]


def test_a_step_without_results_and_one_that_returns_state():
    total = krt.zeros(6)

    @krt.jit
    def silent(x):
        total.assign(total + x.sum(0))

    assert silent.over(X, batch_size=9) is None
    np.testing.assert_allclose(total.numpy(), X.sum(0), rtol=1e-5)
    count = krt.zeros((), dtype="int64")

    @krt.jit
    def counting(x):
        before = count * 1
        count.assign(count + x.shape[0])
        return before, count

    before, after = counting.over(X, batch_size=20)
    assert before.tolist() == [0, 20, 40]
    assert after.tolist() == [20, 40, 53]
    assert count.item() == 53


def test_large_results_are_written_in_place():
    x = RNG.standard_normal((64, 300)).astype(np.float32)
    f = krt.jit(lambda x: (x.exp(), x.sum()))
    exp, total = f.over(x, batch_size=16, shuffle=True, seed=2)
    for k, batch in enumerate(batches(x, batch_size=16, shuffle=True, seed=2)):
        one = f(batch)
        same([exp.numpy()[k], total.numpy()[k]], [one[0], one[1]])


@pytest.mark.cases(34)  # each layout takes a way of its own
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.T.copy().T,
        lambda x: x[:, ::-1],
        lambda x: x[::-1],
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: x.astype(np.float64),
        lambda x: x.astype(np.float16),
        lambda x: (x * 10).astype(np.int32),
        lambda x: (x * 10).astype(np.int8)[:, 1::2],
        lambda x: x > 0,
        lambda x: x.astype(">f4"),
        lambda x: krt.tensor(x).cast("bfloat16"),
        lambda x: krt.tensor(x) * 2,
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(x.shape),
        lambda x: x.reshape(53, 1, 2, 3).transpose(0, 3, 1, 2),
        lambda x: x[:, :0],
        lambda x: x[:, 0],
    ],
    ids=range(17),
)
def test_rows_of_all_kinds(make, shuffle):
    x = make(X)
    f = krt.jit(lambda x: (x.cast("float32").sum(), x))
    sums, rows = f.over(x, batch_size=10, drop_last=True, shuffle=shuffle, seed=0)
    for k, batch in enumerate(batches(x, batch_size=10, drop_last=True, shuffle=shuffle, seed=0)):
        one = f(batch)
        same([sums.numpy()[k]], [one[0]])
        assert rows[k].equal(one[1])
    assert rows.dtype is one[1].dtype


@pytest.mark.parametrize("columns", [6, 700])
def test_rows_that_the_step_changes(columns):
    """The rows of a step are those that are there when it begins."""
    made = []
    for how in (0, 1):
        x = krt.tensor(np.ones((6, columns), np.float32))

        @krt.jit
        def step(batch, x=x):
            x.assign(x * 2 + batch.sum() * 1e-3)
            return batch

        if how:
            made.append(step.over(x, batch_size=2).numpy())
        else:
            made.append(np.stack([step(x[2 * k : 2 * k + 2].numpy()).numpy() for k in range(3)]))
    same([made[0]], [made[1]])
    assert made[0][2, 0, 0] > 4


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("columns", [1, 6, 200])
def test_rows_of_which_the_step_changes_some(columns, shuffle):
    """Some steps read rows where they lie, and those beside them what was copied before."""
    made, options = [], {"shuffle": shuffle, "seed": 3}
    for how in (0, 1):
        x = krt.tensor(np.arange(40 * columns, dtype=np.float32).reshape(40, columns))

        @krt.jit
        def step(batch, x=x):
            x[9:15] = batch.sum() * 1e-3 + 1
            return batch * 1, batch.sum(0)

        if how:
            made.append([part.numpy() for part in step.over(x, batch_size=2, epochs=3, **options)])
        else:
            rows = batches(np.arange(40), batch_size=2, **options)
            found = [step(x.numpy()[i]) for _ in range(3) for i in rows]
            made.append([np.stack([r.numpy() for r in part]) for part in zip(*found, strict=True)])
    same(made[0], made[1])


def test_what_a_python_function_raises_names_the_step():
    calls = []

    def fails(x):
        calls.append(1)
        if len(calls) == 12:
            raise ValueError("enough")
        return x

    count = krt.zeros((), dtype="int64").realize()

    @krt.jit
    def step(x):
        y = krt.call(fails, x, out=x, pure=False)
        count.assign(count + 1)
        return y.sum()

    with pytest.raises(krt.errors.CustomFunctionError, match=r"^step 11: ") as caught:
        step.over(np.zeros((40, 2), np.float32), batch_size=1)
    assert caught.value.step == 11
    assert isinstance(caught.value.__cause__, ValueError)
    assert count.item() == 11


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("how", ["const", "nested", "foreign", "number"])
def test_whole_arguments_that_the_step_changes(how, size):
    """Each step reads them as those before have left them, also where they are copied in."""
    x = np.zeros((70, 1), np.float32)
    made = []
    for over in (False, True):
        shape = () if how == "number" else (size,)
        state = krt.zeros(*shape).realize()

        @krt.jit
        def step(b, c, state=state):
            c = c["state"][0] if how == "nested" else c
            state.assign(state + 1)
            return c.sum() + b.sum()

        given = np.from_dlpack(state) if how == "foreign" else state
        given = {"state": [given]} if how == "nested" else given
        if not over:
            made.append([step(x[i : i + 1], given).item() for i in range(70)])
        elif how == "number":
            made.append(step.over(x, given, batch_size=1).tolist())
        else:
            made.append(step.over(x, batch_size=1, const={"c": given}).tolist())
    assert made[0] == made[1] == [size * k if how != "number" else k for k in range(70)]


def test_an_error_leaves_what_earlier_steps_of_its_turn_have_given():
    table = krt.tensor(np.arange(8.0, dtype=np.float32))
    seen = krt.zeros(8)
    step = krt.jit(lambda i: seen.assign(seen + table[i]))
    places = np.arange(60) % 8
    step.over(places[:2], batch_size=1)
    for bad in (0, 1, 17, 59):
        seen.assign(krt.zeros(8)).realize()
        there = places.copy()
        there[bad] = 8
        with pytest.raises(krt.IndexBoundsError, match=rf"^step {bad}: ") as caught:
            step.over(there, batch_size=1)
        assert caught.value.step == bad
        same([seen.numpy()], [np.full(8, places[:bad].sum(), np.float32)])


def test_rows_that_are_resized_by_a_handler_are_not_read_beyond():
    x = np.ones((3000, 1500), np.float32)
    count = krt.zeros((), dtype="int64")

    @krt.jit
    def f(x):
        count.assign(count + 1)
        return x.sum(1)

    f.over(x[:4], batch_size=1)
    fired = []

    def handler(number, frame):
        fired.append(x.resize((3000, 1), refcheck=False))

    with ringing(count, handler):
        found = f.over(x, batch_size=1, epochs=100).numpy()
    assert fired
    assert set(found.ravel().tolist()) == {1500.0, 1.0}


def test_what_a_handler_changes_of_rows_is_seen_by_the_next_turn():
    x = krt.ones(1000, 1).realize()
    count = krt.zeros((), dtype="int64")

    @krt.jit
    def f(b):
        count.assign(count + 1)
        return b.sum() * (2 if b.requires_grad else 1)

    assert f.over(x, batch_size=1)[0].item() == 1
    with ringing(count, lambda *_: x.requires_grad_(True)):
        found = f.over(x, batch_size=1, epochs=2000).numpy()
    assert (found[0], found[-1]) == (1, 2)
    assert (np.diff(found) >= 0).all()


def test_arguments_that_have_no_rows():
    weights = np.arange(6, dtype=np.float32)

    @krt.jit
    def step(x, scale, mode, *, parts, mask=None):
        y = (x * scale * parts["w"]).sum()
        return y + (0 if mask is None else mask.sum()) + (100 if mode == "far" else 0)

    got = step.over(
        X, 2.0, "far", parts={"rows": X[:, 0], "w": krt.tensor(3.0)}, batch_size=50,
        const={"mask": weights},
    ).numpy()  # fmt: skip
    want = [(X[s] * 6).sum(dtype=np.float64) + 15 + 100 for s in (slice(0, 50), slice(50, 53))]
    np.testing.assert_allclose(got, want, rtol=1e-4)
    by_name = step.over(
        x=X, scale=2.0, mode="far", parts={"rows": X[:, 0], "w": krt.tensor(3.0)}, batch_size=50,
        const={"mask": weights},
    )  # fmt: skip
    same([by_name.numpy()], [got])


def test_constant_arrays_are_read_where_they_lie():
    table = RNG.standard_normal((40, 40)).astype(np.float32)
    step = krt.jit(lambda x, t: (x @ t).sum())
    x = RNG.standard_normal((20, 40)).astype(np.float32)
    for const in (table, krt.tensor(table), table.T):
        got = step.over(x, batch_size=5, const={"t": const}).numpy()
        same([got], [np.stack([step(x[k : k + 5], const).numpy() for k in (0, 5, 10, 15)])])


@pytest.mark.cases(1 / 4)
def test_zero_samples_and_batches_that_do_not_come():
    net = Net()
    before = net.values()
    assert net.step.over(X[:0], Y[:0], epochs=3).shape == (0,)
    assert net.step.over(X, Y, batch_size=100, drop_last=True).shape == (0,)
    assert net.step.over(X, Y, epochs=0, shuffle=True).shape == (0,)
    assert net.step.over(krt.tensor(X[:0]), krt.tensor(Y[:0])).shape == (0,)
    pair = krt.jit(lambda x: (x, x.sum())).over(X[:0], batch_size=4)
    assert [t.shape for t in pair] == [(0, 4, 6), (0,)]
    same(net.values(), before)


def test_first_epoch_goes_on_where_another_call_ended():
    seen = krt.jit(lambda x: x[:, 0])
    options = {"batch_size": 53, "shuffle": True, "seed": 4}
    whole = seen.over(X, epochs=3, **options).numpy()
    parts = [seen.over(X, first_epoch=k, **options).numpy()[0] for k in range(3)]
    same([whole], [np.stack(parts)])
    assert not np.array_equal(whole[0], whole[1])


def test_orders_follow_the_streams_seed():
    seen = krt.jit(lambda x: x[:, 0])
    krt.manual_seed(5)
    first = seen.over(X, batch_size=53, shuffle=True, epochs=2).numpy()
    krt.manual_seed(5)
    feed = batches(X, batch_size=53, shuffle=True)
    same([first], [np.stack([next(iter(feed))[:, 0] for _ in range(2)])])
    assert np.array_equal(np.sort(first[1]), np.sort(X[:, 0]))


def test_data_may_change_between_calls_and_shapes_lead_to_another_trace():
    x = X.copy()
    f = krt.jit(lambda x: x.sum())
    for add in (0, 1, 2):
        x[:] = X + add
        got = f.over(x, batch_size=10).numpy()
        same([got], [np.stack([f(x[k : k + 10]).numpy() for k in range(0, 53, 10)])])
    assert f.retraces == 1
    assert f.over(x[:40], batch_size=10).shape == (4,)
    assert f.retraces == 1
    f.over(x[:, :3], batch_size=10, drop_last=True)
    assert f.retraces == 2
    f.over(x.astype(np.float64), batch_size=10, drop_last=True)
    assert f.retraces == 3


def test_dynamic_sizes_have_one_plan():
    size = krt.Variable("n", 1, 16)
    f = krt.jit(lambda x: x.sum(), dynamic={"x": {0: size}})
    got = f.over(X, batch_size=10, shuffle=True, seed=1).numpy()
    want = [f(b).numpy() for b in batches(X, batch_size=10, shuffle=True, seed=1)]
    same([got], [np.stack(want)])
    assert f.retraces == 0


def test_methods_and_gradients_that_add_up():
    class Sums:
        def __init__(self):
            self.w = krt.tensor(np.ones(6, np.float32), requires_grad=True)

        @krt.jit
        def collect(self, x):
            loss = (x * self.w).sum()
            loss.backward()
            return loss

    one, other = Sums(), Sums()
    ours = one.collect.over(X, batch_size=10).numpy()
    theirs = [other.collect(b).numpy() for b in batches(X, batch_size=10)]
    same([ours, one.w.grad], [np.stack(theirs), other.w.grad])
    held = one.w.grad
    one.collect.over(X, batch_size=10)
    np.testing.assert_allclose(held.numpy(), 2 * X.sum(0), rtol=1e-4)


# ---- callbacks


def test_what_a_callback_keeps_has_its_value():
    kept = []
    f = krt.jit(lambda x: x.sum(1))
    out = f.over(np.ones((40, 600), np.float32), batch_size=4, every=5,
                 callback=lambda k, r: kept.append(r))  # fmt: skip
    with krt.no_grad():
        out.zero_()
    assert out.numpy().max() == 0
    assert [r.tolist() for r in kept] == [[[600.0] * 4] * k for k in (5, 10)]


def test_callbacks_see_the_results_so_far():
    net, other = Net(), None
    seen = []
    losses = net.step.over(
        X, Y, batch_size=8, epochs=2, every=3, callback=lambda k, r: seen.append((k, r))
    )
    assert [k for k, _ in seen] == [3, 6, 9, 12]
    for k, found in seen:
        assert found.shape == (k,)
        same([found], [losses.numpy()[:k]])
    other = Net()
    same([losses], [np.stack([v.numpy() for v in loop(other.step, X, Y, batch_size=8, epochs=2)])])
    ends = []
    net.step.over(X, Y, batch_size=8, epochs=3, callback=lambda k, r: ends.append(k))
    assert ends == [7, 14, 21]


@pytest.mark.cases(1 / 4)
def test_a_callback_that_changes_the_rate_and_the_data():
    def run(how):
        net, x = Net(), X.copy()

        def between(k, results):
            net.opt.lr = 1e-2 / k
            x[:] += 0.01 * float(results[-1].item())
            net.model.eval() if k == 8 else net.model.train()

        if how:
            return net.step.over(x, Y, batch_size=10, epochs=3, every=4, callback=between), net
        found = []
        for _ in range(3):
            for k in range(0, 53, 10):
                found.append(net.step(x[k : k + 10], Y[k : k + 10]))
                if len(found) % 4 == 0:
                    between(len(found), found)
        return np.stack([v.numpy() for v in found]), net

    ours, theirs = run(1), run(0)
    same([ours[0], *ours[1].values()], [theirs[0], *theirs[1].values()])


def test_a_callback_may_stop():
    net = Net()
    losses = net.step.over(X, Y, batch_size=8, epochs=9, every=2, callback=lambda k, r: k >= 4)
    assert losses.shape == (4,)
    ours = [losses.numpy(), *net.values()]
    other = Net()
    want = loop(other.step, X, Y, batch_size=8, epochs=9, steps=4)
    same(ours, [np.stack([v.numpy() for v in want]), *other.values()])
    low = net.step.over(X, Y, batch_size=8, every=1, callback=lambda k, r: r[-1] < 100)
    assert low.shape == (1,)


def test_what_a_callback_raises_comes_out():
    net = Net()

    def fails(k, results):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        net.step.over(X, Y, batch_size=8, every=3, callback=fails)
    ours = net.values()
    other = Net()
    loop(other.step, X, Y, batch_size=8, steps=3)
    same(ours, other.values())


def test_a_callback_may_call_the_step_and_begin_another_course():
    net, inner = Net(), []

    def again(k, results):
        inner.append(net.step.over(X[:16], Y[:16], batch_size=8).numpy())
        inner.append(net.step(X[:8], Y[:8]).numpy())

    losses = net.step.over(X, Y, batch_size=8, every=3, callback=again).numpy()
    ours = [losses, *net.values()]
    other, outer = Net(), []
    for batch in batches(X, Y, batch_size=8):
        outer.append(other.step(*batch).numpy())
        if len(outer) % 3 == 0:
            for part in (slice(0, 8), slice(8, 16), slice(0, 8)):
                other.step(X[part], Y[part])
    same(ours, [np.stack(outer), *other.values()])
    assert len(inner) == 4


def test_results_of_callbacks_are_marked_as_those_of_calls():
    net = Net()
    seen = []
    net.step.over(X, Y, batch_size=8, every=2, callback=lambda k, r: seen.append(r))
    with pytest.raises(krt.GradientError):
        (seen[0].sum() * krt.tensor(1.0, requires_grad=True)).backward()


# ---- errors


def test_an_index_out_of_range_names_the_step():
    y = Y.copy()
    y[27] = 9
    net, table = Net(), krt.tensor(np.arange(4.0, dtype=np.float32))
    count = krt.zeros((), dtype="int64")

    @krt.jit
    def step(x, y):
        count.assign(count + 1)
        return table[y].sum() + x.sum()

    with pytest.raises(krt.IndexBoundsError, match=r"^step 3: .*9") as caught:
        step.over(X, y, batch_size=8, epochs=2)
    assert caught.value.step == 3
    assert caught.value.index == 9
    assert count.item() == 3
    with pytest.raises(krt.IndexBoundsError, match=r"^step 3: "):
        net.step.over(X, y, batch_size=8)
    ours = net.values()
    other = Net()
    loop(other.step, X, Y, batch_size=8, steps=3)
    same(ours, other.values())
    assert step.over(X, Y, batch_size=8).shape == (7,)


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (krt.ShapeError, "batch_size: expected at least 1", {"batch_size": 0}),
        (krt.DTypeError, "batch_size: expected an int", {"batch_size": 2.0}),
        (krt.ShapeError, "epochs: expected at least 0", {"epochs": -1}),
        (krt.DTypeError, "epochs", {"epochs": 1.5}),
        (krt.ShapeError, "first_epoch", {"first_epoch": -1}),
        (krt.DTypeError, "seed", {"seed": "a"}),
        (krt.DTypeError, "shuffle: expected a bool", {"shuffle": 1}),
        (krt.DTypeError, "drop_last: expected a bool", {"drop_last": None}),
        (krt.DTypeError, "callback: expected a function", {"callback": 3}),
        (krt.DTypeError, "every: expected callback=", {"every": 3}),
        (krt.ShapeError, "every: expected at least 1", {"every": 0, "callback": print}),
        (TypeError, "multiple values|both", {"const": {"x": X}}),
        (TypeError, "unexpected", {"const": {"z": X}}),
        (TypeError, "unexpected", {"z": X}),
    ],
)  # fmt: skip
def test_wrong_options(error, text, options):
    net = Net()
    before = net.values()
    with pytest.raises(error, match=text):
        net.step.over(X, Y, **options)
    same(net.values(), before)


def test_wrong_rows():
    net = Net()
    with pytest.raises(krt.ShapeError, match=r"^y: expected 53 rows .*, not shape \(52,\)"):
        net.step.over(X, Y[:-1])
    with pytest.raises(krt.ShapeError, match="none of the arguments has rows"):
        krt.jit(lambda a, b: a).over(krt.tensor(1.0), 2.0)
    with pytest.raises(krt.ShapeError, match=r"batch\[1\]\['y'\]: expected 53 rows"):
        krt.jit(lambda batch: batch[0]).over([X, {"y": Y[1:]}])
    with pytest.raises(krt.JitError, match="takes no object"):
        net.step.over(X, object())
    assert net.step.plans == ()


def test_results_that_cannot_be_stacked_are_refused_before_any_step():
    count = krt.zeros(())

    @krt.jit
    def step(x):
        count.assign(count + 1)
        return x * 2

    with pytest.raises(krt.ShapeError, match="drop_last=True"):
        step.over(X, batch_size=10)
    assert count.item() == 0
    assert step.over(X, batch_size=10, drop_last=True).shape == (5, 10, 6)
    with pytest.raises(krt.ShapeError, match="drop_last=True"):
        krt.jit(lambda x: (x.sum(), x.shape[0])).over(X, batch_size=10)


def test_it_is_refused_where_nothing_has_a_value():
    inner = krt.jit(lambda x: x.sum())
    with pytest.raises(krt.JitError, match=r"over\(\)"):
        krt.jit(inner.over)(X)
    with pytest.raises(krt.JitError, match=r"over\(\)|differentiated"):
        krt.func.grad(lambda x: inner.over(x).sum())(krt.tensor(X))


def test_gradients_are_not_cut_off_by_rows():
    x = krt.tensor(X, requires_grad=True)
    w = krt.tensor(np.ones(6, np.float32), requires_grad=True)

    @krt.jit
    def step(x):
        (x * w).sum().backward()

    with pytest.raises(krt.JitError, match="x: the argument requires a gradient"):
        step.over(x, batch_size=10)
    step.over(x.detach(), batch_size=10)
    y = krt.jit(lambda x: x * 2).over(x, batch_size=53)
    with pytest.raises(krt.GradientError):
        y.sum().backward()


# ---- threads, signals and what else comes in between


def test_two_threads_take_turns():
    net = Net()
    found = []
    workers = [
        threading.Thread(
            target=lambda: found.append(net.step.over(X, Y, batch_size=8, epochs=20).numpy())
        )
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [f.shape for f in found] == [(140,)] * 2
    # No step's result is another one's, and none is lost.
    assert len(np.unique(np.concatenate(found))) > 270
    assert net.steps.item() == 280


def test_another_thread_runs_within_one_call():
    """The GIL is let go of, also by steps that are too short to let go of it by themselves.

    The call would take a minute: the other thread ends it, once it has run often enough.
    """
    count = krt.zeros((), dtype="int64")

    @krt.jit
    def step(x):
        count.assign(count + 1)

    class StopError(Exception):
        pass

    def stop(*_):
        raise StopError

    x = np.zeros((1000, 1), np.float32)
    step.over(x[:2], batch_size=1)
    begun = count._memory.numpy().item
    main = threading.get_ident()

    def run():
        until(lambda: begun() > 2)
        for _ in range(20):
            time.sleep(1e-3)
        signal.pthread_kill(main, signal.SIGALRM)

    worker = threading.Thread(target=run)
    before = signal.signal(signal.SIGALRM, stop)
    worker.start()
    try:
        with pytest.raises(StopError):
            step.over(x, batch_size=1, epochs=10**6)
    finally:
        signal.signal(signal.SIGALRM, before)
    worker.join()
    assert 2 < count.item() < 10**9


def test_state_that_another_thread_changes_is_seen():
    rate = krt.tensor(1.0)
    f = krt.jit(lambda x: x.sum() * rate)
    x = np.ones((2_000_000, 1), np.float32)
    f.over(x[:2], batch_size=1)

    def change():
        time.sleep(0.005)
        rate.assign(2.0)
        rate.realize()

    worker = threading.Thread(target=change)
    worker.start()
    values = f.over(x, batch_size=1).numpy()
    worker.join()
    assert set(values.tolist()) <= {1.0, 2.0}
    assert (np.diff(values) >= 0).all()


SCRIPT = """
import os, signal, threading, time
import numpy as np
import kernelrt as krt

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
count, other = krt.zeros((), dtype="int64"), krt.zeros(4, dtype="int64")

@krt.jit
def step(x):
    count.assign(count + 1)
    other.assign(other + 1)

x = np.ones((1000, 1), np.float32)
step.over(x[:4], batch_size=2)
so_far = count._memory.numpy().item

def send():
    while so_far() < 10:
        time.sleep(1e-3)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=send).start()
try:
    step.over(x, batch_size=1, epochs=10**6)
except KeyboardInterrupt:
    n = count.item()
    assert 10 <= n < 10**9, n
    assert (other.numpy() == n).all()
    step.over(x[:10], batch_size=1)
    assert count.item() == n + 10
    print("stopped")
"""


def test_ctrl_c_leaves_whole_steps():
    """Of a call that would take a minute."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr


def test_a_handler_runs_between_steps_and_may_run_steps():
    count = krt.zeros((), dtype="int64")

    @krt.jit
    def step(x):
        count.assign(count + 1)
        return x.sum()

    x = np.ones((2_000_000, 1), np.float32)
    step.over(x[:4], batch_size=1)
    calls = []

    def handler(number, frame):
        calls.append(step.over(x[:3], batch_size=1).shape)

    with ringing(count, handler):
        step.over(x, batch_size=1)
    assert calls == [(3,)]
    assert count.item() == 4 + 2_000_000 + 3


def test_daemon_threads_do_not_hold_up_the_end():
    code = textwrap.dedent("""
        import threading, time
        import numpy as np
        import kernelrt as krt
        f = krt.jit(lambda x: x.sum())
        x = np.ones((5_000_000, 1), np.float32)
        f.over(x[:2], batch_size=1)
        def forever():
            while True:
                f.over(x, batch_size=1)
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.1)
        print("end")
    """)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_a_problem_without_a_solution_names_the_step():
    a = np.stack([np.eye(3, dtype=np.float32) * (k != 4) for k in range(8)])
    count = krt.zeros((), dtype="int64")

    @krt.jit
    def step(a):
        count.assign(count + 1)
        return krt.linalg.inv(a).sum()

    with pytest.raises(krt.LinAlgError, match=r"^step 2: ") as caught:
        step.over(a, batch_size=2)
    assert caught.value.step == 2
    assert count.item() == 2


def test_steps_that_change_what_they_read_are_traced_as_calls_are():
    """A function may set attributes while it is traced; then each plan serves one call."""

    class Turns:
        def __init__(self):
            self.model = nn.Linear(2, 1)
            self.step = krt.jit(self._step)

        def _step(self, x):
            was = self.model.training
            self.model.train(not was)
            return x.sum() * (1.0 if was else 2.0)

    x = np.ones((5, 2), np.float32)
    one, other = Turns(), Turns()
    got = one.step.over(x, batch_size=2).numpy()
    want = [other.step(b).numpy() for b in batches(x, batch_size=2)]
    same([got], [np.stack(want)])


def test_within_a_traced_function_the_error_says_what_to_do():
    f = krt.jit(lambda x: x.sum(1))
    for outer in (
        krt.jit(lambda x: f.over(x, batch_size=2)),
        lambda x: krt.vmap(lambda x: f.over(x, batch_size=2))(x[None]),
        lambda x: krt.fori_loop(0, 2, lambda i, x: f.over(x, batch_size=2), x),
    ):
        with pytest.raises(krt.JitError, match=r"<lambda>\.over\(\) is called by .* krt\.scan"):
            outer(krt.tensor(X))


def test_another_function_that_is_being_traced_does_not_disturb():
    begun, go = threading.Event(), threading.Event()

    @krt.jit
    def slow(x):
        begun.set()
        assert go.wait(PATIENCE)
        return x + 1

    worker = threading.Thread(target=lambda: slow(X))
    worker.start()
    assert begun.wait(PATIENCE)
    net = Net()
    ours = [net.step.over(X, Y, batch_size=8).numpy(), *net.values()]
    go.set()
    worker.join()
    other = Net()
    theirs = np.stack([v.numpy() for v in loop(other.step, X, Y, batch_size=8)])
    same(ours, [theirs, *other.values()])


def test_rates_of_schedules():

    def make():
        net = Net()
        net.schedule = nn.optim.lr_scheduler.StepLR(net.opt, 1, gamma=0.5)
        return net

    one = make()
    got = one.step.over(
        X, Y, batch_size=8, epochs=2, every=1, callback=lambda k, r: one.schedule.step()
    ).numpy()
    ours = [got, *one.values()]
    other, want = make(), []
    for _ in range(2):
        for batch in batches(X, Y, batch_size=8):
            want.append(other.step(*batch).numpy())
            other.schedule.step()
    same(ours, [np.stack(want), *other.values()])


@pytest.mark.parametrize("places", [1, 53, 160])
def test_orders_of_few_epochs_or_many_at_once(places, monkeypatch):
    monkeypatch.setattr(sys.modules["kernelrt.jit.multi_step"], "MOST_PLACES", places)
    seen = krt.jit(lambda x: x[:, 0])
    options = {"batch_size": 10, "shuffle": True, "seed": 4, "drop_last": True}
    got = seen.over(X, epochs=7, **options).numpy()
    feed = batches(X, **options)
    same([got], [np.stack([b[:, 0] for _ in range(7) for b in feed])])
    ends = []
    seen.over(X, epochs=7, callback=lambda k, r: ends.append(k), **options)
    assert ends == [5, 10, 15, 20, 25, 30, 35]


@pytest.mark.parametrize("const", [5, [1], "x"])
def test_const_is_a_dict(const):
    f = krt.jit(lambda x: x)
    with pytest.raises(krt.DTypeError, match=r"const: expected a dict of arguments by name"):
        f.over(np.ones((4, 2)), batch_size=2, const=const)
