"""Rows that a contraction walks, computed in blocks: long attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.schedule.fuse.fusion_cost import Prices

torch = Package("torch")

#: Heads, queries, keys, width: lengths that come out even, and no other test has. 16 rows fit a
#: first cache of 32 KB.
SIZES = [(2, 64, 192, 5), (1, 320, 320, 16), (2, 448, 448, 64), (1, 48, 384, 136), (3, 80, 192, 8)]


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Blocks at lengths that are quick to test."""
    monkeypatch.setattr("kernelrt.ir.local.LONG_ROW", (64, 64))


@pytest.fixture(params=[False, True], ids=["stored", "repeated"])
def crowded(request, monkeypatch):
    """A machine on which no buffer of rows is wanted, or any other."""
    begin = Prices.__init__

    def without_room(self, device):
        begin(self, device)
        self.max_buffer_bytes = 1

    if request.param:
        monkeypatch.setattr(Prices, "__init__", without_room)
        monkeypatch.setattr("kernelrt.schedule.fuse.decide._OVERSIZE_PRICE", 1e9)
    return request.param


def attention(q, k, v, hidden):
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v


def later(lib, queries, keys, shift):
    """What may not be looked at: keys more than `shift` after their query."""
    if shift is None:
        return None
    ones = lib.ones(queries, keys).triu(1 + shift)
    return ones.cast("bool") if lib is krt else ones.bool()


def given(rng, heads, queries, keys, width, dtype=np.float32):
    lengths = (queries, keys, keys, queries)
    return [rng.standard_normal((heads, n, width)).astype(dtype) for n in lengths]


def forward(shift):
    def one(q, k, v):
        return attention(q, k, v, later(krt, q.shape[-2], k.shape[-2], shift))

    return krt.jit(one)


def gradient(shift):
    def all_of_them(q, k, v, w):
        for x in (q, k, v):
            x.requires_grad_()
        out = attention(q, k, v, later(krt, q.shape[-2], k.shape[-2], shift))
        return out, *krt.grad((out * w).sum(), [q, k, v])

    return krt.jit(all_of_them)


def by_torch(arrays, shift):
    q, k, v, w = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays)
    out = attention(q, k, v, later(torch, q.shape[-2], k.shape[-2], shift))
    return [x.detach().numpy() for x in (out, *torch.autograd.grad((out * w).sum(), [q, k, v]))]


def run(function, arrays):
    found = function(*map(krt.tensor, arrays))
    return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]


def texts(function):
    [plan] = function.plans
    return [kernel.loops() for kernel in plan.kernels]


@pytest.mark.parametrize("shift", [None, 0, 37, -40])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values(rng, size, shift):
    arrays = given(rng, *size)
    function = forward(shift)
    [found] = run(function, arrays[:3])
    np.testing.assert_allclose(found, by_torch(arrays, shift)[0], rtol=2e-5, atol=3e-6)
    assert any("float32" in text and " of 0" in text for text in texts(function))


@pytest.mark.parametrize("shift", [-1, 0, 1, 2, 15, 16])
def test_masks_of_what_is_seen(rng, shift):
    """The other way round, with ends at and beside those of blocks."""
    size = 2, 448, 448, 64
    arrays = given(rng, *size)

    @krt.jit
    def one(q, k, v):
        query, key = krt.arange(448).reshape(448, 1), krt.arange(448)
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
        return scores.where(key <= query + shift, -math.inf).softmax(-1) @ v

    [found] = run(one, arrays[:3])
    np.testing.assert_allclose(found, by_torch(arrays, shift)[0], rtol=2e-5, atol=3e-6)
    assert "if not(" in texts(one)[-1]


@pytest.mark.parametrize("shift", [None, 0, 37])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gradients(rng, crowded, size, shift):
    arrays = given(rng, *size)
    function = gradient(shift)
    found = run(function, arrays)
    for x, y in zip(found, by_torch(arrays, shift), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)
    # Of so few queries one kernel has each element of a product of gradients once, in a loop that
    # sums them and fills no array: such sums are not repeated elsewhere, and have a buffer.
    if crowded and size != (2, 64, 192, 5):
        [plan] = function.plans
        assert max(b.size for b in plan.buffers) <= max(a.size for a in arrays)


def test_what_is_masked_altogether_is_left_out(rng):
    arrays = given(rng, 2, 448, 448, 24)[:3]
    masked, plain = forward(0), forward(None)
    run(masked, arrays)
    run(plain, arrays)
    assert "if not(" in texts(masked)[-1]
    assert "if not(" not in texts(plain)[-1]


@pytest.mark.cases(1)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_no_number_stays_where_it_belongs(rng, crowded, which, value):
    arrays = given(rng, 1, 384, 384, 12)
    arrays[which][0, 300, 3] = value
    for shift in (0, None):
        found = run(gradient(shift), arrays)
        for x, y in zip(found, by_torch(arrays, shift), strict=True):
            np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
            np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


def test_rows_that_see_nothing_are_nan(rng):
    arrays = given(rng, 1, 512, 512, 16)
    [found] = run(forward(-300), arrays[:3])
    wanted = by_torch(arrays, -300)[0]
    assert np.isnan(wanted[0, :300]).all()
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=3e-6)


def test_both_ways_to_walk_rows_have_the_same_bits(rng, monkeypatch):
    """A product with ones on its diagonal is its other operand, bit for bit."""
    q, k, *_ = given(rng, 2, 256, 256, 200)
    one = np.broadcast_to(np.eye(256, dtype=np.float32), (2, 256, 256)).copy()

    def weights(q, k):
        return (q @ k.transpose(-1, -2) * 0.25).tanh()

    [blocks] = run(krt.jit(lambda q, k, one: weights(q, k) @ one), [q, k, one])
    monkeypatch.setattr("kernelrt.ir.local.LONG_ROW", (10**9, 10**9))
    one_more = np.concatenate([one, np.zeros((2, 256, 16), np.float32)], 2)
    [rows] = run(krt.jit(lambda q, k, one: weights(q, k) @ one), [q, k, one_more])
    np.testing.assert_array_equal(blocks, rows[:, :, :256])


@pytest.mark.parametrize(("name", "tolerance"), [("float64", 1e-13), ("float16", 4e-3)])
def test_other_floats(rng, name, tolerance):
    arrays = given(rng, 2, 320, 320, 40, np.float64)[:3]
    tensors = [krt.tensor(x).cast(name) for x in arrays]
    found = forward(0)(*tensors).cast("float64").numpy()
    wide = [x.cast("float64").numpy() for x in tensors]
    wanted = by_torch([*wide, arrays[0]], 0)[0]
    np.testing.assert_allclose(found, wanted, atol=tolerance, rtol=0)


@pytest.mark.cases(1)
def test_any_number_of_threads_gives_the_same_bits(rng, crowded):
    arrays = given(rng, 2, 704, 704, 32)
    function = gradient(0)
    before = krt.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            krt.set_num_threads(count)
            results.append(run(function, arrays))
    finally:
        krt.set_num_threads(before)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
