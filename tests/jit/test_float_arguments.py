"""Functions that take a Python float take a float argument of a jitted function in its place."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn
from kernelrt.nn import functional

F, L = functional, krt.linalg
X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6) / 3
V = np.array([0.3, -0.2, 0.9, 0.4], np.float32)


def signs(x: Any) -> Any:
    return krt.where(x > 0, 1.0, -1.0)


def labels(x: Any) -> Any:
    return krt.arange(x.shape[0]) % x.shape[1]


def rows(x: Any) -> Any:
    return x.reshape(1, 4, 6)


def image(x: Any) -> Any:
    return x.reshape(1, 1, 4, 6)


def square(x: Any) -> Any:
    return x @ x.mT + krt.eye(4)


#: A call with a float, and two values of it.
CALLS: dict[str, tuple[Any, float, float]] = {
    "allclose": (lambda x, s: x.isclose(x + 0.01, rtol=s), 0.5, 1e-5),
    "isclose(atol)": (lambda x, s: x.isclose(x + 0.01, atol=s), 0.5, 1e-5),
    "add(alpha)": (lambda x, s: krt.add(x, x, alpha=s), 2.5, -1.5),
    "sub(alpha)": (lambda x, s: x.sub(x, alpha=s), 2.5, -1.5),
    "sub_(alpha)": (lambda x, s: (x * 1).sub_(x, alpha=s), 2.5, -1.5),
    "addmm": (lambda x, s: krt.addmm(square(x), x, x.mT, beta=s, alpha=s), 0.5, 2.0),
    "baddbmm": (lambda x, s: krt.baddbmm(square(x)[None], rows(x), rows(x).mT, beta=s), 0.5, 2.0),
    "addmv": (lambda x, s: krt.addmv(x[:, 0], x, x[0], alpha=s), 0.5, 2.0),
    "addr": (lambda x, s: krt.addr(x, x[:, 0], x[0], alpha=s), 0.5, 2.0),
    "addcmul": (lambda x, s: x.addcmul(x, x, value=s), 0.5, 2.0),
    "addcdiv": (lambda x, s: x.addcdiv(x, x.exp(), value=s), 0.5, 2.0),
    "batch_norm(eps)": (lambda x, s: F.batch_norm(x, None, None, training=True, eps=s), 0.5, 1e-3),
    "group_norm(eps)": (lambda x, s: F.group_norm(x, 2, eps=s), 0.5, 1e-3),
    "layer_norm(eps)": (lambda x, s: F.layer_norm(x, (6,), eps=s), 0.5, 1e-3),
    "rms_norm(eps)": (lambda x, s: F.rms_norm(x, (6,), eps=s), 0.5, 1e-3),
    "instance_norm(eps)": (lambda x, s: F.instance_norm(rows(x), eps=s), 0.5, 1e-3),
    "local_response_norm": (
        lambda x, s: F.local_response_norm(rows(x), 2, alpha=s, beta=s, k=s), 0.5, 2.0
    ),
    "bernoulli(0)": (lambda x, s: x.bernoulli(s), 0.0, 1.0),
    "bernoulli_": (lambda x, s: (x * 1).bernoulli_(s), 0.0, 1.0),
    "cdist": (lambda x, s: krt.cdist(x, x + 1, p=s), 1.5, 3.0),
    "celu": (lambda x, s: x.celu(s), 0.5, 2.0),
    "elu": (lambda x, s: x.elu(s), 0.5, 2.0),
    "leaky_relu": (lambda x, s: x.leaky_relu(s), 0.5, 0.1),
    "rrelu": (lambda x, s: x.rrelu(s, s), 0.25, 0.5),
    "prelu": (lambda x, s: F.prelu(x, krt.full((1,), s)), 0.25, 0.5),
    "hardshrink": (lambda x, s: x.hardshrink(s), 0.25, 0.5),
    "softshrink": (lambda x, s: x.softshrink(s), 0.25, 0.5),
    "hardtanh": (lambda x, s: x.hardtanh(-s, s), 0.25, 0.5),
    "relu6 by clamp": (lambda x, s: x.clamp(-s, s), 0.25, 0.5),
    "clip": (lambda x, s: x.clip(max=s), 0.25, 0.5),
    "softplus": (lambda x, s: x.softplus(s, 1.0), 0.5, 2.0),
    "softplus(threshold)": (lambda x, s: x.softplus(2.0, s), 0.5, 2.0),
    "threshold": (lambda x, s: F.threshold(x, s, s), 0.25, 0.5),
    "logit": (lambda x, s: x.logit(eps=s), 0.25, 0.1),
    "cosine_similarity": (lambda x, s: F.cosine_similarity(x, x + 1, eps=s), 5.0, 1e-3),
    "normalize": (lambda x, s: F.normalize(x, p=s), 1.5, 3.0),
    "normalize(eps)": (lambda x, s: F.normalize(x, eps=s), 50.0, 1e-3),
    "pairwise_distance": (lambda x, s: F.pairwise_distance(x, x + 1, p=s, eps=s), 1.5, 3.0),
    "pdist": (F.pdist, 1.5, 3.0),
    "dist": (lambda x, s: x.dist(x * 2, s), 1.5, 3.0),
    "norm": (lambda x, s: x.norm(s), 0.5, math.inf),
    "renorm": (lambda x, s: x.renorm(s, 0, s), 1.0, 2.0),
    "cosine_embedding_loss": (
        lambda x, s: F.cosine_embedding_loss(x, x * 2, signs(x[:, 0]), margin=s), 0.5, 0.1
    ),
    "hinge_embedding_loss": (
        lambda x, s: F.hinge_embedding_loss(x, signs(x), margin=s), 0.5, 1.5
    ),
    "margin_ranking_loss": (
        lambda x, s: F.margin_ranking_loss(x, x * 2, signs(x), margin=s), 0.5, 1.5
    ),
    "multi_margin_loss": (lambda x, s: F.multi_margin_loss(x, labels(x), margin=s), 0.5, 1.5),
    "triplet_margin_loss": (
        lambda x, s: F.triplet_margin_loss(x, x * 2, x * 3, margin=s, p=s, eps=s), 1.5, 2.0
    ),
    "cross_entropy": (lambda x, s: F.cross_entropy(x, labels(x), label_smoothing=s), 0.1, 0.5),
    "huber_loss": (lambda x, s: F.huber_loss(x, x * 2, delta=s), 0.1, 0.5),
    "smooth_l1_loss": (lambda x, s: F.smooth_l1_loss(x, x * 2, beta=s), 0.1, 0.5),
    "gaussian_nll_loss": (lambda x, s: F.gaussian_nll_loss(x, x * 2, x * x, eps=s), 0.1, 0.5),
    "poisson_nll_loss": (
        lambda x, s: F.poisson_nll_loss(x.exp(), x * x, log_input=False, eps=s), 0.1, 0.5
    ),
    "dropout": (F.dropout, 0.0, 1.0),
    "alpha_dropout": (F.alpha_dropout, 0.0, 0.0),
    "gumbel_softmax": (lambda x, s: F.gumbel_softmax(x * 0, tau=s).sum(), 0.5, 2.0),
    "fill_": (lambda x, s: (x * 1).fill_(s), 2.5, -1.0),
    "fill_diagonal_": (lambda x, s: (x * 1).fill_diagonal_(s), 2.5, -1.0),
    "masked_fill": (lambda x, s: x.masked_fill(x > 0, s), 2.5, -1.0),
    "full": (lambda x, s: krt.full((3,), s), 2.5, -1.0),
    "full(dtype)": (lambda x, s: krt.full((3,), s, dtype="int32"), 2.5, -1.0),
    "full_like": (krt.full_like, 2.5, -1.0),
    "new_full": (lambda x, s: x.new_full((3,), s), 2.5, -1.0),
    "scalar_tensor": (lambda x, s: krt.scalar_tensor(s) + x, 2.5, -1.0),
    "pad": (lambda x, s: F.pad(x, (1, 1), value=s), 2.5, -1.0),
    "nan_to_num": (lambda x, s: x.sqrt().nan_to_num(nan=s), 2.5, -1.0),
    "index_fill": (lambda x, s: x.index_fill(0, krt.tensor([1]), s), 2.5, -1.0),
    "index_add": (lambda x, s: x.index_add(0, krt.tensor([1]), x[:1], alpha=s), 2.5, -1.0),
    "scatter": (lambda x, s: x.scatter(0, krt.tensor([[1]]), s), 2.5, -1.0),
    "setitem": (lambda x, s: put(x * 1, s), 2.5, -1.0),
    "where": (lambda x, s: krt.where(x > 0, x, s), 2.5, -1.0),
    "lerp": (lambda x, s: x.lerp(x * 2, s), 0.5, 2.0),
    "pow": (lambda x, s: x.abs().pow(s), 0.5, 2.0),
    "float_power": (lambda x, s: x.abs().float_power(s), 0.5, 2.0),
    "fmod": (lambda x, s: x.fmod(s), 0.5, 2.0),
    "remainder": (lambda x, s: x.remainder(s), 0.5, 2.0),
    "heaviside": (lambda x, s: (x * 0).heaviside(krt.full((1,), s)), 0.5, 2.0),
    "var": (lambda x, s: x.var(correction=s), 0.5, 2.0),
    "std": (lambda x, s: x.std(correction=s), 0.5, 2.0),
    "std_mean": (lambda x, s: krt.std_mean(x, correction=s)[0], 0.5, 2.0),
    "var_mean": (lambda x, s: krt.var_mean(x, correction=s)[0], 0.5, 2.0),
    "quantile": (lambda x, s: x.quantile(s), 0.5, 0.2),
    "histc": (lambda x, s: x.histc(4, -s, s), 0.5, 1.0),
    "searchsorted": (lambda x, s: krt.searchsorted(x[0], s), 0.5, -0.2),
    "lp_pool1d": (lambda x, s: F.lp_pool1d(rows(x), s, 2), 1.5, 3.0),
    "lp_pool2d": (lambda x, s: F.lp_pool2d(image(x), s, 2), 1.5, 3.0),
    "interpolate": (lambda x, s: F.interpolate(rows(x), scale_factor=s), 2.0, 0.5),
    "attention": (
        lambda x, s: F.scaled_dot_product_attention(rows(x), rows(x), rows(x), scale=s), 0.5, 2.0
    ),
    "arange": (lambda x, s: krt.arange(0.0, s, 0.5), 2.0, 3.0),
    "arange(step)": (lambda x, s: krt.arange(0.0, 4.0, s), 1.0, 0.5),
    "linspace": (lambda x, s: krt.linspace(0.0, s, 5), 2.0, 3.0),
    "logspace": (lambda x, s: krt.logspace(0.0, s, 5, base=s), 2.0, 3.0),
    "hamming_window": (lambda x, s: krt.hamming_window(5, alpha=s, beta=s), 0.5, 0.3),
    "kaiser_window": (lambda x, s: krt.kaiser_window(5, beta=s), 8.0, 3.0),
    "trapezoid": (lambda x, s: krt.trapezoid(x, dx=s), 0.5, 2.0),
    "cumulative_trapezoid": (lambda x, s: krt.cumulative_trapezoid(x, dx=s), 0.5, 2.0),
    "gradient": (lambda x, s: krt.gradient(x, spacing=s)[0], 0.5, 2.0),
    "diff": (lambda x, s: x.diff(prepend=krt.full((4, 1), s)), 0.5, 2.0),
    "uniform": (lambda x, s: krt.uniform(3, low=s, high=s), 0.5, 2.0),
    "uniform_": (lambda x, s: (x * 1).uniform_(s, s), 0.5, 2.0),
    "normal": (lambda x, s: krt.normal(s, 0.0, (3,)), 0.5, 2.0),
    "normal_": (lambda x, s: (x * 1).normal_(s, 0.0), 0.5, 2.0),
    "log_normal_": (lambda x, s: (x * 1).log_normal_(s, 1e-9), 0.5, 2.0),
    "exponential_": (lambda x, s: (x * 1).exponential_(s) > 0, 0.5, 2.0),
    "cauchy_": (lambda x, s: (x * 1).cauchy_(s, 1e-30), 0.5, 2.0),
    "geometric_": (lambda x, s: (x * 1).geometric_(s) > 0, 0.5, 0.2),
    "xavier_uniform": (lambda x, s: krt.xavier_uniform(3, 4, gain=s), 0.0, 0.0),
    "xavier_normal": (lambda x, s: krt.xavier_normal(3, 4, gain=s), 0.0, 0.0),
    "kaiming_uniform": (lambda x, s: krt.kaiming_uniform(3, 4, a=s).shape[0] * x, 0.5, 2.0),
    "kaiming_normal": (lambda x, s: krt.kaiming_normal(3, 4, a=s).shape[0] * x, 0.5, 2.0),
    "linalg.norm": (L.norm, 1.0, math.inf),
    "linalg.vector_norm": (L.vector_norm, 1.5, math.inf),
    "linalg.matrix_norm": (L.matrix_norm, 1.0, math.inf),
    "linalg.cond": (lambda x, s: L.cond(square(x), s), 1.0, math.inf),
    "linalg.matrix_rank": (lambda x, s: L.matrix_rank(square(x), rtol=s), 0.5, 1e-3),
    "linalg.pinv": (lambda x, s: L.pinv(square(x), rcond=s), 0.5, 1e-3),
    "Dropout": (lambda x, s: nn.Dropout(s)(x), 0.0, 1.0),
    "LeakyReLU": (lambda x, s: nn.LeakyReLU(s)(x), 0.5, 0.1),
    "a derived number": (lambda x, s: x.norm(s * 2 + 1), 0.5, 1.0),
    "in scan": (
        lambda x, s: krt.scan(lambda c, t: (c + t.norm(s), None), krt.tensor(0.0), x)[0], 0.5, 3.0
    ),
    "in vmap": (lambda x, s: krt.vmap(lambda a: a.norm(s))(x), 0.5, 3.0),
    "in grad": (lambda x, s: krt.func.grad(lambda a: a.norm(s))(x), 1.5, 3.0),
}  # fmt: skip


def put(x: Any, s: Any) -> Any:
    x[0] = s
    return x


@pytest.mark.cases(12)
@pytest.mark.parametrize("stepwise", [False, True], ids=["jit", "step by step"])
@pytest.mark.parametrize("name", CALLS)
def test_a_float_argument_comes_to_the_same_as_the_number(name: str, stepwise: bool) -> None:
    call, one, other = CALLS[name]
    jitted = krt.jit(call)
    for value in (one, other, one):
        krt.manual_seed(1)
        wanted = call(krt.tensor(X), value)
        krt.manual_seed(1)
        with krt.disable_jit() if stepwise else contextlib.nullcontext():
            found = jitted(X, value)
        assert found.dtype is wanted.dtype
        np.testing.assert_allclose(
            found.detach().numpy(), wanted.detach().numpy(), rtol=2e-5, atol=1e-6
        )
    assert jitted.retraces <= 1


def test_numbers_that_need_no_value_share_a_plan() -> None:
    fill = krt.jit(lambda x, s: krt.full_like(x, s) + krt.full((6,), s) + (x * 1).fill_(s))
    for s in (1.0, 2.0, 3.0):
        assert fill(X, s).numpy()[0, 0] == 3 * s
    assert fill.retraces == 0


def test_the_value_is_part_of_the_program_where_it_must() -> None:
    f = krt.jit(lambda x, a, b: x.norm(a) * b)
    for a, b in ((1.0, 2.0), (1.0, 3.0), (2.0, 3.0), (0.0, 3.0), (-0.0, 3.0), (1.0, 4.0)):
        wanted = krt.tensor(X).norm(a).item() * b
        assert f(X, a, b).item() == pytest.approx(wanted, rel=1e-5)
    assert len(f.plans) == 4
    assert "a: 2.0, b: float; a changed from 1.0 to 2.0" in f.explain()


def test_wrong_numbers_are_told_by_their_own_words() -> None:
    with pytest.raises(krt.DomainError, match="p: "):
        krt.jit(lambda x, s: krt.cdist(x, x, p=s))(X, -1.0)
    with pytest.raises(krt.DTypeError, match="shape"):
        krt.jit(lambda x, s: x.reshape(s))(X, 24.0)
    for read in (float, bool, math.sqrt, lambda s: s.item()):
        with pytest.raises(krt.JitError, match="reads a value"):
            krt.jit(lambda x, s, read=read: x * read(s))(X, 2.0)


def test_functions_of_the_package_take_their_names_of_parameters() -> None:
    flip = krt.jit(krt.flip)
    assert flip(krt.arange(3), dims=(0,)).tolist() == [2, 1, 0]
    assert flip(krt.arange(3), dims=(0,)).tolist() == [2, 1, 0]
    assert flip.retraces == 0
    with pytest.raises(TypeError, match="nothing"):
        flip(krt.arange(3), nothing=1)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_fill_takes_a_float_argument(dtype):
    """As a Python number does, it loses its fraction in integers."""
    def filled(c):
        return krt.zeros(3, dtype=dtype).logical_not().cast(dtype).fill_(c)

    for c in (2.5, 0.0, 7.0):
        assert krt.jit(filled)(c).tolist() == filled(c).tolist()
