"""Indices into axes of a size known at run time: values, and checks against the size of a call."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import IndexBoundsError

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
