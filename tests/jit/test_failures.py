"""jit: failures say what to do and leave everything as it was."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

F32 = np.float32


def make() -> tuple:
    krt.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    opt = nn.optim.Adam(nn.parameters(model), lr=0.1)
    return model, opt


def snapshot(*objects: object) -> list[bytes]:
    return [t.numpy().tobytes() for o in objects for t in nn.state_dict(o).values()]


def test_reading_a_value_while_tracing_raises() -> None:
    for read in (
        lambda x: x.item(),
        lambda x: x.numpy(),
        float,
        lambda x: 1 if x > 0 else 2,
        lambda x: x.realize(),
        krt.prepare,
    ):
        f = krt.jit(lambda x, read=read: (read(x + 1), x)[1])
        with pytest.raises(krt.JitError):
            f(1.0)
        assert f.plans == ()


def test_an_error_in_the_function_leaves_state_as_it_was() -> None:
    model, opt = make()
    before = snapshot(model, opt)
    fail = [True]

    @krt.jit
    def step(x, y):
        opt.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        opt.step()
        if fail[0]:
            raise RuntimeError("in the middle")
        return loss

    x, y = np.ones((2, 4), F32), np.array([0, 2])
    with pytest.raises(RuntimeError, match="in the middle"):
        step(x, y)
    assert snapshot(model, opt) == before
    assert all(p.grad is None for p in nn.parameters(model))
    assert step.plans == ()
    fail[0] = False
    first = step(x, y).item()
    assert step(x, y).item() < first


def test_gradients_from_before_survive_a_failed_trace() -> None:
    w = krt.tensor([1.0], requires_grad=True)
    (w * 3).sum().backward()

    @krt.jit
    def f():
        w.grad = None
        (w * 5).sum().backward()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        f()
    assert w.grad.item() == 3


def test_an_index_out_of_range_commits_nothing() -> None:
    model, opt = make()

    @krt.jit
    def step(x, y):
        opt.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        opt.step()
        return loss

    x, y = np.ones((2, 4), F32), np.array([0, 2])
    step(x, y)
    before = snapshot(model, opt)
    for bad in ([0, 3], [-1, 0], [2**40, 0]):
        with pytest.raises(krt.IndexBoundsError):
            step(x, np.array(bad))
        assert snapshot(model, opt) == before
    assert np.isfinite(step(x, y).item())
    assert snapshot(model, opt) != before


def test_an_error_on_the_very_first_call_commits_nothing() -> None:
    model, opt = make()
    before = snapshot(model, opt)

    @krt.jit
    def step(x, y):
        opt.zero_grad()
        model(x).cross_entropy(y).backward()
        opt.step()

    with pytest.raises(krt.IndexBoundsError):
        step(np.ones((2, 4), F32), np.array([0, 7]))
    assert snapshot(model, opt) == before


def test_random_state_does_not_advance_when_a_trace_fails() -> None:
    krt.manual_seed(5)
    expected = krt.rand(4).tolist()

    @krt.jit
    def f():
        krt.rand(100)
        raise ValueError("no")

    krt.manual_seed(5)
    with pytest.raises(ValueError, match="no"):
        f()
    assert krt.rand(4).tolist() == expected


def test_assigning_to_an_argument_raises() -> None:
    @krt.jit
    def f(x, target):
        target.assign(x)
        return x

    with pytest.raises(krt.JitError, match=r"target.*assigns to its argument"):
        f(np.ones(2, F32), krt.zeros(2))
    assert f.plans == ()


def test_shape_errors_come_through_with_their_type() -> None:
    model, _ = make()
    f = krt.jit(model)
    with pytest.raises(krt.ShapeError, match=r"Linear\(4, 8\).*\(2, 5\)"):
        f(np.ones((2, 5), F32))


def test_explain_names_what_changed() -> None:
    @krt.jit
    def f(x, y, n=1):
        return x.sum() + y.sum() + n

    x = np.ones(3, F32)
    f(x, x)
    f(x, np.ones(4, F32))
    f(x.astype(np.float64), x)
    f(x, x, 2)
    f(x, x, 3)
    text = f.explain().splitlines()
    assert text[0] == "f: 5 plans"
    assert "y changed its shape from (3,) to (4,)" in text[2]
    assert "x changed its dtype from float32 to float64" in text[3]
    assert "nested or passed differently" in text[4]
    assert "n changed from 2 to 3" in text[5]
    assert f.retraces == 4


def test_many_retraces_warn_once() -> None:
    @krt.jit
    def f(x, i):
        return x * i

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(12):
            f(np.ones(2, F32), i)
    assert len(caught) == 1
    assert caught[0].category is krt.RetraceWarning
    assert issubclass(krt.RetraceWarning, krt.KernelrtWarning)
    assert "i changed from" in str(caught[0].message)
    assert caught[0].filename == __file__


@pytest.mark.exhaustive
def test_old_plans_go_when_there_are_very_many() -> None:
    from kernelrt.jit.function import MOST_PLANS

    f = krt.jit(lambda x, i: x + i)
    x = np.ones(2, F32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(MOST_PLANS + 5):
            assert f(x, i).tolist() == [1 + i] * 2
    assert len(f.plans) == MOST_PLANS
    assert f.retraces == MOST_PLANS + 4
    assert f(x, 0).tolist() == [1, 1]
    assert f(x, MOST_PLANS).tolist() == [1 + MOST_PLANS] * 2


def test_clear_forgets_plans() -> None:
    traced = []

    @krt.jit
    def f(x):
        traced.append(1)
        return x + 1

    f(1.0)
    f.clear()
    assert f.plans == ()
    assert f(1.0).item() == 2
    assert len(traced) == 2


def test_a_traced_tensor_that_escapes_cannot_be_read() -> None:
    @krt.jit
    def f(x):
        raise KeyError(x + 1)

    with pytest.raises(KeyError) as caught:
        f(np.ones(3, F32))
    escaped = caught.value.args[0]
    with pytest.raises(krt.JitError):
        escaped.numpy()
    assert repr(escaped) == f"{escaped}" == "<Tensor, traced, shape=(3,), dtype=float32>"


def test_plan_and_profile() -> None:
    total = krt.zeros(())

    @krt.jit
    def f(x, scale):
        total.assign(total + 1)
        return (x * scale).sum()

    x = np.arange(5, dtype=F32)
    plan = f.plan(x, 2.0)
    assert total.item() == 0
    plan.execute()
    assert plan.output_buffer.numpy().tolist() == [20]
    assert total.item() == 1
    profiles = f.profile(x, 3.0)
    assert total.item() == 2
    assert plan.output_buffer.numpy().tolist() == [30]
    assert len(profiles) == len(plan.prepared_kernels)
    assert all(p.elapsed >= 0 for p in profiles)
    assert f(x, 1.0).item() == 10
    assert f.plans == (plan,)
    with pytest.raises(krt.JitError):
        krt.jit(lambda x: f.plan(x, 1.0) and x)(x)


def test_an_index_out_of_range_is_told_with_the_name_of_its_argument():
    weight = krt.zeros((4, 3))

    @krt.jit
    def pick(rows):
        return weight[rows]

    pick(np.array([0, 3]))
    with pytest.raises(krt.IndexBoundsError, match="argument 'rows' of pick"):
        pick(np.array([0, 4]))


def test_a_traced_function_may_wait_for_a_thread_that_calls_others() -> None:
    w = krt.tensor([1.0, 2.0])
    known = krt.jit(lambda x: x + w)
    new = krt.jit(lambda x: (x - w, w.assign(w + 1))[0])
    one = np.ones(2, F32)
    known(one)
    with ThreadPoolExecutor(1) as pool:

        @krt.jit
        def outer(x):
            w.assign(w * 10)
            found = [pool.submit(lambda f=f: f(one).numpy()) for f in (known, new, lambda _: w * 1)]
            return w * x, *(krt.tensor(f.result(timeout=60)) for f in found)

        scaled, added, subtracted, read = outer(one)
    assert added.tolist() == [2, 3]
    assert subtracted.tolist() == [0, -1]
    assert read.tolist() == [2, 3]
    assert (scaled.tolist(), w.tolist()) == ([20, 30], [20, 30])


def test_threads_that_call_a_new_function_at_once_get_one_plan() -> None:
    f = krt.jit(lambda x: (x * 2).sum())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: f(np.full(3, i, F32)).item(), range(16)))
    assert found == [6 * i for i in range(16)]
    assert len(f.plans) == 1


def test_containers_that_contain_themselves_are_refused() -> None:
    f = krt.jit(lambda x: x[0] * 2)
    one = np.ones(2, F32)
    shared = [one]
    assert krt.jit(lambda x: x[0][0] + x[1][0])([shared, shared]).tolist() == [2, 2]
    for loop in ([one], {"a": one, 0: one}):
        f([one])
        if isinstance(loop, list):
            loop.append((loop,))
        else:
            loop["b"] = [loop]
        with pytest.raises(krt.JitError, match=r"x\S+: the (list|dict) contains itself"):
            f(loop)
    endless: list = []
    endless.append(endless)
    with pytest.raises(krt.JitError, match=r"result\[0\]: the list contains itself"):
        krt.jit(lambda: endless)()


@pytest.mark.cases(1)
@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: (x,), lambda x: {"k": x}])
def test_containers_are_nested_to_a_limit(wrap):
    deep = np.ones(2, F32)
    for _ in range(4900):
        deep = wrap(deep)
    assert krt.jit(lambda _: krt.ones(1))(deep).tolist() == [1]
    for _ in range(100_000):
        deep = wrap(deep)
    with pytest.raises(krt.JitError, match="more than 5000 deep"):
        krt.jit(lambda _: krt.ones(1))(deep)
    with pytest.raises(krt.JitError, match="more than 5000 deep"):
        krt.jit(lambda: deep)()


def test_a_plan_that_never_fits_ends_in_an_error(monkeypatch) -> None:
    from kernelrt.jit import function, plan_guards

    w = krt.tensor([1.0], requires_grad=True)
    f = krt.jit(lambda x: (w * x).sum().backward())
    monkeypatch.setattr(function, "MOST_ATTEMPTS", 3)
    monkeypatch.setattr(plan_guards.Watch, "differs", lambda _: "something changes")
    with pytest.raises(krt.JitError, match=r"in each of 3 attempts, the state that .* changed"):
        f(np.ones(1, F32))
    assert w.grad is None
    monkeypatch.undo()
    f(np.ones(1, F32))
    assert w.grad.item() == 1


@pytest.mark.parametrize("rows", [4, 256, 512, 3000])
def test_an_index_error_names_where_the_index_was_read(rows: int) -> None:
    """What says which targets are ignored is none, in whichever kernel it is computed."""
    loss = krt.jit(krt.func.grad_and_value(lambda x, y: x.cross_entropy(y)))
    with pytest.raises(krt.IndexBoundsError, match=rf"argument 'y' .*\({rows} int64\)"):
        loss(np.zeros((rows, 5), np.float32), np.full(rows, 9))


def test_an_index_error_names_no_condition() -> None:
    """Neither what is compared with a number of floats, nor where an index of an index was read."""
    table, weights = np.arange(4), np.ones(3, np.float32)
    pick = krt.jit(lambda x, i, w, t: x[krt.where(w > 0.5, t[i], 0)])
    with pytest.raises(krt.IndexBoundsError, match=r"argument 't' of"):
        pick(np.zeros(3, np.float32), np.array([0, 3, 1]), weights, table)
