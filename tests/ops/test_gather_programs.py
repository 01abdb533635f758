"""Computed indices in random programs, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from support import gather_programs

import kernelrt as krt


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    gather_programs.check(seed)


def test_an_index_used_as_a_value_of_a_part():
    data = np.arange(16.0).reshape(4, 4) % 7
    part = (krt.tensor(data) * 2).contiguous()[1:]
    best = part.argmax(1, keepdim=True)
    expected = (data * 2)[1:].max(1, keepdims=True)
    np.testing.assert_array_equal(
        (part.gather(1, best) + best).numpy(), expected + data[1:].argmax(1)[:, None]
    )
    np.testing.assert_array_equal((part.gather(1, best) + part.amax(1, True)).numpy(), expected * 2)


def test_the_only_element_is_found_at_a_computed_index():
    assert krt.ones(1)[krt.tensor([0])].tolist() == [1.0]
    zero = krt.tensor([[0]])
    assert (krt.tensor([[3.0]]) * 2).gather(1, zero * 1).tolist() == [[6.0]]


def test_data_that_is_an_index_and_a_value_is_read_once():
    data = np.arange(16).reshape(4, 4) * 5 % 7
    x = krt.tensor(data)
    score = (x * 2 * 3 + x * 5).amax(1, keepdim=True)
    expected = (data * 11).max(1, keepdims=True)
    got = x.gather(1, score % 4) + score
    np.testing.assert_array_equal(
        got.numpy(), np.take_along_axis(data, expected % 4, 1) + expected
    )


#: Rows and columns, made of positions, at which a square matrix is read.
PLACES = {
    "diagonal": lambda k, n: (k, k),
    "other diagonal": lambda k, n: (k, n - 1 - k),
    "wrapped diagonal": lambda k, n: (k, (k + 3) % n),
    "one column": lambda k, n: (k, k * 0 + 2),
    "one row": lambda k, n: (k * 0 + 1, k),
    "every other row": lambda k, n: (k // 2 * 2, k),
    "turned": lambda k, n: (k.reshape(1, n), k.reshape(n, 1)),
    "all": lambda k, n: (k.reshape(n, 1), k.reshape(1, n)),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("places", PLACES)
def test_a_value_that_is_read_at_places_is_stored_whole(places, jitted):
    n = 40
    data = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)

    def both(x):
        whole = x.exp()
        return whole, whole[PLACES[places](krt.arange(n), n)] * 2

    if jitted:
        both = krt.jit(both)
    whole, part = both(krt.tensor(data))
    krt.realize(whole, part)
    expected = np.exp(data)
    np.testing.assert_allclose(whole.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(
        part.numpy(), expected[PLACES[places](np.arange(n), n)] * 2, rtol=1e-5
    )
