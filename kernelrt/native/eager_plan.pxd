# cython: language_level=3
"""Runs of cached plans of eager code, for other extension modules."""

from kernelrt.native.array_handle cimport ArrayHandle
from kernelrt.native.memory cimport BlockCache, Memory
from kernelrt.native.node cimport Node


# Outcome of a run.
cdef enum Outcome:
    KRT_EAGER_DONE = 0
    KRT_EAGER_UNFIT = 1
    KRT_EAGER_CHANGED = 2


# Return the address of a Buffer's elements, which stay in place until `let_go(held)`.
cdef char *take(object buffer, list held) except NULL

cdef void let_go(list held) noexcept

# Return whether all assignments in `resets` are still pending, with the same values.
cdef bint unchanged(list resets, dict pending) except -1

# Give results to their handles. Append the former nodes of the handles to `dropped`.
cdef int hand_over(list fresh, list resets, dict pending, list dropped) except -1

# Return `TensorBase._settlement` if no history, view or gradient is involved; else None.
cpdef tuple settlement(ArrayHandle handle, Node node, Memory data)

# Return a BUFFER node of memory with the number of a CONST; None for the less common types.
cdef Node number_memory(Node node, BlockCache cache, object kind, object number)
