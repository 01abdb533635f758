"""Memory that several tensors share, by whichever road they came to it."""

from __future__ import annotations

import numpy as np
import pytest
from support import alias_programs

import kernelrt as krt
from kernelrt.errors import JitError


@pytest.mark.parametrize("seed", range(100))
def test_random_programs(seed):
    alias_programs.check(seed)


@pytest.mark.parametrize("size", [4, 1024])
@pytest.mark.parametrize("jitted", [False, True])
def test_memory_taken_through_dlpack_is_the_same_memory(size, jitted):
    data = np.arange(size, dtype=np.float32)
    x = krt.tensor(data).realize()
    y = krt.from_numpy(np.from_dlpack(x))

    def update():
        y.assign(x.roll(1, 0) + x.flip(0))

    (krt.jit(update) if jitted else update)()
    expected = np.roll(data, 1) + data[::-1]
    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_the_last_assignment_wins_where_tensors_overlap():
    memory = np.zeros(6)
    y, z = krt.from_numpy(memory[:4]), krt.from_numpy(memory[2:])
    for value, tensor in ((1, y), (2, z), (3, y)):
        tensor.assign(krt.full((4,), value, dtype="float64"))
    y.realize()
    np.testing.assert_array_equal(memory, [3, 3, 3, 3, 2, 2])


def test_a_traced_function_cannot_follow_memory_under_two_names():
    memory = np.zeros(6)
    y, z = krt.from_numpy(memory[:4]), krt.from_numpy(memory[2:])

    def read():
        y.assign(y + 1)
        return z * 2

    def write():
        y.assign(y + 1)
        z.assign(z.flip(0))

    for function in (read, write):
        with pytest.raises(JitError, match="that shares its memory was assigned to"):
            krt.jit(function)()
    np.testing.assert_array_equal(memory, 0)
    apart = krt.from_numpy(memory[:2]), krt.from_numpy(memory[2:4])

    def both():
        for tensor in apart:
            tensor.assign(tensor + 1)
        return apart[0] + apart[1]

    np.testing.assert_array_equal(krt.jit(both)().numpy(), [2, 2])


def test_a_plan_made_over_one_memory_serves_two():
    memory = np.arange(3.0) * 5
    first, again, other = (krt.from_numpy(memory[s]) for s in (np.s_[:1], np.s_[:1], np.s_[2:]))
    for x, y in ((first, again), (first, other), (other, first), (again, first)):
        got = (x * 2 - y).realize()
        np.testing.assert_array_equal(got.numpy(), x.numpy() * 2 - y.numpy())
