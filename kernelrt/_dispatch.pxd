# cython: language_level=3
"""The classes of _dispatch with their fields, for the extensions that build on them."""

from libc.stdint cimport int64_t

from kernelrt._krt cimport krt_frame, krt_lock, krt_plan, krt_sample, krt_status


cdef class PlanCore:
    cdef krt_lock lock
    cdef krt_plan *plan
    cdef int64_t status_word
    cdef size_t count
    cdef dict customs
    cdef object error
    cdef object bound_by  # the replay whose values the table holds; changed within a turn
    cdef object __weakref__

    # A turn: acquire, any of the others, then leave or finish.
    cdef int acquire(self, krt_frame *frame) except -1
    cdef void bind(self, size_t op, size_t slot, void *address) noexcept
    cdef krt_status run(self, krt_sample *samples, size_t *failed_op) noexcept
    cdef void leave(self, krt_frame *frame) noexcept
    cdef int finish(self, krt_frame *frame, krt_status status, size_t op) except -1
    cdef int assign(self, pointers, values, chunks) except -1
    cdef int acquire_with(self, krt_frame *frame, bind) except -1
    cdef krt_status warn_fewer_threads(self, krt_status status)
