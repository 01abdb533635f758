"""What backward does: accumulation, leaves, histories, modes."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.errors import GradientError
from kernelrt.ir import Op, toposort
from kernelrt.tensor.autograd.tags import strip


def leaf(*values):
    return krt.tensor(list(values), requires_grad=True)


def test_gradients_add_up():
    x = leaf(1.0, 2.0)
    (x * 3).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first
    assert x.grad.tolist() == [5, 7]
    x.grad.realize()
    (x * 1).sum().backward()
    assert x.grad.tolist() == [6, 8]
    x.zero_grad()
    assert x.grad is None


def test_a_gradient_may_be_given():
    x = leaf(1.0, 2.0)
    (x * x).backward(krt.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2, 40]


def test_equal_leaves_do_not_share_gradients():
    x, y = krt.ones(2, requires_grad=True), krt.ones(2, requires_grad=True)
    (x * 2 + y * 3).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2, 2], [3, 3])


def test_only_leaves_that_are_reached_get_a_gradient():
    x, y = leaf(1.0), leaf(2.0)
    z = leaf(3.0)
    (x * 2).sum().backward()
    assert (y.grad, z.grad) == (None, None)


def test_a_tensor_used_twice():
    x = leaf(2.0, 3.0)
    y = x * x
    (y * y + y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * np.array([8.0, 27.0]) + [4, 6])


def pickled(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_modes_can_be_copied(copied):
    for mode, grad in ((krt.no_grad(), False), (krt.enable_grad(), True)):
        with copied(mode):
            assert krt.is_grad_enabled() is grad
        assert krt.is_grad_enabled()


def test_detach_and_no_grad_stop_gradients():
    x = leaf(2.0)
    (x * x.detach()).sum().backward()
    assert x.grad.tolist() == [2]
    x.grad = None
    with krt.no_grad():
        y = x * x
        assert not krt.is_grad_enabled()
        with krt.enable_grad():
            z = x * 3
    assert not y.requires_grad
    assert z.requires_grad
    (x * y).sum().backward()
    assert x.grad.tolist() == [4]
    with pytest.raises(GradientError, match="requires_grad=True"):
        y.sum().backward()


def test_requires_grad_follows_the_operations():
    x = leaf(1.0)
    assert x.is_leaf
    assert not (x > 0).requires_grad
    assert (x * 2).requires_grad
    assert not (x * 2).is_leaf
    assert not krt.ones(2).requires_grad
    assert not x.long().requires_grad
    with pytest.raises(GradientError, match="detach"):
        (x * 2).requires_grad_(False)
    x.requires_grad_(False)
    assert not x.requires_grad
    assert x.tolist() == [1]
    x.requires_grad = True
    assert x.requires_grad


def test_gradients_of_a_computed_tensor_keep_its_history():
    x = leaf(3.0)
    y = x * x
    assert y.item() == 9
    assert y.requires_grad
    (y * y).sum().backward()
    assert x.grad.tolist() == [108]


def test_a_leaf_may_be_made_of_an_expression():
    x = (krt.ones(2) * 3).requires_grad_()
    y = (x * x).sum()
    assert x.tolist() == [3, 3]
    (y + (x * 2).sum()).backward()
    assert x.grad.tolist() == [8, 8]


def test_gradients_pass_casts_between_floats_only():
    x = leaf(1.5, 2.5)
    (x.double() * 2).sum().backward()
    assert x.grad.dtype is krt.float32
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(GradientError):
        x.long().float().sum().backward()


def test_integers_carry_no_gradient():
    x = leaf(1.0, 2.0)
    (x * krt.tensor([3, 4])).sum().backward()
    assert x.grad.tolist() == [3, 4]


def test_grad_leaves_the_tensors_alone():
    x, y = leaf(2.0), leaf(3.0)
    a, b = krt.grad((x * x * y).sum(), (x, y))
    assert (a.tolist(), b.tolist()) == ([12], [4])
    assert (x.grad, y.grad) == (None, None)
    assert krt.grad((x * 2).sum(), x).tolist() == [2]
    c, d = krt.grad((x * 2).sum(), [x, y], materialize_grads=True)
    assert (c.tolist(), d.tolist()) == ([2], [0])
    with pytest.raises(GradientError, match=r"inputs\[0\]"):
        krt.grad((x * 2).sum(), [krt.tensor(1.0)])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x**3).sum(),
        lambda x: (x.sigmoid() * x.tanh()).sum(),
        lambda x: (x.softmax(-1) * x).sum(),
        lambda x: x.logsumexp(-1).exp().sum(),
        lambda x: (x @ x.T).relu().sum() / 3,
        lambda x: (x[None, None].conv2d(x[None, None, :2, :2]) ** 2).sum(),
        lambda x: (x.layer_norm(4) ** 3).sum(),
        lambda x: x.var(1).sqrt().sum(),
        lambda x: (x[[0, 2, 2]] ** 2).prod(0).sum(),
        lambda x: x.reshape(1, 1, 3, 4).avg_pool2d(2, 1).square().sum(),
    ],
    ids=["cube", "sigmoid_tanh", "softmax", "logsumexp", "matmul", "conv2d", "layer_norm", "var",
         "gather", "avg_pool2d"],
)  # fmt: skip
def test_second_derivatives(f):
    """The gradient of a gradient, against differences of the first."""
    rng = np.random.default_rng(0)
    a, v = rng.uniform(0.5, 1.5, (3, 4)), rng.standard_normal((3, 4))

    def slope(at, *, differentiate):
        x = krt.tensor(at, requires_grad=True)
        (g,) = krt.grad(f(x), (x,), create_graph=True)
        total = (g * krt.tensor(v)).sum()
        return krt.grad(total, x).numpy() if differentiate else total.item()

    got = slope(a, differentiate=True)
    step = rng.standard_normal((3, 4))
    h = 1e-5
    up, down = (slope(a + s * h * step, differentiate=False) for s in (1, -1))
    np.testing.assert_allclose((got * step).sum(), (up - down) / (2 * h), rtol=1e-5, atol=1e-6)


def test_a_gradient_does_not_require_a_gradient_unless_asked():
    x = leaf(2.0)
    (x**3).sum().backward()
    assert not x.grad.requires_grad
    x.grad = None
    (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad


def test_an_assigned_tensor_makes_old_histories_stale():
    x = leaf(2.0)
    y = x * x
    y.realize()
    z = x * 3
    x.assign(x + 1)
    assert x.tolist() == [3]
    assert (y.tolist(), z.tolist()) == ([4], [6])
    for t in (y, z):
        with pytest.raises(GradientError, match="before the assignment"):
            t.sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [6]


def test_a_dead_leaf_is_skipped():
    x, y = leaf(1.0), leaf(2.0)
    loss = (x * y).sum()
    del y
    gc.collect()
    loss.backward()
    assert x.grad.tolist() == [2]


def test_a_deep_graph_does_not_meet_the_recursion_limit():
    x = leaf(1.0)
    y = x
    for _ in range(3000):
        y = (y + x).tanh()
    y.sum().backward(create_graph=True)
    assert len(ops(x.grad)) > 3000


# ---- the size of gradient graphs


# With create_graph the gradients are graphs; without it they would be computed by now.


def ops(tensor):
    return [n.op for n in toposort(strip([tensor.uop]))]


def test_gradients_of_a_product_are_single_contractions():
    x = krt.tensor(np.ones((7, 5)), requires_grad=True)
    w = krt.tensor(np.ones((3, 5)), requires_grad=True)
    g = krt.tensor(np.ones((7, 3)))
    x.linear(w).backward(g)
    for t in (x, w):
        found = ops(t.grad)
        assert found.count(Op.REDUCE_AXIS) == 1
        assert found.count(Op.MUL) == 1


def test_gradients_of_a_convolution_are_single_contractions():
    x = krt.tensor(np.ones((2, 3, 6, 6)), requires_grad=True)
    w = krt.tensor(np.ones((4, 3, 3, 3)), requires_grad=True)
    out = x.conv2d(w, padding=1)
    out.backward(krt.tensor(np.ones(out.shape)))
    for t in (x, w):
        found = ops(t.grad)
        assert found.count(Op.REDUCE_AXIS) == 1
        assert found.count(Op.MUL) == 1


def test_no_products_with_one_and_no_sums_of_repeated_values():
    x = krt.tensor(np.ones((7, 5)), requires_grad=True)
    x.mean().backward(create_graph=True)
    assert set(ops(x.grad)) <= {Op.CONST, Op.RESHAPE, Op.EXPAND}
    b = krt.tensor(np.ones(5), requires_grad=True)
    (krt.tensor(np.ones((7, 5))) + b).sum().backward(create_graph=True)
    assert Op.REDUCE_AXIS not in ops(b.grad)
    assert b.grad.tolist() == [7] * 5


def test_relu_and_tanh_use_their_outputs():
    x = krt.tensor(np.ones(4), requires_grad=True)
    for function in (lambda t: t.exp(), lambda t: t.tanh(), lambda t: t.sqrt(),
                     lambda t: t.sigmoid()):  # fmt: skip
        x.grad = None
        y = function(x)
        y.sum().backward(create_graph=True)
        (inner,) = strip([y.uop])
        assert inner in set(toposort(strip([x.grad.uop])))


def test_gradients_of_a_graph_that_comes_again():
    """Other data, other leaves and what the user holds of the graph, each time anew."""
    rng = np.random.default_rng(5)
    for i in range(6):
        a, b = rng.standard_normal((2, 4))
        x = krt.tensor(a, requires_grad=True)
        y = krt.tensor(b, requires_grad=i % 3 > 0)
        inner = x * y
        held = inner if i % 2 else None
        loss = (inner.tanh() * 2).sum()
        del inner
        loss.backward()
        slope = 2 * (1 - np.tanh(a * b) ** 2)
        np.testing.assert_allclose(x.grad.numpy(), slope * b, rtol=1e-9)
        if y.requires_grad:
            np.testing.assert_allclose(y.grad.numpy(), slope * a, rtol=1e-9)
        else:
            assert y.grad is None
        if held is not None:
            assert held.is_realized
            np.testing.assert_allclose(held.numpy(), a * b, rtol=1e-9)
            held.sum().backward()
            np.testing.assert_allclose(x.grad.numpy(), slope * b + b, rtol=1e-9)
        assert loss.item() == pytest.approx(2 * np.tanh(a * b).sum())


def test_gradients_that_add_up_do_not_become_longer_graphs():
    from kernelrt.tensor.eager.plan_cache import plans

    w = krt.tensor([1.0, 2.0], requires_grad=True)
    for i in range(12):
        if i == 4:
            misses = plans.misses
        (w * w).sum().backward()
        krt.realize()
    assert plans.misses == misses
    assert w.grad.tolist() == [24, 48]
