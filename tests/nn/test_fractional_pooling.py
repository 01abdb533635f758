"""Max pooling at drawn places: what is drawn, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt
from kernelrt import nn

F = nn.functional


def test_windows_begin_at_drawn_places() -> None:
    """Steps of two sizes, the last window at the end; each channel has its own."""
    krt.manual_seed(3)
    size, count, kernel = 23, 9, 2
    x = krt.arange(size * size, dtype=krt.float32).reshape(1, 1, size, size).expand(40, 5, -1, -1)
    values, places = F.fractional_max_pool2d(x, kernel, count, return_indices=True)
    rows, columns = places.numpy() // size, places.numpy() % size
    assert (rows == rows[..., :1]).all()
    assert (columns == columns[..., :1, :]).all()
    for ends in (rows[..., 0], columns[..., 0, :]):
        starts = ends - (kernel - 1)
        assert (starts[..., 0] == 0).all()
        assert (starts[..., -1] == size - kernel).all()
        assert set(np.diff(starts).ravel()) == {2, 3}
        assert len({tuple(s) for s in starts.reshape(-1, count)}) > 4
    assert (values == places).all()


def test_a_seed_says_what_is_drawn_and_each_call_draws() -> None:
    layer, x = nn.FractionalMaxPool2d(2, output_ratio=0.4), krt.randn(3, 4, 40, 40)
    found = []
    for run in (layer, krt.jit(layer)):
        krt.manual_seed(5)
        found.append([run(x).numpy().copy() for _ in range(2)])
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(*found[0])
    assert repr(layer) == (
        "FractionalMaxPool2d(kernel_size=(2, 2), output_size=None, output_ratio=(0.4, 0.4))"
    )


def test_an_image_alone_and_windows_that_fill_it() -> None:
    x = krt.arange(16, dtype=krt.float32).reshape(1, 4, 4)
    assert F.fractional_max_pool2d(x, 2, 3).tolist() == [[[5, 6, 7], [9, 10, 11], [13, 14, 15]]]
    assert F.fractional_max_pool2d(x, (4, 2), (1, 1)).tolist() == [[[15]]]
    assert F.fractional_max_pool3d(x.unsqueeze(0), 1, (1, 4, 4)).tolist() == [x.tolist()]


def test_batches_without_images() -> None:
    assert F.fractional_max_pool2d(krt.zeros(0, 1, 4, 4), 2, 2).shape == (0, 1, 2, 2)
    assert F.fractional_max_pool3d(krt.zeros(0, 1, 4, 4, 4), 2, 2).shape == (0, 1, 2, 2, 2)
    assert F.fractional_max_pool2d(krt.zeros(2, 1, 4, 4), 2, (0, 2)).shape == (2, 1, 0, 2)


@pytest.mark.parametrize("ratio", [(0.1, 0.1), (0.1, 0.5), (0.5, 0.2)])
def test_ratios_that_leave_no_windows(ratio) -> None:
    torch = pytest.importorskip("torch")
    x = np.ones((2, 3, 4, 4), np.float32)
    ours, theirs = krt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    found = F.fractional_max_pool2d(ours, 2, output_ratio=ratio, return_indices=True)
    wanted = torch.nn.functional.fractional_max_pool2d(
        theirs, 2, output_ratio=ratio, return_indices=True
    )
    assert [t.shape for t in found] == [tuple(t.shape) for t in wanted]
    found[0].sum().backward()
    assert not ours.grad.any()


@pytest.mark.parametrize(("options", "text"), [
    ({}, "output_size, output_ratio: expected exactly one of the two"),
    ({"output_size": 2, "output_ratio": 0.5}, "expected exactly one of the two"),
    ({"output_ratio": 1.0}, "output_ratio: expected 2 numbers between 0 and 1"),
    ({"output_ratio": (0.5, 0.5, 0.5)}, "output_ratio: expected 2 numbers"),
    ({"output_size": 4}, "4 windows of 2 elements, .* at least 5 elements, not 4$"),
    ({"output_size": -1}, "output_size: expected 2 numbers of at least 0"),
    ({"output_size": 2, "_random_samples": krt.ones(1, 2)}, "_random_samples: expected shape"),
])  # fmt: skip
def test_what_is_refused(options, text) -> None:
    with pytest.raises(krt.ShapeError, match=text):
        F.fractional_max_pool2d(krt.ones(1, 3, 4, 4), 2, **options)
