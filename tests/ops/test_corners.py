"""Values and gradients where a formula has a corner: limits, zeros, no elements, narrow types."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt

INF, NAN = math.inf, math.nan
torch = Package("torch")


def agree(ours, theirs, *arrays, rtol=1e-6, atol=0.0):
    """Value and gradients of functions of our and of torch's tensors."""
    x = [krt.tensor(a, requires_grad=True) for a in arrays]
    y = [torch.tensor(a, requires_grad=True) for a in arrays]
    got, want = ours(*x), theirs(*y)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=rtol)
    got.sum().backward()
    want.sum().backward()
    for a, b in zip(x, y, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=rtol, atol=atol)


AT_LIMITS = np.array([-7, -3, -1, -0.5, 0, 0.5, 1, 3, 6, 7, 2.999999, -2.999999], np.float32)


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "hardsigmoid", "hardswish",
                                  "leaky_relu", "elu", "softplus", "logsigmoid"])  # fmt: skip
def test_activations_at_their_limits(name):
    theirs = getattr(torch.nn.functional, name)
    agree(lambda x: getattr(x, name)(), theirs, AT_LIMITS)


@pytest.mark.parametrize("name", ["logsigmoid", "elu", "softplus", "silu", "sigmoid"])
def test_tails_keep_their_digits(name):
    x = np.array([-700, -50, -20.5, -17.5, -1e-9, 17.5, 20.5, 37, 700])
    theirs = getattr(torch.nn.functional, name)
    if name == "sigmoid":  # torch's gradient is made of the value, which is 1 where it is flat
        theirs = lambda x: torch.where(x > 0, 1 - torch.sigmoid(-x), torch.sigmoid(x))  # noqa: E731
    agree(lambda x: getattr(x, name)(), theirs, x, rtol=1e-14)
    single = krt.tensor(x.astype(np.float32), requires_grad=True)
    getattr(single, name)().sum().backward()
    peer = torch.tensor(x, requires_grad=True)
    theirs(peer).sum().backward()
    np.testing.assert_allclose(single.grad.numpy(), peer.grad.numpy(), rtol=1e-5, atol=1e-38)


@pytest.mark.parametrize("name", ["sign", "round", "floor", "ceil", "trunc"])
def test_steps_have_a_gradient_of_zero(name):
    agree(lambda x: getattr(x, name)(), lambda x: getattr(x, name)(), AT_LIMITS)


def test_a_quotient_rounded_has_a_gradient_of_zero():
    for mode in ("floor", "trunc"):
        agree(lambda x, y, m=mode: x.div(y, rounding_mode=m),
              lambda x, y, m=mode: x.div(y, rounding_mode=m), AT_LIMITS, AT_LIMITS[::-1].copy() + 9)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 0.5, -1, INF])
@pytest.mark.parametrize("x", [[0.0, 0, 0], [0, 1, -1], [1.5, -2, 3], [1, 1, 1]], ids=str)
def test_norms(p, x):
    if p == INF and not any(x):
        return  # the gradient is shared, and torch has none to share
    agree(lambda a: a.norm(p), lambda a: a.norm(p), np.array(x, float))


def test_norms_that_count():
    x = krt.tensor([[0.0, 2, -3], [0, 0, 0]], requires_grad=True)
    counts = x.norm(0, 1)
    assert counts.tolist() == [2, 0]
    assert x.norm(-INF, 1).tolist() == [0, 0]
    counts.sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert krt.zeros(0).norm().item() == 0
    with pytest.raises(krt.ShapeError, match="empty"):
        krt.zeros(0).norm(-1)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning")
@pytest.mark.parametrize("correction", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("x", [[1.0, 2, 4], [1, 1, 1], [5], []], ids=str)
def test_variance_with_any_correction(x, correction):
    x = np.array(x, float)
    for name in ("var", "std"):
        got = getattr(krt.tensor(x), name)(correction=correction).item()
        want = getattr(torch.tensor(x), name)(correction=correction).item()
        np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning")
@pytest.mark.parametrize("correction", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(1,), (2,), (2, 1), (2, 3), (0,), (2, 0), ()], ids=str)
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_slopes_of_spreads_with_any_correction(name, shape, correction):
    x = np.random.default_rng(0).normal(size=shape)
    for dim in [0, -1, (0, 1)][: 3 if len(shape) == 2 else 2]:

        def total(lib, t, dim=dim):
            out = getattr(lib, name)(t, dim, correction=correction)
            return sum(out) if isinstance(out, tuple) else out

        agree(functools.partial(total, krt), functools.partial(total, torch), x,
              atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning")
@pytest.mark.parametrize("correction", [3, 5])
def test_slopes_of_spreads_over_all_with_no_freedom(correction):
    # What torch gives for a variance here, infinity whichever way an element moves, is no slope.
    x = krt.tensor([0.0, 1.0, 5.0], requires_grad=True)
    x.var(correction=correction).backward()
    assert x.grad.tolist() == [-INF, -INF, INF]
    agree(lambda x: x.std(correction=correction), lambda x: x.std(correction=correction),
          np.array([0.0, 1.0, 5.0]))


def test_variance_over_no_elements():
    assert np.isnan(krt.zeros(2, 0).var(1).numpy()).all()
    assert krt.zeros(0, 2).var(1).shape == (0,)


@pytest.mark.parametrize("count", [1, 2, 17, 1000, 5000])
@pytest.mark.parametrize("offset", [0.0, -1e2, 1e4, 1e6, 1e7])
def test_the_spread_of_float32_far_from_zero(count, offset):
    rng = np.random.default_rng(count)
    x = (rng.standard_normal((3, count)) + offset).astype(np.float32)
    x[0] = np.float32(offset + 1.1)  # equal elements
    ours = krt.tensor(x, requires_grad=True)
    exact = torch.tensor(x.astype(np.float64), requires_grad=True)
    for name in ("var", "std"):
        values = [getattr(t, name)(1, correction=0) for t in (ours, exact)]
        np.testing.assert_allclose(
            values[0].numpy(), values[1].detach().numpy(), rtol=2e-3, atol=1e-12
        )
        for t, value in zip((ours, exact), values, strict=True):
            t.grad = None
            value.sum().backward()
        slopes = [t.grad.numpy() for t in (ours, exact)]
        np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-3, atol=2e-3 / count)


def test_the_spread_of_equal_elements_has_no_slope():
    agree(lambda x: x.std(), lambda x: x.std(), np.full(4, 3.0))
    agree(lambda x: x.std(1), lambda x: x.std(1), np.array([[1.0, 1, 1], [1, 2, 4]]))


@pytest.mark.parametrize("exponent", [0, 0.0, 1, 2, 3, 0.5, -1, 2.5, -0.5])
def test_powers_of_zero(exponent):
    x = np.array([0.0, 1.0, 2.5])
    agree(lambda x: x**exponent, lambda x: x**exponent, x)
    y = np.full(3, float(exponent))
    agree(lambda x, y: x**y, lambda x, y: x**y, x, y)


def test_the_power_zero_of_anything_is_one():
    x = krt.tensor([NAN, INF, 0.0])
    assert (x**0).tolist() == [1, 1, 1]
    assert (x ** krt.zeros(3)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("args", [(), (1,), (-1,), (0, 1, 2), (1, 0, 2), (2, 2, 0), (5,),
                                  (-9, 1, 2)])  # fmt: skip
def test_diagonals(args):
    x = np.arange(24.0).reshape(2, 3, 4)
    agree(lambda x: x.diagonal(*args), lambda x: x.diagonal(*args), x)


# ---- numbers beside narrow types


def test_numbers_beyond_an_integer_type():
    x = krt.tensor(np.array([0, 5, 255], np.uint8))
    assert x.clamp(0, 300).tolist() == [0, 5, 255]
    assert x.clamp(-5, 30).tolist() == [0, 5, 30]
    assert [(x < 300).tolist(), (x > 300).tolist(), (x == 256).tolist(), (x != -1).tolist(),
            (x >= -1).tolist(), (x <= -1).tolist(), x.lt(300).tolist()] == [
        [True] * 3, [False] * 3, [False] * 3, [True] * 3, [True] * 3, [False] * 3, [True] * 3,
    ]  # fmt: skip
    assert (x + 300).tolist() == [44, 49, 43]
    np.testing.assert_allclose((x / 300).tolist(), [0, 5 / 300, 255 / 300], rtol=1e-6)


@pytest.mark.parametrize("op", [
    lambda x: x.clamp(300), lambda x: x // 300, lambda x: x % -1, lambda x: x.maximum(300),
    lambda x: x.masked_fill(x > 1, 300), lambda x: krt.where(x > 1, x, -1),
    lambda _: krt.full((2,), 300, dtype="uint8"), lambda _: krt.tensor([1, 300], dtype="uint8"),
])  # fmt: skip
def test_numbers_that_a_type_does_not_have_are_refused(op):
    with pytest.raises(krt.DTypeError, match=r"uint8.* holds .*0 to 255"):
        op(krt.tensor(np.array([0, 5, 255], np.uint8)))


def test_numbers_keep_their_digits_beside_narrow_floats():
    x = krt.tensor([1000.0], dtype="float16")
    assert (x / 1e5).item() == np.float16(0.01)
    assert (x * 1.0005).item() == 1000.5
    assert (1e6 / x).item() == 1000
    assert (70000.0 - x * 60).item() == np.float16(10000)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_that_a_traced_function_is_given_keep_their_digits(dtype):
    x = krt.tensor([300.0], dtype=dtype)
    functions = [lambda x, c: x / c, lambda x, c: x * c, lambda x, c: c / x, lambda x, c: c - x]
    for function in functions:
        for number in (1e5, 1.0005):
            assert krt.jit(function)(x, number).item() == function(x, number).item()


@pytest.mark.parametrize(("op", "want"), [
    (lambda x: x.norm(), 1200), (lambda x: x.std(), 309.8), (lambda x: x.mean(), 0),
    (lambda x: x.rms_norm(16), [1, -1] * 8), (lambda x: x.layer_norm(16), [1, -1] * 8),
    (lambda x: x.reshape(8, 2).batch_norm(None, None, training=True)[0], [0, 0]),
    (lambda x: x.log_softmax(0)[0], -math.log(8)),
    (lambda x: x[0].expand(100000).mean(), 300),
    (lambda x: (x[0] / 3e5).expand(100000).sum(), 100),
])  # fmt: skip
def test_narrow_floats_do_not_overflow_on_the_way(op, want):
    x = krt.tensor(np.tile(np.array([300, -300], np.float16), 8))
    np.testing.assert_allclose(op(x).numpy(), want, rtol=2e-3)


@pytest.mark.parametrize("behind", [(), (2,)])
def test_a_batch_of_any_size_teaches_what_it_can(behind):
    ours, n = (krt.zeros(3), krt.ones(3)), krt.Variable("n", 0, 8)
    normalize = krt.jit(lambda x: x.batch_norm(*ours, training=True), dynamic={"x": {0: n}})
    theirs = torch.zeros(3), torch.ones(3)
    for size in (5, 0, 1, 2, 0, 8, 1):
        x = np.random.default_rng(size).standard_normal((size, 3, *behind)).astype(np.float32)
        got = normalize(x).numpy()
        if x[:, 0].size == 1:  # refused by torch: the mean is learned, of the variance nothing
            theirs = theirs[0] * 0.9 + torch.tensor(x).mean(0) * 0.1, theirs[1]
        else:
            want = torch.nn.functional.batch_norm(torch.tensor(x), *theirs, training=True)
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5)
        for have, expected in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(have.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (5, 0), (1, 3, 0), (2, 3, 0), (1, 0, 0)])
def test_an_empty_batch_is_normalized_to_nothing_and_teaches_nothing(shape):
    ours = krt.zeros(shape[1]), krt.ones(shape[1])
    theirs = torch.zeros(shape[1]), torch.ones(shape[1])
    got = krt.zeros(*shape).batch_norm(*ours, training=True)
    want = torch.nn.functional.batch_norm(torch.zeros(shape), *theirs, training=True)
    assert tuple(got.shape) == tuple(want.shape)
    for have, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(have.numpy(), expected.numpy())
