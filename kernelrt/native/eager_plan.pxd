# cython: language_level=3
"""Runs of plans of eager code, for other extensions."""

from kernelrt.native.array_handle cimport ArrayHandle
from kernelrt.native.memory cimport BlockCache, Memory
from kernelrt.native.node cimport Node


# What came of a run.
cdef enum Outcome:
    KRT_EAGER_DONE = 0
    KRT_EAGER_UNFIT = 1
    KRT_EAGER_CHANGED = 2


# The address of the elements of a Buffer. They are not moved or freed before `let_go(held)`.
cdef char *take(object buffer, list held) except NULL

cdef void let_go(list held) noexcept

# True if all assignments in `resets` are still pending, with the same values.
cdef bint unchanged(list resets, dict pending) except -1

# Give results to their handles. `dropped` gets the nodes that the handles had.
cdef int hand_over(list fresh, list resets, dict pending, list dropped) except -1

# What `TensorBase._settlement` gives where no history, view or gradient is there; or None.
cpdef tuple settlement(ArrayHandle handle, Node node, Memory data)

# The BUFFER node of memory that holds the number of a CONST; None for the rarer types.
cdef Node number_memory(Node node, BlockCache cache, object kind, object number)
