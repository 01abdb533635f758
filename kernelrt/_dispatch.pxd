# cython: language_level=3
"""The fields of the classes of _dispatch, for other extensions."""

from kernelrt.native.core cimport Table
from kernelrt.native.krt cimport krt_profile, krt_status


cdef class Profile:
    cdef krt_profile raw
    cdef size_t n_samples
    cdef list rows(self)


cdef class PlanCore(Table):
    cdef object error
    cdef unsigned long long called_back  # times that a run may have let other Python code run
    cdef bint lasting  # whether runs may write memory that outlives the plan
    cdef PlanCore preparation  # computes run-invariant values; or None
    cdef tuple sources  # the storages that the preparation reads
    cdef unsigned long long prepared  # `writes` up to which the preparation is current; 0: never

    # Call under exclusive access (see `Table`), which `finish` ends, whether it returns or raises.
    cdef krt_status run(self, krt_profile *profile, size_t *failed_op,
                        bint keep_gil) noexcept
    cdef krt_status prepare(self) noexcept
    cdef int finish(self, krt_status status, size_t op) except -1
