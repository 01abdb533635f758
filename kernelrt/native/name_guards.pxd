# cython: language_level=3
"""Guards of Python variables and attributes, compared by pointers."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t


cdef struct Variable:
    PyObject *cell
    PyObject *held


cdef struct Space:
    PyObject *names
    Py_ssize_t end  # end of its names in `Names.globals`
    bint tagged  # whether each change of the dict changes its version
    uint64_t version  # version of the dict when its names were last compared


cdef class Names:
    cdef readonly tuple cells  # (name, cell)
    cdef tuple held  # the value of each cell
    # (key, dict, name in texts, whether it is an attribute of an object); grouped by dict
    cdef readonly tuple globals
    cdef tuple found  # the value of each global
    # (name in texts, list, indices of guarded items, whether its length is guarded)
    cdef readonly tuple lists
    cdef list items  # the items of each list
    cdef bint holds_objects  # whether there are lists or slots
    cdef readonly tuple slots  # (name in texts, object, descriptor)
    cdef tuple filled  # the value of each slot
    cdef Variable *variables  # one per cell; the tuples keep the objects alive
    cdef Py_ssize_t n_variables
    cdef Space *spaces  # one per dict, in the order of `globals`
    cdef Py_ssize_t n_spaces
    cdef object same

    # Return whether all guarded names are unchanged.
    cdef bint hold(self) except -1
    cdef bint settles(self, Py_ssize_t space, uint64_t version) except -1
    cdef bint lists_hold(self) except -1
    cdef bint slots_hold(self) except -1
    cdef bint all_alike(self, list now, list before) except -1
    cdef bint alike(self, object now, object before) except -1
