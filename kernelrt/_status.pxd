# cython: language_level=3
"""From the status of a call into the C core to an exception."""

from kernelrt._krt cimport krt_fault, krt_status


# `cause` is what a custom function or a signal handler raised, `name` what errors call its
# operation, `index_error` what to raise for an index.
cdef int raise_status(krt_status status, const krt_fault *fault, size_t op,
                      object cause, object name=*, object index_error=*) except -1
