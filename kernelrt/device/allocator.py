"""Allocator of buffers: it reuses freed blocks before it asks the system's allocator."""

from __future__ import annotations

from dataclasses import dataclass

from kernelrt.native.memory import BlockCache

__all__ = ["ALIGNMENT", "CachingAllocator", "MemoryStats"]

#: Bytes to which every buffer is aligned: a cache line, and the widest vector register.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Statistics of an allocator.

    Attributes
    ----------
    cached : int
        Bytes of free blocks in the cache.
    limit : int
        Upper limit of `cached`, in bytes.
    hits, misses : int
        Number of requests served by the cache, and by the system allocator.
    """

    cached: int
    limit: int
    hits: int
    misses: int


class CachingAllocator(BlockCache):
    """Allocator of aligned host memory with a cache of freed blocks (LRU eviction).

    Block sizes are multiples of a quarter of a power of two, so that buffers of similar sizes can
    reuse a block. The cache never holds more than `limit` bytes. A block returns to the cache when
    its Memory is deleted. Safe to use from any thread, finalizer or signal handler.

    Parameters
    ----------
    limit : int
        The most bytes of free blocks to keep.

    Examples
    --------
    >>> allocator = CachingAllocator(limit=1 << 20)
    >>> memory = allocator.alloc(1000)
    >>> memory.address % 64, memory.nbytes
    (0, 1000)
    >>> allocator.free(memory)
    >>> allocator.stats().cached, allocator.trim(), allocator.stats().cached
    (1024, 1024, 0)
    """

    def stats(self) -> MemoryStats:
        """Return the counts since the start, and the bytes cached now."""
        return MemoryStats(*self._counts())
