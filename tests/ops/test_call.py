"""krt.call: functions of C and of Python as values of graphs, in code without jit."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import namedtuple

import numpy as np
import pytest
from support.c_functions import library

import kernelrt as krt
from kernelrt.errors import (
    CustomFunctionError,
    DTypeError,
    GradientError,
    PlanBuildError,
    ShapeError,
)
from kernelrt.tensor import execute
from kernelrt.tensor.batching import batched

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(3)
POINTER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


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
    before = execute.plans.misses

    def plus(a, b):
        return a + b

    x = krt.ones(3).realize()
    for k in range(30):
        assert krt.call(plus, x, krt.tensor(0.0) + k, out=x).tolist() == [1.0 + k] * 3
    assert execute.plans.misses - before < 15


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
    seen = krt.call(library().wait_for, krt.from_numpy(flag), out=((), krt.int64))
    worker = threading.Thread(target=seen.realize)
    worker.start()
    time.sleep(0.05)
    flag[0] = 1
    worker.join(30)
    assert seen.item() == 1


@pytest.mark.parametrize("rows", [False, True])
def test_a_c_function_says_that_it_failed(rows):
    state = krt.zeros(2, 3, dtype=krt.float64).realize()

    def halves(x):
        one = lambda row: krt.call(library().halves, row, out=row, fails=True)  # noqa: E731
        return over_rows(one, x.realize()) if rows else one(x)

    state.assign(halves(krt.ones(2, 3, dtype=krt.float64)))
    assert state.tolist() == [[0.5] * 3] * 2
    bad = krt.tensor([[1.0, 4.0, -1.0], [1.0, 1.0, 1.0]], dtype=krt.float64)
    with pytest.raises(CustomFunctionError, match=r"'halves' \(op .*it reported failure 3"):
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
    before = execute.plans.misses
    for _ in range(3):
        for k in (2, 3):
            assert krt.call(lambda a, k=k: a * k, x, out=x).tolist() == [k] * 3
    assert execute.plans.misses - before == 6

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
    before = execute.plans.misses
    for _ in range(3):
        assert krt.call(twice, x, out=x).tolist() == [2] * 3
        for scale in scales:
            assert krt.call(scale.of, x, out=x).tolist() == [scale.by] * 3
    assert execute.plans.misses - before == 3


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
        (lambda: krt.call(sum, out=((), "f4"), fails=True), DTypeError, "fails: it is for C func"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


# ---- code around


def test_a_function_may_compute_with_tensors():
    seen = krt.ones(3).realize()
    count = krt.zeros(()).realize()

    def inside(a):
        count.assign(count + 1)
        count.realize()
        return (krt.tensor(a) * 2 + seen).exp().log()

    state = krt.zeros(3).realize()
    for k in range(1, 4):
        state.assign(krt.call(inside, state, out=state) + 1)
        np.testing.assert_allclose(state.numpy(), [2.0 * (2**k - 1)] * 3, rtol=1e-4)
    assert count.item() == 3


def test_a_function_may_make_the_same_call_inside():
    def down(a):
        return a if a[0] < 1 else krt.call(down, krt.tensor(a - 1), out=((2,), "f4"))

    assert krt.call(down, krt.tensor([5.0, 7.0]), out=((2,), "f4")).tolist() == [0.0, 2.0]


def test_threads_that_call_at_once_get_their_own():
    x = krt.tensor(floats(100)).realize()
    wrong = []

    def work(k):
        for _ in range(30):
            found = krt.call(lambda a: a * k, x, out=x).numpy()
            if not np.array_equal(found, x.numpy() * np.float32(k)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong
    assert not any(t.is_alive() for t in threads)


def test_an_interrupt_within_a_function_comes_through():
    times = []

    def interrupted(a):
        times.append(1)
        if len(times) == 1:
            signal.raise_signal(signal.SIGINT)
        return a

    x = krt.ones(2).realize()
    state = krt.zeros(2).realize()
    with pytest.raises(KeyboardInterrupt):
        state.assign(krt.call(interrupted, x, out=x)).realize()
    assert state._memory.numpy().tolist() == [0.0, 0.0]
    assert state.tolist() == [1.0, 1.0]  # what was interrupted is still to be done
    with pytest.raises(SystemExit):
        krt.call(lambda a: sys.exit(3), x, out=x).realize()


def test_a_call_is_made_in_a_forked_child():
    if not hasattr(os, "fork"):
        pytest.skip("no fork")
    code = (
        "import os, kernelrt as krt\n"
        "f = lambda a: a + os.getpid()\n"
        "x = krt.zeros(1, dtype=krt.float64)\n"
        "y = krt.call(f, x, out=x).item()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    os._exit(int(krt.call(f, x, out=x).item() != os.getpid()))\n"
        "print(os.waitpid(pid, 0)[1], y == os.getpid())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]


# ---- calls that are made exactly once


def test_what_is_not_pure_is_called_at_once_and_once():
    seen = []

    def step(action):
        seen.append(int(action))
        return np.float32([len(seen), 0]), float(action), len(seen) > 2

    out = (((2,), "float32"), ((), "float32"), ((), "bool"))
    for k in range(4):
        obs, reward, over = krt.call(step, krt.tensor(k), out=out, pure=False)
        assert len(seen) == k + 1
        assert (obs.tolist(), reward.item(), over.item()) == ([k + 1, 0], k, k > 1)
    assert seen == [0, 1, 2, 3]


def test_what_gives_nothing_is_called_too():
    said = []
    krt.call(said.append, krt.tensor([1.0, 2.0]) * 2, out=None, pure=False)
    assert [a.tolist() for a in said] == [[2.0, 4.0]]


def test_what_is_not_pure_is_called_once_where_it_fails():
    calls = []

    def broken(a):
        calls.append(1)
        raise ValueError("no")

    state = krt.zeros(2).realize()
    state.assign(state + 1)
    with pytest.raises(CustomFunctionError):
        krt.call(broken, state, out=state, pure=False)
    assert calls == [1]
    assert state.tolist() == [1.0, 1.0]


# ---- derivatives


def sine(x):
    return krt.call(np.sin, x, out=x, vjp=_of_sine)


def _of_sine(inputs, _result, cotangent):
    (x,) = inputs
    return cotangent * krt.call(np.cos, x, out=x, vjp=_of_cosine)


def _of_cosine(inputs, _result, cotangent):
    return -cotangent * sine(inputs[0])


def test_gradients_of_any_order_go_by_the_rule():
    data = floats(5).astype(np.float64)
    x, other = krt.tensor(data), torch.tensor(data, requires_grad=True)
    f = lambda t: (sine(t) * t).sum()  # noqa: E731
    reference = (other.sin() * other).sum()
    (first,) = torch.autograd.grad(reference, other, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), other)
    grad = krt.func.grad(f)
    np.testing.assert_allclose(grad(x).numpy(), first.detach().numpy(), rtol=1e-12)
    twice = krt.func.grad(lambda t: grad(t).sum())
    np.testing.assert_allclose(twice(x).numpy(), second.numpy(), rtol=1e-12)
    x.requires_grad_()
    for k in range(1, 3):
        f(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), k * first.detach().numpy(), rtol=1e-12)


def test_forward_derivatives_and_jacobians_go_by_the_rule():
    data = floats(4).astype(np.float64)
    x, v = krt.tensor(data), krt.tensor(floats(4).astype(np.float64))
    value, slope = krt.func.jvp(sine, (x,), (v,))
    np.testing.assert_allclose(value.numpy(), np.sin(data), rtol=1e-12)
    np.testing.assert_allclose(slope.numpy(), np.cos(data) * v.numpy(), rtol=1e-12)
    for jacobian in (krt.func.jacrev, krt.func.jacfwd):
        np.testing.assert_allclose(
            jacobian(sine)(x).numpy(), np.diag(np.cos(data)), rtol=1e-12, atol=1e-14
        )


def test_one_rule_serves_all_results():
    asked = []

    def both(a, b):
        return {"sum": a + b, "count": a.size, "product": (a * b).astype(np.float64)}

    def rule(inputs, results, cotangents):
        asked.append(sorted(cotangents))
        assert cotangents["count"] is None
        assert results["count"].dtype is krt.int64
        a, b = inputs
        wide = cotangents["product"].float()
        return cotangents["sum"] + wide * b, cotangents["sum"] + wide * a

    a, b = (krt.tensor(floats(3), requires_grad=True) for _ in range(2))
    out = {"sum": a, "count": ((), "int64"), "product": ((3,), "float64")}
    found = krt.call(both, a, b, out=out, vjp=rule)
    (found["sum"].sum() + (found["product"] ** 2).sum()).backward()
    u, w = (torch.tensor(t.numpy().astype(np.float64), requires_grad=True) for t in (a, b))
    ((u + w).sum() + ((u * w) ** 2).sum()).backward()
    np.testing.assert_allclose(a.grad.numpy(), u.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), w.grad.numpy(), rtol=1e-5)
    assert len(asked) == 1


def test_without_a_rule_the_function_is_named():
    x = krt.ones(3, requires_grad=True)
    y = krt.ones(3)
    with pytest.raises(GradientError, match=r"sin: .* no derivative; give it one by vjp="):
        krt.call(np.sin, x, out=x).sum().backward()
    (krt.call(np.sin, x.detach(), out=y) * x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.sin(np.ones(3, np.float32)), rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda i, r, c: (c, c), "for each of 1 inputs, not 2"),
        (lambda i, r, c: c.sum(), r"must be None or a Tensor of shape \(3,\), not shape \(\)"),
        (lambda i, r, c: 3.0, r"must be None or a Tensor of shape \(3,\), not 3.0"),
    ],
)
def test_what_a_rule_gives_is_checked(rule, message):
    x = krt.ones(3, requires_grad=True)
    with pytest.raises(GradientError, match=message):
        krt.call(np.sin, x, out=x, vjp=rule).sum().backward()


def test_a_rule_may_give_none():
    x, y = krt.ones(3, requires_grad=True), krt.ones(3, requires_grad=True)
    krt.call(np.add, x, y, out=x, vjp=lambda i, r, c: (c, None)).sum().backward()
    assert x.grad.tolist() == [1.0] * 3
    assert y.grad is None or y.grad.tolist() == [0.0] * 3


# ---- many at once


def over_rows(f, x, *others):
    """`f` of each row of `x`, by rewriting the graph of one."""
    row = krt.tensor(np.zeros(x.shape[1:], x.numpy().dtype)).realize()
    node = f(row, *others).uop
    (found,) = batched([node], {row.uop: x.uop}, x.shape[0])
    return x._of(found)


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
