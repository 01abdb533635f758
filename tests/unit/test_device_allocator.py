"""The cache of freed memory."""

from __future__ import annotations

import os
import random
import threading

import pytest

from kernelrt.device.allocator import CachingAllocator
from kernelrt.errors import OutOfMemoryError, ShapeError


def test_a_freed_block_serves_the_next_request_of_its_size():
    allocator = CachingAllocator()
    first = allocator.alloc(1000)
    address = first.address
    allocator.free(first)
    assert allocator.alloc(990).address == address
    assert (allocator.stats().hits, allocator.stats().misses) == (1, 1)


@pytest.mark.parametrize("nbytes", [0, 1, 64, 65, 1000, 4097, 1 << 20, (1 << 20) + 1])
def test_blocks_are_aligned_and_little_larger_than_asked(nbytes):
    memory = CachingAllocator().alloc(nbytes)
    assert memory.address % 64 == 0
    assert nbytes <= memory.nbytes <= max(64, nbytes * 1.25 + 64)


def test_the_cache_never_exceeds_its_limit():
    allocator = CachingAllocator(limit=10_000)
    blocks = [allocator.alloc(3000) for _ in range(10)]
    for block in blocks:
        allocator.free(block)
        assert allocator.stats().cached <= 10_000


def test_the_least_recently_freed_goes_first():
    allocator = CachingAllocator(limit=2048)
    first, second, third = (allocator.alloc(1024) for _ in range(3))
    kept = {second.address, third.address}
    for block in (first, second, third):
        allocator.free(block)
    assert first.released
    assert {allocator.alloc(1024).address, allocator.alloc(1024).address} == kept


def test_a_block_larger_than_the_limit_is_given_back_at_once():
    allocator = CachingAllocator(limit=100)
    block = allocator.alloc(1000)
    allocator.free(block)
    assert block.released
    assert allocator.stats().cached == 0


def test_lowering_the_limit_gives_back():
    allocator = CachingAllocator()
    allocator.free(allocator.alloc(4096))
    allocator.limit = 0
    assert (allocator.stats().cached, allocator.limit) == (0, 0)


def test_trim_tells_what_it_gave_back():
    allocator = CachingAllocator()
    for _ in range(2):
        blocks = [allocator.alloc(1024), allocator.alloc(1024)]
    for block in blocks:
        allocator.free(block)
    assert allocator.trim(keep=1024) == 1024
    assert allocator.trim() == 1024
    assert allocator.trim() == 0


def test_memory_that_is_viewed_is_not_kept():
    allocator = CachingAllocator()
    block = allocator.alloc(64)
    view = memoryview(block)
    allocator.free(block)
    assert allocator.stats().cached == 0
    view[0] = 1
    assert not block.released


def test_a_failed_request_empties_the_cache_and_tries_again():
    allocator = CachingAllocator()
    allocator.free(allocator.alloc(4096))
    with pytest.raises(OutOfMemoryError):
        allocator.alloc(1 << 62)
    assert allocator.stats().cached == 0


@pytest.mark.parametrize("call", [lambda a: a.alloc(-1), lambda a: a.trim(-1)])
def test_negative_sizes_are_refused(call):
    with pytest.raises(ShapeError):
        call(CachingAllocator())


def test_many_threads_share_it():
    allocator = CachingAllocator(limit=1 << 16)
    errors = []

    def work(seed: int):
        rng = random.Random(seed)  # noqa: S311 - no secrets here
        mine = {}
        for step in range(2000):
            if mine and rng.random() < 0.5:
                key = rng.choice(list(mine))
                block = mine.pop(key)
                if memoryview(block)[0] != key % 256:
                    errors.append(key)
                allocator.free(block)
            else:
                block = allocator.alloc(rng.choice((64, 200, 1024)))
                memoryview(block)[0] = step % 256
                mine[step] = block

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert allocator.stats().cached <= 1 << 16


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_allocate_while_the_parent_held_the_lock():
    from kernelrt import dtype as dt
    from kernelrt.device import registry
    from kernelrt.device.buffer import Buffer

    with registry.allocator()._lock:
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if Buffer(10, dt.int8).address else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
