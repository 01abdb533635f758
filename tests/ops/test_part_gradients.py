"""Gradients through ``x[index] = value``: into the value, and into what was there before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt import nn
from kernelrt.errors import GradientError

torch = Package("torch")


def an_index(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers, slices, an Ellipsis, or a mask."""
    if rng.random() < 0.2:
        return rng.random(shape[: rng.integers(1, len(shape) + 1)]) < 0.5
    items: list[Any] = []
    for size in shape[: rng.integers(1, len(shape) + 1)]:
        if rng.random() < 0.5 and size:
            items.append(int(rng.integers(-size, size)))
        else:
            start, stop = sorted(rng.integers(-size - 1, size + 2, 2).tolist())
            items.append(slice(start, stop, int(rng.integers(1, 4))))
    if rng.random() < 0.3:
        items.insert(int(rng.integers(0, len(items) + 1)), Ellipsis)
    return tuple(items)


Assignment = tuple[Any, str, float]


def a_program(rng: np.random.Generator) -> tuple[tuple[int, ...], str, list[Assignment]]:
    shape = tuple(int(rng.choice([0, 1, 2, 3, 5])) for _ in range(rng.integers(1, 4)))
    start = str(rng.choice(["zeros", "computed"]))
    kinds = ["number", "weight", "computed", "itself"]
    # The first value has a history: without jit, zeros get storage when they are given numbers.
    return shape, start, [
        (an_index(rng, shape), kinds[rng.integers(0 if i else 1, 4 if i else 3)],
         float(rng.integers(-3, 4)))
        for i in range(rng.integers(1, 5))
    ]  # fmt: skip


def run(
    lib: Any, program: Any, w: Any, v: Any, c: Any, *, stored: bool = False
) -> tuple[Any, Any]:
    """The final tensor and its weighted sum, by kernelrt or torch.

    Where it is `stored`, each value is read.
    """
    shape, start, assignments = program
    x = (
        lib.zeros(shape, dtype=lib.float64) if start == "zeros" else
        lib.empty(shape, dtype=lib.float64) if start == "empty" else w * 2.0
    )  # fmt: skip
    if start == "empty":
        x[...] = 1.5
    for index, kind, number in assignments:
        if stored:
            x.tolist()
        x[lib.tensor(index) if isinstance(index, np.ndarray) else index] = (
            number if kind == "number" else
            v if kind == "weight" else
            (v * v + w.sum()) * number if kind == "computed" else
            x.sum() * number
        )  # fmt: skip
    return x, (x * c).sum() + (v * w.sum()) * 0.5


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, jitted: bool) -> None:
    rng = np.random.default_rng(seed)
    program = a_program(rng)
    shape = program[0]
    w, c, v = rng.normal(size=shape), rng.normal(size=shape), np.array(rng.normal())
    there = [torch.tensor(a, requires_grad=True) for a in (w, v)]
    expected, loss = run(torch, program, *there, torch.tensor(c))
    loss.backward()
    here = [krt.tensor(a, requires_grad=True) for a in (w, v)]

    def step(c: Any) -> Any:
        x, loss = run(krt, program, *here, c)
        loss.backward()
        return x.detach()

    got = krt.jit(step)(c) if jitted else step(krt.tensor(c))
    np.testing.assert_allclose(got.numpy(), expected.detach().numpy(), rtol=1e-12)
    for mine, theirs in zip(here, there, strict=True):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("start", ["zeros", "computed", "empty"])
@pytest.mark.parametrize("seed", range(20))
def test_random_programs_that_write_to_storage(seed: int, start: str) -> None:
    rng = np.random.default_rng(100 + seed)
    shape, _, assignments = a_program(rng)
    w, c, v = rng.normal(size=shape), rng.normal(size=shape), np.array(rng.normal())
    there = [torch.tensor(a, requires_grad=True) for a in (w, v)]
    here = [krt.tensor(a, requires_grad=True) for a in (w, v)]
    program = shape, start, assignments
    expected, loss = run(torch, program, *there, torch.tensor(c))
    got, mine = run(krt, program, *here, krt.tensor(c), stored=True)
    assert got.requires_grad == expected.requires_grad
    loss.backward()
    mine.backward()
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    for ours, theirs in zip(here, there, strict=True):
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-12)


#: Each changes a part of x, of 4 rows, by values made of c, of m, a mask, or of other parts of x.
UPDATES = (
    "x[i] += c[i]", "x[i] *= c[i]", "x[i] = x[i] * c[i] + x[(i + 1) % 4]", "x[i, 1] *= x.sum()",
    "x[i] = x[i - 1] * c[i]", "x[s] += c[s] * 2", "x[s] = c[s].exp()", "x[:, 1] += c[:, 1]",
    "x[:, 0] = (x * c).sum(1)", "x[m] = x[m] * c[m]", "x[x > 0.3] *= 2", "x[chosen] += c[chosen]",
    "x[x.sum(1).argmax()] += c[i] * x[0]", "x += c * x[1:2].sum()", "view += c[1:3]",
    "view *= c[1:3]", "x.diagonal()[1:] += c[1, :2]", "x.mul_(c)", "x.add_(c, alpha=2)",
    "x.copy_(c * x)", "x.masked_fill_(m, 2)", "x[i].tanh_()", "x.index_add_(0, chosen, c[:2])",
    "x.fill_(c[0, 0])", "x.clamp_(-1, 1)", "x.sigmoid_()", "x.zero_()", "view.copy_(c[:2])",
    "y.lerp_(c, 0.25)", "view.mul_(x[:2])",
)  # fmt: skip
STARTS = {
    "stored": "lib.tensor(data)", "lazy": "lib.tensor(data) * 2", "zeros": "lib.zeros(4, 3)",
    "with a history": "w * 2",
}  # fmt: skip


def updated(lib: Any, rng: np.random.Generator, start: str) -> list[Any]:
    """The values of a tensor and of its view after a few updates, and the gradients."""
    data, other = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
    w, c = (lib.tensor(a, requires_grad=True) for a in (data, other))
    names = {"lib": lib, "data": data, "w": w, "c": c, "m": lib.tensor(other > 0)}
    names["chosen"] = lib.tensor(np.array([2, 0]))
    exec(f"x = y = {STARTS[start]}; view = x[1:3]", names)  # noqa: S102 - y: another name
    for update in rng.choice(UPDATES, rng.integers(1, 5)):
        if rng.random() < 0.5:
            names["x"].tolist()  # so it is stored
        names["i"], names["s"] = int(rng.integers(0, 4)), slice(*sorted(rng.choice(5, 2, False)))
        exec(update, names)  # noqa: S102
    x, view, y = (names[n] for n in ("x", "view", "y"))
    ((x * x).sum() + (view * 3).sum() + (y * 1.5 + c + w).sum()).backward()
    return [x.detach(), view.detach(), y.detach(), c.grad, w.grad]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seed", range(60))
def test_random_updates_of_parts(seed: int, start: str) -> None:
    try:
        want = updated(torch, np.random.default_rng(seed), start)
    except RuntimeError:  # PyTorch needs what has been written since
        return
    for mine, theirs in zip(updated(krt, np.random.default_rng(seed), start), want, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["stored", "lazy", "computed"])
@pytest.mark.parametrize("late", ["hook", "retain_grad"])
def test_hooks_that_come_after_a_write_over_what_a_value_reads(late: str, kind: str) -> None:
    """The value was used before: its gradient comes by a copy of what was written over."""
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    b = krt.tensor([3.0, 4.0])
    if kind == "stored":
        s = krt.zeros(2)
        s[0:2] = x * 2
        s[:1] += b[:1] * 1
    else:
        s = b[:1] * x[:1]
    if kind == "computed":
        s.tolist()
    b[0:2] -= krt.sigmoid(s)
    if late == "hook":
        s.register_hook(lambda g: g * 10)
    else:
        s.retain_grad()
    with pytest.raises(GradientError, match="used before a hook"):
        b.sum().backward()


def two() -> tuple[Any, Any]:
    """A stored tensor, and what gradients are wanted for."""
    return krt.full((2, 2), 3.0).realize(), krt.tensor([5.0, 6.0], requires_grad=True)


def test_memory_that_others_see_gets_values_with_histories() -> None:
    shared = np.zeros((2, 2), np.float32)
    y, (_, a) = krt.from_numpy(shared), two()
    y[0] = a
    assert y.tolist() == [[5, 6], [0, 0]]
    np.testing.assert_array_equal(shared, y.detach().numpy())
    read = krt.jit(lambda: y.detach() * 2)
    assert read().tolist() == [[10, 12], [0, 0]]
    y[1] = a * 2
    assert read().tolist() == [[10, 12], [20, 24]]
    (y * y).sum().backward()
    assert a.grad.tolist() == [50, 60]


def test_what_a_stored_tensor_was_has_its_gradient_or_none() -> None:
    """Never that of what was written over it, as in torch."""
    for make in (lambda y: y * y, lambda y: (y * y).realize(), lambda y: (y.exp() * y).realize()):
        y, a = two()
        y[0] = a
        of_old = make(y)
        y[0] = 0.0
        with pytest.raises(GradientError, match="assigned since"):
            of_old.sum().backward()
    for make in (lambda y, a: y[0] * a, lambda y, a: (y[0] * a).realize()):
        y, a = two()
        y[0] = make(y, a)
        assert y.tolist() == [[15, 18], [3, 3]]
        y.sum().backward()
        assert a.grad is not None
        assert a.grad.tolist() == [3, 3]


def test_a_kept_value_that_is_overwritten_is_in_no_gradient() -> None:
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).realize()
    z = (y * y).realize()
    with krt.no_grad():
        y[0] = 100.0
    with pytest.raises(GradientError, match="assigned since"):
        z.sum().backward()


def test_a_mask_of_the_tensor_itself() -> None:
    y, a = two()
    y[1] = 7.0
    y[y > 3] = a
    y[y > 5.5] = 0.0
    assert y.tolist() == [[3, 3], [5, 0]]
    y.sum().backward()
    assert a.grad.tolist() == [1, 0]


def test_hooks_and_gradients_of_a_stored_tensor() -> None:
    y, a = two()
    y[0] = a
    y.retain_grad()
    y[1] = a * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y * y).sum().backward()
    assert y.grad.tolist() == seen[0] == [[10, 12], [20, 24]]
    assert a.grad.tolist() == [50, 60]


def test_room_within_a_traced_function() -> None:
    @krt.jit
    def step(a: Any) -> Any:
        y = krt.empty(2, 3)
        for i in range(3):
            y[:, i] = w * i + a
        (y * y).sum().backward()
        return y

    w = krt.tensor([5.0, 6.0], requires_grad=True)
    for a in (1.0, 2.0):
        w.grad = None
        got = step(np.float32(a))
        assert got.tolist() == [[a, 5 + a, 10 + a], [a, 6 + a, 12 + a]]
        assert w.grad.tolist() == [2 * (5 + a) + 4 * (10 + a), 2 * (6 + a) + 4 * (12 + a)]


PLACES = {
    "parameter": r"^x\[\.\.\.\] = value: .*no_grad\(\)", "frozen": r"^value: .*detach\(\)",
    "data": r"^value: .*detach\(\)", "detached": r"^value: .*detach\(\)",
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_parameters_refuse_a_history(case: str) -> None:
    w, x = krt.ones(3, requires_grad=True), krt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = x.requires_grad_(False) if case == "frozen" else x.data if case == "data" else x
    x = x.detach() if case == "detached" else x
    krt.realize(x)
    before = x.tolist()
    with pytest.raises(GradientError, match=PLACES[case]):
        x[0] = w.sum()
    assert x.tolist() == before


def test_storage_outside_of_a_jitted_function_refuses_it() -> None:
    w, log = krt.ones(3, requires_grad=True), krt.zeros(4)
    with pytest.raises(GradientError, match=r"^value: "):
        krt.jit(lambda: log.__setitem__(0, w.sum()))()
    krt.jit(lambda: log.__setitem__(0, w.sum().detach()))()
    assert log.tolist() == [3, 0, 0, 0]


def test_without_gradients_storage_takes_what_comes() -> None:
    w, x = krt.ones(3, requires_grad=True), krt.tensor([1.0, 2.0])
    with krt.no_grad():
        x[0] = w.sum()
    x[1] = w.sum().detach()
    assert x.tolist() == [3.0, 3.0]
    assert not x.requires_grad
    with krt.no_grad():
        w[1] = 7.0
    assert w.is_leaf
    assert w.tolist() == [1, 7, 1]


@pytest.mark.parametrize(
    ("name", "args"),
    [("zero_", ()), ("fill_", (2.0,)), ("fill_", (krt.tensor(2.0),)), ("copy_", (krt.ones(2),)),
     ("add_", (1,)), ("fill_diagonal_", (1,)), ("clip_", (0, 1)), ("masked_fill_", (True, 1.0)),
     *((f"{name}_", ()) for name in ("bernoulli", "cauchy", "exponential", "log_normal", "normal",
                                     "random", "uniform")),
     ("geometric_", (0.5,))],
)  # fmt: skip
def test_errors_of_leaves_name_the_method_that_was_called(name: str, args: Any) -> None:
    x = krt.ones(2, 2, requires_grad=True)
    with pytest.raises(GradientError, match=f"^{name}: the tensor requires a gradient"):
        getattr(x, name)(*args)
    assert x.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    "change",
    [
        "x[0] = 5", "x[1:] = 5", "x[x > 1] = 5", "x[krt.tensor([0, 2])] = 5", "x[0] = x[1] * 2",
        "x[0] += 2", "x[1:].mul_(2)", "x[1:].fill_(2)", "x.fill_(2)", "x.zero_()",
        "x.copy_(krt.zeros(3))", "x.add_(1)", "x.uniform_()", "x += 1", "x.T[0] = 3",
        "x.reshape(3, 1)[1:] = 2", "x.masked_fill_(x > 1, 0)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["stored", "lazy", "jit"])
def test_leaves_change_without_gradients_alone(change: str, how: str) -> None:
    x = krt.tensor([1.0, 2.0, 3.0]) * 1
    x = (x if how == "lazy" else x.realize()).requires_grad_()
    names = {"krt": krt, "x": x}

    def run() -> None:
        exec(change, names)  # noqa: S102

    write = krt.jit(run) if how == "jit" else run
    with pytest.raises(GradientError, match=r"requires a gradient.*no_grad\(\)"):
        write()
    assert x.tolist() == [1, 2, 3]
    with krt.no_grad():
        write()
    assert names["x"].tolist() != [1, 2, 3]


@pytest.mark.parametrize("change", ["x.fill_(2)", "x.zero_()", "x.copy_(krt.zeros(3))", "x[0] = 2"])
def test_plans_depend_on_whether_a_tensor_requires_gradients(change: str) -> None:
    x = krt.ones(3).realize()
    names = {"krt": krt, "x": x}
    write = krt.jit(lambda: exec(change, names))  # noqa: S102
    write()
    x.requires_grad_()
    with pytest.raises(GradientError, match=r"no_grad\(\)"):
        write()


def test_assign_changes_views_of_leaves() -> None:
    w = krt.ones(4, 3, requires_grad=True)
    w[:2].assign(2.0)
    nn.init.zeros_(w[3:])
    assert w.sum(1).tolist() == [6, 6, 3, 0]
    nn.load_state_dict({"a": w, "b": w[:1]}, {"a": krt.zeros(4, 3), "b": krt.ones(1, 3)})
    assert w.sum(1).tolist() == [3, 0, 0, 0]
