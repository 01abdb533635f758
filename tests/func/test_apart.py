"""Members of vmap that take different branches, or end in different turns."""

import numpy as np
import pytest

import kernelrt as krt


def each(f, values):
    """What `f` gives for each value by itself."""
    return [f(krt.tensor(v)).tolist() for v in values]


def indexed(table):
    def f(i):
        return krt.cond(i < 4, lambda: table[i], lambda: krt.tensor(-1.0))

    return f


@pytest.mark.parametrize("values", [[1, 9], [10, 9], [0, 3]])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_branch_that_a_member_does_not_take_does_not_fail(values, jitted):
    f = indexed(krt.arange(4.0).realize())
    mapped = krt.jit(krt.vmap(f)) if jitted else krt.vmap(f)
    assert mapped(krt.tensor(values)).tolist() == each(f, values)


def test_a_branch_that_a_member_takes_fails():
    table = krt.arange(4.0).realize()
    f = krt.vmap(lambda i: krt.cond(i > 0, lambda: table[i], lambda: krt.tensor(-1.0)))
    with pytest.raises(krt.IndexBoundsError):
        f(krt.tensor([0, 9])).tolist()


def test_switch_takes_the_nearest_branch_for_numbers_out_of_range():
    def f(i):
        return krt.switch(i, [lambda: krt.tensor(1.0), lambda: krt.tensor(2.0),
                              lambda: krt.tensor(3.0)])  # fmt: skip

    values = [-5, 0, 1, 2, 7]
    assert krt.vmap(f)(krt.tensor(values)).tolist() == each(f, values)


@pytest.mark.parametrize("values", [[0, 2, 4], [3, 3], [4, 9], [4, 0]])
def test_a_member_that_has_ended_does_not_fail(values):
    table = krt.arange(4.0).realize()

    def f(n):
        def body(c):
            return c[0] + 1, c[1] + table[c[0]]

        return krt.while_loop(lambda c: c[0] < 4, body, (n, krt.tensor(0.0)))[1]

    assert krt.vmap(f)(krt.tensor(values)).tolist() == each(f, values)


def roots(x):
    def body(c):
        h = (1.0 - c[0]).clamp(max=x)
        return c[0] + h, c[1] + (h * x).sqrt()

    return krt.while_loop(lambda c: c[0] < 1, body, (krt.tensor(0.0), x * 0), max_steps=10)[1]


def grown(x):
    return krt.while_loop(lambda c: c < 100, lambda c: c * x, x, max_steps=50)


def root(x):
    return krt.cond(x > 0, lambda x: x.sqrt(), lambda x: x * 10, x)


@pytest.mark.parametrize(
    ("f", "values"),
    [(roots, [0.5, 0.25, 0.3]), (grown, [2.0, 3.0, 200.0]), (root, [4.0, -1.0, 0.0]),
     (grown, [3.0, 3.0])],
)  # fmt: skip
def test_gradients_are_those_of_each_member(f, values):
    grad = krt.func.grad(f)
    expected = each(grad, values)
    np.testing.assert_allclose(krt.vmap(grad)(krt.tensor(values)).tolist(), expected, rtol=1e-6)
    total = krt.func.grad(lambda x: krt.vmap(f)(x).sum())
    np.testing.assert_allclose(total(krt.tensor(values)).tolist(), expected, rtol=1e-6)


def test_second_derivatives_of_members_that_end_apart():
    values = [2.0, 3.0, 200.0]
    hessian = krt.func.hessian(grown)
    assert krt.vmap(hessian)(krt.tensor(values)).tolist() == each(hessian, values)


@pytest.mark.parametrize("values", [[0, 2, 4], [3, 1], [-2, 0], [4]])
def test_counts_of_turns_may_differ(values):
    table = krt.arange(1.0, 5.0).realize()

    def f(n):
        return krt.fori_loop(0, n, lambda i, c: c * 2 + table[i], krt.tensor(1.0))

    assert krt.vmap(f)(krt.tensor(values)).tolist() == each(f, values)


def test_bounds_of_fori_loop_do_not_wrap():
    low, high = krt.tensor(-(2**63)), krt.tensor(2**63 - 1)
    assert krt.fori_loop(high, low, lambda i, c: c + 1, krt.tensor(0)).item() == 0


def test_a_function_may_give_the_same_array_each_time():
    buffer = np.zeros(1, np.float32)

    def f(x):
        buffer[0] = x[0]
        return buffer

    mapped = krt.vmap(lambda x: krt.call(f, x, out=((1,), krt.float32)))
    assert mapped(krt.tensor([[1.0], [2.0], [3.0]])).tolist() == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("length", [1, 2])
def test_a_body_that_assigns_to_its_carry_leaves_the_first_value(length):
    start = krt.tensor(1.0).realize()

    def body(c, _):
        c += 1
        return c, None

    run = krt.jit(lambda: krt.scan(body, start, None, length=length)[0])
    assert run().item() == 1 + length
    assert start.item() == 1.0


def counted(checkpoint):
    calls = []

    def function(x):
        calls.append(float(x))
        return x + len(calls)

    w = krt.tensor(2.0, requires_grad=True).realize()

    @krt.jit
    def f():
        def body(c, _):
            given = krt.call(function, c.detach(), out=((), "f4"), pure=False)
            return c * w + given * w, None

        y = krt.scan(body, krt.tensor(1.0), None, length=3, checkpoint=checkpoint)[0]
        return y, krt.grad(y, [w])[0]

    return [value.item() for value in f()], calls


def test_what_is_called_once_is_kept_at_checkpoints():
    assert counted(True) == counted(False)
    assert len(counted(True)[1]) == 3


def test_a_derivative_that_would_call_once_more_is_refused():
    w = krt.tensor(2.0, requires_grad=True).realize()

    def taken(w):
        return w * krt.call(lambda x: x + 1, w.detach(), out=((), "f4"), pure=False)

    @krt.jit
    def f(p):
        return krt.grad(krt.cond(p, taken, lambda w: w, w), [w])[0]

    with pytest.raises(krt.GradientError, match="pure=False"):
        f(krt.tensor(True))


def test_a_branch_reads_a_slice_that_is_made_anew_by_a_loop():
    def turned(a, b):
        return krt.scan(lambda c, _: (a.amax(-1), None), b, None, length=5)[0]

    def f(p, x):
        a = x[::2]
        return krt.cond(p % 2 == 0, lambda a, b: b, turned, a, a[..., -1])

    x = krt.arange(1.0, 7.0).reshape(3, 1, 2)
    expected = [f(krt.tensor(k), x[k]).tolist() for k in range(3)]
    assert krt.vmap(f)(krt.arange(3), x).tolist() == expected


@pytest.mark.parametrize("kind", ["cond", "while_loop"])
def test_draws_of_members_that_go_apart_are_refused_by_name(kind: str) -> None:
    def one(a):
        if kind == "cond":
            return krt.cond(a > 0, lambda: a + krt.rand(()), lambda: a)
        return krt.while_loop(lambda c: c < 3.0, lambda c: c + krt.rand(()), a)

    with pytest.raises(krt.JitError, match="random numbers are drawn"):
        krt.vmap(one, randomness="different")(krt.tensor([1.0, -1.0, 2.0]))
