# cython: language_level=3
"""The class that UOp extends, with the fields that walks over graphs read."""

from libc.stdint cimport int64_t, uint64_t


cdef class Node:
    cdef readonly object op
    cdef readonly object dtype
    cdef readonly tuple src
    cdef readonly object arg
    cdef public object cached_bounds
    cdef public object cached_shape
    cdef public object cached_history
    cdef public long cached_steady
    cdef public object cached_label
    cdef public object cached_simple
    cdef public object origin
    cdef readonly int depth  # operations one upon the other, down to what lies in memory
    cdef size_t content  # hash of op, dtype, src and arg
    cdef void *next  # in its bucket of the table of nodes
    cdef uint64_t visit  # the walk that came here last
    cdef Py_ssize_t place  # what that walk noted
    cdef object __weakref__


# The one node with this content.
cdef Node intern(object op, object dtype, tuple src, object arg)

cdef class Words:
    cdef int64_t *words
    cdef Py_ssize_t n, room

    cdef int put(self, int64_t word) except -1


cdef class Skeleton:
    cdef list args
    cdef Words words
    cdef size_t content
