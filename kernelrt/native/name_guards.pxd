# cython: language_level=3
"""Variables and attributes of Python, compared by pointers."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t


cdef struct Variable:
    PyObject *cell
    PyObject *held


cdef struct Space:
    PyObject *names
    Py_ssize_t end  # of its names among all
    bint tagged  # whether each change of it gives it another version
    uint64_t version  # of the dict when its names were looked at


cdef class Names:
    cdef readonly tuple cells  # (name, cell)
    cdef tuple held  # what each cell held
    cdef readonly tuple globals  # (key, dict, what it is called, of an object), those of one dict side by side
    cdef tuple found  # what each was
    cdef readonly tuple lists  # (what it is called, list, places of items in it, its length)
    cdef list items  # what each list held
    cdef bint holds_objects  # whether there are lists or slots
    cdef readonly tuple slots  # (what it is called, object, descriptor)
    cdef tuple filled  # what each slot held
    cdef Variable *variables  # one for each cell; all is kept alive by the tuples
    cdef Py_ssize_t n_variables
    cdef Space *spaces  # one for each dict, in the order of `globals`
    cdef Py_ssize_t n_spaces
    cdef object same

    # Whether all are what they were.
    cdef bint hold(self) except -1
    cdef bint settles(self, Py_ssize_t space, uint64_t version) except -1
    cdef bint lists_hold(self) except -1
    cdef bint slots_hold(self) except -1
    cdef bint all_alike(self, list now, list before) except -1
    cdef bint alike(self, object now, object before) except -1
