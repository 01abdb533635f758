# cython: language_level=3
"""Declarations of the classes of `memory` and their fields, for other extension modules."""

cdef extern from "blocks.h" nogil:
    ctypedef struct krt_blocks:
        pass

    ctypedef struct krt_block_stats:
        size_t cached
        size_t limit
        size_t hits
        size_t misses

    krt_blocks *krt_blocks_create(size_t limit)
    void krt_blocks_destroy(krt_blocks *blocks)
    void *krt_blocks_take(krt_blocks *blocks, size_t nbytes)
    void krt_blocks_give(krt_blocks *blocks, void *block, size_t nbytes)
    size_t krt_blocks_trim(krt_blocks *blocks, size_t keep)
    void krt_blocks_set_limit(krt_blocks *blocks, size_t limit)
    krt_block_stats krt_blocks_stats(const krt_blocks *blocks)


cdef extern from "platform.h" nogil:
    void *krt_code_map(size_t nbytes)
    int krt_code_finish(void *code, size_t nbytes)
    void krt_code_unmap(void *code, size_t nbytes)


# Number of writes to existing memory; incremented after each write.
cdef unsigned long long writes


cdef class BlockCache:
    cdef krt_blocks *blocks
    cdef object __weakref__


cdef class Code:
    cdef void *start
    cdef size_t size
    cdef object __weakref__


cdef class Memory:
    cdef char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t n_exports
    cdef bint read_only
    cdef bint borrowed
    cdef bint shared  # outside code may write here without reporting it
    cdef bint watched  # data derived from the content is cached elsewhere
    cdef BlockCache home  # cache that the block returns to; None: the system
    cdef object __weakref__


# Memory of a Storage. It is a class of its own because its references may form cycles. Plain
# Memory, which results have in large numbers, has no such references and needs no collector.
cdef class StoredMemory(Memory):
    cdef object lender  # a memoryview of memory that another object owns
    cdef object owner  # a weak reference to the Storage that uses this memory


cdef class Storage:
    cdef readonly object device
    cdef readonly object nbytes
    cdef readonly bint readonly
    cdef readonly bint owned
    cdef BlockCache cache
    cdef StoredMemory memory  # None: not allocated yet, or released
    cdef bint gone
    cdef object __weakref__

    # Return the memory; allocate it if necessary. Raises BufferReleasedError.
    cdef StoredMemory take(self)

    # Return whether all code that can write here increments `writes`.
    cdef bint is_own(self) noexcept

    # Note that data derived from the content is cached elsewhere.
    cpdef int watch(self) except -1


cdef class Exporter:
    cdef public Storage _storage
    cdef public object base
    cdef public object dtype
    cdef public object id
    cdef public object label
    cdef public bint constant
    cdef public size_t nbytes
    cdef public size_t offset
    cdef public size_t size

    # Return a view of the bytes; they are neither freed nor moved while it exists.
    cpdef object keep(self)

    # Return the address of the first byte; NULL if the memory is not allocated or was released.
    cdef char *address(self) noexcept


# Return uninitialised memory for a result. It is freed only when the object dies.
cdef Memory new_memory(BlockCache cache, Py_ssize_t nbytes)


# Return whether `m` bytes at `a` overlap `n` bytes at `b`. For memory without an address yet, see
# kernelrt.device.byte_ranges.
cdef inline bint share_bytes(
    const char *a, Py_ssize_t m, const char *b, Py_ssize_t n
) noexcept nogil:
    return m > 0 and n > 0 and a < b + n and b < a + m
