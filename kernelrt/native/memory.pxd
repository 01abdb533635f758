# cython: language_level=3
"""The classes of _memory with their fields, for the extensions that build on them."""

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


# Grows behind whatever writes to memory that is there already.
cdef unsigned long long writes


cdef class BlockCache:
    cdef krt_blocks *blocks
    cdef object __weakref__


cdef class Memory:
    cdef char *data
    cdef Py_ssize_t size
    cdef Py_ssize_t n_exports
    cdef bint read_only
    cdef bint borrowed
    cdef bint shared  # others may write here, and will not say so
    cdef bint watched  # what it holds is kept elsewhere, too, in another form
    cdef BlockCache home  # where the block goes back to; None: to the system
    cdef object __weakref__


# What a storage has. A class of its own, as its references may lead back here and those of a
# result's memory, of which there are many, never do.
cdef class StoredMemory(Memory):
    cdef object lender  # a memoryview of memory that another object owns
    cdef object owner  # a weak reference to the Storage that this is the memory of


cdef class Storage:
    cdef readonly object device
    cdef readonly object nbytes
    cdef readonly bint readonly
    cdef readonly bint owned
    cdef BlockCache cache
    cdef StoredMemory memory  # None: not allocated yet, or released
    cdef bint gone
    cdef object __weakref__

    # The memory; allocated now if it was not. Raises BufferReleasedError.
    cdef StoredMemory take(self)

    # Whether nothing but code that lets `writes` grow can write here.
    cdef bint is_own(self) noexcept

    # Note that somebody keeps what is made of what it holds.
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

    # The bytes as a view: while it lives they are neither freed nor moved.
    cpdef object keep(self)

    # The first byte; NULL where it has no memory, or none any more.
    cdef char *place(self) noexcept


# Uninitialised memory for a result, which nothing but the end of its life releases.
cdef Memory new_memory(BlockCache cache, Py_ssize_t nbytes)


# Whether `m` bytes from `a` and `n` bytes from `b` have a byte in common; kernelrt.device.byte_ranges
# says it of bytes that may have no address yet.
cdef inline bint share_bytes(
    const char *a, Py_ssize_t m, const char *b, Py_ssize_t n
) noexcept nogil:
    return m > 0 and n > 0 and a < b + n and b < a + m
