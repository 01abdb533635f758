"""Loops and choices of functions, against the same written out, in NumPy and in torch."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import errors, func
from kernelrt.ir import Op, toposort
from kernelrt.runtime.plan_ops import PreparedCopy


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def close(ours, theirs, tol: float = 2e-5) -> None:
    theirs = theirs.detach().numpy() if hasattr(theirs, "detach") else np.asarray(theirs)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=tol, atol=tol)


W, X, B, H = array(3, 3), array(7, 2, 3), array(3), array(2, 3)


def step(h, x, w, b):
    return (h @ w + x * b).tanh()


def eager_and_jit(f):
    return (f, krt.jit(f))


# ---- scan


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_over_arrays_of_a_dynamic_size(reverse):
    """Where a size is known at run time only, each turn is written out."""
    n = krt.Variable("n", 1, 16)

    @krt.jit(dynamic={"x": {1: n}, "h": {0: n}})
    def run(x, h):
        def turn(h, x):
            new = (h * 0.5 + x).sin()
            return new, (new * 2, new + x)

        return krt.scan(turn, h, x, reverse=reverse)

    for size in (3, 16, 1):
        x, h = array(7, size), array(size)
        last, rows = h, {}
        for t in reversed(range(7)) if reverse else range(7):
            last = np.sin(last * 0.5 + x[t])
            rows[t] = last
        found, (doubled, more) = run(x, h)
        close(found, last)
        close(doubled, np.stack([rows[t] * 2 for t in range(7)]))
        close(more, np.stack([rows[t] for t in range(7)]) + x)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_scan_of_a_dynamic_number_of_turns(reverse, checkpoint):
    w = krt.tensor(W, requires_grad=True)

    @krt.jit(dynamic={"x": {0: krt.Variable("n", 0, 40)}})
    def run(h, x):
        def turn(h, x):
            new = (h @ w + x).tanh()
            return new, new * 2

        w.grad = None
        last, rows = krt.scan(turn, h, x, reverse=reverse, checkpoint=checkpoint)
        (rows.sum() + last.square().sum()).backward()
        return last.detach(), rows.detach(), w.grad

    for size in (3, 40, 0, 1, 17):
        x = array(size, *H.shape)
        h, rows, slope = H, {}, np.zeros_like(W)
        order = [*reversed(range(size))] if reverse else [*range(size)]
        before = {}
        for t in order:
            before[t], h = h, np.tanh(h @ W + x[t])
            rows[t] = h
        back = 2 * h
        for t in reversed(order):
            inner = (back + 2) * (1 - rows[t] ** 2)
            slope += before[t].T @ inner
            back = inner @ W.T
        last, doubled, found = run(krt.tensor(H), krt.tensor(x))
        close(last, h)
        close(doubled, np.stack([rows[t] * 2 for t in range(size)]) if size else x)
        close(found, slope, 1e-3)
    both = {0: krt.Variable("n", 0, 40), 1: krt.Variable("m", 1, 9)}
    turns = krt.jit(lambda x: krt.scan(lambda c, x: (c, x), 0.0, x)[1], dynamic={"x": both})
    with pytest.raises(errors.VariableError, match="need fixed shapes, not"):
        turns(array(3, 3))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
def test_scan_gives_what_the_loop_gives(reverse, jitted):
    def run(h, x, w, b):
        def turn(h, x):
            new = step(h, x, w, b)
            return new, (new * 2, {"sum": new.sum()})

        return krt.scan(turn, h, x, reverse=reverse)

    if jitted:
        run = krt.jit(run)
    for _ in range(3):
        last, (doubled, more) = run(*map(krt.tensor, (H, X, W, B)))
    h, rows = H, {}
    for t in reversed(range(7)) if reverse else range(7):
        h = np.tanh(h @ W + X[t] * B)
        rows[t] = h
    close(last, h)
    close(doubled, np.stack([rows[t] * 2 for t in range(7)]))
    close(more["sum"], np.stack([rows[t].sum() for t in range(7)]))


@pytest.mark.cases(8)
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("jitted", [False, True])
def test_gradients_through_scan_are_those_of_the_loop_written_out(checkpoint, reverse, jitted):
    def by_scan(h, x, w, b):
        def turn(h, x):
            new = step(h, x, w, b)
            return new, new * w.sum()

        last, rows = krt.scan(turn, h, x, reverse=reverse, checkpoint=checkpoint)
        return (rows * rows).sum() + last.sum()

    def written_out(h, x, w, b):
        loss = 0
        for t in reversed(range(7)) if reverse else range(7):
            h = step(h, x[t], w, b)
            loss = loss + ((h * w.sum()) ** 2).sum()
        return loss + h.sum()

    arguments = [krt.tensor(a.astype(np.float64)) for a in (H, X, W, B)]
    ours, theirs = (func.grad(loss, argnums=(0, 1, 2, 3)) for loss in (by_scan, written_out))
    found = (krt.jit(ours) if jitted else ours)(*arguments)
    for one, other in zip(found, theirs(*arguments), strict=True):
        close(one, other.numpy(), 1e-12)


@pytest.mark.parametrize("turns", [0, 1, 5, 6])
@pytest.mark.parametrize("unroll", [2, 3, 9, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.cases(1)
def test_turns_in_one_give_what_single_ones_give(turns, unroll, reverse):
    x = krt.tensor(array(turns, 3).astype(np.float64), requires_grad=True)
    w = krt.tensor(array(3).astype(np.float64), requires_grad=True)
    calls = krt.zeros(())

    def body(c, q):
        calls.add_(1)
        new = (c[0] * w + q).tanh() + krt.rand(()) * c[1]
        return (new, c[1] * 0.5), (new * 2, krt.rand(2))

    def run(many):
        krt.manual_seed(0)
        begin = krt.ones(3, dtype=krt.float64), krt.tensor(1.0, dtype=krt.float64)
        (c, _), (y, draws) = krt.scan(body, begin, x, reverse=reverse, unroll=many)
        calls.zero_()
        return c, y, draws

    def slopes(many):
        x.grad = w.grad = None
        c, y, draws = run(many)
        loss = c.sum() + y.square().sum()
        if turns:
            loss.backward()
        grads = [np.zeros(t.shape) if t.grad is None else t.grad.numpy() for t in (x, w)]
        return [c.numpy(), y.numpy(), draws.numpy(), *grads, krt.rand(2).numpy()]

    def second(many):
        def loss(w):
            c, y = krt.scan(
                lambda c, q: ((c * w + q).tanh(), c * c), krt.ones(3, dtype=krt.float64),
                x.detach(), reverse=reverse, unroll=many,
            )  # fmt: skip
            return c.sum() + y.sum()

        return [func.hessian(loss)(w.detach()).numpy()]

    for f in (slopes, second):
        for ours, theirs in zip(f(unroll), f(1), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("how", ["jit", "vmap", "state"])
def test_turns_in_one_in_plans(how):
    state = krt.zeros(3)

    def run(x, many=2):
        def turn(c, q):
            if how == "state":
                state.add_(q)
            return (c + q).sin(), c

        c, rows = krt.scan(turn, krt.zeros(3), x, unroll=many)
        return c, rows

    x = krt.tensor(array(2, 5, 3))
    if how == "vmap":
        ours, theirs = krt.vmap(run)(x), krt.vmap(functools.partial(run, many=1))(x)
    else:
        ours, theirs = krt.jit(run)(x[0]), run(x[0], 1)
    for a, b in zip(ours, theirs, strict=True):
        close(a, b.numpy())
    if how == "state":
        close(state, 2 * x[0].numpy().sum(0))


def test_turns_in_one_are_fewer_turns_of_the_plan():
    def run(x, many):
        return krt.scan(lambda c, q: (c * 0.5 + q, None), 0.0, x, unroll=many)[0]

    turns = []
    for many in (1, 4, True):
        (found,) = {n.arg.program for n in toposort([run(krt.ones(16), many).uop])
                    if n.op is Op.REGION}  # fmt: skip
        turns.append(found.trip_count)
    assert turns == [16, 4, 1]
    # An error names the turn of a body that may fail, so there is one at a time.
    table = krt.tensor([1.0, 2.0, 3.0])
    places = krt.tensor([0, 2, 1, 7, 1])
    with pytest.raises(krt.IndexBoundsError) as found:
        krt.scan(lambda c, i: (c + table[i], None), 0.0, places, unroll=2)[0].item()
    assert found.value.iteration == 3


@pytest.mark.parametrize(("many", "kind", "match"), [
    (0, errors.ShapeError, r"at least 1 or True \(all\), not 0"),
    (-3, errors.ShapeError, r"at least 1 or True \(all\), not -3"),
    (1.5, errors.DTypeError, "expected an int or a bool, not float"),
    (None, errors.DTypeError, "expected an int or a bool, not NoneType"),
    ("2", errors.DTypeError, "expected an int or a bool, not str"),
])  # fmt: skip
def test_a_wrong_number_of_turns_in_one(many, kind, match):
    with pytest.raises(kind, match=match):
        krt.scan(lambda c, x: (c, x), 0.0, krt.ones(3), unroll=many)


def test_second_gradients_through_scan(torch):
    def loss(x, w, lib):
        if lib is torch:
            h, total = torch.zeros(2, 3, dtype=torch.float64), 0
            for t in range(4):
                h = torch.tanh(h @ w + x[t])
                total = total + (h**3).sum()
            return total
        start = krt.zeros(2, 3, dtype=krt.float64)
        _, rows = krt.scan(lambda h, x: ((h @ w + x).tanh(),) * 2, start, x)
        return (rows**3).sum()

    x, w = X[:4].astype(np.float64), W.astype(np.float64)
    ours = func.hessian(lambda w: loss(krt.tensor(x), w, krt))(krt.tensor(w))
    theirs = torch.func.hessian(lambda w: loss(torch.tensor(x), w, torch))(torch.tensor(w))
    close(ours, theirs, 1e-10)
    forward = func.jacfwd(lambda w: loss(krt.tensor(x), w, krt))(krt.tensor(w))
    slope = torch.func.grad(lambda w: loss(torch.tensor(x), w, torch))(torch.tensor(w))
    close(forward, slope, 1e-10)


def test_backward_collects_gradients(torch):
    w, x = krt.tensor(W, requires_grad=True), krt.tensor(X)
    last, _ = krt.scan(lambda h, x: (step(h, x, w, 1.0), None), krt.tensor(H), x)
    last.sum().backward()
    t = torch.tensor(W, requires_grad=True)
    h = torch.tensor(H)
    for k in range(7):
        h = step(h, torch.tensor(X[k]), t, 1.0)
    h.sum().backward()
    close(w.grad, t.grad, 1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint8", "bool"])
def test_types(dtype):
    kind = getattr(krt, dtype if dtype != "bool" else "bool_")
    values = np.array([[1, 0], [0, 1], [1, 1]])
    x = krt.tensor(values).to(kind)
    if dtype == "bool":
        last, rows = krt.scan(lambda c, x: (c ^ x, c & x), krt.zeros(2, dtype=kind), x)
        assert last.tolist() == [False, False]
        assert rows.tolist() == [[False, False], [False, False], [True, True]]
        return
    last, rows = krt.scan(lambda c, x: (c * 2 + x, c), krt.zeros(2, dtype=kind), x)
    assert last.dtype is kind
    assert last.float().tolist() == [5, 3]
    assert rows.float().tolist() == [[0, 0], [1, 0], [2, 1]]


@pytest.mark.parametrize("turns", [0, 1, 2, 33])
def test_lengths(turns):
    for f in eager_and_jit(lambda c: krt.scan(lambda c, _: (c + 1, c), c, length=turns)):
        last, rows = f(krt.tensor([0.0, 10.0]))
        assert last.tolist() == [turns, 10 + turns]
        assert rows.shape == (turns, 2)
        assert rows.tolist() == [[k, 10 + k] for k in range(turns)]


def test_values_without_elements():
    last, rows = krt.scan(
        lambda c, x: ((c[0] + x.sum(), c[1]), x * 2), (krt.tensor(1.0), krt.zeros(0, 3)),
        krt.zeros(4, 0),
    )  # fmt: skip
    assert last[0].item() == 1
    assert last[1].shape == (0, 3)
    assert rows.shape == (4, 0)


def test_what_does_not_change_is_computed_once():
    x = krt.tensor(X)
    w = krt.tensor(W)

    @krt.jit
    def run(w, x):
        return krt.scan(lambda h, x: (h @ (w * 2).exp() + x, None), krt.zeros(2, 3), x)[0]

    h = np.zeros((2, 3))
    for t in range(7):
        h = h @ np.exp(W.astype(np.float64) * 2) + X[t]
    np.testing.assert_allclose(run(w, x).numpy(), h, rtol=1e-4)


def test_carried_state_is_left_alone_and_passed_through():
    last, _ = krt.scan(lambda c, x: ({"a": c["b"], "b": c["a"], "n": c["n"]}, None),
                       {"a": krt.tensor(1.0), "b": krt.tensor(2.0), "n": krt.tensor([7])},
                       length=3)  # fmt: skip
    assert (last["a"].item(), last["b"].item(), last["n"].item()) == (2.0, 1.0, 7)


def test_scans_nest(torch):
    def outer(c, x):
        inner, _ = krt.scan(lambda a, y: (a * y + c, None), c, x)
        return inner * 0.5, inner

    x = array(3, 4)
    w = krt.tensor(1.0, requires_grad=True)
    last, rows = krt.scan(outer, w, krt.tensor(x))
    grad = krt.grad(last + rows.sum(), [w])[0]
    t = torch.tensor(1.0, requires_grad=True)
    c, total = t, 0
    for row in x:
        a = c
        for y in row:
            a = a * y + c
        total = total + a
        c = a * 0.5
    (total + c).backward()
    close(last, c)
    close(grad, t.grad, 1e-4)


# ---- state


def test_random_numbers_go_on():
    for jitted in (False, True):

        def draw():
            return krt.scan(lambda c, _: (c, krt.rand(3)), krt.tensor(0.0), length=4)[1]

        f = krt.jit(draw) if jitted else draw
        krt.manual_seed(5)
        found = np.concatenate([f().numpy(), f().numpy()])
        krt.manual_seed(5)
        assert (found == np.stack([krt.rand(3).numpy() for _ in range(8)])).all()


def test_draws_behind_a_loop_that_is_not_computed_yet():
    def loop():
        return krt.scan(lambda c, _: (c + krt.rand(()), None), krt.tensor(0.0), length=2)[0]

    krt.manual_seed(3)
    want = krt.rand(4).numpy()
    krt.manual_seed(3)
    y = loop()
    rest = krt.rand(2).numpy()
    assert (rest == want[2:]).all()
    assert y.item() == pytest.approx(want[0] + want[1])
    y = loop()
    krt.manual_seed(3)
    z = loop()
    assert krt.get_rng_state().tolist()[8] == 2
    assert z.item() == pytest.approx(want[0] + want[1])
    assert y.item() != z.item()


@pytest.mark.parametrize("jitted", [False, True])
def test_training_steps_as_turns(jitted):
    def make():
        krt.manual_seed(1)
        model = krt.nn.Sequential(krt.nn.Linear(3, 8), krt.nn.Tanh(), krt.nn.Linear(8, 1))
        return model, krt.optim.Adam(model.parameters(), lr=0.01)

    y = krt.tensor(X.sum(-1, keepdims=True))
    x = krt.tensor(X)
    model, opt = make()

    def train(x, y):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    def epoch(x, y):
        return krt.scan(lambda c, xy: (c, train(*xy)), krt.tensor(0.0), (x, y))[1]

    f = krt.jit(epoch) if jitted else epoch
    losses = np.concatenate([f(x, y).numpy() for _ in range(3)])
    weights = [p.numpy() for p in model.parameters()]
    model, opt = make()
    theirs = [train(x[k], y[k]).item() for _ in range(3) for k in range(7)]
    np.testing.assert_allclose(losses, theirs, rtol=1e-5)
    for ours, p in zip(weights, model.parameters(), strict=True):
        np.testing.assert_allclose(ours, p.numpy(), rtol=1e-5, atol=1e-7)


def test_rows_written_to_a_buffer_in_place():
    buffer = krt.zeros(50, 3)
    places = RNG.integers(-50, 50, 40)

    @krt.jit
    def run(places, values):
        def turn(c, each):
            place, value = each
            before = buffer.sum()
            buffer[place] = value
            return c + buffer[place, 0], (before, buffer.sum())

        return krt.scan(turn, krt.tensor(0.0), (places, values))

    values = array(40, 3)
    total, (before, after) = run(krt.tensor(places), krt.tensor(values))
    want, sums = np.zeros((50, 3), np.float32), []
    for place, value in zip(places, values, strict=True):
        sums.append(want.sum())
        want[place] = value
        sums.append(want.sum())
    assert (buffer.numpy() == want).all()
    found = np.stack([before.numpy(), after.numpy()], 1).ravel()
    np.testing.assert_allclose(found, sums, atol=1e-4)
    np.testing.assert_allclose(total.item(), values[:, 0].sum(), atol=1e-4)
    (body,) = run.plan(krt.tensor(places), krt.tensor(values)).bodies
    copied = [op for op in body.prepared_ops if isinstance(op, PreparedCopy)]
    assert sum(op.nbytes for op in copied) < 50 * 3 * 4
    with pytest.raises(errors.IndexBoundsError, match="iteration 1"):
        run(krt.tensor([0, 99]), krt.tensor(values[:2]))
    assert (buffer.numpy() == want).all()


def test_rows_exchanged_in_a_buffer():
    d = krt.tensor(np.arange(8.0).reshape(4, 2))

    def turn(c, k):
        row = d[k].clone()
        d[k] = d[3 - k]
        d[3 - k] = row
        return c, row

    krt.scan(turn, krt.tensor(0), krt.tensor([0, 1, 2]))
    want = np.arange(8.0).reshape(4, 2)
    for k in (0, 1, 2):
        want[[k, 3 - k]] = want[[3 - k, k]]
    assert (d.numpy() == want).all()


def test_a_tensor_that_a_body_makes_is_made_in_each_turn():
    """It is no state, though it is changed in place; and no call of a jitted function finds it."""

    def turn(carry, _):
        made = krt.tensor([1.0, 2.0])
        made.add_(carry)
        made[0] *= 2
        return carry + 1, made * 1

    def step(x):
        made = krt.tensor(np.ones(2, np.float32))
        made -= x
        return made, krt.scan(turn, x, krt.arange(3))[1]

    for call in (step, krt.jit(step)):
        for k in range(3):
            made, rows = call(krt.tensor(float(k)))
            assert made.tolist() == [1 - k] * 2
            assert rows.tolist() == [[2 * (1 + k + i), 2 + k + i] for i in range(3)]


def test_a_tensor_of_data_that_outlives_its_trace_keeps_the_data():
    """As a table behind functools.cache does, which the first call of a traced function makes."""

    @functools.cache
    def table(n):
        return krt.tensor(np.arange(n, dtype=np.float32))

    @functools.cache
    def changed():
        made = krt.tensor([1.0, 2.0])
        made += 1
        return made

    def added(x):
        def turn(carry, _):
            return carry + table(2), carry * table(3)[1:]

        return x + table(2), krt.scan(turn, x, krt.arange(2))

    def scaled(x):
        return x * table(2) * table(3)[1:]

    add, scale = krt.jit(added), krt.jit(scaled)
    x = krt.tensor([1.0, 2.0])
    for change in (0, 10):
        table(2).add_(change)
        for _ in range(2):
            first, (carry, rows) = add(x)
            assert first.tolist() == [1 + change, 3 + change]
            assert carry.tolist() == [1 + 2 * change, 4 + 2 * change]
            assert rows.tolist() == [[1, 4], [1 + change, 6 + 2 * change]]
            assert scale(x).tolist() == [change, 4 * (1 + change)]
    assert table(2).is_realized
    assert table(3).tolist() == [0, 1, 2]

    assert krt.jit(lambda: changed() * 1)().tolist() == [2, 3]
    with pytest.raises(krt.JitError, match="no value outside"):
        changed().tolist()


def test_state_and_rows_of_a_loop_have_one_value():
    """Two commits have the same source: the state, and a result of the turn."""
    table = krt.tensor([[1.0, 2.0, 3.0, 4.0]] * 2)

    def turn(carry, _):
        row = table[krt.tensor(0)] + 0.0
        row[krt.tensor([0, 2])] = 1
        table[krt.tensor(0)] = row
        return carry, table.flatten() * 1

    _, rows = krt.scan(turn, krt.zeros(()), krt.arange(2))
    want = [1, 2, 1, 4, 1, 2, 3, 4]
    assert rows.tolist() == [want] * 2
    assert table.flatten().tolist() == want


def test_running_statistics_are_carried(torch):
    norm = krt.nn.BatchNorm1d(3)
    other = torch.nn.BatchNorm1d(3)
    x = array(5, 8, 3)
    _, rows = krt.scan(lambda c, x: (c, norm(x)), krt.tensor(0.0), krt.tensor(x))
    theirs = torch.stack([other(torch.tensor(k)) for k in x])
    close(rows, theirs)
    close(norm.running_mean, other.running_mean)
    close(norm.running_var, other.running_var)
    assert norm.num_batches_tracked.item() == 5


def test_gradients_left_behind_are_refused():
    w = krt.tensor(W, requires_grad=True)

    def turn(c, x):
        (x @ w).sum().backward()
        return c, None

    with pytest.raises(errors.GradientError, match="zero_grad"):
        krt.scan(turn, krt.tensor(0.0), krt.tensor(X))
    assert w.grad is None


# ---- fori_loop, while_loop


def test_fori_loop():
    want = 3
    for k in range(2, 9):
        want = want * 2 + k
    for f in eager_and_jit(lambda a: krt.fori_loop(2, 9, lambda i, c: c * 2 + i, a)):
        assert f(krt.tensor(3)).item() == want
    assert krt.fori_loop(4, 4, lambda i, c: c + i, krt.tensor(3)).item() == 3
    assert krt.fori_loop(4, 1, lambda i, c: c + i, krt.tensor(3)).item() == 3


def test_fori_loop_with_bounds_from_tensors():
    @krt.jit
    def run(lo, hi, c):
        return krt.fori_loop(lo, hi, lambda i, c: c + i * i, c)

    for lo, hi in ((0, 5), (-3, 4), (2, 2), (7, 1)):
        ours = run(krt.tensor(lo), krt.tensor(hi), krt.tensor(0)).item()
        assert ours == sum(i * i for i in range(lo, hi))


def test_fori_loop_indexes():
    x = krt.tensor(X[:, 0, 0])
    found = krt.fori_loop(0, 7, lambda i, c: c + x[i] * (i + 1).float(), krt.tensor(0.0))
    np.testing.assert_allclose(found.item(), (X[:, 0, 0] * np.arange(1, 8)).sum(), rtol=1e-5)
    made = krt.fori_loop(0, 7, lambda i, c: krt.where(krt.arange(7) == i, i * i, c),
                         krt.zeros(7, dtype=krt.int64))  # fmt: skip
    assert made.tolist() == [k * k for k in range(7)]


def test_fori_loop_gradient(torch):
    w = krt.tensor(1.1, requires_grad=True)
    out = krt.fori_loop(0, 5, lambda i, c: c * w + i.float(), krt.tensor(1.0))
    t = torch.tensor(1.1, requires_grad=True)
    c = torch.tensor(1.0)
    for i in range(5):
        c = c * t + i
    c.backward()
    close(krt.grad(out, [w])[0], t.grad)


def test_while_loop():
    for f in eager_and_jit(
        lambda x: krt.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * 1.5, c[1] + 1),
                                 (x, krt.tensor(0)))
    ):  # fmt: skip
        for start in (1.0, 90.0, 100.0, 1e9):
            value, count = f(krt.tensor(start))
            v, n = np.float32(start), 0
            while v < 100:
                v, n = np.float32(v * np.float32(1.5)), n + 1
            assert (value.item(), count.item()) == (v, n)


def test_while_loop_ends_after_max_steps():
    found = krt.while_loop(lambda c: c > 0, lambda c: c + 1, krt.tensor(1), max_steps=10)
    assert found.item() == 11
    assert krt.while_loop(lambda c: c > 0, lambda c: c + 1, krt.tensor(1), max_steps=0).item() == 1


def test_a_condition_of_nan_ends_the_loop():
    found = krt.while_loop(lambda c: c < 5, lambda c: c * krt.nan, krt.tensor(1.0))
    assert np.isnan(found.item())


def test_while_loop_gradient(torch):
    w = krt.tensor(1.5, requires_grad=True)
    y = krt.while_loop(lambda c: c.abs() < 100, lambda c: c * w + 1, w * 2, max_steps=50)
    t = torch.tensor(1.5, requires_grad=True)
    c = t * 2
    while abs(c) < 100:
        c = c * t + 1
    c.backward()
    close(krt.grad(y, [w])[0], t.grad, 1e-5)


def test_the_gradient_of_a_loop_without_end_is_refused():
    w = krt.tensor(1.5, requires_grad=True)
    y = krt.while_loop(lambda c: c < 100, lambda c: c * w, w)
    with pytest.raises(errors.GradientError, match="max_steps"):
        krt.grad(y, [w])


# ---- cond, switch


@pytest.mark.parametrize("jitted", [False, True])
def test_cond(jitted):
    w = krt.tensor(W)

    def run(x):
        return krt.cond(x.sum() > 0, lambda x: (x @ w, x.sum()), lambda x: (x * 0, x.max()), x)

    f = krt.jit(run) if jitted else run
    for sign in (1, -1):
        x = np.abs(H) * sign
        a, b = f(krt.tensor(x))
        close(a, x @ W if sign > 0 else x * 0)
        close(b, x.sum() if sign > 0 else x.max())


def test_only_the_branch_that_is_chosen_runs():
    x, i = krt.tensor([1.0, 2.0]), krt.tensor(7)
    found = krt.cond(krt.tensor(False), lambda: x[i], lambda: x[0])
    assert found.item() == 1
    with pytest.raises(errors.IndexBoundsError):
        krt.cond(krt.tensor(True), lambda: x[i], lambda: x[0]).item()


def test_cond_gradient():
    for value in (2.0, -2.0):
        x, w = krt.tensor(value, requires_grad=True), krt.tensor(3.0, requires_grad=True)
        y = krt.cond(x > 0, lambda x, w: x * x * w, lambda x, _: (x - 1).exp(), x, w)
        gx, gw = krt.grad(y, [x, w])
        assert gx.item() == pytest.approx(12 if value > 0 else np.exp(-3))
        assert gw.item() == pytest.approx(4 if value > 0 else 0)


def test_switch():
    fs = [lambda x: x, lambda x: x + 1, lambda x: x * x]
    for f in eager_and_jit(lambda i, x: krt.switch(i, fs, x)):
        for i, want in ((-5, 5.0), (0, 5.0), (1, 6.0), (2, 25.0), (3, 25.0), (99, 25.0)):
            assert f(krt.tensor(i), krt.tensor(5.0)).item() == want
    x = krt.tensor(2.0, requires_grad=True)
    assert krt.grad(krt.switch(krt.tensor(3), [lambda x: x * x], x), [x])[0].item() == 4


def test_cond_in_scan_and_scan_in_cond():
    def turn(c, x):
        return krt.cond(c > 5, lambda c: c - 5, lambda c: c + x, c), c

    xs = np.array([3, 4, 1, 2, 9, 1], np.float32)
    last, rows = krt.scan(turn, krt.tensor(0.0), krt.tensor(xs))
    c, want = 0.0, []
    for x in xs:
        want.append(c)
        c = c - 5 if c > 5 else c + x
    assert rows.tolist() == want
    assert last.item() == c
    total = krt.cond(
        krt.tensor(True), lambda x: krt.scan(lambda c, x: (c + x, None), krt.tensor(0.0), x)[0],
        lambda x: x.max(), krt.tensor(xs),
    )  # fmt: skip
    assert total.item() == xs.sum()


def test_assignments_in_a_branch():
    n = krt.tensor([1.0, 2.0])

    def bump(x):
        n.add_(x)
        return x

    for take, want in ((True, [4.0, 5.0]), (False, [4.0, 5.0])):
        krt.cond(krt.tensor(take), bump, lambda x: x, krt.tensor(3.0)).item()
        assert n.tolist() == want


def test_a_branch_may_give_what_was_there_before():
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    v = x * 2
    for take, want in ((True, [2.0, 4.0]), (False, [6.0, 12.0])):
        assert krt.cond(krt.tensor(take), lambda: v, lambda: v * 3).tolist() == want
        assert krt.cond(krt.tensor(take), lambda: v[0], lambda: v[1] * 3).item() in (2.0, 12.0)


@pytest.mark.parametrize("jitted", [False, True])
def test_gradients_pass_one_turn_that_assigns(jitted):
    s = krt.tensor(5.0)

    def f(a):
        def turn(c, _):
            y = c * s
            s.add_(1.0)
            return y, None

        return krt.scan(turn, a, length=1)[0]

    g = func.grad(f)
    g = krt.jit(g) if jitted else g
    assert [g(krt.tensor(2.0)).item() for _ in range(3)] == [5, 6, 7]


@pytest.mark.parametrize("draws", [False, True])
def test_gradients_pass_bodies_that_assign(draws):
    s = krt.zeros(())

    def f(a):
        def turn(c, _):
            if draws:
                return c * a + krt.rand(()) * 0, None
            s.add_(1.0)
            return c * a + s * 0, None

        return krt.scan(turn, a, length=2)[0]

    assert func.grad(f)(krt.tensor(2.0)).item() == 12
    x = krt.tensor(2.0, requires_grad=True)
    assert krt.grad(f(x), [x])[0].item() == 12
    assert krt.jit(func.grad(f))(krt.tensor(2.0)).item() == 12
    assert draws or s.item() == 6


@pytest.mark.parametrize("take", [False, True])
def test_gradients_pass_branches_that_draw(take):
    def drawing(x):
        return x * 3 + krt.rand(()) * 0

    x = krt.tensor(2.0, requires_grad=True)
    y = krt.cond(krt.tensor(take), drawing, lambda x: x, x)
    assert krt.grad(y, [x])[0].item() == (3 if take else 1)
    s = krt.tensor(5.0)

    def changing(x):
        s.mul_(2)
        return x * s

    y = krt.cond(krt.tensor(take), changing, lambda x: x, x)
    assert krt.grad(y, [x])[0].item() == (10 if take else 1)
    assert s.item() == (10 if take else 5)


def test_gradients_of_what_was_overwritten_are_refused():
    s = krt.tensor([3.0, 4.0])

    def f(a):
        y = a * s
        s.add_(1)
        return y.sum()

    with pytest.raises(errors.GradientError, match="assigned since"):
        func.grad(f)(krt.tensor(2.0))


# ---- over many values at once


def test_jacobians_of_loops(torch):
    def ours(x):
        return krt.scan(lambda h, x: ((h @ krt.tensor(W) + x).tanh(),) * 2, x[0], x)[1]

    def theirs(x):
        h, out = x[0], []
        for t in range(5):
            h = torch.tanh(h @ torch.tensor(W) + x[t])
            out.append(h)
        return torch.stack(out)

    x = X[:5, 0]
    want = torch.func.jacrev(theirs)(torch.tensor(x))
    close(func.jacrev(ours)(krt.tensor(x)), want)
    close(func.jacfwd(ours)(krt.tensor(x)), want)


# ---- bad input


@pytest.mark.parametrize(
    ("error", "match", "run"),
    [
        (errors.ShapeError, r"carry: the body changes the shape \(\) to \(2,\)",
         lambda: krt.scan(lambda c, x: (x, None), krt.tensor(0.0), krt.zeros(3, 2))),
        (errors.DTypeError, r"carry\['a'\]: the body changes the dtype int64 to float32",
         lambda: krt.scan(lambda c, x: ({"a": c["a"] / 2}, None), {"a": krt.tensor(1)}, length=3)),
        (errors.ShapeError, "return the same nesting",
         lambda: krt.scan(lambda c, x: ((c, c), None), krt.tensor(1), length=3)),
        (errors.DTypeError, "pair",
         lambda: krt.scan(lambda c, x: c, krt.tensor(1), length=3)),
        (errors.ShapeError, r"xs\[1\]: expected a first axis of size 3, as the arrays before",
         lambda: krt.scan(lambda c, x: (c, None), krt.tensor(1), (krt.zeros(3), krt.zeros(4)))),
        (errors.ShapeError, "of size 4, as length says, not 3",
         lambda: krt.scan(lambda c, x: (c, None), krt.tensor(1), krt.zeros(3), length=4)),
        (errors.ShapeError, "number of iterations is required",
         lambda: krt.scan(lambda c, x: (c, None), krt.tensor(1))),
        (errors.ShapeError, "at least 0",
         lambda: krt.scan(lambda c, x: (c, None), krt.tensor(1), length=-1)),
        (errors.DTypeError, "expected an int",
         lambda: krt.scan(lambda c, x: (c, None), krt.tensor(1), length=2.0)),
        (errors.ShapeError, "first axis",
         lambda: krt.scan(lambda c, x: (c, None), krt.tensor(1), krt.tensor(3.0))),
        (errors.DTypeError, "expected a function",
         lambda: krt.scan(3, krt.tensor(1), length=2)),
        (errors.DTypeError, "init: expected a Tensor",
         lambda: krt.scan(lambda c, x: (c, None), "a", length=2)),
        (errors.JitError, "reads a value",
         lambda: krt.scan(lambda c, x: (c + c.item(), None), krt.tensor(1.0), length=2)),
        (errors.JitError, "reads a value",
         lambda: krt.scan(lambda c, x: (c if c > 0 else -c, None), krt.tensor(1.0), length=2)),
        (errors.DTypeError, "bool Tensor of shape",
         lambda: krt.while_loop(lambda c: c, lambda c: c, krt.tensor(1.0))),
        (errors.DTypeError, "bool Tensor of shape",
         lambda: krt.while_loop(lambda c: c > 0, lambda c: c, krt.ones(2))),
        (errors.DTypeError, "bool Tensor of shape",
         lambda: krt.while_loop(lambda c: True, lambda c: c, krt.ones(2))),
        (errors.ShapeError, "at least 0",
         lambda: krt.while_loop(lambda c: c > 0, lambda c: c, krt.tensor(1), max_steps=-1)),
        (errors.DTypeError, "upper: expected an int",
         lambda: krt.fori_loop(0, 2.5, lambda i, c: c, krt.tensor(1))),
        (errors.DTypeError, "pred: expected a bool",
         lambda: krt.cond(krt.tensor(1.0), lambda: 1, lambda: 2)),
        (errors.DTypeError, "pred: expected a bool",
         lambda: krt.cond(krt.tensor([True]), lambda: 1, lambda: 2)),
        (errors.ShapeError, "make the shapes equal",
         lambda: krt.cond(krt.tensor(True), lambda x: x, lambda x: x[None], krt.tensor(1.0))),
        (errors.DTypeError, "make the dtypes equal",
         lambda: krt.cond(krt.tensor(True), lambda x: x, lambda x: x > 0, krt.tensor(1.0))),
        (errors.ShapeError, "at least one function",
         lambda: krt.switch(krt.tensor(0), [])),
        (errors.DTypeError, "index: expected an int",
         lambda: krt.switch(krt.tensor(0.5), [lambda: 1, lambda: 2])),
    ],
)  # fmt: skip
def test_wrong_input(error, match, run):
    with pytest.raises(error, match=match):
        run()


def test_an_index_out_of_range_names_the_turn_and_leaves_state():
    x = krt.tensor([1.0, 2.0, 3.0])
    seen = krt.tensor(0.0)

    @krt.jit
    def run(places):
        def turn(c, i):
            seen.add_(1)
            return c + x[i], None

        return krt.scan(turn, krt.tensor(0.0), places)[0]

    assert run(krt.tensor([0, 1, 2, 0])).item() == 7
    assert seen.item() == 4
    with pytest.raises(errors.IndexBoundsError, match="iteration 2"):
        run(krt.tensor([0, 1, 5, 0]))
    assert seen.item() == 4
    assert run(krt.tensor([2, 2, 2, 2])).item() == 12
    assert seen.item() == 8


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("kind", ["scan", "nested", "cond"])
def test_what_leaves_a_body_by_another_way_is_refused(jitted, kind):
    def run(x):
        kept = {}

        def turn(c, x):
            kept["x"] = x * 2
            return c + x, None

        if kind == "scan":
            krt.scan(turn, krt.tensor(0.0), x)
        elif kind == "cond":
            krt.cond(x.sum() > 0, lambda x: turn(x[0], x[1])[0], lambda x: x[0], x)
        else:
            krt.scan(lambda c, _: (krt.scan(turn, c, x)[0] * kept["x"], None), x[0], length=2)
            return kept["x"] + 1
        return kept["x"]

    f = krt.jit(run) if jitted else run
    with pytest.raises(errors.JitError, match=r"used outside that body|made while a"):
        f(krt.tensor([1.0, 2.0])).numpy()


def test_one_plan_serves_repeated_calls():
    def run(c, x):
        return krt.scan(lambda c, x: (c * 0.5 + x, c), c, x)

    for _ in range(5):
        run(krt.tensor([1.0, 2.0]), krt.tensor(X[:, 0, :2]))[0].numpy()
    from kernelrt.tensor.eager import plan_cache

    before = krt.tensor
    misses = plan_cache.plans.misses
    for _ in range(5):
        run(before([1.0, 2.0]), before(X[:, 1, :2]))[0].numpy()
    assert plan_cache.plans.misses == misses


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_do_not_depend_on_threads(threads):
    w, x = krt.tensor(array(64, 64) * 0.1), krt.tensor(array(20, 32, 64))

    def loss(w):
        _, rows = krt.scan(lambda h, x: ((h @ w + x).tanh(),) * 2, krt.zeros(32, 64), x)
        return (rows**2).sum()

    with krt.num_threads(threads):
        found = func.grad(loss)(w).numpy()
    with krt.num_threads(1):
        assert (func.grad(loss)(w).numpy() == found).all()
