# cython: language_level=3
"""The class that Tensor extends, with the fields that a replay reads."""

cdef class ArrayHandle:
    cdef object memory
    cdef char *data  # NULL: not realized
    cdef int code
    cdef tuple shape
    cdef Py_ssize_t nbytes
    cdef public object _uop
