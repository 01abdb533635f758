# cython: language_level=3
"""The class that UOp extends, with the fields that walks over graphs read."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t


cdef class Node:
    cdef readonly object op
    cdef readonly object dtype
    cdef readonly tuple src
    cdef readonly object arg
    cdef public object cached_bounds
    cdef public object cached_shape
    cdef public object cached_history
    cdef public object cached_flow
    cdef public object cached_ports
    cdef public long cached_steady
    cdef public object cached_label
    cdef public object cached_simple
    cdef public object origin
    cdef readonly int depth  # operations one upon the other, down to what lies in memory
    cdef size_t content  # hash of op, dtype, src and arg
    cdef readonly uint64_t made  # how many were made before
    cdef readonly uint64_t asked  # how often any was asked for, when this was
    cdef void *next  # in its bucket of the table of nodes
    cdef uint64_t visit  # the walk that came here last
    cdef Py_ssize_t place  # what that walk noted
    cdef uint64_t seen  # the walk of write_barrier that came here last, and two bits that it noted
    cdef uint64_t clear_of  # the serial of a Written that it does not read
    cdef object __weakref__


# The one node with this content.
cdef Node intern(object op, object dtype, tuple src, object arg)

# Whether these are sizes, numbers of Python's, that a tensor can have.
cdef bint is_plain(tuple shape) except -1

# `x` reshaped, or expanded, to a shape of numbers; None where somebody has to look at the sizes.
cdef Node moved(object op, Node x, tuple shape)

# Give `new` the origin of `old` unless it has a later one.
cdef int hand_on(Node old, Node new) except -1


cdef size_t arg_hash(object arg) except? 0
cdef bint same_arg(object a, object b) except -1


cdef inline size_t mix(size_t h, size_t word) noexcept:
    h = (h ^ word) * <size_t> 0x9E3779B97F4A7C15
    return h ^ (h >> 29)


cdef inline object type_of(object value):
    return type(value)


cdef struct Step:
    PyObject *node
    bint expanded


cdef class Stack:
    cdef Step *steps
    cdef Py_ssize_t n_steps, room

    cdef int push(self, PyObject *node, bint expanded) except -1
