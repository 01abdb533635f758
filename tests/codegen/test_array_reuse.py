"""An array takes the memory of another only where nothing reads that any more."""

import numpy as np
import pytest

import kernelrt as krt


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_a_product_of_an_array_with_itself_keeps_it_to_its_end(steps: int) -> None:
    """Each element of ``o @ o * 0.9 + o * 0.1`` reads a row and a column of o."""
    a = np.random.default_rng(0).uniform(-2, 2, (4, 4))
    eye = np.eye(4)

    def product(x):
        o = krt.linalg.solve(x * 0.1 + 3 * krt.tensor(eye), x)
        for _ in range(steps):
            o = o @ o * 0.9 + 0.1 * o
        return o

    x = krt.tensor(a)
    backward = krt.func.jacrev(product)(x).numpy()
    forward = krt.func.jacfwd(product)(x).numpy()
    one_by_one = np.zeros((4, 4, 4, 4))
    for place in np.ndindex(4, 4):
        unit = np.zeros((4, 4))
        unit[place] = 1
        one_by_one[(..., *place)] = krt.func.jvp(product, (x,), (krt.tensor(unit),))[1].numpy()
    np.testing.assert_allclose(backward, one_by_one, 1e-12, 1e-14)
    np.testing.assert_allclose(forward, one_by_one, 1e-12, 1e-14)
