# cython: language_level=3
"""The classes of _dispatch with their fields, for the extensions that build on them."""

from libc.stdint cimport int64_t

from kernelrt._krt cimport krt_fault, krt_host, krt_lock, krt_plan, krt_sample, krt_status
from kernelrt._ops cimport Ops


cdef krt_sample *new_samples(size_t count) except NULL
cdef list list_of_samples(const krt_sample *samples, size_t count)


cdef class PlanCore:
    cdef krt_lock lock
    cdef krt_plan *plan
    cdef size_t count
    cdef size_t samples  # of a profiled run: of its ops, and of those of bodies
    cdef int limit  # threads that were asked for; 0: none
    cdef dict customs
    cdef object error
    cdef bint lasting  # whether it may write to memory that is not its own alone
    cdef PlanCore preparation  # computes what stays the same from run to run; or None
    cdef tuple sources  # the storages that this reads
    cdef unsigned long long prepared  # `writes` up to which that holds; 0: it does not
    cdef tuple bodies  # of its regions: (op, PlanCores)
    cdef bint owned  # a body, which only the plan of its region runs and changes
    cdef object bound_by  # the replay whose values the table holds; changed within a turn
    cdef object __weakref__

    # A turn: acquire, any of the others, then leave or finish. The turn is over when these
    # return or raise; before, only `assign` and what the plan itself calls is Python.
    cdef int acquire(self) except -1
    cdef int acquire_to_read(self) except -1
    cdef void bind(self, size_t op, size_t slot, void *address) noexcept
    cdef krt_status run(self, krt_sample *samples, size_t *failed_op) noexcept
    cdef krt_status prepare(self) noexcept
    cdef void leave(self) noexcept
    cdef int finish(self, krt_status status, size_t op) except -1
    cdef int adopt(self, Ops staged, krt_host host, krt_fault *fault) except -1
    cdef list stopped_in(self, size_t *op)
    cdef PlanCore body_at(self, size_t op, size_t which)
    cdef int assign(self, tuple changes) except -1
    cdef int acquire_with(self, bind) except -1
