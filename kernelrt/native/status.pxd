# cython: language_level=3
"""From the status of a call into the C core to an exception."""

from libc.stdint cimport int64_t

from kernelrt.native.krt cimport krt_fault, krt_status


# `cause` is what a custom function or a signal handler raised, `name` what errors call its
# operation, `index_error` what to raise for an index, `turn` that of the loop around either.
cdef int raise_status(krt_status status, const krt_fault *fault, size_t op, object cause,
                      object name=*, object index_error=*, object turn=*) except -1

# As above for a run of a plan, which stopped at `op`: within regions (`path`, see
# `Table.stopped_in`) at the op `at` of `plan`, the last of their bodies, which stored `word`.
cdef int raise_stopped(krt_status status, size_t op, object cause, object plan, size_t at,
                       int64_t word, list path) except -1
