"""Allocator of buffers: a cache of freed blocks in front of the system's allocator."""

from __future__ import annotations

from dataclasses import dataclass

from kernelrt.native.memory import BlockCache

__all__ = ["ALIGNMENT", "CachingAllocator", "MemoryStats"]

#: Bytes to which every buffer is aligned: a cache line, and the widest vector register.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """What an allocator did so far.

    Attributes
    ----------
    cached : int
        Bytes of free blocks that are kept for later.
    limit : int
        The most that `cached` may be.
    hits, misses : int
        Requests that a kept block served, and requests that the system served.
    """

    cached: int
    limit: int
    hits: int
    misses: int


class CachingAllocator(BlockCache):
    """Aligned host memory; freed blocks are kept, least recently freed given back first.

    Blocks have a multiple of a quarter of a power of two bytes, so that buffers of about one
    size share them. The cache never holds more than `limit` bytes. A block comes back when its
    Memory goes. May be used from any thread, from finalizers and from signal handlers.

    Parameters
    ----------
    limit : int
        Most bytes of free blocks to keep.

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
        """Give counts since the start, and what is cached now."""
        return MemoryStats(*self._counts())
