"""autotune: what it takes, what it leaves as it is, and that results keep their bits."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import tune
from kernelrt.device.registry import opened
from kernelrt.errors import (
    DomainError,
    DTypeError,
    IndexBoundsError,
    JitError,
    PlanBuildError,
    PlanReleasedError,
)
from kernelrt.ir import Variable
from kernelrt.runtime import ExecutionPlanBuilder, KernelProfile

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 96)).astype(np.float32)
W = RNG.standard_normal((96, 70)).astype(np.float32)


class Machine:
    """A clock, and runs of a plan that take as long as they are said to."""

    def __init__(self, seconds, run=True):
        self.seconds = seconds
        self.run = run
        self.now = 0.0
        self.ran = 0
        self.met = set()

    def clock(self):
        return self.now

    def __call__(self, plan):
        self.ran += 1
        if self.run:
            plan.execute()
        out, at = [], 0.0
        for op in plan.prepared_kernels:
            self.met.add(op.kernel)
            elapsed = self.seconds(op.kernel)
            out.append(KernelProfile(
                op.kernel, "CPU", 1, elapsed, at, 1, 1, 1, op.id, origins=op.origins,
            ))
            at += elapsed
        self.now += at
        return out


def tuned(plan, machine, budget=1e9, reordering=False, variants_each=3):
    """What a search on a machine of our own comes to; nothing is kept."""
    tuning = tune._Tuning(
        [tune._Target(plan)], budget, reordering, False, None,
        variants=variants_each, clock=machine.clock, measure=machine,
    )  # fmt: skip
    return tuning.run()


def product_plan():
    plan = krt.prepare(krt.tensor(X) @ krt.tensor(W))
    plan.execute()
    return plan


def variants(kernel):
    return list(opened("CPU").renderer.variants(kernel.ast))


@pytest.mark.cases(1 / 4)
def test_the_fastest_is_taken_and_results_keep_their_bits():
    plan = product_plan()
    expected = plan.output_buffer.copyout()
    own = plan.kernels[0]
    wanted = [v for v in variants(own) if v.keeps_bits][3].text
    machine = Machine(lambda k: 1e-3 if k.variant == wanted else 2e-3)
    report = tuned(plan, machine, variants_each=8)
    assert plan.kernels[0].variant == wanted
    (row,) = report.kernels
    assert (row.before, row.after, row.gain, row.changed) == (2e-3, 1e-3, 2.0, True)
    assert (row.name, row.tiling, row.keeps_bits) == (own.entry_point, wanted, True)
    assert report.gain == 2
    plan.output_buffer.raw()[...] = 0
    plan.execute()
    assert plan.output_buffer.copyout().tobytes() == expected.tobytes()


def test_a_search_goes_on_from_what_it_found():
    plan = krt.prepare(krt.tensor(X).exp())
    plan.execute()
    own = plan.kernels[0]
    renderer = opened("CPU").renderer
    near = variants(own)
    first = near[2].text
    known = {v.text for v in near}
    second = next(v.text for v in renderer.variants(own.ast, first) if v.text not in known)
    seconds = {first: 1.5e-3, second: 1e-3}
    tuned(plan, Machine(lambda k: seconds.get(k.variant, 2e-3)))
    assert plan.kernels[0].variant == second


def test_what_is_no_gain_beyond_noise_is_left():
    plan = product_plan()
    before = plan.kernels
    rng = random.Random(1)  # noqa: S311 - tests draw
    report = tuned(plan, Machine(lambda _: 1e-3 * rng.uniform(0.98, 1.02)))
    assert plan.kernels == before
    assert not report.kernels[0].changed
    assert report.changed == 0


def test_another_order_of_sums_is_tried_only_where_that_is_allowed():
    plan = krt.prepare(krt.tensor(X).sum(1))
    plan.execute()
    own = plan.kernels[0]
    keeps = {v.text: v.keeps_bits for v in variants(own)}
    assert not all(keeps.values())
    first = next(text for text, same in keeps.items() if not same)
    for allowed in (False, True):
        plan = krt.prepare(krt.tensor(X).sum(1))
        machine = Machine(lambda k: 1e-3 if k.variant == first else 2e-3)
        report = tuned(plan, machine, reordering=allowed, variants_each=8)
        assert (first in {k.variant for k in machine.met}) is allowed
        assert (plan.kernels[0].variant == first) is allowed
        assert report.kernels[0].keeps_bits is not allowed
        plan.execute()
        np.testing.assert_allclose(plan.output_buffer.copyout(), X.sum(1), rtol=1e-4, atol=1e-5)


def test_light_kernels_are_left_alone():
    plan = krt.prepare(krt.tensor(X) @ krt.tensor(W), krt.tensor(X).exp())
    plan.execute()
    light = plan.kernels[1]
    machine = Machine(lambda k: 1e-6 if k.ast is light.ast else 1e-3)
    report = tuned(plan, machine)
    assert len(report.kernels) == 1
    assert {k for k in machine.met if k.ast is light.ast} == {light}


def test_what_gains_alone_and_loses_in_the_plan_is_taken_back():
    plan = product_plan()
    own = plan.kernels[0]

    class Odd(Machine):
        def __call__(self, plan):
            profiles = super().__call__(plan)
            later = [] if plan.kernels[0] is own else [5e-3]
            return [
                KernelProfile(p.kernel, "CPU", 1, p.elapsed, sum(later), 1, 1, 1, p.op)
                for p in profiles
            ]

    report = tuned(plan, Odd(lambda k: 2e-3 if k is own else 1e-3))
    assert plan.kernels == (own,)
    assert report.changed == 0


class Model(krt.nn.Module):
    def __init__(self):
        krt.manual_seed(0)
        self.a = krt.nn.Linear(96, 64)
        self.b = krt.nn.Linear(64, 10)

    def forward(self, x):
        return self.b(self.a(x).relu())


def training():
    model = Model()
    optimizer = krt.nn.optim.Adam(model.parameters(), lr=1e-2)

    @krt.jit
    def step(x, y):
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


Y = RNG.integers(0, 10, 60)


def faster(k):
    """Whatever is not as the code generator would write it is faster."""
    return 1e-3 if k.variant == opened("CPU").renderer.render(k.ast).variant else 5e-4


def state_of(model):
    return [p.numpy().tobytes() for p in model.parameters()]


@pytest.mark.exhaustive
def test_training_goes_on_bit_for_bit():
    (model, step), (twin, plain) = training(), training()
    losses = [step(X, Y).item() for _ in range(3)]
    before = state_of(model)
    report = tuned(step.plans[0], Machine(faster))
    assert report.changed >= 2
    assert state_of(model) == before
    losses += [step(X, Y).item() for _ in range(3)]
    assert losses == [plain(X, Y).item() for _ in range(6)]
    assert state_of(model) == state_of(twin)
    assert step.retraces == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_an_error_leaves_everything_as_it_was(error, at):
    model, step = training()
    step(X, Y)
    before, kernels = state_of(model), step.plans[0].kernels

    class Broken(Machine):
        def __call__(self, plan):
            found = super().__call__(plan)
            if self.ran == at:
                raise error
            return found

    with pytest.raises(error):
        tuned(step.plans[0], Broken(faster))
    assert state_of(model) == before
    assert step.plans[0].kernels == kernels
    assert np.isfinite(step(X, Y).item())


def test_no_budget_means_that_nothing_runs():
    model, step = training()
    step(X, Y)
    kernels, before = step.plans[0].kernels, state_of(model)
    machine = Machine(faster)
    report = tuned(step.plans[0], machine, budget=0)
    assert (machine.ran, report.kernels, report.gain) == (0, (), 1.0)
    report = krt.autotune(step, budget_seconds=0)
    assert (report.kernels, report.plans, report.before) == ((), 1, 0)
    assert step.plans[0].kernels == kernels
    assert state_of(model) == before


@pytest.mark.parametrize("budget", [1e-3, 5e-3, 2e-2, 0.1])
def test_a_budget_ends_the_search(budget):
    machine = Machine(lambda _: 1e-3)
    tuned(product_plan(), machine, budget=budget)
    assert machine.now <= budget + 30e-3


@pytest.mark.parametrize("arguments", [True, False])
def test_a_jitted_function_is_tuned_with_and_without_arguments(arguments):
    model, step = training()
    step(X, Y)
    before = state_of(model)
    args = (X, Y) if arguments else ()
    report = krt.autotune(step, *args, budget_seconds=0.3, keep=False)
    assert report.plans == 1
    assert report.before > 0
    assert state_of(model) == before
    twin, plain = training()
    plain(X, Y)
    assert [step(X, Y).item() for _ in range(3)] == [plain(X, Y).item() for _ in range(3)]
    assert state_of(model) == state_of(twin)


@pytest.mark.exhaustive
def test_all_plans_of_a_function_are_tuned():
    @krt.jit
    def double(x):
        return (x * 2).exp()

    expected = [double(X).numpy(), double(W).numpy()]
    report = krt.autotune(double, budget_seconds=1, keep=False)
    assert report.plans == 2
    machine = Machine(faster)
    targets = [tune._Target(plan) for plan in double.plans]
    report = tune._Tuning(
        targets, 1e9, False, False, None, clock=machine.clock, measure=machine
    ).run()
    assert len({row.name for row in report.kernels}) == 2
    for x, values in zip((X, W), expected, strict=True):
        np.testing.assert_array_equal(double(x).numpy(), values)


def test_jitted_methods_are_tuned():
    class Net(Model):
        @krt.jit
        def predict(self, x):
            return self(x).softmax()

    net = Net()
    expected = net.predict(X).numpy()
    assert krt.autotune(net.predict, budget_seconds=0.2, keep=False).plans == 1
    np.testing.assert_array_equal(net.predict(X).numpy(), expected)


@pytest.mark.exhaustive
def test_sizes_that_change_keep_their_bits():
    n = Variable("n", 1, 70)

    def product(x):
        return (x @ krt.tensor(W)).softmax(-1).sum(0)

    jitted = krt.jit(product, dynamic={"x": {0: n}})
    jitted(X[:50])
    plan = jitted.plans[0]
    expected = {size: jitted(X[:size]).numpy().tobytes() for size in (1, 15, 16, 33, 60)}
    jitted(X[:50])
    report = tuned(plan, Machine(faster), variants_each=1)
    assert report.changed
    for size, values in expected.items():
        assert jitted(X[:size]).numpy().tobytes() == values
    assert plan.values == {"n": 60}


@pytest.mark.exhaustive
def test_other_threads_go_on_meanwhile():
    @krt.jit
    def product(x, w):
        return (x @ w).relu()

    expected = product(X, W).numpy().tobytes()
    wrong, stop = [], threading.Event()

    def work():
        while not stop.wait(1e-3):
            if product(X, W).numpy().tobytes() != expected:
                wrong.append(1)
                return

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    tuned(product.plans[0], Machine(faster))
    krt.autotune(product, budget_seconds=0.1, keep=False)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong
    assert product(X, W).numpy().tobytes() == expected


@pytest.mark.exhaustive
def test_two_searches_at_once_on_one_plan():
    plan = product_plan()
    expected = plan.output_buffer.copyout().tobytes()
    threads = [threading.Thread(target=tuned, args=(plan, Machine(faster))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    plan.execute()
    assert plan.output_buffer.copyout().tobytes() == expected


def test_arguments_that_are_wrong_are_told():
    plan = product_plan()
    for target in (None, X, lambda x: x, krt.tensor(X), Model()):
        with pytest.raises(DTypeError, match="target"):
            krt.autotune(target)
    for budget in ("1", None, True):
        with pytest.raises(DTypeError, match="budget_seconds"):
            krt.autotune(plan, budget_seconds=budget)
    for budget in (-1, float("nan")):
        with pytest.raises(DomainError, match="budget_seconds"):
            krt.autotune(plan, budget_seconds=budget)
    for name in ("allow_reordering", "keep", "progress"):
        with pytest.raises(DTypeError, match=name):
            krt.autotune(plan, **{name: 1})
    with pytest.raises(DTypeError, match="args"):
        krt.autotune(plan, X)
    with pytest.raises(JitError, match="no plan"):
        krt.autotune(krt.jit(lambda x: x * 2))
    plan.release_all_buffers()
    with pytest.raises(PlanReleasedError):
        krt.autotune(plan)


def test_it_is_refused_while_a_function_is_traced():
    plan = product_plan()

    @krt.jit
    def wrong(x):
        krt.autotune(plan, budget_seconds=0)
        return x * 2

    with pytest.raises(JitError, match="autotune"):
        wrong(X)


def test_custom_functions_are_not_called():
    calls = []
    builder = ExecutionPlanBuilder()
    buffer = krt.prepare(krt.tensor(X) * 2).output_buffer
    builder.add_custom(lambda _: calls.append(1), [builder.add_buffer(buffer)], [])
    plan = builder.build()
    with pytest.raises(PlanBuildError, match="custom function"):
        krt.autotune(plan)
    assert not calls


def test_indices_that_do_not_fit_are_told_with_the_way_out():
    @krt.jit
    def before(x, i):
        return x[i - 61]

    before(X, np.arange(1, 6))
    with pytest.raises(IndexBoundsError) as caught:
        krt.autotune(before, budget_seconds=1, keep=False)
    assert "pass arguments" in "".join(caught.value.__notes__)
    krt.autotune(before, X, np.arange(1, 6), budget_seconds=0.1, keep=False)


def test_the_report_is_a_table():
    product = krt.jit(lambda x, w: x @ w)
    report = tuned(product.plan(X, W), Machine(faster), variants_each=1)
    lines = str(report).splitlines()
    assert repr(report) == str(report)
    assert lines[0].split() == ["kernel", "before", "after", "gain", "tried", "tiling"]
    assert "test_autotune.py" in lines[1]
    assert lines[-1].startswith("1 plan: ")
    assert "{" in lines[1]


def test_the_progress_bar_is_for_terminals(capsys):
    krt.autotune(product_plan(), budget_seconds=0.05, keep=False)
    assert capsys.readouterr().err == ""
    krt.autotune(product_plan(), budget_seconds=0.05, keep=False, progress=True)
    assert "profiling" in capsys.readouterr().err
