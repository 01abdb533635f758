"""Memory: owned, aligned, exported through the buffer protocol."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from kernelrt import errors
from kernelrt._memory import Memory


@pytest.mark.parametrize("alignment", [1, 2, 64, 4096, 2**20])
@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 100_000])
def test_address_is_aligned(nbytes, alignment):
    memory = Memory(nbytes, alignment=alignment)
    assert memory.address
    assert memory.address % alignment == 0
    assert memory.nbytes == nbytes
    assert len(memoryview(memory)) == nbytes


def test_zero():
    assert bytes(memoryview(Memory(1000, zero=True))) == bytes(1000)


def test_a_view_is_writable_bytes_and_keeps_the_memory_alive():
    memory = Memory(16, zero=True)
    view = np.frombuffer(memory, np.float32)
    view[1] = 2.5
    assert view.ctypes.data == memory.address
    assert memoryview(memory).format == "B"
    assert not memoryview(memory).readonly
    del memory
    gc.collect()
    assert view.tolist() == [0, 2.5, 0, 0]


def test_release_is_refused_while_exported():
    memory = Memory(8)
    view = memoryview(memory)
    assert memory.exports == 1
    with pytest.raises(BufferError, match="1 view"):
        memory.release()
    view.release()
    assert memory.exports == 0
    memory.release()
    memory.release()
    assert memory.released
    assert memory.nbytes == 8
    with pytest.raises(errors.BufferReleasedError):
        _ = memory.address
    with pytest.raises(errors.BufferReleasedError):
        memoryview(memory)


@pytest.mark.parametrize("nbytes", [2**62, 2**63 - 1, 2**63, 2**100])
def test_too_large(nbytes):
    with pytest.raises(errors.OutOfMemoryError, match=str(nbytes)):
        Memory(nbytes)


@pytest.mark.parametrize("nbytes", [-1, -(2**63), -(2**100)])
def test_negative(nbytes):
    with pytest.raises(errors.ShapeError, match="at least 0"):
        Memory(nbytes)


@pytest.mark.parametrize("alignment", [0, 3, -64, 2**21, 2**64])
def test_bad_alignment(alignment):
    with pytest.raises(errors.ShapeError, match="power of two"):
        Memory(8, alignment=alignment)


@pytest.mark.parametrize("nbytes", [1.5, "8", None])
def test_not_an_integer(nbytes):
    with pytest.raises(TypeError):
        Memory(nbytes)
