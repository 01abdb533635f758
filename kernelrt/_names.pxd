# cython: language_level=3
"""Variables of Python, compared by pointers."""

from libc.stdint cimport uint64_t


cdef struct Space:
    Py_ssize_t end  # of its names among all
    uint64_t version  # of the dict when its names were looked at


cdef class Names:
    cdef readonly tuple cells  # (name, cell)
    cdef list held  # what each cell held
    cdef readonly tuple globals  # (name, dict), those of one dict side by side
    cdef list found  # what each was
    cdef Space *spaces  # one for each dict, in the order of `globals`
    cdef Py_ssize_t n_spaces
    cdef object same

    # Whether all are what they were.
    cdef bint hold(self) except -1
    cdef bint alike(self, object now, object before) except -1
