# cython: language_level=3
"""Variables of Python, compared by pointers."""

from libc.stdint cimport uint64_t


cdef class Names:
    cdef readonly tuple cells  # (name, cell)
    cdef list held  # what each cell held
    cdef readonly tuple globals  # (name, dict), those of one dict side by side
    cdef list found  # what each was
    cdef uint64_t *versions  # of the dict of each
    cdef object same

    # Whether all are what they were.
    cdef bint hold(self) except -1
    cdef bint alike(self, object now, object before) except -1
