"""Data that an operation does not take end a run in DomainError, which names them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kernelrt as krt
from kernelrt.ir.domain import WIDE, decoded
from kernelrt.nn import functional as F  # noqa: N812 - as it is written everywhere

torch = pytest.importorskip("torch")

#: How each is called with a library and an array, arrays that are refused, one that is not, the
#: argument that the error names, and the number.
CASES = {
    "bernoulli": (lambda k, _f, x: x.bernoulli(), [[0.5, 1.5], [-1, 0], [0, math.nan]], [0, 1],
                  "probabilities: bernoulli", [1.5, -1, math.nan]),
    "bernoulli_": (lambda k, _f, x: k.zeros(3, 2).bernoulli_(x), [[0.5, 1.5], [-1, 0]], [0, 1],
                   "p: bernoulli", [1.5, -1]),
    "normal": (lambda k, _f, x: k.normal(k.zeros(2), x), [[0, -1], [math.nan, 1]], [0, 1],
               "std: normal at", [-1, math.nan]),
    "normal, number": (lambda k, _f, x: k.normal(1.0, x), [[0, -1]], [0, 1], "std: normal at",
                       [-1]),
    "poisson": (lambda k, _f, x: k.poisson(x), [[0, -1], [math.nan, 1]], [0, 1],
                "rate: poisson", [-1, math.nan]),
    **{f"binary_cross_entropy, {r}": (
        lambda k, f, x, r=r: f.binary_cross_entropy(x, k.ones(2, dtype=x.dtype), reduction=r),
        [[0.5, 1.5], [-0.25, 0.5], [0.5, math.nan]], [0, 1], "input: binary_cross_entropy",
        [1.5, -0.25, math.nan]) for r in ("mean", "sum", "none")},
    **{f"binary_cross_entropy, target, {r}": (
        lambda k, f, x, r=r: f.binary_cross_entropy(k.ones(2, dtype=x.dtype) / 2, x, reduction=r),
        [[0.5, 1.5], [-0.25, 0.5], [0.5, math.nan]], [0, 1], "target: binary_cross_entropy",
        [1.5, -0.25, math.nan]) for r in ("mean", "none")},
    "quantile": (lambda k, _f, x: k.ones(3, dtype=x.dtype).quantile(x),
                 [[0.5, 1.5], [-1, 0.5], [0.5, math.nan]], [0, 1], "q: quantile",
                 [1.5, -1, math.nan]),
    "nanquantile": (lambda k, _f, x: k.ones(3, dtype=x.dtype).nanquantile(x), [[0.5, 1.5]], [0, 1],
                    "q: nanquantile", [1.5]),
    "multinomial": (lambda k, _f, x: x.multinomial(1),
                    [[1, -2], [math.nan, 1], [math.inf, 1], [0, 0]], [1, 0],
                    "probabilities: multinomial", [-2, math.nan, math.inf, 0]),
    "multinomial, again": (lambda k, _f, x: x.multinomial(3, True),
                           [[1, -2], [math.nan, 1], [math.inf, 1], [0, 0]], [1, 0],
                           "probabilities: multinomial", [-2, math.nan, math.inf, 0]),
    **{f"gaussian_nll_loss, {r}": (
        lambda k, f, x, r=r: f.gaussian_nll_loss(k.ones(2, dtype=x.dtype),
                                                 k.ones(2, dtype=x.dtype), x, reduction=r),
        [[1, -2]], [0, math.nan], "var: gaussian_nll_loss", [-2]) for r in ("mean", "none")},
    "histc": (lambda k, _f, x: x.histc(4), [[1, math.nan], [math.inf, 0]], [0, 1], "input: histc",
              [math.nan, math.inf]),
    "histogram": (lambda k, _f, x: x.histogram(4), [[1, math.nan], [-math.inf, 0]], [0, 1],
                  "input: histogram", [math.nan, -math.inf]),
    **{f"{kind.__name__} drawn": (
        lambda k, _f, x, name=kind.__name__: getattr(k.distributions, name)(
            x, validate_args=False).sample((2,)), bad, [0, 1], text, told)
        for kind, bad, text, told in (
            (krt.distributions.Bernoulli, [[0.5, 1.5]], "probabilities: Bernoulli", [1.5]),
            (krt.distributions.Poisson, [[0.5, -1.5]], "rate: Poisson", [-1.5]),
            (krt.distributions.Categorical, [[1, math.nan], [0, 0], [-1, 3]],
             "probabilities: Categorical", [math.nan, math.nan, -0.5]),
            (krt.distributions.OneHotCategorical, [[1, math.nan]],
             "probabilities: Categorical", [math.nan]))},
}  # fmt: skip


def settled(value):
    for v in value if isinstance(value, tuple) else (value,):
        v.numpy()


@pytest.mark.parametrize(("name", "dtype"), [
    *((name, "float32") for name in CASES), ("bernoulli", "float64"), ("multinomial", "float64"),
])  # fmt: skip
def test_what_torch_refuses_is_refused(name, dtype):
    call, refused, taken, text, told = CASES[name]
    settled(call(krt, F, krt.tensor(taken, dtype=dtype)))
    call(torch, torch.nn.functional, torch.tensor(taken, dtype=getattr(torch, dtype)))
    jitted = krt.jit(lambda x: call(krt, F, x))
    for numbers, number in zip(refused, told, strict=True):
        with pytest.raises((RuntimeError, ValueError)):
            call(torch, torch.nn.functional, torch.tensor(numbers, dtype=getattr(torch, dtype)))
        for run in (lambda x: call(krt, F, x), jitted):
            with pytest.raises(krt.DomainError) as caught:
                settled(run(krt.tensor(numbers, dtype=dtype)))
            message = str(caught.value)
            assert message.startswith(text)
            assert "test_domains.py:" in message
            assert f"not {number:g} (" in message
            assert repr(caught.value.value) == repr(float(number))
    settled(jitted(krt.tensor(taken, dtype=dtype)))


@pytest.mark.parametrize("number", [0.1, -1e300, 5e-324, math.inf, -math.inf, 1 / 3, -0.0])
def test_numbers_of_errors_have_twelve_digits(number):
    bits = int(np.float64(number).view(np.uint64)) >> 10
    assert decoded(-1 - WIDE - bits) == pytest.approx(number, rel=1e-11, abs=1e-320)
    if abs(number) < 1e38:
        bits = int(np.float32(number).view(np.uint32))
        assert decoded(-1 - bits) == pytest.approx(number, rel=1e-6, abs=1e-40)


def test_a_check_lets_gradients_through_and_keeps_state():
    w = krt.tensor([0.2, 0.7], requires_grad=True)
    y = krt.tensor([1.0, 0.0])
    (g,) = krt.grad(w.binary_cross_entropy(y, reduction="none").sum(), [w])
    np.testing.assert_allclose(g.numpy(), [-5, 1 / 0.3], rtol=1e-5)
    state = krt.zeros(2)

    @krt.jit
    def step(x):
        loss = x.binary_cross_entropy(y)
        state.add_(loss)
        return loss

    with pytest.raises(krt.DomainError):
        step(krt.tensor([1.5, 0.5]))
    assert state.tolist() == [0, 0]
    rows = krt.tensor([[0.2, 0.7], [0.5, 2.0]])
    with pytest.raises(krt.DomainError, match="not 2 "):
        krt.vmap(lambda r: r.binary_cross_entropy(y))(rows).numpy()
    with pytest.raises(krt.DomainError) as caught:
        krt.jit(lambda x: x.bernoulli()).over(rows, batch_size=1).numpy()
    assert caught.value.step == 1


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nothing_is_refused_where_there_is_nothing(reduction):
    none = krt.zeros(0, 3)
    found = F.binary_cross_entropy(none, none, reduction=reduction)
    wanted = torch.nn.functional.binary_cross_entropy(
        torch.zeros(0, 3), torch.zeros(0, 3), reduction=reduction)  # fmt: skip
    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    assert none.bernoulli().shape == krt.poisson(none).shape == (0, 3)


def test_counts_of_numbers_below_zero():
    with pytest.raises(krt.IndexBoundsError, match="index -1"):
        krt.tensor([-1]).bincount().numpy()
