"""Plans with a preparation that are replicated, or get other memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.device import Buffer
from kernelrt.errors import PlanBuildError
from kernelrt.ir import Op
from kernelrt.tensor.eager import execute
from kernelrt.tensor.nodes import build

N = 64


def weights(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)


X = weights(7)[:32]


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    w = w.astype(np.float64)
    return x @ w.T / np.sqrt((w**2).sum())


def agree(plan, x: np.ndarray, w: np.ndarray) -> None:
    found = plan.output_buffer.copyout().reshape(len(x), N)
    np.testing.assert_allclose(found, expected(x, w), rtol=2e-5, atol=1e-6)


class Scaled:
    """A function and the plan of it for X, with the places of the weight and of the argument."""

    def __init__(self) -> None:
        self.w = krt.tensor(weights())
        self.fn = krt.jit(lambda x: x @ self.w.T / self.w.square().sum().sqrt())
        self.plan = self.fn.plan(krt.tensor(X))
        self.plan.execute()
        assert self.plan.preparation is not None

    def index(self, size: int) -> int:
        (found,) = [
            i for i, b in enumerate(self.plan.buffers) if b.size == size and not self.plan.owns(i)
        ]
        return found


@pytest.fixture
def scaled() -> Scaled:
    return Scaled()


def filled(array: np.ndarray) -> Buffer:
    made = Buffer(array.size, krt.dtype.float32)
    made.copyin(array.reshape(-1).astype(np.float32))
    return made


def test_a_replica_sees_what_is_written_after_the_original_ran_or_not(scaled):
    twin = scaled.plan.replicate()
    twin.execute()
    agree(twin, X, weights())
    for seed, first in ((1, scaled.plan), (2, twin)):
        scaled.w.assign(krt.tensor(weights(seed)))
        scaled.w.realize()
        first.execute()
        twin.execute()
        scaled.plan.execute()
        agree(twin, X, weights(seed))
        agree(scaled.plan, X, weights(seed))


def test_a_replica_prepares_to_memory_of_its_own(scaled):
    twin = scaled.plan.replicate()
    assert twin.preparation is not None
    assert twin.preparation is not scaled.plan.preparation
    (mine,), (theirs,) = twin.preparation.state, scaled.plan.preparation.state
    assert mine.address != theirs.address
    assert mine.address in [b.address for b in twin.buffers]
    assert theirs.address not in [b.address for b in twin.buffers]
    second = twin.replicate()
    second.execute()
    agree(second, X, weights())


def test_a_replica_of_what_never_ran_prepares():
    w = krt.tensor(weights())
    plan = krt.jit(lambda x: x @ w.T / w.square().sum().sqrt()).plan(krt.tensor(X))
    twin = plan.replicate()
    twin.execute()
    agree(twin, X, weights())


def test_a_replica_runs_beside_the_original(scaled):
    plans = [scaled.plan, scaled.plan.replicate()]
    wrong: list[BaseException] = []
    stop = threading.Event()

    def run(plan) -> None:
        try:
            while not stop.is_set():
                plan.execute()
        except BaseException as error:  # noqa: BLE001 - the test is told
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for seed in range(50):
        scaled.w.assign(krt.tensor(weights(seed)))
        scaled.w.realize()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    for plan in plans:
        plan.execute()
        agree(plan, X, weights(49))


def test_what_is_prepared_follows_a_source_that_is_rebound(scaled):
    before = scaled.plan.preparation
    new = filled(weights(1))
    scaled.plan.rebind(scaled.index(N * N), new)
    assert scaled.plan.preparation is not before
    scaled.plan.execute()
    agree(scaled.plan, X, weights(1))
    new.copyin(weights(2).reshape(-1))
    scaled.plan.execute()
    agree(scaled.plan, X, weights(2))
    array = new.numpy()
    for factor in (2, 3):
        array[:N] *= factor
        scaled.plan.execute()
        agree(scaled.plan, X, array.reshape(N, N))


def test_a_replica_of_a_plan_with_a_source_rebound(scaled):
    new = filled(weights(1))
    scaled.plan.rebind(scaled.index(N * N), new)
    twin = scaled.plan.replicate()
    new.copyin(weights(2).reshape(-1))
    twin.execute()
    agree(twin, X, weights(2))


def test_an_argument_that_is_rebound_leaves_the_preparation(scaled):
    before = scaled.plan.preparation
    (norm,) = before.state
    kept = norm.copyout()
    scaled.plan.rebind(scaled.index(X.size), filled(X + 1))
    assert scaled.plan.preparation is before
    scaled.plan.execute()
    agree(scaled.plan, X + 1, weights())
    np.testing.assert_array_equal(norm.copyout(), kept)


def test_what_is_prepared_is_not_rebound(scaled):
    (norm,) = scaled.plan.preparation.state
    index = scaled.plan.buffers.index(norm)
    with pytest.raises(PlanBuildError, match="preparation of the plan computes"):
        scaled.plan.rebind(index, Buffer(1, krt.dtype.float32))
    for i in range(len(scaled.plan.preparation.buffers)):
        old = scaled.plan.preparation.buffers[i]
        with pytest.raises(PlanBuildError, match="call rebind on that plan"):
            scaled.plan.preparation.rebind(i, Buffer(old.size, old.dtype))
    scaled.plan.execute()
    agree(scaled.plan, X, weights())


def test_state_is_not_rebound_to_what_is_prepared_from():
    w, total = krt.tensor(weights()), krt.zeros(N, N)

    @krt.jit
    def fn(x):
        total.assign(total + x / w.square().sum().sqrt())

    fn(weights(3))
    plan = fn.plans[0]
    (source,) = [b for b in plan.preparation.buffers if b.size == N * N]
    (place,) = [plan.buffers.index(b) for b in plan.state]
    assert source not in plan.buffers
    with pytest.raises(PlanBuildError, match="bind a copy"):
        plan.rebind(place, source)


def test_a_rebind_beside_what_is_prepared_from_is_refused():
    both, out, total = filled(np.ones((2, N))), filled(np.zeros(N)), filled(np.zeros(1))
    part = both.view(0, N, krt.dtype.float32)
    read, whole, written, kept = map(build.memory, (part, both, out, total))
    plan = execute.prepare((), [(written, read.alu(Op.ADD, build.expand(kept, (N,))))])
    plan.prepare_by(execute.prepare((), [(kept, whole_sum(whole))]), [both.storage])
    plan.execute()
    with pytest.raises(PlanBuildError, match="memory around this buffer"):
        plan.rebind(plan.buffers.index(part), filled(np.ones(N)))
    both.copyin(np.full(2 * N, 2, np.float32))
    plan.execute()
    np.testing.assert_array_equal(out.copyout(), np.full(N, 2 + 4 * N, np.float32))


def whole_sum(node):
    return build.reshape(build.reduce(node, Op.ADD, (0,)), (1,))
