"""Values too large to store, of which each kernel computes the rows that it wants: attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.schedule.fuse.fusion_cost import Prices

torch = Package("torch")

SIZES = [(1, 1, 4), (2, 3, 5), (1, 17, 16), (3, 33, 8), (2, 64, 32), (1, 100, 7), (2, 130, 64)]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def crowded(monkeypatch):
    """A machine on which no buffer of rows is wanted."""
    begin = Prices.__init__

    def without_room(self, device):
        begin(self, device)
        self.max_buffer_bytes = 1

    monkeypatch.setattr(Prices, "__init__", without_room)
    monkeypatch.setattr("kernelrt.schedule.fuse.decide._OVERSIZE_PRICE", 1e9)


def attention(q, k, v, mask):
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    return scores.softmax(-1) @ v


def traced(mask, *, causal):
    """A new function each time, so that each is scheduled anew."""

    def both(q, k, v, w):
        length = q.shape[-2]
        hidden = krt.ones(length, length).triu(1).cast("bool") if causal else mask
        for x in (q, k, v):
            x.requires_grad_()
        out = attention(q, k, v, hidden)
        return out, *krt.grad((out * w).sum(), [q, k, v])

    return krt.jit(both)


def given(rng, heads, length, width):
    return [rng.standard_normal((heads, length, width)).astype(np.float32) for _ in range(4)]


def by_torch(arrays, mask, *, causal):
    q, k, v, w = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays)
    if causal:
        mask = torch.ones(q.shape[-2], q.shape[-2]).triu(1).bool()
    elif mask is not None:
        mask = torch.tensor(mask)
    out = attention(q, k, v, mask)
    grads = torch.autograd.grad((out * w).sum(), [q, k, v])
    return [x.detach().numpy() for x in (out, *grads)]


def run(function, arrays):
    return [r.numpy() for r in function(*map(krt.tensor, arrays))]


def largest(function):
    """The most elements of what the plan keeps between kernels."""
    [plan] = function.plans
    return max(b.size for b in plan.buffers)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_values(rng, size, causal):
    arrays = given(rng, *size)
    function = traced(None, causal=causal)
    for found, wanted in zip(
        run(function, arrays), by_torch(arrays, None, causal=causal), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def shown(rng, heads, length, width):
    """Rows as kernels compute them: by one that walks them, and by two that walk both ways.

    A product with ones on its diagonal is its other operand, bit for bit.
    """
    q, k, *_ = given(rng, heads, length, width)
    one = np.broadcast_to(np.eye(length, dtype=np.float32), (heads, length, length)).copy()

    def weights(q, k):
        return (q @ k.transpose(-1, -2) * 0.25).tanh()

    once = krt.jit(lambda q, k, one: weights(q, k) @ one)
    both = krt.jit(lambda q, k, one: ((w := weights(q, k)) @ one, w.transpose(-1, -2) @ one))
    alone = once(*map(krt.tensor, (q, k, one))).numpy()
    along, across = run(both, [q, k, one])
    [first], [second] = once.plans, both.plans
    assert "each kernel computes the rows" in second.explain()
    return first, alone, along, across.swapaxes(-1, -2)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("size", [(1, 33, 8), (2, 64, 32), (1, 100, 7), (2, 130, 64)])
def test_all_kernels_that_compute_rows_have_the_same_bits(rng, size):
    _, _, along, across = shown(rng, *size)
    np.testing.assert_array_equal(along, across)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("size", [(2, 130, 64), (2, 131, 64)])
def test_rows_that_are_computed_once_have_the_same_bits(rng, size, monkeypatch):
    # One kernel for both.
    monkeypatch.setattr("kernelrt.schedule.fuse.tileability.made_of", lambda node: [])
    plan, alone, along, _ = shown(rng, *size)
    assert "a row fits a local array of the kernel" in plan.explain()
    np.testing.assert_array_equal(along, alone)


@pytest.mark.cases(1)
@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("causal", [False, True])
def test_no_buffer_holds_scores(rng, causal):
    heads, length, width = 2, 200, 16
    function = traced(None, causal=causal)
    run(function, given(rng, heads, length, width))
    assert largest(function) <= heads * length * width


def test_small_scores_are_stored(rng):
    function = traced(None, causal=True)
    run(function, given(rng, 2, 200, 16))
    assert largest(function) == 2 * 200 * 200


@pytest.mark.cases(1)
@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("size", [(2, 33, 16), (1, 130, 64)])
def test_any_number_of_threads_gives_the_same_bits(rng, size):
    arrays = given(rng, *size)
    function = traced(None, causal=True)
    before = krt.get_num_threads()
    try:
        krt.set_num_threads(1)
        alone = run(function, arrays)
        krt.set_num_threads(2)
        shared = run(function, arrays)
    finally:
        krt.set_num_threads(before)
    for a, b in zip(alone, shared, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("crowded")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_stays_in_its_rows(rng, value):
    arrays = given(rng, 2, 37, 8)
    arrays[0][0, 5, 3] = value
    arrays[1][1, 7, 2] = value
    for causal in (False, True):
        found = run(traced(None, causal=causal), arrays)
        wanted = by_torch(arrays, None, causal=causal)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


@pytest.mark.usefixtures("crowded")
def test_rows_that_are_masked_altogether(rng):
    arrays = given(rng, 2, 20, 8)
    mask = rng.random((20, 20)) < 0.5
    mask[4] = True
    found = run(traced(krt.tensor(mask), causal=False), arrays)
    for x, y in zip(found, by_torch(arrays, mask, causal=False), strict=True):
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


@pytest.mark.usefixtures("crowded")
def test_nothing_to_attend_to(rng):
    for out in run(traced(None, causal=False), given(rng, 2, 0, 8)):
        assert out.shape == (2, 0, 8)


@pytest.mark.usefixtures("crowded")
def test_what_is_checked_is_stored(rng):
    """An index out of range is told once, before anything else is computed of its row."""
    x = krt.tensor(rng.standard_normal((50, 40)).astype(np.float32))
    rows = krt.tensor(rng.integers(0, 50, 64))

    @krt.jit
    def both(x, rows, w):
        picked = x[rows].exp()
        return picked @ w, picked.T @ picked.sum(1, keepdim=True)

    w = krt.tensor(rng.standard_normal((40, 20)).astype(np.float32))
    found = [r.numpy() for r in both(x, rows, w)]
    picked = np.exp(x.numpy()[rows.numpy()].astype(np.float64))
    np.testing.assert_allclose(found[0], picked @ w.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1], picked.T @ picked.sum(1, keepdims=True), rtol=1e-4)
    with pytest.raises(krt.IndexBoundsError):
        both(x, krt.tensor(np.full(64, 50)), w)
