# cython: language_level=3
"""Lazy tensors, for other extension modules."""

from kernelrt.native.array_handle cimport ArrayHandle
from kernelrt.native.node cimport Node


cdef class LazyHandle(ArrayHandle):
    pass


# Return the node that an operation reads of a tensor; None if Python code has to find it.
cdef Node node_of(ArrayHandle self)

# Return a tensor of a node, in no register yet.
cdef ArrayHandle bare(object kind, Node node, object code)

# Return a lazy tensor of a node; in a trace, a tensor of that trace. `code` is the operation's.
cdef ArrayHandle made(object kind, Node node, object code)

# Return a view with a node, outside traces; the node is computed from `below`, the root's value.
cdef ArrayHandle shown(
    object kind, Node node, object code, ArrayHandle root, tuple path, Node below, object layout)

# Carry out pending assignments if they change memory that a tensor reads.
cdef int settle(ArrayHandle self) except -1

# Bind a view to the memory of its root; return False, and do nothing, if Python code has to do it.
cdef bint lend(ArrayHandle view) except -1

# Give a result of a plan its node; return False if Python code has to do it.
cpdef bint adopted(ArrayHandle handle) except -1
