"""A value has the same bits wherever it is computed, so that it equals its own maximum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kernelrt as krt

CHAINS = {
    "neighbours": lambda x, axis: x * 0.1 - (x * 0.1).roll(1, axis) * 0.5,
    "mirror": lambda x, axis: (x * 0.3).flip(axis) * x + x * 0.7,
    "polynomial": lambda x, _: (x * 0.3 - x * x) * x - 0.1 * x,
    "centred": lambda x, axis: x * 0.3 - (x * 0.7).amax(axis, keepdim=True) * 0.9,
}


@pytest.mark.parametrize("shape", [(8, 16, 17), (3, 5, 17), (8, 2, 3), (4, 33)], ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_some_element_is_the_greatest(name, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for axis, other in itertools.product(range(len(shape)), repeat=2):

        def found(x, axis=axis, other=other):
            value = CHAINS[name](x, other)
            top = value.amax(axis, keepdim=True)
            # Another use of the value is another surrounding for the same arithmetic.
            return value - top * 0.5, value == top

        _, greatest = krt.jit(found)(x)
        assert greatest.numpy().any(axis).all()
