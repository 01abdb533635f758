"""Random numbers: the generator's test vectors, seeds, distributions, draws in traces."""

from __future__ import annotations

import copy
import math
import pickle
import threading

import numpy as np
import pytest
from support.reference import evaluate

import kernelrt as krt
from kernelrt.errors import DeviceError, DomainError, DTypeError, JitError, ShapeError
from kernelrt.ir import UOp
from kernelrt.tensor import Trace
from kernelrt.tensor.nodes import build
from kernelrt.tensor.rng import stream
from kernelrt.tensor.rng.stream import threefry

# Known answers published with the Random123 library (threefry2x32, 20 rounds).
VECTORS = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


def words(pair):
    return tuple(build.full(w, krt.uint32, ()) for w in pair)


@pytest.mark.parametrize(("key", "counter", "expected"), VECTORS)
def test_known_answers(key, counter, expected):
    out = threefry(words(key), words(counter))
    assert all(isinstance(u, UOp) for u in out)
    assert tuple(int(v) for v in evaluate(out)) == expected
    assert tuple(krt.Tensor._of(u).item() for u in out) == expected


def test_a_seed_reproduces_the_stream():
    krt.manual_seed(7)
    first = [krt.rand(5).numpy(), krt.randn(3, 2).numpy(), krt.randint(0, 9, (4,)).numpy()]
    krt.manual_seed(7)
    second = [krt.rand(5).numpy(), krt.randn(3, 2).numpy(), krt.randint(0, 9, (4,)).numpy()]
    krt.manual_seed(8)
    other = krt.rand(5).numpy()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], other)


def test_each_draw_continues_the_stream():
    krt.manual_seed(1)
    a, b = krt.rand(6).numpy(), krt.rand(6).numpy()
    krt.manual_seed(1)
    whole = krt.rand(3, 4).numpy().reshape(-1)
    np.testing.assert_array_equal(np.concatenate([a, b]), whole)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform(dtype):
    krt.manual_seed(2)
    x = krt.rand(20000, dtype=dtype).numpy()
    assert x.dtype == dtype
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.astype(float).mean() - 0.5) < 0.01
    counts, _ = np.histogram(x.astype(float), 10, (0, 1))
    assert ((counts - 2000) ** 2 / 2000).sum() < 40  # chi squared with 9 degrees of freedom
    y = krt.uniform(1000, low=-3, high=5, dtype=dtype).numpy()
    assert -3 <= y.min() < -2.5
    assert 4.5 < y.max() <= 5


def test_uniform_in_double_resolves_53_bits():
    x = krt.rand(1000, dtype="float64").numpy()
    assert np.any(x != x.astype(np.float32))
    np.testing.assert_array_equal(x, np.round(x * 2**53) / 2**53)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal(dtype):
    krt.manual_seed(3)
    x = np.sort(krt.randn(20000, dtype=dtype).numpy().astype(float))
    assert abs(x.mean()) < 0.03
    assert abs(x.std() - 1) < 0.03
    assert 3.2 < np.abs(x).max() < 7
    # Kolmogorov and Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand.
    truth = 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    assert np.abs(truth - (np.arange(20000) + 0.5) / 20000).max() < 1.95 / math.sqrt(20000)
    y = krt.normal(20000, mean=5, std=0.1, dtype=dtype).numpy()
    assert abs(y.mean() - 5) < 0.01


def test_integers():
    krt.manual_seed(4)
    x = krt.randint(-3, 4, (7000,)).numpy()
    values, counts = np.unique(x, return_counts=True)
    assert values.tolist() == list(range(-3, 4))
    assert np.abs(counts - 1000).max() < 200
    assert krt.randint(0, 2**32, (100,)).numpy().max() > 2**31
    assert krt.randint(0, 200, (3,), dtype="uint8").dtype is krt.uint8
    assert set(krt.randint(2, (50,)).tolist()) == {0, 1}


def test_initialization_owns_its_storage():
    for w in (krt.rand(2, 3), krt.kaiming_uniform(4, 5), krt.randn(2)):
        assert w.is_realized
    krt.manual_seed(5)
    w = krt.kaiming_uniform(64, 100, a=math.sqrt(5)).numpy()
    assert 0.095 < np.abs(w).max() <= 1 / math.sqrt(100)
    assert abs(krt.kaiming_normal(200, 50, nonlinearity="relu").numpy().std() - 0.2) < 0.01
    limit = math.sqrt(6 / (30 + 20 * 9))
    assert 0.9 * limit < np.abs(krt.xavier_uniform(20, 30 // 9, 3, 3).numpy()).max()
    assert abs(krt.xavier_normal(100, 100).numpy().std() - 0.1) < 0.01
    assert krt.rand_like(krt.tensor([[1.0]])).shape == (1, 1)


def test_dropout():
    krt.manual_seed(6)
    x = krt.ones(10000, requires_grad=True)
    y = x.dropout(0.25)
    values = y.numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(4 / 3)}
    assert abs((values == 0).mean() - 0.25) < 0.02
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)
    assert x.dropout(0.5, training=False) is x
    assert x.dropout(1.0).sum().item() == 0


def test_a_trace_advances_the_counter_as_state():
    krt.manual_seed(9)
    truth = [krt.rand(4).numpy(), krt.rand(4).numpy()]
    krt.manual_seed(9)
    with Trace() as trace:
        drawn = [krt.rand(4), krt.rand(4)]
        assert not any(d.is_realized for d in drawn)
        [(_, counter)] = trace.commits()
        nodes = [d.uop for d in drawn]
    *got, after = evaluate([*nodes, counter])
    for a, b in zip(got, truth, strict=True):
        np.testing.assert_array_equal(a, b)
    assert after.tolist() == [8]
    np.testing.assert_array_equal(krt.rand(4).numpy(), truth[0])


# ---- generators


CALLS = [
    lambda g: krt.rand(3, 4, generator=g),
    lambda g: krt.rand(3, dtype="float64", generator=g),
    lambda g: krt.randn(5, generator=g),
    lambda g: krt.uniform(5, low=2, high=3, generator=g),
    lambda g: krt.normal(2.0, 3.0, (4,), generator=g),
    lambda g: krt.normal(krt.zeros(4), krt.ones(4), generator=g),
    lambda g: krt.randint(0, 9, (7,), generator=g),
    lambda g: krt.randint(9, (7,), dtype="float32", generator=g),
    lambda g: krt.randperm(9, generator=g),
    lambda g: krt.bernoulli(krt.full((20,), 0.5), generator=g),
    lambda g: krt.full((20,), 0.5).bernoulli(0.3, generator=g),
    lambda g: krt.ones(6).multinomial(4, generator=g),
    lambda g: krt.ones(6).multinomial(4, True, generator=g),
    lambda g: krt.empty(5).normal_(generator=g),
    lambda g: krt.empty(5).uniform_(-1, 1, generator=g),
    lambda g: krt.empty(5).log_normal_(generator=g),
    lambda g: krt.empty(5).exponential_(2.0, generator=g),
    lambda g: krt.empty(5).cauchy_(generator=g),
    lambda g: krt.empty(5).geometric_(0.1, generator=g),
    lambda g: krt.empty(20).bernoulli_(0.5, generator=g),
    lambda g: krt.empty(20).bernoulli_(krt.full((20,), 0.5), generator=g),
    lambda g: krt.empty(5).random_(generator=g),
    lambda g: krt.empty(5, dtype="int64").random_(-(1 << 62), 1 << 62, generator=g),
    lambda g: krt.poisson(krt.tensor([2.0, 40.0, 7.0, 300.0, 3.0]), generator=g),
    lambda g: krt.binomial(krt.full((5,), 50.0), krt.full((5,), 0.5), generator=g),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_generator_has_a_stream_of_its_own(call):
    g = krt.Generator()
    krt.manual_seed(5)
    here = krt.get_rng_state()
    first = call(g.manual_seed(11)).numpy()
    again = call(krt.Generator("cpu").manual_seed(11)).numpy()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, call(g).numpy())
    assert krt.get_rng_state().equal(here)
    krt.manual_seed(11)
    np.testing.assert_array_equal(first, call(None).numpy())


def test_states_of_generators():
    g = krt.manual_seed(-2)
    assert g is krt.default_generator
    assert krt.initial_seed() == g.initial_seed() == 2**64 - 2
    krt.rand(3)
    state = krt.get_rng_state()
    assert (state.dtype, state.shape) == (krt.uint8, (16,))
    x = krt.rand(5)
    krt.set_rng_state(state)
    assert krt.rand(5).equal(x)
    seeds = {krt.seed(), g.seed()}
    assert len(seeds) == 2
    assert krt.initial_seed() in seeds
    for other in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g), g.clone_state()):  # noqa: S301
        after = g.get_state()
        assert other.get_state().equal(after)
        assert krt.rand(3, generator=other).equal(krt.rand(3))
        g.set_state(after)


def test_a_traced_function_draws_from_a_generator():
    g = krt.Generator().manual_seed(3)
    step = krt.jit(lambda x: x + krt.rand(4, generator=g))
    krt.manual_seed(1)
    here = krt.get_rng_state()
    zeros = krt.zeros(4)
    drawn = np.concatenate([step(zeros).numpy() for _ in range(3)])
    assert krt.get_rng_state().equal(here)
    np.testing.assert_array_equal(drawn, krt.rand(12, generator=g.manual_seed(3)).numpy())


def test_gumbel_softmax_draws_from_a_generator():
    x, before = krt.randn(3, 4), krt.get_rng_state()
    one, two = (
        krt.nn.functional.gumbel_softmax(x, generator=krt.Generator().manual_seed(3))
        for _ in range(2)
    )
    assert one.equal(two)
    assert krt.get_rng_state().equal(before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_gumbel_softmax_of_one_category_is_one(dtype):
    """An exponential number that rounds to 0 has no finite logarithm."""
    found = krt.nn.functional.gumbel_softmax(krt.zeros(100_000, 1, dtype=dtype), 0.5)
    assert (found.float().numpy() == 1).all()


def test_a_size_is_needed():
    with pytest.raises(krt.DTypeError, match=r"size: expected .* randint\(10, \(3,\)\), not None"):
        krt.randint(10)


@pytest.mark.parametrize("ask", [krt.initial_seed, krt.get_rng_state, krt.seed])
def test_what_a_replay_would_not_see_is_refused_in_a_trace(ask):
    @krt.jit
    def step(x):
        ask()
        return x + 1

    with pytest.raises(krt.JitError, match=r"in a traced function .* call it outside"):
        step(krt.ones(2))


def test_others_compute_while_numbers_are_drawn(monkeypatch):
    run, begun, go_on = stream._Block.run, threading.Event(), threading.Event()

    def wait(*args):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert go_on.wait(60)
        return run(*args)

    g = krt.Generator().manual_seed(4)
    wanted = [krt.rand(6, generator=g).tolist(), krt.rand(3, generator=g).tolist()]
    g.manual_seed(4)
    monkeypatch.setattr(stream._Block, "run", wait)
    drawn = []
    other = threading.Thread(target=lambda: drawn.append(krt.rand(6, generator=g).tolist()))
    other.start()
    try:
        assert begun.wait(60)
        # A lock that is held while numbers are computed would let neither of these end.
        mine = []
        beside = threading.Thread(
            target=lambda: mine.append((krt.ones(3) + 1).sum().item()), daemon=True
        )
        beside.start()
        beside.join(60)
        assert mine == [6.0]
        assert krt.rand(3, generator=g).tolist() == wanted[1]
    finally:
        go_on.set()
        other.join()
    assert drawn == wanted[:1]


def test_threads_draw_each_number_once():
    g, n, rounds = krt.Generator().manual_seed(8), 40000, 12
    wanted = krt.rand(4 * rounds * n, dtype="float64", generator=g).numpy().reshape(-1, n)
    g.manual_seed(8)
    drawn = []

    def draw():
        for _ in range(rounds):
            drawn.append(krt.rand(n, dtype="float64", generator=g).numpy())  # noqa: PERF401

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = {row[0]: row for row in wanted}
    assert len(drawn) == len({row[0] for row in drawn}) == len(order)
    for row in drawn:
        np.testing.assert_array_equal(row, order[row[0]])


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("calls", [1, 2])
def test_numbers_that_could_not_be_computed_are_not_drawn(monkeypatch, error, calls):
    run, left = stream._Block.run, [calls]

    def fail(*args):
        left[0] -= 1
        if not left[0]:
            raise error
        return run(*args)

    g = krt.Generator().manual_seed(6)
    krt.rand(5, generator=g)
    before = g.get_state()
    with monkeypatch.context() as patch:
        patch.setattr(stream._Block, "run", fail)
        with pytest.raises(error):
            krt.rand(40000, generator=g)
    assert g.get_state().equal(before)
    again = krt.rand(4, generator=g)
    assert again.equal(krt.rand(4, generator=g.set_state(before)))


@pytest.mark.parametrize("act", [
    lambda g: krt.rand(3, generator=g), lambda g: g.manual_seed(9), lambda g: g.set_state(
        krt.Generator().manual_seed(3).get_state())])  # fmt: skip
def test_what_others_did_to_the_stream_stays(monkeypatch, act):
    g, model = krt.Generator().manual_seed(6), krt.Generator().manual_seed(6)
    run = stream._Block.run

    def fail(*args):
        monkeypatch.setattr(stream._Block, "run", run)
        act(g)
        raise MemoryError

    monkeypatch.setattr(stream._Block, "run", fail)
    with pytest.raises(MemoryError):
        krt.rand(7, generator=g)
    krt.rand(7, generator=model)
    act(model)
    assert g.get_state().equal(model.get_state())


def test_bad_generators():
    with pytest.raises(DTypeError, match=r"generator: expected a kernelrt\.Generator, not int"):
        krt.rand(2, generator=3)
    with pytest.raises(DTypeError, match="seed: expected an int, not str"):
        krt.Generator().manual_seed("a")
    with pytest.raises(DomainError, match="seed: expected a number from"):
        krt.Generator().manual_seed(1 << 64)
    with pytest.raises(DTypeError, match=r"new_state: expected a Tensor of uint8, .* not float32"):
        krt.set_rng_state(krt.ones(16))
    with pytest.raises(ShapeError, match=r"new_state: expected shape \(16,\), not \(3,\)"):
        krt.set_rng_state(krt.ones(3, dtype="uint8"))
    with pytest.raises(DeviceError, match="device"):
        krt.Generator("cuda")
    g = krt.Generator()
    for wrong in (krt.Generator, g.seed, g.get_state):
        with pytest.raises(JitError, match="in a traced function"):
            krt.jit(lambda x, wrong=wrong: (wrong(), x)[1])(krt.ones(2))


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (0, 2**32 + 1, "int64"), (-5, 2**40, "int64"), (-(2**63), 2**63, "int64"),
    (2**63 - 2**33, 2**63, "int64"), (0, 2**64, "uint64"), (2**63, 2**64 - 3, "uint64"),
    (-(2**53), 2**53 + 1, "float64"),
])  # fmt: skip
def test_integers_of_wide_intervals(low, high, dtype):
    """By the digits that the generator gives, in exact arithmetic."""
    width, g = high - low, krt.Generator().manual_seed(5)
    found = krt.randint(low, high, (2000,), dtype=dtype, generator=g)
    assert found.dtype.name == dtype
    g.manual_seed(5)
    words = [krt.randint(0, 2**32, (2000,), dtype="uint64", generator=g).tolist()
             for _ in range(2 if width == 2**64 else 3)]  # fmt: skip
    if width == 2**64:
        wanted = [low + (a << 32) + b for a, b in zip(*words, strict=True)]
    else:
        wanted = [low + (width * (a + (b << 32) + (c << 64)) >> 96)
                  for a, b, c in zip(*words, strict=True)]  # fmt: skip
    assert found.tolist() == wanted
    assert low <= min(wanted) < max(wanted) < high
    shares = np.histogram([(w - low) / width for w in wanted], 8, (0, 1))[0] / 2000
    np.testing.assert_allclose(shares, 1 / 8, atol=0.04)
    again = krt.jit(lambda x: krt.randint(low, high, (4,), dtype=dtype))
    assert again(krt.ones(2)).tolist() != again(krt.ones(2)).tolist()


@pytest.mark.cases(1 / 4)
def test_counts():
    krt.manual_seed(4)
    rate = krt.tensor([0.0, 0.5, 3.0, 30.0, 400.0]).reshape(5, 1).expand(5, 20000)
    drawn = krt.poisson(rate).numpy()
    np.testing.assert_allclose(drawn.mean(1), rate[:, 0].numpy(), rtol=0.03)
    np.testing.assert_allclose(drawn.var(1), rate[:, 0].numpy(), rtol=0.06)
    p = krt.tensor([0.0, 0.1, 0.9, 1.0]).reshape(4, 1).expand(4, 20000)
    drawn = krt.binomial(krt.tensor(40.0), p).numpy()
    np.testing.assert_allclose(drawn.mean(1), 40 * p[:, 0].numpy(), rtol=0.03)
    bad = krt.binomial(krt.tensor([-1.0, 3.0, 3.0]), krt.tensor([0.5, 1.5, -0.5])).numpy()
    assert np.isnan(bad).all()
    with pytest.raises(DTypeError, match="input: expected a floating type, not int64"):
        krt.poisson(krt.arange(3))
    with pytest.raises(DTypeError, match="prob: expected the dtype of count, float32, not float64"):
        krt.binomial(krt.ones(3), krt.ones(3, dtype="float64"))
