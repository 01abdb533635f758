"""vmap: what it gives is what a loop over the members gives."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import func, nn
from kernelrt.func import vmap

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
Y = RNG.standard_normal((4,))


class Pair(NamedTuple):
    a: krt.Tensor
    b: krt.Tensor


def each(f, *stacks):
    """The results of a loop over the first axes, in NumPy."""
    return np.stack([f(*members) for members in zip(*stacks, strict=True)])


def close(found, expected, rtol=1e-9):
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol, atol=1e-12)


# ---- axes


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out", [0, 1, -1, -2])
def test_axes_of_arguments_and_results(axis, out):
    x = RNG.standard_normal((2, 3, 4))
    found = vmap(lambda t: t.cumsum(1) * 2, axis, out)(krt.tensor(x))
    members = np.moveaxis(x, axis, 0)
    close(found, np.moveaxis(each(lambda t: t.cumsum(1) * 2, members), 0, out))


def test_an_argument_that_all_share():
    found = vmap(krt.dot, (0, None))(krt.tensor(X), krt.tensor(Y))
    close(found, X @ Y)
    found = vmap(lambda x, y, scale: (x * y).sum() * scale, (0, None, None))(
        krt.tensor(X), krt.tensor(Y), 3.0
    )
    close(found, X @ Y * 3)


def test_keyword_arguments_are_shared():
    found = vmap(lambda x, *, y, by: (x * y).sum(by))(krt.tensor(X), y=krt.tensor(Y), by=0)
    close(found, X @ Y)


def test_nested_data():
    def f(tree, flag):
        left, (right, _) = tree["left"], tree["right"]
        pair = Pair(left * right.b, [right.a, left.sum()])
        return {"pair": pair, "both": (left + right.a,)} if flag else None

    a, b = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 3))
    tree = {"left": krt.tensor(X), "right": (Pair(krt.tensor(a), krt.tensor(b)), krt.tensor(Y))}
    axes = {"left": 0, "right": (Pair(0, 1), None)}
    found = vmap(f, (axes, None))(tree, True)
    assert isinstance(found["pair"], Pair)
    close(found["pair"].a, X * b.T)
    close(found["pair"].b[0], a)
    close(found["pair"].b[1], X.sum(1))
    close(found["both"][0], X + a)
    moved = vmap(f, (axes, None), {"pair": Pair(1, [0, 0]), "both": -1})(tree, True)
    close(moved["pair"].a, (X * b.T).T)
    close(moved["both"][0], (X + a).T)


def test_results_that_do_not_depend_on_members():
    y = krt.tensor(Y)
    found, same = vmap(lambda x: (x * 2, y + 1), out_axes=(0, None))(krt.tensor(X))
    close(found, X * 2)
    close(same, Y + 1)
    close(vmap(lambda _: y + 1)(krt.tensor(X)), np.tile(Y + 1, (3, 1)))
    assert vmap(lambda x: (x, None))(krt.tensor(X))[1] is None


def test_how_many_members_can_be_said():
    found = vmap(lambda: krt.rand(4), axis_size=5)()
    assert found.shape == (5, 4)
    assert len(np.unique(found.numpy())) == 20
    close(vmap(lambda x: x + 1, axis_size=3)(krt.tensor(X)), X + 1)


@pytest.mark.parametrize("shape", [(0, 4), (1, 4), (3, 0), (0, 0)])
def test_degenerate_sizes(shape):
    x = np.ones(shape)
    found = vmap(lambda t: (t.sum(), t * 2, t.unsqueeze(0) @ t.unsqueeze(1)))(krt.tensor(x))
    close(found[0], x.sum(1))
    close(found[1], x * 2)
    close(found[2], (x * x).sum(1)[:, None, None])
    slope = vmap(func.grad(lambda t: (t**3).sum()))(krt.tensor(x))
    close(slope, 3 * x**2)


def test_torchs_names_of_axes():
    torch = pytest.importorskip("torch")
    f = lambda k, x: k.outer(x, x)  # noqa: E731
    ours = krt.vmap(lambda x: f(krt, x), in_dims=1, out_dims=2)(krt.tensor(X))
    theirs = torch.func.vmap(lambda x: f(torch, x), in_dims=1, out_dims=2)(torch.tensor(X))
    close(ours, theirs.numpy())
    with pytest.raises(krt.DTypeError, match="in_dims is an alias of in_axes"):
        vmap(krt.dot, in_axes=1, in_dims=1)


def test_chunks_give_the_same():
    f = lambda x: (x.softmax(0), krt.rand(2), krt.zeros(()))  # noqa: E731
    x = RNG.standard_normal((7, 5))
    for size in (1, 2, 3, 7, 10):
        found, drawn, same = vmap(f, chunk_size=size)(krt.tensor(x))
        close(found, each(lambda t: np.exp(t) / np.exp(t).sum(), x))
        assert len(np.unique(drawn.numpy())) == 14
        close(same, np.zeros(7))
    state = krt.zeros(7).realize()

    def counted(s, x):
        s.add_(x.sum())
        return s * 2

    close(vmap(counted, chunk_size=2)(state, krt.tensor(x).float()), x.sum(1) * 2, rtol=1e-5)
    close(state, x.sum(1), rtol=1e-5)


# ---- errors


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: vmap(3), krt.DTypeError, "f: expected a function, not int"),
        (lambda x: vmap(krt.exp, randomness="some"), krt.DomainError, "randomness: .*'some'"),
        (lambda x: vmap(krt.add)(x, 2.0), krt.DTypeError, "argument 1: .*float.*the axis None"),
        (lambda x: vmap(krt.add)(x, x.T), krt.ShapeError,
         r"argument 1 of shape \(4, 3\) along its axis 0 has size 4, but argument 0"),
        (vmap(krt.exp, 2), krt.ShapeError, r"argument 0 has no axis 2.*\(3, 4\)"),
        (vmap(krt.exp, -3), krt.ShapeError, "has no axis -3"),
        (lambda x: vmap(krt.exp)(x[0, 0]), krt.ShapeError, r"no axis 0.*\(\)"),
        (vmap(krt.exp, True), krt.ShapeError, "in_axes: expected an int, None"),
        (vmap(krt.exp, (0, 0)), krt.ShapeError, "2 entries for 1 arguments"),
        (lambda x: vmap(krt.exp, ({"a": 0},))({"b": x}), krt.ShapeError, "nesting of argument 0"),
        (vmap(krt.exp, None), krt.ShapeError, "no argument has a batch axis"),
        (vmap(krt.exp, axis_size=4), krt.ShapeError, "axis_size has size 4"),
        (vmap(krt.exp, 0, 2), krt.ShapeError, "out_axes: the result has no axis 2"),
        (vmap(krt.exp, 0, None), krt.ShapeError, "differs between batch elements"),
        (vmap(krt.exp, 0, (0, 0)), krt.ShapeError, "with the nesting of the result"),
        (vmap(lambda t: 2.0), krt.DTypeError, "is a float; expected Tensors"),
        (vmap(lambda t: t.sum().item()), krt.JitError, "item.*reads a value.*vmap"),
        (vmap(lambda t: t if t.sum() > 0 else -t), krt.JitError, "reads a value"),
        (vmap(lambda t: t + krt.rand(4), randomness="error"), krt.JitError,
         "randomness='different'"),
        (lambda x: (vmap(krt.exp, chunk_size=0), x), krt.ShapeError, "chunk_size: .*at least 1"),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(krt.tensor(X))
    close(vmap(krt.exp)(krt.tensor(X)), np.exp(X))  # no trace is left


def test_assignments_to_tensors_from_outside_are_refused_by_name():
    total = krt.zeros(4, dtype=krt.float64)

    def whole(x):
        return total.add_(x)

    def part(x):
        total[0] = x.sum()

    for f in (whole, part):
        with pytest.raises(krt.JitError, match=r"^total of shape \(4,\): .*make the tensor an arg"):
            vmap(f)(krt.tensor(X))
        close(total, np.zeros(4))

    @krt.jit
    def step(x):
        own = krt.zeros(4, dtype=krt.float64)

        def add(t):
            return own.add_(t)

        vmap(add)(x)
        return own

    with pytest.raises(krt.JitError, match=r"^own of shape"):
        step(krt.tensor(X))
    norm = nn.BatchNorm1d(2)
    with pytest.raises(krt.JitError, match=r"^BatchNorm1d.running_mean of shape \(2,\)"):
        vmap(norm)(krt.ones(3, 5, 2))
    norm.eval()
    assert vmap(norm)(krt.ones(3, 5, 2)).shape == (3, 5, 2)


def test_what_all_members_assign_alike_is_assigned():
    calls = krt.zeros(()).realize()

    def f(x):
        calls.add_(1)
        return x * calls

    close(vmap(f)(krt.tensor(X)), X)
    close(vmap(f)(krt.tensor(X)), X * 2)
    assert calls.item() == 2
    close(krt.jit(vmap(f))(krt.tensor(X)), X * 3)
    assert calls.item() == 3


def test_gradients_do_not_leave_one_member():
    w = krt.ones(4, dtype=krt.float64, requires_grad=True)

    def f(x):
        (w * x).sum().backward()
        return x

    with pytest.raises(krt.GradientError, match=r"vmap calls.*func\.grad"):
        vmap(f)(krt.tensor(X))
    assert w.grad is None
    x = krt.tensor(X, requires_grad=True)
    with pytest.raises(krt.GradientError, match="flows past its arguments"):
        vmap(lambda t: krt.grad((t * t).sum(), x))(x)


# ---- putting it together


def test_nested():
    a, b = RNG.standard_normal((3, 4)), RNG.standard_normal((5, 4))
    dots = vmap(vmap(krt.dot, (None, 0)), (0, None))(krt.tensor(a), krt.tensor(b))
    close(dots, a @ b.T)
    x = RNG.standard_normal((2, 3, 4, 5))
    close(vmap(vmap(lambda t: t.softmax(1).sort(0)[0], 1), 2, 1)(krt.tensor(x)),
          np.stack([np.stack([
              np.sort(np.exp(m) / np.exp(m).sum(1, keepdims=True), 0)
              for m in np.moveaxis(x[:, :, k], 1, 0)]) for k in range(4)], 1))  # fmt: skip


def loss(w, x):
    return ((w @ x).tanh() ** 2).sum()


def test_with_gradients_within_around_and_on_both_sides():
    torch = pytest.importorskip("torch")
    tf = torch.func

    def t_loss(w, x):
        return ((w @ x).tanh() ** 2).sum()

    w = RNG.standard_normal((2, 4))
    ours, theirs = (krt.tensor(w), krt.tensor(X)), (torch.tensor(w), torch.tensor(X))
    pairs = [
        (vmap(func.grad(loss), (None, 0)), tf.vmap(tf.grad(t_loss), (None, 0))),
        (func.grad(lambda w, x: vmap(loss, (None, 0))(w, x).sum()),
         tf.grad(lambda w, x: tf.vmap(t_loss, (None, 0))(w, x).sum())),
        (vmap(func.hessian(loss, 1), (None, 0)), tf.vmap(tf.hessian(t_loss, 1), (None, 0))),
        (func.hessian(lambda w, x: vmap(loss, (None, 0))(w, x).exp().sum(), 1),
         tf.hessian(lambda w, x: tf.vmap(t_loss, (None, 0))(w, x).exp().sum(), 1)),
        (func.grad(lambda w, x: vmap(func.grad(loss), (None, 0))(w, x).sin().sum()),
         tf.grad(lambda w, x: tf.vmap(tf.grad(t_loss), (None, 0))(w, x).sin().sum())),
        (func.jacrev(vmap(loss, (None, 0))), tf.jacrev(tf.vmap(t_loss, (None, 0)))),
        (func.jacfwd(vmap(loss, (None, 0))), tf.jacfwd(tf.vmap(t_loss, (None, 0)))),
        (vmap(lambda w, x: func.jvp(loss, (w, x), (w, x))[1], (None, 0)),
         tf.vmap(lambda w, x: tf.jvp(t_loss, (w, x), (w, x))[1], (None, 0))),
    ]  # fmt: skip
    for mine, other in pairs:
        for _ in range(2):
            close(mine(*ours), other(*theirs).numpy(), rtol=1e-8)
        jitted = krt.jit(mine)
        for _ in range(2):
            close(jitted(*ours), other(*theirs).numpy(), rtol=1e-8)
        assert len(jitted.plans) == 1


def test_gradients_of_leaves():
    w = krt.tensor(RNG.standard_normal((2, 4)), requires_grad=True)
    x = krt.tensor(X, requires_grad=True)
    vmap(loss, (None, 0))(w, x).sum().backward()
    for leaf in (w, x):
        found = leaf.grad.numpy()
        leaf.grad = None
        (((x @ w.T).tanh() ** 2).sum()).backward()
        np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-9)
        w.grad = x.grad = None
        vmap(loss, (None, 0))(w, x).sum().backward()
    asked = []
    vmap(lambda t: asked.append(t.requires_grad) or t * 2)(x)
    vmap(lambda t: asked.append(t.requires_grad) or t * 2)(krt.tensor(X))
    assert asked == [True, False]
    with krt.no_grad():
        assert not vmap(lambda t: t * 2)(x).requires_grad


def test_gradients_through_a_lazy_tensor_and_a_closure():
    w = krt.tensor(Y, requires_grad=True)
    lazy = w * 2
    vmap(lambda t: (t * lazy).sum())(krt.tensor(X)).sum().backward()
    close(w.grad, 2 * X.sum(0))


def test_jit_and_jitted_functions():
    inner = krt.jit(lambda x, y: (x * y).sum())
    close(vmap(inner, (0, None))(krt.tensor(X), krt.tensor(Y)), X @ Y)
    jitted = krt.jit(vmap(inner, (0, None)))
    for scale in (1, 2, 3):
        close(jitted(krt.tensor(X * scale), krt.tensor(Y)), X @ Y * scale)
    assert jitted.retraces == 0
    weights = krt.ones(4, dtype=krt.float64).realize()

    @krt.jit
    def train(x):
        slopes = vmap(func.grad(lambda w, t: ((w * t).sum() - 1) ** 2), (None, 0))(weights, x)
        weights.assign(weights - 0.1 * slopes.mean(0))
        return slopes

    expected = np.ones(4)
    for _ in range(3):
        slopes = np.stack([2 * ((expected * t).sum() - 1) * t for t in X])
        close(train(krt.tensor(X)), slopes)
        expected = expected - 0.1 * slopes.mean(0)
    close(weights, expected)


def test_a_dynamic_number_of_members():
    axes = {"t": {0: krt.Variable("members", 1, 64)}}
    jitted = krt.jit(vmap(lambda t: t.softmax(0)), dynamic=axes)
    for n in (3, 1, 17):
        x = RNG.standard_normal((n, 4))
        close(jitted(krt.tensor(x)), np.exp(x) / np.exp(x).sum(1, keepdims=True))
    assert len(jitted.plans) == 1


def test_members_of_a_dynamic_size():
    axes = {"t": {1: krt.Variable("length", 1, 64)}}
    jitted = krt.jit(vmap(lambda t: (t.softmax(0), t.sum())), dynamic=axes)
    for n in (3, 1, 17):
        x = RNG.standard_normal((2, n))
        out, total = jitted(krt.tensor(x))
        close(out, np.exp(x) / np.exp(x).sum(1, keepdims=True))
        close(total, x.sum(1))
    assert len(jitted.plans) == 1


def test_marks_on_what_stands_for_a_member_are_no_assignments():
    x = krt.tensor(X).realize()
    address = x.data_ptr()

    def f(t):
        t.requires_grad_()
        return krt.grad((t**3).sum(), t)

    close(vmap(f)(x), 3 * X**2)
    assert not x.requires_grad
    assert x.data_ptr() == address


def test_loops_of_members():
    def f(w, x):
        def body(c, t):
            noise = krt.rand(4, dtype=krt.float64)
            return (c * w + t).tanh(), (c, noise)

        return krt.scan(body, krt.zeros(4, dtype=krt.float64), x)

    w, x = krt.tensor(Y), krt.tensor(RNG.standard_normal((3, 5, 4)))
    before = krt.get_rng_state()
    for call in (vmap(f, (None, 0)), krt.jit(vmap(f, (None, 0)))):
        krt.set_rng_state(before)
        last, (rows, noise) = call(w, x)
        for k in range(3):
            one, (own, _) = f(w, x[k])
            close(last[k], one.numpy())
            close(rows[k], own.numpy())
        krt.set_rng_state(before)
        turns = np.stack([krt.rand(3, 4, dtype=krt.float64).numpy() for _ in range(5)], 1)
        np.testing.assert_array_equal(noise.numpy(), turns)
    same = vmap(f, (None, 0), randomness="same")(w, x)[1][1].numpy()
    assert (same == same[0]).all()
    assert len(np.unique(same)) == 20
    nested = vmap(vmap(f, (None, 0)), (None, 0))(w, krt.zeros(2, 3, 5, 4).double())[1][1]
    assert len(np.unique(nested.numpy())) == 120

    def inner(xs):
        turn = lambda c, t: (c, vmap(lambda q: q + krt.rand(2))(t))  # noqa: E731
        return krt.scan(turn, krt.zeros(()), xs)[1]

    assert len(np.unique(vmap(inner)(krt.zeros(2, 4, 3)).numpy())) == 48


def test_assignments_to_arguments_in_bodies_of_loops():
    norm = nn.BatchNorm1d(4)
    params, buffers = func.stack_module_state([nn.BatchNorm1d(4) for _ in range(3)])
    x = RNG.standard_normal((3, 5, 6, 4)).astype(np.float32)

    def f(p, b, batches):
        def body(c, x):
            return c, func.functional_call(norm, (p, b), x)

        return krt.scan(body, krt.zeros(()), batches)[1]

    def at_once(x):
        return vmap(f)(params, buffers, x)

    for call in (at_once, krt.jit(at_once)):
        for b in buffers.values():
            b.zero_()
        out = call(krt.tensor(x)).detach().numpy()
        for k in range(3):
            alone = nn.BatchNorm1d(4)
            alone.running_var.zero_()
            for t in range(5):
                expected = alone(krt.tensor(x[k, t])).detach().numpy()
                np.testing.assert_allclose(out[k, t], expected, rtol=1e-4, atol=1e-5)
            close(buffers["running_mean"][k], alone.running_mean.numpy(), rtol=1e-4)
            close(buffers["running_var"][k], alone.running_var.numpy(), rtol=1e-4)
        assert buffers["num_batches_tracked"].tolist() == [5] * 3


def test_jit_sees_whether_a_captured_tensor_requires_a_gradient():
    w = krt.tensor(Y)
    asked = []

    @krt.jit
    def step(x):
        def one(t):
            asked.append((w * t).requires_grad)
            return (w * t).sum()

        return vmap(one)(x)

    step(krt.tensor(X))
    w.requires_grad_()
    step(krt.tensor(X))
    assert asked == [False, True]


# ---- what a function may do inside


def test_random_numbers():
    x = krt.zeros(3, 1000)
    for draw in (
        lambda t: t + krt.rand(1000), krt.randn_like, lambda t: (t + 1).dropout(0.5),
        lambda t: krt.randperm(1000).float(),
        lambda t: krt.distributions.Normal(t, t + 1).sample(),
    ):  # fmt: skip
        krt.manual_seed(1)
        own = vmap(draw)(x).numpy()
        assert all((own[i] != own[j]).any() for i, j in ((0, 1), (1, 2), (0, 2)))
        again = vmap(draw)(x).numpy()
        assert (own != again).any()
        krt.manual_seed(1)
        np.testing.assert_array_equal(krt.jit(vmap(draw))(x).numpy(), own)
        same = vmap(draw, randomness="same")(x).numpy()
        assert (same[0] == same[1]).all()
        assert (same[0] == same[2]).all()
    generator = krt.Generator().manual_seed(3)
    before = krt.get_rng_state()
    first = vmap(lambda t: krt.rand(5, generator=generator))(x).numpy()
    np.testing.assert_array_equal(before.numpy(), krt.get_rng_state().numpy())
    generator.manual_seed(3)
    np.testing.assert_array_equal(first, krt.rand(3, 5, generator=generator).numpy())


def test_random_numbers_of_nested_members():
    x = krt.zeros(2, 3, 1)
    nested = vmap(vmap(lambda t: t + krt.rand(4)))(x).numpy()
    assert len(np.unique(nested)) == 24
    inner = vmap(vmap(lambda t: t + krt.rand(4), randomness="same"))(x).numpy()
    assert (inner[:, 0] == inner[:, 1]).all()
    assert (inner[0] != inner[1]).any()
    outer = vmap(vmap(lambda t: t + krt.rand(4)), randomness="same")(x).numpy()
    assert (outer[0] == outer[1]).all()
    assert (outer[:, 0] != outer[:, 1]).any()


def test_a_random_step_in_a_gradient():
    def f(x):
        noise = krt.rand(4, dtype=krt.float64)
        return (x * noise).sum(), noise

    x = krt.tensor(X)
    slope, noise = vmap(func.grad(f, has_aux=True))(x)
    np.testing.assert_array_equal(slope.numpy(), noise.numpy())


def test_assignments_to_tensors_made_inside():
    def f(x, i):
        made = krt.zeros(6, dtype=krt.float64)
        made[:4] = x
        made[i] = 7.0
        made += 1
        return made.relu_()

    found = vmap(f)(krt.tensor(X), krt.tensor([0, 5, 2]))
    expected = np.zeros((3, 6))
    expected[:, :4] = X
    expected[[0, 1, 2], [0, 5, 2]] = 7
    close(found, np.maximum(expected + 1, 0))


def test_assignments_to_arguments_reach_them():
    def f(state, x):
        state["n"].add_(1)
        state["sum"][0] = x.sum()
        return state["sum"] * 2

    state = {"n": krt.zeros(3, dtype=krt.int64).realize(), "sum": krt.zeros(2, 3).realize()}
    call = vmap(f, ({"n": 0, "sum": 1}, 0), 1)
    for k in range(2):
        close(call(state, krt.tensor(X).float()), [2 * X.sum(1), np.zeros(3)], rtol=1e-5)
        assert state["n"].tolist() == [k + 1] * 3
    close(state["sum"], [X.sum(1), np.zeros(3)], rtol=1e-5)
    a, b = krt.tensor(X).realize(), krt.tensor(X * 2).realize()

    def exchange(a, b):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        return a + 1

    for k in range(3):
        close(vmap(exchange)(a, b), X * (1 + (k % 2 == 0)) + 1)
        close(a, X * (1 + (k % 2 == 0)))
        close(b, X * (1 + (k % 2 == 1)))
    twice = krt.tensor(X)
    vmap(lambda a, b: a.mul_(b))(twice, twice)
    close(twice, X * X)


def test_routines_and_searches():
    a = RNG.standard_normal((3, 4, 4))
    b = RNG.standard_normal((3, 4))
    spd = a @ a.transpose(0, 2, 1) + np.eye(4)
    close(vmap(krt.linalg.solve)(krt.tensor(a), krt.tensor(b)),
          np.linalg.solve(a, b[..., None])[..., 0])  # fmt: skip
    close(vmap(lambda t: krt.linalg.solve(t, krt.tensor(Y)))(krt.tensor(a)),
          each(lambda t: np.linalg.solve(t, Y), a))  # fmt: skip
    close(vmap(func.grad(lambda t: krt.linalg.cholesky(t).sum()))(krt.tensor(spd)).sum(),
          func.grad(lambda t: krt.linalg.cholesky(t).sum())(krt.tensor(spd)).sum().numpy())
    close(vmap(krt.linalg.eigvalsh)(krt.tensor(spd)), np.linalg.eigvalsh(spd))
    long = RNG.standard_normal((3, 200))
    close(vmap(lambda t: t.sort(descending=True)[0])(krt.tensor(long)), -np.sort(-long, 1))
    keys = np.sort(long, 1)
    np.testing.assert_array_equal(
        vmap(krt.searchsorted, (0, None))(krt.tensor(keys), krt.tensor(Y)).numpy(),
        each(lambda k: np.searchsorted(k, Y), keys),
    )


def test_indices_of_each_member():
    x, i = RNG.standard_normal((3, 5, 2)), RNG.integers(-5, 5, (3, 4))
    for f, g in (
        (lambda t, i: t[i], lambda t, i: t[i]),
        (lambda t, i: t.index_select(0, i % 5), lambda t, i: t[i % 5]),
        (lambda t, i: t.gather(0, (i % 5).reshape(2, 2)),
         lambda t, i: np.take_along_axis(t, (i % 5).reshape(2, 2), 0)),
        (lambda t, i: t.index_add(0, i % 5, krt.ones(4, 2, dtype=krt.float64)),
         lambda t, i: t + np.bincount(i % 5, minlength=5)[:, None]),
    ):  # fmt: skip
        close(vmap(f)(krt.tensor(x), krt.tensor(i)), each(g, x, i))
        expected = np.stack([g(x[0], one) for one in i])
        close(vmap(f, (None, 0))(krt.tensor(x[0]), krt.tensor(i)), expected)
    with pytest.raises(krt.IndexBoundsError):
        vmap(lambda t, i: t[i])(krt.tensor(x), krt.tensor([0, 1, 5])).numpy()


def test_modules():
    torch = pytest.importorskip("torch")
    layer, peer = nn.Linear(4, 2, dtype=krt.float64), torch.nn.Linear(4, 2, dtype=torch.float64)
    layer.load_state_dict(peer.state_dict())
    close(vmap(layer)(krt.tensor(X)), peer(torch.tensor(X)).detach().numpy())
    stacked = {"weight": RNG.standard_normal((3, 2, 4)), "bias": RNG.standard_normal((3, 2))}

    def ours(p, x):
        return func.functional_call(layer, p, x).square().sum()

    def theirs(p, x):
        return torch.func.functional_call(peer, p, x).square().sum()

    given = {k: krt.tensor(v) for k, v in stacked.items()}
    expected = torch.func.vmap(torch.func.grad(theirs))(
        {k: torch.tensor(v) for k, v in stacked.items()}, torch.tensor(X)
    )
    found = vmap(func.grad(ours))(given, krt.tensor(X))
    for name, slope in expected.items():
        close(found[name], slope.numpy())
    params, buffers = func.stack_module_state([nn.BatchNorm1d(4) for _ in range(3)])
    assert list(params) == ["weight", "bias"]
    assert buffers["num_batches_tracked"].shape == (3,)
    norm, batch = nn.BatchNorm1d(4), krt.tensor(RNG.standard_normal((3, 6, 4))).float()
    out = vmap(lambda p, b, x: func.functional_call(norm, (p, b), x))(params, buffers, batch)
    for k in range(3):
        alone = nn.BatchNorm1d(4)
        close(out[k], alone(batch[k]).detach().numpy(), rtol=1e-4)
        close(buffers["running_var"][k], alone.running_var.numpy(), rtol=1e-5)
    assert norm.num_batches_tracked.item() == 0


def test_a_tied_parameter_is_one_inside():
    class Tied(nn.Module):
        def __init__(self):
            self.first = nn.Linear(4, 4, bias=False)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    model, w = Tied(), krt.tensor(RNG.standard_normal((3, 4, 4))).float()
    names = {"first.weight": w, "second.weight": w}
    found = vmap(lambda p, x: func.functional_call(model, p, x))(names, krt.tensor(X).float())
    v = w.numpy().astype(np.float64)
    close(found, np.stack([v[k] @ v[k] @ X[k] for k in range(3)]), rtol=1e-4)


def test_hundreds_of_operations_are_not_cut_into_members():
    def f(x):
        for _ in range(400):
            x = x * 1.001 + 0.001
        return x

    close(vmap(f)(krt.tensor(X)), f(X), rtol=1e-8)


def test_contractions_stay_contractions():
    w, x = RNG.standard_normal((5, 8, 6)), RNG.standard_normal((5, 7, 6))

    def mlp(w, x):
        return (x @ w.T).relu().sum(1)

    batched = krt.jit(vmap(mlp))
    by_hand = krt.jit(lambda w, x: krt.bmm(x, w.mT).relu().sum(2))
    pair = krt.tensor(w), krt.tensor(x)
    np.testing.assert_array_equal(batched(*pair).numpy(), by_hand(*pair).numpy())
    found, expected = ([k.ast for k in f.plans[0].kernels] for f in (batched, by_hand))
    assert found == expected


def test_threads_do_not_meet():
    out: dict[int, np.ndarray] = {}

    def work(k: int) -> None:
        x = krt.tensor(X * k)
        out[k] = vmap(lambda t: t.softmax(0) * krt.rand(()) ** 0)(x).numpy()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, found in out.items():
        e = np.exp(X * k)
        np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-9)


def test_tensors_that_leave_by_another_way_have_no_value():
    kept = []
    vmap(lambda x: kept.append(x * 2) or x)(krt.tensor(X))
    with pytest.raises(krt.JitError, match="made while a function was traced"):
        kept[0].numpy()
