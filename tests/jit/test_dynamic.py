"""One plan for all sizes of an axis: values, state, errors, and no second trace."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import Variable, nn
from kernelrt.errors import DTypeError, ShapeError, VariableError
from kernelrt.ir import UOp

BATCH = Variable("batch", 1, 64)
SIZES = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64]


def data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 8)).astype(np.float32)
    return x, rng.integers(0, 4, rows)


def network() -> nn.Sequential:
    krt.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 4))


def test_inference_at_every_size():
    model = network()
    x, _ = data(64)
    expected = model(krt.tensor(x)).numpy()

    @krt.jit(dynamic={"x": {0: BATCH}})
    def forward(x):
        return model(x)

    for rows in [*range(1, 65), *reversed(SIZES)]:
        got = forward(x[:rows])
        assert got.shape == (rows, 4)
        np.testing.assert_allclose(got.numpy(), expected[:rows], rtol=1e-5, atol=1e-6)
    assert forward.retraces == 0


#: Folds of what is not 0 behind the end of an array, where vectors reach beyond it.
FOLDS = {
    "exponentials": (lambda x, y: x.exp().sum(), lambda x, y: np.exp(x).sum()),
    "products of functions": (
        lambda x, y: (x.exp() * y.cos()).sum(), lambda x, y: (np.exp(x) * np.cos(y)).sum(),
    ),
    "a function and an array": (
        lambda x, y: (x.exp() * y).sum(), lambda x, y: (np.exp(x) * y).sum(),
    ),
    "products of sums": (
        lambda x, y: ((x + 2) * (y + 3)).sum(), lambda x, y: ((x + 2) * (y + 3)).sum(),
    ),
    "the greatest": (lambda x, y: (-x.exp()).amax(), lambda x, y: (-np.exp(x)).max()),
    "the least": (lambda x, y: y.exp().amin(), lambda x, y: np.exp(y).min()),
    "a product": (lambda x, y: (x * 0.1 + 1.1).prod(), lambda x, y: (x * 0.1 + 1.1).prod()),
    "a count": (lambda x, y: (x < 5).sum(), lambda x, y: len(x)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fold", FOLDS)
def test_folds_end_with_the_last_element(fold, dtype):
    ours, theirs = FOLDS[fold]
    run = krt.jit(ours, dynamic={"x": {0: BATCH}, "y": {0: BATCH}})
    rng = np.random.default_rng(0)
    for size in SIZES:
        x, y = rng.standard_normal((2, size)).astype(dtype)
        np.testing.assert_allclose(run(x, y).numpy(), theirs(x, y), rtol=1e-4, atol=1e-5)
    assert run.retraces == 0


@pytest.mark.cases(1)
@pytest.mark.parametrize("rows", SIZES)
def test_a_training_step_matches_one_compiled_for_its_size(rows):
    dynamic = {"x": {0: BATCH}, "y": {0: BATCH}}
    outcomes = []
    for axes in (None, dynamic):
        model = network()
        optimizer = nn.optim.Adam(nn.parameters(model), lr=1e-2)

        def step(x, y, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        jitted = krt.jit(step, dynamic=axes and {**axes})
        losses = [jitted(*data(n, n)).item() for n in (64, rows, 5, rows)]
        outcomes.append((losses, [p.numpy() for p in nn.parameters(model)]))
    (losses, parameters), (other_losses, other_parameters) = outcomes
    np.testing.assert_allclose(other_losses, losses, rtol=1e-4)
    for mine, theirs in zip(other_parameters, parameters, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def test_reductions_and_slices_follow_the_size():
    def moments(x):
        return x.mean(0), x.max(), x[1:].sum(), (x - x.mean(1, keepdim=True)).softmax(0)

    jitted = krt.jit(moments, dynamic={"x": {0: Variable("rows", 2, 64)}})
    for rows in (2, 5, 64, 17):
        x, _ = data(rows)
        mean, top, tail, soft = (t.numpy() for t in jitted(x))
        wide = x.astype(np.float64)
        np.testing.assert_allclose(mean, wide.mean(0), rtol=1e-5, atol=1e-6)
        assert top == x.max()
        np.testing.assert_allclose(tail, wide[1:].sum(), rtol=1e-4, atol=1e-5)
        shifted = wide - wide.mean(1, keepdims=True)
        e = np.exp(shifted - shifted.max(0))
        np.testing.assert_allclose(soft, e / e.sum(0), rtol=1e-4, atol=1e-6)


def test_two_dynamic_axes():
    rows, cols = Variable("rows", 1, 20), Variable("cols", 1, 30)

    def product(a, b):
        return a @ b

    jitted = krt.jit(product, dynamic={"a": {0: rows}, "b": {1: cols}})
    rng = np.random.default_rng(0)
    for m, n in [(1, 1), (20, 30), (7, 13), (16, 16), (3, 29)]:
        a = rng.standard_normal((m, 12)).astype(np.float32)
        b = rng.standard_normal((12, n)).astype(np.float32)
        np.testing.assert_allclose(jitted(a, b).numpy(), a @ b, rtol=1e-4, atol=1e-5)
    assert jitted.retraces == 0


def test_interleaved_sizes_and_explicit_execution():
    jitted = krt.jit(lambda x: (x * 2).sum(1), dynamic={"x": {0: BATCH}})
    a, b = data(5, 1)[0], data(30, 2)[0]
    for _ in range(3):
        for x in (a, b):
            np.testing.assert_allclose(jitted(x).numpy(), (x * 2).sum(1), rtol=1e-5, atol=1e-5)
    plan = jitted.plan(b)
    plan.execute_with_vars(batch=12)
    np.testing.assert_allclose(jitted(a).numpy(), (a * 2).sum(1), rtol=1e-5, atol=1e-5)


def test_a_size_outside_the_bounds_is_refused_before_anything_runs():
    total = krt.zeros(())

    @krt.jit(dynamic={"x": {0: BATCH}})
    def add(x):
        total.assign(total + x.sum())
        return total

    add(np.ones((3, 8), np.float32))
    with pytest.raises(VariableError, match=r"x: axis 0 has size 65, but .* goes from 1 to 64"):
        add(np.ones((65, 8), np.float32))
    with pytest.raises(VariableError, match="size 0"):
        add(np.ones((0, 8), np.float32))
    assert total.item() == 24


def test_arguments_that_share_a_variable_must_agree():
    jitted = krt.jit(lambda x, y: (x.sum(1) * y).sum(), dynamic={"x": {0: BATCH}, "y": {0: BATCH}})
    with pytest.raises(ShapeError, match="y: axis 0 has size 4, but x gave Variable 'batch'"):
        jitted(np.ones((3, 8), np.float32), np.ones(4, np.float32))


@pytest.mark.parametrize(
    "dynamic", [3, {"x": 0}, {"x": {0: 5}}, {"x": {"0": BATCH}}, {1: {0: BATCH}}], ids=str
)
def test_a_malformed_request_names_the_form(dynamic):
    with pytest.raises(DTypeError, match="dynamic"):
        krt.jit(lambda x: x, dynamic=dynamic)


def test_names_and_axes_that_do_not_exist():
    with pytest.raises(DTypeError, match="'z' is not the name of an array"):
        krt.jit(lambda x: x + 1, dynamic={"z": {0: BATCH}})(np.ones((3, 8), np.float32))
    with pytest.raises(ShapeError, match="names axis 2"):
        krt.jit(lambda x: x + 1, dynamic={"x": {2: BATCH}})(np.ones((3, 8), np.float32))
    with pytest.raises(VariableError, match="two Variables are called 'batch'"):
        krt.jit(lambda x: x, dynamic={"x": {0: BATCH, 1: Variable("batch", 1, 9)}})


def test_a_part_of_a_reduction():
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    some = Variable("rows", 0, 9)
    parts = {
        "sum": lambda x: x.sum(0)[1:],
        "mean": lambda x: (x * 2).sum(0)[2:4] + 1,
        "rows": lambda x: (x + x.sum(0))[:, 1:3],
        "cat": lambda x: krt.cat([x, x * 2], 1).sum(0)[4:8],
        "padded": lambda x: x.pad((1, 1)).flip(1).sum(0)[1:3],
    }
    for f in parts.values():
        jitted = krt.jit(f, dynamic={"x": {0: some}})
        for n in (4, 1, 2, 0):
            np.testing.assert_array_equal(jitted(data[:n]).numpy(), f(krt.tensor(data[:n])).numpy())


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
def test_the_greatest_of_what_may_be_nothing_is_refused(name):
    f = krt.jit(lambda x: getattr(x, name)(0), dynamic={"x": {0: Variable("rows", 0, 9)}})
    with pytest.raises(VariableError, match=f"{name}: axis 0 of .rows, 3. may be empty"):
        f(np.ones((2, 3), np.float32))


def test_a_sum_of_nothing_is_zero():
    f = krt.jit(lambda x: x.sum(0), dynamic={"x": {0: Variable("rows", 0, 9)}})
    for n in (0, 2):
        got = f(np.zeros((n, 3), np.float32)).numpy()
        np.testing.assert_array_equal(np.copysign(1, got), np.ones(3))


@pytest.mark.parametrize("name", ["map", "rows", "columns", "product", "gradient"])
def test_large_kernels_of_nothing(name):
    def gradient(x, y):
        w = y.requires_grad_()
        return krt.grad(((x @ w).tanh() ** 2).sum(), w)

    work = {
        "map": lambda x, _: (x * 2).exp(),
        "rows": lambda x, _: (x * x).sum(1),
        "columns": lambda x, _: ((x + 1).sum(0), x.cumsum(1)),
        "product": lambda x, y: (x @ y).relu(),
        "gradient": gradient,
    }[name]
    f = krt.jit(work, dynamic={"x": {0: Variable("rows", 0, 20_000)}})
    data = np.random.default_rng(0).standard_normal((2000, 64), np.float32)
    y = data[:64]
    assert any(isinstance(k.global_size[0], UOp) for k in f.plan(data, y).kernels)
    for n in (2000, 0, 1):
        want = work(krt.tensor(data[:n]), krt.tensor(y))
        got = f(data[:n], y)
        for a, b in zip(got, want, strict=True) if name == "columns" else [(got, want)]:
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-4)


def test_arguments_that_may_be_left_out_have_no_sizes_then():
    b = Variable("b", 1, 16)

    @krt.jit(dynamic={"x": {0: b}, "y": {0: b}, "z": {0: b}})
    def f(x, y=None, *, z=None):
        return x if y is None else x + y if z is None else x + y + z

    for n in (1, 3, 16):
        x = np.full((n, 2), n, np.float32)
        for args, options, times in (
            ((x,), {}, 1), ((x, None), {}, 1), ((x, None), {"z": None}, 1), ((x, x), {}, 2),
            ((x,), {"y": x}, 2), ((x, x), {"z": x}, 3),
        ):  # fmt: skip
            np.testing.assert_array_equal(f(*args, **options).numpy(), times * x)
    assert f.retraces < 6
    with pytest.raises(ShapeError, match="y: axis 0 has size 2, but x gave"):
        f(np.ones((3, 2), np.float32), np.ones((2, 2), np.float32))
    with pytest.raises(DTypeError, match=r"'y' is not the name of an array.*y\[0\]"):
        f(np.ones((3, 2), np.float32), [np.ones((3, 2), np.float32)])


def test_divergence_of_a_batch_divides_by_its_size():
    f = krt.jit(
        lambda x, y: x.log_softmax(1).kl_div(y.softmax(1), "batchmean"),
        dynamic={"x": {0: BATCH}, "y": {0: BATCH}},
    )
    for rows in SIZES:
        x, y = data(rows)[0], data(rows, 1)[0]
        p, q = (np.exp(a.astype(np.float64)) for a in (x, y))
        p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
        wanted = (q * (np.log(q) - np.log(p))).sum() / rows
        assert f(x, y).item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("ask", [len, list, sum, lambda x: x.unbind(), lambda x: x.chunk(2)])
def test_what_needs_a_number_says_what_to_do_without(ask):
    b = Variable("b", 1, 16)
    f = krt.jit(lambda x: x * len(ask(x)), dynamic={"x": {0: b}})
    with pytest.raises(ShapeError, match=r"^\w+: .*axis 0 .*x\.shape\[0\].*dynamic"):
        f(np.ones((6, 4), np.float32))


def test_shapes_in_messages_name_the_variable():
    b = Variable("b", 1, 16)
    f = krt.jit(lambda x: x + krt.ones(6, 4), dynamic={"x": {0: b}})
    with pytest.raises(ShapeError, match=r"\(b, 4\) and \(6, 4\).* has sizes b and 6; "):
        f(np.ones((6, 4), np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_over_two_open_axes_are_kept(dtype):
    """A square of an open size: of each element, the gradient is known from its rank."""
    n = krt.Variable("n", 1, 64)

    def step(a):
        a = a.clone().requires_grad_()
        greatest = a.reshape(-1, 1).maximum(a)
        loss = (greatest * greatest * 0.5 + greatest).sum()
        return greatest, krt.grad(loss, [a])[0]

    run = krt.jit(step, dynamic={"a": {0: n}})
    for size in (1, 2, 3, 17, 64):
        a = np.random.default_rng(size).permutation(size).astype(dtype) / 4
        greatest, slope = run(a)
        np.testing.assert_array_equal(greatest.numpy(), np.maximum(a[:, None], a))
        rank = np.argsort(np.argsort(a))
        np.testing.assert_allclose(slope.numpy(), (2 * rank + 1) * (a + 1.0), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_nothing(axis):
    b = krt.Variable("b", 0, 6)
    tail = krt.jit(lambda x: x[..., 1:-1] * 2, dynamic={"x": {axis: b}})
    for size in (4, 0, 6):
        shape = (size, 3, 600) if axis == 0 else (3, size, 600)
        x = np.random.default_rng(size).standard_normal(shape).astype(np.float32)
        for given in (x, krt.tensor(x)):
            np.testing.assert_array_equal(tail(given).numpy(), x[..., 1:-1] * 2)
