# cython: language_level=3
"""Base class of UOp, with the fields that traversals of graphs use."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t


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
    cdef readonly int depth  # longest path of operations down to values in memory
    cdef size_t content  # hash of op, dtype, src and arg
    cdef readonly uint64_t made  # number of nodes made before this one
    cdef readonly uint64_t asked  # number of requests for any node, at the last one for this node
    cdef void *next  # next node in the same bucket of the table
    cdef uint64_t visit  # last traversal by graph_key that visited this node
    cdef Py_ssize_t number  # position that the traversal gave this node
    cdef uint64_t seen  # last traversal by write_barrier, and in the lowest two bits its result
    cdef uint64_t clear_of  # serial of a WrittenMemory that this node does not read
    cdef object __weakref__


# Return the only node with this content.
cdef Node intern(object op, object dtype, tuple src, object arg)

# Return whether a shape consists of Python ints, and a tensor can have it.
cpdef bint is_plain(tuple shape) except -1

# Reshape or expand `x` to a static shape; None if Python code has to handle the sizes.
cdef Node moved(object op, Node x, tuple shape)

cpdef tuple packed_strides(tuple shape, int64_t itemsize=*)
cpdef bint are_packed(tuple shape, tuple strides, int64_t itemsize=*) except -1
cpdef tuple reshaped_strides(tuple sizes, tuple strides, tuple shape)

# Copy the origin of `old` to `new`, unless `new` has a later one.
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
