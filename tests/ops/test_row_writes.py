"""Assignments to rows of tensors that are not computed yet, have just been, or have storage."""

from __future__ import annotations

import numpy as np
import pytest

import kernelrt as krt

VALUES = np.arange(12.0, dtype=np.float32).reshape(4, 3)
ROOTS = {
    "lazy": lambda: krt.tensor(VALUES) * 2,
    "fresh": lambda: (krt.tensor(VALUES) * 2).realize(),  # noqa: PLW0108
    "read": lambda: (x := krt.tensor(VALUES) * 2, x.numpy())[0],
    "stored": lambda: krt.tensor(VALUES * 2),
}
INDICES = (
    0, -1, 3, slice(1, 3), slice(0, 4), (2, 1), (1, slice(1, None)), (slice(1, 2), slice(None)),
)  # fmt: skip
#: Each takes the root and the index.
GIVEN = {
    "number": lambda x, index: 7.5,
    "integer": lambda x, index: 7,
    "stored": lambda x, index: krt.tensor(VALUES[index] + 1) if np.ndim(VALUES[index]) else 1.0,
    "lazy": lambda x, index: krt.tensor(VALUES)[index] * 3,
    "of the root": lambda x, index: x[index] * 3 + 1,
    "another row of it": lambda x, index: (x * 5)[index],
    "broadcast": lambda x, index: krt.tensor(4.0) * 2,
}


def given_as_array(given, x, index):
    return {
        "number": 7.5, "integer": 7, "stored": VALUES[index] + 1, "lazy": VALUES[index] * 3,
        "of the root": x[index] * 3 + 1, "another row of it": x[index] * 5, "broadcast": 8.0,
    }[given] if given != "stored" or np.ndim(VALUES[index]) else 1.0  # fmt: skip


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_rows_are_written(root, given, index):
    x, want = ROOTS[root](), VALUES * 2
    other = x + 1  # of the values before
    for _ in range(2):
        x[index] = GIVEN[given](x, index)
        want[index] = given_as_array(given, want, index)
    np.testing.assert_array_equal(x.numpy(), want)
    np.testing.assert_array_equal(other.numpy(), VALUES * 2 + 1)


@pytest.mark.parametrize("root", ROOTS)
def test_gradients_flow_into_rows(root):
    x, w = ROOTS[root](), krt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[1] = w * w
    (x[1] * x[2]).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * np.array([1, 2, 3]) * VALUES[2] * 2)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize(
    ("index", "value"), [(4, 1.0), (slice(0, 2), krt.ones(3, 3)), (0, krt.ones(2)), (0, "a")]
)
def test_what_does_not_fit_leaves_the_tensor_as_it_was(root, index, value):
    x = ROOTS[root]()
    with pytest.raises((krt.ShapeError, krt.DTypeError, IndexError)):
        x[index] = value
    np.testing.assert_array_equal(x.numpy(), VALUES * 2)
