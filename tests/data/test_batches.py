"""Batches, splits, scaling and metrics."""

from __future__ import annotations

import collections
import math
from typing import NamedTuple

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import data
from kernelrt.native.multi_step import order_of

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


class Pair(NamedTuple):
    a: object
    b: object


def test_batches_of_one_array():
    epoch = data.batches(X, batch_size=4)
    assert len(epoch) == 3
    found = list(epoch)
    assert [b.shape for b in found] == [(4, 2), (4, 2), (2, 2)]
    assert all(isinstance(b, np.ndarray) for b in found)
    assert np.array_equal(np.concatenate(found), X)
    assert len(data.batches(X, batch_size=4, drop_last=True)) == 2
    assert [len(b) for b in data.batches(X, batch_size=4, drop_last=True)] == [4, 4]
    assert len(data.batches(X, batch_size=100, drop_last=True)) == 0
    assert list(data.batches(X[:0], batch_size=3)) == []
    assert "10 rows" in repr(epoch)


def test_structures_stay_and_rows_stay_together():
    tensor = krt.tensor(X)
    tree = {"x": tensor, "y": (Y, [str(i) for i in Y])}
    narrow = krt.tensor(Y, dtype="bfloat16")
    epoch = data.batches(tree, Pair(Y * 2, narrow), batch_size=3, shuffle=True, seed=5)
    seen = []
    for first, second in epoch:
        assert isinstance(first["x"], krt.Tensor)
        assert first["x"].dtype is krt.float32
        assert isinstance(second, Pair)
        assert second.b.dtype is krt.bfloat16
        y, names = first["y"]
        assert (first["x"].numpy()[:, 0] == 2 * y).all()
        assert names == [str(i) for i in y]
        assert (second.a == 2 * y).all()
        assert second.b.float().tolist() == y.tolist()
        seen += y.tolist()
    assert sorted(seen) == list(range(10))


def test_orders_come_from_the_seed():
    def orders(epoch, count=3):
        return [np.concatenate(list(epoch)).tolist() for _ in range(count)]

    make = lambda seed: data.batches(Y, batch_size=3, shuffle=True, seed=seed)  # noqa: E731
    first, second = orders(make(1)), orders(make(1))
    assert first == second
    assert len({tuple(o) for o in first}) == 3
    assert orders(make(2)) != first
    krt.manual_seed(3)
    one = orders(make(None))
    krt.manual_seed(3)
    assert orders(make(None)) == one
    krt.manual_seed(4)
    assert orders(make(None)) != one


def test_two_epochs_at_once_do_not_disturb_each_other():
    epoch = data.batches(Y, batch_size=5, shuffle=True, seed=0)
    pairs = list(zip(epoch, epoch, strict=True))
    for k in (0, 1):
        assert sorted(np.concatenate([p[k] for p in pairs]).tolist()) == list(range(10))


def test_batches_feed_a_jitted_step():
    total = krt.zeros(2).realize()

    @krt.jit
    def add(x):
        total.assign(total + x.sum(0))

    for x in data.batches(krt.tensor(X), batch_size=5):
        add(x)
    for x in data.batches(X, batch_size=5):
        add(x)
    assert total.tolist() == (2 * X.sum(0)).tolist()
    assert add.retraces == 0


@pytest.mark.parametrize(("sizes", "train", "test"), [
    ({}, 7, 3), ({"test_size": 0.3}, 7, 3), ({"test_size": 4}, 6, 4), ({"train_size": 0.5}, 5, 5),
    ({"train_size": 2, "test_size": 3}, 2, 3),
])  # fmt: skip
def test_splits_are_of_the_size_asked_for(sizes, train, test):
    a, b, c, d = data.train_test_split(X, krt.tensor(Y), seed=0, **sizes)
    assert (len(a), len(b), c.shape, d.shape) == (train, test, (train,), (test,))
    assert (a[:, 0] == 2 * c.numpy()).all()
    rows = [*c.tolist(), *d.tolist()]
    assert len(set(rows)) == train + test
    again = data.train_test_split(X, krt.tensor(Y), seed=0, **sizes)
    assert np.array_equal(again[0], a)
    assert not np.array_equal(data.train_test_split(Y, seed=1, **sizes)[1], d.numpy())


def test_a_split_without_an_order():
    train, test = data.train_test_split(Y, test_size=0.2, shuffle=False)
    assert (train.tolist(), test.tolist()) == (list(range(8)), [8, 9])


@pytest.mark.parametrize("seed", range(5))
def test_classes_are_shared_out(seed):
    classes = np.repeat(np.array(["a", "b", "c"]), [50, 30, 20])
    train, test = data.train_test_split(classes, test_size=0.2, stratify=classes, seed=seed)
    assert collections.Counter(test.tolist()) == {"a": 10, "b": 6, "c": 4}
    assert collections.Counter(train.tolist()) == {"a": 40, "b": 24, "c": 16}
    odd = np.repeat([0, 1, 2], [7, 5, 3])
    rows = np.arange(15)
    a, b = data.train_test_split(rows, test_size=4, train_size=9, stratify=odd, seed=seed)
    assert len(a) == 9
    assert len(b) == 4
    assert not set(a) & set(b)
    assert set(odd[b]) == {0, 1, 2}


def test_scaling_and_back():
    rng = np.random.default_rng(0)
    x = rng.normal(100, 3, (50, 4))
    x[:, 2] = 0.1
    scale = data.Standardizer().fit(x)
    small = scale.transform(x)
    np.testing.assert_allclose(small.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(small.std(0), [1, 1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(scale.inverse(small), x, rtol=1e-12)
    t = krt.tensor(x.astype(np.float32))
    found = data.Standardizer().fit_transform(t)
    assert isinstance(found, krt.Tensor)
    assert found.dtype is krt.float32
    np.testing.assert_allclose(found.numpy()[:, [0, 1, 3]], small[:, [0, 1, 3]], atol=1e-4)
    jitted = krt.jit(lambda v: scale.inverse(scale.transform(v)))
    np.testing.assert_allclose(jitted(t).numpy(), t.numpy(), rtol=1e-6)
    assert scale.transform(x[0]).shape == (4,)
    assert scale.transform(x.reshape(5, 10, 4)).shape == (5, 10, 4)
    line = data.Standardizer().fit(np.array([1.0, 3.0]))
    assert line.transform(np.array([1.0, 3.0])).tolist() == [-1, 1]
    assert line.transform(np.array([1.0, 3.0, 5.0])).tolist() == [-1, 1, 3]
    images = rng.normal(size=(8, 3, 4, 4))
    by_channel = data.Standardizer(axis=(0, 2, 3)).fit_transform(images)
    np.testing.assert_allclose(by_channel.mean((0, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(by_channel.std((0, 2, 3)), 1, atol=1e-12)


def test_metrics():
    assert data.accuracy([1, 2, 3, 4], [1, 2, 0, 4]) == 0.75
    scores = krt.tensor([[0.1, 0.9], [0.8, 0.2]])
    assert data.accuracy(scores, krt.tensor([1, 1])) == 0.5
    assert data.accuracy(np.array(["a", "b"]), np.array(["a", "c"])) == 0.5
    assert data.accuracy([1.0, 0.0], [1, 1]) == 0.5
    logits = np.array([[5.0], [3.0], [4.0], [-2.0]])
    assert data.accuracy(logits, [1, 1, 1, 0]) == 1
    assert data.accuracy(krt.tensor(logits), [0, 0, 1, 0]) == 0.5
    assert data.confusion_matrix(logits, [1, 1, 1, 1]).tolist() == [[0, 0], [1, 3]]
    assert data.accuracy(np.array([True, False]), [1, 1]) == 0.5
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 30))
    assert data.mean_squared_error(a, b) == pytest.approx(((a - b) ** 2).mean())
    assert data.mean_absolute_error(krt.tensor(a), b) == pytest.approx(np.abs(a - b).mean())
    assert data.r2_score(a, b) == pytest.approx(1 - ((a - b) ** 2).sum() / (30 * b.var()))
    two = data.r2_score(np.stack([a, b], 1), np.stack([b, b], 1))
    assert two == pytest.approx((data.r2_score(a, b) + 1) / 2)
    assert data.r2_score([2.0, 2.0], [2.0, 2.0]) == 1
    assert data.r2_score([2.0, 3.0], [2.0, 2.0]) == 0
    found = data.confusion_matrix([0, 1, 1, 2], [0, 1, 2, 2], classes=4)
    assert found.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(("kind", "text", "call"), [
    (krt.ShapeError, "batch_size: expected at least 1, not -3",
     lambda: data.batches(X, batch_size=-3)),
    (krt.DTypeError, "batch_size", lambda: data.batches(X, batch_size=2.5)),
    (krt.ShapeError, r"data\[0\] has 10, data\[1\] has 9", lambda: data.batches(X, Y[1:])),
    (krt.ShapeError, r"data\['y'\] has 9", lambda: data.batches({"x": X, "y": Y[1:]})),
    (krt.ShapeError, "at least one", data.batches),
    (krt.ShapeError, "scalar", lambda: data.batches(np.float32(3))),
    (krt.DTypeError, "data: expected an array", lambda: data.batches(3)),
    (krt.DTypeError, "shuffle", lambda: data.batches(X, shuffle="yes")),
    (krt.DTypeError, "seed", lambda: data.batches(X, seed=1.5)),
    (krt.ShapeError, "seed", lambda: data.batches(X, seed=-1)),
    (krt.DomainError, "test_size", lambda: data.train_test_split(X, test_size=1.5)),
    (krt.ShapeError, "cannot be split", lambda: data.train_test_split(X, test_size=10)),
    (krt.DTypeError, "test_size", lambda: data.train_test_split(X, test_size="half")),
    (krt.ShapeError, "stratify", lambda: data.train_test_split(X, stratify=Y, seed=0)),
    (krt.ShapeError, "stratify: expected shape", lambda: data.train_test_split(X, stratify=Y[1:])),
    (krt.ShapeError, "stratify: expected shuffle=True",
     lambda: data.train_test_split(X, stratify=Y % 2, shuffle=False)),
    (krt.errors.StateError, "fit", lambda: data.Standardizer().transform(X)),
    (krt.ShapeError, "x: expected", lambda: data.Standardizer().fit(X[:0])),
    (krt.DTypeError, "x: expected", lambda: data.Standardizer().fit(np.array(["a"]))),
    (krt.ShapeError, "predicted", lambda: data.accuracy([1, 2], [1])),
    (krt.ShapeError, "predicted", lambda: data.accuracy([], [])),
    (krt.ShapeError, "predicted: .*may be logits or probabilities.*> 0.5 for probabilities",
     lambda: data.accuracy([[0.5], [0.3], [0.9]], [1, 1, 0])),
    (krt.ShapeError, "predicted: .*may be logits", lambda: data.confusion_matrix([[1]], [1])),
    (krt.ShapeError, r"predicted: shape \(2, 1\) has one score.*target has labels other",
     lambda: data.accuracy([[5.0], [3.0]], [1, 2])),
    (krt.ShapeError, "target has labels other", lambda: data.accuracy([[5.0]], np.array(["a"]))),
    (krt.DTypeError, "predicted: .*> 0.5 for prob", lambda: data.accuracy([0.9, 0.1], [1, 0])),
    (krt.DTypeError, "predicted: .*integer labels", lambda: data.confusion_matrix([[0.9]], [[1]])),
    (krt.DTypeError, "predicted: .*integer labels", lambda: data.accuracy([np.nan], [1])),
    (krt.ShapeError, r"x: expected 4 features along axis -1, as in fit\(x\), not shape \(5, 1\)",
     lambda: data.Standardizer().fit(np.ones((5, 4))).transform(np.ones((5, 1)))),
    (krt.ShapeError, "x: expected 1 features",
     lambda: data.Standardizer().fit(np.ones((5, 1))).transform(krt.ones(5, 4))),
    (krt.ShapeError, "x: expected 1 features",
     lambda: data.Standardizer().fit(np.ones((5, 1))).inverse(np.ones((5, 4)))),
    (krt.ShapeError, "x: expected 3 features along axis -3",
     lambda: data.Standardizer((0, 2, 3)).fit(np.ones((5, 3, 2, 2))).transform(np.ones((1, 2, 2)))),
    (krt.ShapeError, "predicted", lambda: data.r2_score([1.0], [1.0, 2.0])),
    (krt.ShapeError, "classes", lambda: data.confusion_matrix([5], [0], classes=3)),
    (krt.DTypeError, "target", lambda: data.confusion_matrix([1], [0.5])),
])  # fmt: skip
def test_bad_arguments_are_named(kind, text, call):
    with pytest.raises(kind, match=text):
        call()


def test_the_page_about_data_runs(capsys):
    import re
    from pathlib import Path

    text = Path(__file__).parents[2].joinpath("docs", "data.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)  # noqa: S102 - our own text
    lines = capsys.readouterr().out.splitlines()
    assert float(lines[0].split()[1]) > 0.9
    assert int(lines[1].split()[1]) <= 1  # for the cycle of betas
    assert lines[2].startswith("losses of 44 steps, the last one 0.")
    assert lines[3:] == ["True", "1.0 0.0", "5 20"]
    assert not math.isnan(names["loss"].item())


def test_orders_are_even_and_have_all_rows():
    """Each number comes to each place about equally often, whatever the seed and the epoch."""
    n, rounds = 8, 40_000
    orders = np.stack([order_of(n, seed, epoch) for seed in range(200) for epoch in range(200)])
    assert (np.sort(orders, axis=1) == np.arange(n)).all()
    counts = np.stack([np.bincount(orders[:, place], minlength=n) for place in range(n)])
    expected = rounds / n
    square = ((counts - expected) ** 2 / expected).sum()
    assert square < 95  # of 49 degrees of freedom, which more have once in ten thousand times
    pairs = np.bincount(orders[:, 0] * n + orders[:, 1], minlength=n * n).reshape(n, n)
    assert not pairs.diagonal().any()
    expected = rounds / (n * (n - 1))
    assert ((pairs[~np.eye(n, dtype=bool)] - expected) ** 2 / expected).sum() < 100


def test_orders_are_those_of_their_seed_and_epoch():
    assert order_of(6, 0, 0).tolist() == order_of(6, 0, 0).tolist()
    big = 1 << 64
    keys = [(0, 0), (0, 1), (1, 0), (big, 0), (0, big), (big + 1, 0), (1, 1), (big * big, 0)]
    found = {tuple(order_of(40, seed, epoch).tolist()) for seed, epoch in keys}
    assert len(found) == len(keys)
    assert order_of(0, 3, 4).shape == (0,)
    assert order_of(1, 3, 4).tolist() == [0]
    long = order_of((1 << 20) + 5, 1, 2)
    assert (np.bincount(long) == 1).all()
    with pytest.raises(krt.ShapeError, match="at least 0"):
        order_of(3, -1, 0)
