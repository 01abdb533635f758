"""New graphs are computed operation by operation, until compiling them pays."""

from __future__ import annotations

import contextlib
import math
import threading

import numpy as np
import pytest
from support.interrupts import count_steps, interrupted_at

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import PlanBuildError
from kernelrt.native import interpreter
from kernelrt.native.eager_plan import UNFIT
from kernelrt.native.graph_key import structural_key
from kernelrt.runtime import kernels
from kernelrt.tensor import state
from kernelrt.tensor.eager import interpret
from kernelrt.tensor.eager.plan_cache import plans

#: Runs after which any graph here is compiled.
MANY = 10_000


@pytest.fixture(autouse=True)
def interpreting(monkeypatch):
    monkeypatch.setattr(plans, "interprets", True)
    plans.clear()
    yield
    plans.clear()


@pytest.fixture
def early(monkeypatch):
    """Each graph is compiled after a few runs."""
    monkeypatch.setattr(interpret, "COMPILE_NS", 4 * interpret.RUN_NS)
    monkeypatch.setattr(interpret, "COMPILE_STEP_NS", 4 * interpret.WRITING_NS)


def drawn(*shape):
    return np.random.default_rng([3, *shape]).standard_normal(shape).astype(np.float32)


def test_a_new_graph_compiles_nothing():
    x, w = krt.tensor(drawn(4, 5)), krt.tensor(drawn(5, 3))
    before = kernels.compiled, plans.misses
    found = ((x @ w).relu() * 2 - 1).sum(0)
    expected = (np.maximum(x.numpy() @ w.numpy(), 0) * 2 - 1).sum(0)
    np.testing.assert_allclose(found.numpy(), expected, 1e-6)
    assert (kernels.compiled, plans.misses) == before


def test_it_is_compiled_in_the_end_and_elements_keep_their_bits():
    x = krt.tensor(drawn(33))
    before = plans.misses
    expected = None
    for _ in range(MANY):
        found = ((x.exp() * 0.5 + 1).tanh() / (x * x + 2)).numpy()
        expected = found if expected is None else expected
        np.testing.assert_array_equal(found, expected)
        if plans.misses != before:
            break
    assert plans.misses == before + 1
    for _ in range(3):
        again = ((x.exp() * 0.5 + 1).tanh() / (x * x + 2)).numpy()
        np.testing.assert_array_equal(again, expected)
    assert plans.misses == before + 1


@pytest.mark.usefixtures("early")
def test_numbers_that_varied_have_one_plan():
    x = krt.tensor(drawn(7))
    before = plans.misses
    for n in range(40):
        np.testing.assert_array_equal((x * (0.5 * n)).numpy(), x.numpy() * np.float32(0.5 * n))
    assert plans.misses == before + 1


@pytest.mark.usefixtures("early")
def test_sizes_that_varied_have_one_plan():
    data = drawn(50, 3)
    x = krt.tensor(data).realize()
    before = plans.misses
    for n in range(1, 40):
        found = (x[:n] * 2 + 1).sum(0).numpy()
        np.testing.assert_allclose(found, (data[:n] * 2 + 1).sum(0), 1e-5, 1e-5)
    assert plans.misses <= before + 2


@pytest.mark.usefixtures("early")
def test_training_is_the_same_before_and_after():
    def losses(interprets):
        plans.clear()
        plans.interprets = interprets
        krt.manual_seed(4)
        layer = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
        opt = nn.optim.Adam(layer.parameters(), 0.05)
        x, y = krt.tensor(drawn(16, 5)), krt.tensor(drawn(16, 2))
        found = []
        for _ in range(30):
            opt.zero_grad()
            loss = nn.functional.mse_loss(layer(x), y)
            loss.backward()
            opt.step()
            found.append(loss.item())
        return found

    np.testing.assert_allclose(losses(True), losses(False), 1e-5)


@pytest.mark.parametrize("compute", [
    krt.arange, lambda n: krt.arange(n).float().cos().unfold(0, 3, 1).sum(),
    lambda n: krt.nn.functional.pad(krt.arange(n).float(), (1, 2)),
    lambda n: krt.arange(n).unfold(0, 2, 2).sum(), lambda n: krt.tensor(drawn(40))[krt.arange(n)],
    lambda n: krt.arange(0.0, n, 1.0).flip(0), lambda n: krt.arange(n * 9999)[-2:],
    lambda n: krt.cat([krt.arange(n), krt.arange(n + 1)]),
])  # fmt: skip
def test_lengths_of_arange(compute):
    found = [[compute(n).tolist() for n in (8, 5, 3, 40, 5, 9, 30)] for _ in range(2)]
    plans.interprets = False
    expected = [compute(n).tolist() for n in (8, 5, 3, 40, 5, 9, 30)]
    for each in found:
        for got, want in zip(each, expected, strict=True):
            np.testing.assert_allclose(got, want, 1e-5)


def test_functions_of_constants_have_the_bits_of_compiled_code():
    def values():
        x = krt.ones(3)
        sums = (krt.full((1,), 1, dtype="int32").float().tan(), (x + 0.7 * x).tanh())
        return [t.tolist() for t in (x.atan(), krt.xlogy(krt.tensor(drawn(4)), 1.5), *sums)]

    found = values()
    plans.interprets = False
    assert found == values()


def test_a_step_of_training_compiles_no_graph():
    layer = nn.Linear(5, 2)
    opt = nn.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    x = krt.tensor(drawn(16, 5))
    before = plans.misses
    for _ in range(3):
        opt.zero_grad()
        layer(x).square().mean().backward()
        opt.step()
        layer.weight.numpy()
    assert plans.misses == before


def test_what_is_written_is_computed_from_what_was_there():
    data = drawn(6)
    x, expected = krt.tensor(data), data.copy()
    x[1:] = x[:-1]
    expected[1:] = data[:-1]
    np.testing.assert_array_equal(x.numpy(), expected)
    a, b = krt.tensor([1.0, 2.0]).realize(), krt.tensor([3.0, 4.0]).realize()
    first, second = b * 1, a + 0
    a.assign(first)
    b.assign(second)
    assert (a.tolist(), b.tolist()) == ([3, 4], [1, 2])
    x[::2] += x.flip(0)[::2]
    expected[::2] += expected[::-1][::2].copy()
    np.testing.assert_array_equal(x.numpy(), expected)


def test_memory_of_numpy_is_read_when_values_are():
    buffer = np.zeros(3, np.float32)
    found = []
    for n in range(4):
        buffer[:] = n
        found.append((krt.from_numpy(buffer) + 1).tolist())
    assert found == [[1] * 3, [2] * 3, [3] * 3, [4] * 3]


def test_an_index_out_of_range_is_told_by_compiled_code():
    x, i = krt.tensor(drawn(4)), krt.tensor([1, 4])
    for _ in range(3):
        with pytest.raises(krt.IndexBoundsError, match=r"index 4 is out of range .* of size 4"):
            (x[i] * 2).numpy()
    y = krt.zeros(4).realize()
    y[i] = 1.0
    with pytest.raises(krt.IndexBoundsError):
        y.numpy()
    assert y.tolist() == [0] * 4
    assert (x[krt.tensor([1, 3])] * 2).tolist() == (x.numpy()[[1, 3]] * 2).tolist()


@pytest.mark.usefixtures("early")
def test_what_the_interpreter_gives_up_shares_plans():
    x, i = krt.tensor(drawn(4)), krt.tensor([9, 2])
    before = plans.misses
    for n in range(1, 20):
        with pytest.raises(krt.IndexBoundsError):
            (x[i] * (0.5 * n)).tolist()
    assert plans.misses <= before + 4


@pytest.mark.parametrize("compiled", [
    lambda x: x.half() * 2, lambda x: x.bfloat16().float() + 1,
    lambda x: krt.linalg.inv(x @ x.T + krt.eye(4)), lambda x: x.expand(1 << 21, 4, 4) * 2,
    lambda x: krt.scan(lambda c, row: (c + row, c), krt.zeros(4), x)[1],
])  # fmt: skip
def test_graphs_that_only_compiled_code_computes(compiled):
    x = krt.tensor(drawn(4, 4))
    before = plans.misses
    krt.realize(compiled(x))
    assert plans.misses > before


@pytest.mark.parametrize(("shape", "axes"), [
    ((2, 0, 5), (1, 2)), ((2, 5, 0), (1, 2)), ((2, 0, 5), (1,)), ((0, 3), (0,)), ((3, 0), (1,)),
    ((0, 3), (1,)), ((5, 0, 4, 0), (0, 1, 2)),
])  # fmt: skip
def test_sums_of_no_products_are_zero(shape, axes):
    x, y = krt.ones(shape).realize(), krt.ones(shape).realize()
    found = (x * y).sum(axes).numpy()
    np.testing.assert_array_equal(found, np.zeros(shape).sum(axes), strict=False)
    assert not np.signbit(found).any()


def test_without_memory_for_its_values_a_graph_is_compiled():
    budget = interpreter.Budget()
    program = interpreter.Interpretation(
        interpreter.Steps(), [], [], b"", 1 << 62, [], 0, 0, [], 1.0, budget
    )
    assert program.run([], [], [], [], {}) == UNFIT
    assert budget.spent == math.inf


def test_a_program_refuses_lists_that_are_too_short():
    def program(numbers, n_buffers):
        return interpreter.Interpretation(
            interpreter.Steps(), [], [], b"", 64, numbers, n_buffers, 0, [], 1.0,
            interpreter.Budget(),
        )  # fmt: skip

    for numbers, n_buffers in (([], 2), ([(0, 8, 1)], 0), ([(0, 8, 0), (8, 8, 1)], 1)):
        with pytest.raises(PlanBuildError, match="expected 2 buffers"):
            program(numbers, n_buffers).run([krt.ones(1).realize()._uop], [], [], [], {})


def test_sums_of_many_float32_lose_no_digits():
    data = np.full((1 << 17, 3), 0.1, np.float32)
    found = krt.tensor(data).sum(0).numpy()
    np.testing.assert_allclose(found, data.astype(np.float64).sum(0), 1e-6)


def test_large_values_leave_their_memory_to_later_ones():
    def memory_of(n):
        y = krt.ones(1 << 20).realize()
        for k in range(n):
            y = y * (1 + 1e-3 * k)
        writer = interpret._Writer([y._uop], [], *structural_key([y._uop], False, True)[1:])
        return writer._place_slots()

    assert memory_of(20) <= memory_of(3) + (1 << 12)


def test_an_interrupt_between_any_two_lines_leaves_all_right():
    w = krt.zeros(3).realize()
    one = krt.ones(3).realize()

    def work():
        w.assign(w + one.exp().log())
        (w * 2).sum().item()

    work()
    for step in range(0, count_steps(work), 3):
        before = w.numpy()
        interrupted_at(step, work)
        after = w.numpy()
        assert np.allclose(after, before, atol=1e-5) or np.allclose(after, before + 1, atol=1e-4)
        assert not state.pending


def test_threads_interpret_the_same_graph():
    data = [drawn(40) + k for k in range(4)]
    wrong = []

    def work(k):
        x = krt.tensor(data[k])
        for n in range(60):
            found = ((x * (n + 1)).tanh() - x).numpy()
            if not np.allclose(found, np.tanh(data[k] * (n + 1)) - data[k], atol=1e-5):
                wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def run_random_programs(seed):
    """Views that are written and sizes that vary, beside torch."""
    pytest.importorskip("torch")
    from support import size_programs, view_programs

    rng = np.random.default_rng([11, seed])
    for programs in (view_programs, size_programs):
        with contextlib.suppress(programs.Refused):
            programs.check(programs.generate(rng))


@pytest.mark.cases(6)
@pytest.mark.parametrize("seed", range(200))
def test_random_programs(seed):
    run_random_programs(seed)


@pytest.mark.cases(6)
@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("seed", range(200))
def test_random_programs_that_are_compiled_amid(seed):
    run_random_programs(seed)
