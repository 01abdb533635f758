"""Derivatives of functions of nested tensors, against torch.func."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import func
from kernelrt.func import trees

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X, W, B = RNG.standard_normal(5), RNG.standard_normal((4, 5)), RNG.uniform(0.5, 2, 4)
KITS = [(krt, func), (torch, torch.func)]


class Pair(NamedTuple):
    left: Any
    right: Any


def pulled(f, function, *primals):
    out, pull = f.vjp(function, *primals)
    return out, pull(out * 2)


def pushed(f, function, *primals):
    out, push = f.linearize(function, *primals)
    return out, push(*primals)


def layer(x, w, b):
    return ((w @ x) + b).tanh() * b


def scalar(x, w, b):
    return (layer(x, w, b) ** 2).sum() + x.exp().prod()


def nested(parameters, x):
    h = x
    for w, b in parameters["layers"]:
        h = (w @ h + b).sigmoid()
    return {"out": h, "rest": (parameters["scale"] * h.sum(), [h.softmax(0)])}


def loss(parameters, x):
    found = nested(parameters, x)
    return found["rest"][0] + (found["out"] * found["rest"][1][0]).sum()


def given(k, *arrays):
    return [k.tensor(a) for a in arrays]


def parameters_in(k):
    return {
        "layers": [tuple(given(k, W, B)), tuple(given(k, W[:3, :4], B[:3]))],
        "scale": k.tensor(0.75, dtype=k.float64),
    }


def arrays_of(tree):
    if isinstance(tree, dict):
        return [a for key in sorted(tree) for a in arrays_of(tree[key])]
    if isinstance(tree, list | tuple):
        return [a for child in tree for a in arrays_of(child)]
    return [tree.detach().numpy()]


def agree(program):
    """Whether a program of (library, its func) gives the same in both."""
    ours, theirs = (arrays_of(program(*kit)) for kit in KITS)
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


PROGRAMS = {
    "grad": lambda k, f: f.grad(scalar)(*given(k, X, W, B)),
    "grad_of_several": lambda k, f: f.grad(scalar, (0, 2))(*given(k, X, W, B)),
    "grad_of_the_last": lambda k, f: f.grad(scalar, argnums=-1)(*given(k, X, W, B)),
    "grad_and_value": lambda k, f: f.grad_and_value(scalar)(*given(k, X, W, B)),
    "nested_parameters": lambda k, f: f.grad(loss)(parameters_in(k), k.tensor(X)),
    "grad_of_grad": lambda k, f: f.grad(
        lambda x: f.grad(scalar)(x, *given(k, W, B)).sin().sum())(k.tensor(X)),
    "third": lambda k, f: f.grad(f.grad(f.grad(lambda x: x.sin() * x**3)))(
        k.tensor(0.7, dtype=k.float64)),
    "mixed": lambda k, f: f.grad(
        lambda w: f.grad(scalar, 0)(k.tensor(X), w, k.tensor(B)).prod())(k.tensor(W)),
    "of_an_outer_variable": lambda k, f: f.grad(
        lambda x: f.grad(lambda y: (x * y * y).sum())(x * 2).sum())(k.tensor(X)),
    "beside_an_inner_one": lambda k, f: f.grad(
        lambda x: (x * f.grad(lambda y: (y**3).sum())(x)).sum())(k.tensor(X)),
    "vjp": lambda k, f: pulled(f, layer, *given(k, X, W, B)),
    "vjp_of_one": lambda k, f: pulled(f, k.exp, k.tensor(X)),
    "jvp": lambda k, f: f.jvp(layer, tuple(given(k, X, W, B)), tuple(given(k, X + 1, W * 2, B))),
    "jvp_of_jvp": lambda k, f: f.jvp(
        lambda x: f.jvp(lambda y: layer(y, *given(k, W, B)), (x,), (x * x,))[1],
        (k.tensor(X),), (k.tensor(X + 1),)),
    "jvp_of_grad": lambda k, f: f.jvp(
        f.grad(lambda x: scalar(x, *given(k, W, B))), (k.tensor(X),), (k.tensor(X + 1),)),
    "grad_of_jvp": lambda k, f: f.grad(
        lambda x: f.jvp(lambda y: layer(y, *given(k, W, B)), (x,), (x * x,))[1].sum()
    )(k.tensor(X)),
    "linearize": lambda k, f: pushed(f, layer, *given(k, X, W, B)),
    "jacrev": lambda k, f: f.jacrev(layer, (0, 1, 2))(*given(k, X, W, B)),
    "jacfwd": lambda k, f: f.jacfwd(layer, (0, 1, 2))(*given(k, X, W, B)),
    "jacrev_nested": lambda k, f: f.jacrev(nested)(parameters_in(k), k.tensor(X)),
    "jacfwd_nested": lambda k, f: f.jacfwd(nested)(parameters_in(k), k.tensor(X)),
    "hessian": lambda k, f: f.hessian(scalar, (0, 2))(*given(k, X, W, B)),
    "hessian_of_many": lambda k, f: f.hessian(layer)(*given(k, X, W, B)),
    "hessian_nested": lambda k, f: f.hessian(loss)(parameters_in(k), k.tensor(X)),
    "rows_of_columns_of_rows": lambda k, f: f.jacrev(f.jacfwd(f.jacrev(layer)))(
        *given(k, X, W, B)),
    "grad_of_a_jacobian": lambda k, f: f.grad(
        lambda x: (f.jacrev(layer)(x, *given(k, W, B)) ** 2).sum())(k.tensor(X)),
    "not_depending": lambda k, f: f.grad(lambda x, y: (y * y).sum(), (0, 1))(*given(k, X, B)),
    "jacobian_of_nothing": lambda k, f: f.jacrev(lambda x: k.ones(3) * 2)(k.tensor(X)),
    "columns_of_nothing": lambda k, f: f.jvp(lambda x: x.detach() * 2, (k.tensor(X),),
                                             (k.tensor(X),)),
    "sorted": lambda k, f: (f.jacrev(lambda x: x.sort()[0] * x)(k.tensor(X)),
                            f.jacfwd(lambda x: x.sort()[0] * x)(k.tensor(X))),
    "indexed": lambda k, f: f.jacrev(lambda x: x[k.tensor([0, 3, 3])] * x[1])(k.tensor(X)),
    "convolved": lambda k, f: f.jacfwd(
        lambda x: (k if k is torch else krt).nn.functional.conv1d(
            x.reshape(1, 1, 5), k.tensor(W[:2, None, :3])).tanh())(k.tensor(X)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    agree(PROGRAMS[name])


@pytest.mark.parametrize("transform", ["grad", "grad_and_value", "jacrev", "jacfwd"])
def test_aux(transform):
    def program(k, f):
        def both(x):
            return (x**2).sum(), {"aux": x * 3, "more": (x.sum(),)}

        return getattr(f, transform)(both, has_aux=True)(k.tensor(X))

    agree(program)


def test_aux_beside_products():
    def both(x):
        return x**2, x * 3

    agree(lambda k, f: f.jvp(both, (k.tensor(X),), (k.tensor(X),), has_aux=True))

    def program(k, f):
        out, pull, aux = f.vjp(both, k.tensor(X), has_aux=True)
        return out, pull(out), aux

    agree(program)


def test_value_and_grad_is_in_the_order_of_jax():
    x = krt.tensor(X)
    value, slopes = func.value_and_grad(lambda x: (x**3).sum())(x)
    np.testing.assert_allclose(value.numpy(), (X**3).sum())
    np.testing.assert_allclose(slopes.numpy(), 3 * X**2)
    (value, aux), _ = func.value_and_grad(lambda x: (x.sum(), "text"), has_aux=True)(x)
    assert aux == "text"


def test_named_tuples_stay_what_they_are():
    pair = Pair(krt.tensor(X), [krt.tensor(B)])
    found = func.grad(lambda p: (p.left**2).sum() + p.right[0].exp().sum())(pair)
    assert isinstance(found, Pair)
    np.testing.assert_allclose(found.right[0].numpy(), np.exp(B))


def test_results_of_plain_tensors_are_plain():
    x = krt.tensor(X)
    slopes, value = func.grad_and_value(lambda x: (x**2).sum())(x)
    out, pull = func.vjp(krt.exp, x)
    jacobian = func.jacrev(lambda x: x * x)(x)
    _, tangent = func.jvp(krt.exp, (x,), (x,))
    for t in (slopes, value, out, pull(out), jacobian, tangent):
        assert not t.requires_grad
    assert x.grad is None
    assert not x.requires_grad


def test_tensors_outside_get_gradients_of_gradients():
    """What the function reads besides its arguments is differentiated by backward, too."""
    w = krt.tensor(W, requires_grad=True)
    v = torch.tensor(W, requires_grad=True)
    func.grad(lambda x: (w @ x).exp().sum())(krt.tensor(X)).square().sum().backward()
    torch.func.grad(lambda x: (v @ x).exp().sum())(torch.tensor(X)).square().sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), v.grad.numpy())


def test_parameters_as_arguments():
    w = krt.tensor(W, requires_grad=True)
    slopes = func.grad(lambda w: (w**3).sum())(w)
    np.testing.assert_allclose(slopes.numpy(), 3 * W**2)
    assert w.grad is None
    slopes.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 6 * W)


def test_without_recording():
    with krt.no_grad():
        slopes = func.grad(lambda x: (x**3).sum())(krt.tensor(X, requires_grad=True))
    np.testing.assert_allclose(slopes.numpy(), 3 * X**2)
    assert not slopes.requires_grad


def test_values_that_are_read_on_the_way():
    def branching(x):
        return (x * x).sum() if x.sum().item() > 0 else x.sum()

    x = krt.tensor(np.abs(X))
    np.testing.assert_allclose(func.grad(branching)(x).numpy(), 2 * np.abs(X))
    np.testing.assert_allclose(func.grad(branching)(-x).numpy(), 1)

    def computed(x):
        h = (x * x).realize()
        return (h * h).sum()

    np.testing.assert_allclose(func.hessian(computed)(x).numpy(), np.diag(12 * X**2))


def test_gradients_inside():
    """krt.grad in a function that is differentiated."""

    def slope(x):
        return krt.grad((x**3).sum(), x, create_graph=True).sum()

    np.testing.assert_allclose(func.grad(slope)(krt.tensor(X)).numpy(), 6 * X)


def test_types():
    for dtype in (krt.float16, krt.bfloat16, krt.float32, krt.float64):
        x = krt.tensor([1.0, 2.0], dtype=dtype)
        found = func.grad(lambda x: (x * x).sum())(x)
        assert found.dtype is dtype
        assert found.tolist() == [2, 4]
        assert func.jacfwd(lambda x: x * x)(x).dtype is dtype
    mixed = func.jacrev(lambda x: x.double() * 3)(krt.tensor([1.0, 2.0]))
    assert mixed.dtype is krt.float32
    tangent = func.jvp(lambda x: x.double() * 3, (krt.tensor([1.0]),), (krt.tensor([1.0]),))[1]
    assert tangent.dtype is krt.float64


def test_refusals():
    x, i = krt.tensor(X), krt.tensor([1, 2])
    with pytest.raises(krt.GradientError, match=r"shape \(5\).*jacrev|shape \(5,\).*jacrev"):
        func.grad(krt.exp)(x)
    with pytest.raises(krt.GradientError, match=r"argument 0.*int64.*float"):
        func.grad(lambda i: i.sum())(i)
    with pytest.raises(krt.GradientError, match=r"result.*int64"):
        func.grad(lambda x: x.long().sum())(x)
    with pytest.raises(krt.DTypeError, match="returns a float"):
        func.grad(lambda x: 3.0)(x)
    with pytest.raises(krt.DTypeError, match=r"argument 1.*ndarray"):
        func.grad(lambda x, y: x.sum(), 1)(x, X)
    with pytest.raises(krt.ShapeError, match="argnums: position 2 is out of range"):
        func.grad(lambda x: x.sum(), 2)(x)
    with pytest.raises(krt.ShapeError, match="once"):
        func.grad(lambda x, y: x.sum(), (0, -2))(x, x)
    with pytest.raises(krt.ShapeError, match="at least one"):
        func.grad(lambda x: x.sum(), ())(x)
    with pytest.raises(krt.DTypeError, match="argnums"):
        func.grad(lambda x: x.sum(), "x")(x)
    with pytest.raises(krt.DTypeError, match="has_aux"):
        func.grad(lambda x: x.sum(), has_aux=True)(x)
    with pytest.raises(krt.ShapeError, match="tangents"):
        func.jvp(krt.exp, (x,), (x, x))
    with pytest.raises(krt.ShapeError, match=r"tangents.*\(5"):
        func.jvp(krt.exp, (x,), (x[:2],))
    with pytest.raises(krt.GradientError, match="tangents"):
        func.jvp(krt.exp, (x,), (x.long(),))
    with pytest.raises(krt.DTypeError, match="primals"):
        func.jvp(krt.exp, x, x)
    out, pull = func.vjp(lambda x: {"a": x, "b": (x, x)}, x)
    with pytest.raises(krt.ShapeError, match=r"cotangents.*\{'a': \*, 'b': \(\*, \*\)\}"):
        pull({"a": x, "b": x})
    with pytest.raises(krt.DTypeError, match="cotangents"):
        pull({"a": 1.0, "b": (x, x)})
    assert pull({"b": (x, x), "a": x}).tolist() == (3 * X).tolist()
    assert list(out) == ["a", "b"]


def test_no_elements():
    x, none = krt.tensor(X), krt.tensor(X[:0])
    for transform in (func.jacrev, func.jacfwd):
        assert transform(lambda x: x[:0] * 2)(x).shape == (0, 5)
        assert transform(lambda x: x.sum() * 2)(none).shape == (0,)
        assert transform(lambda x: krt.ones(3) * x.sum())(none).shape == (3, 0)
    assert func.hessian(lambda x: x.sum())(none).shape == (0, 0)
    assert func.grad(lambda x: x.sum())(none).shape == (0,)


def test_trees():
    tree = {"b": [1, (2, 3)], "a": Pair(4, {})}
    assert list(trees.leaves_of(tree)) == [1, 2, 3, 4]
    assert trees.rebuilt(tree, [5, 6, 7, 8]) == {"b": [5, (6, 7)], "a": Pair(8, {})}
    assert trees.flatten({"a": (4, {}), "b": (1, [2, 3])}, tree, "t") == [1, 2, 3, 4]


def test_every_operation_has_a_batched_form():
    from kernelrt.ir import Op
    from kernelrt.ir.tensor_spec import TENSOR
    from kernelrt.tensor.tracing import batching_rules

    # Marks, loops and choices, which batched_regions has, and what depends on nothing.
    apart = {Op.DETACH, Op.REGION, Op.CONST, Op.VAR, Op.BUFFER, Op.IOTA}
    known = batching_rules._RULES.keys() | (TENSOR.keys() & batching_rules._LIFTED)
    assert TENSOR.keys() - apart == known


@pytest.mark.parametrize("transform", [func.jacrev, func.jacfwd])
def test_routines_solve_the_problems_of_all_rows(transform):
    a = np.random.default_rng(1).standard_normal((2, 3, 3)) + 4 * np.eye(3)
    solved = transform(krt.linalg.inv)(krt.tensor(a)).numpy()
    inverse = np.linalg.inv(a)
    expected = np.zeros((2, 3, 3, 2, 3, 3))
    for b in range(2):  # d inv(A) = -inv(A) dA inv(A)
        expected[b, :, :, b] = -np.einsum("ik,lj->ijkl", inverse[b], inverse[b])
    np.testing.assert_allclose(solved, expected, rtol=1e-10, atol=1e-12)
