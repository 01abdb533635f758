# cython: language_level=3
"""Lazy tensors, for other extensions."""

from kernelrt.native.array_handle cimport ArrayHandle
from kernelrt.native.node cimport Node


cdef class LazyHandle(ArrayHandle):
    pass


# The node that an operation reads of a tensor; None where Python code has to look.
cdef Node node_of(ArrayHandle self)

# A tensor of a node; nobody is told of it yet.
cdef ArrayHandle bare(object kind, Node node, object code)

# A lazy tensor of a node; in a trace, one of that trace. `code` is that of the operation.
cdef ArrayHandle made(object kind, Node node, object code)

# A view of a node, outside of traces; `below` is the value of the root that the node is made of.
cdef ArrayHandle shown(
    object kind, Node node, object code, ArrayHandle root, tuple path, Node below, object layout)

# Carry out what is pending if it changes what a tensor reads.
cdef int settle(ArrayHandle self) except -1

# Bind a view to the memory of its root; False, with nothing done, where Python code has to look.
cdef bint lend(ArrayHandle view) except -1

# Give a result of a plan its node; False where Python code has to.
cpdef bint adopted(ArrayHandle handle) except -1
