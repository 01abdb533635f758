"""What belongs to a call happens in its turn: gradients, arguments, and what profile() measures."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.tensor.autograd import tags

SIZE = 60_000  # long enough that the plan gives up the GIL


def at_once(*calls):
    """Call all in threads of their own that begin together; what they raised."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(run, call) for call in calls]
    return [error for future in futures if (error := future.exception()) is not None]


@pytest.mark.parametrize("held", ["none", "own", "lazy", "of a plan"])
def test_gradients_of_two_threads_add_up(held):
    w = krt.tensor(np.zeros(SIZE, np.float32), requires_grad=True)
    f = krt.jit(lambda x: (w * x).sum().backward())
    x = np.ones(SIZE, np.float32)
    for setup in (None, krt.ones(SIZE)):  # plans for both kinds of gradients
        w.grad = setup
        f(x), f(x)
    for _ in range(30):
        before = 0.0 if held == "none" else 2.0
        w.grad = None
        if held == "own":
            w.grad = krt.full((SIZE,), 2.0).realize()
        elif held == "lazy":
            w.grad = krt.ones(SIZE).realize() * 2
        elif held == "of a plan":
            f(x), f(x)
        assert not at_once(*[lambda: f(x)] * 3)
        assert np.array_equal(w.grad.numpy(), np.full(SIZE, before + 3, np.float32))


def test_calls_beside_plan_and_profile_see_their_own_arguments():
    f = krt.jit(lambda x: (x.sin() + x * 0).expand(400, 64).sum(0))
    a, b = (np.full((1, 64), v, np.float32) for v in (1.0, 2.0))
    wanted = f(a).numpy()
    over = threading.Event()

    def beside():
        while not over.is_set():
            f.plan(b)
            f.profile(b)

    wrong = []

    def call():
        wrong.extend(not np.array_equal(f(a).numpy(), wanted) for _ in range(300))
        over.set()

    assert not at_once(beside, call)
    assert not any(wrong)


def test_plan_hands_out_no_gradient():
    w = krt.ones(4, requires_grad=True)
    f = krt.jit(lambda x: (w * x).sum().backward())
    plan = f.plan(np.ones(4, np.float32))
    assert w.grad is None
    plan.execute()
    assert w.grad is None
    f(np.full(4, 3, np.float32))
    assert w.grad.tolist() == [3, 3, 3, 3]


def test_profile_does_what_a_call_does():
    w = krt.zeros(3, requires_grad=True)
    total = krt.zeros(())

    @krt.jit
    def f(x):
        total.assign(total + x.sum())
        ((w + 1) * x).sum().backward()

    x = np.array([1, 2, 3], np.float32)
    for i in range(1, 4):
        assert all(p.elapsed >= 0 for p in f.profile(x))
        assert total.item() == 6 * i
        assert np.array_equal(w.grad.numpy(), x * i)


def test_arguments_of_open_sizes_in_plan_and_profile():
    f = krt.jit(lambda x: x.sum(), dynamic={"x": {0: krt.Variable("n", 1, 9)}})
    for n in (1, 4, 9, 4):
        x = np.arange(n, dtype=np.float32)
        plan = f.plan(x)
        plan.execute()
        assert plan.output_buffer.numpy().item() == x.sum()
        f.profile(x)
        assert plan.output_buffer.numpy().item() == x.sum()
        assert f(x).item() == x.sum()


@pytest.mark.parametrize("wide", [True, False])
def test_strided_arguments_in_plan(wide):
    f = krt.jit(lambda x: x * 2)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    plan = f.plan(x.T if wide else np.ascontiguousarray(x.T))
    plan.execute()
    assert np.array_equal(plan.output_buffer.numpy().reshape(4, 3), x.T * 2)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_histories_begun_by_enable_grad_are_not_lost(first, outside, inside):
    w = krt.tensor([2.0], requires_grad=True)
    v = krt.tensor([5.0], requires_grad=True)

    def plain(x, y):
        if not inside:
            return x * w, y * 2
        with krt.enable_grad():
            return x * w, y * 2

    f = krt.jit(plain)
    made = v * 1
    for mode in (first, outside):
        with krt.enable_grad() if mode else krt.no_grad():
            ours, wanted = (g(krt.ones(1), made) for g in (f, plain))
        for mine, known in zip(ours, wanted, strict=True):
            assert known.requires_grad == (mode or inside)
            if known.requires_grad:
                with pytest.raises(krt.GradientError, match="jitted function"):
                    (mine * w).sum().backward()
            else:
                (mine * w).sum().backward()


def test_an_error_of_the_look_at_an_argument_is_not_lost():
    w = krt.ones(3, requires_grad=True)
    f = krt.jit(lambda x: (x * w).sum().backward())
    f(krt.ones(3))
    fresh = krt.ones(3).realize()
    fresh.requires_grad_()
    mark = tags.Custom(lambda node, gradient, i: gradient, (fresh._uop,))
    fresh._uop = tags.mark(fresh._uop, mark)
    inputs = mark.inputs
    object.__setattr__(mark, "inputs", None)
    with pytest.raises(TypeError):
        f(fresh)
    object.__setattr__(mark, "inputs", inputs)
    with pytest.raises(krt.JitError, match="x: the argument requires a gradient"):
        f(fresh)


def test_methods_of_classes_of_one_name_call_each_other():
    class Root:
        @krt.jit
        def step(self, x):
            return x * 1

    def wrap(base):
        class Layer(base):
            @krt.jit
            def step(self, x):
                return super().step(x) + 1

        return Layer

    x = np.zeros(2, np.float32)
    outer = wrap(wrap(wrap(Root)))()
    assert outer.step(x).tolist() == [3, 3]
    assert outer.step(x).tolist() == [3, 3]


def test_training_in_threads_of_its_own_models():
    def train():
        model = nn.Linear(4, 1)
        optimizer = nn.optim.SGD(model.parameters(), lr=0.01)

        @krt.jit
        def backward(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        step = krt.jit(optimizer.step)
        x = np.ones((8, 4), np.float32)
        losses = []
        for _ in range(50):
            optimizer.zero_grad()
            losses.append(backward(x).item())
            step()
        assert losses[-1] < losses[0]

    assert not at_once(train, train, train)
