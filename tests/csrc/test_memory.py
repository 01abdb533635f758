"""Memory: owned, aligned, exported through the buffer protocol."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from support.skip_list import needs

from kernelrt import errors
from kernelrt.native.memory import Memory

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.parametrize("alignment", [1, 2, 64, 4096, 2**20])
@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 100_000, 2**21, 5 * 2**20 + 3])
def test_address_is_aligned(nbytes, alignment):
    memory = Memory(nbytes, alignment=alignment)
    assert memory.address
    assert memory.address % alignment == 0
    assert memory.nbytes == nbytes
    assert len(memoryview(memory)) == nbytes


@pytest.mark.parametrize("nbytes", [1000, 2**21, 3 * 2**21 + 7])
def test_zero(nbytes):
    assert not np.frombuffer(Memory(nbytes, zero=True), np.uint8).any()


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


def test_all_of_large_memory_is_ones_own():
    blocks = [Memory(nbytes) for nbytes in (2**21, 2**21 + 1, 2**22, 5 * 2**21) * 8]
    for mark, block in enumerate(blocks):
        np.frombuffer(block, np.uint8)[:] = mark
    for mark, block in enumerate(blocks):
        assert (np.frombuffer(block, np.uint8) == mark).all()


def test_large_blocks_begin_at_places_of_their_own_in_each_cache():
    """Those that lie at one place of a cache drive each other's lines out of it."""
    blocks = [Memory(2**21) for _ in range(16)]
    for way in (2**12, 2**17):
        assert len({block.address % way // 64 for block in blocks}) == len(blocks)


@needs("huge pages")
def test_large_memory_is_asked_for_in_huge_pages():
    memory = Memory(2**23)
    flags: list[str] = []
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            start, stop = (int(end, 16) for end in first.split("-"))
            inside = start <= memory.address < stop
        elif inside and first == "VmFlags:":
            flags = rest
    assert "hg" in flags


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
