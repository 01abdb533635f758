"""The cache of freed memory."""

from __future__ import annotations

import gc
import itertools
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
    allocator = CachingAllocator()
    memory = allocator.alloc(nbytes)
    assert memory.address % 64 == 0
    assert memory.nbytes == nbytes
    del memory
    assert nbytes <= allocator.stats().cached <= max(64, nbytes * 1.25 + 64)


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
    again = [allocator.alloc(1024) for _ in range(2)]
    assert {block.address for block in again} == kept


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
    del block
    assert allocator.stats().cached == 0
    del view
    assert allocator.stats().cached == 64


def test_freeing_twice_is_freeing_once():
    allocator = CachingAllocator()
    block = allocator.alloc(64)
    allocator.free(block)
    allocator.free(block)
    block.release()
    assert allocator.stats().cached == 64
    first, second = allocator.alloc(64), allocator.alloc(64)
    assert first.address != second.address


def test_memory_outlives_its_allocator():
    allocator = CachingAllocator()
    block = allocator.alloc(64)
    allocator.free(allocator.alloc(128))
    del allocator
    memoryview(block)[0] = 1
    del block


@pytest.mark.parametrize("seed", range(20))
def test_blocks_never_overlap_and_counts_add_up(seed):
    rng = random.Random(seed)  # noqa: S311 - no secrets here
    allocator = CachingAllocator(limit=rng.choice((0, 64, 4096, 1 << 20)))
    live = {}
    for step in range(400):
        if live and rng.random() < 0.5:
            del live[rng.choice(list(live))]
        else:
            block = allocator.alloc(rng.choice((0, 1, 63, 64, 65, 500, 4096, 70_000)))
            memoryview(block)[:] = bytes([step % 256]) * block.nbytes
            live[step] = block
        if rng.random() < 0.05:
            allocator.trim(rng.choice((0, 1000)))
        assert allocator.stats().cached <= allocator.limit
    spans = sorted((b.address, b.address + b.nbytes) for b in live.values())
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    for step, block in live.items():
        assert bytes(memoryview(block)) == bytes([step % 256]) * block.nbytes


def test_a_finalizer_and_a_handler_may_allocate():
    """Whatever runs in the middle of anything finds the allocator in order."""
    allocator = CachingAllocator(limit=1 << 16)

    class Frees:
        def __init__(self):
            self.block = allocator.alloc(64)
            self.me = self

        def __del__(self):
            allocator.free(allocator.alloc(64))

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(500):
            Frees()
            allocator.alloc(100)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert allocator.stats().cached <= 1 << 16


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
