"""Memory for buffers: a cache of freed blocks in front of the system's allocator."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass

from kernelrt._dispatch import Memory
from kernelrt.errors import OutOfMemoryError, ShapeError

__all__ = ["ALIGNMENT", "CachingAllocator", "MemoryStats"]

#: Bytes to which every buffer is aligned: a cache line, and the widest vector register.
ALIGNMENT = 64
#: What the cache may hold unless told otherwise.
DEFAULT_LIMIT = 256 << 20


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


class CachingAllocator:
    """Aligned host memory; freed blocks are kept, least recently freed given back first.

    Sizes are rounded up to a quarter of a power of two, so that buffers of about one size share
    blocks. The cache never holds more than `limit` bytes. May be used from any thread, and from
    finalizers.

    Parameters
    ----------
    limit : int
        Most bytes of free blocks to keep.

    Examples
    --------
    >>> allocator = CachingAllocator(limit=1 << 20)
    >>> memory = allocator.alloc(1000)
    >>> memory.address % 64, memory.nbytes
    (0, 1024)
    >>> allocator.free(memory)
    >>> allocator.stats().cached, allocator.trim(), allocator.stats().cached
    (1024, 1024, 0)
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = _check_bytes("limit", limit)
        self._lock = threading.Lock()
        # Finalizers run at any moment, also while this thread holds the lock: what they give
        # back waits here.
        self._returned: deque[Memory] = deque()
        self._blocks: OrderedDict[int, Memory] = OrderedDict()  # by address, oldest first
        self._by_size: dict[int, list[int]] = {}
        self._cached = 0
        self._hits = 0
        self._misses = 0

    @property
    def limit(self) -> int:
        """Most bytes of free blocks that are kept."""
        return self._limit

    @limit.setter
    def limit(self, nbytes: int) -> None:
        self._limit = _check_bytes("limit", nbytes)
        with self._lock:
            self._drain()

    def alloc(self, nbytes: int) -> Memory:
        """Memory of at least `nbytes` bytes with arbitrary content.

        Raises
        ------
        OutOfMemoryError
            The system has none left, even after the cache was emptied.
        """
        size = _size_class(_check_bytes("nbytes", nbytes))
        with self._lock:
            self._drain()
            addresses = self._by_size.get(size)
            if addresses:
                self._hits += 1
                return self._take(addresses[-1])
            self._misses += 1
        try:
            return Memory(size, alignment=ALIGNMENT)
        except OutOfMemoryError:
            if not self.trim():
                raise
            return Memory(size, alignment=ALIGNMENT)

    def free(self, memory: Memory) -> None:
        """Give back memory that nothing uses any more; with views alive it lives until they die."""
        if memory.released or memory.exports:
            return
        self._returned.append(memory)
        if self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def trim(self, keep: int = 0) -> int:
        """Give blocks back to the system until at most `keep` bytes are cached.

        Returns
        -------
        int
            Bytes given back.
        """
        keep = _check_bytes("keep", keep)
        with self._lock:
            self._drain()
            before = self._cached
            self._shrink(keep)
            return before - self._cached

    def stats(self) -> MemoryStats:
        """Give counts since the start, and what is cached now."""
        with self._lock:
            self._drain()
            return MemoryStats(self._cached, self._limit, self._hits, self._misses)

    def after_fork(self) -> None:
        """Forget the lock: the thread that may hold it does not exist in a forked child."""
        self._lock = threading.Lock()

    def _drain(self) -> None:
        while self._returned:
            memory = self._returned.popleft()
            if memory.nbytes > self._limit:
                memory.release()
                continue
            self._blocks[memory.address] = memory
            self._by_size.setdefault(memory.nbytes, []).append(memory.address)
            self._cached += memory.nbytes
        self._shrink(self._limit)

    def _shrink(self, limit: int) -> None:
        while self._cached > limit:
            self._take(next(iter(self._blocks))).release()

    def _take(self, address: int) -> Memory:
        memory = self._blocks.pop(address)
        addresses = self._by_size[memory.nbytes]
        addresses.remove(address)
        if not addresses:
            del self._by_size[memory.nbytes]
        self._cached -= memory.nbytes
        return memory


def _size_class(nbytes: int) -> int:
    """`nbytes` rounded up to a multiple of a cache line and of a quarter of a power of two."""
    step = max(ALIGNMENT, 1 << max(0, (nbytes - 1).bit_length() - 3)) if nbytes else ALIGNMENT
    return max(ALIGNMENT, -(-nbytes // step) * step)


def _check_bytes(argument: str, nbytes: int) -> int:
    if nbytes < 0:
        raise ShapeError(f"{argument}: expected a number of bytes of at least 0, not {nbytes}")
    return nbytes
