"""krt.call in loops, in branches, and for the members of a batch."""

from __future__ import annotations

import numpy as np
import pytest
from support.c_functions import library

import kernelrt as krt
from kernelrt.errors import CustomFunctionError, JitError

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _swung(state, torque):
    speed = state[1] + np.float32(0.05) * (torque[0] - state[0])
    return np.float32([state[0] + np.float32(0.05) * speed, speed]), -state[0] ** 2


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("in_c", [False, True])
def test_a_loop_calls_in_each_turn(jitted, in_c):
    out = (((2,), "float32"), ((), "float32"))

    def run(state, torques):
        fn = library().swing if in_c else _swung
        return krt.func.scan(lambda s, t: krt.call(fn, s, t.reshape(1), out=out), state, torques)

    torques = floats(7)
    state, rewards = (krt.jit(run) if jitted else run)(
        krt.tensor([1.0, 0.0]), krt.tensor(torques)
    )
    now, expected = np.float32([1, 0]), []
    for torque in torques:
        now, reward = _swung(now, [torque])
        expected.append(reward)
    np.testing.assert_allclose(rewards.numpy(), expected, rtol=1e-4)
    np.testing.assert_allclose(state.numpy(), now, rtol=1e-4)


@pytest.mark.parametrize("jitted", [False, True])
def test_a_loop_calls_what_is_not_pure_once_a_turn(jitted):
    said = []

    def note(s, t):
        said.append(float(t))
        return s + t

    def run(s, ts):
        return krt.func.scan(
            lambda s, t: (krt.call(note, s, t, out=s, pure=False), s.sum()), s, ts
        )

    last, sums = (krt.jit(run) if jitted else run)(krt.ones(3), krt.arange(4).float())
    assert last.tolist() == [7.0] * 3
    assert sums.tolist() == [3.0, 3.0, 6.0, 12.0]
    assert said == [0.0, 1.0, 2.0, 3.0]


def test_a_turn_that_fails_is_named_and_leaves_state():
    def near(s, t):
        if t > 2:
            raise ValueError("too far")
        return s + t

    state = krt.zeros(3).realize()

    @krt.jit
    def run(ts):
        state.assign(krt.func.scan(lambda s, t: (krt.call(near, s, t, out=s), t), state, ts)[0])

    with pytest.raises(CustomFunctionError, match=r"near.*iteration 3 of the loop of 6.*too far"):
        run(np.arange(6, dtype=np.float32))
    assert state.tolist() == [0.0] * 3
    run(np.zeros(6, np.float32))


def test_gradients_flow_through_calls_in_loops():
    def sine(x):
        return krt.call(np.sin, x, out=x, vjp=lambda inputs, _, g: g * inputs[0].cos())

    def loss(x, f):
        return krt.func.scan(lambda s, t: (f(s * t), None), x, krt.ones(3))[0].sum()

    x = krt.tensor(floats(4))
    expected = krt.func.grad(lambda x: loss(x, lambda s: s.sin()))(x)
    found = krt.jit(krt.func.grad(lambda x: loss(x, sine)))(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_branch_that_is_not_taken_calls_nothing():
    calls = []

    def note(a):
        calls.append(1)
        return a * 2

    @krt.jit
    def run(x):
        return krt.func.cond(
            x.sum() > 0, lambda x: krt.call(note, x, out=x), lambda x: x - 1, x
        )

    assert run(np.ones(2, np.float32)).tolist() == [2.0, 2.0]
    assert run(-np.ones(2, np.float32)).tolist() == [-2.0, -2.0]
    assert calls == [1]


@pytest.mark.parametrize("jitted", [False, True])
def test_vmap_calls_for_each_member_or_once(jitted):
    shapes = []

    def note(a):
        shapes.append(a.shape)
        return a * 2

    rows = krt.tensor(floats(3, 4))
    for vectorized in (False, True):
        shapes.clear()
        f = krt.func.vmap(lambda r, v=vectorized: krt.call(note, r, out=r, vectorized=v) + 1)
        found = (krt.jit(f) if jitted else f)(rows)
        np.testing.assert_allclose(found.numpy(), 2 * rows.numpy() + 1, rtol=1e-6)
        assert shapes == ([(3, 4)] if vectorized else [(4,)] * 3)
    twice = krt.func.vmap(lambda r: krt.call(library().axpy, 1.0, r, r, out=r))
    np.testing.assert_allclose(twice(rows).numpy(), 2 * rows.numpy(), rtol=1e-6)
    order = "note: pure=False .* calls for the batch elements of vmap have no order"
    with pytest.raises(JitError, match=order):
        krt.func.vmap(lambda r: krt.call(note, r, out=r, pure=False))(rows)
