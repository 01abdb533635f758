"""Products of tensors of bfloat16, as a user writes them: values, gradients and kernels."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from support.skip_list import needs

import kernelrt as krt
from kernelrt.device.registry import opened
from kernelrt.device.spec import DeviceSpec, host
from kernelrt.ir import Op, toposort
from kernelrt.runtime import kernels
from kernelrt.schedule.fuse.fusion_cost import Prices

#: Half a unit in the last place of bfloat16: what is stored is rounded once.
HALF = 2.0**-8
own_words = needs("a target with products of bfloat16")


@pytest.fixture
def rng():
    return np.random.default_rng(17)


@pytest.fixture(params=[True, False], ids=["words", "floats"])
def in_words(request, monkeypatch):
    """With and without the instruction, whatever the machine has."""
    if request.param:
        yield host().dot(krt.bfloat16) is not None
        return
    dot = DeviceSpec.dot

    def of_integers(self, *dtypes):
        return None if krt.bfloat16 in dtypes else dot(self, *dtypes)

    monkeypatch.setattr(DeviceSpec, "dot", of_integers)
    monkeypatch.setattr(opened().renderer, "_cache", None)  # programs with the instruction
    kernels.clear()
    yield False
    kernels.clear()


def drawn(rng, *shape):
    """A tensor of bfloat16, and what is in it."""
    made = krt.tensor(rng.standard_normal(shape).astype(np.float32)).cast("bfloat16").realize()
    return made, made.double().numpy()


def assert_product(found, a, b, *, rounded=True):
    """Sums of float32 whose additions round, rounded once more where they are stored."""
    truth, sizes = a @ b, np.abs(a) @ np.abs(b)
    unit = (a.shape[-1] + 2) * 2.0**-24
    error = sizes * unit / (1 - unit) + (np.abs(truth) + sizes * unit) * HALF * rounded
    assert (np.abs(found.double().numpy() - truth) <= error).all()


@pytest.mark.usefixtures("in_words")
@pytest.mark.parametrize("shapes", [((40, 31), (31, 50)), ((3, 20, 64), (64, 33)), ((64,), (64, 9)),
                                    ((2, 1, 17, 5), (3, 5, 16)), ((1, 129), (129, 70)),
                                    ((70, 129), (129, 1)), ((33, 1), (1, 40)), ((300,), (300,)),
                                    ((0, 8), (8, 4)), ((8, 0), (0, 4))], ids=str)  # fmt: skip
def test_products(rng, shapes):
    (x, a), (y, b) = (drawn(rng, *shape) for shape in shapes)
    eager, traced = x @ y, krt.jit(lambda x, y: x @ y)(x, y)
    assert eager.dtype is traced.dtype is krt.bfloat16
    for found in (eager, traced):
        assert_product(found, a, b)
    np.testing.assert_array_equal(eager.bitcast("int16").numpy(), traced.bitcast("int16").numpy())
    wide = krt.jit(lambda x, y: (x @ y).float())(x, y)
    assert_product(wide, a, b, rounded=False)


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_threads_do_not_change_a_bit(rng, in_words, transposed):
    (x, a), (y, b) = (drawn(rng, 384, 384) for _ in range(2))
    flip, turn = transposed
    f = krt.jit(lambda x, y: ((x.T if flip else x) @ (y.T if turn else y)).float())
    left, right = a.T if flip else a, b.T if turn else b
    found = []
    for threads in (1, 2):
        with krt.num_threads(threads):
            found.append(f(x, y).numpy())
    assert_product(krt.tensor(found[0]), left, right, rounded=False)
    np.testing.assert_array_equal(*found)
    [kernel] = f.plan(x, y).kernels
    read = {u.dtype.itemsize for u in toposort([kernel.ast]) if u.op is Op.PARAM}
    assert read == {2, 4}
    assert ("dot(" in kernel.loops()) is in_words


@own_words
def test_parts_of_tensors_are_multiplied_where_they_lie(rng):
    """Slices, every second row or column, and transposed ones."""
    (x, a), (y, b) = drawn(rng, 3, 90, 140), drawn(rng, 3, 120, 150)
    views = [
        lambda t, u: (t[1, 5:69, 3:67], u[2, 7:71, 5:105]),
        lambda t, u: (t[1, 5:69, 3:67], u[2, 7:107, 5:69].transpose(0, 1)),
        lambda t, u: (t[0, ::2, 1:129:2], u[1, :64]),
        lambda t, u: (t[:, 0, 10:74], u[2, 40:104, ::3]),
        lambda t, u: (t[2, 10:74].transpose(0, 1), u[0, :64]),
        lambda t, u: (t[0, :64].flip(1), u[0].transpose(0, 1)[:140, :77]),
    ]  # fmt: skip
    for view in views:

        def multiplied(t, u, view=view):
            left, right = view(t, u)
            return (left @ right).float()

        found = krt.jit(multiplied)(x, y)
        left, right = (krt.tensor(t) for t in (a, b))
        left, right = (t.numpy() for t in view(left, right))
        assert_product(found, left, right, rounded=False)


@pytest.mark.usefixtures("in_words")
@pytest.mark.parametrize("shapes", [((65, 48), (48, 33)), ((4, 32, 40), (40, 64)),
                                    ((2, 33, 17), (2, 17, 31)), ((1, 300), (300, 40))],
                         ids=str)  # fmt: skip
def test_gradients(rng, shapes):
    (x, a), (y, b) = (drawn(rng, *shape) for shape in shapes)
    w, weights = drawn(rng, *(a @ b).shape)

    @krt.jit
    def gradients(x, y, w):
        given = x.requires_grad_(), y.requires_grad_()
        return krt.grad(((x @ y).float() * w.float()).sum(), given)

    left, right = gradients(x, y, w)
    assert left.dtype is right.dtype is krt.bfloat16
    assert_product(left, weights, np.swapaxes(b, -1, -2))
    if a.ndim > b.ndim:
        a, weights = a.reshape(-1, a.shape[-1]), weights.reshape(-1, weights.shape[-1])
    assert_product(right, np.swapaxes(a, -1, -2), weights)


@own_words
def test_bits_need_no_copy_to_be_multiplied(rng):
    """Arrays of NumPy have bfloat16 as integers."""
    (_, a), (_, b) = drawn(rng, 128, 96), drawn(rng, 80, 96)
    x, y = ((t.astype(np.float32).view(np.int32) >> 16).astype(np.int16) for t in (a, b))
    f = krt.jit(lambda x, y: (x.bitcast("bfloat16") @ y.bitcast("bfloat16").T).float())
    assert_product(f(x, y), a, b.T, rounded=False)
    [kernel] = f.plan(x, y).kernels
    assert "dot" in kernel.loops()


@own_words
def test_what_is_computed_is_stored_to_be_multiplied(rng):
    (x, a), (v, b) = drawn(rng, 256, 256), drawn(rng, 256, 512)
    f = krt.jit(lambda x, v: (x * 2).relu() @ v)
    assert_product(f(x, v), np.maximum(a * 2, 0), b)
    assert "dot" in f.plan(x, v).kernels[-1].loops()


def test_what_words_spare():
    """What is kept row by row in a kernel is multiplied one by one: that costs what words spare."""
    wide = DeviceSpec.avx512()
    with_words = replace(wide, features=f"{wide.features},+avx512bf16,+avx512vnni")
    assert Prices(wide).spared(krt.bfloat16) == 0 < Prices(with_words).spared(krt.bfloat16)
    assert 0 < Prices(wide).spared(krt.int8) < Prices(with_words).spared(krt.int8)
    assert Prices(with_words).spared(krt.float16) == 0 == Prices(with_words).spared(krt.float32)


@pytest.mark.usefixtures("in_words")
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("sizes", [(2, 16, 14, 24, 3), (1, 3, 17, 16, 3), (2, 20, 9, 33, 1)],
                         ids=str)  # fmt: skip
def test_convolutions(rng, sizes, padding):
    torch = pytest.importorskip("torch")
    batch, channels, side, filters, taps = sizes
    (x, a), (w, b) = (
        drawn(rng, *s) for s in ((batch, channels, side, side), (filters, channels, taps, taps))
    )
    found = krt.jit(lambda x, w: x.conv2d(w, padding=padding).float())(x, w).double().numpy()
    conv2d = torch.nn.functional.conv2d
    truth, most = (
        conv2d(*map(torch.from_numpy, pair), padding=padding).numpy()
        for pair in ((a, b), (np.abs(a), np.abs(b)))
    )
    # Where results are laid out another way they are stored, and rounded, in between.
    error = most * (channels * taps * taps + 2) * 2.0**-23
    assert (np.abs(found - truth) <= error + (np.abs(truth) + error) * HALF).all()


@pytest.mark.usefixtures("in_words")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [31, 130, 515])
def test_attention(rng, length, causal):
    torch = pytest.importorskip("torch")
    (q, a), (k, b), (v, c) = (drawn(rng, 2, length, 64) for _ in range(3))

    @krt.jit
    def attention(q, k, v):
        scores = q @ k.transpose(-1, -2) * 0.125
        if causal:
            hidden = krt.ones(length, length).triu(1).cast("bool")
            scores = scores.masked_fill(hidden, -math.inf)
        return (scores.softmax(-1) @ v).float()

    given = map(torch.from_numpy, (a, b, c))
    truth = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)
    # Scores may be rounded where they are stored, and so may weights.
    np.testing.assert_allclose(attention(q, k, v).numpy(), truth.numpy(), atol=4e-2)
    found = []
    for threads in (1, 2):
        with krt.num_threads(threads):
            found.append(attention(q, k, v).numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("count", [3, 40])
def test_rows_that_are_looked_up(rng, count):
    """Some rows of a table, by numbers that are checked."""
    (table, a), (w, b) = drawn(rng, 50, 64), drawn(rng, 48, 64)
    rows = rng.integers(0, 50, count)
    f = krt.jit(lambda t, rows, w: (t[rows] @ w.T).float())
    assert_product(f(table, krt.tensor(rows), w), a[rows], b.T)
    with pytest.raises(krt.IndexBoundsError):
        f(table, krt.tensor(np.full(count, 50)), w)


def test_open_sizes(rng):
    """Rows of a number that is known when they are multiplied."""
    w, b = drawn(rng, 48, 64)
    f = krt.jit(lambda x: (x @ w.T).float(), dynamic={"x": {0: krt.Variable("rows", 1, 200)}})
    for count in (1, 5, 24, 40, 199):
        x, a = drawn(rng, count, 64)
        assert_product(f(x), a, b.T)
