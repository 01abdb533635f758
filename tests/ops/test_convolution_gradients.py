"""Gradients of convolutions: against sums written out, and without products with zeros."""

import itertools

import numpy as np
import pytest

import kernelrt as krt

TAPS = ((1, 1), (2, 3), (3, 3), (5, 2))
STRIDES = ((2, 2), (1, 3), (3, 2), (4, 5))
#: Sizes, dilation and groups.
REST = (((9, 8), (1, 1), 1), ((9, 8), (1, 1), 2), ((12, 9), (2, 3), 2))


def spread(g, w, shape, stride, dilation, groups):
    """Each element of `g` times the filters, added where the window lay."""
    out = np.zeros(shape)
    each, inner = g.shape[1] // groups, shape[1] // groups
    for o, i, j in itertools.product(*map(range, g.shape[1:])):
        first = o // each * inner
        for a, b in itertools.product(*map(range, w.shape[2:])):
            at = (i * stride[0] + a * dilation[0], j * stride[1] + b * dilation[1])
            out[:, first : first + inner, *at] += g[:, o, i, j, None] * w[o, :, a, b]
    return out


@pytest.mark.parametrize(("taps", "stride"), [*itertools.product(TAPS, STRIDES)])
@pytest.mark.parametrize(("sizes", "dilation", "groups"), REST)
def test_of_the_input(sizes, dilation, groups, taps, stride):
    rng = np.random.default_rng(3)
    x = krt.tensor(rng.standard_normal((2, 4, *sizes)), requires_grad=True)
    w = rng.standard_normal((6, 4 // groups, *taps))
    out = x.conv2d(krt.tensor(w), stride=stride, dilation=dilation, groups=groups)
    g = rng.standard_normal(out.shape)
    (found,) = krt.grad((out * krt.tensor(g)).sum(), [x])
    wanted = spread(g, w, x.shape, stride, dilation, groups)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("taps", "stride"), [*itertools.product(TAPS, STRIDES)])
@pytest.mark.parametrize(("sizes", "dilation", "groups"), REST)
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_transposed(sizes, dilation, groups, taps, stride, padding):
    """It is what the gradient does, whose own gradients are those of a convolution."""
    rng = np.random.default_rng(4)
    values, weight = rng.standard_normal((2, 4, *sizes)), rng.standard_normal((4, 3, *taps))
    x, w = (krt.tensor(a, requires_grad=True) for a in (values, weight))
    more = tuple(max(s, d) - 1 for s, d in zip(stride, dilation, strict=True))
    full = [
        (n - 1) * s + d * (k - 1) + 1 + m
        for n, s, d, k, m in zip(sizes, stride, dilation, taps, more, strict=True)
    ]
    if any(n <= 2 * p for n, p in zip(full, padding, strict=True)):
        with pytest.raises(krt.ShapeError, match="gives no output, since padding"):
            x.conv_transpose2d(w, None, stride, padding, more, groups, dilation)
        return
    out = x.conv_transpose2d(w, None, stride, padding, more, groups, dilation)
    whole = spread(values, weight, (2, 3 * groups, *full), stride, dilation, groups)
    (top, left), (rows, columns) = padding, out.shape[2:]
    wanted = whole[:, :, top : top + rows, left : left + columns]
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-12, atol=1e-12)
    g = rng.standard_normal(wanted.shape)
    found = krt.grad((out * krt.tensor(g)).sum(), [x, w])
    # Linear in each: the result times any g is each argument times its gradient.
    for value, gradient in zip((values, weight), found, strict=True):
        np.testing.assert_allclose((value * gradient.numpy()).sum(), (wanted * g).sum(), rtol=1e-9)
        nudge = rng.standard_normal(value.shape)
        moved = [nudge if value is a else a for a in (values, weight)]
        image = spread(*moved, (2, 3 * groups, *full), stride, dilation, groups)
        image = image[:, :, top : top + rows, left : left + columns]
        np.testing.assert_allclose(
            (nudge * gradient.numpy()).sum(), (image * g).sum(), rtol=1e-9, atol=1e-9
        )


def test_transposed_of_open_batches():
    n = krt.Variable("n", 1, 8)
    w = krt.tensor(np.random.default_rng(5).standard_normal((3, 2, 4, 4)))
    step = krt.jit(lambda x: x.conv_transpose2d(w, stride=2, padding=1), dynamic={"x": {0: n}})
    for batch in (1, 5, 8):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 5, 4))
        wanted = spread(x, w.numpy(), (batch, 2, 12, 10), (2, 2), (1, 1), 1)[:, :, 1:-1, 1:-1]
        np.testing.assert_allclose(step(x).numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_gradients_of_open_batches_store_no_windows():
    w = krt.tensor(np.random.default_rng(5).standard_normal((6, 4, 3, 3)))

    def pulled(x):
        x = x.detach().requires_grad_()
        x.conv2d(w, padding=1).square().sum().backward()
        return x.grad

    step = krt.jit(pulled, dynamic={"x": {0: krt.Variable("n", 1, 8)}})
    apart = krt.jit(pulled, dynamic=False)
    for batch in (1, 5, 8):
        x = np.random.default_rng(batch).standard_normal((batch, 4, 9, 7))
        np.testing.assert_allclose(step(x).numpy(), apart(x).numpy(), rtol=1e-11, atol=1e-11)
    [plan], largest = step.plans, apart.plans[-1]
    assert max(b.nbytes for b in plan.buffers) <= 2 * max(b.nbytes for b in largest.buffers)


#: Taps, strides, sizes, dilation and groups with too many remainders for a kernel each.
MANY = (
    ((5, 5), (5, 5), (11, 10), (1, 1), 1), ((10, 5), (5, 5), (23, 17), (1, 1), 2),
    ((6, 12), (6, 4), (13, 29), (1, 1), 2), ((16, 1), (16, 2), (37, 5), (1, 1), 1),
    ((32, 1), (32, 1), (70, 3), (1, 1), 1), ((3, 5), (5, 5), (11, 10), (1, 1), 1),
    ((5, 5), (5, 5), (21, 22), (2, 1), 1), ((7, 10), (5, 5), (12, 23), (1, 1), 2),
)  # fmt: skip


@pytest.mark.parametrize(("taps", "stride", "sizes", "dilation", "groups"), MANY)
def test_of_the_input_with_many_remainders(taps, stride, sizes, dilation, groups):
    test_of_the_input(sizes, dilation, groups, taps, stride)


@pytest.mark.parametrize("stride", [4, 5, 16, 32])
def test_large_strides_make_few_kernels(stride):
    x = krt.tensor(np.ones((1, 3, 2 * stride, 2 * stride), np.float32), requires_grad=True)
    w = krt.tensor(np.ones((8, 3, stride, stride), np.float32))
    gradient = krt.jit(lambda g: krt.grad((x.conv2d(w, stride=stride) * g).sum(), [x])[0])
    g = np.arange(32, dtype=np.float32).reshape(1, 8, 2, 2)
    wanted = np.broadcast_to(g.sum(1, keepdims=True), (1, 3, 2, 2)).repeat(stride, 2)
    np.testing.assert_array_equal(gradient(g).numpy(), wanted.repeat(stride, 3))
    assert len(gradient.plan(g).kernels) <= 24


def test_what_no_window_reaches_is_zero():
    x = krt.tensor(np.ones((1, 1, 8, 8), np.float32), requires_grad=True)
    w = krt.tensor(np.full((1, 1, 1, 1), 2.0, np.float32))
    (found,) = krt.grad(x.conv2d(w, stride=3).sum(), [x])
    wanted = np.zeros((8, 8))
    wanted[::3, ::3] = 2
    np.testing.assert_array_equal(found.numpy()[0, 0], wanted)


def test_second_gradients():
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(shape) for shape in ((1, 2, 7, 6), (3, 2, 3, 2))]
    x, w = (krt.tensor(a, requires_grad=True) for a in arrays)

    def slope(v, f):
        out = v.conv2d(f, stride=2)
        return krt.grad((out * out * out).sum(), [v], create_graph=True)[0].square().sum()

    (found,) = krt.grad(slope(x, w), [w])
    for at in ((0, 0, 0, 0), (1, 1, 2, 1), (2, 0, 1, 0)):
        ends = []
        for step in (1e-5, -1e-5):
            moved = arrays[1].copy()
            moved[at] += step
            ends.append(slope(x, krt.tensor(moved)).item())
        assert found.numpy()[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("taps", [1, 3, 4])
def test_no_product_with_the_zeros_between(taps):
    """The gradient takes about as many products as the forward pass."""
    x = krt.tensor(np.ones((4, 16, 33, 33), np.float32), requires_grad=True)
    w = krt.tensor(np.ones((32, 16, taps, taps), np.float32))

    @krt.jit
    def gradient(g):
        return krt.grad((x.conv2d(w, stride=2) * g).sum(), [x])[0]

    shape = x.conv2d(w, stride=2).shape
    g = krt.tensor(np.ones(shape, np.float32))
    gradient(g)
    flops = sum(k.flops for k in gradient.plan(g).kernels)
    products = 2 * taps * taps * 16 * int(np.prod(shape))
    assert flops < 1.6 * products


@pytest.mark.cases(1)
@pytest.mark.parametrize(("count", "size", "channels"), [(24, 40, 16), (6, 26, 40)])
def test_of_the_filters_over_many_images(count, size, channels):
    """More than a cache holds, so that the sum goes by blocks of images."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((count, 3, size, size), np.float32)
    arrays = [rng.standard_normal(shape, np.float32) / 9
              for shape in ((32, 3, 3, 3), (channels, 32, 3, 3))]  # fmt: skip
    first, second = (krt.tensor(a, requires_grad=True) for a in arrays)

    @krt.jit
    def slopes(v):
        return krt.grad(v.conv2d(first, padding=1).conv2d(second).square().sum(), [first, second])

    found = slopes(krt.tensor(x))

    def seen(v):
        return np.lib.stride_tricks.sliding_window_view(v, (3, 3), (2, 3))

    edge = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    wide = [a.astype(np.float64) for a in arrays]
    hidden = np.einsum("nchwij,ocij->nohw", seen(edge), wide[0], optimize=True)
    g = 2 * np.einsum("nchwij,ocij->nohw", seen(hidden), wide[1], optimize=True)
    filters = np.einsum("nohw,nchwij->ocij", g, seen(hidden), optimize=True)
    back = spread(g, wide[1], hidden.shape, (1, 1), (1, 1), 1)
    for ours, exact in zip(found, (np.einsum(
        "nohw,nchwij->ocij", back, seen(edge), optimize=True
    ), filters), strict=True):  # fmt: skip
        np.testing.assert_allclose(ours.numpy(), exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_filters_of_a_size_known_at_run_time_are_refused_by_name(axis):
    n = krt.Variable("n", 1, 8)
    step = krt.jit(lambda x, w: x.conv_transpose1d(w), dynamic={"w": {axis: n}})
    wanted = f"conv_transpose1d: axis {axis} needs a fixed size"
    with pytest.raises(krt.errors.ShapeError, match=wanted):
        step(np.ones((2, 3, 5), np.float32), np.ones((3, 4, 2), np.float32))
