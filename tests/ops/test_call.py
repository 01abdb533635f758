"""krt.call: functions of C and of Python as values of graphs, in code without jit."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref
from collections import namedtuple

import numpy as np
import pytest
from support.c_functions import library
from support.skip_list import Package

import kernelrt as krt
from kernelrt.errors import (
    CustomFunctionError,
    DTypeError,
    PlanBuildError,
    ShapeError,
)
from kernelrt.tensor.eager import plan_cache
from kernelrt.tensor.tracing.batching_rules import batched

torch = Package("torch")

RNG = np.random.default_rng(3)
POINTER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def over_rows(f, x, *others):
    """`f` of each row of `x`, by rewriting the graph of one."""
    row = krt.tensor(np.zeros(x.shape[1:], x.numpy().dtype)).realize()
    node = f(row, *others).uop
    (found,) = batched([node], {row.uop: x.uop}, x.shape[0])
    return x._of(found)


# ---- values


@pytest.mark.parametrize("size", [1, 5, 1000, 5000])
def test_a_python_function_of_tensors_gives_what_it_returns(size):
    x, y = floats(size), floats(size)

    def halves(a, b):
        assert (a.dtype, a.shape, b.shape) == (np.float32, (size,), (size,))
        return (a + b) / 2

    found = krt.call(halves, krt.tensor(x) * 3, krt.tensor(y), out=((size,), krt.float32)) + 1
    np.testing.assert_allclose(found.numpy(), (3 * x + y) / 2 + 1, rtol=1e-6)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float64"]
)
def test_every_type_goes_in_and_comes_out(dtype):
    x = RNG.integers(0, 2, (3, 4)).astype(dtype)
    t = krt.tensor(x)
    found = krt.call(lambda a: a.T.copy(), t, out=((4, 3), dtype))
    assert found.dtype is t.dtype
    np.testing.assert_array_equal(found.numpy(), x.T)


def test_bfloat16_goes_as_its_bits():
    x = krt.tensor([1.0, -2.5, 3.0]).cast(krt.bfloat16)

    def negated(bits):
        assert bits.dtype == np.uint16
        return bits ^ 0x8000

    assert krt.call(negated, x, out=x).float().tolist() == [-1.0, 2.5, -3.0]


def test_results_are_nested_as_out_says():
    Pair = namedtuple("Pair", "low high")  # noqa: PYI024 - what users have
    out = {"ends": Pair(((), "float32"), ((), "float32")), "sum": [((2,), np.int64)]}

    def look(a):
        return {"sum": (np.int64([a.sum(), a.size]),), "ends": [a.min(), a.max()]}

    found = krt.call(look, krt.tensor([3.0, 1.0, 2.0]), out=out)
    assert list(found) == ["ends", "sum"]
    assert isinstance(found["ends"], Pair)
    assert (found["ends"].low.item(), found["ends"].high.item()) == (1.0, 3.0)
    assert found["sum"][0].tolist() == [6, 3]


def test_numbers_of_python_are_results_of_any_type_that_holds_them():
    out = (((), "float32"), ((), "bool"), ((), "uint8"), ((), "float64"))
    found = krt.call(lambda: (1.5, True, 255, 7), out=out)
    assert [t.item() for t in found] == [1.5, True, 255, 7.0]


def test_templates_say_shape_and_type():
    x = krt.ones(2, 3)
    for like in (x, np.ones((2, 3), np.float32), torch.ones(2, 3)):
        assert krt.call(lambda a: a + 1, x, out=like).tolist() == [[2.0] * 3] * 2


def test_operands_may_be_arrays_and_numbers():
    found = krt.call(lambda a, b, c: a + b + c, 1.5, np.ones(2, np.float32), [1.0, 2.0],
                     out=((2,), "float32"))  # fmt: skip
    assert found.tolist() == [3.5, 4.5]


def test_numbers_that_differ_share_a_plan_in_the_end():
    before = plan_cache.plans.misses

    def plus(a, b):
        return a + b

    x = krt.ones(3).realize()
    for k in range(30):
        assert krt.call(plus, x, krt.tensor(0.0) + k, out=x).tolist() == [1.0 + k] * 3
    assert plan_cache.plans.misses - before < 15


def test_a_function_may_keep_and_change_its_operands():
    kept = []

    def keep(a):
        kept.append(a)
        a += 1
        return a

    x = krt.tensor(floats(2000)).realize()
    first = krt.call(keep, x, out=x).numpy()
    krt.call(keep, x * 2, out=x).realize()
    np.testing.assert_array_equal(kept[0], first)
    np.testing.assert_array_equal(first, x.numpy() + 1)


def test_a_view_of_memory_is_read_where_it_lies():
    x = krt.tensor(floats(6, 500)).realize()
    for row in range(6):  # one plan, bound to other memory each time
        np.testing.assert_array_equal(
            krt.call(np.sort, x[row], out=x[row]).numpy(), np.sort(x.numpy()[row])
        )


# ---- C functions


def test_a_c_function_reads_and_writes_memory():
    x, y = floats(700), floats(700)
    for fn in (library().axpy, ctypes.cast(library().axpy, ctypes.c_void_p).value):
        found = krt.call(fn, krt.tensor(2.5), krt.tensor(x), krt.tensor(y) + 1, out=((700,), "f4"))
        np.testing.assert_allclose(found.numpy(), 2.5 * x + y + 1, rtol=1e-5, atol=1e-6)


def test_a_c_function_has_results_of_several_types():
    x = floats(3, 5)
    wide, count = krt.call(
        library().twice, krt.tensor(x), out=(((3, 5), krt.float64), ((), krt.int64))
    )
    assert count.item() == 15
    np.testing.assert_array_equal(wide.numpy(), 2.0 * x.astype(np.float64))


def test_a_numba_cfunc_is_a_c_function():
    numba = pytest.importorskip("numba")
    types = numba.types

    @numba.cfunc(types.void(types.CPointer(types.voidptr), types.CPointer(types.int64)))
    def squares(bufs, vals):
        out = numba.carray(bufs[0], (vals[0],), np.float64)
        x = numba.carray(bufs[1], (vals[1],), np.float64)
        for i in range(vals[0]):
            out[i] = x[i] * x[i]

    x = krt.tensor(floats(9).astype(np.float64))
    np.testing.assert_array_equal(krt.call(squares, x, out=x).numpy(), x.numpy() ** 2)


def test_code_is_kept_for_as_long_as_a_plan_calls_it():
    fn = POINTER(lambda _bufs, _vals: None)
    gone = weakref.ref(fn)
    plan = krt.prepare(krt.call(fn, krt.ones(2), out=((2,), "float32")))
    del fn
    gc.collect()
    assert gone() is not None
    plan.execute()


def test_a_c_function_runs_without_the_gil():
    flag = np.zeros(1, np.int64)
    there, seen = krt.from_numpy(flag), []
    # The function reads the memory itself; outside of jit it would be given a copy.
    wait = krt.jit(lambda: krt.call(library().wait_for, there, out=((), krt.int64)))
    worker = threading.Thread(target=lambda: seen.append(wait().item()))
    worker.start()
    time.sleep(0.05)
    flag[0] = 1
    worker.join()
    assert seen == [1]


def test_a_c_function_of_a_step_of_over_runs_without_the_gil():
    flag = np.zeros(1, np.int64)
    there = krt.from_numpy(flag)
    step = krt.jit(lambda x: krt.call(library().wait_for, there, out=((), krt.int64)) + 0 * x.sum())
    rows = np.zeros((5, 1), np.int64)

    def set_flag():
        time.sleep(0.05)
        flag[0] = 1

    step.plan(rows[:1])
    worker = threading.Thread(target=set_flag)
    worker.start()
    assert step.over(rows, batch_size=1).tolist() == [1] * 5
    worker.join()


@pytest.mark.parametrize("rows", [False, True])
def test_a_c_function_says_that_it_failed(rows):
    state = krt.zeros(2, 3, dtype=krt.float64).realize()

    def halves(x):
        one = lambda row: krt.call(library().halves, row, out=row, fails=True)  # noqa: E731
        return over_rows(one, x.realize()) if rows else one(x)

    state.assign(halves(krt.ones(2, 3, dtype=krt.float64)))
    assert state.tolist() == [[0.5] * 3] * 2
    bad = krt.tensor([[1.0, 4.0, -1.0], [1.0, 1.0, 1.0]], dtype=krt.float64)
    with pytest.raises(CustomFunctionError, match=r"'halves' \(op .*function reported failure 3"):
        state.assign(halves(bad)).realize()
    assert state.tolist() == [[0.5] * 3] * 2


# ---- plans


def test_calls_are_as_many_as_plans_need():
    calls = []

    def note(x):
        calls.append(float(x[0]))
        return x * 2, x.sum()

    x = krt.ones(3).realize()
    out = (x, ((), "float32"))
    krt.call(note, x, out=out)
    assert calls == []
    a, s = krt.call(note, x, out=out)
    b, _ = krt.call(note, x, out=out)
    krt.realize(a, b, s, (a + b).sum())
    assert calls == [1.0]
    assert (a.tolist(), s.item()) == ([2.0] * 3, 3.0)


def test_two_functions_never_share_a_plan_and_one_does():
    x = krt.ones(3).realize()
    before = plan_cache.plans.misses
    for _ in range(3):
        for k in (2, 3):
            assert krt.call(lambda a, k=k: a * k, x, out=x).tolist() == [k] * 3
    assert plan_cache.plans.misses - before == 6

    def twice(a):
        return 2 * a

    class Scale:
        def __init__(self, by):
            self.by = by

        def __eq__(self, other):
            return True

        __hash__ = None

        def of(self, a):
            return a * self.by

    scales = Scale(4), Scale(5)
    before = plan_cache.plans.misses
    for _ in range(3):
        assert krt.call(twice, x, out=x).tolist() == [2] * 3
        for scale in scales:
            assert krt.call(scale.of, x, out=x).tolist() == [scale.by] * 3
    assert plan_cache.plans.misses - before == 3


def test_an_address_is_in_no_text():
    address = ctypes.cast(library().axpy, ctypes.c_void_p).value
    x = krt.ones(4)
    plan = krt.prepare(krt.call(address, 1.0, x, x, out=x) + 1)
    text = plan.explain() + "".join(repr(k.ast) + k.code for k in plan.kernels)
    assert str(address) not in text
    assert f"{address:x}" not in text


def test_a_plan_that_calls_can_be_replicated_and_bound_to_other_memory():
    data = np.ones(3, np.float32)
    x = krt.from_numpy(data)
    plan = krt.prepare(krt.call(np.cumsum, x + 1, out=x))
    twin = plan.replicate()
    for each in (plan, twin):
        each.execute()
        assert each.output_buffer.numpy().tolist() == [2.0, 4.0, 6.0]
    data[:] = 4
    twin.execute()
    assert twin.output_buffer.numpy().tolist() == [5.0, 10.0, 15.0]


def test_a_profile_and_explanations_name_the_function():
    plan = krt.prepare(krt.call(np.cumsum, krt.ones(3), out=((3,), "f4")))
    assert "function 'cumsum' (op" in plan.explain()
    assert "test_call.py" in plan.explain()
    named = krt.prepare(krt.call(library().axpy, 1.0, krt.ones(3), krt.ones(3), name="saxpy",
                                 out=((3,), "f4")))  # fmt: skip
    assert [p.kernel.entry_point for p in named.execute_profiled()][-1] == "saxpy"


# ---- failures


def fails_with(fn, like, match, cause):
    with pytest.raises(CustomFunctionError, match=match) as caught:
        krt.call(fn, like, out=like).realize()
    assert isinstance(caught.value.__cause__, cause)


def test_what_a_function_raises_is_the_cause():
    def broken(_):
        raise KeyError("lost")

    fails_with(broken, krt.ones(3), r"broken.*test_call\.py.*KeyError: 'lost'", KeyError)


@pytest.mark.parametrize(
    ("returned", "message", "cause"),
    [
        (np.ones(2, np.float32), r"result: expected shape \(3,\), not \(2,\)", ShapeError),
        (np.ones(3), "result: expected float32, not float64", DTypeError),
        (np.ones(3, np.int32), "result: expected float32, not int32", DTypeError),
        (1.0, r"result: expected shape \(3,\), not the number 1.0", ShapeError),
        (None, r"result: expected shape \(3,\), not \(\)", ShapeError),
        ([[1.0], [1.0, 2.0]], "inhomogeneous", ValueError),
    ],
    ids=str,
)
def test_what_a_function_returns_is_checked(returned, message, cause):
    fails_with(lambda _: returned, krt.ones(3), message, cause)


@pytest.mark.parametrize(
    ("dtype", "number"), [("uint8", 256), ("uint8", -1), ("int64", 1.5), ("bool", 1), ("int8", 128)]
)
def test_numbers_that_a_type_does_not_hold_are_refused(dtype, number):
    with pytest.raises(CustomFunctionError, match=f"expected {dtype}, not the number"):
        krt.call(lambda: number, out=((), dtype)).realize()


@pytest.mark.parametrize("returned", [(1.0,), {"a": 1.0, "b": 2.0}, 1.0, None, (1.0, (2.0,))])
def test_another_nesting_is_refused(returned):
    with pytest.raises(CustomFunctionError, match="ShapeError: result"):
        krt.realize(*krt.call(lambda: returned, out=(((), "f4"), ((), "f4"))))


def test_a_call_that_fails_leaves_state_and_can_be_made_again():
    fail = [True]

    def moody(a):
        if fail[0]:
            raise ValueError("not now")
        return a + 1

    state, other = krt.zeros(3).realize(), krt.zeros(3).realize()
    with pytest.raises(CustomFunctionError):
        krt.realize(other.assign(krt.call(moody, state, out=state)), state.assign(state + 5))
    assert other.tolist() == [0.0] * 3
    fail[0] = False
    state.assign(krt.zeros(3)).realize()
    for k in range(3):
        state.assign(krt.call(moody, state, out=state))
        assert state.tolist() == [k + 1.0] * 3


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: krt.call(3.5, out=((), "f4")), DTypeError, "fn: expected a Python callable"),
        (lambda: krt.call(None, out=((), "f4")), DTypeError, "fn: expected a Python callable"),
        (lambda: krt.call(0, out=((), "f4")), PlanBuildError, "fn: 0 has no address"),
        (lambda: krt.call(-5, out=((), "f4")), PlanBuildError, "fn: -5 has no address"),
        (lambda: krt.call(True, out=((), "f4")), PlanBuildError, "fn: True has no address"),
        (lambda: krt.call(POINTER(), out=((), "f4")), PlanBuildError, "has no address"),
        (lambda: krt.call(sum, "x", out=((), "f4")), DTypeError, r"tensors\[0\]"),
        (lambda: krt.call(sum, object(), out=((), "f4")), DTypeError, r"tensors\[0\]"),
        (lambda: krt.call(sum, krt.zeros(0), out=((), "f4")), ShapeError, r"tensors\[0\]"),
        (lambda: krt.call(sum, out=((-1,), "f4")), ShapeError, "out: expected sizes"),
        (lambda: krt.call(sum, out=((0,), "f4")), ShapeError, "out: expected sizes"),
        (lambda: krt.call(sum, out=((2.5,), "f4")), DTypeError, "out: expected a shape of ints"),
        (lambda: krt.call(sum, out=((2,), object)), DTypeError, "out"),
        (lambda: krt.call(sum, out=(((2,), "f4"), "x")), DTypeError, r"out\[1\]: expected a pair"),
        (lambda: krt.call(sum, out=()), ShapeError, "out: expected at least one result"),
        (lambda: krt.call(sum, out=None), ShapeError, "out: expected at least one result"),
        (lambda: krt.call(5, out=None, pure=False), ShapeError, "out: expected at least one"),
        (lambda: krt.call(sum, out=((), "f4"), vjp=3), DTypeError, "vjp: expected a callable"),
        (lambda: krt.call(sum, out=((), "f4"), pure=1), DTypeError, "pure: expected a bool"),
        (lambda: krt.call(sum, out=((), "f4"), vectorized=0), DTypeError, "vectorized"),
        (lambda: krt.call(sum, out=((), "f4"), name=3), DTypeError, "name: expected a str"),
        (lambda: krt.call(sum, out=((), "f4"), fails=True), DTypeError, "fails: expected False"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ---- many at once


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_python_function_is_mapped(vectorized):
    shapes = []

    def f(a, b):
        shapes.append(a.shape)
        return a * b + 1

    x, y = krt.tensor(floats(4, 3)).realize(), krt.tensor(floats(3)).realize()
    found = over_rows(
        lambda row, y: krt.call(f, row, y, out=row, vectorized=vectorized) * 2, x, y
    )
    np.testing.assert_allclose(found.numpy(), 2 * (x.numpy() * y.numpy() + 1), rtol=1e-6)
    assert shapes == ([(4, 3)] if vectorized else [(3,)] * 4)


def test_a_python_function_is_mapped_twice():
    x = krt.tensor(floats(2, 4, 3)).realize()
    total = lambda row: krt.call(np.sum, row, out=((), "float32"))  # noqa: E731
    found = over_rows(lambda rows: over_rows(total, rows), x)
    np.testing.assert_allclose(found.numpy(), x.numpy().sum(-1), rtol=1e-6)


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_c_function_is_mapped(vectorized):
    x = krt.tensor(floats(6, 7)).realize()

    def f(row):
        wide, count = krt.call(library().twice, row, out=((row.shape, "f8"), ((), "i8")),
                               vectorized=vectorized)  # fmt: skip
        return wide if vectorized else wide + count

    found = over_rows(f, x).numpy()
    np.testing.assert_array_equal(found, 2.0 * x.numpy().astype(float) + (0 if vectorized else 7))


def test_a_mapped_c_function_has_a_limit_of_buffers():
    x = krt.tensor(floats(2, 3)).realize()
    f = lambda row: krt.call(library().axpy, *([row] * 64), out=row)  # noqa: E731
    with pytest.raises(ShapeError, match="axpy: 65 operands and results"):
        over_rows(f, x).realize()


def test_reshaping_around_a_call_costs_nothing():
    x = krt.tensor(floats(12)).realize()
    plan = krt.prepare(krt.call(np.sort, x.reshape(3, 4), out=((3, 4), "f4")).reshape(12))
    assert not plan.prepared_kernels
