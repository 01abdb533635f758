"""Indices into axes of a size known at run time: values, and checks against the size of a call."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import IndexBoundsError, ShapeError

N, M = krt.Variable("n", 1, 20), krt.Variable("m", 1, 9)
PROGRAMS = {
    "rows": lambda x, i: x[i],
    "rows and the first": lambda x, i: x[i] * 2 + x[:1],
    "arithmetic": lambda x, i: x[(i * 3) // 3],
    "first half": lambda x, i: x[: (x.shape[0] + 1) // 2][i],
    "second half": lambda x, i: x[x.shape[0] // 2 :][i],
    "flipped": lambda x, i: x.flip(0)[i],
    "padded": lambda x, i: x.pad((0, 0, 1, 1))[i],
    "joined": lambda x, i: krt.cat([x, x * 2])[i],
    "flat": lambda x, i: x.reshape(-1)[i],
    "columns": lambda x, i: x.T[:, i],
    "expanded": lambda x, i: x[:1].expand(x.shape[0], 3)[i],
    "constant": lambda x, i: krt.ones(x.shape[0])[i],
    "positions": lambda x, i: krt.arange(x.shape[0])[i],
    "gather": lambda x, i: x.gather(0, i.reshape(-1, 1)),
    "index_select": lambda x, i: x.index_select(0, i),
    "scatter_add": lambda x, i: krt.zeros(x.shape[0], 3).scatter_add(
        0, i.reshape(-1, 1), krt.ones(i.shape[0], 1)),
    "scattered rows": lambda x, i: x.scatter_add(
        0, i.reshape(-1, 1).expand(i.shape[0], 3), x[i]),
    "embedding": lambda x, i: i.embedding(x),
    "two axes": lambda x, i: x[i, i % 3],
    "nested": lambda x, i: x[x.argmax(0)][:, :1] + x[i].sum(),
    "cross_entropy": lambda x, i: x.T[:1].expand(i.shape[0], x.shape[0]).cross_entropy(i),
    "one of many": lambda x, i: (i.reshape(-1, 1) == krt.arange(x.shape[0])).float() @ x,
    "softmax": lambda x, i: x.softmax(0)[i],
    "sums": lambda x, i: x.sum(1)[i],
    "from the end": lambda x, i: x[i - x.shape[0]],
}  # fmt: skip


def outcome(f, *arguments):
    """The value, or None for an index out of range."""
    try:
        return f(*arguments).numpy()
    except IndexBoundsError:
        return None


@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamic_and_static_sizes_agree(name):
    """The program compiled for one size is the oracle of the one for all."""
    program = PROGRAMS[name]
    f = krt.jit(program, dynamic={"x": {0: N}, "i": {0: M}})
    rng = np.random.default_rng(len(name))
    failures = 0
    for _ in range(20):
        rows, count = (int(rng.choice(sizes)) for sizes in ([1, 2, 3, 7, 20], [1, 2, 5, 9]))
        x = rng.standard_normal((rows, 3)).astype(np.float32)
        i = rng.integers(0, rows, count)
        if rng.random() < 0.5:
            wild = [rows, rows - 1, -1, -rows, -rows - 1, 19, 2 * rows, 2 * rows + 1, 20, 10**12]
            i[rng.integers(count)] = rng.choice(wild)
        got, expected = outcome(f, x, i), outcome(program, krt.tensor(x), krt.tensor(i))
        assert (got is None) == (expected is None), (x.shape, i)
        failures += got is None
        if got is not None:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert f.retraces == 0
    assert failures or name == "one of many"


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 13, 20])
@pytest.mark.parametrize("held", ["all", "last", "none"])
def test_lanes_that_do_not_exist_check_no_index(rows, held):
    """Such a lane has the sum of nothing beside the condition of the last row."""
    f = krt.jit(lambda x: x.masked_scatter(x > 0, x.abs()), dynamic={"x": {0: N}})
    x = np.arange(1.0, rows + 1).reshape(rows, 1)
    x[{"all": slice(0, 0), "last": slice(0, -1), "none": slice(None)}[held]] *= -1
    want = x.copy()
    want[x > 0] = np.abs(x).ravel()[: (x > 0).sum()]
    np.testing.assert_array_equal(f(x), want)


ROWS = {
    "constant": "x[c * 0]",
    "summed": "x[c * 0].sum(0)",
    "gathered": "x.gather(0, krt.zeros_like(x, dtype=krt.int64))",
    "one for all": "x[s.expand(c.shape[0])].sum(0)",
    "with another": "x[c * 0, c % 3].sum()",
    "pairs": "x[(c * 0)[:, None].expand(c.shape[0], 2), krt.arange(2)].sum(0)",
    "flattened": "x[(c[:, None] * 0 + krt.arange(2) * 0).reshape(-1)].sum(0)",
    "padded": "x[c].pad((0, 0, 1, 2)).sum(1)",
    "padded constant": "x[c * 0].pad((0, 0, 1, 2)).sum(1)",
    "joined": "krt.cat([x[c], krt.ones(2, 3), x[c * 0]], 0)",
    "stacked": "krt.stack([x[c * 0].sum(0), krt.ones(3)])",
    "scattered": "krt.zeros(2, 3).scatter_add(0, krt.ones_like(x, dtype=krt.int64), x)",
    "slope": "krt.grad(((w := x.clone().requires_grad_())[c * 0] * w).sum(), w)",
}


def rows(name):
    return eval(f"lambda x, c, s: {ROWS[name]}", {"krt": krt})  # noqa: S307 - of our own


@pytest.mark.parametrize("name", ROWS)
def test_indices_of_nothing_are_not_checked(name):
    n = krt.Variable("n", 0, 40)
    jitted = krt.jit(rows(name), dynamic={"x": {0: n}, "c": {0: n}})
    for size in (2, 0, 7, 1, 0):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        given = x, np.arange(size), np.array([0])
        wanted = rows(name)(*map(krt.tensor, given)).numpy()
        np.testing.assert_array_equal(jitted(*given).numpy(), wanted)


def test_an_index_of_nothing_that_may_be_something_is_checked():
    n = krt.Variable("n", 0, 40)
    jitted = krt.jit(rows("one for all"), dynamic={"x": {0: n}, "c": {0: n}})
    given = np.ones((2, 3), np.float32), np.arange(2)
    with pytest.raises(IndexBoundsError, match="index 5 is out of range for an axis of size 2"):
        jitted(*given, np.array([5]))
    assert jitted(*given, np.array([-1])).tolist() == [2.0] * 3


PLACES = np.arange(10) % 3
NEEDS = {
    "conv1d": (lambda x: x.reshape(1, 1, -1).conv1d(krt.ones(1, 1, 10)), 10),
    "dilated": (lambda x: x.reshape(1, 1, -1).conv1d(krt.ones(1, 1, 4), dilation=3), 10),
    "padded": (lambda x: x.reshape(1, 1, -1).conv1d(krt.ones(1, 1, 14), padding=2), 10),
    "avg_pool1d": (lambda x: x.reshape(1, 1, -1).avg_pool1d(10), 10),
    "max_pool1d": (lambda x: x.reshape(1, 1, -1).max_pool1d(10, 1), 10),
    "scatter_add": (lambda x: krt.zeros(3).scatter_add(0, krt.tensor(PLACES), x), 10),
    "gather": (
        lambda x: x.reshape(-1, 1).expand(-1, 2).gather(1, krt.tensor(PLACES[:, None] % 2)), 10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDS)
def test_an_axis_that_may_be_too_short_is_refused(name):
    function, need = NEEDS[name]
    short = krt.jit(function, dynamic={"x": {0: krt.Variable("n", need - 1, 64)}})
    for size in (need + 2, need, need - 1):
        with pytest.raises(ShapeError, match="raise the lower bound of its Variable"):
            short(np.ones(size, np.float32))
    enough = krt.jit(function, dynamic={"x": {0: krt.Variable("n", need, 64)}})
    for size in (need + 2, need):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_allclose(
            enough(x).numpy(), function(krt.from_numpy(x)).numpy(), rtol=1e-6
        )
