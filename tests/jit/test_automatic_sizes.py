"""Axes become dynamic with their third size, where the function can be traced for all sizes."""

from __future__ import annotations

import contextlib
import numbers
import pickle
import threading
import warnings
from concurrent import futures
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.jit.dynamic import GROWTH, LEAST_BOUND, MOST_OWN, OWN_AFTER
from kernelrt.jit.function import RETRACES_BEFORE_WARNING
from kernelrt.tensor.eager.size_families import MOST_SPECIALIZED

if TYPE_CHECKING:
    from collections.abc import Callable

torch = Package("torch")
F = nn.functional


def data(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).normal(size=shape)


def names(function: Any) -> list[str]:
    """The lines of `explain` of plans for many sizes."""
    return [line for line in function.explain().splitlines() if "dynamic since the third" in line]


def test_the_third_size_makes_an_axis_dynamic() -> None:
    scaled = krt.jit(lambda x: x * 2 / x.shape[0])
    for n in [5, 7, 9, 3, 16, 2, 11]:
        np.testing.assert_allclose(scaled(data(n, 3)).numpy(), data(n, 3) * 2 / n)
    assert len(scaled.plans) == MOST_SPECIALIZED + 1
    assert names(scaled) == [
        ("  3. x: float64 (size_0, 3); dynamic since the third size: axis 0 of x "
        f"(size_0 from 2 to {LEAST_BOUND})")
    ]


def test_a_plan_serves_sizes_within_a_factor() -> None:
    total = krt.jit(lambda x: x.sum(0))
    sizes = [4, 5, *range(2, 300)]
    for n in sizes:
        np.testing.assert_allclose(total(data(n, 2)).numpy(), data(n, 2).sum(0))
    spans = [LEAST_BOUND, LEAST_BOUND * GROWTH, LEAST_BOUND * GROWTH**2, LEAST_BOUND * GROWTH**3]
    assert len(total.plans) == MOST_SPECIALIZED + len(spans)


def test_sizes_that_come_often_have_plans_of_their_own() -> None:
    doubled = krt.jit(lambda x: x * 2)
    sizes = range(5, 8 + MOST_OWN)
    for n in [3, 4, *sizes]:
        doubled(data(n))
    for _ in range(OWN_AFTER + 3):
        for n in sizes:
            np.testing.assert_array_equal(doubled(data(n)).numpy(), data(n) * 2)
    assert len(doubled.plans) == MOST_SPECIALIZED + 1 + MOST_OWN
    text = f"a static plan for these sizes, after {OWN_AFTER} calls"
    assert doubled.explain().count(text) == MOST_OWN
    runs = [replay for replay in doubled._replays if replay.plan is doubled.plans[-1]]
    before = runs[0].calls
    doubled(data(sizes[-1]))
    doubled(data(sizes[MOST_OWN - 1]))
    assert runs[0].calls == before + 1


def test_plans_for_frequent_sizes_give_no_warning() -> None:
    """A cache that grows gets plans for many sizes, and at last some for its frequent sizes."""
    total = krt.jit(lambda x: x.sum(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", krt.RetraceWarning)
        for n in range(2, 600):
            total(data(n))
        for _ in range(OWN_AFTER + 3):
            for n in (5, 50, 200, 300, 500):
                total(data(n))
        assert total.explain().count("a static plan for these sizes") == MOST_OWN
        assert total.retraces > RETRACES_BEFORE_WARNING
    with pytest.warns(krt.RetraceWarning, match=r"reason for the last trace: .* changed"):
        [total(np.ones(3, dtype)) for dtype in ("i1", "i2", "i4", "i8")]


def test_sizes_that_depend_on_each_other() -> None:
    @krt.jit
    def shifted(x: Any, y: Any, z: Any) -> Any:
        return (x[:-1] * y).sum() + z.reshape(-1, 4).sum(1)

    for n in [5, 3, 8, 6, 10, 2]:
        x, y, z = data(n + 1), data(n), data(4 * n)
        want = (x[:-1] * y).sum() + z.reshape(-1, 4).sum(1)
        np.testing.assert_allclose(shifted(x, y, z).numpy(), want)
    assert len(shifted.plans) == MOST_SPECIALIZED + 1
    with pytest.raises(krt.KernelrtError):
        shifted(data(6), data(4), data(16))


def test_a_branch_on_the_size_keeps_each_size_apart() -> None:
    traced = []

    @krt.jit
    def branched(x: Any) -> Any:
        traced.append(x.shape[0])
        return x.sum() if x.shape[0] == 5 else x.sum() + 1

    for n in [4, 5, 6, 5, 7, 8, 4, 9]:
        np.testing.assert_allclose(branched(np.ones(n)).item(), n + (n != 5))
    assert not names(branched)
    assert len(branched.plans) == 6
    assert "not dynamic: size_0 == 5: Python needs True or False" in branched.explain()
    attempts = len(traced) - len(branched.plans)
    assert 0 < attempts <= 3


@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (lambda x: krt.stack([x[i] for i in range(x.shape[0])]).sum(), [3, 4, 5, 6]),
        (lambda x: x.sum() * {3: 1, 4: 2, 5: 3, 6: 4}[x.shape[0]], [3, 4, 5, 6]),
        (lambda x: x.sum() / len(x), [3, 4, 5, 6]),
        (lambda x: x * np.arange(x.shape[0])[:, None], [3, 4, 5, 6]),
        (lambda x: x.sum() + int(x.shape[0]), [3, 4, 5, 6]),
    ],
    ids=["range", "dict", "len", "NumPy", "int"],
)
def test_python_that_needs_the_number_gets_it(
    function: Callable[[Any], Any], sizes: list[int]
) -> None:
    apart, one = krt.jit(function, dynamic=False), krt.jit(function)
    for n in sizes:
        np.testing.assert_array_equal(one(data(n, 2)).numpy(), apart(data(n, 2)).numpy())
    assert len(one.plans) == len(sizes)


def caught(x: Any) -> Any:
    try:
        return x.chunk(3)[0]
    except krt.KernelrtError:
        return x


def suppressed(x: Any) -> Any:
    with contextlib.suppress(ValueError):
        return x.reshape(-1, 3)
    return x.reshape(-1, 1)


def bits(x: Any) -> Any:
    try:
        k = x.shape[0] & 3
    except Exception:  # noqa: BLE001 - as users write it
        k = 100
    return x * k


KEPT: list[Any] = []


def kept(x: Any) -> Any:
    KEPT.append(x.shape)
    return x * 2


TELLING: dict[str, Callable[[Any], Any]] = {
    "text": lambda x: (x.sum(), f"{x.shape[0]}"),
    "text of a shape": lambda x: x * len(f"{x.shape}"),
    "key of a result": lambda x: {f"n{x.shape[0]}": x},
    "key of a dict": lambda x: x * {"6": 2, "9": 11}.get(str(x.shape[0]), 5),
    "class": lambda x: x * 2 if isinstance(x.shape[0], int) else x * 3,
    "kind of number": lambda x: x * 2 if isinstance(x.shape[0], numbers.Integral) else x * 3,
    "NumPy's answer": lambda x: x * 2 if np.isscalar(x.shape[0]) else x * 3,
    "attribute": lambda x: x * getattr(x.shape[0], "numerator", 7),
    "powers of two": lambda x: x.long() * 2 ** x.shape[0],
    "high powers": lambda x: x.long() + x.shape[0] ** 9,
    "caught": caught,
    "bits": bits,
    "suppressed": suppressed,
    "kept": kept,
}


REASONS = {
    **dict.fromkeys(["text", "text of a shape", "key of a result", "key of a dict"],
                    "converts a size to text"),
    **dict.fromkeys(["class", "kind of number", "NumPy's answer"], "asks for the type of a size"),
    "attribute": "asks for the attribute 'numerator' of a size",
    "powers of two": "computes int ** size",
    "high powers": "computes size ** 9",
    **dict.fromkeys(["caught", "bits", "suppressed"],
                    "catches an error that a dynamic size may cause"),
    "kept": "stores a size",
}  # fmt: skip


@pytest.mark.parametrize("name", TELLING)
def test_a_function_that_tells_sizes_from_numbers_gets_numbers(name: str) -> None:
    one, apart = krt.jit(TELLING[name]), krt.jit(TELLING[name], dynamic=False)
    for n in [6, 9, 12, 15, 7 * (name != "suppressed") or 3]:
        x = np.ones((n, 1))
        assert plain(one(x)) == plain(apart(x))
    assert not names(one)
    text = one.explain()
    assert "not dynamic: the code of " in text
    assert f" treats a dynamic size differently from an int (it {REASONS[name]}), so" in text


def plain(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    return [plain(v) for v in found] if isinstance(found, tuple) else (
        found.tolist() if isinstance(found, krt.Tensor) else found
    )  # fmt: skip


def test_a_size_in_an_attribute_is_refused_like_a_number() -> None:
    class Held:
        n = 0

    held = Held()

    def keep(x: Any) -> Any:
        held.n = x.shape[0]
        return x * 2

    function = krt.jit(keep)
    for n in [5, 7, 9, 11]:
        with pytest.raises(krt.JitError, match="changes the number from 0 to"):
            function(data(n, 2))
        assert held.n == 0


def test_threads_that_fail_with_a_third_size_at_once() -> None:
    ready = threading.Barrier(3)

    def summed(x: Any) -> Any:
        if not isinstance(x.dims[0], int):
            ready.wait(60)
        return x.unbind()[-1]

    function = krt.jit(summed)
    for n in [5, 6]:
        function(data(n, 2))
    with futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda n: function(data(n, 2)).numpy(), [7, 8, 9]))
    for n, values in zip([7, 8, 9], found, strict=True):
        np.testing.assert_allclose(values, data(n, 2)[-1])
    assert not names(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 + 1, lambda x: x @ x.T, lambda x: x.T.contiguous(), lambda x: x.softmax(0),
        lambda x: krt.cat([x, x], 1), lambda x: x.half() @ x.half().T, lambda x: x > 0,
        lambda x: x.sum(0), lambda x: F.pad(x, (1, 2)), lambda x: x.to(krt.int8),
    ],
)  # fmt: skip
def test_nothing_is_written_behind_results(function: Callable[[Any], Any]) -> None:
    one = krt.jit(function)
    for n in [64, 7, 5, 3]:
        one(data(n, 37).astype(np.float32))
    [*_, plan] = [p for p in one.plans if p.variables]
    [memory] = plan.output_buffers
    for n in [2, 3, 5, 8, 11, 13, 15, 16]:
        content = memory.numpy().view(np.uint8)
        content[...] = 0xA5
        size = one(data(n, 37).astype(np.float32)).numpy().nbytes
        assert (content[size:] == 0xA5).all()
        plan.execute()
        assert (content[size:] == 0xA5).all()


def compared(x: Any, y: Any) -> Any:
    assert x.shape[0] == y.shape[0]
    assert x.shape == y.shape
    return (x * y).sum() / max(x.shape[0], y.shape[0])


def test_sizes_may_be_compared() -> None:
    function = krt.jit(compared)
    for n in [4, 5, 6, 7, 8]:
        np.testing.assert_allclose(function(data(n), data(n)).item(), (data(n) ** 2).sum() / n)
    assert len(function.plans) == MOST_SPECIALIZED + 1


def test_axes_of_one_and_none_have_plans_of_their_own() -> None:
    squeezed = krt.jit(lambda x: x.squeeze() + 1)
    for n in [1, 0, 3, 1, 4, 5, 0, 6, 1, 2]:
        want = data(n, 3).squeeze() + 1
        found = squeezed(data(n, 3)).numpy()
        assert found.shape == want.shape
        np.testing.assert_allclose(found, want)
    assert len(names(squeezed)) == 1


def test_a_table_bounds_the_sizes_that_share_a_plan() -> None:
    table = data(12, 3)
    placed = krt.jit(lambda x: x + krt.tensor(table)[: x.shape[0]])
    for n in [4, 12, 6, 5, 11, 7]:
        np.testing.assert_allclose(placed(data(n, 3)).numpy(), data(n, 3) + table[:n])
    assert len(placed.plans) == MOST_SPECIALIZED + 1
    assert "size_0 from 4 to 12" in names(placed)[0]


def test_a_window_bounds_the_sizes_that_share_a_plan() -> None:
    smooth = krt.jit(lambda x: x[-5:].sum())
    for n in [8, 6, 9, 7, 8]:
        np.testing.assert_allclose(smooth(data(n)).item(), data(n)[-5:].sum())
    assert len(smooth.plans) == MOST_SPECIALIZED + 1
    np.testing.assert_allclose(smooth(data(3)).item(), data(3).sum())


def test_each_size_has_a_plan_without() -> None:
    doubled = krt.jit(lambda x: x * 2, dynamic=False)
    for n in [3, 4, 5, 6]:
        doubled(data(n))
    assert len(doubled.plans) == 4
    again = pickle.loads(pickle.dumps(krt.jit(np.negative, dynamic=False)))  # noqa: S301
    for n in [3, 4, 5, 6]:
        again(data(n))
    assert len(again.plans) == 4


def test_only_false_and_mappings_are_taken() -> None:
    with pytest.raises(krt.DTypeError, match="dynamic: expected False or a mapping such as"):
        krt.jit(lambda x: x, dynamic=True)  # type: ignore[call-overload]


def test_named_axes_are_the_only_dynamic_ones() -> None:
    doubled = krt.jit(lambda x: x * 2, dynamic={"x": {0: krt.Variable("n", 1, 9)}})
    for n in [3, 4, 5, 6]:
        doubled(data(4, n))
    assert len(doubled.plans) == 4


def test_a_clear_forgets_sizes() -> None:
    doubled = krt.jit(lambda x: x * 2)
    for n in [3, 4, 5]:
        doubled(data(n))
    doubled.clear()
    doubled(data(6))
    assert not names(doubled)


def test_the_plan_of_one_call_is_for_its_sizes() -> None:
    doubled = krt.jit(lambda x: x * 2)
    for n in [3, 4, 5]:
        doubled(data(n))
    plan = doubled.plan(data(6))
    assert not plan.variables
    plan.execute()
    np.testing.assert_allclose(plan.output_buffer.numpy(), data(6) * 2)


@pytest.mark.cases(1 / 4)
def test_a_training_step_for_batches_of_any_size() -> None:
    def trained(dynamic: Any) -> tuple[list[float], Any]:
        krt.manual_seed(3)
        model = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
        ).double()
        opt = krt.optim.Adam(model.parameters(), 1e-2)

        @krt.jit(dynamic=dynamic)
        def step(x: Any, y: Any) -> Any:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss

        losses = [step(data(n, 6), np.arange(n) % 3).item() for n in [8, 5, 6, 12, 8, 9]]
        return losses, step

    shared, step = trained(None)
    apart, _ = trained(False)
    np.testing.assert_allclose(shared, apart, rtol=1e-9)
    assert len(step.plans) == MOST_SPECIALIZED + 1


def test_random_numbers_are_those_of_fixed_sizes() -> None:
    def drawn(x: Any) -> Any:
        return F.dropout(x, 0.5) + krt.randn(*x.shape) + krt.rand_like(x)

    one, apart = krt.jit(drawn), krt.jit(drawn, dynamic=False)
    for n in [4, 5, 6, 7, 3]:
        found = []
        for function in (one, apart):
            krt.manual_seed(n)
            found.append(function(data(n, 3)).numpy())
        np.testing.assert_allclose(*found, rtol=1e-12)
    assert names(one)


def test_a_course_of_steps_is_a_loop_of_calls() -> None:
    def sums() -> Any:
        return krt.jit(lambda x: x.mean())

    rows = data(29)
    course, loop = sums(), sums()
    for batch in (4, 5, 7):
        found = course.over(rows, batch_size=batch).numpy()
        want = [loop(rows[i : i + batch]).item() for i in range(0, 29, batch)]
        np.testing.assert_allclose(found, want, rtol=1e-14)
        np.testing.assert_allclose(
            found, [rows[i : i + batch].mean() for i in range(0, 29, batch)], rtol=1e-12
        )


def test_a_mode_that_changes_has_plans_for_many_sizes_at_once() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)).double()
    run = krt.jit(model)
    for n in [3, 4, 5]:
        run(data(n, 3))
    model.eval()
    for n in [6, 7, 8]:
        np.testing.assert_allclose(run(data(n, 3)).numpy(), model(krt.tensor(data(n, 3))).numpy())
    assert len(run.plans) == MOST_SPECIALIZED + 2


def test_gradients_flow_through_arguments() -> None:
    weight = krt.tensor(data(3, 2)).requires_grad_()

    @krt.jit
    def pulled(x: Any) -> Any:
        (x @ weight).square().sum().backward()
        return weight.grad * 1

    for n in [3, 4, 5, 9, 2, 6]:
        weight.grad = None
        x = data(n, 3)
        np.testing.assert_allclose(pulled(x).numpy(), 2 * x.T @ (x @ weight.numpy()), rtol=1e-9)


def test_warnings_of_a_trace_come_through_as_errors() -> None:
    layer = nn.Linear(3, 2)
    run = krt.jit(layer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in [3, 4]:
            run(data(n, 3).astype(np.float32))
        with pytest.raises(krt.KernelrtWarning, match="the argument is float64"):
            run(data(5, 3))


MODELS: dict[str, tuple[Callable[[Any], Any], Callable[[int], tuple[int, ...]]]] = {
    "attention": (lambda t: t.nn.MultiheadAttention(8, 2, batch_first=True), lambda n: (2, n, 8)),
    "encoder": (
        lambda t: t.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
        lambda n: (2, n, 8),
    ),
    "images": (
        lambda t: t.nn.Sequential(
            t.nn.Conv2d(2, 4, 3, padding=1), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Conv2d(4, 3, 3)
        ),
        lambda n: (n, 2, 8, 8),
    ),
    "strided": (lambda t: t.nn.Conv1d(3, 4, 3, stride=2), lambda n: (2, 3, n)),
    "turned back": (lambda t: t.nn.ConvTranspose1d(3, 4, 3, stride=2), lambda n: (n, 3, 5)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.cases(1)
def test_gradients_of_models_beside_torch(name: str) -> None:
    build, shape = MODELS[name]
    theirs = build(torch).double()
    ours = build(krt).double()
    ours.load_state_dict({k: krt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})

    def first(found: Any) -> Any:
        return found[0] if isinstance(found, tuple) else found

    def run(model: Any, x: Any) -> Any:
        return first(model(x, x, x) if name == "attention" else model(x))

    @krt.jit
    def pulled(x: Any) -> Any:
        x = x.detach().requires_grad_()
        found = run(ours, x)
        found.square().sum().backward()
        return found, x.grad, [p.grad * 1 for p in ours.parameters()]

    for n in [7, 5, 9, 6, 12, 8]:
        x = data(*shape(n))
        there = torch.tensor(x, requires_grad=True)
        value = run(theirs, there)
        theirs.zero_grad()
        value.square().sum().backward()
        found, of_x, of_weights = pulled(x)
        for p in ours.parameters():
            p.grad = None
        np.testing.assert_allclose(found.numpy(), value.detach().numpy(), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(of_x.numpy(), there.grad.numpy(), rtol=1e-7, atol=1e-8)
        for grad, p in zip(of_weights, theirs.parameters(), strict=True):
            np.testing.assert_allclose(grad.numpy(), p.grad.numpy(), rtol=1e-7, atol=1e-7)
    assert names(pulled)
