# cython: language_level=3
"""Declarations of the write barrier for other extension modules."""

from libc.stdint cimport uint64_t

from kernelrt.native.node cimport Node


cdef struct Span:
    size_t start
    size_t stop


cdef class Spans:
    cdef Span *spans
    cdef Py_ssize_t n, room

    cdef Py_ssize_t count_before(self, size_t address) noexcept
    cdef bint meets(self, size_t start, size_t stop) noexcept
    cdef bint covers(self, size_t start, size_t stop) noexcept
    cdef int add(self, size_t start, size_t stop) except -1
    cdef int add_all(self, Spans others) except -1
    cdef bint covers_all(self, Spans others) noexcept


cdef class WrittenMemory:
    cdef Spans bytes
    cdef Spans storages  # whole storages that the bytes belong to
    cdef uint64_t serial  # unique

    cdef int add(self, object buffer) except -1
    cdef bint meets(self, object buffer) noexcept


# Return the memory of pending assignments. The only element of `known` caches it, or is None.
cdef WrittenMemory pending_memory(dict pending, list known)

# Return whether the value or the history of a node reads the written memory.
cdef bint reads_now(Node root, WrittenMemory written) except -1
