"""What is made of other operations: windows, functions that assign, errors; rows have the rest."""

from __future__ import annotations

import numpy as np
import pytest
from support.skip_list import Package

import kernelrt as krt
from kernelrt.errors import DomainError, DTypeError, IndexBoundsError, LinAlgError, ShapeError

torch = Package("torch")

WINDOWS = ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("length", [0, 1, 2, 3, 8, 31])
@pytest.mark.parametrize("periodic", [True, False])
def test_windows(name, length, periodic):
    for dtype in ("float64", "float32"):
        ours = getattr(krt, name)(length, periodic, dtype=dtype)
        # torch computes in the type of the result.
        theirs = getattr(torch, name)(length, periodic, dtype=torch.float64).numpy()
        assert ours.dtype.name == dtype
        atol = 1e-13 if dtype == "float64" else 1e-7
        np.testing.assert_allclose(ours.numpy(), theirs, atol=atol)


def test_options_of_windows():
    theirs = torch.hamming_window(9, False, 0.6, 0.3, dtype=torch.float64).numpy()
    ours = krt.hamming_window(9, False, 0.6, 0.3, dtype="float64").numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    theirs = torch.kaiser_window(9, True, 4.5, dtype=torch.float64).numpy()
    ours = krt.kaiser_window(9, beta=4.5, dtype="float64").numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    assert krt.hann_window(3, requires_grad=True).requires_grad
    assert krt.hann_window(3).dtype is krt.float32
    with pytest.raises(DTypeError, match="dtype: expected a floating type, not int64"):
        krt.hann_window(3, dtype="int64")
    with pytest.raises(ShapeError, match="window_length"):
        krt.hann_window(-1)


def test_pairs_of_nothing():
    for shape in ((0, 3), (1, 3), (3, 0)):
        x = krt.zeros(*shape)
        assert x.pdist().tolist() == torch.pdist(torch.zeros(*shape)).tolist()


def test_functions_that_assign():
    x = krt.tensor([1.0, -4.0])
    assert krt.abs_(x) is x
    assert krt.sqrt_(x).tolist() == [1.0, 2.0]
    assert krt.fill_(x, 3.0).tolist() == x.tolist() == [3.0, 3.0]
    assert krt.nn.functional.relu_(krt.neg_(x)) is x
    assert x.tolist() == [0.0, 0.0]
    assert krt.detach(x).tolist() == [0.0, 0.0]
    with pytest.raises(DTypeError, match="exp_: input: expected a Tensor, not list"):
        krt.exp_([1.0])
    assert not hasattr(krt, "add_")


def test_running_statistics_of_instances():
    data = np.random.default_rng(0).normal(size=(3, 2, 5))
    ours = [krt.zeros(2, dtype="float64").realize(), krt.ones(2, dtype="float64").realize()]
    theirs = [torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)]
    a = krt.tensor(data).instance_norm(*ours, momentum=0.3).numpy()
    b = torch.nn.functional.instance_norm(torch.tensor(data), *theirs, momentum=0.3).numpy()
    np.testing.assert_allclose(a, b, rtol=1e-10)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-12)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10])
def test_histograms_count_every_element(bins):
    """The last end is the greatest element, however the ends are rounded."""
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(-9, 9, 25).astype(np.float32)
        hist, ends = krt.tensor(x).histogram(bins)
        assert hist.sum().item() == 25
        assert (ends[0].item(), ends[-1].item()) == (x.min(), x.max())
        expected = np.linspace(x.min(), x.max(), bins + 1)
        np.testing.assert_allclose(ends.numpy(), expected, 1e-6, 1e-6)


def test_squares_of_bools_are_integers():
    x = krt.tensor([True, False])
    assert x.square().dtype is krt.square(x).dtype is (x**2).dtype is krt.int64
    assert x.square().tolist() == [1, 0]


def test_sums_to_no_axes_are_sums():
    x = krt.tensor(True)
    assert x.sum_to_size(()).dtype is x.sum().dtype is krt.int64


def test_keywords_of_functions_that_make_tensors():
    assert krt.scalar_tensor(2.5, requires_grad=True, device="cpu").requires_grad
    assert krt.tril_indices(2, 2, device="cpu").tolist() == [[0, 1, 1], [0, 0, 1]]
    assert krt.triu_indices(2, 2, device="cpu").tolist() == [[0, 0, 1], [0, 1, 1]]
    x = krt.tensor([1.0, 4.0, 9.0])
    assert krt.gradient(x, spacing=None)[0].tolist() == krt.gradient(x)[0].tolist()


@pytest.mark.parametrize(
    ("x", "places", "found"),
    [("float32", "float64", "float64"), ("float32", "int64", "float32"),
     ("float64", "float32", "float64"), ("int64", "float64", "float64")],
)  # fmt: skip
def test_gradients_over_places_have_the_wider_type(x, places, found) -> None:
    values, at = krt.ones(1, 3, dtype=x), krt.arange(3).to(getattr(krt, places))
    assert krt.gradient(values, spacing=(at,), dim=1)[0].dtype is getattr(krt, found)


def test_parts_of_factors():
    packed, pivots = krt.linalg.lu_factor(krt.tensor([[1.0, 2.0], [3.0, 4.0]]))
    p, left, right = krt.lu_unpack(packed, pivots, unpack_data=False)
    assert (p.shape, left.shape, right.shape) == ((2, 2), (0,), (0,))
    p, left, right = krt.lu_unpack(packed, pivots, unpack_pivots=False)
    assert p.shape == (0,)
    np.testing.assert_allclose((left @ right).numpy(), [[3.0, 4.0], [1.0, 2.0]], rtol=1e-6)
    with pytest.raises(DTypeError, match="LU_pivots: expected integers"):
        krt.ones(2, 2).lu_solve(packed, packed)


NAN = float("nan")
WRONG = [
    (lambda: krt.ones(3).pdist(), ShapeError, r"pdist: expected shape \(n, m\)"),
    (lambda: krt.arange(3).histogram(2), DTypeError, "histogram: expected a floating type"),
    (lambda: krt.ones(3).histogram(krt.ones(1)), ShapeError, "bins: expected a vector of at"),
    (lambda: krt.ones(3).histogram(2, range=(2, 1)), DomainError, "range: expected ends in asc"),
    (lambda: krt.ones(3).histogram(2, weight=krt.ones(2)), ShapeError, "weight: expected the sha"),
    (lambda: krt.ones(2, 3).sum_to_size(2, 2), ShapeError, r"size: \(2, 2\) does not broadcast"),
    (lambda: krt.ones(2, 3, 4).H, ShapeError, "H: expected a matrix"),
    (lambda: krt.gradient(krt.ones(1)), ShapeError, "input: expected at least 2 values along"),
    (lambda: krt.gradient(krt.ones(3), spacing=(1, 2)), ShapeError, "spacing: expected one num"),
    (lambda: krt.gradient(krt.ones(3), edge_order=3), DomainError, "edge_order: expected 1 or 2"),
    (lambda: krt.unravel_index(krt.ones(2), (2, 3)), DTypeError, "indices: expected integers"),
    (lambda: [i.tolist() for i in krt.unravel_index(krt.tensor([6]), (2, 3))], IndexBoundsError,
     "6"),
    (lambda: krt.vander(krt.ones(2, 2)), ShapeError, "x: expected a vector"),
    (lambda: krt.nn.functional.affine_grid(krt.ones(1, 2, 3), (2, 1, 3, 3)), ShapeError,
     r"theta: expected shape \(2, 2, 3\)"),
    (lambda: krt.ones(2, 3).instance_norm(), ShapeError, r"input: expected shape \(batch, chan"),
    (lambda: krt.ones(2, 3, 4).instance_norm(use_input_stats=False), ShapeError, "running_mean"),
    (lambda: krt.arange(3).log_softmax(0), DTypeError, "log_softmax: expected a floating type"),
    (lambda: krt.ones(2, 3).triplet_margin_with_distance_loss(krt.ones(3), krt.ones(3)),
     ShapeError, "triplet_margin_with_distance_loss: expected equal numbers"),
    (lambda: krt.ones(2, 3).triplet_margin_loss(krt.ones(3), krt.ones(3)), ShapeError,
     "triplet_margin_loss: expected equal numbers"),
    (lambda: krt.linalg.solve(krt.tensor([[NAN, 1.0], [1.0, 2.0]]), krt.ones(2)).tolist(),
     LinAlgError, "the matrix is singular or holds NaN"),
    (lambda: krt.linalg.cholesky(krt.tensor([[NAN, 1.0], [1.0, 2.0]])).tolist(), LinAlgError,
     "the matrix is not positive definite or holds NaN"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
