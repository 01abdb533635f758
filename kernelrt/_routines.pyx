# cython: language_level=3
"""Where the routines of csrc/ are."""

cdef extern from "routines.h":
    ctypedef void krt_routine(void *const *bufs, const long *vals)

cdef extern from "sort.h":
    krt_routine krt_argsort_u32
    krt_routine krt_argsort_u64

ADDRESSES = {
    "argsort_u32": <size_t> &krt_argsort_u32,
    "argsort_u64": <size_t> &krt_argsort_u64,
}
