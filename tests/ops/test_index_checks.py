"""An index is checked against the size of its axis, whatever the elements are made of.

Every buffer is a part of a larger one filled with a sentinel, so that a read outside shows in the
result and a write outside in the surroundings.
"""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import IndexBoundsError

SENTINEL = 77
MARGIN = 600
#: How the indexed values come by their elements.
TABLES = ["stored", "constant", "expanded", "one", "folded", "padded", "reshaped", "computed"]
INDICES = ["stored", "constant", "expanded", "computed", "narrow", "float"]
OPERATIONS = [
    "getitem", "gather", "index_select", "take_along_dim", "embedding", "scatter_add", "one_hot",
    "cross_entropy", "nll_loss",
]  # fmt: skip


class Guarded:
    """Arrays with sentinels on both sides."""

    def __init__(self) -> None:
        self.whole: list[tuple[np.ndarray, int]] = []

    def array(self, values: np.ndarray) -> np.ndarray:
        flat = np.full(values.size + 2 * MARGIN, SENTINEL, values.dtype)
        self.whole.append((flat, values.size))
        inner = flat[MARGIN : MARGIN + values.size].reshape(values.shape)
        inner[...] = values
        return inner

    def intact(self) -> bool:
        return all(
            (a[:MARGIN] == SENTINEL).all() and (a[MARGIN + n :] == SENTINEL).all()
            for a, n in self.whole
        )


def table(rng, kind, rows, columns):
    """A function from tensors to a tensor of (rows, columns), its input and its elements."""
    shape = (rows, columns)
    data = rng.integers(1, 9, shape).astype(np.float32)
    if kind == "constant":
        return (lambda _: krt.full(shape, 3.0)), data, np.full(shape, 3, np.float32)
    if kind == "expanded":
        return (lambda x: x[:1].expand(*shape)), data, np.broadcast_to(data[:1], shape)
    if kind == "one":
        one = data[:1, :1].copy()
        return (lambda x: x.expand(*shape)), one, np.broadcast_to(one, shape)
    if kind == "folded":
        return (lambda _: krt.zeros(*shape) + 2), data, np.full(shape, 2, np.float32)
    if kind == "padded":
        inner = data[: rows - 1]
        return (lambda x: x[: rows - 1].pad((0, 0, 0, 1))), data, np.pad(inner, ((0, 1), (0, 0)))
    if kind == "reshaped":
        return (lambda x: x[:, :1].expand(*shape).reshape(-1).reshape(*shape)), data, (
            np.broadcast_to(data[:, :1], shape))  # fmt: skip
    if kind == "computed":
        return (lambda x: x.flip(0) * 2), data, data[::-1] * 2
    return (lambda x: x), data, data


def indices(rng, kind, size, count):
    """The same for a vector of indices, sometimes out of range."""
    wild = rng.random() < 0.5
    drawn = rng.integers(0, size, count)
    if wild and count:
        far = [size, size + 1, -size - 1, 2**40, -(2**62), size * 2]
        drawn[rng.integers(count)] = int(rng.choice(far))
    if kind == "constant":
        number = int(drawn[0]) if count else 0
        same = np.full(count, number)
        return (lambda _: krt.full((count,), number, dtype="int64")), drawn, same
    if kind == "expanded":
        first = drawn[:1] if count else np.zeros(1, np.int64)
        return (lambda i: i.expand(count)), first, np.broadcast_to(first, count)
    if kind == "computed":
        # Data arithmetic wraps: this is the index again, by way of sums that do not fit.
        moved = drawn + np.int64(2**62)
        return (lambda i: i + 2**62 + 2**62 + 2**62), moved, drawn
    if kind == "narrow":
        clipped = np.clip(drawn, -128, 127).astype(np.int8)
        return (lambda i: i), clipped, clipped.astype(np.int64)
    if kind == "float":
        kind = str(rng.choice(["int64", "int32", "int8", "uint8"]))
        floats = rng.integers(0, size, count).astype(rng.choice(["f4", "f8"]))
        wanted = floats.astype(np.int64)
        if wild and count:
            at = rng.integers(count)
            floats[at] = rng.choice([np.nan, np.inf, 1e30])
            wanted[at] = 2**62
        return (lambda i: i.cast(kind)), floats, wanted
    return (lambda i: i), drawn, drawn


def apply(operation, t, i, rows):
    """What is tested, of a table with so many rows."""
    if operation == "getitem":
        return t[i]
    if operation == "gather":
        return t.gather(0, i.reshape(-1, 1))
    if operation == "index_select":
        return t.index_select(0, i)
    if operation == "take_along_dim":
        return t.take_along_dim(i.reshape(-1, 1), 0)
    if operation == "embedding":
        return i.embedding(t)
    if operation == "scatter_add":
        return t.scatter_add(0, i.reshape(-1, 1), krt.ones(i.shape[0], 1))
    if operation == "one_hot":
        return i.one_hot(rows)
    scores = t.T[:1].expand(i.shape[0], rows)
    return getattr(scores if operation == "cross_entropy" else -scores, operation)(i)


def truth(operation, t, i):
    rows = len(t)
    if operation in ("getitem", "index_select", "embedding"):
        return t[i]
    if operation == "gather":
        return t[i][:, :1]
    if operation == "take_along_dim":
        return t[i]
    if operation == "scatter_add":
        out = t.astype(np.float64)
        np.add.at(out[:, 0], i, 1.0)
        return out
    if operation == "one_hot":
        return np.eye(rows, dtype=np.int64)[i]
    scores = t[:, 0].astype(np.float64)
    if operation == "nll_loss":
        return scores[i].mean()
    return (np.log(np.exp(scores).sum()) - scores[i]).mean()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("seed", range(10))
def test_out_of_range_is_told_and_in_range_is_right(operation, seed):
    rng = np.random.default_rng([seed, OPERATIONS.index(operation)])
    for kind in TABLES:
        rows, columns = int(rng.choice([1, 2, 5])), int(rng.choice([1, 3]))
        if rows == 1 and kind == "padded":
            rows = 2
        guard = Guarded()
        make, source, elements = table(rng, kind, rows, columns)
        count = int(rng.choice([1, 2, 17]))
        index_kind = str(rng.choice(INDICES))
        pick, given, wanted = indices(rng, index_kind, rows, count)
        source, given = guard.array(source), guard.array(given)
        from_end = operation == "getitem"
        bad = (wanted >= rows) | (wanted < (-rows if from_end else 0))

        def run(x, i, make=make, pick=pick, rows=rows):
            return apply(operation, make(x), pick(i), rows)

        eager = (krt.from_numpy(source), krt.from_numpy(given))
        for f, arguments in ((krt.jit(run), (source, given)), (run, eager)):
            story = f"{operation} {kind} {index_kind} {rows}x{columns} {wanted}"
            if bad.any():
                with pytest.raises(IndexBoundsError):
                    print(story, f(*arguments).numpy())
            else:
                got = f(*arguments).numpy()
                np.testing.assert_allclose(got, truth(operation, elements, wanted), rtol=1e-5,
                                           atol=1e-6, err_msg=story)  # fmt: skip
        assert guard.intact()


def trained(index):
    w = krt.tensor([[1.0, 2.0]], requires_grad=True)
    w.expand(3, 2)[index].sum().backward()
    return w.grad


CASES = {
    "an expanded axis": lambda i: krt.tensor([3.0]).expand(4)[i],
    "an embedding of one row": nn.Embedding(1, 2),
    "equal elements": lambda i: krt.ones(5)[i],
    "an axis of one element": lambda i: krt.ones(1)[i],
    "labels of constant scores": lambda i: krt.zeros(1, 3).cross_entropy(i),
    "labels of one class": lambda i: krt.tensor([[1.0]]).cross_entropy(i),
    "elements times zero": lambda i: krt.arange(3)[i] * 0,
    "a row that is summed": lambda i: krt.tensor([3.0]).expand(4)[i].sum(),
    "an index of an index": lambda i: krt.arange(5)[krt.tensor([1, 2]).expand(2)[i] * 0],
    "two axes": lambda i: krt.ones(3, 3)[krt.tensor([0]), i],
    "a step in training": trained,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", ["eager", "jit"])
def test_an_index_that_no_address_depends_on(name, how):
    f = CASES[name] if how == "eager" else krt.jit(CASES[name])
    f(krt.tensor([0])).numpy()
    for wrong in (7, -9):
        with pytest.raises(IndexBoundsError):
            f(krt.tensor([wrong])).numpy()
    f(krt.tensor([0])).numpy()


@pytest.mark.parametrize("number", [4, 5, 63, -5, -64, 64, -65])
def test_a_number_that_only_some_sizes_have(number):
    n = krt.Variable("n", 4, 64)
    pick = krt.jit(lambda x: x[number], dynamic={"x": {0: n}})
    told = "known only at run time" if -64 <= number < 64 else "out of range for axis 0"
    with pytest.raises(krt.IndexBoundsError, match=told):
        pick(np.zeros(64, np.float32))


PARTS = {
    "getitem": lambda t, i: t[i][1:],
    "remainders": lambda t, i: t[i * 16 % 16 * 384 % 384 - 64][1:],
    "constant": lambda t, i: t[i * 0 - 64][1:],
    "rows": lambda t, i: t.reshape(2, 1).expand(2, 3)[i][1:] * 2,
    "gather": lambda t, i: t.gather(0, i)[1:],
    "sum": lambda t, i: t[i][1:].sum(0),
    "twice": lambda t, i: (t[i] + t[i * 0 - 64])[1:],
}


@pytest.mark.parametrize("form", PARTS)
def test_no_element_of_an_open_size_is_looked_up_where_there_is_none(form):
    t = krt.from_numpy(np.array([3, 4], np.float32))
    f = krt.jit(lambda i: PARTS[form](t, i), dynamic={"i": {0: krt.Variable("n", 1, 64)}})
    assert f(np.array([77])).numpy().size in (0, 1)
    right = np.array([3, 4, 3])
    exact = {"getitem": right, "gather": right, "rows": right[:, None] * [2, 2, 2], "sum": 10}
    if form in exact:
        np.testing.assert_array_equal(f(np.array([1, 0, 1, 0])).numpy(), exact[form])
    for indices in ([0, 77], [1, 1, 99]):
        with pytest.raises(IndexBoundsError):
            f(np.array(indices))


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("index", [
    np.array([2**64 - 1], np.uint64), np.array([0, 2**64 - 5], np.uint64), np.array([np.nan]),
    np.array([np.inf, 1.0], np.float32), np.array([2.0**64]),
])  # fmt: skip
def test_unsigned_numbers_are_never_counted_from_the_end(index, jitted):
    t = krt.tensor(np.arange(5, dtype=np.float32))
    looks = [
        lambda i: t[i.cast("uint64")], lambda i: t.gather(0, i.cast("uint64")),
        lambda i: t.reshape(1, 5)[:, i.cast("uint64")],
    ]  # fmt: skip
    for look in looks:
        with pytest.raises(IndexBoundsError):
            (krt.jit(look)(index) if jitted else look(krt.tensor(index))).numpy()
