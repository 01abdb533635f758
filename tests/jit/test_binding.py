"""jit: large arguments are read where they lie and large results written where they will lie."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

F32 = np.float32
SIZES = [3, 5000]


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


@pytest.mark.parametrize("n", SIZES)
def test_results_stay_what_they_are(n: int) -> None:
    f = krt.jit(lambda x: (x * 2, x.sum(), (x * 2).reshape(1, -1)))
    kept = [(i, f(np.full(n, i, F32))) for i in range(5)]
    for i, (double, total, row) in kept:
        assert double.numpy().tolist() == [2 * i] * n
        assert total.item() == i * n
        assert row.shape == (1, n)
        assert row.numpy().ravel().tolist() == [2 * i] * n


@pytest.mark.parametrize("n", SIZES)
def test_one_value_returned_several_times(n: int) -> None:
    @krt.jit
    def f(x):
        y = x + 1
        return y, y, x, x

    for seed in range(2):
        x = rand(n, seed=seed)
        a, b, c, d = f(x)
        a.fill_(0.0)
        a.numpy()
        assert np.array_equal(b.numpy(), x + 1)
        assert np.array_equal(c.numpy(), x)
        assert np.array_equal(d.numpy(), x)


@pytest.mark.parametrize("n", SIZES)
def test_state_returned_as_it_is(n: int) -> None:
    fixed, moving = krt.tensor(rand(n)), krt.zeros(n)

    @krt.jit
    def f(x):
        moving.assign(moving + x)
        return fixed, moving, moving * 2

    for i in range(1, 4):
        a, b, c = f(np.ones(n, F32))
        assert np.array_equal(a.numpy(), rand(n))
        assert b.tolist() == [i] * n
        assert c.tolist() == [2 * i] * n
        b.fill_(-1.0)
        assert b.tolist() == [-1] * n
    assert moving.tolist() == [3] * n


@pytest.mark.parametrize("n", SIZES)
def test_a_result_used_by_later_kernels(n: int) -> None:
    @krt.jit
    def f(x):
        y = (x @ x.transpose(0, 1)).softmax(-1)
        z = (y @ y).softmax(-1)
        return y, z

    side = int(n**0.5)
    for seed in range(3):
        x = rand(side, side, seed=seed) * F32(0.1)
        y, z = f(x)
        scores = np.exp(x.astype(np.float64) @ x.T)
        expected = scores / scores.sum(-1, keepdims=True)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4)
        second = np.exp(expected @ expected)
        np.testing.assert_allclose(z.numpy(), second / second.sum(-1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("n", SIZES)
def test_results_fed_back_as_arguments(n: int) -> None:
    f = krt.jit(lambda x, y: (x + y, x - y))
    a, b = rand(n), rand(n, seed=1)
    x, y = f(a, b)
    for _ in range(3):
        ea, eb = x.numpy(), y.numpy()
        x, y = f(x, y)
        assert np.array_equal(x.numpy(), ea + eb)
        assert np.array_equal(y.numpy(), ea - eb)


@pytest.mark.parametrize("n", SIZES)
def test_memory_of_the_plan_as_argument_is_copied(n: int) -> None:
    f = krt.jit(lambda x: x.flip(0) + 1)
    x = rand(n)
    plan = f.plan(x)
    plan.execute()
    view = plan.output_buffer.numpy()
    for _ in range(3):
        expected = view[::-1] + 1
        assert np.array_equal(f(view).numpy(), expected)
        plan.execute()


@pytest.mark.parametrize("n", SIZES)
def test_state_seen_through_dlpack_as_argument_is_copied(n: int) -> None:
    state = krt.tensor(rand(n))
    view = np.from_dlpack(state)

    @krt.jit
    def f(x):
        state.assign(x.flip(0))
        return x * 1

    before = view.copy()
    out = f(view)
    assert np.array_equal(out.numpy(), before)
    assert np.array_equal(view, before[::-1])


#: New values of state of which an element is made of others of the argument.
NEW = {
    "reversed": lambda x: x.flip(0) * 2,
    "moved": lambda x: x.roll(1, 0) + 1,
    "running sums": lambda x: x.cumsum(0),
    "distances": lambda x: x - x.amax(),
    "both ends": lambda x: x.flip(0) * x,
    "places": lambda x: x[(x.argmax() + krt.arange(x.shape[0])) % x.shape[0]] + 1,
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seen", [lambda state: state, np.from_dlpack], ids=["itself", "dlpack"])
@pytest.mark.parametrize("new", NEW)
def test_state_that_is_made_of_itself_as_argument_is_copied(new, seen, n: int) -> None:
    state = krt.tensor(rand(n))

    @krt.jit
    def f(x):
        state.assign(NEW[new](x))

    f(rand(n, seed=1))
    for seed in range(3):
        before = rand(n, seed=seed)
        state.assign(krt.tensor(before)).realize()
        f(seen(state))
        expected = NEW[new](krt.tensor(before)).numpy()
        np.testing.assert_allclose(state.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_plans_do_not_hold_on_to_arguments() -> None:
    f = krt.jit(lambda x: x * 2)
    x = rand(5000)
    f(x)
    plan = f.plans[0]
    addresses = [p for op in plan.prepared_kernels for p in op.buffer_ptrs]
    begin = x.ctypes.data
    assert not any(begin <= p < begin + x.nbytes for p in addresses)
    result = f(x)
    begin = result.data_ptr()
    assert not any(begin <= p < begin + x.nbytes for p in addresses)


def test_calling_with_a_failing_index_hands_nothing_out() -> None:
    table = krt.tensor(rand(10, 600))
    f = krt.jit(lambda i: table[i])
    good = f(np.array([1, 2]))
    with pytest.raises(krt.IndexBoundsError):
        f(np.array([1, 10]))
    assert np.array_equal(good.numpy(), rand(10, 600)[[1, 2]])
    assert np.array_equal(f(np.array([9, 0])).numpy(), rand(10, 600)[[9, 0]])


def test_threads_do_not_change_a_bit() -> None:
    x = rand(300, 300)
    found = [
        krt.jit(lambda x: (x @ x).softmax(-1).sum(0), threads=n)(x).numpy() for n in (1, 2, None)
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_bad_thread_counts_are_named() -> None:
    for threads in (0, -1):
        with pytest.raises(krt.ShapeError, match="threads"):
            krt.jit(lambda x: x + 1, threads=threads)(1.0)
    with pytest.raises(krt.DTypeError, match=r"threads: expected an int .* not str"):
        krt.jit(lambda x: x + 1, threads="a")(1.0)


def test_masked_arrays_are_refused_whenever_they_come() -> None:
    f = krt.jit(lambda x: x.sum())
    whole = np.ma.masked_array([1.0, 99.0])
    assert f(whole).item() == 100
    for array in (np.ma.masked_array([1.0, 99.0], mask=[False, True]), np.ma.masked_less(whole, 9)):
        with pytest.raises(krt.errors.DTypeError, match="x: a masked array"):
            f(array)
    assert f(whole).item() == 100


@pytest.mark.parametrize(("function", "options"), [
    (krt.flip, {"dims": (1,)}), (krt.flip, {"axis": 0}), (krt.permute, {"dims": (1, 0)}),
    (krt.sum, {"axis": 0, "keepdims": True}), (krt.softmax, {"axis": 1}),
    (krt.tile, {"dims": (2, 1)}), (krt.reshape, {"shape": (3, 2)}),
    (krt.broadcast_to, {"size": (2, 2, 3)}),
], ids=lambda value: getattr(value, "__name__", str(value)))  # fmt: skip
def test_other_names_of_an_operations_parameters(function, options):
    x = np.arange(6.0).reshape(2, 3)
    wanted = function(krt.tensor(x), **options).numpy()
    np.testing.assert_array_equal(krt.jit(function)(x, **options).numpy(), wanted)
    with pytest.raises(TypeError, match="unexpected keyword argument 'sides'"):
        krt.jit(function)(x, sides=1)
