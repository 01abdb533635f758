"""krt.call in jitted functions and in schedules: when it is called, and what it waits for."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support.c_functions import library

import kernelrt as krt
from kernelrt.errors import (
    CustomFunctionError,
    IndexBoundsError,
    SpecError,
    VariableError,
)
from kernelrt.ir import Op, UOp
from kernelrt.ir.ffi import FfiFunction, FfiResult
from kernelrt.ir.kernel_spec import verify_kernel
from kernelrt.ir.tensor_spec import verify_tensor
from kernelrt.tensor.nodes import build

RNG = np.random.default_rng(4)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [3, 700])  # copied in and out, and bound where it lies
def test_each_call_of_a_jitted_function_calls_it_once(size):
    calls = []

    def f(a, b):
        calls.append(1)
        return a + b, a.sum()

    @krt.jit
    def step(x, w):
        both, total = krt.call(f, x, x * w, out=(((size,), "f4"), ((), "f4")))
        return both * 2, total

    w = floats(size)
    for k in range(1, 5):
        x = floats(size)
        both, total = step(x, w)
        np.testing.assert_allclose(both.numpy(), 2 * (x + x * w), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(total.item(), x.sum(), rtol=1e-4, atol=1e-4)
        assert len(calls) == k


def test_a_call_among_others_runs_on_several_threads():
    @krt.jit
    def wide(x):
        left = krt.call(np.sort, (x @ x).reshape(-1), out=((128 * 128,), "f4"))
        right = krt.call(library().axpy, 2.0, x, x, out=((128, 128), "f4"))
        return (left.reshape(128, 128) + right).sum(0), (x.exp() @ x).sum()

    x = floats(128, 128)
    with krt.num_threads(2):
        for _ in range(20):
            found, other = wide(x)
            expected = np.sort((x @ x).reshape(-1)).reshape(128, 128) + 3 * x
            np.testing.assert_allclose(found.numpy(), expected.sum(0), rtol=1e-3, atol=1e-2)
            np.testing.assert_allclose(other.item(), (np.exp(x) @ x).sum(), rtol=1e-3)


def test_state_goes_through_a_c_function():
    state = krt.tensor([1.0, 0.0]).realize()

    @krt.jit
    def rollout(torques):
        rewards = []
        for k in range(4):
            new, reward = krt.call(
                library().swing, state, torques[k], out=(((2,), "f4"), ((), "f4"))
            )
            state.assign(new)
            rewards.append(reward)
        return krt.stack(rewards)

    angle, speed = np.float32(1), np.float32(0)
    for _ in range(3):
        torques = floats(4)
        found = rollout(torques).numpy()
        for torque, reward in zip(torques, found, strict=True):
            np.testing.assert_allclose(reward, -angle * angle, rtol=1e-5)
            speed += np.float32(0.05) * (torque - angle)
            angle += np.float32(0.05) * speed
        np.testing.assert_allclose(state.numpy(), [angle, speed], rtol=1e-5)


def test_all_state_is_as_before_where_a_call_fails():
    limit = [10.0]

    def grow(a):
        if a[0] >= limit[0]:
            raise OverflowError("too large")
        return a + 1

    state, count = krt.zeros(3).realize(), krt.zeros(()).realize()

    @krt.jit
    def step():
        count.assign(count + 1)
        state.assign(krt.call(grow, state, out=((3,), "f4")))
        return count * 1

    for _ in range(10):
        step()
    with pytest.raises(CustomFunctionError, match=r"grow.*too large"):
        step()
    assert (state.tolist(), count.item()) == ([10.0] * 3, 10.0)
    limit[0] = 11
    assert step().item() == 11
    assert state.tolist() == [11.0] * 3


def test_state_that_a_call_alone_computes_waits_for_what_may_fail():
    table = krt.arange(4).float().realize()
    target = krt.zeros(3).realize()

    @krt.jit
    def step(x, i):
        target.assign(krt.call(lambda a: a + 1, x, out=((3,), "f4")))
        return table[i]

    step(np.zeros(3, np.float32), np.array([1]))
    assert target.tolist() == [1.0] * 3
    with pytest.raises(IndexBoundsError):
        step(np.ones(3, np.float32), np.array([9]))
    assert target.tolist() == [1.0] * 3


def test_an_unused_result_is_no_reason_to_call():
    calls = []

    @krt.jit
    def step(x):
        krt.call(calls.append, x, out=((), "f4"))
        return x + 1

    step(np.ones(2, np.float32))
    assert calls == []


def test_what_is_not_pure_is_called_once_and_in_order():
    said = []

    class Environment:
        def __init__(self):
            self.total = 0

        def step(self, action):
            self.total += int(action)
            said.append(self.total)
            return np.float32([self.total]), self.total > 3

    env = Environment()
    weight = krt.ones(1).realize()

    @krt.jit
    def two(action):
        obs, _ = krt.call(env.step, action, out=(((1,), "f4"), ((), "bool")), pure=False)
        krt.call(lambda o: said.append(("between", float(o[0]))), obs, out=None, pure=False)
        weight.assign(weight + obs)
        krt.call(env.step, action, out=(((1,), "f4"), ((), "bool")), pure=False)
        _, over = krt.call(env.step, action, out=(((1,), "f4"), ((), "bool")), pure=False)
        return over

    assert not two(np.int64(1)).item()
    assert said == [1, ("between", 1.0), 2, 3]
    assert two(np.int64(1)).item()
    assert said[4:] == [4, ("between", 4.0), 5, 6]
    assert weight.item() == 6.0
    assert (len(two.plans), two.retraces) == (1, 0)


def test_gradients_flow_through_calls_while_training():
    def rule(inputs, _result, cotangent):
        return cotangent * 3 * inputs[0] ** 2

    weight = krt.tensor(floats(6), requires_grad=True)
    other = krt.tensor(weight.numpy(), requires_grad=True)

    def loss(w, x, *, called):
        z = w * x
        y = krt.call(lambda a: a**3, z, out=z, vjp=rule) if called else z**3
        return (y * y).mean()

    @krt.jit
    def step(x):
        losses = []
        for w, called in ((weight, True), (other, False)):
            w.grad = None
            value = loss(w, x, called=called)
            value.backward()
            with krt.no_grad():
                w.assign(w - 0.01 * w.grad)
            losses.append(value)
        return losses

    for _ in range(5):
        a, b = step(floats(6))
        np.testing.assert_allclose(a.item(), b.item(), rtol=1e-4)
    np.testing.assert_allclose(weight.numpy(), other.numpy(), rtol=1e-4)


@pytest.mark.parametrize("jitted", [False, True])
def test_a_c_function_that_is_not_pure_sees_its_own_buffers_alone(jitted):
    state = krt.ones(3, dtype=krt.float64).realize()

    def step(x):
        halves = krt.call(library().halves, x, out=x, pure=False, fails=True)
        state.assign(krt.call(library().halves, halves, out=x, pure=False, fails=True))
        return halves

    run = krt.jit(step) if jitted else step
    x = krt.tensor([4.0, 8.0, 2.0], dtype=krt.float64)
    for _ in range(2):
        assert run(x).tolist() == [2.0, 4.0, 1.0]
        assert state.tolist() == [1.0, 2.0, 0.5]
    with pytest.raises(CustomFunctionError, match="the function reported failure 3"):
        run(krt.tensor([8.0, 2.0, -1.0], dtype=krt.float64) * 1)
    assert state.tolist() == [1.0, 2.0, 0.5]


@pytest.mark.parametrize("jitted", [False, True])
def test_what_is_not_pure_has_gradients(jitted):
    calls = []

    def f(a):
        calls.append(1)
        return np.sin(a)

    def loss(x):
        y = krt.call(f, x, out=x, pure=False, vjp=lambda inputs, _, g: g * inputs[0].cos())
        return (y * y).sum()

    data = floats(4)
    grad = krt.func.grad(loss)
    for k in range(1, 3):
        found = (krt.jit(grad) if jitted else grad)(krt.tensor(data))
        np.testing.assert_allclose(found.numpy(), np.sin(2 * data), rtol=1e-5, atol=1e-6)
        assert len(calls) == k


def test_sizes_that_are_known_at_run_time_are_refused():
    @krt.jit(dynamic={"x": {0: krt.Variable("n", 1, 8)}})
    def step(x):
        return krt.call(np.sort, x, out=x)

    with pytest.raises(VariableError, match="known only at run time"):
        step(np.ones(3, np.float32))


def test_one_plan_called_by_several_threads():
    @krt.jit
    def step(x):
        return krt.call(lambda a: a * 2, x, out=((500,), "f4")) + 1

    step(np.zeros(500, np.float32))
    wrong = []

    def work(k):
        for i in range(50):
            x = np.full(500, 100 * k + i, np.float32)
            if not np.array_equal(step(x).numpy(), 2 * x + 1):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong
    assert not any(t.is_alive() for t in threads)


def test_a_function_may_run_another_jitted_function():
    inner = krt.jit(lambda a: (a * a).sum())

    @krt.jit
    def outer(x):
        return krt.call(inner, x, out=((), "f4")) + 1

    for k in range(3):
        assert outer(np.full(4, k, np.float32)).item() == 4 * k * k + 1


def test_a_function_that_runs_its_own_plan_is_told_so():
    again = [False]

    @krt.jit
    def f(x):
        return krt.call(lambda a: f(a).numpy() if again[0] else a, x, out=((2,), "f4"))

    x = np.ones(2, np.float32)
    assert f(x).tolist() == [1.0, 1.0]
    again[0] = True
    with pytest.raises(CustomFunctionError, match="PlanBusyError"):
        f(x)


# ---- the rules of graphs


def _callee(**changes):
    known = {"name": "f", "function": np.sort, "address": 0,
             "operands": (((2,), krt.float32),), "results": (((3,), krt.int64),)}  # fmt: skip
    return FfiFunction(**{**known, **changes})


def test_the_rules_of_graphs_name_what_breaks_them():
    x, y = krt.ones(2).realize().uop, krt.ones(3).realize().uop
    verify_tensor([build.foreign(_callee(), 0, x)])
    for node, message in (
        (UOp(Op.CALL, krt.float32, (x,), FfiResult(_callee(), 0)), "has no result 0 of that dtype"),
        (UOp(Op.CALL, krt.int64, (y,), FfiResult(_callee(), 0)),
         "must have the shapes and types of"),
        (UOp(Op.CALL, krt.int64, (), FfiResult(_callee(), 0)),
         "must have the shapes and types of"),
        (UOp(Op.CALL, krt.int64, (x,), "f"), "must be a Routine or an FfiResult"),
    ):
        with pytest.raises(SpecError, match=message):
            verify_tensor([node])


@pytest.mark.parametrize("sizes", [(3,), (3, 3), (2, 2), (3, 2, 1)])
def test_the_rules_of_kernels_know_the_slots(sizes):
    types = (krt.int64, krt.float32, krt.int64)
    params = tuple(
        UOp(Op.PARAM, dtype, (), (k, n))
        for k, (dtype, n) in enumerate(zip(types, sizes, strict=False))
    )
    call = UOp(Op.CALL, krt.int64, params, _callee())
    with pytest.raises(SpecError, match="its PARAMs must be int64 x 3, float32 x 2"):
        verify_kernel(UOp(Op.SINK, call.dtype, (call,)))


def test_forms_are_part_of_what_is_called():
    same = _callee()
    assert same == _callee()
    assert hash(same) == hash(_callee())
    for other in (
        _callee(function=np.argsort), _callee(name="g"), _callee(address=5), same.mapped(2),
        _callee(vectorized=True), _callee(ordered=True), _callee(results=(((4,), krt.int64),)),
    ):  # fmt: skip
        assert same != other


# ---- programs


def _split(a, b):
    return np.sort(a) + b, (a * b).sum(), (a > b)


_FORMS = (((6,), "float32"), ((), "float32"), ((6,), "bool"))


class _Program:
    """A random step of calls, arithmetic and assignments, of tensors and of arrays alike."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        self.start = [rng.standard_normal(6).astype(np.float32) for _ in range(3)]

    def run(self, x, states, put, calls):
        rng = np.random.default_rng(self.seed)
        now = list(states)
        values = [x, *now]
        results = []
        for _ in range(int(rng.integers(4, 9))):
            a, b = (values[i] for i in rng.integers(0, len(values), 2))
            kind = int(rng.integers(0, 5))
            if kind == 0:
                values.append(a * 0.5 - b)
            elif kind == 1:
                one, total, flags = calls.split(a, b)
                values += [one, a * flags]
                results.append(total)
            elif kind == 2:
                values.append(calls.axpy(a, b))
            else:
                k = int(rng.integers(0, len(states)))
                now[k] = put(k, a if kind == 3 else calls.axpy(a, b))
                values[k + 1] = now[k]
        return [values[-1], values[int(rng.integers(0, len(values)))], *results]


class _InArrays:
    split = staticmethod(_split)

    @staticmethod
    def axpy(x, y):
        return np.float32(0.5) * x + y


class _InTensors:
    @staticmethod
    def split(a, b):
        return krt.call(_split, a, b, out=_FORMS)

    @staticmethod
    def axpy(x, y):
        return krt.call(library().axpy, 0.5, x, y, out=_FORMS[0])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", range(24))
def test_programs_of_calls_and_assignments(seed, threads):
    program = _Program(seed)
    arrays = [a.copy() for a in program.start]
    tensors = [krt.tensor(a).realize() for a in program.start]

    def put_array(k, value):
        arrays[k] = value
        return value

    def put_tensor(k, value):
        tensors[k].assign(value)
        return tensors[k] * 1

    @krt.jit
    def step(x):
        return program.run(x, [t * 1 for t in tensors], put_tensor, _InTensors)

    with krt.num_threads(threads):
        for _ in range(3):
            x = floats(6)
            expected = program.run(x, arrays, put_array, _InArrays)
            for found, wanted in zip(step(x), expected, strict=True):
                np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-4, atol=1e-4)
            for tensor, array in zip(tensors, arrays, strict=True):
                np.testing.assert_allclose(tensor.numpy(), array, rtol=2e-4, atol=1e-4)
