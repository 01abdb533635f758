"""Matrices that hold NaN or infinities, or have no inverse: the oracle is torch."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt

torch = Package("torch")

NAN, INF = np.nan, np.inf


def holding(n, special):
    """Matrices of n rows, each with a special number in another place, and some without."""
    rng = np.random.default_rng(n)
    places = [*range(n * n), None]
    out = rng.standard_normal((len(places), n, n)) + 3 * np.eye(n)
    for a, place in zip(out, places, strict=True):
        if place is not None:
            a.flat[place] = special
    return out


def agree(got, want):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("special", "sizes"), [(NAN, [1, 2, 3, 4, 6]), (0.0, [1, 2, 3, 4, 6]), (INF, [1, 2])]
)
def test_determinants(special, sizes):
    # Of more rows the order of eliminating says which infinities become NaN.
    for n in sizes:
        a = holding(n, special)
        ours, theirs = krt.tensor(a), torch.tensor(a)
        agree(krt.linalg.slogdet(ours), torch.linalg.slogdet(theirs))
        agree([ours.logdet()], [theirs.logdet()])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_determinants_of_nan(n):
    a = holding(n, NAN)
    agree([krt.linalg.det(krt.tensor(a))], [torch.linalg.det(torch.tensor(a))])


@pytest.mark.parametrize("n", [1, 2, 4])
def test_inverses_that_are_not_checked(n):
    a = holding(n, NAN)
    ours, theirs = krt.linalg.inv_ex(krt.tensor(a)), torch.linalg.inv_ex(torch.tensor(a))
    agree(ours[:1], theirs[:1])


@pytest.mark.parametrize(
    "a",
    [[[1, 2], [2, 4]], [[0]], [[4, 2], [2, 1]], [[1, 0, 0], [0, 0, 0], [0, 0, 1]], [[1, 3], [3, 1]],
     [[-1, 0], [0, 2]], [[NAN, 0], [0, 1]], [[1, NAN], [NAN, 1]], [[1, 0], [0, INF]], [[INF]],
     [[INF, INF], [INF, 1]], [[2, 1], [1, 3]]],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("upper", [False, True])
def test_which_matrices_have_a_cholesky_factor(a, upper):
    """As :func:`cholesky` and torch say it, in the number of `cholesky_ex` and by an error."""
    a = np.array(a, np.float64)
    want = torch.linalg.cholesky_ex(torch.tensor(a), upper=upper).info.item() != 0
    assert krt.linalg.cholesky_ex(krt.tensor(a), upper=upper).info.item() == want
    if want:
        with pytest.raises(krt.linalg.LinAlgError):
            krt.linalg.cholesky(krt.tensor(a)).numpy()
    else:
        krt.linalg.cholesky(krt.tensor(a)).numpy()


def test_the_cholesky_numbers_of_a_batch_and_of_nothing():
    a = krt.tensor(np.stack([np.eye(2), [[1.0, 2], [2, 4]], [[-1.0, 0], [0, 1]]]))
    assert krt.linalg.cholesky_ex(a).info.tolist() == [0, 1, 1]
    assert krt.linalg.cholesky_ex(krt.zeros(2, 0, 0)).info.tolist() == [0, 0]


@pytest.mark.parametrize(("name", "options"), [
    ("matrix_rank", {"tol": 0.1, "atol": 0.1}), ("pinv", {"rcond": 0.1, "rtol": 0.1}),
])  # fmt: skip
def test_a_limit_goes_by_one_of_its_names(name, options):
    with pytest.raises(TypeError, match=" is an alias of ".join(options)):
        getattr(krt.linalg, name)(krt.eye(2), **options)


def test_factors_without_exchanges_are_refused():
    for name in ("lu", "lu_factor"):
        with pytest.raises(krt.linalg.LinAlgError, match="pivot: expected True"):
            getattr(krt.linalg, name)(krt.eye(2), pivot=False)


def test_limits_of_bools_are_refused():
    with pytest.raises(krt.DTypeError, match=r"rtol: .* not bools"):
        krt.linalg.pinv(krt.eye(2), rtol=krt.tensor([True]))


def test_a_power_of_zero_has_a_gradient_of_zeros():
    x = krt.eye(2).requires_grad_()
    krt.linalg.matrix_power(x, 0).sum().backward()
    assert x.grad.tolist() == [[0, 0], [0, 0]]
    y = krt.ones(1, 3, requires_grad=True)
    y.pdist().sum().backward()
    assert y.grad.tolist() == [[0, 0, 0]]


def test_a_driver_that_nobody_has_is_refused():
    with pytest.raises(krt.DomainError, match=r"driver: expected one of gels, .* not 'gelz'"):
        krt.linalg.lstsq(krt.eye(2), krt.eye(2), driver="gelz")


@pytest.mark.parametrize("call", [
    lambda k, x: k.linalg.cholesky(x), lambda k, x: k.linalg.cholesky(x, upper=True),
    lambda k, x: k.linalg.eigvalsh(x), lambda k, x: k.linalg.eigh(x)[1].square(),
    lambda k, x: k.linalg.eigh(x, UPLO="U")[1].square(), lambda k, x: k.logdet(x),
])  # fmt: skip
def test_the_gradient_of_a_symmetric_matrix_is_symmetric(call):
    """Of the matrix itself, not of what made it symmetric."""
    rng = np.random.default_rng(2)
    half = rng.standard_normal((2, 4, 4))
    a = half @ half.swapaxes(1, 2) + np.diag([4.0, 5, 6, 7])
    x, y = krt.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    found, wanted = call(krt, x), call(torch, y)
    weights = rng.uniform(0.5, 2, wanted.shape)
    (found * krt.tensor(weights)).sum().backward()
    (wanted * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(x.grad.numpy(), x.grad.mT.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("call", "name"), [
    (lambda x: krt.linalg.eigh(x).eigenvectors, "eigh"), (lambda x: x.svd()[0], "svd"),
    (krt.linalg.svdvals, "svd"), (krt.linalg.inv, "inv"), (krt.linalg.pinv, "(svd|pinv)"),
], ids=["eigh", "svd", "svdvals", "inv", "pinv"])  # fmt: skip
def test_errors_name_the_line(call, name):
    for function in (call, krt.jit(lambda x: call(x))):  # noqa: PLW0108 - its line is told
        with pytest.raises(krt.LinAlgError, match=rf"^{name} \(test_special_matrices\.py:\d+\): "):
            function(krt.tensor([[np.nan, 1.0], [1.0, 2.0]])).numpy()


@pytest.mark.parametrize("read", [lambda x: x, lambda x: x.sum(), lambda x: x.exp() * 2])
def test_errors_name_the_operation_and_its_line(read):
    a, b = krt.zeros(3, 3).realize(), krt.ones(3).realize()
    for _ in range(3):
        x = read(krt.linalg.solve(a, b))
        with pytest.raises(krt.LinAlgError, match=r"^solve \(test_special_matrices.py:\d+\): "):
            x.tolist()


def test_errors_name_methods_that_assign():
    x = krt.zeros(2, 3)
    x.scatter_(0, krt.tensor([[7]]), 1.0)
    with pytest.raises(krt.IndexBoundsError, match=r"scatter at test_special_matrices.py:\d+"):
        x.tolist()
