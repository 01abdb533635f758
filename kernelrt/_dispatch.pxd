# cython: language_level=3
"""The classes of _dispatch with their fields, for the extensions that build on them."""

from kernelrt.native.core cimport Table
from kernelrt.native.krt cimport krt_sample, krt_status


cdef krt_sample *new_samples(size_t count) except NULL
cdef list list_of_samples(const krt_sample *samples, size_t count)


cdef class PlanCore(Table):
    cdef object error
    cdef unsigned long long called_back  # how often a run may have let other Python in
    cdef bint lasting  # whether it may write to memory that is not its own alone
    cdef PlanCore preparation  # computes what stays the same from run to run; or None
    cdef tuple sources  # the storages that this reads
    cdef unsigned long long prepared  # `writes` up to which that holds; 0: it does not

    # Within a turn (see `Table`), which `finish` ends: when it returns or raises.
    cdef krt_status run(self, krt_sample *samples, size_t *failed_op,
                        bint keep_gil) noexcept
    cdef krt_status prepare(self) noexcept
    cdef int finish(self, krt_status status, size_t op) except -1
