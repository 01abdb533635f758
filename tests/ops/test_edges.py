"""Shapes and values at the edge: nothing, one, NaN, infinity, odd memory."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import kernelrt as krt

NAN, INF = np.nan, np.inf
SPECIALS = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 3.4e38, 1e-45], np.float32)


def same_bits(got, expected):
    np.testing.assert_array_equal(got, expected)
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[finite], np.signbit(expected)[finite])


def test_specials_behave_as_in_numpy():
    a, b = np.meshgrid(SPECIALS, SPECIALS)
    x, y = krt.tensor(a), krt.tensor(b)
    with np.errstate(all="ignore"):
        expected = [a + b, a - b, a * b, a / b, np.abs(a), -a, np.sqrt(a), np.floor(a), a < b,
                    a == b, a != b, np.maximum(a, b) + 0, np.minimum(a, b) + 0]  # fmt: skip
    # Which zero the greater of two zeros is, NumPy leaves open: + 0 makes both positive.
    results = [x + y, x - y, x * y, x / y, x.abs(), -x, x.sqrt(), x.floor(), x < y, x == y,
               x != y, x.maximum(y) + 0, x.minimum(y) + 0]  # fmt: skip
    krt.realize(*results)
    for got, value in zip(results, expected, strict=True):
        if got.dtype is krt.bool_:
            np.testing.assert_array_equal(got.numpy(), value)
        else:
            same_bits(got.numpy(), value)


def test_functions_of_specials():
    x = krt.tensor(SPECIALS)
    with np.errstate(all="ignore"):
        pairs = [
            (x.exp(), np.exp(SPECIALS)), (x.log(), np.log(SPECIALS)),
            (x.tanh(), np.tanh(SPECIALS)), (x.log1p(), np.log1p(SPECIALS)),
            (x.expm1(), np.expm1(SPECIALS)), (x.sigmoid(), 1 / (1 + np.exp(-SPECIALS))),
            (x.relu(), np.where(SPECIALS <= 0, np.float32(0), SPECIALS)),
            (x.isnan(), np.isnan(SPECIALS)), (x.isinf(), np.isinf(SPECIALS)),
            (x.isfinite(), np.isfinite(SPECIALS)), (x.sign(), np.sign(np.nan_to_num(SPECIALS))),
            (x.softplus(), np.logaddexp(0, SPECIALS)),
        ]  # fmt: skip
    krt.realize(*(p for p, _ in pairs))
    for got, expected in pairs:
        np.testing.assert_allclose(got.numpy(), expected, rtol=2e-6)


@pytest.mark.parametrize("number", [-1000.0, -90.0, 0.0, 90.0, 1000.0])
def test_gradients_stay_finite_at_the_ends(number):
    for function in ("sigmoid", "tanh", "softplus", "logsigmoid", "silu", "gelu", "elu"):
        x = krt.tensor([number], requires_grad=True)
        getattr(x, function)().sum().backward()
        assert np.isfinite(x.grad.item()), function


def test_softmax_of_extreme_scores():
    x = krt.tensor([[1e4, -1e4, 1e4], [-INF, 0.0, -INF]], requires_grad=True)
    np.testing.assert_allclose(x.softmax(-1).numpy(), [[0.5, 0, 0.5], [0, 1, 0]])
    x.cross_entropy(krt.tensor([0, 1])).backward()
    np.testing.assert_allclose(x.grad.numpy(), [[-0.25, 0, 0.25], [0, 0, 0]], atol=1e-7)


def test_logsumexp_of_infinities():
    x = krt.tensor([[-INF, -INF], [INF, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(x.logsumexp(-1).numpy(), [-INF, INF, np.log(2)], rtol=1e-6)


def test_extrema_propagate_nan():
    x = krt.tensor([[1.0, NAN, 3.0], [4.0, 2.0, 4.0]])
    assert np.isnan(x.amax(1).numpy()).tolist() == [True, False]
    assert x.argmax(1).tolist() == [1, 0]
    assert x.argmin(1).tolist() == [1, 1]
    assert np.isnan(x.reshape(1, 1, 2, 3).max_pool2d((2, 1)).numpy()).tolist() == [
        [[[False, True, False]]]
    ]


def test_first_of_equal_extrema():
    x = krt.tensor([[2, 5, 5], [1, 1, 0]])
    assert x.argmax(1).tolist() == [1, 0]
    assert x.argmin(0).tolist() == [1, 1, 1]
    assert x.argmax().item() == 1
    assert x.argmax(1, keepdim=True).shape == (2, 1)
    values, indices = x.max(1)
    assert (values.tolist(), indices.tolist()) == ([5, 1], [1, 0])


def test_equal_extrema_share_the_gradient():
    x = krt.tensor([[2.0, 5.0, 5.0], [1.0, 1.0, 0.0]], requires_grad=True)
    x.amax(1).sum().backward()
    assert x.grad.tolist() == [[0, 0.5, 0.5], [0.5, 0.5, 0]]
    y, z = krt.tensor([1.0, 2.0], requires_grad=True), krt.tensor([1.0, 0.0], requires_grad=True)
    y.maximum(z).sum().backward()
    assert (y.grad.tolist(), z.grad.tolist()) == ([0.5, 1], [0.5, 0])


def test_max_pool_gradient_goes_to_the_first_maximum():
    x = krt.zeros(1, 1, 4, 4).realize().requires_grad_()
    x.max_pool2d(2).sum().backward()
    expected = np.zeros((4, 4))
    expected[::2, ::2] = 1
    np.testing.assert_array_equal(x.grad.numpy()[0, 0], expected)
    y = krt.zeros(1, 1, 3, 3).realize().requires_grad_()
    y.max_pool2d(2, stride=1).sum().backward()
    assert y.grad.numpy()[0, 0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


#: kernel_size, stride, padding and dilation.
PADDED = [(2, 2, 1, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 3, 1, 1), (4, 1, 2, 1), (2, 1, 1, 2),
          (3, 2, 1, 2), ((3, 2), (1, 2), (1, 0), 1), ((1, 3), 1, (0, 1), (1, 2))]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("window", PADDED)
def test_padding_takes_no_gradient_of_a_max_pool(window, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    two = isinstance(window[0], tuple)
    for share in (1, 0.8, 0.3):
        for n in (2,) if two else (1, 2):
            data = rng.integers(0, 3, (2, 2, *(6, 7)[:n])).astype(float)
            data[rng.random(data.shape) < share] = -INF
            x = krt.tensor(data, dtype=dtype, requires_grad=True)
            y = torch.tensor(data, dtype=getattr(torch, dtype), requires_grad=True)
            ours = (x.max_pool1d if n == 1 else x.max_pool2d)(*window)
            theirs = getattr(torch.nn.functional, f"max_pool{n}d")(y, *window)
            weights = rng.integers(1, 4, ours.shape).astype(float)
            (ours * krt.tensor(weights, dtype=dtype)).sum().backward()
            (theirs * torch.tensor(weights, dtype=y.dtype)).sum().backward()
            assert ours.tolist() == theirs.tolist()
            assert x.grad.tolist() == y.grad.tolist()


def test_padding_takes_no_gradient_of_a_max_pool_of_open_size():
    torch = pytest.importorskip("torch")

    @partial(krt.jit, dynamic={"x": {1: krt.Variable("n", 3, 9)}})
    def slope(x):
        x = x.detach().requires_grad_()
        return krt.grad(x.reshape(1, 2, -1).max_pool1d(3, 1, 1).sum(), x)

    for size in (3, 5, 9):
        data = np.full((2, size), -INF)
        data[0, -2:] = 1
        y = torch.tensor(data, requires_grad=True)
        torch.nn.functional.max_pool1d(y[None], 3, 1, 1).sum().backward()
        assert slope(data).tolist() == y.grad.tolist()


def test_second_gradients_of_a_max_pool_leave_the_padding_out():
    x = krt.tensor(np.full((1, 1, 4), -INF), requires_grad=True)
    weights = krt.tensor([[[1.0, 2, 3, 4]]], requires_grad=True)
    (first,) = krt.grad((x.max_pool1d(3, 1, 1) * weights).sum(), [x], create_graph=True)
    assert first.tolist() == [[[3, 3, 4, 0]]]
    (slope,) = krt.grad((first * krt.tensor([[[1.0, 10, 100, 1000]]])).sum(), [weights])
    assert slope.tolist() == [[[1, 1, 10, 100]]]


def test_relu_gradient_at_zero_is_zero():
    x = krt.tensor([-1.0, 0.0, 1.0, NAN], requires_grad=True)
    x.relu().sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1]


def test_product_gradient_with_zeros():
    x = krt.tensor([[2.0, 0.0, 3.0], [0.0, 0.0, 4.0], [1.0, 2.0, 3.0]], requires_grad=True)
    x.prod(1).sum().backward()
    assert x.grad.tolist() == [[0, 6, 0], [0, 0, 0], [6, 3, 2]]


def test_pow_gradient_at_zero():
    x = krt.tensor([0.0, 2.0], requires_grad=True)
    e = krt.tensor([2.0, 0.0], requires_grad=True)
    (x**e).sum().backward()
    assert x.grad.tolist() == [0, 0]
    np.testing.assert_allclose(e.grad.numpy(), [0, np.log(2)], rtol=1e-6)


# ---- nothing


ZERO = [
    (lambda x: x + 1, (0, 3)),
    (lambda x: x.exp() * x, (0, 3)),
    (lambda x: x.sum(0), (3,)),
    (lambda x: x.sum(1), (0,)),
    (lambda x: x.sum(), ()),
    (lambda x: x.prod(0), (3,)),
    (lambda x: x.T, (3, 0)),
    (lambda x: x.reshape(3, 0, 5), (3, 0, 5)),
    (lambda x: x @ krt.ones(3, 2), (0, 2)),
    (lambda x: krt.ones(4, 0) @ x, (4, 3)),
    (lambda x: x.pad((1, 1, 2, 0)), (2, 5)),
    (lambda x: krt.cat([x, krt.ones(2, 3)]), (2, 3)),
    (lambda x: krt.cat([x, x]), (0, 3)),
    (lambda x: x[:, 1:], (0, 2)),
    (lambda x: x[:, [0, 1]], (0, 2)),
    (lambda x: x.softmax(-1), (0, 3)),
    (lambda x: x.relu().flip(0), (0, 3)),
    (lambda x: x.cumsum(0), (0, 3)),
    (lambda x: x > 0, (0, 3)),
    (lambda x: x.long(), (0, 3)),
    (lambda x: x.unsqueeze(0).expand(4, 0, 3), (4, 0, 3)),
    (lambda x: krt.ones(5)[x[:, 0].long()], (0,)),
]


@pytest.mark.parametrize("number", range(len(ZERO)))
def test_tensors_without_elements(number):
    op, shape = ZERO[number]
    out = op(krt.zeros(0, 3))
    assert out.shape == shape
    array = out.numpy()
    assert array.shape == shape
    # An empty sum is 0, an empty product 1; what was joined or padded keeps its values.
    assert array.size == 0 or set(np.unique(array)) <= {0.0, 1.0}


def test_mean_of_nothing_is_nan_and_loss_of_nothing_has_a_gradient():
    assert np.isnan(krt.zeros(0).mean().item())
    x = krt.zeros(0, 3).realize().requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.shape == (0, 3)
    assert x.grad.numpy().size == 0


def test_gradient_through_an_empty_part():
    x = krt.tensor([1.0, 2.0], requires_grad=True)
    krt.cat([x * 3, x[2:]]).sum().backward()
    assert x.grad.tolist() == [3, 3]


# ---- one


def test_axes_of_size_one():
    x = krt.tensor([[[3.0]]], requires_grad=True)
    out = (x.softmax(-1) + x.sum((0, 2)) * x.mean(1) + (x @ x).amax() + x.prod(0)).sum()
    assert out.item() == 1 + 9 + 9 + 3
    out.backward()
    assert x.grad.item() == 0 + 6 + 6 + 1
    assert krt.ones(1, 1, 1, 1).conv2d(krt.full((1, 1, 1, 1), 2.0)).item() == 2


def test_scalars():
    x = krt.tensor(2.0, requires_grad=True)
    (x * x + x.sum() + x.softmax(0) + x.reshape(1)[0]).backward()
    assert x.grad.item() == 4 + 1 + 0 + 1
    assert krt.tensor(3).argmax().item() == 0


# ---- memory


def test_inputs_in_any_layout_are_copied():
    base = np.arange(48, dtype=np.float32).reshape(6, 8)
    odd = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.float32)
    for a in (base.T, base[::2, ::-1], base[1:, 3:], np.asfortranarray(base), odd,
              np.broadcast_to(base[0], (3, 8)), base.astype(">f4").astype("f4")[:, 1]):  # fmt: skip
        np.testing.assert_array_equal((krt.tensor(a) * 2).numpy(), a * 2)


def test_from_numpy_shares_memory():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = krt.from_numpy(a)
    a[0, 0] = 10
    y = x * 2
    a[0, 0] = 20
    assert y.tolist()[0][0] == 20
    assert x.tolist()[0][0] == 20
    x.assign(x + 1)
    krt.realize()
    assert a[0, 0] == 21


def test_from_numpy_shares_a_transpose():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = krt.from_numpy(a.transpose(2, 0, 1))
    a[1, 2, 3] = -1
    np.testing.assert_array_equal((x + 0).numpy(), a.transpose(2, 0, 1))


def test_elements_at_any_multiple_of_their_size():
    raw = np.zeros(70, np.float32)
    for start in range(4):
        part = raw[start : start + 65]
        part[:] = np.arange(65)
        x = krt.from_numpy(part)
        np.testing.assert_array_equal((x * 2 + 1).numpy(), part * 2 + 1)


def test_numpy_gives_a_copy():
    x = krt.tensor([1.0, 2.0])
    array = x.numpy()
    array[0] = 5
    assert x.tolist() == [1, 2]
