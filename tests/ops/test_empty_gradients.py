"""What is made of tensors without elements is a function of them: it has gradients, of zeros."""

from __future__ import annotations

import pytest

import kernelrt as krt

torch = pytest.importorskip("torch")

CALLS = {
    "inv": lambda k, x: k.linalg.inv(x),
    "det": lambda k, x: k.linalg.det(x),
    "slogdet": lambda k, x: k.linalg.slogdet(x)[1],
    "q": lambda k, x: k.linalg.qr(x)[0],
    "r": lambda k, x: k.linalg.qr(x)[1],
    "svdvals": lambda k, x: k.linalg.svdvals(x),
    "svd": lambda k, x: k.linalg.svd(x)[2],
    "eigvalsh": lambda k, x: k.linalg.eigvalsh(x),
    "cholesky": lambda k, x: k.linalg.cholesky(x),
    "nuclear": lambda k, x: k.linalg.matrix_norm(x, "nuc"),
    "pinv": lambda k, x: k.linalg.pinv(x),
    "matrix_exp": lambda k, x: k.linalg.matrix_exp(x),
    "solve": lambda k, x: k.linalg.solve(x, x),
    "solve_nothing": lambda k, x: k.linalg.solve(x, x[..., :0]),
    "solve_triangular": lambda k, x: k.linalg.solve_triangular(x, x[..., :0], upper=True),
    "lu": lambda k, x: k.linalg.lu(x)[2],
    "sort": lambda k, x: x.sort(-1)[0],
    "topk": lambda k, x: x.topk(0, -1)[0],
    "median": lambda k, x: x.median(),
    "nanmedian": lambda k, x: x.nanmedian(),
    "unfold": lambda k, x: x.unfold(1, 0, 1),
    "cumprod": lambda k, x: x.cumprod(-1),
    "prod": lambda k, x: x.prod(),
    "std": lambda k, x: x.std(),
    "scatter_add": lambda k, x: _into_ones(k, x).scatter_add(0, _places(k, x), x),
    "scatter": lambda k, x: _into_ones(k, x).scatter(0, _places(k, x), x),
    "scatter_prod": lambda k, x: _into_ones(k, x).scatter_reduce(0, _places(k, x), x, "prod"),
}


def _into_ones(k, x):
    return k.ones([max(n, 1) for n in x.shape], dtype=k.float64)


def _places(k, x):
    return k.zeros(tuple(x.shape), dtype=k.int64)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_nothing(name, shape):
    found = []
    for k in (krt, torch):
        x = k.zeros(shape, dtype=k.float64, requires_grad=True)
        out = CALLS[name](k, x)
        out.sum().backward()
        found.append((tuple(out.shape), tuple(x.grad.shape), x.grad.numpy().tolist()))
    assert found[0] == found[1]
