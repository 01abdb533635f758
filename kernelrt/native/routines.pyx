# cython: language_level=3
"""Addresses of the C routines of csrc/."""

cdef extern from "routines.h":
    ctypedef void krt_routine(void *const *bufs, const long *vals)
    ctypedef struct krt_named:
        const char *name
        krt_routine *at

cdef extern from "sort.h":
    krt_routine krt_argsort_u32, krt_argsort_u64

cdef extern from "foreign.h":
    krt_routine krt_each
    enum: KRT_EACH_MOST

cdef extern from "linalg.h":
    const krt_named *krt_linalg(int bits)

cdef extern from "cumsum.h":
    const krt_named *krt_cumsum(int bits)

cdef extern from "running.h":
    const krt_named *krt_running(int bits)


cdef dict named(const krt_named *entry):
    found = {}
    while entry != NULL and entry.name != NULL:
        found[entry.name.decode()] = <size_t> entry.at
        entry += 1
    return found


ORDER = {
    "argsort_u32": <size_t> &krt_argsort_u32,
    "argsort_u64": <size_t> &krt_argsort_u64,
}
EACH = <size_t> &krt_each
EACH_MOST = <int> KRT_EACH_MOST
ADDRESSES = {
    bits: ORDER | found | named(krt_cumsum(bits)) | named(krt_running(bits))
    for bits in (128, 256, 512) if (found := named(krt_linalg(bits)))
}
BY_NAME = {f"{name}@{bits}": at for bits, table in ADDRESSES.items() for name, at in table.items()}
